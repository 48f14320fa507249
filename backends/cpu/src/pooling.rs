//! Max and sum pooling with their gradients: channel by channel, a row of results at a time.

use crate::backend::{CpuBackend, Result};
use crate::checkpoint::Pace;
use crate::kernels::SimdLevel;
use crate::strided::{SharedPtr, run_or_not};
use crate::tensor::CpuTensor;
use gt_backend::ExecError;
use gt_ops::{DType, Meta, Op, WindowSpec};
use std::cell::RefCell;
use std::ops::Range;

/// The bytes that a copy moves in the time in which a window reads one element, roughly.
const ELEMENT_BYTES: usize = 15;
/// Chunks per thread.
const CHUNKS_PER_THREAD: usize = 4;
/// The position of a window's maximum before any element was seen.
const NONE: i64 = i64::MIN;

/// An element type that can be pooled.
trait Pooled: Copy + PartialOrd + 'static {
    const ZERO: Self;
    const LEAST: Self;
    fn plus(self, other: Self) -> Self;
    /// Whether the element replaces the largest so far. Every NaN does, so the last of several counts, as in PyTorch.
    #[inline(always)]
    fn beats(self, best: Self) -> bool {
        #[expect(clippy::eq_op, reason = "whether it is NaN")]
        let nan = self != self;
        (self > best) | nan
    }
}

macro_rules! pooled {
    ($($t:ty)*) => {$(
        impl Pooled for $t {
            const ZERO: Self = 0.0;
            const LEAST: Self = <$t>::NEG_INFINITY;
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self + other
            }
        }
    )*};
}
pooled!(f32 f64);

/// The inner loops of one [`SimdLevel`], over `n` results and elements that are `step` apart.
#[derive(Clone, Copy)]
struct Rows<E> {
    largest: unsafe fn(to: *mut E, from: *const E, step: usize, n: usize),
    find: unsafe fn(best: *mut E, found: *mut i64, place: i64, from: *const E, step: usize, n: usize),
    sum: unsafe fn(to: *mut E, from: *const E, step: usize, n: usize),
    spread: unsafe fn(to: *mut E, from: *const E, step: usize, n: usize),
}

/// Instantiates a loop with the common steps 1 and 2 as constants, so that the compiler vectorises it.
macro_rules! with_step {
    ($step:ident, $body:expr) => {
        match $step {
            1 => {
                let $step = 1;
                $body
            }
            2 => {
                let $step = 2;
                $body
            }
            _ => $body,
        }
    };
}

/// Keeps the larger of each result and its element.
///
/// # Safety
/// `to` is valid for `n` elements, and `from` for `n` steps.
#[inline(always)]
unsafe fn largest<E: Pooled>(to: *mut E, from: *const E, step: usize, n: usize) {
    with_step!(step, {
        for i in 0..n {
            // SAFETY: `i < n`, for which `to` is valid, as is `from` at `n` steps, by this function's contract.
            unsafe {
                let (x, best) = (from.add(i * step).read(), to.add(i).read());
                to.add(i).write(if x.beats(best) { x } else { best });
            }
        }
    });
}

/// Like [`largest`], and records where each maximum is: `place` is the position that column 0 of the results would
/// read, and the caller adds a stride for each column.
///
/// # Safety
/// Same as for [`largest`], with `found` valid for `n` elements too.
#[inline(always)]
unsafe fn find<E: Pooled>(best: *mut E, found: *mut i64, place: i64, from: *const E, step: usize, n: usize) {
    with_step!(step, {
        for i in 0..n {
            // SAFETY: `i < n`, for which `best` and `found` are valid, as is `from` at `n` steps, by this function's
            // contract.
            unsafe {
                let (x, top, at) = (from.add(i * step).read(), best.add(i).read(), found.add(i).read());
                let beats = x.beats(top) | (at == NONE);
                best.add(i).write(if beats { x } else { top });
                found.add(i).write(if beats { place } else { at });
            }
        }
    });
}

/// Adds each element to its result.
///
/// # Safety
/// Same as for [`largest`].
#[inline(always)]
unsafe fn sum<E: Pooled>(to: *mut E, from: *const E, step: usize, n: usize) {
    with_step!(step, {
        for i in 0..n {
            // SAFETY: `i < n`, for which `to` is valid, as is `from` at `n` steps, by this function's contract.
            unsafe { to.add(i).write(to.add(i).read().plus(from.add(i * step).read())) };
        }
    });
}

/// The gradient of [`sum`]: adds the gradient of each result to the gradient of its input element.
///
/// # Safety
/// `from` is valid for `n` elements, and `to` for `n` steps.
#[inline(always)]
unsafe fn spread<E: Pooled>(to: *mut E, from: *const E, step: usize, n: usize) {
    with_step!(step, {
        for i in 0..n {
            // SAFETY: `i < n`, for which `from` is valid, as is `to` at `n` steps, by this function's contract.
            unsafe { to.add(i * step).write(to.add(i * step).read().plus(from.add(i).read())) };
        }
    });
}

macro_rules! level {
    ($(#[$enable:meta])* $name:ident) => {
        mod $name {
            use crate::pooling::{Pooled, Rows};
            $(#[$enable])*
            unsafe fn largest<E: Pooled>(to: *mut E, from: *const E, step: usize, n: usize) {
                // SAFETY: the table takes this instance only where the CPU has its instructions, and the contract is
                // that of the function called.
                unsafe { crate::pooling::largest(to, from, step, n) }
            }
            $(#[$enable])*
            unsafe fn find<E: Pooled>(best: *mut E, found: *mut i64, place: i64, from: *const E, step: usize, n: usize) {
                // SAFETY: the table takes this instance only where the CPU has its instructions, and the contract is
                // that of the function called.
                unsafe { crate::pooling::find(best, found, place, from, step, n) }
            }
            $(#[$enable])*
            unsafe fn sum<E: Pooled>(to: *mut E, from: *const E, step: usize, n: usize) {
                // SAFETY: the table takes this instance only where the CPU has its instructions, and the contract is
                // that of the function called.
                unsafe { crate::pooling::sum(to, from, step, n) }
            }
            $(#[$enable])*
            unsafe fn spread<E: Pooled>(to: *mut E, from: *const E, step: usize, n: usize) {
                // SAFETY: the table takes this instance only where the CPU has its instructions, and the contract is
                // that of the function called.
                unsafe { crate::pooling::spread(to, from, step, n) }
            }
            pub fn rows<E: Pooled>() -> Rows<E> {
                Rows { largest, find, sum, spread }
            }
        }
    };
}

level! { baseline }
#[cfg(target_arch = "x86_64")]
level! { #[target_feature(enable = "avx2,fma")] avx2 }
#[cfg(target_arch = "x86_64")]
level! { #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")] avx512 }

fn rows<E: Pooled>(level: SimdLevel) -> Rows<E> {
    match level {
        SimdLevel::Baseline => baseline::rows(),
        #[cfg(target_arch = "x86_64")]
        SimdLevel::Avx2 => avx2::rows(),
        #[cfg(target_arch = "x86_64")]
        SimdLevel::Avx512 => avx512::rows(),
    }
}

/// The pooling windows of one channel.
struct PoolWindows {
    spec: WindowSpec,
    output: [usize; 3],
    /// For each column of the kernel that is ever inside the input: the columns of results for which it is, and the
    /// input column that the first of them reads.
    columns: Vec<(Range<usize>, usize)>,
}

impl PoolWindows {
    fn new(spec: &WindowSpec, output: [usize; 3]) -> PoolWindows {
        let (stride, low, size) = (spec.stride[2], spec.low[2], spec.input[2]);
        let columns = (0..spec.kernel[2]).filter_map(|k| {
            let far = k * spec.dilation[2];
            let first = low.saturating_sub(far).div_ceil(stride);
            let end = (size + low).saturating_sub(far).div_ceil(stride).min(output[2]);
            (first < end).then(|| (first..end, first * stride + far - low))
        });
        PoolWindows { spec: *spec, output, columns: columns.collect() }
    }

    /// The kernel elements along `axis` that lie inside the input for the result at `at`.
    fn inside(&self, axis: usize, at: usize) -> Range<usize> {
        let (low, dilation) = (self.spec.low[axis], self.spec.dilation[axis]);
        let start = at * self.spec.stride[axis];
        let first = low.saturating_sub(start).div_ceil(dilation);
        let end = (self.spec.input[axis] + low).saturating_sub(start).div_ceil(dilation).min(self.spec.kernel[axis]);
        first..end
    }

    /// Calls `f` with each row of results and a function that calls its argument with the start of each input row in
    /// the row's windows.
    fn rows(&self, mut f: impl FnMut(usize, &dyn Fn(&mut dyn FnMut(usize)))) {
        let [depth, height, _] = self.output;
        let [_, input_height, input_width] = self.spec.input;
        let place = |axis: usize, at: usize, k: usize| {
            at * self.spec.stride[axis] + k * self.spec.dilation[axis] - self.spec.low[axis]
        };
        let window_row = self.columns.len() * self.output[2];
        let pace = RefCell::new(Pace::default());
        for d in 0..depth {
            for h in 0..height {
                f(d * height + h, &|each| {
                    let pace = &mut *pace.borrow_mut();
                    for kd in self.inside(0, d) {
                        for kh in self.inside(1, h) {
                            pace.advance(window_row);
                            let row = place(0, d, kd) * input_height + place(1, h, kh);
                            each(row * input_width);
                        }
                    }
                });
            }
        }
    }
}

/// Finds the largest element in each window of a channel, and calls `each` with the positions of result and element.
///
/// # Safety
/// `from` points to the channel's input.
unsafe fn search<E: Pooled>(
    windows: &PoolWindows,
    rows: &Rows<E>,
    from: *const E,
    mut each: impl FnMut(usize, Option<usize>),
) {
    let (width, stride) = (windows.output[2], windows.spec.stride[2]);
    let (mut best, mut found) = (vec![E::LEAST; width], vec![NONE; width]);
    windows.rows(|row, below| {
        best.fill(E::LEAST);
        found.fill(NONE);
        below(&mut |start| {
            for (range, at) in &windows.columns {
                // The position that result 0 of the row would read; the others are strides apart.
                let place = (start + at) as i64 - (range.start * stride) as i64;
                // SAFETY: `PoolWindows::new` chose ranges within the row of results, whose windows read elements within
                // the channel.
                unsafe {
                    (rows.find)(
                        best.as_mut_ptr().add(range.start),
                        found.as_mut_ptr().add(range.start),
                        place,
                        from.add(start + at),
                        stride,
                        range.len(),
                    );
                }
            }
        });
        for (column, place) in found.iter().enumerate() {
            let position = (*place != NONE).then(|| (*place + (column * stride) as i64) as usize);
            each(row * width + column, position);
        }
    });
}

impl CpuBackend {
    /// Computes an op of class [`gt_ops::Class::Pooling`].
    ///
    /// # Errors
    /// Out of memory.
    pub(crate) fn pooling(
        &mut self,
        op: Op,
        a: &CpuTensor,
        other: Option<&CpuTensor>,
        spec: &WindowSpec,
        out: &Meta,
    ) -> Result<CpuTensor> {
        let half = |t: &CpuTensor| matches!(t.meta.dtype, DType::F16 | DType::BF16);
        if half(a) {
            let wide = |t: &CpuTensor| Meta::new(t.meta.shape, DType::F32);
            let other = other.map(|other| self.cast(other, &wide(other), 0)).transpose()?;
            let a = self.cast(a, &wide(a), 0)?;
            if out.dtype == DType::I64 {
                return self.pooling(op, &a, other.as_ref(), spec, out);
            }
            let result = self.pooling(op, &a, other.as_ref(), spec, &Meta::new(out.shape, DType::F32))?;
            return self.cast(&result, out, 0);
        }
        let a = self.contiguous(a)?;
        let other = other.map(|other| self.contiguous(other)).transpose()?;
        let result = self.new_tensor(out)?;
        if out.shape.numel() == 0 {
            return Ok(result);
        }
        match a.meta.dtype {
            DType::F64 => self.pool_planes::<f64>(op, &a, other.as_ref(), spec, &result)?,
            _ => self.pool_planes::<f32>(op, &a, other.as_ref(), spec, &result)?,
        }
        Ok(result)
    }

    fn pool_planes<E: Pooled>(
        &mut self,
        op: Op,
        a: &CpuTensor,
        other: Option<&CpuTensor>,
        spec: &WindowSpec,
        out: &CpuTensor,
    ) -> Result<()> {
        let output = spec.output().map_err(|e| ExecError::internal(e.to_string()))?;
        let windows = PoolWindows::new(spec, output);
        let rows = rows::<E>(self.level);
        let (inputs, outputs): (usize, usize) = (spec.input.iter().product(), output.iter().product());
        let planes: usize = out.meta.shape.dims()[..2].iter().product();
        let input = match op {
            Op::MaxPoolInput => other.map(CpuTensor::ptr),
            _ => Some(a.ptr()),
        };
        let input = input.ok_or_else(|| ExecError::internal("an operand is missing"))?;
        let (from, given, to) =
            (SharedPtr::new(input.cast::<E>()), SharedPtr::new(a.ptr().cast::<E>()), SharedPtr::new(out.ptr()));
        let per_plane = outputs.saturating_mul(spec.kernel.iter().product());
        let chunks = planes.min(self.pool.threads() * CHUNKS_PER_THREAD);
        run_or_not(&mut self.pool, planes.saturating_mul(per_plane).saturating_mul(ELEMENT_BYTES), chunks, &|i| {
            for plane in planes * i / chunks..planes * (i + 1) / chunks {
                // SAFETY: every operand has `planes` planes of `inputs` or `outputs` elements, and each plane of the
                // result is written by one thread.
                unsafe {
                    let (from, grads) = (from.get().add(plane * inputs), given.get().add(plane * outputs));
                    match op {
                        Op::MaxPool => {
                            reduce(&windows, rows.largest, E::LEAST, from, to.get().cast::<E>().add(plane * outputs))
                        }
                        Op::SumPool => {
                            reduce(&windows, rows.sum, E::ZERO, from, to.get().cast::<E>().add(plane * outputs))
                        }
                        Op::MaxPoolIndices => {
                            let to = to.get().cast::<i64>().add(plane * outputs);
                            search(&windows, &rows, from, |at, position| {
                                // A window that contains only padding has no position; its result is -1.
                                to.add(at).write(position.map_or(-1, |position| position as i64));
                            });
                        }
                        Op::MaxPoolInput => {
                            let to = to.get().cast::<E>().add(plane * inputs);
                            fill(to, inputs, E::ZERO);
                            search(&windows, &rows, from, |at, position| {
                                if let Some(position) = position {
                                    to.add(position).write(to.add(position).read().plus(grads.add(at).read()));
                                }
                            });
                        }
                        _ => {
                            let to = to.get().cast::<E>().add(plane * inputs);
                            fill(to, inputs, E::ZERO);
                            windows.rows(|row, below| {
                                below(&mut |start| {
                                    for (range, at) in &windows.columns {
                                        let grads = grads.add(row * output[2] + range.start);
                                        (rows.spread)(to.add(start + at), grads, spec.stride[2], range.len());
                                    }
                                });
                            });
                        }
                    }
                }
            }
        })
    }
}

/// Writes `n` times `x`.
///
/// # Safety
/// `to` has room for `n` elements.
unsafe fn fill<E: Pooled>(to: *mut E, n: usize, x: E) {
    for i in 0..n {
        // SAFETY: `i < n`, for which `to` has room by this function's contract.
        unsafe { to.add(i).write(x) };
    }
}

/// Pools one channel: sets all results to `start`, then combines them with the input by `row_loop`.
///
/// # Safety
/// `from` points to a channel's input and `to` to its result.
unsafe fn reduce<E: Pooled>(
    windows: &PoolWindows,
    row_loop: unsafe fn(*mut E, *const E, usize, usize),
    start: E,
    from: *const E,
    to: *mut E,
) {
    let width = windows.output[2];
    windows.rows(|row, below| {
        let to = to.wrapping_add(row * width);
        // SAFETY: the result has a row of `width` elements at `to`.
        unsafe { fill(to, width, start) };
        below(&mut |first| {
            for (range, at) in &windows.columns {
                // SAFETY: `PoolWindows::new` chose ranges within the row of results, whose windows read elements
                // within the channel.
                unsafe { row_loop(to.add(range.start), from.add(first + at), windows.spec.stride[2], range.len()) };
            }
        });
    });
}
