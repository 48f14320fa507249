//! Instructions on a mesh of workers: each of its dimensions divides the instruction that the one before left to it.
//!
//! An instruction is on a mesh if a signal requests that for its result, or if an operand lies there. It is divided by
//! the pair of ways, one for each dimension, that is estimated to finish first, moves included. Shards on a mesh are
//! even; an axis that does not allow that is not divided.

use super::costs::reshard_ns;
use super::execution::{PlacedInstruction, keeps_shard, with_operands};
use super::operands::PlacedOperand;
use super::planning::{Planner, input_metas, is_memory_bound, lies_with_operands, preserves_partial};
use super::resharding::{free, op_command, step_for};
use crate::affinity::Membership;
use crate::modifiers::stream_modifier::Output;
use crate::table::{TensorTable, WorkerTensor};
use crate::worker::step::Step;
use gt_ops::infer::InputMeta;
use gt_ops::mesh::{Mesh, MeshLayout, MeshLayouts};
use gt_ops::placement::MeshTarget;
use gt_ops::propagate::{Need, Produces, Split, localize, splits};
use gt_ops::{Attrs, Meta, Op, Operand, Placement, Scalar, Shape, Workers};

/// How one dimension of a mesh does an instruction.
#[derive(Clone)]
struct Way {
    /// The layout that each operand needs; that of a number is not used.
    needs: Vec<MeshLayout>,
    /// The layout of the result.
    makes: MeshLayout,
    /// The split by which the dimension divides the instruction. Without one, each group does the same.
    split: Option<Split>,
}

/// The instruction that is left for the groups of a dimension to do.
struct Remainder {
    inputs: Vec<InputMeta>,
    attrs: Attrs,
    out: Meta,
}

/// The ways in which the dimensions of a mesh do an instruction.
struct MeshPlan {
    mesh: Mesh,
    ways: [Way; 2],
}

impl Way {
    /// Every group does the whole instruction.
    fn whole(operands: usize) -> Way {
        Way { needs: vec![MeshLayout::Replicated; operands], makes: MeshLayout::Replicated, split: None }
    }

    /// A split among `parts`; none if it is not even.
    fn by(split: Split, parts: usize) -> Option<Way> {
        let shards = split.needs.iter().any(|need| matches!(need, Need::Shard { .. }))
            || matches!(split.produces, Produces::Shard { .. });
        if shards && !split.units.is_multiple_of(parts) {
            return None;
        }
        let needs = split.needs.iter().map(|need| match need {
            Need::Whole => MeshLayout::Replicated,
            Need::Partial(reduce_op) => MeshLayout::Partial(*reduce_op),
            Need::Shard { axis, .. } => MeshLayout::Sharded { axis: *axis },
        });
        let makes = match split.produces {
            Produces::Shard { axis, .. } => MeshLayout::Sharded { axis },
            Produces::Partial(reduce_op) => MeshLayout::Partial(reduce_op),
        };
        Some(Way { needs: needs.collect(), makes, split: Some(split) })
    }

    /// The number of parts of the instruction.
    fn parts(&self, size: usize) -> u64 {
        self.split.as_ref().map_or(1, |split| size.min(split.units) as u64)
    }

    /// The range of a split's units that part `part` has.
    fn units(split: &Split, part: usize, parts: usize) -> std::ops::Range<usize> {
        let each = split.units / parts;
        part * each..(part + 1) * each
    }
}

impl Remainder {
    /// The whole instruction.
    fn of(placed: &PlacedInstruction<'_>) -> Remainder {
        let PlacedInstruction { instruction, operands, meta, .. } = *placed;
        Remainder { inputs: input_metas(instruction, operands), attrs: instruction.attrs.clone(), out: *meta }
    }

    /// The instruction that `way` leaves to part `part` of the dimension.
    fn after(&self, way: &Way, mesh: Mesh, dimension: usize, op: Op, part: usize) -> Remainder {
        let divided = |layout: MeshLayout, meta: &Meta| mesh.divided(dimension, layout, meta);
        let inputs = self.inputs.iter().zip(&way.needs).map(|(input, need)| match input {
            InputMeta::Tensor(meta) => InputMeta::Tensor(divided(*need, meta)),
            InputMeta::Scalar(number) => InputMeta::Scalar(*number),
        });
        let out = divided(way.makes, &self.out);
        let localized = way.split.as_ref().and_then(|split| {
            localize(op, &self.attrs, split, &Way::units(split, part, mesh.size(dimension)), &out.shape)
        });
        Remainder { inputs: inputs.collect(), attrs: localized.unwrap_or_else(|| self.attrs.clone()), out }
    }
}

/// The mesh of an instruction: that of the target, else that of the operand with the most bytes there.
pub fn mesh_of(target: Option<&MeshTarget>, placed: Option<&Placement>, operands: &[PlacedOperand]) -> Option<Mesh> {
    let on = |placement: &Placement| match placement {
        Placement::Mesh { mesh, .. } => Some(*mesh),
        _ => None,
    };
    let of_operand = || {
        let tensors = operands.iter().filter_map(PlacedOperand::tensor);
        let found = tensors.filter_map(|tensor| Some((tensor.bytes, on(&tensor.placement)?)));
        found.max_by_key(|(bytes, _)| *bytes).map(|(_, mesh)| mesh)
    };
    target.map(|target| target.mesh).or_else(|| placed.and_then(on)).or_else(of_operand)
}

/// Pushes the steps of an instruction on a mesh. `target` has the layouts that a signal requests over it for the
/// result. Without it, `placed` is the placement that the result is to have, on the mesh or elsewhere.
pub fn execute_on_mesh(
    planner: &Planner,
    instruction: &PlacedInstruction<'_>,
    mesh: Mesh,
    target: Option<&MeshTarget>,
    placed: Option<&Placement>,
    out: &mut Output<'_>,
) {
    let shape = &instruction.meta.shape;
    let requested = match (target, placed.and_then(|placement| mesh.layouts_of(placement))) {
        (Some(target), _) => target.layouts,
        (None, Some(layouts)) if mesh.is_even(layouts, shape) => layouts.map(Some),
        (None, _) => [None; 2],
    };
    let plan = MeshPlan::cheapest(planner, instruction, mesh, requested, out.tensors());
    plan.execute(instruction, out);
    let result = WorkerTensor::from_id(instruction.instruction.out);
    let made = plan.ways.each_ref().map(|way| way.makes);
    let to = match placed {
        Some(placement) if target.is_none() => *placement,
        _ => mesh.placement(completed(mesh, requested, made, shape)),
    };
    instruction.move_result(&to, out);
    // New values of the tensor lie there, too, as those of a parameter do; but nobody asked for parts of a sum.
    if let Some(tensor) = out.tensors().get_at_mut(result).filter(|_| target.is_some() && !to.is_partial()) {
        tensor.membership = Membership::Requested(to);
    }
}

/// The layouts of a result: those that are requested, and over a dimension without a request the one that it has, if
/// the shards are even then.
fn completed(mesh: Mesh, requested: [Option<MeshLayout>; 2], made: MeshLayouts, shape: &Shape) -> MeshLayouts {
    let with = |others: MeshLayouts| [0, 1].map(|dimension| requested[dimension].unwrap_or(others[dimension]));
    let found = [with(made), with([MeshLayout::Replicated; 2])];
    found.into_iter().find(|layouts| mesh.is_even(*layouts, shape)).unwrap_or(made)
}

impl MeshPlan {
    /// The plan with the least estimated time, moves of operands and of the result included.
    fn cheapest(
        planner: &Planner,
        placed: &PlacedInstruction<'_>,
        mesh: Mesh,
        requested: [Option<MeshLayout>; 2],
        tensors: &TensorTable,
    ) -> MeshPlan {
        let PlacedInstruction { instruction, operands, meta, step } = *placed;
        let whole = || Way::whole(operands.len());
        let (mut best, mut least) = (MeshPlan { mesh, ways: [whole(), whole()] }, f64::INFINITY);
        let lies = |operand: &PlacedOperand| mesh.layouts_of(&operand.tensor()?.placement);
        let lies: Vec<Option<MeshLayouts>> = operands.iter().map(lies).collect();
        let ways = |remainder: &Remainder, dimension: usize| {
            let mut found = vec![whole()];
            // As in `Planner::plan`: each group computes what all groups are to have, if all have the operands.
            let is_replicated = |layouts: &MeshLayouts| layouts[dimension] == MeshLayout::Replicated;
            let is_here = |(operand, lies): (&PlacedOperand, &Option<MeshLayouts>)| {
                operand.tensor().is_none() || lies.as_ref().is_some_and(is_replicated)
            };
            let everywhere = requested[dimension] == Some(MeshLayout::Replicated) && is_memory_bound(instruction);
            if everywhere && operands.iter().zip(&lies).all(is_here) {
                return found;
            }
            let all = splits(instruction.op, &remainder.inputs, &remainder.attrs, &remainder.out);
            found.extend(all.into_iter().filter_map(|split| Way::by(split, mesh.size(dimension))));
            let layouts = lies.iter().flatten().map(|layouts| layouts[dimension]);
            if let Some(MeshLayout::Partial(reduce_op)) = layouts.into_iter().find(|layout| layout.is_partial())
                && preserves_partial(instruction, operands, reduce_op, meta)
            {
                let layout = MeshLayout::Partial(reduce_op);
                found.push(Way { needs: vec![layout; operands.len()], makes: layout, split: None });
            }
            found
        };
        let expected = [0, 1].map(|dimension| requested[dimension].or_else(|| expected(placed, &lies, dimension)));
        let links = &planner.costs.links;
        let start = Remainder::of(placed);
        for across in ways(&start, 0) {
            let remainder = start.after(&across, mesh, 0, instruction.op, 0);
            for within in ways(&remainder, 1) {
                let parts = across.parts(mesh.size(0)) * within.parts(mesh.size(1));
                let mut time = step.cost_ns as f64 / parts.max(1) as f64;
                for (i, operand) in operands.iter().enumerate() {
                    time += planner.fetch_ns(operand, &mesh.placement([across.needs[i], within.needs[i]]), tensors);
                }
                let made = [across.makes, within.makes];
                let whole = |layout: MeshLayout| if layout.is_partial() { MeshLayout::Replicated } else { layout };
                let likely = completed(mesh, expected, made.map(whole), &meta.shape);
                time += reshard_ns(&mesh.placement(made), &mesh.placement(likely), meta.bytes() as u64, links);
                if time < least {
                    (best, least) = (MeshPlan { mesh, ways: [across.clone(), within] }, time);
                }
            }
        }
        best
    }

    /// Pushes the moves of the operands and each worker's part of the instruction.
    fn execute(&self, placed: &PlacedInstruction<'_>, out: &mut Output<'_>) {
        let PlacedInstruction { instruction, meta, step, .. } = *placed;
        let (mesh, [across, within]) = (self.mesh, &self.ways);
        let operands = placed.fetch_operands(|i, _| mesh.placement([across.needs[i], within.needs[i]]), out);
        let result = WorkerTensor::from_id(instruction.out);
        // A mean over a part becomes a summand of the whole mean when it is multiplied by the part's share.
        let shares = self.ways.iter().enumerate().filter(|(_, way)| way.split.as_ref().is_some_and(|s| s.weighted));
        let shares: usize = shares.map(|(dimension, _)| mesh.size(dimension)).product();
        let unweighted = (shares > 1).then(|| out.allocate(*meta));
        let first = unweighted.map_or(result, |(_, at)| at);
        let keeps = |way: &Way, operand: u8| way.split.as_ref().is_none_or(|split| keeps_shard(split, operand));
        let replaces = instruction
            .replaces
            .filter(|operand| unweighted.is_none() && self.ways.iter().all(|way| keeps(way, *operand)));
        let cost_ns = step.cost_ns / (across.parts(mesh.size(0)) * within.parts(mesh.size(1))).max(1);
        let mut push = |workers: Workers, attrs: Attrs| {
            let command = with_operands(instruction, first, &operands, attrs, replaces);
            out.push(Step { workers, divided: true, command, cost_ns, ..step.clone() });
        };
        let attrs = self.attrs(placed);
        match attrs.split_first() {
            Some(((_, same), rest)) if rest.iter().all(|(_, attrs)| attrs == same) => {
                push(mesh.workers(), same.clone());
            }
            _ => attrs.into_iter().for_each(|(worker, attrs)| push(Workers::one(worker), attrs)),
        }
        let placement = mesh.placement([across.makes, within.makes]);
        out.tensors().set_placement(result, placement);
        let Some((id, at)) = unweighted else { return };
        let share = Operand::Scalar(Scalar::Float(1.0 / shares as f64));
        let command = op_command(Op::Mul, result, &[Operand::Tensor(at.id()), share], Attrs::None);
        out.push(Step { divided: true, ..step_for(step, mesh.workers(), command, Some(*meta)) });
        out.tensors().set_placement(at, placement);
        if let Some(tensor) = out.tensors().get(id).copied() {
            free(&tensor, step, out);
        }
    }

    /// The attributes of each worker's part.
    fn attrs(&self, placed: &PlacedInstruction<'_>) -> Vec<(usize, Attrs)> {
        let (mesh, op) = (self.mesh, placed.instruction.op);
        let start = Remainder::of(placed);
        let rows = (0..mesh.size(0)).map(|row| start.after(&self.ways[0], mesh, 0, op, row));
        let parts = rows.flat_map(|of_row| {
            (0..mesh.size(1)).map(move |column| of_row.after(&self.ways[1], mesh, 1, op, column).attrs)
        });
        mesh.workers().iter().zip(parts).collect()
    }
}

/// The likely layout of the result for its consumers over one dimension: replicated like the operands of its shape, if
/// those are replicated or partial there. So an updated parameter stays replicated.
fn expected(placed: &PlacedInstruction<'_>, lies: &[Option<MeshLayouts>], dimension: usize) -> Option<MeshLayout> {
    let PlacedInstruction { instruction, operands, meta, .. } = *placed;
    if !lies_with_operands(instruction, meta) {
        return None;
    }
    let alike = operands
        .iter()
        .zip(lies)
        .filter(|(operand, _)| operand.tensor().is_some_and(|tensor| tensor.meta.shape == meta.shape));
    let layouts: Vec<MeshLayout> = alike.filter_map(|(_, lies)| lies.map(|layouts| layouts[dimension])).collect();
    let whole = !layouts.is_empty() && !layouts.iter().any(|layout| matches!(layout, MeshLayout::Sharded { .. }));
    whole.then_some(MeshLayout::Replicated)
}
