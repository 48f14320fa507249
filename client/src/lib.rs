//! A session with the GT daemon: tensor handles, transfers and the autograd tape.
//!
//! This crate knows the instruction set and the shared-memory rings. It must not know Python, which is one of its
//! users, nor devices, which are the daemon's.
//!
//! Start at [`session`]: it puts instructions into the ring, assigns tensor ids and waits for completions. [`transfer`]
//! moves tensor bytes through arenas, which `idle_arenas` returns, and [`launch`] finds or starts a daemon. Above it
//! are [`value`], immutable tensors in the daemon; [`handle`], the types that users hold; [`tape`], the record of
//! autograd; [`scope`], which emits and records ops; [`tensor`], the operations on tensors; [`host_memory`], arrays
//! that share their elements with tensors; [`backward`], the backward pass; and [`vmap`], ops on batches. [`random`]
//! has the generators and [`signal`] the placement signals of threads. A file uses only files below it: [`error`] is at
//! the bottom.

pub mod backward;
pub mod batch;
pub mod blocking;
mod elements;
pub mod error;
pub mod handle;
mod held;
pub mod host_memory;
mod idle_arenas;
pub mod issued;
pub mod launch;
pub mod lock;
pub mod notice;
pub mod origin;
pub mod precision;
pub mod random;
mod run_ahead;
pub mod scope;
pub mod session;
mod shared_lines;
pub mod signal;
mod storage;
pub mod strides;
pub mod tape;
pub mod tensor;
pub mod transfer;
pub mod value;
mod version;
mod view;
pub mod visible_workers;
pub mod vmap;

pub use batch::{ActiveBatch, BatchAxis, Randomness};
pub use elements::TensorElements;
pub use error::{ClientError, Result};
pub use handle::{Node, Tensor};
pub use scope::Scope;
pub use session::{ClientSession, InPlaceOperation};
pub use tape::{grad_enabled, set_grad_enabled};
pub use transfer::HostBytes;
pub use value::TensorValue;
pub use view::Repeats;
