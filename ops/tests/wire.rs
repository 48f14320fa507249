//! The bytes of commands and completions on the wire: an encoder of any version must write exactly these.

use gt_ops::failure::{Failure, Fault, MemoryScope, WorkerEnd, WorkerName};
use gt_ops::instruction::{LossReduction, LossSpec, SliceSpec};
use gt_ops::placement::{ReduceOp, RequestedLayout, RequestedPlacement};
use gt_ops::wire::{ArenaRange, Command, Completion, Encoder, Reshard, SIGNALS_MAX, Slot, decode, slots_of};
use gt_ops::{
    Attrs, DType, Inputs, Instruction, Meta, Op, Operand, Placement, RANK_MAX, Scalar, Shape, TensorId, WindowSpec,
    Workers,
};

fn shape(dims: &[usize]) -> Shape {
    Shape::new(dims).expect("a shape")
}

fn tensors(ids: impl IntoIterator<Item = TensorId>) -> Vec<Operand> {
    ids.into_iter().map(Operand::Tensor).collect()
}

fn op(op: Op, inputs: Vec<Operand>, attrs: Attrs) -> Command {
    Command::Op(Instruction {
        op,
        out: 0x1122_3344_5566,
        inputs: Inputs::from_slice(&inputs),
        last_use: 0,
        attrs,
        tf32: false,
        replaces: None,
    })
}

fn exact_or_tf32(op: Op, inputs: Vec<Operand>, attrs: Attrs, last_use: u8) -> Command {
    Command::Op(Instruction {
        op,
        out: 7,
        inputs: Inputs::from_slice(&inputs),
        last_use,
        attrs,
        tf32: true,
        replaces: None,
    })
}

/// One of each command, and of each kind of attributes.
fn commands() -> Vec<(&'static str, Command)> {
    let range = ArenaRange { segment: 3, offset_bytes: 0x4000, len_bytes: 0x123 };
    let meta = Meta::new(shape(&[3, 0, 4]), DType::BF16);
    let two = Workers::first_of(2);
    let scalar = |scalar| Operand::Scalar(scalar);
    let slice = SliceSpec { start: [1, -1, 0, 0, 0, 0, 0, 9], step: [2, -3, 1, 1, 1, 1, 1, 1], sizes: shape(&[5, 6]) };
    let window = WindowSpec {
        rank: 2,
        groups: 4,
        input: [1, 32, 33],
        kernel: [1, 3, 5],
        stride: [1, 2, 1],
        dilation: [1, 1, 2],
        low: [0, 1, 2],
        high: [0, 3, 4],
    };
    let loss = LossSpec { reduction: LossReduction::Sum, ignore_index: -100, smoothing: 0.1 };
    let random = Attrs::Random { shape: shape(&[2, 3]), dtype: DType::F32, seed: 11, stream: 12, first: 13 };
    let permutation: [u8; RANK_MAX] = [2, 0, 1, 0, 0, 0, 0, 0];
    let numbers = vec![scalar(Scalar::Bool(true)), scalar(Scalar::Int(-2)), scalar(Scalar::Float(0.5))];
    vec![
        ("free", Command::Free { ids: [1, 2, 3, 4, 5, 6, 7] }),
        ("fetch", Command::Fetch { token: 9, id: 8, offset_bytes: 16, to: range }),
        ("allocate", Command::Allocate { out: 5, meta }),
        ("write", Command::Write { token: 10, id: 8, offset_bytes: 32, from: range }),
        ("sync", Command::Sync { token: 11 }),
        ("signal", Command::Signal { signal: SIGNALS_MAX }),
        (
            "define_signal any",
            Command::DefineSignal {
                signal: 1,
                requested: RequestedPlacement { workers: Workers::NONE, layout: RequestedLayout::Any },
                compile: None,
            },
        ),
        (
            "define_signal sharded",
            Command::DefineSignal {
                signal: 2,
                requested: RequestedPlacement { workers: two, layout: RequestedLayout::Sharded { axis: -2 } },
                compile: None,
            },
        ),
        (
            "define_signal replicated",
            Command::DefineSignal {
                signal: 3,
                requested: RequestedPlacement { workers: two, layout: RequestedLayout::Replicated },
                compile: None,
            },
        ),
        (
            "reshard partial to replicated",
            Command::Reshard(Reshard {
                out: 9,
                input: 8,
                meta,
                from: Placement::Partial { workers: two, reduce_op: ReduceOp::Max },
                to: Placement::on(63),
            }),
        ),
        (
            "reshard sharded to sharded",
            Command::Reshard(Reshard {
                out: 9,
                input: 8,
                meta: Meta::new(shape(&[12, 10]), DType::F32),
                from: Placement::Sharded { workers: Workers::first_of(3), axis: 1, granule: 1 },
                to: Placement::Sharded { workers: Workers::first_of(3), axis: 0, granule: 6 },
            }),
        ),
        ("op none", op(Op::Add, tensors([21, 22]), Attrs::None)),
        ("op dtype, numbers", op(Op::Where, numbers, Attrs::DType(DType::F64))),
        ("op none, tf32 and last use", exact_or_tf32(Op::Matmul, tensors([1, 2]), Attrs::None, 0b11)),
        ("op dtype", op(Op::Cast, tensors([21]), Attrs::DType(DType::F16))),
        ("op shape", op(Op::Reshape, tensors([21]), Attrs::Shape(shape(&[2, 3, 5])))),
        ("op shape, scalar", op(Op::Reshape, tensors([21]), Attrs::Shape(Shape::SCALAR))),
        ("op permutation", op(Op::Permute, tensors([21]), Attrs::Permutation(permutation))),
        ("op axis", op(Op::Cumsum, tensors([21]), Attrs::Axis(3))),
        ("op axes", op(Op::Sum, tensors([21]), Attrs::Axes { mask: 0b101, keepdim: true })),
        ("op slice", op(Op::Slice, tensors([21]), Attrs::Slice(Box::new(slice)))),
        ("op window", exact_or_tf32(Op::Convolution, tensors([21, 22, 23]), Attrs::Window(Box::new(window)), 0b100)),
        (
            "op create",
            op(Op::Full, vec![scalar(Scalar::Float(1.5))], Attrs::Create { shape: shape(&[4, 8]), dtype: DType::I32 }),
        ),
        ("op random", op(Op::Randint, vec![scalar(Scalar::Int(0)), scalar(Scalar::Int(6))], random)),
        (
            "op loss",
            op(
                Op::CrossEntropy,
                vec![Operand::Tensor(21), Operand::Tensor(22), scalar(Scalar::Float(1.0))],
                Attrs::Loss(loss),
            ),
        ),
        ("op attention", op(Op::Attention, tensors([21, 22, 23, 24]), Attrs::Attention { causal: true, scale: 0.125 })),
        (
            "op attention, fifth operand",
            op(Op::AttentionBackward, tensors([21, 22, 23, 24, 25]), Attrs::Attention { causal: false, scale: 0.125 }),
        ),
        ("op axis, 14 operands", op(Op::Cat, tensors(1..=14), Attrs::Axis(0))),
    ]
}

fn completions() -> Vec<(&'static str, Completion)> {
    let failed = |fault, op| Completion { token: 4, result: Err(Failure { fault, instruction: 12, op }) };
    let memory = |scope| Fault::OutOfMemory { requested: 1 << 40, held: 2, limit: 3, scope };
    vec![
        ("completion", Completion { token: 0xfedc_ba98, result: Ok(()) }),
        ("completion out of memory of the worker", failed(memory(MemoryScope::Worker), Some(Op::Add))),
        ("completion out of memory of the session", failed(memory(MemoryScope::Session), None)),
        ("completion out of memory of the user", failed(memory(MemoryScope::User), None)),
        (
            "completion index out of range",
            failed(Fault::IndexOutOfRange { index: -7, axis: 1, size: 3 }, Some(Op::Gather)),
        ),
        ("completion zero division", failed(Fault::ZeroDivision, Some(Op::FloorDivide))),
        (
            "completion worker lost",
            failed(Fault::WorkerLost { worker: WorkerName::new("cuda:15"), end: WorkerEnd::Signal(9) }, None),
        ),
        ("completion internal", failed(Fault::Internal, Some(Op::Exp))),
    ]
}

/// One line per slot: the name of its command or completion, and its eight words.
fn text<'a>(slots: impl IntoIterator<Item = (&'a str, Slot)>) -> String {
    let line = |(name, slot): (&str, Slot)| format!("{name}: {}\n", slot.map(|word| format!("{word:x}")).join(" "));
    slots.into_iter().map(line).collect()
}

#[test]
fn commands_and_completions_are_encoded_as_the_golden_slots() {
    let mut encoder = Encoder::new();
    let mut slots = Vec::new();
    for (name, command) in commands() {
        slots.extend(encoder.encode(&command).iter().map(|slot| (name, *slot)));
    }
    slots.extend(completions().iter().map(|(name, completion)| (*name, completion.encode())));
    assert_eq!(text(slots), include_str!("golden/wire.txt"));
}

#[test]
fn golden_slots_are_decoded_to_the_commands_and_completions() {
    let mut slots = include_str!("golden/wire.txt").lines().map(|line| {
        let (_, words) = line.split_once(": ").expect("a name and words");
        let words: Vec<u64> =
            words.split(' ').map(|word| u64::from_str_radix(word, 16).expect("hexadecimal")).collect();
        Slot::try_from(words).expect("eight words")
    });
    for (name, command) in commands() {
        let mut own = vec![slots.next().expect("a slot")];
        while own.len() < slots_of(&own[0]).expect("a header") {
            own.push(slots.next().expect("a slot"));
        }
        assert_eq!(decode(&own).expect("a command"), command, "{name}");
    }
    for (name, completion) in completions() {
        assert_eq!(Completion::decode(&slots.next().expect("a slot")), completion, "{name}");
    }
    assert_eq!(slots.next(), None);
}
