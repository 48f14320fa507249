//! Creation ops: constant, evenly spaced and random tensors, made in a wide type a tile at a time and cast to the
//! dtype.
//!
//! Random numbers are a function of seed, stream and position: the words of Philox 4x32-10 (Salmon et al. 2011), so any
//! part of a tensor can be made alone.

use crate::backend::{CpuBackend, Inputs, Result, compute_dtype};
use crate::elementwise::{chunk_elements, work_ns};
use crate::kernels::{Kernel, SimdLevel};
use crate::strided::SharedPtr;
use crate::tensor::CpuTensor;
use crate::tile::{TILE, Tile};
use gt_backend::{ExecError, Input, scalar_bits};
use gt_ops::math::Real;
use gt_ops::{Attrs, DType, Meta, Op, philox};
use std::slice;

/// The content of a new tensor.
#[derive(Clone, Copy, Debug)]
pub enum Fill {
    /// The same bits everywhere, and the bytes per element.
    Same(u64, usize),
    /// `start + i * step` in i64.
    Integers(i64, i64),
    /// `start + i * step` in f64.
    Steps(f64, f64),
    /// Uniform in [0, 1), in f32: seed, stream, and the number of bits of the fraction. Element `i` is word `i % 4` of
    /// block `i / 4`.
    Rand(u64, u64, u32),
    /// Uniform in [0, 1), in f64. Element `i` is made of words `2 (i % 2)` and `2 (i % 2) + 1` of block `i / 2`.
    RandWide(u64, u64),
    /// Standard normal, in f32, by the Box-Muller transform (1958): elements `2 j` and `2 j + 1` are `r cos t` and
    /// `r sin t` with `r = sqrt(-2 ln u)` and `t = 2 pi v`, where `u` in (0, 1] is made of word `2 (j % 2)` of block
    /// `j / 2`, and `v` in [0, 1) of the word after it.
    Randn(u64, u64),
    /// Standard normal, in f64: as [`Fill::Randn`], but `u` is made of words 0 and 1 of block `j`, and `v` of words 2
    /// and 3.
    RandnWide(u64, u64),
    /// Uniform integers from `low` on, in i64: seed, stream, `low` and `range`. Element `i` is `low + (w * range >>
    /// 64)` (Lemire 2019, without rejection), where `w` is the 64-bit word `i % 2` of block `i / 2`.
    Randint(u64, u64, i64, u64),
}

impl Fill {
    /// The dtype that the numbers are made in; `None` for [`Fill::Same`], whose bits need no conversion.
    pub fn made_in(&self) -> Option<DType> {
        match self {
            Fill::Same(..) => None,
            Fill::Integers(..) | Fill::Randint(..) => Some(DType::I64),
            Fill::Steps(..) | Fill::RandWide(..) | Fill::RandnWide(..) => Some(DType::F64),
            Fill::Rand(..) | Fill::Randn(..) => Some(DType::F32),
        }
    }
}

/// The conversions that take a number from the dtype of [`Fill::made_in`] to the dtype of the result.
#[derive(Clone, Copy)]
pub struct Conversion {
    /// The cast to the compute type of the result's dtype.
    pub cast: Option<Kernel>,
    /// The rounding from the compute type to a half precision.
    pub narrow: Option<Kernel>,
}

/// A function that makes numbers `first..first + n` of a [`Fill`]. If they are random, `first` and `n` are multiples of
/// 4, and `n` is at most [`TILE`].
type Maker = unsafe fn(fill: Fill, first: usize, n: usize, out: *mut u8);

/// Writes elements `first..last` of a tensor that starts at `out`. Element `i` becomes number `begin + i` of `fill`.
///
/// # Safety
/// `out` is writable for `last` elements of `size` bytes each, and `route` converts from the dtype that `fill` is made
/// in.
pub unsafe fn fill(
    level: SimdLevel,
    (fill, begin): (Fill, usize),
    route: Conversion,
    out: *mut u8,
    size: usize,
    first: usize,
    last: usize,
) {
    let maker: Maker = match level {
        SimdLevel::Baseline => baseline::make,
        #[cfg(target_arch = "x86_64")]
        SimdLevel::Avx2 => avx2::make,
        #[cfg(target_arch = "x86_64")]
        SimdLevel::Avx512 => avx512::make,
    };
    let (made, computed) = (Tile::new(), Tile::new());
    let mut at = first;
    // SAFETY: `before + n` is at most `TILE`, so tiles have room; `out` is writable up to `last`.
    unsafe {
        if let Fill::Same(bits, size) = fill {
            same(bits, size, out.add(first * size), last - first);
            return;
        }
        let is_line = matches!(fill, Fill::Integers(..) | Fill::Steps(..));
        if is_line && route.cast.is_none() && route.narrow.is_none() {
            maker(fill, begin + first, last - first, out.add(first * size));
            return;
        }
        while at < last {
            // A block of Philox has four words, so numbers are made from a multiple of four on.
            let place = begin + at;
            let before = place % 4;
            let n = (TILE - before).min(last - at);
            let mut from = made.start();
            maker(fill, place - before, (before + n).next_multiple_of(4), from);
            for kernel in [route.cast, route.narrow].into_iter().flatten() {
                let to = if from == made.start() { computed.start() } else { made.start() };
                kernel(to, [from.cast_const(); 3], 0, before + n);
                from = to;
            }
            out.add(at * size).copy_from_nonoverlapping(from.add(before * size), n * size);
            at += n;
        }
    }
}

/// # Safety
/// `out` is writable for `n` elements of `size` bytes.
unsafe fn same(bits: u64, size: usize, out: *mut u8, n: usize) {
    // SAFETY: `out` is writable for `n` elements of `size` bytes, and callers' allocations are aligned to their
    // elements.
    unsafe {
        match size {
            1 => out.write_bytes(bits as u8, n),
            2 => (0..n).for_each(|i| out.cast::<u16>().add(i).write(bits as u16)),
            4 => (0..n).for_each(|i| out.cast::<u32>().add(i).write(bits as u32)),
            _ => (0..n).for_each(|i| out.cast::<u64>().add(i).write(bits)),
        }
    }
}

/// Fills `out` with the words of Philox from number `first` on, which is a multiple of four.
#[inline(always)]
fn words(seed: u64, stream: u64, first: usize, out: &mut [u32]) {
    let first = (first / 4) as u64;
    for (i, four) in out.chunks_exact_mut(4).enumerate() {
        let w = philox::block(seed, stream, first + i as u64);
        four[0] = w[0];
        four[1] = w[1];
        four[2] = w[2];
        four[3] = w[3];
    }
}

/// Makes numbers as a [`Maker`] does. It is inlined into one function for each SIMD level.
///
/// # Safety
/// `out` has room for `n` numbers.
#[inline(always)]
unsafe fn make(fill: Fill, first: usize, n: usize, out: *mut u8) {
    match fill {
        Fill::Integers(start, step) => {
            for i in 0..n {
                let number = start.wrapping_add(((first + i) as i64).wrapping_mul(step));
                // SAFETY: `i < n`, and `out` has room for `n` integers of 8 bytes.
                unsafe { out.cast::<i64>().add(i).write(number) };
            }
        }
        Fill::Steps(start, step) => {
            for i in 0..n {
                // SAFETY: `i < n`, and `out` has room for `n` numbers of 8 bytes.
                unsafe { out.cast::<f64>().add(i).write(start + (first + i) as i64 as f64 * step) };
            }
        }
        // SAFETY: the contract is the same.
        _ => unsafe { random(fill, first, n, out) },
    }
}

/// Makes random numbers as a [`Maker`] does.
///
/// # Safety
/// `out` has room for `n` numbers, at most [`TILE`].
#[inline(always)]
unsafe fn random(fill: Fill, first: usize, n: usize, out: *mut u8) {
    let mut tile = [0u32; 2 * TILE];
    // SAFETY: `out` has room for `n` numbers of 4 or 8 bytes, which are zeroed first, and any bits are valid numbers.
    let (ints, floats, wide) = unsafe {
        out.write_bytes(0, n * if matches!(fill.made_in(), Some(DType::F32)) { 4 } else { 8 });
        let floats = if matches!(fill.made_in(), Some(DType::F32)) { n } else { 0 };
        let eights = n - floats;
        (
            out,
            slice::from_raw_parts_mut(out.cast::<f32>(), floats),
            slice::from_raw_parts_mut(out.cast::<f64>(), eights),
        )
    };
    match fill {
        Fill::Same(..) | Fill::Integers(..) | Fill::Steps(..) => (),
        Fill::Rand(seed, stream, bits) => {
            words(seed, stream, first, &mut tile[..n]);
            let unit = f32::from_bits((127 - bits) << 23);
            for (x, w) in floats.iter_mut().zip(&tile) {
                *x = (w >> (32 - bits)) as f32 * unit;
            }
        }
        Fill::RandWide(seed, stream) => {
            words(seed, stream, 2 * first, &mut tile[..2 * n]);
            for (x, w) in wide.iter_mut().zip(tile.chunks_exact(2)) {
                *x = philox::unit_f64(w[0], w[1]);
            }
        }
        Fill::Randn(seed, stream) => {
            words(seed, stream, first, &mut tile[..n]);
            // Each loop computes one function of neighbouring numbers, so that the compiler vectorises it.
            let (mut radii, mut turns) = ([0f32; TILE / 2], [0f32; TILE / 2]);
            for ((r, t), w) in radii.iter_mut().zip(&mut turns).zip(tile[..n].chunks_exact(2)) {
                *r = ((w[0] >> 8) + 1) as f32 * (1.0 / (1 << 24) as f32);
                *t = std::f32::consts::TAU * philox::unit_f32(w[1]);
            }
            let (radii, turns) = (&mut radii[..n / 2], &mut turns[..n / 2]);
            for r in radii.iter_mut() {
                *r = Real::sqrt(-2.0 * Real::ln(*r));
            }
            let (mut across, mut up) = ([0f32; TILE / 2], [0f32; TILE / 2]);
            for ((x, r), t) in across.iter_mut().zip(&*radii).zip(&*turns) {
                *x = *r * Real::cos(*t);
            }
            for ((x, r), t) in up.iter_mut().zip(&*radii).zip(&*turns) {
                *x = *r * Real::sin(*t);
            }
            for ((x, across), up) in floats.chunks_exact_mut(2).zip(&across).zip(&up) {
                (x[0], x[1]) = (*across, *up);
            }
        }
        Fill::RandnWide(seed, stream) => {
            words(seed, stream, 2 * first, &mut tile[..2 * n]);
            for (x, w) in wide.chunks_exact_mut(2).zip(tile[..2 * n].chunks_exact(4)) {
                let r = Real::sqrt(-2.0 * Real::ln(1.0 - philox::unit_f64(w[0], w[1])));
                let t = std::f64::consts::TAU * philox::unit_f64(w[2], w[3]);
                x[0] = r * Real::cos(t);
                x[1] = r * Real::sin(t);
            }
        }
        Fill::Randint(seed, stream, low, range) => {
            words(seed, stream, 2 * first, &mut tile[..2 * n]);
            for (i, w) in tile[..2 * n].chunks_exact(2).enumerate() {
                let word = (w[1] as u64) << 32 | w[0] as u64;
                let above = ((word as u128 * range as u128) >> 64) as u64;
                // SAFETY: `i < n`, and `out` has room for `n` integers of 8 bytes.
                unsafe { ints.cast::<i64>().add(i).write(low.wrapping_add(above as i64)) };
            }
        }
    }
}

macro_rules! level {
    ($(#[$enable:meta])* $name:ident) => {
        mod $name {
            use crate::create::*;
            $(#[$enable])*
            pub unsafe fn make(fill: Fill, first: usize, n: usize, out: *mut u8) {
                // SAFETY: `fill` chose this function for a level that the CPU has, and `out` has room for `n` numbers.
                unsafe { crate::create::make(fill, first, n, out) }
            }
        }
    };
}
level!(baseline);
#[cfg(target_arch = "x86_64")]
level!(
    #[target_feature(enable = "avx2,fma")]
    avx2
);
#[cfg(target_arch = "x86_64")]
level!(
    #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")]
    avx512
);

impl CpuBackend {
    pub(crate) fn create(&mut self, op: Op, inputs: Inputs<'_, '_>, attrs: &Attrs, out: &Meta) -> Result<CpuTensor> {
        let number = |i: usize| match inputs.get(i) {
            Some(Input::Scalar(scalar)) => Ok(*scalar),
            _ => Err(ExecError::internal(format!("{} of no number", op.name()))),
        };
        let (seed, stream, begin) = match attrs {
            Attrs::Random { seed, stream, first, .. } => (*seed, *stream, *first as usize),
            _ => (0, 0, 0),
        };
        let dtype = out.dtype;
        let how = match op {
            Op::Full => Fill::Same(scalar_bits(number(0)?, dtype), dtype.size()),
            Op::Arange if dtype.is_float() => Fill::Steps(number(0)?.to_f64(), number(1)?.to_f64()),
            Op::Arange => Fill::Integers(number(0)?.to_i64(), number(1)?.to_i64()),
            Op::Rand if dtype == DType::F64 => Fill::RandWide(seed, stream),
            // The fraction has as many bits as the dtype resolves just below 1, so that rounding never gives 1.
            Op::Rand if dtype == DType::F16 => Fill::Rand(seed, stream, 11),
            Op::Rand if dtype == DType::BF16 => Fill::Rand(seed, stream, 8),
            Op::Rand => Fill::Rand(seed, stream, 24),
            Op::Randn if dtype == DType::F64 => Fill::RandnWide(seed, stream),
            Op::Randn => Fill::Randn(seed, stream),
            Op::Randint => {
                let (low, high) = (number(0)?.to_i64(), number(1)?.to_i64());
                Fill::Randint(seed, stream, low, high.wrapping_sub(low) as u64)
            }
            _ => return Err(ExecError::internal(format!("{} creates nothing", op.name()))),
        };
        let made_in = how.made_in().unwrap_or(dtype);
        let cast = if made_in == compute_dtype(dtype) || made_in == dtype {
            None
        } else {
            self.kernels.cast(made_in, compute_dtype(dtype))
        };
        let route = Conversion { cast, narrow: self.narrow(dtype) };
        let result = self.new_tensor(out)?;
        let to = SharedPtr::new(result.ptr());
        let elements = out.shape.numel();
        let work_ns = work_ns(elements, 4 * op.row().cost_flops as usize);
        let chunks = if self.pool.pays(work_ns) { self.pool.chunks(work_ns) } else { 1 };
        let chunk = chunk_elements(elements.max(1), chunks);
        let level = self.level;
        self.pool.run(elements.div_ceil(chunk), &|i| {
            // SAFETY: `result` was just allocated with `elements` elements, and chunks are disjoint.
            unsafe {
                fill(level, (how, begin), route, to.get(), dtype.size(), i * chunk, ((i + 1) * chunk).min(elements))
            };
        })?;
        Ok(result)
    }
}
