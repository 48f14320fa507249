//! Softmax and log-softmax with their gradients. The maximum of a row is subtracted before the exponentials are taken,
//! so that they do not overflow.

use super::{RowKernel, RowSink, RowSource, SHORT_ROW, block_rows, extent, run};
use crate::backend::{CpuBackend, Result};
use crate::checkpoint::Pace;
use crate::lanes::{LANES, Lanes, Vectors, largest, map_over, sum_over};
use crate::tensor::CpuTensor;
use gt_ops::Meta;
use gt_ops::math::Real;

/// The cost of an element in operations. The gradient of softmax costs less, since it has no exponentials.
const WEIGHT: usize = 20;
const WEIGHT_PLAIN: usize = 4;
/// The number of exponentials that are summed while they are in L1.
const EXP_BLOCK: usize = 2048;

/// Writes `exp(x - max)` of whole rows to `to`, and the maximum and sum of each row to `stats`.
///
/// # Safety
/// Same as for [`Lanes::splat`].
#[inline(always)]
pub unsafe fn exponentials_of<R: Real, V: Lanes<R>>(rows: &[R], columns: usize, to: &mut [R], stats: &mut Vec<(R, R)>) {
    stats.clear();
    if columns < SHORT_ROW {
        for (row, to) in rows.chunks_exact(columns).zip(to.chunks_exact_mut(columns)) {
            // SAFETY: the CPU has the level of `V`, and this function is inlined into one that was compiled for it.
            let max = unsafe { largest::<R, V>(row) };
            stats.push((max, R::ZERO));
            for (to, x) in to.iter_mut().zip(row) {
                *to = *x - max;
            }
        }
        for x in to.iter_mut() {
            *x = x.exp_of_fall();
        }
        for (row, stat) in to.chunks_exact(columns).zip(stats) {
            // SAFETY: the CPU has the level of `V`, and this function is inlined into one that was compiled for it.
            stat.1 = R::from_f64(unsafe { sum_over!(R, V: x in row; sum => sum + x) });
        }
        return;
    }
    for (row, to) in rows.chunks_exact(columns).zip(to.chunks_exact_mut(columns)) {
        // SAFETY: the CPU has the level of `V`, and this function is inlined into one that was compiled for it.
        let max = unsafe { largest::<R, V>(row) };
        let (mut total, mut pace) = (0.0, Pace::default());
        for (block, to) in row.chunks(EXP_BLOCK).zip(to.chunks_mut(EXP_BLOCK)) {
            pace.advance(block.len());
            for (to, x) in to.iter_mut().zip(block) {
                *to = (*x - max).exp_of_fall();
            }
            // SAFETY: the CPU has the level of `V`, and this function is inlined into one that was compiled for it.
            total += unsafe { sum_over!(R, V: x in to; sum => sum + x) };
        }
        stats.push((max, R::from_f64(total)));
    }
}

struct SoftmaxForward {
    from: RowSource,
    to: RowSink,
    columns: usize,
    log: bool,
}

impl<R: Vectors> RowKernel<R> for SoftmaxForward {
    #[inline(always)]
    unsafe fn rows<V: Lanes<R>>(&self, first: usize, last: usize) {
        let n = self.columns;
        let (mut wide, mut made, mut stats) = (Vec::new(), Vec::new(), Vec::new());
        let step = block_rows(n);
        for at in (first..last).step_by(step) {
            let count = step.min(last - at) * n;
            // SAFETY: `first..last` are rows that the operands and results have, by the contract of
            // `RowKernel::rows`, whose caller was compiled for the level of `V`.
            unsafe {
                let rows = self.from.elements::<R>(at * n, count, &mut wide);
                let to = self.to.room::<R>(at * n, count, &mut made);
                exponentials_of::<R, V>(rows, n, to, &mut stats);
                for ((row, to), (max, total)) in rows.chunks_exact(n).zip(to.chunks_exact_mut(n)).zip(&stats) {
                    if self.log {
                        let (max, log) = (V::splat(*max), V::splat(total.ln()));
                        map_over!(R, V: to; x in row => x - max - log);
                    } else {
                        let factor = R::ONE / *total;
                        for to in to {
                            *to = *to * factor;
                        }
                    }
                }
                self.to.done(at * n, count, &made);
            }
        }
    }
}

struct SoftmaxBackward {
    grad: RowSource,
    out: RowSource,
    to: RowSink,
    columns: usize,
    log: bool,
}

impl<R: Vectors> RowKernel<R> for SoftmaxBackward {
    #[inline(always)]
    unsafe fn rows<V: Lanes<R>>(&self, first: usize, last: usize) {
        let n = self.columns;
        let (mut wide_grad, mut wide_out, mut made) = (Vec::new(), Vec::new(), Vec::new());
        let step = block_rows(n);
        for at in (first..last).step_by(step) {
            let count = step.min(last - at) * n;
            // SAFETY: `first..last` are rows that the operands and results have, by the contract of
            // `RowKernel::rows`, whose caller was compiled for the level of `V`.
            unsafe {
                let grads = self.grad.elements::<R>(at * n, count, &mut wide_grad);
                let outs = self.out.elements::<R>(at * n, count, &mut wide_out);
                let to = self.to.room::<R>(at * n, count, &mut made);
                if self.log {
                    for (to, out) in to.iter_mut().zip(outs) {
                        *to = out.exp();
                    }
                }
                let rows = grads.chunks_exact(n).zip(outs.chunks_exact(n)).zip(to.chunks_exact_mut(n));
                for ((grad, out), to) in rows {
                    if self.log {
                        let total = R::from_f64(sum_over!(R, V: g in grad; sum => sum + g));
                        for (to, g) in to.iter_mut().zip(grad) {
                            *to = *g - *to * total;
                        }
                    } else {
                        let total = R::from_f64(sum_over!(R, V: g in grad, y in out; sum => g.mul_add(y, sum)));
                        let total = V::splat(total);
                        map_over!(R, V: to; g in grad, y in out => (g - total) * y);
                    }
                }
                self.to.done(at * n, count, &made);
            }
        }
    }
}

impl CpuBackend {
    pub(super) fn softmax<R: Vectors>(&mut self, t: &CpuTensor, log: bool, out: &Meta) -> Result<CpuTensor> {
        let t = self.contiguous(t)?;
        let result = self.new_tensor(out)?;
        let (rows, columns) = extent(out);
        if out.shape.numel() == 0 {
            return Ok(result);
        }
        let work = SoftmaxForward { from: self.source(&t), to: self.sink(&result), columns, log };
        // SAFETY: operand and result are contiguous of this shape; `result` was just allocated.
        unsafe { run::<R, _>(&mut self.pool, self.level, &work, (rows, columns), WEIGHT)? };
        Ok(result)
    }

    pub(super) fn softmax_grad<R: Vectors>(
        &mut self,
        grad: &CpuTensor,
        y: &CpuTensor,
        log: bool,
        out: &Meta,
    ) -> Result<CpuTensor> {
        let (grad, y) = (self.contiguous(grad)?, self.contiguous(y)?);
        let result = self.new_tensor(out)?;
        let (rows, columns) = extent(out);
        if out.shape.numel() == 0 {
            return Ok(result);
        }
        let work =
            SoftmaxBackward { grad: self.source(&grad), out: self.source(&y), to: self.sink(&result), columns, log };
        // SAFETY: operands and result are contiguous of this shape; `result` was just allocated.
        unsafe {
            run::<R, _>(&mut self.pool, self.level, &work, (rows, columns), if log { WEIGHT } else { WEIGHT_PLAIN })?
        };
        Ok(result)
    }
}
