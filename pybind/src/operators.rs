//! The special methods of arithmetic and comparison (`__add__`, `__lt__` and so on).
#![expect(unsafe_op_in_unsafe_fn, reason = "in wrappers that pyo3 generates inside our macros")]

use crate::autocast;
use crate::autograd::Recording;
use crate::convert::{PyOperand, operand};
use crate::error::OrRaise;
use crate::tensor::{PyTensor, build_from};
use gt_client::Tensor;
use gt_client::tensor::TensorOperand;
use gt_ops::row::{AttrKind, ROWS};
use gt_ops::{DType, Op, build};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::pyclass::CompareOp;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// `this op other`, or `other op this` if `swapped`; `None` if `other` is no operand.
fn binary(
    py: Python<'_>,
    op: Op,
    this: &PyTensor,
    other: &Bound<'_, PyAny>,
    swapped: bool,
) -> PyResult<Option<Tensor>> {
    if let Ok(other) = other.cast::<PyTensor>() {
        let (a, b) = (this.read(py), other.get().read(py));
        return if swapped { b.binary(op, &a) } else { a.binary(op, &b) }.or_raise().map(Some);
    }
    let Some(other) = operand(other)? else { return Ok(None) };
    let this = this.read(py);
    let input = match &other {
        PyOperand::Scalar(scalar) => TensorOperand::Scalar(*scalar),
        PyOperand::Made(tensor) => TensorOperand::Tensor(tensor),
        PyOperand::Object(_) => return Ok(None),
    };
    let operands = if swapped { [input, TensorOperand::This] } else { [TensorOperand::This, input] };
    this.elementwise(op, &operands).or_raise().map(Some)
}

fn answer(py: Python<'_>, result: Option<Tensor>) -> PyResult<Py<PyAny>> {
    match result {
        Some(tensor) => Ok(Py::new(py, PyTensor::wrap(tensor))?.into_any()),
        None => Ok(py.NotImplemented()),
    }
}

/// Whether `parameter -= step` updates a leaf without recording.
static UPDATES_LEAVES: AtomicBool = AtomicBool::new(true);

/// Sets whether `p -= step` and `p += step` may update a leaf that requires grad outside `no_grad()`, if the step needs
/// no gradient: GT allows it; PyTorch, whose programs may rely on the error, does not. Returns the former setting.
#[pyfunction]
pub fn set_leaf_updates(allowed: bool) -> bool {
    UPDATES_LEAVES.swap(allowed, Relaxed)
}

/// Whether `slf op other` is an update of a leaf that needs no recording.
fn updates_leaf(slf: &Bound<'_, PyTensor>, op: Op, other: &Bound<'_, PyAny>) -> bool {
    let py = slf.py();
    let this = slf.get().read(py);
    matches!(op, Op::Sub | Op::Add)
        && UPDATES_LEAVES.load(Relaxed)
        && this.requires_grad()
        && this.is_leaf()
        && other.cast::<PyTensor>().map_or(true, |other| !other.get().read(py).requires_grad())
}

/// Whether an in-place op saves the tensor that it writes as another operand than the first, as `x *= x` does. PyTorch
/// saves that operand after the write, so that a gradient through it is an error.
pub fn saves_written(op: Op, written: &Bound<'_, PyAny>, other: &Bound<'_, PyAny>) -> bool {
    other.is(written) && op.row().saves.inputs & !1 != 0
}

fn in_place(slf: &Bound<'_, PyTensor>, op: Op, other: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = slf.py();
    let _recording = updates_leaf(slf, op, other).then(|| Recording::set(false));
    slf.get().read(py).check_in_place().or_raise()?;
    let _operation = slf.get().read(py).begin_in_place();
    let since = gt_client::tape::next_number();
    match binary(py, op, slf.get(), other, false)? {
        Some(result) => {
            let since = if saves_written(op, slf, other) { gt_client::tape::next_number() } else { since };
            slf.get().rebind(py, result, Some(since))
        }
        None => Err(PyTypeError::new_err(format!(
            "unsupported operand type(s) for {} in place: 'Tensor' and '{}'",
            op.name(),
            other.get_type().name()?
        ))),
    }
}

/// The special methods of `op`: forward, reflected and in place.
macro_rules! arithmetic {
    ($($op:ident: $forward:ident $reflected:ident $in_place:ident;)*) => {
        #[pymethods]
        impl PyTensor {
            $(
                fn $forward(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
                    answer(slf.py(), binary(slf.py(), Op::$op, slf.get(), other, false)?)
                }
                fn $reflected(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
                    answer(slf.py(), binary(slf.py(), Op::$op, slf.get(), other, true)?)
                }
                fn $in_place(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>) -> PyResult<()> {
                    in_place(slf, Op::$op, other)
                }
            )*

            fn __pow__(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>, modulo: Option<&Bound<'_, PyAny>>) -> PyResult<Py<PyAny>> {
                power(slf, other, modulo, false)
            }
            fn __rpow__(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>, modulo: Option<&Bound<'_, PyAny>>) -> PyResult<Py<PyAny>> {
                power(slf, other, modulo, true)
            }
            fn __ipow__(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>, _modulo: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
                in_place(slf, Op::Pow, other)
            }

            fn __matmul__(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
                product(slf, other, false)
            }
            fn __rmatmul__(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
                product(slf, other, true)
            }

            fn __neg__(&self, py: Python<'_>) -> PyResult<PyTensor> {
                unary(py, Op::Neg, self)
            }
            fn __pos__<'a, 'py>(slf: &'a Bound<'py, Self>) -> &'a Bound<'py, Self> {
                slf
            }
            fn __abs__(&self, py: Python<'_>) -> PyResult<PyTensor> {
                unary(py, Op::Abs, self)
            }
            fn __invert__(&self, py: Python<'_>) -> PyResult<PyTensor> {
                let dtype = self.read(py).meta().dtype;
                if dtype.is_inexact() {
                    return Err(PyTypeError::new_err(
                        "~ (operator.invert) is only implemented on integer and Boolean-type tensors",
                    ));
                }
                unary(py, if dtype == DType::Bool { Op::LogicalNot } else { Op::BitwiseNot }, self)
            }

            fn __richcmp__(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>, comparison: CompareOp) -> PyResult<Py<PyAny>> {
                let op = match comparison {
                    CompareOp::Lt => Op::Lt,
                    CompareOp::Le => Op::Le,
                    CompareOp::Eq => Op::Eq,
                    CompareOp::Ne => Op::Ne,
                    CompareOp::Gt => Op::Gt,
                    CompareOp::Ge => Op::Ge,
                };
                answer(slf.py(), binary(slf.py(), op, slf.get(), other, false)?)
            }
            fn __hash__(slf: &Bound<'_, Self>) -> isize {
                slf.as_ptr() as isize >> 4
            }
        }
    };
}

arithmetic! {
    Add: __add__ __radd__ __iadd__;
    Sub: __sub__ __rsub__ __isub__;
    Mul: __mul__ __rmul__ __imul__;
    Div: __truediv__ __rtruediv__ __itruediv__;
    FloorDivide: __floordiv__ __rfloordiv__ __ifloordiv__;
    Remainder: __mod__ __rmod__ __imod__;
    BitwiseAnd: __and__ __rand__ __iand__;
    BitwiseLeftShift: __lshift__ __rlshift__ __ilshift__;
    BitwiseRightShift: __rshift__ __rrshift__ __irshift__;
    BitwiseOr: __or__ __ror__ __ior__;
    BitwiseXor: __xor__ __rxor__ __ixor__;
}

fn unary(py: Python<'_>, op: Op, this: &PyTensor) -> PyResult<PyTensor> {
    this.read(py).elementwise(op, &[TensorOperand::This]).or_raise().map(PyTensor::wrap)
}

fn power(
    slf: &Bound<'_, PyTensor>,
    other: &Bound<'_, PyAny>,
    modulo: Option<&Bound<'_, PyAny>>,
    swapped: bool,
) -> PyResult<Py<PyAny>> {
    if modulo.is_some_and(|m| !m.is_none()) {
        return Ok(slf.py().NotImplemented());
    }
    answer(slf.py(), binary(slf.py(), Op::Pow, slf.get(), other, swapped)?)
}

fn product(slf: &Bound<'_, PyTensor>, other: &Bound<'_, PyAny>, swapped: bool) -> PyResult<Py<PyAny>> {
    let py = slf.py();
    let this = slf.get().read(py);
    let made;
    let object;
    let reading;
    let other: &Tensor = match operand(other)? {
        Some(PyOperand::Object(o)) => {
            object = o;
            reading = object.get().read(py);
            &reading
        }
        Some(PyOperand::Made(t)) => {
            made = t;
            &made
        }
        _ => return Ok(py.NotImplemented()),
    };
    let (a, b) = if swapped { (other, &*this) } else { (&*this, other) };
    let product = build_from(&[a, b], |g, v| autocast::matmul(g, v[0], v[1]), |s, v| s.tensor(v)).or_raise()?;
    answer(py, Some(product))
}

/// Applies the elementwise op with this wire id to tensors and numbers, for tests of ops that are no functions.
#[pyfunction]
#[pyo3(signature = (op, *args))]
pub fn elementwise(py: Python<'_>, op: u16, args: &Bound<'_, pyo3::types::PyTuple>) -> PyResult<PyTensor> {
    let op = Op::from_wire(op).ok_or_else(|| PyTypeError::new_err(format!("there is no op {op}")))?;
    let row = op.row();
    if args.len() != row.operands as usize {
        return Err(PyTypeError::new_err(format!(
            "{}() takes {} operands, but {} were given",
            row.name,
            row.operands,
            args.len()
        )));
    }
    let mut operands = Vec::with_capacity(3);
    for arg in args.iter_borrowed() {
        operands.push(operand(&arg)?.ok_or_else(|| {
            PyTypeError::new_err(format!(
                "{}(): expected a Tensor or a number, but got {}",
                row.name,
                arg.get_type().name().map_or_else(|_| "?".into(), |n| n.to_string())
            ))
        })?);
    }
    let readings: Vec<_> = operands
        .iter()
        .map(|o| match o {
            PyOperand::Object(object) => Some(object.get().read(py)),
            _ => None,
        })
        .collect();
    let inputs: Vec<TensorOperand<'_>> = operands
        .iter()
        .zip(&readings)
        .map(|(o, reading)| match (o, reading) {
            (_, Some(reading)) => TensorOperand::Tensor(reading),
            (PyOperand::Made(tensor), _) => TensorOperand::Tensor(tensor),
            (PyOperand::Scalar(scalar), _) => TensorOperand::Scalar(*scalar),
            (PyOperand::Object(_), None) => TensorOperand::This,
        })
        .collect();
    let first = inputs.iter().find_map(|input| match input {
        TensorOperand::Tensor(tensor) => Some(*tensor),
        _ => None,
    });
    let first =
        first.ok_or_else(|| PyTypeError::new_err(format!("{}(): at least one argument must be a Tensor", row.name)))?;
    first.elementwise(op, &inputs).or_raise().map(PyTensor::wrap)
}

/// Applies the op of this name, which works along an axis of the first tensor.
#[pyfunction]
#[pyo3(signature = (name, axis, *tensors))]
pub fn along_axis(
    py: Python<'_>,
    name: &str,
    axis: i64,
    tensors: &Bound<'_, pyo3::types::PyTuple>,
) -> PyResult<PyTensor> {
    let row = ROWS.iter().find(|row| row.name == name && row.attrs == AttrKind::Axis);
    let op = row.ok_or_else(|| PyTypeError::new_err(format!("there is no op {name} along an axis")))?.op;
    let mut operands = Vec::with_capacity(tensors.len());
    for tensor in tensors.iter_borrowed() {
        operands.push(tensor.cast::<PyTensor>()?.get().snapshot(py)?);
    }
    let operands: Vec<&Tensor> = operands.iter().collect();
    build_from(&operands, |g, v| build::along(g, op, axis, v), |s, v| s.tensor(v)).or_raise().map(PyTensor::wrap)
}
