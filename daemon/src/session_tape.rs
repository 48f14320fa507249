//! Copies of the tape with the events of one session, for users who may not see those of others.
//!
//! A thread of the copy's own reads the tape as any observer does, and writes the events of the session to a ring that
//! the user's program can map. So the dispatcher does nothing for it, and a program that does not read loses events of
//! its own copy.

use gt_ops::event::{Event, EventKind};
use gt_protocol::limits::TAPE_RECORDS;
use gt_protocol::tape::{NumberedRecord, TapeCopy, TapeReader};
use gt_shm::broadcast::{self, MappedBroadcast, Reader, Writer};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// The copies that one user's connections may have at a time. Each has a thread, and a ring as large as the tape.
pub const SESSION_TAPES_PER_UID_MAX: usize = 4;
/// The copies of all users.
pub const SESSION_TAPES_MAX: usize = 32;
/// The interval at which the tape is read: as often as observers should.
const READ_EVERY: Duration = Duration::from_millis(1);

/// A copy of the tape with the events of one session. It goes on until it is dropped, or the session ends.
pub struct SessionTape {
    has_ended: Arc<AtomicBool>,
}

impl SessionTape {
    /// Begins to copy the events of `session` from the tape of the descriptor `tape`. Also returns the descriptor of
    /// the copy.
    ///
    /// # Errors
    /// The system has no memory or no thread left.
    pub fn begin(tape: &OwnedFd, session: u64) -> gt_shm::Result<(SessionTape, OwnedFd)> {
        let reader = TapeReader::new(Reader::from_oldest(broadcast::open_file(tape, TAPE_RECORDS)?));
        let (mut writer, copy) = broadcast::create("gt-session-tape", TAPE_RECORDS)?;
        let mut numbers = TapeCopy::default();
        numbers.begin(0, |record| writer.write(record));
        let has_ended = Arc::new(AtomicBool::new(false));
        let ended = has_ended.clone();
        let copies = move || copy_events(reader, writer, numbers, session, &ended);
        let started = std::thread::Builder::new().name("gt-session-tape".into()).spawn(copies);
        started.map_err(|source| gt_shm::Error::Os { what: "start a thread", source })?;
        Ok((SessionTape { has_ended }, copy))
    }
}

impl Drop for SessionTape {
    fn drop(&mut self) {
        self.has_ended.store(true, Relaxed);
    }
}

/// Copies the events of `session`. Their numbers count them alone, and what was lost of all sessions' events.
fn copy_events(
    mut tape: TapeReader,
    mut writer: Writer<MappedBroadcast>,
    mut copy: TapeCopy,
    session: u64,
    has_ended: &AtomicBool,
) {
    let (mut events, mut lost) = (0u64, 0);
    while !has_ended.load(Relaxed) {
        while let Some(NumberedRecord { record, .. }) = tape.read() {
            events += tape.lost() - std::mem::replace(&mut lost, tape.lost());
            let Some(event) = Event::decode(&record).filter(|event| event.session == session) else { continue };
            copy.add(&NumberedRecord { number: events, record }, |record| writer.write(record));
            events += 1;
            if event.kind == EventKind::Disconnect {
                return;
            }
        }
        std::thread::sleep(READ_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gt_ops::event::{NO_WORKER, Subject};
    use std::time::Instant;

    const PATIENCE: Duration = Duration::from_secs(30);

    fn event(session: u64, kind: EventKind, result: u64) -> [u64; 7] {
        let (subject, worker) = (Subject::Sync, NO_WORKER);
        Event { time_ns: 1, kind, subject, worker, session, bytes: 0, result, left: 0, right: 0, run_ns: 0 }.encode()
    }

    #[test]
    fn a_copy_has_the_events_of_its_session_alone() {
        let (mut writer, tape) = broadcast::create("gt-tape", TAPE_RECORDS).unwrap();
        for result in 0..3000 {
            writer.write(&event(result % 3, EventKind::Recv, result));
        }
        let (_copying, copy) = SessionTape::begin(&tape, 2).unwrap();
        let mut reader = TapeReader::new(Reader::from_start(broadcast::open(copy, TAPE_RECORDS).unwrap()));
        writer.write(&event(1, EventKind::Disconnect, 0));
        writer.write(&event(2, EventKind::Disconnect, 0));
        let (mut found, begun) = (Vec::new(), Instant::now());
        while !found.last().is_some_and(|(_, event): &(u64, Event)| event.kind == EventKind::Disconnect) {
            assert!(begun.elapsed() < PATIENCE, "{} events", found.len());
            match reader.read() {
                Some(NumberedRecord { number, record }) => found.push((number, Event::decode(&record).unwrap())),
                None => std::thread::yield_now(),
            }
        }
        assert!(found.iter().all(|(_, event)| event.session == 2));
        assert!(found.iter().map(|(number, _)| *number).eq(0..1001));
        assert_eq!(reader.lost(), 0);
    }
}
