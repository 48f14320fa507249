//! The messages. Fields may be added with a default without a new protocol version.

use crate::PROTOCOL_VERSION;
use crate::limits::STATUS_SESSIONS_MAX;
use crate::quota::{QuotaChange, QuotaDocument, UserStatus};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a client says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "snake_case")]
pub enum ClientMessage {
    /// The first message of a connection. Answered by `welcome` or `refused`.
    Hello(Hello),
    /// A wish for one more arena. Answered by `arena_granted` with its descriptor, or `refused`.
    GrowArena {
        /// Bytes that must fit in one block, at least.
        bytes: u64,
    },
    /// A wish to observe the tape. Answered by `tape` with its descriptor, or `refused`.
    TapeAttach,
    /// A wish for the status document. Answered by `status` with as many sessions as one message
    /// holds.
    Status {
        /// Only sessions with larger numbers.
        #[serde(default)]
        after: u64,
    },
    /// A wish for the words that belong to a failed completion. Answered by `error_detail`.
    ErrorDetail {
        /// The error's number in the completion.
        error: u64,
    },
    /// A wish for what this session's workers have told each other. Answered by `traffic`, or `refused`.
    Traffic,
    /// A wish for how a tensor of this session lies on its workers. Answered by `placement`, or `refused`.
    Placement {
        /// The tensor.
        id: u64,
    },
    /// A wish for all about one session. Answered by `session`, or `refused`.
    Session {
        /// Its number.
        id: u64,
    },
    /// A wish that the most bytes that this session held count from now on. Answered by `session`, its own, or
    /// `refused`.
    ResetPeak {
        /// Only on the worker of this name; none for all.
        #[serde(default)]
        worker: Option<String>,
    },
    /// A wish that a session end. Its owner and administrators may. Answered by `killed`, or `refused`.
    Kill {
        /// Its number.
        session: u64,
    },
    /// A wish for the limits in force. Answered by `limits`, with as many users as one message holds.
    Limits {
        /// Only users with this number or a larger one.
        #[serde(default)]
        from: u32,
    },
    /// A wish for other limits, until they are changed again or the daemon ends. Administrators may, and users who want
    /// less for themselves. Answered by `limits` with this user alone, or `refused`.
    SetLimits {
        /// Whose; none for all users who have none of their own.
        #[serde(default)]
        uid: Option<u32>,
        /// What is to be different.
        change: QuotaChange,
    },
    /// A wish that no more sessions begin, and that the daemon end when the last has gone; or that it go on after all.
    /// Administrators may. Answered by `draining`, or `refused`.
    Drain {
        /// Whether to.
        on: bool,
    },
    /// A wish that the configuration be read again. Administrators may. Answered by `reloaded`, or `refused` if it is
    /// wrong: then the old one stays in force.
    Reload,
    /// What to call the session from now on. Not answered.
    Name {
        /// As in [`Hello::name`].
        name: Option<String>,
    },
    /// The last message: the session can be torn down. Not answered.
    Bye,
}

/// What the daemon says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "snake_case")]
pub enum DaemonMessage {
    /// The connection stands. For a client with the descriptors of segment C, segment D and the
    /// doorbell, in this order.
    Welcome(Welcome),
    /// Something asked for is not to be had. After a hello the connection ends; otherwise it goes on.
    Refused(Refused),
    /// One more arena, with its descriptor.
    ArenaGranted {
        /// Its number; they count from 0.
        segment: u32,
        /// Its length.
        bytes: u64,
    },
    /// The tape, with its descriptor.
    Tape {
        /// Records in the ring.
        records: u64,
    },
    /// How the daemon stands.
    Status(StatusDocument),
    /// What an error was.
    ErrorDetail {
        /// Its number.
        error: u64,
        /// The sentence for the user.
        text: String,
    },
    /// What this session's workers have told each other.
    Traffic {
        /// Those of the session, by number.
        workers: Vec<WorkerTraffic>,
    },
    /// How a tensor lies on the session's workers.
    Placement(PlacementInfo),
    /// All about one session.
    Session(Box<SessionDetail>),
    /// A session has ended; how it stood before.
    Killed(Box<SessionStatus>),
    /// The limits in force.
    Limits(QuotaDocument),
    /// The configuration was read again.
    Reloaded {
        /// The file.
        path: String,
        /// The names of what is different from now on.
        changed: Vec<String>,
        /// The names of what will be different only when the daemon is started again.
        restart: Vec<String>,
    },
    /// Whether the daemon ends when its last session has gone.
    Draining {
        /// Whether it does.
        on: bool,
        /// Sessions that there still are.
        sessions: u32,
    },
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// A session that computes.
    Client,
    /// Reads the tape and the status.
    Observer,
    /// Asks and commands, as `gtctl` does.
    Control,
    /// Computes for the daemon. After the welcome, the connection is the worker's.
    Worker,
}

/// Who connects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`PROTOCOL_VERSION`]. The one field that no version may rename.
    pub protocol_version: u32,
    /// The client's package version, for messages.
    pub client_version: String,
    /// What to call the session, or a worker, at most [`NAME_BYTES_MAX`](crate::limits::NAME_BYTES_MAX) bytes.
    #[serde(default)]
    pub name: Option<String>,
    /// What the connection is for.
    pub role: Role,
    /// For whom, if not for the process that says it. Only the daemon's own process is believed.
    #[serde(default)]
    pub on_behalf: Option<OnBehalf>,
    /// What a [`Role::Worker`] has.
    #[serde(default)]
    pub offer: Option<WorkerOffer>,
}

/// What a worker that registers has to offer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerOffer {
    /// Its process, as it sees itself.
    pub pid: u32,
    /// Threads that compute.
    pub threads: u32,
    /// Bytes that its tensors may take; 0 leaves that to its device.
    pub memory_bytes_limit: u64,
    /// What it computes on, as the daemon's configuration names it; none is the processor.
    #[serde(default)]
    pub device: Option<String>,
}

/// A client that the daemon speaks for itself: one that came by TCP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OnBehalf {
    /// Its user's number.
    pub uid: u32,
    /// Its process, as it says itself.
    pub pid: u32,
    /// Where it is.
    pub from: String,
}

impl Hello {
    /// A greeting in this version.
    pub fn new(role: Role, name: Option<String>) -> Self {
        Self {
            protocol_version: PROTOCOL_VERSION,
            client_version: env!("CARGO_PKG_VERSION").into(),
            name,
            role,
            on_behalf: None,
            offer: None,
        }
    }
}

/// The daemon's answer to a good hello.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Welcome {
    /// [`PROTOCOL_VERSION`], the daemon's.
    pub protocol_version: u32,
    /// The daemon's package version, for messages.
    pub daemon_version: String,
    /// The daemon's process.
    pub daemon_pid: u32,
    /// The session, if the role is [`Role::Client`].
    #[serde(default)]
    pub session: Option<SessionGrant>,
    /// The workers at the time.
    #[serde(default)]
    pub workers: Vec<WorkerInfo>,
}

/// What a session is given. The lengths of its segments follow from its rings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionGrant {
    /// The session's number, never used twice by one daemon.
    pub session_id: u64,
    /// Slots of the submission ring.
    pub sq_slots: u32,
    /// Slots of the completion ring.
    pub cq_slots: u32,
    /// Bytes of all arenas that the session may have.
    pub arena_bytes_max: u64,
}

/// How a worker stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerState {
    /// It works.
    #[default]
    Running,
    /// It is being started; what it is sent waits.
    Starting,
    /// It ended too often, and will be tried again later; until then what it is sent fails.
    Down,
    /// It had registered itself, and has ended: what it held is lost.
    Left,
    /// A state that this version does not know.
    #[serde(other)]
    Other,
}

/// A worker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerInfo {
    /// Its name, as users write it: `cpu:0`.
    pub name: String,
    /// The name of its backend, as in `gtd --workers`.
    pub kind: String,
    /// Threads that compute.
    #[serde(default)]
    pub threads: u32,
    /// Bytes that its tensors may take; 0 if there is no limit of its own.
    #[serde(default)]
    pub memory_bytes_limit: u64,
    /// Bytes that its tensors take now.
    #[serde(default)]
    pub memory_bytes: u64,
    /// Its process, if it has one of its own that is running.
    #[serde(default)]
    pub process: Option<u32>,
    /// How it stands.
    #[serde(default)]
    pub state: WorkerState,
    /// How often it has ended and what it held was lost.
    #[serde(default)]
    pub losses: u32,
    /// How it ended the last time.
    #[serde(default)]
    pub last_loss: Option<String>,
    /// The device that it computes on, of one that is no processor and has been ready.
    #[serde(default)]
    pub device: Option<DeviceInfo>,
}

/// An NVIDIA device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceInfo {
    /// What NVIDIA calls it.
    pub name: String,
    /// Its compute capability: 9 and 0.
    pub capability: (u32, u32),
    /// Its multiprocessors.
    pub multiprocessors: u32,
    /// Bytes of its memory, whoever uses them.
    pub memory_bytes: u64,
}

/// What a worker has told others for one session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerTraffic {
    /// Its name, as in [`WorkerInfo`].
    pub name: String,
    /// The collectives it took part in, by their names: `all_reduce`.
    pub collectives: BTreeMap<String, CollectiveTraffic>,
}

/// One kind of collective.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CollectiveTraffic {
    /// How many.
    pub count: u64,
    /// Bytes that the worker sent in them.
    pub bytes: u64,
}

/// How a tensor lies on workers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacementInfo {
    /// How.
    pub layout: PlacementLayout,
    /// The names of those that have some of it, by number.
    pub workers: Vec<String>,
    /// The axis that is cut, of a sharded tensor.
    #[serde(default)]
    pub axis: Option<u8>,
    /// How the parts are joined, of a partial tensor: `sum`.
    #[serde(default)]
    pub join: Option<String>,
}

/// How a tensor can lie on workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlacementLayout {
    /// Each has all of it; one worker has it alone.
    Replicated,
    /// Each has a stretch of an axis.
    Sharded,
    /// Each has a tensor of the whole shape, and the elements are those of all of them joined.
    Partial,
}

/// Why something is not to be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalCode {
    /// The two sides speak different versions.
    ProtocolVersion,
    /// The user, or the daemon, has as many sessions as may be.
    TooManySessions,
    /// The session's arenas would exceed their limit.
    ArenaLimit,
    /// The system has no memory or descriptors left.
    Exhausted,
    /// This user or role may not do that.
    NotPermitted,
    /// The message made no sense.
    Malformed,
    /// The daemon is ending.
    ShuttingDown,
    /// The daemon takes no more sessions, and ends when the last has gone.
    Draining,
    /// There is no such session.
    NoSession,
    /// Said unasked to a client whose session somebody ends.
    Killed,
    /// The configuration is wrong.
    Config,
    /// A reason that this version does not know.
    #[serde(other)]
    Other,
}

/// A refusal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{text}")]
pub struct Refused {
    /// For programs.
    pub code: RefusalCode,
    /// For people: what was asked, what was found, what to do.
    pub text: String,
    /// The daemon's [`PROTOCOL_VERSION`].
    pub protocol_version: u32,
    /// For limits: bytes (or sessions) held already.
    #[serde(default)]
    pub held: u64,
    /// For limits: bytes (or sessions) allowed.
    #[serde(default)]
    pub limit: u64,
}

impl Refused {
    /// A refusal for `code`, with the sentence for the user.
    pub fn new(code: RefusalCode, text: impl Into<String>) -> Self {
        Self { code, text: text.into(), protocol_version: PROTOCOL_VERSION, held: 0, limit: 0 }
    }

    /// With the numbers of the limit that was reached.
    #[must_use]
    pub fn with_limit(self, held: u64, limit: u64) -> Self {
        Self { held, limit, ..self }
    }
}

/// How the daemon stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StatusDocument {
    /// The daemon's package version.
    pub daemon_version: String,
    /// Its process.
    pub pid: u32,
    /// Seconds since it started.
    pub uptime_s: f64,
    /// Its workers.
    pub workers: Vec<WorkerInfo>,
    /// True if no more sessions begin, and the daemon ends when the last has gone.
    pub draining: bool,
    /// Its sessions, by number.
    pub sessions: Vec<SessionStatus>,
    /// True if there are sessions after the last one here.
    pub more: bool,
}

impl StatusDocument {
    /// The part that answers a wish for the sessions `after` a number: sorted, and no more than one
    /// message holds.
    #[must_use]
    pub fn page(mut self, after: u64) -> Self {
        self.sessions.retain(|session| session.id > after);
        self.sessions.sort_by_key(|session| session.id);
        self.more = self.sessions.len() > STATUS_SESSIONS_MAX;
        self.sessions.truncate(STATUS_SESSIONS_MAX);
        self
    }
}

/// How a session stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionStatus {
    /// Its number.
    pub id: u64,
    /// Its name, as the client gave it.
    pub name: Option<String>,
    /// Its user's number.
    pub uid: u32,
    /// Its user's name, if the daemon knows it; whoever shows it looks it up otherwise.
    pub user: Option<String>,
    /// Its process.
    pub pid: u32,
    /// Where that is, of one that came by TCP.
    pub from: Option<String>,
    /// Tensors that live.
    pub tensors: u64,
    /// Bytes in them, views counted as if they were copies.
    pub tensor_bytes: u64,
    /// Bytes of the workers' memory that it holds.
    pub memory_bytes: u64,
    /// Bytes of it that it may hold; 0 if there is no limit of its own.
    pub memory_bytes_limit: u64,
    /// Bytes in its arenas.
    pub arena_bytes: u64,
    /// Bytes that they may have.
    pub arena_bytes_limit: u64,
    /// Instructions taken in since it began.
    pub instructions: u64,
    /// Instructions taken in but not finished.
    pub queued: u64,
    /// So many of them may be at one time; 0 if there is no limit of its own.
    pub queued_limit: u64,
    /// Its user's weight, which the user's sessions share.
    pub weight: f64,
    /// The part of the devices' time that it had in the last seconds, from 0 to 1.
    pub share: f64,
    /// The devices' time that it has had since it began, seconds.
    pub device_s: f64,
    /// The devices' time that its user has had, seconds; what was long ago counts less.
    pub usage_s: f64,
    /// When it began, seconds since 1970.
    pub since: f64,
}

/// All about one session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionDetail {
    /// How it stands.
    pub session: SessionStatus,
    /// What its user has and may have.
    pub user: UserStatus,
    /// What it holds on each worker.
    pub workers: Vec<WorkerMemory>,
    /// Its tensors of which no worker has all.
    pub divided_tensors: u64,
    /// How often something did not fit within its limits, its user's or the daemon's.
    pub out_of_memory: u64,
    /// Seconds since it last submitted anything.
    pub idle_s: f64,
}

/// What a session holds on a worker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerMemory {
    /// The worker's name, as in [`WorkerInfo`].
    pub name: String,
    /// Bytes of its memory.
    pub memory_bytes: u64,
    /// The most bytes that it held at one time, since it began or asked for this to begin anew. Workers that are
    /// threads of the daemon count together.
    pub memory_bytes_peak: u64,
    /// Tensors of which it has all or a part.
    pub tensors: u64,
}
