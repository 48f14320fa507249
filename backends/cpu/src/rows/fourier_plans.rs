//! How rows are transformed: by the `rustfft` crate, with mixed radices, and Rader's and Bluestein's algorithms for the
//! lengths with large prime factors; and those of real numbers by the `realfft` crate, as complex ones of half the
//! length. Both are maintained, in Rust alone, and choose AVX or NEON when they run; the plans for all lengths with
//! these instructions are some ten thousand lines that GT would otherwise have to have.

use gt_backend::ExecError;
use gt_ops::Op;
use realfft::{ComplexToReal, RealFftPlanner, RealToComplex};
use rustfft::num_complex::Complex;
use rustfft::{Fft, FftDirection, FftNum, FftPlanner};
use std::slice;
use std::sync::Arc;

/// The points of all plans that are kept, each of which has a factor of its own: 16 MiB in double precision.
const KEPT_POINTS_MAX: usize = 1 << 20;

/// How rows of one length are transformed.
#[derive(Clone)]
pub(super) enum Transform<R> {
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
    pub(super) fn scratch(&self) -> Vec<Complex<R>> {
        let count = match self {
            Transform::Complex(plan) => plan.get_immutable_scratch_len(),
            Transform::Forward(plan) => plan.get_scratch_len(),
            Transform::Inverse(plan) => plan.get_scratch_len(),
        };
        vec![Complex::new(R::zero(), R::zero()); count]
    }

    /// Transforms one row. `copy` is as long as `from` where the row is of real numbers, or becomes one.
    pub(super) fn run(
        &self,
        from: &[R],
        to: &mut [R],
        copy: &mut [R],
        scratch: &mut [Complex<R>],
    ) -> Result<(), ExecError> {
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

    pub(super) fn needs_copy(&self) -> bool {
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
pub(super) struct Plans<R> {
    /// Each with its op and points. `points` is the sum.
    kept: Vec<(Op, usize, Transform<R>)>,
    points: usize,
}

impl<R> Default for Plans<R> {
    fn default() -> Plans<R> {
        Plans { kept: Vec::new(), points: 0 }
    }
}

impl<R: FftNum> Plans<R> {
    pub(super) fn transform(&mut self, op: Op, points: usize) -> Transform<R> {
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
    pub(super) single: Plans<f32>,
    pub(super) double: Plans<f64>,
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
