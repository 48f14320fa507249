//! Special functions: error, gamma, zeta and Bessel functions.

macro_rules! rows {
    ($($before:tt)*) => {
        $crate::table::gather! { $($before)* { [num]

        /// Error function, elementwise.
        ///
        ///     output = 2 / sqrt(pi) * integral of exp(-t ** 2) over t from 0 to input
        ///
        /// Example:
        ///     >>> gt.erf(gt.tensor([0.0, 0.5, 1.0]))
        ///     tensor([0.0000, 0.5205, 0.8427])
        Erf = 24, erf(input) {
            real: |a| erf(a),
            grad: Wide(&[|c| c.grad * ((-(c.a() * c.a())).exp() * FRAC_2_SQRT_PI)]),
            saves: Saves::inputs(1), cost_flops: 12,
            reference: "sp.erf(a)",
            forms: forms::elementwise().in_place_function().aliases(&["special.erf"]),
        }

        /// Complementary error function, 1 - erf(x), elementwise, accurate where erf(x) is near 1.
        ///
        ///     output = 1 - erf(input)
        ///
        /// Example:
        ///     >>> gt.erfc(gt.tensor([0.0, 0.5, 5.0]))
        ///     tensor([1.0000e+00, 4.7950e-01, 1.5375e-12])
        Erfc = 258, erfc(input) {
            real: |a| erfc(a),
            grad: Wide(&[|c| -c.grad * ((-(c.a() * c.a())).exp() * FRAC_2_SQRT_PI)]),
            saves: Saves::inputs(1), cost_flops: 80,
            reference: "sp.erfc(a)",
            forms: forms::elementwise().in_place_function().aliases(&["special.erfc"]),
        }

        /// Scaled complementary error function, exp(x^2) * erfc(x), elementwise.
        ///
        ///     output = exp(input ** 2) * (1 - erf(input))
        ///
        /// Example:
        ///     >>> gt.special.erfcx(gt.tensor([0.0, 1.0, 10.0]))
        ///     tensor([1.0000, 0.4276, 0.0561])
        Erfcx = 268, erfcx(input) {
            real: |a| erfcx(a),
            grad: Each(&[|c| c.grad * (c.a() * c.out() * 2.0 - FRAC_2_SQRT_PI)]),
            saves: Saves { inputs: 1, output: true }, cost_flops: 200,
            reference: "sp.erfcx(a)",
            forms: forms::elementwise().aliases(&["special.erfcx"]),
        }

        /// Inverse error function, elementwise.
        ///
        ///     output = y with erf(y) = input
        ///
        /// Example:
        ///     >>> gt.erfinv(gt.tensor([-0.5, 0.0, 0.5]))
        ///     tensor([-0.4769,  0.0000,  0.4769])
        Erfinv = 259, erfinv(input) {
            real: |a| erfinv(a),
            grad: Wide(&[|c| c.grad * ((c.out() * c.out()).exp() / FRAC_2_SQRT_PI)]),
            saves: Saves::OUTPUT, cost_flops: 30,
            domain: INSIDE, reference: "sp.erfinv(a)",
            forms: forms::elementwise().aliases(&["special.erfinv"]),
        }

        /// Inverse of the standard normal CDF (quantile function), elementwise.
        ///
        ///     output = y with Phi(y) = input
        ///
        /// Example:
        ///     >>> gt.special.ndtri(gt.tensor([0.025, 0.5, 0.975]))
        ///     tensor([-1.9600,  0.0000,  1.9600])
        Ndtri = 266, ndtri(input) {
            real: |a| ndtri(a),
            grad: Wide(&[|c| c.grad * ((c.out() * c.out() * 0.5).exp() * SQRT_2PI)]),
            saves: Saves::OUTPUT, cost_flops: 300,
            domain: [(0.02, 1.0); 3], reference: "sp.ndtri(a)",
            forms: forms::elementwise().aliases(&["special.ndtri"]),
        }

        /// Logarithm of the standard normal CDF, elementwise.
        ///
        ///     output = ln Phi(input)
        ///
        /// Example:
        ///     >>> gt.special.log_ndtr(gt.tensor([-10.0, 0.0, 2.0]))
        ///     tensor([-5.3231e+01, -6.9315e-01, -2.3013e-02])
        LogNdtr = 267, log_ndtr(input) {
            real: |a| log_ndtr(a),
            grad: Wide(&[|c| c.grad * SQRT_2_OVER_PI / (c.a() * -FRAC_1_SQRT_2).erfcx()]),
            saves: Saves::inputs(1), cost_flops: 200,
            reference: "sp.log_ndtr(a)",
            forms: forms::elementwise().aliases(&["special.log_ndtr"]),
        }

        /// Logarithm of the absolute value of the gamma function, elementwise.
        ///
        ///     output = ln |Gamma(input)|
        ///
        /// Example:
        ///     >>> gt.lgamma(gt.tensor([0.5, 3.0, 5.0]))
        ///     tensor([0.5724, 0.6931, 3.1781])
        Lgamma = 260, lgamma(input) {
            real: |a| log_gamma(a),
            grad: Each(&[|c| c.grad * c.a().digamma()]),
            saves: Saves::inputs(1), cost_flops: 60,
            domain: POSITIVE, reference: "sp.gammaln(a)",
            forms: forms::elementwise().aliases(&["special.gammaln"]),
        }

        /// Digamma function, the derivative of the logarithm of the gamma function, elementwise.
        ///
        ///     output = d/dx ln Gamma(x) at input
        ///
        /// Example:
        ///     >>> gt.digamma(gt.tensor([0.5, 1.0, 5.0]))
        ///     tensor([-1.9635, -0.5772,  1.5061])
        Digamma = 261, digamma(input) {
            real: |a| digamma(a),
            grad: Each(&[|c| c.grad * c.number(2.0).zeta(c.a())]),
            saves: Saves::inputs(1), cost_flops: 120,
            domain: POSITIVE, reference: "sp.digamma(a)",
            forms: forms::elementwise().aliases(&["special.digamma", "special.psi"]),
        }

        /// Hurwitz zeta function, the sum of (b + k)^-a over k = 0, 1, …, elementwise.
        ///
        ///     output = sum of (other + k) ** -input over k = 0, 1, 2, …
        ///
        /// Example:
        ///     >>> gt.special.zeta(gt.tensor([2.0, 4.0]), gt.tensor([1.0, 1.0]))
        ///     tensor([1.6449, 1.0823])
        Zeta = 47, zeta(input, other) {
            real: |a, b| zeta(a, b),
            grad: Each(&[
                |c| c.missing("the derivative for 'zeta' by its first argument is not implemented"),
                |c| -(c.grad * ((c.a() + 1.0).zeta(c.b()) * c.a())),
            ]),
            saves: Saves::inputs(3), cost_flops: 400,
            domain: [(1.5, 4.0), (0.5, 4.0), (-3.0, 3.0)], reference: "sp.zeta(a, b)",
            forms: forms::elementwise().aliases(&["special.zeta"]),
        }

        /// Regularized lower incomplete gamma function P(a, b), elementwise: the CDF at b of a gamma distribution of
        /// shape a.
        ///
        ///     output = integral of t ** (input - 1) * exp(-t) over t from 0 to other, divided by Gamma(input)
        ///
        /// Example:
        ///     >>> gt.special.gammainc(gt.tensor([1.0, 2.0]), gt.tensor([1.0, 1.0]))
        ///     tensor([0.6321, 0.2642])
        Gammainc = 290, gammainc(input, other) {
            real: |a, b| gammainc(a, b),
            grad: Joint(pointwise::gammainc),
            saves: Saves::inputs(3), cost_flops: 400,
            domain: [(0.5, 4.0), (0.1, 6.0), (-3.0, 3.0)], reference: "sp.gammainc(a, b)",
            forms: forms::elementwise().aliases(&["igamma", "special.gammainc"]), tensors_only: true,
        }

        /// Regularized upper incomplete gamma function Q(a, b) = 1 - P(a, b), elementwise, accurate where P is near 1.
        ///
        ///     output = integral of t ** (input - 1) * exp(-t) over t from other to infinity, divided by Gamma(input)
        ///
        /// Example:
        ///     >>> gt.special.gammaincc(gt.tensor([1.0, 2.0]), gt.tensor([1.0, 1.0]))
        ///     tensor([0.3679, 0.7358])
        Gammaincc = 291, gammaincc(input, other) {
            real: |a, b| gammaincc(a, b),
            grad: Joint(pointwise::gammaincc),
            saves: Saves::inputs(3), cost_flops: 400,
            domain: [(0.5, 4.0), (0.1, 6.0), (-3.0, 3.0)], reference: "sp.gammaincc(a, b)",
            forms: forms::elementwise().aliases(&["igammac", "special.gammaincc"]), tensors_only: true,
        }

        /// Derivative of a gamma sample b with respect to the shape a, with P(a, b) held constant (implicit
        /// reparameterization, Figurnov et al. 2018).
        GammaSlope = 292, gamma_slope(input, other) {
            real: |a, b| gamma_slope(a, b),
            cost_flops: 600,
            domain: [(2.0, 4.0), (0.5, 4.0), (-3.0, 3.0)],
            reference: "sum(c * (sp.gammainc(a - k / 20, b) - sp.gammainc(a + k / 20, b)) for k, c in \
                enumerate((0.8, -0.2, 4 / 105, -1 / 280), 1)) * 20 / np.exp((a - 1) * np.log(b) - b - \
                sp.gammaln(a))",
            forms: forms::method().in_place(),
        }

        /// Modified Bessel function of the first kind of order 0, elementwise.
        ///
        ///     output = I_0(input)
        ///
        /// Example:
        ///     >>> gt.i0(gt.tensor([0.0, 1.0, 2.0]))
        ///     tensor([1.0000, 1.2661, 2.2796])
        I0 = 262, i0(input) {
            real: |a| i0(a),
            grad: Each(&[|c| c.grad * c.a().i1()]),
            saves: Saves::inputs(1), cost_flops: 200,
            reference: "sp.i0(a)",
            forms: forms::elementwise().in_place_function().aliases(&["special.i0", "special.modified_bessel_i0"]),
        }

        /// Exponentially scaled modified Bessel function of the first kind of order 0, exp(-|x|) * i0(x), elementwise.
        ///
        ///     output = exp(-|input|) * I_0(input)
        ///
        /// Example:
        ///     >>> gt.special.i0e(gt.tensor([0.0, 1.0, 2.0]))
        ///     tensor([1.0000, 0.4658, 0.3085])
        I0e = 263, i0e(input) {
            real: |a| i0e(a),
            grad: Each(&[|c| c.grad * (c.a().i1e() - c.a().sign() * c.out())]),
            saves: Saves { inputs: 1, output: true }, cost_flops: 200,
            reference: "sp.i0e(a)",
            forms: forms::elementwise().aliases(&["special.i0e"]),
        }

        /// Modified Bessel function of the first kind of order 1, elementwise.
        ///
        ///     output = I_1(input)
        ///
        /// Example:
        ///     >>> gt.special.i1(gt.tensor([0.0, 1.0, 2.0]))
        ///     tensor([0.0000, 0.5652, 1.5906])
        I1 = 264, i1(input) {
            real: |a| i1(a),
            grad: Each(&[|c| c.grad * c.unless_zero(0.5, |a| a.i0() - c.out() / a)]),
            saves: Saves { inputs: 1, output: true }, cost_flops: 200,
            reference: "sp.i1(a)",
            forms: forms::elementwise().aliases(&["special.i1", "special.modified_bessel_i1"]),
        }

        /// Exponentially scaled modified Bessel function of the first kind of order 1, exp(-|x|) * i1(x), elementwise.
        ///
        ///     output = exp(-|input|) * I_1(input)
        ///
        /// Example:
        ///     >>> gt.special.i1e(gt.tensor([0.0, 1.0, 2.0]))
        ///     tensor([0.0000, 0.2079, 0.2153])
        I1e = 265, i1e(input) {
            real: |a| i1e(a),
            grad: Each(&[|c| c.grad * c.unless_zero(0.5, |a| a.i0e() - a.sign() * c.out() - c.out() / a)]),
            saves: Saves { inputs: 1, output: true }, cost_flops: 200,
            reference: "sp.i1e(a)",
            forms: forms::elementwise().aliases(&["special.i1e"]),
        }

        } }
    };
}
pub(crate) use rows;
