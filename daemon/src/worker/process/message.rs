//! The messages on the socket beside a worker's rings. Descriptors travel with them.

use super::worker_device::WorkerDevice;
use gt_backend::Capabilities;
use gt_protocol::{DeviceInfo, WorkerInfo};
use serde::{Deserialize, Serialize};

/// What the daemon tells a worker's process beside the ring. Descriptors travel with it.
#[derive(Debug, Serialize, Deserialize)]
pub enum Message {
    /// The first one: what the worker is. With the descriptors of the rings and the bell.
    Start {
        /// What users are told of the worker; it computes with so many threads and keeps to that limit, if there is
        /// one.
        info: WorkerInfo,
        /// The device that it computes on.
        device: WorkerDevice,
        /// Its number among the workers.
        number: usize,
        /// Room for reports.
        report_slots: u32,
        /// Room for steps.
        work_slots: u32,
    },
    /// A session's next arena. With its descriptor.
    Arena {
        /// MemoryScope.
        session: u64,
        /// Its length.
        bytes: u64,
    },
    /// A rank in a group, to be joined. With the descriptor of the group's memory.
    #[serde(rename = "Place")]
    Rank {
        /// Which rank.
        rank: usize,
        /// How many [`Message::Memory`] follow.
        memories: usize,
    },
    /// What the next rank's tensors are reached by. With its descriptor.
    Memory,
}

/// What the process answers to [`Message::Start`]. With the descriptor of its lifeline, and of what its tensors are
/// reached by if it has that.
#[derive(Debug, Serialize, Deserialize)]
pub struct Ready {
    /// The program's version.
    pub version: String,
    /// What it can do, or why it cannot.
    #[serde(rename = "able")]
    pub capabilities: Result<Capabilities, String>,
    /// Properties of its device, unless that is the processor.
    #[serde(default)]
    pub device: Option<DeviceInfo>,
}
