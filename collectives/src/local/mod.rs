//! Groups whose ranks are threads of one process, or processes of one machine.
//!
//! Threads reach each other's buffers where they are ([`direct`]): each rank reduces its share of the elements out of
//! all buffers and writes the result to all of them, so that memory is read once and written once. Processes do the
//! same where the buffers lie in [`Memory`] that all have mapped; otherwise they lay chunks out in slots of shared
//! memory that stay in the caches ([`staged`]). All first compare what they are about to do.

mod board;
mod channel;
mod direct;
mod group;
mod memory;
mod staged;

use crate::call::Call;
use crate::error::{CollectiveError, Result};
use crate::exchange::{Engine, Exchange, Side, compare};
use crate::{AbortHandle, CommStats, Health, Operation};
pub use board::RANKS_MAX;
use board::{Board, LEFT, NOWHERE};
use channel::Progress;
pub use group::PATIENCE_DEFAULT;
use group::{Group, Reason};
use gt_ops::DType;
pub use memory::Memory;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::Duration;

/// Bytes that a rank lays out at a time. Smaller slots pass more gates, larger ones leave the caches: of the bound that
/// the example `bandwidth` measures, all-reduces of 64 MB by two ranks reach 0.40 with 64 KiB, 0.50 with 256 KiB and
/// 0.67 with this; those of 16 MB 0.52 with this and 0.36 with 2 MiB.
const SLOT_BYTES_DEFAULT: usize = 1 << 20;
/// A rank's piece of a slot is at least a cache line.
const PIECE_ALIGN: usize = 64;

/// What a group is made with.
#[derive(Clone, Copy, Debug)]
pub struct LocalOptions {
    /// How long a rank waits for the others before the group counts as broken.
    pub patience: Duration,
    /// Bytes that a rank of a group of processes lays out at a time; rounded up to 64 for each rank.
    pub slot_bytes: usize,
}

impl Default for LocalOptions {
    fn default() -> Self {
        LocalOptions { patience: PATIENCE_DEFAULT, slot_bytes: SLOT_BYTES_DEFAULT }
    }
}

/// Makes groups.
///
/// For processes, one creates the group and gives each rank its descriptor, by inheritance or by
/// [`gt_shm::Socket`]; each then calls [`LocalCommunicator::join`]. The group lives while a rank does.
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

    /// As [`LocalGroup::threads`].
    ///
    /// # Errors
    /// As [`LocalGroup::threads`].
    pub fn threads_with(size: usize, options: LocalOptions) -> Result<Vec<LocalCommunicator>> {
        check_size(size)?;
        let group = Arc::new(Group::new(Board::on_heap(size, 0), true, options.patience));
        Ok((0..size).map(|rank| LocalCommunicator::new(group.clone(), rank)).collect())
    }

    /// A group of `size` processes. Nobody has joined it yet.
    ///
    /// # Errors
    /// [`CollectiveError::Setup`] unless there are 1 to [`RANKS_MAX`] of them, or if the kernel refuses the memory.
    pub fn processes(size: usize, options: LocalOptions) -> Result<LocalGroup> {
        check_size(size)?;
        let unit = PIECE_ALIGN * size;
        let slot_bytes = options.slot_bytes.clamp(unit, 1 << 30).next_multiple_of(unit);
        let (_, fd) = Board::create(size, slot_bytes)?;
        Ok(LocalGroup { fd })
    }

    /// Breaks the group for whoever has joined it or will: rank `died` takes no part any more.
    ///
    /// # Errors
    /// [`CollectiveError::Setup`] if its memory cannot be mapped.
    pub fn abort(&self, died: usize) -> Result<()> {
        let fd = self.fd.try_clone().map_err(|error| CollectiveError::setup("end a group", error))?;
        let group = Group::new(Board::open(fd)?, false, PATIENCE_DEFAULT);
        group.break_up(Reason::Died, died);
        Ok(())
    }

    /// What a rank joins by; close-on-exec.
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

/// One rank of a local group. Dropping it ends the group for the others.
pub struct LocalCommunicator {
    group: Arc<Group>,
    rank: usize,
    /// Gates passed, which all ranks of a group of processes count alike.
    turn: u32,
    /// How often it was done with the others' buffers.
    left: u32,
    /// What the ranks reach of each other; nothing unless it is all.
    memories: Vec<Arc<Memory>>,
    sending: Vec<Progress>,
    receiving: Vec<Progress>,
    stats: CommStats,
    /// The process that this rank is of: a child that inherits it by `fork` is no rank.
    pid: u32,
}

impl LocalCommunicator {
    fn new(group: Arc<Group>, rank: usize) -> LocalCommunicator {
        let size = group.board.ranks();
        LocalCommunicator {
            group,
            rank,
            turn: 0,
            left: 0,
            memories: Vec::new(),
            sending: vec![Progress::default(); size],
            receiving: vec![Progress::default(); size],
            stats: CommStats::default(),
            pid: std::process::id(),
        }
    }

    /// Joins a group of processes as `rank`, by the descriptor of [`LocalGroup::fd`], and waits until all have.
    ///
    /// # Errors
    /// [`CollectiveError::Setup`] if the descriptor is none of a group, if there is no such rank or somebody has taken
    /// it; or why the group broke before it was complete.
    pub fn join(fd: OwnedFd, rank: usize, patience: Duration) -> Result<LocalCommunicator> {
        LocalCommunicator::join_sharing(fd, rank, patience, Vec::new())
    }

    /// As [`LocalCommunicator::join`]. `memories` are those of the ranks, this one among them: buffers that lie in them
    /// are not copied. If one rank does not know them all, all are as if they knew none.
    ///
    /// # Errors
    /// As [`LocalCommunicator::join`].
    pub fn join_sharing(
        fd: OwnedFd,
        rank: usize,
        patience: Duration,
        memories: Vec<Arc<Memory>>,
    ) -> Result<LocalCommunicator> {
        let board = Board::open(fd)?;
        let what = format!("join a group as rank {rank}");
        if rank >= board.ranks() {
            return Err(CollectiveError::setup(what, format!("it has {} ranks", board.ranks())));
        }
        let pid = std::process::id();
        if let Err(taken) = board.seat(rank).pid.compare_exchange(0, pid, AcqRel, Acquire) {
            let who = if taken == LEFT { "it has left".to_owned() } else { format!("process {taken} is that rank") };
            return Err(CollectiveError::setup(what, format!("{who} already")));
        }
        let own = memories.get(rank).map_or(0, |memory| memory.id());
        board.seat(rank).memory.store(own, Relaxed);
        let mut rank = LocalCommunicator::new(Arc::new(Group::new(board, false, patience)), rank);
        rank.pass(Operation::Barrier)?;
        // All are here: whoever dies from now on is known by a descriptor that names no other process.
        rank.group.bury();
        rank.share(memories)?;
        Ok(rank)
    }

    /// Finds out whether all ranks reach each other's memory.
    fn share(&mut self, memories: Vec<Arc<Memory>>) -> Result<()> {
        let (board, ranks) = (&self.group.board, self.ranks());
        let known =
            |rank: usize| memories[rank].id() != 0 && memories[rank].id() == board.seat(rank).memory.load(Relaxed);
        let reaches = memories.len() == ranks && (0..ranks).all(known) && self.group.watches_all();
        board.seat(self.rank).reaches.store(reaches.into(), Relaxed);
        self.pass(Operation::Barrier)?;
        if (0..ranks).all(|rank| self.group.board.seat(rank).reaches.load(Relaxed) != 0) {
            self.memories = memories;
        }
        Ok(())
    }

    /// Waits for all ranks.
    fn pass(&mut self, operation: Operation) -> Result<()> {
        let group = &*self.group;
        let ranks = group.board.ranks() as u32;
        group.board.enter().pass(ranks, &group.watch(self.rank)).map_err(|_| group.broken(operation, self.rank))?;
        self.turn = self.turn.wrapping_add(1);
        Ok(())
    }

    /// Tells the others what this rank is about to do, and where they reach what it offers; they look after the next
    /// gate.
    fn announce(&self, exchange: &Exchange<'_>, offered: *mut u8, bytes: usize) {
        let board = &self.group.board;
        let notice = board.notice(self.turn, self.rank);
        notice.call.store(exchange.call.encode(), Relaxed);
        notice.offered.store(offered, Relaxed);
        notice.bytes.store(bytes as u64, Relaxed);
        for peer in 0..self.ranks() {
            board.gives(self.turn, self.rank, peer).store(exchange.gives[peer] as u64, Relaxed);
            board.takes(self.turn, self.rank, peer).store(exchange.takes[peer] as u64, Relaxed);
        }
    }

    /// What the others reach bytes of this rank by, if they do.
    fn reach(&self, start: *mut u8, bytes: usize) -> Option<*mut u8> {
        if self.group.direct {
            return Some(start);
        }
        let memory = self.memories.get(self.rank)?;
        let offset = if bytes == 0 { Some(0) } else { memory.offset_of(start, bytes) };
        offset.map(std::ptr::without_provenance_mut)
    }

    /// Where this rank finds what `peer` offered at gate number `turn`. All ranks find it, or none does.
    fn offered(&self, turn: u32, peer: usize) -> Option<*mut u8> {
        let notice = self.group.board.notice(turn, peer);
        let offered = notice.offered.load(Relaxed);
        if self.group.direct {
            return Some(offered);
        }
        self.memories.get(peer)?.at(offered.addr(), notice.bytes.load(Relaxed) as usize)
    }

    /// Compares what all ranks announced before gate number `turn`.
    fn compare(&self, call: Call, turn: u32) -> Result<()> {
        let board = &self.group.board;
        compare(
            call,
            self.rank,
            board.ranks(),
            |peer| board.call(turn, peer),
            |from, to| board.gives(turn, from, to).load(Relaxed),
            |to, from| board.takes(turn, to, from).load(Relaxed),
        )
    }
}

impl Engine for LocalCommunicator {
    fn own_rank(&self) -> usize {
        self.rank
    }

    fn ranks(&self) -> usize {
        self.group.board.ranks()
    }

    fn exchange(&mut self, exchange: Exchange<'_>) -> Result<()> {
        let (call, turn) = (exchange.call, self.turn);
        // Where the ranks reach each other's buffers, this one's is only reached by this address, here and by them.
        let output = exchange.output.as_mut_ptr();
        let (start, bytes) = match call.operation {
            Operation::AllReduce => (output, exchange.output.len()),
            _ => (exchange.input.as_ptr().cast_mut(), exchange.input.len()),
        };
        let reach = self.reach(start, bytes);
        self.announce(&exchange, reach.unwrap_or(NOWHERE), bytes);
        if reach.is_none() {
            self.lay_out(&exchange, 0);
        }
        self.pass(call.operation)?;
        self.compare(call, turn)?;
        if call.operation == Operation::Barrier {
            return Ok(());
        }
        let offered: Vec<*mut u8> = (0..self.ranks()).filter_map(|peer| self.offered(turn, peer)).collect();
        if offered.len() == self.ranks() {
            return self.exchange_direct(&exchange, output, &offered, turn);
        }
        // Where some have laid out their part and some have not, all begin again.
        self.exchange_staged(exchange, turn, offered.is_empty())
    }

    fn refuse(&mut self, exchange: Exchange<'_>) -> Result<()> {
        self.announce(&exchange, NOWHERE, 0);
        self.pass(exchange.call.operation)
    }

    fn message(&mut self, peer: usize, dtype: DType, side: Side<'_>) -> Result<()> {
        self.message_by_channel(peer, dtype, side)
    }

    fn tally(&self) -> &CommStats {
        &self.stats
    }

    fn tally_mut(&mut self) -> &mut CommStats {
        &mut self.stats
    }

    fn aborter(&self) -> AbortHandle {
        let (group, rank) = (self.group.clone(), self.rank);
        AbortHandle::new(move || group.break_up(Reason::Aborted, rank))
    }

    fn watch_health(&self) -> Health {
        let (group, rank) = (self.group.clone(), self.rank);
        Health::new(move || {
            group.bury();
            match group.broken_for_good() {
                true => Err(group.broken(Operation::Barrier, rank)),
                false => Ok(()),
            }
        })
    }
}

impl Drop for LocalCommunicator {
    fn drop(&mut self) {
        if self.pid == std::process::id() {
            self.group.break_up(Reason::Left, self.rank);
            self.group.board.seat(self.rank).pid.store(LEFT, Release);
        }
    }
}

impl std::fmt::Debug for LocalCommunicator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LocalCommunicator(rank {} of {})", self.rank, self.ranks())
    }
}

/// Small enough for Miri, which looks at every access of threads to each other's buffers.
#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Communicator, Reduce};

    const RANKS: usize = 3;

    fn on_ranks(run: impl Fn(&mut LocalCommunicator) + Sync) {
        let run = &run;
        std::thread::scope(|scope| {
            for mut rank in LocalGroup::threads(RANKS).unwrap() {
                scope.spawn(move || run(&mut rank));
            }
        });
    }

    #[test]
    fn threads_share_buffers_only_between_the_gates() {
        on_ranks(|comm| {
            let rank = comm.rank() as u8;
            let mut sum = vec![rank + 1; 200];
            comm.all_reduce(&mut sum, DType::U8, Reduce::Sum).unwrap();
            assert_eq!(sum, [6; 200]);

            let counts = [1, 0, 2];
            let mut all = vec![0; 3];
            comm.all_gather(&vec![rank; counts[comm.rank()]], &mut all, &counts, DType::U8).unwrap();
            assert_eq!(all, [0, 2, 2]);

            let mut part = vec![0; counts[comm.rank()]];
            comm.reduce_scatter(&all, &mut part, &counts, DType::U8, Reduce::Prod).unwrap();
            assert_eq!(part, [&[0][..], &[], &[8, 8]][comm.rank()]);

            let mut root = vec![rank; 3];
            comm.broadcast(&mut root, 1, DType::U8).unwrap();
            assert_eq!(root, [1; 3]);

            let mut from_each = vec![0; RANKS];
            comm.all_to_all(&[rank; RANKS], &mut from_each, &[1; RANKS], &[1; RANKS], DType::U8).unwrap();
            assert_eq!(from_each, [0, 1, 2]);

            match rank {
                0 => comm.send(&[7; 5], 2, DType::U8).unwrap(),
                2 => {
                    let mut message = [0; 5];
                    comm.recv(&mut message, 0, DType::U8).unwrap();
                    assert_eq!(message, [7; 5]);
                }
                _ => (),
            }
            comm.barrier().unwrap();
        });
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri maps no segments")]
    fn a_rank_that_has_left_is_not_dead_when_its_process_ends() {
        let group = LocalGroup::processes(1, LocalOptions::default()).unwrap();
        let fd = || group.fd().try_clone_to_owned().unwrap();
        let rank = LocalCommunicator::join(fd(), 0, PATIENCE_DEFAULT).unwrap();
        // A process that has ended: after Linux's largest number of one.
        rank.group.board.seat(0).pid.store(1 << 22, Relaxed);
        let seen_by_others = Group::new(Board::open(fd()).unwrap(), false, PATIENCE_DEFAULT);
        assert_eq!(seen_by_others.dead_ranks(), [0]);
        drop(rank);
        assert_eq!(seen_by_others.dead_ranks(), [0; 0]);
        let error = LocalCommunicator::join(fd(), 0, PATIENCE_DEFAULT).unwrap_err();
        assert_eq!(error.to_string(), "cannot join a group as rank 0: it has left already");
    }

    #[test]
    fn buffers_may_be_freed_right_after_an_abort() {
        on_ranks(|comm| {
            let mut calls = 0;
            while comm.all_reduce(&mut Vec::from([1; 100]), DType::U8, Reduce::Sum).is_ok() {
                calls += 1;
                if comm.rank() == calls % RANKS {
                    comm.abort();
                }
            }
        });
    }
}
