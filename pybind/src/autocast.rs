//! The dtype of matrix products inside `gt.autocast`. `gt._autocast` applies it to the other functions.

use crate::dtype::{DTypeArg, PyDType, instance};
use gt_ops::error::Result;
use gt_ops::{DType, Graph, Val, build};
use pyo3::prelude::*;
use std::cell::Cell;

thread_local! {
    static DTYPE: Cell<Option<DType>> = const { Cell::new(None) };
}

/// The matrix product of two tensors, in this thread's autocast dtype.
///
/// # Errors
/// As [`build::matmul`].
pub fn matmul(g: &mut dyn Graph, a: Val, b: Val) -> Result<Val> {
    let Some(dtype) = DTYPE.get() else { return build::matmul(g, a, b) };
    let [a, b] = [a, b].map(|v| {
        let own = g.meta(v).dtype;
        // float64 is chosen for its precision: autocast leaves it alone, as PyTorch's does.
        if own.is_float() && own != DType::F64 { build::cast(g, v, dtype) } else { Ok(v) }
    });
    build::matmul(g, a?, b?)
}

/// This thread's autocast dtype; `None` outside `gt.autocast`.
pub fn entered() -> Option<DType> {
    DTYPE.get()
}

/// This thread's autocast dtype; `None` outside `gt.autocast`.
#[pyfunction]
fn autocast_dtype(py: Python<'_>) -> PyResult<Option<Py<PyDType>>> {
    DTYPE.get().map(|dtype| instance(py, dtype)).transpose()
}

/// Sets this thread's autocast dtype; returns the former one.
#[pyfunction]
fn set_autocast_dtype(py: Python<'_>, dtype: Option<DTypeArg>) -> PyResult<Option<Py<PyDType>>> {
    DTYPE.replace(dtype.map(|d| d.0)).map(|dtype| instance(py, dtype)).transpose()
}

/// Adds the functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(autocast_dtype, module)?)?;
    module.add_function(wrap_pyfunction!(set_autocast_dtype, module)?)
}
