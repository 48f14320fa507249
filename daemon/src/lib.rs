//! The GT daemon.

use std::process::ExitCode;

/// Runs the program `gtd`; the binary does nothing else.
#[expect(clippy::print_stdout, reason = "a command line prints")]
pub fn main() -> ExitCode {
    println!("gtd {}", env!("CARGO_PKG_VERSION"));
    ExitCode::SUCCESS
}
