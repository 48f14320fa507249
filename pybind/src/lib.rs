//! The compiled half of the Python package: `gt._gt`.
//!
//! It converts Python objects to the client's tensors and back, and errors to PyTorch's exceptions. The client crate
//! defines tensors and issues instructions; `nn`, `optim` and the rest of the package are written in Python.
//!
//! Start at [`tensor`], the class. [`operators`] has its special methods, [`functions`] the functions and methods of
//! the crate `gt-functions`, and [`methods`] the other methods; [`create`] has the functions that make tensors,
//! [`data`] conversion from and to lists and NumPy arrays, and [`host_array`] NumPy arrays that share memory with
//! tensors.

mod advanced_index;
mod array_struct;
mod autocast;
mod autograd;
mod call_site;
mod convert;
mod create;
mod data;
mod device;
mod dtype;
mod error;
mod functions;
mod gil;
mod host_array;
mod index;
mod methods;
mod operators;
mod options;
mod overrides;
mod random;
mod session;
mod signal;
mod table;
mod tensor;
mod vmap;
mod yaml;

use pyo3::prelude::*;

/// The compiled half of the Python package.
#[pymodule(gil_used = true)]
fn _gt(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    gil::install_hooks();
    call_site::install_hooks();
    start_tracing();
    error::register(module)?;
    dtype::register(module)?;
    device::register(module)?;
    random::register(module)?;
    session::register(module)?;
    signal::register(module)?;
    vmap::register(module)?;
    yaml::register(module)?;
    create::register(module)?;
    functions::register(module)?;
    methods::register(module)?;
    autograd::register(module)?;
    autocast::register(module)?;
    call_site::register(module)?;
    overrides::register(module)?;
    table::register(module)?;
    module.add_class::<tensor::PyTensor>()?;
    Ok(())
}

/// Starts logging: `GT_VERBOSE=1` logs the client's actions, `GT_DEBUG_CLIENT=1` everything.
fn start_tracing() {
    let is_set = |name| std::env::var(name).is_ok_and(|value| !value.is_empty() && value != "0");
    let level = match (is_set("GT_DEBUG_CLIENT"), is_set("GT_VERBOSE")) {
        (true, _) => "gt_client=debug",
        (false, true) => "gt_client=info",
        (false, false) => return,
    };
    // A process that embeds this extension may have set a subscriber already, which is kept.
    let colours = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let _ = tracing_subscriber::fmt().with_env_filter(level).with_writer(std::io::stderr).with_ansi(colours).try_init();
}
