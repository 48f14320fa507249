//! What the daemon promises its clients holds where workers are processes of their own; and what happens when they die.
//! What `hostile` tests never reaches a worker, and is not tested again.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends")]

#[path = "../daemon/support.rs"]
mod support;

/// For every test that does not say otherwise.
fn workers() -> String {
    "proc-cpu:1".into()
}

#[path = "../daemon/instructions.rs"]
mod instructions;
#[path = "../daemon/lifecycle.rs"]
mod lifecycle;

mod backends;
mod deaths;
