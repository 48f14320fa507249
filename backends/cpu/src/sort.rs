//! Argsort along an axis: elements are mapped to unsigned integer keys of the same order, which are sorted by a stable
//! radix sort, or by comparison if there are few.

use crate::backend::{CpuBackend, Result};
use crate::checkpoint::{STRETCH, checkpoint, in_stretches};
use crate::strided::SharedPtr;
use crate::tensor::CpuTensor;
use gt_backend::Loops;
use gt_ops::{DType, Meta, Op, Shape};
use half::{bf16, f16};
use std::slice;

/// Rows with fewer elements are sorted by comparison.
const RADIX_ELEMENTS_MIN: usize = 512;
/// The number of key bits that one pass of the radix sort orders by.
const DIGIT_BITS: u32 = 11;
const DIGITS: usize = 1 << DIGIT_BITS;

/// An element type with a sort key.
trait Keyed: Copy {
    /// An unsigned integer of at most [`Keyed::BITS`] bits that grows with the element; NaN has the largest.
    fn key(self) -> u64;
    const BITS: u32;
}

macro_rules! keyed_ints {
    ($($t:ty, $bits:literal;)*) => {$(
        impl Keyed for $t {
            fn key(self) -> u64 { (self as i64).wrapping_sub(<$t>::MIN as i64) as u64 }
            const BITS: u32 = $bits;
        }
    )*};
}
keyed_ints! { u8, 8; i8, 8; i16, 16; i32, 32; i64, 64; }

macro_rules! keyed_floats {
    ($($t:ty, $unsigned:ty, $zero:expr;)*) => {$(
        impl Keyed for $t {
            fn key(self) -> u64 {
                // Flip the sign bit of positive and all bits of negative numbers. Both zeros have one key, and NaN the
                // largest.
                let bits = if self == $zero { 0 } else { self.to_bits() };
                let sign = 1 << (<$unsigned>::BITS - 1);
                let ordered = if bits & sign == 0 { bits | sign } else { !bits };
                (if self.is_nan() { <$unsigned>::MAX } else { ordered }) as u64
            }
            const BITS: u32 = <$unsigned>::BITS;
        }
    )*};
}
keyed_floats! { f16, u16, f16::ZERO; bf16, u16, bf16::ZERO; f32, u32, 0.0; f64, u64, 0.0; }

/// All sorts along one axis, which are independent of each other.
struct Sort {
    from: SharedPtr<u8>,
    to: SharedPtr<u8>,
    kept: Loops<2>,
    step: [isize; 2],
    count: usize,
    descending: bool,
}

impl Sort {
    /// Computes sort number `at`; `items` and `spare` have an entry for each element.
    ///
    /// # Safety
    /// Operand and result are valid for all elements, and nothing else writes this result.
    unsafe fn one<T: Keyed>(&self, at: usize, items: &mut [(u64, u64)], spare: &mut [(u64, u64)]) {
        let mut offsets = [0; 2];
        self.kept.for_runs(at, at + 1, |run| offsets = run.offsets);
        let from = self.from.get().wrapping_offset(offsets[0]);
        let largest = if T::BITS == 64 { u64::MAX } else { (1 << T::BITS) - 1 };
        in_stretches(0, items.len(), |first, last| {
            for (i, item) in (first..last).zip(&mut items[first..last]) {
                // SAFETY: `i < self.count`, for which the operand is valid along the axis.
                let key = unsafe { from.wrapping_offset(i as isize * self.step[0]).cast::<T>().read() }.key();
                *item = (if self.descending { largest - key } else { key }, i as u64);
            }
        });
        let sorted = if items.len() < RADIX_ELEMENTS_MIN {
            items.sort_unstable();
            items
        } else {
            radix_sort(items, spare, T::BITS)
        };
        let to = self.to.get().wrapping_offset(offsets[1]);
        in_stretches(0, sorted.len(), |first, last| {
            for (i, (_, place)) in (first..last).zip(&sorted[first..last]) {
                // SAFETY: `i < self.count`, for which the result is valid along the axis, and only this call writes it.
                unsafe { to.wrapping_offset(i as isize * self.step[1]).cast::<i64>().write(*place as i64) };
            }
        });
    }
}

/// Least-significant-digit radix sort of (key, position) pairs. Each pass is a stable counting sort by one digit.
fn radix_sort<'a>(items: &'a mut [(u64, u64)], spare: &'a mut [(u64, u64)], bits: u32) -> &'a mut [(u64, u64)] {
    let (mut from, mut to) = (items, spare);
    for shift in (0..bits).step_by(DIGIT_BITS as usize) {
        let digit = |key: u64| (key >> shift) as usize & (DIGITS - 1);
        let mut starts = [0usize; DIGITS];
        for part in from.chunks(STRETCH) {
            checkpoint();
            for (key, _) in part {
                starts[digit(*key)] += 1;
            }
        }
        if starts[digit(from[0].0)] == from.len() {
            continue;
        }
        let mut total = 0;
        for start in &mut starts {
            total += std::mem::replace(start, total);
        }
        for part in from.chunks(STRETCH) {
            checkpoint();
            for item in part {
                let start = &mut starts[digit(item.0)];
                to[*start] = *item;
                *start += 1;
            }
        }
        std::mem::swap(&mut from, &mut to);
    }
    from
}

impl CpuBackend {
    /// The positions of the elements along an axis in sorted order.
    pub(crate) fn sort(&mut self, op: Op, t: &CpuTensor, axis: usize, out: &Meta) -> Result<CpuTensor> {
        let result = self.new_tensor(out)?;
        if out.shape.numel() == 0 {
            return Ok(result);
        }
        let (dtype, count) = (t.meta.dtype, out.shape.dims()[axis]);
        let sorts = out.shape.numel() / count;
        let sort = Sort {
            from: SharedPtr::new(t.ptr()),
            to: SharedPtr::new(result.ptr()),
            kept: Loops::new(&out.shape.with_dim(axis, 1), [&t.strides, &result.strides]),
            step: [t.strides[axis], result.strides[axis]],
            count,
            descending: op == Op::ArgsortDescending,
        };
        // Each part of the work has two buffers of (key, position) pairs.
        let parts = sorts.min(self.pool.threads());
        let room = Shape::new(&[parts, 4, count]).map_err(|e| gt_backend::ExecError::internal(e.to_string()))?;
        let scratch = self.new_tensor(&Meta::new(room, DType::I64))?;
        let words = SharedPtr::new(scratch.ptr().cast::<(u64, u64)>());
        let share = sorts.div_ceil(parts);
        self.pool.run(parts, &|part| {
            // SAFETY: the new scratch tensor has four aligned words per element for each part, and parts are disjoint.
            let (items, spare) = unsafe {
                let all = words.get().add(part * 2 * sort.count);
                std::ptr::write_bytes(all, 0, 2 * sort.count);
                slice::from_raw_parts_mut(all, 2 * sort.count).split_at_mut(sort.count)
            };
            for at in part * share..((part + 1) * share).min(sorts) {
                // SAFETY: the axes are the tensors', which have one shape; `result` was just allocated, and parts are
                // disjoint.
                unsafe {
                    match dtype {
                        DType::Bool | DType::U8 => sort.one::<u8>(at, items, spare),
                        DType::I8 => sort.one::<i8>(at, items, spare),
                        DType::I16 | DType::U16 => sort.one::<i16>(at, items, spare),
                        DType::I32 | DType::U32 => sort.one::<i32>(at, items, spare),
                        DType::I64 | DType::U64 => sort.one::<i64>(at, items, spare),
                        DType::F16 => sort.one::<f16>(at, items, spare),
                        DType::BF16 => sort.one::<bf16>(at, items, spare),
                        DType::F32 | DType::C64 => sort.one::<f32>(at, items, spare),
                        DType::F64 | DType::C128 => sort.one::<f64>(at, items, spare),
                    }
                }
            }
        })?;
        Ok(result)
    }
}
