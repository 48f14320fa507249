//! The enum of primitive ops, their names and wire ids, made of the table in `table.rs`.

use crate::table::op_table;

/// Turns the rows of the table into the enum.
macro_rules! define_ops {
    (
     real1 { $($r1:ident = $r1w:literal, $r1n:literal, $r1d:literal, |$r1a:ident| $r1e:expr, { $($r1f:tt)* };)* }
     real2 { $($r2:ident = $r2w:literal, $r2n:literal, $r2d:literal, |$r2a:ident, $r2b:ident| $r2e:expr, { $($r2f:tt)* };)* }
     real3 { $($r3:ident = $r3w:literal, $r3n:literal, $r3d:literal, |$r3a:ident, $r3b:ident, $r3c:ident| $r3e:expr, { $($r3f:tt)* };)* }
     map1 { $($m1:ident = $m1w:literal, $m1n:literal, $m1d:literal, real |$m1a:ident| $m1e:expr, int |$m1ia:ident| $m1ie:expr, { $($m1f:tt)* };)* }
     map2 { $($m2:ident = $m2w:literal, $m2n:literal, $m2d:literal, real |$m2a:ident, $m2b:ident| $m2e:expr, int |$m2ia:ident, $m2ib:ident| $m2ie:expr, { $($m2f:tt)* };)* }
     map3 { $($m3:ident = $m3w:literal, $m3n:literal, $m3d:literal, real |$m3a:ident, $m3b:ident, $m3c:ident| $m3e:expr, int |$m3ia:ident, $m3ib:ident, $m3ic:ident| $m3ie:expr, { $($m3f:tt)* };)* }
     int1 { $($i1:ident = $i1w:literal, $i1n:literal, $i1d:literal, |$i1a:ident| $i1e:expr, { $($i1f:tt)* };)* }
     int2 { $($i2:ident = $i2w:literal, $i2n:literal, $i2d:literal, |$i2a:ident, $i2b:ident| $i2e:expr, { $($i2f:tt)* };)* }
     test1 { $($t1:ident = $t1w:literal, $t1n:literal, $t1d:literal, real |$t1a:ident| $t1e:expr, int |$t1ia:ident| $t1ie:expr, { $($t1f:tt)* };)* }
     test2 { $($t2:ident = $t2w:literal, $t2n:literal, $t2d:literal, real |$t2a:ident, $t2b:ident| $t2e:expr, int |$t2ia:ident, $t2ib:ident| $t2ie:expr, { $($t2f:tt)* };)* }
     other { $($o:ident = $ow:literal, $on:literal, $od:literal, { $($of:tt)* };)* }
    ) => {
        /// A primitive op. The discriminant is its id on the wire.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u16)]
        pub enum Op {
            $(#[doc = $r1d] $r1 = $r1w,)* $(#[doc = $r2d] $r2 = $r2w,)* $(#[doc = $r3d] $r3 = $r3w,)* $(#[doc = $m1d] $m1 = $m1w,)* $(#[doc = $m2d] $m2 = $m2w,)*
            $(#[doc = $m3d] $m3 = $m3w,)* $(#[doc = $i1d] $i1 = $i1w,)* $(#[doc = $i2d] $i2 = $i2w,)* $(#[doc = $t1d] $t1 = $t1w,)*
            $(#[doc = $t2d] $t2 = $t2w,)* $(#[doc = $od] $o = $ow,)*
        }


        impl Op {
            /// Every op, in the order of the table.
            pub const ALL: &[Op] = &[$(Op::$r1,)* $(Op::$r2,)* $(Op::$r3,)* $(Op::$m1,)* $(Op::$m2,)* $(Op::$m3,)* $(Op::$i1,)* $(Op::$i2,)* $(Op::$t1,)* $(Op::$t2,)* $(Op::$o,)*];
        }

        /// The name of each op, in the order of the table.
        const NAMES: &[&str] = &[$($r1n,)* $($r2n,)* $($r3n,)* $($m1n,)* $($m2n,)* $($m3n,)* $($i1n,)* $($i2n,)* $($t1n,)* $($t2n,)* $($on,)*];
    };
}

op_table!(define_ops);

/// Wire ids stay below this.
pub const WIRE_ID_MAX: usize = 512;
const NO_OP: u8 = u8::MAX;

/// The position in the table of each wire id.
static INDEX: [u8; WIRE_ID_MAX] = {
    let mut index = [NO_OP; WIRE_ID_MAX];
    let mut i = 0;
    while i < Op::ALL.len() {
        let id = Op::ALL[i] as usize;
        assert!(index[id] == NO_OP);
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
    /// The op's name: PyTorch's, where PyTorch has the op.
    pub fn name(self) -> &'static str {
        NAMES[self.index()]
    }
}
