//! NCCL's library: finding, opening and binding it, since nothing is linked.
//!
//! cudarc's own loader knows neither `libnccl.so.2` nor the folders of Python's packages, and panics where a library or
//! a symbol is missing. So `gt_nvidia` opens the library, and only the types of its functions are cudarc's. Results are
//! plain integers, since a newer NCCL may return values that no enum has.

use crate::error::{CollectiveError, Result};
use cudarc::driver::sys::CUstream;
use cudarc::nccl::sys::{ncclComm_t, ncclConfig_t, ncclUniqueId};
use gt_nvidia::{Missing, NCCL};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

/// The oldest NCCL that can be used: 2.18 has non-blocking communicators with this configuration.
const VERSION_MIN: c_int = 21800;
/// Binds an opened library, or says why it cannot be used.
type Usable = fn(gt_nvidia::Opened) -> Result<NcclLibrary, String>;
/// `ncclSuccess`.
pub const SUCCESS: c_int = 0;
/// `ncclInProgress`.
pub const IN_PROGRESS: c_int = 7;

gt_nvidia::functions! {
    /// The functions of NCCL that are used: the same in every version since 2.18.
    pub struct NcclLibrary {
        get_version: "ncclGetVersion" (*mut c_int) -> c_int;
        get_unique_id: "ncclGetUniqueId" (*mut ncclUniqueId) -> c_int;
        comm_init: "ncclCommInitRankConfig" (*mut ncclComm_t, c_int, ncclUniqueId, c_int, *mut ncclConfig_t) -> c_int;
        comm_async_error: "ncclCommGetAsyncError" (ncclComm_t, *mut c_int) -> c_int;
        comm_abort: "ncclCommAbort" (ncclComm_t) -> c_int;
        error_string: "ncclGetErrorString" (c_int) -> *const c_char;
        last_error: "ncclGetLastError" (ncclComm_t) -> *const c_char;
        all_reduce: "ncclAllReduce" (*const c_void, *mut c_void, usize, c_int, c_int, ncclComm_t, CUstream) -> c_int;
        reduce: "ncclReduce" (*const c_void, *mut c_void, usize, c_int, c_int, c_int, ncclComm_t, CUstream) -> c_int;
        reduce_scatter: "ncclReduceScatter"
            (*const c_void, *mut c_void, usize, c_int, c_int, ncclComm_t, CUstream) -> c_int;
        all_gather: "ncclAllGather" (*const c_void, *mut c_void, usize, c_int, ncclComm_t, CUstream) -> c_int;
        broadcast: "ncclBroadcast" (*const c_void, *mut c_void, usize, c_int, c_int, ncclComm_t, CUstream) -> c_int;
        send: "ncclSend" (*const c_void, usize, c_int, c_int, ncclComm_t, CUstream) -> c_int;
        recv: "ncclRecv" (*mut c_void, usize, c_int, c_int, ncclComm_t, CUstream) -> c_int;
        group_start: "ncclGroupStart" () -> c_int;
        group_end: "ncclGroupEnd" () -> c_int;
    }
}

impl NcclLibrary {
    /// NCCL, opened at the first call.
    ///
    /// # Errors
    /// [`CollectiveError::Setup`], which says where NCCL was looked for and how to install it.
    pub fn get() -> Result<&'static NcclLibrary> {
        static LIBRARY: OnceLock<Result<NcclLibrary>> = OnceLock::new();
        let found = LIBRARY.get_or_init(|| NcclLibrary::checked(|usable| NCCL.open(None, usable)));
        found.as_ref().map_err(Clone::clone)
    }

    /// Opens the first of `paths` that is NCCL.
    #[cfg(test)]
    fn open(paths: &[std::path::PathBuf]) -> Result<NcclLibrary> {
        NcclLibrary::checked(|usable| NCCL.open_first(paths, usable))
    }

    /// The first library that `open` finds and that can be used.
    fn checked(open: impl FnOnce(Usable) -> Result<NcclLibrary, Missing>) -> Result<NcclLibrary> {
        let usable = |opened| {
            let library = NcclLibrary::bind(opened)?;
            match library.version().map_err(|error| error.to_string())? {
                version if version >= VERSION_MIN => Ok(library),
                version => Err(format!("version {version}, too old")),
            }
        };
        open(usable).map_err(|missing| CollectiveError::setup("use NCCL", missing.to_string()))
    }

    /// The version, as NCCL encodes it: 21805 is 2.18.5.
    ///
    /// # Errors
    /// NCCL's error.
    pub fn version(&self) -> Result<c_int> {
        let mut version = 0;
        // SAFETY: `ncclGetVersion` writes one int, which `version` is.
        let status = unsafe { (self.get_version)(&raw mut version) };
        if status == SUCCESS {
            Ok(version)
        } else {
            Err(CollectiveError::setup("use NCCL", self.explain(status, None)))
        }
    }

    /// NCCL's text for a result, and for the last error of a communicator.
    pub fn explain(&self, status: c_int, comm: Option<ncclComm_t>) -> String {
        let text = |text: *const c_char| {
            // SAFETY: NCCL's strings end with NUL, and are static or live as long as this thread.
            (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
        };
        // SAFETY: `ncclGetErrorString` accepts any number.
        let what = text(unsafe { (self.error_string)(status) }).unwrap_or_else(|| format!("result {status}"));
        // SAFETY: `ncclGetLastError` accepts null, and callers pass communicators that have not been destroyed.
        let last = text(unsafe { (self.last_error)(comm.unwrap_or(std::ptr::null_mut())) });
        match last.filter(|last| !last.is_empty()) {
            Some(last) => format!("NCCL says: {what} ({})", last.trim()),
            None => format!("NCCL says: {what}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "Miri opens no libraries")]
    fn a_machine_without_nccl_says_where_it_was_looked_for() {
        let missing = ["/nowhere/libnccl.so.2".into(), "libgt-no-such-library.so.2".into()];
        let error = NcclLibrary::open(&missing).err().unwrap().to_string();
        for part in ["/nowhere/libnccl.so.2: not there", "libgt-no-such-library.so.2: ", "pip install nvidia-nccl-cu13"]
        {
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri opens no libraries")]
    fn a_library_that_is_not_nccl_is_an_error() {
        let error = NcclLibrary::open(&["libc.so.6".into()]).err().unwrap().to_string();
        assert!(error.contains("libc.so.6: ") && error.contains("ncclGetVersion"), "{error}");
    }
}
