//! The reference interpreter: every op in a few plain lines, in f64 and i64.
//!
//! For an elementwise op, it evaluates the kernel in the op table with the platform's math functions ([`Std`]).

use super::host::{Data, Host, MultiIndex, broadcast_position, index_of, position_of, round, wrap};
use crate::error::ExecError;
use gt_ops::instruction::SliceSpec;
use gt_ops::integers::{Int, KernelBool};
use gt_ops::math::Std;
use gt_ops::row::{IntKernel, RealKernel, TestKernel, kernels};
use gt_ops::{Attrs, Class, DType, Meta, Op, RANK_MAX, Scalar, for_each_elementwise, philox};

/// An operand of [`interpret`].
#[derive(Clone, Debug)]
pub enum OracleOperand {
    /// A tensor.
    Tensor(Host),
    /// A scalar.
    Scalar(Scalar),
}

impl OracleOperand {
    /// The operand as a tensor.
    ///
    /// # Panics
    /// If it is a scalar.
    pub fn tensor(&self) -> &Host {
        match self {
            OracleOperand::Tensor(host) => host,
            OracleOperand::Scalar(_) => panic!("a number where a tensor belongs"),
        }
    }
    fn number(&self) -> Scalar {
        match self {
            OracleOperand::Scalar(scalar) => *scalar,
            OracleOperand::Tensor(_) => panic!("a tensor where a number belongs"),
        }
    }
    fn as_host(&self, dtype: DType) -> Host {
        match self {
            OracleOperand::Tensor(host) => host.clone(),
            OracleOperand::Scalar(scalar) => Host::scalar(*scalar, dtype),
        }
    }
}

/// The result of an op on floats; none if the op is not elementwise, or has no such kernel.
macro_rules! on_reals {
    (real $op:ident, $x:ident) => {
        Some(<kernels::$op as RealKernel<_>>::real(leading($x)).0)
    };
    (number $op:ident, $x:ident) => {
        on_reals!(real $op, $x)
    };
    (test $op:ident, $x:ident) => {
        Some(<kernels::$op as TestKernel<_>>::real(leading($x)) as u8 as f64)
    };
    ($other:ident $op:ident, $x:ident) => {
        None
    };
}

/// As `on_reals`, on integers.
macro_rules! on_ints {
    (int $op:ident, $x:ident) => {
        Some(<kernels::$op as IntKernel<_>>::int(leading($x)).to_i64())
    };
    (number $op:ident, $x:ident) => {
        on_ints!(int $op, $x)
    };
    (test $op:ident, $x:ident) => {
        Some(<kernels::$op as TestKernel<_>>::int(leading($x)) as i64)
    };
    ($other:ident $op:ident, $x:ident) => {
        None
    };
}

macro_rules! evaluators {
    ($($kind:ident $op:ident $operands:tt;)*) => {
        fn real(op: Op, x: [Std<f64>; 3]) -> Option<f64> {
            match op {
                $(Op::$op => on_reals!($kind $op, x),)*
            }
        }
        fn int<I: Int>(op: Op, x: [I; 3]) -> Option<i64> {
            match op {
                $(Op::$op => on_ints!($kind $op, x),)*
            }
        }
    };
}
for_each_elementwise!(evaluators);

/// The first N operands.
fn leading<T: Copy, const N: usize>(operands: [T; 3]) -> [T; N] {
    std::array::from_fn(|i| operands[i])
}

fn int_of(op: Op, dtype: DType, x: [i64; 3]) -> Option<i64> {
    match dtype {
        DType::Bool => int(op, x.map(KernelBool::from_i64)),
        DType::U8 => int(op, x.map(u8::from_i64)),
        DType::I8 => int(op, x.map(i8::from_i64)),
        DType::I16 => int(op, x.map(i16::from_i64)),
        DType::I32 => int(op, x.map(i32::from_i64)),
        _ => int(op, x),
    }
}

/// The result of `op`, of which `out` is the inferred shape and dtype.
///
/// # Errors
/// The error that a backend must report.
///
/// # Panics
/// If the interpreter does not implement the op.
pub fn interpret(op: Op, inputs: &[OracleOperand], attrs: &Attrs, out: &Meta) -> Result<Host, ExecError> {
    let row = op.row();
    let n = out.shape.numel();
    match (row.class, attrs) {
        (Class::Elementwise, _) => {
            let dtype =
                inputs.iter().find_map(|i| matches!(i, OracleOperand::Tensor(_)).then(|| i.tensor().meta.dtype));
            let dtype = dtype.expect("an elementwise op has a tensor operand");
            let of_numbers = if dtype.is_half() && row.wide_numbers { DType::F32 } else { dtype };
            let hosts: Vec<Host> = inputs.iter().map(|i| i.as_host(of_numbers)).collect();
            let at = |i: usize, o: usize| hosts.get(o).map(|h| broadcast_position(&h.meta.shape, &out.shape, i));
            if dtype.is_float() {
                let values: Vec<f64> = (0..n)
                    .map(|i| {
                        let x = std::array::from_fn(|o| Std(at(i, o).map_or(0.0, |p| hosts[o].float(p))));
                        real(op, x).unwrap_or_else(|| panic!("{} of {dtype}: no kernel", row.name))
                    })
                    .collect();
                return Ok(if out.dtype.is_float() {
                    Host::floats(*out, values)
                } else {
                    Host::ints(*out, values.into_iter().map(|x| x as i64))
                });
            }
            if row.divisor_nonzero && n > 0 && (0..hosts[1].len()).any(|i| hosts[1].int(i) == 0) {
                return Err(ExecError::ZeroDivision);
            }
            Ok(Host::ints(
                *out,
                (0..n).map(|i| {
                    let x = std::array::from_fn(|o| at(i, o).map_or(0, |p| hosts[o].int(p)));
                    int_of(op, dtype, x).unwrap_or_else(|| panic!("{} of {dtype}: no kernel", row.name))
                }),
            ))
        }
        (Class::Select, _) => {
            let condition = inputs[0].tensor();
            let choices = [inputs[1].as_host(out.dtype), inputs[2].as_host(out.dtype)];
            let pick = |i: usize| {
                let first = condition.int(broadcast_position(&condition.meta.shape, &out.shape, i)) != 0;
                let choice = &choices[if first { 0 } else { 1 }];
                (choice, broadcast_position(&choice.meta.shape, &out.shape, i))
            };
            Ok(if out.dtype.is_float() {
                Host::floats(*out, (0..n).map(&pick).map(|(c, p)| c.float(p)))
            } else {
                Host::ints(*out, (0..n).map(&pick).map(|(c, p)| c.int(p)))
            })
        }
        (Class::Cast, _) => {
            let from = inputs[0].tensor();
            Ok(match (from.meta.dtype.is_float(), out.dtype) {
                (_, to) if to.is_float() => Host::floats(*out, (0..n).map(|i| from.float(i))),
                (true, DType::Bool) => Host::ints(*out, (0..n).map(|i| (from.float(i) != 0.0) as i64)),
                _ => Host::ints(*out, (0..n).map(|i| from.int(i))),
            })
        }
        (Class::Reduction, Attrs::Axes { mask, .. } | Attrs::AxesInto { mask, .. }) => {
            Ok(reduce(op, inputs[0].tensor(), *mask, out))
        }
        (Class::ArgReduction, Attrs::Axes { mask, .. }) => {
            let from = inputs[0].tensor();
            let better = |x: f64, best: f64| if op == Op::Argmax { x > best } else { x < best };
            Ok(Host::ints(
                *out,
                groups(from, *mask, out).into_iter().map(|group| {
                    let mut best = 0;
                    for (i, &at) in group.iter().enumerate() {
                        let (x, top) = (from.float(at), from.float(group[best]));
                        if !top.is_nan() && (better(x, top) || x.is_nan()) {
                            best = i;
                        }
                    }
                    best as i64
                }),
            ))
        }
        (Class::Movement, _) => Ok(movement(op, inputs[0].tensor(), attrs, out)),
        (Class::SliceScatter, Attrs::Slice(spec)) => {
            let mut result = inputs[0].tensor().clone();
            let (n, written) = (spec.sizes.numel(), Meta::new(spec.sizes, out.dtype));
            let source = match &inputs[1] {
                OracleOperand::Scalar(number) if out.dtype.is_float() => {
                    Host::floats(written, vec![number.to_f64(); n])
                }
                OracleOperand::Scalar(number) => Host::ints(written, vec![number.to_i64(); n]),
                OracleOperand::Tensor(source) => source.clone(),
            };
            for i in 0..n {
                set(&mut result, position_of(&out.shape, &sliced(spec, index_of(&spec.sizes, i))), &source, i);
            }
            Ok(result)
        }
        (Class::Concatenation, Attrs::Axis(axis)) => {
            let axis = *axis as usize;
            let mut result = match out.dtype.is_float() {
                true => Host::floats(*out, vec![0.0; n]),
                false => Host::ints(*out, vec![0; n]),
            };
            let mut base = 0;
            for input in inputs {
                let source = input.tensor();
                for i in 0..source.len() {
                    let mut index = index_of(&source.meta.shape, i);
                    index[axis] += base;
                    set(&mut result, position_of(&out.shape, &index), source, i);
                }
                base += source.meta.shape.dims()[axis];
            }
            Ok(result)
        }
        (Class::Contraction, _) if op == Op::Affine => {
            Ok(affine(inputs[0].tensor(), inputs[1].tensor(), inputs[2].tensor(), out))
        }
        (Class::Contraction, _) => Ok(matmul(inputs[0].tensor(), inputs[1].tensor(), out)),
        (Class::Gather, Attrs::Axis(axis)) => {
            let (from, index) = (inputs[0].tensor(), inputs[1].tensor());
            let axis = *axis as usize;
            let places: Result<Vec<usize>, ExecError> =
                (0..n).map(|i| looked_up(op, from, axis, index.int(i), index_of(&out.shape, i))).collect();
            let places = places?;
            Ok(from.picked(*out, |i| places[i]))
        }
        (Class::Scatter, Attrs::Axis(axis)) => {
            let (index, source) = (inputs[1].tensor(), inputs[2].tensor());
            let mut result = inputs[0].tensor().clone();
            let join = op.without_wrapping().unwrap_or(op);
            for i in 0..index.len() {
                let place = index_of(&index.meta.shape, i);
                let from = position_of(&source.meta.shape, &place);
                let to = looked_up(op, &result, *axis as usize, index.int(i), place)?;
                match &mut result.data {
                    Data::Float(x) => {
                        let (old, new) = (x[to], source.float(from));
                        let joined = match join {
                            Op::Scatter => new,
                            Op::ScatterAdd => old + new,
                            Op::ScatterProd => old * new,
                            _ if old.is_nan() || new.is_nan() => f64::NAN,
                            Op::ScatterAmax => old.max(new),
                            Op::ScatterAmin => old.min(new),
                            _ => panic!("teach the interpreter to {}", op.name()),
                        };
                        x[to] = round(out.dtype, joined);
                    }
                    Data::Int(x) => {
                        let (old, new) = (x[to], source.int(from));
                        let joined = match join {
                            Op::Scatter => new,
                            Op::ScatterAdd => old.wrapping_add(new),
                            Op::ScatterProd => old.wrapping_mul(new),
                            Op::ScatterAmax => old.max(new),
                            Op::ScatterAmin => old.min(new),
                            _ => panic!("teach the interpreter to {}", op.name()),
                        };
                        x[to] = wrap(out.dtype, joined);
                    }
                }
            }
            Ok(result)
        }
        (Class::Scan, Attrs::Axis(axis)) => Ok(scan(op, inputs[0].tensor(), *axis, out)),
        (Class::Sort, Attrs::Axis(axis)) => {
            let from = inputs[0].tensor();
            let mut result = Host::ints(*out, vec![0; n]);
            let places = lines(&result, *axis);
            for (line, places) in lines(from, *axis).iter().zip(places) {
                let mut order: Vec<usize> = (0..line.len()).collect();
                order.sort_by(|a, b| {
                    let rising = ordering(from, line[*a], line[*b]);
                    if op == Op::Argsort { rising } else { rising.reverse() }
                });
                for (place, i) in places.into_iter().zip(order) {
                    set(&mut result, place, &Host::scalar(Scalar::Int(i as i64), DType::I64), 0);
                }
            }
            Ok(result)
        }
        (Class::Search, _) => {
            let (sorted, wanted) = (inputs[0].tensor(), inputs[1].tensor());
            let count = sorted.meta.shape.dims()[sorted.meta.shape.rank() - 1];
            let row = if sorted.meta.shape.rank() == 1 { n } else { out.shape.dims()[out.shape.rank() - 1] };
            Ok(Host::ints(
                *out,
                (0..n).map(|i| {
                    let (first, x) = (i / row * count, wanted.float(i));
                    let passed =
                        |y: f64| if op == Op::Searchsorted { y < x || x.is_nan() } else { y <= x || x.is_nan() };
                    (first..first + count).take_while(|at| passed(sorted.float(*at))).count() as i64
                }),
            ))
        }
        (Class::Positions, _) => {
            let mask = inputs[0].tensor();
            let found = (0..mask.len()).filter(|i| mask.int(*i) != 0);
            let index = |i| index_of(&mask.meta.shape, i).into_iter().take(mask.meta.shape.rank());
            let mut places: Vec<i64> = found.flat_map(index).map(|i| i as i64).collect();
            places.resize(n, 0);
            Ok(Host::ints(*out, places))
        }
        (Class::Creation, _) => Ok(match op {
            Op::Full => Host::scalar(inputs[0].number(), out.dtype).picked(*out, |_| 0),
            Op::Arange if out.dtype.is_float() => {
                let (start, step) = (inputs[0].number().to_f64(), inputs[1].number().to_f64());
                Host::floats(*out, (0..n).map(|i| start + i as f64 * step))
            }
            Op::Arange => {
                let (start, step) = (inputs[0].number().to_i64(), inputs[1].number().to_i64());
                Host::ints(*out, (0..n as i64).map(|i| start.wrapping_add(i.wrapping_mul(step))))
            }
            _ => panic!("teach the interpreter to {}", row.name),
        }),
        (Class::Random, Attrs::Random { seed, stream, first, .. }) => {
            Ok(random(op, inputs, [*seed, *stream, *first], out))
        }
        (Class::RowWise, _) if matches!(op, Op::Fourier | Op::InverseFourier) => {
            Ok(fourier(op, inputs[0].tensor(), out))
        }
        (Class::RowWise, _) if matches!(op, Op::RealFourier | Op::InverseRealFourier) => {
            Ok(real_fourier(op, inputs[0].tensor(), out))
        }
        (Class::RowWise, _) if matches!(op, Op::ComplexMul | Op::ComplexDiv) => {
            let (a, b) = (inputs[0].tensor(), inputs[1].tensor());
            Ok(Host::floats(
                *out,
                (0..n).map(|i| {
                    let pair = |operand: &Host| [0, 1].map(|part| operand.float(i / 2 * 2 + part));
                    let ([x, y], [u, v]) = (pair(a), pair(b));
                    let size = u * u + v * v;
                    match (op, i % 2) {
                        (Op::ComplexMul, 0) => x * u - y * v,
                        (Op::ComplexMul, _) => x * v + y * u,
                        (_, 0) => (x * u + y * v) / size,
                        _ => (y * u - x * v) / size,
                    }
                }),
            ))
        }
        (Class::RowWise, _) if op == Op::LstmCell => {
            let (gates, cell) = (inputs[0].tensor(), inputs[1].tensor());
            let size = out.shape.dims()[out.shape.rank() - 1] / 2;
            let open = |x: f64| 1.0 / (1.0 + (-x).exp());
            Ok(Host::floats(
                *out,
                (0..n).map(|i| {
                    let (row, at) = (i / (2 * size), i % size);
                    let sum = |index: usize| gates.float(row * 4 * size + index * size + at);
                    let after = open(sum(1)) * cell.float(row * size + at) + open(sum(0)) * sum(2).tanh();
                    if (i / size).is_multiple_of(2) { open(sum(3)) * after.tanh() } else { after }
                }),
            ))
        }
        (Class::RowWise, _) if op == Op::LstmCellBackward => {
            let [of_hidden, of_cell, gates, before, after] = [0, 1, 2, 3, 4].map(|i| inputs[i].tensor());
            let size = out.shape.dims()[out.shape.rank() - 1] / 5;
            let open = |x: f64| 1.0 / (1.0 + (-x).exp());
            Ok(Host::floats(
                *out,
                (0..n).map(|i| {
                    let (row, at) = (i / (5 * size), i % size);
                    let sum = |index: usize| gates.float(row * 4 * size + index * size + at);
                    let of = |operand: &Host| operand.float(row * size + at);
                    let [input, forget, output] = [sum(0), sum(1), sum(3)].map(open);
                    let (candidate, squashed) = (sum(2).tanh(), of(after).tanh());
                    let through = of(of_cell) + of(of_hidden) * output * (1.0 - squashed * squashed);
                    match i / size % 5 {
                        0 => through * candidate * input * (1.0 - input),
                        1 => through * of(before) * forget * (1.0 - forget),
                        2 => through * input * (1.0 - candidate * candidate),
                        3 => of(of_hidden) * squashed * output * (1.0 - output),
                        _ => through * forget,
                    }
                }),
            ))
        }
        (Class::RowWise, _) if matches!(op, Op::CtcForward | Op::CtcPosteriors) => {
            let [emitted, labels, sizes] = [0, 1, 2].map(|i| inputs[i].tensor());
            Ok(alignments(op, emitted, labels, sizes, out))
        }
        _ => panic!("{} with attributes {attrs:?}", row.name),
    }
}

/// The losses and forward variables of connectionist temporal classification, or the posterior probabilities of its
/// states, with probabilities rather than their logarithms.
fn alignments(op: Op, emitted: &Host, labels: &Host, sizes: &Host, out: &Meta) -> Host {
    let [time, samples, states] = *emitted.meta.shape.dims() else { panic!("log-probabilities have three axes") };
    let mut result = Host::floats(*out, vec![0.0; out.shape.numel()]);
    let mut set = |at: usize, x: f64| {
        if let Data::Float(all) = &mut result.data {
            all[at] = round(out.dtype, x);
        }
    };
    for sample in 0..samples {
        let size = |i: usize, most: usize| sizes.int(2 * sample + i).clamp(0, most as i64) as usize;
        let (steps, last) = (size(0, time), 2 * size(1, (states - 1) / 2));
        let chance = |t: usize, s: usize| emitted.float((t * samples + sample) * states + s).exp();
        let label = |s: usize| labels.int(sample * states + s);
        // The states from which a path may come to `s`.
        let sources = |s: usize| {
            let skips = s >= 3 && s % 2 == 1 && label(s) != label(s - 2);
            (s.saturating_sub(1 + usize::from(skips))..=s).collect::<Vec<_>>()
        };
        let (mut before, mut after) = (vec![vec![0.0; states]; time], vec![vec![0.0; states]; time]);
        for t in 0..steps {
            for s in 0..=last {
                before[t][s] = match t {
                    0 => f64::from(u8::from(s < 2)),
                    _ => sources(s).into_iter().map(|from| before[t - 1][from]).sum::<f64>(),
                } * chance(t, s);
            }
        }
        for t in (0..steps).rev() {
            for s in 0..=last {
                after[t][s] = match t + 1 == steps {
                    true => f64::from(u8::from(s + 1 >= last)),
                    false => (s..=last.min(s + 2))
                        .filter(|to| sources(*to).contains(&s))
                        .map(|to| after[t + 1][to] * chance(t + 1, to))
                        .sum::<f64>(),
                };
            }
        }
        let total = match steps {
            0 => f64::from(u8::from(last == 0)),
            _ => (last.saturating_sub(1)..=last).map(|s| before[steps - 1][s]).sum::<f64>(),
        };
        if op == Op::CtcForward {
            set(sample * (1 + time * states), -total.ln());
        }
        for t in 0..time {
            for s in 0..states {
                match op {
                    Op::CtcForward => set(sample * (1 + time * states) + 1 + t * states + s, before[t][s].ln()),
                    _ if total == 0.0 => {}
                    _ => set((t * samples + sample) * states + s, before[t][s] * after[t][s] / total),
                }
            }
        }
    }
    result
}

/// The discrete Fourier transforms of rows of pairs, by their definition.
fn fourier(op: Op, from: &Host, out: &Meta) -> Host {
    let columns = out.shape.dims().last().copied().unwrap_or(0);
    let length = columns / 2;
    let turn = std::f64::consts::TAU / length as f64 * if op == Op::Fourier { -1.0 } else { 1.0 };
    let values = (0..from.len()).map(|i| {
        let (row, k) = (i / columns * columns, i % columns / 2);
        let terms = (0..length).map(|j| {
            let (re, im) = (from.float(row + 2 * j), from.float(row + 2 * j + 1));
            let (sine, cosine) = (turn * (j * k % length) as f64).sin_cos();
            if i % 2 == 0 { re * cosine - im * sine } else { re * sine + im * cosine }
        });
        terms.sum::<f64>()
    });
    Host::floats(*out, values)
}

/// The discrete Fourier transforms of rows of real numbers, and back, by their definition.
fn real_fourier(op: Op, from: &Host, out: &Meta) -> Host {
    let [columns, found] = [&from.meta, out].map(|meta| meta.shape.dims().last().copied().unwrap_or(0));
    let length = columns.min(found);
    let angle = |j: usize, k: usize| std::f64::consts::TAU * (j * k % length) as f64 / length as f64;
    let values = (0..out.shape.numel()).map(|i| {
        let (row, at) = (i / found * columns, i % found);
        if op == Op::RealFourier {
            let term =
                |j| from.float(row + j) * if at % 2 == 0 { angle(j, at / 2).cos() } else { -angle(j, at / 2).sin() };
            (0..length).map(term).sum::<f64>()
        } else {
            let half = length / 2;
            let part =
                |k: usize, turn: f64| from.float(row + 2 * k) * turn.cos() - from.float(row + 2 * k + 1) * turn.sin();
            let between: f64 = (1..half).map(|k| 2.0 * part(k, angle(at, k))).sum();
            from.float(row) + between + from.float(row + length) * angle(at, half).cos()
        }
    });
    Host::floats(*out, values)
}

/// The positions of the elements of each line along the axis.
fn lines(of: &Host, axis: u8) -> Vec<Vec<usize>> {
    let shape = of.meta.shape;
    if of.is_empty() {
        return Vec::new();
    }
    let reduced = Meta::new(shape.with_dim(axis as usize, 1), of.meta.dtype);
    groups(of, 1 << axis, &reduced)
}

/// The order of two elements; NaN is the largest.
fn ordering(of: &Host, a: usize, b: usize) -> std::cmp::Ordering {
    if !of.meta.dtype.is_float() {
        return of.int(a).cmp(&of.int(b));
    }
    let (a, b) = (of.float(a), of.float(b));
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

fn scan(op: Op, from: &Host, axis: u8, out: &Meta) -> Host {
    let mut result = if out.dtype.is_float() {
        Host::floats(*out, vec![0.0; from.len()])
    } else {
        Host::ints(*out, vec![0; from.len()])
    };
    for line in lines(from, axis) {
        let mut best = 0;
        for (i, at) in line.iter().enumerate() {
            let seen = &line[..=i];
            match op {
                Op::Cumargmax | Op::Cumargmin => {
                    let order = ordering(from, *at, line[best]);
                    // A NaN wins in both directions; among equals the last one counts.
                    let is_nan = |at: usize| from.meta.dtype.is_float() && from.float(at).is_nan();
                    let better = match op {
                        _ if is_nan(*at) => true,
                        _ if is_nan(line[best]) => false,
                        Op::Cumargmax => order.is_ge(),
                        _ => order.is_le(),
                    };
                    best = if better { i } else { best };
                    if let Data::Int(x) = &mut result.data {
                        x[*at] = best as i64;
                    }
                }
                _ => match &mut result.data {
                    Data::Float(x) => {
                        let mut terms = seen.iter().map(|at| from.float(*at));
                        x[*at] = match op {
                            Op::Cumsum => terms.sum(),
                            Op::Cumprod => terms.product(),
                            _ => {
                                let most = terms.clone().fold(f64::NEG_INFINITY, f64::max);
                                let finite = if most.is_infinite() { 0.0 } else { most };
                                finite + terms.by_ref().map(|x| (x - finite).exp()).sum::<f64>().ln()
                            }
                        };
                        x[*at] = round(out.dtype, x[*at]);
                    }
                    Data::Int(x) => {
                        let terms = seen.iter().map(|at| from.int(*at));
                        let total = if op == Op::Cumsum {
                            terms.fold(0, i64::wrapping_add)
                        } else {
                            terms.fold(1, i64::wrapping_mul)
                        };
                        x[*at] = wrap(out.dtype, total);
                    }
                },
            }
        }
    }
    result
}

fn set(to: &mut Host, at: usize, from: &Host, i: usize) {
    match &mut to.data {
        Data::Float(x) => x[at] = from.float(i),
        Data::Int(x) => x[at] = from.int(i),
    }
}

/// For each result, the positions of the elements it is reduced from, in row-major order.
fn groups(from: &Host, mask: u8, out: &Meta) -> Vec<Vec<usize>> {
    let count = out.shape.numel();
    let mut groups: Vec<Vec<usize>> = (0..count).map(|_| Vec::with_capacity(from.len() / count)).collect();
    let kept: Vec<usize> = (0..from.meta.shape.rank()).filter(|axis| mask >> axis & 1 == 0).collect();
    let dims = from.meta.shape.dims();
    let mut index = vec![0; dims.len()];
    for at in 0..from.len() {
        let group = kept.iter().fold(0, |group, axis| group * from.meta.shape.dims()[*axis] + index[*axis]);
        groups[group].push(at);
        for axis in (0..dims.len()).rev() {
            index[axis] += 1;
            if index[axis] < dims[axis] {
                break;
            }
            index[axis] = 0;
        }
    }
    groups
}

fn reduce(op: Op, from: &Host, mask: u8, out: &Meta) -> Host {
    let groups = groups(from, mask, out);
    if out.dtype == DType::Bool && matches!(op, Op::Any | Op::All) {
        let truth = |at: &usize| from.float(*at) != 0.0;
        return Host::ints(
            *out,
            groups.iter().map(|g| if op == Op::Any { g.iter().any(truth) } else { g.iter().all(truth) } as i64),
        );
    }
    if !out.dtype.is_float() {
        return Host::ints(
            *out,
            groups.iter().map(|g| {
                let mut x = g.iter().map(|at| from.int(*at));
                match op {
                    Op::Sum => x.fold(0, i64::wrapping_add),
                    Op::Prod => x.fold(1, i64::wrapping_mul),
                    Op::Amax => x.max().unwrap_or(0),
                    Op::Amin => x.min().unwrap_or(0),
                    _ => {
                        let _ = x.next();
                        panic!("teach the interpreter to {}", op.name())
                    }
                }
            }),
        );
    }
    Host::floats(
        *out,
        groups.iter().map(|g| {
            let x = g.iter().map(|at| from.float(*at));
            let extreme = |better: fn(f64, f64) -> bool| {
                let worst = if better(1.0, 0.0) { f64::NEG_INFINITY } else { f64::INFINITY };
                x.clone().fold(worst, |best, x| {
                    if x.is_nan() || best.is_nan() {
                        f64::NAN
                    } else if better(x, best) {
                        x
                    } else {
                        best
                    }
                })
            };
            match op {
                Op::Sum => x.sum(),
                Op::Mean => x.clone().sum::<f64>() / g.len() as f64,
                Op::Norm => x.map(|x| x * x).sum::<f64>().sqrt(),
                Op::Prod => x.product(),
                Op::Amax => extreme(|a, b| a > b),
                Op::Amin => extreme(|a, b| a < b),
                _ => panic!("teach the interpreter to {}", op.name()),
            }
        }),
    )
}

/// The multi-index in a tensor of the element of a slice at `index`.
fn sliced(spec: &SliceSpec, mut index: MultiIndex) -> MultiIndex {
    for (axis, at) in index.iter_mut().enumerate().take(spec.sizes.rank()) {
        *at = (spec.start[axis] + spec.step[axis] * *at as i64) as usize;
    }
    index
}

fn movement(op: Op, from: &Host, attrs: &Attrs, out: &Meta) -> Host {
    let shape = from.meta.shape;
    match (op, attrs) {
        (Op::Reshape, _) => Host { meta: *out, data: from.data.clone() },
        (Op::Bitcast, _) => Host::from_bytes(*out, &from.to_bytes()),
        (Op::Expand, _) => from.picked(*out, |i| broadcast_position(&shape, &out.shape, i)),
        (Op::Permute, Attrs::Permutation(p)) => from.picked(*out, |i| {
            let (mut index, permuted) = ([0; RANK_MAX], index_of(&out.shape, i));
            for axis in 0..shape.rank() {
                index[p[axis] as usize] = permuted[axis];
            }
            position_of(&shape, &index)
        }),
        (Op::Slice, Attrs::Slice(spec)) => {
            from.picked(*out, |i| position_of(&shape, &sliced(spec, index_of(&out.shape, i))))
        }
        _ => panic!("teach the interpreter to {}", op.name()),
    }
}

fn matmul(a: &Host, b: &Host, out: &Meta) -> Host {
    let rank = out.shape.rank();
    let k = a.meta.shape.dims()[a.meta.shape.rank() - 1];
    let columns = b.meta.shape.dims()[b.meta.shape.rank() - 1];
    // The positions of both operands for each term of result `i`.
    let places = |i: usize| {
        let index = index_of(&out.shape, i);
        let place = |of: &Host, row: usize, column: usize| {
            let own = of.meta.shape.rank() - 2;
            let mut at = [0; RANK_MAX];
            for (axis, size) in of.meta.shape.dims()[..own].iter().enumerate() {
                at[axis] = if *size == 1 { 0 } else { index[rank - 2 - own + axis] };
            }
            at[own..own + 2].copy_from_slice(&[row, column]);
            position_of(&of.meta.shape, &at)
        };
        let (first_a, first_b) = (place(a, index[rank - 2], 0), place(b, 0, index[rank - 1]));
        (0..k).map(move |d| (first_a + d, first_b + d * columns))
    };
    let all = 0..out.shape.numel();
    if out.dtype.is_float() {
        return Host::floats(*out, all.map(|i| places(i).map(|(p, q)| a.float(p) * b.float(q)).sum()));
    }
    let sum = |i| places(i).map(|(p, q)| a.int(p).wrapping_mul(b.int(q))).fold(0, i64::wrapping_add);
    Host::ints(*out, all.map(sum))
}

/// The rows of `input` times those of `weight`, plus `bias`.
fn affine(input: &Host, weight: &Host, bias: &Host, out: &Meta) -> Host {
    let (n, k) = (weight.meta.shape.dims()[0], weight.meta.shape.dims()[1]);
    let element = |i: usize| {
        let (row, column) = (i / n, i % n);
        let terms = (0..k).map(|d| input.float(row * k + d) * weight.float(column * k + d));
        terms.sum::<f64>() + bias.float(column)
    };
    Host::floats(*out, (0..out.shape.numel()).map(element))
}

/// The position of `index` with its entry along the axis replaced by `at`.
fn looked_up(op: Op, of: &Host, axis: usize, at: i64, mut index: MultiIndex) -> Result<usize, ExecError> {
    let size = of.meta.shape.dims()[axis];
    let wraps = at < 0 && op.without_wrapping().is_some();
    let place = if wraps { at + size as i64 } else { at };
    index[axis] = usize::try_from(place).ok().filter(|i| *i < size).ok_or(ExecError::IndexOutOfRange {
        index: at,
        axis,
        size,
    })?;
    Ok(position_of(&of.meta.shape, &index))
}

fn random(op: Op, inputs: &[OracleOperand], [seed, stream, first]: [u64; 3], out: &Meta) -> Host {
    let all = first..first + out.shape.numel() as u64;
    let word = |i: u64| philox::block(seed, stream, i / 4)[i as usize % 4];
    let pair = |i: u64| (word(2 * i), word(2 * i + 1));
    match op {
        Op::Rand => Host::floats(
            *out,
            all.map(|i| match out.dtype {
                DType::F64 => philox::unit_f64(pair(i).0, pair(i).1),
                DType::F16 => (word(i) >> 21) as f64 / 2f64.powi(11),
                DType::BF16 => (word(i) >> 24) as f64 / 2f64.powi(8),
                _ => philox::unit_f32(word(i)) as f64,
            }),
        ),
        Op::Randn => Host::floats(
            *out,
            all.map(|i| {
                let (u, v) = if out.dtype == DType::F64 {
                    let (a, b) = (pair(i / 2 * 2), pair(i / 2 * 2 + 1));
                    (1.0 - philox::unit_f64(a.0, a.1), philox::unit_f64(b.0, b.1))
                } else {
                    let (u, v) = pair(i / 2);
                    (((u >> 8) + 1) as f64 / 2f64.powi(24), philox::unit_f32(v) as f64)
                };
                let (r, t) = ((-2.0 * u.ln()).sqrt(), std::f64::consts::TAU * v);
                if i % 2 == 0 { r * t.cos() } else { r * t.sin() }
            }),
        ),
        Op::Randint => {
            let (low, high) = (inputs[0].number().to_i64(), inputs[1].number().to_i64());
            let values = all.map(|i| {
                let (least, most) = pair(i);
                let word = (most as u128) << 32 | least as u128;
                low.wrapping_add(((word * high.wrapping_sub(low) as u64 as u128) >> 64) as i64)
            });
            if out.dtype.is_float() { Host::floats(*out, values.map(|x| x as f64)) } else { Host::ints(*out, values) }
        }
        _ => panic!("teach the interpreter to {}", op.name()),
    }
}
