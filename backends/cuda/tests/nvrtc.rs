//! Every kernel compiles to code for the devices of today, on a machine that has none.
#![expect(clippy::print_stdout, reason = "a test that is skipped says why")]

use gt_cuda::compile::Nvrtc;
use gt_cuda::kernels::{Key, catalogue, source};
use std::path::PathBuf;

/// Kernels that are compiled as one program.
const BATCH: usize = 64;

fn nvrtc(capability: u32) -> Option<Nvrtc> {
    let folders = std::env::var_os("GT_CUDA_LIBRARIES")?;
    let names = ["libnvrtc.so.13", "libnvrtc.so.12"];
    let path: PathBuf = std::env::split_paths(&folders)
        .flat_map(|folder| names.map(|name| folder.join(name)))
        .find(|path| path.exists())
        .unwrap_or_else(|| panic!("no NVRTC in GT_CUDA_LIBRARIES={}", folders.display()));
    Some(Nvrtc::open(&path, capability).expect("a library that is NVRTC"))
}

fn all_compile(capability: u32) {
    let Some(nvrtc) = nvrtc(capability) else {
        return println!("skipped: GT_CUDA_LIBRARIES is not set to a folder with NVRTC, as `make test-rust` does");
    };
    let mut keys = catalogue();
    // While a kernel is being written: those alone whose template's name begins with this.
    if let Ok(beginning) = std::env::var("GT_KERNELS") {
        keys.retain(|key| key.template.name.starts_with(&beginning));
    }
    assert!(!keys.is_empty());
    let mut rest = &keys[..];
    while let Some(first) = rest.first() {
        let same = |key: &&Key| key.template == first.template;
        let count = rest.iter().take(BATCH).take_while(same).count();
        let (batch, after) = rest.split_at(count);
        let (image, _) = nvrtc.compile_verbosely(&first.name(), &source(batch)).unwrap_or_else(|e| panic!("{e}"));
        assert!(image.starts_with(b"\x7fELF"), "{} is no cubin", first.name());
        rest = after;
    }
}

#[test]
fn for_ampere() {
    all_compile(80);
}

#[test]
fn for_hopper() {
    all_compile(90);
}
