//! The state that the ranks of a local group share, how they wait for each other, and how a group breaks.

use super::group_memory::GroupMemory;
use crate::communicator::{Health, SharedValue};
use crate::error::CollectiveError;
use crate::operation::Operation;
use crate::sync::{Aborted, WaitPolicy, reached};
use gt_backend::{is_preemptible, preemption_point};
use gt_shm::futex;
use gt_shm::sync::AtomicU32;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::{AcqRel, Acquire};
use std::time::{Duration, Instant};

/// The default patience of a rank.
pub const PATIENCE_DEFAULT: Duration = Duration::from_secs(600);
/// How often a sleeping rank checks whether the others live.
const TICK: Duration = Duration::from_millis(50);
/// How often a sleeping rank passes a preemption point, if its call is preemptible.
const PREEMPTION_TICK: Duration = Duration::from_millis(1);
/// Spins before sleeping, where every rank can have a core: about 20 µs, less than sleeping and waking costs.
const SPINS: u32 = 1000;
/// Spins before sleeping where ranks share cores, each after a yield.
const YIELDS: u32 = 16;

/// Why a group is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Reason {
    Aborted = 1,
    Died = 2,
    Left = 3,
    TimedOut = 4,
}

/// How a waiter spins before it sleeps.
#[derive(Clone, Copy)]
enum Spinning {
    Alone,
    Yielding,
}

impl Spinning {
    fn goes_on(self, spins: u32) -> bool {
        match self {
            Spinning::Alone => spins < SPINS,
            Spinning::Yielding => {
                std::thread::yield_now();
                spins < YIELDS
            }
        }
    }
}

/// A group, as this process sees it.
pub struct Group {
    pub memory: GroupMemory,
    /// Whether all ranks are threads of this process, which may follow each other's pointers.
    pub direct: bool,
    pub patience: Duration,
    spinning: Spinning,
    /// The pidfds of the ranks' processes, as far as they are open.
    processes: Mutex<Vec<Option<OwnedFd>>>,
    /// The values on their way from one rank to another, if all are threads of this process.
    values: Mutex<Vec<Option<SharedValue>>>,
}

impl Group {
    pub fn new(memory: GroupMemory, direct: bool, patience: Duration) -> Group {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let spinning = if memory.ranks() <= cores { Spinning::Alone } else { Spinning::Yielding };
        let processes = Mutex::new((0..memory.ranks()).map(|_| None).collect());
        let values = if direct { 2 * memory.ranks() * memory.ranks() } else { 0 };
        let values = Mutex::new((0..values).map(|_| None).collect());
        Group { memory, direct, patience, spinning, processes, values }
    }

    /// Keeps a value of `rank` for each rank, until they take them after the barrier of `generation`.
    pub fn give_values(&self, generation: u32, rank: usize, values: Vec<SharedValue>) {
        let mut kept = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        for (peer, value) in values.into_iter().enumerate() {
            kept[self.value_index(generation, rank, peer)] = Some(value);
        }
    }

    /// The values of every rank for `rank`, by rank; none if one is missing.
    pub fn take_values(&self, generation: u32, rank: usize) -> Option<Vec<SharedValue>> {
        let mut kept = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        let peers = 0..self.memory.ranks();
        // All are taken, even if one is missing.
        let taken: Vec<_> = peers.map(|peer| kept[self.value_index(generation, peer, rank)].take()).collect();
        taken.into_iter().collect()
    }

    /// Drops the values of `rank` that the others have not taken.
    pub fn drop_values(&self, generation: u32, rank: usize) {
        let mut kept = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        let peers = 0..self.memory.ranks();
        let dropped: Vec<_> = peers.map(|peer| kept[self.value_index(generation, rank, peer)].take()).collect();
        drop(kept);
        drop(dropped);
    }

    /// The index of a value in a double buffer: a rank may give the values of a generation while others still take
    /// those of the one before.
    fn value_index(&self, generation: u32, from: usize, to: usize) -> usize {
        let ranks = self.memory.ranks();
        (generation as usize % 2 * ranks + from) * ranks + to
    }

    /// Breaks the group and wakes all waiters. The first reason stays, except that a graver one replaces a departure: a
    /// rank that leaves concerns only the calls that need it, and messages between other ranks go on.
    pub fn break_up(&self, reason: Reason, rank: usize) {
        let left = reason == Reason::Left;
        let word = (reason as u32) << 16 | rank as u32;
        let mut now = self.memory.reason().load(Acquire);
        while now == 0 || (now >> 16 == Reason::Left as u32 && !left) {
            match self.memory.reason().compare_exchange(now, word, AcqRel, Acquire) {
                Ok(_) => break,
                Err(other) => now = other,
            }
        }
        let kernel = self.unwatched();
        self.memory.barrier().abort(&kernel);
        for from in 0..self.memory.ranks() {
            for to in 0..self.memory.ranks() {
                if !left || from == rank || to == rank {
                    self.memory.channel(from, to).signals().into_iter().for_each(|signal| signal.abort(&kernel));
                }
            }
        }
    }

    /// Whether the group is broken by more than a departure.
    pub fn broken_for_good(&self) -> bool {
        let word = self.memory.reason().load(Acquire);
        word != 0 && word >> 16 != Reason::Left as u32
    }

    /// The error of a call in a broken group.
    pub fn broken(&self, operation: Operation, rank: usize) -> CollectiveError {
        let word = self.memory.reason().load(Acquire);
        let peer = (word & 0xffff) as usize;
        match word >> 16 {
            2 => CollectiveError::Died { operation, rank, peer },
            3 => CollectiveError::Left { operation, rank, peer },
            4 => CollectiveError::TimedOut { operation, rank, by: peer, waited: self.patience },
            _ => CollectiveError::Aborted { operation, rank, by: peer },
        }
    }

    /// The wait policy of one call of `rank`. `outer` is the health of a larger group of which this one is a part.
    pub fn watch<'a>(&'a self, rank: usize, outer: Option<&'a Health>) -> CallWait<'a> {
        CallWait { group: self, rank, outer, started: Cell::new(None), looked: Cell::new(None) }
    }

    /// The wait policy of waits that always end soon.
    pub fn unwatched(&self) -> PlainWait {
        PlainWait(self.spinning)
    }

    /// Tells the others that `rank` has finished with their buffers.
    pub fn depart(&self, rank: usize) {
        self.memory.rank_state(rank).done.advance(&self.unwatched());
    }

    /// Waits until every rank has finished `count` direct exchanges or has died.
    ///
    /// # Errors
    /// [`Aborted`] if one has died.
    pub fn wait_for_all(&self, count: u32) -> Result<(), Aborted> {
        let kernel = DepartureWait(self);
        let waits = (0..self.memory.ranks())
            .map(|rank| self.memory.rank_state(rank).done.wait(&kernel, |done| reached(done, count)));
        waits.fold(Ok(()), Result::and)
    }

    /// Breaks the group if a rank has died, so that no rank waits for it.
    pub fn detect_dead_ranks(&self) {
        for rank in self.dead_ranks() {
            self.break_up(Reason::Died, rank);
            self.memory.rank_state(rank).done.abort(&self.unwatched());
        }
    }

    /// Whether the death of every rank's process would be noticed.
    pub fn watches_all(&self) -> bool {
        // The first check opens a pidfd for every rank.
        let lives = self.dead_ranks().is_empty();
        lives && self.processes.lock().unwrap_or_else(PoisonError::into_inner).iter().all(Option::is_some)
    }

    /// The ranks whose process has ended.
    pub fn dead_ranks(&self) -> Vec<usize> {
        let mut dead = Vec::new();
        if self.direct {
            return dead;
        }
        let mut processes = self.processes.lock().unwrap_or_else(PoisonError::into_inner);
        for (rank, process) in processes.iter_mut().enumerate() {
            // Only a rank that has joined, and has not left, can die: 0 and `LEFT` are no process ids.
            let pid = i32::try_from(self.memory.rank_state(rank).pid.load(Acquire));
            let Some(pid) = pid.ok().and_then(Pid::from_raw) else { continue };
            if process.is_none() {
                match pidfd_open(pid, PidfdFlags::empty()) {
                    Ok(fd) => *process = Some(fd),
                    Err(Errno::SRCH) => {
                        dead.push(rank);
                        continue;
                    }
                    // Without a pidfd (no descriptors are left, or a sandbox forbids it), only the end of patience ends
                    // a wait for this process.
                    Err(_) => continue,
                }
            }
            let Some(fd) = process else { continue };
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            if poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&now)).is_ok_and(|count| count > 0) {
                dead.push(rank);
            }
        }
        dead
    }
}

/// The wait policy of one call of one rank: the death of a rank, the end of the larger group or of patience ends the
/// wait.
pub struct CallWait<'a> {
    group: &'a Group,
    rank: usize,
    outer: Option<&'a Health>,
    started: Cell<Option<Instant>>,
    looked: Cell<Option<Instant>>,
}

impl WaitPolicy for CallWait<'_> {
    fn spins(&self, spins: u32) -> bool {
        self.group.spinning.goes_on(spins)
    }
    fn sleep(&self, word: &AtomicU32, expected: u32) {
        let tick = if is_preemptible() { PREEMPTION_TICK } else { TICK };
        futex::wait(word, expected, Some(tick.min(self.group.patience)));
    }
    fn wake(&self, word: &AtomicU32) {
        futex::wake(word, u32::MAX);
    }
    fn check_peers(&self) {
        preemption_point();
        let now = Instant::now();
        let started = self.started.get().unwrap_or(now);
        self.started.set(Some(started));
        let looked = self.looked.get().unwrap_or(started);
        self.looked.set(Some(looked));
        if now - started >= self.group.patience {
            self.group.break_up(Reason::TimedOut, self.rank);
        } else if now - looked >= TICK {
            self.looked.set(Some(now));
            self.group.detect_dead_ranks();
            if self.outer.is_some_and(|outer| outer.check().is_err()) {
                self.group.break_up(Reason::Aborted, self.rank);
            }
        }
    }
}

/// The wait policy for the departure of ranks from this rank's buffers: the death of a rank ends the wait.
struct DepartureWait<'a>(&'a Group);

impl WaitPolicy for DepartureWait<'_> {
    fn spins(&self, spins: u32) -> bool {
        self.0.spinning.goes_on(spins)
    }
    fn sleep(&self, word: &AtomicU32, expected: u32) {
        futex::wait(word, expected, Some(TICK));
    }
    fn wake(&self, word: &AtomicU32) {
        futex::wake(word, u32::MAX);
    }
    fn check_peers(&self) {
        self.0.detect_dead_ranks();
    }
}

/// A wait policy without checks, for events that happen soon in any case.
pub struct PlainWait(Spinning);

impl WaitPolicy for PlainWait {
    fn spins(&self, spins: u32) -> bool {
        self.0.goes_on(spins)
    }
    fn sleep(&self, word: &AtomicU32, expected: u32) {
        futex::wait(word, expected, Some(TICK));
    }
    fn wake(&self, word: &AtomicU32) {
        futex::wake(word, u32::MAX);
    }
    fn check_peers(&self) {}
}
