//! Gradients of scatters, whose operands are a base, an index and a source.

use crate::expr::Expr;
use crate::grad::GradCtx;
use crate::graph::Arg;
use crate::instruction::{Attrs, SliceSpec};
use crate::op::Op;

impl<'g> GradCtx<'g> {
    /// A tensor of the result's shape at the indices.
    fn gathered(&self, tensor: Expr<'g>) -> Expr<'g> {
        self.emit(Op::Gather, [tensor, self.b()])
    }
    /// The slice of the source that was scattered.
    fn part(&self) -> Attrs {
        Attrs::Slice(Box::new(SliceSpec::corner(self.shape(1))))
    }
    /// The part of the source that was scattered, which has the index's shape.
    fn scattered(&self) -> Expr<'g> {
        match self.shape(1) == self.shape(2) {
            true => self.c(),
            false => self.builder.emit(Op::Slice, &[self.c().into()], self.part()),
        }
    }
    /// The inverse of [`GradCtx::scattered`]: zeros where the source was not scattered.
    fn padded(&self, part: Expr<'g>) -> Expr<'g> {
        match self.shape(1) == self.shape(2) {
            true => part,
            false => {
                let operands = [self.full(2, 0.0), part].map(Arg::from);
                self.builder.emit(Op::SliceScatter, &operands, self.part())
            }
        }
    }
}

/// The gradient of a source whose elements were copied or added: g gathered at the indices by `gather`.
pub fn to_source<'g>(c: &GradCtx<'g>, gather: Op) -> Expr<'g> {
    c.padded(c.emit(gather, [c.grad, c.b()]))
}

/// g with 0 scattered to the indices by `scatter`.
pub fn overwritten<'g>(c: &GradCtx<'g>, scatter: Op) -> Expr<'g> {
    let zeros = c.builder.full(&c.shape(1), 0.0, c.dtype());
    c.emit(scatter, [c.grad, c.b(), zeros])
}

/// g times the product of the other factors, exact for any number of zeros.
pub fn product<'g>(c: &GradCtx<'g>) -> Vec<Option<Expr<'g>>> {
    let split = |factor: Expr<'g>| {
        let zero = factor.eq(0.0);
        (zero.where_(1.0, factor), c.count(zero))
    };
    let (base, source) = (split(c.a()), split(c.scattered()));
    let product = c.emit(Op::ScatterProd, [base.0, c.b(), source.0]);
    let zeros = c.emit(Op::ScatterAdd, [base.1, c.b(), source.1]);
    let slope = |product: Expr<'g>, zeros: Expr<'g>, (nonzero, zero): (Expr<'g>, Expr<'g>)| {
        (zeros - zero).eq(0.0).where_(product / nonzero, 0.0)
    };
    c.each(|operand| match operand {
        0 => c.grad * slope(product, zeros, base),
        _ => c.padded(c.gathered(c.grad) * slope(c.gathered(product), c.gathered(zeros), source)),
    })
}

/// g divided equally among the elements equal to the extremum.
pub fn extremum<'g>(c: &GradCtx<'g>) -> Vec<Option<Expr<'g>>> {
    let base = c.count(c.a().eq(c.out()));
    let source = c.count(c.scattered().eq(c.gathered(c.out())));
    let share = c.grad / c.emit(Op::ScatterAdd, [base, c.b(), source]);
    c.each(|operand| match operand {
        0 => share * base,
        _ => c.padded(c.gathered(share) * source),
    })
}
