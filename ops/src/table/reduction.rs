//! Reductions over axes, and scans and sorts along one.

macro_rules! rows {
    ($($before:tt)*) => {
        $crate::table::gather! { $($before)* { [num]

        /// Sum of elements over axes.
        Sum = 136, sum(input) {
            class: Class::Reduction, attrs: AttrKind::Axes, accepts: DTypeSet::NUMERIC, promotion: Promotion::Sum,
            grad: Each(&[|c| c.spread(c.grad)]),
            reference: "np.sum(a, axis=axis, keepdims=keepdims)",
        }

        /// Mean of elements over axes.
        Mean = 137, mean(input) {
            class: Class::Reduction, attrs: AttrKind::Axes, accepts: DTypeSet::FLOAT,
            grad: Each(&[|c| c.spread(c.grad / c.reduced_count())]),
            reference: "np.mean(a, axis=axis, keepdims=keepdims)",
        }

        /// Euclidean norm over axes, the square root of the sum of squares.
        Norm = 143, norm(input) {
            class: Class::Reduction, attrs: AttrKind::Axes, accepts: DTypeSet::FLOAT,
            grad: Each(&[structure::norm]),
            saves: Saves { inputs: 1, output: true }, cost_flops: 2,
            reference: "np.sqrt(np.sum(a * a, axis=axis, keepdims=keepdims))",
        }

        /// Product of elements over axes.
        Prod = 138, prod(input) {
            class: Class::Reduction, attrs: AttrKind::Axes, accepts: DTypeSet::NUMERIC, promotion: Promotion::Sum,
            grad: Each(&[structure::prod]),
            saves: Saves { inputs: 1, output: true },
            reference: "np.prod(a, axis=axis, keepdims=keepdims)",
        }

        /// Maximum over axes; NaN if any element is NaN.
        Amax = 139, amax(input) {
            class: Class::Reduction, attrs: AttrKind::Axes,
            grad: Each(&[structure::extremum]),
            saves: Saves { inputs: 1, output: true },
            reference: "np.max(a, axis=axis, keepdims=keepdims)",
        }

        /// Minimum over axes; NaN if any element is NaN.
        Amin = 140, amin(input) {
            class: Class::Reduction, attrs: AttrKind::Axes,
            grad: Each(&[structure::extremum]),
            saves: Saves { inputs: 1, output: true },
            reference: "np.min(a, axis=axis, keepdims=keepdims)",
        }

        /// True where any element over axes is nonzero.
        Any = 141, any(input) {
            class: Class::Reduction, attrs: AttrKind::Axes, result: ResultDType::Bool,
            reference: "np.any(a, axis=axis, keepdims=keepdims)",
        }

        /// True where all elements over axes are nonzero.
        All = 142, all(input) {
            class: Class::Reduction, attrs: AttrKind::Axes, result: ResultDType::Bool,
            reference: "np.all(a, axis=axis, keepdims=keepdims)",
        }

        /// Index of the first maximum along an axis; of the first NaN, if there is one.
        Argmax = 144, argmax(input) {
            class: Class::ArgReduction, attrs: AttrKind::Axes, accepts: DTypeSet::NUMERIC,
            result: ResultDType::Index,
            cost_flops: 2,
            reference: "np.argmax(a, axis=axis, keepdims=keepdims)",
        }

        /// Index of the first minimum along an axis; of the first NaN, if there is one.
        Argmin = 145, argmin(input) {
            class: Class::ArgReduction, attrs: AttrKind::Axes, accepts: DTypeSet::NUMERIC,
            result: ResultDType::Index,
            cost_flops: 2,
            reference: "np.argmin(a, axis=axis, keepdims=keepdims)",
        }

        /// Cumulative sum along an axis.
        Cumsum = 208, cumsum(input) {
            class: Class::Scan, attrs: AttrKind::Axis, accepts: DTypeSet::NUMERIC, promotion: Promotion::Sum,
            grad: Each(&[|c| c.scan_back(Op::Cumsum, c.grad)]),
            reference: "np.cumsum(a, axis)",
        }

        /// Cumulative product along an axis.
        Cumprod = 209, cumprod(input) {
            class: Class::Scan, attrs: AttrKind::Axis, accepts: DTypeSet::NUMERIC, promotion: Promotion::Sum,
            grad: Each(&[structure::cumprod]),
            saves: Saves { inputs: 1, output: true },
            reference: "np.cumprod(a, axis)",
        }

        /// Logarithm of the cumulative sum of exponentials along an axis.
        Logcumsumexp = 210, logcumsumexp(input) {
            class: Class::Scan, attrs: AttrKind::Axis, accepts: DTypeSet::FLOAT,
            grad: Each(&[structure::logcumsumexp]),
            saves: Saves { inputs: 1, output: true }, cost_flops: 16,
            reference: "np.logaddexp.accumulate(a, axis)",
        }

        /// Index of the cumulative maximum along an axis, the last of equal ones; NaN counts as the maximum.
        Cumargmax = 211, cumargmax(input) {
            class: Class::Scan, attrs: AttrKind::Axis, result: ResultDType::Index,
            cost_flops: 2,
            reference: "cumargmax(a, axis)",
        }

        /// Index of the cumulative minimum along an axis, the last of equal ones; NaN counts as the minimum.
        Cumargmin = 212, cumargmin(input) {
            class: Class::Scan, attrs: AttrKind::Axis, result: ResultDType::Index,
            cost_flops: 2,
            reference: "cumargmin(a, axis)",
        }

        /// Indices that sort elements along an axis in ascending order; stable, NaN last.
        ///
        /// With a number `count`, only the first `count` of them.
        Argsort = 216, argsort(input, count) {
            class: Class::Sort, attrs: AttrKind::Axis, result: ResultDType::Index,
            optional: 1, cost_flops: 32,
            reference: "np.argsort(a, axis, stable=True)",
        }

        /// Indices that sort elements along an axis in descending order; stable, NaN first.
        ///
        /// With a number `count`, only the first `count` of them.
        ArgsortDescending = 217, argsort_descending(input, count) {
            class: Class::Sort, attrs: AttrKind::Axis, result: ResultDType::Index,
            optional: 1, cost_flops: 32,
            reference: "a.shape[axis] - 1 - np.flip(np.argsort(np.flip(a, axis), axis, stable=True), axis)",
        }

        } }
    };
}
pub(crate) use rows;
