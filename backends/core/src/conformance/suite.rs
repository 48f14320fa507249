//! The functions of the suite, at least one for each class of ops.

use super::host::Host;
use super::oracle::{OracleOperand, interpret};
use crate::backend::{Backend, Input, Stage, StageInput};
use crate::cancellation::Cancellation;
use crate::error::{ExecError, LimitScope};
use crate::host::HostRange;
use gt_ops::infer::{InputMeta, infer};
use gt_ops::instruction::SliceSpec;
use gt_ops::row::ROWS;
use gt_ops::{Attrs, Class, DType, Meta, Op, RANK_MAX, Row, Scalar, Shape, philox};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;

/// The memory limit of the backend under test.
pub const MEMORY_BYTES: usize = 256 << 20;

/// The memory layout of a test tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperandLayout {
    /// Row-major, without gaps.
    Plain,
    /// A view of row-major elements with the axes reversed.
    Transposed,
    /// Every second element of a larger tensor, along each axis.
    Stepped,
    /// Reversed along each axis (negative strides).
    Reversed,
}

/// Every layout.
pub const LAYOUTS: [OperandLayout; 4] =
    [OperandLayout::Plain, OperandLayout::Transposed, OperandLayout::Stepped, OperandLayout::Reversed];

/// A generator of test data, the same on every machine.
#[derive(Default)]
pub struct TestNumbers {
    block: u64,
}

impl TestNumbers {
    /// A generator at its start.
    pub fn new() -> TestNumbers {
        TestNumbers::default()
    }
    pub(super) fn unit(&mut self) -> f64 {
        self.block += 1;
        let w = philox::block(7, 7, self.block);
        philox::unit_f64(w[0], w[1])
    }
    /// A whole number from `low` to `high`, both included.
    pub fn whole(&mut self, low: i64, high: i64) -> i64 {
        low + (self.unit() * (high - low + 1) as f64) as i64
    }
    /// A tensor of moderate numbers in `domain`. Integers are in a range up to three times as wide, and never 0 if
    /// `nonzero`.
    pub fn host(&mut self, meta: Meta, (low, high): (f64, f64), nonzero: bool) -> Host {
        let n = meta.shape.numel();
        if meta.dtype.is_float() {
            return Host::floats(meta, (0..n).map(|_| low + (high - low) * self.unit()));
        }
        let least = if meta.dtype == DType::U8 { 0.0 } else { -9.0 };
        let (low, high) = ((low * 3.0).max(least).ceil() as i64, (high * 3.0).floor() as i64);
        Host::ints(
            meta,
            (0..n).map(|_| {
                loop {
                    let x = if meta.dtype == DType::Bool { self.whole(0, 1) } else { self.whole(low, high) };
                    if !nonzero || x != 0 {
                        break x;
                    }
                }
            }),
        )
    }
}

pub(super) fn shape(dims: &[usize]) -> Shape {
    Shape::new(dims).expect("a shape of the suite")
}

fn range_of(bytes: &mut [u8]) -> HostRange {
    // SAFETY: the callers pass the range to one call of a backend, while they hold `bytes` mutably borrowed.
    unsafe { HostRange::new(NonNull::from(&mut *bytes).cast(), bytes.len()) }
}

fn upload<B: Backend>(backend: &mut B, host: &Host) -> B::Tensor {
    let mut bytes = host.to_bytes();
    let mut tensor = backend.allocate(&host.meta).expect("room for a test tensor");
    backend.write(&mut tensor, 0, range_of(&mut bytes)).expect("a write");
    tensor
}

pub(super) fn download<B: Backend>(backend: &mut B, tensor: &B::Tensor) -> Host {
    fetch(backend, tensor).expect("a read")
}

/// The elements of a tensor, or the error that the device found.
fn fetch<B: Backend>(backend: &mut B, tensor: &B::Tensor) -> Result<Host, ExecError> {
    let meta = backend.meta(tensor);
    let mut bytes = vec![0xa5; meta.bytes()];
    match backend.read(tensor, 0, range_of(&mut bytes)) {
        Ok(()) => Ok(Host::from_bytes(meta, &bytes)),
        Err(ExecError::Earlier { error, .. }) => Err(*error),
        Err(error) => Err(error),
    }
}

/// A tensor with these elements in this layout.
pub(super) fn laid_out<B: Backend>(backend: &mut B, host: &Host, layout: OperandLayout) -> B::Tensor {
    let dims = host.meta.shape.dims();
    let rank = dims.len();
    let dtype = host.meta.dtype;
    let view = |backend: &mut B, stored: &Host, op: Op, attrs: Attrs| {
        let tensor = upload(backend, stored);
        let out = infer(op, &[InputMeta::Tensor(stored.meta)], &attrs).expect("a view");
        assert_eq!(out, host.meta);
        backend.execute(op, &[Input::Tensor(&tensor)], &attrs, &out, 1).expect("a view")
    };
    let boxed = |start: &dyn Fn(usize) -> i64, step: i64| {
        let mut spec = SliceSpec { start: [0; RANK_MAX], step: [1; RANK_MAX], sizes: host.meta.shape };
        for axis in 0..rank {
            spec.start[axis] = start(axis);
            spec.step[axis] = step;
        }
        Attrs::Slice(Box::new(spec))
    };
    match layout {
        OperandLayout::Plain => upload(backend, host),
        OperandLayout::Transposed => {
            let mut p = [0u8; RANK_MAX];
            (0..rank).for_each(|axis| p[axis] = (rank - 1 - axis) as u8);
            let turned: Vec<usize> = dims.iter().rev().copied().collect();
            let attrs = Attrs::Permutation(p);
            let meta = Meta::new(shape(&turned), dtype);
            let stored = interpret(Op::Permute, &[OracleOperand::Tensor(host.clone())], &attrs, &meta).expect("a view");
            view(backend, &stored, Op::Permute, attrs)
        }
        OperandLayout::Stepped => {
            let larger: Vec<usize> = dims.iter().map(|d| 2 * d + 1).collect();
            let meta = Meta::new(shape(&larger), dtype);
            let blank = if dtype.is_float() {
                Host::floats(meta, vec![f64::NAN; meta.shape.numel()])
            } else {
                Host::ints(meta, vec![1; meta.shape.numel()])
            };
            let attrs = boxed(&|_| 1, 2);
            let operands = [OracleOperand::Tensor(blank), OracleOperand::Tensor(host.clone())];
            let stored = interpret(Op::SliceScatter, &operands, &attrs, &meta).expect("a view");
            view(backend, &stored, Op::Slice, attrs)
        }
        OperandLayout::Reversed => {
            let attrs = boxed(&|axis| dims[axis] as i64 - 1, -1);
            let stored =
                interpret(Op::Slice, &[OracleOperand::Tensor(host.clone())], &attrs, &host.meta).expect("a view");
            view(backend, &stored, Op::Slice, attrs)
        }
    }
}

/// The permitted error: units in the last place of the result's dtype, plus an absolute part in units of the compute
/// type's precision.
#[derive(Clone, Copy, Debug)]
struct Tolerance {
    own: f64,
    absolute: f64,
}

const EXACT: Tolerance = Tolerance { own: 0.0, absolute: 0.0 };

fn epsilon(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 2f64.powi(-10),
        DType::BF16 => 2f64.powi(-7),
        DType::F32 => f32::EPSILON as f64,
        _ => f64::EPSILON,
    }
}

/// The machine epsilon of the type in which a dtype computes.
fn compute_epsilon(dtype: DType) -> f64 {
    if dtype == DType::F64 { f64::EPSILON } else { f32::EPSILON as f64 }
}

fn assert_close(got: &Host, want: &Host, tolerance: impl Fn(usize) -> Tolerance, what: &dyn Fn() -> String) {
    assert_eq!(got.meta, want.meta, "{}", what());
    for i in 0..want.len() {
        if !want.meta.dtype.is_float() {
            assert_eq!(got.int(i), want.int(i), "{}: element {i}", what());
            continue;
        }
        let (g, w) = (got.float(i), want.float(i));
        if g == w || (g.is_nan() && w.is_nan()) {
            continue;
        }
        let Tolerance { own, absolute } = tolerance(i);
        // Subnormal numbers have an absolute precision.
        let tiny = match want.meta.dtype {
            DType::F16 => 2f64.powi(-24),
            DType::BF16 | DType::F32 => 2f64.powi(-126) * epsilon(want.meta.dtype),
            _ => 5e-324,
        };
        let bound = own * epsilon(want.meta.dtype) * w.abs() + absolute + own * tiny;
        assert!((g - w).abs() <= bound, "{}: element {i} is {g}, not {w}", what());
    }
}

fn metas(inputs: &[OracleOperand]) -> Vec<InputMeta> {
    let meta = |i: &OracleOperand| match i {
        OracleOperand::Tensor(host) => InputMeta::Tensor(host.meta),
        OracleOperand::Scalar(scalar) => InputMeta::Scalar(*scalar),
    };
    inputs.iter().map(meta).collect()
}

/// Runs one instruction on the backend, operand `i` laid out as `layouts[i]`.
fn run<B: Backend>(
    backend: &mut B,
    op: Op,
    inputs: &[OracleOperand],
    attrs: &Attrs,
    layouts: &[OperandLayout],
    last_use: u8,
) -> Result<Host, ExecError> {
    let out = infer(op, &metas(inputs), attrs).unwrap_or_else(|e| panic!("{}: {e}", op.name()));
    let tensors: Vec<Option<B::Tensor>> = inputs
        .iter()
        .enumerate()
        .map(|(i, input)| match input {
            OracleOperand::Tensor(host) => Some(laid_out(backend, host, layouts[i % layouts.len()])),
            OracleOperand::Scalar(_) => None,
        })
        .collect();
    let operands: Vec<Input<'_, B::Tensor>> = inputs
        .iter()
        .zip(&tensors)
        .map(|(input, tensor)| match (input, tensor) {
            (_, Some(tensor)) => Input::Tensor(tensor),
            (OracleOperand::Scalar(scalar), _) => Input::Scalar(*scalar),
            _ => unreachable!("tensors were uploaded"),
        })
        .collect();
    let result = backend.execute(op, &operands, attrs, &out, last_use)?;
    assert_eq!(backend.meta(&result), out, "{}", op.name());
    fetch(backend, &result)
}

/// Compares one instruction on the backend with the interpreter.
fn check<B: Backend>(
    backend: &mut B,
    op: Op,
    inputs: &[OracleOperand],
    attrs: &Attrs,
    layouts: &[OperandLayout],
    tolerance: impl Fn(&Host, usize) -> Tolerance,
) {
    let out = infer(op, &metas(inputs), attrs).unwrap_or_else(|e| panic!("{}: {e}", op.name()));
    let what = || {
        let shapes: Vec<String> = metas(inputs).iter().map(|m| format!("{m:?}")).collect();
        format!("{} of {shapes:?} with {attrs:?} in {layouts:?}", op.name())
    };
    let want = interpret(op, inputs, attrs, &out);
    let got = run(backend, op, inputs, attrs, layouts, 0);
    match (&got, &want) {
        (Ok(got), Ok(want)) => assert_close(got, want, |i| tolerance(want, i), &what),
        _ => assert_eq!(got.err(), want.err(), "{}", what()),
    }
}

/// The result of one instruction on a backend.
pub fn result<B: Backend>(backend: &mut B, op: Op, inputs: &[OracleOperand], attrs: &Attrs) -> Host {
    run(backend, op, inputs, attrs, &[OperandLayout::Plain], 0).unwrap_or_else(|e| panic!("{}: {e}", op.name()))
}

/// Compares one instruction on two backends, the second of which is trusted: for ops that the interpreter lacks.
/// Results may differ by `own` units of their precision and `absolute` units of the compute type's.
pub fn compare<A: Backend, B: Backend>(
    (backend, reference): (&mut A, &mut B),
    op: Op,
    inputs: &[OracleOperand],
    attrs: &Attrs,
    layouts: &[OperandLayout],
    (own, absolute): (f64, f64),
) {
    let what = || {
        let shapes: Vec<String> = metas(inputs).iter().map(|m| format!("{m:?}")).collect();
        format!("{} of {shapes:?} with {attrs:?} in {layouts:?}", op.name())
    };
    let want = run(reference, op, inputs, attrs, layouts, 0).unwrap_or_else(|e| panic!("{}: {e}", what()));
    let got = run(backend, op, inputs, attrs, layouts, 0).unwrap_or_else(|e| panic!("{}: {e}", what()));
    let absolute = absolute * compute_epsilon(want.meta.dtype);
    assert_close(&got, &want, |_| Tolerance { own, absolute }, &what);
}

fn rows(class: Class) -> impl Iterator<Item = &'static Row> {
    ROWS.iter().filter(move |row| row.class == class)
}

/// The permitted error of an elementwise op: a few roundings in the compute type, on operands of this magnitude, and
/// the rounding to the result's dtype.
fn elementwise_tolerance(row: &Row, inputs: &[OracleOperand], dtype: DType) -> impl Fn(&Host, usize) -> Tolerance {
    let largest =
        |host: &Host| (0..host.len()).map(|i| host.float(i).abs()).filter(|x| x.is_finite()).fold(1.0, f64::max);
    let scale =
        inputs.iter().map(|i| if let OracleOperand::Tensor(h) = i { largest(h) } else { 1.0 }).fold(1.0, f64::max);
    let factor = match row.op {
        // Its series multiplies the rounding errors of a logarithm by up to 200.
        Op::GammaSlope => 8.0,
        // 1 + erf(x) cancels where x is negative, and a gradient of 1e5 makes that visible.
        Op::GeluBackward => 4.0,
        _ => 1.0,
    };
    let absolute = factor * 8.0 * compute_epsilon(dtype) * scale.min(4.0);
    move |_, _| Tolerance { own: if dtype.is_half() { 1.0 } else { 8.0 * factor }, absolute }
}

fn operands(numbers: &mut TestNumbers, row: &Row, dtype: DType, dims: &[&[usize]]) -> Vec<OracleOperand> {
    (0..row.operands as usize)
        .map(|i| {
            let meta = Meta::new(shape(dims[i % dims.len()]), dtype);
            OracleOperand::Tensor(numbers.host(meta, row.domain[i], row.divisor_nonzero && i == 1))
        })
        .collect()
}

/// Elementwise ops over small shapes and all layouts, with scalar operands too.
pub fn elementwise<B: Backend>(backend: &mut B) {
    let mut numbers = TestNumbers::new();
    let shapes: [&[&[usize]]; 6] =
        [&[&[]], &[&[0, 3]], &[&[7]], &[&[3, 4, 5]], &[&[3, 1, 5], &[4, 1], &[1]], &[&[2, 3], &[], &[2, 1]]];
    for row in rows(Class::Elementwise) {
        for dtype in row.accepts.iter() {
            for dims in shapes {
                for first in 0..LAYOUTS.len() {
                    let inputs = operands(&mut numbers, row, dtype, dims);
                    let layouts = [LAYOUTS[first], LAYOUTS[(first + 1) % 4], LAYOUTS[0]];
                    check(backend, row.op, &inputs, &Attrs::None, &layouts, elementwise_tolerance(row, &inputs, dtype));
                }
            }
            for at in (0..row.operands as usize).filter(|_| row.operands > 1) {
                let numbers_given: &[Scalar] = match dtype {
                    DType::Bool => &[Scalar::Bool(true)],
                    // A half precision does not have all of these numbers.
                    d if d.is_half() && row.wide_numbers => &[1.3, 0.5, -1.0, 70_000.0, 1e-6].map(Scalar::Float),
                    d if d.is_float() => &[1.3, 1.0, 2.0, 0.5, -0.5, -1.0, 3.0].map(Scalar::Float),
                    DType::U8 => &[Scalar::Int(3), Scalar::Int(2)],
                    _ => &[Scalar::Int(3), Scalar::Int(2), Scalar::Int(-1)],
                };
                // With a negative factor, the root of a scaled step may cancel to 0, and a relative error says nothing.
                let positive = |number: &&Scalar| row.op != Op::ScaledStep || number.to_f64() > 0.0;
                for number in numbers_given.iter().filter(positive) {
                    for layout in [OperandLayout::Plain, OperandLayout::Transposed] {
                        let mut inputs = operands(&mut numbers, row, dtype, &[&[4, 6]]);
                        inputs[at] = OracleOperand::Scalar(*number);
                        check(
                            backend,
                            row.op,
                            &inputs,
                            &Attrs::None,
                            &[layout],
                            elementwise_tolerance(row, &inputs, dtype),
                        );
                    }
                }
            }
        }
    }
}

/// Elementwise ops over shapes large enough for several threads.
pub fn elementwise_large<B: Backend>(backend: &mut B) {
    let mut numbers = TestNumbers::new();
    let dtypes = [DType::F32, DType::F64, DType::BF16, DType::U8, DType::I64];
    for row in rows(Class::Elementwise) {
        for dtype in dtypes.into_iter().filter(|d| row.accepts.contains(*d)) {
            let dims: &[&[usize]] = if dtype == DType::F32 { &[&[40_003]] } else { &[&[5_003]] };
            let inputs = operands(&mut numbers, row, dtype, dims);
            check(
                backend,
                row.op,
                &inputs,
                &Attrs::None,
                &[OperandLayout::Plain],
                elementwise_tolerance(row, &inputs, dtype),
            );
            let inputs = operands(&mut numbers, row, dtype, &[&[67, 90]]);
            check(
                backend,
                row.op,
                &inputs,
                &Attrs::None,
                &[OperandLayout::Transposed, OperandLayout::Plain],
                elementwise_tolerance(row, &inputs, dtype),
            );
            if row.operands > 1 && dtype == DType::F32 {
                let inputs = operands(&mut numbers, row, dtype, &[&[70, 515], &[515], &[70, 1]]);
                check(
                    backend,
                    row.op,
                    &inputs,
                    &Attrs::None,
                    &[OperandLayout::Plain],
                    elementwise_tolerance(row, &inputs, dtype),
                );
            }
        }
    }
}

/// Elementwise ops at infinities, NaN, signed zeros, huge and tiny numbers, and the limits of integers.
pub fn elementwise_edges<B: Backend>(backend: &mut B) {
    #[rustfmt::skip]
    let edges = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, 3.0, -3.0, 2.5, 88.0, -90.0, 700.0, 1e5, -1e5, 3e9, 1e30, -1e30, 1e-30, -1e-40, f64::INFINITY,
        f64::NEG_INFINITY, f64::NAN];
    // The product of three operands may overflow f32 on the way, so those stay moderate.
    let mild = [0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -3.0, 1e4, f64::INFINITY, f64::NEG_INFINITY, f64::NAN];
    let no_giants: Vec<f64> = edges.into_iter().filter(|x| x.abs() <= 1e5 || !x.is_finite()).collect();
    let ends = [0, 1, -1, 2, 3, -3, 7, 127, -128, 32_767, i32::MAX as i64, i32::MIN as i64, i64::MAX, i64::MIN];
    let mut wrong = Vec::new();
    for row in rows(Class::Elementwise) {
        for dtype in row.accepts.iter() {
            // The incomplete gamma functions of two huge numbers are not accurate in any backend.
            let edges = match row.op {
                Op::Gammainc | Op::Gammaincc => &no_giants[..],
                // The slope of silu at -90 is 0 in float32 and not in float64: an infinite gradient times it is NaN.
                Op::SiluBackward => &mild[..],
                _ if row.operands == 3 => &mild[..],
                _ => &edges[..],
            };
            let count: usize = if dtype.is_float() { edges.len() } else { ends.len() };
            let operand = |i: u32| {
                let meta = Meta::new(shape(&[count.pow(row.operands as u32)]), dtype);
                let pick = move |at: usize| at / count.pow(i) % count;
                let all = 0..meta.shape.numel();
                let nonzero = row.divisor_nonzero && i == 1;
                OracleOperand::Tensor(if dtype.is_float() {
                    Host::floats(meta, all.map(|at| edges[pick(at)]))
                } else {
                    let host = Host::ints(meta, all.map(|at| ends[pick(at)]));
                    let all: Vec<i64> = (0..host.len()).map(|i| host.int(i)).collect();
                    Host::ints(meta, all.into_iter().map(|x| if nonzero && x == 0 { 5 } else { x }))
                })
            };
            let inputs: Vec<OracleOperand> = (0..row.operands as u32).map(operand).collect();
            let mut checked = || {
                let tolerance = elementwise_tolerance(row, &inputs, dtype);
                check(backend, row.op, &inputs, &Attrs::None, &[OperandLayout::Plain], tolerance);
            };
            // A device's functions differ in many rows or in none: one run shows them all.
            if catch_unwind(AssertUnwindSafe(&mut checked)).is_err() {
                wrong.push(format!("{} of {dtype}", row.name));
            }
        }
    }
    assert!(wrong.is_empty(), "these differ, as said above: {wrong:?}");
}

/// Operands flagged as used for the last time may lend their memory, but only if no other handle exists.
pub fn operands_given_up<B: Backend>(backend: &mut B) {
    let mut numbers = TestNumbers::new();
    for row in rows(Class::Elementwise) {
        for dtype in row.accepts.iter() {
            for dims in [&[3usize, 5][..], &[1200]] {
                let inputs = operands(&mut numbers, row, dtype, &[dims]);
                let out = infer(row.op, &metas(&inputs), &Attrs::None).expect("an elementwise op");
                let tensors: Vec<B::Tensor> = inputs.iter().map(|i| upload(backend, i.tensor())).collect();
                let operands: Vec<_> = tensors.iter().map(Input::Tensor).collect();
                let what = || format!("{} of {dtype}", row.name);
                // The first operand has another handle.
                let held = tensors[0].clone();
                let fresh = backend.execute(row.op, &operands, &Attrs::None, &out, 0).expect(row.name);
                let fresh = download(backend, &fresh);
                let given = backend.execute(row.op, &operands, &Attrs::None, &out, 0xff).expect(row.name);
                assert_close(&download(backend, &given), &fresh, |_| EXACT, &what);
                assert_close(&download(backend, &held), inputs[0].tensor(), |_| EXACT, &what);
                // No operand has another handle.
                drop(held);
                let again: Vec<B::Tensor> = inputs.iter().map(|i| upload(backend, i.tensor())).collect();
                let operands: Vec<_> = again.iter().map(Input::Tensor).collect();
                let given = backend.execute(row.op, &operands, &Attrs::None, &out, 0xff).expect(row.name);
                assert_close(&download(backend, &given), &fresh, |_| EXACT, &what);
            }
        }
    }
}

/// Casts from every dtype to every other.
pub fn casts<B: Backend>(backend: &mut B) {
    let mut numbers = TestNumbers::new();
    for from in DType::STORED {
        for to in DType::STORED {
            let domain = if to == DType::U8 || from == DType::U8 { (0.0, 30.0) } else { (-30.0, 30.0) };
            for (dims, layout) in [
                (&[][..], OperandLayout::Plain),
                (&[0][..], OperandLayout::Plain),
                (&[5, 7], OperandLayout::Transposed),
                (&[3, 700], OperandLayout::Stepped),
                (&[20_011], OperandLayout::Plain),
            ] {
                let host = numbers.host(Meta::new(shape(dims), from), domain, false);
                // Casts to half precision may round twice, by way of f32.
                let tolerance =
                    |_: &Host, _: usize| Tolerance { own: if from == DType::F64 { 0.5 } else { 0.0 }, absolute: 0.0 };
                check(backend, Op::Cast, &[OracleOperand::Tensor(host)], &Attrs::DType(to), &[layout], tolerance);
            }
            if from.is_float() && (to.is_float() || to == DType::Bool) {
                let edges = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 1e-40, 65_504.0, 1e38, -3e-5];
                let host = Host::floats(Meta::new(shape(&[edges.len()]), from), edges);
                check(
                    backend,
                    Op::Cast,
                    &[OracleOperand::Tensor(host)],
                    &Attrs::DType(to),
                    &[OperandLayout::Plain],
                    |_, _| EXACT,
                );
            }
        }
    }
}

/// `where` in every dtype.
pub fn selections<B: Backend>(backend: &mut B) {
    let mut numbers = TestNumbers::new();
    for row in rows(Class::Select) {
        for dtype in DType::STORED {
            let dims: [[&[usize]; 3]; 5] = [
                [&[3, 4], &[3, 4], &[3, 4]],
                [&[4], &[3, 1], &[]],
                [&[0, 2], &[2], &[0, 2]],
                [&[], &[5], &[5]],
                [&[20_001], &[20_001], &[1]],
            ];
            for dims in dims {
                for layout in LAYOUTS {
                    let mut input = |i: usize, dtype| {
                        OracleOperand::Tensor(numbers.host(Meta::new(shape(dims[i]), dtype), (-3.0, 3.0), false))
                    };
                    let mut inputs = [input(0, DType::Bool), input(1, dtype), input(2, dtype)];
                    check(backend, row.op, &inputs, &Attrs::DType(dtype), &[layout, OperandLayout::Plain], |_, _| {
                        EXACT
                    });
                    inputs[1] = OracleOperand::Scalar(Scalar::Float(1.0));
                    check(backend, row.op, &inputs, &Attrs::DType(dtype), &[layout], |_, _| EXACT);
                }
            }
        }
    }
}

/// The permitted error of a reduction of `count` elements whose magnitudes sum to `size`.
fn sum_tolerance(dtype: DType, size: f64, count: usize) -> Tolerance {
    Tolerance { own: 1.0, absolute: compute_epsilon(dtype) * size * (count as f64).sqrt().clamp(4.0, 64.0) }
}

fn check_reduction<B: Backend>(
    backend: &mut B,
    row: &Row,
    host: &Host,
    mask: u8,
    keepdim: bool,
    layout: OperandLayout,
) {
    let dims = host.meta.shape.dims();
    let reduced = |axis: &usize| mask >> axis & 1 == 1;
    let count: usize = (0..dims.len()).filter(reduced).map(|axis| dims[axis]).product();
    if count == 0 && matches!(row.op, Op::Amax | Op::Amin) {
        return;
    }
    let dtype = host.meta.dtype;
    let largest = (0..host.len()).map(|i| host.float(i).abs()).fold(0.0, f64::max);
    let tolerance = |want: &Host, i: usize| match row.op {
        Op::Mean | Op::Norm => sum_tolerance(dtype, largest, count),
        Op::Prod => Tolerance { own: 1.0, absolute: compute_epsilon(dtype) * count as f64 * want.float(i).abs() },
        _ => sum_tolerance(dtype, largest * count as f64, count),
    };
    check(
        backend,
        row.op,
        &[OracleOperand::Tensor(host.clone())],
        &Attrs::Axes { mask, keepdim },
        &[layout],
        tolerance,
    );
}

/// Reductions over every set of axes.
pub fn reductions<B: Backend>(backend: &mut B) {
    let mut numbers = TestNumbers::new();
    for row in rows(Class::Reduction) {
        for dtype in row.accepts.iter() {
            for dims in [&[][..], &[1], &[9], &[0], &[3, 0, 2], &[6, 7], &[2, 3, 4, 5]] {
                for mask in 0..1u8 << dims.len() {
                    for layout in LAYOUTS {
                        let host = numbers.host(Meta::new(shape(dims), dtype), (-3.0, 3.0), false);
                        check_reduction(backend, row, &host, mask, mask & 1 == 0, layout);
                    }
                }
            }
            if dtype.is_float() {
                // A NaN or an infinity at any position.
                for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
                    for at in 0..12 {
                        let meta = Meta::new(shape(&[3, 4]), dtype);
                        let host = Host::floats(meta, (0..12).map(|i| if i == at { bad } else { i as f64 / 8.0 }));
                        for mask in [1, 2, 3] {
                            check_reduction(backend, row, &host, mask, false, OperandLayout::Plain);
                        }
                    }
                }
            }
        }
    }
}

/// Reductions that convert their operand, from every dtype to every dtype that they convert to.
pub fn converting_reductions<B: Backend>(backend: &mut B) {
    let mut numbers = TestNumbers::new();
    for row in rows(Class::Reduction) {
        for (from, to) in DType::STORED.into_iter().flat_map(|from| DType::STORED.map(|to| (from, to))) {
            if !row.op.reduces_into(from, to) {
                continue;
            }
            let cases: [(&[usize], &[u8]); 4] =
                [(&[9], &[1]), (&[6, 7], &[0, 1, 2, 3]), (&[2, 0, 3], &[2, 4]), (&[40, 300], &[1, 2, 3])];
            for (dims, masks) in cases {
                let domain = if row.op == Op::Prod { (1.0, 1.25) } else { (-3.0, 3.0) };
                let host = numbers.host(Meta::new(shape(dims), from), domain, false);
                for &mask in masks {
                    for layout in [OperandLayout::Plain, OperandLayout::Transposed] {
                        let attrs = Attrs::AxesInto { mask, keepdim: false, dtype: to };
                        let tolerance = |want: &Host, i: usize| Tolerance {
                            own: 1.0,
                            absolute: compute_epsilon(to) * 4e4 * want.float(i).abs().max(1.0),
                        };
                        let operand = [OracleOperand::Tensor(host.clone())];
                        check(backend, row.op, &operand, &attrs, &[layout], tolerance);
                    }
                }
            }
        }
    }
}

/// Reductions long enough to be split, along rows and columns.
pub fn reductions_large<B: Backend>(backend: &mut B) {
    let mut numbers = TestNumbers::new();
    for row in rows(Class::Reduction) {
        for dtype in [DType::F32, DType::BF16, DType::I32].into_iter().filter(|d| row.accepts.contains(*d)) {
            // A domain in which products stay in range.
            let domain = if row.op == Op::Prod { (0.999, 1.001) } else { (-3.0, 3.0) };
            let cases: [(&[usize], &[u8]); 4] =
                [(&[150_001], &[1]), (&[700, 103], &[1, 2, 3]), (&[3, 66_001], &[1, 2]), (&[66_001, 3], &[1, 2])];
            for (dims, masks) in cases {
                let host = numbers.host(Meta::new(shape(dims), dtype), domain, false);
                for &mask in masks {
                    for layout in [OperandLayout::Plain, OperandLayout::Transposed] {
                        check_reduction(backend, row, &host, mask, false, layout);
                    }
                }
            }
        }
    }
}

/// `argmax` and `argmin`: the first of equals wins, and NaN wins over all.
pub fn arg_reductions<B: Backend>(backend: &mut B) {
    let mut numbers = TestNumbers::new();
    for row in rows(Class::ArgReduction) {
        for dtype in row.accepts.iter() {
            for dims in [&[1][..], &[9], &[6, 7], &[3, 0], &[2, 3, 4], &[3, 9_001]] {
                for axis in (0..dims.len()).filter(|axis| dims[*axis] > 0) {
                    for layout in LAYOUTS {
                        let host = numbers.host(Meta::new(shape(dims), dtype), (-1.0, 1.0), false);
                        let attrs = Attrs::Axes { mask: 1 << axis, keepdim: axis == 0 };
                        check(backend, row.op, &[OracleOperand::Tensor(host)], &attrs, &[layout], |_, _| EXACT);
                    }
                }
            }
            let ties = [1.0, 2.0, 0.0, 2.0, 0.0, 1.0];
            let meta = Meta::new(shape(&[2, 3]), dtype);
            let mut hosts = vec![if dtype.is_float() {
                Host::floats(meta, ties)
            } else {
                Host::ints(meta, ties.map(|x| x as i64))
            }];
            if dtype.is_float() {
                hosts.push(Host::floats(meta, [1.0, f64::NAN, f64::NAN, f64::INFINITY, 1.0, f64::NEG_INFINITY]));
                hosts.push(Host::floats(meta, [f64::NEG_INFINITY; 6]));
            }
            for host in hosts {
                for mask in [1, 2] {
                    let attrs = Attrs::Axes { mask, keepdim: false };
                    check(
                        backend,
                        row.op,
                        &[OracleOperand::Tensor(host.clone())],
                        &attrs,
                        &[OperandLayout::Plain],
                        |_, _| EXACT,
                    );
                }
            }
        }
    }
}

fn slice_spec(ranges: &[(i64, i64, usize)]) -> Box<SliceSpec> {
    let mut spec = SliceSpec { start: [0; RANK_MAX], step: [1; RANK_MAX], sizes: Shape::SCALAR };
    for (axis, (start, step, _)) in ranges.iter().enumerate() {
        (spec.start[axis], spec.step[axis]) = (*start, *step);
    }
    spec.sizes = shape(&ranges.iter().map(|r| r.2).collect::<Vec<_>>());
    Box::new(spec)
}

/// Views, and views of views.
pub fn movements<B: Backend>(backend: &mut B) {
    let mut numbers = TestNumbers::new();
    let permutation = |p: &[u8]| {
        let mut all = [0; RANK_MAX];
        all[..p.len()].copy_from_slice(p);
        Attrs::Permutation(all)
    };
    let cases: Vec<(&[usize], Op, Attrs)> = vec![
        (&[], Op::Reshape, Attrs::Shape(shape(&[1, 1]))),
        (&[2, 6], Op::Reshape, Attrs::Shape(shape(&[3, 4]))),
        (&[2, 6], Op::Reshape, Attrs::Shape(shape(&[2, 2, 3]))),
        (&[2, 6], Op::Reshape, Attrs::Shape(shape(&[12]))),
        (&[2, 1, 6], Op::Reshape, Attrs::Shape(shape(&[1, 2, 1, 6, 1]))),
        (&[4, 3, 2], Op::Reshape, Attrs::Shape(shape(&[2, 2, 6]))),
        (&[0, 3], Op::Reshape, Attrs::Shape(shape(&[7, 0]))),
        (&[90, 70], Op::Reshape, Attrs::Shape(shape(&[70, 90]))),
        (&[2, 3, 4], Op::Permute, permutation(&[2, 0, 1])),
        (&[2, 3], Op::Permute, permutation(&[1, 0])),
        (&[], Op::Permute, permutation(&[])),
        (&[0, 3], Op::Permute, permutation(&[1, 0])),
        (&[3, 1], Op::Expand, Attrs::Shape(shape(&[2, 3, 4]))),
        (&[], Op::Expand, Attrs::Shape(shape(&[2, 2]))),
        (&[1, 3], Op::Expand, Attrs::Shape(shape(&[0, 3]))),
        (&[5, 6], Op::Slice, Attrs::Slice(slice_spec(&[(1, 2, 2), (5, -2, 3)]))),
        (&[5, 6], Op::Slice, Attrs::Slice(slice_spec(&[(4, -1, 5), (0, 1, 0)]))),
        (&[5], Op::Slice, Attrs::Slice(slice_spec(&[(4, i64::MIN, 1)]))),
        (&[5], Op::Slice, Attrs::Slice(slice_spec(&[(i64::MAX, 0, 0)]))),
        (&[0], Op::Slice, Attrs::Slice(slice_spec(&[(0, 1, 0)]))),
    ];
    for (dims, op, attrs) in &cases {
        for dtype in DType::STORED {
            for layout in LAYOUTS {
                let host = numbers.host(Meta::new(shape(dims), dtype), (-3.0, 3.0), false);
                check(backend, *op, &[OracleOperand::Tensor(host)], attrs, &[layout], |_, _| EXACT);
            }
        }
    }
    for (from, to) in [
        (DType::Bool, DType::U8),
        (DType::I8, DType::U8),
        (DType::F16, DType::I16),
        (DType::I16, DType::BF16),
        (DType::F32, DType::I32),
        (DType::I64, DType::F64),
        (DType::F64, DType::U8),
        (DType::F32, DType::F16),
        (DType::U8, DType::I32),
        (DType::I32, DType::F64),
        (DType::Bool, DType::BF16),
    ] {
        let scalars = from.size() == to.size();
        for dims in [&[][..], &[0, 4], &[2, 3, 4], &[3, 8]].into_iter().filter(|dims| scalars || !dims.is_empty()) {
            for layout in LAYOUTS {
                let host = numbers.host(Meta::new(shape(dims), from), (-3.0, 3.0), false);
                let inputs = [OracleOperand::Tensor(host)];
                check(backend, Op::Bitcast, &inputs, &Attrs::DType(to), &[layout], |_, _| EXACT);
            }
        }
    }
    // A chain of views, each of the one before.
    let mut want = numbers.host(Meta::new(shape(&[4, 6, 5]), DType::I32), (-3.0, 3.0), false);
    let mut tensor = upload(backend, &want);
    for (op, attrs) in [
        (Op::Permute, permutation(&[2, 1, 0])),
        (Op::Slice, Attrs::Slice(slice_spec(&[(4, -2, 3), (1, 2, 2), (0, 1, 4)]))),
        (Op::Reshape, Attrs::Shape(shape(&[3, 1, 2, 4]))),
        (Op::Expand, Attrs::Shape(shape(&[3, 2, 2, 4]))),
        (Op::Reshape, Attrs::Shape(shape(&[12, 4]))),
        (Op::Permute, permutation(&[1, 0])),
        (Op::Reshape, Attrs::Shape(shape(&[48]))),
        // The second element does not begin at a multiple of 8 bytes.
        (Op::Slice, Attrs::Slice(slice_spec(&[(1, 1, 46)]))),
        (Op::Bitcast, Attrs::DType(DType::I64)),
        (Op::Bitcast, Attrs::DType(DType::U8)),
        (Op::Slice, Attrs::Slice(slice_spec(&[(8, 1, 160)]))),
        (Op::Bitcast, Attrs::DType(DType::I16)),
    ] {
        let out = infer(op, &[InputMeta::Tensor(want.meta)], &attrs).expect("a view");
        want = interpret(op, &[OracleOperand::Tensor(want)], &attrs, &out).expect("a view");
        tensor = backend.execute(op, &[Input::Tensor(&tensor)], &attrs, &out, 1).expect("a view");
        assert_close(&download(backend, &tensor), &want, |_| EXACT, &|| format!("a chain of views to {}", op.name()));
    }
}

/// Copies of a tensor with a slice replaced.
pub fn slice_scatters<B: Backend>(backend: &mut B) {
    let mut numbers = TestNumbers::new();
    for row in rows(Class::SliceScatter) {
        for dtype in DType::STORED {
            for (dims, ranges) in [
                (&[5, 6][..], &[(1, 2, 2), (5, -2, 3)][..]),
                (&[7], &[(0, 1, 7)]),
                (&[7], &[(3, 1, 0)]),
                (&[], &[]),
                (&[300, 200], &[(0, 1, 300), (7, 3, 60)]),
            ] {
                for layout in LAYOUTS {
                    let spec = slice_spec(ranges);
                    let base = numbers.host(Meta::new(shape(dims), dtype), (-3.0, 3.0), false);
                    let source = numbers.host(Meta::new(spec.sizes, dtype), (-3.0, 3.0), false);
                    let inputs = [OracleOperand::Tensor(base), OracleOperand::Tensor(source)];
                    check(
                        backend,
                        row.op,
                        &inputs,
                        &Attrs::Slice(spec.clone()),
                        &[layout, OperandLayout::Reversed],
                        |_, _| EXACT,
                    );
                    let out = inputs[0].tensor().meta;
                    let want = interpret(row.op, &inputs, &Attrs::Slice(spec.clone()), &out).expect("a box");
                    let got = run(backend, row.op, &inputs, &Attrs::Slice(spec.clone()), &[layout], 3).expect("a box");
                    assert_close(&got, &want, |_| EXACT, &|| "slice_scatter of a base given up".to_owned());
                    let [base, _] = inputs;
                    let inputs = [base, OracleOperand::Scalar(Scalar::Int(1))];
                    check(backend, row.op, &inputs, &Attrs::Slice(spec), &[layout], |_, _| EXACT);
                }
            }
        }
    }
}

/// Concatenations, some of empty tensors.
pub fn concatenations<B: Backend>(backend: &mut B) {
    let mut numbers = TestNumbers::new();
    for row in rows(Class::Concatenation) {
        for dtype in DType::STORED {
            for (axis, many) in [
                (0u8, vec![vec![3], vec![4], vec![0]]),
                (1, vec![vec![2, 3], vec![2, 1]]),
                (0, vec![vec![2, 3, 2], vec![1, 3, 2], vec![4, 3, 2]]),
                (2, vec![vec![2, 3, 2]; 9]),
                (0, vec![vec![5]]),
                (1, vec![vec![300, 100], vec![300, 7]]),
            ] {
                for layout in LAYOUTS {
                    let inputs: Vec<OracleOperand> = many
                        .iter()
                        .map(|dims| {
                            OracleOperand::Tensor(numbers.host(Meta::new(shape(dims), dtype), (-3.0, 3.0), false))
                        })
                        .collect();
                    check(backend, row.op, &inputs, &Attrs::Axis(axis), &[layout, OperandLayout::Plain], |_, _| EXACT);
                }
            }
        }
    }
}

/// Matrix products of every kind of shape.
pub fn matmuls<B: Backend>(backend: &mut B) {
    let mut numbers = TestNumbers::new();
    #[rustfmt::skip]
    let small: [(&[usize], &[usize]); 12] = [
        (&[1, 1], &[1, 1]), (&[2, 3], &[3, 4]), (&[1, 7], &[7, 5]), (&[5, 7], &[7, 1]), (&[3, 1], &[1, 3]), (&[4, 0], &[0, 3]), (&[0, 3], &[3, 2]),
        (&[2, 3, 4], &[4, 5]), (&[2, 3, 4], &[2, 4, 5]), (&[3, 4], &[2, 4, 5]), (&[2, 1, 3, 4], &[5, 4, 2]), (&[17, 33], &[33, 19]),
    ];
    let large: [(&[usize], &[usize]); 4] =
        [(&[130, 70], &[70, 150]), (&[32, 200], &[200, 90]), (&[9, 40, 30], &[30, 50]), (&[20, 33, 40], &[20, 40, 30])];
    for row in rows(Class::Contraction).filter(|row| row.op != Op::Affine) {
        for dtype in row.accepts.iter() {
            let wide = matches!(dtype, DType::F32 | DType::BF16 | DType::I16);
            for (a, b) in small.into_iter().chain(large.into_iter().filter(|_| wide)) {
                for (first, layout) in LAYOUTS.into_iter().enumerate() {
                    let mut input =
                        |dims| OracleOperand::Tensor(numbers.host(Meta::new(shape(dims), dtype), (-3.0, 3.0), false));
                    let inputs = [input(a), input(b)];
                    let k = a[a.len() - 1];
                    for second in [first, (first + 1) % 4] {
                        let absolute = compute_epsilon(dtype) * 9.0 * k as f64 * 4.0;
                        let tolerance = |_: &Host, _: usize| Tolerance { own: 1.0, absolute };
                        check(backend, row.op, &inputs, &Attrs::None, &[layout, LAYOUTS[second]], tolerance);
                    }
                }
            }
        }
    }
}

/// Affine maps: matrices, batches of them, single rows, and sizes within and beyond a kernel's tiles.
pub fn affine_maps<B: Backend>(backend: &mut B) {
    let mut numbers = TestNumbers::new();
    #[rustfmt::skip]
    let small: [(&[usize], usize); 9] = [
        (&[1, 1], 1), (&[2, 3], 4), (&[1, 7], 5), (&[5, 7], 1), (&[4, 0], 3), (&[0, 3], 2), (&[3, 2], 0), (&[2, 3, 4], 5), (&[3, 1, 2, 8], 16),
    ];
    let large: [(&[usize], usize); 3] = [(&[130, 70], 150), (&[5, 600], 40), (&[9, 40, 30], 64)];
    for dtype in Op::Affine.row().accepts.iter() {
        let wide = matches!(dtype, DType::F32 | DType::BF16);
        for (input, n) in small.into_iter().chain(large.into_iter().filter(|_| wide)) {
            for (first, layout) in LAYOUTS.into_iter().enumerate() {
                let k = input[input.len() - 1];
                let mut host = |dims: &[usize]| {
                    OracleOperand::Tensor(numbers.host(Meta::new(shape(dims), dtype), (-3.0, 3.0), false))
                };
                let inputs = [host(input), host(&[n, k]), host(&[n])];
                for second in [first, (first + 1) % 4] {
                    let absolute = compute_epsilon(dtype) * (9.0 * k as f64 + 3.0) * 4.0;
                    let tolerance = |_: &Host, _: usize| Tolerance { own: 1.0, absolute };
                    let layouts = [layout, LAYOUTS[second], LAYOUTS[(second + 2) % 4]];
                    check(backend, Op::Affine, &inputs, &Attrs::None, &layouts, tolerance);
                }
            }
        }
    }
}

/// Indices of an axis of `size`, negative ones as well if `op` takes these.
fn indices(op: Op, numbers: &mut TestNumbers, dims: &[usize], size: usize) -> OracleOperand {
    let meta = Meta::new(shape(dims), DType::I64);
    let least = if op.without_wrapping().is_some() { -(size as i64) } else { 0 };
    OracleOperand::Tensor(Host::ints(meta, (0..meta.shape.numel()).map(|_| numbers.whole(least, size as i64 - 1))))
}

/// Gathers, also with indices out of range.
pub fn gathers<B: Backend>(backend: &mut B) {
    let mut numbers = TestNumbers::new();
    for row in rows(Class::Gather) {
        for dtype in DType::STORED {
            for (dims, index, axis) in [
                (&[5][..], &[8][..], 0u8),
                (&[5, 3], &[2, 3], 0),
                (&[5, 3], &[4, 6], 1),
                (&[2, 3, 4], &[2, 1, 4], 1),
                (&[3], &[0], 0),
                (&[200, 50], &[200, 90], 1),
            ] {
                for layout in LAYOUTS {
                    let from = numbers.host(Meta::new(shape(dims), dtype), (-3.0, 3.0), false);
                    let inputs =
                        [OracleOperand::Tensor(from), indices(row.op, &mut numbers, index, dims[axis as usize])];
                    check(
                        backend,
                        row.op,
                        &inputs,
                        &Attrs::Axis(axis),
                        &[layout, OperandLayout::Transposed],
                        |_, _| EXACT,
                    );
                }
            }
        }
        for bad in [3, -1, -4, i64::MAX, i64::MIN] {
            let from = numbers.host(Meta::new(shape(&[2, 3]), DType::F32), (-3.0, 3.0), false);
            let index = Host::ints(Meta::new(shape(&[2, 2]), DType::I64), [0, 2, bad, 1]);
            let inputs = [OracleOperand::Tensor(from), OracleOperand::Tensor(index)];
            check(backend, row.op, &inputs, &Attrs::Axis(1), &[OperandLayout::Plain], |_, _| EXACT);
        }
    }
}

/// Scatters, several elements to one position, also with indices out of range.
pub fn scatters<B: Backend>(backend: &mut B) {
    let mut numbers = TestNumbers::new();
    for row in rows(Class::Scatter) {
        for dtype in row.accepts.iter() {
            for (dims, index, source, axis) in [
                (&[5][..], &[8][..], &[8][..], 0u8),
                (&[5, 3], &[2, 3], &[4, 3], 0),
                (&[5, 3], &[4, 6], &[4, 7], 1),
                (&[3], &[0], &[2], 0),
                (&[40, 10], &[3000, 10], &[3000, 10], 0),
            ] {
                for layout in LAYOUTS {
                    // Sums of whole numbers are exact in any order.
                    let mut whole = |dims: &[usize]| {
                        let meta = Meta::new(shape(dims), dtype);
                        let values: Vec<i64> = (0..meta.shape.numel()).map(|_| numbers.whole(0, 1)).collect();
                        OracleOperand::Tensor(if dtype.is_float() {
                            Host::floats(meta, values.into_iter().map(|x| x as f64))
                        } else {
                            Host::ints(meta, values)
                        })
                    };
                    let (base, added) = (whole(dims), whole(source));
                    let inputs = [base, indices(row.op, &mut numbers, index, dims[axis as usize]), added];
                    let attrs = Attrs::Axis(axis);
                    check(
                        backend,
                        row.op,
                        &inputs,
                        &attrs,
                        &[layout, OperandLayout::Plain, OperandLayout::Reversed],
                        |_, _| EXACT,
                    );
                }
            }
        }
        for bad in [5, -1, -6] {
            let mut host =
                |dims| OracleOperand::Tensor(numbers.host(Meta::new(shape(dims), DType::F32), (-3.0, 3.0), false));
            let index = Host::ints(Meta::new(shape(&[3]), DType::I64), [0, bad, 9]);
            let inputs = [host(&[5]), OracleOperand::Tensor(index), host(&[3])];
            check(backend, row.op, &inputs, &Attrs::Axis(0), &[OperandLayout::Plain], |_, _| EXACT);
        }
    }
}

const LINES: [(&[usize], u8); 7] =
    [(&[7], 0), (&[0], 0), (&[3, 0], 0), (&[4, 5], 0), (&[4, 5], 1), (&[2, 70, 3], 1), (&[3, 900], 1)];

/// Moderate numbers with many equal ones; floats also include NaN, infinities and signed zeros if `wild`.
fn uneven(numbers: &mut TestNumbers, meta: Meta, wild: bool) -> Host {
    let low = if meta.dtype == DType::U8 || meta.dtype == DType::Bool { 0 } else { -3 };
    let high = if meta.dtype == DType::Bool { 1 } else { 3 };
    let n = meta.shape.numel();
    if !meta.dtype.is_float() {
        return Host::ints(meta, (0..n).map(|_| numbers.whole(low, high)));
    }
    Host::floats(
        meta,
        (0..n).map(|_| match numbers.whole(0, if wild { 40 } else { 3 }) {
            40 => f64::NAN,
            39 => f64::INFINITY,
            38 => f64::NEG_INFINITY,
            37 => -0.0,
            i if i < 20 => numbers.whole(low, high) as f64,
            _ => numbers.unit() * 6.0 - 3.0,
        }),
    )
}

/// Scans along every axis, with ties and non-finite elements.
pub fn scans<B: Backend>(backend: &mut B) {
    let mut numbers = TestNumbers::new();
    for row in rows(Class::Scan) {
        for dtype in row.accepts.iter() {
            for (dims, axis) in LINES {
                for layout in LAYOUTS {
                    let positions = row.result == gt_ops::row::ResultDType::Index;
                    let mut from = uneven(&mut numbers, Meta::new(shape(dims), dtype), positions);
                    if row.op == Op::Cumprod && dtype.is_float() {
                        let sign = |i: usize| if from.float(i) < 0.0 { -1.0 } else { 1.0 };
                        from = Host::floats(from.meta, (0..from.len()).map(sign).collect::<Vec<_>>());
                    }
                    let scale = if row.op == Op::Cumsum { 3.0 * dims[axis as usize] as f64 } else { 8.0 };
                    let absolute = compute_epsilon(dtype) * scale;
                    let tolerance = |_: &Host, _: usize| Tolerance { own: 2.0, absolute };
                    check(backend, row.op, &[OracleOperand::Tensor(from)], &Attrs::Axis(axis), &[layout], tolerance);
                }
            }
        }
    }
}

/// Sorts along every axis, with ties, NaN and infinities: all indices, and the first few, half or all of them.
pub fn sorts<B: Backend>(backend: &mut B) {
    let mut numbers = TestNumbers::new();
    for row in rows(Class::Sort) {
        for dtype in row.accepts.iter() {
            for (dims, axis) in LINES {
                for layout in LAYOUTS {
                    let from = uneven(&mut numbers, Meta::new(shape(dims), dtype), true);
                    let inputs = [OracleOperand::Tensor(from)];
                    check(backend, row.op, &inputs, &Attrs::Axis(axis), &[layout], |_, _| EXACT);
                    let size = dims[axis as usize];
                    for count in [0, 1, 3, size / 2, size].into_iter().filter(|count| *count <= size) {
                        let count = OracleOperand::Scalar(Scalar::Int(count as i64));
                        let inputs = [inputs[0].clone(), count];
                        check(backend, row.op, &inputs, &Attrs::Axis(axis), &[layout], |_, _| EXACT);
                    }
                }
            }
        }
    }
}

/// Fourier transforms of no, one and several rows of pairs, whose lengths are powers of small primes, products, and
/// large primes.
pub fn fourier_transforms<B: Backend>(backend: &mut B) {
    let mut numbers = TestNumbers::new();
    for op in [Op::Fourier, Op::InverseFourier] {
        for dtype in op.row().accepts.iter() {
            for length in [0, 1, 2, 3, 4, 7, 8, 12, 25, 64, 97, 120, 194, 256] {
                for layout in LAYOUTS {
                    for dims in [&[2 * length][..], &[3, 2 * length], &[2, 0, 2 * length], &[2, 1, 2 * length]] {
                        let from = numbers.host(Meta::new(shape(dims), dtype), (-3.0, 3.0), false);
                        let absolute = compute_epsilon(dtype) * (8.0 + 8.0 * length as f64);
                        let tolerance = |_: &Host, _: usize| Tolerance { own: 2.0, absolute };
                        check(backend, op, &[OracleOperand::Tensor(from)], &Attrs::None, &[layout], tolerance);
                    }
                }
            }
        }
    }
}

/// Fourier transforms of no, one and several rows of real numbers, and back.
pub fn real_fourier_transforms<B: Backend>(backend: &mut B) {
    let mut numbers = TestNumbers::new();
    for (op, more) in [(Op::RealFourier, 0), (Op::InverseRealFourier, 2)] {
        for dtype in op.row().accepts.iter() {
            for length in [2, 4, 6, 8, 14, 24, 50, 128, 194, 256] {
                for layout in LAYOUTS {
                    let columns = length + more;
                    for dims in [&[columns][..], &[3, columns], &[2, 0, columns], &[2, 1, columns]] {
                        let from = numbers.host(Meta::new(shape(dims), dtype), (-3.0, 3.0), false);
                        let absolute = compute_epsilon(dtype) * (8.0 + 8.0 * length as f64);
                        let tolerance = |_: &Host, _: usize| Tolerance { own: 2.0, absolute };
                        check(backend, op, &[OracleOperand::Tensor(from)], &Attrs::None, &[layout], tolerance);
                    }
                }
            }
        }
    }
}

/// Alignments of labels with time steps: no, one and several samples, labels that repeat, sizes from none to beyond the
/// operands', labels without probability, and losses that are infinite. Forward variables and posterior probabilities.
pub fn alignments<B: Backend>(backend: &mut B) {
    let mut numbers = TestNumbers::new();
    for dtype in Op::CtcForward.row().accepts.iter() {
        for (time, samples, states) in
            [(0, 2, 3), (1, 1, 1), (4, 0, 3), (5, 4, 5), (9, 6, 7), (3, 2, 9), (7, 3, 16), (12, 3, 35), (2, 1, 1100)]
        {
            for layout in LAYOUTS {
                let emitted = numbers.host(Meta::new(shape(&[time, samples, states]), dtype), (-4.0, 0.0), false);
                let without = |i: usize| if i % 23 == 11 { f64::NEG_INFINITY } else { emitted.float(i) };
                let emitted = Host::floats(emitted.meta, (0..emitted.len()).map(without).collect::<Vec<_>>());
                let label = |i: usize| if (i % states).is_multiple_of(2) { 0 } else { 1 + (i * i / 2 % 3) as i64 };
                let labels = Meta::new(shape(&[samples, states]), DType::I64);
                let labels = Host::ints(labels, (0..samples * states).map(label).collect::<Vec<_>>());
                let size = |i: usize| match (i % 2, i / 2 % 4) {
                    (0, 0) => time as i64,
                    (0, 3) => time as i64 + 5,
                    (0, n) => n as i64,
                    (_, 1) => -1,
                    (_, 2) => states as i64,
                    (_, n) => ((states / 2).min(time / 2 + n)) as i64,
                };
                let sizes = Meta::new(shape(&[samples, 2]), DType::I64);
                let sizes = Host::ints(sizes, (0..2 * samples).map(size).collect::<Vec<_>>());
                let mut inputs: Vec<OracleOperand> =
                    [emitted, labels, sizes].into_iter().map(OracleOperand::Tensor).collect();
                let tolerance = |_: &Host, _: usize| Tolerance {
                    own: 4.0,
                    absolute: compute_epsilon(dtype) * 16.0 * (1 + time) as f64,
                };
                check(backend, Op::CtcForward, &inputs, &Attrs::None, &[layout], tolerance);
                let out = infer(Op::CtcForward, &metas(&inputs), &Attrs::None).expect("a shape");
                let variables = interpret(Op::CtcForward, &inputs, &Attrs::None, &out).expect("forward variables");
                inputs.push(OracleOperand::Tensor(variables));
                check(backend, Op::CtcPosteriors, &inputs, &Attrs::None, &[layout], tolerance);
            }
        }
    }
}

/// Steps of a long short-term memory and their gradients: no, one and several rows, of one element and more, with gates
/// that are closed.
pub fn lstm_cells<B: Backend>(backend: &mut B) {
    let mut numbers = TestNumbers::new();
    for dtype in Op::LstmCell.row().accepts.iter() {
        for (lead, size) in [(&[][..], 3), (&[0], 4), (&[1], 1), (&[5], 7), (&[3], 16), (&[2, 3], 65), (&[2, 1], 1030)]
        {
            for layout in LAYOUTS {
                let of = |columns: usize| Meta::new(shape(&[lead, &[columns][..]].concat()), dtype);
                let gates = numbers.host(of(4 * size), (-30.0, 30.0), false);
                let inputs = [gates, numbers.host(of(size), (-3.0, 3.0), false)].map(OracleOperand::Tensor);
                let tolerance = |_: &Host, _: usize| Tolerance { own: 2.0, absolute: compute_epsilon(dtype) * 8.0 };
                check(backend, Op::LstmCell, &inputs, &Attrs::None, &[layout], tolerance);
                let [gates, before] = inputs;
                let mut state = || OracleOperand::Tensor(numbers.host(of(size), (-3.0, 3.0), false));
                let (hidden_grad, cell_grad, after) = (state(), state(), state());
                let inputs = [hidden_grad, cell_grad, gates, before, after];
                check(backend, Op::LstmCellBackward, &inputs, &Attrs::None, &[layout], tolerance);
            }
        }
    }
}

/// Products and quotients of no, one and several complex numbers of any layout.
pub fn complex_products<B: Backend>(backend: &mut B) {
    let mut numbers = TestNumbers::new();
    for op in [Op::ComplexMul, Op::ComplexDiv] {
        for dtype in op.row().accepts.iter() {
            for lead in [&[][..], &[0], &[1], &[5], &[67], &[3, 16], &[2, 3, 65], &[2, 1030], &[40_000]] {
                for layout in LAYOUTS {
                    let meta = Meta::new(shape(&[lead, &[2]].concat()), dtype);
                    let inputs =
                        [(-3.0, 3.0), (0.5, 3.0)].map(|range| OracleOperand::Tensor(numbers.host(meta, range, false)));
                    let tolerance =
                        |_: &Host, _: usize| Tolerance { own: 2.0, absolute: compute_epsilon(dtype) * 32.0 };
                    check(backend, op, &inputs, &Attrs::None, &[layout], tolerance);
                }
            }
        }
    }
}

/// Searches in sorted rows: one row for all values, and a row for each row of values.
pub fn searches<B: Backend>(backend: &mut B) {
    let mut numbers = TestNumbers::new();
    let shapes: [(&[usize], &[usize]); 6] =
        [(&[5], &[7]), (&[5], &[2, 3]), (&[4], &[]), (&[0], &[3]), (&[3, 6], &[3, 4]), (&[300], &[5000])];
    for row in rows(Class::Search) {
        for dtype in row.accepts.iter() {
            for (sorted, wanted) in shapes {
                let from = uneven(&mut numbers, Meta::new(shape(sorted), dtype), true);
                let from = OracleOperand::Tensor(from);
                let axis = Attrs::Axis(sorted.len() as u8 - 1);
                let order_meta = Meta::new(shape(sorted), DType::I64);
                let order = interpret(Op::Argsort, std::slice::from_ref(&from), &axis, &order_meta).expect("an order");
                let meta = from.tensor().meta;
                let sorted =
                    interpret(Op::Gather, &[from, OracleOperand::Tensor(order)], &axis, &meta).expect("elements");
                let wanted = uneven(&mut numbers, Meta::new(shape(wanted), dtype), true);
                let inputs = [OracleOperand::Tensor(sorted), OracleOperand::Tensor(wanted)];
                for layout in LAYOUTS {
                    check(backend, row.op, &inputs, &Attrs::None, &[layout], |_, _| EXACT);
                }
            }
        }
    }
}

/// Positions of true elements: results with a row for each of them, with fewer rows and with more.
pub fn positions<B: Backend>(backend: &mut B) {
    let mut numbers = TestNumbers::new();
    for row in rows(Class::Positions) {
        for dims in [&[][..], &[9], &[0, 2], &[3, 4, 5], &[70_000], &[300, 400]] {
            let mask = numbers.host(Meta::new(shape(dims), DType::Bool), (0.0, 1.0), false);
            let (count, rank) = ((0..mask.len()).filter(|i| mask.int(*i) != 0).count(), dims.len());
            for rows in [count, count / 2, (count + 2).min(mask.len())] {
                for layout in LAYOUTS {
                    let attrs = Attrs::Shape(shape(&[rows, rank]));
                    check(backend, row.op, &[OracleOperand::Tensor(mask.clone())], &attrs, &[layout], |_, _| EXACT);
                }
            }
        }
    }
}

/// Creation ops: constants and ranges, made from scalar operands.
pub fn creations<B: Backend>(backend: &mut B) {
    for row in rows(Class::Creation) {
        for dtype in row.accepts.iter() {
            for n in [0, 1, 7, 50_001] {
                let create = |shape| Attrs::Create { shape, dtype };
                for (a, b) in [
                    (Scalar::Int(3), Scalar::Int(2)),
                    (Scalar::Float(0.5), Scalar::Float(0.25)),
                    (Scalar::Bool(true), Scalar::Int(-1)),
                ] {
                    let inputs = [OracleOperand::Scalar(a), OracleOperand::Scalar(b)];
                    let inputs = &inputs[..row.operands as usize];
                    check(backend, row.op, inputs, &create(shape(&[n])), &[OperandLayout::Plain], |_, _| EXACT);
                    if row.op != Op::Arange {
                        check(backend, row.op, inputs, &create(shape(&[n, 2, 1])), &[OperandLayout::Plain], |_, _| {
                            EXACT
                        });
                        check(backend, row.op, inputs, &create(Shape::SCALAR), &[OperandLayout::Plain], |_, _| EXACT);
                    }
                }
            }
        }
    }
}

/// Random numbers depend on seed, stream and position only, not on the number of threads.
pub fn randoms<B: Backend>(backend: &mut B) {
    for row in rows(Class::Random) {
        for dtype in row.accepts.iter() {
            for (n, first) in [(0, 0), (1, 0), (2, 5), (3, 6), (5, 1_000_003), (100_003, 0)] {
                for (low, high) in [(0, 10), (-5, 100), (i64::MIN, i64::MAX), (3, 4)] {
                    if row.operands == 0 && low != 0 {
                        continue;
                    }
                    let bounds = [OracleOperand::Scalar(Scalar::Int(low)), OracleOperand::Scalar(Scalar::Int(high))];
                    let (seed, stream) = (0x1234_5678_9abc, 1 << 40 | 3);
                    let attrs = Attrs::Random { shape: shape(&[n]), dtype, seed, stream, first };
                    // An absolute error in proportion to Box-Muller's radius, which is at most 8.6 for f64.
                    let absolute = if row.op == Op::Randn { 32.0 * compute_epsilon(dtype) } else { 0.0 };
                    let own = if row.op == Op::Randn { 1.0 } else { 0.0 };
                    let tolerance = |_: &Host, _: usize| Tolerance { own, absolute };
                    check(
                        backend,
                        row.op,
                        &bounds[..row.operands as usize],
                        &attrs,
                        &[OperandLayout::Plain],
                        tolerance,
                    );
                }
            }
        }
        if row.op == Op::Rand {
            for dtype in row.accepts.iter() {
                let attrs = Attrs::Random { shape: shape(&[200_000]), dtype, seed: 1, stream: 0, first: 0 };
                let got = run(backend, row.op, &[], &attrs, &[OperandLayout::Plain], 0).expect("random numbers");
                assert!((0..got.len()).all(|i| (0.0..1.0).contains(&got.float(i))), "rand of {dtype} left [0, 1)");
            }
        }
    }
}

/// Reads and writes in pieces, also of views.
pub fn transfers<B: Backend>(backend: &mut B) {
    let mut numbers = TestNumbers::new();
    for dtype in DType::STORED {
        for dims in [&[33, 17][..], &[400, 300]] {
            let host = numbers.host(Meta::new(shape(dims), dtype), (-3.0, 3.0), false);
            let mut bytes = host.to_bytes();
            let mut tensor = backend.allocate(&host.meta).expect("room");
            let (before, after) = bytes.split_at_mut(7 * dtype.size());
            backend.write(&mut tensor, 7 * dtype.size(), range_of(after)).expect("a write");
            backend.write(&mut tensor, 0, range_of(before)).expect("a write");
            for layout in LAYOUTS {
                let tensor =
                    if layout == OperandLayout::Plain { tensor.clone() } else { laid_out(backend, &host, layout) };
                // An extra byte in front makes the pieces unaligned.
                let mut back = vec![0u8; bytes.len() + 1];
                let piece = 100 * dtype.size();
                for start in (0..bytes.len()).step_by(piece) {
                    let end = (start + piece).min(bytes.len());
                    backend.read(&tensor, start, range_of(&mut back[start + 1..end + 1])).expect("a read");
                }
                assert_eq!(back[1..], bytes, "{dtype} in {layout:?}");
                let mut whole = vec![0u8; bytes.len()];
                backend.read(&tensor, 0, range_of(&mut whole)).expect("a read");
                assert_eq!(whole, bytes, "{dtype} in {layout:?}");
            }
            let past = backend.read(&tensor, bytes.len(), range_of(&mut [0; 8]));
            assert!(matches!(past, Err(ExecError::Internal(_))), "{past:?}");
            let mut shared = tensor.clone();
            let refused = backend.write(&mut shared, 0, range_of(&mut bytes[..8]));
            assert!(matches!(refused, Err(ExecError::Internal(_))), "{refused:?}");
        }
    }
    // Clients may write any byte for a bool: all but 0 are true.
    let mut tensor = backend.allocate(&Meta::new(shape(&[4]), DType::Bool)).expect("room");
    backend.write(&mut tensor, 0, range_of(&mut [0, 1, 2, 255])).expect("a write");
    assert_eq!(download(backend, &tensor).data, super::host::Data::Int(vec![0, 1, 1, 1]));
}

/// Integer division by zero is an error; float division is not.
pub fn divisions_by_zero<B: Backend>(backend: &mut B) {
    for row in ROWS.iter().filter(|row| row.divisor_nonzero) {
        for dtype in row.accepts.iter() {
            let meta = Meta::new(shape(&[3]), dtype);
            let make = |x: [i64; 3]| {
                OracleOperand::Tensor(if dtype.is_float() {
                    Host::floats(meta, x.map(|x| x as f64))
                } else {
                    Host::ints(meta, x)
                })
            };
            let none = Meta::new(shape(&[0]), dtype);
            let empty =
                OracleOperand::Tensor(if dtype.is_float() { Host::floats(none, []) } else { Host::ints(none, []) });
            for inputs in [
                [make([4, 5, 6]), make([1, 0, 2])],
                [make([4, 5, 6]), OracleOperand::Scalar(Scalar::Int(0))],
                [empty, OracleOperand::Scalar(Scalar::Int(0))],
            ] {
                check(
                    backend,
                    row.op,
                    &inputs,
                    &Attrs::None,
                    &[OperandLayout::Plain],
                    elementwise_tolerance(row, &inputs, dtype),
                );
            }
        }
    }
}

/// Exceeding the limit is an error with the numbers, and the backend works afterwards.
pub fn memory_limit<B: Backend>(backend: &mut B) {
    let before = backend.memory();
    assert_eq!(before.limit_bytes, MEMORY_BYTES);
    let half = Meta::new(shape(&[MEMORY_BYTES / 2 / 4]), DType::F32);
    let too_much = Meta::new(shape(&[MEMORY_BYTES / 4]), DType::F32);
    let held = backend.allocate(&half).expect("half of the limit");
    assert!(backend.memory().used_bytes >= half.bytes());
    match backend.allocate(&too_much).err() {
        Some(ExecError::OutOfMemory { requested, held, limit, scope: LimitScope::Device }) => {
            assert!(requested >= too_much.bytes() && held >= half.bytes() && limit == MEMORY_BYTES);
        }
        other => panic!("{other:?}"),
    }
    let refused = backend.execute(
        Op::Full,
        &[Input::Scalar(Scalar::Int(1))],
        &Attrs::Create { shape: too_much.shape, dtype: DType::F32 },
        &too_much,
        0,
    );
    assert!(matches!(refused.err(), Some(ExecError::OutOfMemory { .. })));
    drop(held);
    assert_eq!(backend.memory().used_bytes, before.used_bytes);
    assert!(backend.memory().used_bytes_peak >= half.bytes());
    drop(backend.allocate(&half).expect("what was freed"));
    backend.trim();
    assert_eq!(backend.memory().cached_bytes, 0);
}

/// A cancelled instruction fails and holds no memory, alone or fused; the next one, which is not covered, computes.
pub fn cancellations<B: Backend>(backend: &mut B) {
    let meta = Meta::new(shape(&[3]), DType::F32);
    let tensor = upload(backend, &Host::floats(meta, [1.0, 2.0, 3.0]));
    let cancellation = Arc::new(Cancellation::default());
    cancellation.cancel_below(8);
    let used_bytes = backend.memory().used_bytes;
    let inputs = [Input::Tensor(&tensor), Input::Tensor(&tensor)];
    backend.cancelled_by(&cancellation, 7);
    let alone = backend.execute(Op::Add, &inputs, &Attrs::None, &meta, 0);
    assert_eq!(alone.err(), Some(ExecError::Cancelled));
    let stage = |inputs: Vec<_>, kept| Stage { op: Op::Add, inputs, attrs: &Attrs::None, out: meta, kept, last_use: 0 };
    let program = [
        stage(inputs.map(StageInput::External).into(), false),
        stage(vec![StageInput::Stage(0), StageInput::Stage(0)], true),
    ];
    assert_eq!(backend.execute_fused(&program).err(), Some(ExecError::Cancelled));
    assert_eq!(backend.memory().used_bytes, used_bytes);
    // Transfers are not cancelled.
    assert_eq!(download(backend, &tensor).to_bytes(), Host::floats(meta, [1.0, 2.0, 3.0]).to_bytes());
    backend.cancelled_by(&cancellation, 8);
    let done = backend.execute(Op::Add, &inputs, &Attrs::None, &meta, 0).expect("an instruction that is not cancelled");
    assert_eq!(download(backend, &done).to_bytes(), Host::floats(meta, [2.0, 4.0, 6.0]).to_bytes());
    backend.cancelled_by(&cancellation, Cancellation::NEVER);
}
