//! Exponentials, logarithms, powers and roots.

macro_rules! rows {
    ($($before:tt)*) => {
        $crate::table::gather! { $($before)* { [num]

        /// Exponential, e to the power of each element.
        ///
        ///     output = e ** input
        ///
        /// Example:
        ///     >>> gt.exp(gt.tensor([0.0, 1.0, 2.0]))
        ///     tensor([1.0000, 2.7183, 7.3891])
        Exp = 16, exp(input) {
            real: |a| exp(a),
            grad: Each(&[|c| c.grad * c.out()]),
            saves: Saves::OUTPUT, cost_flops: 8,
            reference: "np.exp(a)",
            forms: forms::elementwise().in_place_function(),
        }

        /// 2 to the power of each element.
        ///
        ///     output = 2 ** input
        ///
        /// Example:
        ///     >>> gt.exp2(gt.tensor([0.0, 1.0, 3.5]))
        ///     tensor([ 1.0000,  2.0000, 11.3137])
        Exp2 = 257, exp2(input) {
            real: |a| exp2(a),
            grad: Each(&[|c| c.grad * (c.out() * LN_2)]),
            saves: Saves::OUTPUT, cost_flops: 8,
            reference: "np.exp2(a)",
            forms: forms::elementwise().in_place_function().aliases(&["special.exp2"]),
        }

        /// exp(x) - 1, elementwise, accurate for x near 0.
        ///
        ///     output = exp(input) - 1
        ///
        /// Example:
        ///     >>> gt.expm1(gt.tensor([0.0, 0.5, 1.0]))
        ///     tensor([0.0000, 0.6487, 1.7183])
        Expm1 = 28, expm1(input) {
            real: |a| expm1(a),
            grad: Each(&[|c| c.grad * (c.out() + 1.0)]),
            saves: Saves::OUTPUT, cost_flops: 20,
            reference: "np.expm1(a)",
            forms: forms::elementwise().in_place_function().aliases(&["special.expm1"]),
        }

        /// Natural logarithm, elementwise.
        ///
        ///     output = ln(input)
        ///
        /// Example:
        ///     >>> gt.log(gt.tensor([1.0, 2.71828, 10.0]))
        ///     tensor([0.0000, 1.0000, 2.3026])
        Log = 17, log(input) {
            real: |a| log(a),
            grad: Each(&[|c| c.grad / c.a()]),
            saves: Saves::inputs(1), cost_flops: 8,
            domain: POSITIVE, reference: "np.log(a)",
            forms: forms::elementwise().in_place_function(),
        }

        /// Logarithm to base 2, elementwise.
        ///
        ///     output = log2(input)
        ///
        /// Example:
        ///     >>> gt.log2(gt.tensor([1.0, 2.0, 10.0]))
        ///     tensor([0.0000, 1.0000, 3.3219])
        Log2 = 39, log2(input) {
            real: |a| log2(a),
            grad: Each(&[|c| c.grad / (c.a() * LN_2)]),
            saves: Saves::inputs(1), cost_flops: 12,
            domain: POSITIVE, reference: "np.log2(a)",
            forms: forms::elementwise().in_place_function(),
        }

        /// Logarithm to base 10, elementwise.
        ///
        ///     output = log10(input)
        ///
        /// Example:
        ///     >>> gt.log10(gt.tensor([1.0, 10.0, 1000.0]))
        ///     tensor([0., 1., 3.])
        Log10 = 256, log10(input) {
            real: |a| log10(a),
            grad: Each(&[|c| c.grad / (c.a() * LN_10)]),
            saves: Saves::inputs(1), cost_flops: 12,
            domain: POSITIVE, reference: "np.log10(a)",
            forms: forms::elementwise().in_place_function(),
        }

        /// Natural logarithm of 1 + x, elementwise, accurate for x near 0.
        ///
        ///     output = ln(1 + input)
        ///
        /// Example:
        ///     >>> gt.log1p(gt.tensor([0.0, 0.5, 1.0]))
        ///     tensor([0.0000, 0.4055, 0.6931])
        Log1p = 29, log1p(input) {
            real: |a| log1p(a),
            grad: Each(&[|c| c.grad / (c.a() + 1.0)]),
            saves: Saves::inputs(1), cost_flops: 20,
            domain: POSITIVE, reference: "np.log1p(a)",
            forms: forms::elementwise().in_place_function().aliases(&["special.log1p"]),
        }

        /// Square root, elementwise.
        ///
        ///     output = input ** 0.5
        ///
        /// Example:
        ///     >>> gt.sqrt(gt.tensor([1.0, 2.0, 9.0]))
        ///     tensor([1.0000, 1.4142, 3.0000])
        Sqrt = 18, sqrt(input) {
            real: |a| sqrt(a),
            grad: Each(&[|c| c.grad * 0.5 / c.out()]),
            saves: Saves::OUTPUT, cost_flops: 4,
            domain: POSITIVE, reference: "np.sqrt(a)",
            forms: forms::elementwise().in_place_function(),
        }

        /// Reciprocal of the square root, elementwise.
        ///
        ///     output = 1 / sqrt(input)
        ///
        /// Example:
        ///     >>> gt.rsqrt(gt.tensor([1.0, 4.0, 16.0]))
        ///     tensor([1.0000, 0.5000, 0.2500])
        Rsqrt = 19, rsqrt(input) {
            real: |a| num(1.0) / sqrt(a),
            grad: Wide(&[|c| c.grad * -0.5 * (c.out() * c.out() * c.out())]),
            saves: Saves::OUTPUT, cost_flops: 8,
            domain: POSITIVE, reference: "1 / np.sqrt(a)",
            forms: forms::elementwise().in_place_function(),
        }

        /// First operand to the power of the second, elementwise.
        ///
        ///     output = input ** other
        ///
        /// Example:
        ///     >>> gt.pow(gt.tensor([1.0, 2.0, 3.0]), 2)
        ///     tensor([1., 4., 9.])
        Pow = 69, pow(input, other) {
            number: |a, b| pow(a, b),
            int: |a, b| int_pow(a, b),
            accepts: DTypeSet::NUMERIC,
            grad: Each(&[pointwise::pow_base, pointwise::pow_exponent]),
            saves: Saves { inputs: 3, output: true }, cost_flops: 24,
            domain: POSITIVE, reference: "np.power(a, b)",
            number_first: true,
        }

        /// Logarithm of the sum of exponentials, log(exp(a) + exp(b)), elementwise, without overflow.
        ///
        ///     output = ln(exp(input) + exp(other))
        ///
        /// Example:
        ///     >>> gt.logaddexp(gt.tensor([0.0, 1000.0]), gt.tensor([0.0, 1000.0]))
        ///     tensor([6.9315e-01, 1.0007e+03])
        Logaddexp = 42, logaddexp(input, other) {
            real: |a, b| log_add(a, b),
            promotion: Promotion::Common,
            grad: Each(&[|c| c.grad / ((c.b() - c.a()).exp() + 1.0), |c| c.grad / ((c.a() - c.b()).exp() + 1.0)]),
            saves: Saves::inputs(3), cost_flops: 32,
            reference: "np.logaddexp(a, b)",
            tensors_only: true,
        }

        /// Base-2 logarithm of the sum of powers of 2, log2(2^a + 2^b), elementwise, without overflow.
        ///
        ///     output = log2(2 ** input + 2 ** other)
        ///
        /// Example:
        ///     >>> gt.logaddexp2(gt.tensor([0.0, 1000.0]), gt.tensor([0.0, 1000.0]))
        ///     tensor([1.0000e+00, 1.0010e+03])
        Logaddexp2 = 43, logaddexp2(input, other) {
            real: |a, b| log_add2(a, b),
            promotion: Promotion::Common,
            grad: Each(&[|c| c.grad / ((c.b() - c.a()).exp2() + 1.0), |c| c.grad / ((c.a() - c.b()).exp2() + 1.0)]),
            saves: Saves::inputs(3), cost_flops: 32,
            reference: "np.logaddexp2(a, b)",
            tensors_only: true,
        }

        /// a * log(b), elementwise; 0 where a is 0 and b is not NaN.
        ///
        ///     output = input * ln(other), and 0 where input is 0
        ///
        /// Example:
        ///     >>> gt.xlogy(gt.tensor([0.0, 1.0, 2.0]), gt.tensor([0.0, 2.0, 3.0]))
        ///     tensor([0.0000, 0.6931, 2.1972])
        Xlogy = 44, xlogy(input, other) {
            real: |a, b| xlogy(a, b),
            grad: Each(&[pointwise::xlogy_factor, |c| c.grad * (c.a() / c.b())]),
            saves: Saves::inputs(3), cost_flops: 12,
            domain: [(-3.0, 3.0), (0.2, 4.0), (-3.0, 3.0)], reference: "sp.xlogy(a, b)",
            forms: forms::elementwise().in_place_function().aliases(&["special.xlogy"]), number_first: true,
        }

        } }
    };
}
pub(crate) use rows;
