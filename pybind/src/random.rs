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

/// The size of a generator's state on the CPU, as PyTorch has it: its generator there is a Mersenne Twister.
const STATE_BYTES: usize = 5056;
/// The size of the state of PyTorch's generators on CUDA devices: the seed and the number of draws, eight bytes each.
const SHORT_STATE_BYTES: usize = 16;
/// The number of words of the Mersenne Twister's state, and where they begin in the bytes.
const TWISTER_WORDS: usize = 624;
const TWISTER_AT: usize = 24;
/// Where PyTorch keeps a normal number for the next call, if a flag that is not set here says so: the number of draws
/// stands there.
const DRAWS_AT: usize = TWISTER_AT + 8 * TWISTER_WORDS;

/// A state that PyTorch's CPU generator accepts: it begins the sequence of the same seed.
fn state_bytes(draw: &Draw) -> Vec<u8> {
    let mut bytes = vec![0; STATE_BYTES];
    let mut put = |at: usize, word: u64| bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
    put(0, draw.seed);
    // One word is left before the next are generated, and the generator is seeded.
    put(8, 1 | (1 << 32));
    let mut word = draw.seed as u32;
    for i in 0..TWISTER_WORDS as u32 {
        if i > 0 {
            word = 1_812_433_253u32.wrapping_mul(word ^ (word >> 30)).wrapping_add(i);
        }
        put(TWISTER_AT + 8 * i as usize, u64::from(word));
    }
    put(DRAWS_AT, draw.stream);
    bytes
}

/// The seed and number of draws of a state of either size; `None` if the size is another. A state of PyTorch's from the
/// middle of its sequence gives a number of draws that follows from the words and the place in them.
fn draw_of(bytes: &[u8]) -> Option<Draw> {
    let word = |at: usize| bytes.get(at..at + 8).and_then(|word| word.try_into().ok()).map(u64::from_le_bytes);
    let seed = word(0)?;
    match bytes.len() {
        SHORT_STATE_BYTES => Some(Draw { seed, stream: word(8)? }),
        STATE_BYTES => {
            let draw = Draw { seed, stream: word(DRAWS_AT)? };
            if bytes == state_bytes(&draw) {
                return Some(draw);
            }
            // FNV-1a.
            let mix = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
            Some(Draw { seed, stream: bytes[8..].iter().fold(0xcbf2_9ce4_8422_2325, mix) })
        }
        _ => None,
    }
}

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

/// A seed and the number of the next draw.
type Position = (u64, u64);

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
    /// The state as a tensor of bytes, which PyTorch's generators accept, too: there it begins the seed's sequence.
    fn get_state(&self, py: Python<'_>) -> PyResult<PyTensor> {
        self.state_of(py, state_bytes(&self.0.state()))
    }
    /// The state as PyTorch has it on CUDA devices: the seed and the number of draws.
    fn _short_state(&self, py: Python<'_>) -> PyResult<PyTensor> {
        let Draw { seed, stream } = self.0.state();
        self.state_of(py, [seed.to_le_bytes(), stream.to_le_bytes()].concat())
    }
    /// Restores a state that `get_state` returned, here or in PyTorch.
    fn set_state(&self, py: Python<'_>, new_state: &Bound<'_, PyTensor>) -> PyResult<()> {
        let tensor = new_state.get().snapshot(py)?;
        if tensor.meta().dtype != DType::U8 {
            return Err(PyTypeError::new_err("expected a torch.ByteTensor, but got another dtype"));
        }
        let bytes = data::bytes_of(&tensor)?;
        let draw = draw_of(&bytes).ok_or_else(|| {
            PyRuntimeError::new_err(format!(
                "RNG state is wrong size: expected {STATE_BYTES} or {SHORT_STATE_BYTES} bytes, but got {}",
                bytes.len()
            ))
        })?;
        self.0.set_state(draw);
        Ok(())
    }
    /// A new generator in the same state.
    fn clone_state(&self) -> PyGenerator {
        let copy = Generator::new(0);
        copy.set_state(self.0.state());
        PyGenerator(copy)
    }
    /// Generators are pickled and copied with their position.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (Position,))> {
        Ok((slf.get_type().getattr("_at")?, (slf.get()._position(),)))
    }
    /// A new generator at a position that `_position` returned.
    #[staticmethod]
    fn _at(position: Position) -> PyGenerator {
        let made = PyGenerator(Generator::new(0));
        made._go_to(position);
        made
    }
    /// The seed and the number of the next draw.
    fn _position(&self) -> Position {
        let Draw { seed, stream } = self.0.state();
        (seed, stream)
    }
    /// Goes to a position that `_position` returned.
    fn _go_to(&self, position: Position) {
        let (seed, stream) = position;
        self.0.set_state(Draw { seed, stream });
    }
    /// Makes one draw, and returns its seed and number.
    fn _next(&self) -> (u64, u64) {
        let draw = self.0.next();
        (draw.seed, draw.stream)
    }
}

impl PyGenerator {
    fn state_of(&self, py: Python<'_>, bytes: Vec<u8>) -> PyResult<PyTensor> {
        let meta = Meta::new(Shape::new(&[bytes.len()]).or_raise()?, DType::U8);
        let value = current(py)?.upload(meta, UploadSource::from(&bytes[..])).or_raise()?;
        Ok(PyTensor::wrap(Tensor::new(value, None)))
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
