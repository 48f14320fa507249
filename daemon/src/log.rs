//! The instruction log: a thread that reads the tape, as any observer may, and writes a line for each event.
//!
//! A daemon continues the file of the one before, since its last lines may tell why that one ended. A file that is as
//! long as the log may be is renamed, `ops.log` to `ops.log.1`, which replaces the one before.

use gt_ops::event::{Event, LogLine};
use gt_shm::broadcast::{MappedBroadcast, Reader};
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::Duration;

/// The interval of reads. Shorter ones would slow the dispatcher down.
const READ_EVERY: Duration = Duration::from_millis(1);
/// After this many reads without an event, the thread sleeps until it is woken.
const EMPTY_READS_MAX: u32 = 20;

#[derive(Default)]
struct Flags {
    asleep: AtomicBool,
    ending: AtomicBool,
}

/// The dispatcher's handle of the thread.
pub struct InstructionLog {
    flags: Arc<Flags>,
    thread: JoinHandle<()>,
}

impl InstructionLog {
    /// Starts the thread, which writes the events of `tape` to the file at `path`, of at most about `bytes_max` bytes.
    ///
    /// # Errors
    /// The file cannot be opened, or the system refuses a thread.
    pub fn start(path: &Path, bytes_max: u64, tape: Reader<MappedBroadcast>) -> std::io::Result<InstructionLog> {
        let file = LogFile::open(path, bytes_max)?;
        let flags = Arc::new(Flags::default());
        let writer = Log { tape, file, lost: 0, flags: flags.clone() };
        let thread = std::thread::Builder::new().name("gt-log".into()).spawn(|| writer.run())?;
        Ok(InstructionLog { flags, thread })
    }

    /// Wakes the thread if it sleeps. Costs one load if it does not.
    #[inline]
    pub fn wake(&self) {
        if self.flags.asleep.load(SeqCst) && self.flags.asleep.swap(false, SeqCst) {
            self.thread.thread().unpark();
        }
    }

    /// Writes the remaining events, then ends the thread.
    pub fn finish(self) {
        self.flags.ending.store(true, SeqCst);
        self.thread.thread().unpark();
        if self.thread.join().is_err() {
            tracing::error!(target: "gtd::dispatcher", "the instruction log panicked");
        }
    }
}

struct Log {
    tape: Reader<MappedBroadcast>,
    file: LogFile,
    lost: u64,
    flags: Arc<Flags>,
}

impl Log {
    fn run(mut self) {
        let mut empty_reads = 0;
        loop {
            // Loaded before the tape is read, so that all events before the end are written.
            let ending = self.flags.ending.load(SeqCst);
            let written = match self.write_lines() {
                Ok(written) => written,
                Err(error) => {
                    tracing::error!(target: "gtd::dispatcher", %error, "the instruction log cannot be written");
                    return;
                }
            };
            if ending {
                return;
            }
            if written {
                empty_reads = 0;
                std::thread::park_timeout(READ_EVERY);
            } else if empty_reads < EMPTY_READS_MAX {
                empty_reads += 1;
                std::thread::park_timeout(READ_EVERY);
            } else if self.flags.asleep.swap(true, SeqCst) {
                // The tape was read once more after `asleep` was set, and is still empty.
                std::thread::park();
                self.flags.asleep.store(false, SeqCst);
                empty_reads = 0;
            }
        }
    }

    /// Writes a line for each new event. True if there were any.
    fn write_lines(&mut self) -> std::io::Result<bool> {
        let mut any = false;
        while let Some(record) = self.tape.read() {
            let number = self.tape.position() - 1;
            any = true;
            let lost = self.tape.lost() - self.lost;
            if lost > 0 {
                self.lost += lost;
                writeln!(self.file, "{}", LogLine::Lost(lost))?;
            }
            let line = Event::decode(&record).map_or(LogLine::OtherVersion, |event| LogLine::Event(number, event));
            writeln!(self.file, "{line}")?;
            if self.file.is_full() {
                self.file.flush()?;
            }
        }
        if any {
            self.file.flush()?;
        }
        Ok(any)
    }
}

/// The file of the log, which is replaced by a new one when it is full.
struct LogFile {
    path: PathBuf,
    to: BufWriter<File>,
    /// The length of the file; none if it is no regular file, which has no end.
    bytes: Option<u64>,
    bytes_max: u64,
}

impl LogFile {
    fn open(path: &Path, bytes_max: u64) -> std::io::Result<LogFile> {
        // The daemon may change its folder later.
        let path = std::path::absolute(path)?;
        let file = File::options().read(true).append(true).create(true).open(&path)?;
        let about = file.metadata()?;
        let bytes = about.is_file().then_some(about.len());
        let mut last = [b'\n'];
        if let Some(end @ 1..) = bytes {
            file.read_exact_at(&mut last, end - 1)?;
        }
        let mut log = LogFile { path, to: BufWriter::with_capacity(1 << 20, file), bytes, bytes_max };
        if bytes.is_some_and(|bytes| bytes > 0) {
            // The daemon before may have been killed while it wrote a line.
            let end_of_line = if last == [b'\n'] { "" } else { "\n" };
            writeln!(log, "{end_of_line}{}", LogLine::OtherDaemon(std::process::id()))?;
        }
        Ok(log)
    }

    fn is_full(&self) -> bool {
        self.bytes.is_some_and(|bytes| bytes >= self.bytes_max)
    }
}

impl Write for LogFile {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        let written = self.to.write(text)?;
        self.bytes = self.bytes.map(|bytes| bytes + written as u64);
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.to.flush()?;
        if self.is_full() {
            let mut old = OsString::from(&self.path);
            old.push(".1");
            std::fs::rename(&self.path, old)?;
            let file = File::options().append(true).create(true).open(&self.path)?;
            (self.to, self.bytes) = (BufWriter::with_capacity(1 << 20, file), Some(0));
        }
        Ok(())
    }
}
