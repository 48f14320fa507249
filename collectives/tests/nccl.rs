//! NVIDIA's devices pass the conformance suite by NCCL; on a machine without device or NCCL, the errors name what is
//! missing.
//!
//! With one device the suite runs with one rank, and also with two that share it if `NCCL_MULTI_RANK_GPU_ENABLE=1` is
//! set (NCCL 2.30).
#![cfg(not(loom))]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

mod device_rank;

use device_rank::{PATIENCE, conform, joined};
use gt_collectives::nccl::device::{DeviceComm, DeviceCommOptions};
use gt_collectives::nccl::{UniqueId, version};
use gt_collectives::{CollectiveError, Health};
use gt_cuda::Driver;
use gt_cuda::driver::cuda::CudaDriver;
use gt_nvidia::{CudaQuery, NoCuda};

/// NCCL 2.30, the first that lets ranks share a device.
const SHARES_DEVICES: i32 = 23000;

/// The number of devices that CUDA finds.
fn device_count() -> Result<u32, NoCuda> {
    Ok(CudaQuery::start()?.devices()?.len() as u32)
}

fn options(size: usize) -> DeviceCommOptions {
    DeviceCommOptions { rank: 0, size, patience: PATIENCE, health: Health::new(|| Ok(())) }
}

#[test]
fn the_devices_conform() {
    let (devices, found) = match (device_count(), version()) {
        (Ok(devices), Ok(found)) if devices > 0 => (devices, found),
        (devices, found) => return println!("skipped: devices: {devices:?}; NCCL: {found:?}"),
    };
    println!("NCCL {} at {}, {devices} devices", found.0, found.1.display());
    println!("device: {devices} of NVIDIA's, by NCCL");
    let drivers = |numbers: Vec<u32>| {
        let open = |number: &u32| Box::new(CudaDriver::open(*number).unwrap()) as Box<dyn Driver>;
        move || numbers.iter().map(open).collect()
    };
    conform(drivers(vec![0]));
    if devices > 1 {
        conform(drivers((0..devices).collect()));
    } else if found.0 >= SHARES_DEVICES && std::env::var("NCCL_MULTI_RANK_GPU_ENABLE").is_ok_and(|on| on == "1") {
        conform(drivers(vec![0, 0]));
    }
}

#[test]
fn an_id_needs_no_device() {
    match version() {
        Ok((version, path)) => {
            println!("NCCL {version} at {}", path.display());
            assert!(version >= 21800);
            let (one, other) = (UniqueId::new().unwrap(), UniqueId::new().unwrap());
            assert_ne!(one, other, "each group has its own");
        }
        Err(error) => {
            println!("skipped: {error}");
            assert!(error.to_string().contains("pip install nvidia-nccl-cu13"), "{error}");
            assert!(matches!(UniqueId::new(), Err(CollectiveError::Setup { .. })));
        }
    }
}

#[test]
fn without_a_device_nccl_itself_gives_an_error() {
    if let Err(error) = version() {
        return println!("skipped: {error}");
    }
    if device_count().is_ok() {
        return println!("skipped: there is a device");
    }
    let comm = DeviceComm::begin(&UniqueId::new().unwrap(), options(1));
    let error = comm.and_then(|comm| joined(&comm)).unwrap_err().to_string();
    println!("{error}");
    assert!(error.contains("NCCL says: "), "{error}");
}
