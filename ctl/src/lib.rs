//! The command line of the GT daemon.

use std::process::ExitCode;

/// Runs the program `gtctl`; the binary does nothing else.
#[expect(clippy::print_stdout, reason = "a command line prints")]
pub fn main() -> ExitCode {
    println!("gtctl {}", env!("CARGO_PKG_VERSION"));
    ExitCode::SUCCESS
}
