//! Collectives: operations of the ranks of a group on bytes that they hold.
//!
//! This crate knows bytes, dtypes and shared memory. It must not know sessions, ops, tensors or who calls it.
//!
//! Where to start reading:
//! 1. [`Communicator`]: one rank of a group, used by one thread, and the operations.
//! 2. [`local`]: groups of threads of one process, or of processes of one machine that share memory.
//! 3. [`nccl`]: groups of NVIDIA devices.
//! 4. [`network`]: groups whose ranks are on several machines.
//! 5. [`ucx`]: messages between processes of several machines, by RDMA where they have it.
//! 6. [`JointResult`]: what threads of one process make together, without a copy for each.
//! 7. [`sync`]: the event counts and the barrier of local groups; generic over how a rank waits, so that loom can run
//!    them.
//! 8. [`mod@reduce`]: the kernels of reductions.
//! 9. `conformance`: the tests that every communicator passes.
//!
//! Invariants: a reduction has the same bits on every rank (in a local group, it combines ranks 0 to n-1 in this
//! order); no rank waits for ever, since a waiting rank notices an abort, the death of a process and the end of its
//! patience.
//!
//! ```
//! use gt_collectives::{Communicator, Reduce, local::LocalGroup};
//! use gt_ops::DType;
//!
//! let ranks = LocalGroup::threads(2)?;
//! std::thread::scope(|scope| {
//!     for mut rank in ranks {
//!         scope.spawn(move || {
//!             let mut gradient = 1.5f32.to_ne_bytes();
//!             rank.all_reduce(&mut gradient, DType::F32, Reduce::Sum)?;
//!             assert_eq!(f32::from_ne_bytes(gradient), 3.0);
//!             rank.barrier()
//!         });
//!     }
//! });
//! # Ok::<(), gt_collectives::CollectiveError>(())
//! ```

#[cfg(not(loom))]
mod call;
#[cfg(all(feature = "conformance", not(loom)))]
pub mod conformance;
#[cfg(not(loom))]
mod copy;
#[cfg(not(loom))]
mod error;
#[cfg(not(loom))]
mod exchange;
#[cfg(not(loom))]
mod joint;
#[cfg(not(loom))]
pub mod local;
#[cfg(not(loom))]
pub mod nccl;
#[cfg(not(loom))]
pub mod network;
#[cfg(not(loom))]
mod operation;
#[cfg(not(loom))]
pub mod reduce;
#[cfg(not(loom))]
mod stats;
pub mod sync;
#[cfg(not(loom))]
pub mod ucx;

#[cfg(not(loom))]
mod communicator;
#[cfg(not(loom))]
pub use communicator::{AbortHandle, Communicator, Health, SharedValue};
#[cfg(not(loom))]
pub use error::{CollectiveError, Result};
#[cfg(not(loom))]
pub use joint::JointResult;
#[cfg(not(loom))]
pub use operation::Operation;
#[cfg(not(loom))]
pub use reduce::Reduce;
#[cfg(not(loom))]
pub use stats::CommStats;
