//! Ranks that are processes: chunks travel through slots of shared memory, one gate a chunk.
//!
//! In each round a rank fills its slot, passes the gate, and takes from the slots of the others; since there are two of
//! each slot, it fills the next one while others still take. An all-reduce has a second step in the same rounds: after
//! a gate a rank reduces its share of this round's chunk, and takes what the others reduced of the one before.

use super::LocalCommunicator;
use super::direct::share;
use crate::Operation;
use crate::copy::copy;
use crate::error::Result;
use crate::exchange::{Engine, Exchange, Offer};
use crate::reduce::{Reduce, reduce};
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

/// The bytes of chunk `round` of `len` bytes in chunks of `chunk`; empty behind the end.
fn chunk_of(len: usize, chunk: usize, round: usize) -> Range<usize> {
    let start = chunk.saturating_mul(round).min(len);
    start..(start + chunk).min(len)
}

impl LocalCommunicator {
    pub(super) fn exchange_staged(&mut self, exchange: Exchange<'_>) -> Result<()> {
        match exchange.call.reduce {
            Some(how) if exchange.call.operation == Operation::AllReduce => self.all_reduce_staged(exchange, how),
            _ => self.pieces_staged(exchange),
        }
    }

    fn pieces_staged(&mut self, exchange: Exchange<'_>) -> Result<()> {
        let (rank, size) = (self.rank, self.ranks());
        let call = exchange.call;
        let element = call.dtype.size();
        self.announce(&exchange, std::ptr::null_mut());
        let Exchange { offer, input, output, gives, takes, .. } = exchange;
        // Bytes of a piece that a rank lays out for another in a round, and the distance between such pieces.
        let (chunk, stride) = match offer {
            Offer::Same => (self.group.board.slot_bytes(), 0),
            Offer::Pieces => (self.group.board.slot_bytes() / size, self.group.board.slot_bytes() / size),
        };
        let start_of = |counts: &[usize], peer: usize| counts[..peer].iter().sum::<usize>() * element;
        let whole = output.len();
        let (mut round, mut rounds) = (0, 1);
        while round < rounds {
            let turn = self.turn;
            let stage = self.group.board.stage(turn, rank);
            match offer {
                Offer::Same if size > 1 => stage.put(0, &input[chunk_of(input.len(), chunk, round)]),
                Offer::Same => (),
                Offer::Pieces => {
                    for peer in (0..size).filter(|peer| *peer != rank) {
                        let piece = &input[start_of(gives, peer)..][..gives[peer] * element];
                        stage.put(peer * stride, &piece[chunk_of(piece.len(), chunk, round)]);
                    }
                }
            }
            self.pass(call.operation)?;
            let board = &self.group.board;
            if round == 0 {
                self.compare(call, turn)?;
                let pairs = (0..size).flat_map(|from| (0..size).map(move |to| (from, to)));
                // A copy of a rank's own piece needs no round.
                let pieces = pairs.filter(|(from, to)| from != to || call.reduce.is_some());
                let most = pieces.map(|(from, to)| board.gives(turn, from, to).load(Relaxed) as usize).max();
                rounds = (most.unwrap_or(0) * element).div_ceil(chunk).max(1);
            }
            if let Some(how) = call.reduce {
                let part = chunk_of(takes[rank] * element, chunk, round);
                let own = input[start_of(gives, rank)..][part.clone()].as_ptr();
                let others = |peer| board.stage(turn, peer).at(rank * stride, part.len()).cast_const();
                let sources: Vec<_> = (0..size).map(|peer| if peer == rank { own } else { others(peer) }).collect();
                let to = &mut output[part.clone()];
                // SAFETY: all are as long as the part. The stages were written before the gate and stay until the next
                // but one; input and output are this call's, and apart.
                unsafe { reduce(call.dtype, how, &sources, &[to.as_mut_ptr()], part.len() / element) };
            } else {
                for peer in (0..size).map(|i| (rank + i) % size) {
                    let to = &mut output[start_of(takes, peer)..][..takes[peer] * element];
                    if peer != rank {
                        let part = chunk_of(to.len(), chunk, round);
                        board.stage(turn, peer).get(rank * stride, &mut to[part], whole);
                    } else if round == 0 {
                        let from = if offer == Offer::Same { 0 } else { start_of(gives, rank) };
                        let from = input[from..][..to.len()].as_ptr();
                        // SAFETY: as many bytes of each; the input is borrowed beside the output, so they are apart.
                        unsafe { copy(from, to.as_mut_ptr(), to.len(), whole) };
                    }
                }
            }
            round += 1;
        }
        Ok(())
    }

    fn all_reduce_staged(&mut self, exchange: Exchange<'_>, how: Reduce) -> Result<()> {
        let (rank, size) = (self.rank, self.ranks());
        let call = exchange.call;
        let element = call.dtype.size();
        self.announce(&exchange, std::ptr::null_mut());
        let buffer = exchange.output;
        let chunk = self.group.board.slot_bytes();
        let stride = chunk / size;
        // The bytes of the buffer that rank `peer` reduces in a round.
        let len = buffer.len();
        let share_of = |peer: usize, round: usize| {
            let whole = chunk_of(len, chunk, round);
            let share = share(whole.len() / element, element, size, peer);
            whole.start + share.start * element..whole.start + share.end * element
        };
        let others = (1..size).map(|i| (rank + i) % size);
        let rounds = buffer.len().div_ceil(chunk);
        for round in 0..=rounds {
            let turn = self.turn;
            let stage = self.group.board.stage(turn, rank);
            for peer in others.clone() {
                stage.put(peer * stride, &buffer[share_of(peer, round)]);
            }
            self.pass(call.operation)?;
            if round == 0 {
                self.compare(call, turn)?;
            }
            let board = &self.group.board;
            let own = share_of(rank, round);
            let to = buffer[own.clone()].as_mut_ptr();
            let result = board.result(turn, rank).at(0, own.len());
            let theirs = |peer| board.stage(turn, peer).at(rank * stride, own.len()).cast_const();
            let sources: Vec<_> =
                (0..size).map(|peer| if peer == rank { to.cast_const() } else { theirs(peer) }).collect();
            // SAFETY: all are as long as this rank's share. The stages were written before the gate and stay until the
            // next but one; nobody reads this turn's result before the next gate; the buffer is this call's.
            unsafe { reduce(call.dtype, how, &sources, &[to, result], own.len() / element) };
            if let Some(before) = round.checked_sub(1) {
                for peer in others.clone() {
                    let part = &mut buffer[share_of(peer, before)];
                    board.result(turn.wrapping_sub(1), peer).get(0, part, 0);
                }
            }
        }
        Ok(())
    }
}
