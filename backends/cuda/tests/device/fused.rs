//! A chain of elementwise instructions that has occurred often enough is compiled to one kernel.

use crate::{Multiplier, TestDevice, open};
use gt_backend::conformance::MEMORY_BYTES;
use gt_backend::{Backend, HostRange, Input, Stage, StageInput};
use gt_cuda::driver::emulated::Emulated;
use gt_ops::{Attrs, DType, Meta, Op, Scalar, Shape};
use std::ptr::NonNull;
use std::sync::atomic::Ordering::Relaxed;

const N: usize = 1000;

fn range_of(bytes: &mut [u8]) -> HostRange {
    // SAFETY: each caller passes the range to one call of a backend, which borrows `bytes` until it returns.
    unsafe { HostRange::new(NonNull::from(&mut *bytes).cast(), bytes.len()) }
}

/// The kernels that an emulated device was asked to launch.
fn kernels_launched(device: Option<&Emulated>) -> Option<u64> {
    device.map(|device| device.counts.launches.load(Relaxed))
}

/// `(x + number) * x`, where only the product is kept; one round has another shape.
#[test]
fn a_program_is_one_launch_for_all_shapes_and_numbers() {
    let TestDevice { mut backend, emulated, .. } = open(MEMORY_BYTES, Multiplier::Kernels);
    let launched = || kernels_launched(emulated.as_deref());
    let mut launches = Vec::new();
    for (round, n) in [N, N, N, N - 1, N].into_iter().enumerate() {
        let number = round as f32;
        let meta = Meta::new(Shape::new(&[n]).expect("a shape"), DType::F32);
        let mut x = backend.allocate(&meta).expect("room");
        let mut bytes: Vec<u8> = (0..n).flat_map(|i| (i as f32).to_le_bytes()).collect();
        backend.write(&mut x, 0, range_of(&mut bytes)).expect("a write");
        let before = (launched(), backend.memory().used_bytes);
        let given = StageInput::External(Input::Tensor(&x));
        let stage = |op, inputs, kept, last_use| Stage { op, inputs, attrs: &Attrs::None, out: meta, kept, last_use };
        let stages = [
            stage(Op::Add, vec![given, StageInput::External(Input::Scalar(Scalar::Float(number as f64)))], false, 0),
            stage(Op::Mul, vec![StageInput::Stage(0), given], true, 2),
        ];
        let made = backend.execute_fused(&stages).expect("a program");
        drop(stages);
        let [None, Some(product)] = &made[..] else { panic!("the sum is not wanted, the product is") };
        launches.extend(launched().zip(before.0).map(|(after, before)| after - before));
        if launches.last() == Some(&1) {
            assert_eq!(backend.memory().used_bytes, before.1, "the result takes the memory that is given up");
        }
        backend.read(product, 0, range_of(&mut bytes)).expect("a read");
        let got: Vec<f32> = bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        let want: Vec<f32> = (0..n).map(|i| (i as f32 + number) * i as f32).collect();
        assert_eq!(got, want);
        backend.await_compiled();
    }
    if emulated.is_some() {
        assert_eq!(
            launches,
            [2, 2, 2, 1, 1],
            "a program that was seen twice is compiled, while its steps go one by one"
        );
    }
}

#[test]
fn a_program_with_more_operands_than_a_kernel_takes_is_done_in_parts() {
    let TestDevice { mut backend, emulated, .. } = open(MEMORY_BYTES, Multiplier::Kernels);
    let launched = || kernels_launched(emulated.as_deref());
    backend.compile_programs_at_once();
    let meta = Meta::new(Shape::new(&[N]).expect("a shape"), DType::I32);
    let tensors: Vec<_> = (0..24i32)
        .map(|k| {
            let mut t = backend.allocate(&meta).expect("room");
            let mut bytes: Vec<u8> = (0..N as i32).flat_map(|i| (i * k).to_le_bytes()).collect();
            backend.write(&mut t, 0, range_of(&mut bytes)).expect("a write");
            t
        })
        .collect();
    let given = |i: usize| StageInput::External(Input::Tensor(&tensors[i]));
    let stages: Vec<_> = (1..tensors.len())
        .map(|i| {
            let before = if i == 1 { given(0) } else { StageInput::Stage(i - 2) };
            let kept = i == 1 || i + 1 == tensors.len();
            Stage { op: Op::Add, inputs: vec![before, given(i)], attrs: &Attrs::None, out: meta, kept, last_use: 0 }
        })
        .collect();
    let before = launched();
    let made = backend.execute_fused(&stages).expect("a program");
    assert_eq!(launched(), before.map(|before| before + 2));
    assert_eq!(made.iter().filter(|made| made.is_some()).count(), 2, "what is not wanted is gone");
    let Some(sum) = &made[stages.len() - 1] else { panic!("the sum is wanted") };
    let mut bytes = vec![0; meta.bytes()];
    backend.read(sum, 0, range_of(&mut bytes)).expect("a read");
    let all: i32 = (0..24).sum();
    let want: Vec<u8> = (0..N as i32).flat_map(|i| (i * all).to_le_bytes()).collect();
    assert_eq!(bytes, want);
}
