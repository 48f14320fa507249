//! New tensors, and the same elements under other shapes and dtypes.

macro_rules! rows {
    ($($before:tt)*) => {
        $crate::table::gather! { $($before)* { [num]

        /// Tensor filled with one number.
        Full = 192, full(fill_value) {
            class: Class::Creation, attrs: AttrKind::Create, promotion: Promotion::None, result: ResultDType::Attr,
            reference: "np.full(shape, a)",
        }

        /// Evenly spaced numbers a + i * b for i = 0, 1, …
        Arange = 193, arange(start, step) {
            class: Class::Creation, attrs: AttrKind::Create, accepts: DTypeSet::NUMERIC, promotion: Promotion::None,
            result: ResultDType::Attr,
            reference: "a + b * np.arange(shape[0])",
        }

        /// Uniform random numbers in [0, 1), from Philox 4x32-10.
        Rand = 200, rand() {
            class: Class::Random, attrs: AttrKind::Random, accepts: DTypeSet::FLOAT, promotion: Promotion::None,
            result: ResultDType::Attr,
            cost_flops: 20,
        }

        /// Standard normal random numbers, from Philox 4x32-10 by the Box-Muller transform.
        Randn = 201, randn() {
            class: Class::Random, attrs: AttrKind::Random, accepts: DTypeSet::FLOAT, promotion: Promotion::None,
            result: ResultDType::Attr,
            cost_flops: 40,
        }

        /// Uniform random integers in [a, b), from Philox 4x32-10.
        Randint = 202, randint(low, high) {
            class: Class::Random, attrs: AttrKind::Random, promotion: Promotion::None, result: ResultDType::Attr,
            cost_flops: 20,
        }

        /// Conversion to another dtype, elementwise; floats are truncated towards 0 in integers.
        Cast = 129, cast(input) {
            class: Class::Cast, attrs: AttrKind::DType, promotion: Promotion::None, result: ResultDType::Attr,
            grad: Each(&[structure::cast]),
            reference: "a.astype(dtype)",
        }

        /// The same elements, in row-major order, with another shape.
        Reshape = 152, reshape(input) {
            class: Class::Movement, attrs: AttrKind::Shape,
            grad: Each(&[|c| c.grad.with_shape(&c.shape(0))]),
            cost_flops: 0,
            reference: "np.reshape(a, shape)",
        }

        /// A tensor with its axes in another order.
        Permute = 153, permute(input) {
            class: Class::Movement, attrs: AttrKind::Permutation,
            grad: Each(&[structure::permute]),
            cost_flops: 0,
            reference: "np.transpose(a, axes)",
        }

        /// A tensor broadcast to a larger shape: axes of size 1 and new leading axes are repeated.
        Expand = 154, expand(input) {
            class: Class::Movement, attrs: AttrKind::Shape,
            grad: Each(&[|c| c.grad]),
            cost_flops: 0,
            reference: "np.broadcast_to(a, shape)",
        }

        /// The same elements as those of another dtype, of which one is stored as the other. Clients compute it: it
        /// makes no instruction.
        Reinterpret = 157, reinterpret(input) {
            class: Class::Movement, attrs: AttrKind::DType, promotion: Promotion::None, result: ResultDType::Attr,
            grad: Each(&[|c| c.grad.reinterpret(c.meta(0).dtype)]),
            cost_flops: 0,
            reference: "a.view(dtype)",
        }

        /// The bits of the elements as those of another dtype; the last axis has as many bytes as before.
        Bitcast = 158, bitcast(input) {
            class: Class::Movement, attrs: AttrKind::DType, promotion: Promotion::None, result: ResultDType::Attr,
            cost_flops: 0,
            reference: "a.view(dtype)",
        }

        /// Elements from a start with a step along each axis.
        Slice = 155, slice(input) {
            class: Class::Movement, attrs: AttrKind::Slice,
            grad: Each(&[|c| c.emit(Op::SliceScatter, [c.full(0, 0.0), c.grad])]),
            cost_flops: 0,
            reference: "a[slices]",
        }

        /// Copy of the first operand with the second, or one number, written to a slice of it.
        SliceScatter = 156, slice_scatter(input, src) {
            class: Class::SliceScatter, attrs: AttrKind::Slice,
            grad: Each(&[|c| c.emit(Op::SliceScatter, [c.grad, c.full(1, 0.0)]), |c| c.emit(Op::Slice, [c.grad])]),
            reference: "slice_scatter(a, b, slices)",
        }

        /// Concatenation of tensors along an axis.
        Cat = 160, cat(tensors) {
            class: Class::Concatenation, attrs: AttrKind::Axis,
            grad: Joint(structure::cat),
            reference: "np.concatenate(tensors, axis=axis)",
        }

        } }
    };
}
pub(crate) use rows;
