//! Conversion of Python arguments: numbers, sizes, axes and operands.

use crate::data;
use crate::tensor::PyTensor;
use gt_client::Tensor;
use gt_ops::{Arg, RANK_MAX, Scalar, Val};
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyList, PyTuple};
use smallvec::{SmallVec, smallvec};
use std::ops::Deref;

/// The value of `object` if it is a Python number.
pub fn number(object: &Bound<'_, PyAny>) -> PyResult<Option<Scalar>> {
    if object.is_exact_instance_of::<PyFloat>() {
        return Ok(Some(Scalar::Float(object.extract()?)));
    if object.is_exact_instance_of::<PyInt>()
        && let Ok(i) = object.extract()
    {
        return Ok(Some(Scalar::Int(i)));
    }
    }
    if let Ok(b) = object.cast::<PyBool>() {
        return Ok(Some(Scalar::Bool(b.is_true())));
    }
    if object.is_instance_of::<PyInt>() {
        return match object.extract::<i64>() {
            Ok(i) => Ok(Some(Scalar::Int(i))),
            // As PyTorch: integers in uint64's range keep their bits, larger ones are refused.
            Err(error) => object.extract::<u64>().map(|u| Some(Scalar::Int(u as i64))).map_err(|_| error),
        };
    }
    if object.is_instance_of::<PyFloat>() {
        return Ok(Some(Scalar::Float(object.extract()?)));
    }
    Ok(None)
}

/// An argument that is a tensor. A tensor of another library, such as PyTorch's, is copied to a tensor of GT's.
pub struct TensorArg<'py>(Bound<'py, PyTensor>);

impl<'py> FromPyObject<'_, 'py> for TensorArg<'py> {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<TensorArg<'py>> {
        if let Ok(tensor) = object.cast::<PyTensor>() {
            return Ok(TensorArg(tensor.to_owned()));
        }
        if data::is_foreign(&object) {
            return Bound::new(object.py(), PyTensor::wrap(data::from_array(&object)?)).map(TensorArg);
        }
        Err(PyTypeError::new_err(format!("argument must be Tensor, not {}", object.get_type().name()?)))
    }
}

impl<'py> Deref for TensorArg<'py> {
    type Target = Bound<'py, PyTensor>;

    fn deref(&self) -> &Bound<'py, PyTensor> {
        &self.0
    }
}

/// An operand of an op.
pub enum PyOperand<'py> {
    /// A tensor object.
    Object(Bound<'py, PyTensor>),
    /// A tensor copied from an array.
    Made(Tensor),
    /// A number.
    Scalar(Scalar),
}

/// `object` as an operand; `None` if it is neither a tensor, an array nor a number.
pub fn operand<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<PyOperand<'py>>> {
    if let Ok(tensor) = object.cast::<PyTensor>() {
        return Ok(Some(PyOperand::Object(tensor.clone())));
    }
    if let Some(scalar) = number(object)? {
        return Ok(Some(PyOperand::Scalar(scalar)));
    }
    if data::is_array(object) {
        if data::is_numpy(object) && object.hasattr("item")? && object.getattr("ndim")?.extract::<usize>()? == 0 {
            // A NumPy scalar promotes as a Python number.
            return number(&object.call_method0("item")?).map(|n| n.map(PyOperand::Scalar));
        }
        return data::from_array(object).map(|t| Some(PyOperand::Made(t)));
    }
    Ok(None)
}

/// The tensor operands of one call, in the order in which a builder takes them.
pub struct PyOperands(Vec<Tensor>);

/// An argument of a builder: one of the tensor operands, or a number.
#[derive(Clone, Copy)]
pub enum PyArg {
    /// The index of a tensor operand.
    Tensor(usize),
    /// A number.
    Scalar(Scalar),
}

impl PyOperands {
    /// A list of operands that begins with `first`.
    pub fn new(first: Tensor) -> PyOperands {
        PyOperands(vec![first])
    }
    /// Adds an argument; `what` names it in the error if it is no operand.
    pub fn add(&mut self, object: &Bound<'_, PyAny>, what: &str) -> PyResult<PyArg> {
        let tensor = match operand(object)? {
            Some(PyOperand::Scalar(scalar)) => return Ok(PyArg::Scalar(scalar)),
            Some(PyOperand::Object(object)) => object.get().snapshot(object.py())?,
            Some(PyOperand::Made(tensor)) => tensor,
            None => return Err(PyTypeError::new_err(format!("{what} must be tensors or numbers"))),
        };
        self.0.push(tensor);
        Ok(PyArg::Tensor(self.0.len() - 1))
    }
    /// The tensor operands in order.
    pub fn tensors(&self) -> Vec<&Tensor> {
        self.0.iter().collect()
    }
}

impl PyArg {
    /// The argument of a builder whose tensor operands are `vals`.
    pub fn arg(self, vals: &[Val]) -> Arg {
        match self {
            PyArg::Tensor(i) => Arg::Val(vals[i]),
            PyArg::Scalar(scalar) => Arg::Scalar(scalar),
        }
    }
}

/// Sizes or axes: few, so that parsing them allocates no memory.
pub type Ints = SmallVec<[i64; RANK_MAX]>;

/// The integers of a sequence, or of one integer.
pub fn ints(object: &Bound<'_, PyAny>) -> PyResult<Ints> {
    if let Ok(tuple) = object.cast::<PyTuple>() {
        return tuple.iter_borrowed().map(|item| int(&item)).collect();
    }
    if let Ok(list) = object.cast::<PyList>() {
        return list.iter().map(|item| int(&item)).collect();
    }
    Ok(smallvec![int(object)?])
}

/// An integer; not a float.
pub fn int(object: &Bound<'_, PyAny>) -> PyResult<i64> {
    if object.is_exact_instance_of::<PyInt>()
        && let Ok(int) = object.extract()
    {
        return Ok(int);
    }
    if object.is_instance_of::<PyFloat>() {
        return Err(PyTypeError::new_err(format!("expected an int, but got the float {object}")));
    }
    object.extract::<i64>().map_err(|_| {
        if object.is_instance_of::<PyInt>() {
            return PyRuntimeError::new_err(format!("Overflow when unpacking long: {object} is too large for a size"));
        }
        PyTypeError::new_err(format!(
            "expected an int or a sequence of ints, but got {}",
            object.get_type().name().map_or_else(|_| "?".into(), |n| n.to_string())
        ))
    })
}

/// Sizes passed as `f(2, 3)` or `f((2, 3))`.
pub fn sizes(args: &Bound<'_, PyTuple>) -> PyResult<Ints> {
    if args.len() == 1 {
        return ints(&args.get_item(0)?);
    }
    ints(args.as_any())
}
