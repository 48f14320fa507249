//! The extension's side of `gt.signal`: signals are numbers here; `gt.signal` knows their names.

use crate::error::{OrRaise, raise_op};
use crate::session;
use crate::tensor::PyTensor;
use gt_client::launch::{want_workers, workers_wanted};
use gt_client::signal::{self, ActiveSignal, SignalDefinition};
use gt_ops::placement::{RequestedDimension, RequestedLayout, RequestedPlacement, Workers};
use gt_ops::{Attrs, Op, OpError};
use pyo3::prelude::*;
use std::sync::OnceLock;

/// The bits of a thread's signal state: operations run under `signal`, and their gradients under `backward`, by default
/// the signal that is configured for gradients.
#[pyfunction]
#[pyo3(signature = (signal, backward=None))]
fn under_signal(signal: u32, backward: Option<u32>) -> u64 {
    ActiveSignal::new(signal, backward).bits()
}

/// Sets this thread's signal state; returns the former one.
#[pyfunction]
fn set_signal(under: u64) -> u64 {
    signal::set(ActiveSignal::from_bits(under)).bits()
}

/// This thread's signal state.
#[pyfunction]
fn current_signal() -> u64 {
    signal::current().bits()
}

static LOOKUP: OnceLock<Py<PyAny>> = OnceLock::new();

/// Sets the function that is called for the signal state of a thread whose state is `SIGNAL_ASK`.
#[pyfunction]
fn set_signal_lookup(lookup: Py<PyAny>) {
    let _ = LOOKUP.set(lookup);
    signal::set_lookup_hook(|| {
        Python::attach(|py| {
            let found = LOOKUP.get().map(|lookup| lookup.bind(py).call0().and_then(|bits| bits.extract()));
            match found {
                Some(Ok(bits)) => ActiveSignal::from_bits(bits),
                Some(Err(error)) => {
                    error.write_unraisable(py, None);
                    ActiveSignal::NONE
                }
                None => ActiveSignal::NONE,
            }
        })
    });
}

/// A layout (`any`, `sharded` or `replicated`) and its axis.
type SaidLayout = (String, i8);

/// A signal's definition: its number, the rows of the mesh (0 without one), the layout over each dimension of the mesh
/// or the only one, the workers (an empty list means all), the number of the signal of gradients, whether hot paths
/// under it are planned, and the place in the configuration that names the workers.
type Said = (u32, u8, [SaidLayout; 2], Vec<usize>, Option<u32>, Option<bool>, String);

/// Defines the placements that signals request: all of them, or none if a worker does not exist.
#[pyfunction]
fn define_signals(definitions: Vec<Said>) -> PyResult<()> {
    let along = |(layout, axis): SaidLayout| match layout.as_str() {
        "sharded" => RequestedDimension::Sharded { axis },
        "replicated" => RequestedDimension::Replicated,
        _ => RequestedDimension::Any,
    };
    let read = |(signal, rows, layouts, workers, backward, compile, written): Said| {
        let workers = workers.into_iter().fold(Workers::NONE, |all, worker| all.with(Workers::one(worker)));
        let requested = RequestedPlacement { workers, layout: RequestedLayout::over(rows, layouts.map(along)) };
        SignalDefinition { signal, requested, compile, backward, written }
    };
    let open = session::open();
    let workers = open.as_ref().map(|session| &session.info().visible);
    signal::define(definitions.into_iter().map(read).collect(), workers).or_raise()?;
    if let Some(session) = open {
        session.redefine_signals();
    }
    Ok(())
}

/// Removes all definitions of signals.
#[pyfunction]
fn forget_signals() {
    signal::forget();
    if let Some(session) = session::open() {
        session.redefine_signals();
    }
}

/// Logs that nothing is configured for a signal.
#[pyfunction]
fn tell_unknown_signal(name: &str) {
    tracing::warn!(target: "gt_client", name, "a signal for which nothing is configured: it changes nothing");
}

/// A copy of a tensor, which a cast to its own dtype computes. Gradients flow through it.
#[pyfunction]
fn copy_of(py: Python<'_>, tensor: &Bound<'_, PyTensor>) -> PyResult<PyTensor> {
    tensor.get().build(py, |g, v| {
        let dtype = g.meta(v).dtype;
        g.emit(Op::Cast, &[v.into()], Attrs::DType(dtype))
    })
}

/// Requests a number of workers and begins the session.
#[pyfunction]
fn start_workers(py: Python<'_>, count: usize) -> PyResult<()> {
    if let Some(session) = session::open() {
        // Repeating the same request is accepted: a notebook's cell may run twice.
        if workers_wanted() == count {
            return Ok(());
        }
        let have = session.info().workers.len();
        let have = if have == 1 { "1 worker".to_owned() } else { format!("{have} workers") };
        return Err(raise_op(OpError::runtime(format!(
            "gpu_workers({count}) comes too late: the session has begun, with {have}; call it before the first operation, \
             or after gt.disconnect()"
        ))));
    }
    let before = workers_wanted();
    want_workers(count);
    session::current(py).map(drop).inspect_err(|_| want_workers(before))
}

/// Adds the functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("SIGNAL_ASK", ActiveSignal::ASK_HOST.bits())?;
    module.add("SIGNAL_NONE", ActiveSignal::NONE.bits())?;
    module.add("SIGNALS_MAX", gt_ops::wire::SIGNALS_MAX)?;
    module.add("WORKERS_MAX", gt_ops::placement::WORKERS_MAX)?;
    for function in [
        wrap_pyfunction!(under_signal, module)?,
        wrap_pyfunction!(set_signal, module)?,
        wrap_pyfunction!(current_signal, module)?,
        wrap_pyfunction!(set_signal_lookup, module)?,
        wrap_pyfunction!(define_signals, module)?,
        wrap_pyfunction!(forget_signals, module)?,
        wrap_pyfunction!(tell_unknown_signal, module)?,
        wrap_pyfunction!(copy_of, module)?,
        wrap_pyfunction!(start_workers, module)?,
    ] {
        module.add_function(function)?;
    }
    Ok(())
}
