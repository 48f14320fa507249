//! NVML's view of devices: free memory, processes, links.

use crate::device::{Device, DeviceProcess};
use crate::find::{Missing, NVML};
use std::ffi::{CStr, CString, c_char, c_uint, c_ulonglong, c_void};

/// NVML's types of handles and of numbers, each under a name of its own, so that a test compares them with its header.
type RawDevice = *mut c_void;
type NvmlReturn = c_uint;
type EnableState = c_uint;

functions! {
    /// The functions of NVML that GT uses.
    pub struct Nvml {
        init: "nvmlInit_v2" () -> NvmlReturn;
        shutdown: "nvmlShutdown" () -> NvmlReturn;
        driver_version: "nvmlSystemGetDriverVersion" (*mut c_char, c_uint) -> NvmlReturn;
        by_uuid: "nvmlDeviceGetHandleByUUID" (*const c_char, *mut RawDevice) -> NvmlReturn;
        memory: "nvmlDeviceGetMemoryInfo" (RawDevice, *mut NvmlMemory) -> NvmlReturn;
        nvlink_state: "nvmlDeviceGetNvLinkState" (RawDevice, c_uint, *mut EnableState) -> NvmlReturn;
        nvlink_version: "nvmlDeviceGetNvLinkVersion" (RawDevice, c_uint, *mut c_uint) -> NvmlReturn;
        pci_generation: "nvmlDeviceGetMaxPcieLinkGeneration" (RawDevice, *mut c_uint) -> NvmlReturn;
        pci_width: "nvmlDeviceGetMaxPcieLinkWidth" (RawDevice, *mut c_uint) -> NvmlReturn;
        processes: "nvmlDeviceGetComputeRunningProcesses_v3" (RawDevice, *mut c_uint, *mut Process) -> NvmlReturn;
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

/// The most processes that are listed for a device.
const PROCESSES_MAX: usize = 256;
/// `NVML_NVLINK_MAX_LINKS`; no device has more.
const NVLINKS_MAX: c_uint = 36;

/// Gigabytes a second that one NVLink of this version moves in each direction.
fn nvlink_gbytes_per_s(version: c_uint) -> f64 {
    match version {
        0 | 1 => 20.0,
        // NVML's numbers for NVLink 2.0, 2.2, 3.0, 3.1 and 4.0.
        2..=6 => 25.0,
        _ => 50.0,
    }
}

impl Nvml {
    /// Opens NVML and initialises it.
    ///
    /// # Errors
    /// [`Missing`].
    pub fn start() -> Result<Nvml, Missing> {
        NVML.open(None, |opened| {
            let nvml = Nvml::bind(opened)?;
            // SAFETY: `nvmlInit_v2` may be called at any time and more than once.
            match unsafe { (nvml.init)() } {
                0 => Ok(nvml),
                code => Err(format!("nvmlInit says {code}")),
            }
        })
    }

    /// The driver's version, as in 580.95.05.
    pub fn driver_version(&self) -> Option<String> {
        let mut text = [0; 80];
        // SAFETY: the function writes at most `text.len()` bytes, the last of them 0.
        let code = unsafe { (self.driver_version)(text.as_mut_ptr(), text.len() as c_uint) };
        // SAFETY: `text` was zeroed, and its last byte stays 0.
        (code == 0).then(|| unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned())
    }

    /// Gigabytes a second from a device to others: by its NVLinks if it has any, else by PCI Express.
    fn link_gbytes_per_s(&self, handle: *mut c_void) -> Option<f64> {
        let mut nvlinks = 0.0;
        for link in 0..NVLINKS_MAX {
            let (mut active, mut version) = (0, 0);
            // SAFETY: `handle` comes from `nvmlDeviceGetHandleByUUID`; each function writes one number, to a local.
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
        // SAFETY: `handle` comes from `nvmlDeviceGetHandleByUUID`; each function writes one number, to a local.
        let known = unsafe {
            (self.pci_generation)(handle, &raw mut generation) == 0 && (self.pci_width)(handle, &raw mut width) == 0
        };
        // A lane of PCI Express 3 moves 8 gigabits a second, and each generation doubles that; a fifth is overhead.
        (known && generation > 0).then(|| 0.8 * f64::from(width) * 2f64.powi(generation as i32 - 3))
    }

    /// Adds NVML's facts to `device`.
    pub fn add(&self, device: &mut Device) {
        let Ok(uuid) = CString::new(device.uuid.as_str()) else { return };
        let mut handle = std::ptr::null_mut();
        // SAFETY: `uuid` is a C string, and the function writes one handle, to a local.
        if unsafe { (self.by_uuid)(uuid.as_ptr(), &raw mut handle) } != 0 {
            return;
        }
        let mut memory = NvmlMemory::default();
        // SAFETY: `handle` is valid, and the function writes one struct, to the local `memory`.
        if unsafe { (self.memory)(handle, &raw mut memory) } == 0 {
            device.free_bytes = Some(memory.free);
        }
        device.link_gbytes_per_s = self.link_gbytes_per_s(handle);
        let mut processes = [Process::default(); PROCESSES_MAX];
        let mut count = PROCESSES_MAX as c_uint;
        // SAFETY: `handle` is valid; the function writes at most `count` structs, and `processes` has that many.
        if unsafe { (self.processes)(handle, &raw mut count, processes.as_mut_ptr()) } == 0 {
            device.holders = processes.iter().take(count as usize).map(holder).collect();
        }
    }
}

impl Drop for Nvml {
    fn drop(&mut self) {
        // SAFETY: `start` initialised NVML, and this is the only shutdown for it.
        unsafe { (self.shutdown)() };
    }
}

fn holder(process: &Process) -> DeviceProcess {
    let name = std::fs::read_to_string(format!("/proc/{}/comm", process.pid)).unwrap_or_default();
    DeviceProcess {
        pid: process.pid,
        name: name.trim().into(),
        // NVML reports all ones where the amount is unknown, as in a container.
        bytes: Some(process.used_bytes).filter(|bytes| *bytes != c_ulonglong::MAX),
    }
}
