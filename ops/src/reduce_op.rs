//! Reductions that combine the parts of a partial tensor.

/// The reduction by which the parts of a partial tensor combine to the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ReduceOp {
    /// Sum.
    Sum = 0,
    /// Product.
    Prod = 1,
    /// Maximum; NaN if any part is NaN.
    Max = 2,
    /// Minimum; NaN if any part is NaN.
    Min = 3,
}

impl ReduceOp {
    /// The name in messages to users, as in `partial (sum)`.
    pub const fn name(self) -> &'static str {
        match self {
            ReduceOp::Sum => "sum",
            ReduceOp::Prod => "prod",
            ReduceOp::Max => "max",
            ReduceOp::Min => "min",
        }
    }
    /// The reduction of a wire code.
    pub fn from_code(code: u8) -> Option<ReduceOp> {
        [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Max, ReduceOp::Min].get(code as usize).copied()
    }
}
