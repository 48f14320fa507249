//! Steps of a long short-term memory (Hochreiter and Schmidhuber 1997).

use crate::backend::{CpuBackend, Inputs, Result, tensor};
use crate::lanes::{Lanes, Vectors};
use crate::rows::{RowKernel, RowSink, RowSource, block_rows, run};
use crate::tensor::CpuTensor;
use gt_ops::Meta;
use gt_ops::math::Real;

/// The cost of an element of the result in elementwise operations: five functions of exponentials for two elements.
const WEIGHT: usize = 30;

struct LstmCell {
    gates: RowSource,
    cell: RowSource,
    to: RowSink,
    /// The elements of a cell state.
    size: usize,
}

#[inline(always)]
fn sigmoid<R: Real>(x: R) -> R {
    R::ONE / (R::ONE + (-x).exp())
}

impl<R: Vectors> RowKernel<R> for LstmCell {
    #[inline(always)]
    unsafe fn rows<V: Lanes<R>>(&self, first: usize, last: usize) {
        let n = self.size;
        let (mut wide_gates, mut wide_cells, mut made) = (Vec::new(), Vec::new(), Vec::new());
        let step = block_rows(4 * n);
        for at in (first..last).step_by(step) {
            let rows = step.min(last - at);
            // SAFETY: `first..last` are rows that the operands and the result have, by the contract of
            // `RowKernel::rows`.
            unsafe {
                let gates = self.gates.elements::<R>(at * 4 * n, rows * 4 * n, &mut wide_gates);
                let cells = self.cell.elements::<R>(at * n, rows * n, &mut wide_cells);
                let to = self.to.room::<R>(at * 2 * n, rows * 2 * n, &mut made);
                for row in 0..rows {
                    let gates = &gates[row * 4 * n..][..4 * n];
                    let (input, forget) = (&gates[..n], &gates[n..2 * n]);
                    let (candidate, output) = (&gates[2 * n..3 * n], &gates[3 * n..]);
                    let before = &cells[row * n..][..n];
                    let (hidden, after) = to[row * 2 * n..][..2 * n].split_at_mut(n);
                    for i in 0..n {
                        after[i] = sigmoid(forget[i]) * before[i] + sigmoid(input[i]) * candidate[i].tanh();
                    }
                    for i in 0..n {
                        hidden[i] = sigmoid(output[i]) * after[i].tanh();
                    }
                }
                self.to.done(at * 2 * n, rows * 2 * n, &made);
            }
        }
    }
}

/// The operands of the gradient: the gradients of the new hidden and the new cell state, the sums of the gates, and the
/// cell states before and after.
struct LstmCellGrad {
    operands: [RowSource; 5],
    to: RowSink,
    /// The elements of a cell state.
    size: usize,
}

impl<R: Vectors> RowKernel<R> for LstmCellGrad {
    #[inline(always)]
    unsafe fn rows<V: Lanes<R>>(&self, first: usize, last: usize) {
        let n = self.size;
        let mut wide: [Vec<R>; 5] = Default::default();
        let mut made = Vec::new();
        let step = block_rows(5 * n);
        for at in (first..last).step_by(step) {
            let rows = step.min(last - at);
            // SAFETY: `first..last` are rows that the operands and the result have, by the contract of
            // `RowKernel::rows`.
            unsafe {
                let [wide_hidden, wide_cell, wide_gates, wide_before, wide_after] = &mut wide;
                let [hidden_grad, cell_grad, gates, before, after] = &self.operands;
                let of_hidden = hidden_grad.elements::<R>(at * n, rows * n, wide_hidden);
                let of_cell = cell_grad.elements::<R>(at * n, rows * n, wide_cell);
                let gates = gates.elements::<R>(at * 4 * n, rows * 4 * n, wide_gates);
                let before = before.elements::<R>(at * n, rows * n, wide_before);
                let after = after.elements::<R>(at * n, rows * n, wide_after);
                let to = self.to.room::<R>(at * 5 * n, rows * 5 * n, &mut made);
                for row in 0..rows {
                    let gates = &gates[row * 4 * n..][..4 * n];
                    let (input, forget) = (&gates[..n], &gates[n..2 * n]);
                    let (candidate, output) = (&gates[2 * n..3 * n], &gates[3 * n..]);
                    let [of_hidden, of_cell, before, after] =
                        [of_hidden, of_cell, before, after].map(|part| &part[row * n..][..n]);
                    let (of_input, rest) = to[row * 5 * n..][..5 * n].split_at_mut(n);
                    let (of_forget, rest) = rest.split_at_mut(n);
                    let (of_candidate, rest) = rest.split_at_mut(n);
                    let (of_output, of_before) = rest.split_at_mut(n);
                    for i in 0..n {
                        let (open, squashed) = (sigmoid(output[i]), after[i].tanh());
                        of_output[i] = of_hidden[i] * squashed * open * (R::ONE - open);
                        of_before[i] = of_cell[i] + of_hidden[i] * open * (R::ONE - squashed * squashed);
                    }
                    for i in 0..n {
                        let (open, candidate) = (sigmoid(input[i]), candidate[i].tanh());
                        of_input[i] = of_before[i] * candidate * open * (R::ONE - open);
                        of_candidate[i] = of_before[i] * open * (R::ONE - candidate * candidate);
                    }
                    for i in 0..n {
                        let open = sigmoid(forget[i]);
                        of_forget[i] = of_before[i] * before[i] * open * (R::ONE - open);
                        of_before[i] = of_before[i] * open;
                    }
                }
                self.to.done(at * 5 * n, rows * 5 * n, &made);
            }
        }
    }
}

impl CpuBackend {
    pub(super) fn lstm_cell<R: Vectors>(
        &mut self,
        gates: &CpuTensor,
        cell: &CpuTensor,
        out: &Meta,
    ) -> Result<CpuTensor> {
        let (gates, cell) = (self.contiguous(gates)?, self.contiguous(cell)?);
        let result = self.new_tensor(out)?;
        let size = out.shape.dims().last().map_or(0, |columns| columns / 2);
        if out.shape.numel() == 0 {
            return Ok(result);
        }
        let work = LstmCell { gates: self.source(&gates), cell: self.source(&cell), to: self.sink(&result), size };
        // SAFETY: operands and result are contiguous, of the shapes that inference checked, and `result` was just
        // allocated.
        unsafe { run::<R, _>(&mut self.pool, self.level, &work, (out.shape.numel() / (2 * size), 2 * size), WEIGHT)? };
        Ok(result)
    }

    pub(super) fn lstm_cell_grad<R: Vectors>(&mut self, inputs: Inputs<'_, '_>, out: &Meta) -> Result<CpuTensor> {
        let result = self.new_tensor(out)?;
        let size = out.shape.dims().last().map_or(0, |columns| columns / 5);
        if out.shape.numel() == 0 {
            return Ok(result);
        }
        let mut operands = Vec::with_capacity(5);
        for input in &inputs[..5] {
            operands.push(self.contiguous(tensor(input)?)?);
        }
        let work =
            LstmCellGrad { operands: std::array::from_fn(|i| self.source(&operands[i])), to: self.sink(&result), size };
        // SAFETY: as in `lstm_cell`.
        unsafe { run::<R, _>(&mut self.pool, self.level, &work, (out.shape.numel() / (5 * size), 5 * size), WEIGHT)? };
        Ok(result)
    }
}
