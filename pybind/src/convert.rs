//! Conversion of Python arguments: numbers, sizes, axes and operands.

use crate::data;
use crate::tensor::PyTensor;
use gt_client::Tensor;
use gt_ops::{RANK_MAX, Scalar};
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyComplex, PyFloat, PyInt, PyList, PyTuple};
use smallvec::{SmallVec, smallvec};

/// The value of `object` if it is a Python number.
pub fn number(object: &Bound<'_, PyAny>) -> PyResult<Option<Scalar>> {
    if object.is_exact_instance_of::<PyFloat>() {
        return Ok(Some(Scalar::Float(object.extract()?)));
    }
    if object.is_exact_instance_of::<PyInt>()
        && let Ok(i) = object.extract()
    {
        return Ok(Some(Scalar::Int(i)));
    }
    if let Ok(b) = object.cast::<PyBool>() {
        return Ok(Some(Scalar::Bool(b.is_true())));
    }
    if object.is_instance_of::<PyInt>() {
        return match object.extract::<i64>() {
            Ok(i) => Ok(Some(Scalar::Int(i))),
            // As in PyTorch, integers in uint64's range are numbers, larger ones are refused.
            Err(error) => object.extract::<u64>().map(|u| Some(Scalar::Unsigned(u))).map_err(|_| error),
        };
    }
    if object.is_instance_of::<PyFloat>() {
        return Ok(Some(Scalar::Float(object.extract()?)));
    }
    if let Ok(complex) = object.cast::<PyComplex>() {
        return Ok(Some(Scalar::Complex(complex.real(), complex.imag())));
    }
    Ok(None)
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
