//! Trigonometric and hyperbolic functions and their inverses.

macro_rules! rows {
    ($($before:tt)*) => {
        $crate::table::gather! { $($before)* { [num]

        /// Sine of each element in radians.
        ///
        ///     output = sin(input)
        ///
        /// Example:
        ///     >>> gt.sin(gt.tensor([0.0, 0.5, 1.0]))
        ///     tensor([0.0000, 0.4794, 0.8415])
        Sin = 20, sin(input) {
            real: |a| sin(a),
            grad: Each(&[|c| c.grad * c.a().cos()]),
            saves: Saves::inputs(1), cost_flops: 10,
            reference: "np.sin(a)",
            forms: forms::elementwise().in_place_function(),
        }

        /// Cosine of each element in radians.
        ///
        ///     output = cos(input)
        ///
        /// Example:
        ///     >>> gt.cos(gt.tensor([0.0, 0.5, 1.0]))
        ///     tensor([1.0000, 0.8776, 0.5403])
        Cos = 21, cos(input) {
            real: |a| cos(a),
            grad: Each(&[|c| -c.grad * c.a().sin()]),
            saves: Saves::inputs(1), cost_flops: 10,
            reference: "np.cos(a)",
            forms: forms::elementwise().in_place_function(),
        }

        /// Tangent of each element in radians.
        ///
        ///     output = tan(input)
        ///
        /// Example:
        ///     >>> gt.tan(gt.tensor([0.0, 0.5, 1.0]))
        ///     tensor([0.0000, 0.5463, 1.5574])
        Tan = 30, tan(input) {
            real: |a| tan(a),
            grad: Each(&[|c| c.grad * (c.out() * c.out() + 1.0)]),
            saves: Saves::OUTPUT, cost_flops: 20,
            domain: [(-1.2, 1.2); 3], reference: "np.tan(a)",
            forms: forms::elementwise().in_place_function(),
        }

        /// Inverse sine in radians, elementwise.
        ///
        ///     output = arcsin(input)
        ///
        /// Example:
        ///     >>> gt.asin(gt.tensor([-1.0, 0.0, 0.5]))
        ///     tensor([-1.5708,  0.0000,  0.5236])
        Asin = 31, asin(input) {
            real: |a| asin(a),
            grad: Wide(&[|c| c.grad / (1.0 - c.a() * c.a()).sqrt()]),
            saves: Saves::inputs(1), cost_flops: 20,
            domain: INSIDE, reference: "np.arcsin(a)",
            forms: forms::elementwise().in_place_function().aliases(&["arcsin"]),
        }

        /// Inverse cosine in radians, elementwise.
        ///
        ///     output = arccos(input)
        ///
        /// Example:
        ///     >>> gt.acos(gt.tensor([-1.0, 0.0, 0.5]))
        ///     tensor([3.1416, 1.5708, 1.0472])
        Acos = 32, acos(input) {
            real: |a| acos(a),
            grad: Wide(&[|c| -c.grad / (1.0 - c.a() * c.a()).sqrt()]),
            saves: Saves::inputs(1), cost_flops: 20,
            domain: INSIDE, reference: "np.arccos(a)",
            forms: forms::elementwise().in_place_function().aliases(&["arccos"]),
        }

        /// Inverse tangent in radians, elementwise.
        ///
        ///     output = arctan(input)
        ///
        /// Example:
        ///     >>> gt.atan(gt.tensor([-1.0, 0.0, 1.0]))
        ///     tensor([-0.7854,  0.0000,  0.7854])
        Atan = 33, atan(input) {
            real: |a| atan(a),
            grad: Wide(&[|c| c.grad / (c.a() * c.a() + 1.0)]),
            saves: Saves::inputs(1), cost_flops: 20,
            reference: "np.arctan(a)",
            forms: forms::elementwise().in_place_function().aliases(&["arctan"]),
        }

        /// Inverse tangent of a / b in radians, elementwise, with the quadrant that the signs of a and b determine.
        ///
        ///     output = arctan2(input, other)
        ///
        /// Example:
        ///     >>> gt.atan2(gt.tensor([1.0, 1.0, -1.0]), gt.tensor([1.0, -1.0, -1.0]))
        ///     tensor([ 0.7854,  2.3562, -2.3562])
        Atan2 = 41, atan2(input, other) {
            real: |a, b| atan2(a, b),
            grad: Joint(pointwise::atan2),
            saves: Saves::inputs(3), cost_flops: 24,
            domain: [(-3.0, 3.0), (0.2, 3.0), (-3.0, 3.0)], reference: "np.arctan2(a, b)",
            forms: forms::elementwise().aliases(&["arctan2"]), tensors_only: true,
        }

        /// Hyperbolic sine, elementwise.
        ///
        ///     output = (exp(input) - exp(-input)) / 2
        ///
        /// Example:
        ///     >>> gt.sinh(gt.tensor([-1.0, 0.0, 1.0]))
        ///     tensor([-1.1752,  0.0000,  1.1752])
        Sinh = 34, sinh(input) {
            real: |a| sinh(a),
            grad: Each(&[|c| c.grad * c.a().cosh()]),
            saves: Saves::inputs(1), cost_flops: 24,
            reference: "np.sinh(a)",
            forms: forms::elementwise().in_place_function(),
        }

        /// Hyperbolic cosine, elementwise.
        ///
        ///     output = (exp(input) + exp(-input)) / 2
        ///
        /// Example:
        ///     >>> gt.cosh(gt.tensor([-1.0, 0.0, 1.0]))
        ///     tensor([1.5431, 1.0000, 1.5431])
        Cosh = 35, cosh(input) {
            real: |a| cosh(a),
            grad: Each(&[|c| c.grad * c.a().sinh()]),
            saves: Saves::inputs(1), cost_flops: 24,
            reference: "np.cosh(a)",
            forms: forms::elementwise().in_place_function(),
        }

        /// Hyperbolic tangent, elementwise.
        ///
        ///     output = (exp(input) - exp(-input)) / (exp(input) + exp(-input))
        ///
        /// Example:
        ///     >>> gt.tanh(gt.tensor([-1.0, 0.0, 1.0]))
        ///     tensor([-0.7616,  0.0000,  0.7616])
        Tanh = 22, tanh(input) {
            real: |a| tanh(a),
            grad: Wide(&[|c| c.grad * (1.0 - c.out() * c.out())]),
            saves: Saves::OUTPUT, cost_flops: 10,
            reference: "np.tanh(a)",
            forms: forms::elementwise().in_place_function(),
        }

        /// Inverse hyperbolic sine, elementwise.
        ///
        ///     output = arcsinh(input)
        ///
        /// Example:
        ///     >>> gt.asinh(gt.tensor([-1.0, 0.0, 1.0]))
        ///     tensor([-0.8814,  0.0000,  0.8814])
        Asinh = 36, asinh(input) {
            real: |a| asinh(a),
            grad: Wide(&[|c| c.grad / (c.a() * c.a() + 1.0).sqrt()]),
            saves: Saves::inputs(1), cost_flops: 32,
            reference: "np.arcsinh(a)",
            forms: forms::elementwise().in_place_function().aliases(&["arcsinh"]),
        }

        /// Inverse hyperbolic cosine, elementwise; NaN below 1.
        ///
        ///     output = arccosh(input)
        ///
        /// Example:
        ///     >>> gt.acosh(gt.tensor([1.0, 2.0, 3.0]))
        ///     tensor([0.0000, 1.3170, 1.7627])
        Acosh = 37, acosh(input) {
            real: |a| acosh(a),
            grad: Wide(&[|c| c.grad / (c.a() * c.a() - 1.0).sqrt()]),
            saves: Saves::inputs(1), cost_flops: 32,
            domain: [(1.2, 4.0); 3], reference: "np.arccosh(a)",
            forms: forms::elementwise().in_place_function().aliases(&["arccosh"]),
        }

        /// Inverse hyperbolic tangent, elementwise.
        ///
        ///     output = arctanh(input)
        ///
        /// Example:
        ///     >>> gt.atanh(gt.tensor([-0.5, 0.0, 0.5]))
        ///     tensor([-0.5493,  0.0000,  0.5493])
        Atanh = 38, atanh(input) {
            real: |a| atanh(a),
            grad: Wide(&[|c| c.grad / (1.0 - c.a() * c.a())]),
            saves: Saves::inputs(1), cost_flops: 24,
            domain: INSIDE, reference: "np.arctanh(a)",
            forms: forms::elementwise().in_place_function().aliases(&["arctanh"]),
        }

        } }
    };
}
pub(crate) use rows;
