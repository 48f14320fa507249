//! Functions that make tensors.

use crate::convert::{Ints, ints, number, sizes};
use crate::data;
use crate::device::DeviceArg;
use crate::dtype::DTypeArg;
use crate::error::OrRaise;
use crate::options::Options;
use crate::session::current;
use crate::tensor::PyTensor;
use gt_client::{Scope, Tensor};
use gt_ops::error::Result as OpResult;
use gt_ops::{Arg, DType, Graph, Op, Scalar, Val, build};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};
use smallvec::smallvec;

/// A new tensor that `build` makes without operands.
fn fresh(py: Python<'_>, options: &Options, build: impl FnOnce(&mut dyn Graph) -> OpResult<Val>) -> PyResult<PyTensor> {
    let mut scope = Scope::new(&current(py)?);
    if let Some(generator) = &options.generator {
        scope.draw_from(generator.clone());
    }
    let outcome = build(&mut scope);
    finish(scope.finish(outcome, |s, v| s.tensor(v)).or_raise()?, options.requires_grad)
}

/// A new tensor that `build` makes, or the tensor of `out=`, to which its elements are written.
fn make(
    py: Python<'_>,
    options: Options,
    build: impl FnOnce(&mut dyn Graph) -> OpResult<Val>,
) -> PyResult<Py<PyTensor>> {
    static WRITE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let made = Py::new(py, fresh(py, &options, build)?)?;
    let Some((function, out)) = options.out else { return Ok(made) };
    Ok(WRITE.import(py, "gt._forms", "write")?.call1((function, out, made))?.cast_into()?.unbind())
}

fn finish(mut tensor: Tensor, requires_grad: bool) -> PyResult<PyTensor> {
    if requires_grad {
        drop(tensor.set_requires_grad(true).or_raise()?);
    }
    Ok(PyTensor::wrap(tensor))
}

fn scalar(object: &Bound<'_, PyAny>, what: &str) -> PyResult<Scalar> {
    match number(object)? {
        Some(scalar) => Ok(scalar),
        // A tensor of one element or a NumPy scalar stands for its number.
        None if object.hasattr("item")? => number(&object.call_method0("item")?)?
            .ok_or_else(|| PyTypeError::new_err(format!("{what} must be a number"))),
        None => Err(PyTypeError::new_err(format!("{what} must be a number, not {}", object.get_type().name()?))),
    }
}

/// Sizes passed as arguments, or as `size=`.
fn size_args(args: &Bound<'_, PyTuple>, size: Option<&Bound<'_, PyAny>>) -> PyResult<Ints> {
    match size {
        Some(size) if args.is_empty() => ints(size),
        Some(_) => Err(PyTypeError::new_err("the size was given twice")),
        None => sizes(args),
    }
}

#[pymethods]
impl PyTensor {
    /// Makes a tensor as PyTorch's legacy constructor does: zeros of the given sizes, or data in the default dtype.
    #[new]
    #[pyo3(signature = (*args, device=None))]
    fn new(args: &Bound<'_, PyTuple>, device: Option<DeviceArg>) -> PyResult<PyTensor> {
        let py = args.py();
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
        fresh(py, &Options::default(), |g| build::full(g, shape, Scalar::Int(0), dtype))
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
fn tensor(data: &Bound<'_, PyAny>, dtype: Option<DTypeArg>, options: Option<&Bound<'_, PyDict>>) -> PyResult<PyTensor> {
    let options = Options::of("tensor", options)?;
    // The copy of another library's tensor is a leaf, as the copy of a tensor of GT's is.
    let detached = data::is_foreign(data) && data.hasattr("detach")?;
    let data = &if detached { data.call_method0("detach")? } else { data.clone() };
    finish(data::from_python(data, dtype.map(|d| d.0))?, options.requires_grad)
}

/// `data` as a tensor: the tensor itself if it is one of this dtype, otherwise a new one.
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
    Ok(Bound::new(py, PyTensor::wrap(data::from_python(data, dtype.map(|d| d.0))?))?.into_any())
}

/// A tensor with a copy of the elements of a NumPy array, in its dtype.
///
/// Later changes to the array do not show in the tensor, nor the other way round.
///
/// Raises:
///     TypeError: The argument is no array, or GT has no such dtype.
///
/// Example:
///     >>> import numpy as np
///     >>> gt.from_numpy(np.arange(3))
///     tensor([0, 1, 2])
#[pyfunction]
fn from_numpy(array: &Bound<'_, PyAny>) -> PyResult<PyTensor> {
    if !data::is_numpy(array) {
        return Err(PyTypeError::new_err(format!("expected np.ndarray (got {})", array.get_type().name()?)));
    }
    data::from_array(array).map(PyTensor::wrap)
}

macro_rules! constants {
    ($($name:ident $like:ident $value:literal $doc:literal $like_doc:literal;)*) => {
        $(
            #[doc = $doc]
            #[pyfunction]
            #[pyo3(signature = (*args, size=None, **options))]
            fn $name(
                py: Python<'_>,
                args: &Bound<'_, PyTuple>,
                size: Option<&Bound<'_, PyAny>>,
                options: Option<&Bound<'_, PyDict>>,
            ) -> PyResult<Py<PyTensor>> {
                let shape = build::shape_of(&size_args(args, size)?).or_raise()?;
                let options = Options::of(stringify!($name), options)?;
                let dtype = options.float();
                make(py, options, |g| build::full(g, shape, Scalar::Int($value), dtype))
            }
            #[doc = $like_doc]
            #[pyfunction]
            #[pyo3(signature = (input, **options))]
            fn $like(
                py: Python<'_>,
                input: &Bound<'_, PyTensor>,
                options: Option<&Bound<'_, PyDict>>,
            ) -> PyResult<Py<PyTensor>> {
                let options = Options::of(stringify!($like), options)?;
                let meta = build::like(input.get().read(py).meta(), options.dtype);
                make(py, options, |g| build::full(g, meta.shape, Scalar::Int($value), meta.dtype))
            }
        )*
    };
}

constants! {
    zeros zeros_like 0
        "A tensor filled with zeros.

Args:
    args: The sizes, as arguments or as one sequence.
    dtype: The dtype; the default dtype if not given.
    device: A device, which has to exist; the daemon decides where the tensor lies.
    requires_grad: Whether autograd records what is computed from it.

Example:
    >>> gt.zeros(2, 3)
    tensor([[0., 0., 0.],
            [0., 0., 0.]])"
        "A tensor filled with zeros, with the shape and, unless given, the dtype of another.

Args:
    input: The tensor whose shape is taken.
    dtype: The dtype; that of the input if not given.
    device: A device, which has to exist; the daemon decides where the tensor lies.
    requires_grad: Whether autograd records what is computed from it.

Example:
    >>> gt.zeros_like(gt.tensor([[1, 2], [3, 4]]))
    tensor([[0, 0],
            [0, 0]])";
    ones ones_like 1
        "A tensor filled with ones.

Args:
    args: The sizes, as arguments or as one sequence.
    dtype: The dtype; the default dtype if not given.
    device: A device, which has to exist; the daemon decides where the tensor lies.
    requires_grad: Whether autograd records what is computed from it.

Example:
    >>> gt.ones(2, dtype=gt.int64)
    tensor([1, 1])"
        "A tensor filled with ones, with the shape and, unless given, the dtype of another.

Args:
    input: The tensor whose shape is taken.
    dtype: The dtype; that of the input if not given.
    device: A device, which has to exist; the daemon decides where the tensor lies.
    requires_grad: Whether autograd records what is computed from it.

Example:
    >>> gt.ones_like(gt.tensor([1, 2]), dtype=gt.float32)
    tensor([1., 1.])";
    empty empty_like 0
        "A tensor to be written to later. It holds zeros: memory is never shown uncleared.

Args:
    args: The sizes, as arguments or as one sequence.
    dtype: The dtype; the default dtype if not given.
    device: A device, which has to exist; the daemon decides where the tensor lies.
    requires_grad: Whether autograd records what is computed from it.

Example:
    >>> gt.empty(2, 3).shape
    gt.Size([2, 3])"
        "A tensor to be written to later, with the shape and, unless given, the dtype of another. It holds zeros.

Args:
    input: The tensor whose shape is taken.
    dtype: The dtype; that of the input if not given.
    device: A device, which has to exist; the daemon decides where the tensor lies.
    requires_grad: Whether autograd records what is computed from it.

Example:
    >>> gt.empty_like(gt.tensor([1, 2])).shape
    gt.Size([2])";
}

/// A tensor filled with one number.
///
/// Args:
///     size: The shape, a sequence.
///     fill_value: The number.
///     dtype: The dtype; that of the number if not given.
///     device: A device that the daemon must have; the daemon decides where the tensor is.
///     requires_grad: Whether autograd records what is computed from it.
///
/// Example:
///     >>> gt.full((2, 2), 7)
///     tensor([[7, 7],
///             [7, 7]])
#[pyfunction]
#[pyo3(signature = (size, fill_value, **options))]
fn full(
    py: Python<'_>,
    size: &Bound<'_, PyAny>,
    fill_value: &Bound<'_, PyAny>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<Py<PyTensor>> {
    let value = scalar(fill_value, "fill_value")?;
    let shape = build::shape_of(&ints(size)?).or_raise()?;
    let options = Options::of("full", options)?;
    let dtype = options.dtype.unwrap_or(value.natural_dtype());
    make(py, options, |g| build::full(g, shape, value, dtype))
}

/// A tensor filled with one number, with the shape and, unless given, the dtype of another.
///
/// Example:
///     >>> gt.full_like(gt.zeros(3), 2)
///     tensor([2., 2., 2.])
#[pyfunction]
#[pyo3(signature = (input, fill_value, **options))]
fn full_like(
    py: Python<'_>,
    input: &Bound<'_, PyTensor>,
    fill_value: &Bound<'_, PyAny>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<Py<PyTensor>> {
    let value = scalar(fill_value, "fill_value")?;
    let options = Options::of("full_like", options)?;
    let meta = build::like(input.get().read(py).meta(), options.dtype);
    make(py, options, |g| build::full(g, meta.shape, value, meta.dtype))
}

/// Evenly spaced numbers of a half-open interval: `arange(end)`, `arange(start, end)` or `arange(start, end, step)`.
///
/// Args:
///     start: The first number, 0 if not given.
///     end: The end of the interval, which is not included.
///     step: The distance between neighbours, 1 if not given.
///     dtype: The dtype; int64 if all three are integers, otherwise the default dtype.
///
/// Returns:
///     A vector of ceil((end - start) / step) elements.
///
/// Example:
///     >>> gt.arange(5)
///     tensor([0, 1, 2, 3, 4])
///     >>> gt.arange(1, 2, 0.25)
///     tensor([1.0000, 1.2500, 1.5000, 1.7500])
#[pyfunction]
#[pyo3(signature = (*args, start=None, end=None, step=None, **options))]
fn arange(
    py: Python<'_>,
    args: &Bound<'_, PyTuple>,
    start: Option<Bound<'_, PyAny>>,
    end: Option<Bound<'_, PyAny>>,
    step: Option<Bound<'_, PyAny>>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<Py<PyTensor>> {
    let get = |i: usize| args.get_item(i).ok();
    let (first, last, stride) = match args.len() {
        0 => (start, end, step),
        1 if end.is_none() => (start, get(0), step),
        1 => (get(0), end, step),
        2 => (get(0), get(1), step),
        3 => (get(0), get(1), get(2)),
        n => return Err(PyTypeError::new_err(format!("arange() takes at most 3 numbers, but {n} were given"))),
    };
    let Some(last) = last else { return Err(PyTypeError::new_err("arange() missing the argument 'end'")) };
    let last = scalar(&last, "end")?;
    let first = first.map_or(Ok(Scalar::Int(0)), |s| scalar(&s, "start"))?;
    let stride = stride.map_or(Ok(Scalar::Int(1)), |s| scalar(&s, "step"))?;
    let options = Options::of("arange", options)?;
    let dtype = options.dtype;
    make(py, options, |g| build::arange(g, first, last, stride, dtype))
}

/// `steps` evenly spaced numbers from `start` to `end`, both included.
///
/// Args:
///     start: The first number.
///     end: The last.
///     steps: The number of elements.
///     dtype: The dtype; the default dtype if not given.
///
/// Example:
///     >>> gt.linspace(0, 1, 5)
///     tensor([0.0000, 0.2500, 0.5000, 0.7500, 1.0000])
#[pyfunction]
#[pyo3(signature = (start, end, steps, **options))]
fn linspace(
    py: Python<'_>,
    start: f64,
    end: f64,
    steps: i64,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<Py<PyTensor>> {
    let options = Options::of("linspace", options)?;
    let dtype = options.float();
    make(py, options, |g| build::linspace(g, start, end, steps, dtype))
}

/// A matrix with ones on the diagonal and zeros elsewhere.
///
/// Args:
///     n: The number of rows.
///     m: The number of columns; `n` if not given.
///     dtype: The dtype; the default dtype if not given.
///
/// Example:
///     >>> gt.eye(2, 3)
///     tensor([[1., 0., 0.],
///             [0., 1., 0.]])
#[pyfunction]
#[pyo3(signature = (n, m=None, **options))]
fn eye(py: Python<'_>, n: i64, m: Option<i64>, options: Option<&Bound<'_, PyDict>>) -> PyResult<Py<PyTensor>> {
    let options = Options::of("eye", options)?;
    let dtype = options.float();
    make(py, options, |g| build::eye(g, n, m.unwrap_or(n), dtype))
}

macro_rules! randoms {
    ($($name:ident $like:ident $op:ident $doc:literal $like_doc:literal;)*) => {
        $(
            #[doc = $doc]
            #[pyfunction]
            #[pyo3(signature = (*args, size=None, **options))]
            fn $name(
                py: Python<'_>,
                args: &Bound<'_, PyTuple>,
                size: Option<&Bound<'_, PyAny>>,
                options: Option<&Bound<'_, PyDict>>,
            ) -> PyResult<Py<PyTensor>> {
                let shape = build::shape_of(&size_args(args, size)?).or_raise()?;
                let options = Options::of(stringify!($name), options)?;
                let dtype = options.float();
                make(py, options, |g| build::random(g, Op::$op, &[], shape, dtype))
            }
            #[doc = $like_doc]
            #[pyfunction]
            #[pyo3(signature = (input, **options))]
            fn $like(
                py: Python<'_>,
                input: &Bound<'_, PyTensor>,
                options: Option<&Bound<'_, PyDict>>,
            ) -> PyResult<Py<PyTensor>> {
                let options = Options::of(stringify!($like), options)?;
                let meta = build::like(input.get().read(py).meta(), options.dtype);
                make(py, options, |g| build::random(g, Op::$op, &[], meta.shape, meta.dtype))
            }
        )*
    };
}

randoms! {
    rand rand_like Rand
        "Random numbers, uniform over [0, 1).

Args:
    args: The sizes, as arguments or as one sequence.
    dtype: The dtype; the default dtype if not given.
    device: A device, which has to exist; the daemon decides where the tensor lies.
    generator: The generator to draw from; the default one if not given.
    requires_grad: Whether autograd records what is computed from it.

Example:
    >>> x = gt.rand(100, 2)
    >>> bool(((0 <= x) & (x < 1)).all())
    True"
        "Random numbers, uniform over [0, 1), with the shape and, unless given, the dtype of another tensor.

Args:
    input: The tensor whose shape is taken.
    dtype: The dtype; that of the input if not given.
    device: A device, which has to exist; the daemon decides where the tensor lies.
    requires_grad: Whether autograd records what is computed from it.

Example:
    >>> gt.rand_like(gt.zeros(2, 3)).shape
    gt.Size([2, 3])";
    randn randn_like Randn
        "Random numbers from the normal distribution with mean 0 and variance 1.

Args:
    args: The sizes, as arguments or as one sequence.
    dtype: The dtype; the default dtype if not given.
    device: A device, which has to exist; the daemon decides where the tensor lies.
    generator: The generator to draw from; the default one if not given.
    requires_grad: Whether autograd records what is computed from it.

Example:
    >>> gt.randn(2, 3).shape
    gt.Size([2, 3])"
        "Random numbers of the standard normal distribution, with the shape and, unless given, the dtype of another.

Args:
    input: The tensor whose shape is taken.
    dtype: The dtype; that of the input if not given.
    device: A device, which has to exist; the daemon decides where the tensor lies.
    requires_grad: Whether autograd records what is computed from it.

Example:
    >>> x = gt.zeros(2, 3)
    >>> noisy = x + 0.1 * gt.randn_like(x)
    >>> noisy.shape
    gt.Size([2, 3])";
}

/// Random integers, uniform over `low <= x < high`: `randint(high, size)` or `randint(low, high, size)`.
///
/// Args:
///     low: The smallest number, 0 if not given.
///     high: The upper bound, which is not included.
///     size: The shape, a sequence.
///     dtype: The dtype, int64 if not given.
///     generator: The generator to draw from; the default one if not given.
///
/// Example:
///     >>> x = gt.randint(10, (1000,))
///     >>> x.min().item(), x.max().item()
///     (0, 9)
#[pyfunction]
#[pyo3(signature = (*args, low=None, high=None, size=None, **options))]
fn randint(
    py: Python<'_>,
    args: &Bound<'_, PyTuple>,
    low: Option<i64>,
    high: Option<i64>,
    size: Option<Bound<'_, PyAny>>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<Py<PyTensor>> {
    let mut numbers = [low, high].into_iter().flatten().collect::<Vec<_>>();
    let mut size = size;
    for arg in args.iter() {
        match arg.extract::<i64>() {
            Ok(n) if size.is_none() && numbers.len() < 2 => numbers.push(n),
            _ if size.is_none() => size = Some(arg),
            _ => return Err(PyTypeError::new_err("randint() takes low, high and a size")),
        }
    }
    let Some(size) = size else { return Err(PyTypeError::new_err("randint() missing the argument 'size'")) };
    let (low, high) = match numbers[..] {
        [high] => (0, high),
        [low, high] => (low, high),
        _ => return Err(PyTypeError::new_err("randint() missing the argument 'high'")),
    };
    let shape = build::shape_of(&ints(&size)?).or_raise()?;
    let options = Options::of("randint", options)?;
    let dtype = options.dtype.unwrap_or(DType::I64);
    make(py, options, |g| build::random(g, Op::Randint, &[Arg::from(low), Arg::from(high)], shape, dtype))
}

/// Adds the functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    macro_rules! add {
        ($($name:ident)*) => { $(module.add_function(wrap_pyfunction!($name, module)?)?;)* };
    }
    add! {
        tensor as_tensor from_numpy zeros zeros_like ones ones_like empty empty_like full full_like arange linspace eye
        rand rand_like randn randn_like randint
    }
    Ok(())
}
