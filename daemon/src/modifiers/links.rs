//! The links between workers: what a move of a tensor takes.

use crate::nodes::link_speed::MeasuredLink;
use gt_ops::Workers;

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

/// The workers of a machine, and its link with the daemon's.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// The workers.
    pub workers: Workers,
    /// The link.
    pub link: MachineLink,
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
            MachineLink::Measured(MeasuredLink { latency_ns, bytes_per_s }) => Some(LinkSpeed {
                bytes_per_ns: bytes_per_s as f64 / 1e9,
                collective_ns: NETWORK_HANDLING_NS + COLLECTIVE_TRIPS * latency_ns as f64,
            }),
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
}

impl Links {
    /// The slowest link among `workers`.
    pub fn among(&self, workers: Workers) -> LinkSpeed {
        let together = |machine: &Machine| workers.without(machine.workers).is_empty();
        if self.machines.is_empty() || self.machines.iter().any(together) {
            LinkSpeed { bytes_per_ns: self.local_bytes_per_ns, collective_ns: LOCAL_COLLECTIVE_NS }
        } else {
            let slowest = over_network(workers, &self.machines);
            LinkSpeed { bytes_per_ns: self.local_bytes_per_ns.min(slowest.bytes_per_ns), ..slowest }
        }
    }
}

/// The slowest link among workers of several machines. Links between two nodes are not measured: the slower of both
/// nodes' links with the daemon's machine stands for theirs.
fn over_network(workers: Workers, machines: &[Machine]) -> LinkSpeed {
    let concerned = machines.iter().filter(|machine| !machine.workers.and(workers).is_empty());
    let slower = |a: LinkSpeed, b: LinkSpeed| LinkSpeed {
        bytes_per_ns: a.bytes_per_ns.min(b.bytes_per_ns),
        collective_ns: a.collective_ns.max(b.collective_ns),
    };
    concerned.filter_map(|machine| machine.link.speed()).reduce(slower).unwrap_or(LinkSpeed::UNMEASURED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_of_the_nodes_that_take_part_counts() {
        let [near, fast, slow, unmeasured] = [0, 1, 2, 3].map(Workers::one);
        let link = |latency_ns, bytes_per_s| MachineLink::Measured(MeasuredLink { latency_ns, bytes_per_s });
        let nodes = [
            (near, MachineLink::Own),
            (fast, link(10_000, 2_000_000_000)),
            (slow, link(500_000, 100_000_000)),
            (unmeasured, MachineLink::Unmeasured),
        ];
        let nodes = nodes.map(|(workers, link)| Machine { workers, link });
        let among = |workers: &[Workers]| {
            let all = workers.iter().fold(Workers::NONE, |all, worker| all.with(*worker));
            let LinkSpeed { bytes_per_ns, collective_ns } = over_network(all, &nodes);
            (bytes_per_ns, collective_ns)
        };
        assert_eq!(among(&[near, fast]), (2.0, 90_000.0));
        assert_eq!(among(&[near, fast, slow]), (0.1, 1_070_000.0));
        assert_eq!(among(&[slow, fast]), among(&[near, slow]));
        assert_eq!(among(&[fast, unmeasured]), (NETWORK_BYTES_PER_NS, NETWORK_COLLECTIVE_NS));
        assert_eq!(over_network(near, &[]), over_network(unmeasured, &nodes));
    }
}
