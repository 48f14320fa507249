//! The table of primitive ops. The row of an op has everything that GT knows about it.
//!
//! To add an elementwise op, add a row below: its name, its wire id (explicit, never reused), one sentence on what it
//! computes, the expression in Rust for floats and for integers, then its gradient, a NumPy reference and the
//! expressions in CUDA C++. The enum [`crate::Op`], the CPU and CUDA kernels, the Python method, the reference page and
//! the per-op tests follow from the row.
//!
//! The table is a list of tokens (an X macro), because two modules expand it: [`crate::op`] makes the enum of ops,
//! which the gradients use, and [`crate::row`] makes the rows, which name the gradients.
//!
//! Groups of elementwise rows differ in arity and dtypes: `real` rows compute on floats alone, `map` rows on floats and
//! integers, `int` rows on integers and bools, and `test` rows return bools.

/// Calls the macro `$callback` with `$args` and all rows.
macro_rules! op_table {
    ($callback:ident $($args:tt)*) => {
        $callback! { $($args)*
        real1 {
            Exp = 16, "exp", "Exponential, e to the power of each element.", |a| a.exp(),
                { grad: Some(grad::exp), saves: Saves::OUTPUT, cost_flops: 8, reference: "np.exp(a)", cuda: "exp(a)" };
            Log = 17, "log", "Natural logarithm, elementwise.", |a| a.ln(),
                { grad: Some(grad::log), saves: Saves::inputs(1), cost_flops: 8, domain: POSITIVE, reference: "np.log(a)", cuda: "log(a)" };
            Sqrt = 18, "sqrt", "Square root, elementwise.", |a| a.sqrt(),
                { grad: Some(grad::sqrt), saves: Saves::OUTPUT, cost_flops: 4, domain: POSITIVE, reference: "np.sqrt(a)", cuda: "sqrt(a)" };
            Rsqrt = 19, "rsqrt", "Reciprocal of the square root, elementwise.", |a| R::ONE / a.sqrt(),
                { grad: Some(grad::rsqrt), saves: Saves::OUTPUT, cost_flops: 8, domain: POSITIVE, reference: "1 / np.sqrt(a)", cuda: "R(1) / sqrt(a)" };
            Sin = 20, "sin", "Sine of each element in radians.", |a| a.sin(),
                { grad: Some(grad::sin), saves: Saves::inputs(1), cost_flops: 10, reference: "np.sin(a)", cuda: "sin(a)" };
            Cos = 21, "cos", "Cosine of each element in radians.", |a| a.cos(),
                { grad: Some(grad::cos), saves: Saves::inputs(1), cost_flops: 10, reference: "np.cos(a)", cuda: "cos(a)" };
            Tanh = 22, "tanh", "Hyperbolic tangent, elementwise.", |a| a.tanh(),
                { grad: Some(grad::tanh), saves: Saves::OUTPUT, cost_flops: 10, reference: "np.tanh(a)", cuda: "tanh(a)" };
            Sigmoid = 23, "sigmoid", "Logistic sigmoid, 1 / (1 + exp(-x)), elementwise.", |a| R::ONE / (R::ONE + (-a).exp()),
                { grad: Some(grad::sigmoid), saves: Saves::OUTPUT, cost_flops: 10, reference: "1 / (1 + np.exp(-a))", cuda: "R(1) / (R(1) + exp(-a))" };
            Erf = 24, "erf", "Error function, elementwise.", |a| a.erf(),
                { grad: Some(grad::erf), saves: Saves::inputs(1), cost_flops: 12, reference: "sp.erf(a)", cuda: "erf(a)" };
            Gelu = 25, "gelu", "Gaussian error linear unit, x * Phi(x), where Phi is the CDF of the standard normal distribution (Hendrycks and Gimpel 2016).",
                |a| a * a.normal_cdf(),
                { grad: Some(grad::gelu), saves: Saves::inputs(1), cost_flops: 14, reference: "a * 0.5 * (1 + sp.erf(a / np.sqrt(2)))",
                  cuda: "a * normal_cdf(a)" };
            GeluTanh = 26, "gelu_tanh", "Gaussian error linear unit in its tanh approximation (Hendrycks and Gimpel 2016).",
                |a| R::from_f64(0.5) * a * (R::ONE + (R::from_f64(0.797_884_560_802_865_4) * (a + R::from_f64(0.044715) * a * a * a)).tanh()),
                { grad: Some(grad::gelu_tanh), saves: Saves::inputs(1), cost_flops: 14,
                  reference: "0.5 * a * (1 + np.tanh(np.sqrt(2 / np.pi) * (a + 0.044715 * a**3)))",
                  cuda: "R(0.5) * a * (R(1) + tanh(R(0.7978845608028654) * (a + R(0.044715) * a * a * a)))" };
            Reciprocal = 27, "reciprocal", "Reciprocal, 1 / x, elementwise.", |a| R::ONE / a,
                { grad: Some(grad::reciprocal), saves: Saves::OUTPUT, domain: POSITIVE, reference: "1 / a", cuda: "R(1) / a" };
            Expm1 = 28, "expm1", "exp(x) - 1, elementwise, accurate for x near 0.", |a| a.exp_m1(),
                { grad: Some(grad::expm1), saves: Saves::OUTPUT, cost_flops: 20, reference: "np.expm1(a)", cuda: "expm1(a)" };
            Log1p = 29, "log1p", "Natural logarithm of 1 + x, elementwise, accurate for x near 0.", |a| a.ln_1p(),
                { grad: Some(grad::log1p), saves: Saves::inputs(1), cost_flops: 20, domain: POSITIVE, reference: "np.log1p(a)", cuda: "log1p(a)" };
            Tan = 30, "tan", "Tangent of each element in radians.", |a| a.tan(),
                { grad: Some(grad::tan), saves: Saves::OUTPUT, cost_flops: 20, domain: [(-1.2, 1.2); 3], reference: "np.tan(a)", cuda: "tan(a)" };
            Asin = 31, "asin", "Inverse sine in radians, elementwise.", |a| a.asin(),
                { grad: Some(grad::asin), saves: Saves::inputs(1), cost_flops: 20, domain: INSIDE, reference: "np.arcsin(a)", cuda: "asin(a)" };
            Acos = 32, "acos", "Inverse cosine in radians, elementwise.", |a| a.acos(),
                { grad: Some(grad::acos), saves: Saves::inputs(1), cost_flops: 20, domain: INSIDE, reference: "np.arccos(a)", cuda: "acos(a)" };
            Atan = 33, "atan", "Inverse tangent in radians, elementwise.", |a| a.atan(),
                { grad: Some(grad::atan), saves: Saves::inputs(1), cost_flops: 20, reference: "np.arctan(a)", cuda: "atan(a)" };
            Sinh = 34, "sinh", "Hyperbolic sine, elementwise.", |a| a.sinh(),
                { grad: Some(grad::sinh), saves: Saves::inputs(1), cost_flops: 24, reference: "np.sinh(a)", cuda: "sinh(a)" };
            Cosh = 35, "cosh", "Hyperbolic cosine, elementwise.", |a| a.cosh(),
                { grad: Some(grad::cosh), saves: Saves::inputs(1), cost_flops: 24, reference: "np.cosh(a)", cuda: "cosh(a)" };
            Asinh = 36, "asinh", "Inverse hyperbolic sine, elementwise.", |a| a.asinh(),
                { grad: Some(grad::asinh), saves: Saves::inputs(1), cost_flops: 32, reference: "np.arcsinh(a)", cuda: "asinh(a)" };
            Acosh = 37, "acosh", "Inverse hyperbolic cosine, elementwise; NaN below 1.", |a| a.acosh(),
                { grad: Some(grad::acosh), saves: Saves::inputs(1), cost_flops: 32, domain: [(1.2, 4.0); 3], reference: "np.arccosh(a)", cuda: "acosh(a)" };
            Atanh = 38, "atanh", "Inverse hyperbolic tangent, elementwise.", |a| a.atanh(),
                { grad: Some(grad::atanh), saves: Saves::inputs(1), cost_flops: 24, domain: INSIDE, reference: "np.arctanh(a)", cuda: "atanh(a)" };
            Log2 = 39, "log2", "Logarithm to base 2, elementwise.", |a| a.log2(),
                { grad: Some(grad::log2), saves: Saves::inputs(1), cost_flops: 12, domain: POSITIVE, reference: "np.log2(a)", cuda: "log2(a)" };
            Log10 = 256, "log10", "Logarithm to base 10, elementwise.", |a| a.log10(),
                { grad: Some(grad::log10), saves: Saves::inputs(1), cost_flops: 12, domain: POSITIVE, reference: "np.log10(a)", cuda: "log10(a)" };
            Exp2 = 257, "exp2", "2 to the power of each element.", |a| a.exp2(),
                { grad: Some(grad::exp2), saves: Saves::OUTPUT, cost_flops: 8, reference: "np.exp2(a)", cuda: "exp2(a)" };
            Erfc = 258, "erfc", "Complementary error function, 1 - erf(x), elementwise, accurate where erf(x) is near 1.", |a| R::from_f64(special::erfc(a.to_f64())),
                { grad: Some(grad::erfc), saves: Saves::inputs(1), cost_flops: 80, reference: "sp.erfc(a)", cuda: "erfc(a)" };
            Erfinv = 259, "erfinv", "Inverse error function, elementwise.", |a| a.erfinv(),
                { grad: Some(grad::erfinv), saves: Saves::OUTPUT, cost_flops: 30, domain: INSIDE, reference: "sp.erfinv(a)", cuda: "erfinv(a)" };
            Lgamma = 260, "lgamma", "Logarithm of the absolute value of the gamma function, elementwise.", |a| a.lgamma(),
                { grad: Some(grad::lgamma), saves: Saves::inputs(1), cost_flops: 60, domain: POSITIVE, reference: "sp.gammaln(a)", cuda: "lgamma(a)" };
            Digamma = 261, "digamma", "Digamma function, the derivative of the logarithm of the gamma function, elementwise.", |a| R::from_f64(special::digamma(a.to_f64())),
                { grad: Some(grad::digamma), saves: Saves::inputs(1), cost_flops: 120, domain: POSITIVE, reference: "sp.digamma(a)", cuda: "R(digamma(a))" };
            I0 = 262, "i0", "Modified Bessel function of the first kind of order 0, elementwise.", |a| R::from_f64(special::i0(a.to_f64())),
                { grad: Some(grad::i0), saves: Saves::inputs(1), cost_flops: 200, reference: "sp.i0(a)", cuda: "R(i0(a))" };
            I0e = 263, "i0e", "Exponentially scaled modified Bessel function of the first kind of order 0, exp(-|x|) * i0(x), elementwise.", |a| R::from_f64(special::i0e(a.to_f64())),
                { grad: Some(grad::i0e), saves: Saves { inputs: 1, output: true }, cost_flops: 200, reference: "sp.i0e(a)", cuda: "R(i0e(a))" };
            I1 = 264, "i1", "Modified Bessel function of the first kind of order 1, elementwise.", |a| R::from_f64(special::i1(a.to_f64())),
                { grad: Some(grad::i1), saves: Saves { inputs: 1, output: true }, cost_flops: 200, reference: "sp.i1(a)", cuda: "R(i1(a))" };
            I1e = 265, "i1e", "Exponentially scaled modified Bessel function of the first kind of order 1, exp(-|x|) * i1(x), elementwise.", |a| R::from_f64(special::i1e(a.to_f64())),
                { grad: Some(grad::i1e), saves: Saves { inputs: 1, output: true }, cost_flops: 200, reference: "sp.i1e(a)", cuda: "R(i1e(a))" };
            Ndtri = 266, "ndtri", "Inverse of the standard normal CDF (quantile function), elementwise.", |a| R::from_f64(special::ndtri(a.to_f64())),
                { grad: Some(grad::ndtri), saves: Saves::OUTPUT, cost_flops: 300, domain: [(0.02, 1.0); 3], reference: "sp.ndtri(a)", cuda: "R(ndtri(a))" };
            LogNdtr = 267, "log_ndtr", "Logarithm of the standard normal CDF, elementwise.", |a| R::from_f64(special::log_ndtr(a.to_f64())),
                { grad: Some(grad::log_ndtr), saves: Saves::inputs(1), cost_flops: 200, reference: "sp.log_ndtr(a)", cuda: "R(log_ndtr(a))" };
            Erfcx = 268, "erfcx", "Scaled complementary error function, exp(x^2) * erfc(x), elementwise.", |a| R::from_f64(special::erfcx(a.to_f64())),
                { grad: Some(grad::erfcx), saves: Saves { inputs: 1, output: true }, cost_flops: 200, reference: "sp.erfcx(a)", cuda: "erfcx(a)" };
        }
        real2 {
            ReluBackward = 120, "relu_backward", "Gradient of relu: the first operand where relu's result, the second operand, is positive or NaN, and 0 elsewhere.",
                |a, b| if b <= R::ZERO { R::ZERO } else { a },
                { grad: Some(grad::relu_backward), saves: Saves::inputs(2), reference: "np.where(b <= 0, 0, a)", cuda: "b <= R(0) ? R(0) : a" };
            GeluBackward = 249, "gelu_backward", "Gradient of gelu: the first operand times the derivative of gelu at the second.", |g, a| g * gelu_slope(a),
                { cost_flops: 24,
                  reference: "a * (0.5 * (1 + sp.erf(b / np.sqrt(2))) + b * np.exp(-b * b / 2) / np.sqrt(2 * np.pi))", cuda: "a * gelu_slope(b)" };
            GeluTanhBackward = 250, "gelu_tanh_backward", "Gradient of gelu_tanh: the first operand times the derivative of gelu_tanh at the second.", |g, a| g * gelu_tanh_slope(a),
                { cost_flops: 24,
                  reference: "a * 0.5 * (1 + np.tanh(np.sqrt(2 / np.pi) * (b + 0.044715 * b**3)) + b * np.sqrt(2 / np.pi) * (1 + 3 * 0.044715 * b**2) / np.cosh(np.sqrt(2 / np.pi) * (b + 0.044715 * b**3))**2)",
                  cuda: "a * gelu_tanh_slope(b)" };
            Atan2 = 41, "atan2", "Inverse tangent of a / b in radians, elementwise, with the quadrant that the signs of a and b determine.", |a, b| a.atan2(b),
                { grad: Some(grad::atan2), saves: Saves::inputs(3), cost_flops: 24, domain: [(-3.0, 3.0), (0.2, 3.0), (-3.0, 3.0)], reference: "np.arctan2(a, b)",
                  cuda: "atan2(a, b)" };
            Logaddexp = 42, "logaddexp", "Logarithm of the sum of exponentials, log(exp(a) + exp(b)), elementwise, without overflow.",
                |a, b| a.log_add(b, std::f64::consts::LN_2, R::exp, R::ln_1p),
                { grad: Some(grad::logaddexp), saves: Saves::inputs(3), cost_flops: 32, reference: "np.logaddexp(a, b)", cuda: "log_add(a, b)" };
            Logaddexp2 = 43, "logaddexp2", "Base-2 logarithm of the sum of powers of 2, log2(2^a + 2^b), elementwise, without overflow.",
                |a, b| a.log_add(b, 1.0, R::exp2, |x| x.ln_1p() * R::from_f64(std::f64::consts::LOG2_E)),
                { grad: Some(grad::logaddexp2), saves: Saves::inputs(3), cost_flops: 32, reference: "np.logaddexp2(a, b)", cuda: "log_add2(a, b)" };
            Xlogy = 44, "xlogy", "a * log(b), elementwise; 0 where a is 0 and b is not NaN.", |a, b| a.xlogy(b),
                { grad: Some(grad::xlogy), saves: Saves::inputs(3), cost_flops: 12, domain: [(-3.0, 3.0), (0.2, 4.0), (-3.0, 3.0)], reference: "sp.xlogy(a, b)",
                  cuda: "xlogy(a, b)" };
            Copysign = 45, "copysign", "Magnitude of the first operand with the sign of the second, elementwise.", |a, b| a.copysign(b),
                { grad: Some(grad::copysign), saves: Saves::inputs(3), reference: "np.copysign(a, b)", cuda: "copysign(a, b)" };
            Nextafter = 46, "nextafter", "Next representable number after the first operand towards the second, elementwise.", |a, b| a.next_after(b),
                { accepts: DTypeSet::WHOLE_FLOAT, promotion: Promotion::Common, grad: Some(grad::nextafter), reference: "np.nextafter(a, b)",
                  cuda: "nextafter(a, b)" };
            Zeta = 47, "zeta", "Hurwitz zeta function, the sum of (b + k)^-a over k = 0, 1, …, elementwise.", |a, b| R::from_f64(special::zeta(a.to_f64(), b.to_f64())),
                { grad: Some(grad::zeta), saves: Saves::inputs(3), cost_flops: 400, domain: [(1.5, 4.0), (0.5, 4.0), (-3.0, 3.0)], reference: "sp.zeta(a, b)",
                  cuda: "R(zeta(a, b))" };
            Gammainc = 290, "gammainc", "Regularized lower incomplete gamma function P(a, b), elementwise: the CDF at b of a gamma distribution of shape a.", |a, b| R::from_f64(special::gammainc(a.to_f64(), b.to_f64())),
                { grad: Some(grad::gammainc), saves: Saves::inputs(3), cost_flops: 400, domain: [(0.5, 4.0), (0.1, 6.0), (-3.0, 3.0)], reference: "sp.gammainc(a, b)",
                  cuda: "R(gammainc(a, b))" };
            Gammaincc = 291, "gammaincc", "Regularized upper incomplete gamma function Q(a, b) = 1 - P(a, b), elementwise, accurate where P is near 1.", |a, b| R::from_f64(special::gammaincc(a.to_f64(), b.to_f64())),
                { grad: Some(grad::gammaincc), saves: Saves::inputs(3), cost_flops: 400, domain: [(0.5, 4.0), (0.1, 6.0), (-3.0, 3.0)], reference: "sp.gammaincc(a, b)",
                  cuda: "R(gammaincc(a, b))" };
            GammaSlope = 292, "gamma_slope", "Derivative of a gamma sample b with respect to the shape a, with P(a, b) held constant (implicit reparameterization, Figurnov et al. 2018).", |a, b| R::from_f64(special::gamma_slope(a.to_f64(), b.to_f64())),
                { cost_flops: 600, domain: [(2.0, 4.0), (0.5, 4.0), (-3.0, 3.0)],
                  reference: "sum(c * (sp.gammainc(a - k / 20, b) - sp.gammainc(a + k / 20, b)) for k, c in enumerate((0.8, -0.2, 4 / 105, -1 / 280), 1)) * 20 / np.exp((a - 1) * np.log(b) - b - sp.gammaln(a))",
                  cuda: "R(gamma_slope(a, b))" };
            Div = 40, "div", "Quotient of two tensors, elementwise; floating-point even for integers.", |a, b| a / b,
                { grad: Some(grad::div), saves: Saves::inputs(3), domain: [(-3.0, 3.0), (0.5, 3.0), (-3.0, 3.0)], reference: "a / b", cuda: "a / b" };
        }
        real3 {
            Lerp = 82, "lerp", "Linear interpolation a + c * (b - a), elementwise.",
                |a, b, c| if c.abs() < R::from_f64(0.5) { a + c * (b - a) } else { b - (b - a) * (R::ONE - c) },
                { grad: Some(grad::lerp), saves: Saves::inputs(7), promotion: Promotion::Common, cost_flops: 4, reference: "a + c * (b - a)",
                  cuda: "fabs(c) < R(0.5) ? a + c * (b - a) : b - (b - a) * (R(1) - c)" };
            MeanSquareStep = 83, "mean_square_step", "Exponential moving average of squares, (1 - c) * a + c * b^2, elementwise.",
                |a, b, c| (R::ONE - c) * a + c * (b * b), { promotion: Promotion::Common, cost_flops: 4, reference: "(1 - c) * a + c * b * b",
                  cuda: "(R(1) - c) * a + c * (b * b)" };
            ScaledStep = 84, "scaled_step", "Step of an adaptive optimizer, a / (sqrt(b) + c), elementwise.",
                |a, b, c| a / (b.sqrt() + c), { promotion: Promotion::Common, cost_flops: 8, domain: [(-3.0, 3.0), (0.2, 4.0), (0.1, 3.0)], reference: "a / (np.sqrt(b) + c)",
                  cuda: "a / (sqrt(b) + c)" };
        }
        map1 {
            Neg = 48, "neg", "Negation, elementwise.", real |a| -a, int |a| a.wrapping_neg(),
                { accepts: DTypeSet::NUMERIC, grad: Some(grad::neg), reference: "-a", cuda: "-a", cuda_int: "wrapping_neg(a)" };
            Abs = 49, "abs", "Absolute value, elementwise.", real |a| a.abs(), int |a| a.wrapping_abs(),
                { accepts: DTypeSet::NUMERIC, grad: Some(grad::abs), saves: Saves::inputs(1), reference: "np.abs(a)",
                  cuda: "fabs(a)", cuda_int: "wrapping_abs(a)" };
            Sign = 50, "sign", "Sign of each element: -1, 0 or 1; 0 for NaN.", real |a| a.sign(), int |a| a.sign(),
                { grad: Some(grad::zero), reference: "np.sign(a)", cuda: "sign(a)", cuda_int: "sign(a)" };
            Relu = 51, "relu", "Rectified linear unit, max(x, 0), elementwise; NaN stays NaN.", real |a| if a < R::ZERO { R::ZERO } else { a }, int |a| a.imax(I::ZERO),
                { accepts: DTypeSet::NUMERIC, grad: Some(grad::relu), saves: Saves::OUTPUT, reference: "np.maximum(a, 0)",
                  cuda: "a < R(0) ? R(0) : a", cuda_int: "maximum(a, I(0))" };
            Floor = 52, "floor", "Largest integer less than or equal to each element.", real |a| a.floor(), int |a| a,
                { accepts: DTypeSet::NUMERIC, grad: Some(grad::zero), reference: "np.floor(a)", cuda: "floor(a)", cuda_int: "a" };
            Ceil = 53, "ceil", "Smallest integer greater than or equal to each element.", real |a| a.ceil(), int |a| a,
                { accepts: DTypeSet::NUMERIC, grad: Some(grad::zero), reference: "np.ceil(a)", cuda: "ceil(a)", cuda_int: "a" };
            Round = 54, "round", "Nearest integer to each element, ties to even.", real |a| a.round_even(), int |a| a,
                { accepts: DTypeSet::NUMERIC, grad: Some(grad::zero), reference: "np.round(a)", cuda: "rint(a)", cuda_int: "a" };
            Trunc = 55, "trunc", "Integer part of each element.", real |a| a.trunc(), int |a| a,
                { accepts: DTypeSet::NUMERIC, grad: Some(grad::zero), reference: "np.trunc(a)", cuda: "trunc(a)", cuda_int: "a" };
        }
        map2 {
            Add = 64, "add", "Sum of two tensors, elementwise; logical or on bools.", real |a, b| a + b, int |a, b| a.wrapping_add(b),
                { grad: Some(grad::add), reference: "a + b", cuda: "a + b", cuda_int: "wrapping_add(a, b)" };
            Sub = 65, "sub", "Difference of two tensors, elementwise.", real |a, b| a - b, int |a, b| a.wrapping_sub(b),
                { accepts: DTypeSet::NUMERIC, grad: Some(grad::sub), reference: "a - b", cuda: "a - b", cuda_int: "wrapping_sub(a, b)" };
            Mul = 66, "mul", "Product of two tensors, elementwise; logical and on bools.", real |a, b| a * b, int |a, b| a.wrapping_mul(b),
                { grad: Some(grad::mul), saves: Saves::inputs(3), reference: "a * b", cuda: "a * b", cuda_int: "wrapping_mul(a, b)" };
            FloorDivide = 67, "floor_divide", "Quotient of two tensors rounded towards negative infinity, elementwise.",
                real |a, b| a.floor_div(b), int |a, b| a.floor_div(b),
                { accepts: DTypeSet::NUMERIC, grad: Some(grad::zero), cost_flops: 4, divisor_nonzero: true,
                  domain: [(-3.0, 3.0), (0.5, 3.0), (-3.0, 3.0)], reference: "np.floor_divide(a, b)", cuda: "floor_div(a, b)", cuda_int: "floor_div(a, b)" };
            Remainder = 68, "remainder", "Remainder of floor division, elementwise, with the sign of the divisor, as Python's %.",
                real |a, b| a.floor_rem(b), int |a, b| a.floor_rem(b),
                { accepts: DTypeSet::NUMERIC, grad: Some(grad::remainder), saves: Saves::inputs(3), cost_flops: 4, divisor_nonzero: true,
                  domain: [(-3.0, 3.0), (0.5, 3.0), (-3.0, 3.0)], reference: "np.remainder(a, b)", cuda: "floor_rem(a, b)", cuda_int: "floor_rem(a, b)" };
            Pow = 69, "pow", "First operand to the power of the second, elementwise.", real |a, b| a.pow(b), int |a, b| a.pow(b),
                { accepts: DTypeSet::NUMERIC, grad: Some(grad::pow), saves: Saves { inputs: 3, output: true }, cost_flops: 24,
                  domain: POSITIVE, reference: "np.power(a, b)", cuda: "pow(a, b)", cuda_int: "int_pow(a, b)" };
            Minimum = 70, "minimum", "Elementwise minimum of two tensors; NaN if either element is NaN.", real |a, b| a.minimum(b), int |a, b| a.imin(b),
                { grad: Some(grad::minimum), saves: Saves::inputs(3), reference: "np.minimum(a, b)", cuda: "minimum(a, b)", cuda_int: "minimum(a, b)" };
            Maximum = 71, "maximum", "Elementwise maximum of two tensors; NaN if either element is NaN.", real |a, b| a.maximum(b), int |a, b| a.imax(b),
                { grad: Some(grad::maximum), saves: Saves::inputs(3), reference: "np.maximum(a, b)", cuda: "maximum(a, b)", cuda_int: "maximum(a, b)" };
            Fmod = 72, "fmod", "Remainder of division truncated towards 0, elementwise, with the sign of the dividend, as C's fmod.", real |a, b| a.fmod(b), int |a, b| a.trunc_rem(b),
                { accepts: DTypeSet::NUMERIC, grad: Some(grad::fmod), saves: Saves::inputs(3), cost_flops: 4, divisor_nonzero: true,
                  domain: [(-3.0, 3.0), (0.5, 3.0), (-3.0, 3.0)], reference: "np.fmod(a, b)", cuda: "fmod(a, b)", cuda_int: "trunc_rem(a, b)" };
            Fmin = 73, "fmin", "Elementwise minimum of two tensors; a number is preferred to NaN.",
                real |a, b| if a.is_nan() { b } else if b.is_nan() { a } else { a.minimum(b) }, int |a, b| a.imin(b),
                { grad: Some(grad::fmin), saves: Saves::inputs(3), reference: "np.fmin(a, b)",
                  cuda: "is_nan(a) ? b : is_nan(b) ? a : minimum(a, b)", cuda_int: "minimum(a, b)" };
            Fmax = 74, "fmax", "Elementwise maximum of two tensors; a number is preferred to NaN.",
                real |a, b| if a.is_nan() { b } else if b.is_nan() { a } else { a.maximum(b) }, int |a, b| a.imax(b),
                { grad: Some(grad::fmax), saves: Saves::inputs(3), reference: "np.fmax(a, b)",
                  cuda: "is_nan(a) ? b : is_nan(b) ? a : maximum(a, b)", cuda_int: "maximum(a, b)" };
        }
        map3 {
            Addcmul = 80, "addcmul", "a + b * c, elementwise, rounded after the product and after the sum.",
                real |a, b, c| a + b * c, int |a, b, c| a.wrapping_add(b.wrapping_mul(c)),
                { accepts: DTypeSet::NUMERIC, grad: Some(grad::addcmul), saves: Saves::inputs(6), cost_flops: 2, reference: "a + b * c",
                  cuda: "a + b * c", cuda_int: "wrapping_add(a, wrapping_mul(b, c))" };
            Clamp = 81, "clamp", "Each element clamped to the range from a lower to an upper bound; NaN stays NaN.",
                real |a, b, c| a.maximum(b).minimum(c), int |a, b, c| a.imax(b).imin(c),
                { accepts: DTypeSet::NUMERIC, grad: Some(grad::clamp), saves: Saves::inputs(7), cost_flops: 2, reference: "np.minimum(np.maximum(a, b), c)",
                  cuda: "minimum(maximum(a, b), c)", cuda_int: "minimum(maximum(a, b), c)" };
        }
        int1 {
            BitwiseNot = 88, "bitwise_not", "Bitwise complement; logical not on bools.", |a| a.bit_not(), { reference: "~a", cuda_int: "bit_not(a)" };
        }
        int2 {
            BitwiseAnd = 89, "bitwise_and", "Bitwise and of two tensors.", |a, b| a.bit_and(b), { reference: "a & b", cuda_int: "a & b" };
            BitwiseOr = 90, "bitwise_or", "Bitwise or of two tensors.", |a, b| a.bit_or(b), { reference: "a | b", cuda_int: "a | b" };
            BitwiseXor = 91, "bitwise_xor", "Bitwise exclusive or of two tensors.", |a, b| a.bit_xor(b), { reference: "a ^ b", cuda_int: "a ^ b" };
            BitwiseLeftShift = 92, "bitwise_left_shift", "First operand shifted left by as many bits as the second says; 0 from the dtype's width on.",
                |a, b| a.shift_left(b), { accepts: DTypeSet::INT, domain: [(-3.0, 3.0), (0.0, 3.0), (0.0, 0.0)], reference: "a << b",
                  cuda_int: "shift_left(a, b)" };
            BitwiseRightShift = 93, "bitwise_right_shift", "First operand shifted right arithmetically by as many bits as the second says.",
                |a, b| a.shift_right(b), { accepts: DTypeSet::INT, domain: [(-3.0, 3.0), (0.0, 3.0), (0.0, 0.0)], reference: "a >> b",
                  cuda_int: "shift_right(a, b)" };
            Gcd = 94, "gcd", "Greatest common divisor, elementwise.", |a, b| a.gcd(b), { accepts: DTypeSet::INT, cost_flops: 40, reference: "np.gcd(a, b)",
                  cuda_int: "gcd(a, b)" };
            Lcm = 95, "lcm", "Least common multiple, elementwise.", |a, b| a.lcm(b), { accepts: DTypeSet::INT, cost_flops: 40, reference: "np.lcm(a, b)",
                  cuda_int: "lcm(a, b)" };
        }
        test1 {
            LogicalNot = 96, "logical_not", "True where an element is zero.", real |a| a == R::ZERO, int |a| a == I::ZERO, { reference: "np.logical_not(a)",
                  cuda: "a == R(0)", cuda_int: "a == I(0)" };
            Isnan = 97, "isnan", "True where an element is NaN.", real |a| a.is_nan(), int |_a| false, { reference: "np.isnan(a)",
                  cuda: "is_nan(a)", cuda_int: "false" };
            Isinf = 98, "isinf", "True where an element is infinite.", real |a| a.abs() == R::INFINITY, int |_a| false, { reference: "np.isinf(a)",
                  cuda: "is_inf(a)", cuda_int: "false" };
            Isfinite = 99, "isfinite", "True where an element is neither infinite nor NaN.", real |a| a.abs() < R::INFINITY, int |_a| true, { reference: "np.isfinite(a)",
                  cuda: "is_finite(a)", cuda_int: "true" };
            Signbit = 100, "signbit", "True where an element has its sign bit set, -0.0 and NaN included.", real |a| R::ONE.copysign(a) < R::ZERO, int |a| a < I::ZERO,
                { reference: "np.signbit(a)", cuda: "sign_bit(a)", cuda_int: "a < I(0)" };
        }
        test2 {
            Eq = 104, "eq", "Elementwise a == b.", real |a, b| a == b, int |a, b| a == b, { reference: "a == b", cuda: "a == b", cuda_int: "a == b" };
            Ne = 105, "ne", "Elementwise a != b.", real |a, b| a != b, int |a, b| a != b, { reference: "a != b", cuda: "a != b", cuda_int: "a != b" };
            Lt = 106, "lt", "Elementwise a < b.", real |a, b| a < b, int |a, b| a < b, { reference: "a < b", cuda: "a < b", cuda_int: "a < b" };
            Le = 107, "le", "Elementwise a <= b.", real |a, b| a <= b, int |a, b| a <= b, { reference: "a <= b", cuda: "a <= b", cuda_int: "a <= b" };
            Gt = 108, "gt", "Elementwise a > b.", real |a, b| a > b, int |a, b| a > b, { reference: "a > b", cuda: "a > b", cuda_int: "a > b" };
            Ge = 109, "ge", "Elementwise a >= b.", real |a, b| a >= b, int |a, b| a >= b, { reference: "a >= b",
                  cuda: "a >= b", cuda_int: "a >= b" };
            LogicalAnd = 110, "logical_and", "Logical and: true where both elements are nonzero.", real |a, b| (a != R::ZERO) & (b != R::ZERO), int |a, b| (a != I::ZERO) & (b != I::ZERO),
                { reference: "np.logical_and(a, b)", cuda: "a != R(0) && b != R(0)", cuda_int: "a != I(0) && b != I(0)" };
            LogicalOr = 111, "logical_or", "Logical or: true where either element is nonzero.", real |a, b| (a != R::ZERO) | (b != R::ZERO), int |a, b| (a != I::ZERO) | (b != I::ZERO),
                { reference: "np.logical_or(a, b)", cuda: "a != R(0) || b != R(0)", cuda_int: "a != I(0) || b != I(0)" };
            LogicalXor = 112, "logical_xor", "Logical exclusive or: true where exactly one element is nonzero.", real |a, b| (a != R::ZERO) ^ (b != R::ZERO), int |a, b| (a != I::ZERO) ^ (b != I::ZERO),
                { reference: "np.logical_xor(a, b)", cuda: "(a != R(0)) != (b != R(0))", cuda_int: "(a != I(0)) != (b != I(0))" };
        }
        other {
            Where = 128, "where", "Elements of the second operand where the condition is true, of the third elsewhere.",
                { class: Class::Select, operands: 3, attrs: AttrKind::DType, result: ResultDType::Attr, grad: Some(grad::where_), saves: Saves::inputs(1),
                  reference: "np.where(a, b, c)" };
            Cast = 129, "cast", "Conversion to another dtype, elementwise; floats are truncated towards 0 in integers.",
                { class: Class::Cast, attrs: AttrKind::DType, promotion: Promotion::None, result: ResultDType::Attr, grad: Some(grad::cast), reference: "a.astype(dtype)" };
            Sum = 136, "sum", "Sum of elements over axes.",
                { class: Class::Reduction, attrs: AttrKind::Axes, accepts: DTypeSet::NUMERIC, promotion: Promotion::Sum, grad: Some(grad::sum),
                  reference: "np.sum(a, axis=axis, keepdims=keepdims)" };
            Mean = 137, "mean", "Mean of elements over axes.",
                { class: Class::Reduction, attrs: AttrKind::Axes, accepts: DTypeSet::FLOAT, grad: Some(grad::mean),
                  reference: "np.mean(a, axis=axis, keepdims=keepdims)" };
            Norm = 143, "norm", "Euclidean norm over axes, the square root of the sum of squares.",
                { class: Class::Reduction, attrs: AttrKind::Axes, accepts: DTypeSet::FLOAT, grad: Some(grad::norm), cost_flops: 2,
                  saves: Saves { inputs: 1, output: true }, reference: "np.sqrt(np.sum(a * a, axis=axis, keepdims=keepdims))" };
            Prod = 138, "prod", "Product of elements over axes.",
                { class: Class::Reduction, attrs: AttrKind::Axes, accepts: DTypeSet::NUMERIC, promotion: Promotion::Sum, grad: Some(grad::prod),
                  saves: Saves { inputs: 1, output: true }, reference: "np.prod(a, axis=axis, keepdims=keepdims)" };
            Amax = 139, "amax", "Maximum over axes; NaN if any element is NaN.",
                { class: Class::Reduction, attrs: AttrKind::Axes, grad: Some(grad::amax), saves: Saves { inputs: 1, output: true },
                  reference: "np.max(a, axis=axis, keepdims=keepdims)" };
            Amin = 140, "amin", "Minimum over axes; NaN if any element is NaN.",
                { class: Class::Reduction, attrs: AttrKind::Axes, grad: Some(grad::amax), saves: Saves { inputs: 1, output: true },
                  reference: "np.min(a, axis=axis, keepdims=keepdims)" };
            Any = 141, "any", "True where any element over axes is nonzero.",
                { class: Class::Reduction, attrs: AttrKind::Axes, result: ResultDType::Bool, reference: "np.any(a, axis=axis, keepdims=keepdims)" };
            All = 142, "all", "True where all elements over axes are nonzero.",
                { class: Class::Reduction, attrs: AttrKind::Axes, result: ResultDType::Bool, reference: "np.all(a, axis=axis, keepdims=keepdims)" };
            Argmax = 144, "argmax", "Index of the first maximum along an axis; of the first NaN, if there is one.",
                { class: Class::ArgReduction, attrs: AttrKind::Axes, accepts: DTypeSet::NUMERIC, result: ResultDType::Index, cost_flops: 2,
                  reference: "np.argmax(a, axis=axis, keepdims=keepdims)" };
            Argmin = 145, "argmin", "Index of the first minimum along an axis; of the first NaN, if there is one.",
                { class: Class::ArgReduction, attrs: AttrKind::Axes, accepts: DTypeSet::NUMERIC, result: ResultDType::Index, cost_flops: 2,
                  reference: "np.argmin(a, axis=axis, keepdims=keepdims)" };
            Reshape = 152, "reshape", "The same elements, in row-major order, with another shape.",
                { class: Class::Movement, attrs: AttrKind::Shape, cost_flops: 0, grad: Some(grad::reshape), reference: "np.reshape(a, shape)" };
            Permute = 153, "permute", "A tensor with its axes in another order.",
                { class: Class::Movement, attrs: AttrKind::Permutation, cost_flops: 0, grad: Some(grad::permute), reference: "np.transpose(a, axes)" };
            Expand = 154, "expand", "A tensor broadcast to a larger shape: axes of size 1 and new leading axes are repeated.",
                { class: Class::Movement, attrs: AttrKind::Shape, cost_flops: 0, grad: Some(grad::expand), reference: "np.broadcast_to(a, shape)" };
            Slice = 155, "slice", "Elements from a start with a step along each axis.",
                { class: Class::Movement, attrs: AttrKind::Slice, cost_flops: 0, grad: Some(grad::slice), reference: "a[slices]" };
            SliceScatter = 156, "slice_scatter", "Copy of the first operand with the second written to a slice of it.",
                { class: Class::SliceScatter, operands: 2, attrs: AttrKind::Slice, grad: Some(grad::slice_scatter), reference: "slice_scatter(a, b, slices)" };
            Cat = 160, "cat", "Concatenation of tensors along an axis.",
                { class: Class::Concatenation, attrs: AttrKind::Axis, grad: Some(grad::cat), reference: "np.concatenate(tensors, axis=axis)" };
            Matmul = 168, "matmul", "Matrix product over the last two axes; leading axes broadcast.",
                { class: Class::Contraction, operands: 2, accepts: DTypeSet::NUMERIC, cost_flops: 2, grad: Some(grad::matmul), saves: Saves::inputs(3),
                  reference: "np.matmul(a, b)" };
            Gather = 176, "gather", "Elements along an axis at the positions in an index tensor.",
                { class: Class::Gather, operands: 2, attrs: AttrKind::Axis, promotion: Promotion::None, grad: Some(grad::gather), saves: Saves::inputs(2),
                  reference: "np.take_along_axis(a, b, axis)" };
            ScatterAdd = 177, "scatter_add", "Copy of the first operand to which the third operand's elements are added, along an axis, at the indices in the second.",
                { class: Class::Scatter, operands: 3, attrs: AttrKind::Axis, accepts: DTypeSet::NUMERIC, promotion: Promotion::None, grad: Some(grad::scatter_add),
                  saves: Saves::inputs(2), reference: "scatter_add(a, b, c, axis)" };
            Scatter = 178, "scatter", "Copy of the first operand with the third operand's elements written, along an axis, at the indices in the second; of several elements for one position the last stays.",
                { class: Class::Scatter, operands: 3, attrs: AttrKind::Axis, promotion: Promotion::None, grad: Some(grad::scatter),
                  saves: Saves::inputs(2), reference: "scatter(a, b, c, axis)" };
            ScatterProd = 179, "scatter_prod", "Copy of the first operand multiplied by the third operand's elements, along an axis, at the indices in the second.",
                { class: Class::Scatter, operands: 3, attrs: AttrKind::Axis, accepts: DTypeSet::NUMERIC, promotion: Promotion::None, grad: Some(grad::scatter_prod),
                  saves: Saves::inputs(7), reference: "scatter_prod(a, b, c, axis)" };
            ScatterAmax = 180, "scatter_amax", "Copy of the first operand reduced by maximum with the third operand's elements, along an axis, at the indices in the second; NaN propagates.",
                { class: Class::Scatter, operands: 3, attrs: AttrKind::Axis, promotion: Promotion::None, grad: Some(grad::scatter_extreme),
                  saves: Saves { inputs: 7, output: true }, reference: "scatter_amax(a, b, c, axis)" };
            ScatterAmin = 181, "scatter_amin", "Copy of the first operand reduced by minimum with the third operand's elements, along an axis, at the indices in the second; NaN propagates.",
                { class: Class::Scatter, operands: 3, attrs: AttrKind::Axis, promotion: Promotion::None, grad: Some(grad::scatter_extreme),
                  saves: Saves { inputs: 7, output: true }, reference: "scatter_amin(a, b, c, axis)" };
            Softmax = 242, "softmax", "Softmax, exp(x) / sum(exp(x)), along the last axis.",
                { class: Class::RowWise, accepts: DTypeSet::FLOAT, promotion: Promotion::Float, cost_flops: 12, grad: Some(row_wise::softmax),
                  saves: Saves::OUTPUT, reference: "sp.softmax(a, -1)" };
            LogSoftmax = 243, "log_softmax", "Logarithm of softmax along the last axis, accurate where softmax is small.",
                { class: Class::RowWise, accepts: DTypeSet::FLOAT, promotion: Promotion::Float, cost_flops: 12, grad: Some(row_wise::log_softmax),
                  saves: Saves::OUTPUT, reference: "sp.log_softmax(a, -1)" };
            SoftmaxBackward = 244, "softmax_backward", "Gradient of softmax, from the gradient of its result and its result.",
                { class: Class::RowWise, operands: 2, accepts: DTypeSet::FLOAT, cost_flops: 4, reference: "b * (a - (a * b).sum(-1, keepdims=True))" };
            LogSoftmaxBackward = 245, "log_softmax_backward", "Gradient of log_softmax, from the gradient of its result and its result.",
                { class: Class::RowWise, operands: 2, accepts: DTypeSet::FLOAT, cost_flops: 12, reference: "a - np.exp(b) * a.sum(-1, keepdims=True)" };
            CrossEntropy = 246, "cross_entropy", "Cross entropy: negative log-likelihood of class indices under the softmax of each row of logits, with class weights.",
                { class: Class::RowWise, operands: 3, attrs: AttrKind::Loss, accepts: DTypeSet::FLOAT, cost_flops: 12, grad: Some(row_wise::class_loss),
                  saves: Saves::inputs(7), reference: "cross_entropy(a, b, c, reduction, ignore_index, label_smoothing)" };
            CrossEntropyBackward = 247, "cross_entropy_backward", "Gradient of cross_entropy, from the gradient of its result and its operands.",
                { class: Class::RowWise, operands: 4, attrs: AttrKind::Loss, accepts: DTypeSet::FLOAT, cost_flops: 12,
                  reference: "a * (softmax(b) - one_hot(c))" };
            NllLoss = 251, "nll_loss", "Negative log-likelihood of class indices, from rows of log-probabilities, with class weights.",
                { class: Class::RowWise, operands: 3, attrs: AttrKind::Loss, accepts: DTypeSet::FLOAT, grad: Some(row_wise::class_loss),
                  saves: Saves::inputs(6), reference: "nll_loss(a, b, c, reduction, ignore_index)" };
            NllLossBackward = 252, "nll_loss_backward", "Gradient of nll_loss, from the gradient of its result and its operands.",
                { class: Class::RowWise, operands: 4, attrs: AttrKind::Loss, accepts: DTypeSet::FLOAT, reference: "-a * one_hot(c)" };
            LayerNorm = 253, "layer_norm", "Layer normalization over the last axis, (a - mean) / sqrt(variance + d) * b + c.",
                { class: Class::RowWise, operands: 4, accepts: DTypeSet::FLOAT, cost_flops: 8, grad: Some(row_wise::layer_norm), saves: Saves::inputs(3),
                  reference: "(a - a.mean(-1, keepdims=True)) / np.sqrt(a.var(-1, keepdims=True) + d) * b + c" };
            LayerNormBackward = 254, "layer_norm_backward", "Gradient of layer_norm for its input, from the gradient of its result, the input, the weight and epsilon.",
                { class: Class::RowWise, operands: 4, accepts: DTypeSet::FLOAT, cost_flops: 10, reference: "layer_norm_backward(a, b, c, d)" };
            LayerNormWeightBackward = 255, "layer_norm_weight_backward", "Gradients of layer_norm for its weight and bias, as two rows, from the gradient of its result, the input and epsilon.",
                { class: Class::RowWise, operands: 3, accepts: DTypeSet::FLOAT, cost_flops: 8, reference: "layer_norm_weight_backward(a, b, c)" };
            RmsNorm = 189, "rms_norm", "Root-mean-square normalization over the last axis, a / sqrt(mean(a^2) + c) * b.",
                { class: Class::RowWise, operands: 3, accepts: DTypeSet::FLOAT, cost_flops: 6, grad: Some(row_wise::rms_norm), saves: Saves::inputs(3),
                  reference: "a / np.sqrt((a * a).mean(-1, keepdims=True) + c) * b" };
            RmsNormBackward = 190, "rms_norm_backward", "Gradient of rms_norm for its input, from the gradient of its result, the input, the weight and epsilon.",
                { class: Class::RowWise, operands: 4, accepts: DTypeSet::FLOAT, cost_flops: 8, reference: "rms_norm_backward(a, b, c, d)" };
            RmsNormWeightBackward = 191, "rms_norm_weight_backward", "Gradient of rms_norm for its weight, as one row, from the gradient of its result, the input and epsilon.",
                { class: Class::RowWise, operands: 3, accepts: DTypeSet::FLOAT, cost_flops: 6, reference: "rms_norm_weight_backward(a, b, c)" };
            Attention = 240, "attention", "Scaled dot-product attention, softmax(a @ b.T * scale + d) @ c over the last two axes, without storing the scores; the mask d is optional.",
                { class: Class::RowWise, operands: 3, optional: 1, attrs: AttrKind::Attention, accepts: DTypeSet::FLOAT, cost_flops: 4,
                  grad: Some(row_wise::attention), saves: Saves::inputs(15), reference: "attention(a, b, c, d, causal, scale)" };
            AttentionBackward = 241, "attention_backward", "Gradients of attention for query, key and value, flattened side by side, one row per batch.",
                { class: Class::RowWise, operands: 4, optional: 1, attrs: AttrKind::Attention, accepts: DTypeSet::FLOAT, cost_flops: 10,
                  reference: "attention_backward(a, b, c, d, e, causal, scale)" };
            Full = 192, "full", "Tensor filled with one number.",
                { class: Class::Creation, attrs: AttrKind::Create, promotion: Promotion::None, result: ResultDType::Attr, reference: "np.full(shape, a)" };
            Arange = 193, "arange", "Evenly spaced numbers a + i * b for i = 0, 1, …",
                { class: Class::Creation, operands: 2, attrs: AttrKind::Create, promotion: Promotion::None, result: ResultDType::Attr, accepts: DTypeSet::NUMERIC,
                  reference: "a + b * np.arange(shape[0])" };
            Rand = 200, "rand", "Uniform random numbers in [0, 1), from Philox 4x32-10.",
                { class: Class::Random, operands: 0, attrs: AttrKind::Random, accepts: DTypeSet::FLOAT, promotion: Promotion::None, result: ResultDType::Attr, cost_flops: 20 };
            Randn = 201, "randn", "Standard normal random numbers, from Philox 4x32-10 by the Box-Muller transform.",
                { class: Class::Random, operands: 0, attrs: AttrKind::Random, accepts: DTypeSet::FLOAT, promotion: Promotion::None, result: ResultDType::Attr, cost_flops: 40 };
            Randint = 202, "randint", "Uniform random integers in [a, b), from Philox 4x32-10.",
                { class: Class::Random, operands: 2, attrs: AttrKind::Random, promotion: Promotion::None, result: ResultDType::Attr, cost_flops: 20 };
            Cumsum = 208, "cumsum", "Cumulative sum along an axis.",
                { class: Class::Scan, attrs: AttrKind::Axis, accepts: DTypeSet::NUMERIC, promotion: Promotion::Sum, grad: Some(grad::cumsum),
                  reference: "np.cumsum(a, axis)" };
            Cumprod = 209, "cumprod", "Cumulative product along an axis.",
                { class: Class::Scan, attrs: AttrKind::Axis, accepts: DTypeSet::NUMERIC, promotion: Promotion::Sum, grad: Some(grad::cumprod),
                  saves: Saves { inputs: 1, output: true }, reference: "np.cumprod(a, axis)" };
            Logcumsumexp = 210, "logcumsumexp", "Logarithm of the cumulative sum of exponentials along an axis.",
                { class: Class::Scan, attrs: AttrKind::Axis, accepts: DTypeSet::FLOAT, grad: Some(grad::logcumsumexp), cost_flops: 16,
                  saves: Saves { inputs: 1, output: true }, reference: "np.logaddexp.accumulate(a, axis)" };
            Cumargmax = 211, "cumargmax", "Index of the cumulative maximum along an axis, the last of equal ones; NaN counts as the maximum.",
                { class: Class::Scan, attrs: AttrKind::Axis, result: ResultDType::Index, cost_flops: 2, reference: "cumargmax(a, axis)" };
            Cumargmin = 212, "cumargmin", "Index of the cumulative minimum along an axis, the last of equal ones; NaN counts as the minimum.",
                { class: Class::Scan, attrs: AttrKind::Axis, result: ResultDType::Index, cost_flops: 2, reference: "cumargmin(a, axis)" };
            Argsort = 216, "argsort", "Indices that sort elements along an axis in ascending order; stable, NaN last.",
                { class: Class::Sort, attrs: AttrKind::Axis, result: ResultDType::Index, cost_flops: 32, reference: "np.argsort(a, axis, stable=True)" };
            ArgsortDescending = 217, "argsort_descending", "Indices that sort elements along an axis in descending order; stable, NaN first.",
                { class: Class::Sort, attrs: AttrKind::Axis, result: ResultDType::Index, cost_flops: 32,
                  reference: "a.shape[axis] - 1 - np.flip(np.argsort(np.flip(a, axis), axis, stable=True), axis)" };
            Searchsorted = 218, "searchsorted", "Leftmost insertion points of the second operand's elements in the first, which is sorted along its last axis; a one-dimensional first operand serves all rows.",
                { class: Class::Search, operands: 2, result: ResultDType::Index, cost_flops: 16, reference: "np.searchsorted(a, b)" };
            SearchsortedRight = 219, "searchsorted_right", "Rightmost insertion points of the second operand's elements in the first, which is sorted along its last axis; a one-dimensional first operand serves all rows.",
                { class: Class::Search, operands: 2, result: ResultDType::Index, cost_flops: 16, reference: "np.searchsorted(a, b, 'right')" };
            Nonzero = 213, "nonzero", "Indices of the true elements of a mask, one row each, in row-major order, followed by rows of zeros up to the size asked for.",
                { class: Class::Positions, attrs: AttrKind::Shape, accepts: DTypeSet::BOOL, promotion: Promotion::None, result: ResultDType::Index, cost_flops: 2,
                  reference: "np.argwhere(a)" };
            Convolution = 224, "convolution", "Convolution (cross-correlation) of an input with a weight, with an optional bias.",
                { class: Class::Convolution, operands: 2, optional: 1, attrs: AttrKind::Window, accepts: DTypeSet::FLOAT, promotion: Promotion::None,
                  grad: Some(grad::convolution), saves: Saves::inputs(3), cost_flops: 2, reference: "convolution(a, b, window)" };
            ConvolutionInput = 225, "convolution_input", "Transposed convolution: gradient of a convolution with respect to its input.",
                { class: Class::Convolution, operands: 2, attrs: AttrKind::Window, accepts: DTypeSet::FLOAT, promotion: Promotion::None,
                  grad: Some(grad::convolution_input), saves: Saves::inputs(3), cost_flops: 2, reference: "convolution_input(a, b, window)" };
            ConvolutionWeight = 226, "convolution_weight", "Gradient of a convolution with respect to its weight, from the gradient of its result and its input.",
                { class: Class::Convolution, operands: 2, attrs: AttrKind::Window, accepts: DTypeSet::FLOAT, promotion: Promotion::None,
                  grad: Some(grad::convolution_weight), saves: Saves::inputs(3), cost_flops: 2, reference: "convolution_weight(a, b, window)" };
            MaxPool = 227, "max_pool", "Maximum of each window; NaN if any element is NaN.",
                { class: Class::Pooling, attrs: AttrKind::Window, accepts: DTypeSet::FLOAT, grad: Some(grad::max_pool), saves: Saves::inputs(1),
                  cost_flops: 8, reference: "max_pool(a, window)" };
            MaxPoolIndices = 228, "max_pool_indices", "Index of the first maximum of each window, flattened within its channel.",
                { class: Class::Pooling, attrs: AttrKind::Window, accepts: DTypeSet::FLOAT, result: ResultDType::Index, cost_flops: 16,
                  reference: "max_pool_indices(a, window)" };
            MaxPoolInput = 229, "max_pool_input", "Gradient of max_pool: each element of the first operand added at the first maximum of its window in the second.",
                { class: Class::Pooling, operands: 2, attrs: AttrKind::Window, accepts: DTypeSet::FLOAT, promotion: Promotion::None,
                  grad: Some(grad::max_pool_input), saves: Saves::inputs(2), cost_flops: 16, reference: "max_pool_input(a, b, window)" };
            SumPool = 230, "sum_pool", "Sum of each window.",
                { class: Class::Pooling, attrs: AttrKind::Window, accepts: DTypeSet::FLOAT, grad: Some(grad::sum_pool), cost_flops: 8,
                  reference: "sum_pool(a, window)" };
            SumPoolInput = 231, "sum_pool_input", "Gradient of sum_pool: each element added to all of its window.",
                { class: Class::Pooling, attrs: AttrKind::Window, accepts: DTypeSet::FLOAT, grad: Some(grad::sum_pool_input), cost_flops: 8,
                  reference: "sum_pool_input(a, window)" };
        }
        }
    };
}
pub(crate) use op_table;
