//! Emulated devices pass the conformance suite by the stand-in for NCCL, `fake_nccl.cpp`, which g++ compiles.
#![cfg(not(loom))]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]
#![expect(clippy::print_stdout, reason = "a test that is skipped says why")]

mod device_rank;

use device_rank::{PATIENCE, conform, joined};
use gt_collectives::nccl::device::{DeviceComm, DeviceCommOptions};
use gt_collectives::nccl::{StreamHandle, UniqueId};
use gt_collectives::{CollectiveError, Health, Operation, Reduce};
use gt_cuda::Driver;
use gt_cuda::driver::emulated::{Emulated, is_available};
use gt_ops::DType;
use std::path::Path;
use std::process::Command;

/// Set in a process of a test to the stand-in's path.
const LIBRARY: &str = "GT_NCCL_LIBRARY";
/// Set in a process of a test to the folder in which the ranks meet.
const FOLDER: &str = "GT_FAKE_NCCL_FOLDER";
/// The memory of an emulated device.
const DEVICE_BYTES: usize = 2 << 30;

/// Runs `run` in a process of its own, whose NCCL is the stand-in; `name` is that of the calling test.
fn with_stand_in(name: &str, run: impl FnOnce()) {
    if std::env::var_os(FOLDER).is_some() {
        return run();
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake_nccl.cpp");
    if !is_available() {
        return println!("skipped: no g++, which compiles {}: apt install g++", source.display());
    }
    let folder = std::env::temp_dir().join(format!("gt-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let library = folder.join("libnccl.so.2");
    let mut gxx = Command::new("g++");
    gxx.args(["-std=c++17", "-O1", "-shared", "-fPIC"]).arg(source).arg("-o").arg(&library);
    assert!(gxx.status().unwrap().success(), "g++ compiles the stand-in");
    let mut test = Command::new(std::env::current_exe().unwrap());
    test.args(["--exact", name, "--nocapture"]).env(LIBRARY, &library).env(FOLDER, &folder);
    assert!(test.status().unwrap().success(), "{name} in a process of its own");
    std::fs::remove_dir_all(folder).unwrap();
}

fn device() -> Box<dyn Driver> {
    Box::new(Emulated::new(DEVICE_BYTES).named([0; 16]))
}

#[test]
fn emulated_devices_conform() {
    with_stand_in("emulated_devices_conform", || {
        for size in [1, 3] {
            conform(|| (0..size).map(|_| device()).collect());
        }
    });
}

#[test]
fn a_broken_group_ends_the_wait_for_nccl() {
    with_stand_in("a_broken_group_ends_the_wait_for_nccl", || {
        let aborted = CollectiveError::Aborted { operation: Operation::Barrier, rank: 0, by: 1 };
        let why = aborted.clone();
        let options =
            DeviceCommOptions { rank: 0, size: 2, patience: PATIENCE, health: Health::new(move || Err(why.clone())) };
        let mut comm = DeviceComm::begin(&UniqueId::new().unwrap(), options).unwrap();
        assert_eq!(comm.is_ready(), Ok(false), "the other rank has not joined");
        let driver = device();
        let stream = driver.new_stream().unwrap();
        let handle = driver.raw(stream) as usize as StreamHandle;
        let memory = driver.allocate(4, stream).unwrap();
        let mut call = || {
            // SAFETY: the memory holds one element, and lives as long as the driver.
            unsafe { comm.all_reduce(memory, memory, 1, DType::F32, Reduce::Sum, handle) }
        };
        assert_eq!(call(), Err(aborted), "NCCL does not accept the call before all ranks have joined");
        let given_up = "all_reduce on rank 0: the communicator was given up before";
        assert_eq!(call().unwrap_err().to_string(), given_up);
        assert!(joined(&comm).is_err());
    });
}
