//! Ops that do several steps over rows, the last axis, in one pass: what they share.
//!
//! A [`RowKernel`] computes a range of rows. It is generic over the compute type, its bodies are inlined into one function
//! a level of vector instructions, and sums gather in a fixed number of partial sums, so that all levels and any number
//! of threads compute the same bits.

mod attention;
mod loss;
pub(crate) mod moments;
mod norm;
mod softmax;

use crate::backend::{CpuBackend, Inputs, Result, compute_dtype, tensor};
use crate::elementwise::work_ns;
use crate::kernels::{Kernel, SimdLevel};
use crate::lanes::{Lanes, Vectors};
use crate::tensor::CpuTensor;
use crate::thread_pool::ThreadPool;
use gt_backend::{ExecError, Input};
use gt_ops::math::Real;
use gt_ops::{Attrs, DType, Meta, Op, Row};
use std::ops::Deref;
use std::slice;

/// Rows are worked on so many elements at a time: a few such blocks stay in L1.
const BLOCK_ELEMENTS: usize = 1024;
/// Shorter rows share loops with their neighbours.
const SHORT_ROW: usize = 64;
/// Operations, in those of elementwise work, that a row costs however short it is: its sums are joined, and more.
const ROW_WEIGHT: usize = 3_000;

/// Rows to be computed.
trait RowKernel<R: Vectors>: Sync {
    /// Computes rows `first..last`, with a level's vectors.
    ///
    /// # Safety
    /// The operands are valid for these rows, and nobody else writes their results. The machine has the level, and the
    /// caller was compiled for it.
    unsafe fn rows<V: Lanes<R>>(&self, first: usize, last: usize);
}

/// Computes rows `first..last` with a level's instructions.
///
/// # Safety
/// As [`RowKernel::rows`], on a machine that has the level.
unsafe fn at_level<R: Vectors, W: RowKernel<R>>(level: SimdLevel, work: &W, first: usize, last: usize) {
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn avx2<R: Vectors, W: RowKernel<R>>(work: &W, first: usize, last: usize) {
        // SAFETY: the caller's promise.
        unsafe { work.rows::<R::Avx2>(first, last) }
    }
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn avx512<R: Vectors, W: RowKernel<R>>(work: &W, first: usize, last: usize) {
        // SAFETY: the caller's promise.
        unsafe { work.rows::<R::Avx512>(first, last) }
    }
    // SAFETY: the caller's promise.
    unsafe {
        match level {
            SimdLevel::Baseline => work.rows::<R::Baseline>(first, last),
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Avx2 => avx2(work, first, last),
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Avx512 => avx512(work, first, last),
        }
    }
}

/// Computes all rows of `columns` elements, by several threads when that pays; `weight` is the operations an element.
///
/// # Safety
/// As [`RowKernel::rows`].
unsafe fn run<R: Vectors, W: RowKernel<R>>(
    pool: &mut ThreadPool,
    level: SimdLevel,
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
struct RowSource {
    ptr: *const u8,
    size: usize,
    widen: Option<Kernel>,
}
// SAFETY: it is only read, while the operand lives.
unsafe impl Sync for RowSource {}

impl RowSource {
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
struct RowSink {
    ptr: *mut u8,
    size: usize,
    narrow: Option<Kernel>,
}
// SAFETY: threads write disjoint rows.
unsafe impl Sync for RowSink {}

impl RowSink {
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

    /// What was written to [`RowSink::room`] is done.
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

impl CpuBackend {
    /// One op on rows.
    pub(crate) fn rows(&mut self, row: &Row, inputs: Inputs<'_, '_>, attrs: &Attrs, out: &Meta) -> Result<CpuTensor> {
        match compute_dtype(out.dtype) {
            DType::F64 => self.rows_of::<f64>(row.op, inputs, attrs, out),
            _ => self.rows_of::<f32>(row.op, inputs, attrs, out),
        }
    }

    fn rows_of<R: Vectors>(&mut self, op: Op, inputs: Inputs<'_, '_>, attrs: &Attrs, out: &Meta) -> Result<CpuTensor> {
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
    fn source(&self, t: &CpuTensor) -> RowSource {
        RowSource { ptr: t.ptr(), size: t.size(), widen: self.widen(t.meta.dtype) }
    }

    fn sink(&self, t: &CpuTensor) -> RowSink {
        RowSink { ptr: t.ptr(), size: t.size(), narrow: self.narrow(t.meta.dtype) }
    }

    /// The elements of a tensor, or a number so many times, in the compute type.
    fn numbers<R: Real>(&mut self, input: &Input<'_, CpuTensor>, count: usize) -> Result<DenseValues<R>> {
        match input {
            Input::Scalar(scalar) => {
                Ok(DenseValues { tensor: None, made: vec![R::from_f64(scalar.to_f64()); count], count })
            }
            Input::Tensor(t) => {
                let dense = self.contiguous(t)?;
                let (source, mut made) = (self.source(&dense), Vec::new());
                // SAFETY: the operand has so many elements, says shape inference.
                unsafe { source.elements::<R>(0, count, &mut made) };
                Ok(DenseValues { tensor: Some(dense), made, count })
            }
        }
    }
}

/// Numbers in the compute type, in a tensor where that has them so.
struct DenseValues<R> {
    tensor: Option<CpuTensor>,
    made: Vec<R>,
    count: usize,
}

impl<R> Deref for DenseValues<R> {
    type Target = [R];
    fn deref(&self) -> &[R] {
        match &self.tensor {
            // SAFETY: a tensor that was not widened has so many elements of this type, and keeps them.
            Some(tensor) if self.made.is_empty() => unsafe {
                slice::from_raw_parts(tensor.ptr().cast::<R>(), self.count)
            },
            _ => &self.made,
        }
    }
}

/// Rows and columns of a tensor with at least one axis.
fn extent(meta: &Meta) -> (usize, usize) {
    let columns = meta.shape.dims().last().copied().unwrap_or(1);
    (meta.shape.numel() / columns.max(1), columns)
}

fn number(input: &Input<'_, CpuTensor>) -> Result<f64> {
    match input {
        Input::Scalar(scalar) => Ok(scalar.to_f64()),
        Input::Tensor(_) => Err(ExecError::internal("a tensor where a number belongs")),
    }
}
