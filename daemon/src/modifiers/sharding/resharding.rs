//! Moves of tensors between placements: the steps that workers are sent, and the copies that remain.

use super::costs::{MeshMove, is_local_slice, nearest_copy, satisfies};
use crate::modifiers::stream_modifier::Output;
use crate::table::{TensorEntry, WorkerTensor};
use crate::worker::step::Step;
use gt_ops::instruction::slice_along;
use gt_ops::mesh::{Mesh, MeshLayout, MeshLayouts};
use gt_ops::placement::ReduceOp;
use gt_ops::wire::{Command, Reshard};
use gt_ops::{Attrs, Inputs, Instruction, Meta, Op, Operand, Placement, Scalar, TensorId, Workers};

/// The estimated time of a step that moves no bytes, nanoseconds.
const STEP_NS: u64 = 200;

/// The worker id of `tensor`, or of a copy of it, that can be read in the placement `to`. Pushes the reshards that make
/// such a copy where there is none; `step` is the step that needs it. A partial tensor that moves to other workers is
/// reduced first.
///
/// A copy is kept for later steps until the tensor is freed. It replaces its source if the source is partial, or if
/// both are replicated and the copy's workers include the source's.
pub fn fetch_to(tensor: &TensorEntry, to: &Placement, step: &Step, out: &mut Output<'_>) -> WorkerTensor {
    let (mut source, _) = nearest_copy(tensor, to, out.links(), out.tensors());
    while !satisfies(&source.placement, to) {
        let Some(next) = MeshMove::next(&source.placement, to) else {
            return fetch_flat(tensor, source, to, step, out);
        };
        let moved = match next {
            MeshMove::Along { mesh, dimension, layouts, layout } => {
                let at = move_along(&source, mesh, dimension, layouts, layout, step, out);
                keep(tensor, &source, at, layouts[dimension].is_partial(), step, out)
            }
            MeshMove::Flat { from, to } if from == source.placement => {
                let at = fetch_flat(tensor, source, &to, step, out);
                out.tensors().get_at(at).copied()
            }
            MeshMove::Flat { from, to } if satisfies(&from, &to) => return source.at,
            MeshMove::Flat { from, to } => {
                let at = reshard(&TensorEntry { placement: from, ..source }, &to, step, out);
                keep(tensor, &source, at, false, step, out)
            }
        };
        let Some(moved) = moved else { return source.at };
        source = moved;
    }
    source.at
}

/// [`fetch_to`] from `source`, which is the tensor or a copy of it, where neither placement is on a mesh.
fn fetch_flat(
    tensor: &TensorEntry,
    mut source: TensorEntry,
    to: &Placement,
    step: &Step,
    out: &mut Output<'_>,
) -> WorkerTensor {
    if let Placement::Partial { workers, .. } = source.placement
        && to.workers() != workers
    {
        // The tensor is reduced on its own workers, then moved.
        fetch_to(&source, &Placement::Replicated { workers }, step, out);
        let Some(reduced) = out.tensors().get(source.id).copied() else { return source.at };
        source = reduced;
        if satisfies(&source.placement, to) {
            return source.at;
        }
    }
    if let (Placement::Partial { .. }, Some(first)) = (to, to.workers().first()) {
        let whole = matches!(source.placement, Placement::Replicated { workers } if workers.contains(first));
        if !whole {
            let at = fetch_to(tensor, &Placement::on(first), step, out);
            source = out.tensors().get_at(at).copied().unwrap_or(source);
        }
    }
    let at = reshard(&source, to, step, out);
    let replaces = match (&source.placement, to) {
        (Placement::Partial { .. }, _) => true,
        (Placement::Replicated { workers }, Placement::Replicated { workers: more }) => more.contains_all(*workers),
        _ => false,
    };
    keep(tensor, &source, at, replaces, step, out);
    at
}

/// Keeps the copy `at` of a tensor, made from `source`: in place of the source if it `replaces` that, else beside the
/// tensor. Returns the copy.
fn keep(
    tensor: &TensorEntry,
    source: &TensorEntry,
    at: WorkerTensor,
    replaces: bool,
    step: &Step,
    out: &mut Output<'_>,
) -> Option<TensorEntry> {
    let id = out.tensors().get_at(at).map_or(0, |copy| copy.id);
    if replaces {
        replace(source.id, id, step, out);
    } else if let Some(main) = out.tensors().get(tensor.id).map(|main| main.at) {
        let first = out.tensors().get_at(main).map_or(0, |main| main.copy);
        if let Some(copy) = out.tensors().get_at_mut(at) {
            copy.copy = first;
        }
        if let Some(main) = out.tensors().get_at_mut(main) {
            main.copy = id;
        }
    }
    out.tensors().get_at(at).copied()
}

/// Pushes the steps that make a copy of `tensor` in which one dimension of its mesh has another layout. Returns the
/// copy.
fn move_along(
    tensor: &TensorEntry,
    mesh: Mesh,
    dimension: usize,
    layouts: MeshLayouts,
    layout: MeshLayout,
    step: &Step,
    out: &mut Output<'_>,
) -> WorkerTensor {
    let (_, at) = out.allocate(tensor.meta);
    let mut moved = layouts;
    moved[dimension] = layout;
    out.tensors().set_placement(at, mesh.placement(moved));
    // Shards on a mesh are even: each group has a tensor of the same shape.
    let meta = mesh.divided(1 - dimension, layouts[1 - dimension], &tensor.meta);
    for group in mesh.groups(dimension) {
        let part = Moved { input: tensor.at, at, meta, from: layouts[dimension].on(group), to: layout.on(group) };
        part.push(step, out);
    }
    at
}

/// Gives the tensor `id` the data of `other`, and frees the data that `id` had.
fn replace(id: TensorId, other: TensorId, step: &Step, out: &mut Output<'_>) {
    out.tensors().swap(id, other);
    if let Some(old) = out.tensors().get(other).copied() {
        free(&old, step, out);
    }
}

/// Makes the copy with the worker id `at` the tensor `id` itself, and frees all its other copies.
pub fn materialize(id: TensorId, at: WorkerTensor, step: &Step, out: &mut Output<'_>) {
    let Some(main) = out.tensors().get(id).copied().filter(|main| main.at != at) else { return };
    let copies: Vec<TensorEntry> = out.tensors().copies(&main).copied().collect();
    for tensor in &copies {
        if let Some(tensor) = out.tensors().get_at_mut(tensor.at) {
            tensor.copy = 0;
        }
    }
    for copy in copies.iter().skip(1) {
        if copy.at == at { replace(id, copy.id, step, out) } else { free(copy, step, out) }
    }
}

/// Frees a tensor that a modifier allocated.
pub fn free(tensor: &TensorEntry, step: &Step, out: &mut Output<'_>) {
    let ids = [tensor.at.id(), 0, 0, 0, 0, 0, 0];
    out.push(step_for(step, tensor.placement.workers(), Command::Free { ids }, None));
    out.release(tensor.id);
}

/// A step that a modifier adds because `step` needs it. `meta` is the shape and dtype of its result, if it has one.
pub fn step_for(step: &Step, workers: Workers, command: Command, meta: Option<Meta>) -> Step {
    Step {
        workers,
        divided: false,
        requested: None,
        token: 0,
        command,
        out: meta,
        fused_ns: None,
        cost_ns: STEP_NS,
        expected_ns: STEP_NS,
        bytes: 0,
        ..step.clone()
    }
}

/// Pushes the steps that make a copy of `tensor` in the placement `to`. Returns the copy.
fn reshard(tensor: &TensorEntry, to: &Placement, step: &Step, out: &mut Output<'_>) -> WorkerTensor {
    let meta = tensor.meta;
    let (_, at) = out.allocate(meta);
    out.tensors().set_placement(at, *to);
    Moved { input: tensor.at, at, meta, from: tensor.placement, to: *to }.push(step, out);
    at
}

/// A tensor that moves between two placements without a mesh.
struct Moved {
    input: WorkerTensor,
    /// The tensor under its new placement.
    at: WorkerTensor,
    meta: Meta,
    from: Placement,
    to: Placement,
}

impl Moved {
    /// Pushes the steps.
    fn push(self, step: &Step, out: &mut Output<'_>) {
        let Moved { input, at, meta, from, to } = self;
        let operand = Operand::Tensor(input.id());
        if let (true, Placement::Sharded { axis, .. }) = (is_local_slice(&from, &to), to) {
            for worker in to.workers().iter() {
                let Some(range) = to.shard_of(&meta.shape, worker) else { continue };
                let attrs = slice_along(&meta.shape, axis as usize, &range);
                let command = op_command(Op::Slice, at, &[operand], attrs);
                out.push(step_for(step, Workers::one(worker), command, Some(to.local(&meta, worker))));
            }
            return;
        }
        if let Placement::Partial { workers, .. } = to {
            // The first worker has all of the sum, the others zeros that change no number in a sum: -0.0 leaves the
            // sign of a zero, which 0.0 does not.
            let zero = if meta.dtype.is_float() { Scalar::Float(-0.0) } else { Scalar::Int(0) };
            for worker in workers.iter() {
                let command = if Some(worker) == workers.first() {
                    op_command(Op::Reshape, at, &[operand], Attrs::Shape(meta.shape))
                } else {
                    let attrs = Attrs::Create { shape: meta.shape, dtype: meta.dtype };
                    op_command(Op::Full, at, &[Operand::Scalar(zero)], attrs)
                };
                out.push(step_for(step, Workers::one(worker), command, Some(meta)));
            }
            return;
        }
        let workers = from.workers().with(to.workers());
        let command = Command::Reshard(Reshard { out: at.id(), input: input.id(), meta, from, to });
        let moved = step_for(step, workers, command, Some(meta));
        out.push(Step { divided: true, bytes: meta.bytes() as u64, ..moved });
    }
}

/// The command of an instruction without last uses.
pub fn op_command(op: Op, out: WorkerTensor, operands: &[Operand], attrs: Attrs) -> Command {
    Command::Op(Instruction {
        op,
        out: out.id(),
        inputs: Inputs::from_slice(operands),
        last_use: 0,
        attrs,
        tf32: false,
        replaces: None,
    })
}

/// The placement of a tensor of which every worker has a partial result; on one worker, that is the whole result.
pub fn partial(workers: Workers, reduce_op: ReduceOp) -> Placement {
    if workers.len() < 2 { Placement::Replicated { workers } } else { Placement::Partial { workers, reduce_op } }
}
