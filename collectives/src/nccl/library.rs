//! NCCL's library: its types and functions, and how it is found and opened.
//!
//! Nothing is linked: `gt_nvidia` finds and opens the library. The declarations are those of `nccl.h`, with which
//! `nvidia/tests/headers.rs` compares them. Results are plain integers, since a newer NCCL may return values that no
//! enum has.

use crate::error::{CollectiveError, Result};
use gt_nvidia::{Missing, NCCL};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

/// The oldest NCCL that can be used: 2.18 has non-blocking communicators with this configuration.
const VERSION_MIN: c_int = 21800;
/// Binds an opened library, or says why it cannot be used.
type Usable = fn(gt_nvidia::Opened) -> Result<NcclLibrary, String>;
/// `ncclSuccess`.
pub const SUCCESS: c_int = 0;
/// `ncclInProgress`.
pub const IN_PROGRESS: c_int = 7;
/// Bytes of a [`UniqueId`].
pub const UNIQUE_ID_BYTES: usize = 128;
/// The number by which NCCL recognises a configuration that was initialised.
const CONFIG_MAGIC: c_uint = 0xcafe_beef;
/// The version of NCCL that a configuration is for: NCCL itself sets the fields that newer versions have.
const CONFIG_VERSION: c_uint = 21700;
/// `NCCL_CONFIG_UNDEF_INT`: NCCL uses its default.
const UNDEFINED: c_int = c_int::MIN;

/// `ncclComm`, which only NCCL looks into.
#[repr(C)]
pub struct OpaqueComm {
    _opaque: [u8; 0],
}

/// `ncclComm_t`.
pub type CommHandle = *mut OpaqueComm;
/// `cudaStream_t`: a stream of the runtime is a `CUstream` of the driver.
pub type StreamHandle = *mut c_void;

/// The id of a group (`ncclUniqueId`). It holds an address of the process that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct UniqueId(pub [u8; UNIQUE_ID_BYTES]);

/// `ncclConfig_t` as NCCL 2.18 declares it. Newer versions have further fields behind these.
#[repr(C)]
pub struct NcclConfig {
    size: usize,
    magic: c_uint,
    version: c_uint,
    blocking: c_int,
    cga_cluster_size: c_int,
    ctas_min: c_int,
    ctas_max: c_int,
    net_name: *const c_char,
    split_share: c_int,
}

impl NcclConfig {
    /// NCCL's defaults, as `NCCL_CONFIG_INITIALIZER` sets them, for a communicator whose calls do not block.
    pub fn non_blocking() -> NcclConfig {
        NcclConfig {
            size: size_of::<NcclConfig>(),
            magic: CONFIG_MAGIC,
            version: CONFIG_VERSION,
            blocking: 0,
            cga_cluster_size: UNDEFINED,
            ctas_min: UNDEFINED,
            ctas_max: UNDEFINED,
            net_name: std::ptr::null(),
            split_share: UNDEFINED,
        }
    }
}

/// NCCL's types of numbers, each under a name of its own, so that a test compares them with its header.
type NcclResult = c_int;
type ElementKind = c_int;
type ReduceKind = c_int;

gt_nvidia::functions! {
    /// The functions of NCCL that are used: the same in every version since 2.18.
    pub struct NcclLibrary {
        get_version: "ncclGetVersion" (*mut c_int) -> NcclResult;
        get_unique_id: "ncclGetUniqueId" (*mut UniqueId) -> NcclResult;
        comm_init: "ncclCommInitRankConfig" (*mut CommHandle, c_int, UniqueId, c_int, *mut NcclConfig) -> NcclResult;
        comm_async_error: "ncclCommGetAsyncError" (CommHandle, *mut NcclResult) -> NcclResult;
        comm_abort: "ncclCommAbort" (CommHandle) -> NcclResult;
        error_string: "ncclGetErrorString" (NcclResult) -> *const c_char;
        last_error: "ncclGetLastError" (CommHandle) -> *const c_char;
        all_reduce: "ncclAllReduce"
            (*const c_void, *mut c_void, usize, ElementKind, ReduceKind, CommHandle, StreamHandle) -> NcclResult;
        reduce: "ncclReduce"
            (*const c_void, *mut c_void, usize, ElementKind, ReduceKind, c_int, CommHandle, StreamHandle) -> NcclResult;
        reduce_scatter: "ncclReduceScatter"
            (*const c_void, *mut c_void, usize, ElementKind, ReduceKind, CommHandle, StreamHandle) -> NcclResult;
        all_gather: "ncclAllGather" (*const c_void, *mut c_void, usize, ElementKind, CommHandle, StreamHandle) -> NcclResult;
        broadcast: "ncclBroadcast" (*const c_void, *mut c_void, usize, ElementKind, c_int, CommHandle, StreamHandle) -> NcclResult;
        send: "ncclSend" (*const c_void, usize, ElementKind, c_int, CommHandle, StreamHandle) -> NcclResult;
        recv: "ncclRecv" (*mut c_void, usize, ElementKind, c_int, CommHandle, StreamHandle) -> NcclResult;
        group_start: "ncclGroupStart" () -> NcclResult;
        group_end: "ncclGroupEnd" () -> NcclResult;
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
            Err(CollectiveError::setup("use NCCL", self.explain(status, std::ptr::null_mut())))
        }
    }

    /// NCCL's text for a result, and for the last error of a communicator; null stands for none.
    pub fn explain(&self, status: c_int, comm: CommHandle) -> String {
        let text = |text: *const c_char| {
            // SAFETY: NCCL's strings end with NUL, and are static or live as long as this thread.
            (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
        };
        // SAFETY: `ncclGetErrorString` accepts any number.
        let what = text(unsafe { (self.error_string)(status) }).unwrap_or_else(|| format!("result {status}"));
        // SAFETY: `ncclGetLastError` accepts null, and callers pass communicators that have not been destroyed.
        let last = text(unsafe { (self.last_error)(comm) });
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
