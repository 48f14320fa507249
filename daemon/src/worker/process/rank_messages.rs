//! The messages by which a worker's process learns its rank in a group.

use super::message::Message;
use crate::worker::rank_assignment::{LocalRank, RankAssignment};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// A message with the descriptor that travels with it, if one does.
pub type MessageWithFd = (Message, Option<Arc<OwnedFd>>);

/// The messages that tell a process its rank in a group.
///
/// # Errors
/// The rank is one among threads, which has no descriptor.
pub fn messages_for(assignment: RankAssignment) -> Result<Vec<MessageWithFd>, &'static str> {
    let (network, local) = match assignment {
        RankAssignment::Local(local) => (None, Some(local)),
        RankAssignment::Network(rank, near) => (Some(rank), near),
    };
    let network = network.map(|rank| (Message::Network { rank, near: local.is_some() }, None));
    let mut messages: Vec<MessageWithFd> = network.into_iter().collect();
    match local {
        Some(LocalRank::Shared { group, rank, memories }) => {
            messages.push((Message::Rank { rank, memories: memories.len() }, Some(group)));
            messages.extend(memories.into_iter().map(|fd| (Message::Memory, Some(fd))));
        }
        Some(LocalRank::Thread(_)) => return Err("a rank among threads for a process"),
        None => {}
    }
    Ok(messages)
}
