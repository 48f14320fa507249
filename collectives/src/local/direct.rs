//! Ranks that are threads: each works on the others' buffers where they are.

use super::{LocalCommunicator, PIECE_ALIGN};
use crate::Operation;
use crate::copy::copy;
use crate::error::Result;
use crate::exchange::{Engine, Exchange, Offer};
use crate::reduce::reduce;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

/// Passes the second gate when the work between the gates is done, or has panicked: no rank returns to its caller while
/// another may be at its buffers.
struct Leave<'a>(&'a super::Group);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        let ranks = self.0.board.ranks() as u32;
        // Nobody aborts this gate.
        let _ = self.0.board.leave().pass(ranks, &self.0.unwatched());
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
    pub(super) fn exchange_direct(&mut self, exchange: Exchange<'_>) -> Result<()> {
        let Exchange { call, offer, takes, .. } = exchange;
        let (rank, size, element) = (self.rank, self.ranks(), call.dtype.size());
        // From here on the buffer is only reached by this address, here and by the other ranks.
        let output = exchange.output.as_mut_ptr();
        self.announce(&exchange, output);
        let turn = self.turn;
        self.pass(call.operation)?;
        self.compare(call, turn)?;
        if call.operation == Operation::Barrier {
            return Ok(());
        }
        let board = &self.group.board;
        let _leave = Leave(&self.group);
        let input = |peer: usize| board.notice(turn, peer).input.load(Relaxed).cast_const();
        // Where in the input of `peer` this rank's piece begins.
        let offset = |peer: usize| match offer {
            Offer::Same => 0,
            Offer::Pieces => {
                (0..rank).map(|before| board.gives(turn, peer, before).load(Relaxed) as usize).sum::<usize>() * element
            }
        };
        match call.reduce {
            Some(how) if call.operation == Operation::AllReduce => {
                let share = share(takes[rank], element, size, rank);
                let start = share.start * element;
                let buffers = (0..size).map(|peer| board.notice(turn, peer).output.load(Relaxed));
                let buffers: Vec<*mut u8> = buffers.map(|buffer| buffer.wrapping_add(start)).collect();
                let sources: Vec<*const u8> = buffers.iter().map(|buffer| buffer.cast_const()).collect();
                // SAFETY: all ranks have said that their buffers have as many elements, and wait for the second gate
                // before they touch them again; this share of each is this rank's alone. Buffers are borrowed mutably
                // by their callers, so no two overlap.
                unsafe { reduce(call.dtype, how, &sources, &buffers, share.len()) };
            }
            Some(how) => {
                let sources: Vec<*const u8> = (0..size).map(|peer| input(peer).wrapping_add(offset(peer))).collect();
                // SAFETY: `compare` found that each rank gives as many elements as this one takes, and each checked
                // that its input holds what it gives; inputs stay borrowed, and nobody writes them, until the second
                // gate. The output was borrowed mutably and holds what is taken.
                unsafe { reduce(call.dtype, how, &sources, &[output], takes[rank]) };
            }
            None => {
                // Each begins with its own, so that not all read one rank's memory at once.
                let whole = takes.iter().sum::<usize>() * element;
                for peer in (0..size).map(|i| (rank + i) % size) {
                    let to = takes[..peer].iter().sum::<usize>() * element;
                    let bytes = takes[peer] * element;
                    // SAFETY: as above; the output holds all that is taken, piece behind piece.
                    unsafe { copy(input(peer).wrapping_add(offset(peer)), output.wrapping_add(to), bytes, whole) };
                }
            }
        }
        Ok(())
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
