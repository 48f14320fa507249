//! The two sources of a tape: a running daemon, and a file of text.

use gt_ops::event::{Event, LogLine};
use gt_protocol::{NumberedRecord, TapeReader};
use gt_shm::Socket;
use std::io::BufRead;
use std::time::Duration;

/// The interval at which an observer reads. Shorter ones would slow the dispatcher down.
pub const READ_EVERY: Duration = Duration::from_millis(1);
/// The longest line of a log, bytes: longer ones are not a log's.
const LINE_BYTES_MAX: usize = 4096;

/// An observer of a daemon's tape, which the daemon never waits for.
pub struct TapeObserver {
    reader: TapeReader,
    lost: u64,
}

impl TapeObserver {
    /// Attaches to the tape of the daemon at the other end of `socket`, for the events of all sessions or at least
    /// those of `session`. The first events are the oldest that are at least half a ring from being overwritten.
    ///
    /// # Errors
    /// The errors of [`gt_protocol::attach_tape`]: this user may not read them, or the daemon is gone.
    pub fn attach(socket: &Socket, session: Option<u64>) -> gt_protocol::Result<TapeObserver> {
        Ok(TapeObserver { reader: gt_protocol::attach_tape(socket, session)?, lost: 0 })
    }

    /// Passes the events since the last call to `take`, with a [`LogLine::Lost`] before those behind a gap. At most a
    /// ring's events at a time, so that it ends while the daemon writes as fast as this reads.
    pub fn read_new(&mut self, mut take: impl FnMut(LogLine)) {
        for _ in 0..gt_protocol::limits::TAPE_RECORDS {
            let Some(NumberedRecord { number, record }) = self.reader.read() else { return };
            let lost = self.reader.lost() - self.lost;
            if lost > 0 {
                self.lost += lost;
                take(LogLine::Lost(lost));
            }
            take(Event::decode(&record).map_or(LogLine::OtherVersion, |event| LogLine::Event(number, event)));
        }
    }

    /// Whether the events come later than on the tape: from a copy of it.
    pub fn is_copy(&self) -> bool {
        self.reader.is_copy()
    }

    /// The number of events that were overwritten before this observer read them.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

/// A file that is no instruction log, or cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LogFileError {
    /// The system cannot read the file.
    #[error("{0}")]
    Read(#[from] std::io::Error),
    /// The first line is not a log's.
    #[error("it is no instruction log: its first line is {0:?}")]
    Foreign(String),
    /// The file has no lines.
    #[error("it is empty")]
    Empty,
}

/// The irregularities of a log that was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogReading {
    /// The number of lines.
    pub lines: u64,
    /// The number of lines that are none of a log's.
    pub unreadable: u64,
    /// Whether the last line is cut off.
    pub is_cut_off: bool,
    /// The number of daemons that continued the file of an earlier one.
    pub daemons_more: u64,
    /// Whether it has more lines than were asked for.
    pub has_more: bool,
}

/// Passes the lines of an instruction log to `take`, at most `lines_max`. Lines that are not a log's are counted and
/// passed over, unless the first one is.
///
/// # Errors
/// The file cannot be read, is empty, or is no log.
pub fn read_log(
    mut file: impl BufRead,
    lines_max: u64,
    mut take: impl FnMut(LogLine),
) -> Result<LogReading, LogFileError> {
    let mut reading = LogReading::default();
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        let length = std::io::Read::take(&mut file, LINE_BYTES_MAX as u64).read_until(b'\n', &mut bytes)?;
        if length == 0 {
            return if reading.lines == 0 { Err(LogFileError::Empty) } else { Ok(reading) };
        }
        if reading.lines == lines_max {
            reading.has_more = true;
            return Ok(reading);
        }
        let is_whole = bytes.ends_with(b"\n");
        let text = String::from_utf8_lossy(&bytes);
        match text.trim_end_matches('\n').parse::<LogLine>() {
            Ok(line) => {
                reading.daemons_more += u64::from(matches!(line, LogLine::OtherDaemon(_)));
                take(line);
            }
            Err(_) if reading.lines == 0 => {
                const SHOWN: usize = 60;
                return Err(LogFileError::Foreign(text.trim_end().chars().take(SHOWN).collect()));
            }
            Err(_) if !is_whole && length < LINE_BYTES_MAX => reading.is_cut_off = true,
            Err(_) => reading.unreadable += 1,
        }
        reading.lines += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str =
        "  0.125s | #0043 | RECV         | CLIENT session_3       | Sync            | 64B | op=sync at=125\n";

    fn read(text: &str, lines_max: u64) -> (Result<LogReading, LogFileError>, usize) {
        let mut taken = 0;
        (read_log(text.as_bytes(), lines_max, |_| taken += 1), taken)
    }

    #[test]
    fn a_log_is_read_to_where_it_is_cut_off() {
        let text =
            format!("{LINE}... 7 events lost\ngarbage\n... another daemon begins, process 4\n{LINE}  0.125s | #00");
        let (reading, taken) = read(&text, u64::MAX);
        let expected = LogReading { lines: 6, unreadable: 1, is_cut_off: true, daemons_more: 1, has_more: false };
        assert_eq!((reading.unwrap(), taken), (expected, 4));
    }

    #[test]
    fn a_long_log_is_read_in_part() {
        let (reading, taken) = read(&LINE.repeat(9), 4);
        assert_eq!((reading.unwrap().has_more, taken), (true, 4));
        assert!(!read(&LINE.repeat(4), 4).0.unwrap().has_more);
    }

    #[test]
    fn other_files_are_refused() {
        assert!(matches!(read("", 9).0, Err(LogFileError::Empty)));
        let foreign = read("\u{7f}ELF and so on", 9).0.unwrap_err().to_string();
        assert_eq!(foreign, "it is no instruction log: its first line is \"\\u{7f}ELF and so on\"");
        assert!(read_log(&[0xff; 10_000][..], 9, |_| ()).is_err());
    }
}
