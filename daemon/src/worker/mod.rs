//! Workers, and the links over which the dispatcher drives them.
//!
//! A worker owns one device and executes one step after another. Its steps travel as the 64-byte slots that clients
//! use, with the worker's own ids of tensors, and it sends one report per step, in order. [`thread`] runs a worker in
//! this process, [`process`] in a process of its own. Both have the same `queue` and the same loop (`serve`) around
//! the same `Core`.
//!
//! The dispatcher knows only [`WorkerLink`](worker_link::WorkerLink), and must not know on which thread a step runs.

mod core;
mod device_link;
mod exec_failure;
mod fused_steps;
pub(crate) mod fusion_window;
pub mod groups;
mod in_flight;
pub mod process;
pub(crate) mod queue;
pub mod rank_assignment;
pub mod reachable_memory;
pub(crate) mod reshard;
mod serve;
mod session_tensors;
mod shared_replica;
pub mod step;
pub(crate) mod step_wire;
pub mod thread;
pub mod worker_link;
