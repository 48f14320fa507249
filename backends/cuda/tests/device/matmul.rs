//! Matrix products by the BLAS library: the calls that an emulated one receives, and their order in the stream.

use crate::{Multiplier, TestDevice, open};
use gt_backend::conformance::{self, MEMORY_BYTES};
use gt_backend::{Backend, HostRange, Input};
use gt_cuda::driver::emulated::Emulated;
use gt_cuda::{CudaBackend, CudaTensor};
use gt_ops::infer::{InputMeta, infer};
use gt_ops::instruction::SliceSpec;
use gt_ops::{Attrs, DType, Meta, Op, RANK_MAX, Shape};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

struct Device {
    emulated: Option<Arc<Emulated>>,
    backend: CudaBackend,
    products: Arc<AtomicU64>,
}

impl Device {
    fn new() -> Device {
        let TestDevice { backend, emulated, products } = open(MEMORY_BYTES, Multiplier::Library);
        Device { backend, emulated, products }
    }

    fn run(&mut self, op: Op, of: &[&CudaTensor], attrs: Attrs) -> CudaTensor {
        let metas: Vec<InputMeta> = of.iter().map(|t| InputMeta::Tensor(self.backend.meta(t))).collect();
        let out = infer(op, &metas, &attrs).expect("inputs that fit");
        let inputs: Vec<Input<'_, CudaTensor>> = of.iter().copied().map(Input::Tensor).collect();
        self.backend.execute(op, &inputs, &attrs, &out, 0).expect("a result")
    }

    /// A tensor of 0, 1, 2, ...
    fn counting(&mut self, dims: &[usize]) -> CudaTensor {
        let meta = Meta::new(Shape::new(dims).expect("a shape"), DType::F32);
        let mut bytes: Vec<u8> = (0..meta.shape.numel()).flat_map(|i| (i as f32).to_le_bytes()).collect();
        let mut tensor = self.backend.allocate(&meta).expect("memory");
        self.backend.write(&mut tensor, 0, range(&mut bytes)).expect("an upload");
        tensor
    }

    fn permuted(&mut self, t: &CudaTensor, axes: &[u8]) -> CudaTensor {
        let mut permutation = [0u8; RANK_MAX];
        permutation[..axes.len()].copy_from_slice(axes);
        self.run(Op::Permute, &[t], Attrs::Permutation(permutation))
    }

    fn numbers(&mut self, t: &CudaTensor) -> Vec<f32> {
        let mut bytes = vec![0; self.backend.meta(t).bytes()];
        self.backend.read(t, 0, range(&mut bytes)).expect("a download");
        bytes.chunks_exact(4).map(|x| f32::from_le_bytes([x[0], x[1], x[2], x[3]])).collect()
    }

    /// The result of `work`, which takes this many library products and kernel launches of an emulated device.
    fn counted<T>(&mut self, products: u64, kernels: u64, work: impl FnOnce(&mut Device) -> T) -> T {
        let counts = |device: &Device| {
            let driver = device.emulated.as_ref()?;
            Some((device.products.load(Relaxed), driver.counts.launches.load(Relaxed)))
        };
        let before = counts(self);
        let result = work(self);
        if let (Some(before), Some(after)) = (before, counts(self)) {
            assert_eq!((after.0 - before.0, after.1 - before.1), (products, kernels));
        }
        result
    }
}

fn range(bytes: &mut [u8]) -> HostRange {
    // SAFETY: each caller passes the range to one call of a backend, which borrows `bytes` until it returns.
    unsafe { HostRange::new(NonNull::from(&mut *bytes).cast(), bytes.len()) }
}

#[test]
fn the_library_multiplies_as_every_backend_does() {
    let mut device = Device::new();
    conformance::matmuls(&mut device.backend);
    assert!(device.emulated.is_none() || device.products.load(Relaxed) > 100);
}

#[test]
fn the_library_adds_biases_as_every_backend_does() {
    let mut device = Device::new();
    conformance::affine_maps(&mut device.backend);
    assert!(device.emulated.is_none() || device.products.load(Relaxed) > 100);
}

/// A linear map is one call of the library, whatever axes its rows have, and a bias that is not contiguous is copied.
#[test]
fn a_linear_map_is_one_product_with_a_bias() {
    let mut device = Device::new();
    let (x, w, b) = (device.counting(&[2, 2, 3]), device.counting(&[2, 3]), device.counting(&[2]));
    let y = device.counted(1, 0, |device| device.run(Op::Affine, &[&x, &w, &b], Attrs::None));
    assert_eq!(device.numbers(&y), [5., 15., 14., 51., 23., 87., 32., 123.]);
    // The rows of this input are not evenly spaced, so they are copied.
    let turned = device.permuted(&x, &[1, 0, 2]);
    let y = device.counted(1, 1, |device| device.run(Op::Affine, &[&turned, &w, &b], Attrs::None));
    assert_eq!(device.numbers(&y), [5., 15., 23., 87., 14., 51., 32., 123.]);
    let every = device.counting(&[4]);
    let last = Attrs::Slice(Box::new(SliceSpec {
        start: [3, 0, 0, 0, 0, 0, 0, 0],
        step: [-2, 1, 1, 1, 1, 1, 1, 1],
        sizes: Shape::new(&[2]).expect("a shape"),
    }));
    let b = device.run(Op::Slice, &[&every], last);
    let y = device.counted(1, 1, |device| device.run(Op::Affine, &[&x, &w, &b], Attrs::None));
    assert_eq!(device.numbers(&y), [8., 15., 17., 51., 26., 87., 35., 123.]);
}

#[test]
fn factors_are_rounded_where_they_may_be() {
    let mut device = Device::new();
    let x = device.counting(&[1, 2050]);
    let last = Attrs::Slice(Box::new(SliceSpec {
        start: [0, 2049, 0, 0, 0, 0, 0, 0],
        step: [1; RANK_MAX],
        sizes: Shape::new(&[1, 1]).expect("a shape"),
    }));
    let x = device.run(Op::Slice, &[&x], last);
    let exact = 2049. * 2049.;
    for allowed in [true, false, true] {
        device.backend.allow_tf32(allowed);
        let squared = device.run(Op::Matmul, &[&x, &x], Attrs::None);
        let product = device.numbers(&squared)[0];
        match (allowed, device.emulated.is_some()) {
            (false, _) => assert_eq!(product, exact),
            (true, true) => assert_eq!(product, 2050. * 2050.),
            // NVIDIA's library may round, and to either neighbour.
            (true, false) => assert!([2048. * 2048., exact, 2050. * 2050.].contains(&product), "{product}"),
        }
    }
}

#[test]
fn transposed_operands_are_multiplied_as_they_lie() {
    let mut device = Device::new();
    let (a, b) = (device.counting(&[3, 2]), device.counting(&[4, 3]));
    let (a, b) = (device.permuted(&a, &[1, 0]), device.permuted(&b, &[1, 0]));
    let c = device.counted(1, 0, |device| device.run(Op::Matmul, &[&a, &b], Attrs::None));
    assert_eq!(device.numbers(&c), [10., 28., 46., 64., 13., 40., 67., 94.]);
}

#[test]
fn heads_beside_each_other_are_one_call_and_a_weight_for_many_batches_is_one_tall_product() {
    let mut device = Device::new();
    // A sequence of 5 with 2 heads of 3 features: (1, 5, 2, 3) viewed as (1, 2, 5, 3), times its own transpose.
    let t = device.counting(&[1, 5, 2, 3]);
    let (q, k) = (device.permuted(&t, &[0, 2, 1, 3]), device.permuted(&t, &[0, 2, 3, 1]));
    let scores = device.counted(1, 0, |device| device.run(Op::Matmul, &[&q, &k], Attrs::None));
    // Row 1 of head 1 is (9, 10, 11), row 0 is (3, 4, 5).
    assert_eq!(device.numbers(&scores)[25 + 5], 9. * 3. + 10. * 4. + 11. * 5.);
    let (x, w) = (device.counting(&[4, 5, 3]), device.counting(&[3, 2]));
    let y = device.counted(1, 0, |device| device.run(Op::Matmul, &[&x, &w], Attrs::None));
    assert_eq!(device.numbers(&y)[38..], [57. * 0. + 58. * 2. + 59. * 4., 57. * 1. + 58. * 3. + 59. * 5.]);
}

#[test]
fn many_batches_that_no_step_leads_through_are_laid_out_once() {
    let mut device = Device::new();
    let t = device.counting(&[12, 5, 2, 3]);
    let (q, k) = (device.permuted(&t, &[0, 2, 1, 3]), device.permuted(&t, &[0, 2, 3, 1]));
    let scores = device.counted(1, 2, |device| device.run(Op::Matmul, &[&q, &k], Attrs::None));
    let row = |sequence: usize, position: usize, head: usize| {
        let first = ((sequence * 5 + position) * 2 + head) * 3;
        [first as f32, first as f32 + 1., first as f32 + 2.]
    };
    let expected: f32 = row(11, 4, 1).iter().zip(row(11, 2, 1)).map(|(a, b)| a * b).sum();
    assert_eq!(device.numbers(&scores)[(11 * 2 + 1) * 25 + 4 * 5 + 2], expected);
}

#[test]
fn products_stand_in_the_order_of_the_stream() {
    let mut device = Device::new();
    let a = device.counting(&[2, 2]);
    let turned = device.permuted(&a, &[1, 0]);
    let doubled = device.run(Op::Add, &[&a, &turned], Attrs::None);
    let product = device.run(Op::Matmul, &[&doubled, &a], Attrs::None);
    drop(doubled);
    // The result reuses the memory of `doubled`, although the device has not multiplied yet.
    let later = device.run(Op::Add, &[&a, &a], Attrs::None);
    assert_eq!(device.numbers(&product), [6., 9., 12., 21.]);
    assert_eq!(device.numbers(&later), [0., 2., 4., 6.]);
}
