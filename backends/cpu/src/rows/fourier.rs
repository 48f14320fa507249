//! Discrete Fourier transforms, by the `rustfft` crate: mixed radices, and Rader's and Bluestein's algorithms for the
//! lengths with large prime factors. It is maintained, in Rust alone, and chooses AVX or NEON when it runs; its plans
//! for all lengths with these instructions are some ten thousand lines that GT would otherwise have to have.

use super::extent;
use crate::backend::{CpuBackend, Result};
use crate::checkpoint::Pace;
use crate::tensor::CpuTensor;
use gt_ops::{DType, Meta, Op};
use rustfft::num_complex::Complex;
use rustfft::{FftDirection, FftNum, FftPlanner};
use std::slice;

/// The cost of one complex number in operations, for each doubling of the length.
const WEIGHT: usize = 8;

/// Memory of complex numbers, read by all threads, or written by one for each row.
#[derive(Clone, Copy)]
struct ComplexRows<R>(*mut Complex<R>);
// SAFETY: the operand is only read, and each row of the result is written by one thread.
unsafe impl<R> Send for ComplexRows<R> {}
// SAFETY: the operand is only read, and each row of the result is written by one thread.
unsafe impl<R> Sync for ComplexRows<R> {}

impl<R> ComplexRows<R> {
    /// The address of a row of `count` numbers.
    fn row(&self, row: usize, count: usize) -> *mut Complex<R> {
        self.0.wrapping_add(row * count)
    }
}

impl CpuBackend {
    /// The transforms of the rows of a tensor, whose elements are the parts of complex numbers in turn.
    pub(super) fn fourier(&mut self, input: &CpuTensor, op: Op, out: &Meta) -> Result<CpuTensor> {
        match out.dtype {
            DType::F64 => self.fourier_of::<f64>(input, op, out),
            _ => self.fourier_of::<f32>(input, op, out),
        }
    }

    fn fourier_of<R: FftNum>(&mut self, input: &CpuTensor, op: Op, out: &Meta) -> Result<CpuTensor> {
        let dense = self.contiguous(input)?;
        let result = self.new_tensor(out)?;
        let (rows, columns) = extent(out);
        let count = columns / 2;
        if rows == 0 || count == 0 {
            return Ok(result);
        }
        let direction = if op == Op::Fourier { FftDirection::Forward } else { FftDirection::Inverse };
        let plan = FftPlanner::<R>::new().plan_fft(count, direction);
        let (from, to) = (ComplexRows::<R>(dense.ptr().cast()), ComplexRows::<R>(result.ptr().cast()));
        let doublings = count.ilog2() as usize + 1;
        let ns = super::work_ns(rows.saturating_mul(count), WEIGHT * doublings);
        let chunk = if self.pool.pays(ns) { rows.div_ceil(self.pool.chunks(ns)).max(1) } else { rows };
        self.pool.run(rows.div_ceil(chunk), &|i| {
            let mut scratch = vec![Complex::new(R::zero(), R::zero()); plan.get_outofplace_scratch_len()];
            let mut copy = vec![Complex::new(R::zero(), R::zero()); count];
            let mut pace = Pace::default();
            for row in i * chunk..((i + 1) * chunk).min(rows) {
                pace.advance(count * doublings);
                // SAFETY: the operand and the result have `rows` contiguous rows of `2 * count` elements of type `R`,
                // which `Complex<R>` has two of, in this order (`repr(C)`); a tensor's memory is initialised. The
                // operand is only read, and no other thread has this row of the result.
                unsafe {
                    copy.copy_from_slice(slice::from_raw_parts(from.row(row, count), count));
                    let to = slice::from_raw_parts_mut(to.row(row, count), count);
                    plan.process_outofplace_with_scratch(&mut copy, to, &mut scratch);
                }
            }
        })?;
        Ok(result)
    }
}
