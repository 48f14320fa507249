//! The backend on a device: on an emulated one, or with `GT_TEST_DEVICE=cuda` on the first of NVIDIA's.
//!
//! Each test prints the device that it computes on. An assertion about an emulated device, such as the number of its
//! driver's calls, is left out on a real one; a test of nothing else prints `skipped: ` and the reason. The runner of
//! the kit that `make gpu-kit` packs counts both.
#![expect(clippy::print_stdout, reason = "a test says where it computes, and why it is skipped")]

mod against_cpu;
mod agreement;
mod attention;
mod columns;
mod conformance;
mod convolution;
mod fused;
mod gathered;
mod graphs;
mod later;
mod lines;
mod matmul;
mod rows;
mod worker;

use gt_cuda::blas::emulated::EmulatedBlas;
use gt_cuda::compile::nvrtc::base_options;
use gt_cuda::compile::{Nvrtc, Prebuilt};
use gt_cuda::driver::cuda::{CudaDriver, OpenError};
use gt_cuda::driver::emulated::{Emulated, EmulatedChecks, Gxx, test_store};
use gt_cuda::{CudaBackend, Driver};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// The variable that names the tests' device: `cuda`, or none for an emulated one.
const VARIABLE: &str = "GT_TEST_DEVICE";

/// The multiplier of matrices.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Multiplier {
    /// cuBLASLt, or its replacement on an emulated device.
    Library,
    /// GT's own kernels.
    Kernels,
}

/// A backend on the tests' device.
struct TestDevice {
    backend: CudaBackend,
    /// The driver that counts its calls; none on a device of NVIDIA's.
    emulated: Option<Arc<Emulated>>,
    /// The products that an emulated library has computed.
    products: Arc<AtomicU64>,
}

/// Opens the tests' device, on which tensors may take `memory_bytes_limit`.
fn open(memory_bytes_limit: usize, multiplier: Multiplier) -> TestDevice {
    let device = if is_nvidias() {
        let backend =
            nvidias(memory_bytes_limit, multiplier).unwrap_or_else(|error| panic!("{VARIABLE}=cuda: {error}"));
        TestDevice { backend, emulated: None, products: Arc::default() }
    } else {
        emulated(memory_bytes_limit, 4 * memory_bytes_limit, multiplier)
    };
    println!("device: {}", device.backend.properties().name);
    if is_nvidias() {
        match device.backend.prebuilt_for() {
            Some(architecture) => println!("kernels: compiled beforehand for {architecture}"),
            None => println!("kernels: compiled at first use, since the file of compiled ones is not used"),
        }
    }
    device
}

/// Opens an emulated device of this much memory.
fn emulated(memory_bytes_limit: usize, memory_bytes: usize, multiplier: Multiplier) -> TestDevice {
    let driver = Arc::new(Emulated::new(memory_bytes));
    let blas = EmulatedBlas::new(driver.clone());
    let products = blas.products.clone();
    let backend = CudaBackend::new(driver.clone(), Box::new(Gxx::default()), test_store(), memory_bytes_limit);
    let backend = backend.expect("an emulated device");
    let backend = if multiplier == Multiplier::Library { backend.with_blas(Box::new(blas)) } else { backend };
    TestDevice { backend, emulated: Some(driver), products }
}

fn nvidias(memory_bytes_limit: usize, multiplier: Multiplier) -> Result<CudaBackend, OpenError> {
    const ORDINAL: u32 = 0;
    if multiplier == Multiplier::Library {
        return CudaBackend::open(ORDINAL, Some(memory_bytes_limit), test_store());
    }
    let driver = CudaDriver::open(ORDINAL)?;
    let capability = driver.properties().capability;
    let version = driver.version();
    let compiler = gt_nvidia::NVRTC.open(Some(version.0), |opened| Nvrtc::for_device(opened, capability, version))?;
    let prebuilt = Prebuilt::installed(capability, version, &base_options());
    let backend = CudaBackend::new(Arc::new(driver), Box::new(compiler), test_store(), memory_bytes_limit);
    let backend = backend.map_err(|why| OpenError::Refused { ordinal: ORDINAL, why })?;
    Ok(match prebuilt {
        Some(prebuilt) => backend.with_prebuilt(prebuilt),
        None => backend,
    })
}

/// Whether the tests' device is one of NVIDIA's.
fn is_nvidias() -> bool {
    match std::env::var(VARIABLE).as_deref() {
        Ok("cuda") => true,
        Ok("") | Err(_) => false,
        Ok(other) => panic!("{VARIABLE}={other} names no device: it is cuda, or not set for an emulated device"),
    }
}

/// Says why a test is skipped, where each tensor has an allocation of its own size, so that accesses outside of tensors
/// are found; returns whether it is.
fn is_skipped_without_pool(why: &str) -> bool {
    let is_exact = !is_nvidias() && EmulatedChecks::asked() == EmulatedChecks::Addresses;
    if is_exact {
        println!("skipped: {why}");
    }
    is_exact
}

/// Says why a test is skipped, where the tests' device is no emulated one; returns whether it is.
fn is_skipped(why: &str) -> bool {
    if is_nvidias() {
        println!("skipped: {why}");
    }
    is_nvidias()
}
