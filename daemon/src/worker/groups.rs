//! Groups of workers that reshard tensors among themselves, as the dispatcher forms and breaks them.

use super::rank_assignment::{GROUP_PATIENCE, LocalRank, RankAssignment};
use super::worker_link::{Availability, WorkerLink};
use crate::nodes::data_port::random_number;
use crate::nodes::endpoint::NetworkRank;
use gt_collectives::CollectiveError;
use gt_collectives::local::{LocalGroup, LocalOptions};
use gt_collectives::network::has_ranks_to_join;
use gt_ops::Workers;

/// The most groups at one time. The oldest is broken to form one more.
const GROUPS_MAX: usize = 64;

/// The groups of a daemon's workers. Each is formed when a reshard first needs it.
#[derive(Default)]
pub struct Groups {
    formed: Vec<FormedGroup>,
    /// How often each worker had been lost at the last check.
    losses: Vec<u64>,
}

struct FormedGroup {
    workers: Workers,
    /// Aborts the group from outside, if its ranks are in several processes.
    shared: Option<LocalGroup>,
}

impl Groups {
    /// Forms the group of `workers`, unless it exists. Steps that are submitted later may reshard tensors in it.
    pub fn form(&mut self, workers: Workers, links: &mut [Box<dyn WorkerLink>]) {
        if self.formed.iter().any(|group| group.workers == workers) {
            return;
        }
        let is_gone = |worker: &usize| matches!(links[*worker].availability(), Availability::Left | Availability::Down);
        let gone = workers.iter().filter(is_gone);
        let gone = gone.fold(Workers::NONE, |all, worker| all.with(Workers::one(worker)));
        if !gone.is_empty() {
            // The others then fail the reshard with the name of a worker that is gone.
            return workers.iter().for_each(|worker| links[worker].leave(workers, gone));
        }
        if self.formed.len() == GROUPS_MAX {
            let oldest = self.formed.remove(0).workers;
            oldest.iter().for_each(|worker| links[worker].leave(oldest, Workers::NONE));
        }
        match assignments(workers, links) {
            Ok((assignments, shared)) => {
                for (worker, assignment) in workers.iter().zip(assignments) {
                    links[worker].join(workers, assignment);
                }
                self.formed.push(FormedGroup { workers, shared });
            }
            // The workers then fail the reshard, because they belong to no such group.
            Err(error) => tracing::error!(target: "gtd::dispatcher", %workers, %error, "no group was formed"),
        }
    }

    /// Breaks the groups of workers that were lost. The next reshard among their members forms the group again.
    #[inline]
    pub fn look_after(&mut self, links: &mut [Box<dyn WorkerLink>]) {
        self.losses.resize(links.len(), 0);
        for worker in 0..links.len() {
            let losses = links[worker].losses();
            if std::mem::replace(&mut self.losses[worker], losses) != losses {
                self.lost(worker, links);
            }
        }
    }

    #[cold]
    fn lost(&mut self, worker: usize, links: &mut [Box<dyn WorkerLink>]) {
        self.formed.retain(|group| {
            let Some(rank) = group.workers.rank_of(worker) else { return true };
            if let Some(shared) = &group.shared
                && let Err(error) = shared.abort(rank)
            {
                tracing::error!(target: "gtd::dispatcher", workers = %group.workers, %error, "a broken group goes on");
            }
            // The members unmap the memory of the worker that was lost.
            group.workers.iter().for_each(|member| links[member].leave(group.workers, Workers::NONE));
            false
        });
    }
}

/// A rank for each of `workers`, if one of them is on another machine than the daemon.
fn over_machines(
    workers: Workers,
    links: &[Box<dyn WorkerLink>],
) -> Result<Option<Vec<RankAssignment>>, CollectiveError> {
    let endpoints: Vec<_> = workers.iter().map(|worker| links[worker].endpoint()).collect();
    if !endpoints.iter().flatten().any(|endpoint| !endpoint.machine.is_empty()) {
        return Ok(None);
    }
    let failed = |why: String| CollectiveError::Setup { what: "form a group over several machines".into(), why };
    let Some(endpoints) = endpoints.into_iter().collect::<Option<Vec<_>>>() else {
        return Err(failed("a worker of it is not ready".into()));
    };
    let group = random_number().map_err(|error| failed(error.to_string()))?;
    let machines: Vec<&str> = endpoints.iter().map(|endpoint| endpoint.machine.as_str()).collect();
    let by_machine = has_ranks_to_join(&machines);
    // A node's agent makes the group of the node's own workers: their memory is not here.
    let here = workers.iter().zip(&machines).filter(|(_, machine)| machine.is_empty());
    let here = here.fold(Workers::NONE, |all, (worker, _)| all.with(Workers::one(worker)));
    let near = if by_machine && here.len() > 1 { within_machine(here, links)?.0 } else { Vec::new() };
    let mut near = near.into_iter();
    let assignment = |(rank, worker)| {
        let network = NetworkRank { group, rank, endpoints: endpoints.clone(), by_machine };
        RankAssignment::Network(network, if here.contains(worker) { near.next() } else { None })
    };
    Ok(Some(workers.iter().enumerate().map(assignment).collect()))
}

/// A rank for each of `workers`, and a handle to abort a group of several processes.
fn assignments(
    workers: Workers,
    links: &[Box<dyn WorkerLink>],
) -> Result<(Vec<RankAssignment>, Option<LocalGroup>), CollectiveError> {
    if let Some(ranks) = over_machines(workers, links)? {
        return Ok((ranks, None));
    }
    let (ranks, shared) = within_machine(workers, links)?;
    Ok((ranks.into_iter().map(RankAssignment::Local).collect(), shared))
}

/// A rank for each of `workers`, which are on the daemon's machine, and a handle to abort a group of several processes.
fn within_machine(
    workers: Workers,
    links: &[Box<dyn WorkerLink>],
) -> Result<(Vec<LocalRank>, Option<LocalGroup>), CollectiveError> {
    let options = LocalOptions { patience: GROUP_PATIENCE, ..LocalOptions::default() };
    if workers.iter().all(|worker| links[worker].is_thread()) {
        let ranks = LocalGroup::threads_with(workers.len(), options)?;
        return Ok((ranks.into_iter().map(|rank| LocalRank::Thread(Box::new(rank))).collect(), None));
    }
    let memories: Option<Vec<_>> = workers.iter().map(|worker| links[worker].memory()).collect();
    let (ranks, shared) = LocalRank::shared(workers.len(), &memories.unwrap_or_default())?;
    Ok((ranks, Some(shared)))
}
