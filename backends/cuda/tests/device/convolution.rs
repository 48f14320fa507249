//! Convolutions by a library: by cuDNN on a device of NVIDIA's, by a replacement on an emulated one.
#![expect(clippy::print_stdout, reason = "a test says where it computes, and why it is skipped")]

use crate::against_cpu::{LIMIT, agree, agree_on_convolutions, agree_within, cpu, shape, whole, with};
use crate::{Multiplier, TestDevice, is_nvidias, open};
use gt_backend::conformance::{WindowSizes, window_spec};
use gt_cpu::CpuBackend;
use gt_cuda::CudaBackend;
use gt_cuda::dnn::emulated::EmulatedDnn;
use gt_cuda::dnn::{Conv, ConvPointers, Cudnn, Dnn};
use gt_cuda::driver::cuda::CudaDriver;
use gt_cuda::driver::{CudaStream, Result};
use gt_cuda::graphs::{Graphs, Limits};
use gt_nvidia::CUDNN;
use gt_ops::{Attrs, DType, Meta, Op, Shape};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Calls of a library.
#[derive(Default)]
struct DnnCounts {
    computed: AtomicU64,
    unsupported: AtomicU64,
    cleared: AtomicU64,
}

/// A library that counts its calls.
struct CountingDnn {
    library: Box<dyn Dnn>,
    counts: Arc<DnnCounts>,
}

impl Dnn for CountingDnn {
    fn prepare(&mut self, conv: &Conv) -> Result<Option<usize>> {
        let bytes = self.library.prepare(conv)?;
        self.counts.unsupported.fetch_add(bytes.is_none().into(), Relaxed);
        Ok(bytes)
    }

    unsafe fn convolve(&mut self, conv: &Conv, pointers: &ConvPointers, stream: CudaStream) -> Result<bool> {
        // SAFETY: the caller fulfils this method's contract, which is that of the library.
        let done = unsafe { self.library.convolve(conv, pointers, stream) }?;
        self.counts.computed.fetch_add(done.into(), Relaxed);
        Ok(done)
    }

    fn is_full(&self, conv: &Conv) -> bool {
        self.library.is_full(conv)
    }

    fn clear(&mut self) {
        self.counts.cleared.fetch_add(1, Relaxed);
        self.library.clear();
    }
}

/// The backends to compare, of which the device's has a library for convolutions of every size.
struct Convolving {
    both: (CpuBackend, CudaBackend),
    /// The products of an emulated library; none on a device of NVIDIA's.
    products: Option<Arc<AtomicU64>>,
    counts: Arc<DnnCounts>,
}

/// Opens the tests' device with a library for convolutions; none where that is not installed. An emulated library has
/// room for `plans_max` algorithms.
fn convolving(multiplier: Multiplier, plans_max: usize) -> Option<Convolving> {
    let TestDevice { backend, emulated, products } = open(LIMIT, multiplier);
    let library: Box<dyn Dnn> = match &emulated {
        Some(device) => Box::new(EmulatedDnn::new(device.clone(), plans_max)),
        None => {
            // The device's primary context, in which the backend computes as well.
            let driver = Arc::new(CudaDriver::open(0).expect("the tests' device"));
            let version = Some(driver.version_major());
            match CUDNN.open(version, |opened| Cudnn::bind(opened, driver.clone(), 8 * LIMIT)) {
                Ok(library) => Box::new(library),
                Err(missing) => {
                    println!("skipped: {missing}");
                    return None;
                }
            }
        }
    };
    let counts = Arc::<DnnCounts>::default();
    let mut backend = backend.with_dnn(Box::new(CountingDnn { library, counts: counts.clone() }));
    backend.set_library_products_min(0);
    Some(Convolving { both: (cpu(), backend), products: emulated.map(|_| products), counts })
}

/// A convolution and its gradients, of these samples, channels and groups.
fn convolve(both: &mut (CpuBackend, CudaBackend), case: WindowSizes, sizes: [usize; 4], dtype: DType) {
    let [samples, seen, made, groups] = sizes;
    let spec = window_spec(case, groups as i64);
    let output = spec.output().expect("a window");
    let (input, kernel, output) = (spec.used(&spec.input), spec.used(&spec.kernel), spec.used(&output));
    let attrs = Attrs::Window(Box::new(spec));
    let of = |shape: Shape, seed| whole(Meta::new(shape, dtype), seed);
    let x = of(with(&[samples, groups * seen], input), 1);
    let y = of(with(&[samples, groups * made], output), 2);
    let (weight, bias) = (of(with(&[groups * made, seen], kernel), 3), of(shape(&[groups * made]), 4));
    let mut forward = vec![x.clone().into(), weight.clone().into(), bias.into()];
    if dtype == DType::BF16 {
        // Sums above 256 would be rounded before the bias is added, and after.
        forward.pop();
    }
    agree(both, Op::Convolution, &forward, &attrs);
    agree(both, Op::ConvolutionInput, &[y.clone().into(), weight.into()], &attrs);
    // With tf32, cuDNN's sums of a weight's gradient are not exact in f32, even where the products are.
    agree_within(1e-5, both, Op::ConvolutionWeight, &[y.into(), x.into()], &attrs);
}

const SQUARE: WindowSizes = (&[1, 1], &[1, 1], &[1, 1], &[1, 1], &[3, 3], &[14, 12]);

#[test]
fn a_library_convolves_as_the_cpu_does() {
    let Some(Convolving { mut both, counts, .. }) = convolving(Multiplier::Kernels, usize::MAX) else { return };
    for tf32 in [true, false] {
        gt_backend::Backend::allow_tf32(&mut both.1, tf32);
        agree_on_convolutions(&mut both);
        for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
            // Channels and groups as tensor cores like them, then depthwise, then sums of many channels.
            for sizes in [[4, 32, 64, 1], [2, 16, 16, 4], [2, 1, 1, 32], [1, 130, 7, 1]] {
                convolve(&mut both, SQUARE, sizes, dtype);
            }
        }
    }
    let (computed, unsupported) = (counts.computed.load(Relaxed), counts.unsupported.load(Relaxed));
    println!("the library computed {computed} convolutions and supported {unsupported} not");
    assert!(computed > 3 * unsupported && computed > 100, "{computed} computed, {unsupported} unsupported");
}

#[test]
fn convolutions_of_a_library_can_be_captured() {
    let Some(Convolving { mut both, counts, .. }) = convolving(Multiplier::Kernels, usize::MAX) else { return };
    gt_backend::Backend::allow_tf32(&mut both.1, true);
    both.1.set_graphs(Graphs::Each).expect("a device");
    for dtype in [DType::BF16, DType::F32] {
        convolve(&mut both, SQUARE, [4, 32, 64, 1], dtype);
        convolve(&mut both, SQUARE, [2, 16, 16, 4], dtype);
    }
    // Each is computed, and captured.
    assert!(counts.computed.load(Relaxed) >= 16);
    assert!(both.1.launch_counts().in_graphs >= 12, "{:?}", both.1.launch_counts());
}

#[test]
fn a_library_without_room_drops_its_algorithms_and_the_graphs_with_them() {
    if is_nvidias() {
        return println!("skipped: cuDNN has room for the algorithms of a test");
    }
    let Some(Convolving { mut both, counts, .. }) = convolving(Multiplier::Kernels, 4) else { return };
    let limits = Limits { shortest: 1, first: 2, longest: 4, ..Limits::default() };
    both.1.set_graphs(Graphs::Repeated(limits)).expect("a device");
    for samples in [1, 2, 1, 1, 1, 3] {
        convolve(&mut both, SQUARE, [samples, 3, 4, 1], DType::F16);
    }
    assert!(counts.cleared.load(Relaxed) >= 2);
}

#[test]
fn what_is_a_product_as_it_lies_or_keeps_every_bit_is_multiplied_and_the_rest_convolved() {
    let Some(Convolving { mut both, products, counts }) = convolving(Multiplier::Library, usize::MAX) else { return };
    let Some(products) = products else { return println!("skipped: no product of NVIDIA's library is counted") };
    let one: WindowSizes = (&[1, 1], &[1, 1], &[0, 0], &[0, 0], &[1, 1], &[6, 5]);
    let lopsided: WindowSizes = (&[1, 1], &[1, 1], &[0, 1], &[1, 1], &[3, 3], &[14, 12]);
    // The window, samples, channels and groups, whether f32 may be rounded to tf32, whether there are products, and the
    // number of convolutions by the library.
    for (case, sizes, dtype, tf32, by_products, convolved) in [
        (one, [2, 8, 8, 1], DType::BF16, false, true, 0),
        (SQUARE, [2, 8, 8, 1], DType::BF16, false, false, 3),
        (lopsided, [2, 8, 8, 1], DType::BF16, false, true, 0),
        (SQUARE, [2, 8, 8, 1], DType::F32, true, false, 3),
        (SQUARE, [2, 8, 8, 1], DType::F32, false, true, 0),
        (SQUARE, [2, 8, 8, 1], DType::F64, true, true, 0),
        (SQUARE, [2, 8, 8, 2], DType::F64, true, false, 0),
    ] {
        gt_backend::Backend::allow_tf32(&mut both.1, tf32);
        let before = (products.load(Relaxed), counts.computed.load(Relaxed));
        convolve(&mut both, case, sizes, dtype);
        let made = (products.load(Relaxed) > before.0, counts.computed.load(Relaxed) - before.1);
        assert_eq!(made, (by_products, convolved), "{case:?} {sizes:?} {dtype:?}");
    }
}

#[test]
fn small_convolutions_take_one_kernel() {
    let Some(Convolving { mut both, counts, .. }) = convolving(Multiplier::Kernels, usize::MAX) else { return };
    both.1.set_library_products_min(1 << 20);
    gt_backend::Backend::allow_tf32(&mut both.1, true);
    convolve(&mut both, SQUARE, [1, 2, 3, 1], DType::F32);
    assert_eq!(counts.computed.load(Relaxed), 0);
    convolve(&mut both, SQUARE, [8, 32, 32, 1], DType::F32);
    assert_eq!(counts.computed.load(Relaxed), 3);
}
