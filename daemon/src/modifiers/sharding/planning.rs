//! The choice of a placement for each instruction: the [`Split`] and the workers that are estimated to finish first.

use super::costs::{Costs, nearest_copy, reshard_ns, satisfies};
use super::operands::PlacedOperand;
use super::resharding::partial;
use crate::affinity::Membership;
use crate::table::{TensorEntry, TensorTable};
use crate::worker::step::Step;
use gt_ops::infer::InputMeta;
use gt_ops::mesh::MeshLayout;
use gt_ops::placement::{MeshTarget, ReduceOp};
use gt_ops::propagate::{Need, Produces, Split, splits};
use gt_ops::{Class, Instruction, Meta, Op, Operand, Placement, Scalar, Shape, Workers};

/// An instruction on unsharded tensors is divided only if it is estimated to take at least this, nanoseconds.
const DIVIDE_NS_MIN: u64 = 200_000;

/// Once tensors are on several workers, new tensors of up to this size are made on every worker: that takes less time
/// than a copy to the others.
const MADE_EVERYWHERE_BYTES_MAX: u64 = 16 << 10;

/// Updates of replicas that workers hold together are divided from this size on. An all-gather of as much takes longer
/// than the synchronization in it.
const UPDATED_IN_PARTS_BYTES_MIN: u64 = 1 << 20;

/// An elementwise op with at most this many operations for each element takes as long as its memory does.
const MEMORY_BOUND_FLOPS_MAX: u16 = 16;

/// Makes those decisions of the sharding modifier that do not depend on its earlier decisions.
#[derive(Clone, Debug)]
pub struct Planner {
    /// The session's workers.
    pub workers: Workers,
    /// The parameters of estimates.
    pub costs: Costs,
}

/// The workers of an instruction, and how it is divided among them.
pub struct ExecutionPlan {
    /// The workers.
    pub workers: Workers,
    /// The split and its granule: workers get ranges of [`Split::units`] that begin at multiples of the granule. `None`
    /// if every worker does the whole instruction.
    pub split: Option<(Split, usize)>,
}

impl Planner {
    /// The placement that the active signal requests for the result of an instruction.
    pub fn requested(
        &self,
        instruction: &Instruction,
        step: &Step,
        meta: &Meta,
        operands: &[PlacedOperand],
    ) -> Option<Placement> {
        let requested = step.requested.filter(|_| is_placed_by_signals(instruction, operands, meta))?;
        requested.placement(&meta.shape, self.workers)
    }

    /// The layouts over a mesh that the active signal requests for the result of an instruction. A dimension without a
    /// request keeps the layout of `inherited`, the placement that the result would have without the signal.
    pub fn requested_on_mesh(
        &self,
        instruction: &Instruction,
        step: &Step,
        meta: &Meta,
        operands: &[PlacedOperand],
        inherited: Option<&Placement>,
    ) -> Option<MeshTarget> {
        let requested = step.requested.filter(|_| is_placed_by_signals(instruction, operands, meta))?;
        let MeshTarget { mesh, mut layouts } = requested.mesh_target(&meta.shape, self.workers)?;
        if layouts == [None; 2] {
            return None;
        }
        if let Some(inherited) = inherited.and_then(|placement| mesh.layouts_of(placement)) {
            layouts = [0, 1].map(|dimension| layouts[dimension].or(Some(inherited[dimension])));
        }
        Some(MeshTarget { mesh, layouts })
    }

    /// The placement of the result of a creation op or random op that no signal places; `None` for other ops, and for
    /// results that stay on one worker. `spread` says that the session already has tensors on several workers.
    pub fn creation_placement(&self, instruction: &Instruction, meta: &Meta, spread: bool) -> Option<Placement> {
        let class = instruction.op.row().class;
        // Examples are the seed of a backward pass, positions, and the zeros to which gradients are added.
        let small = meta.shape.numel() == 1
            || meta.bytes() as u64 <= MADE_EVERYWHERE_BYTES_MAX && self.costs.shard_bytes_min != Some(0);
        if spread && class == Class::Creation && small {
            return Some(Placement::Replicated { workers: self.workers });
        }
        let creates = matches!(class, Class::Creation | Class::Random);
        if creates { self.placement_by_size(meta) } else { None }
    }

    /// A sharded placement for a new tensor; `None` if the tensor is too small or has no axis that is long enough.
    pub fn placement_by_size(&self, meta: &Meta) -> Option<Placement> {
        let least = self.costs.shard_bytes_min?;
        let dims = meta.shape.dims();
        let wide = dims.iter().position(|size| *size >= self.workers.len());
        let axis = wide.or_else(|| if least == 0 { dims.iter().position(|size| *size > 1) } else { None })?;
        (meta.bytes() as u64 >= least).then(|| Placement::sharded(self.workers, axis, 1, &meta.shape))
    }

    /// The placement of the result if every worker applies the instruction to its own part of each operand, and no
    /// operand is moved; `None` if that would not give the result. Most instructions need no more than this.
    pub fn placement_in_place(
        &self,
        instruction: &Instruction,
        operands: &[PlacedOperand],
        meta: &Meta,
        step: &Step,
    ) -> Option<Placement> {
        let mut common: Option<&TensorEntry> = None;
        let mut same_shape = true;
        for tensor in operands.iter().filter_map(PlacedOperand::tensor) {
            if common.is_some_and(|other| other.placement != tensor.placement) {
                return None;
            }
            same_shape &= tensor.meta.shape == meta.shape;
            common = Some(tensor);
        }
        let Some(first) = common else {
            return step.workers.first().map(Placement::on);
        };
        match first.placement {
            Placement::Replicated { .. } if self.may_divide(step, meta) => None,
            Placement::Replicated { .. } => Some(first.placement),
            Placement::Sharded { .. } => (is_pointwise(instruction) && same_shape).then_some(first.placement),
            Placement::Partial { reduce_op, .. } => {
                preserves_partial(instruction, operands, reduce_op, meta).then_some(first.placement)
            }
            Placement::Mesh { layouts, .. } => {
                let keeps = |layout: MeshLayout| match layout {
                    MeshLayout::Replicated => true,
                    MeshLayout::Sharded { .. } => is_pointwise(instruction) && same_shape,
                    MeshLayout::Partial(reduce_op) => preserves_partial(instruction, operands, reduce_op, meta),
                };
                layouts.into_iter().all(keeps).then_some(first.placement)
            }
        }
    }

    /// True if an instruction on unsharded tensors may finish earlier when divided.
    fn may_divide(&self, step: &Step, meta: &Meta) -> bool {
        match self.costs.shard_bytes_min {
            None => false,
            Some(0) => meta.shape.rank() > 0,
            Some(_) => step.cost_ns >= DIVIDE_NS_MIN,
        }
    }

    /// The plan with the least estimated time, moves of operands and of the result to `target` included.
    pub fn plan(
        &self,
        instruction: &Instruction,
        operands: &[PlacedOperand],
        meta: &Meta,
        target: Option<&Placement>,
        step: &Step,
        tensors: &TensorTable,
    ) -> ExecutionPlan {
        let metas = input_metas(instruction, operands);
        let all_splits = splits(instruction.op, &metas, &instruction.attrs, meta);
        // With a threshold of 0 bytes, every instruction is divided that can be.
        let forced = self.costs.shard_bytes_min == Some(0)
            && meta.shape.rank() > 0
            && all_splits.iter().any(|split| split.units > 1 && !split.nonempty || split.units >= self.workers.len());
        if !forced && let Some(workers) = self.computed_everywhere(instruction, operands, target) {
            return ExecutionPlan { workers, split: None };
        }
        let mut groups: Vec<Workers> = Vec::new();
        let mut add = |workers: Workers| {
            if !workers.is_empty() && !groups.contains(&workers) {
                groups.push(workers);
            }
        };
        if let Some(target) = target {
            add(target.workers());
        }
        for tensor in operands.iter().filter_map(PlacedOperand::tensor) {
            tensors.copies(tensor).for_each(|tensor| add(tensor.placement.workers()));
        }
        if forced || target.is_none() && self.may_divide(step, meta) {
            add(self.workers);
        }
        if groups.is_empty() {
            groups.push(step.workers);
        }
        let mut best: Option<(f64, ExecutionPlan)> = None;
        let mut consider = |time: f64, workers: Workers, split: Option<(Split, usize)>| {
            if best.as_ref().is_none_or(|(least, _)| time < *least) {
                best = Some((time, ExecutionPlan { workers, split }));
            }
        };
        let compute = step.cost_ns as f64;
        let expected = if target.is_none() { expected_placement(instruction, operands, meta) } else { None };
        let target = target.or(expected.as_ref());
        let result_ns = |from: &Placement, to: &Placement| reshard_ns(from, to, meta.bytes() as u64, &self.costs.links);
        for workers in groups {
            let n = workers.len();
            for split in all_splits.iter().filter(|split| n > 1 && (!split.nonempty || split.units >= n)) {
                let granule = granule(split, operands, workers);
                let mut time = compute / n.min(split.units) as f64;
                for (i, operand) in operands.iter().enumerate() {
                    time += self.fetch_ns(operand, &operand_placement(split, i, workers, granule, operand), tensors);
                }
                let result = result_placement(split, workers, granule, &meta.shape);
                time += match (target, split.produces) {
                    (Some(target), _) => result_ns(&result, target),
                    (None, Produces::Partial(_)) => result_ns(&result, &Placement::Replicated { workers }),
                    (None, Produces::Shard { .. }) => 0.0,
                };
                consider(time, workers, Some((split.clone(), granule)));
            }
            if forced {
                continue;
            }
            let whole = Placement::Replicated { workers };
            let mut time = compute;
            for operand in operands {
                time += self.fetch_ns(operand, &whole, tensors);
            }
            if let Some(target) = target {
                time += result_ns(&whole, target);
            }
            consider(time, workers, None);
        }
        best.map_or(ExecutionPlan { workers: step.workers, split: None }, |(_, plan)| plan)
    }

    /// The shards in which workers that hold replicas [together](Costs::together) have the result of an elementwise
    /// instruction that is requested as a replica on each of them. As many whole updates would take as many times the
    /// bandwidth of the one memory. The parts are gathered into one replica when an instruction reads all of it; what
    /// only further updates read, as an optimizer's moments, stays as it is.
    pub fn update_in_parts(
        &self,
        instruction: &Instruction,
        operands: &[PlacedOperand],
        meta: &Meta,
        target: &Placement,
    ) -> Option<Placement> {
        let Placement::Replicated { workers } = target else { return None };
        let is_large = meta.bytes() as u64 >= UPDATED_IN_PARTS_BYTES_MIN;
        // A client places a tensor by a cast to its own dtype.
        let is_update = is_memory_bound(instruction) && instruction.op.row().class != Class::Cast;
        if !is_large || !is_update || workers.len() < 2 || !self.costs.together.contains_all(*workers) {
            return None;
        }
        let axis = meta.shape.dims().iter().position(|size| *size >= workers.len())?;
        let parts = Placement::sharded(*workers, axis, 1, &meta.shape);
        let is_local = |tensor: &TensorEntry| {
            let same_shape = tensor.meta.shape == meta.shape;
            satisfies(&tensor.placement, target) || same_shape && tensor.placement == parts
        };
        operands.iter().filter_map(PlacedOperand::tensor).all(is_local).then_some(parts)
    }

    /// The workers of an elementwise instruction whose result is requested on all of them, and whose operands they all
    /// have. Reading and writing memory is most of its work, and so it would be for an exchange of parts of the result.
    fn computed_everywhere(
        &self,
        instruction: &Instruction,
        operands: &[PlacedOperand],
        target: Option<&Placement>,
    ) -> Option<Workers> {
        let Some(whole @ Placement::Replicated { workers }) = target else { return None };
        let has_all = operands.iter().all(|operand| operand.is_at(whole));
        (has_all && is_memory_bound(instruction)).then_some(*workers)
    }

    /// The estimated time of a move of an operand, nanoseconds.
    pub fn fetch_ns(&self, operand: &PlacedOperand, to: &Placement, tensors: &TensorTable) -> f64 {
        match operand {
            PlacedOperand::Scalar => 0.0,
            PlacedOperand::Tensor(tensor) => nearest_copy(tensor, to, &self.costs.links, tensors).1,
        }
    }
}

/// The shapes and dtypes of an instruction's operands.
pub fn input_metas(instruction: &Instruction, operands: &[PlacedOperand]) -> Vec<InputMeta> {
    let inputs = operands.iter().zip(instruction.inputs.as_slice());
    inputs
        .map(|(placed, operand)| match (placed, operand) {
            (PlacedOperand::Tensor(tensor), _) => InputMeta::Tensor(tensor.meta),
            (_, Operand::Scalar(number)) => InputMeta::Scalar(*number),
            (_, Operand::Tensor(_)) => InputMeta::Scalar(Scalar::Int(0)),
        })
        .collect()
}

/// Whether a signal places the result: a view stays where its base is, except for a reshape to the same shape, by which
/// a client places a tensor.
fn is_placed_by_signals(instruction: &Instruction, operands: &[PlacedOperand], meta: &Meta) -> bool {
    let same_shape = matches!(operands, [PlacedOperand::Tensor(tensor)] if tensor.meta.shape == meta.shape);
    instruction.op.row().class != Class::Movement || instruction.op == Op::Reshape && same_shape
}

/// True for ops whose result element depends on the same element of each operand.
pub fn is_pointwise(instruction: &Instruction) -> bool {
    matches!(instruction.op.row().class, Class::Elementwise | Class::Select | Class::Cast)
}

/// True for ops of a few operations for each element.
pub fn is_memory_bound(instruction: &Instruction) -> bool {
    is_pointwise(instruction) && instruction.op.row().cost_flops <= MEMORY_BOUND_FLOPS_MAX
}

/// The requested placement of the first operand, if the result is a new value of it. So an updated parameter stays
/// where a signal put it, wherever its gradient and the optimizer's moments are.
pub fn inherited_request(instruction: &Instruction, operands: &[PlacedOperand], meta: &Meta) -> Option<Placement> {
    match operands.first()?.tensor()? {
        TensorEntry { membership: Membership::Requested(placement), meta: own, .. }
            if is_pointwise(instruction) && own.shape == meta.shape =>
        {
            Some(*placement)
        }
        _ => None,
    }
}

/// True if the instruction on each part, reduced afterwards, equals the instruction on the whole: movement ops, and ops
/// that are linear in a sum.
pub fn preserves_partial(
    instruction: &Instruction,
    operands: &[PlacedOperand],
    reduce_op: ReduceOp,
    meta: &Meta,
) -> bool {
    let tensors = operands.iter().filter(|operand| operand.tensor().is_some()).count();
    let factor = instruction.inputs.as_slice().iter().find_map(|input| match input {
        Operand::Scalar(number) => Some(number.to_f64()),
        Operand::Tensor(_) => None,
    });
    match (instruction.op, operands) {
        (Op::Bitcast, _) => false,
        _ if matches!(instruction.op.row().class, Class::Movement | Class::Concatenation) => true,
        _ if reduce_op != ReduceOp::Sum || !meta.dtype.is_float() => false,
        (Op::Neg, _) => true,
        (Op::Add | Op::Sub, [_, _]) => tensors == 2,
        // A larger factor could take parts beyond the dtype's range that cancel, or make NaN of a part that is 0.
        (Op::Mul, [_, _]) => tensors == 1 && factor.is_some_and(|x| x.abs() <= 1.0),
        (Op::Div, [PlacedOperand::Tensor(_), PlacedOperand::Scalar]) => factor.is_some_and(|x| x.abs() >= 1.0),
        _ => false,
    }
}

/// Whether consumers are likely to read the result where the operands of its shape lie.
pub fn lies_with_operands(instruction: &Instruction, meta: &Meta) -> bool {
    let keeps_shape =
        is_pointwise(instruction) || matches!(instruction.op.row().class, Class::RowWise | Class::Scatter);
    // Tensors of one element are replicated because every worker made them, which is no hint for other tensors.
    keeps_shape && meta.shape.numel() != 1
}

/// The likely placement of the result for its consumers: replicated like the operands of its shape, if those are
/// replicated or partial on several workers and none is sharded. So an updated parameter stays replicated, and partial
/// tensors are reduced onto their own workers.
fn expected_placement(instruction: &Instruction, operands: &[PlacedOperand], meta: &Meta) -> Option<Placement> {
    if !lies_with_operands(instruction, meta) {
        return None;
    }
    let mut widest: Option<Workers> = None;
    for TensorEntry { meta: own, placement, .. } in operands.iter().filter_map(PlacedOperand::tensor) {
        if own.shape != meta.shape {
            continue;
        }
        match placement {
            Placement::Sharded { .. } | Placement::Mesh { .. } => return None,
            Placement::Replicated { workers } | Placement::Partial { workers, .. } => {
                if workers.len() > 1 && widest.is_none_or(|other| other.len() < workers.len()) {
                    widest = Some(*workers);
                }
            }
        }
    }
    widest.map(|workers| Placement::Replicated { workers })
}

/// The placement that a split needs of operand `i`.
pub fn operand_placement(
    split: &Split,
    i: usize,
    workers: Workers,
    granule: usize,
    operand: &PlacedOperand,
) -> Placement {
    match (split.needs.get(i), operand) {
        (Some(Need::Shard { axis, scale }), PlacedOperand::Tensor(tensor)) => {
            Placement::sharded(workers, *axis as usize, granule * scale, &tensor.meta.shape)
        }
        (Some(Need::Partial(reduce_op)), PlacedOperand::Tensor(_)) => partial(workers, *reduce_op),
        _ => Placement::Replicated { workers },
    }
}

/// The placement in which a split leaves the result.
pub fn result_placement(split: &Split, workers: Workers, granule: usize, shape: &Shape) -> Placement {
    match split.produces {
        Produces::Shard { axis, scale } => Placement::sharded(workers, axis as usize, granule * scale, shape),
        Produces::Partial(reduce_op) => partial(workers, reduce_op),
    }
}

/// The granule of a split, in units: that of the largest operand which is already sharded along the split's axis; 1 if
/// there is none, or if its granule does not suit the split.
fn granule(split: &Split, operands: &[PlacedOperand], workers: Workers) -> usize {
    let mut largest = (0, 1);
    for (need, operand) in split.needs.iter().zip(operands) {
        if let (Need::Shard { axis, scale }, PlacedOperand::Tensor(tensor)) = (need, operand)
            && let Placement::Sharded { workers: own, axis: along, granule } = tensor.placement
            && (own, along) == (workers, *axis)
            && granule % scale == 0
            && tensor.bytes > largest.0
        {
            largest = (tensor.bytes, granule / scale);
        }
    }
    let granule = largest.1;
    let fits = split.units.is_multiple_of(granule) && (!split.nonempty || split.units / granule >= workers.len());
    if fits { granule } else { 1 }
}
