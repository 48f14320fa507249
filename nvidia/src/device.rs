//! The devices of a machine, and the reasons why there may be none.

use serde::{Deserialize, Serialize};

/// The compute capability of the oldest devices that can be used: Turing. NVRTC 13 compiles for none that is older, and
/// tests compile the kernels for this one.
pub const CAPABILITY_MIN: (u32, u32) = (7, 5);

/// A device that the CUDA driver lists.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Device {
    /// The device's CUDA ordinal, in this process and in others with the same `CUDA_VISIBLE_DEVICES`.
    pub number: u32,
    /// Product name, as in `NVIDIA H200`.
    pub name: String,
    /// UUID, as in `GPU-8d2a…` or `MIG-…`.
    pub uuid: String,
    /// Compute capability, as in 9.0.
    pub capability: (u32, u32),
    /// Total memory in bytes.
    pub memory_bytes: u64,
    /// PCI address, as in `0000:65:00.0`.
    pub pci: String,
    /// Whether it is a slice of a GPU (MIG).
    pub mig: bool,
    /// Which processes may use it.
    pub compute_mode: ComputeMode,
    /// Number of streaming multiprocessors.
    pub multiprocessors: u32,
    /// Clock of the multiprocessors; 0 if unknown.
    pub clock_khz: u32,
    /// Clock of the memory; 0 if unknown.
    pub memory_clock_khz: u32,
    /// Width of the memory bus; 0 if unknown.
    pub memory_bus_bits: u32,
    /// Gigabytes a second to other devices in each direction, by NVLink or else by PCI Express, if NVML knows.
    pub link_gbytes_per_s: Option<f64>,
    /// Free memory in bytes, if NVML knows.
    pub free_bytes: Option<u64>,
    /// Processes that use it, if NVML knows.
    pub holders: Vec<DeviceProcess>,
}

/// Which processes may use a device: `CUcomputemode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ComputeMode {
    /// Any process.
    Shared,
    /// One process at a time.
    Exclusive,
    /// No process.
    Prohibited,
}

/// A process that uses a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceProcess {
    /// Process id.
    pub pid: u32,
    /// The process's name; empty if it cannot be read.
    pub name: String,
    /// Bytes of the device's memory that it holds, if known.
    pub bytes: Option<u64>,
}

/// The reason why no device can be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum NoCuda {
    /// The driver's library was not found.
    #[error("{0}")]
    NoDriver(String),
    /// The driver is too old.
    #[error(
        "NVIDIA's driver is too old: it is for CUDA {found}, and 12.0 is needed: install driver 525 or newer, best 580"
    )]
    DriverTooOld {
        /// The CUDA version that the driver supports.
        found: String,
    },
    /// The driver lists no device, or none for this process.
    #[error("no GPU can be used: {0}")]
    NoDevice(String),
    /// A call to the driver failed.
    #[error("NVIDIA's driver does not work: {what}: {why}")]
    Failed {
        /// The call.
        what: String,
        /// The driver's error.
        why: String,
    },
    /// The process that probed the driver died.
    #[error("NVIDIA's driver does not work: the process that asked it for devices {0}; dmesg may say why")]
    Broken(String),
}

impl ComputeMode {
    pub(crate) fn from_number(number: u32) -> ComputeMode {
        match number {
            2 => ComputeMode::Prohibited,
            1 | 3 => ComputeMode::Exclusive,
            _ => ComputeMode::Shared,
        }
    }
}

impl Device {
    /// The reason why the device cannot be used, as a sentence; none if it can.
    pub fn trouble(&self) -> Option<String> {
        let (major, minor) = self.capability;
        if self.capability < CAPABILITY_MIN {
            let (major_min, minor_min) = CAPABILITY_MIN;
            return Some(format!(
                "cuda:{} is too old: {} has compute capability {major}.{minor}, and {major_min}.{minor_min} is needed",
                self.number, self.name
            ));
        }
        match self.compute_mode {
            ComputeMode::Prohibited => Some(format!(
                "cuda:{} may not be used: its compute mode is Prohibited: `nvidia-smi -c 0` as root lifts that",
                self.number
            )),
            ComputeMode::Exclusive if !self.holders.is_empty() => Some(format!(
                "cuda:{} is in exclusive mode and in use by {}: end that program, or `nvidia-smi -c 0` as root",
                self.number,
                self.holders.iter().map(DeviceProcess::to_string).collect::<Vec<_>>().join(", ")
            )),
            _ => None,
        }
    }

    /// Estimated gigaflops in f32, and gigabytes of memory traffic a second: the part that programs can reach of the
    /// peak rates at the device's clocks.
    pub fn rates(&self) -> (f64, f64) {
        // The number of f32 lanes of a multiprocessor; the driver has no attribute for it.
        let lanes = match self.capability {
            (8, 0) | (7, _) => 64.0,
            _ => 128.0,
        };
        let gflops = f64::from(self.multiprocessors) * lanes * 2.0 * f64::from(self.clock_khz) * 1e-6;
        // Two transfers a clock (double data rate).
        let gbytes = 2.0 * f64::from(self.memory_clock_khz) * f64::from(self.memory_bus_bits) / 8.0 * 1e-6;
        // MIG slices and some drivers report no clocks; the estimate is then the rate of a small device.
        let or = |rate: f64, otherwise: f64| if rate > 0.0 { rate } else { otherwise };
        (or(0.8 * gflops, 8_000.0), or(0.85 * gbytes, 400.0))
    }
}

impl std::fmt::Display for DeviceProcess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = if self.name.is_empty() { "process" } else { &self.name };
        write!(f, "{name} {}", self.pid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no files of the repository")]
    fn the_guides_name_the_oldest_device_that_can_be_used() {
        let (major, minor) = CAPABILITY_MIN;
        for page in ["gpu.md", "environment.md"] {
            let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(page);
            let text = std::fs::read_to_string(path).unwrap();
            assert!(text.contains(&format!("of compute capability {major}.{minor} or newer")), "{page}");
        }
    }
}
