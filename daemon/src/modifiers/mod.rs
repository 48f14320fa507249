//! Stream modifiers: rewriters of the validated steps between a session and its workers.
//!
//! [`stream_modifier`] is the interface, [`pipeline`] a list of modifiers in order, and [`standard`] the modifiers of
//! this version. Each modifier is a folder or file here. Without modifiers a step goes straight to its worker.

pub mod links;
pub mod pipeline;
pub mod sharding;
pub mod stream_modifier;

use crate::bandwidth::machine_bytes_per_ns;
use gt_ops::Workers;
use links::Links;
use pipeline::{Pipeline, Pipelines, SessionWorkers};
use sharding::Sharding;
use sharding::costs::Costs;

/// The modifiers of this version. A session that began with one worker needs none. `together` are the workers that are
/// threads of this process. `devices` are workers whose devices reach each other directly, and the bandwidth between
/// these, gigabytes a second.
pub fn standard(shard_bytes_min: Option<u64>, together: Workers, devices: Option<(Workers, f64)>) -> Pipelines {
    Pipelines::new(move |SessionWorkers { workers, several }, machines| {
        if !several {
            return Pipeline::new(Vec::new(), Links::new(f64::INFINITY, Vec::new()));
        }
        let local_bytes_per_ns = match devices {
            Some((devices, gbytes_per_s)) if workers.without(devices).is_empty() => gbytes_per_s,
            _ => machine_bytes_per_ns(),
        };
        let links = Links::new(local_bytes_per_ns, machines.to_vec());
        let costs = Costs { shard_bytes_min, together, links: links.clone() };
        Pipeline::new(vec![Box::new(Sharding::new(workers, costs))], links)
    })
}
