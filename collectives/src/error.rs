//! Errors of collectives.

use crate::operation::Operation;
use crate::reduce::Reduce;
use gt_ops::DType;
use std::time::Duration;

/// `Result` with [`CollectiveError`] where no other error is named.
pub type Result<T, E = CollectiveError> = std::result::Result<T, E>;

/// The error of a collective. `rank` is the rank that reports it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CollectiveError {
    /// The ranks called different operations, or the same with different arguments. All ranks report it, and the group
    /// remains usable.
    #[error("{operation} on rank {rank}: rank {peer} should take part in {expected}, but {found}")]
    Mismatch {
        /// The operation that this rank called.
        operation: Operation,
        /// This rank.
        rank: usize,
        /// The rank that called something else.
        peer: usize,
        /// This rank's call.
        expected: String,
        /// The other rank's call.
        found: String,
    },
    /// The length of a buffer differs from what the counts require.
    #[error("{operation} on rank {rank}: the {buffer} should have {expected_bytes} bytes and has {found_bytes}")]
    Length {
        /// The operation that was called.
        operation: Operation,
        /// This rank.
        rank: usize,
        /// The buffer's name.
        buffer: &'static str,
        /// The length that the counts require.
        expected_bytes: usize,
        /// The buffer's length.
        found_bytes: usize,
    },
    /// A list of counts does not have one entry per rank.
    #[error("{operation} on rank {rank}: {expected} counts are needed, one a rank, and there are {found}")]
    Counts {
        /// The operation that was called.
        operation: Operation,
        /// This rank.
        rank: usize,
        /// Ranks in the group.
        expected: usize,
        /// The number of counts.
        found: usize,
    },
    /// The counts add up to more bytes than an address space has.
    #[error("{operation} on rank {rank}: the counts add up to more bytes of {dtype} than an address space has")]
    Overflow {
        /// The operation that was called.
        operation: Operation,
        /// This rank.
        rank: usize,
        /// The dtype of the elements.
        dtype: DType,
    },
    /// The root or peer is not in the group, or is this rank itself where another is needed.
    #[error("{operation} on rank {rank}: {peer} is not another rank of a group of {size}")]
    NoSuchRank {
        /// The operation that was called.
        operation: Operation,
        /// This rank.
        rank: usize,
        /// The rank that was named.
        peer: usize,
        /// Ranks in the group.
        size: usize,
    },
    /// The reduction is not defined for the dtype.
    #[error("{operation} on rank {rank}: {reduce} of {dtype} is not defined; cast to a floating dtype first")]
    Undefined {
        /// The operation that was called.
        operation: Operation,
        /// This rank.
        rank: usize,
        /// The reduction.
        reduce: Reduce,
        /// The dtype of the elements.
        dtype: DType,
    },
    /// A rank called `abort`. The group is broken for good.
    #[error("{operation} on rank {rank}: rank {by} aborted the group")]
    Aborted {
        /// The operation in progress.
        operation: Operation,
        /// This rank.
        rank: usize,
        /// The rank that aborted.
        by: usize,
    },
    /// A rank's process ended. The group is broken for good.
    #[error("{operation} on rank {rank}: the process of rank {peer} has died")]
    Died {
        /// The operation in progress.
        operation: Operation,
        /// This rank.
        rank: usize,
        /// The rank that died.
        peer: usize,
    },
    /// A rank dropped its communicator. The group is broken for good.
    #[error("{operation} on rank {rank}: rank {peer} has left the group")]
    Left {
        /// The operation in progress.
        operation: Operation,
        /// This rank.
        rank: usize,
        /// The rank that left.
        peer: usize,
    },
    /// A rank's patience ran out. The group is broken for good.
    #[error("{operation} on rank {rank}: rank {by} waited {waited:?} in vain for another to take part")]
    TimedOut {
        /// The operation in progress.
        operation: Operation,
        /// This rank.
        rank: usize,
        /// The rank whose patience ran out.
        by: usize,
        /// The patience of the group's ranks.
        waited: Duration,
    },
    /// A device, its driver or its library failed. The group is broken for good.
    #[error("{operation} on rank {rank}: {why}")]
    Device {
        /// The operation in progress.
        operation: Operation,
        /// This rank.
        rank: usize,
        /// The report of the device, driver or library.
        why: String,
    },
    /// A group cannot be made or joined.
    #[error("cannot {what}: {why}")]
    Setup {
        /// The step that failed.
        what: String,
        /// The obstacle, and what to do about it.
        why: String,
    },
}

impl CollectiveError {
    pub(crate) fn setup(what: impl Into<String>, why: impl ToString) -> CollectiveError {
        CollectiveError::Setup { what: what.into(), why: why.to_string() }
    }
}
