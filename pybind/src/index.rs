//! Parsing of the index in `x[index]`.

use crate::convert::{PyOperand, operand};
use crate::data;
use crate::error::OrRaise;
use crate::tensor::{PyTensor, build_from};
use gt_client::Tensor;
use gt_ops::build::Index;
use gt_ops::build::indexing;
use gt_ops::{Arg, DType, RANK_MAX, Scalar, Shape};
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyEllipsis, PyInt, PyRange, PySequence, PySlice, PyString, PyTuple};
use smallvec::{SmallVec, smallvec};

/// The parts of a basic index: few, so that parsing `x[i]` allocates no memory.
pub type IndexParts = SmallVec<[Index; 4]>;

/// The parts of a basic index (integers, slices, `None`, `...`); `None` if a part is a tensor, an array, a sequence or
/// a bool, which [`advanced_get`] and [`advanced_set`] handle.
pub fn parts(index: &Bound<'_, PyAny>) -> PyResult<Option<IndexParts>> {
    match index.cast::<PyTuple>() {
        Ok(tuple) => tuple.iter_borrowed().map(|part| one(&part)).collect(),
        Err(_) => Ok(one(index)?.map(|part| smallvec![part])),
    }
}

/// A slice as Python's lists read it: bounds that do not fit in 64 bits are clipped.
fn range(slice: &Bound<'_, PySlice>) -> PyResult<Index> {
    let (mut start, mut stop, mut step) = (0, 0, 0);
    // SAFETY: `slice` is a slice object, the three addresses are those of local variables, and the GIL is held.
    let status = unsafe { pyo3::ffi::PySlice_Unpack(slice.as_ptr(), &mut start, &mut stop, &mut step) };
    if status < 0 {
        return Err(PyErr::fetch(slice.py()));
    }
    let bound = |bound: isize| Some(bound as i64);
    Ok(Index::Range { start: bound(start), stop: bound(stop), step: bound(step) })
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
        return range(slice).map(Some);
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

/// Whether a part makes the index an advanced one. Integers do not, nor do integer tensors and arrays without axes.
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

/// A function of `gt._indexing`, which resolves general advanced indices.
fn function<'py>(py: Python<'py>, cell: &'static PyOnceLock<Py<PyAny>>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    cell.import(py, "gt._indexing", name).cloned()
}

/// The parts of the index, if all of them are tensors that [`gt_ops::build::indexing`] accepts.
fn index_tensors(x: &Bound<'_, PyTensor>, index: &Bound<'_, PyAny>) -> PyResult<Option<Vec<Tensor>>> {
    let py = x.py();
    let from = x.get().read(py).meta();
    let mut shape = None;
    let mut tensors = Vec::new();
    let mut take = |part: &Bound<'_, PyAny>| -> PyResult<bool> {
        let Ok(part) = part.cast::<PyTensor>() else { return Ok(false) };
        let meta = part.get().read(py).meta();
        let fits = meta.dtype == DType::I64 && meta.shape.rank() > 0 && *shape.get_or_insert(meta.shape) == meta.shape;
        if fits {
            tensors.push(part.get().snapshot(py)?);
        }
        Ok(fits)
    };
    let all = match index.cast::<PyTuple>() {
        Ok(parts) => {
            let mut all = !parts.is_empty();
            for part in parts.iter() {
                all = all && take(&part)?;
            }
            all
        }
        Err(_) => take(index)?,
    };
    let fits = |shape: Shape| {
        tensors.len() <= from.shape.rank()
            && shape.rank() + from.shape.rank() - tensors.len() <= RANK_MAX
            && shape.numel() > 0
            && from.shape.numel() > 0
    };
    Ok(if all && shape.is_some_and(fits) { Some(tensors) } else { None })
}

/// `x[index]` for an advanced index.
pub fn advanced_get<'py>(x: &Bound<'py, PyTensor>, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = x.py();
    if let Some(indices) = index_tensors(x, index)? {
        let this = x.get().snapshot(py)?;
        let tensors: Vec<&Tensor> = std::iter::once(&this).chain(&indices).collect();
        let found = build_from(&tensors, |g, v| indexing::index(g, v[0], &v[1..]), |s, v| s.tensor(v)).or_raise()?;
        return Ok(Bound::new(py, PyTensor::wrap(found))?.into_any());
    }
    static GET: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    function(x.py(), &GET, "get")?.call1((x, index))
}

/// `value` if it is a tensor of `x`'s dtype or a number.
fn source_of(x: &Bound<'_, PyTensor>, value: &Bound<'_, PyAny>) -> PyResult<Option<Result<Tensor, Scalar>>> {
    let py = x.py();
    if let Ok(tensor) = value.cast::<PyTensor>() {
        let same = tensor.get().read(py).meta().dtype == x.get().read(py).meta().dtype;
        return if same { tensor.get().snapshot(py).map(|tensor| Some(Ok(tensor))) } else { Ok(None) };
    }
    Ok(match operand(value)? {
        Some(PyOperand::Scalar(scalar)) => Some(Err(scalar)),
        _ => None,
    })
}

/// `x[index] = value` for an advanced index.
pub fn advanced_set(x: &Bound<'_, PyTensor>, index: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = x.py();
    if !x.get().read(py).repeats_elements()
        && let Some(source) = source_of(x, value)?
        && let Some(indices) = index_tensors(x, index)?
    {
        let _operation = x.get().read(py).begin_in_place();
        let this = x.get().snapshot(py)?;
        x.get().read(py).check_in_place().or_raise()?;
        let tensors: Vec<&Tensor> = std::iter::once(&this).chain(&indices).chain(source.as_ref().ok()).collect();
        let result = build_from(
            &tensors,
            |g, v| {
                let source = source.as_ref().err().map_or_else(|| v[v.len() - 1].into(), |number| Arg::Scalar(*number));
                indexing::index_put(g, v[0], &v[1..=indices.len()], source)
            },
            |s, v| s.tensor(v),
        );
        return x.get().rebind(py, result.or_raise()?, None);
    }
    static SET: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    function(x.py(), &SET, "set")?.call1((x, index, value)).map(drop)
}
