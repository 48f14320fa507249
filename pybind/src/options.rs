//! Keyword arguments of creation functions, and memory formats.

use crate::device::DeviceArg;
use gt_client::Tensor;
use gt_client::strides::Strides;
use gt_ops::{RANK_MAX, Shape};
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

/// The keyword arguments of `gt.tensor`.
#[derive(Default)]
pub struct Options {
    /// Whether the result is a leaf of the tape.
    pub requires_grad: bool,
}

impl Options {
    /// Parses the keyword arguments of `function`.
    ///
    /// # Errors
    /// An unknown argument, or a device that the daemon does not have.
    pub fn of(function: &str, kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<Options> {
        let mut options = Options::default();
        for (key, value) in kwargs.into_iter().flatten() {
            let key = key.cast::<PyString>()?.to_str()?;
            if value.is_none() && key != "requires_grad" {
                continue;
            }
            match key {
                "requires_grad" => options.requires_grad = value.is_truthy()?,
                "device" => value.extract::<DeviceArg>()?.check(value.py())?,
                "layout" => one_of(&value, "layout", &["strided"])?,
                // Transfers use memory that is shared with the daemon in any case.
                "pin_memory" => drop(value.is_truthy()?),
                _ => {
                    return Err(PyTypeError::new_err(format!(
                        "{function}() got an unexpected keyword argument '{key}'"
                    )));
                }
            }
        }
        Ok(options)
    }
}

/// A `gt.memory_format`: the order of elements in memory that PyTorch would have. It decides when an operation copies
/// and what `stride()` returns; the daemon does not know it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum MemoryFormat {
    /// The order that the tensor has.
    Preserve,
    /// Row-major order.
    Contiguous,
    /// The channels, axis 1, are innermost. The tensor has this many axes.
    ChannelsLast(usize),
}

impl MemoryFormat {
    /// The strides of a dense tensor in this order; `None` for row-major order.
    ///
    /// # Errors
    /// The shape has another number of axes than the format.
    pub fn strides(self, shape: &Shape) -> PyResult<Option<Strides>> {
        let MemoryFormat::ChannelsLast(rank) = self else { return Ok(None) };
        if shape.rank() != rank {
            let name = if rank == 4 { "channels_last" } else { "channels_last_3d" };
            return Err(PyRuntimeError::new_err(format!("required rank {rank} tensor to use {name} format")));
        }
        let (mut strides, mut stride) = ([0; RANK_MAX], 1);
        for axis in [1].into_iter().chain((2..rank).rev()).chain([0]) {
            strides[axis] = stride;
            stride *= shape.dims()[axis] as isize;
        }
        Ok(Some(strides))
    }

    /// Whether a tensor has its elements in this order.
    ///
    /// # Errors
    /// As [`MemoryFormat::strides`].
    pub fn holds(self, tensor: &Tensor) -> PyResult<bool> {
        let shape = tensor.meta().shape;
        let own = tensor.strides();
        Ok(match self.strides(&shape)? {
            None => self == MemoryFormat::Preserve || tensor.is_contiguous(),
            Some(strides) => {
                shape.dims().iter().enumerate().all(|(axis, size)| *size == 1 || own[axis] == strides[axis])
            }
        })
    }
}

impl<'py> FromPyObject<'_, 'py> for MemoryFormat {
    type Error = PyErr;
    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<MemoryFormat> {
        Ok(match word(&value)?.as_str() {
            "preserve_format" => MemoryFormat::Preserve,
            "contiguous_format" => MemoryFormat::Contiguous,
            "channels_last" => MemoryFormat::ChannelsLast(4),
            "channels_last_3d" => MemoryFormat::ChannelsLast(5),
            other => {
                return Err(PyTypeError::new_err(format!(
                    "memory_format must be one of gt.preserve_format, gt.contiguous_format, gt.channels_last, \
                     gt.channels_last_3d, but got {other}"
                )));
            }
        })
    }
}

/// Checks that an argument is one of these, by their names.
///
/// # Errors
/// Another one.
pub fn one_of(value: &Bound<'_, PyAny>, what: &str, known: &[&str]) -> PyResult<()> {
    if known.contains(&word(value)?.as_str()) {
        return Ok(());
    }
    Err(PyTypeError::new_err(format!("{what} must be one of gt.{}, but got {value}", known.join(", gt."))))
}

/// How an object such as `gt.strided` is printed, without the package.
fn word(value: &Bound<'_, PyAny>) -> PyResult<String> {
    let text = value.repr()?;
    let text = text.to_str()?;
    Ok(text.strip_prefix("torch.").or_else(|| text.strip_prefix("gt.")).unwrap_or(text).to_owned())
}
