//! The calls to NVIDIA's driver, tested without a device: the errors where it is missing, and each call against
//! `fake_driver.cpp`, a library with the same functions.
#![expect(clippy::print_stdout, reason = "a test that is skipped says why")]

use gt_backend::conformance::host::Host;
use gt_backend::conformance::{self, MEMORY_BYTES, WINDOWS, window_spec};
use gt_backend::{Backend, BackendFactory, ExecError, HostRange, Input, OpenOptions};
use gt_cuda::blas::CublasLt;
use gt_cuda::catalogue::catalogue;
use gt_cuda::compile::nvrtc::base_options;
use gt_cuda::compile::prebuilt::{self, Architecture, ImagePacking, Prebuilt};
use gt_cuda::compile::{Compiler, Image, Store};
use gt_cuda::dnn::Cudnn;
use gt_cuda::driver::cuda::{CudaDriver, OpenError};
use gt_cuda::driver::emulated::{Gxx, is_available, test_store};
use gt_cuda::driver::{DriverError, Grid};
use gt_cuda::graphs::{Graphs, Limits};
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
