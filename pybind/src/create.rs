//! Functions that make tensors.

use crate::convert::{ints, number, sizes};
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

/// A new tensor from a builder without operands.
fn fresh(py: Python<'_>, options: &Options, build: impl FnOnce(&mut dyn Graph) -> OpResult<Val>) -> PyResult<PyTensor> {
    let mut scope = Scope::new(&current(py)?);
    if let Some(generator) = &options.generator {
        scope.draw_from(generator.clone());
    }
    let outcome = build(&mut scope);
    finish(scope.finish(outcome, |s, v| s.tensor(v)).or_raise()?, options.requires_grad)
}

/// A new tensor from a builder, or `out=` with its elements.
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
        // Tensors and NumPy scalars of one element.
        None if object.hasattr("item")? => number(&object.call_method0("item")?)?
            .ok_or_else(|| PyTypeError::new_err(format!("{what} must be a number"))),
        None => Err(PyTypeError::new_err(format!("{what} must be a number, not {}", object.get_type().name()?))),
    }
}

/// Sizes as arguments, or as `size=`.
fn size_args(args: &Bound<'_, PyTuple>, size: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<i64>> {
    match size {
        Some(size) if args.is_empty() => ints(size),
        Some(_) => Err(PyTypeError::new_err("the size was given twice")),
        None => sizes(args),
    }
}

#[pymethods]
impl PyTensor {
    /// PyTorch's oldest constructor: sizes, or data that become the default dtype.
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
        let sizes = if args.is_empty() { vec![0] } else { sizes(args)? };
        let shape = build::shape_of(&sizes).or_raise()?;
        fresh(py, &Options::default(), |g| build::full(g, shape, Scalar::Int(0), dtype))
    }
}

/// A tensor from numbers, nested sequences of them, or an array.
#[pyfunction]
#[pyo3(signature = (data, dtype=None, **options))]
fn tensor(data: &Bound<'_, PyAny>, dtype: Option<DTypeArg>, options: Option<&Bound<'_, PyDict>>) -> PyResult<PyTensor> {
    let options = Options::of("tensor", options)?;
    // A copy of another library's tensor starts anew, as one of a tensor of GT's does.
    let detached = data::is_foreign(data) && data.hasattr("detach")?;
    let data = &if detached { data.call_method0("detach")? } else { data.clone() };
    finish(data::from_python(data, dtype.map(|d| d.0))?, options.requires_grad)
}

/// The tensor itself, or one made from numbers or an array.
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

/// A tensor with the elements of a NumPy array, copied.
#[pyfunction]
fn from_numpy(array: &Bound<'_, PyAny>) -> PyResult<PyTensor> {
    if !data::is_numpy(array) {
        return Err(PyTypeError::new_err(format!("expected np.ndarray (got {})", array.get_type().name()?)));
    }
    data::from_array(array).map(PyTensor::wrap)
}

macro_rules! constants {
    ($($name:ident $like:ident $value:literal $doc:literal;)*) => {
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
            #[doc = concat!($doc, " The shape and dtype are another tensor's.")]
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
    zeros zeros_like 0 "Zeros.";
    ones ones_like 1 "Ones.";
    empty empty_like 0 "A tensor whose elements are to be written: zeros, since memory is never shown uncleared.";
}

/// A tensor of one number.
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

/// A tensor of one number, with another's shape and dtype.
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

/// `start, start + step, …` up to but without `end`.
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

/// `steps` numbers from `start` to `end`, both included.
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

/// Ones on the diagonal.
#[pyfunction]
#[pyo3(signature = (n, m=None, **options))]
fn eye(py: Python<'_>, n: i64, m: Option<i64>, options: Option<&Bound<'_, PyDict>>) -> PyResult<Py<PyTensor>> {
    let options = Options::of("eye", options)?;
    let dtype = options.float();
    make(py, options, |g| build::eye(g, n, m.unwrap_or(n), dtype))
}

macro_rules! randoms {
    ($($name:ident $like:ident $op:ident $doc:literal;)*) => {
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
            #[doc = concat!($doc, " The shape and dtype are another tensor's.")]
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
    rand rand_like Rand "Uniform numbers in [0, 1).";
    randn randn_like Randn "Normal numbers of mean 0 and variance 1.";
}

/// Uniform integers from `low` (0 unless given) up to but without `high`: `randint(high, size)` or
/// `randint(low, high, size)`.
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
