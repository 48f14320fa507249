//! The extension's side of `gt.func.vmap`.

use crate::error::OrRaise;
use crate::session;
use crate::tensor::PyTensor;
use gt_client::vmap::{batch_in, batch_out, differs};
use gt_client::{ActiveBatch, BatchAxis, Randomness};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::sync::{Arc, Mutex, PoisonError};

/// A call of `vmap` on a whole batch, which this thread is in from `Batch(size, randomness)` to `leave()`.
#[pyclass(name = "Batch", module = "gt._gt", frozen)]
struct PyBatch {
    axis: Arc<BatchAxis>,
    active: Mutex<Option<ActiveBatch>>,
}

#[pymethods]
impl PyBatch {
    #[new]
    fn new(py: Python<'_>, size: usize, randomness: &str) -> PyResult<PyBatch> {
        let randomness = match randomness {
            "same" => Randomness::Same,
            "different" => Randomness::Different,
            _ => Randomness::Refused,
        };
        let active = BatchAxis::enter(size, randomness, session::current(py)?.next_id());
        Ok(PyBatch { axis: active.axis().clone(), active: Mutex::new(Some(active)) })
    }
    /// Ends the call.
    fn leave(&self) {
        drop(self.active.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
    /// A tensor whose axis `dim` is that of the batch, as the called function sees it: without the axis.
    fn enter(&self, py: Python<'_>, tensor: &PyTensor, dim: isize) -> PyResult<PyTensor> {
        let tensor = tensor.snapshot(py)?;
        let dim = axis_of(dim, tensor.meta().shape.rank())?;
        batch_in(&tensor, dim, &self.axis).or_raise().map(PyTensor::wrap)
    }
    /// Whether a tensor differs between the elements of the batch.
    fn has(&self, py: Python<'_>, tensor: &PyTensor) -> PyResult<bool> {
        differs(&tensor.snapshot(py)?, &self.axis).or_raise()
    }
    /// A result of the called function with the axis of the batch as its axis `dim`.
    fn result(&self, py: Python<'_>, tensor: &PyTensor, dim: isize) -> PyResult<PyTensor> {
        let tensor = tensor.snapshot(py)?;
        let dim = axis_of(dim, tensor.meta().shape.rank() + 1)?;
        batch_out(&tensor, dim, &self.axis).or_raise().map(PyTensor::wrap)
    }
}

fn axis_of(dim: isize, rank: usize) -> PyResult<usize> {
    let from_first = if dim < 0 { dim + rank as isize } else { dim };
    usize::try_from(from_first)
        .map_err(|_| PyRuntimeError::new_err(format!("vmap: a result of {rank} axes has no axis {dim}")))
}

/// Adds the class to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyBatch>()
}
