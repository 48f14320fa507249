//! Connectionist temporal classification (Graves et al. 2006): the forward-backward algorithm on log-probabilities.
//!
//! The states of a sample are its labels with a blank before, between and after them. From one time step to the next a
//! path stays in its state, advances by one state, or skips a blank between different labels.

use super::{RowKernel, run};
use crate::backend::{CpuBackend, Result};
use crate::checkpoint::Pace;
use crate::lanes::{Lanes, Vectors};
use crate::tensor::CpuTensor;
use gt_ops::Meta;
use gt_ops::math::Real;
use std::slice;

/// The cost of a state at a time step in elementwise operations: four transcendental functions.
const WEIGHT: usize = 60;
/// The number of states that are computed together.
const GROUP: usize = 16;

/// The log-probability of a state without paths.
fn nowhere<R: Real>() -> R {
    R::from_f64(f64::NEG_INFINITY)
}

/// The samples of a batch.
struct Alignments<R> {
    /// Log-probabilities of the states' labels: (time, samples, states).
    emitted: *const R,
    /// The labels: (samples, states).
    labels: *const i64,
    /// The numbers of time steps and labels: (samples, 2).
    sizes: *const i64,
    /// The forward variables, a row for each sample.
    variables: *mut R,
    /// The posterior probabilities, (time, samples, states), if they are wanted.
    posteriors: Option<*mut R>,
    time: usize,
    samples: usize,
    states: usize,
}

// SAFETY: the operands are only read, and each sample's variables and posteriors are written by one thread.
unsafe impl<R> Sync for Alignments<R> {}

/// The sum of three log-probabilities.
#[inline(always)]
fn log_sum<R: Real>(a: R, b: R, c: R) -> R {
    let most = if b > a { b } else { a };
    let most = if c > most { c } else { most };
    // The difference of two infinities would be NaN.
    let base = if most == nowhere() { R::ZERO } else { most };
    base + ((a - base).exp_of_fall() + (b - base).exp_of_fall() + (c - base).exp_of_fall()).ln()
}

/// `to[i] = emitted[i] + ln(exp(stay[i]) + exp(advance[i]) + exp(skip[i] + gates[i]))`. All have a multiple of
/// [`GROUP`] elements.
#[inline(always)]
fn advance<R: Real>(to: &mut [R], emitted: &[R], stay: &[R], advance: &[R], skip: &[R], gates: &[R]) {
    let groups = to.as_chunks_mut::<GROUP>().0.iter_mut().zip(emitted.as_chunks::<GROUP>().0);
    let incoming = stay.as_chunks::<GROUP>().0.iter().zip(advance.as_chunks::<GROUP>().0);
    let skips = skip.as_chunks::<GROUP>().0.iter().zip(gates.as_chunks::<GROUP>().0);
    for (((to, emitted), (stay, advance)), (skip, gates)) in groups.zip(incoming).zip(skips) {
        for i in 0..GROUP {
            to[i] = emitted[i] + log_sum(stay[i], advance[i], skip[i] + gates[i]);
        }
    }
}

impl<R: Real> Alignments<R> {
    /// The time steps of a sample, and its last state. Sizes beyond the operands' are cut off, as no one vouches for
    /// them.
    unsafe fn extent(&self, sample: usize) -> (usize, usize) {
        // SAFETY: `sizes` has two numbers for each sample.
        let [steps, labels] = unsafe { self.sizes.add(2 * sample).cast::<[i64; 2]>().read() };
        let steps = steps.clamp(0, self.time as i64) as usize;
        (steps, 2 * labels.clamp(0, (self.states as i64 - 1) / 2) as usize)
    }

    /// Log-probabilities of a sample's states up to `last` at a time step, in `to`.
    #[inline(always)]
    unsafe fn emitted_at(&self, time: usize, sample: usize, last: usize, to: &mut [R]) {
        // SAFETY: `emitted` has `states` elements for each time step and sample, and `last` is one of them.
        let from =
            unsafe { slice::from_raw_parts(self.emitted.add((time * self.samples + sample) * self.states), last + 1) };
        to[..=last].copy_from_slice(from);
    }

    /// Whether a path may come to each state from the one before the last, as the number that is added: 0 or -inf.
    unsafe fn gates(&self, sample: usize, last: usize, room: usize) -> Vec<R> {
        // SAFETY: `labels` has `states` elements for each sample, and `last` is one of them.
        let labels = unsafe { slice::from_raw_parts(self.labels.add(sample * self.states), last + 1) };
        let mut gates = vec![nowhere(); room];
        for state in (3..=last).step_by(2) {
            if labels[state] != labels[state - 2] {
                gates[state] = R::ZERO;
            }
        }
        gates
    }

    /// The forward variables and the loss of a sample.
    #[inline(always)]
    unsafe fn forward(&self, sample: usize) {
        // SAFETY: the sample is one of the operands', and its row of `variables` is written by this call alone; a
        // tensor's memory is initialised.
        let ((steps, last), row) = unsafe {
            let columns = 1 + self.time * self.states;
            (self.extent(sample), slice::from_raw_parts_mut(self.variables.add(sample * columns), columns))
        };
        let (loss, rows) = row.split_at_mut(1);
        let room = (last + 1).next_multiple_of(GROUP);
        // SAFETY: the sample is one of the operands', and `last` one of its states.
        let gates = unsafe { self.gates(sample, last, room) };
        let mut emitted = vec![nowhere::<R>(); room];
        // Two states without paths precede the first.
        let (mut old, mut new) = (vec![nowhere::<R>(); room + 2], vec![nowhere::<R>(); room + 2]);
        let mut pace = Pace::default();
        for (time, row) in rows.chunks_exact_mut(self.states).enumerate() {
            pace.advance(room * WEIGHT);
            if time >= steps {
                row.fill(nowhere());
                continue;
            }
            // SAFETY: `time < steps`, and `last` is one of the sample's states.
            unsafe { self.emitted_at(time, sample, last, &mut emitted) };
            if time == 0 {
                let first = last.min(1);
                new[2..=2 + first].copy_from_slice(&emitted[..=first]);
            } else {
                let (stay, before, skip) = (&old[2..], &old[1..=room], &old[..room]);
                advance(&mut new[2..], &emitted, stay, before, skip, &gates);
            }
            row[..=last].copy_from_slice(&new[2..2 + last + 1]);
            row[last + 1..].fill(nowhere());
            std::mem::swap(&mut old, &mut new);
        }
        loss[0] = match (steps, last) {
            (0, 0) => R::ZERO,
            (0, _) => R::ZERO - nowhere::<R>(),
            _ => R::ZERO - log_sum(old[2 + last], old[1 + last], nowhere()),
        };
    }

    /// The posterior probabilities of a sample's states.
    #[inline(always)]
    unsafe fn backward(&self, sample: usize, posteriors: *mut R) {
        // SAFETY: the sample is one of the operands', and its variables are only read here.
        let ((steps, last), row) = unsafe {
            let columns = 1 + self.time * self.states;
            (self.extent(sample), slice::from_raw_parts(self.variables.add(sample * columns), columns))
        };
        let (loss, rows) = (row[0], &row[1..]);
        let room = (last + 1).next_multiple_of(GROUP);
        // SAFETY: the sample is one of the operands', and `last` one of its states.
        let mut gates = unsafe { self.gates(sample, last, room) };
        // The state that a path comes from, rather than the one that it comes to.
        gates.copy_within(2.., 0);
        gates[room - 2..].fill(nowhere());
        let mut emitted = vec![nowhere::<R>(); room];
        // Two states without paths follow the last.
        let (mut old, mut new) = (vec![nowhere::<R>(); room + 2], vec![nowhere::<R>(); room + 2]);
        let mut pace = Pace::default();
        for time in (0..self.time).rev() {
            pace.advance(room * WEIGHT);
            // SAFETY: `posteriors` has `states` elements for each time step and sample, which this call alone writes;
            // a tensor's memory is initialised.
            let to = unsafe {
                let at = (time * self.samples + sample) * self.states;
                slice::from_raw_parts_mut(posteriors.add(at), self.states)
            };
            if time >= steps {
                to.fill(R::ZERO);
                continue;
            }
            // SAFETY: `time < steps`, and `last` is one of the sample's states.
            unsafe { self.emitted_at(time, sample, last, &mut emitted) };
            if time + 1 == steps {
                let first = last.saturating_sub(1);
                new[first..=last].copy_from_slice(&emitted[first..=last]);
            } else {
                advance(&mut new[..room], &emitted, &old[..room], &old[1..=room], &old[2..], &gates);
            }
            // The states after the last have no paths, whatever the padding of the rows.
            new[last + 1..].fill(nowhere());
            let forward = &rows[time * self.states..][..=last];
            for (state, to) in to[..=last].iter_mut().enumerate() {
                // Both variables contain the emission of their state, so one is taken off.
                let through = forward[state] + new[state] - emitted[state] + loss;
                let is_reached = (forward[state] != nowhere()) & (new[state] != nowhere());
                *to = if is_reached { through.exp() } else { R::ZERO };
            }
            to[last + 1..].fill(R::ZERO);
            std::mem::swap(&mut old, &mut new);
        }
    }
}

impl<R: Vectors> RowKernel<R> for Alignments<R> {
    #[inline(always)]
    unsafe fn rows<V: Lanes<R>>(&self, first: usize, last: usize) {
        for sample in first..last {
            // SAFETY: the sample is one of the operands' by the contract of `RowKernel::rows`, and its results are
            // written by this call alone.
            unsafe {
                match self.posteriors {
                    None => self.forward(sample),
                    Some(posteriors) => self.backward(sample, posteriors),
                }
            }
        }
    }
}

impl CpuBackend {
    /// The forward variables of log-probabilities, labels and sizes.
    pub(super) fn ctc_forward<R: Vectors>(&mut self, operands: [&CpuTensor; 3], out: &Meta) -> Result<CpuTensor> {
        let result = self.new_tensor(out)?;
        self.align::<R>(operands, &result, None)?;
        Ok(result)
    }

    /// The posterior probabilities of the states, from the operands and the result of `ctc_forward`.
    pub(super) fn ctc_posteriors<R: Vectors>(
        &mut self,
        operands: [&CpuTensor; 3],
        variables: &CpuTensor,
        out: &Meta,
    ) -> Result<CpuTensor> {
        let (variables, result) = (self.contiguous(variables)?, self.new_tensor(out)?);
        self.align::<R>(operands, &variables, Some(&result))?;
        Ok(result)
    }

    fn align<R: Vectors>(
        &mut self,
        [emitted, labels, sizes]: [&CpuTensor; 3],
        variables: &CpuTensor,
        posteriors: Option<&CpuTensor>,
    ) -> Result<()> {
        let dims = emitted.meta.shape.dims();
        let (time, samples, states) = (dims[0], dims[1], dims[2]);
        let (emitted, labels, sizes) = (self.contiguous(emitted)?, self.contiguous(labels)?, self.contiguous(sizes)?);
        let work = Alignments {
            emitted: emitted.ptr().cast::<R>(),
            labels: labels.ptr().cast::<i64>(),
            sizes: sizes.ptr().cast::<i64>(),
            variables: variables.ptr().cast::<R>(),
            posteriors: posteriors.map(|t| t.ptr().cast::<R>()),
            time,
            samples,
            states,
        };
        // SAFETY: shape inference checked the shapes and dtypes of the operands, which are contiguous; the result was
        // just allocated, and each sample is computed by one call.
        unsafe { run::<R, _>(&mut self.pool, self.level, &work, (samples, 1 + time * states), WEIGHT) }
    }
}
