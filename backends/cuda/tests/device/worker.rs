//! Memory, ordering and device loss of the CUDA backend.

use crate::{Multiplier, TestDevice, is_skipped, is_skipped_without_pool, open};
use gt_backend::{Backend, ExecError, HostRange, Input, LimitScope, MemoryUsage};
use gt_cuda::CudaBackend;
use gt_cuda::driver::emulated::{Emulated, Gxx, test_store};
use gt_ops::infer::{InputMeta, infer};
use gt_ops::{Attrs, DType, Meta, Op, RANK_MAX, Shape};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

const LIMIT: usize = 64 << 20;

fn device() -> (Option<Arc<Emulated>>, CudaBackend) {
    let TestDevice { emulated, backend, .. } = open(LIMIT, Multiplier::Kernels);
    (emulated, backend)
}

fn meta(dims: &[usize], dtype: DType) -> Meta {
    Meta::new(Shape::new(dims).expect("a shape"), dtype)
}

fn range(bytes: &mut [u8]) -> HostRange {
    // SAFETY: the callers pass the range to one call of a backend, or withdraw it before they access `bytes` again.
    unsafe { HostRange::new(NonNull::from(&mut *bytes).cast(), bytes.len()) }
}

fn upload<B: Backend>(backend: &mut B, meta: &Meta, bytes: &mut [u8]) -> B::Tensor {
    let mut tensor = backend.allocate(meta).expect("room");
    backend.write(&mut tensor, 0, range(bytes)).expect("a write");
    tensor
}

fn read<B: Backend>(backend: &mut B, tensor: &B::Tensor) -> Result<Vec<u8>, ExecError> {
    let mut bytes = vec![0xee; backend.meta(tensor).bytes()];
    backend.read(tensor, 0, range(&mut bytes))?;
    Ok(bytes)
}

/// Transposes a matrix and copies it into row-major order.
fn transposed_copy(backend: &mut CudaBackend, of: &gt_cuda::CudaTensor) -> gt_cuda::CudaTensor {
    let turned = {
        let mut p = [0u8; RANK_MAX];
        p[0] = 1;
        run(backend, Op::Permute, of, Attrs::Permutation(p))
    };
    let flat = Shape::new(&[backend.meta(of).shape.numel()]).expect("a shape");
    run(backend, Op::Reshape, &turned, Attrs::Shape(flat))
}

fn run(backend: &mut CudaBackend, op: Op, of: &gt_cuda::CudaTensor, attrs: Attrs) -> gt_cuda::CudaTensor {
    let out = infer(op, &[InputMeta::Tensor(backend.meta(of))], &attrs).expect("what fits together");
    backend.execute(op, &[Input::Tensor(of)], &attrs, &out, 0).expect("an op")
}

#[test]
fn an_upload_may_be_forgotten_as_soon_as_it_returns() {
    let (_driver, mut backend) = device();
    // Larger than the pinned buffers together, so that they are reused while the device is behind.
    let meta = meta(&[5 << 20], DType::I32);
    let mut bytes: Vec<u8> = (0..meta.bytes()).map(|i| (i * 7 + i / 4096) as u8).collect();
    let expected = bytes.clone();
    let tensor = upload(&mut backend, &meta, &mut bytes);
    bytes.fill(0);
    assert_eq!(read(&mut backend, &tensor).unwrap(), expected);
}

#[test]
fn memory_that_is_registered_is_copied_without_a_detour() {
    let (driver, mut backend) = device();
    let mut arena: Vec<u8> = (0..16 << 20).map(|i| (i * 13 + i / 999) as u8).collect();
    let expected = arena[..8 << 20].to_vec();
    let whole = range(&mut arena);
    // SAFETY: `arena` stays mapped until it is withdrawn at the end of the test.
    unsafe { backend.register_host_memory(whole, true) };
    backend.await_pinned();
    let start = NonNull::new(whole.as_ptr()).unwrap();
    // SAFETY: both halves are within `arena`, which nothing else accesses until it is withdrawn.
    let (source, target) = unsafe { (HostRange::new(start, 8 << 20), HostRange::new(start.add(8 << 20), 8 << 20)) };
    let meta = meta(&[8 << 20], DType::U8);
    let mut tensor = backend.allocate(&meta).unwrap();
    backend.write(&mut tensor, 0, source).unwrap();
    backend.read(&tensor, 0, target).unwrap();
    if let Some(driver) = driver {
        assert_eq!(driver.counts.transfers.load(Relaxed), 2);
    }
    // SAFETY: `arena` is still mapped, and its transfers have completed.
    unsafe { backend.register_host_memory(whole, false) };
    assert_eq!(&arena[8 << 20..], expected);
}

#[test]
fn memory_is_used_again_in_the_order_of_the_stream() {
    if is_skipped_without_pool("no memory is used again") {
        return;
    }
    let (driver, mut backend) = device();
    let meta = meta(&[256, 1024], DType::F32);
    let mut bytes: Vec<u8> = (0..meta.bytes()).map(|i| (i % 251) as u8).collect();
    let tensor = upload(&mut backend, &meta, &mut bytes);
    let first = transposed_copy(&mut backend, &tensor);
    let expected = read(&mut backend, &first).unwrap();
    drop(first);
    let allocations = || driver.as_ref().map(|driver| driver.counts.allocations.load(Relaxed));
    let before = allocations();
    for _ in 0..100 {
        // Reuses the memory of the previous copy, which may not have been computed yet.
        let copy = transposed_copy(&mut backend, &tensor);
        drop(copy);
    }
    let last = transposed_copy(&mut backend, &tensor);
    assert_eq!(read(&mut backend, &last).unwrap(), expected);
    assert_eq!(allocations(), before, "a block of this size was free");
}

#[test]
fn nobody_sees_what_another_account_held() {
    if is_skipped_without_pool("no memory of another account is used again, and new memory is noise") {
        return;
    }
    let (_driver, mut backend) = device();
    let (one, two) = (Arc::new(MemoryUsage::new(1)), Arc::new(MemoryUsage::new(2)));
    let meta = meta(&[1 << 20], DType::U8);
    backend.charge(&one);
    let secret = upload(&mut backend, &meta, &mut vec![0x77; meta.bytes()]);
    assert!(backend.held(&one) >= meta.bytes() && backend.held(&two) == 0);
    drop(secret);
    assert_eq!(backend.held(&one), 0);
    backend.charge(&two);
    let fresh = backend.allocate(&meta).unwrap();
    assert!(read(&mut backend, &fresh).unwrap().iter().all(|byte| *byte == 0));
}

#[test]
fn an_account_has_a_limit_of_its_own_and_others_go_on() {
    let (_driver, mut backend) = device();
    let (small, other) = (Arc::new(MemoryUsage::new(1)), Arc::new(MemoryUsage::new(2)));
    small.set_limit(1 << 20);
    let meta = meta(&[2 << 20], DType::U8);
    backend.charge(&small);
    let refused = backend.allocate(&meta).err();
    assert!(matches!(refused, Some(ExecError::OutOfMemory { scope: LimitScope::Usage, .. })), "{refused:?}");
    backend.charge(&other);
    assert!(backend.allocate(&meta).is_ok());
}

#[test]
fn a_device_that_others_fill_is_out_of_memory_until_they_leave() {
    if is_skipped("a device of NVIDIA's cannot be filled without disturbing other tests") {
        return;
    }
    let driver = Arc::new(Emulated::new(LIMIT));
    let [mut others, mut backend] = [(); 2].map(|()| {
        CudaBackend::new(driver.clone(), Box::new(Gxx::default()), test_store(), LIMIT).expect("an emulated device")
    });
    let large = meta(&[48 << 20], DType::U8);
    let held = others.allocate(&large).unwrap();
    let refused = backend.allocate(&large).err();
    assert!(matches!(refused, Some(ExecError::OutOfMemory { scope: LimitScope::Device, .. })), "{refused:?}");
    drop(held);
    others.trim();
    assert!(backend.allocate(&large).is_ok());
}

#[test]
fn nothing_is_left_on_the_device() {
    let (driver, mut backend) = device();
    let meta = meta(&[64, 64], DType::I64);
    let tensor = upload(&mut backend, &meta, &mut vec![1; meta.bytes()]);
    let copy = transposed_copy(&mut backend, &tensor);
    drop((tensor, copy));
    drop(backend);
    assert_eq!(driver.map_or(0, |driver| driver.leaked()), 0);
}

#[test]
fn a_device_that_is_lost_says_so_and_ends_nobody() {
    if is_skipped("an emulated device alone is lost when asked to") {
        return;
    }
    let (driver, mut backend) = device();
    let meta = meta(&[64, 64], DType::F32);
    let tensor = upload(&mut backend, &meta, &mut vec![1; meta.bytes()]);
    driver.expect("an emulated device").lose("an illegal memory access was encountered");
    let error = read(&mut backend, &tensor).unwrap_err();
    assert!(matches!(&error, ExecError::Lost(why) if why.contains("an illegal memory access")), "{error}");
    assert!(matches!(backend.allocate(&meta), Err(ExecError::Lost(_))));
}

#[test]
fn transfers_of_both_kinds_follow_each_other() {
    let (_driver, mut backend) = device();
    let meta = meta(&[64, 64], DType::F32);
    let mut arena = vec![0u8; meta.bytes()];
    let whole = range(&mut arena);
    // SAFETY: `arena` stays mapped until it is withdrawn at the end of the test.
    unsafe { backend.register_host_memory(whole, true) };
    backend.await_pinned();
    let mut bytes: Vec<u8> = (0..meta.bytes()).map(|i| (i % 251) as u8).collect();
    let first = upload(&mut backend, &meta, &mut bytes);
    // This upload goes through the pinned buffers, and nothing has waited for it when the registered memory is copied
    // to.
    bytes.reverse();
    let second = upload(&mut backend, &meta, &mut bytes);
    backend.read(&first, 0, whole).unwrap();
    let copy = transposed_copy(&mut backend, &second);
    let again = run(&mut backend, Op::Reshape, &copy, Attrs::Shape(meta.shape));
    let turned = transposed_copy(&mut backend, &again);
    assert_eq!(read(&mut backend, &turned).unwrap(), bytes);
    // SAFETY: `arena` is still mapped, and its transfers have completed.
    unsafe { backend.register_host_memory(whole, false) };
}
