//! The keyword arguments that all functions which make tensors share.

use crate::device::DeviceArg;
use crate::dtype::DTypeArg;
use crate::random::PyGenerator;
use gt_client::random::Generator;
use gt_ops::DType;
use pyo3::exceptions::{PyNotImplementedError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::Arc;

/// What they say.
#[derive(Default)]
pub struct Options {
    /// The dtype, if one was asked for.
    pub dtype: Option<DType>,
    /// Whether the result is a leaf of the tape.
    pub requires_grad: bool,
    /// What draws the numbers.
    pub generator: Option<Arc<Generator>>,
}

impl Options {
    /// What `kwargs` say to `function`.
    ///
    /// # Errors
    /// An argument that is not one of these, or a device that is not there.
    pub fn of(function: &str, kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<Options> {
        let mut options = Options::default();
        for (key, value) in kwargs.into_iter().flatten() {
            let key = key.extract::<String>()?;
            if value.is_none() && key != "requires_grad" {
                continue;
            }
            match key.as_str() {
                "dtype" => options.dtype = Some(value.extract::<DTypeArg>()?.0),
                "requires_grad" => options.requires_grad = value.is_truthy()?,
                "device" => value.extract::<DeviceArg>()?.check()?,
                "generator" if function.starts_with("rand") => {
                    options.generator = Some(value.cast::<PyGenerator>()?.get().0.clone());
                }
                "layout" => one_of(&value, "layout", &["gt.strided"])?,
                // Strides are not the daemon's business: every layout in memory holds the same elements.
                "memory_format" if function.ends_with("_like") => memory_format(&value)?,
                // Transfers go through memory shared with the daemon in any case.
                "pin_memory" => drop(value.is_truthy()?),
                "out" => {
                    return Err(PyNotImplementedError::new_err(format!(
                        "{function}(out=…) is not there: use the result, or copy_() it"
                    )));
                }
                _ => {
                    return Err(PyTypeError::new_err(format!(
                        "{function}() got an unexpected keyword argument '{key}'"
                    )));
                }
            }
        }
        Ok(options)
    }

    /// The dtype asked for, or the default.
    pub fn float(&self) -> DType {
        self.dtype.unwrap_or_else(DType::default_float)
    }
}

/// Whether `value` is a `gt.memory_format`, which changes nothing here.
pub fn memory_format(value: &Bound<'_, PyAny>) -> PyResult<()> {
    let known = ["gt.preserve_format", "gt.contiguous_format", "gt.channels_last", "gt.channels_last_3d"];
    one_of(value, "memory_format", &known)
}

fn one_of(value: &Bound<'_, PyAny>, what: &str, known: &[&str]) -> PyResult<()> {
    if known.contains(&value.repr()?.to_str()?) {
        return Ok(());
    }
    Err(PyTypeError::new_err(format!("{what} must be one of {}, but got {value}", known.join(", "))))
}
