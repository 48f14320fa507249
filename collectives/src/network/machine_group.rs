//! The machines of a group, and the group of the ranks of this machine.
//!
//! The ranks of a machine share the work on what crosses the network. A buffer is cut into lanes, as many as the
//! largest number of ranks on one machine, and each lane has one owner on every machine, so that the owners of all
//! lanes work at the same time.

use crate::call::Call;
use crate::communicator::AbortHandle;
use crate::error::{CollectiveError, Result};
use crate::exchange::{CollectiveEngine, Exchange, Offer};
use crate::local::LocalCommunicator;
use crate::operation::Operation;
use crate::reduce::Reduce;
use gt_ops::DType;
use std::ops::Range;

/// The ranks of each machine, and this rank's communicator with those of its own.
pub struct MachineGroup {
    local: LocalCommunicator,
    /// The ranks of each machine in order; the machines in the order of their lowest ranks.
    machines: Vec<Vec<usize>>,
    /// The machine of each rank.
    machine_of: Vec<usize>,
    /// The machine of this rank.
    own: usize,
}

/// The ranks of each machine, given a name of the machine of each rank.
fn by_machine<T: PartialEq>(names: &[T]) -> Vec<Vec<usize>> {
    let mut machines: Vec<Vec<usize>> = Vec::new();
    for (rank, name) in names.iter().enumerate() {
        match machines.iter_mut().find(|ranks| names[ranks[0]] == *name) {
            Some(ranks) => ranks.push(rank),
            None => machines.push(vec![rank]),
        }
    }
    machines
}

/// Whether ranks on machines with these names send less if those of one machine work together first: there are several
/// machines, and one has several ranks.
pub fn has_ranks_to_join<T: PartialEq>(names: &[T]) -> bool {
    let machines = by_machine(names).len();
    machines > 1 && machines < names.len()
}

impl MachineGroup {
    /// The machines with these names, one a rank. `local` is the communicator of `rank` with the ranks of its machine,
    /// in the same order.
    ///
    /// # Errors
    /// [`CollectiveError::Setup`] if `local` has other ranks.
    pub fn new<T: PartialEq>(names: &[T], rank: usize, local: LocalCommunicator) -> Result<MachineGroup> {
        let machines = by_machine(names);
        let machine_of: Vec<usize> = (0..names.len())
            .map(|rank| machines.iter().position(|ranks| ranks.contains(&rank)).unwrap_or_default())
            .collect();
        let own = *machine_of.get(rank).unwrap_or(&0);
        let found = (local.own_rank(), local.ranks());
        match machines.get(own).map(|ranks| (ranks.iter().position(|member| *member == rank), ranks.len())) {
            Some((Some(local_rank), size)) if (local_rank, size) == found => {
                Ok(MachineGroup { local, machines, machine_of, own })
            }
            _ => Err(CollectiveError::setup(
                format!("let rank {rank} work with the ranks of its machine"),
                format!("it is rank {} of {} there, which fits none of {:?}", found.0, found.1, machines),
            )),
        }
    }

    /// The ranks of this machine.
    pub fn own_ranks(&self) -> &[usize] {
        &self.machines[self.own]
    }

    /// The number of machines.
    pub fn machines(&self) -> usize {
        self.machines.len()
    }

    /// This machine.
    pub fn own_machine(&self) -> usize {
        self.own
    }

    /// The ranks of a machine.
    pub fn ranks_of(&self, machine: usize) -> &[usize] {
        &self.machines[machine]
    }

    /// Whether a rank is on this machine.
    pub fn is_near(&self, rank: usize) -> bool {
        self.machine_of[rank] == self.own
    }

    /// The other machines, in an order that differs by machine, so that not all send to one at once.
    pub fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let (own, count) = (self.own, self.machines.len());
        (1..count).map(move |i| (own + i) % count)
    }

    /// The number of lanes.
    pub fn lanes(&self) -> usize {
        self.machines.iter().map(Vec::len).max().unwrap_or(1)
    }

    /// The rank that owns a lane on a machine.
    pub fn owner(&self, machine: usize, lane: usize) -> usize {
        let ranks = &self.machines[machine];
        ranks[lane * ranks.len() / self.lanes()]
    }

    /// The lanes that this machine's rank number `member` owns.
    pub fn lanes_of(&self, member: usize) -> Range<usize> {
        let (lanes, members) = (self.lanes(), self.own_ranks().len());
        (member * lanes).div_ceil(members)..((member + 1) * lanes).div_ceil(members)
    }

    /// The number of this rank among those of its machine.
    pub fn own_member(&self) -> usize {
        self.local.own_rank()
    }

    /// The rank of this machine that exchanges whole pieces with `rank`, of another machine, for all ranks here.
    pub fn counterpart(&self, machine: usize, rank: usize) -> usize {
        let at = self.machines[self.machine_of[rank]].iter().position(|member| *member == rank).unwrap_or_default();
        self.machines[machine][at % self.machines[machine].len()]
    }

    /// Aborts the group of this machine's ranks.
    pub fn abort_handle(&self) -> AbortHandle {
        self.local.aborter()
    }

    /// Reduces the inputs of this machine's ranks; rank number `r` gets the `counts[r]` elements that follow those of
    /// the ranks before it.
    ///
    /// # Errors
    /// The group of this machine's ranks is broken. The error has their numbers in it.
    pub fn reduce_scatter(
        &mut self,
        (dtype, how): (DType, Reduce),
        input: &[u8],
        output: &mut [u8],
        counts: &[usize],
    ) -> Result<()> {
        let recv_counts = &vec![counts[self.own_member()]; counts.len()];
        let call = Call { reduce: Some(how), ..Call::new(Operation::ReduceScatter, dtype) };
        self.local.exchange(Exchange { call, offer: Offer::Pieces, input, output, send_counts: counts, recv_counts })
    }

    /// Copies the bytes of this machine's rank number `root` to the others.
    ///
    /// # Errors
    /// As [`MachineGroup::reduce_scatter`].
    pub fn broadcast(&mut self, dtype: DType, root: usize, side: BroadcastSide<'_>) -> Result<()> {
        let members = self.own_ranks().len();
        let call = Call { root, ..Call::new(Operation::Broadcast, dtype) };
        let (mut send_counts, mut recv_counts) = (vec![0; members], vec![0; members]);
        let (input, output): (&[u8], &mut [u8]) = match side {
            BroadcastSide::Root(input) => {
                send_counts.fill(input.len() / dtype.size());
                send_counts[root] = 0;
                (input, &mut [])
            }
            BroadcastSide::Other(output) => {
                recv_counts[root] = output.len() / dtype.size();
                (&[], output)
            }
        };
        let (send_counts, recv_counts) = (&send_counts, &recv_counts);
        self.local.exchange(Exchange { call, offer: Offer::Same, input, output, send_counts, recv_counts })
    }

    /// The error of a call of the larger group after one of this machine's, with the ranks of the larger group.
    pub fn outer_error(&self, error: CollectiveError, operation: Operation, rank: usize) -> CollectiveError {
        let of = |member: usize| self.own_ranks().get(member).copied().unwrap_or(rank);
        match error {
            CollectiveError::Died { peer, .. } => CollectiveError::Died { operation, rank, peer: of(peer) },
            CollectiveError::Left { peer, .. } => CollectiveError::Left { operation, rank, peer: of(peer) },
            CollectiveError::TimedOut { by, waited, .. } => {
                CollectiveError::TimedOut { operation, rank, by: of(by), waited }
            }
            CollectiveError::Aborted { by, .. } => CollectiveError::Aborted { operation, rank, by: of(by) },
            // All ranks have agreed on the larger call, so those of one machine agree as well.
            error => error,
        }
    }
}

/// The buffer of a broadcast.
pub enum BroadcastSide<'a> {
    /// The root's bytes.
    Root(&'a [u8]),
    /// Room for them on another rank.
    Other(&'a mut [u8]),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::LocalGroup;

    fn group(names: &[u8], rank: usize) -> MachineGroup {
        let machine = by_machine(names).into_iter().find(|ranks| ranks.contains(&rank)).unwrap();
        let member = machine.iter().position(|member| *member == rank).unwrap();
        let local = LocalGroup::threads(machine.len()).unwrap().remove(member);
        MachineGroup::new(names, rank, local).unwrap()
    }

    #[test]
    fn every_lane_has_one_owner_on_each_machine() {
        for names in [&[0, 0, 1, 1][..], &[0, 1, 0, 1, 1], &[0, 0, 0, 1], &[2, 1, 1, 0, 1, 0, 1]] {
            for rank in 0..names.len() {
                let group = group(names, rank);
                let mut owned = 0;
                for member in 0..group.own_ranks().len() {
                    let lanes = group.lanes_of(member);
                    assert_eq!(lanes.start, owned, "lanes of {names:?}");
                    assert!(!lanes.is_empty(), "every rank has work");
                    for lane in lanes.clone() {
                        assert_eq!(group.owner(group.own_machine(), lane), group.own_ranks()[member]);
                    }
                    owned = lanes.end;
                }
                assert_eq!(owned, group.lanes());
            }
        }
    }

    #[test]
    fn ranks_join_only_where_some_share_a_machine_and_some_do_not() {
        assert!(has_ranks_to_join(&[0, 0, 1]));
        assert!(!has_ranks_to_join(&[0, 0]));
        assert!(!has_ranks_to_join(&[0, 1, 2]));
        assert!(!has_ranks_to_join::<u8>(&[]));
    }

    #[test]
    fn a_communicator_of_other_ranks_is_refused() {
        let local = LocalGroup::threads(2).unwrap().remove(0);
        let error = MachineGroup::new(&[0, 0, 1], 1, local).map(drop).unwrap_err();
        assert!(error.to_string().contains("it is rank 0 of 2 there"), "{error}");
    }
}
