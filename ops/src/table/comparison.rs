//! Comparisons, tests of single elements and logic, whose results are bools.

macro_rules! rows {
    ($($before:tt)*) => {
        $crate::table::gather! { $($before)* { [num]

        /// Elementwise a == b.
        ///
        ///     output = input == other
        ///
        /// Example:
        ///     >>> gt.eq(gt.tensor([1, 2, 3]), gt.tensor([1, 3, 3]))
        ///     tensor([ True, False,  True])
        Eq = 104, eq(input, other) {
            test: |a, b| a == b,
            reference: "a == b",
        }

        /// Elementwise a != b.
        ///
        ///     output = input != other
        ///
        /// Example:
        ///     >>> gt.ne(gt.tensor([1, 2, 3]), 2)
        ///     tensor([ True, False,  True])
        Ne = 105, ne(input, other) {
            test: |a, b| a != b,
            reference: "a != b",
            forms: forms::elementwise().aliases(&["not_equal"]),
        }

        /// Elementwise a < b.
        ///
        ///     output = input < other
        ///
        /// Example:
        ///     >>> gt.lt(gt.tensor([1, 2, 3]), 2)
        ///     tensor([ True, False, False])
        Lt = 106, lt(input, other) {
            test: |a, b| a < b,
            reference: "a < b",
            forms: forms::elementwise().aliases(&["less"]),
        }

        /// Elementwise a <= b.
        ///
        ///     output = input <= other
        ///
        /// Example:
        ///     >>> gt.le(gt.tensor([1, 2, 3]), 2)
        ///     tensor([ True,  True, False])
        Le = 107, le(input, other) {
            test: |a, b| a <= b,
            reference: "a <= b",
            forms: forms::elementwise().aliases(&["less_equal"]),
        }

        /// Elementwise a > b.
        ///
        ///     output = input > other
        ///
        /// Example:
        ///     >>> gt.gt(gt.tensor([1, 2, 3]), 2)
        ///     tensor([False, False,  True])
        Gt = 108, gt(input, other) {
            test: |a, b| a > b,
            reference: "a > b",
            forms: forms::elementwise().aliases(&["greater"]),
        }

        /// Elementwise a >= b.
        ///
        ///     output = input >= other
        ///
        /// Example:
        ///     >>> gt.ge(gt.tensor([1, 2, 3]), 2)
        ///     tensor([False,  True,  True])
        Ge = 109, ge(input, other) {
            test: |a, b| a >= b,
            reference: "a >= b",
            forms: forms::elementwise().aliases(&["greater_equal"]),
        }

        /// True where an element is NaN.
        ///
        ///     output = input != input
        ///
        /// Example:
        ///     >>> gt.isnan(gt.tensor([1.0, float("nan"), float("inf")]))
        ///     tensor([False,  True, False])
        Isnan = 97, isnan(input) {
            test: |a| is_nan(a),
            reference: "np.isnan(a)",
            forms: forms::method().in_place(),
        }

        /// True where an element is infinite.
        ///
        ///     output = |input| == inf
        ///
        /// Example:
        ///     >>> gt.isinf(gt.tensor([1.0, float("nan"), -float("inf")]))
        ///     tensor([False, False,  True])
        Isinf = 98, isinf(input) {
            test: |a| is_inf(a),
            reference: "np.isinf(a)",
            forms: forms::method().in_place(),
        }

        /// True where an element is neither infinite nor NaN.
        ///
        ///     output = |input| < inf
        ///
        /// Example:
        ///     >>> gt.isfinite(gt.tensor([1.0, float("nan"), float("inf")]))
        ///     tensor([ True, False, False])
        Isfinite = 99, isfinite(input) {
            test: |a| is_finite(a),
            reference: "np.isfinite(a)",
            forms: forms::method().in_place(),
        }

        /// True where an element has its sign bit set, -0.0 and NaN included.
        ///
        ///     output = the sign bit of input
        ///
        /// Example:
        ///     >>> gt.signbit(gt.tensor([1.0, -0.0, -2.0]))
        ///     tensor([False,  True,  True])
        Signbit = 100, signbit(input) {
            test: |a| sign_bit(a),
            reference: "np.signbit(a)",
        }

        /// True where an element is zero.
        ///
        ///     output = not input
        ///
        /// Example:
        ///     >>> gt.logical_not(gt.tensor([0, 1, 2]))
        ///     tensor([ True, False, False])
        LogicalNot = 96, logical_not(input) {
            test: |a| !nonzero(a),
            reference: "np.logical_not(a)",
        }

        /// Logical and: true where both elements are nonzero.
        ///
        ///     output = input and other
        ///
        /// Example:
        ///     >>> gt.logical_and(gt.tensor([0, 1, 2]), gt.tensor([1, 1, 0]))
        ///     tensor([False,  True, False])
        LogicalAnd = 110, logical_and(input, other) {
            test: |a, b| nonzero(a) & nonzero(b),
            reference: "np.logical_and(a, b)",
            tensors_only: true,
        }

        /// Logical or: true where either element is nonzero.
        ///
        ///     output = input or other
        ///
        /// Example:
        ///     >>> gt.logical_or(gt.tensor([0, 1, 0]), gt.tensor([1, 1, 0]))
        ///     tensor([ True,  True, False])
        LogicalOr = 111, logical_or(input, other) {
            test: |a, b| nonzero(a) | nonzero(b),
            reference: "np.logical_or(a, b)",
            tensors_only: true,
        }

        /// Logical exclusive or: true where exactly one element is nonzero.
        ///
        ///     output = input xor other
        ///
        /// Example:
        ///     >>> gt.logical_xor(gt.tensor([0, 1, 2]), gt.tensor([1, 1, 0]))
        ///     tensor([ True, False,  True])
        LogicalXor = 112, logical_xor(input, other) {
            test: |a, b| nonzero(a) ^ nonzero(b),
            reference: "np.logical_xor(a, b)",
            tensors_only: true,
        }

        } }
    };
}
pub(crate) use rows;
