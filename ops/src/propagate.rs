//! Sharding propagation: how each class of op computes on placed operands.
//!
//! A [`Split`] is one way to divide an instruction among workers: each computes the same op on shards of some operands,
//! and gets a shard of the result or a partial result that is yet to be reduced. [`splits`] lists the splits of an
//! instruction. The caller chooses the best one, and handles instructions that have none. Every split gives the result
//! that one worker would compute, except for the order of summation where partial results are reduced.
//!
//! Listing an op's sharding strategies and choosing by communication cost follows GSPMD (Xu et al. 2021) and PyTorch's
//! DTensor.

use crate::infer::operand::InputMeta;
use crate::instruction::{Attrs, LossReduction, LossSpec, Scalar, SliceSpec};
use crate::op::Op;
use crate::placement::ReduceOp;
use crate::row::Class;
use crate::shape::{Meta, Shape};
use std::ops::Range;

/// The part of an operand that each worker needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// All elements. An operand that is a number has this need, too.
    Whole,
    /// A partial tensor: the operand is the reduction of all workers' tensors.
    Partial(ReduceOp),
    /// A shard of an axis.
    Shard {
        /// The axis.
        axis: u8,
        /// Elements per unit of [`Split::units`].
        scale: usize,
    },
}

/// The part of the result that each worker produces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Produces {
    /// A shard of an axis.
    Shard {
        /// The axis.
        axis: u8,
        /// Elements per unit of [`Split::units`].
        scale: usize,
    },
    /// A partial result of the whole shape, to be reduced.
    Partial(ReduceOp),
}

/// One way to divide an instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// The need of each operand, in order.
    pub needs: Vec<Need>,
    /// The part of the result that each worker produces.
    pub produces: Produces,
    /// The number of equal pieces to divide among the workers; 1 if each worker computes on its whole partial tensors.
    pub units: usize,
    /// True if every worker must get a unit, because the op is not defined on an empty tensor.
    pub nonempty: bool,
    /// True if the partial result is a mean of the worker's elements, to be weighted by its share of the units.
    pub weighted: bool,
}

impl Split {
    fn along(needs: Vec<Need>, axis: usize, units: usize) -> Split {
        Split { needs, produces: shard_of(axis), units, nonempty: false, weighted: false }
    }
    fn reduced(needs: Vec<Need>, op: ReduceOp, units: usize) -> Split {
        Split { needs, produces: Produces::Partial(op), units, nonempty: false, weighted: false }
    }
}

const fn shard(axis: usize) -> Need {
    Need::Shard { axis: axis as u8, scale: 1 }
}

const fn shard_of(axis: usize) -> Produces {
    Produces::Shard { axis: axis as u8, scale: 1 }
}

/// All splits of `op(inputs; attrs)` with result `out`.
pub fn splits(op: Op, inputs: &[InputMeta], attrs: &Attrs, out: &Meta) -> Vec<Split> {
    let row = op.row();
    let dims = |i: usize| inputs.get(i).and_then(InputMeta::tensor).map_or(&[][..], |meta| meta.shape.dims());
    let result = out.shape.dims();
    let mut ways = Vec::new();
    match row.class {
        Class::Elementwise | Class::Select | Class::Cast => {
            for (axis, &size) in result.iter().enumerate() {
                ways.push(Split::along(broadcast_needs(inputs, result.len(), axis), axis, size));
            }
        }
        Class::Reduction | Class::ArgReduction => {
            if let Attrs::Axes { mask, keepdim } | Attrs::AxesInto { mask, keepdim, .. } = attrs {
                reductions(op, dims(0), *mask, *keepdim, &mut ways);
            }
        }
        Class::Movement => movements(op, dims(0), attrs, result, &mut ways),
        Class::SliceScatter => {
            if let Attrs::Slice(spec) = attrs {
                for (axis, &size) in dims(0).iter().enumerate().filter(|(axis, size)| is_whole(spec, *axis, **size)) {
                    ways.push(Split::along(vec![shard(axis); 2], axis, size));
                }
            }
        }
        Class::Concatenation => {
            if let Attrs::Axis(joined) = attrs {
                for (axis, &size) in result.iter().enumerate().filter(|(axis, _)| *axis != *joined as usize) {
                    ways.push(Split::along(vec![shard(axis); inputs.len()], axis, size));
                }
            }
        }
        Class::Contraction if op == Op::Affine => affine_maps(result, &mut ways),
        Class::Contraction => contractions(inputs, result, &mut ways),
        Class::Convolution => convolutions(op, inputs, attrs, &mut ways),
        Class::Pooling => {
            for (axis, &size) in result.iter().enumerate().take(2) {
                ways.push(Split::along(vec![shard(axis); inputs.len()], axis, size));
            }
        }
        Class::Gather | Class::Scatter => {
            if let Attrs::Axis(along) = attrs {
                indexings(op, *along as usize, [dims(0), dims(1), dims(2)], &mut ways);
            }
        }
        Class::Scan | Class::Sort => {
            if let Attrs::Axis(along) = attrs {
                for (axis, &size) in result.iter().enumerate().filter(|(axis, _)| *axis != *along as usize) {
                    let mut needs = vec![Need::Whole; inputs.len()];
                    needs[0] = shard(axis);
                    ways.push(Split::along(needs, axis, size));
                }
            }
        }
        Class::Search => {
            let shared = dims(0).len().saturating_sub(1);
            for (axis, &size) in result.iter().enumerate() {
                let sorted = match shared {
                    0 => Need::Whole,
                    _ if axis < shared => shard(axis),
                    _ => continue,
                };
                ways.push(Split::along(vec![sorted, shard(axis)], axis, size));
            }
        }
        Class::Creation if op == Op::Full => {
            for (axis, &size) in result.iter().enumerate() {
                ways.push(Split::along(vec![Need::Whole; inputs.len()], axis, size));
            }
        }
        // A random number depends on its position in row-major order, so a shard must be contiguous in that order.
        Class::Random => {
            if let Some(axis) = result.iter().position(|size| *size > 1) {
                ways.push(Split::along(vec![Need::Whole; inputs.len()], axis, result[axis]));
            }
        }
        // An element depends on its position in the whole tensor, and these ops take no offset: there is no split.
        Class::Creation | Class::Positions => {}
        Class::RowWise => rows(op, inputs, attrs, &mut ways),
    }
    ways.retain(|way| way.units > 1 || way.needs.iter().any(|need| matches!(need, Need::Partial(_))));
    ways
}

/// The needs of a broadcast's operands for a shard of `axis` of a result of `rank` axes.
fn broadcast_needs(inputs: &[InputMeta], rank: usize, axis: usize) -> Vec<Need> {
    let need = |input: &InputMeta| {
        let Some(meta) = input.tensor() else { return Need::Whole };
        match (axis + meta.shape.rank()).checked_sub(rank) {
            Some(own) if meta.shape.dims()[own] != 1 => shard(own),
            _ => Need::Whole,
        }
    };
    inputs.iter().map(need).collect()
}

fn reductions(op: Op, dims: &[usize], mask: u8, keepdim: bool, ways: &mut Vec<Split>) {
    for (axis, &size) in dims.iter().enumerate() {
        let needs = vec![shard(axis)];
        if mask >> axis & 1 == 0 {
            let before = if keepdim { 0 } else { (mask & ((1 << axis) - 1)).count_ones() as usize };
            ways.push(Split::along(needs, axis - before, size));
            continue;
        }
        let reduce_op = match op {
            Op::Sum | Op::Mean => ReduceOp::Sum,
            Op::Prod => ReduceOp::Prod,
            Op::Amax | Op::Any => ReduceOp::Max,
            Op::Amin | Op::All => ReduceOp::Min,
            _ => continue,
        };
        let nonempty = matches!(op, Op::Amax | Op::Amin | Op::Mean);
        ways.push(Split { nonempty, weighted: op == Op::Mean, ..Split::reduced(needs, reduce_op, size) });
    }
}

/// Whether a slice takes a whole axis in order.
fn is_whole(spec: &SliceSpec, axis: usize, size: usize) -> bool {
    spec.start[axis] == 0 && (spec.step[axis] == 1 || size == 1) && spec.sizes.dims()[axis] == size
}

fn movements(op: Op, dims: &[usize], attrs: &Attrs, result: &[usize], ways: &mut Vec<Split>) {
    match (op, attrs) {
        (Op::Reshape, _) => {
            for group in reshape_groups(dims, result) {
                ways.push(Split {
                    needs: vec![Need::Shard { axis: group.from as u8, scale: group.from_scale }],
                    produces: Produces::Shard { axis: group.to as u8, scale: group.to_scale },
                    units: group.units,
                    nonempty: false,
                    weighted: false,
                });
            }
        }
        (Op::Permute, Attrs::Permutation(order)) => {
            for (axis, &size) in result.iter().enumerate() {
                ways.push(Split::along(vec![shard(order[axis] as usize)], axis, size));
            }
        }
        (Op::Expand, _) => {
            let lead = result.len() - dims.len();
            for (axis, &size) in result.iter().enumerate() {
                let need = match axis.checked_sub(lead) {
                    Some(own) if dims[own] == size => shard(own),
                    _ => Need::Whole,
                };
                ways.push(Split::along(vec![need], axis, size));
            }
        }
        (Op::Bitcast, _) => {
            // An axis of another size has the bytes of an element at several places.
            for (axis, &size) in result.iter().enumerate().filter(|(axis, size)| dims[*axis] == **size) {
                ways.push(Split::along(vec![shard(axis)], axis, size));
            }
        }
        (Op::Slice, Attrs::Slice(spec)) => {
            for (axis, &size) in result.iter().enumerate() {
                let need = if is_whole(spec, axis, dims[axis]) { shard(axis) } else { Need::Whole };
                ways.push(Split::along(vec![need], axis, size));
            }
        }
        _ => {}
    }
}

/// A group of consecutive axes that a reshape turns into another group; only the first axis of each can stay sharded.
struct ReshapeGroup {
    from: usize,
    to: usize,
    from_scale: usize,
    to_scale: usize,
    units: usize,
}

/// The smallest groups of axes with equal numbers of elements on both sides of a reshape, of more than one element
/// each.
fn reshape_groups(from: &[usize], to: &[usize]) -> Vec<ReshapeGroup> {
    let mut groups = Vec::new();
    if from.contains(&0) {
        return groups;
    }
    let (mut i, mut j) = (0, 0);
    while i < from.len() && j < to.len() {
        // Axes of size 1 belong to no group.
        if from[i] == 1 {
            i += 1;
            continue;
        }
        if to[j] == 1 {
            j += 1;
            continue;
        }
        let (first, second) = (i, j);
        let (mut a, mut b) = (from[i], to[j]);
        while a != b {
            if a < b {
                i += 1;
                a *= from[i];
            } else {
                j += 1;
                b *= to[j];
            }
        }
        // A shard must begin at an index of the first axis on both sides of the reshape.
        let (inner, outer) = (a / from[first], a / to[second]);
        let common = lcm(inner, outer);
        if a % common == 0 {
            groups.push(ReshapeGroup {
                from: first,
                to: second,
                from_scale: common / inner,
                to_scale: common / outer,
                units: a / common,
            });
        }
        (i, j) = (i + 1, j + 1);
    }
    groups
}

fn lcm(a: usize, b: usize) -> usize {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    a / x * b
}

fn contractions(inputs: &[InputMeta], result: &[usize], ways: &mut Vec<Split>) {
    let [InputMeta::Tensor(a), InputMeta::Tensor(b)] = inputs else { return };
    let (a, b, rank) = (a.shape.dims(), b.shape.dims(), result.len());
    for (axis, &size) in result[..rank - 2].iter().enumerate() {
        ways.push(Split::along(broadcast_needs(inputs, rank, axis), axis, size));
    }
    ways.push(Split::along(vec![shard(a.len() - 2), Need::Whole], rank - 2, result[rank - 2]));
    ways.push(Split::along(vec![Need::Whole, shard(b.len() - 1)], rank - 1, result[rank - 1]));
    ways.push(Split::reduced(vec![shard(a.len() - 1), shard(b.len() - 2)], ReduceOp::Sum, a[a.len() - 1]));
}

/// The bias belongs to the sum of all terms, which are therefore not divided.
fn affine_maps(result: &[usize], ways: &mut Vec<Split>) {
    let last = result.len() - 1;
    for (axis, &size) in result[..last].iter().enumerate() {
        ways.push(Split::along(vec![shard(axis), Need::Whole, Need::Whole], axis, size));
    }
    ways.push(Split::along(vec![Need::Whole, shard(0), shard(0)], last, result[last]));
}

fn convolutions(op: Op, inputs: &[InputMeta], attrs: &Attrs, ways: &mut Vec<Split>) {
    let (Attrs::Window(spec), Some(InputMeta::Tensor(a)), Some(InputMeta::Tensor(b))) =
        (attrs, inputs.first(), inputs.get(1))
    else {
        return;
    };
    let (a, b) = (a.shape.dims(), b.shape.dims());
    match op {
        Op::ConvolutionWeight => ways.push(Split::reduced(vec![shard(0); 2], ReduceOp::Sum, a[0])),
        _ => {
            let mut needs = vec![Need::Whole; inputs.len()];
            needs[0] = shard(0);
            ways.push(Split::along(needs, 0, a[0]));
        }
    }
    if spec.groups == 1 {
        match op {
            Op::Convolution => {
                let mut needs = vec![shard(0); inputs.len()];
                needs[0] = Need::Whole;
                ways.push(Split::along(needs, 1, b[0]));
            }
            Op::ConvolutionInput => ways.push(Split::along(vec![Need::Whole, shard(1)], 1, b[1])),
            _ => {}
        }
    }
}

fn indexings(op: Op, along: usize, [of, index, source]: [&[usize]; 3], ways: &mut Vec<Split>) {
    let adds = matches!(op, Op::ScatterAdd | Op::IndexPutAdd);
    if adds {
        let partial = Need::Partial(ReduceOp::Sum);
        ways.push(Split::reduced(vec![partial, Need::Whole, partial], ReduceOp::Sum, 1));
    }
    for (axis, &size) in index.iter().enumerate() {
        match op.row().class {
            Class::Gather if axis == along => ways.push(Split::along(vec![Need::Whole, shard(axis)], axis, size)),
            Class::Gather if of[axis] == size => ways.push(Split::along(vec![shard(axis); 2], axis, size)),
            Class::Scatter if axis != along && of[axis] == size && source[axis] == size => {
                ways.push(Split::along(vec![shard(axis); 3], axis, size));
            }
            // Each worker adds its shard of the source to a partial result: the gradient of an embedding with sharded
            // samples.
            Class::Scatter if axis == along && source[axis] == size && adds => {
                ways.push(Split::reduced(
                    vec![Need::Partial(ReduceOp::Sum), shard(axis), shard(axis)],
                    ReduceOp::Sum,
                    size,
                ));
            }
            _ => {}
        }
    }
}

fn rows(op: Op, inputs: &[InputMeta], attrs: &Attrs, ways: &mut Vec<Split>) {
    let dims = |i: usize| inputs.get(i).and_then(InputMeta::tensor).map_or(&[][..], |meta| meta.shape.dims());
    // Adds splits along the first `leading` axes, which the operands in `with` share. If `joined`, the op reduces these
    // axes, so each worker has a partial sum.
    let mut along_rows = |with: Range<usize>, leading: usize, joined: bool| {
        let of = dims(with.start);
        for (axis, &size) in of[..leading].iter().enumerate() {
            let needs = (0..inputs.len()).map(|i| if with.contains(&i) { shard(axis) } else { Need::Whole }).collect();
            ways.push(if joined {
                Split::reduced(needs, ReduceOp::Sum, size)
            } else {
                Split::along(needs, axis, size)
            });
        }
    };
    let lead = dims(0).len().saturating_sub(1);
    match (op, attrs) {
        (Op::Softmax | Op::LogSoftmax | Op::LayerNorm | Op::RmsNorm, _) => along_rows(0..1, lead, false),
        (Op::Fourier | Op::InverseFourier | Op::RealFourier | Op::InverseRealFourier, _) => {
            along_rows(0..1, lead, false)
        }
        (Op::SoftmaxBackward | Op::LogSoftmaxBackward | Op::LayerNormBackward | Op::RmsNormBackward, _) => {
            along_rows(0..2, lead, false);
        }
        (Op::LstmCell | Op::ComplexMul | Op::ComplexDiv, _) => along_rows(0..2, lead, false),
        (Op::LstmCellBackward, _) => along_rows(0..5, lead, false),
        (Op::LayerNormWeightBackward | Op::RmsNormWeightBackward, _) => along_rows(0..2, lead, true),
        (Op::CrossEntropy | Op::NllLoss, Attrs::Loss(spec)) => match spec.reduction {
            LossReduction::None => along_rows(0..2, 1, false),
            LossReduction::Sum => along_rows(0..2, 1, true),
            LossReduction::Mean => {}
        },
        (Op::CrossEntropyBackward | Op::NllLossBackward, Attrs::Loss(LossSpec { reduction, .. })) => match reduction {
            LossReduction::None => along_rows(0..3, 1, false),
            LossReduction::Sum => along_rows(1..3, 1, false),
            LossReduction::Mean => {}
        },
        (Op::Attention, Attrs::Attention { causal, .. }) => {
            let batch = dims(0).len() - 2;
            along_rows(0..inputs.len(), batch, false);
            if !causal {
                let query = shard(batch);
                let needs = (0..inputs.len()).map(|i| if i == 0 || i == 3 { query } else { Need::Whole }).collect();
                ways.push(Split::along(needs, batch, dims(0)[batch]));
            }
        }
        (Op::AttentionBackward | Op::AttentionGradients, _) => along_rows(0..inputs.len(), dims(0).len() - 2, false),
        _ => {}
    }
}

/// The attributes of a worker's share of a split instruction, or none if they do not change.
///
/// `units` is the worker's range of units, `local` the shape of its result.
pub fn localize(op: Op, attrs: &Attrs, split: &Split, units: &Range<usize>, local: &Shape) -> Option<Attrs> {
    match (op, attrs) {
        (Op::Reshape | Op::Expand, Attrs::Shape(_)) => Some(Attrs::Shape(*local)),
        (Op::Full, Attrs::Create { dtype, .. }) => Some(Attrs::Create { shape: *local, dtype: *dtype }),
        (_, Attrs::Random { dtype, seed, stream, first, .. }) => {
            let Produces::Shard { axis, .. } = split.produces else { return None };
            let behind: usize = local.dims()[axis as usize + 1..].iter().product();
            let first = first + (units.start * behind) as u64;
            Some(Attrs::Random { shape: *local, dtype: *dtype, seed: *seed, stream: *stream, first })
        }
        (Op::Slice | Op::SliceScatter, Attrs::Slice(spec)) => {
            let Produces::Shard { axis, .. } = split.produces else { return None };
            let axis = axis as usize;
            let mut spec = SliceSpec { sizes: spec.sizes.with_dim(axis, local.dims()[axis]), ..**spec };
            if split.needs[0] == Need::Whole {
                // The operand is whole: the worker takes its shard of the slice.
                spec.start[axis] += spec.step[axis] * units.start as i64;
            }
            Some(Attrs::Slice(Box::new(spec)))
        }
        _ => None,
    }
}

/// The weight of the mean over `units` in the mean over all `of` units.
pub fn mean_weight(units: &Range<usize>, of: usize) -> Scalar {
    Scalar::Float(units.len() as f64 / of as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::infer::infer;
    use crate::placement::shard_range;
    use crate::{DType, RANK_MAX, WindowSpec};
    use proptest::prelude::*;

    fn meta(dims: &[usize]) -> Meta {
        Meta::new(Shape::new(dims).unwrap(), DType::F32)
    }

    fn tensors(shapes: &[&[usize]]) -> Vec<InputMeta> {
        shapes.iter().map(|dims| InputMeta::Tensor(meta(dims))).collect()
    }

    /// Checks that every split gives each worker operands from which its part of the result follows.
    fn check(op: Op, inputs: &[InputMeta], attrs: &Attrs, ranks: usize) -> Vec<Split> {
        let out = infer(op, inputs, attrs).unwrap();
        let ways = splits(op, inputs, attrs, &out);
        for way in &ways {
            assert_eq!(way.needs.len(), inputs.len(), "{op:?} {way:?}");
            let mut total = 0;
            for rank in 0..ranks {
                let units = shard_range(way.units, 1, rank, ranks);
                if way.nonempty && units.is_empty() {
                    continue;
                }
                let own: Vec<InputMeta> = way
                    .needs
                    .iter()
                    .zip(inputs)
                    .map(|(need, input)| match (need, input) {
                        (Need::Shard { axis, scale }, InputMeta::Tensor(meta)) => {
                            assert_eq!(meta.shape.dims()[*axis as usize], way.units * scale, "{op:?} {way:?}");
                            let shape = meta.shape.with_dim(*axis as usize, units.len() * scale);
                            InputMeta::Tensor(Meta::new(shape, meta.dtype))
                        }
                        _ => *input,
                    })
                    .collect();
                let local = match way.produces {
                    Produces::Shard { axis, scale } => {
                        total += units.len() * scale;
                        out.shape.with_dim(axis as usize, units.len() * scale)
                    }
                    Produces::Partial(_) => out.shape,
                };
                let attrs = localize(op, attrs, way, &units, &local).unwrap_or_else(|| attrs.clone());
                assert_eq!(infer(op, &own, &attrs).unwrap(), Meta::new(local, out.dtype), "{op:?} {way:?} {units:?}");
            }
            if let (Produces::Shard { axis, .. }, false) = (way.produces, way.nonempty) {
                assert_eq!(total, out.shape.dims()[axis as usize], "{op:?} {way:?}");
            }
        }
        ways
    }

    #[test]
    fn a_matrix_product_is_split_by_batches_rows_columns_and_into_partial_sums() {
        let ways = check(Op::Matmul, &tensors(&[&[3, 4, 5], &[5, 6]]), &Attrs::None, 2);
        let produces: Vec<Produces> = ways.iter().map(|way| way.produces).collect();
        assert_eq!(produces, [shard_of(0), shard_of(1), shard_of(2), Produces::Partial(ReduceOp::Sum)]);
        assert_eq!(ways[3].needs, [shard(2), shard(0)]);
    }

    #[test]
    fn an_affine_map_is_split_by_rows_and_results_but_not_by_terms() {
        let ways = check(Op::Affine, &tensors(&[&[3, 4, 5], &[6, 5], &[6]]), &Attrs::None, 2);
        let produces: Vec<Produces> = ways.iter().map(|way| way.produces).collect();
        assert_eq!(produces, [shard_of(0), shard_of(1), shard_of(2)]);
        assert_eq!(ways[1].needs, [shard(1), Need::Whole, Need::Whole]);
        assert_eq!(ways[2].needs, [Need::Whole, shard(0), shard(0)]);
    }

    #[test]
    fn an_affine_map_needs_operands_that_fit() {
        let wrong: [&[&[usize]]; 6] = [
            &[&[5], &[6, 5], &[6]],
            &[&[4, 5], &[6, 4], &[6]],
            &[&[4, 5], &[6, 5], &[5]],
            &[&[4, 5], &[6, 5], &[1, 6]],
            &[&[4, 5], &[2, 6, 5], &[6]],
            &[&[4, 5], &[6, 5]],
        ];
        for shapes in wrong {
            assert!(infer(Op::Affine, &tensors(shapes), &Attrs::None).is_err(), "{shapes:?}");
        }
        let mut mixed = tensors(&[&[4, 5], &[6, 5], &[6]]);
        mixed[2] = InputMeta::Tensor(Meta::new(Shape::new(&[6]).unwrap(), DType::BF16));
        assert!(infer(Op::Affine, &mixed, &Attrs::None).is_err());
        mixed[2] = InputMeta::Scalar(Scalar::Float(0.0));
        assert!(infer(Op::Affine, &mixed, &Attrs::None).is_err());
    }

    #[test]
    fn reducing_a_sharded_axis_gives_partial_results_and_other_axes_stay_sharded() {
        let axes = Attrs::Axes { mask: 0b010, keepdim: false };
        let ways = check(Op::Sum, &tensors(&[&[4, 5, 6]]), &axes, 3);
        let produces: Vec<Produces> = ways.iter().map(|way| way.produces).collect();
        assert_eq!(produces, [shard_of(0), Produces::Partial(ReduceOp::Sum), shard_of(1)]);
        let mean = check(Op::Mean, &tensors(&[&[4, 5, 6]]), &axes, 3);
        assert!(mean[1].weighted && mean[1].nonempty);
        assert!(check(Op::Argmax, &tensors(&[&[4, 5]]), &Attrs::Axes { mask: 1, keepdim: true }, 2).len() == 1);
    }

    #[test]
    fn a_reshape_keeps_the_first_axis_of_each_group_sharded() {
        let to = |dims: &[usize]| Attrs::Shape(Shape::new(dims).unwrap());
        let ways = check(Op::Reshape, &tensors(&[&[4, 6, 5]]), &to(&[24, 5]), 4);
        assert_eq!(ways[0].needs, [Need::Shard { axis: 0, scale: 1 }]);
        assert_eq!(ways[0].produces, Produces::Shard { axis: 0, scale: 6 });
        assert_eq!(ways[1].produces, shard_of(1));
        let back = check(Op::Reshape, &tensors(&[&[24, 5]]), &to(&[4, 6, 5]), 4);
        assert_eq!(back[0].needs, [Need::Shard { axis: 0, scale: 6 }]);
        // Multiples of 4 and of 6 coincide every 12.
        let both = check(Op::Reshape, &tensors(&[&[6, 4]]), &to(&[4, 6]), 2);
        assert_eq!((both[0].units, both[0].produces), (2, Produces::Shard { axis: 0, scale: 2 }));
    }

    #[test]
    fn windowed_and_row_wise_ops_are_split_by_samples() {
        let spec = WindowSpec {
            rank: 1,
            groups: 1,
            input: [1, 1, 9],
            kernel: [1, 1, 3],
            stride: [1; 3],
            dilation: [1; 3],
            low: [0; 3],
            high: [0; 3],
        };
        let attrs = Attrs::Window(Box::new(spec));
        assert_eq!(check(Op::Convolution, &tensors(&[&[4, 2, 9], &[5, 2, 3], &[5]]), &attrs, 2).len(), 2);
        assert_eq!(check(Op::MaxPool, &tensors(&[&[4, 2, 9]]), &attrs, 2).len(), 2);
        assert_eq!(check(Op::Softmax, &tensors(&[&[4, 3, 5]]), &Attrs::None, 2).len(), 2);
        let causal = |causal| Attrs::Attention { causal, scale: 1.0 };
        let heads = tensors(&[&[2, 3, 7, 5], &[2, 3, 8, 5], &[2, 3, 8, 6]]);
        assert_eq!(check(Op::Attention, &heads, &causal(true), 2).len(), 2);
        assert_eq!(check(Op::Attention, &heads, &causal(false), 2).len(), 3);
        let with_grad = tensors(&[&[2, 3, 7, 6], &[2, 3, 7, 5], &[2, 3, 8, 5], &[2, 3, 8, 6]]);
        assert_eq!(check(Op::AttentionBackward, &with_grad, &causal(true), 2).len(), 2);
        let with_out = [&with_grad[..], &with_grad[..1]].concat();
        assert_eq!(check(Op::AttentionGradients, &with_out, &causal(true), 2).len(), 2);
    }

    #[test]
    fn scatter_add_along_a_sharded_axis_gives_partial_results() {
        let mut inputs = tensors(&[&[7, 3], &[8, 3], &[8, 3]]);
        inputs[1] = InputMeta::Tensor(Meta::new(Shape::new(&[8, 3]).unwrap(), DType::I64));
        let ways = check(Op::ScatterAdd, &inputs, &Attrs::Axis(0), 2);
        let partial = Need::Partial(ReduceOp::Sum);
        assert_eq!(ways[0].needs, [partial, Need::Whole, partial]);
        assert_eq!(ways[1].needs, [partial, shard(0), shard(0)]);
        assert!(ways[..2].iter().all(|way| way.produces == Produces::Partial(ReduceOp::Sum)));
        assert_eq!(ways[2].produces, shard_of(1));
    }

    #[test]
    fn the_random_numbers_of_a_shard_start_at_its_position() {
        let random = |dims: &[usize], first| {
            let shape = Shape::new(dims).unwrap();
            Attrs::Random { shape, dtype: DType::F32, seed: 1, stream: 2, first }
        };
        let ways = check(Op::Rand, &[], &random(&[1, 6, 5], 0), 4);
        assert_eq!(ways.iter().map(|way| way.produces).collect::<Vec<_>>(), [shard_of(1)]);
        let local = Shape::new(&[1, 2, 5]).unwrap();
        let found = localize(Op::Rand, &random(&[1, 6, 5], 100), &ways[0], &(3..5), &local);
        assert_eq!(found, Some(random(&[1, 2, 5], 115)));
    }

    #[test]
    fn a_scan_cannot_be_split_along_its_axis() {
        assert!(check(Op::Cumsum, &tensors(&[&[6]]), &Attrs::Axis(0), 2).is_empty());
    }

    proptest! {
        #[test]
        fn every_split_of_a_movement_gives_the_workers_their_parts(
            dims in prop::collection::vec(1usize..6, 1..4),
            picks in prop::collection::vec((0usize..6, 1usize..6, any::<bool>()), 4),
            ranks in 1usize..5,
        ) {
            let inputs = tensors(&[&dims]);
            let mut order = [0u8; RANK_MAX];
            for (i, axis) in order.iter_mut().enumerate() {
                *axis = if i < dims.len() { (dims.len() - 1 - i) as u8 } else { 0 };
            }
            check(Op::Permute, &inputs, &Attrs::Permutation(order), ranks);
            check(Op::Bitcast, &inputs, &Attrs::DType(DType::I32), ranks);
            check(Op::Bitcast, &inputs, &Attrs::DType(DType::I16), ranks);
            let (mut start, mut step, mut sizes) = ([0; RANK_MAX], [1; RANK_MAX], dims.clone());
            for (axis, size) in dims.iter().enumerate() {
                let (from, stride, whole) = picks[axis];
                if !whole {
                    start[axis] = (from % size) as i64;
                    step[axis] = stride as i64;
                    sizes[axis] = (size - from % size).div_ceil(stride);
                }
            }
            let spec = SliceSpec { start, step, sizes: Shape::new(&sizes).unwrap() };
            check(Op::Slice, &inputs, &Attrs::Slice(Box::new(spec)), ranks);
            let flat = Attrs::Shape(Shape::new(&[dims.iter().product()]).unwrap());
            check(Op::Reshape, &inputs, &flat, ranks);
            let mut wide = vec![3];
            wide.extend(&dims);
            check(Op::Expand, &inputs, &Attrs::Shape(Shape::new(&wide).unwrap()), ranks);
            check(Op::Add, &[inputs[0], inputs[0]], &Attrs::None, ranks);
            check(Op::Cat, &[inputs[0], inputs[0]], &Attrs::Axis(0), ranks);
        }
    }
}
