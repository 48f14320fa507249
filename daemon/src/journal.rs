//! The daemon's log on standard error: lines for a terminal, or for systemd's journal.

use crate::account::TokenBucket;
use gt_config::Level;
use std::collections::HashMap;
use std::fmt::Write;
use std::io::IsTerminal;
use std::time::Instant;
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::fmt::format::{FormatFields, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Registry, reload};

/// The log level if nothing sets another.
const DEFAULT_LEVEL: Level = Level::Warn;
/// The lines about one user that are logged at once.
const USER_LINES_MAX: f64 = 100.0;
/// The lines about one user that are logged each second in the long run.
const USER_LINES_PER_S: f64 = 1.0;

fn is_set(name: &str) -> bool {
    std::env::var(name).is_ok_and(|value| !value.is_empty() && value != "0")
}

/// The log level in the environment: `GT_VERBOSE=1` means `info`.
pub fn level_of_environment() -> Option<Level> {
    is_set("GT_VERBOSE").then_some(Level::Info)
}

/// The variables that raise the level to `debug`, each for the target that it names.
const DEBUG_VARIABLES: [(&str, &str); 3] = [
    ("GT_DEBUG_DISPATCHER", "gtd::dispatcher"),
    ("GT_DEBUG_WORKER", "gtd::worker"),
    ("GT_DEBUG_COMPILE", "gtd::compile"),
];

/// The filter in `RUST_LOG`; else `level`, raised to `debug` for the targets of [`DEBUG_VARIABLES`] that are set.
fn filter(level: Option<Level>) -> EnvFilter {
    if let Some(written) = std::env::var("RUST_LOG").ok().filter(|written| !written.is_empty()) {
        return EnvFilter::new(written);
    }
    let mut directives = String::from(level.unwrap_or(DEFAULT_LEVEL).name());
    for (name, target) in DEBUG_VARIABLES {
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

/// Limits the lines about each user, so that no user fills the disk with the lines that his or her programs cause.
#[derive(Default)]
pub struct LineBudget(HashMap<u32, UserLines>);

struct UserLines {
    bucket: TokenBucket,
    suppressed: u64,
}

impl LineBudget {
    /// True if a line about user `uid` is to be logged at the time `now`; otherwise it is counted.
    pub fn admits(&mut self, uid: u32, now: Instant) -> bool {
        let new = || UserLines { bucket: TokenBucket::new(USER_LINES_MAX, USER_LINES_PER_S, now), suppressed: 0 };
        let UserLines { bucket, suppressed } = self.0.entry(uid).or_insert_with(new);
        let admitted = bucket.level(now) >= 1.0;
        if admitted {
            bucket.spend(1.0)
        } else {
            *suppressed += 1
        }
        admitted
    }

    /// Logs how many lines were left out, as soon as a line about their user is admitted again.
    pub fn tell(&mut self, now: Instant) {
        self.0.retain(|uid, UserLines { bucket, suppressed }| {
            if *suppressed > 0 && bucket.level(now) >= 1.0 {
                bucket.spend(1.0);
                let lines = std::mem::take(suppressed);
                tracing::warn!(target: "gtd::dispatcher", "… {lines} lines about user {uid} suppressed");
            }
            *suppressed > 0 || !bucket.is_full(now)
        });
    }

    /// True if lines were left out that are not told yet.
    pub fn is_owing(&self) -> bool {
        self.0.values().any(|lines| lines.suppressed > 0)
    }
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
    fn a_user_s_lines_are_counted_where_they_are_too_many() {
        let (mut lines, start) = (LineBudget::default(), Instant::now());
        let admitted = (0..1000).filter(|_| lines.admits(7, start)).count();
        assert_eq!(admitted, USER_LINES_MAX as usize);
        assert!(lines.admits(8, start) && lines.is_owing());
        lines.tell(start);
        assert!(lines.is_owing(), "not told while further lines would be too many");
        let later = start + std::time::Duration::from_secs(2);
        lines.tell(later);
        assert!(!lines.is_owing() && lines.admits(7, later) && !lines.admits(7, later));
    }

    #[test]
    fn nobody_forges_a_line() {
        assert_eq!(one_line("it said x\n<0>panic\tä"), "it said x\\n<0>panic\\tä");
    }
}
