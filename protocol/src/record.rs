//! Records of ended sessions, for accounting.

use serde::{Deserialize, Serialize};

/// The resources that one session used, and how it ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionRecord {
    /// The session's number, which is unique together with `started`.
    pub session: u64,
    /// The name that the client gave.
    pub name: Option<String>,
    /// The user id.
    pub uid: u32,
    /// The client's process id.
    pub pid: u32,
    /// The client's address, if it was connected by TCP.
    pub from: Option<String>,
    /// The start of the session, seconds since 1970.
    pub started: f64,
    /// Its end, seconds since 1970.
    pub ended: f64,
    /// The devices' time used, seconds.
    pub device_s: f64,
    /// The most memory that its tensors held, bytes: the sum of the peaks on all workers.
    pub memory_bytes_peak: u64,
    /// Instructions read.
    pub instructions: u64,
    /// Tensor bytes that travelled between the program and the daemon, both ways.
    pub bytes_moved: u64,
    /// Instructions that failed, counted on each worker.
    pub errors: u64,
    /// How it ended, as a clause: `it said goodbye`.
    pub end: String,
}

/// A position among the records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordPosition {
    /// The number of the file.
    pub file: u64,
    /// The offset in it, bytes.
    pub offset: u64,
}

/// Which records are requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RecordQuery {
    /// Only those of this user; none for all users whose records the asker may read.
    pub uid: Option<u32>,
    /// Only those of sessions that ended at this time or later, seconds since 1970.
    pub since: f64,
    /// Only those at this position or later.
    pub from: RecordPosition,
}

/// Some records, oldest first. There may be none although more follow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RecordPage {
    /// The records.
    pub records: Vec<SessionRecord>,
    /// The position at which the next page begins; none if this is the last page.
    pub next: Option<RecordPosition>,
}
