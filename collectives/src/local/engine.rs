//! How a rank of a local group executes a call: in place if all buffers can be reached, otherwise staged.

use super::communicator::LocalCommunicator;
use super::group::Reason;
use super::group_memory::NOWHERE;
use crate::call::Call;
use crate::communicator::{AbortHandle, Health, SharedValue, not_one_process};
use crate::error::{CollectiveError, Result};
use crate::exchange::{CollectiveEngine, Exchange, MessageBuffer, Offer};
use crate::operation::Operation;
use crate::stats::CommStats;
use gt_ops::DType;

impl CollectiveEngine for LocalCommunicator {
    fn own_rank(&self) -> usize {
        self.rank
    }

    fn ranks(&self) -> usize {
        self.group.memory.ranks()
    }

    fn exchange(&mut self, exchange: Exchange<'_>) -> Result<()> {
        let (call, generation) = (exchange.call, self.generation);
        // In place, this rank too accesses its buffer by the announced address only, as the others do.
        let output = exchange.output.as_mut_ptr();
        let (start, bytes) = match call.operation {
            Operation::AllReduce => (output, exchange.output.len()),
            _ => (exchange.input.as_ptr().cast_mut(), exchange.input.len()),
        };
        let reach = self.reach(start, bytes);
        self.announce(&exchange, reach.unwrap_or(NOWHERE), bytes);
        if reach.is_none() {
            self.stage_round(&exchange, 0);
        }
        self.pass(call.operation)?;
        self.compare(call, generation)?;
        if call.operation == Operation::Barrier {
            return Ok(());
        }
        let offered: Vec<*mut u8> = (0..self.ranks()).filter_map(|peer| self.offered(generation, peer)).collect();
        if offered.len() == self.ranks() {
            return self.exchange_direct(&exchange, output, &offered, generation);
        }
        // If only some ranks have filled their slots, all fill them again.
        self.exchange_staged(exchange, generation, offered.is_empty())
    }

    fn refuse(&mut self, exchange: Exchange<'_>) -> Result<()> {
        self.announce(&exchange, NOWHERE, 0);
        self.pass(exchange.call.operation)
    }

    fn message(&mut self, peer: usize, dtype: DType, side: MessageBuffer<'_>) -> Result<()> {
        self.message_by_channel(peer, dtype, side)
    }

    fn is_one_process(&self) -> bool {
        self.group.direct
    }

    fn share_values(&mut self, values: Vec<SharedValue>) -> Result<Vec<SharedValue>> {
        if !self.group.direct {
            return Err(not_one_process());
        }
        let (call, generation, group) = (Call::new(Operation::Share, DType::U8), self.generation, self.group.clone());
        let none = &vec![0; self.ranks()];
        let (input, output): (&[u8], &mut [u8]) = (&[], &mut []);
        let exchange = Exchange { call, offer: Offer::Same, input, output, send_counts: none, recv_counts: none };
        group.give_values(generation, self.rank, values);
        self.announce(&exchange, NOWHERE, 0);
        let met = self.pass(call.operation).and_then(|()| self.compare(call, generation));
        let taken = match met {
            Ok(()) => group.take_values(generation, self.rank),
            Err(error) => {
                group.drop_values(generation, self.rank);
                return Err(error);
            }
        };
        // Every rank gave its values before the barrier.
        taken.ok_or_else(|| CollectiveError::setup("share values", "a rank gave none"))
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
            group.detect_dead_ranks();
            match group.broken_for_good() {
                true => Err(group.broken(Operation::Barrier, rank)),
                false => Ok(()),
            }
        })
    }
}

/// These tests are small enough for Miri, which checks every access of threads to each other's buffers.
#[cfg(test)]
mod tests {
    use super::super::communicator::{LocalGroup, LocalOptions};
    use super::super::group::{Group, PATIENCE_DEFAULT};
    use super::super::group_memory::GroupMemory;
    use super::*;
    use crate::communicator::Communicator;
    use crate::reduce::Reduce;
    use std::sync::atomic::Ordering::Relaxed;

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
    fn threads_share_buffers_only_between_barriers() {
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
        // No process has this id: it is beyond Linux's largest.
        rank.group.memory.rank_state(0).pid.store(1 << 22, Relaxed);
        let seen_by_others = Group::new(GroupMemory::open(fd()).unwrap(), false, PATIENCE_DEFAULT);
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
