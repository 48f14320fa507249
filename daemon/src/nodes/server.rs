//! The daemon's end of the nodes' connections.

use super::data_port::{self, DataPort};
use super::endpoint::DataSetup;
use super::life_port;
use super::link_speed::{MeasuredLink, measure};
use super::messages::{MachineRequest, NodeHello, NodeReply, OfferedWorker, ToDaemon, ToNode};
use super::registry::{Candidate, Registry};
use super::relay::{Relay, RelayPort};
use super::stand_in::{NodePlace, StandIn};
use gt_bridge::lasting_link::{LastingLink, LinkEnd, LinkOptions, LinkRole};
use gt_bridge::link_frame::{DATA_BYTES_MAX, LinkFrame, send_data, send_message};
use gt_bridge::machine_port::{MachineConnection, MachinePort};
use gt_bridge::tls::Certificate;
use gt_bridge::token::random_hex;
use gt_protocol::{InsecureNetwork, NodeInfo, NodeLink, NodeState, UcxStatus};
use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a node lasts without a connection.
pub const GRACE: Duration = Duration::from_secs(30);

/// A worker may be offered again so often in the time of [`GRACE`]: a node waits longer each time, and after a pause of
/// its connection all offers of that time come at once.
const OFFERED_AGAIN_MAX: usize = 16;

/// How long a daemon that ends waits until its nodes know.
const FAREWELL_PATIENCE: Duration = Duration::from_millis(500);

/// How long a node that joins may take for an answer while its link is measured.
const PONG_PATIENCE: Duration = Duration::from_secs(1);
/// The worker to which the bytes of a measurement go. No node has it, and each drops bytes for workers that it has not.
const NO_WORKER: u32 = u32::MAX;

/// The nodes of a daemon.
pub struct Nodes {
    registry: Registry,
    address: SocketAddr,
    fingerprint: String,
    /// The daemon's socket, at which stand-ins register.
    socket: Arc<Path>,
    data: Arc<DataPort>,
    relay: Arc<Relay>,
    /// The dispatcher's end of the relay, until the dispatcher takes it.
    relay_port: Mutex<Option<RelayPort>>,
    /// The nodes with a link, by name.
    joined: Mutex<HashMap<String, Arc<JoinedNode>>>,
}

struct JoinedNode {
    place: NodePlace,
    address: SocketAddr,
    fingerprint: gt_protocol::address::Fingerprint,
    link_name: String,
    offered: Vec<OfferedWorker>,
    state: Mutex<JoinedState>,
}

#[derive(Default)]
struct JoinedState {
    /// None until it has started.
    link: Option<LastingLink>,
    stand_ins: HashMap<u32, Arc<StandIn>>,
    /// The measured speed of the link; none before, and if the node has not answered.
    speed: Option<MeasuredLink>,
    /// Takes the numbers of answers while the link is measured.
    pongs: Option<Sender<u64>>,
    /// Where the node listens as long as it lives, if it can be reached there.
    life_port: Option<SocketAddr>,
    /// When workers were offered again, as far as that counts.
    offered_again: HashMap<u32, Vec<Instant>>,
}

impl JoinedState {
    /// Notes that one of a node's `workers` is offered again.
    ///
    /// # Errors
    /// There is no such worker, it has not ended, or it was offered too often.
    fn offer_again(&mut self, worker: u32, workers: usize) -> Result<(), String> {
        if worker as usize >= workers || self.stand_ins.contains_key(&worker) {
            return Err(format!("worker {worker} is offered again, and has not ended"));
        }
        let times = self.offered_again.entry(worker).or_default();
        times.retain(|at| at.elapsed() < GRACE);
        if times.len() >= OFFERED_AGAIN_MAX {
            return Err(format!(
                "worker {worker} was offered again {OFFERED_AGAIN_MAX} times in {} s",
                GRACE.as_secs()
            ));
        }
        times.push(Instant::now());
        Ok(())
    }
}

impl JoinedNode {
    fn lock(&self) -> MutexGuard<'_, JoinedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn link(&self) -> Option<LastingLink> {
        self.lock().link.clone()
    }

    /// Measures the link.
    fn measure(&self) {
        let Some(link) = self.link() else { return };
        let (pongs, answers) = channel();
        self.lock().pongs = Some(pongs);
        let zeros = vec![0; DATA_BYTES_MAX];
        let mut number = 0;
        let speed = measure(|bytes| {
            let begun = Instant::now();
            for start in (0..bytes).step_by(DATA_BYTES_MAX) {
                let burst = &zeros[..DATA_BYTES_MAX.min(bytes - start)];
                send_data(&link, NO_WORKER, (0, 0, start as u64), burst).ok()?;
            }
            number += 1;
            send_message(&link, &ToNode::Ping { number }).ok()?;
            // Other numbers answer nothing that was asked.
            while answers.recv_timeout(PONG_PATIENCE.saturating_sub(begun.elapsed())).ok()? != number {}
            Some(begun.elapsed())
        });
        if speed.is_none() {
            tracing::warn!(target: "gtd::nodes", "the link with node {} could not be measured", self.place.name);
        }
        let mut state = self.lock();
        (state.speed, state.pongs) = (speed, None);
    }

    fn is_up(&self) -> bool {
        self.link().is_some_and(|link| link.is_up())
    }
}

impl Nodes {
    /// Listens for nodes at `address`. The certificate and the list of nodes are in `folder`. Stand-ins register at the
    /// daemon's socket `socket`. Tensors travel unencrypted where `insecure_network`
    /// says.
    ///
    /// # Errors
    /// The address is in use, or a file cannot be used.
    pub fn listen(
        address: SocketAddr,
        folder: PathBuf,
        socket: &Path,
        insecure_network: InsecureNetwork,
    ) -> Result<Arc<Nodes>, String> {
        let own = Certificate::own(&folder).map_err(|error| error.to_string())?;
        let registry = Registry::open(&folder)?;
        let port = MachinePort::bind(address, &own)
            .map_err(|error| format!("cannot listen at {address} for nodes: {error}; choose another with --nodes"))?;
        let address = port.address();
        let daemon_host = if address.ip().is_unspecified() { "127.0.0.1".into() } else { address.ip().to_string() };
        let setup = DataSetup { folder, bind: address.ip(), daemon_host, insecure_network };
        data_port::set_up(setup.clone());
        let fingerprint = own.fingerprint().to_string();
        let data = DataPort::new(setup, own, address.port()).map_err(|error| error.to_string())?;
        data.publish();
        let (relay, relay_port) = Relay::start().map_err(|error| error.to_string())?;
        let (socket, relay_port, joined) = (socket.into(), Mutex::new(Some(relay_port)), Mutex::default());
        let nodes = Arc::new(Nodes { registry, address, fingerprint, socket, data, relay, relay_port, joined });
        let taking = nodes.clone();
        port.start(move |connection, request| match request {
            MachineRequest::Node(hello) => taking.take(connection, *hello),
            MachineRequest::Data(hello) => taking.data.take(connection, &hello),
        })
        .map_err(|error| error.to_string())?;
        tracing::info!(target: "gtd::nodes", %address, "listening for nodes, certificate {}", nodes.fingerprint);
        Ok(nodes)
    }

    /// The address at which nodes join.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<JoinedNode>>> {
        self.joined.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The dispatcher's end of the relay, at the first call.
    pub fn take_relay_port(&self) -> Option<RelayPort> {
        self.relay_port.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Makes an invitation. Returns the fingerprint of the daemon's certificate and the secret.
    ///
    /// # Errors
    /// There are too many invitations.
    pub fn invite(&self, lifetime: Duration, workers_max: Option<u32>) -> Result<(String, String), String> {
        Ok((self.fingerprint.clone(), self.registry.invite(lifetime, workers_max)?))
    }

    /// The nodes that have joined once, by name.
    pub fn list(&self) -> Vec<NodeInfo> {
        let joined = self.lock();
        let info = |known: super::registry::KnownNode| {
            let mut info = NodeInfo { name: known.name, joined_s: known.joined_s, ..NodeInfo::default() };
            let Some(node) = joined.get(&info.name) else { return info };
            let Some(link) = node.link() else { return info };
            let counts = link.counts();
            info.state = match (link.ended(), link.is_up()) {
                (Some(_), _) => NodeState::Away,
                (None, true) => NodeState::Up,
                (None, false) => NodeState::Unreachable,
            };
            info.address = Some(node.address.ip().to_string());
            info.workers = node.offered.len() as u32;
            if let Some(speed) = node.lock().speed {
                (info.latency_ns, info.bytes_per_s) = (speed.latency_ns, speed.bytes_per_s);
            }
            (info.sent_bytes, info.received_bytes, info.resumed) =
                (counts.sent_bytes, counts.received_bytes, counts.resumed);
            info
        };
        self.registry.nodes().into_iter().map(info).collect()
    }

    /// The measured speed of a node's link; none if there is no such node, or it was not measured.
    pub fn speed(&self, name: &str) -> Option<MeasuredLink> {
        let node = self.lock().get(name).cloned();
        node.and_then(|node| node.lock().speed)
    }

    /// The links between machines that the processes of their workers have measured, the slowest first.
    pub fn links(&self) -> Vec<NodeLink> {
        let mut links = self.data.measured_links();
        links.sort_by_key(|link| link.bytes_per_s);
        links
    }

    /// How often a link between machines was measured.
    pub fn measured(&self) -> u64 {
        self.data.measurements()
    }

    /// The speed between a machine and each of some others, where it was measured. The daemon's is called nothing.
    pub fn speeds_between(&self, machine: &str, others: &[String]) -> Vec<Option<MeasuredLink>> {
        let links = self.data.measured_links();
        let speed = |other: &String| {
            let is_it = |link: &&NodeLink| {
                link.from == machine && link.to == *other || link.from == *other && link.to == machine
            };
            let NodeLink { latency_ns, bytes_per_s, .. } = *links.iter().find(is_it)?;
            Some(MeasuredLink { latency_ns, bytes_per_s })
        };
        others.iter().map(speed).collect()
    }

    /// Where tensors travel unencrypted.
    pub fn insecure_network(&self) -> InsecureNetwork {
        self.data.insecure_network()
    }

    /// This machine's UCX, if tensors may travel by it.
    pub fn ucx(&self) -> Option<UcxStatus> {
        self.data.ucx_status()
    }

    /// Forgets a node, and ends its workers.
    ///
    /// # Errors
    /// There is no such node, or the file cannot be written.
    pub fn remove(&self, name: &str) -> Result<(), String> {
        self.registry.remove(name)?;
        self.data.forget_links_of(name);
        if let Some(link) = self.lock().remove(name).and_then(|node| node.link()) {
            link.end(LinkEnd::Refused("it was removed".into()));
        }
        Ok(())
    }

    /// Notes that the daemon ends: what leaves from now on is no news.
    pub fn begin_to_close(&self) {
        self.data.begin_to_close();
    }

    fn is_closing(&self) -> bool {
        self.data.is_closing()
    }

    /// Tells all nodes that the daemon ends.
    pub fn close(&self) {
        let links: Vec<LastingLink> = self.lock().drain().filter_map(|(_, node)| node.link()).collect();
        let deadline = Instant::now() + FAREWELL_PATIENCE;
        links.iter().for_each(|link| link.close(deadline.saturating_duration_since(Instant::now())));
    }

    /// Takes a connection of a node.
    fn take(self: &Arc<Self>, connection: MachineConnection, hello: NodeHello) {
        let refuse = |connection: &MachineConnection, why: String| {
            tracing::warn!(target: "gtd::nodes", address = %connection.address, "a node was refused: {why}");
            // The node may have gone, which is of no interest.
            let _ = connection.reply(&NodeReply::Refused { why });
        };
        let version = env!("CARGO_PKG_VERSION");
        if hello.version != version {
            let theirs = &hello.version;
            let why =
                format!("the node is version {theirs}, the daemon is {version}: install the same on both machines");
            return refuse(&connection, why);
        }
        if let Some(link) = &hello.link {
            let known = |node: &&Arc<JoinedNode>| node.link_name == *link && node.fingerprint == connection.peer;
            let node = self.lock().values().find(known).cloned();
            return match node {
                Some(node) => self.resume(&node, connection, hello.received),
                None => refuse(&connection, GIVEN_UP.into()),
            };
        }
        let candidate = Candidate {
            fingerprint: connection.peer,
            secret: &hello.secret,
            name: hello.name.as_deref(),
            host: &hello.host,
            workers: hello.workers.len(),
        };
        let name = match self.registry.admit(&candidate) {
            Ok(name) => name,
            Err(why) => return refuse(&connection, why),
        };
        let Ok(link_name) = random_hex() else { return refuse(&connection, "the daemon has no random numbers".into()) };
        let node = Arc::new(JoinedNode {
            place: NodePlace { name: name.clone(), host: connection.address.ip().to_string() },
            address: connection.address,
            fingerprint: connection.peer,
            link_name: link_name.clone(),
            offered: hello.workers,
            state: Mutex::default(),
        });
        {
            let mut joined = self.lock();
            if let Some(former) = joined.get(&name) {
                if former.is_up() {
                    let address = former.address.ip();
                    let why = format!(
                        "node {name} has joined already, from {address}: end that one first, or start this one with \
                         another --state"
                    );
                    drop(joined);
                    return refuse(&connection, why);
                }
                if let Some(link) = former.link() {
                    link.end(LinkEnd::Lost("the node was started again".into()));
                }
            }
            joined.insert(name.clone(), node.clone());
        }
        let insecure_network = self.data.insecure_network();
        let welcome = NodeReply::Welcome { link: link_name, name: name.clone(), received: 0, insecure_network };
        if connection.reply(&welcome).is_err() {
            self.lock().remove(&name);
            return;
        }
        if let Err(error) = self.begin(&node, connection) {
            tracing::error!(target: "gtd::nodes", node = name, %error, "the node could not be taken in");
        }
    }

    fn resume(&self, node: &JoinedNode, connection: MachineConnection, received: u64) {
        let (link, name) = (node.link_name.clone(), node.place.name.clone());
        let insecure_network = self.data.insecure_network();
        let reply = |connection: &mut MachineConnection, received| {
            let (link, name) = (link.clone(), name.clone());
            connection.reply(&NodeReply::Welcome { link, name, received, insecure_network })
        };
        let refused = |why: &str| NodeReply::Refused { why: why.into() };
        let Some(lasting) = node.link() else { return };
        if lasting.ended().is_some() {
            // The node may have gone, which is of no interest.
            let _ = connection.reply(&refused(GIVEN_UP));
            return;
        }
        if let Err(end) = lasting.attach(connection, received, reply) {
            tracing::info!(target: "gtd::nodes", node = name, "a connection was not taken: {end}");
        }
    }

    fn begin(self: &Arc<Self>, node: &Arc<JoinedNode>, connection: MachineConnection) -> std::io::Result<()> {
        let name = node.place.name.clone();
        let options = LinkOptions { name: format!("node {name}"), grace: GRACE };
        let (taking, ending, nodes, ended_nodes) = (node.clone(), node.clone(), self.clone(), self.clone());
        let probed = node.clone();
        let probe = move || {
            let address = probed.lock().life_port?;
            life_port::has_ended(address).then(|| "its process has ended".into())
        };
        // The lock is held until the node has its link, which its first frame needs.
        let mut state = node.lock();
        let link = LastingLink::start(
            options,
            LinkRole::Awaits(Box::new(probe)),
            Some(connection),
            move |frame: &mut Vec<u8>| nodes.frame(&taking, frame),
            move |end| {
                let name = &ending.place.name;
                match end {
                    end if ended_nodes.is_closing() => tracing::debug!(target: "gtd::nodes", "node {name}: {end}"),
                    LinkEnd::ClosedThere => tracing::info!(target: "gtd::nodes", "node {name} has left"),
                    end => tracing::warn!(target: "gtd::nodes", "node {name} is lost, and what only it held: {end}"),
                }
                let stand_ins: Vec<_> = ending.lock().stand_ins.drain().collect();
                stand_ins.iter().for_each(|(_, stand_in)| stand_in.end());
            },
        )?;
        state.link = Some(link);
        drop(state);
        node.measure();
        for number in 0..node.offered.len() {
            // One after another, so that their numbers are in the node's order. The dispatcher, which numbers them,
            // takes the lock as well.
            if let Some(registered) = self.stand_in(node, number as u32)? {
                // It disconnects, and never says anything.
                let _ = registered.recv();
            }
        }
        tracing::info!(target: "gtd::nodes", address = %node.address, "node {name} has joined with {} workers", node.offered.len());
        Ok(())
    }

    /// Registers a worker of a node. Returns what disconnects when it has its number.
    fn stand_in(&self, node: &JoinedNode, worker: u32) -> std::io::Result<Option<Receiver<Infallible>>> {
        let (Some(link), Some(offered)) = (node.link(), node.offered.get(worker as usize)) else { return Ok(None) };
        let stand_in = StandIn::new(link, worker, self.relay.clone());
        if let Some(former) = node.lock().stand_ins.insert(worker, stand_in.clone()) {
            former.end();
        }
        stand_in.start(node.place.clone(), offered.clone(), self.socket.clone()).map(Some)
    }

    /// Takes a frame of a node.
    fn frame(&self, node: &Arc<JoinedNode>, frame: &[u8]) -> Result<(), String> {
        let stand_in = |worker: u32| node.lock().stand_ins.get(&worker).cloned();
        match LinkFrame::decode(frame)? {
            LinkFrame::Slots { worker, slots } => stand_in(worker).map_or(Ok(()), |stand_in| stand_in.report(&slots)),
            LinkFrame::SharedSlots(_) => Err("slots for several workers come from the daemon alone".into()),
            LinkFrame::Data { worker, session, arena, offset, bytes } => {
                stand_in(worker).map_or(Ok(()), |stand_in| stand_in.data((session, arena, offset), bytes))
            }
            LinkFrame::Message(text) => {
                match serde_json::from_slice(text).map_err(|error| error.to_string())? {
                    ToDaemon::LifePort { port } => {
                        let (node, address) = (node.clone(), SocketAddr::new(node.address.ip(), port));
                        // If it cannot be reached now, a connection that is refused later says nothing.
                        let look = move || {
                            if life_port::is_open(address) {
                                node.lock().life_port = Some(address);
                            }
                        };
                        let looking = std::thread::Builder::new().name("gt-life".into()).spawn(look);
                        drop(looking.map_err(|error| error.to_string())?);
                    }
                    ToDaemon::Ready { worker, ready } => {
                        if let Some(stand_in) = stand_in(worker) {
                            stand_in.ready(ready);
                        }
                    }
                    ToDaemon::Ended { worker, why } => {
                        let name = &node.place.name;
                        if !self.is_closing() {
                            tracing::warn!(target: "gtd::nodes", "worker {worker} of node {name} {why}; what it held is lost");
                        }
                        let ended = node.lock().stand_ins.remove(&worker);
                        if let Some(stand_in) = ended {
                            stand_in.ended(why);
                        }
                    }
                    ToDaemon::Pong { number } => {
                        if let Some(pongs) = &node.lock().pongs {
                            // The measurement may have ended.
                            let _ = pongs.send(number);
                        }
                    }
                    ToDaemon::Measured { mut link } => {
                        // A node speaks for itself alone.
                        link.from = node.place.name.clone();
                        let knows = link.to.is_empty() || self.lock().contains_key(&link.to);
                        if knows {
                            self.data.note(link);
                        }
                    }
                    ToDaemon::Again { worker } => {
                        node.lock().offer_again(worker, node.offered.len())?;
                        // Nobody waits until it is registered.
                        drop(self.stand_in(node, worker).map_err(|error| error.to_string())?);
                    }
                }
                Ok(())
            }
        }
    }
}

/// The reason for a node whose link has ended.
const GIVEN_UP: &str = "the daemon has given this node up, has removed it, or was started again: what its workers held \
                        is lost; start the node again";
