//! Devices, and why there may be none.

use serde::{Deserialize, Serialize};

/// The oldest devices that can be used: Turing. NVRTC 13 compiles for none that is older.
const CAPABILITY_MIN: (u32, u32) = (7, 5);

/// A device that CUDA can use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Device {
    /// Its number in this process and those with the same `CUDA_VISIBLE_DEVICES`.
    pub number: u32,
    /// As in `NVIDIA H200`.
    pub name: String,
    /// As in `GPU-8d2a…`, or `MIG-…`.
    pub uuid: String,
    /// As in 9.0.
    pub capability: (u32, u32),
    /// All its memory.
    pub memory_bytes: u64,
    /// Its place on the bus, as in `0000:65:00.0`.
    pub pci: String,
    /// Whether it is a slice of a GPU.
    pub mig: bool,
    /// Who may use it.
    pub compute_mode: ComputeMode,
    /// How many streaming multiprocessors.
    pub multiprocessors: u32,
    /// Their clock; 0 if it is not known, as the next two.
    pub clock_khz: u32,
    /// The memory's clock,
    pub memory_clock_khz: u32,
    /// and the width of its bus.
    pub memory_bus_bits: u32,
    /// Gigabytes a second that it sends to other devices, and receives meanwhile, if NVML says so.
    pub link_gbytes_per_s: Option<f64>,
    /// Memory that is free, if NVML says so.
    pub free_bytes: Option<u64>,
    /// Who uses it, if NVML says so.
    pub holders: Vec<DeviceProcess>,
}

/// Who may use a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ComputeMode {
    /// Whoever wants to.
    Shared,
    /// One process at a time.
    Exclusive,
    /// Nobody.
    Prohibited,
}

/// A process that uses a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceProcess {
    /// Its number.
    pub pid: u32,
    /// What it is called, if that can be seen.
    pub name: String,
    /// Memory of the device that it holds, if that is known.
    pub bytes: Option<u64>,
}

/// Why there is no device to compute on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum NoCuda {
    /// The driver's library is not there.
    #[error("{0}")]
    NoDriver(String),
    /// The driver is too old.
    #[error(
        "NVIDIA's driver is too old: it is for CUDA {found}, and 12.0 is needed: install driver 525 or newer, best 580"
    )]
    DriverTooOld {
        /// The CUDA it is for.
        found: String,
    },
    /// There is none, or none for this process.
    #[error("no GPU can be used: {0}")]
    NoDevice(String),
    /// The driver says no.
    #[error("NVIDIA's driver does not work: {what}: {why}")]
    Failed {
        /// What it was asked.
        what: String,
        /// What it said.
        why: String,
    },
    /// The process that asked the driver did not live to say.
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
    /// Why nothing can be computed on it, if so.
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

    /// What it is estimated to do: gigaflops in f32, and gigabytes a second of its memory. Both are of what it says
    /// of its clocks, less what is never reached.
    pub fn rates(&self) -> (f64, f64) {
        // Lanes of f32 a multiprocessor, which no attribute says.
        let lanes = match self.capability {
            (8, 0) | (7, _) => 64.0,
            _ => 128.0,
        };
        let gflops = f64::from(self.multiprocessors) * lanes * 2.0 * f64::from(self.clock_khz) * 1e-6;
        // Two transfers a clock.
        let gbytes = 2.0 * f64::from(self.memory_clock_khz) * f64::from(self.memory_bus_bits) / 8.0 * 1e-6;
        // A slice of a GPU does not say; nor need a driver. Then as a small device.
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
