//! Finding and opening NCCL, which nothing here is linked to.
//!
//! cudarc's own loader knows neither `libnccl.so.2` nor the folders of Python's packages, and panics where a library or
//! a symbol is missing. So the library is opened here, by names and paths that are tried in turn, and only the types of
//! its functions are cudarc's. Results are taken as plain numbers, since a newer NCCL may return ones that no enum has.

use crate::error::{CollectiveError, Result};
use cudarc::driver::sys::CUstream;
use cudarc::nccl::sys::{ncclComm_t, ncclConfig_t, ncclUniqueId};
use std::ffi::{CStr, OsStr, OsString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Names the file to use, before all others.
pub const LIBRARY_VARIABLE: &str = "GT_NCCL_LIBRARY";
const NAMES: [&str; 2] = ["libnccl.so.2", "libnccl.so"];
/// Below a folder of Python's packages.
const IN_PACKAGES: &str = "nvidia/nccl/lib/libnccl.so.2";
/// The oldest NCCL whose configuration we speak: 2.18, which can work without blocking and be aborted.
const VERSION_MIN: c_int = 21800;
/// `ncclSuccess`.
pub const SUCCESS: c_int = 0;
/// `ncclInProgress`.
pub const IN_PROGRESS: c_int = 7;

macro_rules! functions {
    ($($name:ident: $symbol:literal ($($argument:ty),*) -> $result:ty;)*) => {
        /// The functions of NCCL that are used.
        pub struct Library {
            $(pub $name: unsafe extern "C" fn($($argument),*) -> $result,)*
            /// Where it was found.
            pub path: PathBuf,
            /// Keeps the functions mapped.
            _library: libloading::Library,
        }

        impl Library {
            fn bind(library: libloading::Library, path: PathBuf) -> Result<Library, String> {
                $(
                    // SAFETY: the signature is that of NCCL's header, the same in every version since 2.18.
                    let $name = *unsafe { library.get(concat!($symbol, "\0").as_bytes()) }
                        .map_err(|error| format!("{}: {error}", $symbol))?;
                )*
                Ok(Library { $($name,)* path, _library: library })
            }
        }
    };
}

functions! {
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

impl Library {
    /// NCCL, opened at the first call.
    ///
    /// # Errors
    /// [`CollectiveError::Setup`], which says where it was looked for and how to install it.
    pub fn get() -> Result<&'static Library> {
        static LIBRARY: OnceLock<Result<Library>> = OnceLock::new();
        let found = LIBRARY.get_or_init(|| Library::open(&candidates(|name| std::env::var_os(name))));
        found.as_ref().map_err(Clone::clone)
    }

    /// Opens the first of `paths` that is NCCL.
    pub fn open(paths: &[PathBuf]) -> Result<Library> {
        let mut tried = Vec::new();
        for path in paths {
            // A path is looked for first, so that the message tells a file that is not there from one that is broken.
            if path.components().count() > 1 && !path.exists() {
                tried.push(format!("{}: not there", path.display()));
                continue;
            }
            // SAFETY: the initialisers of NCCL and of what it needs do nothing that other libraries' do not.
            let opened = unsafe { libloading::Library::new(path) }.map_err(|error| error.to_string());
            match opened.and_then(|library| Library::bind(library, path.clone())) {
                Ok(library) => match library.version()? {
                    version if version >= VERSION_MIN => return Ok(library),
                    version => tried.push(format!("{}: version {version}, too old", path.display())),
                },
                Err(error) => tried.push(format!("{}: {error}", path.display())),
            }
        }
        Err(CollectiveError::setup(
            "use NCCL",
            format!(
                "the library is not on this machine. Looked for: {}. Install it by `pip install nvidia-nccl-cu13` \
                 beside GT, or set {LIBRARY_VARIABLE} to the path of libnccl.so.2",
                tried.join("; ")
            ),
        ))
    }

    /// As NCCL says it: 21805 is 2.18.5.
    ///
    /// # Errors
    /// Whatever NCCL reports.
    pub fn version(&self) -> Result<c_int> {
        let mut version = 0;
        // SAFETY: it writes one int.
        let status = unsafe { (self.get_version)(&raw mut version) };
        if status == SUCCESS {
            Ok(version)
        } else {
            Err(CollectiveError::setup("use NCCL", self.explain(status, None)))
        }
    }

    /// What NCCL says about a result, and of the last error of a communicator.
    pub fn explain(&self, status: c_int, comm: Option<ncclComm_t>) -> String {
        let text = |text: *const c_char| {
            // SAFETY: NCCL's strings are static or live as long as this thread.
            (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
        };
        // SAFETY: it takes any number.
        let what = text(unsafe { (self.error_string)(status) }).unwrap_or_else(|| format!("result {status}"));
        // SAFETY: a communicator that has not been destroyed, or null.
        let last = text(unsafe { (self.last_error)(comm.unwrap_or(std::ptr::null_mut())) });
        match last.filter(|last| !last.is_empty()) {
            Some(last) => format!("NCCL says: {what} ({})", last.trim()),
            None => format!("NCCL says: {what}"),
        }
    }
}

/// Where NCCL may be, the likeliest first.
fn candidates(variable: impl Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = variable(LIBRARY_VARIABLE).map(PathBuf::from).into_iter().collect();
    // A daemon that pip installed lies in the environment's `bin`.
    let own = std::env::current_exe().ok().and_then(|program| Some(program.parent()?.parent()?.to_owned()));
    let prefixes = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(&variable).map(PathBuf::from).chain(own);
    for prefix in prefixes {
        paths.extend(in_packages(&prefix.join("lib")));
        paths.push(prefix.join("lib").join(NAMES[0]));
    }
    let python_path = variable("PYTHONPATH").unwrap_or_default();
    paths.extend(
        std::env::split_paths(&python_path).map(|folder| folder.join(IN_PACKAGES)).filter(|path| path.exists()),
    );
    // By name: what the loader knows, LD_LIBRARY_PATH and the system's folders.
    paths.extend(NAMES.map(PathBuf::from));
    for prefix in ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(&variable).chain(["/usr/local/cuda".into()]) {
        paths.push(Path::new(&prefix).join("lib64").join(NAMES[0]));
    }
    paths.dedup();
    paths
}

/// The library in the packages of each Python below `lib`.
fn in_packages(lib: &Path) -> Vec<PathBuf> {
    let pythons = std::fs::read_dir(lib).into_iter().flatten().flatten();
    let pythons = pythons.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(b"python3"));
    let mut paths: Vec<PathBuf> =
        pythons.map(|entry| entry.path().join(OsStr::new("site-packages")).join(IN_PACKAGES)).collect();
    paths.sort();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "Miri opens no libraries")]
    fn a_machine_without_nccl_says_where_it_was_looked_for() {
        let paths = candidates(|name| (name == "VIRTUAL_ENV" || name == LIBRARY_VARIABLE).then(|| "/nowhere".into()));
        assert_eq!(paths[0], Path::new("/nowhere"));
        assert!(paths.contains(&"/nowhere/lib/libnccl.so.2".into()), "{paths:?}");
        assert!(paths.contains(&"libnccl.so.2".into()), "{paths:?}");
        let missing = [PathBuf::from("/nowhere/libnccl.so.2"), "libgt-no-such-library.so.2".into()];
        let error = Library::open(&missing).err().unwrap().to_string();
        for part in ["/nowhere/libnccl.so.2: not there", "libgt-no-such-library.so.2: ", "pip install nvidia-nccl-cu13"]
        {
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri opens no libraries")]
    fn a_library_that_is_not_nccl_is_an_error() {
        let error = Library::open(&["libc.so.6".into()]).err().unwrap().to_string();
        assert!(error.contains("libc.so.6: ") && error.contains("ncclGetVersion"), "{error}");
    }
}
