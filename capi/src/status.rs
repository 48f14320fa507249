//! What every function returns, and what keeps Rust's errors and panics on this side of the boundary.

use gt_client::ClientError;
use gt_ops::{ErrorKind, OpError};
use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What became of a call: GT_OK, or why it failed. The numbers never change; later versions may add some.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum gt_status {
    /// It was done.
    GT_OK = 0,
    /// A pointer is NULL that must not be, or an argument is none that the function knows.
    GT_ERROR_ARGUMENT = 1,
    /// Shapes that do not fit, or an operation that failed.
    GT_ERROR_RUNTIME = 2,
    /// An axis or an index is out of range.
    GT_ERROR_INDEX = 3,
    /// An operand of the wrong kind, or none where one is needed.
    GT_ERROR_TYPE = 4,
    /// An argument of the right type whose value is impossible.
    GT_ERROR_VALUE = 5,
    /// Something GT does not have, as an operation on a dtype that it is not for.
    GT_ERROR_NOT_IMPLEMENTED = 6,
    /// A tensor, or the copy of one, did not fit.
    GT_ERROR_OUT_OF_MEMORY = 7,
    /// The session has ended, or its daemon is gone: its tensors are lost.
    GT_ERROR_DISCONNECTED = 8,
    /// There is no daemon, and none could be started.
    GT_ERROR_LAUNCH = 9,
    /// A defect in GT.
    GT_ERROR_INTERNAL = 10,
}

/// Why a call failed.
pub(crate) struct Failure {
    status: gt_status,
    message: String,
}

pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// An argument that no function takes.
    pub(crate) fn argument(message: impl Into<String>) -> Failure {
        Failure { status: gt_status::GT_ERROR_ARGUMENT, message: message.into() }
    }
}

fn status_of(kind: ErrorKind) -> gt_status {
    match kind {
        ErrorKind::Runtime => gt_status::GT_ERROR_RUNTIME,
        ErrorKind::Index => gt_status::GT_ERROR_INDEX,
        ErrorKind::Type => gt_status::GT_ERROR_TYPE,
        ErrorKind::Value => gt_status::GT_ERROR_VALUE,
        ErrorKind::NotImplemented => gt_status::GT_ERROR_NOT_IMPLEMENTED,
    }
}

impl From<OpError> for Failure {
    fn from(error: OpError) -> Failure {
        Failure { status: status_of(error.kind), message: error.message.into_string() }
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        let status = match &error {
            ClientError::Disconnected(_) => gt_status::GT_ERROR_DISCONNECTED,
            ClientError::Launch(_) => gt_status::GT_ERROR_LAUNCH,
            _ if error.is_out_of_memory() => gt_status::GT_ERROR_OUT_OF_MEMORY,
            _ => status_of(error.kind().unwrap_or(ErrorKind::Runtime)),
        };
        Failure { status, message: error.to_string() }
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::new(CString::default());
}

/// Keeps what this thread's last failed call has to say.
fn keep(message: String) {
    let bytes: Vec<u8> = message.into_bytes().into_iter().filter(|byte| *byte != 0).collect();
    // Zeros were taken out; in a thread that is ending there is nobody left to ask.
    if let Ok(text) = CString::new(bytes) {
        let _ = LAST.try_with(|last| last.replace(text));
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    format!("a defect in GT: {}; please report it", text.unwrap_or("a panic"))
}

/// Runs the body of a function of the header. No panic gets past it.
pub(crate) fn guard(body: impl FnOnce() -> Result<()>) -> gt_status {
    guard_or(|status| status, || body().map(|()| gt_status::GT_OK))
}

/// Runs the body of a function that returns a value rather than a status: `otherwise` where it fails.
pub(crate) fn value_or<T>(otherwise: T, body: impl FnOnce() -> Result<T>) -> T {
    guard_or(|_| otherwise, body)
}

fn guard_or<T>(otherwise: impl FnOnce(gt_status) -> T, body: impl FnOnce() -> Result<T>) -> T {
    // What a panic leaves half done is the client's, whose locks and state stand it.
    let outcome = catch_unwind(AssertUnwindSafe(body));
    let failure = match outcome {
        Ok(Ok(value)) => return value,
        Ok(Err(failure)) => failure,
        Err(panic) => Failure { status: gt_status::GT_ERROR_INTERNAL, message: panic_text(&*panic) },
    };
    keep(failure.message);
    otherwise(failure.status)
}

/// What `pointer` points to.
///
/// # Safety
/// It is NULL, or points to a `T` that nobody writes while the result lives.
pub(crate) unsafe fn reading<'a, T>(pointer: *const T, name: &str) -> Result<&'a T> {
    // SAFETY: as the caller promises.
    unsafe { pointer.as_ref() }.ok_or_else(|| Failure::argument(format!("{name} is NULL")))
}

/// Where a result goes: `pointer`, which holds `nothing` until there is one.
///
/// # Safety
/// It is NULL, or points to a `T` that is the caller's alone while the result lives.
pub(crate) unsafe fn result_at<'a, T>(pointer: *mut T, nothing: T, name: &str) -> Result<&'a mut T> {
    if pointer.is_null() {
        return Err(Failure::argument(format!("{name} is NULL: there is nowhere to put the result")));
    }
    // SAFETY: not NULL, and otherwise as the caller promises; what is there may be uninitialised, so it is not dropped.
    unsafe { pointer.write(nothing) };
    // SAFETY: as above, and initialised now.
    Ok(unsafe { &mut *pointer })
}

/// The `len` elements at `pointer`, which may be NULL if there are none.
///
/// # Safety
/// It is NULL, or points to `len` elements that nobody writes while the result lives.
pub(crate) unsafe fn slice_at<'a, T>(pointer: *const T, len: usize, name: &str) -> Result<&'a [T]> {
    match (pointer.is_null(), len) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Failure::argument(format!("{name} is NULL, but {len} elements are announced"))),
        // No array is larger than half of the address space.
        (false, _) if len > isize::MAX as usize / size_of::<T>().max(1) => {
            Err(Failure::argument(format!("{name} cannot have {len} elements")))
        }
        // SAFETY: not NULL, of a possible size, and otherwise as the caller promises.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts(pointer, len) }),
    }
}

/// The text at `pointer`; none if it is NULL.
///
/// # Safety
/// It is NULL, or points to characters of which one is 0, that nobody writes while the result lives.
pub(crate) unsafe fn text_at<'a>(pointer: *const c_char, name: &str) -> Result<Option<&'a str>> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: not NULL, and otherwise as the caller promises.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map(Some).map_err(|_| Failure::argument(format!("{name} is not UTF-8")))
}

/// What the last call that failed on this thread had to say: a sentence, or "" if none has failed.
///
/// The text is GT's. It stays until another call fails on this thread, or the thread ends.
#[unsafe(no_mangle)]
pub extern "C" fn gt_last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// A constant that names a status, as "GT_ERROR_INDEX"; "unknown" for a number that is none.
#[unsafe(no_mangle)]
pub extern "C" fn gt_status_name(status: i32) -> *const c_char {
    let names = [
        c"GT_OK",
        c"GT_ERROR_ARGUMENT",
        c"GT_ERROR_RUNTIME",
        c"GT_ERROR_INDEX",
        c"GT_ERROR_TYPE",
        c"GT_ERROR_VALUE",
        c"GT_ERROR_NOT_IMPLEMENTED",
        c"GT_ERROR_OUT_OF_MEMORY",
        c"GT_ERROR_DISCONNECTED",
        c"GT_ERROR_LAUNCH",
        c"GT_ERROR_INTERNAL",
    ];
    usize::try_from(status).ok().and_then(|i| names.get(i)).copied().unwrap_or(c"unknown").as_ptr()
}

/// The version of the library, as "0.1.0"; GT_VERSION is that of the header.
#[unsafe(no_mangle)]
pub extern "C" fn gt_version() -> *const c_char {
    const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(text) => text,
        Err(_) => c"",
    };
    VERSION.as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last() -> String {
        // SAFETY: GT's own text.
        unsafe { CStr::from_ptr(gt_last_error()) }.to_string_lossy().into_owned()
    }

    #[test]
    fn a_panic_is_a_status_and_a_sentence() {
        assert_eq!(guard(|| panic!("no {}", "way")), gt_status::GT_ERROR_INTERNAL);
        assert_eq!(last(), "a defect in GT: no way; please report it");
        assert_eq!(guard(|| Err(Failure::argument("a zero \0 inside"))), gt_status::GT_ERROR_ARGUMENT);
        assert_eq!(last(), "a zero  inside");
        assert_eq!(guard(|| Ok(())), gt_status::GT_OK);
        assert_eq!(last(), "a zero  inside", "what goes well says nothing");
        assert_eq!(std::thread::spawn(last).join().unwrap_or_default(), "", "each thread has its own");
    }

    #[test]
    fn every_status_has_its_name() {
        for status in [gt_status::GT_OK, gt_status::GT_ERROR_INDEX, gt_status::GT_ERROR_INTERNAL] {
            // SAFETY: GT's own text.
            let name = unsafe { CStr::from_ptr(gt_status_name(status as i32)) };
            assert_eq!(name.to_str(), Ok(&*format!("{status:?}")));
        }
    }
}
