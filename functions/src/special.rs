//! Elementwise functions composed of others: angles, floating-point formats and special functions.

use crate::common::{check_floating, in_dtype, in_float32};
use crate::declaration::{TensorOrNumber, functions};
use gt_ops::error::Result;
use gt_ops::expr::{Builder, Expr, GradientRule};
use gt_ops::forms::{function, method, method_only, module};
use gt_ops::{DType, OpError, Shape};
use std::f64::consts::{FRAC_1_SQRT_2, PI};

/// `x * 2 ** exponent` in float64, in three steps, since the power alone may overflow. Exponents beyond 3000 overflow
/// or vanish for every number but 0.
fn scale_by_power<'g>(x: Expr<'g>, exponent: Expr<'g>) -> Expr<'g> {
    let exponent = exponent.clamp(-3000.0, 3000.0);
    let third = (exponent / 3.0).trunc();
    let power = third.exp2();
    x * power * power * (exponent - third - third).exp2()
}

/// The next representable number of float16 and bfloat16, by that of float32: neighbours are 2^13 and 2^16 numbers of
/// float32 apart, except those of float16 that are below its smallest normal number.
///
/// # Errors
/// The first error of the expressions.
pub(crate) fn next_half<'g>(g: &'g Builder<'g>, input: Expr<'g>, other: Expr<'g>) -> Result<Expr<'g>> {
    let dtype = input.dtype()?;
    let (x, towards) = (input.to(DType::F32), other.detach().to(DType::F32));
    let fixed = x.detach();
    let nearest = fixed.nextafter(towards) - fixed;
    let step = if dtype == DType::F16 {
        let size = (nearest.abs() * 2f64.powi(13)).maximum(2f64.powi(-24));
        nearest.eq(0.0).where_(0.0, size.copysign(nearest))
    } else {
        nearest * 2f64.powi(16)
    };
    // Beside infinity the difference is infinite, too.
    let leaves_infinity = fixed.isinf() & towards.ne(fixed) & !towards.isnan();
    let largest = g.number(dtype.largest_float());
    let same = fixed.eq(towards).where_(x, x + step);
    Ok(leaves_infinity.where_(fixed.sign() * largest, same).to(dtype))
}

const RADIANS: f64 = PI / 180.0;

/// `input` times a constant, which a second backward pass needs no saved value for.
fn scaled<'g>(g: &'g Builder<'g>, name: &str, input: Expr<'g>, factor: f64, rule: GradientRule) -> Result<Expr<'g>> {
    let input = input.to_float();
    let [scaled] = g.with_gradient(name, &[input], [input.detach() * factor], rule)?;
    Ok(scaled)
}

functions! {
    /// Angles converted from degrees to radians.
    ///
    /// Example:
    ///     >>> gt.deg2rad(gt.tensor([0.0, 90.0, 180.0]))
    ///     tensor([0.0000, 1.5708, 3.1416])
    [method().in_place_function().out()]
    fn deg2rad(g, input: Expr<'g>) -> Result<Expr<'g>> {
        scaled(g, "Deg2RadBackward0", input, RADIANS, |_, _, grads| Ok(vec![grads[0].map(|grad| grad * RADIANS)]))
    }

    /// Angles converted from radians to degrees.
    ///
    /// Example:
    ///     >>> gt.rad2deg(gt.tensor([0.0, 3.14159265]))
    ///     tensor([  0., 180.])
    [method().in_place_function().out()]
    fn rad2deg(g, input: Expr<'g>) -> Result<Expr<'g>> {
        scaled(g, "Rad2DegBackward0", input, 1.0 / RADIANS, |_, _, grads| {
            Ok(vec![grads[0].map(|grad| grad * (1.0 / RADIANS))])
        })
    }

    /// The fractional part of each element, with its sign: `input - trunc(input)`.
    ///
    /// Example:
    ///     >>> gt.frac(gt.tensor([1.25, -2.5]))
    ///     tensor([ 0.2500, -0.5000])
    [method().in_place_function().out()]
    fn frac(g, input: Expr<'g>) -> Result<Expr<'g>> {
        check_floating("frac", input)?;
        Ok(input - input.trunc())
    }

    /// Whether each element is positive infinity.
    ///
    /// Example:
    ///     >>> gt.isposinf(gt.tensor([1.0, float("inf"), -float("inf")]))
    ///     tensor([False,  True, False])
    [method().out()]
    fn isposinf(g, input: Expr<'g>) -> Result<Expr<'g>> {
        let meta = input.meta()?;
        Ok(if meta.dtype.is_float() { input.eq(f64::INFINITY) } else { g.full(&meta.shape, false, DType::Bool) })
    }

    /// Whether each element is negative infinity.
    ///
    /// Example:
    ///     >>> gt.isneginf(gt.tensor([1.0, float("inf"), -float("inf")]))
    ///     tensor([False, False,  True])
    [method().out()]
    fn isneginf(g, input: Expr<'g>) -> Result<Expr<'g>> {
        let meta = input.meta()?;
        Ok(if meta.dtype.is_float() { input.eq(f64::NEG_INFINITY) } else { g.full(&meta.shape, false, DType::Bool) })
    }

    /// The Heaviside step function: 0 for negative elements, 1 for positive ones, `values` at 0.
    ///
    /// Example:
    ///     >>> gt.heaviside(gt.tensor([-1.0, 0.0, 2.0]), gt.tensor(0.5))
    ///     tensor([0.0000, 0.5000, 1.0000])
    [method().in_place().out()]
    fn heaviside(g, input: Expr<'g>, values: Expr<'g>) -> Result<Expr<'g>> {
        let dtype = input.dtype()?;
        if dtype != values.dtype()? {
            return Err(OpError::runtime("heaviside is not yet implemented for tensors with different dtypes."));
        }
        let x = input.detach();
        Ok(x.eq(0i64).where_(values.detach(), x.gt(0i64).to(dtype)))
    }

    /// `input * 2 ** other`, elementwise.
    ///
    /// Example:
    ///     >>> gt.ldexp(gt.tensor([1.0, 3.0]), gt.tensor([2, 4]))
    ///     tensor([ 4., 48.])
    [method().in_place_function().out()]
    fn ldexp(g, input: Expr<'g>, other: Expr<'g>) -> Result<Expr<'g>> {
        let (own, others) = (input.dtype()?, other.dtype()?);
        if own.is_complex() {
            return Ok(input * other.to(DType::F64).exp2().to(own.to_real()));
        }
        let dtype = if own.is_float() && !others.is_float() { own } else { (input * other.to_float()).dtype()? };
        Ok(scale_by_power(input.to(DType::F64), other.to(DType::F64)).to(dtype))
    }

    /// The mantissa and exponent of each element: `input = mantissa * 2 ** exponent` with 1/2 <= abs(mantissa) < 1.
    ///
    /// Returns:
    ///     A pair `(mantissa, exponent)`; the exponent is of int32.
    ///
    /// Example:
    ///     >>> mantissa, exponent = gt.frexp(gt.tensor([8.0, 3.0]))
    ///     >>> mantissa, exponent
    ///     (tensor([0.5000, 0.7500]), tensor([4, 2], dtype=gt.int32))
    [method().results(&["mantissa", "exponent"])]
    fn frexp(g, input: Expr<'g>) -> Result<[Expr<'g>; 2]> {
        let dtype = input.dtype()?;
        if !dtype.is_float() {
            return Err(OpError::runtime("torch.frexp() only supports floating-point dtypes"));
        }
        let wide = input.detach().to(DType::F64);
        let ordinary = wide.isfinite() & wide.ne(0.0);
        let exponent = ordinary.where_(wide.abs().log2().floor() + 1.0, 0.0);
        // The logarithm may have been rounded to an integer: the exponent is corrected by the mantissa.
        let mantissa = scale_by_power(wide, -exponent).abs();
        let exponent =
            exponent + (ordinary & mantissa.ge(1.0)).to(DType::F64) - (ordinary & mantissa.lt(0.5)).to(DType::F64);
        Ok([scale_by_power(input.to(DType::F64), -exponent).to(dtype), exponent.to(DType::I32)])
    }

    /// A copy in which numbers replace NaN and infinities.
    ///
    /// Args:
    ///     input: A tensor.
    ///     nan: The number for NaN.
    ///     posinf: The number for positive infinity; the largest of the dtype if not given.
    ///     neginf: The number for negative infinity; the smallest of the dtype if not given.
    ///
    /// Example:
    ///     >>> gt.nan_to_num(gt.tensor([float("nan"), float("inf"), 1.0]), posinf=100.0)
    ///     tensor([  0., 100.,   1.])
    [method().in_place_function().out()]
    fn nan_to_num(g, input: Expr<'g>, nan: Option<f64> = Some(0.0), posinf: Option<f64> = None,
        neginf: Option<f64> = None) -> Result<Expr<'g>> {
        let dtype = input.dtype()?;
        if !dtype.is_float() {
            return Ok(input.copied());
        }
        let largest = dtype.largest_float();
        // Numbers beyond the dtype become infinite, and stay so.
        let number = |x: f64| if dtype == DType::F64 { x } else { f64::from(x as f32) };
        let x = input.detach();
        let infinite = |number: Option<f64>, sign: f64| number.unwrap_or(sign * largest);
        let limited = if posinf.is_none() && neginf.is_none() {
            x.limit(Some((-largest).into()), Some(largest.into()))
        } else {
            let x = x.eq(f64::INFINITY).where_(number(infinite(posinf, 1.0)), x);
            x.eq(f64::NEG_INFINITY).where_(number(infinite(neginf, -1.0)), x)
        };
        let result = x.isnan().where_(number(nan.unwrap_or(0.0)), limited);
        if !input.requires_grad() {
            return Ok(result);
        }
        // As in PyTorch, an infinite gradient of a replaced number is NaN.
        let [result] = g.with_gradient("NanToNumBackward0", &[input, x.isfinite()], [result], |_, values, grads| {
            Ok(vec![grads[0].map(|grad| grad * values[1]), None])
        })?;
        Ok(result)
    }

    /// The normalized sinc function: sin(pi * x) / (pi * x), and 1 at 0.
    ///
    /// Example:
    ///     >>> gt.sinc(gt.tensor([0.0, 0.5, 1.5]))
    ///     tensor([ 1.0000,  0.6366, -0.2122])
    [method().in_place_function().out().aliases(&["special.sinc"]).wide()]
    fn sinc(g, input: Expr<'g>) -> Expr<'g> {
        let angle = input.to_float() * PI;
        let zero = angle.eq(0.0);
        let filled = zero.where_(1.0, angle);
        zero.where_(1.0, filled.sin() / filled)
    }

    /// The inverse of the sigmoid: ln(x / (1 - x)).
    ///
    /// Args:
    ///     input: A tensor of probabilities.
    ///     eps: Elements are first limited to `eps <= x <= 1 - eps`, if given.
    ///
    /// Example:
    ///     >>> gt.logit(gt.tensor([0.1, 0.5, 0.9]))
    ///     tensor([-2.1972,  0.0000,  2.1972])
    [method().in_place_function().out().aliases(&["special.logit"]).wide()]
    fn logit(g, input: Expr<'g>, eps: Option<f64> = None) -> Result<Expr<'g>> {
        let input = input.to_float();
        let x = input.detach();
        // The lower bound wins where it is above the upper one.
        let x = eps.map_or(x, |eps| x.lt(eps).where_(eps, x.minimum(1.0 - eps)));
        let result = (x / (1.0 - x)).log();
        let Some(eps) = eps else {
            return g.with_gradient("logit", &[input], [result], |_, values, grads| {
                let x = values[0];
                let slope = |grad: Expr<'_>| (x.lt(0.0) | x.gt(1.0)).where_(f64::NAN, grad / (x * (1.0 - x)).abs());
                Ok(vec![grads[0].map(slope)])
            }).map(|[result]| result);
        };
        let bound = g.full(&Shape::SCALAR, eps, input.dtype()?);
        g.with_gradient("logit", &[input, bound], [result], |_, values, grads| {
            let (x, low) = (values[0], values[1]);
            let high = 1.0 - low;
            let slope = |grad: Expr<'_>| (x.lt(low) | x.gt(high)).where_(0.0, grad / (x * (1.0 - x)));
            Ok(vec![grads[0].map(slope), None])
        }).map(|[result]| result)
    }

    /// The polygamma function: the `n`-th derivative of `digamma`.
    ///
    /// Example:
    ///     >>> gt.polygamma(1, gt.tensor([1.0, 2.0]))
    ///     tensor([1.6449, 0.6449])
    [function().out().aliases(&["special.polygamma"]).wide()]
    fn polygamma(g, n: i64, input: Expr<'g>) -> Result<Expr<'g>> {
        if n < 0 {
            return Err(OpError::runtime("polygamma(n, x) does not support negative n."));
        }
        if n == 0 {
            return Ok(input.digamma());
        }
        let order = g.full(&Shape::SCALAR, (n + 1) as f64, input.dtype()?.to_float());
        let factorial: f64 = (1..=n).map(|k| k as f64).product();
        Ok(order.zeta(input) * if n % 2 == 0 { -factorial } else { factorial })
    }

    /// The polygamma function: the `n`-th derivative of `digamma`.
    [method_only().in_place().named("polygamma").wide()]
    fn polygamma_method(g, input: Expr<'g>, n: i64) -> Result<Expr<'g>> {
        polygamma(g, n, input)
    }

    /// The logarithm of the multivariate gamma function of dimension `p`.
    ///
    /// Example:
    ///     >>> gt.mvlgamma(gt.tensor([2.0, 3.0]), p=2)
    ///     tensor([0.4516, 1.5502])
    [method().in_place().out().aliases(&["special.multigammaln"]).wide()]
    fn mvlgamma(g, input: Expr<'g>, p: i64) -> Result<Expr<'g>> {
        if p < 1 {
            return Err(OpError::runtime("p has to be greater than or equal to 1"));
        }
        let x = input.to_float();
        let constant = p as f64 * (p - 1) as f64 / 4.0 * PI.ln();
        Ok((1..p).fold(x.lgamma() + constant, |total, j| total + (x - j as f64 / 2.0).lgamma()))
    }

    /// The entropy of each element: -x * ln(x), 0 at 0, and minus infinity for negative numbers.
    ///
    /// Example:
    ///     >>> gt.special.entr(gt.tensor([0.25, 0.5]))
    ///     tensor([0.3466, 0.3466])
    [module("special").out().wide()]
    fn entr(g, input: Expr<'g>) -> Expr<'g> {
        let x = input.to_float();
        let inside = x.gt(0.0);
        // A root has the value of the entropy at 0, and its infinite slope.
        let outside = x.lt(0.0).where_(f64::NEG_INFINITY, x.sqrt());
        (inside | x.isnan()).where_(-x * inside.where_(x, 1.0).log(), outside)
    }

    /// The distribution function of the standard normal distribution.
    ///
    /// Example:
    ///     >>> gt.special.ndtr(gt.tensor([-2.0, 0.0, 2.0]))
    ///     tensor([0.0228, 0.5000, 0.9772])
    [module("special").out().wide()]
    fn ndtr(g, input: Expr<'g>) -> Expr<'g> {
        (input.to_float() * -FRAC_1_SQRT_2).erfc() * 0.5
    }

    /// `input * ln(1 + other)`, and 0 where `input` is 0, unless `other` is NaN.
    ///
    /// Example:
    ///     >>> gt.special.xlog1py(gt.tensor([0.0, 2.0]), gt.tensor([-1.0, 1.0]))
    ///     tensor([0.0000, 1.3863])
    [module("special").out()]
    fn xlog1py(g, input: TensorOrNumber<'g>, other: TensorOrNumber<'g>) -> Result<Expr<'g>> {
        if input.as_number().is_some() && other.as_number().is_some() {
            return Err(OpError::type_("special_xlog1py(): one of the arguments must be a Tensor"));
        }
        let dtype = g.common_dtype(&[*input, *other])?.to_float();
        in_float32([*input, *other].map(|operand| in_dtype(operand, dtype)), |[x, y]| {
            let zero = x.eq(0.0) & y.isnan().logical_not();
            Ok(zero.where_(0.0, x * zero.where_(0.0, y.log1p())))
        })
    }

    /// The spherical Bessel function of the first kind of order 0: sin(x) / x, and 1 at 0. No gradient, as in PyTorch.
    ///
    /// Example:
    ///     >>> gt.special.spherical_bessel_j0(gt.tensor([0.0, 1.0]))
    ///     tensor([1.0000, 0.8415])
    [module("special").out().wide()]
    fn spherical_bessel_j0(g, input: Expr<'g>) -> Expr<'g> {
        let x = input.to_float().detach();
        x.isinf().where_(0.0, x.eq(0.0).where_(1.0, x.sin() / x))
    }
}
