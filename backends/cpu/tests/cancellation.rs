//! Instructions that would compute for minutes to years end when they are cancelled, whichever loop they are in, and
//! other instructions are computed at their preemption points.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use gt_backend::{Backend, Cancellation, ExecError, HostRange, Input, preemptible};
use gt_cpu::{CpuBackend, CpuOptions, CpuTensor};
use gt_ops::infer::{InputMeta, infer};
use gt_ops::{Attrs, DType, Op, Scalar, Shape, WindowSpec};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

/// The computing time of this process after which the instruction under test is cancelled, nanoseconds.
const COMPUTED_NS: i64 = 20_000_000;
/// Axes of this size reach into the years.
const LARGE: usize = 10_000_000;

fn shape(dims: &[usize]) -> Shape {
    Shape::new(dims).unwrap()
}

fn execute(
    backend: &mut CpuBackend,
    op: Op,
    inputs: &[Input<'_, CpuTensor>],
    attrs: &Attrs,
) -> Result<CpuTensor, ExecError> {
    let metas: Vec<InputMeta> = inputs
        .iter()
        .map(|input| match input {
            Input::Tensor(tensor) => InputMeta::Tensor(tensor.meta),
            Input::Scalar(number) => InputMeta::Scalar(*number),
        })
        .collect();
    let out = infer(op, &metas, attrs).unwrap();
    backend.execute(op, inputs, attrs, &out, 0)
}

/// A tensor of ones, or of zeros if `dtype` is an integer.
fn filled(backend: &mut CpuBackend, dims: &[usize], dtype: DType) -> CpuTensor {
    let number = if dtype.is_float() { Scalar::Float(1.0) } else { Scalar::Int(0) };
    execute(backend, Op::Full, &[Input::Scalar(number)], &Attrs::Create { shape: shape(dims), dtype }).unwrap()
}

/// A view of `dims` of one element.
fn expanded(backend: &mut CpuBackend, dims: &[usize], dtype: DType) -> CpuTensor {
    let one = filled(backend, &vec![1; dims.len()], dtype);
    execute(backend, Op::Expand, &[Input::Tensor(&one)], &Attrs::Shape(shape(dims))).unwrap()
}

/// The computing time of all threads of this process, nanoseconds.
fn computed_ns() -> i64 {
    // SAFETY: all-zero is a valid `timespec`, and `clock_gettime` writes one.
    unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time);
        time.tv_sec * 1_000_000_000 + time.tv_nsec
    }
}

/// The sum of 100,000 ones, which is long enough to be divided among threads.
fn sum_of_ones(backend: &mut CpuBackend) -> f32 {
    let ones = filled(backend, &[100, 1000], DType::F32);
    let attrs = Attrs::Axes { mask: 3, keepdim: false };
    let sum = execute(backend, Op::Sum, &[Input::Tensor(&ones)], &attrs).unwrap();
    let mut bytes = [0; 4];
    // SAFETY: the bytes live until the read is done, and nothing else refers to them meanwhile.
    let range = unsafe { HostRange::new(NonNull::from(&mut bytes).cast(), bytes.len()) };
    backend.read(&sum, 0, range).unwrap();
    f32::from_ne_bytes(bytes)
}

/// Runs an instruction with one thread and with two, others at its preemption points, cancels it while it computes, and
/// runs another one afterwards.
fn ends_when_cancelled(make: impl Fn(&mut CpuBackend) -> (Op, Vec<CpuTensor>, Attrs)) {
    for threads in [1, 2] {
        let mut backend = CpuBackend::new(CpuOptions { threads, memory_bytes_limit: 1 << 30, ..CpuOptions::default() });
        let (op, operands, attrs) = make(&mut backend);
        let inputs: Vec<_> = operands.iter().map(Input::Tensor).collect();
        let cancellation = Arc::new(Cancellation::default());
        backend.cancelled_by(&cancellation, 1);
        let used_bytes = backend.memory().used_bytes;
        let (ended, preempted) = (AtomicBool::new(false), AtomicUsize::new(0));
        let result = std::thread::scope(|scope| {
            scope.spawn(|| {
                let begun_ns = computed_ns();
                while computed_ns() < begun_ns + COMPUTED_NS || preempted.load(Relaxed) == 0 {
                    std::thread::yield_now();
                }
                assert!(!ended.load(Relaxed), "the instruction is too short for this test");
                cancellation.cancel_below(2);
            });
            let mut companion = backend.companion().unwrap();
            let mut hook = || {
                preempted.fetch_add(1, Relaxed);
                assert_eq!(sum_of_ones(&mut companion), 100_000.0);
            };
            let result = preemptible(&mut hook, || execute(&mut backend, op, &inputs, &attrs).map(drop));
            ended.store(true, Relaxed);
            result
        });
        assert_eq!(result, Err(ExecError::Cancelled), "{} with {threads} threads", op.name());
        assert_eq!(backend.memory().used_bytes, used_bytes, "nothing is left of {}", op.name());
        backend.cancelled_by(&cancellation, 2);
        assert_eq!(sum_of_ones(&mut backend), 100_000.0);
    }
}

fn reduces(op: Op, dims: &'static [usize], dtype: DType, mask: u8) {
    ends_when_cancelled(|b| (op, vec![expanded(b, dims, dtype)], Attrs::Axes { mask, keepdim: false }));
}

#[test]
fn reductions() {
    reduces(Op::Sum, &[LARGE, LARGE], DType::F32, 3);
    reduces(Op::Norm, &[LARGE, LARGE], DType::BF16, 3);
    reduces(Op::Amax, &[100, LARGE, 1000], DType::I64, 2);
    reduces(Op::Prod, &[LARGE, LARGE / 10], DType::F64, 1);
}

#[test]
fn a_reduction_of_rows_that_lie_in_columns() {
    // The stored axis is the one that is kept.
    ends_when_cancelled(|b| {
        let row = filled(b, &[1, 1000], DType::F32);
        let rows = execute(b, Op::Expand, &[Input::Tensor(&row)], &Attrs::Shape(shape(&[LARGE * 100, 1000]))).unwrap();
        (Op::Sum, vec![rows], Attrs::Axes { mask: 1, keepdim: false })
    });
}

#[test]
fn searches_for_the_largest_element() {
    reduces(Op::Argmax, &[2, LARGE * LARGE], DType::F32, 2);
    reduces(Op::Argmin, &[LARGE * 100, 1000], DType::F32, 1);
}

#[test]
fn scatters() {
    ends_when_cancelled(|b| {
        let index = expanded(b, &[LARGE * LARGE], DType::I64);
        let source = expanded(b, &[LARGE * LARGE], DType::F32);
        (Op::ScatterAdd, vec![filled(b, &[10], DType::F32), index, source], Attrs::Axis(0))
    });
}

#[test]
fn matrix_products() {
    for dtype in [DType::F32, DType::F64, DType::BF16, DType::I32] {
        // Half precisions are copied first.
        let terms = if dtype == DType::BF16 { 100_000 } else { LARGE * 100 };
        let side = if dtype == DType::BF16 { 300 } else { 64 };
        ends_when_cancelled(|b| {
            let operands = vec![expanded(b, &[side, terms], dtype), expanded(b, &[terms, side], dtype)];
            (Op::Matmul, operands, Attrs::None)
        });
    }
}

#[test]
fn windows() {
    let side = 2000;
    let spec = WindowSpec {
        rank: 2,
        groups: 1,
        input: [1, side, side],
        kernel: [1, side / 2, side / 2],
        stride: [1; 3],
        dilation: [1; 3],
        low: [0; 3],
        high: [0; 3],
    };
    let attrs = || Attrs::Window(Box::new(spec));
    let image = |b: &mut CpuBackend| filled(b, &[1, 1, side, side], DType::F32);
    let half = |b: &mut CpuBackend, rest: usize| filled(b, &[1, 1, side / 2 + rest, side / 2 + rest], DType::F32);
    ends_when_cancelled(|b| (Op::SumPool, vec![image(b)], attrs()));
    ends_when_cancelled(|b| (Op::MaxPoolIndices, vec![image(b)], attrs()));
    ends_when_cancelled(|b| (Op::Convolution, vec![image(b), half(b, 0)], attrs()));
    ends_when_cancelled(|b| (Op::ConvolutionInput, vec![half(b, 1), half(b, 0)], attrs()));
    ends_when_cancelled(|b| (Op::ConvolutionWeight, vec![half(b, 1), image(b)], attrs()));
}

#[test]
fn attention() {
    ends_when_cancelled(|b| {
        let query = expanded(b, &[1, LARGE, 1], DType::F32);
        let keys = expanded(b, &[1, 100_000, 1], DType::F32);
        (Op::Attention, vec![query, keys.clone(), keys], Attrs::Attention { causal: false, scale: 1.0 })
    });
}

#[test]
fn elementwise_work_and_random_numbers() {
    // Results are stored, so these take seconds rather than years.
    ends_when_cancelled(|b| (Op::Lgamma, vec![expanded(b, &[200, 1_000_000], DType::F32)], Attrs::None));
    ends_when_cancelled(|b| (Op::Cumsum, vec![expanded(b, &[220_000_000], DType::F32)], Attrs::Axis(0)));
    ends_when_cancelled(|_| {
        let shape = shape(&[100, 1_000_000]);
        (Op::Randn, Vec::new(), Attrs::Random { shape, dtype: DType::F64, seed: 1, stream: 2, first: 0 })
    });
    ends_when_cancelled(|b| (Op::Softmax, vec![filled(b, &[20, 5_000_000], DType::F32)], Attrs::None));
    ends_when_cancelled(|b| (Op::Argsort, vec![filled(b, &[20_000_000], DType::F32)], Attrs::Axis(0)));
}
