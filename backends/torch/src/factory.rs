//! The backend's entries in the registry: a kind of worker for each kind of device that PyTorch has.

use crate::backend::TorchBackend;
use crate::interpreter::{DeviceReport, InterpreterOptions, START_DEADLINE};
use gt_backend::{
    Backend, BackendFactory, BackendFacts, Capabilities, DeviceDescription, OpenOptions, OpenedBackend, Site,
};

/// Gigaflops and gigabytes a second of a processor and of a small GPU: estimates, which the times of steps correct.
const PROCESSOR: (f64, f64) = (100.0, 10.0);
const SMALL_GPU: (f64, f64) = (8_000.0, 400.0);

/// One factory for each kind of device.
macro_rules! factories {
    ($($(#[$doc:meta])* $factory:ident: $name:literal, $device:literal, $numbered:literal, $rates:ident, $help:literal;)+) => {$(
        $(#[$doc])*
        pub struct $factory;

        impl BackendFactory for $factory {
            type Backend = TorchBackend;

            const FACTS: BackendFacts = BackendFacts {
                name: $name,
                worker_prefix: $name,
                site: Site::Device,
                help: $help,
                unavailable: None,
                ready_deadline: START_DEADLINE,
                rates: |_| $rates,
                // To ask PyTorch for its devices takes as long as to start the worker, which says what it lacks.
                discovery: None,
                is_numbered: $numbered,
            };

            fn open(options: &OpenOptions) -> Result<OpenedBackend<TorchBackend>, String> {
                let device = if $numbered { format!("{}:{}", $device, options.device) } else { $device.into() };
                open(device, options, $rates)
            }
        }
    )+};
}

factories! {
    /// PyTorch on the processor.
    TorchCpuFactory: "torch-cpu", "cpu", false, PROCESSOR, "torch-cpu:1 computes with PyTorch on the processor";
    /// PyTorch on an NVIDIA device.
    TorchCudaFactory: "torch-cuda", "cuda", true, SMALL_GPU, "torch-cuda:0 with PyTorch on an NVIDIA device";
    /// PyTorch on an AMD device, which PyTorch calls `cuda`.
    TorchHipFactory: "torch-hip", "hip", true, SMALL_GPU, "torch-hip:0 on an AMD device";
    /// PyTorch on an Intel device.
    TorchXpuFactory: "torch-xpu", "xpu", true, SMALL_GPU, "torch-xpu:0 on an Intel device";
    /// PyTorch on Apple's Metal.
    TorchMpsFactory: "torch-mps", "mps", false, SMALL_GPU, "torch-mps on Apple's Metal";
}

fn open(
    device: String,
    options: &OpenOptions,
    (gflops, gbytes_per_s): (f64, f64),
) -> Result<OpenedBackend<TorchBackend>, String> {
    let limit = (options.memory_bytes_limit > 0).then_some(options.memory_bytes_limit);
    let on_processor = device == "cpu";
    let (backend, report) = TorchBackend::open(&InterpreterOptions::on(device), limit)?;
    let DeviceReport { torch, name, memory_bytes, capability, multiprocessors, missing } = report;
    tracing::info!(target: "gtd::worker", torch, device = name, process = backend.process_id(), "PyTorch is ready");
    if !missing.is_empty() {
        tracing::warn!(target: "gtd::worker", ?missing, "PyTorch's process has no function for some ops");
    }
    let memory_bytes_limit = backend.memory().limit_bytes as u64;
    let capabilities = Capabilities { memory_bytes_limit, gflops, gbytes_per_s };
    let device = (!on_processor).then_some(DeviceDescription { name, capability, multiprocessors, memory_bytes });
    Ok(OpenedBackend { backend, capabilities, device })
}
