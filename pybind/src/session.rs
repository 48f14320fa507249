//! The process's session, in which new tensors are made.

use crate::error::OrRaise;
use crate::tensor::PyTensor;
use gt_client::ClientSession;
use gt_client::launch::{self, Address, ConnectOptions, DeviceSet};
use gt_client::session::{PlacementLayout, SequenceCounts, WorkerInfo, WorkerTraffic};
use gt_ops::OpError;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

static CURRENT: Mutex<Option<Arc<ClientSession>>> = Mutex::new(None);

fn lock() -> MutexGuard<'static, Option<Arc<ClientSession>>> {
    CURRENT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The process's session: opened on first use, and again after it has ended or in a forked child.
pub fn current(py: Python<'_>) -> PyResult<Arc<ClientSession>> {
    let known = lock().clone();
    // A daemon that died is noticed here, before tensors are made in a session that is lost.
    if let Some(session) = known
        && session.was_alive()
    {
        return Ok(session);
    }
    let opened = py.detach(|| -> gt_client::Result<_> {
        let mut current = lock();
        match &*current {
            // Another thread opened one first.
            Some(session) if session.is_alive() => Ok((session.clone(), None)),
            _ => ClientSession::open().map(|session| (session.clone(), current.replace(session))),
        }
    });
    // Dropping a session may drop the last owners of tensors, which take the lock: the lock is released before that.
    let (session, _old) = opened.or_raise()?;
    Ok(session)
}

/// The process's session, if it is open.
pub fn open() -> Option<Arc<ClientSession>> {
    lock().clone().filter(|session| session.is_open())
}

/// Waits until all instructions issued so far have been executed.
///
/// Needed for timing: operations return before they are executed.
///
/// Example:
///     >>> x = gt.ones(100, 100) @ gt.ones(100, 100)
///     >>> gt.synchronize()
#[pyfunction]
fn synchronize(py: Python<'_>) -> PyResult<()> {
    current(py)?.synchronize().or_raise()
}

/// Publishes the instructions that wait for their batch to fill, so that they run even if nobody waits for them.
#[pyfunction]
fn flush() {
    if let Some(session) = lock().as_ref() {
        session.flush();
    }
}

/// Begins a session with the daemon at `address`, or with the one that the first operation would find.
#[pyfunction]
#[pyo3(signature = (address=None, token=None, devices=None))]
fn connect(py: Python<'_>, address: Option<&str>, token: Option<String>, devices: Option<&str>) -> PyResult<()> {
    let address = address.map(launch::parse_address).transpose().or_raise()?;
    let devices = devices.map(launch::parse_devices).transpose().or_raise()?;
    let options = ConnectOptions { address, token, devices, ..launch::connect_options() };
    let opened = py.detach(|| -> gt_client::Result<_> {
        let mut current = lock();
        if let Some(session) = current.as_ref().filter(|session| session.is_alive()) {
            let now = &session.info().address;
            let pinned = session.info().visible.pinned.map_or(DeviceSet::ALL, |(devices, _)| devices);
            if let Some(devices) = options.devices.filter(|devices| *devices != pinned) {
                return Err(OpError::runtime(format!(
                    "connect(devices={devices}) comes too late: this process has a session with the devices {pinned}; \
                     connect before the first operation, or after gt.disconnect(), which ends that session and its tensors"
                ))
                .into());
            }
            return match options.address {
                Some(wanted) if wanted != *now => Err(OpError::runtime(format!(
                    "connect({wanted}) comes too late: this process has a session with {}; connect before the first \
                     operation, or after gt.disconnect(), which ends that session and its tensors",
                    if *now == Address::Private { "a private daemon".to_owned() } else { now.to_string() }
                ))
                .into()),
                _ => Ok(None),
            };
        }
        let session = ClientSession::connect(&options)?;
        launch::set_connect_options(options);
        Ok(current.replace(session))
    });
    // Dropping a session may drop the last owners of tensors, which take the lock: the lock is released before that.
    opened.or_raise().map(drop)
}

/// Waits for issued instructions and ends the session, whose tensors are lost. The next operation opens another.
#[pyfunction]
fn disconnect(py: Python<'_>) -> PyResult<()> {
    let session = py.detach(|| lock().take());
    launch::set_connect_options(ConnectOptions { name: launch::connect_options().name, ..ConnectOptions::default() });
    session.map_or(Ok(()), |session| session.finish().or_raise())
}

/// Names the session and those opened later; returns the previous name.
#[pyfunction]
#[pyo3(signature = (name))]
fn set_session_name(py: Python<'_>, name: Option<String>) -> PyResult<Option<String>> {
    launch::check_name(name.as_deref()).or_raise()?;
    let before = launch::connect_options();
    launch::set_connect_options(ConnectOptions { name: name.clone(), ..before.clone() });
    if let Some(session) = open() {
        py.detach(|| session.rename(name));
    }
    Ok(before.name)
}

/// Whether a session is open.
#[pyfunction]
fn is_connected() -> bool {
    open().is_some()
}

/// Facts about the session and its daemon. Opens a session if there is none.
#[pyfunction]
fn session_info(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let session = current(py)?;
    let (info, arena) = (session.info(), session.arena_stats());
    let dict = PyDict::new(py);
    dict.set_item("session_id", info.session_id)?;
    dict.set_item("daemon_pid", info.daemon_pid)?;
    dict.set_item("daemon_version", &info.daemon_version)?;
    dict.set_item("address", info.address.to_string())?;
    dict.set_item("private", info.private)?;
    dict.set_item("workers", &info.workers)?;
    let devices = info.visible.pinned.map(|(devices, _)| devices.numbers().collect::<Vec<u32>>());
    dict.set_item("devices", devices)?;
    dict.set_item("arena_bytes_max", info.arena_bytes_max)?;
    dict.set_item("arena_bytes", arena.total_bytes)?;
    dict.set_item("arena_bytes_used", arena.used_bytes)?;
    Ok(dict)
}

/// The layout of a tensor: `replicated`, `sharded` or `partial`, the axis and the reduce op.
type SaidLayout = (&'static str, Option<u8>, Option<String>);

/// A placement: the workers' names, the layout, and on a mesh the number of rows and the layout within each, the first
/// one being that from row to row.
type SaidPlacement = (Vec<String>, SaidLayout, Option<(usize, SaidLayout)>);

/// The placement of a tensor.
#[pyfunction]
fn placement(py: Python<'_>, tensor: &Bound<'_, PyTensor>) -> PyResult<SaidPlacement> {
    let value = tensor.get().snapshot(py)?.value().or_raise()?;
    let found = value.session().placement(value.id()).or_raise()?;
    let name = |layout| match layout {
        PlacementLayout::Replicated => "replicated",
        PlacementLayout::Sharded => "sharded",
        PlacementLayout::Partial => "partial",
    };
    let within = found.within_rows.map(|row| (row.rows, (name(row.layout), row.axis, row.join)));
    Ok((found.workers, (name(found.layout), found.axis, found.join), within))
}

/// Counters of each worker for each collective: the calls (`count`) and the bytes sent (`bytes`).
#[pyfunction]
fn traffic(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let of = |worker: &mut WorkerTraffic| std::mem::take(&mut worker.collectives);
    numbers_by_worker(py, of, |traffic| [("count", traffic.count), ("bytes", traffic.bytes)])
}

/// The steps of this session that ended, by worker and operation, once everything issued so far is done: `count`,
/// `time_ns`, `bytes` and `errors`.
#[pyfunction]
fn worker_operations(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let of = |worker: &mut WorkerTraffic| std::mem::take(&mut worker.operations);
    numbers_by_worker(py, of, |done| {
        [("count", done.count), ("time_ns", done.time_ns), ("bytes", done.bytes), ("errors", done.errors)]
    })
}

/// The numbers of each worker's operations, or collectives, as dicts by the worker's name, theirs, and the number's.
fn numbers_by_worker<T, const N: usize>(
    py: Python<'_>,
    of: impl Fn(&mut WorkerTraffic) -> BTreeMap<String, T>,
    numbers: impl Fn(T) -> [(&'static str, u64); N],
) -> PyResult<Bound<'_, PyDict>> {
    let workers = PyDict::new(py);
    for mut worker in current(py)?.traffic().or_raise()?.0 {
        let by_name = PyDict::new(py);
        for (name, what) in of(&mut worker) {
            by_name.set_item(name, numbers(what).into_py_dict(py)?)?;
        }
        workers.set_item(worker.name, by_name)?;
    }
    Ok(workers)
}

/// The sequences of instructions that this session repeats, as `get_worker_stats` counts them.
#[pyfunction]
fn sequences(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let SequenceCounts { unique_sequences, hot_sequences, hot_instructions, cold_instructions, hits, misses } =
        current(py)?.traffic().or_raise()?.1;
    let numbers = [
        ("unique_sequences", unique_sequences),
        ("hot_sequences", hot_sequences),
        ("hot_instructions", hot_instructions),
        ("cold_instructions", cold_instructions),
        ("cache_hits", hits),
        ("cache_misses", misses),
    ];
    numbers.into_py_dict(py)
}

/// The dtypes and sizes of this session's tensors by id, as in `float32[64,784]`, once everything issued so far is
/// done.
#[pyfunction]
fn tensors(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    current(py)?.tensors().or_raise()?.into_py_dict(py)
}

/// The status of the daemon's workers, once everything issued so far is done: `name`, `kind`, `memory_bytes`,
/// `memory_bytes_limit`, and this session's `session_bytes` and `session_bytes_peak`. A worker on a device also has
/// `device`, `capability`, `multiprocessors` and `device_bytes`.
#[pyfunction]
fn worker_status(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyDict>>> {
    let session = current(py)?;
    let status = session.status().or_raise()?;
    let own = session.detail().or_raise()?.workers;
    let of = |worker: WorkerInfo| {
        let dict = PyDict::new(py);
        if let Some(held) = own.iter().find(|held| held.name == worker.name) {
            dict.set_item("session_bytes", held.memory_bytes)?;
            dict.set_item("session_bytes_peak", held.memory_bytes_peak)?;
        }
        if let Some(device) = worker.device {
            dict.set_item("device", device.name)?;
            dict.set_item("capability", device.capability)?;
            dict.set_item("multiprocessors", device.multiprocessors)?;
            dict.set_item("device_bytes", device.memory_bytes)?;
        }
        dict.set_item("name", worker.name)?;
        dict.set_item("kind", worker.kind)?;
        dict.set_item("memory_bytes", worker.memory_bytes)?;
        dict.set_item("memory_bytes_limit", worker.memory_bytes_limit)?;
        Ok(dict)
    };
    status.workers.into_iter().map(of).collect()
}

/// Resets `session_bytes_peak` of this worker once the instructions issued so far are done.
#[pyfunction]
fn reset_peak(py: Python<'_>, worker: String) -> PyResult<()> {
    current(py)?.reset_peak(Some(worker)).or_raise()
}

/// Sets the folder where the package's programs are installed.
#[pyfunction]
fn set_scripts_folder(folder: std::path::PathBuf) {
    launch::set_scripts_folder(folder);
}

/// The path of the `gtd` that a private daemon would run.
#[pyfunction]
fn find_gtd() -> PyResult<std::path::PathBuf> {
    launch::find_gtd().or_raise()
}

/// Adds the functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(synchronize, module)?)?;
    module.add_function(wrap_pyfunction!(flush, module)?)?;
    module.add_function(wrap_pyfunction!(connect, module)?)?;
    module.add_function(wrap_pyfunction!(disconnect, module)?)?;
    module.add_function(wrap_pyfunction!(set_session_name, module)?)?;
    module.add_function(wrap_pyfunction!(is_connected, module)?)?;
    module.add_function(wrap_pyfunction!(session_info, module)?)?;
    module.add_function(wrap_pyfunction!(placement, module)?)?;
    module.add_function(wrap_pyfunction!(traffic, module)?)?;
    module.add_function(wrap_pyfunction!(worker_operations, module)?)?;
    module.add_function(wrap_pyfunction!(sequences, module)?)?;
    module.add_function(wrap_pyfunction!(tensors, module)?)?;
    module.add_function(wrap_pyfunction!(worker_status, module)?)?;
    module.add_function(wrap_pyfunction!(reset_peak, module)?)?;
    module.add_function(wrap_pyfunction!(find_gtd, module)?)?;
    module.add_function(wrap_pyfunction!(set_scripts_folder, module)?)
}
