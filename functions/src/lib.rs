//! Every public function of GT.
//!
//! A function is one declaration in one file: its signature with PyTorch's defaults, its documentation, the forms in
//! which it is offered (function, method, in place, `out=`) and its body, a few lines over [`gt_ops::expr`].
//! Elementwise primitives are declared by their row in the op table. From the table here follow the Python functions
//! and methods, the parsing of their arguments, the type stubs, the functions of `gt.h`, the reference pages and what
//! tests enumerate. To add a function, add its declaration to the file of its group.
//!
//! This crate must not know Python, C, sessions or devices: a function's body emits instructions to a
//! [`gt_ops::Graph`]. Start at [`declaration`], then read `reductions.rs`.
#![forbid(unsafe_code)]
#![expect(clippy::too_many_arguments, clippy::extra_unused_lifetimes, non_snake_case, reason = "PyTorch's signatures")]

pub mod activations;
pub mod advanced_indexing;
pub mod aten;
pub mod attention;
pub mod boxes;
mod common;
pub(crate) mod complex_matrices;
pub mod complex_ops;
pub mod convolutions;
pub mod creation;
pub mod ctc;
pub mod declaration;
pub mod decompositions;
pub(crate) mod dense;
pub mod dropout;
pub mod einsum;
pub(crate) mod elimination;
pub mod embeddings;
pub mod factored;
pub mod fft;
pub(crate) mod general_eigen;
pub mod grid_sampling;
pub mod histograms;
pub mod indexing;
pub mod interpolation;
pub mod joining;
pub mod linalg;
pub mod linear;
pub mod losses;
pub mod margin_losses;
pub mod masked;
pub mod masks;
pub mod matrix_functions;
pub mod matrix_norms;
pub mod normalization;
pub mod norms;
pub mod padding;
pub mod pixel_shuffle;
pub mod pointwise;
pub mod polynomials;
pub mod pooling;
pub mod products;
pub mod random;
pub mod recurrent;
pub mod reductions;
pub(crate) mod reflections;
pub(crate) mod registers;
pub mod scans;
pub mod scattering;
pub mod shape;
pub mod signal_windows;
pub mod sliding_windows;
pub mod sorting;
pub mod special;
pub mod stft;
pub(crate) mod symmetric_eigen;
mod tridiagonal;

use declaration::{Body, Function, Returns};
use gt_ops::row::{ROWS, Row};
use std::collections::HashMap;
use std::sync::LazyLock;

/// The declarations, a group of functions each.
const GROUPS: &[&[Function]] = &[
    activations::FUNCTIONS,
    aten::FUNCTIONS,
    attention::FUNCTIONS,
    boxes::FUNCTIONS,
    complex_ops::FUNCTIONS,
    convolutions::FUNCTIONS,
    ctc::FUNCTIONS,
    decompositions::FUNCTIONS,
    creation::FUNCTIONS,
    dropout::FUNCTIONS,
    einsum::FUNCTIONS,
    embeddings::FUNCTIONS,
    factored::FUNCTIONS,
    fft::FUNCTIONS,
    grid_sampling::FUNCTIONS,
    histograms::FUNCTIONS,
    indexing::FUNCTIONS,
    interpolation::FUNCTIONS,
    linalg::FUNCTIONS,
    joining::FUNCTIONS,
    linear::FUNCTIONS,
    losses::FUNCTIONS,
    margin_losses::FUNCTIONS,
    masks::FUNCTIONS,
    masked::FUNCTIONS,
    matrix_functions::FUNCTIONS,
    matrix_norms::FUNCTIONS,
    normalization::FUNCTIONS,
    norms::FUNCTIONS,
    padding::FUNCTIONS,
    pixel_shuffle::FUNCTIONS,
    pointwise::FUNCTIONS,
    polynomials::FUNCTIONS,
    pooling::FUNCTIONS,
    products::FUNCTIONS,
    random::FUNCTIONS,
    recurrent::FUNCTIONS,
    reductions::FUNCTIONS,
    scans::FUNCTIONS,
    signal_windows::FUNCTIONS,
    sliding_windows::FUNCTIONS,
    special::FUNCTIONS,
    stft::FUNCTIONS,
    scattering::FUNCTIONS,
    shape::FUNCTIONS,
    sorting::FUNCTIONS,
];

/// All functions: the declarations, and the elementwise rows of the op table that are public.
pub fn all() -> &'static [Function] {
    static ALL: LazyLock<Vec<Function>> = LazyLock::new(|| {
        let rows = ROWS.iter().filter(|row| row.forms.is_public()).map(elementwise);
        GROUPS.concat().into_iter().chain(rows).collect()
    });
    &ALL
}

/// The function of an elementwise row.
fn elementwise(row: &'static Row) -> Function {
    Function {
        declared: row.name,
        forms: row.forms,
        doc: Box::leak(row.document().into_boxed_str()),
        parameters: Vec::new,
        returns: Returns::Tensor,
        body: Body::Elementwise(row.op),
    }
}

/// The name of a function among all: that of its declaration, with its module unless it is `nn.functional`, as in
/// `linalg_cross`.
pub fn full_name(function: &Function) -> String {
    match function.forms.module {
        "" | "nn.functional" => function.declared.trim_end_matches('_').to_owned(),
        module => {
            let prefix = module.replace('.', "_");
            let own =
                function.declared.strip_prefix(&prefix).map_or(function.declared, |own| own.trim_start_matches('_'));
            format!("{prefix}_{own}")
        }
    }
}

/// The function with this [`full_name`].
pub fn by_full_name(name: &str) -> Option<&'static Function> {
    static BY_NAME: LazyLock<HashMap<String, &'static Function>> = LazyLock::new(|| {
        let mut names = HashMap::new();
        for function in all() {
            names.entry(full_name(function)).or_insert(function);
        }
        names
    });
    BY_NAME.get(name).copied()
}
