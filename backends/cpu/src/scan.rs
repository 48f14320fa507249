//! Scans: each element from all up to it along an axis.

use crate::backend::{CpuBackend, Result};
use crate::strided::{SharedPtr, run_or_not};
use crate::tensor::CpuTensor;
use gt_backend::ExecError;
use gt_backend::Loops;
use gt_ops::math::Int;
use gt_ops::{DType, Meta, Op};
use half::{bf16, f16};

/// Neighbouring scans that go on side by side.
const LANES: usize = 64;
/// Elements that one thread scans before it takes more.
const CHUNK_ELEMENTS: usize = 16 << 10;

/// An element, and the type in which a scan of such elements goes on.
trait ScanElement: Copy {
    type Wide: Copy;
    fn widen(self) -> Self::Wide;
    fn narrow(wide: Self::Wide) -> Self;
    fn plus(a: Self::Wide, b: Self::Wide) -> Self::Wide;
    fn times(a: Self::Wide, b: Self::Wide) -> Self::Wide;
    /// Whether `self` is at least as extreme as `best`, NaN being the most.
    fn reaches<const MAX: bool>(self, best: Self) -> bool;
    const ZERO: Self::Wide;
    const ONE: Self::Wide;
}

macro_rules! int_element {
    ($($t:ty)*) => {$(
        impl ScanElement for $t {
            type Wide = $t;
            fn widen(self) -> $t { self }
            fn narrow(wide: $t) -> $t { wide }
            fn plus(a: $t, b: $t) -> $t { Int::wrapping_add(a, b) }
            fn times(a: $t, b: $t) -> $t { Int::wrapping_mul(a, b) }
            fn reaches<const MAX: bool>(self, best: $t) -> bool { if MAX { self >= best } else { self <= best } }
            const ZERO: $t = 0;
            const ONE: $t = 1;
        }
    )*};
}
int_element!(u8 i8 i16 i32 i64);

macro_rules! float_element {
    ($($t:ty, $wide:ty, |$x:ident| $widen:expr, $narrow:expr;)*) => {$(
        impl ScanElement for $t {
            type Wide = $wide;
            #[inline(always)]
            fn widen(self) -> $wide { let $x = self; $widen }
            #[inline(always)]
            fn narrow($x: $wide) -> $t { $narrow }
            fn plus(a: $wide, b: $wide) -> $wide { a + b }
            fn times(a: $wide, b: $wide) -> $wide { a * b }
            fn reaches<const MAX: bool>(self, best: $t) -> bool {
                self.is_nan() | (!best.is_nan() & if MAX { self >= best } else { self <= best })
            }
            const ZERO: $wide = 0.0;
            const ONE: $wide = 1.0;
        }
    )*};
}
// Sums of single precision are carried in double, as PyTorch does.
float_element! {
    f16, f32, |x| x.to_f32(), f16::from_f32(x);
    bf16, f32, |x| x.to_f32(), bf16::from_f32(x);
    f32, f64, |x| x as f64, x as f32;
    f64, f64, |x| x, x;
}

/// Scans along one axis, each on its own.
struct Scan {
    from: SharedPtr<u8>,
    to: SharedPtr<u8>,
    /// The other axes, of operand and result.
    kept: Loops<2>,
    /// Bytes from one element of the axis to the next, of operand and result.
    step: [isize; 2],
    count: usize,
}

impl Scan {
    /// Scans `first..last`, each from `start` on: `step` takes what it has, an element and its position along the axis.
    ///
    /// # Safety
    /// Both places are valid for all elements; nobody else writes these results.
    #[inline(always)]
    unsafe fn range<T: Copy, O, S: Copy>(
        &self,
        (first, last): (usize, usize),
        start: S,
        step: impl Fn(S, T, usize) -> S,
        out: impl Fn(S) -> O,
    ) {
        let across = self.kept.inner_strides();
        let side_by_side = across[0].abs() < self.step[0].abs();
        self.kept.for_runs(first, last, |run| {
            let mut at = 0;
            while at < run.len {
                let lanes = if side_by_side { LANES.min(run.len - at) } else { 1 };
                let from = self.from.get().wrapping_offset(run.offsets[0] + at as isize * across[0]);
                let to = self.to.get().wrapping_offset(run.offsets[1] + at as isize * across[1]);
                let mut states = [start; LANES];
                for i in 0..self.count {
                    let from = from.wrapping_offset(i as isize * self.step[0]);
                    let to = to.wrapping_offset(i as isize * self.step[1]);
                    for (lane, state) in states[..lanes].iter_mut().enumerate() {
                        // SAFETY: the caller's promise.
                        unsafe {
                            let x = from.wrapping_offset(lane as isize * across[0]).cast::<T>().read();
                            *state = step(*state, x, i);
                            to.wrapping_offset(lane as isize * across[1]).cast::<O>().write(out(*state));
                        }
                    }
                }
                at += lanes;
            }
        });
    }

    /// # Safety
    /// As [`Scan::range`].
    unsafe fn typed<T: ScanElement>(
        &self,
        op: Op,
        range: (usize, usize),
        exps: impl Fn(T) -> f64,
        logs: impl Fn(f64) -> T,
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            match op {
                Op::Cumsum => self.range(range, T::ZERO, |s, x: T, _| T::plus(s, x.widen()), T::narrow),
                Op::Cumprod => self.range(range, T::ONE, |s, x: T, _| T::times(s, x.widen()), T::narrow),
                Op::Logcumsumexp => self.range(
                    range,
                    (f64::NEG_INFINITY, 0.0),
                    |s, x: T, _| plus_exp(s, exps(x)),
                    |(most, sum)| logs(most + sum.ln()),
                ),
                Op::Cumargmax => self.extreme::<T, true>(range),
                _ => self.extreme::<T, false>(range),
            }
        }
    }

    /// # Safety
    /// As [`Scan::range`].
    unsafe fn extreme<T: ScanElement, const MAX: bool>(&self, range: (usize, usize)) {
        let start = (T::narrow(T::ZERO), 0i64);
        let step = |(best, at): (T, i64), x: T, i: usize| {
            if i == 0 || x.reaches::<MAX>(best) { (x, i as i64) } else { (best, at) }
        };
        // SAFETY: the caller's promise.
        unsafe { self.range(range, start, step, |(_, at)| at) };
    }
}

/// A sum of exponentials, as the largest exponent and the sum over its exponential, with one more.
fn plus_exp((most, sum): (f64, f64), x: f64) -> (f64, f64) {
    if x == most && x.is_infinite() {
        // Their difference is no number; of infinities, one counts.
        (most, if x > 0.0 { 1.0 } else { 0.0 })
    } else if x <= most {
        (most, sum + (x - most).exp())
    } else {
        (x, sum * (most - x).exp() + 1.0)
    }
}

impl CpuBackend {
    /// A scan along an axis.
    pub(crate) fn scan(&mut self, op: Op, t: &CpuTensor, axis: usize, out: &Meta) -> Result<CpuTensor> {
        let result = self.new_tensor(out)?;
        if out.shape.numel() == 0 {
            return Ok(result);
        }
        let (dtype, count) = (t.meta.dtype, out.shape.dims()[axis]);
        if op == Op::Logcumsumexp && !dtype.is_float() {
            return Err(ExecError::internal(format!("{} of {dtype}", op.name())));
        }
        let scan = Scan {
            from: SharedPtr::new(t.ptr()),
            to: SharedPtr::new(result.ptr()),
            kept: Loops::new(&out.shape.with_dim(axis, 1), [&t.strides, &result.strides]),
            step: [t.strides[axis], result.strides[axis]],
            count,
        };
        let scans = out.shape.numel() / count;
        let chunk = (CHUNK_ELEMENTS / count).max(1);
        run_or_not(&mut self.pool, scans * count * 4, scans.div_ceil(chunk), &|i| {
            let range = (i * chunk, ((i + 1) * chunk).min(scans));
            // SAFETY: the axes are those of the tensors, of one shape; the result is new, and chunks are disjoint.
            unsafe {
                match dtype {
                    DType::Bool | DType::U8 => scan.typed::<u8>(op, range, |_| 0.0, |_| 0),
                    DType::I8 => scan.typed::<i8>(op, range, |_| 0.0, |_| 0),
                    DType::I16 => scan.typed::<i16>(op, range, |_| 0.0, |_| 0),
                    DType::I32 => scan.typed::<i32>(op, range, |_| 0.0, |_| 0),
                    DType::I64 => scan.typed::<i64>(op, range, |_| 0.0, |_| 0),
                    DType::F16 => scan.typed(op, range, f16::to_f64, f16::from_f64),
                    DType::BF16 => scan.typed(op, range, bf16::to_f64, bf16::from_f64),
                    DType::F32 => scan.typed(op, range, |x: f32| x as f64, |x| x as f32),
                    DType::F64 => scan.typed(op, range, |x: f64| x, |x| x),
                }
            }
        })?;
        Ok(result)
    }
}
