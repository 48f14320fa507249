//! Scans and sorts that are split into pieces agree with the CPU backend.

use crate::{Multiplier, open};
use gt_backend::conformance::oracle::OracleOperand;
use gt_backend::conformance::{MEMORY_BYTES, OperandLayout, TestNumbers, compare};
use gt_cpu::{CpuBackend, CpuOptions};
use gt_ops::{Attrs, DType, Meta, Op, Shape};

fn check(ops: &[Op], dtypes: &[DType], cases: &[(&[usize], u8)], domain: (f64, f64), own: f64) {
    let mut cuda = open(MEMORY_BYTES, Multiplier::Kernels).backend;
    let mut cpu = CpuBackend::new(CpuOptions { memory_bytes_limit: MEMORY_BYTES, ..CpuOptions::default() });
    let mut numbers = TestNumbers::new();
    for op in ops {
        for dtype in dtypes.iter().filter(|dtype| op.row().accepts.contains(**dtype)) {
            for (dims, axis) in cases {
                let meta = Meta::new(Shape::new(dims).expect("a shape of the test"), *dtype);
                let inputs = [OracleOperand::Tensor(numbers.host(meta, domain, false))];
                for layout in [OperandLayout::Plain, OperandLayout::Transposed] {
                    let tolerance = (own, if own > 0.0 { 64.0 } else { 0.0 });
                    compare((&mut cuda, &mut cpu), *op, &inputs, &Attrs::Axis(*axis), &[layout], tolerance);
                }
            }
        }
    }
}

#[test]
fn sorts_of_several_tiles() {
    let cases: [(&[usize], u8); 5] = [(&[1025], 0), (&[2048], 0), (&[2, 2500], 1), (&[5003, 2], 0), (&[9001], 0)];
    let dtypes = [DType::F32, DType::I64, DType::F16, DType::U8];
    check(&[Op::Argsort, Op::ArgsortDescending], &dtypes, &cases, (-2.0, 2.0), 0.0);
}

#[test]
fn scans_in_pieces() {
    let cases: [(&[usize], u8); 3] = [(&[30_001], 0), (&[2, 9_000], 1), (&[9_000, 2], 0)];
    let sums = [Op::Cumsum, Op::Logcumsumexp];
    // The reference adds sequentially, so rounding differs.
    check(&sums, &[DType::F32, DType::F64, DType::I32], &cases, (0.0, 1.0), 64.0);
    check(&[Op::Cumargmax, Op::Cumargmin], &[DType::F32, DType::I8], &cases, (-3.0, 3.0), 0.0);
    check(&[Op::Cumprod], &[DType::F32, DType::I64], &cases, (1.0, 1.0), 8.0);
}

#[test]
fn scans_side_by_side() {
    check(&[Op::Cumsum, Op::Cumargmax], &[DType::F32, DType::I64], &[(&[33, 4100], 0)], (0.0, 1.0), 8.0);
}
