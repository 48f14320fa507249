//! The Python process: how it starts, fails and ends.

use gt_backend::{Backend, Cancellation, ExecError, HostRange, Input};
use gt_ops::{Attrs, DType, Meta, Op, Scalar, Shape};
use gt_torch::backend::TorchTensor;
use gt_torch::{InterpreterOptions, TorchBackend};
use std::ptr::NonNull;
use std::sync::Arc;

/// More than any test holds.
const LIMIT_BYTES: usize = 1 << 30;

fn options(deferred: bool) -> InterpreterOptions {
    InterpreterOptions { deferred, ..InterpreterOptions::on("cpu".into()) }
}

fn opened(deferred: bool) -> TorchBackend {
    TorchBackend::open(&options(deferred), Some(LIMIT_BYTES)).expect("PyTorch").0
}

fn meta(dims: &[usize], dtype: DType) -> Meta {
    Meta::new(Shape::new(dims).expect("a shape of the test"), dtype)
}

fn full(backend: &mut TorchBackend, value: i64, meta: &Meta) -> TorchTensor {
    let attrs = Attrs::Create { shape: meta.shape, dtype: meta.dtype };
    backend.execute(Op::Full, &[Input::Scalar(Scalar::Int(value))], &attrs, meta, 0).expect("a constant")
}

fn read(backend: &mut TorchBackend, tensor: &TorchTensor) -> Result<Vec<u8>, ExecError> {
    let mut bytes = vec![0; backend.meta(tensor).bytes()];
    // SAFETY: `bytes` outlives the call, and nothing refers to it meanwhile.
    let range = unsafe { HostRange::new(NonNull::from(&mut bytes[..]).cast(), bytes.len()) };
    backend.read(tensor, 0, range).map(|()| bytes)
}

#[test]
fn what_cannot_be_used_says_what_to_do() {
    let refused = |options: InterpreterOptions| TorchBackend::open(&options, None).map(drop).unwrap_err();
    let nowhere = InterpreterOptions { python: "/nowhere/python3".into(), ..options(false) };
    let why = refused(nowhere);
    assert!(why.starts_with("/nowhere/python3, which is to run PyTorch, could not be started: No such file"), "{why}");
    assert!(why.ends_with("install Python with PyTorch, or name the Python that has it in GT_TORCH_PYTHON"), "{why}");
    let why = refused(InterpreterOptions { device: "cuda:99".into(), ..options(false) });
    assert!(why.starts_with("cuda:99 is asked for, but PyTorch "), "{why}");
    // A program that is no Python ends without an answer.
    let why = refused(InterpreterOptions { python: "/bin/true".into(), ..options(false) });
    assert!(why.contains("the process that runs PyTorch has ended"), "{why}");
}

#[test]
fn an_error_is_found_at_the_read_and_names_the_first_instruction_that_failed() {
    for deferred in [false, true] {
        let b = &mut opened(deferred);
        let (values, places) = (meta(&[5], DType::F32), meta(&[2], DType::I64));
        let base = full(b, 3, &values);
        let (good, bad) = (full(b, 4, &places), full(b, 7, &places));
        let gathered = meta(&[2], DType::F32);
        b.label(11);
        let failed =
            b.execute(Op::Gather, &[Input::Tensor(&base), Input::Tensor(&bad)], &Attrs::Axis(0), &gathered, 0).unwrap();
        b.label(12);
        let after =
            b.execute(Op::Add, &[Input::Tensor(&failed), Input::Tensor(&failed)], &Attrs::None, &gathered, 0).unwrap();
        b.label(13);
        let fine = b
            .execute(Op::Gather, &[Input::Tensor(&base), Input::Tensor(&good)], &Attrs::Axis(0), &gathered, 0)
            .unwrap();
        let error = Box::new(ExecError::IndexOutOfRange { index: 7, axis: 0, size: 5 });
        let error = ExecError::Earlier { label: 11, op: Some(Op::Gather), error };
        assert_eq!(read(b, &after), Err(error.clone()), "deferred: {deferred}");
        drop(failed);
        // A later result of it fails as well, and one that does not depend on it is as it should be.
        let later = b.execute(Op::Neg, &[Input::Tensor(&after)], &Attrs::None, &gathered, 0).unwrap();
        assert_eq!(b.wait_for_checks(&later), Err(error));
        assert_eq!(read(b, &fine), Ok([3f32.to_ne_bytes(); 2].concat()));
    }
}

#[test]
fn a_worker_issues_many_instructions_before_the_device_has_done_any_and_hears_of_them_in_order() {
    for deferred in [false, true] {
        let b = &mut opened(deferred);
        assert_eq!(b.fence().unwrap(), None, "nothing is under way");
        let square = meta(&[300, 300], DType::F32);
        let mut x = full(b, 0, &square);
        let mut fences = Vec::new();
        for i in 0..300 {
            x = b.execute(Op::Matmul, &[Input::Tensor(&x), Input::Tensor(&x)], &Attrs::None, &square, 0).unwrap();
            if i % 50 == 0 {
                fences.push(b.fence().unwrap().unwrap());
            }
        }
        let last = b.fence().unwrap().unwrap();
        let mut passed = Vec::new();
        while let Some(status) = b.poll_fence(true).unwrap() {
            assert_eq!(status.result, Ok(()));
            assert!(status.computed_ns > 0, "a fence behind work takes time");
            passed.push(status.fence);
        }
        fences.push(last);
        assert_eq!(passed, fences);
    }
}

#[test]
fn instructions_are_issued_while_the_process_does_nothing() {
    let b = &mut opened(false);
    let some = meta(&[3], DType::F32);
    let mut x = full(b, 1, &some);
    b.wait_for_checks(&x).unwrap();
    let signal = |b: &TorchBackend, name: &str| {
        let sent = std::process::Command::new("kill").args([name, &b.process_id().to_string()]).status().unwrap();
        assert!(sent.success());
    };
    signal(b, "-STOP");
    for _ in 0..500 {
        x = b.execute(Op::Neg, &[Input::Tensor(&x)], &Attrs::None, &some, 1).unwrap();
    }
    let fence = b.fence().unwrap().unwrap();
    assert_eq!(b.poll_fence(false).unwrap(), None);
    signal(b, "-CONT");
    assert_eq!(b.poll_fence(true).unwrap().map(|status| status.fence), Some(fence));
    assert_eq!(read(b, &x), Ok([1f32.to_ne_bytes(); 3].concat()));
}

#[test]
fn large_tensors_travel_in_pieces_and_memory_is_free_again() {
    let b = &mut opened(false);
    // More than all of the shared memory.
    let large = meta(&[20_000_003], DType::I32);
    let mut tensor = b.allocate(&large).unwrap();
    let mut bytes: Vec<u8> = (0..20_000_003i32).flat_map(i32::to_ne_bytes).collect();
    // SAFETY: `bytes` outlives the call, and nothing refers to it meanwhile.
    let range = unsafe { HostRange::new(NonNull::from(&mut bytes[..]).cast(), bytes.len()) };
    b.write(&mut tensor, 0, range).unwrap();
    assert!(read(b, &tensor).unwrap() == bytes, "the bytes that were written");
    assert_eq!(b.memory().used_bytes, large.bytes());
    drop(tensor);
    assert_eq!(b.memory().used_bytes, 0);
}

#[test]
fn a_process_that_ends_is_a_lost_device() {
    let b = &mut opened(false);
    let some = meta(&[3], DType::F32);
    let tensor = full(b, 1, &some);
    let killed = std::process::Command::new("kill").args(["-9", &b.process_id().to_string()]).status().unwrap();
    assert!(killed.success());
    match read(b, &tensor) {
        Err(ExecError::Lost(why)) => assert!(why.contains("signal: 9"), "{why}"),
        other => panic!("{other:?}"),
    }
    assert!(matches!(read(b, &tensor), Err(ExecError::Lost(_))));
}

#[test]
fn a_cancelled_instruction_is_not_sent() {
    let b = &mut opened(false);
    let cancellation = Arc::new(Cancellation::default());
    cancellation.cancel_below(5);
    b.cancelled_by(&cancellation, 4);
    let some = meta(&[3], DType::F32);
    let attrs = Attrs::Create { shape: some.shape, dtype: some.dtype };
    let refused = b.execute(Op::Full, &[Input::Scalar(Scalar::Int(1))], &attrs, &some, 0);
    assert_eq!(refused.map(drop), Err(ExecError::Cancelled));
}
