//! A rank of a local group: how it joins, meets the others and announces its calls.

use super::channel::ChannelProgress;
use super::group::{Group, PATIENCE_DEFAULT, Reason};
use super::group_memory::{GroupMemory, LEFT, RANKS_MAX};
use super::shared_memory::SharedMemory;
use crate::call::Call;
use crate::communicator::Health;
use crate::error::{CollectiveError, Result};
use crate::exchange::{Exchange, compare};
use crate::operation::Operation;
use crate::stats::CommStats;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::Duration;

/// Bytes of a staging slot. Smaller slots need more barriers, larger ones exceed the caches: of the bound that the
/// example `bandwidth` measures, all-reduces of 64 MB by two ranks reach 0.40 with 64 KiB, 0.50 with 256 KiB and 0.67
/// with this; those of 16 MB 0.52 with this and 0.36 with 2 MiB.
const SLOT_BYTES_DEFAULT: usize = 1 << 20;
/// The alignment of a rank's piece of a slot: a cache line.
pub const PIECE_ALIGN: usize = 64;

/// Options of a local group.
#[derive(Clone, Copy, Debug)]
pub struct LocalOptions {
    /// How long a rank waits for the others before it breaks the group.
    pub patience: Duration,
    /// Bytes of a staging slot in a group of processes; rounded up to 64 per rank.
    pub slot_bytes: usize,
}

impl Default for LocalOptions {
    fn default() -> Self {
        LocalOptions { patience: PATIENCE_DEFAULT, slot_bytes: SLOT_BYTES_DEFAULT }
    }
}

/// A group of processes, and the constructors of groups.
///
/// One process creates the group and passes its descriptor to each rank, by inheritance or by [`gt_shm::Socket`]. Each
/// rank then calls [`LocalCommunicator::join`]. The group lives as long as one of its ranks.
#[derive(Debug)]
pub struct LocalGroup {
    fd: OwnedFd,
}

impl LocalGroup {
    /// The ranks of a group of `size` threads of this process.
    ///
    /// # Errors
    /// [`CollectiveError::Setup`] unless there are 1 to [`RANKS_MAX`] of them.
    pub fn threads(size: usize) -> Result<Vec<LocalCommunicator>> {
        LocalGroup::threads_with(size, LocalOptions::default())
    }

    /// As [`LocalGroup::threads`], with options.
    ///
    /// # Errors
    /// As [`LocalGroup::threads`].
    pub fn threads_with(size: usize, options: LocalOptions) -> Result<Vec<LocalCommunicator>> {
        check_size(size)?;
        let group = Arc::new(Group::new(GroupMemory::on_heap(size, 0), true, options.patience));
        Ok((0..size).map(|rank| LocalCommunicator::new(group.clone(), rank)).collect())
    }

    /// A group of `size` processes, without ranks yet.
    ///
    /// # Errors
    /// [`CollectiveError::Setup`] unless there are 1 to [`RANKS_MAX`] of them, or if the kernel refuses the memory.
    pub fn processes(size: usize, options: LocalOptions) -> Result<LocalGroup> {
        check_size(size)?;
        let unit = PIECE_ALIGN * size;
        let slot_bytes = options.slot_bytes.clamp(unit, 1 << 30).next_multiple_of(unit);
        let (_, fd) = GroupMemory::create(size, slot_bytes)?;
        Ok(LocalGroup { fd })
    }

    /// Breaks the group for all ranks, because rank `died` has died.
    ///
    /// # Errors
    /// [`CollectiveError::Setup`] if its memory cannot be mapped.
    pub fn abort(&self, died: usize) -> Result<()> {
        let fd = self.fd.try_clone().map_err(|error| CollectiveError::setup("end a group", error))?;
        let group = Group::new(GroupMemory::open(fd)?, false, PATIENCE_DEFAULT);
        group.break_up(Reason::Died, died);
        Ok(())
    }

    /// The descriptor by which ranks join; close-on-exec.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn check_size(size: usize) -> Result<()> {
    if (1..=RANKS_MAX).contains(&size) {
        return Ok(());
    }
    Err(CollectiveError::setup(format!("make a group of {size} ranks"), format!("a group has 1 to {RANKS_MAX}")))
}

/// One rank of a local group. Dropping it leaves the group, which breaks it for the others.
pub struct LocalCommunicator {
    pub(super) group: Arc<Group>,
    pub(super) rank: usize,
    /// The generation of the barrier: how many times this rank has passed it. All ranks count alike.
    pub(super) generation: u32,
    /// How many direct exchanges this rank has finished.
    pub(super) departures: u32,
    /// The mapped memories of all ranks; empty unless every rank has mapped them all.
    memories: Vec<Arc<SharedMemory>>,
    pub(super) sending: Vec<ChannelProgress>,
    pub(super) receiving: Vec<ChannelProgress>,
    pub(super) stats: CommStats,
    /// The health of a larger group of which this one is a part: its end ends the waits of this rank.
    pub(super) outer: Option<Health>,
    /// The process of this rank. A forked child, which inherits this value, must not leave the group for its parent.
    pid: u32,
}

impl LocalCommunicator {
    fn new(group: Arc<Group>, rank: usize) -> LocalCommunicator {
        let size = group.memory.ranks();
        LocalCommunicator {
            group,
            rank,
            generation: 0,
            departures: 0,
            memories: Vec::new(),
            sending: vec![ChannelProgress::default(); size],
            receiving: vec![ChannelProgress::default(); size],
            stats: CommStats::default(),
            outer: None,
            pid: std::process::id(),
        }
    }

    /// Joins a group of processes as `rank`, by the descriptor of [`LocalGroup::fd`], and waits until all ranks have.
    ///
    /// # Errors
    /// [`CollectiveError::Setup`] if the descriptor is not a group's, or if the rank does not exist or is taken; or why
    /// the group broke before it was complete.
    pub fn join(fd: OwnedFd, rank: usize, patience: Duration) -> Result<LocalCommunicator> {
        LocalCommunicator::join_sharing(fd, rank, patience, Vec::new(), None)
    }

    /// As [`LocalCommunicator::join`]. `memories` are those of all ranks, in order: buffers that lie in them are not
    /// copied. They are used only if every rank has mapped them all. `outer` is the health of a larger group of which
    /// this one is a part: its end ends the waits of this rank, from the first on.
    ///
    /// # Errors
    /// As [`LocalCommunicator::join`].
    pub fn join_sharing(
        fd: OwnedFd,
        rank: usize,
        patience: Duration,
        memories: Vec<Arc<SharedMemory>>,
        outer: Option<Health>,
    ) -> Result<LocalCommunicator> {
        let memory = GroupMemory::open(fd)?;
        let what = format!("join a group as rank {rank}");
        if rank >= memory.ranks() {
            return Err(CollectiveError::setup(what, format!("it has {} ranks", memory.ranks())));
        }
        let pid = std::process::id();
        if let Err(taken) = memory.rank_state(rank).pid.compare_exchange(0, pid, AcqRel, Acquire) {
            let who = if taken == LEFT { "it has left".to_owned() } else { format!("process {taken} is that rank") };
            return Err(CollectiveError::setup(what, format!("{who} already")));
        }
        let own = memories.get(rank).map_or(0, |memory| memory.id());
        memory.rank_state(rank).memory.store(own, Relaxed);
        let mut rank = LocalCommunicator::new(Arc::new(Group::new(memory, false, patience)), rank);
        rank.outer = outer;
        rank.pass(Operation::Barrier)?;
        // All ranks have joined. Opening their pidfds now means that a process id which is reused later is not mistaken
        // for a rank.
        rank.group.detect_dead_ranks();
        rank.share(memories)?;
        Ok(rank)
    }

    /// Makes this group a part of a larger one, whose end ends the waits of this rank.
    pub fn watch_over(&mut self, outer: Health) {
        self.outer = Some(outer);
    }

    /// Finds out whether every rank has mapped every rank's memory.
    fn share(&mut self, memories: Vec<Arc<SharedMemory>>) -> Result<()> {
        let (memory, ranks) = (&self.group.memory, self.ranks());
        let known = |rank: usize| {
            memories[rank].id() != 0 && memories[rank].id() == memory.rank_state(rank).memory.load(Relaxed)
        };
        let reaches = memories.len() == ranks && (0..ranks).all(known) && self.group.watches_all();
        memory.rank_state(self.rank).reaches.store(reaches.into(), Relaxed);
        self.pass(Operation::Barrier)?;
        if (0..ranks).all(|rank| self.group.memory.rank_state(rank).reaches.load(Relaxed) != 0) {
            self.memories = memories;
        }
        Ok(())
    }

    /// The number of ranks in the group.
    pub(super) fn ranks(&self) -> usize {
        self.group.memory.ranks()
    }

    /// Waits for all ranks at the barrier.
    pub(super) fn pass(&mut self, operation: Operation) -> Result<()> {
        let group = &*self.group;
        let ranks = group.memory.ranks() as u32;
        let watch = group.watch(self.rank, self.outer.as_ref());
        group.memory.barrier().pass(ranks, &watch).map_err(|_| group.broken(operation, self.rank))?;
        self.generation = self.generation.wrapping_add(1);
        Ok(())
    }

    /// Announces this rank's call and the address of its buffer, for the others to read after the next barrier.
    pub(super) fn announce(&self, exchange: &Exchange<'_>, offered: *mut u8, bytes: usize) {
        let memory = &self.group.memory;
        let announcement = memory.announcement(self.generation, self.rank);
        announcement.call.store(exchange.call.encode(), Relaxed);
        announcement.offered.store(offered, Relaxed);
        announcement.bytes.store(bytes as u64, Relaxed);
        for peer in 0..self.ranks() {
            memory.send_count(self.generation, self.rank, peer).store(exchange.send_counts[peer] as u64, Relaxed);
            memory.recv_count(self.generation, self.rank, peer).store(exchange.recv_counts[peer] as u64, Relaxed);
        }
    }

    /// The address by which the others reach bytes of this rank: a pointer for threads, an offset in its memory for
    /// processes; `None` if they cannot reach them.
    pub(super) fn reach(&self, start: *mut u8, bytes: usize) -> Option<*mut u8> {
        if self.group.direct {
            return Some(start);
        }
        let memory = self.memories.get(self.rank)?;
        let offset = if bytes == 0 { Some(0) } else { memory.offset_of(start, bytes) };
        offset.map(std::ptr::without_provenance_mut)
    }

    /// The buffer that `peer` announced in `generation`. Either all ranks reach it, or none does.
    pub(super) fn offered(&self, generation: u32, peer: usize) -> Option<*mut u8> {
        let announcement = self.group.memory.announcement(generation, peer);
        let offered = announcement.offered.load(Relaxed);
        if self.group.direct {
            return Some(offered);
        }
        self.memories.get(peer)?.at(offered.addr(), announcement.bytes.load(Relaxed) as usize)
    }

    /// Compares the calls that all ranks announced in `generation`.
    pub(super) fn compare(&self, call: Call, generation: u32) -> Result<()> {
        let memory = &self.group.memory;
        compare(
            call,
            self.rank,
            memory.ranks(),
            |peer| memory.call(generation, peer),
            |from, to| memory.send_count(generation, from, to).load(Relaxed),
            |to, from| memory.recv_count(generation, to, from).load(Relaxed),
        )
    }
}

impl Drop for LocalCommunicator {
    fn drop(&mut self) {
        if self.pid == std::process::id() {
            self.group.break_up(Reason::Left, self.rank);
            self.group.memory.rank_state(self.rank).pid.store(LEFT, Release);
        }
    }
}

impl std::fmt::Debug for LocalCommunicator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LocalCommunicator(rank {} of {})", self.rank, self.ranks())
    }
}
