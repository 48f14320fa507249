//! How a tensor comes to lie elsewhere: what its workers are told, and what that costs.

use super::Output;
use crate::table::{Tensor, TensorTable, WorkerTensor};
use crate::worker::step::Step;
use gt_ops::instruction::slice_along;
use gt_ops::placement::ReduceOp;
use gt_ops::wire::{Command, Reshard};
use gt_ops::{Attrs, Inputs, Instruction, Meta, Op, Operand, Placement, Scalar, TensorId, Workers};

/// The estimated time in which workers meet, nanoseconds.
const MEETING_NS: f64 = 20_000.0;

/// How long a tensor of `bytes` takes to get from one placement to another, nanoseconds, where `bytes_per_ns` move
/// between two workers.
pub fn move_ns(from: &Placement, to: &Placement, bytes: u64, bytes_per_ns: f64) -> f64 {
    if is_there(from, to) || is_cut(from, to) {
        return 0.0;
    }
    if let (Placement::Replicated { workers }, Placement::Partial { workers: among, .. }) = (from, to)
        && workers.and(*among) == *among
    {
        return 0.0;
    }
    let bytes = bytes as f64;
    let others = |workers: &Workers| (workers.len() - 1) as f64 / workers.len() as f64;
    let moved = match (from, to) {
        (Placement::Partial { workers, .. }, Placement::Sharded { workers: same, .. }) if workers == same => {
            others(workers) * bytes
        }
        (Placement::Partial { workers, .. }, Placement::Replicated { workers: same }) if workers == same => {
            2.0 * others(workers) * bytes
        }
        (Placement::Partial { workers, .. }, _) => 2.0 * others(workers) * bytes + bytes,
        (Placement::Sharded { workers, .. }, Placement::Sharded { workers: same, .. }) if workers == same => {
            bytes / workers.len() as f64
        }
        (Placement::Sharded { workers, .. }, Placement::Replicated { workers: same }) if workers == same => {
            others(workers) * bytes
        }
        (_, Placement::Replicated { workers }) => bytes * workers.without(from.workers()).len().max(1) as f64,
        _ => bytes,
    };
    MEETING_NS + moved / bytes_per_ns
}

/// Whether what lies as `from` says lies as `to` says as well.
pub fn is_there(from: &Placement, to: &Placement) -> bool {
    match (from, to) {
        (Placement::Replicated { workers }, Placement::Replicated { workers: wanted }) => workers.contains_all(*wanted),
        _ => from == to,
    }
}

/// Whether each worker has its part in what it has already.
fn is_cut(from: &Placement, to: &Placement) -> bool {
    match (from, to) {
        (Placement::Replicated { workers }, Placement::Sharded { workers: wanted, .. }) => {
            workers.contains_all(*wanted)
        }
        _ => false,
    }
}

/// Of a tensor and its copies the one that lies as `to` says soonest, and how long that takes, nanoseconds.
pub fn nearest(tensor: &Tensor, to: &Placement, bytes_per_ns: f64, tensors: &TensorTable) -> (Tensor, f64) {
    let time = |tensor: &Tensor| move_ns(&tensor.placement, to, tensor.bytes, bytes_per_ns);
    let mut found = (*tensor, time(tensor));
    for copy in tensors.lying(tensor).skip(1) {
        let time = time(copy);
        if time < found.1 || is_there(&copy.placement, to) {
            found = (*copy, time);
        }
    }
    found
}

/// The name under which `tensor` lies as `to` says, of what is partial only as a sum; what must be done for that is
/// pushed. `step` is the one it is needed for.
///
/// What was moved is kept beside the tensor, for the next that needs it, until the tensor is freed. Where all that the
/// old place had is in the new one too, the new one takes its place.
pub fn bring(tensor: &Tensor, to: &Placement, step: &Step, out: &mut Output<'_>) -> WorkerTensor {
    let (mut source, _) = nearest(tensor, to, 1.0, out.tensors());
    if is_there(&source.placement, to) {
        return source.at;
    }
    if let Placement::Partial { workers, .. } = source.placement
        && to.workers() != workers
    {
        // Joined where it is; from there it goes on.
        bring(&source, &Placement::Replicated { workers }, step, out);
        let Some(joined) = out.tensors().get(source.id).copied() else { return source.at };
        source = joined;
        if is_there(&source.placement, to) {
            return source.at;
        }
    }
    if let (Placement::Partial { .. }, Some(first)) = (to, to.workers().first()) {
        let whole = matches!(source.placement, Placement::Replicated { workers } if workers.contains(first));
        if !whole {
            let at = bring(tensor, &Placement::on(first), step, out);
            source = out.tensors().get_at(at).copied().unwrap_or(source);
        }
    }
    let at = relocate(&source, to, step, out);
    let id = out.tensors().get_at(at).map_or(0, |moved| moved.id);
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

/// Lets the tensor called `id` be what is called `other`, and frees what it was.
pub fn replace(id: TensorId, other: TensorId, step: &Step, out: &mut Output<'_>) {
    out.tensors().swap(id, other);
    if let Some(old) = out.tensors().get(other).copied() {
        free(&old, step, out);
    }
}

/// Lets the tensor called `id` be its copy that workers call `at`, and frees all others.
pub fn settle(id: TensorId, at: WorkerTensor, step: &Step, out: &mut Output<'_>) {
    let Some(main) = out.tensors().get(id).copied().filter(|main| main.at != at) else { return };
    let lying: Vec<Tensor> = out.tensors().lying(&main).copied().collect();
    for tensor in &lying {
        if let Some(tensor) = out.tensors().get_at_mut(tensor.at) {
            tensor.copy = 0;
        }
    }
    for copy in lying.iter().skip(1) {
        if copy.at == at { replace(id, copy.id, step, out) } else { free(copy, step, out) }
    }
}

/// Frees a tensor of a modifier's.
pub fn free(tensor: &Tensor, step: &Step, out: &mut Output<'_>) {
    let ids = [tensor.at.id(), 0, 0, 0, 0, 0, 0];
    out.push(follow(step, tensor.placement.workers(), Command::Free { ids }, None));
    out.release(tensor.id);
}

/// A step for the sake of `step`, done by `workers`.
pub fn follow(step: &Step, workers: Workers, command: Command, whole: Option<Meta>) -> Step {
    Step {
        workers,
        divided: false,
        requested: None,
        token: 0,
        operands: [0; 2],
        command,
        out: whole,
        fused_ns: None,
        cost_ns: STEP_NS,
        expected_ns: STEP_NS,
        bytes: 0,
        ..step.clone()
    }
}

/// The cost of a step that moves nothing, nanoseconds.
const STEP_NS: u64 = 200;

/// Pushes what makes a new tensor that lies as `to` says of one that does not.
fn relocate(tensor: &Tensor, to: &Placement, step: &Step, out: &mut Output<'_>) -> WorkerTensor {
    let meta = tensor.meta;
    let (_, at) = out.allocate(meta);
    out.tensors().place(at, *to);
    if let (true, Placement::Sharded { axis, .. }) = (is_cut(&tensor.placement, to), to) {
        for worker in to.workers().iter() {
            let Some(range) = to.stretch_of(&meta.shape, worker) else { continue };
            let attrs = slice_along(&meta.shape, *axis as usize, &range);
            let command = instruction(Op::Slice, at, &[Operand::Tensor(tensor.at.id())], attrs);
            out.push(follow(step, Workers::one(worker), command, Some(to.local(&meta, worker))));
        }
        return at;
    }
    if let Placement::Partial { workers, .. } = to {
        // One has all of it, the others nothing to add.
        for worker in workers.iter() {
            let command = if Some(worker) == workers.first() {
                instruction(Op::Reshape, at, &[Operand::Tensor(tensor.at.id())], Attrs::Shape(meta.shape))
            } else {
                let attrs = Attrs::Create { shape: meta.shape, dtype: meta.dtype };
                instruction(Op::Full, at, &[Operand::Scalar(Scalar::Int(0))], attrs)
            };
            out.push(follow(step, Workers::one(worker), command, Some(meta)));
        }
        return at;
    }
    let relocation = Reshard { out: at.id(), input: tensor.at.id(), meta, from: tensor.placement, to: *to };
    let workers = tensor.placement.workers().with(to.workers());
    let moved = follow(step, workers, Command::Reshard(relocation), Some(meta));
    out.push(Step { divided: true, bytes: tensor.bytes, ..moved });
    at
}

/// An instruction without a last use.
pub fn instruction(op: Op, out: WorkerTensor, operands: &[Operand], attrs: Attrs) -> Command {
    Command::Op(Instruction {
        op,
        out: out.id(),
        inputs: Inputs::from_slice(operands),
        last_use: 0,
        attrs,
        tf32: false,
    })
}

/// Where a tensor is whose workers each have a part of it.
pub fn parts(workers: Workers, reduce_op: ReduceOp) -> Placement {
    if workers.len() < 2 { Placement::Replicated { workers } } else { Placement::Partial { workers, reduce_op } }
}
