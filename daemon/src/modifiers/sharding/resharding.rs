//! Moves of tensors between placements: the steps that workers are sent, and the copies that remain.

use super::costs::{is_local_slice, nearest_copy, satisfies};
use crate::modifiers::stream_modifier::Output;
use crate::table::{TensorEntry, WorkerTensor};
use crate::worker::step::Step;
use gt_ops::instruction::slice_along;
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
    if satisfies(&source.placement, to) {
        return source.at;
    }
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
    let id = out.tensors().get_at(at).map_or(0, |copy| copy.id);
    let replaces = match (&source.placement, to) {
        (Placement::Partial { .. }, _) => true,
        (Placement::Replicated { workers }, Placement::Replicated { workers: more }) => more.contains_all(*workers),
        _ => false,
    };
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
        encoded: None,
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
    if let (true, Placement::Sharded { axis, .. }) = (is_local_slice(&tensor.placement, to), to) {
        for worker in to.workers().iter() {
            let Some(range) = to.shard_of(&meta.shape, worker) else { continue };
            let attrs = slice_along(&meta.shape, *axis as usize, &range);
            let command = op_command(Op::Slice, at, &[Operand::Tensor(tensor.at.id())], attrs);
            out.push(step_for(step, Workers::one(worker), command, Some(to.local(&meta, worker))));
        }
        return at;
    }
    if let Placement::Partial { workers, .. } = to {
        // The first worker has all of the sum, the others zeros that change no number in a sum: -0.0 leaves the sign of
        // a zero, which 0.0 does not.
        let zero = if meta.dtype.is_float() { Scalar::Float(-0.0) } else { Scalar::Int(0) };
        for worker in workers.iter() {
            let command = if Some(worker) == workers.first() {
                op_command(Op::Reshape, at, &[Operand::Tensor(tensor.at.id())], Attrs::Shape(meta.shape))
            } else {
                let attrs = Attrs::Create { shape: meta.shape, dtype: meta.dtype };
                op_command(Op::Full, at, &[Operand::Scalar(zero)], attrs)
            };
            out.push(step_for(step, Workers::one(worker), command, Some(meta)));
        }
        return at;
    }
    let reshard = Reshard { out: at.id(), input: tensor.at.id(), meta, from: tensor.placement, to: *to };
    let workers = tensor.placement.workers().with(to.workers());
    let moved = step_for(step, workers, Command::Reshard(reshard), Some(meta));
    out.push(Step { divided: true, bytes: tensor.bytes, ..moved });
    at
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
