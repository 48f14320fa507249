//! Sixty-four numbers side by side in the vector registers of a level.
//!
//! The compiler makes vector instructions of loops over arrays, but sums that an array keeps from one turn of a loop to
//! the next go through memory each turn. These stay in registers.

use gt_ops::math::Real;
use std::ops::{Add, Mul, Sub};

/// How many.
pub const LANES: usize = 64;
/// How many are left of sums whose halves were added twice.
pub const QUARTER: usize = LANES / 4;

/// Numbers side by side, with the arithmetic of `R`. Who has one has the level's instructions: making the first is what
/// needs a promise.
pub trait Lanes<R: Real>: Copy + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> {
    /// The same number everywhere.
    ///
    /// # Safety
    /// The machine has the level, and the caller was compiled for it.
    unsafe fn splat(x: R) -> Self;

    /// What is in memory.
    ///
    /// # Safety
    /// As [`Lanes::splat`], and there are [`LANES`] numbers.
    unsafe fn load(from: *const R) -> Self;

    /// Writes all numbers to memory.
    ///
    /// # Safety
    /// There is room for [`LANES`] numbers.
    #[inline(always)]
    unsafe fn store(self, to: *mut R) {
        // SAFETY: the caller's promise.
        unsafe { to.cast::<[R; LANES]>().write(self.array()) };
    }

    /// Writes the first `count` numbers to memory.
    ///
    /// # Safety
    /// There is room for so many, fewer than [`LANES`].
    #[inline(always)]
    unsafe fn store_first(self, to: *mut R, count: usize) {
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(self.array().as_ptr(), to, count) };
    }

    /// `self * x + y`, rounded once.
    fn mul_add(self, x: Self, y: Self) -> Self;

    /// The first `count` numbers in memory, then `filler`.
    ///
    /// # Safety
    /// As [`Lanes::splat`], and there are so many numbers, fewer than [`LANES`].
    #[inline(always)]
    unsafe fn load_first(from: *const R, count: usize, filler: R) -> Self {
        let mut all = [filler; LANES];
        // SAFETY: the caller's promise.
        unsafe {
            all[..count].copy_from_slice(std::slice::from_raw_parts(from, count));
            Self::load(all.as_ptr())
        }
    }

    /// The first `count` numbers, then those of `others`.
    #[inline(always)]
    fn first(self, count: usize, others: Self) -> Self {
        let mut all = others.array();
        all[..count].copy_from_slice(&self.array()[..count]);
        // SAFETY: who has lanes has the level.
        unsafe { Self::load(all.as_ptr()) }
    }

    /// All numbers.
    fn array(self) -> [R; LANES];

    /// Sums of lanes that are a quarter apart: of the first and the third, and of the second and the fourth, together.
    fn quarter(self) -> [R; QUARTER];

    /// At each place the larger, and NaN where it or `x` is.
    fn larger(self, x: Self) -> Self;

    /// At each place the smaller, and NaN where it or `x` is.
    fn smaller(self, x: Self) -> Self;
}

/// A number that has vectors.
pub trait Vectors: Real {
    /// Without a level's instructions.
    type Baseline: Lanes<Self>;
    /// In registers of 256 bits.
    #[cfg(target_arch = "x86_64")]
    type Avx2: Lanes<Self>;
    /// In registers of 512 bits.
    #[cfg(target_arch = "x86_64")]
    type Avx512: Lanes<Self>;
}

/// Numbers side by side in an array.
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
        // SAFETY: the caller's promise.
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
            // A NaN enters, and nothing beats it afterwards.
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
    use super::{LANES, Lanes, QUARTER};
    use std::arch::x86_64::*;
    use std::mem::transmute;
    use std::ops::{Add, Mul, Sub};

    /// A type of [`LANES`] numbers in registers: its name, number, register, the registers by number, where the four
    /// quarters of them are, and the instructions.
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
                    // SAFETY: the caller's promise.
                    let x = unsafe { $set1(x) };
                    $name([$(registers!(@each $i x)),+])
                }
                #[inline(always)]
                unsafe fn load(from: *const $number) -> Self {
                    const WIDTH: usize = size_of::<$register>() / size_of::<$number>();
                    // SAFETY: the caller's promise.
                    unsafe { $name([$($loadu(from.add($i * WIDTH))),+]) }
                }
                $(
                    #[inline(always)]
                    unsafe fn load_first(from: *const $number, count: usize, filler: $number) -> Self {
                        // SAFETY: the caller's promise.
                        unsafe { $name($load_first(from, count, filler)) }
                    }
                    #[inline(always)]
                    unsafe fn store_first(self, to: *mut $number, count: usize) {
                        // SAFETY: the caller's promise.
                        unsafe { $store_first(self.0, to, count) }
                    }
                    #[inline(always)]
                    fn first(self, count: usize, others: Self) -> Self {
                        // SAFETY: who has registers has the level.
                        unsafe { $name($first(self.0, count, others.0)) }
                    }
                )?
                #[inline(always)]
                fn array(self) -> [$number; LANES] {
                    // SAFETY: registers are as long as what is in them, and any bits are numbers.
                    unsafe { transmute(self.0) }
                }
                #[inline(always)]
                fn quarter(self) -> [$number; QUARTER] {
                    let x = &self.0;
                    // SAFETY: who has registers has the level; lengths and bits as above.
                    unsafe {
                        transmute([$($add($add(x[$q], x[$q + 2 * $n]), $add(x[$q + $n], x[$q + 3 * $n]))),+])
                    }
                }
                #[inline(always)]
                fn mul_add(self, x: Self, y: Self) -> Self {
                    // SAFETY: who has registers has the level.
                    unsafe { $name([$($mul_add(self.0[$i], x.0[$i], y.0[$i])),+]) }
                }
                #[inline(always)]
                fn larger(self, x: Self) -> Self {
                    // SAFETY: who has registers has the level.
                    unsafe { $name([$($larger(self.0[$i], x.0[$i])),+]) }
                }
                #[inline(always)]
                fn smaller(self, x: Self) -> Self {
                    // SAFETY: who has registers has the level.
                    unsafe { $name([$($smaller(self.0[$i], x.0[$i])),+]) }
                }
            }
        };
        (@operator $name:ident, $trait:ident $function:ident $instruction:ident, [$($i:literal),+]) => {
            impl $trait for $name {
                type Output = Self;
                #[inline(always)]
                fn $function(self, other: Self) -> Self {
                    // SAFETY: who has registers has the level.
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

    /// `x` where it is beyond `best` or NaN: a NaN enters, and nothing beats it afterwards.
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

    /// The first `count` numbers of memory or of registers, then others.
    macro_rules! masked {
        ($load_first:ident $store_first:ident $first:ident, $number:ty, [$register:ty; [$($i:literal),+]], $mask:ty,
         $set1:ident, $load:ident, $store:ident, $blend:ident) => {
            #[inline]
            #[target_feature(enable = "avx512f")]
            unsafe fn $load_first(from: *const $number, count: usize, filler: $number) -> [$register; [$($i),+].len()] {
                const WIDTH: usize = size_of::<$register>() / size_of::<$number>();
                let filler = $set1(filler);
                // SAFETY: only the numbers that are there are loaded.
                unsafe { [$($load(filler, masked!(@mask count, WIDTH, $i, $mask), from.wrapping_add($i * WIDTH))),+] }
            }
            #[inline]
            #[target_feature(enable = "avx512f")]
            unsafe fn $store_first(x: [$register; [$($i),+].len()], to: *mut $number, count: usize) {
                const WIDTH: usize = size_of::<$register>() / size_of::<$number>();
                // SAFETY: only the numbers that there is room for are stored.
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
}

/// The vectors of a level.
pub trait Registers {
    /// Those of a number.
    type Of<R: Vectors>: Lanes<R>;
}

macro_rules! levels {
    ($($(#[$when:meta])* $level:ident;)*) => {$(
        /// The level of that name, as a type.
        $(#[$when])*
        pub struct $level;
        $(#[$when])*
        impl Registers for $level {
            type Of<R: Vectors> = R::$level;
        }
    )*};
}
levels! {
    Baseline;
    #[cfg(target_arch = "x86_64")]
    Avx2;
    #[cfg(target_arch = "x86_64")]
    Avx512;
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

/// All numbers made one: halves at a time, the order in which all levels compute.
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

/// Elements that partial sums gather before they join a sum in f64.
pub const SUM_BLOCK: usize = 8 << 10;

/// What lanes gather of a slice or of several of one length: `step` makes new lanes of `so_far` and the elements at the
/// same place. No closure does, which would not have a level's instructions. In an unsafe block, as [`Lanes::splat`].
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
            // What comes of the filling does not count.
            lanes = $step.first(n - at, lanes);
        }
        lanes
    }};
}
pub(crate) use gather_over;

/// The sum over the elements at the same place of slices of one length, in f64, as [`gather_over`].
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
            block = end;
        }
        total
    }};
}
pub(crate) use sum_over;

/// Writes what `value` makes of the elements at the same place of slices to a slice, all of one length; in an unsafe
/// block, as [`Lanes::splat`].
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

/// The largest element, NaN if any is.
///
/// # Safety
/// As [`Lanes::splat`].
#[inline(always)]
pub unsafe fn largest<R: Real, V: Lanes<R>>(row: &[R]) -> R {
    let better = |best: R, x: R| if (x > best) | x.is_nan() { x } else { best };
    if row.len() < LANES / 2 {
        return row.iter().fold(-R::INFINITY, |best, x| better(best, *x));
    }
    // SAFETY: the caller's promise.
    let lanes = unsafe { gather_over!(R, V: x in row; best from -R::INFINITY => best.larger(x)) };
    folded(lanes.array(), better)
}
