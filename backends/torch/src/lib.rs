//! The backend that computes with PyTorch, on every device that PyTorch has: the op table by PyTorch's own functions.
//!
//! PyTorch runs in a Python process of its own. The worker sends that process instructions through a socket, many in
//! one message, and does not wait for it; the bytes of tensors travel through shared memory. Nothing here links or
//! loads Python: a distribution's Python often has no library to embed, and a program that embedded one would need the
//! same version of Python as the PyTorch that a user has. The Python sources are part of this crate, so that both ends
//! are always of one version and only PyTorch itself has to be installed.
//!
//! - [`pickle`]: the encoding of messages, which Python decodes in C.
//! - [`message`]: an instruction of the op table as a message.
//! - [`memory`]: the bytes that tensors hold, which are counted and limited on this side.
//! - [`interpreter`]: the Python process, how it is found and started.
//! - [`connection`]: the socket to it, its answers, and the shared memory.
//! - [`backend`]: the trait [`gt_backend::Backend`] over all of these.
//! - `python/`: the other end. `worker.py` is its loop; the other files have a function for each op.
//!
//! This crate must not know sessions, clients or how PyTorch computes an op.

pub mod backend;
pub mod connection;
mod factory;
pub mod interpreter;
pub mod memory;
pub mod message;
pub mod pickle;

pub use backend::TorchBackend;
pub use factory::{TorchCpuFactory, TorchCudaFactory, TorchHipFactory, TorchMpsFactory, TorchXpuFactory};
pub use interpreter::{DeviceReport, InterpreterOptions};
