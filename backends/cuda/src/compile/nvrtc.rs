//! NVRTC, NVIDIA's compiler as a library: it needs neither a device nor a driver.

use super::compiler::{Compiler, Image};
use crate::headers::HEADERS;
use gt_backend::ExecError;
use gt_nvidia::{NVRTC, Opened};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};

type Program = *mut c_void;

gt_nvidia::functions! {
    /// What is used of NVRTC, the same since CUDA 11.
    struct NvrtcFunctions {
        version: "nvrtcVersion" (*mut c_int, *mut c_int) -> c_int;
        error_string: "nvrtcGetErrorString" (c_int) -> *const c_char;
        create: "nvrtcCreateProgram"
            (*mut Program, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char) -> c_int;
        destroy: "nvrtcDestroyProgram" (*mut Program) -> c_int;
        compile: "nvrtcCompileProgram" (Program, c_int, *const *const c_char) -> c_int;
        log_size: "nvrtcGetProgramLogSize" (Program, *mut usize) -> c_int;
        log: "nvrtcGetProgramLog" (Program, *mut c_char) -> c_int;
        cubin_size: "nvrtcGetCUBINSize" (Program, *mut usize) -> c_int;
        cubin: "nvrtcGetCUBIN" (Program, *mut c_char) -> c_int;
    }
}

/// NVRTC, compiling for one architecture.
pub struct Nvrtc {
    library: NvrtcFunctions,
    version: (c_int, c_int),
    capability: u32,
    /// More options; what they change of an image is in its identity.
    options: Vec<String>,
    /// Kept mapped for NVRTC.
    _builtins: Option<libloading::Library>,
}

impl Nvrtc {
    /// The library at `path`, compiling for devices of this compute capability (90 is 9.0).
    ///
    /// # Errors
    /// Why it is not NVRTC, or cannot be loaded.
    pub fn open(path: &Path, capability: u32) -> Result<Nvrtc, String> {
        NVRTC
            .open_first(&[path.to_owned()], |opened| Nvrtc::bind(opened, capability))
            .map_err(|error| error.to_string())
    }

    /// The library that was opened, as [`Nvrtc::open`].
    ///
    /// # Errors
    /// Why it is not NVRTC.
    pub fn bind(opened: Opened, capability: u32) -> Result<Nvrtc, String> {
        let builtins = opened.path.parent().and_then(builtins_in);
        // SAFETY: its initialisers do nothing that other libraries' do not.
        let _builtins = builtins.and_then(|path| unsafe { libloading::Library::new(path) }.ok());
        let library = NvrtcFunctions::bind(opened)?;
        let mut version = (0, 0);
        // SAFETY: it writes two ints.
        let status = unsafe { (library.version)(&raw mut version.0, &raw mut version.1) };
        if status != 0 {
            return Err(format!("it does not say its version: {status}"));
        }
        Ok(Nvrtc { library, version, capability, options: Vec::new(), _builtins })
    }

    /// With more options, such as `-Xptxas=-v`.
    #[must_use]
    pub fn with_options(mut self, options: &[&str]) -> Nvrtc {
        self.options.extend(options.iter().map(|option| (*option).to_owned()));
        self
    }

    /// What it compiles for and says: the image, and its messages.
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
        // SAFETY: all strings live until the call has returned, which copies them.
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
        let mut options = vec![text(&format!("--gpu-architecture=sm_{}", self.capability))?];
        for option in BASE_OPTIONS.iter().copied().chain(self.options.iter().map(String::as_str)) {
            options.push(text(option)?);
        }
        let options = pointers(&options);
        // SAFETY: the program lives, and the options until the call has returned.
        let status = unsafe { (self.library.compile)(program.program, options.len() as c_int, options.as_ptr()) };
        let log = program.log();
        if status != 0 {
            return Err(ExecError::internal(format!("NVRTC does not compile {name}: {log}")));
        }
        let mut size = 0;
        // SAFETY: it writes one number.
        self.check(unsafe { (self.library.cubin_size)(program.program, &raw mut size) }, "give", name)?;
        let mut image = vec![0u8; size];
        // SAFETY: it writes as many bytes as it said.
        self.check(unsafe { (self.library.cubin)(program.program, image.as_mut_ptr().cast()) }, "give", name)?;
        Ok((image, log))
    }

    fn check(&self, status: c_int, verb: &str, name: &str) -> Result<(), ExecError> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: it takes any number, and its strings are static.
        let what = unsafe { CStr::from_ptr((self.library.error_string)(status)) }.to_string_lossy();
        Err(ExecError::internal(format!("NVRTC does not {verb} {name}: {what}")))
    }
}

/// Products and sums are rounded one after the other, as on the CPU; where they shall not be, the source says `fma`.
const BASE_OPTIONS: [&str; 4] = ["--std=c++17", "--fmad=false", "--device-int128", "-default-device"];

struct Owned<'a> {
    library: &'a NvrtcFunctions,
    program: Program,
}

impl Owned<'_> {
    fn log(&self) -> String {
        let mut size = 0;
        // SAFETY: it writes one number.
        if unsafe { (self.library.log_size)(self.program, &raw mut size) } != 0 {
            return String::new();
        }
        let mut log = vec![0u8; size];
        // SAFETY: it writes as many bytes as it said.
        unsafe { (self.library.log)(self.program, log.as_mut_ptr().cast()) };
        String::from_utf8_lossy(&log).trim_end_matches('\0').trim().to_owned()
    }
}

impl Drop for Owned<'_> {
    fn drop(&mut self) {
        // SAFETY: it was made by `create`, and is destroyed once.
        unsafe { (self.library.destroy)(&raw mut self.program) };
    }
}

impl Compiler for Nvrtc {
    fn identity(&self) -> String {
        let (major, minor) = self.version;
        format!("nvrtc {major}.{minor} sm_{} {} {}", self.capability, BASE_OPTIONS.join(" "), self.options.join(" "))
    }

    fn compile(&self, name: &str, source: &str) -> Result<Image, ExecError> {
        self.compile_verbosely(name, source).map(|(image, _)| image)
    }
}

/// The library that NVRTC opens by its name alone, which the loader finds in no package unless it is open already.
fn builtins_in(folder: &Path) -> Option<PathBuf> {
    let files = std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    let named = |path: &PathBuf| {
        let name = path.file_name().map(|name| name.as_encoded_bytes());
        name.is_some_and(|name| name.starts_with(b"libnvrtc-builtins.so."))
    };
    files.filter(named).min()
}
