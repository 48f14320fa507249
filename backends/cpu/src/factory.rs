//! The CPU backend's entry in the registry of backends.

use crate::backend::{CpuBackend, CpuOptions};
use gt_backend::{BackendFactory, BackendFacts, Capabilities, OpenOptions, OpenedBackend, Site};
use std::time::Duration;

/// Opens [`CpuBackend`]s.
pub struct CpuFactory;

/// Estimated gigaflops of a thread.
const GFLOPS_PER_THREAD: f64 = 40.0;
/// Estimated gigabytes of memory a second that all threads move together.
const GBYTES_PER_S: f64 = 16.0;

impl BackendFactory for CpuFactory {
    type Backend = CpuBackend;

    const FACTS: BackendFacts = BackendFacts {
        name: "cpu",
        worker_prefix: "cpu",
        site: Site::Host,
        help: "cpu:N are N in the daemon, proc-cpu:N are N in processes of their own, as in cpu:1,proc-cpu:2",
        unavailable: None,
        ready_deadline: Duration::from_secs(10),
        rates: |threads| (GFLOPS_PER_THREAD * f64::from(threads), GBYTES_PER_S),
        discovery: None,
        is_numbered: false,
    };

    fn open(options: &OpenOptions) -> Result<OpenedBackend<CpuBackend>, String> {
        let capabilities =
            Capabilities::estimated(&CpuFactory::FACTS, options.threads as u32, options.memory_bytes_limit as u64);
        let options = CpuOptions {
            threads: options.threads,
            memory_bytes_limit: options.memory_bytes_limit,
            shared: options.shared.clone(),
        };
        Ok(OpenedBackend { backend: CpuBackend::new(options), capabilities, device: None })
    }
}
