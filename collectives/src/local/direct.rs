//! Ranks that reach each other's buffers: each works on them where they are.
//!
//! Between the gate at which they agree and the last one's leaving, a rank neither waits for another nor fails, so that
//! nobody returns to its caller while another may be at its buffers. Only a process that dies in between leaves
//! without saying so: it touches nothing any more.

use super::communicator::{LocalCommunicator, PIECE_ALIGN};
use crate::copy::copy;
use crate::error::Result;
use crate::exchange::{Exchange, Offer};
use crate::operation::Operation;
use crate::reduce::reduce;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

/// Leaves when the work is done, or has panicked.
struct Departure<'a>(&'a LocalCommunicator);

impl Drop for Departure<'_> {
    fn drop(&mut self) {
        self.0.group.depart(self.0.rank);
        // Who has died is looked at again by whoever can tell of it.
        let _ = self.0.group.wait_for_all(self.0.departures);
    }
}

/// The share of rank `rank` when `elements` are divided among `ranks`: whole cache lines, so that no two ranks write
/// one.
pub fn share(elements: usize, element_bytes: usize, ranks: usize, rank: usize) -> Range<usize> {
    let unit = PIECE_ALIGN / element_bytes;
    let most = elements.div_ceil(ranks).next_multiple_of(unit);
    (most * rank).min(elements)..(most * (rank + 1)).min(elements)
}

impl LocalCommunicator {
    /// Carries out a call that all ranks announced at gate number `turn`. `offered` is where each rank's part of it is:
    /// what it combines in an all-reduce, otherwise what it gives. `output` is this rank's.
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
        let board = &self.group.memory;
        // Where in what `peer` gives this rank's piece begins.
        let offset = |peer: usize| match exchange.offer {
            Offer::Same => 0,
            Offer::Pieces => {
                (0..rank).map(|before| board.send_count(generation, peer, before).load(Relaxed) as usize).sum::<usize>()
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
                // SAFETY: all ranks have said that their buffers have as many elements, and wait for all to leave
                // before they touch them again; this share of each is this rank's alone. Buffers are borrowed mutably
                // by their callers, so no two overlap.
                unsafe { reduce(call.dtype, how, &sources, &buffers, share.len()) };
            }
            Some(how) => {
                let sources: Vec<*const u8> = (0..size).map(piece).collect();
                // SAFETY: `compare` found that each rank gives as many elements as this one takes, and each checked
                // that its input holds what it gives; inputs stay borrowed, and nobody writes them, until all have
                // left. The output was borrowed mutably and holds what is taken.
                unsafe { reduce(call.dtype, how, &sources, &[output], recv_counts[rank]) };
            }
            None => {
                // Each begins with its own, so that not all read one rank's memory at once.
                let whole = recv_counts.iter().sum::<usize>() * element;
                for peer in (0..size).map(|i| (rank + i) % size) {
                    let to = recv_counts[..peer].iter().sum::<usize>() * element;
                    // SAFETY: as above; the output holds all that is taken, piece behind piece.
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
