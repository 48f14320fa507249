//! `gt.Generator`: the state of random number generation.

use crate::data;
use crate::device::{DeviceArg, PyDevice, of_tensors};
use crate::error::OrRaise;
use crate::session::current;
use crate::tensor::PyTensor;
use gt_client::Tensor;
use gt_client::random::{Draw, Generator, default_generator, random_seed};
use gt_client::transfer::UploadSource;
use gt_ops::{DType, Meta, Shape};
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use std::sync::Arc;

/// A random number generator, which functions that draw random numbers take as `generator`.
///
/// Numbers are counter-based (Philox 4x32-10, Salmon et al. 2011): a seed gives the same numbers on every device and
/// on any number of workers.
///
/// Example:
///     >>> g = gt.Generator().manual_seed(42)
///     >>> a = gt.rand(2, generator=g)
///     >>> g = g.manual_seed(42)
///     >>> gt.equal(a, gt.rand(2, generator=g))
///     True
#[pyclass(name = "Generator", module = "gt", frozen, weakref)]
pub struct PyGenerator(pub Arc<Generator>);

/// The size of a generator's state: the seed and the number of draws, eight bytes each.
const STATE_BYTES: usize = 16;

/// A seed from a Python integer: 64 bits, signed or unsigned.
fn seed_of(seed: &Bound<'_, PyAny>) -> PyResult<u64> {
    let number = seed.call_method0("__index__").or_else(|_| seed.call_method0("__int__")).map_err(|_| {
        let kind = seed.get_type().name().map_or_else(|_| "?".into(), |name| name.to_string());
        PyTypeError::new_err(format!("manual_seed() takes an int, but got {kind}"))
    })?;
    number.extract::<i64>().map(|s| s as u64).or_else(|_| number.extract::<u64>()).map_err(|_| {
        PyRuntimeError::new_err(format!("Overflow when unpacking long: the seed {number} has more than 64 bits"))
    })
}

#[pymethods]
impl PyGenerator {
    #[new]
    #[pyo3(signature = (device=None))]
    fn new(py: Python<'_>, device: Option<DeviceArg>) -> PyResult<PyGenerator> {
        device.map_or(Ok(()), |device| device.check(py))?;
        Ok(PyGenerator(Generator::new(0)))
    }
    /// The device; numbers are the same on all of the daemon's devices.
    #[getter]
    fn device(&self, py: Python<'_>) -> PyResult<Py<PyDevice>> {
        of_tensors(py)
    }
    /// Restarts the sequence from a seed, and returns the generator.
    fn manual_seed<'py>(slf: Bound<'py, Self>, seed: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Self>> {
        slf.get().0.set_state(Draw { seed: seed_of(seed)?, stream: 0 });
        Ok(slf)
    }
    /// Restarts the sequence from a random seed, and returns the seed.
    fn seed(&self) -> u64 {
        let seed = random_seed();
        self.0.set_state(Draw { seed, stream: 0 });
        seed
    }
    /// The seed of the sequence.
    fn initial_seed(&self) -> u64 {
        self.0.state().seed
    }
    /// The state as a tensor of bytes: the seed and the number of draws.
    fn get_state(&self, py: Python<'_>) -> PyResult<PyTensor> {
        let Draw { seed, stream } = self.0.state();
        let bytes = [seed.to_le_bytes(), stream.to_le_bytes()].concat();
        let meta = Meta::new(Shape::new(&[STATE_BYTES]).or_raise()?, DType::U8);
        let value = current(py)?.upload(meta, UploadSource::from(&bytes[..])).or_raise()?;
        Ok(PyTensor::wrap(Tensor::new(value, None)))
    }
    /// Restores a state that `get_state` returned.
    fn set_state(&self, py: Python<'_>, new_state: &Bound<'_, PyTensor>) -> PyResult<()> {
        let tensor = new_state.get().snapshot(py)?;
        if tensor.meta().dtype != DType::U8 {
            return Err(PyTypeError::new_err("expected a torch.ByteTensor, but got another dtype"));
        }
        let bytes = data::bytes_of(&tensor)?;
        let [Some(seed), Some(stream)] = [0, 8].map(|at| bytes.get(at..at + 8).and_then(|b| b.try_into().ok())) else {
            return Err(PyRuntimeError::new_err(format!(
                "RNG state is wrong size: expected {STATE_BYTES} bytes, but got {}",
                bytes.len()
            )));
        };
        self.0.set_state(Draw { seed: u64::from_le_bytes(seed), stream: u64::from_le_bytes(stream) });
        Ok(())
    }
    /// A new generator in the same state.
    fn clone_state(&self) -> PyGenerator {
        let copy = Generator::new(0);
        copy.set_state(self.0.state());
        PyGenerator(copy)
    }
    /// Makes one draw, and returns its seed and number.
    fn _next(&self) -> (u64, u64) {
        let draw = self.0.next();
        (draw.seed, draw.stream)
    }
}

/// The default generator, which functions use where none is given.
pub fn default_object(py: Python<'_>) -> PyResult<Py<PyGenerator>> {
    static DEFAULT: PyOnceLock<Py<PyGenerator>> = PyOnceLock::new();
    let object = DEFAULT.get_or_try_init(py, || Py::new(py, PyGenerator(default_generator().clone())))?;
    Ok(object.clone_ref(py))
}

/// Adds the class and its default instance to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyGenerator>()?;
    module.add("default_generator", default_object(module.py())?)
}
