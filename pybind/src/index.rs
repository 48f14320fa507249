//! What stands between the brackets of `x[…]`.

use gt_ops::build::Index;
use pyo3::exceptions::{PyIndexError, PyNotImplementedError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyEllipsis, PySlice, PyString, PyTuple};

/// The parts of an index.
pub fn parts(index: &Bound<'_, PyAny>) -> PyResult<Vec<Index>> {
    match index.cast::<PyTuple>() {
        Ok(tuple) => tuple.iter().map(|part| one(&part)).collect(),
        Err(_) => Ok(vec![one(index)?]),
    }
}

fn one(part: &Bound<'_, PyAny>) -> PyResult<Index> {
    if part.is_none() {
        return Ok(Index::NewAxis);
    }
    if part.is_instance_of::<PyEllipsis>() {
        return Ok(Index::Ellipsis);
    }
    if let Ok(slice) = part.cast::<PySlice>() {
        let bound = |name: &str| -> PyResult<Option<i64>> {
            let value = slice.getattr(name)?;
            if value.is_none() {
                return Ok(None);
            }
            value
                .extract()
                .map(Some)
                .map_err(|_| PyTypeError::new_err("slice indices must be integers or None or have an __index__ method"))
        };
        let step = bound("step")?;
        if step == Some(0) {
            return Err(PyValueError::new_err("slice step cannot be zero"));
        }
        return Ok(Index::Range { start: bound("start")?, stop: bound("stop")?, step });
    }
    let text = part.is_instance_of::<PyString>();
    let advanced = part.is_instance_of::<PyBool>()
        || !text
            && part.hasattr("__len__")?
            && part.getattr("ndim").and_then(|n| n.extract::<usize>()).map_or(true, |n| n > 0);
    if advanced {
        return Err(PyNotImplementedError::new_err(
            "indexing with tensors, arrays, lists or bools is not there yet: use integers, slices, None and ..., or gather()",
        ));
    }
    part.extract().map(Index::At).map_err(|_| {
        PyIndexError::new_err("only integers, slices (`:`), ellipsis (`...`) and None are valid indices here")
    })
}
