//! `gt.Tensor`: the object users hold.

use crate::error::OrRaise;
use crate::gil::GilCell;
use gt_client::{Result, Scope, Tensor};
use gt_ops::error::Result as OpResult;
use gt_ops::{Graph, Val};
use pyo3::prelude::*;
use std::cell::Cell;

/// A tensor that lives in the daemon.
#[pyclass(name = "Tensor", module = "gt", frozen, weakref)]
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
    pub fn snapshot(&self, py: Python<'_>) -> Tensor {
        self.read(py).snapshot()
    }

    /// What one builder makes of it.
    pub fn build(
        &self,
        py: Python<'_>,
        build: impl FnOnce(&mut dyn Graph, Val) -> OpResult<Val>,
    ) -> PyResult<PyTensor> {
        self.read(py).apply(build).or_raise().map(PyTensor::wrap)
    }

    /// Binds the object to the result of an in-place operation.
    pub fn rebind(&self, py: Python<'_>, result: Tensor) -> PyResult<()> {
        // The cast that a wider result may need is an op, which may wait: not inside `write`.
        let (old, new) = (self.read(py).meta(), result.meta());
        self.read(py).check_in_place().or_raise()?;
        let result = if new.dtype != old.dtype && new.dtype.category() <= old.dtype.category() && new.shape == old.shape
        {
            result.apply(|g, v| gt_ops::build::cast(g, v, old.dtype)).or_raise()?
        } else {
            result
        };
        self.write(py, |tensor| tensor.rebind(result)).or_raise()
    }
}

/// One builder call over several tensors.
pub fn build_from<T, R>(
    tensors: &[&Tensor],
    build: impl FnOnce(&mut dyn Graph, &[Val]) -> OpResult<T>,
    take: impl FnOnce(&Scope, T) -> R,
) -> Result<R> {
    let Some(first) = tensors.first() else {
        return Err(gt_ops::OpError::runtime("expected a non-empty list of Tensors").into());
    };
    let mut scope = Scope::new(&first.session());
    let vals = tensors.iter().map(|t| scope.add(t)).collect::<Result<Vec<_>>>()?;
    let outcome = build(&mut scope, &vals);
    scope.finish_with(outcome, take)
}
