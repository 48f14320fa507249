//! Replaying views: tensors that show elements of a base tensor, and write through to it.
//!
//! Values are immutable, so a view keeps the ops that lead from the base's value to its own. Reading replays them when
//! the base has been replaced since the last time. Writing runs them backwards: each op's inverse puts the new elements
//! into the op's operand, until there is a new value for the base (as PyTorch's functionalization pass does).

use crate::error::Result;
use crate::handle::{MaterializedView, Node, View};
use crate::scope::Scope;
use crate::strides::{ViewOp, repeats_elements};
use crate::tape;
use crate::value::TensorValue;
use gt_ops::{Arg, Attrs, DType, Graph, Op, OpError, Shape, Val};
use std::sync::Arc;

impl ViewOp {
    fn emit(&self, scope: &mut Scope, v: Val) -> gt_ops::error::Result<Val> {
        let index = self.index.as_ref().map(|index| scope.push(index.clone(), None));
        let operands: Vec<Arg> = std::iter::once(v).chain(index).map(Arg::Val).collect();
        scope.emit(self.op, &operands, self.attrs.clone())
    }
}

impl View {
    /// The view's current value and node, replayed if the base has changed.
    pub(crate) fn read(&self) -> Result<MaterializedView> {
        let mut current = self.cached();
        let (value, version) = self.base.read();
        if current.version != version {
            // A replay is always recorded: its result is cached, and the next reader may need the gradient.
            let epoch = self.base.epoch();
            let recording = tape::set_grad_enabled(true);
            let replayed = self.replay(value, version);
            tape::set_grad_enabled(recording);
            let replayed = replayed?;
            if let (Some(old), Some(new)) = (&current.node, &replayed.node) {
                old.hand_over(new);
            }
            current = replayed;
            current.value.version_counter().view_of(epoch);
            // Dropped without the lock: freeing a tensor may wait.
            drop(self.replace_cached(current.clone()));
        }
        if self.is_detached() {
            current.node = self.autograd.node();
        }
        Ok(current)
    }

    fn replay(&self, base: Arc<TensorValue>, version: u64) -> Result<MaterializedView> {
        let mut scope = Scope::new(base.session());
        let base = scope.push(base, None);
        let outcome = self.replay_in(&mut scope, base);
        scope.finish(outcome, |scope, v| {
            let (value, node) = scope.parts(v);
            MaterializedView { value, node, version }
        })
    }

    /// The view's value, computed from that of the base. Gradients flow to the tensor that has the autograd metadata.
    fn replay_in(&self, scope: &mut Scope, base: Val) -> gt_ops::error::Result<Val> {
        let (before, after) = self.ops.split_at(self.tracked_from);
        let tracked = replayed(scope, before, base)?;
        let tracked = scope.parts(tracked).0;
        let tracked = scope.push(tracked, self.autograd.node());
        replayed(scope, after, tracked)
    }

    /// The base's value with the view's elements replaced by `new`, and the node of the tensor that has the autograd
    /// metadata.
    ///
    /// # Errors
    /// A view that shows one element of the base several times, unless all of them are `uniform`.
    pub(crate) fn write(
        &self,
        new: (Arc<TensorValue>, Option<Arc<Node>>),
        uniform: bool,
    ) -> Result<(Arc<TensorValue>, Option<Arc<Node>>)> {
        if !uniform && repeats_elements(&self.meta.shape, &self.layout.strides) {
            return Err(OpError::runtime(
                "unsupported operation: more than one element of the written-to tensor refers to a single memory \
                 location. Please clone() the tensor before performing the operation.",
            )
            .into());
        }
        let base = self.base.read().0;
        let mut scope = Scope::new(base.session());
        let base = scope.push(base, None);
        let new = scope.push(new.0, new.1);
        let (before, after) = self.ops.split_at(self.tracked_from);
        let outcome = (|| {
            let tracked = replayed(&mut scope, before, base)?;
            let tracked = scope.parts(tracked).0;
            let tracked = scope.push(tracked, self.autograd.node());
            let tracked = written(&mut scope, after, tracked, new)?;
            let (value, node) = scope.parts(tracked);
            let whole = scope.push(value, None);
            Ok((written(&mut scope, before, base, whole)?, node))
        })();
        scope.finish(outcome, |scope, (whole, node)| (scope.parts(whole).0, node))
    }
}

/// The result of ops on `v`, one after the other.
fn replayed(scope: &mut Scope, ops: &[ViewOp], v: Val) -> gt_ops::error::Result<Val> {
    ops.iter().try_fold(v, |v, op| op.emit(scope, v))
}

/// `base` with the elements that `ops` show replaced by `new`.
fn written(scope: &mut Scope, ops: &[ViewOp], base: Val, mut new: Val) -> gt_ops::error::Result<Val> {
    let Some((_, first)) = ops.split_last() else { return Ok(new) };
    if ops.iter().any(|op| matches!(op.op, Op::Expand | Op::Gather)) {
        return scattered(scope, ops, base, new);
    }
    let mut operands = vec![base];
    for op in first {
        let operand = operands[operands.len() - 1];
        operands.push(op.emit(scope, operand)?);
    }
    for (op, operand) in ops.iter().zip(&operands).rev() {
        new = write_back(scope, op, *operand, new)?;
    }
    Ok(new)
}

/// `base` with `new` scattered to the positions that `ops` show, for views with an expansion or a gather. The ops
/// applied to `arange` give those positions. Where an op repeats an element, the ops after it may keep one copy; if
/// they keep several, the last write wins.
fn scattered(scope: &mut Scope, ops: &[ViewOp], base: Val, new: Val) -> gt_ops::error::Result<Val> {
    let shape = scope.meta(base).shape;
    let flat = |v: Val, scope: &mut Scope| gt_ops::build::reshape(scope, v, &[-1]);
    let create = Attrs::Create { shape: Shape::new(&[shape.numel()])?, dtype: DType::I64 };
    let counted = scope.emit(Op::Arange, &[0i64.into(), 1i64.into()], create)?;
    let positions = scope.emit(Op::Reshape, &[counted.into()], Attrs::Shape(shape))?;
    let positions = replayed(scope, ops, positions)?;
    let operands = [flat(base, scope)?.into(), flat(positions, scope)?.into(), flat(new, scope)?.into()];
    let written = scope.emit(Op::Scatter, &operands, Attrs::Axis(0))?;
    scope.emit(Op::Reshape, &[written.into()], Attrs::Shape(shape))
}

/// `operand` with the elements that the op took from it replaced by `v`.
fn write_back(
    scope: &mut Scope,
    ViewOp { op, attrs, .. }: &ViewOp,
    operand: Val,
    v: Val,
) -> gt_ops::error::Result<Val> {
    let shape = scope.meta(operand).shape;
    match (op, attrs) {
        (Op::Slice, Attrs::Slice(_)) => scope.emit(Op::SliceScatter, &[Arg::Val(operand), v.into()], attrs.clone()),
        (Op::Permute, Attrs::Permutation(permutation)) => {
            let inverse = gt_ops::grad::inverse_permutation(permutation, shape.rank());
            scope.emit(Op::Permute, &[v.into()], Attrs::Permutation(inverse))
        }
        _ => scope.emit(Op::Reshape, &[v.into()], Attrs::Shape(shape)),
    }
}
