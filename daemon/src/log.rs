//! The instruction log: a thread that reads the tape like any observer and writes a line an event.

use gt_ops::text::Event;
use gt_shm::broadcast::{MappedBroadcast, Reader};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::Duration;

/// A reader that looked more often would slow the dispatcher down.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// After so many looks at nothing the thread sleeps until it is woken.
const LOOKS_AT_NOTHING_MAX: u32 = 20;

#[derive(Default)]
struct Flags {
    asleep: AtomicBool,
    ending: AtomicBool,
}

/// The dispatcher's end.
pub struct InstructionLog {
    flags: Arc<Flags>,
    thread: JoinHandle<()>,
}

impl InstructionLog {
    /// Starts to write what `tape` says to a new file at `path`.
    ///
    /// # Errors
    /// If the file cannot be made, or the system has no thread left.
    pub fn start(path: &Path, tape: Reader<MappedBroadcast>) -> std::io::Result<InstructionLog> {
        let file = BufWriter::with_capacity(1 << 20, File::create(path)?);
        let flags = Arc::new(Flags::default());
        let writer = Log { tape, file, lost: 0, flags: flags.clone() };
        let thread = std::thread::Builder::new().name("gt-log".into()).spawn(|| writer.run())?;
        Ok(InstructionLog { flags, thread })
    }

    /// Says that there is something to write: one load, unless the thread sleeps.
    #[inline]
    pub fn wake(&self) {
        if self.flags.asleep.load(SeqCst) && self.flags.asleep.swap(false, SeqCst) {
            self.thread.thread().unpark();
        }
    }

    /// Writes what is left, and ends.
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
    file: BufWriter<File>,
    lost: u64,
    flags: Arc<Flags>,
}

impl Log {
    fn run(mut self) {
        let mut looks_at_nothing = 0;
        loop {
            // Read before the tape is: what was written before the end is then seen.
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
                looks_at_nothing = 0;
                std::thread::park_timeout(LOOK_EVERY);
            } else if looks_at_nothing < LOOKS_AT_NOTHING_MAX {
                looks_at_nothing += 1;
                std::thread::park_timeout(LOOK_EVERY);
            } else if self.flags.asleep.swap(true, SeqCst) {
                // Looked once more after the flag went up, and still nothing.
                std::thread::park();
                self.flags.asleep.store(false, SeqCst);
                looks_at_nothing = 0;
            }
        }
    }

    /// All lines that can be written now. True if there were any.
    fn write_lines(&mut self) -> std::io::Result<bool> {
        let mut any = false;
        while let Some(record) = self.tape.read() {
            let number = self.tape.position() - 1;
            any = true;
            let lost = self.tape.lost() - self.lost;
            if lost > 0 {
                self.lost += lost;
                writeln!(self.file, "... {lost} events lost")?;
            }
            match Event::decode(&record) {
                Some(event) => writeln!(self.file, "{}", event.line(number))?,
                None => writeln!(self.file, "... an event of another version")?,
            }
        }
        if any {
            self.file.flush()?;
        }
        Ok(any)
    }
}
