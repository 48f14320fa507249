//! The conformance suite, which each backend's tests instantiate by [`conformance_tests!`](crate::conformance_tests).
//!
//! Each function walks the rows of one class in the op table over shapes (empty, scalar, broadcast, large), layouts
//! (contiguous, transposed, strided, reversed) and every accepted dtype, and compares with [`oracle`]. A new
//! elementwise row needs no change here.

pub mod host;
pub mod oracle;
mod programs;
mod suite;
mod windows;

pub use programs::programs;
pub use suite::{
    LAYOUTS, MEMORY_BYTES, OperandLayout, TestNumbers, affine_maps, alignments, arg_reductions, cancellations, casts,
    compare, complex_products, concatenations, converting_reductions, creations, divisions_by_zero, elementwise,
    elementwise_edges, elementwise_large, fourier_transforms, gathers, lstm_cells, matmuls, memory_limit, movements,
    operands_given_up, positions, randoms, real_fourier_transforms, reductions, reductions_large, result, scans,
    scatters, searches, selections, slice_scatters, sorts, transfers,
};
pub use windows::{WINDOWS, WindowSizes, window_spec};

/// Makes one test of each function of the suite. `$make` is an expression for a new backend with a memory limit of
/// [`MEMORY_BYTES`].
#[macro_export]
macro_rules! conformance_tests {
    ($make:expr) => {
        $crate::conformance_tests!($make;
            elementwise, elementwise_large, elementwise_edges, operands_given_up, casts, selections, reductions,
            reductions_large, converting_reductions, arg_reductions, movements, slice_scatters, concatenations, matmuls, affine_maps, gathers, scatters,
            scans, sorts, searches, fourier_transforms, real_fourier_transforms, alignments, lstm_cells, complex_products, positions, creations, randoms, transfers, divisions_by_zero, memory_limit,
            programs, cancellations
        );
    };
    ($make:expr; $($name:ident),*) => {
        $(#[test]
        fn $name() {
            $crate::conformance::$name(&mut $make);
        })*
    };
}
