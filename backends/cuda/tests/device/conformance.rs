//! The CUDA backend passes the conformance suite.

use crate::{Multiplier, open};
use gt_backend::conformance::MEMORY_BYTES;
use gt_cuda::CudaBackend;

fn backend() -> CudaBackend {
    let mut backend = open(MEMORY_BYTES, Multiplier::Kernels).backend;
    backend.compile_programs_at_once();
    backend
}

gt_backend::conformance_tests!(
    backend();
    arg_reductions,
    casts,
    concatenations,
    creations,
    divisions_by_zero,
    elementwise,
    elementwise_edges,
    elementwise_large,
    fourier_transforms,
    alignments,
    lstm_cells,
    complex_products,
    matmuls,
    affine_maps,
    gathers,
    movements,
    operands_given_up,
    positions,
    programs,
    randoms,
    scatters,
    reductions,
    reductions_large, converting_reductions,
    scans,
    searches,
    selections,
    slice_scatters,
    sorts,
    transfers
);
