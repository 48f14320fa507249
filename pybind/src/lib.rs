//! The compiled half of the Python package: `gt._gt`.
//!
//! It turns Python objects into the client's tensors and back, and errors into PyTorch's exceptions. What a tensor is
//! and how it is computed is in the client crate; `nn`, `optim` and everything else a researcher reads is Python.
//!
//! Start at [`tensor`]: the class users hold. [`operators`] are its dunder methods, [`methods`] the rest, [`create`] the
//! functions that make tensors, [`data`] how lists and NumPy arrays get in and out.

mod autograd;
mod convert;
mod create;
mod data;
mod dtype;
mod error;
mod gil;
mod index;
mod methods;
mod operators;
mod session;
mod table;
mod tensor;

use pyo3::prelude::*;

/// The compiled half of the Python package.
#[pymodule(gil_used = true)]
fn _gt(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    gil::install_hooks();
    error::register(module)?;
    dtype::register(module)?;
    session::register(module)?;
    create::register(module)?;
    methods::register(module)?;
    autograd::register(module)?;
    table::register(module)?;
    module.add_class::<tensor::PyTensor>()?;
    Ok(())
}
