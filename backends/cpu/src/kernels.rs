//! The inner loops of elementwise ops: a function for each op, dtype and level of vector instructions, over contiguous
//! elements.
//!
//! The bodies are generic and inlined into functions that enable a level's instructions, so that the compiler
//! vectorises each for that level. The level is chosen once, when a backend starts. All levels compute the same bits:
//! no operations are contracted or reassociated except where the op table says so.

use gt_ops::integers::{Int, KernelBool};
use gt_ops::math::{Real, Std};
use gt_ops::row::{IntKernel, RealKernel, TestKernel, kernels};
use gt_ops::{DType, Op, for_each_elementwise};
use std::mem::MaybeUninit;
use std::slice;

/// Computes `n` elements. If bit `i` of `splat` is set, operand `i` is a single element that is read for all. Ops of
/// one operand accept no splat one.
///
/// # Safety
/// `out` is writable and the operands are readable for their elements, and `out` overlaps none of them.
pub type Kernel = unsafe fn(out: *mut u8, operands: [*const u8; 3], splat: u8, n: usize);

/// The kernels of one [`SimdLevel`].
pub struct KernelTable {
    /// Elementwise kernels by [`Op`] and [`DType`]. Those of `f16` and `bf16` take and return `f32`; predicates return
    /// bools.
    elementwise: Vec<[Option<Kernel>; 10]>,
    /// Casts by source and target dtype; half precisions have none.
    cast: [[Option<Kernel>; 10]; 10],
    /// `where`, by the binary logarithm of the choices' element size.
    select: [Kernel; 4],
    /// Products and quotients of pairs of `f32` and `f64`, the parts of complex numbers. Here `n` counts the parts, and
    /// no operand is splat.
    complex: [[Kernel; 2]; 2],
    /// Products and quotients of pairs of `f32`, each pair an element of 8 bytes.
    complex_pairs: [Kernel; 2],
    /// Conversions from `f16` and `bf16` to `f32`.
    pub widen: [Kernel; 2],
    /// Conversions from `f32` to `f16` and `bf16`.
    pub narrow: [Kernel; 2],
}

/// The vector instructions that a set of kernels uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimdLevel {
    /// The instructions that every CPU of the architecture has.
    Baseline,
    /// Registers of 256 bits: AVX2, FMA and F16C.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// Registers of 512 bits: AVX-512 F, BW, DQ and VL.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl SimdLevel {
    /// The levels that this machine has, best last.
    pub fn available() -> Vec<SimdLevel> {
        let all = [
            SimdLevel::Baseline,
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Avx2,
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Avx512,
        ];
        all.into_iter().filter(SimdLevel::runs_here).collect()
    }

    fn runs_here(&self) -> bool {
        match self {
            SimdLevel::Baseline => true,
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Avx2 => {
                is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c")
            }
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Avx512 => {
                SimdLevel::Avx2.runs_here()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
            }
        }
    }
}

impl KernelTable {
    /// The kernels of a level that this machine has.
    pub fn of(level: SimdLevel) -> KernelTable {
        match level {
            SimdLevel::Baseline => baseline::kernels(),
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Avx2 => avx2::kernels(),
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Avx512 => avx512::kernels(),
        }
    }
    /// The kernel of an elementwise op.
    #[inline]
    pub fn elementwise(&self, op: Op, dtype: DType) -> Option<Kernel> {
        self.elementwise.get(op as usize)?[dtype as usize]
    }
    /// The kernel of a cast. Half precisions have none, and are cast through `f32`.
    pub fn cast(&self, from: DType, to: DType) -> Option<Kernel> {
        self.cast[from as usize][to as usize]
    }
    /// The kernel of a product or a quotient of complex numbers with parts of `dtype`, for elements that are parts.
    pub fn complex(&self, op: Op, dtype: DType) -> Option<Kernel> {
        let [single, double] = self.complex[usize::from(op == Op::ComplexDiv)];
        match dtype {
            DType::F32 => Some(single),
            DType::F64 => Some(double),
            _ => None,
        }
    }
    /// The kernel of a product or a quotient of complex numbers with parts of `f32`, for elements that are pairs.
    pub fn complex_pairs(&self, op: Op) -> Kernel {
        self.complex_pairs[usize::from(op == Op::ComplexDiv)]
    }
    /// The kernel of `where` for choices of `size` bytes.
    pub fn select(&self, size: usize) -> Kernel {
        self.select[size.trailing_zeros() as usize & 3]
    }
}

/// The computation of one element of a loop. It is a trait rather than a closure so that it is always inlined: a call
/// would keep the loop from being vectorised.
trait Body1<A, O> {
    fn call(a: A) -> O;
}
trait Body2<A, O> {
    fn call(a: A, b: A) -> O;
}
trait Body3<A, B, O> {
    fn call(a: A, b: B, c: B) -> O;
}

/// The kernel `K` of the op table on floats.
struct OnReals<K>(K);
/// The kernel `K` of the op table on floats, by the standard library's functions.
struct OnStd<K>(K);
/// The kernel `K` of the op table on integers.
struct OnInts<K>(K);
/// The predicate `K` of the op table on floats.
struct TestReals<K>(K);
/// The predicate `K` of the op table on integers.
struct TestInts<K>(K);
/// The `where` op.
struct Choose;
/// A cast.
struct Convert;
struct WidenF16;
struct WidenBf16;
struct NarrowF16;
struct NarrowBf16;
/// An [`ExactQuotient`].
struct OnExact<Q>(Q);
/// Products and quotients of complex numbers.
struct ComplexProduct;
struct ComplexQuotient;
/// The real and the imaginary part of a complex number.
#[derive(Clone, Copy)]
#[repr(C)]
struct ComplexPair<R>(R, R);
/// Powers of 2, 3, 1/2, -1 and -2.
struct Square;
struct Cube;
struct Root;
struct Inverse;
struct InverseSquare;

macro_rules! powers {
    ($($name:ident: |$x:ident| $power:expr;)*) => {$(
        impl<R: Real> Body1<R, R> for $name {
            #[inline(always)]
            fn call($x: R) -> R {
                $power
            }
        }
    )*};
}
powers! {
    Square: |x| x * x;
    Cube: |x| x * x * x;
    // A power is positive where its base is -0, and infinite where that is.
    Root: |x| (if x == -R::INFINITY { R::INFINITY } else { x }).sqrt() + R::ZERO;
    Inverse: |x| R::ONE / x;
    InverseSquare: |x| R::ONE / (x * x);
}

macro_rules! bodies {
    ($($body:ident is $trait:path, $t:ident: $kind:ident: $kernel:ident<$n:literal>::$f:ident($($x:ident),*) -> $o:ty;)*) => {$(
        impl<K: $kernel<$n>, $t: $kind> $trait for $body<K> {
            #[inline(always)]
            fn call($($x: $t),*) -> $o {
                K::$f([$($x),*]).into()
            }
        }
    )*};
}
bodies! {
    OnReals is Body1<R, R>, R: Real: RealKernel<1>::real(a) -> R;
    OnReals is Body2<R, R>, R: Real: RealKernel<2>::real(a, b) -> R;
    OnReals is Body3<R, R, R>, R: Real: RealKernel<3>::real(a, b, c) -> R;
    OnInts is Body1<I, I>, I: Int: IntKernel<1>::int(a) -> I;
    OnInts is Body2<I, I>, I: Int: IntKernel<2>::int(a, b) -> I;
    OnInts is Body3<I, I, I>, I: Int: IntKernel<3>::int(a, b, c) -> I;
    TestReals is Body1<R, u8>, R: Real: TestKernel<1>::real(a) -> u8;
    TestReals is Body2<R, u8>, R: Real: TestKernel<2>::real(a, b) -> u8;
    TestInts is Body1<I, u8>, I: Int: TestKernel<1>::int(a) -> u8;
    TestInts is Body2<I, u8>, I: Int: TestKernel<2>::int(a, b) -> u8;
}
impl<K: RealKernel<1>, R> Body1<R, R> for OnStd<K>
where
    Std<R>: Real,
{
    #[inline(always)]
    fn call(a: R) -> R {
        K::real([Std(a)]).0
    }
}
impl<K: RealKernel<2>, R> Body2<R, R> for OnStd<K>
where
    Std<R>: Real,
{
    #[inline(always)]
    fn call(a: R, b: R) -> R {
        K::real([Std(a), Std(b)]).0
    }
}
impl<R: Real> Body2<ComplexPair<R>, ComplexPair<R>> for ComplexProduct {
    #[inline(always)]
    fn call(ComplexPair(a, b): ComplexPair<R>, ComplexPair(c, d): ComplexPair<R>) -> ComplexPair<R> {
        ComplexPair(a * c - b * d, a * d + b * c)
    }
}
/// By the method of Smith (1962), which scales the divisor: its square would overflow.
impl<R: Real> Body2<ComplexPair<R>, ComplexPair<R>> for ComplexQuotient {
    #[inline(always)]
    fn call(ComplexPair(a, b): ComplexPair<R>, ComplexPair(c, d): ComplexPair<R>) -> ComplexPair<R> {
        let first = c.abs() >= d.abs();
        let (large, small) = if first { (c, d) } else { (d, c) };
        let ratio = small / large;
        let ratio = if large == R::ZERO { R::ZERO } else { ratio };
        let divisor = large + small * ratio;
        let re = if first { a + b * ratio } else { a * ratio + b };
        let im = if first { b - a * ratio } else { b * ratio - a };
        ComplexPair(re / divisor, im / divisor)
    }
}
impl<T> Body3<u8, T, T> for Choose {
    #[inline(always)]
    fn call(condition: u8, a: T, b: T) -> T {
        if condition != 0 { a } else { b }
    }
}
impl<A: CastElement, O: CastElement> Body1<A, O> for Convert {
    #[inline(always)]
    fn call(a: A) -> O {
        a.cast()
    }
}
impl Body1<u16, f32> for WidenF16 {
    #[inline(always)]
    fn call(a: u16) -> f32 {
        f16_to_f32(a)
    }
}
impl Body1<u16, f32> for WidenBf16 {
    #[inline(always)]
    fn call(a: u16) -> f32 {
        bf16_to_f32(a)
    }
}
impl Body1<f32, u16> for NarrowF16 {
    #[inline(always)]
    fn call(a: f32) -> u16 {
        f32_to_f16(a)
    }
}
impl Body1<f32, u16> for NarrowBf16 {
    #[inline(always)]
    fn call(a: f32) -> u16 {
        f32_to_bf16(a)
    }
}

/// Writes a function of an index to each element. The loop goes over indices, since the compiler does not inline
/// iterators over several slices into functions of a level: they cost two calls for each run of a broadcast operand.
macro_rules! each_element {
    ($out:ident, $i:ident => $value:expr) => {
        for $i in 0..$out.len() {
            $out[$i].write($value);
        }
    };
}

/// # Safety
/// Same as for [`Kernel`], with an operand of type `A` and a result of type `O`.
#[inline(always)]
unsafe fn map1<B: Body1<A, O>, A: Copy, O>(out: *mut u8, operands: [*const u8; 3], n: usize) {
    // The arguments of a function tell the compiler that they do not overlap.
    #[inline(always)]
    fn all<B: Body1<A, O>, A: Copy, O>(out: &mut [MaybeUninit<O>], a: &[A]) {
        let a = &a[..out.len()];
        each_element!(out, i => B::call(a[i]));
    }
    // SAFETY: by the kernel's contract `out` and the operands are valid for `n` elements of these types.
    let (out, a) = unsafe {
        (slice::from_raw_parts_mut(out.cast::<MaybeUninit<O>>(), n), slice::from_raw_parts(operands[0].cast::<A>(), n))
    };
    all::<B, A, O>(out, a);
}

/// # Safety
/// Same as for [`Kernel`], with operands of type `A` and a result of type `O`.
#[inline(always)]
unsafe fn map2<B: Body2<A, O>, A: Copy, O: Copy>(out: *mut u8, operands: [*const u8; 3], splat: u8, n: usize) {
    #[inline(always)]
    fn both<B: Body2<A, O>, A: Copy, O>(out: &mut [MaybeUninit<O>], a: &[A], b: &[A]) {
        let (a, b) = (&a[..out.len()], &b[..out.len()]);
        each_element!(out, i => B::call(a[i], b[i]));
    }
    #[inline(always)]
    fn second<B: Body2<A, O>, A: Copy, O>(out: &mut [MaybeUninit<O>], a: A, b: &[A]) {
        let b = &b[..out.len()];
        each_element!(out, i => B::call(a, b[i]));
    }
    #[inline(always)]
    fn first<B: Body2<A, O>, A: Copy, O>(out: &mut [MaybeUninit<O>], a: &[A], b: A) {
        let a = &a[..out.len()];
        each_element!(out, i => B::call(a[i], b));
    }
    let (a, b) = (operands[0].cast::<A>(), operands[1].cast::<A>());
    // SAFETY: by the kernel's contract `out` is writable for `n` elements of `O`.
    let out = unsafe { slice::from_raw_parts_mut(out.cast::<MaybeUninit<O>>(), n) };
    // SAFETY: by the kernel's contract a splat operand is a single element, and another is readable for `n`.
    unsafe {
        match splat & 3 {
            0 => both::<B, A, O>(out, slice::from_raw_parts(a, n), slice::from_raw_parts(b, n)),
            1 => second::<B, A, O>(out, *a, slice::from_raw_parts(b, n)),
            2 => first::<B, A, O>(out, slice::from_raw_parts(a, n), *b),
            _ => out.fill(MaybeUninit::new(B::call(*a, *b))),
        }
    }
}

/// # Safety
/// Same as for [`Kernel`], with operands of types `A` and `C` and a result of type `O`.
#[inline(always)]
unsafe fn map3<B: Body3<A, C, O>, A: Copy, C: Copy, O>(out: *mut u8, operands: [*const u8; 3], splat: u8, n: usize) {
    /// With `FIRST`, `SECOND` or `THIRD`, the operand is a single element.
    #[inline(always)]
    fn all<B: Body3<A, C, O>, A: Copy, C: Copy, O, const FIRST: bool, const SECOND: bool, const THIRD: bool>(
        out: &mut [MaybeUninit<O>],
        a: &[A],
        b: &[C],
        c: &[C],
    ) {
        let len = |single: bool| if single { 1 } else { out.len() };
        let (a, b, c) = (&a[..len(FIRST)], &b[..len(SECOND)], &c[..len(THIRD)]);
        each_element!(out, i => B::call(
            a[if FIRST { 0 } else { i }],
            b[if SECOND { 0 } else { i }],
            c[if THIRD { 0 } else { i }],
        ));
    }
    if n == 0 {
        return;
    }
    let len = |i: usize| if splat >> i & 1 == 1 { 1 } else { n };
    // SAFETY: by the kernel's contract `out` and the operands are valid for `n` elements of these types, or for one
    // where `splat` says so.
    let (out, a, b, c) = unsafe {
        (
            slice::from_raw_parts_mut(out.cast::<MaybeUninit<O>>(), n),
            slice::from_raw_parts(operands[0].cast::<A>(), len(0)),
            slice::from_raw_parts(operands[1].cast::<C>(), len(1)),
            slice::from_raw_parts(operands[2].cast::<C>(), len(2)),
        )
    };
    match splat & 7 {
        0 => all::<B, A, C, O, false, false, false>(out, a, b, c),
        1 => all::<B, A, C, O, true, false, false>(out, a, b, c),
        2 => all::<B, A, C, O, false, true, false>(out, a, b, c),
        3 => all::<B, A, C, O, true, true, false>(out, a, b, c),
        4 => all::<B, A, C, O, false, false, true>(out, a, b, c),
        5 => all::<B, A, C, O, true, false, true>(out, a, b, c),
        6 => all::<B, A, C, O, false, true, true>(out, a, b, c),
        _ => all::<B, A, C, O, true, true, true>(out, a, b, c),
    }
}

/// Ops whose vectorised form is accurate only for arguments up to [`Real::PERIODIC_MAX`].
const PERIODIC: [Op; 3] = [Op::Sin, Op::Cos, Op::Tan];
/// Ops whose vectorised form is accurate only for quotients up to [`Real::QUOTIENT_MAX`].
const QUOTIENT: [Op; 3] = [Op::FloorDivide, Op::Remainder, Op::Fmod];
/// The number of elements that are checked together for the range in which the vectorised form is accurate. Only those
/// beyond it are computed again by the standard library's function, so that no result depends on its neighbours.
const CAREFUL_BLOCK: usize = 1024;

/// A quotient or a remainder of integers below [`EXACT_END`], computed in f64: vectors have no division of integers.
///
/// `a / b`, rounded, lies on the same side of every integer as the quotient itself, which differs from them by at least
/// `1 / b`, while the rounding error is at most `a / b * 2^-53`. The remainder is exact, as all three numbers are.
trait ExactQuotient {
    /// The result for the quotient rounded towards 0, the remainder and the divisor.
    fn of(quotient: f64, remainder: f64, divisor: f64) -> f64;
}
struct FloorQuotient;
struct FloorRemainder;
struct TruncatedRemainder;
/// The magnitudes of integers that have such quotients are less than this.
const EXACT_END: i64 = 1 << 51;

/// Whether a remainder has not the sign of the divisor.
#[inline(always)]
fn is_off(remainder: f64, divisor: f64) -> bool {
    (remainder != 0.0) & ((remainder < 0.0) != (divisor < 0.0))
}
impl ExactQuotient for FloorQuotient {
    #[inline(always)]
    fn of(quotient: f64, remainder: f64, divisor: f64) -> f64 {
        if is_off(remainder, divisor) { quotient - 1.0 } else { quotient }
    }
}
impl ExactQuotient for FloorRemainder {
    #[inline(always)]
    fn of(_: f64, remainder: f64, divisor: f64) -> f64 {
        if is_off(remainder, divisor) { remainder + divisor } else { remainder }
    }
}
impl ExactQuotient for TruncatedRemainder {
    #[inline(always)]
    fn of(_: f64, remainder: f64, _: f64) -> f64 {
        remainder
    }
}
impl<Q: ExactQuotient, I: Int> Body2<I, I> for OnExact<Q> {
    #[inline(always)]
    fn call(a: I, b: I) -> I {
        /// Added to a whole number of less than 2^51, it leaves that number in the last bits.
        const SHIFT: f64 = 6_755_399_441_055_744.0;
        let (x, y) = (a.to_i64() as f64, b.to_i64() as f64);
        let quotient = (x / y).trunc();
        let result = Q::of(quotient, x - quotient * y, y);
        // As in `Int`, the result is 0 where the divisor is, which callers check.
        let result = if y == 0.0 { 0.0 } else { result };
        I::from_i64((result + SHIFT).to_bits().wrapping_sub(SHIFT.to_bits()) as i64)
    }
}

/// An element type that a cast converts from or to.
trait CastElement: Copy {
    fn cast<T: CastElement>(self) -> T;
    fn from_int(x: i64) -> Self;
    fn from_f32(x: f32) -> Self;
    fn from_f64(x: f64) -> Self;
}

/// `x as i32` and the like: truncated, saturated at the ends of the range, and 0 for NaN. The compiler does not
/// vectorise those, which takes ten times as long.
macro_rules! truncations {
    ($($name:ident($float:ty) -> $int:ty, from -$end:literal;)*) => {$(
        #[inline(always)]
        fn $name(x: $float) -> $int {
            let x = if x.is_nan() { 0.0 } else { x };
            let is_beyond = x >= $end;
            let x = if is_beyond { 0.0 } else { x };
            let x = if x < -$end { -$end } else { x };
            // SAFETY: `x` is a number from `-$end`, the least integer, to below `$end`, which follows the greatest.
            let truncated = unsafe { x.to_int_unchecked() };
            if is_beyond { <$int>::MAX } else { truncated }
        }
    )*};
}
truncations! {
    i32_of_f32(f32) -> i32, from -2147483648.0;
    i32_of_f64(f64) -> i32, from -2147483648.0;
    i64_of_f32(f32) -> i64, from -9223372036854775808.0;
    i64_of_f64(f64) -> i64, from -9223372036854775808.0;
}

macro_rules! int_element {
    ($($t:ty: $of_f32:ident $of_f64:ident),*) => {$(
        impl CastElement for $t {
            #[inline(always)]
            fn cast<T: CastElement>(self) -> T {
                T::from_int(self as i64)
            }
            #[inline(always)]
            fn from_int(x: i64) -> Self {
                x as $t
            }
            // The value is truncated to 32 bits, or 64 for `i64`, and then wraps to `$t`.
            #[inline(always)]
            fn from_f32(x: f32) -> Self {
                $of_f32(x) as $t
            }
            #[inline(always)]
            fn from_f64(x: f64) -> Self {
                $of_f64(x) as $t
            }
        }
    )*};
}
int_element! {
    u8: i32_of_f32 i32_of_f64, i8: i32_of_f32 i32_of_f64, i16: i32_of_f32 i32_of_f64, i32: i32_of_f32 i32_of_f64,
    i64: i64_of_f32 i64_of_f64
}

impl CastElement for KernelBool {
    #[inline(always)]
    fn cast<T: CastElement>(self) -> T {
        T::from_int(self.0 as i64)
    }
    #[inline(always)]
    fn from_int(x: i64) -> Self {
        KernelBool((x != 0) as u8)
    }
    #[inline(always)]
    fn from_f32(x: f32) -> Self {
        KernelBool((x != 0.0) as u8)
    }
    #[inline(always)]
    fn from_f64(x: f64) -> Self {
        KernelBool((x != 0.0) as u8)
    }
}

impl CastElement for f32 {
    #[inline(always)]
    fn cast<T: CastElement>(self) -> T {
        T::from_f32(self)
    }
    #[inline(always)]
    fn from_int(x: i64) -> Self {
        x as f32
    }
    #[inline(always)]
    fn from_f32(x: f32) -> Self {
        x
    }
    #[inline(always)]
    fn from_f64(x: f64) -> Self {
        x as f32
    }
}

impl CastElement for f64 {
    #[inline(always)]
    fn cast<T: CastElement>(self) -> T {
        T::from_f64(self)
    }
    #[inline(always)]
    fn from_int(x: i64) -> Self {
        x as f64
    }
    #[inline(always)]
    fn from_f32(x: f32) -> Self {
        x as f64
    }
    #[inline(always)]
    fn from_f64(x: f64) -> Self {
        x
    }
}

#[inline(always)]
fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits((bits as u32) << 16)
}

/// Rounds to nearest, ties to even; NaN stays NaN.
#[inline(always)]
fn f32_to_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1));
    (if x.is_nan() { bits | 0x0040_0000 } else { rounded } >> 16) as u16
}

/// Converts exactly, after Giesen, "half to float, fast" (2012).
#[inline(always)]
fn f16_to_f32(bits: u16) -> f32 {
    let magnitude = (bits as u32 & 0x7fff) << 13;
    // The product moves the exponent's bias, and normalises numbers that are subnormal in half precision.
    let finite = (f32::from_bits(magnitude) * f32::from_bits((127 + 112) << 23)).to_bits();
    // NaN becomes quiet, as by the CPU's own conversion.
    let special = 0x7f80_0000 | magnitude | if magnitude > 0x7c00 << 13 { 0x0040_0000 } else { 0 };
    let magnitude = if magnitude >= 0x7c00 << 13 { special } else { finite };
    f32::from_bits(magnitude | (bits as u32 & 0x8000) << 16)
}

/// Rounds to nearest, ties to even, after Giesen, "float to half, fast 3, rtne" (2012).
#[inline(always)]
fn f32_to_f16(x: f32) -> u16 {
    const SUBNORMAL: u32 = (127 - 15 + (23 - 10) + 1) << 23;
    let bits = x.to_bits();
    let magnitude = bits & 0x7fff_ffff;
    // The sum rounds at the last bit of a subnormal half.
    let subnormal = (f32::from_bits(magnitude) + f32::from_bits(SUBNORMAL)).to_bits().wrapping_sub(SUBNORMAL);
    let odd = magnitude >> 13 & 1;
    let normal = magnitude.wrapping_sub((127 - 15) << 23).wrapping_add(0xfff + odd) >> 13;
    let special = if magnitude > 0x7f80_0000 { 0x7e00 | magnitude >> 13 & 0x3ff } else { 0x7c00 };
    let finite = if magnitude < 113 << 23 { subnormal } else { normal };
    let half = if magnitude >= (127 + 16) << 23 { special } else { finite };
    (half | bits >> 16 & 0x8000) as u16
}

/// [`f16_to_f32`] and [`f32_to_f16`] of many numbers by the CPU's own instructions.
#[cfg(target_arch = "x86_64")]
mod f16_registers {
    use crate::kernels::{f16_to_f32, f32_to_f16};
    use std::arch::x86_64::*;

    macro_rules! conversions {
        ($widen:ident $narrow:ident, $enable:literal, $n:literal, $load_half:ident $widened:ident $store:ident,
         $load:ident $narrowed:ident $store_half:ident, $rounding:expr) => {
            #[inline]
            #[target_feature(enable = $enable)]
            pub unsafe fn $widen(out: *mut u8, operands: [*const u8; 3], n: usize) {
                let (out, from, mut i) = (out.cast::<f32>(), operands[0].cast::<u16>(), 0);
                // SAFETY: both are valid for `n` numbers by the kernel's contract, and `i + $n <= n` or `i < n`.
                unsafe {
                    while i + $n <= n {
                        $store(out.add(i), $widened($load_half(from.add(i).cast())));
                        i += $n;
                    }
                    while i < n {
                        out.add(i).write(f16_to_f32(from.add(i).read()));
                        i += 1;
                    }
                }
            }
            #[inline]
            #[target_feature(enable = $enable)]
            pub unsafe fn $narrow(out: *mut u8, operands: [*const u8; 3], n: usize) {
                let (out, from, mut i) = (out.cast::<u16>(), operands[0].cast::<f32>(), 0);
                // SAFETY: both are valid for `n` numbers by the kernel's contract, and `i + $n <= n` or `i < n`.
                unsafe {
                    while i + $n <= n {
                        let half = $narrowed::<{ $rounding }>($load(from.add(i)));
                        $store_half(out.add(i).cast(), half);
                        i += $n;
                    }
                    while i < n {
                        out.add(i).write(f32_to_f16(from.add(i).read()));
                        i += 1;
                    }
                }
            }
        };
    }
    conversions! { widen_avx2 narrow_avx2, "avx2,fma,f16c", 8, _mm_loadu_si128 _mm256_cvtph_ps _mm256_storeu_ps,
    _mm256_loadu_ps _mm256_cvtps_ph _mm_storeu_si128, _MM_FROUND_TO_NEAREST_INT }
    conversions! { widen_avx512 narrow_avx512, "avx2,fma,f16c,avx512f", 16, _mm256_loadu_si256 _mm512_cvtph_ps _mm512_storeu_ps,
    _mm512_loadu_ps _mm512_cvtps_ph _mm256_storeu_si256, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }
}

/// # Safety
/// Same as for [`Kernel`], with an operand of `f16` and a result of `f32`.
#[inline(always)]
unsafe fn widen_f16_plain(out: *mut u8, operands: [*const u8; 3], n: usize) {
    // SAFETY: the contract is the same.
    unsafe { map1::<WidenF16, u16, f32>(out, operands, n) }
}

/// # Safety
/// Same as for [`Kernel`], with an operand of `f32` and a result of `f16`.
#[inline(always)]
unsafe fn narrow_f16_plain(out: *mut u8, operands: [*const u8; 3], n: usize) {
    // SAFETY: the contract is the same.
    unsafe { map1::<NarrowF16, f32, u16>(out, operands, n) }
}

/// Defines the module of one level: its kernels, compiled with the level's instructions enabled.
macro_rules! level {
    ($(#[$enable:meta])* $name:ident $widen_f16:path, $narrow_f16:path) => {
        mod $name {
            use crate::kernels::*;

            $(#[$enable])*
            unsafe fn real1<K: RealKernel<1>, R: Real>(out: *mut u8, operands: [*const u8; 3], _splat: u8, n: usize) {
                // SAFETY: the CPU has this level's instructions: `SimdLevel::runs_here` checked them. The contract is
                // `Kernel`'s.
                unsafe { crate::kernels::map1::<OnReals<K>, R, R>(out, operands, n) }
            }
            $(#[$enable])*
            unsafe fn periodic1<K: RealKernel<1>, R: Real>(out: *mut u8, operands: [*const u8; 3], _splat: u8, n: usize)
            where
                Std<R>: Real,
            {
                let (mut at, size) = (0, size_of::<R>());
                while at < n {
                    let len = CAREFUL_BLOCK.min(n - at);
                    // SAFETY: `at + len <= n`, and by `Kernel`'s contract `out` and the operand are valid for `n`
                    // elements.
                    unsafe {
                        let (out, from) = (out.add(at * size), operands[0].add(at * size));
                        let block = slice::from_raw_parts(from.cast::<R>(), len);
                        let past = |x: &R| x.abs() > R::PERIODIC_MAX;
                        crate::kernels::map1::<OnReals<K>, R, R>(out, [from; 3], len);
                        if block.iter().fold(false, |wild, x| wild | past(x)) {
                            for i in (0..len).filter(|i| past(&block[*i])) {
                                crate::kernels::map1::<OnStd<K>, R, R>(out.add(i * size), [from.add(i * size); 3], 1);
                            }
                        }
                    }
                    at += len;
                }
            }
            $(#[$enable])*
            unsafe fn real2<K: RealKernel<2>, R: Real>(out: *mut u8, operands: [*const u8; 3], splat: u8, n: usize) {
                // SAFETY: the table takes this instance only where the CPU has its instructions, and the contract is
                // `Kernel`'s.
                unsafe { crate::kernels::map2::<OnReals<K>, R, R>(out, operands, splat, n) }
            }
            $(#[$enable])*
            unsafe fn quotient2<K: RealKernel<2>, R: Real>(out: *mut u8, operands: [*const u8; 3], splat: u8, n: usize)
            where
                Std<R>: Real,
            {
                let (mut at, size) = (0, size_of::<R>());
                while at < n {
                    let len = CAREFUL_BLOCK.min(n - at);
                    // SAFETY: `at + len <= n`, and by `Kernel`'s contract `out` and each operand that is not splat
                    // are valid for `n` elements.
                    unsafe {
                        let [a, b] = [0, 1].map(|i| operands[i].add(if splat >> i & 1 == 1 { 0 } else { at * size }));
                        let [step_a, step_b] = [0, 1].map(|i| (splat >> i & 1 == 0) as usize);
                        let (x, y) = (a.cast::<R>(), b.cast::<R>());
                        let past = |i: usize| (*x.add(i * step_a)).abs() > R::QUOTIENT_MAX * (*y.add(i * step_b)).abs();
                        let out = out.add(at * size);
                        crate::kernels::map2::<OnReals<K>, R, R>(out, [a, b, b], splat, len);
                        if (0..len).fold(false, |wild, i| wild | past(i)) {
                            for i in (0..len).filter(|i| past(*i)) {
                                let [a, b] = [a.add(i * step_a * size), b.add(i * step_b * size)];
                                crate::kernels::map2::<OnStd<K>, R, R>(out.add(i * size), [a, b, b], splat, 1);
                            }
                        }
                    }
                    at += len;
                }
            }
            /// A power whose exponent is one of the numbers that have a simpler formula, as in PyTorch.
            $(#[$enable])*
            unsafe fn power2<R: Real>(out: *mut u8, operands: [*const u8; 3], splat: u8, n: usize) {
                // SAFETY: the table takes this instance only where the CPU has its instructions, and the contract is
                // `Kernel`'s, by which a splat operand is an element.
                unsafe {
                    let exponent = if splat & 2 != 0 { operands[1].cast::<R>().read().to_f64() } else { f64::NAN };
                    match exponent {
                        2.0 => crate::kernels::map1::<Square, R, R>(out, operands, n),
                        3.0 => crate::kernels::map1::<Cube, R, R>(out, operands, n),
                        0.5 => crate::kernels::map1::<Root, R, R>(out, operands, n),
                        -1.0 => crate::kernels::map1::<Inverse, R, R>(out, operands, n),
                        -2.0 => crate::kernels::map1::<InverseSquare, R, R>(out, operands, n),
                        _ => crate::kernels::map2::<OnReals<kernels::Pow>, R, R>(out, operands, splat, n),
                    }
                }
            }
            /// Quotients of integers; blocks in which all are exact in f64 are computed in vectors of these.
            $(#[$enable])*
            unsafe fn exact2<K: IntKernel<2>, Q: ExactQuotient, I: Int>(
                out: *mut u8,
                operands: [*const u8; 3],
                splat: u8,
                n: usize,
            ) {
                let (mut at, size) = (0, size_of::<I>());
                while at < n {
                    let len = CAREFUL_BLOCK.min(n - at);
                    // SAFETY: `at + len <= n`, and by `Kernel`'s contract `out` and each operand that is not splat are
                    // valid for `n` elements.
                    unsafe {
                        let [a, b] = [0, 1].map(|i| operands[i].add(if splat >> i & 1 == 1 { 0 } else { at * size }));
                        let all = |from: *const u8, i: usize| {
                            slice::from_raw_parts(from.cast::<I>(), if splat >> i & 1 == 1 { 1 } else { len })
                        };
                        let past = |x: &I| (x.to_i64().wrapping_add(EXACT_END) as u64) >= 2 * EXACT_END as u64;
                        let any_past = |all: &[I]| all.iter().fold(false, |any, x| any | past(x));
                        let out = out.add(at * size);
                        if size == 8 && (any_past(all(a, 0)) || any_past(all(b, 1))) {
                            crate::kernels::map2::<OnInts<K>, I, I>(out, [a, b, b], splat, len);
                        } else {
                            crate::kernels::map2::<OnExact<Q>, I, I>(out, [a, b, b], splat, len);
                        }
                    }
                    at += len;
                }
            }
            /// The kernels for [`exact2`], by dtype.
            fn exact<K: IntKernel<2>, Q: ExactQuotient>(table: &mut [[Option<Kernel>; 10]], op: Op) {
                for (dtype, kernel) in [
                    (DType::U8, exact2::<K, Q, u8> as Kernel),
                    (DType::I8, exact2::<K, Q, i8>),
                    (DType::I16, exact2::<K, Q, i16>),
                    (DType::I32, exact2::<K, Q, i32>),
                    (DType::I64, exact2::<K, Q, i64>),
                ] {
                    table[op as usize][dtype as usize] = Some(kernel);
                }
            }
            $(#[$enable])*
            unsafe fn real3<K: RealKernel<3>, R: Real>(out: *mut u8, operands: [*const u8; 3], splat: u8, n: usize) {
                // SAFETY: the table takes this instance only where the CPU has its instructions, and the contract is
                // `Kernel`'s.
                unsafe { crate::kernels::map3::<OnReals<K>, R, R, R>(out, operands, splat, n) }
            }
            $(#[$enable])*
            unsafe fn int1<K: IntKernel<1>, I: Int>(out: *mut u8, operands: [*const u8; 3], _splat: u8, n: usize) {
                // SAFETY: the table takes this instance only where the CPU has its instructions, and the contract is
                // `Kernel`'s.
                unsafe { crate::kernels::map1::<OnInts<K>, I, I>(out, operands, n) }
            }
            $(#[$enable])*
            unsafe fn int2<K: IntKernel<2>, I: Int>(out: *mut u8, operands: [*const u8; 3], splat: u8, n: usize) {
                // SAFETY: the table takes this instance only where the CPU has its instructions, and the contract is
                // `Kernel`'s.
                unsafe { crate::kernels::map2::<OnInts<K>, I, I>(out, operands, splat, n) }
            }
            $(#[$enable])*
            unsafe fn int3<K: IntKernel<3>, I: Int>(out: *mut u8, operands: [*const u8; 3], splat: u8, n: usize) {
                // SAFETY: the table takes this instance only where the CPU has its instructions, and the contract is
                // `Kernel`'s.
                unsafe { crate::kernels::map3::<OnInts<K>, I, I, I>(out, operands, splat, n) }
            }
            /// A function of complex numbers, for `n` elements that are pairs of parts.
            $(#[$enable])*
            unsafe fn complex_pairs2<B: Body2<ComplexPair<R>, ComplexPair<R>>, R: Real>(
                out: *mut u8,
                operands: [*const u8; 3],
                splat: u8,
                n: usize,
            ) {
                // SAFETY: the table takes this instance only where the CPU has its instructions, and the contract is
                // `Kernel`'s.
                unsafe { crate::kernels::map2::<B, ComplexPair<R>, ComplexPair<R>>(out, operands, splat, n) }
            }
            /// A function of complex numbers, for `n` elements that are parts.
            $(#[$enable])*
            unsafe fn complex2<B: Body2<ComplexPair<R>, ComplexPair<R>>, R: Real>(
                out: *mut u8,
                operands: [*const u8; 3],
                _splat: u8,
                n: usize,
            ) {
                // SAFETY: the table takes this instance only where the CPU has its instructions, and the contract is
                // `Kernel`'s: `n` elements are `n / 2` pairs, which are aligned as their parts.
                unsafe { crate::kernels::map2::<B, ComplexPair<R>, ComplexPair<R>>(out, operands, 0, n / 2) }
            }
            $(#[$enable])*
            unsafe fn real_test1<K: TestKernel<1>, R: Real>(out: *mut u8, operands: [*const u8; 3], _splat: u8, n: usize) {
                // SAFETY: the table takes this instance only where the CPU has its instructions, and the contract is
                // `Kernel`'s.
                unsafe { crate::kernels::map1::<TestReals<K>, R, u8>(out, operands, n) }
            }
            $(#[$enable])*
            unsafe fn real_test2<K: TestKernel<2>, R: Real>(out: *mut u8, operands: [*const u8; 3], splat: u8, n: usize) {
                // SAFETY: the table takes this instance only where the CPU has its instructions, and the contract is
                // `Kernel`'s.
                unsafe { crate::kernels::map2::<TestReals<K>, R, u8>(out, operands, splat, n) }
            }
            $(#[$enable])*
            unsafe fn int_test1<K: TestKernel<1>, I: Int>(out: *mut u8, operands: [*const u8; 3], _splat: u8, n: usize) {
                // SAFETY: the table takes this instance only where the CPU has its instructions, and the contract is
                // `Kernel`'s.
                unsafe { crate::kernels::map1::<TestInts<K>, I, u8>(out, operands, n) }
            }
            $(#[$enable])*
            unsafe fn int_test2<K: TestKernel<2>, I: Int>(out: *mut u8, operands: [*const u8; 3], splat: u8, n: usize) {
                // SAFETY: the table takes this instance only where the CPU has its instructions, and the contract is
                // `Kernel`'s.
                unsafe { crate::kernels::map2::<TestInts<K>, I, u8>(out, operands, splat, n) }
            }
            $(#[$enable])*
            unsafe fn select<T: Copy>(out: *mut u8, operands: [*const u8; 3], splat: u8, n: usize) {
                // SAFETY: the table takes this instance only where the CPU has its instructions, and the contract is
                // `Kernel`'s.
                unsafe { crate::kernels::map3::<Choose, u8, T, T>(out, operands, splat, n) }
            }
            $(#[$enable])*
            unsafe fn cast<A: CastElement, O: CastElement>(out: *mut u8, operands: [*const u8; 3], _splat: u8, n: usize) {
                // SAFETY: the table takes this instance only where the CPU has its instructions, and the contract is
                // `Kernel`'s.
                unsafe { crate::kernels::map1::<Convert, A, O>(out, operands, n) }
            }
            $(#[$enable])*
            unsafe fn widen_bf16(out: *mut u8, operands: [*const u8; 3], _splat: u8, n: usize) {
                // SAFETY: the table takes this instance only where the CPU has its instructions, and the contract is
                // `Kernel`'s.
                unsafe { crate::kernels::map1::<WidenBf16, u16, f32>(out, operands, n) }
            }
            $(#[$enable])*
            unsafe fn narrow_bf16(out: *mut u8, operands: [*const u8; 3], _splat: u8, n: usize) {
                // SAFETY: the table takes this instance only where the CPU has its instructions, and the contract is
                // `Kernel`'s.
                unsafe { crate::kernels::map1::<NarrowBf16, f32, u16>(out, operands, n) }
            }

            $(#[$enable])*
            unsafe fn widen_f16(out: *mut u8, operands: [*const u8; 3], _splat: u8, n: usize) {
                // SAFETY: the table takes this instance only where the CPU has its instructions, and the contract is
                // `Kernel`'s.
                unsafe { $widen_f16(out, operands, n) }
            }
            $(#[$enable])*
            unsafe fn narrow_f16(out: *mut u8, operands: [*const u8; 3], _splat: u8, n: usize) {
                // SAFETY: the table takes this instance only where the CPU has its instructions, and the contract is
                // `Kernel`'s.
                unsafe { $narrow_f16(out, operands, n) }
            }

            fn casts_from<A: CastElement>() -> [Option<Kernel>; 10] {
                [
                    Some(cast::<A, KernelBool>), Some(cast::<A, u8>), Some(cast::<A, i8>), Some(cast::<A, i16>), Some(cast::<A, i32>),
                    Some(cast::<A, i64>), None, None, Some(cast::<A, f32>), Some(cast::<A, f64>),
                ]
            }

            pub fn kernels() -> KernelTable {
                let none = [None; 10];
                let mut elementwise = vec![none; gt_ops::op::WIRE_ID_MAX];
                for_each_elementwise!(fill_table);
                fill(&mut elementwise);
                exact::<kernels::FloorDivide, FloorQuotient>(&mut elementwise, Op::FloorDivide);
                exact::<kernels::Remainder, FloorRemainder>(&mut elementwise, Op::Remainder);
                exact::<kernels::Fmod, TruncatedRemainder>(&mut elementwise, Op::Fmod);
                let powers = &mut elementwise[Op::Pow as usize];
                for dtype in [DType::F16, DType::BF16, DType::F32] {
                    powers[dtype as usize] = Some(power2::<f32>);
                }
                powers[DType::F64 as usize] = Some(power2::<f64>);
                KernelTable {
                    elementwise,
                    cast: [
                        casts_from::<KernelBool>(), casts_from::<u8>(), casts_from::<i8>(), casts_from::<i16>(), casts_from::<i32>(),
                        casts_from::<i64>(), none, none, casts_from::<f32>(), casts_from::<f64>(),
                    ],
                    select: [select::<u8>, select::<u16>, select::<u32>, select::<u64>],
                    complex: [
                        [complex2::<ComplexProduct, f32>, complex2::<ComplexProduct, f64>],
                        [complex2::<ComplexQuotient, f32>, complex2::<ComplexQuotient, f64>],
                    ],
                    complex_pairs: [complex_pairs2::<ComplexProduct, f32>, complex_pairs2::<ComplexQuotient, f32>],
                    widen: [widen_f16, widen_bf16],
                    narrow: [narrow_f16, narrow_bf16],
                }
            }
        }
    };
}

/// The kernels of one op for each dtype.
macro_rules! by_dtype {
    (real $real:ident, $k:ident) => {
        [
            None,
            None,
            None,
            None,
            None,
            None,
            Some($real::<kernels::$k, f32>),
            Some($real::<kernels::$k, f32>),
            Some($real::<kernels::$k, f32>),
            Some($real::<kernels::$k, f64>),
        ]
    };
    (int $int:ident, $k:ident) => {
        [
            Some($int::<kernels::$k, KernelBool>),
            Some($int::<kernels::$k, u8>),
            Some($int::<kernels::$k, i8>),
            Some($int::<kernels::$k, i16>),
            Some($int::<kernels::$k, i32>),
            Some($int::<kernels::$k, i64>),
            None,
            None,
            None,
            None,
        ]
    };
    (both $real:ident, $int:ident, $k:ident) => {
        [
            Some($int::<kernels::$k, KernelBool>),
            Some($int::<kernels::$k, u8>),
            Some($int::<kernels::$k, i8>),
            Some($int::<kernels::$k, i16>),
            Some($int::<kernels::$k, i32>),
            Some($int::<kernels::$k, i64>),
            Some($real::<kernels::$k, f32>),
            Some($real::<kernels::$k, f32>),
            Some($real::<kernels::$k, f32>),
            Some($real::<kernels::$k, f64>),
        ]
    };
}

/// The kernels of an op, by the kind of its formula and its operands.
macro_rules! kernels_of {
    (real $op:ident($a:ident)) => {
        if PERIODIC.contains(&Op::$op) { by_dtype!(real periodic1, $op) } else { by_dtype!(real real1, $op) }
    };
    (real $op:ident($a:ident, $b:ident)) => { by_dtype!(real real2, $op) };
    (real $op:ident($a:ident, $b:ident, $c:ident)) => { by_dtype!(real real3, $op) };
    (number $op:ident($a:ident)) => { by_dtype!(both real1, int1, $op) };
    (number $op:ident($a:ident, $b:ident)) => {
        if QUOTIENT.contains(&Op::$op) {
            by_dtype!(both quotient2, int2, $op)
        } else {
            by_dtype!(both real2, int2, $op)
        }
    };
    (number $op:ident($a:ident, $b:ident, $c:ident)) => { by_dtype!(both real3, int3, $op) };
    (int $op:ident($a:ident)) => { by_dtype!(int int1, $op) };
    (int $op:ident($a:ident, $b:ident)) => { by_dtype!(int int2, $op) };
    (test $op:ident($a:ident)) => { by_dtype!(both real_test1, int_test1, $op) };
    (test $op:ident($a:ident, $b:ident)) => { by_dtype!(both real_test2, int_test2, $op) };
    (class $op:ident $operands:tt) => { [None; 10] };
}

macro_rules! fill_table {
    ($($kind:ident $op:ident $operands:tt;)*) => {
        fn fill(table: &mut [[Option<Kernel>; 10]]) {
            $(table[Op::$op as usize] = kernels_of!($kind $op $operands);)*
        }
    };
}

level!(baseline crate::kernels::widen_f16_plain, crate::kernels::narrow_f16_plain);
#[cfg(target_arch = "x86_64")]
level!(
    #[target_feature(enable = "avx2,fma,f16c")]
    avx2 crate::kernels::f16_registers::widen_avx2, crate::kernels::f16_registers::narrow_avx2
);
#[cfg(target_arch = "x86_64")]
level!(
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
    avx512 crate::kernels::f16_registers::widen_avx512, crate::kernels::f16_registers::narrow_avx512
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_truncated_as_by_as() {
        let ends = [0.0, 0.5, 1.5, 255.9, 2147483647.0, 2147483648.0, 4294967296.0, 9.3e18, 1e30, f64::INFINITY];
        let near = ends.iter().flat_map(|end| [end.next_down(), *end, end.next_up()]);
        for x in near.flat_map(|x| [x, -x]).chain([f64::NAN, -f64::NAN]) {
            let single = x as f32;
            for single in [single.next_down(), single, single.next_up()] {
                assert_eq!((i32_of_f32(single), i64_of_f32(single)), (single as i32, single as i64), "{single:e}");
            }
            assert_eq!((i32_of_f64(x), i64_of_f64(x)), (x as i32, x as i64), "{x:e}");
        }
    }

    /// All pairs of numbers at the ends of the ranges, in blocks of small and of large ones.
    fn check_quotients<I: Int + std::fmt::Debug>(dtype: DType, numbers: &[i64]) {
        let pairs: Vec<(I, I)> =
            numbers.iter().flat_map(|a| numbers.iter().map(|b| (I::from_i64(*a), I::from_i64(*b)))).collect();
        let (a, b): (Vec<I>, Vec<I>) = pairs.iter().copied().unzip();
        for level in SimdLevel::available() {
            for op in [Op::FloorDivide, Op::Remainder, Op::Fmod] {
                let wanted = match op {
                    Op::FloorDivide => I::floor_div,
                    Op::Remainder => I::floor_rem,
                    _ => I::trunc_rem,
                };
                let kernel = KernelTable::of(level).elementwise(op, dtype).unwrap();
                let mut found = vec![I::ZERO; pairs.len()];
                let operands = [a.as_ptr().cast(), b.as_ptr().cast(), std::ptr::null()];
                // SAFETY: all three have as many elements, and the machine has the level.
                unsafe { kernel(found.as_mut_ptr().cast(), operands, 0, pairs.len()) };
                for ((a, b), found) in pairs.iter().zip(&found) {
                    assert_eq!(*found, wanted(*a, *b), "{level:?}: {op:?} of {a:?} and {b:?}");
                }
            }
        }
    }

    #[test]
    fn quotients_of_integers_are_exact() {
        let end = EXACT_END - 1;
        let small = [0, 1, -1, 2, -2, 3, -3, 7, 10, -128, 127, 1 << 31, -(1 << 31), end, -end, end - 1, 1 << 40];
        let large = [EXACT_END, -EXACT_END, EXACT_END + 1, i64::MAX, i64::MIN, i64::MIN + 1, 3, -1, 0];
        check_quotients::<i64>(DType::I64, &small);
        check_quotients::<i64>(DType::I64, &large);
        check_quotients::<i32>(DType::I32, &[&small[..], &[i64::from(i32::MIN), i64::from(i32::MAX)]].concat());
        check_quotients::<i16>(DType::I16, &small);
        check_quotients::<i8>(DType::I8, &small);
        check_quotients::<u8>(DType::U8, &small);
    }

    #[test]
    fn powers_with_a_formula_of_their_own_are_those_of_pow() {
        let numbers = [0.0, -0.0, 1.0, -1.0, 2.0, -3.0, 0.5, f64::INFINITY, f64::NEG_INFINITY, f64::NAN];
        for level in SimdLevel::available() {
            let kernel = KernelTable::of(level).elementwise(Op::Pow, DType::F64).unwrap();
            for exponent in [2.0, 3.0, 0.5, -1.0, -2.0, 1.5, 0.0] {
                let mut found = numbers;
                let operands = [numbers.as_ptr().cast(), (&raw const exponent).cast(), std::ptr::null()];
                // SAFETY: the first operand and the result have as many elements, the second is one, and the machine
                // has the level.
                unsafe { kernel(found.as_mut_ptr().cast(), operands, 2, numbers.len()) };
                for (x, found) in numbers.iter().zip(found) {
                    let wanted = x.powf(exponent);
                    let same = found.is_nan() && wanted.is_nan() || (found - wanted).abs() <= 1e-15 * wanted.abs();
                    let signed = found.is_sign_negative() == wanted.is_sign_negative() || wanted.is_nan();
                    assert!((same || found == wanted) && signed, "{level:?}: {x} to {exponent}: {found}, not {wanted}");
                }
            }
        }
    }

    #[test]
    fn half_precisions_convert_as_the_half_crate_converts_them() {
        for bits in (0..=u16::MAX).step_by(if cfg!(miri) { 499 } else { 1 }) {
            let (f16, bf16) = (half::f16::from_bits(bits), half::bf16::from_bits(bits));
            assert!(f16_to_f32(bits).to_bits() == f16.to_f32().to_bits() || f16.is_nan(), "{bits:#x}");
            assert!(bf16_to_f32(bits).to_bits() == bf16.to_f32().to_bits() || bf16.is_nan(), "{bits:#x}");
            assert_eq!(f16.is_nan(), f16_to_f32(bits).is_nan());
            // Values around each half-precision number, and halfway to its neighbour.
            for x in [f16.to_f32(), bf16.to_f32(), (f16.to_f32() + half::f16::from_bits(bits ^ 1).to_f32()) / 2.0] {
                for bits in [x.to_bits(), x.to_bits().wrapping_add(1), x.to_bits().wrapping_sub(1)] {
                    let x = f32::from_bits(bits);
                    let (f16, bf16) = (half::f16::from_bits(f32_to_f16(x)), half::bf16::from_bits(f32_to_bf16(x)));
                    if x.is_nan() {
                        assert!(f16.is_nan() && bf16.is_nan());
                    } else {
                        assert_eq!(f16.to_bits(), half::f16::from_f32(x).to_bits(), "{x:e}");
                        assert_eq!(bf16.to_bits(), half::bf16::from_f32(x).to_bits(), "{x:e}");
                    }
                }
            }
        }
    }
}
