//! Conversion of errors to the exceptions that PyTorch raises.

use crate::gil;
use gt_client::ClientError;
use gt_ops::{ErrorKind, OpError};
use pyo3::create_exception;
use pyo3::exceptions::{
    PyAssertionError, PyIndexError, PyNotImplementedError, PyRuntimeError, PyTypeError, PyValueError,
};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

create_exception!(gt, OutOfMemoryError, PyRuntimeError, "A tensor, or the copy of one, did not fit.");
create_exception!(
    gt,
    NotBatchedError,
    PyRuntimeError,
    "An operation cannot be computed of a whole batch within `vmap`."
);
create_exception!(gt, DisconnectedError, PyRuntimeError, "The daemon is gone, or has closed the session.");

/// Adds the exception classes to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("OutOfMemoryError", module.py().get_type::<OutOfMemoryError>())?;
    module.add("NotBatchedError", module.py().get_type::<NotBatchedError>())?;
    module.add("DisconnectedError", module.py().get_type::<DisconnectedError>())
}

/// The exception for an error of the session.
pub fn raise(error: ClientError) -> PyErr {
    let text = error.to_string();
    match &error {
        ClientError::Interrupted => gil::take_interrupt(),
        ClientError::Disconnected(_) | ClientError::Launch(_) => DisconnectedError::new_err(text),
        _ if error.is_out_of_memory() => OutOfMemoryError::new_err(text),
        _ => match error.kind().unwrap_or(ErrorKind::Runtime) {
            ErrorKind::Index => out_of_range(text),
            kind => of_kind(kind, text),
        },
    }
}

/// The exception for an index that execution found out of range: an `IndexError` and a `RuntimeError` at once, since
/// PyTorch's ops raise one or the other.
fn out_of_range(text: String) -> PyErr {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    of_python(&CLASS, "gt._types", "OutOfRangeError", text)
}

/// The exception for an error of a shape or dtype rule.
pub fn raise_op(error: OpError) -> PyErr {
    of_kind(error.kind, error.message.into_string())
}

fn of_kind(kind: ErrorKind, text: String) -> PyErr {
    match kind {
        ErrorKind::Runtime => PyRuntimeError::new_err(text),
        ErrorKind::Index => PyIndexError::new_err(text),
        ErrorKind::Type => PyTypeError::new_err(text),
        ErrorKind::Value => PyValueError::new_err(text),
        ErrorKind::Assertion => PyAssertionError::new_err(text),
        ErrorKind::NotImplemented => PyNotImplementedError::new_err(text),
        ErrorKind::NotBatched => NotBatchedError::new_err(text),
        ErrorKind::LinAlg => {
            static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
            of_python(&CLASS, "gt.linalg", "LinAlgError", text)
        }
    }
}

/// An exception whose class is defined in Python.
fn of_python(class: &PyOnceLock<Py<PyType>>, module: &str, name: &str, text: String) -> PyErr {
    Python::attach(|py| match class.import(py, module, name) {
        Ok(class) => PyErr::from_type(class.clone(), text),
        Err(error) => error,
    })
}

/// Conversion of errors to exceptions, so that `?` can be used.
pub trait OrRaise<T> {
    /// The value, or the error as an exception.
    fn or_raise(self) -> PyResult<T>;
}
impl<T> OrRaise<T> for gt_client::Result<T> {
    fn or_raise(self) -> PyResult<T> {
        self.map_err(raise)
    }
}
impl<T> OrRaise<T> for gt_ops::error::Result<T> {
    fn or_raise(self) -> PyResult<T> {
        self.map_err(raise_op)
    }
}
