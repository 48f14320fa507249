//! Replaying views: tensors that show elements of a base tensor, and write through to it.
//!
//! Values are immutable, so a view keeps the ops that lead from the base's value to its own. Reading replays them when
//! the base has been replaced since the last time. Writing runs them backwards (as PyTorch's functionalization pass
//! does): the new elements are brought into the order of the base, and one slice scatter, or a scatter by position,
//! gives the base's new value. The worker does that in place where nobody else has the old value, so writing a view
//! costs the same whatever the size of its base.

use crate::error::Result;
use crate::handle::{CachedView, MaterializedView, Node, View};
use crate::scope::Scope;
use crate::storage::{Storage, StorageVersion};
use crate::strides::{MemoryLayout, ViewOp, ViewOps, layout_after, may_overlap, repeats_elements};
use crate::tape::{self, grad_enabled};
use crate::value::TensorValue;
use gt_ops::grad::inverse_permutation;
use gt_ops::infer::{InputMeta, infer};
use gt_ops::instruction::SliceSpec;
use gt_ops::{Arg, Attrs, DType, Graph, Meta, Op, OpError, RANK_MAX, Scalar, Shape, Val, build};
use smallvec::SmallVec;
use std::sync::Arc;

/// The elements that an in-place operation writes to a view that shows some of them several times, as after `expand()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeats {
    /// Different elements, of which none can be chosen: an error.
    Refused,
    /// Elements that are all the same.
    Uniform,
    /// Some of the elements: an element of the base gets what was written to any of its places, to the last of several.
    Changed,
    /// Sums: an element of the base gets what was added to each of its places.
    Added,
}

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
        let (value, version) = self.base.read()?;
        let failures = value.session().failures();
        let mut current = match self.cached() {
            CachedView { value: Some(value), node, version: of, failures: at } if (of, at) == (version, failures) => {
                MaterializedView { value, node, version }
            }
            CachedView { node, version: of, .. } => self.recomputed(value, version, (node, of))?,
        };
        if self.is_detached() {
            current.node = self.autograd.node();
        }
        Ok(current)
    }

    /// The view's current node. Its elements are computed only if gradients flow to a base that has changed.
    pub(crate) fn node(&self) -> Option<Arc<Node>> {
        if self.is_detached() {
            return self.autograd.node();
        }
        let CachedView { node, version, .. } = self.cached();
        if version.on_tape == self.base.version().on_tape {
            return node;
        }
        self.autograd.node()?;
        // If the session has ended, the last node still says whether the view requires a gradient.
        self.read().map_or(node, |current| current.node)
    }

    /// Computes the view of the base's `value` again. The view had node `node` at version `of` of the base.
    fn recomputed(
        &self,
        value: Arc<TensorValue>,
        version: StorageVersion,
        (node, of): (Option<Arc<Node>>, StorageVersion),
    ) -> Result<MaterializedView> {
        let (epoch, changed) = (self.base.epoch(), of.on_tape != version.on_tape);
        // A replay of a changed base is always recorded: its result is cached, and the next reader may need the
        // gradient. Where only the elements were dropped, or written through `x.data`, the view keeps its node.
        let recording = tape::set_grad_enabled(changed);
        let replayed = self.replay(value, version);
        tape::set_grad_enabled(recording);
        let mut replayed = replayed?;
        if !changed {
            replayed.node = node;
        } else if let (Some(old), Some(new)) = (node, &replayed.node) {
            old.hand_over(new);
        }
        replayed.value.version_counter().view_of(epoch);
        // Dropped without the lock: freeing a tensor may wait.
        drop(self.replace_cached(CachedView::new(replayed.clone())));
        Ok(replayed)
    }

    fn replay(&self, base: Arc<TensorValue>, version: StorageVersion) -> Result<MaterializedView> {
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
    /// A view that shows one element of the base several times, if these are [`Repeats::Refused`] or recorded.
    pub(crate) fn write(
        &self,
        (new, node): (Arc<TensorValue>, Option<Arc<Node>>),
        repeats: Repeats,
    ) -> Result<(Arc<TensorValue>, Option<Arc<Node>>)> {
        let tracked_node = self.autograd.node();
        let recorded = grad_enabled() && (node.is_some() || tracked_node.is_some());
        let chooses = !recorded && self.keeps_sizes();
        let expanded = repeats_elements(&self.meta.shape, &self.layout.strides);
        // Where windows overlap, the elements that were not written have no part in the result.
        let overlapping = may_overlap(&self.meta.shape, &self.layout.strides);
        let choice = match repeats {
            Repeats::Changed | Repeats::Added if overlapping => Some(repeats).filter(|_| chooses),
            Repeats::Refused if overlapping && !expanded && chooses => Some(Repeats::Changed),
            _ => None,
        };
        if expanded && choice.is_none() && repeats != Repeats::Uniform {
            return Err(OpError::runtime(
                "unsupported operation: more than one element of the written-to tensor refers to a single memory \
                 location. Please clone() the tensor before performing the operation.",
            )
            .into());
        }
        let base = self.base.read()?.0;
        // The values of views, this one's included, share the memory that is written.
        drop(self.base.forget_views());
        let mut scope = Scope::new(base.session());
        let base = scope.push(base, None);
        let (before, after) = self.ops.split_at(self.tracked_from);
        let outcome = (|| {
            if let Some(choice) = choice {
                let new = scope.push(new, None);
                return Ok((self.write_places(&mut scope, base, new, choice)?, node));
            }
            if after.is_empty() || !recorded {
                let new = scope.push(new, None);
                return Ok((written(&mut scope, &self.ops, base, new)?, node));
            }
            let tracked = replayed(&mut scope, before, base)?;
            let tracked = scope.parts(tracked).0;
            let tracked = scope.push(tracked, tracked_node);
            let new = scope.push(new, node);
            let tracked = written(&mut scope, after, tracked, new)?;
            let (value, node) = scope.parts(tracked);
            let whole = scope.push(value, None);
            Ok((written(&mut scope, before, base, whole)?, node))
        })();
        scope.finish(outcome, |scope, (whole, node)| (scope.parts(whole).0, node))
    }

    /// The base's value with all elements of the view set to one number, without a tensor for it. None where the view
    /// has no elements or is not a part of its base by slices alone, or where gradients flow to it.
    pub(crate) fn write_number(&self, number: Scalar) -> Result<Option<Arc<TensorValue>>> {
        if self.meta.shape.numel() == 0 || (grad_enabled() && self.autograd.node().is_some()) {
            return Ok(None);
        }
        let base = self.base.read()?.0;
        let meta @ Meta { shape, dtype } = *base.meta();
        let Some((shaped, part)) = PartOfBase::of(meta, &self.ops) else { return Ok(None) };
        if dtype.is_composed() || base.is_batched() || part.slice == SliceSpec::corner(shaped) {
            return Ok(None);
        }
        let number = build::numbers::filling(number, self.meta.shape.numel(), dtype)?;
        // The values of views, this one's included, share the memory that is written.
        drop(self.base.forget_views());
        let mut scope = Scope::new(base.session());
        let base = scope.push(base, None);
        let outcome = (|| {
            let base = reshaped(&mut scope, base, shaped)?;
            let part = Attrs::Slice(Box::new(part.slice));
            let written = scope.emit(Op::SliceScatter, &[base.into(), number.into()], part)?;
            reshaped(&mut scope, written, shape)
        })();
        scope.finish(outcome, |scope, whole| Some(scope.parts(whole).0))
    }

    /// Whether each of its elements has the bytes of one element of the base.
    fn keeps_sizes(&self) -> bool {
        let mut size = self.base.with_value(|value| value.meta().dtype.size());
        self.ops.iter().all(|ViewOp { op, attrs, .. }| match (op, attrs) {
            (Op::Bitcast, Attrs::DType(to)) => std::mem::replace(&mut size, to.size()) == to.size(),
            (op, _) => *op != Op::Reinterpret,
        })
    }

    /// `base` with what `new` changes in the view, which [keeps the sizes](View::keeps_sizes) of elements and may show
    /// one at several places: the last change, or the sum of all.
    fn write_places(&self, scope: &mut Scope, base: Val, new: Val, choice: Repeats) -> gt_ops::error::Result<Val> {
        let (Meta { shape, dtype: stored }, dtype) = (scope.meta(base), self.meta.dtype);
        // The same bits under another dtype are moved as the elements are.
        let base = seen_as(scope, base, dtype)?;
        let ops: ViewOps = self.ops.iter().filter(|op| op.op != Op::Bitcast).cloned().collect();
        let old = replayed(scope, &ops, base)?;
        let places = positions(scope, &ops, shape)?;
        let changed = {
            let (old, new) = (bits(scope, old)?, bits(scope, new)?);
            build::elementwise(scope, Op::Ne, &[old.into(), new.into()])?
        };
        let flat = |scope: &mut Scope, v: Val| build::reshape(scope, v, &[-1]);
        let line = flat(scope, base)?;
        let line = if choice == Repeats::Added && dtype != DType::Bool {
            let added = build::elementwise(scope, Op::Sub, &[new.into(), old.into()])?;
            let added = scope.emit(Op::Where, &[changed.into(), added.into(), 0i64.into()], Attrs::DType(dtype))?;
            let operands = [line.into(), flat(scope, places)?.into(), flat(scope, added)?.into()];
            scope.emit(Op::ScatterAdd, &operands, Attrs::Axis(0))?
        } else {
            // An element that nobody shows takes what did not change.
            let unseen = Scalar::Int(shape.numel() as i64);
            let choices = [changed.into(), places.into(), Arg::Scalar(unseen)];
            let places = scope.emit(Op::Where, &choices, Attrs::DType(DType::I64))?;
            let one = build::full(scope, Shape::new(&[1])?, Scalar::Int(0), dtype)?;
            let longer = build::cat(scope, &[line, one], 0)?;
            let operands = [longer.into(), flat(scope, places)?.into(), flat(scope, new)?.into()];
            let longer = scope.emit(Op::Scatter, &operands, Attrs::Axis(0))?;
            let part = SliceSpec::corner(Shape::new(&[shape.numel()])?);
            scope.emit(Op::Slice, &[longer.into()], Attrs::Slice(Box::new(part)))?
        };
        let whole = reshaped(scope, line, shape)?;
        seen_as(scope, whole, stored)
    }

    /// Before the base changes: if the view's node retains its gradient, the node that the next read computes will
    /// instead. Returns what the view had computed, to be dropped outside every lock.
    pub(crate) fn hand_over(&self) -> Option<CachedView> {
        let node = self.cached().node.filter(|node| !node.is_leaf() && node.retains_grad())?;
        let heir = Node::retaining(self.meta);
        node.hand_over(&heir);
        let (version, failures) = (StorageVersion::NEVER, 0);
        Some(self.replace_cached(CachedView { value: None, node: Some(heir), version, failures }))
    }

    /// Makes the next read compute the view again from its base: hooks on its node are not called for what is computed
    /// then, but a gradient that `node` retains goes on.
    pub(crate) fn forget_node(&self, node: Option<Arc<Node>>) {
        drop(self.replace_cached(CachedView { value: None, node, version: StorageVersion::NEVER, failures: 0 }));
    }

    /// Whether a hook is called with, or a tensor retains, a gradient on its way from `node`, that of the view, to the
    /// tensor that has the autograd metadata.
    pub(crate) fn is_observed(&self, node: &Arc<Node>) -> bool {
        let Some(tracked) = self.autograd.node() else { return false };
        let mut next = Some(node.clone());
        while let Some(node) = next.filter(|node| node.number() > tracked.number()) {
            if node.has_hooks() || node.retains_grad() {
                return true;
            }
            // A view has one operand that gradients flow to.
            next = node.inputs().into_iter().flatten().next();
        }
        false
    }

    /// Says that what it has computed of the base is still right, after an in-place operation that changed nothing.
    pub(crate) fn renew(&self) {
        let cached = CachedView { version: self.base.current().1, ..self.cached() };
        drop(self.replace_cached(cached));
    }

    /// Whether it shows each element of the tensor that has the autograd metadata once.
    pub(crate) fn is_whole(&self) -> bool {
        let (before, after) = self.ops.split_at(self.tracked_from);
        let base = self.base.with_value(|value| *value.meta());
        let tracked = before.iter().try_fold(base, |meta, op| meta_after(&meta, op));
        let repeats = after.iter().any(|op| matches!(op.op, Op::Expand | Op::Gather));
        !repeats && tracked.is_some_and(|tracked| tracked.bytes() == self.meta.bytes())
    }

    /// Whether it shows the elements that `slice` takes from the tensor that `ops` make of `storage`'s value, in the
    /// same order.
    pub(crate) fn shows_slice(&self, storage: &Arc<Storage>, ops: &[ViewOp], slice: SliceSpec) -> bool {
        if !Arc::ptr_eq(&self.base, storage) {
            return false;
        }
        let base = self.base.with_value(|value| *value.meta());
        let sizes = slice.sizes;
        let slice = ViewOp { op: Op::Slice, attrs: Attrs::Slice(Box::new(slice)), index: None };
        let ops: ViewOps = ops.iter().cloned().chain([slice]).collect();
        let (own, other) = (StridedElements::of(&base, &self.ops), StridedElements::of(&base, &ops));
        own.zip(other).is_some_and(|(own, other)| own.same_as(&other)) && self.meta.shape.numel() == sizes.numel()
    }
}

/// The bits of elements as those of another dtype of the same size.
fn seen_as(scope: &mut Scope, v: Val, dtype: DType) -> gt_ops::error::Result<Val> {
    if scope.meta(v).dtype == dtype { Ok(v) } else { scope.emit(Op::Bitcast, &[v.into()], Attrs::DType(dtype)) }
}

/// The elements as integers, so that NaN equals itself and -0.0 differs from 0.0.
fn bits(scope: &mut Scope, v: Val) -> gt_ops::error::Result<Val> {
    let integers = match scope.meta(v).dtype {
        DType::F16 | DType::BF16 => DType::I16,
        DType::F32 => DType::I32,
        DType::F64 => DType::I64,
        _ => return Ok(v),
    };
    seen_as(scope, v, integers)
}

/// The result of ops on `v`, one after the other.
fn replayed(scope: &mut Scope, ops: &[ViewOp], v: Val) -> gt_ops::error::Result<Val> {
    ops.iter().try_fold(v, |v, op| op.emit(scope, v))
}

/// `base` with the elements that `ops` show replaced by `new`.
fn written(scope: &mut Scope, ops: &[ViewOp], base: Val, new: Val) -> gt_ops::error::Result<Val> {
    let meta @ Meta { shape, dtype } = scope.meta(base);
    if let Some(at) = ops.iter().position(|op| matches!(op.op, Op::Reinterpret | Op::Bitcast)) {
        let (before, after) = (&ops[..at], &ops[at + 1..]);
        let operand = replayed(scope, before, base)?;
        let shown = ops[at].emit(scope, operand)?;
        let shown = written(scope, after, shown, new)?;
        let operand = scope.emit(ops[at].op, &[shown.into()], Attrs::DType(dtype))?;
        written(scope, before, base, operand)
    } else if ops.is_empty() {
        Ok(new)
    } else if scope.meta(new).shape.numel() == 0 {
        // Nothing is written, but gradients flow to both.
        let (line, none) = (Shape::new(&[shape.numel()])?, Shape::new(&[0])?);
        let (line, new) = (reshaped(scope, base, line)?, reshaped(scope, new, none)?);
        let part = Attrs::Slice(Box::new(SliceSpec::corner(none)));
        let written = scope.emit(Op::SliceScatter, &[line.into(), new.into()], part)?;
        reshaped(scope, written, shape)
    } else if let Some((shaped, part)) = PartOfBase::of(meta, ops) {
        let base = reshaped(scope, base, shaped)?;
        let written = part.write(scope, base, new)?;
        reshaped(scope, written, shape)
    } else {
        let positions = match StridedElements::of(&meta, ops) {
            Some(elements) => elements.positions(scope)?,
            None => positions(scope, ops, shape)?,
        };
        scatter(scope, base, positions, new)
    }
}

/// The positions in the flattened base of the elements that `ops` show, for views with an expansion or a gather: the
/// ops applied to `arange`. Where an op repeats an element, the ops after it may keep one copy; if they keep several,
/// the last write wins.
fn positions(scope: &mut Scope, ops: &[ViewOp], base: Shape) -> gt_ops::error::Result<Val> {
    let create = Attrs::Create { shape: Shape::new(&[base.numel()])?, dtype: DType::I64 };
    let counted = scope.emit(Op::Arange, &[0i64.into(), 1i64.into()], create)?;
    let positions = scope.emit(Op::Reshape, &[counted.into()], Attrs::Shape(base))?;
    replayed(scope, ops, positions)
}

/// `base` with `new` scattered to these positions of its elements.
fn scatter(scope: &mut Scope, base: Val, positions: Val, new: Val) -> gt_ops::error::Result<Val> {
    let shape = scope.meta(base).shape;
    let flat = |v: Val, scope: &mut Scope| gt_ops::build::reshape(scope, v, &[-1]);
    let operands = [flat(base, scope)?.into(), flat(positions, scope)?.into(), flat(new, scope)?.into()];
    let written = scope.emit(Op::Scatter, &operands, Attrs::Axis(0))?;
    scope.emit(Op::Reshape, &[written.into()], Attrs::Shape(shape))
}

/// A view that is one slice of its base, with its axes in another order or merged: it is written by one slice scatter,
/// whose cost is that of the view.
struct PartOfBase<'a> {
    slice: SliceSpec,
    /// The shape before `tail`, and the axis of the base that each axis is; none for an axis of size 1 that was added.
    shape: Shape,
    axes: SmallVec<[Option<usize>; RANK_MAX]>,
    /// The ops from the first reshape on that merges or splits axes, each with the shape of its operand.
    tail: Vec<(Shape, &'a ViewOp)>,
}

impl<'a> PartOfBase<'a> {
    /// The part of a base that `ops` show, and the shape that the base gets first.
    fn of(base: Meta, ops: &'a [ViewOp]) -> Option<(Shape, PartOfBase<'a>)> {
        PartOfBase::of_ops(base, ops).map(|part| (base.shape, part)).or_else(|| {
            let reshapes = ops.iter().take_while(|op| op.op == Op::Reshape).count();
            match ops.get(reshapes.checked_sub(1)?)?.attrs {
                Attrs::Shape(shaped) => {
                    let base = Meta::new(shaped, base.dtype);
                    PartOfBase::of_ops(base, &ops[reshapes..]).map(|part| (shaped, part))
                }
                _ => None,
            }
        })
    }

    fn of_ops(base: Meta, ops: &'a [ViewOp]) -> Option<PartOfBase<'a>> {
        let axes = (0..base.shape.rank()).map(Some).collect();
        let mut part = PartOfBase { slice: SliceSpec::corner(base.shape), shape: base.shape, axes, tail: Vec::new() };
        let mut meta = base;
        for op in ops {
            match (op.op, &op.attrs) {
                (Op::Slice, Attrs::Slice(slice)) if part.tail.is_empty() => part.narrow(slice),
                (Op::Permute, Attrs::Permutation(order)) if part.tail.is_empty() => part.permute(order)?,
                (Op::Reshape | Op::Expand, Attrs::Shape(to)) if to.numel() == meta.shape.numel() => {
                    if !(part.tail.is_empty() && part.insert_axes(to)) {
                        part.tail.push((meta.shape, op));
                    }
                }
                (Op::Permute, Attrs::Permutation(_)) => part.tail.push((meta.shape, op)),
                _ => return None,
            }
            meta = meta_after(&meta, op)?;
        }
        Some(part)
    }

    fn narrow(&mut self, slice: &SliceSpec) {
        for (i, axis) in self.axes.iter().enumerate() {
            if let Some(axis) = *axis {
                let own = &mut self.slice;
                own.start[axis] += own.step[axis] * slice.start[i];
                own.step[axis] *= slice.step[i];
                own.sizes = own.sizes.with_dim(axis, slice.sizes.dims()[i]);
            }
        }
        self.shape = slice.sizes;
    }

    fn permute(&mut self, order: &[u8; RANK_MAX]) -> Option<()> {
        let order = &order[..self.shape.rank()];
        self.axes = order.iter().map(|axis| self.axes[*axis as usize]).collect();
        let dims: SmallVec<[usize; RANK_MAX]> = order.iter().map(|axis| self.shape.dims()[*axis as usize]).collect();
        self.shape = Shape::new(&dims).ok()?;
        Some(())
    }

    /// Applies a reshape that only adds or removes axes of size 1. False if it does more.
    fn insert_axes(&mut self, to: &Shape) -> bool {
        let long = |shape: &Shape| shape.dims().iter().copied().filter(|size| *size != 1).collect::<SmallVec<[_; 8]>>();
        if long(&self.shape) != long(to) {
            return false;
        }
        let mut own = self.axes.iter().zip(self.shape.dims()).filter(|(_, size)| **size != 1).map(|(axis, _)| *axis);
        self.axes = to.dims().iter().map(|size| if *size == 1 { None } else { own.next().flatten() }).collect();
        self.shape = *to;
        true
    }

    /// `base` with the elements of the part replaced by `v`.
    fn write(&self, scope: &mut Scope, base: Val, mut v: Val) -> gt_ops::error::Result<Val> {
        for (from, op) in self.tail.iter().rev() {
            v = match &op.attrs {
                Attrs::Permutation(order) => permuted(scope, v, inverse_permutation(order, from.rank()))?,
                _ => reshaped(scope, v, *from)?,
            };
        }
        // The axes of the base in order, then those of size 1 that were added.
        let mut order: SmallVec<[usize; RANK_MAX]> = (0..self.axes.len()).collect();
        order.sort_by_key(|i| self.axes[*i].unwrap_or(RANK_MAX));
        let long = order.iter().copied().filter(|i| self.shape.dims()[*i] != 1);
        if !long.is_sorted() {
            let mut permutation = [0; RANK_MAX];
            permutation.iter_mut().zip(&order).for_each(|(to, axis)| *to = *axis as u8);
            v = permuted(scope, v, permutation)?;
        }
        v = reshaped(scope, v, self.slice.sizes)?;
        if self.slice == SliceSpec::corner(scope.meta(base).shape) {
            return Ok(v);
        }
        scope.emit(Op::SliceScatter, &[base.into(), v.into()], Attrs::Slice(Box::new(self.slice)))
    }
}

/// The elements of a view made of slices, permutations and reshapes, as positions in the flattened base.
struct StridedElements {
    meta: Meta,
    layout: MemoryLayout,
}

impl StridedElements {
    fn of(base: &Meta, ops: &[ViewOp]) -> Option<StridedElements> {
        let mut meta = *base;
        let mut layout = MemoryLayout { strides: base.shape.contiguous_strides(), offset: 0, in_order: true };
        for op in ops {
            if matches!(&op.attrs, Attrs::Shape(to) if to.numel() != meta.shape.numel()) {
                return None;
            }
            layout = layout_after(&meta, &layout, op)?;
            meta = meta_after(&meta, op)?;
        }
        Some(StridedElements { meta, layout })
    }

    /// Whether these are the same elements of the same dtype in the same order, apart from axes of size 1.
    fn same_as(&self, other: &StridedElements) -> bool {
        let long = |elements: &StridedElements| -> SmallVec<[(usize, isize); RANK_MAX]> {
            let axes = elements.meta.shape.dims().iter().copied().zip(elements.layout.strides);
            axes.filter(|(size, _)| *size != 1).collect()
        };
        let same_start = self.layout.offset == other.layout.offset && self.meta.dtype == other.meta.dtype;
        same_start && long(self) == long(other)
    }

    /// The positions, in the view's shape or one that differs by axes of size 1.
    fn positions(&self, scope: &mut Scope) -> gt_ops::error::Result<Val> {
        let count = |scope: &mut Scope, start: i64, step: isize, size: usize| {
            let create = Attrs::Create { shape: Shape::new(&[size])?, dtype: DType::I64 };
            scope.emit(Op::Arange, &[start.into(), (step as i64).into()], create)
        };
        let mut positions = None;
        for (axis, size) in self.meta.shape.dims().iter().enumerate().filter(|(_, size)| **size != 1) {
            let start = if positions.is_none() { self.layout.offset as i64 } else { 0 };
            let line = count(scope, start, self.layout.strides[axis], *size)?;
            let mut dims: SmallVec<[usize; RANK_MAX]> = smallvec::smallvec![1; self.meta.shape.rank()];
            dims[axis] = *size;
            let line = reshaped(scope, line, Shape::new(&dims)?)?;
            positions = Some(match positions {
                None => line,
                Some(before) => gt_ops::build::elementwise(scope, Op::Add, &[Arg::Val(before), line.into()])?,
            });
        }
        match positions {
            Some(positions) => Ok(positions),
            None => count(scope, self.layout.offset as i64, 1, 1),
        }
    }
}

/// The shape and dtype of the result of a movement op.
fn meta_after(from: &Meta, op: &ViewOp) -> Option<Meta> {
    infer(op.op, &[InputMeta::Tensor(*from)], &op.attrs).ok()
}

fn reshaped(scope: &mut Scope, v: Val, shape: Shape) -> gt_ops::error::Result<Val> {
    if scope.meta(v).shape == shape { Ok(v) } else { scope.emit(Op::Reshape, &[v.into()], Attrs::Shape(shape)) }
}

fn permuted(scope: &mut Scope, v: Val, order: [u8; RANK_MAX]) -> gt_ops::error::Result<Val> {
    scope.emit(Op::Permute, &[v.into()], Attrs::Permutation(order))
}
