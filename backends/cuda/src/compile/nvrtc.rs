//! NVRTC, NVIDIA's compiler as a library, which needs neither a device nor a driver.

use super::compiler::{Compiler, Image};
use super::prebuilt::{Architecture, CudaVersion};
use crate::headers::HEADERS;
use gt_backend::ExecError;
use gt_nvidia::{NVRTC, Opened};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};

type Program = *mut c_void;
type NvrtcResult = c_int;

gt_nvidia::functions! {
    /// The functions of NVRTC that GT uses, unchanged since CUDA 11.
    struct NvrtcFunctions {
        version: "nvrtcVersion" (*mut c_int, *mut c_int) -> NvrtcResult;
        error_string: "nvrtcGetErrorString" (NvrtcResult) -> *const c_char;
        create: "nvrtcCreateProgram"
            (*mut Program, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char) -> NvrtcResult;
        destroy: "nvrtcDestroyProgram" (*mut Program) -> NvrtcResult;
        compile: "nvrtcCompileProgram" (Program, c_int, *const *const c_char) -> NvrtcResult;
        log_size: "nvrtcGetProgramLogSize" (Program, *mut usize) -> NvrtcResult;
        log: "nvrtcGetProgramLog" (Program, *mut c_char) -> NvrtcResult;
        cubin_size: "nvrtcGetCUBINSize" (Program, *mut usize) -> NvrtcResult;
        cubin: "nvrtcGetCUBIN" (Program, *mut c_char) -> NvrtcResult;
        ptx_size: "nvrtcGetPTXSize" (Program, *mut usize) -> NvrtcResult;
        ptx: "nvrtcGetPTX" (Program, *mut c_char) -> NvrtcResult;
        supported_count: "nvrtcGetNumSupportedArchs" (*mut c_int) -> NvrtcResult;
        supported: "nvrtcGetSupportedArchs" (*mut c_int) -> NvrtcResult;
    }
}

/// NVRTC, for one architecture.
pub struct Nvrtc {
    library: NvrtcFunctions,
    version: (c_int, c_int),
    architecture: Architecture,
    /// Further options, which are part of the identity.
    options: Vec<String>,
    /// The library of builtins, kept mapped.
    _builtins: Option<libloading::Library>,
}

impl Nvrtc {
    /// Opens the library at `path`, which compiles for this architecture.
    ///
    /// # Errors
    /// Why it is not NVRTC, or cannot be loaded.
    pub fn open(path: &Path, architecture: Architecture) -> Result<Nvrtc, String> {
        NVRTC
            .open_first(&[path.to_owned()], |opened| Nvrtc::bind(opened, architecture))
            .map_err(|error| error.to_string())
    }

    /// Binds an open library for a device of this compute capability (90 is 9.0), whose driver is for this version of
    /// CUDA. It compiles for the newest architecture that it knows among those of the device's major capability, or to
    /// PTX.
    ///
    /// # Errors
    /// Why it is not NVRTC, or has no code for the device.
    pub fn for_device(opened: Opened, capability: u32, driver: CudaVersion) -> Result<Nvrtc, String> {
        let nvrtc = Nvrtc::bind(opened, Architecture::Device(capability))?;
        let known = nvrtc.supported().map_err(|error| error.to_string())?;
        let architecture = Architecture::to_compile_for(&known, capability, driver, nvrtc.version())?;
        Ok(nvrtc.for_architecture(architecture))
    }

    /// Binds an open library, as [`Nvrtc::open`].
    ///
    /// # Errors
    /// Why it is not NVRTC.
    fn bind(opened: Opened, architecture: Architecture) -> Result<Nvrtc, String> {
        let builtins = opened.path.parent().and_then(builtins_in);
        // SAFETY: loading runs the initialisers of NVRTC's builtins, which have no requirements.
        let _builtins = builtins.and_then(|path| unsafe { libloading::Library::new(path) }.ok());
        let library = NvrtcFunctions::bind(opened)?;
        let mut version = (0, 0);
        // SAFETY: `nvrtcVersion` writes two ints, to the local `version`.
        let status = unsafe { (library.version)(&raw mut version.0, &raw mut version.1) };
        if status != 0 {
            return Err(format!("it does not say its version: {status}"));
        }
        Ok(Nvrtc { library, version, architecture, options: Vec::new(), _builtins })
    }

    /// The same compiler for another architecture: an image for newer devices is PTX.
    #[must_use]
    pub fn for_architecture(mut self, architecture: Architecture) -> Nvrtc {
        self.architecture = architecture;
        self
    }

    /// The architecture that it compiles for.
    pub fn architecture(&self) -> Architecture {
        self.architecture
    }

    /// The version of CUDA that the compiler is of.
    pub fn version(&self) -> CudaVersion {
        (self.version.0.unsigned_abs(), self.version.1.unsigned_abs())
    }

    /// The capabilities of devices that it compiles for.
    ///
    /// # Errors
    /// NVRTC's.
    pub fn supported(&self) -> Result<Vec<u32>, ExecError> {
        let mut count = 0;
        // SAFETY: `nvrtcGetNumSupportedArchs` writes one number, to the local `count`.
        self.check(unsafe { (self.library.supported_count)(&raw mut count) }, "count", "its architectures")?;
        let mut all = vec![0; count.unsigned_abs() as usize];
        // SAFETY: `nvrtcGetSupportedArchs` writes as many numbers as it has reported, which is the length of `all`.
        self.check(unsafe { (self.library.supported)(all.as_mut_ptr()) }, "list", "its architectures")?;
        Ok(all.into_iter().map(c_int::unsigned_abs).collect())
    }

    /// The same compiler with further options, such as `-Xptxas=-v`.
    #[must_use]
    pub fn with_options(mut self, options: &[&str]) -> Nvrtc {
        self.options.extend(options.iter().map(|option| (*option).to_owned()));
        self
    }

    /// The image and the compiler's messages.
    ///
    /// # Errors
    /// As [`Compiler::compile`].
    pub fn compile_verbosely(&self, name: &str, source: &str) -> Result<(Image, String), ExecError> {
        let text = |text: &str| CString::new(text).map_err(|_| ExecError::internal("a kernel with a zero byte"));
        let (file, source) = (text(&format!("{name}.cu"))?, text(source)?);
        let mut names = Vec::new();
        let mut headers = Vec::new();
        for (name, header) in HEADERS {
            names.push(text(name)?);
            headers.push(text(header)?);
        }
        let pointers = |texts: &[CString]| texts.iter().map(|text| text.as_ptr()).collect::<Vec<_>>();
        let mut program = std::ptr::null_mut();
        // SAFETY: `nvrtcCreateProgram` copies the strings, all of which live until it returns, and writes one handle.
        let status = unsafe {
            (self.library.create)(
                &raw mut program,
                source.as_ptr(),
                file.as_ptr(),
                HEADERS.len() as c_int,
                pointers(&headers).as_ptr(),
                pointers(&names).as_ptr(),
            )
        };
        self.check(status, "take", name)?;
        let program = Owned { library: &self.library, program };
        let mut options = vec![text(&format!("--gpu-architecture={}", self.architecture))?];
        for option in BASE_OPTIONS.iter().copied().chain(self.options.iter().map(String::as_str)) {
            options.push(text(option)?);
        }
        let options = pointers(&options);
        // SAFETY: `program` is alive, and the options live until the call returns.
        let status = unsafe { (self.library.compile)(program.program, options.len() as c_int, options.as_ptr()) };
        let log = program.log();
        if status != 0 {
            return Err(ExecError::internal(format!("NVRTC does not compile {name}: {log}")));
        }
        let (image_size, write_image) = match self.architecture {
            Architecture::Device(_) => (self.library.cubin_size, self.library.cubin),
            Architecture::Newer(_) => (self.library.ptx_size, self.library.ptx),
        };
        let mut size = 0;
        // SAFETY: `nvrtcGetCUBINSize` and `nvrtcGetPTXSize` write one number, to the local `size`.
        self.check(unsafe { image_size(program.program, &raw mut size) }, "give", name)?;
        let mut image = vec![0u8; size];
        // SAFETY: `image` has the size that NVRTC reported.
        self.check(unsafe { write_image(program.program, image.as_mut_ptr().cast()) }, "give", name)?;
        Ok((image, log))
    }

    fn check(&self, status: c_int, verb: &str, name: &str) -> Result<(), ExecError> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: `nvrtcGetErrorString` accepts any number and returns a static string.
        let what = unsafe { CStr::from_ptr((self.library.error_string)(status)) }.to_string_lossy();
        Err(ExecError::internal(format!("NVRTC does not {verb} {name}: {what}")))
    }
}

/// `--fmad=false`: products and sums are rounded separately, as on the CPU, except where the source says `fma`.
const BASE_OPTIONS: [&str; 4] = ["--std=c++17", "--fmad=false", "--device-int128", "-default-device"];

/// The options of every compilation but that of the architecture, as one line.
pub fn base_options() -> String {
    BASE_OPTIONS.join(" ")
}

struct Owned<'a> {
    library: &'a NvrtcFunctions,
    program: Program,
}

impl Owned<'_> {
    fn log(&self) -> String {
        let mut size = 0;
        // SAFETY: `nvrtcGetProgramLogSize` writes one number, to the local `size`.
        if unsafe { (self.library.log_size)(self.program, &raw mut size) } != 0 {
            return String::new();
        }
        let mut log = vec![0u8; size];
        // SAFETY: `log` has the size that NVRTC reported.
        unsafe { (self.library.log)(self.program, log.as_mut_ptr().cast()) };
        String::from_utf8_lossy(&log).trim_end_matches('\0').trim().to_owned()
    }
}

impl Drop for Owned<'_> {
    fn drop(&mut self) {
        // SAFETY: `nvrtcCreateProgram` made the program, and it is destroyed only here.
        unsafe { (self.library.destroy)(&raw mut self.program) };
    }
}

impl Compiler for Nvrtc {
    fn identity(&self) -> String {
        let (major, minor) = self.version;
        format!("nvrtc {major}.{minor} {} {} {}", self.architecture, BASE_OPTIONS.join(" "), self.options.join(" "))
    }

    fn compile(&self, name: &str, source: &str) -> Result<Image, ExecError> {
        self.compile_verbosely(name, source).map(|(image, _)| image)
    }
}

/// The path of NVRTC's library of builtins in `folder`. NVRTC opens it by its bare name; in a Python package, the
/// loader finds it by that name only if it is already open.
fn builtins_in(folder: &Path) -> Option<PathBuf> {
    let files = std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    let named = |path: &PathBuf| {
        let name = path.file_name().map(|name| name.as_encoded_bytes());
        name.is_some_and(|name| name.starts_with(b"libnvrtc-builtins.so."))
    };
    files.filter(named).min()
}
