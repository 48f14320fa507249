//! What all ranks of a local group share, and how they wait for each other.

use super::group_memory::GroupMemory;
use crate::error::CollectiveError;
use crate::operation::Operation;
use crate::sync::{Aborted, WaitPolicy, reached};
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

/// How long a rank waits for the others before it gives up, unless told otherwise.
pub const PATIENCE_DEFAULT: Duration = Duration::from_secs(600);
/// How often whoever sleeps looks whether the others live.
const TICK: Duration = Duration::from_millis(50);
/// Looks at a word before sleeping, where every rank can have a core: about 20 µs, less than a sleep and a wake cost.
const SPINS: u32 = 1000;
/// Looks before sleeping, each after letting others run, where ranks share cores.
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

/// What a waiter does before it sleeps.
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

/// One group, as this process sees it.
pub struct Group {
    pub memory: GroupMemory,
    /// All ranks are threads of this process and may follow each other's pointers.
    pub direct: bool,
    pub patience: Duration,
    spinning: Spinning,
    /// Descriptors of the other ranks' processes, once they are known.
    processes: Mutex<Vec<Option<OwnedFd>>>,
}

impl Group {
    pub fn new(memory: GroupMemory, direct: bool, patience: Duration) -> Group {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let spinning = if memory.ranks() <= cores { Spinning::Alone } else { Spinning::Yielding };
        let processes = Mutex::new((0..memory.ranks()).map(|_| None).collect());
        Group { memory, direct, patience, spinning, processes }
    }

    /// Breaks the group and wakes everybody. A rank that leaves only concerns who needs it: messages between others go
    /// on, and a graver reason takes the place of this one; otherwise the first reason stays.
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
        self.memory.enter().abort(&kernel);
        for from in 0..self.memory.ranks() {
            for to in 0..self.memory.ranks() {
                if !left || from == rank || to == rank {
                    self.memory.channel(from, to).signals().into_iter().for_each(|signal| signal.abort(&kernel));
                }
            }
        }
    }

    /// Whether it is broken otherwise than by a rank that has left.
    pub fn broken_for_good(&self) -> bool {
        let word = self.memory.reason().load(Acquire);
        word != 0 && word >> 16 != Reason::Left as u32
    }

    /// The error that a broken group means for a call.
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

    /// How `rank` waits in one call.
    pub fn watch(&self, rank: usize) -> CallWait<'_> {
        CallWait { group: self, rank, started: Cell::new(None), looked: Cell::new(None) }
    }

    /// How anybody waits for what cannot fail.
    pub fn unwatched(&self) -> PlainWait {
        PlainWait(self.spinning)
    }

    /// `rank` does not touch the others' buffers any more, until all have said so.
    pub fn depart(&self, rank: usize) {
        self.memory.rank_state(rank).done.advance(&self.unwatched());
    }

    /// Waits until every rank has said `count` times that it is done, or has died.
    ///
    /// # Errors
    /// [`Aborted`] if one has died.
    pub fn wait_for_all(&self, count: u32) -> Result<(), Aborted> {
        let kernel = DepartureWait(self);
        let waits = (0..self.memory.ranks())
            .map(|rank| self.memory.rank_state(rank).done.wait(&kernel, |done| reached(done, count)));
        waits.fold(Ok(()), Result::and)
    }

    /// Breaks the group up if a rank has died: nobody waits for it any more.
    pub fn detect_dead_ranks(&self) {
        for rank in self.dead_ranks() {
            self.break_up(Reason::Died, rank);
            self.memory.rank_state(rank).done.abort(&self.unwatched());
        }
    }

    /// Whether the end of every rank's process would be noticed.
    pub fn watches_all(&self) -> bool {
        // Looks for the first time at all of them.
        let lives = self.dead_ranks().is_empty();
        lives && self.processes.lock().unwrap_or_else(PoisonError::into_inner).iter().all(Option::is_some)
    }

    /// The ranks whose process is no more.
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
                    // Out of descriptors, or a sandbox: then patience has to do.
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

/// Waiting within one call of one rank.
pub struct CallWait<'a> {
    group: &'a Group,
    rank: usize,
    started: Cell<Option<Instant>>,
    looked: Cell<Option<Instant>>,
}

impl WaitPolicy for CallWait<'_> {
    fn spins(&self, spins: u32) -> bool {
        self.group.spinning.goes_on(spins)
    }
    fn sleep(&self, word: &AtomicU32, expected: u32) {
        futex::wait(word, expected, Some(TICK.min(self.group.patience)));
    }
    fn wake(&self, word: &AtomicU32) {
        futex::wake(word, u32::MAX);
    }
    fn check_peers(&self) {
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
        }
    }
}

/// Waiting until others are done with this rank's buffers, as long as they live.
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

/// Waits that need no watching: what is waited for comes in any case, and soon.
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
