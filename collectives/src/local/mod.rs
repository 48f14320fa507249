//! Groups whose ranks are threads of one process, or processes of one machine.
//!
//! Threads reach each other's buffers where they are ([`direct`]): each rank reduces its share of the elements out of
//! all buffers and writes the result to all of them, so that memory is read once and written once. Processes do the
//! same where the buffers lie in [`SharedMemory`] that all have mapped; otherwise they lay chunks out in slots of shared
//! memory that stay in the caches ([`staged`]). All first compare what they are about to do.

mod channel;
mod communicator;
mod direct;
mod engine;
mod group;
mod group_memory;
mod message;
mod shared_memory;
mod staged;

pub use communicator::{LocalCommunicator, LocalGroup, LocalOptions};
pub use group::PATIENCE_DEFAULT;
pub use group_memory::RANKS_MAX;
pub use shared_memory::SharedMemory;
