//! The CUDA backend of GT: kernels and memory for tensors on an NVIDIA device.
//!
//! This crate must not know sessions, clients or tensor ids, and links to no library of CUDA: it opens libraries at run
//! time. Start at [`CudaBackend`]. `dispatch` implements `gt_backend::Backend` and hands each instruction to the file
//! of its op's class, which picks a kernel (`template` and `kernels`; the CUDA C++ itself is in `kernels/`) and
//! launches it on the stream of computation. Below lie `driver` (the interface to the device, with an emulated one for
//! tests), `memory` (the allocator, in the order of that stream), `graphs` (launches repeated work as CUDA graphs),
//! `transfer` (copies between host and device, on streams of their own), `peer` (copies between devices), `checks`
//! (errors that only the device finds) and `progress` (keeps the worker from running too far ahead). `factory` is the
//! entry in the registry of backends.

mod backend;
pub mod blas;
pub mod catalogue;
mod checks;
mod columns;
pub mod compile;
mod convolution;
mod create;
mod dispatch;
pub mod dnn;
mod doctor;
pub mod driver;
mod elementwise;
mod error;
mod factory;
mod fused;
pub mod graphs;
pub mod headers;
mod index;
pub mod kernels;
mod launch;
mod library;
mod matmul;
mod memory;
mod moves;
mod open;
mod peer;
mod pinning;
pub mod program;
mod progress;
mod reduce;
mod rows;
mod scan;
mod search;
mod sort;
mod strided;
mod survey;
pub mod template;
mod tensor;
mod transfer;
mod transfers;
mod window;

pub use backend::CudaBackend;
pub use compile::Compiler;
pub use driver::Driver;
pub use factory::{CudaFactory, EmulatedCudaFactory};
#[doc(hidden)]
pub use tensor::CudaTensor;
