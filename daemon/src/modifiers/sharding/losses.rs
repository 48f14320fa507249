//! Mean losses over sharded samples, lowered to a sum of losses divided by the samples' total weight.

use super::lowering::Lowering;
use super::operands::PlacedOperand;
use super::resharding::fetch_to;
use crate::modifiers::stream_modifier::Output;
use crate::table::WorkerTensor;
use crate::worker::step::Step;
use gt_ops::instruction::{LossReduction, LossSpec, slice_along};
use gt_ops::{Attrs, DType, Instruction, Meta, Op, Operand, Placement, Scalar, Shape};

/// Replaces a mean loss over sharded samples by instructions that can be divided: a sum of losses, the sum of the
/// samples' weights, and their quotient. The two sums are reduced in one collective. The gradient of a mean loss
/// becomes that of the sum, with the incoming gradient divided by the sum of the weights. `place` places and pushes one
/// instruction. Returns none, and pushes nothing, for any other instruction.
pub fn lower_mean_loss(
    instruction: &Instruction,
    step: &Step,
    operands: &[PlacedOperand],
    target: Option<&Placement>,
    out: &mut Output<'_>,
    place: &mut dyn FnMut(Step, &mut Output<'_>),
) -> Option<()> {
    let Attrs::Loss(spec @ LossSpec { reduction: LossReduction::Mean, .. }) = instruction.attrs else { return None };
    let (scores, classes) = match instruction.op {
        Op::CrossEntropy | Op::NllLoss => (0, 1),
        Op::CrossEntropyBackward | Op::NllLossBackward => (1, 2),
        _ => return None,
    };
    let inputs = instruction.inputs.as_slice();
    let (PlacedOperand::Tensor(tensor), Some(class_operand)) = (operands[scores], inputs.get(classes)) else {
        return None;
    };
    let sharded = tensor.placement.shards(0) || target.is_some_and(|target| target.shards(0));
    // A sum of many 16-bit losses can overflow; those are not divided.
    if !sharded || !matches!(tensor.meta.dtype, DType::F32 | DType::F64) {
        return None;
    }
    let mut lowering = Lowering::new(step, out, place);
    let weight = lowering.total_weight(*class_operand, inputs[classes + 1], &spec, &tensor.meta);
    let sum_attrs = Attrs::Loss(LossSpec { reduction: LossReduction::Sum, ..spec });
    let mut operands = inputs.to_vec();
    let scalar = Meta::new(Shape::SCALAR, tensor.meta.dtype);
    if scores == 0 {
        let sum = lowering.emit(instruction.op, &operands, sum_attrs, scalar);
        let both = lowering.reduce_together([sum, weight], tensor.meta.dtype);
        lowering.emit_into(instruction.out, Op::Div, &both, Attrs::None);
    } else {
        operands[0] = lowering.emit(Op::Div, &[operands[0], weight], Attrs::None, scalar);
        lowering.emit_into(instruction.out, instruction.op, &operands, sum_attrs);
    }
    lowering.free_temporaries();
    Some(())
}

/// The shape `[size]`.
fn vector(size: usize) -> Shape {
    Shape::new(&[size]).unwrap_or(Shape::SCALAR)
}

impl Lowering<'_, '_> {
    /// Reduces two partial numbers in one collective. Other numbers are returned as they are.
    fn reduce_together(&mut self, numbers: [Operand; 2], dtype: DType) -> [Operand; 2] {
        let placement = |number: &Operand| {
            let at = WorkerTensor::from_id(number.tensor()?);
            self.out.tensors().get_at(at).map(|tensor| tensor.placement)
        };
        let [Some(first), second] = numbers.each_ref().map(placement) else { return numbers };
        if second != Some(first) || !first.is_partial() {
            return numbers;
        }
        let workers = first.workers();
        let (one, two) = (vector(1), vector(2));
        let each = numbers.map(|number| self.emit(Op::Reshape, &[number], Attrs::Shape(one), Meta::new(one, dtype)));
        let parts = self.emit(Op::Cat, &each, Attrs::Axis(0), Meta::new(two, dtype));
        let Some(tensor) = parts.tensor().and_then(|at| self.out.tensors().get_at(WorkerTensor::from_id(at)).copied())
        else {
            return numbers;
        };
        let whole = Operand::Tensor(fetch_to(&tensor, &Placement::Replicated { workers }, self.step(), self.out).id());
        [0, 1].map(|i| {
            let number = self.emit(Op::Slice, &[whole], slice_along(&two, 0, &(i..i + 1)), Meta::new(one, dtype));
            self.emit(Op::Reshape, &[number], Attrs::Shape(Shape::SCALAR), Meta::new(Shape::SCALAR, dtype))
        })
    }

    /// The sum of the samples' weights; ignored classes have weight 0.
    fn total_weight(&mut self, classes: Operand, weight: Operand, spec: &LossSpec, scores: &Meta) -> Operand {
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
}
