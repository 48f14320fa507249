//! Groups whose ranks are threads of one process, or processes of one machine.
//!
//! Threads read each other's buffers where they are ([`direct`]): each rank reduces its share of the elements out of
//! all buffers and writes the result to all of them, so that memory is read once and written once. Processes lay chunks
//! out in slots of shared memory that stay in the caches ([`staged`]). Both first compare what they are about to do.
//!
//! The memory of an aborted group of threads is safe: ranks that have passed the first gate of a call neither wait nor
//! fail until they have passed the second, so nobody leaves while another may touch its buffers.

mod board;
mod call;
mod channel;
mod direct;
mod group;
mod staged;

use crate::error::{CollectiveError, Result};
use crate::{AbortHandle, CommStats, Communicator, Operation, Reduce};
use board::Board;
pub use board::RANKS_MAX;
use call::Call;
use channel::Progress;
pub use group::PATIENCE_DEFAULT;
use group::{Group, Reason};
use gt_ops::DType;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::time::Duration;

/// Bytes that a rank lays out at a time: small enough that the slots of a few ranks stay in the second-level cache.
const SLOT_BYTES_DEFAULT: usize = 256 << 10;
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
    sending: Vec<Progress>,
    receiving: Vec<Progress>,
    stats: CommStats,
    /// The process that this rank is of: a child that inherits it by `fork` is no rank.
    pid: u32,
}

/// What each rank offers to the others.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Offer {
    /// The same bytes to each.
    Same,
    /// A piece to each, in the order of ranks.
    Pieces,
}

/// One call of an operation, with its arguments checked.
struct Exchange<'a> {
    call: Call,
    offer: Offer,
    input: &'a [u8],
    output: &'a mut [u8],
    /// Elements to each rank.
    gives: &'a [usize],
    /// Elements from each rank.
    takes: &'a [usize],
}

impl LocalCommunicator {
    fn new(group: Arc<Group>, rank: usize) -> LocalCommunicator {
        let size = group.board.ranks();
        LocalCommunicator {
            group,
            rank,
            turn: 0,
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
        let board = Board::open(fd)?;
        let what = format!("join a group as rank {rank}");
        if rank >= board.ranks() {
            return Err(CollectiveError::setup(what, format!("it has {} ranks", board.ranks())));
        }
        let pid = std::process::id();
        if let Err(taken) = board.seat(rank).pid.compare_exchange(0, pid, AcqRel, Acquire) {
            return Err(CollectiveError::setup(what, format!("process {taken} is that rank already")));
        }
        let mut rank = LocalCommunicator::new(Arc::new(Group::new(board, false, patience)), rank);
        rank.pass(Operation::Barrier)?;
        // All are here: whoever dies from now on is known by a descriptor that names no other process.
        if let Some(dead) = rank.group.dead_rank() {
            rank.group.break_up(Reason::Died, dead);
        }
        Ok(rank)
    }

    /// Waits for all ranks.
    fn pass(&mut self, operation: Operation) -> Result<()> {
        let group = &*self.group;
        let ranks = group.board.ranks() as u32;
        group.board.enter().pass(ranks, &group.watch(self.rank)).map_err(|_| group.broken(operation, self.rank))?;
        self.turn = self.turn.wrapping_add(1);
        Ok(())
    }

    /// Tells the others what this rank is about to do; they look after the next gate.
    fn announce(&self, exchange: &Exchange<'_>, output: *mut u8) {
        let board = &self.group.board;
        let notice = board.notice(self.turn, self.rank);
        notice.call.store(exchange.call.encode(), Relaxed);
        if self.group.direct {
            notice.input.store(exchange.input.as_ptr().cast_mut(), Relaxed);
            notice.output.store(output, Relaxed);
        }
        for peer in 0..self.size() {
            board.gives(self.turn, self.rank, peer).store(exchange.gives[peer] as u64, Relaxed);
            board.takes(self.turn, self.rank, peer).store(exchange.takes[peer] as u64, Relaxed);
        }
    }

    /// Compares what all ranks announced before gate number `turn`. All come to the same conclusion.
    fn compare(&self, call: Call, turn: u32) -> Result<()> {
        let (board, size) = (&self.group.board, self.size());
        let mismatch = |peer: usize, expected: String, found: String| CollectiveError::Mismatch {
            operation: call.operation,
            rank: self.rank,
            peer,
            expected,
            found,
        };
        // A rank that stands out is named by all the others; it names the first that differs from it.
        for peer in 0..size {
            let theirs = board.call(turn, peer);
            if theirs == Some(call) && !call.refused {
                continue;
            }
            let found = match theirs {
                Some(theirs) if theirs.refused => format!("its arguments of {theirs} are wrong"),
                Some(theirs) => format!("it called {theirs}"),
                None => "it called something unknown".to_owned(),
            };
            return Err(mismatch(peer, call.to_string(), found));
        }
        for from in 0..size {
            for to in 0..size {
                let (given, taken) =
                    (board.gives(turn, from, to).load(Relaxed), board.takes(turn, to, from).load(Relaxed));
                if given != taken {
                    // Named is a rank other than this one.
                    let (peer, found) = if from == self.rank {
                        (to, format!("it takes {taken} elements from rank {from}, which gives {given}"))
                    } else {
                        (from, format!("it gives {given} elements to rank {to}, which takes {taken}"))
                    };
                    return Err(mismatch(peer, call.to_string(), found));
                }
            }
        }
        Ok(())
    }

    /// Tells the others that this rank cannot do what was asked, and passes the error on.
    fn refuse(&mut self, call: Call, error: CollectiveError) -> Result<()> {
        let none = vec![0; self.size()];
        let call = Call { refused: true, ..call };
        let exchange = Exchange { call, offer: Offer::Same, input: &[], output: &mut [], gives: &none, takes: &none };
        self.announce(&exchange, std::ptr::null_mut());
        // Whatever else is wrong with the group, the caller's mistake is what it can do something about.
        let _ = self.pass(call.operation);
        Err(error)
    }

    fn run(&mut self, exchange: Exchange<'_>) -> Result<()> {
        let (call, size) = (exchange.call, exchange.call.dtype.size());
        if let Err(error) = self.check(&exchange) {
            return self.refuse(call, error);
        }
        let bytes = |counts: &[usize]| counts.iter().map(|count| count * size).collect::<Vec<_>>();
        let (gives, takes) = (bytes(exchange.gives), bytes(exchange.takes));
        if self.group.direct {
            self.exchange_direct(exchange)?;
        } else {
            self.exchange_staged(exchange)?;
        }
        self.stats.count_pieces(call.operation, self.rank, &gives, &takes);
        Ok(())
    }

    /// What this rank can tell by itself.
    fn check(&self, exchange: &Exchange<'_>) -> Result<()> {
        let (rank, size) = (self.rank, self.size());
        let Call { operation, dtype, reduce, root, .. } = exchange.call;
        for counts in [exchange.gives, exchange.takes] {
            if counts.len() != size {
                return Err(CollectiveError::Counts { operation, rank, expected: size, found: counts.len() });
            }
        }
        if root >= size {
            return Err(CollectiveError::NoSuchRank { operation, rank, peer: root, size });
        }
        if let Some(reduce) = reduce.filter(|reduce| !reduce.is_defined_for(dtype)) {
            return Err(CollectiveError::Undefined { operation, rank, reduce, dtype });
        }
        let total = |counts: &[usize]| {
            let elements = counts.iter().try_fold(0usize, |sum, count| sum.checked_add(*count));
            let bytes = elements.and_then(|elements| elements.checked_mul(dtype.size()));
            bytes.filter(|bytes| *bytes <= isize::MAX as usize).ok_or(CollectiveError::Overflow {
                operation,
                rank,
                dtype,
            })
        };
        let one = |counts: &[usize]| total(&counts[rank..][..1]);
        let (input, output) = match operation {
            Operation::AllReduce => (0, one(exchange.takes)?),
            Operation::AllGather => (one(exchange.gives)?, total(exchange.takes)?),
            Operation::ReduceScatter => (total(exchange.gives)?, one(exchange.takes)?),
            Operation::AllToAll => (total(exchange.gives)?, total(exchange.takes)?),
            // The count was made from the buffer.
            _ => (exchange.input.len(), exchange.output.len()),
        };
        for (buffer, expected_bytes, found_bytes) in
            [("input", input, exchange.input.len()), ("output", output, exchange.output.len())]
        {
            if expected_bytes != found_bytes {
                return Err(CollectiveError::Length { operation, rank, buffer, expected_bytes, found_bytes });
            }
        }
        Ok(())
    }

    /// The elements of a buffer that is taken whole.
    fn elements(&self, call: Call, buffer: &[u8]) -> Result<usize> {
        let size = call.dtype.size();
        if buffer.len().is_multiple_of(size) {
            return Ok(buffer.len() / size);
        }
        Err(CollectiveError::Length {
            operation: call.operation,
            rank: self.rank,
            buffer: "buffer",
            expected_bytes: buffer.len() / size * size,
            found_bytes: buffer.len(),
        })
    }
}

impl Communicator for LocalCommunicator {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.group.board.ranks()
    }

    fn all_reduce(&mut self, buffer: &mut [u8], dtype: DType, reduce: Reduce) -> Result<()> {
        let call = Call { reduce: Some(reduce), ..Call::new(Operation::AllReduce, dtype) };
        let elements = match self.elements(call, buffer) {
            Ok(elements) => elements,
            Err(error) => return self.refuse(call, error),
        };
        let counts = vec![elements; self.size()];
        let (gives, takes) = (&counts[..], &counts[..]);
        self.run(Exchange { call, offer: Offer::Same, input: &[], output: buffer, gives, takes })
    }

    fn all_gather(&mut self, input: &[u8], output: &mut [u8], counts: &[usize], dtype: DType) -> Result<()> {
        let call = Call::new(Operation::AllGather, dtype);
        let own = counts.get(self.rank).copied().unwrap_or(0);
        let gives = &vec![own; self.size()];
        self.run(Exchange { call, offer: Offer::Same, input, output, gives, takes: counts })
    }

    fn reduce_scatter(
        &mut self,
        input: &[u8],
        output: &mut [u8],
        counts: &[usize],
        dtype: DType,
        reduce: Reduce,
    ) -> Result<()> {
        let call = Call { reduce: Some(reduce), ..Call::new(Operation::ReduceScatter, dtype) };
        let own = counts.get(self.rank).copied().unwrap_or(0);
        let takes = &vec![own; self.size()];
        self.run(Exchange { call, offer: Offer::Pieces, input, output, gives: counts, takes })
    }

    fn broadcast(&mut self, buffer: &mut [u8], root: usize, dtype: DType) -> Result<()> {
        let call = Call { root, ..Call::new(Operation::Broadcast, dtype) };
        let elements = match self.elements(call, buffer) {
            Ok(elements) => elements,
            Err(error) => return self.refuse(call, error),
        };
        let (mut gives, mut takes) = (vec![0; self.size()], vec![0; self.size()]);
        let (input, output): (&[u8], &mut [u8]) = if root == self.rank {
            gives.fill(elements);
            gives[root] = 0;
            (buffer, &mut [])
        } else {
            if let Some(from_root) = takes.get_mut(root) {
                *from_root = elements;
            }
            (&[], buffer)
        };
        self.run(Exchange { call, offer: Offer::Same, input, output, gives: &gives, takes: &takes })
    }

    fn all_to_all(
        &mut self,
        input: &[u8],
        output: &mut [u8],
        gives: &[usize],
        takes: &[usize],
        dtype: DType,
    ) -> Result<()> {
        let call = Call::new(Operation::AllToAll, dtype);
        self.run(Exchange { call, offer: Offer::Pieces, input, output, gives, takes })
    }

    fn send(&mut self, data: &[u8], to: usize, dtype: DType) -> Result<()> {
        self.send_to(data, to, dtype)
    }

    fn recv(&mut self, data: &mut [u8], from: usize, dtype: DType) -> Result<()> {
        self.receive_from(data, from, dtype)
    }

    fn barrier(&mut self) -> Result<()> {
        let call = Call::new(Operation::Barrier, DType::U8);
        let none = &vec![0; self.size()];
        self.run(Exchange { call, offer: Offer::Same, input: &[], output: &mut [], gives: none, takes: none })
    }

    fn stats(&self) -> CommStats {
        self.stats
    }

    fn abort_handle(&self) -> AbortHandle {
        let (group, rank) = (self.group.clone(), self.rank);
        AbortHandle::new(move || group.break_up(Reason::Aborted, rank))
    }
}

impl Drop for LocalCommunicator {
    fn drop(&mut self) {
        if self.pid == std::process::id() {
            self.group.break_up(Reason::Left, self.rank);
        }
    }
}

impl std::fmt::Debug for LocalCommunicator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LocalCommunicator(rank {} of {})", self.rank, self.size())
    }
}
