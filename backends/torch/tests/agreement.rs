//! PyTorch and the CPU backend compute the same with the ops that the interpreter of the conformance suite lacks:
//! either is the other's oracle.

use gt_backend::conformance::oracle::OracleOperand;
use gt_backend::conformance::{
    LAYOUTS, MEMORY_BYTES, OperandLayout, TestNumbers, WINDOWS, compare, host::Host, window_spec,
};
use gt_cpu::{CpuBackend, CpuOptions};
use gt_ops::instruction::{LossReduction, LossSpec};
use gt_ops::{Attrs, DType, Meta, Op, Scalar, Shape};
use gt_torch::{InterpreterOptions, TorchBackend};

const FLOATS: [DType; 4] = [DType::F16, DType::BF16, DType::F32, DType::F64];

/// Both backends, and numbers for operands.
struct Agreement {
    torch: TorchBackend,
    cpu: CpuBackend,
    numbers: TestNumbers,
}

impl Agreement {
    fn new() -> Agreement {
        let options = InterpreterOptions::on("cpu".into());
        Agreement {
            torch: TorchBackend::open(&options, Some(MEMORY_BYTES)).expect("PyTorch").0,
            cpu: CpuBackend::new(CpuOptions { memory_bytes_limit: MEMORY_BYTES, ..CpuOptions::default() }),
            numbers: TestNumbers::new(),
        }
    }

    fn tensor(&mut self, dims: &[usize], dtype: DType) -> OracleOperand {
        OracleOperand::Tensor(self.numbers.host(meta(dims, dtype), (-2.0, 2.0), false))
    }

    /// Compares an op, within 4 units of the result's precision and `absolute` of the compute type's.
    fn check(&mut self, op: Op, inputs: &[OracleOperand], attrs: &Attrs, layout: OperandLayout, absolute: f64) {
        compare((&mut self.torch, &mut self.cpu), op, inputs, attrs, &[layout], (4.0, absolute));
    }
}

fn meta(dims: &[usize], dtype: DType) -> Meta {
    Meta::new(Shape::new(dims).expect("a shape of the test"), dtype)
}

fn number(x: f64) -> OracleOperand {
    OracleOperand::Scalar(Scalar::Float(x))
}

const ROWS: [&[usize]; 7] = [&[0, 3], &[2, 0], &[1], &[5, 1], &[3, 7], &[2, 3, 64], &[4, 515]];

#[test]
fn softmax_and_its_gradients() {
    let mut both = Agreement::new();
    for dtype in FLOATS {
        for dims in ROWS {
            for layout in LAYOUTS {
                let inputs = [both.tensor(dims, dtype), both.tensor(dims, dtype)];
                for op in [Op::Softmax, Op::LogSoftmax, Op::SoftmaxBackward, Op::LogSoftmaxBackward] {
                    let inputs = &inputs[..op.row().operands as usize];
                    let terms = if inputs.len() > 1 { dims[dims.len() - 1] } else { 0 };
                    both.check(op, inputs, &Attrs::None, layout, 64.0 + 16.0 * terms as f64);
                }
            }
        }
        let inf = f64::INFINITY;
        for row in [[1.0, f64::NAN, 2.0, -1.0], [1.0, inf, 2.0, inf], [-inf, 1.0, -inf, 2.0], [-inf; 4]] {
            let inputs = [OracleOperand::Tensor(Host::floats(meta(&[1, 4], dtype), row))];
            for op in [Op::Softmax, Op::LogSoftmax] {
                both.check(op, &inputs, &Attrs::None, OperandLayout::Plain, 32.0);
            }
        }
    }
}

#[test]
fn normalizations_and_their_gradients() {
    let mut both = Agreement::new();
    for dtype in FLOATS {
        for dims in ROWS {
            for layout in LAYOUTS {
                let columns = &dims[dims.len() - 1..];
                let [grad, x] = [(); 2].map(|()| both.tensor(dims, dtype));
                let [weight, bias] = [(); 2].map(|()| both.tensor(columns, dtype));
                let epsilon = number(1e-5);
                // A row of one element has variance 0, so 1 / sqrt(epsilon) amplifies errors.
                let absolute = if columns[0] == 1 { 1e5 } else { 256.0 };
                for (op, inputs) in [
                    (Op::LayerNorm, vec![&x, &weight, &bias, &epsilon]),
                    (Op::LayerNorm, vec![&x, &number(1.0), &number(0.0), &epsilon]),
                    (Op::RmsNorm, vec![&x, &weight, &epsilon]),
                    (Op::LayerNormBackward, vec![&grad, &x, &weight, &epsilon]),
                    (Op::LayerNormBackward, vec![&grad, &x, &number(2.0), &epsilon]),
                    (Op::RmsNormBackward, vec![&grad, &x, &weight, &epsilon]),
                    (Op::LayerNormWeightBackward, vec![&grad, &x, &epsilon]),
                    (Op::RmsNormWeightBackward, vec![&grad, &x, &epsilon]),
                ] {
                    let inputs: Vec<OracleOperand> = inputs.into_iter().cloned().collect();
                    both.check(op, &inputs, &Attrs::None, layout, 4.0 * absolute);
                }
            }
        }
    }
}

#[test]
fn losses_and_their_gradients() {
    let mut both = Agreement::new();
    for dtype in FLOATS {
        for (samples, classes) in [(1, 1), (3, 7), (65, 12), (5, 512)] {
            for reduction in [LossReduction::None, LossReduction::Mean, LossReduction::Sum] {
                for (smoothing, weighted, ignored) in
                    [(0.0, false, -100), (0.1, true, -100), (0.1, false, 0), (0.0, true, 1 << 40)]
                {
                    let x = both.tensor(&[samples, classes], dtype);
                    let class = |i: usize| if i % 6 == 5 { ignored } else { ((i * 7 + 1) % classes) as i64 };
                    let target = Host::ints(meta(&[samples], DType::I64), (0..samples).map(class));
                    let target = OracleOperand::Tensor(target);
                    let weight = both.numbers.host(meta(&[classes], dtype), (0.5, 2.0), false);
                    let weight = if weighted { OracleOperand::Tensor(weight) } else { number(1.0) };
                    let losses: &[usize] = if reduction == LossReduction::None { &[samples] } else { &[] };
                    let grad = both.tensor(losses, dtype);
                    for (forward, backward) in
                        [(Op::CrossEntropy, Op::CrossEntropyBackward), (Op::NllLoss, Op::NllLossBackward)]
                    {
                        let smoothing = if forward == Op::NllLoss { 0.0 } else { smoothing };
                        let attrs = Attrs::Loss(LossSpec { reduction, ignore_index: ignored, smoothing });
                        let inputs = [x.clone(), target.clone(), weight.clone()];
                        both.check(forward, &inputs, &attrs, OperandLayout::Transposed, 512.0);
                        let inputs = [grad.clone(), x.clone(), target.clone(), weight.clone()];
                        both.check(backward, &inputs, &attrs, OperandLayout::Plain, 64.0);
                    }
                }
            }
        }
    }
}

#[test]
fn attention_and_its_gradients() {
    let mut both = Agreement::new();
    // Leading axes, queries, keys, features, columns of values.
    let cases: [(&[usize], [usize; 4]); 6] = [
        (&[], [1, 1, 1, 1]),
        (&[2], [3, 5, 4, 2]),
        (&[2, 2], [7, 7, 8, 8]),
        (&[1], [70, 130, 40, 65]),
        (&[2], [3, 0, 4, 2]),
        (&[0], [3, 2, 4, 2]),
    ];
    for dtype in FLOATS {
        for (at, (lead, [queries, keys, features, columns])) in cases.into_iter().enumerate() {
            for (masked, causal) in [(false, false), (false, true), (true, false), (true, true)] {
                let mut tensor = |rows, columns| {
                    let host = both.numbers.host(meta(&[lead, &[rows, columns]].concat(), dtype), (-1.0, 1.0), false);
                    OracleOperand::Tensor(host)
                };
                let mut inputs = vec![tensor(queries, columns), tensor(queries, features)];
                inputs.extend([tensor(keys, features), tensor(keys, columns)]);
                if masked {
                    // No query attends to every third key but the first.
                    let mask = |i: usize| if i % keys % 3 == 2 { f64::NEG_INFINITY } else { (i % 7) as f64 / 8.0 };
                    let meta = meta(&[lead, &[queries, keys]].concat(), dtype);
                    inputs.push(OracleOperand::Tensor(Host::floats(meta, (0..meta.shape.numel()).map(mask))));
                }
                let attrs = Attrs::Attention { causal, scale: if at == 2 { -0.5 } else { 0.7 } };
                // PyTorch rounds the weights of half precisions.
                let absolute = match dtype {
                    DType::F16 => 2f64.powi(-9) / f64::from(f32::EPSILON),
                    DType::BF16 => 2f64.powi(-6) / f64::from(f32::EPSILON),
                    _ => 256.0,
                };
                both.check(Op::Attention, &inputs[1..], &attrs, LAYOUTS[at % 4], absolute);
                both.check(Op::AttentionBackward, &inputs, &attrs, LAYOUTS[at % 4], 4.0 * absolute);
                // The result of attention is not read: neither backend needs it.
                inputs.insert(4, inputs[0].clone());
                both.check(Op::AttentionGradients, &inputs, &attrs, LAYOUTS[at % 4], 4.0 * absolute);
            }
        }
    }
}

#[test]
fn pools_and_their_gradients() {
    let mut both = Agreement::new();
    for (i, window) in WINDOWS.into_iter().enumerate() {
        let spec = window_spec(window, 1);
        let output = spec.output().expect("an output");
        let input = [&[2, 3], spec.used(&spec.input)].concat();
        let output = [&[2, 3], spec.used(&output)].concat();
        let attrs = Attrs::Window(Box::new(spec));
        for dtype in FLOATS {
            let mut x = both.numbers.host(meta(&input, dtype), (-2.0, 2.0), false);
            if i % 2 == 0 {
                let special = [f64::NAN, f64::NAN, f64::NEG_INFINITY];
                let elements: Vec<f64> =
                    (0..x.len()).map(|at| if (3..6).contains(&at) { special[at - 3] } else { x.float(at) }).collect();
                x = Host::floats(x.meta, elements);
            }
            let (x, grad) = (OracleOperand::Tensor(x), both.tensor(&output, dtype));
            for op in [Op::MaxPool, Op::MaxPoolIndices] {
                both.check(op, std::slice::from_ref(&x), &attrs, LAYOUTS[i % 4], 0.0);
            }
            both.check(Op::SumPool, std::slice::from_ref(&x), &attrs, LAYOUTS[i % 4], 64.0);
            both.check(Op::SumPoolInput, std::slice::from_ref(&grad), &attrs, LAYOUTS[i % 4], 64.0);
            both.check(Op::MaxPoolInput, &[grad, x], &attrs, LAYOUTS[i % 4], 64.0);
        }
    }
}

#[test]
fn convolutions_and_their_gradients() {
    let mut both = Agreement::new();
    // Samples, input and output channels of a group, groups.
    for (i, [samples, seen, made, groups]) in
        [[2, 3, 4, 1], [1, 2, 3, 2], [3, 70, 5, 1], [0, 2, 2, 1]].into_iter().enumerate()
    {
        for (j, window) in WINDOWS.into_iter().enumerate() {
            let spec = window_spec(window, groups as i64);
            let output = spec.output().expect("an output");
            let with = |lead: [usize; 2], sizes: &[usize]| [&lead[..], sizes].concat();
            let input = with([samples, groups * seen], spec.used(&spec.input));
            let kernel = with([groups * made, seen], spec.used(&spec.kernel));
            let output = with([samples, groups * made], spec.used(&output));
            let attrs = Attrs::Window(Box::new(spec));
            let layout = LAYOUTS[(i + j) % 4];
            for dtype in FLOATS {
                let [x, y, weight] = [&input, &output, &kernel].map(|dims| both.tensor(dims, dtype));
                let bias = both.tensor(&[groups * made], dtype);
                let forward = [x.clone(), weight.clone(), bias];
                let terms = 4.0 * 4.0 * (seen.max(made) * 9) as f64;
                both.check(Op::Convolution, &forward, &attrs, layout, terms);
                both.check(Op::Convolution, &forward[..2], &attrs, layout, terms);
                both.check(Op::ConvolutionInput, &[y.clone(), weight], &attrs, layout, terms);
                both.check(Op::ConvolutionWeight, &[y, x], &attrs, layout, 16.0 * terms);
            }
        }
    }
}
