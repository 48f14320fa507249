//! What a machine has of NVIDIA's: libraries, driver and devices.
//!
//! Nothing of CUDA is linked to. [`SharedLibrary`] finds a shared library and opens it, wherever a system, a Python
//! environment or an administrator has put it, and [`functions!`] binds its functions. [`probe`](fn@probe) asks the
//! driver which devices there are, in the process that calls it; [`probe_apart`] has a short-lived process do it,
//! since a process that has begun to use CUDA cannot undo that, and a broken driver ends it.
//!
//! This crate must not know tensors, ops or sessions, nor what anybody does with the libraries.

#[macro_use]
mod find;
mod cuda;
mod device;
mod nvml;
mod probe;

pub use cuda::{explain, remedy};
pub use device::{ComputeMode, Device, DeviceProcess, NoCuda};
pub use find::{CUBLAS_LT, DRIVER, Environment, FOLDERS_VARIABLE, Missing, NCCL, NVML, NVRTC, Opened, SharedLibrary};
pub use probe::{LibraryFound, ProbeReport, is_there, probe, probe_apart};

/// For [`functions!`].
#[doc(hidden)]
pub use libloading;
