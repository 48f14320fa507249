//! A session with the GT daemon: tensor handles, transfers and the autograd tape.
//!
//! This crate knows the instruction set and the shared-memory rings. It must not know Python, which is one of its
//! users, nor devices, which are the daemon's.
//!
//! Start at [`session`]: how instructions get into the ring, ids are given out and completions come back. [`tensor`]
//! is what users hold, [`scope`] how ops are emitted and recorded, [`tape`] the record and [`backward`] the pass over
//! it, [`transfer`] how bytes get in and out, and [`launch`] how a private daemon is found and started.
//! [`random`] says which random numbers come next, [`signal`] under which names a thread issues instructions.

pub mod backward;
pub mod blocking;
pub mod error;
mod history;
pub mod launch;
pub mod lock;
pub mod precision;
pub mod random;
pub mod scope;
pub mod session;
pub mod signal;
mod storage;
pub mod tape;
pub mod tensor;
pub mod transfer;
pub mod view;

pub use error::{Error, Result};
pub use scope::Scope;
pub use session::{Session, Value};
pub use tape::{Node, grad_enabled, set_grad_enabled};
pub use tensor::Tensor;
