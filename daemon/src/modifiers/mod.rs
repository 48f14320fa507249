//! Stream modifiers: rewriters of the validated steps between a session and its workers.
//!
//! [`stream_modifier`] is the interface, [`pipeline`] a list of modifiers in order, and [`standard`] the modifiers of
//! this version. Each modifier is a folder or file here. Without modifiers a step goes straight to its worker.

pub mod pipeline;
pub mod sharding;
pub mod stream_modifier;

use crate::bandwidth::machine_bytes_per_ns;
use gt_ops::Workers;
use pipeline::{Pipelines, SessionWorkers};
use sharding::Sharding;
use sharding::costs::Costs;

/// The modifiers of this version. A session that began with one worker needs none. `devices` are workers whose
/// devices reach each other directly, and the bandwidth between these, gigabytes a second.
pub fn standard(shard_bytes_min: Option<u64>, devices: Option<(Workers, f64)>) -> Pipelines {
    Pipelines::new(move |SessionWorkers { workers, several }| {
        let link_bytes_per_ns = || match devices {
            Some((devices, gbytes_per_s)) if workers.without(devices).is_empty() => gbytes_per_s,
            _ => machine_bytes_per_ns(),
        };
        let costs = || Costs { shard_bytes_min, link_bytes_per_ns: link_bytes_per_ns() };
        if several { vec![Box::new(Sharding::new(workers, costs()))] } else { Vec::new() }
    })
}
