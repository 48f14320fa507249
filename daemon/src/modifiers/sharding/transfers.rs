//! Transfers between a client's arenas and placed tensors: ranges of a tensor's row-major bytes go to and from the
//! workers that have them.

use super::planning::Planner;
use super::resharding::fetch_to;
use crate::affinity::Membership;
use crate::modifiers::stream_modifier::Output;
use crate::table::{Content, TensorEntry, WorkerTensor};
use crate::worker::step::Step;
use gt_ops::wire::{ArenaRange, Command};
use gt_ops::{Placement, Workers};

/// Places a tensor that the client will upload.
pub fn allocate(planner: &Planner, step: Step, out: &mut Output<'_>) {
    let Command::Allocate { out: id, meta } = step.command else { return };
    let requested = step.requested.and_then(|requested| requested.placement(&meta.shape, planner.workers));
    let home = step.workers.first().map_or(Placement::on(0), Placement::on);
    // Bytes arrive in row-major order: only shards along the first axis are contiguous.
    let is_contiguous = |placement: &Placement| match placement {
        Placement::Sharded { axis, .. } => *axis == 0,
        Placement::Replicated { .. } => true,
        Placement::Partial { .. } | Placement::Mesh { .. } => false,
    };
    let placement = requested.or_else(|| planner.placement_by_size(&meta)).filter(is_contiguous).unwrap_or(home);
    let at = WorkerTensor::from_id(id);
    out.tensors().set_placement(at, placement);
    if let (Some(requested), Some(tensor)) = (requested, out.tensors().get_at_mut(at)) {
        tensor.membership = Membership::Requested(requested);
    }
    if let Placement::Sharded { workers, .. } = placement {
        for worker in workers.iter() {
            let local = placement.local(&meta, worker);
            let command = Command::Allocate { out: id, meta: local };
            out.push(Step { workers: Workers::one(worker), divided: true, command, ..step.clone() });
        }
    } else {
        out.push(Step { workers: placement.workers(), ..step });
    }
}

/// The bytes among `from..to` of a tensor that `worker` has, as start and end, and their offset in that worker's shard.
fn overlap(tensor: &TensorEntry, worker: usize, from: u64, to: u64) -> Option<(u64, u64, u64)> {
    let stretch = tensor.placement.shard_of(&tensor.meta.shape, worker)?;
    let size = tensor.meta.shape.dims()[0].max(1) as u64;
    let row = tensor.bytes / size;
    let (first, last) = (stretch.start as u64 * row, stretch.end as u64 * row);
    let (start, end) = (from.max(first), to.min(last));
    (start < end).then(|| (start, end, start - first))
}

/// Bytes `skip..skip + len_bytes` of an arena range.
fn subrange(range: &ArenaRange, skip: u64, len_bytes: u64) -> ArenaRange {
    ArenaRange { segment: range.segment, offset_bytes: range.offset_bytes + skip, len_bytes }
}

/// Sends the bytes of an upload to the workers whose shards they belong to.
pub fn write(step: Step, out: &mut Output<'_>) {
    let Command::Write { token, id, offset_bytes, from } = step.command else { return };
    let Some(tensor) = out.tensors().get_at(WorkerTensor::from_id(id)).copied() else { return out.push(step) };
    if !matches!(tensor.placement, Placement::Sharded { .. }) {
        return out.push(Step { workers: tensor.placement.workers(), ..step });
    }
    let mut any = false;
    for worker in tensor.placement.workers().iter() {
        let Some((start, end, own)) = overlap(&tensor, worker, offset_bytes, offset_bytes + from.len_bytes) else {
            continue;
        };
        any = true;
        let from = subrange(&from, start - offset_bytes, end - start);
        let command = Command::Write { token, id, offset_bytes: own, from };
        out.push(Step { workers: Workers::one(worker), command, bytes: end - start, ..step.clone() });
    }
    if !any {
        // An empty write to an empty tensor: one worker completes it.
        let first = tensor.placement.workers().first().unwrap_or_default();
        out.push(Step { workers: Workers::one(first), ..step });
    }
}

/// Sends a fetch to the workers whose shards it reads. A partial tensor is reduced first.
pub fn fetch(step: Step, out: &mut Output<'_>) {
    let Command::Fetch { token, id, offset_bytes, to } = step.command else { return };
    let Some(tensor) = out.tensors().get_at(WorkerTensor::from_id(id)).copied() else { return out.push(step) };
    debug_assert!(tensor.content == Content::Defined);
    let workers = tensor.placement.workers();
    let first = workers.first().unwrap_or_default();
    match tensor.placement {
        Placement::Replicated { .. } => out.push(Step { workers: Workers::one(first), ..step }),
        Placement::Sharded { .. } if to.len_bytes == 0 => {
            let command = Command::Fetch { token, id, offset_bytes: 0, to };
            out.push(Step { workers: Workers::one(first), command, ..step });
        }
        Placement::Sharded { axis: 0, .. } => {
            for worker in workers.iter() {
                let Some((start, end, own)) = overlap(&tensor, worker, offset_bytes, offset_bytes + to.len_bytes)
                else {
                    continue;
                };
                let to = subrange(&to, start - offset_bytes, end - start);
                let command = Command::Fetch { token, id, offset_bytes: own, to };
                out.push(Step { workers: Workers::one(worker), command, bytes: end - start, ..step.clone() });
            }
        }
        _ => {
            let whole = match tensor.placement {
                Placement::Partial { .. } => Placement::Replicated { workers },
                _ => Placement::on(first),
            };
            let id = fetch_to(&tensor, &whole, &step, out).id();
            let command = Command::Fetch { token, id, offset_bytes, to };
            out.push(Step { workers: Workers::one(first), command, ..step });
        }
    }
}
