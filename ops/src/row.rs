//! Properties of each op: its class, dtypes, kernels and gradient, made of the table in `table/`.

pub use crate::class::{AttrKind, Class, Promotion, ResultDType};
use crate::dtype::{DType, DTypeSet};
use crate::forms::{self, Forms};
use crate::grad::Gradient::{self, Each, Joint, Wide};
use crate::grad::pointwise::{self, SQRT_2_OVER_PI, SQRT_2PI};
use crate::grad::structure::{self, zero};
use crate::grad::{row_wise, scatter};
use crate::integers::Int;
use crate::math::Real;
use crate::op::Op;
use crate::table::op_table;
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, LN_2, LN_10};

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
    /// The doc comment of its row: the sentence, then, for a row that is a public function, a formula and an example.
    /// [`Row::document`] makes the docstring of it.
    pub text: &'static str,
    /// The names of its operands, the optional ones last; those of the first arguments of the public function.
    pub parameters: &'static [&'static str],
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
    /// Its gradient.
    pub grad: Gradient,
    /// The tensors that the gradient needs from the forward pass.
    pub saves: Saves,
    /// The same computation as a NumPy expression over float64 arrays `a`, `b`, `c` (and `axis`, `keepdims`), for the
    /// tests.
    pub reference: &'static str,
    /// The formula of an elementwise row on floats, as a C++ expression over `a`, `b` and `c` of type `T`, float or
    /// double. It calls CUDA's functions and those of the CUDA backend's `math.cuh` and `special.cuh`.
    pub cuda: &'static str,
    /// The formula on integers. Bools compute as C++ bools: nonzero counts as 1.
    pub cuda_int: &'static str,
    /// The interval from which tests draw each operand: outside of it the op is undefined in PyTorch, or its gradient
    /// is too steep to compare.
    pub domain: [(f64, f64); 3],
    /// Integer division by zero is an error: the second operand must not be 0 when it is an integer.
    pub divisor_nonzero: bool,
    /// On half precisions, a number among the operands takes part as an f32; without it, the number is rounded to the
    /// operands' dtype first. Either is PyTorch's choice for the op.
    pub wide_numbers: bool,
    /// The forms of the public function that an elementwise row is; none where the function of this name is declared in
    /// `functions/`.
    pub forms: Forms,
    /// The public function takes a number as its first argument.
    pub number_first: bool,
    /// The public function takes no number as its second argument, only a tensor.
    pub tensors_only: bool,
}

impl Row {
    /// The row of `op`, with what its declaration says before its body.
    const fn of(
        self,
        op: Op,
        name: &'static str,
        parameters: &'static [&'static str],
        doc: &'static str,
        text: &'static str,
    ) -> Row {
        let operands = parameters.len() as u8 - self.optional;
        Row { op, name, parameters, doc: doc.trim_ascii(), text, operands, ..self }
    }

    /// Whether it sums products, whose precision [`crate::Instruction::tf32`] sets.
    pub fn multiplies(&self) -> bool {
        matches!(self.class, Class::Contraction | Class::Convolution) || self.attrs == AttrKind::Attention
    }

    /// Whether the result is the first operand with part of its elements replaced: it can be written in place, at the
    /// cost of the part.
    pub fn writes_part(&self) -> bool {
        matches!(self.class, Class::SliceScatter | Class::Scatter)
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
    text: "",
    parameters: &[],
    class: Class::Elementwise,
    operands: 0,
    optional: 0,
    attrs: AttrKind::None,
    accepts: DTypeSet::STORED,
    promotion: Promotion::Common,
    result: ResultDType::Same,
    cost_flops: 1,
    grad: Gradient::None,
    saves: Saves::NOTHING,
    reference: "",
    cuda: "",
    cuda_int: "",
    domain: EVERYWHERE,
    divisor_nonzero: false,
    wide_numbers: false,
    forms: forms::internal(),
    number_first: false,
    tensors_only: false,
};

const ELEMENTWISE: Row = Row { forms: forms::elementwise(), ..BASE };
const OF_REALS: Row = Row { accepts: DTypeSet::FLOAT, promotion: Promotion::Float, ..ELEMENTWISE };
const OF_INTS: Row = Row { accepts: DTypeSet::INT_BOOL, ..ELEMENTWISE };
const TESTS: Row = Row { result: ResultDType::Bool, ..ELEMENTWISE };

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

/// A row from its body: a formula, if its class is elementwise, and other fields of [`Row`].
macro_rules! row {
    (real: |$($x:ident),+| $formula:expr, $($fields:tt)*) => {
        Row { cuda: stringify!($formula), $($fields)* ..OF_REALS }
    };
    (int: |$($x:ident),+| $formula:expr, $($fields:tt)*) => {
        Row { cuda_int: stringify!($formula), $($fields)* ..OF_INTS }
    };
    (number: |$($x:ident),+| $real:expr, int: |$($i:ident),+| $int:expr, $($fields:tt)*) => {
        Row { cuda: stringify!($real), cuda_int: stringify!($int), $($fields)* ..ELEMENTWISE }
    };
    (number: |$($x:ident),+| $formula:expr, $($fields:tt)*) => {
        Row { cuda: stringify!($formula), cuda_int: stringify!($formula), $($fields)* ..ELEMENTWISE }
    };
    (test: |$($x:ident),+| $formula:expr, $($fields:tt)*) => {
        Row { cuda: stringify!($formula), cuda_int: stringify!($formula), $($fields)* ..TESTS }
    };
    ($($fields:tt)*) => {
        Row { $($fields)* ..BASE }
    };
}

/// The kernel of an elementwise row.
macro_rules! kernel {
    ($num:ident $op:ident real: |$($x:ident),+| $real:expr, $($fields:tt)*) => {
        impl RealKernel<{ count!($($x)+) }> for $op {
            function!($num real<R: Real>([$($x),+]) -> R { $real });
        }
    };
    ($num:ident $op:ident int: |$($x:ident),+| $int:expr, $($fields:tt)*) => {
        impl IntKernel<{ count!($($x)+) }> for $op {
            function!($num int<I: Int>([$($x),+]) -> I { $int });
        }
    };
    ($num:ident $op:ident number: |$($x:ident),+| $real:expr, int: |$($i:ident),+| $int:expr, $($fields:tt)*) => {
        kernel!($num $op real: |$($x),+| $real,);
        kernel!($num $op int: |$($i),+| $int,);
    };
    ($num:ident $op:ident number: |$($x:ident),+| $formula:expr, $($fields:tt)*) => {
        kernel!($num $op real: |$($x),+| $formula,);
        kernel!($num $op int: |$($x),+| $formula,);
    };
    ($num:ident $op:ident test: |$($x:ident),+| $formula:expr, $($fields:tt)*) => {
        impl TestKernel<{ count!($($x)+) }> for $op {
            function!($num real<R: Real>([$($x),+]) -> bool { $formula });
            function!($num int<I: Int>([$($x),+]) -> bool { $formula });
        }
    };
    ($num:ident $op:ident $($fields:tt)*) => {};
}

/// A function of a kernel. The functions that its formula calls, and `num`, are those of `formula::real` or
/// `formula::int`.
macro_rules! function {
    ($num:ident $kind:ident<$t:ident: $bound:ident>([$($x:ident),+]) -> $result:ty { $formula:expr }) => {
        #[inline(always)]
        fn $kind<$t: $bound>([$($x),+]: [$t; count!($($x)+)]) -> $result {
            use crate::formula::$kind::*;
            let $num = literal::<$t>;
            let _ = $num;
            $formula
        }
    };
}

macro_rules! count {
    ($($x:ident)*) => { [$(stringify!($x)),*].len() };
}

/// Turns the rows of the table into [`ROWS`], the kernels and the callback macro `for_each_elementwise!`.
macro_rules! define_rows {
    ($d:tt
     $({ [$num:ident]
        $(
            $(#[doc = $doc:tt])+
            $op:ident = $id:literal, $name:ident($($parameter:ident),*) { $kind:ident: $($body:tt)* }
        )*
     })*
    ) => {
        /// All rows, in the order of the table.
        pub static ROWS: &[Row] = &[$($(
            row!($kind: $($body)*).of(
                Op::$op,
                stringify!($name),
                &[$(stringify!($parameter)),*],
                $crate::table::summary!([] $($doc)+),
                concat!($($doc, "\n"),+),
            ),
        )*)*];

        /// The computation of each elementwise op: one type per op, named as its variant of [`Op`]. Those of other ops
        /// compute nothing.
        pub mod kernels {
            use crate::integers::Int;
use crate::math::Real;
            use crate::row::{IntKernel, RealKernel, TestKernel};
            $($(
                #[doc = $crate::table::summary!([] $($doc)+)]
                pub struct $op;
                kernel!($num $op $kind: $($body)*);
            )*)*
        }

        /// Calls a macro with `kind Op(operands);` of every op, so that a backend instantiates all elementwise kernels
        /// without naming any. The kind is `real`, `int`, `number` (both) or `test`, and `class` if the op is not
        /// elementwise.
        #[macro_export]
        macro_rules! for_each_elementwise {
            ($d callback:ident) => {
                $d callback! { $($($kind $op($($parameter),*);)*)* }
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
        }
        assert_eq!(Op::from_wire(9999), None);
    }

    #[test]
    fn elementwise_rows_and_no_others_have_formulas() {
        for row in ROWS {
            let elementwise = row.class == Class::Elementwise;
            let computes_on = |dtypes: DTypeSet| elementwise && row.accepts.intersects(dtypes);
            assert_eq!(!row.cuda.is_empty(), computes_on(DTypeSet::FLOAT), "{} on floats: {:?}", row.name, row.cuda);
            assert_eq!(!row.cuda_int.is_empty(), computes_on(DTypeSet::INT_BOOL), "{} on integers", row.name);
            for expression in [row.cuda, row.cuda_int].into_iter().filter(|expression| !expression.is_empty()) {
                let words: Vec<&str> = expression.split(|c: char| !(c.is_alphanumeric() || c == '_')).collect();
                for (i, operand) in ["a", "b", "c"].into_iter().enumerate() {
                    assert_eq!(words.contains(&operand), i < row.operands as usize, "{}: {operand}", row.name);
                }
            }
        }
    }

    #[test]
    fn names_and_aliases_are_unique_and_forms_fit() {
        let mut names: Vec<&str> =
            ROWS.iter().flat_map(|row| row.forms.aliases.iter().chain([&row.name])).copied().collect();
        names.sort_unstable();
        assert!(names.is_sorted_by(|a, b| a < b), "two rows have one name: {names:?}");
        for row in ROWS {
            assert!(row.class == Class::Elementwise || !row.forms.is_public(), "{} has forms", row.name);
            let Forms { function, method, in_place, in_place_function, out, .. } = row.forms;
            assert!(function || !(in_place_function || out), "{} has forms of a function, but is none", row.name);
            assert!(method || !in_place, "{} has an in-place method, but is none", row.name);
            assert!(function || row.forms.aliases.is_empty(), "{} is no function, but has aliases", row.name);
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
