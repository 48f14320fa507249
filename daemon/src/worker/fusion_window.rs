//! The rule for which instructions are fused. The dispatcher and its workers both follow it.
//!
//! Large elementwise instructions are bound by memory. Several that are queued together are computed in one pass over
//! tiles of 4 KiB, which stay in the L1 cache (`backends/cpu/src/fused.rs`). The frees among them tell which results
//! nobody will read: those are never written to memory. Twelve operations on 10 million floats take 9 ms instead of 51,
//! on a million 0.9 instead of 1.5. The kernels are those of single instructions, so the bits are the same.
//!
//! No instruction is held back to be fused. The dispatcher hands over the instructions in a session's ring as one group
//! (`daemon/src/session/handover.rs`), and a worker that lags behind finds the rest of an expression in its queue
//! (`daemon/src/worker/fused_steps.rs`).
//!
//! An instruction joins a window if it is elementwise ([`is_fusible`]), if its result has the shape of the first
//! instruction's, and if it shares a tensor with an instruction in the window. A free always joins.

use gt_backend::FUSED_BYTES_MIN;
use gt_ops::{DType, Inputs, Instruction, Meta, TensorId};

/// The most instructions in a window: each adds operands, and with them streams from memory.
pub const STAGES_MAX: usize = 32;
/// The most instructions in a worker's window that wait for a later one to connect them to the first by shared tensors.
pub const UNCONNECTED_MAX: usize = 4;

/// Whether it pays a processor to look for instructions to fuse with one that reads or makes such a tensor.
#[inline]
pub fn is_large(meta: &Meta) -> bool {
    meta.bytes() >= FUSED_BYTES_MIN
}

/// Whether an instruction on operands of `dtype` can be a stage of a fused program: it is elementwise.
#[inline]
pub fn is_fusible(instruction: &Instruction, dtype: DType) -> bool {
    instruction.op.row().fuses(dtype)
}

/// Fusible instructions in the order of a session's stream, and which of them share tensors.
pub struct FusionWindow {
    stages: Vec<WindowStage>,
    unconnected_max: usize,
    /// [`Backend::fused_bytes_min`](gt_backend::Backend::fused_bytes_min) of the first result.
    bytes_min: usize,
}

struct WindowStage {
    id: TensorId,
    inputs: Inputs,
    out: Meta,
    /// The index of the first stage of this stage's connected component by shared tensors (quick-find).
    component: usize,
}

impl WindowStage {
    fn shares_tensor(&self, instruction: &Instruction) -> bool {
        let tensors = instruction.inputs.as_slice().iter().filter(|operand| operand.tensor().is_some());
        tensors.into_iter().any(|operand| operand.tensor() == Some(self.id) || self.inputs.as_slice().contains(operand))
    }
}

impl FusionWindow {
    /// An empty window, whose first result has at least `bytes_min`, and in which `unconnected_max` instructions may
    /// wait for a later one to connect them to the first.
    pub fn new(bytes_min: usize, unconnected_max: usize) -> FusionWindow {
        FusionWindow { stages: Vec::new(), bytes_min, unconnected_max }
    }

    /// Removes all instructions.
    pub fn clear(&mut self) {
        self.stages.clear();
    }

    /// Adds a [fusible](is_fusible) instruction whose result is `out`. False if it cannot be fused with the others:
    /// then the window ends before it.
    pub fn push(&mut self, instruction: &Instruction, out: Meta) -> bool {
        let fits = match self.stages.first() {
            Some(first) => first.out.shape == out.shape && self.stages.len() < STAGES_MAX,
            None => out.bytes() >= self.bytes_min,
        };
        let sharing = self.stages.iter().filter(|stage| stage.shares_tensor(instruction));
        let components: Vec<usize> = sharing.map(|stage| stage.component).collect();
        let component = components.iter().copied().min().unwrap_or(self.stages.len());
        let unconnected = self.stages.iter().filter(|stage| stage.component != 0).count();
        if !fits || component != 0 && unconnected >= self.unconnected_max {
            return false;
        }
        for stage in self.stages.iter_mut().filter(|stage| components.contains(&stage.component)) {
            stage.component = component;
        }
        let Instruction { out: id, inputs, .. } = instruction;
        self.stages.push(WindowStage { id: *id, inputs: inputs.clone(), out, component });
        true
    }

    /// The number of leading stages that shared tensors connect to stage 0.
    pub fn connected(&self) -> usize {
        self.stages.iter().position(|stage| stage.component != 0).unwrap_or(self.stages.len())
    }

    /// The index of the stage that makes tensor `id`.
    pub fn stage_of(&self, id: TensorId) -> Option<usize> {
        self.stages.iter().rposition(|stage| stage.id == id)
    }

    /// The shape and dtype of the result of the stage at `index`.
    pub fn out(&self, index: usize) -> Meta {
        self.stages[index].out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gt_ops::{Attrs, Op, Operand, Shape};

    const ELEMENTS: usize = FUSED_BYTES_MIN / size_of::<f32>();

    fn add(out: TensorId, operands: [TensorId; 2]) -> Instruction {
        let inputs = Inputs::from_slice(&operands.map(Operand::Tensor));
        Instruction { op: Op::Add, out, inputs, last_use: 0, attrs: Attrs::None, tf32: false, replaces: None }
    }

    fn meta(elements: usize) -> Meta {
        Meta::new(Shape::new(&[elements]).unwrap(), DType::F32)
    }

    /// The number of instructions that join, and how many of them are connected to the first.
    fn joined(unconnected_max: usize, instructions: &[Instruction]) -> (usize, usize) {
        let mut window = FusionWindow::new(FUSED_BYTES_MIN, unconnected_max);
        let joined = instructions.iter().take_while(|instruction| window.push(instruction, meta(ELEMENTS))).count();
        (joined, window.connected())
    }

    #[test]
    fn an_instruction_joins_by_a_shared_result_or_a_shared_operand() {
        assert_eq!(joined(0, &[add(10, [1, 2]), add(11, [10, 3]), add(12, [2, 4])]), (3, 3));
        assert_eq!(joined(0, &[add(10, [1, 2]), add(11, [3, 4]), add(12, [1, 3])]), (1, 1));
    }

    #[test]
    fn a_later_instruction_connects_what_waited_for_it() {
        let apart = [add(10, [1, 2]), add(11, [3, 4]), add(12, [5, 6])];
        assert_eq!(joined(2, &apart), (3, 1));
        assert_eq!(joined(1, &apart), (2, 1));
        let connected = [apart.as_slice(), &[add(13, [11, 12])]].concat();
        assert_eq!(joined(3, &connected), (4, 1));
        let connected = [connected, vec![add(14, [13, 10])]].concat();
        assert_eq!(joined(3, &connected), (5, 5));
    }

    #[test]
    fn shape_size_and_number_end_a_window() {
        let mut window = FusionWindow::new(FUSED_BYTES_MIN, 0);
        assert!(!window.push(&add(10, [1, 2]), meta(ELEMENTS - 1)), "small");
        assert!(window.push(&add(10, [1, 2]), meta(ELEMENTS)));
        assert!(!window.push(&add(11, [1, 2]), meta(ELEMENTS + 1)), "another shape");
        let more: Vec<_> = (11..).take(STAGES_MAX).map(|out| add(out, [1, out - 1])).collect();
        assert_eq!(more.iter().filter(|instruction| window.push(instruction, meta(ELEMENTS))).count(), STAGES_MAX - 1);
    }
}
