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
#![expect(clippy::too_many_arguments, non_snake_case, reason = "PyTorch's signatures")]

pub mod activations;
pub mod aten;
pub mod attention;
pub mod convolutions;
pub mod ctc;
pub mod declaration;
pub mod dropout;
pub mod einsum;
pub mod embeddings;
pub mod fft;
pub mod grid_sampling;
pub mod interpolation;
pub mod linear;
pub mod losses;
pub mod margin_losses;
pub mod matrix_functions;
pub mod normalization;
pub mod pixel_shuffle;
pub mod pooling;
pub mod products;
pub mod random;
pub mod reductions;
pub mod signal_windows;
pub mod sliding_windows;

use declaration::Function;
use std::collections::HashMap;
use std::sync::LazyLock;

/// The declarations, a group of functions each.
const GROUPS: &[&[Function]] = &[
    activations::FUNCTIONS,
    aten::FUNCTIONS,
    attention::FUNCTIONS,
    convolutions::FUNCTIONS,
    ctc::FUNCTIONS,
    dropout::FUNCTIONS,
    einsum::FUNCTIONS,
    embeddings::FUNCTIONS,
    fft::FUNCTIONS,
    grid_sampling::FUNCTIONS,
    interpolation::FUNCTIONS,
    linear::FUNCTIONS,
    losses::FUNCTIONS,
    margin_losses::FUNCTIONS,
    matrix_functions::FUNCTIONS,
    normalization::FUNCTIONS,
    pixel_shuffle::FUNCTIONS,
    pooling::FUNCTIONS,
    products::FUNCTIONS,
    random::FUNCTIONS,
    reductions::FUNCTIONS,
    signal_windows::FUNCTIONS,
    sliding_windows::FUNCTIONS,
];

/// All functions: the elementwise rows of the op table, unless a declaration has their name, and the declarations.
pub fn all() -> &'static [Function] {
    static ALL: LazyLock<Vec<Function>> = LazyLock::new(|| GROUPS.concat());
    &ALL
}

/// The name of a function among all: that of its declaration, with its module unless it is `nn.functional`, as in
/// `linalg_cross`.
pub fn full_name(function: &Function) -> String {
    match function.forms.module {
        "" | "nn.functional" => function.declared.to_owned(),
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
