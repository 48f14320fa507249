//! `gtctl`, the command line of the GT daemon: sends requests over its control socket and prints the answers.
//!
//! It must not know the daemon's insides, only the messages of [`gt_protocol`] and the configuration of [`gt_config`].
//! Start reading at [`main`]. [`arguments`] is the command line, [`control`] the connection, [`output`] the printed
//! result, [`failure`] an error with its exit status. [`status`], [`limits`], [`tokens`], [`nodes`], [`usage`],
//! [`top`], [`trace`], [`explain`], [`visualize`], [`post_mortem`] and [`doctor`] are the commands of those names,
//! [`capture`] copies the tape for two of them, [`keys`] documents the keys of the configuration, [`table`] lays out
//! text in columns, [`operations`] totals by operation, [`stop_signals`] end long commands, [`mod@time`] reads and
//! writes times.

pub mod arguments;
pub mod capture;
pub mod control;
pub mod doctor;
pub mod explain;
pub mod failure;
pub mod host;
pub mod keys;
pub mod limits;
pub mod nodes;
pub mod operations;
pub mod output;
pub mod post_mortem;
pub mod status;
pub mod stop_signals;
pub mod table;
pub mod time;
pub mod tokens;
pub mod top;
pub mod trace;
pub mod usage;
pub mod visualize;

use arguments::{Arguments, ConfigCommand, CtlCommand, LimitsCommand, NodeCommand, TokenCommand, UsageArguments};
use clap::{CommandFactory, Parser};
use control::{DaemonTarget, connect};
use failure::{CommandFailure, Exit};
use gt_backend::FindingState;
use gt_config::Settings;
use gt_protocol::{Connection, RecordQuery};
use output::{CommandOutput, complain};
use serde_json::json;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use usage::UsageFormat;

/// Runs the program `gtctl`; the binary does nothing else.
pub fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        // Help and the version are no failures. With --json, failures are JSON as well.
        Err(error) if error.use_stderr() && std::env::args_os().any(|argument| argument == "--json") => {
            return finish(Err(CommandFailure::usage(&error)), true);
        }
        Err(error) => error.exit(),
    };
    let result = run(&arguments);
    finish(result, arguments.json)
}

fn finish(result: Result<CommandOutput, CommandFailure>, as_json: bool) -> ExitCode {
    let (text, exit) = match (result, as_json) {
        (Ok(answer), true) => (pretty(&answer.json), answer.exit),
        (Ok(answer), false) => (answer.text, answer.exit),
        (Err(failure), true) => (pretty(&failure.json()), failure.exit),
        (Err(failure), false) => {
            complain(&failure.to_string());
            return failure.exit.into();
        }
    };
    match std::io::stdout().write_all(text.as_bytes()) {
        // A closed pipe, as by `head`, is no failure.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Exit::Failed.into(),
        _ => exit.into(),
    }
}

fn pretty(json: &serde_json::Value) -> String {
    format!("{json:#}\n")
}

fn run(arguments: &Arguments) -> Result<CommandOutput, CommandFailure> {
    let target = DaemonTarget::of(arguments)?;
    let ask = |asked: &dyn Fn(&Connection) -> gt_protocol::Result<CommandOutput>| {
        target.connect().and_then(|daemon| asked(&daemon)).map_err(|error| CommandFailure::of(&error))
    };
    match &arguments.command {
        CtlCommand::Status => ask(&|daemon| {
            let mut status = gt_protocol::ask_status(&daemon.socket)?;
            status.sessions.iter_mut().for_each(status::name_user);
            Ok(CommandOutput::new(status::text(&status, status::now()), &status))
        }),
        CtlCommand::Sessions => ask(&|daemon| {
            let mut sessions = gt_protocol::ask_status(&daemon.socket)?.sessions;
            sessions.iter_mut().for_each(status::name_user);
            Ok(CommandOutput::new(status::sessions(&sessions, status::now()), &sessions))
        }),
        CtlCommand::Session { id } => ask(&|daemon| {
            let mut detail = gt_protocol::ask_session(&daemon.socket, *id)?;
            status::name_user(&mut detail.session);
            Ok(CommandOutput::new(status::session(&detail, status::now()), &detail))
        }),
        CtlCommand::Kill { id } => ask(&|daemon| {
            let mut killed = gt_protocol::ask_kill(&daemon.socket, *id)?;
            status::name_user(&mut killed);
            let (user, pid) = (status::user(killed.uid, killed.user.clone()), killed.pid);
            Ok(CommandOutput::new(format!("session {id} of {user}, process {pid}, was ended\n"), &killed))
        }),
        CtlCommand::Limits { command: None } => ask(&|daemon| {
            let all = gt_protocol::ask_limits(&daemon.socket)?;
            Ok(CommandOutput::new(limits::text(&all), &all))
        }),
        CtlCommand::Limits { command: Some(LimitsCommand::Set(set)) } => {
            let uid = uid_of(set.user.as_deref())?;
            ask(&|daemon| {
                let all = gt_protocol::ask_set_limits(&daemon.socket, uid, set.change())?;
                let mut text = limits::text(&all);
                if set.change().devices.is_some() {
                    text.push_str("sessions that began before keep their devices\n");
                }
                Ok(CommandOutput::new(text, &all))
            })
        }
        CtlCommand::Usage(UsageArguments { user, since, sessions, csv }) => {
            let uid = uid_of(user.as_deref())?;
            let query = RecordQuery { uid, since: since.unwrap_or_default(), ..RecordQuery::default() };
            let format = if *csv { UsageFormat::Csv } else { UsageFormat::Table };
            ask(&|daemon| usage::output(&daemon.socket, query, *sessions, format))
        }
        CtlCommand::Top(wanted) => top::output(&target, wanted, arguments.json),
        CtlCommand::Visualize(wanted) => visualize::output(wanted),
        CtlCommand::PostMortem(wanted) => target.socket().and_then(|_| post_mortem::output(wanted)),
        CtlCommand::Trace(wanted) => trace::output(&target, wanted),
        CtlCommand::Explain(wanted) => explain::output(&target, wanted),
        CtlCommand::Token { command: TokenCommand::Create { user, expires, admin } } => {
            let uid = uid_of(user.as_deref())?;
            ask(&|daemon| {
                let (text, token, lasting) = gt_protocol::ask_token(&daemon.socket, uid, *expires, *admin)?;
                Ok(tokens::created(&text, &token, lasting))
            })
        }
        CtlCommand::Token { command: TokenCommand::List } => {
            ask(&|daemon| Ok(tokens::listed(&gt_protocol::ask_tokens(&daemon.socket)?, status::now())))
        }
        CtlCommand::Token { command: TokenCommand::Revoke { id } } => ask(&|daemon| {
            let (token, sessions) = gt_protocol::ask_revoke_token(&daemon.socket, *id)?;
            Ok(tokens::revoked(&token, sessions))
        }),
        CtlCommand::Invite { expires, workers } => ask(&|daemon| {
            let invited = gt_protocol::ask_node_invite(&daemon.socket, *expires, *workers)?;
            let (address, fingerprint, secret) = &invited;
            Ok(nodes::invited((address, fingerprint, secret), *expires, *workers, &status::own_host()))
        }),
        CtlCommand::Node { command: NodeCommand::List } => {
            ask(&|daemon| Ok(nodes::listed(&gt_protocol::ask_node_list(&daemon.socket)?)))
        }
        CtlCommand::Node { command: NodeCommand::Remove { name } } => ask(&|daemon| {
            gt_protocol::ask_node_remove(&daemon.socket, name.clone())?;
            let text = format!("node {name} was removed, and what its workers held is lost\n");
            Ok(CommandOutput::new(text, &json!({"node": name})))
        }),
        CtlCommand::Drain { in_s, message, undo } => ask(&|daemon| {
            let in_s = in_s.unwrap_or_default();
            let (sessions, notice) = gt_protocol::ask_drain(&daemon.socket, !undo, in_s, message.clone())?;
            let text = match (undo, in_s) {
                (true, _) => "sessions may begin again\n".into(),
                (false, 0) => {
                    format!("no session begins any more; the daemon ends when the {sessions} there are have gone\n")
                }
                (false, _) => {
                    let left = table::seconds(in_s as f64);
                    format!("in {left} no session begins any more; sessions, {sessions} now, are warned of it\n")
                }
            };
            let mut document = json!({"draining": !undo && in_s == 0, "sessions": sessions});
            if let Some(notice) = notice {
                document["notice"] = json!(notice);
            }
            Ok(CommandOutput::new(text, &document))
        }),
        CtlCommand::Reload => ask(&|daemon| {
            let (file, changed, restart) = gt_protocol::ask_reload(&daemon.socket)?;
            let listed = |names: &[String]| if names.is_empty() { "nothing".into() } else { names.join(", ") };
            let mut text = format!("{file} was read again; changed: {}\n", listed(&changed));
            if !restart.is_empty() {
                text.push_str(&format!("{} will change only when the daemon is started again\n", restart.join(", ")));
            }
            Ok(CommandOutput::new(text, &json!({"file": file, "changed": changed, "restart": restart})))
        }),
        CtlCommand::Doctor => Ok(doctor::output(target.socket()?)),
        CtlCommand::Config { command: ConfigCommand::Check { path: file } } => check(file, target.socket()?),
        CtlCommand::Config { command: ConfigCommand::Keys } => Ok(keys::output()),
        CtlCommand::Config { command: ConfigCommand::Manual } => Ok(CommandOutput::text_alone(keys::manual())),
        CtlCommand::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(*shell, &mut Arguments::command(), "gtctl", &mut text);
            Ok(CommandOutput::text_alone(String::from_utf8_lossy(&text).into_owned()))
        }
        CtlCommand::Manual { folder } => clap_mangen::generate_to(Arguments::command(), folder)
            .map(|()| CommandOutput::text_alone(String::new()))
            .map_err(|error| {
                let text = format!("the manual could not be written to {}: {error}", folder.display());
                CommandFailure::new(Exit::Failed, text, "Name a folder that can be written.")
            }),
    }
}

/// The id of the user who is named on the command line.
fn uid_of(user: Option<&str>) -> Result<Option<u32>, CommandFailure> {
    let uid = user.map(gt_config::settings::user).transpose();
    uid.map_err(|text| CommandFailure::new(Exit::Usage, text, "Name a user of this machine, or a number."))
}

/// Checks the configuration file `path`. If its workers depend on the machine, the devices that it names are checked
/// with those of the daemon at `socket`.
fn check(path: &Path, socket: &Path) -> Result<CommandOutput, CommandFailure> {
    let known = |settings: &Settings| settings.devices().or_else(|| devices_of_daemon(socket));
    let mut certificate = None;
    let checked = gt_config::read(path).and_then(|settings| {
        certificate = doctor::certificate_complaint(&settings);
        match known(&settings) {
            _ if settings.named_devices.is_empty() => Ok(""),
            Some(devices) => settings.check_devices(path, devices).map(|()| ""),
            None => {
                Ok("the devices that it names are checked when the daemon starts: none listens that could tell them\n")
            }
        }
    });
    match checked {
        Ok(more) => {
            let expires = match certificate {
                Some((FindingState::Bad, why)) => {
                    return Err(CommandFailure::new(
                        Exit::Config,
                        format!("{}: {why}", path.display()),
                        "Name the files of a good certificate in tls_certificate and tls_key, and check as root.",
                    ));
                }
                Some((_, why)) => why + "\n",
                None => String::new(),
            };
            let text =
                format!("{} is good; gtctl reload, or a new start, puts it in force\n{more}{expires}", path.display());
            Ok(CommandOutput::new(text, &json!({"file": path, "good": true})))
        }
        Err(error) => {
            let next = match error {
                gt_config::ConfigError::File { .. } => {
                    "Name a configuration file that you may read: gtctl config check PATH."
                }
                gt_config::ConfigError::Open { .. } => "Take that right away, and see what the file says.",
                gt_config::ConfigError::Invalid { .. } => "gtctl config keys lists what it may say.",
            };
            Err(CommandFailure::new(Exit::Config, error.to_string(), next))
        }
    }
}

/// The number of devices of the daemon at `socket`, if one listens and is new enough to tell it.
fn devices_of_daemon(socket: &Path) -> Option<usize> {
    let status = connect(socket).and_then(|daemon| gt_protocol::ask_status(&daemon.socket)).ok()?;
    (status.devices > 0).then_some(status.devices as usize)
}
