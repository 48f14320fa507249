//! The means and scales of a norm's rows, cached between the two gradients that need them.

use gt_ops::Meta;

/// The mean and scale of each row of a norm's operand, cached by the gradient of the input for the gradient of the
/// weights, which usually follows. They are valid only in the backend's next step, since later steps may overwrite the
/// operand's memory.
pub struct RowMoments {
    pub(crate) step: u64,
    pub(crate) from: *const u8,
    pub(crate) meta: Meta,
    pub(crate) eps: f64,
    /// Mean and scale in f64, which holds any value of the compute type exactly.
    pub(crate) rows: Vec<(f64, f64)>,
}
// SAFETY: `from` is compared with other addresses and never dereferenced.
unsafe impl Send for RowMoments {}
