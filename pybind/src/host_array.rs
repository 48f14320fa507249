//! NumPy arrays that share their elements with tensors.

use crate::array_struct::ArrayStruct;
use crate::gil::keep_interrupt;
use gt_client::host_memory::HostMemory;
use gt_client::{ClientError, Result};
use gt_shm::copy::copy_nonoverlapping;
use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;

/// A NumPy array that has the elements of a tensor.
pub struct HostArray {
    array: Py<PyAny>,
    bytes: usize,
    /// The address of the elements, if they are contiguous.
    data: Option<usize>,
}

impl HostArray {
    /// `array`, whose memory is `memory`.
    pub fn new(array: &Bound<'_, PyAny>, memory: &ArrayStruct<'_>) -> HostArray {
        let data = memory.is_contiguous.then_some(memory.data as usize);
        HostArray { array: array.clone().unbind(), bytes: memory.bytes(), data }
    }

    /// Another array of the same memory.
    pub fn another<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.array.bind(py).call_method0(intern!(py, "view"))
    }

    /// Calls `with` on the array's memory.
    fn with_memory(&self, with: impl FnOnce(&Bound<'_, PyAny>, ArrayStruct<'_>) -> PyResult<()>) -> Result<()> {
        Python::attach(|py| {
            let array = self.array.bind(py);
            let memory = ArrayStruct::of(array)?;
            if memory.bytes() != self.bytes {
                return Err(PyValueError::new_err(format!(
                    "a NumPy array that shares its elements with a tensor has {} bytes now, and had {}: it was resized \
                     or got another dtype. Make a tensor of the new one by gt.from_numpy(array)",
                    memory.bytes(),
                    self.bytes
                )));
            }
            with(array, memory)
        })
        .map_err(|error| {
            keep_interrupt(error);
            ClientError::Interrupted
        })
    }
}

/// The object whose memory an array or a `memoryview` shows.
fn owner<'py>(object: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
    let py = object.py();
    let owner = object.getattr(intern!(py, "base")).or_else(|_| object.getattr(intern!(py, "obj")));
    owner.ok().filter(|owner| !owner.is_none())
}

/// The number of references to an object.
fn references(object: &Bound<'_, PyAny>) -> isize {
    // SAFETY: the object is valid.
    unsafe { ffi::Py_REFCNT(object.as_ptr()) }
}

impl HostMemory for HostArray {
    /// An array that only this object refers to may be a view of another array, or of another object's buffer.
    fn is_referred_to(&self) -> bool {
        Python::attach(|py| {
            if references(self.array.bind(py)) > 1 {
                return true;
            }
            let mut next = owner(self.array.bind(py));
            while let Some(object) = next {
                // One reference is that of the view, one is `object`.
                if references(&object) > 2 {
                    return true;
                }
                next = owner(&object);
            }
            false
        })
    }

    fn read(&self, look: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.with_memory(|array, memory| {
            match memory.is_contiguous {
                true => look(memory.as_slice()),
                false => look(memory.in_order(array)?.as_slice()),
            }
            Ok(())
        })
    }

    fn write(&self, bytes: &[u8]) -> Result<()> {
        self.with_memory(|array, memory| {
            if !memory.is_writable {
                return Ok(());
            }
            if memory.is_contiguous {
                assert_eq!(bytes.len(), memory.bytes());
                // SAFETY: the array has as many contiguous bytes, which this thread may write as it holds the GIL.
                unsafe { copy_nonoverlapping(bytes.as_ptr(), memory.data, bytes.len()) };
                return Ok(());
            }
            let numpy = array.py().import("numpy")?;
            let elements = numpy.call_method1("frombuffer", (bytes, array.getattr("dtype")?))?;
            numpy.call_method1("copyto", (array, elements.call_method1("reshape", (array.getattr("shape")?,))?))?;
            Ok(())
        })
    }

    fn address(&self) -> Option<*const u8> {
        self.data.map(|data| data as *const u8)
    }
}
