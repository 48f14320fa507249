//! The command line of the GT daemon: asks over its control socket and prints the answers.
//!
//! It must not know the daemon's insides, only what [`gt_protocol`] says. Start at [`main`]; [`table`] lays text out in
//! columns, [`status`] is the command of that name.

pub mod status;
pub mod table;

use clap::{Parser, Subcommand};
use gt_protocol::{Connection, Error, Hello, Role};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Asks and commands the GT daemon.
#[derive(Debug, Parser)]
#[command(name = "gtctl", version, disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Shows the daemon, its workers and its sessions.
    Status {
        /// Where the daemon listens [default: $GT_SOCKET or /run/gt/gtd.sock].
        #[arg(long, value_name = "PATH")]
        socket: Option<PathBuf>,
        /// Prints one JSON document, for programs.
        #[arg(long)]
        json: bool,
    },
}

/// Runs the program `gtctl`; the binary does nothing else.
pub fn main() -> ExitCode {
    let Command::Status { socket, json } = Arguments::parse().command;
    let socket = socket.unwrap_or_else(gt_protocol::path::socket_path);
    match ask(&socket, json) {
        // A reader that has seen enough, as `head`, is no failure.
        Ok(text) => match std::io::stdout().write_all(text.as_bytes()) {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => ExitCode::FAILURE,
            _ => ExitCode::SUCCESS,
        },
        Err(message) => {
            complain(&message);
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::print_stderr, reason = "a command line says what went wrong")]
fn complain(message: &str) {
    eprintln!("gtctl: {message}");
}

fn ask(socket: &Path, json: bool) -> Result<String, String> {
    let status = connect(socket).and_then(|connection| gt_protocol::ask_status(&connection.socket));
    let status = status.map_err(|error| advice(&error))?;
    if !json {
        return Ok(status::text(&status, status::now()));
    }
    let mut text = serde_json::to_string_pretty(&status).map_err(|error| error.to_string())?;
    text.push('\n');
    Ok(text)
}

fn connect(socket: &Path) -> Result<Connection, Error> {
    gt_protocol::connect(socket, &Hello::new(Role::Control, Some("gtctl".into())))
}

fn advice(error: &Error) -> String {
    match error {
        Error::Connect { .. } => format!("{error}\nStart gtd, or name its socket with --socket or GT_SOCKET."),
        error => error.to_string(),
    }
}
