//! The steps of a planned instruction: moves of its operands, each worker's part, and the move of the result.

use super::costs::satisfies;
use super::operands::PlacedOperand;
use super::planning::{ExecutionPlan, operand_placement, result_placement};
use super::resharding::{fetch_to, free, materialize, op_command, step_for};
use crate::modifiers::stream_modifier::Output;
use crate::table::WorkerTensor;
use crate::worker::step::Step;
use gt_ops::instruction::{SliceSpec, slice_along};
use gt_ops::placement::shard_range;
use gt_ops::propagate::{Need, Produces, Split, localize, mean_weight};
use gt_ops::wire::Command;
use gt_ops::{Attrs, Inputs, Instruction, Meta, Op, Operand, Placement, Workers};

/// An instruction with its operands' placements, and the shape and dtype of its result.
#[derive(Clone, Copy)]
pub struct PlacedInstruction<'a> {
    /// The instruction, with the workers' tensor ids.
    pub instruction: &'a Instruction,
    /// Its operands.
    pub operands: &'a [PlacedOperand],
    /// The shape and dtype of the whole result.
    pub meta: &'a Meta,
    /// The step whose command is the instruction.
    pub step: &'a Step,
}

impl PlacedInstruction<'_> {
    /// Pushes the steps of a slice scatter that writes along the axis by which its first operand is sharded: a worker
    /// writes what lies in its shard, so the shards stay where they are. False for other instructions.
    pub fn write_shards(&self, target: Option<&Placement>, out: &mut Output<'_>) -> bool {
        let PlacedInstruction { instruction, operands, meta, step } = *self;
        let (Op::SliceScatter, Attrs::Slice(spec)) = (instruction.op, &instruction.attrs) else { return false };
        let [PlacedOperand::Tensor(base), source] = operands else { return false };
        let Placement::Sharded { axis, .. } = base.placement else { return false };
        let axis = axis as usize;
        let (first, size) = (spec.start[axis], spec.sizes.dims()[axis]);
        let is_whole = size == meta.shape.dims()[axis];
        if is_whole || spec.step[axis] <= 0 || target.is_some_and(|target| *target != base.placement) {
            return false;
        }
        let stride = spec.step[axis] as usize;
        // The number of the source's elements before a position on the axis.
        let before = |position: usize| position.saturating_sub(first as usize).div_ceil(stride).min(size);
        let shard = |worker: usize| base.placement.shard_of(&meta.shape, worker).unwrap_or(0..0);
        let written = |worker: usize| before(shard(worker).start)..before(shard(worker).end);
        let workers = base.placement.workers();
        let touched = workers.iter().filter(|worker| !written(*worker).is_empty());
        let touched = touched.fold(Workers::NONE, |all, worker| all.with(Workers::one(worker)));
        let whole = Placement::Replicated { workers: touched };
        // The source at the workers that write, and the tensor that a worker's part of it becomes; none for a number.
        let parts = source.tensor().map(|source| {
            let source = if touched.is_empty() { source.at } else { fetch_to(source, &whole, step, out) };
            let (part_id, part) = out.allocate(Meta::new(spec.sizes, meta.dtype));
            out.tensors().set_placement(part, whole);
            (source, part_id, part)
        });
        let (result, base_at) = (WorkerTensor::from_id(instruction.out), Operand::Tensor(base.at.id()));
        let mut push = |worker: usize, command: Command| {
            out.push(Step { divided: true, ..step_for(step, Workers::one(worker), command, Some(*meta)) });
        };
        for worker in workers.iter() {
            let (shard, written) = (shard(worker), written(worker));
            if written.is_empty() {
                let shape = Attrs::Shape(base.placement.local(meta, worker).shape);
                push(worker, in_place_command(Op::Reshape, instruction, &[base_at], shape));
                continue;
            }
            let written_operand = match &parts {
                Some((source, _, part)) => {
                    let cut = slice_along(&spec.sizes, axis, &written);
                    push(worker, op_command(Op::Slice, *part, &[Operand::Tensor(source.id())], cut));
                    Operand::Tensor(part.id())
                }
                None => instruction.inputs.as_slice()[1],
            };
            let mut local = SliceSpec { sizes: spec.sizes.with_dim(axis, written.len()), ..**spec };
            local.start[axis] = first + (written.start * stride) as i64 - shard.start as i64;
            let operands = [base_at, written_operand];
            push(worker, in_place_command(Op::SliceScatter, instruction, &operands, Attrs::Slice(Box::new(local))));
        }
        if let Some(part) = parts.and_then(|(_, part_id, _)| out.tensors().get(part_id).copied()) {
            free(&part, step, out);
        }
        out.tensors().set_placement(result, base.placement);
        true
    }

    /// Pushes the steps that do the instruction as planned. The result ends up in the placement
    /// `target`, if there is one.
    pub fn execute(&self, plan: &ExecutionPlan, target: Option<&Placement>, out: &mut Output<'_>) {
        let PlacedInstruction { instruction, meta, step, .. } = *self;
        let workers = plan.workers;
        let whole = Placement::Replicated { workers };
        let needed = |i: usize, operand: &PlacedOperand| match &plan.split {
            Some((split, granule)) => operand_placement(split, i, workers, *granule, operand),
            None => whole,
        };
        let operands = self.fetch_operands(needed, out);
        let result = WorkerTensor::from_id(instruction.out);
        let placement = match &plan.split {
            None => {
                let command =
                    with_operands(instruction, result, &operands, instruction.attrs.clone(), instruction.replaces);
                out.push(Step { workers, command, ..step.clone() });
                whole
            }
            Some((split, granule)) => {
                self.divide(&operands, split, *granule, workers, out);
                result_placement(split, workers, *granule, &meta.shape)
            }
        };
        out.tensors().set_placement(result, placement);
        if let Some(target) = target {
            self.move_result(target, out);
        }
    }

    /// Pushes the moves of the operands to the placements that are `needed`, by the operand's position. Returns the
    /// operands there.
    pub fn fetch_operands(
        &self,
        needed: impl Fn(usize, &PlacedOperand) -> Placement,
        out: &mut Output<'_>,
    ) -> Vec<Operand> {
        let mut operands: Vec<Operand> = self.instruction.inputs.as_slice().to_vec();
        for (i, (operand, placed)) in operands.iter_mut().zip(self.operands).enumerate() {
            let PlacedOperand::Tensor(tensor) = placed else { continue };
            // Looked up again: an operand named twice may have been moved for its first occurrence.
            let current = out.tensors().get(tensor.id).copied().unwrap_or(*tensor);
            *operand = Operand::Tensor(fetch_to(&current, &needed(i, placed), self.step, out).id());
        }
        operands
    }

    /// Pushes the move of the result to `target`, unless it can be read there.
    pub fn move_result(&self, target: &Placement, out: &mut Output<'_>) {
        let result = WorkerTensor::from_id(self.instruction.out);
        let Some(tensor) = out.tensors().get_at(result).copied() else { return };
        if !satisfies(&tensor.placement, target) {
            let at = fetch_to(&tensor, target, self.step, out);
            // Copies made on the way are freed.
            materialize(tensor.id, at, self.step, out);
        }
    }

    /// Pushes each worker's part of the instruction.
    fn divide(&self, operands: &[Operand], split: &Split, granule: usize, workers: Workers, out: &mut Output<'_>) {
        let PlacedInstruction { instruction, meta, step, .. } = *self;
        let result = WorkerTensor::from_id(instruction.out);
        let n = workers.len();
        let cost_ns = step.cost_ns / n as u64;
        let units = |rank: usize| shard_range(split.units, granule, rank, n);
        // A mean over a part becomes a summand of the whole mean when it is multiplied by the part's share.
        let unweighted = split.weighted.then(|| out.allocate(*meta));
        let first = unweighted.map_or(result, |(_, at)| at);
        let placement = result_placement(split, workers, granule, &meta.shape);
        let replaces = instruction.replaces.filter(|operand| unweighted.is_none() && keeps_shard(split, *operand));
        let mut alike = None;
        for (rank, worker) in workers.iter().enumerate() {
            let local = placement.local(meta, worker);
            match localize(instruction.op, &instruction.attrs, split, &units(rank), &local.shape) {
                Some(attrs) => {
                    let command = with_operands(instruction, first, operands, attrs, replaces);
                    out.push(Step { workers: Workers::one(worker), divided: true, command, cost_ns, ..step.clone() });
                }
                None => alike = Some(instruction.attrs.clone()),
            }
        }
        if let Some(attrs) = alike {
            let command = with_operands(instruction, first, operands, attrs, replaces);
            out.push(Step { workers, divided: true, command, cost_ns, ..step.clone() });
        }
        let Some((id, at)) = unweighted else { return };
        for (rank, worker) in workers.iter().enumerate() {
            let weight = Operand::Scalar(mean_weight(&units(rank), split.units));
            let command = op_command(Op::Mul, result, &[Operand::Tensor(at.id()), weight], Attrs::None);
            out.push(Step { divided: true, ..step_for(step, Workers::one(worker), command, Some(*meta)) });
        }
        out.tensors().set_placement(at, Placement::Replicated { workers });
        if let Some(tensor) = out.tensors().get(id).copied() {
            free(&tensor, step, out);
        }
    }
}

/// A command by which a worker writes its part of the first operand of an instruction, which is used up if it is the
/// instruction's.
fn in_place_command(op: Op, instruction: &Instruction, operands: &[Operand], attrs: Attrs) -> Command {
    let (inputs, replaces) = (Inputs::from_slice(operands), instruction.replaces.filter(|operand| *operand == 0));
    let (out, last_use) = (instruction.out, instruction.last_use & 1);
    Command::Op(Instruction { op, out, inputs, last_use, attrs, tf32: false, replaces })
}

/// Whether a worker's part of the result has the elements of its part of an operand.
pub fn keeps_shard(split: &Split, operand: u8) -> bool {
    matches!(
        (split.needs.get(usize::from(operand)), split.produces),
        (Some(Need::Shard { axis, scale }), Produces::Shard { axis: made, scale: made_scale })
            if *axis == made && *scale == made_scale
    )
}

/// The instruction with other operands, attributes and result. `replaces` is the operand that the result replaces.
pub fn with_operands(
    instruction: &Instruction,
    result: WorkerTensor,
    operands: &[Operand],
    attrs: Attrs,
    replaces: Option<u8>,
) -> Command {
    let inputs = Inputs::from_slice(operands);
    Command::Op(Instruction {
        op: instruction.op,
        out: result.id(),
        inputs,
        last_use: instruction.last_use,
        attrs,
        tf32: instruction.tf32,
        replaces,
    })
}
