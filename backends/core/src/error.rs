//! Errors of a backend.

use gt_ops::Op;

/// The limit that an allocation ran into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitScope {
    /// The device's memory.
    Device,
    /// The limit of the session.
    Usage,
    /// The limit of the user, all sessions together.
    Group,
}

/// The reason why an instruction with valid shapes and dtypes failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExecError {
    /// A result does not fit into memory.
    #[error(
        "out of memory: {requested} bytes were asked for while {held} of at most {limit} are held ({scope:?}); free tensors or raise the limit"
    )]
    OutOfMemory {
        /// Bytes that the result needs.
        requested: usize,
        /// Bytes that tensors hold.
        held: usize,
        /// Bytes that they may hold together.
        limit: usize,
        /// The limit that the result would exceed; `held` counts the tensors that are under this limit.
        scope: LimitScope,
    },
    /// An index that is out of range.
    #[error("index {index} is out of bounds for dimension {axis} with size {size}")]
    IndexOutOfRange {
        /// The index.
        index: i64,
        /// The axis that it indexes.
        axis: usize,
        /// The size of that axis.
        size: usize,
    },
    /// An integer division by zero.
    #[error("ZeroDivisionError")]
    ZeroDivision,
    /// The error of an earlier instruction, which was found only when the device executed it.
    #[error("{error}")]
    Earlier {
        /// The [`crate::Backend::label`] of that instruction.
        label: u64,
        /// The instruction's op; `None` for a transfer between devices.
        op: Option<Op>,
        /// The error.
        error: Box<ExecError>,
    },
    /// The instruction was cancelled before it was done; see [`crate::Cancellation`].
    #[error("the instruction was cancelled")]
    Cancelled,
    /// A transfer between devices failed.
    #[error("the devices of a group do not reach each other: {why}")]
    Unreached {
        /// The worker whose loss is the cause, if it is one.
        worker: Option<usize>,
        /// The cause, as a sentence.
        why: Box<str>,
    },
    /// The device does not work any more: no tensor can be made or read.
    #[error("the device is lost: {0}")]
    Lost(Box<str>),
    /// A bug of the backend.
    #[error("internal error of the backend: {0}")]
    Internal(Box<str>),
}

impl ExecError {
    /// An [`ExecError::Internal`] with this message.
    pub fn internal(what: impl Into<String>) -> ExecError {
        ExecError::Internal(what.into().into_boxed_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_speak_pytorchs_words() {
        let error = ExecError::IndexOutOfRange { index: 7, axis: 0, size: 3 };
        assert_eq!(error.to_string(), "index 7 is out of bounds for dimension 0 with size 3");
        assert_eq!(ExecError::ZeroDivision.to_string(), "ZeroDivisionError");
    }
}
