//! What gradients and composites are written against: something instructions can be emitted to.

use crate::error::Result;
use crate::instruction::{Attrs, Scalar};
use crate::op::Op;
use crate::shape::Meta;

/// A tensor inside one [`Graph`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Val(pub u32);

/// An operand of an op under construction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arg {
    /// A tensor.
    Val(Val),
    /// A number.
    Scalar(Scalar),
}

impl From<Val> for Arg {
    fn from(v: Val) -> Arg {
        Arg::Val(v)
    }
}
impl From<f64> for Arg {
    fn from(f: f64) -> Arg {
        Arg::Scalar(Scalar::Float(f))
    }
}
impl From<i64> for Arg {
    fn from(i: i64) -> Arg {
        Arg::Scalar(Scalar::Int(i))
    }
}
impl From<Scalar> for Arg {
    fn from(s: Scalar) -> Arg {
        Arg::Scalar(s)
    }
}

/// Takes instructions one at a time. The client's emits them to the daemon; others may only look at shapes.
pub trait Graph {
    /// Emits one instruction exactly as given: operands already share the dtype the op computes in
    /// (see [`crate::build`] for promotion).
    ///
    /// # Errors
    /// What [`crate::infer::infer`] refuses.
    fn emit(&mut self, op: Op, inputs: &[Arg], attrs: Attrs) -> Result<Val>;
    /// The shape and dtype of a tensor of this graph.
    fn meta(&self, v: Val) -> Meta;
    /// The same tensor, through which no gradient flows.
    ///
    /// # Errors
    /// As [`Graph::emit`].
    fn detach(&mut self, v: Val) -> Result<Val>;
    /// The seed of the session's random numbers and the stream number of the next random instruction.
    fn next_random(&mut self) -> (u64, u64);
}
