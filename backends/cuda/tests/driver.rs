//! The calls to NVIDIA's driver, tested without a device: the errors where it is missing, and each call against
//! `fake_driver.cpp`, a library with the same functions.
#![expect(clippy::print_stdout, reason = "a test that is skipped says why")]

use gt_backend::conformance::{self, MEMORY_BYTES};
use gt_cuda::blas::CublasLt;
use gt_cuda::compile::Store;
use gt_cuda::driver::cuda::{CudaDriver, OpenError};
use gt_cuda::driver::emulated::{Gxx, is_available, test_store};
use gt_cuda::driver::{DriverError, Grid};
use gt_cuda::graphs::{Graphs, Limits};
use gt_cuda::{CudaBackend, Driver};
use gt_nvidia::CUBLAS_LT;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Compiles the C++ file of this name in `tests/` to a shared library.
fn compile(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let partial = folder.join(format!("{name}-{}.so", std::process::id()));
    let mut gxx = Command::new("g++");
    gxx.args(["-std=c++17", "-O1", "-Wall", "-Wextra", "-shared", "-fPIC"]);
    // NVIDIA's headers are in `include`, next to the folder of its libraries.
    for libraries in std::env::var_os("GT_CUDA_LIBRARIES").iter().flat_map(std::env::split_paths) {
        gxx.arg("-isystem").arg(libraries.join("../include"));
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(format!("{name}.cpp"));
    let made = gxx.arg(source).arg("-o").arg(&partial).arg("-ldl").status();
    assert!(made.is_ok_and(|status| status.success()), "g++ compiles {name}");
    let path = folder.join(format!("{name}.so"));
    std::fs::rename(partial, &path).expect("a folder of ours");
    path
}

/// The fake driver, locked for one test at a time.
struct Fake {
    path: PathBuf,
    library: libloading::Library,
    _turn: MutexGuard<'static, ()>,
}

impl Fake {
    fn new() -> Option<Fake> {
        static TURN: Mutex<()> = Mutex::new(());
        static MADE: OnceLock<PathBuf> = OnceLock::new();
        if !is_available() {
            println!("skipped: there is no g++ here");
            return None;
        }
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let path = MADE.get_or_init(|| compile("fake_driver")).clone();
        // SAFETY: the library is compiled from `fake_driver.cpp`, which has no initialisers with preconditions.
        let library = unsafe { libloading::Library::new(&path) }.expect("a library");
        let fake = Fake { path, library, _turn: turn };
        fake.set("fake_lose", 0);
        fake.set("fake_without_pools", 0);
        fake.set("fake_refuse_graphs", 0);
        Some(fake)
    }

    fn open(&self) -> Arc<CudaDriver> {
        Arc::new(CudaDriver::open_from(std::slice::from_ref(&self.path), 0).expect("a fake device"))
    }

    fn set(&self, name: &str, value: i32) {
        // SAFETY: every function of the fake that is called with a value takes an `i32` and returns nothing.
        unsafe { self.library.get::<extern "C" fn(i32)>(name.as_bytes()).expect("a function of the fake")(value) };
    }

    fn get(&self, name: &str) -> u64 {
        // SAFETY: every function of the fake that is called without one returns an integer.
        unsafe { self.library.get::<extern "C" fn() -> u64>(name.as_bytes()).expect("a function of the fake")() }
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.set("fake_lose", 0);
    }
}

fn backend(driver: Arc<CudaDriver>) -> CudaBackend {
    CudaBackend::new(driver, Box::new(Gxx), test_store(), MEMORY_BYTES).expect("a fake device")
}

#[test]
fn without_a_driver_the_backend_says_what_is_missing() {
    if gt_nvidia::is_there() {
        return println!("skipped: this machine has a driver");
    }
    let error = CudaBackend::open(0, Some(1 << 30), Store::default()).err().expect("no driver").to_string();
    assert!(
        error.starts_with("NVIDIA's driver library, through which GPUs are used, was not found: install"),
        "{error}"
    );
    assert!(error.contains("libcuda.so.1"), "{error}");
}

#[test]
fn a_device_that_is_not_there_is_refused_in_a_sentence() {
    let Some(fake) = Fake::new() else { return };
    let error = CudaDriver::open_from(std::slice::from_ref(&fake.path), 3).err().expect("one device");
    assert!(matches!(error, OpenError::Refused { ordinal: 3, .. }));
    assert_eq!(
        error.to_string(),
        "cuda:3 cannot be used: cuDeviceGet: CUDA_ERROR_INVALID_DEVICE (invalid device ordinal): no GPU has that number: \
         gtctl doctor lists them"
    );
}

#[test]
fn what_is_known_of_a_device_comes_from_the_driver() {
    let Some(fake) = Fake::new() else { return };
    let cuda = fake.open();
    let properties = cuda.properties();
    assert_eq!((properties.name.as_str(), properties.capability, properties.multiprocessors), ("a fake", 86, 2));
    assert_eq!((properties.threads_per_multiprocessor, properties.shared_bytes_per_block), (1536, 99 << 10));
    assert_eq!((properties.memory_bytes, cuda.version_major()), (2 << 30, 13));
}

#[test]
fn the_backend_computes_through_every_call_and_leaves_nothing_behind() {
    let Some(fake) = Fake::new() else { return };
    for without_pools in [0, 1] {
        fake.set("fake_without_pools", without_pools);
        let before = (fake.get("fake_held"), fake.get("fake_retained"));
        let mut backend = backend(fake.open());
        conformance::movements(&mut backend);
        conformance::transfers(&mut backend);
        assert_ne!(fake.get("fake_held"), before.0);
        drop(backend);
        assert_eq!((fake.get("fake_held"), fake.get("fake_retained")), before);
    }
}

#[test]
fn any_thread_may_use_the_device() {
    let Some(fake) = Fake::new() else { return };
    let cuda = fake.open();
    let stream = cuda.new_stream().expect("a stream");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let ptr = cuda.allocate(1 << 20, stream).expect("memory");
            let free = cuda.free_bytes().expect("a number");
            assert_eq!(free, (2 << 30) - (1 << 20));
            // SAFETY: `ptr` was allocated with 1 << 20 bytes, and nothing uses it after `free`.
            unsafe { cuda.fill(ptr, 7, 1 << 20, stream).and_then(|()| cuda.free(ptr, stream)) }.expect("done");
        });
    });
    assert_eq!(cuda.allocate(3 << 30, stream), Err(DriverError::OutOfMemory));
}

#[test]
fn only_events_made_for_it_tell_the_time() {
    let Some(fake) = Fake::new() else { return };
    let cuda = fake.open();
    let (from, to, plain) = (cuda.new_timer().unwrap(), cuda.new_timer().unwrap(), cuda.new_event().unwrap());
    assert_eq!(cuda.elapsed_ns(from, to), Ok(1_500_000));
    assert!(matches!(cuda.elapsed_ns(from, plain), Err(DriverError::Failed { call: "cuEventElapsedTime", .. })));
    [from, to, plain].into_iter().for_each(|event| cuda.drop_event(event));
}

#[test]
fn a_broken_context_is_told_from_a_call_that_failed() {
    let Some(fake) = Fake::new() else { return };
    let cuda = fake.open();
    let stream = cuda.new_stream().expect("a stream");
    // SAFETY: the fake refuses a null function before it reads the kernel's arguments.
    let refused =
        unsafe { cuda.launch(gt_cuda::driver::KernelFunction(0), Grid::new(1, 1), &Default::default(), stream) };
    assert!(matches!(refused, Err(DriverError::Failed { call: "cuLaunchKernel", .. })));
    fake.set("fake_lose", 700);
    let lost = cuda.synchronize(stream).expect_err("a broken context");
    assert!(matches!(lost, DriverError::Lost { .. }));
    assert_eq!(
        lost.to_string(),
        "cuStreamSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access was encountered)"
    );
}

#[test]
fn products_go_to_cublaslt_with_an_algorithm_chosen_once_for_each_kind() {
    let Some(fake) = Fake::new() else { return };
    let path = compile("fake_blas");
    // SAFETY: the library is compiled from `fake_blas.cpp`, which has no initialisers with preconditions.
    let library = unsafe { libloading::Library::new(&path) }.expect("a library");
    // SAFETY: every function of the fake library that is counted takes nothing and returns a `long`, 64 bits here.
    let count = |name: &str| unsafe { library.get::<extern "C" fn() -> i64>(name.as_bytes()).expect("a function")() };
    let cuda = fake.open();
    let blas = CUBLAS_LT.open_first(std::slice::from_ref(&path), |opened| CublasLt::bind(opened, cuda.clone()));
    let mut backend = backend(cuda).with_blas(Box::new(blas.expect("the fake")));
    backend.set_graphs(Graphs::Never).expect("a fake device");
    conformance::matmuls(&mut backend);
    let (chosen, done) = (count("fake_heuristics"), count("fake_products"));
    assert!(chosen > 50 && done > 2 * chosen, "{chosen} choices, {done} products");
    conformance::matmuls(&mut backend);
    assert_eq!((count("fake_heuristics"), count("fake_products")), (chosen, 2 * done));
    drop(backend);
    assert_eq!(count("fake_alive"), 0);
}

#[test]
fn products_of_the_library_can_be_captured() {
    let Some(fake) = Fake::new() else { return };
    let path = compile("fake_blas");
    let cuda = fake.open();
    let blas = CUBLAS_LT.open_first(std::slice::from_ref(&path), |opened| CublasLt::bind(opened, cuda.clone()));
    let mut backend = backend(cuda).with_blas(Box::new(blas.expect("the fake")));
    backend.set_graphs(Graphs::Each).expect("a fake device");
    let launched = fake.get("fake_graphs_launched");
    conformance::matmuls(&mut backend);
    assert!(fake.get("fake_graphs_launched") > launched + 100);
}

#[test]
fn what_repeats_is_captured_and_given_back() {
    let Some(fake) = Fake::new() else { return };
    let limits = Limits { shortest: 1, first: 2, longest: 4, ..Limits::default() };
    for (refuse, graphs) in [(0, Graphs::Each), (0, Graphs::Repeated(limits)), (1, Graphs::Repeated(limits))] {
        fake.set("fake_refuse_graphs", refuse);
        let launched = fake.get("fake_graphs_launched");
        let mut backend = backend(fake.open());
        backend.set_graphs(graphs).expect("a fake device");
        for _ in 0..3 {
            conformance::movements(&mut backend);
            conformance::transfers(&mut backend);
        }
        assert_eq!(fake.get("fake_graphs_launched") > launched, refuse == 0, "{graphs:?}");
        drop(backend);
        assert_eq!(fake.get("fake_graphs"), 0);
    }
}
