//! `gt.device`: the name of a device. The daemon places tensors; a client only requests a type of device.

use crate::session::{current, open};
use gt_client::session::SessionInfo;
use pyo3::create_exception;
use pyo3::exceptions::{PyNotImplementedError, PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyString, PyTuple};

/// The device types that programs for PyTorch name.
const KINDS: [&str; 7] = ["cpu", "cuda", "mps", "xpu", "hpu", "mtia", "meta"];
const CPU: &str = KINDS[0];
const CUDA: &str = KINDS[1];
/// The device of tensors without elements, which `gt._meta` makes.
const META: &str = KINDS[6];

create_exception!(gt, MetaDevice, PyNotImplementedError, "A function was asked for a tensor without elements.");

/// A name of a device, as `gt.device("cuda:0")`: a type and an optional index. The daemon decides where tensors are.
///
/// Example:
///     >>> gt.device("cuda", 1)
///     device(type='cuda', index=1)
#[pyclass(name = "device", module = "gt", frozen, eq, hash)]
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct PyDevice {
    kind: &'static str,
    index: Option<u32>,
}

fn kind_of(text: &str) -> PyResult<&'static str> {
    KINDS.into_iter().find(|kind| *kind == text).ok_or_else(|| {
        PyRuntimeError::new_err(format!(
            "Expected one of {} device type at start of device string: {text}",
            KINDS.join(", ")
        ))
    })
}

impl PyDevice {
    fn parse(text: &str) -> PyResult<PyDevice> {
        let (kind, index) = match text.split_once(':') {
            None => (text, None),
            Some((kind, number)) => {
                let wrong = || PyRuntimeError::new_err(format!("Invalid device string: '{text}'"));
                let plain = number.bytes().all(|b| b.is_ascii_digit()) && (number == "0" || !number.starts_with('0'));
                (kind, Some(number.parse().ok().filter(|_| plain).ok_or_else(wrong)?))
            }
        };
        Ok(PyDevice { kind: kind_of(kind)?, index })
    }

    /// Checks that the daemon has such a device; raises PyTorch's error otherwise.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        let use_cpu = "the daemon's devices are CPUs, so use device='cpu'";
        match self.kind {
            CPU => Ok(()),
            CUDA => match (cuda_workers(py)?.len(), self.index) {
                (0, _) => Err(PyRuntimeError::new_err(format!("No CUDA GPUs are available: {use_cpu}"))),
                (count, Some(index)) if index as usize >= count => Err(PyRuntimeError::new_err(format!(
                    "CUDA error: invalid device ordinal: the daemon has {count} CUDA devices, numbered from 0, and \
                     cuda:{index} is none of them"
                ))),
                _ => Ok(()),
            },
            META => Err(MetaDevice::new_err(
                "device 'meta': this function makes tensors with elements: create them on the CPU",
            )),
            kind => Err(PyRuntimeError::new_err(format!("There is no device of type {kind}: {use_cpu}"))),
        }
    }
}

#[pymethods]
impl PyDevice {
    #[new]
    #[pyo3(signature = (r#type, index=None))]
    fn new(r#type: &Bound<'_, PyAny>, index: Option<u32>) -> PyResult<PyDevice> {
        let device = r#type.extract::<DeviceArg>()?.0;
        match index {
            None => Ok(device),
            Some(_) if device.index.is_some() => Err(PyRuntimeError::new_err(format!(
                "type (string) must not include an index because index was passed explicitly: {}",
                device.__str__()
            ))),
            Some(_) => Ok(PyDevice { kind: device.kind, index }),
        }
    }
    /// The type, as `cpu`.
    #[getter]
    fn r#type(&self) -> &'static str {
        self.kind
    }
    /// The index among devices of the type, if given.
    #[getter]
    fn index(&self) -> Option<u32> {
        self.index
    }
    fn __repr__(&self) -> String {
        match self.index {
            None => format!("device(type='{}')", self.kind),
            Some(index) => format!("device(type='{}', index={index})", self.kind),
        }
    }
    fn __str__(&self) -> String {
        self.index.map_or_else(|| self.kind.to_owned(), |index| format!("{}:{index}", self.kind))
    }
    /// Enters the context in which tensors are created on this device.
    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        if slf.get().kind == META {
            slf.py().import("gt._meta")?.call_method0("enter")?;
        } else {
            slf.get().check(slf.py())?;
        }
        Ok(slf)
    }
    #[pyo3(signature = (*_args))]
    fn __exit__(&self, py: Python<'_>, _args: &Bound<'_, PyTuple>) -> PyResult<()> {
        if self.kind == META {
            py.import("gt._meta")?.call_method0("leave")?;
        }
        Ok(())
    }
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (String,))> {
        Ok((py.get_type::<PyDevice>().into_any(), (self.__str__(),)))
    }
}

/// A device argument: an object, a string like `cuda:0`, or the index of an accelerator.
pub struct DeviceArg(PyDevice);

impl DeviceArg {
    /// Checks that the daemon has the device.
    ///
    /// # Errors
    /// The daemon does not have it: PyTorch's exception for a missing device.
    pub fn check(&self, py: Python<'_>) -> PyResult<()> {
        self.0.check(py)
    }
}

impl<'py> FromPyObject<'_, 'py> for DeviceArg {
    type Error = PyErr;
    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(device) = object.cast::<PyDevice>() {
            return Ok(DeviceArg(device.get().clone()));
        }
        if let Ok(text) = object.cast::<PyString>() {
            return PyDevice::parse(text.to_str()?).map(DeviceArg);
        }
        if let Ok(index) = object.extract::<u32>() {
            return Ok(DeviceArg(PyDevice { kind: CUDA, index: Some(index) }));
        }
        Err(PyTypeError::new_err(format!(
            "expected a device such as 'cpu', but got {}",
            object.get_type().name().map_or_else(|_| "?".into(), |n| n.to_string())
        )))
    }
}

/// The names of a session's CUDA workers; an emulated device counts as one.
fn cuda_workers_of(info: &SessionInfo) -> Vec<String> {
    let workers = info.workers.iter().zip(&info.worker_backends);
    workers.filter(|(_, backend)| backend.ends_with(CUDA)).map(|(name, _)| name.clone()).collect()
}

/// Whether a session's daemon computes on a CUDA device.
pub fn has_cuda(info: &SessionInfo) -> bool {
    info.worker_backends.iter().any(|backend| backend.ends_with(CUDA))
}

/// The names of the daemon's CUDA workers.
fn cuda_workers(py: Python<'_>) -> PyResult<Vec<String>> {
    Ok(cuda_workers_of(current(py)?.info()))
}

/// The device that every tensor reports: the first CUDA device, if the daemon computes on any, otherwise the CPU.
pub fn of_tensors(py: Python<'_>) -> PyResult<Py<PyDevice>> {
    static CPU_DEVICE: PyOnceLock<Py<PyDevice>> = PyOnceLock::new();
    static CUDA_DEVICE: PyOnceLock<Py<PyDevice>> = PyOnceLock::new();
    // A tensor may outlive its session; asking for its device does not open another one.
    let on_cuda = open().is_some_and(|session| has_cuda(session.info()));
    let device = if on_cuda {
        CUDA_DEVICE.get_or_try_init(py, || Py::new(py, PyDevice { kind: CUDA, index: Some(0) }))
    } else {
        CPU_DEVICE.get_or_try_init(py, || Py::new(py, PyDevice { kind: CPU, index: None }))
    };
    device.map(|device| device.clone_ref(py))
}

/// The device that every tensor reports.
#[pyfunction]
fn tensor_device(py: Python<'_>) -> PyResult<Py<PyDevice>> {
    of_tensors(py)
}

/// The names of the daemon's CUDA workers. Opens a session if there is none.
#[pyfunction]
fn cuda_devices(py: Python<'_>) -> PyResult<Vec<String>> {
    cuda_workers(py)
}

/// Raises unless the daemon has this device; `None` is the default one.
#[pyfunction]
fn check_device(py: Python<'_>, device: Option<DeviceArg>) -> PyResult<()> {
    device.map_or(Ok(()), |device| device.check(py))
}

/// Adds the class and the function to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyDevice>()?;
    module.add_function(wrap_pyfunction!(check_device, module)?)?;
    module.add_function(wrap_pyfunction!(tensor_device, module)?)?;
    module.add_function(wrap_pyfunction!(cuda_devices, module)?)
}
