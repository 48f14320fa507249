//! Every kernel compiles to code for the devices of today, on a machine that has none.
#![expect(clippy::print_stdout, reason = "a test that is skipped says why")]

use gt_cuda::compile::Nvrtc;
use gt_cuda::kernels::{Key, catalogue, source};
use gt_cuda::program::{Program, Step, Value, Walk};
use gt_ops::{DType, Op};
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
    // Those that only find their elements in another way than others do are compiled for one device.
    keys.retain(|key| capability == 90 || key.template.name != "elementwise" || key.variant & 0xff == 0);
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

/// `where(x < y, gelu(float(x * y)), number)`, of which the product and the choice are kept.
fn program(dtype: DType) -> Program {
    use Value::{Input, Step as Made};
    let step = |op, dtype, out, operands: &[Value]| Step { op, dtype, out, operands: operands.to_vec() };
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
    let Some(nvrtc) = nvrtc(90) else { return println!("skipped: as above") };
    for dtype in DType::ALL.into_iter().filter(|dtype| *dtype != DType::F32) {
        for walk in Walk::ALL {
            let program = program(dtype);
            let name = program.name();
            assert_eq!(name, "gt_fused_mul_cast_gelu_lt_where");
            nvrtc.compile_verbosely(&name, &program.source(walk)).unwrap_or_else(|e| panic!("{dtype}, {walk:?}: {e}"));
        }
    }
}
