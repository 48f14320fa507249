//! The measured memory bandwidth of this machine.

use std::sync::OnceLock;
use std::time::Instant;

/// Bytes of one measured copy: more than the caches hold.
const COPY_BYTES: usize = 8 << 20;
/// Copies; the fastest one counts.
const COPIES: usize = 3;

/// The bandwidth of a copy from and to memory outside the caches, bytes a nanosecond. A move between workers on the CPU
/// is no faster. The first call measures it, in some milliseconds.
pub fn machine_bytes_per_ns() -> f64 {
    static MEASURED: OnceLock<f64> = OnceLock::new();
    *MEASURED.get_or_init(|| {
        let from = vec![1u8; COPY_BYTES];
        let mut to = vec![0u8; COPY_BYTES];
        let copies = (0..COPIES).map(|_| {
            let start = Instant::now();
            to.copy_from_slice(std::hint::black_box(&from));
            std::hint::black_box(&to);
            start.elapsed().as_nanos() as f64
        });
        COPY_BYTES as f64 / copies.fold(f64::INFINITY, f64::min).max(1.0)
    })
}
