//! The calls to NVIDIA's driver, tested without a device: the errors where it is missing, and each call against
//! `fake_driver.cpp`, a library with the same functions.
#![expect(clippy::print_stdout, reason = "a test that is skipped says why")]

use gt_backend::conformance::host::Host;
use gt_backend::conformance::{self, MEMORY_BYTES, WINDOWS, window_spec};
use gt_backend::{Backend, BackendFactory, ExecError, HostRange, Input, OpenOptions};
use gt_cuda::blas::{AUTOTUNE_VARIABLE, Blas, CublasLt, Gemm, GemmMatrix, GemmPointers};
use gt_cuda::catalogue::catalogue;
use gt_cuda::compile::nvrtc::base_options;
use gt_cuda::compile::prebuilt::{self, Architecture, ImagePacking, Prebuilt};
use gt_cuda::compile::{Compiler, Image, Store};
use gt_cuda::dnn::Cudnn;
use gt_cuda::driver::cuda::{CudaDriver, OpenError};
use gt_cuda::driver::emulated::{Gxx, is_available, test_store};
use gt_cuda::driver::{Args, CudaStream, DriverError, Grid};
use gt_cuda::graphs::{Graphs, Limits};
use gt_cuda::program::{Program, Traversal};
use gt_cuda::template::{KernelKey, source, together};
use gt_cuda::{CudaBackend, Driver, EmulatedCudaFactory};
use gt_nvidia::{CUBLAS_LT, CUDNN};
use gt_ops::infer::{InputMeta, infer};
use gt_ops::{Attrs, DType, Meta, Op, Shape};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Compiles the C++ file of this name in `tests/` to a shared library.
fn compile(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let partial = folder.join(format!("{name}-{}.so", std::process::id()));
    let mut gxx = Command::new("g++");
    gxx.args(["-std=c++17", "-O1", "-Wall", "-Wextra", "-shared", "-fPIC"]);
    // NVIDIA's headers are in `include`, next to the folder of its libraries; the driver's have to be there.
    for libraries in std::env::var_os("GT_CUDA_LIBRARIES").iter().flat_map(std::env::split_paths) {
        gxx.args((name == "fake_driver").then_some("-DGT_COMPARED"));
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
        fake.set("fake_hold_events", 0);
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
    CudaBackend::new(driver, Box::new(Gxx::default()), test_store(), MEMORY_BYTES).expect("a fake device")
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
    let stream = cuda.new_stream().expect("a stream");
    let memory = cuda.allocate(256, stream).expect("memory");
    cuda.record(from, stream).expect("an event");
    // SAFETY: `memory` was allocated with 256 bytes, and nothing uses it after `free`.
    unsafe { cuda.fill(memory, 1, 256, stream).and_then(|()| cuda.free(memory, stream)) }.expect("done");
    cuda.record(to, stream).expect("an event");
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
    assert_eq!(count("fake_biases"), 0);
    conformance::affine_maps(&mut backend);
    assert!(count("fake_biases") > 100);
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
    conformance::affine_maps(&mut backend);
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

#[test]
fn a_launch_in_a_graph_gets_other_arguments() {
    const COUNT: usize = 6;
    let Some(fake) = Fake::new() else { return };
    let cuda = fake.open();
    assert!(cuda.updates_graphs());
    let program = Program::single(Op::Mul, DType::F32, DType::F32);
    let image = Gxx::default().compile(&program.name(), &program.source(Traversal::Straight)).expect("a kernel");
    let kernel = cuda.function(cuda.load(&image).expect("a module"), &program.name()).expect("a function");
    let (stream, side) = (cuda.new_stream().expect("a stream"), cuda.new_stream().expect("a stream"));
    let [x, y] = [(); 2].map(|()| cuda.allocate(4 * COUNT, stream).expect("memory"));
    let host = cuda.allocate_host(4 * COUNT).expect("pinned memory");
    let filled = f32::from_bits(0x3f3f_3f3f);
    let args = |number: f32| {
        let mut args = Args::new();
        args.push([x, 0]).push([0, u64::from(number.to_bits())]).push(y).push(0b10u32).push(COUNT as u64);
        args
    };
    let grid = Grid::new(1, 256);
    let results = || {
        // SAFETY: both ranges have this size, and the fake copies at once.
        unsafe {
            cuda.download(host.as_ptr(), y, 4 * COUNT, stream).expect("a copy");
            host.as_ptr().cast::<[f32; COUNT]>().read_unaligned()
        }
    };
    assert!(matches!(cuda.captured_launch(side), Err(DriverError::Failed { .. })), "nothing is captured");
    cuda.begin_capture(side).expect("a capture");
    // SAFETY: the arguments are those of the kernel, on memory of this size; the fake does everything at once.
    let (graph, node) = unsafe {
        cuda.fill(x, 0x3f, 4 * COUNT, stream).expect("a fill");
        cuda.fill(y, 0, 4 * COUNT, side).expect("a fill");
        cuda.launch(kernel, grid, &args(2.0), side).expect("a launch");
        let node = cuda.captured_launch(side).expect("a node");
        (cuda.end_capture(side).expect("a graph"), node)
    };
    let updated = fake.get("fake_graphs_updated");
    for number in [2.0, 4.0, 8.0] {
        // SAFETY: the kernel and the grid are those of the capture, on memory of `COUNT` numbers.
        unsafe {
            if number > 2.0 {
                cuda.update_launch(graph, node, kernel, grid, &args(number)).expect("an update");
            }
            cuda.launch_graph(graph, stream).expect("a launch");
        }
        assert_eq!(results(), [number * filled; COUNT]);
    }
    assert_eq!(fake.get("fake_graphs"), 2, "the graph that was captured is kept, since its nodes name the launches");
    cuda.drop_graph(graph);
    assert_eq!((fake.get("fake_graphs"), fake.get("fake_graphs_updated") - updated), (0, 2));
    // SAFETY: the fake has done all work, and nothing uses the memory any more.
    unsafe {
        [x, y].into_iter().for_each(|memory| cuda.free(memory, stream).expect("memory"));
        cuda.free_host(host);
    }
}

/// The fake cuBLASLt, whose algorithms take these virtual nanoseconds; the heuristics name them in this order.
struct FakeBlas {
    path: PathBuf,
    library: libloading::Library,
}

impl FakeBlas {
    fn new(times_ns: [i64; 5]) -> FakeBlas {
        let path = compile("fake_blas");
        // SAFETY: the library is compiled from `fake_blas.cpp`, which has no initialisers with preconditions.
        let library = unsafe { libloading::Library::new(&path) }.expect("a library");
        for (algorithm, ns) in (0..).zip(times_ns) {
            // SAFETY: `fake_time` takes an `int` and a `long long`, and returns nothing.
            unsafe { library.get::<extern "C" fn(i32, i64)>(b"fake_time").expect("a function")(algorithm, ns) };
        }
        FakeBlas { path, library }
    }

    fn bind(&self, cuda: &Arc<CudaDriver>) -> CublasLt {
        let bind = |opened| CublasLt::bind(opened, cuda.clone());
        CUBLAS_LT.open_first(std::slice::from_ref(&self.path), bind).expect("the fake")
    }

    /// The number of algorithms that the last call of the heuristics asked for.
    fn asked(&self) -> i64 {
        // SAFETY: `fake_asked` takes nothing and returns a `long`, 64 bits here.
        unsafe { self.library.get::<extern "C" fn() -> i64>(b"fake_asked").expect("a function")() }
    }

    /// The products that each algorithm has computed.
    fn uses(&self) -> [i64; 5] {
        // SAFETY: `fake_uses` takes an `int` and returns a `long`, 64 bits here.
        let uses = unsafe { self.library.get::<extern "C" fn(i32) -> i64>(b"fake_uses").expect("a function") };
        [0, 1, 2, 3, 4].map(|algorithm| uses(algorithm))
    }

    /// Makes an algorithm fail with a status of cuBLASLt's, though the heuristics name it.
    fn fail(&self, algorithm: i32, status: i32) {
        // SAFETY: `fake_fail` takes two `int`s and returns nothing.
        unsafe { self.library.get::<extern "C" fn(i32, i32)>(b"fake_fail").expect("a function")(algorithm, status) };
    }
}

/// `CUBLAS_STATUS_NOT_SUPPORTED` and `CUBLAS_STATUS_ALLOC_FAILED`.
const CUBLAS_NOT_SUPPORTED: i32 = 15;
const CUBLAS_ALLOC_FAILED: i32 = 3;
/// Times of which the fourth is the least.
const TIMES_NS: [i64; 5] = [50_000, 40_000, 30_000, 20_000, 60_000];
/// The rows and columns of a matrix that is large enough for its products with a row to be timed.
const LARGE: u64 = 1536;

/// One row times a square matrix of f32, with operands and result in memory of the fake device.
struct RowProduct {
    cuda: Arc<CudaDriver>,
    stream: CudaStream,
    gemm: Gemm,
    pointers: GemmPointers,
}

impl RowProduct {
    fn new(cuda: &Arc<CudaDriver>, size: u64) -> RowProduct {
        let stream = cuda.new_stream().expect("a stream");
        let side = GemmMatrix { turned: false, step: size, batch_step: 0, alignment: 256 };
        let (dtype, out_dtype, tf32, m, n, k) = (DType::F32, DType::F32, false, 1, size, size);
        let gemm = Gemm { dtype, out_dtype, tf32, m, n, k, batches: 1, out: side, a: side, b: side, bias: None };
        let [out, a, b] = [size, size, size * size].map(|elements| {
            let memory = cuda.allocate(4 * elements as usize, stream).expect("memory");
            // SAFETY: `memory` was just allocated with this size, and the fake fills it at once.
            unsafe { cuda.fill(memory, 0, 4 * elements as usize, stream) }.expect("filled");
            memory
        });
        RowProduct { cuda: cuda.clone(), stream, gemm, pointers: GemmPointers { out, a, b, bias: 0 } }
    }

    fn multiply(&self, blas: &mut CublasLt, times: usize) {
        for _ in 0..times {
            // SAFETY: the pointers are memory of the sizes that `gemm` describes, apart from each other.
            let done = unsafe { blas.multiply(&self.gemm, self.pointers, self.stream, false) };
            assert_eq!(done, Ok(true));
        }
    }
}

impl Drop for RowProduct {
    fn drop(&mut self) {
        for memory in [self.pointers.out, self.pointers.a, self.pointers.b] {
            // SAFETY: `new` allocated the memory, and the fake does all work at once.
            unsafe { self.cuda.free(memory, self.stream) }.expect("freed");
        }
    }
}

/// A folder of this test's own, which is removed with its files.
struct OwnFolder(PathBuf);

impl OwnFolder {
    fn new(name: &str) -> OwnFolder {
        let folder = std::env::temp_dir().join(format!("gt-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        OwnFolder(folder)
    }

    fn files(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&self.0).expect("a folder");
        entries.map(|entry| entry.expect("a file").path()).collect()
    }
}

impl Drop for OwnFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn the_first_uses_of_a_product_time_five_algorithms_and_the_fastest_is_kept_on_disk() {
    let Some(fake) = Fake::new() else { return };
    let library = FakeBlas::new(TIMES_NS);
    let (cuda, folder) = (fake.open(), OwnFolder::new("autotuned"));
    let open = || library.bind(&cuda).with_autotuning(Store::at(&folder.0));
    let product = RowProduct::new(&cuda, LARGE);
    let (waits, held) = (fake.get("fake_waits"), fake.get("fake_held"));
    let mut first = open();
    product.multiply(&mut first, 15);
    assert_eq!((library.asked(), library.uses()), (5, [3, 3, 3, 3, 3]));
    assert!(!first.is_settled(&product.gemm));
    product.multiply(&mut first, 2);
    assert_eq!(library.uses(), [3, 3, 3, 5, 3]);
    assert!(first.is_settled(&product.gemm));
    // A second worker reads the choice.
    let mut second = open();
    product.multiply(&mut second, 2);
    assert_eq!(library.uses(), [3, 3, 3, 7, 3]);
    assert_eq!(fake.get("fake_waits"), waits, "nothing waits for the device");
    // A damaged file is timed and written again.
    let files = folder.files();
    assert_eq!(files.len(), 1);
    std::fs::write(&files[0], b"half").expect("a file of ours");
    let mut third = open();
    product.multiply(&mut third, 16);
    assert_eq!(library.uses(), [6, 6, 6, 11, 6]);
    let mut fourth = open();
    product.multiply(&mut fourth, 1);
    assert_eq!(library.uses(), [6, 6, 6, 12, 6]);
    // So is a whole file that names an algorithm of another product.
    let aligned = |side: GemmMatrix| GemmMatrix { alignment: 16, ..side };
    let other = Gemm { a: aligned(product.gemm.a), ..product.gemm };
    let other = std::mem::ManuallyDrop::new(RowProduct { gemm: other, cuda: cuda.clone(), ..product });
    other.multiply(&mut fourth, 16);
    let foreign = folder.files().into_iter().find(|file| *file != files[0]).expect("a second file");
    std::fs::copy(foreign, &files[0]).expect("a file of ours");
    let before = library.uses();
    let mut fifth = open();
    product.multiply(&mut fifth, 16);
    assert_eq!(library.uses(), [before[0] + 3, before[1] + 3, before[2] + 3, before[3] + 4, before[4] + 3]);
    drop([first, second, third, fourth, fifth]);
    assert_eq!(fake.get("fake_held"), held, "no event is left behind");
}

#[test]
fn uses_that_the_device_has_not_reached_are_not_waited_for_and_a_capture_times_nothing() {
    let Some(fake) = Fake::new() else { return };
    let library = FakeBlas::new(TIMES_NS);
    let cuda = fake.open();
    let mut blas = library.bind(&cuda).with_autotuning(Store::default());
    let product = RowProduct::new(&cuda, LARGE);
    let captured = |blas: &mut CublasLt| {
        let side = cuda.new_stream().expect("a stream");
        cuda.begin_capture(side).expect("a capture");
        // SAFETY: the pointers are memory of the sizes that `gemm` describes, and the graph is never launched.
        let done = unsafe { blas.multiply(&product.gemm, product.pointers, side, true) };
        cuda.drop_graph(cuda.end_capture(side).expect("a graph"));
        assert_eq!(done, Ok(true));
    };
    product.multiply(&mut blas, 3);
    // The best of the candidates that were timed so far.
    captured(&mut blas);
    assert_eq!(library.uses(), [1, 2, 1, 0, 0]);
    let waits = fake.get("fake_waits");
    fake.set("fake_hold_events", 1);
    product.multiply(&mut blas, 14);
    blas.let_go().expect("a fake device");
    assert!(!blas.is_settled(&product.gemm));
    assert_eq!(library.uses(), [3, 6, 3, 3, 3]);
    fake.set("fake_hold_events", 0);
    blas.let_go().expect("a fake device");
    assert!(blas.is_settled(&product.gemm));
    captured(&mut blas);
    assert_eq!((library.uses(), fake.get("fake_waits")), ([3, 6, 3, 4, 3], waits));
}

#[test]
fn without_autotuning_or_for_a_small_product_the_first_algorithm_of_the_heuristics_computes() {
    let Some(fake) = Fake::new() else { return };
    let library = FakeBlas::new(TIMES_NS);
    let cuda = fake.open();
    let mut blas = library.bind(&cuda);
    let large = RowProduct::new(&cuda, LARGE);
    large.multiply(&mut blas, 17);
    assert_eq!((library.asked(), library.uses()), (1, [17, 0, 0, 0, 0]));
    let mut blas = blas.with_autotuning(Store::default());
    let small = RowProduct::new(&cuda, 64);
    small.multiply(&mut blas, 17);
    assert_eq!(library.uses(), [34, 0, 0, 0, 0]);
}

#[test]
fn the_variable_switches_autotuning_off_and_no_file_is_read() {
    const TEST: &str = "the_variable_switches_autotuning_off_and_no_file_is_read";
    const FOLDER: &str = "GT_TEST_FOLDER";
    let Some(fake) = Fake::new() else { return };
    let library = FakeBlas::new(TIMES_NS);
    let cuda = fake.open();
    let product = RowProduct::new(&cuda, LARGE);
    if let Some(folder) = std::env::var_os(FOLDER) {
        let mut blas = library.bind(&cuda).with_autotuning(Store::at(folder));
        product.multiply(&mut blas, 3);
        assert_eq!((library.asked(), library.uses()), (1, [3, 0, 0, 0, 0]));
        return;
    }
    let folder = OwnFolder::new("autotuned-before");
    let mut blas = library.bind(&cuda).with_autotuning(Store::at(&folder.0));
    product.multiply(&mut blas, 17);
    assert_eq!((library.uses(), folder.files().len()), ([3, 3, 3, 5, 3], 1));
    let mut again = Command::new(std::env::current_exe().expect("this program"));
    again.args(["--exact", TEST]).env(FOLDER, &folder.0).env(AUTOTUNE_VARIABLE, "0");
    let output = again.output().expect("this program runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn a_folder_that_cannot_be_written_costs_the_file_and_not_the_choice() {
    let Some(fake) = Fake::new() else { return };
    let library = FakeBlas::new(TIMES_NS);
    let (cuda, file) = (fake.open(), OwnFolder::new("no-folder"));
    std::fs::write(&file.0, b"a file").expect("a folder for temporary files");
    let mut blas = library.bind(&cuda).with_autotuning(Store::at(file.0.join("kernels")));
    let product = RowProduct::new(&cuda, LARGE);
    product.multiply(&mut blas, 17);
    assert_eq!(library.uses(), [3, 3, 3, 5, 3]);
    std::fs::remove_file(&file.0).expect("a file of ours");
}

#[test]
fn an_algorithm_that_fails_ends_the_timing_with_the_first_that_does_not() {
    let Some(fake) = Fake::new() else { return };
    let library = FakeBlas::new(TIMES_NS);
    let cuda = fake.open();
    let mut blas = library.bind(&cuda).with_autotuning(Store::default());
    let product = RowProduct::new(&cuda, LARGE);
    library.fail(2, CUBLAS_NOT_SUPPORTED);
    product.multiply(&mut blas, 5);
    assert_eq!(library.uses(), [4, 1, 0, 0, 0]);
    assert!(blas.is_settled(&product.gemm));
}

#[test]
fn a_product_that_finds_no_memory_is_timed_when_it_comes_again() {
    let Some(fake) = Fake::new() else { return };
    let library = FakeBlas::new(TIMES_NS);
    let cuda = fake.open();
    let mut blas = library.bind(&cuda).with_autotuning(Store::default());
    let product = RowProduct::new(&cuda, LARGE);
    library.fail(0, CUBLAS_ALLOC_FAILED);
    // SAFETY: the pointers are memory of the sizes that `gemm` describes, apart from each other.
    let refused = unsafe { blas.multiply(&product.gemm, product.pointers, product.stream, false) };
    assert_eq!(refused, Err(DriverError::OutOfMemory));
    library.fail(-1, 0);
    product.multiply(&mut blas, 16);
    assert_eq!(library.uses(), [3, 3, 3, 4, 3]);
}

#[test]
fn a_worker_that_moves_tensors_between_devices_computes_by_the_heuristics_again() {
    let Some(fake) = Fake::new() else { return };
    let library = FakeBlas::new(TIMES_NS);
    let cuda = fake.open();
    let mut blas = library.bind(&cuda).with_autotuning(Store::default());
    let product = RowProduct::new(&cuda, LARGE);
    product.multiply(&mut blas, 17);
    assert!(blas.stop_tuning() && !blas.stop_tuning());
    product.multiply(&mut blas, 1);
    assert_eq!(library.uses(), [4, 3, 3, 5, 3]);
}

#[test]
fn a_graph_is_made_of_a_product_once_its_algorithm_is_chosen() {
    let Some(fake) = Fake::new() else { return };
    let library = FakeBlas::new(TIMES_NS);
    let cuda = fake.open();
    let blas = library.bind(&cuda).with_autotuning(Store::default());
    let mut backend = backend(cuda).with_blas(Box::new(blas));
    let limits = Limits { shortest: 2, first: 2, longest: 4, ..Limits::default() };
    backend.set_graphs(Graphs::Repeated(limits)).expect("a fake device");
    let meta = |dims: &[usize]| Meta::new(Shape::new(dims).expect("a shape"), DType::F32);
    let (row, matrix) = (meta(&[1, LARGE as usize]), meta(&[LARGE as usize; 2]));
    let [a, b] = [row, matrix].map(|meta| backend.allocate(&meta).expect("memory"));
    let multiply = |backend: &mut CudaBackend| {
        let inputs = [Input::Tensor(&a), Input::Tensor(&b)];
        backend.execute(Op::Matmul, &inputs, &Attrs::None, &row, 0).map(drop).expect("a product");
    };
    for _ in 0..15 {
        multiply(&mut backend);
    }
    assert_eq!((backend.launch_counts().made, library.uses()), (0, [3, 3, 3, 3, 3]));
    for _ in 0..25 {
        multiply(&mut backend);
    }
    let counts = backend.launch_counts();
    assert!(counts.made > 0 && counts.in_graphs > 10, "{counts:?}");
    let uses = library.uses();
    assert_eq!([uses[0], uses[1], uses[2], uses[4]], [3; 4]);
}

/// The fake cuDNN, and a function that calls one of its functions that count.
struct FakeDnn {
    path: PathBuf,
    library: libloading::Library,
}

impl FakeDnn {
    fn new() -> FakeDnn {
        let path = compile("fake_cudnn");
        // SAFETY: the library is compiled from `fake_cudnn.cpp`, which has no initialisers with preconditions.
        let library = unsafe { libloading::Library::new(&path) }.expect("a library");
        FakeDnn { path, library }
    }

    fn get(&self, name: &str) -> i64 {
        // SAFETY: every function of the fake that counts takes nothing and returns a `long`, 64 bits here.
        unsafe { self.library.get::<extern "C" fn() -> i64>(name.as_bytes()).expect("a function")() }
    }

    fn refuse(&self, name: &str, status: i32) {
        // SAFETY: every function of the fake that sets a status takes an `int` and returns nothing.
        unsafe { self.library.get::<extern "C" fn(i32)>(name.as_bytes()).expect("a function")(status) };
    }

    fn backend(&self, fake: &Fake) -> CudaBackend {
        let cuda = fake.open();
        let bind = |opened| Cudnn::bind_alone(opened, cuda.clone(), MEMORY_BYTES);
        let dnn = CUDNN.open_first(std::slice::from_ref(&self.path), bind).expect("the fake");
        let mut backend = backend(cuda).with_dnn(Box::new(dnn));
        backend.set_library_products_min(0);
        backend
    }
}

/// Small whole numbers, whose sums are exact in any order.
fn whole(dims: &[usize], dtype: DType) -> Host {
    let meta = Meta::new(Shape::new(dims).expect("a shape"), dtype);
    Host::floats(meta, (0..meta.shape.numel()).map(|i| (i * 5 % 7) as f64 - 3.0))
}

fn range_of(bytes: &mut [u8]) -> HostRange {
    // SAFETY: each caller passes the range to one call of a backend, which borrows `bytes` until it returns.
    unsafe { HostRange::new(NonNull::from(&mut *bytes).cast(), bytes.len()) }
}

fn computed(backend: &mut CudaBackend, op: Op, operands: &[&Host], attrs: &Attrs) -> Result<Vec<u8>, ExecError> {
    let metas: Vec<InputMeta> = operands.iter().map(|host| InputMeta::Tensor(host.meta)).collect();
    let out = infer(op, &metas, attrs).expect("operands that fit");
    let mut tensors = Vec::new();
    for host in operands {
        let mut tensor = backend.allocate(&host.meta)?;
        backend.write(&mut tensor, 0, range_of(&mut host.to_bytes()))?;
        tensors.push(tensor);
    }
    let inputs: Vec<_> = tensors.iter().map(Input::Tensor).collect();
    let result = backend.execute(op, &inputs, attrs, &out, 0)?;
    let mut bytes = vec![0; out.bytes()];
    backend.read(&result, 0, range_of(&mut bytes))?;
    Ok(bytes)
}

/// Convolutions of all windows and dtypes, and their gradients.
fn convolutions(backend: &mut CudaBackend) -> Result<Vec<Vec<u8>>, ExecError> {
    let mut results = Vec::new();
    for (i, case) in WINDOWS.into_iter().enumerate() {
        let (groups, seen, made) = (1 + i % 2, 3, 2);
        let spec = window_spec(case, groups as i64);
        let output = spec.output().expect("a window");
        let dims = |lead: [usize; 2], sizes: &[usize]| [&lead[..], sizes].concat();
        for dtype in [DType::F32, DType::BF16, DType::F16, DType::F64] {
            let x = whole(&dims([2, groups * seen], spec.used(&spec.input)), dtype);
            let y = whole(&dims([2, groups * made], spec.used(&output)), dtype);
            let weight = whole(&dims([groups * made, seen], spec.used(&spec.kernel)), dtype);
            let bias = whole(&[groups * made], dtype);
            let attrs = Attrs::Window(Box::new(spec));
            results.push(computed(backend, Op::Convolution, &[&x, &weight, &bias], &attrs)?);
            results.push(computed(backend, Op::ConvolutionInput, &[&y, &weight], &attrs)?);
            results.push(computed(backend, Op::ConvolutionWeight, &[&y, &x], &attrs)?);
        }
    }
    Ok(results)
}

#[test]
fn convolutions_go_to_cudnn_with_a_plan_made_once_for_each_kind() {
    let Some(fake) = Fake::new() else { return };
    let expected = convolutions(&mut backend(fake.open())).expect("a fake device");
    let dnn = FakeDnn::new();
    println!("the fake is compared with NVIDIA's headers: {}", dnn.get("fake_is_compared") != 0);
    for graphs in [Graphs::Never, Graphs::Each] {
        let mut backend = dnn.backend(&fake);
        backend.set_graphs(graphs).expect("a fake device");
        let before = (dnn.get("fake_heuristics"), dnn.get("fake_computed"));
        assert_eq!(convolutions(&mut backend).expect("a fake device"), expected);
        let (chosen, done) = (dnn.get("fake_heuristics"), dnn.get("fake_computed"));
        // Five of nine windows have the same padding on both sides, and tensor cores multiply two of the dtypes.
        assert!(done - before.1 >= 5 * 6, "{} computed", done - before.1);
        assert_eq!(convolutions(&mut backend).expect("a fake device"), expected);
        assert_eq!((dnn.get("fake_heuristics"), dnn.get("fake_computed")), (chosen, 2 * done - before.1));
        // Engines that are not reproducible or less precise are not taken, nor those that round f32 unless they may.
        assert_eq!((dnn.get("fake_refused"), dnn.get("fake_rounded")), (0, 0));
        drop(backend);
        assert_eq!(dnn.get("fake_alive"), 0);
    }
    let mut backend = dnn.backend(&fake);
    backend.allow_tf32(true);
    assert_eq!(convolutions(&mut backend).expect("a fake device"), expected);
    assert!(dnn.get("fake_refused") == 0 && dnn.get("fake_rounded") > 0);
}

#[test]
fn what_cudnn_cannot_do_is_computed_without_it_and_what_it_fails_at_is_an_error() {
    let Some(fake) = Fake::new() else { return };
    let expected = convolutions(&mut backend(fake.open())).expect("a fake device");
    let dnn = FakeDnn::new();
    // CUDNN_STATUS_NOT_INITIALIZED of a handle, and CUDNN_STATUS_NOT_SUPPORTED_SHAPE of an execution.
    for (refused, status) in [("fake_refuse_create", 1001), ("fake_refuse_execute", 3002)] {
        dnn.refuse(refused, status);
        let done = dnn.get("fake_computed");
        let results = convolutions(&mut dnn.backend(&fake));
        dnn.refuse(refused, 0);
        assert_eq!(results.expect("a fake device"), expected, "{refused}");
        assert_eq!(dnn.get("fake_computed"), done);
    }
    // CUDNN_STATUS_EXECUTION_FAILED.
    dnn.refuse("fake_refuse_execute", 5000);
    let error = convolutions(&mut dnn.backend(&fake)).expect_err("it fails").to_string();
    dnn.refuse("fake_refuse_execute", 0);
    assert!(error.contains("cudnnBackendExecute: CUDNN_STATUS_OTHER (5000): why it failed"), "{error}");
    assert_eq!(dnn.get("fake_alive"), 0);
}

#[test]
fn a_cudnn_without_the_libraries_that_it_ends_the_process_for_is_passed_over() {
    let Some(fake) = Fake::new() else { return };
    let (dnn, cuda) = (FakeDnn::new(), fake.open());
    let bind = |opened| Cudnn::bind(opened, cuda.clone(), MEMORY_BYTES);
    let error = CUDNN.open_first(std::slice::from_ref(&dnn.path), bind).err().expect("no other library").to_string();
    assert!(
        error.starts_with("cuDNN, which computes convolutions, was not found: pip install nvidia-cudnn"),
        "{error}"
    );
    assert!(error.contains("libcudnn_graph.so.9"), "{error}");
}

/// The source of the image that has the kernel of a sum in f32.
fn kernels_of_a_sum() -> String {
    let keys = catalogue();
    let is_sum = |key: &&KernelKey| key.op == Some(Op::Add) && key.dtypes == [Some(DType::F32), None, None];
    source(&together(keys.iter().find(is_sum).expect("the kernel of a sum")))
}

/// The compiler of a test in which nothing may be compiled.
struct NoCompiler;

impl Compiler for NoCompiler {
    fn identity(&self) -> String {
        "none".into()
    }

    fn compile(&self, name: &str, _: &str) -> Result<Image, ExecError> {
        Err(ExecError::internal(format!("{name} was to be compiled")))
    }
}

#[test]
fn kernels_that_were_compiled_beforehand_are_loaded_without_a_compiler() {
    let Some(fake) = Fake::new() else { return };
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("kernels-{}", std::process::id()));
    let text = kernels_of_a_sum();
    // The code of the fake device, in place of a cubin.
    let images = [&Gxx::default().compile("prebuilt", &text).expect("a library")[..], b"\x7fELF and no library"];
    let host = whole(&[2, 3], DType::F32);
    let expected = computed(&mut backend(fake.open()), Op::Add, &[&host, &host], &Attrs::None).expect("a fake device");
    for (image, is_right) in images.into_iter().zip([true, false]) {
        prebuilt::write(
            &path,
            (13, 0),
            "options",
            &[(Architecture::Device(80), text.clone(), image.to_vec())],
            ImagePacking::Plain,
        )
        .expect("a file");
        let file = || Prebuilt::open(&path, 86, (13, 0), "options").expect("a file of images");
        let on_fake = |compiler| {
            CudaBackend::new(fake.open(), compiler, Store::default(), MEMORY_BYTES)
                .expect("a fake device")
                .with_prebuilt(file())
        };
        let found = computed(&mut on_fake(Box::new(NoCompiler)), Op::Add, &[&host, &host], &Attrs::None);
        assert_eq!(found.ok(), is_right.then(|| expected.clone()), "without a compiler");
        // An image that the driver refuses is compiled.
        let found = computed(&mut on_fake(Box::<Gxx>::default()), Op::Add, &[&host, &host], &Attrs::None);
        assert_eq!(found.expect("a compiler"), expected);
        // A kernel that the file does not have is compiled, too.
        let other = whole(&[2, 3], DType::F64);
        let error = computed(&mut on_fake(Box::new(NoCompiler)), Op::Add, &[&other, &other], &Attrs::None);
        assert!(error.expect_err("no compiler").to_string().contains("was to be compiled"));
    }
    let _ = std::fs::remove_file(path);
}

#[test]
fn an_emulated_device_uses_no_kernels_that_were_compiled_beforehand() {
    const TEST: &str = "an_emulated_device_uses_no_kernels_that_were_compiled_beforehand";
    const FILE: &str = "GT_CUDA_KERNELS";
    if !is_available() {
        return println!("skipped: there is no g++ here");
    }
    if std::env::var_os(FILE).is_some() {
        let options = OpenOptions { memory_bytes_limit: MEMORY_BYTES, ..OpenOptions::default() };
        let mut backend = EmulatedCudaFactory::open(&options).expect("an emulated device").backend;
        let host = whole(&[1], DType::F32);
        let sum = computed(&mut backend, Op::Add, &[&host, &host], &Attrs::None).expect("an emulated device");
        assert_eq!(sum, (-6f32).to_le_bytes());
        return;
    }
    // A file that is right for the device, but for its kernel, which subtracts.
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("wrong-kernels-{}", std::process::id()));
    let subtracts = kernels_of_a_sum().replace("a + b", "a - b");
    assert_ne!(subtracts, kernels_of_a_sum());
    let wrong = Gxx::default().compile("wrong", &subtracts).expect("a library");
    let architectures = [80, 90, 100].map(Architecture::Device);
    let images = architectures.map(|architecture| (architecture, kernels_of_a_sum(), wrong.clone()));
    prebuilt::write(&path, (12, 0), &base_options(), &images, ImagePacking::Compressed).expect("a file");
    let mut again = Command::new(std::env::current_exe().expect("this program"));
    let output = again.args(["--exact", TEST]).env(FILE, &path).output().expect("this program runs");
    let _ = std::fs::remove_file(path);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
