//! Functions of integers: bits, shifts and divisors.

macro_rules! rows {
    ($($before:tt)*) => {
        $crate::table::gather! { $($before)* { [num]

        /// Bitwise complement; logical not on bools.
        ///
        ///     output = ~input
        ///
        /// Example:
        ///     >>> gt.bitwise_not(gt.tensor([0, 1, -3]))
        ///     tensor([-1, -2,  2])
        BitwiseNot = 88, bitwise_not(input) {
            int: |a| bit_not(a),
            reference: "~a",
        }

        /// Bitwise and of two tensors.
        ///
        ///     output = input & other
        ///
        /// Example:
        ///     >>> gt.bitwise_and(gt.tensor([6, 5]), 3)
        ///     tensor([2, 1])
        BitwiseAnd = 89, bitwise_and(input, other) {
            int: |a, b| bit_and(a, b),
            reference: "a & b",
            number_first: true,
        }

        /// Bitwise or of two tensors.
        ///
        ///     output = input | other
        ///
        /// Example:
        ///     >>> gt.bitwise_or(gt.tensor([6, 5]), 3)
        ///     tensor([7, 7])
        BitwiseOr = 90, bitwise_or(input, other) {
            int: |a, b| bit_or(a, b),
            reference: "a | b",
            number_first: true,
        }

        /// Bitwise exclusive or of two tensors.
        ///
        ///     output = input ^ other
        ///
        /// Example:
        ///     >>> gt.bitwise_xor(gt.tensor([6, 5]), 3)
        ///     tensor([5, 6])
        BitwiseXor = 91, bitwise_xor(input, other) {
            int: |a, b| bit_xor(a, b),
            reference: "a ^ b",
            number_first: true,
        }

        /// First operand shifted left by as many bits as the second says; 0 from the dtype's width on.
        ///
        ///     output = input << other
        ///
        /// Example:
        ///     >>> gt.bitwise_left_shift(gt.tensor([1, 3]), 2)
        ///     tensor([ 4, 12])
        BitwiseLeftShift = 92, bitwise_left_shift(input, other) {
            int: |a, b| shift_left(a, b),
            accepts: DTypeSet::INT,
            domain: [(-3.0, 3.0), (0.0, 3.0), (0.0, 0.0)], reference: "a << b",
            number_first: true,
        }

        /// First operand shifted right arithmetically by as many bits as the second says.
        ///
        ///     output = input >> other
        ///
        /// Example:
        ///     >>> gt.bitwise_right_shift(gt.tensor([8, -8]), 2)
        ///     tensor([ 2, -2])
        BitwiseRightShift = 93, bitwise_right_shift(input, other) {
            int: |a, b| shift_right(a, b),
            accepts: DTypeSet::INT,
            domain: [(-3.0, 3.0), (0.0, 3.0), (0.0, 0.0)], reference: "a >> b",
            number_first: true,
        }

        /// Greatest common divisor, elementwise.
        ///
        ///     output = gcd(input, other)
        ///
        /// Example:
        ///     >>> gt.gcd(gt.tensor([12, 18]), gt.tensor([8, 27]))
        ///     tensor([4, 9])
        Gcd = 94, gcd(input, other) {
            int: |a, b| gcd(a, b),
            accepts: DTypeSet::INT,
            cost_flops: 40,
            reference: "np.gcd(a, b)",
            forms: forms::elementwise().in_place_function(), tensors_only: true,
        }

        /// Least common multiple, elementwise.
        ///
        ///     output = lcm(input, other)
        ///
        /// Example:
        ///     >>> gt.lcm(gt.tensor([4, 6]), gt.tensor([6, 10]))
        ///     tensor([12, 30])
        Lcm = 95, lcm(input, other) {
            int: |a, b| lcm(a, b),
            accepts: DTypeSet::INT,
            cost_flops: 40,
            reference: "np.lcm(a, b)",
            forms: forms::elementwise().in_place_function(), tensors_only: true,
        }

        } }
    };
}
pub(crate) use rows;
