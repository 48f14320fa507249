//! A program computes the same bits whether its hot paths are planned or not, whatever changes on the way.

use crate::support::{Client, Gtd, eventually};
use gt_ops::instruction::SliceSpec;
use gt_ops::placement::{RequestedLayout, RequestedPlacement};
use gt_ops::wire::Command;
use gt_ops::{Attrs, DType, Inputs, Instruction, Meta, Op, Operand, Scalar, Shape, TensorId, Workers};
use gt_protocol::SequenceCounts;
use gt_shm::SessionState;

/// A daemon that plans nothing, one that plans what has come twice, and one that plans at once.
const POLICIES: [&[(&str, &str)]; 3] = [&[("GT_AUTO_COMPILE", "0")], &[], &[("GT_COMPILE", "1")]];

fn number(value: f64) -> Operand {
    Operand::Scalar(Scalar::Float(value))
}

fn shape(dims: &[usize]) -> Shape {
    Shape::new(dims).unwrap()
}

fn counts(client: &Client) -> SequenceCounts {
    gt_protocol::ask_traffic(&client.socket).unwrap().1
}

fn unary(client: &mut Client, op: Op, operand: TensorId) -> TensorId {
    client.op(op, &[Operand::Tensor(operand)], Attrs::None)
}

fn with_number(client: &mut Client, op: Op, operand: TensorId, value: f64) -> TensorId {
    client.op(op, &[Operand::Tensor(operand), number(value)], Attrs::None)
}

/// The elements of a tensor, as bits.
fn bits(client: &mut Client, id: TensorId, len: usize) -> Vec<u32> {
    client.fetch_f32(id, len).unwrap().into_iter().map(f32::to_bits).collect()
}

/// One step of training of a linear layer with Adam's moments, of which the step size differs each time. The old
/// parameter and moments are freed, or used up by the instruction that replaces them.
fn step(client: &mut Client, [w, m]: [TensorId; 2], x: TensorId, step: usize) -> [TensorId; 2] {
    let product = client.binary(Op::Matmul, x, w);
    let hidden = unary(client, Op::Tanh, product);
    let transposed = client.op(Op::Permute, &[Operand::Tensor(x)], Attrs::Permutation([1, 0, 0, 0, 0, 0, 0, 0]));
    let gradient = client.binary(Op::Matmul, transposed, hidden);
    let decayed = with_number(client, Op::Mul, m, 0.9);
    let share = with_number(client, Op::Mul, gradient, 0.1);
    let moment = client.binary(Op::Add, decayed, share);
    let rate = 0.01 / (1.0 - 0.9f64.powi(step as i32 + 1));
    let update = with_number(client, Op::Mul, moment, rate);
    let out = client.id();
    let inputs = Inputs::from_slice(&[Operand::Tensor(w), Operand::Tensor(update)]);
    let used_up = if step.is_multiple_of(2) { 3 } else { 0 };
    let subtract =
        Instruction { op: Op::Sub, out, inputs, last_use: used_up, attrs: Attrs::None, tf32: false, replaces: None };
    client.send(&Command::Op(subtract));
    if used_up == 0 {
        client.free(&[update, w]);
    }
    // In another order each time.
    let mut freed = [product, hidden, transposed, gradient, decayed, share, m];
    freed.rotate_left(step % 7);
    client.free(&freed);
    [out, moment]
}

fn parameters(client: &mut Client, rows: usize) -> [TensorId; 3] {
    let create = |dims: &[usize]| Attrs::Create { shape: shape(dims), dtype: DType::F32 };
    let w = client.op(Op::Arange, &[number(-0.5), number(0.01)], create(&[rows * 8]));
    let w = client.op(Op::Reshape, &[Operand::Tensor(w)], Attrs::Shape(shape(&[rows, 8])));
    let m = client.full(&[rows, 8], 0.0);
    let x = client.op(Op::Arange, &[number(0.0), number(0.003)], create(&[16 * rows]));
    let x = client.op(Op::Reshape, &[Operand::Tensor(x)], Attrs::Shape(shape(&[16, rows])));
    [w, m, x]
}

/// Trains without ever fetching until the end.
fn training(client: &mut Client) -> Vec<u32> {
    let [mut w, mut m, x] = parameters(client, 32);
    for n in 0..60 {
        [w, m] = step(client, [w, m], x, n);
    }
    bits(client, w, 32 * 8)
}

/// The batch becomes smaller in the midst of an epoch, and the rows of the batch move on each time.
fn changing_shapes(client: &mut Client) -> Vec<u32> {
    let [mut w, mut m, x] = parameters(client, 32);
    for n in 0..60 {
        let size = if n % 10 == 9 { 5 } else { 8 };
        let mut spec = SliceSpec::corner(shape(&[size, 32]));
        spec.start[0] = (n % 8) as i64;
        let batch = client.op(Op::Slice, &[Operand::Tensor(x)], Attrs::Slice(Box::new(spec)));
        [w, m] = step(client, [w, m], batch, n);
        client.free(&[batch]);
    }
    bits(client, w, 32 * 8)
}

/// The next instructions depend on a value that was fetched, and on whether it is the fifth step.
fn control_flow(client: &mut Client) -> Vec<u32> {
    let [mut w, mut m, x] = parameters(client, 32);
    let mut fetched = Vec::new();
    for n in 0..60 {
        [w, m] = step(client, [w, m], x, n);
        let all = Attrs::Axes { mask: 3, keepdim: false };
        let sum = client.op(Op::Sum, &[Operand::Tensor(w)], all);
        let value = bits(client, sum, 1)[0];
        fetched.push(value);
        if n % 5 == 4 || value & 1 == 1 {
            for _ in 0..3 {
                let product = client.binary(Op::Matmul, x, w);
                let largest = client.op(Op::Amax, &[Operand::Tensor(product)], Attrs::Axes { mask: 3, keepdim: true });
                fetched.extend(bits(client, largest, 1));
                client.free(&[product, largest]);
            }
        }
        client.free(&[sum]);
    }
    fetched
}

/// Instructions of the same operations and sizes on other operands.
fn changing_operands(client: &mut Client) -> Vec<u32> {
    let [w, m, _] = parameters(client, 32);
    let mut sum = client.full(&[32, 8], 1.0);
    for n in 0..120 {
        let [left, right] = if n % 40 < 20 { [w, m] } else { [m, w] };
        let first = client.binary(Op::Sub, left, right);
        let second = client.binary(Op::Mul, first, w);
        let third = if n < 60 { client.binary(Op::Add, second, sum) } else { client.binary(Op::Add, sum, second) };
        let fourth = client.binary(Op::Maximum, third, if n % 30 == 29 { first } else { second });
        client.free(&[first, second, third, sum]);
        sum = fourth;
    }
    bits(client, sum, 32 * 8)
}

/// Some instructions fail, and poison what depends on them.
fn failures(client: &mut Client) -> Vec<u32> {
    let create = Attrs::Create { shape: shape(&[4]), dtype: DType::I64 };
    let source =
        client.op(Op::Arange, &[number(0.0), number(1.0)], Attrs::Create { shape: shape(&[4]), dtype: DType::F32 });
    let mut seen = Vec::new();
    for n in 0..80 {
        // The index is out of range from time to time.
        let largest = if n % 16 == 15 { 9 } else { 3 };
        let index = client.op(Op::Full, &[Operand::Scalar(Scalar::Int(largest))], create.clone());
        let taken = client.op(Op::Gather, &[Operand::Tensor(source), Operand::Tensor(index)], Attrs::Axis(0));
        let doubled = with_number(client, Op::Mul, taken, 2.0);
        let sum = client.binary(Op::Add, doubled, source);
        match client.fetch_f32(sum, 4) {
            Ok(values) => seen.extend(values.into_iter().map(f32::to_bits)),
            Err(failure) => seen.push(failure.op.map_or(0, |op| op as u32)),
        }
        client.free(&[index, taken, doubled, sum]);
    }
    seen
}

/// Random numbers, whose position differs each time, and uploads.
fn random_and_uploads(client: &mut Client) -> Vec<u32> {
    let mut sum = client.full(&[64], 0.0);
    for n in 0..50u64 {
        let attrs = Attrs::Random { shape: shape(&[64]), dtype: DType::F32, seed: 7, stream: n, first: 0 };
        let noise = client.op(Op::Rand, &[], attrs);
        let bytes: Vec<u8> = (0..64u32).flat_map(|i| (i as f32 * n as f32).to_le_bytes()).collect();
        let batch = client.upload(Meta::new(shape(&[64]), DType::F32), &bytes);
        let noisy = client.binary(Op::Add, noise, batch);
        let next = client.binary(Op::Add, sum, noisy);
        client.free(&[noise, batch, noisy, sum]);
        sum = next;
    }
    bits(client, sum, 64)
}

type TestedProgram = (&'static str, fn(&mut Client) -> Vec<u32>);

const PROGRAMS: [TestedProgram; 6] = [
    ("training", training),
    ("changing shapes", changing_shapes),
    ("control flow", control_flow),
    ("changing operands", changing_operands),
    ("failures", failures),
    ("random numbers and uploads", random_and_uploads),
];

#[test]
fn results_have_the_same_bits_with_and_without_plans() {
    let [off, repeated, at_once] = POLICIES.map(|policy| Gtd::start_with(&[], policy));
    for (name, program) in PROGRAMS {
        let expected = program(&mut off.client());
        for gtd in [&repeated, &at_once] {
            let mut client = gtd.client();
            assert!(program(&mut client) == expected, "{name}");
            let SequenceCounts { hits, misses, hot_instructions, .. } = counts(&client);
            assert!(hits > 0, "{name}: nothing was planned");
            assert_eq!(hits + misses, hot_instructions, "{name}");
        }
    }
}

#[test]
fn several_workers_compute_the_same_bits_with_and_without_plans() {
    let [off, repeated, at_once] = POLICIES.map(|policy| Gtd::start_with(&["--workers", "cpu:4"], policy));
    let under_signal = |gtd: &Gtd, program: fn(&mut Client) -> Vec<u32>| {
        let mut client = gtd.client();
        let requested = RequestedPlacement { workers: Workers::NONE, layout: RequestedLayout::Replicated };
        client.send(&Command::DefineSignal { signal: 1, requested, compile: None });
        client.send(&Command::Signal { signal: 1 });
        (program(&mut client), counts(&client).hits)
    };
    for (name, program) in PROGRAMS {
        let expected = program(&mut off.client());
        for gtd in [&repeated, &at_once] {
            assert!(program(&mut gtd.client()) == expected, "{name}");
        }
        let (expected, _) = under_signal(&off, program);
        let (found, hits) = under_signal(&repeated, program);
        assert!(found == expected && hits > 0, "{name} under a signal");
    }
}

#[test]
fn counts_add_up_and_the_first_planned_repetition_is_the_fourth() {
    let gtd = Gtd::start(&[]);
    let mut client = gtd.client();
    let [mut w, mut m, x] = parameters(&mut client, 32);
    const STEPS: usize = 40;
    for n in 0..STEPS {
        // Every other step uses its operands up: two steps are one sequence.
        [w, m] = step(&mut client, [w, m], x, n);
    }
    client.sync();
    let SequenceCounts { unique_sequences, hot_sequences, hot_instructions, cold_instructions, hits, misses } =
        counts(&client);
    assert_eq!((unique_sequences, hot_sequences), (1, 1));
    assert_eq!(hot_instructions + cold_instructions, 5 + 9 * STEPS as u64);
    assert_eq!(hits + misses, hot_instructions);
    assert!(hits > 30 * 9, "{hits} hits, {misses} misses");
}

#[test]
fn the_tape_tells_when_a_hot_path_begins_and_ends() {
    let gtd = Gtd::start_with(&[], &[("GT_INSTRUCTION_LOG", "ops.log")]);
    let mut client = gtd.client();
    let [mut w, mut m, x] = parameters(&mut client, 32);
    for n in 0..20 {
        [w, m] = step(&mut client, [w, m], x, n);
    }
    // This is no part of the sequence.
    let root = unary(&mut client, Op::Sqrt, w);
    client.fetch_f32(root, 32 * 8).unwrap();
    let log = || std::fs::read_to_string(gtd.folder.0.join("ops.log")).unwrap_or_default();
    eventually("the end is logged", || log().contains("op=fetch"));
    let log = log();
    let start = log.lines().find(|line| line.contains("HOT_START")).expect("a start");
    assert!(start.contains(&format!("CLIENT session_{} ", client.session())), "{start}");
    assert!(start.contains(" sequence=1 length=9 ") || start.contains(" sequence=1 length=18 "), "{start}");
    let end = log.lines().find(|line| line.contains("HOT_END")).expect("an end");
    assert!(end.contains(" sequence=1 followed="), "{end}");
}

#[test]
fn a_signal_forbids_plans_or_asks_for_them() {
    let requested = RequestedPlacement { workers: Workers::NONE, layout: RequestedLayout::Any };
    for (policy, compile, planned) in [
        (POLICIES[1], Some(false), false),
        (POLICIES[1], None, true),
        (POLICIES[0], None, false),
        (POLICIES[0], Some(true), true),
    ] {
        let gtd = Gtd::start_with(&[], policy);
        let mut client = gtd.client();
        client.send(&Command::DefineSignal { signal: 1, requested, compile });
        client.send(&Command::Signal { signal: 1 });
        training(&mut client);
        assert_eq!(counts(&client).hits > 0, planned, "{policy:?} {compile:?}");
    }
}

#[test]
fn what_a_client_must_not_send_ends_its_session_on_a_hot_path_as_well() {
    let gtd = Gtd::start(&[]);
    let mut bystander = gtd.client();
    let kept = bystander.full(&[3], 3.0);
    type Lie = fn(&mut Client, TensorId);
    let lies: [(&str, Lie); 4] = [
        ("an operand that is none", |client, _| {
            with_number(client, Op::Mul, u64::MAX, 2.0);
        }),
        ("an operand that was freed", |client, y| {
            client.free(&[y]);
            with_number(client, Op::Mul, y, 2.0);
        }),
        ("an id that was used", |client, y| {
            client.next_id -= 1;
            with_number(client, Op::Mul, y, 2.0);
        }),
        ("an id that is a modifier's", |client, y| {
            client.next_id = 1 << 63;
            with_number(client, Op::Mul, y, 2.0);
        }),
    ];
    for (name, lie) in lies {
        let mut client = gtd.client();
        let mut y = client.full(&[3], 1.0);
        for _ in 0..100 {
            let next = with_number(&mut client, Op::Mul, y, 1.5);
            client.free(&[y]);
            y = next;
        }
        client.sync();
        assert!(counts(&client).hits > 0, "{name}");
        lie(&mut client, y);
        client.wait_closed();
        assert_eq!(client.port.state(), SessionState::Closed);
    }
    assert_eq!(bystander.fetch_f32(kept, 3).unwrap(), [3.0; 3]);
}
