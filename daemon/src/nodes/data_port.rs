//! The connections between processes of workers on several machines, and the communicators over them.
//!
//! A process has one port, at which other processes reach it, and one [`LastingLink`] with each process that shares a
//! group with it: of the two, the one with the lower name dials. A link's frame is a piece of a stream of one rank to
//! another, or a [`GroupNotice`]; it names the group by a number that only its members know. Both processes show their
//! certificates, whose fingerprints the daemon has told each of them.

use super::data_path::{DataPath, HEADER_BYTES, NOTICE, PathChoice, digits_of};
use super::endpoint::{DataHello, DataReply, DataSetup, Endpoint, NetworkRank, UcxOffer};
use super::life_port;
use super::link_speed::MeasuredLink;
use super::messages::MachineRequest;
use gt_bridge::handshake::ConnectError;
use gt_bridge::lasting_link::{
    DialFailure, FrameTaker, LastingLink, LentRange, LentSource, LinkEnd, LinkOptions, LinkRole,
};
use gt_bridge::machine_port::{MachineConnection, MachinePort, dial};
use gt_bridge::tls::Certificate;
use gt_bridge::token::random_hex;
use gt_collectives::network::{GroupNotice, Mailbox, NetworkCommunicator, RankStream, RankTransport};
use gt_collectives::ucx::{Transports, UcxPort};
use gt_collectives::{CollectiveError, Communicator};
use gt_protocol::address::Fingerprint;
use gt_protocol::limits::LINK_REASON_BYTES_MAX;
use gt_protocol::{InsecureNetwork, LinkTransport, NodeLink, UcxStatus};
use gt_shm::Spin;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

/// How long a link between processes lasts without a connection.
pub const GRACE: Duration = Duration::from_secs(30);
/// How long a process that dials waits until it is known here.
const KNOWN_DEADLINE: Duration = Duration::from_secs(5);
/// The most ranks of groups that this process does not know yet, for which bytes have come.
const EARLY_MAX: usize = 256;
/// The most bytes that are read at one time where the rank has not said where they belong.
const EARLY_PIECE_BYTES_MAX: usize = 64 << 10;
/// The ranks that a process remembers to have left.
const LEFT_MAX: usize = 1024;
/// The longest that a rank looks for bytes before it sleeps, and how often in vain before that gets shorter.
const LOOK_MAX: Duration = Duration::from_micros(100);
const LOOKS_IN_VAIN: u32 = 4;
/// The folder in which the kernel lists RDMA devices.
const RDMA_DEVICES: &str = "/sys/class/infiniband";

/// The port of a process.
pub struct DataPort {
    own: Certificate,
    setup: DataSetup,
    endpoint: Endpoint,
    state: Mutex<PortState>,
    changed: Condvar,
    /// Whether this process ends, so that links that end are no news.
    closing: AtomicBool,
    /// The port for UCX, or why there is none, if it is wanted.
    ucx: Option<Result<Arc<UcxPort>, String>>,
    /// The links with other machines that were measured: in the daemon's process those of all machines, in others those
    /// that are still to be reported.
    measured: Mutex<BTreeMap<(String, String), NodeLink>>,
    measurements: AtomicU64,
}

#[derive(Default)]
struct PortState {
    /// By the process's name.
    peers: HashMap<String, Peer>,
    /// By group and rank.
    mailboxes: HashMap<(u64, usize), Member>,
    /// The groups and ranks that this process has left last: what still comes for them is dropped.
    left: VecDeque<(u64, usize)>,
}

struct Peer {
    link: LastingLink,
    path: Arc<DataPath>,
    /// The link's name; none until the other process has dialled.
    name: Option<String>,
    fingerprint: Fingerprint,
    endpoint: Endpoint,
}

#[derive(Default)]
struct Member {
    mailbox: Arc<Mailbox>,
    /// The processes of all ranks; none before this process joins the group.
    processes: Vec<String>,
}

/// A number of a group, which nobody guesses.
///
/// # Errors
/// The system has no random numbers.
pub fn random_number() -> std::io::Result<u64> {
    random_hex().map(|digits| u64::from_str_radix(&digits[..16], 16).unwrap_or_default())
}

/// The setup of this process's workers, if the program has nodes.
static SETUP: OnceLock<DataSetup> = OnceLock::new();
/// The port of this process.
static PORT: OnceLock<Arc<DataPort>> = OnceLock::new();

/// Sets how the processes that this one starts make their ports.
pub fn set_up(setup: DataSetup) {
    SETUP.get_or_init(|| setup);
}

/// How the processes that this one starts make their ports; none without nodes.
pub fn setup() -> Option<DataSetup> {
    SETUP.get().cloned()
}

/// The port of this process; none without nodes.
pub fn of_this_process() -> Option<&'static Arc<DataPort>> {
    PORT.get()
}

impl DataPort {
    /// Makes the port of this process, which listens at an address of its own.
    ///
    /// # Errors
    /// The certificate cannot be read, or the address cannot be listened at.
    pub fn open(setup: DataSetup) -> Result<Arc<DataPort>, String> {
        let own = Certificate::own(&setup.folder).map_err(|error| error.to_string())?;
        let failed = |error| format!("cannot listen at {} for other workers: {error}", setup.bind);
        let port = MachinePort::bind(SocketAddr::new(setup.bind, 0), &own).map_err(failed)?;
        let data = DataPort::new(setup.clone(), own, port.address().port()).map_err(failed)?;
        let taking = data.clone();
        let start = port.start(move |connection, request| {
            if let MachineRequest::Data(hello) = request {
                taking.take(connection, &hello);
            }
        });
        start.map_err(failed)?;
        Ok(data)
    }

    /// A port whose connections come to `port`, at which somebody else listens.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn new(setup: DataSetup, own: Certificate, port: u16) -> std::io::Result<Arc<DataPort>> {
        let endpoint = Endpoint {
            machine: String::new(),
            process: random_hex()?,
            fingerprint: own.fingerprint().to_string(),
            host: None,
            port,
        };
        let (state, changed, closing) = (Mutex::default(), Condvar::new(), AtomicBool::new(false));
        let ucx = open_ucx(setup.insecure_network).map(|opened| opened.map(Arc::new));
        if let Some(Err(why)) = &ucx {
            let how = if setup.insecure_network.is_plain_tcp() { "unencrypted" } else { "encrypted" };
            tracing::warn!(target: "gtd::nodes", "tensors do not travel by UCX from here, but {how} by TCP: {why}");
        }
        let (measured, measurements) = (Mutex::default(), AtomicU64::new(0));
        Ok(Arc::new(DataPort { own, setup, endpoint, state, changed, closing, ucx, measured, measurements }))
    }

    /// Makes this the port of the process.
    pub fn publish(self: &Arc<Self>) {
        PORT.get_or_init(|| self.clone());
    }

    /// Notes that this process ends: links that end from now on are no news.
    pub fn begin_to_close(&self) {
        self.closing.store(true, Relaxed);
    }

    /// Whether this process ends.
    pub fn is_closing(&self) -> bool {
        self.closing.load(Relaxed)
    }

    /// Where tensors travel unencrypted.
    pub fn insecure_network(&self) -> InsecureNetwork {
        self.setup.insecure_network
    }

    /// The UCX of this process, if it is wanted.
    pub fn ucx_status(&self) -> Option<UcxStatus> {
        let why_not = self.ucx.as_ref()?.as_ref().err().cloned();
        let library = UcxPort::library().map(|(version, path)| format!("{version}, {path}")).unwrap_or_default();
        Some(UcxStatus { library, why_not })
    }

    fn lock_measured(&self) -> MutexGuard<'_, BTreeMap<(String, String), NodeLink>> {
        self.measured.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a link that was measured.
    pub fn note(&self, mut link: NodeLink) {
        if let Some(reason) = &mut link.reason {
            let end = (0..=LINK_REASON_BYTES_MAX).rev().find(|end| reason.is_char_boundary(*end));
            reason.truncate(end.unwrap_or(0));
        }
        let ends = [&link.from, &link.to];
        let key =
            (ends.into_iter().min().cloned().unwrap_or_default(), ends.into_iter().max().cloned().unwrap_or_default());
        self.lock_measured().insert(key, link);
        self.measurements.fetch_add(1, Relaxed);
    }

    /// The links that were measured.
    pub fn measured_links(&self) -> Vec<NodeLink> {
        self.lock_measured().values().cloned().collect()
    }

    /// How often a link was noted.
    pub fn measurements(&self) -> u64 {
        self.measurements.load(Relaxed)
    }

    /// Takes one of the links that were measured, to report it.
    pub fn take_measured(&self) -> Option<NodeLink> {
        self.lock_measured().pop_first().map(|(_, link)| link)
    }

    /// Forgets the links of a machine.
    pub fn forget_links_of(&self, machine: &str) {
        self.lock_measured().retain(|(one, other), _| one != machine && other != machine);
    }

    /// Measures the links with other machines that no process of this one has measured in this group, if this is the
    /// first rank of its machine: of two processes, the one that dials.
    fn measure_links(&self, rank: &NetworkRank, peers: &[(usize, Arc<DataPath>)]) {
        let machines = rank.machines();
        let is_first = |rank: usize| machines.iter().position(|machine| *machine == machines[rank]) == Some(rank);
        if !is_first(rank.rank) {
            return;
        }
        let from = machines[rank.rank];
        for (peer, path) in peers {
            let dials = self.endpoint.process < rank.endpoints[*peer].process;
            if machines[*peer] == from || !is_first(*peer) || !dials {
                continue;
            }
            let Some(MeasuredLink { latency_ns, bytes_per_s }) = path.measure() else { continue };
            let (transport, reason) = match path.way() {
                PathChoice::Ucx(_) => (LinkTransport::Ucx, None),
                PathChoice::Link(why) => {
                    let failed = self.ucx.as_ref().and_then(|port| port.as_ref().err()).cloned();
                    let plain = self.setup.insecure_network.is_plain_tcp();
                    (if plain { LinkTransport::Tcp } else { LinkTransport::Tls }, why.or(failed))
                }
            };
            let (from, to) = (from.to_owned(), machines[*peer].to_owned());
            self.note(NodeLink { from, to, transport, reason, latency_ns, bytes_per_s });
        }
    }

    /// Where this process can be reached, as it knows it.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    fn lock(&self) -> MutexGuard<'_, PortState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins a group, and waits until all ranks have.
    ///
    /// # Errors
    /// The group broke before.
    pub fn join(
        self: &Arc<Self>,
        assigned: &NetworkRank,
        patience: Duration,
    ) -> Result<NetworkCommunicator, CollectiveError> {
        let NetworkRank { group, rank, ref endpoints, .. } = *assigned;
        let setup = |why: String| CollectiveError::Setup { what: format!("join a group as rank {rank}"), why };
        let mut peers = Vec::new();
        for (peer, endpoint) in endpoints.iter().enumerate() {
            peers.push(match endpoint.process == self.endpoint.process {
                true => Route::Here,
                false => {
                    let (link, path) = self.link_with(endpoint).map_err(|why| setup(format!("rank {peer}: {why}")))?;
                    Route::Away { link, path, way: PathChoice::Link(None) }
                }
            });
        }
        // All links are being made by now.
        for route in &mut peers {
            if let Route::Away { path, way, .. } = route {
                *way = path.way();
            }
        }
        let mailbox = {
            let mut state = self.lock();
            let member = state.mailboxes.entry((group, rank)).or_default();
            member.processes = endpoints.iter().map(|endpoint| endpoint.process.clone()).collect();
            member.mailbox.clone()
        };
        // A link may have ended before the mailbox knew its processes.
        for (peer, route) in peers.iter().enumerate() {
            if matches!(route, Route::Away { link, .. } if link.ended().is_some()) {
                mailbox.lost(peer);
            }
        }
        let size = endpoints.len();
        // Each begins with the rank behind its own, so that not all measure the same link at once.
        let others = (1..size).map(|i| (rank + i) % size);
        let path = |peer: usize| match &peers[peer] {
            Route::Away { path, .. } => Some((peer, path.clone())),
            Route::Here => None,
        };
        let paths: Vec<_> = others.filter_map(path).collect();
        let spin = Mutex::new(Spin::new(LOOK_MAX, LOOKS_IN_VAIN));
        let transport =
            Arc::new(GroupTransport { port: Arc::downgrade(self), group, rank, peers, mailbox: mailbox.clone(), spin });
        let mut communicator = NetworkCommunicator::new((rank, size), mailbox, transport, patience);
        communicator.barrier()?;
        // By now all ranks have found their ways.
        self.measure_links(assigned, &paths);
        Ok(communicator)
    }

    /// The link with the process at `endpoint`, which is made if there is none.
    fn link_with(self: &Arc<Self>, endpoint: &Endpoint) -> Result<(LastingLink, Arc<DataPath>), String> {
        let mut state = self.lock();
        if let Some(peer) = state.peers.get(&endpoint.process).filter(|peer| peer.link.ended().is_none()) {
            return Ok((peer.link.clone(), peer.path.clone()));
        }
        let fingerprint: Fingerprint =
            endpoint.fingerprint.parse().map_err(|()| "its certificate's fingerprint is none".to_owned())?;
        let dials = self.endpoint.process < endpoint.process;
        let name = dials.then(random_hex).transpose().map_err(|error| error.to_string())?;
        let path = self.new_path().map_err(|error| error.to_string())?;
        let role = match &name {
            Some(name) => LinkRole::Dials(self.dialler(endpoint.clone(), fingerprint, name.clone(), path.clone())),
            None => LinkRole::Awaits(self.prober(endpoint.clone())),
        };
        let link = self.start(endpoint, role, &path).map_err(|error| error.to_string())?;
        let peer = Peer { link: link.clone(), path: path.clone(), name, fingerprint, endpoint: endpoint.clone() };
        state.peers.insert(endpoint.process.clone(), peer);
        self.changed.notify_all();
        Ok((link, path))
    }

    /// A path to another process, with a tag of its own if this process has UCX.
    fn new_path(&self) -> std::io::Result<Arc<DataPath>> {
        let Some(Ok(port)) = &self.ucx else { return Ok(DataPath::new(None)) };
        let (version, _) = UcxPort::library().unwrap_or_default();
        let offer = UcxOffer { version, address: digits_of(port.address()), tag: random_number()? };
        Ok(DataPath::new(Some((port.clone(), offer))))
    }

    fn start(
        self: &Arc<Self>,
        endpoint: &Endpoint,
        role: LinkRole,
        path: &Arc<DataPath>,
    ) -> std::io::Result<LastingLink> {
        let machine = if endpoint.machine.is_empty() { "the daemon's machine" } else { &endpoint.machine };
        let options = LinkOptions { name: format!("a worker of {machine}"), grace: GRACE };
        let (taking, ending, process) = (self.clone(), self.clone(), endpoint.process.clone());
        let machine = machine.to_owned();
        // UCX's thread keeps neither of them alive.
        let (port, by_ucx) = (Arc::downgrade(self), Arc::downgrade(path));
        path.expect(Arc::new(move |frame: Vec<u8>| {
            let (Some(port), Some(path)) = (port.upgrade(), by_ucx.upgrade()) else { return };
            if let Err(why) = port.deliver(&path, frame) {
                path.end_link(LinkEnd::Broken(why));
            }
        }));
        let ending_path = path.clone();
        let taker = LinkTaker { port: taking, path: path.clone() };
        let link = LastingLink::start(options, role, None, taker, move |end| {
            if end != LinkEnd::ClosedHere && !ending.is_closing() {
                tracing::warn!(target: "gtd::nodes", "the link with a worker of {machine} ended: {end}");
            }
            ending_path.end(&end.to_string());
            ending.lost(&process);
        })?;
        path.begin(&link);
        Ok(link)
    }

    fn host<'a>(&'a self, endpoint: &'a Endpoint) -> &'a str {
        endpoint.host.as_deref().unwrap_or(&self.setup.daemon_host)
    }

    fn dialler(
        self: &Arc<Self>,
        endpoint: Endpoint,
        fingerprint: Fingerprint,
        link: String,
        path: Arc<DataPath>,
    ) -> gt_bridge::lasting_link::Dial {
        let port = self.clone();
        Box::new(move |received| {
            let (from, to) = (port.endpoint.process.clone(), endpoint.process.clone());
            let plain = port.setup.insecure_network.is_plain_tcp();
            let (link, ucx) = (link.clone(), path.offer());
            let hello = MachineRequest::Data(DataHello { from, to, link, received, plain, ucx });
            let host = port.host(&endpoint);
            match dial::<_, DataReply>((host, endpoint.port), fingerprint, &port.own, &hello) {
                Ok((mut connection, DataReply::Welcome { received, plain: agreed, ucx })) => {
                    path.offered(ucx);
                    if agreed && !plain {
                        return Err(DialFailure::Final(LinkEnd::Broken("it wants tensors unencrypted".into())));
                    }
                    if agreed {
                        connection.end_encryption().map_err(|error| DialFailure::Retry(error.to_string()))?;
                    }
                    Ok((connection, received))
                }
                Ok((_, DataReply::Later)) => Err(DialFailure::Retry("it does not know this process yet".into())),
                Ok((_, DataReply::Gone { why })) => Err(DialFailure::Final(LinkEnd::Lost(why))),
                // A port is open as long as its process lives.
                Err(ConnectError::Connect { source, .. }) if source.kind() == ErrorKind::ConnectionRefused => {
                    Err(DialFailure::Final(LinkEnd::Lost("its process has ended".into())))
                }
                Err(error @ ConnectError::WrongCertificate { .. }) => {
                    Err(DialFailure::Final(LinkEnd::Refused(error.to_string())))
                }
                Err(error) => Err(DialFailure::Retry(error.to_string())),
            }
        })
    }

    /// Tries whether the port of the process at `endpoint` is still open.
    fn prober(self: &Arc<Self>, endpoint: Endpoint) -> gt_bridge::lasting_link::Probe {
        let port = self.clone();
        Box::new(move || {
            let ip: IpAddr = port.host(&endpoint).parse().ok()?;
            life_port::has_ended(SocketAddr::new(ip, endpoint.port)).then(|| "its process has ended".into())
        })
    }

    /// Takes a connection of a process that dials.
    pub fn take(self: &Arc<Self>, connection: MachineConnection, hello: &DataHello) {
        let gone = |connection: &MachineConnection, why: &str| {
            // The other process learns it at its next attempt otherwise.
            let _ = connection.reply(&DataReply::Gone { why: why.into() });
        };
        if hello.to != self.endpoint.process {
            return gone(&connection, "its process has ended, and another has its port");
        }
        let deadline = Instant::now() + KNOWN_DEADLINE;
        let mut state = self.lock();
        let (link, path) = loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match state.peers.get_mut(&hello.from) {
                Some(peer) if peer.fingerprint != connection.peer => {
                    return gone(&connection, "it has another certificate than the daemon says");
                }
                // A link that nobody has dialled has sent nothing: these bytes came over the one before it.
                Some(peer) if peer.name.is_none() && hello.received > 0 => {
                    return gone(&connection, "this process has given the link up");
                }
                Some(peer) if peer.name.as_ref().is_none_or(|name| *name == hello.link) => {
                    peer.name = Some(hello.link.clone());
                    break (peer.link.clone(), peer.path.clone());
                }
                Some(peer) if hello.received == 0 && peer.endpoint.process < self.endpoint.process => {
                    // The other process has given the former link up, and begins another.
                    peer.link.end(LinkEnd::Lost("the other process has given the link up".into()));
                    let endpoint = peer.endpoint.clone();
                    let Ok(path) = self.new_path() else { return };
                    let role = LinkRole::Awaits(self.prober(endpoint.clone()));
                    let Ok(link) = self.start(&endpoint, role, &path) else { return };
                    (peer.link, peer.path, peer.name) = (link.clone(), path.clone(), Some(hello.link.clone()));
                    break (link, path);
                }
                Some(_) => return gone(&connection, "the other process has given the link up"),
                None if left.is_zero() => {
                    let _ = connection.reply(&DataReply::Later);
                    return;
                }
                None => state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
            }
        };
        drop(state);
        if let Some(end) = link.ended() {
            return gone(&connection, &end.to_string());
        }
        path.offered(hello.ucx.clone());
        let plain = hello.plain && self.setup.insecure_network.is_plain_tcp();
        let reply = |connection: &mut MachineConnection, received| {
            connection.reply(&DataReply::Welcome { received, plain, ucx: path.offer() })?;
            if plain { connection.end_encryption() } else { Ok(()) }
        };
        if let Err(end) = link.attach(connection, hello.received, reply) {
            tracing::debug!(target: "gtd::nodes", "a connection between workers was not taken: {end}");
        }
    }

    /// The mailbox of a rank of this process; made if the group is not known yet, and none if the rank has left it.
    fn mailbox(&self, group: u64, rank: usize) -> Result<Option<Arc<Mailbox>>, String> {
        let mut state = self.lock();
        if let Some(member) = state.mailboxes.get(&(group, rank)) {
            return Ok(Some(member.mailbox.clone()));
        }
        if state.left.contains(&(group, rank)) {
            return Ok(None);
        }
        if state.mailboxes.values().filter(|member| member.processes.is_empty()).count() >= EARLY_MAX {
            return Err(format!("bytes for {EARLY_MAX} groups that this process is not in"));
        }
        Ok(Some(state.mailboxes.entry((group, rank)).or_default().mailbox.clone()))
    }

    fn deliver(&self, path: &DataPath, frame: Vec<u8>) -> Result<(), String> {
        match frame.first_chunk::<HEADER_BYTES>() {
            Some(header) if path.take(header) => Ok(()),
            _ => self.deliver_to_rank(frame),
        }
    }

    fn deliver_to_rank(&self, frame: Vec<u8>) -> Result<(), String> {
        let Some((header, payload)) = frame.split_first_chunk::<HEADER_BYTES>() else {
            return Err(format!("a frame of {} bytes", frame.len()));
        };
        let FrameRoute { channel, group, from, to } = FrameRoute::decode(header);
        let Some(mailbox) = self.mailbox(group, to)? else { return Ok(()) };
        match channel {
            Some(channel) => mailbox.deliver(from, channel, frame, HEADER_BYTES),
            None => mailbox.notice(from, GroupNotice::decode(payload).ok_or("a notice that is none")?),
        }
        Ok(())
    }

    /// Reads bytes that another process has lent: to where they belong, if their rank has said where that is.
    fn take_lent(&self, header: &[u8; HEADER_BYTES], from: &mut LentSource<'_>) -> Result<(), String> {
        let route = FrameRoute::decode(header);
        let channel = route.channel.ok_or_else(|| format!("lent bytes of kind {}", header[0]))?;
        let mailbox = self.mailbox(route.group, route.to)?;
        let filled = mailbox
            .as_ref()
            .and_then(|mailbox| mailbox.fill_room(route.from, channel, from.left(), |room| from.read(room)));
        if filled.is_none() {
            let mut bytes = vec![0; from.left().min(EARLY_PIECE_BYTES_MAX)];
            let count = from.read(&mut bytes);
            bytes.truncate(count);
            // Nobody wants those of a group that the rank has left.
            if let Some(mailbox) = mailbox {
                mailbox.deliver(route.from, channel, bytes, 0);
            }
        }
        Ok(())
    }

    /// Notes that nothing more comes from a process.
    fn lost(&self, process: &str) {
        let state = self.lock();
        for member in state.mailboxes.values() {
            for (rank, of) in member.processes.iter().enumerate() {
                if of == process {
                    member.mailbox.lost(rank);
                }
            }
        }
    }
}

/// The addressee of a frame of a group.
struct FrameRoute {
    /// The stream; none for a notice.
    channel: Option<RankStream>,
    group: u64,
    from: usize,
    to: usize,
}

impl FrameRoute {
    fn decode(header: &[u8; HEADER_BYTES]) -> FrameRoute {
        let short = |at: usize| usize::from(u16::from_le_bytes([header[at], header[at + 1]]));
        FrameRoute {
            channel: RankStream::ALL.get(usize::from(header[0])).copied(),
            group: u64::from_le_bytes(std::array::from_fn(|i| header[1 + i])),
            from: short(9),
            to: short(11),
        }
    }
}

/// Takes the frames of the link with a process.
struct LinkTaker {
    port: Arc<DataPort>,
    path: Arc<DataPath>,
}

impl FrameTaker for LinkTaker {
    fn take(&mut self, frame: &mut Vec<u8>) -> Result<(), String> {
        self.port.deliver(&self.path, std::mem::take(frame))
    }

    fn take_lent(&mut self, head: &[u8; HEADER_BYTES], from: &mut LentSource<'_>) -> Result<(), String> {
        self.port.take_lent(head, from)
    }
}

/// Opens the port for UCX, if tensors are to travel by it.
fn open_ucx(network: InsecureNetwork) -> Option<Result<UcxPort, String>> {
    let has_rdma = || std::fs::read_dir(Path::new(RDMA_DEVICES)).is_ok_and(|mut devices| devices.next().is_some());
    match network {
        InsecureNetwork::Off => None,
        InsecureNetwork::On if !has_rdma() => None,
        InsecureNetwork::Rdma if !has_rdma() => Some(Err(format!("this machine has no RDMA device ({RDMA_DEVICES})"))),
        InsecureNetwork::On | InsecureNetwork::Rdma => Some(UcxPort::open(Transports::Rdma, GRACE)),
        InsecureNetwork::Ucx => Some(UcxPort::open(Transports::Any, GRACE)),
    }
}

/// The way to a rank.
enum Route {
    /// A rank of this process, perhaps the own one.
    Here,
    /// A rank of another process.
    Away { link: LastingLink, path: Arc<DataPath>, way: PathChoice },
}

/// The transport of one rank.
struct GroupTransport {
    port: Weak<DataPort>,
    group: u64,
    rank: usize,
    peers: Vec<Route>,
    mailbox: Arc<Mailbox>,
    /// How long the rank looks for bytes.
    spin: Mutex<Spin>,
}

impl GroupTransport {
    fn header(&self, to: usize, kind: u8) -> [u8; HEADER_BYTES] {
        let mut header = [kind; HEADER_BYTES];
        header[1..9].copy_from_slice(&self.group.to_le_bytes());
        header[9..11].copy_from_slice(&(self.rank as u16).to_le_bytes());
        header[11..].copy_from_slice(&(to as u16).to_le_bytes());
        header
    }

    fn send_frame(&self, to: usize, kind: u8, parts: &[&[u8]]) {
        let header = self.header(to, kind);
        match &self.peers[to] {
            Route::Here => {
                if let Some(port) = self.port.upgrade()
                    && let Err(error) = port.deliver_to_rank([&[&header[..]], parts].concat().concat())
                {
                    tracing::error!(target: "gtd::nodes", "a rank of this process: {error}");
                }
            }
            Route::Away { path, way, .. } => {
                if path.send(way, &header, parts).is_err() {
                    self.mailbox.lost(to);
                }
            }
        }
    }
}

impl RankTransport for GroupTransport {
    fn send(&self, to: usize, channel: RankStream, parts: &[&[u8]]) {
        self.send_frame(to, channel as u8, parts);
    }

    unsafe fn lend(&self, to: usize, channel: RankStream, bytes: *const [u8]) -> Option<u64> {
        let Route::Away { path, way, .. } = &self.peers[to] else {
            // SAFETY: by the contract of this function the bytes can be read.
            self.send(to, channel, &[unsafe { &*bytes }]);
            return None;
        };
        // SAFETY: the contract is that of this function: `settle` and `take_back` are those of the same link.
        match unsafe { path.lend(way, &self.header(to, channel as u8), bytes) } {
            Ok(loan) => loan.map(LentRange::number),
            Err(_) => {
                self.mailbox.lost(to);
                None
            }
        }
    }

    fn wait_for(&self, is_done: &dyn Fn() -> bool, sleep: &mut dyn FnMut()) {
        // The other process most likely sends by UCX as well, if this one does.
        let links = self.peers.iter().filter_map(|route| match route {
            Route::Away { link, way: PathChoice::Link(_), .. } => Some(link),
            _ => None,
        });
        LastingLink::wait_for(links, &mut self.spin.lock().unwrap_or_else(PoisonError::into_inner), is_done, sleep);
    }

    fn settle(&self, to: usize, loan: u64, timeout: Duration) -> bool {
        match &self.peers[to] {
            Route::Away { link, .. } => {
                let loan = LentRange::numbered(loan);
                let mut slept = None;
                self.wait_for(&|| link.is_settled(loan), &mut || slept = Some(link.settle(loan, timeout)));
                slept.unwrap_or(true)
            }
            Route::Here => true,
        }
    }

    fn take_back(&self, to: usize, loan: u64) {
        if let Route::Away { link, .. } = &self.peers[to] {
            link.take_back(LentRange::numbered(loan));
        }
    }

    fn tell(&self, to: usize, notice: GroupNotice) {
        self.send_frame(to, NOTICE, &[&notice.encode()]);
    }
}

impl Drop for GroupTransport {
    fn drop(&mut self) {
        if let Some(port) = self.port.upgrade() {
            let mut state = port.lock();
            state.mailboxes.remove(&(self.group, self.rank));
            state.left.push_back((self.group, self.rank));
            if state.left.len() > LEFT_MAX {
                state.left.pop_front();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gt_collectives::Reduce;
    use gt_collectives::conformance::{PROGRAMS, random_step};
    use gt_collectives::local::LocalGroup;
    use gt_ops::DType;
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    const PATIENCE: Duration = Duration::from_secs(60);

    struct Machines {
        folder: PathBuf,
        ports: Vec<Arc<DataPort>>,
    }

    impl Machines {
        fn new(name: &str, count: usize) -> Machines {
            Machines::with(name, count, InsecureNetwork::Off)
        }

        fn with(name: &str, count: usize, insecure_network: InsecureNetwork) -> Machines {
            let folder = std::env::temp_dir().join(format!("gt-ports-{}-{name}", std::process::id()));
            let bind = "127.0.0.1".parse().unwrap();
            let setup = |number| DataSetup {
                folder: folder.join(format!("{number}")),
                bind,
                daemon_host: "127.0.0.1".into(),
                insecure_network,
            };
            let ports = (0..count).map(|number| DataPort::open(setup(number)).unwrap()).collect();
            Machines { folder, ports }
        }

        /// Runs `run` on a group whose ranks are at these ports.
        fn on_ranks(&self, ports: &[usize], run: impl Fn(&mut dyn Communicator) + Sync) {
            self.on_ranks_of(ports, false, run);
        }

        /// As [`on_ranks`](Self::on_ranks). The ranks at one port may work together.
        fn on_ranks_of(&self, ports: &[usize], by_machine: bool, run: impl Fn(&mut dyn Communicator) + Sync) {
            static GROUP: AtomicU64 = AtomicU64::new(1);
            let group = GROUP.fetch_add(1, Relaxed);
            let endpoints: Vec<Endpoint> = ports.iter().map(|port| self.ports[*port].endpoint().clone()).collect();
            let members = |port: usize| ports.iter().filter(|of| **of == port).count();
            let mut near: Vec<_> = (0..self.ports.len())
                .map(|port| LocalGroup::threads(members(port).max(1)).unwrap().into_iter())
                .collect();
            std::thread::scope(|scope| {
                for (rank, at) in ports.iter().enumerate() {
                    let (run, port) = (&run, &self.ports[*at]);
                    let member = near[*at].next().filter(|_| by_machine);
                    let rank = NetworkRank { group, rank, endpoints: endpoints.clone(), by_machine };
                    scope.spawn(move || {
                        let mut communicator = port.join(&rank, PATIENCE).unwrap();
                        if let Some(member) = member {
                            communicator.join_machine(ports, member).unwrap();
                        }
                        run(&mut communicator);
                    });
                }
            });
        }
    }

    impl Drop for Machines {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }

    #[test]
    fn groups_by_tcp_conform() {
        let machines = Machines::new("conform", 2);
        for (_, run) in PROGRAMS {
            // Two ranks are in one process.
            machines.on_ranks(&[0, 1, 0], run);
        }
    }

    #[test]
    fn groups_by_tcp_whose_ranks_share_machines_conform() {
        let machines = Machines::new("together", 3);
        for (_, run) in PROGRAMS {
            machines.on_ranks_of(&[0, 1, 1, 0, 2], true, run);
        }
    }

    #[test]
    fn groups_whose_bytes_are_not_encrypted_conform() {
        let machines = Machines::with("plain", 3, InsecureNetwork::On);
        for (_, run) in PROGRAMS {
            machines.on_ranks(&[0, 1, 0], run);
            machines.on_ranks_of(&[0, 1, 1, 0, 2], true, run);
        }
    }

    #[test]
    fn only_machines_that_both_want_it_exchange_bytes_unencrypted() {
        let mut machines = Machines::with("wants", 1, InsecureNetwork::On);
        machines.ports.extend(Machines::new("wants-not", 1).ports.iter().cloned());
        for (_, run) in PROGRAMS {
            machines.on_ranks(&[0, 1], run);
        }
    }

    /// Exchanges more bytes than are copied to be sent, and compares what comes.
    fn exchange_many(comm: &mut dyn Communicator) {
        let (rank, size) = (comm.rank(), comm.size());
        let value = |rank: usize, at: usize| ((at * 7 + rank * 13) % 251) as f32;
        let values = |rank: usize, count: usize| -> Vec<f32> { (0..count).map(|at| value(rank, at)).collect() };
        let bytes = |values: &[f32]| -> Vec<u8> { values.iter().flat_map(|value| value.to_le_bytes()).collect() };
        for count in [70_001, 2_500_003] {
            let own = bytes(&values(rank, count));
            let mut sum = own.clone();
            comm.all_reduce(&mut sum, DType::F32, Reduce::Sum).unwrap();
            let expected: Vec<f32> = (0..count).map(|at| (0..size).map(|rank| value(rank, at)).sum()).collect();
            assert!(sum == bytes(&expected), "the sum of {count}");
            let mut all = vec![0; size * own.len()];
            comm.all_gather(&own, &mut all, &vec![count; size], DType::F32).unwrap();
            assert!(all.chunks(own.len()).enumerate().all(|(from, piece)| piece == bytes(&values(from, count))));
            let mut root = if rank == 1 { own.clone() } else { vec![0; own.len()] };
            comm.broadcast(&mut root, 1, DType::F32).unwrap();
            assert!(root == bytes(&values(1, count)), "a broadcast of {count}");
            let mut came = vec![0; own.len()];
            match rank {
                0 => comm.send(&own, 1, DType::F32).unwrap(),
                1 => {
                    comm.recv(&mut came, 0, DType::F32).unwrap();
                    assert!(came == bytes(&values(0, count)), "a message of {count}");
                }
                _ => {}
            }
        }
    }

    #[test]
    fn many_bytes_arrive_while_connections_break() {
        for (name, network) in [("many", InsecureNetwork::Off), ("many-plain", InsecureNetwork::On)] {
            let machines = Machines::with(name, 2, network);
            let done = AtomicBool::new(false);
            let resumed = || {
                let state = machines.ports[0].lock();
                state.peers.values().map(|peer| peer.link.counts().resumed).sum::<u64>()
            };
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !done.load(Relaxed) {
                        machines.ports[0].lock().peers.values().for_each(|peer| peer.link.break_connection());
                        std::thread::sleep(Duration::from_millis(25));
                    }
                });
                for ports in [&[0, 1][..], &[1, 0, 0], &[0, 1, 1, 0]] {
                    machines.on_ranks_of(ports, true, exchange_many);
                }
                done.store(true, Relaxed);
            });
            assert!(resumed() > 3, "{} connections were resumed", resumed());
        }
    }

    /// Machines whose ports have UCX, unless this machine has none, which the test then says.
    fn with_ucx(name: &str, count: usize) -> Option<Machines> {
        match UcxPort::library() {
            Ok(_) => Some(Machines::with(name, count, InsecureNetwork::Ucx)),
            Err(why) if std::env::var_os("GT_UCX_LIBRARY").is_some() => panic!("{why}"),
            Err(why) => {
                println!("skipped: {why}");
                None
            }
        }
    }

    impl Machines {
        /// The ways from a port to all others.
        fn ways(&self, port: usize) -> Vec<PathChoice> {
            let paths: Vec<_> = self.ports[port].lock().peers.values().map(|peer| peer.path.clone()).collect();
            paths.iter().map(DataPath::way).collect()
        }
    }

    #[test]
    fn groups_by_ucx_conform() {
        let Some(machines) = with_ucx("ucx", 3) else { return };
        for (_, run) in PROGRAMS {
            machines.on_ranks(&[0, 1, 0], run);
            machines.on_ranks_of(&[0, 1, 1, 0, 2], true, run);
        }
        let ways = machines.ways(0);
        assert!(
            ways.len() == 2 && ways.iter().all(|way| matches!(way, PathChoice::Ucx(_))),
            "both others are reached by UCX"
        );
    }

    #[test]
    fn a_machine_without_ucx_is_reached_over_the_link_and_the_reason_is_kept() {
        let Some(mut machines) = with_ucx("mixed", 1) else { return };
        machines.ports.extend(Machines::new("mixed-plain", 1).ports.iter().cloned());
        for (_, run) in PROGRAMS {
            machines.on_ranks(&[0, 1], run);
        }
        let [to_plain, to_ucx] = [0, 1].map(|port| machines.ways(port).remove(0));
        assert!(matches!(to_plain, PathChoice::Link(Some(why)) if why == "the other process has no UCX"));
        assert!(matches!(to_ucx, PathChoice::Link(None)), "nobody asked for UCX there");
    }

    #[test]
    fn two_versions_of_ucx_do_not_meet_and_an_address_that_is_none_is_refused() {
        let Some(machines) = with_ucx("versions", 1) else { return };
        let path = machines.ports[0].new_path().unwrap();
        let own = path.offer().unwrap();
        for (offer, expected) in [
            (UcxOffer { version: "1.0.0".into(), ..own.clone() }, "the other process has UCX 1.0.0, this one has "),
            (UcxOffer { address: "5g".into(), ..own }, "the other process's UCX address is none"),
        ] {
            let path = machines.ports[0].new_path().unwrap();
            path.offered(Some(offer));
            assert!(matches!(path.way(), PathChoice::Link(Some(why)) if why.starts_with(expected)));
        }
    }

    #[test]
    fn a_connection_of_ucx_that_fails_names_the_rank_and_the_next_group_makes_another() {
        let Some(machines) = with_ucx("fails", 2) else { return };
        // Rank 1 may leave the group's barrier while what it sent is underway, and would be lost with the connection.
        let both_have_left_the_barrier = std::sync::Barrier::new(2);
        machines.on_ranks(&[0, 1], |comm| {
            // Bytes are on their way when it fails.
            let mut buffer = vec![1; 8 << 20];
            comm.barrier().unwrap();
            both_have_left_the_barrier.wait();
            if comm.rank() == 1 {
                for way in machines.ways(1) {
                    let PathChoice::Ucx(peer) = way else { panic!("the other is reached by UCX") };
                    peer.end("a test");
                }
            }
            let error = loop {
                match comm.all_reduce(&mut buffer, DType::F32, Reduce::Sum) {
                    Ok(_) => {}
                    Err(error) => break error,
                }
            };
            let peer = 1 - comm.rank();
            let is_named =
                matches!(error, CollectiveError::Died { peer: named, .. } if named == peer || named == comm.rank());
            assert!(is_named, "{error}");
        });
        machines.on_ranks(&[0, 1], |comm| random_step(comm, 3));
        assert!(machines.ways(0).iter().all(|way| matches!(way, PathChoice::Ucx(_))));
    }

    #[test]
    fn groups_go_on_while_their_connections_break() {
        let machines = Machines::new("breaks", 2);
        // Two of three ranks work together.
        for ports in [&[0, 1][..], &[0, 1, 1]] {
            machines.on_ranks_of(ports, true, |comm| {
                for seed in 0..60 {
                    random_step(comm, seed);
                    if seed % 5 == 0 {
                        let state = machines.ports[ports[comm.rank()]].lock();
                        state.peers.values().for_each(|peer| peer.link.break_connection());
                    }
                }
            });
        }
        let resumed = machines.ports[0].lock().peers.values().map(|peer| peer.link.counts().resumed).sum::<u64>();
        assert!(resumed > 3, "{resumed} connections were resumed");
    }

    #[test]
    fn a_process_that_ends_breaks_its_groups_and_a_stranger_joins_none() {
        let machines = Machines::new("ends", 2);
        // Rank 1 may leave the group's barrier while what it sent is underway, and would be lost with the link.
        let both_have_left_the_barrier = std::sync::Barrier::new(2);
        machines.on_ranks(&[0, 1], |comm| {
            comm.barrier().unwrap();
            both_have_left_the_barrier.wait();
            if comm.rank() == 1 {
                let state = machines.ports[1].lock();
                state.peers.values().for_each(|peer| drop(peer.link.end(LinkEnd::Lost("a test".into()))));
                return;
            }
            let error = comm.all_reduce(&mut [0; 8], DType::F32, Reduce::Sum).unwrap_err();
            let lost = matches!(error, CollectiveError::Died { peer: 1, .. } | CollectiveError::Left { peer: 1, .. });
            assert!(lost, "{error}");
        });
        // A certificate that the daemon has not told the others of.
        let [port, other] = [0, 1].map(|port| &machines.ports[port]);
        let mut endpoint = other.endpoint().clone();
        endpoint.fingerprint = port.endpoint().fingerprint.clone();
        endpoint.process = "zz".into();
        let rank =
            NetworkRank { group: 99, rank: 0, endpoints: vec![port.endpoint().clone(), endpoint], by_machine: false };
        let error = port.join(&rank, PATIENCE).map(drop).unwrap_err();
        assert!(matches!(error, CollectiveError::Died { peer: 1, .. }), "{error}");
    }
}
