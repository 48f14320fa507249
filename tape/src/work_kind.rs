//! Operations by the kind of work that they are.

use gt_ops::event::Subject;
use gt_ops::{Class, Op};
use serde::Serialize;

/// The kind of work of an operation, by which displays group and colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkKind {
    /// Matrix products and convolutions.
    Matmul,
    /// Elementwise arithmetic, conversions, creation and random numbers.
    Elementwise,
    /// Reductions, scans and other work along an axis, such as softmax.
    Reduction,
    /// Scaled dot-product attention.
    Attention,
    /// Collectives between workers.
    Collective,
    /// Uploads, fetches, and elements moved within a worker.
    Copy,
    /// Sorting, searching and waiting.
    Other,
}

impl WorkKind {
    /// Every kind, in the order of displays.
    pub const ALL: [WorkKind; 7] = [
        WorkKind::Matmul,
        WorkKind::Attention,
        WorkKind::Elementwise,
        WorkKind::Reduction,
        WorkKind::Collective,
        WorkKind::Copy,
        WorkKind::Other,
    ];

    /// The kind of an operation.
    pub fn of(subject: Subject) -> WorkKind {
        match subject {
            Subject::Reshard => WorkKind::Collective,
            Subject::Fetch | Subject::Write => WorkKind::Copy,
            Subject::Op(Op::Attention) => WorkKind::Attention,
            Subject::Op(op) => match op.row().class {
                Class::Contraction | Class::Convolution => WorkKind::Matmul,
                Class::Elementwise | Class::Select | Class::Cast | Class::Creation | Class::Random => {
                    WorkKind::Elementwise
                }
                Class::Reduction | Class::ArgReduction | Class::Scan | Class::RowWise | Class::Pooling => {
                    WorkKind::Reduction
                }
                Class::Movement | Class::SliceScatter | Class::Concatenation | Class::Gather | Class::Scatter => {
                    WorkKind::Copy
                }
                Class::Sort | Class::Search | Class::Positions => WorkKind::Other,
            },
            _ => WorkKind::Other,
        }
    }

    /// The name for users.
    pub const fn name(self) -> &'static str {
        match self {
            WorkKind::Matmul => "matmul",
            WorkKind::Elementwise => "elementwise",
            WorkKind::Reduction => "reduction",
            WorkKind::Attention => "attention",
            WorkKind::Collective => "collective",
            WorkKind::Copy => "copy",
            WorkKind::Other => "other",
        }
    }

    /// The position in [`ALL`](Self::ALL).
    pub fn index(self) -> usize {
        Self::ALL.iter().position(|kind| *kind == self).unwrap_or(0)
    }

    /// The colour in displays, red, green and blue: the qualitative palette of Okabe and Ito (2008), which colour-blind
    /// readers can tell apart.
    pub const fn color(self) -> [u8; 3] {
        match self {
            WorkKind::Matmul => [0, 114, 178],
            WorkKind::Elementwise => [0, 158, 115],
            WorkKind::Reduction => [230, 159, 0],
            WorkKind::Attention => [204, 121, 167],
            WorkKind::Collective => [213, 94, 0],
            WorkKind::Copy => [86, 180, 233],
            WorkKind::Other => [153, 153, 153],
        }
    }
}
