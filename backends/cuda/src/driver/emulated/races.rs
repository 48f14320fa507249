//! The detector of races between the threads of a launch: `races.cpp`, compiled when it is first needed.

use super::gxx;
use super::scratch::scratch;
use std::ffi::{CStr, c_char};
use std::sync::OnceLock;

/// The detector of races, with which modules are linked when they are loaded.
pub(super) struct Races {
    report: unsafe extern "C" fn() -> *const c_char,
    _library: libloading::os::unix::Library,
}

const SOURCE: &str = include_str!("races.cpp");

impl Races {
    /// The detector, opened at the first call.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) fn get() -> Result<&'static Races, String> {
        static OPENED: OnceLock<Result<Races, String>> = OnceLock::new();
        OPENED.get_or_init(Races::open).as_ref().map_err(Clone::clone)
    }

    fn open() -> Result<Races, String> {
        use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
        let file = scratch("so");
        std::fs::write(&file, gxx::library("races.cpp", SOURCE)?).map_err(|error| error.to_string())?;
        // SAFETY: the library is compiled from `races.cpp`, whose initialisers have no preconditions.
        let library = unsafe { Library::open(Some(&file), RTLD_NOW | RTLD_GLOBAL) };
        let _ = std::fs::remove_file(&file);
        let library = library.map_err(|error| error.to_string())?;
        // SAFETY: `races_report` has this signature in `races.cpp`.
        let report = *unsafe { library.get(b"races_report\0") }.map_err(|error| error.to_string())?;
        Ok(Races { report, _library: library })
    }

    /// The finding of the launch that this thread ran last.
    pub(super) fn report(&self) -> Option<String> {
        // SAFETY: the function returns a C string that is unchanged until this thread's next launch.
        let text = unsafe { CStr::from_ptr((self.report)()) }.to_string_lossy().into_owned();
        (!text.is_empty()).then_some(text)
    }
}
