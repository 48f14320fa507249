//! The CUDA backend, on an emulated device, passes the conformance suite.

use gt_backend::conformance::MEMORY_BYTES;
use gt_cuda::CudaBackend;
use gt_cuda::driver::emulated::{Emulated, Gxx, test_store};
use std::sync::Arc;

fn backend() -> CudaBackend {
    let driver = Arc::new(Emulated::new(4 * MEMORY_BYTES));
    let mut backend = CudaBackend::new(driver, Box::new(Gxx), test_store(), MEMORY_BYTES).expect("an emulated device");
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
    matmuls,
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
