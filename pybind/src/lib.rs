//! The Python package of GT: the extension module `gt._gt`.

use pyo3::prelude::*;

/// The compiled half of the Python package.
#[pymodule(gil_used = false)]
fn _gt(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
