//! The dtype that products are computed in while `gt.autocast` is entered. `gt._autocast` says where else it applies.

use crate::dtype::{DTypeArg, PyDType, instance};
use gt_ops::error::Result;
use gt_ops::{DType, Graph, Val, build};
use pyo3::prelude::*;
use std::cell::Cell;

thread_local! {
    static DTYPE: Cell<Option<DType>> = const { Cell::new(None) };
}

/// The product of two tensors, in the dtype that this thread computes products in.
///
/// # Errors
/// As [`build::matmul`].
pub fn matmul(g: &mut dyn Graph, a: Val, b: Val) -> Result<Val> {
    let Some(dtype) = DTYPE.get() else { return build::matmul(g, a, b) };
    let [a, b] = [a, b].map(|v| {
        let own = g.meta(v).dtype;
        // Whoever chose f64 wants it.
        if own.is_float() && own != DType::F64 { build::cast(g, v, dtype) } else { Ok(v) }
    });
    build::matmul(g, a?, b?)
}

/// The dtype this thread computes products in, if not in their own.
#[pyfunction]
fn autocast_dtype(py: Python<'_>) -> PyResult<Option<Py<PyDType>>> {
    DTYPE.get().map(|dtype| instance(py, dtype)).transpose()
}

/// Chooses it; returns what it was.
#[pyfunction]
fn set_autocast_dtype(py: Python<'_>, dtype: Option<DTypeArg>) -> PyResult<Option<Py<PyDType>>> {
    DTYPE.replace(dtype.map(|d| d.0)).map(|dtype| instance(py, dtype)).transpose()
}

/// Adds the functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(autocast_dtype, module)?)?;
    module.add_function(wrap_pyfunction!(set_autocast_dtype, module)?)
}
