//! Ops of class row-wise: several steps over each row, the last axis, in one pass.

mod attention;
mod complex;
mod ctc;
mod fourier;
mod loss;
mod lstm;
mod norm;
mod row_plan;
mod softmax;

use crate::backend::{CudaBackend, Inputs};
use crate::error::Result;
use crate::template::{KernelKey, Template};
use crate::tensor::CudaTensor;
use gt_backend::ExecError;
use gt_ops::{Attrs, Meta, Op};
use row_plan::tensor;

/// The templates of this folder.
pub(crate) static TEMPLATES: &[&Template] = &[
    &ctc::CTC,
    &fourier::FOURIER,
    &fourier::REAL_FOURIER,
    &softmax::SOFTMAX,
    &norm::NORM,
    &norm::WEIGHT_SUMS,
    &norm::WEIGHT_JOIN,
    &lstm::LSTM,
    &lstm::LSTM_GRAD,
    &loss::LOSS,
    &loss::TOTALS,
    &attention::ATTENTION,
    &attention::ATTENTION_MMA,
];

/// Whether the kernel reads rows by 16 bytes.
pub(crate) fn by_16_bytes(key: &KernelKey) -> bool {
    let templates = [&softmax::SOFTMAX, &norm::NORM, &loss::LOSS];
    templates.contains(&key.template) && key.variant & row_plan::VECTORS != 0
}

/// Whether the kernel multiplies on tensor cores.
pub(crate) fn is_on_tensor_cores(key: &KernelKey) -> bool {
    *key.template == attention::ATTENTION_MMA
}

/// The shared memory that a launch of the kernel adds to that of its source, in bytes.
pub(crate) fn dynamic_shared_bytes(key: &KernelKey) -> u32 {
    if is_on_tensor_cores(key) { attention::mma_shared_bytes(key) } else { 0 }
}

impl CudaBackend {
    /// An op of class row-wise.
    pub(crate) fn rows(&mut self, op: Op, inputs: Inputs<'_, '_>, attrs: &Attrs, out: &Meta) -> Result<CudaTensor> {
        match (op, attrs) {
            (Op::Softmax | Op::LogSoftmax, _) => self.softmax(op, &[tensor(inputs, 0)?], out),
            (Op::SoftmaxBackward | Op::LogSoftmaxBackward, _) => {
                self.softmax(op, &[tensor(inputs, 0)?, tensor(inputs, 1)?], out)
            }
            (Op::LayerNorm | Op::RmsNorm, _) => self.norm(op, inputs, out),
            (Op::LayerNormBackward | Op::RmsNormBackward, _) => self.norm_grad(op, inputs, out),
            (Op::LayerNormWeightBackward | Op::RmsNormWeightBackward, _) => self.norm_weight_grad(op, inputs, out),
            (Op::CrossEntropy | Op::NllLoss, Attrs::Loss(spec)) => self.class_loss(op, inputs, spec, out),
            (Op::CrossEntropyBackward | Op::NllLossBackward, Attrs::Loss(spec)) => {
                self.class_loss_grad(op, inputs, spec, out)
            }
            (Op::Attention, Attrs::Attention { causal, scale }) => self.attention(inputs, *causal, *scale, out),
            (Op::AttentionBackward | Op::AttentionGradients, Attrs::Attention { causal, scale }) => {
                self.attention_grad(op, inputs, *causal, *scale, out)
            }
            (Op::Fourier | Op::InverseFourier | Op::RealFourier | Op::InverseRealFourier, _) => {
                self.fourier(op, tensor(inputs, 0)?, out)
            }
            (Op::ComplexMul | Op::ComplexDiv, _) => self.complex(op, [tensor(inputs, 0)?, tensor(inputs, 1)?], out),
            (Op::LstmCell, _) => self.lstm_cell(inputs, out),
            (Op::LstmCellBackward, _) => self.lstm_cell_grad(inputs, out),
            (Op::CtcForward | Op::CtcPosteriors, _) => self.ctc(op, inputs, out),
            _ => Err(ExecError::internal(format!("{} carries other attributes", op.name()))),
        }
    }
}
