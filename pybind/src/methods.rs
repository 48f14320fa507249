//! Properties and methods of tensors that are about handles, bytes and dtypes: the others are declared.

use crate::advanced_index;
use crate::convert::{PyOperand, operand};
use crate::data;
use crate::device::{self, DeviceArg, MetaDevice, PyDevice};
use crate::dtype::{DTypeArg, PyDType, TypeArg, instance};
use crate::error::{OrRaise, raise_op};
use crate::index;
use crate::operators;
use crate::options::MemoryFormat;
use crate::overrides;
use crate::tensor::{PyTensor, build_from};
use gt_client::{Repeats, Scope, Tensor, tape};
use gt_ops::dtype::Promotable;
use gt_ops::{Arg, DType, Meta, OpError, Scalar, build};
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyUserWarning};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyComplex, PyDict, PyFloat, PyList, PyTuple, PyType};
use std::sync::{Mutex, PoisonError};

/// `fill_()` makes a new tensor instead of writing a smaller one in place: that takes fewer instructions.
const FILLED_IN_PLACE_BYTES_MIN: usize = 128 << 10;

fn size<'py>(py: Python<'py>, dims: &[usize]) -> PyResult<Bound<'py, PyAny>> {
    static SIZE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    SIZE.import(py, "gt._types", "Size")?.call1((PyTuple::new(py, dims)?,))
}

#[pymethods]
impl PyTensor {
    /// The size of each axis, as a `gt.Size`.
    ///
    /// Example:
    ///     >>> gt.zeros(2, 3).shape
    ///     gt.Size([2, 3])
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let meta = self.read(py).meta();
        size(py, meta.shape.dims())
    }
    /// The size of each axis as a `gt.Size`, or the size of one.
    ///
    /// Example:
    ///     >>> gt.zeros(2, 3).size(1)
    ///     3
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
    /// The type of the elements, as `gt.float32`.
    #[getter]
    fn dtype(&self, py: Python<'_>) -> PyResult<Py<PyDType>> {
        instance(py, self.read(py).meta().dtype)
    }
    /// The device: `cpu`, or `cuda:0` where the daemon computes on CUDA devices.
    #[getter]
    fn device(&self, py: Python<'_>) -> PyResult<Py<PyDevice>> {
        device::of_tensors(py)
    }
    /// The number of axes.
    #[getter]
    fn ndim(&self, py: Python<'_>) -> usize {
        self.read(py).meta().shape.rank()
    }
    /// The number of axes.
    fn dim(&self, py: Python<'_>) -> usize {
        self.ndim(py)
    }
    /// The number of elements.
    ///
    /// Example:
    ///     >>> gt.zeros(2, 3).numel()
    ///     6
    fn numel(&self, py: Python<'_>) -> usize {
        self.read(py).meta().shape.numel()
    }
    /// The number of elements.
    fn nelement(&self, py: Python<'_>) -> usize {
        self.numel(py)
    }
    /// The size of an element in bytes.
    #[getter]
    fn itemsize(&self, py: Python<'_>) -> usize {
        self.read(py).meta().dtype.size()
    }
    /// The size of an element in bytes.
    fn element_size(&self, py: Python<'_>) -> usize {
        self.itemsize(py)
    }
    /// The size of all elements in bytes.
    #[getter]
    fn nbytes(&self, py: Python<'_>) -> usize {
        self.read(py).meta().bytes()
    }
    /// Whether the dtype is a floating-point one: float16, bfloat16, float32 or float64.
    ///
    /// Example:
    ///     >>> gt.tensor([1.5]).is_floating_point(), gt.tensor([1]).is_floating_point()
    ///     (True, False)
    fn is_floating_point(&self, py: Python<'_>) -> bool {
        self.read(py).meta().dtype.is_float()
    }
    /// A view with the axes in reverse order.
    #[getter(T)]
    fn transposed(&self, py: Python<'_>) -> PyResult<PyTensor> {
        let rank = self.ndim(py) as i64;
        self.view_of(py, false, |g, v| build::permute(g, v, &(0..rank).rev().collect::<Vec<_>>()))
    }
    /// The matrices transposed: a view with the last two axes exchanged.
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
    /// The number of the tensor in its session, as the instruction log prints it.
    #[getter]
    fn _id(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.read(py).value().or_raise()?.id())
    }
    /// A number that this tensor has in common with all that share its elements, and with no others that exist.
    #[getter]
    fn _storage_key(&self, py: Python<'_>) -> usize {
        self.write(py, |tensor| tensor.storage_key())
    }
    /// The object that was set here for any tensor that shares the elements; it is there as long as they are.
    #[getter(_memory)]
    fn get_memory(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        let attached = self.write(py, Tensor::attachment)?;
        attached.downcast_ref::<Py<PyAny>>().map(|object| object.clone_ref(py))
    }
    #[setter(_memory)]
    fn set_memory(&self, py: Python<'_>, object: Py<PyAny>) {
        drop(self.write(py, |tensor| tensor.attach(std::sync::Arc::new(object))));
    }
    /// The tensor of which this one is a view; `None` if it is no view.
    #[getter]
    fn _base(&self, py: Python<'_>) -> Option<PyTensor> {
        self.read(py).base().map(PyTensor::wrap)
    }
    #[getter(_is_parameter)]
    fn get_is_parameter(&self, py: Python<'_>) -> bool {
        self.is_parameter.get(py)
    }
    #[setter(_is_parameter)]
    fn set_is_parameter(&self, py: Python<'_>, on: bool) {
        self.is_parameter.set(py, on);
    }

    /// The value of a tensor of one element as a Python number. Waits for it to be computed.
    ///
    /// Raises:
    ///     RuntimeError: The tensor has more than one element, or none.
    ///
    /// Example:
    ///     >>> gt.tensor([[2.5]]).item()
    ///     2.5
    fn item<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        data::item(py, &self.elements(py)?)
    }
    /// The elements as nested lists of Python numbers; a number for a tensor without axes. Waits for them to be
    /// computed.
    ///
    /// Example:
    ///     >>> gt.tensor([[1, 2], [3, 4]]).tolist()
    ///     [[1, 2], [3, 4]]
    fn tolist<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        data::to_list(py, &self.elements(py)?)
    }
    /// The elements as a NumPy array. Waits for them to be computed.
    ///
    /// On a CPU, the array and the tensor share their elements: what is written to one shows in the other. On a GPU,
    /// the array is a copy. bfloat16 has no NumPy dtype.
    ///
    /// Args:
    ///     force: Whether a tensor that requires grad is accepted.
    ///
    /// Raises:
    ///     RuntimeError: The tensor requires grad, and `force` is false.
    ///
    /// Example:
    ///     >>> gt.tensor([1.0, 2.0]).numpy()
    ///     array([1., 2.], dtype=float32)
    #[pyo3(signature = (*, force=false))]
    fn numpy<'py>(&self, py: Python<'py>, force: bool) -> PyResult<Bound<'py, PyAny>> {
        if !force && self.read(py).requires_grad() {
            return Err(PyRuntimeError::new_err(
                "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.",
            ));
        }
        data::shared_numpy(self, py)
    }
    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let array = self.numpy(py, false)?;
        match (dtype, copy) {
            (Some(dtype), copy) => {
                let always = copy.unwrap_or(false);
                array.call_method("astype", (dtype, "K", "unsafe", true, always), None)
            }
            (None, Some(true)) => array.call_method0("copy"),
            (None, _) => Ok(array),
        }
    }
    fn __bool__(&self, py: Python<'_>) -> PyResult<bool> {
        let elements = self.elements(py)?;
        match elements.meta().shape.numel() {
            1 => data::item(py, &elements)?.is_truthy(),
            0 => Err(PyRuntimeError::new_err("Boolean value of Tensor with no values is ambiguous")),
            _ => Err(PyRuntimeError::new_err("Boolean value of Tensor with more than one value is ambiguous")),
        }
    }
    fn __float__(&self, py: Python<'_>) -> PyResult<f64> {
        let item = real_item(self.item(py)?, "double")?;
        item.call_method0("__float__").or_else(|_| py.get_type::<PyFloat>().call1((&item,)))?.extract()
    }
    fn __int__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        py.get_type::<pyo3::types::PyInt>().call1((real_item(self.item(py)?, "int64_t")?,))
    }
    fn __index__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let meta = self.read(py).meta();
        if meta.dtype.is_inexact() || meta.shape.numel() != 1 {
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
            Some(parts) => Ok(Bound::new(py, slf.get().part(py, &parts)?)?.into_any()),
            None => Ok(advanced_index::get(slf, index)?.into_any()),
        }
    }
    fn __setitem__(slf: &Bound<'_, Self>, index: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = slf.py();
        let Some(parts) = index::parts(index)? else { return advanced_index::set(slf, index, value) };
        let allowed = slf.get().read(py).check_in_place();
        if allowed.is_err() {
            // An index out of range is the first error, as in PyTorch.
            build::resolve_index(&slf.get().read(py).meta().shape, &parts).or_raise()?;
        }
        allowed.or_raise()?;
        if let Ok(part) = value.cast::<PyTensor>() {
            // `x[index] += y` has written the part when it assigns it.
            let (this, part) = (slf.get().read(py), part.get().read(py));
            let (slice, shape) = build::resolve_index(&this.meta().shape, &parts).or_raise()?;
            let fits = build::fitting_shape(part.meta().shape, shape).is_some();
            if fits && this.has_slice_in(&slice, &part) {
                this.count_in_place();
                return Ok(());
            }
        }
        let _operation = slf.get().read(py).begin_in_place();
        let source = match operand(value)? {
            Some(PyOperand::Object(object)) => Ok(object.get().snapshot(py)?),
            Some(PyOperand::Made(tensor)) => Ok(tensor),
            Some(PyOperand::Scalar(scalar)) => Err(scalar),
            None => Ok(data::from_python(value, None)?),
        };
        if slf.get().read(py).is_view() {
            // The part is written to the base, and the rest of this view stays.
            let part = slf.get().view_of(py, false, |g, v| build::index(g, v, &parts))?;
            return PyTensor::write_part(py, &part, source);
        }
        let this = slf.get().snapshot(py)?;
        let result = match &source {
            Ok(source) => {
                build_from(&[&this, source], |g, v| build::set_index(g, v[0], &parts, v[1].into()), |s, v| s.tensor(v))
            }
            Err(scalar) => this.apply(|g, v| build::set_index(g, v, &parts, Arg::Scalar(*scalar))).and_then(|filled| {
                // As after `fill_()`, what was there has a gradient of zeros, which is computed of no other.
                if matches!(parts[..], [build::Index::Ellipsis]) { filled.at(None) } else { Ok(filled) }
            }),
        };
        slf.get().rebind(py, result.or_raise()?, None)
    }

    /// The tensor in another dtype or on another device: `to(dtype)`, `to(device, dtype)` or `to(other)`.
    ///
    /// Args:
    ///     dtype: The dtype to convert to.
    ///     device: `"cpu"` or `"cuda"`, with or without a number; the daemon must have such a device.
    ///     other: A tensor whose dtype is taken.
    ///     non_blocking: Without effect: nothing blocks before elements are read.
    ///     copy: Whether to return a copy even if there is nothing to convert.
    ///
    /// Returns:
    ///     The converted tensor; the tensor itself if there is nothing to convert and `copy` is false.
    ///
    /// Example:
    ///     >>> gt.tensor([1.7, -1.7]).to(gt.int64)
    ///     tensor([ 1, -1])
    ///     >>> x = gt.zeros(2)
    ///     >>> x.to("cpu") is x
    ///     True
    #[pyo3(signature = (*args, **kwargs))]
    fn to<'py>(
        slf: &Bound<'py, Self>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, Self>> {
        let wanted = match Wanted::of(args, kwargs) {
            Err(error) if error.is_instance_of::<MetaDevice>(slf.py()) => {
                let made = slf.py().import("gt._meta")?.call_method1("of", (slf, args, kwargs))?;
                return Ok(made.cast_into::<PyTensor>()?);
            }
            wanted => wanted?,
        };
        match wanted.dtype {
            Some(dtype) if dtype != slf.get().read(slf.py()).meta().dtype => {
                in_format(&cast_to(slf, dtype)?, wanted.format)
            }
            _ if wanted.copy => Bound::new(slf.py(), slf.get().clone(slf.py(), Some(wanted.format))?),
            _ => in_format(slf, wanted.format),
        }
    }
    /// The tensor in another dtype; without `dtype`, the name of its type, such as `gt.FloatTensor`.
    #[pyo3(name = "type", signature = (dtype=None, non_blocking=false))]
    fn type_<'py>(slf: &Bound<'py, Self>, dtype: Option<TypeArg>, non_blocking: bool) -> PyResult<Bound<'py, PyAny>> {
        // Nothing blocks before elements are asked for.
        let _ = non_blocking;
        match dtype {
            Some(TypeArg(dtype)) => cast_to(slf, dtype).map(Bound::into_any),
            None => {
                let name = slf.get().read(slf.py()).meta().dtype.scalar_type_name();
                Ok(format!("{}.{name}Tensor", crate::dtype::package()).into_pyobject(slf.py())?.into_any())
            }
        }
    }
    /// The tensor converted to the dtype of another.
    fn type_as<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, Self>) -> PyResult<Bound<'py, Self>> {
        let dtype = other.get().read(slf.py()).meta().dtype;
        cast_to(slf, dtype)
    }

    /// This tensor if its elements lie in row-major order without gaps; otherwise a copy for which they do.
    ///
    /// Args:
    ///     memory_format: The order; row-major (`gt.contiguous_format`) if not given.
    ///
    /// Example:
    ///     >>> x = gt.zeros(2, 3).T
    ///     >>> x.is_contiguous(), x.contiguous().is_contiguous()
    ///     (False, True)
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

    /// The index of the first element in the memory that PyTorch would have.
    ///
    /// Example:
    ///     >>> gt.zeros(3, 4)[1, 2:].storage_offset()
    ///     6
    fn storage_offset(&self, py: Python<'_>) -> isize {
        self.read(py).storage_offset()
    }

    /// Copies the elements of another tensor into this one, converted to its dtype and broadcast to its shape.
    ///
    /// Example:
    ///     >>> x = gt.zeros(2, 2)
    ///     >>> x.copy_(gt.tensor([1, 2]))
    ///     tensor([[1., 2.],
    ///             [1., 2.]])
    #[pyo3(signature = (source, non_blocking=false))]
    pub fn copy_<'py>(
        slf: &Bound<'py, Self>,
        source: &Bound<'py, PyAny>,
        non_blocking: bool,
    ) -> PyResult<Bound<'py, Self>> {
        // Nothing blocks before elements are asked for.
        let _ = non_blocking;
        let py = slf.py();
        if overrides::of_method(slf, "copy_", source)?.is_some() {
            return Ok(slf.clone());
        }
        slf.get().read(py).check_in_place().or_raise()?;
        let _operation = slf.get().read(py).begin_in_place();
        let meta = slf.get().read(py).meta();
        let source = match operand(source)? {
            Some(PyOperand::Object(object)) => object.get().snapshot(py)?,
            Some(PyOperand::Made(tensor)) => tensor,
            _ => data::from_python(source, None)?,
        };
        let sizes: Vec<i64> = meta.shape.dims().iter().map(|d| *d as i64).collect();
        let since = tape::next_number();
        let copied = source
            .apply(|g, v| {
                let v = build::cast(g, v, meta.dtype)?;
                build::expand(g, v, &sizes)
            })
            .or_raise()?;
        let copied = slf.get().read(py).overwritten_with(copied).or_raise()?;
        slf.get().rebind(py, copied, Some(since))?;
        Ok(slf.clone())
    }
    /// Sets every element to one number.
    ///
    /// Example:
    ///     >>> gt.zeros(3).fill_(7)
    ///     tensor([7., 7., 7.])
    fn fill_<'py>(slf: &Bound<'py, Self>, value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Self>> {
        let py = slf.py();
        let scalar = match operand(value)? {
            Some(PyOperand::Scalar(scalar)) => scalar,
            Some(PyOperand::Object(value)) if value.get().ndim(py) > 0 => {
                return Err(PyRuntimeError::new_err(format!(
                    "fill_ only supports 0-dimension value tensor but got tensor with {} dimensions.",
                    value.get().ndim(py)
                )));
            }
            _ => return PyTensor::copy_(slf, value, false),
        };
        slf.get().read(py).check_in_place().or_raise()?;
        let _operation = slf.get().read(py).begin_in_place();
        if slf.get().fill_part(py, scalar)? {
            return Ok(slf.clone());
        }
        let this = slf.get().read(py);
        let meta = this.meta();
        let full = if !this.shows_all() || meta.bytes() < FILLED_IN_PLACE_BYTES_MIN {
            // The number alone, since reading a view would compute it again.
            let mut scope = Scope::new(&this.session());
            let full = build::full(&mut scope, meta.shape, scalar, meta.dtype);
            scope.finish(full, |scope, v| scope.tensor(v))
        } else {
            this.apply(|g, v| build::fill(g, v, scalar))
        };
        drop(this);
        slf.get().rebind_uniform(py, full.or_raise()?)?;
        Ok(slf.clone())
    }
    /// Sets every element to 0.
    ///
    /// Example:
    ///     >>> gt.ones(3).zero_()
    ///     tensor([0., 0., 0.])
    fn zero_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, Self>> {
        PyTensor::fill_(slf, &0i64.into_pyobject(slf.py())?.into_any())
    }
    /// Binds this object to a view of its tensor, for methods such as `unsqueeze_()`.
    pub(crate) fn _become<'py>(slf: &Bound<'py, Self>, view: &Bound<'py, PyTensor>) -> PyResult<Bound<'py, Self>> {
        slf.get().read(slf.py()).check_in_place().or_raise()?;
        Ok(PyTensor::become_view(slf, view, tape::grad_enabled()))
    }
    /// A context in which an in-place operation of several steps writes this tensor.
    fn _in_place(&self, py: Python<'_>) -> InPlaceContext {
        InPlaceContext { operation: Mutex::new(Some(self.read(py).begin_in_place())) }
    }
    /// Binds this object to another's value: the last step of in-place methods. A method of several operations passes
    /// `tape_clock()` from before the first as `since`.
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
    /// As `_rebind`, after a write to some of the elements, or a sum if `added`: an element may be shown several times.
    #[pyo3(signature = (result, since=None, added=false))]
    fn _rebind_part<'py>(
        slf: &Bound<'py, Self>,
        result: &Bound<'py, PyTensor>,
        since: Option<u64>,
        added: bool,
    ) -> PyResult<Bound<'py, Self>> {
        let py = slf.py();
        let result = result.get().snapshot(py)?;
        let repeats = if added { Repeats::Added } else { Repeats::Changed };
        slf.get().rebind_with(py, result, since, repeats)?;
        Ok(slf.clone())
    }
}

impl PyTensor {
    /// Binds the object to a view of its tensor.
    pub(crate) fn become_view<'py>(
        slf: &Bound<'py, Self>,
        view: &Bound<'py, PyTensor>,
        recorded: bool,
    ) -> Bound<'py, Self> {
        let same = view.get().write(slf.py(), Tensor::same);
        drop(slf.get().write(slf.py(), |tensor| tensor.become_view(same, recorded)));
        slf.clone()
    }

    /// Writes to `part`, a view of this tensor, what an assignment gives.
    fn write_part(py: Python<'_>, part: &PyTensor, source: Result<Tensor, Scalar>) -> PyResult<()> {
        let reading = part.read(py);
        let Meta { shape, dtype } = reading.meta();
        match source {
            Ok(source) => {
                let fitted = source.apply(|g, v| build::fit_source(g, v, dtype, shape)).or_raise()?;
                let fitted = reading.overwritten_with(fitted).or_raise()?;
                drop(reading);
                part.rebind(py, fitted, None)
            }
            Err(number) => {
                drop(reading);
                if part.fill_part(py, number)? {
                    return Ok(());
                }
                let reading = part.read(py);
                let filled = if reading.shows_all() {
                    reading.apply(|g, v| build::set_index(g, v, &[build::Index::Ellipsis], number.into()))
                } else {
                    reading.apply(|g, _| build::filled(g, number, shape, dtype))
                };
                drop(reading);
                part.rebind_uniform(py, filled.or_raise()?)
            }
        }
    }
}

/// The context of an in-place operation that is written in Python.
#[pyclass(frozen, module = "gt._gt")]
pub struct InPlaceContext {
    operation: Mutex<Option<gt_client::InPlaceOperation>>,
}

#[pymethods]
impl InPlaceContext {
    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }
    fn __exit__(&self, _kind: Py<PyAny>, _error: Py<PyAny>, _traceback: Py<PyAny>) {
        let operation = self.operation.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(operation);
    }
}

/// The parsed arguments of `to()`.
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

/// The number of a tensor as a real one, for a conversion to the C++ type `to`.
///
/// # Errors
/// A complex number with an imaginary part.
fn real_item<'py>(item: Bound<'py, PyAny>, to: &str) -> PyResult<Bound<'py, PyAny>> {
    match item.cast::<PyComplex>() {
        Err(_) => Ok(item),
        Ok(number) if number.imag() == 0.0 => Ok(PyFloat::new(item.py(), number.real()).into_any()),
        Ok(number) => Err(PyRuntimeError::new_err(format!(
            "value cannot be converted to type {to} without overflow: {number} has an imaginary part; use .real of the \
             tensor"
        ))),
    }
}

/// The tensor itself, or its elements in `dtype`.
fn cast_to<'py>(slf: &Bound<'py, PyTensor>, dtype: DType) -> PyResult<Bound<'py, PyTensor>> {
    let py = slf.py();
    let own = slf.get().read(py).meta().dtype;
    if own == dtype {
        return Ok(slf.clone());
    }
    if own.is_complex() && !dtype.is_complex() && dtype != DType::Bool {
        let text = c"the conversion of complex numbers to real ones drops their imaginary parts: .real says so";
        PyErr::warn(py, &py.get_type::<PyUserWarning>(), text, 1)?;
    }
    Bound::new(py, slf.get().build(py, |g, v| build::cast(g, v, dtype))?)
}

/// The tensor itself if its elements are in this order, otherwise a copy in this order.
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
                #[doc = concat!("The tensor converted to the dtype that PyTorch calls `", $python, "`.")]
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
    to_cfloat "cfloat" C64;
    to_cdouble "cdouble" C128;
}

/// The dtype that an operation gives two operands, by PyTorch's promotion rules.
///
/// Args:
///     tensor1: A tensor or a number.
///     tensor2: A tensor or a number.
///
/// Example:
///     >>> gt.result_type(gt.tensor([1, 2]), 1.0)
///     gt.float32
#[pyfunction]
#[pyo3(signature = (tensor1, tensor2))]
fn result_type(py: Python<'_>, tensor1: &Bound<'_, PyAny>, tensor2: &Bound<'_, PyAny>) -> PyResult<Py<PyDType>> {
    let promotable = |object: &Bound<'_, PyAny>| -> PyResult<Promotable> {
        let meta = match operand(object)? {
            Some(PyOperand::Object(tensor)) => tensor.get().read(py).meta(),
            Some(PyOperand::Made(tensor)) => tensor.meta(),
            Some(PyOperand::Scalar(scalar)) => return Ok(Promotable::Number(scalar.category())),
            None => return Err(PyTypeError::new_err("result_type(): arguments must be tensors or numbers")),
        };
        let shape = meta.shape;
        Ok(if shape.rank() == 0 { Promotable::ZeroDim(meta.dtype) } else { Promotable::Dimensioned(meta.dtype) })
    };
    instance(py, gt_ops::dtype::result_type([promotable(tensor1)?, promotable(tensor2)?]))
}

/// Adds the functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(operators::elementwise, module)?)?;
    module.add_function(wrap_pyfunction!(operators::along_axis, module)?)?;
    module.add_function(wrap_pyfunction!(advanced_index::index_put, module)?)?;
    module.add_function(wrap_pyfunction!(operators::set_leaf_updates, module)?)?;
    module.add_function(wrap_pyfunction!(result_type, module)?)
}
