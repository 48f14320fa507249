//! The CUDA backend agrees with the CPU backend: pooling, convolutions, copies of every layout, concatenation,
//! gather and scatter.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use crate::{Multiplier, TestDevice, open};
use gt_backend::conformance::host::{Data, Host};
use gt_backend::conformance::{WINDOWS, WindowSizes, window_spec};
use gt_backend::{Backend, HostRange, Input};
use gt_cpu::{CpuBackend, CpuOptions};
use gt_cuda::CudaBackend;
use gt_ops::infer::{InputMeta, infer};
use gt_ops::instruction::SliceSpec;
use gt_ops::{Attrs, DType, DTypeSet, Meta, Op, RANK_MAX, Shape};
use std::ptr::NonNull;
use std::sync::atomic::Ordering::Relaxed;

/// View ops, applied in order.
type Views = Vec<(Op, Attrs)>;

pub(crate) const LIMIT: usize = 64 << 20;

fn backends() -> (CpuBackend, CudaBackend) {
    (cpu(), open(LIMIT, Multiplier::Kernels).backend)
}

pub(crate) fn cpu() -> CpuBackend {
    CpuBackend::new(CpuOptions { threads: 1, memory_bytes_limit: LIMIT, ..CpuOptions::default() })
}

pub(crate) fn shape(dims: &[usize]) -> Shape {
    Shape::new(dims).unwrap()
}

/// Integers from -3 to 3 (0 to 6 for integer dtypes), whose sums and products are exact in any order.
pub(crate) fn whole(meta: Meta, seed: usize) -> Host {
    let number = |i: usize| ((i + seed).wrapping_mul(2_654_435_761) >> 7) % 7;
    if meta.dtype.is_float() {
        Host::floats(meta, (0..meta.shape.numel()).map(|i| number(i) as f64 - 3.0))
    } else {
        Host::ints(meta, (0..meta.shape.numel()).map(|i| number(i) as i64))
    }
}

/// An operand: the uploaded tensor, and the view ops applied to it.
pub(crate) struct Operand {
    host: Host,
    view: Vec<(Op, Attrs)>,
}

impl From<Host> for Operand {
    fn from(host: Host) -> Operand {
        Operand { host, view: Vec::new() }
    }
}

fn execute<B: Backend>(backend: &mut B, op: Op, inputs: &[B::Tensor], attrs: &Attrs) -> B::Tensor {
    let metas: Vec<InputMeta> = inputs.iter().map(|t| InputMeta::Tensor(backend.meta(t))).collect();
    let out = infer(op, &metas, attrs).unwrap_or_else(|e| panic!("{}: {e}", op.name()));
    let operands: Vec<_> = inputs.iter().map(Input::Tensor).collect();
    backend.execute(op, &operands, attrs, &out, 0).unwrap_or_else(|e| panic!("{}: {e}", op.name()))
}

fn result<B: Backend>(backend: &mut B, op: Op, operands: &[Operand], attrs: &Attrs) -> Host {
    let mut inputs = Vec::new();
    for Operand { host, view } in operands {
        let mut bytes = host.to_bytes();
        let mut tensor = backend.allocate(&host.meta).unwrap();
        // SAFETY: `bytes` outlives the call of `write`, which has copied it on return.
        let range = unsafe { HostRange::new(NonNull::from(&mut bytes[..]).cast(), bytes.len()) };
        backend.write(&mut tensor, 0, range).unwrap();
        for (op, attrs) in view {
            tensor = execute(backend, *op, &[tensor], attrs);
        }
        inputs.push(tensor);
    }
    let out = execute(backend, op, &inputs, attrs);
    let meta = backend.meta(&out);
    let mut bytes = vec![0; meta.bytes()];
    // SAFETY: `bytes` outlives the call of `read`, and nothing refers to it meanwhile.
    backend.read(&out, 0, unsafe { HostRange::new(NonNull::from(&mut bytes[..]).cast(), bytes.len()) }).unwrap();
    Host::from_bytes(meta, &bytes)
}

/// Asserts that both backends compute the same numbers; all NaNs are equal.
pub(crate) fn agree(both: &mut (CpuBackend, CudaBackend), op: Op, operands: &[Operand], attrs: &Attrs) {
    agree_within(0.0, both, op, operands, attrs);
}

/// Asserts that the numbers that both backends compute differ by at most `share` of the largest.
pub(crate) fn agree_within(
    share: f64,
    (cpu, cuda): &mut (CpuBackend, CudaBackend),
    op: Op,
    operands: &[Operand],
    attrs: &Attrs,
) {
    let (want, got) = (result(cpu, op, operands, attrs), result(cuda, op, operands, attrs));
    assert_eq!(got.meta, want.meta);
    let what = || {
        let shapes: Vec<_> = operands.iter().map(|operand| operand.host.meta).collect();
        format!("{} of {shapes:?} with {attrs:?}", op.name())
    };
    match (&got.data, &want.data) {
        (Data::Float(got), Data::Float(want)) => {
            let bound = share * want.iter().filter(|w| w.is_finite()).fold(0.0, |most: f64, w| most.max(w.abs()));
            let same = |(g, w): (&f64, &f64)| g == w || (g.is_nan() && w.is_nan()) || (g - w).abs() <= bound;
            let differs = got.iter().zip(want).position(|pair| !same(pair));
            assert_eq!(differs.map(|i| (i, got[i], want[i])), None, "{}", what());
        }
        (got, want) => assert_eq!(got, want, "{}", what()),
    }
}

pub(crate) fn with(lead: &[usize], sizes: &[usize]) -> Shape {
    shape(&[lead, sizes].concat())
}

#[test]
fn pools_and_their_gradients() {
    let mut both = backends();
    for (i, case) in WINDOWS.into_iter().enumerate() {
        let spec = window_spec(case, 1);
        let output = spec.output().unwrap();
        let (input, output) = (with(&[2, 3], spec.used(&spec.input)), with(&[2, 3], spec.used(&output)));
        let attrs = Attrs::Window(Box::new(spec));
        for dtype in DTypeSet::FLOAT.iter() {
            let mut x = whole(Meta::new(input, dtype), i);
            if let (Data::Float(data), 0) = (&mut x.data, i % 2) {
                (data[3], data[4], data[5]) = (f64::NAN, f64::NAN, f64::NEG_INFINITY);
            }
            let grads = whole(Meta::new(output, dtype), 5);
            for op in [Op::MaxPool, Op::MaxPoolIndices, Op::SumPool] {
                agree(&mut both, op, &[x.clone().into()], &attrs);
            }
            agree(&mut both, Op::SumPoolInput, &[grads.clone().into()], &attrs);
            agree(&mut both, Op::MaxPoolInput, &[grads.into(), x.into()], &attrs);
        }
    }
}

#[test]
fn convolutions_and_their_gradients() {
    agree_on_convolutions(&mut backends());
}

/// Asserts that both backends compute the same convolutions and gradients of them.
pub(crate) fn agree_on_convolutions(both: &mut (CpuBackend, CudaBackend)) {
    // Samples, input and output channels of a group, groups. The sums of the third are long enough to be split among
    // blocks.
    for (i, (samples, seen, made, groups)) in
        [(2, 3, 4, 1), (1, 2, 3, 2), (3, 70, 5, 1), (0, 2, 2, 1)].into_iter().enumerate()
    {
        for (j, case) in WINDOWS.into_iter().enumerate() {
            let spec = window_spec(case, groups as i64);
            let output = spec.output().unwrap();
            let (input, kernel, output) = (spec.used(&spec.input), spec.used(&spec.kernel), spec.used(&output));
            let attrs = Attrs::Window(Box::new(spec));
            // f32 for every combination, the other dtypes for every fourth.
            for dtype in DTypeSet::FLOAT.iter().filter(|dtype| *dtype == DType::F32 || (i + j) % 4 == 0) {
                let of = |shape: Shape, seed| whole(Meta::new(shape, dtype), seed);
                let x = of(with(&[samples, groups * seen], input), 1);
                let y = of(with(&[samples, groups * made], output), 2);
                let weight = of(with(&[groups * made, seen], kernel), 3);
                let bias = of(shape(&[groups * made]), 4);
                let forward = [x.clone().into(), weight.clone().into(), bias.into()];
                agree(both, Op::Convolution, &forward, &attrs);
                agree(both, Op::Convolution, &forward[..2], &attrs);
                agree(both, Op::ConvolutionInput, &[y.clone().into(), weight.into()], &attrs);
                agree(both, Op::ConvolutionWeight, &[y.into(), x.into()], &attrs);
            }
        }
    }
}

#[test]
fn convolutions_of_many_tiles_and_long_sums() {
    let mut both = backends();
    let spec = window_spec((&[1, 1], &[1, 1], &[1, 1], &[1, 1], &[3, 3], &[20, 19]), 1);
    let attrs = Attrs::Window(Box::new(spec));
    let of = |dims: &[usize], seed| whole(Meta::new(shape(dims), DType::F32), seed);
    let (x, y, weight) = (of(&[2, 17, 20, 19], 1), of(&[2, 70, 20, 19], 2), of(&[70, 17, 3, 3], 3));
    agree(&mut both, Op::Convolution, &[x.clone().into(), weight.clone().into()], &attrs);
    agree(&mut both, Op::ConvolutionInput, &[y.clone().into(), weight.into()], &attrs);
    agree(&mut both, Op::ConvolutionWeight, &[y.into(), x.into()], &attrs);
}

#[test]
fn large_convolutions_are_products_of_the_library() {
    // Limits memory to the im2col columns of a few samples at a time.
    let (cpu, _) = backends();
    let TestDevice { backend: cuda, emulated, products } = open(LIMIT / 4, Multiplier::Library);
    let mut both = (cpu, cuda);
    // Samples, input channels, output channels; and the library's products for each op.
    let cases: [(WindowSizes, [usize; 3], DType, [u64; 3]); 6] = [
        ((&[1, 1], &[1, 1], &[1, 1], &[1, 1], &[3, 3], &[20, 19]), [3, 17, 70], DType::F32, [1, 3, 1]),
        ((&[1, 1], &[1, 1], &[0, 0], &[0, 0], &[1, 1], &[21, 13]), [3, 48, 40], DType::BF16, [1; 3]),
        ((&[2, 2], &[1, 1], &[0, 0], &[0, 0], &[1, 1], &[24, 24]), [4, 64, 64], DType::F32, [1; 3]),
        ((&[2, 3], &[2, 1], &[3, 0], &[1, 2], &[3, 2], &[31, 30]), [5, 16, 24], DType::F16, [1, 2, 1]),
        ((&[2], &[1], &[2], &[2], &[5], &[301]), [2, 33, 31], DType::F64, [1; 3]),
        ((&[1, 1, 1], &[1, 1, 1], &[1, 1, 1], &[1, 1, 1], &[3, 3, 3], &[7, 6, 9]), [2, 10, 9], DType::F32, [1; 3]),
    ];
    for (case, [samples, seen, made], dtype, expected) in cases {
        let spec = window_spec(case, 1);
        let output = spec.output().unwrap();
        let (input, kernel, output) = (spec.used(&spec.input), spec.used(&spec.kernel), spec.used(&output));
        let attrs = Attrs::Window(Box::new(spec));
        let of = |shape: Shape, seed| whole(Meta::new(shape, dtype), seed);
        let (x, y) = (of(with(&[samples, seen], input), 1), of(with(&[samples, made], output), 2));
        let (weight, bias) = (of(with(&[made, seen], kernel), 3), of(shape(&[made]), 4));
        let mut asked = |op, operands: &[Operand]| {
            let before = products.load(Relaxed);
            agree(&mut both, op, operands, &attrs);
            products.load(Relaxed) - before
        };
        let counts = [
            asked(Op::Convolution, &[x.clone().into(), weight.clone().into(), bias.into()]),
            asked(Op::ConvolutionInput, &[y.clone().into(), weight.into()]),
            asked(Op::ConvolutionWeight, &[y.into(), x.into()]),
        ];
        // No product of NVIDIA's library is counted.
        assert_eq!(counts, if emulated.is_some() { expected } else { [0; 3] }, "{case:?}");
    }
}

#[test]
fn transforms_whose_factors_are_whole_are_exact() {
    let mut both = backends();
    for op in [Op::Fourier, Op::InverseFourier] {
        for dtype in op.row().accepts.iter() {
            // Pairs of real and imaginary parts.
            for length in [1, 2, 4] {
                let rows = whole(Meta::new(shape(&[5, 2 * length]), dtype), length);
                agree(&mut both, op, &[rows.into()], &Attrs::None);
            }
        }
    }
}

fn permutation(axes: &[u8]) -> (Op, Attrs) {
    let mut p = [0; RANK_MAX];
    p[..axes.len()].copy_from_slice(axes);
    (Op::Permute, Attrs::Permutation(p))
}

fn slice(boxes: &[(i64, i64, usize)]) -> (Op, Attrs) {
    let sizes: Vec<usize> = boxes.iter().map(|(_, _, size)| *size).collect();
    let mut spec = SliceSpec { start: [0; RANK_MAX], step: [1; RANK_MAX], sizes: shape(&sizes) };
    for (axis, (start, step, _)) in boxes.iter().enumerate() {
        (spec.start[axis], spec.step[axis]) = (*start, *step);
    }
    (Op::Slice, Attrs::Slice(Box::new(spec)))
}

#[test]
fn copies_of_every_layout() {
    let mut both = backends();
    let views: [(&[usize], Views); 11] = [
        (&[70, 130], vec![permutation(&[1, 0])]),
        (&[33, 31], vec![permutation(&[1, 0])]),
        (&[5, 40, 9], vec![permutation(&[0, 2, 1])]),
        (&[5, 9, 40], vec![permutation(&[2, 0, 1])]),
        (&[3, 50, 4, 20], vec![permutation(&[3, 2, 1, 0])]),
        (&[6, 64], vec![slice(&[(0, 1, 6), (16, 1, 32)])]),
        (&[6, 64], vec![slice(&[(5, -1, 6), (3, 1, 30)])]),
        (&[40, 64], vec![slice(&[(39, -2, 20), (63, -3, 21)])]),
        (&[40, 64], vec![slice(&[(1, 2, 19), (0, 1, 64)]), permutation(&[1, 0])]),
        (&[1, 12], vec![(Op::Expand, Attrs::Shape(shape(&[9, 12])))]),
        (&[12, 1], vec![(Op::Expand, Attrs::Shape(shape(&[12, 20])))]),
    ];
    for (dims, view) in views {
        for dtype in [DType::U8, DType::BF16, DType::F32, DType::I64] {
            let host = whole(Meta::new(shape(dims), dtype), 9);
            let operand = Operand { host: host.clone(), view: view.clone() };
            let seen = view.iter().fold(InputMeta::Tensor(host.meta), |meta, (op, attrs)| {
                InputMeta::Tensor(infer(*op, &[meta], attrs).unwrap())
            });
            let InputMeta::Tensor(seen) = seen else { unreachable!("a view is a tensor") };
            let flat = Attrs::Shape(shape(&[seen.shape.numel()]));
            agree(&mut both, Op::Reshape, &[operand], &flat);
            // Also writes the view into a slice of a larger tensor, in the slice's order.
            if let [rows, columns] = *seen.shape.dims() {
                let base = whole(Meta::new(shape(&[rows * 2, columns + 8]), dtype), 1);
                let (_, hole) = slice(&[(rows as i64 * 2 - 1, -2, rows), (8, 1, columns)]);
                let operand = Operand { host, view: view.clone() };
                agree(&mut both, Op::SliceScatter, &[base.into(), operand], &hole);
            }
        }
    }
}

#[test]
fn many_operands_side_by_side() {
    let mut both = backends();
    for dtype in [DType::U8, DType::F16, DType::F64] {
        for (axis, count) in [(0u8, 3), (1, 70), (1, 128), (2, 5)] {
            let operand = |i: usize| {
                let mut dims = [4, 3, 8];
                dims[axis as usize] = i % 4 * 2;
                let meta = Meta::new(shape(&dims), dtype);
                // Some operands are views in another order.
                let view = if i % 9 == 5 { vec![permutation(&[2, 1, 0]), permutation(&[2, 1, 0])] } else { Vec::new() };
                let view = if i % 7 == 3 {
                    vec![slice(&[(0, 1, dims[0]), (0, 1, dims[1]), (dims[2] as i64 - 1, -1, dims[2])])]
                } else {
                    view
                };
                Operand { host: whole(meta, i), view }
            };
            let operands: Vec<Operand> = (1..=count).map(operand).collect();
            agree(&mut both, Op::Cat, &operands, &Attrs::Axis(axis));
        }
    }
}

#[test]
fn rows_by_index_and_elements_put_in_order() {
    let mut both = backends();
    let index = |dims: &[usize], size: i64| {
        let meta = Meta::new(shape(dims), DType::I64);
        Host::ints(meta, (0..meta.shape.numel() as i64).map(|i| (i * 7 + i / 5) % size))
    };
    for dtype in [DType::U8, DType::BF16, DType::F32, DType::I64] {
        let of = |dims: &[usize], seed| whole(Meta::new(shape(dims), dtype), seed);
        // One index per row, so that whole rows are copied.
        for width in [64usize, 12, 7] {
            let rows =
                Operand { host: index(&[30, 1], 11), view: vec![(Op::Expand, Attrs::Shape(shape(&[30, width])))] };
            agree(&mut both, Op::Gather, &[of(&[11, width], 3).into(), rows], &Attrs::Axis(0));
        }
        // Short lines, and long ones with many duplicates of an index.
        for (dims, axis) in [([9, 12], 1u8), ([9, 12], 0), ([400, 6], 0), ([5, 300], 1)] {
            let mut base = dims;
            base[axis as usize] = 8;
            for op in [Op::Scatter, Op::ScatterAdd, Op::ScatterAmax, Op::ScatterAmin] {
                let operands = [of(&base, 1).into(), index(&dims, 8).into(), of(&dims, 2).into()];
                agree(&mut both, op, &operands, &Attrs::Axis(axis));
            }
        }
    }
}
