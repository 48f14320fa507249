//! A mean of losses over samples that are divided, as instructions of which each can be: what the samples add up to,
//! over how much they count.

use super::collectives::{bring, free, instruction};
use super::sharding::Given;
use super::{Output, Sharding};
use crate::table::WorkerTensor;
use crate::worker::step::Step;
use gt_ops::instruction::{LossReduction, LossSpec, slice_along};
use gt_ops::{Attrs, DType, Instruction, Meta, Op, Operand, Placement, Scalar, Shape, TensorId};

impl Sharding {
    /// A mean of losses over samples that are divided: what they add up to, over how many count.
    pub(super) fn mean_of_losses(
        &mut self,
        asked: &Instruction,
        step: &Step,
        given: &[Given],
        target: Option<&Placement>,
        out: &mut Output<'_>,
    ) -> Option<()> {
        let Attrs::Loss(spec @ LossSpec { reduction: LossReduction::Mean, .. }) = asked.attrs else { return None };
        let (scores, classes) = match asked.op {
            Op::CrossEntropy | Op::NllLoss => (0, 1),
            Op::CrossEntropyBackward | Op::NllLossBackward => (1, 2),
            _ => return None,
        };
        let (Given::Tensor(tensor), Some(target_operand)) = (given[scores], asked.inputs.as_slice().get(classes))
        else {
            return None;
        };
        let cut = matches!(tensor.placement, Placement::Sharded { axis: 0, .. })
            || matches!(target, Some(Placement::Sharded { axis: 0, .. }));
        // A sum of many halves can be more than they hold; those are brought together.
        if !cut || !matches!(tensor.meta.dtype, DType::F32 | DType::F64) {
            return None;
        }
        let mut lower = Lower { sharding: self, step, out, made: Vec::new() };
        let counted = lower.count(*target_operand, asked.inputs.as_slice()[classes + 1], &spec, &tensor.meta);
        let sums = Attrs::Loss(LossSpec { reduction: LossReduction::Sum, ..spec });
        let mut operands = asked.inputs.as_slice().to_vec();
        if scores == 0 {
            let sum = lower.emit(asked.op, &operands, sums, Meta::new(Shape::SCALAR, tensor.meta.dtype));
            let both = lower.joined([sum, counted], tensor.meta.dtype);
            lower.emit_into(asked.out, Op::Div, &both, Attrs::None);
        } else {
            operands[0] =
                lower.emit(Op::Div, &[operands[0], counted], Attrs::None, Meta::new(Shape::SCALAR, tensor.meta.dtype));
            lower.emit_into(asked.out, asked.op, &operands, sums);
        }
        lower.finish();
        Some(())
    }
}

/// A shape of one axis.
fn vector(size: usize) -> Shape {
    Shape::new(&[size]).unwrap_or(Shape::SCALAR)
}

/// Instructions that stand for one of the client's.
struct Lower<'a, 'b> {
    sharding: &'a mut Sharding,
    step: &'a Step,
    out: &'a mut Output<'b>,
    made: Vec<TensorId>,
}

impl Lower<'_, '_> {
    fn emit(&mut self, op: Op, operands: &[Operand], attrs: Attrs, meta: Meta) -> Operand {
        let (id, at) = self.out.allocate(meta);
        self.made.push(id);
        let command = instruction(op, at, operands, attrs);
        self.sharding.op(Step { command, out: Some(meta), requested: None, ..self.step.clone() }, self.out);
        // Wherever it went, the client's name leads there.
        let at = self.out.tensors().get(id).map_or(at, |tensor| tensor.at);
        Operand::Tensor(at.id())
    }

    fn emit_into(&mut self, made: TensorId, op: Op, operands: &[Operand], attrs: Attrs) {
        let command = instruction(op, WorkerTensor::from_id(made), operands, attrs);
        self.sharding.op(Step { command, ..self.step.clone() }, self.out);
    }

    /// Two numbers, each on all workers. Where they are parts, those are joined together: workers meet once.
    fn joined(&mut self, numbers: [Operand; 2], dtype: DType) -> [Operand; 2] {
        let placement = |number: &Operand| {
            let at = WorkerTensor::from_id(number.tensor()?);
            self.out.tensors().get_at(at).map(|tensor| tensor.placement)
        };
        let [Some(Placement::Partial { workers, reduce_op }), second] = numbers.each_ref().map(placement) else {
            return numbers;
        };
        if second != Some(Placement::Partial { workers, reduce_op }) {
            return numbers;
        }
        let (one, two) = (vector(1), vector(2));
        let each = numbers.map(|number| self.emit(Op::Reshape, &[number], Attrs::Shape(one), Meta::new(one, dtype)));
        let parts = self.emit(Op::Cat, &each, Attrs::Axis(0), Meta::new(two, dtype));
        let Some(tensor) = parts.tensor().and_then(|at| self.out.tensors().get_at(WorkerTensor::from_id(at)).copied())
        else {
            return numbers;
        };
        let whole = Operand::Tensor(bring(&tensor, &Placement::Replicated { workers }, self.step, self.out).id());
        [0, 1].map(|i| {
            let number = self.emit(Op::Slice, &[whole], slice_along(&two, 0, &(i..i + 1)), Meta::new(one, dtype));
            self.emit(Op::Reshape, &[number], Attrs::Shape(Shape::SCALAR), Meta::new(Shape::SCALAR, dtype))
        })
    }

    /// How much the samples count together.
    fn count(&mut self, classes: Operand, weight: Operand, spec: &LossSpec, scores: &Meta) -> Operand {
        let (rows, number) = (scores.shape.dims()[0], |n: i64| Operand::Scalar(Scalar::Int(n)));
        let samples = |dtype| Meta::new(Shape::SCALAR, dtype);
        let column = |dtype| Meta::new(vector(rows), dtype);
        let counts = self.emit(Op::Ne, &[classes, number(spec.ignore_index)], Attrs::None, column(DType::Bool));
        let dtype = scores.dtype;
        let each = match weight {
            Operand::Scalar(_) => self.emit(Op::Cast, &[counts], Attrs::DType(dtype), column(dtype)),
            Operand::Tensor(_) => {
                let known = [counts, classes, number(0)];
                let known = self.emit(Op::Where, &known, Attrs::DType(DType::I64), column(DType::I64));
                let weights = self.emit(Op::Gather, &[weight, known], Attrs::Axis(0), column(dtype));
                let choices = [counts, weights, Operand::Scalar(Scalar::Float(0.0))];
                self.emit(Op::Where, &choices, Attrs::DType(dtype), column(dtype))
            }
        };
        self.emit(Op::Sum, &[each], Attrs::Axes { mask: 1, keepdim: false }, samples(dtype))
    }

    fn finish(self) {
        for id in self.made {
            let mut next = id;
            while let Some(tensor) = self.out.tensors().get(next).copied() {
                next = tensor.copy;
                free(&tensor, self.step, self.out);
            }
        }
    }
}
