//! The links between workers: what a move of a tensor takes.

use crate::nodes::link_speed::MeasuredLink;
use gt_ops::Workers;
use std::sync::{PoisonError, RwLock};

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

/// The workers of a node, and the speed of its link with the daemon's machine, if it was measured.
pub type NodeLink = (Workers, Option<MeasuredLink>);

/// The links of the nodes that are there. A link is a property of the machines, not of a session.
static NODES: RwLock<Vec<NodeLink>> = RwLock::new(Vec::new());

/// Replaces the known links of the nodes.
pub fn set_node_links(links: Vec<NodeLink>) {
    *NODES.write().unwrap_or_else(PoisonError::into_inner) = links;
}

/// The links between the workers of a session.
#[derive(Clone, Debug)]
pub struct Links {
    /// Between workers of one machine, bytes a nanosecond.
    pub local_bytes_per_ns: f64,
    /// The workers of each machine. All are on one if this is empty.
    pub machines: Vec<Workers>,
}

/// The slowest link among some workers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkSpeed {
    /// Bytes a nanosecond between two of them.
    pub bytes_per_ns: f64,
    /// The time of a collective among them besides its bytes, nanoseconds.
    pub collective_ns: f64,
}

impl Links {
    /// The slowest link among `workers`.
    pub fn among(&self, workers: Workers) -> LinkSpeed {
        let together = |machine: &Workers| workers.without(*machine).is_empty();
        if self.machines.is_empty() || self.machines.iter().any(together) {
            LinkSpeed { bytes_per_ns: self.local_bytes_per_ns, collective_ns: LOCAL_COLLECTIVE_NS }
        } else {
            let slowest = over_network(workers, &NODES.read().unwrap_or_else(PoisonError::into_inner));
            LinkSpeed { bytes_per_ns: self.local_bytes_per_ns.min(slowest.bytes_per_ns), ..slowest }
        }
    }
}

/// The slowest link among workers of several machines. Links between two nodes are not measured: the slower of both
/// nodes' links with the daemon's machine stands for theirs.
fn over_network(workers: Workers, nodes: &[NodeLink]) -> LinkSpeed {
    let unknown = LinkSpeed { bytes_per_ns: NETWORK_BYTES_PER_NS, collective_ns: NETWORK_COLLECTIVE_NS };
    let of_node = |(_, link): &NodeLink| {
        link.map_or(unknown, |MeasuredLink { latency_ns, bytes_per_s }| LinkSpeed {
            bytes_per_ns: bytes_per_s as f64 / 1e9,
            collective_ns: NETWORK_HANDLING_NS + COLLECTIVE_TRIPS * latency_ns as f64,
        })
    };
    let concerned = nodes.iter().filter(|(of, _)| !of.and(workers).is_empty()).map(of_node);
    let slower = |a: LinkSpeed, b: LinkSpeed| LinkSpeed {
        bytes_per_ns: a.bytes_per_ns.min(b.bytes_per_ns),
        collective_ns: a.collective_ns.max(b.collective_ns),
    };
    concerned.reduce(slower).unwrap_or(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_of_the_nodes_that_take_part_counts() {
        let [near, fast, slow, unmeasured] = [0, 1, 2, 3].map(Workers::one);
        let link = |latency_ns, bytes_per_s| Some(MeasuredLink { latency_ns, bytes_per_s });
        let nodes = [(fast, link(10_000, 2_000_000_000)), (slow, link(500_000, 100_000_000)), (unmeasured, None)];
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
