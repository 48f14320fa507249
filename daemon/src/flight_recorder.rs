//! The flight recorder: the tape lies in a file of memory, which outlives the daemon.
//!
//! The file is the daemon's user's alone, who may read the tape and end the daemon anyway, so that it needs no seals.
//! When a client or a worker dies, a thread copies the newest events, so that the dispatcher goes on.
//! [`gt_tape::recording`] has the format, and reads it.

use gt_shm::labels::LabelReader;
use gt_shm::segment::PAGE_BYTES;
use gt_tape::recording::{
    DeadParty, RecordedDeath, RecordingHeader, encoded_lines, file_bytes, file_name, files, keep_newest,
};
use std::collections::HashMap;
use std::fs::{DirBuilder, File};
use std::io::{Error, ErrorKind, Result};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

/// The recordings of each kind that are kept: of daemons, workers and clients. The oldest are deleted.
const KEPT_OF_A_KIND: usize = 4;
/// The least time between two copies, so that programs that die in a row do not keep the machine busy.
const COPY_EVERY: Duration = Duration::from_secs(1);
/// The rights of the folder and of the files: the daemon's user alone, and root.
const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// A position on the tape.
#[derive(Clone, Copy, Debug)]
pub struct TapePosition {
    /// The time on its clock, nanoseconds.
    pub time_ns: u64,
    /// The number of events until then.
    pub events: u64,
}

/// The memory in which each session shares the lines of its program, and its length.
pub type SessionsLines = HashMap<u64, (Arc<OwnedFd>, u64)>;

/// The recorder of a daemon. Dropping it removes the daemon's file: the daemon ends as it should.
pub struct FlightRecorder {
    folder: PathBuf,
    path: PathBuf,
    /// The file, which is locked.
    file: File,
    header: RecordingHeader,
    /// The losses of each worker that were recorded.
    losses: Vec<u64>,
    copied: Option<Instant>,
    copying: Option<JoinHandle<()>>,
}

impl FlightRecorder {
    /// Begins a recording in `folder`, for a daemon with these workers. Returns the recorder and the file for the tape.
    ///
    /// # Errors
    /// The folder is another user's or others may write to it, or the system refuses the file.
    pub fn start(folder: PathBuf, workers: Vec<String>) -> Result<(FlightRecorder, OwnedFd)> {
        own_folder(&folder)?;
        prune(&folder, "daemon");
        let now = since_1970();
        let header = RecordingHeader {
            version: env!("CARGO_PKG_VERSION").into(),
            daemon_process: std::process::id(),
            began_s: now.as_secs_f64(),
            workers,
            death: None,
        };
        let path = folder.join(file_name("daemon", now.as_millis() as u64, header.daemon_process));
        let file = new_file(&path)?;
        let begun = file.try_lock().map_err(Error::from).and_then(|()| begin(&file, &header));
        match begun {
            Ok(tape) => {
                let (losses, copied, copying) = (Vec::new(), None, None);
                Ok((FlightRecorder { folder, path, file, header, losses, copied, copying }, tape))
            }
            Err(error) => {
                let _ = std::fs::remove_file(&path);
                Err(error)
            }
        }
    }

    /// Keeps a copy for the death of a client, when the tape was at `when`.
    pub fn client_died(&mut self, party: DeadParty, how: &str, when: TapePosition, lines: SessionsLines) {
        self.keep("client", party, how, when, lines);
    }

    /// Keeps a copy for the death of `worker`.
    pub fn worker_died(&mut self, worker: usize, how: &str, when: TapePosition, lines: SessionsLines) {
        self.keep("worker", DeadParty::Worker { worker: worker as u16 }, how, when, lines);
    }

    /// Notes that `worker` has had `losses`. True if it died since the last call.
    pub fn note_losses(&mut self, worker: usize, losses: u64) -> bool {
        if self.losses.len() <= worker {
            self.losses.resize(worker + 1, 0);
        }
        std::mem::replace(&mut self.losses[worker], losses) != losses
    }

    #[cold]
    fn keep(&mut self, kind: &'static str, party: DeadParty, how: &str, when: TapePosition, lines: SessionsLines) {
        let is_due = self.copied.is_none_or(|copied| copied.elapsed() >= COPY_EVERY);
        if !is_due || self.copying.as_ref().is_some_and(|copying| !copying.is_finished()) {
            return;
        }
        self.copied = Some(Instant::now());
        let TapePosition { time_ns, events } = when;
        let death = RecordedDeath { party, how: how.into(), time_ns, events };
        let header = RecordingHeader { death: Some(death), ..self.header.clone() };
        let Ok(from) = self.file.try_clone() else { return };
        let folder = self.folder.clone();
        let copy = move || match copy(&from, &folder, kind, &header, &lines) {
            Ok(path) => {
                let path = path.display();
                tracing::info!(target: "gtd::dispatcher", "the last events before the death of a {kind} are in {path}");
            }
            Err(error) => {
                tracing::warn!(target: "gtd::dispatcher", %error, "the last events of a {kind} could not be kept");
            }
        };
        self.copying = std::thread::Builder::new().name("gt-recording".into()).spawn(copy).ok();
    }
}

impl Drop for FlightRecorder {
    fn drop(&mut self) {
        if let Some(copying) = self.copying.take() {
            let _ = copying.join();
        }
        let _ = std::fs::remove_file(&self.path);
    }
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// Makes the folder, or checks that nobody else can write to it: everybody can make one of its name in `/dev/shm`.
fn own_folder(folder: &Path) -> Result<()> {
    match DirBuilder::new().mode(FOLDER_MODE).create(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let about = std::fs::symlink_metadata(folder)?;
    let uid = nix::unistd::geteuid().as_raw();
    if !about.is_dir() || about.uid() != uid || about.mode() & 0o022 != 0 {
        let folder = folder.display();
        return Err(Error::new(
            ErrorKind::PermissionDenied,
            format!("{folder} is no folder to which user {uid} alone may write"),
        ));
    }
    Ok(())
}

fn new_file(path: &Path) -> Result<File> {
    File::options().read(true).write(true).create_new(true).mode(FILE_MODE).open(path)
}

/// Gives `file` its memory and its header. Returns it for the tape.
fn begin(file: &File, header: &RecordingHeader) -> Result<OwnedFd> {
    // A write to a mapping that the system has no memory for would end the daemon: the memory is taken now.
    rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, file_bytes())?;
    let (offset, bytes) = header.encode();
    file.write_all_at(&bytes, offset)?;
    file.try_clone().map(OwnedFd::from)
}

/// Copies the recording `from` into a file of its own, with another header. Returns its path.
fn copy(from: &File, folder: &Path, kind: &str, header: &RecordingHeader, lines: &SessionsLines) -> Result<PathBuf> {
    let mut bytes = vec![0; file_bytes() as usize];
    from.read_exact_at(&mut bytes, 0)?;
    let (offset, text) = header.encode();
    bytes[offset as usize..PAGE_BYTES].fill(0);
    bytes[offset as usize..][..text.len()].copy_from_slice(&text);
    let end = header.death.as_ref().map_or(u64::MAX, |death| death.events);
    // A program may write to its lines: they are read by a reader that trusts nothing.
    let attach = |session: u64| {
        let (fd, bytes) = lines.get(&session)?;
        LabelReader::map(fd.try_clone().ok()?, *bytes).ok()
    };
    keep_newest(&mut bytes, end);
    let lines = encoded_lines(&bytes, end, attach);
    prune(folder, kind);
    let path = folder.join(file_name(kind, since_1970().as_millis() as u64, header.daemon_process));
    let written = new_file(&path).and_then(|file| write_sparse(&file, &bytes, &lines));
    if let Err(error) = written {
        let _ = std::fs::remove_file(&path);
        return Err(error);
    }
    Ok(path)
}

/// Writes `bytes` with holes in place of the pages without events, and `lines` behind them.
fn write_sparse(file: &File, bytes: &[u8], lines: &[u8]) -> Result<()> {
    for (number, page) in bytes.chunks(PAGE_BYTES).enumerate() {
        if page.iter().any(|byte| *byte != 0) {
            file.write_all_at(page, (number * PAGE_BYTES) as u64)?;
        }
    }
    file.set_len((bytes.len() + lines.len()) as u64)?;
    file.write_all_at(lines, bytes.len() as u64)
}

/// Deletes the oldest recordings of a kind, so that one more can be kept. Those of daemons that live stay.
fn prune(folder: &Path, kind: &str) {
    let is_dead = |path: &PathBuf| {
        let is_of_kind = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(kind.as_bytes()));
        is_of_kind && File::open(path).is_ok_and(|file| file.try_lock_shared().is_ok())
    };
    let dead: Vec<PathBuf> = files(folder).unwrap_or_default().into_iter().filter(is_dead).collect();
    for old in &dead[..(dead.len() + 1).saturating_sub(KEPT_OF_A_KIND)] {
        let _ = std::fs::remove_file(old);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gt_tape::recording::FlightRecording;

    fn temporary(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("gt-flight-{name}-{}", std::process::id()))
    }

    #[test]
    fn a_bounded_number_of_recordings_is_kept() {
        let folder = temporary("kept");
        for _ in 0..KEPT_OF_A_KIND + 2 {
            let (mut recorder, _) = FlightRecorder::start(folder.clone(), vec!["cpu:0".into()]).unwrap();
            let when = TapePosition { time_ns: 5, events: 0 };
            assert!(recorder.note_losses(0, 1) && !recorder.note_losses(0, 1));
            recorder.worker_died(0, "was killed", when, SessionsLines::new());
            recorder.worker_died(0, "was killed", when, SessionsLines::new());
            drop(recorder);
        }
        let kept = files(&folder).unwrap();
        assert!((1..=KEPT_OF_A_KIND).contains(&kept.len()), "{kept:?}");
        assert_eq!(FlightRecording::read(&kept[0]).unwrap().header.death.unwrap().how, "was killed");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_daemon_that_lives_keeps_its_recording() {
        let folder = temporary("living");
        let alive: Vec<_> =
            (0..KEPT_OF_A_KIND + 2).map(|_| FlightRecorder::start(folder.clone(), Vec::new())).collect();
        assert!(FlightRecording::read(&alive[0].as_ref().unwrap().0.path).unwrap().is_open);
        drop(alive);
        assert!(files(&folder).unwrap().is_empty());
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_folder_that_others_may_write_to_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let folder = temporary("open");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).unwrap();
        let error = FlightRecorder::start(folder.clone(), Vec::new()).err().unwrap();
        assert!(error.to_string().contains("is no folder to which user"), "{error}");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
