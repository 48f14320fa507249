//! The daemon's log on standard error: lines for a terminal, or for systemd's journal.

use gt_config::Level;
use std::fmt::Write;
use std::io::IsTerminal;
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::fmt::format::{FormatFields, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Registry, reload};

/// The log level if nothing sets another.
const DEFAULT_LEVEL: Level = Level::Warn;

fn is_set(name: &str) -> bool {
    std::env::var(name).is_ok_and(|value| !value.is_empty() && value != "0")
}

/// The log level in the environment: `GT_VERBOSE=1` means `info`.
pub fn level_of_environment() -> Option<Level> {
    is_set("GT_VERBOSE").then_some(Level::Info)
}

/// The filter in `RUST_LOG`; else `level`, raised to `debug` for the parts that `GT_DEBUG_DISPATCHER=1` and
/// `GT_DEBUG_WORKER=1` name.
fn filter(level: Option<Level>) -> EnvFilter {
    if let Some(written) = std::env::var("RUST_LOG").ok().filter(|written| !written.is_empty()) {
        return EnvFilter::new(written);
    }
    let mut directives = String::from(level.unwrap_or(DEFAULT_LEVEL).name());
    for (name, target) in [("GT_DEBUG_DISPATCHER", "gtd::dispatcher"), ("GT_DEBUG_WORKER", "gtd::worker")] {
        if is_set(name) {
            directives.push_str(&format!(",{target}=debug"));
        }
    }
    EnvFilter::new(directives)
}

/// A handle that changes the log level while the daemon runs.
#[derive(Clone)]
pub struct LogLevel(reload::Handle<EnvFilter, Registry>);

impl LogLevel {
    /// Sets the log level; `None` sets the default.
    pub fn set(&self, level: Option<Level>) {
        if let Err(error) = self.0.reload(filter(level)) {
            tracing::error!(target: "gtd::dispatcher", %error, "the log's level could not be changed");
        }
    }
}

/// Starts the log.
pub fn start(level: Option<Level>) -> LogLevel {
    use tracing_subscriber::prelude::*;
    let (filter, handle) = reload::Layer::new(filter(level));
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let registry = tracing_subscriber::registry().with(filter);
    if is_journal() {
        registry.with(lines.event_format(Journal)).init();
    } else {
        registry.with(lines.with_ansi(std::io::stderr().is_terminal())).init();
    }
    std::panic::set_hook(Box::new(|panic| tracing::error!(target: "gtd::worker", "panic: {panic}")));
    LogLevel(handle)
}

/// True if standard error is connected to systemd's journal: `JOURNAL_STREAM` is its device and inode.
pub fn is_journal() -> bool {
    let named = std::env::var("JOURNAL_STREAM").ok();
    let own = rustix::fs::fstat(std::io::stderr()).ok();
    matches!((named, own), (Some(named), Some(own)) if named == format!("{}:{}", own.st_dev, own.st_ino))
}

/// Formats an event as one line with its priority, as the journal reads it. The journal adds the time and the program.
struct Journal;

impl<S, N> FormatEvent<S, N> for Journal
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut to: Writer<'_>, event: &Event<'_>) -> std::fmt::Result {
        let priority = match *event.metadata().level() {
            tracing::Level::ERROR => 3,
            tracing::Level::WARN => 4,
            tracing::Level::INFO => 6,
            _ => 7,
        };
        let mut line = String::new();
        context.field_format().format_fields(Writer::new(&mut line), event)?;
        writeln!(to, "<{priority}>{}", one_line(&line))
    }
}

/// The text with control characters escaped, so that no client's text can forge a line of the log.
fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            let _ = write!(line, "{}", c.escape_default());
        } else {
            line.push(c);
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_forges_a_line() {
        assert_eq!(one_line("it said x\n<0>panic\tä"), "it said x\\n<0>panic\\tä");
    }
}
