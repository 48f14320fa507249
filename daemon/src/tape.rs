//! The tape: all events of the daemon, in one broadcast ring that permitted observers can read.
//!
//! Writing an event takes seven stores. The clock is read by [`Tape::tick`], not for each event.

use crate::flight_recorder::{FlightRecorder, TapePosition};
use crate::step_totals::StepTotalsRecorder;
use gt_ops::event::Event;
use gt_protocol::limits::TAPE_RECORDS;
use gt_shm::broadcast::{self, MappedBroadcast, Reader, Writer};
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

/// The tape's only writer.
pub struct Tape {
    writer: Writer<MappedBroadcast>,
    fd: Arc<OwnedFd>,
    start: Instant,
    now_ns: u64,
    /// The totals of its events; none while nobody asks for them.
    recorder: Option<Box<StepTotalsRecorder>>,
    /// The recorder of deaths, to whose file the tape is written; none if the system refuses the file.
    flight: Option<FlightRecorder>,
}

impl Tape {
    /// An empty tape in memory that ends with its last process, whose time starts at zero.
    ///
    /// # Errors
    /// The kernel refuses the memory.
    pub fn new() -> gt_shm::Result<Tape> {
        let (writer, fd) = broadcast::create("gt-tape", TAPE_RECORDS)?;
        Ok(Tape::of(writer, fd, None))
    }

    /// An empty tape in the file of a flight recorder, whose time starts at zero.
    ///
    /// # Errors
    /// The kernel refuses a mapping or a descriptor.
    pub fn recorded(recorder: FlightRecorder, file: &OwnedFd) -> gt_shm::Result<Tape> {
        let writer = broadcast::create_in(file, TAPE_RECORDS)?;
        // Observers get a descriptor of their own, with which they can only read.
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let fd =
            File::open(path).map_err(|source| gt_shm::Error::Os { what: "open the tape for observers", source })?;
        Ok(Tape::of(writer, fd.into(), Some(recorder)))
    }

    fn of(writer: Writer<MappedBroadcast>, fd: OwnedFd, flight: Option<FlightRecorder>) -> Tape {
        Tape { writer, fd: Arc::new(fd), start: Instant::now(), now_ns: 0, recorder: None, flight }
    }

    /// Reads the clock, for the events that follow.
    #[inline]
    pub fn tick(&mut self) -> u64 {
        self.now_ns = self.start.elapsed().as_nanos() as u64;
        self.now_ns
    }

    /// Nanoseconds from the daemon's start to the last [`tick`](Self::tick).
    #[inline]
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Writes `event` with the time of the last [`tick`](Self::tick).
    #[inline(always)]
    pub fn write(&mut self, event: Event) {
        if cfg!(feature = "unobserved") {
            return;
        }
        let event = Event { time_ns: self.now_ns, ..event };
        if self.recorder.is_some() {
            self.add_to_totals(event);
        }
        self.writer.write(&event.encode());
    }

    /// Kept out of line, so that an event need not be in memory while nobody asks for totals.
    #[cold]
    fn add_to_totals(&mut self, event: Event) {
        if let Some(recorder) = &mut self.recorder {
            recorder.add(&event);
        }
    }

    /// The flight recorder, and where the tape is.
    pub fn flight(&mut self) -> Option<(&mut FlightRecorder, TapePosition)> {
        let position = TapePosition { time_ns: self.now_ns, events: self.writer.written() };
        self.flight.as_mut().map(|flight| (flight, position))
    }

    /// Adds all events from now on to totals.
    pub fn keep_totals(&mut self) {
        self.recorder.get_or_insert_default();
    }

    /// The totals of its events, if they are kept.
    pub fn totals(&self) -> Option<&StepTotalsRecorder> {
        self.recorder.as_deref()
    }

    /// Forgets the operations of a worker, whose number another one gets.
    pub fn forget_worker(&mut self, worker: usize) {
        if let Some(recorder) = &mut self.recorder {
            recorder.forget_worker(worker);
        }
    }

    /// The descriptor for observers, which can only be mapped for reading.
    pub fn fd(&self) -> Arc<OwnedFd> {
        self.fd.clone()
    }

    /// A reader of all events since the daemon's start.
    ///
    /// # Errors
    /// The kernel refuses the mapping.
    pub fn reader(&self) -> gt_shm::Result<Reader<MappedBroadcast>> {
        broadcast::open_file(&self.fd, TAPE_RECORDS).map(Reader::from_start)
    }
}
