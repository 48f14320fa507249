//! The keyword arguments that all creation functions share.

use crate::device::DeviceArg;
use crate::dtype::DTypeArg;
use crate::random::PyGenerator;
use crate::tensor::PyTensor;
use gt_client::Tensor;
use gt_client::random::Generator;
use gt_client::strides::Strides;
use gt_ops::{DType, RANK_MAX, Shape};
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use std::sync::Arc;

/// The keyword arguments of a creation function.
#[derive(Default)]
pub struct Options {
    /// The requested dtype.
    pub dtype: Option<DType>,
    /// Whether the result is a leaf of the tape.
    pub requires_grad: bool,
    /// The generator of random numbers; the default one if not given.
    pub generator: Option<Arc<Generator>>,
    /// The function's name and its `out=`: the tensor to write to, whose dtype is `dtype`.
    pub out: Option<(String, Py<PyTensor>)>,
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
                "dtype" => options.dtype = Some(value.extract::<DTypeArg>()?.0),
                "requires_grad" => options.requires_grad = value.is_truthy()?,
                "device" => value.extract::<DeviceArg>()?.check(value.py())?,
                "generator" if function.starts_with("rand") => {
                    options.generator = Some(value.cast::<PyGenerator>()?.get().0.clone());
                }
                "layout" => one_of(&value, "layout", &["gt.strided"])?,
                // A memory format changes strides alone, of which the daemon knows nothing.
                "memory_format" if function.ends_with("_like") => drop(value.extract::<MemoryFormat>()?),
                // Transfers use memory that is shared with the daemon in any case.
                "pin_memory" => drop(value.is_truthy()?),
                "out" if !function.ends_with("_like") && function != "tensor" => {
                    options.out = Some((function.to_owned(), value.cast::<PyTensor>()?.clone().unbind()));
                }
                _ => {
                    return Err(PyTypeError::new_err(format!(
                        "{function}() got an unexpected keyword argument '{key}'"
                    )));
                }
            }
        }
        if let (Some((_, out)), Some(kwargs)) = (&options.out, kwargs) {
            let dtype = out.get().read(kwargs.py()).meta().dtype;
            if options.dtype.is_some_and(|wanted| wanted != dtype) {
                return Err(PyRuntimeError::new_err(format!(
                    "{function}(): the dtype asked for is not that of `out`, {dtype}"
                )));
            }
            options.dtype = Some(dtype);
        }
        Ok(options)
    }

    /// The requested dtype, or the default one.
    pub fn float(&self) -> DType {
        self.dtype.unwrap_or_else(DType::default_float)
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
        Ok(match value.repr()?.to_str()? {
            "gt.preserve_format" => MemoryFormat::Preserve,
            "gt.contiguous_format" => MemoryFormat::Contiguous,
            "gt.channels_last" => MemoryFormat::ChannelsLast(4),
            "gt.channels_last_3d" => MemoryFormat::ChannelsLast(5),
            other => {
                return Err(PyTypeError::new_err(format!(
                    "memory_format must be one of gt.preserve_format, gt.contiguous_format, gt.channels_last, \
                     gt.channels_last_3d, but got {other}"
                )));
            }
        })
    }
}

fn one_of(value: &Bound<'_, PyAny>, what: &str, known: &[&str]) -> PyResult<()> {
    if known.contains(&value.repr()?.to_str()?) {
        return Ok(());
    }
    Err(PyTypeError::new_err(format!("{what} must be one of {}, but got {value}", known.join(", "))))
}
