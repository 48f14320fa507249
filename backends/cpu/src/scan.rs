//! Scans, such as prefix sums: each result combines all elements up to its own along an axis.

use crate::backend::{CpuBackend, Result};
use crate::checkpoint::Pace;
#[cfg(target_arch = "x86_64")]
use crate::kernels::SimdLevel;
use crate::strided::{SharedPtr, run_or_not};
use crate::tensor::CpuTensor;
use gt_backend::ExecError;
use gt_backend::{Loops, Run};
use gt_ops::integers::Int;
use gt_ops::{DType, Meta, Op};
use half::{bf16, f16};

/// The number of neighbouring scans that proceed together.
const LANES: usize = 64;
/// The number of scans along memory that proceed together: each step of a scan waits for the one before, and meanwhile
/// the processor computes those of the others. More would compete for the sets of L1 where rows are 4 KiB apart.
const CHAINS: usize = 4;
/// The number of elements of each scan between two updates of the pace.
const ROWS: usize = 1 << 10;
/// The number of elements that a running extreme passes over together if none of them reaches it.
const BLOCK: usize = 16;
/// The number of elements in a chunk of scans.
const CHUNK_ELEMENTS: usize = 16 << 10;
/// The bytes that a copy moves in the time of one element of a scan, roughly: the steps of a scan wait for each other.
const SCAN_BYTES: usize = 30;
const EXTREME_BYTES: usize = 60;
const LOGCUMSUMEXP_BYTES: usize = 600;

/// An element type, with the wider type that its scans accumulate in.
trait ScanElement: Copy {
    type Wide: Copy;
    fn widen(self) -> Self::Wide;
    fn narrow(wide: Self::Wide) -> Self;
    fn plus(a: Self::Wide, b: Self::Wide) -> Self::Wide;
    fn times(a: Self::Wide, b: Self::Wide) -> Self::Wide;
    /// Whether `self` is at least as large (with `MAX`) or small as `best`; NaN reaches every number.
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
// Single precision accumulates in double precision, as in PyTorch.
float_element! {
    f16, f32, |x| x.to_f32(), f16::from_f32(x);
    bf16, f32, |x| x.to_f32(), bf16::from_f32(x);
    f32, f64, |x| x as f64, x as f32;
    f64, f64, |x| x, x;
}

/// All scans along one axis, which are independent of each other.
struct Scan {
    from: SharedPtr<u8>,
    to: SharedPtr<u8>,
    /// The other axes of operand and result.
    kept: Loops<2>,
    /// The stride of the axis in operand and result, in bytes.
    step: [isize; 2],
    count: usize,
    /// Prefix sums have loops of their own for one level.
    #[cfg(target_arch = "x86_64")]
    level: SimdLevel,
}

impl Scan {
    /// Computes scans `first..last` from the state `start`: `step` takes the state, an element and its position, and
    /// `out` makes a result of the state.
    ///
    /// # Safety
    /// Operand and result are valid for all elements of types `T` and `O`, and nothing else writes these results.
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
            if !side_by_side && (2..=4).contains(&self.count) {
                // SAFETY: the contract is the same, for these scans and their count.
                unsafe {
                    match self.count {
                        2 => self.short::<T, O, S, 2>(run, start, &step, &out),
                        3 => self.short::<T, O, S, 3>(run, start, &step, &out),
                        _ => self.short::<T, O, S, 4>(run, start, &step, &out),
                    }
                }
                return;
            }
            let mut at = 0;
            while !side_by_side && at + CHAINS <= run.len {
                // SAFETY: the contract is the same, for these scans of the run.
                unsafe { self.together(run, at, start, &step, &out) };
                at += CHAINS;
            }
            while at < run.len {
                let lanes = if side_by_side { LANES.min(run.len - at) } else { 1 };
                let from = self.from.get().wrapping_offset(run.offsets[0] + at as isize * across[0]);
                let to = self.to.get().wrapping_offset(run.offsets[1] + at as isize * across[1]);
                let mut pace = Pace::default();
                if lanes == 1 {
                    // A single state stays in a register.
                    let mut state = start;
                    for rows in (0..self.count).step_by(ROWS) {
                        pace.advance(ROWS);
                        for i in rows..self.count.min(rows + ROWS) {
                            // SAFETY: operand and result are valid for all elements, and only this call writes these
                            // results.
                            unsafe {
                                let x = from.wrapping_offset(i as isize * self.step[0]).cast::<T>().read();
                                state = step(state, x, i);
                                to.wrapping_offset(i as isize * self.step[1]).cast::<O>().write(out(state));
                            }
                        }
                    }
                    at += 1;
                    continue;
                }
                let mut states = [start; LANES];
                for rows in (0..self.count).step_by(ROWS) {
                    pace.advance(ROWS * lanes);
                    for i in rows..self.count.min(rows + ROWS) {
                        let from = from.wrapping_offset(i as isize * self.step[0]);
                        let to = to.wrapping_offset(i as isize * self.step[1]);
                        for (lane, state) in states[..lanes].iter_mut().enumerate() {
                            // SAFETY: operand and result are valid for all elements, and only this call writes these
                            // results.
                            unsafe {
                                let x = from.wrapping_offset(lane as isize * across[0]).cast::<T>().read();
                                *state = step(*state, x, i);
                                to.wrapping_offset(lane as isize * across[1]).cast::<O>().write(out(*state));
                            }
                        }
                    }
                }
                at += lanes;
            }
        });
    }

    /// [`CHAINS`] scans of a run, from scan `first` on.
    ///
    /// # Safety
    /// Same as for [`Scan::range`], for these scans.
    #[inline(always)]
    unsafe fn together<T: Copy, O, S: Copy>(
        &self,
        run: Run<2>,
        first: usize,
        start: S,
        step: &impl Fn(S, T, usize) -> S,
        out: &impl Fn(S) -> O,
    ) {
        let across = self.kept.inner_strides();
        let offset = |side: usize, chain: usize| run.offsets[side] + (first + chain) as isize * across[side];
        let from: [*mut u8; CHAINS] = std::array::from_fn(|chain| self.from.get().wrapping_offset(offset(0, chain)));
        let to: [*mut u8; CHAINS] = std::array::from_fn(|chain| self.to.get().wrapping_offset(offset(1, chain)));
        let (mut states, mut pace) = ([start; CHAINS], Pace::default());
        for rows in (0..self.count).step_by(ROWS) {
            pace.advance(ROWS * CHAINS);
            for i in rows..self.count.min(rows + ROWS) {
                for chain in 0..CHAINS {
                    // SAFETY: operand and result are valid for the elements of these scans, and only this call writes
                    // these results.
                    unsafe {
                        let x = from[chain].wrapping_offset(i as isize * self.step[0]).cast::<T>().read();
                        states[chain] = step(states[chain], x, i);
                        to[chain].wrapping_offset(i as isize * self.step[1]).cast::<O>().write(out(states[chain]));
                    }
                }
            }
        }
    }

    /// Scans of `COUNT` elements, of which the processor computes several at once as there are no loops within them.
    ///
    /// # Safety
    /// Same as for [`Scan::range`], for the scans of the run, which have `COUNT` elements.
    #[inline(always)]
    unsafe fn short<T: Copy, O, S: Copy, const COUNT: usize>(
        &self,
        run: Run<2>,
        start: S,
        step: &impl Fn(S, T, usize) -> S,
        out: &impl Fn(S) -> O,
    ) {
        let across = self.kept.inner_strides();
        let mut pace = Pace::default();
        for scans in (0..run.len).step_by(ROWS) {
            pace.advance(ROWS * COUNT);
            for scan in (scans..run.len.min(scans + ROWS)).map(|scan| scan as isize) {
                let from = self.from.get().wrapping_offset(run.offsets[0] + scan * across[0]);
                let to = self.to.get().wrapping_offset(run.offsets[1] + scan * across[1]);
                let mut state = start;
                for i in 0..COUNT {
                    // SAFETY: operand and result are valid for the scan's elements, and only this call writes these
                    // results.
                    unsafe {
                        let x = from.wrapping_offset(i as isize * self.step[0]).cast::<T>().read();
                        state = step(state, x, i);
                        to.wrapping_offset(i as isize * self.step[1]).cast::<O>().write(out(state));
                    }
                }
            }
        }
    }

    /// # Safety
    /// Same as for [`Scan::range`].
    unsafe fn typed<T: ScanElement>(
        &self,
        op: Op,
        range: (usize, usize),
        exps: impl Fn(T) -> f64,
        logs: impl Fn(f64) -> T,
    ) {
        // SAFETY: the elements are of type `T`, and the contract is that of `range`.
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

    /// Whether elements and results of a scan are neighbours.
    fn is_dense<T, O>(&self) -> bool {
        self.step == [size_of::<T>() as isize, size_of::<O>() as isize]
    }

    /// Prefix sums of f32.
    ///
    /// # Safety
    /// Same as for [`Scan::range`].
    unsafe fn sums_of_f32(&self, range: (usize, usize)) {
        #[cfg(target_arch = "x86_64")]
        if self.level == SimdLevel::Avx512 && self.is_dense::<f32, f32>() && self.count == avx512::SHORT {
            let (across, row_bytes) = (self.kept.inner_strides(), (avx512::SHORT * size_of::<f32>()) as isize);
            if across == [row_bytes; 2] {
                self.kept.for_runs(range.0, range.1, |run| {
                    let mut pace = Pace::default();
                    for first in (0..run.len).step_by(ROWS) {
                        let rows = ROWS.min(run.len - first);
                        pace.advance(rows * avx512::SHORT);
                        let offset = |side: usize| run.offsets[side] + first as isize * row_bytes;
                        let from = self.from.get().wrapping_offset(offset(0)).cast();
                        let to = self.to.get().wrapping_offset(offset(1)).cast();
                        // SAFETY: the scans of the run follow each other in operand and result, which only this call
                        // writes, and the CPU has the level.
                        unsafe { avx512::sums_of_short_rows(from, to, rows) };
                    }
                });
                return;
            }
        }
        #[cfg(target_arch = "x86_64")]
        let dense = self.is_dense::<f32, f32>() && self.count >= avx512::BLOCK;
        #[cfg(target_arch = "x86_64")]
        if self.level == SimdLevel::Avx512 && dense && range.1 - range.0 < CHAINS {
            let across = self.kept.inner_strides();
            self.kept.for_runs(range.0, range.1, |run| {
                for row in 0..run.len as isize {
                    let from = self.from.get().wrapping_offset(run.offsets[0] + row * across[0]).cast::<f32>();
                    let to = self.to.get().wrapping_offset(run.offsets[1] + row * across[1]).cast::<f32>();
                    let (mut sum, mut pace) = (0.0, Pace::default());
                    for first in (0..self.count).step_by(ROWS) {
                        let n = ROWS.min(self.count - first);
                        pace.advance(n);
                        // SAFETY: the scan has `count` neighbouring elements and results, which only this call writes,
                        // and the CPU has the level.
                        sum = unsafe { avx512::prefix_sums(from.add(first), to.add(first), n, sum) };
                    }
                }
            });
            return;
        }
        // SAFETY: the contract is the same.
        unsafe { self.typed::<f32>(Op::Cumsum, range, |x| x as f64, |x| x as f32) };
    }

    /// A sum or product of small integers, in int64.
    ///
    /// # Safety
    /// Same as for [`Scan::range`].
    unsafe fn widened<T: Copy + Into<i64>>(&self, op: Op, range: (usize, usize)) {
        // SAFETY: the elements are of type `T`, results are written as i64, and the contract is that of `range`.
        unsafe {
            match op {
                Op::Cumprod => self.range(range, 1i64, |s, x: T, _| s.wrapping_mul(x.into()), |s| s),
                _ => self.range(range, 0i64, |s, x: T, _| s.wrapping_add(x.into()), |s| s),
            }
        }
    }

    /// # Safety
    /// Same as for [`Scan::range`].
    unsafe fn extreme<T: ScanElement, const MAX: bool>(&self, range: (usize, usize)) {
        if self.is_dense::<T, i64>() {
            #[cfg(target_arch = "x86_64")]
            if self.level == SimdLevel::Avx512 {
                // SAFETY: the CPU has the level; elements and results of a scan are neighbours, and the contract is the
                // same.
                return unsafe { self.extreme_of_rows_avx512::<T, MAX>(range) };
            }
            // SAFETY: elements and results of a scan are neighbours, and the contract is the same.
            return unsafe { self.extreme_of_rows::<T, MAX>(range) };
        }
        let start = (T::narrow(T::ZERO), 0i64);
        let step = |known: (T, i64), x: T, i: usize| if i == 0 { (x, 0) } else { later_extreme::<T, MAX>(known, x, i) };
        // SAFETY: the elements are of type `T`, positions are written as i64, and the contract is that of `range`.
        unsafe { self.range(range, start, step, |(_, at)| at) };
    }
}

impl Scan {
    /// As [`Scan::extreme`], for scans along memory. New extremes become rare: most blocks have none, which a loop
    /// without branches finds.
    ///
    /// # Safety
    /// Same as for [`Scan::range`]; elements and results of a scan are neighbours.
    #[inline(always)]
    unsafe fn extreme_of_rows<T: ScanElement, const MAX: bool>(&self, (first, last): (usize, usize)) {
        let across = self.kept.inner_strides();
        self.kept.for_runs(first, last, |run| {
            for row in 0..run.len as isize {
                let from = self.from.get().wrapping_offset(run.offsets[0] + row * across[0]).cast::<T>();
                let to = self.to.get().wrapping_offset(run.offsets[1] + row * across[1]).cast::<i64>();
                // SAFETY: both have `count` neighbouring elements, and only this call writes these results.
                let (elements, places) = unsafe {
                    (std::slice::from_raw_parts(from, self.count), std::slice::from_raw_parts_mut(to, self.count))
                };
                let (mut known, mut pace) = ((elements[0], 0), Pace::default());
                let (blocks, rest) = elements.as_chunks::<BLOCK>();
                let (places, last_places) = places.as_chunks_mut::<BLOCK>();
                for block in 0..blocks.len() {
                    if block % (ROWS / BLOCK) == 0 {
                        pace.advance(ROWS);
                    }
                    let (elements, places) = (&blocks[block], &mut places[block]);
                    if !elements.iter().fold(false, |any, x| any | x.reaches::<MAX>(known.0)) {
                        *places = [known.1; BLOCK];
                        continue;
                    }
                    for i in 0..BLOCK {
                        known = later_extreme::<T, MAX>(known, elements[i], block * BLOCK + i);
                        places[i] = known.1;
                    }
                }
                for i in 0..rest.len() {
                    known = later_extreme::<T, MAX>(known, rest[i], blocks.len() * BLOCK + i);
                    last_places[i] = known.1;
                }
            }
        });
    }

    /// [`Scan::extreme_of_rows`] by the instructions of AVX-512.
    ///
    /// # Safety
    /// Same as for [`Scan::extreme_of_rows`], on a machine with the level.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn extreme_of_rows_avx512<T: ScanElement, const MAX: bool>(&self, range: (usize, usize)) {
        // SAFETY: the contract is the same.
        unsafe { self.extreme_of_rows::<T, MAX>(range) };
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use std::arch::x86_64::*;

    /// The number of elements of a block.
    pub const BLOCK: usize = 8;

    /// Writes the sums of `before` and the elements up to each one, and returns the last. The sums within a block are
    /// those of a Hillis-Steele scan (1986), so that additions to `before`, each of which waits for the last, are as
    /// few as the blocks.
    ///
    /// # Safety
    /// `from` has `n` elements, `to` has room for as many, and the machine has the level.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub unsafe fn prefix_sums(from: *const f32, to: *mut f32, n: usize, before: f64) -> f64 {
        let zeros = _mm512_setzero_si512();
        let last = _mm512_set1_epi64(BLOCK as i64 - 1);
        let plus = |x: __m512d, moved: __m512i| _mm512_add_pd(x, _mm512_castsi512_pd(moved));
        let mut sum = _mm512_set1_pd(before);
        for at in (0..n).step_by(BLOCK) {
            let mask = ((1u32 << (n - at).min(BLOCK)) - 1) as __mmask8;
            // SAFETY: the mask has bits for elements before `n` only; masked lanes are not accessed.
            let x = _mm512_cvtps_pd(unsafe { _mm256_maskz_loadu_ps(mask, from.add(at)) });
            let x = plus(x, _mm512_alignr_epi64::<7>(_mm512_castpd_si512(x), zeros));
            let x = plus(x, _mm512_alignr_epi64::<6>(_mm512_castpd_si512(x), zeros));
            let x = plus(x, _mm512_alignr_epi64::<4>(_mm512_castpd_si512(x), zeros));
            let sums = _mm512_cvtpd_ps(_mm512_add_pd(sum, x));
            // SAFETY: `to` has room for `n` elements, and the mask has bits for those before `n` only.
            unsafe { _mm256_mask_storeu_ps(to.add(at), mask, sums) };
            sum = _mm512_add_pd(sum, _mm512_permutexvar_pd(last, x));
        }
        _mm512_cvtsd_f64(sum)
    }

    /// The number of elements of a row of [`sums_of_short_rows`].
    pub const SHORT: usize = 4;

    /// Writes the prefix sums of each of `rows` rows of [`SHORT`] elements, two rows at a time.
    ///
    /// # Safety
    /// `from` has the elements of `rows` rows that follow each other, `to` has room for as many, and the machine has
    /// the level.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub unsafe fn sums_of_short_rows(from: *const f32, to: *mut f32, rows: usize) {
        for at in (0..rows * SHORT).step_by(BLOCK) {
            let mask = ((1u32 << (rows * SHORT - at).min(BLOCK)) - 1) as __mmask8;
            // SAFETY: the mask has bits for elements of the rows only; masked lanes are not accessed.
            let x = _mm512_cvtps_pd(unsafe { _mm256_maskz_loadu_ps(mask, from.add(at)) });
            // A sum begins with 0, to which -0.0 adds nothing.
            let x = _mm512_add_pd(x, _mm512_setzero_pd());
            // The elements move by one, then by two places within each row.
            let x = _mm512_add_pd(x, _mm512_maskz_permutex_pd::<0b10_01_00_00>(0b1110_1110, x));
            let x = _mm512_add_pd(x, _mm512_maskz_permutex_pd::<0b01_00_00_00>(0b1100_1100, x));
            // SAFETY: `to` has room for the rows, and the mask has bits for their elements only.
            unsafe { _mm256_mask_storeu_ps(to.add(at), mask, _mm512_cvtpd_ps(x)) };
        }
    }
}

/// The extreme and its position after element `i`: the later of equal ones.
#[inline(always)]
fn later_extreme<T: ScanElement, const MAX: bool>(known: (T, i64), x: T, i: usize) -> (T, i64) {
    if x.reaches::<MAX>(known.0) { (x, i as i64) } else { known }
}

/// Adds `exp(x)` to a sum of exponentials, kept as the largest exponent and the sum scaled by its exponential: the
/// online normaliser of Milakov & Gimelshein (2018).
fn plus_exp((most, sum): (f64, f64), x: f64) -> (f64, f64) {
    if x == most && x.is_infinite() {
        // The difference of two infinities would be NaN: +inf counts once, -inf adds nothing.
        (most, if x > 0.0 { 1.0 } else { 0.0 })
    } else if x <= most {
        (most, sum + (x - most).exp())
    } else {
        (x, sum * (most - x).exp() + 1.0)
    }
}

impl CpuBackend {
    /// Computes a scan along an axis.
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
            #[cfg(target_arch = "x86_64")]
            level: self.level,
        };
        let sums = matches!(op, Op::Cumsum | Op::Cumprod);
        let scans = out.shape.numel() / count;
        let chunk = (CHUNK_ELEMENTS / count).max(1);
        let each = match op {
            Op::Cumargmax | Op::Cumargmin => EXTREME_BYTES,
            Op::Logcumsumexp => LOGCUMSUMEXP_BYTES,
            _ => SCAN_BYTES,
        };
        run_or_not(&mut self.pool, (scans * count).saturating_mul(each), scans.div_ceil(chunk), &|i| {
            let range = (i * chunk, ((i + 1) * chunk).min(scans));
            // SAFETY: the axes are the tensors', which have one shape; `result` was just allocated, and chunks are
            // disjoint.
            unsafe {
                match dtype {
                    DType::U8 if sums => scan.widened::<u8>(op, range),
                    DType::I8 if sums => scan.widened::<i8>(op, range),
                    DType::I16 if sums => scan.widened::<i16>(op, range),
                    DType::I32 if sums => scan.widened::<i32>(op, range),
                    DType::Bool | DType::U8 => scan.typed::<u8>(op, range, |_| 0.0, |_| 0),
                    DType::I8 => scan.typed::<i8>(op, range, |_| 0.0, |_| 0),
                    DType::I16 | DType::U16 => scan.typed::<i16>(op, range, |_| 0.0, |_| 0),
                    DType::I32 | DType::U32 => scan.typed::<i32>(op, range, |_| 0.0, |_| 0),
                    DType::I64 | DType::U64 => scan.typed::<i64>(op, range, |_| 0.0, |_| 0),
                    DType::F16 => scan.typed(op, range, f16::to_f64, f16::from_f64),
                    DType::BF16 => scan.typed(op, range, bf16::to_f64, bf16::from_f64),
                    DType::F32 if op == Op::Cumsum => scan.sums_of_f32(range),
                    DType::F32 | DType::C64 => scan.typed(op, range, |x: f32| x as f64, |x| x as f32),
                    DType::F64 | DType::C128 => scan.typed(op, range, |x: f64| x, |x| x),
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
    use gt_ops::{Attrs, Shape};

    /// Prefix sums of f32 are those in f64, rounded once, at all levels: also after blocks and threads' parts, and up
    /// to an infinity or NaN.
    #[test]
    fn prefix_sums_of_f32_are_rounded_once() {
        for count in [0, 1, 4, 7, 8, 9, 1000, 2 * ROWS + 3] {
            let rows = 3;
            let mut elements: Vec<f64> =
                (0..rows * count).map(|i| ((i * 7919 % 1009) as f32 / 7.0 - 70.0) as f64).collect();
            if count > 2 {
                elements[count + count / 2] = f64::INFINITY;
                elements[2 * count + 1] = f64::NAN;
            }
            let sums = elements.chunks(count.max(1)).flat_map(|row| {
                row.iter().scan(0.0f64, |sum, x| {
                    *sum += x;
                    Some((*sum, f64::from(*sum as f32)))
                })
            });
            let sums: Vec<(f64, f64)> = sums.collect();
            for level in SimdLevel::available() {
                let mut backend = CpuBackend::at_level(CpuOptions { threads: 2, ..CpuOptions::default() }, level);
                let t = upload(&mut backend, Shape::new(&[rows, count]).unwrap(), DType::F32, &elements);
                let found = run(&mut backend, Op::Cumsum, &[&t], &[], &Attrs::Axis(1));
                let found = download(&mut backend, &found);
                assert_eq!(found.len(), sums.len());
                for (i, (found, (exact, rounded))) in found.into_iter().zip(&sums).enumerate() {
                    // The sum in f64 has its own error, which can only matter next to the middle of two f32.
                    let near = (found - exact).abs() <= (rounded - exact).abs() * (1.0 + 1e-6) + 1e-12;
                    assert!(
                        found == *rounded || near || exact.is_nan() && found.is_nan(),
                        "{i} of {count}: {found}, not {exact}"
                    );
                }
            }
        }
    }

    /// The last of equal extremes counts, NaN is larger and smaller than every number, and the levels agree.
    #[test]
    fn positions_of_running_extremes_are_those_of_a_loop() {
        for count in [1, 15, 16, 17, 1000, 2 * ROWS + 3] {
            let mut elements: Vec<f64> = (0..2 * count).map(|i| (i * 7919 % 1009) as f64 / 8.0 - 60.0).collect();
            if count > 16 {
                elements[count + count / 2] = f64::NAN;
                elements[count + count - 1] = f64::NAN;
            }
            for (op, sign) in [(Op::Cumargmax, 1.0), (Op::Cumargmin, -1.0)] {
                let places: Vec<f64> = elements
                    .chunks(count)
                    .flat_map(|row| {
                        let (mut best, mut at) = (row[0], 0);
                        row.iter().enumerate().map(move |(i, x)| {
                            if x.is_nan() || sign * x >= sign * best {
                                (best, at) = (*x, i);
                            }
                            at as f64
                        })
                    })
                    .collect();
                for (level, dtype) in
                    SimdLevel::available().into_iter().flat_map(|level| [(level, DType::F32), (level, DType::F64)])
                {
                    let mut backend = CpuBackend::at_level(CpuOptions { threads: 2, ..CpuOptions::default() }, level);
                    let t = upload(&mut backend, Shape::new(&[2, count]).unwrap(), dtype, &elements);
                    let found = run(&mut backend, op, &[&t], &[], &Attrs::Axis(1));
                    assert_eq!(download(&mut backend, &found), places, "{} of {count} at {level:?}", op.name());
                }
            }
        }
    }
}
