//! `gt.Tensor`: the object users hold.

use crate::error::OrRaise;
use crate::gil::GilCell;
use gt_client::Tensor;
pub use gt_client::tensor::build_from;
use gt_ops::error::Result as OpResult;
use gt_ops::{Graph, Val};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::cell::Cell;

/// A tensor that lives in the daemon.
#[pyclass(name = "Tensor", module = "gt", dict, frozen, weakref)]
pub struct PyTensor {
    cell: GilCell<Tensor>,
    /// Whether `gt.nn.Parameter` made it.
    pub is_parameter: GilFlag,
}

/// A bool guarded by the global lock.
pub struct GilFlag(GilCell<Cell<bool>>);

impl GilFlag {
    /// What it is.
    pub fn get(&self, py: Python<'_>) -> bool {
        self.0.read(py).get()
    }
    /// Makes it `on`.
    pub fn set(&self, py: Python<'_>, on: bool) {
        self.0.read(py).set(on);
    }
}

impl PyTensor {
    /// An object for `tensor`.
    #[inline]
    pub fn wrap(tensor: Tensor) -> PyTensor {
        PyTensor { cell: GilCell::new(tensor), is_parameter: GilFlag(GilCell::new(Cell::new(false))) }
    }

    /// The tensor, which does not change until the guard is dropped.
    #[inline]
    pub fn read(&self, py: Python<'_>) -> crate::gil::Reading<'_, Tensor> {
        self.cell.read(py)
    }

    /// Changes the handle; see [`GilCell::write`] for what `change` may not do.
    pub fn write<R>(&self, py: Python<'_>, change: impl FnOnce(&mut Tensor) -> R) -> R {
        self.cell.write(py, change)
    }

    /// Its value and place on the tape, taken now.
    pub fn snapshot(&self, py: Python<'_>) -> PyResult<Tensor> {
        self.read(py).snapshot().or_raise()
    }

    /// What one builder makes of it.
    pub fn build(
        &self,
        py: Python<'_>,
        build: impl FnOnce(&mut dyn Graph, Val) -> OpResult<Val>,
    ) -> PyResult<PyTensor> {
        self.read(py).apply(build).or_raise().map(PyTensor::wrap)
    }

    /// A view that movement ops make of it; if `strict`, not where PyTorch would have to copy.
    pub fn view_of(
        &self,
        py: Python<'_>,
        strict: bool,
        build: impl FnOnce(&mut dyn Graph, Val) -> OpResult<Val>,
    ) -> PyResult<PyTensor> {
        let plan = self.read(py).plan_view(build).or_raise()?;
        if strict && plan.is_copy() {
            return Err(PyRuntimeError::new_err(
                "view size is not compatible with input tensor's size and stride (at least one dimension spans across \
                 two contiguous subspaces). Use .reshape(...) instead.",
            ));
        }
        Ok(PyTensor::wrap(self.write(py, |tensor| tensor.view(plan))))
    }

    /// Binds the object to the result of an in-place operation that began when the tape had come to `since`.
    pub fn rebind(&self, py: Python<'_>, result: Tensor, since: Option<u64>) -> PyResult<()> {
        let plan = self.read(py).plan_rebind(result, since).or_raise()?;
        drop(self.write(py, |tensor| tensor.rebind(plan)));
        Ok(())
    }
}
