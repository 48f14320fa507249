//! g++ as the compiler of an emulated device's kernels.

use super::checks::EmulatedChecks;
use super::scratch::scratch;
use crate::compile::compiler::{Compiler, Image};
use crate::compile::store::Store;
use crate::headers::HEADERS;
use gt_backend::ExecError;
use std::path::{Path, PathBuf};
use std::process::Command;

const FIBERS: &str = include_str!("fibers.h");
const EMULATOR: &str = include_str!("emulator.h");
const OPTIONS: [&str; 9] =
    ["-std=c++17", "-O1", "-w", "-shared", "-fPIC", "-ffp-contract=off", "-fno-strict-aliasing", "-xc++", "-fwrapv"];

/// g++ as a compiler of kernels, with the code of these checks.
#[derive(Clone, Copy, Debug)]
pub struct Gxx(pub EmulatedChecks);

impl Default for Gxx {
    fn default() -> Gxx {
        Gxx(EmulatedChecks::asked())
    }
}

/// The source with a function for each kernel that runs all threads of a launch.
fn wrapped(source: &str) -> String {
    let mut text = format!("#include \"emulator.h\"\n{source}");
    for name in kernel_names(source) {
        text.push_str(&format!(
            "\nextern \"C\" void emulator_run_{name}(const emulator::Launch* launch) {{\n    \
             emulator::run<&{name}>(\"{name}\", *launch);\n}}\n"
        ));
    }
    text
}

/// The names after each `GT_KERNEL(threads)`.
fn kernel_names(source: &str) -> Vec<&str> {
    let after = source.split("GT_KERNEL(").skip(1);
    let name = |rest: &str| -> Option<usize> { rest.find(')') };
    after
        .filter_map(|rest| {
            let rest = rest[name(rest)? + 1..].trim_start();
            Some(&rest[..rest.find('(')?])
        })
        .filter(|name| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'))
        .collect()
}

/// Runs g++; an error is its messages. The sanitizers that this process has preloaded are not for compilers.
fn run(arguments: impl FnOnce(&mut Command)) -> std::io::Result<Result<(), String>> {
    let mut gxx = Command::new("g++");
    arguments(gxx.env_remove("LD_PRELOAD"));
    let output = gxx.output()?;
    if output.status.success() {
        return Ok(Ok(()));
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Ok(Err(errors.lines().take(30).collect::<Vec<_>>().join("\n")))
}

/// Compiles the files of these names and texts, of which the last is the source, with `options` to a shared library.
fn compiled(files: &[(&str, &str)], options: &[&str]) -> std::io::Result<Result<Image, String>> {
    let folder = scratch("d");
    let file = |name: &str| folder.join(name);
    let made = (|| {
        std::fs::create_dir(&folder)?;
        for (name, text) in files {
            std::fs::write(file(name), text)?;
        }
        let source = files.last().map_or("", |(name, _)| name);
        // Compiled and linked apart, so that g++ links to no runtime of ThreadSanitizer.
        let object = run(|gxx| {
            gxx.args(options).arg("-c").arg(file(source)).arg("-o").arg(file("image.o")).arg("-I").arg(&folder);
        })?;
        if object.is_err() {
            return Ok(object.map(|()| Image::new()));
        }
        let link: Vec<&&str> = options.iter().filter(|option| **option == EmulatedChecks::ADDRESS_SANITIZERS).collect();
        let linked = run(|gxx| {
            gxx.args(link).arg("-shared").arg(file("image.o")).arg("-o").arg(file("image.so"));
        })?;
        match linked {
            Ok(()) => std::fs::read(file("image.so")).map(Ok),
            Err(errors) => Ok(Err(errors)),
        }
    })();
    let _ = std::fs::remove_dir_all(&folder);
    made
}

impl Compiler for Gxx {
    fn identity(&self) -> String {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        (FIBERS, EMULATOR).hash(&mut hasher);
        format!("g++ {} {} {:x}", OPTIONS.join(" "), self.0.options().join(" "), hasher.finish())
    }

    fn takes_many(&self) -> bool {
        true
    }

    fn compile(&self, name: &str, source: &str) -> Result<Image, ExecError> {
        let failed = |what: String| ExecError::internal(format!("g++ does not compile {name}: {what}"));
        let text = wrapped(source);
        let mut files = HEADERS.to_vec();
        files.extend([("fibers.h", FIBERS), ("emulator.h", EMULATOR), ("kernel.cu", &*text)]);
        let options = [&OPTIONS[..], self.0.options()].concat();
        compiled(&files, &options).map_err(|error| failed(error.to_string()))?.map_err(failed)
    }
}

/// Compiles a library that is no kernel.
///
/// # Errors
/// The compiler's messages.
pub(super) fn library(name: &str, source: &str) -> Result<Image, String> {
    let options = ["-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-ftls-model=initial-exec"];
    let made = test_store().get_or_make(&format!("g++ {}", options.join(" ")), source, || {
        let failed = |what: String| ExecError::internal(format!("g++ does not compile {name}: {what}"));
        compiled(&[(name, source)], &options).map_err(|error| failed(error.to_string()))?.map_err(failed)
    });
    made.map_err(|error| error.to_string())
}

/// Whether g++ is installed.
pub fn is_available() -> bool {
    Command::new("g++").arg("--version").output().is_ok_and(|output| output.status.success())
}

/// The store of images that the tests share, so that kernels are compiled once: in the folder that `GT_TEST_KERNELS`
/// names, or in this workspace's `target`, which is not there where the tests run on another machine.
pub fn test_store() -> Store {
    let of_workspace = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/emulated-kernels");
    Store::at(std::env::var_os("GT_TEST_KERNELS").map_or_else(of_workspace, PathBuf::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_found_by_their_mark() {
        let source = "GT_DEVICE f(int);\nGT_KERNEL(256) gt_a(float* x) {}\nGT_KERNEL(32)\ngt_b_2(\n int y) {}";
        assert_eq!(kernel_names(source), ["gt_a", "gt_b_2"]);
    }
}
