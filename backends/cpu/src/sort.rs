//! Argsort along an axis: elements are mapped to unsigned integer keys of the same order, which are sorted by a stable
//! radix sort, or by comparison if there are few.
//!
//! The first few indices are found without sorting all elements: an element is a candidate if it precedes the last of
//! those that were kept so far, which most blocks of elements have none of. When there are twice as many candidates as
//! are wanted, a selection (quickselect, Hoare 1961) keeps the first half.

use crate::backend::{CpuBackend, Result};
use crate::checkpoint::{STRETCH, checkpoint, in_stretches};
use crate::strided::{SharedPtr, run_or_not};
use crate::tensor::CpuTensor;
use gt_backend::{ExecError, Loops};
use gt_ops::{DType, Meta, Op, Shape};
use half::{bf16, f16};
use std::ops::Range;
use std::slice;

/// Rows with fewer elements are sorted by comparison.
const RADIX_ELEMENTS_MIN: usize = 512;
/// The number of key bits that one pass of the radix sort orders by.
const DIGIT_BITS: u32 = 11;
const DIGITS: usize = 1 << DIGIT_BITS;
/// The steps per item after which a sort by insertion is given up.
const INSERTION_STEPS_MAX: usize = 4;

/// The number of elements that are compared together with the last one that was kept.
const BLOCK: usize = 16;
/// The least number of candidates among which the wanted ones are selected.
const CANDIDATES_MIN: usize = 64;
/// The bytes that a copy moves in the time that a sort, or a search for the first few, takes for one element, roughly.
const SORT_BYTES: usize = 600;
const FIRST_BYTES: usize = 30;

/// An element type with a sort key.
trait Keyed: Copy {
    /// An unsigned integer of at most [`Keyed::BITS`] bits that grows with the element; NaN has the largest.
    fn key(self) -> u64;
    /// Whether the key is smaller than that of `other`, or larger if `DESCENDING`.
    fn precedes<const DESCENDING: bool>(self, other: Self) -> bool;
    const BITS: u32;
}

/// A sort key with the position of its element, in the order of keys and then of positions.
trait SortItem: Copy + Ord {
    fn new(key: u64, place: usize) -> Self;
    fn key(self) -> u64;
    fn place(self) -> i64;
}

/// A key and a position of 32 bits each.
impl SortItem for u64 {
    #[inline(always)]
    fn new(key: u64, place: usize) -> u64 {
        key << 32 | place as u64
    }
    #[inline(always)]
    fn key(self) -> u64 {
        self >> 32
    }
    #[inline(always)]
    fn place(self) -> i64 {
        (self & 0xffff_ffff) as i64
    }
}

impl SortItem for (u64, u64) {
    #[inline(always)]
    fn new(key: u64, place: usize) -> (u64, u64) {
        (key, place as u64)
    }
    #[inline(always)]
    fn key(self) -> u64 {
        self.0
    }
    #[inline(always)]
    fn place(self) -> i64 {
        self.1 as i64
    }
}

macro_rules! keyed_ints {
    ($($t:ty, $bits:literal;)*) => {$(
        impl Keyed for $t {
            #[inline(always)]
            fn key(self) -> u64 { (self as i64).wrapping_sub(<$t>::MIN as i64) as u64 }
            #[inline(always)]
            fn precedes<const DESCENDING: bool>(self, other: $t) -> bool {
                if DESCENDING { self > other } else { self < other }
            }
            const BITS: u32 = $bits;
        }
    )*};
}
keyed_ints! { u8, 8; i8, 8; i16, 16; i32, 32; i64, 64; }

macro_rules! keyed_floats {
    ($($t:ty, $unsigned:ty, $zero:expr;)*) => {$(
        impl Keyed for $t {
            #[inline(always)]
            fn precedes<const DESCENDING: bool>(self, other: $t) -> bool {
                if DESCENDING {
                    (self > other) | (self.is_nan() & !other.is_nan())
                } else {
                    (self < other) | (!self.is_nan() & other.is_nan())
                }
            }
            #[inline(always)]
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
    /// The number of elements, and of the first indices that are wanted.
    count: usize,
    wanted: usize,
    descending: bool,
}

impl Sort {
    /// The number of items that a sort has room for, twice.
    fn room(&self) -> usize {
        if self.wanted == self.count {
            self.count
        } else {
            self.count.min((2 * self.wanted).max(CANDIDATES_MIN) + BLOCK)
        }
    }

    /// Computes sorts `range`; `items` and `spare` have [`Sort::room`] entries.
    ///
    /// # Safety
    /// Operand and result are valid for all elements, of type `T` and i64, and nothing else writes these results. Keys
    /// and positions fit in an `I`.
    unsafe fn run<T: Keyed, I: SortItem>(&self, range: Range<usize>, items: &mut [I], spare: &mut [I]) {
        for at in range {
            let mut offsets = [0; 2];
            self.kept.for_runs(at, at + 1, |run| offsets = run.offsets);
            let from = self.from.get().cast_const().wrapping_offset(offsets[0]);
            // SAFETY: the contract is the same, and `from` is the first element of sort `at`.
            let found = unsafe {
                match (self.wanted == self.count, self.descending) {
                    (true, _) => self.all::<T, I>(from, items),
                    (false, true) => self.first::<T, I, true>(from, items),
                    (false, false) => self.first::<T, I, false>(from, items),
                }
            };
            // Equal elements that were selected are in no order, which a stable sort by keys would keep.
            let sorted = if found < RADIX_ELEMENTS_MIN || found < self.count {
                items[..found].sort_unstable();
                &items[..found]
            } else {
                radix_sort(&mut items[..found], &mut spare[..found], T::BITS)
            };
            let to = self.to.get().wrapping_offset(offsets[1]);
            in_stretches(0, found, |first, last| {
                for (i, item) in (first..last).zip(&sorted[first..last]) {
                    // SAFETY: `i < self.wanted`, for which the result is valid along the axis, and only this call
                    // writes it.
                    unsafe { to.wrapping_offset(i as isize * self.step[1]).cast::<i64>().write(item.place()) };
                }
            });
        }
    }

    /// The item of an element.
    #[inline(always)]
    fn item<T: Keyed, I: SortItem>(&self, x: T, place: usize) -> I {
        let largest = if T::BITS == 64 { u64::MAX } else { (1 << T::BITS) - 1 };
        I::new(if self.descending { largest - x.key() } else { x.key() }, place)
    }

    /// Makes items of all elements.
    ///
    /// # Safety
    /// `from` is valid for `self.count` elements along the axis.
    unsafe fn all<T: Keyed, I: SortItem>(&self, from: *const u8, items: &mut [I]) -> usize {
        in_stretches(0, self.count, |first, last| {
            for (i, item) in (first..last).zip(&mut items[first..last]) {
                // SAFETY: `i < self.count`, for which the operand is valid along the axis.
                *item = self.item(unsafe { from.wrapping_offset(i as isize * self.step[0]).cast::<T>().read() }, i);
            }
        });
        self.count
    }

    /// Makes items of the first `self.wanted` elements in sorted order, in any order.
    ///
    /// # Safety
    /// Same as for [`Sort::all`].
    unsafe fn first<T: Keyed, I: SortItem, const DESCENDING: bool>(&self, from: *const u8, items: &mut [I]) -> usize {
        let dense = self.step[0] == size_of::<T>() as isize;
        // SAFETY: `self.element` is called with positions below `self.count`.
        let element = |i: usize| unsafe { from.wrapping_offset(i as isize * self.step[0]).cast::<T>().read() };
        let mut found = 0;
        // The last of the elements that were kept: equal ones after it come later in sorted order.
        let mut last: Option<T> = None;
        in_stretches(0, self.count, |start, end| {
            for at in (start..end).step_by(BLOCK) {
                let n = BLOCK.min(end - at);
                if let Some(last) = last
                    && dense
                    && n == BLOCK
                {
                    // SAFETY: elements are neighbours, and `at + BLOCK <= self.count`.
                    let block = unsafe { from.cast::<T>().add(at).cast::<[T; BLOCK]>().read_unaligned() };
                    if !block.iter().fold(false, |any, x| any | x.precedes::<DESCENDING>(last)) {
                        continue;
                    }
                }
                for i in at..at + n {
                    let x = element(i);
                    if last.is_none_or(|last| x.precedes::<DESCENDING>(last)) {
                        items[found] = self.item(x, i);
                        found += 1;
                    }
                }
                if found + BLOCK > items.len() && found > self.wanted {
                    let (_, kept, _) = items[..found].select_nth_unstable(self.wanted - 1);
                    last = Some(element(kept.place() as usize));
                    found = self.wanted;
                }
            }
        });
        if found > self.wanted {
            items[..found].select_nth_unstable(self.wanted - 1);
        }
        self.wanted
    }
}

/// Least-significant-digit radix sort of items by their keys.
///
/// Few items rarely share many of the leading bits in which keys differ: they are sorted by as many digits as tell most
/// of them apart, and then by insertion, or by all digits if that takes too many steps.
fn radix_sort<'a, I: SortItem>(items: &'a mut [I], spare: &'a mut [I], bits: u32) -> &'a [I] {
    let (first, mut differing) = (items[0].key(), 0);
    for part in items.chunks(STRETCH) {
        checkpoint();
        differing = part.iter().fold(differing, |all, item| all | (item.key() ^ first));
    }
    let top = (u64::BITS - differing.leading_zeros()).min(bits);
    // With twice as many bits as number the items, random keys share them once in two sorts.
    let telling = (2 * items.len().ilog2() + 2).next_multiple_of(DIGIT_BITS);
    if telling + DIGIT_BITS > top {
        return sort_digits(items, spare, 0..top).0;
    }
    let (sorted, spare) = sort_digits(items, spare, top - telling..top);
    if insert_all(sorted) { sorted } else { sort_digits(sorted, spare, 0..top).0 }
}

/// Sorts items by some bits of their keys: each pass is a stable counting sort by one digit. Returns the sorted items
/// and the other slice.
fn sort_digits<'a, I: SortItem>(
    items: &'a mut [I],
    spare: &'a mut [I],
    bits: Range<u32>,
) -> (&'a mut [I], &'a mut [I]) {
    let (mut from, mut to) = (items, spare);
    for shift in bits.step_by(DIGIT_BITS as usize) {
        let digit = |item: I| (item.key() >> shift) as usize & (DIGITS - 1);
        let mut starts = [0usize; DIGITS];
        for part in from.chunks(STRETCH) {
            checkpoint();
            for item in part {
                starts[digit(*item)] += 1;
            }
        }
        if starts[digit(from[0])] == from.len() {
            continue;
        }
        let mut total = 0;
        for start in &mut starts {
            total += std::mem::replace(start, total);
        }
        for part in from.chunks(STRETCH) {
            checkpoint();
            for item in part {
                let start = &mut starts[digit(*item)];
                to[*start] = *item;
                *start += 1;
            }
        }
        std::mem::swap(&mut from, &mut to);
    }
    (from, to)
}

/// Sorts items, most of which are in order, by insertion. False if that takes too many steps; then they are in some
/// order in which those of one key keep theirs.
fn insert_all<I: SortItem>(items: &mut [I]) -> bool {
    let mut steps_left = INSERTION_STEPS_MAX * items.len();
    for start in (0..items.len()).step_by(STRETCH) {
        checkpoint();
        for at in start.max(1)..(start + STRETCH).min(items.len()) {
            let (item, mut place) = (items[at], at);
            while place > 0 && item < items[place - 1] {
                items[place] = items[place - 1];
                place -= 1;
            }
            items[place] = item;
            match steps_left.checked_sub(at - place) {
                Some(left) => steps_left = left,
                None => return false,
            }
        }
    }
    true
}

impl CpuBackend {
    /// The positions of the elements along an axis in sorted order, or as many of the first ones as the result has.
    pub(crate) fn sort(&mut self, op: Op, t: &CpuTensor, axis: usize, out: &Meta) -> Result<CpuTensor> {
        let result = self.new_tensor(out)?;
        if out.shape.numel() == 0 {
            return Ok(result);
        }
        let (dtype, count, wanted) = (t.meta.dtype, t.meta.shape.dims()[axis], out.shape.dims()[axis]);
        let sorts = out.shape.numel() / wanted;
        let sort = Sort {
            from: SharedPtr::new(t.ptr()),
            to: SharedPtr::new(result.ptr()),
            kept: Loops::new(&out.shape.with_dim(axis, 1), [&t.strides, &result.strides]),
            step: [t.strides[axis], result.strides[axis]],
            count,
            wanted,
            descending: op == Op::ArgsortDescending,
        };
        let small = dtype.size() <= 4 && u32::try_from(count).is_ok();
        // Each part of the work has two buffers of items.
        let (parts, words) = (sorts.min(self.pool.threads()), if small { 1 } else { 2 });
        let room = sort.room() * 2 * words;
        let shape = Shape::new(&[parts, room]).map_err(|e| ExecError::internal(e.to_string()))?;
        let scratch = self.new_tensor(&Meta::new(shape, DType::I64))?;
        let scratch_at = SharedPtr::new(scratch.ptr().cast::<u64>());
        let share = sorts.div_ceil(parts);
        let bytes = sorts.saturating_mul(count).saturating_mul(if wanted == count { SORT_BYTES } else { FIRST_BYTES });
        run_or_not(&mut self.pool, bytes, parts, &|part| {
            let own = part * share..((part + 1) * share).min(sorts);
            // SAFETY: the new scratch tensor has `room` aligned words for each part, which are zeroed here, and parts
            // are disjoint. The axes are the tensors', which have one shape but for the axis; `result` was just
            // allocated.
            unsafe {
                let all = scratch_at.get().add(part * room);
                all.write_bytes(0, room);
                let pairs = || slice::from_raw_parts_mut(all.cast::<(u64, u64)>(), room / 2).split_at_mut(room / 4);
                let packed = || slice::from_raw_parts_mut(all, room).split_at_mut(room / 2);
                macro_rules! run {
                    ($t:ty) => {
                        if small {
                            let (items, spare) = packed();
                            sort.run::<$t, u64>(own, items, spare)
                        } else {
                            let (items, spare) = pairs();
                            sort.run::<$t, (u64, u64)>(own, items, spare)
                        }
                    };
                }
                match dtype {
                    DType::Bool | DType::U8 => run!(u8),
                    DType::I8 => run!(i8),
                    DType::I16 | DType::U16 => run!(i16),
                    DType::I32 | DType::U32 => run!(i32),
                    DType::I64 | DType::U64 => run!(i64),
                    DType::F16 => run!(f16),
                    DType::BF16 => run!(bf16),
                    DType::F32 | DType::C64 => run!(f32),
                    DType::F64 | DType::C128 => run!(f64),
                }
            }
        })?;
        Ok(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::CpuOptions;
    use crate::test_tensors::{download, run, upload};
    use gt_ops::{Attrs, Scalar};

    /// Keys that differ at random, in their last bits only, and in some of their last bits; some are equal.
    #[test]
    fn keys_that_are_alike_in_their_leading_bits_are_sorted() {
        let count = if cfg!(miri) { 600 } else { 5000 };
        let random = |i: usize| (i as f64 * 0.754_877_666_246_693).fract();
        let rows = 4;
        let elements: Vec<f64> = (0..rows * count)
            .map(|i| match (i / count, i % count) {
                (0, at) => random(at),
                (1, at) => 1.0 + (random(at) * 1e4).floor() * f64::EPSILON,
                (2, at) if at % 3 == 0 => random(at) - 0.5,
                (2, at) => 1.0 + (random(at) * 1e3).floor() * f64::EPSILON,
                (_, at) => {
                    if at == 7 {
                        1e300
                    } else {
                        (random(at) * 100.0).floor()
                    }
                }
            })
            .collect();
        let mut backend = CpuBackend::new(CpuOptions { threads: 2, ..CpuOptions::default() });
        let t = upload(&mut backend, Shape::new(&[rows, count]).unwrap(), DType::F64, &elements);
        for op in [Op::Argsort, Op::ArgsortDescending] {
            let found = run(&mut backend, op, &[&t], &[], &Attrs::Axis(1));
            for (row, found) in elements.chunks(count).zip(download(&mut backend, &found).chunks(count)) {
                let mut wanted: Vec<usize> = (0..count).collect();
                wanted.sort_by(|a, b| {
                    let order = row[*a].total_cmp(&row[*b]);
                    if op == Op::Argsort { order } else { order.reverse() }
                });
                assert!(found.iter().zip(wanted).all(|(found, wanted)| *found == wanted as f64), "{}", op.name());
            }
        }
    }

    /// The first few indices are those that a sort of all elements begins with, in rows whose elements rise, fall, are
    /// equal, or are in no order, also if they are not neighbours.
    #[test]
    fn the_first_indices_are_those_of_the_whole_order() {
        let (rows, count) = (5, if cfg!(miri) { 100 } else { 1500 });
        let elements: Vec<f64> = (0..rows * count)
            .map(|i| match (i / count, i % count) {
                (0, at) => at as f64,
                (1, at) => -(at as f64),
                (2, _) => 3.0,
                (3, at) if at % 100 == 7 => f64::NAN,
                (_, at) => (at * 7919 % 31) as f64 - 15.0,
            })
            .collect();
        let mut backend = CpuBackend::new(CpuOptions { threads: 2, ..CpuOptions::default() });
        let b = &mut backend;
        for dtype in [DType::F32, DType::F64, DType::BF16, DType::I16, DType::I64] {
            for (dims, axis) in [([rows, count], 1u8), ([count, rows], 0)] {
                let t = upload(b, Shape::new(&dims).unwrap(), dtype, &elements);
                for op in [Op::Argsort, Op::ArgsortDescending] {
                    let whole = run(b, op, &[&t], &[], &Attrs::Axis(axis));
                    let whole = download(b, &whole);
                    for wanted in [0, 1, 10, 31, 40, 700].into_iter().filter(|wanted| *wanted <= count) {
                        let first = run(b, op, &[&t], &[Scalar::Int(wanted as i64)], &Attrs::Axis(axis));
                        let want = if axis == 1 {
                            whole.chunks(count).flat_map(|row| row[..wanted].to_vec()).collect()
                        } else {
                            whole[..wanted * rows].to_vec()
                        };
                        assert!(download(b, &first) == want, "{wanted} of {dtype} along axis {axis}");
                    }
                }
            }
        }
    }
}
