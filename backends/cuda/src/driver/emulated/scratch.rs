//! Temporary files.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A new file name in the folder for temporary files.
pub(super) fn scratch(extension: &str) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let name = format!("gt-emulated-{}-{}.{extension}", std::process::id(), NEXT.fetch_add(1, Relaxed));
    std::env::temp_dir().join(name)
}
