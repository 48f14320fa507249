//! Row-wise ops agree with the CPU backend.

use crate::{Multiplier, open};
use gt_backend::conformance::oracle::OracleOperand;
use gt_backend::conformance::{LAYOUTS, MEMORY_BYTES, OperandLayout, TestNumbers, compare, host::Host};
use gt_backend::{Backend, ExecError, HostRange, Input};
use gt_cpu::{CpuBackend, CpuOptions};
use gt_cuda::CudaBackend;
use gt_ops::instruction::{LossReduction, LossSpec};
use gt_ops::{Attrs, DType, Meta, Op, Scalar, Shape};
use std::ptr::NonNull;

fn backend() -> CudaBackend {
    open(MEMORY_BYTES, Multiplier::Kernels).backend
}

fn backends() -> (CudaBackend, CpuBackend) {
    (backend(), CpuBackend::new(CpuOptions { memory_bytes_limit: MEMORY_BYTES, ..CpuOptions::default() }))
}

const FLOATS: [DType; 4] = [DType::F16, DType::BF16, DType::F32, DType::F64];
/// Rows that are empty, of one element, odd, of whole packs, longer than a warp's registers hold, than those of a block
/// without vectors, than a block's.
const SHAPES: [&[usize]; 10] =
    [&[0, 3], &[2, 0], &[1], &[5, 1], &[3, 7], &[2, 3, 64], &[4, 515], &[2, 1024], &[1, 8193], &[2, 16_640]];

fn meta(dims: &[usize], dtype: DType) -> Meta {
    Meta::new(Shape::new(dims).expect("a shape of the test"), dtype)
}

fn tensor(numbers: &mut TestNumbers, dims: &[usize], dtype: DType) -> OracleOperand {
    OracleOperand::Tensor(numbers.host(meta(dims, dtype), (-3.0, 3.0), false))
}

fn number(x: f64) -> OracleOperand {
    OracleOperand::Scalar(Scalar::Float(x))
}

/// Long operands are tested in row-major order only, since they are copied to it first.
fn layouts(dims: &[usize]) -> &'static [OperandLayout] {
    if dims.iter().product::<usize>() > 4096 { &LAYOUTS[..1] } else { &LAYOUTS }
}

#[test]
fn softmax() {
    let (mut cuda, mut cpu) = backends();
    let mut numbers = TestNumbers::new();
    for dtype in FLOATS {
        for dims in SHAPES {
            for layout in layouts(dims) {
                let inputs = [tensor(&mut numbers, dims, dtype), tensor(&mut numbers, dims, dtype)];
                for op in [Op::Softmax, Op::LogSoftmax, Op::SoftmaxBackward, Op::LogSoftmaxBackward] {
                    let inputs = &inputs[..op.row().operands as usize];
                    // A gradient's sum has one term per column and is multiplied by up to e^3.
                    let terms = if inputs.len() > 1 { dims[dims.len() - 1] } else { 0 };
                    let absolute = 64.0 + 16.0 * terms as f64;
                    compare((&mut cuda, &mut cpu), op, inputs, &Attrs::None, &[*layout], (4.0, absolute));
                }
            }
        }
        let (inf, nan) = (f64::INFINITY, f64::NAN);
        for row in [[1.0, nan, 2.0, -1.0], [1.0, inf, 2.0, inf], [-inf, 1.0, -inf, 2.0], [-inf; 4]] {
            let long: Vec<f64> = row.iter().copied().cycle().take(16_640).collect();
            for row in [&row[..], &long] {
                let inputs = [OracleOperand::Tensor(Host::floats(meta(&[1, row.len()], dtype), row.to_vec()))];
                for op in [Op::Softmax, Op::LogSoftmax] {
                    compare((&mut cuda, &mut cpu), op, &inputs, &Attrs::None, &[OperandLayout::Plain], (4.0, 32.0));
                }
            }
        }
    }
}

#[test]
fn norms() {
    let (mut cuda, mut cpu) = backends();
    let mut numbers = TestNumbers::new();
    for dtype in FLOATS {
        for dims in SHAPES {
            for layout in layouts(dims) {
                let columns = &dims[dims.len() - 1..];
                let [grad, x] = [(); 2].map(|()| tensor(&mut numbers, dims, dtype));
                let [weight, bias] = [(); 2].map(|()| tensor(&mut numbers, columns, dtype));
                let eps = number(1e-5);
                let mut run = |op, inputs: &[&OracleOperand], absolute: f64| {
                    let inputs: Vec<OracleOperand> = inputs.iter().map(|input| (*input).clone()).collect();
                    compare((&mut cuda, &mut cpu), op, &inputs, &Attrs::None, &[*layout], (4.0, absolute));
                };
                // A row of one element has variance 0, so 1 / sqrt(eps) amplifies errors.
                let absolute = if columns[0] == 1 { 1e5 } else { 64.0 };
                run(Op::LayerNorm, &[&x, &weight, &bias, &eps], absolute);
                run(Op::LayerNorm, &[&x, &number(1.0), &number(0.0), &eps], absolute);
                run(Op::RmsNorm, &[&x, &weight, &eps], absolute);
                run(Op::LayerNormBackward, &[&grad, &x, &weight, &eps], absolute * 4.0);
                run(Op::LayerNormBackward, &[&grad, &x, &number(2.0), &eps], absolute * 4.0);
                run(Op::RmsNormBackward, &[&grad, &x, &weight, &eps], absolute * 4.0);
                run(Op::LayerNormWeightBackward, &[&grad, &x, &eps], absolute * 8.0);
                run(Op::RmsNormWeightBackward, &[&grad, &x, &eps], absolute * 8.0);
            }
        }
        // Enough rows to be split into pieces.
        let inputs = [tensor(&mut numbers, &[700, 37], dtype), tensor(&mut numbers, &[700, 37], dtype), number(1e-5)];
        for op in [Op::LayerNormWeightBackward, Op::RmsNormWeightBackward] {
            compare((&mut cuda, &mut cpu), op, &inputs, &Attrs::None, &[OperandLayout::Plain], (4.0, 1000.0));
        }
    }
}

fn indices(numbers: &mut TestNumbers, samples: usize, classes: usize, ignored: i64) -> OracleOperand {
    let index = |numbers: &mut TestNumbers| match numbers.whole(0, 5) {
        0 => ignored,
        _ => numbers.whole(0, classes as i64 - 1),
    };
    let all: Vec<i64> = (0..samples).map(|_| index(numbers)).collect();
    OracleOperand::Tensor(Host::ints(meta(&[samples], DType::I64), all))
}

#[test]
fn losses() {
    let (mut cuda, mut cpu) = backends();
    let mut numbers = TestNumbers::new();
    let cases = [(1, 1), (3, 7), (65, 12), (5, 512), (2, 1030), (2, 20_000)];
    for dtype in FLOATS {
        for (samples, classes) in cases {
            for reduction in [LossReduction::None, LossReduction::Mean, LossReduction::Sum] {
                // Long rows take the detector of races minutes, and differ in how they are read alone.
                let kinds = [(0.1, true), (0.0, false), (0.1, false), (0.0, true)];
                for &(smoothing, weighted) in &kinds[..if classes > 10_000 { 1 } else { kinds.len() }] {
                    let x = tensor(&mut numbers, &[samples, classes], dtype);
                    let mut index = indices(&mut numbers, samples, classes, -100);
                    if samples == 1 {
                        index = OracleOperand::Tensor(Host::ints(meta(&[1], DType::I64), [0]));
                    }
                    let weight = OracleOperand::Tensor(numbers.host(meta(&[classes], dtype), (0.5, 2.0), false));
                    let weight = if weighted { weight } else { number(1.0) };
                    let layout = if classes > 1000 { OperandLayout::Plain } else { OperandLayout::Transposed };
                    let losses: &[usize] = if reduction == LossReduction::None { &[samples] } else { &[] };
                    let grad = tensor(&mut numbers, losses, dtype);
                    for (forward, backward) in
                        [(Op::CrossEntropy, Op::CrossEntropyBackward), (Op::NllLoss, Op::NllLossBackward)]
                    {
                        let smoothing = if forward == Op::NllLoss { 0.0 } else { smoothing };
                        let attrs = Attrs::Loss(LossSpec { reduction, ignore_index: -100, smoothing });
                        let inputs = [x.clone(), index.clone(), weight.clone()];
                        compare((&mut cuda, &mut cpu), forward, &inputs, &attrs, &[layout], (4.0, 512.0));
                        let inputs = [grad.clone(), x.clone(), index.clone(), weight.clone()];
                        compare((&mut cuda, &mut cpu), backward, &inputs, &attrs, &[layout], (4.0, 64.0));
                    }
                }
            }
        }
    }
}

#[test]
fn a_class_that_is_not_there_is_an_error_of_whoever_reads_the_loss() {
    let mut cuda = backend();
    let mut upload = |meta: Meta, mut bytes: Vec<u8>| {
        let mut tensor = cuda.allocate(&meta).expect("room");
        // SAFETY: `bytes` outlives the call of `write`, which has copied it on return.
        let range = unsafe { HostRange::new(NonNull::from(&mut bytes[..]).cast(), bytes.len()) };
        cuda.write(&mut tensor, 0, range).expect("a write");
        tensor
    };
    let x = upload(meta(&[2, 3], DType::F32), vec![0; 24]);
    let index = upload(meta(&[2], DType::I64), [1i64, 3].map(i64::to_le_bytes).concat());
    for op in [Op::CrossEntropy, Op::NllLoss] {
        let attrs = Attrs::Loss(LossSpec { reduction: LossReduction::Mean, ignore_index: -100, smoothing: 0.0 });
        let inputs = [Input::Tensor(&x), Input::Tensor(&index), Input::Scalar(Scalar::Float(1.0))];
        let loss = cuda.execute(op, &inputs, &attrs, &meta(&[], DType::F32), 0).expect("a loss to come");
        let mut bytes = [0; 4];
        // SAFETY: `bytes` outlives the call of `read`, and nothing refers to it meanwhile.
        let range = unsafe { HostRange::new(NonNull::from(&mut bytes[..]).cast(), 4) };
        match cuda.read(&loss, 0, range) {
            Err(ExecError::Earlier { op: of, error, .. }) => {
                assert_eq!(of, Some(op));
                assert_eq!(*error, ExecError::IndexOutOfRange { index: 3, axis: 1, size: 3 });
            }
            other => panic!("{other:?}"),
        }
    }
}
