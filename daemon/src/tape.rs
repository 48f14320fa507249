//! The tape: every event of the daemon, in one broadcast ring that anybody allowed may watch.
//!
//! Writing an event is seven stores. The clock is read once a pass of the dispatcher, not once an event.

use gt_ops::text::Event;
use gt_protocol::limits::TAPE_RECORDS;
use gt_shm::broadcast::{self, MappedBroadcast, Reader, Writer};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

/// The tape's only writer.
pub struct Tape {
    writer: Writer<MappedBroadcast>,
    fd: OwnedFd,
    start: Instant,
    now_ns: u64,
}

impl Tape {
    /// An empty tape. Its time starts now.
    ///
    /// # Errors
    /// If the kernel refuses the memory.
    pub fn new() -> gt_shm::Result<Tape> {
        let (writer, fd) = broadcast::create("gt-tape", TAPE_RECORDS)?;
        Ok(Tape { writer, fd, start: Instant::now(), now_ns: 0 })
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

    /// Writes `event`, whose time becomes that of the last [`tick`](Self::tick).
    #[inline]
    pub fn write(&mut self, event: Event) {
        self.writer.write(&Event { time_ns: self.now_ns, ..event }.encode());
    }

    /// The descriptor that observers get; it can be mapped for reading only.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// An observer of everything since the daemon's start.
    ///
    /// # Errors
    /// If the kernel refuses the mapping.
    pub fn reader(&self) -> gt_shm::Result<Reader<MappedBroadcast>> {
        let fd = self.fd.try_clone().map_err(|source| gt_shm::Error::Os { what: "share the tape", source })?;
        broadcast::open(fd, TAPE_RECORDS).map(Reader::from_start)
    }
}
