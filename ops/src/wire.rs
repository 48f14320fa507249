//! How instructions, completions and events travel: 64-byte slots of eight words.
//!
//! An instruction is a header slot and up to [`SLOTS_MAX`] − 1 extension slots.
//!
//! | word | header |
//! |---|---|
//! | 0 | wire id (16 bits), extension slots (8), dtype (8), operand kinds (2 bits each of the first 4), operand count
//! (8), last use (8), flags (8: keepdim, causal or the reduction of a loss, whether products may be rounded, and the
//! rank of a shape in the upper half) |
//! | 1 | the id of the result |
//! | 2–5 | the first four operands: a tensor's id or a number's bits |
//! | 6–7 | axis, axes, permutation; seed and stream; ignored index and smoothing of a loss; scale of attention |
//!
//! Extension slots hold, in this order, the attributes' shape (one slot), start, step and sizes of a slice (three) or a
//! window (three: input and kernel, stride and dilation, padding before and after; its groups are word 6), then the
//! operands past the fourth, eight ids a slot. Wire ids below [`CONTROL_IDS`] are not ops but commands.

use crate::dtype::DType;
use crate::failure::{Failure, Fault, MemoryScope, WorkerEnd, WorkerName};
use crate::instruction::{
    Attrs, INPUTS_MAX, Inputs, Instruction, LossReduction, LossSpec, Operand, Scalar, SliceSpec, TensorId,
};
use crate::op::Op;
use crate::placement::{Placement, RequestedLayout, RequestedPlacement, Workers};
use crate::row::AttrKind;
use crate::shape::{Meta, RANK_MAX, Shape};
use crate::window::{WINDOW_AXES_MAX, WindowSpec};

/// 64 bytes: what rings carry.
pub type Slot = [u64; 8];
/// The most slots of one command.
pub const SLOTS_MAX: usize = 1 + 3 + (INPUTS_MAX - 4).div_ceil(8);
/// Wire ids below this are commands, not ops.
pub const CONTROL_IDS: u16 = 16;
/// The largest number of a signal.
pub const SIGNALS_MAX: u32 = 1 << 16;
/// The most ids in one [`Command::Free`].
pub const FREE_IDS_MAX: usize = 7;

/// The wire id of [`Command::Free`].
pub const FREE_ID: u16 = 1;
/// The flag of [`Instruction::tf32`].
const TF32: u64 = 8;
const FETCH: u16 = 2;
const ALLOCATE: u16 = 3;
const WRITE: u16 = 4;
const SYNC: u16 = 5;
const SIGNAL: u16 = 6;
const DEFINE_SIGNAL: u16 = 7;
const RESHARD: u16 = 8;

/// A stretch of an arena: what an upload reads from and a fetch writes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArenaRange {
    /// Which segment of the session's arena.
    pub segment: u64,
    /// Bytes from its start.
    pub offset_bytes: u64,
    /// Length in bytes.
    pub len_bytes: u64,
}

/// Everything a client can ask for.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Compute.
    Op(Instruction),
    /// These tensors will not be named again.
    Free {
        /// Their ids, then zeros.
        ids: [TensorId; FREE_IDS_MAX],
    },
    /// Copy a tensor's elements `[offset, offset + len)`, in bytes of its row-major form, into the arena, then complete
    /// `token`.
    Fetch {
        /// Completed when the bytes are there, or with the error that poisoned the tensor.
        token: u64,
        /// The tensor.
        id: TensorId,
        /// The first byte wanted.
        offset_bytes: u64,
        /// Where they go.
        to: ArenaRange,
    },
    /// A new tensor whose bytes [`Command::Write`] will bring. It may be used once all have come.
    Allocate {
        /// Its id.
        out: TensorId,
        /// Its shape and dtype.
        meta: Meta,
    },
    /// Copy bytes from the arena into a tensor made by [`Command::Allocate`], then complete `token`.
    Write {
        /// Completed when the arena range may be written again.
        token: u64,
        /// The tensor.
        id: TensorId,
        /// Where in the tensor, in bytes; parts come in order, without gaps.
        offset_bytes: u64,
        /// Where from.
        from: ArenaRange,
    },
    /// Complete `token` when everything before is done.
    Sync {
        /// The token.
        token: u64,
    },
    /// The instructions from here on are under this signal; 0 is none.
    Signal {
        /// Its number, which the client chose.
        signal: u32,
    },
    /// What a signal asks for, from here on. One that was never defined asks for nothing.
    DefineSignal {
        /// Its number, from 1 to [`SIGNALS_MAX`].
        signal: u32,
        /// What it asks.
        requested: RequestedPlacement,
    },
    /// Among workers only: a tensor comes to lie elsewhere. Every worker that has some of it, or will, does this at the
    /// same point of its stream.
    Reshard(Reshard),
}

/// A tensor that comes to lie elsewhere.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reshard {
    /// What it is called afterwards, by the workers that have some of it then.
    pub out: TensorId,
    /// What it is called by those that have some of it now. Parts are given up: nobody has them afterwards.
    pub input: TensorId,
    /// Shape and dtype of the whole tensor.
    pub meta: Meta,
    /// Where it is.
    pub from: Placement,
    /// Where it will be: replicated or sharded.
    pub to: Placement,
}

/// Why slots are not a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// No command has this id.
    #[error("unknown instruction id {0}")]
    UnknownId(u16),
    /// A dtype code, rank, operand kind or count out of range.
    #[error("malformed instruction: {0}")]
    Malformed(&'static str),
    /// The header announces more slots than an instruction has.
    #[error("an instruction of {0} slots")]
    TooManySlots(usize),
}

/// How many slots the command that starts with `header` has.
///
/// # Errors
/// More than [`SLOTS_MAX`].
#[inline]
pub fn slots_of(header: &Slot) -> Result<usize, WireError> {
    let slots = 1 + (header[0] >> 16 & 0xff) as usize;
    if slots > SLOTS_MAX { Err(WireError::TooManySlots(slots)) } else { Ok(slots) }
}

/// Whether the command that starts with `header` moves bytes of an arena: a [`Command::Fetch`] or [`Command::Write`],
/// if it is one.
#[inline]
pub fn is_transfer(header: &Slot) -> bool {
    matches!(header[0] as u16, FETCH | WRITE)
}

/// A fixed buffer that commands are encoded into, so that sending one does not allocate.
#[derive(Clone, Debug)]
pub struct Encoder {
    slots: [Slot; SLOTS_MAX],
    len: usize,
}

impl Default for Encoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Encoder {
    /// An empty buffer.
    pub const fn new() -> Encoder {
        Encoder { slots: [[0; 8]; SLOTS_MAX], len: 0 }
    }

    /// The slots of `command`.
    pub fn encode(&mut self, command: &Command) -> &[Slot] {
        match command {
            Command::Op(instruction) => return self.instruction(instruction),
            Command::Free { ids } => {
                self.slots[0] = [FREE_ID as u64, ids[0], ids[1], ids[2], ids[3], ids[4], ids[5], ids[6]];
                self.len = 1;
            }
            Command::Fetch { token, id, offset_bytes, to } => self.transfer(FETCH, *token, *id, *offset_bytes, to),
            Command::Write { token, id, offset_bytes, from } => self.transfer(WRITE, *token, *id, *offset_bytes, from),
            Command::Allocate { out, meta } => {
                let w0 = ALLOCATE as u64 | 1 << 16 | (meta.dtype as u64) << 24 | (meta.shape.rank() as u64) << 60;
                self.slots[0] = [w0, *out, 0, 0, 0, 0, 0, 0];
                self.slots[1] = dims_slot(&meta.shape);
                self.len = 2;
            }
            Command::Sync { token } => {
                self.slots[0] = [SYNC as u64, *token, 0, 0, 0, 0, 0, 0];
                self.len = 1;
            }
            Command::Signal { signal } => {
                self.slots[0] = [SIGNAL as u64, *signal as u64, 0, 0, 0, 0, 0, 0];
                self.len = 1;
            }
            Command::DefineSignal { signal, requested } => {
                let (layout, axis) = match requested.layout {
                    RequestedLayout::Any => (0, 0),
                    RequestedLayout::Sharded { axis } => (1, axis),
                    RequestedLayout::Replicated => (2, 0),
                };
                let workers = requested.workers.bits();
                self.slots[0] = [DEFINE_SIGNAL as u64, *signal as u64, layout, axis as i64 as u64, workers, 0, 0, 0];
                self.len = 1;
            }
            Command::Reshard(Reshard { out, input, meta, from, to }) => {
                let w0 = RESHARD as u64 | 1 << 16 | (meta.dtype as u64) << 24 | (meta.shape.rank() as u64) << 60;
                let ([from, how], [to, into]) = (from.encode(), to.encode());
                self.slots[0] = [w0, *out, *input, from, how, to, into, 0];
                self.slots[1] = dims_slot(&meta.shape);
                self.len = 2;
            }
        }
        &self.slots[..self.len]
    }

    fn transfer(&mut self, id: u16, token: u64, tensor: TensorId, offset_bytes: u64, range: &ArenaRange) {
        self.slots[0] = [id as u64, token, tensor, offset_bytes, range.segment, range.offset_bytes, range.len_bytes, 0];
        self.len = 1;
    }

    /// The slots of `instruction`.
    ///
    /// # Panics
    /// More than [`INPUTS_MAX`] operands, or a number past the fourth: no builder makes these.
    pub fn instruction(&mut self, instruction: &Instruction) -> &[Slot] {
        let inputs = instruction.inputs.as_slice();
        assert!(inputs.len() <= INPUTS_MAX);
        let (mut ext, mut dtype, mut flags) = (0usize, 0u64, 0u64);
        let (mut w5, mut w6, mut w7) = (0, 0, 0);
        let mut shape_slot = |slots: &mut [Slot; SLOTS_MAX], flags: &mut u64, shape: &Shape| {
            *flags |= (shape.rank() as u64) << 4;
            slots[1] = dims_slot(shape);
            ext = 1;
        };
        match &instruction.attrs {
            Attrs::None => {}
            Attrs::DType(d) => dtype = *d as u64,
            Attrs::Shape(shape) => shape_slot(&mut self.slots, &mut flags, shape),
            Attrs::Permutation(p) => w6 = u64::from_le_bytes(*p),
            Attrs::Axis(axis) => w6 = *axis as u64,
            Attrs::Axes { mask, keepdim } => {
                w6 = *mask as u64;
                flags = *keepdim as u64;
            }
            Attrs::Slice(spec) => {
                flags = (spec.sizes.rank() as u64) << 4;
                self.slots[1] = spec.start.map(|x| x as u64);
                self.slots[2] = spec.step.map(|x| x as u64);
                self.slots[3] = dims_slot(&spec.sizes);
                ext = 3;
            }
            Attrs::Window(spec) => {
                flags = (spec.rank as u64) << 4;
                w6 = spec.groups as u64;
                self.slots[1..4].copy_from_slice(&window_slots(spec));
                ext = 3;
            }
            Attrs::Create { shape, dtype: d } => {
                dtype = *d as u64;
                shape_slot(&mut self.slots, &mut flags, shape);
            }
            Attrs::Random { shape, dtype: d, seed, stream, first } => {
                dtype = *d as u64;
                // In the place of a fourth operand: there are two at most.
                w5 = *first;
                (w6, w7) = (*seed, *stream);
                shape_slot(&mut self.slots, &mut flags, shape);
            }
            Attrs::Loss(LossSpec { reduction, ignore_index, smoothing }) => {
                flags = *reduction as u64;
                (w6, w7) = (*ignore_index as u64, smoothing.to_bits());
            }
            Attrs::Attention { causal, scale } => {
                flags = *causal as u64;
                w6 = scale.to_bits();
            }
        }
        if instruction.tf32 {
            flags |= TF32;
        }
        let mut header = [0, instruction.out, 0, 0, 0, w5, w6, w7];
        let mut kinds = 0u64;
        for (i, operand) in inputs.iter().enumerate() {
            let (kind, bits) = match operand {
                Operand::Tensor(id) => (0, *id),
                Operand::Scalar(Scalar::Bool(b)) => (1, *b as u64),
                Operand::Scalar(Scalar::Int(n)) => (2, *n as u64),
                Operand::Scalar(Scalar::Float(f)) => (3, f.to_bits()),
            };
            if i < 4 {
                kinds |= kind << (2 * i);
                header[2 + i] = bits;
            } else {
                assert!(kind == 0, "numbers are among the first four operands");
                let at = 1 + ext + (i - 4) / 8;
                if (i - 4) % 8 == 0 {
                    self.slots[at] = [0; 8];
                }
                self.slots[at][(i - 4) % 8] = bits;
            }
        }
        ext += inputs.len().saturating_sub(4).div_ceil(8);
        header[0] = instruction.op as u64
            | (ext as u64) << 16
            | dtype << 24
            | kinds << 32
            | (inputs.len() as u64) << 40
            | (instruction.last_use as u64) << 48
            | flags << 56;
        self.slots[0] = header;
        self.len = 1 + ext;
        &self.slots[..self.len]
    }
}

/// The header of an elementwise instruction on two tensors: the one instruction that is worth a shortcut.
#[inline(always)]
pub fn binary_slot(op: Op, out: TensorId, left: TensorId, right: TensorId) -> Slot {
    [op as u64 | 2 << 40, out, left, right, 0, 0, 0, 0]
}

fn dims_slot(shape: &Shape) -> Slot {
    let mut slot = [0; 8];
    for (word, dim) in slot.iter_mut().zip(shape.dims()) {
        *word = *dim as u64;
    }
    slot
}

fn shape_from(slot: &Slot, rank: usize) -> Result<Shape, WireError> {
    if rank > RANK_MAX {
        return Err(WireError::Malformed("rank"));
    }
    let mut dims = [0; RANK_MAX];
    for (dim, word) in dims.iter_mut().zip(slot) {
        *dim = usize::try_from(*word).map_err(|_| WireError::Malformed("dimension"))?;
    }
    Shape::new(&dims[..rank]).map_err(|_| WireError::Malformed("shape"))
}

/// Two of a window's triples a slot, a blank word after each.
fn window_slots(spec: &WindowSpec) -> [Slot; 3] {
    let pair = |a: &[usize; WINDOW_AXES_MAX], b: &[usize; WINDOW_AXES_MAX]| {
        [a[0], a[1], a[2], 0, b[0], b[1], b[2], 0].map(|size| size as u64)
    };
    [pair(&spec.input, &spec.kernel), pair(&spec.stride, &spec.dilation), pair(&spec.low, &spec.high)]
}

fn window_from(slots: &[Slot], rank: usize, groups: u64) -> Result<WindowSpec, WireError> {
    let size = |word: u64| usize::try_from(word).map_err(|_| WireError::Malformed("window"));
    let triple = |slot: usize, first: usize| {
        let words = &slots[slot][first..];
        Ok([size(words[0])?, size(words[1])?, size(words[2])?])
    };
    Ok(WindowSpec {
        rank: rank as u8,
        groups: size(groups)?,
        input: triple(0, 0)?,
        kernel: triple(0, 4)?,
        stride: triple(1, 0)?,
        dilation: triple(1, 4)?,
        low: triple(2, 0)?,
        high: triple(2, 4)?,
    })
}

/// The command in `slots`, which are exactly those [`slots_of`] announces.
///
/// # Errors
/// Anything no [`Encoder`] writes. Nothing here depends on the sender's goodwill.
#[inline]
pub fn decode(slots: &[Slot]) -> Result<Command, WireError> {
    let header = slots.first().ok_or(WireError::Malformed("no slots"))?;
    let id = header[0] as u16;
    if id >= CONTROL_IDS {
        return decode_op(id, slots).map(Command::Op);
    }
    let w0 = header[0];
    let expected = if matches!(id, ALLOCATE | RESHARD) { 2 } else { 1 };
    if slots.len() != expected {
        return Err(WireError::Malformed("slot count"));
    }
    let range = ArenaRange { segment: header[4], offset_bytes: header[5], len_bytes: header[6] };
    let meta = || {
        let dtype = DType::from_code((w0 >> 24) as u8).ok_or(WireError::Malformed("dtype"))?;
        Ok(Meta::new(shape_from(&slots[1], (w0 >> 60) as usize)?, dtype))
    };
    let signal = |word: u64, least: u32| {
        let signal = u32::try_from(word).ok().filter(|signal| (least..=SIGNALS_MAX).contains(signal));
        signal.ok_or(WireError::Malformed("signal"))
    };
    Ok(match id {
        FREE_ID => Command::Free { ids: [header[1], header[2], header[3], header[4], header[5], header[6], header[7]] },
        FETCH => Command::Fetch { token: header[1], id: header[2], offset_bytes: header[3], to: range },
        WRITE => Command::Write { token: header[1], id: header[2], offset_bytes: header[3], from: range },
        ALLOCATE => Command::Allocate { out: header[1], meta: meta()? },
        SYNC => Command::Sync { token: header[1] },
        SIGNAL => Command::Signal { signal: signal(header[1], 0)? },
        DEFINE_SIGNAL => {
            let axis = i8::try_from(header[3] as i64).map_err(|_| WireError::Malformed("axis"))?;
            let layout = match header[2] {
                0 => RequestedLayout::Any,
                1 => RequestedLayout::Sharded { axis },
                2 => RequestedLayout::Replicated,
                _ => return Err(WireError::Malformed("layout")),
            };
            let requested = RequestedPlacement { workers: Workers::from_bits(header[4]), layout };
            Command::DefineSignal { signal: signal(header[1], 1)?, requested }
        }
        RESHARD => {
            let placed = |words| Placement::decode(words).ok_or(WireError::Malformed("placement"));
            let (from, to) = (placed([header[3], header[4]])?, placed([header[5], header[6]])?);
            Command::Reshard(Reshard { out: header[1], input: header[2], meta: meta()?, from, to })
        }
        _ => return Err(WireError::UnknownId(id)),
    })
}

fn decode_op(id: u16, slots: &[Slot]) -> Result<Instruction, WireError> {
    let op = Op::from_wire(id).ok_or(WireError::UnknownId(id))?;
    let header = &slots[0];
    let w0 = header[0];
    let count = (w0 >> 40 & 0xff) as usize;
    let kinds = w0 >> 32 & 0xff;
    let flags = w0 >> 56;
    let rank = (flags >> 4) as usize;
    if count > INPUTS_MAX {
        return Err(WireError::Malformed("operand count"));
    }
    let attr_slots = match op.row().attrs {
        AttrKind::Shape | AttrKind::Create | AttrKind::Random => 1,
        AttrKind::Slice | AttrKind::Window => 3,
        _ => 0,
    };
    if slots.len() != 1 + attr_slots + count.saturating_sub(4).div_ceil(8) {
        return Err(WireError::Malformed("slot count"));
    }
    let dtype = || DType::from_code((w0 >> 24) as u8).ok_or(WireError::Malformed("dtype"));
    let axis = || u8::try_from(header[6]).map_err(|_| WireError::Malformed("axis"));
    let attrs = match op.row().attrs {
        AttrKind::None => Attrs::None,
        AttrKind::DType => Attrs::DType(dtype()?),
        AttrKind::Shape => Attrs::Shape(shape_from(&slots[1], rank)?),
        AttrKind::Permutation => Attrs::Permutation(header[6].to_le_bytes()),
        AttrKind::Axis => Attrs::Axis(axis()?),
        AttrKind::Axes => Attrs::Axes { mask: axis()?, keepdim: flags & 1 == 1 },
        AttrKind::Slice => Attrs::Slice(Box::new(SliceSpec {
            start: slots[1].map(|x| x as i64),
            step: slots[2].map(|x| x as i64),
            sizes: shape_from(&slots[3], rank)?,
        })),
        AttrKind::Window => Attrs::Window(Box::new(window_from(&slots[1..4], rank, header[6])?)),
        AttrKind::Create => Attrs::Create { shape: shape_from(&slots[1], rank)?, dtype: dtype()? },
        AttrKind::Random => {
            let (shape, [first, seed, stream]) = (shape_from(&slots[1], rank)?, [header[5], header[6], header[7]]);
            Attrs::Random { shape, dtype: dtype()?, seed, stream, first }
        }
        AttrKind::Loss => Attrs::Loss(LossSpec {
            reduction: LossReduction::from_code(flags as u8 & 15).ok_or(WireError::Malformed("reduction"))?,
            ignore_index: header[6] as i64,
            smoothing: f64::from_bits(header[7]),
        }),
        AttrKind::Attention => Attrs::Attention { causal: flags & 1 == 1, scale: f64::from_bits(header[6]) },
    };
    let mut inputs = Inputs::new();
    for i in 0..count.min(4) {
        let bits = header[2 + i];
        inputs.push(match kinds >> (2 * i) & 3 {
            0 => Operand::Tensor(bits),
            1 => Operand::Scalar(Scalar::Bool(bits != 0)),
            2 => Operand::Scalar(Scalar::Int(bits as i64)),
            _ => Operand::Scalar(Scalar::Float(f64::from_bits(bits))),
        });
    }
    for i in 4..count {
        inputs.push(Operand::Tensor(slots[1 + attr_slots + (i - 4) / 8][(i - 4) % 8]));
    }
    let tf32 = flags & TF32 != 0 && op.row().multiplies();
    Ok(Instruction { op, out: header[1], inputs, last_use: (w0 >> 48) as u8, attrs, tf32 })
}

/// The end of a fetch, write or sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Whose end.
    pub token: u64,
    /// How it ended.
    pub result: Result<(), Failure>,
}

impl Completion {
    /// As a slot.
    pub fn encode(&self) -> Slot {
        let mut slot = [self.token, 0, 0, 0, 0, 0, 0, 0];
        if let Err(failure) = &self.result {
            let (code, detail) = match failure.fault {
                Fault::OutOfMemory { requested, held, limit, scope } => {
                    let code = match scope {
                        MemoryScope::Worker => 1,
                        MemoryScope::Session => 6,
                        MemoryScope::User => 7,
                    };
                    (code, [requested, held, limit])
                }
                Fault::IndexOutOfRange { index, axis, size } => (2, [index as u64, axis, size]),
                Fault::ZeroDivision => (3, [0; 3]),
                Fault::WorkerLost { worker, end } => {
                    let [low, high] = worker.words();
                    (4, [low, high, end.word()])
                }
                Fault::Internal => (5, [0; 3]),
            };
            slot[1] = code;
            slot[2] = failure.instruction;
            slot[3] = failure.op.map_or(0, |op| op as u64);
            slot[4..7].copy_from_slice(&detail);
        }
        slot
    }
    /// From a slot. Codes of a newer daemon read as [`Fault::Internal`].
    pub fn decode(slot: &Slot) -> Completion {
        let fault = match slot[1] {
            0 => return Completion { token: slot[0], result: Ok(()) },
            code @ (1 | 6 | 7) => {
                let scope = match code {
                    1 => MemoryScope::Worker,
                    6 => MemoryScope::Session,
                    _ => MemoryScope::User,
                };
                Fault::OutOfMemory { requested: slot[4], held: slot[5], limit: slot[6], scope }
            }
            2 => Fault::IndexOutOfRange { index: slot[4] as i64, axis: slot[5], size: slot[6] },
            3 => Fault::ZeroDivision,
            4 => {
                let worker = WorkerName::from_words([slot[4], slot[5]]);
                Fault::WorkerLost { worker, end: WorkerEnd::from_word(slot[6]) }
            }
            _ => Fault::Internal,
        };
        Completion {
            token: slot[0],
            result: Err(Failure { fault, instruction: slot[2], op: Op::from_wire(slot[3] as u16) }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::ReduceOp;
    use proptest::prelude::*;

    fn shape() -> impl Strategy<Value = Shape> {
        prop::collection::vec(0usize..50, 0..=4).prop_map(|dims| Shape::new(&dims).unwrap())
    }
    fn dtype() -> impl Strategy<Value = DType> {
        (0u8..10).prop_map(|code| DType::from_code(code).unwrap())
    }
    fn attrs(kind: AttrKind) -> BoxedStrategy<Attrs> {
        match kind {
            AttrKind::None => Just(Attrs::None).boxed(),
            AttrKind::DType => dtype().prop_map(Attrs::DType).boxed(),
            AttrKind::Shape => shape().prop_map(Attrs::Shape).boxed(),
            AttrKind::Permutation => any::<[u8; 8]>().prop_map(Attrs::Permutation).boxed(),
            AttrKind::Axis => any::<u8>().prop_map(Attrs::Axis).boxed(),
            AttrKind::Axes => any::<(u8, bool)>().prop_map(|(mask, keepdim)| Attrs::Axes { mask, keepdim }).boxed(),
            AttrKind::Slice => (any::<([i64; 8], [i64; 8])>(), shape())
                .prop_map(|((start, step), sizes)| Attrs::Slice(Box::new(SliceSpec { start, step, sizes })))
                .boxed(),
            AttrKind::Window => (0u8..16, any::<usize>(), prop::array::uniform6(any::<[usize; 3]>()))
                .prop_map(|(rank, groups, [input, kernel, stride, dilation, low, high])| {
                    Attrs::Window(Box::new(WindowSpec { rank, groups, input, kernel, stride, dilation, low, high }))
                })
                .boxed(),
            AttrKind::Create => (shape(), dtype()).prop_map(|(shape, dtype)| Attrs::Create { shape, dtype }).boxed(),
            AttrKind::Random => (shape(), dtype(), any::<[u64; 3]>())
                .prop_map(|(shape, dtype, [seed, stream, first])| Attrs::Random { shape, dtype, seed, stream, first })
                .boxed(),
            AttrKind::Loss => (0u8..3, any::<i64>(), 0f64..1.0)
                .prop_map(|(code, ignore_index, smoothing)| {
                    let reduction = LossReduction::from_code(code).unwrap();
                    Attrs::Loss(LossSpec { reduction, ignore_index, smoothing })
                })
                .boxed(),
            AttrKind::Attention => {
                (any::<bool>(), -9f64..9.0).prop_map(|(causal, scale)| Attrs::Attention { causal, scale }).boxed()
            }
        }
    }
    fn operand() -> impl Strategy<Value = Operand> {
        prop_oneof![
            any::<u64>().prop_map(Operand::Tensor),
            any::<bool>().prop_map(|b| Operand::Scalar(Scalar::Bool(b))),
            any::<i64>().prop_map(|i| Operand::Scalar(Scalar::Int(i))),
            (-1e300f64..1e300).prop_map(|f| Operand::Scalar(Scalar::Float(f))),
        ]
    }
    fn instruction() -> impl Strategy<Value = Instruction> {
        (0..crate::row::ROWS.len()).prop_flat_map(|i| {
            let row = &crate::row::ROWS[i];
            let more = prop::collection::vec(any::<u64>().prop_map(Operand::Tensor), 0..40);
            (attrs(row.attrs), prop::collection::vec(operand(), 4), more, any::<u64>(), any::<(u8, bool)>()).prop_map(
                move |(attrs, mut operands, more, out, (last_use, tf32))| {
                    let tf32 = tf32 && row.multiplies();
                    // Where random numbers begin stands in the place of a fourth operand, which they never have.
                    if row.attrs == AttrKind::Random {
                        operands.truncate(2)
                    } else {
                        operands.extend(more)
                    }
                    Instruction { op: row.op, out, inputs: Inputs::from_slice(&operands), last_use, attrs, tf32 }
                },
            )
        })
    }

    proptest! {
        #[test]
        fn every_instruction_survives_the_wire(instruction in instruction()) {
            let mut encoder = Encoder::new();
            let slots = encoder.instruction(&instruction);
            prop_assert_eq!(slots_of(&slots[0]).unwrap(), slots.len());
            prop_assert_eq!(decode(slots).unwrap(), Command::Op(instruction));
        }

        #[test]
        fn no_slots_make_decoding_panic(slots in prop::collection::vec(any::<[u64; 8]>(), 1..20), id in 0u64..256) {
            let mut slots = slots;
            slots[0][0] = slots[0][0] & !0xffff | id;
            if let Ok(n) = slots_of(&slots[0]) {
                slots.resize(n, [0; 8]);
                let _ = decode(&slots);
            }
        }
    }

    #[test]
    fn commands_survive_the_wire() {
        let range = ArenaRange { segment: 1, offset_bytes: 64, len_bytes: 12 };
        let meta = Meta::new(Shape::new(&[3, 0, 4]).unwrap(), DType::BF16);
        for command in [
            Command::Free { ids: [1, 2, 3, 0, 0, 0, 0] },
            Command::Fetch { token: 9, id: 3, offset_bytes: 5, to: range },
            Command::Write { token: 9, id: 3, offset_bytes: 7, from: range },
            Command::Allocate { out: 5, meta },
            Command::Sync { token: 8 },
            Command::Signal { signal: 0 },
            Command::DefineSignal {
                signal: SIGNALS_MAX,
                requested: RequestedPlacement {
                    workers: Workers::first_of(3),
                    layout: RequestedLayout::Sharded { axis: -2 },
                },
            },
            Command::DefineSignal {
                signal: 1,
                requested: RequestedPlacement { workers: Workers::NONE, layout: RequestedLayout::Replicated },
            },
            Command::Reshard(Reshard {
                out: 9,
                input: 8,
                meta,
                from: Placement::Partial { workers: Workers::first_of(2), reduce_op: ReduceOp::Max },
                to: Placement::on(63),
            }),
        ] {
            let mut encoder = Encoder::new();
            let slots = encoder.encode(&command);
            assert_eq!(slots_of(&slots[0]).unwrap(), slots.len());
            assert_eq!(decode(slots).unwrap(), command);
        }
    }

    #[test]
    fn the_shortcut_writes_what_the_encoder_writes() {
        let inputs = Inputs::from_slice(&[Operand::Tensor(7), Operand::Tensor(8)]);
        let instruction = Instruction { op: Op::Add, out: 9, inputs, last_use: 0, attrs: Attrs::None, tf32: false };
        assert_eq!(Encoder::new().instruction(&instruction), &[binary_slot(Op::Add, 9, 7, 8)]);
    }

    #[test]
    fn completions_survive_the_wire() {
        let failure = |fault| Err(Failure { fault, instruction: 12, op: Some(Op::Gather) });
        for result in [
            Ok(()),
            failure(Fault::OutOfMemory { requested: 1, held: 2, limit: 3, scope: MemoryScope::Worker }),
            failure(Fault::OutOfMemory { requested: 1, held: 2, limit: 3, scope: MemoryScope::Session }),
            failure(Fault::OutOfMemory { requested: 1, held: 2, limit: 3, scope: MemoryScope::User }),
            failure(Fault::IndexOutOfRange { index: -7, axis: 1, size: 3 }),
            failure(Fault::ZeroDivision),
            failure(Fault::WorkerLost { worker: WorkerName::new("cpu:3"), end: WorkerEnd::Signal(9) }),
            failure(Fault::Internal),
        ] {
            let completion = Completion { token: 4, result };
            assert_eq!(Completion::decode(&completion.encode()), completion);
        }
    }
}
