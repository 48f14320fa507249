//! The gradient of each op: formulas over expressions, which emit ordinary instructions.
//!
//! A formula returns the gradient of one operand, a vector-Jacobian product. It takes `c`, which has the gradient of
//! the result (`c.grad`), the operands (`c.a()`, `c.b()`, `c.c()`) and the result (`c.out()`), as far as the op's row
//! says that they are saved. An operand may be a number, with which formulas compute as with a tensor. A gradient may
//! have the result's broadcast shape: [`to_operand`] sums and casts it to the operand's shape and dtype. Sharding and
//! fusion treat a gradient's instructions as any others, and a recorded gradient is itself differentiable.
//!
//! The rows of the op table have the formulas that take a line or two; this module has the others.

pub mod pointwise;
pub mod row_wise;
pub mod scatter;
pub mod structure;

use crate::build::IDENTITY;
use crate::dtype::DType;
use crate::error::{OpError, Result};
use crate::expr::{Builder, Expr};
use crate::graph::{Arg, Graph, Val};
use crate::instruction::{Attrs, Scalar};
use crate::op::Op;
use crate::shape::{Meta, RANK_MAX, Shape};
use smallvec::SmallVec;

/// The gradient of one operand. A number stands for a tensor of the operand's shape.
pub type Formula = for<'a, 'g> fn(&'a GradCtx<'g>) -> Expr<'g>;

/// The gradients of all operands; none where the operand needs none.
pub type JointFormula = for<'a, 'g> fn(&'a GradCtx<'g>) -> Vec<Option<Expr<'g>>>;

/// The gradient of each operand that needs one.
pub type OperandGrads = SmallVec<[Option<Val>; 4]>;

/// The gradient of an op.
#[derive(Clone, Copy, Debug)]
pub enum Gradient {
    /// The op has no gradient.
    None,
    /// A formula for each operand; the last one serves any further operands.
    Each(&'static [Formula]),
    /// Formulas that compute in `f32` where the operands are of half precision: in half precision each of their steps
    /// would round or overflow.
    Wide(&'static [Formula]),
    /// One formula for all operands, whose gradients have parts in common.
    Joint(JointFormula),
}

/// An operand or result as it is available to the backward pass.
#[derive(Clone, Copy, Debug)]
pub enum Saved {
    /// A tensor saved in the forward pass, as the row's `saves` says.
    Val(Val),
    /// Only its shape and dtype are known.
    Meta(Meta),
    /// A number.
    Scalar(Scalar),
}

/// A recorded instruction and the gradient of its result.
#[derive(Clone, Copy, Debug)]
pub struct GradArgs<'a> {
    /// The op's attributes.
    pub attrs: &'a Attrs,
    /// Its operands.
    pub inputs: &'a [Saved],
    /// Its result.
    pub output: Saved,
    /// The gradient of the result, of the result's shape and dtype.
    pub grad: Val,
    /// Whether each operand requires a gradient.
    pub needs: &'a [bool],
    /// Whether each operand is another tensor with its last two axes swapped. The backward pass will swap the axes of
    /// such an operand's gradient back, so the gradient is cheaper to compute transposed.
    pub transposed: &'a [bool],
    /// The gradient is itself recorded for a higher-order gradient: only differentiable ops may compute it.
    pub recorded: bool,
    /// An earlier backward pass has released the saved tensors.
    pub released: bool,
    /// As `released`, for numbers among the operands that PyTorch saves as tensors.
    pub numbers_released: bool,
}

/// PyTorch's error for a second backward pass that needs saved tensors.
const RELEASED: &str = "Trying to backward through the graph a second time (or directly access saved tensors after they \
     have already been freed). Saved intermediate values of the graph are freed when you call .backward() or \
     autograd.grad(). Specify retain_graph=True if you need to backward through the graph a second time or if you need \
     to access saved tensors after calling backward.";

impl Gradient {
    /// Whether the op has a gradient.
    pub fn is_some(&self) -> bool {
        !matches!(self, Gradient::None)
    }

    /// Emits the gradients of the operands that need one.
    ///
    /// # Errors
    /// The errors of [`Graph::emit`].
    pub fn apply(&self, graph: &mut dyn Graph, args: &GradArgs<'_>) -> Result<OperandGrads> {
        if matches!(self, Gradient::Wide(_)) && graph.meta(args.grad).dtype.is_half() {
            let grad = upcast(graph, args.grad)?;
            let output = args.output.upcast(graph)?;
            let inputs = args.inputs.iter().map(|input| input.upcast(graph)).collect::<Result<Vec<Saved>>>()?;
            return self.emit(graph, &GradArgs { grad, output, inputs: &inputs, ..*args });
        }
        self.emit(graph, args)
    }

    fn emit(&self, graph: &mut dyn Graph, args: &GradArgs<'_>) -> Result<OperandGrads> {
        let builder = Builder::without_promotion(graph);
        let mut c = GradCtx { grad: builder.tensor(args.grad), operand: 0, builder: &builder, args };
        let mut grads = OperandGrads::new();
        match self {
            Gradient::None => {}
            Gradient::Each(formulas) | Gradient::Wide(formulas) => {
                for (operand, needed) in args.needs.iter().enumerate() {
                    c.operand = operand;
                    grads.push(match needed {
                        true => Some(c.finish(operand, &formulas[operand.min(formulas.len() - 1)](&c))?),
                        false => None,
                    });
                }
            }
            Gradient::Joint(formula) => {
                for (operand, grad) in formula(&c).iter().enumerate() {
                    grads.push(grad.as_ref().map(|grad| c.finish(operand, grad)).transpose()?);
                }
            }
        }
        Ok(grads)
    }
}

fn upcast(graph: &mut dyn Graph, val: Val) -> Result<Val> {
    match graph.meta(val).dtype.is_half() {
        true => graph.emit(Op::Cast, &[val.into()], Attrs::DType(DType::F32)),
        false => Ok(val),
    }
}

impl Saved {
    fn upcast(self, graph: &mut dyn Graph) -> Result<Saved> {
        match self {
            Saved::Val(val) => upcast(graph, val).map(Saved::Val),
            other => Ok(other),
        }
    }
}

/// The values that a formula computes with: the gradient of the result, the operands and the result.
#[derive(Clone, Copy)]
pub struct GradCtx<'g> {
    /// The gradient of the result, of the result's shape and dtype.
    pub grad: Expr<'g>,
    /// The index of the operand whose gradient the formula returns.
    pub operand: usize,
    builder: &'g Builder<'g>,
    args: &'g GradArgs<'g>,
}

impl std::fmt::Debug for GradCtx<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.args.fmt(f)
    }
}

/// Operands and result.
impl<'g> GradCtx<'g> {
    fn saved(&self, saved: Saved) -> Expr<'g> {
        match saved {
            Saved::Val(val) => self.builder.tensor(val),
            Saved::Scalar(_) if self.args.numbers_released => self.fail(RELEASED),
            Saved::Scalar(number) => self.builder.number(number),
            Saved::Meta(_) if self.args.released => self.fail(RELEASED),
            Saved::Meta(_) => self.fail("a gradient needs a tensor that its row in the op table does not save"),
        }
    }
    /// Operand `i`.
    pub fn arg(&self, i: usize) -> Expr<'g> {
        self.saved(self.args.inputs[i])
    }
    /// The first operand.
    pub fn a(&self) -> Expr<'g> {
        self.arg(0)
    }
    /// The second operand.
    pub fn b(&self) -> Expr<'g> {
        self.arg(1)
    }
    /// The third operand.
    pub fn c(&self) -> Expr<'g> {
        self.arg(2)
    }
    /// The fourth operand.
    pub fn d(&self) -> Expr<'g> {
        self.arg(3)
    }
    /// All operands.
    pub fn args(&self) -> Vec<Expr<'g>> {
        (0..self.operands()).map(|i| self.arg(i)).collect()
    }
    /// The result.
    pub fn out(&self) -> Expr<'g> {
        self.saved(self.args.output)
    }
    /// Whether operand `i` is saved.
    pub fn has(&self, i: usize) -> bool {
        !matches!(self.args.inputs[i], Saved::Meta(_))
    }
    /// The shape and dtype of operand `i`, which are known even if its elements are not.
    pub fn meta(&self, i: usize) -> Meta {
        match self.args.inputs[i] {
            Saved::Val(val) => self.builder.meta_of(val),
            Saved::Meta(meta) => meta,
            Saved::Scalar(_) => Meta::new(Shape::SCALAR, self.dtype()),
        }
    }
    /// The shape of operand `i`.
    pub fn shape(&self, i: usize) -> Shape {
        self.meta(i).shape
    }
    /// The shape of the result.
    pub fn out_shape(&self) -> Shape {
        self.builder.meta_of(self.args.grad).shape
    }
    /// The dtype of the gradient.
    pub fn dtype(&self) -> DType {
        self.builder.meta_of(self.args.grad).dtype
    }
    /// The number of operands.
    pub fn operands(&self) -> usize {
        self.args.inputs.len()
    }
    /// Whether operand `i` requires a gradient.
    pub fn needs(&self, i: usize) -> bool {
        self.args.needs[i]
    }
    /// Whether this operand is another tensor with its last two axes swapped.
    pub fn transposed(&self) -> bool {
        self.args.transposed[self.operand]
    }
    /// Whether the gradient is itself recorded: then only differentiable ops may compute it.
    pub fn recorded(&self) -> bool {
        self.args.recorded
    }
    /// A gradient for each operand, computed only where it is needed.
    pub fn each(&self, mut formula: impl FnMut(usize) -> Expr<'g>) -> Vec<Option<Expr<'g>>> {
        (0..self.operands()).map(|i| self.needs(i).then(|| formula(i))).collect()
    }
}

/// The op's attributes, each of the kind that its row says.
impl<'g> GradCtx<'g> {
    /// The attributes.
    pub fn attrs(&self) -> &'g Attrs {
        self.args.attrs
    }
    /// The axis of a scan, a concatenation, a gather or a scatter.
    pub fn axis(&self) -> i64 {
        match *self.args.attrs {
            Attrs::Axis(axis) => i64::from(axis),
            _ => 0,
        }
    }
    /// The bits of the axes that a reduction reduces.
    pub fn axes_mask(&self) -> u8 {
        match *self.args.attrs {
            Attrs::Axes { mask, .. } | Attrs::AxesInto { mask, .. } => mask,
            _ => 0,
        }
    }
}

/// Instructions.
impl<'g> GradCtx<'g> {
    /// An expression that failed.
    pub fn fail(&self, text: &str) -> Expr<'g> {
        self.builder.fail(OpError::runtime(text))
    }
    /// A derivative that there is not.
    pub fn missing(&self, text: &str) -> Expr<'g> {
        self.builder.fail(OpError::not_implemented(text))
    }
    /// A number.
    pub fn number(&self, number: impl Into<Arg>) -> Expr<'g> {
        self.builder.number(number)
    }
    /// A tensor of one number, of operand `i`'s shape and dtype.
    pub fn full(&self, i: usize, number: impl Into<Scalar>) -> Expr<'g> {
        let meta = self.meta(i);
        self.builder.full(&meta.shape, number, meta.dtype)
    }
    /// The numbers `0, 1, …, count - 1`, of dtype int64.
    pub fn arange(&self, count: usize) -> Expr<'g> {
        self.builder.arange(count as i64, DType::I64)
    }
    /// An instruction with this op's attributes.
    pub fn emit<const N: usize>(&self, op: Op, operands: [Expr<'g>; N]) -> Expr<'g> {
        self.builder.emit(op, &operands.map(Arg::from), self.args.attrs.clone())
    }
    /// The tensor of a gradient of operand `i`.
    fn finish(&self, i: usize, grad: &Expr<'g>) -> Result<Val> {
        match Arg::from(*grad) {
            Arg::Val(val) => self.builder.check().map(|()| val),
            Arg::Scalar(number) => self.builder.finish(self.full(i, number)),
        }
    }
    /// As [`GradCtx::emit`], with any number of operands.
    pub fn emit_all(&self, op: Op, operands: &[Expr<'g>]) -> Expr<'g> {
        let operands: Vec<Arg> = operands.iter().map(|operand| Arg::from(*operand)).collect();
        self.builder.emit(op, &operands, self.args.attrs.clone())
    }
    /// A condition as the numbers 1 and 0.
    pub fn count(&self, condition: Expr<'g>) -> Expr<'g> {
        condition.to(self.dtype())
    }
}

/// The permutation that undoes `permutation` of the first `rank` axes.
pub fn inverse_permutation(permutation: &[u8; RANK_MAX], rank: usize) -> [u8; RANK_MAX] {
    let mut inverse = IDENTITY;
    for (to, from) in permutation.iter().enumerate().take(rank) {
        inverse[*from as usize] = to as u8;
    }
    inverse
}

/// Whether `permutation` swaps the last two of `rank` axes and leaves the others.
pub fn exchanges_last(permutation: &[u8; RANK_MAX], rank: usize) -> bool {
    let mut expected = IDENTITY;
    rank >= 2 && {
        expected.swap(rank - 1, rank - 2);
        permutation[..rank] == expected[..rank]
    }
}

/// Sums `grad` over broadcast axes and casts it to the operand's shape and dtype.
///
/// # Errors
/// The errors of [`Graph::emit`].
pub fn to_operand(g: &mut dyn Graph, grad: Val, operand: Meta) -> Result<Val> {
    let from = g.meta(grad);
    let mut grad = grad;
    if from.shape != operand.shape {
        let lead = from.shape.rank() - operand.shape.rank();
        let mut mask = 0u8;
        for (axis, &size) in from.shape.dims().iter().enumerate() {
            if axis < lead || (operand.shape.dims()[axis - lead] == 1 && size != 1) {
                mask |= 1 << axis;
            }
        }
        if mask != 0 {
            // Where only new leading axes are summed, the operand's shape remains.
            let keepdim = mask != ((1u16 << lead) - 1) as u8;
            // A sum of half precisions in float32 is not rounded on the way.
            let attrs = match from.dtype.is_half() && operand.dtype == DType::F32 {
                true => Attrs::AxesInto { mask, keepdim, dtype: DType::F32 },
                false => Attrs::Axes { mask, keepdim },
            };
            grad = g.emit(Op::Sum, &[grad.into()], attrs)?;
        }
        if g.meta(grad).shape != operand.shape {
            grad = g.emit(Op::Reshape, &[grad.into()], Attrs::Shape(operand.shape))?;
        }
    }
    if g.meta(grad).dtype != operand.dtype {
        grad = g.emit(Op::Cast, &[grad.into()], Attrs::DType(operand.dtype))?;
    }
    Ok(grad)
}
