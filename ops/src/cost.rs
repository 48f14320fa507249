//! Cost estimates of instructions, for scheduling and placement.

use crate::instruction::Attrs;
use crate::op::Op;
use crate::row::{AttrKind, Class};
use crate::shape::Meta;

/// An estimate of the work in one instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Cost {
    /// Floating-point operations.
    pub flops: u64,
    /// Bytes read and written.
    pub bytes: u64,
}

impl Cost {
    /// The time on a device with these rates of compute and memory, plus a fixed time per instruction.
    pub fn nanoseconds(&self, gflops: f64, gbytes_per_s: f64, overhead_ns: u64) -> u64 {
        let compute = self.flops as f64 / gflops;
        let memory = self.bytes as f64 / gbytes_per_s;
        overhead_ns.saturating_add(compute.max(memory) as u64)
    }
}

/// The estimated work of `op` on the tensor operands `inputs` with the result `out`. An element of a broadcast operand
/// counts as often as it is read, however little memory it takes.
#[inline]
pub fn cost<'a>(op: Op, inputs: impl IntoIterator<Item = &'a Meta>, attrs: &Attrs, out: &Meta) -> Cost {
    let row = op.row();
    if row.class == Class::Movement {
        return Cost::default();
    }
    if row.class == Class::Convolution {
        return convolution(op, inputs, out);
    }
    let out_elements = out.shape.numel() as u64;
    let (mut in_elements, mut bytes, mut inner) = (0u64, out.bytes() as u64, 1u64);
    let mut terms = None;
    let attends = row.attrs == AttrKind::Attention;
    for meta in inputs {
        let n = meta.shape.numel() as u64;
        in_elements = in_elements.max(n);
        bytes = bytes.saturating_add(n.saturating_mul(meta.dtype.size() as u64));
        terms = terms.or(meta.shape.dims().last());
        if attends && meta.shape.rank() >= 2 {
            // The larger of the numbers of keys and queries: each query is multiplied with each key.
            inner = inner.max(meta.shape.dims()[meta.shape.rank() - 2] as u64);
        }
    }
    if let (Class::Pooling, Attrs::Window(window)) = (row.class, attrs) {
        // Each result is computed from a window, of which the gradient has one for each element of its operand.
        inner = window.kernel.iter().fold(1, |elements, size| elements.saturating_mul(*size as u64));
        let results =
            window.output().map_or(1, |sizes| sizes.iter().fold(1u64, |n, size| n.saturating_mul(*size as u64)));
        let planes = out.shape.dims().iter().take(2).fold(1u64, |n, size| n.saturating_mul(*size as u64));
        let flops = planes.saturating_mul(results).saturating_mul(inner).saturating_mul(row.cost_flops as u64);
        return Cost { flops, bytes };
    }
    let flops = match row.class {
        Class::Contraction => out_elements.saturating_mul(terms.map_or(1, |k| *k as u64)).saturating_mul(2),
        _ => in_elements.max(out_elements).saturating_mul(row.cost_flops as u64).saturating_mul(inner),
    };
    Cost { flops, bytes }
}

/// The estimated work of an op that writes part of its first operand, in place. `inputs` are the other tensor operands,
/// which have the size of the part.
pub fn part_cost<'a>(op: Op, inputs: impl IntoIterator<Item = &'a Meta>) -> Cost {
    let mut cost = Cost::default();
    for meta in inputs {
        let elements = meta.shape.numel() as u64;
        // The last operand is as large as what is written.
        cost.flops = elements.saturating_mul(op.row().cost_flops as u64);
        cost.bytes = cost.bytes.saturating_add(elements.saturating_mul(2 * meta.dtype.size() as u64));
    }
    cost
}

/// Two operations for each output element and each weight element of its channel.
fn convolution<'a>(op: Op, inputs: impl IntoIterator<Item = &'a Meta>, out: &Meta) -> Cost {
    let mut bytes = out.bytes() as u64;
    let mut shapes = [&out.shape; 3];
    for (shape, meta) in shapes.iter_mut().zip(inputs) {
        bytes = bytes.saturating_add(meta.bytes() as u64);
        *shape = &meta.shape;
    }
    let [first, second, _] = shapes;
    let (made, weight) = match op {
        Op::Convolution => (&out.shape, second),
        Op::ConvolutionInput => (first, second),
        _ => (first, &out.shape),
    };
    let terms = weight.dims().iter().skip(1).fold(1u64, |terms, size| terms.saturating_mul(*size as u64));
    Cost { flops: (made.numel() as u64).saturating_mul(terms).saturating_mul(2), bytes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, Shape, WindowSpec};

    #[test]
    fn a_matmul_costs_two_flops_a_product_and_a_view_nothing() {
        let meta = |dims: &[usize]| Meta::new(Shape::new(dims).unwrap(), DType::F32);
        let (a, b, c) = (meta(&[8, 16]), meta(&[16, 32]), meta(&[8, 32]));
        assert_eq!(
            cost(Op::Matmul, [&a, &b], &Attrs::None, &c),
            Cost { flops: 2 * 8 * 16 * 32, bytes: 4 * (8 * 16 + 16 * 32 + 8 * 32) }
        );
        assert_eq!(cost(Op::Reshape, [&a], &Attrs::None, &meta(&[128])), Cost::default());
        let (column, row, product) = (meta(&[8, 1]), meta(&[1, 32]), meta(&[8, 32]));
        assert_eq!(cost(Op::Matmul, [&column, &row], &Attrs::None, &product).flops, 2 * 8 * 32);
    }

    #[test]
    fn what_is_broadcast_costs_what_is_computed() {
        let meta = |dims: &[usize]| Meta::new(Shape::new(dims).unwrap(), DType::F32);
        let all = Attrs::Axes { mask: 3, keepdim: false };
        let expanded = meta(&[10_000_000, 10_000_000]);
        assert!(cost(Op::Sum, [&expanded], &all, &meta(&[])).flops >= 100_000_000_000_000);
    }

    #[test]
    fn pooling_costs_the_elements_of_all_windows() {
        let window = WindowSpec {
            rank: 2,
            groups: 1,
            input: [1, 12, 12],
            kernel: [1, 3, 3],
            stride: [1; 3],
            dilation: [1; 3],
            low: [0; 3],
            high: [0; 3],
        };
        let meta = |size| Meta::new(Shape::new(&[2, 5, size, size]).unwrap(), DType::F32);
        let attrs = Attrs::Window(Box::new(window));
        assert_eq!(cost(Op::SumPool, [&meta(12)], &attrs, &meta(10)).flops % (2 * 5 * 10 * 10 * 9), 0);
        assert!(cost(Op::SumPool, [&meta(12)], &attrs, &meta(10)).flops >= 2 * 5 * 10 * 10 * 9);
    }
}
