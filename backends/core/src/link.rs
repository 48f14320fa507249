//! Transfers between devices that bypass the host: see [`crate::Backend::communicate`].

use crate::error::ExecError;
use std::sync::Arc;

/// Device addresses and the stream that a communication library such as NCCL needs to enqueue a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceBuffers {
    /// Address of the elements to send; 0 if this rank sends none.
    pub input: u64,
    /// Address of the elements to receive. An all-reduce, and the root of a broadcast, also reads them.
    pub output: u64,
    /// The stream to enqueue on, as the library's own handle.
    pub stream: u64,
}

/// A transfer in a device's stream, for the thread that watches for transfers that hang.
pub trait EnqueuedTransfer: Send + Sync {
    /// Whether the device has completed or aborted the transfer.
    fn has_ended(&self) -> bool;
}

/// A rank's connection to the other devices of its group.
pub trait Link: Send + Sync {
    /// Registers a transfer that was enqueued on the device, in the order of its stream.
    fn begun(&self, step: Arc<dyn EnqueuedTransfer>);

    /// The reason why the group's transfers fail, if they do. A transfer that ends after this has become `Some` has
    /// failed.
    fn failure(&self) -> Option<ExecError>;
}
