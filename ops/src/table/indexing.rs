//! Selection by masks and indices, and scattering.

macro_rules! rows {
    ($($before:tt)*) => {
        $crate::table::gather! { $($before)* { [num]

        /// Elements of the second operand where the condition is true, of the third elsewhere.
        Where = 128, where(condition, input, other) {
            class: Class::Select, attrs: AttrKind::DType, result: ResultDType::Attr,
            grad: Each(&[zero, |c| c.a().where_(c.grad, 0.0), |c| c.a().where_(0.0, c.grad)]),
            saves: Saves::inputs(1),
            reference: "np.where(a, b, c)",
        }

        /// Elements along an axis at the positions in an index tensor.
        Gather = 176, gather(input, index) {
            class: Class::Gather, attrs: AttrKind::Axis, promotion: Promotion::None,
            grad: Each(&[|c| c.emit(Op::ScatterAdd, [c.full(0, 0.0), c.b(), c.grad]), zero]),
            saves: Saves::inputs(2),
            reference: "np.take_along_axis(a, b, axis)",
        }

        /// Elements along an axis at the positions in an index tensor, of which negative ones count from the end.
        Index = 182, index(input, index) {
            class: Class::Gather, attrs: AttrKind::Axis, promotion: Promotion::None,
            grad: Each(&[|c| c.emit(Op::IndexPutAdd, [c.full(0, 0.0), c.b(), c.grad]), zero]),
            saves: Saves::inputs(2),
            reference: "np.take_along_axis(a, b, axis)",
        }

        /// Copy of the first operand with the third operand's elements written, along an axis, at the indices in the
        /// second; of several elements for one position the last stays.
        Scatter = 178, scatter(input, index, src) {
            class: Class::Scatter, attrs: AttrKind::Axis, promotion: Promotion::None,
            grad: Each(&[|c| scatter::overwritten(c, Op::Scatter), zero, |c| scatter::to_source(c, Op::Gather)]),
            saves: Saves::inputs(2),
            reference: "scatter(a, b, c, axis)",
        }

        /// Copy of the first operand to which the third operand's elements are added, along an axis, at the indices in
        /// the second.
        ScatterAdd = 177, scatter_add(input, index, src) {
            class: Class::Scatter, attrs: AttrKind::Axis, accepts: DTypeSet::NUMERIC, promotion: Promotion::None,
            grad: Each(&[|c| c.grad, zero, |c| scatter::to_source(c, Op::Gather)]),
            saves: Saves::inputs(2),
            reference: "scatter_add(a, b, c, axis)",
        }

        /// Copy of the first operand with the third operand's elements written, along an axis, at the indices in the
        /// second, of which negative ones count from the end; of several elements for one position the last stays.
        IndexPut = 183, index_put(input, index, src) {
            class: Class::Scatter, attrs: AttrKind::Axis, promotion: Promotion::None,
            grad: Each(&[|c| scatter::overwritten(c, Op::IndexPut), zero, |c| scatter::to_source(c, Op::Index)]),
            saves: Saves::inputs(2),
            reference: "scatter(a, b, c, axis)",
        }

        /// Copy of the first operand to which the third operand's elements are added, along an axis, at the indices in
        /// the second, of which negative ones count from the end.
        IndexPutAdd = 184, index_put_add(input, index, src) {
            class: Class::Scatter, attrs: AttrKind::Axis, accepts: DTypeSet::NUMERIC, promotion: Promotion::None,
            grad: Each(&[|c| c.grad, zero, |c| scatter::to_source(c, Op::Index)]),
            saves: Saves::inputs(2),
            reference: "scatter_add(a, b, c, axis)",
        }

        /// Copy of the first operand multiplied by the third operand's elements, along an axis, at the indices in the
        /// second.
        ScatterProd = 179, scatter_prod(input, index, src) {
            class: Class::Scatter, attrs: AttrKind::Axis, accepts: DTypeSet::NUMERIC, promotion: Promotion::None,
            grad: Joint(scatter::product),
            saves: Saves::inputs(7),
            reference: "scatter_prod(a, b, c, axis)",
        }

        /// Copy of the first operand reduced by maximum with the third operand's elements, along an axis, at the
        /// indices in the second; NaN propagates.
        ScatterAmax = 180, scatter_amax(input, index, src) {
            class: Class::Scatter, attrs: AttrKind::Axis, promotion: Promotion::None,
            grad: Joint(scatter::extremum),
            saves: Saves { inputs: 7, output: true },
            reference: "scatter_amax(a, b, c, axis)",
        }

        /// Copy of the first operand reduced by minimum with the third operand's elements, along an axis, at the
        /// indices in the second; NaN propagates.
        ScatterAmin = 181, scatter_amin(input, index, src) {
            class: Class::Scatter, attrs: AttrKind::Axis, promotion: Promotion::None,
            grad: Joint(scatter::extremum),
            saves: Saves { inputs: 7, output: true },
            reference: "scatter_amin(a, b, c, axis)",
        }

        /// Leftmost insertion points of the second operand's elements in the first, which is sorted along its last
        /// axis; a one-dimensional first operand serves all rows.
        Searchsorted = 218, searchsorted(sorted_sequence, input) {
            class: Class::Search, result: ResultDType::Index,
            cost_flops: 16,
            reference: "np.searchsorted(a, b)",
        }

        /// Rightmost insertion points of the second operand's elements in the first, which is sorted along its last
        /// axis; a one-dimensional first operand serves all rows.
        SearchsortedRight = 219, searchsorted_right(sorted_sequence, input) {
            class: Class::Search, result: ResultDType::Index,
            cost_flops: 16,
            reference: "np.searchsorted(a, b, 'right')",
        }

        /// Indices of the true elements of a mask, one row each, in row-major order, followed by rows of zeros up to
        /// the size asked for.
        Nonzero = 213, nonzero(input) {
            class: Class::Positions, attrs: AttrKind::Shape, accepts: DTypeSet::BOOL, promotion: Promotion::None,
            result: ResultDType::Index,
            cost_flops: 2,
            reference: "np.argwhere(a)",
        }

        } }
    };
}
pub(crate) use rows;
