//! Tests of the daemon's promises to its clients, over real rings against the real program.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends")]

mod support;

/// The workers of every test: threads. Workers in processes of their own are for `tests/processes`.
fn workers() -> String {
    "cpu:1".into()
}

mod accounts;
mod adversity;
mod encryption;
mod hostile;
mod hot_paths;
mod instructions;
mod interrupts;
mod lifecycle;
mod log;
mod pipeline;
mod preemption;
mod service;
mod sharing;
mod versions;
