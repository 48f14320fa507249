//! Vector registers of real numbers, for loops that are written once for f32 and f64.

use faer::traits::RealField;
use pulp::Simd;
use std::ops::{Add, Div, DivAssign, Mul, MulAssign, Neg, Sub, SubAssign};

/// A real number of which a register of the machine holds several.
pub(crate) trait VectorElement:
    RealField
    + Copy
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + SubAssign
    + MulAssign
    + DivAssign
    + 'static
{
    /// Sums of squares from this number on have no error from underflow.
    const SQUARES_MIN: Self;
    /// A register, of as many numbers as the instructions `S` take at once.
    type Register<S: Simd>: Copy;
    /// The numbers that fill registers, and the rest.
    fn registers<S: Simd>(all: &[Self]) -> (&[Self::Register<S>], &[Self]);
    /// As [`VectorElement::registers`], to be written.
    fn registers_mut<S: Simd>(all: &mut [Self]) -> (&mut [Self::Register<S>], &mut [Self]);
    /// The number in every lane.
    fn splat_lanes<S: Simd>(simd: S, x: Self) -> Self::Register<S>;
    /// `a * b + c`.
    fn multiply_add<S: Simd>(
        simd: S,
        a: Self::Register<S>,
        b: Self::Register<S>,
        c: Self::Register<S>,
    ) -> Self::Register<S>;
    fn add_lanes<S: Simd>(simd: S, a: Self::Register<S>, b: Self::Register<S>) -> Self::Register<S>;
    fn multiply_lanes<S: Simd>(simd: S, a: Self::Register<S>, b: Self::Register<S>) -> Self::Register<S>;
    fn sum_of_lanes<S: Simd>(simd: S, a: Self::Register<S>) -> Self;
    fn absolute_lanes<S: Simd>(simd: S, a: Self::Register<S>) -> Self::Register<S>;
    /// The larger of each two lanes; that of `b` if one is NaN, on machines whose instruction does so.
    fn larger_lanes<S: Simd>(simd: S, a: Self::Register<S>, b: Self::Register<S>) -> Self::Register<S>;
    fn largest_of_lanes<S: Simd>(simd: S, a: Self::Register<S>) -> Self;

    /// The number of lanes of a register.
    #[inline(always)]
    fn lane_count<S: Simd>() -> usize {
        size_of::<Self::Register<S>>() / size_of::<Self>()
    }
}

macro_rules! lanes {
    ($($t:ident: $register:ident $split:ident $split_mut:ident $splat:ident $fma:ident $add:ident $mul:ident $sum:ident
    $abs:ident $larger:ident $largest:ident)*)
    => {$(
        impl VectorElement for $t {
            const SQUARES_MIN: $t = <$t>::MIN_POSITIVE / (<$t>::EPSILON * <$t>::EPSILON);
            type Register<S: Simd> = S::$register;
            #[inline(always)]
            fn registers<S: Simd>(all: &[$t]) -> (&[S::$register], &[$t]) {
                S::$split(all)
            }
            #[inline(always)]
            fn registers_mut<S: Simd>(all: &mut [$t]) -> (&mut [S::$register], &mut [$t]) {
                S::$split_mut(all)
            }
            #[inline(always)]
            fn splat_lanes<S: Simd>(simd: S, x: $t) -> S::$register {
                simd.$splat(x)
            }
            #[inline(always)]
            fn multiply_add<S: Simd>(
                simd: S,
                a: S::$register,
                b: S::$register,
                c: S::$register,
            ) -> S::$register {
                simd.$fma(a, b, c)
            }
            #[inline(always)]
            fn add_lanes<S: Simd>(simd: S, a: S::$register, b: S::$register) -> S::$register {
                simd.$add(a, b)
            }
            #[inline(always)]
            fn multiply_lanes<S: Simd>(simd: S, a: S::$register, b: S::$register) -> S::$register {
                simd.$mul(a, b)
            }
            #[inline(always)]
            fn sum_of_lanes<S: Simd>(simd: S, a: S::$register) -> $t {
                simd.$sum(a)
            }
            #[inline(always)]
            fn absolute_lanes<S: Simd>(simd: S, a: S::$register) -> S::$register {
                simd.$abs(a)
            }
            #[inline(always)]
            fn larger_lanes<S: Simd>(simd: S, a: S::$register, b: S::$register) -> S::$register {
                simd.$larger(a, b)
            }
            #[inline(always)]
            fn largest_of_lanes<S: Simd>(simd: S, a: S::$register) -> $t {
                simd.$largest(a)
            }
        }
    )*};
}
lanes! {
    f32: f32s as_simd_f32s as_mut_simd_f32s splat_f32s mul_add_f32s add_f32s mul_f32s reduce_sum_f32s
        abs_f32s max_f32s reduce_max_f32s
    f64: f64s as_simd_f64s as_mut_simd_f64s splat_f64s mul_add_f64s add_f64s mul_f64s reduce_sum_f64s
        abs_f64s max_f64s reduce_max_f64s
}

/// The number of lanes of the largest registers, of f32 in AVX-512.
pub(crate) const LANES_MAX: usize = 16;
/// Sums, or largest elements, that are found in turn, as one instruction waits for the one before it.
const CHAINS: usize = 4;

/// The scalar product of vectors of whole registers.
#[inline(always)]
pub(crate) fn dot_of_registers<T: VectorElement, S: Simd>(simd: S, a: &[T::Register<S>], b: &[T::Register<S>]) -> T {
    let mut sums = [T::splat_lanes(simd, T::zero_impl()); CHAINS];
    let (firsts, seconds) = (a.chunks_exact(CHAINS), b.chunks_exact(CHAINS));
    for (sum, (x, y)) in sums.iter_mut().zip(firsts.remainder().iter().zip(seconds.remainder())) {
        *sum = T::multiply_add(simd, *x, *y, *sum);
    }
    for (x, y) in firsts.zip(seconds) {
        for i in 0..CHAINS {
            sums[i] = T::multiply_add(simd, x[i], y[i], sums[i]);
        }
    }
    let [a, b, c, d] = sums;
    T::sum_of_lanes(simd, T::add_lanes(simd, T::add_lanes(simd, a, b), T::add_lanes(simd, c, d)))
}

/// The largest absolute value of a vector of whole registers.
#[inline(always)]
pub(crate) fn largest_of_registers<T: VectorElement, S: Simd>(simd: S, all: &[T::Register<S>]) -> T {
    let mut largest = [T::splat_lanes(simd, T::zero_impl()); CHAINS];
    let chunks = all.chunks_exact(CHAINS);
    for (most, x) in largest.iter_mut().zip(chunks.remainder()) {
        *most = T::larger_lanes(simd, T::absolute_lanes(simd, *x), *most);
    }
    for x in chunks {
        for i in 0..CHAINS {
            largest[i] = T::larger_lanes(simd, T::absolute_lanes(simd, x[i]), largest[i]);
        }
    }
    let [a, b, c, d] = largest;
    T::largest_of_lanes(simd, T::larger_lanes(simd, T::larger_lanes(simd, a, b), T::larger_lanes(simd, c, d)))
}

/// Columns of a matrix as registers.
pub(crate) type RegisterColumns<'a, T, S, const N: usize> = [&'a mut [<T as VectorElement>::Register<S>]; N];

/// Columns of `len` elements each, a multiple of the lanes, as registers from register `from` on; and the rest.
#[inline(always)]
pub(crate) fn split_columns<T: VectorElement, S: Simd, const N: usize>(
    mut elements: &mut [T],
    len: usize,
    from: usize,
) -> (RegisterColumns<'_, T, S, N>, &mut [T]) {
    let columns = std::array::from_fn(|_| {
        let (own, rest) = std::mem::take(&mut elements).split_at_mut(len);
        elements = rest;
        &mut T::registers_mut::<S>(own).0[from..]
    });
    (columns, elements)
}
