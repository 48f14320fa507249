//! A worker's rank in a group, as the dispatcher assigns it.

use crate::nodes::data_port;
use crate::nodes::endpoint::NetworkRank;
use gt_collectives::local::{LocalCommunicator, SharedMemory};
use gt_collectives::{CollectiveError, Communicator};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// How long a rank waits for another, which may have much to compute first.
pub const GROUP_PATIENCE: Duration = Duration::from_secs(3600);

/// A rank in a group that a worker is to join.
pub enum RankAssignment {
    /// A rank among threads of this process.
    Thread(Box<dyn Communicator>),
    /// A rank among processes and threads that share the group's memory.
    Shared {
        /// The group's memory.
        group: Arc<OwnedFd>,
        /// The rank to join as.
        rank: usize,
        /// The memories of the ranks' tensors, by rank; empty unless every rank has one.
        memories: Vec<Arc<OwnedFd>>,
    },
    /// A rank among workers of several machines.
    Network(NetworkRank),
}

impl RankAssignment {
    /// Joins the group. If it is shared, waits for the other ranks.
    ///
    /// # Errors
    /// The group broke before every rank had joined.
    pub fn join(self) -> Result<Box<dyn Communicator>, CollectiveError> {
        match self {
            RankAssignment::Thread(communicator) => Ok(communicator),
            RankAssignment::Network(rank) => match data_port::of_this_process() {
                Some(port) => port.join(rank, GROUP_PATIENCE),
                None => Err(CollectiveError::Setup {
                    what: "join a group over several machines".into(),
                    why: "this process has no port for that".into(),
                }),
            },
            RankAssignment::Shared { group, rank, memories } => {
                let cloned = |fd: &Arc<OwnedFd>| {
                    fd.try_clone().map_err(|error| CollectiveError::Setup {
                        what: format!("join a group as rank {rank}"),
                        why: error.to_string(),
                    })
                };
                let opened: Result<Vec<_>, _> =
                    memories.iter().map(|fd| cloned(fd).and_then(SharedMemory::open)).collect();
                let memories = opened.unwrap_or_else(|error| {
                    tracing::warn!(target: "gtd::worker", %error, "what moves in this group is copied once more");
                    Vec::new()
                });
                Ok(Box::new(LocalCommunicator::join_sharing(cloned(&group)?, rank, GROUP_PATIENCE, memories)?))
            }
        }
    }
}
