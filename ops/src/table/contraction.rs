//! Matrix products, convolutions and pooling.

macro_rules! rows {
    ($($before:tt)*) => {
        $crate::table::gather! { $($before)* { [num]

        /// Matrix product over the last two axes; leading axes broadcast.
        Matmul = 168, matmul(input, other) {
            class: Class::Contraction, accepts: DTypeSet::NUMERIC,
            grad: Each(&[structure::matmul]),
            saves: Saves::inputs(3), cost_flops: 2,
            reference: "np.matmul(a, b)",
        }

        /// Matrix product of half precisions as its sums are, in float32: they are not rounded.
        MatmulWide = 169, matmul_wide(input, other) {
            class: Class::Contraction, accepts: DTypeSet::HALF, result: ResultDType::Float32,
            grad: Each(&[structure::matmul]),
            saves: Saves::inputs(3), cost_flops: 2,
            reference: "np.matmul(a, b)",
        }

        /// Affine map, a @ b.T + c, of the rows of an input by a matrix and a bias; each sum is rounded once, together
        /// with the bias.
        Affine = 170, affine(input, weight, bias) {
            class: Class::Contraction, accepts: DTypeSet::FLOAT,
            grad: Each(&[
                |c| c.emit(Op::Matmul, [c.grad, c.b()]),
                structure::affine_weight,
                structure::affine_bias,
            ]),
            saves: Saves::inputs(3), cost_flops: 2,
            reference: "np.matmul(a, b.T) + c",
        }

        /// Convolution (cross-correlation) of an input with a weight, with an optional bias.
        Convolution = 224, convolution(input, weight, bias) {
            class: Class::Convolution, attrs: AttrKind::Window, optional: 1, accepts: DTypeSet::FLOAT,
            promotion: Promotion::None,
            grad: Each(&[
                |c| c.emit(Op::ConvolutionInput, [c.grad, c.b()]),
                |c| c.emit(Op::ConvolutionWeight, [c.grad, c.a()]),
                structure::channel_sums,
            ]),
            saves: Saves::inputs(3), cost_flops: 2,
            reference: "convolution(a, b, window)",
        }

        /// Transposed convolution: gradient of a convolution with respect to its input.
        ConvolutionInput = 225, convolution_input(grad, weight) {
            class: Class::Convolution, attrs: AttrKind::Window, accepts: DTypeSet::FLOAT,
            promotion: Promotion::None,
            grad: Each(&[
                |c| c.emit(Op::Convolution, [c.grad, c.b()]),
                |c| c.emit(Op::ConvolutionWeight, [c.a(), c.grad]),
            ]),
            saves: Saves::inputs(3), cost_flops: 2,
            reference: "convolution_input(a, b, window)",
        }

        /// Gradient of a convolution with respect to its weight, from the gradient of its result and its input.
        ConvolutionWeight = 226, convolution_weight(grad, input) {
            class: Class::Convolution, attrs: AttrKind::Window, accepts: DTypeSet::FLOAT,
            promotion: Promotion::None,
            grad: Each(&[
                |c| c.emit(Op::Convolution, [c.b(), c.grad]),
                |c| c.emit(Op::ConvolutionInput, [c.a(), c.grad]),
            ]),
            saves: Saves::inputs(3), cost_flops: 2,
            reference: "convolution_weight(a, b, window)",
        }

        /// Maximum of each window; NaN if any element is NaN.
        MaxPool = 227, max_pool(input) {
            class: Class::Pooling, attrs: AttrKind::Window, accepts: DTypeSet::FLOAT,
            grad: Each(&[|c| c.emit(Op::MaxPoolInput, [c.grad, c.a()])]),
            saves: Saves::inputs(1), cost_flops: 8,
            reference: "max_pool(a, window)",
        }

        /// Index of the first maximum of each window, flattened within its channel.
        MaxPoolIndices = 228, max_pool_indices(input) {
            class: Class::Pooling, attrs: AttrKind::Window, accepts: DTypeSet::FLOAT, result: ResultDType::Index,
            cost_flops: 16,
            reference: "max_pool_indices(a, window)",
        }

        /// Gradient of max_pool: each element of the first operand added at the first maximum of its window in the
        /// second.
        MaxPoolInput = 229, max_pool_input(grad, input) {
            class: Class::Pooling, attrs: AttrKind::Window, accepts: DTypeSet::FLOAT, promotion: Promotion::None,
            grad: Each(&[structure::max_pool_input, zero]),
            saves: Saves::inputs(2), cost_flops: 16,
            reference: "max_pool_input(a, b, window)",
        }

        /// Sum of each window.
        SumPool = 230, sum_pool(input) {
            class: Class::Pooling, attrs: AttrKind::Window, accepts: DTypeSet::FLOAT,
            grad: Each(&[|c| c.emit(Op::SumPoolInput, [c.grad])]),
            cost_flops: 8,
            reference: "sum_pool(a, window)",
        }

        /// Gradient of sum_pool: each element added to all of its window.
        SumPoolInput = 231, sum_pool_input(grad) {
            class: Class::Pooling, attrs: AttrKind::Window, accepts: DTypeSet::FLOAT,
            grad: Each(&[|c| c.emit(Op::SumPool, [c.grad])]),
            cost_flops: 8,
            reference: "sum_pool_input(a, window)",
        }

        } }
    };
}
pub(crate) use rows;
