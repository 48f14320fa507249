//! The command line of `gtd`.

use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::str::FromStr;

/// The GT daemon: owns this machine's devices and computes for any process that connects.
#[derive(Debug, Parser)]
#[command(name = "gtd", version, disable_help_subcommand = true)]
pub struct Config {
    /// What to be other than a daemon.
    #[command(subcommand)]
    pub role: Option<Role>,

    /// Workers to run: `cpu:N` is N workers on the processor, `proc-cpu:N` N of them in processes of their own; a list,
    /// as in cpu:1,proc-cpu:2, is all of them.
    #[arg(long, default_value = "cpu:1", value_name = "KIND:N,…", env = "GT_WORKERS")]
    pub workers: Workers,

    /// Threads that compute, all workers together; each has one at least [default: one a core].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub threads: Option<u32>,

    /// Bytes that tensors may take, all workers together, as in 512M or 8G [default: three quarters of the machine's].
    #[arg(long, value_name = "BYTES")]
    pub memory: Option<Bytes>,

    /// Whether large tensors are spread over several workers where no signal says where they go.
    #[arg(long, default_value = "on", value_name = "on|off", env = "GT_AUTO_SHARD", action = clap::ArgAction::Set)]
    #[arg(value_parser = clap::builder::BoolishValueParser::new())]
    pub auto_shard: bool,

    /// Tensors from this size on are spread over several workers; with 0, whatever can be divided is.
    #[arg(long, value_name = "BYTES", default_value = "4M", env = "GT_SHARD_BYTES_MIN")]
    pub shard_bytes_min: Bytes,

    /// Where clients connect; a name that starts with @ is abstract [default: $GT_SOCKET or /run/gt/gtd.sock].
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,

    /// Writes a line an event to this new file.
    #[arg(long, value_name = "PATH", env = "GT_INSTRUCTION_LOG")]
    pub instruction_log: Option<PathBuf>,

    /// Serves the client on --client-fd and its children, and ends with the last of them.
    #[arg(long, hide = true, requires = "client_fd")]
    pub private: bool,

    /// The connected socket of a private daemon's first client.
    #[arg(long, hide = true, requires = "private", value_name = "FD")]
    #[arg(value_parser = clap::value_parser!(i32).range(0..))]
    pub client_fd: Option<i32>,

    /// The abstract name at which a private daemon's further clients connect.
    #[arg(long, hide = true, requires = "private", value_name = "@NAME", value_parser = abstract_name)]
    pub name: Option<PathBuf>,
}

/// What the program can be besides a daemon.
#[derive(Debug, Subcommand)]
pub enum Role {
    /// A worker of a daemon, which starts it.
    #[command(hide = true)]
    Worker {
        /// The connected socket of its daemon.
        #[arg(long, value_name = "FD", value_parser = clap::value_parser!(i32).range(0..))]
        fd: i32,
        /// What it is called, for those who list processes.
        #[arg(long)]
        name: String,
    },
}

fn abstract_name(text: &str) -> Result<PathBuf, String> {
    if text.starts_with("@gt-") { Ok(text.into()) } else { Err("an abstract name starts with @gt-".into()) }
}

/// Where a worker runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerKind {
    /// On the processor, in a thread of the daemon.
    Cpu,
    /// On the processor, in a process of its own.
    ProcCpu,
}

impl WorkerKind {
    const ALL: [WorkerKind; 2] = [WorkerKind::Cpu, WorkerKind::ProcCpu];

    /// As users write it.
    pub fn name(self) -> &'static str {
        match self {
            WorkerKind::Cpu => "cpu",
            WorkerKind::ProcCpu => "proc-cpu",
        }
    }
}

/// Which workers: the kind of each, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workers(pub Vec<WorkerKind>);

/// Workers of all kinds, at most.
const WORKERS_MAX: usize = 64;

impl FromStr for Workers {
    type Err = String;
    fn from_str(text: &str) -> Result<Workers, String> {
        let mut workers = Vec::new();
        for part in text.split(',') {
            let (name, count) = part.split_once(':').unwrap_or((part, "1"));
            let kind = WorkerKind::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| {
                format!("`{name}` is no kind of worker: write cpu or proc-cpu, as in cpu:2 or cpu:1,proc-cpu:1")
            })?;
            let count: usize =
                count.parse().map_err(|_| format!("`{count}` is no number of workers: write {name}:1 or {name}:2"))?;
            if count == 0 || count > WORKERS_MAX - workers.len() {
                return Err(format!(
                    "`{text}` asks for {count} workers of {name}; 1 to {WORKERS_MAX} in all are possible"
                ));
            }
            workers.extend(std::iter::repeat_n(kind, count));
        }
        Ok(Workers(workers))
    }
}

/// A number of bytes, written with a suffix K, M, G or T (of 1024) or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl std::fmt::Display for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl FromStr for Bytes {
    type Err = String;
    fn from_str(text: &str) -> Result<Bytes, String> {
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let shift = match text[digits.len()..].to_ascii_uppercase().trim_end_matches('B').trim_end_matches('I') {
            "" => 0,
            "K" => 10,
            "M" => 20,
            "G" => 30,
            "T" => 40,
            _ => return Err(format!("`{text}` is no number of bytes: write 512M or 8G")),
        };
        let number: u64 = digits.parse().map_err(|_| format!("`{text}` is no number of bytes: write 512M or 8G"))?;
        number
            .checked_shl(shift)
            .filter(|bytes| bytes >> shift == number)
            .map(Bytes)
            .ok_or_else(|| format!("`{text}` is more than any machine has"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_suffixes() {
        for (text, bytes) in [("512", 512), ("3K", 3 << 10), ("512M", 512 << 20), ("8G", 8 << 30), ("1GiB", 1 << 30)] {
            assert_eq!(text.parse(), Ok(Bytes(bytes)));
        }
        for text in ["", "G", "1X", "-1", "99999999T", "1.5G"] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
    }

    #[test]
    fn workers_name_their_kind() {
        use WorkerKind::{Cpu, ProcCpu};
        for (text, kinds) in [
            ("cpu", vec![Cpu]),
            ("cpu:2", vec![Cpu; 2]),
            ("proc-cpu", vec![ProcCpu]),
            ("cpu:1,proc-cpu:2,cpu", vec![Cpu, ProcCpu, ProcCpu, Cpu]),
            ("cpu:64", vec![Cpu; 64]),
        ] {
            assert_eq!(text.parse(), Ok(Workers(kinds)), "{text}");
        }
        for (text, why) in [
            ("", "is no kind of worker"),
            ("tpu:1", "`tpu` is no kind of worker"),
            ("cpu,", "`` is no kind of worker"),
            ("cpu:x", "`x` is no number of workers"),
            ("cpu:", "is no number of workers"),
            ("cpu:-1", "is no number of workers"),
            ("cpu:0", "1 to 64 in all are possible"),
            ("cpu:65", "1 to 64 in all are possible"),
            ("cpu:60,proc-cpu:5", "1 to 64 in all are possible"),
        ] {
            let error = text.parse::<Workers>().unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn a_private_daemon_needs_its_client() {
        assert!(Config::try_parse_from(["gtd", "--private"]).is_err());
        assert!(Config::try_parse_from(["gtd", "--private", "--client-fd", "3", "--name", "elsewhere"]).is_err());
        assert!(Config::try_parse_from(["gtd", "--private", "--client-fd", "3", "--name", "@gt-x"]).is_ok());
    }
}
