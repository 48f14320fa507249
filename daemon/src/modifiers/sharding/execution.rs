//! The steps of a planned instruction: moves of its operands, each worker's part, and the move of the result.

use super::costs::satisfies;
use super::operands::PlacedOperand;
use super::planning::{ExecutionPlan, operand_placement, result_placement};
use super::resharding::{fetch_to, free, materialize, op_command, step_for};
use crate::modifiers::stream_modifier::Output;
use crate::table::WorkerTensor;
use crate::worker::step::Step;
use gt_ops::placement::shard_range;
use gt_ops::propagate::{Split, localize, mean_weight};
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
    /// Pushes the steps that do the instruction as planned. The result ends up in the placement
    /// `target`, if there is one.
    pub fn execute(&self, plan: &ExecutionPlan, target: Option<&Placement>, out: &mut Output<'_>) {
        let PlacedInstruction { instruction, meta, step, .. } = *self;
        let workers = plan.workers;
        let whole = Placement::Replicated { workers };
        let mut operands: Vec<Operand> = instruction.inputs.as_slice().to_vec();
        for (i, (operand, placed)) in operands.iter_mut().zip(self.operands).enumerate() {
            let PlacedOperand::Tensor(tensor) = placed else { continue };
            let to = match &plan.split {
                Some((split, granule)) => operand_placement(split, i, workers, *granule, placed),
                None => whole,
            };
            // Looked up again: an operand named twice may have been moved for its first occurrence.
            let current = out.tensors().get(tensor.id).copied().unwrap_or(*tensor);
            *operand = Operand::Tensor(fetch_to(&current, &to, step, out).id());
        }
        let result = WorkerTensor::from_id(instruction.out);
        let placement = match &plan.split {
            None => {
                let command = with_operands(instruction, result, &operands, instruction.attrs.clone());
                out.push(Step { workers, command, ..step.clone() });
                whole
            }
            Some((split, granule)) => {
                self.divide(&operands, split, *granule, workers, out);
                result_placement(split, workers, *granule, &meta.shape)
            }
        };
        out.tensors().set_placement(result, placement);
        if let Some(target) = target
            && !satisfies(&placement, target)
            && let Some(tensor) = out.tensors().get_at(result).copied()
        {
            let at = fetch_to(&tensor, target, step, out);
            // Copies made on the way are freed.
            materialize(tensor.id, at, step, out);
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
        let mut alike = None;
        for (rank, worker) in workers.iter().enumerate() {
            let local = placement.local(meta, worker);
            match localize(instruction.op, &instruction.attrs, split, &units(rank), &local.shape) {
                Some(attrs) => {
                    let command = with_operands(instruction, first, operands, attrs);
                    out.push(Step { workers: Workers::one(worker), divided: true, command, cost_ns, ..step.clone() });
                }
                None => alike = Some(instruction.attrs.clone()),
            }
        }
        if let Some(attrs) = alike {
            let command = with_operands(instruction, first, operands, attrs);
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

/// The instruction with other operands, attributes and result.
fn with_operands(instruction: &Instruction, result: WorkerTensor, operands: &[Operand], attrs: Attrs) -> Command {
    let inputs = Inputs::from_slice(operands);
    Command::Op(Instruction {
        op: instruction.op,
        out: result.id(),
        inputs,
        last_use: 0,
        attrs,
        tf32: instruction.tf32,
    })
}
