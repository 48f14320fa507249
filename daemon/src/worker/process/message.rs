//! The messages on the socket beside a worker's rings. Descriptors travel with them.

use super::worker_device::WorkerDevice;
use crate::nodes::endpoint::{DataSetup, Endpoint, NetworkRank};
use gt_backend::Capabilities;
use gt_protocol::{DeviceInfo, WorkerInfo};
use serde::{Deserialize, Serialize};

/// A message of the daemon to a worker's process.
#[derive(Debug, Serialize, Deserialize)]
pub enum Message {
    /// The first message: the worker's description, with the descriptors of the rings and the bell, unless it has a
    /// lane.
    Start {
        /// The worker's description for users, with the number of its threads and its limit of memory (0 for none).
        info: Box<WorkerInfo>,
        /// The device that it computes on.
        device: WorkerDevice,
        /// Its number among the workers.
        number: usize,
        /// Capacity of the ring of reports, slots.
        report_slots: u32,
        /// Capacity of the ring of steps, slots.
        work_slots: u32,
        /// How the process makes its port for workers of other machines; none without nodes.
        #[serde(default)]
        data: Option<DataSetup>,
        /// The token of the lane that the stand-in of a node's worker opens; none for a process, which has rings.
        #[serde(default)]
        lane: Option<u64>,
    },
    /// A session's next arena, with the descriptor of its memory.
    Arena {
        /// The session's number.
        session: u64,
        /// The arena's number.
        number: u32,
        /// The arena's length.
        bytes: u64,
    },
    /// In place of an arena that was given back before the process could take it.
    Outdated {
        /// The session's number.
        session: u64,
        /// The arena's number.
        number: u32,
        /// Whether the session has ended: its steps, which may name the arena, are skipped.
        ended: bool,
    },
    /// The rank as which the worker is to join a group, with the descriptor of the group's memory.
    #[serde(rename = "Place")]
    Rank {
        /// The rank.
        rank: usize,
        /// How many [`Message::Memory`] follow.
        memories: usize,
    },
    /// The memory of the next rank's tensors, as a descriptor.
    Memory,
    /// In place of [`Message::Rank`], the rank in a group over several machines.
    Network {
        /// The rank.
        rank: NetworkRank,
        /// Whether [`Message::Rank`] follows, for the group of the ranks of this machine.
        near: bool,
    },
}

/// The process's answer to [`Message::Start`], with the descriptors of its lifeline, of the socket for cancellations
/// and, if other processes can map the memory of its tensors, of that memory.
#[derive(Debug, Serialize, Deserialize)]
pub struct Ready {
    /// The program's version.
    pub version: String,
    /// The worker's capabilities, or why it cannot work.
    #[serde(rename = "able")]
    pub capabilities: Result<Capabilities, String>,
    /// Properties of its device, unless that is the processor.
    #[serde(default)]
    pub device: Option<DeviceInfo>,
    /// Where workers of other machines reach it; none without nodes.
    #[serde(default)]
    pub endpoint: Option<Endpoint>,
}
