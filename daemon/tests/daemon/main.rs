//! What the daemon promises its clients, tested over real rings against the real program.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends")]

mod support;

mod hostile;
mod instructions;
mod lifecycle;
mod log;
mod pipeline;
