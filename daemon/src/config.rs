//! The command line of `gtd`, and how it is filled in from the file that it names.

use crate::journal;
use clap::{Parser, Subcommand};
use gt_config::{
    Bytes, Level, Settings, WorkerKind, WorkerKinds, device, device_help, listen_address, workers_default, workers_help,
};
use gt_protocol::Address;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The GT daemon: owns this machine's devices and computes for any process that connects.
#[derive(Clone, Debug, PartialEq, Parser)]
#[command(name = "gtd", version, disable_help_subcommand = true)]
pub struct Config {
    /// What to be other than a daemon.
    #[command(subcommand)]
    pub subprogram: Option<Subprogram>,

    /// Reads what is not said here or by the environment from this file; /etc/gt/gtd.yaml is the system's.
    #[arg(long, value_name = "PATH")]
    pub config: Option<PathBuf>,

    /// Workers to run, of each backend on the processor or on devices.
    #[arg(long, value_name = "KIND:N,…", env = "GT_WORKERS", help = workers_text())]
    pub workers: Option<WorkerKinds>,

    /// As --workers, which is stronger; for GT_DEVICES.
    #[arg(long, hide = true, value_name = "KIND:N,…", env = "GT_DEVICES")]
    pub devices: Option<WorkerKinds>,

    /// How many workers the program needs at least that starts a private daemon, where nothing says which.
    #[arg(long, hide = true, value_name = "N", requires = "private", value_parser = clap::value_parser!(u32).range(0..=64))]
    #[arg(default_value_t = 0)]
    pub workers_wanted: u32,

    /// Threads that compute, all workers together; each has one at least [default: one a core].
    #[arg(long, value_name = "N", value_parser = threads)]
    pub threads: Option<u32>,

    /// Bytes that tensors may take, all workers together, as in 512M or 8G [default: three quarters of the machine's].
    #[arg(long, value_name = "BYTES")]
    pub memory: Option<Bytes>,

    /// Whether large tensors are spread over several workers where no signal says where they go [default: on].
    #[arg(long, value_name = "on|off", env = "GT_AUTO_SHARD", action = clap::ArgAction::Set)]
    #[arg(value_parser = clap::builder::BoolishValueParser::new())]
    pub auto_shard: Option<bool>,

    /// Tensors from this size on are spread over several workers; with 0, whatever can be divided is [default: 4M].
    #[arg(long, value_name = "BYTES", env = "GT_SHARD_BYTES_MIN")]
    pub shard_bytes_min: Option<Bytes>,

    /// Where clients connect; a name that starts with @ is abstract [default: $GT_SOCKET or /run/gt/gtd.sock].
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,

    /// Where clients connect by TCP, who then need the token; a port alone is on loopback [default: nowhere].
    #[arg(long, value_name = "[HOST:]PORT", value_parser = listen_address, conflicts_with = "private")]
    pub listen: Option<SocketAddr>,

    /// The file of that token, which is made if it is not there [default: $GT_TOKEN, or ~/.config/gt/token].
    #[arg(long, value_name = "PATH", requires = "listen")]
    pub token_file: Option<PathBuf>,

    /// Keeps what users have had of the devices in this folder, so that a new start does not forget it [default:
    /// $STATE_DIRECTORY, which systemd sets; without it, nowhere].
    #[arg(long, value_name = "FOLDER")]
    pub state: Option<PathBuf>,

    /// Says on standard output how to connect, when the daemon is ready.
    #[arg(long)]
    pub announce: bool,

    /// How much to say on standard error: error, warn, info, debug or trace [default: warn].
    #[arg(long, value_name = "LEVEL")]
    pub log: Option<Level>,

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
#[derive(Clone, Debug, PartialEq, Subcommand)]
pub enum Subprogram {
    /// One more worker of a daemon that runs, until Ctrl-C.
    Worker {
        /// The daemon, as in unix:/run/gt/gtd.sock or localhost:12345 [default: the one that clients find].
        #[arg(long, value_name = "ADDRESS", conflicts_with = "fd")]
        connect: Option<Address>,
        /// The device that it computes on.
        #[arg(long, value_name = "DEVICE", value_parser = device, default_value = "cpu", conflicts_with = "fd")]
        #[arg(help = format!("What it computes on: {}", device_help()))]
        device: WorkerKind,
        /// Threads that compute, on the processor [default: one a core].
        #[arg(long, value_name = "N", value_parser = threads, conflicts_with = "fd")]
        threads: Option<u32>,
        /// Bytes that its tensors may take, as in 512M or 8G [default: three quarters of the machine's, or most of the
        /// device's].
        #[arg(long, value_name = "BYTES", conflicts_with = "fd")]
        memory: Option<Bytes>,
        /// The connected socket of the daemon that started it.
        #[arg(long, hide = true, requires = "name", value_parser = clap::value_parser!(i32).range(0..))]
        fd: Option<i32>,
        /// What it is called, as in gtctl status: 1 to 16 letters, digits and -_. [default: cpu:N, or the
        /// device].
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
    },
    /// Prints what a backend's driver says of the machine's devices, for `gtctl doctor`.
    #[command(hide = true)]
    Probe {
        /// The backend.
        backend: String,
    },
    /// Prints the manual page.
    #[command(hide = true)]
    Manual,
    /// Prints completions for a shell.
    #[command(hide = true)]
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

fn workers_text() -> String {
    let (kinds, default) = (workers_help(), workers_default());
    format!("Workers to run: {kinds}; a list, as in cpu:1,proc-cpu:2, is all of them [default: {default}]")
}

/// Threads of a worker, at most.
const THREADS_MAX: u32 = 4096;

fn threads(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|threads| (1..=THREADS_MAX).contains(threads));
    number.ok_or_else(|| format!("`{text}` is no number of threads: write 1 to {THREADS_MAX}"))
}

/// From which size on tensors are spread over several workers, unless something else is asked for.
const SHARD_BYTES_MIN: Bytes = Bytes(4 << 20);

impl Config {
    /// With what is open still taken from a file: the command line and the environment are stronger.
    #[must_use]
    pub fn or(self, file: &Settings) -> Config {
        let named = gt_protocol::path::named_socket_path;
        Config {
            workers: self.workers.or(self.devices).or_else(|| file.workers.clone()),
            devices: None,
            threads: self.threads.or(file.threads),
            memory: self.memory.or(file.memory),
            auto_shard: self.auto_shard.or(file.auto_shard),
            shard_bytes_min: self.shard_bytes_min.or(file.shard_bytes_min),
            socket: self.socket.or_else(named).or_else(|| file.socket.clone()),
            listen: self.listen.or(file.listen),
            token_file: self.token_file.or_else(|| file.token_file.clone()),
            log: self.log.or_else(journal::level_of_environment).or(file.log),
            ..self
        }
    }

    /// The kinds of the workers that are asked for, if any are.
    pub fn workers(&self) -> Option<&[WorkerKind]> {
        self.workers.as_ref().or(self.devices.as_ref()).map(|WorkerKinds(kinds)| kinds.as_slice())
    }

    /// Where to keep what outlives the daemon. A private one has nothing of the kind: its environment is its client's.
    pub fn state(&self) -> Option<PathBuf> {
        if self.private {
            return None;
        }
        self.state.clone().or_else(|| std::env::var_os("STATE_DIRECTORY").map(PathBuf::from))
    }

    /// From which size on tensors are spread over several workers by themselves; none if they are not.
    pub fn shard_bytes_min(&self) -> Option<u64> {
        self.auto_shard.unwrap_or(true).then_some(self.shard_bytes_min.unwrap_or(SHARD_BYTES_MIN).0)
    }

    /// The names of what differs in `other` and can only be had by starting anew.
    pub fn fixed_differences(&self, other: &Config) -> Vec<String> {
        let differ = [
            ("workers", self.workers() != other.workers()),
            ("threads", self.threads != other.threads),
            ("memory", self.memory != other.memory),
            ("auto_shard or shard_bytes_min", self.shard_bytes_min() != other.shard_bytes_min()),
            ("socket", self.socket != other.socket),
            ("listen or token_file", (self.listen, &self.token_file) != (other.listen, &other.token_file)),
        ];
        differ.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name.into()).collect()
    }
}

fn abstract_name(text: &str) -> Result<PathBuf, String> {
    if text.starts_with("@gt-") { Ok(text.into()) } else { Err("an abstract name starts with @gt-".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_stronger_than_the_file() {
        let config = Config::try_parse_from(["gtd", "--threads", "2", "--log", "debug"]).unwrap();
        let file = gt_config::parse("threads: 8\nmemory: 1G\nlog: info\nworkers: cpu:2", "x".as_ref()).unwrap();
        let both = config.or(&file);
        assert_eq!((both.threads, both.memory, both.log), (Some(2), Some(Bytes(1 << 30)), Some(Level::Debug)));
        assert_eq!(both.workers(), Some([WorkerKind::on(gt_backends::host(), 0); 2].as_slice()));
        let later = both.clone().or(&Settings::default());
        assert!(both.fixed_differences(&later).is_empty());
        let other = Config { memory: None, ..later };
        assert_eq!(both.fixed_differences(&other), ["memory"]);
    }

    #[test]
    fn a_private_daemon_needs_its_client() {
        assert!(Config::try_parse_from(["gtd", "--private"]).is_err());
        assert!(Config::try_parse_from(["gtd", "--private", "--client-fd", "3", "--name", "elsewhere"]).is_err());
        assert!(Config::try_parse_from(["gtd", "--private", "--client-fd", "3", "--name", "@gt-x"]).is_ok());
    }
}
