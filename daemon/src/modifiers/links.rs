//! The links between workers: what a move of a tensor takes.

use gt_ops::Workers;

/// Between workers of two machines, bytes a nanosecond: 64 MiB from one process to another took 71 ms.
const NETWORK_BYTES_PER_NS: f64 = 0.95;
/// The estimated time of a collective besides its bytes, nanoseconds: on one machine, and between two, where an
/// all-reduce of 1 KiB took 90 µs.
const LOCAL_COLLECTIVE_NS: f64 = 20_000.0;
const NETWORK_COLLECTIVE_NS: f64 = 90_000.0;

/// The links between the workers of a session.
#[derive(Clone, Debug)]
pub struct Links {
    /// Between workers of one machine, bytes a nanosecond.
    pub local_bytes_per_ns: f64,
    /// The workers of each machine. All are on one if this is empty.
    pub machines: Vec<Workers>,
}

/// The slowest link among some workers.
#[derive(Clone, Copy, Debug)]
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
            let bytes_per_ns = self.local_bytes_per_ns.min(NETWORK_BYTES_PER_NS);
            LinkSpeed { bytes_per_ns, collective_ns: NETWORK_COLLECTIVE_NS }
        }
    }
}
