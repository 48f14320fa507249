//! The program `gtd node`: joins a daemon on another machine, and runs this machine's workers for it.

use super::data_port;
use super::endpoint::{DataSetup, NetworkRank};
use super::hosted_worker::{HostCommand, HostedStart, HostedWorker};
use super::life_port;
use super::messages::{MachineRequest, NodeHello, NodeReply, OfferedWorker, ToDaemon, ToNode};
use super::server::GRACE;
use crate::devices;
use crate::worker::process::rank_messages::messages_for;
use crate::worker::rank_assignment::{LocalRank, RankAssignment};
use gt_backend::Site;
use gt_bridge::handshake::ConnectError;
use gt_bridge::lasting_link::{DialFailure, LastingLink, LinkEnd, LinkOptions, LinkRole};
use gt_bridge::link_frame::{LinkFrame, read_shared_slots, send_message};
use gt_bridge::machine_port::{MachineConnection, dial};
use gt_bridge::tls::Certificate;
use gt_bridge::token::user_file;
use gt_collectives::CollectiveError;
use gt_config::WorkerKind;
use gt_cpu::CpuOptions;
use gt_ops::Workers;
use gt_protocol::address::Fingerprint;
use gt_shm::Slot;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::collections::{HashMap, VecDeque};
use std::error::Error;
use std::fmt;
use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long a node that leaves waits until the daemon knows.
const FAREWELL_PATIENCE: Duration = Duration::from_secs(2);
/// The most groups of this node's workers that are being formed. One whose workers were lost meanwhile stays until it
/// is the oldest.
const FORMING_MAX: usize = 16;
/// The folder of a node's certificate beside the user's token.
const FOLDER: &str = "node";

/// The line that `gtctl invite` prints: `HOST:PORT:FINGERPRINT:SECRET`.
#[derive(Clone, PartialEq, Eq)]
pub struct JoinLine {
    host: String,
    port: u16,
    fingerprint: Fingerprint,
    secret: String,
}

// `Debug` does not show the secret, which must not get into a log.
impl fmt::Debug for JoinLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JoinLine({}:{})", self.host, self.port)
    }
}

impl FromStr for JoinLine {
    type Err = String;

    fn from_str(text: &str) -> Result<JoinLine, String> {
        let parse = || {
            let (rest, secret) = text.rsplit_once(':')?;
            let (rest, fingerprint) = rest.rsplit_once(':')?;
            let (host, port) = rest.rsplit_once(':')?;
            let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
            let fingerprint = format!("sha256:{fingerprint}").parse().ok()?;
            let (host, secret) = (host.to_owned(), secret.to_owned());
            let complete = !host.is_empty() && !secret.is_empty();
            complete.then_some(JoinLine { host, port: port.parse().ok()?, fingerprint, secret })
        };
        parse().ok_or_else(|| {
            "this is no invitation: paste the line that gtctl invite prints on the daemon's machine, \
             HOST:PORT:FINGERPRINT:SECRET"
                .to_owned()
        })
    }
}

/// The settings of `gtd node`.
#[derive(Debug)]
pub struct NodeOptions {
    /// The invitation.
    pub join: JoinLine,
    /// The workers; none for one on each device.
    pub workers: Option<Vec<WorkerKind>>,
    /// Compute threads of all workers together.
    pub threads: Option<u32>,
    /// The memory of all tensors, bytes.
    pub memory_bytes_limit: Option<u64>,
    /// The name that the node wants.
    pub name: Option<String>,
    /// The folder of the node's certificate.
    pub state: Option<PathBuf>,
}

/// The end of the program.
enum AgentEnd {
    Signal,
    Link(LinkEnd),
}

/// Joins the daemon and runs workers until it, or this node, ends.
///
/// # Errors
/// The node cannot join, or the link has ended.
pub fn run(options: &NodeOptions) -> Result<(), Box<dyn Error>> {
    let signals = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT]);
    // All threads inherit the mask, so it is set before any starts.
    signals.thread_block()?;
    let signals = SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC)?;
    let beside_token = || user_file().and_then(|file| file.parent().map(|folder| folder.join(FOLDER)));
    let given = || std::env::var_os("STATE_DIRECTORY").map(PathBuf::from);
    let folder = options.state.clone().or_else(given).or_else(beside_token);
    let folder = folder.ok_or("there is no folder for this node's certificate: name one with --state, or set HOME")?;
    let own = Certificate::own(&folder)?;
    let survey = |backend| devices::survey("/proc/self/exe", backend);
    let kinds = devices::resolve(options.workers.as_deref(), 0, |discovery| (discovery.is_there)(), survey)?;
    let offered = offer(options, &kinds);
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let join = &options.join;
    let hello = NodeHello {
        version: env!("CARGO_PKG_VERSION").into(),
        link: None,
        received: 0,
        secret: join.secret.clone(),
        name: options.name.clone(),
        host,
        workers: offered.clone(),
    };
    let (connection, reply) = reach(join, &own, &hello).map_err(|error| explain(join, &error))?;
    let (link_name, name, insecure_network) = match reply {
        NodeReply::Welcome { link, name, insecure_network, .. } => (link, name, insecure_network),
        NodeReply::Refused { why } => return Err(format!("the daemon at {}:{}: {why}", join.host, join.port).into()),
    };
    let own_ip = connection.own_address.ip();
    data_port::set_up(DataSetup {
        folder,
        bind: own_ip,
        daemon_host: connection.address.ip().to_string(),
        insecure_network,
    });
    let redial = {
        let (join, own, link) = (join.clone(), own.clone(), link_name.clone());
        let hello = NodeHello { link: Some(link), workers: Vec::new(), ..hello };
        move |received| resume(&join, &own, &NodeHello { received, ..hello.clone() })
    };
    let (ends, ended) = channel();
    let agent = Arc::new(Agent::default());
    let (taking, link_end) = (agent.clone(), ends.clone());
    let link_options = LinkOptions { name: format!("the daemon at {}:{}", join.host, join.port), grace: GRACE };
    let link = LastingLink::start(
        link_options,
        LinkRole::Dials(Box::new(redial)),
        Some(connection),
        move |frame: &mut Vec<u8>| taking.frame(frame),
        // The program may have ended.
        move |end| drop(link_end.send(AgentEnd::Link(end))),
    )?;
    agent.begin(link.clone());
    match life_port::open(own_ip) {
        // The link has just begun; if it has ended, the agent does as well.
        Ok(port) => drop(send_message(&link, &ToDaemon::LifePort { port })),
        Err(error) => tracing::warn!(target: "gtd::nodes", "the daemon learns late if this node dies: {error}"),
    }
    watch(signals, ends)?;
    let workers: Vec<_> = offered.iter().map(|worker| format!("{name}/{}", worker.name)).collect();
    let warning = insecure_network.warning();
    // The node works even if its standard output is closed.
    let _ = writeln!(
        std::io::stdout(),
        "joined the daemon at {}:{} as node {name} with workers {}{}{warning}; Ctrl-C leaves",
        join.host,
        join.port,
        workers.join(", "),
        if warning.is_empty() { "" } else { "; " },
    );
    match ended.recv()? {
        AgentEnd::Signal => {
            link.close(FAREWELL_PATIENCE);
            let _ = writeln!(std::io::stdout(), "left the daemon at {}:{}", join.host, join.port);
            Ok(())
        }
        AgentEnd::Link(LinkEnd::ClosedThere) => Err("the daemon has ended".into()),
        AgentEnd::Link(end) => Err(format!("the daemon at {}:{}: {end}", join.host, join.port).into()),
    }
}

/// The workers on these devices.
fn offer(options: &NodeOptions, kinds: &[WorkerKind]) -> Vec<OfferedWorker> {
    let defaults = CpuOptions::default();
    let threads = (options.threads.map_or(defaults.threads, |threads| threads as usize) / kinds.len().max(1)).max(1);
    let memory = options.memory_bytes_limit.unwrap_or(defaults.memory_bytes_limit as u64) / kinds.len().max(1) as u64;
    let offered = |(index, kind): (usize, &WorkerKind)| {
        let on_host = kind.backend.site == Site::Host;
        OfferedWorker {
            name: devices::worker_name(*kind, index),
            device: kind.to_string(),
            threads: if on_host { threads as u32 } else { 1 },
            memory_bytes_limit: if on_host || options.memory_bytes_limit.is_some() { memory } else { 0 },
        }
    };
    kinds.iter().enumerate().map(offered).collect()
}

fn reach(
    join: &JoinLine,
    own: &Certificate,
    hello: &NodeHello,
) -> Result<(MachineConnection, NodeReply), ConnectError> {
    let request = MachineRequest::Node(Box::new(hello.clone()));
    dial((&join.host, join.port), join.fingerprint, own, &request)
}

/// The error of a node that cannot reach its daemon, for its user.
fn explain(join: &JoinLine, error: &ConnectError) -> String {
    let at = format!("{}:{}", join.host, join.port);
    match error {
        ConnectError::Connect { source, .. } => match source.kind() {
            ErrorKind::ConnectionRefused => {
                format!("nobody listens at {at}: start the daemon there with --nodes {}", join.port)
            }
            ErrorKind::TimedOut => format!(
                "{at} does not answer: is the machine up, and does a firewall let connections to port {} through?",
                join.port
            ),
            _ => format!("{at} cannot be reached: {source}; is the host's name right?"),
        },
        ConnectError::WrongCertificate { .. } => format!(
            "the daemon at {at} has another certificate than the invitation says: make a new invitation there with gtctl \
             invite; if that does not help, another machine may be answering in its place"
        ),
        error => error.to_string(),
    }
}

/// Dials again for a link whose connection has broken.
fn resume(join: &JoinLine, own: &Certificate, hello: &NodeHello) -> Result<(MachineConnection, u64), DialFailure> {
    match reach(join, own, hello) {
        Ok((connection, NodeReply::Welcome { received, .. })) => Ok((connection, received)),
        Ok((_, NodeReply::Refused { why })) => Err(DialFailure::Final(LinkEnd::Refused(why))),
        Err(error @ ConnectError::WrongCertificate { .. }) => {
            Err(DialFailure::Final(LinkEnd::Refused(explain(join, &error))))
        }
        Err(error) => Err(DialFailure::Retry(explain(join, &error))),
    }
}

/// Ends the program at a signal.
fn watch(signals: SignalFd, ends: Sender<AgentEnd>) -> std::io::Result<()> {
    let wait = move || {
        if signals.read_signal().is_ok() {
            // The program may have ended.
            let _ = ends.send(AgentEnd::Signal);
        }
    };
    std::thread::Builder::new().name("gt-signals".into()).spawn(wait).map(drop)
}

/// The workers of this node, by number.
#[derive(Default)]
struct Agent {
    state: Mutex<AgentState>,
    begun: std::sync::Condvar,
}

#[derive(Default)]
struct AgentState {
    link: Option<LastingLink>,
    workers: HashMap<u32, HostedWorker>,
    /// The number of each worker's process.
    lives: HashMap<u32, u64>,
    ends: HashMap<u32, Arc<Mutex<u32>>>,
    /// Groups of which some workers of this node do not know yet.
    forming: VecDeque<FormingGroup>,
}

/// The ranks of this node's workers in a group, as long as not all were assigned.
struct FormingGroup {
    /// The group's number.
    group: u64,
    /// By the rank in the whole group.
    ranks: HashMap<usize, LocalRank>,
}

impl AgentState {
    /// Gives each worker its steps of a frame for several.
    fn share(&self, frame: &[u8]) -> Result<(), String> {
        let mut shares: HashMap<u32, Vec<Slot>> = HashMap::new();
        read_shared_slots(frame, |workers, slot| {
            let workers = Workers::from_words(workers).iter().map(|worker| worker as u32);
            workers.for_each(|worker| shares.entry(worker).or_default().push(slot));
        })?;
        for (worker, slots) in shares {
            if let Some(hosted) = self.workers.get(&worker) {
                hosted.command(HostCommand::Slots(slots));
            }
        }
        Ok(())
    }

    /// Tells a worker its rank in a group, and its rank among those of this node if they are several.
    fn assign(&mut self, worker: u32, network: NetworkRank) {
        let (group, rank) = (network.group, network.rank);
        let near = self.near_rank(&network).unwrap_or_else(|error| {
            tracing::error!(target: "gtd::nodes", group, rank, %error, "a group of this node's workers was not made");
            None
        });
        let Some(hosted) = self.workers.get(&worker) else { return };
        match messages_for(RankAssignment::Network(network, near)) {
            Ok(messages) => {
                messages.into_iter().for_each(|(message, fd)| hosted.command(HostCommand::Letter(message, fd)))
            }
            Err(error) => tracing::error!(target: "gtd::nodes", group, rank, error, "a rank was not assigned"),
        }
    }

    /// The rank among those of this node; none if it is alone here. The first that is asked for makes all.
    fn near_rank(&mut self, network: &NetworkRank) -> Result<Option<LocalRank>, CollectiveError> {
        let near = network.near();
        if near.is_empty() {
            return Ok(None);
        }
        if !self.forming.iter().any(|forming| forming.group == network.group) {
            let memory = |rank: &usize| {
                let process = &network.endpoints[*rank].process;
                self.workers.values().find_map(|worker| worker.memory_of(process))
            };
            let memories: Option<Vec<_>> = near.iter().map(memory).collect();
            // The processes have descriptors of the group's memory, and notice by themselves that one has ended.
            let (ranks, _) = LocalRank::shared(near.len(), &memories.unwrap_or_default())?;
            if self.forming.len() == FORMING_MAX {
                self.forming.pop_front();
            }
            let ranks = near.into_iter().zip(ranks).collect();
            self.forming.push_back(FormingGroup { group: network.group, ranks });
        }
        let forming = self.forming.iter_mut().find(|forming| forming.group == network.group);
        let near = forming.and_then(|forming| forming.ranks.remove(&network.rank));
        self.forming.retain(|forming| !forming.ranks.is_empty());
        Ok(near)
    }
}

impl Agent {
    fn begin(&self, link: LastingLink) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).link = Some(link);
        self.begun.notify_all();
    }

    /// Takes a frame of the daemon.
    fn frame(&self, frame: &[u8]) -> Result<(), String> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.begun.wait_while(state, |state| state.link.is_none());
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        match LinkFrame::decode(frame)? {
            LinkFrame::Slots { worker, slots } => {
                if let Some(hosted) = state.workers.get(&worker) {
                    hosted.command(HostCommand::Slots(slots));
                }
                Ok(())
            }
            LinkFrame::SharedSlots(bytes) => state.share(bytes),
            LinkFrame::Data { worker, session, arena, offset, bytes } => {
                state.workers.get(&worker).map_or(Ok(()), |hosted| hosted.data((session, arena, offset), bytes))
            }
            LinkFrame::Message(text) => {
                let message: ToNode = serde_json::from_slice(text).map_err(|error| error.to_string())?;
                match message {
                    ToNode::Start { worker, life, info, device, number } => {
                        let Some(link) = state.link.clone() else { return Ok(()) };
                        let ends = state.ends.entry(worker).or_default().clone();
                        let start = HostedStart { worker, info: *info, device, number, ends };
                        let hosted = HostedWorker::start(link, start).map_err(|error| error.to_string())?;
                        state.lives.insert(worker, life);
                        if let Some(former) = state.workers.insert(worker, hosted) {
                            former.command(HostCommand::End);
                        }
                    }
                    ToNode::Arena { worker, session, number, bytes } => {
                        if let Some(hosted) = state.workers.get(&worker) {
                            hosted.add_arena(session, number, bytes)?;
                        }
                    }
                    ToNode::Outdated { worker, session, number, ended } => {
                        if let Some(hosted) = state.workers.get(&worker) {
                            hosted.forget_arena(session, number, ended);
                        }
                    }
                    ToNode::Rank { worker, rank } => state.assign(worker, *rank),
                    ToNode::Cancel { worker, session, below } => {
                        if let Some(hosted) = state.workers.get(&worker) {
                            hosted.command(HostCommand::Cancel(session, below));
                        }
                    }
                    ToNode::Ping { number } => {
                        if let Some(link) = &state.link {
                            // A link that has ended ends the program.
                            let _ = send_message(link, &ToDaemon::Pong { number });
                        }
                    }
                    ToNode::End { worker, life } => {
                        if state.lives.get(&worker) == Some(&life)
                            && let Some(hosted) = state.workers.remove(&worker)
                        {
                            hosted.command(HostCommand::End);
                        }
                    }
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invitation_is_host_port_fingerprint_and_secret() {
        let digits = "5f".repeat(32);
        let join: JoinLine = format!("box.example.org:12346:{digits}:secret").parse().unwrap();
        assert_eq!((join.host.as_str(), join.port, join.secret.as_str()), ("box.example.org", 12346, "secret"));
        assert_eq!(join.fingerprint, Fingerprint([0x5f; 32]));
        let join: JoinLine = format!("[fe80::1]:1:{digits}:s").parse().unwrap();
        assert_eq!((join.host.as_str(), join.port), ("fe80::1", 1));
        for text in ["", "box", "box:1", &format!("box:1:{digits}"), &format!("box:x:{digits}:s"), "box:1:5f:s"] {
            let told = text.parse::<JoinLine>().unwrap_err();
            assert!(told.starts_with("this is no invitation: paste the line that gtctl invite prints"), "{told}");
        }
        assert!(!format!("{join:?}").contains(&digits));
    }
}
