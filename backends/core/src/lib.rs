//! The interface between GT and a device backend, and the conformance suite every backend passes.
//!
//! A [`Backend`] owns the memory and the kernels of one device and executes one instruction at a time. Its
//! [`BackendFacts`] are what the daemon, its configuration and `gtctl doctor` know of it. This crate must not know
//! sessions, clients, tensor ids or how a kernel is written. Start at [`Backend`]; the feature `conformance` adds the
//! test suite, which runs every row of the op table against a plain interpreter.
//!
//! # Adding a backend
//!
//! 1. Write a crate `backends/NAME` with a type that implements [`Backend`]. `backends/stub` is the smallest example.
//! 2. In the same crate implement [`BackendFactory`] for a unit type: its [`BackendFacts`], with the name that users
//!    write in `--workers NAME:1`, and `open`, which makes the backend.
//! 3. Register that type: one line in the list `backends!` of `backends/registry/src/lib.rs`, and the dependency in
//!    its `Cargo.toml`.
//! 4. Instantiate `gt_backend::conformance_tests!` in the crate's `tests/conformance.rs`.
//!
//! The command line, the configuration file, their help texts and error messages, worker processes and
//! `gtctl doctor` follow from the facts.

mod backend;
mod cancellation;
mod doctor;
mod error;
mod factory;
mod facts;
mod host;
mod layout;
mod link;
mod loops;
mod memory_usage;
mod number;
mod preemption;
pub use backend::{
    Backend, FUSED_BYTES_MIN, Fence, FenceStatus, Input, MemoryStats, Stage, StageInput, execute_one_by_one,
};
pub use cancellation::Cancellation;
pub use doctor::{DoctorContext, Finding, FindingState, ServiceUser, findings_text};
pub use error::{ExecError, LimitScope};
pub use factory::{BackendFactory, BackendVisitor, Capabilities, DeviceDescription, OpenOptions, OpenedBackend};
pub use facts::{BackendFacts, DeviceSurvey, Discovery, Site, SurveyedDevice};
pub use host::HostRange;
pub use layout::Layout;
pub use link::{DeviceBuffers, EnqueuedTransfer, Link};
pub use loops::{Loops, Run, split_axes};
pub use memory_usage::MemoryUsage;
pub use number::{Power, computed_bits, scalar_bits, simple_power};
pub use preemption::{is_preemptible, preemptible, preemption_point};

#[cfg(feature = "conformance")]
pub mod conformance;
