//! Direct exchanges: ranks that reach each other's buffers work on them in place.
//!
//! An all-reduce is a reduce-scatter and an all-gather in one pass (after Rabenseifner 2004): each rank reduces its
//! share of all buffers and writes the result to all of them. A rank *departs* when it has finished with the buffers of
//! the others. After the barrier at which the ranks agree, no rank waits for another or fails until it has departed,
//! and no rank returns before all have departed: so no caller gets its buffer back while another rank may access it. A
//! process that dies does not announce its departure, but it accesses nothing any more.

use super::communicator::{LocalCommunicator, PIECE_ALIGN};
use crate::copy::copy;
use crate::error::Result;
use crate::exchange::{Exchange, Offer};
use crate::operation::Operation;
use crate::reduce::reduce;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

/// Departs from the others' buffers when the work is done or has panicked.
struct Departure<'a>(&'a LocalCommunicator);

impl Drop for Departure<'_> {
    fn drop(&mut self) {
        self.0.group.depart(self.0.rank);
        // `exchange_direct` waits again and reports a rank that has died.
        let _ = self.0.group.wait_for_all(self.0.departures);
    }
}

/// The share of rank `rank` when `elements` are divided among `ranks`: whole cache lines, so that no two ranks write
/// the same one.
pub fn share(elements: usize, element_bytes: usize, ranks: usize, rank: usize) -> Range<usize> {
    let unit = PIECE_ALIGN / element_bytes;
    let most = elements.div_ceil(ranks).next_multiple_of(unit);
    (most * rank).min(elements)..(most * (rank + 1)).min(elements)
}

impl LocalCommunicator {
    /// Executes a call that all ranks announced in `generation`. `offered` are the ranks' buffers: those that an
    /// all-reduce reduces, otherwise the inputs. `output` is this rank's own.
    pub(super) fn exchange_direct(
        &mut self,
        exchange: &Exchange<'_>,
        output: *mut u8,
        offered: &[*mut u8],
        generation: u32,
    ) -> Result<()> {
        let (call, recv_counts) = (exchange.call, exchange.recv_counts);
        let (rank, size, element) = (self.rank, self.ranks(), call.dtype.size());
        self.departures = self.departures.wrapping_add(1);
        let leave = Departure(self);
        let memory = &self.group.memory;
        // The offset of this rank's piece in the buffer of `peer`.
        let offset = |peer: usize| match exchange.offer {
            Offer::Same => 0,
            Offer::Pieces => {
                (0..rank)
                    .map(|before| memory.send_count(generation, peer, before).load(Relaxed) as usize)
                    .sum::<usize>()
                    * element
            }
        };
        let piece = |peer: usize| offered[peer].wrapping_add(offset(peer)).cast_const();
        match call.reduce {
            Some(how) if call.operation == Operation::AllReduce => {
                let share = share(recv_counts[rank], element, size, rank);
                let start = share.start * element;
                let buffers: Vec<*mut u8> = offered.iter().map(|buffer| buffer.wrapping_add(start)).collect();
                let sources: Vec<*const u8> = buffers.iter().map(|buffer| buffer.cast_const()).collect();
                // SAFETY: `compare` found that all buffers have as many elements, and no rank returns before all have
                // departed. This share of each buffer is this rank's alone. The callers borrow the buffers mutably, so
                // no two overlap.
                unsafe { reduce(call.dtype, how, &sources, &buffers, share.len()) };
            }
            Some(how) => {
                let sources: Vec<*const u8> = (0..size).map(piece).collect();
                // SAFETY: `compare` found that each rank sends as many elements as this one receives, and each rank
                // checked that its input has as many. The inputs stay borrowed, and nothing writes them, until all have
                // departed. `check` found that the output, which is borrowed mutably, has room for the result.
                unsafe { reduce(call.dtype, how, &sources, &[output], recv_counts[rank]) };
            }
            None => {
                // Each rank begins with its own piece, so that not all read one rank's memory at once.
                let whole = recv_counts.iter().sum::<usize>() * element;
                for peer in (0..size).map(|i| (rank + i) % size) {
                    let to = recv_counts[..peer].iter().sum::<usize>() * element;
                    // SAFETY: `compare` found that `peer` sends as many elements as this rank receives, its input is
                    // borrowed until all have departed, and `check` found that the pieces fill the output exactly.
                    unsafe { copy(piece(peer), output.wrapping_add(to), recv_counts[peer] * element, whole) };
                }
            }
        }
        drop(leave);
        self.group.wait_for_all(self.departures).map_err(|_| self.group.broken(call.operation, rank))
    }
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn shares_are_whole_lines_that_cover_all_elements_once() {
        for elements in (0..200).chain([1 << 20, (1 << 20) + 1]) {
            for element_bytes in [1, 2, 4, 8] {
                for ranks in 1..9 {
                    let mut next = 0;
                    for rank in 0..ranks {
                        let share = share(elements, element_bytes, ranks, rank);
                        assert_eq!(share.start, next);
                        assert!(share.is_empty() || (share.start * element_bytes).is_multiple_of(64));
                        next = share.end;
                    }
                    assert_eq!(next, elements);
                }
            }
        }
    }
}
