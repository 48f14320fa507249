//! Instructions that replace one instruction of the client.

use super::resharding::{free, op_command};
use crate::modifiers::stream_modifier::Output;
use crate::table::WorkerTensor;
use crate::worker::step::Step;
use gt_ops::wire::Command;
use gt_ops::{Attrs, Meta, Op, Operand, TensorId};

/// Emits the instructions that replace one instruction of the client.
pub struct Lowering<'a, 'b> {
    /// Places and pushes one instruction.
    place: &'a mut dyn FnMut(Step, &mut Output<'_>),
    /// The step of the client's instruction.
    step: &'a Step,
    pub out: &'a mut Output<'b>,
    /// Tensors that are freed at the end.
    temporaries: Vec<TensorId>,
}

impl<'a, 'b> Lowering<'a, 'b> {
    /// Replaces the instruction of `step`. `place` places and pushes one instruction.
    pub fn new(
        step: &'a Step,
        out: &'a mut Output<'b>,
        place: &'a mut dyn FnMut(Step, &mut Output<'_>),
    ) -> Lowering<'a, 'b> {
        Lowering { place, step, out, temporaries: Vec::new() }
    }

    /// The step of the client's instruction.
    pub fn step(&self) -> &'a Step {
        self.step
    }

    /// Emits an instruction with a new tensor, which is freed at the end.
    pub fn emit(&mut self, op: Op, operands: &[Operand], attrs: Attrs, meta: Meta) -> Operand {
        let (id, at) = self.out.allocate(meta);
        self.temporaries.push(id);
        let command = self.command(op, at, operands, attrs);
        (self.place)(Step { command, out: Some(meta), requested: None, ..self.step.clone() }, self.out);
        // A move may have given the tensor another worker id.
        let at = self.out.tensors().get(id).map_or(at, |tensor| tensor.at);
        Operand::Tensor(at.id())
    }

    /// Emits the instruction that makes the result of the client's.
    pub fn emit_into(&mut self, result: TensorId, op: Op, operands: &[Operand], attrs: Attrs) {
        let command = self.command(op, WorkerTensor::from_id(result), operands, attrs);
        (self.place)(Step { command, ..self.step.clone() }, self.out);
    }

    /// The command of an instruction, as exact as the client's.
    fn command(&self, op: Op, result: WorkerTensor, operands: &[Operand], attrs: Attrs) -> Command {
        let mut command = op_command(op, result, operands, attrs);
        if let (Command::Op(new), Command::Op(replaced)) = (&mut command, &self.step.command) {
            new.tf32 = replaced.tf32;
        }
        command
    }

    /// Frees the tensors of [`Lowering::emit`].
    pub fn free_temporaries(self) {
        for id in self.temporaries {
            let mut next = id;
            while let Some(tensor) = self.out.tensors().get(next).copied() {
                next = tensor.copy;
                free(&tensor, self.step, self.out);
            }
        }
    }
}
