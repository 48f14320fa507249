//! The CUDA backend of GT: kernels and memory for tensors on an NVIDIA device.
//!
//! This crate must not know sessions, clients or tensor ids, and links to nothing of CUDA: what it needs is opened at run
//! time.
