//! The command line of `gtd`, completed by the configuration file that it names.

use crate::journal;
use crate::nodes::agent::JoinLine;
use clap::{Parser, Subcommand};
use gt_config::{
    Bytes, Level, Settings, WorkerKind, WorkerKinds, device, device_help, listen_address, metrics_address,
    workers_default, workers_help,
};
use gt_protocol::{Address, InsecureNetwork};
use std::net::SocketAddr;
use std::path::PathBuf;

/// The GT daemon: owns this machine's devices and computes for any process that connects.
#[derive(Clone, Debug, PartialEq, Parser)]
#[command(name = "gtd", version, disable_help_subcommand = true)]
pub struct Config {
    /// Another program than the daemon.
    #[command(subcommand)]
    pub subprogram: Option<Subprogram>,

    /// The configuration file, for settings that neither the command line nor the environment has; /etc/gt/gtd.yaml is
    /// the system's.
    #[arg(long, value_name = "PATH")]
    pub config: Option<PathBuf>,

    /// Workers to run, of each backend on the processor or on devices.
    #[arg(long, value_name = "KIND:N,…", env = "GT_WORKERS", help = workers_text())]
    pub workers: Option<WorkerKinds>,

    /// The value of GT_DEVICES; --workers takes precedence.
    #[arg(long, hide = true, value_name = "KIND:N,…", env = "GT_DEVICES")]
    pub devices: Option<WorkerKinds>,

    /// The least number of workers that the program of a private daemon needs, if nothing names the workers.
    #[arg(long, hide = true, value_name = "N", requires = "private", value_parser = clap::value_parser!(u32).range(0..=64))]
    #[arg(default_value_t = 0)]
    pub workers_wanted: u32,

    /// Compute threads of all workers together, at least one for each [default: one for each core].
    #[arg(long, value_name = "N", value_parser = threads)]
    pub threads: Option<u32>,

    /// The memory of all tensors, all workers together, as in 512M or 8G [default: three quarters of the machine's].
    #[arg(long, value_name = "BYTES")]
    pub memory: Option<Bytes>,

    /// Shards large tensors over several workers if no signal places them [default: on].
    #[arg(long, value_name = "on|off", env = "GT_AUTO_SHARD", action = clap::ArgAction::Set)]
    #[arg(value_parser = clap::builder::BoolishValueParser::new(), hide_possible_values = true)]
    pub auto_shard: Option<bool>,

    /// The smallest size of tensors that are so sharded; with 0, everything is divided that can be [default: 4M].
    #[arg(long, value_name = "BYTES", env = "GT_SHARD_BYTES_MIN")]
    pub shard_bytes_min: Option<Bytes>,

    /// The socket at which clients connect; a name that starts with @ is abstract [default: $GT_SOCKET or
    /// /run/gt/gtd.sock].
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,

    /// The address at which clients connect by TCP, with a token; a port alone is on loopback [default: none].
    #[arg(long, value_name = "[HOST:]PORT", value_parser = listen_address, conflicts_with = "private")]
    pub listen: Option<SocketAddr>,

    /// The file of the token for users of this machine, created if it does not exist [default: $GT_TOKEN, or
    /// ~/.config/gt/token].
    #[arg(long, value_name = "PATH", requires = "listen")]
    pub token_file: Option<PathBuf>,

    /// The certificate for TLS by TCP, and those that sign it (PEM) [default: one that the daemon makes].
    #[arg(long, value_name = "PATH", requires = "tls_key")]
    pub tls_certificate: Option<PathBuf>,

    /// The key of that certificate (PEM).
    #[arg(long, value_name = "PATH", requires = "tls_certificate")]
    pub tls_key: Option<PathBuf>,

    /// Lets other machines connect without TLS, so that tokens and tensors can be read on the way [default: off].
    #[arg(long, value_name = "on|off", action = clap::ArgAction::Set)]
    #[arg(value_parser = clap::builder::BoolishValueParser::new(), hide_possible_values = true)]
    pub listen_plain: Option<bool>,

    /// The address at which other machines join as nodes, with an invitation of gtctl invite; a port alone is on
    /// loopback [default: none].
    #[arg(long, value_name = "[HOST:]PORT", value_parser = listen_address, conflicts_with = "private")]
    pub nodes: Option<SocketAddr>,

    /// Lets tensors travel unencrypted between machines, for a network that nobody else is on: on (by RDMA where both
    /// machines have it, otherwise by TCP; also without a value), rdma (by RDMA alone; others stay encrypted), ucx (by
    /// UCX where both have it, otherwise by TCP) or off [default: off].
    #[arg(long, value_name = "WHERE", num_args = 0..=1, default_missing_value = "on", conflicts_with = "private")]
    pub insecure_network: Option<InsecureNetwork>,

    /// The address of this machine at which a page for browsers and metrics are read by HTTP; a port alone is on
    /// loopback [default: none].
    #[arg(long, value_name = "[HOST:]PORT", value_parser = metrics_address, conflicts_with = "private")]
    pub metrics: Option<SocketAddr>,

    /// The folder in which the users' recorded usage outlives the daemon [default: $STATE_DIRECTORY, which systemd
    /// sets; without it, none].
    #[arg(long, value_name = "FOLDER")]
    pub state: Option<PathBuf>,

    /// The records of ended sessions that are kept in that folder, as in 64M; 0 for none [default: 64M].
    #[arg(long, value_name = "BYTES")]
    pub session_records: Option<Bytes>,

    /// Prints how to connect, when the daemon is ready.
    #[arg(long)]
    pub announce: bool,

    /// The level of the log on standard error: error, warn, info, debug or trace [default: warn].
    #[arg(long, value_name = "LEVEL")]
    pub log: Option<Level>,

    /// Writes a line for each event to this file, after the lines that it has.
    #[arg(long, value_name = "PATH", env = "GT_INSTRUCTION_LOG")]
    pub instruction_log: Option<PathBuf>,

    /// The length at which that file is renamed to PATH.1 and begun again [default: 1G].
    #[arg(long, value_name = "BYTES")]
    pub instruction_log_bytes_max: Option<Bytes>,

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

/// The programs besides the daemon.
#[derive(Clone, Debug, PartialEq, Subcommand)]
pub enum Subprogram {
    /// Runs one more worker of a running daemon, until Ctrl-C.
    Worker {
        /// The daemon, as in unix:/run/gt/gtd.sock or localhost:12345 [default: the one that clients find].
        #[arg(long, value_name = "ADDRESS", conflicts_with = "fd")]
        connect: Option<Address>,
        /// The device that it computes on.
        #[arg(long, value_name = "DEVICE", value_parser = device, default_value = "cpu", conflicts_with = "fd")]
        #[arg(help = format!("What it computes on: {}", device_help()))]
        device: WorkerKind,
        /// Compute threads of a CPU worker [default: one for each core].
        #[arg(long, value_name = "N", value_parser = threads, conflicts_with = "fd")]
        threads: Option<u32>,
        /// The memory of its tensors, as in 512M or 8G [default: three quarters of the machine's, or most of the
        /// device's].
        #[arg(long, value_name = "BYTES", conflicts_with = "fd")]
        memory: Option<Bytes>,
        /// The connected socket of the daemon that started it.
        #[arg(long, hide = true, requires = "name", value_parser = clap::value_parser!(i32).range(0..))]
        fd: Option<i32>,
        /// The worker's name, as in gtctl status: 1 to 16 letters, digits and -_. [default: cpu:N, or the
        /// device].
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
    },
    /// Joins a daemon on another machine, and runs this machine's workers for it until Ctrl-C.
    Node {
        /// The line that `gtctl invite` prints on the daemon's machine. On a machine with other users, give it by the
        /// environment, since they can read a command line.
        #[arg(long, value_name = "HOST:PORT:FINGERPRINT:SECRET", env = "GT_JOIN", hide_env_values = true)]
        join: JoinLine,
        /// Workers to run, of each backend on the processor or on devices.
        #[arg(long, value_name = "KIND:N,…", help = workers_text())]
        workers: Option<WorkerKinds>,
        /// Compute threads of all workers together, at least one for each [default: one for each core].
        #[arg(long, value_name = "N", value_parser = threads)]
        threads: Option<u32>,
        /// The memory of all tensors, all workers together, as in 512M or 8G [default: three quarters of the
        /// machine's].
        #[arg(long, value_name = "BYTES")]
        memory: Option<Bytes>,
        /// The node's name, 1 to 8 letters, digits and -_. [default: the machine's, or a number].
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        /// The folder of the node's certificate, by which the daemon knows it [default: $STATE_DIRECTORY, or
        /// ~/.config/gt/node].
        #[arg(long, value_name = "FOLDER")]
        state: Option<PathBuf>,
    },
    /// Prints the devices that a backend's driver reports, for `gtctl doctor`.
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

/// The most compute threads of a worker.
const THREADS_MAX: u32 = 4096;

fn threads(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|threads| (1..=THREADS_MAX).contains(threads));
    number.ok_or_else(|| format!("`{text}` is no number of threads: write 1 to {THREADS_MAX}"))
}

/// The default of the smallest size of tensors that are sharded without a signal.
const SHARD_BYTES_MIN: Bytes = Bytes(4 << 20);
/// The default of the instruction log's length.
const INSTRUCTION_LOG_BYTES_MAX: Bytes = Bytes(1 << 30);

/// The default of the limit of all records of sessions.
const SESSION_RECORDS: Bytes = Bytes(64 << 20);

impl Config {
    /// This configuration, completed by a file; the command line and the environment take precedence.
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
            tls_certificate: self.tls_certificate.or_else(|| file.tls_certificate.clone()),
            tls_key: self.tls_key.or_else(|| file.tls_key.clone()),
            listen_plain: self.listen_plain.or(file.listen_plain),
            nodes: self.nodes.or(file.nodes),
            insecure_network: self.insecure_network.or(file.insecure_network),
            metrics: self.metrics.or(file.metrics),
            session_records: self.session_records.or(file.session_records),
            log: self.log.or_else(journal::level_of_environment).or(file.log),
            instruction_log: self.instruction_log.or_else(|| file.instruction_log.clone()),
            instruction_log_bytes_max: self.instruction_log_bytes_max.or(file.instruction_log_bytes_max),
            ..self
        }
    }

    /// The kinds of the requested workers; none if nothing names them.
    pub fn workers(&self) -> Option<&[WorkerKind]> {
        self.workers.as_ref().or(self.devices.as_ref()).map(|WorkerKinds(kinds)| kinds.as_slice())
    }

    /// The folder for state that outlives the daemon. A private daemon has none, since its environment is its client's.
    pub fn state(&self) -> Option<PathBuf> {
        if self.private {
            return None;
        }
        self.state.clone().or_else(|| std::env::var_os("STATE_DIRECTORY").map(PathBuf::from))
    }

    /// The limit of all records of ended sessions, bytes; 0 if none are kept.
    pub fn session_records(&self) -> u64 {
        self.session_records.unwrap_or(SESSION_RECORDS).0
    }

    /// Where tensors travel unencrypted between machines.
    pub fn insecure_network(&self) -> InsecureNetwork {
        self.insecure_network.unwrap_or_default()
    }

    /// The smallest size of tensors that are sharded without a signal; none if no tensors are.
    pub fn shard_bytes_min(&self) -> Option<u64> {
        self.auto_shard.unwrap_or(true).then_some(self.shard_bytes_min.unwrap_or(SHARD_BYTES_MIN).0)
    }

    /// The length of the instruction log, bytes.
    pub fn instruction_log_bytes_max(&self) -> u64 {
        self.instruction_log_bytes_max.unwrap_or(INSTRUCTION_LOG_BYTES_MAX).0
    }

    /// The names of settings that differ in `other` and change only when the daemon is started again.
    pub fn fixed_differences(&self, other: &Config) -> Vec<String> {
        let differ = [
            ("workers", self.workers() != other.workers()),
            ("threads", self.threads != other.threads),
            ("memory", self.memory != other.memory),
            ("auto_shard or shard_bytes_min", self.shard_bytes_min() != other.shard_bytes_min()),
            ("metrics", self.metrics != other.metrics),
            ("nodes", self.nodes != other.nodes),
            ("insecure_network", self.insecure_network() != other.insecure_network()),
            ("session_records", self.session_records() != other.session_records()),
            ("socket", self.socket != other.socket),
            ("listen or token_file", (self.listen, &self.token_file) != (other.listen, &other.token_file)),
            (
                "tls_certificate, tls_key or listen_plain",
                (&self.tls_certificate, &self.tls_key, self.listen_plain)
                    != (&other.tls_certificate, &other.tls_key, other.listen_plain),
            ),
            (
                "instruction_log or instruction_log_bytes_max",
                (&self.instruction_log, self.instruction_log_bytes_max())
                    != (&other.instruction_log, other.instruction_log_bytes_max()),
            ),
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
