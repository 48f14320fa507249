//! A worker's rank in a group, as the dispatcher assigns it.

use crate::nodes::data_port;
use crate::nodes::endpoint::NetworkRank;
use gt_collectives::local::{LocalCommunicator, LocalGroup, LocalOptions, SharedMemory};
use gt_collectives::network::NetworkCommunicator;
use gt_collectives::{CollectiveError, Communicator, Health};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// How long a rank waits for another, which may have much to compute first.
pub const GROUP_PATIENCE: Duration = Duration::from_secs(3600);

/// A rank in a group that a worker is to join.
pub enum RankAssignment {
    /// A rank among workers of this machine.
    Local(LocalRank),
    /// A rank among workers of several machines, and among those of its own, if these work together and are several.
    Network(NetworkRank, Option<LocalRank>),
}

/// A rank among workers of one machine.
pub enum LocalRank {
    /// A rank among threads of this process.
    Thread(Box<LocalCommunicator>),
    /// A rank among processes and threads that share the group's memory.
    Shared {
        /// The group's memory.
        group: Arc<OwnedFd>,
        /// The rank to join as.
        rank: usize,
        /// The memories of the ranks' tensors, by rank; empty unless every rank has one.
        memories: Vec<Arc<OwnedFd>>,
    },
}

impl RankAssignment {
    /// Joins the group. If it is shared, waits for the other ranks.
    ///
    /// # Errors
    /// The group broke before every rank had joined.
    pub fn join(self) -> Result<Box<dyn Communicator>, CollectiveError> {
        let (network, near) = match self {
            RankAssignment::Local(rank) => return Ok(Box::new(rank.join(None)?)),
            RankAssignment::Network(rank, near) => (rank, near),
        };
        let Some(port) = data_port::of_this_process() else {
            return Err(CollectiveError::Setup {
                what: "join a group over several machines".into(),
                why: "this process has no port for that".into(),
            });
        };
        let mut communicator = port.join(&network, GROUP_PATIENCE)?;
        if network.by_machine {
            join_machine(&mut communicator, &network, near).inspect_err(|_| communicator.abort())?;
        }
        Ok(Box::new(communicator))
    }
}

/// Lets a rank work together with those of its machine. `near` is its rank among them; none if it is alone there.
///
/// # Errors
/// Either group broke before every rank had joined.
fn join_machine(
    communicator: &mut NetworkCommunicator,
    network: &NetworkRank,
    near: Option<LocalRank>,
) -> Result<(), CollectiveError> {
    let alone = || LocalGroup::threads(1).map(|mut ranks| LocalRank::Thread(Box::new(ranks.remove(0))));
    let local = near.map_or_else(alone, Ok)?.join(Some(communicator.health()))?;
    communicator.join_machine(&network.machines(), local)
}

impl LocalRank {
    /// The ranks of a new group of `size` processes, and the group. `memories` are those of the ranks' tensors; empty
    /// unless every rank has one.
    ///
    /// # Errors
    /// The kernel refuses the memory, or there are too many ranks.
    pub fn shared(size: usize, memories: &[Arc<OwnedFd>]) -> Result<(Vec<LocalRank>, LocalGroup), CollectiveError> {
        let shared = LocalGroup::processes(size, LocalOptions { patience: GROUP_PATIENCE, ..LocalOptions::default() })?;
        let group = shared.fd().try_clone_to_owned().map_err(|error| CollectiveError::Setup {
            what: "share the memory of a group".into(),
            why: error.to_string(),
        })?;
        let group = Arc::new(group);
        let rank = |rank| LocalRank::Shared { group: group.clone(), rank, memories: memories.to_vec() };
        Ok(((0..size).map(rank).collect(), shared))
    }

    /// Joins the group, and waits for the other ranks if it is shared. `outer` is the health of a larger group of which
    /// it is a part, whose end ends the wait.
    ///
    /// # Errors
    /// The group broke before every rank had joined.
    pub fn join(self, outer: Option<Health>) -> Result<LocalCommunicator, CollectiveError> {
        let (group, rank, memories) = match self {
            LocalRank::Thread(communicator) => return Ok(*communicator),
            LocalRank::Shared { group, rank, memories } => (group, rank, memories),
        };
        let cloned = |fd: &Arc<OwnedFd>| {
            fd.try_clone().map_err(|error| CollectiveError::Setup {
                what: format!("join a group as rank {rank}"),
                why: error.to_string(),
            })
        };
        let opened: Result<Vec<_>, _> = memories.iter().map(|fd| cloned(fd).and_then(SharedMemory::open)).collect();
        let memories = opened.unwrap_or_else(|error| {
            tracing::warn!(target: "gtd::worker", %error, "what moves in this group is copied once more");
            Vec::new()
        });
        LocalCommunicator::join_sharing(cloned(&group)?, rank, GROUP_PATIENCE, memories, outer)
    }
}
