//! Batching rules: an op on tensors with batch axes, as `vmap` makes them, is an op on the whole batch.
//!
//! A batched tensor has its batch axes before those that the program sees. Most classes of ops take it as it is once
//! axes are counted from the first that the program sees; ops with an axis of samples, such as convolutions, take the
//! batch as more samples or as more groups. Whatever has no rule runs once for each element of the batch.

use crate::build::{self, elementwise};
use crate::class::Class;
use crate::error::Result;
use crate::graph::{Arg, Graph, Val};
use crate::instruction::{Attrs, LossReduction, LossSpec, SliceSpec};
use crate::op::Op;
use crate::shape::{RANK_MAX, Shape};
use smallvec::SmallVec;

/// An operand of an op on a batch.
#[derive(Clone, Copy, Debug)]
pub struct BatchedArg {
    /// The tensor, with its batch axes, or a number.
    pub arg: Arg,
    /// Bit `i` set: the tensor has batch axis `i`. Those that it has are its first axes, in order.
    pub axes: u8,
}

type Sizes = SmallVec<[usize; RANK_MAX]>;

/// Emits `op` for every element of a batch. `sizes` are those of the batch axes, of which each is an axis of an
/// operand; the axes that `attrs` names are counted without them. Returns the results: the batch axes come first.
///
/// # Errors
/// As [`Graph::emit`]; a tensor with more than [`RANK_MAX`] axes.
pub fn emit(g: &mut dyn Graph, op: Op, inputs: &[BatchedArg], attrs: &Attrs, sizes: &[usize]) -> Result<Val> {
    Batch { g, op, inputs, attrs, sizes }.emit()
}

/// Emits an op whose rule is written in terms of other ops, each of which is differentiated by itself. `None` if the op
/// has a rule of its own. `batched` tells whether an operand, as the program sees it, has batch axes.
///
/// # Errors
/// As [`Graph::emit`].
pub fn decomposed(
    g: &mut dyn Graph,
    op: Op,
    inputs: &[Arg],
    attrs: &Attrs,
    batched: impl Fn(&Arg) -> bool,
) -> Result<Option<Val>> {
    match (op, inputs, attrs) {
        (Op::LayerNorm, [input, weight, bias, epsilon], _) if batched(weight) || batched(bias) => {
            let rows = g.emit(op, &[*input, 1.0.into(), 0.0.into(), *epsilon], Attrs::None)?;
            let scaled = elementwise(g, Op::Mul, &[rows.into(), *weight])?;
            elementwise(g, Op::Add, &[scaled.into(), *bias]).map(Some)
        }
        (Op::RmsNorm, [input, weight, epsilon], _) if batched(weight) => {
            let rows = g.emit(op, &[*input, 1.0.into(), *epsilon], Attrs::None)?;
            elementwise(g, Op::Mul, &[rows.into(), *weight]).map(Some)
        }
        (Op::Affine, [Arg::Val(input), Arg::Val(weight), Arg::Val(bias)], _)
            if batched(&inputs[1]) || batched(&inputs[2]) =>
        {
            build::affine_by_steps(g, *input, *weight, *bias).map(Some)
        }
        (Op::CrossEntropy | Op::NllLoss, [_, Arg::Val(target), weight], Attrs::Loss(spec))
            if spec.reduction != LossReduction::None =>
        {
            let each = Attrs::Loss(LossSpec { reduction: LossReduction::None, ..*spec });
            let losses = g.emit(op, inputs, each)?;
            let sum = sum_all(g, losses)?;
            if spec.reduction == LossReduction::Sum {
                return Ok(Some(sum));
            }
            let weights = weights_of_samples(g, *target, *weight, losses, spec.ignore_index)?;
            let total = sum_all(g, weights)?;
            elementwise(g, Op::Div, &[sum.into(), total.into()]).map(Some)
        }
        _ => Ok(None),
    }
}

fn sum_all(g: &mut dyn Graph, v: Val) -> Result<Val> {
    let rank = g.meta(v).shape.rank();
    g.emit(Op::Sum, &[v.into()], Attrs::Axes { mask: mask_of(0..rank), keepdim: false })
}

/// The weight of each sample's class, 0 for samples that are left out; of the dtype of `losses`.
fn weights_of_samples(g: &mut dyn Graph, target: Val, weight: Arg, losses: Val, ignored: i64) -> Result<Val> {
    let dtype = g.meta(losses).dtype;
    let counted = elementwise(g, Op::Ne, &[target.into(), ignored.into()])?;
    let weight = match weight {
        Arg::Scalar(_) => weight,
        Arg::Val(weight) => {
            let choices = [counted.into(), target.into(), 0i64.into()];
            let class = g.emit(Op::Where, &choices, Attrs::DType(g.meta(target).dtype))?;
            g.emit(Op::Gather, &[weight.into(), class.into()], Attrs::Axis(0))?.into()
        }
    };
    g.emit(Op::Where, &[counted.into(), weight, 0.0.into()], Attrs::DType(dtype))
}

/// Bits for these axes.
fn mask_of(axes: std::ops::Range<usize>) -> u8 {
    axes.fold(0, |mask, axis| mask | 1 << axis)
}

struct Batch<'a> {
    g: &'a mut dyn Graph,
    op: Op,
    inputs: &'a [BatchedArg],
    attrs: &'a Attrs,
    sizes: &'a [usize],
}

impl Batch<'_> {
    fn emit(&mut self) -> Result<Val> {
        let (op, batch) = (self.op, self.sizes.len());
        match (op.row().class, self.attrs) {
            (Class::Elementwise | Class::Select | Class::Cast, attrs) => {
                let rank = self.rank_max();
                let args = self.map(|batch, input| batch.aligned(input, rank))?;
                self.g.emit(op, &args, attrs.clone())
            }
            (Class::Reduction | Class::ArgReduction, Attrs::Axes { mask, keepdim }) => {
                self.on_rows(Attrs::Axes { mask: mask << batch, keepdim: *keepdim })
            }
            (Class::Reduction, Attrs::AxesInto { mask, keepdim, dtype }) => {
                self.on_rows(Attrs::AxesInto { mask: mask << batch, keepdim: *keepdim, dtype: *dtype })
            }
            (Class::Movement, Attrs::Shape(to)) if op == Op::Expand => {
                let operand = self.aligned(&self.inputs[0], to.rank())?;
                self.g.emit(op, &[operand], Attrs::Shape(self.with_batch(to.dims())?))
            }
            (Class::Movement, Attrs::Shape(to)) => self.on_rows(Attrs::Shape(self.with_batch(to.dims())?)),
            (Class::Movement, Attrs::Permutation(order)) => {
                let rank = self.rank(&self.inputs[0]);
                let mut whole = [0; RANK_MAX];
                for (axis, to) in whole.iter_mut().enumerate().take(batch + rank) {
                    *to = if axis < batch { axis as u8 } else { order[axis - batch] + batch as u8 };
                }
                self.on_rows(Attrs::Permutation(whole))
            }
            (Class::Movement | Class::SliceScatter, Attrs::Slice(part)) => {
                let mut whole = SliceSpec::corner(self.with_batch(part.sizes.dims())?);
                for axis in 0..part.sizes.rank() {
                    whole.start[batch + axis] = part.start[axis];
                    whole.step[batch + axis] = part.step[axis];
                }
                self.on_rows(Attrs::Slice(Box::new(whole)))
            }
            (Class::Movement, Attrs::DType(dtype)) => self.on_rows(Attrs::DType(*dtype)),
            (Class::Gather, Attrs::Axis(0)) if self.inputs[0].axes == 0 => self.gather_from_one(),
            (Class::Concatenation | Class::Gather | Class::Scatter | Class::Scan | Class::Sort, Attrs::Axis(axis)) => {
                self.on_rows(Attrs::Axis(axis + batch as u8))
            }
            (Class::Contraction, _) if op == Op::Affine => self.affine(),
            (Class::Contraction, _) => self.matmul(),
            (Class::Convolution, Attrs::Window(_)) => self.convolution(),
            (Class::Pooling, attrs) => {
                let operands = self.map(|batch, input| batch.as_samples(input))?;
                let made = self.g.emit(op, &operands, attrs.clone())?;
                self.split_samples(made)
            }
            (Class::RowWise, _) => self.row_wise(),
            // One sorted list serves all.
            (Class::Search, attrs) if self.inputs[0].axes == 0 && self.rank(&self.inputs[0]) == 1 => {
                let wanted = self.whole(&self.inputs[1], 0)?;
                self.g.emit(op, &[self.inputs[0].arg, wanted], attrs.clone())
            }
            _ => self.one_by_one(),
        }
    }

    /// The number of axes of an operand that the program sees.
    fn rank(&self, input: &BatchedArg) -> usize {
        match input.arg {
            Arg::Val(v) => self.g.meta(v).shape.rank() - input.axes.count_ones() as usize,
            Arg::Scalar(_) => 0,
        }
    }

    fn rank_max(&self) -> usize {
        self.inputs.iter().map(|input| self.rank(input)).max().unwrap_or(0)
    }

    /// The shape with all batch axes before `dims`.
    fn with_batch(&self, dims: &[usize]) -> Result<Shape> {
        let whole: Sizes = self.sizes.iter().chain(dims).copied().collect();
        Shape::new(&whole)
    }

    fn map(&mut self, prepare: impl Fn(&mut Self, &BatchedArg) -> Result<Arg>) -> Result<SmallVec<[Arg; 4]>> {
        let inputs = self.inputs;
        inputs.iter().map(|input| prepare(self, input)).collect()
    }

    fn reshape(&mut self, v: Val, dims: &[usize]) -> Result<Val> {
        let shape = Shape::new(dims)?;
        if self.g.meta(v).shape == shape {
            return Ok(v);
        }
        self.g.emit(Op::Reshape, &[v.into()], Attrs::Shape(shape))
    }

    /// The operand such that it broadcasts with others of `rank`: the batch axes that it lacks have size 1.
    fn aligned(&mut self, input: &BatchedArg, rank: usize) -> Result<Arg> {
        let Arg::Val(v) = input.arg else { return Ok(input.arg) };
        if input.axes == 0 {
            return Ok(input.arg);
        }
        let (shape, own) = (self.g.meta(v).shape, self.rank(input));
        let batch = self.sizes.iter().enumerate().map(|(i, size)| if input.axes >> i & 1 == 1 { *size } else { 1 });
        let seen = shape.dims()[shape.rank() - own..].iter().copied();
        let dims: Sizes = batch.chain(std::iter::repeat_n(1, rank.saturating_sub(own))).chain(seen).collect();
        self.reshape(v, &dims).map(Arg::Val)
    }

    /// The operand with all batch axes, and at least `rank` others.
    fn whole(&mut self, input: &BatchedArg, rank: usize) -> Result<Arg> {
        let Arg::Val(v) = self.aligned(input, rank)? else { return Ok(input.arg) };
        let own = self.rank(input);
        let shape = self.g.meta(v).shape;
        let seen = shape.dims()[shape.rank() - own..].iter().copied();
        let dims: Sizes = std::iter::repeat_n(1, rank.saturating_sub(own)).chain(seen).collect();
        let to = self.with_batch(&dims)?;
        if shape == to {
            return Ok(v.into());
        }
        self.g.emit(Op::Expand, &[v.into()], Attrs::Shape(to)).map(Arg::Val)
    }

    /// The op with `attrs` on operands that all have all batch axes.
    fn on_rows(&mut self, attrs: Attrs) -> Result<Val> {
        let rank = self.rank_max();
        let args = self.map(|batch, input| batch.whole(input, rank))?;
        self.g.emit(self.op, &args, attrs)
    }

    /// The sizes that the program sees of a tensor with all batch axes.
    fn seen(&self, v: Val) -> Sizes {
        self.g.meta(v).shape.dims()[self.sizes.len()..].iter().copied().collect()
    }

    /// The operand with its batch axes merged into its first axis, that of samples.
    fn as_samples(&mut self, input: &BatchedArg) -> Result<Arg> {
        let Arg::Val(v) = self.whole(input, 1)? else { return Ok(input.arg) };
        let mut dims = self.seen(v);
        dims[0] *= self.sizes.iter().product::<usize>();
        self.reshape(v, &dims).map(Arg::Val)
    }

    /// Splits the first axis, that of samples, into the batch axes and the samples of one element.
    fn split_samples(&mut self, v: Val) -> Result<Val> {
        let dims = self.g.meta(v).shape;
        let count: usize = self.sizes.iter().product();
        let samples = dims.dims()[0].checked_div(count).unwrap_or(0);
        let own: Sizes = std::iter::once(samples).chain(dims.dims()[1..].iter().copied()).collect();
        let to = self.with_batch(&own)?;
        self.reshape(v, to.dims())
    }

    /// Gathers along the first axis of one tensor: the positions of all elements of the batch are one list.
    fn gather_from_one(&mut self) -> Result<Val> {
        let (source, index) = (self.inputs[0].arg, self.as_samples(&self.inputs[1])?);
        let found = self.g.emit(self.op, &[source, index], self.attrs.clone())?;
        self.split_samples(found)
    }

    fn matmul(&mut self) -> Result<Val> {
        let (a, b) = (self.inputs[0], self.inputs[1]);
        let (rank_a, rank_b) = (self.rank(&a), self.rank(&b));
        let (Arg::Val(left), Arg::Val(right)) = (a.arg, b.arg) else { return self.one_by_one() };
        let (dims_a, dims_b) = (self.g.meta(left).shape, self.g.meta(right).shape);
        let (m, n) = (dims_a.dims()[dims_a.rank() - 2], dims_b.dims()[dims_b.rank() - 1]);
        if b.axes == 0 && rank_b == 2 {
            // One product: the rows of all matrices are those of one.
            let rows = dims_a.numel().checked_div(dims_b.dims()[0]).unwrap_or(0);
            if rows > 0 {
                let flat = self.reshape(left, &[rows, dims_b.dims()[0]])?;
                let made = self.g.emit(self.op, &[flat.into(), right.into()], Attrs::None)?;
                let mut dims: Sizes = dims_a.dims().into();
                dims[dims_a.rank() - 1] = n;
                return self.reshape(made, &dims);
            }
        }
        if a.axes == 0 && rank_a == 2 && rank_b == 2 && n == 1 {
            // Products of one matrix with vectors: the vectors are the rows of a matrix.
            let k = dims_a.dims()[1];
            let rows = dims_b.numel().checked_div(k).unwrap_or(0);
            if rows > 0 {
                let vectors = self.reshape(right, &[rows, k])?;
                let mut swap = [0; RANK_MAX];
                swap[0] = 1;
                let turned = self.g.emit(Op::Permute, &[left.into()], Attrs::Permutation(swap))?;
                let made = self.g.emit(self.op, &[vectors.into(), turned.into()], Attrs::None)?;
                let to = self.with_batch(&[m, 1])?;
                return self.reshape(made, to.dims());
            }
        }
        let rank = rank_a.max(rank_b);
        let operands = self.map(|batch, input| batch.aligned(input, rank))?;
        self.g.emit(self.op, &operands, Attrs::None)
    }

    /// The batch is more rows of the input; [`decomposed`] has the rule for several weights or biases.
    fn affine(&mut self) -> Result<Val> {
        let input = self.whole(&self.inputs[0], 0)?;
        self.g.emit(self.op, &[input, self.inputs[1].arg, self.inputs[2].arg], Attrs::None)
    }

    /// With one weight, the batch is more samples; else the channels of all elements are groups of one convolution.
    fn convolution(&mut self) -> Result<Val> {
        let (op, attrs) = (self.op, self.attrs.clone());
        let Attrs::Window(mut window) = attrs.clone() else { return self.one_by_one() };
        if op != Op::ConvolutionWeight && self.inputs[1..].iter().all(|input| input.axes == 0) {
            let samples = self.as_samples(&self.inputs[0])?;
            let operands: SmallVec<[Arg; 4]> =
                std::iter::once(samples).chain(self.inputs[1..].iter().map(|input| input.arg)).collect();
            let made = self.g.emit(op, &operands, attrs)?;
            return self.split_samples(made);
        }
        let count: usize = self.sizes.iter().product();
        if count == 0 {
            return self.one_by_one();
        }
        window.groups *= count;
        let channels = self.as_channels(&self.inputs[0])?;
        // The rows of a weight and the elements of a bias are the channels of one operand.
        let other = if op == Op::ConvolutionWeight {
            self.as_channels(&self.inputs[1])?
        } else {
            self.as_samples(&self.inputs[1])?
        };
        let mut operands: SmallVec<[Arg; 4]> = smallvec::smallvec![channels, other];
        if let Some(bias) = self.inputs.get(2) {
            operands.push(self.as_samples(bias)?);
        }
        let made = self.g.emit(op, &operands, Attrs::Window(window))?;
        if op == Op::ConvolutionWeight { self.split_samples(made) } else { self.split_channels(made, count) }
    }

    /// The operand with its batch axes merged into its second axis, that of channels.
    fn as_channels(&mut self, input: &BatchedArg) -> Result<Arg> {
        let Arg::Val(v) = self.whole(input, 2)? else { return Ok(input.arg) };
        let (seen, count) = (self.seen(v), self.sizes.iter().product::<usize>());
        let one: Sizes = std::iter::once(count).chain(seen.iter().copied()).collect();
        let v = self.reshape(v, &one)?;
        let v = self.swap_first_axes(v)?;
        let merged: Sizes = [seen[0], count * seen[1]].into_iter().chain(seen[2..].iter().copied()).collect();
        self.reshape(v, &merged).map(Arg::Val)
    }

    fn split_channels(&mut self, v: Val, count: usize) -> Result<Val> {
        let shape = self.g.meta(v).shape;
        let [samples, channels, rest @ ..] = shape.dims() else { return Ok(v) };
        let split: Sizes = [*samples, count, channels / count].into_iter().chain(rest.iter().copied()).collect();
        let v = self.reshape(v, &split)?;
        let v = self.swap_first_axes(v)?;
        let own: Sizes = [*samples, channels / count].into_iter().chain(rest.iter().copied()).collect();
        let to = self.with_batch(&own)?;
        self.reshape(v, to.dims())
    }

    fn swap_first_axes(&mut self, v: Val) -> Result<Val> {
        let mut order = std::array::from_fn(|axis| axis as u8);
        order.swap(0, 1);
        self.g.emit(Op::Permute, &[v.into()], Attrs::Permutation(order))
    }

    fn row_wise(&mut self) -> Result<Val> {
        let (op, inputs) = (self.op, self.inputs);
        match op {
            Op::Softmax
            | Op::LogSoftmax
            | Op::SoftmaxBackward
            | Op::LogSoftmaxBackward
            | Op::Fourier
            | Op::InverseFourier
            | Op::RealFourier
            | Op::InverseRealFourier
            | Op::ComplexMul
            | Op::ComplexDiv
            | Op::LstmCell
            | Op::LstmCellBackward
            | Op::Attention
            | Op::AttentionBackward
            | Op::AttentionGradients => self.on_rows(self.attrs.clone()),
            Op::LayerNorm | Op::RmsNorm => self.of_rows(1),
            Op::LayerNormBackward | Op::RmsNormBackward if inputs[2].axes == 0 => self.of_rows(2),
            Op::LayerNormBackward | Op::RmsNormBackward => {
                let rank = self.rank_max();
                let (grad, weight) = (self.aligned(&inputs[0], rank)?, self.aligned(&inputs[2], rank)?);
                let scaled = elementwise(self.g, Op::Mul, &[grad, weight])?;
                let input = self.whole(&inputs[1], rank)?;
                self.g.emit(op, &[scaled.into(), input, 1.0.into(), inputs[3].arg], Attrs::None)
            }
            Op::LayerNormWeightBackward | Op::RmsNormWeightBackward => self.norm_weight_gradient(),
            Op::CrossEntropy | Op::NllLoss if self.losses_are_separate(2) => self.of_samples(2),
            Op::CrossEntropyBackward | Op::NllLossBackward if self.losses_are_separate(3) => self.of_samples(3),
            _ => self.one_by_one(),
        }
    }

    /// An op on rows whose first `count` operands are rows, and whose other operands are the same for all.
    fn of_rows(&mut self, count: usize) -> Result<Val> {
        let rank = self.rank_max();
        let mut operands = SmallVec::<[Arg; 4]>::new();
        for (i, input) in self.inputs.iter().enumerate() {
            operands.push(if i < count { self.whole(input, rank)? } else { input.arg });
        }
        self.g.emit(self.op, &operands, self.attrs.clone())
    }

    /// Whether each sample has a loss of its own, and operand `weight` is the same for the whole batch.
    fn losses_are_separate(&self, weight: usize) -> bool {
        let reduced = !matches!(self.attrs, Attrs::Loss(LossSpec { reduction: LossReduction::None, .. }));
        !reduced && self.inputs[weight].axes == 0
    }

    /// An op whose first `count` operands have an axis of samples, and whose other operands are the same for all.
    fn of_samples(&mut self, count: usize) -> Result<Val> {
        let mut operands = SmallVec::<[Arg; 4]>::new();
        for (i, input) in self.inputs.iter().enumerate() {
            operands.push(if i < count { self.as_samples(input)? } else { input.arg });
        }
        let made = self.g.emit(self.op, &operands, self.attrs.clone())?;
        self.split_samples(made)
    }

    /// The gradients of the weight and the bias of a normalization, as rows: sums over what the program sees as rows.
    fn norm_weight_gradient(&mut self) -> Result<Val> {
        let (inputs, batch, rank) = (self.inputs, self.sizes.len(), self.rank_max());
        let (grad, input) = (self.whole(&inputs[0], rank)?, self.whole(&inputs[1], rank)?);
        let epsilon = inputs[2].arg;
        let layer = self.op == Op::LayerNormWeightBackward;
        let normalized = if layer {
            self.g.emit(Op::LayerNorm, &[input, 1.0.into(), 0.0.into(), epsilon], Attrs::None)?
        } else {
            self.g.emit(Op::RmsNorm, &[input, 1.0.into(), epsilon], Attrs::None)?
        };
        let for_weight = elementwise(self.g, Op::Mul, &[grad, normalized.into()])?;
        let mut rows = Vec::new();
        for v in std::iter::once(for_weight.into()).chain(layer.then_some(grad)) {
            // One row has a sum of its own, over no axes.
            let sums = Attrs::Axes { mask: mask_of(batch..batch + rank - 1), keepdim: false };
            let sum = self.g.emit(Op::Sum, &[v], sums)?;
            let columns = self.seen(sum)[0];
            let row = self.with_batch(&[1, columns])?;
            rows.push(self.reshape(sum, row.dims())?);
        }
        build::cat(self.g, &rows, batch as i64)
    }

    /// Runs the op for one element of the batch after the other.
    fn one_by_one(&mut self) -> Result<Val> {
        let count: usize = self.sizes.iter().product();
        let mut lines = SmallVec::<[Arg; 4]>::new();
        for input in self.inputs {
            lines.push(match (input.axes, self.whole(input, 0)?) {
                (1.., Arg::Val(v)) => {
                    let dims: Sizes = std::iter::once(count).chain(self.seen(v)).collect();
                    self.reshape(v, &dims)?.into()
                }
                _ => input.arg,
            });
        }
        let mut made = Vec::with_capacity(count);
        for at in 0..count {
            let mut operands = SmallVec::<[Arg; 4]>::new();
            for (input, line) in self.inputs.iter().zip(&lines) {
                operands.push(match *line {
                    Arg::Val(v) if input.axes != 0 => {
                        let shape = self.g.meta(v).shape;
                        let part = crate::instruction::slice_along(&shape, 0, &(at..at + 1));
                        let element = self.g.emit(Op::Slice, &[v.into()], part)?;
                        self.reshape(element, &shape.dims()[1..])?.into()
                    }
                    line => line,
                });
            }
            let one = self.g.emit(self.op, &operands, self.attrs.clone())?;
            let dims: Sizes = std::iter::once(1).chain(self.g.meta(one).shape.dims().iter().copied()).collect();
            made.push(self.reshape(one, &dims)?);
        }
        let joined = build::cat(self.g, &made, 0)?;
        let dims: Sizes = self.g.meta(joined).shape.dims()[1..].into();
        let to = self.with_batch(&dims)?;
        self.reshape(joined, to.dims())
    }
}
