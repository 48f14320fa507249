//! The enum of primitive ops, their names and wire ids, made of the table in `table/`.

use crate::dtype::DType;
use crate::table::op_table;

/// Turns the rows of the table into the enum.
macro_rules! define_ops {
    ($({ [$num:ident]
        $(
            $(#[doc = $doc:tt])+
            $op:ident = $id:literal, $name:ident $operands:tt $body:tt
        )*
    })*) => {
        /// A primitive op. The discriminant is its id on the wire.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u16)]
        pub enum Op {
            $($(#[doc = $crate::table::summary!([] $($doc)+)] $op = $id,)*)*
        }

        impl Op {
            /// Every op, in the order of the table.
            pub const ALL: &[Op] = &[$($(Op::$op,)*)*];
        }

        /// The name of each op, in the order of the table.
        const NAMES: &[&str] = &[$($(stringify!($name),)*)*];
    };
}

op_table!(define_ops);

/// Wire ids below this number are commands, not ops.
pub const CONTROL_IDS: u16 = 16;
/// Wire ids stay below this number.
pub const WIRE_ID_MAX: usize = 512;
const NO_OP: u8 = u8::MAX;

/// The position in the table of each wire id. An id out of range or taken twice is an error of compilation.
static INDEX: [u8; WIRE_ID_MAX] = {
    let mut index = [NO_OP; WIRE_ID_MAX];
    assert!(Op::ALL.len() < NO_OP as usize, "positions in the table are bytes: too many ops");
    let mut i = 0;
    while i < Op::ALL.len() {
        let id = Op::ALL[i] as usize;
        assert!(id >= CONTROL_IDS as usize, "a row has the wire id of a command");
        assert!(id < WIRE_ID_MAX, "a row's wire id is not below WIRE_ID_MAX");
        assert!(index[id] == NO_OP, "two rows have the same wire id");
        index[id] = i as u8;
        i += 1;
    }
    index
};

impl Op {
    /// The position of the op's row in the table.
    #[inline]
    pub(crate) fn index(self) -> usize {
        INDEX[self as usize] as usize
    }
    /// The op with this wire id.
    #[inline]
    pub fn from_wire(id: u16) -> Option<Op> {
        Op::ALL.get(*INDEX.get(id as usize)? as usize).copied()
    }
    /// The op called `name`.
    pub fn from_name(name: &str) -> Option<Op> {
        NAMES.iter().position(|own| *own == name).map(|i| Op::ALL[i])
    }
    /// Whether it reduces elements of dtype `from` in dtype `to`, which it converts each of them to: to floats, and
    /// from bools and integers to integers. See [`crate::Attrs::AxesInto`].
    pub fn reduces_into(self, from: DType, to: DType) -> bool {
        let integers = !from.is_float() && !matches!(to, DType::Bool) && self != Op::Mean;
        matches!(self, Op::Sum | Op::Prod | Op::Mean)
            && from != to
            && !from.is_composed()
            && !to.is_composed()
            && (matches!(to, DType::F32 | DType::F64) || !to.is_float() && integers)
    }
    /// For an op whose negative indices count from the end of the axis, the op that refuses those.
    pub fn without_wrapping(self) -> Option<Op> {
        match self {
            Op::Index => Some(Op::Gather),
            Op::IndexPut => Some(Op::Scatter),
            Op::IndexPutAdd => Some(Op::ScatterAdd),
            _ => None,
        }
    }
    /// The op's name: PyTorch's, where PyTorch has the op.
    pub fn name(self) -> &'static str {
        NAMES[self.index()]
    }
}
