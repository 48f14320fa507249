//! The device of a worker's process, as the daemon's first message names it.

use gt_backend::{BackendFacts, Capabilities};
use gt_config::{DeviceChoice, WorkerKind};
use gt_protocol::WorkerInfo;
use serde::{Deserialize, Serialize};

/// A backend, and the number of the device among those that the backend finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "(String, u32)", try_from = "(String, u32)")]
pub struct WorkerDevice {
    /// The backend.
    pub backend: &'static BackendFacts,
    /// The device's number; 0 for a backend that does not number its devices.
    pub number: u32,
}

impl From<WorkerDevice> for (String, u32) {
    fn from(device: WorkerDevice) -> (String, u32) {
        (device.backend.name.into(), device.number)
    }
}

impl TryFrom<(String, u32)> for WorkerDevice {
    type Error = String;
    fn try_from((name, number): (String, u32)) -> Result<WorkerDevice, String> {
        let backend = gt_backends::find(&name).ok_or_else(|| format!("there is no backend {name}"))?;
        Ok(WorkerDevice { backend, number })
    }
}

impl WorkerDevice {
    /// The device of a worker of this kind; none if the kind stands for several.
    pub fn of(kind: WorkerKind) -> Option<WorkerDevice> {
        let number = match kind.device {
            DeviceChoice::Only => 0,
            DeviceChoice::Number(number) => number,
            DeviceChoice::Each => return None,
        };
        Some(WorkerDevice { backend: kind.backend, number })
    }

    /// The host's processor.
    pub fn host() -> WorkerDevice {
        WorkerDevice { backend: gt_backends::host(), number: 0 }
    }

    /// Estimated capabilities of the worker that `info` describes, for use until the worker reports its own.
    pub fn estimated(self, info: &WorkerInfo) -> Capabilities {
        Capabilities::estimated(self.backend, info.threads, info.memory_bytes_limit)
    }
}
