//! Finding and opening NVIDIA's shared libraries.
//!
//! The system's loader knows the system's folders and `LD_LIBRARY_PATH`, but not those of Python packages, from which
//! most users have CUDA. The search tries each candidate in turn, and goes on after a file that cannot be used.

use std::ffi::OsString;
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
        self.open_first(&self.candidates(&environment, cuda), bind)
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
        let SharedLibrary { name, purpose, install, .. } = *self;
        Err(Missing { name, purpose, install, tried: tried.join("; ") })
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
