//! Opening a backend without naming its type.

use crate::backend::Backend;
use crate::facts::BackendFacts;
use gt_shm::Segment;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// An entry of the registry: the facts of a backend, and how it is opened.
pub trait BackendFactory {
    /// The backend that it opens.
    type Backend: Backend + Send + 'static;

    /// The facts that are known before a backend is opened.
    const FACTS: BackendFacts;

    /// Opens the backend, in the process that will use it.
    ///
    /// # Errors
    /// Why it cannot be opened, as a sentence for the user.
    fn open(options: &OpenOptions) -> Result<OpenedBackend<Self::Backend>, String>;
}

/// A function that is generic over the backend: the compiler makes an instance for each backend, without dynamic
/// dispatch inside.
pub trait BackendVisitor {
    /// The result, the same for every backend.
    type Output;

    /// Calls the function with the opened backend, or with the reason why it was not opened.
    fn visit<B: Backend + Send + 'static>(self, opened: Result<OpenedBackend<B>, String>) -> Self::Output;
}

/// The options of [`BackendFactory::open`].
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// The device's number, for a backend that discovers its devices; otherwise 0.
    pub device: u32,
    /// Threads that compute, for [`crate::Site::Host`].
    pub threads: usize,
    /// The most bytes that tensors may take. For [`crate::Site::Device`], 0 means no limit other than the device's
    /// memory.
    pub memory_bytes_limit: usize,
    /// Shared memory for tensors that other processes read directly, for [`crate::Site::Host`]. A backend may leave it
    /// unused; such tensors are then copied once more. The segment may be larger than the memory limit.
    pub shared: Option<Arc<Segment>>,
}

/// A backend that is ready to compute.
#[derive(Debug)]
pub struct OpenedBackend<B> {
    /// The backend.
    pub backend: B,
    /// Its capabilities.
    pub capabilities: Capabilities,
    /// The device, if programs may ask about its properties.
    pub device: Option<DeviceDescription>,
}

/// The capabilities of a worker: memory and estimated speed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Capabilities {
    /// Bytes that its tensors may take.
    pub memory_bytes_limit: u64,
    /// Billions of floating-point operations a second, estimated.
    pub gflops: f64,
    /// Gigabytes of memory that it reads and writes a second, estimated.
    pub gbytes_per_s: f64,
}

impl Capabilities {
    /// Estimates for a [backend](BackendFacts) with this many threads and this memory limit.
    pub fn estimated(facts: &BackendFacts, threads: u32, memory_bytes_limit: u64) -> Capabilities {
        let (gflops, gbytes_per_s) = (facts.rates)(threads);
        Capabilities { memory_bytes_limit, gflops, gbytes_per_s }
    }

    /// Gigaflops and gigabytes a second, for estimates.
    pub fn rates(&self) -> (f64, f64) {
        (self.gflops, self.gbytes_per_s)
    }

    /// Checks the capabilities that a worker's process reported, since estimates divide by the rates.
    ///
    /// # Errors
    /// If a rate is not positive and finite.
    pub fn checked(self) -> Result<Capabilities, String> {
        let possible = |rate: f64| rate.is_finite() && rate > 0.0;
        if possible(self.gflops) && possible(self.gbytes_per_s) {
            return Ok(self);
        }
        Err(format!("it says that it does {} gigaflops and {} gigabytes a second", self.gflops, self.gbytes_per_s))
    }
}

/// The properties of a device that `torch.cuda.get_device_properties` shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceDescription {
    /// Product name.
    pub name: String,
    /// Compute capability, major and minor.
    pub capability: (u32, u32),
    /// Number of multiprocessors.
    pub multiprocessors: u32,
    /// Total memory in bytes.
    pub memory_bytes: u64,
}
