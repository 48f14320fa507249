//! Properties of each op: its class, dtypes, kernels and gradient, made of the table in `table.rs`.

use crate::dtype::{DType, DTypeSet};
use crate::grad::{self, GradFn, row_wise};
use crate::math::{Int, Real};
use crate::op::Op;
use crate::table::op_table;

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
    /// The dtype in the attributes.
    Attr,
}

/// The tensors that a gradient needs from the forward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Saves {
    /// Bit `i` is set: operand `i` is saved.
    pub inputs: u8,
    /// The result is saved.
    pub output: bool,
}

impl Saves {
    /// Only shapes and dtypes, which are always saved.
    pub const NOTHING: Saves = Saves { inputs: 0, output: false };
    /// The result is saved.
    pub const OUTPUT: Saves = Saves { inputs: 0, output: true };
    /// The operands in `mask`.
    pub const fn inputs(mask: u8) -> Saves {
        Saves { inputs: mask, output: false }
    }
}

/// One row of the op table.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The op.
    pub op: Op,
    /// Its name: PyTorch's, where PyTorch has the op.
    pub name: &'static str,
    /// One sentence on what it computes.
    pub doc: &'static str,
    /// Its class.
    pub class: Class,
    /// Number of operands; for `cat`, the minimum.
    pub operands: u8,
    /// Number of optional operands.
    pub optional: u8,
    /// The kind of its attributes.
    pub attrs: AttrKind,
    /// The dtypes it computes in.
    pub accepts: DTypeSet,
    /// The rule that promotes its operands to one of these dtypes.
    pub promotion: Promotion,
    /// The dtype of its result.
    pub result: ResultDType,
    /// Estimated floating-point operations per element; an exponential counts 8.
    pub cost_flops: u16,
    /// Its gradient, if it has one.
    pub grad: Option<GradFn>,
    /// The tensors that the gradient needs from the forward pass.
    pub saves: Saves,
    /// The same computation as a NumPy expression over float64 arrays `a`, `b`, `c` (and `axis`, `keepdims`), for the
    /// tests.
    pub reference: &'static str,
    /// The computation of an elementwise row on floats, as a C++ expression over `a`, `b` and `c` of type `R`, float or
    /// double. It may use CUDA's functions and those of the CUDA backend's `math.cuh` and `special.cuh`.
    pub cuda: &'static str,
    /// The computation on integers, of type `I`. Bools compute as C++ bools: nonzero counts as 1.
    pub cuda_int: &'static str,
    /// The interval from which tests draw each operand: outside of it the op is undefined in PyTorch, or its gradient
    /// is too steep to compare.
    pub domain: [(f64, f64); 3],
    /// Integer division by zero is an error: the second operand must not be 0 when it is an integer.
    pub divisor_nonzero: bool,
}

impl Row {
    /// Whether it sums products, whose precision [`crate::Instruction::tf32`] sets.
    pub fn multiplies(&self) -> bool {
        matches!(self.class, Class::Contraction | Class::Convolution)
    }

    /// Whether instructions on operands of `dtype` can be fused: each element of the result depends on the operands'
    /// elements at its index alone, and the computation cannot fail.
    pub fn fuses(&self, dtype: DType) -> bool {
        (dtype.is_float() || !self.divisor_nonzero)
            && matches!(self.class, Class::Elementwise | Class::Select | Class::Cast)
    }
}

const EVERYWHERE: [(f64, f64); 3] = [(-3.0, 3.0); 3];
const INSIDE: [(f64, f64); 3] = [(-0.9, 0.9); 3];
const POSITIVE: [(f64, f64); 3] = [(0.2, 4.0), (-2.0, 2.0), (-3.0, 3.0)];

const BASE: Row = Row {
    op: Op::Neg,
    name: "",
    doc: "",
    class: Class::Elementwise,
    operands: 1,
    optional: 0,
    attrs: AttrKind::None,
    accepts: DTypeSet::ALL,
    promotion: Promotion::Common,
    result: ResultDType::Same,
    cost_flops: 1,
    grad: None,
    saves: Saves::NOTHING,
    reference: "",
    cuda: "",
    cuda_int: "",
    domain: EVERYWHERE,
    divisor_nonzero: false,
};

const OF_REALS: Row = Row { accepts: DTypeSet::FLOAT, promotion: Promotion::Float, ..BASE };
const OF_INTS: Row = Row { accepts: DTypeSet::INT_BOOL, ..BASE };

/// The computation of an op on floats. `f16` and `bf16` compute in `f32`.
pub trait RealKernel<const N: usize> {
    /// The result for one element.
    fn real<R: Real>(operands: [R; N]) -> R;
}
/// The computation of an op on integers. Bools compute as 0 and 1; any other result counts as 1.
pub trait IntKernel<const N: usize> {
    /// The result for one element.
    fn int<I: Int>(operands: [I; N]) -> I;
}
/// The computation of an op whose result is a bool.
pub trait TestKernel<const N: usize> {
    /// The result for one float element.
    fn real<R: Real>(operands: [R; N]) -> bool;
    /// The result for one integer element.
    fn int<I: Int>(operands: [I; N]) -> bool;
}

#[inline(always)]
fn gelu_slope<R: Real>(a: R) -> R {
    let half = R::from_f64(0.5);
    let density = R::from_f64(0.398_942_280_401_432_7) * (-(half * a * a)).exp();
    a.normal_cdf() + a * density
}

#[inline(always)]
fn gelu_tanh_slope<R: Real>(a: R) -> R {
    let (two, k) = (R::from_f64(2.0), R::from_f64(0.797_884_560_802_865_4));
    // Beyond the bound the derivative is 0 or 1 to the last bit; the square of x could overflow.
    let bound = R::from_f64(30.0);
    let x = a.maximum(-bound).minimum(bound);
    let square = x * x;
    let u = k * x * (R::ONE + R::from_f64(0.044715) * square);
    // (1 + tanh(u)) / 2 as a sigmoid: the sum would cancel where tanh(u) is near -1.
    let below = R::ONE / (R::ONE + (-(two * u)).exp());
    below + two * x * below * (R::ONE - below) * k * (R::ONE + R::from_f64(3.0 * 0.044715) * square)
}

/// Turns the rows of the table into [`ROWS`], the kernels and the callback macro `for_each_elementwise!`.
macro_rules! define_rows {
    ($d:tt
     real1 { $($r1:ident = $r1w:literal, $r1n:literal, $r1d:literal, |$r1a:ident| $r1e:expr, { $($r1f:tt)* };)* }
     real2 { $($r2:ident = $r2w:literal, $r2n:literal, $r2d:literal, |$r2a:ident, $r2b:ident| $r2e:expr, { $($r2f:tt)* };)* }
     real3 { $($r3:ident = $r3w:literal, $r3n:literal, $r3d:literal, |$r3a:ident, $r3b:ident, $r3c:ident| $r3e:expr, { $($r3f:tt)* };)* }
     map1 { $($m1:ident = $m1w:literal, $m1n:literal, $m1d:literal, real |$m1a:ident| $m1e:expr, int |$m1ia:ident| $m1ie:expr, { $($m1f:tt)* };)* }
     map2 { $($m2:ident = $m2w:literal, $m2n:literal, $m2d:literal, real |$m2a:ident, $m2b:ident| $m2e:expr, int |$m2ia:ident, $m2ib:ident| $m2ie:expr, { $($m2f:tt)* };)* }
     map3 { $($m3:ident = $m3w:literal, $m3n:literal, $m3d:literal, real |$m3a:ident, $m3b:ident, $m3c:ident| $m3e:expr, int |$m3ia:ident, $m3ib:ident, $m3ic:ident| $m3ie:expr, { $($m3f:tt)* };)* }
     int1 { $($i1:ident = $i1w:literal, $i1n:literal, $i1d:literal, |$i1a:ident| $i1e:expr, { $($i1f:tt)* };)* }
     int2 { $($i2:ident = $i2w:literal, $i2n:literal, $i2d:literal, |$i2a:ident, $i2b:ident| $i2e:expr, { $($i2f:tt)* };)* }
     test1 { $($t1:ident = $t1w:literal, $t1n:literal, $t1d:literal, real |$t1a:ident| $t1e:expr, int |$t1ia:ident| $t1ie:expr, { $($t1f:tt)* };)* }
     test2 { $($t2:ident = $t2w:literal, $t2n:literal, $t2d:literal, real |$t2a:ident, $t2b:ident| $t2e:expr, int |$t2ia:ident, $t2ib:ident| $t2ie:expr, { $($t2f:tt)* };)* }
     other { $($o:ident = $ow:literal, $on:literal, $od:literal, { $($of:tt)* };)* }
    ) => {
        /// All rows, in the order of the table.
        pub static ROWS: &[Row] = &[
            $(Row { op: Op::$r1, name: $r1n, doc: $r1d, $($r1f)*, ..OF_REALS },)*
            $(Row { op: Op::$r2, name: $r2n, doc: $r2d, operands: 2, $($r2f)*, ..OF_REALS },)*
            $(Row { op: Op::$r3, name: $r3n, doc: $r3d, operands: 3, $($r3f)*, ..OF_REALS },)*
            $(Row { op: Op::$m1, name: $m1n, doc: $m1d, $($m1f)*, ..BASE },)*
            $(Row { op: Op::$m2, name: $m2n, doc: $m2d, operands: 2, $($m2f)*, ..BASE },)*
            $(Row { op: Op::$m3, name: $m3n, doc: $m3d, operands: 3, $($m3f)*, ..BASE },)*
            $(Row { op: Op::$i1, name: $i1n, doc: $i1d, $($i1f)*, ..OF_INTS },)*
            $(Row { op: Op::$i2, name: $i2n, doc: $i2d, operands: 2, $($i2f)*, ..OF_INTS },)*
            $(Row { op: Op::$t1, name: $t1n, doc: $t1d, result: ResultDType::Bool, $($t1f)*, ..BASE },)*
            $(Row { op: Op::$t2, name: $t2n, doc: $t2d, operands: 2, result: ResultDType::Bool, $($t2f)*, ..BASE },)*
            $(Row { op: Op::$o, name: $on, doc: $od, $($of)*, ..BASE },)*
        ];

        /// The computation of each elementwise op: one type per op, named as its variant of [`Op`].
        pub mod kernels {
            use crate::math::{Int, Real};
            use crate::row::{IntKernel, RealKernel, TestKernel, gelu_slope, gelu_tanh_slope};
            use crate::special;
            $(#[doc = $r1d] pub struct $r1;
            impl RealKernel<1> for $r1 { #[inline(always)] fn real<R: Real>([$r1a]: [R; 1]) -> R { $r1e } })*
            $(#[doc = $r2d] pub struct $r2;
            impl RealKernel<2> for $r2 { #[inline(always)] fn real<R: Real>([$r2a, $r2b]: [R; 2]) -> R { $r2e } })*
            $(#[doc = $r3d] pub struct $r3;
            impl RealKernel<3> for $r3 { #[inline(always)] fn real<R: Real>([$r3a, $r3b, $r3c]: [R; 3]) -> R { $r3e } })*
            $(#[doc = $m1d] pub struct $m1;
            impl RealKernel<1> for $m1 { #[inline(always)] fn real<R: Real>([$m1a]: [R; 1]) -> R { $m1e } }
            impl IntKernel<1> for $m1 { #[inline(always)] fn int<I: Int>([$m1ia]: [I; 1]) -> I { $m1ie } })*
            $(#[doc = $m2d] pub struct $m2;
            impl RealKernel<2> for $m2 { #[inline(always)] fn real<R: Real>([$m2a, $m2b]: [R; 2]) -> R { $m2e } }
            impl IntKernel<2> for $m2 { #[inline(always)] fn int<I: Int>([$m2ia, $m2ib]: [I; 2]) -> I { $m2ie } })*
            $(#[doc = $m3d] pub struct $m3;
            impl RealKernel<3> for $m3 { #[inline(always)] fn real<R: Real>([$m3a, $m3b, $m3c]: [R; 3]) -> R { $m3e } }
            impl IntKernel<3> for $m3 { #[inline(always)] fn int<I: Int>([$m3ia, $m3ib, $m3ic]: [I; 3]) -> I { $m3ie } })*
            $(#[doc = $i1d] pub struct $i1;
            impl IntKernel<1> for $i1 { #[inline(always)] fn int<I: Int>([$i1a]: [I; 1]) -> I { $i1e } })*
            $(#[doc = $i2d] pub struct $i2;
            impl IntKernel<2> for $i2 { #[inline(always)] fn int<I: Int>([$i2a, $i2b]: [I; 2]) -> I { $i2e } })*
            $(#[doc = $t1d] pub struct $t1;
            impl TestKernel<1> for $t1 {
                #[inline(always)] fn real<R: Real>([$t1a]: [R; 1]) -> bool { $t1e }
                #[inline(always)] fn int<I: Int>([$t1ia]: [I; 1]) -> bool { $t1ie }
            })*
            $(#[doc = $t2d] pub struct $t2;
            impl TestKernel<2> for $t2 {
                #[inline(always)] fn real<R: Real>([$t2a, $t2b]: [R; 2]) -> bool { $t2e }
                #[inline(always)] fn int<I: Int>([$t2ia, $t2ib]: [I; 2]) -> bool { $t2ie }
            })*
        }

        /// Calls a macro with the names of all elementwise ops, grouped by kind of kernel, so that a backend
        /// instantiates every kernel without naming any.
        #[macro_export]
        macro_rules! for_each_elementwise {
            ($d callback:ident) => {
                $d callback! {
                    real1 { $($r1)* } real2 { $($r2)* } real3 { $($r3)* } map1 { $($m1)* } map2 { $($m2)* } map3 { $($m3)* }
                    int1 { $($i1)* } int2 { $($i2)* } test1 { $($t1)* } test2 { $($t2)* }
                }
            };
        }
    };
}

op_table!(define_rows $);

impl Op {
    /// The op's row, found in constant time.
    #[inline]
    pub fn row(self) -> &'static Row {
        &ROWS[self.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_op_is_found_by_wire_id_and_name_and_has_a_doc_line() {
        for row in ROWS {
            assert_eq!(Op::from_wire(row.op as u16), Some(row.op));
            assert_eq!(Op::from_name(row.name), Some(row.op), "two rows are called {}", row.name);
            assert!(row.doc.ends_with('.') || row.doc.ends_with('…'), "{}: {}", row.name, row.doc);
            assert!(row.class == Class::Random || !row.reference.is_empty(), "{} has no reference", row.name);
            assert!(row.op as u16 >= crate::wire::CONTROL_IDS, "{} takes a control id", row.name);
        }
        assert_eq!(Op::from_wire(9999), None);
    }

    #[test]
    fn elementwise_rows_and_no_others_have_cuda_expressions() {
        for row in ROWS {
            let elementwise = row.class == Class::Elementwise;
            let computes_on = |dtypes: DTypeSet| elementwise && dtypes.iter().any(|dtype| row.accepts.contains(dtype));
            assert_eq!(!row.cuda.is_empty(), computes_on(DTypeSet::FLOAT), "{} on floats: {:?}", row.name, row.cuda);
            assert_eq!(!row.cuda_int.is_empty(), computes_on(DTypeSet::INT_BOOL), "{} on integers", row.name);
            for expression in [row.cuda, row.cuda_int].into_iter().filter(|e| !matches!(*e, "" | "true" | "false")) {
                let words: Vec<&str> = expression.split(|c: char| !(c.is_alphanumeric() || c == '_')).collect();
                for (i, operand) in ["a", "b", "c"].into_iter().enumerate() {
                    assert_eq!(words.contains(&operand), i < row.operands as usize, "{}: {operand}", row.name);
                }
            }
        }
    }

    #[test]
    fn saved_operands_exist_and_only_differentiable_ops_save() {
        for row in ROWS {
            assert_eq!(row.saves.inputs >> (row.operands + row.optional), 0, "{}", row.name);
            assert!(row.grad.is_some() || row.saves == Saves::NOTHING, "{}", row.name);
        }
    }
}
