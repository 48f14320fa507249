//! The wire format of instructions, commands and completions: 64-byte slots of eight words.
//!
//! A command is a first slot and up to [`SLOTS_MAX`] − 1 extension slots, whose number the header announces. Extension
//! slots hold the attributes that do not fit the first slot (a shape, a slice, a window), then the operands past the
//! fourth. The layouts are declared in `layouts.rs`, and `docs/internals/wire.md` lists them.

mod completion;
pub(crate) mod layouts;
mod operands;
#[cfg(test)]
mod page;
mod pattern;

use crate::dtype::DType;
use crate::instruction::{Attrs, INPUTS_MAX, Inputs, Instruction, LossSpec, Operand, SliceSpec, TensorId};
use crate::mesh::{Mesh, MeshLayout};
use crate::op::{CONTROL_IDS, Op};
use crate::packing::{InvalidField, PackedLayout};
use crate::placement::{Placement, ReduceOp, RequestedDimension, RequestedLayout, RequestedPlacement, Workers};
use crate::row::AttrKind;
use crate::shape::{Meta, RANK_MAX, Shape};
use crate::window::WindowSpec;
use crate::wire::layouts::{
    AllocateSlot, AttentionAttrs, AxesAttrs, AxisAttrs, DefineSignalSlot, FreeSlot, Header, LossAttrs, OpHeader,
    OperandWords, OperandsSlot, PermutationAttrs, PlacementWords, PlacementsSlot, RandomAttrs, ReshardSlot, ShapeSlot,
    SignalSlot, SliceSlot, SyncSlot, TensorHeader, TransferSlot, WindowAttrs, WindowPaddingSlot, WindowSizesSlot,
    WindowStepsSlot, attribute_slots, id, operand_kind, placement_kind, requested_compile, requested_layout,
};

use self::operands::{FIRST_OPERANDS, OPERANDS_WORD, decode_operand, encode_operand};

pub use self::completion::Completion;
pub use self::layouts::Slot;
pub use self::pattern::InstructionPattern;

/// The most slots of one command.
pub const SLOTS_MAX: usize = 1 + 3 + (INPUTS_MAX - FIRST_OPERANDS).div_ceil(SLOT_OPERANDS);
/// The largest number of a signal.
pub const SIGNALS_MAX: u32 = 1 << 16;
/// The most ids in one [`Command::Free`].
pub const FREE_IDS_MAX: usize = 7;

/// The wire id of [`Command::Free`].
pub const FREE_ID: u16 = id::FREE;
/// The last operand that a result may replace.
const REPLACED_OPERAND_MAX: u8 = 6;
/// Number of operands in an extension slot.
const SLOT_OPERANDS: usize = 8;
/// The word of the first operand in an extension slot.
const MORE_OPERANDS_WORD: usize = OperandsSlot::FIELDS[0].word;

/// A range of bytes in an arena: the source of an upload or the destination of a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArenaRange {
    /// The number of the arena in its session.
    pub segment: u64,
    /// Bytes from its start.
    pub offset_bytes: u64,
    /// Length in bytes.
    pub len_bytes: u64,
}

/// A command from a client to the daemon, or from the daemon to a worker.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Computes an op.
    Op(Instruction),
    /// Frees tensors. No later command names them.
    Free {
        /// Their ids, then zeros.
        ids: [TensorId; FREE_IDS_MAX],
    },
    /// Copies bytes of a tensor, in row-major order, to an arena, then completes `token`.
    Fetch {
        /// Completed when the bytes are there, or with the failure that poisoned the tensor.
        token: u64,
        /// The tensor.
        id: TensorId,
        /// The first byte of the tensor to copy.
        offset_bytes: u64,
        /// The destination.
        to: ArenaRange,
    },
    /// Creates a tensor that [`Command::Write`] fills. It may be used once all its bytes have been written.
    Allocate {
        /// Its id.
        out: TensorId,
        /// Its shape and dtype.
        meta: Meta,
    },
    /// Copies bytes from an arena to a tensor made by [`Command::Allocate`], then completes `token`.
    Write {
        /// Completed when the arena range may be reused.
        token: u64,
        /// The tensor.
        id: TensorId,
        /// The first byte of the tensor to write; writes come in order, without gaps.
        offset_bytes: u64,
        /// The source.
        from: ArenaRange,
    },
    /// Completes `token` when all earlier commands are done.
    Sync {
        /// The token.
        token: u64,
    },
    /// Puts the following instructions under a signal; 0 is none.
    Signal {
        /// The number that the client gave the signal.
        signal: u32,
    },
    /// Sets the placement that a signal requests from here on. A signal without a definition requests none.
    DefineSignal {
        /// The signal's number, from 1 to [`SIGNALS_MAX`].
        signal: u32,
        /// The requested placement.
        requested: RequestedPlacement,
        /// Whether instructions under the signal are planned where they repeat; none leaves that to the daemon.
        compile: Option<bool>,
    },
    /// Changes a tensor's placement; from the daemon to workers only. Every worker of the old or the new placement gets
    /// it at the same point of its stream.
    Reshard(Reshard),
}

/// A change of a tensor's placement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reshard {
    /// The tensor's id under the new placement.
    pub out: TensorId,
    /// The tensor's id under the old placement. A partial tensor is consumed: no worker holds it afterwards.
    pub input: TensorId,
    /// Shape and dtype of the whole tensor.
    pub meta: Meta,
    /// The old placement.
    pub from: Placement,
    /// The new placement: replicated or sharded.
    pub to: Placement,
}

/// The reason why a sequence of slots is not a valid command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// No command has this id.
    #[error("unknown instruction id {0}")]
    UnknownId(u16),
    /// A field's value is out of range.
    #[error("malformed instruction: {0}")]
    Malformed(&'static str),
    /// The header announces more slots than an instruction can have.
    #[error("an instruction of {0} slots")]
    TooManySlots(usize),
}

impl From<InvalidField> for WireError {
    fn from(InvalidField(name): InvalidField) -> WireError {
        WireError::Malformed(name)
    }
}

/// How many slots the command that starts with `header` has.
///
/// # Errors
/// More than [`SLOTS_MAX`].
#[inline]
pub fn slots_of(header: &Slot) -> Result<usize, WireError> {
    let slots = 1 + Header::read(header)?.extensions as usize;
    if slots > SLOTS_MAX { Err(WireError::TooManySlots(slots)) } else { Ok(slots) }
}

/// Whether the command that starts with `header` moves bytes of an arena: a [`Command::Fetch`] or [`Command::Write`].
#[inline]
pub fn is_transfer(header: &Slot) -> bool {
    Header::read(header).is_ok_and(|header| matches!(header.id, id::FETCH | id::WRITE))
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

    /// Encodes `command`. The slots are valid until the next call.
    pub fn encode(&mut self, command: &Command) -> &[Slot] {
        match command {
            Command::Op(instruction) => return self.instruction(instruction),
            Command::Free { ids } => self.one_slot(id::FREE, |slot| FreeSlot { ids: *ids }.write(slot)),
            Command::Fetch { token, id, offset_bytes, to } => {
                self.one_slot(id::FETCH, |slot| transfer(*token, *id, *offset_bytes, to).write(slot));
            }
            Command::Write { token, id, offset_bytes, from } => {
                self.one_slot(id::WRITE, |slot| transfer(*token, *id, *offset_bytes, from).write(slot));
            }
            Command::Allocate { out, meta } => {
                self.with_shape(id::ALLOCATE, 1, meta, |slot| AllocateSlot { out: *out }.write(slot));
            }
            Command::Sync { token } => self.one_slot(id::SYNC, |slot| SyncSlot { token: *token }.write(slot)),
            Command::Signal { signal } => {
                self.one_slot(id::SIGNAL, |slot| SignalSlot { signal: *signal }.write(slot));
            }
            Command::DefineSignal { signal, requested, compile } => {
                let along = |dimension| match dimension {
                    RequestedDimension::Any => (requested_layout::ANY, 0),
                    RequestedDimension::Sharded { axis } => (requested_layout::SHARDED, axis),
                    RequestedDimension::Replicated => (requested_layout::REPLICATED, 0),
                };
                let (rows, layouts) = requested.layout.dimensions();
                let [(layout, axis), (within, axis_within)] = layouts.map(along);
                let workers = requested.workers.words();
                let compile = match compile {
                    None => requested_compile::UNSAID,
                    Some(false) => requested_compile::NEVER,
                    Some(true) => requested_compile::ALWAYS,
                };
                self.one_slot(id::DEFINE_SIGNAL, |slot| {
                    let signal = *signal;
                    DefineSignalSlot { signal, layout, rows, within, axis, axis_within, workers, compile }.write(slot);
                });
            }
            Command::Reshard(Reshard { out, input, meta, from, to }) => {
                let (from, to) = (encode_placement(from), encode_placement(to));
                self.with_shape(id::RESHARD, 2, meta, |slot| ReshardSlot { out: *out, input: *input }.write(slot));
                self.slots[2] = packed(|slot| PlacementsSlot { from, to }.write(slot));
            }
        }
        &self.slots[..self.len]
    }

    #[inline(always)]
    fn one_slot(&mut self, id: u16, fill: impl FnOnce(&mut Slot)) {
        let mut slot = [0; 8];
        Header { id, extensions: 0 }.write(&mut slot);
        fill(&mut slot);
        self.slots[0] = slot;
        self.len = 1;
    }

    #[inline(always)]
    fn with_shape(&mut self, id: u16, extensions: u8, meta: &Meta, fill: impl FnOnce(&mut Slot)) {
        let mut slot = [0; 8];
        Header { id, extensions }.write(&mut slot);
        TensorHeader { dtype: meta.dtype, rank: meta.shape.rank() as u8 }.write(&mut slot);
        fill(&mut slot);
        self.slots[0] = slot;
        self.slots[1] = encode_shape(&meta.shape);
        self.len = 1 + usize::from(extensions);
    }

    /// Encodes `instruction`. The slots are valid until the next call.
    ///
    /// # Panics
    /// More than [`INPUTS_MAX`] operands, or a number past the fourth: no builder makes these.
    pub fn instruction(&mut self, instruction: &Instruction) -> &[Slot] {
        let inputs = instruction.inputs.as_slice();
        assert!(inputs.len() <= INPUTS_MAX);
        let mut first = [0; 8];
        let (mut extensions, mut dtype, mut rank) = (0, 0, 0);
        match &instruction.attrs {
            Attrs::None => {}
            Attrs::DType(d) => dtype = *d as u8,
            Attrs::Shape(shape) => {
                (self.slots[1], extensions, rank) = (encode_shape(shape), 1, shape.rank());
            }
            Attrs::Permutation(order) => PermutationAttrs { order: u64::from_le_bytes(*order) }.write(&mut first),
            Attrs::Axis(axis) => AxisAttrs { axis: *axis }.write(&mut first),
            Attrs::Axes { mask, keepdim } => {
                AxesAttrs { keepdim: *keepdim, converts: false, mask: *mask }.write(&mut first)
            }
            Attrs::AxesInto { mask, keepdim, dtype: d } => {
                AxesAttrs { keepdim: *keepdim, converts: true, mask: *mask }.write(&mut first);
                dtype = *d as u8;
            }
            Attrs::Slice(spec) => {
                self.slots[1..4].copy_from_slice(&encode_slice(spec));
                (extensions, rank) = (3, spec.sizes.rank());
            }
            Attrs::Window(spec) => {
                WindowAttrs { groups: spec.groups }.write(&mut first);
                self.slots[1..4].copy_from_slice(&encode_window(spec));
                (extensions, rank) = (3, spec.rank as usize);
            }
            Attrs::Create { shape, dtype: d } => {
                dtype = *d as u8;
                (self.slots[1], extensions, rank) = (encode_shape(shape), 1, shape.rank());
            }
            Attrs::Random { shape, dtype: d, seed, stream, first: position } => {
                RandomAttrs { first: *position, seed: *seed, stream: *stream }.write(&mut first);
                dtype = *d as u8;
                (self.slots[1], extensions, rank) = (encode_shape(shape), 1, shape.rank());
            }
            Attrs::Loss(LossSpec { reduction, ignore_index, smoothing }) => {
                let (reduction, ignore_index, smoothing) = (*reduction, *ignore_index, *smoothing);
                LossAttrs { reduction, ignore_index, smoothing }.write(&mut first);
            }
            Attrs::Attention { causal, scale } => AttentionAttrs { causal: *causal, scale: *scale }.write(&mut first),
        }
        let mut operand_kinds = 0;
        for (i, operand) in inputs.iter().take(FIRST_OPERANDS).enumerate() {
            let (kind, bits) = encode_operand(operand);
            operand_kinds |= kind << (2 * i);
            first[OPERANDS_WORD + i] = bits;
        }
        if let Some(more) = inputs.get(FIRST_OPERANDS..) {
            extensions += encode_more_operands(&mut self.slots[1 + extensions..], more);
        }
        Header { id: instruction.op as u16, extensions: extensions as u8 }.write(&mut first);
        OpHeader {
            dtype,
            operand_kinds,
            operand_count: inputs.len() as u8,
            last_use: instruction.last_use,
            replaces: replaced_code(instruction.replaces.filter(|_| may_replace(instruction.op.row().attrs))),
            tf32: instruction.tf32,
            rank: rank as u8,
            out: instruction.out,
        }
        .write(&mut first);
        self.slots[0] = first;
        self.len = 1 + extensions;
        &self.slots[..self.len]
    }
}

/// Whether the first slot has room for the operand that the result replaces: other attributes take its bits.
const fn may_replace(kind: AttrKind) -> bool {
    !matches!(kind, AttrKind::Axes | AttrKind::Loss | AttrKind::Attention)
}

/// The first word of an instruction, changed so that it uses the operands in `last_use` for the last time, besides
/// earlier ones, and so that its result replaces operand `replaces`, if there is one. The instruction is elementwise,
/// or its result is the first operand, moved or partly written.
pub fn amended_word(word: u64, last_use: u8, replaces: Option<u8>) -> u64 {
    let mut slot: Slot = [0; 8];
    let replaces = replaced_code(replaces);
    OpHeader { dtype: 0, operand_kinds: 0, operand_count: 0, last_use, replaces, tf32: false, rank: 0, out: 0 }
        .write(&mut slot);
    word | slot[0]
}

/// The wire's code of the operand that a result replaces.
fn replaced_code(replaces: Option<u8>) -> u8 {
    replaces.filter(|operand| *operand <= REPLACED_OPERAND_MAX).map_or(0, |operand| operand + 1)
}

/// Encodes the operands past the fourth, and returns how many slots they take.
fn encode_more_operands(slots: &mut [Slot], operands: &[Operand]) -> usize {
    for (slot, operands) in slots.iter_mut().zip(operands.chunks(SLOT_OPERANDS)) {
        let mut ids = [0; SLOT_OPERANDS];
        for (id, operand) in ids.iter_mut().zip(operands) {
            let (kind, bits) = encode_operand(operand);
            assert!(kind == operand_kind::TENSOR, "numbers are among the first four operands");
            *id = bits;
        }
        *slot = packed(|slot| OperandsSlot { operands: ids }.write(slot));
    }
    operands.len().div_ceil(SLOT_OPERANDS)
}

/// How many extension slots the operands past the fourth take.
const fn operand_slots(count: usize) -> usize {
    count.saturating_sub(FIRST_OPERANDS).div_ceil(SLOT_OPERANDS)
}

/// Encodes an elementwise instruction on two tensors: the one instruction that is worth a shortcut.
#[inline(always)]
pub fn binary_slot(op: Op, out: TensorId, left: TensorId, right: TensorId) -> Slot {
    let mut slot = [0; 8];
    Header { id: op as u16, extensions: 0 }.write(&mut slot);
    OpHeader { dtype: 0, operand_kinds: 0, operand_count: 2, last_use: 0, replaces: 0, tf32: false, rank: 0, out }
        .write(&mut slot);
    OperandWords { operands: [left, right, 0, 0] }.write(&mut slot);
    slot
}

fn transfer(token: u64, tensor: TensorId, offset_bytes: u64, range: &ArenaRange) -> TransferSlot {
    let ArenaRange { segment, offset_bytes: arena_offset_bytes, len_bytes } = *range;
    TransferSlot { token, tensor, offset_bytes, segment, arena_offset_bytes, len_bytes }
}

#[inline(always)]
fn encode_shape(shape: &Shape) -> Slot {
    let mut sizes = [0; RANK_MAX];
    sizes[..shape.rank()].copy_from_slice(shape.dims());
    packed(|slot| ShapeSlot { sizes }.write(slot))
}

fn decode_shape(slot: &Slot, rank: u8) -> Result<Shape, WireError> {
    let sizes = ShapeSlot::read(slot)?.sizes;
    let sizes = sizes.get(..rank as usize).ok_or(WireError::Malformed("rank"))?;
    Shape::new(sizes).map_err(|_| WireError::Malformed("shape"))
}

fn encode_slice(spec: &SliceSpec) -> [Slot; 3] {
    let indices = |indices| packed(|slot| SliceSlot { indices }.write(slot));
    [indices(spec.start), indices(spec.step), encode_shape(&spec.sizes)]
}

fn decode_slice(slots: &[Slot], rank: u8) -> Result<SliceSpec, WireError> {
    let (start, step) = (SliceSlot::read(&slots[0])?.indices, SliceSlot::read(&slots[1])?.indices);
    Ok(SliceSpec { start, step, sizes: decode_shape(&slots[2], rank)? })
}

fn encode_window(spec: &WindowSpec) -> [Slot; 3] {
    let WindowSpec { input, kernel, stride, dilation, low, high, .. } = *spec;
    [
        packed(|slot| WindowSizesSlot { input, kernel }.write(slot)),
        packed(|slot| WindowStepsSlot { stride, dilation }.write(slot)),
        packed(|slot| WindowPaddingSlot { low, high }.write(slot)),
    ]
}

fn decode_window(slots: &[Slot], rank: u8, groups: usize) -> Result<WindowSpec, WireError> {
    let WindowSizesSlot { input, kernel } = WindowSizesSlot::read(&slots[0])?;
    let WindowStepsSlot { stride, dilation } = WindowStepsSlot::read(&slots[1])?;
    let WindowPaddingSlot { low, high } = WindowPaddingSlot::read(&slots[2])?;
    Ok(WindowSpec { rank, groups, input, kernel, stride, dilation, low, high })
}

fn encode_placement(placement: &Placement) -> [u64; 3] {
    let workers = placement.workers().words();
    let words = match *placement {
        Placement::Replicated { .. } => {
            PlacementWords { workers, kind: placement_kind::REPLICATED, detail: 0, granule: 0 }
        }
        Placement::Sharded { axis, granule, .. } => {
            PlacementWords { workers, kind: placement_kind::SHARDED, detail: axis, granule }
        }
        Placement::Partial { reduce_op, .. } => {
            PlacementWords { workers, kind: placement_kind::PARTIAL, detail: reduce_op as u8, granule: 0 }
        }
        Placement::Mesh { mesh, layouts } => {
            let bytes = |layout: MeshLayout| match layout {
                MeshLayout::Replicated => [placement_kind::REPLICATED, 0],
                MeshLayout::Sharded { axis } => [placement_kind::SHARDED, axis],
                MeshLayout::Partial(reduce_op) => [placement_kind::PARTIAL, reduce_op as u8],
            };
            let ([a, b], [c, d]) = (bytes(layouts[0]), bytes(layouts[1]));
            let granule = u32::from_le_bytes([a, b, c, d]) as usize;
            PlacementWords { workers, kind: placement_kind::MESH, detail: mesh.rows() as u8, granule }
        }
    };
    packed(|slot| words.write(slot))
}

fn decode_placement(words: [u64; 3]) -> Option<Placement> {
    let PlacementWords { workers, kind, detail, granule } = PlacementWords::read(&words).ok()?;
    let workers = Workers::from_words(workers);
    match kind {
        _ if workers.is_empty() => None,
        placement_kind::REPLICATED => Some(Placement::Replicated { workers }),
        placement_kind::SHARDED => Some(Placement::Sharded { workers, axis: detail, granule }),
        placement_kind::PARTIAL => Some(Placement::Partial { workers, reduce_op: ReduceOp::from_code(detail)? }),
        placement_kind::MESH => {
            let layout = |kind, detail| match kind {
                placement_kind::REPLICATED => Some(MeshLayout::Replicated),
                placement_kind::SHARDED => Some(MeshLayout::Sharded { axis: detail }),
                placement_kind::PARTIAL => Some(MeshLayout::Partial(ReduceOp::from_code(detail)?)),
                _ => None,
            };
            let [a, b, c, d] = u32::try_from(granule).ok()?.to_le_bytes();
            Some(Placement::Mesh { mesh: Mesh::new(workers, detail.into())?, layouts: [layout(a, b)?, layout(c, d)?] })
        }
        _ => None,
    }
}

/// Words that are zero except for the bits that `fill` sets.
#[inline(always)]
fn packed<const N: usize>(fill: impl FnOnce(&mut [u64; N])) -> [u64; N] {
    let mut words = [0; N];
    fill(&mut words);
    words
}

/// Decodes a command from exactly the slots that [`slots_of`] announces.
///
/// # Errors
/// Slots that no [`Encoder`] writes. The sender may be hostile: no input makes this panic.
#[inline]
pub fn decode(slots: &[Slot]) -> Result<Command, WireError> {
    let first = slots.first().ok_or(WireError::Malformed("no slots"))?;
    let Header { id, .. } = Header::read(first)?;
    if id >= CONTROL_IDS {
        return decode_op(id, slots).map(Command::Op);
    }
    let expected = match id {
        id::ALLOCATE => 2,
        id::RESHARD => 3,
        _ => 1,
    };
    if slots.len() != expected {
        return Err(WireError::Malformed("slot count"));
    }
    let meta = || -> Result<Meta, WireError> {
        let TensorHeader { dtype, rank } = TensorHeader::read(first)?;
        Ok(Meta::new(decode_shape(&slots[1], rank)?, dtype))
    };
    let signal_from = |least: u32, signal: u32| match signal {
        _ if (least..=SIGNALS_MAX).contains(&signal) => Ok(signal),
        _ => Err(WireError::Malformed("signal")),
    };
    Ok(match id {
        id::FREE => Command::Free { ids: FreeSlot::read(first)?.ids },
        id::FETCH | id::WRITE => {
            let TransferSlot { token, tensor, offset_bytes, segment, arena_offset_bytes, len_bytes } =
                TransferSlot::read(first)?;
            let range = ArenaRange { segment, offset_bytes: arena_offset_bytes, len_bytes };
            match id {
                id::FETCH => Command::Fetch { token, id: tensor, offset_bytes, to: range },
                _ => Command::Write { token, id: tensor, offset_bytes, from: range },
            }
        }
        id::ALLOCATE => Command::Allocate { out: AllocateSlot::read(first)?.out, meta: meta()? },
        id::SYNC => Command::Sync { token: SyncSlot::read(first)?.token },
        id::SIGNAL => Command::Signal { signal: signal_from(0, SignalSlot::read(first)?.signal)? },
        id::DEFINE_SIGNAL => {
            let DefineSignalSlot { signal, layout, rows, within, axis, axis_within, workers, compile } =
                DefineSignalSlot::read(first)?;
            let along = |layout, axis| match layout {
                requested_layout::ANY => Ok(RequestedDimension::Any),
                requested_layout::SHARDED => Ok(RequestedDimension::Sharded { axis }),
                requested_layout::REPLICATED => Ok(RequestedDimension::Replicated),
                _ => Err(WireError::Malformed("layout")),
            };
            let layout = RequestedLayout::over(rows, [along(layout, axis)?, along(within, axis_within)?]);
            let compile = match compile {
                requested_compile::UNSAID => None,
                requested_compile::NEVER => Some(false),
                requested_compile::ALWAYS => Some(true),
                _ => return Err(WireError::Malformed("compile")),
            };
            let requested = RequestedPlacement { workers: Workers::from_words(workers), layout };
            Command::DefineSignal { signal: signal_from(1, signal)?, requested, compile }
        }
        id::RESHARD => {
            let ReshardSlot { out, input } = ReshardSlot::read(first)?;
            let PlacementsSlot { from, to } = PlacementsSlot::read(&slots[2])?;
            let placed = |words| decode_placement(words).ok_or(WireError::Malformed("placement"));
            Command::Reshard(Reshard { out, input, meta: meta()?, from: placed(from)?, to: placed(to)? })
        }
        _ => return Err(WireError::UnknownId(id)),
    })
}

fn decode_op(id: u16, slots: &[Slot]) -> Result<Instruction, WireError> {
    let op = Op::from_wire(id).ok_or(WireError::UnknownId(id))?;
    let row = op.row();
    let first = &slots[0];
    let OpHeader { dtype, operand_kinds, operand_count, last_use, replaces, tf32, rank, out } = OpHeader::read(first)?;
    let count = operand_count as usize;
    if count > INPUTS_MAX {
        return Err(WireError::Malformed("operand count"));
    }
    let attribute_slots = attribute_slots(row.attrs);
    if slots.len() != 1 + attribute_slots + operand_slots(count) {
        return Err(WireError::Malformed("slot count"));
    }
    let dtype = || DType::from_code(dtype).ok_or(WireError::Malformed("dtype"));
    let attrs = match row.attrs {
        AttrKind::None => Attrs::None,
        AttrKind::DType => Attrs::DType(dtype()?),
        AttrKind::Shape => Attrs::Shape(decode_shape(&slots[1], rank)?),
        AttrKind::Permutation => Attrs::Permutation(PermutationAttrs::read(first)?.order.to_le_bytes()),
        AttrKind::Axis => Attrs::Axis(AxisAttrs::read(first)?.axis),
        AttrKind::Axes => {
            let AxesAttrs { keepdim, converts, mask } = AxesAttrs::read(first)?;
            if converts { Attrs::AxesInto { mask, keepdim, dtype: dtype()? } } else { Attrs::Axes { mask, keepdim } }
        }
        AttrKind::Slice => Attrs::Slice(Box::new(decode_slice(&slots[1..4], rank)?)),
        AttrKind::Window => {
            let WindowAttrs { groups } = WindowAttrs::read(first)?;
            Attrs::Window(Box::new(decode_window(&slots[1..4], rank, groups)?))
        }
        AttrKind::Create => Attrs::Create { shape: decode_shape(&slots[1], rank)?, dtype: dtype()? },
        AttrKind::Random => {
            let RandomAttrs { first, seed, stream } = RandomAttrs::read(first)?;
            Attrs::Random { shape: decode_shape(&slots[1], rank)?, dtype: dtype()?, seed, stream, first }
        }
        AttrKind::Loss => {
            let LossAttrs { reduction, ignore_index, smoothing } = LossAttrs::read(first)?;
            Attrs::Loss(LossSpec { reduction, ignore_index, smoothing })
        }
        AttrKind::Attention => {
            let AttentionAttrs { causal, scale } = AttentionAttrs::read(first)?;
            Attrs::Attention { causal, scale }
        }
    };
    let mut inputs = Inputs::new();
    for i in 0..count.min(FIRST_OPERANDS) {
        inputs.push(decode_operand(operand_kinds >> (2 * i), first[OPERANDS_WORD + i]));
    }
    for i in 0..count.saturating_sub(FIRST_OPERANDS) {
        let slot = &slots[1 + attribute_slots + i / SLOT_OPERANDS];
        inputs.push(Operand::Tensor(slot[MORE_OPERANDS_WORD + i % SLOT_OPERANDS]));
    }
    let replaces = replaces.checked_sub(1).filter(|operand| usize::from(*operand) < count && may_replace(row.attrs));
    Ok(Instruction { op, out, inputs, last_use, attrs, tf32: tf32 && row.multiplies(), replaces })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instruction::{LossReduction, Scalar};
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
            AttrKind::Axes => (any::<(u8, bool)>(), prop::option::of(dtype()))
                .prop_map(|((mask, keepdim), dtype)| match dtype {
                    Some(dtype) => Attrs::AxesInto { mask, keepdim, dtype },
                    None => Attrs::Axes { mask, keepdim },
                })
                .boxed(),
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
    pub fn instruction() -> impl Strategy<Value = Instruction> {
        (0..crate::row::ROWS.len()).prop_flat_map(|i| {
            let row = &crate::row::ROWS[i];
            let more = prop::collection::vec(any::<u64>().prop_map(Operand::Tensor), 0..40);
            (attrs(row.attrs), prop::collection::vec(operand(), 4), more, any::<u64>(), any::<(u8, bool, u8)>())
                .prop_map(move |(attrs, mut operands, more, out, (last_use, tf32, replaces))| {
                    let tf32 = tf32 && row.multiplies();
                    // The position of the first random number is in the fourth operand's word: random ops have two
                    // operands at most.
                    if row.attrs == AttrKind::Random {
                        operands.truncate(2)
                    } else {
                        operands.extend(more)
                    }
                    let inputs = Inputs::from_slice(&operands);
                    let named = |operand: &u8| usize::from(*operand) < operands.len().min(7) && may_replace(row.attrs);
                    let replaces = Some(replaces % 8).filter(named);
                    Instruction { op: row.op, out, inputs, last_use, attrs, tf32, replaces }
                })
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
                compile: Some(false),
            },
            Command::DefineSignal {
                signal: 1,
                requested: RequestedPlacement { workers: Workers::NONE, layout: RequestedLayout::Replicated },
                compile: Some(true),
            },
            Command::DefineSignal {
                signal: 2,
                requested: RequestedPlacement {
                    workers: Workers::first_of(4),
                    layout: RequestedLayout::Mesh {
                        rows: 2,
                        layouts: [RequestedDimension::Sharded { axis: -1 }, RequestedDimension::Any],
                    },
                },
                compile: None,
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
        let instruction =
            Instruction { op: Op::Add, out: 9, inputs, last_use: 0, attrs: Attrs::None, tf32: false, replaces: None };
        assert_eq!(Encoder::new().instruction(&instruction), &[binary_slot(Op::Add, 9, 7, 8)]);
    }

    #[test]
    fn placements_survive_three_words() {
        let workers = Workers::from_bits(0b1011 | 1 << 127);
        for placement in [
            Placement::Replicated { workers },
            Placement::Sharded { workers, axis: 7, granule: 1 << 40 },
            Placement::Partial { workers, reduce_op: ReduceOp::Min },
            Mesh::new(workers, 2)
                .unwrap()
                .placement([MeshLayout::Sharded { axis: 7 }, MeshLayout::Partial(ReduceOp::Max)]),
            Mesh::new(workers, 2).unwrap().placement([MeshLayout::Replicated, MeshLayout::Sharded { axis: 0 }]),
        ] {
            assert_eq!(decode_placement(encode_placement(&placement)), Some(placement));
        }
        assert_eq!(decode_placement([0, 0, 0]), None);
        assert_eq!(decode_placement([1, 0, 9]), None);
        assert_eq!(decode_placement([1, 0, 2 | 9 << 8]), None);
    }
}
