//! The messages of the control socket. A field with a default may be added without a new protocol version.

use crate::address::{TcpAddress, TcpSecurity};
use crate::device_set::DeviceSet;
use crate::limits::{STATUS_NODE_LINKS_MAX, STATUS_NODES_MAX, STATUS_SESSIONS_BESIDE_NODES_MAX, STATUS_SESSIONS_MAX};
use crate::notice::Notice;
use crate::quota::{QuotaChange, QuotaDocument, UserStatus};
use crate::record::{RecordPage, RecordQuery};
use crate::version::{PROTOCOL_VERSION, PROTOCOL_VERSION_MIN, VersionRange};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::AddAssign;

/// A message from a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "snake_case")]
pub enum ClientMessage {
    /// The first message of a connection. Answered by `welcome` or `refused`.
    Hello(Hello),
    /// Requests one more arena. Answered by `arena_granted` with its descriptor, or `refused`.
    GrowArena {
        /// The size of a block that must fit, bytes.
        bytes: u64,
    },
    /// Returns an arena, which no command in flight names. Answered by `arena_returned`, or `refused` while one could.
    /// Only sent to daemons whose grant says that they take arenas back.
    ReturnArena {
        /// The arena's number.
        segment: u32,
    },
    /// Requests the daemon's tape, the ring of the instruction log's events. Answered by `tape` with its descriptor, or
    /// `refused`. Who may not read the events of all sessions gets a copy of the tape with those of one of his own.
    TapeAttach {
        /// The session whose events are wanted; none for all sessions'. Daemons that do not know the field pass all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session: Option<u64>,
    },
    /// Requests the memory of labels in which this client tells the line of its program that issued each instruction.
    /// Answered by `lines` with its descriptor, or `refused`. Only sent to daemons whose grant says that they share
    /// lines.
    ShareLines,
    /// Requests the lines that a session shares, for reading. Answered by `lines` with their descriptor, or `refused`
    /// if it shares none. Allowed to its own user, and to those who may read the whole tape.
    LinesAttach {
        /// The session's number.
        session: u64,
    },
    /// Requests the status document. Answered by `status`, with as many sessions as one message holds.
    Status {
        /// Lists only sessions with larger numbers.
        #[serde(default)]
        after: u64,
    },
    /// Requests the text of an error. Answered by `error_detail`, or `refused` if the daemon has none.
    ErrorDetail {
        /// The error's number.
        error: u64,
    },
    /// Requests what this session's workers have sent in collectives, and their steps by operation. Answered by
    /// `traffic`, or `refused`.
    Traffic,
    /// Requests the placement of a tensor of this session. Answered by `placement`, or `refused`.
    Placement {
        /// The tensor.
        id: u64,
    },
    /// Requests the dtypes and sizes of this session's tensors. Answered by `tensors`, with as many as one message
    /// holds, or `refused`.
    Tensors {
        /// Lists only tensors with larger ids.
        after: u64,
    },
    /// Requests the details of one session. Answered by `session`, or `refused`.
    Session {
        /// The session's number.
        id: u64,
    },
    /// Resets the memory peak of this session to what it holds. Answered by `session`, about this session, or
    /// `refused`.
    ResetPeak {
        /// The name of the worker; none for all workers.
        #[serde(default)]
        worker: Option<String>,
    },
    /// Ends a session. Allowed to its owner and to administrators. Answered by `killed`, or `refused`.
    Kill {
        /// The session's number.
        session: u64,
    },
    /// Requests the quotas in force. Answered by `limits`, with as many users as one message holds.
    Limits {
        /// Lists only users with this number or a larger one.
        #[serde(default)]
        from: u32,
    },
    /// Changes a quota until it is changed again or the daemon ends. Allowed to administrators, and to users who lower
    /// their own. Answered by `limits` with this user alone, or `refused`.
    SetLimits {
        /// The user; none for the default of all users.
        #[serde(default)]
        uid: Option<u32>,
        /// The fields to change.
        change: QuotaChange,
    },
    /// Requests records of ended sessions. Answered by `records`, or `refused`: users who are no administrators get
    /// their own.
    Records(RecordQuery),
    /// Begins or ends draining: while it drains, the daemon takes no sessions, and it ends after the last one. Allowed
    /// to administrators. Answered by `draining`, or `refused`.
    Drain {
        /// True to begin, false to end it.
        on: bool,
        /// Begins after this time, seconds; until then programs are warned.
        #[serde(default)]
        in_s: u64,
        /// A message for the users of running programs, which [`check_message`](crate::notice::check_message) accepts.
        #[serde(default)]
        text: Option<String>,
    },
    /// Requests the present notice. Answered by `notice`.
    Notice,
    /// Reads the configuration file again. Allowed to administrators. Answered by `reloaded`, or by `refused` if the
    /// file is wrong: then the old configuration stays in force.
    Reload,
    /// Creates an access token for TCP. Allowed to administrators, and to users for themselves; not by TCP. Answered by
    /// `token_created`, or `refused`.
    TokenCreate {
        /// The token's user; none for the one who asks.
        #[serde(default)]
        uid: Option<u32>,
        /// The time until it expires, seconds.
        lifetime_s: u64,
        /// True for a token with the rights of an administrator, which only administrators may create.
        #[serde(default)]
        administrator: bool,
    },
    /// Requests the access tokens: all of them for administrators, the own ones for other users; not by TCP. Answered
    /// by `tokens`, with as many as one message holds, or `refused`.
    TokenList {
        /// Lists only tokens with larger numbers.
        #[serde(default)]
        after: u64,
    },
    /// Revokes an access token, and ends the sessions that it opened. Allowed to administrators and to the token's
    /// user; not by TCP. Answered by `token_revoked`, or `refused`.
    TokenRevoke {
        /// The token's number.
        id: u64,
    },
    /// Invites another machine to join as a node. Allowed to administrators; not by TCP. Answered by `node_invited`, or
    /// `refused`.
    NodeInvite {
        /// The time until the invitation expires, seconds.
        lifetime_s: u64,
        /// The most workers that the node may bring; none for any number.
        #[serde(default)]
        workers_max: Option<u32>,
    },
    /// Requests the nodes with names after `after`. Answered by `nodes`, with as many as one message holds.
    NodeList {
        /// The last name of the answer before; empty to begin.
        #[serde(default)]
        after: String,
    },
    /// Forgets a node, and ends its workers. Allowed to administrators; not by TCP. Answered by `node_removed`, or
    /// `refused`.
    NodeRemove {
        /// The node's name.
        name: String,
    },
    /// Cancels this session's instructions whose results have lower ids than `below`, whether they run, are queued or
    /// are still to be read. Their results are poisoned. Not answered. Since version 2.
    Interrupt {
        /// The id of the first result that is not cancelled.
        below: u64,
    },
    /// Renames the session. Not answered.
    Name {
        /// The new name, as in [`Hello::name`].
        name: Option<String>,
    },
    /// Ends the session; the last message. Not answered.
    Bye,
}

/// A message from the daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "snake_case")]
pub enum DaemonMessage {
    /// Accepts a connection. A client also gets the descriptors of segment C, segment D and the doorbell, in this
    /// order.
    Welcome(Welcome),
    /// Refuses a request. After a hello the connection ends; otherwise it goes on.
    Refused(Refused),
    /// Grants one more arena, with its descriptor.
    ArenaGranted {
        /// The arena's number, from 0.
        segment: u32,
        /// The arena's length, bytes.
        bytes: u64,
    },
    /// Has taken an arena back, whose number is not used again.
    ArenaReturned {
        /// The arena's number.
        segment: u32,
    },
    /// Grants the tape, or a copy of it, with its descriptor; to a client by TCP, the records follow.
    Tape {
        /// Records in the ring.
        records: u64,
    },
    /// Grants the memory of a session's labels, with its descriptor.
    Lines {
        /// Its length, bytes.
        bytes: u64,
    },
    /// The status document.
    Status(StatusDocument),
    /// The text of an error.
    ErrorDetail {
        /// The error's number.
        error: u64,
        /// The sentence for the user.
        text: String,
    },
    /// The collectives of this session's workers, and their steps by operation.
    Traffic {
        /// The session's workers, by number.
        workers: Vec<WorkerTraffic>,
        /// The sequences of instructions between the program's fetches.
        #[serde(default)]
        sequences: SequenceCounts,
    },
    /// The placement of a tensor.
    Placement(PlacementInfo),
    /// The session's tensors, by id, each with its dtype and sizes as in `float32[64,784]`.
    Tensors {
        /// The tensors.
        tensors: Vec<(u64, String)>,
        /// True if there are tensors after the last one here.
        more: bool,
    },
    /// The details of one session.
    Session(Box<SessionDetail>),
    /// A session has ended; its last status.
    Killed(Box<SessionStatus>),
    /// The quotas in force.
    Limits(QuotaDocument),
    /// Records of ended sessions.
    Records(RecordPage),
    /// The present notice; none if there never was one.
    Notice {
        /// The notice.
        notice: Option<Notice>,
    },
    /// Tells the client's end of a TCP connection that there is a new notice. Sent without a request, only to clients
    /// that speak version 2 or later.
    NewNotice {
        /// The number of the notice.
        number: u32,
    },
    /// The configuration was read again.
    Reloaded {
        /// The configuration file.
        path: String,
        /// The names of settings that have changed.
        changed: Vec<String>,
        /// The names of settings that change only when the daemon is started again.
        restart: Vec<String>,
    },
    /// An access token was created.
    TokenCreated {
        /// The token's text, which the daemon does not store.
        text: String,
        /// The token.
        token: TokenInfo,
        /// True if the token outlives the daemon.
        lasting: bool,
    },
    /// Access tokens, by number.
    Tokens {
        /// The tokens.
        tokens: Vec<TokenInfo>,
        /// True if there are tokens after the last one here.
        more: bool,
    },
    /// An access token was revoked.
    TokenRevoked {
        /// The token.
        token: TokenInfo,
        /// The number of its sessions, which were ended.
        sessions: u32,
    },
    /// An invitation was made.
    NodeInvited {
        /// The address at which the daemon listens for nodes.
        address: String,
        /// The fingerprint of the daemon's certificate.
        fingerprint: String,
        /// The secret, which one node can use once.
        secret: String,
    },
    /// Nodes that have joined, by name.
    Nodes {
        /// The nodes.
        nodes: Vec<NodeInfo>,
        /// The slowest links between machines, at most [`STATUS_NODE_LINKS_MAX`].
        #[serde(default)]
        links: Vec<NodeLink>,
        /// True if there are nodes after the last one here.
        more: bool,
    },
    /// A node was removed.
    NodeRemoved {
        /// Its name.
        name: String,
    },
    /// Whether the daemon drains.
    Draining {
        /// True if it takes no sessions and ends after the last one.
        on: bool,
        /// Open sessions.
        sessions: u32,
        /// The notice that programs get, if they get one.
        #[serde(default)]
        notice: Option<Notice>,
    },
}

/// The purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// A session that computes.
    Client,
    /// Reads the tape and the status.
    Observer,
    /// Sends requests and commands, as `gtctl` does.
    Control,
    /// A worker that registers itself. After the welcome, the connection becomes the daemon's link to it.
    Worker,
}

/// The first message of a connection: version, role and name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The oldest version that the sender speaks. The one field that no version may rename.
    pub protocol_version: u32,
    /// The newest version that the sender speaks; none if it speaks one alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol_version_max: Option<u32>,
    /// The client's package version, for error messages.
    pub client_version: String,
    /// The name of the session or worker, at most [`NAME_BYTES_MAX`](crate::limits::NAME_BYTES_MAX) bytes.
    #[serde(default)]
    pub name: Option<String>,
    /// The purpose of the connection.
    pub role: Role,
    /// The client for which the daemon's own process opens this connection; refused from any other process.
    #[serde(default)]
    pub on_behalf: Option<OnBehalf>,
    /// The resources of a [`Role::Worker`].
    #[serde(default)]
    pub offer: Option<WorkerOffer>,
    /// The devices that a [`Role::Client`]'s session may use, among those of its user; none for all of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub devices: Option<DeviceSet>,
}

/// The resources of a worker that registers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerOffer {
    /// The worker's process id in its own namespace.
    pub pid: u32,
    /// Threads that compute.
    pub threads: u32,
    /// The memory limit for its tensors, bytes; 0 for the device's default.
    pub memory_bytes_limit: u64,
    /// The device, written as in the daemon's configuration; none for the CPU.
    #[serde(default)]
    pub device: Option<String>,
    /// The node that the worker is on, for which the daemon's own process registers it; refused from any other process.
    #[serde(default)]
    pub node: Option<String>,
}

/// A client that is connected by TCP, for which the daemon opens a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OnBehalf {
    /// The user id.
    pub uid: u32,
    /// The process id, as the client reports it.
    pub pid: u32,
    /// The client's address.
    pub from: String,
    /// True if the client has the rights of an administrator.
    #[serde(default)]
    pub administrator: bool,
    /// The number of the client's access token, if it is a user's.
    #[serde(default)]
    pub token: Option<u64>,
}

/// An access token of a user, without its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenInfo {
    /// The token's number.
    pub id: u64,
    /// The user id of its clients.
    pub uid: u32,
    /// True if its clients have the rights of an administrator.
    pub administrator: bool,
    /// The time of its creation, seconds since 1970.
    pub created_unix_s: u64,
    /// The time from which it is no longer accepted, seconds since 1970.
    pub expires_unix_s: u64,
}

impl Hello {
    /// The versions that the sender speaks.
    pub fn versions(&self) -> VersionRange {
        VersionRange::new(self.protocol_version, self.protocol_version_max)
    }

    /// A hello of the versions that this build speaks.
    pub fn new(role: Role, name: Option<String>) -> Self {
        Self {
            protocol_version: PROTOCOL_VERSION_MIN,
            protocol_version_max: Some(PROTOCOL_VERSION),
            client_version: env!("CARGO_PKG_VERSION").into(),
            name,
            role,
            on_behalf: None,
            offer: None,
            devices: None,
        }
    }
}

/// The daemon's answer to a hello that it accepts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Welcome {
    /// The version that both sides use from now on.
    pub protocol_version: u32,
    /// The daemon's package version, for error messages.
    pub daemon_version: String,
    /// The daemon's process id.
    pub daemon_pid: u32,
    /// The session, if the role is [`Role::Client`].
    #[serde(default)]
    pub session: Option<SessionGrant>,
    /// The workers at this time.
    #[serde(default)]
    pub workers: Vec<WorkerInfo>,
    /// The present notice.
    #[serde(default)]
    pub notice: Option<Notice>,
}

/// The resources of a new session. The lengths of its segments follow from its rings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionGrant {
    /// The session's number, which a daemon uses once.
    pub session_id: u64,
    /// Slots of the submission ring.
    pub sq_slots: u32,
    /// Slots of the completion ring.
    pub cq_slots: u32,
    /// The limit of all arenas of the user's sessions together, bytes.
    pub arena_bytes_max: u64,
    /// The devices to which the session is pinned, whose workers are those of the welcome; none if it may use all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub devices: Option<DeviceSet>,
    /// The number of the daemon's devices; 0 from daemons that pin no sessions.
    #[serde(default)]
    pub daemon_devices: u32,
    /// True if the daemon takes arenas of the session back.
    #[serde(default)]
    pub returns_arenas: bool,
    /// True if the daemon gives the session memory for the lines of its program.
    #[serde(default)]
    pub shares_lines: bool,
}

/// The state of a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerState {
    /// It executes commands.
    #[default]
    Running,
    /// It is starting; its commands wait.
    Starting,
    /// It ended too often and is started again later; until then its commands fail.
    Down,
    /// It had registered itself and has ended; its tensors are lost.
    Left,
    /// A state that this version does not know.
    #[serde(other)]
    Other,
}

/// A worker's properties and state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerInfo {
    /// The name, as users write it: `cpu:0`.
    pub name: String,
    /// The name of its backend, as in `gtd --workers`.
    pub kind: String,
    /// Threads that compute.
    #[serde(default)]
    pub threads: u32,
    /// The memory limit for its tensors, bytes; 0 for none.
    #[serde(default)]
    pub memory_bytes_limit: u64,
    /// Memory of its tensors, bytes.
    #[serde(default)]
    pub memory_bytes: u64,
    /// The node that it is on; none on the daemon's machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The process id, if it runs in a process of its own.
    #[serde(default)]
    pub process: Option<u32>,
    /// The state.
    #[serde(default)]
    pub state: WorkerState,
    /// How often it has ended and lost its tensors.
    #[serde(default)]
    pub losses: u32,
    /// The reason of its last end.
    #[serde(default)]
    pub last_loss: Option<String>,
    /// The GPU; none for a CPU worker, and for one that has never been ready.
    #[serde(default)]
    pub device: Option<DeviceInfo>,
    /// The step that it runs; none if it is idle.
    #[serde(default)]
    pub running: Option<RunningInfo>,
}

/// Another machine whose workers compute for the daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeInfo {
    /// The name.
    pub name: String,
    /// Its state.
    pub state: NodeState,
    /// Its address; none while it is away.
    pub address: Option<String>,
    /// The number of its workers; 0 while it is away.
    pub workers: u32,
    /// When it was invited and joined, seconds since 1970.
    pub joined_s: u64,
    /// Bytes that were sent to it since it joined.
    pub sent_bytes: u64,
    /// Bytes that came from it.
    pub received_bytes: u64,
    /// How often its connection broke and was resumed.
    pub resumed: u64,
    /// The latency of the link with the daemon's machine, measured when the node joined, nanoseconds; 0 if it was not.
    pub latency_ns: u64,
    /// The bandwidth of that link, bytes a second; 0 if it was not measured.
    pub bytes_per_s: u64,
}

/// A link between two machines, as the processes of their workers measured it when they first exchanged tensors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeLink {
    /// The machine that measured it; empty for the daemon's.
    pub from: String,
    /// The other machine; empty for the daemon's.
    pub to: String,
    /// How tensors travel.
    pub transport: LinkTransport,
    /// Why not by UCX, if that was wanted.
    pub reason: Option<String>,
    /// The latency, nanoseconds.
    pub latency_ns: u64,
    /// The bandwidth, bytes a second.
    pub bytes_per_s: u64,
}

/// How tensors travel between two machines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkTransport {
    /// By TCP, encrypted.
    #[default]
    Tls,
    /// By UCX, not encrypted.
    Ucx,
    /// By TCP, not encrypted.
    Tcp,
}

impl LinkTransport {
    /// The transport's name.
    pub fn name(self) -> &'static str {
        match self {
            LinkTransport::Tls => "tls",
            LinkTransport::Ucx => "ucx",
            LinkTransport::Tcp => "tcp",
        }
    }
}

/// Where tensors travel unencrypted between machines, because nobody else is on their network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InsecureNetwork {
    /// Nowhere.
    #[default]
    Off,
    /// Between machines with RDMA devices, by these alone.
    Rdma,
    /// Between all machines: by RDMA where both have it, otherwise by TCP.
    On,
    /// Between all machines: by UCX where both have it, whatever it uses, otherwise by TCP.
    Ucx,
}

impl InsecureNetwork {
    /// Whether tensors travel unencrypted by TCP.
    pub fn is_plain_tcp(self) -> bool {
        matches!(self, InsecureNetwork::On | InsecureNetwork::Ucx)
    }

    /// The sentence that says aloud how tensors travel; empty if they are encrypted everywhere.
    pub fn warning(self) -> &'static str {
        match self {
            InsecureNetwork::Off => "",
            InsecureNetwork::Rdma => "tensors travel unencrypted between machines with RDMA devices",
            InsecureNetwork::On | InsecureNetwork::Ucx => "tensors travel unencrypted between machines",
        }
    }
}

impl std::str::FromStr for InsecureNetwork {
    type Err = String;
    fn from_str(text: &str) -> std::result::Result<InsecureNetwork, String> {
        match text {
            "off" => Ok(InsecureNetwork::Off),
            "rdma" => Ok(InsecureNetwork::Rdma),
            "on" => Ok(InsecureNetwork::On),
            "ucx" => Ok(InsecureNetwork::Ucx),
            _ => Err(format!("`{text}` does not say where tensors travel unencrypted: write off, on, rdma or ucx")),
        }
    }
}

/// The state of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// Connected.
    Up,
    /// The connection broke, and may be resumed.
    Unreachable,
    /// It has left, was lost, or has not joined since the daemon started.
    #[default]
    Away,
}

/// The step that a worker runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunningInfo {
    /// The session.
    pub session: u64,
    /// The step's operation, as in the instruction log: `matmul`.
    pub step: String,
    /// How long it has run at least, milliseconds.
    pub since_ms: u64,
}

/// An NVIDIA device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceInfo {
    /// The name that NVIDIA's driver reports.
    pub name: String,
    /// The compute capability, as (9, 0).
    pub capability: (u32, u32),
    /// The number of streaming multiprocessors.
    pub multiprocessors: u32,
    /// The memory of the device, bytes, used or not.
    pub memory_bytes: u64,
}

/// The collectives and the operations of one worker in one session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerTraffic {
    /// The worker's name, as in [`WorkerInfo`].
    pub name: String,
    /// The collectives it took part in, by name: `all_reduce`.
    pub collectives: BTreeMap<String, CollectiveTraffic>,
    /// The steps that ended, by operation; of very many, those that took longest.
    pub operations: BTreeMap<String, OperationCount>,
}

/// The sequences of instructions that a session repeats. Two are the same if their operations, dtypes and sizes are,
/// and if the same of their instructions have made the operands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SequenceCounts {
    /// The different sequences that came twice.
    pub unique_sequences: u64,
    /// Those that came once more from the beginning to the end.
    pub hot_sequences: u64,
    /// The instructions that followed a sequence: all from its third time on.
    pub hot_instructions: u64,
    /// All other instructions.
    pub cold_instructions: u64,
    /// The hot instructions that were taken from the plan of their sequence.
    pub hits: u64,
    /// The hot instructions that were not: when they are planned, or because they differ each time.
    pub misses: u64,
}

/// The steps of one operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "[u64; 4]", into = "[u64; 4]")]
pub struct OperationCount {
    /// The number of steps that ended.
    pub count: u64,
    /// Their time, nanoseconds. The first of several fused steps carries the time of all, and small steps that the
    /// daemon runs itself have an estimate.
    pub time_ns: u64,
    /// Bytes of the instructions on the wire, or of the data moved.
    pub bytes: u64,
    /// Those that failed.
    pub errors: u64,
}

impl AddAssign for OperationCount {
    fn add_assign(&mut self, other: OperationCount) {
        self.count += other.count;
        self.time_ns = self.time_ns.saturating_add(other.time_ns);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.errors += other.errors;
    }
}

impl From<[u64; 4]> for OperationCount {
    fn from([count, time_ns, bytes, errors]: [u64; 4]) -> OperationCount {
        OperationCount { count, time_ns, bytes, errors }
    }
}

impl From<OperationCount> for [u64; 4] {
    fn from(of: OperationCount) -> [u64; 4] {
        [of.count, of.time_ns, of.bytes, of.errors]
    }
}

/// Counters of one kind of collective.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CollectiveTraffic {
    /// The number of collectives.
    pub count: u64,
    /// Bytes that the worker sent.
    pub bytes: u64,
}

impl AddAssign for CollectiveTraffic {
    fn add_assign(&mut self, other: CollectiveTraffic) {
        self.count += other.count;
        self.bytes += other.bytes;
    }
}

/// The placement of a tensor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacementInfo {
    /// The kind of placement.
    pub layout: PlacementLayout,
    /// The names of the workers that have some of its elements, in the order of their numbers.
    pub workers: Vec<String>,
    /// The sharded axis.
    #[serde(default)]
    pub axis: Option<u8>,
    /// The reduction of a partial tensor's parts: `sum`.
    #[serde(default)]
    pub join: Option<String>,
    /// On a mesh, the layout within each row of workers; the fields above are then that from row to row.
    #[serde(default)]
    pub within_rows: Option<RowInfo>,
}

/// The layout of a tensor within each row of a mesh of workers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowInfo {
    /// The number of rows, of equal length, into which the workers are divided in their order.
    pub rows: usize,
    /// The kind of placement.
    pub layout: PlacementLayout,
    /// The sharded axis.
    #[serde(default)]
    pub axis: Option<u8>,
    /// The reduction of a partial tensor's parts: `sum`.
    #[serde(default)]
    pub join: Option<String>,
}

/// The kinds of placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlacementLayout {
    /// Each worker has the whole tensor. A tensor on one worker is replicated too.
    Replicated,
    /// Each worker has a shard: a stretch of one axis.
    Sharded,
    /// Each worker has a tensor of the whole shape; the elements are the reduction of all of them.
    Partial,
}

/// The reason of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalCode {
    /// The two sides speak different versions.
    ProtocolVersion,
    /// The user or the daemon has reached its limit of sessions.
    TooManySessions,
    /// The arenas of the user or of all users would exceed their limit.
    ArenaLimit,
    /// The system has no memory or descriptors left.
    Exhausted,
    /// The user or role is not allowed to do that.
    NotPermitted,
    /// The message is invalid.
    Malformed,
    /// The daemon was stopped by its administrator; sent without a request when it ends sessions.
    ShuttingDown,
    /// The daemon takes no sessions and ends after the last one.
    Draining,
    /// There is no such session.
    NoSession,
    /// The session's owner or an administrator has ended it; sent without a request.
    Killed,
    /// The configuration is wrong.
    Config,
    /// A reason that this version does not know.
    #[serde(other)]
    Other,
}

/// The refusal of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{text}")]
pub struct Refused {
    /// The reason, for programs.
    pub code: RefusalCode,
    /// The text for users: what was asked, what was found, what to do.
    pub text: String,
    /// The version that both sides use; the daemon's newest if they have none in common.
    pub protocol_version: u32,
    /// For limits: bytes (or sessions) held already.
    #[serde(default)]
    pub held: u64,
    /// For limits: bytes (or sessions) allowed.
    #[serde(default)]
    pub limit: u64,
}

impl Refused {
    /// A refusal with the reason `code` and the text for users.
    pub fn new(code: RefusalCode, text: impl Into<String>) -> Self {
        Self { code, text: text.into(), protocol_version: PROTOCOL_VERSION, held: 0, limit: 0 }
    }

    /// Adds the numbers of the limit that was reached.
    #[must_use]
    pub fn with_limit(self, held: u64, limit: u64) -> Self {
        Self { held, limit, ..self }
    }
}

/// The status of the daemon, its workers and its sessions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StatusDocument {
    /// The daemon's package version.
    pub daemon_version: String,
    /// The daemon's process id.
    pub pid: u32,
    /// Seconds since the daemon started.
    pub uptime_s: f64,
    /// The time on the clock of the tape, nanoseconds; 0 from daemons that do not tell it.
    pub tape_ns: u64,
    /// All workers.
    pub workers: Vec<WorkerInfo>,
    /// The number of the daemon's own devices: the first of these workers.
    pub devices: u32,
    /// Bytes of all sessions' arenas.
    pub arena_bytes: u64,
    /// The limit of `arena_bytes`.
    pub arena_bytes_limit: u64,
    /// True if the daemon takes no sessions and ends after the last one.
    pub draining: bool,
    /// The present notice.
    pub notice: Option<Notice>,
    /// How it listens by TCP; none if it does not.
    pub tcp: Option<TcpStatus>,
    /// The address at which it listens for nodes; none if it does not.
    pub nodes_address: Option<String>,
    /// The first [`STATUS_NODES_MAX`] nodes.
    pub nodes: Vec<NodeInfo>,
    /// The slowest links between machines, at most [`STATUS_NODE_LINKS_MAX`] in one message.
    pub node_links: Vec<NodeLink>,
    /// Where tensors travel unencrypted between machines.
    pub insecure_network: InsecureNetwork,
    /// The daemon's UCX, if tensors may travel between machines by it, which does not encrypt them.
    pub nodes_ucx: Option<Box<UcxStatus>>,
    /// The address and the port of its page and metrics, by HTTP; none if they are off.
    pub metrics: Option<String>,
    /// The sessions, by number.
    pub sessions: Vec<SessionStatus>,
    /// True if there are sessions after the last one here.
    pub more: bool,
}

impl StatusDocument {
    /// The sessions after number `after`, sorted, as many as one message holds. The nodes and their links are in the
    /// last message, which has fewer sessions for them.
    #[must_use]
    pub fn page(mut self, after: u64) -> Self {
        self.sessions.retain(|session| session.id > after);
        self.sessions.sort_by_key(|session| session.id);
        let last_max = if self.nodes.is_empty() { STATUS_SESSIONS_MAX } else { STATUS_SESSIONS_BESIDE_NODES_MAX };
        self.more = self.sessions.len() > last_max;
        self.sessions.truncate(STATUS_SESSIONS_MAX);
        if self.more {
            self.nodes.clear();
            self.node_links.clear();
        }
        self.nodes.truncate(STATUS_NODES_MAX);
        self.node_links.truncate(STATUS_NODE_LINKS_MAX);
        self
    }
}

/// The UCX of a daemon that is to use it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UcxStatus {
    /// Its version and the path of its library.
    pub library: String,
    /// Why it is not used, if it is not.
    pub why_not: Option<String>,
}

/// How a daemon listens by TCP.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TcpStatus {
    /// The address and the port.
    pub address: String,
    /// True if other machines may connect.
    pub is_open: bool,
    /// The fingerprint of the certificate for TLS; none without TLS.
    pub fingerprint: Option<String>,
    /// True if other machines may connect without TLS.
    pub takes_plain: bool,
}

impl TcpStatus {
    /// The addresses to which other machines connect, where `host` is the name of the daemon's, that with TLS first.
    #[must_use]
    pub fn addresses(&self, host: &str) -> Vec<String> {
        let port = self.address.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
        let (Some(port), true) = (port, self.is_open) else { return Vec::new() };
        let fingerprint = self.fingerprint.as_ref().and_then(|text| text.parse().ok());
        let tls = fingerprint.map(|fingerprint| TcpSecurity::Tls(Some(fingerprint)));
        let ways = tls.into_iter().chain(self.takes_plain.then_some(TcpSecurity::Plain));
        ways.map(|security| TcpAddress { host: host.to_owned(), port, security }.to_string()).collect()
    }
}

/// The status of a session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionStatus {
    /// The session's number.
    pub id: u64,
    /// The name that the client gave.
    pub name: Option<String>,
    /// The user id.
    pub uid: u32,
    /// The user's name; none if the reader has to look it up.
    pub user: Option<String>,
    /// The client's process id.
    pub pid: u32,
    /// The client's address, if it is connected by TCP.
    pub from: Option<String>,
    /// The devices to which the session is pinned; none if it may use all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub devices: Option<DeviceSet>,
    /// Live tensors.
    pub tensors: u64,
    /// Bytes of live tensors; views count as if they were copies.
    pub tensor_bytes: u64,
    /// Bytes held on the workers.
    pub memory_bytes: u64,
    /// The limit of `memory_bytes`; 0 for none.
    pub memory_bytes_limit: u64,
    /// Bytes of its arenas.
    pub arena_bytes: u64,
    /// The limit of the arenas of all sessions of the user together.
    pub arena_bytes_limit: u64,
    /// Instructions read since the session began.
    pub instructions: u64,
    /// Instructions in flight.
    pub queued: u64,
    /// The limit of `queued`; 0 for none.
    pub queued_limit: u64,
    /// The user's weight, which all sessions of the user share.
    pub weight: f64,
    /// The session's part of the devices' time in the last seconds, from 0 to 1.
    pub share: f64,
    /// The devices' time used since the session began, seconds.
    pub device_s: f64,
    /// The devices' time used by the user, seconds, with exponential decay.
    pub usage_s: f64,
    /// The start of the session, seconds since 1970.
    pub since: f64,
}

/// The details of one session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionDetail {
    /// The session's status.
    pub session: SessionStatus,
    /// The user's quota and usage.
    pub user: UserStatus,
    /// The memory held on each worker.
    pub workers: Vec<WorkerMemory>,
    /// Tensors that are sharded or partial.
    pub divided_tensors: u64,
    /// Allocations that failed for want of memory, or because of a limit.
    pub out_of_memory: u64,
    /// Seconds since the last submission.
    pub idle_s: f64,
}

/// The memory that a session holds on a worker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerMemory {
    /// The worker's name, as in [`WorkerInfo`].
    pub name: String,
    /// Bytes held.
    pub memory_bytes: u64,
    /// The most bytes held at one time, since the session began or reset its peak. Workers that are threads of the
    /// daemon count together.
    pub memory_bytes_peak: u64,
    /// Tensors of which the worker has all or a part.
    pub tensors: u64,
}
