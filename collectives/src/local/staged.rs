//! Staged exchanges: chunks travel through slots of shared memory, with one barrier per chunk.
//!
//! In each round a rank fills its slot, passes the barrier, and copies from the slots of the others. Slots are double
//! buffers, so a rank fills the next one while others still copy. An all-reduce is a pipeline of a reduce-scatter and
//! an all-gather (after Rabenseifner 2004): after each barrier, a rank reduces its share of this round's chunk, and
//! copies the shares of the previous chunk that the others reduced.

use super::communicator::LocalCommunicator;
use super::direct::share;
use crate::copy::copy;
use crate::error::Result;
use crate::exchange::{Exchange, Offer};
use crate::operation::Operation;
use crate::reduce::reduce;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

/// The range of chunk number `round` of `len` bytes in chunks of `chunk` bytes; empty past the end.
fn chunk_of(len: usize, chunk: usize, round: usize) -> Range<usize> {
    let start = chunk.saturating_mul(round).min(len);
    start..(start + chunk).min(len)
}

fn is_all_reduce(exchange: &Exchange<'_>) -> bool {
    exchange.call.operation == Operation::AllReduce
}

/// The offset of the piece of `peer` in a buffer of pieces of `counts` elements.
fn start_of(counts: &[usize], peer: usize, element: usize) -> usize {
    counts[..peer].iter().sum::<usize>() * element
}

impl LocalCommunicator {
    /// Bytes of a piece that travel in one round.
    fn chunk(&self, exchange: &Exchange<'_>) -> usize {
        let slot_bytes = self.group.memory.slot_bytes();
        match exchange.offer {
            Offer::Same => slot_bytes,
            Offer::Pieces => slot_bytes / self.ranks(),
        }
    }

    /// The range of an all-reduce's buffer that rank `peer` reduces in a round.
    fn share_of(&self, exchange: &Exchange<'_>, peer: usize, round: usize) -> Range<usize> {
        let element = exchange.call.dtype.size();
        let whole = chunk_of(exchange.output.len(), self.chunk(exchange), round);
        let share = share(whole.len() / element, element, self.ranks(), peer);
        whole.start + share.start * element..whole.start + share.end * element
    }

    /// The other ranks, in an order that differs by rank, so that not all access one rank's memory at once.
    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let (rank, size) = (self.rank, self.ranks());
        (1..size).map(move |i| (rank + i) % size)
    }

    /// Fills this rank's slot before the next barrier.
    pub(super) fn stage_round(&self, exchange: &Exchange<'_>, round: usize) {
        let (element, stage) = (exchange.call.dtype.size(), self.group.memory.stage(self.generation, self.rank));
        let chunk = self.chunk(exchange);
        match exchange.offer {
            _ if is_all_reduce(exchange) => {
                for peer in self.others() {
                    stage.put(peer * (chunk / self.ranks()), &exchange.output[self.share_of(exchange, peer, round)]);
                }
            }
            Offer::Same if self.ranks() > 1 => {
                stage.put(0, &exchange.input[chunk_of(exchange.input.len(), chunk, round)]);
            }
            Offer::Same => (),
            Offer::Pieces => {
                for peer in self.others() {
                    let start = start_of(exchange.send_counts, peer, element);
                    let piece = &exchange.input[start..][..exchange.send_counts[peer] * element];
                    stage.put(peer * chunk, &piece[chunk_of(piece.len(), chunk, round)]);
                }
            }
        }
    }

    /// The number of rounds of a call that all ranks announced in generation `announced`.
    fn rounds(&self, exchange: &Exchange<'_>, announced: u32) -> usize {
        let (size, chunk) = (self.ranks(), self.chunk(exchange));
        if is_all_reduce(exchange) {
            let rounds = exchange.output.len().div_ceil(chunk);
            return rounds + usize::from(rounds > 0);
        }
        let pairs = (0..size).flat_map(|from| (0..size).map(move |to| (from, to)));
        // A rank copies its own piece without a round.
        let pieces = pairs.filter(|(from, to)| from != to || exchange.call.reduce.is_some());
        let most =
            pieces.map(|(from, to)| self.group.memory.send_count(announced, from, to).load(Relaxed) as usize).max();
        (most.unwrap_or(0) * exchange.call.dtype.size()).div_ceil(chunk)
    }

    /// Executes a call that all ranks announced in generation `announced`. `staged` tells whether the first slots were
    /// filled before that barrier.
    pub(super) fn exchange_staged(
        &mut self,
        mut exchange: Exchange<'_>,
        announced: u32,
        mut staged: bool,
    ) -> Result<()> {
        let rounds = self.rounds(&exchange, announced);
        self.copy_own(&mut exchange);
        for round in 0..rounds {
            if !std::mem::take(&mut staged) {
                self.stage_round(&exchange, round);
                self.pass(exchange.call.operation)?;
            }
            if is_all_reduce(&exchange) {
                self.all_reduce_round(&mut exchange, round);
            } else {
                self.receive_round(&mut exchange, round);
            }
        }
        Ok(())
    }

    /// Copies the piece that a rank sends to itself.
    fn copy_own(&self, exchange: &mut Exchange<'_>) {
        let Exchange { call, offer, input, send_counts, recv_counts, .. } = *exchange;
        if call.reduce.is_some() {
            return;
        }
        let (element, whole) = (call.dtype.size(), exchange.output.len());
        let to = &mut exchange.output[start_of(recv_counts, self.rank, element)..][..recv_counts[self.rank] * element];
        let from = if offer == Offer::Same { 0 } else { start_of(send_counts, self.rank, element) };
        let from = input[from..][..to.len()].as_ptr();
        // SAFETY: both slices have `to.len()` bytes; the input is borrowed beside the mutable output, so they do not
        // overlap.
        unsafe { copy(from, to.as_mut_ptr(), to.len(), whole) };
    }

    /// Copies or reduces the pieces that were staged before the last barrier.
    fn receive_round(&self, exchange: &mut Exchange<'_>, round: usize) {
        let Exchange { call, input, send_counts, recv_counts, .. } = *exchange;
        let (rank, size, generation, memory) =
            (self.rank, self.ranks(), self.generation.wrapping_sub(1), &self.group.memory);
        let (element, chunk, whole) = (call.dtype.size(), self.chunk(exchange), exchange.output.len());
        let stride = if exchange.offer == Offer::Same { 0 } else { chunk };
        if let Some(how) = call.reduce {
            let part = chunk_of(recv_counts[rank] * element, chunk, round);
            let own = input[start_of(send_counts, rank, element)..][part.clone()].as_ptr();
            let others = |peer| memory.stage(generation, peer).at(rank * stride, part.len()).cast_const();
            let sources: Vec<_> = (0..size).map(|peer| if peer == rank { own } else { others(peer) }).collect();
            let to = &mut exchange.output[part.clone()];
            // SAFETY: all sources and the destination have `part.len()` bytes. The slots were written before the last
            // barrier and are not rewritten before the next; input and output are this call's and do not overlap.
            unsafe { reduce(call.dtype, how, &sources, &[to.as_mut_ptr()], part.len() / element) };
            return;
        }
        for peer in self.others() {
            let to = &mut exchange.output[start_of(recv_counts, peer, element)..][..recv_counts[peer] * element];
            let part = chunk_of(to.len(), chunk, round);
            memory.stage(generation, peer).get(rank * stride, &mut to[part], whole);
        }
    }

    /// Reduces this rank's share of the chunk that was staged before the last barrier, and copies the shares that the
    /// others reduced in the previous round.
    fn all_reduce_round(&self, exchange: &mut Exchange<'_>, round: usize) {
        let call = exchange.call;
        let Some(how) = call.reduce else { return };
        let (rank, size, generation, memory) =
            (self.rank, self.ranks(), self.generation.wrapping_sub(1), &self.group.memory);
        let (element, stride) = (call.dtype.size(), self.chunk(exchange) / size);
        let own = self.share_of(exchange, rank, round);
        let to = exchange.output[own.clone()].as_mut_ptr();
        let result = memory.result(generation, rank).at(0, own.len());
        let theirs = |peer| memory.stage(generation, peer).at(rank * stride, own.len()).cast_const();
        let sources: Vec<_> = (0..size).map(|peer| if peer == rank { to.cast_const() } else { theirs(peer) }).collect();
        // SAFETY: all sources and destinations are as long as this rank's share. The slots were written before the last
        // barrier and are not rewritten before the next; no rank reads this generation's result before the next
        // barrier; the buffer is this call's.
        unsafe { reduce(call.dtype, how, &sources, &[to, result], own.len() / element) };
        if let Some(before) = round.checked_sub(1) {
            for peer in self.others() {
                let part = self.share_of(exchange, peer, before);
                memory.result(generation.wrapping_sub(1), peer).get(0, &mut exchange.output[part], 0);
            }
        }
    }
}
