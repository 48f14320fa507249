//! The means and scales of a norm's rows, kept from one gradient to the next.

use gt_ops::Meta;

/// The moments of the rows of an operand whose gradient was computed last, for that of the weights, which comes next.
/// Valid for one step: memory may then have been written again.
pub struct RowMoments {
    pub(crate) step: u64,
    pub(crate) from: *const u8,
    pub(crate) meta: Meta,
    pub(crate) eps: f64,
    /// In f64 and back they are what they were.
    pub(crate) rows: Vec<(f64, f64)>,
}
// SAFETY: the pointer is only compared.
unsafe impl Send for RowMoments {}
