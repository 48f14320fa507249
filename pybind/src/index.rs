//! Parsing of the index in `x[index]`.

use crate::array_struct::{ArrayStruct, is_ndarray};
use crate::data;
use crate::tensor::PyTensor;
use gt_ops::DType;
use gt_ops::build::Index;
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyEllipsis, PyInt, PyRange, PySequence, PySlice, PyString, PyTuple};
use smallvec::{SmallVec, smallvec};

/// The parts of a basic index: few, so that parsing `x[i]` allocates no memory.
pub type IndexParts = SmallVec<[Index; 4]>;

/// The parts of a basic index (integers, slices, `None`, `...`); `None` if a part is a tensor, an array, a sequence or
/// a bool, which make an [advanced index](crate::advanced_index).
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

/// A basic part; none for an advanced one.
pub fn one(part: &Bound<'_, PyAny>) -> PyResult<Option<Index>> {
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
    if is_ndarray(part)? {
        let memory = ArrayStruct::of(part)?;
        return Ok(!memory.dims.is_empty() || memory.dtype == Some(DType::Bool));
    }
    if data::is_array(part) {
        let mask = part.getattr("dtype")?.str()?.to_str()?.ends_with("bool");
        return Ok(mask || part.getattr("ndim")?.extract::<usize>()? > 0);
    }
    let sequence = part.cast::<PySequence>().is_ok() || part.is_instance_of::<PyRange>();
    Ok(part.is_instance_of::<PyBool>() || sequence && !part.is_instance_of::<PyString>())
}
