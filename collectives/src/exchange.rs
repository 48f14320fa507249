//! The part of a call that is the same for every communicator.
//!
//! An operation becomes an [`Exchange`]: the call, its buffers, and the number of elements that this rank sends to and
//! receives from each rank. A [`CollectiveEngine`] executes it. This file has the methods of [`Communicator`], the
//! checks of their arguments and the counting of bytes.

use crate::call::Call;
use crate::communicator::{AbortHandle, Communicator, Health, SharedValue, not_one_process};
use crate::error::{CollectiveError, Result};
use crate::operation::Operation;
use crate::reduce::Reduce;
use crate::stats::CommStats;
use gt_ops::DType;

/// The data that each rank offers to the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// The same bytes to every rank.
    Same,
    /// A different piece to every rank, in the order of ranks.
    Pieces,
}

/// One call of an operation, with its buffers and counts.
pub struct Exchange<'a> {
    pub call: Call,
    pub offer: Offer,
    pub input: &'a [u8],
    /// The buffer of the result; in an all-reduce, of the operand as well.
    pub output: &'a mut [u8],
    /// Elements to send to each rank.
    pub send_counts: &'a [usize],
    /// Elements to receive from each rank.
    pub recv_counts: &'a [usize],
}

/// The buffer of a message, on one of its two sides.
pub enum MessageBuffer<'a> {
    Send(&'a [u8]),
    Receive(&'a mut [u8]),
}

/// Executes the calls of one rank.
pub trait CollectiveEngine: Send {
    fn own_rank(&self) -> usize;
    fn ranks(&self) -> usize;
    /// Executes a call whose arguments were checked, after comparing it with the other ranks' calls.
    fn exchange(&mut self, exchange: Exchange<'_>) -> Result<()>;
    /// Takes part in a call only to tell the others that this rank's arguments are wrong.
    fn refuse(&mut self, exchange: Exchange<'_>) -> Result<()>;
    /// Executes one side of a message to or from another rank.
    fn message(&mut self, peer: usize, dtype: DType, side: MessageBuffer<'_>) -> Result<()>;
    /// As [`Communicator::shares_values`].
    fn is_one_process(&self) -> bool {
        false
    }
    /// Executes [`Communicator::share`] with a value for each rank.
    fn share_values(&mut self, values: Vec<SharedValue>) -> Result<Vec<SharedValue>> {
        drop(values);
        Err(not_one_process())
    }
    fn tally(&self) -> &CommStats;
    fn tally_mut(&mut self) -> &mut CommStats;
    fn aborter(&self) -> AbortHandle;
    fn watch_health(&self) -> Health;
}

/// Compares the announced calls of all ranks: either every rank gets an error or none does. `send_counts` takes the
/// sender and then the receiver, `recv_counts` the receiver and then the sender.
pub fn compare(
    call: Call,
    rank: usize,
    size: usize,
    announced: impl Fn(usize) -> Option<Call>,
    send_counts: impl Fn(usize, usize) -> u64,
    recv_counts: impl Fn(usize, usize) -> u64,
) -> Result<()> {
    let mismatch = |peer: usize, expected: String, found: String| CollectiveError::Mismatch {
        operation: call.operation,
        rank,
        peer,
        expected,
        found,
    };
    // The error names the first rank whose call differs from this rank's: if one rank differs from all others, they
    // name it.
    for peer in 0..size {
        let theirs = announced(peer);
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
            let (given, taken) = (send_counts(from, to), recv_counts(to, from));
            if given != taken {
                // The error names a rank other than this one.
                let (peer, found) = if from == rank {
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

/// Checks the arguments that this rank can check by itself.
fn check(exchange: &Exchange<'_>, rank: usize, size: usize) -> Result<()> {
    let Call { operation, dtype, reduce, root, .. } = exchange.call;
    for counts in [exchange.send_counts, exchange.recv_counts] {
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
        bytes.filter(|bytes| *bytes <= isize::MAX as usize).ok_or(CollectiveError::Overflow { operation, rank, dtype })
    };
    let one = |counts: &[usize]| total(&counts[rank..][..1]);
    let (input, output) = match operation {
        Operation::AllReduce => (0, one(exchange.recv_counts)?),
        Operation::AllGather => (one(exchange.send_counts)?, total(exchange.recv_counts)?),
        Operation::ReduceScatter => (total(exchange.send_counts)?, one(exchange.recv_counts)?),
        Operation::AllToAll => (total(exchange.send_counts)?, total(exchange.recv_counts)?),
        // The counts of the other operations were made from the buffers.
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

/// The number of elements in a buffer.
fn elements(call: Call, rank: usize, buffer: &[u8]) -> Result<usize> {
    let size = call.dtype.size();
    if buffer.len().is_multiple_of(size) {
        return Ok(buffer.len() / size);
    }
    Err(CollectiveError::Length {
        operation: call.operation,
        rank,
        buffer: "buffer",
        expected_bytes: buffer.len() / size * size,
        found_bytes: buffer.len(),
    })
}

/// Checks a call, executes it and counts its bytes.
fn run<E: CollectiveEngine>(engine: &mut E, exchange: Exchange<'_>) -> Result<()> {
    let (call, rank) = (exchange.call, engine.own_rank());
    if let Err(error) = check(&exchange, rank, engine.ranks()) {
        return refuse(engine, call, error);
    }
    let bytes = |counts: &[usize]| counts.iter().map(|count| count * call.dtype.size()).collect::<Vec<_>>();
    let (send_counts, recv_counts) = (bytes(exchange.send_counts), bytes(exchange.recv_counts));
    engine.exchange(exchange)?;
    engine.tally_mut().count_pieces(call.operation, rank, &send_counts, &recv_counts);
    Ok(())
}

/// Tells the others that this rank's arguments are wrong, and returns the error.
fn refuse<E: CollectiveEngine>(engine: &mut E, call: Call, error: CollectiveError) -> Result<()> {
    let none = &vec![0; engine.ranks()];
    let call = Call { refused: true, ..call };
    // An error of the group matters less than the caller's mistake, which the caller can correct.
    let _ = engine.refuse(Exchange {
        call,
        offer: Offer::Same,
        input: &[],
        output: &mut [],
        send_counts: none,
        recv_counts: none,
    });
    Err(error)
}

fn check_peer(operation: Operation, rank: usize, peer: usize, size: usize) -> Result<()> {
    if peer >= size || peer == rank {
        return Err(CollectiveError::NoSuchRank { operation, rank, peer, size });
    }
    Ok(())
}

impl<E: CollectiveEngine> Communicator for E {
    fn rank(&self) -> usize {
        self.own_rank()
    }

    fn size(&self) -> usize {
        self.ranks()
    }

    fn all_reduce(&mut self, buffer: &mut [u8], dtype: DType, reduce: Reduce) -> Result<()> {
        let call = Call { reduce: Some(reduce), ..Call::new(Operation::AllReduce, dtype) };
        let elements = match elements(call, self.own_rank(), buffer) {
            Ok(elements) => elements,
            Err(error) => return refuse(self, call, error),
        };
        let counts = vec![elements; self.ranks()];
        let (send_counts, recv_counts) = (&counts[..], &counts[..]);
        run(self, Exchange { call, offer: Offer::Same, input: &[], output: buffer, send_counts, recv_counts })
    }

    fn all_gather(&mut self, input: &[u8], output: &mut [u8], counts: &[usize], dtype: DType) -> Result<()> {
        let call = Call::new(Operation::AllGather, dtype);
        let own = counts.get(self.own_rank()).copied().unwrap_or(0);
        let send_counts = &vec![own; self.ranks()];
        run(self, Exchange { call, offer: Offer::Same, input, output, send_counts, recv_counts: counts })
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
        let own = counts.get(self.own_rank()).copied().unwrap_or(0);
        let recv_counts = &vec![own; self.ranks()];
        run(self, Exchange { call, offer: Offer::Pieces, input, output, send_counts: counts, recv_counts })
    }

    fn broadcast(&mut self, buffer: &mut [u8], root: usize, dtype: DType) -> Result<()> {
        let call = Call { root, ..Call::new(Operation::Broadcast, dtype) };
        let elements = match elements(call, self.own_rank(), buffer) {
            Ok(elements) => elements,
            Err(error) => return refuse(self, call, error),
        };
        let (mut send_counts, mut recv_counts) = (vec![0; self.ranks()], vec![0; self.ranks()]);
        let (input, output): (&[u8], &mut [u8]) = if root == self.own_rank() {
            send_counts.fill(elements);
            send_counts[root] = 0;
            (buffer, &mut [])
        } else {
            if let Some(from_root) = recv_counts.get_mut(root) {
                *from_root = elements;
            }
            (&[], buffer)
        };
        run(
            self,
            Exchange { call, offer: Offer::Same, input, output, send_counts: &send_counts, recv_counts: &recv_counts },
        )
    }

    fn all_to_all(
        &mut self,
        input: &[u8],
        output: &mut [u8],
        send_counts: &[usize],
        recv_counts: &[usize],
        dtype: DType,
    ) -> Result<()> {
        let call = Call::new(Operation::AllToAll, dtype);
        run(self, Exchange { call, offer: Offer::Pieces, input, output, send_counts, recv_counts })
    }

    fn send(&mut self, data: &[u8], to: usize, dtype: DType) -> Result<()> {
        check_peer(Operation::Send, self.own_rank(), to, self.ranks())?;
        self.message(to, dtype, MessageBuffer::Send(data))?;
        self.tally_mut().count(Operation::Send, data.len() as u64, 0);
        Ok(())
    }

    fn recv(&mut self, data: &mut [u8], from: usize, dtype: DType) -> Result<()> {
        check_peer(Operation::Recv, self.own_rank(), from, self.ranks())?;
        let bytes = data.len() as u64;
        self.message(from, dtype, MessageBuffer::Receive(data))?;
        self.tally_mut().count(Operation::Recv, 0, bytes);
        Ok(())
    }

    fn barrier(&mut self) -> Result<()> {
        let call = Call::new(Operation::Barrier, DType::U8);
        let none = &vec![0; self.ranks()];
        run(
            self,
            Exchange { call, offer: Offer::Same, input: &[], output: &mut [], send_counts: none, recv_counts: none },
        )
    }

    fn shares_values(&self) -> bool {
        self.is_one_process()
    }

    fn share(&mut self, values: Vec<SharedValue>) -> Result<Vec<SharedValue>> {
        let (call, rank, size) = (Call::new(Operation::Share, DType::U8), self.own_rank(), self.ranks());
        if values.len() != size && self.is_one_process() {
            let counts = (size, values.len());
            let error =
                CollectiveError::Counts { operation: call.operation, rank, expected: counts.0, found: counts.1 };
            return refuse(self, call, error).map(|()| Vec::new());
        }
        let shared = self.share_values(values)?;
        self.tally_mut().count(Operation::Share, 0, 0);
        Ok(shared)
    }

    fn stats(&self) -> CommStats {
        *self.tally()
    }

    fn abort_handle(&self) -> AbortHandle {
        self.aborter()
    }

    fn health(&self) -> Health {
        self.watch_health()
    }
}
