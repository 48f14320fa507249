//! Conversion of lists and NumPy arrays to tensors, and of tensors to NumPy arrays, lists and numbers.

use crate::array_struct::{ArrayStruct, is_ndarray, typestr};
use crate::device;
use crate::error::{OrRaise, raise_op};
use crate::host_array::HostArray;
use crate::session::current;
use crate::tensor::PyTensor;
use gt_client::host_memory::HostView;
use gt_client::transfer::UploadSource;
use gt_client::{HostBytes, Tensor, TensorElements};
use gt_ops::build::numbers::checked;
use gt_ops::{DType, Meta, OpError, Scalar, Shape, build};
use gt_shm::ArenaBlock;
use gt_shm::copy::copy_nonoverlapping;
use half::{bf16, f16};
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyComplex, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use std::any::Any;
use std::ffi::{CStr, c_int};
use std::sync::Arc;

/// Arrays of at most this many bytes are copied out of the arena, which has the block back at once: NumPy takes longer
/// to make a view of it than to copy these.
const NUMPY_COPY_BYTES_MAX: usize = 8 << 10;

/// Whether `object` is a number or a list of Python's own, which no attribute needs to be asked for.
fn is_builtin(object: &Bound<'_, PyAny>) -> bool {
    object.is_exact_instance_of::<PyFloat>()
        || object.is_exact_instance_of::<PyInt>()
        || object.is_exact_instance_of::<PyBool>()
        || object.is_exact_instance_of::<PyComplex>()
        || object.is_exact_instance_of::<PyList>()
        || object.is_exact_instance_of::<PyTuple>()
}

/// Whether `object` has NumPy's array interface.
pub fn is_numpy(object: &Bound<'_, PyAny>) -> bool {
    let name = intern!(object.py(), "__array_interface__");
    // Asking the type makes no interface.
    !is_builtin(object) && (object.get_type().hasattr(name).unwrap_or(false) || object.hasattr(name).unwrap_or(false))
}

/// Whether `object` is another library's tensor, as PyTorch's: one that implements DLPack.
pub fn is_foreign(object: &Bound<'_, PyAny>) -> bool {
    !is_builtin(object)
        && !object.is_instance_of::<PyTensor>()
        && object.hasattr(intern!(object.py(), "__dlpack__")).unwrap_or(false)
        && !is_numpy(object)
}

/// Whether `object` is NumPy's array or another library's tensor.
pub fn is_array(object: &Bound<'_, PyAny>) -> bool {
    is_numpy(object) || is_foreign(object)
}

/// A new tensor with an array's elements, or those of another library's tensor, copied.
pub fn from_array(array: &Bound<'_, PyAny>) -> PyResult<Tensor> {
    let py = array.py();
    if !is_numpy(array) {
        static FROM_DLPACK: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let made = FROM_DLPACK.import(py, "gt._placement", "from_dlpack")?.call1((array,))?;
        return made.cast_into::<PyTensor>()?.get().snapshot(py);
    }
    let session = current(py)?;
    let mut array = array.clone();
    // Objects that only have an array interface, such as images of Pillow.
    if !is_ndarray(&array)? && !array.hasattr(intern!(py, "__array_struct__"))? {
        array = numpy(py)?.call_method1(intern!(py, "asarray"), (array,))?;
    }
    let mut memory = ArrayStruct::of(&array)?;
    let meta = meta_of(&array, &memory)?;
    if !memory.is_contiguous {
        memory = memory.in_order(&array)?;
    }
    let value = session.upload(meta, UploadSource::from(memory.as_slice())).or_raise()?;
    Ok(Tensor::new(value, None))
}

/// The shape and dtype of an array.
///
/// # Errors
/// A dtype or a number of axes that GT does not have.
fn meta_of(array: &Bound<'_, PyAny>, memory: &ArrayStruct<'_>) -> PyResult<Meta> {
    let Some(dtype) = memory.dtype else {
        let name = array.getattr("dtype").map_or_else(|_| "?".to_owned(), |d| d.to_string());
        return Err(PyTypeError::new_err(format!(
            "can't convert np.ndarray of type {name}. The only supported types are: float64, float32, float16, \
             complex64, complex128, int64, int32, int16, int8, uint64, uint32, uint16, uint8, and bool."
        )));
    };
    Ok(Meta::new(Shape::new(&memory.dims).map_err(raise_op)?, dtype))
}

/// As [`from_array`]; on a CPU, what is written to NumPy's own array changes the tensor, and the other way round.
pub fn share_array(array: &Bound<'_, PyAny>) -> PyResult<Tensor> {
    if !is_ndarray(array)? {
        return from_array(array);
    }
    let (session, memory) = (current(array.py())?, ArrayStruct::of(array)?);
    let meta = meta_of(array, &memory)?;
    if !memory.is_writable || meta.bytes() == 0 || device::has_cuda(session.info()) {
        return from_array(array);
    }
    Ok(Tensor::of_host_memory(meta, &session, Arc::new(HostArray::new(array, &memory))))
}

/// Whether a tensor shares memory with NumPy's arrays, as PyTorch's do on CPUs: those on a GPU are copies.
fn shares_memory(tensor: &Tensor) -> bool {
    !device::has_cuda(tensor.session().info())
}

/// The module `numpy`.
fn numpy(py: Python<'_>) -> PyResult<Bound<'_, PyModule>> {
    py.import(intern!(py, "numpy"))
}

/// Numbers of nested sequences, flattened, with the shape of the nesting.
#[derive(Default)]
struct Nested {
    dims: Vec<usize>,
    ints: Vec<i64>,
    floats: Vec<f64>,
    /// The imaginary parts, if any number is complex; `floats` are the real ones.
    imaginary: Vec<f64>,
    /// The highest category found: 0 bool, 1 int, 2 float, 3 complex.
    category: u8,
    /// An integer beyond int64 was found: `floats` has the numbers, also if all are integers. In that case `ints` has
    /// their bits, for uint64.
    beyond: bool,
    /// An integer was found that is beyond uint64, too.
    beyond_uint64: bool,
}

impl Nested {
    fn read(&mut self, object: &Bound<'_, PyAny>, depth: usize) -> PyResult<()> {
        if object.is_instance_of::<PyTensor>() && object.getattr("ndim")?.extract::<usize>()? > 0 {
            return self.read(&object.call_method0("tolist")?, depth);
        }
        if !is_sequence(object)? {
            return self.leaf(object, depth);
        }
        let len = object.len()?;
        if depth == self.dims.len() {
            if self.count() > 0 {
                return Err(PyTypeError::new_err("a sequence where earlier elements are numbers"));
            }
            self.dims.push(len);
        } else if self.dims[depth] != len {
            return Err(PyValueError::new_err(format!(
                "expected sequence of length {} at dim {depth} (got {len})",
                self.dims[depth]
            )));
        }
        object.try_iter()?.try_for_each(|item| self.read(&item?, depth + 1))
    }

    fn leaf(&mut self, object: &Bound<'_, PyAny>, depth: usize) -> PyResult<()> {
        if depth < self.dims.len() {
            return Err(PyTypeError::new_err(format!("not a sequence: a number at dim {depth} among sequences")));
        }
        let item;
        let number = match object.is_exact_instance_of::<PyInt>() && object.extract::<i64>().is_err() {
            true => None,
            false => Some(crate::convert::number(object)?),
        };
        let Some(number) = number else {
            self.widen();
            self.beyond = true;
            self.category = self.category.max(1);
            if self.category == 1 {
                let bits = object.extract::<u64>();
                self.beyond_uint64 |= bits.is_err();
                self.ints.push(bits.unwrap_or(0) as i64);
            } else if self.category == 3 {
                self.imaginary.push(0.0);
            }
            self.floats.push(object.extract()?);
            return Ok(());
        };
        let scalar = match number {
            Some(scalar) => scalar,
            // A tensor of one element or a NumPy scalar stands for its number.
            None if object.hasattr("item")? => {
                item = object.call_method0("item")?;
                crate::convert::number(&item)?.ok_or_else(|| not_a_number(&item))?
            }
            None => return Err(not_a_number(object)),
        };
        if scalar.category() >= 2 {
            self.widen();
            self.ints = Vec::new();
        }
        if self.category < 3 && scalar.category() == 3 {
            self.imaginary = vec![0.0; self.floats.len()];
        }
        self.category = self.category.max(scalar.category());
        match self.category {
            3 => {
                let (re, im) = scalar.parts();
                self.floats.push(re);
                self.imaginary.push(im);
            }
            2 => self.floats.push(scalar.to_f64()),
            _ => {
                if self.beyond {
                    self.floats.push(scalar.to_f64());
                }
                self.ints.push(scalar.to_i64())
            }
        }
        Ok(())
    }

    /// Whether `floats` has the numbers, not `ints`.
    fn is_wide(&self) -> bool {
        self.category >= 2 || self.beyond
    }

    fn widen(&mut self) {
        if !self.is_wide() {
            self.floats = self.ints.iter().map(|i| *i as f64).collect();
        }
    }

    /// Checks that the numbers are in the range of `dtype`.
    ///
    /// # Errors
    /// PyTorch's, for a number that is not.
    fn check(&self, dtype: DType) -> PyResult<()> {
        if dtype.is_inexact() || dtype == DType::Bool {
            return Ok(());
        }
        if dtype == DType::U64 && self.category < 2 {
            let negative =
                if self.beyond { self.floats.iter().any(|f| *f < 0.0) } else { self.ints.iter().any(|i| *i < 0) };
            return match (negative, self.beyond_uint64) {
                (true, _) => Err(PyOverflowError::new_err(
                    "can't convert negative int to unsigned: uint64 holds 0 to 18446744073709551615",
                )),
                (_, true) => {
                    Err(PyOverflowError::new_err("int too big to convert: uint64 holds 0 to 18446744073709551615"))
                }
                (false, false) => Ok(()),
            };
        }
        if self.beyond {
            return Err(PyValueError::new_err(format!(
                "Overflow when unpacking long long: an integer is beyond int64, and the tensor is of {dtype}. A \
                 floating-point dtype has larger numbers."
            )));
        }
        if dtype == DType::I64 && !self.is_wide() {
            return Ok(());
        }
        let check = |number| checked(number, dtype).map(drop).map_err(raise_op);
        self.ints.iter().map(|i| Scalar::Int(*i)).try_for_each(check)?;
        self.floats.iter().map(|f| Scalar::Float(*f)).try_for_each(check)
    }

    fn count(&self) -> usize {
        self.ints.len().max(self.floats.len())
    }
}

/// Whether `object` is a list or another sequence.
fn is_sequence(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    if object.is_instance_of::<PyList>() || object.is_instance_of::<PyTuple>() {
        return Ok(true);
    }
    let plain = object.is_instance_of::<PyFloat>()
        || object.is_instance_of::<PyInt>()
        || crate::convert::number(object)?.is_some()
        || object.is_instance_of::<PyTensor>()
        || object.is_instance_of::<PyString>()
        || object.is_instance_of::<PyDict>()
        || is_array(object);
    Ok(!plain && object.hasattr("__len__")? && object.hasattr("__getitem__")?)
}

fn not_a_number(object: &Bound<'_, PyAny>) -> PyErr {
    let kind = object.get_type().name().map_or_else(|_| "?".into(), |n| n.to_string());
    PyTypeError::new_err(format!("expected a number, a sequence of them or an array, but got {kind}"))
}

/// The numbers converted to `dtype`, as bytes.
fn pack(nested: &Nested, dtype: DType) -> Vec<u8> {
    macro_rules! bytes {
        ($convert:expr) => {
            if nested.is_wide() && !(nested.category < 2 && dtype == DType::U64) {
                let numbers = nested.floats.iter().map(|f| $convert(Scalar::Float(*f)).to_le_bytes());
                numbers.collect::<Vec<_>>().into_flattened()
            } else {
                let numbers = nested.ints.iter().map(|i| $convert(Scalar::Int(*i)).to_le_bytes());
                numbers.collect::<Vec<_>>().into_flattened()
            }
        };
    }
    let part = |i: usize| (nested.floats[i], nested.imaginary.get(i).copied().unwrap_or(0.0));
    let numbers = || -> Vec<(f64, f64)> {
        match nested.is_wide() {
            true => (0..nested.floats.len()).map(part).collect(),
            false => nested.ints.iter().map(|i| (*i as f64, 0.0)).collect(),
        }
    };
    match dtype {
        DType::Bool if nested.category == 3 => {
            numbers().iter().map(|(re, im)| u8::from(*re != 0.0 || *im != 0.0)).collect()
        }
        DType::Bool => bytes!(|s: Scalar| s.to_bool() as u8),
        DType::U8 => bytes!(|s: Scalar| s.to_i64() as u8),
        DType::I8 => bytes!(|s: Scalar| s.to_i64() as i8),
        DType::I16 => bytes!(|s: Scalar| s.to_i64() as i16),
        DType::I32 => bytes!(|s: Scalar| s.to_i64() as i32),
        DType::I64 => bytes!(|s: Scalar| s.to_i64()),
        DType::F16 => bytes!(|s: Scalar| f16::from_f64(s.to_f64())),
        DType::BF16 => bytes!(|s: Scalar| bf16::from_f64(s.to_f64())),
        DType::F32 => bytes!(|s: Scalar| s.to_f64() as f32),
        DType::F64 => bytes!(|s: Scalar| s.to_f64()),
        DType::U16 => bytes!(|s: Scalar| s.to_i64() as u16),
        DType::U32 => bytes!(|s: Scalar| s.to_i64() as u32),
        DType::U64 => bytes!(|s: Scalar| match s {
            Scalar::Float(f) if f > 0.0 => f as u64,
            other => other.to_i64() as u64,
        }),
        DType::C64 => {
            numbers().iter().flat_map(|(re, im)| [*re as f32, *im as f32]).flat_map(f32::to_le_bytes).collect()
        }
        DType::C128 => numbers().iter().flat_map(|(re, im)| [*re, *im]).flat_map(f64::to_le_bytes).collect(),
    }
}

/// A new tensor from numbers, nested sequences, an array or another tensor.
pub fn from_python(data: &Bound<'_, PyAny>, dtype: Option<DType>) -> PyResult<Tensor> {
    converted(data, dtype, from_array)
}

/// As [`from_python`]; a tensor of an array's dtype shares the array's memory where [`share_array`] does.
pub fn from_python_shared(data: &Bound<'_, PyAny>, dtype: Option<DType>) -> PyResult<Tensor> {
    converted(data, dtype, share_array)
}

fn converted(
    data: &Bound<'_, PyAny>,
    dtype: Option<DType>,
    of_array: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<Tensor>,
) -> PyResult<Tensor> {
    let py = data.py();
    let made = if let Ok(tensor) = data.cast::<PyTensor>() {
        tensor.get().read(py).at(None).or_raise()?
    } else if is_array(data) {
        of_array(data)?
    } else if let Some(stacked) = stack_arrays(data)? {
        from_array(&stacked)?
    } else {
        let mut nested = Nested::default();
        nested.read(data, 0)?;
        let natural = match nested.category {
            _ if nested.count() == 0 => DType::default_float(),
            0 => DType::Bool,
            1 => DType::I64,
            2 => DType::default_float(),
            _ => DType::default_complex(),
        };
        let dtype = dtype.unwrap_or(natural);
        if nested.category == 3 && !dtype.is_complex() && dtype != DType::Bool {
            return Err(PyTypeError::new_err(format!(
                "can't convert complex numbers to {dtype}: use .real of the tensor"
            )));
        }
        let meta = Meta::new(Shape::new(&nested.dims).map_err(raise_op)?, dtype);
        nested.check(dtype)?;
        let bytes = pack(&nested, dtype);
        let value = current(py)?.upload(meta, UploadSource::from(&bytes[..])).or_raise()?;
        Tensor::new(value, None)
    };
    match dtype {
        Some(dtype) if made.meta().dtype != dtype => made.apply(|g, v| build::cast(g, v, dtype)).or_raise(),
        _ => Ok(made),
    }
}

/// Stacks a list of arrays with NumPy, which is faster than reading element by element; `None` for any other object.
fn stack_arrays<'py>(data: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let Ok(list) = data.cast::<PyList>() else { return Ok(None) };
    let arrays = !list.is_empty()
        && list.iter().all(|item| {
            is_array(&item) && item.getattr("ndim").and_then(|n| n.extract::<usize>()).is_ok_and(|n| n > 0)
        });
    if arrays { numpy(data.py())?.call_method1("stack", (data,)).map(Some) } else { Ok(None) }
}

/// The owner of a tensor's bytes in the arena: NumPy's view of them keeps it alive.
#[pyclass(frozen, module = "gt")]
pub struct ArenaArray {
    block: ArenaBlock,
    meta: Meta,
}

#[pymethods]
impl ArenaArray {
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("typestr", typestr(self.meta.dtype))?;
        interface.set_item("shape", PyTuple::new(py, self.meta.shape.dims())?)?;
        interface.set_item("data", (self.block.as_ptr() as usize, false))?;
        Ok(interface)
    }
}

/// The elements as a NumPy array: small ones copied, others in the arena, into which the daemon copied them.
pub fn to_numpy<'py>(py: Python<'py>, elements: &TensorElements) -> PyResult<Bound<'py, PyAny>> {
    Ok(fetched_array(py, elements, |_, _, _| ())?.0)
}

/// As [`to_numpy`]. `look` sees the array, its memory and its bytes.
fn fetched_array<'py, T>(
    py: Python<'py>,
    elements: &TensorElements,
    look: impl FnOnce(&Bound<'py, PyAny>, &ArrayStruct<'py>, &[u8]) -> T,
) -> PyResult<(Bound<'py, PyAny>, T)> {
    let meta = *elements.meta();
    let Some(code) = typestr(meta.dtype) else {
        return Err(PyTypeError::new_err("Got unsupported ScalarType BFloat16: NumPy has none; use .float().numpy()"));
    };
    match elements.fetch().or_raise()? {
        HostBytes::Fetched(block) if meta.bytes() > NUMPY_COPY_BYTES_MAX => {
            let array = Py::new(py, ArenaArray { block: block.into_block(), meta })?;
            let array = numpy(py)?.call_method1(intern!(py, "asarray"), (array,))?;
            let memory = ArrayStruct::of(&array)?;
            let seen = look(&array, &memory, memory.as_slice());
            Ok((array, seen))
        }
        bytes => {
            static EMPTY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
            let shape = PyTuple::new(py, meta.shape.dims())?;
            let array = EMPTY.import(py, "numpy", "empty")?.call1((shape, code))?;
            let memory = ArrayStruct::of(&array)?;
            if !memory.is_contiguous || memory.bytes() != bytes.len() {
                return Err(PyValueError::new_err("numpy.empty made another array than asked for"));
            }
            // SAFETY: the new array, which nothing else refers to, has as many contiguous bytes, as checked above.
            unsafe { copy_nonoverlapping(bytes.as_ptr(), memory.data, bytes.len()) };
            let seen = look(&array, &memory, &bytes);
            Ok((array, seen))
        }
    }
}

/// The elements as a NumPy array; on a CPU, what is written to it changes the tensor, and the other way round.
pub fn shared_numpy<'py>(tensor: &PyTensor, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
    if let Some(array) = host_array(py, &tensor.read(py))? {
        return Ok(array);
    }
    let elements = tensor.elements(py)?;
    if elements.meta().bytes() == 0 || !shares_memory(&tensor.read(py)) {
        return to_numpy(py, &elements);
    }
    let whole = tensor.read(py).whole();
    if let Some(mut whole) = whole.filter(|whole| typestr(whole.meta().dtype).is_some()) {
        let array = match host_array(py, &whole)? {
            Some(array) => array,
            None => {
                let (array, view) = new_host_array(py, &whole, &whole.elements().or_raise()?)?;
                whole.show_in(view);
                array
            }
        };
        if let Some(part) = part_of(&array, &tensor.read(py))? {
            return Ok(part);
        }
    }
    let (array, view) = new_host_array(py, &tensor.read(py), &elements)?;
    tensor.write(py, |tensor| tensor.show_in(view));
    Ok(array)
}

/// A new array of a tensor's elements, and the view of it for [`Tensor::show_in`].
fn new_host_array<'py>(
    py: Python<'py>,
    tensor: &Tensor,
    elements: &TensorElements,
) -> PyResult<(Bound<'py, PyAny>, HostView)> {
    fetched_array(py, elements, |array, memory, bytes| tensor.host_view(Arc::new(HostArray::new(array, memory)), bytes))
}

/// An array of the memory that shows a tensor's elements, if there is any.
fn host_array<'py>(py: Python<'py>, tensor: &Tensor) -> PyResult<Option<Bound<'py, PyAny>>> {
    let Some(memory) = tensor.host_memory() else { return Ok(None) };
    (&*memory as &dyn Any).downcast_ref::<HostArray>().map(|array| array.another(py)).transpose()
}

/// The elements of a view in the array of all elements of its storage; none if that is not contiguous.
fn part_of<'py>(array: &Bound<'py, PyAny>, view: &Tensor) -> PyResult<Option<Bound<'py, PyAny>>> {
    let (py, meta, strides) = (array.py(), view.meta(), view.strides());
    let Some(code) = typestr(meta.dtype).filter(|_| ArrayStruct::of(array).is_ok_and(|memory| memory.is_contiguous))
    else {
        return Ok(None);
    };
    static NDARRAY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let size = meta.dtype.size() as isize;
    let strides = strides[..meta.shape.rank()].iter().map(|stride| stride * size);
    let place = (view.storage_offset() * size, PyTuple::new(py, strides)?);
    let arguments = (PyTuple::new(py, meta.shape.dims())?, code, array, place.0, place.1);
    NDARRAY.import(py, "numpy", "ndarray")?.call1(arguments).map(Some)
}

/// Element `i` of packed bytes, as a Python number.
fn element<'py>(py: Python<'py>, bytes: &[u8], dtype: DType, i: usize) -> PyResult<Bound<'py, PyAny>> {
    let at = &bytes[i * dtype.size()..][..dtype.size()];
    macro_rules! get {
        ($t:ty) => {{
            let mut raw = [0; size_of::<$t>()];
            raw.copy_from_slice(at);
            <$t>::from_le_bytes(raw)
        }};
    }
    Ok(match dtype {
        DType::Bool => PyBool::new(py, at[0] != 0).to_owned().into_any(),
        DType::U8 => get!(u8).into_pyobject(py)?.into_any(),
        DType::I8 => get!(i8).into_pyobject(py)?.into_any(),
        DType::I16 => get!(i16).into_pyobject(py)?.into_any(),
        DType::I32 => get!(i32).into_pyobject(py)?.into_any(),
        DType::I64 => get!(i64).into_pyobject(py)?.into_any(),
        DType::F16 => PyFloat::new(py, get!(f16).to_f64()).into_any(),
        DType::BF16 => PyFloat::new(py, get!(bf16).to_f64()).into_any(),
        DType::F32 => PyFloat::new(py, get!(f32) as f64).into_any(),
        DType::F64 => PyFloat::new(py, get!(f64)).into_any(),
        DType::U16 => get!(u16).into_pyobject(py)?.into_any(),
        DType::U32 => get!(u32).into_pyobject(py)?.into_any(),
        DType::U64 => get!(u64).into_pyobject(py)?.into_any(),
        DType::C64 | DType::C128 => {
            let parts = [0, 1].map(|part| element(py, bytes, dtype.storage(), 2 * i + part));
            let [re, im] = parts;
            PyComplex::from_doubles(py, re?.extract()?, im?.extract()?).into_any()
        }
    })
}

/// The bytes of the elements, row-major.
pub fn bytes_of(tensor: &Tensor) -> PyResult<Vec<u8>> {
    Ok(tensor.elements().or_raise()?.fetch().or_raise()?.to_vec())
}

/// The value of a tensor of one element as a Python number.
pub fn item<'py>(py: Python<'py>, elements: &TensorElements) -> PyResult<Bound<'py, PyAny>> {
    let meta = elements.meta();
    let count = meta.shape.numel();
    if count != 1 {
        return Err(raise_op(OpError::runtime(format!(
            "a Tensor with {count} elements cannot be converted to Scalar"
        ))));
    }
    element(py, &elements.fetch().or_raise()?, meta.dtype, 0)
}

/// Numbers of so few elements are made in less time than a `memoryview` takes to be.
const FEW_ELEMENTS_MAX: usize = 24;

/// The elements as nested lists; a number for a tensor without axes.
pub fn to_list<'py>(py: Python<'py>, elements: &TensorElements) -> PyResult<Bound<'py, PyAny>> {
    let meta = elements.meta();
    let fetched = elements.fetch().or_raise()?;
    let bytes = &fetched[..];
    let dims = meta.shape.dims();
    if dims.is_empty() {
        return element(py, bytes, meta.dtype, 0);
    }
    if bytes.is_empty() {
        return empty_lists(py, dims).map(Bound::into_any);
    }
    if meta.shape.numel() <= FEW_ELEMENTS_MAX {
        return lists_by_element(py, bytes, meta.dtype, dims).map(Bound::into_any);
    }
    match meta.dtype {
        DType::F16 => lists_of(py, &widened(bytes, |raw| f16::from_le_bytes(raw).to_f64()), c"d", dims),
        DType::BF16 => lists_of(py, &widened(bytes, |raw| bf16::from_le_bytes(raw).to_f64()), c"d", dims),
        DType::Bool => lists_of(py, bytes, c"?", dims),
        DType::U8 => lists_of(py, bytes, c"B", dims),
        DType::I8 => lists_of(py, bytes, c"b", dims),
        DType::I16 => lists_of(py, bytes, c"h", dims),
        DType::I32 => lists_of(py, bytes, c"i", dims),
        DType::I64 => lists_of(py, bytes, c"q", dims),
        DType::F32 => lists_of(py, bytes, c"f", dims),
        DType::F64 => lists_of(py, bytes, c"d", dims),
        DType::U16 => lists_of(py, bytes, c"H", dims),
        DType::U32 => lists_of(py, bytes, c"I", dims),
        DType::U64 => lists_of(py, bytes, c"Q", dims),
        // The `struct` module has no format for complex numbers.
        DType::C64 | DType::C128 => lists_by_element(py, bytes, meta.dtype, dims).map(Bound::into_any),
    }
}

/// Elements as nested lists, of numbers that are made one by one.
fn lists_by_element<'py>(py: Python<'py>, bytes: &[u8], dtype: DType, dims: &[usize]) -> PyResult<Bound<'py, PyList>> {
    let [len, inner @ ..] = dims else { return Ok(PyList::empty(py)) };
    match (dtype, inner) {
        (DType::F32, []) => return PyList::new(py, bytes.as_chunks().0.iter().map(|raw| f32::from_le_bytes(*raw))),
        (DType::F64, []) => return PyList::new(py, bytes.as_chunks().0.iter().map(|raw| f64::from_le_bytes(*raw))),
        (DType::I64, []) => return PyList::new(py, bytes.as_chunks().0.iter().map(|raw| i64::from_le_bytes(*raw))),
        _ => {}
    }
    let step = bytes.len() / len.max(&1);
    let items = (0..*len).map(|i| match inner {
        [] => element(py, bytes, dtype, i),
        _ => lists_by_element(py, &bytes[i * step..][..step], dtype, inner).map(Bound::into_any),
    });
    PyList::new(py, items.collect::<PyResult<Vec<_>>>()?)
}

/// Packed elements of two bytes, converted to packed floats of eight.
fn widened(bytes: &[u8], convert: impl Fn([u8; 2]) -> f64) -> Vec<u8> {
    bytes.as_chunks().0.iter().map(|raw| convert(*raw).to_le_bytes()).collect::<Vec<_>>().into_flattened()
}

/// CPython's `PyBUF_READ`, which its stable ABI has had a name for only since 3.11.
const READ_ONLY: c_int = 0x100;

/// Packed elements of one of the `struct` module's formats as nested lists. A `memoryview` makes them: its `tolist` is
/// faster than calls of the interpreter's for each element.
fn lists_of<'py>(py: Python<'py>, bytes: &[u8], format: &CStr, dims: &[usize]) -> PyResult<Bound<'py, PyAny>> {
    let start = bytes.as_ptr().cast_mut().cast();
    // SAFETY: the view is read only, `bytes` are `bytes.len()` readable bytes, and `tolist` copies them before the view
    // and the one that `cast` makes of it are dropped, at the end of this function.
    let view = unsafe {
        let view = ffi::PyMemoryView_FromMemory(start, bytes.len() as isize, READ_ONLY);
        Bound::from_owned_ptr_or_err(py, view)?
    };
    let shaped = view.call_method1(intern!(py, "cast"), (format, PyTuple::new(py, dims)?))?;
    shaped.call_method0(intern!(py, "tolist"))
}

/// Nested lists without elements: some size is 0.
fn empty_lists<'py>(py: Python<'py>, dims: &[usize]) -> PyResult<Bound<'py, PyList>> {
    let [len, inner @ ..] = dims else { return Ok(PyList::empty(py)) };
    PyList::new(py, (0..*len).map(|_| empty_lists(py, inner)).collect::<PyResult<Vec<_>>>()?)
}
