//! Row-wise ops, which fuse several steps over the last axis into one pass: softmax, norms, losses and attention.
//!
//! A [`RowKernel`] computes a range of rows. It is generic over the compute type, and its bodies are inlined into one
//! function for each [`SimdLevel`]. Sums have a fixed number of partial sums, so that all levels and any number of
//! threads compute the same bits.

mod attention;
mod ctc;
mod fourier;
pub(crate) mod fourier_plans;
mod loss;
mod lstm;
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

/// The number of elements in a block of rows: a few such blocks stay in L1.
const BLOCK_ELEMENTS: usize = 1024;
/// Rows shorter than this are processed several at a time.
const SHORT_ROW: usize = 64;
/// The fixed cost of a row, such as combining its partial sums, in elementwise operations.
const ROW_WEIGHT: usize = 3_000;

/// An op on rows, ready to run.
trait RowKernel<R: Vectors>: Sync {
    /// Computes rows `first..last` with the lanes `V` of a level.
    ///
    /// # Safety
    /// The operands are valid for these rows, and nothing else writes their results. The CPU has the level, and the
    /// caller was compiled for it.
    unsafe fn rows<V: Lanes<R>>(&self, first: usize, last: usize);
}

/// Computes rows `first..last` with a level's instructions.
///
/// # Safety
/// Same as for [`RowKernel::rows`], on a CPU that has the level.
unsafe fn at_level<R: Vectors, W: RowKernel<R>>(level: SimdLevel, work: &W, first: usize, last: usize) {
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn avx2<R: Vectors, W: RowKernel<R>>(work: &W, first: usize, last: usize) {
        // SAFETY: the CPU has AVX2 and FMA: `SimdLevel::runs_here` checked them. The rows are those of the contract
        // of `at_level`.
        unsafe { work.rows::<R::Avx2>(first, last) }
    }
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn avx512<R: Vectors, W: RowKernel<R>>(work: &W, first: usize, last: usize) {
        // SAFETY: the CPU has these AVX-512 instructions: `SimdLevel::runs_here` checked them. The rows are those of
        // the contract of `at_level`.
        unsafe { work.rows::<R::Avx512>(first, last) }
    }
    // SAFETY: the backend chose a `level` that the CPU has, and each call is compiled for its level. The rows are those
    // of the contract of `at_level`.
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

/// Computes all `rows` rows, on several threads when that pays; `weight` is the cost of an element in operations.
///
/// # Safety
/// Same as for [`RowKernel::rows`].
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
        // SAFETY: `i * chunk` up to `rows` are rows that the contract covers, and chunks are disjoint.
        unsafe { at_level::<R, W>(level, work, i * chunk, ((i + 1) * chunk).min(rows)) }
    })
}

/// The contiguous rows of an operand.
struct RowSource {
    ptr: *const u8,
    size: usize,
    widen: Option<Kernel>,
}
// SAFETY: the operand is only read, and outlives the threads' work.
unsafe impl Sync for RowSource {}

impl RowSource {
    /// Elements `first..first + count` in the compute type: in place, or widened into `scratch`.
    ///
    /// # Safety
    /// The operand has these elements, of type `R` or with a conversion to it.
    #[inline(always)]
    unsafe fn elements<'a, R: Real>(&'a self, first: usize, count: usize, scratch: &'a mut Vec<R>) -> &'a [R] {
        // SAFETY: the operand has `count` elements from `first` on, and `scratch` was resized to hold them widened.
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

/// The contiguous rows of a result.
struct RowSink {
    ptr: *mut u8,
    size: usize,
    narrow: Option<Kernel>,
}
// SAFETY: each row is written by one thread only.
unsafe impl Sync for RowSink {}

impl RowSink {
    /// Memory for elements `first..first + count` in the compute type: the result's own, or `scratch` if they are
    /// narrowed later by [`RowSink::done`]. The caller fills it, since a closure would not be compiled for the level.
    ///
    /// # Safety
    /// The result has these elements, and nothing else reads or writes them meanwhile.
    #[inline(always)]
    unsafe fn room<'a, R: Real>(&'a self, first: usize, count: usize, scratch: &'a mut Vec<R>) -> &'a mut [R] {
        if self.narrow.is_some() {
            scratch.resize(count, R::ZERO);
            return scratch;
        }
        // SAFETY: the result has `count` elements from `first` on, which only the caller uses; a tensor's memory is
        // always initialised.
        unsafe { slice::from_raw_parts_mut(self.ptr.add(first * self.size).cast::<R>(), count) }
    }

    /// Narrows the elements written to [`RowSink::room`] into the result, if that is needed.
    ///
    /// # Safety
    /// Same as for [`RowSink::room`], with the same `first`, `count` and `scratch`.
    #[inline(always)]
    unsafe fn done<R: Real>(&self, first: usize, count: usize, scratch: &[R]) {
        if let Some(narrow) = self.narrow {
            // SAFETY: the result has `count` elements from `first` on, and `scratch` holds as many, by the contract
            // of `room`.
            unsafe { narrow(self.ptr.add(first * self.size), [scratch.as_ptr().cast(); 3], 0, count) };
        }
    }

    /// Writes all elements of the result.
    ///
    /// # Safety
    /// The result has `values.len()` elements, and nothing else reads or writes them.
    unsafe fn write<R: Real>(&self, values: &[f64]) {
        let mut scratch = Vec::new();
        // SAFETY: the result has `values.len()` elements, which nothing else reads or writes.
        unsafe {
            for (to, x) in self.room::<R>(0, values.len(), &mut scratch).iter_mut().zip(values) {
                *to = R::from_f64(*x);
            }
            self.done(0, values.len(), &scratch);
        }
    }
}

/// The number of rows of `columns` elements in a block.
#[inline(always)]
fn block_rows(columns: usize) -> usize {
    (BLOCK_ELEMENTS / columns.max(1)).max(1)
}

impl CpuBackend {
    /// Computes a row-wise op.
    pub(crate) fn rows(
        &mut self,
        row: &'static Row,
        inputs: Inputs<'_, '_>,
        attrs: &Attrs,
        out: &Meta,
        last_use: u8,
    ) -> Result<CpuTensor> {
        if let Op::ComplexMul | Op::ComplexDiv = row.op {
            return self.complex(row, inputs, out, last_use);
        }
        match compute_dtype(out.dtype) {
            DType::F64 => self.rows_of::<f64>(row.op, inputs, attrs, out),
            _ => self.rows_of::<f32>(row.op, inputs, attrs, out),
        }
    }

    fn rows_of<R: Vectors>(&mut self, op: Op, inputs: Inputs<'_, '_>, attrs: &Attrs, out: &Meta) -> Result<CpuTensor> {
        match (op, attrs) {
            (Op::Softmax | Op::LogSoftmax, _) => self.softmax::<R>(tensor(&inputs[0])?, op == Op::LogSoftmax, out),
            (Op::Fourier | Op::InverseFourier | Op::RealFourier | Op::InverseRealFourier, _) => {
                self.fourier(tensor(&inputs[0])?, op, out)
            }
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
            (Op::AttentionBackward | Op::AttentionGradients, Attrs::Attention { causal, scale }) => {
                self.attention_grad(op, inputs, *causal, *scale, out)
            }
            (Op::LstmCell, _) => self.lstm_cell::<R>(tensor(&inputs[0])?, tensor(&inputs[1])?, out),
            (Op::LstmCellBackward, _) => self.lstm_cell_grad::<R>(inputs, out),
            (Op::CtcForward, _) => {
                self.ctc_forward::<R>([tensor(&inputs[0])?, tensor(&inputs[1])?, tensor(&inputs[2])?], out)
            }
            (Op::CtcPosteriors, _) => {
                let operands = [tensor(&inputs[0])?, tensor(&inputs[1])?, tensor(&inputs[2])?];
                self.ctc_posteriors::<R>(operands, tensor(&inputs[3])?, out)
            }
            _ => Err(ExecError::internal(format!("{} has no kernel", op.name()))),
        }
    }

    /// The rows of a contiguous tensor.
    fn source(&self, t: &CpuTensor) -> RowSource {
        RowSource { ptr: t.ptr(), size: t.size(), widen: self.widen(t.meta.dtype) }
    }

    fn sink(&self, t: &CpuTensor) -> RowSink {
        RowSink { ptr: t.ptr(), size: t.size(), narrow: self.narrow(t.meta.dtype) }
    }

    /// The `count` elements of a tensor, or a number `count` times, in the compute type.
    fn numbers<R: Real>(&mut self, input: &Input<'_, CpuTensor>, count: usize) -> Result<DenseValues<R>> {
        match input {
            Input::Scalar(scalar) => {
                Ok(DenseValues { tensor: None, made: vec![R::from_f64(scalar.to_f64()); count], count })
            }
            Input::Tensor(t) => {
                let dense = self.contiguous(t)?;
                let (source, mut made) = (self.source(&dense), Vec::new());
                // SAFETY: shape inference checked that the operand has `count` elements.
                unsafe { source.elements::<R>(0, count, &mut made) };
                Ok(DenseValues { tensor: Some(dense), made, count })
            }
        }
    }
}

/// Numbers in the compute type: the tensor's own if it has that type, else converted.
struct DenseValues<R> {
    tensor: Option<CpuTensor>,
    made: Vec<R>,
    count: usize,
}

impl<R> Deref for DenseValues<R> {
    type Target = [R];
    fn deref(&self) -> &[R] {
        match &self.tensor {
            // SAFETY: `made` is empty only if the tensor has the compute type or no elements. The tensor has `count`
            // elements, which stay alive with `self`.
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
