//! Attention and its gradients agree with the CPU backend.

use crate::{Multiplier, is_skipped_without_pool, open};
use gt_backend::conformance::oracle::OracleOperand;
use gt_backend::conformance::{MEMORY_BYTES, OperandLayout, TestNumbers, compare, host::Host, result};
use gt_backend::{Backend, HostRange, Input};
use gt_cpu::{CpuBackend, CpuOptions};
use gt_cuda::{CudaBackend, CudaTensor};
use gt_ops::{Attrs, DType, Meta, Op, Shape};
use std::ptr::NonNull;

/// Leading dimensions, queries, keys, features, columns of values.
struct Case(&'static [usize], usize, usize, usize, usize);

const CASES: [Case; 8] = [
    Case(&[], 1, 1, 1, 1),
    Case(&[2], 3, 5, 4, 2),
    Case(&[2, 2], 7, 7, 8, 8),
    Case(&[1], 70, 130, 40, 65),
    Case(&[2, 1], 65, 64, 16, 130),
    Case(&[1], 5, 9, 12, 300),
    Case(&[2], 3, 0, 4, 2),
    Case(&[0], 3, 2, 4, 2),
];

/// Cases for tensor cores: rows are multiples of 16 bytes; some tiles are full, some partial.
const FOR_TENSOR_CORES: [Case; 8] = [
    Case(&[], 1, 1, 8, 8),
    Case(&[2], 3, 40, 24, 16),
    Case(&[1, 2], 130, 34, 64, 56),
    Case(&[1], 65, 129, 64, 64),
    Case(&[2], 20, 37, 128, 80),
    Case(&[1], 70, 33, 72, 128),
    Case(&[1], 40, 70, 200, 256),
    Case(&[2], 67, 20, 136, 24),
];

/// Cases whose rows are no multiples of 16 bytes, so that tensor cores get copies with more columns.
const UNALIGNED: [Case; 4] =
    [Case(&[], 1, 1, 1, 1), Case(&[1, 2], 20, 37, 5, 3), Case(&[1], 19, 50, 61, 66), Case(&[2], 35, 18, 130, 255)];

/// Compares with the CPU backend. `tolerance` bounds the error in units of the result dtype's rounding and of f32's.
fn check(dtype: DType, ops: &[Op], cases: &[Case], layouts: &[OperandLayout], tolerance: (f64, f64)) {
    let cuda = open(MEMORY_BYTES, Multiplier::Kernels).backend;
    check_backend(cuda, dtype, ops, cases, layouts, (tolerance, if dtype.size() == 2 { 4.0 } else { 1.0 }));
}

/// The same where f32 may be rounded to tf32.
fn check_tf32(cases: &[Case], layouts: &[OperandLayout]) {
    let mut cuda = open(MEMORY_BYTES, Multiplier::Kernels).backend;
    cuda.allow_tf32(true);
    check_backend(cuda, DType::F32, &BOTH, cases, layouts, (of_tf32(), 4.0));
}

fn check_backend(
    mut cuda: CudaBackend,
    dtype: DType,
    ops: &[Op],
    cases: &[Case],
    layouts: &[OperandLayout],
    (tolerance, for_gradients): ((f64, f64), f64),
) {
    let mut cpu = CpuBackend::new(CpuOptions { memory_bytes_limit: MEMORY_BYTES, ..CpuOptions::default() });
    let mut numbers = TestNumbers::new();
    for (at, Case(lead, queries, keys, features, columns)) in cases.iter().enumerate() {
        for (masked, causal) in [(false, false), (false, true), (true, false), (true, true)] {
            let meta = |rows: usize, columns: usize| {
                let dims = [lead, &[rows, columns][..]].concat();
                Meta::new(Shape::new(&dims).expect("a shape of the test"), dtype)
            };
            let mut tensor =
                |rows, columns| OracleOperand::Tensor(numbers.host(meta(rows, columns), (-1.0, 1.0), false));
            let mut inputs = vec![
                tensor(*queries, *columns),
                tensor(*queries, *features),
                tensor(*keys, *features),
                tensor(*keys, *columns),
            ];
            if masked {
                // The first query attends to no key, and no query attends to every third key.
                let mask = |i: usize| {
                    let (query, key) = (i / keys % queries, i % keys);
                    if query == 0 || key % 3 == 2 { f64::NEG_INFINITY } else { (i % 7) as f64 / 8.0 }
                };
                let meta = meta(*queries, *keys);
                inputs.push(OracleOperand::Tensor(Host::floats(
                    meta,
                    (0..meta.shape.numel()).map(mask).collect::<Vec<_>>(),
                )));
            }
            let layout = layouts[at % layouts.len()];
            let attrs = Attrs::Attention { causal, scale: if at == 2 { -0.5 } else { 0.7 } };
            let forward = &inputs[1..];
            for op in ops {
                if *op == Op::Attention {
                    compare((&mut cuda, &mut cpu), *op, forward, &attrs, &[layout], tolerance);
                    continue;
                }
                // The gradients, without and with the result of attention among the operands. Its rounding is part of
                // their error, as in PyTorch's kernels.
                let tolerance = (tolerance.0, for_gradients * tolerance.1);
                compare((&mut cuda, &mut cpu), *op, &inputs, &attrs, &[layout], tolerance);
                let mut with_result = inputs.clone();
                with_result.insert(4, OracleOperand::Tensor(result(&mut cpu, Op::Attention, forward, &attrs)));
                let op = Op::AttentionGradients;
                compare((&mut cuda, &mut cpu), op, &with_result, &attrs, &[layout], tolerance);
            }
        }
    }
}

const LAYOUTS: [OperandLayout; 4] =
    [OperandLayout::Plain, OperandLayout::Transposed, OperandLayout::Stepped, OperandLayout::Reversed];
const BOTH: [Op; 2] = [Op::Attention, Op::AttentionBackward];

#[test]
fn attention() {
    check(DType::F32, &[Op::Attention], &CASES, &LAYOUTS, (4.0, 256.0));
    check(DType::F64, &[Op::Attention], &CASES, &LAYOUTS, (4.0, 256.0));
}

#[test]
fn attention_of_halves() {
    // Some of these cases and layouts also run on tensor cores.
    check(DType::F16, &BOTH, &CASES, &LAYOUTS, of_weights(DType::F16));
    check(DType::BF16, &BOTH, &CASES, &LAYOUTS, of_weights(DType::BF16));
}

#[test]
fn attention_by_tensor_cores() {
    for dtype in [DType::F16, DType::BF16] {
        check(dtype, &BOTH, &FOR_TENSOR_CORES, &[OperandLayout::Plain], of_weights(dtype));
    }
}

#[test]
fn rows_of_any_number_of_columns_are_padded_for_tensor_cores() {
    for dtype in [DType::F16, DType::BF16] {
        check(dtype, &BOTH, &UNALIGNED, &LAYOUTS, of_weights(dtype));
    }
}

#[test]
fn float32_by_tensor_cores() {
    check_tf32(&FOR_TENSOR_CORES, &[OperandLayout::Plain]);
    check_tf32(&UNALIGNED, &LAYOUTS);
}

#[test]
fn float32_is_rounded_to_tf32_where_the_instruction_allows_it() {
    // One key has all the weight, so the result is its value, of which tf32 has 10 bits of mantissa.
    let (kept, lost) = (1.0 + 2f32.powi(-10), 1.0 + 2f32.powi(-12));
    let meta = |dims: &[usize]| Meta::new(Shape::new(dims).expect("a shape of the test"), DType::F32);
    let mut cuda = open(MEMORY_BYTES, Multiplier::Kernels).backend;
    let mut uploaded = |numbers: &[f32]| {
        let mut tensor = cuda.allocate(&meta(&[1, numbers.len()])).expect("room");
        let mut bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
        cuda.write(&mut tensor, 0, range(&mut bytes)).expect("a write");
        tensor
    };
    let operands = [uploaded(&[1.0]), uploaded(&[1.0]), uploaded(&[kept, lost])];
    for (allowed, want) in [(false, [kept, lost]), (true, [kept, 1.0]), (false, [kept, lost])] {
        cuda.allow_tf32(allowed);
        let attrs = Attrs::Attention { causal: false, scale: 1.0 };
        let inputs = operands.each_ref().map(Input::Tensor);
        let result = cuda.execute(Op::Attention, &inputs, &attrs, &meta(&[1, 2]), 0).expect("attention");
        let mut bytes = [0; 8];
        cuda.read(&result, 0, range(&mut bytes)).expect("a read");
        assert_eq!(bytes, *want.map(f32::to_le_bytes).as_flattened(), "tf32 allowed: {allowed}");
    }
}

#[test]
fn operands_of_another_layout_are_copied_for_tensor_cores() {
    for dtype in [DType::F16, DType::BF16] {
        check(dtype, &BOTH, &FOR_TENSOR_CORES, &LAYOUTS[1..], of_weights(dtype));
    }
}

#[test]
fn the_expanded_gradient_of_a_sum_is_copied_for_tensor_cores() {
    if is_skipped_without_pool("launches are counted, and repeat only where memory does") {
        return;
    }
    let mut cuda = open(MEMORY_BYTES, Multiplier::Kernels).backend;
    let mut numbers = TestNumbers::new();
    let meta = |dims: &[usize]| Meta::new(Shape::new(dims).expect("a shape of the test"), DType::BF16);
    let mut uploaded = |host: Host| {
        let mut tensor = cuda.allocate(&host.meta).expect("room");
        cuda.write(&mut tensor, 0, range(&mut host.to_bytes())).expect("a write");
        tensor
    };
    let operands =
        [[2, 20, 24], [2, 37, 24], [2, 37, 16]].map(|dims| uploaded(numbers.host(meta(&dims), (-1.0, 1.0), false)));
    let (grad, ones) = (uploaded(Host::floats(meta(&[]), [1.0])), meta(&[2, 20, 16]));
    let plain = uploaded(Host::floats(ones, vec![1.0; ones.shape.numel()]));
    let expanded = cuda.execute(Op::Expand, &[Input::Tensor(&grad)], &Attrs::Shape(ones.shape), &ones, 0);
    let expanded = expanded.expect("a view");
    // The gradients' bytes, and the number of launches that they took.
    let mut gradients = |grad: &CudaTensor| {
        let inputs = [grad, &operands[0], &operands[1], &operands[2]].map(Input::Tensor);
        let attrs = Attrs::Attention { causal: true, scale: 0.25 };
        let out = meta(&[2, 20 * 24 + 37 * 24 + 37 * 16]);
        let launched = |cuda: &CudaBackend| cuda.launch_counts().single + cuda.launch_counts().in_graphs;
        let before = launched(&cuda);
        let result = cuda.execute(Op::AttentionBackward, &inputs, &attrs, &out, 0).expect("gradients");
        let mut bytes = vec![0; out.bytes()];
        cuda.read(&result, 0, range(&mut bytes)).expect("a read");
        (bytes, launched(&cuda) - before)
    };
    // The first use of an upload may have to issue it.
    gradients(&plain);
    gradients(&expanded);
    let (of_plain, launches) = gradients(&plain);
    let (of_expanded, with_copy) = gradients(&expanded);
    // One more launch copies the gradient. The kernels without tensor cores would sum in another order.
    assert_eq!(with_copy, launches + 1);
    assert!(of_expanded == of_plain, "the gradients differ");
}

/// Cases with several tiles of rows and of columns, some without hidden scores.
const SEVERAL_TILES: [Case; 4] = [
    Case(&[1], 300, 300, 64, 64),
    Case(&[1], 150, 330, 64, 48),
    Case(&[1], 200, 140, 128, 128),
    Case(&[1], 140, 100, 256, 256),
];

#[test]
fn several_tiles() {
    for dtype in [DType::F16, DType::BF16] {
        check(dtype, &BOTH, &SEVERAL_TILES, &[OperandLayout::Plain], of_weights(dtype));
    }
}

#[test]
fn several_tiles_of_float32() {
    check_tf32(&SEVERAL_TILES, &[OperandLayout::Plain]);
}

#[test]
fn gradients() {
    check(DType::F32, &[Op::AttentionBackward], &CASES, &LAYOUTS, (4.0, 256.0));
    check(DType::F64, &[Op::AttentionBackward], &CASES, &LAYOUTS, (4.0, 256.0));
}

fn range(bytes: &mut [u8]) -> HostRange {
    // SAFETY: each caller passes the range to one call of a backend, which borrows `bytes` until it returns.
    unsafe { HostRange::new(NonNull::from(&mut *bytes).cast(), bytes.len()) }
}

/// The tolerance of tensor cores, whose weights and gradients are rounded to f16 or bf16, as in PyTorch's kernels.
fn of_weights(dtype: DType) -> (f64, f64) {
    let epsilon = if dtype == DType::BF16 { 2f64.powi(-8) } else { 2f64.powi(-11) };
    (4.0, 2.0 * epsilon / f64::from(f32::EPSILON))
}

/// The tolerance of tf32, to which operands, weights and gradients are rounded.
fn of_tf32() -> (f64, f64) {
    (4.0, 4.0 * 2f64.powi(-11) / f64::from(f32::EPSILON))
}
