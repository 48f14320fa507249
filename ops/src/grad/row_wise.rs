//! Gradients of row-wise ops: a fused op, or a composite of differentiable ops where the gradient is itself recorded.
//! Comments list the gradients of the operands in order, as in [`crate::grad`].

use crate::dtype::DType;
use crate::error::Result;
use crate::grad::{GradCtx, gradients, not_saved, one};
use crate::graph::{Arg, Graph, Val};
use crate::instruction::{Attrs, LossReduction, LossSpec, slice_along};
use crate::op::Op;
use crate::shape::Shape;

gradients! {
    /// out (g - sum(g out))
    softmax(g, c) {
        let out = c.out()?;
        if !c.recorded {
            return one(g.op2(Op::SoftmaxBackward, c.grad, out));
        }
        let (grad, out) = (g.upcast(c.grad)?, g.upcast(out)?);
        let product = g.mul(grad, out)?;
        let total = row_sum(g, product)?;
        let less = g.sub(grad, total)?;
        one(g.mul(less, out))
    }
    /// g - exp(out) sum(g)
    log_softmax(g, c) {
        let out = c.out()?;
        if !c.recorded {
            return one(g.op2(Op::LogSoftmaxBackward, c.grad, out));
        }
        let (grad, out) = (g.upcast(c.grad)?, g.upcast(out)?);
        let total = row_sum(g, grad)?;
        let shares = g.op1(Op::Exp, out)?;
        let taken = g.mul(shares, total)?;
        one(g.sub(grad, taken))
    }
    /// With n the normalized rows, r their factor (the reciprocal standard deviation) and h = g weight: r (h - mean(h)
    /// - n mean(h n)); g n; g
    layer_norm(g, c) {
        if c.recorded {
            return norm_composite(g, c, true);
        }
        let (input, eps) = (c.val(0)?, c.arg(3)?);
        let mut grads = vec![None; 4];
        if c.needs[0] {
            grads[0] = Some(g.emit(Op::LayerNormBackward, &[c.grad.into(), input.into(), c.arg(1)?, eps], Attrs::None)?);
        }
        if c.needs[1] || c.needs[2] {
            let both = g.emit(Op::LayerNormWeightBackward, &[c.grad.into(), input.into(), eps], Attrs::None)?;
            for i in [1, 2] {
                if c.needs[i] {
                    grads[i] = Some(row_at(g, both, i - 1)?);
                }
            }
        }
        Ok(grads)
    }
    /// With n the normalized rows, r their factor (the reciprocal root mean square) and h = g weight: r (h - n mean(h
    /// n)); g n
    rms_norm(g, c) {
        if c.recorded {
            return norm_composite(g, c, false);
        }
        let (input, eps) = (c.val(0)?, c.arg(2)?);
        let mut grads = vec![None; 3];
        if c.needs[0] {
            grads[0] = Some(g.emit(Op::RmsNormBackward, &[c.grad.into(), input.into(), c.arg(1)?, eps], Attrs::None)?);
        }
        if c.needs[1] {
            let one_row = g.emit(Op::RmsNormWeightBackward, &[c.grad.into(), input.into(), eps], Attrs::None)?;
            grads[1] = Some(row_at(g, one_row, 0)?);
        }
        Ok(grads)
    }
    /// g (softmax - one-hot), each row times its sample's weight; without the softmax for `nll_loss`
    class_loss(g, c) {
        let Attrs::Loss(spec) = c.attrs else { return Err(not_saved()) };
        let (target, weight) = (c.val(1)?, c.arg(2)?);
        let input = c.val(0).ok();
        if !c.recorded {
            // The gradient of `nll_loss` depends on its input's shape, not on its elements.
            let (op, rows) = match input {
                Some(input) => (Op::CrossEntropyBackward, input),
                None => {
                    let meta = c.meta(g, 0);
                    let one = g.emit(Op::Full, &[0.0.into()], Attrs::Create { shape: Shape::SCALAR, dtype: meta.dtype })?;
                    (Op::NllLossBackward, g.expanded(one, meta.shape)?)
                }
            };
            let grad = g.emit(op, &[c.grad.into(), rows.into(), target.into(), weight], c.attrs.clone())?;
            return Ok(vec![Some(grad), None, None]);
        }
        let grad = class_loss_composite(g, c, spec, input, target, weight)?;
        Ok(vec![Some(grad), None, None])
    }
    /// With p the attention weights and s = p (g v^T - sum(g out)): scale s k; scale s^T q; p^T g; s for the mask
    /// (FlashAttention, Dao et al. 2022, appendix B)
    attention(g, c) {
        let masked = c.inputs.len() > 3;
        if c.recorded || (masked && c.needs[3]) {
            return attention_composite(g, c);
        }
        let mut operands = vec![Arg::from(c.grad)];
        for i in 0..c.inputs.len() {
            operands.push(c.arg(i)?);
        }
        let all = g.emit(Op::AttentionBackward, &operands, c.attrs.clone())?;
        let rows = g.meta(all).shape;
        let last = rows.rank() - 1;
        let mut start = 0;
        let mut grads = vec![None; c.inputs.len()];
        for (i, grad) in grads.iter_mut().enumerate().take(3) {
            let meta = c.meta(g, i);
            let columns = meta.shape.matrix_numel();
            if c.needs[i] {
                let attrs = slice_along(&rows, last, &(start..start + columns));
                let part = g.emit(Op::Slice, &[all.into()], attrs)?;
                *grad = Some(g.reshaped(part, meta.shape)?);
            }
            start += columns;
        }
        Ok(grads)
    }
}

/// Reduces the last axis and keeps it with size 1.
fn over_rows(g: &mut dyn Graph, op: Op, v: Val) -> Result<Val> {
    let mask = 1 << (g.meta(v).shape.rank() - 1);
    g.emit(op, &[v.into()], Attrs::Axes { mask, keepdim: true })
}

fn row_sum(g: &mut dyn Graph, v: Val) -> Result<Val> {
    over_rows(g, Op::Sum, v)
}

/// Row `i` of a matrix.
fn row_at(g: &mut dyn Graph, v: Val, i: usize) -> Result<Val> {
    let shape = g.meta(v).shape;
    let row = g.emit(Op::Slice, &[v.into()], slice_along(&shape, 0, &(i..i + 1)))?;
    g.reshaped(row, Shape::new(&shape.dims()[1..])?)
}

fn norm_composite(g: &mut dyn Graph, c: &GradCtx<'_>, centre: bool) -> Result<Vec<Option<Val>>> {
    let (grad, input) = (g.upcast(c.grad)?, g.upcast(c.val(0)?)?);
    let centred = if centre {
        let mean = over_rows(g, Op::Mean, input)?;
        g.sub(input, mean)?
    } else {
        input
    };
    let square = g.mul(centred, centred)?;
    let variance = over_rows(g, Op::Mean, square)?;
    let raised = g.add(variance, c.arg(if centre { 3 } else { 2 })?)?;
    let factor = g.op1(Op::Rsqrt, raised)?;
    let normal = g.mul(centred, factor)?;
    let weighted = match c.arg(1)? {
        Arg::Val(weight) => {
            let weight = g.upcast(weight)?;
            g.mul(grad, weight)?
        }
        number => g.mul(grad, number)?,
    };
    let product = g.mul(weighted, normal)?;
    let along = over_rows(g, Op::Mean, product)?;
    let part = g.mul(normal, along)?;
    let mut rest = g.sub(weighted, part)?;
    if centre {
        let mean = over_rows(g, Op::Mean, weighted)?;
        rest = g.sub(rest, mean)?;
    }
    let mut grads = vec![Some(g.mul(rest, factor)?), Some(g.mul(grad, normal)?), Some(grad), None];
    if !centre {
        grads.remove(2);
    }
    Ok(grads)
}

fn class_loss_composite(
    g: &mut dyn Graph,
    c: &GradCtx<'_>,
    spec: &LossSpec,
    input: Option<Val>,
    target: Val,
    weight: Arg,
) -> Result<Val> {
    let meta = c.meta(g, 0);
    let (rows, classes) = (meta.shape.dims()[0], meta.shape.dims()[1]);
    let wide = if meta.dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let column = Shape::new(&[rows, 1])?;
    let as_float = |g: &mut dyn Graph, v: Val| g.emit(Op::Cast, &[v.into()], Attrs::DType(wide));
    let counts = g.op2(Op::Ne, target, spec.ignore_index)?;
    let counts = as_float(g, counts)?;
    let counts = g.reshaped(counts, column)?;
    let every = Attrs::Create { shape: Shape::new(&[classes])?, dtype: DType::I64 };
    let every = g.emit(Op::Arange, &[0i64.into(), 1i64.into()], every)?;
    let index = g.reshaped(target, column)?;
    let hit = g.op2(Op::Eq, index, every)?;
    let hit = as_float(g, hit)?;
    let hit = g.mul(hit, counts)?;
    // The weight of each sample, and the sum of all class weights.
    let (hit, share, all) = match weight {
        Arg::Val(weight) => {
            let weight = g.upcast(weight)?;
            let hit = g.mul(hit, weight)?;
            let all = g.emit(Op::Sum, &[weight.into()], Attrs::Axes { mask: 1, keepdim: false })?;
            (hit, row_sum(g, hit)?, (Arg::from(weight), Arg::from(all)))
        }
        number => (hit, counts, (number, Arg::from(classes as f64))),
    };
    let mut grad = g.upcast(c.grad)?;
    match spec.reduction {
        LossReduction::None => grad = g.reshaped(grad, column)?,
        LossReduction::Mean => {
            let total = g.emit(Op::Sum, &[share.into()], Attrs::Axes { mask: 3, keepdim: false })?;
            grad = g.div(grad, total)?;
        }
        LossReduction::Sum => {}
    }
    let kept = 1.0 - spec.smoothing;
    let mut slope = g.mul(hit, -kept)?;
    if let Some(input) = input {
        let shares = g.op1(Op::Softmax, input)?;
        let shares = g.upcast(shares)?;
        let mut factor = g.mul(share, kept)?;
        if spec.smoothing != 0.0 {
            let each = spec.smoothing / classes as f64;
            let spread = g.mul(counts, each)?;
            let even = g.mul(spread, all.0)?;
            slope = g.sub(slope, even)?;
            let spread = g.mul(spread, all.1)?;
            factor = g.add(factor, spread)?;
        }
        let pulled = g.mul(shares, factor)?;
        slope = g.add(slope, pulled)?;
    }
    g.mul(slope, grad)
}

fn attention_composite(g: &mut dyn Graph, c: &GradCtx<'_>) -> Result<Vec<Option<Val>>> {
    let Attrs::Attention { causal, scale } = *c.attrs else { return Err(not_saved()) };
    let (grad, query, key, value) =
        (g.upcast(c.grad)?, g.upcast(c.val(0)?)?, g.upcast(c.val(1)?)?, g.upcast(c.val(2)?)?);
    let turned = g.swap_last(key)?;
    let scores = g.op2(Op::Matmul, query, turned)?;
    let mut scores = g.mul(scores, scale)?;
    let meta = g.meta(scores);
    if c.inputs.len() > 3 {
        let mask = g.upcast(c.val(3)?)?;
        scores = g.add(scores, mask)?;
    }
    if causal {
        let rank = meta.shape.rank();
        let (targets, sources) = (meta.shape.dims()[rank - 2], meta.shape.dims()[rank - 1]);
        let mut count = |n: usize, shape: &[usize]| -> Result<Val> {
            let create = Attrs::Create { shape: Shape::new(&[n])?, dtype: DType::I64 };
            let line = g.emit(Op::Arange, &[0i64.into(), 1i64.into()], create)?;
            g.reshaped(line, Shape::new(shape)?)
        };
        let (down, along) = (count(targets, &[targets, 1])?, count(sources, &[sources])?);
        let seen = g.op2(Op::Ge, down, along)?;
        scores = g.select(seen, scores, f64::NEG_INFINITY, meta.dtype)?;
    }
    // A query that attends to no key has weights 0.
    let most = over_rows(g, Op::Amax, scores)?;
    let blind = g.op2(Op::Eq, most, f64::NEG_INFINITY)?;
    let safe = g.select(blind, 0.0, scores, meta.dtype)?;
    let weights = g.op1(Op::Softmax, safe)?;
    let weights = g.select(blind, 0.0, weights, meta.dtype)?;
    let value_turned = g.swap_last(value)?;
    let pull = g.op2(Op::Matmul, grad, value_turned)?;
    let product = g.mul(weights, pull)?;
    let total = row_sum(g, product)?;
    let part = g.mul(weights, total)?;
    let slope = g.sub(product, part)?;
    let scaled = g.mul(slope, scale)?;
    let query_grad = g.op2(Op::Matmul, scaled, key)?;
    let scaled_turned = g.swap_last(scaled)?;
    let key_grad = g.op2(Op::Matmul, scaled_turned, query)?;
    let weights_turned = g.swap_last(weights)?;
    let value_grad = g.op2(Op::Matmul, weights_turned, grad)?;
    let mut grads = vec![Some(query_grad), Some(key_grad), Some(value_grad), Some(slope)];
    grads.truncate(c.inputs.len());
    Ok(grads)
}
