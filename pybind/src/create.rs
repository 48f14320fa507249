//! Functions that make tensors.

use crate::convert::sizes;
use crate::data;
use crate::device::{DeviceArg, MetaDevice};
use crate::dtype::DTypeArg;
use crate::error::OrRaise;
use crate::options::Options;
use crate::overrides;
use crate::session::current;
use crate::tensor::PyTensor;
use gt_client::{Scope, Tensor};
use gt_ops::{DType, Scalar, build};
use pyo3::exceptions::{PyTypeError, PyUserWarning};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use smallvec::smallvec;

fn finish(mut tensor: Tensor, requires_grad: bool) -> PyResult<PyTensor> {
    if requires_grad {
        drop(tensor.set_requires_grad(true).or_raise()?);
    }
    Ok(PyTensor::wrap(tensor))
}

#[pymethods]
impl PyTensor {
    /// Makes a tensor as PyTorch's legacy constructor does: zeros of the given sizes, or data in the default dtype.
    ///
    /// `_like`, in place of sizes and data, makes another object for the same tensor: `as_subclass` needs it, since a
    /// class that derives from this one can have a constructor of its own. `_detached` does so off the graph.
    #[new]
    #[pyo3(signature = (*args, device=None, _like=None, _detached=None))]
    fn new(
        args: &Bound<'_, PyTuple>,
        device: Option<DeviceArg>,
        _like: Option<&Bound<'_, PyTensor>>,
        _detached: Option<&Bound<'_, PyTensor>>,
    ) -> PyResult<PyTensor> {
        let py = args.py();
        if let Some(tensor) = _detached {
            return Ok(PyTensor::wrap(tensor.get().write(py, |t| t.alias(false))));
        }
        if let Some(tensor) = _like {
            return tensor.get().view_of(py, false, |_, tensor| Ok(tensor));
        }
        device.map_or(Ok(()), |device| device.check(py))?;
        let dtype = DType::default_float();
        if args.len() == 1 {
            let data = &args.get_item(0)?;
            let is_size = data.get_type().name()? == "Size" || data.extract::<i64>().is_ok();
            if let Ok(tensor) = data.cast::<PyTensor>()
                && tensor.get().read(py).meta().dtype == dtype
            {
                return Ok(PyTensor::wrap(tensor.get().write(py, |t| t.alias(false))));
            }
            if !is_size {
                return data::from_python(data, Some(dtype)).map(PyTensor::wrap);
            }
        }
        let sizes = if args.is_empty() { smallvec![0] } else { sizes(args)? };
        let shape = build::shape_of(&sizes).or_raise()?;
        let mut scope = Scope::new(&current(py)?);
        let outcome = build::full(&mut scope, shape, Scalar::Int(0), dtype);
        scope.finish(outcome, |s, v| s.tensor(v)).or_raise().map(PyTensor::wrap)
    }
}

/// A new tensor from numbers, nested sequences of numbers, a NumPy array or another library's tensor. Copies the data.
///
/// Args:
///     data: The elements.
///     dtype: The dtype. By default that of the data: bool, int64 for integers, the default dtype for floats.
///     device: A device that the daemon must have; the daemon decides where the tensor is.
///     requires_grad: Whether autograd records what is computed from it.
///
/// Example:
///     >>> gt.tensor([[1, 2], [3, 4]])
///     tensor([[1, 2],
///             [3, 4]])
///     >>> gt.tensor([1, 2], dtype=gt.float32)
///     tensor([1., 2.])
///     >>> gt.tensor(3.5).shape
///     gt.Size([])
#[pyfunction]
#[pyo3(signature = (data, dtype=None, **options))]
fn tensor<'py>(
    data: &Bound<'py, PyAny>,
    dtype: Option<&Bound<'py, PyAny>>,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = data.py();
    if overrides::has_modes() {
        let given = options.map_or_else(|| Ok(PyDict::new(py)), |options| options.copy())?;
        given.set_item("dtype", dtype)?;
        return overrides::call(py, ("gt.overrides", "dispatch"), "tensor", data, &given);
    }
    if data.is_instance_of::<PyTensor>() {
        let text = c"tensor() of a tensor is a copy without gradients: .detach().clone() says so";
        PyErr::warn(py, &py.get_type::<PyUserWarning>(), text, 1)?;
    }
    match made(data, dtype, options) {
        Err(error) if error.is_instance_of::<MetaDevice>(py) => {
            let given = options.map_or_else(|| Ok(PyDict::new(py)), |options| options.copy())?;
            given.set_item("dtype", dtype)?;
            overrides::call(py, ("gt._meta", "made"), "tensor", data, &given)
        }
        tensor => Ok(Bound::new(py, tensor?)?.into_any()),
    }
}

/// The tensor that `gt.tensor` makes.
fn made(
    data: &Bound<'_, PyAny>,
    dtype: Option<&Bound<'_, PyAny>>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<PyTensor> {
    let dtype = dtype.filter(|dtype| !dtype.is_none()).map(|dtype| dtype.extract::<DTypeArg>()).transpose()?;
    let options = Options::of("tensor", options)?;
    // The copy of another library's tensor is a leaf, as the copy of a tensor of GT's is.
    let detached = data::is_foreign(data) && data.hasattr("detach")?;
    let data = &if detached { data.call_method0("detach")? } else { data.clone() };
    finish(data::from_python(data, dtype.map(|d| d.0))?, options.requires_grad)
}

/// `data` as a tensor: the tensor itself if it is one of this dtype, otherwise a new one. That of a NumPy array of this
/// dtype shares its elements, as that of `gt.from_numpy` does.
///
/// Args:
///     data: A tensor, numbers, nested sequences of numbers or a NumPy array.
///     dtype: The dtype; that of the data if not given.
///     device: A device that the daemon must have; the daemon decides where the tensor is.
///
/// Example:
///     >>> x = gt.ones(2)
///     >>> gt.as_tensor(x) is x
///     True
///     >>> gt.as_tensor([1.0, 2.0])
///     tensor([1., 2.])
#[pyfunction]
#[pyo3(signature = (data, dtype=None, device=None))]
fn as_tensor<'py>(
    data: &Bound<'py, PyAny>,
    dtype: Option<DTypeArg>,
    device: Option<DeviceArg>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = data.py();
    device.map_or(Ok(()), |device| device.check(py))?;
    if let Ok(tensor) = data.cast::<PyTensor>()
        && dtype.as_ref().is_none_or(|d| d.0 == tensor.get().read(py).meta().dtype)
    {
        return Ok(data.clone());
    }
    let made = data::from_python_shared(data, dtype.map(|d| d.0))?;
    Ok(Bound::new(py, PyTensor::wrap(made))?.into_any())
}

/// A tensor of a NumPy array, in its dtype.
///
/// On a CPU, they share their elements: what is written to one shows in the other. On a GPU, and for an array that
/// cannot be written, the tensor is a copy. `gt.tensor(array)` always copies.
///
/// Args:
///     array: A NumPy array.
///     requires_grad: Whether autograd records what is computed from the tensor.
///
/// Raises:
///     TypeError: The argument is no array, or GT has no such dtype.
///
/// Example:
///     >>> import numpy as np
///     >>> gt.from_numpy(np.arange(3))
///     tensor([0, 1, 2])
#[pyfunction]
#[pyo3(signature = (array, *, requires_grad=false))]
fn from_numpy(array: &Bound<'_, PyAny>, requires_grad: bool) -> PyResult<PyTensor> {
    if !data::is_numpy(array) {
        return Err(PyTypeError::new_err(format!("expected np.ndarray (got {})", array.get_type().name()?)));
    }
    let mut tensor = data::share_array(array)?;
    // A new tensor has no node that would have to be dropped.
    let _ = tensor.set_requires_grad(requires_grad).or_raise()?;
    Ok(PyTensor::wrap(tensor))
}

/// A tensor with a copy of the elements of a NumPy array, in its dtype, whatever the default device is.
///
/// Args:
///     array: A NumPy array.
#[pyfunction]
fn copy_array(array: &Bound<'_, PyAny>) -> PyResult<PyTensor> {
    data::from_array(array).map(PyTensor::wrap)
}

/// Adds the functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    macro_rules! add {
        ($($name:ident)*) => { $(module.add_function(wrap_pyfunction!($name, module)?)?;)* };
    }
    add! { tensor as_tensor from_numpy copy_array }
    Ok(())
}
