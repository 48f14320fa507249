//! Bytes that a client writes or fetches: stretches of a tensor's row-major form, to and from the workers that
//! have them.

use super::collectives::bring;
use super::families::Kin;
use super::{Output, Sharding};
use crate::table::{Content, Tensor, WorkerTensor};
use crate::worker::step::Step;
use gt_ops::wire::{ArenaRange, Command};
use gt_ops::{Placement, Workers};

impl Sharding {
    /// Says where a tensor will lie whose bytes the client writes.
    pub(super) fn allocate(&mut self, step: Step, out: &mut Output<'_>) {
        let Command::Allocate { out: id, meta } = step.command else { return };
        let requested = step.requested.and_then(|requested| requested.placement(&meta.shape, self.all));
        let home = step.workers.first().map_or(Placement::on(0), Placement::on);
        // Bytes arrive in row-major order: only stretches of the first axis can be written as they come.
        let fits = |placement: &Placement| match placement {
            Placement::Sharded { axis, .. } => *axis == 0,
            Placement::Replicated { .. } => true,
            Placement::Partial { .. } => false,
        };
        let placement = requested.or_else(|| self.by_size(&meta)).filter(fits).unwrap_or(home);
        let at = WorkerTensor::from_id(id);
        out.tensors().place(at, placement);
        if let (Some(requested), Some(tensor)) = (requested, out.tensors().get_at_mut(at)) {
            tensor.kin = Kin::Asked(requested);
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
}

/// The bytes `from..to` of a tensor's row-major form that `worker` has, and where among its own they begin.
fn overlap(tensor: &Tensor, worker: usize, from: u64, to: u64) -> Option<(u64, u64, u64)> {
    let stretch = tensor.placement.stretch_of(&tensor.meta.shape, worker)?;
    let size = tensor.meta.shape.dims()[0].max(1) as u64;
    let row = tensor.bytes / size;
    let (first, last) = (stretch.start as u64 * row, stretch.end as u64 * row);
    let (start, end) = (from.max(first), to.min(last));
    (start < end).then(|| (start, end, start - first))
}

/// Bytes `skip..skip + len_bytes` of a range.
fn part_of(range: &ArenaRange, skip: u64, len_bytes: u64) -> ArenaRange {
    ArenaRange { segment: range.segment, offset_bytes: range.offset_bytes + skip, len_bytes }
}

/// The bytes that a client writes, to the workers that have them.
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
        let from = part_of(&from, start - offset_bytes, end - start);
        let command = Command::Write { token, id, offset_bytes: own, from };
        out.push(Step { workers: Workers::one(worker), command, bytes: end - start, ..step.clone() });
    }
    if !any {
        // Nothing of a tensor of nothing: somebody says that it is there.
        let first = tensor.placement.workers().first().unwrap_or_default();
        out.push(Step { workers: Workers::one(first), ..step });
    }
}

/// The bytes that a client fetches, from the workers that have them; parts are joined before.
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
                let to = part_of(&to, start - offset_bytes, end - start);
                let command = Command::Fetch { token, id, offset_bytes: own, to };
                out.push(Step { workers: Workers::one(worker), command, bytes: end - start, ..step.clone() });
            }
        }
        _ => {
            let whole = match tensor.placement {
                Placement::Partial { .. } => Placement::Replicated { workers },
                _ => Placement::on(first),
            };
            let id = bring(&tensor, &whole, &step, out).id();
            let command = Command::Fetch { token, id, offset_bytes, to };
            out.push(Step { workers: Workers::one(first), command, ..step });
        }
    }
}
