//! What stands between the brackets of `x[…]`.

use crate::data;
use crate::tensor::PyTensor;
use gt_ops::DType;
use gt_ops::build::Index;
use pyo3::exceptions::{PyIndexError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyEllipsis, PyInt, PyRange, PySequence, PySlice, PyString, PyTuple};

/// The parts of an index that selects a strided box; none if a part picks elements one by one: a tensor, an array, a
/// sequence or a bool, for which there are [`advanced_get`] and [`advanced_set`].
pub fn parts(index: &Bound<'_, PyAny>) -> PyResult<Option<Vec<Index>>> {
    match index.cast::<PyTuple>() {
        Ok(tuple) => tuple.iter().map(|part| one(&part)).collect(),
        Err(_) => Ok(one(index)?.map(|part| vec![part])),
    }
}

fn one(part: &Bound<'_, PyAny>) -> PyResult<Option<Index>> {
    if part.is_exact_instance_of::<PyInt>() {
        return part.extract().map(Index::At).map(Some);
    }
    if part.is_none() {
        return Ok(Some(Index::NewAxis));
    }
    if part.is_instance_of::<PyEllipsis>() {
        return Ok(Some(Index::Ellipsis));
    }
    if let Ok(slice) = part.cast::<PySlice>() {
        let bound = |name: &str| -> PyResult<Option<i64>> {
            let value = slice.getattr(name)?;
            if value.is_none() {
                return Ok(None);
            }
            value.extract().map(Some).or_else(|_| match value.cast::<PyInt>() {
                // Farther than any tensor reaches, as with Python's lists.
                Ok(far) => Ok(Some(if far.lt(0)? { i64::MIN } else { i64::MAX })),
                Err(_) => {
                    Err(PyTypeError::new_err("slice indices must be integers or None or have an __index__ method"))
                }
            })
        };
        let step = bound("step")?;
        if step == Some(0) {
            return Err(PyValueError::new_err("slice step cannot be zero"));
        }
        return Ok(Some(Index::Range { start: bound("start")?, stop: bound("stop")?, step }));
    }
    if is_advanced(part)? {
        return Ok(None);
    }
    part.extract().map(Index::At).map(Some).map_err(|_| {
        PyIndexError::new_err(format!(
            "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid indices (got {})",
            part.get_type().name().map_or_else(|_| "?".into(), |n| n.to_string())
        ))
    })
}

/// Whether a part picks elements one by one. Integers do not, also as tensors and arrays of no dimension.
fn is_advanced(part: &Bound<'_, PyAny>) -> PyResult<bool> {
    if let Ok(tensor) = part.cast::<PyTensor>() {
        let meta = tensor.get().read(part.py()).meta();
        return Ok(meta.shape.rank() > 0 || matches!(meta.dtype, DType::Bool | DType::U8) || meta.dtype.is_float());
    }
    if data::is_array(part) {
        let mask = part.getattr("dtype")?.str()?.to_str()?.ends_with("bool");
        return Ok(mask || part.getattr("ndim")?.extract::<usize>()? > 0);
    }
    let sequence = part.cast::<PySequence>().is_ok() || part.is_instance_of::<PyRange>();
    Ok(part.is_instance_of::<PyBool>() || sequence && !part.is_instance_of::<PyString>())
}

/// A function of `gt._indexing`, where the other indices are resolved.
fn function<'py>(py: Python<'py>, cell: &'static PyOnceLock<Py<PyAny>>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    cell.import(py, "gt._indexing", name).cloned()
}

/// `x[index]` for an index that picks elements one by one.
pub fn advanced_get<'py>(x: &Bound<'py, PyTensor>, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    static GET: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    function(x.py(), &GET, "get")?.call1((x, index))
}

/// `x[index] = value` for such an index.
pub fn advanced_set(x: &Bound<'_, PyTensor>, index: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
    static SET: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    function(x.py(), &SET, "set")?.call1((x, index, value)).map(drop)
}
