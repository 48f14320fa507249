//! The machine code of kernels has the instructions that their source is written for.

use gt_cuda::catalogue::{Claims, claims};
use gt_cuda::template::KernelKey;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// NVIDIA's disassembler: `bin` is beside the folder of the libraries.
fn disassembler() -> PathBuf {
    let folders = std::env::var_os("GT_CUDA_LIBRARIES").expect("as NVRTC");
    let mut paths = std::env::split_paths(&folders).map(|folder| folder.join("../bin/nvdisasm"));
    let found = paths.find(|path| path.exists());
    found.unwrap_or_else(|| {
        panic!("no ../bin/nvdisasm beside GT_CUDA_LIBRARIES={}: pip install nvidia-cuda-nvdisasm", folders.display())
    })
}

/// The instructions of each kernel of a cubin, without operands.
fn instructions(text: &str) -> BTreeMap<&str, Vec<&str>> {
    let mut kernels: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut now = None;
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix(".section\t.text.").or_else(|| line.strip_prefix(".section .text.")) {
            now = Some(kernels.entry(name.split([',', ' ', '\t']).next().unwrap_or_default()).or_default());
        } else if line.starts_with(".section\t") || line.starts_with(".section ") {
            now = None;
        } else if let (Some(of_kernel), Some((_, code))) = (&mut now, line.split_once("*/")) {
            // An instruction may have a predicate: `@!P0 LDG.E.128 R4, …`.
            let word = code.split_whitespace().find(|word| !word.starts_with('@'));
            of_kernel.extend(word.filter(|word| word.starts_with(|c: char| c.is_ascii_uppercase())));
        }
    }
    kernels
}

/// The claims of a kernel that its instructions do not keep.
fn broken(claims: Claims, code: &[&str]) -> Vec<&'static str> {
    let has = |opcode: &str, modifier: &str| {
        code.iter().any(|word| {
            let mut parts = word.trim_end_matches(';').split('.');
            parts.next() == Some(opcode) && (modifier.is_empty() || parts.any(|part| part == modifier))
        })
    };
    let mut broken = Vec::new();
    if claims.loads_16_bytes && !has("LDG", "128") {
        broken.push("it loads no 16 bytes at once (LDG.E.128)");
    }
    // Halves have one instruction, and tf32 another.
    let multiplies = has("HMMA", "16816") || has("HMMA", "1688") && has("HMMA", "TF32");
    if claims.tensor_cores && !(multiplies && has("LDSM", "4")) {
        broken.push("it uses no tensor cores (HMMA.16816 or HMMA.1688.TF32, LDSM.4)");
    }
    if claims.copies_behind && !has("LDGSTS", "128") {
        broken.push("it copies no 16 bytes to shared memory at once (LDGSTS.128)");
    }
    broken
}

/// Instructions that the code of these kernels lacks, a line for each.
pub fn lacking(image: &[u8], keys: &[KernelKey]) -> Vec<String> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    if keys.iter().all(|key| claims(key) == Claims::default()) {
        return Vec::new();
    }
    let file = std::env::temp_dir().join(format!("gt-sass-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed)));
    std::fs::write(&file, image).expect("a folder for temporary files");
    let output = Command::new(disassembler()).arg("-c").arg(&file).output().expect("nvdisasm runs");
    let _ = std::fs::remove_file(&file);
    assert!(output.status.success(), "nvdisasm: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let kernels = instructions(&text);
    let mut lacking = Vec::new();
    for key in keys {
        let name = key.name();
        let code = kernels.get(&*name).filter(|code| !code.is_empty());
        let code = code.unwrap_or_else(|| panic!("nvdisasm shows no code of {name}"));
        lacking.extend(broken(claims(key), code).iter().map(|why| format!("{name}: {why}")));
    }
    lacking
}

#[test]
fn claims_that_code_does_not_keep_are_named() {
    let text = "\t.section\t.text.gt_a,\"ax\",@progbits\n\t.sectioninfo\t@\"SHI_REGISTERS=24\"\n.text.gt_a:\n\
        /*0000*/                   MOV R1, c[0x0][0x28] ;\n\
        /*0010*/              @!P0 LDG.E.128.CONSTANT R4, [R2.64] ;\n\
        \t.section\t.text.gt_b,\"ax\"\n\
        /*0000*/                   LDG.E.64 R4, [R2.64] ;\n\
        /*0010*/                   HMMA.16816.F32 R4, R8, R2, R4 ;\n\
        \t.section\t.nv.info\n\
        /*0000*/                   LDG.E.128 R4, [R2.64] ;\n";
    let kernels = instructions(text);
    assert_eq!(kernels["gt_a"], ["MOV", "LDG.E.128.CONSTANT"]);
    let loads = Claims { loads_16_bytes: true, ..Claims::default() };
    assert_eq!(broken(loads, &kernels["gt_a"]), [""; 0]);
    assert_eq!(broken(loads, &kernels["gt_b"]).len(), 1);
    let all = Claims { loads_16_bytes: true, tensor_cores: true, copies_behind: true };
    assert_eq!(broken(all, &kernels["gt_b"]).len(), 3);
}
