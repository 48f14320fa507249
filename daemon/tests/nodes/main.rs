//! Other machines as nodes of a daemon. Here they are processes of this machine, each with a certificate of its own.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends")]

#[expect(dead_code, reason = "made for the storm")]
#[path = "../storm/streams.rs"]
mod streams;
#[expect(dead_code, reason = "made for the tests of one machine")]
#[path = "../daemon/support.rs"]
mod support;

/// The workers of every daemon that does not name others.
fn workers() -> String {
    "cpu:1".into()
}

mod data_paths;
mod faults;
mod hostile;
mod joining;
mod machines;
mod namespaces;
mod together;
