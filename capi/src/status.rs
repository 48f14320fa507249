//! Status codes and error messages: Rust's errors and panics become a status before a call returns to C.

use gt_client::ClientError;
use gt_ops::{ErrorKind, OpError};
use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The result of a call: GT_OK, or the kind of error. The numbers never change; later versions may add some.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum gt_status {
    /// Success.
    GT_OK = 0,
    /// A required pointer is NULL, a handle was freed or is none, or an argument has a value that the function does not
    /// know.
    GT_ERROR_ARGUMENT = 1,
    /// The shapes do not match, or an operation failed.
    GT_ERROR_RUNTIME = 2,
    /// An axis or an index is out of range.
    GT_ERROR_INDEX = 3,
    /// An operand has the wrong kind or dtype, or is missing.
    GT_ERROR_TYPE = 4,
    /// An argument has the right type but an invalid value.
    GT_ERROR_VALUE = 5,
    /// GT does not implement this, for example an operation on a dtype that it does not accept.
    GT_ERROR_NOT_IMPLEMENTED = 6,
    /// There is not enough memory for a tensor or for its copy.
    GT_ERROR_OUT_OF_MEMORY = 7,
    /// The session has ended, or its daemon is gone: its tensors are lost.
    GT_ERROR_DISCONNECTED = 8,
    /// There is no daemon, and none could be started.
    GT_ERROR_LAUNCH = 9,
    /// A defect in GT.
    GT_ERROR_INTERNAL = 10,
}

/// The status and message of a failed call.
pub(crate) struct CallError {
    status: gt_status,
    message: String,
}

/// The most entries of a list of an argument, of inputs of gt_gradients(), and of results of a call.
pub const GT_COUNT_MAX: usize = 65536;

pub(crate) type Result<T> = std::result::Result<T, CallError>;

impl CallError {
    /// An error with GT_ERROR_ARGUMENT.
    pub(crate) fn argument(message: impl Into<String>) -> CallError {
        CallError { status: gt_status::GT_ERROR_ARGUMENT, message: message.into() }
    }

    /// An error with GT_ERROR_VALUE.
    pub(crate) fn value(message: impl Into<String>) -> CallError {
        CallError { status: gt_status::GT_ERROR_VALUE, message: message.into() }
    }
}

fn status_of(kind: ErrorKind) -> gt_status {
    match kind {
        ErrorKind::Runtime | ErrorKind::LinAlg | ErrorKind::NotBatched => gt_status::GT_ERROR_RUNTIME,
        ErrorKind::Index => gt_status::GT_ERROR_INDEX,
        ErrorKind::Type => gt_status::GT_ERROR_TYPE,
        ErrorKind::Value | ErrorKind::Assertion => gt_status::GT_ERROR_VALUE,
        ErrorKind::NotImplemented => gt_status::GT_ERROR_NOT_IMPLEMENTED,
    }
}

impl From<OpError> for CallError {
    fn from(error: OpError) -> CallError {
        CallError { status: status_of(error.kind), message: error.message.into_string() }
    }
}

impl From<ClientError> for CallError {
    fn from(error: ClientError) -> CallError {
        let status = match &error {
            ClientError::Disconnected(_) => gt_status::GT_ERROR_DISCONNECTED,
            ClientError::Launch(_) => gt_status::GT_ERROR_LAUNCH,
            _ if error.is_out_of_memory() => gt_status::GT_ERROR_OUT_OF_MEMORY,
            _ => status_of(error.kind().unwrap_or(ErrorKind::Runtime)),
        };
        CallError { status, message: error.to_string() }
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::new(CString::default());
}

/// Stores a message for [`gt_last_error`].
fn store_message(message: String) {
    let bytes: Vec<u8> = message.into_bytes().into_iter().filter(|byte| *byte != 0).collect();
    // The text has no NUL byte. In a thread that is ending the message is lost, but no call can ask for it.
    if let Ok(text) = CString::new(bytes) {
        let _ = LAST.try_with(|last| last.replace(text));
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    format!("a defect in GT: {}; please report it", text.unwrap_or("a panic"))
}

/// Runs the body of a function of the header, and catches panics.
pub(crate) fn guard(body: impl FnOnce() -> Result<()>) -> gt_status {
    guard_or(|status| status, || body().map(|()| gt_status::GT_OK))
}

/// Runs the body of a function that returns a value instead of a status; returns `otherwise` if it fails.
pub(crate) fn value_or<T>(otherwise: T, body: impl FnOnce() -> Result<T>) -> T {
    guard_or(|_| otherwise, body)
}

fn guard_or<T>(otherwise: impl FnOnce(gt_status) -> T, body: impl FnOnce() -> Result<T>) -> T {
    // Unwind safe: the client's state is consistent at every point that can unwind, and its locks ignore poisoning.
    let outcome = catch_unwind(AssertUnwindSafe(body));
    let failure = match outcome {
        Ok(Ok(value)) => return value,
        Ok(Err(failure)) => failure,
        Err(panic) => CallError { status: gt_status::GT_ERROR_INTERNAL, message: panic_text(&*panic) },
    };
    store_message(failure.message);
    otherwise(failure.status)
}

/// A shared reference to a C caller's object; `name` is its name in errors.
///
/// # Safety
/// `pointer` is NULL, or points to a `T` that is not written while the result lives.
pub(crate) unsafe fn reading<'a, T>(pointer: *const T, name: &str) -> Result<&'a T> {
    // SAFETY: `pointer` is NULL or points to a valid `T` that is not written meanwhile, which this function requires.
    unsafe { pointer.as_ref() }.ok_or_else(|| CallError::argument(format!("{name} is NULL")))
}

/// A reference to a C caller's output parameter, set to `nothing` until the call has a result.
///
/// # Safety
/// `pointer` is NULL, or points to memory for a `T` that only this call accesses while the result lives.
pub(crate) unsafe fn result_at<'a, T>(pointer: *mut T, nothing: T, name: &str) -> Result<&'a mut T> {
    if pointer.is_null() {
        return Err(CallError::argument(format!("{name} is NULL: there is nowhere to put the result")));
    }
    // SAFETY: `pointer` is not NULL, so it points to memory for a `T`, which this function requires. `write` does not
    // drop the old contents, which may be uninitialized.
    unsafe { pointer.write(nothing) };
    // SAFETY: the line above has initialized it, and only this call accesses it, which this function requires.
    Ok(unsafe { &mut *pointer })
}

/// The output parameter of a call with `count` results, which are NULL until the call has them.
///
/// # Safety
/// `pointer` is NULL, or points to memory for `count` handles that only this call accesses while the result lives.
pub(crate) unsafe fn results_at<'a, T>(pointer: *mut *mut T, count: usize, name: &str) -> Result<&'a mut [*mut T]> {
    if count > GT_COUNT_MAX {
        return Err(CallError::argument(format!("{name} cannot have {count} entries: {GT_COUNT_MAX} are allowed")));
    }
    if count == 0 {
        return Ok(&mut []);
    }
    if pointer.is_null() {
        return Err(CallError::argument(format!("{name} is NULL: there is nowhere to put {count} results")));
    }
    for i in 0..count {
        // SAFETY: `pointer` is not NULL, so it points to memory for `count` handles, which this function requires.
        unsafe { pointer.add(i).write(std::ptr::null_mut()) };
    }
    // SAFETY: the loop has initialized all of them, and only this call accesses them, which this function requires.
    Ok(unsafe { std::slice::from_raw_parts_mut(pointer, count) })
}

/// The entries of a list at `pointer`, which may be NULL if there are none.
///
/// # Safety
/// `pointer` is NULL, or points to `len` elements that are not written while the result lives.
pub(crate) unsafe fn list_at<'a, T>(pointer: *const T, len: usize, name: &str) -> Result<&'a [T]> {
    if len > GT_COUNT_MAX {
        return Err(CallError::argument(format!("{name} cannot have {len} entries: {GT_COUNT_MAX} are allowed")));
    }
    // SAFETY: `pointer` is NULL or points to `len` elements that are not written meanwhile, which this function
    // requires.
    unsafe { slice_at(pointer, len, name) }
}

/// The `len` elements at `pointer`, which may be NULL if there are none.
///
/// # Safety
/// `pointer` is NULL, or points to `len` elements that are not written while the result lives.
pub(crate) unsafe fn slice_at<'a, T>(pointer: *const T, len: usize, name: &str) -> Result<&'a [T]> {
    match (pointer.is_null(), len) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(CallError::argument(format!("{name} is NULL, but {len} elements are announced"))),
        // A slice is at most `isize::MAX` bytes long.
        (false, _) if len > isize::MAX as usize / size_of::<T>().max(1) => {
            Err(CallError::argument(format!("{name} cannot have {len} elements")))
        }
        // SAFETY: `pointer` is not NULL and the size fits an `isize`, by the arms above; it points to `len` elements
        // that are not written meanwhile, which this function requires.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts(pointer, len) }),
    }
}

/// The UTF-8 text at `pointer`; none if it is NULL.
///
/// # Safety
/// `pointer` is NULL, or points to a NUL-terminated string that is not written while the result lives.
pub(crate) unsafe fn text_at<'a>(pointer: *const c_char, name: &str) -> Result<Option<&'a str>> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: `pointer` is not NULL, so it points to a NUL-terminated string, which this function requires.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map(Some).map_err(|_| CallError::argument(format!("{name} is not UTF-8")))
}

/// The message of the last call that failed on this thread: a sentence, or "" if none has failed.
///
/// GT owns the text. It stays valid until another call fails on this thread or the thread ends.
#[unsafe(no_mangle)]
pub extern "C" fn gt_last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// The name of a status, for example "GT_ERROR_INDEX"; "unknown" for any other number.
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

/// The version of the library, for example "0.1.0"; GT_VERSION is the version of the header.
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
        // SAFETY: gt_status_name or gt_last_error has returned a NUL-terminated string of GT.
        unsafe { CStr::from_ptr(gt_last_error()) }.to_string_lossy().into_owned()
    }

    #[test]
    fn a_panic_is_a_status_and_a_sentence() {
        assert_eq!(guard(|| panic!("no {}", "way")), gt_status::GT_ERROR_INTERNAL);
        assert_eq!(last(), "a defect in GT: no way; please report it");
        assert_eq!(guard(|| Err(CallError::argument("a zero \0 inside"))), gt_status::GT_ERROR_ARGUMENT);
        assert_eq!(last(), "a zero  inside");
        assert_eq!(guard(|| Ok(())), gt_status::GT_OK);
        assert_eq!(last(), "a zero  inside", "what goes well says nothing");
        assert_eq!(std::thread::spawn(last).join().unwrap_or_default(), "", "each thread has its own");
    }

    #[test]
    fn every_status_has_its_name() {
        for status in [gt_status::GT_OK, gt_status::GT_ERROR_INDEX, gt_status::GT_ERROR_INTERNAL] {
            // SAFETY: gt_status_name or gt_last_error has returned a NUL-terminated string of GT.
            let name = unsafe { CStr::from_ptr(gt_status_name(status as i32)) };
            assert_eq!(name.to_str(), Ok(&*format!("{status:?}")));
        }
    }
}
