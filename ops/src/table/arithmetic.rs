//! Arithmetic, rounding, extrema and signs.

macro_rules! rows {
    ($($before:tt)*) => {
        $crate::table::gather! { $($before)* { [num]

        /// Sum of two tensors, elementwise; logical or on bools.
        Add = 64, add(input, other) {
            number: |a, b| a + b,
            int: |a, b| wrapping_add(a, b),
            grad: Each(&[|c| c.grad]),
            wide_numbers: true, reference: "a + b",
            forms: forms::internal(),
        }

        /// Difference of two tensors, elementwise.
        Sub = 65, sub(input, other) {
            number: |a, b| a - b,
            int: |a, b| wrapping_sub(a, b),
            accepts: DTypeSet::NUMERIC,
            grad: Each(&[|c| c.grad, |c| -c.grad]),
            wide_numbers: true, reference: "a - b",
            forms: forms::internal(),
        }

        /// Product of two tensors, elementwise; logical and on bools.
        ///
        ///     output = input * other
        ///
        /// Example:
        ///     >>> gt.mul(gt.tensor([[1.0], [2.0]]), gt.tensor([3.0, 4.0]))
        ///     tensor([[3., 4.],
        ///             [6., 8.]])
        Mul = 66, mul(input, other) {
            number: |a, b| a * b,
            int: |a, b| wrapping_mul(a, b),
            grad: Each(&[|c| c.grad * c.b(), |c| c.grad * c.a()]),
            saves: Saves::inputs(3),
            wide_numbers: true, reference: "a * b",
            forms: forms::elementwise().aliases(&["multiply"]), number_first: true,
        }

        /// Quotient of two tensors, elementwise; floating-point even for integers.
        Div = 40, div(input, other) {
            real: |a, b| a / b,
            grad: Each(&[|c| c.grad / c.b(), pointwise::divisor]),
            saves: Saves::inputs(3),
            domain: [(-3.0, 3.0), (0.5, 3.0), (-3.0, 3.0)], wide_numbers: true, reference: "a / b",
            forms: forms::internal(),
        }

        /// Quotient of two tensors rounded towards negative infinity, elementwise.
        ///
        ///     output = floor(input / other)
        ///
        /// Example:
        ///     >>> gt.floor_divide(gt.tensor([7, -7]), 2)
        ///     tensor([ 3, -4])
        FloorDivide = 67, floor_divide(input, other) {
            number: |a, b| floor_div(a, b),
            accepts: DTypeSet::NUMERIC,
            grad: Each(&[pointwise::no_derivative]),
            cost_flops: 4, divisor_nonzero: true,
            domain: [(-3.0, 3.0), (0.5, 3.0), (-3.0, 3.0)], wide_numbers: true, reference: "np.floor_divide(a, b)",
            number_first: true,
        }

        /// Remainder of floor division, elementwise, with the sign of the divisor, as Python's %.
        ///
        ///     output = input - floor(input / other) * other
        ///
        /// Example:
        ///     >>> gt.remainder(gt.tensor([7, -7]), 3)
        ///     tensor([1, 2])
        Remainder = 68, remainder(input, other) {
            number: |a, b| floor_rem(a, b),
            accepts: DTypeSet::NUMERIC,
            grad: Each(&[|c| c.grad, |c| -(c.grad * c.a().detach().floor_divide(c.b().detach()))]),
            saves: Saves::inputs(3), cost_flops: 4, divisor_nonzero: true,
            domain: [(-3.0, 3.0), (0.5, 3.0), (-3.0, 3.0)], reference: "np.remainder(a, b)",
            number_first: true,
        }

        /// Remainder of division truncated towards 0, elementwise, with the sign of the dividend, as C's fmod.
        ///
        ///     output = input - trunc(input / other) * other
        ///
        /// Example:
        ///     >>> gt.fmod(gt.tensor([7, -7]), 3)
        ///     tensor([ 1, -1])
        Fmod = 72, fmod(input, other) {
            number: |a, b| fmod(a, b),
            int: |a, b| trunc_rem(a, b),
            accepts: DTypeSet::NUMERIC,
            grad: Each(&[|c| c.grad, |c| -(c.grad * (c.a() / c.b()).trunc())]),
            saves: Saves::inputs(3), cost_flops: 4, divisor_nonzero: true,
            domain: [(-3.0, 3.0), (0.5, 3.0), (-3.0, 3.0)], reference: "np.fmod(a, b)",
        }

        /// a + b * c, elementwise, rounded after the product and after the sum.
        Addcmul = 80, addcmul(input, tensor1, tensor2) {
            number: |a, b, c| a + b * c,
            int: |a, b, c| wrapping_add(a, wrapping_mul(b, c)),
            accepts: DTypeSet::NUMERIC,
            grad: Each(&[|c| c.grad, |c| c.grad * c.c(), |c| c.grad * c.b()]),
            saves: Saves::inputs(6), cost_flops: 2,
            wide_numbers: true, reference: "a + b * c",
            forms: forms::internal(),
        }

        /// Linear interpolation a + c * (b - a), elementwise.
        Lerp = 82, lerp(input, end, weight) {
            real: |a, b, c| select(fabs(c) < num(0.5), a + c * (b - a), b - (b - a) * (num(1.0) - c)),
            promotion: Promotion::Common,
            grad: Each(&[|c| c.grad * (1.0 - c.c()), |c| c.grad * c.c(), |c| c.grad * (c.b() - c.a())]),
            saves: Saves::inputs(7), cost_flops: 4,
            wide_numbers: true, reference: "a + c * (b - a)",
            forms: forms::internal(),
        }

        /// Negation of each element.
        ///
        ///     output = -input
        ///
        /// Example:
        ///     >>> gt.neg(gt.tensor([1.0, -2.0, 0.5]))
        ///     tensor([-1.0000,  2.0000, -0.5000])
        Neg = 48, neg(input) {
            number: |a| -a,
            int: |a| wrapping_neg(a),
            accepts: DTypeSet::NUMERIC,
            grad: Each(&[|c| -c.grad]),
            reference: "-a",
            forms: forms::elementwise().in_place_function().aliases(&["negative"]),
        }

        /// Absolute value, elementwise.
        ///
        ///     output = |input|
        ///
        /// Example:
        ///     >>> gt.abs(gt.tensor([-1.5, 0.0, 2.0]))
        ///     tensor([1.5000, 0.0000, 2.0000])
        Abs = 49, abs(input) {
            number: |a| fabs(a),
            int: |a| wrapping_abs(a),
            accepts: DTypeSet::NUMERIC,
            grad: Each(&[|c| c.grad * c.a().sign()]),
            saves: Saves::inputs(1),
            reference: "np.abs(a)",
            forms: forms::elementwise().in_place_function().aliases(&["absolute"]),
        }

        /// Sign of each element: -1, 0 or 1; 0 for NaN.
        Sign = 50, sign(input) {
            number: |a| sign(a),
            grad: Each(&[zero]),
            reference: "np.sign(a)",
            forms: forms::internal(),
        }

        /// Magnitude of the first operand with the sign of the second, elementwise.
        ///
        ///     output = |input| with the sign of other
        ///
        /// Example:
        ///     >>> gt.copysign(gt.tensor([1.0, -2.0]), gt.tensor([-0.0, 3.0]))
        ///     tensor([-1.,  2.])
        Copysign = 45, copysign(input, other) {
            real: |a, b| copysign(a, b),
            grad: Each(&[pointwise::copysign, zero]),
            saves: Saves { inputs: 1, output: true },
            reference: "np.copysign(a, b)",
        }

        /// Reciprocal, 1 / x, elementwise.
        ///
        ///     output = 1 / input
        ///
        /// Example:
        ///     >>> gt.reciprocal(gt.tensor([1.0, 2.0, 4.0]))
        ///     tensor([1.0000, 0.5000, 0.2500])
        Reciprocal = 27, reciprocal(input) {
            real: |a| num(1.0) / a,
            grad: Each(&[|c| -c.grad * (c.out() * c.out())]),
            saves: Saves::OUTPUT,
            domain: POSITIVE, reference: "1 / a",
            forms: forms::elementwise().in_place_function(),
        }

        /// Largest integer less than or equal to each element.
        ///
        ///     output = floor(input)
        ///
        /// Example:
        ///     >>> gt.floor(gt.tensor([-1.5, 0.2, 2.0]))
        ///     tensor([-2.,  0.,  2.])
        Floor = 52, floor(input) {
            number: |a| floor(a),
            int: |a| a,
            accepts: DTypeSet::NUMERIC,
            grad: Each(&[zero]),
            reference: "np.floor(a)",
            forms: forms::elementwise().in_place_function(),
        }

        /// Smallest integer greater than or equal to each element.
        ///
        ///     output = ceil(input)
        ///
        /// Example:
        ///     >>> gt.ceil(gt.tensor([-1.5, 0.2, 2.0]))
        ///     tensor([-1.,  1.,  2.])
        Ceil = 53, ceil(input) {
            number: |a| ceil(a),
            int: |a| a,
            accepts: DTypeSet::NUMERIC,
            grad: Each(&[zero]),
            reference: "np.ceil(a)",
            forms: forms::elementwise().in_place_function(),
        }

        /// Nearest integer to each element, ties to even.
        Round = 54, round(input) {
            number: |a| rint(a),
            int: |a| a,
            accepts: DTypeSet::NUMERIC,
            grad: Each(&[zero]),
            reference: "np.round(a)",
            forms: forms::internal(),
        }

        /// Integer part of each element.
        ///
        ///     output = input without its fractional part
        ///
        /// Example:
        ///     >>> gt.trunc(gt.tensor([-1.7, 0.2, 2.9]))
        ///     tensor([-1.,  0.,  2.])
        Trunc = 55, trunc(input) {
            number: |a| trunc(a),
            int: |a| a,
            accepts: DTypeSet::NUMERIC,
            grad: Each(&[zero]),
            reference: "np.trunc(a)",
            forms: forms::elementwise().in_place_function().aliases(&["fix"]),
        }

        // The first operand's zero counts where both are zeros: `clamp(-0.0, 0.0, 1.0)` is -0.0, as in PyTorch.

        /// Elementwise minimum of two tensors; NaN if either element is NaN.
        ///
        ///     output = min(input, other)
        ///
        /// Example:
        ///     >>> gt.minimum(gt.tensor([1.0, 5.0]), gt.tensor([2.0, 3.0]))
        ///     tensor([1., 3.])
        Minimum = 70, minimum(input, other) {
            number: |a, b| minimum(b, a),
            grad: Each(&[
                |c| pointwise::contested(c, c.a().gt(c.b()), || c.a().lt(c.b())),
                |c| pointwise::contested(c, c.b().gt(c.a()), || c.b().lt(c.a())),
            ]),
            saves: Saves::inputs(3),
            reference: "np.minimum(a, b)",
            tensors_only: true,
        }

        /// Elementwise maximum of two tensors; NaN if either element is NaN.
        ///
        ///     output = max(input, other)
        ///
        /// Example:
        ///     >>> gt.maximum(gt.tensor([1.0, 5.0]), gt.tensor([2.0, 3.0]))
        ///     tensor([2., 5.])
        Maximum = 71, maximum(input, other) {
            number: |a, b| maximum(b, a),
            grad: Each(&[
                |c| pointwise::contested(c, c.a().lt(c.b()), || c.a().gt(c.b())),
                |c| pointwise::contested(c, c.b().lt(c.a()), || c.b().gt(c.a())),
            ]),
            saves: Saves::inputs(3),
            reference: "np.maximum(a, b)",
            tensors_only: true,
        }

        /// Elementwise minimum of two tensors; a number is preferred to NaN.
        ///
        ///     output = min(input, other), ignoring NaN
        ///
        /// Example:
        ///     >>> gt.fmin(gt.tensor([1.0, float("nan")]), gt.tensor([2.0, 3.0]))
        ///     tensor([1., 3.])
        Fmin = 73, fmin(input, other) {
            number: |a, b| select(is_nan(a), b, select(is_nan(b), a, minimum(b, a))),
            int: |a, b| minimum(a, b),
            grad: Joint(pointwise::fmin),
            saves: Saves::inputs(3),
            reference: "np.fmin(a, b)",
            tensors_only: true,
        }

        /// Elementwise maximum of two tensors; a number is preferred to NaN.
        ///
        ///     output = max(input, other), ignoring NaN
        ///
        /// Example:
        ///     >>> gt.fmax(gt.tensor([1.0, float("nan")]), gt.tensor([2.0, 3.0]))
        ///     tensor([2., 3.])
        Fmax = 74, fmax(input, other) {
            number: |a, b| select(is_nan(a), b, select(is_nan(b), a, maximum(b, a))),
            int: |a, b| maximum(a, b),
            grad: Joint(pointwise::fmax),
            saves: Saves::inputs(3),
            reference: "np.fmax(a, b)",
            tensors_only: true,
        }

        /// Each element clamped to the range from a lower to an upper bound; NaN stays NaN.
        Clamp = 81, clamp(input, min, max) {
            number: |a, b, c| minimum(c, maximum(b, a)),
            accepts: DTypeSet::NUMERIC,
            grad: Joint(pointwise::clamp),
            saves: Saves::inputs(7), cost_flops: 2,
            reference: "np.minimum(np.maximum(a, b), c)",
            forms: forms::internal(),
        }

        /// Next representable number after the first operand towards the second, elementwise.
        Nextafter = 46, nextafter(input, other) {
            real: |a, b| nextafter(a, b),
            accepts: DTypeSet::WHOLE_FLOAT, promotion: Promotion::Common,
            grad: Each(&[|c| c.grad, zero]),
            reference: "np.nextafter(a, b)",
            tensors_only: true,
            forms: forms::internal(),
        }

        } }
    };
}
pub(crate) use rows;
