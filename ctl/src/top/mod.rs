//! `gtctl top`: what workers and sessions do at present, from the daemon's tape and its status.
//!
//! [`snapshot`] gathers it, [`view`] lays it out as lines, and [`screen`] shows these on a terminal and handles keys.

pub mod screen;
pub mod snapshot;
pub mod view;

use crate::arguments::TopArguments;
use crate::control::DaemonTarget;
use crate::failure::{CommandFailure, Exit};
use crate::output::CommandOutput;
use crate::stop_signals::StopSignals;
use gt_protocol::ProtocolError;
use snapshot::{Observation, POLL_EVERY};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Shows `daemon` until the user ends it, or once.
///
/// # Errors
/// No daemon listens, it ends while it is watched, or there is no terminal.
pub fn output(daemon: &DaemonTarget, wanted: &TopArguments, as_json: bool) -> Result<CommandOutput, CommandFailure> {
    let is_once = wanted.once || as_json;
    if !is_once {
        has_terminal()?;
    }
    // Before the threads of a connection by TCP begin, which would take the signals.
    let stop = (!is_once).then(StopSignals::block);
    let mut observation = Observation::begin(daemon).map_err(|error| CommandFailure::of(&error))?;
    let delay = Duration::from_secs_f64(wanted.delay);
    if is_once {
        let begun = Instant::now();
        while begun.elapsed() < delay {
            std::thread::sleep(POLL_EVERY);
            observation.read();
        }
        let snapshot = observation.snapshot().map_err(|error| watched(daemon, &error))?;
        let view = view::TopView { sort: wanted.sort, ..view::TopView::default() };
        return Ok(CommandOutput::new(view::text(&snapshot, &view), &snapshot));
    }
    screen::run(&mut observation, wanted.sort, delay, stop.as_ref()).map_err(|error| match error {
        screen::ScreenError::Daemon(error) => watched(daemon, &error),
        screen::ScreenError::Terminal(error) => CommandFailure::new(
            Exit::Failed,
            format!("the terminal cannot be used: {error}"),
            "gtctl top --once prints the same once, to anything.",
        ),
    })?;
    Ok(CommandOutput::text_alone(String::new()))
}

/// Refuses to run without a terminal that can move its cursor.
fn has_terminal() -> Result<(), CommandFailure> {
    let term = std::env::var("TERM").unwrap_or_default();
    let text = if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        "gtctl top needs a terminal, and its input or output is none".into()
    } else if matches!(term.as_str(), "" | "dumb") {
        format!("gtctl top needs a terminal that can move its cursor, and TERM is {term:?}")
    } else {
        return Ok(());
    };
    Err(CommandFailure::new(Exit::Failed, text, "gtctl top --once prints the same once, and --json for programs."))
}

/// The failure of a request to a daemon that is being watched.
fn watched(daemon: &DaemonTarget, error: &ProtocolError) -> CommandFailure {
    match error {
        ProtocolError::HungUp | ProtocolError::Connect { .. } => CommandFailure::new(
            Exit::NoDaemon,
            format!("the daemon at {daemon} ended while it was watched"),
            "The daemon's log may say why: journalctl -u gtd",
        ),
        _ => CommandFailure::of(error),
    }
}
