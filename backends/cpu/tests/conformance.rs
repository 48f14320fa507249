//! The conformance suite of all backends, run on the CPU backend with one thread and with three.

use gt_backend::conformance::MEMORY_BYTES;
use gt_cpu::{CpuBackend, CpuOptions};

fn backend(threads: usize) -> CpuBackend {
    CpuBackend::new(CpuOptions { threads, memory_bytes_limit: MEMORY_BYTES, ..CpuOptions::default() })
}

mod one_thread {
    gt_backend::conformance_tests!(super::backend(1));
}

mod three_threads {
    gt_backend::conformance_tests!(super::backend(3));
}
