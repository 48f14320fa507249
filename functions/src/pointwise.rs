//! Elementwise arithmetic beyond the rows of the op table, and comparisons with a tolerance.

use crate::common::{check_floating, check_one_tensor, in_float32, times};
use crate::declaration::{TensorOrNumber, functions};
use gt_ops::build::numbers::checked;
use gt_ops::error::Result;
use gt_ops::expr::{Builder, Expr};
use gt_ops::forms::{function, in_place_only, method};
use gt_ops::infer::check_accepts;
use gt_ops::{Arg, DType, Op, OpError, Scalar};

/// `input + sign * alpha * other`, in one instruction where the dtypes allow it.
fn scaled<'g>(g: &'g Builder<'g>, op: Op, input: Expr<'g>, other: Expr<'g>, alpha: Scalar) -> Result<Expr<'g>> {
    check_one_tensor(op.name(), input, other)?;
    let dtypes = [input.dtype()?, other.dtype()?];
    if op == Op::Sub && dtypes.contains(&DType::Bool) {
        // A difference takes no bools, though they would be promoted.
        check_accepts(op, DType::Bool)?;
    }
    if matches!(alpha, Scalar::Bool(_)) && dtypes != [DType::Bool; 2] {
        return Err(OpError::runtime("Boolean alpha only supported for Boolean results."));
    }
    let plain = |other: Expr<'g>| Ok(g.elementwise(op, &[input.into(), other.into()]));
    if alpha.to_f64() == 1.0 && !matches!(alpha, Scalar::Bool(_)) {
        return plain(other);
    }
    let dtype = g.common_dtype(&[input, other])?;
    let alpha = factor_in("alpha", alpha, dtype)?;
    if dtype == DType::Bool && op == Op::Add {
        return plain(other & Scalar::Bool(alpha.to_bool()));
    }
    if other.as_number().is_some() || matches!(alpha, Scalar::Bool(_)) || dtype == DType::Bool {
        return plain(times(other, alpha));
    }
    let factor = if op == Op::Add { alpha } else { negative(alpha) };
    Ok(g.elementwise(Op::Addcmul, &[input.into(), other.into(), factor.into()]))
}

/// A factor of tensors of a dtype, called `word` in an error.
///
/// # Errors
/// A number out of the dtype's range, a floating-point number for integers.
pub(crate) fn factor_in(word: &str, factor: Scalar, dtype: DType) -> Result<Scalar> {
    match factor {
        Scalar::Bool(_) => Ok(factor),
        Scalar::Float(_) if !dtype.is_float() => Err(OpError::runtime(format!(
            "For integral input tensors, argument {word} must not be a floating point number."
        ))),
        _ => checked(factor, dtype),
    }
}

fn negative(number: Scalar) -> Scalar {
    match number {
        Scalar::Float(f) => Scalar::Float(-f),
        Scalar::Complex(re, im) => Scalar::Complex(-re, -im),
        other => Scalar::Int(other.to_i64().wrapping_neg()),
    }
}

/// The quotient rounded towards negative infinity, whose gradients are zeros.
fn rounded_quotient<'g>(g: &'g Builder<'g>, input: Expr<'g>, other: Expr<'g>) -> Result<Expr<'g>> {
    let quotient = g.elementwise(Op::FloorDivide, &[input.detach().into(), other.detach().into()]);
    let learning: Vec<Expr<'g>> = [input, other].into_iter().filter(|operand| operand.requires_grad()).collect();
    if learning.is_empty() {
        return Ok(quotient);
    }
    let [quotient] = g.with_gradient("DivBackward0", &learning, [quotient], |g, values, _| {
        let zeros = |value: &Expr<'_>| value.meta().map(|meta| Some(g.zeros(meta)));
        values[..values.len() - 1].iter().map(zeros).collect()
    })?;
    Ok(quotient)
}

fn is_float(operand: Expr<'_>) -> Result<bool> {
    match operand.as_number() {
        Some(number) => Ok(matches!(number, Scalar::Float(_) | Scalar::Complex(..))),
        None => Ok(operand.dtype()?.is_inexact()),
    }
}

functions! {
    /// The sum `input + alpha * other`, elementwise.
    ///
    /// Args:
    ///     input: A tensor or a number.
    ///     other: A tensor or a number, which broadcasts.
    ///     alpha: The factor of `other`.
    ///
    /// Example:
    ///     >>> gt.add(gt.tensor([1.0, 2.0]), gt.tensor([3.0, 4.0]), alpha=10)
    ///     tensor([31., 42.])
    [method().in_place().out()]
    fn add(g, input: TensorOrNumber<'g>, other: TensorOrNumber<'g>; alpha: Scalar = Scalar::Int(1)) -> Result<Expr<'g>> {
        scaled(g, Op::Add, *input, *other, alpha)
    }

    /// The difference `input - alpha * other`, elementwise.
    ///
    /// Args:
    ///     input: A tensor or a number.
    ///     other: A tensor or a number, which broadcasts.
    ///     alpha: The factor of `other`.
    ///
    /// Example:
    ///     >>> gt.sub(gt.tensor([5.0, 6.0]), 1)
    ///     tensor([4., 5.])
    [method().in_place().out().aliases(&["subtract"])]
    fn sub(g, input: TensorOrNumber<'g>, other: TensorOrNumber<'g>; alpha: Scalar = Scalar::Int(1)) -> Result<Expr<'g>> {
        scaled(g, Op::Sub, *input, *other, alpha)
    }

    /// The quotient `input / other`, elementwise; integers divide to floats.
    ///
    /// Args:
    ///     input: A tensor or a number.
    ///     other: A tensor or a number, which broadcasts.
    ///     rounding_mode: `"trunc"` rounds the quotient towards zero, `"floor"` towards negative infinity; integers
    ///         then stay integers.
    ///
    /// Example:
    ///     >>> gt.div(gt.tensor([7, -7]), 2)
    ///     tensor([ 3.5000, -3.5000])
    ///     >>> gt.div(gt.tensor([7, -7]), 2, rounding_mode="floor")
    ///     tensor([ 3, -4])
    [method().in_place().out().aliases(&["divide", "true_divide"])]
    fn div(g, input: TensorOrNumber<'g>, other: TensorOrNumber<'g>; rounding_mode: Option<&'g str> = None)
        -> Result<Expr<'g>> {
        check_one_tensor("div", *input, *other)?;
        let of = |op: Op, input: Expr<'g>| g.elementwise(op, &[input.into(), other.into()]);
        match rounding_mode {
            None => Ok(of(Op::Div, *input)),
            // The quotient is constant between its steps; that of `floor_divide` has no derivative at all.
            Some("floor") => rounded_quotient(g, *input, *other),
            Some("trunc") if is_float(*input)? || is_float(*other)? => Ok(of(Op::Div, *input).trunc()),
            Some("trunc") => {
                // The division is exact once the remainder, which has the sign of the input, is subtracted.
                let remainder = of(Op::Fmod, *input);
                Ok(of(Op::FloorDivide, g.elementwise(Op::Sub, &[input.into(), remainder.into()])))
            }
            Some(other) => Err(OpError::runtime(format!(
                "div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '{other}'"
            ))),
        }
    }

    /// The Gaussian error linear unit of each element: x times the probability that a standard normal variable lies
    /// below x (Hendrycks and Gimpel 2016).
    ///
    /// Args:
    ///     input: A tensor.
    ///     approximate: `"none"`, or `"tanh"` for the approximation with tanh.
    ///
    /// Example:
    ///     >>> gt.gelu(gt.tensor([-1.0, 0.0, 1.0]))
    ///     tensor([-0.1587,  0.0000,  0.8413])
    [method().in_place()]
    fn gelu(g, input: Expr<'g>; approximate: &'g str = "none") -> Result<Expr<'g>> {
        match approximate {
            "none" => Ok(input.gelu()),
            "tanh" => Ok(input.gelu_tanh()),
            other => Err(OpError::runtime(format!(
                "approximate argument must be either none or tanh, but got '{other}'"
            ))),
        }
    }

    /// Each element rounded to the nearest integer, or to a number of decimal places; halves are rounded to even.
    ///
    /// Args:
    ///     input: A tensor.
    ///     decimals: The number of decimal places; negative ones round to powers of 10.
    ///
    /// Example:
    ///     >>> gt.round(gt.tensor([0.5, 1.5, -2.7]))
    ///     tensor([ 0.,  2., -3.])
    ///     >>> gt.round(gt.tensor([1.25, 2.5]), decimals=1)
    ///     tensor([1.2000, 2.5000])
    [method().in_place_function().out().aliases(&["special.round"])]
    fn round(g, input: Expr<'g>; decimals: i64 = 0) -> Result<Expr<'g>> {
        if decimals == 0 {
            return Ok(input.round());
        }
        let dtype = input.dtype()?;
        if !dtype.is_float() {
            return Err(OpError::not_implemented(format!(
                "\"round_cpu\" not implemented for gt.{dtype}: decimals are of floating-point tensors"
            )));
        }
        let scale = 10f64.powi(decimals.unsigned_abs().min(400) as i32);
        in_float32([input], |[x]| {
            Ok(if decimals > 0 { (x * scale).round() / scale } else { (x / scale).round() * scale })
        })
    }

    /// `input + value * tensor1 * tensor2`, elementwise.
    ///
    /// Args:
    ///     input: A tensor.
    ///     tensor1: The first factor.
    ///     tensor2: The second factor.
    ///     value: The factor of the product.
    ///
    /// Example:
    ///     >>> gt.addcmul(gt.ones(2), gt.tensor([1.0, 2.0]), gt.tensor([3.0, 4.0]), value=10)
    ///     tensor([31., 81.])
    [method().in_place().out()]
    fn addcmul(g, input: Expr<'g>, tensor1: TensorOrNumber<'g>, tensor2: TensorOrNumber<'g>;
        value: Scalar = Scalar::Int(1)) -> Result<Expr<'g>> {
        let product = |[input, one, two]: [Expr<'g>; 3]| {
            g.elementwise(Op::Addcmul, &[input.into(), one.into(), two.into()])
        };
        let operands = [input, *tensor1, *tensor2];
        if value.parts() == (1.0, 0.0) {
            return Ok(product(operands));
        }
        let dtype = g.common_dtype(&operands)?;
        let value = if dtype.is_half() { value } else { checked(value, dtype)? };
        let [input, one, two] = operands;
        let one = if one.as_number().is_some() || dtype.is_half() { one } else { one.to(dtype) };
        in_float32([input, one, two], |[input, one, two]| Ok(product([input, times(one, value), two])))
    }

    /// `input + value * tensor1 / tensor2`, elementwise.
    ///
    /// Args:
    ///     input: A tensor.
    ///     tensor1: The numerator.
    ///     tensor2: The denominator.
    ///     value: The factor of the quotient.
    ///
    /// Raises:
    ///     RuntimeError: Both `tensor1` and `tensor2` are integers.
    ///
    /// Example:
    ///     >>> gt.addcdiv(gt.ones(2), gt.tensor([1.0, 2.0]), gt.tensor([2.0, 8.0]), value=2)
    ///     tensor([2.0000, 1.5000])
    [method().in_place().out().wide()]
    fn addcdiv(g, input: Expr<'g>, tensor1: Expr<'g>, tensor2: Expr<'g>; value: Scalar = Scalar::Int(1))
        -> Result<Expr<'g>> {
        if !(tensor1.dtype()?.is_inexact() || tensor2.dtype()?.is_inexact()) {
            return Err(OpError::runtime(
                "Integer division with addcdiv is no longer supported: use input + value * tensor1 / tensor2, or \
                 (input + value * trunc(tensor1 / tensor2)).to(input.dtype)",
            ));
        }
        let numerator = if value.parts() == (1.0, 0.0) { tensor1 } else { tensor1 * value };
        Ok(input + numerator / tensor2)
    }

    /// Linear interpolation `input + weight * (end - input)`, elementwise.
    ///
    /// Args:
    ///     input: The tensor at weight 0.
    ///     end: The tensor at weight 1.
    ///     weight: A tensor or a number.
    ///
    /// Example:
    ///     >>> gt.lerp(gt.zeros(2), gt.tensor([10.0, 20.0]), 0.5)
    ///     tensor([ 5., 10.])
    [method().in_place().out()]
    fn lerp(g, input: Expr<'g>, end: TensorOrNumber<'g>, weight: TensorOrNumber<'g>) -> Result<Expr<'g>> {
        if !input.dtype()?.is_complex() {
            check_floating("lerp", input)?;
        }
        if end.as_number().is_none() {
            let (own, other) = (input.dtype()?, end.dtype()?);
            if own != other {
                return Err(OpError::runtime(format!("expected dtype {own} for `end` but got dtype {other}")));
            }
        }
        Ok(g.elementwise(Op::Lerp, &[input.into(), end.into(), weight.into()]))
    }

    /// The sign of each element: -1, 0 or 1; 0 for NaN.
    ///
    ///     output = -1 where input < 0, 0 where input is 0, 1 where input > 0
    ///
    /// Raises:
    ///     NotImplementedError: The tensor is complex.
    ///
    /// Example:
    ///     >>> gt.sign(gt.tensor([-3.0, 0.0, 2.0]))
    ///     tensor([-1.,  0.,  1.])
    [method().in_place().out()]
    fn sign(g, input: Expr<'g>) -> Result<Expr<'g>> {
        if input.dtype()?.is_complex() {
            return Err(OpError::not_implemented(
                "Unlike NumPy, gt.sign is not intended to support complex numbers. Please use gt.sgn instead.",
            ));
        }
        Ok(input.sign())
    }

    /// The sign of each element; of a complex number z, z / abs(z), and 0 of 0.
    ///
    /// Example:
    ///     >>> gt.sgn(gt.tensor([3 + 4j, 0j]))
    ///     tensor([0.6000+0.8000j, 0.0000+0.0000j])
    [method().in_place().out()]
    fn sgn(g, input: Expr<'g>) -> Expr<'g> {
        input.sign()
    }

    /// The next representable number after each element of `input` towards `other`.
    ///
    /// Example:
    ///     >>> gt.nextafter(gt.tensor([1.0]), gt.tensor([2.0])) > 1
    ///     tensor([True])
    [method().in_place().out()]
    fn nextafter(g, input: Expr<'g>, other: Expr<'g>) -> Result<Expr<'g>> {
        let dtype = g.common_dtype(&[input, other])?;
        if dtype.is_half() {
            return crate::special::next_half(g, input.to(dtype), other.to(dtype));
        }
        Ok(input.nextafter(other))
    }

    /// The square of each element; bools become int64.
    ///
    /// Example:
    ///     >>> gt.square(gt.tensor([-2.0, 3.0]))
    ///     tensor([4., 9.])
    [method().in_place_function().out()]
    fn square(g, input: Expr<'g>) -> Result<Expr<'g>> {
        Ok(if input.dtype()? == DType::Bool { input.to(DType::I64) } else { input.square() })
    }

    /// The hypotenuse sqrt(input ** 2 + other ** 2), elementwise and without overflow.
    ///
    /// Example:
    ///     >>> gt.hypot(gt.tensor([3.0, 1e30]), gt.tensor([4.0, 1e30]))
    ///     tensor([5.0000e+00, 1.4142e+30])
    [method().in_place().out()]
    fn hypot(g, input: Expr<'g>, other: Expr<'g>) -> Result<Expr<'g>> {
        let dtype = g.common_dtype(&[input, other])?;
        let sides = [input.to(dtype), other.to(dtype)];
        check_floating("hypot", sides[0])?;
        in_float32(sides, |[input, other]| {
            let result = input.detach().hypot(other.detach());
            // An operand that requires no gradient is not saved: it may be written.
            let learning: Vec<Expr<'g>> = [input, other].into_iter().filter(|side| side.requires_grad()).collect();
            if learning.is_empty() {
                return Ok(result);
            }
            let [result] = g.with_gradient("HypotBackward0", &learning, [result], |_, values, grads| {
                let (sides, result) = values.split_at(values.len() - 1);
                Ok(sides.iter().map(|side| grads[0].map(|grad| grad * (*side / result[0]))).collect())
            })?;
            Ok(result)
        })
    }

    /// `input ** exponent`, computed in float64.
    ///
    /// Example:
    ///     >>> gt.float_power(gt.tensor([2, 3]), 0.5)
    ///     tensor([1.4142, 1.7321], dtype=gt.float64)
    [method().out()]
    fn float_power(g, input: TensorOrNumber<'g>, exponent: TensorOrNumber<'g>) -> Result<Expr<'g>> {
        check_one_tensor("float_power", *input, *exponent)?;
        let is_complex = |operand: Expr<'g>| match operand.as_number() {
            Some(number) => Ok(number.category() > 2),
            None => operand.dtype().map(DType::is_complex),
        };
        let dtype = if is_complex(*input)? || is_complex(*exponent)? { DType::C128 } else { DType::F64 };
        let wide = |operand: Expr<'g>| if operand.as_number().is_none() { operand.to(dtype) } else { operand };
        Ok(g.elementwise(Op::Pow, &[wide(*input).into(), wide(*exponent).into()]))
    }

    /// `input ** exponent` in float64 or complex128, which is the tensor's dtype.
    ///
    /// Raises:
    ///     RuntimeError: The tensor is of another dtype.
    [in_place_only().named("float_power")]
    fn float_power_in_place(g, input: Expr<'g>, exponent: TensorOrNumber<'g>) -> Result<Expr<'g>> {
        let dtype = input.dtype()?;
        if !matches!(dtype, DType::F64 | DType::C128) {
            return Err(OpError::runtime(format!(
                "the base given to float_power_ has dtype {} but the operation's result requires dtype Double",
                dtype.scalar_type_name()
            )));
        }
        Ok(input.pow(exponent))
    }

    /// Subtraction with the operands exchanged: `other - alpha * input`.
    ///
    /// Example:
    ///     >>> gt.rsub(gt.tensor([1.0, 2.0]), 10)
    ///     tensor([9., 8.])
    [function()]
    fn rsub(g, input: Expr<'g>, other: TensorOrNumber<'g>; alpha: Scalar = Scalar::Int(1)) -> Result<Expr<'g>> {
        scaled(g, Op::Sub, *other, input, alpha)
    }

    /// Elements limited to an interval: min(max(input, min), max).
    ///
    /// Args:
    ///     input: A tensor.
    ///     min: The lower bound: a number or a tensor that broadcasts; none if not given.
    ///     max: The upper bound: a number or a tensor that broadcasts; none if not given.
    ///
    /// Returns:
    ///     A tensor of the broadcast shape. NaN stays NaN.
    ///
    /// Example:
    ///     >>> gt.clamp(gt.tensor([-2.0, 0.5, 3.0]), min=-1, max=1)
    ///     tensor([-1.0000,  0.5000,  1.0000])
    [method().in_place_function().out().aliases(&["clip"])]
    fn clamp(g, input: Expr<'g>, min: Option<TensorOrNumber<'g>> = None, max: Option<TensorOrNumber<'g>> = None)
        -> Expr<'g> {
        input.limit(min.map(Arg::from), max.map(Arg::from))
    }

    /// Elements limited from below: max(input, min).
    ///
    /// Example:
    ///     >>> gt.clamp_min(gt.tensor([-1.0, 2.0]), 0)
    ///     tensor([0., 2.])
    [method().in_place_function().out()]
    fn clamp_min(g, input: Expr<'g>, min: TensorOrNumber<'g>) -> Expr<'g> {
        input.limit(Some(min.into()), None)
    }

    /// Elements limited from above: min(input, max).
    ///
    /// Example:
    ///     >>> gt.clamp_max(gt.tensor([-1.0, 2.0]), 0)
    ///     tensor([-1.,  0.])
    [method().in_place_function().out()]
    fn clamp_max(g, input: Expr<'g>, max: TensorOrNumber<'g>) -> Expr<'g> {
        input.limit(None, Some(max.into()))
    }

    /// Whether each element is close to its counterpart: `abs(input - other) <= atol + rtol * abs(other)`.
    ///
    /// Args:
    ///     input: A tensor.
    ///     other: A tensor of the same dtype.
    ///     rtol: The relative tolerance.
    ///     atol: The absolute tolerance.
    ///     equal_nan: Whether NaN is close to NaN.
    ///
    /// Returns:
    ///     A tensor of bools. Equal infinities are close.
    ///
    /// Example:
    ///     >>> gt.isclose(gt.tensor([1.0, 2.0]), gt.tensor([1.0 + 1e-7, 2.1]))
    ///     tensor([ True, False])
    [method()]
    fn isclose(g, input: Expr<'g>, other: Expr<'g>, rtol: f64 = 1e-5, atol: f64 = 1e-8, equal_nan: bool = false)
        -> Result<Expr<'g>> {
        let (own, others) = (input.dtype()?, other.dtype()?);
        if own != others {
            return Err(OpError::runtime(format!("gt.{own} did not match gt.{others}")));
        }
        for (word, tolerance) in [("rtol", rtol), ("atol", atol)] {
            if tolerance < 0.0 {
                return Err(OpError::runtime(format!(
                    "{word} must be greater than or equal to zero, but got {tolerance:?}"
                )));
            }
        }
        let mut close = input.eq(other);
        if equal_nan {
            close = close | (input.isnan() & other.isnan());
        }
        if rtol == 0.0 && atol == 0.0 {
            return Ok(close);
        }
        // The difference of integers might overflow.
        let [own, others] = [input, other].map(Expr::to_float);
        let difference = (own - others).abs();
        Ok(close | (difference.isfinite() & difference.le(others.abs() * rtol + atol)))
    }

    /// Whether all elements of two tensors are close; see `isclose`. Waits for the result.
    ///
    /// Example:
    ///     >>> gt.allclose(gt.tensor([1.0, 2.0]), gt.tensor([1.0, 2.0]))
    ///     True
    [method()]
    fn allclose(g, input: Expr<'g>, other: Expr<'g>, rtol: f64 = 1e-5, atol: f64 = 1e-8, equal_nan: bool = false)
        -> Result<bool> {
        isclose(g, input, other, rtol, atol, equal_nan)?.all(&[], false).is_true()
    }

    /// Whether two tensors have the same shape and equal elements. Waits for the result.
    ///
    /// Example:
    ///     >>> gt.equal(gt.tensor([1, 2]), gt.tensor([1, 2]))
    ///     True
    [method()]
    fn equal(g, input: Expr<'g>, other: Expr<'g>) -> Result<bool> {
        Ok(input.shape()? == other.shape()? && input.eq(other).all(&[], false).is_true()?)
    }
}
