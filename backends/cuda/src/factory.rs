//! The CUDA backend's entries in the registry: NVIDIA's devices, and emulated devices for tests.

use crate::backend::CudaBackend;
use crate::compile::store::Store;
use crate::doctor::findings;
use crate::driver::Properties;
use crate::survey::{print_report, survey};
use gt_backend::{
    Backend, BackendFactory, BackendFacts, Capabilities, DeviceDescription, Discovery, OpenOptions, OpenedBackend, Site,
};
use gt_nvidia::Device;
use std::path::PathBuf;
use std::time::Duration;

/// Opens [`CudaBackend`]s on NVIDIA's devices.
pub struct CudaFactory;

/// Opens [`CudaBackend`]s on emulated devices, whose kernels the processor runs: for tests.
pub struct EmulatedCudaFactory;

/// The driver of a GPU may take long to start for its first user.
const READY_DEADLINE: Duration = Duration::from_secs(60);
/// Gigaflops and gigabytes a second of a small device: the estimate until the worker reports its own.
const SMALL_DEVICE: (f64, f64) = (8_000.0, 400.0);
/// The bytes that tensors may take on an emulated device if no limit is given.
#[cfg(feature = "emulated")]
const EMULATED_BYTES: usize = 2 << 30;

impl BackendFactory for CudaFactory {
    type Backend = CudaBackend;

    const FACTS: BackendFacts = BackendFacts {
        name: "cuda",
        worker_prefix: "cuda",
        site: Site::Device,
        help: "cuda is one on each NVIDIA device, cuda:0,2 one on each of these",
        unavailable: None,
        ready_deadline: READY_DEADLINE,
        rates: |_| SMALL_DEVICE,
        discovery: Some(Discovery {
            device: "a GPU",
            product: "an NVIDIA device",
            is_there: gt_nvidia::is_there,
            probe: print_report,
            survey,
            doctor: findings,
        }),
        is_numbered: true,
    };

    fn open(options: &OpenOptions) -> Result<OpenedBackend<CudaBackend>, String> {
        let devices = gt_nvidia::probe().devices.map_err(|error| error.to_string())?;
        let device = device_of(&devices, options.device)?;
        let limit = (options.memory_bytes_limit > 0).then_some(options.memory_bytes_limit);
        let backend = CudaBackend::open(options.device, limit, kernel_store()).map_err(|error| error.to_string())?;
        Ok(opened(backend, device.rates()))
    }
}

impl BackendFactory for EmulatedCudaFactory {
    type Backend = CudaBackend;

    const FACTS: BackendFacts = BackendFacts {
        name: "emulated-cuda",
        worker_prefix: "emulated",
        site: Site::Device,
        help: "",
        unavailable: if cfg!(feature = "emulated") {
            None
        } else {
            Some(
                "emulated-cuda is for tests of the CUDA backend, and this gtd was built without it: build one with \
                 cargo build --package gtd --features emulated",
            )
        },
        ready_deadline: READY_DEADLINE,
        rates: |_| SMALL_DEVICE,
        discovery: None,
        is_numbered: false,
    };

    #[cfg(feature = "emulated")]
    fn open(options: &OpenOptions) -> Result<OpenedBackend<CudaBackend>, String> {
        use crate::driver::emulated::{Emulated, Gxx, test_store};
        let limit = if options.memory_bytes_limit == 0 { EMULATED_BYTES } else { options.memory_bytes_limit };
        // An emulated device has more memory than tensors may take, like a real one.
        let mut driver = Emulated::new(2 * limit);
        // Only with the tests' replacement of NCCL does the device get a UUID: a real NCCL would take the emulated
        // streams for CUDA's.
        if std::env::var_os("GT_EMULATED_NCCL").is_some() {
            let mut uuid = [0; 16];
            uuid[..4].copy_from_slice(&std::process::id().to_ne_bytes());
            driver = driver.named(uuid);
        }
        if let Some(file) = std::env::var_os("GT_EMULATED_LOST") {
            driver = driver.lost_by(file.into());
        }
        let backend = CudaBackend::new(std::sync::Arc::new(driver), Box::new(Gxx::default()), test_store(), limit);
        Ok(opened(backend.map_err(|error| error.to_string())?, SMALL_DEVICE))
    }

    #[cfg(not(feature = "emulated"))]
    fn open(_: &OpenOptions) -> Result<OpenedBackend<CudaBackend>, String> {
        Err("this gtd was built without emulated devices".into())
    }
}

/// The device of this number.
///
/// # Errors
/// It is not there any more, or may not be used.
fn device_of(devices: &[Device], number: u32) -> Result<&Device, String> {
    let device = devices.iter().find(|device| device.number == number).ok_or_else(|| {
        format!(
            "cuda:{number} is gone: `nvidia-smi` says whether the driver still knows it, and dmesg why not; start the \
             machine again, or leave the device out of GT_DEVICES"
        )
    })?;
    device.trouble().map_or(Ok(device), Err)
}

fn opened(backend: CudaBackend, (gflops, gbytes_per_s): (f64, f64)) -> OpenedBackend<CudaBackend> {
    let memory_bytes_limit = backend.memory().limit_bytes as u64;
    let Properties { name, capability, multiprocessors, memory_bytes, .. } = backend.properties();
    let device = DeviceDescription {
        name: name.clone(),
        capability: (capability / 10, capability % 10),
        multiprocessors: *multiprocessors,
        memory_bytes: *memory_bytes as u64,
    };
    let capabilities = Capabilities { memory_bytes_limit, gflops, gbytes_per_s };
    OpenedBackend { backend, capabilities, device: Some(device) }
}

/// The store of compiled kernels: in the cache folder of the service, or of the user.
fn kernel_store() -> Store {
    let folder = |name: &str| std::env::var_os(name).filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let users =
        || folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache"))).map(|cache| cache.join("gt"));
    folder("CACHE_DIRECTORY").or_else(users).map_or_else(Store::default, |cache| Store::at(cache.join("kernels")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_has_vanished_says_what_to_look_at() {
        let error = device_of(&[], 1).expect_err("there is none");
        assert!(error.starts_with("cuda:1 is gone: `nvidia-smi` says whether the driver still knows it"), "{error}");
    }
}
