//! Affine maps whose terms are divided among workers, lowered to a product, a sum and a conversion.

use super::lowering::Lowering;
use super::operands::PlacedOperand;
use crate::modifiers::stream_modifier::Output;
use crate::worker::step::Step;
use gt_ops::{Attrs, DType, Instruction, Meta, Op, Operand, RANK_MAX, Shape};

/// Replaces an affine map whose input or weight is sharded along the terms of the sums: each worker's product is a
/// partial sum, and the bias is added once, to the total. The sums of half precisions are f32 until then, so that they
/// are rounded once. `place` places and pushes one instruction. Returns none, and pushes nothing, for any other
/// instruction.
pub fn lower_divided_affine(
    instruction: &Instruction,
    step: &Step,
    operands: &[PlacedOperand],
    meta: &Meta,
    out: &mut Output<'_>,
    place: &mut dyn FnMut(Step, &mut Output<'_>),
) -> Option<()> {
    let (
        Op::Affine,
        [PlacedOperand::Tensor(input), PlacedOperand::Tensor(weight), PlacedOperand::Tensor(bias)],
        [input_operand, weight_operand, bias_operand],
    ) = (instruction.op, operands, instruction.inputs.as_slice())
    else {
        return None;
    };
    if !input.placement.shards(input.meta.shape.rank() - 1) && !weight.placement.shards(1) {
        return None;
    }
    let &[n, k] = weight.meta.shape.dims() else { return None };
    let (half, dtype) = (meta.dtype.is_half(), meta.dtype);
    let (product_op, wide) = if half { (Op::MatmulWide, DType::F32) } else { (Op::Matmul, dtype) };
    let mut lowering = Lowering::new(step, out, place);
    let mut swap = [0; RANK_MAX];
    swap[0] = 1;
    let turned = Meta::new(Shape::new(&[k, n]).ok()?, dtype);
    let turned = lowering.emit(Op::Permute, &[*weight_operand], Attrs::Permutation(swap), turned);
    let sums = Meta::new(meta.shape, wide);
    let product = lowering.emit(product_op, &[*input_operand, turned], Attrs::None, sums);
    if half {
        let wide_bias = Meta::new(bias.meta.shape, wide);
        let wide_bias: Operand = lowering.emit(Op::Cast, &[*bias_operand], Attrs::DType(wide), wide_bias);
        let sum = lowering.emit(Op::Add, &[product, wide_bias], Attrs::None, sums);
        lowering.emit_into(instruction.out, Op::Cast, &[sum], Attrs::DType(dtype));
    } else {
        lowering.emit_into(instruction.out, Op::Add, &[product, *bias_operand], Attrs::None);
    }
    lowering.free_temporaries();
    Some(())
}
