//! Attention and its gradients are what the CPU backend computes, their kernels running on an emulated device.

use gt_backend::conformance::oracle::Operand;
use gt_backend::conformance::{Layout, MEMORY_BYTES, Numbers, compare, host::Host};
use gt_cpu::{CpuBackend, CpuOptions};
use gt_cuda::CudaBackend;
use gt_cuda::driver::emulated::{Emulated, Gxx, test_store};
use gt_ops::{Attrs, DType, Meta, Op, Shape};
use std::sync::Arc;

/// Leading axes, queries, keys, features and columns of values.
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

fn check(dtype: DType, ops: &[Op]) {
    let driver = Arc::new(Emulated::new(4 * MEMORY_BYTES));
    let mut cuda = CudaBackend::new(driver, Box::new(Gxx), test_store(), MEMORY_BYTES).expect("an emulated device");
    let mut cpu = CpuBackend::new(CpuOptions { memory_bytes_limit: MEMORY_BYTES, ..CpuOptions::default() });
    let mut numbers = Numbers::new();
    for (at, Case(lead, queries, keys, features, columns)) in CASES.iter().enumerate() {
        for (masked, causal) in [(false, false), (false, true), (true, false), (true, true)] {
            let meta = |rows: usize, columns: usize| {
                let dims = [lead, &[rows, columns][..]].concat();
                Meta::new(Shape::new(&dims).expect("a shape of the test"), dtype)
            };
            let mut tensor = |rows, columns| Operand::Tensor(numbers.host(meta(rows, columns), (-1.0, 1.0), false));
            let mut inputs = vec![
                tensor(*queries, *columns),
                tensor(*queries, *features),
                tensor(*keys, *features),
                tensor(*keys, *columns),
            ];
            if masked {
                // The first query sees nothing, and every third key is seen by none.
                let mask = |i: usize| {
                    let (query, key) = (i / keys % queries, i % keys);
                    if query == 0 || key % 3 == 2 { f64::NEG_INFINITY } else { (i % 7) as f64 / 8.0 }
                };
                let meta = meta(*queries, *keys);
                inputs.push(Operand::Tensor(Host::floats(meta, (0..meta.shape.numel()).map(mask).collect::<Vec<_>>())));
            }
            let layout = [Layout::Plain, Layout::Transposed, Layout::Stepped, Layout::Reversed][at % 4];
            let attrs = Attrs::Attention { causal, scale: if at == 2 { -0.5 } else { 0.7 } };
            for op in ops {
                let inputs = if *op == Op::Attention { &inputs[1..] } else { &inputs[..] };
                compare((&mut cuda, &mut cpu), *op, inputs, &attrs, &[layout], (4.0, 256.0));
            }
        }
    }
}

#[test]
fn attention() {
    check(DType::F32, &[Op::Attention]);
    check(DType::F64, &[Op::Attention]);
}

#[test]
fn attention_of_halves() {
    check(DType::F16, &[Op::Attention, Op::AttentionBackward]);
    check(DType::BF16, &[Op::Attention, Op::AttentionBackward]);
}

#[test]
fn gradients() {
    check(DType::F32, &[Op::AttentionBackward]);
    check(DType::F64, &[Op::AttentionBackward]);
}
