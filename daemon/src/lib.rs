//! The GT daemon: sessions, stream modifiers, scheduling, workers and the tape.
//!
//! It must not know how a kernel is written, which is the task of a [`gt_backend::Backend`], nor anything of autograd
//! or Python, which are the client's task. It trusts nothing in memory that a client can write: it copies a command,
//! then validates the copy.
//!
//! A command passes through these modules, which is also an order in which to read them:
//! 1. [`dispatcher`]: the one thread that serves all sessions, in the order of the [`fair_queue`].
//! 2. [`session`]: copies slots from the submission ring, decodes and validates them against the session's [`table`] of
//!    tensors, and turns them into steps.
//! 3. [`modifiers`]: may rewrite the steps. [`affinity`] has the dataflow components and [`signals`] the requested
//!    placements that sharding uses.
//! 4. [`worker`]: links that execute the steps, on this thread or elsewhere, and report how they ended.
//! 5. [`session`] again: writes the completion that the client waits for.
//!
//! The other modules: [`start`] puts everything together. [`config`] is the command line, [`reload`] reads the
//! configuration file again, [`quota`] holds the users' quotas, [`ledger`] their usage in a file, [`record_keeper`] the
//! records of ended sessions in the files of [`record_store`], [`devices`] chooses the workers. [`listen`] is the
//! listening socket, [`control_connection`] a connection on it, [`systemd`] the interface to systemd. [`tape`], [`log`]
//! and [`flight_recorder`] record instructions, [`session_tape`] copies those of one session, [`operation_counts`] and
//! [`step_totals`] count them, [`journal`] logs everything else. [`token_desk`] serves requests about tokens, [`web`]
//! those of Prometheus. [`nodes`] are other machines whose workers compute for this daemon. [`janitor`] drops ended
//! sessions, [`trim_schedule`] says when to give memory back, [`descriptors`] counts those of files, [`bandwidth`]
//! measures the machine's memory.

pub mod account;
pub mod affinity;
pub mod bandwidth;
pub mod config;
pub mod control_budget;
pub mod control_connection;
pub mod descriptors;
pub mod devices;
pub mod dispatcher;
pub mod fair_queue;
pub mod flight_recorder;
pub mod hot_paths;
pub mod janitor;
pub mod journal;
pub mod ledger;
pub mod listen;
pub mod log;
pub mod modifiers;
pub mod nodes;
pub mod operation_counts;
pub mod quota;
pub mod record_keeper;
pub mod record_store;
pub mod reload;
pub mod session;
pub mod session_tape;
pub mod signals;
pub mod start;
pub mod step_totals;
pub mod systemd;
pub mod table;
pub mod tape;
pub mod token_desk;
pub mod trim_schedule;
pub mod web;
pub mod worker;

pub use start::main;
