//! The links between workers: what a move of a tensor takes.

use crate::nodes::link_speed::MeasuredLink;
use gt_ops::Workers;
use std::cell::RefCell;

/// Bytes a nanosecond between workers of two machines whose link was not measured: 64 MiB from one process to another
/// took 71 ms.
const NETWORK_BYTES_PER_NS: f64 = 0.95;
/// The estimated time of a collective besides its bytes, nanoseconds: on one machine, and between two whose link was
/// not measured, where an all-reduce of 1 KiB took 90 µs.
const LOCAL_COLLECTIVE_NS: f64 = 20_000.0;
const NETWORK_COLLECTIVE_NS: f64 = 90_000.0;
/// The trips over the network in a collective, one after another: the announcement of the call, and the results.
const COLLECTIVE_TRIPS: f64 = 2.0;
/// The rest of a collective's time between machines: those 90 µs were measured where a trip took 10 µs.
const NETWORK_HANDLING_NS: f64 = 70_000.0;

/// The sets of workers whose slowest link is kept.
const KNOWN_MAX: usize = 64;

/// The workers of a machine, and its links.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The workers.
    pub workers: Workers,
    /// The link with the daemon's machine, as it was measured when the node joined.
    pub link: MachineLink,
    /// The links with the machines at the same places of the list, as processes of workers measured them. It may end
    /// early.
    pub between: Vec<Option<MeasuredLink>>,
}

/// The link of a machine with the daemon's.
#[derive(Clone, Copy, Debug)]
pub enum MachineLink {
    /// The machine is the daemon's.
    Own,
    /// A node whose link was not measured.
    Unmeasured,
    /// A node whose link was measured when it joined.
    Measured(MeasuredLink),
}

impl MachineLink {
    /// The speed of moves over the link; none of the daemon's own machine.
    fn speed(self) -> Option<LinkSpeed> {
        match self {
            MachineLink::Own => None,
            MachineLink::Unmeasured => Some(LinkSpeed::UNMEASURED),
            MachineLink::Measured(link) => Some(LinkSpeed::of(link)),
        }
    }
}

/// The links between the workers of a session.
#[derive(Clone, Debug)]
pub struct Links {
    /// Between workers of one machine, bytes a nanosecond.
    pub local_bytes_per_ns: f64,
    /// The machines. All workers are on one if this is empty.
    pub machines: Vec<Machine>,
    /// The slowest links that were asked for last, as finding one looks at all pairs of machines.
    known: RefCell<Vec<(Workers, LinkSpeed)>>,
}

/// The slowest link among some workers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkSpeed {
    /// Bytes a nanosecond between two of them.
    pub bytes_per_ns: f64,
    /// The time of a collective among them besides its bytes, nanoseconds.
    pub collective_ns: f64,
}

impl LinkSpeed {
    const UNMEASURED: LinkSpeed =
        LinkSpeed { bytes_per_ns: NETWORK_BYTES_PER_NS, collective_ns: NETWORK_COLLECTIVE_NS };

    fn of(MeasuredLink { latency_ns, bytes_per_s }: MeasuredLink) -> LinkSpeed {
        LinkSpeed {
            bytes_per_ns: bytes_per_s.max(1) as f64 / 1e9,
            collective_ns: NETWORK_HANDLING_NS + COLLECTIVE_TRIPS * latency_ns as f64,
        }
    }

    fn slower(self, other: LinkSpeed) -> LinkSpeed {
        LinkSpeed {
            bytes_per_ns: self.bytes_per_ns.min(other.bytes_per_ns),
            collective_ns: self.collective_ns.max(other.collective_ns),
        }
    }
}

/// The bytes of a move on its busiest machine.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MovedBytes {
    /// Over the machine's link with the others, the way that has more.
    pub network: f64,
    /// Between workers of the machine.
    pub local: f64,
}

impl Links {
    /// The links between workers of these machines.
    pub fn new(local_bytes_per_ns: f64, machines: Vec<Machine>) -> Links {
        Links { local_bytes_per_ns, machines, known: RefCell::default() }
    }

    /// Replaces the machines: links were measured, or there are others.
    pub fn set_machines(&mut self, machines: &[Machine]) {
        *self = Links::new(self.local_bytes_per_ns, machines.to_vec());
    }

    /// Whether all of `workers` are on one machine.
    pub fn are_together(&self, workers: Workers) -> bool {
        let together = |machine: &Machine| workers.without(machine.workers).is_empty();
        self.machines.is_empty() || self.machines.iter().any(together)
    }

    /// The slowest link among `workers`.
    pub fn among(&self, workers: Workers) -> LinkSpeed {
        if self.are_together(workers) {
            return LinkSpeed { bytes_per_ns: self.local_bytes_per_ns, collective_ns: LOCAL_COLLECTIVE_NS };
        }
        let slowest = self.over_network(workers);
        LinkSpeed { bytes_per_ns: self.local_bytes_per_ns.min(slowest.bytes_per_ns), ..slowest }
    }

    /// The estimated time of a move among `workers`, nanoseconds. Between machines, what moves within one follows what
    /// crosses the network: the same threads do both.
    pub fn move_ns(&self, workers: Workers, moved: MovedBytes) -> f64 {
        let LinkSpeed { bytes_per_ns, collective_ns } = self.among(workers);
        collective_ns + moved.network / bytes_per_ns + moved.local / self.local_bytes_per_ns
    }

    /// The members of some sets of workers on each machine that has any.
    pub fn members<const N: usize>(&self, sets: [Workers; N]) -> Vec<[usize; N]> {
        if self.machines.is_empty() {
            return vec![sets.map(|set| set.len())];
        }
        let on = |machine: &Machine| sets.map(|set| set.and(machine.workers).len());
        self.machines.iter().map(on).filter(|members| members.iter().any(|count| *count > 0)).collect()
    }

    /// The machine of a worker, by its place in the list.
    pub fn machine_of(&self, worker: usize) -> usize {
        self.machines.iter().position(|machine| machine.workers.contains(worker)).unwrap_or(0)
    }

    /// The slowest link among workers of several machines.
    fn over_network(&self, workers: Workers) -> LinkSpeed {
        let mut known = self.known.borrow_mut();
        if let Some((_, speed)) = known.iter().find(|(of, _)| *of == workers) {
            return *speed;
        }
        let concerned = |number: &usize| !self.machines[*number].workers.and(workers).is_empty();
        let machines: Vec<usize> = (0..self.machines.len()).filter(concerned).collect();
        let pairs =
            machines.iter().enumerate().flat_map(|(at, one)| machines[at + 1..].iter().map(|other| (*one, *other)));
        let slowest = pairs.map(|(one, other)| self.between(one, other)).reduce(LinkSpeed::slower);
        let speed = slowest.unwrap_or(LinkSpeed::UNMEASURED);
        if known.len() == KNOWN_MAX {
            known.remove(0);
        }
        known.push((workers, speed));
        speed
    }

    /// The link between two machines: as their workers measured it, else the slower of both machines' links with the
    /// daemon's.
    fn between(&self, one: usize, other: usize) -> LinkSpeed {
        let measured = |from: usize, to: usize| self.machines[from].between.get(to).copied().flatten();
        if let Some(link) = measured(one, other).or_else(|| measured(other, one)) {
            return LinkSpeed::of(link);
        }
        let with_daemon = [one, other].into_iter().filter_map(|machine| self.machines[machine].link.speed());
        with_daemon.reduce(LinkSpeed::slower).unwrap_or(LinkSpeed::UNMEASURED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(latency_ns: u64, bytes_per_s: u64) -> MeasuredLink {
        MeasuredLink { latency_ns, bytes_per_s }
    }

    fn speed(links: &Links, workers: &[usize]) -> (f64, f64) {
        let all = workers.iter().fold(Workers::NONE, |all, worker| all.with(Workers::one(*worker)));
        let LinkSpeed { bytes_per_ns, collective_ns } = links.among(all);
        (bytes_per_ns, collective_ns)
    }

    /// Worker `n` is on machine `n`, of which machine 0 is the daemon's.
    fn links(machines: &[MachineLink]) -> Links {
        let machine = |(number, link): (usize, &MachineLink)| Machine {
            workers: Workers::one(number),
            link: *link,
            between: Vec::new(),
        };
        Links::new(100.0, machines.iter().enumerate().map(machine).collect())
    }

    #[test]
    fn the_slowest_of_the_nodes_that_take_part_counts() {
        let links = links(&[
            MachineLink::Own,
            MachineLink::Measured(measured(10_000, 2_000_000_000)),
            MachineLink::Measured(measured(500_000, 100_000_000)),
            MachineLink::Unmeasured,
        ]);
        assert_eq!(speed(&links, &[0, 1]), (2.0, 90_000.0));
        assert_eq!(speed(&links, &[0, 1, 2]), (0.1, 1_070_000.0));
        assert_eq!(speed(&links, &[2, 1]), speed(&links, &[0, 2]));
        assert_eq!(speed(&links, &[1, 3]), (NETWORK_BYTES_PER_NS, NETWORK_COLLECTIVE_NS));
        assert_eq!(speed(&links, &[2]), (100.0, LOCAL_COLLECTIVE_NS));
        assert_eq!(speed(&Links::new(100.0, Vec::new()), &[0, 1]), (100.0, LOCAL_COLLECTIVE_NS));
    }

    #[test]
    fn what_was_measured_between_two_machines_counts_before_their_links_with_the_daemon() {
        let slow = MachineLink::Measured(measured(500_000, 100_000_000));
        let mut links = links(&[MachineLink::Own, slow, slow]);
        let before = speed(&links, &[1, 2]);
        links.machines[1].between = vec![None, None, Some(measured(5_000, 10_000_000_000))];
        let links = Links::new(100.0, links.machines);
        assert_eq!(before, (0.1, 1_070_000.0));
        assert_eq!(speed(&links, &[1, 2]), (10.0, 80_000.0));
        assert_eq!(speed(&links, &[0, 1, 2]), before, "the links with the daemon's machine are as slow as before");
    }
}
