//! Violations: breaches of the protocol, which end a session.

use gt_ops::wire::{ArenaRange, WireError};
use gt_ops::{OpError, TensorId};
use gt_protocol::limits::{REFUSED_TENSORS_MAX, TENSORS_PER_SESSION_MAX};
use gt_shm::Corrupt;

/// A breach of the protocol by a client. It ends the session.
#[derive(Debug, thiserror::Error)]
pub enum Violation {
    /// The cursor of the submission ring is invalid.
    #[error("its submission ring is corrupt: {0}")]
    Ring(#[from] Corrupt),
    /// Slots that cannot be decoded.
    #[error("it sent slots that are no command: {0}")]
    Wire(#[from] WireError),
    /// An instruction that breaks a shape or dtype rule.
    #[error("it sent an instruction that its client library should have refused: {0}")]
    Rule(OpError),
    /// A tensor id that does not exist.
    #[error("it named tensor {0}, which does not exist")]
    UnknownTensor(TensorId),
    /// A tensor id that is not larger than all before.
    #[error("it defined tensor {id} after tensor {last}: ids must grow")]
    IdNotIncreasing {
        /// The new id.
        id: TensorId,
        /// The largest id so far.
        last: TensorId,
    },
    /// A tensor id in the range of modifiers.
    #[error("it defined tensor {0}: ids stay below 2^63")]
    IdTooLarge(TensorId),
    /// Use of a tensor before its upload is complete.
    #[error("it used tensor {0} before all its bytes were written")]
    Unwritten(TensorId),
    /// A write that does not continue an upload.
    #[error("it wrote {len} bytes at {offset} of tensor {id}, where {expected} was next of {bytes}")]
    Write {
        /// The tensor.
        id: TensorId,
        /// The offset in the tensor, bytes.
        offset: u64,
        /// The length, bytes.
        len: u64,
        /// The offset at which the upload continues; the size if it is complete.
        expected: u64,
        /// The size of the tensor, bytes.
        bytes: u64,
    },
    /// A fetch past the end of a tensor.
    #[error("it fetched {len} bytes at {offset} of tensor {id}, which has {bytes}")]
    Fetch {
        /// The tensor.
        id: TensorId,
        /// The offset in the tensor, bytes.
        offset: u64,
        /// The length, bytes.
        len: u64,
        /// The size of the tensor, bytes.
        bytes: u64,
    },
    /// A transfer that begins or ends within an element.
    #[error("it transferred parts of elements of tensor {0}")]
    CutElement(TensorId),
    /// A range outside the arenas that were granted.
    #[error("it named bytes {}..+{} of arena {}, which it does not have", .0.offset_bytes, .0.len_bytes, .0.segment)]
    Arena(ArenaRange),
    /// More tensors than the limit.
    #[error("it holds {TENSORS_PER_SESSION_MAX} tensors, and no more are allowed: free some")]
    TooManyTensors,
    /// A program that goes on although its tensors are refused.
    #[error("the sessions of its user hold {} tensors, where {limit} are allowed, and its results were refused \
             {REFUSED_TENSORS_MAX} times: free tensors, end other sessions, or ask an administrator for more",
            limit + REFUSED_TENSORS_MAX)]
    TooManyRefused {
        /// The user's limit of tensors.
        limit: u64,
    },
    /// A completion token that is in flight already.
    #[error("it asked for the completion {0} again before it came")]
    TokenInUse(u64),
    /// A reshard, which only the daemon may send to workers.
    #[error("it asked where tensors should lie in the words of a worker's stream")]
    Reshard,
    /// More completions in flight than the ring holds.
    #[error("it asked for more completions than its ring holds")]
    TooManyInFlight,
    /// The completion ring has no room although few completions are in flight.
    #[error("its completion ring is corrupt")]
    Completions,
}

impl Violation {
    /// True if a program that knows the protocol can come to it: its user is told why the session ends.
    pub fn is_limit(&self) -> bool {
        matches!(self, Violation::TooManyTensors | Violation::TooManyRefused { .. })
    }
}
