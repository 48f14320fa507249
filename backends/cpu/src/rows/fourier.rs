//! Discrete Fourier transforms of the rows of tensors.

use super::extent;
use super::fourier_plans::Transform;
use crate::backend::{CpuBackend, Result};
use crate::checkpoint::Pace;
use crate::tensor::CpuTensor;
use gt_ops::{DType, Meta, Op};
use rustfft::FftNum;
use std::slice;
use std::sync::{Mutex, PoisonError};

/// The cost of one complex number in operations, for each doubling of the length.
const WEIGHT: usize = 8;

/// Memory of rows, read by all threads, or written by one for each row.
#[derive(Clone, Copy)]
struct FourierRows<R>(*mut R, usize);
// SAFETY: the operand is only read, and each row of the result is written by one thread.
unsafe impl<R> Send for FourierRows<R> {}
// SAFETY: the operand is only read, and each row of the result is written by one thread.
unsafe impl<R> Sync for FourierRows<R> {}

impl<R> FourierRows<R> {
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
        let (from, to) = (FourierRows::<R>(dense.ptr().cast(), columns), FourierRows::<R>(result.ptr().cast(), found));
        let doublings = points.ilog2() as usize + 1;
        let numbers = columns.min(found).div_ceil(2);
        let ns = super::work_ns(rows.saturating_mul(numbers), WEIGHT * doublings);
        let chunk = if self.pool.pays(ns) { rows.div_ceil(self.pool.chunks(ns)).max(1) } else { rows };
        let failed = Mutex::new(Ok(()));
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
                    *failed.lock().unwrap_or_else(PoisonError::into_inner) = Err(error);
                }
            }
        })?;
        failed.into_inner().unwrap_or_else(PoisonError::into_inner)?;
        Ok(result)
    }
}
