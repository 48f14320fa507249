//! What the daemon promises its clients, tested over real rings against the real program.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends")]

mod support;

/// With workers on threads; for workers in processes of their own there is `tests/processes`.
fn workers() -> String {
    "cpu:1".into()
}

mod adversity;
mod hostile;
mod instructions;
mod lifecycle;
mod log;
mod pipeline;
mod service;
mod sharing;
