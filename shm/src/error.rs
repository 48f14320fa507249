use std::io;

/// What can go wrong with segments, arenas, doorbells and sockets.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel refused a call.
    #[error("cannot {what}: {source}")]
    Os {
        /// What was being done.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// A received segment is not as long as announced.
    #[error("segment {name} should be {expected_bytes} bytes long and is {found_bytes}")]
    SegmentLength {
        /// The segment's name.
        name: String,
        /// Length announced.
        expected_bytes: u64,
        /// Length found.
        found_bytes: u64,
    },
    /// A received segment could still be truncated, grown or written by the wrong side.
    #[error("segment {name} lacks the seals {missing}, so its peer could change it under us")]
    SegmentSeals {
        /// The segment's name.
        name: String,
        /// The missing seals.
        missing: String,
    },
    /// A segment of no bytes, or of more than an address space.
    #[error("a segment cannot be {bytes} bytes long")]
    SegmentSize {
        /// Length asked for.
        bytes: u64,
    },
    /// A segment without its descriptor cannot be sent or punched.
    #[error("the segment has been separated from its descriptor")]
    Detached,
    /// A byte range that is not wholly inside an arena.
    #[error("bytes {offset}..+{len} are outside the arena of {arena_bytes} bytes")]
    OutOfBounds {
        /// First byte asked for.
        offset: u64,
        /// Bytes asked for.
        len: u64,
        /// Bytes in the arena.
        arena_bytes: u64,
    },
    /// A message was longer than the buffer or the limit.
    #[error("a message of more than {limit_bytes} bytes")]
    MessageTooLong {
        /// Bytes allowed.
        limit_bytes: usize,
    },
    /// A message carried more descriptors than expected; all were closed.
    #[error("a message carried more than the {expected} descriptors it may")]
    SurplusDescriptors {
        /// Descriptors allowed.
        expected: usize,
    },
    /// The peer closed the socket.
    #[error("the peer has closed the connection")]
    HungUp,
    /// Nothing came, or nothing could be sent, in time.
    #[error("timed out after {0:?}")]
    TimedOut(std::time::Duration),
}

/// `Result` with this crate's [`Error`] where none is named.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Names what was being done when the kernel said no.
pub(crate) fn os<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> Error {
    move |source| Error::Os { what, source: source.into() }
}
