//! The tape: all events of the daemon, in one broadcast ring that permitted observers can read.
//!
//! Writing an event takes seven stores. The clock is read by [`Tape::tick`], not for each event.

use crate::flight_recorder::FlightRecorder;
use crate::step_totals::StepTotalsRecorder;
use gt_ops::event::Event;
use gt_protocol::limits::TAPE_RECORDS;
use gt_shm::broadcast::{self, MappedBroadcast, Reader, Writer};
use std::os::fd::OwnedFd;
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
    /// The recorder of the last events before a death; none if the system refuses its file.
    flight: Option<FlightRecorder>,
}

impl Tape {
    /// An empty tape, whose time starts at zero.
    ///
    /// # Errors
    /// The kernel refuses the memory.
    pub fn new() -> gt_shm::Result<Tape> {
        let (writer, fd) = broadcast::create("gt-tape", TAPE_RECORDS)?;
        let fd = Arc::new(fd);
        Ok(Tape { writer, fd, start: Instant::now(), now_ns: 0, recorder: None, flight: None })
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
    #[inline]
    pub fn write(&mut self, event: Event) {
        if cfg!(feature = "unobserved") {
            return;
        }
        let event = Event { time_ns: self.now_ns, ..event };
        if let Some(recorder) = &mut self.recorder {
            recorder.add(&event);
        }
        let record = event.encode();
        if let Some(flight) = &mut self.flight {
            flight.write(&record);
        }
        self.writer.write(&record);
    }

    /// Writes all events from now on to a flight recorder as well.
    pub fn record_flight(&mut self, recorder: FlightRecorder) {
        self.flight = Some(recorder);
    }

    /// The flight recorder, and the time of the last [`tick`](Self::tick).
    pub fn flight(&mut self) -> Option<(&mut FlightRecorder, u64)> {
        self.flight.as_mut().map(|flight| (flight, self.now_ns))
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
        let fd = self.fd.try_clone().map_err(|source| gt_shm::Error::Os { what: "share the tape", source })?;
        broadcast::open(fd, TAPE_RECORDS).map(Reader::from_start)
    }
}
