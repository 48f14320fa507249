//! The memory of arrays. NumPy's own are read by the C structures of its binary interface, in a few nanoseconds. Others
//! have `__array_struct__`, NumPy's array interface in C, which takes a tenth of the time of `__array_interface__`.

use gt_ops::DType;
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use smallvec::SmallVec;
use std::ffi::{c_char, c_int, c_void};

/// The most axes of NumPy's arrays.
const AXES_MAX: usize = 64;
/// NumPy's `NPY_ARRAY_C_CONTIGUOUS`: the elements follow each other in row-major order.
const CONTIGUOUS: c_int = 0x1;
/// NumPy's `NPY_ARRAY_NOTSWAPPED`: the elements have the machine's byte order.
const NATIVE_ORDER: c_int = 0x200;

/// NumPy's `NPY_ARRAY_WRITEABLE`.
const WRITABLE: c_int = 0x400;

/// NumPy's `PyArrayInterface`.
#[repr(C)]
struct PyArrayInterface {
    /// Always 2.
    two: c_int,
    nd: c_int,
    typekind: c_char,
    itemsize: c_int,
    flags: c_int,
    shape: *const isize,
    strides: *const isize,
    data: *mut c_void,
    descr: *mut ffi::PyObject,
}

/// The first fields of NumPy's `PyArrayObject_fields`, which are those of every release since 1.7.
#[repr(C)]
struct PyArrayObject {
    head: ffi::PyObject,
    data: *mut u8,
    nd: c_int,
    dimensions: *const isize,
    strides: *const isize,
    base: *mut ffi::PyObject,
    descr: *const PyArrayDescr,
    flags: c_int,
}

/// The first fields of NumPy's `PyArray_Descr`, which are those of NumPy 1 and 2.
#[repr(C)]
struct PyArrayDescr {
    head: ffi::PyObject,
    typeobj: *mut ffi::PyTypeObject,
    kind: c_char,
    r#type: c_char,
    byteorder: c_char,
    flags: c_char,
    type_num: c_int,
}

/// Whether `object` is NumPy's own array.
pub fn is_ndarray(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    static NDARRAY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    object.is_instance(NDARRAY.import(object.py(), "numpy", "ndarray")?)
}

/// The memory of a NumPy array.
pub struct ArrayStruct<'py> {
    /// The array, or a capsule that owns the structure and a reference to the array.
    _owner: Bound<'py, PyAny>,
    /// The dtype, if GT has it in the machine's byte order.
    pub dtype: Option<DType>,
    pub dims: SmallVec<[usize; 4]>,
    pub is_contiguous: bool,
    /// Whether the elements can be written by the array.
    pub is_writable: bool,
    /// The address of the first element.
    pub data: *mut u8,
}

impl<'py> ArrayStruct<'py> {
    /// The memory of `array`.
    ///
    /// # Errors
    /// An object without the interface.
    pub fn of(array: &Bound<'py, PyAny>) -> PyResult<ArrayStruct<'py>> {
        if is_ndarray(array)? {
            return Ok(ArrayStruct::of_ndarray(array));
        }
        let capsule = array.getattr(intern!(array.py(), "__array_struct__"))?;
        let wrong = || PyTypeError::new_err("an array whose __array_struct__ is not NumPy's");
        // SAFETY: the object is valid. An object that is no capsule, or one with a name, gives NULL and an exception.
        let found = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), std::ptr::null()) };
        if found.is_null() {
            return Err(PyErr::fetch(array.py()));
        }
        // SAFETY: the protocol says that the capsule without a name that `__array_struct__` returns has a
        // `PyArrayInterface`, which lives as long as the capsule.
        let interface = unsafe { &*found.cast::<PyArrayInterface>() };
        let rank = usize::try_from(interface.nd).ok().filter(|rank| *rank <= AXES_MAX).ok_or_else(wrong)?;
        if interface.two != 2 {
            return Err(wrong());
        }
        let sizes = match rank {
            0 => &[],
            // SAFETY: the interface has the sizes of `nd` axes, which live as long as the capsule.
            _ => unsafe { std::slice::from_raw_parts(interface.shape, rank) },
        };
        let dims = sizes.iter().map(|size| usize::try_from(*size).map_err(|_| wrong())).collect::<PyResult<_>>()?;
        let in_order = interface.itemsize == 1 || interface.flags & NATIVE_ORDER != 0;
        let dtype = dtype(interface.typekind as u8, interface.itemsize).filter(|_| in_order);
        let (data, is_contiguous) = (interface.data.cast(), interface.flags & CONTIGUOUS != 0);
        let is_writable = interface.flags & WRITABLE != 0;
        Ok(ArrayStruct { _owner: capsule, dtype, dims, is_contiguous, is_writable, data })
    }

    /// The memory of NumPy's own array.
    fn of_ndarray(array: &Bound<'py, PyAny>) -> ArrayStruct<'py> {
        // SAFETY: an instance of `numpy.ndarray` begins with these fields, which no other thread changes while this one
        // holds the GIL.
        let fields = unsafe { &*array.as_ptr().cast::<PyArrayObject>() };
        // SAFETY: every array has a `PyArray_Descr`, which begins with these fields.
        let descr = unsafe { &*fields.descr };
        let dims = match usize::try_from(fields.nd) {
            // SAFETY: an array of `nd` axes has their sizes there.
            Ok(rank) if rank > 0 => unsafe { std::slice::from_raw_parts(fields.dimensions, rank) },
            _ => &[],
        };
        let in_order = descr.byteorder as u8 != b'>';
        ArrayStruct {
            _owner: array.clone(),
            dtype: dtype_of_number(descr.type_num).filter(|_| in_order),
            dims: dims.iter().map(|size| size.unsigned_abs()).collect(),
            is_contiguous: fields.flags & CONTIGUOUS != 0,
            is_writable: fields.flags & WRITABLE != 0,
            data: fields.data,
        }
    }
}

impl ArrayStruct<'_> {
    /// The memory of a copy of `array`, whose structure this is, in row-major order without gaps.
    ///
    /// # Errors
    /// An array that is not contiguous even after NumPy has made it so.
    pub fn in_order<'py>(&self, array: &Bound<'py, PyAny>) -> PyResult<ArrayStruct<'py>> {
        let py = array.py();
        let copy = py.import(intern!(py, "numpy"))?.call_method1(intern!(py, "ascontiguousarray"), (array,))?;
        let memory = ArrayStruct::of(&copy)?;
        if !memory.is_contiguous || memory.bytes() != self.bytes() {
            return Err(PyTypeError::new_err("an array that is not contiguous even after np.ascontiguousarray"));
        }
        Ok(memory)
    }

    /// The elements' bytes in row-major order; none if there are gaps between them.
    pub fn as_slice(&self) -> &[u8] {
        if !self.is_contiguous || self.bytes() == 0 {
            return &[];
        }
        // SAFETY: the interface says that the contiguous elements have as many bytes from `data` on, and the capsule
        // keeps the array alive.
        unsafe { std::slice::from_raw_parts(self.data, self.bytes()) }
    }

    /// The size of all elements in bytes; 0 without a dtype.
    pub fn bytes(&self) -> usize {
        self.dims.iter().product::<usize>() * self.dtype.map_or(0, DType::size)
    }
}

/// The dtype that has a number in NumPy's `NPY_TYPES`, where `long` has 64 bits.
fn dtype_of_number(number: c_int) -> Option<DType> {
    Some(match number {
        0 => DType::Bool,
        1 => DType::I8,
        2 => DType::U8,
        3 => DType::I16,
        4 => DType::U16,
        5 => DType::I32,
        6 => DType::U32,
        7 | 9 => DType::I64,
        8 | 10 => DType::U64,
        11 => DType::F32,
        12 => DType::F64,
        14 => DType::C64,
        15 => DType::C128,
        23 => DType::F16,
        _ => return None,
    })
}

/// The dtype of elements of a kind, the second character of [`typestr`], and a size in bytes.
fn dtype(kind: u8, size: c_int) -> Option<DType> {
    let is_it = |dtype: &DType| typestr(*dtype).is_some_and(|code| code.as_bytes()[1] == kind);
    DType::ALL.into_iter().find(|dtype| usize::try_from(size) == Ok(dtype.size()) && is_it(dtype))
}

/// NumPy's type string of a dtype, as `<f4`.
pub fn typestr(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
        DType::Bool => "|b1",
        DType::U8 => "|u1",
        DType::I8 => "|i1",
        DType::I16 => "<i2",
        DType::I32 => "<i4",
        DType::I64 => "<i8",
        DType::F16 => "<f2",
        DType::F32 => "<f4",
        DType::F64 => "<f8",
        DType::U16 => "<u2",
        DType::U32 => "<u4",
        DType::U64 => "<u8",
        DType::C64 => "<c8",
        DType::C128 => "<c16",
        DType::BF16 => return None,
    })
}
