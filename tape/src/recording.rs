//! Recordings: the last events before a daemon, a worker or a client died, in files of `/dev/shm`.
//!
//! The daemon's tape is a ring in a file of memory. The file outlives the daemon, however that ends, until the machine
//! is switched off, and a daemon that ends as it should removes it. When a client or a worker dies, the daemon copies
//! the newest events to another file, which has holes in place of the others. A file is one page, whose first word is
//! the ring's, with a header in JSON behind [`MAGIC`]; the slots of the ring; and, in a copy, the lines of the programs
//! in JSON. A daemon that lives holds a lock on its own file.

use crate::event_lines::{EventLines, LineCollector};
use gt_ops::event::{Event, EventKind, LogLine};
use gt_protocol::limits::TAPE_RECORDS;
use gt_shm::broadcast::{RECORD_WORDS, Record, segment_bytes};
use gt_shm::labels::LabelReader;
use gt_shm::segment::PAGE_BYTES;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The slots of the ring: those of the tape.
pub const RING_RECORDS: u64 = TAPE_RECORDS;
/// The events of a recording.
pub const EVENTS_KEPT: usize = 10_000;
/// The environment variable that names the folder of recordings.
pub const FOLDER_ENV: &str = "GT_RECORDINGS";
/// The folder in which each user has a folder of recordings, unless [`FOLDER_ENV`] names another.
pub const FOLDERS: &str = "/dev/shm";
/// The begin of the names of the users' folders.
pub const FOLDER_PREFIX: &str = "gt-recordings-";
/// The end of the names of recordings.
const SUFFIX: &str = ".flight";
/// The text that a header begins with.
const MAGIC: &[u8] = b"GT flight recording 1\n";
/// Where the header begins, bytes: after the cache line of the ring's word.
const HEADER_OFFSET: usize = 64;
/// The longest header, with the text before it, bytes.
const HEADER_BYTES_MAX: usize = PAGE_BYTES - HEADER_OFFSET;
/// The longest text of lines, bytes; without them a recording is shown as well.
const LINES_BYTES_MAX: u64 = 4 << 20;
const WORD_BYTES: usize = size_of::<u64>();
const SLOT_BYTES: usize = (RECORD_WORDS + 1) * WORD_BYTES;

/// The program or worker that died.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "what")]
pub enum DeadParty {
    /// A program that had a session.
    Client {
        /// The session's number.
        session: u64,
        /// The program's process.
        process: u32,
        /// The program's user.
        uid: u32,
    },
    /// The process of a worker.
    Worker {
        /// The worker's number.
        worker: u16,
    },
}

/// A death that the daemon noticed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordedDeath {
    /// The program or worker that died.
    #[serde(flatten)]
    pub party: DeadParty,
    /// How it ended, a clause.
    pub how: String,
    /// The time on the tape's clock, nanoseconds.
    pub time_ns: u64,
    /// The number of events until then.
    pub events: u64,
}

/// The header of a recording.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordingHeader {
    /// The daemon's version.
    pub version: String,
    /// The daemon's process.
    pub daemon_process: u32,
    /// When the daemon began, seconds since 1970: the zero of the tape's clock.
    pub began_s: f64,
    /// The names of the workers, by number.
    pub workers: Vec<String>,
    /// The death that the recording is of; none if it is the daemon's own.
    pub death: Option<RecordedDeath>,
}

impl RecordingHeader {
    /// The bytes of the header and where they go in the file. Names that do not fit are left out.
    pub fn encode(&self) -> (u64, Vec<u8>) {
        let bytes_of = |header: &RecordingHeader| {
            let json = serde_json::to_vec(header).unwrap_or_default();
            [MAGIC, &json, b"\n"].concat()
        };
        let mut bytes = bytes_of(self);
        if bytes.len() > HEADER_BYTES_MAX {
            bytes = bytes_of(&RecordingHeader { workers: Vec::new(), ..self.clone() });
        }
        bytes.truncate(HEADER_BYTES_MAX);
        (HEADER_OFFSET as u64, bytes)
    }
}

/// The bytes of a recording without lines.
pub fn file_bytes() -> u64 {
    segment_bytes(RING_RECORDS).unwrap_or_default()
}

/// The folder of the recordings of user `uid`'s daemons.
pub fn folder(uid: u32) -> PathBuf {
    match std::env::var_os(FOLDER_ENV) {
        Some(named) if !named.is_empty() => named.into(),
        _ => Path::new(FOLDERS).join(format!("{FOLDER_PREFIX}{uid}")),
    }
}

/// The recordings of one kind, `daemon`, `worker` or `client`, are called so, with the time and the daemon's process.
pub fn file_name(kind: &str, unix_ms: u64, daemon_process: u32) -> String {
    format!("{kind}-{unix_ms:015}-{daemon_process}{SUFFIX}")
}

/// The recordings in `folder`, oldest first, with those of daemons that live.
///
/// # Errors
/// The folder cannot be read.
pub fn files(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if time_of(&path).is_some() {
            files.push(path);
        }
    }
    files.sort_by_key(|path| (time_of(path), path.clone()));
    Ok(files)
}

/// The time in a recording's name, milliseconds since 1970.
fn time_of(path: &Path) -> Option<u64> {
    let mut parts = path.file_name()?.to_str()?.strip_suffix(SUFFIX)?.split('-');
    parts.next()?;
    parts.next()?.parse().ok()
}

/// A file that is no recording, or cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The system cannot read the file.
    #[error("{0}")]
    Read(#[from] std::io::Error),
    /// The file is shorter or longer than a recording.
    #[error("it is no whole recording: it has {found} bytes, not {} and some lines", file_bytes())]
    Length {
        /// The bytes that it has.
        found: u64,
    },
    /// The header is not a recording's, or another version's.
    #[error("it is no recording of this version of GT")]
    Foreign,
}

/// A recording that was read.
#[derive(Clone, Debug)]
pub struct FlightRecording {
    /// The header.
    pub header: RecordingHeader,
    /// The last events, oldest first, with their numbers.
    pub lines: Vec<LogLine>,
    /// The lines of the programs that issued the instructions, as far as they were known.
    pub sources: EventLines,
    /// Whether the daemon that writes it lives.
    pub is_open: bool,
}

impl FlightRecording {
    /// Reads the recording at `path`.
    ///
    /// # Errors
    /// The file cannot be read, or is none.
    pub fn read(path: &Path) -> Result<FlightRecording, RecordingError> {
        let file = File::options().read(true).custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32).open(path)?;
        let about = file.metadata()?;
        if !about.is_file() || !(file_bytes()..=file_bytes() + LINES_BYTES_MAX).contains(&about.size()) {
            return Err(RecordingError::Length { found: about.size() });
        }
        let is_open = file.try_lock_shared().is_err();
        let mut bytes = Vec::with_capacity(about.size() as usize);
        file.take(file_bytes() + LINES_BYTES_MAX).read_to_end(&mut bytes)?;
        if (bytes.len() as u64) < file_bytes() {
            return Err(RecordingError::Length { found: bytes.len() as u64 });
        }
        let (ring, sources) = bytes.split_at(file_bytes() as usize);
        let (page, slots) = ring.split_at(PAGE_BYTES);
        let text = page[HEADER_OFFSET..].strip_prefix(MAGIC).ok_or(RecordingError::Foreign)?;
        let json = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let header: RecordingHeader = serde_json::from_slice(json).map_err(|_| RecordingError::Foreign)?;
        let end = header.death.as_ref().map_or(u64::MAX, |death| death.events);
        let sources = serde_json::from_slice(sources).unwrap_or_default();
        Ok(FlightRecording { lines: lines(slots, end), sources, header, is_open })
    }

    /// The line of the program that issued the instruction of `step`, an event of a worker, if it is known.
    pub fn source_of(&self, step: &Event) -> Option<&str> {
        let key = |event: &Event| (event.session, event.subject, event.result);
        self.lines.iter().rev().find_map(|line| match line {
            LogLine::Event(number, event) if event.kind == EventKind::Recv && key(event) == key(step) => {
                self.sources.line(*number)
            }
            _ => None,
        })
    }

    /// The time of the last event on the tape's clock, or of the death, nanoseconds.
    pub fn end_ns(&self) -> u64 {
        let last = self.lines.iter().rev().find_map(|line| match line {
            LogLine::Event(_, event) => Some(event.time_ns),
            _ => None,
        });
        self.header.death.as_ref().map_or(last.unwrap_or_default(), |death| death.time_ns)
    }
}

/// The lines of the programs that issued the instructions of a recording, `bytes`, before event `end`, as they go
/// behind it. `attach` gives the labels of a session.
pub fn encoded_lines(bytes: &[u8], end: u64, mut attach: impl FnMut(u64) -> Option<LabelReader>) -> Vec<u8> {
    let mut collector = LineCollector::default();
    for line in lines(bytes.get(PAGE_BYTES..).unwrap_or_default(), end) {
        if let LogLine::Event(number, event) = line {
            collector.take(number, &event, &mut attach);
        }
    }
    let lines = collector.finish();
    let text = if lines.is_empty() { Vec::new() } else { serde_json::to_vec(&lines).unwrap_or_default() };
    if text.len() as u64 <= LINES_BYTES_MAX { text } else { Vec::new() }
}

/// Clears the slots of a recording, `bytes`, besides those of the newest events before event `end`.
pub fn keep_newest(bytes: &mut [u8], end: u64) {
    let Some(slots) = bytes.get_mut(PAGE_BYTES..) else { return };
    let kept: HashSet<u64> = newest(slots, end).iter().map(|(number, _)| number % RING_RECORDS).collect();
    for (index, slot) in slots.chunks_exact_mut(SLOT_BYTES).enumerate() {
        if !kept.contains(&(index as u64)) {
            slot.fill(0);
        }
    }
}

/// The newest events before number `end`.
fn lines(slots: &[u8], end: u64) -> Vec<LogLine> {
    let decode = |(number, words): (u64, Record)| {
        Event::decode(&words).map_or(LogLine::OtherVersion, |event| LogLine::Event(number, event))
    };
    newest(slots, end).into_iter().map(decode).collect()
}

/// The newest records before number `end`, with their numbers. A slot that was being written is left out.
fn newest(slots: &[u8], end: u64) -> Vec<(u64, Record)> {
    let mut records: Vec<(u64, Record)> = Vec::new();
    for (index, slot) in slots.chunks_exact(SLOT_BYTES).enumerate() {
        let mut words = slot.chunks_exact(WORD_BYTES).map(|word| {
            let mut bytes = [0; WORD_BYTES];
            bytes.copy_from_slice(word);
            u64::from_ne_bytes(bytes)
        });
        let sequence = words.next().unwrap_or_default();
        let mut record = [0; RECORD_WORDS];
        record.iter_mut().zip(words).for_each(|(to, word)| *to = word);
        // The writer of record `n` leaves `2n + 2`, and an odd number while it writes.
        if sequence >= 2 && sequence.is_multiple_of(2) {
            let number = sequence / 2 - 1;
            if number % RING_RECORDS == index as u64 && number < end {
                records.push((number, record));
            }
        }
    }
    records.sort_unstable_by_key(|(number, _)| *number);
    records.split_off(records.len().saturating_sub(EVENTS_KEPT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gt_ops::event::{EventKind, NO_WORKER, Subject};

    fn image(events: u64, header: &RecordingHeader) -> Vec<u8> {
        let mut bytes = vec![0; file_bytes() as usize];
        let (offset, text) = header.encode();
        bytes[offset as usize..][..text.len()].copy_from_slice(&text);
        for number in 0..events {
            let event = Event {
                time_ns: 10 * number,
                kind: EventKind::Recv,
                subject: Subject::Sync,
                worker: NO_WORKER,
                session: 1,
                bytes: 64,
                result: 0,
                left: 0,
                right: 0,
                run_ns: 0,
            };
            let slot = PAGE_BYTES + (number % RING_RECORDS) as usize * SLOT_BYTES;
            let words = std::iter::once(2 * number + 2).chain(event.encode());
            for (at, word) in words.enumerate() {
                bytes[slot + at * WORD_BYTES..][..WORD_BYTES].copy_from_slice(&word.to_ne_bytes());
            }
        }
        bytes
    }

    fn header(death: Option<RecordedDeath>) -> RecordingHeader {
        RecordingHeader { version: "1".into(), daemon_process: 7, began_s: 1e9, workers: vec!["cpu:0".into()], death }
    }

    fn numbers(recording: &FlightRecording) -> (u64, u64, usize) {
        let number = |line: &LogLine| if let LogLine::Event(number, _) = line { *number } else { u64::MAX };
        let (first, last) = (recording.lines.first().map(number), recording.lines.last().map(number));
        (first.unwrap(), last.unwrap(), recording.lines.len())
    }

    #[test]
    fn the_last_events_before_the_death_are_read() {
        let folder = std::env::temp_dir().join(format!("gt-recording-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join(file_name("client", 5, 7));
        let events = 2 * RING_RECORDS;
        std::fs::write(&path, image(events, &header(None))).unwrap();
        let recording = FlightRecording::read(&path).unwrap();
        assert_eq!(numbers(&recording), (events - 10_000, events - 1, EVENTS_KEPT));
        assert_eq!((recording.end_ns(), recording.is_open), (10 * (events - 1), false));
        let party = DeadParty::Client { session: 1, process: 3, uid: 0 };
        let death = RecordedDeath { party, how: "it hung up".into(), time_ns: 150_000, events: events - 5_000 };
        let mut copy = image(events, &header(Some(death.clone())));
        keep_newest(&mut copy, death.events);
        let full = |slot: &&[u8]| slot.iter().any(|byte| *byte != 0);
        assert_eq!(copy[PAGE_BYTES..].chunks(SLOT_BYTES).filter(full).count(), EVENTS_KEPT);
        std::fs::write(&path, copy).unwrap();
        let recording = FlightRecording::read(&path).unwrap();
        // The daemon went on writing while it copied: newer events are left out.
        let (first, last) = (events - 15_000, events - 5_001);
        assert_eq!((numbers(&recording), recording.end_ns()), ((first, last, EVENTS_KEPT), 150_000));
        assert_eq!(recording.header, header(Some(death)));
        assert_eq!(files(&folder).unwrap(), [path]);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn other_files_are_refused() {
        let folder = std::env::temp_dir().join(format!("gt-no-recording-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join(file_name("client", 5, 7));
        let read = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            FlightRecording::read(&path).unwrap_err().to_string()
        };
        let whole = image(5, &header(None));
        assert!(read(&whole[..9000]).starts_with("it is no whole recording: it has 9000 bytes, not "));
        assert_eq!(read(&vec![0xff; whole.len()]), "it is no recording of this version of GT");
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", &path).unwrap();
        assert!(matches!(FlightRecording::read(&path), Err(RecordingError::Read(_))));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
