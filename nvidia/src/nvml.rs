//! What NVML says of devices besides: how much memory is free, and who holds the rest.

use crate::device::{Device, DeviceProcess};
use crate::find::{Missing, NVML};
use std::ffi::{CStr, CString, c_char, c_uint, c_ulonglong, c_void};

functions! {
    /// The functions of NVML that are used.
    pub struct Nvml {
        init: "nvmlInit_v2" () -> c_uint;
        shutdown: "nvmlShutdown" () -> c_uint;
        driver_version: "nvmlSystemGetDriverVersion" (*mut c_char, c_uint) -> c_uint;
        by_uuid: "nvmlDeviceGetHandleByUUID" (*const c_char, *mut *mut c_void) -> c_uint;
        memory: "nvmlDeviceGetMemoryInfo" (*mut c_void, *mut NvmlMemory) -> c_uint;
        nvlink_state: "nvmlDeviceGetNvLinkState" (*mut c_void, c_uint, *mut c_uint) -> c_uint;
        nvlink_version: "nvmlDeviceGetNvLinkVersion" (*mut c_void, c_uint, *mut c_uint) -> c_uint;
        pci_generation: "nvmlDeviceGetMaxPcieLinkGeneration" (*mut c_void, *mut c_uint) -> c_uint;
        pci_width: "nvmlDeviceGetMaxPcieLinkWidth" (*mut c_void, *mut c_uint) -> c_uint;
        processes: "nvmlDeviceGetComputeRunningProcesses_v3" (*mut c_void, *mut c_uint, *mut Process) -> c_uint;
    }
}

/// `nvmlMemory_t`.
#[derive(Default)]
#[repr(C)]
pub struct NvmlMemory {
    total: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

/// `nvmlProcessInfo_t`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct Process {
    pid: c_uint,
    used_bytes: c_ulonglong,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

/// Processes of a device that are looked at.
const PROCESSES_MAX: usize = 256;
/// `NVML_NVLINK_MAX_LINKS`, which no device reaches.
const NVLINKS_MAX: c_uint = 18;

/// What a link of this version moves in one direction, gigabytes a second.
fn nvlink_gbytes_per_s(version: c_uint) -> f64 {
    match version {
        0 | 1 => 20.0,
        // 2.0, 2.2, 3.0, 3.1 and 4.0, as NVML counts them.
        2..=6 => 25.0,
        _ => 50.0,
    }
}

impl Nvml {
    /// Opens NVML and begins.
    ///
    /// # Errors
    /// [`Missing`].
    pub fn start() -> Result<Nvml, Missing> {
        NVML.open(None, |opened| {
            let nvml = Nvml::bind(opened)?;
            // SAFETY: it may be called at any time, as often as one likes.
            match unsafe { (nvml.init)() } {
                0 => Ok(nvml),
                code => Err(format!("nvmlInit says {code}")),
            }
        })
    }

    /// The driver's version, as in 580.95.05.
    pub fn driver_version(&self) -> Option<String> {
        let mut text = [0; 80];
        // SAFETY: it writes so many bytes at most, the last of them 0.
        let code = unsafe { (self.driver_version)(text.as_mut_ptr(), text.len() as c_uint) };
        // SAFETY: the last byte is 0 in any case.
        (code == 0).then(|| unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned())
    }

    /// What a device sends to others: by its NVLinks if it has some, else by PCI.
    fn link_gbytes_per_s(&self, handle: *mut c_void) -> Option<f64> {
        let mut nvlinks = 0.0;
        for link in 0..NVLINKS_MAX {
            let (mut active, mut version) = (0, 0);
            // SAFETY: a handle of NVML's; each writes a number.
            let known = unsafe {
                (self.nvlink_state)(handle, link, &raw mut active) == 0
                    && (self.nvlink_version)(handle, link, &raw mut version) == 0
            };
            if known && active != 0 {
                nvlinks += nvlink_gbytes_per_s(version);
            }
        }
        if nvlinks > 0.0 {
            return Some(nvlinks);
        }
        let (mut generation, mut width) = (0, 0);
        // SAFETY: as above.
        let known = unsafe {
            (self.pci_generation)(handle, &raw mut generation) == 0 && (self.pci_width)(handle, &raw mut width) == 0
        };
        // A lane of PCI 3 moves 8 gigabits a second, and each generation twice as many; a fifth is lost on the way.
        (known && generation > 0).then(|| 0.8 * f64::from(width) * 2f64.powi(generation as i32 - 3))
    }

    /// Adds what NVML knows of `device`.
    pub fn add(&self, device: &mut Device) {
        let Ok(uuid) = CString::new(device.uuid.as_str()) else { return };
        let mut handle = std::ptr::null_mut();
        // SAFETY: it reads a string and writes a pointer.
        if unsafe { (self.by_uuid)(uuid.as_ptr(), &raw mut handle) } != 0 {
            return;
        }
        let mut memory = NvmlMemory::default();
        // SAFETY: a handle of NVML's; it writes one struct.
        if unsafe { (self.memory)(handle, &raw mut memory) } == 0 {
            device.free_bytes = Some(memory.free);
        }
        device.link_gbytes_per_s = self.link_gbytes_per_s(handle);
        let mut processes = [Process::default(); PROCESSES_MAX];
        let mut count = PROCESSES_MAX as c_uint;
        // SAFETY: as above; it writes `count` structs at most, and how many it wrote.
        if unsafe { (self.processes)(handle, &raw mut count, processes.as_mut_ptr()) } == 0 {
            device.holders = processes.iter().take(count as usize).map(holder).collect();
        }
    }
}

impl Drop for Nvml {
    fn drop(&mut self) {
        // SAFETY: it was begun.
        unsafe { (self.shutdown)() };
    }
}

fn holder(process: &Process) -> DeviceProcess {
    let name = std::fs::read_to_string(format!("/proc/{}/comm", process.pid)).unwrap_or_default();
    DeviceProcess {
        pid: process.pid,
        name: name.trim().into(),
        // All ones where it is not known, as in a container.
        bytes: Some(process.used_bytes).filter(|bytes| *bytes != c_ulonglong::MAX),
    }
}
