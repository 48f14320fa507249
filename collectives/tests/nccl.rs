//! Groups of devices pass the conformance suite; on a machine without device or NCCL, the errors name what is missing.
//!
//! With one device the suite runs with one rank, and also with two that share it if `NCCL_MULTI_RANK_GPU_ENABLE=1` is
//! set (NCCL 2.30).
#![cfg(not(loom))]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use gt_collectives::CollectiveError;
use gt_collectives::conformance::PROGRAMS;
use gt_collectives::nccl::{AbortFlag, NcclCommunicator, NcclOptions, UniqueId, device_count, version};
use std::time::Duration;

/// NCCL 2.30, the first that lets ranks share a device.
const SHARES_DEVICES: i32 = 23000;
const PATIENCE: Duration = Duration::from_secs(120);

fn options(device: usize) -> NcclOptions {
    NcclOptions { device, patience: PATIENCE, abort: AbortFlag::default() }
}

fn devices_conform(devices: &[usize]) {
    for (_, run) in PROGRAMS {
        let id = UniqueId::new().unwrap();
        let flag = AbortFlag::default();
        std::thread::scope(|scope| {
            for (rank, device) in devices.iter().enumerate() {
                let options = NcclOptions { abort: flag.clone(), ..options(*device) };
                scope.spawn(move || {
                    let mut rank = NcclCommunicator::join(&id, rank, devices.len(), options).unwrap();
                    run(&mut rank);
                });
            }
        });
    }
}

#[test]
fn the_devices_conform() {
    let (devices, found) = match (device_count(), version()) {
        (Ok(devices), Ok(found)) if devices > 0 => (devices, found),
        (devices, found) => return println!("skipped: devices: {devices:?}; NCCL: {found:?}"),
    };
    println!("NCCL {} at {}, {devices} devices", found.0, found.1.display());
    println!("device: {devices} of NVIDIA's, by NCCL");
    let all: Vec<usize> = (0..devices).collect();
    devices_conform(&all[..1]);
    if devices > 1 {
        devices_conform(&all);
    } else if found.0 >= SHARES_DEVICES && std::env::var("NCCL_MULTI_RANK_GPU_ENABLE").is_ok_and(|on| on == "1") {
        devices_conform(&[0, 0]);
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
fn a_machine_without_a_device_says_so() {
    let id = UniqueId([0; 128]);
    match device_count() {
        Ok(count) => {
            println!("{count} devices");
            let error = NcclCommunicator::join(&id, 0, 1, options(count)).unwrap_err();
            assert!(error.to_string().contains(&format!("not device {count}")), "{error}");
        }
        Err(error) => {
            println!("no device: {error}");
            assert!(error.to_string().contains("NVIDIA driver"), "{error}");
            assert_eq!(NcclCommunicator::join(&id, 0, 1, options(0)).unwrap_err(), error);
        }
    }
}
