//! The op table's CUDA expressions agree with its Rust expressions on the CPU backend: bit for bit where nothing is
//! approximated.

use crate::{Multiplier, open};
use gt_backend::conformance::MEMORY_BYTES;
use gt_backend::conformance::host::Host;
use gt_backend::{Backend, HostRange, Input};
use gt_cpu::{CpuBackend, CpuOptions};
use gt_cuda::CudaBackend;
use gt_ops::infer::{InputMeta, infer};
use gt_ops::row::ROWS;
use gt_ops::{Attrs, Class, DType, Meta, Op, Row, Shape};
use std::ptr::NonNull;

/// Numbers at which functions tend to fail; each dtype rounds them to its nearest.
#[rustfmt::skip]
const FLOATS: [f64; 38] = [
    0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, -1.5, 2.0, 2.5, -3.0, 7.25, 127.5, -128.5, 255.0, 256.0, 32_768.0, -65_504.0, 65_519.9,
    1e5, 2_147_483_648.0, -2_147_483_904.0, 1e18, 9.3e18, -9.3e18, 1e38, 3.5e38, 1e308, 1e-3, -6e-8, 1e-38, 1e-40, -1e-45, 5e-324,
    1e-300, f64::INFINITY, f64::NEG_INFINITY, f64::NAN,
];
const INTS: [i64; 22] = [
    0,
    1,
    -1,
    2,
    3,
    -3,
    5,
    -7,
    8,
    31,
    63,
    64,
    100,
    127,
    -128,
    255,
    32_767,
    -32_768,
    i32::MAX as i64,
    i32::MIN as i64,
    i64::MAX,
    i64::MIN,
];

fn cuda() -> CudaBackend {
    open(MEMORY_BYTES, Multiplier::Kernels).backend
}

fn cpu() -> CpuBackend {
    CpuBackend::new(CpuOptions { threads: 1, memory_bytes_limit: MEMORY_BYTES, ..CpuOptions::default() })
}

fn range_of(bytes: &mut [u8]) -> HostRange {
    // SAFETY: each caller passes the range to one call of a backend, which borrows `bytes` until it returns.
    unsafe { HostRange::new(NonNull::from(&mut *bytes).cast(), bytes.len()) }
}

fn computed<B: Backend>(backend: &mut B, op: Op, operands: &[Host], attrs: &Attrs) -> Host {
    let metas: Vec<InputMeta> = operands.iter().map(|host| InputMeta::Tensor(host.meta)).collect();
    let out = infer(op, &metas, attrs).unwrap_or_else(|e| panic!("{}: {e}", op.name()));
    let tensors: Vec<B::Tensor> = operands
        .iter()
        .map(|host| {
            let mut tensor = backend.allocate(&host.meta).expect("room");
            backend.write(&mut tensor, 0, range_of(&mut host.to_bytes())).expect("a write");
            tensor
        })
        .collect();
    let inputs: Vec<Input<'_, B::Tensor>> = tensors.iter().map(Input::Tensor).collect();
    let result = backend.execute(op, &inputs, attrs, &out, 0).unwrap_or_else(|e| panic!("{}: {e}", op.name()));
    let mut bytes = vec![0; out.bytes()];
    backend.read(&result, 0, range_of(&mut bytes)).expect("a read");
    Host::from_bytes(out, &bytes)
}

/// Whether both have the same value at `i`, including a zero's sign; all NaNs are equal.
fn is_same(a: &Host, b: &Host, i: usize) -> bool {
    if !a.meta.dtype.is_float() {
        return a.int(i) == b.int(i);
    }
    let (a, b) = (a.float(i), b.float(i));
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
}

/// The Cartesian product of the edge numbers over the operands.
fn at_edges(row: &Row, dtype: DType) -> Vec<Host> {
    let edges = if dtype.is_float() { FLOATS.len() } else { INTS.len() };
    let count = edges.pow(row.operands as u32);
    let meta = Meta::new(Shape::new(&[count]).expect("a shape"), dtype);
    let operand = |i: u32| {
        let pick = (0..count).map(|at| at / edges.pow(i) % edges);
        if dtype.is_float() {
            return Host::floats(meta, pick.map(|i| FLOATS[i]));
        }
        let host = Host::ints(meta, pick.map(|i| INTS[i]));
        let all: Vec<i64> = (0..host.len()).map(|i| host.int(i)).collect();
        let may_be_zero = !(row.divisor_nonzero && i == 1);
        Host::ints(meta, all.into_iter().map(|x| if x == 0 && !may_be_zero { 9 } else { x }))
    };
    (0..row.operands as u32).map(operand).collect()
}

/// Numbers spread evenly over the op's domain.
fn in_domain(row: &Row, dtype: DType) -> Vec<Host> {
    const COUNT: usize = 2000;
    let meta = Meta::new(Shape::new(&[COUNT]).expect("a shape"), dtype);
    let operand = |i: usize| {
        let (low, high) = row.domain[i];
        let step = [1, 37, 411][i];
        Host::floats(meta, (0..COUNT).map(|at| low + (high - low) * ((at * step) % COUNT) as f64 / COUNT as f64))
    };
    (0..row.operands as usize).map(operand).collect()
}

/// Whether the op's result is determined by IEEE 754's rounding rules alone.
fn is_exact(row: &Row) -> bool {
    row.cost_flops <= 8 && !matches!(row.op, Op::Exp | Op::Exp2 | Op::Log)
}

fn rows() -> impl Iterator<Item = &'static Row> {
    ROWS.iter().filter(|row| row.class == Class::Elementwise)
}

#[test]
fn what_is_exact_has_the_same_bits() {
    let (mut cuda, mut cpu) = (cuda(), cpu());
    for row in rows() {
        for dtype in row.accepts.iter().filter(|dtype| !dtype.is_float() || is_exact(row)) {
            let operands = at_edges(row, dtype);
            let [got, want] = [
                computed(&mut cuda, row.op, &operands, &Attrs::None),
                computed(&mut cpu, row.op, &operands, &Attrs::None),
            ];
            let differs = (0..want.len()).find(|i| !is_same(&got, &want, *i));
            assert_eq!(
                differs.map(|i| (operands.iter().map(|o| o.float(i)).collect::<Vec<_>>(), got.float(i), want.float(i))),
                None,
                "{} of {dtype}: operands, what CUDA makes of them, what the CPU does",
                row.name
            );
        }
    }
}

#[test]
fn what_is_approximated_is_near() {
    let (mut cuda, mut cpu) = (cuda(), cpu());
    for row in rows().filter(|row| !is_exact(row)) {
        for dtype in row.accepts.iter().filter(|dtype| dtype.is_float()) {
            let epsilon = match dtype {
                DType::F16 => 2f64.powi(-10),
                DType::BF16 => 2f64.powi(-7),
                DType::F32 => f32::EPSILON as f64,
                _ => f64::EPSILON,
            };
            let of_compute = if dtype == DType::F64 { f64::EPSILON } else { f32::EPSILON as f64 };
            let operands = in_domain(row, dtype);
            let [got, want] = [
                computed(&mut cuda, row.op, &operands, &Attrs::None),
                computed(&mut cpu, row.op, &operands, &Attrs::None),
            ];
            for i in 0..want.len() {
                let (g, w) = (got.float(i), want.float(i));
                // A difference of close numbers loses precision relative to its result; the series of a gamma's slope
                // multiplies the rounding errors of a logarithm.
                let units = if row.op == Op::GammaSlope { 64.0 } else { 8.0 };
                let bound = units * of_compute * w.abs().max(2.0) + epsilon * w.abs();
                let near = (g - w).abs() <= bound || g == w || (g.is_nan() && w.is_nan());
                let at: Vec<f64> = operands.iter().map(|o| o.float(i)).collect();
                assert!(near, "{} of {dtype} at {at:?} is {g}, not {w}", row.name);
            }
        }
    }
}

#[test]
fn conversions_have_the_same_bits() {
    let (mut cuda, mut cpu) = (cuda(), cpu());
    for from in DType::STORED {
        let operand = at_edges(Op::Neg.row(), from);
        for to in DType::STORED {
            let attrs = Attrs::DType(to);
            let got = computed(&mut cuda, Op::Cast, &operand, &attrs);
            let want = computed(&mut cpu, Op::Cast, &operand, &attrs);
            let differs = (0..want.len()).find(|i| !is_same(&got, &want, *i));
            assert_eq!(
                differs.map(|i| (operand[0].float(i), got.float(i), want.float(i))),
                None,
                "{from} to {to}: what CUDA makes of it, what the CPU does"
            );
        }
    }
}
