//! Tensors from numbers, random or not.

use gt_ops::math::{Int, Truth};
use gt_ops::{DType, Scalar, philox};
use half::{bf16, f16};

/// A number in a dtype's bytes (half precisions by way of f32, as in PyTorch), from the start of the eight.
#[inline]
pub fn scalar_bits(scalar: Scalar, dtype: DType) -> u64 {
    match dtype {
        DType::Bool => scalar.to_bool() as u64,
        DType::U8 => scalar.to_i64() as u8 as u64,
        DType::I8 => scalar.to_i64() as u8 as u64,
        DType::I16 => scalar.to_i64() as u16 as u64,
        DType::I32 => scalar.to_i64() as u32 as u64,
        DType::I64 => scalar.to_i64() as u64,
        DType::F16 => f16::from_f32(scalar.to_f64() as f32).to_bits() as u64,
        DType::BF16 => bf16::from_f32(scalar.to_f64() as f32).to_bits() as u64,
        DType::F32 => (scalar.to_f64() as f32).to_bits() as u64,
        DType::F64 => scalar.to_f64().to_bits(),
    }
    .to_le()
}

/// What fills a new tensor.
#[derive(Clone, Copy, Debug)]
pub enum Fill {
    /// One number.
    Full(Scalar),
    /// start + i * step: of 64-bit integers for an integer dtype, else of f64.
    Arange(Scalar, Scalar),
    /// Element `i` is word `i % 4` of block `i / 4` as a fraction, of as many bits as the dtype holds below 1; of f64,
    /// words `2 (i % 2)` and the next of block `i / 2`.
    Rand(u64, u64),
    /// Elements `2 j` and `2 j + 1` are `r cos t` and `r sin t` with `r = sqrt(-2 ln u)` and `t = 2 pi v` (Box and
    /// Muller 1958): `u` in (0, 1] and `v` in [0, 1) come from words `2 (j % 2)` and the next of block `j / 2`; of f64,
    /// from words 0, 1 and 2, 3 of block `j`.
    Randn(u64, u64),
    /// Element `i` is `low + (w * (high - low) >> 64)`, `w` being the 64-bit word `i % 2` of block `i / 2`.
    Randint(u64, u64, i64, i64),
}

/// Chunks of a parallel fill start at multiples of this, so that no random block is cut.
pub const FILL_ALIGN: usize = 4;

/// A dtype's type.
trait Make: Copy {
    const DTYPE: DType;
    fn from_f64(x: f64) -> Self;
    fn from_i64(x: i64) -> Self;
}

macro_rules! make {
    ($($t:ty, $dtype:ident, |$f:ident| $from_f64:expr, |$i:ident| $from_i64:expr;)*) => {$(
        impl Make for $t {
            const DTYPE: DType = DType::$dtype;
            #[inline(always)]
            fn from_f64($f: f64) -> Self {
                $from_f64
            }
            #[inline(always)]
            fn from_i64($i: i64) -> Self {
                $from_i64
            }
        }
    )*};
}
make! {
    Truth, Bool, |x| Truth((x != 0.0) as u8), |x| Int::from_i64(x);
    u8, U8, |x| x as i64 as u8, |x| x as u8;
    i8, I8, |x| x as i64 as i8, |x| x as i8;
    i16, I16, |x| x as i64 as i16, |x| x as i16;
    i32, I32, |x| x as i64 as i32, |x| x as i32;
    i64, I64, |x| x as i64, |x| x;
    f16, F16, |x| f16::from_f32(x as f32), |x| f16::from_f32(x as f32);
    bf16, BF16, |x| bf16::from_f32(x as f32), |x| bf16::from_f32(x as f32);
    f32, F32, |x| x as f32, |x| x as f32;
    f64, F64, |x| x, |x| x as f64;
}

/// Writes elements `first..last` of a tensor that starts at `out`; `first` is a multiple of [`FILL_ALIGN`].
///
/// # Safety
/// `out` is writable for them.
pub unsafe fn fill(fill: Fill, dtype: DType, out: *mut u8, first: usize, last: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        match dtype {
            DType::Bool => typed::<Truth>(fill, out, first, last),
            DType::U8 => typed::<u8>(fill, out, first, last),
            DType::I8 => typed::<i8>(fill, out, first, last),
            DType::I16 => typed::<i16>(fill, out, first, last),
            DType::I32 => typed::<i32>(fill, out, first, last),
            DType::I64 => typed::<i64>(fill, out, first, last),
            DType::F16 => typed::<f16>(fill, out, first, last),
            DType::BF16 => typed::<bf16>(fill, out, first, last),
            DType::F32 => typed::<f32>(fill, out, first, last),
            DType::F64 => typed::<f64>(fill, out, first, last),
        }
    }
}

/// # Safety
/// As [`fill`].
unsafe fn typed<T: Make>(fill: Fill, out: *mut u8, first: usize, last: usize) {
    let out = out.cast::<T>();
    // SAFETY: the caller's promise: only elements `first..last` are written.
    let write = |i: usize, x: T| unsafe {
        if i < last {
            out.add(i).write(x);
        }
    };
    match fill {
        Fill::Full(scalar) => {
            let bits = scalar_bits(scalar, T::DTYPE);
            // SAFETY: the bits start with an element of the dtype.
            let x = unsafe { std::ptr::from_ref(&bits).cast::<T>().read() };
            (first..last).for_each(|i| write(i, x));
        }
        Fill::Arange(start, step) if T::DTYPE.is_float() => {
            let (start, step) = (start.to_f64(), step.to_f64());
            (first..last).for_each(|i| write(i, T::from_f64(start + i as f64 * step)));
        }
        Fill::Arange(start, step) => {
            let (start, step) = (start.to_i64(), step.to_i64());
            (first..last).for_each(|i| write(i, T::from_i64(start.wrapping_add((i as i64).wrapping_mul(step)))));
        }
        Fill::Rand(seed, stream) if T::DTYPE == DType::F64 => {
            for i in (first..last).step_by(2) {
                let w = philox::block(seed, stream, i as u64 / 2);
                write(i, T::from_f64(philox::unit_f64(w[0], w[1])));
                write(i + 1, T::from_f64(philox::unit_f64(w[2], w[3])));
            }
        }
        Fill::Rand(seed, stream) => {
            // As many bits as the dtype holds just below 1: rounding never gives 1.
            let bits = match T::DTYPE {
                DType::F16 => 11,
                DType::BF16 => 8,
                _ => 24,
            };
            let unit = 1.0 / (1u64 << bits) as f64;
            for i in (first..last).step_by(4) {
                let w = philox::block(seed, stream, i as u64 / 4);
                for (j, w) in w.into_iter().enumerate() {
                    write(i + j, T::from_f64((w >> (32 - bits)) as f64 * unit));
                }
            }
        }
        Fill::Randn(seed, stream) if T::DTYPE == DType::F64 => {
            for i in (first..last).step_by(2) {
                let w = philox::block(seed, stream, i as u64 / 2);
                let (a, b) = normal_f64(w);
                write(i, T::from_f64(a));
                write(i + 1, T::from_f64(b));
            }
        }
        Fill::Randn(seed, stream) => {
            for i in (first..last).step_by(4) {
                let w = philox::block(seed, stream, i as u64 / 4);
                for j in [0, 2] {
                    let (a, b) = normal_f32(w[j], w[j + 1]);
                    write(i + j, T::from_f64(a as f64));
                    write(i + j + 1, T::from_f64(b as f64));
                }
            }
        }
        Fill::Randint(seed, stream, low, high) => {
            let range = high.wrapping_sub(low) as u64;
            for i in (first..last).step_by(2) {
                let w = philox::block(seed, stream, i as u64 / 2);
                for j in [0, 1] {
                    let word = (w[2 * j + 1] as u64) << 32 | w[2 * j] as u64;
                    let above = ((word as u128 * range as u128) >> 64) as u64;
                    write(i + j, T::from_i64(low.wrapping_add(above as i64)));
                }
            }
        }
    }
}

/// Two normal numbers from two words.
#[inline(always)]
fn normal_f32(u: u32, v: u32) -> (f32, f32) {
    use gt_ops::math::Real;
    let u = ((u >> 8) + 1) as f32 * (1.0 / (1 << 24) as f32);
    let r = Real::sqrt(-2.0 * Real::ln(u));
    let t = std::f32::consts::TAU * philox::unit_f32(v);
    (r * Real::cos(t), r * Real::sin(t))
}

/// Two normal numbers from four words.
#[inline(always)]
fn normal_f64(w: [u32; 4]) -> (f64, f64) {
    use gt_ops::math::Real;
    let u = 1.0 - philox::unit_f64(w[0], w[1]);
    let r = Real::sqrt(-2.0 * Real::ln(u));
    let t = std::f64::consts::TAU * philox::unit_f64(w[2], w[3]);
    (r * Real::cos(t), r * Real::sin(t))
}
