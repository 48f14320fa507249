//! NumPy's array interface in C, `__array_struct__`: it takes a tenth of the time of `__array_interface__`, which makes
//! a dictionary.

use gt_ops::DType;
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use std::ffi::{c_char, c_int, c_void};

/// The most axes of NumPy's arrays.
const AXES_MAX: usize = 64;
/// NumPy's `NPY_ARRAY_C_CONTIGUOUS`: the elements follow each other in row-major order.
const CONTIGUOUS: c_int = 0x1;
/// NumPy's `NPY_ARRAY_NOTSWAPPED`: the elements have the machine's byte order.
const NATIVE_ORDER: c_int = 0x200;

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

/// The memory of a NumPy array.
pub struct ArrayStruct<'py> {
    /// The capsule owns the structure and a reference to the array.
    _capsule: Bound<'py, PyAny>,
    /// The dtype, if GT has it in the machine's byte order.
    pub dtype: Option<DType>,
    pub dims: Vec<usize>,
    pub is_contiguous: bool,
    /// The address of the first element.
    pub data: *mut u8,
}

impl<'py> ArrayStruct<'py> {
    /// The memory of `array`.
    ///
    /// # Errors
    /// An object without the interface.
    pub fn of(array: &Bound<'py, PyAny>) -> PyResult<ArrayStruct<'py>> {
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
        Ok(ArrayStruct { _capsule: capsule, dtype, dims, is_contiguous, data })
    }
}

impl ArrayStruct<'_> {
    /// The size of all elements in bytes; 0 without a dtype.
    pub fn bytes(&self) -> usize {
        self.dims.iter().product::<usize>() * self.dtype.map_or(0, DType::size)
    }
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
