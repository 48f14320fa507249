//! Gradients of reductions, scans, movements, products and windows.

use crate::dtype::DType;
use crate::expr::Expr;
use crate::grad::{GradCtx, inverse_permutation};
use crate::instruction::Attrs;
use crate::op::Op;

/// Zero: the function is constant between its steps.
pub fn zero<'g>(c: &GradCtx<'g>) -> Expr<'g> {
    c.number(0.0)
}

impl<'g> GradCtx<'g> {
    /// Repeats a tensor of the reduction's result shape along the reduced axes.
    pub fn spread(&self, reduced: Expr<'g>) -> Expr<'g> {
        let shape = self.shape(0);
        reduced.with_shape(&shape.with_ones(self.axes_mask())).expand_to(&shape)
    }
    /// Reduces the axes that this reduction reduces, and keeps them with size 1.
    fn reduce(&self, op: Op, tensor: Expr<'g>) -> Expr<'g> {
        let attrs = Attrs::Axes { mask: self.axes_mask(), keepdim: true };
        self.builder.emit(op, &[tensor.into()], attrs)
    }
    /// The number of elements that are reduced to one.
    pub fn reduced_count(&self) -> f64 {
        (self.shape(0).numel() / self.out_shape().numel().max(1)) as f64
    }
    /// A scan from the end of the axis to its start.
    pub fn scan_back(&self, op: Op, tensor: Expr<'g>) -> Expr<'g> {
        self.emit(op, [tensor.flip(self.axis())]).flip(self.axis())
    }
}

/// g a / |a|, where |a| is the norm; 0 where it is 0 and not differentiable.
pub fn norm<'g>(c: &GradCtx<'g>) -> Expr<'g> {
    let length = c.out().eq(0.0).where_(f64::INFINITY, c.out());
    c.spread(c.grad / length) * c.a()
}

/// g times the product of the other elements, exact for any number of zeros.
pub fn prod<'g>(c: &GradCtx<'g>) -> Expr<'g> {
    let zero = c.a().eq(0.0);
    let nonzero = zero.where_(1.0, c.a());
    let other_zeros = c.reduce(Op::Sum, c.count(zero)) - c.count(zero);
    c.spread(c.grad) * other_zeros.eq(0.0).where_(c.reduce(Op::Prod, nonzero) / nonzero, 0.0)
}

/// g divided equally among the elements equal to the extremum.
pub fn extremum<'g>(c: &GradCtx<'g>) -> Expr<'g> {
    let ones = c.count(c.a().eq(c.spread(c.out())));
    c.spread(c.grad) * (ones / c.reduce(Op::Sum, ones))
}

/// Before the first zero of a, the reverse cumulative sum of g out up to that zero, divided by a. At that zero, where
/// this is 0 / 0, the reverse cumulative sum of g times the product of a with 1 in place of the zero. After it, 0.
pub fn cumprod<'g>(c: &GradCtx<'g>) -> Expr<'g> {
    if c.shape(0).dims().get(c.axis() as usize).is_none_or(|size| *size == 1) {
        return c.grad;
    }
    let zero = c.a().eq(0.0);
    let zeros = zero.to(DType::I64).cumsum(c.axis());
    let first = zero & zeros.eq(1i64);
    // From the zero on, out is 0, or NaN where an element is.
    let kept = zeros.eq(0i64).where_(c.grad * c.out(), 0.0);
    let before = c.scan_back(Op::Cumsum, kept) / zero.where_(1.0, c.a());
    let without_first = c.emit(Op::Cumprod, [first.where_(1.0, c.a())]);
    let at_first = c.scan_back(Op::Cumsum, c.grad * without_first);
    zeros.eq(0i64).where_(before, first.where_(at_first, 0.0))
}

/// exp(a) times the reverse cumulative sum of g exp(-out), in logarithms, separately for positive and negative g.
pub fn logcumsumexp<'g>(c: &GradCtx<'g>) -> Expr<'g> {
    let half = |side: Expr<'g>| {
        let positive = side.gt(0.0);
        let log = positive.where_(positive.where_(side, 1.0).log() - c.out(), f64::NEG_INFINITY);
        (c.scan_back(Op::Logcumsumexp, log) + c.a()).exp()
    };
    half(c.grad) - half(-c.grad)
}

/// g in the operand's dtype.
pub fn cast<'g>(c: &GradCtx<'g>) -> Expr<'g> {
    match c.meta(0).dtype == c.dtype() {
        // A user's cast to the same dtype is an instruction of its own; so is its gradient.
        true => c.emit(Op::Cast, [c.grad]),
        false => c.grad,
    }
}

/// g with the inverse permutation.
pub fn permute<'g>(c: &GradCtx<'g>) -> Expr<'g> {
    let Attrs::Permutation(permutation) = c.attrs() else { return c.grad };
    let inverse = Attrs::Permutation(inverse_permutation(permutation, c.shape(0).rank()));
    c.builder.emit(Op::Permute, &[c.grad.into()], inverse)
}

/// Each operand's slice of g.
pub fn cat<'g>(c: &GradCtx<'g>) -> Vec<Option<Expr<'g>>> {
    let mut end = 0;
    let mut part = |i: usize| {
        let size = c.shape(i).dims()[c.axis() as usize] as i64;
        end += size;
        c.needs(i).then(|| c.grad.narrow(c.axis(), end - size, size))
    };
    (0..c.operands()).map(&mut part).collect()
}

/// g b^T, a^T g; for an operand that is itself transposed, (b g^T)^T, (g^T a)^T. Here g has the operands' dtype.
pub fn matmul<'g>(c: &GradCtx<'g>) -> Expr<'g> {
    let (mut grad, mut other) = (c.grad.to(c.meta(c.operand).dtype), c.arg(1 - c.operand));
    if c.operand == 1 && c.shape(1).rank() == 2 && c.shape(0).rank() > 2 {
        // One matrix for the whole batch: a single product sums over the batch.
        (grad, other) = (grad.flatten(0, -2), other.flatten(0, -2));
    }
    let product = |a, b| c.emit(Op::Matmul, [a, b]);
    match (c.operand, c.transposed()) {
        (0, false) => product(grad, other.transposed()),
        (0, true) => product(other, grad.transposed()).transposed(),
        (_, false) => product(other.transposed(), grad),
        (_, true) => product(grad.transposed(), other).transposed(),
    }
}

/// g^T a over all rows: the gradient of a linear map's weight; (a^T g)^T for a weight that is itself transposed.
pub fn affine_weight<'g>(c: &GradCtx<'g>) -> Expr<'g> {
    let (mut grad, mut input) = (c.grad, c.a());
    if c.shape(0).rank() > 2 {
        // One product sums over the batch.
        (grad, input) = (grad.flatten(0, -2), input.flatten(0, -2));
    }
    match c.transposed() {
        true => c.emit(Op::Matmul, [input.transposed(), grad]).transposed(),
        false => c.emit(Op::Matmul, [grad.transposed(), input]),
    }
}

/// g summed over all rows: the gradient of a linear map's bias.
pub fn affine_bias<'g>(c: &GradCtx<'g>) -> Expr<'g> {
    let axes: Vec<i64> = (0..c.shape(0).rank() as i64 - 1).collect();
    c.grad.sum(&axes, false)
}

/// g summed over all axes but the channels: the gradient of a convolution's bias.
pub fn channel_sums<'g>(c: &GradCtx<'g>) -> Expr<'g> {
    let axes: Vec<i64> = (0..c.out_shape().rank() as i64).filter(|axis| *axis != 1).collect();
    c.grad.sum(&axes, false)
}

/// g gathered at the maxima.
pub fn max_pool_input<'g>(c: &GradCtx<'g>) -> Expr<'g> {
    let indices = c.emit(Op::MaxPoolIndices, [c.b()]);
    c.grad.flatten(2, -1).gather(2, indices.flatten(2, -1)).with_shape(&c.shape(0))
}
