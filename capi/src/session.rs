//! Sessions: connections to a daemon.

use crate::handles::{self, Handle, LiveHandles, held};
use crate::status::{CallError, Result, gt_status, guard, result_at, text_at};
use gt_client::ClientSession;
use gt_client::launch::{ConnectOptions, parse_address};
use std::ffi::c_char;
use std::sync::Arc;

/// A session with a daemon: it owns the tensors made in it.
pub struct gt_session {
    pub(crate) inner: Arc<ClientSession>,
}

impl Handle for gt_session {
    const NAME: &'static str = "session";
    fn live() -> &'static LiveHandles {
        static LIVE: LiveHandles = LiveHandles::new();
        &LIVE
    }
}

/// Connects to a daemon.
///
/// `address` is the daemon's address: "unix:/run/gt/gtd.sock" (or just the path), "localhost:12345", or "private". NULL
/// finds a daemon as a Python program does: the one that GT_CONNECT or GT_SOCKET in the environment names; otherwise
/// the machine's; otherwise a private one, which is started and ends with its last client. Its program, gtd, is found
/// by GT_DAEMON or on PATH.
///
/// A daemon at a TCP port requires its token: it is read from GT_TOKEN in the environment, otherwise from the file
/// ~/.config/gt/token, otherwise from /run/gt/token.
///
/// `name` is the session's name in `gtctl status`, or NULL.
///
/// The caller closes the session with gt_session_close(). Threads may share it. A forked child may not use its parent's
/// session: it opens its own.
///
/// Errors: GT_ERROR_LAUNCH, GT_ERROR_DISCONNECTED, GT_ERROR_VALUE for an invalid address or name, GT_ERROR_ARGUMENT for
/// text that is not UTF-8.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gt_session_open(
    address: *const c_char,
    name: *const c_char,
    session: *mut *mut gt_session,
) -> gt_status {
    guard(|| {
        // SAFETY: each pointer is NULL or valid, and the texts end with NUL, by the contract of the header.
        let (out, address, name) = unsafe {
            (result_at(session, std::ptr::null_mut(), "session")?, text_at(address, "address")?, text_at(name, "name")?)
        };
        let address = address.map(parse_address).transpose()?;
        let inner = ClientSession::connect(&ConnectOptions {
            address,
            name: name.map(str::to_owned),
            ..ConnectOptions::default()
        })?;
        *out = handles::give(gt_session { inner });
        Ok(())
    })
}

/// Ends a session and frees its handle; NULL is allowed.
///
/// Its tensors are freed in the daemon. Their handles must still be freed; other calls with them return
/// GT_ERROR_DISCONNECTED. Buffers keep their bytes. No other thread may be using `session`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gt_session_close(session: *mut gt_session) {
    guard(|| {
        if !session.is_null() {
            // SAFETY: no other thread is using the session, by the contract of the header.
            unsafe { handles::take(session, "session") }?.inner.close();
        }
        Ok(())
    });
}

/// Waits until everything issued so far is done. Programs rarely need it: reading elements waits for them.
///
/// An operation that failed in the daemon is not an error here, but where its result is read.
///
/// Errors: GT_ERROR_DISCONNECTED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gt_session_synchronize(session: *const gt_session) -> gt_status {
    guard(|| {
        // SAFETY: `session` is NULL or a valid session, by the contract of the header.
        let session = unsafe { inner(session) }?;
        Ok(session.synchronize()?)
    })
}

/// Sends the instructions that are still batched, so that they run before any call waits for them.
///
/// Errors: GT_ERROR_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gt_session_flush(session: *const gt_session) -> gt_status {
    guard(|| {
        // SAFETY: `session` is NULL or a valid session, by the contract of the header.
        unsafe { inner(session) }?.flush();
        Ok(())
    })
}

/// Whether the session is open and its daemon is connected.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gt_session_is_alive(session: *const gt_session) -> bool {
    // SAFETY: `session` is NULL or a valid session, by the contract of the header.
    crate::status::value_or(false, || Ok(unsafe { inner(session) }?.is_alive()))
}

/// The session behind a handle.
///
/// # Safety
/// No thread closes the session meanwhile.
pub(crate) unsafe fn inner<'a>(session: *const gt_session) -> Result<&'a Arc<ClientSession>> {
    // SAFETY: no thread closes the session meanwhile, which this function requires.
    unsafe { held(session, "session") }.map(|session| &session.inner)
}

/// The session behind a handle that may be NULL.
///
/// # Safety
/// No thread closes the session meanwhile.
pub(crate) unsafe fn optional_inner<'a>(session: *const gt_session) -> Result<Option<&'a Arc<ClientSession>>> {
    if session.is_null() {
        return Ok(None);
    }
    // SAFETY: no thread closes the session meanwhile, which this function requires.
    unsafe { inner(session) }.map(Some)
}

/// The session for a call: that of its first tensor operand, else the `session` argument.
pub(crate) fn session_for(
    session: Option<&Arc<ClientSession>>,
    operand: Option<Arc<ClientSession>>,
) -> Result<Arc<ClientSession>> {
    operand
        .or_else(|| session.cloned())
        .ok_or_else(|| CallError::argument("session is NULL, and no operand is a tensor"))
}

/// Seeds the random number generator of this process. The numbers that follow are the same on every device.
#[unsafe(no_mangle)]
pub extern "C" fn gt_manual_seed(seed: u64) {
    use gt_client::random::{Draw, default_generator};
    default_generator().set_state(Draw { seed, stream: 0 });
}
