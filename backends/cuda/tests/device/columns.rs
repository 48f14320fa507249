//! Reductions of columns agree with the CPU backend: columns that are read by 16 bytes, and others.

use crate::{Multiplier, open};
use gt_backend::conformance::oracle::OracleOperand;
use gt_backend::conformance::{LAYOUTS, MEMORY_BYTES, TestNumbers, compare, host::Host};
use gt_cpu::{CpuBackend, CpuOptions};
use gt_ops::{Attrs, DType, Meta, Op, Shape};

/// Shapes whose columns are whole vectors, at the edge of a block, in one piece and in several, between axes that are
/// kept; and columns that are not.
const SHAPES: [(&[usize], u8); 8] = [
    (&[7, 24], 0b01),
    (&[300, 8], 0b01),
    (&[2100, 72], 0b01),
    (&[3, 600, 40], 0b010),
    (&[5, 40, 3, 16], 0b0101),
    (&[4, 300, 64], 0b011),
    (&[1100, 12], 0b01),
    (&[90, 33], 0b01),
];

/// Sums of whole numbers are exact in any order, so both backends round the same numbers.
#[test]
fn columns_of_floats_are_reduced_as_on_the_cpu() {
    let mut cuda = open(MEMORY_BYTES, Multiplier::Kernels).backend;
    let mut cpu = CpuBackend::new(CpuOptions { memory_bytes_limit: MEMORY_BYTES, ..CpuOptions::default() });
    let mut numbers = TestNumbers::new();
    for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
        for (dims, mask) in SHAPES {
            let meta = Meta::new(Shape::new(dims).expect("a shape"), dtype);
            let whole: Vec<f64> = (0..meta.shape.numel()).map(|_| numbers.whole(-2, 2) as f64).collect();
            let input = [OracleOperand::Tensor(Host::floats(meta, whole))];
            for op in [Op::Sum, Op::Mean, Op::Norm, Op::Amax, Op::Amin, Op::Any] {
                for layout in &LAYOUTS[..if op == Op::Sum { 4 } else { 1 }] {
                    let attrs = Attrs::Axes { mask, keepdim: false };
                    compare((&mut cuda, &mut cpu), op, &input, &attrs, &[*layout], (1.0, 0.0));
                }
            }
            if dtype.is_half() {
                let attrs = Attrs::AxesInto { mask, keepdim: true, dtype: DType::F32 };
                compare((&mut cuda, &mut cpu), Op::Sum, &input, &attrs, &LAYOUTS[..1], (0.0, 0.0));
            }
        }
    }
}
