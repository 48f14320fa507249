//! Layer and root-mean-square norms, and their gradients.

use super::{
    LANES, ROW_WEIGHT, SUM_BLOCK, Sink, Source, Work, extent, joined, number, run, sum_of, sum_of_pairs, sum_of_triples,
};
use crate::strided::Shared;
use crate::tensor::Tensor;
use crate::{CpuBackend, Inputs, Result, tensor};
use gt_ops::Meta;
use gt_ops::math::Real;

const WEIGHT: usize = 6;
/// The gradients of weights gather in at most so many pieces, of at least so many rows.
const PIECES_MAX: usize = 64;
const PIECE_ROWS_MIN: usize = 16;
/// Rows that partial sums gather before they join those in f64.
const BLOCK_ROWS: usize = 256;

/// What is taken off a row, and what it is multiplied by then. With `CENTRE` that is a layer norm.
#[inline(always)]
fn moments<R: Real, const CENTRE: bool>(row: &[R], eps: f64) -> (R, R) {
    let n = row.len() as f64;
    let mean = if CENTRE { R::from_f64(sum_of(row, |x| x) / n) } else { R::ZERO };
    let variance = sum_of(row, |x| (x - mean) * (x - mean)) / n;
    (mean, R::from_f64(1.0 / (variance + eps).sqrt()))
}

/// The sums of `(x - mean) * g * w` and of `g * w` over a row, in one pass over it.
#[inline(always)]
fn pulls<R: Real>(row: &[R], grad: &[R], weight: &[R], mean: R) -> (f64, f64) {
    let mut totals = (0.0, 0.0);
    let blocks = row.chunks(SUM_BLOCK).zip(grad.chunks(SUM_BLOCK)).zip(weight.chunks(SUM_BLOCK));
    for ((row, grad), weight) in blocks {
        let (mut along, mut level) = ([R::ZERO; LANES], [R::ZERO; LANES]);
        let whole = row.len() - row.len() % LANES;
        for at in (0..whole).step_by(LANES) {
            let (x, g, w) = (&row[at..at + LANES], &grad[at..at + LANES], &weight[at..at + LANES]);
            for i in 0..LANES {
                let pull = g[i] * w[i];
                along[i] = along[i] + (x[i] - mean) * pull;
                level[i] = level[i] + pull;
            }
        }
        totals.0 += joined(along).to_f64();
        totals.1 += joined(level).to_f64();
        let (row, grad, weight) = (&row[whole..], &grad[whole..], &weight[whole..]);
        totals.0 += sum_of_triples(row, grad, weight, |x, g, w| (x - mean) * (g * w));
        totals.1 += sum_of_pairs(grad, weight, |g, w| g * w);
    }
    totals
}

struct Forward<'a, R, const CENTRE: bool> {
    from: Source,
    to: Sink,
    columns: usize,
    weight: &'a [R],
    bias: &'a [R],
    eps: f64,
}

impl<R: Real, const CENTRE: bool> Work<R> for Forward<'_, R, CENTRE> {
    #[inline(always)]
    unsafe fn rows(&self, first: usize, last: usize) {
        let n = self.columns;
        let (mut wide, mut made) = (Vec::new(), Vec::new());
        for at in first..last {
            // SAFETY: the caller's promise.
            unsafe {
                let row = self.from.elements::<R>(at * n, n, &mut wide);
                let (mean, factor) = moments::<R, CENTRE>(row, self.eps);
                let to = self.to.room::<R>(at * n, n, &mut made);
                for (((to, x), w), b) in to.iter_mut().zip(row).zip(self.weight).zip(self.bias) {
                    *to = (*x - mean) * factor * *w + *b;
                }
                self.to.done(at * n, n, &made);
            }
        }
    }
}

struct Backward<'a, R, const CENTRE: bool> {
    grad: Source,
    from: Source,
    to: Sink,
    columns: usize,
    weight: &'a [R],
    eps: f64,
}

impl<R: Real, const CENTRE: bool> Work<R> for Backward<'_, R, CENTRE> {
    #[inline(always)]
    unsafe fn rows(&self, first: usize, last: usize) {
        let n = self.columns;
        let (mut wide, mut wide_grad, mut made) = (Vec::new(), Vec::new(), Vec::new());
        for at in first..last {
            // SAFETY: the caller's promise.
            unsafe {
                let row = self.from.elements::<R>(at * n, n, &mut wide);
                let grad = self.grad.elements::<R>(at * n, n, &mut wide_grad);
                let (mean, factor) = moments::<R, CENTRE>(row, self.eps);
                let share = R::from_f64(1.0 / n as f64);
                let (along, level) = pulls(row, grad, self.weight, mean);
                let along = R::from_f64(along) * factor * share;
                let level = if CENTRE { R::from_f64(level) * share } else { R::ZERO };
                let to = self.to.room::<R>(at * n, n, &mut made);
                for (((to, x), g), w) in to.iter_mut().zip(row).zip(grad).zip(self.weight) {
                    *to = factor * (*g * *w - level - (*x - mean) * factor * along);
                }
                self.to.done(at * n, n, &made);
            }
        }
    }
}

/// Pieces of rows, each of which adds up two rows of sums.
struct Sums<const CENTRE: bool> {
    grad: Source,
    from: Source,
    columns: usize,
    rows: usize,
    rows_a_piece: usize,
    eps: f64,
    /// `2 * columns` sums for each piece.
    sums: Shared<f64>,
}

impl<R: Real, const CENTRE: bool> Work<R> for Sums<CENTRE> {
    #[inline(always)]
    unsafe fn rows(&self, first: usize, last: usize) {
        let n = self.columns;
        let (mut wide, mut wide_grad) = (Vec::new(), Vec::new());
        let (mut weights, mut biases) = (vec![R::ZERO; n], vec![R::ZERO; n]);
        for piece in first..last {
            let (from, to) = (piece * self.rows_a_piece, ((piece + 1) * self.rows_a_piece).min(self.rows));
            // SAFETY: each piece has sums of its own.
            let sums = unsafe { std::slice::from_raw_parts_mut(self.sums.get().add(piece * 2 * n), 2 * n) };
            let (weight_sums, bias_sums) = sums.split_at_mut(n);
            for block in (from..to).step_by(BLOCK_ROWS) {
                weights.fill(R::ZERO);
                biases.fill(R::ZERO);
                for at in block..(block + BLOCK_ROWS).min(to) {
                    // SAFETY: the caller's promise.
                    let (row, grad) = unsafe {
                        (
                            self.from.elements::<R>(at * n, n, &mut wide),
                            self.grad.elements::<R>(at * n, n, &mut wide_grad),
                        )
                    };
                    let (mean, factor) = moments::<R, CENTRE>(row, self.eps);
                    for (((w, b), x), g) in weights.iter_mut().zip(&mut biases).zip(row).zip(grad) {
                        *w = *w + *g * ((*x - mean) * factor);
                        if CENTRE {
                            *b = *b + *g;
                        }
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

impl CpuBackend {
    pub(super) fn norm<R: Real, const CENTRE: bool>(&mut self, inputs: Inputs<'_, '_>, out: &Meta) -> Result<Tensor> {
        let t = self.contiguous(tensor(&inputs[0])?)?;
        let result = self.new_tensor(out)?;
        let (rows, columns) = extent(out);
        if out.shape.numel() == 0 {
            return Ok(result);
        }
        let weight = self.numbers::<R>(&inputs[1], columns)?;
        let bias = if CENTRE { self.numbers::<R>(&inputs[2], columns)? } else { vec![R::ZERO; columns] };
        let eps = number(&inputs[inputs.len() - 1])?;
        let work = Forward::<R, CENTRE> {
            from: self.source(&t),
            to: self.sink(&result),
            columns,
            weight: &weight,
            bias: &bias,
            eps,
        };
        // SAFETY: operand and result have this shape; the result is new.
        unsafe { run::<R, _>(&mut self.pool, self.level, &work, (rows, columns), WEIGHT)? };
        Ok(result)
    }

    pub(super) fn norm_grad<R: Real, const CENTRE: bool>(
        &mut self,
        inputs: Inputs<'_, '_>,
        out: &Meta,
    ) -> Result<Tensor> {
        let (grad, t) = (self.contiguous(tensor(&inputs[0])?)?, self.contiguous(tensor(&inputs[1])?)?);
        let result = self.new_tensor(out)?;
        let (rows, columns) = extent(out);
        if out.shape.numel() == 0 {
            return Ok(result);
        }
        let weight = self.numbers::<R>(&inputs[2], columns)?;
        let work = Backward::<R, CENTRE> {
            grad: self.source(&grad),
            from: self.source(&t),
            to: self.sink(&result),
            columns,
            weight: &weight,
            eps: number(&inputs[3])?,
        };
        // SAFETY: operands and result have this shape; the result is new.
        unsafe { run::<R, _>(&mut self.pool, self.level, &work, (rows, columns), WEIGHT)? };
        Ok(result)
    }

    pub(super) fn norm_weight_grad<R: Real, const CENTRE: bool>(
        &mut self,
        inputs: Inputs<'_, '_>,
        out: &Meta,
    ) -> Result<Tensor> {
        let (grad, t) = (self.contiguous(tensor(&inputs[0])?)?, self.contiguous(tensor(&inputs[1])?)?);
        let result = self.new_tensor(out)?;
        let (rows, columns) = extent(&t.meta);
        if columns == 0 {
            return Ok(result);
        }
        // How rows are cut depends on shapes alone, so that sums do not depend on the number of threads.
        let rows_a_piece = rows.div_ceil(PIECES_MAX).max(PIECE_ROWS_MIN);
        let pieces = rows.div_ceil(rows_a_piece);
        let mut sums = vec![0.0f64; pieces.max(1) * 2 * columns];
        let work = Sums::<CENTRE> {
            grad: self.source(&grad),
            from: self.source(&t),
            columns,
            rows,
            rows_a_piece,
            eps: number(&inputs[2])?,
            sums: Shared::new(sums.as_mut_ptr()),
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
        // SAFETY: the result has a row of weights, and after it one of biases if the norm has them.
        unsafe { self.sink(&result).write::<R>(&total[..out.shape.numel()]) };
        Ok(result)
    }
}
