//! NVIDIA's libraries, driver and devices on this machine.
//!
//! GT links to nothing of CUDA. [`SharedLibrary`] finds a shared library and opens it, wherever the system, a Python
//! environment or an administrator has put it, and [`functions!`] binds its functions. [`probe`](fn@probe) lists the
//! devices in the calling process; [`probe_apart`] has a short-lived process do it, since a process that has begun to
//! use CUDA cannot undo that, and a broken driver may end it.
//!
//! This crate must not know tensors, ops or sessions, nor what the libraries are used for.

#[macro_use]
mod find;
mod cuda;
mod device;
mod nvml;
mod probe;

pub use cuda::{CudaQuery, attribute, explain, remedy};
pub use device::{CAPABILITY_MIN, ComputeMode, Device, DeviceProcess, NoCuda};
pub use find::{
    CUBLAS_LT, CUDNN, DRIVER, Environment, FOLDERS_VARIABLE, Missing, NCCL, NVML, NVRTC, Opened, SharedLibrary, UCX,
};
pub use probe::{LibraryFound, ProbeReport, is_there, probe, probe_apart};

/// Used by the expansion of [`functions!`].
#[doc(hidden)]
pub use libloading;
