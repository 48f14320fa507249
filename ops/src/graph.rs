//! The interface that gradients and composites emit instructions to.

use crate::error::{OpError, Result};
use crate::instruction::{Attrs, Scalar};
use crate::op::Op;
use crate::shape::{Meta, RANK_MAX};

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

/// The gradient of a function that is recorded as a whole: takes its inputs followed by its results, and the gradients
/// of the results; returns the gradients of the inputs.
pub type FunctionGradient =
    Box<dyn Fn(&mut dyn Graph, &[Val], &[Option<Val>]) -> Result<Vec<Option<Val>>> + Send + Sync>;

/// A sink of instructions. The client's implementation emits them to the daemon; a test's may only infer shapes.
pub trait Graph {
    /// Emits one instruction as it is: its operands already share the dtype that the op computes in (see
    /// [`crate::build`] for promotion).
    ///
    /// # Errors
    /// The errors of [`crate::infer::infer`].
    fn emit(&mut self, op: Op, inputs: &[Arg], attrs: Attrs) -> Result<Val>;
    /// The shape and dtype of a tensor of this graph.
    fn meta(&self, v: Val) -> Meta;
    /// The same tensor, detached: no gradient flows through it.
    ///
    /// # Errors
    /// As [`Graph::emit`].
    fn detach(&mut self, v: Val) -> Result<Val>;
    /// Whether operations on the tensor are recorded for gradients that flow to it.
    fn requires_grad(&self, _v: Val) -> bool {
        false
    }
    /// A copy of a tensor, through which gradients flow: a tensor of its own where `v` existed before the call.
    ///
    /// # Errors
    /// As [`Graph::emit`].
    fn copy(&mut self, v: Val) -> Result<Val> {
        Ok(v)
    }
    /// The distances between neighbours along each axis that PyTorch would have in memory, in elements.
    fn strides(&self, v: Val) -> [isize; RANK_MAX] {
        self.meta(v).shape.contiguous_strides()
    }
    /// The index of the first element in the memory that PyTorch would have.
    fn storage_offset(&self, _v: Val) -> isize {
        0
    }
    /// Says which strides and storage offset PyTorch would give a view, where its ops do not determine them.
    fn set_strides(&mut self, _v: Val, _strides: [isize; RANK_MAX], _offset: isize) {}
    /// Says that the call uses no other tensor that it has made again. So a worker finds instructions that it computes
    /// together with the freeing of their results behind them, and need not write these to memory.
    fn keep_only(&mut self, _v: Val) {}
    /// Whether a tensor is a view of another.
    fn is_view(&self, _v: Val) -> bool {
        false
    }
    /// The seed of the session's random numbers and the stream number of the next random instruction.
    fn next_random(&mut self) -> (u64, u64);
    /// Records `results`, which were computed without a gradient, as those of a function of `inputs` with this
    /// gradient. Returns the recorded results.
    ///
    /// # Errors
    /// As [`Graph::emit`].
    fn record_function(
        &mut self,
        _name: &str,
        _inputs: &[Val],
        results: &[Val],
        _gradient: FunctionGradient,
    ) -> Result<Vec<Val>> {
        Ok(results.to_vec())
    }
    /// The row-major bytes of a tensor. Waits for them.
    ///
    /// # Errors
    /// A failed computation; a graph that only infers shapes.
    fn fetch(&mut self, _v: Val) -> Result<Vec<u8>> {
        Err(OpError::runtime("the elements of this tensor are not known here"))
    }
    /// A tensor with these row-major bytes, as many as `meta` has.
    ///
    /// # Errors
    /// An upload that fails; a graph that only infers shapes.
    fn upload(&mut self, _meta: Meta, _bytes: &[u8]) -> Result<Val> {
        Err(OpError::runtime("elements cannot be uploaded here"))
    }
}
