//! The messages and frames between a node's agent and the daemon.
//!
//! The first message in each direction of a connection is JSON: [`MachineRequest`] and [`NodeReply`]. Then come the
//! frames of a [`LastingLink`], which [`LinkFrame`] encodes.

use super::endpoint::{DataHello, Endpoint, NetworkRank};
use crate::worker::process::message::Ready;
use crate::worker::process::worker_device::WorkerDevice;
use gt_bridge::frame::slots_in;
use gt_bridge::lasting_link::{LINK_FRAME_BYTES_MAX, LastingLink, LinkEnd};
use gt_protocol::WorkerInfo;
use gt_shm::{SLOT_BYTES, Slot};
use serde::{Deserialize, Serialize};

/// The most bytes of an arena in one frame.
pub const DATA_BYTES_MAX: usize = 256 << 10;
/// The most slots in one frame.
const SLOTS_MAX: usize = 1024;

/// The purpose of a connection between machines.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "purpose", rename_all = "snake_case")]
pub enum MachineRequest {
    /// A node joins, or resumes its link.
    Node(Box<NodeHello>),
    /// A process of a worker reaches another.
    Data(DataHello),
}

/// A node's first message.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeHello {
    /// The program's version.
    pub version: String,
    /// The link to resume; none to join.
    pub link: Option<String>,
    /// The bytes of the link that were received.
    pub received: u64,
    /// The secret of an invitation; of no use to a node that is known.
    pub secret: String,
    /// The name that the node wants.
    pub name: Option<String>,
    /// The name of its machine.
    pub host: String,
    /// Its workers, which the frames number from 0.
    pub workers: Vec<OfferedWorker>,
}

/// A worker that a node offers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfferedWorker {
    /// The name within the node, as `cpu:0`.
    pub name: String,
    /// The device, as in the daemon's configuration.
    pub device: String,
    /// Threads that compute.
    pub threads: u32,
    /// The memory limit for its tensors, bytes; 0 for the device's.
    pub memory_bytes_limit: u64,
}

/// The daemon's reply to a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub enum NodeReply {
    /// The node has joined, or its link goes on.
    Welcome {
        /// The link's name, to resume it.
        link: String,
        /// The node's name.
        name: String,
        /// The bytes of the link that the daemon has received.
        received: u64,
    },
    /// The node may not join, or its link has ended: the reason, for its user.
    Refused {
        /// The reason.
        why: String,
    },
}

/// A message of the daemon to a node.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "snake_case")]
pub enum ToNode {
    /// Starts the process of a worker.
    Start {
        /// The worker.
        worker: u32,
        /// Its description for users.
        info: Box<WorkerInfo>,
        /// The device that it computes on.
        device: WorkerDevice,
        /// Its number among the daemon's workers.
        number: usize,
    },
    /// A session's next arena.
    Arena {
        /// The worker.
        worker: u32,
        /// The session's number.
        session: u64,
        /// The arena's number.
        number: u32,
        /// The arena's length.
        bytes: u64,
    },
    /// In place of an arena whose session ended before.
    Outdated {
        /// The worker.
        worker: u32,
    },
    /// The rank as which a worker is to join a group.
    Rank {
        /// The worker.
        worker: u32,
        /// The rank.
        rank: Box<NetworkRank>,
    },
    /// Cancels a session's instructions whose results have lower ids than `below`.
    Cancel {
        /// The worker.
        worker: u32,
        /// The session's number.
        session: u64,
        /// The id of the first result that is not cancelled.
        below: u64,
    },
    /// Ends the process of a worker.
    End {
        /// The worker.
        worker: u32,
    },
}

/// A message of a node to the daemon.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "snake_case")]
pub enum ToDaemon {
    /// The process of a worker is ready.
    Ready {
        /// The worker.
        worker: u32,
        /// The process's answer to its description.
        ready: Box<Ready>,
    },
    /// The process of a worker has ended.
    Ended {
        /// The worker.
        worker: u32,
        /// How, for users.
        why: String,
    },
    /// A worker whose process has ended can be started again.
    Again {
        /// The worker.
        worker: u32,
    },
}

/// A frame of a node's link.
#[derive(Debug)]
pub enum LinkFrame<'a> {
    /// A message as JSON.
    Message(&'a [u8]),
    /// Slots of a worker's ring: steps to the node, reports to the daemon.
    Slots {
        /// The worker.
        worker: u32,
        /// The slots.
        slots: Vec<Slot>,
    },
    /// Bytes of an arena.
    Data {
        /// The worker.
        worker: u32,
        /// The session's number.
        session: u64,
        /// The arena's number.
        arena: u32,
        /// The offset in the arena.
        offset: u64,
        /// The bytes.
        bytes: &'a [u8],
    },
}

const MESSAGE: u8 = 0;
const SLOTS: u8 = 1;
const DATA: u8 = 2;
const DATA_HEADER_BYTES: usize = 25;

impl LinkFrame<'_> {
    /// The frame in bytes that came.
    ///
    /// # Errors
    /// The bytes are no frame.
    pub fn decode(bytes: &[u8]) -> Result<LinkFrame<'_>, String> {
        let invalid = || format!("a frame of {} bytes", bytes.len());
        let (kind, rest) = bytes.split_first().ok_or_else(invalid)?;
        let word = |at: usize| rest.get(at..at + 4).and_then(|word| word.try_into().ok()).map(u32::from_le_bytes);
        let long = |at: usize| rest.get(at..at + 8).and_then(|word| word.try_into().ok()).map(u64::from_le_bytes);
        match *kind {
            MESSAGE => Ok(LinkFrame::Message(rest)),
            SLOTS => {
                let slots = rest.get(4..).filter(|slots| slots.len().is_multiple_of(SLOT_BYTES)).ok_or_else(invalid)?;
                Ok(LinkFrame::Slots { worker: word(0).ok_or_else(invalid)?, slots: slots_in(slots).collect() })
            }
            DATA => Ok(LinkFrame::Data {
                worker: word(0).ok_or_else(invalid)?,
                session: long(4).ok_or_else(invalid)?,
                arena: word(12).ok_or_else(invalid)?,
                offset: long(16).ok_or_else(invalid)?,
                bytes: rest.get(DATA_HEADER_BYTES - 1..).ok_or_else(invalid)?,
            }),
            _ => Err(invalid()),
        }
    }
}

/// Sends a message.
///
/// # Errors
/// The link has ended.
pub fn send_message<M: Serialize>(link: &LastingLink, message: &M) -> Result<(), LinkEnd> {
    let text = serde_json::to_vec(message).map_err(|error| LinkEnd::Broken(error.to_string()))?;
    if text.len() >= LINK_FRAME_BYTES_MAX {
        return Err(LinkEnd::Broken(format!("a message of {} bytes", text.len())));
    }
    link.send(&[&[MESSAGE], &text])
}

/// Sends slots of a worker's ring.
///
/// # Errors
/// The link has ended.
pub fn send_slots(link: &LastingLink, worker: u32, slots: &[Slot]) -> Result<(), LinkEnd> {
    slots.chunks(SLOTS_MAX).try_for_each(|slots| {
        let bytes: Vec<u8> = slots.iter().flatten().flat_map(|word| word.to_le_bytes()).collect();
        link.send(&[&[SLOTS], &worker.to_le_bytes(), &bytes])
    })
}

/// Sends bytes of an arena, at most [`DATA_BYTES_MAX`].
///
/// # Errors
/// The link has ended.
pub fn send_data(
    link: &LastingLink,
    worker: u32,
    (session, arena, offset): (u64, u32, u64),
    bytes: &[u8],
) -> Result<(), LinkEnd> {
    let (worker, session) = (worker.to_le_bytes(), session.to_le_bytes());
    link.send(&[&[DATA], &worker, &session, &arena.to_le_bytes(), &offset.to_le_bytes(), bytes])
}

/// The endpoint of a worker as it names itself, completed by what the daemon knows of its node.
pub fn complete(endpoint: Endpoint, node: &str, host: &str) -> Endpoint {
    Endpoint { machine: node.to_owned(), host: Some(host.to_owned()), ..endpoint }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_frame_are_refused() {
        for bytes in [&[][..], &[9], &[SLOTS, 0, 0], &[SLOTS, 0, 0, 0, 0, 1], &[DATA; 20]] {
            assert!(LinkFrame::decode(bytes).is_err(), "{bytes:?}");
        }
        assert!(matches!(LinkFrame::decode(&[MESSAGE, b'{']), Ok(LinkFrame::Message(b"{"))));
        let mut data = vec![DATA];
        data.extend([3, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 64, 0, 0, 0, 0, 0, 0, 0, 42]);
        let Ok(LinkFrame::Data { worker: 3, session: 7, arena: 1, offset: 64, bytes: [42] }) = LinkFrame::decode(&data)
        else {
            panic!("another frame");
        };
    }
}
