//! How processes of workers reach each other, and what they tell each other first.

use gt_protocol::InsecureNetwork;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::path::PathBuf;

/// The settings with which a process makes its port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataSetup {
    /// The folder of the machine's certificate.
    pub folder: PathBuf,
    /// The address to listen at.
    pub bind: IpAddr,
    /// The host of the daemon, as this machine reaches it.
    pub daemon_host: String,
    /// Where tensors travel unencrypted.
    #[serde(default)]
    pub insecure_network: InsecureNetwork,
}

/// The offer of a process to another, which can then send to it by UCX.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UcxOffer {
    /// The version of its UCX.
    pub version: String,
    /// The address of its port, in hexadecimal digits.
    pub address: String,
    /// The tag of messages from the process that is told.
    pub tag: u64,
}

/// Where a process of a worker can be reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// The node; empty for the daemon's machine.
    pub machine: String,
    /// The process's name, which no other has.
    pub process: String,
    /// The fingerprint of its machine's certificate.
    pub fingerprint: String,
    /// Its host; none for that of the daemon.
    pub host: Option<String>,
    /// Its port.
    pub port: u16,
}

/// A rank in a group over several machines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkRank {
    /// The group's number.
    pub group: u64,
    /// The rank.
    pub rank: usize,
    /// The endpoints of all ranks.
    pub endpoints: Vec<Endpoint>,
    /// Whether the ranks of one machine work together, so that their bytes cross the network once.
    pub by_machine: bool,
}

impl NetworkRank {
    /// The machine of each rank.
    pub fn machines(&self) -> Vec<&str> {
        self.endpoints.iter().map(|endpoint| endpoint.machine.as_str()).collect()
    }

    /// The ranks on this rank's machine, if they work together and there are several.
    pub fn near(&self) -> Vec<usize> {
        let machines = self.machines();
        let own = machines.get(self.rank);
        let near: Vec<usize> = (0..machines.len()).filter(|rank| machines.get(*rank) == own).collect();
        if self.by_machine && near.len() > 1 { near } else { Vec::new() }
    }
}

/// The first message of a process of a worker to another.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DataHello {
    /// The process that dials.
    pub from: String,
    /// The process that is wanted.
    pub to: String,
    /// The link's name.
    pub link: String,
    /// The bytes of the link that were received.
    pub received: u64,
    /// Whether the link's bytes are to travel unencrypted from here on, if the other process agrees.
    #[serde(default)]
    pub plain: bool,
    /// How the process that is wanted can send by UCX; none if it cannot.
    #[serde(default)]
    pub ucx: Option<UcxOffer>,
}

/// The reply to it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub enum DataReply {
    /// The link goes on.
    Welcome {
        /// The bytes of the link that were received.
        received: u64,
        /// Whether the link's bytes travel unencrypted from here on.
        #[serde(default)]
        plain: bool,
        /// How the process that dials can send by UCX; none if it cannot.
        #[serde(default)]
        ucx: Option<UcxOffer>,
    },
    /// The process that was wanted is not here, or has given the link up.
    Gone {
        /// The reason.
        why: String,
    },
    /// The process is here and does not know the one that dials yet.
    Later,
}
