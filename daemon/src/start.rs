//! From the command line to a running dispatcher, and back to a clean end.

use crate::bandwidth::machine_bytes_per_ns;
use crate::config::{Config, Subprogram};
use crate::devices;
use crate::dispatcher::{Dispatcher, DispatcherParts};
use crate::journal::{self, Volume};
use crate::ledger::Ledger;
use crate::listen;
use crate::log::InstructionLog;
use crate::modifiers;
use crate::reload::{self, Reload};
use crate::systemd::{self, Notifier};
use crate::tape::Tape;
use crate::worker::process::child;
use crate::worker::process::link::ProcessLink;
use crate::worker::process::registering::{self, Registration};
use crate::worker::process::worker_device::WorkerDevice;
use crate::worker::reachable_memory::reachable_memory;
use crate::worker::thread::{INLINE_NS_MAX, INLINE_SOLE_NS_MAX, ThreadLink};
use crate::worker::worker_link::WorkerLink;
use clap::{CommandFactory, Parser};
use gt_backend::{Backend, BackendFacts, BackendVisitor, OpenOptions, OpenedBackend, Site};
use gt_collectives::local::SharedMemory;
use gt_config::{Settings, WorkerKind};
use gt_cpu::CpuOptions;
use gt_protocol::{Address, DaemonMessage, RefusalCode, Refused, WorkerInfo};
use gt_shm::Socket;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::error::Error;
use std::io::Write;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// The program that runs, even where its file has been replaced.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// How long a client may take to hear why there will be no daemon.
const REFUSAL_DEADLINE: Duration = Duration::from_secs(1);
/// How the program ends if its configuration is wrong: `EX_CONFIG`, after which systemd does not try again.
const EXIT_CONFIG: u8 = 78;

/// Runs the program `gtd`; the binary does nothing else.
pub fn main() -> ExitCode {
    let arguments = Config::parse();
    let file = match arguments.config.as_deref().map(gt_config::read).transpose() {
        Ok(file) => file,
        Err(error) => {
            complain(&format!("gtd: {error}\ngtd: it does not start with that; see gtctl config check"));
            return ExitCode::from(EXIT_CONFIG);
        }
    };
    let volume = journal::start(match &file {
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
        Some(Subprogram::Probe { backend }) => ("gtd".into(), devices::probe(backend).map_err(Into::into)),
        Some(subprogram @ (Subprogram::Manual | Subprogram::Completions { .. })) => {
            ("gtd".into(), describe(subprogram).map_err(Into::into))
        }
        None => ("gtd".into(), run(arguments, file, volume)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("{who}: {error}"));
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::print_stderr, reason = "a program that cannot start says why")]
fn complain(text: &str) {
    for line in text.lines() {
        eprintln!("{}{line}", if journal::is_journal() { "<3>" } else { "" });
    }
}

/// Serves until the end: as the command line says, and what the file says that it names.
///
/// # Errors
/// Whatever keeps the daemon from starting, for the user to read.
pub fn run(arguments: Config, file: Option<Settings>, volume: Volume) -> Result<(), Box<dyn Error>> {
    let config = &match &file {
        Some(file) => arguments.clone().or(file),
        None => arguments.clone(),
    };
    let client = match config.client_fd {
        // Before anything else is opened.
        Some(fd) => Some(take_socket(fd)?),
        None => None,
    };
    let given = if config.private { None } else { systemd::take_listener()? };
    let signals = take_signals(config.private)?;
    if config.private {
        // Of its own session, so that Ctrl-C in a terminal reaches the client only. Fails where it has one already.
        let _ = nix::unistd::setsid();
    }
    raise_descriptor_limit();
    let tape = Tape::new()?;
    let log = match &config.instruction_log {
        Some(path) if !path.as_os_str().is_empty() => {
            let log = InstructionLog::start(path, tape.reader()?);
            Some(log.map_err(|error| format!("cannot write the instruction log {}: {error}", path.display()))?)
        }
        _ => None,
    };
    let path = match (&config.socket, &config.name) {
        (Some(path), _) | (None, Some(path)) => Some(path.clone()),
        (None, None) if config.private => None,
        (None, None) => Some(gt_protocol::path::socket_path()),
    };
    let socket = path.clone();
    let at = match (&given, &path) {
        (Some(_), _) => "the socket that systemd gave".into(),
        (None, path) => path.as_ref().map(|path| path.display().to_string()).unwrap_or_default(),
    };
    // The place is given up after the dispatcher has ended.
    let (listener, _place) = match (given, path) {
        // systemd made it, and keeps it.
        (Some(socket), _) => {
            if let Some(path) = &config.socket {
                let path = path.display();
                tracing::warn!(target: "gtd::dispatcher", "socket {path} is not used: systemd gave one, see gtd.socket");
            }
            (Some(socket), None)
        }
        (None, Some(path)) => {
            let (socket, place) = listen::listen(&path)?;
            (Some(socket), Some(place))
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
    let kinds = devices::resolve(config.workers(), wanted, |discovery| (discovery.is_there)(), survey)
        .map_err(|error| format!("{error}. GT_DEVICES=cpu does without GPUs"))
        .inspect_err(|error| refuse(client.as_ref(), error))?;
    let links = start_workers(config, &kinds).inspect_err(|error| refuse(client.as_ref(), &error.to_string()))?;
    if links.len() > 1 {
        // Not while sessions wait.
        machine_bytes_per_ns();
    }
    let reach = devices::reach(&kinds, &found);
    let pipelines = modifiers::standard(config.shard_bytes_min(), reach);
    let dispatcher = Dispatcher::new(DispatcherParts {
        listener,
        client,
        signals,
        links,
        pipelines,
        tape,
        log,
        limits: file.as_ref().map(reload::limits).unwrap_or_default(),
        arena_bytes_max: arena_bytes_max(config),
        reload: match (file, config.config.clone()) {
            (Some(file), Some(path)) => Some(Reload::new(path, arguments, file, volume)?),
            _ => None,
        },
        notifier: if config.private { Notifier::silent() } else { Notifier::new() },
        ledger: config.state().map(Ledger::new),
    })?;
    if config.private {
        // A long life must not keep a folder or a mount busy.
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
    let tcp = match (config.listen, &socket) {
        (Some(address), Some(socket)) => Some(listen_by_tcp(address, config.token_file.as_deref(), socket)?),
        _ => None,
    };
    if config.announce {
        announce(socket.as_deref(), tcp.as_ref())?;
    }
    dispatcher.run()?;
    Ok(())
}

/// Tells the client of a private daemon why there will be none.
fn refuse(client: Option<&Socket>, why: &str) {
    let Some(client) = client else { return };
    // The client has introduced itself before anything else; a socket closed with that unread is an error there.
    let told = gt_protocol::link::recv_hello(client, REFUSAL_DEADLINE).and_then(|_| {
        let refused = Refused::new(RefusalCode::Config, why);
        gt_protocol::link::send_daemon_message(client, &DaemonMessage::Refused(refused), &[], REFUSAL_DEADLINE)
    });
    if let Err(error) = told {
        tracing::debug!(target: "gtd::dispatcher", %error, "the client was not told");
    }
}

/// Serves clients that come by TCP, in threads; says where, and in which file the token is.
fn listen_by_tcp(
    address: SocketAddr,
    token_file: Option<&Path>,
    socket: &Path,
) -> Result<(SocketAddr, Option<PathBuf>), Box<dyn Error>> {
    let (token, file) = gt_bridge::token::daemon_token(token_file)?;
    let listener = gt_bridge::daemon_end::Listener::bind(address, token, socket)
        .map_err(|error| format!("cannot listen at {address}: {error}; choose another port with --listen"))?;
    let address = listener.address();
    if !address.ip().is_loopback() {
        tracing::warn!(
            target: "gtd::tcp", %address,
            "other machines can connect, and what travels, the token too, can be read on the way: use a tunnel instead"
        );
    }
    listener.start()?;
    tracing::info!(target: "gtd::tcp", %address, "listening");
    Ok((address, file))
}

/// Says how to connect.
fn announce(socket: Option<&Path>, tcp: Option<&(SocketAddr, Option<PathBuf>)>) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "gtd {} (pid {}) is ready", env!("CARGO_PKG_VERSION"), std::process::id())?;
    if let Some(path) = socket {
        writeln!(out, "  gt.connect({:?})", Address::Unix(path.to_owned()).to_string())?;
    }
    if let Some((address, token_file)) = tcp {
        let host = if address.ip().is_loopback() { "localhost".to_owned() } else { address.ip().to_string() };
        writeln!(out, "  gt.connect({:?})", Address::Tcp { host, port: address.port() }.to_string())?;
        match token_file {
            Some(file) => writeln!(out, "  the token for that is in {}", file.display())?,
            None => writeln!(out, "  the token for that is GT_TOKEN's")?,
        }
    }
    out.flush()
}

/// Prints what is installed beside the program.
fn describe(subprogram: &Subprogram) -> std::io::Result<()> {
    let mut text = Vec::new();
    match subprogram {
        Subprogram::Completions { shell } => clap_complete::generate(*shell, &mut Config::command(), "gtd", &mut text),
        _ => clap_mangen::Man::new(Config::command()).section("8").render(&mut text)?,
    }
    std::io::stdout().write_all(&text)
}

fn work(fd: RawFd) -> Result<(), Box<dyn Error>> {
    // Before anything else is opened.
    child::run(take_socket(fd)?)
}

/// SIGTERM and SIGINT as a descriptor, and SIGHUP, which to a private daemon means nothing of its own. Before any
/// thread starts, so that all of them inherit the mask.
fn take_signals(private: bool) -> nix::Result<SignalFd> {
    let reloads = (!private).then_some(Signal::SIGHUP);
    let signals = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT].into_iter().chain(reloads));
    signals.thread_block()?;
    SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
}

/// The socket that this process was started with, and nothing else of what the process that started it had open.
fn take_socket(fd: RawFd) -> Result<Socket, Box<dyn Error>> {
    // SAFETY: asks about a number.
    if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
        return Err(format!("descriptor {fd} is not open").into());
    }
    // SAFETY: it is open, and nothing in this process knows of it yet; if it is standard input, nothing here reads it.
    let given = unsafe { OwnedFd::from_raw_fd(fd) };
    let own = given.try_clone()?;
    if fd == 0 {
        // Standard input stays open, or the next descriptor would become it.
        let null = std::fs::File::open("/dev/null")?;
        nix::unistd::dup2_stdin(null)?;
        std::mem::forget(given);
    }
    let own_fd = own.as_raw_fd() as libc::c_uint;
    for (first, last) in [(3, own_fd.saturating_sub(1)), (own_fd + 1, libc::c_uint::MAX)] {
        if first <= last {
            // SAFETY: the process has just started: nothing but `own` and the standard three is in use, and those are
            // outside the range. What is closed here was inherited by accident and would be held open for nothing.
            unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        }
    }
    Ok(Socket::from(own))
}

/// Each session takes three descriptors: as many as may be.
fn raise_descriptor_limit() {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

/// What tensors leave of the machine's memory is for arenas, so that the two together always fit; where tensors may
/// take all of it, an eighth.
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
            // A device's worker reports how much memory it has, unless there is a limit.
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

/// Starts a worker's thread with a backend that has been opened.
struct StartThread {
    index: usize,
    info: WorkerInfo,
    inline_ns_max: u64,
    /// The memory of the worker's tensors, if workers in processes are to read it.
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
