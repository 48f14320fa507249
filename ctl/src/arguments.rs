//! The command line.

use crate::status::now;
use crate::time::{duration_s, since};
use clap::{Args, Parser, Subcommand, ValueEnum};
use gt_config::{Bytes, SYSTEM_FILE};
use gt_protocol::limits::{WEIGHT_MAX, WEIGHT_MIN};
use gt_protocol::{DeviceSet, QuotaChange, Setting};
use std::path::PathBuf;
use std::str::FromStr;

const EXITS: &str = "Exit status: 0 done; 1 failed, or doctor found something wrong; 2 a wrong command line; 3 no daemon \
                     listens; 4 not permitted; 5 the daemon is of another version; 6 there is no such session; 7 the \
                     configuration is wrong.";

/// Queries and controls the GT daemon.
#[derive(Debug, Parser)]
#[command(name = "gtctl", version, disable_help_subcommand = true, after_help = EXITS)]
pub struct Arguments {
    /// The daemon's socket [default: $GT_SOCKET or /run/gt/gtd.sock].
    #[arg(long, value_name = "PATH", global = true)]
    pub socket: Option<PathBuf>,
    /// The host of a daemon that listens by TCP [default: localhost]; takes --port, and the token of GT_TOKEN.
    #[arg(long, value_name = "HOST", global = true)]
    pub host: Option<String>,
    /// The TCP port of the daemon.
    #[arg(long, value_name = "PORT", global = true, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,
    /// The daemon's address, as gt.connect takes it: tls://box:12345#sha256:… for one on another machine.
    #[arg(long, value_name = "ADDRESS", global = true)]
    pub connect: Option<String>,
    /// Prints one JSON document, for programs, also for an error.
    #[arg(long, global = true)]
    pub json: bool,
    /// The command.
    #[command(subcommand)]
    pub command: CtlCommand,
}

/// The commands of `gtctl`.
#[derive(Debug, Subcommand)]
pub enum CtlCommand {
    /// Shows the daemon, its workers and its sessions.
    Status,
    /// Shows the sessions.
    Sessions,
    /// Shows the details of one session.
    Session {
        /// The session's number, as `gtctl sessions` shows it.
        #[arg(value_parser = session)]
        id: u64,
    },
    /// Ends a session: your own, or anybody's if you are an administrator.
    Kill {
        /// The session's number, as `gtctl sessions` shows it.
        #[arg(value_parser = session)]
        id: u64,
    },
    /// Shows or changes the limits of users.
    Limits {
        /// The change; without it, the limits are shown.
        #[command(subcommand)]
        command: Option<LimitsCommand>,
    },
    /// Shows what sessions that have ended used, summed by user: your own, or everybody's if you are an administrator.
    Usage(UsageArguments),
    /// Shows what workers and sessions do at present, until you press q.
    Top(TopArguments),
    /// Captures what the daemon does for some seconds, as text and for ui.perfetto.dev.
    Trace(TraceArguments),
    /// Measures for some seconds why a session is slow, and says so in sentences, the most important first.
    Explain(ExplainArguments),
    /// Draws an instruction log, or a capture of gtctl trace, as a picture.
    Visualize(VisualizeArguments),
    /// Shows what the daemon, a worker or a program was doing when it died: the last events before that.
    PostMortem(PostMortemArguments),
    /// Creates, lists and revokes access tokens, by which users connect by TCP.
    Token {
        /// The command.
        #[command(subcommand)]
        command: TokenCommand,
    },
    /// Invites another machine to join as a node, and prints the line to run there.
    Invite {
        /// The time until the invitation expires: 10m, 1h, 2d; a week at most.
        #[arg(long, value_name = "TIME", default_value = "1h", value_parser = duration_s)]
        expires: u64,
        /// The most workers that the node may bring [default: any number].
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        workers: Option<u32>,
    },
    /// Lists and removes nodes: other machines whose workers compute for this daemon.
    Node {
        /// The command.
        #[command(subcommand)]
        command: NodeCommand,
    },
    /// Drains the daemon: no new session begins, and the daemon ends after the last session.
    Drain {
        /// Drains after this time, as in 10m or 2h; until then, running programs and new ones are warned.
        #[arg(long = "in", value_name = "TIME", value_parser = duration_s)]
        in_s: Option<u64>,
        /// A message for the users of running programs: one line.
        #[arg(long, value_name = "TEXT")]
        message: Option<String>,
        /// Ends draining, or withdraws what was planned: sessions may begin again.
        #[arg(long, visible_alias = "cancel", conflicts_with = "in_s")]
        undo: bool,
    },
    /// Makes the daemon read its configuration again; sessions go on.
    Reload,
    /// Checks for problems that keep programs from using the daemon, and says how to fix them.
    Doctor,
    /// Checks or documents the daemon's configuration file.
    Config {
        /// The command.
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Prints completions for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Writes the manual pages.
    #[command(hide = true)]
    Manual {
        /// The folder for the pages.
        folder: PathBuf,
    },
}

/// The arguments of `gtctl usage`.
#[derive(Debug, Args)]
pub struct UsageArguments {
    /// The user, by name or number.
    #[arg(long, value_name = "USER")]
    pub user: Option<String>,
    /// Only sessions that ended in this time: 7d, 12h, or since a date, 2026-11-01 (UTC) [default: all that are kept].
    #[arg(long, value_name = "TIME", value_parser = |text: &str| since(text, now()))]
    pub since: Option<f64>,
    /// Shows one line for each session.
    #[arg(long)]
    pub sessions: bool,
    /// Prints comma-separated values.
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
}

/// The shortest and the longest interval of `gtctl top`, seconds.
const TOP_DELAY_S: [f64; 2] = [0.1, 3600.0];

/// The arguments of `gtctl top`.
#[derive(Debug, Args)]
pub struct TopArguments {
    /// The time between two pictures, and which one picture covers.
    #[arg(short = 'd', long, value_name = "SECONDS", default_value = "1", value_parser = delay_s)]
    pub delay: f64,
    /// The order of sessions.
    #[arg(long, value_name = "ORDER", default_value = "share")]
    pub sort: SessionOrder,
    /// Prints one picture as text, to anything; --json does as well.
    #[arg(long)]
    pub once: bool,
}

fn delay_s(text: &str) -> Result<f64, String> {
    let [least, most] = TOP_DELAY_S;
    match text.parse() {
        Ok(seconds) if (least..=most).contains(&seconds) => Ok(seconds),
        _ => Err(format!("`{text}` is no such time: write seconds, from {least} to {most}")),
    }
}

/// The order of sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum SessionOrder {
    /// The largest share of the devices' time first.
    #[default]
    Share,
    /// The most instructions a second first.
    Rate,
    /// The most memory first.
    Memory,
    /// By user.
    User,
    /// By number.
    Session,
}

impl SessionOrder {
    /// The name on the screen.
    pub fn name(self) -> &'static str {
        match self {
            SessionOrder::Share => "share",
            SessionOrder::Rate => "rate",
            SessionOrder::Memory => "memory",
            SessionOrder::User => "user",
            SessionOrder::Session => "session",
        }
    }

    /// The next one in the order of the key `s`.
    #[must_use]
    pub fn next(self) -> SessionOrder {
        let all = SessionOrder::value_variants();
        let position = all.iter().position(|order| *order == self).unwrap_or_default();
        all[(position + 1) % all.len()]
    }
}

/// The most events of one capture of `gtctl trace`: they take 1.2 GB.
pub const CAPTURED_EVENTS_MAX: u64 = 1 << 24;
/// The longest capture of `gtctl trace`, seconds.
const TRACE_S_MAX: f64 = 3600.0;

/// The arguments of `gtctl trace`.
#[derive(Debug, Args)]
pub struct TraceArguments {
    /// The length of the capture; Ctrl-C ends it earlier.
    #[arg(short = 's', long, value_name = "SECONDS", default_value = "2", value_parser = capture_s)]
    pub seconds: f64,
    /// Ends the capture after this many events.
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=CAPTURED_EVENTS_MAX))]
    pub events: Option<u64>,
    /// Captures the events of one session alone, until it ends at the latest.
    #[arg(long, value_name = "ID", value_parser = session)]
    pub session: Option<u64>,
    /// The folder in which the files tape.log and trace.json are written; it is made if it is not there.
    #[arg(short = 'o', long, visible_alias = "dir", value_name = "DIR", default_value = ".")]
    pub output: PathBuf,
    /// Writes only one of the two files.
    #[arg(long)]
    pub format: Option<TraceFormat>,
}

/// The arguments of `gtctl explain`.
#[derive(Debug, Args)]
pub struct ExplainArguments {
    /// The session's number, as `gtctl sessions` shows it.
    #[arg(value_name = "SESSION", value_parser = session)]
    pub session: u64,
    /// How long it is measured; Ctrl-C ends it earlier.
    #[arg(short = 's', long, value_name = "SECONDS", default_value = "5", value_parser = capture_s)]
    pub seconds: f64,
    /// Talks with the program that is explained, by the standard input and output, for gt.debug.explain().
    #[arg(long, hide = true)]
    pub beside_program: bool,
}

/// The files that `gtctl trace` writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TraceFormat {
    /// tape.log: a line for each event, as in the instruction log.
    Text,
    /// trace.json: trace events for ui.perfetto.dev.
    Perfetto,
}

/// The arguments of `gtctl visualize`.
#[derive(Debug, Args)]
pub struct VisualizeArguments {
    /// The file that GT_INSTRUCTION_LOG or gtctl trace wrote.
    pub file: PathBuf,
    /// The picture, whose name ends in .png, .svg or .html.
    #[arg(short = 'o', long, value_name = "PICTURE", default_value = "timeline.svg")]
    pub output: PathBuf,
    /// Dots per inch of a .png.
    #[arg(long, value_name = "N", default_value = "100", value_parser = clap::value_parser!(u32).range(50..=600))]
    pub dpi: u32,
}

/// The arguments of `gtctl post-mortem`.
#[derive(Debug, Args)]
pub struct PostMortemArguments {
    /// Shows the events of one session alone, of the newest recording that has any [default: all of the newest one].
    #[arg(value_name = "SESSION", value_parser = session)]
    pub session: Option<u64>,
    /// Lists the recordings that there are.
    #[arg(long)]
    pub list: bool,
    /// The number of last events to show.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
    pub events: usize,
    /// A recording, as --list names it [default: the newest one].
    #[arg(long, value_name = "PATH", conflicts_with = "list")]
    pub file: Option<PathBuf>,
    /// Also writes all events of the recording to this file, as in the instruction log, for gtctl visualize.
    #[arg(short = 'o', long, value_name = "FILE", conflicts_with = "list")]
    pub output: Option<PathBuf>,
}

fn capture_s(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if seconds > 0.0 && seconds <= TRACE_S_MAX => Ok(seconds),
        _ => Err(format!("`{text}` is no such time: write seconds, above 0 and at most {TRACE_S_MAX}")),
    }
}

/// The commands of `gtctl token`.
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Creates a token, and prints it: the daemon stores its hash alone, so it cannot be shown again.
    Create {
        /// The user whose sessions the token opens, by name or number [default: you]; others' take an administrator.
        #[arg(long, value_name = "USER")]
        user: Option<String>,
        /// The time until it expires: 12h, 30d, 26w; ten years at most.
        #[arg(long, value_name = "TIME", default_value = "30d", value_parser = duration_s)]
        expires: u64,
        /// Gives its sessions the rights of an administrator, which no other session has by TCP.
        #[arg(long)]
        admin: bool,
    },
    /// Lists tokens: your own, or everybody's if you are an administrator.
    List,
    /// Revokes a token, and ends the sessions that it opened.
    Revoke {
        /// The token's number, as `gtctl token list` shows it.
        #[arg(value_parser = token)]
        id: u64,
    },
}

/// The commands of `gtctl node`.
#[derive(Debug, Subcommand)]
pub enum NodeCommand {
    /// Lists the nodes that have joined, with their links.
    List,
    /// Forgets a node and ends its workers: it has to be invited again.
    Remove {
        /// The node's name.
        name: String,
    },
}

/// The commands of `gtctl limits`.
#[derive(Debug, Subcommand)]
pub enum LimitsCommand {
    /// Changes limits until the daemon ends; the configuration file sets lasting limits. `default` undoes a change.
    Set(LimitsSet),
}

/// The arguments of `gtctl limits set`.
#[derive(Debug, Args)]
pub struct LimitsSet {
    /// The user, by name or number; without it, the default for all users.
    #[arg(long, value_name = "USER")]
    pub user: Option<String>,
    #[command(flatten)]
    change: Change,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
struct Change {
    /// Memory of the tensors of all sessions of the user, as in 512M or 8G; 0 for no limit.
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    memory: Option<Setting<u64>>,
    /// Memory of the tensors of each session; 0 for no limit.
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    session_memory: Option<Setting<u64>>,
    /// The most sessions at a time.
    #[arg(long, value_name = "N", value_parser = number::<u32>)]
    sessions: Option<Setting<u32>>,
    /// Tensors of all sessions of the user; 0 for no limit.
    #[arg(long, value_name = "N", value_parser = number::<u64>)]
    tensors: Option<Setting<u64>>,
    /// Memory that all sessions of the user may share with the daemon for uploads and fetches.
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    arena: Option<Setting<u64>>,
    /// Instructions in flight of each session; 0 for no limit.
    #[arg(long, value_name = "N", value_parser = number::<u32>)]
    queued: Option<Setting<u32>>,
    /// The weight of the user's share of the devices' time.
    #[arg(long, value_name = "NUMBER", value_parser = weight)]
    weight: Option<Setting<f64>>,
    /// The longest estimated time of a single step; 0 for no limit.
    #[arg(long, value_name = "SECONDS", value_parser = number::<u32>)]
    max_step: Option<Setting<u32>>,
    /// The devices for sessions that begin later, as in 0-3 or 0,2, in the order of gtctl status; all for every device.
    #[arg(long, value_name = "NUMBERS", value_parser = devices)]
    devices: Option<Setting<DeviceSet>>,
}

impl LimitsSet {
    /// The change as a message to the daemon.
    pub fn change(&self) -> QuotaChange {
        let Change { memory, session_memory, sessions, tensors, arena, queued, weight, max_step, devices } =
            self.change;
        QuotaChange {
            memory_bytes: memory,
            session_memory_bytes: session_memory,
            sessions,
            tensors,
            arena_bytes: arena,
            queued,
            weight,
            max_step_s: max_step,
            devices,
        }
    }
}

fn setting<T>(text: &str, read: impl FnOnce(&str) -> Result<T, String>) -> Result<Setting<T>, String> {
    if text == "default" { Ok(Setting::Default) } else { read(text).map(Setting::To) }
}

fn bytes(text: &str) -> Result<Setting<u64>, String> {
    setting(text, |text| text.parse().map(|Bytes(bytes)| bytes))
}

fn number<T: FromStr>(text: &str) -> Result<Setting<T>, String> {
    setting(text, |text| text.parse().map_err(|_| format!("`{text}` is no such number, nor `default`")))
}

fn devices(text: &str) -> Result<Setting<DeviceSet>, String> {
    setting(text, str::parse)
}

fn weight(text: &str) -> Result<Setting<f64>, String> {
    setting(text, |text| match text.parse() {
        Ok(weight) if (WEIGHT_MIN..=WEIGHT_MAX).contains(&weight) => Ok(weight),
        _ => Err(format!("`{text}` is no weight: write a number from {WEIGHT_MIN} to {WEIGHT_MAX}, or `default`")),
    })
}

fn session(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("`{text}` is no number of a session: `gtctl sessions` lists them"))
}

fn token(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("`{text}` is no number of a token: `gtctl token list` shows them"))
}

/// The commands of `gtctl config`.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Checks a file, and names the line and key of an error.
    Check {
        /// The file.
        #[arg(default_value = SYSTEM_FILE)]
        path: PathBuf,
    },
    /// Lists the keys of the configuration file with their meaning.
    Keys,
    /// Prints the manual page of the file.
    #[command(hide = true)]
    Manual,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_makes_sense() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn limits_are_set_or_set_back() {
        let line = ["gtctl", "limits", "set", "--user", "ana", "--memory", "8G", "--weight", "default"];
        let CtlCommand::Limits { command: Some(LimitsCommand::Set(set)) } = Arguments::parse_from(line).command else {
            panic!("other arguments");
        };
        let expected = QuotaChange {
            memory_bytes: Some(Setting::To(8 << 30)),
            weight: Some(Setting::Default),
            ..QuotaChange::default()
        };
        assert_eq!((set.user.as_deref(), set.change()), (Some("ana"), expected));
        assert!(Arguments::try_parse_from(["gtctl", "limits", "set", "--user", "ana"]).is_err());
        for (option, value) in
            [("--sessions", "many"), ("--weight", "0"), ("--devices", "cpu"), ("--weight", "nan"), ("--weight", "101")]
        {
            assert!(Arguments::try_parse_from(["gtctl", "limits", "set", option, value]).is_err(), "{option} {value}");
        }
    }
}
