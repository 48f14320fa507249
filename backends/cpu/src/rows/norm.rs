//! Layer norm (Ba et al. 2016) and RMS norm (Zhang & Sennrich 2019) with their gradients.
//!
//! The variance is computed in a second pass over the row, which is in L1 by then; that avoids cancellation.

use super::moments::RowMoments;
use super::{ROW_WEIGHT, RowKernel, RowSink, RowSource, extent, number, run};
use crate::backend::{CpuBackend, Inputs, Result, tensor};
use crate::checkpoint::checkpoint;
use crate::lanes::{LANES, Lanes, SUM_BLOCK, Vectors, joined, map_over, sum_over};
use crate::strided::SharedPtr;
use crate::tensor::CpuTensor;
use gt_backend::Input;
use gt_ops::math::Real;
use gt_ops::{Meta, Scalar};
use std::slice;

/// The cost of an element in operations.
const WEIGHT: usize = 6;
/// The gradient of the weights is summed in at most this many pieces, of at least this many rows.
const PIECES_MAX: usize = 64;
const PIECE_ROWS_MIN: usize = 16;
/// The number of rows that partial sums cover before they are added to sums in f64.
const BLOCK_ROWS: usize = 256;
/// The number of rows that are added to the partial sums together.
const GROUP_ROWS: usize = 4;

/// The mean of a row (0 without `CENTRE`, for an RMS norm) and `1 / sqrt(variance around that mean + eps)`.
///
/// # Safety
/// Same as for [`Lanes::splat`].
#[inline(always)]
unsafe fn moments<R: Real, V: Lanes<R>, const CENTRE: bool>(row: &[R], eps: f64) -> (R, R) {
    let n = row.len() as f64;
    // SAFETY: the CPU has the level of `V`, and this function is inlined into one that was compiled for it.
    unsafe {
        let mean = if CENTRE { R::from_f64(sum_over!(R, V: x in row; sum => sum + x) / n) } else { R::ZERO };
        let centre = V::splat(mean);
        let variance = sum_over!(R, V: x in row; sum => (x - centre).mul_add(x - centre, sum)) / n;
        (mean, R::from_f64(1.0 / (variance + eps).sqrt()))
    }
}

/// The sums of `(x - mean) * g * w` and of `g * w` over a row, in one pass.
///
/// # Safety
/// Same as for [`Lanes::splat`].
#[inline(always)]
unsafe fn gradient_sums<R: Real, V: Lanes<R>>(row: &[R], grad: &[R], weight: &[R], mean: R) -> (f64, f64) {
    let n = row.len();
    let (mut along_total, mut level_total, mut block) = (0.0, 0.0, 0);
    while block < n {
        let end = (block + SUM_BLOCK).min(n);
        // SAFETY: the CPU has the level of `V`, and this function is inlined into one that was compiled for it; each
        // load has its elements within the slices.
        unsafe {
            let mean = V::splat(mean);
            let (mut along, mut level) = (V::splat(R::ZERO), V::splat(R::ZERO));
            let mut at = block;
            while at + LANES <= end {
                let x = V::load(row[at..at + LANES].as_ptr());
                let pull = V::load(grad[at..at + LANES].as_ptr()) * V::load(weight[at..at + LANES].as_ptr());
                along = (x - mean).mul_add(pull, along);
                level = level + pull;
                at += LANES;
            }
            if at < end {
                // The lanes beyond the end have gradient 0 and add nothing.
                let x = V::load_first(row[at..end].as_ptr(), end - at, R::ZERO);
                let [g, w] = [grad, weight].map(|from| from[at..end].as_ptr());
                let pull = V::load_first(g, end - at, R::ZERO) * V::load_first(w, end - at, R::ZERO);
                along = (x - mean).mul_add(pull, along);
                level = level + pull;
            }
            along_total += joined(along).to_f64();
            level_total += joined(level).to_f64();
        }
        block = end;
    }
    (along_total, level_total)
}

struct NormForward<'a, R, const CENTRE: bool> {
    from: RowSource,
    to: RowSink,
    columns: usize,
    weight: &'a [R],
    bias: &'a [R],
    eps: f64,
}

impl<R: Vectors, const CENTRE: bool> RowKernel<R> for NormForward<'_, R, CENTRE> {
    #[inline(always)]
    unsafe fn rows<V: Lanes<R>>(&self, first: usize, last: usize) {
        let n = self.columns;
        let (mut wide, mut made) = (Vec::new(), Vec::new());
        for at in first..last {
            // SAFETY: `first..last` are rows that the operands and results have, by the contract of
            // `RowKernel::rows`, whose caller was compiled for the level of `V`.
            unsafe {
                let row = self.from.elements::<R>(at * n, n, &mut wide);
                let (mean, factor) = moments::<R, V, CENTRE>(row, self.eps);
                let to = self.to.room::<R>(at * n, n, &mut made);
                let (mean, factor) = (V::splat(mean), V::splat(factor));
                map_over!(R, V: to; x in row, w in self.weight, b in self.bias => ((x - mean) * factor).mul_add(w, b));
                self.to.done(at * n, n, &made);
            }
        }
    }
}

struct NormBackward<'a, R, const CENTRE: bool> {
    grad: RowSource,
    from: RowSource,
    to: RowSink,
    columns: usize,
    weight: &'a [R],
    eps: f64,
    /// Memory to which the moments of all rows are written.
    moments: SharedPtr<(f64, f64)>,
}

impl<R: Vectors, const CENTRE: bool> RowKernel<R> for NormBackward<'_, R, CENTRE> {
    #[inline(always)]
    unsafe fn rows<V: Lanes<R>>(&self, first: usize, last: usize) {
        let n = self.columns;
        let (mut wide, mut wide_grad, mut made) = (Vec::new(), Vec::new(), Vec::new());
        for at in first..last {
            // SAFETY: `first..last` are rows that the operands and results have, by the contract of
            // `RowKernel::rows`, whose caller was compiled for the level of `V`.
            unsafe {
                let row = self.from.elements::<R>(at * n, n, &mut wide);
                let grad = self.grad.elements::<R>(at * n, n, &mut wide_grad);
                let (mean, factor) = moments::<R, V, CENTRE>(row, self.eps);
                let share = R::from_f64(1.0 / n as f64);
                let (along, level) = gradient_sums::<R, V>(row, grad, self.weight, mean);
                let along = -(R::from_f64(along) * factor * factor * factor * share);
                // Subtracted from `g * w` before the factor: in a row of one element the difference is exactly 0.
                let level = if CENTRE { R::from_f64(level) * share } else { R::ZERO };
                let to = self.to.room::<R>(at * n, n, &mut made);
                self.moments.get().add(at).write((mean.to_f64(), factor.to_f64()));
                let [mean, factor, along, level] = [V::splat(mean), V::splat(factor), V::splat(along), V::splat(level)];
                map_over!(R, V: to; x in row, g in grad, w in self.weight =>
                    (x - mean).mul_add(along, (g * w - level) * factor));
                self.to.done(at * n, n, &made);
            }
        }
    }
}

/// The gradient of the weights and biases: each piece of the rows has its own sums.
struct NormWeightGradient<'a, const CENTRE: bool> {
    grad: RowSource,
    from: RowSource,
    columns: usize,
    rows: usize,
    rows_a_piece: usize,
    eps: f64,
    /// The moments of all rows, if the input's gradient computed them before.
    moments: Option<&'a [(f64, f64)]>,
    /// For each piece, `columns` sums for the weights and as many for the biases.
    sums: SharedPtr<f64>,
}

impl<R: Vectors, const CENTRE: bool> RowKernel<R> for NormWeightGradient<'_, CENTRE> {
    #[inline(always)]
    unsafe fn rows<V: Lanes<R>>(&self, first: usize, last: usize) {
        let n = self.columns;
        let (mut wide, mut wide_grad) = (Vec::new(), Vec::new());
        let room = n.next_multiple_of(LANES);
        let (mut weights, mut biases) = (vec![R::ZERO; room], vec![R::ZERO; room]);
        let mut moments = [(R::ZERO, R::ZERO); GROUP_ROWS];
        for piece in first..last {
            let (from, to) = (piece * self.rows_a_piece, ((piece + 1) * self.rows_a_piece).min(self.rows));
            // SAFETY: each piece has its own `2 * n` sums.
            let sums = unsafe { slice::from_raw_parts_mut(self.sums.get().add(piece * 2 * n), 2 * n) };
            let (weight_sums, bias_sums) = sums.split_at_mut(n);
            for block in (from..to).step_by(BLOCK_ROWS) {
                checkpoint();
                weights.fill(R::ZERO);
                biases.fill(R::ZERO);
                let block_end = (block + BLOCK_ROWS).min(to);
                for at in (block..block_end).step_by(GROUP_ROWS) {
                    let group = GROUP_ROWS.min(block_end - at);
                    // SAFETY: `first..last` are rows that the operands and results have, by the contract of
                    // `RowKernel::rows`, whose caller was compiled for the level of `V`; `weights` and `biases` have
                    // room for whole lanes.
                    unsafe {
                        let rows = self.from.elements::<R>(at * n, group * n, &mut wide);
                        let grads = self.grad.elements::<R>(at * n, group * n, &mut wide_grad);
                        for (i, moments) in moments[..group].iter_mut().enumerate() {
                            *moments = match self.moments {
                                Some(all) => (R::from_f64(all[at + i].0), R::from_f64(all[at + i].1)),
                                None => self::moments::<R, V, CENTRE>(&rows[i * n..(i + 1) * n], self.eps),
                            };
                        }
                        add_up::<R, V, CENTRE>(rows, grads, &moments[..group], &mut weights, &mut biases);
                    }
                }
                for (total, w) in weight_sums.iter_mut().zip(&weights) {
                    *total += w.to_f64();
                }
                for (total, b) in bias_sums.iter_mut().zip(&biases) {
                    *total += b.to_f64();
                }
            }
        }
    }
}

/// Adds `grad * (x - mean) * factor` of a few rows to `weights` and, with `CENTRE`, `grad` to `biases`. The sums, which
/// have room for whole lanes, are loaded and stored once for all these rows.
///
/// # Safety
/// Same as for [`Lanes::splat`], and there are as many rows as moments.
#[inline(always)]
unsafe fn add_up<R: Real, V: Lanes<R>, const CENTRE: bool>(
    rows: &[R],
    grads: &[R],
    moments: &[(R, R)],
    weights: &mut [R],
    biases: &mut [R],
) {
    let n = rows.len() / moments.len();
    let mut at = 0;
    while at < n {
        let left = n - at;
        // SAFETY: the CPU has the level of `V`, and this function is inlined into one that was compiled for it; there
        // are as many rows as moments, and `at + LANES` is at most the rounded-up length of the sums.
        unsafe {
            let mut weight = V::load(weights[at..at + LANES].as_ptr());
            let mut bias = V::load(biases[at..at + LANES].as_ptr());
            for (i, (mean, factor)) in moments.iter().enumerate() {
                let (row, grad) = (rows[i * n + at..].as_ptr(), grads[i * n + at..].as_ptr());
                let (x, g) = if left < LANES {
                    (V::load_first(row, left, *mean), V::load_first(grad, left, R::ZERO))
                } else {
                    (V::load(row), V::load(grad))
                };
                weight = g.mul_add((x - V::splat(*mean)) * V::splat(*factor), weight);
                if CENTRE {
                    bias = bias + g;
                }
            }
            weight.store(weights[at..at + LANES].as_mut_ptr());
            if CENTRE {
                bias.store(biases[at..at + LANES].as_mut_ptr());
            }
        }
        at += LANES;
    }
}

impl CpuBackend {
    pub(super) fn norm<R: Vectors, const CENTRE: bool>(
        &mut self,
        inputs: Inputs<'_, '_>,
        out: &Meta,
    ) -> Result<CpuTensor> {
        let t = self.contiguous(tensor(&inputs[0])?)?;
        let result = self.new_tensor(out)?;
        let (rows, columns) = extent(out);
        if out.shape.numel() == 0 {
            return Ok(result);
        }
        let weight = self.numbers::<R>(&inputs[1], columns)?;
        let bias = if CENTRE { &inputs[2] } else { &Input::Scalar(Scalar::Float(0.0)) };
        let bias = self.numbers::<R>(bias, columns)?;
        let eps = number(&inputs[inputs.len() - 1])?;
        let work = NormForward::<R, CENTRE> {
            from: self.source(&t),
            to: self.sink(&result),
            columns,
            weight: &weight,
            bias: &bias,
            eps,
        };
        // SAFETY: operand and result are contiguous of this shape; `result` was just allocated.
        unsafe { run::<R, _>(&mut self.pool, self.level, &work, (rows, columns), WEIGHT)? };
        Ok(result)
    }

    pub(super) fn norm_grad<R: Vectors, const CENTRE: bool>(
        &mut self,
        inputs: Inputs<'_, '_>,
        out: &Meta,
    ) -> Result<CpuTensor> {
        let (grad, t) = (self.contiguous(tensor(&inputs[0])?)?, self.contiguous(tensor(&inputs[1])?)?);
        let result = self.new_tensor(out)?;
        let (rows, columns) = extent(out);
        if out.shape.numel() == 0 {
            return Ok(result);
        }
        let weight = self.numbers::<R>(&inputs[2], columns)?;
        let eps = number(&inputs[3])?;
        let mut moments = vec![(0.0, 0.0); rows];
        let work = NormBackward::<R, CENTRE> {
            grad: self.source(&grad),
            from: self.source(&t),
            to: self.sink(&result),
            columns,
            weight: &weight,
            eps,
            moments: SharedPtr::new(moments.as_mut_ptr()),
        };
        // SAFETY: operands, result and moments have these rows; `result` was just allocated.
        unsafe { run::<R, _>(&mut self.pool, self.level, &work, (rows, columns), WEIGHT)? };
        self.moments = Some(RowMoments { step: self.step.get(), from: t.ptr(), meta: t.meta, eps, rows: moments });
        Ok(result)
    }

    pub(super) fn norm_weight_grad<R: Vectors, const CENTRE: bool>(
        &mut self,
        inputs: Inputs<'_, '_>,
        out: &Meta,
    ) -> Result<CpuTensor> {
        let (grad, t) = (self.contiguous(tensor(&inputs[0])?)?, self.contiguous(tensor(&inputs[1])?)?);
        let result = self.new_tensor(out)?;
        let (rows, columns) = extent(&t.meta);
        if columns == 0 {
            return Ok(result);
        }
        // The division into pieces depends on shapes only, so that sums do not depend on the number of threads.
        let rows_a_piece = rows.div_ceil(PIECES_MAX).max(PIECE_ROWS_MIN);
        let pieces = rows.div_ceil(rows_a_piece);
        let mut sums = vec![0.0f64; pieces.max(1) * 2 * columns];
        let eps = number(&inputs[2])?;
        let moments = self.moments.take().filter(|moments| {
            moments.step + 1 == self.step.get()
                && moments.from == t.ptr()
                && moments.meta == t.meta
                && moments.eps == eps
        });
        let work = NormWeightGradient::<CENTRE> {
            grad: self.source(&grad),
            from: self.source(&t),
            columns,
            rows,
            rows_a_piece,
            eps,
            moments: moments.as_ref().map(|moments| &moments.rows[..]),
            sums: SharedPtr::new(sums.as_mut_ptr()),
        };
        // SAFETY: both operands have this shape; each piece has its own sums.
        unsafe {
            let weight = WEIGHT + ROW_WEIGHT / columns;
            run::<R, _>(&mut self.pool, self.level, &work, (pieces, rows_a_piece * columns), weight)?
        };
        let (total, others) = sums.split_at_mut(2 * columns);
        for other in others.chunks_exact(2 * columns) {
            for (total, x) in total.iter_mut().zip(other) {
                *total += x;
            }
        }
        // SAFETY: the result has a row of weights, followed by one of biases if the norm has them; it was just
        // allocated.
        unsafe { self.sink(&result).write::<R>(&total[..out.shape.numel()]) };
        Ok(result)
    }
}
