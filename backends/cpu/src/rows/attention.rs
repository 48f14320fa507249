//! Scaled dot-product attention that never stores the whole matrix of scores: each block of queries computes its scores
//! against all its keys, their softmax and the weighted sum of values while the scores stay in cache.
//!
//! The gradient recomputes the scores, as FlashAttention does (Dao et al. 2022): that is faster than reading them from
//! memory. A row of scores is complete before its softmax, so no online softmax is needed.

use super::{RowKernel, at_level};
use crate::backend::{CpuBackend, Inputs, Result, tensor};
use crate::elementwise::work_ns;
use crate::lanes::{LANES, Lanes, Vectors, largest, sum_over};
use crate::matmul::one;
use crate::strided::StridedMatrix;
use crate::tensor::CpuTensor;
use gt_backend::ExecError;
use gt_backend::Loops;
use gt_ops::math::Real;
use gt_ops::{DType, Meta, Op, RANK_MAX, Shape};

/// The number of queries in a block: enough for the matrix products to run at full speed.
const BLOCK: usize = 64;
/// The cost of a score besides its products, and the fixed cost of a query, in elementwise operations.
const SCORE_WEIGHT: usize = 16;
const QUERY_WEIGHT: usize = 4_000;
/// The number of chunks per thread. A chunk consists of consecutive units (blocks of queries, or batches), which share
/// buffers for scores. Later causal blocks cost more, so threads need several chunks to balance their work.
const TURNS_PER_THREAD: usize = 8;

/// Batches of matrices: tensors with the same leading axes.
struct Batches<const N: usize> {
    loops: Loops<N>,
    first: [StridedMatrix; N],
}

impl<const N: usize> Batches<N> {
    fn new(tensors: [&CpuTensor; N]) -> Result<Batches<N>> {
        let shape = tensors[0].meta.shape;
        let lead = shape.rank() - 2;
        let batch = Shape::new(&shape.dims()[..lead]).map_err(|e| ExecError::internal(e.to_string()))?;
        let steps = tensors.map(|t| {
            let mut steps = [0; RANK_MAX];
            steps[..lead].copy_from_slice(&t.strides[..lead]);
            steps
        });
        let first = tensors.map(|t| {
            let size = t.size() as isize;
            StridedMatrix { ptr: t.ptr(), row_step: t.strides[lead] / size, column_step: t.strides[lead + 1] / size }
        });
        Ok(Batches { loops: Loops::new(&batch, steps.each_ref()), first })
    }

    #[inline(always)]
    fn at(&self, batch: usize) -> [StridedMatrix; N] {
        let mut matrices = self.first;
        self.loops.for_runs(batch, batch + 1, |run| {
            for (matrix, offset) in matrices.iter_mut().zip(run.offsets) {
                matrix.ptr = matrix.ptr.wrapping_offset(offset);
            }
        });
        matrices
    }
}

/// The sizes of an attention, and how its scores become weights.
struct Scores {
    dtype: DType,
    queries: usize,
    keys: usize,
    features: usize,
    out: usize,
    causal: bool,
    scale: f64,
}

impl Scores {
    /// The number of keys that query `i` attends to.
    #[inline(always)]
    fn seen(&self, i: usize) -> usize {
        if self.causal { self.keys.min(i + 1) } else { self.keys }
    }

    /// Computes `exp(score - maximum of the row)` for `rows` queries from `first` on, in rows of `keys` scores.
    /// `factors` gets the reciprocal of each row's sum: a row times its factor gives the attention weights.
    ///
    /// # Safety
    /// The matrices hold these queries and all keys, and `scores` and `factors` have room. The CPU has the level of
    /// `V`, and the caller was compiled for it.
    #[inline(always)]
    unsafe fn block<R: Real, V: Lanes<R>>(
        &self,
        [query, key]: [StridedMatrix; 2],
        mask: Option<StridedMatrix>,
        (first, rows, keys): (usize, usize, usize),
        scores: &mut [R],
        factors: &mut [R],
    ) {
        let size = size_of::<R>();
        let to = StridedMatrix { ptr: scores.as_mut_ptr().cast(), row_step: keys as isize, column_step: 1 };
        // SAFETY: the matrices hold these queries and `keys` keys, and `scores` has `rows * keys` elements.
        unsafe {
            one(self.dtype, (rows, keys, self.features), [to, query.at(first, 0, size), key.transposed()], false, false)
        };
        // Without a mask a positive scale can be applied after the maximum is subtracted, which saves a pass.
        let late = mask.is_none() && self.scale > 0.0;
        let scale = R::from_f64(self.scale);
        let fall = if late { scale } else { R::ONE };
        for (i, (row, factor)) in scores.chunks_exact_mut(keys).zip(factors).enumerate() {
            let (row, unseen) = row.split_at_mut(self.seen(first + i));
            unseen.fill(R::ZERO);
            match mask {
                None if late => {}
                None => row.iter_mut().for_each(|x| *x = *x * scale),
                Some(mask) => {
                    let from = mask.at(first + i, 0, size).ptr.cast::<R>();
                    if mask.column_step == 1 {
                        // SAFETY: the mask has a contiguous row with an element for each key.
                        let added = unsafe { std::slice::from_raw_parts(from, row.len()) };
                        for (x, m) in row.iter_mut().zip(added) {
                            *x = *x * scale + *m;
                        }
                    } else {
                        for (j, x) in row.iter_mut().enumerate() {
                            // SAFETY: the mask has an element for each key, `column_step` apart.
                            *x = *x * scale + unsafe { from.offset(j as isize * mask.column_step).read() };
                        }
                    }
                }
            }
            // SAFETY: the CPU has the level of `V`, and this function is inlined into one that was compiled for it.
            let max = unsafe { largest::<R, V>(row) };
            if max == -R::INFINITY {
                // The query attends to no key.
                row.fill(R::ZERO);
                *factor = R::ZERO;
                continue;
            }
            for x in row.iter_mut() {
                *x = ((*x - max) * fall).exp_of_fall();
            }
            // SAFETY: the CPU has the level of `V`, and this function is inlined into one that was compiled for it.
            *factor = R::from_f64(1.0 / unsafe { sum_over!(R, V: x in row; sum => sum + x) });
        }
    }

    /// The number of keys that some query before `last` attends to.
    #[inline(always)]
    fn width(&self, last: usize) -> usize {
        self.seen(last - 1)
    }

    /// The cost of a query in elementwise operations, with `products` matrix products.
    fn weight(&self, products: usize) -> usize {
        let wide = self.features.max(self.out);
        // Scores are computed in whole blocks of queries, so a causal mask saves work only if there are several blocks.
        let keys = if self.causal { (self.keys + BLOCK).div_ceil(2).min(self.keys) } else { self.keys };
        keys * (SCORE_WEIGHT + products * wide) + QUERY_WEIGHT
    }
}

struct AttentionForward {
    scores: Scores,
    /// Queries, keys, values and results.
    batches: Batches<4>,
    mask: Option<Batches<1>>,
}

impl<R: Vectors> RowKernel<R> for AttentionForward {
    /// Computes units, each a block of queries of one batch.
    #[inline(always)]
    unsafe fn rows<V: Lanes<R>>(&self, first: usize, last: usize) {
        let s = &self.scores;
        let size = size_of::<R>();
        let blocks = s.queries.div_ceil(BLOCK);
        let mut scores = vec![R::ZERO; BLOCK.min(s.queries) * s.keys];
        let mut factors = [R::ZERO; BLOCK];
        for unit in first..last {
            let [query, key, value, out] = self.batches.at(unit / blocks);
            let mask = self.mask.as_ref().map(|mask| mask.at(unit / blocks)[0]);
            let at = unit % blocks * BLOCK;
            let rows = BLOCK.min(s.queries - at);
            let keys = s.width(at + rows);
            let (scores, factors) = (&mut scores[..rows * keys], &mut factors[..rows]);
            // SAFETY: `at + rows <= queries`, for which all matrices are valid; each unit writes its own rows of the
            // result, `rows * s.out` contiguous elements. The caller was compiled for the level of `V`.
            unsafe {
                s.block::<R, V>([query, key], mask, (at, rows, keys), scores, factors);
                let weights =
                    StridedMatrix { ptr: scores.as_mut_ptr().cast(), row_step: keys as isize, column_step: 1 };
                let to = out.at(at, 0, size);
                one(s.dtype, (rows, s.out, keys), [to, weights, value], false, false);
                let made = std::slice::from_raw_parts_mut(to.ptr.cast::<R>(), rows * s.out);
                for (row, factor) in made.chunks_exact_mut(s.out).zip(&*factors) {
                    row.iter_mut().for_each(|x| *x = *x * *factor);
                }
            }
        }
    }
}

/// The place of attention's result among the operands of its gradients.
const RESULT: usize = 4;

struct AttentionBackward {
    scores: Scores,
    /// Gradients, queries, keys and values.
    batches: Batches<4>,
    mask: Option<Batches<1>>,
    /// The gradients of the first batch's queries, keys and values.
    out: [StridedMatrix; 3],
    /// Elements from one batch's gradients to the next one's.
    out_step: usize,
}

impl<R: Vectors> RowKernel<R> for AttentionBackward {
    /// Computes the gradients of whole batches.
    #[inline(always)]
    unsafe fn rows<V: Lanes<R>>(&self, first: usize, last: usize) {
        let s = &self.scores;
        let size = size_of::<R>();
        let room = BLOCK.min(s.queries) * s.keys;
        let (mut weights, mut score_grads) = (vec![R::ZERO; room], vec![R::ZERO; room]);
        let mut factors = [R::ZERO; BLOCK];
        let scale = R::from_f64(s.scale);
        for batch in first..last {
            let [grad, query, key, value] = self.batches.at(batch);
            let mask = self.mask.as_ref().map(|mask| mask.at(batch)[0]);
            let [query_grad, key_grad, value_grad] = self
                .out
                .map(|matrix| StridedMatrix { ptr: matrix.ptr.wrapping_add(batch * self.out_step * size), ..matrix });
            // SAFETY: each batch's gradients have these sizes and are written by one call.
            unsafe {
                key_grad.ptr.cast::<R>().write_bytes(0, s.keys * s.features);
                value_grad.ptr.cast::<R>().write_bytes(0, s.keys * s.out);
            }
            for at in (0..s.queries).step_by(BLOCK) {
                let rows = BLOCK.min(s.queries - at);
                let keys = s.width(at + rows);
                let (weights, score_grads) = (&mut weights[..rows * keys], &mut score_grads[..rows * keys]);
                let factors = &mut factors[..rows];
                let dense = |ptr: *mut R| StridedMatrix { ptr: ptr.cast(), row_step: keys as isize, column_step: 1 };
                let (p, d) = (dense(weights.as_mut_ptr()), dense(score_grads.as_mut_ptr()));
                // SAFETY: `at + rows <= queries`, for which all matrices are valid, and each batch's gradients are
                // written by one call. The caller was compiled for the level of `V`.
                unsafe {
                    s.block::<R, V>([query, key], mask, (at, rows, keys), weights, factors);
                    let grad = grad.at(at, 0, size);
                    one(s.dtype, (rows, keys, s.out), [d, grad, value.transposed()], false, false);
                    let pairs = weights.chunks_exact_mut(keys).zip(score_grads.chunks_exact_mut(keys));
                    for ((weights, score_grads), factor) in pairs.zip(&*factors) {
                        for w in weights.iter_mut() {
                            *w = *w * *factor;
                        }
                        let total =
                            R::from_f64(sum_over!(R, V: w in weights, d in score_grads; sum => w.mul_add(d, sum)));
                        for (d, w) in score_grads.iter_mut().zip(&*weights) {
                            *d = *w * (*d - total) * scale;
                        }
                    }
                    one(s.dtype, (keys, s.out, rows), [value_grad, p.transposed(), grad], false, true);
                    one(s.dtype, (rows, s.features, keys), [query_grad.at(at, 0, size), d, key], false, false);
                    one(
                        s.dtype,
                        (keys, s.features, rows),
                        [key_grad, d.transposed(), query.at(at, 0, size)],
                        false,
                        true,
                    );
                }
            }
        }
    }
}

impl CpuBackend {
    /// The operands, with half precisions cast to f32: the conversions cost little beside the products.
    fn wide_operands(&mut self, inputs: Inputs<'_, '_>) -> Result<Vec<CpuTensor>> {
        inputs
            .iter()
            .map(|input| {
                let t = tensor(input)?;
                match t.meta.dtype {
                    DType::F16 | DType::BF16 => self.cast(t, &Meta::new(t.meta.shape, DType::F32), 0),
                    _ => Ok(t.clone()),
                }
            })
            .collect()
    }

    fn run_attention<R: Vectors, W: RowKernel<R>>(&mut self, work: &W, units: usize, weight: usize) -> Result<()> {
        let level = self.level;
        let turns = if self.pool.pays(work_ns(units, weight)) { self.pool.threads() * TURNS_PER_THREAD } else { 1 };
        let turn = units.div_ceil(turns);
        self.pool.run(units.div_ceil(turn), &|i| {
            // SAFETY: `attention` and `attention_grad` built `work` for `units` units, and turns are disjoint.
            unsafe { at_level::<R, W>(level, work, i * turn, ((i + 1) * turn).min(units)) }
        })
    }

    pub(super) fn attention(
        &mut self,
        inputs: Inputs<'_, '_>,
        causal: bool,
        scale: f64,
        out: &Meta,
    ) -> Result<CpuTensor> {
        let operands = self.wide_operands(inputs)?;
        let wide = Meta::new(out.shape, operands[0].meta.dtype);
        let result = self.new_tensor(&wide)?;
        if out.shape.numel() > 0 {
            let scores = scores(&operands[0], &operands[1], &operands[2], causal, scale);
            if scores.keys == 0 {
                // SAFETY: `result` was just allocated with `wide.bytes()` bytes.
                unsafe { result.ptr().write_bytes(0, wide.bytes()) };
            } else {
                let batches = Batches::new([&operands[0], &operands[1], &operands[2], &result])?;
                let mask = operands.get(3).map(|mask| Batches::new([mask])).transpose()?;
                let units = batches.loops.numel() * scores.queries.div_ceil(BLOCK);
                let weight = scores.weight(2) * BLOCK.min(scores.queries);
                let dtype = scores.dtype;
                let work = AttentionForward { scores, batches, mask };
                match dtype {
                    DType::F64 => self.run_attention::<f64, _>(&work, units, weight)?,
                    _ => self.run_attention::<f32, _>(&work, units, weight)?,
                }
            }
        }
        self.cast(&result, out, 0)
    }

    pub(super) fn attention_grad(
        &mut self,
        op: Op,
        inputs: Inputs<'_, '_>,
        causal: bool,
        scale: f64,
        out: &Meta,
    ) -> Result<CpuTensor> {
        let mut operands = self.wide_operands(inputs)?;
        if op == Op::AttentionGradients {
            // The sum that the result of attention saves costs little here, beside the products.
            operands.remove(RESULT);
        }
        let wide = Meta::new(out.shape, operands[0].meta.dtype);
        let result = self.new_tensor(&wide)?;
        let scores = scores(&operands[1], &operands[2], &operands[3], causal, scale);
        if operands[0].numel() == 0 || scores.keys == 0 {
            // SAFETY: `result` was just allocated with `wide.bytes()` bytes.
            unsafe { result.ptr().write_bytes(0, wide.bytes()) };
            return self.cast(&result, out, 0);
        }
        let size = wide.dtype.size();
        let mut start = result.ptr();
        let parts = [&operands[1], &operands[2], &operands[3]].map(|t| {
            let rank = t.meta.shape.rank();
            let [rows, columns] = [t.meta.shape.dims()[rank - 2], t.meta.shape.dims()[rank - 1]];
            let part = StridedMatrix { ptr: start, row_step: columns as isize, column_step: 1 };
            start = start.wrapping_add(rows * columns * size);
            part
        });
        let batches = Batches::new([&operands[0], &operands[1], &operands[2], &operands[3]])?;
        let mask = operands.get(4).map(|mask| Batches::new([mask])).transpose()?;
        let (units, weight, dtype) = (batches.loops.numel(), scores.weight(5) * scores.queries, scores.dtype);
        let out_step = out.shape.dims()[out.shape.rank() - 1];
        let work = AttentionBackward { scores, batches, mask, out: parts, out_step };
        match dtype {
            DType::F64 => self.run_attention::<f64, _>(&work, units, weight)?,
            _ => self.run_attention::<f32, _>(&work, units, weight)?,
        }
        self.cast(&result, out, 0)
    }
}

fn scores(query: &CpuTensor, key: &CpuTensor, value: &CpuTensor, causal: bool, scale: f64) -> Scores {
    let last = |t: &CpuTensor| {
        let dims = t.meta.shape.dims();
        (dims[dims.len() - 2], dims[dims.len() - 1])
    };
    let ((queries, features), (keys, _), (_, out)) = (last(query), last(key), last(value));
    Scores { dtype: query.meta.dtype, queries, keys, features, out, causal, scale }
}
