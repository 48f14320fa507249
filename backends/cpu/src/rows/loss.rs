//! Cross-entropy and negative log-likelihood of class indices, with their gradients.

use super::softmax::exponentials_of;
use super::{RowKernel, RowSink, RowSource, block_rows, extent, run};
use crate::backend::{CpuBackend, Inputs, Result, tensor};
use crate::lanes::{LANES, Lanes, Vectors, sum_over};
use crate::strided::SharedPtr;
use crate::tensor::CpuTensor;
use gt_backend::{ExecError, Input};
use gt_ops::Meta;
use gt_ops::instruction::{LossReduction, LossSpec};
use gt_ops::math::Real;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The cost of an element in operations, with a softmax and without.
const WEIGHT: usize = 20;
const WEIGHT_PLAIN: usize = 1;

/// The target class of each sample, and the weight of each class.
struct ClassTargets<R> {
    index: SharedPtr<i64>,
    classes: usize,
    /// The weight of each class; none if all are 1.
    weight: Option<Vec<R>>,
    /// The sum of the weights of all classes.
    all: f64,
    spec: LossSpec,
    /// The first sample whose class is out of range, or `usize::MAX`.
    bad: AtomicUsize,
}

impl<R: Real> ClassTargets<R> {
    /// The class of a sample, or `None` if it is ignored or out of range, which `bad` records.
    ///
    /// # Safety
    /// The index has an element for `sample`.
    #[inline(always)]
    unsafe fn class(&self, sample: usize) -> Option<usize> {
        // SAFETY: the index has an element for `sample`, by this function's contract.
        let class = unsafe { self.index.get().add(sample).read() };
        if class == self.spec.ignore_index {
            return None;
        }
        if (class as u64) < self.classes as u64 {
            return Some(class as usize);
        }
        self.bad.fetch_min(sample, Ordering::Relaxed);
        None
    }

    #[inline(always)]
    fn weight_of(&self, class: usize) -> f64 {
        self.weight.as_ref().map_or(1.0, |w| w[class].to_f64())
    }

    /// The sum of the samples' weights.
    ///
    /// # Safety
    /// The index has `samples` elements.
    unsafe fn total(&self, samples: usize) -> f64 {
        // SAFETY: the index has `samples` elements, by this function's contract.
        (0..samples).filter_map(|i| unsafe { self.class(i) }).map(|class| self.weight_of(class)).sum()
    }

    /// Returns the error of the first index that was out of range, if any was.
    fn check(&self) -> Result<()> {
        let sample = self.bad.load(Ordering::Relaxed);
        if sample == usize::MAX {
            return Ok(());
        }
        // SAFETY: `class` recorded `sample` after reading its index.
        let index = unsafe { self.index.get().add(sample).read() };
        Err(ExecError::IndexOutOfRange { index, axis: 1, size: self.classes })
    }
}

struct LossForward<'a, R> {
    from: RowSource,
    targets: &'a ClassTargets<R>,
    /// Whether the operand has logits, which need a log-softmax, rather than log-probabilities.
    scores: bool,
    losses: SharedPtr<f64>,
}

impl<R: Vectors> RowKernel<R> for LossForward<'_, R> {
    #[inline(always)]
    unsafe fn rows<V: Lanes<R>>(&self, first: usize, last: usize) {
        let n = self.targets.classes;
        let (mut wide, mut exponentials, mut stats) = (Vec::new(), Vec::new(), Vec::new());
        let smoothing = self.targets.spec.smoothing;
        let step = block_rows(n);
        for at in (first..last).step_by(step) {
            let rows = step.min(last - at);
            // SAFETY: `first..last` are rows that the operands and results have, by the contract of
            // `RowKernel::rows`, whose caller was compiled for the level of `V`; `losses` has an element for each
            // row.
            unsafe {
                let scores = self.from.elements::<R>(at * n, rows * n, &mut wide);
                if self.scores {
                    exponentials.resize(rows * n, R::ZERO);
                    exponentials_of::<R, V>(scores, n, &mut exponentials, &mut stats);
                }
                for i in 0..rows {
                    let mut loss = 0.0;
                    if let Some(class) = self.targets.class(at + i) {
                        let row = &scores[i * n..(i + 1) * n];
                        let (max, log) = if self.scores { (stats[i].0, stats[i].1.ln()) } else { (R::ZERO, R::ZERO) };
                        loss = (log - (row[class] - max)).to_f64() * self.targets.weight_of(class);
                        if smoothing != 0.0 {
                            let (max, log) = (V::splat(max), V::splat(log));
                            let even = match &self.targets.weight {
                                None => sum_over!(R, V: x in row; sum => sum + (log - (x - max))),
                                Some(weight) => {
                                    sum_over!(R, V: x in row, w in weight; sum => w.mul_add(log - (x - max), sum))
                                }
                            };
                            loss = (1.0 - smoothing) * loss + smoothing / n as f64 * even;
                        }
                    }
                    self.losses.get().add(at + i).write(loss);
                }
            }
        }
    }
}

struct LossBackward<'a, R> {
    from: RowSource,
    to: RowSink,
    targets: &'a ClassTargets<R>,
    scores: bool,
    /// The gradient of each sample's loss, or a single one of the reduced loss.
    grads: &'a [R],
    /// The factor of the reduction: 1, or for a mean the reciprocal of the total weight.
    share: f64,
}

impl<R: Vectors> RowKernel<R> for LossBackward<'_, R> {
    #[inline(always)]
    unsafe fn rows<V: Lanes<R>>(&self, first: usize, last: usize) {
        let n = self.targets.classes;
        let (mut wide, mut made, mut stats) = (Vec::new(), Vec::new(), Vec::new());
        let smoothing = self.targets.spec.smoothing;
        let step = block_rows(n);
        for at in (first..last).step_by(step) {
            let rows = step.min(last - at);
            // SAFETY: `first..last` are rows that the operands and results have, by the contract of
            // `RowKernel::rows`, whose caller was compiled for the level of `V`.
            unsafe {
                let to = self.to.room::<R>(at * n, rows * n, &mut made);
                if self.scores {
                    let scores = self.from.elements::<R>(at * n, rows * n, &mut wide);
                    exponentials_of::<R, V>(scores, n, to, &mut stats);
                }
                for (i, to) in to.chunks_exact_mut(n).enumerate() {
                    let Some(class) = self.targets.class(at + i) else {
                        to.fill(R::ZERO);
                        continue;
                    };
                    let grad = self.grads[if self.grads.len() == 1 { 0 } else { at + i }].to_f64() * self.share;
                    let right = grad * (1.0 - smoothing) * self.targets.weight_of(class);
                    if !self.scores {
                        to.fill(R::ZERO);
                        to[class] = R::from_f64(-right);
                        continue;
                    }
                    let even = grad * smoothing / n as f64;
                    let factor = R::from_f64((right + even * self.targets.all) / stats[i].1.to_f64());
                    for to in to.iter_mut() {
                        *to = *to * factor;
                    }
                    to[class] = to[class] - R::from_f64(right);
                    if smoothing != 0.0 {
                        for (class, to) in to.iter_mut().enumerate() {
                            *to = *to - R::from_f64(even * self.targets.weight_of(class));
                        }
                    }
                }
                self.to.done(at * n, rows * n, &made);
            }
        }
    }
}

impl CpuBackend {
    fn targets<R: Real>(
        &mut self,
        index: &CpuTensor,
        weight: &Input<'_, CpuTensor>,
        spec: &LossSpec,
        classes: usize,
    ) -> Result<ClassTargets<R>> {
        let weight = match weight {
            Input::Scalar(scalar) if scalar.to_f64() == 1.0 => None,
            weight => Some(self.numbers::<R>(weight, classes)?.to_vec()),
        };
        let all = weight.as_ref().map_or(classes as f64, |w| w.iter().map(|x| x.to_f64()).sum());
        let index = SharedPtr::new(index.ptr().cast());
        Ok(ClassTargets { index, classes, weight, all, spec: *spec, bad: AtomicUsize::new(usize::MAX) })
    }

    pub(super) fn class_loss<R: Vectors>(
        &mut self,
        inputs: Inputs<'_, '_>,
        spec: &LossSpec,
        scores: bool,
        out: &Meta,
    ) -> Result<CpuTensor> {
        let (from, index) = (self.contiguous(tensor(&inputs[0])?)?, self.contiguous(tensor(&inputs[1])?)?);
        let result = self.new_tensor(out)?;
        let (samples, classes) = (index.numel(), extent(&from.meta).1);
        let targets = self.targets::<R>(&index, &inputs[2], spec, classes)?;
        let mut losses = vec![0.0; samples];
        if classes > 0 {
            let work = LossForward {
                from: self.source(&from),
                targets: &targets,
                scores,
                losses: SharedPtr::new(losses.as_mut_ptr()),
            };
            let weight = if scores { WEIGHT } else { WEIGHT_PLAIN };
            let columns = if scores { classes } else { 1 };
            // SAFETY: the operand has a row and `losses` an element for each sample.
            unsafe { run::<R, _>(&mut self.pool, self.level, &work, (samples, columns), weight)? };
        }
        // SAFETY: `samples` is the number of the index's elements.
        let total = if spec.reduction == LossReduction::Mean { unsafe { targets.total(samples) } } else { 1.0 };
        targets.check()?;
        if spec.reduction != LossReduction::None {
            losses = vec![losses.iter().sum::<f64>() / total];
        }
        // SAFETY: the result has one element, or one for each sample, as `losses` has; it was just allocated.
        unsafe { self.sink(&result).write::<R>(&losses) };
        Ok(result)
    }

    pub(super) fn class_loss_grad<R: Vectors>(
        &mut self,
        inputs: Inputs<'_, '_>,
        spec: &LossSpec,
        scores: bool,
        out: &Meta,
    ) -> Result<CpuTensor> {
        let from = if scores { self.contiguous(tensor(&inputs[1])?)? } else { tensor(&inputs[1])?.clone() };
        let index = self.contiguous(tensor(&inputs[2])?)?;
        let result = self.new_tensor(out)?;
        let (samples, classes) = extent(out);
        if out.shape.numel() == 0 {
            return Ok(result);
        }
        let targets = self.targets::<R>(&index, &inputs[3], spec, classes)?;
        let grads = self.numbers::<R>(&inputs[0], tensor(&inputs[0])?.numel())?;
        // SAFETY: shape inference checked that the index has an element for each sample.
        let total = if spec.reduction == LossReduction::Mean { unsafe { targets.total(samples) } } else { 1.0 };
        let work = LossBackward {
            from: self.source(&from),
            to: self.sink(&result),
            targets: &targets,
            scores,
            grads: &grads,
            share: 1.0 / total,
        };
        let weight = if scores { WEIGHT } else { WEIGHT_PLAIN };
        // SAFETY: operands and result have these rows; `result` was just allocated.
        unsafe { run::<R, _>(&mut self.pool, self.level, &work, (samples, classes), weight)? };
        targets.check()?;
        Ok(result)
    }
}
