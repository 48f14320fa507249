//! The start of the program: from the command line to a running dispatcher.

use crate::bandwidth::machine_bytes_per_ns;
use crate::config::{Config, Subprogram};
use crate::devices;
use crate::dispatcher::{Dispatcher, DispatcherParts};
use crate::flight_recorder::FlightRecorder;
use crate::hot_paths::CompilePolicy;
use crate::journal::{self, LogLevel};
use crate::ledger::Ledger;
use crate::listen;
use crate::log::InstructionLog;
use crate::modifiers;
use crate::nodes::agent::{self, NodeOptions};
use crate::nodes::server::Nodes;
use crate::record_keeper::RecordKeeper;
use crate::reload::{self, Reload};
use crate::systemd::{self, Notifier};
use crate::tape::Tape;
use crate::token_desk::TokenDesk;
use crate::web::access::WebAccess;
use crate::web::desk::desk;
use crate::web::server::WebListener;
use crate::web::site::WebSite;
use crate::worker::process::child;
use crate::worker::process::link::ProcessLink;
use crate::worker::process::registering::{self, Registration};
use crate::worker::process::worker_device::WorkerDevice;
use crate::worker::reachable_memory::reachable_memory;
use crate::worker::thread::{INLINE_NS_MAX, INLINE_SOLE_NS_MAX, ThreadLink};
use crate::worker::worker_link::WorkerLink;
use clap::{CommandFactory, Parser};
use gt_backend::{Backend, BackendFacts, BackendVisitor, OpenOptions, OpenedBackend, Site};
use gt_bridge::daemon_end::{Listener, ListenerOptions};
use gt_bridge::tls::{Certificate, ServedCertificate};
use gt_bridge::user_tokens::UserTokens;
use gt_collectives::local::SharedMemory;
use gt_config::{ConfigError, SYSTEM_FILE, Settings, WorkerKind};
use gt_cpu::CpuOptions;
use gt_ops::Workers;
use gt_protocol::{Address, DaemonMessage, RefusalCode, Refused, TcpStatus, WorkerInfo};
use gt_shm::Socket;
use gt_tape::recording;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::error::Error;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// The running program, even if its file has been replaced.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// The time that a client has to receive the reason why its daemon does not start.
const REFUSAL_DEADLINE: Duration = Duration::from_secs(1);
/// The exit status for a wrong configuration, `EX_CONFIG`, after which systemd does not restart the daemon.
const EXIT_CONFIG: u8 = 78;

/// Ignores the signals by which a scheduler such as Slurm tells all processes of a job that it ends soon, so that the
/// program can save its state: they would end this process at once.
fn ignore_user_signals() {
    for signal in [Signal::SIGUSR1, Signal::SIGUSR2] {
        // SAFETY: `SIG_IGN` installs no handler, so no code of this process runs at a signal. It cannot fail, as both
        // signals exist and may be ignored.
        let _ = unsafe { nix::sys::signal::signal(signal, nix::sys::signal::SigHandler::SigIgn) };
    }
}

/// Settings of UCX that hold unless the environment says otherwise: it leaves this program's handlers of signals as
/// they are, writes to standard error, and says nothing of variables that it does not know.
const UCX_SETTINGS: [(&str, &str); 3] =
    [("UCX_HANDLE_ERRORS", "none"), ("UCX_LOG_FILE", "stderr"), ("UCX_WARN_UNUSED_ENV_VARS", "n")];

/// Sets [`UCX_SETTINGS`], which UCX reads when it is opened.
fn set_up_ucx() {
    for (name, value) in UCX_SETTINGS {
        if std::env::var_os(name).is_none() {
            // SAFETY: `main` calls this before any other thread is started, so nobody else reads the environment.
            unsafe { std::env::set_var(name, value) };
        }
    }
}

/// Runs the program `gtd`; the binary does nothing else.
pub fn main() -> ExitCode {
    ignore_user_signals();
    set_up_ucx();
    let arguments = Config::try_parse().unwrap_or_else(|error| {
        refuse_for(&error);
        error.exit()
    });
    let file = match arguments.config.as_deref().map(gt_config::read).transpose() {
        Ok(file) => file,
        Err(error) => {
            complain(&format!("gtd: {error}\ngtd: it does not start with that; see gtctl config check"));
            return ExitCode::from(EXIT_CONFIG);
        }
    };
    let log_level = journal::start(match &file {
        Some(file) => arguments.clone().or(file).log,
        None => arguments.log.or_else(journal::level_of_environment),
    });
    let (who, result) = match &arguments.subprogram {
        Some(Subprogram::Worker { fd: Some(fd), name, .. }) => {
            (format!("gtd: worker {}", name.as_deref().unwrap_or_default()), work(*fd))
        }
        Some(Subprogram::Worker { connect, device, threads, memory, name, .. }) => {
            let memory_bytes_limit = memory.map(|bytes| bytes.0);
            let offer = Registration { name: name.clone(), device: *device, threads: *threads, memory_bytes_limit };
            ("gtd worker".into(), registering::run(connect.clone(), &offer).map(|never| match never {}))
        }
        Some(Subprogram::Node { join, workers, threads, memory, name, state }) => {
            let options = NodeOptions {
                join: join.clone(),
                workers: workers.as_ref().map(|workers| workers.0.clone()),
                threads: *threads,
                memory_bytes_limit: memory.map(|bytes| bytes.0),
                name: name.clone(),
                state: state.clone(),
            };
            ("gtd node".into(), agent::run(&options))
        }
        Some(Subprogram::Probe { backend }) => ("gtd".into(), devices::probe(backend).map_err(Into::into)),
        Some(subprogram @ (Subprogram::Manual | Subprogram::Completions { .. })) => {
            ("gtd".into(), describe(subprogram).map_err(Into::into))
        }
        None => ("gtd".into(), run(arguments, file, log_level)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("{who}: {error}"));
            // As for other errors in the file, systemd does not start the daemon again.
            if error.is::<ConfigError>() { ExitCode::from(EXIT_CONFIG) } else { ExitCode::FAILURE }
        }
    }
}

#[expect(clippy::print_stderr, reason = "a program that cannot start says why")]
fn complain(text: &str) {
    for line in text.lines() {
        eprintln!("{}{line}", if journal::is_journal() { "<3>" } else { "" });
    }
}

/// Starts the daemon with the settings of the command line and of `file`, and serves until it ends.
///
/// # Errors
/// The reason why the daemon does not start, for the user.
pub fn run(arguments: Config, file: Option<Settings>, log_level: LogLevel) -> Result<(), Box<dyn Error>> {
    let config = &match &file {
        Some(file) => arguments.clone().or(file),
        None => arguments.clone(),
    };
    let client = match config.client_fd {
        // This comes before the daemon opens descriptors, since `take_socket` closes all others.
        Some(fd) => Some(take_socket(fd)?),
        None => None,
    };
    let given = if config.private { None } else { systemd::take_listener()? };
    let signals = take_signals(config.private)?;
    if config.private {
        // A new POSIX session, so that Ctrl-C in a terminal reaches only the client. The call fails if this process
        // leads a process group already.
        let _ = nix::unistd::setsid();
    }
    raise_descriptor_limit();
    let path = match (&config.socket, &config.name) {
        (Some(path), _) | (None, Some(path)) => Some(path.clone()),
        (None, None) if config.private => None,
        (None, None) => Some(gt_protocol::path::socket_path()),
    };
    let socket = path.clone();
    if let (None, Some(path), false) = (&given, &path, config.private)
        && gt_protocol::path::is_abstract(path)
    {
        let path = path.display();
        tracing::warn!(
            target: "gtd::dispatcher",
            "the name {path} is abstract and has no owner or mode: every user of this machine may connect"
        );
    }
    let at = match (&given, &path) {
        (Some(_), _) => "the socket that systemd gave".into(),
        (None, path) => path.as_ref().map(|path| path.display().to_string()).unwrap_or_default(),
    };
    // The socket's files are removed after the dispatcher has ended.
    let (listener, _socket_guard) = match (given, path) {
        // systemd owns this socket.
        (Some(socket), _) => {
            if let Some(path) = &config.socket {
                let path = path.display();
                tracing::warn!(target: "gtd::dispatcher", "socket {path} is not used: systemd gave one, see gtd.socket");
            }
            (Some(socket), None)
        }
        (None, Some(path)) => {
            let (socket, guard) = listen::listen(&path)?;
            (Some(socket), Some(guard))
        }
        (None, None) => (None, None),
    };
    let wanted = config.workers_wanted as usize;
    let mut found = Vec::new();
    let survey = |backend: &'static BackendFacts| {
        let survey = devices::survey(THIS_PROGRAM, backend);
        found.push((backend, survey.clone()));
        survey
    };
    let are_kept = config.config.is_none() && devices_are_kept();
    let kinds = match devices::kept_device(config.workers()).filter(|_| are_kept) {
        Some(device) => Err(format!(
            "{device} is asked for, but {SYSTEM_FILE} keeps this machine's devices to its daemon (private_devices: off): \
             use that daemon"
        )),
        None => devices::resolve(config.workers(), wanted, |discovery| !are_kept && (discovery.is_there)(), survey),
    };
    let kinds = kinds
        .map_err(|error| format!("{error}. GT_DEVICES=cpu does without GPUs"))
        .inspect_err(|error| refuse(client.as_ref(), error))?;
    if let (Some(file), Some(path)) = (&file, &config.config) {
        file.check_devices(path, kinds.len())?;
    }
    let names = kinds.iter().enumerate().map(|(index, kind)| devices::worker_name(*kind, index)).collect();
    let recorder = FlightRecorder::start(recording::folder(nix::unistd::geteuid().as_raw()), names);
    let tape = match recorder {
        Ok((recorder, file)) => Tape::recorded(recorder, &file),
        Err(error) => {
            tracing::info!(target: "gtd::dispatcher", "the last events before a crash will not be kept: {error}");
            Tape::new()
        }
    };
    let tape = tape.inspect_err(|error| refuse(client.as_ref(), &error.to_string()))?;
    let log = match &config.instruction_log {
        Some(path) if !path.as_os_str().is_empty() => {
            let log = InstructionLog::start(path, config.instruction_log_bytes_max(), tape.reader()?);
            let log = log.map_err(|error| format!("cannot write the instruction log {}: {error}", path.display()));
            Some(log.inspect_err(|error| refuse(client.as_ref(), error))?)
        }
        _ => None,
    };
    let nodes = match (config.nodes, &socket) {
        (Some(address), Some(socket)) => {
            Some(Nodes::listen(address, state_folder(config)?, socket, config.insecure_network())?)
        }
        _ => None,
    };
    match (&nodes, config.insecure_network().warning()) {
        (_, "") => {}
        (Some(_), warning) => tracing::warn!(target: "gtd::nodes", "{warning}: whoever is on the way can change them"),
        (None, _) => tracing::warn!(
            target: "gtd::nodes",
            "insecure_network has no effect: this daemon has no nodes, which take an address (--nodes)"
        ),
    }
    let links = start_workers(config, &kinds).inspect_err(|error| refuse(client.as_ref(), &error.to_string()))?;
    if links.len() > 1 {
        // The bandwidth is measured here, and not later while sessions wait.
        machine_bytes_per_ns();
    }
    let reach = devices::reach(&kinds, &found);
    let threads = kinds.iter().enumerate().filter(|(_, kind)| kind.is_thread());
    let together = threads.fold(Workers::NONE, |all, (worker, _)| all.with(Workers::one(worker)));
    let pipelines = modifiers::standard(config.shard_bytes_min(), together, reach);
    let tokens = Arc::new(UserTokens::open(config.state()));
    let tcp = match (config.listen, &socket) {
        (Some(address), Some(socket)) => Some(bind_tcp(config, address, tokens.clone(), socket)?),
        _ => None,
    };
    let web = config.metrics.map(WebListener::bind).transpose()?;
    let metrics = web.as_ref().map(|web| web.address().to_string());
    let (web_desk, site) = if web.is_some() {
        let (desk, asker) = desk()?;
        let site = WebSite::new(asker, WebAccess::new(tokens.clone()), tape.fd().try_clone()?);
        (Some(desk), Some(site))
    } else {
        (None, None)
    };
    let dispatcher = Dispatcher::new(DispatcherParts {
        listener,
        client,
        signals,
        links,
        pipelines,
        tape,
        log,
        quotas: file.as_ref().map(reload::quotas).unwrap_or_default(),
        arena_bytes_max: arena_bytes_max(config),
        reload: match (file, config.config.clone()) {
            (Some(file), Some(path)) => {
                let certificate = tcp.as_ref().and_then(|tcp| tcp.certificate.clone());
                Some(Reload::new(path, arguments, file, kinds.len(), log_level, certificate)?)
            }
            _ => None,
        },
        notifier: if config.private { Notifier::silent() } else { Notifier::new() },
        ledger: config.state().map(Ledger::new),
        tokens: TokenDesk::new(tokens)?,
        compile: CompilePolicy::from_environment(),
        tcp: tcp.as_ref().map(|tcp| tcp.status.clone()),
        nodes: nodes.clone(),
        records: match (config.state(), config.session_records()) {
            (Some(folder), bytes_max) if bytes_max > 0 => Some(RecordKeeper::start(folder, bytes_max)?),
            _ => None,
        },
        web: web_desk,
        metrics,
    })?;
    if config.private {
        // A daemon that runs for long must not keep a folder or a mount busy.
        let _ = std::env::set_current_dir("/");
    } else {
        let workers: Vec<String> = kinds.iter().map(WorkerKind::to_string).collect();
        let limit = |of| match getrlimit(of) {
            Ok((soft, _)) if soft != RLIM_INFINITY => soft.to_string(),
            _ => "any number of".into(),
        };
        tracing::info!(
            target: "gtd::dispatcher",
            "gtd {} serves at {at} with workers {}; the system allows {} descriptors and {} bytes of pinned memory",
            env!("CARGO_PKG_VERSION"), workers.join(", "), limit(Resource::RLIMIT_NOFILE), limit(Resource::RLIMIT_MEMLOCK),
        );
    }
    if config.announce {
        announce(socket.as_deref(), tcp.as_ref())?;
    }
    if let (Some(listener), Some(site)) = (web, site) {
        listener.start(site)?;
    }
    if let Some(TcpPort { listener, .. }) = tcp {
        listener.start()?;
    }
    dispatcher.run()?;
    if let Some(nodes) = nodes {
        nodes.close();
    }
    Ok(())
}

/// Tells the client of a private daemon that its environment, or the command line, is wrong.
fn refuse_for(error: &clap::Error) {
    let words: Vec<_> = std::env::args_os().collect();
    let fd = words.windows(2).find(|pair| pair[0] == "--client-fd").and_then(|pair| pair[1].to_str()?.parse().ok());
    let client = fd.filter(|_| words.iter().any(|word| word == "--private")).and_then(|fd| take_socket(fd).ok());
    let text = error.to_string();
    let lines: Vec<&str> = text.lines().take_while(|line| !line.is_empty()).map(str::trim).collect();
    let why = lines.join(" ").trim_start_matches("error: ").to_owned();
    refuse(client.as_ref(), &format!("{why}; GT_WORKERS and GT_DEVICES set the workers, and may be unset"));
}

/// Whether the system's configuration asks daemons without it not to use this machine's devices. It enforces nothing: a
/// program that does not ask it, or a file that cannot be read, is not stopped.
fn devices_are_kept() -> bool {
    gt_config::read(Path::new(SYSTEM_FILE)).is_ok_and(|file| file.private_devices == Some(false))
}

/// Tells the client of a private daemon why the daemon does not start.
fn refuse(client: Option<&Socket>, why: &str) {
    let Some(client) = client else { return };
    // The client has sent its hello; if the socket were closed without reading it, the client would get another error.
    let told = gt_protocol::link::recv_hello(client, REFUSAL_DEADLINE).and_then(|_| {
        let refused = Refused::new(RefusalCode::Config, why);
        gt_protocol::link::send_daemon_message(client, &DaemonMessage::Refused(refused), &[], REFUSAL_DEADLINE)
    });
    if let Err(error) = told {
        tracing::debug!(target: "gtd::dispatcher", %error, "the client was not told");
    }
}

/// A TCP port at which clients connect.
struct TcpPort {
    listener: Listener,
    /// The file of the token, if it is in a file.
    token_file: Option<PathBuf>,
    certificate: Option<Arc<ServedCertificate>>,
    status: TcpStatus,
}

/// Binds the port for clients by TCP.
fn bind_tcp(
    config: &Config,
    address: SocketAddr,
    user_tokens: Arc<UserTokens>,
    socket: &Path,
) -> Result<TcpPort, Box<dyn Error>> {
    let (token, token_file) = gt_bridge::token::daemon_token(config.token_file.as_deref())?;
    let takes_plain = config.listen_plain.unwrap_or(false);
    let is_open = !address.ip().is_loopback();
    let certificate = match certificate(config) {
        Ok(certificate) => Some(certificate),
        Err(error) if config.tls_certificate.is_some() || config.tls_key.is_some() => return Err(error),
        Err(error) if is_open && !takes_plain => {
            return Err(
                format!("{error}; other machines connect with TLS, which needs it, to --listen {address}").into()
            );
        }
        Err(error) => {
            tracing::info!(target: "gtd::tcp", "no TLS: {error}");
            None
        }
    };
    let certificate = certificate.inspect(reload::warn_of_expiry).map(ServedCertificate::new);
    let fingerprint = certificate.as_ref().map(|certificate| certificate.fingerprint().to_string());
    let options =
        ListenerOptions { address, token, user_tokens, certificate: certificate.clone(), takes_plain, socket };
    let listener = Listener::bind(options)
        .map_err(|error| format!("cannot listen at {address}: {error}; choose another port with --listen"))?;
    let address = listener.address();
    if is_open && takes_plain {
        tracing::warn!(
            target: "gtd::tcp", %address,
            "other machines can connect without TLS (listen_plain: on): what travels, tokens too, can then be read on \
             the way"
        );
    }
    tracing::info!(target: "gtd::tcp", %address, "listening, TLS certificate {}", fingerprint.as_deref().unwrap_or("none"));
    let status = TcpStatus { address: address.to_string(), is_open, fingerprint, takes_plain };
    Ok(TcpPort { listener, token_file, certificate, status })
}

/// The certificate that the configuration names, else the daemon's own, in its state folder or beside the user's token.
fn certificate(config: &Config) -> Result<Certificate, Box<dyn Error>> {
    if let Some(named) = Certificate::named(config.tls_certificate.as_deref(), config.tls_key.as_deref())? {
        return Ok(named);
    }
    Ok(Certificate::own(&state_folder(config)?)?)
}

/// The folder of the daemon's own certificate: its state folder, else the one of the user's token.
fn state_folder(config: &Config) -> Result<PathBuf, Box<dyn Error>> {
    let beside_token = || gt_bridge::token::user_file().and_then(|file| file.parent().map(Path::to_owned));
    let folder = config.state().or_else(beside_token);
    Ok(folder.ok_or("there is no folder for a certificate: name one with --state, or set HOME")?)
}

/// Prints how to connect.
fn announce(socket: Option<&Path>, tcp: Option<&TcpPort>) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "gtd {} (pid {}) is ready", env!("CARGO_PKG_VERSION"), std::process::id())?;
    if let Some(path) = socket {
        writeln!(out, "  gt.connect({:?})", Address::Unix(path.to_owned()).to_string())?;
    }
    if let Some(TcpPort { listener, token_file, status, .. }) = tcp {
        let address = listener.address();
        if status.is_open {
            for address in status.addresses(&host_name(address.ip())) {
                writeln!(out, "  gt.connect({address:?})")?;
            }
        } else {
            writeln!(out, "  gt.connect(\"localhost:{}\")", address.port())?;
        }
        match token_file {
            Some(file) => writeln!(out, "  the token for that is in {}", file.display())?,
            None => writeln!(out, "  the token for that is GT_TOKEN's")?,
        }
    }
    out.flush()
}

/// The name by which other machines may find this one: its address, or its host name if it listens at every address.
fn host_name(ip: IpAddr) -> String {
    if !ip.is_unspecified() {
        return ip.to_string();
    }
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Prints the manual page or the shell completions.
fn describe(subprogram: &Subprogram) -> std::io::Result<()> {
    let mut text = Vec::new();
    match subprogram {
        Subprogram::Completions { shell } => clap_complete::generate(*shell, &mut Config::command(), "gtd", &mut text),
        _ => clap_mangen::Man::new(Config::command()).section("8").render(&mut text)?,
    }
    std::io::stdout().write_all(&text)
}

fn work(fd: RawFd) -> Result<(), Box<dyn Error>> {
    // This comes before the worker opens descriptors, since `take_socket` closes all others.
    child::run(take_socket(fd)?)
}

/// SIGTERM and SIGINT as a descriptor, and SIGHUP for a daemon that is not private. Called before any thread starts, so
/// that all threads inherit the mask.
fn take_signals(private: bool) -> nix::Result<SignalFd> {
    let reloads = (!private).then_some(Signal::SIGHUP);
    let signals = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT].into_iter().chain(reloads));
    signals.thread_block()?;
    SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
}

/// Takes the inherited socket `fd`, and closes all other inherited descriptors but the standard three.
fn take_socket(fd: RawFd) -> Result<Socket, Box<dyn Error>> {
    // SAFETY: F_GETFD only reads the flags of a descriptor; it returns an error if no such descriptor is open.
    if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
        return Err(format!("descriptor {fd} is not open").into());
    }
    // SAFETY: `fd` is open, since F_GETFD succeeded, and nothing else in this process owns it: the process has just
    // started. If it is standard input, it is forgotten below instead of closed.
    let given = unsafe { OwnedFd::from_raw_fd(fd) };
    let own = given.try_clone()?;
    if fd == 0 {
        // Number 0 must stay open, or the next descriptor would become standard input.
        let null = std::fs::File::open("/dev/null")?;
        nix::unistd::dup2_stdin(null)?;
        std::mem::forget(given);
    }
    let own_fd = own.as_raw_fd() as libc::c_uint;
    for (first, last) in [(3, own_fd.saturating_sub(1)), (own_fd + 1, libc::c_uint::MAX)] {
        if first <= last {
            // SAFETY: the process has just started, so only `own` and the standard three descriptors are in use, and
            // the ranges exclude these. The descriptors that are closed were inherited by accident.
            unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        }
    }
    Ok(Socket::from(own))
}

/// Raises the limit of descriptors as far as allowed, since each session takes three.
fn raise_descriptor_limit() {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

/// The limit of all arenas together, bytes: the machine's memory minus the memory limit of tensors, so that both fit,
/// but at least an eighth of the machine's memory.
fn arena_bytes_max(config: &Config) -> u64 {
    let machine = gt_cpu::machine_bytes() as u64;
    let tensors = config.memory.map_or(CpuOptions::default().memory_bytes_limit as u64, |bytes| bytes.0);
    machine.saturating_sub(tensors).max(machine / 8)
}

fn start_workers(config: &Config, kinds: &[WorkerKind]) -> std::io::Result<Vec<Box<dyn WorkerLink>>> {
    let defaults = CpuOptions::default();
    let threads = (config.threads.map_or(defaults.threads, |threads| threads as usize) / kinds.len()).max(1);
    let memory = config.memory.map_or(defaults.memory_bytes_limit, |bytes| bytes.0 as usize) / kinds.len();
    let inline_ns_max = if kinds.len() == 1 { INLINE_SOLE_NS_MAX } else { INLINE_NS_MAX };
    let among_processes = kinds.iter().any(|kind| !kind.is_thread());
    let mut links: Vec<Box<dyn WorkerLink>> = Vec::new();
    for (index, kind) in kinds.iter().enumerate() {
        let site = kind.backend.site;
        let info = WorkerInfo {
            name: devices::worker_name(*kind, index),
            kind: kind.backend.name.into(),
            threads: if site == Site::Host { threads as u32 } else { 1 },
            // Without a configured limit, a device's worker reports the memory of its device.
            memory_bytes_limit: if site == Site::Host || config.memory.is_some() { memory as u64 } else { 0 },
            ..WorkerInfo::default()
        };
        if kind.is_thread() {
            let reachable = among_processes.then(|| reachable_memory(memory as u64)).flatten();
            let shared = reachable.as_ref().map(|memory| memory.segment().clone());
            let options = OpenOptions { device: 0, threads, memory_bytes_limit: memory, shared };
            let start = StartThread { index, info, inline_ns_max, reachable };
            let link = gt_backends::open(kind.backend.name, &options, start);
            links.push(link.ok_or_else(|| std::io::Error::other("a backend that is not in the registry"))??);
        } else {
            let device =
                WorkerDevice::of(*kind).ok_or_else(|| std::io::Error::other("devices that were not counted"))?;
            links.push(Box::new(ProcessLink::start(THIS_PROGRAM.into(), index, device, info)?));
        }
    }
    Ok(links)
}

/// Starts a worker thread with an opened backend.
struct StartThread {
    index: usize,
    info: WorkerInfo,
    inline_ns_max: u64,
    /// The shared memory of the worker's tensors, if workers in other processes read it.
    reachable: Option<Arc<SharedMemory>>,
}

impl BackendVisitor for StartThread {
    type Output = std::io::Result<Box<dyn WorkerLink>>;

    fn visit<B: Backend + Send + 'static>(self, opened: Result<OpenedBackend<B>, String>) -> Self::Output {
        let OpenedBackend { backend, capabilities, .. } = opened.map_err(std::io::Error::other)?;
        let StartThread { index, info, inline_ns_max, reachable } = self;
        let link = ThreadLink::start(backend, index, info, capabilities.rates(), inline_ns_max, reachable)?;
        Ok(Box::new(link))
    }
}
