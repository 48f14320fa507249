//! The port of a session: a submission ring to the daemon, a completion ring back, and a doorbell.
//!
//! The rings are in two segments, each writable by one side only:
//!
//! | segment | written by | holds |
//! |---|---|---|
//! | C (`gt-c`) | client | `sq_tail`, `cq_head`, `client_wait`, `spin_core`, submission slots |
//! | D (`gt-d`) | daemon | `sq_head`, `cq_tail`, `need_wakeup`, `state`, `notice`, completion slots |
//!
//! The daemon maps C read-only, and the client can map D only for reading. The client wakes the daemon by the session's
//! doorbell, an eventfd; the daemon wakes the client by a futex on `cq_tail`.
//!
//! The daemon never waits for a client: every call of [`DaemonPort`] returns at once. A correct client has
//! at most as many requests in flight, unread completions included, as the completion ring has slots. The daemon takes
//! work only while its completions fit: this never delays a correct client, and reading a completion does not wake the
//! daemon.
//!
//! ```
//! use gt_shm::{ClientPort, DaemonPort, Slot, port::spin_default};
//! use std::time::Duration;
//!
//! let (mut daemon, fds) = DaemonPort::create(64, 16)?; // the descriptors are sent by socket
//! let mut client = ClientPort::connect(fds, 64, 16)?;
//!
//! client.push(&[[1; 8], [2; 8]])?;
//! client.publish(); // one fence for both
//!
//! let mut batch = [Slot::default(); 64];
//! let count = daemon.pop(&mut batch)?;
//! for slot in &batch[..count] {
//!     daemon.complete(*slot)?;
//! }
//! daemon.flush_completions();
//!
//! let answer = client.wait_completion(spin_default(), Duration::from_millis(100));
//! assert_eq!(answer, Some([1; 8]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::cores;
use crate::doorbell::Doorbell;
use crate::error::Result;
use crate::futex;
use crate::mem::{MappedMem, Mem, RingLayout};
use crate::ring::{Consumer, Corrupt, Full, Producer};
use crate::segment::{Access, PAGE_BYTES, Segment};
use crate::slot::{LINE_BYTES, SLOT_BYTES, Slot};
use crate::spin::{WAIT_MAX, spin_until};
use crate::sync::AtomicU32;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::fence;
use std::time::{Duration, Instant};

/// The most slots that one [`DaemonPort::pop`] copies, for any length of `out`.
pub const POP_SLOTS_MAX: usize = 64;
/// Threads that a completion wakes: the one thread of a client's library that waits for completions. To wake all would
/// let a client with thousands of waiting threads take the dispatcher's time.
const WAITERS_MAX: u32 = 1;

const SQ: RingLayout = RingLayout { tail: 0, slots: 3 * LINE_BYTES, head: 0, asleep: 2 * LINE_BYTES };
const CQ: RingLayout = RingLayout { tail: LINE_BYTES, slots: 4 * LINE_BYTES, head: LINE_BYTES, asleep: 2 * LINE_BYTES };
const STATE_OFFSET: usize = 3 * LINE_BYTES;

/// The bytes of segment C for a submission ring of `sq_slots`.
pub fn segment_c_bytes(sq_slots: u32) -> u64 {
    (SQ.slots + sq_slots as usize * SLOT_BYTES).next_multiple_of(PAGE_BYTES) as u64
}

/// The bytes of segment D for a completion ring of `cq_slots`.
pub fn segment_d_bytes(cq_slots: u32) -> u64 {
    (CQ.slots + cq_slots as usize * SLOT_BYTES).next_multiple_of(PAGE_BYTES) as u64
}

/// The state of a session, which the daemon writes to segment D.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionState {
    /// The daemon takes submissions.
    Running,
    /// The daemon finishes earlier submissions, and takes no new ones.
    Draining,
    /// The session has ended. Its completions may still be read.
    Closed,
}

impl SessionState {
    fn to_word(self) -> u32 {
        match self {
            Self::Running => 0,
            Self::Draining => 1,
            Self::Closed => 2,
        }
    }

    fn from_word(word: u32) -> Self {
        match word {
            0 => Self::Running,
            1 => Self::Draining,
            _ => Self::Closed,
        }
    }
}

/// The three descriptors of a session, in the order in which they are sent.
#[derive(Debug)]
pub struct PortFds {
    /// Segment C.
    pub c: OwnedFd,
    /// Segment D.
    pub d: OwnedFd,
    /// The doorbell that the client rings.
    pub doorbell: OwnedFd,
}

impl PortFds {
    /// The descriptors in the order in which they are sent.
    pub fn as_array(&self) -> [BorrowedFd<'_>; 3] {
        [self.c.as_fd(), self.d.as_fd(), self.doorbell.as_fd()]
    }

    /// Names descriptors that arrived in the order in which they are sent.
    pub fn from_array([c, d, doorbell]: [OwnedFd; 3]) -> Self {
        Self { c, d, doorbell }
    }
}

/// A line of a segment, of which the first two words are used.
struct WordPair {
    words: NonNull<AtomicU32>,
    _segment: Arc<Segment>,
}

// SAFETY: `_segment` keeps the mapping of the pointer alive on any thread.
unsafe impl Send for WordPair {}
// SAFETY: the pointer is only used as a reference to an atomic, which threads may share.
unsafe impl Sync for WordPair {}

impl WordPair {
    fn new(segment: &Arc<Segment>, offset: usize) -> Self {
        Self { words: segment.at(offset, LINE_BYTES, LINE_BYTES).cast(), _segment: segment.clone() }
    }

    #[inline(always)]
    fn first(&self) -> &AtomicU32 {
        // SAFETY: `new` took the pointer from `Segment::at`, which checked bounds and alignment, and `_segment` keeps
        // the mapping alive.
        unsafe { self.words.as_ref() }
    }

    #[inline(always)]
    fn second(&self) -> &AtomicU32 {
        // SAFETY: `new` took the pointer from `Segment::at`, which checked that a whole line is there, of which this is
        // the second word, and `_segment` keeps the mapping alive.
        unsafe { self.words.add(1).as_ref() }
    }
}

/// The words in segment D for the session's state and for the number of the last notice.
struct StateWord(WordPair);

impl StateWord {
    fn new(d: &Arc<Segment>) -> Self {
        Self(WordPair::new(d, STATE_OFFSET))
    }

    #[inline(always)]
    fn get(&self) -> &AtomicU32 {
        self.0.first()
    }

    fn notice(&self) -> &AtomicU32 {
        self.0.second()
    }
}

/// The word in segment C for the core on which the client spins, beside its sleep flag: 0 if it does not spin, else the
/// core's number and 1.
struct CoreWord(WordPair);

impl CoreWord {
    fn new(c: &Arc<Segment>) -> Self {
        Self(WordPair::new(c, CQ.asleep))
    }

    #[inline(always)]
    fn get(&self) -> &AtomicU32 {
        self.0.second()
    }
}

// ------------------------------------------------------------------------------------- daemon

/// The daemon's end of a session.
pub struct DaemonPort {
    sq: Consumer<MappedMem>,
    cq: Producer<MappedMem>,
    state: StateWord,
    spin_core: CoreWord,
    doorbell: Doorbell,
}

impl DaemonPort {
    /// Creates a session with rings of `sq_slots` and `cq_slots`, and the descriptors for its client.
    ///
    /// # Errors
    /// If the system refuses a segment or the doorbell.
    ///
    /// # Panics
    /// If a ring's size is not a power of two.
    pub fn create(sq_slots: u32, cq_slots: u32) -> Result<(Self, PortFds)> {
        Self::create_with(sq_slots, cq_slots, Doorbell::new()?)
    }

    /// As [`create`](Self::create), with an existing doorbell.
    ///
    /// # Errors
    /// If the system refuses a segment.
    ///
    /// # Panics
    /// If a ring's size is not a power of two.
    pub fn create_with(sq_slots: u32, cq_slots: u32, doorbell: Doorbell) -> Result<(Self, PortFds)> {
        let c = Segment::create("gt-c", segment_c_bytes(sq_slots), Access::ReadOnly, Access::ReadWrite)?;
        let d = Segment::create("gt-d", segment_d_bytes(cq_slots), Access::ReadWrite, Access::ReadOnly)?;
        let (c, c_fd) = c.detach();
        let (d, d_fd) = d.detach();
        let fds = PortFds { c: c_fd, d: d_fd, doorbell: doorbell.try_clone()?.into() };
        let (c, d) = (Arc::new(c), Arc::new(d));
        let port = Self {
            sq: Consumer::new(MappedMem::new(&c, &d, SQ, sq_slots), 0),
            cq: Producer::new(MappedMem::new(&d, &c, CQ, cq_slots), 0),
            state: StateWord::new(&d),
            spin_core: CoreWord::new(&c),
            doorbell,
        };
        Ok((port, fds))
    }

    /// Copies at most [`POP_SLOTS_MAX`] submitted slots into the front of `out`, and frees them in the ring. Returns
    /// their number.
    ///
    /// # Errors
    /// [`Corrupt`] if the client's cursor is impossible: the session must end.
    #[inline]
    pub fn pop(&mut self, out: &mut [Slot]) -> Result<usize, Corrupt> {
        let len = out.len().min(POP_SLOTS_MAX);
        self.sq.pop(&mut out[..len])
    }

    /// True if the client has submitted slots, or corrupted its cursor. Costs one load.
    #[inline]
    pub fn has_work(&self) -> bool {
        self.sq.has_work()
    }

    /// Makes the client ring the doorbell at its next publication. True if the ring is still empty: the daemon may wait
    /// for the doorbell. False if there is work.
    #[inline]
    #[must_use = "only sleep if there is no work"]
    pub fn prepare_sleep(&self) -> bool {
        self.sq.prepare_sleep()
    }

    /// Tells the client not to ring the doorbell.
    #[inline]
    pub fn cancel_sleep(&self) {
        self.sq.cancel_sleep();
    }

    /// Writes a completion, which the next flush publishes.
    ///
    /// # Errors
    /// [`Full`] if the ring is full. Since work is admitted only while its completions fit, the client's cursor is then
    /// wrong: the session must end.
    #[inline]
    pub fn complete(&mut self, completion: Slot) -> Result<(), Full> {
        self.cq.push(&[completion])
    }

    /// Publishes the completions, and wakes the client if it waits.
    #[inline]
    pub fn flush_completions(&mut self) {
        if self.cq.publish() {
            futex::wake(self.cq.mem().tail(), WAITERS_MAX);
        }
    }

    /// The number of completions that fit. Loads the client's cursor.
    #[inline]
    pub fn free_completions(&mut self) -> u32 {
        self.cq.free_slots()
    }

    /// Sets the session's state, and wakes the client.
    pub fn set_state(&mut self, state: SessionState) {
        self.state.get().store(state.to_word(), Release);
        fence(SeqCst);
        futex::wake(self.cq.mem().tail(), WAITERS_MAX);
    }

    /// Shows the client that there is a new notice, by its number.
    pub fn set_notice(&mut self, number: u32) {
        self.state.notice().store(number, Release);
    }

    /// The core on which the client says that it [spins](Completions::tell_spin) for completions, or last did; none if
    /// it expects none soon. Costs one load.
    #[inline]
    pub fn spin_core(&self) -> Option<u32> {
        self.spin_core.get().load(Relaxed).checked_sub(1)
    }

    /// The doorbell, for `epoll`. After a wake-up, [`silence`](Doorbell::silence) it.
    pub fn doorbell(&self) -> &Doorbell {
        &self.doorbell
    }
}

// ------------------------------------------------------------------------------------- client

/// The client's end of a session. [`split`](Self::split) it if one thread waits while others submit.
pub struct ClientPort {
    submitter: Submitter,
    completions: Completions,
}

impl ClientPort {
    /// Maps the session of `fds`, with rings of `sq_slots` and `cq_slots`.
    ///
    /// # Errors
    /// If the segments differ from the daemon's announcement.
    ///
    /// # Panics
    /// If a ring's size is not a power of two: the caller must check the daemon's message first.
    pub fn connect(fds: PortFds, sq_slots: u32, cq_slots: u32) -> Result<Self> {
        let c = Segment::map_peer(fds.c, segment_c_bytes(sq_slots), Access::ReadWrite)?;
        let d = Segment::map_peer(fds.d, segment_d_bytes(cq_slots), Access::ReadOnly)?;
        let (c, d) = (Arc::new(c.detach().0), Arc::new(d.detach().0));
        Ok(Self {
            submitter: Submitter {
                sq: Producer::new(MappedMem::new(&c, &d, SQ, sq_slots), 0),
                state: StateWord::new(&d),
                doorbell: fds.doorbell.into(),
            },
            completions: Completions {
                cq: Consumer::new(MappedMem::new(&d, &c, CQ, cq_slots), 0),
                state: StateWord::new(&d),
                spin_core: CoreWord::new(&c),
            },
        })
    }

    /// The two halves, for different threads.
    pub fn split(self) -> (Submitter, Completions) {
        (self.submitter, self.completions)
    }

    /// The submitting half.
    #[inline]
    pub fn submitter(&mut self) -> &mut Submitter {
        &mut self.submitter
    }

    /// The completing half.
    #[inline]
    pub fn completions(&mut self) -> &mut Completions {
        &mut self.completions
    }

    /// See [`Submitter::push`].
    ///
    /// # Errors
    /// [`Full`] if they do not fit.
    #[inline]
    pub fn push(&mut self, slots: &[Slot]) -> Result<(), Full> {
        self.submitter.push(slots)
    }

    /// See [`Submitter::publish`].
    #[inline]
    pub fn publish(&mut self) {
        self.submitter.publish();
    }

    /// See [`Submitter::push_publish`].
    ///
    /// # Errors
    /// [`Full`] if they do not fit.
    #[inline]
    pub fn push_publish(&mut self, slots: &[Slot]) -> Result<(), Full> {
        self.submitter.push_publish(slots)
    }

    /// See [`Submitter::free_slots`].
    #[inline]
    pub fn free_slots(&mut self) -> u32 {
        self.submitter.free_slots()
    }

    /// See [`Submitter::wait_space`].
    pub fn wait_space(&mut self, slots: u32, timeout: Duration) -> bool {
        self.submitter.wait_space(slots, timeout)
    }

    /// See [`Completions::pop`].
    #[inline]
    pub fn pop_completion(&mut self) -> Option<Slot> {
        self.completions.pop()
    }

    /// See [`Completions::wait`].
    pub fn wait_completion(&mut self, spin: Duration, timeout: Duration) -> Option<Slot> {
        self.completions.wait(spin, timeout)
    }

    /// The session's state. Costs one load.
    #[inline]
    pub fn state(&self) -> SessionState {
        self.submitter.state()
    }
}

/// The submitting half of a [`ClientPort`].
pub struct Submitter {
    sq: Producer<MappedMem>,
    state: StateWord,
    doorbell: Doorbell,
}

impl Submitter {
    /// Writes all of `slots`, or none; the next [`publish`](Self::publish) makes them visible.
    ///
    /// # Errors
    /// [`Full`] if they do not fit: use [`wait_space`](Self::wait_space).
    #[inline]
    pub fn push(&mut self, slots: &[Slot]) -> Result<(), Full> {
        self.sq.push(slots)
    }

    /// Publishes the pushed slots, with one fence, and rings the doorbell if the daemon sleeps.
    #[inline]
    pub fn publish(&mut self) {
        if self.sq.publish() {
            self.ring_doorbell();
        }
    }

    /// [`push`](Self::push) and [`publish`](Self::publish).
    ///
    /// # Errors
    /// [`Full`] if they do not fit.
    #[inline]
    pub fn push_publish(&mut self, slots: &[Slot]) -> Result<(), Full> {
        self.push(slots)?;
        self.publish();
        Ok(())
    }

    /// The position in the ring that the next slot gets.
    #[inline]
    pub fn position(&self) -> u32 {
        self.sq.position()
    }

    /// Replaces the first word of the slot at `position`. False if that slot is published already: then nothing
    /// changes.
    pub fn amend(&mut self, position: u32, word: u64) -> bool {
        self.sq.amend(position, word)
    }

    /// Out of line, to keep the system call out of the hot path's code.
    #[cold]
    #[inline(never)]
    fn ring_doorbell(&self) {
        self.doorbell.ring();
    }

    /// The number of slots that fit.
    #[inline]
    pub fn free_slots(&mut self) -> u32 {
        self.sq.free_slots()
    }

    /// The number of slots pushed but not yet published.
    #[inline]
    pub fn unpublished_slots(&self) -> u32 {
        self.sq.unpublished_slots()
    }

    /// The number of slots in the ring.
    #[inline]
    pub fn capacity(&self) -> u32 {
        self.sq.capacity()
    }

    /// Publishes, then waits until `slots` slots are free, for at most `timeout`. True if they are.
    ///
    /// Polls with exponential back-off, from 20 µs to 1 ms, so that the daemon need not check for waiters at each pop.
    /// The daemon takes longer than one pause to empty a full ring, so it has work meanwhile. Call with short
    /// timeouts, and check between calls that the daemon is alive.
    pub fn wait_space(&mut self, slots: u32, timeout: Duration) -> bool {
        self.publish();
        if self.free_slots() >= slots {
            return true;
        }
        let deadline = Instant::now() + timeout.min(WAIT_MAX);
        let mut nap = SPACE_NAP_MIN;
        loop {
            std::thread::sleep(nap);
            let before = self.sq.head_seen();
            if self.free_slots() >= slots {
                return true;
            }
            if self.state() == SessionState::Closed || Instant::now() >= deadline {
                return false;
            }
            let progress = self.sq.head_seen() != before;
            nap = if progress { SPACE_NAP_MIN } else { (nap * 2).min(SPACE_NAP_MAX) };
        }
    }

    /// The number of the last notice; 0 if there was none. Costs one load.
    #[inline]
    pub fn notice(&self) -> u32 {
        self.state.notice().load(Relaxed)
    }

    /// The session's state. Costs one load.
    #[inline]
    pub fn state(&self) -> SessionState {
        SessionState::from_word(self.state.get().load(Relaxed))
    }
}

const SPACE_NAP_MIN: Duration = Duration::from_micros(20);
const SPACE_NAP_MAX: Duration = Duration::from_millis(1);

/// The completing half of a [`ClientPort`].
pub struct Completions {
    cq: Consumer<MappedMem>,
    state: StateWord,
    spin_core: CoreWord,
}

impl Completions {
    /// The next completion, if there is one.
    #[inline]
    pub fn pop(&mut self) -> Option<Slot> {
        let mut slot = [Slot::default()];
        // The daemon is trusted; a corrupt cursor counts as an empty ring.
        matches!(self.cq.pop(&mut slot), Ok(1)).then_some(slot[0])
    }

    /// Copies published completions into the front of `out`; returns their number.
    pub fn pop_many(&mut self, out: &mut [Slot]) -> usize {
        // The daemon is trusted; a corrupt cursor counts as an empty ring.
        self.cq.pop(out).unwrap_or(0)
    }

    /// True if there is a completion. Costs one load.
    #[inline]
    pub fn has_work(&self) -> bool {
        self.cq.has_work()
    }

    /// Tells the daemon whether this thread expects an answer so soon that it is about to spin on its core.
    #[inline]
    pub fn tell_spin(&self, spins: bool) {
        let (word, core) = (self.spin_core.get(), if spins { cores::current().wrapping_add(1) } else { 0 });
        // An equal store would take the line from the daemon's cache.
        if word.load(Relaxed) != core {
            word.store(core, Relaxed);
        }
    }

    /// Waits as [`wait_any`](Self::wait_any), and pops the completion.
    pub fn wait(&mut self, spin: Duration, timeout: Duration) -> Option<Slot> {
        self.pop().or_else(|| if self.wait_any(spin, timeout) { self.pop() } else { None })
    }

    /// Waits for a completion, for at most `timeout`: spins for `spin` (see [`spin_default`]), then sleeps on a futex.
    /// False after the timeout, or when the session is closed.
    ///
    /// A killed daemon cannot wake the client: use timeouts of about 100 ms, and check the socket between them.
    pub fn wait_any(&mut self, spin: Duration, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout.min(WAIT_MAX);
        if spin_until(spin.min(timeout), || self.cq.has_work()) {
            return true;
        }
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if self.cq.prepare_sleep() {
                if !left.is_zero() && self.state() != SessionState::Closed {
                    futex::wait(self.cq.mem().tail(), self.cq.empty_tail(), Some(left));
                }
                self.cq.cancel_sleep();
            }
            if self.cq.has_work() {
                return true;
            }
            if self.state() == SessionState::Closed || Instant::now() >= deadline {
                return false;
            }
        }
    }

    /// The number of the last notice; 0 if there was none. Costs one load.
    #[inline]
    pub fn notice(&self) -> u32 {
        self.state.notice().load(Relaxed)
    }

    /// The session's state. Costs one load.
    #[inline]
    pub fn state(&self) -> SessionState {
        let word = self.state.get().load(Relaxed);
        fence(Acquire);
        SessionState::from_word(word)
    }
}

/// The default spin before sleeping: long enough for a quick answer on a machine with several cores, a few microseconds
/// on two cores or one, where the spinner may occupy the core that computes the answer.
pub fn spin_default() -> Duration {
    static MICROS: std::sync::OnceLock<u64> = std::sync::OnceLock::new();
    let micros = MICROS.get_or_init(|| {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        if cores <= 2 { 4 } else { 50 }
    });
    Duration::from_micros(*micros)
}
