//! The table of primitive ops. The row of an op has everything that GT knows about it, in the files beside this one.
//!
//! To add an op, add a row to the file of its subject:
//!
//! ```text
//! /// Hyperbolic tangent, elementwise.                    the summary, which `gt.h` and the reference page show too
//! ///
//! ///     output = (exp(input) - exp(-input)) / …         the rest of the docstring: a formula, and an example that a
//! ///                                                     test runs
//! /// Example:
//! ///     >>> gt.tanh(gt.tensor([-1.0, 0.0, 1.0]))
//! ///     tensor([-0.7616,  0.0000,  0.7616])
//! Tanh = 22, tanh(input) {                                the op, its wire id (never reused), name and operands
//!     real: |a| tanh(a),                                  what it computes
//!     grad: Wide(&[|c| c.grad * (1.0 - c.out() * c.out())]), the gradient, see [`crate::grad`]
//!     saves: Saves::OUTPUT,                               other fields of `Row`
//!     cost_flops: 10, reference: "np.tanh(a)",
//!     forms: forms::elementwise().in_place_function(),    the forms that Python has, and other names
//! }
//! ```
//!
//! The enum [`crate::Op`], the CPU and CUDA kernels, the functions and methods of Python, their docstrings, the C
//! functions and the per-op tests follow from the row.
//!
//! The formula of an elementwise row is an expression of Rust and of CUDA C++ alike: it calls the functions in
//! `formula.rs`, which CUDA and the CUDA backend's `math.cuh` and `special.cuh` have under the same names, and
//! operators. `num(0.5)` is a literal of the operands' type. The formula's keyword says for which dtypes it holds:
//!
//! | keyword | operands | result |
//! | --- | --- | --- |
//! | `real` | floats | a float |
//! | `int` | integers and bools | an integer |
//! | `number` | floats, integers and bools; an `int` formula after it replaces it for the latter two | as the operands |
//! | `test` | floats, integers and bools | a bool |
//!
//! A row of another class has no formula; it begins with its `class`. Such a row is no public function, nor is an
//! elementwise row whose function takes more arguments than operands, as `add`: `functions/` declares those.
//!
//! The rows are lists of tokens (X macros), because two modules expand them: [`crate::op`] makes the enum of ops, which
//! the gradients use, and [`crate::row`] makes the rows, which name the gradients.

pub(crate) mod activation;
pub(crate) mod arithmetic;
pub(crate) mod comparison;
pub(crate) mod contraction;
pub(crate) mod exponential;
pub(crate) mod indexing;
pub(crate) mod integer;
pub(crate) mod movement;
pub(crate) mod reduction;
pub(crate) mod row_wise;
pub(crate) mod special;
pub(crate) mod trigonometric;

/// Calls the macro `$callback` with `$args` and all rows, a pair of braces for each file.
macro_rules! op_table {
    ($callback:ident $($args:tt)*) => {
        $crate::table::gather! {
            [exponential trigonometric special arithmetic integer comparison activation
             reduction movement indexing contraction row_wise]
            $callback { $($args)* }
        }
    };
}
pub(crate) use op_table;

/// Appends the rows of the next file, or calls the callback when no file is left. The rows of a file begin with
/// `[num]`, the name of literals in its formulas: hygiene lets a macro bind only names that it is given.
macro_rules! gather {
    ([] $callback:ident { $($args:tt)* } $($files:tt)*) => { $callback! { $($args)* $($files)* } };
    ([$next:ident $($later:ident)*] $($gathered:tt)*) => {
        $crate::table::$next::rows! { [$($later)*] $($gathered)* }
    };
}
pub(crate) use gather;

/// The first paragraph of a doc comment.
macro_rules! summary {
    ([$($line:tt)*]) => { concat!($($line),*) };
    ([$($line:tt)*] r"" $($rest:tt)*) => { concat!($($line),*) };
    ([$($line:tt)*] $next:tt $($rest:tt)*) => { $crate::table::summary!([$($line)* $next] $($rest)*) };
}
pub(crate) use summary;
