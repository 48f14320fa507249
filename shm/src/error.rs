//! Errors of segments, arenas, doorbells and sockets.

use std::io;

/// An error of a segment, arena, doorbell or socket.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    Os {
        /// The action that failed.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// A received segment does not have the announced length.
    #[error("segment {name} should be {expected_bytes} bytes long and is {found_bytes}")]
    SegmentLength {
        /// The segment's name.
        name: String,
        /// The announced length.
        expected_bytes: u64,
        /// The length found.
        found_bytes: u64,
    },
    /// A received segment lacks seals: its sender could truncate or grow it, or write to it.
    #[error("segment {name} lacks the seals {missing}, so its peer could change it under us")]
    SegmentSeals {
        /// The segment's name.
        name: String,
        /// The missing seals.
        missing: String,
    },
    /// A segment cannot be empty, or larger than the address space.
    #[error("a segment cannot be {bytes} bytes long")]
    SegmentSize {
        /// The requested length.
        bytes: u64,
    },
    /// The operation needs the segment's descriptor, which was detached.
    #[error("the segment has been separated from its descriptor")]
    Detached,
    /// A byte range exceeds its arena.
    #[error("bytes {offset}..+{len} are outside the arena of {arena_bytes} bytes")]
    OutOfBounds {
        /// The first byte of the range.
        offset: u64,
        /// The length of the range.
        len: u64,
        /// The length of the arena.
        arena_bytes: u64,
    },
    /// A message is longer than the buffer or the limit.
    #[error("a message of more than {limit_bytes} bytes")]
    MessageTooLong {
        /// The most bytes allowed.
        limit_bytes: usize,
    },
    /// A message carried more descriptors than expected; all of them were closed.
    #[error("a message carried more than the {expected} descriptors it may")]
    SurplusDescriptors {
        /// The most descriptors allowed.
        expected: usize,
    },
    /// The peer closed the socket.
    #[error("the peer has closed the connection")]
    HungUp,
    /// No message arrived, or none could be sent, before the timeout.
    #[error("timed out after {0:?}")]
    TimedOut(std::time::Duration),
}

/// `Result` with this crate's [`Error`] as the default error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Makes an [`Error::Os`] of a system error; `what` names the action.
pub(crate) fn os<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> Error {
    move |source| Error::Os { what, source: source.into() }
}
