//! Properties and methods of tensors, and the functions of several tensors.

use crate::autocast;
use crate::convert::{Operand, Operands, TensorArg, axes, axis, ints, operand, sizes};
use crate::data;
use crate::device::{self, DeviceArg, PyDevice};
use crate::dtype::{DTypeArg, PyDType, instance};
use crate::error::{OrRaise, raise_op};
use crate::index;
use crate::operators;
use crate::options::MemoryFormat;
use crate::tensor::{PyTensor, build_from};
use gt_client::Tensor;
use gt_ops::build::row_wise;
use gt_ops::dtype::Promotable;
use gt_ops::row::AttrKind;
use gt_ops::{Arg, Attrs, DType, Op, OpError, Val, build};
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyTuple, PyType};

/// A class of `gt._types`.
fn types_class<'py>(
    py: Python<'py>,
    cell: &'static PyOnceLock<Py<PyType>>,
    name: &str,
) -> PyResult<Bound<'py, PyType>> {
    cell.import(py, "gt._types", name).cloned()
}

fn size<'py>(py: Python<'py>, dims: &[usize]) -> PyResult<Bound<'py, PyAny>> {
    static SIZE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    types_class(py, &SIZE, "Size")?.call1((PyTuple::new(py, dims)?,))
}

fn values_indices<'py>(py: Python<'py>, values: Tensor, indices: Tensor) -> PyResult<Bound<'py, PyAny>> {
    static PAIR: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    types_class(py, &PAIR, "ValuesIndices")?.call1((PyTensor::wrap(values), PyTensor::wrap(indices)))
}

/// A reduction over axes under either of their names.
macro_rules! reductions {
    ($($name:ident $op:ident $doc:literal;)*) => {
        #[pymethods]
        impl PyTensor {
            $(
                #[doc = $doc]
                #[pyo3(signature = (dim=None, keepdim=false, *, axis=None, keepdims=false, dtype=None))]
                fn $name(
                    &self,
                    py: Python<'_>,
                    dim: Option<&Bound<'_, PyAny>>,
                    keepdim: bool,
                    axis: Option<&Bound<'_, PyAny>>,
                    keepdims: bool,
                    dtype: Option<DTypeArg>,
                ) -> PyResult<PyTensor> {
                    let axes = axes(dim, axis)?;
                    self.build(py, |g, v| {
                        let v = match dtype {
                            Some(DTypeArg(dtype)) => build::cast(g, v, dtype)?,
                            None => v,
                        };
                        let result = build::reduce(g, Op::$op, v, axes.as_deref(), keepdim || keepdims)?;
                        // Integers are added up as int64, whose last bits are those of a shorter sum.
                        match dtype {
                            Some(DTypeArg(dtype)) if matches!(Op::$op, Op::Sum | Op::Prod) => {
                                build::cast(g, result, dtype)
                            }
                            _ => Ok(result),
                        }
                    })
                }
            )*
        }
    };
}

reductions! {
    sum Sum "The sum along axes, or of all elements.";
    mean Mean "The mean along axes, or of all elements.";
    _norm Norm "The root of the sum of squares along axes, or of all elements.";
    prod Prod "The product along axes, or of all elements.";
    amax Amax "The largest element along axes, or of all.";
    amin Amin "The smallest element along axes, or of all.";
    any Any "Whether any element along axes, or of all, is nonzero.";
    all All "Whether every element along axes, or of all, is nonzero.";
}

fn extreme<'py>(
    slf: &Bound<'py, PyTensor>,
    op: Op,
    dim: Option<&Bound<'py, PyAny>>,
    keepdim: bool,
    axis: Option<i64>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = slf.py();
    let this = slf.get();
    let along = match dim {
        Some(other) if other.is_instance_of::<PyTensor>() => {
            let pairwise = if op == Op::Amax { Op::Maximum } else { Op::Minimum };
            let args = PyTuple::new(py, [slf.as_any(), other])?;
            return Ok(Bound::new(py, operators::elementwise(py, pairwise as u16, &args)?)?.into_any());
        }
        Some(dim) => Some(dim.extract::<i64>()?),
        None => None,
    };
    match crate::convert::axis(along, axis)? {
        None => Ok(Bound::new(py, this.build(py, |g, v| build::reduce(g, op, v, None, keepdim))?)?.into_any()),
        Some(axis) => {
            let this = this.snapshot(py)?;
            let (values, indices) = build_from(
                &[&this],
                |g, v| build::extreme_along(g, op, v[0], axis, keepdim),
                |s, (values, indices)| (s.tensor(values), s.tensor(indices)),
            )
            .or_raise()?;
            values_indices(py, values, indices)
        }
    }
}

/// The divisor's correction under its names.
fn correction_of(dim: &mut Option<Bound<'_, PyAny>>, unbiased: Option<bool>, correction: Option<f64>) -> f64 {
    // PyTorch's first overload: `x.var(unbiased)`.
    let mut unbiased = unbiased;
    if let Some(flag) = dim.as_ref().and_then(|d| d.cast::<pyo3::types::PyBool>().ok().map(|b| b.is_true())) {
        unbiased = Some(flag);
        *dim = None;
    }
    correction.unwrap_or(if unbiased.unwrap_or(true) { 1.0 } else { 0.0 })
}

#[pymethods]
impl PyTensor {
    /// The sizes of the dimensions.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let meta = self.read(py).meta();
        size(py, meta.shape.dims())
    }
    /// The sizes, or one of them.
    #[pyo3(signature = (dim=None))]
    fn size<'py>(&self, py: Python<'py>, dim: Option<i64>) -> PyResult<Bound<'py, PyAny>> {
        let meta = self.read(py).meta();
        match dim {
            None => size(py, meta.shape.dims()),
            Some(_) if meta.shape.rank() == 0 => {
                Err(raise_op(OpError::index("Dimension specified as 0 but tensor has no dimensions")))
            }
            Some(dim) => Ok(meta.shape.dims()[meta.shape.axis(dim).or_raise()?].into_pyobject(py)?.into_any()),
        }
    }
    /// The type of the elements.
    #[getter]
    fn dtype(&self, py: Python<'_>) -> PyResult<Py<PyDType>> {
        instance(py, self.read(py).meta().dtype)
    }
    /// Where the elements are.
    #[getter]
    fn device(&self, py: Python<'_>) -> PyResult<Py<PyDevice>> {
        device::of_tensors(py)
    }
    /// The number of dimensions.
    #[getter]
    fn ndim(&self, py: Python<'_>) -> usize {
        self.read(py).meta().shape.rank()
    }
    /// The number of dimensions.
    fn dim(&self, py: Python<'_>) -> usize {
        self.ndim(py)
    }
    /// The number of elements.
    fn numel(&self, py: Python<'_>) -> usize {
        self.read(py).meta().shape.numel()
    }
    /// The number of elements.
    fn nelement(&self, py: Python<'_>) -> usize {
        self.numel(py)
    }
    /// Bytes per element.
    #[getter]
    fn itemsize(&self, py: Python<'_>) -> usize {
        self.read(py).meta().dtype.size()
    }
    /// Bytes per element.
    fn element_size(&self, py: Python<'_>) -> usize {
        self.itemsize(py)
    }
    /// Bytes of the elements.
    #[getter]
    fn nbytes(&self, py: Python<'_>) -> usize {
        self.read(py).meta().bytes()
    }
    /// Whether the dtype is floating.
    fn is_floating_point(&self, py: Python<'_>) -> bool {
        self.read(py).meta().dtype.is_float()
    }
    /// The axes in reverse order.
    #[getter(T)]
    fn transposed(&self, py: Python<'_>) -> PyResult<PyTensor> {
        let rank = self.ndim(py) as i64;
        self.view_of(py, false, |g, v| build::permute(g, v, &(0..rank).rev().collect::<Vec<_>>()))
    }
    /// The last two axes exchanged.
    #[getter(mT)]
    fn matrix_transposed(&self, py: Python<'_>) -> PyResult<PyTensor> {
        if self.ndim(py) < 2 {
            return Err(PyRuntimeError::new_err(format!(
                "tensor.mT is only supported on matrices or batches of matrices. Got {}-D tensor.",
                self.ndim(py)
            )));
        }
        self.view_of(py, false, |g, v| build::transpose(g, v, -2, -1))
    }
    /// The tensor number within the session, as the instruction log prints it.
    #[getter]
    fn _id(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.read(py).value().or_raise()?.id())
    }
    #[getter(_is_parameter)]
    fn get_is_parameter(&self, py: Python<'_>) -> bool {
        self.is_parameter.get(py)
    }
    #[setter(_is_parameter)]
    fn set_is_parameter(&self, py: Python<'_>, on: bool) {
        self.is_parameter.set(py, on);
    }

    /// The one element as a Python number.
    fn item<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        data::item(py, &self.snapshot(py)?)
    }
    /// The elements as nested lists.
    fn tolist<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        data::to_list(py, &self.snapshot(py)?)
    }
    /// The elements as a NumPy array, without a further copy.
    #[pyo3(signature = (*, force=false))]
    fn numpy<'py>(&self, py: Python<'py>, force: bool) -> PyResult<Bound<'py, PyAny>> {
        let this = self.snapshot(py)?;
        if this.requires_grad() && !force {
            return Err(PyRuntimeError::new_err(
                "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.",
            ));
        }
        data::to_numpy(py, &this)
    }
    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        // The arena's bytes are a copy already, which nobody else sees.
        let _ = copy;
        let array = self.numpy(py, false)?;
        match dtype {
            Some(dtype) => array.call_method("astype", (dtype, "K", "unsafe", true, false), None),
            None => Ok(array),
        }
    }
    fn __bool__(&self, py: Python<'_>) -> PyResult<bool> {
        let this = self.snapshot(py)?;
        match this.meta().shape.numel() {
            1 => data::item(py, &this)?.is_truthy(),
            0 => Err(PyRuntimeError::new_err("Boolean value of Tensor with no values is ambiguous")),
            _ => Err(PyRuntimeError::new_err("Boolean value of Tensor with more than one value is ambiguous")),
        }
    }
    fn __float__(&self, py: Python<'_>) -> PyResult<f64> {
        let item = self.item(py)?;
        item.call_method0("__float__").or_else(|_| py.get_type::<pyo3::types::PyFloat>().call1((&item,)))?.extract()
    }
    fn __int__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        py.get_type::<pyo3::types::PyInt>().call1((self.item(py)?,))
    }
    fn __index__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let meta = self.read(py).meta();
        if meta.dtype.is_float() || meta.shape.numel() != 1 {
            return Err(PyTypeError::new_err("only integer tensors of a single element can be converted to an index"));
        }
        self.__int__(py)
    }
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        let meta = self.read(py).meta();
        meta.shape.dims().first().copied().ok_or_else(|| PyTypeError::new_err("len() of a 0-d tensor"))
    }
    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, pyo3::types::PyIterator>> {
        let py = slf.py();
        let Some(&len) = slf.get().read(py).meta().shape.dims().first() else {
            return Err(PyTypeError::new_err("iteration over a 0-d tensor"));
        };
        let rows = (0..len as i64)
            .map(|i| slf.get().view_of(py, false, |g, v| build::index(g, v, &[build::Index::At(i)])))
            .collect::<PyResult<Vec<_>>>()?;
        PyList::new(py, rows)?.try_iter()
    }
    fn __getitem__<'py>(slf: &Bound<'py, Self>, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        match index::parts(index)? {
            Some(parts) => {
                let view = slf.get().view_of(py, false, |g, v| build::index(g, v, &parts))?;
                Ok(Bound::new(py, view)?.into_any())
            }
            None => index::advanced_get(slf, index),
        }
    }
    fn __setitem__(slf: &Bound<'_, Self>, index: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = slf.py();
        let Some(parts) = index::parts(index)? else { return index::advanced_set(slf, index, value) };
        if slf.get().read(py).repeats_elements() {
            // What repeats here may be there once in the part that is written.
            let part = Bound::new(py, slf.get().view_of(py, false, |g, v| build::index(g, v, &parts))?)?;
            return PyTensor::copy_(&part, value).map(drop);
        }
        let this = slf.get().snapshot(py)?;
        slf.get().read(py).check_in_place().or_raise()?;
        let source = match operand(value)? {
            Some(Operand::Object(object)) => Ok(object.get().snapshot(py)?),
            Some(Operand::Made(tensor)) => Ok(tensor),
            Some(Operand::Scalar(scalar)) => Err(scalar),
            None => Ok(data::from_python(value, None)?),
        };
        let result = match &source {
            Ok(source) => {
                build_from(&[&this, source], |g, v| build::set_index(g, v[0], &parts, v[1].into()), |s, v| s.tensor(v))
            }
            Err(scalar) => this.apply(|g, v| build::set_index(g, v, &parts, Arg::Scalar(*scalar))),
        };
        slf.get().rebind(py, result.or_raise()?, None)
    }

    /// The elements in another dtype and on a device: `to(dtype)`, `to(device, dtype)`, `to(other)`, each with
    /// `non_blocking` and `copy` after it. The tensor itself if nothing is to be done.
    #[pyo3(signature = (*args, **kwargs))]
    fn to<'py>(
        slf: &Bound<'py, Self>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, Self>> {
        let wanted = Wanted::of(args, kwargs)?;
        match wanted.dtype {
            Some(dtype) if dtype != slf.get().read(slf.py()).meta().dtype => {
                in_format(&cast_to(slf, dtype)?, wanted.format)
            }
            _ if wanted.copy => Bound::new(slf.py(), slf.get().clone(slf.py(), Some(wanted.format))?),
            _ => in_format(slf, wanted.format),
        }
    }
    /// The elements in another dtype, or the dtype's name.
    #[pyo3(name = "type", signature = (dtype=None, non_blocking=false))]
    fn type_<'py>(slf: &Bound<'py, Self>, dtype: Option<DTypeArg>, non_blocking: bool) -> PyResult<Bound<'py, PyAny>> {
        // Nothing blocks before elements are asked for.
        let _ = non_blocking;
        match dtype {
            Some(DTypeArg(dtype)) => cast_to(slf, dtype).map(Bound::into_any),
            None => {
                let name = slf.get().read(slf.py()).meta().dtype.scalar_type_name();
                Ok(format!("gt.{name}Tensor").into_pyobject(slf.py())?.into_any())
            }
        }
    }
    /// The elements in the dtype of another tensor.
    fn type_as<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, Self>) -> PyResult<Bound<'py, Self>> {
        let dtype = other.get().read(slf.py()).meta().dtype;
        cast_to(slf, dtype)
    }

    /// The same elements under another shape.
    #[pyo3(signature = (*shape))]
    fn reshape(&self, py: Python<'_>, shape: &Bound<'_, PyTuple>) -> PyResult<PyTensor> {
        let shape = sizes(shape)?;
        self.view_of(py, false, |g, v| build::reshape(g, v, &shape))
    }
    /// The same elements under another shape, or in another dtype.
    #[pyo3(signature = (*shape))]
    fn view(&self, py: Python<'_>, shape: &Bound<'_, PyTuple>) -> PyResult<PyTensor> {
        if shape.len() == 1 && shape.get_item(0)?.is_instance_of::<PyDType>() {
            return Err(pyo3::exceptions::PyNotImplementedError::new_err(
                "view(dtype) reinterprets memory, which GT does not do: use .to(dtype) to convert",
            ));
        }
        let shape = sizes(shape)?;
        self.view_of(py, true, |g, v| build::reshape(g, v, &shape))
    }
    /// The same elements under the shape of another tensor.
    fn view_as(&self, py: Python<'_>, other: TensorArg<'_>) -> PyResult<PyTensor> {
        let shape: Vec<i64> = other.get().read(py).meta().shape.dims().iter().map(|d| *d as i64).collect();
        self.view_of(py, true, |g, v| build::reshape(g, v, &shape))
    }
    /// Two axes exchanged.
    fn transpose(&self, py: Python<'_>, dim0: i64, dim1: i64) -> PyResult<PyTensor> {
        self.view_of(py, false, |g, v| build::transpose(g, v, dim0, dim1))
    }
    /// Two axes exchanged.
    fn swapaxes(&self, py: Python<'_>, axis0: i64, axis1: i64) -> PyResult<PyTensor> {
        self.transpose(py, axis0, axis1)
    }
    /// The axes in another order.
    #[pyo3(signature = (*dims))]
    fn permute(&self, py: Python<'_>, dims: &Bound<'_, PyTuple>) -> PyResult<PyTensor> {
        let dims = sizes(dims)?;
        self.view_of(py, false, |g, v| build::permute(g, v, &dims))
    }
    /// A matrix transposed.
    fn t(&self, py: Python<'_>) -> PyResult<PyTensor> {
        match self.ndim(py) {
            0 | 1 => self.view_of(py, false, |_, v| Ok(v)),
            2 => self.transpose(py, 0, 1),
            n => Err(PyRuntimeError::new_err(format!("t() expects a tensor with <= 2 dimensions, but self is {n}D"))),
        }
    }
    /// Axes of size 1 left out.
    #[pyo3(signature = (dim=None))]
    fn squeeze(&self, py: Python<'_>, dim: Option<&Bound<'_, PyAny>>) -> PyResult<PyTensor> {
        let dims = dim.map(ints).transpose()?;
        self.view_of(py, false, |g, v| build::squeeze(g, v, dims.as_deref()))
    }
    /// A new axis of size 1.
    fn unsqueeze(&self, py: Python<'_>, dim: i64) -> PyResult<PyTensor> {
        self.view_of(py, false, |g, v| build::unsqueeze(g, v, dim))
    }
    /// Axes of size 1 repeated.
    #[pyo3(signature = (*sizes_))]
    fn expand(&self, py: Python<'_>, sizes_: &Bound<'_, PyTuple>) -> PyResult<PyTensor> {
        let sizes = sizes(sizes_)?;
        self.view_of(py, false, |g, v| build::expand(g, v, &sizes))
    }
    /// Repeated to the shape of another tensor.
    fn expand_as(&self, py: Python<'_>, other: TensorArg<'_>) -> PyResult<PyTensor> {
        let shape: Vec<i64> = other.get().read(py).meta().shape.dims().iter().map(|d| *d as i64).collect();
        self.view_of(py, false, |g, v| build::expand(g, v, &shape))
    }
    /// The diagonals of the matrices that two axes make, as the last axis; a positive offset is above the main one.
    #[pyo3(signature = (offset=0, dim1=0, dim2=1))]
    fn diagonal(&self, py: Python<'_>, offset: i64, dim1: i64, dim2: i64) -> PyResult<PyTensor> {
        let (plan, strides) = {
            let this = self.read(py);
            let plan = this.plan_view(|g, v| build::diagonal(g, v, offset, dim1, dim2)).or_raise()?;
            let (shape, own) = (this.meta().shape, this.strides());
            let (a, b) = (shape.axis(dim1).or_raise()?, shape.axis(dim2).or_raise()?);
            let mut strides = own;
            let kept = (0..shape.rank()).filter(|axis| *axis != a && *axis != b).map(|axis| own[axis]);
            for (to, stride) in strides.iter_mut().zip(kept.chain([own[a] + own[b]])) {
                *to = stride;
            }
            (plan, strides)
        };
        Ok(PyTensor::wrap(self.write(py, |tensor| tensor.view(plan.with_strides(strides)))))
    }
    /// Several axes as one.
    #[pyo3(signature = (start_dim=0, end_dim=-1))]
    fn flatten(&self, py: Python<'_>, start_dim: i64, end_dim: i64) -> PyResult<PyTensor> {
        self.view_of(py, false, |g, v| build::flatten(g, v, start_dim, end_dim))
    }
    /// All elements in one dimension.
    fn ravel(&self, py: Python<'_>) -> PyResult<PyTensor> {
        self.view_of(py, false, |g, v| build::reshape(g, v, &[-1]))
    }
    /// `length` positions of an axis from `start`.
    fn narrow(&self, py: Python<'_>, dim: i64, start: &Bound<'_, PyAny>, length: i64) -> PyResult<PyTensor> {
        if let Ok(start) = start.cast::<PyTensor>() {
            let meta = start.get().read(py).meta();
            if meta.shape.rank() != 0 || meta.dtype.is_float() || meta.dtype == DType::Bool {
                return Err(PyRuntimeError::new_err("start must be an 0-dim integral Tensor."));
            }
        }
        let start = start.extract()?;
        self.view_of(py, false, |g, v| build::narrow(g, v, dim, start, length))
    }
    /// The tensor itself, or a copy where PyTorch would have gaps between its elements, or another order.
    #[pyo3(signature = (memory_format=None))]
    fn contiguous<'py>(slf: &Bound<'py, Self>, memory_format: Option<MemoryFormat>) -> PyResult<Bound<'py, Self>> {
        match memory_format.unwrap_or(MemoryFormat::Contiguous) {
            MemoryFormat::Preserve => {
                Err(PyRuntimeError::new_err("preserve memory format is unsupported by the contiguous operator"))
            }
            format => in_format(slf, format),
        }
    }
    /// Whether PyTorch would have the elements in row-major order, or that of a format, without gaps.
    #[pyo3(signature = (memory_format=None))]
    fn is_contiguous(&self, py: Python<'_>, memory_format: Option<MemoryFormat>) -> bool {
        memory_format.unwrap_or(MemoryFormat::Contiguous).holds(&self.read(py)).unwrap_or(false)
    }
    /// Distances between neighbours along each axis, in elements, as PyTorch would have them in memory.
    #[pyo3(signature = (dim=None))]
    fn stride<'py>(&self, py: Python<'py>, dim: Option<i64>) -> PyResult<Bound<'py, PyAny>> {
        let this = self.read(py);
        let (shape, strides) = (this.meta().shape, this.strides());
        match dim {
            None => Ok(PyTuple::new(py, &strides[..shape.rank()])?.into_any()),
            Some(dim) => Ok(strides[shape.axis(dim).or_raise()?].into_pyobject(py)?.into_any()),
        }
    }

    /// The largest element; along an axis, with its position; or elementwise with another tensor.
    #[pyo3(signature = (dim=None, keepdim=false, *, axis=None, keepdims=false))]
    fn max<'py>(
        slf: &Bound<'py, Self>,
        dim: Option<&Bound<'py, PyAny>>,
        keepdim: bool,
        axis: Option<i64>,
        keepdims: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        extreme(slf, Op::Amax, dim, keepdim || keepdims, axis)
    }
    /// The smallest element; along an axis, with its position; or elementwise with another tensor.
    #[pyo3(signature = (dim=None, keepdim=false, *, axis=None, keepdims=false))]
    fn min<'py>(
        slf: &Bound<'py, Self>,
        dim: Option<&Bound<'py, PyAny>>,
        keepdim: bool,
        axis: Option<i64>,
        keepdims: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        extreme(slf, Op::Amin, dim, keepdim || keepdims, axis)
    }
    /// The position of the largest element.
    #[pyo3(signature = (dim=None, keepdim=false, *, axis=None, keepdims=false))]
    fn argmax(
        &self,
        py: Python<'_>,
        dim: Option<i64>,
        keepdim: bool,
        axis: Option<i64>,
        keepdims: bool,
    ) -> PyResult<PyTensor> {
        let along = crate::convert::axis(dim, axis)?;
        self.build(py, |g, v| build::arg_reduce(g, Op::Argmax, v, along, keepdim || keepdims))
    }
    /// The position of the smallest element.
    #[pyo3(signature = (dim=None, keepdim=false, *, axis=None, keepdims=false))]
    fn argmin(
        &self,
        py: Python<'_>,
        dim: Option<i64>,
        keepdim: bool,
        axis: Option<i64>,
        keepdims: bool,
    ) -> PyResult<PyTensor> {
        let along = crate::convert::axis(dim, axis)?;
        self.build(py, |g, v| build::arg_reduce(g, Op::Argmin, v, along, keepdim || keepdims))
    }
    /// The variance.
    #[pyo3(signature = (dim=None, unbiased=None, keepdim=false, *, correction=None, axis=None, keepdims=false))]
    #[expect(clippy::too_many_arguments, reason = "PyTorch's signature and NumPy's aliases")]
    fn var(
        &self,
        py: Python<'_>,
        mut dim: Option<Bound<'_, PyAny>>,
        unbiased: Option<bool>,
        keepdim: bool,
        correction: Option<f64>,
        axis: Option<&Bound<'_, PyAny>>,
        keepdims: bool,
    ) -> PyResult<PyTensor> {
        let correction = correction_of(&mut dim, unbiased, correction);
        let axes = axes(dim.as_ref(), axis)?;
        self.build(py, |g, v| build::var(g, v, axes.as_deref(), correction, keepdim || keepdims))
    }
    /// The standard deviation.
    #[pyo3(signature = (dim=None, unbiased=None, keepdim=false, *, correction=None, axis=None, keepdims=false))]
    #[expect(clippy::too_many_arguments, reason = "PyTorch's signature and NumPy's aliases")]
    fn std(
        &self,
        py: Python<'_>,
        mut dim: Option<Bound<'_, PyAny>>,
        unbiased: Option<bool>,
        keepdim: bool,
        correction: Option<f64>,
        axis: Option<&Bound<'_, PyAny>>,
        keepdims: bool,
    ) -> PyResult<PyTensor> {
        let correction = correction_of(&mut dim, unbiased, correction);
        let axes = axes(dim.as_ref(), axis)?;
        self.build(py, |g, v| build::std(g, v, axes.as_deref(), correction, keepdim || keepdims))
    }
    /// exp(x), normalised to sum 1 along an axis.
    #[pyo3(signature = (dim=None, *, axis=None, dtype=None))]
    fn softmax(
        &self,
        py: Python<'_>,
        dim: Option<i64>,
        axis: Option<i64>,
        dtype: Option<DTypeArg>,
    ) -> PyResult<PyTensor> {
        let along = along(dim, axis, "softmax")?;
        self.build(py, |g, v| {
            let v = optional_cast(g, v, dtype)?;
            row_wise::softmax(g, Op::Softmax, v, along)
        })
    }
    /// The logarithm of softmax.
    #[pyo3(signature = (dim=None, *, axis=None, dtype=None))]
    fn log_softmax(
        &self,
        py: Python<'_>,
        dim: Option<i64>,
        axis: Option<i64>,
        dtype: Option<DTypeArg>,
    ) -> PyResult<PyTensor> {
        let along = along(dim, axis, "log_softmax")?;
        self.build(py, |g, v| {
            let v = optional_cast(g, v, dtype)?;
            row_wise::softmax(g, Op::LogSoftmax, v, along)
        })
    }
    /// The matrix product.
    fn matmul(slf: &Bound<'_, Self>, other: TensorArg<'_>) -> PyResult<PyTensor> {
        let py = slf.py();
        let (a, b) = (slf.get().read(py), other.get().read(py));
        build_from(&[&a, &b], |g, v| autocast::matmul(g, v[0], v[1]), |s, v| s.tensor(v)).or_raise().map(PyTensor::wrap)
    }
    /// Elements kept between bounds.
    #[pyo3(signature = (min=None, max=None))]
    fn clamp(
        &self,
        py: Python<'_>,
        min: Option<&Bound<'_, PyAny>>,
        max: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PyTensor> {
        let mut operands = Operands::new(self.snapshot(py)?);
        let mut bound = |object: Option<&Bound<'_, PyAny>>| {
            object.map(|object| operands.add(object, "clamp(): bounds")).transpose()
        };
        let (low, high) = (bound(min)?, bound(max)?);
        build_from(
            &operands.tensors(),
            |g, v| build::clamp(g, v[0], low.map(|p| p.arg(v)), high.map(|p| p.arg(v))),
            |s, v| s.tensor(v),
        )
        .or_raise()
        .map(PyTensor::wrap)
    }
    /// Elements chosen along an axis by an index tensor.
    fn gather(slf: &Bound<'_, Self>, dim: i64, index: TensorArg<'_>) -> PyResult<PyTensor> {
        let py = slf.py();
        let (a, b) = (slf.get().read(py), index.get().read(py));
        build_from(
            &[&a, &b],
            |g, v| {
                let index = as_index(g, v[1])?;
                let (from, to) = (g.meta(v[0]).shape, g.meta(index).shape);
                if to.numel() == 0 && to.rank() != from.rank() {
                    // Nothing is chosen, wherever the axis is.
                    let flat = build::reshape(g, v[0], &[-1])?;
                    let nothing = build::narrow(g, flat, 0, 0, 0)?;
                    return g.emit(Op::Reshape, &[nothing.into()], Attrs::Shape(to));
                }
                build::gather(g, v[0], dim, index)
            },
            |s, v| s.tensor(v),
        )
        .or_raise()
        .map(PyTensor::wrap)
    }
    /// The tensor cut along an axis into pieces of a size, or of these sizes.
    #[pyo3(signature = (split_size, dim=0))]
    fn split<'py>(&self, py: Python<'py>, split_size: &Bound<'py, PyAny>, dim: i64) -> PyResult<Bound<'py, PyTuple>> {
        let sizes = match split_size.extract::<i64>() {
            Ok(size) => build::split_sizes(self.extent(py, dim)?, size).or_raise()?,
            Err(_) => ints(split_size)?,
        };
        self.pieces(py, &sizes, dim)
    }
    /// The tensor cut along an axis into at most so many equal pieces.
    #[pyo3(signature = (chunks, dim=0))]
    fn chunk<'py>(&self, py: Python<'py>, chunks: i64, dim: i64) -> PyResult<Bound<'py, PyTuple>> {
        let sizes = build::chunk_sizes(self.extent(py, dim)?, chunks).or_raise()?;
        self.pieces(py, &sizes, dim)
    }
    /// A copy of the elements from another tensor, converted and broadcast.
    fn copy_<'py>(slf: &Bound<'py, Self>, source: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Self>> {
        let py = slf.py();
        slf.get().read(py).check_in_place().or_raise()?;
        let meta = slf.get().read(py).meta();
        let source = match operand(source)? {
            Some(Operand::Object(object)) => object.get().snapshot(py)?,
            Some(Operand::Made(tensor)) => tensor,
            _ => data::from_python(source, None)?,
        };
        let sizes: Vec<i64> = meta.shape.dims().iter().map(|d| *d as i64).collect();
        let copied = source
            .apply(|g, v| {
                let v = build::cast(g, v, meta.dtype)?;
                build::expand(g, v, &sizes)
            })
            .or_raise()?;
        slf.get().rebind(py, copied, None)?;
        Ok(slf.clone())
    }
    /// Every element made one number.
    fn fill_<'py>(slf: &Bound<'py, Self>, value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Self>> {
        let py = slf.py();
        let Some(Operand::Scalar(scalar)) = operand(value)? else {
            return PyTensor::copy_(slf, value);
        };
        slf.get().read(py).check_in_place().or_raise()?;
        let meta = slf.get().read(py).meta();
        let full = slf.get().read(py).apply(|g, _| build::full(g, meta.shape, scalar, meta.dtype)).or_raise()?;
        slf.get().rebind(py, full, None)?;
        Ok(slf.clone())
    }
    /// Every element made 0.
    fn zero_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, Self>> {
        PyTensor::fill_(slf, &0i64.into_pyobject(slf.py())?.into_any())
    }
    /// Makes this object what another is: a view of it, as `unsqueeze_()` does.
    fn _become<'py>(slf: &Bound<'py, Self>, view: &Bound<'py, PyTensor>) -> PyResult<Bound<'py, Self>> {
        let py = slf.py();
        slf.get().read(py).check_in_place().or_raise()?;
        let same = view.get().write(py, Tensor::same);
        drop(slf.get().write(py, |tensor| std::mem::replace(tensor, same)));
        Ok(slf.clone())
    }
    /// Binds this object to another's value: the last step of the in-place methods, which say where the tape was when
    /// they began if they take several steps.
    #[pyo3(signature = (result, since=None))]
    fn _rebind<'py>(
        slf: &Bound<'py, Self>,
        result: &Bound<'py, PyTensor>,
        since: Option<u64>,
    ) -> PyResult<Bound<'py, Self>> {
        let py = slf.py();
        let result = result.get().snapshot(py)?;
        slf.get().rebind(py, result, since)?;
        Ok(slf.clone())
    }
}

fn along(dim: Option<i64>, other: Option<i64>, name: &str) -> PyResult<i64> {
    axis(dim, other)?.ok_or_else(|| PyTypeError::new_err(format!("{name}() missing the argument 'dim'")))
}

/// An index as the rows take it: int32 widened, and whatever has no elements.
fn as_index(g: &mut dyn gt_ops::Graph, index: Val) -> gt_ops::error::Result<Val> {
    let meta = g.meta(index);
    if meta.dtype == DType::I32 || meta.shape.numel() == 0 { build::cast(g, index, DType::I64) } else { Ok(index) }
}

fn optional_cast(g: &mut dyn gt_ops::Graph, v: Val, dtype: Option<DTypeArg>) -> gt_ops::error::Result<Val> {
    match dtype {
        Some(DTypeArg(dtype)) => build::cast(g, v, dtype),
        None => Ok(v),
    }
}

/// What `to()` is asked for.
struct Wanted {
    dtype: Option<DType>,
    copy: bool,
    format: MemoryFormat,
}

impl Wanted {
    fn of(args: &Bound<'_, PyTuple>, kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<Wanted> {
        let mut wanted = Wanted { dtype: None, copy: false, format: MemoryFormat::Preserve };
        let mut given = args.iter();
        let mut names = vec!["non_blocking", "copy"].into_iter();
        if let Some(first) = given.next() {
            if let Ok(other) = first.cast::<PyTensor>() {
                wanted.dtype = Some(other.get().read(first.py()).meta().dtype);
            } else if let Some(DTypeArg(dtype)) = first.extract().ok().filter(|_| !first.is_none()) {
                wanted.dtype = Some(dtype);
            } else {
                wanted.take("device", &first)?;
                names = vec!["dtype", "non_blocking", "copy"].into_iter();
            }
        } else if kwargs.is_none() {
            return Err(PyTypeError::new_err("to() needs a dtype, a device or a tensor"));
        }
        for value in given {
            let Some(name) = names.next() else { return Err(PyTypeError::new_err("to() got too many arguments")) };
            wanted.take(name, &value)?;
        }
        for (key, value) in kwargs.into_iter().flatten() {
            wanted.take(&key.extract::<String>()?, &value)?;
        }
        Ok(wanted)
    }

    fn take(&mut self, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
        match name {
            "device" | "dtype" | "memory_format" if value.is_none() => {}
            "device" => value.extract::<DeviceArg>()?.check(value.py())?,
            "dtype" => self.dtype = Some(value.extract::<DTypeArg>()?.0),
            "other" => self.dtype = Some(value.cast::<PyTensor>()?.get().read(value.py()).meta().dtype),
            "memory_format" => self.format = value.extract()?,
            "copy" => self.copy = value.is_truthy()?,
            // Nothing blocks before elements are asked for.
            "non_blocking" => drop(value.is_truthy()?),
            _ => return Err(PyTypeError::new_err(format!("to() got an unexpected keyword argument '{name}'"))),
        }
        Ok(())
    }
}

/// The tensor itself, or its elements in `dtype`.
fn cast_to<'py>(slf: &Bound<'py, PyTensor>, dtype: DType) -> PyResult<Bound<'py, PyTensor>> {
    let py = slf.py();
    if slf.get().read(py).meta().dtype == dtype {
        return Ok(slf.clone());
    }
    Bound::new(py, slf.get().build(py, |g, v| build::cast(g, v, dtype))?)
}

/// The tensor itself if its elements are in this order, otherwise a copy in which they are.
fn in_format<'py>(tensor: &Bound<'py, PyTensor>, format: MemoryFormat) -> PyResult<Bound<'py, PyTensor>> {
    let py = tensor.py();
    if format.holds(&tensor.get().read(py))? {
        return Ok(tensor.clone());
    }
    Bound::new(py, tensor.get().clone(py, Some(format))?)
}

macro_rules! casts {
    ($($name:ident $python:literal $dtype:ident;)*) => {
        #[pymethods]
        impl PyTensor {
            $(
                #[doc = concat!("The elements as ", $python, ".")]
                #[pyo3(name = $python)]
                #[pyo3(signature = (memory_format=None))]
                fn $name<'py>(
                    slf: &Bound<'py, Self>,
                    memory_format: Option<MemoryFormat>,
                ) -> PyResult<Bound<'py, Self>> {
                    in_format(&cast_to(slf, DType::$dtype)?, memory_format.unwrap_or(MemoryFormat::Preserve))
                }
            )*
        }
    };
}

casts! {
    to_bool "bool" Bool;
    to_byte "byte" U8;
    to_char "char" I8;
    to_short "short" I16;
    to_int "int" I32;
    to_long "long" I64;
    to_half "half" F16;
    to_bfloat16 "bfloat16" BF16;
    to_float "float" F32;
    to_double "double" F64;
}

impl PyTensor {
    /// The size of an axis.
    fn extent(&self, py: Python<'_>, dim: i64) -> PyResult<usize> {
        let shape = self.read(py).meta().shape;
        let axis = shape.axis(dim).or_raise()?;
        let found = shape.dims().get(axis).copied();
        found.ok_or_else(|| PyRuntimeError::new_err("split expects at least a 1-dimensional tensor"))
    }

    /// Views of stretches of these sizes along an axis.
    fn pieces<'py>(&self, py: Python<'py>, sizes: &[i64], dim: i64) -> PyResult<Bound<'py, PyTuple>> {
        build::check_split(self.read(py).meta().shape, sizes, dim).or_raise()?;
        let mut start = 0;
        let pieces = sizes.iter().map(|&size| {
            let piece = self.view_of(py, false, |g, v| build::narrow(g, v, dim, start, size));
            start += size;
            piece
        });
        PyTuple::new(py, pieces.collect::<PyResult<Vec<_>>>()?)
    }
}

fn snapshots(py: Python<'_>, tensors: &Bound<'_, PyAny>) -> PyResult<Vec<Tensor>> {
    if tensors.is_instance_of::<PyTensor>() {
        return Err(PyTypeError::new_err("argument 'tensors' (position 1) must be tuple of Tensors, not Tensor"));
    }
    tensors
        .try_iter()?
        .map(|item| {
            let item = item?;
            match item.extract::<TensorArg<'_>>() {
                Ok(tensor) => tensor.get().snapshot(py),
                Err(error) if data::is_foreign(&item) => Err(error),
                Err(_) => Err(PyTypeError::new_err(format!(
                    "expected a sequence of Tensors, but one is {}",
                    item.get_type().name().map_or_else(|_| "?".into(), |n| n.to_string())
                ))),
            }
        })
        .collect()
}

/// Tensors side by side along an axis.
#[pyfunction]
#[pyo3(signature = (tensors, dim=None, *, axis=None))]
fn cat(py: Python<'_>, tensors: &Bound<'_, PyAny>, dim: Option<i64>, axis: Option<i64>) -> PyResult<PyTensor> {
    let all = snapshots(py, tensors)?;
    if all.is_empty() {
        return Err(PyValueError::new_err("cat(): expected a non-empty list of Tensors"));
    }
    let refs: Vec<&Tensor> = all.iter().collect();
    let along = crate::convert::axis(dim, axis)?.unwrap_or(0);
    build_from(&refs, |g, v| build::cat(g, v, along), |s, v| s.tensor(v)).or_raise().map(PyTensor::wrap)
}

/// Tensors of one shape along a new axis.
#[pyfunction]
#[pyo3(signature = (tensors, dim=None, *, axis=None))]
fn stack(py: Python<'_>, tensors: &Bound<'_, PyAny>, dim: Option<i64>, axis: Option<i64>) -> PyResult<PyTensor> {
    let all = snapshots(py, tensors)?;
    let refs: Vec<&Tensor> = all.iter().collect();
    let along = crate::convert::axis(dim, axis)?.unwrap_or(0);
    build_from(&refs, |g, v| build::stack(g, v, along), |s, v| s.tensor(v)).or_raise().map(PyTensor::wrap)
}

/// The dtype of what an op makes of two operands.
#[pyfunction]
#[pyo3(signature = (tensor1, tensor2))]
fn result_type(py: Python<'_>, tensor1: &Bound<'_, PyAny>, tensor2: &Bound<'_, PyAny>) -> PyResult<Py<PyDType>> {
    let promotable = |object: &Bound<'_, PyAny>| -> PyResult<Promotable> {
        let meta = match operand(object)? {
            Some(Operand::Object(tensor)) => tensor.get().read(py).meta(),
            Some(Operand::Made(tensor)) => tensor.meta(),
            Some(Operand::Scalar(scalar)) => return Ok(Promotable::Number(scalar.category())),
            None => return Err(PyTypeError::new_err("result_type(): arguments must be tensors or numbers")),
        };
        let shape = meta.shape;
        Ok(if shape.rank() == 0 { Promotable::ZeroDim(meta.dtype) } else { Promotable::Dimensioned(meta.dtype) })
    };
    instance(py, gt_ops::dtype::result_type([promotable(tensor1)?, promotable(tensor2)?]))
}

/// The second's elements where the first is true, the third's elsewhere.
#[pyfunction]
#[pyo3(name = "where")]
fn where_(
    py: Python<'_>,
    condition: TensorArg<'_>,
    input: &Bound<'_, PyAny>,
    other: &Bound<'_, PyAny>,
) -> PyResult<PyTensor> {
    let mut operands = Operands::new(condition.get().snapshot(py)?);
    let yes = operands.add(input, "where(): choices")?;
    let no = operands.add(other, "where(): choices")?;
    build_from(&operands.tensors(), |g, v| build::where_(g, v[0], yes.arg(v), no.arg(v)), |s, v| s.tensor(v))
        .or_raise()
        .map(PyTensor::wrap)
}

/// A row of the op table that has an axis, on tensors.
#[pyfunction]
#[pyo3(signature = (op, dim, *tensors))]
fn along_axis(py: Python<'_>, op: &str, dim: i64, tensors: &Bound<'_, PyTuple>) -> PyResult<PyTensor> {
    let row = Op::from_name(op).map(Op::row).filter(|row| row.attrs == AttrKind::Axis && row.op != Op::Cat);
    let row = row.ok_or_else(|| PyTypeError::new_err(format!("{op} is no op with an axis")))?;
    let all = snapshots(py, tensors.as_any())?;
    let refs: Vec<&Tensor> = all.iter().collect();
    let along = |g: &mut dyn gt_ops::Graph, v: &[Val]| {
        let mut operands = v.to_vec();
        if let Some(index) = operands.get_mut(1) {
            *index = as_index(g, *index)?;
        }
        build::along(g, row.op, dim, &operands)
    };
    build_from(&refs, along, |s, v| s.tensor(v)).or_raise().map(PyTensor::wrap)
}

/// A view of the elements that an index names along an axis, under a shape and with the strides they have there.
#[pyfunction]
fn gathered_view(
    py: Python<'_>,
    x: &Bound<'_, PyTensor>,
    dim: i64,
    index: &Bound<'_, PyTensor>,
    shape: Vec<i64>,
    strides: Vec<isize>,
) -> PyResult<PyTensor> {
    let index = index.get().snapshot(py)?;
    let plan = x.get().read(py).plan_gathered_view(Some(&index), |g, v, index| {
        let at = index.ok_or_else(|| OpError::runtime("a gathered view needs an index"))?;
        let taken = build::gather(g, v, dim, at)?;
        build::reshape(g, taken, &shape)
    });
    let mut wide = [0; gt_ops::RANK_MAX];
    for (to, stride) in wide.iter_mut().zip(strides) {
        *to = stride;
    }
    let plan = plan.or_raise()?.with_strides(wide);
    Ok(PyTensor::wrap(x.get().write(py, |tensor| tensor.view(plan))))
}

/// The positions of the true elements of a mask, of which there are `count`.
#[pyfunction]
fn positions(py: Python<'_>, mask: TensorArg<'_>, count: usize) -> PyResult<PyTensor> {
    mask.get().build(py, |g, v| build::nonzero(g, v, count))
}

/// How many elements of sorted rows are below each other element, or at most it.
#[pyfunction]
fn search_sorted(py: Python<'_>, sorted: TensorArg<'_>, wanted: TensorArg<'_>, right: bool) -> PyResult<PyTensor> {
    let op = if right { Op::SearchsortedRight } else { Op::Searchsorted };
    let (a, b) = (sorted.get().snapshot(py)?, wanted.get().snapshot(py)?);
    build_from(&[&a, &b], |g, v| g.emit(op, &[v[0].into(), v[1].into()], Attrs::None), |s, v| s.tensor(v))
        .or_raise()
        .map(PyTensor::wrap)
}

/// Adds the functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(operators::elementwise, module)?)?;
    module.add_function(wrap_pyfunction!(cat, module)?)?;
    module.add_function(wrap_pyfunction!(stack, module)?)?;
    module.add_function(wrap_pyfunction!(along_axis, module)?)?;
    module.add_function(wrap_pyfunction!(gathered_view, module)?)?;
    module.add_function(wrap_pyfunction!(positions, module)?)?;
    module.add_function(wrap_pyfunction!(search_sorted, module)?)?;
    module.add_function(wrap_pyfunction!(result_type, module)?)?;
    module.add_function(wrap_pyfunction!(where_, module)?)
}
