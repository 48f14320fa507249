//! The session that new tensors are made in.

use crate::error::OrRaise;
use crate::tensor::PyTensor;
use gt_client::Session;
use gt_client::session::PlacementLayout;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::sync::{Arc, Mutex, PoisonError};

static CURRENT: Mutex<Option<Arc<Session>>> = Mutex::new(None);

/// The process's session: opened when first asked for, and again after it has ended or in a forked child.
pub fn current(py: Python<'_>) -> PyResult<Arc<Session>> {
    let known = CURRENT.lock().unwrap_or_else(PoisonError::into_inner).clone();
    // A daemon that died without a word is noticed here, rather than by the first fetch of what is made now.
    if let Some(session) = known
        && session.is_alive()
    {
        return Ok(session);
    }
    let opened = py.detach(|| {
        let mut current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
        match &*current {
            // Another thread was faster.
            Some(session) if session.is_alive() => Ok((session.clone(), None)),
            _ => Session::open(None).map(|session| (session.clone(), current.replace(session))),
        }
    });
    // What is dropped here may hold tensors' last owners: not under the lock.
    let (session, _old) = opened.or_raise()?;
    Ok(session)
}

/// The process's session, if it is open.
pub fn open() -> Option<Arc<Session>> {
    CURRENT.lock().unwrap_or_else(PoisonError::into_inner).clone().filter(|session| session.is_open())
}

/// Waits until everything issued so far has been done.
#[pyfunction]
fn synchronize(py: Python<'_>) -> PyResult<()> {
    current(py)?.synchronize().or_raise()
}

/// Sends everything that is held back; instructions issued so far then run whether or not anybody waits.
#[pyfunction]
fn flush() {
    if let Some(session) = CURRENT.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
        session.flush();
    }
}

/// Ends the session: its tensors are gone. The next operation opens another.
#[pyfunction]
fn disconnect(py: Python<'_>) {
    py.detach(|| {
        let session = CURRENT.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(session) = session {
            session.close();
        }
    });
}

/// Whether a session is open.
#[pyfunction]
fn is_connected() -> bool {
    open().is_some()
}

/// What is known of the session and its daemon. Opens a session if there is none.
#[pyfunction]
fn session_info(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let session = current(py)?;
    let (info, arena) = (session.info(), session.arena_stats());
    let dict = PyDict::new(py);
    dict.set_item("session_id", info.session_id)?;
    dict.set_item("daemon_pid", info.daemon_pid)?;
    dict.set_item("daemon_version", &info.daemon_version)?;
    dict.set_item("socket", &info.socket)?;
    dict.set_item("private", info.private)?;
    dict.set_item("workers", &info.workers)?;
    dict.set_item("arena_bytes_max", info.arena_bytes_max)?;
    dict.set_item("arena_bytes", arena.total_bytes)?;
    dict.set_item("arena_bytes_used", arena.used_bytes)?;
    Ok(dict)
}

/// How a tensor lies: `replicated`, `sharded` or `partial`, the workers' names, the axis and the join.
#[pyfunction]
fn placement<'py>(py: Python<'py>, tensor: &Bound<'py, PyTensor>) -> PyResult<Bound<'py, PyTuple>> {
    let value = tensor.get().snapshot(py)?.value().or_raise()?;
    let found = value.session().placement(value.id()).or_raise()?;
    let layout = match found.layout {
        PlacementLayout::Replicated => "replicated",
        PlacementLayout::Sharded => "sharded",
        PlacementLayout::Partial => "partial",
    };
    (layout, found.workers, found.axis, found.join).into_pyobject(py)
}

/// For each worker, for each collective, how often it took part (`count`) and the bytes it sent (`bytes`).
#[pyfunction]
fn traffic(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let workers = PyDict::new(py);
    for worker in current(py)?.traffic().or_raise()? {
        let collectives = PyDict::new(py);
        for (name, traffic) in worker.collectives {
            let numbers = PyDict::new(py);
            numbers.set_item("count", traffic.count)?;
            numbers.set_item("bytes", traffic.bytes)?;
            collectives.set_item(name, numbers)?;
        }
        workers.set_item(worker.name, collectives)?;
    }
    Ok(workers)
}

/// Tells where the package's programs were installed.
#[pyfunction]
fn set_scripts_folder(folder: std::path::PathBuf) {
    gt_client::launch::set_scripts_folder(folder);
}

/// Adds the functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(synchronize, module)?)?;
    module.add_function(wrap_pyfunction!(flush, module)?)?;
    module.add_function(wrap_pyfunction!(disconnect, module)?)?;
    module.add_function(wrap_pyfunction!(is_connected, module)?)?;
    module.add_function(wrap_pyfunction!(session_info, module)?)?;
    module.add_function(wrap_pyfunction!(placement, module)?)?;
    module.add_function(wrap_pyfunction!(traffic, module)?)?;
    module.add_function(wrap_pyfunction!(set_scripts_folder, module)?)
}
