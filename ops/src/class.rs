//! The kinds that a row of the op table names: of its computation, its attributes, its promotion and its result. The
//! builders depend on them without depending on the rows, whose gradients depend on the builders.

/// The kind of computation of an op. Shape, sharding and dispatch rules belong to the class, not to the op.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Each result element is a function of the broadcast operands' elements at the same index.
    Elementwise,
    /// Elementwise selection by a bool condition.
    Select,
    /// Elementwise conversion to another dtype.
    Cast,
    /// Reduction over axes.
    Reduction,
    /// Index of an extremum along one axis.
    ArgReduction,
    /// The same elements under another shape: reshape, permute, expand, slice.
    Movement,
    /// Copy of the first operand with a slice replaced by the second.
    SliceScatter,
    /// Concatenation along an axis.
    Concatenation,
    /// Matrix product.
    Contraction,
    /// Convolution and its gradients.
    Convolution,
    /// Reduction of each window to one element, and the gradients of such ops.
    Pooling,
    /// Elements at the positions in an index tensor.
    Gather,
    /// Elements written, added or otherwise reduced at the positions in an index tensor.
    Scatter,
    /// Cumulative reduction along an axis.
    Scan,
    /// Indices that sort elements along an axis.
    Sort,
    /// Insertion points of elements in a sorted sequence.
    Search,
    /// Indices of the true elements of a mask.
    Positions,
    /// New tensor from numbers.
    Creation,
    /// New tensor of random numbers.
    Random,
    /// Several steps over rows (the last axis) fused into one pass: softmax, normalizations, losses, attention.
    RowWise,
}

impl Class {
    /// The name that the docs print.
    pub const fn name(self) -> &'static str {
        match self {
            Class::Elementwise => "elementwise",
            Class::Select => "select",
            Class::Cast => "cast",
            Class::Reduction => "reduction",
            Class::ArgReduction => "arg-reduction",
            Class::Movement => "movement",
            Class::SliceScatter => "slice-scatter",
            Class::Concatenation => "concatenation",
            Class::Contraction => "contraction",
            Class::Convolution => "convolution",
            Class::Pooling => "pooling",
            Class::Gather => "gather",
            Class::Scatter => "scatter",
            Class::Scan => "scan",
            Class::Sort => "sort",
            Class::Search => "search",
            Class::Positions => "positions",
            Class::Creation => "creation",
            Class::Random => "random",
            Class::RowWise => "rows",
        }
    }
}

/// The variant of [`crate::Attrs`] that an op carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttrKind {
    /// [`crate::Attrs::None`]
    None,
    /// [`crate::Attrs::DType`]
    DType,
    /// [`crate::Attrs::Shape`]
    Shape,
    /// [`crate::Attrs::Permutation`]
    Permutation,
    /// [`crate::Attrs::Axis`]
    Axis,
    /// [`crate::Attrs::Axes`]
    Axes,
    /// [`crate::Attrs::Slice`]
    Slice,
    /// [`crate::Attrs::Window`]
    Window,
    /// [`crate::Attrs::Create`]
    Create,
    /// [`crate::Attrs::Random`]
    Random,
    /// [`crate::Attrs::Loss`]
    Loss,
    /// [`crate::Attrs::Attention`]
    Attention,
}

/// The rule by which operands of different dtypes get the one dtype that an instruction computes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promotion {
    /// PyTorch's common dtype.
    Common,
    /// The common dtype; integers become the default float.
    Float,
    /// Sums of bools and integers are 64-bit integers.
    Sum,
    /// No promotion.
    None,
}

/// The dtype of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultDType {
    /// The dtype of the operands.
    Same,
    /// Bool.
    Bool,
    /// 64-bit integer.
    Index,
    /// 32-bit float.
    Float32,
    /// The dtype in the attributes.
    Attr,
}
