//! The layouts of slots: the bits and the meaning of each field of a command or completion.
//!
//! These declarations are the only definition of the wire format. The encoder and the decoder use them, and a test
//! renders them as `docs/internals/wire.md`.

use crate::dtype::DType;
use crate::instruction::LossReduction;
use crate::packing::{BitRange, InvalidField, PackedField, codes, layout};
use crate::row::AttrKind;

/// 64 bytes, the unit that rings carry.
pub type Slot = [u64; 8];

codes! {
    /// Wire ids of commands. Ids from 16 on are ops of the op table.
    mod id: u16 {
        FREE = 1, "free: the client no longer uses these tensors";
        FETCH = 2, "fetch: copy a tensor's bytes to an arena";
        ALLOCATE = 3, "allocate: create a tensor that writes will fill";
        WRITE = 4, "write: copy bytes from an arena to a tensor";
        SYNC = 5, "sync: complete a token when all earlier commands are done";
        SIGNAL = 6, "signal: put the following instructions under a signal";
        DEFINE_SIGNAL = 7, "define signal: set the placement that a signal requests";
        RESHARD = 8, "reshard: change a tensor's placement (from the daemon to workers only)";
    }
}

layout! {
    /// Header of every command: the beginning of its first slot.
    struct Header {
        id: u16, word 0 bits 0..16, "wire id of the op or command";
        extensions: u8, word 0 bits 16..24, "number of slots that follow the first";
    }
}

layout! {
    /// First slot of an instruction, besides the header.
    struct OpHeader {
        dtype: u8, word 0 bits 24..32, "dtype code of the attributes";
        operand_kinds: u8, word 0 bits 32..40, "kinds of the first four operands, two bits each, the first lowest";
        operand_count: u8, word 0 bits 40..48, "number of operands";
        last_use: u8, word 0 bits 48..56, "bit `i` is set: operand `i` is not used again, and the result may take its buffer";
        replaces: u8, word 0 bits 56..59, "1 + the operand that the result replaces in place, and keeps if the instruction fails; 0 for none";
        tf32: bool, word 0 bits 59..60, "matrix products, convolutions and attention: f32 products may be rounded to TF32";
        rank: u8, word 0 bits 60..64, "rank of the attributes' shape, or number of axes that a window slides over";
        out: u64, word 1, "id of the result";
    }
}

layout! {
    /// The first four operands, in the first slot of an instruction.
    struct OperandWords {
        operands: [u64; 4], word 2, "ids of tensors, or the bits of numbers";
    }
}

codes! {
    /// Kinds of operands.
    mod operand_kind: u8 {
        TENSOR = 0, "id of a tensor";
        BOOL = 1, "bool, 0 or 1";
        INT = 2, "64-bit integer, two's complement";
        FLOAT = 3, "64-bit float, IEEE 754";
    }
}

layout! {
    /// Attributes `Permutation`, in the first slot.
    struct PermutationAttrs {
        order: u64, word 6, "byte `i` is the axis of the operand that becomes axis `i` of the result";
    }
}

layout! {
    /// Attributes `Axis`, in the first slot.
    struct AxisAttrs {
        axis: u8, word 6, "the axis";
    }
}

layout! {
    /// Attributes `Axes`, in the first slot.
    struct AxesAttrs {
        keepdim: bool, word 0 bits 56..57, "reduced axes stay with size 1";
        converts: bool, word 0 bits 57..58, "the operand is converted to `dtype`, that of the result";
        mask: u8, word 6, "bit `i` is set: axis `i` is reduced";
    }
}

layout! {
    /// Attributes `Window`, in the first slot.
    struct WindowAttrs {
        groups: usize, word 6, "number of groups of channels";
    }
}

layout! {
    /// Attributes `Random`, in the first slot. Random ops have two operands at most.
    struct RandomAttrs {
        first: u64, word 5, "position of the first element in the instruction's random numbers";
        seed: u64, word 6, "key of the generator";
        stream: u64, word 7, "number of the random instruction since the seed was set";
    }
}

layout! {
    /// Attributes `Loss`, in the first slot.
    struct LossAttrs {
        reduction: LossReduction, word 0 bits 56..60, "0 none, 1 mean, 2 sum";
        ignore_index: i64, word 6, "class index of samples that are left out";
        smoothing: f64, word 7, "label smoothing";
    }
}

layout! {
    /// Attributes `Attention`, in the first slot.
    struct AttentionAttrs {
        causal: bool, word 0 bits 56..57, "query `i` attends to keys `0..=i` only";
        scale: f64, word 6, "factor of the scores";
    }
}

layout! {
    /// Extension slot of a shape.
    struct ShapeSlot {
        sizes: [usize; 8], word 0, "size of each axis, outermost first; zeros after the last";
    }
}

layout! {
    /// Extension slot of a slice's starts or steps.
    struct SliceSlot {
        indices: [i64; 8], word 0, "start or step of each axis";
    }
}

layout! {
    /// First extension slot of a window. The triples are aligned at the right: the last entry is the last axis.
    struct WindowSizesSlot {
        input: [usize; 3], word 0, "sizes of the input";
        kernel: [usize; 3], word 4, "sizes of the window";
    }
}

layout! {
    /// Second extension slot of a window.
    struct WindowStepsSlot {
        stride: [usize; 3], word 0, "distance between windows";
        dilation: [usize; 3], word 4, "distance between elements of a window";
    }
}

layout! {
    /// Third extension slot of a window.
    struct WindowPaddingSlot {
        low: [usize; 3], word 0, "padding before the input";
        high: [usize; 3], word 4, "padding after the input";
    }
}

/// How many extension slots the attributes of an op take; operands past the fourth follow.
pub(crate) const fn attribute_slots(kind: AttrKind) -> usize {
    match kind {
        AttrKind::Shape | AttrKind::Create | AttrKind::Random => 1,
        AttrKind::Slice | AttrKind::Window => 3,
        AttrKind::None
        | AttrKind::DType
        | AttrKind::Permutation
        | AttrKind::Axis
        | AttrKind::Axes
        | AttrKind::Loss
        | AttrKind::Attention => 0,
    }
}

layout! {
    /// Extension slot of operands past the fourth, after the slots of the attributes.
    struct OperandsSlot {
        operands: [u64; 8], word 0, "ids of eight more tensors; zeros after the last";
    }
}

layout! {
    /// Free.
    struct FreeSlot {
        ids: [u64; 7], word 1, "ids of tensors; zeros after the last";
    }
}

layout! {
    /// Fetch and write.
    struct TransferSlot {
        token: u64, word 1, "completed when the bytes have been copied";
        tensor: u64, word 2, "id of the tensor";
        offset_bytes: u64, word 3, "first byte of the tensor, in row-major order";
        segment: u64, word 4, "number of the arena";
        arena_offset_bytes: u64, word 5, "first byte in the arena";
        len_bytes: u64, word 6, "number of bytes";
    }
}

layout! {
    /// Dtype and rank of a whole tensor, in the first slot of an allocation or reshard; its sizes are in a shape slot.
    struct TensorHeader {
        dtype: DType, word 0 bits 24..32, "dtype code of the tensor";
        rank: u8, word 0 bits 60..64, "rank of the tensor";
    }
}

layout! {
    /// Allocate.
    struct AllocateSlot {
        out: u64, word 1, "id of the new tensor";
    }
}

layout! {
    /// Sync.
    struct SyncSlot {
        token: u64, word 1, "completed when all earlier commands are done";
    }
}

layout! {
    /// Signal.
    struct SignalSlot {
        signal: u32, word 1, "number of the signal; 0 is none";
    }
}

layout! {
    /// Define signal.
    struct DefineSignalSlot {
        signal: u32, word 1, "number of the signal";
        layout: u8, word 2 bits 0..8, "code of the requested layout; on a mesh, that of dimension 0";
        rows: u8, word 2 bits 8..16, "the rows of the mesh; 0 without a mesh";
        within: u8, word 2 bits 16..24, "on a mesh, code of the requested layout of dimension 1";
        axis: i8, word 3, "the sharded axis, from the end if negative";
        axis_within: i8, word 7, "on a mesh, that of dimension 1";
        workers: [u64; 2], word 4, "bit `w % 64` of word `w / 64` is set: the request names worker `w`; zeros name all";
        compile: u64, word 6, "code of the request for plans of hot paths";
    }
}

codes! {
    /// Requests for plans of hot paths.
    mod requested_compile: u64 {
        UNSAID = 0, "as the daemon does by itself";
        NEVER = 1, "the instructions are never planned";
        ALWAYS = 2, "the instructions are planned where they repeat";
    }
}

codes! {
    /// Requested layouts.
    mod requested_layout: u8 {
        ANY = 0, "any";
        SHARDED = 1, "sharded along the axis";
        REPLICATED = 2, "replicated";
    }
}

layout! {
    /// Reshard.
    struct ReshardSlot {
        out: u64, word 1, "id of the tensor under its new placement";
        input: u64, word 2, "id of the tensor under its old placement";
    }
}

layout! {
    /// Second extension slot of a reshard.
    struct PlacementsSlot {
        from: [u64; 3], word 0, "the old placement";
        to: [u64; 3], word 3, "the new placement";
    }
}

layout! {
    /// A placement: three words.
    struct PlacementWords {
        workers: [u64; 2], word 0, "bit `w % 64` of word `w / 64` is set: worker `w` has elements of the tensor";
        kind: u8, word 2 bits 0..8, "kind of the placement";
        detail: u8, word 2 bits 8..16, "sharded: the axis; partial: 0 sum, 1 prod, 2 max, 3 min; on a mesh: the rows";
        granule: usize, word 2 bits 16..64, "sharded: cuts are at multiples of this; on a mesh: of each dimension, kind and detail";
    }
}

codes! {
    /// Kinds of placements.
    mod placement_kind: u8 {
        REPLICATED = 0, "replicated";
        SHARDED = 1, "sharded";
        PARTIAL = 2, "partial";
        MESH = 3, "on a mesh";
    }
}

layout! {
    /// A completion: one slot from the daemon to the client.
    struct CompletionSlot {
        token: u64, word 0, "token of the fetch, write or sync";
        fault: u64, word 1, "code of the fault; 0 is success";
        instruction: u64, word 2, "id of the result of the failed instruction";
        op: u16, word 3 bits 0..16, "wire id of the failed op; 0 for a transfer";
        detail: [u64; 3], word 4, "details of the fault";
    }
}

codes! {
    /// Faults, with their three words of detail.
    mod fault: u64 {
        WORKER_OUT_OF_MEMORY = 1, "the worker is out of memory: bytes requested, bytes held, limit in bytes";
        INDEX_OUT_OF_RANGE = 2, "an index is out of range: index, axis, size of the axis";
        ZERO_DIVISION = 3, "integer division by zero";
        WORKER_LOST = 4, "the worker was lost: two words of its name, and how its process ended";
        INTERNAL = 5, "internal error";
        SESSION_OUT_OF_MEMORY = 6, "the session's limit is reached: as for the worker";
        USER_OUT_OF_MEMORY = 7, "the user's limit is reached: as for the worker";
        TOO_MANY_TENSORS = 8, "the user's limit of tensors is reached: tensors held, limit";
        INTERRUPTED = 9, "the session cancelled the instruction";
        TOO_LONG = 10, "the instruction would exceed the user's limit of time: estimate and limit in milliseconds";
    }
}

impl PackedField for DType {
    #[inline(always)]
    fn write(self, words: &mut [u64], at: BitRange) {
        (self as u8).write(words, at);
    }
    #[inline(always)]
    fn read(words: &[u64], at: BitRange, name: &'static str) -> Result<DType, InvalidField> {
        DType::from_code(u8::read(words, at, name)?).ok_or(InvalidField(name))
    }
}

impl PackedField for LossReduction {
    #[inline(always)]
    fn write(self, words: &mut [u64], at: BitRange) {
        (self as u8).write(words, at);
    }
    #[inline(always)]
    fn read(words: &[u64], at: BitRange, name: &'static str) -> Result<LossReduction, InvalidField> {
        LossReduction::from_code(u8::read(words, at, name)?).ok_or(InvalidField(name))
    }
}
