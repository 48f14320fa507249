//! What can go wrong when ranks compute together.

use crate::operation::Operation;
use crate::reduce::Reduce;
use gt_ops::DType;
use std::time::Duration;

/// `Result` with [`CollectiveError`] where no other error is named.
pub type Result<T, E = CollectiveError> = std::result::Result<T, E>;

/// Why a collective failed. `rank` is the one that reports.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CollectiveError {
    /// Ranks do not agree on what they do together. All ranks report it, and the group goes on.
    #[error("{operation} on rank {rank}: rank {peer} should take part in {expected}, but {found}")]
    Mismatch {
        /// What this rank does.
        operation: Operation,
        /// This rank.
        rank: usize,
        /// The rank that does something else.
        peer: usize,
        /// What this rank does, in full.
        expected: String,
        /// What the other does.
        found: String,
    },
    /// A buffer has not the length that the counts ask for.
    #[error("{operation} on rank {rank}: the {buffer} should have {expected_bytes} bytes and has {found_bytes}")]
    Length {
        /// What was asked.
        operation: Operation,
        /// This rank.
        rank: usize,
        /// Which buffer.
        buffer: &'static str,
        /// What the counts ask for.
        expected_bytes: usize,
        /// What was given.
        found_bytes: usize,
    },
    /// A list of counts has not one entry a rank.
    #[error("{operation} on rank {rank}: {expected} counts are needed, one a rank, and there are {found}")]
    Counts {
        /// What was asked.
        operation: Operation,
        /// This rank.
        rank: usize,
        /// Ranks in the group.
        expected: usize,
        /// Counts given.
        found: usize,
    },
    /// The counts add up to more bytes than there can be.
    #[error("{operation} on rank {rank}: the counts add up to more bytes of {dtype} than an address space has")]
    Overflow {
        /// What was asked.
        operation: Operation,
        /// This rank.
        rank: usize,
        /// The dtype of the elements.
        dtype: DType,
    },
    /// A root or peer that is not in the group, or is this rank itself where another is needed.
    #[error("{operation} on rank {rank}: {peer} is not another rank of a group of {size}")]
    NoSuchRank {
        /// What was asked.
        operation: Operation,
        /// This rank.
        rank: usize,
        /// The rank named.
        peer: usize,
        /// Ranks in the group.
        size: usize,
    },
    /// No such reduction of this dtype.
    #[error("{operation} on rank {rank}: {reduce} of {dtype} is not defined; cast to a floating dtype first")]
    Undefined {
        /// What was asked.
        operation: Operation,
        /// This rank.
        rank: usize,
        /// The reduction.
        reduce: Reduce,
        /// The dtype of the elements.
        dtype: DType,
    },
    /// A rank called `abort`. The group is of no more use.
    #[error("{operation} on rank {rank}: rank {by} aborted the group")]
    Aborted {
        /// What was being done.
        operation: Operation,
        /// This rank.
        rank: usize,
        /// The rank that aborted.
        by: usize,
    },
    /// A rank's process ended. The group is of no more use.
    #[error("{operation} on rank {rank}: the process of rank {peer} has died")]
    Died {
        /// What was being done.
        operation: Operation,
        /// This rank.
        rank: usize,
        /// The rank that died.
        peer: usize,
    },
    /// A rank dropped its communicator. The group is of no more use.
    #[error("{operation} on rank {rank}: rank {peer} has left the group")]
    Left {
        /// What was being done.
        operation: Operation,
        /// This rank.
        rank: usize,
        /// The rank that left.
        peer: usize,
    },
    /// Somebody waited for too long. The group is of no more use.
    #[error("{operation} on rank {rank}: rank {by} waited {waited:?} in vain for another to take part")]
    TimedOut {
        /// What was being done.
        operation: Operation,
        /// This rank.
        rank: usize,
        /// The rank that lost its patience.
        by: usize,
        /// How long a rank waits in this group.
        waited: Duration,
    },
    /// A device, its driver or its library failed. The group is of no more use.
    #[error("{operation} on rank {rank}: {why}")]
    Device {
        /// What was being done.
        operation: Operation,
        /// This rank.
        rank: usize,
        /// What was reported.
        why: String,
    },
    /// A group cannot be made or joined.
    #[error("cannot {what}: {why}")]
    Setup {
        /// What was being done.
        what: String,
        /// What is in the way, and what to do.
        why: String,
    },
}

impl CollectiveError {
    pub(crate) fn setup(what: impl Into<String>, why: impl ToString) -> CollectiveError {
        CollectiveError::Setup { what: what.into(), why: why.to_string() }
    }
}
