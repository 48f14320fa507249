//! The files of session records in the daemon's state directory.
//!
//! A record is a line of JSON in `sessions.N.jsonl`. When a file has reached its part of the limit, the next record
//! begins file N+1, and the oldest file is deleted: a position, which is a file's number and an offset, stays valid for
//! as long as its record exists. `open_sessions.json` holds the records so far of sessions that have not ended. A
//! daemon that ends removes it; one that finds it was preceded by one that crashed, and adds its sessions to the
//! records.

use gt_protocol::limits::MESSAGE_BYTES_MAX;
use gt_protocol::{RecordPage, RecordPosition, RecordQuery, SessionRecord};
use std::collections::HashSet;
use std::fs::File;
use std::io::{ErrorKind, Read, Result, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

const OPEN_FILE: &str = "open_sessions.json";
const OPEN_FILE_NEXT: &str = "open_sessions.json.next";
/// A longer file of open sessions was not written by a daemon.
const OPEN_FILE_BYTES_MAX: u64 = 16 << 20;
/// The records are in this many files, so that deleting one keeps most of them.
const FILES_MAX: u64 = 4;
/// Bytes of records in one page, which with the rest of the message stay below [`MESSAGE_BYTES_MAX`].
const PAGE_BYTES_MAX: usize = MESSAGE_BYTES_MAX - 1024;
/// Bytes that are read for one page.
const READ_BYTES_MAX: u64 = 1 << 20;
/// How the sessions of a daemon that crashed ended.
const CRASHED: &str = "the daemon crashed";

/// The files, and the newest of them.
pub struct RecordStore {
    folder: PathBuf,
    file_bytes_max: u64,
    /// The newest file, its number and its length; none until the first record is written.
    newest: Option<(File, u64, u64)>,
}

impl RecordStore {
    /// The files in `folder`, all together of `bytes_max` at most.
    pub fn new(folder: PathBuf, bytes_max: u64) -> RecordStore {
        RecordStore { folder, file_bytes_max: bytes_max / FILES_MAX, newest: None }
    }

    fn path(&self, number: u64) -> PathBuf {
        self.folder.join(format!("sessions.{number}.jsonl"))
    }

    /// The numbers of the files, sorted.
    fn numbers(&self) -> Result<Vec<u64>> {
        let mut numbers = Vec::new();
        for entry in std::fs::read_dir(&self.folder)? {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix("sessions.")?.strip_suffix(".jsonl"));
            numbers.extend(number.and_then(|number| number.parse::<u64>().ok()));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Adds a record.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn append(&mut self, record: &SessionRecord) -> Result<()> {
        let mut line = serde_json::to_vec(record)?;
        line.push(b'\n');
        let (mut file, number, len) = match self.newest.take() {
            Some(newest) => newest,
            None => self.open_newest()?,
        };
        let is_full = len > 0 && len + line.len() as u64 > self.file_bytes_max;
        let (number, len) = if is_full { (number + 1, 0) } else { (number, len) };
        if is_full {
            file = self.open(number)?.0;
            for old in self.numbers()?.into_iter().filter(|old| old + FILES_MAX <= number) {
                std::fs::remove_file(self.path(old))?;
            }
        }
        // After an error, the file is opened again and its last line completed.
        file.write_all(&line)?;
        self.newest = Some((file, number, len + line.len() as u64));
        Ok(())
    }

    fn open_newest(&self) -> Result<(File, u64, u64)> {
        let number = self.numbers()?.last().copied().unwrap_or(1);
        let (mut file, mut len) = self.open(number)?;
        let mut last = [b'\n'];
        if len > 0 {
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
        }
        if last != [b'\n'] {
            // The machine or a full disk has cut this line off.
            file.write_all(b"\n")?;
            len += 1;
        }
        Ok((file, number, len))
    }

    fn open(&self, number: u64) -> Result<(File, u64)> {
        let file = File::options().create(true).read(true).append(true).open(self.path(number))?;
        let len = file.metadata()?.len();
        Ok((file, len))
    }

    /// A page of records.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn page(&self, query: &RecordQuery) -> Result<RecordPage> {
        let numbers = match self.numbers() {
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            numbers => numbers?,
        };
        let mut later = numbers.into_iter().skip_while(|number| *number < query.from.file);
        let Some(file) = later.next() else { return Ok(RecordPage::default()) };
        let mut offset = if file == query.from.file { query.from.offset } else { 0 };
        let mut text = Vec::new();
        let mut reader = File::open(self.path(file))?;
        reader.seek(SeekFrom::Start(offset))?;
        let read = reader.take(READ_BYTES_MAX).read_to_end(&mut text)? as u64;
        let mut page = RecordPage::default();
        let (mut page_bytes, mut is_full, mut any_line) = (0, false, false);
        for line in text.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n")) {
            any_line = true;
            let record = serde_json::from_slice(line).ok().filter(|record: &SessionRecord| {
                query.uid.is_none_or(|uid| uid == record.uid) && record.ended >= query.since
            });
            if let Some(record) = record.filter(|_| line.len() <= PAGE_BYTES_MAX) {
                is_full = page_bytes + line.len() > PAGE_BYTES_MAX;
                if is_full {
                    break;
                }
                page_bytes += line.len();
                page.records.push(record);
            }
            offset += line.len() as u64;
        }
        if !any_line {
            // Such a long line was not written by a daemon.
            offset += read;
        }
        page.next = if is_full || read == READ_BYTES_MAX {
            Some(RecordPosition { file, offset })
        } else {
            later.next().map(|file| RecordPosition { file, offset: 0 })
        };
        Ok(page)
    }

    /// Writes the records so far of all open sessions; removes the file if there are none.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write_open(&self, records: &[SessionRecord]) -> Result<()> {
        if records.is_empty() {
            return remove(&self.folder.join(OPEN_FILE));
        }
        let next = self.folder.join(OPEN_FILE_NEXT);
        std::fs::write(&next, serde_json::to_vec(records)?)?;
        std::fs::rename(next, self.folder.join(OPEN_FILE))
    }

    /// Adds the sessions that were open when the previous daemon crashed.
    ///
    /// # Errors
    /// If a file cannot be read or written.
    pub fn recover(&mut self) -> Result<()> {
        let path = self.folder.join(OPEN_FILE);
        let mut text = Vec::new();
        match File::open(&path) {
            Ok(file) => file.take(OPEN_FILE_BYTES_MAX).read_to_end(&mut text)?,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        let open: Vec<SessionRecord> = serde_json::from_slice(&text)?;
        let key = |record: &SessionRecord| (record.session, record.started.to_bits());
        // A session may have ended after the file was written.
        let since = open.iter().map(|record| record.started).fold(f64::INFINITY, f64::min);
        let mut ended = HashSet::new();
        let mut query = RecordQuery { since, ..RecordQuery::default() };
        loop {
            let page = self.page(&query)?;
            ended.extend(page.records.iter().map(key));
            match page.next {
                Some(next) => query.from = next,
                None => break,
            }
        }
        for record in open.into_iter().filter(|record| !ended.contains(&key(record))) {
            self.append(&SessionRecord { end: CRASHED.into(), ..record })?;
        }
        remove(&path)
    }
}

fn remove(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("gtd-records-{}-{name}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            Folder(path)
        }
        fn store(&self, bytes_max: u64) -> RecordStore {
            RecordStore::new(self.0.clone(), bytes_max)
        }
        fn bytes(&self) -> u64 {
            std::fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn record(session: u64, uid: u32) -> SessionRecord {
        let (started, ended) = (1000.0, 2000.0 + session as f64);
        SessionRecord { session, uid, started, ended, end: "it said goodbye".into(), ..SessionRecord::default() }
    }

    fn sessions(store: &RecordStore, query: RecordQuery) -> Vec<u64> {
        let (mut query, mut found) = (query, Vec::new());
        loop {
            let page = store.page(&query).unwrap();
            found.extend(page.records.iter().map(|record| record.session));
            match page.next {
                Some(next) => query.from = next,
                None => return found,
            }
        }
    }

    #[test]
    fn records_are_read_in_pages_by_user_and_time() {
        let folder = Folder::new("pages");
        let mut store = folder.store(1 << 20);
        for session in 0..1000 {
            store.append(&record(session, (session % 2) as u32)).unwrap();
        }
        let first = store.page(&RecordQuery::default()).unwrap();
        assert!(first.records.len() < 1000 && first.next.is_some());
        assert!(serde_json::to_vec(&gt_protocol::DaemonMessage::Records(first)).unwrap().len() <= MESSAGE_BYTES_MAX);
        assert_eq!(sessions(&store, RecordQuery::default()), (0..1000).collect::<Vec<_>>());
        let some = RecordQuery { uid: Some(1), since: 2995.0, ..RecordQuery::default() };
        assert_eq!(sessions(&store, some), [995, 997, 999]);
        // The next daemon continues the same file.
        drop(store);
        let mut store = folder.store(1 << 20);
        store.append(&record(1000, 7)).unwrap();
        assert_eq!(sessions(&store, RecordQuery { uid: Some(7), ..RecordQuery::default() }), [1000]);
        assert_eq!(sessions(&store, RecordQuery::default()).len(), 1001);
    }

    #[test]
    fn files_stay_below_the_limit_and_the_oldest_records_go_first() {
        let folder = Folder::new("limit");
        let mut store = folder.store(16 << 10);
        for session in 0..1000 {
            store.append(&record(session, 0)).unwrap();
            assert!(folder.bytes() <= 16 << 10);
        }
        let left = sessions(&store, RecordQuery::default());
        assert!(left.len() > 30, "{left:?}");
        assert_eq!(left, (1000 - left.len() as u64..1000).collect::<Vec<_>>());
        // A position in a file that has been deleted continues at the oldest record.
        let old = RecordQuery { from: RecordPosition { file: 1, offset: 77 }, ..RecordQuery::default() };
        assert_eq!(sessions(&store, old), left);
    }

    #[test]
    fn lines_that_are_no_records_are_skipped() {
        let folder = Folder::new("bad");
        let long = format!("{}\n", " ".repeat(2 * READ_BYTES_MAX as usize));
        let text = format!("{{\nnull\n{long}{}\n{{\"cut", serde_json::to_string(&record(3, 0)).unwrap());
        std::fs::write(folder.0.join("sessions.5.jsonl"), text).unwrap();
        std::fs::write(folder.0.join("sessions.x.jsonl"), "?").unwrap();
        let mut store = folder.store(64 << 20);
        store.append(&record(4, 0)).unwrap();
        assert_eq!(sessions(&store, RecordQuery::default()), [3, 4]);
        let far = RecordPosition { file: u64::MAX, offset: u64::MAX };
        assert_eq!(store.page(&RecordQuery { from: far, ..RecordQuery::default() }).unwrap(), RecordPage::default());
    }

    #[test]
    fn sessions_that_were_open_at_a_crash_are_recorded_once() {
        let folder = Folder::new("crash");
        let mut store = folder.store(1 << 20);
        store.write_open(&[record(1, 0), record(2, 0)]).unwrap();
        store.append(&record(2, 0)).unwrap();
        let mut store = folder.store(1 << 20);
        store.recover().unwrap();
        store.recover().unwrap();
        let ends: Vec<_> = store.page(&RecordQuery::default()).unwrap().records;
        let ends: Vec<_> = ends.iter().map(|record| (record.session, record.end.as_str())).collect();
        assert_eq!(ends, [(2, "it said goodbye"), (1, CRASHED)]);
        store.write_open(&[record(3, 0)]).unwrap();
        store.write_open(&[]).unwrap();
        store.recover().unwrap();
        assert_eq!(sessions(&store, RecordQuery::default()), [2, 1]);
    }

    #[test]
    fn a_folder_that_is_not_there_is_an_error_and_no_records() {
        let mut store = RecordStore::new("/nowhere/at/all".into(), 1 << 20);
        assert!(store.append(&record(1, 0)).is_err());
        assert_eq!(store.page(&RecordQuery::default()).unwrap(), RecordPage::default());
    }
}
