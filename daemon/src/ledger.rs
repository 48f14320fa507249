//! The users' recorded usage, in a file that outlives the daemon.
//!
//! A restart does not reset usage: the file `usage.json` in the daemon's state directory holds the usage of the
//! [`fair_queue`](crate::fair_queue) and the time of the record. A separate thread writes it every few minutes, to
//! another file that is then renamed, so the file is complete at any time. An error is logged and does no other harm:
//! without the file, all users begin with the same usage.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

/// The interval of writes, if anything has changed.
const WRITE_EVERY: Duration = Duration::from_secs(300);
const FILE: &str = "usage.json";
const FILE_NEXT: &str = "usage.json.next";
/// A longer file was not written by a daemon.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// The contents of the file.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct UsageRecord {
    /// The time of the record, seconds since 1970.
    unix_s: f64,
    /// Each user's usage at that time, seconds, with exponential decay.
    usage_s: BTreeMap<u32, f64>,
}

/// The file, and the time of its next write.
pub struct Ledger {
    folder: PathBuf,
    due: Instant,
    writing: Option<JoinHandle<()>>,
}

impl Ledger {
    /// The file in `folder`. If the folder does not exist, nothing is written.
    pub fn new(folder: PathBuf) -> Ledger {
        Ledger { folder, due: Instant::now() + WRITE_EVERY, writing: None }
    }

    /// The recorded usage, and its age.
    pub fn read(&self) -> (BTreeMap<u32, f64>, Duration) {
        let path = self.folder.join(FILE);
        let record = read(&path).unwrap_or_else(|why| {
            let path = path.display();
            tracing::warn!(target: "gtd::dispatcher", "what users have had is forgotten: {path}: {why}");
            None
        });
        let UsageRecord { unix_s, usage_s } = record.unwrap_or_default();
        // If the system's clock was set back, the age is zero.
        let age = Duration::try_from_secs_f64(unix_now_s() - unix_s).unwrap_or_default();
        (usage_s, age)
    }

    /// The time of the next write.
    pub fn due(&self) -> Instant {
        self.due
    }

    /// Writes the usage in a thread, unless the previous write still runs, as on a disk that hangs.
    pub fn write_soon(&mut self, usage_s: BTreeMap<u32, f64>) {
        self.due = Instant::now() + WRITE_EVERY;
        if self.writing.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return tracing::warn!(target: "gtd::dispatcher", "what users have had is still being written");
        }
        let folder = self.folder.clone();
        match std::thread::Builder::new().name("gt-ledger".into()).spawn(move || write_or_log(&folder, usage_s)) {
            Ok(thread) => self.writing = Some(thread),
            Err(error) => tracing::warn!(target: "gtd::dispatcher", %error, "what users have had is not written"),
        }
    }

    /// Writes the usage and returns when that is done.
    pub fn close(mut self, usage_s: BTreeMap<u32, f64>) {
        // The thread writes older usage, so it must end before the newer usage is written.
        let _ = self.writing.take().map(JoinHandle::join);
        write_or_log(&self.folder, usage_s);
    }
}

fn unix_now_s() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// The contents of the file; none if there is no file.
fn read(path: &Path) -> Result<Option<UsageRecord>, String> {
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let mut text = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut text).map_err(|error| error.to_string())?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("it is longer than {FILE_BYTES_MAX} bytes"));
    }
    let record: UsageRecord = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
    match record.usage_s.iter().find(|(_, usage_s)| !usage_s.is_finite() || **usage_s < 0.0) {
        Some((uid, usage_s)) => Err(format!("user {uid} cannot have had {usage_s} seconds")),
        None => Ok(Some(record)),
    }
}

fn write_or_log(folder: &Path, usage_s: BTreeMap<u32, f64>) {
    if let Err(error) = write(folder, &UsageRecord { unix_s: unix_now_s(), usage_s }) {
        let path = folder.join(FILE);
        tracing::warn!(target: "gtd::dispatcher", %error, "what users have had is not written to {}", path.display());
    }
}

fn write(folder: &Path, record: &UsageRecord) -> std::io::Result<()> {
    let next = folder.join(FILE_NEXT);
    let mut file = std::fs::File::create(&next)?;
    file.write_all(&serde_json::to_vec(record)?)?;
    file.sync_all()?;
    std::fs::rename(next, folder.join(FILE))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("gtd-ledger-{}-{name}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            Folder(path)
        }
        fn says(&self, text: &str) {
            std::fs::write(self.0.join(FILE), text).unwrap();
        }
        fn read(&self) -> (BTreeMap<u32, f64>, Duration) {
            Ledger::new(self.0.clone()).read()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn usage_is_read_by_the_next_daemon() {
        let folder = Folder::new("next");
        assert_eq!(folder.read().0, BTreeMap::new(), "there is no file yet");
        let usage = BTreeMap::from([(0, 1.5), (1000, 7200.25)]);
        let mut ledger = Ledger::new(folder.0.clone());
        ledger.write_soon(BTreeMap::from([(0, 1.0)]));
        ledger.close(usage.clone());
        assert_eq!(folder.read().0, usage);
        assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 1, "no other file is left");
    }

    #[test]
    fn a_record_has_an_age() {
        let folder = Folder::new("age");
        folder.says(&format!(r#"{{"unix_s": {}, "usage_s": {{"7": 3.0}}}}"#, unix_now_s() - 7200.0));
        let (usage, age) = folder.read();
        assert_eq!((usage[&7], age.as_secs() / 60), (3.0, 120));
        folder.says(r#"{"unix_s": 1e15, "usage_s": {}}"#);
        assert_eq!(folder.read().1, Duration::ZERO, "the clock was set back");
    }

    #[test]
    fn an_invalid_file_counts_as_none() {
        let folder = Folder::new("bad");
        let long = " ".repeat(FILE_BYTES_MAX as usize + 1);
        for text in [
            "",
            "{",
            "\0\0\0\0",
            r#"{"unix_s": 1}"#,
            r#"{"unix_s": 1, "usage_s": {"ana": 1}}"#,
            r#"{"unix_s": 1, "usage_s": {"1": -1}}"#,
            r#"{"unix_s": 1, "usage_s": {"1": 1e999}}"#,
            &long,
        ] {
            folder.says(text);
            assert!(read(&folder.0.join(FILE)).is_err(), "{text:?}");
            assert_eq!(folder.read().0, BTreeMap::new(), "{text:?}");
        }
        // The next write replaces it.
        Ledger::new(folder.0.clone()).close(BTreeMap::from([(1, 2.0)]));
        assert_eq!(folder.read().0, BTreeMap::from([(1, 2.0)]));
    }

    #[test]
    fn a_full_disk_keeps_what_was_written_before() {
        let folder = Folder::new("full");
        let usage = BTreeMap::from([(0, 1.5)]);
        Ledger::new(folder.0.clone()).close(usage.clone());
        std::os::unix::fs::symlink("/dev/full", folder.0.join(FILE_NEXT)).unwrap();
        let mut ledger = Ledger::new(folder.0.clone());
        ledger.write_soon(BTreeMap::from([(0, 2.0)]));
        ledger.close(BTreeMap::from([(0, 3.0)]));
        assert_eq!(folder.read().0, usage);
    }

    #[test]
    fn a_folder_that_is_not_there_does_no_harm() {
        let ledger = Ledger::new("/nowhere/at/all".into());
        assert_eq!(ledger.read().0, BTreeMap::new());
        ledger.close(BTreeMap::from([(1, 2.0)]));
    }
}
