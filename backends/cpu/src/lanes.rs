//! Sixty-four numbers in the vector registers of a [`SimdLevel`](crate::kernels::SimdLevel).
//!
//! The compiler vectorises loops over arrays, but it stores an array of partial sums to memory in each iteration. The
//! types here keep them in registers.

use gt_ops::math::Real;
use std::ops::{Add, Mul, Sub};

/// The number of lanes.
pub const LANES: usize = 64;
/// The number of lanes left after halves were added twice.
pub const QUARTER: usize = LANES / 4;

/// [`LANES`] numbers with the arithmetic of `R`, lane by lane. Only creating a value is unsafe: a value exists only
/// where the CPU has the level's instructions.
pub trait Lanes<R: Real>: Copy + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> {
    /// The same number in all lanes.
    ///
    /// # Safety
    /// The CPU has the level, and the caller was compiled for it.
    unsafe fn splat(x: R) -> Self;

    /// Loads [`LANES`] numbers.
    ///
    /// # Safety
    /// Same as for [`Lanes::splat`], and `from` points to [`LANES`] numbers.
    unsafe fn load(from: *const R) -> Self;

    /// Stores all numbers.
    ///
    /// # Safety
    /// `to` has room for [`LANES`] numbers.
    #[inline(always)]
    unsafe fn store(self, to: *mut R) {
        // SAFETY: there is room for `LANES` numbers at `to`.
        unsafe { to.cast::<[R; LANES]>().write(self.array()) };
    }

    /// Stores the first `count` numbers.
    ///
    /// # Safety
    /// `to` has room for `count` numbers, fewer than [`LANES`].
    #[inline(always)]
    unsafe fn store_first(self, to: *mut R, count: usize) {
        // SAFETY: there is room for `count` numbers at `to`.
        unsafe { std::ptr::copy_nonoverlapping(self.array().as_ptr(), to, count) };
    }

    /// `self * x + y` with a single rounding (fused multiply-add).
    fn mul_add(self, x: Self, y: Self) -> Self;

    /// Loads `count` numbers, and fills the other lanes with `filler`.
    ///
    /// # Safety
    /// Same as for [`Lanes::splat`], and `from` points to `count` numbers, fewer than [`LANES`].
    #[inline(always)]
    unsafe fn load_first(from: *const R, count: usize, filler: R) -> Self {
        let mut all = [filler; LANES];
        // SAFETY: there are `count` numbers at `from`; the array has `LANES`; the caller has the level, as `load`
        // requires.
        unsafe {
            all[..count].copy_from_slice(std::slice::from_raw_parts(from, count));
            Self::load(all.as_ptr())
        }
    }

    /// The first `count` lanes of `self`, and the rest from `others`.
    #[inline(always)]
    fn first(self, count: usize, others: Self) -> Self {
        let mut all = others.array();
        all[..count].copy_from_slice(&self.array()[..count]);
        // SAFETY: `self` exists, so the CPU has the level; the array has `LANES` numbers.
        unsafe { Self::load(all.as_ptr()) }
    }

    /// All lanes as an array.
    fn array(self) -> [R; LANES];

    /// The sums of lanes that are a quarter apart: `(x[i] + x[i + 2q]) + (x[i + q] + x[i + 3q])` for a quarter `q`.
    fn quarter(self) -> [R; QUARTER];

    /// The larger of each pair of lanes, and NaN where either is.
    fn larger(self, x: Self) -> Self;

    /// The smaller of each pair of lanes, and NaN where either is.
    fn smaller(self, x: Self) -> Self;
}

/// A number type with lanes at every level.
pub trait Vectors: Real {
    /// An array, with the instructions that every CPU of the architecture has.
    type Baseline: Lanes<Self>;
    /// Registers of 256 bits.
    #[cfg(target_arch = "x86_64")]
    type Avx2: Lanes<Self>;
    /// Registers of 512 bits.
    #[cfg(target_arch = "x86_64")]
    type Avx512: Lanes<Self>;
}

/// Lanes in an array.
#[derive(Clone, Copy)]
pub struct Plain<R>([R; LANES]);

macro_rules! plain {
    ($($trait:ident $function:ident;)*) => {$(
        impl<R: Real> $trait for Plain<R> {
            type Output = Self;
            #[inline(always)]
            fn $function(mut self, other: Self) -> Self {
                for (x, y) in self.0.iter_mut().zip(other.0) {
                    *x = $trait::$function(*x, y);
                }
                self
            }
        }
    )*};
}
plain! { Add add; Sub sub; Mul mul; }

impl<R: Real> Lanes<R> for Plain<R> {
    #[inline(always)]
    unsafe fn splat(x: R) -> Self {
        Plain([x; LANES])
    }
    #[inline(always)]
    unsafe fn load(from: *const R) -> Self {
        // SAFETY: there are `LANES` numbers at `from`.
        Plain(unsafe { from.cast::<[R; LANES]>().read() })
    }
    #[inline(always)]
    fn array(self) -> [R; LANES] {
        self.0
    }
    #[inline(always)]
    fn quarter(self) -> [R; QUARTER] {
        let x = &self.0;
        std::array::from_fn(|i| (x[i] + x[i + 2 * QUARTER]) + (x[i + QUARTER] + x[i + 3 * QUARTER]))
    }
    #[inline(always)]
    fn mul_add(mut self, x: Self, y: Self) -> Self {
        for ((a, x), y) in self.0.iter_mut().zip(x.0).zip(y.0) {
            *a = a.mul_add(x, y);
        }
        self
    }
    #[inline(always)]
    fn larger(mut self, x: Self) -> Self {
        for (best, x) in self.0.iter_mut().zip(x.0) {
            // A NaN replaces any number, and nothing replaces it.
            *best = if (x > *best) | x.is_nan() { x } else { *best };
        }
        self
    }
    #[inline(always)]
    fn smaller(mut self, x: Self) -> Self {
        for (best, x) in self.0.iter_mut().zip(x.0) {
            *best = if (x < *best) | x.is_nan() { x } else { *best };
        }
        self
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use crate::lanes::{LANES, Lanes, QUARTER, load_one_by_one};
    use std::arch::x86_64::*;
    use std::mem::{transmute, transmute_copy};
    use std::ops::{Add, Mul, Sub};

    /// Defines a type of [`LANES`] numbers in registers, given its name, the number and register types, the indices of
    /// all registers, the indices and count of a quarter's registers, and the instructions.
    macro_rules! registers {
        ($name:ident, $number:ty, $register:ty, [$($i:literal),+], [$($q:literal),+] of $n:literal,
         $set1:ident, $loadu:ident, $add:ident, $sub:ident, $mul:ident, $mul_add:ident,
         $larger:ident $smaller:ident $(, $load_first:ident $store_first:ident $first:ident)?) => {
            #[derive(Clone, Copy)]
            pub struct $name([$register; LANES * size_of::<$number>() / size_of::<$register>()]);

            registers! { @operator $name, Add add $add, [$($i),+] }
            registers! { @operator $name, Sub sub $sub, [$($i),+] }
            registers! { @operator $name, Mul mul $mul, [$($i),+] }

            impl Lanes<$number> for $name {
                #[inline(always)]
                unsafe fn splat(x: $number) -> Self {
                    // SAFETY: the CPU has the level, by the contract of `splat`.
                    let x = unsafe { $set1(x) };
                    $name([$(registers!(@each $i x)),+])
                }
                #[inline(always)]
                unsafe fn load(from: *const $number) -> Self {
                    const WIDTH: usize = size_of::<$register>() / size_of::<$number>();
                    // SAFETY: the CPU has the level, and there are `LANES` numbers at `from`, by the contract of
                    // `load`.
                    unsafe { $name([$($loadu(from.add($i * WIDTH))),+]) }
                }
                $(
                    #[inline(always)]
                    unsafe fn load_first(from: *const $number, count: usize, filler: $number) -> Self {
                        // SAFETY: the CPU has the level, and there are `count` numbers at `from`, by the contract of
                        // `load_first`.
                        unsafe { $name($load_first(from, count, filler)) }
                    }
                    #[inline(always)]
                    unsafe fn store_first(self, to: *mut $number, count: usize) {
                        // SAFETY: there is room for `count` numbers at `to`, and the CPU has the level, since a value
                        // of this type exists.
                        unsafe { $store_first(self.0, to, count) }
                    }
                    #[inline(always)]
                    fn first(self, count: usize, others: Self) -> Self {
                        // SAFETY: a value of this type exists only where the CPU has the level, as `splat` and `load`
                        // require.
                        unsafe { $name($first(self.0, count, others.0)) }
                    }
                )?
                #[inline(always)]
                fn array(self) -> [$number; LANES] {
                    // SAFETY: the registers are as long as the array, and any bits are valid numbers.
                    unsafe { transmute(self.0) }
                }
                #[inline(always)]
                fn quarter(self) -> [$number; QUARTER] {
                    let x = &self.0;
                    // SAFETY: `self` exists only where the CPU has the level; the registers of a quarter are as long as
                    // the array, and any bits are valid numbers.
                    unsafe {
                        transmute([$($add($add(x[$q], x[$q + 2 * $n]), $add(x[$q + $n], x[$q + 3 * $n]))),+])
                    }
                }
                #[inline(always)]
                fn mul_add(self, x: Self, y: Self) -> Self {
                    // SAFETY: a value of this type exists only where the CPU has the level, as `splat` and `load`
                    // require.
                    unsafe { $name([$($mul_add(self.0[$i], x.0[$i], y.0[$i])),+]) }
                }
                #[inline(always)]
                fn larger(self, x: Self) -> Self {
                    // SAFETY: a value of this type exists only where the CPU has the level, as `splat` and `load`
                    // require.
                    unsafe { $name([$($larger(self.0[$i], x.0[$i])),+]) }
                }
                #[inline(always)]
                fn smaller(self, x: Self) -> Self {
                    // SAFETY: a value of this type exists only where the CPU has the level, as `splat` and `load`
                    // require.
                    unsafe { $name([$($smaller(self.0[$i], x.0[$i])),+]) }
                }
            }
        };
        (@operator $name:ident, $trait:ident $function:ident $instruction:ident, [$($i:literal),+]) => {
            impl $trait for $name {
                type Output = Self;
                #[inline(always)]
                fn $function(self, other: Self) -> Self {
                    // SAFETY: a value of this type exists only where the CPU has the level, as `splat` and `load`
                    // require.
                    unsafe { $name([$($instruction(self.0[$i], other.0[$i])),+]) }
                }
            }
        };
        (@each $i:literal $x:ident) => { $x };
    }

    registers! { F32Avx2, f32, __m256, [0, 1, 2, 3, 4, 5, 6, 7], [0, 1] of 2,
    _mm256_set1_ps, _mm256_loadu_ps, _mm256_add_ps, _mm256_sub_ps, _mm256_mul_ps, _mm256_fmadd_ps,
    larger_256_f32 smaller_256_f32 }
    registers! { F64Avx2, f64, __m256d, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15], [0, 1, 2, 3] of 4,
    _mm256_set1_pd, _mm256_loadu_pd, _mm256_add_pd, _mm256_sub_pd, _mm256_mul_pd, _mm256_fmadd_pd,
    larger_256_f64 smaller_256_f64 }
    registers! { F32Avx512, f32, __m512, [0, 1, 2, 3], [0] of 1,
    _mm512_set1_ps, _mm512_loadu_ps, _mm512_add_ps, _mm512_sub_ps, _mm512_mul_ps, _mm512_fmadd_ps,
    larger_512_f32 smaller_512_f32, load_first_f32 store_first_f32 first_f32 }
    registers! { F64Avx512, f64, __m512d, [0, 1, 2, 3, 4, 5, 6, 7], [0, 1] of 2,
    _mm512_set1_pd, _mm512_loadu_pd, _mm512_add_pd, _mm512_sub_pd, _mm512_mul_pd, _mm512_fmadd_pd,
    larger_512_f64 smaller_512_f64, load_first_f64 store_first_f64 first_f64 }

    /// Defines a maximum or minimum that propagates NaN: `x` where it is beyond `best` or NaN, else `best`.
    macro_rules! extreme {
        (256 $name:ident, $beyond:ident, $register:ty, $compare:ident, $or:ident, $blend:ident) => {
            #[inline]
            #[target_feature(enable = "avx2,fma")]
            fn $name(best: $register, x: $register) -> $register {
                $blend(best, x, $or($compare::<$beyond>(x, best), $compare::<_CMP_UNORD_Q>(x, x)))
            }
        };
        (512 $name:ident, $beyond:ident, $register:ty, $compare:ident, $blend:ident) => {
            #[inline]
            #[target_feature(enable = "avx512f")]
            fn $name(best: $register, x: $register) -> $register {
                $blend($compare::<$beyond>(x, best) | $compare::<_CMP_UNORD_Q>(x, x), best, x)
            }
        };
    }
    extreme! { 256 larger_256_f32, _CMP_GT_OQ, __m256, _mm256_cmp_ps, _mm256_or_ps, _mm256_blendv_ps }
    extreme! { 256 larger_256_f64, _CMP_GT_OQ, __m256d, _mm256_cmp_pd, _mm256_or_pd, _mm256_blendv_pd }
    extreme! { 512 larger_512_f32, _CMP_GT_OQ, __m512, _mm512_cmp_ps_mask, _mm512_mask_blend_ps }
    extreme! { 512 larger_512_f64, _CMP_GT_OQ, __m512d, _mm512_cmp_pd_mask, _mm512_mask_blend_pd }
    extreme! { 256 smaller_256_f32, _CMP_LT_OQ, __m256, _mm256_cmp_ps, _mm256_or_ps, _mm256_blendv_ps }
    extreme! { 256 smaller_256_f64, _CMP_LT_OQ, __m256d, _mm256_cmp_pd, _mm256_or_pd, _mm256_blendv_pd }
    extreme! { 512 smaller_512_f32, _CMP_LT_OQ, __m512, _mm512_cmp_ps_mask, _mm512_mask_blend_ps }
    extreme! { 512 smaller_512_f64, _CMP_LT_OQ, __m512d, _mm512_cmp_pd_mask, _mm512_mask_blend_pd }

    /// Defines masked loads, stores and blends of the first `count` lanes.
    macro_rules! masked {
        ($load_first:ident $store_first:ident $first:ident, $number:ty, [$register:ty; [$($i:literal),+]], $mask:ty,
         $set1:ident, $load:ident, $store:ident, $blend:ident) => {
            #[inline]
            #[target_feature(enable = "avx512f")]
            unsafe fn $load_first(from: *const $number, count: usize, filler: $number) -> [$register; [$($i),+].len()] {
                const WIDTH: usize = size_of::<$register>() / size_of::<$number>();
                let filler = $set1(filler);
                // SAFETY: the mask has bits for the first `count` numbers only, which `from` points to; masked lanes
                // are not accessed.
                unsafe { [$($load(filler, masked!(@mask count, WIDTH, $i, $mask), from.wrapping_add($i * WIDTH))),+] }
            }
            #[inline]
            #[target_feature(enable = "avx512f")]
            unsafe fn $store_first(x: [$register; [$($i),+].len()], to: *mut $number, count: usize) {
                const WIDTH: usize = size_of::<$register>() / size_of::<$number>();
                // SAFETY: the mask has bits for the first `count` numbers only, for which `to` has room; masked lanes
                // are not accessed.
                unsafe { $($store(to.wrapping_add($i * WIDTH), masked!(@mask count, WIDTH, $i, $mask), x[$i]);)+ }
            }
            #[inline]
            #[target_feature(enable = "avx512f")]
            fn $first(
                x: [$register; [$($i),+].len()],
                count: usize,
                others: [$register; [$($i),+].len()],
            ) -> [$register; [$($i),+].len()] {
                const WIDTH: usize = size_of::<$register>() / size_of::<$number>();
                [$($blend(masked!(@mask count, WIDTH, $i, $mask), others[$i], x[$i])),+]
            }
        };
        (@mask $count:ident, $width:ident, $i:literal, $mask:ty) => {
            ((1u32 << $count.saturating_sub($i * $width).min($width)) - 1) as $mask
        };
    }
    masked! { load_first_f32 store_first_f32 first_f32, f32, [__m512; [0, 1, 2, 3]], u16,
    _mm512_set1_ps, _mm512_mask_loadu_ps, _mm512_mask_storeu_ps, _mm512_mask_blend_ps }
    masked! { load_first_f64 store_first_f64 first_f64, f64, [__m512d; [0, 1, 2, 3, 4, 5, 6, 7]], u8,
    _mm512_set1_pd, _mm512_mask_loadu_pd, _mm512_mask_storeu_pd, _mm512_mask_blend_pd }

    /// [`Registers::load_sixteen`](crate::lanes::Registers::load_sixteen) by loads that leave out masked elements.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    pub unsafe fn load_sixteen_avx512<T: Copy>(from: *const T, count: usize, filler: T, to: *mut T) {
        let mask = ((1u32 << count) - 1) as u16;
        // SAFETY: the mask has bits for the first `count` elements only, which `from` points to; there is room for 16
        // at `to`. A value of type `T` has as many bytes as the integer that its bits become.
        unsafe {
            match size_of::<T>() {
                1 => {
                    let filler = _mm_set1_epi8(transmute_copy(&filler));
                    _mm_storeu_si128(to.cast(), _mm_mask_loadu_epi8(filler, mask, from.cast()));
                }
                2 => {
                    let filler = _mm256_set1_epi16(transmute_copy(&filler));
                    _mm256_storeu_si256(to.cast(), _mm256_mask_loadu_epi16(filler, mask, from.cast()));
                }
                4 => {
                    let filler = _mm512_set1_epi32(transmute_copy(&filler));
                    _mm512_storeu_si512(to.cast(), _mm512_mask_loadu_epi32(filler, mask, from.cast()));
                }
                _ => {
                    let filler = _mm512_set1_epi64(transmute_copy(&filler));
                    let (low, high) = (mask as u8, (mask >> 8) as u8);
                    _mm512_storeu_si512(to.cast(), _mm512_mask_loadu_epi64(filler, low, from.cast()));
                    let (from, to) = (from.wrapping_add(8), to.wrapping_add(8));
                    _mm512_storeu_si512(to.cast(), _mm512_mask_loadu_epi64(filler, high, from.cast()));
                }
            }
        }
    }

    /// [`Registers::load_wide`](crate::lanes::Registers::load_wide) into registers of 512 bits.
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub unsafe fn load_wide_avx512(from: *const f32) -> F64Avx512 {
        // A closure would not be compiled for the level.
        macro_rules! load {
            ($($i:literal)*) => { [$(_mm512_cvtps_pd(_mm256_loadu_ps(from.add(8 * $i)))),*] };
        }
        // SAFETY: there are `LANES` numbers at `from`, as many as eight registers hold.
        F64Avx512(unsafe { load!(0 1 2 3 4 5 6 7) })
    }

    /// [`Registers::load_wide`](crate::lanes::Registers::load_wide) into registers of 256 bits.
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    pub unsafe fn load_wide_avx2(from: *const f32) -> F64Avx2 {
        macro_rules! load {
            ($($i:literal)*) => { [$(_mm256_cvtps_pd(_mm_loadu_ps(from.add(4 * $i)))),*] };
        }
        // SAFETY: there are `LANES` numbers at `from`, as many as sixteen registers hold.
        F64Avx2(unsafe { load!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15) })
    }

    /// As [`load_sixteen_avx512`], of elements of 4 bytes; AVX2 has no masked loads of shorter ones, and those of
    /// longer ones load few.
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    pub unsafe fn load_sixteen_avx2<T: Copy>(from: *const T, count: usize, filler: T, to: *mut T) {
        if size_of::<T>() != 4 {
            // SAFETY: the contract is the same.
            return unsafe { load_one_by_one(from, count, filler, to) };
        }
        // SAFETY: the masks have bits for the first `count` elements only, which `from` points to; there is room for 16
        // at `to`. A value of type `T` has as many bytes as the integer that its bits become.
        unsafe {
            let filler = _mm256_set1_epi32(transmute_copy(&filler));
            let end = _mm256_set1_epi32(count as i32);
            for first in [0, 8] {
                let places = _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(first));
                let mask = _mm256_cmpgt_epi32(end, places);
                let loaded = _mm256_maskload_epi32(from.wrapping_add(first as usize).cast(), mask);
                _mm256_storeu_si256(to.wrapping_add(first as usize).cast(), _mm256_blendv_epi8(filler, loaded, mask));
            }
        }
    }
}

/// A [`SimdLevel`](crate::kernels::SimdLevel) as a type.
pub trait Registers {
    /// The level's lanes of a number type.
    type Of<R: Vectors>: Lanes<R>;

    /// Copies `count` elements, at most 16, and fills the rest of 16 with `filler`.
    ///
    /// # Safety
    /// The CPU has the level, and the caller was compiled for it. `from` is valid for `count` elements, of 1, 2, 4 or 8
    /// bytes, and `to` for 16, which do not overlap them.
    unsafe fn load_sixteen<T: Copy>(from: *const T, count: usize, filler: T, to: *mut T);

    /// Loads [`LANES`] numbers and widens them.
    ///
    /// # Safety
    /// The CPU has the level, and the caller was compiled for it; `from` points to [`LANES`] numbers.
    unsafe fn load_wide(from: *const f32) -> Self::Of<f64>;
}

/// # Safety
/// Same as for [`Registers::load_wide`].
#[inline(always)]
unsafe fn load_wide_plain(from: *const f32) -> Plain<f64> {
    // SAFETY: there are `LANES` numbers at `from`.
    Plain(unsafe { from.cast::<[f32; LANES]>().read() }.map(f64::from))
}

/// # Safety
/// Same as for [`Registers::load_sixteen`].
#[inline(always)]
unsafe fn load_one_by_one<T: Copy>(from: *const T, count: usize, filler: T, to: *mut T) {
    for i in 0..16 {
        // SAFETY: `from` is read only below `count`, and there is room for 16 elements at `to`, by this function's
        // contract.
        unsafe { to.add(i).write(if i < count { from.add(i).read() } else { filler }) };
    }
}

macro_rules! levels {
    ($($(#[$when:meta])* $level:ident $load_sixteen:path, $load_wide:path;)*) => {$(
        /// The type for the [`SimdLevel`](crate::kernels::SimdLevel) of the same name.
        $(#[$when])*
        pub struct $level;
        $(#[$when])*
        impl Registers for $level {
            type Of<R: Vectors> = R::$level;
            #[inline(always)]
            unsafe fn load_sixteen<T: Copy>(from: *const T, count: usize, filler: T, to: *mut T) {
                // SAFETY: the contract is the same.
                unsafe { $load_sixteen(from, count, filler, to) }
            }
            #[inline(always)]
            unsafe fn load_wide(from: *const f32) -> Self::Of<f64> {
                // SAFETY: the contract is the same.
                unsafe { $load_wide(from) }
            }
        }
    )*};
}
levels! {
    Baseline load_one_by_one, load_wide_plain;
    #[cfg(target_arch = "x86_64")]
    Avx2 x86::load_sixteen_avx2, x86::load_wide_avx2;
    #[cfg(target_arch = "x86_64")]
    Avx512 x86::load_sixteen_avx512, x86::load_wide_avx512;
}

macro_rules! vectors {
    ($($number:ty: $avx2:ident $avx512:ident;)*) => {$(
        impl Vectors for $number {
            type Baseline = Plain<$number>;
            #[cfg(target_arch = "x86_64")]
            type Avx2 = x86::$avx2;
            #[cfg(target_arch = "x86_64")]
            type Avx512 = x86::$avx512;
        }
    )*};
}
vectors! { f32: F32Avx2 F32Avx512; f64: F64Avx2 F64Avx512; }

/// The sum of all lanes.
#[inline(always)]
pub fn joined<R: Real, V: Lanes<R>>(lanes: V) -> R {
    folded(lanes.quarter(), |x, y| x + y)
}

/// Reduces numbers by combining the upper half with the lower until one is left: the same order at all levels.
#[inline(always)]
pub fn folded<R: Real, const N: usize>(mut numbers: [R; N], f: impl Fn(R, R) -> R) -> R {
    let mut width = N;
    while width > 1 {
        width /= 2;
        for i in 0..width {
            numbers[i] = f(numbers[i], numbers[i + width]);
        }
    }
    numbers[0]
}

/// The number of elements that are summed in the compute type before the sum is added to one in f64.
pub const SUM_BLOCK: usize = 8 << 10;

/// Folds slices of one length into lanes: `step` computes new lanes from `so_far` and the slices' next elements. It is
/// a macro, since a closure would not be compiled for the level. It needs an unsafe block, like [`Lanes::splat`].
macro_rules! gather_over {
    ($R:ty, $V:ty: $($x:ident in $from:expr),+; $so_far:ident from $start:expr => $step:expr) => {{
        $(let $x: &[$R] = $from;)+
        let n = [$($x.len()),+][0];
        let mut lanes = <$V as Lanes<$R>>::splat($start);
        let mut at = 0;
        while at + LANES <= n {
            let $so_far = lanes;
            $(let $x = <$V as Lanes<$R>>::load($x[at..at + LANES].as_ptr());)+
            lanes = $step;
            at += LANES;
        }
        if at < n {
            let $so_far = lanes;
            $(let $x = <$V as Lanes<$R>>::load_first($x[at..n].as_ptr(), n - at, <$R as Real>::ZERO);)+
            // Lanes beyond the end keep their earlier value.
            lanes = $step.first(n - at, lanes);
        }
        lanes
    }};
}
pub(crate) use gather_over;

/// Sums a function of the elements of slices of one length. [`gather_over`] sums each block of [`SUM_BLOCK`] elements,
/// and the sums of blocks are added in f64.
macro_rules! sum_over {
    ($R:ty, $V:ty: $($x:ident in $from:expr),+; $sum:ident => $step:expr) => {{
        $(let $x: &[$R] = $from;)+
        let n = [$($x.len()),+][0];
        let (mut total, mut block) = (0.0, 0);
        while block < n {
            let end = (block + $crate::lanes::SUM_BLOCK).min(n);
            let lanes = $crate::lanes::gather_over!(
                $R, $V: $($x in &$x[block..end]),+; $sum from <$R as Real>::ZERO => $step
            );
            total += $crate::lanes::joined::<$R, $V>(lanes).to_f64();
            if end < n {
                $crate::checkpoint::checkpoint();
            }
            block = end;
        }
        total
    }};
}
pub(crate) use sum_over;

/// Writes a function of the elements of slices to another slice, all of one length. It needs an unsafe block, like
/// [`Lanes::splat`].
macro_rules! map_over {
    ($R:ident, $V:ident: $to:expr; $($x:ident in $from:expr),+ => $value:expr) => {{
        let to: &mut [$R] = $to;
        $(let $x: &[$R] = $from;)+
        let n = to.len();
        let mut at = 0;
        while at + LANES <= n {
            $(let $x = $V::load($x[at..at + LANES].as_ptr());)+
            $value.store(to[at..at + LANES].as_mut_ptr());
            at += LANES;
        }
        if at < n {
            $(let $x = $V::load_first($x[at..n].as_ptr(), n - at, $R::ZERO);)+
            $value.store_first(to[at..n].as_mut_ptr(), n - at);
        }
    }};
}
pub(crate) use map_over;

/// The largest element, or NaN if any element is NaN.
///
/// # Safety
/// Same as for [`Lanes::splat`].
#[inline(always)]
pub unsafe fn largest<R: Real, V: Lanes<R>>(row: &[R]) -> R {
    let better = |best: R, x: R| if (x > best) | x.is_nan() { x } else { best };
    if row.len() < LANES / 2 {
        return row.iter().fold(-R::INFINITY, |best, x| better(best, *x));
    }
    // SAFETY: the CPU has the level of `V`, and this function is inlined into one that was compiled for it.
    let lanes = unsafe { gather_over!(R, V: x in row; best from -R::INFINITY => best.larger(x)) };
    folded(lanes.array(), better)
}
