//! Gradients of row-wise ops: a fused op, or a composite of differentiable ops where the gradient is itself recorded.

use crate::dtype::DType;
use crate::expr::Expr;
use crate::grad::GradCtx;
use crate::instruction::{Attrs, LossReduction};
use crate::lstm::LstmGates;
use crate::op::Op;
use crate::shape::Shape;
use std::cell::LazyCell;

/// The sum of each row.
pub fn row_sum(rows: Expr<'_>) -> Expr<'_> {
    rows.sum(&[-1], true)
}

fn row_mean(rows: Expr<'_>) -> Expr<'_> {
    rows.mean(&[-1], true)
}

/// The gradient of softmax_backward, b (a - sum(a b)), to b.
pub fn softmax_backward<'g>(c: &GradCtx<'g>) -> Expr<'g> {
    c.grad * (c.a() - row_sum(c.a() * c.b())) - c.a() * row_sum(c.grad * c.b())
}

/// With n the normalized rows, r their factor (the reciprocal standard deviation) and h = g weight: r (h - mean(h) - n
/// mean(h n)); g n; g.
pub fn layer_norm<'g>(c: &GradCtx<'g>) -> Vec<Option<Expr<'g>>> {
    if c.recorded() {
        return norm(c, |rows| rows - row_mean(rows));
    }
    let both = LazyCell::new(|| c.emit(Op::LayerNormWeightBackward, [c.grad, c.a(), c.d()]));
    c.each(|operand| match operand {
        0 => c.emit(Op::LayerNormBackward, [c.grad, c.a(), c.b(), c.d()]),
        _ => both.select(0, operand as i64 - 1),
    })
}

/// With n the normalized rows, r their factor (the reciprocal root mean square) and h = g weight: r (h - n mean(h n));
/// g n.
pub fn rms_norm<'g>(c: &GradCtx<'g>) -> Vec<Option<Expr<'g>>> {
    if c.recorded() {
        return norm(c, |rows| rows);
    }
    c.each(|operand| match operand {
        0 => c.emit(Op::RmsNormBackward, [c.grad, c.a(), c.b(), c.c()]),
        _ => c.emit(Op::RmsNormWeightBackward, [c.grad, c.a(), c.c()]).select(0, 0),
    })
}

/// The gradients of a normalization, whose last operand is epsilon, as a composite.
fn norm<'g>(c: &GradCtx<'g>, centre: fn(Expr<'g>) -> Expr<'g>) -> Vec<Option<Expr<'g>>> {
    let grad = c.grad.upcast();
    let centred = centre(c.a().upcast());
    let factor = (row_mean(centred.square()) + c.arg(c.operands() - 1)).rsqrt();
    let normal = centred * factor;
    let weighted = grad * c.b().upcast();
    c.each(|operand| match operand {
        0 => centre(weighted - normal * row_mean(weighted * normal)) * factor,
        1 => grad * normal,
        _ => grad,
    })
}

/// g (softmax - one-hot), each row times its sample's weight; without the softmax for `nll_loss`.
pub fn class_loss<'g>(c: &GradCtx<'g>) -> Expr<'g> {
    match (c.recorded(), c.has(0)) {
        (true, _) => recorded_class_loss(c),
        (false, true) => c.emit(Op::CrossEntropyBackward, [c.grad, c.a(), c.b(), c.c()]),
        // The gradient of `nll_loss` depends on its input's shape, not on its elements.
        (false, false) => {
            let rows = c.builder.full(&Shape::SCALAR, 0.0, c.meta(0).dtype).expand_to(&c.shape(0));
            c.emit(Op::NllLossBackward, [c.grad, rows, c.b(), c.c()])
        }
    }
}

fn recorded_class_loss<'g>(c: &GradCtx<'g>) -> Expr<'g> {
    let Attrs::Loss(spec) = c.attrs() else { return c.grad };
    let (target, class_weight) = (c.b().unsqueeze(1), c.c().upcast());
    let classes = c.shape(0).dims()[1];
    let wide = if c.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
    let counts = target.ne(spec.ignore_index).to(wide);
    let hit = target.eq(c.arange(classes)).to(wide) * counts * class_weight;
    // The weight of each sample, and the sum of all class weights.
    let (share, all) = match class_weight.as_number() {
        Some(weight) => (counts * weight, c.number(classes as f64 * weight.to_f64())),
        None => (row_sum(hit), class_weight.sum(&[], false)),
    };
    let grad = match spec.reduction {
        LossReduction::None => c.grad.upcast().unsqueeze(1),
        LossReduction::Mean => c.grad.upcast() / share.sum(&[], false),
        LossReduction::Sum => c.grad.upcast(),
    };
    let kept = 1.0 - spec.smoothing;
    let mut slope = hit * -kept;
    if c.has(0) {
        let even = counts * (spec.smoothing / classes as f64);
        slope = slope - even * class_weight + c.a().softmax(1).upcast() * (share * kept + even * all);
    }
    slope * grad
}

/// The gradients of the gates and of the cell state, from those of the new hidden state and the new cell state.
pub fn lstm_cell<'g>(c: &GradCtx<'g>) -> Vec<Option<Expr<'g>>> {
    let size = c.shape(1).dims().last().map_or(0, |size| *size as i64);
    let parts = |both: Expr<'g>| [0, size].map(|start| both.narrow(-1, start, size));
    let ([of_hidden, of_cell], [_, after]) = (parts(c.grad), parts(c.out()));
    let both = c.emit(Op::LstmCellBackward, [of_hidden, of_cell, c.a(), c.b(), after]);
    c.each(|operand| if operand == 0 { both.narrow(-1, 0, 4 * size) } else { both.narrow(-1, 4 * size, size) })
}

/// The complex numbers whose parts are the last axis of `pairs`.
fn numbers(pairs: Expr<'_>) -> Expr<'_> {
    pairs.dtype().map_or(pairs, |parts| pairs.reinterpret(parts.to_complex()))
}

/// The derivatives of a product of complex numbers: each factor's is the conjugate of the other.
pub fn complex_mul<'g>(c: &GradCtx<'g>) -> Vec<Option<Expr<'g>>> {
    let parts = c.grad.dtype().unwrap_or(DType::F32);
    c.each(|operand| (numbers(c.grad) * numbers(c.arg(1 - operand)).conj()).reinterpret(parts))
}

/// The derivatives of a quotient of complex numbers.
pub fn complex_div<'g>(c: &GradCtx<'g>) -> Vec<Option<Expr<'g>>> {
    let parts = c.grad.dtype().unwrap_or(DType::F32);
    let first = LazyCell::new(|| numbers(c.grad) / numbers(c.b()).conj());
    c.each(|operand| match operand {
        0 => first.reinterpret(parts),
        _ => -(*first * numbers(c.out()).conj()).reinterpret(parts),
    })
}

/// The frequencies of a real signal of which all but the first and the last are multiplied: those stand for their
/// conjugates, too.
fn paired<'g>(c: &GradCtx<'g>, rows: Expr<'g>, factor: f64) -> Expr<'g> {
    let count = rows.size(-1).unwrap_or(2);
    let between = rows.narrow(-1, 2, count - 4) * factor;
    c.builder.cat(&[rows.narrow(-1, 0, 2), between, rows.narrow(-1, count - 2, 2)], -1)
}

/// The derivative of `Op::RealFourier`: the real part of the inverse transform of the gradient.
pub fn real_fourier<'g>(c: &GradCtx<'g>) -> Expr<'g> {
    c.emit(Op::InverseRealFourier, [paired(c, c.grad, 0.5)])
}

/// The derivative of `Op::InverseRealFourier`.
pub fn inverse_real_fourier<'g>(c: &GradCtx<'g>) -> Expr<'g> {
    paired(c, c.emit(Op::RealFourier, [c.grad]), 2.0)
}

/// The derivatives of `Op::LstmCellBackward`, each by the chain rule from the operands.
pub fn lstm_cell_backward<'g>(c: &GradCtx<'g>) -> Vec<Option<Expr<'g>>> {
    let [of_hidden, of_cell, sums, before, after] = [0, 1, 2, 3, 4].map(|i| c.arg(i).upcast());
    let gates = LstmGates::new(sums, after);
    let LstmGates { size, input: i, forget: f, candidate: g, output: o, squashed: s } = gates;
    let upstream = c.grad.upcast();
    let [of_input, of_forget, of_candidate, of_output, of_before] =
        [0, 1, 2, 3, 4].map(|index| upstream.narrow(-1, index * size, size));
    let (of_sigmoid, of_tanh) = (|x: Expr<'g>| x * (1.0 - x), |x: Expr<'g>| 1.0 - x.square());
    // The gradient of the new cell state by both ways, and what depends on it.
    let through = of_cell + of_hidden * o * of_tanh(s);
    let of_through = of_input * g * of_sigmoid(i)
        + of_forget * before * of_sigmoid(f)
        + of_candidate * i * of_tanh(g)
        + of_before * f;
    c.each(|operand| match operand {
        0 => of_through * o * of_tanh(s) + of_output * s * of_sigmoid(o),
        1 => of_through,
        2 => {
            let parts = [
                of_sigmoid(i) * through * (of_input * g * (1.0 - 2.0 * i) + of_candidate * of_tanh(g)),
                of_sigmoid(f) * through * (of_forget * before * (1.0 - 2.0 * f) + of_before),
                of_tanh(g) * through * (of_input * of_sigmoid(i) - 2.0 * of_candidate * g * i),
                of_sigmoid(o) * of_hidden * (of_through * of_tanh(s) + of_output * s * (1.0 - 2.0 * o)),
            ];
            c.builder.cat(&parts, -1)
        }
        3 => of_forget * through * of_sigmoid(f),
        _ => of_hidden * of_tanh(s) * (of_output * of_sigmoid(o) - 2.0 * of_through * o * s),
    })
}

/// With p the attention weights and s = p (g v^T - sum(g out)): scale s k; scale s^T q; p^T g; s for the mask
/// (FlashAttention, Dao et al. 2022, appendix B).
pub fn attention<'g>(c: &GradCtx<'g>) -> Vec<Option<Expr<'g>>> {
    let masked = c.operands() > 3;
    if c.recorded() || (masked && c.needs(3)) {
        return recorded_attention(c);
    }
    // One matrix has the gradients of query, key and value in each row, one after the other.
    let args = c.args();
    let all = c.emit_all(Op::AttentionGradients, &[&[c.grad], &args[..3], &[c.out()], &args[3..]].concat());
    let mut end = 0;
    let mut part = |i: usize| {
        let columns = c.shape(i).matrix_numel() as i64;
        end += columns;
        c.needs(i).then(|| all.narrow(-1, end - columns, columns).with_shape(&c.shape(i)))
    };
    let mut grads: Vec<_> = (0..3).map(&mut part).collect();
    grads.resize(c.operands(), None);
    grads
}

fn recorded_attention<'g>(c: &GradCtx<'g>) -> Vec<Option<Expr<'g>>> {
    let Attrs::Attention { causal, scale } = *c.attrs() else { return Vec::new() };
    let [grad, query, key, value] = [c.grad, c.a(), c.b(), c.c()].map(Expr::upcast);
    let mut scores = query.matmul(key.transposed()) * scale;
    if c.operands() > 3 {
        scores = scores + c.d().upcast();
    }
    if causal {
        let length = |i: usize| c.shape(i).dims()[c.shape(i).rank() - 2];
        let seen = c.arange(length(0)).unsqueeze(1).ge(c.arange(length(1)));
        scores = seen.where_(scores, f64::NEG_INFINITY);
    }
    // A query that attends to no key has weights 0.
    let blind = scores.amax(&[-1], true).eq(f64::NEG_INFINITY);
    let weights = blind.where_(0.0, blind.where_(0.0, scores).softmax(-1));
    let product = weights * grad.matmul(value.transposed());
    let slope = product - weights * row_sum(product);
    let scaled = slope * scale;
    c.each(|operand| match operand {
        0 => scaled.matmul(key),
        1 => scaled.transposed().matmul(query),
        2 => weights.transposed().matmul(grad),
        _ => slope,
    })
}
