//! `__torch_function__`: whether an operation's arguments, or a mode of the program, override it.
//!
//! Nothing is looked for until Python says that something in the process overrides operations: a class derived from
//! `Tensor`, or a mode. `gt.overrides` then makes the call.

use crate::data;
use crate::tensor::PyTensor;
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Whether anything in the process may override operations.
static ACTIVE: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Whether this thread ignores classes that override operations.
    static SUSPENDED: Cell<bool> = const { Cell::new(false) };
    /// The number of modes that this thread has entered.
    static MODES: Cell<usize> = const { Cell::new(0) };
}

/// The arguments of a call that classes and modes may override.
pub struct OverridableCall<'a, 'py> {
    /// The arguments given by position.
    pub positional: &'a [Borrowed<'a, 'py, PyAny>],
    /// The arguments given by name.
    pub named: &'a [Borrowed<'a, 'py, PyAny>],
    /// The names of these, if there are any.
    pub names: Option<Borrowed<'a, 'py, PyTuple>>,
}

/// Whether an object's class overrides operations.
fn overrides(object: &Bound<'_, PyAny>) -> bool {
    let py = object.py();
    if object.is_exact_instance_of::<PyTensor>()
        || object.is_exact_instance_of::<PyInt>()
        || object.is_exact_instance_of::<PyFloat>()
        || object.is_exact_instance_of::<PyBool>()
        || object.is_exact_instance_of::<PyString>()
        || object.is_none()
    {
        return false;
    }
    if object.is_instance_of::<PyTensor>() {
        // A class attribute, true for `Parameter` and the like.
        let plain = object.get_type().getattr(intern!(py, "_overrides_nothing"));
        return !plain.is_ok_and(|plain| plain.is_truthy().unwrap_or(false));
    }
    object.get_type().hasattr(intern!(py, "__torch_function__")).is_ok_and(|found| found) && !is_pytorchs_tensor(object)
}

/// Whether an object is a tensor of PyTorch itself. It overrides PyTorch's functions alone, and takes part in GT's as
/// an array does.
#[pyfunction]
fn is_pytorchs_tensor(object: &Bound<'_, PyAny>) -> bool {
    let class = || {
        let modules = object.py().import("sys")?.getattr("modules")?;
        modules.call_method1("get", ("torch",))?.getattr_opt("Tensor")
    };
    data::is_foreign(object)
        && class().is_ok_and(|class| class.is_some_and(|class| object.is_instance(&class).unwrap_or(false)))
}

/// Whether an argument, or an element of a list or tuple, overrides operations.
fn is_overriding(object: &Bound<'_, PyAny>) -> bool {
    if let Ok(list) = object.cast_exact::<PyList>() {
        return list.iter().any(|item| overrides(&item));
    }
    if let Ok(tuple) = object.cast_exact::<PyTuple>() {
        return tuple.iter().any(|item| overrides(&item));
    }
    overrides(object)
}

impl<'py> OverridableCall<'_, 'py> {
    /// Makes the call of `function` through those that override it; `None` if nobody does.
    ///
    /// # Errors
    /// Those of the override, and a `TypeError` if all decline.
    #[inline]
    pub fn dispatch(&self, function: &Bound<'py, PyAny>) -> PyResult<Option<Py<PyAny>>> {
        let modes = MODES.get() > 0;
        let all = || self.positional.iter().chain(self.named);
        if !modes && (SUSPENDED.get() || !all().any(|object| is_overriding(object))) {
            return Ok(None);
        }
        self.call(function, "gt.overrides", "dispatch").map(Some)
    }

    /// Calls the function `name` of a module of the package with `function` and these arguments.
    ///
    /// # Errors
    /// Those of the function.
    pub fn call(&self, function: &Bound<'py, PyAny>, module: &str, name: &str) -> PyResult<Py<PyAny>> {
        let py = function.py();
        let options = PyDict::new(py);
        if let Some(names) = &self.names {
            for (name, value) in names.iter().zip(self.named) {
                options.set_item(name, value)?;
            }
        }
        let positional = PyTuple::new(py, self.positional)?;
        py.import(module)?.getattr(name)?.call1((function, positional, options)).map(Bound::unbind)
    }

    /// Whether a `TypeError` of the call may come from an argument that is no tensor and overrides operations.
    pub fn explains(&self, error: &PyErr, py: Python<'py>) -> bool {
        error.is_instance_of::<PyTypeError>(py)
            && !SUSPENDED.get()
            && self.positional.iter().chain(self.named).any(|object| is_overriding(object))
    }
}

/// Whether a mode overrides this thread's operations.
pub fn has_modes() -> bool {
    active() && MODES.get() > 0
}

/// Makes the call of a method of a tensor with another one that overrides it; `None` if that does not.
///
/// # Errors
/// Those of the override.
pub fn of_method<'py>(
    this: &Bound<'py, PyTensor>,
    name: &str,
    other: &Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    if !active() || SUSPENDED.get() || !overrides(other) {
        return Ok(None);
    }
    let py = this.py();
    let method = py.get_type::<PyTensor>().getattr(name)?;
    let dispatch = py.import("gt.overrides")?.getattr("dispatch")?;
    dispatch.call1((method, (this, other), PyDict::new(py))).map(Some)
}

/// Calls the function `how` of a module of the package for the function `name` of `gt` and its arguments.
///
/// # Errors
/// Those of the function.
pub fn call<'py>(
    py: Python<'py>,
    (module, how): (&str, &str),
    name: &str,
    data: &Bound<'py, PyAny>,
    options: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyAny>> {
    let function = py.import("gt")?.getattr(name)?;
    py.import(module)?.getattr(how)?.call1((function, (data,), options))
}

/// Whether anything in the process may override operations: one load of a variable that rarely changes.
#[inline]
pub fn active() -> bool {
    ACTIVE.load(Relaxed)
}

/// Says that something in this process overrides operations from now on.
#[pyfunction]
fn activate_overrides() {
    ACTIVE.store(true, Relaxed);
}

/// Sets whether this thread ignores classes that override operations; returns the former setting.
#[pyfunction]
fn suspend_overrides(on: bool) -> bool {
    SUSPENDED.replace(on)
}

/// Sets the number of modes that override this thread's operations.
#[pyfunction]
fn set_override_modes(count: usize) {
    if count > 0 {
        activate_overrides();
    }
    MODES.set(count);
}

/// Adds the functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(activate_overrides, module)?)?;
    module.add_function(wrap_pyfunction!(is_pytorchs_tensor, module)?)?;
    module.add_function(wrap_pyfunction!(suspend_overrides, module)?)?;
    module.add_function(wrap_pyfunction!(set_override_modes, module)?)
}
