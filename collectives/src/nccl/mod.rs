//! Groups whose ranks are NVIDIA devices, by NCCL.
//!
//! Nothing is linked: libcuda and libnccl are opened when the first rank is made, and an error says what is missing and
//! where it was looked for. Communicators do not block: every call polls NCCL and the stream, so that an abort or the
//! end of patience is noticed. Rank 0's process makes a [`UniqueId`], whose bytes the caller passes to the other ranks.
//!
//! [`NcclCommunicator`] works on bytes of the host, which it copies to the device and back, and passes the same
//! conformance suite as the others. Data that is on the device already is for [`device::DeviceComm`], which enqueues on
//! a stream.

mod communicator;
pub mod device;
mod library;
mod unique_id;

pub use communicator::{AbortFlag, NcclCommunicator, NcclOptions, device_count};
pub use unique_id::{UNIQUE_ID_BYTES, UniqueId, version};
