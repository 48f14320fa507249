//! Complex numbers, by formulas over their real and imaginary parts.
//!
//! The branch cuts and the values at infinities are those of C99 (annex G). The formulas are Kahan's ("Branch Cuts for
//! Complex Elementary Functions", 1987) where the obvious ones cancel or overflow; division is Smith's (1962), as
//! NumPy's. The gradient of a function is the conjugate of its derivative times the gradient of its result, PyTorch's
//! convention: a real loss L of z = x + iy has the gradient dL/dx + i dL/dy.

use crate::dtype::DType;
use crate::error::{OpError, Result};
use crate::expr::{Builder, Expr, GradientRule};
use crate::graph::{Arg, Graph, Val};
use crate::infer::{InputMeta, infer};
use crate::instruction::{Attrs, Scalar};
use crate::op::Op;
use std::f64::consts::{FRAC_PI_2, LN_2, LN_10, SQRT_2};

/// The real and the imaginary part of complex numbers.
#[derive(Clone, Copy)]
struct ComplexParts<'g> {
    re: Expr<'g>,
    im: Expr<'g>,
}

impl<'g> ComplexParts<'g> {
    fn of(z: Expr<'g>) -> ComplexParts<'g> {
        match z.as_number() {
            Some(number) => {
                let (re, im) = number.parts();
                ComplexParts { re: z.builder().number(re), im: z.builder().number(im) }
            }
            None => ComplexParts { re: z.real(), im: z.imag() },
        }
    }
    /// These numbers times i.
    fn turned(self) -> ComplexParts<'g> {
        ComplexParts { re: -self.im, im: self.re }
    }
    /// These numbers times -i.
    fn turned_back(self) -> ComplexParts<'g> {
        ComplexParts { re: self.im, im: -self.re }
    }
    fn times(self, other: ComplexParts<'g>) -> ComplexParts<'g> {
        ComplexParts { re: self.re * other.re - self.im * other.im, im: self.re * other.im + self.im * other.re }
    }
    /// The quotient by Smith's method, which scales the divisor: its square would overflow.
    fn over(self, other: ComplexParts<'g>) -> ComplexParts<'g> {
        let ComplexParts { re: a, im: b } = self;
        let ComplexParts { re: c, im: d } = other;
        let first = c.abs().ge(d.abs());
        let (large, small) = (first.where_(c, d), first.where_(d, c));
        let ratio = large.eq(0.0).where_(0.0, small / large);
        let divisor = large + small * ratio;
        let re = first.where_(a + b * ratio, a * ratio + b) / divisor;
        let im = first.where_(b - a * ratio, b * ratio - a) / divisor;
        ComplexParts { re, im }
    }
    /// The absolute value, without overflow of the squares.
    fn modulus(self) -> Expr<'g> {
        self.re.hypot(self.im)
    }
    fn argument(self) -> Expr<'g> {
        self.im.atan2(self.re)
    }
    fn isinf(self) -> Expr<'g> {
        self.re.isinf() | self.im.isinf()
    }
    fn exp(self) -> ComplexParts<'g> {
        let ComplexParts { re: x, im: y } = self;
        let size = x.exp();
        let vanishes = x.eq(f64::NEG_INFINITY) & !y.isfinite();
        let explodes = x.eq(f64::INFINITY) & !y.isfinite();
        let re = explodes.where_(f64::INFINITY, vanishes.where_(0.0, size * y.cos()));
        let im = y.eq(0.0).where_(y, vanishes.where_(0.0, size * y.sin()));
        ComplexParts { re, im }
    }
    fn log(self) -> ComplexParts<'g> {
        let (a, b) = (self.re.abs(), self.im.abs());
        let first = a.gt(b);
        let (large, small) = (first.where_(a, b), first.where_(b, a));
        // Near 1 the logarithm of the absolute value would lose its digits.
        let near = large.gt(0.5) & large.lt(2.0);
        let close = ((large - 1.0) * (large + 1.0) + small * small).log1p() * 0.5;
        let ratio = small / large.eq(0.0).where_(1.0, large);
        let far = large.log() + (ratio * ratio).log1p() * 0.5;
        let re = (a.isnan() | b.isnan()).where_(a + b, near.where_(close, far)).where_unless_infinite(a, b);
        ComplexParts { re, im: self.argument() }
    }
    fn log1p(self) -> ComplexParts<'g> {
        let ComplexParts { re: x, im: y } = self;
        let above = ComplexParts { re: x + 1.0, im: y };
        let near = x.abs().lt(0.5) & y.abs().lt(0.5);
        let close = (x * (x + 2.0) + y * y).log1p() * 0.5;
        let far = above.log();
        ComplexParts { re: near.where_(close, far.re), im: far.im }
    }
    fn sqrt(self) -> ComplexParts<'g> {
        let ComplexParts { re: x, im: y } = self;
        // Halves, so that the sum below does not overflow.
        let half = ComplexParts { re: x * 0.5, im: y * 0.5 };
        let root = (half.re.abs() + half.modulus()).sqrt();
        let other = y.abs() / (root.eq(0.0).where_(1.0, root) * 2.0);
        let right = x.ge(0.0);
        let re = right.where_(root, other);
        let im = right.where_(other, root).copysign(y);
        let re = y.isinf().where_(f64::INFINITY, x.eq(f64::INFINITY).where_(f64::INFINITY, re));
        let flat = x.isinf() & y.isfinite();
        let re = (flat & x.lt(0.0)).where_(0.0, re);
        let im = flat.where_(right.where_(0.0, f64::INFINITY).copysign(y), im);
        let im = y.isinf().where_(y, im);
        ComplexParts { re, im }
    }
    fn sinh(self) -> ComplexParts<'g> {
        let ComplexParts { re: x, im: y } = self;
        let re = x.sinh() * y.cos();
        let im = x.cosh() * y.sin();
        ComplexParts { re: x.eq(0.0).where_(x, re), im: y.eq(0.0).where_(y, im) }
    }
    fn cosh(self) -> ComplexParts<'g> {
        let ComplexParts { re: x, im: y } = self;
        let re = x.cosh() * y.cos();
        let im = x.sinh() * y.sin();
        let flat = x.eq(0.0) | y.eq(0.0);
        ComplexParts { re, im: flat.where_(x.sign() * y + x * y.sign(), im).zero_where_nan(flat) }
    }
    /// Kahan's formula; where the real part is large, the result is so near 1 that the formula would overflow.
    fn tanh(self) -> ComplexParts<'g> {
        let ComplexParts { re: x, im: y } = self;
        let large = x.abs().gt(20.0);
        let near = large.where_(0.0, x);
        let (tangent, sine) = (y.tan(), near.sinh());
        let slope = tangent * tangent + 1.0;
        let root = (sine * sine + 1.0).sqrt();
        let divisor = slope * sine * sine + 1.0;
        let (re, im) = (slope * root * sine / divisor, tangent / divisor);
        let far_im = y.isfinite().where_(y.sin() * y.cos() * (x.abs() * -2.0).exp() * 4.0, 0.0);
        ComplexParts { re: large.where_(x.sign(), re), im: large.where_(far_im, y.eq(0.0).where_(y, im)) }
    }
    /// The square roots of 1 - z and 1 + z, with the signs of zeros that 1 as a real number gives.
    fn roots(self) -> (ComplexParts<'g>, ComplexParts<'g>) {
        let below = ComplexParts { re: 1.0 - self.re, im: -self.im };
        let above = ComplexParts { re: self.re + 1.0, im: self.im };
        (below.sqrt(), above.sqrt())
    }
    fn asin(self) -> ComplexParts<'g> {
        let (below, above) = self.roots();
        let re = self.re.atan2(below.re * above.re - below.im * above.im);
        let im = (below.re * above.im - below.im * above.re).asinh();
        ComplexParts { re, im }
    }
    fn acos(self) -> ComplexParts<'g> {
        let (below, above) = self.roots();
        let re = below.re.atan2(above.re) * 2.0;
        let im = (above.re * below.im - above.im * below.re).asinh();
        ComplexParts { re, im }
    }
    fn acosh(self) -> ComplexParts<'g> {
        let below = ComplexParts { re: self.re - 1.0, im: self.im }.sqrt();
        let above = ComplexParts { re: self.re + 1.0, im: self.im }.sqrt();
        let re = (below.re * above.re + below.im * above.im).asinh();
        let im = below.im.atan2(above.re) * 2.0;
        ComplexParts { re, im }
    }
    fn atanh(self) -> ComplexParts<'g> {
        let ComplexParts { re: x, im: y } = self;
        let below = 1.0 - x;
        let squares = below * below + y * y;
        let re = (x * 4.0 / squares).log1p() * 0.25;
        let im = (y * 2.0).atan2(below * (x + 1.0) - y * y) * 0.5;
        // Far away the quotient of infinities above is no number.
        let far = squares.isinf() | self.isinf();
        let right_angle = (y * 0.0).where_nan_zero() + FRAC_PI_2;
        let zero = (x * 0.0).where_nan_zero();
        ComplexParts { re: far.where_(zero.copysign(x), re), im: far.where_(right_angle.copysign(y), im) }
    }
    fn expm1(self) -> ComplexParts<'g> {
        let ComplexParts { re: x, im: y } = self;
        let half = (y * 0.5).sin();
        let re = x.expm1() * y.cos() - half * half * 2.0;
        ComplexParts { re, im: y.eq(0.0).where_(y, x.exp() * y.sin()) }
    }
    fn sign(self) -> ComplexParts<'g> {
        let length = self.modulus();
        let zero = length.eq(0.0);
        let divisor = zero.where_(1.0, length);
        ComplexParts { re: self.re / divisor, im: self.im / divisor }
    }
    fn scaled(self, factor: f64) -> ComplexParts<'g> {
        ComplexParts { re: self.re * factor, im: self.im * factor }
    }
    /// The power; that to 0 is 1, and that of 0 to another number with a positive real part 0.
    fn pow(self, exponent: ComplexParts<'g>) -> ComplexParts<'g> {
        let found = self.log().times(exponent).exp();
        let one = exponent.re.eq(0.0) & exponent.im.eq(0.0);
        let none = self.re.eq(0.0) & self.im.eq(0.0) & exponent.re.gt(0.0);
        let re = one.where_(1.0, none.where_(0.0, found.re));
        let im = one.where_(0.0, none.where_(0.0, found.im));
        ComplexParts { re, im }
    }
    fn join(self) -> Expr<'g> {
        self.re.builder().complex(self.re, self.im)
    }
}

/// The hypotenuse, and repairs of formulas at infinities.
impl<'g> Expr<'g> {
    /// The square root of the sum of two squares, which do not overflow; infinity where a side is, even beside NaN.
    #[must_use]
    pub fn hypot(self, other: Expr<'g>) -> Expr<'g> {
        let (a, b) = (self.abs(), other.abs());
        let (large, small) = (a.maximum(b), a.minimum(b));
        let ratio = small / large.eq(0.0).where_(1.0, large);
        (large * (ratio * ratio + 1.0).sqrt()).where_unless_infinite(a, b)
    }
    /// Infinity where either part is infinite, these values elsewhere.
    fn where_unless_infinite(self, a: Expr<'g>, b: Expr<'g>) -> Expr<'g> {
        (a.isinf() | b.isinf()).where_(f64::INFINITY, self)
    }
    /// 0 for NaN.
    fn where_nan_zero(self) -> Expr<'g> {
        self.isnan().where_(0.0, self)
    }
    /// 0 for NaN where a condition holds.
    fn zero_where_nan(self, condition: Expr<'g>) -> Expr<'g> {
        (condition & self.isnan()).where_(0.0, self)
    }
}

/// A real tensor as complex numbers.
pub fn from_real<'g>(g: &'g Builder<'g>, inputs: &[Arg], to: DType) -> Option<Result<Expr<'g>>> {
    let x = g.number(*inputs.first()?).to(to.storage());
    Some(x.meta().map(|meta| g.complex(x, g.zeros(meta))))
}

/// Complex numbers in a real dtype: their real parts; as bools, whether they are not zero.
pub fn to_real<'g>(g: &'g Builder<'g>, inputs: &[Arg], to: DType) -> Option<Result<Expr<'g>>> {
    let z = ComplexParts::of(g.number(*inputs.first()?));
    Some(Ok(if to == DType::Bool { nonzero(z) } else { z.re.to(to) }))
}

fn nonzero(z: ComplexParts<'_>) -> Expr<'_> {
    z.re.ne(0.0) | z.im.ne(0.0)
}

/// A function of one variable with its derivative, which takes the variable and the result.
fn holomorphic<'g>(
    g: &'g Builder<'g>,
    name: &str,
    z: Expr<'g>,
    function: impl FnOnce(ComplexParts<'g>) -> ComplexParts<'g>,
    rule: GradientRule,
) -> Result<Expr<'g>> {
    let result = function(ComplexParts::of(z.detach())).join();
    g.with_gradient(name, &[z], [result], rule).map(|[result]| result)
}

/// The gradient rule of a function from its derivative.
macro_rules! slope {
    (|$z:ident, $out:ident| $derivative:expr) => {
        |_, values, grads| {
            let ($z, $out) = (values[0], values[1]);
            let _ = ($z, $out);
            let slope: Expr<'_> = $derivative;
            Ok(vec![grads[0].map(|grad| grad * slope.conj())])
        }
    };
}

/// An op on complex tensors; none if it is not defined.
pub fn compose<'g>(
    g: &'g Builder<'g>,
    op: Op,
    inputs: &[Arg],
    attrs: &Attrs,
    dtype: DType,
) -> Option<Result<Expr<'g>>> {
    // Operands of gradients may be real numbers beside complex ones.
    let operand = |i: usize| inputs.get(i).map_or_else(|| g.number(0.0), |input| g.number(*input));
    let tensor = |i: usize| {
        let x = operand(i);
        match x.as_number() {
            Some(number) => {
                let (re, im) = number.parts();
                // A number of an operator that a complex64 does not have becomes infinite, as in PyTorch.
                let narrowed = Scalar::Complex(f64::from(re as f32), f64::from(im as f32));
                let number = if dtype == DType::C64 { narrowed } else { number };
                g.full(&crate::shape::Shape::SCALAR, number, dtype)
            }
            None => x.to(dtype),
        }
    };
    let (a, b) = (operand(0), operand(1));
    if let Some(found) = elementwise(g, op, a) {
        return Some(found);
    }
    let made = match op {
        Op::Add | Op::Sub => g.emit(op, &[tensor(0).into(), tensor(1).into()], Attrs::None),
        Op::Mul => {
            let operands = [tensor(0), tensor(1)];
            let rule: GradientRule = |_, values, grads| {
                let grad = grads[0];
                Ok(vec![grad.map(|grad| grad * values[1].conj()), grad.map(|grad| grad * values[0].conj())])
            };
            let product = on_pairs(g, Op::ComplexMul, operands, dtype);
            return Some(product.and_then(|product| recorded(g, "MulBackward0", operands, product, rule)));
        }
        Op::Div => {
            let operands = [tensor(0), tensor(1)];
            let rule: GradientRule = |_, values, grads| {
                let [_, divisor, quotient] = values else { return Ok(Vec::new()) };
                let first = grads[0].map(|grad| grad / divisor.conj());
                Ok(vec![first, first.map(|first| -(first * quotient.conj()))])
            };
            let quotient = on_pairs(g, Op::ComplexDiv, operands, dtype);
            return Some(quotient.and_then(|quotient| recorded(g, "DivBackward0", operands, quotient, rule)));
        }
        Op::Pow => return Some(power(g, a, b, [tensor(0), tensor(1)])),
        Op::Addcmul => operand(0) + operand(1) * operand(2),
        Op::Lerp => operand(0) + operand(2) * (operand(1) - operand(0)),
        Op::Eq | Op::Ne => {
            let (x, y) = (ComplexParts::of(a), ComplexParts::of(b));
            let equal = x.re.to_tensor().eq(y.re) & x.im.to_tensor().eq(y.im);
            if op == Op::Eq { equal } else { !equal }
        }
        Op::LogicalAnd | Op::LogicalOr | Op::LogicalXor => {
            let (x, y) = (nonzero(ComplexParts::of(tensor(0))), nonzero(ComplexParts::of(tensor(1))));
            g.emit(op, &[x.into(), y.into()], Attrs::None)
        }
        Op::Where => {
            let parts = dtype.storage();
            let condition = a.unsqueeze(-1);
            let (yes, no) = (tensor(1).reinterpret(parts), tensor(2).reinterpret(parts));
            g.emit(op, &[condition.into(), yes.into(), no.into()], Attrs::DType(parts)).reinterpret(dtype)
        }
        Op::Any | Op::All => g.emit(op, &[nonzero(ComplexParts::of(a)).into()], attrs.clone()),
        Op::Norm => g.emit(op, &[a.abs().into()], attrs.clone()),
        Op::Prod => return Some(product(g, a, attrs)),
        Op::Cumprod => return Some(running_product(g, a, attrs)),
        Op::Matmul => {
            let (x, y) = (ComplexParts::of(tensor(0)), ComplexParts::of(tensor(1)));
            let re = x.re.matmul(y.re) - x.im.matmul(y.im);
            g.complex(re, x.re.matmul(y.im) + x.im.matmul(y.re))
        }
        Op::Gather | Op::Scatter | Op::ScatterAdd | Op::Index | Op::IndexPut | Op::IndexPutAdd => {
            return Some(indexed(g, op, inputs, attrs, dtype));
        }
        Op::Full => return Some(full(g, inputs, attrs, dtype)),
        Op::Rand | Op::Randn => {
            let Attrs::Random { shape, seed, stream, first, .. } = *attrs else { return None };
            let stored = match shape.stored(dtype) {
                Ok(shape) => Attrs::Random { shape, dtype: dtype.storage(), seed, stream, first: first * 2 },
                Err(error) => return Some(Err(error)),
            };
            let drawn = g.emit(op, inputs, stored).reinterpret(dtype);
            // Each part has half of the variance.
            if op == Op::Randn { drawn * (1.0 / SQRT_2) } else { drawn }
        }
        Op::Convolution => {
            let (x, w) = (ComplexParts::of(tensor(0)), ComplexParts::of(tensor(1)));
            let convolved = |x: Expr<'g>, w: Expr<'g>| g.emit(op, &[x.into(), w.into()], attrs.clone());
            let re = convolved(x.re, w.re) - convolved(x.im, w.im);
            let result = g.complex(re, convolved(x.re, w.im) + convolved(x.im, w.re));
            match (inputs.get(2), result.rank()) {
                (Some(_), Ok(rank)) => {
                    let mut sizes = vec![1i64; rank.saturating_sub(1)];
                    sizes[0] = -1;
                    result + tensor(2).reshape(&sizes)
                }
                _ => result,
            }
        }
        _ => return None,
    };
    Some(Ok(made))
}

/// The instruction that computes a product or a quotient of the parts of two tensors, without their gradients.
fn on_pairs<'g>(g: &'g Builder<'g>, op: Op, [a, b]: [Expr<'g>; 2], dtype: DType) -> Result<Expr<'g>> {
    let shape = a.shape()?.broadcast(&b.shape()?)?;
    let pairs = [a, b].map(|z| Arg::from(z.detach().expand_to(&shape).reinterpret(dtype.storage())));
    Ok(g.emit(op, &pairs, Attrs::None).reinterpret(dtype))
}

/// `Op::ComplexMul` and `Op::ComplexDiv` by instructions on real and imaginary parts: those of the result.
///
/// # Errors
/// Another op; operands that do not fit each other.
pub fn on_parts(g: &mut dyn Graph, op: Op, a: [Val; 2], b: [Val; 2]) -> Result<[Val; 2]> {
    let builder = Builder::new(g);
    let [a, b] = [a, b].map(|[re, im]| ComplexParts { re: builder.tensor(re), im: builder.tensor(im) });
    let ComplexParts { re, im } = match op {
        Op::ComplexMul => a.times(b),
        Op::ComplexDiv => a.over(b),
        _ => return Err(OpError::not_implemented(format!("{} on the parts of complex numbers", op.name()))),
    };
    Ok([builder.finish(re)?, builder.finish(im)?])
}

/// `Op::ComplexMul` and `Op::ComplexDiv` by several instructions, for daemons that do not know them.
///
/// # Errors
/// Another op; operands that do not fit each other.
pub fn by_steps(g: &mut dyn Graph, op: Op, a: Val, b: Val) -> Result<Val> {
    let inputs = [a, b].map(|v| InputMeta::Tensor(g.meta(v)));
    infer(op, &inputs, &Attrs::None)?;
    let parts = {
        let builder = Builder::new(g);
        let part = |v: Val, index: i64| builder.finish(builder.tensor(v).select(-1, index));
        [[part(a, 0)?, part(a, 1)?], [part(b, 0)?, part(b, 1)?]]
    };
    let [re, im] = on_parts(g, op, parts[0], parts[1])?;
    let builder = Builder::new(g);
    let pairs = builder.stack(&[builder.tensor(re), builder.tensor(im)], -1);
    builder.finish(pairs)
}

fn recorded<'g>(
    g: &'g Builder<'g>,
    name: &str,
    inputs: [Expr<'g>; 2],
    result: Expr<'g>,
    rule: GradientRule,
) -> Result<Expr<'g>> {
    g.with_gradient(name, &inputs, [result], rule).map(|[result]| result)
}

/// Functions of one complex variable.
fn elementwise<'g>(g: &'g Builder<'g>, op: Op, z: Expr<'g>) -> Option<Result<Expr<'g>>> {
    let of = |name, function: fn(ComplexParts<'g>) -> ComplexParts<'g>, rule| holomorphic(g, name, z, function, rule);
    Some(match op {
        Op::Exp => of("ExpBackward0", ComplexParts::exp, slope!(|z, out| out)),
        Op::Exp2 => of("Exp2Backward0", |z| z.scaled(LN_2).exp(), slope!(|z, out| out * LN_2)),
        Op::Expm1 => of("Expm1Backward0", ComplexParts::expm1, slope!(|z, out| out + 1.0)),
        Op::Log => of("LogBackward0", ComplexParts::log, slope!(|z, out| z.reciprocal())),
        Op::Log2 => of("Log2Backward0", |z| z.log().scaled(1.0 / LN_2), slope!(|z, out| (z * LN_2).reciprocal())),
        Op::Log10 => of("Log10Backward0", |z| z.log().scaled(1.0 / LN_10), slope!(|z, out| (z * LN_10).reciprocal())),
        Op::Log1p => of("Log1pBackward0", ComplexParts::log1p, slope!(|z, out| (z + 1.0).reciprocal())),
        Op::Sqrt => of("SqrtBackward0", ComplexParts::sqrt, slope!(|z, out| (out * 2.0).reciprocal())),
        Op::Rsqrt => {
            let rule: GradientRule = slope!(|z, out| out * out * out * -0.5);
            of("RsqrtBackward0", |z| one(z).over(z.sqrt()), rule)
        }
        Op::Reciprocal => of("ReciprocalBackward0", |z| one(z).over(z), slope!(|z, out| -(out * out))),
        Op::Sin => of("SinBackward0", |z| z.turned().sinh().turned_back(), slope!(|z, out| z.cos())),
        Op::Cos => of("CosBackward0", |z| z.turned().cosh(), slope!(|z, out| -z.sin())),
        Op::Tan => of("TanBackward0", |z| z.turned().tanh().turned_back(), slope!(|z, out| out * out + 1.0)),
        Op::Sinh => of("SinhBackward0", ComplexParts::sinh, slope!(|z, out| z.cosh())),
        Op::Cosh => of("CoshBackward0", ComplexParts::cosh, slope!(|z, out| z.sinh())),
        Op::Tanh => of("TanhBackward0", ComplexParts::tanh, slope!(|z, out| 1.0 - out * out)),
        Op::Asin => of("AsinBackward0", ComplexParts::asin, slope!(|z, out| (1.0 - z * z).rsqrt())),
        Op::Acos => of("AcosBackward0", ComplexParts::acos, slope!(|z, out| -(1.0 - z * z).rsqrt())),
        Op::Atan => {
            let rule: GradientRule = slope!(|z, out| (z * z + 1.0).reciprocal());
            of("AtanBackward0", |z| z.turned().atanh().turned_back(), rule)
        }
        Op::Asinh => {
            let rule: GradientRule = slope!(|z, out| (z * z + 1.0).rsqrt());
            of("AsinhBackward0", |z| z.turned().asin().turned_back(), rule)
        }
        Op::Acosh => {
            let rule: GradientRule = slope!(|z, out| ((z - 1.0).sqrt() * (z + 1.0).sqrt()).reciprocal());
            of("AcoshBackward0", ComplexParts::acosh, rule)
        }
        Op::Atanh => of("AtanhBackward0", ComplexParts::atanh, slope!(|z, out| (1.0 - z * z).reciprocal())),
        Op::Sigmoid => {
            let rule: GradientRule = slope!(|z, out| out * (1.0 - out));
            let function = |z: ComplexParts<'g>| {
                let falling = z.scaled(-1.0).exp();
                one(z).over(ComplexParts { re: falling.re + 1.0, im: falling.im })
            };
            of("SigmoidBackward0", function, rule)
        }
        Op::Abs => {
            let length = ComplexParts::of(z.detach()).modulus();
            let found = g.with_gradient("AbsBackward0", &[z], [length], |_, values, grads| {
                Ok(vec![grads[0].map(|grad| values[0].sign() * grad)])
            });
            found.map(|[length]| length)
        }
        Op::Sign => {
            let sign = ComplexParts::of(z.detach()).sign().join();
            let found = g.with_gradient("SgnBackward0", &[z], [sign], |_, values, grads| {
                // The part of the gradient across the direction of z, divided by the length.
                let (length, sign) = (values[0].abs(), values[1]);
                let zero = length.eq(0.0);
                Ok(vec![grads[0].map(|grad| {
                    let along = (grad.conj() * sign).real();
                    let turned = grad - sign * along;
                    zero.where_(0.0, turned / zero.where_(1.0, length))
                })])
            });
            found.map(|[sign]| sign)
        }
        Op::LogicalNot => Ok(!nonzero(ComplexParts::of(z))),
        Op::Isnan => Ok(z.real().isnan() | z.imag().isnan()),
        Op::Isinf => Ok(ComplexParts::of(z).isinf()),
        Op::Isfinite => Ok(z.real().isfinite() & z.imag().isfinite()),
        _ => return None,
    })
}

/// 1 + 0i in the shape of `z`.
fn one(z: ComplexParts<'_>) -> ComplexParts<'_> {
    let g = z.re.builder();
    ComplexParts { re: g.number(1.0), im: g.number(0.0) }
}

/// `base ** exponent`, by products or a root for the commonest numbers.
fn power<'g>(g: &'g Builder<'g>, base: Expr<'g>, exponent: Expr<'g>, tensors: [Expr<'g>; 2]) -> Result<Expr<'g>> {
    match exponent.as_number().and_then(Scalar::as_real).map(Scalar::to_f64) {
        Some(2.0) => return Ok(base * base),
        Some(3.0) => return Ok(base * base * base),
        Some(1.0) => return Ok(base),
        Some(0.5) => return Ok(base.sqrt()),
        Some(-1.0) => return Ok(base.reciprocal()),
        _ => {}
    }
    let result = ComplexParts::of(tensors[0].detach()).pow(ComplexParts::of(tensors[1].detach())).join();
    recorded(g, "PowBackward0", tensors, result, |_, values, grads| {
        let [base, exponent, result] = values else { return Ok(Vec::new()) };
        let still = exponent.eq(0.0);
        let (of_base, of_exponent) = (*exponent * base.pow(*exponent - 1.0), *result * base.log());
        let first = grads[0].map(|grad| still.where_(0.0, grad * of_base.conj()));
        // The derivative of 0 to a power with a real part that is not negative is 0, by PyTorch's convention.
        let flat = base.eq(0.0) & exponent.real().ge(0.0);
        Ok(vec![first, grads[0].map(|grad| flat.where_(0.0, grad * of_exponent.conj()))])
    })
}

/// The product over axes, by halves: the first half of an axis times its second.
fn product<'g>(g: &'g Builder<'g>, z: Expr<'g>, attrs: &Attrs) -> Result<Expr<'g>> {
    let Attrs::Axes { mask, keepdim } = *attrs else { return Ok(z) };
    let meta = z.meta()?;
    let mut result = z;
    for axis in (0..meta.shape.rank()).filter(|axis| mask >> axis & 1 == 1) {
        let along = axis as i64;
        let mut size = result.size(along)?;
        if size == 0 {
            let ones = g.full(&result.shape()?.with_dim(axis, 1), 1.0, meta.dtype);
            result = ones;
        }
        while size > 1 {
            let half = size / 2;
            let folded = result.narrow(along, 0, half) * result.narrow(along, half, half);
            result = match size % 2 {
                0 => folded,
                _ => g.cat(&[folded, result.narrow(along, size - 1, 1)], along),
            };
            size -= half;
        }
    }
    let axes: Vec<i64> = (0..meta.shape.rank()).filter(|axis| mask >> axis & 1 == 1).map(|axis| axis as i64).collect();
    Ok(if keepdim || axes.is_empty() { result } else { result.squeeze_axes(Some(&axes)) })
}

/// The cumulative product along an axis, by doubling distances (Hillis and Steele 1986).
fn running_product<'g>(g: &'g Builder<'g>, z: Expr<'g>, attrs: &Attrs) -> Result<Expr<'g>> {
    let Attrs::Axis(axis) = *attrs else { return Ok(z) };
    let (axis, size) = (i64::from(axis), z.size(i64::from(axis))?);
    let (mut result, mut distance) = (z, 1);
    while distance < size {
        let later = result.narrow(axis, distance, size - distance) * result.narrow(axis, 0, size - distance);
        result = g.cat(&[result.narrow(axis, 0, distance), later], axis);
        distance *= 2;
    }
    Ok(result)
}

/// A gather or a scatter: both parts of an element are at its index.
fn indexed<'g>(g: &'g Builder<'g>, op: Op, inputs: &[Arg], attrs: &Attrs, dtype: DType) -> Result<Expr<'g>> {
    let mut operands = Vec::with_capacity(inputs.len());
    for (i, input) in inputs.iter().enumerate() {
        let x = g.number(*input);
        operands.push(if i == 1 {
            let shape = x.shape()?.stored(dtype)?;
            Arg::from(x.unsqueeze(-1).expand_to(&shape))
        } else {
            x.reinterpret(dtype.storage()).into()
        });
    }
    Ok(g.emit(op, &operands, attrs.clone()).reinterpret(dtype))
}

/// A tensor of one complex number.
fn full<'g>(g: &'g Builder<'g>, inputs: &[Arg], attrs: &Attrs, dtype: DType) -> Result<Expr<'g>> {
    let (Some(Arg::Scalar(number)), Attrs::Create { shape, .. }) = (inputs.first(), attrs) else {
        return Ok(g.number(0.0));
    };
    let (re, im) = number.parts();
    let parts = dtype.storage();
    Ok(match (re, im) {
        _ if re.to_bits() == im.to_bits() => g.full(&shape.stored(dtype)?, re, parts).reinterpret(dtype),
        _ => g.complex(g.full(shape, re, parts), g.full(shape, im, parts)),
    })
}
