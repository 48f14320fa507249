//! The messages between a node's agent and the daemon, as JSON.
//!
//! The first in each direction of a connection is [`MachineRequest`] or [`NodeReply`]. Then come the frames of a
//! lasting link, of which one kind has a [`ToNode`] or a [`ToDaemon`].

use super::endpoint::{DataHello, Endpoint, NetworkRank};
use crate::worker::process::message::Ready;
use crate::worker::process::worker_device::WorkerDevice;
use gt_protocol::InsecureNetwork;
use gt_protocol::{NodeLink, WorkerInfo};
use serde::{Deserialize, Serialize};

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
        /// Where tensors travel unencrypted.
        #[serde(default)]
        insecure_network: InsecureNetwork,
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
        /// The number of this process among all that the daemon has had started.
        life: u64,
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
    /// In place of an arena that was given back before.
    Outdated {
        /// The worker.
        worker: u32,
        /// The session's number.
        session: u64,
        /// The arena's number.
        number: u32,
        /// Whether the session has ended.
        ended: bool,
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
    /// Asks for a [`ToDaemon::Pong`].
    Ping {
        /// The number that the answer has.
        number: u64,
    },
    /// Ends the process of a worker, unless another was started in its place.
    End {
        /// The worker.
        worker: u32,
        /// The number of the process.
        life: u64,
    },
}

/// A message of a node to the daemon.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "snake_case")]
pub enum ToDaemon {
    /// The port at which the node listens as long as it lives.
    LifePort {
        /// The port.
        port: u16,
    },
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
    /// The answer to [`ToNode::Ping`], after everything that came before it.
    Pong {
        /// Its number.
        number: u64,
    },
    /// The process of a worker has measured the link with another machine.
    Measured {
        /// The link.
        link: NodeLink,
    },
    /// A worker whose process has ended can be started again.
    Again {
        /// The worker.
        worker: u32,
    },
}

/// The endpoint of a worker as it names itself, completed by what the daemon knows of its node.
pub fn complete(endpoint: Endpoint, node: &str, host: &str) -> Endpoint {
    Endpoint { machine: node.to_owned(), host: Some(host.to_owned()), ..endpoint }
}
