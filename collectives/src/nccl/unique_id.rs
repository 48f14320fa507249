//! The id of a group of NCCL, and the version of the library that makes it.

use super::library::{NcclLibrary, SUCCESS, UNIQUE_ID_BYTES, UniqueId};
use crate::error::{CollectiveError, Result};

impl UniqueId {
    /// Makes an id. The process that makes it must live until all ranks have joined the group.
    ///
    /// # Errors
    /// [`CollectiveError::Setup`] without NCCL, or if it finds no network interface.
    pub fn new() -> Result<UniqueId> {
        let library = NcclLibrary::get()?;
        let mut id = UniqueId([0; UNIQUE_ID_BYTES]);
        // SAFETY: `ncclGetUniqueId` writes one `ncclUniqueId`, to the local `id`.
        let status = unsafe { (library.get_unique_id)(&raw mut id) };
        if status != SUCCESS {
            return Err(CollectiveError::setup(
                "make the id of a group",
                library.explain(status, std::ptr::null_mut()),
            ));
        }
        Ok(id)
    }
}

/// The version of NCCL on this machine (21805 is 2.18.5), and the path of its library.
///
/// # Errors
/// [`CollectiveError::Setup`] without NCCL.
pub fn version() -> Result<(i32, std::path::PathBuf)> {
    let library = NcclLibrary::get()?;
    Ok((library.version()?, library.path.clone()))
}

/// A version as NVIDIA writes it: `2.18.5` for 21805.
pub fn version_text(version: i32) -> String {
    format!("{}.{}.{}", version / 10_000, version % 10_000 / 100, version % 100)
}
