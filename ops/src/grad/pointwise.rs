//! Gradients of elementwise ops that take more than a line or two.

use crate::error::OpError;
use crate::expr::Expr;
use crate::grad::GradCtx;
use crate::grad::structure::zero;
use crate::graph::Arg;
use crate::op::Op;

/// The square root of 2 pi.
pub const SQRT_2PI: f64 = 2.506_628_274_631_000_5;
/// The square root of 2 / pi.
pub const SQRT_2_OVER_PI: f64 = 0.797_884_560_802_865_4;

/// Whether the tape keeps the result of a division alone: that of a number by a tensor, which may be written then.
pub fn keeps_quotient(op: Op, inputs: &[Arg]) -> bool {
    op == Op::Div && matches!(inputs, [Arg::Scalar(_), Arg::Val(_)])
}

/// The gradient of a divisor: -g a / b^2.
pub fn divisor<'g>(c: &GradCtx<'g>) -> Expr<'g> {
    if c.has(1) {
        // Divided twice: the square of a small divisor would underflow to 0.
        return -(c.grad * (c.a() / c.b() / c.b()));
    }
    match c.a().as_number() {
        // The result says no more about the divisor than 0 or infinity.
        Some(a) if a.to_f64() == 0.0 || a.to_f64().is_infinite() => {
            -(c.grad * (c.out() * c.out() * 1f64.copysign(a.to_f64())))
        }
        _ => -(c.grad * (c.out() * (c.out() / c.a()))),
    }
}

/// The error of an op that is differentiable, and has no derivative in PyTorch.
pub fn no_derivative<'g>(c: &GradCtx<'g>) -> Expr<'g> {
    c.grad.builder().fail(OpError::runtime("derivative for aten::floor_divide is not implemented"))
}

/// g b a^(b - 1), 0 where b is 0.
pub fn pow_base<'g>(c: &GradCtx<'g>) -> Expr<'g> {
    match c.b().as_number() {
        Some(b) if b.to_f64() == 0.0 => zero(c),
        Some(b) => c.grad * (c.a().pow(b.to_f64() - 1.0) * b.to_f64()),
        None => c.b().eq(0.0).where_(0.0, c.grad * (c.a().pow(c.b() - 1.0) * c.b())),
    }
}

/// g out ln(a), 0 where a is 0 and b is not negative: there out is constant, though ln(0) is infinite.
pub fn pow_exponent<'g>(c: &GradCtx<'g>) -> Expr<'g> {
    c.a().eq(0.0).and(|| c.b().ge(0.0)).where_(0.0, c.grad * (c.out() * c.a().log()))
}

/// g ln(b), 0 where a is 0 and b is not positive.
pub fn xlogy_factor<'g>(c: &GradCtx<'g>) -> Expr<'g> {
    c.b().le(0.0).and(|| c.a().eq(0.0)).where_(0.0, c.grad * c.b().log())
}

/// g b / (a^2 + b^2), -g a / (a^2 + b^2), 0 at the origin.
pub fn atan2<'g>(c: &GradCtx<'g>) -> Vec<Option<Expr<'g>>> {
    let square = c.a() * c.a() + c.b() * c.b();
    let share = square.eq(0.0).where_(0.0, c.grad / square);
    c.each(|operand| if operand == 0 { share * c.b() } else { -(share * c.a()) })
}

/// g, halved where the operands are equal, and 0 where the other operand is the extremum. A bound that is a number is
/// no rival: elements that equal it, and NaN, have no gradient.
pub fn contested<'g>(c: &GradCtx<'g>, lost: Expr<'g>, won: impl FnOnce() -> Expr<'g>) -> Expr<'g> {
    match c.b().as_number() {
        Some(_) => won().where_(c.grad, 0.0),
        None => lost.where_(0.0, c.a().eq(c.b()).where_(c.grad * 0.5, c.grad)),
    }
}

/// g times the ratio of result and operand, which is 1, -1 or, where the operand is 0, 0.
pub fn copysign<'g>(c: &GradCtx<'g>) -> Expr<'g> {
    let (a, out) = (c.a().detach(), c.out().detach());
    c.grad * a.eq(0.0).where_(0.0, out / a)
}

/// The gradients of min(max(a, b), c). Bounds that are numbers leave elements that equal them, and NaN, without one. A
/// bound that is a tensor shares the gradient of elements that equal it, but not of those that equal both bounds; where
/// the lower bound is above the upper one, the latter has it all.
pub fn clamp<'g>(c: &GradCtx<'g>) -> Vec<Option<Expr<'g>>> {
    let (a, low, high) = (c.a(), c.b(), c.c());
    if low.as_number().is_some() && high.as_number().is_some() {
        return c.each(|_| (a.gt(low) & a.lt(high)).where_(c.grad, 0.0));
    }
    let (at_low, at_high, crossed) = (a.eq(low), a.eq(high), low.gt(high));
    let half = c.grad * 0.5;
    c.each(|operand| match operand {
        0 => (crossed | a.lt(low) | a.gt(high)).where_(0.0, (at_low ^ at_high).where_(half, c.grad)),
        1 => (a.lt(low) & low.le(high)).where_(c.grad, (at_low & a.lt(high)).where_(half, 0.0)),
        _ => (crossed | a.gt(high)).where_(c.grad, (at_high & a.gt(low)).where_(half, 0.0)),
    })
}

/// g to the chosen number, to both halves of it where they are equal, to the first of two NaN.
fn to_chosen<'g>(c: &GradCtx<'g>, first: Expr<'g>) -> Vec<Option<Expr<'g>>> {
    let first = first | c.b().isnan();
    let equal = c.a().eq(c.b());
    let half = equal.where_(c.grad * 0.5, 0.0);
    c.each(|operand| match operand {
        0 => (first & equal.logical_not()).where_(c.grad, half),
        _ => first.where_(half, c.grad),
    })
}

/// g to the smaller number.
pub fn fmin<'g>(c: &GradCtx<'g>) -> Vec<Option<Expr<'g>>> {
    to_chosen(c, c.a().le(c.b()))
}

/// g to the larger number.
pub fn fmax<'g>(c: &GradCtx<'g>) -> Vec<Option<Expr<'g>>> {
    to_chosen(c, c.a().ge(c.b()))
}

/// The gradients of the incomplete gamma function P(a, b), whose slope in b is the density of the gamma distribution of
/// shape a.
pub fn gammainc<'g>(c: &GradCtx<'g>) -> Vec<Option<Expr<'g>>> {
    if c.recorded() && c.needs(0) {
        c.fail("gammainc(): its first argument has a gradient, but not one of that gradient");
    }
    let to_b = c.grad * ((c.a() - 1.0).xlogy(c.b()) - c.b() - c.a().lgamma()).exp();
    c.each(|operand| if operand == 0 { -(to_b * c.a().gamma_slope(c.b())) } else { to_b })
}

/// Minus the gradients of gammainc.
pub fn gammaincc<'g>(c: &GradCtx<'g>) -> Vec<Option<Expr<'g>>> {
    gammainc(&GradCtx { grad: -c.grad, ..*c })
}

/// The second derivative of gelu_tanh, (1 - t^2) (u' + a u'' / 2 - a t u'^2), where t = tanh(u).
pub fn gelu_tanh_curve<'g>(a: Expr<'g>) -> Expr<'g> {
    let square = a * a;
    let u = a * SQRT_2_OVER_PI * (square * 0.044715 + 1.0);
    let slope = (square * (3.0 * 0.044715) + 1.0) * SQRT_2_OVER_PI;
    let half_curve = square * (3.0 * 0.044715 * SQRT_2_OVER_PI);
    let t = u.tanh();
    (1.0 - t * t) * (slope + half_curve - a * t * (slope * slope))
}

/// The second derivative of silu, s (1 - s) (2 + a (1 - 2 s)), where s = sigmoid(a).
pub fn silu_curve<'g>(a: Expr<'g>) -> Expr<'g> {
    let s = a.sigmoid();
    s * (1.0 - s) * (a * (1.0 - s * 2.0) + 2.0)
}

impl<'g> GradCtx<'g> {
    /// A function of the first operand where that is not 0, and the function's limit where it is.
    pub fn unless_zero(&self, limit: f64, function: impl FnOnce(Expr<'g>) -> Expr<'g>) -> Expr<'g> {
        let zero = self.a().eq(0.0);
        zero.where_(limit, function(zero.where_(1.0, self.a())))
    }
}
