//! Activation functions, and softmax with PyTorch's default axis.

use crate::common::{along_axis, check_implemented, check_no_bools, converted};
use crate::declaration::functions;
use crate::pointwise;
use gt_ops::build::numbers::{self, checked};
use gt_ops::error::{OpError, Result};
use gt_ops::expr::{Builder, Expr};
use gt_ops::forms::{method_only, module};
use gt_ops::infer::check_accepts;
use gt_ops::{Arg, DType, Op, Scalar};

// A standard normal input gives an output of mean 0 and variance 1 (Klambauer et al. 2017).
const SELU_ALPHA: f64 = 1.6732632423543772;
const SELU_SCALE: f64 = 1.0507009873554805;

/// `x` where it is positive, else `alpha * (exp(x / stretch) - 1)`.
fn exponential_unit<'g>(x: Expr<'g>, alpha: f64, stretch: f64) -> Expr<'g> {
    let negative = x.le(0.0);
    // Positive elements stay out of the exponential: it would overflow, and so would its gradient. NaN has the slope of
    // positive elements, as in PyTorch.
    let exponent = negative.where_(x, 0.0);
    let scaled = if stretch == 1.0 { exponent } else { exponent * (1.0 / stretch) };
    negative.where_(scaled.expm1() * alpha, x)
}

/// Elements between bounds. The gradient at a bound is 0, as in PyTorch; that of `clamp` is 1.
fn bounded<'g>(x: Expr<'g>, low: Scalar, high: Scalar) -> Expr<'g> {
    if !x.requires_grad() {
        return x.limit(Some(low.into()), Some(high.into()));
    }
    x.ge(high).where_(high, x.le(low).where_(low, x))
}

/// The sigmoid's piecewise linear approximation.
fn piecewise_sigmoid(x: Expr<'_>) -> Expr<'_> {
    bounded(x + 3i64, Scalar::Float(0.0), Scalar::Float(6.0)) / 6i64
}

/// A factor of an activation, which computes on floats: at least in float32.
fn slope_for(name: &str, input: Expr<'_>, factor: f64) -> Result<f64> {
    let dtype = input.dtype()?;
    check_implemented(name, input, DType::is_float)?;
    checked(Scalar::Float(factor), if dtype.is_half() { DType::F32 } else { dtype }).map(Scalar::to_f64)
}

/// PyTorch's default for a softmax whose axis is not given.
fn implicit_dim(g: &Builder<'_>, name: &str, rank: usize) -> i64 {
    g.warn(format!(
        "Implicit dimension choice for {name} has been deprecated. Change the call to include dim=X as an argument."
    ));
    if matches!(rank, 0 | 1 | 3) { 0 } else { 1 }
}

/// The operand of a softmax in the dtype asked for, and the axis.
fn softmax_of<'g>(
    g: &'g Builder<'g>,
    name: &str,
    input: Expr<'g>,
    dim: Option<i64>,
    dtype: Option<DType>,
) -> Result<(Expr<'g>, i64)> {
    let dim = match dim {
        Some(dim) => dim,
        None => implicit_dim(g, name, input.rank()?),
    };
    Ok((converted(input, dtype), dim))
}

functions! {
    /// Rectified linear unit: `max(x, 0)`, element by element.
    ///
    /// Args:
    ///     input: Any tensor.
    ///     inplace: Whether the result overwrites the input.
    ///
    /// Example:
    ///     >>> gt.nn.functional.relu(gt.tensor([-1.0, 2.0]))
    ///     tensor([0., 2.])
    [module("nn.functional").in_place_function()]
    fn relu(g, input: Expr<'g>, inplace: bool = false) -> Expr<'g> {
        input.relu()
    }

    /// Logistic sigmoid: `1 / (1 + exp(-x))`, element by element.
    [module("nn.functional")]
    fn sigmoid(g, input: Expr<'g>) -> Expr<'g> {
        input.sigmoid()
    }

    /// Hyperbolic tangent, element by element.
    [module("nn.functional")]
    fn tanh(g, input: Expr<'g>) -> Expr<'g> {
        input.tanh()
    }

    /// Gaussian error linear unit: `x * Phi(x)`, where Phi is the standard normal CDF (Hendrycks and Gimpel 2016).
    ///
    /// Args:
    ///     input: Any tensor.
    ///     approximate: `"none"`, or `"tanh"` for `x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))`.
    ///
    /// Example:
    ///     >>> gt.nn.functional.gelu(gt.tensor([-1.0, 0.0, 1.0]))
    ///     tensor([-0.1587,  0.0000,  0.8413])
    [module("nn.functional").out()]
    fn gelu(g, input: Expr<'g>, approximate: &'g str = "none") -> Result<Expr<'g>> {
        pointwise::gelu(g, input, approximate)
    }

    /// Softmax along an axis: `exp(x_i) / sum_j exp(x_j)`, probabilities that sum to 1.
    ///
    /// Args:
    ///     input: Any tensor.
    ///     dim: The axis.
    ///     _stacklevel: Ignored.
    ///     dtype: The dtype to convert the input to first.
    ///
    /// Example:
    ///     >>> gt.nn.functional.softmax(gt.tensor([0.0, 0.0]), dim=0)
    ///     tensor([0.5000, 0.5000])
    [module("nn.functional")]
    fn softmax(g, input: Expr<'g>, dim: Option<i64> = None, _stacklevel: i64 = 3, dtype: Option<DType> = None)
        -> Result<Expr<'g>> {
        let (x, dim) = softmax_of(g, "softmax", input, dim, dtype)?;
        Ok(x.softmax(dim))
    }

    /// Softmax of the negated input along an axis: `exp(-x_i) / sum_j exp(-x_j)`.
    [module("nn.functional")]
    fn softmin(g, input: Expr<'g>, dim: Option<i64> = None, _stacklevel: i64 = 3, dtype: Option<DType> = None)
        -> Result<Expr<'g>> {
        let (x, dim) = softmax_of(g, "softmin", -input, dim, dtype)?;
        Ok(x.softmax(dim))
    }

    /// Logarithm of the softmax along an axis, `x_i - log sum_j exp(x_j)`, computed without overflow.
    ///
    /// Args:
    ///     input: Any tensor.
    ///     dim: The axis.
    ///     _stacklevel: Ignored.
    ///     dtype: The dtype to convert the input to first.
    ///
    /// Example:
    ///     >>> gt.nn.functional.log_softmax(gt.tensor([0.0, 0.0]), dim=0)
    ///     tensor([-0.6931, -0.6931])
    [module("nn.functional")]
    fn log_softmax(g, input: Expr<'g>, dim: Option<i64> = None, _stacklevel: i64 = 3, dtype: Option<DType> = None)
        -> Result<Expr<'g>> {
        let (x, dim) = softmax_of(g, "log_softmax", input, dim, dtype)?;
        Ok(x.log_softmax(dim))
    }

    /// Sigmoid linear unit, also called swish: `x * sigmoid(x)`, element by element.
    ///
    /// Example:
    ///     >>> gt.nn.functional.silu(gt.tensor([0.0, 1.0]))
    ///     tensor([0.0000, 0.7311])
    [module("nn.functional")]
    fn silu(g, input: Expr<'g>, inplace: bool = false) -> Result<Expr<'g>> {
        check_implemented("silu_cpu", input, DType::is_inexact)?;
        Ok(if input.dtype()?.is_complex() { input * input.sigmoid() } else { input.silu() })
    }

    /// `x * tanh(softplus(x))`, element by element (Misra 2019).
    ///
    /// Example:
    ///     >>> gt.nn.functional.mish(gt.tensor([-1.0, 0.0, 1.0]))
    ///     tensor([-0.3034,  0.0000,  0.8651])
    [module("nn.functional").wide()]
    fn mish(g, input: Expr<'g>, inplace: bool = false) -> Result<Expr<'g>> {
        check_implemented("mish_cpu", input, DType::is_float)?;
        Ok(input * softplus(g, input, 1.0, 20.0)?.tanh())
    }

    /// Leaky rectified linear unit: `max(x, 0) + negative_slope * min(x, 0)`, element by element.
    ///
    /// Example:
    ///     >>> gt.nn.functional.leaky_relu(gt.tensor([-1.0, 2.0]), 0.1)
    ///     tensor([-0.1000,  2.0000])
    [module("nn.functional").in_place_function()]
    fn leaky_relu(g, input: Expr<'g>, negative_slope: f64 = 0.01, inplace: bool = false) -> Result<Expr<'g>> {
        let slope = slope_for("leaky_relu", input, negative_slope)?;
        if (f64::MIN_POSITIVE..=1.0).contains(&slope) && !input.requires_grad() {
            return Ok(input.maximum(input * slope));
        }
        Ok(input.gt(0.0).where_(input, input * slope))
    }

    /// Leaky rectified linear unit with the slope `weight`: `max(x, 0) + weight * min(x, 0)`.
    ///
    /// Args:
    ///     input: Any tensor.
    ///     weight: One slope, or one for each channel (axis 1).
    ///
    /// Example:
    ///     >>> gt.nn.functional.prelu(gt.tensor([-1.0, 2.0]), gt.tensor(0.25))
    ///     tensor([-0.2500,  2.0000])
    [module("nn.functional")]
    fn prelu(g, input: Expr<'g>, weight: Expr<'g>) -> Result<Expr<'g>> {
        check_implemented("prelu_cpu", input, DType::is_float)?;
        let (sizes, slopes) = (input.sizes()?, weight.numel()?);
        if weight.rank()? > 1 {
            return Err(OpError::runtime(format!(
                "prelu: Expected `weight` to be a scalar or 1D tensor, but got: ndim = {}",
                weight.rank()?
            )));
        }
        let mut shape = Vec::new();
        if slopes != 1 {
            let Some(channels) = sizes.get(1).copied().or((sizes.len() == 1).then_some(1)) else {
                return Err(OpError::runtime("Not allow zero-dim input tensor."));
            };
            if slopes as i64 != channels {
                return Err(OpError::runtime(format!(
                    "Mismatch of parameter numbers and input channel size. Found parameter numbers = {slopes} and \
                     channel size = {channels}."
                )));
            }
            shape = vec![1; sizes.len() - 1];
            shape[0] = -1;
        }
        Ok(input.gt(0.0).where_(input, input * weight.reshape(&shape)))
    }

    /// `gt.nn.functional.prelu` of this tensor.
    [method_only().named("prelu")]
    fn prelu_method(g, input: Expr<'g>, weight: Expr<'g>) -> Result<Expr<'g>> {
        prelu(g, input, weight)
    }

    /// Leaky rectified linear unit with a random negative slope (Xu et al. 2015).
    ///
    /// In training, the slope of each element is uniform between `lower` and `upper`; otherwise it is their mean.
    [module("nn.functional").in_place_function().wide()]
    fn rrelu(g, input: Expr<'g>, lower: f64 = 1.0 / 8.0, upper: f64 = 1.0 / 3.0, training: bool = false,
        inplace: bool = false) -> Result<Expr<'g>> {
        if lower > upper {
            return Err(OpError::runtime("Lower bound should be less than or equal to the upper bound"));
        }
        if !training {
            return leaky_relu(g, input, (lower + upper) / 2.0, false);
        }
        let slope = g.rand_like(input) * (upper - lower) + lower;
        Ok(input.ge(0.0).where_(input, input * slope))
    }

    /// Exponential linear unit: `x` if `x > 0`, else `alpha * (exp(x) - 1)` (Clevert et al. 2016).
    ///
    /// Example:
    ///     >>> gt.nn.functional.elu(gt.tensor([-1.0, 2.0]))
    ///     tensor([-0.6321,  2.0000])
    [module("nn.functional").in_place_function().wide()]
    fn elu(g, input: Expr<'g>, alpha: f64 = 1.0, inplace: bool = false) -> Result<Expr<'g>> {
        Ok(exponential_unit(input, slope_for("elu", input, alpha)?, 1.0))
    }

    /// Continuously differentiable ELU: `x` if `x > 0`, else `alpha * (exp(x / alpha) - 1)` (Barron 2017).
    ///
    /// Example:
    ///     >>> gt.nn.functional.celu(gt.tensor([-1.0, 0.0, 1.0]))
    ///     tensor([-0.6321,  0.0000,  1.0000])
    [module("nn.functional").in_place_function().wide()]
    fn celu(g, input: Expr<'g>, alpha: f64 = 1.0, inplace: bool = false) -> Result<Expr<'g>> {
        if alpha == 0.0 {
            return Err(OpError::runtime("ZeroDivisionError: alpha cannot be 0 for CELU"));
        }
        check_implemented("elu_cpu", input, DType::is_float)?;
        Ok(exponential_unit(input, alpha, alpha))
    }

    /// Scaled exponential linear unit (Klambauer et al. 2017): `scale * elu(x, alpha)`, alpha = 1.6733, scale = 1.0507.
    [module("nn.functional").in_place_function().wide()]
    fn selu(g, input: Expr<'g>, inplace: bool = false) -> Result<Expr<'g>> {
        check_implemented("elu_cpu", input, DType::is_float)?;
        Ok(exponential_unit(input, SELU_ALPHA, 1.0) * SELU_SCALE)
    }

    /// Smooth rectifier: `log(1 + exp(beta * x)) / beta`; where `beta * x > threshold` it is `x`.
    ///
    /// Example:
    ///     >>> gt.nn.functional.softplus(gt.tensor([0.0]))
    ///     tensor([0.6931])
    [module("nn.functional").out().wide()]
    fn softplus(g, input: Expr<'g>, beta: f64 = 1.0, threshold: f64 = 20.0) -> Result<Expr<'g>> {
        check_implemented("softplus_cpu", input, DType::is_float)?;
        let scaled = if beta == 1.0 { input } else { input * beta };
        let large = scaled.gt(threshold);
        let smooth = large.where_(0.0, scaled).exp().log1p();
        Ok(large.where_(input, if beta == 1.0 { smooth } else { smooth / beta }))
    }

    /// `log(sigmoid(x)) = -log(1 + exp(-x))`, element by element, computed without overflow.
    ///
    /// Example:
    ///     >>> gt.nn.functional.logsigmoid(gt.tensor([0.0, -100.0]))
    ///     tensor([  -0.6931, -100.0000])
    [module("nn.functional").out().wide()]
    fn logsigmoid(g, input: Expr<'g>) -> Result<Expr<'g>> {
        check_implemented("log_sigmoid_cpu", input, DType::is_float)?;
        // -log(sigmoid(x)) = max(-x, 0) + log(1 + exp(-|x|)). At 0, `where` gives -|x| the gradient of -x.
        Ok(-((-input).relu() + input.lt(0.0).where_(input, -input).exp().log1p()))
    }

    /// Clamps each element to `[min_val, max_val]`.
    ///
    /// Example:
    ///     >>> gt.nn.functional.hardtanh(gt.tensor([-2.0, 0.5, 2.0]))
    ///     tensor([-1.0000,  0.5000,  1.0000])
    [module("nn.functional").in_place_function()]
    fn hardtanh(g, input: Expr<'g>, min_val: Scalar = Scalar::Float(-1.0), max_val: Scalar = Scalar::Float(1.0),
        inplace: bool = false) -> Result<Expr<'g>> {
        if min_val.to_f64() > max_val.to_f64() {
            return Err(OpError::value("min_val cannot be greater than max_val"));
        }
        let dtype = input.dtype()?;
        if dtype == DType::Bool {
            return Err(OpError::not_implemented("Bool inputs not supported for hardtanh"));
        }
        let widest = if dtype.is_float() { dtype } else { DType::I64 };
        let bound = |number: Scalar, lower: bool| -> Result<Arg> {
            numbers::bound(checked(number, widest)?, dtype, lower).map(Arg::Scalar)
        };
        let limited = input.limit(Some(bound(min_val, true)?), Some(bound(max_val, false)?));
        // NaN has the slope of the elements between the bounds, as in PyTorch.
        Ok(if dtype.is_float() && input.requires_grad() { input.isnan().where_(input, limited) } else { limited })
    }

    /// `min(max(x, 0), 6)`, element by element.
    ///
    /// Example:
    ///     >>> gt.nn.functional.relu6(gt.tensor([-1.0, 3.0, 8.0]))
    ///     tensor([0., 3., 6.])
    [module("nn.functional")]
    fn relu6(g, input: Expr<'g>, inplace: bool = false) -> Result<Expr<'g>> {
        hardtanh(g, input, Scalar::Float(0.0), Scalar::Float(6.0), false)
    }

    /// Piecewise linear sigmoid: `min(max(x / 6 + 1/2, 0), 1)`, element by element.
    ///
    /// Example:
    ///     >>> gt.nn.functional.hardsigmoid(gt.tensor([-4.0, 0.0, 1.5]))
    ///     tensor([0.0000, 0.5000, 0.7500])
    [module("nn.functional").wide()]
    fn hardsigmoid(g, input: Expr<'g>, inplace: bool = false) -> Result<Expr<'g>> {
        check_implemented("hardsigmoid_cpu", input, DType::is_float)?;
        if !input.requires_grad() {
            return Ok(piecewise_sigmoid(input));
        }
        // NaN has no slope, as in PyTorch.
        Ok(input.isnan().where_(input.detach(), piecewise_sigmoid(input)))
    }

    /// `x * hardsigmoid(x)`, element by element (Howard et al. 2019).
    ///
    /// Example:
    ///     >>> gt.nn.functional.hardswish(gt.tensor([1.0, 2.0, 4.0]))
    ///     tensor([0.6667, 1.6667, 4.0000])
    [module("nn.functional")]
    fn hardswish(g, input: Expr<'g>, inplace: bool = false) -> Result<Expr<'g>> {
        check_implemented("hardswish_cpu", input, DType::is_float)?;
        Ok(input.hardswish())
    }

    /// `x / (1 + |x|)`, element by element.
    ///
    /// Example:
    ///     >>> gt.nn.functional.softsign(gt.tensor([-1.0, 0.0, 3.0]))
    ///     tensor([-0.5000,  0.0000,  0.7500])
    [module("nn.functional").wide()]
    fn softsign(g, input: Expr<'g>) -> Expr<'g> {
        input / (input.abs() + 1i64)
    }

    /// `x - tanh(x)`, element by element.
    [module("nn.functional").wide()]
    fn tanhshrink(g, input: Expr<'g>) -> Result<Expr<'g>> {
        check_accepts(Op::Sub, input.dtype()?)?;
        Ok(input - input.tanh())
    }

    /// `x` if `|x| > lambd`, else 0, element by element.
    ///
    /// Example:
    ///     >>> gt.nn.functional.hardshrink(gt.tensor([-1.0, 0.2, 2.0]))
    ///     tensor([-1.,  0.,  2.])
    [module("nn.functional").out()]
    fn hardshrink(g, input: Expr<'g>, lambd: f64 = 0.5) -> Result<Expr<'g>> {
        check_implemented("hardshrink_cpu", input, DType::is_float)?;
        let small = input.ge(-lambd) & input.le(lambd);
        Ok(small.where_(0.0, input).to(input.dtype()?))
    }

    /// `gt.nn.functional.hardshrink` of this tensor.
    [method_only().named("hardshrink")]
    fn hardshrink_method(g, input: Expr<'g>, lambd: f64 = 0.5) -> Result<Expr<'g>> {
        hardshrink(g, input, lambd)
    }

    /// Soft thresholding: `sign(x) * max(|x| - lambd, 0)`, element by element.
    ///
    /// Example:
    ///     >>> gt.nn.functional.softshrink(gt.tensor([-1.0, 0.2, 2.0]))
    ///     tensor([-0.5000,  0.0000,  1.5000])
    [module("nn.functional").out()]
    fn softshrink(g, input: Expr<'g>, lambd: f64 = 0.5) -> Result<Expr<'g>> {
        if lambd < 0.0 {
            return Err(OpError::runtime(format!("lambda must be greater or equal to 0, but found to be {lambd}.")));
        }
        check_implemented("softshrink_cpu", input, DType::is_float)?;
        let small = input.ge(-lambd) & input.le(lambd);
        Ok(small.where_(0.0, input.gt(0.0).where_(input - lambd, input + lambd)).to(input.dtype()?))
    }

    /// `x` if `x > threshold`, else `value`, element by element.
    ///
    /// Example:
    ///     >>> gt.nn.functional.threshold(gt.tensor([0.5, 2.0]), threshold=1.0, value=-1.0)
    ///     tensor([-1.,  2.])
    [module("nn.functional").in_place_function()]
    fn threshold(g, input: Expr<'g>, threshold_: Scalar, value: Scalar, inplace: bool = false) -> Result<Expr<'g>> {
        let dtype = input.dtype()?;
        check_no_bools("threshold_cpu", input)?;
        let (threshold, value) = (checked(threshold_, dtype)?, checked(value, dtype)?);
        // Compared in float32: in half precision the threshold would be rounded first.
        Ok(input.upcast().le(threshold).where_(value, input))
    }

    /// Gated linear unit (Dauphin et al. 2017): `a * sigmoid(b)`, where `a` and `b` are the halves of `input` along
    /// `dim`.
    ///
    /// Example:
    ///     >>> gt.nn.functional.glu(gt.tensor([2.0, 0.0]))
    ///     tensor([1.])
    [module("nn.functional").wide()]
    fn glu(g, input: Expr<'g>, dim: i64 = -1) -> Result<Expr<'g>> {
        if input.rank()? == 0 {
            return Err(OpError::runtime("glu does not support 0-dimensional tensors"));
        }
        check_implemented("glu_cpu", input, DType::is_float)?;
        let size = input.size(dim)?;
        if size % 2 != 0 {
            return Err(OpError::runtime(format!("Halving dimension must be even, but dimension {dim} is size {size}")));
        }
        let half = |start| input.narrow(dim, start, size / 2);
        Ok(half(0) * half(size / 2).sigmoid())
    }

    /// Sample of the Gumbel-softmax distribution with unnormalized log probabilities `logits` (Jang et al. 2017).
    ///
    /// Args:
    ///     logits: Unnormalized log probabilities along `dim`.
    ///     tau: The temperature: the smaller, the closer a sample is to one-hot.
    ///     hard: Whether the samples are one-hot vectors; the gradient is that of the soft sample either way
    ///         (straight-through estimator).
    ///     eps: Ignored, as in PyTorch.
    ///     dim: The axis of the classes.
    ///
    /// Returns:
    ///     A tensor of the shape of `logits` that sums to 1 along `dim`.
    ///
    /// Example:
    ///     >>> sample = gt.nn.functional.gumbel_softmax(gt.zeros(3, 4), hard=True)
    ///     >>> sample.sum(dim=1)
    ///     tensor([1., 1., 1.])
    [module("nn.functional").wide()]
    fn gumbel_softmax(g, logits: Expr<'g>, tau: f64 = 1.0, hard: bool = false, eps: f64 = 1e-10, dim: i64 = -1)
        -> Result<Expr<'g>> {
        let least = if matches!(logits.dtype()?, DType::F32 | DType::F64) { 1e-20 } else { 1e-7 };
        let noise = -(-g.rand_like(logits).clamp_min(least).log()).clamp_min(1e-20).log();
        let shares = ((logits + noise) / tau).softmax(dim);
        if !hard {
            return Ok(shares);
        }
        let shape = shares.shape()?;
        let along = along_axis(shape.rank().max(1), shape.axis(dim)?);
        let classes = g.arange(shares.size(dim)?, DType::I64).reshape(&along);
        let chosen = classes.eq(shares.argmax(Some(dim), true)).reshape(&shares.sizes()?).to(shares.dtype()?);
        Ok(chosen - shares.detach() + shares)
    }
}
