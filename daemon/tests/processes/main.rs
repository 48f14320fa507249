//! Tests of the daemon's promises to its clients with workers in processes of their own, and tests of workers that die.
//! The tests of `hostile` are left out: they test how the daemon rejects commands, before these reach a worker.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends")]

#[path = "../daemon/support.rs"]
mod support;

/// The workers of every test that does not name others.
fn workers() -> String {
    "proc-cpu:1".into()
}

#[path = "../daemon/instructions.rs"]
mod instructions;
#[path = "../daemon/interrupts.rs"]
mod interrupts;
#[path = "../daemon/lifecycle.rs"]
mod lifecycle;
#[path = "../daemon/preemption.rs"]
mod preemption;

mod backends;
mod deaths;
mod held_up;
