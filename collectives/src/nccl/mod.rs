//! Groups whose ranks are NVIDIA devices, by NCCL.
//!
//! Nothing is linked: libnccl is opened when the first id or communicator is made, and an error says what is missing
//! and where it was looked for. Rank 0's process makes a [`UniqueId`], whose bytes the caller passes to the other
//! ranks. Each rank makes a [`device::DeviceComm`], which enqueues collectives on memory of its device. It does not
//! block: every call polls NCCL, so that an abort or the end of patience is noticed.

pub mod device;
mod library;
mod unique_id;

pub use library::{StreamHandle, UNIQUE_ID_BYTES, UniqueId};
pub use unique_id::{version, version_text};
