//! Activation functions, their fused gradients, and the fused steps of optimizers.

macro_rules! rows {
    ($($before:tt)*) => {
        $crate::table::gather! { $($before)* { [num]

        /// Rectified linear unit, max(x, 0), elementwise; NaN stays NaN.
        ///
        ///     output = max(input, 0)
        ///
        /// Example:
        ///     >>> gt.relu(gt.tensor([-1.0, 0.0, 2.0]))
        ///     tensor([0., 0., 2.])
        Relu = 51, relu(input) {
            number: |a| select(a < num(0.0), num(0.0), a),
            accepts: DTypeSet::NUMERIC,
            grad: Each(&[|c| c.grad.relu_backward(c.out())]),
            saves: Saves::OUTPUT,
            reference: "np.maximum(a, 0)",
            forms: forms::method().in_place_function(),
        }

        /// Gradient of relu: the first operand where relu's result, the second operand, is positive or NaN, and 0
        /// elsewhere.
        ReluBackward = 120, relu_backward(grad, output) {
            real: |a, b| select(b <= num(0.0), num(0.0), a),
            grad: Each(&[|c| c.grad.relu_backward(c.b()), zero]),
            saves: Saves::inputs(2),
            reference: "np.where(b <= 0, 0, a)",
            forms: forms::internal(),
        }

        /// Logistic sigmoid, 1 / (1 + exp(-x)), elementwise.
        ///
        ///     output = 1 / (1 + exp(-input))
        ///
        /// Example:
        ///     >>> gt.sigmoid(gt.tensor([-2.0, 0.0, 2.0]))
        ///     tensor([0.1192, 0.5000, 0.8808])
        Sigmoid = 23, sigmoid(input) {
            real: |a| num(1.0) / (num(1.0) + exp(-a)),
            grad: Wide(&[|c| c.grad * (c.out() * (1.0 - c.out()))]),
            saves: Saves::OUTPUT, cost_flops: 10,
            reference: "1 / (1 + np.exp(-a))",
            forms: forms::elementwise().in_place_function().aliases(&["special.expit"]),
        }

        /// Gaussian error linear unit, x * Phi(x), where Phi is the CDF of the standard normal distribution (Hendrycks
        /// and Gimpel 2016).
        Gelu = 25, gelu(input) {
            real: |a| a * normal_cdf(a),
            promotion: Promotion::Common,
            grad: Each(&[|c| c.grad.gelu_backward(c.a())]),
            saves: Saves::inputs(1), cost_flops: 14,
            reference: "a * 0.5 * (1 + sp.erf(a / np.sqrt(2)))",
            forms: forms::internal(),
        }

        /// Gradient of gelu: the first operand times the derivative of gelu at the second.
        GeluBackward = 249, gelu_backward(grad, input) {
            real: |a, b| a * gelu_slope(b),
            grad: Wide(&[
                |c| c.grad.gelu_backward(c.b()),
                |c| c.grad * c.a() * ((c.b() * c.b() * -0.5).exp() * (2.0 - c.b() * c.b()) / SQRT_2PI),
            ]),
            saves: Saves::inputs(3),
            cost_flops: 24,
            reference: "a * (0.5 * (1 + sp.erf(b / np.sqrt(2))) + b * np.exp(-b * b / 2) / np.sqrt(2 * np.pi))",
            forms: forms::internal(),
        }

        /// Gaussian error linear unit in its tanh approximation (Hendrycks and Gimpel 2016).
        ///
        ///     output = 0.5 * input * (1 + tanh(sqrt(2 / pi) * (input + 0.044715 * input ** 3)))
        ///
        /// Example:
        ///     >>> gt.gelu_tanh(gt.tensor([-1.0, 0.0, 1.0]))
        ///     tensor([-0.1588,  0.0000,  0.8412])
        GeluTanh = 26, gelu_tanh(input) {
            real: |a| num(0.5) * a * (num(1.0) + tanh(num(0.7978845608028654) * (a + num(0.044715) * a * a * a))),
            promotion: Promotion::Common,
            grad: Each(&[|c| c.grad.gelu_tanh_backward(c.a())]),
            saves: Saves::inputs(1), cost_flops: 14,
            reference: "0.5 * a * (1 + np.tanh(np.sqrt(2 / np.pi) * (a + 0.044715 * a**3)))",
            forms: forms::method().in_place(),
        }

        /// Gradient of gelu_tanh: the first operand times the derivative of gelu_tanh at the second.
        GeluTanhBackward = 250, gelu_tanh_backward(grad, input) {
            real: |a, b| a * gelu_tanh_slope(b),
            grad: Wide(&[|c| c.grad.gelu_tanh_backward(c.b()), |c| c.grad * c.a() * pointwise::gelu_tanh_curve(c.b())]),
            saves: Saves::inputs(3),
            cost_flops: 24,
            reference: "a * 0.5 * (1 + np.tanh(np.sqrt(2 / np.pi) * (b + 0.044715 * b**3)) + b * np.sqrt(2 / \
                np.pi) * (1 + 3 * 0.044715 * b**2) / np.cosh(np.sqrt(2 / np.pi) * (b + 0.044715 * b**3))**2)",
            forms: forms::internal(),
        }

        /// Sigmoid linear unit, x * sigmoid(x) (Elfwing, Uchibe and Doya 2018).
        Silu = 293, silu(input) {
            real: |a| a / (num(1.0) + exp(-a)),
            promotion: Promotion::Common,
            grad: Each(&[|c| c.grad.silu_backward(c.a())]),
            saves: Saves::inputs(1), cost_flops: 11,
            reference: "a / (1 + np.exp(-a))",
            forms: forms::internal(),
        }

        /// Gradient of silu: the first operand times the derivative of silu at the second.
        SiluBackward = 294, silu_backward(grad, input) {
            real: |a, b| a * silu_slope(b),
            grad: Wide(&[|c| c.grad.silu_backward(c.b()), |c| c.grad * c.a() * pointwise::silu_curve(c.b())]),
            saves: Saves::inputs(3),
            cost_flops: 15,
            reference: "a * (1 + b * (1 - 1 / (1 + np.exp(-b)))) / (1 + np.exp(-b))",
            forms: forms::internal(),
        }

        /// Piecewise linear approximation of silu, x * min(max(x + 3, 0), 6) / 6 (Howard et al. 2019).
        Hardswish = 295, hardswish(input) {
            real: |a| a * minimum(maximum(a + num(3.0), num(0.0)), num(6.0)) / num(6.0),
            promotion: Promotion::Common,
            grad: Each(&[|c| c.grad.hardswish_backward(c.a())]),
            saves: Saves::inputs(1), cost_flops: 5,
            reference: "a * np.clip(a + 3, 0, 6) / 6",
            forms: forms::internal(),
        }

        /// Gradient of hardswish: the first operand times the derivative of hardswish at the second. The derivative is
        /// 0 up to -3, and 1 from 3 on and at NaN.
        HardswishBackward = 296, hardswish_backward(grad, input) {
            real: |a, b| a * select(b <= num(-3.0), num(0.0), select(b < num(3.0), b / num(3.0) + num(0.5), num(1.0))),
            grad: Wide(&[
                |c| c.grad.hardswish_backward(c.b()),
                |c| c.b().abs().lt(3.0).where_(c.grad * c.a() / 3.0, 0.0),
            ]),
            saves: Saves::inputs(3),
            cost_flops: 5,
            reference: "a * np.where(b <= -3, 0, np.where(b < 3, b / 3 + 0.5, 1))",
            forms: forms::internal(),
        }

        /// Exponential moving average of squares, (1 - c) * a + c * b^2, elementwise.
        MeanSquareStep = 83, mean_square_step(average, grad, rate) {
            real: |a, b, c| (num(1.0) - c) * a + c * (b * b),
            promotion: Promotion::Common,
            cost_flops: 4,
            reference: "(1 - c) * a + c * b * b",
            forms: forms::function().named("_mean_square_step"),
        }

        /// Step of an adaptive optimizer, a / (sqrt(b) + c), elementwise.
        ScaledStep = 84, scaled_step(step, mean_square, epsilon) {
            real: |a, b, c| a / (sqrt(b) + c),
            promotion: Promotion::Common,
            cost_flops: 8,
            domain: [(-3.0, 3.0), (0.2, 4.0), (0.1, 3.0)], reference: "a / (np.sqrt(b) + c)",
            forms: forms::function().named("_scaled_step"),
        }

        } }
    };
}
pub(crate) use rows;
