//! The gradient of each op: a function that emits ordinary instructions.
//!
//! A gradient function takes the gradient of the result and returns one for each operand, a vector-Jacobian product. A
//! gradient may have the result's broadcast shape: [`to_operand`] sums and casts it to the operand's shape and dtype.
//! Sharding and fusion treat a gradient's instructions as any others, and a recorded gradient is itself differentiable.
//! The comment of a gradient function lists the gradients of the operands in order, between commas or semicolons: g is
//! the gradient of the result, `out` the result, and a, b and c the operands.

pub mod row_wise;

use crate::dtype::DType;
use crate::error::{OpError, Result};
use crate::graph::{Arg, Graph, Val};
use crate::instruction::{Attrs, Scalar, SliceSpec};
use crate::op::Op;
use crate::shape::{Meta, RANK_MAX, Shape};
use crate::special;

/// A gradient function: returns one entry per operand, none where no gradient flows.
pub type GradFn = fn(&mut dyn Graph, &GradCtx<'_>) -> Result<Vec<Option<Val>>>;

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

/// The arguments of a gradient function.
pub struct GradCtx<'a> {
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
}

impl GradCtx<'_> {
    pub(crate) fn arg(&self, i: usize) -> Result<Arg> {
        match self.inputs[i] {
            Saved::Val(v) => Ok(Arg::Val(v)),
            Saved::Scalar(s) => Ok(Arg::Scalar(s)),
            Saved::Meta(_) => Err(not_saved()),
        }
    }
    pub(crate) fn val(&self, i: usize) -> Result<Val> {
        match self.inputs[i] {
            Saved::Val(v) => Ok(v),
            _ => Err(not_saved()),
        }
    }
    pub(crate) fn out(&self) -> Result<Val> {
        match self.output {
            Saved::Val(v) => Ok(v),
            _ => Err(not_saved()),
        }
    }
    pub(crate) fn meta(&self, g: &dyn Graph, i: usize) -> Meta {
        match self.inputs[i] {
            Saved::Val(v) => g.meta(v),
            Saved::Meta(m) => m,
            Saved::Scalar(_) => Meta::new(Shape::SCALAR, g.meta(self.grad).dtype),
        }
    }
    /// Emits another op over the same windows.
    fn window(&self, g: &mut dyn Graph, op: Op, operands: &[Arg]) -> Result<Option<Val>> {
        g.emit(op, operands, self.attrs.clone()).map(Some)
    }
    /// A gradient per operand, computed only where required.
    pub(crate) fn each(
        &self,
        g: &mut dyn Graph,
        mut f: impl FnMut(&mut dyn Graph, usize) -> Result<Option<Val>>,
    ) -> Result<Vec<Option<Val>>> {
        (0..self.inputs.len()).map(|i| if self.needs[i] { f(g, i) } else { Ok(None) }).collect()
    }
}

pub(crate) fn not_saved() -> OpError {
    OpError::runtime("a gradient needs a tensor that its row in the op table does not save")
}

impl dyn Graph + '_ {
    pub(crate) fn op1(&mut self, op: Op, a: impl Into<Arg>) -> Result<Val> {
        self.emit(op, &[a.into()], Attrs::None)
    }
    pub(crate) fn op2(&mut self, op: Op, a: impl Into<Arg>, b: impl Into<Arg>) -> Result<Val> {
        self.emit(op, &[a.into(), b.into()], Attrs::None)
    }
    pub(crate) fn add(&mut self, a: impl Into<Arg>, b: impl Into<Arg>) -> Result<Val> {
        self.op2(Op::Add, a, b)
    }
    pub(crate) fn sub(&mut self, a: impl Into<Arg>, b: impl Into<Arg>) -> Result<Val> {
        self.op2(Op::Sub, a, b)
    }
    pub(crate) fn mul(&mut self, a: impl Into<Arg>, b: impl Into<Arg>) -> Result<Val> {
        self.op2(Op::Mul, a, b)
    }
    pub(crate) fn div(&mut self, a: impl Into<Arg>, b: impl Into<Arg>) -> Result<Val> {
        self.op2(Op::Div, a, b)
    }
    pub(crate) fn select(
        &mut self,
        condition: Val,
        yes: impl Into<Arg>,
        no: impl Into<Arg>,
        dtype: DType,
    ) -> Result<Val> {
        self.emit(Op::Where, &[condition.into(), yes.into(), no.into()], Attrs::DType(dtype))
    }
    /// `grad` where `condition`, else 0.
    pub(crate) fn mask(&mut self, condition: Val, grad: Val) -> Result<Val> {
        let dtype = self.meta(grad).dtype;
        self.select(condition, grad, 0.0, dtype)
    }
    /// Converts half precisions to `f32`, for gradients of several steps: in half precision each step would round or
    /// overflow.
    pub(crate) fn upcast(&mut self, v: Val) -> Result<Val> {
        use DType::{BF16, F16, F32};
        match self.meta(v).dtype {
            F16 | BF16 => self.emit(Op::Cast, &[v.into()], Attrs::DType(F32)),
            _ => Ok(v),
        }
    }
    pub(crate) fn reshaped(&mut self, v: Val, shape: Shape) -> Result<Val> {
        if self.meta(v).shape == shape { Ok(v) } else { self.emit(Op::Reshape, &[v.into()], Attrs::Shape(shape)) }
    }
    pub(crate) fn expanded(&mut self, v: Val, shape: Shape) -> Result<Val> {
        if self.meta(v).shape == shape { Ok(v) } else { self.emit(Op::Expand, &[v.into()], Attrs::Shape(shape)) }
    }
    pub(crate) fn zeros(&mut self, meta: Meta) -> Result<Val> {
        self.emit(Op::Full, &[0.0.into()], Attrs::Create { shape: meta.shape, dtype: meta.dtype })
    }
    /// The elements of an axis in reverse order.
    fn flipped(&mut self, v: Val, axis: u8) -> Result<Val> {
        let sizes = self.meta(v).shape;
        let mut spec = SliceSpec { start: [0; RANK_MAX], step: [1; RANK_MAX], sizes };
        spec.start[axis as usize] = (sizes.dims()[axis as usize] as i64 - 1).max(0);
        spec.step[axis as usize] = -1;
        self.emit(Op::Slice, &[v.into()], Attrs::Slice(Box::new(spec)))
    }
    /// A scan from the end of the axis to its start.
    fn scan_back(&mut self, op: Op, v: Val, axis: u8) -> Result<Val> {
        let turned = self.flipped(v, axis)?;
        let scanned = self.emit(op, &[turned.into()], Attrs::Axis(axis))?;
        self.flipped(scanned, axis)
    }
    /// Flattens all axes but the last to one.
    pub(crate) fn as_rows(&mut self, v: Val) -> Result<Val> {
        let shape = self.meta(v).shape;
        let columns = shape.dims()[shape.rank() - 1];
        let rows = shape.dims()[..shape.rank() - 1].iter().product();
        self.reshaped(v, Shape::new(&[rows, columns])?)
    }
    /// Flattens all axes after the second to one.
    fn as_planes(&mut self, v: Val) -> Result<Val> {
        let shape = self.meta(v).shape;
        let [samples, channels, sizes @ ..] = shape.dims() else { return Err(not_saved()) };
        self.reshaped(v, Shape::new(&[*samples, *channels, sizes.iter().product()])?)
    }
    pub(crate) fn swap_last(&mut self, v: Val) -> Result<Val> {
        let rank = self.meta(v).shape.rank();
        let mut permutation = identity_permutation();
        permutation.swap(rank - 1, rank - 2);
        self.emit(Op::Permute, &[v.into()], Attrs::Permutation(permutation))
    }
}

fn identity_permutation() -> [u8; RANK_MAX] {
    std::array::from_fn(|i| i as u8)
}

/// The permutation that undoes `permutation` of the first `rank` axes.
pub fn inverse_permutation(permutation: &[u8; RANK_MAX], rank: usize) -> [u8; RANK_MAX] {
    let mut inverse = identity_permutation();
    for (to, from) in permutation.iter().enumerate().take(rank) {
        inverse[*from as usize] = to as u8;
    }
    inverse
}

/// Whether `permutation` swaps the last two of `rank` axes and leaves the others.
pub fn exchanges_last(permutation: &[u8; RANK_MAX], rank: usize) -> bool {
    let mut expected = identity_permutation();
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
            grad = g.emit(Op::Sum, &[grad.into()], Attrs::Axes { mask, keepdim })?;
        }
        grad = g.reshaped(grad, operand.shape)?;
    }
    if from.dtype != operand.dtype {
        grad = g.emit(Op::Cast, &[grad.into()], Attrs::DType(operand.dtype))?;
    }
    Ok(grad)
}

macro_rules! gradients {
    ($($(#[$doc:meta])* $name:ident($g:ident, $c:ident) $body:block)*) => {$(
        $(#[$doc])*
        ///
        /// # Errors
        /// The errors of [`Graph::emit`].
        pub fn $name($g: &mut dyn Graph, $c: &GradCtx<'_>) -> Result<Vec<Option<Val>>> $body
    )*};
}

pub(crate) use gradients;

/// The single gradient of a one-operand op.
pub(crate) fn one(grad: Result<Val>) -> Result<Vec<Option<Val>>> {
    Ok(vec![Some(grad?)])
}

const TWO_OVER_SQRT_PI: f64 = std::f64::consts::FRAC_2_SQRT_PI;
const INV_SQRT_2PI: f64 = 0.398_942_280_401_432_7;

gradients! {
    /// 0: the function is constant between its steps.
    zero(g, c) { c.each(g, |g, i| { let m = c.meta(g, i); g.zeros(m).map(Some) }) }
    /// -g
    neg(g, c) { one(g.op1(Op::Neg, c.grad)) }
    /// g * sign(a)
    abs(g, c) { let s = g.op1(Op::Sign, c.val(0)?)?; one(g.mul(c.grad, s)) }
    /// g where out is positive or NaN, else 0
    relu(g, c) {
        one(g.op2(Op::ReluBackward, c.grad, c.out()?))
    }
    /// to the gradient, g where b is positive or NaN; to relu's result, 0: the function is constant on either side of 0
    relu_backward(g, c) {
        c.each(g, |g, i| {
            let meta = c.meta(g, i);
            if i == 0 { g.op2(Op::ReluBackward, c.grad, c.arg(1)?) } else { g.zeros(meta) }.map(Some)
        })
    }
    /// g * out
    exp(g, c) { one(g.mul(c.grad, c.out()?)) }
    /// g * (out + 1)
    expm1(g, c) { let e = g.add(c.out()?, 1.0)?; one(g.mul(c.grad, e)) }
    /// g / a
    log(g, c) { one(g.div(c.grad, c.val(0)?)) }
    /// g / (1 + a)
    log1p(g, c) { let d = g.add(c.val(0)?, 1.0)?; one(g.div(c.grad, d)) }
    /// g / (2 out)
    sqrt(g, c) { let h = g.mul(c.grad, 0.5)?; one(g.div(h, c.out()?)) }
    /// -g/2 out^3
    rsqrt(g, c) {
        let (grad, out) = (g.upcast(c.grad)?, g.upcast(c.out()?)?);
        let square = g.mul(out, out)?;
        let cube = g.mul(square, out)?;
        let h = g.mul(grad, -0.5)?;
        one(g.mul(h, cube))
    }
    /// -g out^2
    reciprocal(g, c) {
        let out = c.out()?;
        let square = g.mul(out, out)?;
        let n = g.op1(Op::Neg, c.grad)?;
        one(g.mul(n, square))
    }
    /// g cos(a)
    sin(g, c) { let d = g.op1(Op::Cos, c.val(0)?)?; one(g.mul(c.grad, d)) }
    /// -g sin(a)
    cos(g, c) { let d = g.op1(Op::Sin, c.val(0)?)?; let n = g.op1(Op::Neg, c.grad)?; one(g.mul(n, d)) }
    /// g (1 + out^2)
    tan(g, c) { let out = c.out()?; let s = g.mul(out, out)?; let d = g.add(s, 1.0)?; one(g.mul(c.grad, d)) }
    /// g (1 - out^2)
    tanh(g, c) {
        let (grad, out) = (g.upcast(c.grad)?, g.upcast(c.out()?)?);
        let s = g.mul(out, out)?;
        let d = g.sub(1.0, s)?;
        one(g.mul(grad, d))
    }
    /// g out (1 - out)
    sigmoid(g, c) {
        let (grad, out) = (g.upcast(c.grad)?, g.upcast(c.out()?)?);
        let r = g.sub(1.0, out)?;
        let d = g.mul(out, r)?;
        one(g.mul(grad, d))
    }
    /// g 2/sqrt(pi) exp(-a^2)
    erf(g, c) {
        let (grad, a) = (g.upcast(c.grad)?, g.upcast(c.val(0)?)?);
        let s = g.mul(a, a)?;
        let n = g.op1(Op::Neg, s)?;
        let e = g.op1(Op::Exp, n)?;
        let d = g.mul(e, TWO_OVER_SQRT_PI)?;
        one(g.mul(grad, d))
    }
    /// g (Phi(a) + a phi(a))
    gelu(g, c) {
        if !c.recorded {
            return one(g.op2(Op::GeluBackward, c.grad, c.val(0)?));
        }
        let (grad, a) = (g.upcast(c.grad)?, g.upcast(c.val(0)?)?);
        let scaled = g.mul(a, std::f64::consts::FRAC_1_SQRT_2)?;
        let e = g.op1(Op::Erf, scaled)?;
        let e1 = g.add(e, 1.0)?;
        let phi_cdf = g.mul(e1, 0.5)?;
        let s = g.mul(a, a)?;
        let h = g.mul(s, -0.5)?;
        let x = g.op1(Op::Exp, h)?;
        let pdf = g.mul(x, INV_SQRT_2PI)?;
        let ap = g.mul(a, pdf)?;
        let d = g.add(phi_cdf, ap)?;
        one(g.mul(grad, d))
    }
    /// g ((1 + t)/2 + a/2 (1 - t^2) u'), where t = tanh(u)
    gelu_tanh(g, c) {
        if !c.recorded {
            return one(g.op2(Op::GeluTanhBackward, c.grad, c.val(0)?));
        }
        const K: f64 = 0.797_884_560_802_865_4;
        let (grad, a) = (g.upcast(c.grad)?, g.upcast(c.val(0)?)?);
        let s = g.mul(a, a)?;
        let inner = g.mul(s, 0.044715)?;
        let inner1 = g.add(inner, 1.0)?;
        let ka = g.mul(a, K)?;
        let u = g.mul(ka, inner1)?;
        let t = g.op1(Op::Tanh, u)?;
        let t1 = g.add(t, 1.0)?;
        let first = g.mul(t1, 0.5)?;
        let tt = g.mul(t, t)?;
        let sech = g.sub(1.0, tt)?;
        let du = g.mul(s, 3.0 * 0.044715 * K)?;
        let du1 = g.add(du, K)?;
        let p = g.mul(sech, du1)?;
        let q = g.mul(p, a)?;
        let second = g.mul(q, 0.5)?;
        let d = g.add(first, second)?;
        one(g.mul(grad, d))
    }
    /// g / sqrt(1 - a^2)
    asin(g, c) { one(over_root(g, c, -1.0, 1.0)) }
    /// -g / sqrt(1 - a^2)
    acos(g, c) { let d = over_root(g, c, -1.0, 1.0)?; one(g.op1(Op::Neg, d)) }
    /// g / (1 + a^2)
    atan(g, c) {
        let (grad, a) = (g.upcast(c.grad)?, g.upcast(c.val(0)?)?);
        let s = g.mul(a, a)?;
        let d = g.add(s, 1.0)?;
        one(g.div(grad, d))
    }
    /// g cosh(a)
    sinh(g, c) { let d = g.op1(Op::Cosh, c.val(0)?)?; one(g.mul(c.grad, d)) }
    /// g sinh(a)
    cosh(g, c) { let d = g.op1(Op::Sinh, c.val(0)?)?; one(g.mul(c.grad, d)) }
    /// g / sqrt(a^2 + 1)
    asinh(g, c) { one(over_root(g, c, 1.0, 1.0)) }
    /// g / sqrt(a^2 - 1)
    acosh(g, c) { one(over_root(g, c, 1.0, -1.0)) }
    /// g / (1 - a^2)
    atanh(g, c) {
        let (grad, a) = (g.upcast(c.grad)?, g.upcast(c.val(0)?)?);
        let s = g.mul(a, a)?;
        let d = g.sub(1.0, s)?;
        one(g.div(grad, d))
    }
    /// g / (a ln 2)
    log2(g, c) { let d = g.mul(c.val(0)?, std::f64::consts::LN_2)?; one(g.div(c.grad, d)) }
    /// g / (a ln 10)
    log10(g, c) { let d = g.mul(c.val(0)?, std::f64::consts::LN_10)?; one(g.div(c.grad, d)) }
    /// g out ln 2
    exp2(g, c) { let d = g.mul(c.out()?, std::f64::consts::LN_2)?; one(g.mul(c.grad, d)) }
    /// -g 2/sqrt(pi) exp(-a^2)
    erfc(g, c) {
        let slopes = erf(g, c)?;
        one(slopes[0].map_or(Err(not_saved()), |d| g.op1(Op::Neg, d)))
    }
    /// g sqrt(pi)/2 exp(out^2)
    erfinv(g, c) { one(times_exp_square(g, c, 1.0, 1.0 / TWO_OVER_SQRT_PI)) }
    /// g digamma(a)
    lgamma(g, c) { let d = g.op1(Op::Digamma, c.val(0)?)?; one(g.mul(c.grad, d)) }
    /// g zeta(2, a)
    digamma(g, c) { let d = g.op2(Op::Zeta, 2.0, c.val(0)?)?; one(g.mul(c.grad, d)) }
    /// to a, not implemented, as in PyTorch; to b, -g a zeta(a + 1, b)
    zeta(g, c) {
        if c.needs[0] {
            return Err(OpError::runtime("zeta() is not differentiable with respect to its first argument"));
        }
        c.each(g, |g, _| {
            let (a, b) = (c.arg(0)?, c.val(1)?);
            let next: Arg = match a {
                Arg::Val(a) => g.add(a, 1.0)?.into(),
                Arg::Scalar(s) => (s.to_f64() + 1.0).into(),
            };
            let z = g.op2(Op::Zeta, next, b)?;
            let d = g.mul(z, a)?;
            let d = g.mul(c.grad, d)?;
            g.op1(Op::Neg, d).map(Some)
        })
    }
    /// to b, g density(b), the density of the gamma distribution of shape a; to a, -g density(b) gamma_slope(a, b)
    gammainc(g, c) { gamma_density(g, c, c.grad) }
    /// minus the gradients of gammainc
    gammaincc(g, c) { let less = g.op1(Op::Neg, c.grad)?; gamma_density(g, c, less) }
    /// g i1(a)
    i0(g, c) { let d = g.op1(Op::I1, c.val(0)?)?; one(g.mul(c.grad, d)) }
    /// g (i1e(a) - sign(a) out)
    i0e(g, c) {
        let (a, out) = (c.val(0)?, c.out()?);
        let other = g.op1(Op::I1e, a)?;
        let sign = g.op1(Op::Sign, a)?;
        let turned = g.mul(sign, out)?;
        let d = g.sub(other, turned)?;
        one(g.mul(c.grad, d))
    }
    /// g (i0(a) - out / a), g / 2 at 0
    i1(g, c) {
        let a = c.val(0)?;
        let other = g.op1(Op::I0, a)?;
        let (zero, ratio) = by_a(g, c)?;
        let d = g.sub(other, ratio)?;
        let dtype = g.meta(d).dtype;
        let d = g.select(zero, 0.5, d, dtype)?;
        one(g.mul(c.grad, d))
    }
    /// g (i0e(a) - sign(a) out - out / a), g / 2 at 0
    i1e(g, c) {
        let (a, out) = (c.val(0)?, c.out()?);
        let other = g.op1(Op::I0e, a)?;
        let sign = g.op1(Op::Sign, a)?;
        let turned = g.mul(sign, out)?;
        let (zero, ratio) = by_a(g, c)?;
        let less = g.sub(other, turned)?;
        let d = g.sub(less, ratio)?;
        let dtype = g.meta(d).dtype;
        let d = g.select(zero, 0.5, d, dtype)?;
        one(g.mul(c.grad, d))
    }
    /// g sqrt(2 pi) exp(out^2 / 2)
    ndtri(g, c) { one(times_exp_square(g, c, 0.5, 1.0 / INV_SQRT_2PI)) }
    /// g sqrt(2 / pi) / erfcx(-a / sqrt(2))
    log_ndtr(g, c) {
        let (grad, a) = (g.upcast(c.grad)?, g.upcast(c.val(0)?)?);
        let t = g.mul(a, -std::f64::consts::FRAC_1_SQRT_2)?;
        let e = g.op1(Op::Erfcx, t)?;
        let scaled = g.mul(grad, 2.0 * INV_SQRT_2PI)?;
        one(g.div(scaled, e))
    }
    /// g (2 a out - 2/sqrt(pi))
    erfcx(g, c) {
        let p = g.mul(c.val(0)?, c.out()?)?;
        let p = g.mul(p, 2.0)?;
        let d = g.sub(p, TWO_OVER_SQRT_PI)?;
        one(g.mul(c.grad, d))
    }
    /// g b / (a^2 + b^2), -g a / (a^2 + b^2)
    atan2(g, c) {
        let (a, b) = (c.arg(0)?, c.arg(1)?);
        let mut squares = Vec::with_capacity(2);
        for x in [a, b] {
            squares.push(match x {
                Arg::Val(v) => g.mul(v, v)?.into(),
                Arg::Scalar(s) => Arg::from(s.to_f64() * s.to_f64()),
            });
        }
        let total = g.add(squares[0], squares[1])?;
        let share = g.div(c.grad, total)?;
        c.each(g, |g, i| {
            let d = g.mul(share, if i == 0 { b } else { a })?;
            if i == 0 { Ok(Some(d)) } else { g.op1(Op::Neg, d).map(Some) }
        })
    }
    /// g / (1 + exp(b - a)), g / (1 + exp(a - b))
    logaddexp(g, c) { logaddexp_in(g, c, Op::Exp) }
    /// g / (1 + 2^(b - a)), g / (1 + 2^(a - b))
    logaddexp2(g, c) { logaddexp_in(g, c, Op::Exp2) }
    /// g ln(b), 0 where a is 0 and b is not positive; g a / b
    xlogy(g, c) {
        c.each(g, |g, i| {
            let (a, b) = (c.arg(0)?, c.arg(1)?);
            if i == 1 {
                let d = g.div(a, b)?;
                return g.mul(c.grad, d).map(Some);
            }
            let zero = g.op2(Op::Eq, a, 0.0)?;
            let (log, flat) = match b {
                Arg::Val(b) => {
                    let low = g.op2(Op::Le, b, 0.0)?;
                    (g.op1(Op::Log, b)?.into(), g.op2(Op::LogicalAnd, zero, low)?)
                }
                Arg::Scalar(s) if s.to_f64() <= 0.0 => (Arg::from(s.to_f64().ln()), zero),
                Arg::Scalar(s) => return g.mul(c.grad, s.to_f64().ln()).map(Some),
            };
            let d = g.mul(c.grad, log)?;
            let dtype = g.meta(d).dtype;
            g.select(flat, 0.0, d, dtype).map(Some)
        })
    }
    /// g where the sign stays, -g where it flips, 0 where a is 0; 0
    copysign(g, c) {
        c.each(g, |g, i| {
            if i == 1 {
                return g.zeros(g.meta(c.grad)).map(Some);
            }
            let (a, b) = (c.val(0)?, c.arg(1)?);
            let sign = g.op1(Op::Sign, a)?;
            let slope = g.op2(Op::Copysign, sign, b)?;
            let turned = g.mul(slope, sign)?;
            g.mul(c.grad, turned).map(Some)
        })
    }
    /// g; 0
    nextafter(g, c) {
        c.each(g, |g, i| if i == 0 { Ok(Some(c.grad)) } else { g.zeros(g.meta(c.grad)).map(Some) })
    }
    /// g, -g trunc(a / b)
    fmod(g, c) {
        c.each(g, |g, i| {
            if i == 0 {
                return Ok(Some(c.grad));
            }
            let ratio = g.div(c.arg(0)?, c.arg(1)?)?;
            let whole = g.op1(Op::Trunc, ratio)?;
            let p = g.mul(c.grad, whole)?;
            g.op1(Op::Neg, p).map(Some)
        })
    }
    /// g to the smaller number, to the first of equal ones
    fmin(g, c) { extreme_number(g, c, Op::Le) }
    /// g to the larger number, to the first of equal ones
    fmax(g, c) { extreme_number(g, c, Op::Ge) }
    /// g, g
    add(g, c) { c.each(g, |_, _| Ok(Some(c.grad))) }
    /// g, -g
    sub(g, c) { c.each(g, |g, i| if i == 0 { Ok(Some(c.grad)) } else { g.op1(Op::Neg, c.grad).map(Some) }) }
    /// g b, g a
    mul(g, c) { c.each(g, |g, i| g.mul(c.grad, c.arg(1 - i)?).map(Some)) }
    /// g / b, -g ((a / b) / b)
    div(g, c) {
        c.each(g, |g, i| {
            if i == 0 {
                return g.div(c.grad, c.arg(1)?).map(Some);
            }
            // Divided twice: the square of a small divisor would underflow to 0.
            let b = c.val(1)?;
            let ratio = g.div(c.arg(0)?, b)?;
            let slope = g.div(ratio, b)?;
            let p = g.mul(c.grad, slope)?;
            g.op1(Op::Neg, p).map(Some)
        })
    }
    /// g, -g floor(a / b)
    remainder(g, c) {
        c.each(g, |g, i| {
            if i == 0 {
                return Ok(Some(c.grad));
            }
            let floor = g.op2(Op::FloorDivide, c.arg(0)?, c.arg(1)?)?;
            let p = g.mul(c.grad, floor)?;
            g.op1(Op::Neg, p).map(Some)
        })
    }
    /// g b a^(b-1), 0 where b is 0; g out ln(a), 0 where a is 0 and b is not negative
    pow(g, c) {
        c.each(g, |g, i| {
            let dtype = g.meta(c.grad).dtype;
            if i == 1 {
                let a = c.arg(0)?;
                let ln = match a {
                    Arg::Val(a) => g.op1(Op::Log, a)?.into(),
                    Arg::Scalar(s) => Arg::from(s.to_f64().ln()),
                };
                let out = c.out()?;
                let slope = g.mul(out, ln)?;
                let d = g.mul(c.grad, slope)?;
                // 0^b is constant in b >= 0, though ln(0) is infinite.
                let b = c.val(1)?;
                let rising = g.op2(Op::Ge, b, 0.0)?;
                let flat = match a {
                    Arg::Val(a) => {
                        let at_zero = g.op2(Op::Eq, a, 0.0)?;
                        g.op2(Op::LogicalAnd, at_zero, rising)?
                    }
                    Arg::Scalar(s) if s.to_f64() == 0.0 => rising,
                    Arg::Scalar(_) => return Ok(Some(d)),
                };
                return g.select(flat, 0.0, d, dtype).map(Some);
            }
            let a = c.val(0)?;
            match c.arg(1)? {
                Arg::Scalar(s) if s.to_f64() == 0.0 => g.zeros(g.meta(c.grad)).map(Some),
                Arg::Scalar(s) if s.to_f64() == 2.0 => {
                    let twice = g.mul(a, 2.0)?;
                    g.mul(c.grad, twice).map(Some)
                }
                Arg::Scalar(s) => {
                    let p = g.op2(Op::Pow, a, s.to_f64() - 1.0)?;
                    let d = g.mul(p, s.to_f64())?;
                    g.mul(c.grad, d).map(Some)
                }
                Arg::Val(b) => {
                    let less = g.sub(b, 1.0)?;
                    let p = g.op2(Op::Pow, a, less)?;
                    let d = g.mul(p, b)?;
                    let full = g.mul(c.grad, d)?;
                    let flat = g.op2(Op::Eq, b, 0.0)?;
                    g.select(flat, 0.0, full, dtype).map(Some)
                }
            }
        })
    }
    /// g to the smaller element; g/2 to each of two equal ones, g to both if either is NaN
    minimum(g, c) { extreme(g, c, Op::Gt) }
    /// g to the larger element; g/2 to each of two equal ones, g to both if either is NaN
    maximum(g, c) { extreme(g, c, Op::Lt) }
    /// g, g c, g b
    addcmul(g, c) {
        c.each(g, |g, i| if i == 0 { Ok(Some(c.grad)) } else { g.mul(c.grad, c.arg(3 - i)?).map(Some) })
    }
    /// g (1 - w), g w, g (b - a)
    lerp(g, c) {
        c.each(g, |g, i| {
            let factor = match (i, c.arg(2)?) {
                (0, Arg::Scalar(weight)) => Arg::from(1.0 - weight.to_f64()),
                (0, weight) => g.op2(Op::Sub, 1.0, weight)?.into(),
                (1, weight) => weight,
                _ => g.op2(Op::Sub, c.arg(1)?, c.arg(0)?)?.into(),
            };
            g.mul(c.grad, factor).map(Some)
        })
    }
    /// g to a within the bounds, to the lower bound where a is below it, to the upper where a is above it or the bounds
    /// cross
    clamp(g, c) {
        c.each(g, |g, i| {
            let (a, low, high) = (c.arg(0)?, c.arg(1)?, c.arg(2)?);
            let (first, second, join) = match i {
                0 => (g.op2(Op::Ge, a, low)?, g.op2(Op::Le, a, high)?, Op::LogicalAnd),
                1 => (g.op2(Op::Lt, a, low)?, g.op2(Op::Lt, low, high)?, Op::LogicalAnd),
                _ => (g.op2(Op::Gt, a, high)?, g.op2(Op::Lt, high, low)?, Op::LogicalOr),
            };
            let test = g.op2(join, first, second)?;
            g.mask(test, c.grad).map(Some)
        })
    }
    /// g to the second operand where the condition is true, to the third elsewhere
    where_(g, c) {
        c.each(g, |g, i| {
            let dtype = g.meta(c.grad).dtype;
            match i {
                0 => Ok(None),
                1 => g.mask(c.val(0)?, c.grad).map(Some),
                _ => g.select(c.val(0)?, 0.0, c.grad, dtype).map(Some),
            }
        })
    }
    /// g in the operand's dtype
    cast(g, c) {
        // A user's cast to the same dtype is an instruction of its own; so is its gradient.
        let dtype = c.meta(g, 0).dtype;
        one(if dtype == g.meta(c.grad).dtype { g.emit(Op::Cast, &[c.grad.into()], Attrs::DType(dtype)) } else { Ok(c.grad) })
    }
    /// g repeated along the reduced axes
    sum(g, c) { one(spread(g, c, c.grad)) }
    /// g / n repeated along the reduced axes
    mean(g, c) {
        let count = c.meta(g, 0).shape.numel() / g.meta(c.grad).shape.numel().max(1);
        let share = g.div(c.grad, count as f64)?;
        one(spread(g, c, share))
    }
    /// g a / |a|; 0 where |a| is 0 and not differentiable
    norm(g, c) {
        let out = c.out()?;
        let zero = g.op2(Op::Eq, out, 0.0)?;
        let dtype = g.meta(out).dtype;
        let length = g.select(zero, f64::INFINITY, out, dtype)?;
        let share = g.div(c.grad, length)?;
        let share = spread(g, c, share)?;
        one(g.mul(share, c.val(0)?))
    }
    /// g times the product of the other elements, exact for any number of zeros
    prod(g, c) {
        let a = c.val(0)?;
        let meta = g.meta(a);
        let zero = g.op2(Op::Eq, a, 0.0)?;
        let nonzero = g.select(zero, 1.0, a, meta.dtype)?;
        let Attrs::Axes { mask, .. } = *c.attrs else { return Err(not_saved()) };
        let keep = Attrs::Axes { mask, keepdim: true };
        let product = g.emit(Op::Prod, &[nonzero.into()], keep.clone())?;
        let zeros = g.emit(Op::Cast, &[zero.into()], Attrs::DType(meta.dtype))?;
        let count = g.emit(Op::Sum, &[zeros.into()], keep)?;
        // `others` is the number of zeros among the other elements: with any, the product is 0.
        let others = g.sub(count, zeros)?;
        let clear = g.op2(Op::Eq, others, 0.0)?;
        let rest = g.div(product, nonzero)?;
        let slope = g.mask(clear, rest)?;
        let grad = spread(g, c, c.grad)?;
        one(g.mul(grad, slope))
    }
    /// g divided equally among the elements equal to the extremum
    amax(g, c) {
        let a = c.val(0)?;
        let Attrs::Axes { mask, .. } = *c.attrs else { return Err(not_saved()) };
        let out = spread(g, c, c.out()?)?;
        let equal = g.op2(Op::Eq, a, out)?;
        let dtype = g.meta(a).dtype;
        let ones = g.emit(Op::Cast, &[equal.into()], Attrs::DType(dtype))?;
        let count = g.emit(Op::Sum, &[ones.into()], Attrs::Axes { mask, keepdim: true })?;
        let share = g.div(ones, count)?;
        let grad = spread(g, c, c.grad)?;
        one(g.mul(grad, share))
    }
    /// g in the operand's shape
    reshape(g, c) { let shape = c.meta(g, 0).shape; one(g.reshaped(c.grad, shape)) }
    /// g with the inverse permutation
    permute(g, c) {
        let Attrs::Permutation(p) = c.attrs else { return Err(not_saved()) };
        let inverse = inverse_permutation(p, g.meta(c.grad).shape.rank());
        one(g.emit(Op::Permute, &[c.grad.into()], Attrs::Permutation(inverse)))
    }
    /// g, which `to_operand` sums over the repeated axes
    expand(_g, c) { one(Ok(c.grad)) }
    /// zeros with g written to the slice
    slice(g, c) {
        let zeros = g.zeros(c.meta(g, 0))?;
        one(g.emit(Op::SliceScatter, &[zeros.into(), c.grad.into()], c.attrs.clone()))
    }
    /// g with the slice set to 0; the slice of g
    slice_scatter(g, c) {
        c.each(g, |g, i| {
            if i == 1 {
                return g.emit(Op::Slice, &[c.grad.into()], c.attrs.clone()).map(Some);
            }
            let zeros = g.zeros(c.meta(g, 1))?;
            g.emit(Op::SliceScatter, &[c.grad.into(), zeros.into()], c.attrs.clone()).map(Some)
        })
    }
    /// each operand's slice of g
    cat(g, c) {
        let Attrs::Axis(axis) = *c.attrs else { return Err(not_saved()) };
        let mut start = 0i64;
        c.inputs.iter().enumerate().map(|(i, _)| {
            let sizes = c.meta(g, i).shape;
            let mut spec = SliceSpec { start: [0; RANK_MAX], step: [1; RANK_MAX], sizes };
            spec.start[axis as usize] = start;
            start += sizes.dims()[axis as usize] as i64;
            if !c.needs[i] {
                return Ok(None);
            }
            g.emit(Op::Slice, &[c.grad.into()], Attrs::Slice(Box::new(spec))).map(Some)
        }).collect()
    }
    /// g b^T, a^T g; for an operand that is itself transposed, (b g^T)^T, (g^T a)^T
    matmul(g, c) {
        c.each(g, |g, i| {
            let (mut grad, mut other) = (c.grad, c.val(1 - i)?);
            let (rank, b) = (g.meta(other).shape.rank(), c.meta(g, 1).shape);
            if i == 1 && b.rank() == 2 && rank > 2 {
                // One matrix for the whole batch: a single product sums over the batch.
                grad = g.as_rows(grad)?;
                other = g.as_rows(other)?;
            }
            let (left, right, turn) = match (i, c.transposed[i]) {
                (0, false) => (grad, g.swap_last(other)?, false),
                (0, true) => (other, g.swap_last(grad)?, true),
                (_, false) => (g.swap_last(other)?, grad, false),
                (_, true) => (g.swap_last(grad)?, other, true),
            };
            let product = g.op2(Op::Matmul, left, right)?;
            if turn { g.swap_last(product).map(Some) } else { Ok(Some(product)) }
        })
    }
    /// g scattered to the indices by addition
    gather(g, c) {
        let zeros = g.zeros(c.meta(g, 0))?;
        let grad = g.emit(Op::ScatterAdd, &[zeros.into(), c.arg(1)?, c.grad.into()], c.attrs.clone())?;
        Ok(vec![Some(grad), None])
    }
    /// to the input, the transposed convolution of g; to the weight, the products of g and the input's windows, summed;
    /// to the bias, g summed over all axes but the channels
    convolution(g, c) { c.each(g, |g, i| match i {
        0 => c.window(g, Op::ConvolutionInput, &[c.grad.into(), c.arg(1)?]),
        1 => c.window(g, Op::ConvolutionWeight, &[c.grad.into(), c.arg(0)?]),
        _ => {
            let mask = !2 & ((1u16 << g.meta(c.grad).shape.rank()) - 1) as u8;
            g.emit(Op::Sum, &[c.grad.into()], Attrs::Axes { mask, keepdim: false }).map(Some)
        }
    }) }
    /// g has the input's shape: the convolution of g, and the weight's gradient with g as the input
    convolution_input(g, c) { c.each(g, |g, i| match i {
        0 => c.window(g, Op::Convolution, &[c.grad.into(), c.arg(1)?]),
        _ => c.window(g, Op::ConvolutionWeight, &[c.arg(0)?, c.grad.into()]),
    }) }
    /// g has the weight's shape: the input's convolution with g, and the transposed convolution with g
    convolution_weight(g, c) { c.each(g, |g, i| match i {
        0 => c.window(g, Op::Convolution, &[c.arg(1)?, c.grad.into()]),
        _ => c.window(g, Op::ConvolutionInput, &[c.arg(0)?, c.grad.into()]),
    }) }
    /// g scattered to the maxima
    max_pool(g, c) { Ok(vec![c.window(g, Op::MaxPoolInput, &[c.grad.into(), c.arg(0)?])?]) }
    /// g gathered at the maxima; 0 to the input, which only chooses the maxima
    max_pool_input(g, c) { c.each(g, |g, i| {
        if i == 1 {
            let meta = c.meta(g, 1);
            return g.zeros(meta).map(Some);
        }
        let Some(indices) = c.window(g, Op::MaxPoolIndices, &[c.arg(1)?])? else { return Ok(None) };
        let shape = g.meta(indices).shape;
        let (grad, indices) = (g.as_planes(c.grad)?, g.as_planes(indices)?);
        let taken = g.emit(Op::Gather, &[grad.into(), indices.into()], Attrs::Axis(2))?;
        g.reshaped(taken, shape).map(Some)
    }) }
    /// g added to all elements of each window
    sum_pool(g, c) { Ok(vec![c.window(g, Op::SumPoolInput, &[c.grad.into()])?]) }
    /// g summed over each window
    sum_pool_input(g, c) { Ok(vec![c.window(g, Op::SumPool, &[c.grad.into()])?]) }
    /// g; g gathered at the indices
    scatter_add(g, c) {
        c.each(g, |g, i| match i {
            0 => Ok(Some(c.grad)),
            1 => Ok(None),
            _ => gathered(g, c, c.grad).map(Some),
        })
    }
    /// g with 0 at the indices; g gathered at the indices
    scatter(g, c) {
        c.each(g, |g, i| match i {
            0 => {
                let index = c.val(1)?;
                let zeros = g.zeros(Meta::new(g.meta(index).shape, g.meta(c.grad).dtype))?;
                g.emit(Op::Scatter, &[c.grad.into(), index.into(), zeros.into()], c.attrs.clone()).map(Some)
            }
            1 => Ok(None),
            _ => gathered(g, c, c.grad).map(Some),
        })
    }
    /// g times the product of the other factors, exact for any number of zeros
    scatter_prod(g, c) {
        let (base, index, source) = (c.val(0)?, c.val(1)?, scattered_slice(g, c.val(2)?, c)?);
        let dtype = g.meta(base).dtype;
        let mut parts = Vec::with_capacity(2);
        for v in [base, source] {
            let zero = g.op2(Op::Eq, v, 0.0)?;
            let nonzero = g.select(zero, 1.0, v, dtype)?;
            let zeros = g.emit(Op::Cast, &[zero.into()], Attrs::DType(dtype))?;
            parts.push((nonzero, zeros));
        }
        let join = |g: &mut dyn Graph, op, a: Val, b: Val| {
            g.emit(op, &[a.into(), index.into(), b.into()], c.attrs.clone())
        };
        let product = join(g, Op::ScatterProd, parts[0].0, parts[1].0)?;
        let count = join(g, Op::ScatterAdd, parts[0].1, parts[1].1)?;
        c.each(g, |g, i| {
            if i == 1 {
                return Ok(None);
            }
            let (nonzero, zeros) = parts[i / 2];
            let mut at = [product, count, c.grad];
            if i == 2 {
                for v in &mut at {
                    *v = g.emit(Op::Gather, &[(*v).into(), index.into()], c.attrs.clone())?;
                }
            }
            let [product, count, grad] = at;
            let others = g.sub(count, zeros)?;
            let clear = g.op2(Op::Eq, others, 0.0)?;
            let rest = g.div(product, nonzero)?;
            let slope = g.mask(clear, rest)?;
            let grad = g.mul(grad, slope)?;
            if i == 2 { pad_to_source(g, grad, c).map(Some) } else { Ok(Some(grad)) }
        })
    }
    /// g divided equally among the elements equal to the extremum
    scatter_extreme(g, c) {
        let (base, index, source, out) = (c.val(0)?, c.val(1)?, scattered_slice(g, c.val(2)?, c)?, c.out()?);
        let dtype = g.meta(base).dtype;
        let take = |g: &mut dyn Graph, v: Val| g.emit(Op::Gather, &[v.into(), index.into()], c.attrs.clone());
        let chosen = take(g, out)?;
        let mut hits = Vec::with_capacity(2);
        for (v, best) in [(base, out), (source, chosen)] {
            let equal = g.op2(Op::Eq, v, best)?;
            hits.push(g.emit(Op::Cast, &[equal.into()], Attrs::DType(dtype))?);
        }
        let count = g.emit(Op::ScatterAdd, &[hits[0].into(), index.into(), hits[1].into()], c.attrs.clone())?;
        let share = g.div(c.grad, count)?;
        c.each(g, |g, i| match i {
            0 => g.mul(share, hits[0]).map(Some),
            1 => Ok(None),
            _ => {
                let share = take(g, share)?;
                let grad = g.mul(share, hits[1])?;
                pad_to_source(g, grad, c).map(Some)
            }
        })
    }
    /// the reverse cumulative sum of g
    cumsum(g, c) {
        let Attrs::Axis(axis) = *c.attrs else { return Err(not_saved()) };
        one(g.scan_back(Op::Cumsum, c.grad, axis))
    }
    /// before the first zero of a, the reverse cumulative sum of g out, divided by a; at that zero, where this would be
    /// 0 / 0, the reverse cumulative sum of g times the product of a with 1 in place of the zero; after it, 0
    cumprod(g, c) {
        let Attrs::Axis(axis) = *c.attrs else { return Err(not_saved()) };
        let (a, out) = (c.val(0)?, c.out()?);
        let dtype = g.meta(a).dtype;
        let zero = g.op2(Op::Eq, a, 0.0)?;
        let wide = g.emit(Op::Cast, &[zero.into()], Attrs::DType(DType::I64))?;
        let zeros = g.emit(Op::Cumsum, &[wide.into()], Attrs::Axis(axis))?;
        let before = g.op2(Op::Eq, zeros, 0i64)?;
        let one_zero = g.op2(Op::Eq, zeros, 1i64)?;
        let first = g.op2(Op::LogicalAnd, zero, one_zero)?;
        let weighted = g.mul(c.grad, out)?;
        let sums = g.scan_back(Op::Cumsum, weighted, axis)?;
        let divisor = g.select(zero, 1.0, a, dtype)?;
        let plain = g.div(sums, divisor)?;
        let filled = g.select(first, 1.0, a, dtype)?;
        let product = g.emit(Op::Cumprod, &[filled.into()], Attrs::Axis(axis))?;
        let weighted = g.mul(c.grad, product)?;
        let at_zero = g.scan_back(Op::Cumsum, weighted, axis)?;
        let later = g.mask(first, at_zero)?;
        one(g.select(before, plain, later, dtype))
    }
    /// exp(a) times the reverse cumulative sum of g exp(-out), in logarithms, separately for positive and negative g
    logcumsumexp(g, c) {
        let Attrs::Axis(axis) = *c.attrs else { return Err(not_saved()) };
        let (a, out) = (c.val(0)?, c.out()?);
        let dtype = g.meta(a).dtype;
        let negated = g.op1(Op::Neg, c.grad)?;
        let mut halves = Vec::with_capacity(2);
        for side in [c.grad, negated] {
            let positive = g.op2(Op::Gt, side, 0.0)?;
            let safe = g.select(positive, side, 1.0, dtype)?;
            let log = g.op1(Op::Log, safe)?;
            let log = g.sub(log, out)?;
            let log = g.select(positive, log, f64::NEG_INFINITY, dtype)?;
            let sums = g.scan_back(Op::Logcumsumexp, log, axis)?;
            let shifted = g.add(sums, a)?;
            halves.push(g.op1(Op::Exp, shifted)?);
        }
        one(g.sub(halves[0], halves[1]))
    }
}

/// `v`, of the result's shape, gathered at the indices of a scatter and padded with zeros to the source's shape:
/// elements of the source beyond the index's shape were not scattered.
fn gathered(g: &mut dyn Graph, c: &GradCtx<'_>, v: Val) -> Result<Val> {
    let taken = g.emit(Op::Gather, &[v.into(), c.arg(1)?], c.attrs.clone())?;
    pad_to_source(g, taken, c)
}

/// The part of a scatter's source that was scattered: a slice of the index's shape.
fn scattered_slice(g: &mut dyn Graph, source: Val, c: &GradCtx<'_>) -> Result<Val> {
    let sizes = c.meta(g, 1).shape;
    if g.meta(source).shape == sizes {
        return Ok(source);
    }
    let spec = SliceSpec { start: [0; RANK_MAX], step: [1; RANK_MAX], sizes };
    g.emit(Op::Slice, &[source.into()], Attrs::Slice(Box::new(spec)))
}

/// The inverse of [`scattered_slice`]: zeros where the source was not scattered.
fn pad_to_source(g: &mut dyn Graph, part: Val, c: &GradCtx<'_>) -> Result<Val> {
    let (source, sizes) = (c.meta(g, 2), g.meta(part).shape);
    if source.shape == sizes {
        return Ok(part);
    }
    let zeros = g.zeros(source)?;
    let spec = SliceSpec { start: [0; RANK_MAX], step: [1; RANK_MAX], sizes };
    g.emit(Op::SliceScatter, &[zeros.into(), part.into()], Attrs::Slice(Box::new(spec)))
}

/// g / sqrt(square a^2 + constant)
fn over_root(g: &mut dyn Graph, c: &GradCtx<'_>, square: f64, constant: f64) -> Result<Val> {
    let (grad, a) = (g.upcast(c.grad)?, g.upcast(c.val(0)?)?);
    let s = g.mul(a, a)?;
    let s = if square == 1.0 { s } else { g.mul(s, square)? };
    let d = g.add(s, constant)?;
    let root = g.op1(Op::Sqrt, d)?;
    g.div(grad, root)
}

/// g factor exp(scale out^2)
fn times_exp_square(g: &mut dyn Graph, c: &GradCtx<'_>, scale: f64, factor: f64) -> Result<Val> {
    let (grad, out) = (g.upcast(c.grad)?, g.upcast(c.out()?)?);
    let s = g.mul(out, out)?;
    let s = g.mul(s, scale)?;
    let e = g.op1(Op::Exp, s)?;
    let d = g.mul(e, factor)?;
    g.mul(grad, d)
}

/// Whether a is 0, and out / a elsewhere.
fn by_a(g: &mut dyn Graph, c: &GradCtx<'_>) -> Result<(Val, Val)> {
    let a = c.val(0)?;
    let dtype = g.meta(a).dtype;
    let zero = g.op2(Op::Eq, a, 0.0)?;
    let divisor = g.select(zero, 1.0, a, dtype)?;
    let ratio = g.div(c.out()?, divisor)?;
    Ok((zero, ratio))
}

fn logaddexp_in(g: &mut dyn Graph, c: &GradCtx<'_>, exp: Op) -> Result<Vec<Option<Val>>> {
    c.each(g, |g, i| {
        let apart = g.sub(c.arg(1 - i)?, c.arg(i)?)?;
        let e = g.op1(exp, apart)?;
        let d = g.add(e, 1.0)?;
        g.div(c.grad, d).map(Some)
    })
}

/// The gradients of an incomplete gamma function P(a, x): to x, the density of the gamma distribution; to a, minus the
/// density times gamma_slope(a, x).
fn gamma_density(g: &mut dyn Graph, c: &GradCtx<'_>, grad: Val) -> Result<Vec<Option<Val>>> {
    if c.recorded && c.needs[0] {
        return Err(OpError::runtime("gammainc(): its first argument has a gradient, but not one of that gradient"));
    }
    let (a, b) = (c.arg(0)?, c.arg(1)?);
    let (less_one, log_gamma): (Arg, Arg) = match a {
        Arg::Val(a) => (g.add(a, -1.0)?.into(), g.op1(Op::Lgamma, a)?.into()),
        Arg::Scalar(s) => ((s.to_f64() - 1.0).into(), special::lgamma(s.to_f64()).into()),
    };
    let log = match b {
        Arg::Val(_) => g.op2(Op::Xlogy, less_one, b)?,
        Arg::Scalar(s) => g.op2(Op::Mul, less_one, s.to_f64().ln())?,
    };
    let log = g.op2(Op::Sub, log, b)?;
    let log = g.op2(Op::Sub, log, log_gamma)?;
    let density = g.op1(Op::Exp, log)?;
    let density = g.mul(grad, density)?;
    c.each(g, |g, i| {
        if i == 1 {
            return Ok(Some(density));
        }
        let slope = g.op2(Op::GammaSlope, a, b)?;
        let slope = g.mul(density, slope)?;
        g.op1(Op::Neg, slope).map(Some)
    })
}

/// g to the first operand where the comparison `wins` holds or the second is NaN, else to the second.
fn extreme_number(g: &mut dyn Graph, c: &GradCtx<'_>, wins: Op) -> Result<Vec<Option<Val>>> {
    let (a, b) = (c.arg(0)?, c.arg(1)?);
    let won = g.op2(wins, a, b)?;
    let first = match b {
        Arg::Val(b) => {
            let alone = g.op1(Op::Isnan, b)?;
            g.op2(Op::LogicalOr, won, alone)?
        }
        Arg::Scalar(_) => won,
    };
    let dtype = g.meta(c.grad).dtype;
    c.each(g, |g, i| match i {
        0 => g.mask(first, c.grad).map(Some),
        _ => g.select(first, 0.0, c.grad, dtype).map(Some),
    })
}

fn extreme(g: &mut dyn Graph, c: &GradCtx<'_>, loses: Op) -> Result<Vec<Option<Val>>> {
    c.each(g, |g, i| {
        let (a, b) = (c.arg(i)?, c.arg(1 - i)?);
        let dtype = g.meta(c.grad).dtype;
        let tied = g.op2(Op::Eq, a, b)?;
        let half = g.mul(c.grad, 0.5)?;
        let shared = g.select(tied, half, c.grad, dtype)?;
        let lost = g.op2(loses, a, b)?;
        g.select(lost, 0.0, shared, dtype).map(Some)
    })
}

/// Repeats `v`, which has the reduction's result shape, along the reduced axes.
fn spread(g: &mut dyn Graph, c: &GradCtx<'_>, v: Val) -> Result<Val> {
    let Attrs::Axes { mask, .. } = *c.attrs else { return Err(not_saved()) };
    let shape = c.meta(g, 0).shape;
    let mut kept = shape;
    for axis in 0..shape.rank() {
        if mask >> axis & 1 == 1 {
            kept = kept.with_dim(axis, 1);
        }
    }
    let v = g.reshaped(v, kept)?;
    g.expanded(v, shape)
}
