//! An emulated device without a backend, for tests of single kernels.

use gt_cuda::Driver;
use gt_cuda::compile::Compiler;
use gt_cuda::driver::emulated::{Emulated, EmulatedChecks, Gxx};
use gt_cuda::driver::{Args, Grid};

/// The device's memory.
const MEMORY_BYTES: usize = 1 << 20;

/// An emulated device and the compiler of its kernels.
pub struct BareDevice {
    /// The driver.
    pub driver: Emulated,
    compiler: Gxx,
}

impl BareDevice {
    /// A device with these checks, on which a seed other than 0 shuffles blocks and threads.
    pub fn new(checks: EmulatedChecks, seed: u64) -> BareDevice {
        let driver = Emulated::new(MEMORY_BYTES).with_checks(checks).with_seed(seed);
        BareDevice { driver, compiler: Gxx(checks) }
    }

    /// An allocation with these bytes.
    pub fn put(&self, bytes: &[u8]) -> u64 {
        let stream = self.driver.new_stream().expect("a stream");
        let at = self.driver.allocate(bytes.len(), stream).expect("memory");
        // SAFETY: `at` was allocated with `bytes.len()` bytes, and `bytes` is borrowed until the stream was
        // synchronized.
        unsafe { self.driver.upload(at, bytes.as_ptr(), bytes.len(), stream) }.expect("an upload");
        self.driver.synchronize(stream).expect("a stream that ends");
        at
    }

    /// Runs the kernel on `operands`; returns the `bytes` bytes that it writes.
    pub fn run(&self, source: &str, kernel: &str, grid: Grid, bytes: usize, operands: &[u64]) -> Vec<u8> {
        let stream = self.driver.new_stream().expect("a stream");
        let image = self.compiler.compile(kernel, source).expect("a kernel");
        let module = self.driver.load(&image).expect("a module");
        let function = self.driver.function(module, kernel).expect("the kernel");
        let mut written = vec![0; bytes];
        let out = self.put(&written);
        let mut args = Args::new();
        args.push(out);
        for operand in operands {
            args.push(*operand);
        }
        // SAFETY: the arguments match the kernel's parameters; `out` and `written` have `bytes` bytes and outlive the
        // stream's work.
        unsafe {
            self.driver.launch(function, grid, &args, stream).expect("a launch");
            self.driver.download(written.as_mut_ptr(), out, bytes, stream).expect("a download");
        }
        self.driver.synchronize(stream).expect("a stream that ends");
        written
    }
}
