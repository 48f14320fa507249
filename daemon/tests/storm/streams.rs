//! Streams of commands that a client could send, and mutations of them: fields, order, ids, shapes and flags change in
//! place, so that a mutant is wrong in one place and right everywhere else.

use gt_ops::infer::{InputMeta, infer};
use gt_ops::instruction::{LossReduction, LossSpec, SliceSpec};
use gt_ops::placement::{Placement, RequestedLayout, RequestedPlacement};
use gt_ops::row::{AttrKind, ROWS};
use gt_ops::wire::{ArenaRange, Command, Encoder, FREE_IDS_MAX, Reshard, Slot};
use gt_ops::{Attrs, DType, Inputs, Instruction, Meta, Op, Operand, Scalar, Shape, TensorId, WindowSpec, Workers};

/// The source of choices: a fuzzer's bytes, then pseudorandom numbers (SplitMix64, Steele et al. 2014).
pub struct Dice<'a> {
    bytes: &'a [u8],
    state: u64,
}

impl<'a> Dice<'a> {
    pub fn of(bytes: &'a [u8]) -> Dice<'a> {
        Dice { bytes, state: 0 }
    }

    pub fn seeded(seed: u64) -> Dice<'static> {
        Dice { bytes: &[], state: seed }
    }

    pub fn word(&mut self) -> u64 {
        if let Some((word, rest)) = self.bytes.split_first_chunk() {
            self.bytes = rest;
            return u64::from_le_bytes(*word);
        }
        self.bytes = &[];
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number below `bound`. A small one takes a single byte, so that a fuzzer's mutation changes one choice.
    pub fn below(&mut self, bound: u64) -> u64 {
        match self.bytes.split_first() {
            Some((byte, rest)) if bound <= 256 => {
                self.bytes = rest;
                u64::from(*byte) % bound
            }
            _ => self.word() % bound,
        }
    }

    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    pub fn pick<T: Copy>(&mut self, among: &[T]) -> T {
        among[self.index(among.len())]
    }

    pub fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }
}

/// The largest tensor of a valid stream, elements.
const NUMEL_MAX: usize = 4096;
const SHAPES: [&[usize]; 9] = [&[], &[1], &[3], &[2, 3], &[3, 2], &[3, 3], &[0, 3], &[1, 2, 3], &[2, 1, 3, 1]];
/// Words at the edges of ranges, where decoders may go wrong.
const ODD: [u64; 12] =
    [0, 1, 2, 7, 0xff, 0xffff, u32::MAX as u64, 1 << 48, (1 << 63) - 1, 1 << 63, u64::MAX - 1, u64::MAX];

fn shape(dice: &mut Dice<'_>) -> Shape {
    Shape::new(dice.pick(&SHAPES)).expect("small")
}

fn dtype(dice: &mut Dice<'_>) -> DType {
    DType::from_code(dice.below(10) as u8).expect("there are ten")
}

fn attrs(kind: AttrKind, first: &Meta, dice: &mut Dice<'_>) -> Attrs {
    let own = first.shape;
    let axis = |dice: &mut Dice<'_>| dice.below(own.rank().max(1) as u64) as u8;
    match kind {
        AttrKind::None => Attrs::None,
        AttrKind::DType => Attrs::DType(dtype(dice)),
        AttrKind::Shape => {
            let mut dims = own.dims().to_vec();
            match dice.below(4) {
                0 => return Attrs::Shape(shape(dice)),
                1 => dims.reverse(),
                2 => dims.insert(0, 2),
                _ => dims = vec![own.numel()],
            }
            Attrs::Shape(Shape::new(&dims).unwrap_or(own))
        }
        AttrKind::Permutation => {
            let mut order = std::array::from_fn(|i| i as u8);
            if own.rank() > 1 {
                order[..own.rank()].rotate_left(dice.index(own.rank()));
            }
            Attrs::Permutation(order)
        }
        AttrKind::Axis => Attrs::Axis(axis(dice)),
        AttrKind::Axes => Attrs::Axes { mask: 1 << axis(dice), keepdim: dice.percent(50) },
        AttrKind::Slice => {
            let sizes: Vec<usize> = own.dims().iter().map(|size| dice.index(size + 1)).collect();
            let sizes = Shape::new(&sizes).expect("no larger");
            Attrs::Slice(Box::new(SliceSpec { start: [0; 8], step: [1; 8], sizes }))
        }
        AttrKind::Window => {
            let three =
                |low: u64, high: u64, dice: &mut Dice<'_>| [1, 1, low as usize + dice.index((high - low + 1) as usize)];
            Attrs::Window(Box::new(WindowSpec {
                rank: 1,
                groups: 1,
                input: three(1, 3, dice),
                kernel: three(1, 2, dice),
                stride: three(1, 2, dice),
                dilation: [1; 3],
                low: [0, 0, dice.index(2)],
                high: [0; 3],
            }))
        }
        AttrKind::Create => Attrs::Create { shape: shape(dice), dtype: dtype(dice) },
        AttrKind::Random => {
            let (seed, stream) = (dice.word(), dice.below(9));
            Attrs::Random { shape: shape(dice), dtype: DType::F32, seed, stream, first: 0 }
        }
        AttrKind::Loss => {
            let reduction = LossReduction::from_code(dice.below(3) as u8).expect("there are three");
            Attrs::Loss(LossSpec { reduction, ignore_index: -100, smoothing: 0.0 })
        }
        AttrKind::Attention => Attrs::Attention { causal: dice.percent(50), scale: 1.0 },
    }
}

/// A random instruction on `tensors` and its result; none if the client library would refuse it.
fn instruction(tensors: &[(TensorId, Meta)], dice: &mut Dice<'_>) -> Option<(Instruction, Meta)> {
    let row = &ROWS[dice.index(ROWS.len())];
    let count = row.operands as usize + dice.index(row.optional as usize + 1);
    let (_, first) = dice.pick(tensors);
    let alike: Vec<_> = tensors.iter().filter(|(_, meta)| meta.dtype == first.dtype).copied().collect();
    let (mut inputs, mut metas) = (Inputs::new(), Vec::new());
    for _ in 0..count {
        if dice.percent(10) {
            let scalar = Scalar::Int(1 + dice.below(3) as i64);
            inputs.push(Operand::Scalar(scalar));
            metas.push(InputMeta::Scalar(scalar));
        } else {
            let (id, meta) = if dice.percent(80) { dice.pick(&alike) } else { dice.pick(tensors) };
            inputs.push(Operand::Tensor(id));
            metas.push(InputMeta::Tensor(meta));
        }
    }
    let attrs = attrs(row.attrs, metas.first().and_then(InputMeta::tensor).unwrap_or(&first), dice);
    let meta = infer(row.op, &metas, &attrs).ok().filter(|meta| meta.shape.numel() <= NUMEL_MAX)?;
    Some((Instruction { op: row.op, out: 0, inputs, last_use: 0, attrs, tf32: false, replaces: None }, meta))
}

/// A valid stream of a session's first commands.
pub fn valid(dice: &mut Dice<'_>) -> Vec<Command> {
    let (mut commands, mut tensors, mut id) = (Vec::new(), Vec::new(), 0);
    for _ in 0..8 {
        id += 1;
        let meta = Meta::new(shape(dice), dtype(dice));
        let inputs = Inputs::from_slice(&[Operand::Scalar(Scalar::Int(dice.below(3) as i64))]);
        let attrs = Attrs::Create { shape: meta.shape, dtype: meta.dtype };
        commands.push(Command::Op(Instruction {
            op: Op::Full,
            out: id,
            inputs,
            last_use: 0,
            attrs,
            tf32: false,
            replaces: None,
        }));
        tensors.push((id, meta));
    }
    for _ in 0..4 + dice.below(28) {
        match dice.below(12) {
            0 if tensors.len() > 4 => {
                let mut ids = [0; FREE_IDS_MAX];
                ids[0] = tensors.swap_remove(dice.index(tensors.len())).0;
                commands.push(Command::Free { ids });
            }
            1 => {
                let layout = dice.pick(&[
                    RequestedLayout::Any,
                    RequestedLayout::Replicated,
                    RequestedLayout::Sharded { axis: 0 },
                ]);
                let requested = RequestedPlacement { workers: Workers::first_of(1), layout };
                commands.push(Command::DefineSignal {
                    signal: 3,
                    requested,
                    compile: dice.pick(&[None, Some(false), Some(true)]),
                });
                commands.push(Command::Signal { signal: dice.pick(&[0, 3]) });
            }
            2 => {
                id += 1;
                commands.push(Command::Allocate { out: id, meta: Meta::new(shape(dice), dtype(dice)) });
            }
            3 => commands.push(Command::Sync { token: 1000 + commands.len() as u64 }),
            _ => {
                let Some((mut drawn, meta)) = (0..20).find_map(|_| instruction(&tensors, dice)) else { continue };
                id += 1;
                drawn.out = id;
                if let (true, Some(Operand::Tensor(first))) = (dice.percent(10), drawn.inputs.as_slice().first())
                    && tensors.len() > 4
                {
                    let first = *first;
                    let times = drawn.inputs.as_slice().iter().filter(|input| input.tensor() == Some(first)).count();
                    if times == 1 {
                        drawn.last_use = 1;
                        tensors.retain(|(id, _)| *id != first);
                    }
                }
                commands.push(Command::Op(drawn));
                tensors.push((id, meta));
            }
        }
    }
    commands
}

/// The slots of each of `commands`.
pub fn encoded(commands: &[Command]) -> Vec<Vec<Slot>> {
    let mut encoder = Encoder::new();
    commands.iter().map(|command| encoder.encode(command).to_vec()).collect()
}

/// The slots of `commands` after some mutations.
pub fn mutated(commands: &[Command], dice: &mut Dice<'_>) -> Vec<Vec<Slot>> {
    let mut stream = encoded(commands);
    for _ in 0..1 + dice.below(3) {
        mutate(&mut stream, dice);
    }
    stream
}

fn mutate(stream: &mut Vec<Vec<Slot>>, dice: &mut Dice<'_>) {
    let (at, other) = (dice.index(stream.len()), dice.index(stream.len()));
    match dice.below(16) {
        0 => stream.swap(at, other),
        1 => stream.insert(at, stream[other].clone()),
        2 if stream.len() > 1 => drop(stream.remove(at)),
        3 => {
            // The last slot is missing: the daemon waits for it, or takes the next command's first slot for it.
            stream[at].pop();
            if stream[at].is_empty() {
                stream[at].push([0; 8]);
            }
        }
        4 => stream.insert(at, encoded(&[hostile(dice)]).remove(0)),
        _ => {
            let command = &mut stream[at];
            let slot = if dice.percent(70) { 0 } else { dice.index(command.len()) };
            let slot = &mut command[slot];
            let field = |slot: &mut Slot, shift: u32, bits: u32, value: u64| {
                let mask = ((1u64 << bits) - 1) << shift;
                slot[0] = slot[0] & !mask | value << shift & mask;
            };
            match dice.below(12) {
                0 => field(slot, 0, 16, ROWS[dice.index(ROWS.len())].op as u64),
                1 => field(slot, 0, 16, dice.below(512)),
                // The next six change the number of slots, the dtype, the kinds and number of operands, last uses and
                // flags.
                2 => field(slot, 16, 8, dice.below(12)),
                3 => field(slot, 24, 8, dice.below(12)),
                4 => field(slot, 32, 8, dice.below(256)),
                5 => field(slot, 40, 8, dice.below(9)),
                6 => field(slot, 48, 8, dice.below(256)),
                7 => field(slot, 56, 8, dice.below(256)),
                // The last four put a small number, an edge, a random word or a flipped bit in place of an id or size.
                8 => slot[1 + dice.index(7)] = dice.below(40),
                9 => slot[1 + dice.index(7)] = dice.pick(&ODD),
                10 => slot[dice.index(8)] = dice.word(),
                _ => slot[dice.index(8)] ^= 1 << dice.below(64),
            }
        }
    }
}

/// A well-formed command that is not valid in the stream, except by chance.
fn hostile(dice: &mut Dice<'_>) -> Command {
    let (id, token) = (dice.below(40), dice.below(3));
    let range = ArenaRange { segment: dice.pick(&ODD), offset_bytes: dice.pick(&ODD), len_bytes: dice.pick(&ODD) };
    match dice.below(4) {
        0 => Command::Fetch { token, id, offset_bytes: dice.pick(&ODD), to: range },
        1 => Command::Write { token, id, offset_bytes: dice.pick(&ODD), from: range },
        2 => Command::Free { ids: std::array::from_fn(|_| dice.below(40)) },
        _ => {
            let (from, to) = (Placement::on(0), Placement::on(dice.index(3)));
            Command::Reshard(Reshard { out: 99, input: id, meta: Meta::new(shape(dice), dtype(dice)), from, to })
        }
    }
}
