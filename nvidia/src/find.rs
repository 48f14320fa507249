//! Finding and opening NVIDIA's shared libraries.
//!
//! The system's loader knows the system's folders and `LD_LIBRARY_PATH`, but not those of Python packages, from which
//! most users have CUDA. The search tries each candidate in turn, and goes on after a file that cannot be used.

use std::ffi::{CStr, OsString};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The environment variable with folders that are searched first, as in a `PATH`.
pub const FOLDERS_VARIABLE: &str = "GT_CUDA_LIBRARIES";

/// A shared library of NVIDIA's, and where to look for it.
#[derive(Debug)]
pub struct SharedLibrary {
    /// Its common name.
    pub name: &'static str,
    /// Its purpose, as a clause: "which compiles the kernels".
    pub purpose: &'static str,
    /// How to install it.
    pub install: &'static str,
    /// An environment variable with the path of its file, which is tried first.
    variable: Option<&'static str>,
    /// File names, the best first.
    files: &'static [File],
    /// Further folders of the system.
    folders: &'static [&'static str],
}

/// A file name that a library may have.
#[derive(Debug)]
struct File {
    name: &'static str,
    /// Its folder below a folder of Python packages; empty if no package has it.
    in_packages: &'static str,
    /// The CUDA version that it requires of the driver, if it requires one.
    cuda: Option<u32>,
}

/// The driver, `libcuda`.
pub const DRIVER: SharedLibrary = SharedLibrary {
    name: "NVIDIA's driver library",
    purpose: "through which GPUs are used",
    install: "install NVIDIA's driver (apt install nvidia-driver, or the package of your system); in a container, start \
              it with the GPUs (docker run --gpus all)",
    variable: None,
    files: &[File { name: "libcuda.so.1", in_packages: "", cuda: None }],
    folders: &["/usr/lib/wsl/lib", "/run/opengl-driver/lib"],
};

/// NVRTC, the compiler of kernels.
pub const NVRTC: SharedLibrary = SharedLibrary {
    name: "NVRTC",
    purpose: "which compiles the kernels",
    install: "pip install nvidia-cuda-nvrtc beside GT (nvidia-cuda-nvrtc-cu12 with a driver older than 580)",
    variable: None,
    files: &[
        File { name: "libnvrtc.so.13", in_packages: "nvidia/cu13/lib", cuda: Some(13) },
        File { name: "libnvrtc.so.12", in_packages: "nvidia/cuda_nvrtc/lib", cuda: Some(12) },
    ],
    folders: &["/usr/local/cuda/lib64"],
};

/// cuBLASLt, for matrix products.
pub const CUBLAS_LT: SharedLibrary = SharedLibrary {
    name: "cuBLASLt",
    purpose: "which multiplies matrices",
    install: "pip install nvidia-cublas beside GT (nvidia-cublas-cu12 with a driver older than 580)",
    variable: None,
    files: &[
        File { name: "libcublasLt.so.13", in_packages: "nvidia/cu13/lib", cuda: Some(13) },
        File { name: "libcublasLt.so.12", in_packages: "nvidia/cublas/lib", cuda: Some(12) },
    ],
    folders: &["/usr/local/cuda/lib64"],
};

/// cuDNN, for convolutions. The packages for CUDA 12 and 13 have the same files.
pub const CUDNN: SharedLibrary = SharedLibrary {
    name: "cuDNN",
    purpose: "which computes convolutions",
    install: "pip install nvidia-cudnn-cu13 beside GT (nvidia-cudnn-cu12 with a driver older than 580)",
    variable: None,
    files: &[File { name: "libcudnn.so.9", in_packages: "nvidia/cudnn/lib", cuda: None }],
    folders: &["/usr/local/cuda/lib64"],
};

/// NCCL, for collectives.
pub const NCCL: SharedLibrary = SharedLibrary {
    name: "NCCL",
    purpose: "by which several GPUs compute together",
    install: "pip install nvidia-nccl-cu13 beside GT, or set GT_NCCL_LIBRARY to the path of libnccl.so.2",
    variable: Some("GT_NCCL_LIBRARY"),
    files: &[
        File { name: "libnccl.so.2", in_packages: "nvidia/nccl/lib", cuda: None },
        File { name: "libnccl.so", in_packages: "", cuda: None },
    ],
    folders: &["/usr/local/cuda/lib64"],
};

/// NVML, which describes devices without using them.
pub const NVML: SharedLibrary = SharedLibrary {
    name: "NVML",
    purpose: "which says who uses a GPU",
    install: "it comes with NVIDIA's driver",
    variable: None,
    files: &[File { name: "libnvidia-ml.so.1", in_packages: "", cuda: None }],
    folders: &["/usr/lib/wsl/lib", "/run/opengl-driver/lib"],
};

/// UCX, by which machines exchange bytes. The packages of Python that have it cannot use RDMA, so that of the system is
/// used.
pub const UCX: SharedLibrary = SharedLibrary {
    name: "UCX",
    purpose: "by which machines exchange tensors",
    install: "apt install libucx0, or set GT_UCX_LIBRARY to the path of libucp.so.0",
    variable: Some("GT_UCX_LIBRARY"),
    files: &[File { name: "libucp.so.0", in_packages: "", cuda: None }],
    folders: &["/opt/mellanox/ucx/lib", "/opt/ucx/lib"],
};

/// An open library, closed when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct Opened {
    /// The library's symbols.
    pub library: Arc<libloading::Library>,
    /// The file's path, or a bare name if the loader found it.
    pub path: PathBuf,
}

/// A library that was not found or cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name}, {purpose}, was not found: {install}. Looked for: {tried}")]
pub struct Missing {
    /// Its common name.
    pub name: &'static str,
    /// Its purpose, as a clause.
    pub purpose: &'static str,
    /// How to get it.
    pub install: &'static str,
    /// The candidates that were tried, and what was wrong with each.
    pub tried: String,
}

/// The environment that a search depends on.
pub struct Environment<'a> {
    /// Looks up an environment variable.
    pub variable: &'a dyn Fn(&str) -> Option<OsString>,
    /// The running program: if pip installed it, it lies in the `bin` of a Python environment.
    pub program: Option<PathBuf>,
}

impl SharedLibrary {
    /// Opens the first candidate that exists and that `bind` accepts. `cuda` is the CUDA version that the driver
    /// supports, if known: the search skips libraries that require a newer one.
    ///
    /// # Errors
    /// [`Missing`].
    pub fn open<T>(
        &self,
        cuda: Option<u32>,
        bind: impl FnMut(Opened) -> std::result::Result<T, String>,
    ) -> std::result::Result<T, Missing> {
        let variable = |name: &str| std::env::var_os(name);
        let environment = Environment { variable: &variable, program: std::env::current_exe().ok() };
        self.open_first(&self.candidates(&environment, cuda), bind).map_err(|mut missing| {
            for newer in self.passed_over(&environment, cuda) {
                missing.tried = format!("{}; {newer}", missing.tried);
            }
            missing
        })
    }

    /// The path of the first candidate that is a library for this machine's processor, as [`open`](Self::open) would
    /// find it. None of them is loaded: on a cold disk, that takes seconds for the largest.
    ///
    /// # Errors
    /// [`Missing`].
    pub fn locate(&self, cuda: Option<u32>) -> std::result::Result<PathBuf, Missing> {
        let variable = |name: &str| std::env::var_os(name);
        let environment = Environment { variable: &variable, program: std::env::current_exe().ok() };
        let mut tried = Vec::new();
        for path in self.candidates(&environment, cuda) {
            let file = if path.components().count() > 1 { Some(path.clone()) } else { loaders_file(&path, &variable) };
            match file.as_deref().map_or(Err("the loader does not find it"), is_for_this_machine) {
                Ok(()) => return Ok(file.unwrap_or(path)),
                Err(why) => tried.push(format!("{}: {why}", path.display())),
            }
        }
        tried.extend(self.passed_over(&environment, cuda));
        Err(self.missing(&tried))
    }

    /// A sentence for each library that is there, but needs a newer driver.
    fn passed_over(&self, environment: &Environment<'_>, cuda: Option<u32>) -> Vec<String> {
        let Some(cuda) = cuda else { return Vec::new() };
        let considered = self.candidates(environment, Some(cuda));
        let newer = self.candidates(environment, None).into_iter().filter(|path| !considered.contains(path));
        let there = newer.filter(|path| path.components().count() > 1 && path.exists());
        there.map(|path| format!("{}: it needs a newer driver than this one for CUDA {cuda}", path.display())).collect()
    }

    fn missing(&self, tried: &[String]) -> Missing {
        let SharedLibrary { name, purpose, install, .. } = *self;
        Missing { name, purpose, install, tried: tried.join("; ") }
    }

    /// As [`open`](Self::open), for the candidates `paths`.
    ///
    /// # Errors
    /// [`Missing`].
    pub fn open_first<T>(
        &self,
        paths: &[PathBuf],
        mut bind: impl FnMut(Opened) -> std::result::Result<T, String>,
    ) -> std::result::Result<T, Missing> {
        let mut tried = Vec::new();
        for path in paths {
            // Checking first lets the message tell a missing file from a broken one.
            if path.components().count() > 1 && !path.exists() {
                tried.push(format!("{}: not there", path.display()));
                continue;
            }
            // SAFETY: loading runs the initialisers of the library and its dependencies; those of NVIDIA's libraries
            // have no requirements.
            let opened = unsafe { libloading::Library::new(path) }.map_err(|error| {
                // libloading wraps the loader's message.
                std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string)
            });
            match opened.and_then(|library| bind(Opened { library: Arc::new(library), path: path.clone() })) {
                Ok(bound) => return Ok(bound),
                // The loader's message may repeat the path.
                Err(error) => match error.strip_prefix(&format!("{}: ", path.display())) {
                    Some(_) => tried.push(error),
                    None => tried.push(format!("{}: {error}", path.display())),
                },
            }
        }
        Err(self.missing(&tried))
    }

    /// The candidate paths, the likeliest first.
    pub fn candidates(&self, environment: &Environment<'_>, cuda: Option<u32>) -> Vec<PathBuf> {
        let variable = environment.variable;
        let files = || self.files.iter().filter(|file| cuda.is_none_or(|cuda| file.cuda <= Some(cuda)));
        let mut paths: Vec<PathBuf> = self.variable.and_then(variable).map(PathBuf::from).into_iter().collect();
        let named = variable(FOLDERS_VARIABLE).unwrap_or_default();
        for folder in std::env::split_paths(&named).filter(|folder| !folder.as_os_str().is_empty()) {
            paths.extend(files().map(|file| folder.join(file.name)));
        }
        let packaged = |packages: &Path| {
            let packages = packages.to_owned();
            files()
                .filter(|file| !file.in_packages.is_empty())
                .map(move |file| packages.join(file.in_packages).join(file.name))
        };
        let own = environment.program.as_deref().and_then(|program| Some(program.parent()?.parent()?.to_owned()));
        let prefixes = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(variable).map(PathBuf::from).chain(own);
        for prefix in prefixes {
            let lib = prefix.join("lib");
            for packages in packages_below(&lib) {
                paths.extend(packaged(&packages));
            }
            paths.extend(files().map(|file| lib.join(file.name)).filter(|path| path.exists()));
        }
        let python_path = variable("PYTHONPATH").unwrap_or_default();
        for folder in std::env::split_paths(&python_path) {
            paths.extend(packaged(&folder).filter(|path| path.exists()));
        }
        // A bare name lets the loader search its cache, LD_LIBRARY_PATH and the system's folders.
        paths.extend(files().map(|file| file.name.into()));
        for prefix in ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(variable) {
            paths.extend(files().map(|file| Path::new(&prefix).join("lib64").join(file.name)));
        }
        for folder in self.folders {
            paths.extend(files().map(|file| Path::new(folder).join(file.name)));
        }
        let mut seen = std::collections::HashSet::new();
        paths.retain(|path| seen.insert(path.clone()));
        paths
    }
}

/// Whether the file is a shared library for this machine's processor.
///
/// # Errors
/// What it is instead.
fn is_for_this_machine(path: &Path) -> Result<(), &'static str> {
    // The beginning of an ELF header: its magic number, the class 2 of 64 bits, and at 18 the processor.
    let mut head = [0; 20];
    let read = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut head));
    if let Err(error) = read {
        return Err(match error.kind() {
            ErrorKind::NotFound => "not there",
            ErrorKind::PermissionDenied => "it may not be read",
            _ => "it is no library",
        });
    }
    if !head.starts_with(b"\x7fELF") {
        return Err("it is no library");
    }
    const PROCESSOR: u16 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };
    if head[4] == 2 && u16::from_le_bytes([head[18], head[19]]) == PROCESSOR {
        Ok(())
    } else {
        Err("it is for another kind of processor")
    }
}

/// The file that the system's loader takes for this name: from `LD_LIBRARY_PATH`, its cache, or the system's folders.
fn loaders_file(name: &Path, variable: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let named = variable("LD_LIBRARY_PATH").unwrap_or_default();
    let first = std::env::split_paths(&named).map(|folder| folder.join(name));
    let cached = name.to_str().and_then(|name| in_loaders_cache(&std::fs::read("/etc/ld.so.cache").ok()?, name));
    let last = ["/lib64", "/usr/lib64", "/lib", "/usr/lib"].map(|folder| Path::new(folder).join(name));
    first.chain(cached).chain(last).find(|path| is_for_this_machine(path).is_ok())
}

/// The path of a library in the contents of `/etc/ld.so.cache` (`struct cache_file_new` of glibc's `dl-cache.h`).
fn in_loaders_cache(cache: &[u8], name: &str) -> Option<PathBuf> {
    const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
    const HEADER_BYTES: usize = 48;
    const ENTRY_BYTES: usize = 24;
    // An older format may precede this one.
    let start = cache.windows(MAGIC.len()).position(|bytes| bytes == MAGIC)?;
    let cache = &cache[start..];
    let number = |at: usize| Some(u32::from_le_bytes(cache.get(at..at + 4)?.try_into().ok()?) as usize);
    let text = |at: usize| CStr::from_bytes_until_nul(cache.get(at..)?).ok()?.to_str().ok();
    (0..number(MAGIC.len())?).find_map(|entry| {
        let at = HEADER_BYTES + entry * ENTRY_BYTES;
        // Flags precede the name and the path.
        let path = if text(number(at + 4)?)? == name { text(number(at + 8)?)? } else { return None };
        Some(PathBuf::from(path)).filter(|path| is_for_this_machine(path).is_ok())
    })
}

/// The folders of packages of each Python version below `lib`.
fn packages_below(lib: &Path) -> Vec<PathBuf> {
    let pythons = std::fs::read_dir(lib).into_iter().flatten().flatten();
    let pythons = pythons.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(b"python3"));
    let mut folders: Vec<PathBuf> = pythons
        .flat_map(|python| ["site-packages", "dist-packages"].map(|packages| python.path().join(packages)))
        .filter(|folder| folder.is_dir())
        .collect();
    // The newest Python first.
    folders.sort_by(|a, b| b.cmp(a));
    folders
}

/// Declares a struct of a library's functions, each with its symbol and its C signature.
///
/// ```
/// gt_nvidia::functions! {
///     /// Functions of the C library.
///     pub struct LibC {
///         abs: "abs" (std::ffi::c_int) -> std::ffi::c_int;
///     }
/// }
/// let path = "libc.so.6".into();
/// let library = gt_nvidia::DRIVER.open_first(&[path], LibC::bind)?;
/// // SAFETY: `abs` takes any int but the least.
/// assert_eq!(unsafe { (library.abs)(-3) }, 3);
/// # Ok::<(), gt_nvidia::Missing>(())
/// ```
#[macro_export]
macro_rules! functions {
    ($(#[$attribute:meta])* $vis:vis struct $Name:ident {
        $($(#[$of_one:meta])* $name:ident: $symbol:literal ($($argument:ty),* $(,)?) -> $result:ty;)*
    }) => {
        $(#[$attribute])*
        $vis struct $Name {
            $(#[doc = concat!("`", $symbol, "`.")] $(#[$of_one])* pub $name: unsafe extern "C" fn($($argument),*) -> $result,)*
            /// The library's path.
            pub path: std::path::PathBuf,
            /// Keeps the library mapped.
            _library: std::sync::Arc<$crate::libloading::Library>,
        }

        impl $Name {
            /// Looks up every function.
            ///
            /// # Errors
            /// The name of a missing function: the file is another library, or an older version.
            pub fn bind(opened: $crate::Opened) -> std::result::Result<$Name, String> {
                $(
                    // SAFETY: the declaration of the struct gives each symbol the signature of the library's C header.
                    let $name = *unsafe { opened.library.get(concat!($symbol, "\0").as_bytes()) }
                        .map_err(|_| format!("it has no {}: it is too old, or another library", $symbol))?;
                )*
                Ok($Name { $($name,)* path: opened.path, _library: opened.library })
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(library: &SharedLibrary, variables: &[(&str, &str)], cuda: Option<u32>) -> Vec<String> {
        let variable =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value));
        let environment = Environment { variable: &variable, program: Some("/opt/env/bin/gtd".into()) };
        library.candidates(&environment, cuda).iter().map(|path| path.display().to_string()).collect()
    }

    #[test]
    fn what_the_administrator_names_comes_first_and_the_loader_before_the_systems_folder() {
        let found = candidates(&NVRTC, &[(FOLDERS_VARIABLE, "/a:/b"), ("CUDA_HOME", "/c")], None);
        assert_eq!(
            found,
            [
                "/a/libnvrtc.so.13",
                "/a/libnvrtc.so.12",
                "/b/libnvrtc.so.13",
                "/b/libnvrtc.so.12",
                "libnvrtc.so.13",
                "libnvrtc.so.12",
                "/c/lib64/libnvrtc.so.13",
                "/c/lib64/libnvrtc.so.12",
                "/usr/local/cuda/lib64/libnvrtc.so.13",
                "/usr/local/cuda/lib64/libnvrtc.so.12"
            ]
        );
        let found = candidates(&NCCL, &[("GT_NCCL_LIBRARY", "/n/libnccl.so.2"), (FOLDERS_VARIABLE, "/a")], None);
        assert_eq!(found[..3], ["/n/libnccl.so.2", "/a/libnccl.so.2", "/a/libnccl.so"]);
    }

    #[test]
    fn the_packages_of_an_environment_are_looked_into() {
        let folder = std::env::temp_dir().join(format!("gt-nvidia-packages-{}", std::process::id()));
        let packages = folder.join("lib/python3.12/site-packages");
        std::fs::create_dir_all(&packages).unwrap();
        let found = candidates(&CUBLAS_LT, &[("VIRTUAL_ENV", folder.to_str().unwrap())], None);
        let of = |rest: &str| packages.join(rest).display().to_string();
        assert_eq!(
            found[..3],
            [
                of("nvidia/cu13/lib/libcublasLt.so.13"),
                of("nvidia/cublas/lib/libcublasLt.so.12"),
                "libcublasLt.so.13".into()
            ]
        );
        let found = candidates(&CUDNN, &[("VIRTUAL_ENV", folder.to_str().unwrap())], Some(12));
        assert_eq!(found[..2], [of("nvidia/cudnn/lib/libcudnn.so.9"), "libcudnn.so.9".into()]);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_library_that_the_driver_is_too_old_for_is_passed_over() {
        assert_eq!(candidates(&NVRTC, &[], Some(12)), ["libnvrtc.so.12", "/usr/local/cuda/lib64/libnvrtc.so.12"]);
        assert_eq!(candidates(&NVRTC, &[], Some(13)).len(), 4);
        // A library that requires no CUDA version suits every driver.
        assert_eq!(candidates(&DRIVER, &[], Some(12))[0], "libcuda.so.1");
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no files of the machine")]
    fn a_library_is_found_without_loading_it() {
        let variable = |_: &str| None;
        // The C library is where the loader has found it for this program.
        let libc = loaders_file(Path::new("libc.so.6"), &variable).unwrap();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let loaded = maps
            .lines()
            .find_map(|line| line.find('/').map(|at| &line[at..]).filter(|path| path.contains("libc.so.6")));
        if let Some(loaded) = loaded {
            assert_eq!(libc.canonicalize().unwrap(), Path::new(loaded));
        }
        assert_eq!(loaders_file(Path::new("libgt-no-such-library.so.2"), &variable), None);

        let folder = std::env::temp_dir().join(format!("gt-nvidia-located-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("libgt-of-a-test.so.1");
        let named = |name: &str| (name == "LD_LIBRARY_PATH").then(|| folder.clone().into_os_string());
        let mut head = std::fs::read(&libc).unwrap()[..64].to_vec();
        std::fs::write(&path, &head).unwrap();
        assert_eq!(loaders_file(Path::new("libgt-of-a-test.so.1"), &named), Some(path.clone()));
        // A library of another architecture, such as an unpacked archive for it has.
        head[18] = 0x28;
        for (content, why) in [(&head[..], "it is for another kind of processor"), (b"GT", "it is no library")] {
            std::fs::write(&path, content).unwrap();
            assert_eq!(is_for_this_machine(&path), Err(why));
        }
        assert_eq!(is_for_this_machine(&folder.join("nothing")), Err("not there"));
        std::fs::remove_dir_all(folder).unwrap();
        for cache in [&b""[..], b"glibc-ld.so.cache1.1", b"glibc-ld.so.cache1.1\xff\xff\xff\xff"] {
            assert_eq!(in_loaders_cache(cache, "libc.so.6"), None);
        }
    }

    #[test]
    fn a_library_that_is_too_new_for_the_driver_is_named() {
        let folder = std::env::temp_dir().join(format!("gt-nvidia-newer-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("libnvrtc.so.13"), "").unwrap();
        let variable = |name: &str| (name == FOLDERS_VARIABLE).then(|| folder.clone().into_os_string());
        let environment = Environment { variable: &variable, program: None };
        let sentence =
            format!("{}/libnvrtc.so.13: it needs a newer driver than this one for CUDA 12", folder.display());
        assert_eq!(NVRTC.passed_over(&environment, Some(12)), [sentence]);
        assert_eq!(NVRTC.passed_over(&environment, Some(13)), [""; 0]);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri opens no libraries")]
    fn what_is_missing_is_one_sentence_that_says_what_to_do() {
        let paths = ["/nowhere/libnvrtc.so.13".into(), "libgt-no-such-library.so.2".into(), "libc.so.6".into()];
        functions! { pub struct Nvrtc { version: "nvrtcVersion" (*mut i32, *mut i32) -> i32; } }
        let bind = |opened| Nvrtc::bind(opened).map(|nvrtc| (nvrtc.version, nvrtc.path));
        let error = NVRTC.open_first(&paths, bind).err().unwrap().to_string();
        for part in [
            "NVRTC, which compiles the kernels, was not found: pip install nvidia-cuda-nvrtc beside GT",
            "/nowhere/libnvrtc.so.13: not there; libgt-no-such-library.so.2: ",
            "; libc.so.6: it has no nvrtcVersion",
        ] {
            assert!(error.contains(part), "{error}");
        }
        assert_eq!(error.matches("libgt-no-such-library").count(), 1, "{error}");
    }
}
