//! How a device takes part in moves that its host does not carry: see [`crate::Backend::communicate`].

use crate::ExecError;
use std::sync::Arc;

/// What a library that works on the device by itself is told of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnDevice {
    /// Where the elements lie that are given; 0 if none are.
    pub input: u64,
    /// Where those go that are taken, and in an all-reduce or at the root of a broadcast lie before.
    pub output: u64,
    /// The stream: the library's own handle of it.
    pub stream: u64,
}

/// A move that a device has been given, for whoever watches over it.
pub trait UnderWay: Send + Sync {
    /// Whether the device has done it, or given it up.
    fn has_ended(&self) -> bool;
}

/// A rank's way to the other devices of its group.
pub trait Link: Send + Sync {
    /// A move has been given to the device, the next in the order of its stream.
    fn begun(&self, step: Arc<dyn UnderWay>);

    /// Why moves that were under way are not done: those that end after this says so have failed.
    fn failure(&self) -> Option<ExecError>;
}
