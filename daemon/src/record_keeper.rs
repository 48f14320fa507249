//! The thread that writes and reads session records, so that the dispatcher waits for no disk.
//!
//! The dispatcher gives it a record at each session's end, and now and then those of all open sessions, which a crash
//! of the daemon would otherwise lose. If the disk hangs, records are lost, which is logged, and no session is held up.

use crate::record_store::RecordStore;
use gt_protocol::{RecordPage, RecordQuery, RefusalCode, Refused, SessionRecord};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The interval at which the records of open sessions are written, if any work was done.
const OPEN_EVERY: Duration = Duration::from_secs(10);
/// They are written this soon after a session began or ended.
const OPEN_SOON: Duration = Duration::from_secs(1);
/// Tasks of the thread that have not begun.
const RECORD_TASKS_MAX: usize = 4096;
/// Pages that one user may wait for at a time.
const PAGES_PER_USER_MAX: u32 = 16;
/// Bytes of the text that says how a session ended: some quote the client.
const END_BYTES_MAX: usize = 200;

enum RecordTask {
    Append(Box<SessionRecord>),
    Open(Vec<SessionRecord>),
    Page { asker: PageAsker, query: RecordQuery },
}

/// The connection that waits for a page, and its user.
#[derive(Clone, Copy, Debug)]
struct PageAsker {
    serial: u64,
    uid: u32,
}

type PageResult = Result<RecordPage, String>;

/// The dispatcher's handle of the thread.
pub struct RecordKeeper {
    tasks: SyncSender<RecordTask>,
    pages: Receiver<(PageAsker, PageResult)>,
    /// Pages that each user waits for.
    asked: HashMap<u32, u32>,
    bell: Arc<EventFd>,
    thread: JoinHandle<()>,
    /// Records that were lost since the thread was behind.
    lost: u64,
    /// When the records of open sessions are written next, if anything has changed.
    due: Instant,
    /// True if a session began or ended since they were written.
    sessions_changed: bool,
    /// The time of the last write of open sessions, by the tape's clock.
    written_ns: u64,
}

impl RecordKeeper {
    /// Starts the thread, for records in `folder` of `bytes_max` at most.
    ///
    /// # Errors
    /// The process has no descriptors or threads left.
    pub fn start(folder: PathBuf, bytes_max: u64) -> std::io::Result<RecordKeeper> {
        let bell = Arc::new(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?);
        let (tasks, todo) = sync_channel(RECORD_TASKS_MAX);
        let (done, pages) = channel();
        let rung = bell.clone();
        let work = move || keep(RecordStore::new(folder, bytes_max), &todo, &done, &rung);
        let thread = std::thread::Builder::new().name("gt-records".into()).spawn(work)?;
        let (asked, due) = (HashMap::new(), Instant::now());
        Ok(RecordKeeper { tasks, pages, asked, bell, thread, lost: 0, due, sessions_changed: false, written_ns: 0 })
    }

    /// A descriptor that becomes readable when [`RecordKeeper::page`] has a page.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    fn give(&mut self, task: RecordTask) -> bool {
        let given = self.tasks.try_send(task).is_ok();
        if !given {
            self.lost += 1;
            if self.lost.is_power_of_two() {
                let lost = self.lost;
                tracing::warn!(target: "gtd::dispatcher", "the disk is behind: {lost} records of sessions were lost");
            }
        }
        given
    }

    /// A session began: soon the records of open sessions are written.
    pub fn session_began(&mut self) {
        self.sessions_changed = true;
        self.due = self.due.min(Instant::now() + OPEN_SOON);
    }

    /// Adds the record of a session that has ended.
    pub fn session_ended(&mut self, mut record: SessionRecord) {
        let mut len = record.end.len().min(END_BYTES_MAX);
        while !record.end.is_char_boundary(len) {
            len -= 1;
        }
        record.end.truncate(len);
        self.give(RecordTask::Append(Box::new(record)));
        self.session_began();
    }

    /// When the records of open sessions are to be written; none if nothing has changed. `last_work_ns`: the time of
    /// the last work by the tape's clock.
    pub fn due(&self, last_work_ns: u64) -> Option<Instant> {
        (self.sessions_changed || last_work_ns > self.written_ns).then_some(self.due)
    }

    /// Writes the records so far of all open sessions.
    pub fn write_open(&mut self, records: Vec<SessionRecord>, now_ns: u64) {
        (self.due, self.sessions_changed, self.written_ns) = (Instant::now() + OPEN_EVERY, false, now_ns);
        self.give(RecordTask::Open(records));
    }

    /// Begins to read a page for connection `serial` of user `uid`.
    ///
    /// # Errors
    /// The user, or all users, wait for many pages already.
    pub fn ask(&mut self, serial: u64, uid: u32, query: RecordQuery) -> Result<(), Refused> {
        let asked = self.asked.entry(uid).or_default();
        if *asked < PAGES_PER_USER_MAX {
            let task = RecordTask::Page { asker: PageAsker { serial, uid }, query };
            if self.tasks.try_send(task).is_ok() {
                *asked += 1;
                return Ok(());
            }
        }
        let text = "records of sessions are being read for many who asked before: try again later";
        Err(Refused::new(RefusalCode::Exhausted, text))
    }

    /// A page that was read, and the connection that waits for it.
    pub fn page(&mut self) -> Option<(u64, Result<RecordPage, Refused>)> {
        let _ = self.bell.read();
        let (PageAsker { serial, uid }, result) = self.pages.try_recv().ok()?;
        if let Some(asked) = self.asked.get_mut(&uid) {
            *asked -= 1;
            if *asked == 0 {
                self.asked.remove(&uid);
            }
        }
        let refused = |error| Refused::new(RefusalCode::Other, format!("the records could not be read: {error}"));
        Some((serial, result.map_err(refused)))
    }

    /// Writes what is left, and that no session is open. Returns when that is done.
    pub fn close(self) {
        let RecordKeeper { tasks, thread, .. } = self;
        let _ = tasks.send(RecordTask::Open(Vec::new()));
        drop(tasks);
        let _ = thread.join();
    }
}

/// The thread.
fn keep(mut store: RecordStore, todo: &Receiver<RecordTask>, done: &Sender<(PageAsker, PageResult)>, bell: &EventFd) {
    let mut failures = 0u64;
    let mut check = |result: std::io::Result<()>| {
        let Err(error) = result else { return };
        failures += 1;
        if failures.is_power_of_two() {
            tracing::warn!(
                target: "gtd::dispatcher", %error, "records of sessions are not written ({failures} failures so far)"
            );
        }
    };
    check(store.recover());
    for task in todo {
        match task {
            RecordTask::Append(record) => check(store.append(&record)),
            RecordTask::Open(records) => check(store.write_open(&records)),
            RecordTask::Page { asker, query } => {
                let _ = done.send((asker, store.page(&query).map_err(|error| error.to_string())));
                let _ = bell.write(1);
            }
        }
    }
}
