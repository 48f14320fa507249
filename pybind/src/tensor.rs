//! `gt.Tensor`: the Python object around the client's tensor handle.

use crate::error::OrRaise;
use crate::gil::GilCell;
pub use gt_client::tensor::build_from;
use gt_client::{Node, Repeats, Tensor, TensorElements};
use gt_ops::build::{self, Index};
use gt_ops::error::Result as OpResult;
use gt_ops::{Graph, Scalar, Val};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::cell::Cell;
use std::sync::Weak;

/// An array of elements of one dtype that lives in the daemon, with autograd.
///
/// Tensors are made by `gt.tensor`, `gt.zeros` and the like. Operations return at once; the daemon executes them, and
/// reading the elements waits for them.
///
/// Example:
///     >>> x = gt.tensor([[1.0, 2.0], [3.0, 4.0]])
///     >>> x @ x + 1
///     tensor([[ 8., 11.],
///             [16., 23.]])
#[pyclass(name = "Tensor", module = "gt", dict, frozen, subclass, weakref)]
pub struct PyTensor {
    cell: GilCell<Tensor>,
    /// Whether the tensor is a `gt.nn.Parameter`.
    pub is_parameter: GilFlag,
    /// The node whose gradient this object is, if it was read as `grad`.
    pub gradient_of: Option<Weak<Node>>,
}

/// A bool guarded by the GIL.
pub struct GilFlag(GilCell<Cell<bool>>);

impl GilFlag {
    /// The value.
    pub fn get(&self, py: Python<'_>) -> bool {
        self.0.read(py).get()
    }
    /// Sets the value.
    pub fn set(&self, py: Python<'_>, on: bool) {
        self.0.read(py).set(on);
    }
}

impl PyTensor {
    /// A Python object for `tensor`.
    #[inline]
    pub fn wrap(tensor: Tensor) -> PyTensor {
        PyTensor {
            cell: GilCell::new(tensor),
            is_parameter: GilFlag(GilCell::new(Cell::new(false))),
            gradient_of: None,
        }
    }

    /// A read guard of the tensor.
    #[inline]
    pub fn read(&self, py: Python<'_>) -> crate::gil::Reading<'_, Tensor> {
        self.cell.read(py)
    }

    /// Changes the handle; see [`GilCell::write`] for what `change` may not do.
    pub fn write<R>(&self, py: Python<'_>, change: impl FnOnce(&mut Tensor) -> R) -> R {
        self.cell.write(py, change)
    }

    /// The tensor's present value and node on the tape.
    pub fn snapshot(&self, py: Python<'_>) -> PyResult<Tensor> {
        self.read(py).snapshot().or_raise()
    }

    /// The tensor's present elements, to be fetched.
    pub fn elements(&self, py: Python<'_>) -> PyResult<TensorElements> {
        self.read(py).elements().or_raise()
    }

    /// A new tensor that `build` computes from this one.
    pub fn build(
        &self,
        py: Python<'_>,
        build: impl FnOnce(&mut dyn Graph, Val) -> OpResult<Val>,
    ) -> PyResult<PyTensor> {
        self.read(py).apply(build).or_raise().map(PyTensor::wrap)
    }

    /// A view made by movement ops. If `strict`, an error where PyTorch would have to copy.
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

    /// The part that a basic index selects: a view.
    pub fn part(&self, py: Python<'_>, parts: &[Index]) -> PyResult<PyTensor> {
        let known = self.read(py).plan_known_part(parts).or_raise()?;
        match known {
            Some(part) => Ok(PyTensor::wrap(self.write(py, |tensor| tensor.known_part(part)))),
            None => self.view_of(py, false, |g, v| build::index(g, v, parts)),
        }
    }

    /// Binds the object to the result of an in-place operation. `since` is the tape's sequence number at which the
    /// operation began; `None` for the number of the op that made the result.
    pub fn rebind(&self, py: Python<'_>, result: Tensor, since: Option<u64>) -> PyResult<()> {
        self.rebind_with(py, result, since, Repeats::Refused)
    }

    /// As [`PyTensor::rebind`]; `repeats` says what a view takes that shows an element several times.
    pub fn rebind_with(&self, py: Python<'_>, result: Tensor, since: Option<u64>, repeats: Repeats) -> PyResult<()> {
        let plan = self.read(py).plan_rebind(result, since, repeats).or_raise()?;
        self.write(py, |tensor| tensor.rebind(plan)).finish().or_raise()
    }

    /// Sets all elements of a part of another tensor to one number. False where a tensor of it has to be made first.
    pub fn fill_part(&self, py: Python<'_>, number: Scalar) -> PyResult<bool> {
        let Some(plan) = self.read(py).plan_fill(number).or_raise()? else { return Ok(false) };
        self.write(py, |tensor| tensor.rebind(plan)).finish().or_raise()?;
        Ok(true)
    }

    /// As [`PyTensor::rebind`], to a result whose elements are all the same: a view that shows an element several times
    /// can take it.
    pub fn rebind_uniform(&self, py: Python<'_>, result: Tensor) -> PyResult<()> {
        self.rebind_with(py, result, None, Repeats::Uniform)
    }
}
