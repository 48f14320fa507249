//! Discrete Fourier transforms, by the `rustfft` crate: mixed radices, and Rader's and Bluestein's algorithms for the
//! lengths with large prime factors; and those of real numbers by the `realfft` crate, as complex ones of half the
//! length. Both are maintained, in Rust alone, and choose AVX or NEON when they run; the plans for all lengths with these
//! instructions are some ten thousand lines that GT would otherwise have to have.

use super::extent;
use crate::backend::{CpuBackend, Result};
use crate::checkpoint::Pace;
use crate::tensor::CpuTensor;
use gt_backend::ExecError;
use gt_ops::{DType, Meta, Op};
use realfft::{ComplexToReal, RealFftPlanner, RealToComplex};
use rustfft::num_complex::Complex;
use rustfft::{Fft, FftDirection, FftNum, FftPlanner};
use std::slice;
use std::sync::Arc;

/// The cost of one complex number in operations, for each doubling of the length.
const WEIGHT: usize = 8;

/// The points of all plans that are kept, each of which has a factor of its own: 16 MiB in double precision.
const KEPT_POINTS_MAX: usize = 1 << 20;

/// How rows of one length are transformed.
#[derive(Clone)]
enum Transform<R> {
    Complex(Arc<dyn Fft<R>>),
    Forward(Arc<dyn RealToComplex<R>>),
    Inverse(Arc<dyn ComplexToReal<R>>),
}

impl<R: FftNum> Transform<R> {
    /// The transform of an op with `points` points, real or complex.
    fn new(op: Op, points: usize) -> Transform<R> {
        match op {
            Op::RealFourier => Transform::Forward(RealFftPlanner::new().plan_fft_forward(points)),
            Op::InverseRealFourier => Transform::Inverse(RealFftPlanner::new().plan_fft_inverse(points)),
            Op::Fourier => Transform::Complex(FftPlanner::new().plan_fft(points, FftDirection::Forward)),
            _ => Transform::Complex(FftPlanner::new().plan_fft(points, FftDirection::Inverse)),
        }
    }

    /// The complex numbers that a thread needs beside a row.
    fn scratch(&self) -> Vec<Complex<R>> {
        let count = match self {
            Transform::Complex(plan) => plan.get_immutable_scratch_len(),
            Transform::Forward(plan) => plan.get_scratch_len(),
            Transform::Inverse(plan) => plan.get_scratch_len(),
        };
        vec![Complex::new(R::zero(), R::zero()); count]
    }

    /// Transforms one row. `copy` is as long as `from` where the row is of real numbers, or becomes one.
    fn run(&self, from: &[R], to: &mut [R], copy: &mut [R], scratch: &mut [Complex<R>]) -> Result<()> {
        match self {
            Transform::Complex(plan) => {
                plan.process_immutable_with_scratch(pairs(from), pairs_mut(to), scratch);
                Ok(())
            }
            Transform::Forward(plan) => {
                copy.copy_from_slice(from);
                plan.process_with_scratch(copy, pairs_mut(to), scratch)
            }
            Transform::Inverse(plan) => {
                copy.copy_from_slice(from);
                let numbers = pairs_mut(copy);
                for end in [0, numbers.len() - 1] {
                    numbers[end].im = R::zero();
                }
                plan.process_with_scratch(numbers, to, scratch)
            }
        }
        .map_err(|error| ExecError::internal(format!("a Fourier transform of {} elements: {error}", from.len())))
    }

    fn needs_copy(&self) -> bool {
        !matches!(self, Transform::Complex(_))
    }
}

/// The complex numbers of which a row has the parts.
fn pairs<R>(row: &[R]) -> &[Complex<R>] {
    // SAFETY: `Complex<R>` is two `R`, in this order (`repr(C)`), and half as many fit in the row.
    unsafe { slice::from_raw_parts(row.as_ptr().cast(), row.len() / 2) }
}

/// As [`pairs`], to be written.
fn pairs_mut<R>(row: &mut [R]) -> &mut [Complex<R>] {
    // SAFETY: as in `pairs`; the row is borrowed as long as its numbers are.
    unsafe { slice::from_raw_parts_mut(row.as_mut_ptr().cast(), row.len() / 2) }
}

/// The transforms of the last lengths of one precision: making one takes several times as long as a row.
struct Plans<R> {
    /// Those of op and points, which are `points` together.
    kept: Vec<(Op, usize, Transform<R>)>,
    points: usize,
}

impl<R> Default for Plans<R> {
    fn default() -> Plans<R> {
        Plans { kept: Vec::new(), points: 0 }
    }
}

impl<R: FftNum> Plans<R> {
    fn transform(&mut self, op: Op, points: usize) -> Transform<R> {
        if let Some((_, _, found)) = self.kept.iter().find(|(of, count, _)| (*of, *count) == (op, points)) {
            return found.clone();
        }
        let made = Transform::new(op, points);
        if points <= KEPT_POINTS_MAX {
            if self.points + points > KEPT_POINTS_MAX {
                *self = Plans::default();
            }
            self.points += points;
            self.kept.push((op, points, made.clone()));
        }
        made
    }
}

/// The plans of a backend.
#[derive(Default)]
pub(crate) struct FourierPlans {
    single: Plans<f32>,
    double: Plans<f64>,
}

/// Memory of rows, read by all threads, or written by one for each row.
#[derive(Clone, Copy)]
struct Rows<R>(*mut R, usize);
// SAFETY: the operand is only read, and each row of the result is written by one thread.
unsafe impl<R> Send for Rows<R> {}
// SAFETY: the operand is only read, and each row of the result is written by one thread.
unsafe impl<R> Sync for Rows<R> {}

impl<R> Rows<R> {
    /// The address of a row.
    fn row(&self, row: usize) -> *mut R {
        self.0.wrapping_add(row * self.1)
    }
}

impl CpuBackend {
    /// The transforms of the rows of a tensor. Complex numbers are two elements, their parts.
    pub(super) fn fourier(&mut self, input: &CpuTensor, op: Op, out: &Meta) -> Result<CpuTensor> {
        let ((rows, columns), (_, found)) = (extent(&input.meta), extent(out));
        let points = if matches!(op, Op::Fourier | Op::InverseFourier) { columns / 2 } else { columns.min(found) };
        if rows == 0 || points == 0 {
            return self.new_tensor(out);
        }
        if out.dtype == DType::F64 {
            let transform = self.fourier_plans.double.transform(op, points);
            self.transformed(input, &transform, points, out)
        } else {
            let transform = self.fourier_plans.single.transform(op, points);
            self.transformed(input, &transform, points, out)
        }
    }

    fn transformed<R: FftNum>(
        &mut self,
        input: &CpuTensor,
        transform: &Transform<R>,
        points: usize,
        out: &Meta,
    ) -> Result<CpuTensor> {
        let dense = self.contiguous(input)?;
        let result = self.new_tensor(out)?;
        let ((rows, columns), (_, found)) = (extent(&input.meta), extent(out));
        let (from, to) = (Rows::<R>(dense.ptr().cast(), columns), Rows::<R>(result.ptr().cast(), found));
        let doublings = points.ilog2() as usize + 1;
        let numbers = columns.min(found).div_ceil(2);
        let ns = super::work_ns(rows.saturating_mul(numbers), WEIGHT * doublings);
        let chunk = if self.pool.pays(ns) { rows.div_ceil(self.pool.chunks(ns)).max(1) } else { rows };
        let failed = std::sync::Mutex::new(Ok(()));
        self.pool.run(rows.div_ceil(chunk), &|i| {
            let mut scratch = transform.scratch();
            let mut copy = vec![R::zero(); if transform.needs_copy() { columns } else { 0 }];
            let mut pace = Pace::default();
            for row in i * chunk..((i + 1) * chunk).min(rows) {
                pace.advance(numbers * doublings);
                // SAFETY: the operand has `rows` contiguous rows of `columns` elements of type `R`, the result of
                // `found`; a tensor's memory is initialised. The operand is only read, and no other thread has this
                // row of the result.
                let (from, to) = unsafe {
                    (slice::from_raw_parts(from.row(row), columns), slice::from_raw_parts_mut(to.row(row), found))
                };
                if let Err(error) = transform.run(from, to, &mut copy, &mut scratch) {
                    *failed.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Err(error);
                }
            }
        })?;
        failed.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)?;
        Ok(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_are_kept_while_their_points_are_few() {
        let mut plans = Plans::<f32>::default();
        for points in [8, 6, 8] {
            plans.transform(Op::Fourier, points);
            plans.transform(Op::RealFourier, points);
        }
        assert_eq!((plans.kept.len(), plans.points), (4, 28));
        plans.transform(Op::Fourier, KEPT_POINTS_MAX - 20);
        assert_eq!((plans.kept.len(), plans.points), (1, KEPT_POINTS_MAX - 20));
        plans.transform(Op::Fourier, 2 * KEPT_POINTS_MAX);
        assert_eq!(plans.kept.len(), 1);
    }
}
