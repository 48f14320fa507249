//! The CUDA backend works asynchronously: transfers in flight, fences, and errors that the device reports later. The
//! emulated device runs nothing until the host polls or waits; one of NVIDIA's may be done before.

use crate::{Multiplier, TestDevice, is_skipped, open};
use gt_backend::{Backend, ExecError, Fence, FenceStatus, HostRange, Input, MemoryUsage};
use gt_cuda::driver::emulated::Emulated;
use gt_cuda::{CudaBackend, CudaTensor};
use gt_ops::infer::{InputMeta, infer};
use gt_ops::{Attrs, DType, Meta, Op, Scalar, Shape};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

const LIMIT: usize = 64 << 20;
const N: usize = 1 << 10;

fn device() -> (Option<Arc<Emulated>>, CudaBackend) {
    let TestDevice { emulated, backend, .. } = open(LIMIT, Multiplier::Kernels);
    (emulated, backend)
}

fn floats(n: usize) -> Meta {
    Meta::new(Shape::new(&[n]).expect("a shape"), DType::F32)
}

fn full(backend: &mut CudaBackend, n: usize, number: f64) -> CudaTensor {
    let attrs = Attrs::Create { shape: Shape::new(&[n]).expect("a shape"), dtype: DType::F32 };
    let number = Input::Scalar(Scalar::Float(number));
    backend.execute(Op::Full, &[number], &attrs, &floats(n), 0).expect("room")
}

fn plus_one(backend: &mut CudaBackend, of: &CudaTensor, last_use: u8) -> CudaTensor {
    let one = Input::Scalar(Scalar::Float(1.0));
    backend.execute(Op::Add, &[Input::Tensor(of), one], &Attrs::None, &of.meta, last_use).expect("room")
}

/// Host memory for transfers, not accessed while one is in flight.
struct Memory(Vec<u8>);

impl Memory {
    fn new(bytes: usize) -> Memory {
        Memory(vec![0xee; bytes])
    }
    fn range(&mut self) -> HostRange {
        // SAFETY: the tests access the bytes only after the transfer has completed, and free them after that.
        unsafe { HostRange::new(NonNull::from(&mut self.0[..]).cast(), self.0.len()) }
    }
    fn floats(&self) -> Vec<f32> {
        self.0.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
    }
}

/// Polls until the device has passed `fence`.
fn come_to(backend: &mut CudaBackend, fence: Fence) -> FenceStatus {
    loop {
        if let Some(reached) = backend.poll_fence(false).expect("a device")
            && reached.fence == fence
        {
            return reached;
        }
    }
}

#[test]
fn a_fetch_is_what_the_tensor_was_however_its_memory_is_used_next() {
    // Through the pinned buffers, then by DMA into registered memory.
    for registered in [false, true] {
        let (driver, mut backend) = device();
        let mut to = Memory::new(N * 4);
        if registered {
            // SAFETY: the memory stays mapped until the test's transfers have completed.
            unsafe { backend.register_host_memory(to.range(), true) };
            backend.await_pinned();
        }
        let given = full(&mut backend, N, 3.0);
        let fetch = backend.start_read(&given, 0, to.range()).unwrap().expect("the device is behind");
        // Only the transfer still uses the tensor's memory, so this op could compute in place; then the tensor is freed
        // and its memory could be reused.
        let next = plus_one(&mut backend, &given, 1);
        drop(given);
        let others: Vec<CudaTensor> = (0..20).map(|i| full(&mut backend, N, f64::from(i))).collect();
        assert!(driver.is_none() || to.0.iter().all(|byte| *byte == 0xee), "nothing has been waited for");
        come_to(&mut backend, fetch);
        assert_eq!(to.floats(), [3.0; N]);
        let mut sum = Memory::new(N * 4);
        backend.read(&next, 0, sum.range()).unwrap();
        assert_eq!(sum.floats(), [4.0; N]);
        drop(others);
    }
}

#[test]
fn what_is_on_its_way_counts_against_limits_only_until_somebody_needs_the_room() {
    let (_driver, mut backend) = device();
    let account = Arc::new(MemoryUsage::new(1));
    account.set_limit(3 << 20);
    backend.charge(&account);
    let large = (2 << 20) / 4;
    let given = full(&mut backend, large, 3.0);
    let mut to = Memory::new(2 << 20);
    let fetch = backend.start_read(&given, 0, to.range()).unwrap().expect("the device is behind");
    drop(given);
    let next = full(&mut backend, large, 5.0);
    come_to(&mut backend, fetch);
    assert!(to.floats().iter().all(|x| *x == 3.0));
    drop(next);
    assert_eq!(backend.held(&account), 0);
}

#[test]
fn fetches_larger_than_the_buffers_together_end_in_order() {
    let (_driver, mut backend) = device();
    let large = (20 << 20) / 4;
    let (one, two) = (full(&mut backend, large, 1.0), full(&mut backend, large, 2.0));
    let mut to = [Memory::new(20 << 20), Memory::new(20 << 20)];
    let [a, b] = &mut to;
    let first = backend.start_read(&one, 0, a.range()).unwrap().unwrap();
    let second = backend.start_read(&two, 0, b.range()).unwrap().unwrap();
    // A blocking read overtakes the transfers in flight, and takes no buffer from them.
    let mut now = Memory::new(N * 4);
    let small = full(&mut backend, N, 7.0);
    backend.read(&small, 0, now.range()).unwrap();
    assert_eq!(now.floats(), [7.0; N]);
    assert!(first < second);
    assert_eq!(come_to(&mut backend, first).result, Ok(()));
    come_to(&mut backend, second);
    assert!(to[0].floats().iter().all(|x| *x == 1.0) && to[1].floats().iter().all(|x| *x == 2.0));
}

#[test]
fn an_upload_reads_its_source_until_the_mark_and_what_follows_sees_it() {
    let (_driver, mut backend) = device();
    let mut from = Memory::new(N * 4);
    from.0 = (0..N).flat_map(|i| (i as f32).to_le_bytes()).collect();
    // SAFETY: the memory stays mapped until the test's transfers have completed.
    unsafe { backend.register_host_memory(from.range(), true) };
    backend.await_pinned();
    let mut tensor = backend.allocate(&floats(N)).unwrap();
    let write = backend.start_write(&mut tensor, 0, from.range()).unwrap().expect("the device is behind");
    let next = plus_one(&mut backend, &tensor, 0);
    come_to(&mut backend, write);
    from.0.fill(0);
    let mut sum = Memory::new(N * 4);
    backend.read(&next, 0, sum.range()).unwrap();
    assert_eq!(sum.floats(), (1..=N).map(|i| i as f32).collect::<Vec<_>>());
}

#[test]
fn memory_that_goes_is_not_used_any_more() {
    let (driver, mut backend) = device();
    let mut to = Memory::new(N * 4);
    // SAFETY: the memory stays mapped until the test's transfers have completed.
    unsafe { backend.register_host_memory(to.range(), true) };
    backend.await_pinned();
    let given = full(&mut backend, N, 3.0);
    let fetch = backend.start_read(&given, 0, to.range()).unwrap().unwrap();
    // SAFETY: `to` is still mapped; this call waits for the transfer.
    unsafe { backend.register_host_memory(to.range(), false) };
    assert_eq!(to.floats(), [3.0; N]);
    to.0.fill(0);
    come_to(&mut backend, fetch);
    assert_eq!(to.floats(), [0.0; N]);
    drop((given, backend));
    assert_eq!(driver.map_or(0, |driver| driver.leaked()), 0);
}

#[test]
fn a_backend_that_ends_waits_for_what_is_on_its_way() {
    let (driver, mut backend) = device();
    let mut to = Memory::new(N * 4);
    let given = full(&mut backend, N, 3.0);
    backend.start_read(&given, 0, to.range()).unwrap().unwrap();
    drop((given, backend));
    assert_eq!(driver.map_or(0, |driver| driver.leaked()), 0);
}

#[test]
fn what_the_device_finds_comes_with_the_mark() {
    let (_driver, mut backend) = device();
    let mut to = Memory::new(N * 4);
    let given = full(&mut backend, N, 3.0);
    let attrs = Attrs::Create { shape: Shape::new(&[N]).unwrap(), dtype: DType::I64 };
    let out = Meta::new(Shape::new(&[N]).unwrap(), DType::I64);
    let index = backend.execute(Op::Full, &[Input::Scalar(Scalar::Int(5000))], &attrs, &out, 0).unwrap();
    backend.label(42);
    let axis = Attrs::Axis(0);
    let metas = [&given, &index].map(|t| InputMeta::Tensor(t.meta));
    let out = infer(Op::Gather, &metas, &axis).unwrap();
    let wrong = backend.execute(Op::Gather, &[Input::Tensor(&given), Input::Tensor(&index)], &axis, &out, 0).unwrap();
    let fetch = backend.start_read(&wrong, 0, to.range()).unwrap().unwrap();
    let right = backend.start_read(&given, 0, to.range()).unwrap().unwrap();
    let error = come_to(&mut backend, fetch).result.unwrap_err();
    assert!(matches!(error, ExecError::Earlier { label: 42, op: Some(Op::Gather), .. }), "{error}");
    assert_eq!(come_to(&mut backend, right).result, Ok(()));
}

#[test]
fn a_device_that_is_lost_says_so_at_the_next_look() {
    if is_skipped("an emulated device alone is lost when asked to") {
        return;
    }
    let (driver, mut backend) = device();
    let mut to = Memory::new(N * 4);
    let given = full(&mut backend, N, 3.0);
    backend.start_read(&given, 0, to.range()).unwrap().unwrap();
    driver.expect("an emulated device").lose("an illegal memory access was encountered");
    for wait in [false, true] {
        let error = backend.poll_fence(wait).unwrap_err();
        assert!(matches!(&error, ExecError::Lost(why) if why.contains("an illegal memory access")), "{error}");
    }
}

#[test]
fn a_mark_tells_how_long_the_device_computed_since_the_one_before() {
    if is_skipped("the time that work takes is known of an emulated device alone") {
        return;
    }
    let (driver, mut backend) = device();
    let driver = driver.expect("an emulated device");
    let mut fences = Vec::new();
    for takes_ns in [1_000, 50_000, 7_000] {
        driver.kernel_ns.store(takes_ns, Relaxed);
        let steps: Vec<CudaTensor> = (0..3).map(|_| full(&mut backend, N, 1.0)).collect();
        fences.push(backend.fence().unwrap().expect("the device is behind"));
        drop(steps);
    }
    let took: Vec<u64> = fences.into_iter().map(|fence| come_to(&mut backend, fence).computed_ns).collect();
    assert_eq!(took, [3_000, 150_000, 21_000]);
    assert_eq!(backend.fence().unwrap(), None, "everything is done");
    // Time that the device waits, for more work or for a copy, is not computation.
    let mut from = Memory::new(8 << 20);
    let mut tensor = backend.allocate(&floats((8 << 20) / 4)).unwrap();
    let write = backend.start_write(&mut tensor, 0, from.range()).unwrap().unwrap();
    let sum = plus_one(&mut backend, &tensor, 0);
    let fence = backend.fence().unwrap().unwrap();
    let copied = come_to(&mut backend, write);
    assert!(copied.copied_ns >= 4_000, "{copied:?}");
    assert_eq!(come_to(&mut backend, fence).computed_ns, 7_000);
    drop(sum);
}
