//! Groups whose ranks are threads of one process, or processes of one machine.
//!
//! Threads work on each other's buffers in place (`direct`): a reduce-scatter and an all-gather in one pass, after
//! Rabenseifner 2004. Each rank reduces its share of the elements of all buffers and writes the result to all of them,
//! so that memory is read once and written once. Processes do the same if the buffers lie in [`SharedMemory`] that all
//! ranks have mapped; otherwise they copy chunks through slots of shared memory that stay in the caches (`staged`). All
//! ranks first meet at a barrier, where they compare their calls.

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
pub(crate) use direct::share;
pub use group::PATIENCE_DEFAULT;
pub use group_memory::RANKS_MAX;
pub use shared_memory::SharedMemory;
