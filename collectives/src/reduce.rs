//! Element-wise reductions over the ranks, in the order of ranks.
//!
//! f16 and bf16 are widened to f32, reduced there and rounded once. Integers wrap. A byte of a bool is true unless it
//! is 0: the sum and the maximum of bools are "or", the product and the minimum "and". A NaN makes a maximum or minimum
//! NaN. The mean is the sum divided by the number of ranks, for floating dtypes only.

use gt_ops::DType;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use std::fmt;

/// The operator of a reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Reduce {
    /// The sum.
    Sum,
    /// The product.
    Prod,
    /// The maximum.
    Max,
    /// The minimum.
    Min,
    /// The sum, divided by the number of ranks.
    Mean,
}

impl Reduce {
    /// Every reduction.
    pub const ALL: [Reduce; 5] = [Reduce::Sum, Reduce::Prod, Reduce::Max, Reduce::Min, Reduce::Mean];

    /// The name, as PyTorch's `ReduceOp` has it, in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Reduce::Sum => "sum",
            Reduce::Prod => "prod",
            Reduce::Max => "max",
            Reduce::Min => "min",
            Reduce::Mean => "mean",
        }
    }

    /// Whether the reduction is defined for `dtype`.
    pub const fn is_defined_for(self, dtype: DType) -> bool {
        !matches!(self, Reduce::Mean) || dtype.is_float()
    }
}

impl fmt::Display for Reduce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Elements per tile: the tile of accumulators and that of an operand stay in the L1 cache.
const TILE: usize = 1024;

/// An element as it lies in memory, and the type in which it is reduced.
trait Element: Copy + Default {
    type Wide: Copy + Default;

    fn widen(self) -> Self::Wide;

    /// Loads elements from an address of any alignment.
    ///
    /// # Safety
    /// `from` is readable for `to.len()` elements.
    #[inline(always)]
    unsafe fn load(from: *const u8, to: &mut [Self::Wide]) {
        for (i, to) in to.iter_mut().enumerate() {
            // SAFETY: `i < to.len()`, and by the contract of `load` `from` is readable for as many elements.
            *to = unsafe { from.cast::<Self>().add(i).read_unaligned() }.widen();
        }
    }

    /// As [`Element::load`], folded into the elements of `to` by `f`.
    ///
    /// # Safety
    /// As [`Element::load`].
    #[inline(always)]
    unsafe fn fold(from: *const u8, to: &mut [Self::Wide], f: impl Fn(Self::Wide, Self::Wide) -> Self::Wide) {
        for (i, to) in to.iter_mut().enumerate() {
            // SAFETY: `i < to.len()`, and by the contract of `fold` `from` is readable for as many elements.
            *to = f(*to, unsafe { from.cast::<Self>().add(i).read_unaligned() }.widen());
        }
    }

    /// The address of the elements of `from` in memory format: `from` itself, or narrowed copies in `room`.
    fn narrowed(from: &[Self::Wide], room: &mut [Self; TILE]) -> *const u8;
}

macro_rules! as_itself {
    ($($t:ty),*) => {
        $(impl Element for $t {
            type Wide = $t;
            #[inline(always)]
            fn widen(self) -> $t {
                self
            }
            #[inline(always)]
            fn narrowed(from: &[$t], _room: &mut [$t; TILE]) -> *const u8 {
                from.as_ptr().cast()
            }
        })*
    };
}
as_itself!(u8, i8, i16, i32, i64, f32, f64);

/// The byte of a bool: true unless it is 0.
#[derive(Clone, Copy, Default)]
#[repr(transparent)]
struct BoolByte(u8);

impl Element for BoolByte {
    type Wide = u8;
    #[inline(always)]
    fn widen(self) -> u8 {
        u8::from(self.0 != 0)
    }
    #[inline(always)]
    fn narrowed(from: &[u8], _room: &mut [BoolByte; TILE]) -> *const u8 {
        from.as_ptr()
    }
}

impl Element for bf16 {
    type Wide = f32;
    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }
    // As `bf16::from_f32`, without a branch in the loop.
    #[inline(always)]
    fn narrowed(from: &[f32], room: &mut [bf16; TILE]) -> *const u8 {
        for (to, from) in room.iter_mut().zip(from) {
            let bits = from.to_bits();
            let nearest = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
            let quiet = bits >> 16 | 0x40;
            *to = bf16::from_bits(if from.is_nan() { quiet } else { nearest } as u16);
        }
        room.as_ptr().cast()
    }
}

impl Element for f16 {
    type Wide = f32;
    #[inline(always)]
    fn widen(self) -> f32 {
        self.to_f32()
    }
    // F16C converts eight elements at a time.
    unsafe fn load(from: *const u8, to: &mut [f32]) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if is_x86_feature_detected!("f16c") {
            // SAFETY: F16C was detected (it implies AVX), and `from` is readable for `to.len()` elements by the
            // contract of `load`.
            return unsafe { f16c::load(from, to) };
        }
        for (i, to) in to.iter_mut().enumerate() {
            // SAFETY: `i < to.len()`, and by the contract of `load` `from` is readable for as many elements.
            *to = unsafe { from.cast::<f16>().add(i).read_unaligned() }.to_f32();
        }
    }
    #[inline(always)]
    unsafe fn fold(from: *const u8, to: &mut [f32], f: impl Fn(f32, f32) -> f32) {
        let mut wide = [0.0; TILE];
        // SAFETY: `to` is a tile of at most TILE elements, and `from` is readable for as many by the contract of
        // `fold`.
        unsafe { Self::load(from, &mut wide[..to.len()]) };
        for (to, from) in to.iter_mut().zip(&wide) {
            *to = f(*to, *from);
        }
    }
    fn narrowed(from: &[f32], room: &mut [f16; TILE]) -> *const u8 {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if is_x86_feature_detected!("f16c") {
            // SAFETY: F16C was detected, which implies AVX.
            unsafe { f16c::narrow(from, room) };
            return room.as_ptr().cast();
        }
        room[..from.len()].convert_from_f32_slice(from);
        room.as_ptr().cast()
    }
}

/// Conversions of eight elements at a time.
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod f16c {
    use half::f16;
    use std::arch::x86_64::{
        _MM_FROUND_TO_NEAREST_INT, _mm_loadu_si128, _mm_storeu_si128, _mm256_cvtph_ps, _mm256_cvtps_ph,
        _mm256_loadu_ps, _mm256_storeu_ps,
    };

    /// # Safety
    /// `from` is readable for `to.len()` elements; the processor has F16C.
    #[target_feature(enable = "avx,f16c")]
    pub unsafe fn load(from: *const u8, to: &mut [f32]) {
        let from = from.cast::<f16>();
        let (eights, rest) = to.as_chunks_mut::<8>();
        let done = 8 * eights.len();
        for (i, to) in eights.iter_mut().enumerate() {
            // SAFETY: `to` is a chunk of eight elements, and at least `8 * i + 8` elements are readable at `from`.
            unsafe { _mm256_storeu_ps(to.as_mut_ptr(), _mm256_cvtph_ps(_mm_loadu_si128(from.add(8 * i).cast()))) };
        }
        for (i, to) in rest.iter_mut().enumerate() {
            // SAFETY: `done + i` is less than the length of the whole `to`, for which `from` is readable.
            *to = unsafe { from.add(done + i).read_unaligned() }.to_f32();
        }
    }

    /// # Safety
    /// The processor has F16C.
    #[target_feature(enable = "avx,f16c")]
    pub unsafe fn narrow(from: &[f32], to: &mut [f16]) {
        let (eights, rest) = from.as_chunks::<8>();
        let (to, last) = to[..from.len()].split_at_mut(8 * eights.len());
        for (from, to) in eights.iter().zip(to.as_chunks_mut::<8>().0) {
            // SAFETY: both sides are chunks of eight elements.
            unsafe {
                let half = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm256_loadu_ps(from.as_ptr()));
                _mm_storeu_si128(to.as_mut_ptr().cast(), half);
            }
        }
        for (from, to) in rest.iter().zip(last) {
            *to = f16::from_f32(*from);
        }
    }
}

/// Reduces `elements` elements of every source, in their order, and writes the result to every destination. Each source
/// is one rank's.
///
/// # Safety
/// Sources are readable and destinations writable for `elements` elements. Nothing else writes the sources or accesses
/// the destinations meanwhile. A destination is exactly a source, or overlaps none; destinations do not overlap each
/// other.
///
/// # Panics
/// With a `reduce` that is not defined for `dtype`, or without a source.
pub unsafe fn reduce(dtype: DType, reduce: Reduce, sources: &[*const u8], to: &[*mut u8], elements: usize) {
    // SAFETY: the contract of `reduce_of_ranks` is that of this function.
    unsafe { reduce_of_ranks(dtype, (reduce, sources.len()), sources, to, elements) }
}

/// As [`reduce`], but each source is what several ranks make together: a mean divides the sum by the number of `ranks`.
///
/// # Safety
/// As [`reduce`].
///
/// # Panics
/// As [`reduce`].
pub unsafe fn reduce_of_ranks(
    dtype: DType,
    (reduce, ranks): (Reduce, usize),
    sources: &[*const u8],
    to: &[*mut u8],
    elements: usize,
) {
    assert!(reduce.is_defined_for(dtype) && !sources.is_empty());
    macro_rules! floats {
        ($t:ty, $wide:ty) => {{
            // A comparison with a NaN is false and gives `b`, so only a NaN in `a` needs `nan_or`.
            let nan_or = |a: $wide, other: $wide| if a.is_nan() { a } else { other };
            let ranks = ranks as $wide;
            let same = |x: $wide| x;
            // SAFETY: the contract of `fold` is that of `reduce`.
            unsafe {
                match reduce {
                    Reduce::Sum => fold::<$t>(sources, to, elements, |a, b| a + b, same),
                    Reduce::Prod => fold::<$t>(sources, to, elements, |a, b| a * b, same),
                    Reduce::Max => fold::<$t>(sources, to, elements, |a, b| nan_or(a, if a > b { a } else { b }), same),
                    Reduce::Min => fold::<$t>(sources, to, elements, |a, b| nan_or(a, if a < b { a } else { b }), same),
                    Reduce::Mean => fold::<$t>(sources, to, elements, |a, b| a + b, |x| x / ranks),
                }
            }
        }};
    }
    macro_rules! integers {
        ($t:ty) => {{
            let same = |x: $t| x;
            // SAFETY: the contract of `fold` is that of `reduce`.
            unsafe {
                match reduce {
                    Reduce::Sum | Reduce::Mean => fold::<$t>(sources, to, elements, <$t>::wrapping_add, same),
                    Reduce::Prod => fold::<$t>(sources, to, elements, <$t>::wrapping_mul, same),
                    Reduce::Max => fold::<$t>(sources, to, elements, |a, b| a.max(b), same),
                    Reduce::Min => fold::<$t>(sources, to, elements, |a, b| a.min(b), same),
                }
            }
        }};
    }
    match dtype {
        DType::Bool => {
            let all = matches!(reduce, Reduce::Prod | Reduce::Min);
            let combine = |a, b| if all { a & b } else { a | b };
            // SAFETY: the contract of `fold` is that of `reduce`.
            unsafe { fold::<BoolByte>(sources, to, elements, combine, |x| x) }
        }
        DType::U8 => integers!(u8),
        DType::I8 => integers!(i8),
        DType::I16 | DType::U16 => integers!(i16),
        DType::I32 | DType::U32 => integers!(i32),
        DType::I64 | DType::U64 => integers!(i64),
        DType::F16 => floats!(f16, f32),
        DType::BF16 => floats!(bf16, f32),
        DType::F32 | DType::C64 => floats!(f32, f32),
        DType::F64 | DType::C128 => floats!(f64, f64),
    }
}

/// Runs [`fold_tiles`], compiled for AVX2 if the processor has it, which gives the same bits in less time.
///
/// # Safety
/// As [`reduce`].
unsafe fn fold<E: Element>(
    sources: &[*const u8],
    to: &[*mut u8],
    elements: usize,
    combine: impl Fn(E::Wide, E::Wide) -> E::Wide + Copy,
    finish: impl Fn(E::Wide) -> E::Wide + Copy,
) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: AVX2 was detected; the rest of the contract is that of `fold`.
        return unsafe { fold_avx2::<E>(sources, to, elements, combine, finish) };
    }
    // SAFETY: the contract of `fold_tiles` is that of this function.
    unsafe { fold_tiles::<E>(sources, to, elements, combine, finish) }
}

/// # Safety
/// As [`reduce`], on a processor with AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn fold_avx2<E: Element>(
    sources: &[*const u8],
    to: &[*mut u8],
    elements: usize,
    combine: impl Fn(E::Wide, E::Wide) -> E::Wide + Copy,
    finish: impl Fn(E::Wide) -> E::Wide + Copy,
) {
    // SAFETY: the contract of `fold_tiles` is that of this function.
    unsafe { fold_tiles::<E>(sources, to, elements, combine, finish) }
}

/// # Safety
/// As [`reduce`].
#[inline(always)]
unsafe fn fold_tiles<E: Element>(
    sources: &[*const u8],
    to: &[*mut u8],
    elements: usize,
    combine: impl Fn(E::Wide, E::Wide) -> E::Wide + Copy,
    finish: impl Fn(E::Wide) -> E::Wide,
) {
    let mut tile = [E::Wide::default(); TILE];
    let mut room = [E::default(); TILE];
    for start in (0..elements).step_by(TILE) {
        let len = TILE.min(elements - start);
        let (offset, tile) = (start * size_of::<E>(), &mut tile[..len]);
        // SAFETY: `start + len <= elements`, for which the contract of `reduce` makes every source readable and every
        // destination writable; a destination that is a source was read before it is written.
        unsafe {
            E::load(sources[0].add(offset), tile);
            for source in &sources[1..] {
                E::fold(source.add(offset), tile, combine);
            }
            for x in tile.iter_mut() {
                *x = finish(*x);
            }
            let result = E::narrowed(tile, &mut room);
            for to in to {
                std::ptr::copy_nonoverlapping(result, to.add(offset), len * size_of::<E>());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_f32(how: Reduce, ranks: &[f32]) -> f32 {
        let sources: Vec<*const u8> = ranks.iter().map(|x| (&raw const *x).cast()).collect();
        let mut result = 0f32;
        // SAFETY: the sources and the result have one element each.
        unsafe { reduce(DType::F32, how, &sources, &[(&raw mut result).cast()], 1) };
        result
    }

    #[test]
    fn a_nan_of_any_rank_makes_a_maximum_or_minimum_nan() {
        for how in [Reduce::Max, Reduce::Min] {
            for place in 0..3 {
                let mut ranks = [1.0, 2.0, 3.0];
                ranks[place] = f32::NAN;
                assert!(of_f32(how, &ranks).is_nan(), "{how} with a NaN at {place}");
            }
        }
        assert_eq!((of_f32(Reduce::Max, &[1.0, 3.0, 2.0]), of_f32(Reduce::Min, &[2.0, 1.0, 3.0])), (3.0, 1.0));
    }

    #[test]
    fn ranks_are_folded_in_their_order() {
        assert_eq!(of_f32(Reduce::Sum, &[1e8, 1.0, -1e8]), 0.0);
        assert_eq!(of_f32(Reduce::Sum, &[1e8, -1e8, 1.0]), 1.0);
    }

    #[test]
    fn half_precision_is_rounded_once() {
        // 2048 + 1 is no f16: rounded after each step, the sum would stay at 2048.
        let ranks = [f16::from_f32(2048.0), f16::ONE, f16::ONE];
        let sources: Vec<*const u8> = ranks.iter().map(|x| (&raw const *x).cast()).collect();
        let mut result = f16::ZERO;
        // SAFETY: the sources and the result have one element each.
        unsafe { reduce(DType::F16, Reduce::Sum, &sources, &[(&raw mut result).cast()], 1) };
        assert_eq!(result.to_f32(), 2050.0);
    }

    #[test]
    fn halves_are_rounded_as_the_crate_half_does() {
        // Ties, overflows, subnormals and NaNs.
        let floats = [0.1, 1.0, 65504.0, 65520.0, 1e-7, 6e-8, 3.1, -2049.0, 1e38, f32::INFINITY, f32::NAN, 255.5];
        for a in floats {
            for b in floats {
                let halves = [f16::from_f32(a), f16::from_f32(b)];
                let brains = [bf16::from_f32(a), bf16::from_f32(b)];
                // Nine elements: eight at a time, and one more.
                let (mut half, mut brain) = ([f16::ZERO; 9], [bf16::ZERO; 9]);
                let (many, brain_many) = (halves.map(|x| [x; 9]), brains.map(|x| [x; 9]));
                let sources: [*const u8; 2] = [(&raw const many[0]).cast(), (&raw const many[1]).cast()];
                // SAFETY: the sources and the result have nine elements each.
                unsafe { reduce(DType::F16, Reduce::Sum, &sources, &[(&raw mut half).cast()], 9) };
                let sources: [*const u8; 2] = [(&raw const brain_many[0]).cast(), (&raw const brain_many[1]).cast()];
                // SAFETY: these have nine elements each, too.
                unsafe { reduce(DType::BF16, Reduce::Sum, &sources, &[(&raw mut brain).cast()], 9) };
                let half_sum = f16::from_f32(halves[0].to_f32() + halves[1].to_f32());
                let brain_sum = bf16::from_f32(brains[0].to_f32() + brains[1].to_f32());
                assert!(half.iter().all(|x| *x == half_sum || (x.is_nan() && half_sum.is_nan())), "{a} + {b}");
                assert!(brain.iter().all(|x| *x == brain_sum || (x.is_nan() && brain_sum.is_nan())), "{a} + {b}");
            }
        }
    }

    #[test]
    fn addresses_need_no_alignment_and_a_result_may_take_its_source() {
        const N: usize = TILE + 3;
        let mut bytes = vec![0u8; 2 * N * 8 + 1];
        for i in 0..2 * N {
            bytes[1 + 8 * i..][..8].copy_from_slice(&(i as f64).to_ne_bytes());
        }
        let first = bytes.as_mut_ptr().wrapping_add(1);
        let second = first.wrapping_add(8 * N);
        // SAFETY: both sources have `N` elements, and the destination is exactly the second one.
        unsafe { reduce(DType::F64, Reduce::Sum, &[first, second], &[second], N) };
        for i in 0..N {
            let found = f64::from_ne_bytes(bytes[1 + 8 * (N + i)..][..8].try_into().unwrap());
            assert_eq!(found, (2 * i + N) as f64);
        }
    }
}
