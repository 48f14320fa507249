//! What a worker's process computes on, and what that can do.

use gt_backend::Backend;
use gt_config::WorkerKind;
use gt_cuda::CudaBackend;
use gt_cuda::compile::Store;
use gt_cuda::driver::Properties;
use gt_protocol::{DeviceInfo, WorkerInfo};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// A process on the processor that has not answered by then will not. One that registers itself may be anybody's.
const CPU_DEADLINE: Duration = Duration::from_secs(10);
/// The driver of a GPU may take long for the first one who uses it.
const DEVICE_DEADLINE: Duration = Duration::from_secs(60);

/// What a thread of the processor is estimated to do: gigaflops,
const CPU_GFLOPS_PER_THREAD: f64 = 40.0;
/// and what all of them together move, gigabytes a second.
const CPU_GBYTES_PER_S: f64 = 16.0;
/// What a device is taken for until its worker says more: a small one.
const DEVICE_GFLOPS: f64 = 8_000.0;
const DEVICE_GBYTES_PER_S: f64 = 400.0;
/// Memory of an emulated device, unless there is a limit.
#[cfg(feature = "emulated")]
const EMULATED_BYTES: u64 = 2 << 30;

/// What a worker's process computes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Engine {
    /// The processor.
    Cpu,
    /// An NVIDIA device.
    Cuda {
        /// Its number among those that the process sees.
        number: u32,
    },
    /// As on an NVIDIA device, whose kernels the processor runs.
    EmulatedCuda,
}

/// What a worker can do.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Capabilities {
    /// Bytes that its tensors may take.
    pub memory_bytes_limit: u64,
    /// Billions of operations a second.
    pub gflops: f64,
    /// Gigabytes that it reads and writes a second.
    pub gbytes_per_s: f64,
}

impl Engine {
    /// What a worker of this kind computes on, if that is one device.
    pub fn of(kind: WorkerKind) -> Option<Engine> {
        match kind {
            WorkerKind::Cpu | WorkerKind::ProcCpu => Some(Engine::Cpu),
            WorkerKind::Cuda(number) => Some(Engine::Cuda { number }),
            WorkerKind::EmulatedCuda => Some(Engine::EmulatedCuda),
            WorkerKind::EachCuda => None,
        }
    }

    /// How long to wait until the worker is ready.
    pub fn ready_deadline(self) -> Duration {
        if self == Engine::Cpu { CPU_DEADLINE } else { DEVICE_DEADLINE }
    }

    /// What the worker that `info` describes may be taken for before it says what it can do.
    pub fn guess(self, info: &WorkerInfo) -> Capabilities {
        match self {
            Engine::Cpu => Capabilities::of_cpu(info.threads, info.memory_bytes_limit),
            Engine::Cuda { .. } | Engine::EmulatedCuda => Capabilities {
                memory_bytes_limit: info.memory_bytes_limit,
                gflops: DEVICE_GFLOPS,
                gbytes_per_s: DEVICE_GBYTES_PER_S,
            },
        }
    }
}

/// A backend on NVIDIA device `number`, and what it can do.
///
/// # Errors
/// Why there is none, as a sentence.
pub fn open_cuda(number: u32, info: &WorkerInfo) -> Result<(CudaBackend, Capabilities, Option<DeviceInfo>), String> {
    let report = gt_nvidia::probe();
    let devices = report.devices.map_err(|error| error.to_string())?;
    let device = devices.iter().find(|device| device.number == number).ok_or("the device is gone")?;
    device.trouble().map_or(Ok(()), Err)?;
    let limit = (info.memory_bytes_limit > 0).then_some(info.memory_bytes_limit as usize);
    let backend = CudaBackend::open(number, limit, kernel_store()).map_err(|error| error.to_string())?;
    let (gflops, gbytes_per_s) = device.rates();
    let capabilities = Capabilities { memory_bytes_limit: backend.memory().limit_bytes as u64, gflops, gbytes_per_s };
    let device = device_info(&backend);
    Ok((backend, capabilities, Some(device)))
}

fn device_info(backend: &CudaBackend) -> DeviceInfo {
    let Properties { name, capability, multiprocessors, memory_bytes, .. } = backend.properties();
    DeviceInfo {
        name: name.clone(),
        capability: (capability / 10, capability % 10),
        multiprocessors: *multiprocessors,
        memory_bytes: *memory_bytes as u64,
    }
}

/// Where compiled kernels are kept: in the folder for that of the service, or of the user.
fn kernel_store() -> Store {
    let folder = |name: &str| std::env::var_os(name).filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let users =
        || folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache"))).map(|cache| cache.join("gt"));
    folder("CACHE_DIRECTORY").or_else(users).map_or_else(Store::default, |cache| Store::at(cache.join("kernels")))
}

/// A backend on a device that is not there, and what it can do.
///
/// # Errors
/// If this program was built without it.
#[cfg(feature = "emulated")]
pub fn open_emulated(info: &WorkerInfo) -> Result<(CudaBackend, Capabilities, Option<DeviceInfo>), String> {
    use gt_cuda::driver::emulated::{Emulated, Gxx, test_store};
    let limit = if info.memory_bytes_limit == 0 { EMULATED_BYTES } else { info.memory_bytes_limit };
    // The device has room beside the tensors, as others have.
    let mut driver = Emulated::new(2 * limit as usize);
    // A real NCCL would take the streams of such a device for CUDA's.
    if std::env::var_os("GT_EMULATED_NCCL").is_some() {
        let mut uuid = [0; 16];
        uuid[..4].copy_from_slice(&std::process::id().to_ne_bytes());
        driver = driver.named(uuid);
    }
    let driver = std::sync::Arc::new(driver);
    let backend = CudaBackend::new(driver, Box::new(Gxx), test_store(), limit as usize);
    let capabilities = Capabilities { memory_bytes_limit: limit, ..Engine::EmulatedCuda.guess(info) };
    let backend = backend.map_err(|error| error.to_string())?;
    let device = device_info(&backend);
    Ok((backend, capabilities, Some(device)))
}

/// As with the feature `emulated`.
///
/// # Errors
/// Always.
#[cfg(not(feature = "emulated"))]
pub fn open_emulated(_: &WorkerInfo) -> Result<(CudaBackend, Capabilities, Option<DeviceInfo>), String> {
    Err("this gtd was built without emulated devices".into())
}

impl Capabilities {
    /// What so many threads of the processor are estimated to do.
    pub fn of_cpu(threads: u32, memory_bytes_limit: u64) -> Capabilities {
        Capabilities {
            memory_bytes_limit,
            gflops: CPU_GFLOPS_PER_THREAD * f64::from(threads),
            gbytes_per_s: CPU_GBYTES_PER_S,
        }
    }

    /// For estimates: gigaflops, and gigabytes a second.
    pub fn rates(&self) -> (f64, f64) {
        (self.gflops, self.gbytes_per_s)
    }

    /// As a process said it, who is not believed everything: estimates are divided by these.
    ///
    /// # Errors
    /// What makes no sense.
    pub fn checked(self) -> Result<Capabilities, String> {
        let possible = |rate: f64| rate.is_finite() && rate > 0.0;
        if possible(self.gflops) && possible(self.gbytes_per_s) {
            return Ok(self);
        }
        Err(format!("it says that it does {} gigaflops and {} gigabytes a second", self.gflops, self.gbytes_per_s))
    }
}
