//! Ops over rows, the last axis, in one pass: softmax, losses, normalizations and attention.

macro_rules! rows {
    ($($before:tt)*) => {
        $crate::table::gather! { $($before)* { [num]

        /// Softmax, exp(x) / sum(exp(x)), along the last axis.
        Softmax = 242, softmax(input) {
            class: Class::RowWise, accepts: DTypeSet::FLOAT, promotion: Promotion::Float,
            grad: Each(&[|c| c.emit(Op::SoftmaxBackward, [c.grad, c.out()])]),
            saves: Saves::OUTPUT, cost_flops: 12,
            reference: "sp.softmax(a, -1)",
        }

        /// Gradient of softmax, from the gradient of its result and its result.
        SoftmaxBackward = 244, softmax_backward(grad, output) {
            class: Class::RowWise, accepts: DTypeSet::FLOAT,
            grad: Wide(&[|c| c.emit(Op::SoftmaxBackward, [c.grad, c.b()]), row_wise::softmax_backward]),
            saves: Saves::inputs(3),
            cost_flops: 4,
            reference: "b * (a - (a * b).sum(-1, keepdims=True))",
        }

        /// Discrete Fourier transform of complex rows, not normalized. Each complex number of a row is two elements,
        /// its real and its imaginary part.
        Fourier = 270, fourier(input) {
            class: Class::RowWise, accepts: DTypeSet::WHOLE_FLOAT,
            grad: Each(&[|c| c.emit(Op::InverseFourier, [c.grad])]),
            cost_flops: 40,
            reference: "np.fft.fft(a.view(complex), axis=-1).view(float)",
        }

        /// Inverse discrete Fourier transform of complex rows, not normalized: of the conjugates, conjugated.
        InverseFourier = 271, inverse_fourier(input) {
            class: Class::RowWise, accepts: DTypeSet::WHOLE_FLOAT,
            grad: Each(&[|c| c.emit(Op::Fourier, [c.grad])]),
            cost_flops: 40,
            reference: "np.fft.ifft(a.view(complex), axis=-1, norm='forward').view(float)",
        }

        /// Discrete Fourier transform of real rows of an even number of elements, not normalized: the frequencies 0 to
        /// n / 2, each a real and an imaginary part, so n + 2 elements. The others are their conjugates.
        RealFourier = 299, real_fourier(input) {
            class: Class::RowWise, accepts: DTypeSet::WHOLE_FLOAT,
            grad: Each(&[row_wise::real_fourier]),
            cost_flops: 20,
            reference: "np.fft.rfft(a, axis=-1).view(float)",
        }

        /// Inverse discrete Fourier transform of rows of such frequencies, not normalized: rows of n real elements from
        /// n + 2. The imaginary parts of the first and the last frequency count as 0.
        InverseRealFourier = 300, inverse_real_fourier(input) {
            class: Class::RowWise, accepts: DTypeSet::WHOLE_FLOAT,
            grad: Each(&[row_wise::inverse_real_fourier]),
            cost_flops: 20,
            reference: "np.fft.irfft(a.view(complex), axis=-1, norm='forward')",
        }

        /// Product of complex numbers, each a last axis of its real and its imaginary part.
        ComplexMul = 301, complex_mul(input, other) {
            class: Class::RowWise, accepts: DTypeSet::WHOLE_FLOAT,
            grad: Joint(row_wise::complex_mul),
            saves: Saves::inputs(3), cost_flops: 3,
            reference: "(a.view(complex) * b.view(complex)).view(float)",
        }

        /// Quotient of complex numbers, each a last axis of its real and its imaginary part, by Smith's method (1962),
        /// which scales the divisor: its square would overflow.
        ComplexDiv = 302, complex_div(input, other) {
            class: Class::RowWise, accepts: DTypeSet::WHOLE_FLOAT,
            grad: Joint(row_wise::complex_div),
            saves: Saves { inputs: 2, output: true }, cost_flops: 12,
            reference: "(a.view(complex) / b.view(complex)).view(float)",
        }

        /// Logarithm of softmax along the last axis, accurate where softmax is small.
        LogSoftmax = 243, log_softmax(input) {
            class: Class::RowWise, accepts: DTypeSet::FLOAT, promotion: Promotion::Float,
            grad: Each(&[|c| c.emit(Op::LogSoftmaxBackward, [c.grad, c.out()])]),
            saves: Saves::OUTPUT, cost_flops: 12,
            reference: "sp.log_softmax(a, -1)",
        }

        /// Gradient of log_softmax, from the gradient of its result and its result.
        LogSoftmaxBackward = 245, log_softmax_backward(grad, output) {
            class: Class::RowWise, accepts: DTypeSet::FLOAT,
            grad: Wide(&[
                |c| c.grad - row_wise::row_sum(c.grad * c.b().exp()),
                |c| -(c.grad * c.b().exp() * row_wise::row_sum(c.a())),
            ]),
            saves: Saves::inputs(3),
            cost_flops: 12,
            reference: "a - np.exp(b) * a.sum(-1, keepdims=True)",
        }

        /// Cross entropy: negative log-likelihood of class indices under the softmax of each row of logits, with class
        /// weights.
        CrossEntropy = 246, cross_entropy(input, target, weight) {
            class: Class::RowWise, attrs: AttrKind::Loss, accepts: DTypeSet::FLOAT,
            grad: Each(&[row_wise::class_loss]),
            saves: Saves::inputs(7), cost_flops: 12,
            reference: "cross_entropy(a, b, c, reduction, ignore_index, label_smoothing)",
        }

        /// Gradient of cross_entropy, from the gradient of its result and its operands.
        CrossEntropyBackward = 247, cross_entropy_backward(grad, input, target, weight) {
            class: Class::RowWise, attrs: AttrKind::Loss, accepts: DTypeSet::FLOAT,
            cost_flops: 12,
            reference: "a * (softmax(b) - one_hot(c))",
        }

        /// Negative log-likelihood of class indices, from rows of log-probabilities, with class weights.
        NllLoss = 251, nll_loss(input, target, weight) {
            class: Class::RowWise, attrs: AttrKind::Loss, accepts: DTypeSet::FLOAT,
            grad: Each(&[row_wise::class_loss]),
            saves: Saves::inputs(6),
            reference: "nll_loss(a, b, c, reduction, ignore_index)",
        }

        /// Gradient of nll_loss, from the gradient of its result and its operands.
        NllLossBackward = 252, nll_loss_backward(grad, input, target, weight) {
            class: Class::RowWise, attrs: AttrKind::Loss, accepts: DTypeSet::FLOAT,
            reference: "-a * one_hot(c)",
        }

        /// Layer normalization over the last axis, (a - mean) / sqrt(variance + d) * b + c.
        LayerNorm = 253, layer_norm(input, weight, bias, epsilon) {
            class: Class::RowWise, accepts: DTypeSet::FLOAT,
            grad: Joint(row_wise::layer_norm),
            saves: Saves::inputs(3), cost_flops: 8,
            reference: "(a - a.mean(-1, keepdims=True)) / np.sqrt(a.var(-1, keepdims=True) + d) * b + c",
        }

        /// Gradient of layer_norm for its input, from the gradient of its result, the input, the weight and epsilon.
        LayerNormBackward = 254, layer_norm_backward(grad, input, weight, epsilon) {
            class: Class::RowWise, accepts: DTypeSet::FLOAT,
            cost_flops: 10,
            reference: "layer_norm_backward(a, b, c, d)",
        }

        /// Gradients of layer_norm for its weight and bias, as two rows, from the gradient of its result, the input and
        /// epsilon.
        LayerNormWeightBackward = 255, layer_norm_weight_backward(grad, input, epsilon) {
            class: Class::RowWise, accepts: DTypeSet::FLOAT,
            cost_flops: 8,
            reference: "layer_norm_weight_backward(a, b, c)",
        }

        /// Root-mean-square normalization over the last axis, a / sqrt(mean(a^2) + c) * b.
        RmsNorm = 189, rms_norm(input, weight, epsilon) {
            class: Class::RowWise, accepts: DTypeSet::FLOAT,
            grad: Joint(row_wise::rms_norm),
            saves: Saves::inputs(3), cost_flops: 6,
            reference: "a / np.sqrt((a * a).mean(-1, keepdims=True) + c) * b",
        }

        /// Gradient of rms_norm for its input, from the gradient of its result, the input, the weight and epsilon.
        RmsNormBackward = 190, rms_norm_backward(grad, input, weight, epsilon) {
            class: Class::RowWise, accepts: DTypeSet::FLOAT,
            cost_flops: 8,
            reference: "rms_norm_backward(a, b, c, d)",
        }

        /// Gradient of rms_norm for its weight, as one row, from the gradient of its result, the input and epsilon.
        RmsNormWeightBackward = 191, rms_norm_weight_backward(grad, input, epsilon) {
            class: Class::RowWise, accepts: DTypeSet::FLOAT,
            cost_flops: 6,
            reference: "rms_norm_weight_backward(a, b, c)",
        }

        /// Scaled dot-product attention, softmax(a @ b.T * scale + d) @ c over the last two axes, without storing the
        /// scores; the mask d is optional.
        Attention = 240, attention(query, key, value, mask) {
            class: Class::RowWise, attrs: AttrKind::Attention, optional: 1, accepts: DTypeSet::FLOAT,
            grad: Joint(row_wise::attention),
            saves: Saves { inputs: 15, output: true }, cost_flops: 4,
            reference: "attention(a, b, c, d, causal, scale)",
        }

        /// Gradients of attention for query, key and value, flattened side by side, one row per batch.
        AttentionBackward = 241, attention_backward(grad, query, key, value, mask) {
            class: Class::RowWise, attrs: AttrKind::Attention, optional: 1, accepts: DTypeSet::FLOAT,
            cost_flops: 10,
            reference: "attention_backward(a, b, c, d, e, causal, scale)",
        }

        /// Gradients of attention as of attention_backward, which are computed faster given the result of attention.
        AttentionGradients = 274, attention_gradients(grad, query, key, value, out, mask) {
            class: Class::RowWise, attrs: AttrKind::Attention, optional: 1, accepts: DTypeSet::FLOAT,
            cost_flops: 10,
            reference: "attention_backward(a, b, c, d, f, causal, scale)",
        }

        /// Forward variables of connectionist temporal classification (Graves et al. 2006), one row per sample: the
        /// loss, then for each time step and state the log-probability of all paths that are in the state.
        ///
        /// `emitted` (time, samples, states) are log-probabilities of the states' labels, `labels` (samples, states)
        /// are int64, and `sizes` (samples, 2) are the numbers of time steps and of labels without blanks, as int64.
        CtcForward = 272, ctc_forward(emitted, labels, sizes) {
            class: Class::RowWise, accepts: DTypeSet::WHOLE_FLOAT,
            cost_flops: 40,
            reference: "ctc_forward(a, b, c)",
        }

        /// Posterior probabilities of the states at each time step, (time, samples, states), from the operands and the
        /// result of ctc_forward.
        CtcPosteriors = 273, ctc_posteriors(emitted, labels, sizes, variables) {
            class: Class::RowWise, accepts: DTypeSet::WHOLE_FLOAT,
            cost_flops: 50,
            reference: "ctc_posteriors(a, b, c, d)",
        }

        /// One step of a long short-term memory (Hochreiter and Schmidhuber 1997) for each row: from the sums of the
        /// input, forget, candidate and output gate, (…, 4 n), and the cell state, (…, n), the new hidden state and the
        /// new cell state side by side, (…, 2 n).
        LstmCell = 297, lstm_cell(gates, cell) {
            class: Class::RowWise, accepts: DTypeSet::FLOAT,
            grad: Joint(row_wise::lstm_cell),
            saves: Saves { inputs: 3, output: true }, cost_flops: 30,
            reference: "lstm_cell(a, b)",
        }

        /// Gradients of lstm_cell, from those of the new hidden state and the new cell state, its operands and the new
        /// cell state: for the sums of the gates and for the cell state side by side, (…, 5 n).
        LstmCellBackward = 298, lstm_cell_backward(hidden_grad, cell_grad, gates, cell, new_cell) {
            class: Class::RowWise, accepts: DTypeSet::FLOAT,
            grad: Joint(row_wise::lstm_cell_backward),
            saves: Saves::inputs(31), cost_flops: 20,
            reference: "lstm_cell_backward(a, b, c, d, e)",
        }

        } }
    };
}
pub(crate) use rows;
