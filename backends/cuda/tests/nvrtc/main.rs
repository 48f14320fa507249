//! Every kernel compiles with NVRTC for current devices, on a machine without one: within its budget of registers and
//! memory, and to the instructions that its source is written for.
//!
//! `make kernel-resources` compiles every kernel for the oldest devices and for each architecture of `resources.txt`,
//! and writes there what kernels take and a digest of the sources of each template. `cargo test` compiles:
//!
//! - of a template whose digest is the table's, one kernel of every kind (dtypes) for 8.0 or 9.0, by turns, so that
//!   another NVRTC or a mistake in the way to it is found;
//! - a template whose digest is another in full for both, and fails until the table is written again;
//! - one kernel of every kind for the oldest devices, and fused programs for 9.0.
//!
//! All that is compiled is compared with the table, and its instructions with what the kernels claim.
//!
//! `GT_KERNELS=NAME` restricts both to the templates whose name begins so. `cargo test` then compiles them in full,
//! whatever their digest: `GT_KERNELS=` does so with all, after a change to what the tests check.
#![expect(clippy::print_stdout, reason = "a test that is skipped says why")]

mod digests;
mod prebuilt;
mod resources;
mod sass;

use gt_cuda::catalogue::{catalogue, claims};
use gt_cuda::compile::{Architecture, Nvrtc};
use gt_cuda::program::{Program, ProgramStep, ProgramValue, Traversal};
use gt_cuda::template::{KernelKey, source};
use gt_nvidia::NVRTC;
use gt_ops::{DType, Op};
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// The oldest capability, as NVRTC names it.
pub const OLDEST: u32 = 10 * gt_nvidia::CAPABILITY_MIN.0 + gt_nvidia::CAPABILITY_MIN.1;
/// Kernels that are compiled as one program.
const BATCH: usize = 64;

/// The path of NVRTC; none if no folder is named.
fn library() -> Option<PathBuf> {
    let folders = std::env::var_os("GT_CUDA_LIBRARIES")?;
    let names = ["libnvrtc.so.13", "libnvrtc.so.12"];
    let path = std::env::split_paths(&folders)
        .flat_map(|folder| names.map(|name| folder.join(name)))
        .find(|path| path.exists())
        .unwrap_or_else(|| panic!("no NVRTC in GT_CUDA_LIBRARIES={}", folders.display()));
    Some(path)
}

fn nvrtc(capability: u32) -> Option<Nvrtc> {
    let path = library()?;
    Some(Nvrtc::open(&path, Architecture::Device(capability)).expect("a library that is NVRTC"))
}

/// The findings about kernels that NVRTC has compiled.
struct Compiled {
    /// The log of `ptxas`.
    log: String,
    /// Instructions that the kernels' code lacks, a line for each.
    lacking: Vec<String>,
}

/// Compiles the kernels on all processors.
fn compile(capability: u32, keys: &[KernelKey]) -> Option<Compiled> {
    assert!(!keys.is_empty());
    nvrtc(capability)?;
    let mut batches: Vec<&[KernelKey]> = Vec::new();
    for of_template in keys.chunk_by(|a, b| a.template == b.template) {
        batches.extend(of_template.chunks(BATCH));
    }
    let (next, made) = (AtomicUsize::new(0), Mutex::new(Compiled { log: String::new(), lacking: Vec::new() }));
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let nvrtc = nvrtc(capability).expect("as before").with_options(&["-Xptxas=-v"]);
                while let Some(batch) = batches.get(next.fetch_add(1, Relaxed)) {
                    let name = batch[0].name();
                    let compiled = nvrtc.compile_verbosely(&name, &source(batch));
                    let (image, log) = compiled.unwrap_or_else(|e| panic!("{e}"));
                    assert!(image.starts_with(b"\x7fELF"), "{name} is no cubin");
                    let lacking = sass::lacking(&image, batch);
                    let mut made = made.lock().unwrap_or_else(PoisonError::into_inner);
                    made.log.push_str(&log);
                    made.lacking.extend(lacking);
                }
            });
        }
    });
    Some(made.into_inner().expect("no thread has failed"))
}

/// Set, while kernels are being written, to the beginning of the names of their templates.
const KERNELS_VARIABLE: &str = "GT_KERNELS";

/// Restricts the kernels to the templates whose name begins with `GT_KERNELS`.
fn asked_for(mut keys: Vec<KernelKey>) -> Vec<KernelKey> {
    if let Ok(beginning) = std::env::var(KERNELS_VARIABLE) {
        keys.retain(|key| key.template.name.starts_with(&beginning));
    }
    keys
}

/// Asserts that kernels near the register limit spill nothing to local memory, which is slow.
fn nothing_is_spilled(log: &str, keys: &[KernelKey]) {
    for key in keys.iter().filter(|key| key.template.name == "attention_mma") {
        let begins = format!("Function properties for {}\n", key.name());
        let (_, properties) = log.split_once(&begins).unwrap_or_else(|| panic!("nothing is said of {}", key.name()));
        let properties = properties.lines().next().unwrap_or_default();
        assert!(properties.contains("0 bytes spill stores"), "{}: {properties}", key.name());
        assert!(properties.contains(" 0 bytes stack frame"), "{}: {properties}", key.name());
    }
}

const SKIPPED: &str = "skipped: GT_CUDA_LIBRARIES is not set to a folder with NVRTC, as `make test-rust` does";

/// Asserts what is true of compiled kernels on the devices that their source is written for.
fn assert_as_written(keys: &[KernelKey], compiled: &Compiled) {
    nothing_is_spilled(&compiled.log, keys);
    assert!(compiled.lacking.is_empty(), "{}", compiled.lacking.join("\n"));
}

/// Compiles kernels for this capability, of every template, and checks what came of them.
fn every_kernel(capability: u32) {
    let Some(library) = library() else { return println!("{SKIPPED}") };
    let keys = asked_for(catalogue());
    let table = resources::text();
    let chosen = if std::env::var_os(KERNELS_VARIABLE).is_some() {
        keys.clone()
    } else {
        let found = digests::digests(&digests::compiler(&library), &keys);
        digests::to_compile(&digests::parse(&table), &found, capability, &keys)
    };
    println!("compiled for sm_{capability}: {} of {} kernels", chosen.len(), keys.len());
    let compiled = compile(capability, &chosen).expect("NVRTC, as before");
    assert_as_written(&chosen, &compiled);
    resources::assert_within_budget(&table, capability, &keys, &chosen, &compiled.log);
}

#[test]
fn every_kernel_for_ampere() {
    every_kernel(80);
}

#[test]
fn every_kernel_for_hopper() {
    every_kernel(90);
}

/// The kernels that a device of the oldest capability is given: those of tensor cores need a newer one.
pub fn without_tensor_cores(mut keys: Vec<KernelKey>) -> Vec<KernelKey> {
    keys.retain(|key| !claims(key).tensor_cores);
    keys
}

/// The oldest devices that can be used. `make kernel-resources` compiles every kernel for them; here, one of each
/// template and dtypes, since what may be missing there is a conversion or an atomic of a dtype.
#[test]
fn a_kernel_of_every_kind_for_the_oldest_devices() {
    let all = asked_for(without_tensor_cores(catalogue()));
    if compile(OLDEST, &digests::one_of_every_kind(&all)).is_none() {
        println!("{SKIPPED}");
    }
}

#[test]
fn devices_that_nvrtc_does_not_know_get_the_code_of_older_ones() {
    let Some(path) = library() else { return println!("{SKIPPED}") };
    let bound = |capability, driver| {
        let for_device = |opened| Nvrtc::for_device(opened, capability, driver);
        NVRTC.open_first(std::slice::from_ref(&path), for_device).map_err(|error| error.to_string())
    };
    let known = Nvrtc::open(&path, Architecture::Device(90)).expect("NVRTC");
    let (version, newest) =
        (known.version(), known.supported().expect("a list").into_iter().max().expect("an architecture"));
    let keys = &catalogue()[..1];
    for (capability, architecture) in [
        (OLDEST, Architecture::Device(OLDEST)),
        (90, Architecture::Device(90)),
        // A later device of a generation that it knows, and one of a later generation.
        (90 + 9, Architecture::Device(90)),
        (newest + 100, Architecture::Newer(newest)),
    ] {
        let nvrtc = bound(capability, version).unwrap_or_else(|error| panic!("{capability}: {error}"));
        assert_eq!(nvrtc.architecture(), architecture);
        let (image, _) =
            nvrtc.compile_verbosely(&keys[0].name(), &source(keys)).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(image.starts_with(b"\x7fELF"), matches!(architecture, Architecture::Device(_)));
    }
    let error = bound(OLDEST - 5, version).err().expect("a device that is too old");
    assert!(error.contains("which has no code for devices of capability 7.0"), "{error}");
    let error = bound(90, (version.0 - 1, 8)).err().expect("a driver that is older than NVRTC");
    assert!(error.contains("install a newer driver, or one of CUDA"), "{error}");
}

/// `where(x < y, gelu(float(x * y)), number)`, where the product and the result are kept.
fn program(dtype: DType) -> Program {
    use ProgramValue::{Input, Step as Made};
    let step = |op, dtype, out, operands: &[ProgramValue]| ProgramStep { op, dtype, out, operands: operands.to_vec() };
    let (inputs, f32) = (vec![dtype, dtype, DType::F32], DType::F32);
    let steps = vec![
        step(Op::Mul, dtype, dtype, &[Input(0), Input(1)]),
        step(Op::Cast, dtype, f32, &[Made(0)]),
        step(Op::Gelu, f32, f32, &[Made(1)]),
        step(Op::Lt, dtype, DType::Bool, &[Input(0), Input(1)]),
        step(Op::Where, f32, f32, &[Made(3), Made(2), Input(2)]),
    ];
    Program { inputs, steps, kept: vec![0, 4] }
}

#[test]
fn programs_of_several_instructions() {
    let Some(nvrtc) = nvrtc(90).map(|nvrtc| nvrtc.with_options(&["-Xptxas=-v"])) else { return println!("{SKIPPED}") };
    for dtype in DType::STORED.into_iter().filter(|dtype| *dtype != DType::F32) {
        for walk in Traversal::ALL {
            let program = program(dtype);
            let name = program.name();
            assert_eq!(name, "gt_fused_mul_cast_gelu_lt_where");
            let compiled = nvrtc.compile_verbosely(&name, &program.source(walk));
            let (_, log) = compiled.unwrap_or_else(|e| panic!("{dtype}, {walk:?}: {e}"));
            // The index of a part is known only when the kernel runs: its table must not be copied to the stack.
            let is_lean = log.contains(" 0 bytes stack frame, 0 bytes spill stores");
            assert!(is_lean || walk != Traversal::Gathered, "{dtype}, {walk:?}: {log}");
        }
    }
}
