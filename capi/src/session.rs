//! Sessions.

use crate::status::{Failure, Result, gt_status, guard, reading, result_at, text_at};
use gt_client::ClientSession;
use gt_client::launch::{ConnectOptions, parse_address};
use std::ffi::c_char;
use std::sync::Arc;

/// A connection to a daemon, in which tensors live.
pub struct gt_session {
    pub(crate) inner: Arc<ClientSession>,
}

/// Connects to a daemon.
///
/// `address` is where a daemon is, as "unix:/run/gt/gtd.sock" (or just the path), "localhost:12345", or "private".
/// NULL finds one as a Python program does: the daemon that the environment's GT_CONNECT or GT_SOCKET names; otherwise
/// that of this machine; otherwise a private one, which is started and ends with its last client. The program for it,
/// gtd, is looked for in GT_DAEMON and on PATH.
///
/// A daemon at a port asks for its token: that of the environment's GT_TOKEN, otherwise of the file ~/.config/gt/token,
/// otherwise of /run/gt/token.
///
/// `name` is what `gtctl status` calls the session, or NULL.
///
/// The session is the caller's, to be closed with gt_session_close(). Threads may share it. A forked child may not use
/// its parent's: it opens its own.
///
/// Errors: GT_ERROR_LAUNCH, GT_ERROR_DISCONNECTED, GT_ERROR_VALUE for what is no address or no name, GT_ERROR_ARGUMENT
/// for text that is not UTF-8.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gt_session_open(
    address: *const c_char,
    name: *const c_char,
    session: *mut *mut gt_session,
) -> gt_status {
    guard(|| {
        // SAFETY: the caller's pointers, as the header asks for them.
        let (out, address, name) = unsafe {
            (result_at(session, std::ptr::null_mut(), "session")?, text_at(address, "address")?, text_at(name, "name")?)
        };
        let address = address.map(parse_address).transpose()?;
        let inner = ClientSession::connect(&ConnectOptions { address, token: None, name: name.map(str::to_owned) })?;
        *out = Box::into_raw(Box::new(gt_session { inner }));
        Ok(())
    })
}

/// Ends a session and frees its handle; NULL is no error.
///
/// Its tensors are gone, here and in the daemon. Their handles, which are freed as ever, give GT_ERROR_DISCONNECTED;
/// buffers keep their bytes. No other thread may be using `session`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gt_session_close(session: *mut gt_session) {
    guard(|| {
        if !session.is_null() {
            // SAFETY: made by `gt_session_open`, and not used again, as the header asks.
            let session = unsafe { Box::from_raw(session) };
            session.inner.close();
        }
        Ok(())
    });
}

/// Waits until everything issued so far has been done. Only reading a tensor's elements waits by itself.
///
/// An operation that failed in the daemon is no error here, but where its result is read.
///
/// Errors: GT_ERROR_DISCONNECTED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gt_session_synchronize(session: *const gt_session) -> gt_status {
    guard(|| {
        // SAFETY: the caller's session.
        let session = unsafe { inner(session) }?;
        Ok(session.synchronize()?)
    })
}

/// Sends what is held back for a moment to be sent together: instructions issued so far run though nobody waits.
///
/// Errors: GT_ERROR_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gt_session_flush(session: *const gt_session) -> gt_status {
    guard(|| {
        // SAFETY: the caller's session.
        unsafe { inner(session) }?.flush();
        Ok(())
    })
}

/// Whether the session is open and its daemon there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gt_session_is_alive(session: *const gt_session) -> bool {
    // SAFETY: the caller's session, or NULL.
    crate::status::value_or(false, || Ok(unsafe { inner(session) }?.is_alive()))
}

/// The session behind a handle.
///
/// # Safety
/// `session` is NULL or a session that is not closed meanwhile.
pub(crate) unsafe fn inner<'a>(session: *const gt_session) -> Result<&'a Arc<ClientSession>> {
    // SAFETY: as the caller promises.
    unsafe { reading(session, "session") }.map(|session| &session.inner)
}

/// The session that a new tensor is made in, or that of an operand.
pub(crate) fn one_of(
    given: Option<&Arc<ClientSession>>,
    operand: Option<Arc<ClientSession>>,
) -> Result<Arc<ClientSession>> {
    operand.or_else(|| given.cloned()).ok_or_else(|| Failure::argument("session is NULL, and no operand is a tensor"))
}

/// Starts the random numbers of this process over from `seed`: the same ones follow on any device.
#[unsafe(no_mangle)]
pub extern "C" fn gt_manual_seed(seed: u64) {
    use gt_client::random::{Draw, default_generator};
    default_generator().set_state(Draw { seed, stream: 0 });
}
