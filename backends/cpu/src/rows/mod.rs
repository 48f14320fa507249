//! Ops that do several steps over rows, the last axis, in one pass: what they share.
//!
//! A [`Work`] computes a range of rows. It is generic over the compute type, its bodies are inlined into one function
//! a level of vector instructions, and sums gather in a fixed number of partial sums, so that all levels and any number
//! of threads compute the same bits.

mod attention;
mod loss;
mod norm;
mod softmax;

use crate::elementwise::work_ns;
use crate::kernels::{Kernel, Level};
use crate::pool::Pool;
use crate::tensor::Tensor;
use crate::{CpuBackend, Inputs, Result, compute_dtype, tensor};
use gt_backend::{ExecError, Input};
use gt_ops::math::Real;
use gt_ops::{Attrs, DType, Meta, Op, Row};
use std::slice;

/// Rows are worked on so many elements at a time: a few such blocks stay in L1.
const BLOCK_ELEMENTS: usize = 1024;
/// Shorter rows share loops with their neighbours.
const SHORT_ROW: usize = 64;
/// Partial sums of a row: as many as four of the largest vector registers hold of f32.
const LANES: usize = 64;
/// Elements that partial sums gather before they join a sum in f64.
const SUM_BLOCK: usize = 8 << 10;

/// Operations, in those of elementwise work, that a row costs however short it is: its sums are joined, and more.
const ROW_WEIGHT: usize = 3_000;

/// Rows to be computed.
trait Work<R: Real>: Sync {
    /// Computes rows `first..last`.
    ///
    /// # Safety
    /// The operands are valid for these rows, and nobody else writes their results.
    unsafe fn rows(&self, first: usize, last: usize);
}

/// Computes rows `first..last` with a level's instructions.
///
/// # Safety
/// As [`Work::rows`], on a machine that has the level.
unsafe fn at_level<R: Real, W: Work<R>>(level: Level, work: &W, first: usize, last: usize) {
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn avx2<R: Real, W: Work<R>>(work: &W, first: usize, last: usize) {
        // SAFETY: the caller's promise.
        unsafe { work.rows(first, last) }
    }
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn avx512<R: Real, W: Work<R>>(work: &W, first: usize, last: usize) {
        // SAFETY: the caller's promise.
        unsafe { work.rows(first, last) }
    }
    // SAFETY: the caller's promise.
    unsafe {
        match level {
            Level::Baseline => work.rows(first, last),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => avx2(work, first, last),
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => avx512(work, first, last),
        }
    }
}

/// Computes all rows of `columns` elements, by several threads when that pays; `weight` is the operations an element.
///
/// # Safety
/// As [`Work::rows`].
unsafe fn run<R: Real, W: Work<R>>(
    pool: &mut Pool,
    level: Level,
    work: &W,
    (rows, columns): (usize, usize),
    weight: usize,
) -> Result<()> {
    let columns = columns.max(1);
    let ns = work_ns(rows.saturating_mul(columns), weight + ROW_WEIGHT / columns);
    let chunk = if pool.pays(ns) { rows.div_ceil(pool.chunks(ns)).max(1) } else { rows.max(1) };
    pool.run(rows.div_ceil(chunk), &|i| {
        // SAFETY: the caller's promise; chunks are disjoint.
        unsafe { at_level::<R, W>(level, work, i * chunk, ((i + 1) * chunk).min(rows)) }
    })
}

/// An operand's rows, which follow each other.
struct Source {
    ptr: *const u8,
    size: usize,
    widen: Option<Kernel>,
}
// SAFETY: it is only read, while the operand lives.
unsafe impl Sync for Source {}

impl Source {
    /// Elements `first..first + count` in the compute type: where they are, or widened into `scratch`.
    ///
    /// # Safety
    /// The operand has these elements, of type `R` or to be widened to it.
    #[inline(always)]
    unsafe fn elements<'a, R: Real>(&'a self, first: usize, count: usize, scratch: &'a mut Vec<R>) -> &'a [R] {
        // SAFETY: the caller's promise; the scratch has room for all.
        unsafe {
            let from = self.ptr.add(first * self.size);
            match self.widen {
                None => slice::from_raw_parts(from.cast::<R>(), count),
                Some(widen) => {
                    scratch.resize(count, R::ZERO);
                    widen(scratch.as_mut_ptr().cast(), [from; 3], 0, count);
                    scratch
                }
            }
        }
    }
}

/// Where a result's rows go.
struct Sink {
    ptr: *mut u8,
    size: usize,
    narrow: Option<Kernel>,
}
// SAFETY: threads write disjoint rows.
unsafe impl Sync for Sink {}

impl Sink {
    /// Room for elements `first..first + count`: where they go, or `scratch` where they are to be narrowed. No closure
    /// fills it, which would not have a level's instructions.
    ///
    /// # Safety
    /// The result has these elements, which nobody else writes or reads meanwhile. They are written before being read.
    #[inline(always)]
    unsafe fn room<'a, R: Real>(&'a self, first: usize, count: usize, scratch: &'a mut Vec<R>) -> &'a mut [R] {
        if self.narrow.is_some() {
            scratch.resize(count, R::ZERO);
            return scratch;
        }
        // SAFETY: the caller's promise; memory of a tensor is initialised, whatever it holds.
        unsafe { slice::from_raw_parts_mut(self.ptr.add(first * self.size).cast::<R>(), count) }
    }

    /// What was written to [`Sink::room`] is done.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    unsafe fn done<R: Real>(&self, first: usize, count: usize, scratch: &[R]) {
        if let Some(narrow) = self.narrow {
            // SAFETY: the caller's promise.
            unsafe { narrow(self.ptr.add(first * self.size), [scratch.as_ptr().cast(); 3], 0, count) };
        }
    }

    /// The elements of the whole result.
    ///
    /// # Safety
    /// It has so many, and nobody else writes or reads them.
    unsafe fn write<R: Real>(&self, values: &[f64]) {
        let mut scratch = Vec::new();
        // SAFETY: the caller's promise.
        unsafe {
            for (to, x) in self.room::<R>(0, values.len(), &mut scratch).iter_mut().zip(values) {
                *to = R::from_f64(*x);
            }
            self.done(0, values.len(), &scratch);
        }
    }
}

/// How many rows of `columns` elements make a block.
#[inline(always)]
fn block_rows(columns: usize) -> usize {
    (BLOCK_ELEMENTS / columns.max(1)).max(1)
}

/// The sum of partial sums.
#[inline(always)]
fn joined<R: Real>(mut lanes: [R; LANES]) -> R {
    let mut width = LANES;
    while width > 1 {
        width /= 2;
        for i in 0..width {
            lanes[i] = lanes[i] + lanes[i + width];
        }
    }
    lanes[0]
}

/// The sum of `f` over elements at the same place of slices of one length, by the number of slices.
macro_rules! sums {
    ($($name:ident $gather:ident: $($x:ident),+;)*) => {$(
        #[inline(always)]
        fn $name<R: Real>($($x: &[R],)+ f: impl Fn($(sums!(one $x R)),+) -> R) -> f64 {
            let n = [$($x.len()),+][0];
            let (mut total, mut at) = (0.0, 0);
            while at < n {
                let end = (at + SUM_BLOCK).min(n);
                total += $gather::<R>($(&$x[at..end],)+ &f).to_f64();
                at = end;
            }
            total
        }
        #[inline(always)]
        fn $gather<R: Real>($($x: &[R],)+ f: &impl Fn($(sums!(one $x R)),+) -> R) -> R {
            let n = [$($x.len()),+][0];
            let whole = n - n % LANES;
            let mut lanes = [R::ZERO; LANES];
            let mut at = 0;
            while at < whole {
                $(let $x = &$x[at..at + LANES];)+
                for i in 0..LANES {
                    lanes[i] = lanes[i] + f($($x[i]),+);
                }
                at += LANES;
            }
            if whole < n {
                // What is left has sums of its own: those above would leave their registers for it.
                let mut rest = [R::ZERO; LANES];
                $(let $x = &$x[whole..];)+
                for (i, rest) in rest[..n - whole].iter_mut().enumerate() {
                    *rest = f($($x[i]),+);
                }
                for i in 0..LANES {
                    lanes[i] = lanes[i] + rest[i];
                }
            }
            joined(lanes)
        }
    )*};
    (one $x:ident $t:ty) => { $t };
}
sums! {
    sum_of gather1: x;
    sum_of_pairs gather2: x, y;
    sum_of_triples gather3: x, y, z;
}

/// The largest element, NaN if any is.
#[inline(always)]
fn largest<R: Real>(row: &[R]) -> R {
    #[inline(always)]
    fn better<R: Real>(best: R, x: R) -> R {
        // A NaN enters, and nothing beats it afterwards.
        if (x > best) | x.is_nan() { x } else { best }
    }
    if row.len() < LANES / 2 {
        return row.iter().fold(-R::INFINITY, |best, x| better(best, *x));
    }
    let whole = row.len() - row.len() % LANES;
    let mut lanes = [-R::INFINITY; LANES];
    let mut at = 0;
    while at < whole {
        let group = &row[at..at + LANES];
        for i in 0..LANES {
            lanes[i] = better(lanes[i], group[i]);
        }
        at += LANES;
    }
    if whole < row.len() {
        let mut rest = [-R::INFINITY; LANES];
        rest[..row.len() - whole].copy_from_slice(&row[whole..]);
        for i in 0..LANES {
            lanes[i] = better(lanes[i], rest[i]);
        }
    }
    let mut width = LANES;
    while width > 1 {
        width /= 2;
        for i in 0..width {
            lanes[i] = better(lanes[i], lanes[i + width]);
        }
    }
    lanes[0]
}

impl CpuBackend {
    /// One op on rows.
    pub(crate) fn rows(&mut self, row: &Row, inputs: Inputs<'_, '_>, attrs: &Attrs, out: &Meta) -> Result<Tensor> {
        match compute_dtype(out.dtype) {
            DType::F64 => self.rows_of::<f64>(row.op, inputs, attrs, out),
            _ => self.rows_of::<f32>(row.op, inputs, attrs, out),
        }
    }

    fn rows_of<R: Real>(&mut self, op: Op, inputs: Inputs<'_, '_>, attrs: &Attrs, out: &Meta) -> Result<Tensor> {
        match (op, attrs) {
            (Op::Softmax | Op::LogSoftmax, _) => self.softmax::<R>(tensor(&inputs[0])?, op == Op::LogSoftmax, out),
            (Op::SoftmaxBackward | Op::LogSoftmaxBackward, _) => {
                self.softmax_grad::<R>(tensor(&inputs[0])?, tensor(&inputs[1])?, op == Op::LogSoftmaxBackward, out)
            }
            (Op::LayerNorm, _) => self.norm::<R, true>(inputs, out),
            (Op::RmsNorm, _) => self.norm::<R, false>(inputs, out),
            (Op::LayerNormBackward, _) => self.norm_grad::<R, true>(inputs, out),
            (Op::RmsNormBackward, _) => self.norm_grad::<R, false>(inputs, out),
            (Op::LayerNormWeightBackward, _) => self.norm_weight_grad::<R, true>(inputs, out),
            (Op::RmsNormWeightBackward, _) => self.norm_weight_grad::<R, false>(inputs, out),
            (Op::CrossEntropy | Op::NllLoss, Attrs::Loss(spec)) => {
                self.class_loss::<R>(inputs, spec, op == Op::CrossEntropy, out)
            }
            (Op::CrossEntropyBackward | Op::NllLossBackward, Attrs::Loss(spec)) => {
                self.class_loss_grad::<R>(inputs, spec, op == Op::CrossEntropyBackward, out)
            }
            (Op::Attention, Attrs::Attention { causal, scale }) => self.attention(inputs, *causal, *scale, out),
            (Op::AttentionBackward, Attrs::Attention { causal, scale }) => {
                self.attention_grad(inputs, *causal, *scale, out)
            }
            _ => Err(ExecError::internal(format!("{} has no kernel", op.name()))),
        }
    }

    /// The rows of a tensor without gaps.
    fn source(&self, t: &Tensor) -> Source {
        Source { ptr: t.ptr(), size: t.size(), widen: self.widen(t.meta.dtype) }
    }

    fn sink(&self, t: &Tensor) -> Sink {
        Sink { ptr: t.ptr(), size: t.size(), narrow: self.narrow(t.meta.dtype) }
    }

    /// The elements of a tensor, or a number so many times, in the compute type.
    fn numbers<R: Real>(&mut self, input: &Input<'_, Tensor>, count: usize) -> Result<Vec<R>> {
        match input {
            Input::Scalar(scalar) => Ok(vec![R::from_f64(scalar.to_f64()); count]),
            Input::Tensor(t) => {
                let dense = self.contiguous(t)?;
                let (source, mut scratch) = (self.source(&dense), Vec::new());
                // SAFETY: the operand has so many elements, says shape inference.
                Ok(unsafe { source.elements::<R>(0, count, &mut scratch) }.to_vec())
            }
        }
    }
}

/// Rows and columns of a tensor with at least one axis.
fn extent(meta: &Meta) -> (usize, usize) {
    let columns = meta.shape.dims().last().copied().unwrap_or(1);
    (meta.shape.numel() / columns.max(1), columns)
}

fn number(input: &Input<'_, Tensor>) -> Result<f64> {
    match input {
        Input::Scalar(scalar) => Ok(scalar.to_f64()),
        Input::Tensor(_) => Err(ExecError::internal("a tensor where a number belongs")),
    }
}
