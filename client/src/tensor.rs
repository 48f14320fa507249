//! Operations on tensor handles: reading them, aliases and views, in-place operations, and ops that make new tensors.

use crate::error::Result;
use crate::handle::{AutogradMeta, Binding, CachedView, Edge, MaterializedView, Node, Tensor, View};
use crate::scope::{Scope, copied};
use crate::session::{ClientSession, InPlaceOperation};
use crate::storage::{Attachment, Storage, StorageVersion};
use crate::strides::{MemoryLayout, Strides, ViewOps, is_contiguous, layout_after, repeats_elements};
use crate::tape::{grad_enabled, next_number};
use crate::value::TensorValue;
use crate::view::Repeats;
use gt_ops::error::Result as OpResult;
use gt_ops::instruction::SliceSpec;
use gt_ops::row::{Class, ResultDType};
use gt_ops::{Arg, Attrs, DType, ErrorKind, Graph, Meta, Op, OpError, Scalar, Val, build};
use std::sync::Arc;

/// The value and node that an in-place operation replaced, and what a view had computed of them: to be dropped when no
/// lock is held, as freeing may wait.
#[must_use = "to be dropped outside every lock"]
pub struct Replaced {
    _value: Option<Arc<TensorValue>>,
    _node: Option<Arc<Node>>,
    _view: Option<CachedView>,
    /// The storage that was written, unless no other handle has it.
    storage: Option<Arc<Storage>>,
}

impl Replaced {
    /// Drops what was replaced, and writes the new elements to the memory of the host language that shows them. Waits
    /// for them if there is any.
    ///
    /// # Errors
    /// Those of fetching them.
    pub fn finish(mut self) -> Result<()> {
        let storage = self.storage.take();
        drop(self);
        storage.map_or(Ok(()), |storage| storage.show_on_host())
    }
}

impl Scope {
    /// Adds `tensor` as an operand.
    ///
    /// # Errors
    /// A tensor of another session; as [`Tensor::resolve`].
    pub fn add(&mut self, tensor: &Tensor) -> Result<Val> {
        let (value, node) = tensor.operand()?;
        self.push_operand(value, node)
    }

    /// A handle on the tensor of `val`.
    pub fn tensor(&self, val: Val) -> Tensor {
        let (mut value, node) = self.parts(val);
        if self.is_operand(val) {
            value = TensorValue::independent(value);
        }
        value.set_constant(false);
        Tensor::new(value, node)
    }
}

/// The node of a binding, if gradients flow to it.
#[inline]
fn tracked(node: &Option<Arc<Node>>) -> Option<&Arc<Node>> {
    node.as_ref().filter(|node| node.requires_grad())
}

/// After an in-place operation, the new node keeps the gradient if the old one did.
fn hand_over(old: &Option<Arc<Node>>, new: &Option<Arc<Node>>) {
    if let (Some(old), Some(new)) = (old, new)
        && !Arc::ptr_eq(old, new)
    {
        old.hand_over(new);
    }
}

/// Calls a builder on tensors of one session, and `take` on its result.
///
/// # Errors
/// No tensors at all, tensors of different sessions, the builder's error.
pub fn build_from<T, R>(
    tensors: &[&Tensor],
    build: impl FnOnce(&mut dyn Graph, &[Val]) -> OpResult<T>,
    take: impl FnOnce(&Scope, T) -> R,
) -> Result<R> {
    let Some(first) = tensors.first() else {
        return Err(OpError::runtime("expected a non-empty list of Tensors").into());
    };
    let mut scope = Scope::new(&first.session());
    let vals = tensors.iter().map(|t| scope.add(t)).collect::<Result<Vec<_>>>()?;
    let outcome = build(&mut scope, &vals);
    scope.finish(outcome, take)
}

impl Tensor {
    /// The value and node that the handle is bound to.
    ///
    /// # Errors
    /// A view of a changed tensor is computed again, which fails if the session has ended.
    #[inline]
    pub fn resolve(&self) -> Result<(Arc<TensorValue>, Option<Arc<Node>>)> {
        Ok(match &self.binding {
            Binding::Own(value, node) => (value.clone(), tracked(node).cloned()),
            Binding::Shared(storage, autograd) => (storage.read()?.0, autograd.node()),
            Binding::View(view) => {
                let current = view.read()?;
                (current.value, current.node)
            }
        })
    }

    /// The value and node that an operation takes. A view that was taken without recording shows that it requires a
    /// gradient: what is computed from it does, too, but no gradient arrives anywhere.
    fn operand(&self) -> Result<(Arc<TensorValue>, Option<Arc<Node>>)> {
        let (value, node) = self.resolve()?;
        if node.is_none() && self.is_view() && grad_enabled() && self.shows_requires_grad() {
            let nowhere = Node::leaf(*value.meta(), true);
            return Ok((value, Some(nowhere)));
        }
        Ok((value, node))
    }

    /// The node that a hook is registered on. No gradient arrives at that of a view that requires one as its base does
    /// and was taken without recording.
    pub fn hooked_node(&self) -> Option<Arc<Node>> {
        self.node().or_else(|| self.shows_requires_grad().then(|| Node::leaf(self.meta(), true)))
    }

    /// An independent handle on the current value and node, which no later in-place operation changes.
    ///
    /// # Errors
    /// As [`Tensor::resolve`].
    pub fn snapshot(&self) -> Result<Tensor> {
        self.resolve().map(|(value, node)| Tensor::new(value, node))
    }

    /// The value that the handle is bound to.
    ///
    /// # Errors
    /// As [`Tensor::resolve`].
    pub fn value(&self) -> Result<Arc<TensorValue>> {
        self.resolve().map(|(value, _)| value)
    }

    /// The shape and dtype.
    #[inline]
    pub fn meta(&self) -> Meta {
        match &self.binding {
            Binding::Own(value, _) => *value.meta(),
            Binding::Shared(storage, _) => storage.with_value(|v| *v.meta()),
            Binding::View(view) => view.meta,
        }
    }

    /// The session it lives in.
    pub fn session(&self) -> Arc<ClientSession> {
        match &self.binding {
            Binding::Own(value, _) => value.session().clone(),
            Binding::Shared(storage, _) => storage.with_value(|v| v.session().clone()),
            Binding::View(view) => view.base.with_value(|v| v.session().clone()),
        }
    }

    /// The node on the tape, if gradients flow to the tensor.
    #[inline]
    pub fn node(&self) -> Option<Arc<Node>> {
        match &self.binding {
            Binding::Own(_, node) => tracked(node).cloned(),
            Binding::Shared(_, autograd) => autograd.node(),
            Binding::View(view) => view.node(),
        }
    }

    /// Whether gradients flow to it.
    pub fn requires_grad(&self) -> bool {
        match &self.binding {
            Binding::Own(_, node) => tracked(node).is_some(),
            _ => self.node().is_some(),
        }
    }

    /// The answer of PyTorch for `requires_grad`: a view also has that of the tensor of which it is a view, even where
    /// no gradient flows from one to the other.
    pub fn shows_requires_grad(&self) -> bool {
        let base_does = match &self.binding {
            Binding::View(view) => !view.is_detached() && view.autograd.node().is_some(),
            _ => false,
        };
        base_does || self.requires_grad()
    }

    /// Whether it is a leaf: no recorded op made it.
    pub fn is_leaf(&self) -> bool {
        self.node().is_none_or(|n| n.is_leaf())
    }

    /// The node, also that of a leaf that requires no gradient.
    fn any_node(&self) -> Option<Arc<Node>> {
        match &self.binding {
            Binding::Own(_, node) => node.clone(),
            Binding::Shared(_, autograd) => autograd.any_node(),
            Binding::View(view) if view.is_detached() => view.autograd.any_node(),
            Binding::View(_) => self.node(),
        }
    }

    fn set_node(&mut self, node: Option<Arc<Node>>) -> Option<Arc<Node>> {
        match &mut self.binding {
            Binding::Own(_, own) => std::mem::replace(own, node),
            Binding::Shared(_, autograd) => autograd.replace(node),
            Binding::View(view) if view.is_detached() => view.autograd.replace(node),
            Binding::View(view) => {
                // Only the view becomes a leaf or leaves the tape; the base keeps its node.
                let detached = view.with_autograd(AutogradMeta::of(node, view.autograd.untracked));
                let old = std::mem::replace(&mut **view, detached);
                old.cached().node
            }
        }
    }

    /// Sets `requires_grad` of a leaf. Returns the old node, to be dropped outside every lock.
    ///
    /// # Errors
    /// A tensor that is not a leaf, or whose dtype is not floating.
    pub fn set_requires_grad(&mut self, on: bool) -> Result<Option<Arc<Node>>> {
        if on == self.requires_grad() {
            return Ok(None);
        }
        if !self.is_leaf() {
            return Err(OpError::runtime(
                "you can only change requires_grad flags of leaf variables. \
                 If you want to use a computed variable in a subgraph that doesn't require differentiation use var_no_grad = var.detach().",
            )
            .into());
        }
        let meta = self.meta();
        if on && !meta.dtype.is_inexact() {
            return Err(
                OpError::runtime("only Tensors of floating point and complex dtype can require gradients").into()
            );
        }
        match self.any_node().filter(|node| node.is_leaf()) {
            Some(leaf) => {
                leaf.set_leaf(on, meta);
                Ok(None)
            }
            None => Ok(self.set_node(on.then(|| Node::leaf(meta, true)))),
        }
    }

    /// Another handle on the same storage that is off the tape, as `detach()` gives. In-place operations through an
    /// `untracked` one, as `x.data` gives, leave saved values valid.
    pub fn alias(&mut self, untracked: bool) -> Tensor {
        let binding = match &self.binding {
            Binding::View(view) => Binding::View(Box::new(view.with_autograd(AutogradMeta::of(None, untracked)))),
            _ => Binding::Shared(self.share().0, AutogradMeta::of(None, untracked)),
        };
        Tensor { binding }
    }

    /// Detaches the handle from the tape, as `detach_()` does. Returns the old node, to be dropped outside every lock.
    pub fn detach_in_place(&mut self) -> Option<Arc<Node>> {
        match self.any_node().filter(|node| node.is_leaf()) {
            Some(leaf) => {
                leaf.set_leaf(false, self.meta());
                None
            }
            None => self.set_node(None),
        }
    }

    /// A copy, through which gradients flow, as `clone()` gives. Values are immutable, so no bytes are copied.
    ///
    /// # Errors
    /// As [`Tensor::resolve`].
    pub fn copied(&self) -> Result<Tensor> {
        let (value, node) = self.operand()?;
        let (value, node) = copied(value, node);
        Ok(Tensor::new(value, node))
    }

    /// The same tensor with `strides`, as if PyTorch had its elements in that order in memory.
    ///
    /// # Errors
    /// As [`Tensor::resolve`].
    pub fn laid_out(mut self, strides: Strides) -> Result<Tensor> {
        let (value, node) = self.resolve()?;
        let (base, autograd) = self.share();
        value.version_counter().view_of(base.epoch());
        let version = base.current().1;
        let (meta, current) = (*value.meta(), CachedView::new(MaterializedView { value, node, version }));
        let layout = MemoryLayout { strides, offset: 0, in_order: false };
        let view = View::new(base, autograd, (ViewOps::new(), 0), (meta, layout), current);
        Ok(Tensor { binding: Binding::View(Box::new(view)) })
    }

    /// The strides that PyTorch would have.
    pub fn strides(&self) -> Strides {
        match &self.binding {
            Binding::View(view) => view.layout.strides,
            _ => self.meta().shape.contiguous_strides(),
        }
    }

    /// The index of the first element in the memory that PyTorch would have.
    pub fn storage_offset(&self) -> isize {
        match &self.binding {
            Binding::View(view) => view.layout.offset,
            _ => 0,
        }
    }

    pub(crate) fn memory_layout(&self) -> MemoryLayout {
        match &self.binding {
            Binding::View(view) => view.layout,
            _ => MemoryLayout { strides: self.strides(), offset: 0, in_order: true },
        }
    }

    /// Whether PyTorch would have the elements in row-major order without gaps.
    pub fn is_contiguous(&self) -> bool {
        match &self.binding {
            Binding::View(view) => is_contiguous(&view.meta.shape, &view.layout.strides),
            _ => true,
        }
    }

    /// A number that all handles on the same storage have in common, and no other storage that exists.
    pub fn storage_key(&mut self) -> usize {
        let storage = self.share().0;
        Arc::as_ptr(&storage) as usize
    }

    /// The object that was attached to its storage.
    pub fn attachment(&mut self) -> Option<Attachment> {
        self.share().0.attachment()
    }

    /// Attaches an object to its storage, with which it is dropped. Returns the former one.
    #[must_use = "to be dropped outside every lock"]
    pub fn attach(&mut self, attachment: Attachment) -> Option<Attachment> {
        self.share().0.attach(attachment)
    }

    /// The tensor of which it is a view, off the tape; `None` if it is no view.
    pub fn base(&self) -> Option<Tensor> {
        match &self.binding {
            Binding::View(view) => {
                Some(Tensor { binding: Binding::Shared(view.base.clone(), AutogradMeta::of(None, false)) })
            }
            _ => None,
        }
    }

    /// Whether it is a view of another tensor.
    pub fn is_view(&self) -> bool {
        matches!(self.binding, Binding::View(_))
    }

    /// Whether it is a view through which gradients may flow to another tensor.
    pub fn is_tracked_view(&self) -> bool {
        matches!(&self.binding, Binding::View(view) if !view.is_detached())
    }

    /// Whether one element of the base may appear at several indices, as after `expand()`.
    pub fn repeats_elements(&self) -> bool {
        match &self.binding {
            Binding::View(view) => {
                let gathered = view.ops.iter().any(|op| op.index.is_some());
                gathered || repeats_elements(&view.meta.shape, &view.layout.strides)
            }
            _ => false,
        }
    }

    /// Prepares a view of movement ops. This part may wait; [`Tensor::view`], which needs `&mut self`, does not.
    ///
    /// # Errors
    /// The builder's error.
    pub fn plan_view(&self, build: impl FnOnce(&mut dyn Graph, Val) -> OpResult<Val>) -> Result<PlannedView> {
        let (value, node, version) = self.versioned()?;
        let mut scope = Scope::new(value.session());
        let v = scope.push(value, node);
        self.plan_in(&mut scope, v, version, |g| build(g, v))
    }

    /// As [`Tensor::plan_view`], in a scope whose operand `this` is this tensor. The builder may compute indices of
    /// gathers from other operands.
    ///
    /// # Errors
    /// The builder's error.
    pub fn plan_view_in(
        &self,
        mut scope: Scope,
        this: Val,
        build: impl FnOnce(&mut dyn Graph) -> OpResult<Val>,
    ) -> Result<PlannedView> {
        let version = self.storage_version();
        self.plan_in(&mut scope, this, version, build)
    }

    fn plan_in(
        &self,
        scope: &mut Scope,
        this: Val,
        version: StorageVersion,
        build: impl FnOnce(&mut dyn Graph) -> OpResult<Val>,
    ) -> Result<PlannedView> {
        scope.record_view(this, self.memory_layout(), self.is_view());
        let outcome = build(scope);
        let ((value, node), view) = scope.finish_view(outcome)?;
        let (ops, layout) = view.map_or((ViewOps::new(), None), |view| (view.ops, view.layout));
        Ok(PlannedView { value, node, ops, layout, version })
    }

    /// The value, its node and the storage's version.
    fn versioned(&self) -> Result<(Arc<TensorValue>, Option<Arc<Node>>, StorageVersion)> {
        Ok(match &self.binding {
            Binding::Own(value, node) => (value.clone(), tracked(node).cloned(), StorageVersion::default()),
            Binding::Shared(storage, autograd) => {
                let (value, version) = storage.read()?;
                (value, autograd.node(), version)
            }
            Binding::View(view) => {
                let current = view.read()?;
                (current.value, current.node, current.version)
            }
        })
    }

    /// The version of the storage whose value an operation has just read.
    fn storage_version(&self) -> StorageVersion {
        match &self.binding {
            Binding::Own(..) => StorageVersion::default(),
            Binding::Shared(storage, _) => storage.version(),
            Binding::View(view) => view.base.version(),
        }
    }

    /// Prepares several views, as [`Tensor::plan_view_in`] prepares one. `bases` are the first operands of the scope.
    /// Returns each view with the index of the tensor that it is a view of.
    ///
    /// # Errors
    /// The builder's error.
    pub fn plan_views(
        mut scope: Scope,
        bases: &[&Tensor],
        build: impl FnOnce(&mut dyn Graph) -> OpResult<Vec<Val>>,
    ) -> Result<Vec<(usize, PlannedView)>> {
        let versions: Vec<_> = bases.iter().map(|base| base.storage_version()).collect();
        scope.record_steps();
        let outcome = build(&mut scope);
        scope.finish(outcome, |scope, vals| {
            let plan = |val: Val| {
                let (value, node) = scope.parts(val);
                let chain = scope.view_ops(val).filter(|(base, _)| (base.0 as usize) < bases.len());
                let Some((base, chain)) = chain else {
                    let (ops, version) = (ViewOps::new(), StorageVersion::default());
                    return (0, PlannedView { value, node, ops, layout: None, version });
                };
                let base = base.0 as usize;
                let (mut layout, mut meta) = (Some(bases[base].memory_layout()), bases[base].meta());
                for (op, to) in &chain {
                    layout = layout.and_then(|layout| layout_after(&meta, &layout, op));
                    meta = *to;
                }
                let ops = chain.into_iter().map(|(op, _)| op).collect();
                (base, PlannedView { value, node, ops, layout, version: versions[base] })
            };
            vals.into_iter().map(plan).collect()
        })
    }

    /// The planned view, which shares this handle's storage; an independent tensor where PyTorch would have to copy.
    pub fn view(&mut self, plan: PlannedView) -> Tensor {
        let PlannedView { value, node, ops, layout, version } = plan;
        let Some(layout) = layout else { return Tensor::new(value, node) };
        if ops.is_empty() {
            return self.same();
        }
        let reads_bits = ops.iter().any(|op| op.op == Op::Bitcast);
        let mut ops: (ViewOps, usize) = match &self.binding {
            Binding::View(view) => (view.ops.iter().cloned().chain(ops).collect(), view.tracked_from),
            _ => (ops, 0),
        };
        let (base, mut autograd) = self.share();
        if reads_bits {
            // No gradient flows between elements and their bits, but one may flow to what is written to the bits.
            (ops.1, autograd) = (ops.0.len(), AutogradMeta::of(None, false));
        }
        value.version_counter().view_of(base.epoch());
        let (meta, current) = (*value.meta(), CachedView::new(MaterializedView { value, node, version }));
        Tensor { binding: Binding::View(Box::new(View::new(base, autograd, ops, (meta, layout), current))) }
    }

    /// Turns the handle into `view`, a view of it, as `t_()` does. A leaf stays one. If that is not `recorded`, hooks
    /// on a view are forgotten, as in PyTorch. Returns the old handle, to be dropped outside every lock.
    pub fn become_view(&mut self, view: Tensor, recorded: bool) -> Tensor {
        // Looked at before the write is counted, after which a view has a new node.
        let (mut view, node) = (view, self.any_node());
        self.count_in_place();
        if let Binding::View(next) = &view.binding {
            next.renew();
        }
        if let Some(leaf) = node.clone().filter(|node| node.is_leaf()) {
            leaf.set_leaf(leaf.requires_grad(), view.meta());
            view.binding = match view.binding {
                Binding::Own(value, _) => Binding::Own(value, Some(leaf)),
                Binding::View(own) => {
                    let autograd = AutogradMeta::of(Some(leaf), own.autograd.untracked);
                    Binding::View(Box::new(own.with_autograd(autograd)))
                }
                same => same,
            };
        } else if let (false, Binding::View(own), Binding::View(next)) = (recorded, &self.binding, &view.binding)
            && !own.is_detached()
        {
            next.forget_node(node);
        } else {
            let former = node.filter(|node| node.shows_retained_grad() || node.grad().is_some());
            if let (Some(former), Some(node)) = (former, view.node()) {
                node.shows_grad_of(former);
            }
        }
        std::mem::replace(self, view)
    }

    /// Whether it has all elements of its storage.
    pub fn shows_all(&self) -> bool {
        match &self.binding {
            Binding::View(view) => view.base.with_value(|base| base.meta().shape.numel()) == view.meta.shape.numel(),
            _ => true,
        }
    }

    /// Begins an in-place operation, which ends when the result is dropped. Until then the session holds back its
    /// instructions, so that the worker learns that nobody else needs the old value before it computes the new one.
    ///
    /// Hooks on a view, and on views that it is a view of, are not called for what the operation computes, and none of
    /// them retains its gradient, as in PyTorch: it flows to the base.
    pub fn begin_in_place(&self) -> InPlaceOperation {
        let operation = self.session().begin_in_place();
        if let Binding::View(view) = &self.binding
            && !view.is_detached()
            && grad_enabled()
            && let Some(node) = view.cached().node.filter(|node| view.is_observed(node))
        {
            view.forget_node(Some(node));
        }
        match &self.binding {
            Binding::Own(..) => {}
            Binding::Shared(storage, _) => drop(storage.forget_views()),
            // The operation computes the view again, so that it names the base's value, whose last use then shows.
            Binding::View(view) => drop(view.base.forget_views()),
        }
        operation
    }

    /// Whether `other` is a view of the elements that `slice` takes from this tensor: writing it there changes nothing,
    /// gradients included.
    pub fn has_slice_in(&self, slice: &SliceSpec, other: &Tensor) -> bool {
        let Binding::View(other) = &other.binding else { return false };
        let (storage, autograd, ops) = match &self.binding {
            Binding::Own(..) => return false,
            Binding::Shared(storage, autograd) => (storage, autograd, [].as_slice()),
            Binding::View(own) => (&own.base, &own.autograd, own.ops.as_slice()),
        };
        // A view of a detached handle, or one that was taken without recording, would cut the gradient off.
        Arc::ptr_eq(autograd, &other.autograd)
            && (!grad_enabled() || autograd.node().is_none() || other.cached().node.is_some())
            && other.shows_slice(storage, ops, *slice)
    }

    /// Counts an in-place operation that changed nothing. As after any other, gradients of views flow to their base
    /// past views between.
    pub fn count_in_place(&self) {
        match &self.binding {
            Binding::Own(value, _) => value.version_counter().count(),
            Binding::Shared(storage, autograd) => storage.count_in_place(!autograd.untracked),
            Binding::View(view) => view.base.count_in_place(!view.autograd.untracked),
        }
    }

    /// Checks that an in-place operation is allowed.
    ///
    /// # Errors
    /// A leaf that requires a gradient, or a view of one, while recording is on.
    pub fn check_in_place(&self) -> Result<()> {
        if !grad_enabled() {
            return Ok(());
        }
        if let Binding::View(view) = &self.binding
            && !view.is_detached()
            && view.autograd.node().is_some_and(|n| n.is_leaf())
        {
            return Err(OpError::runtime(
                "a view of a leaf Variable that requires grad is being used in an in-place operation.",
            )
            .into());
        }
        if self.node().is_some_and(|n| n.is_leaf()) {
            return Err(
                OpError::runtime("a leaf Variable that requires grad is being used in an in-place operation.").into()
            );
        }
        Ok(())
    }

    /// Prepares binding the handle to the result of an in-place operation. This part may wait; [`Tensor::rebind`],
    /// which needs `&mut self`, does not. `since` is the sequence number at which the operation began; the default is
    /// the number of the op that made the result.
    ///
    /// # Errors
    /// A result of another shape, or of a dtype that does not convert to the tensor's; as [`Tensor::check_in_place`];
    /// a view that shows one element several times, if that is refused.
    pub fn plan_rebind(&self, result: Tensor, since: Option<u64>, repeats: Repeats) -> Result<PlannedRebind> {
        self.check_in_place()?;
        let (old, new) = (self.meta(), result.meta());
        if old.shape != new.shape {
            return Err(OpError::runtime(format!(
                "output with shape {} doesn't match the broadcast shape {}",
                old.shape, new.shape
            ))
            .into());
        }
        build::check_result_type(new.dtype, old.dtype)?;
        let since = since.unwrap_or_else(|| result.node().map_or_else(next_number, |node| node.number()));
        let result = if new.dtype == old.dtype { result } else { result.apply(|g, v| build::cast(g, v, old.dtype))? };
        let (mut value, mut node) = result.resolve()?;
        if node.as_ref().is_some_and(|node| node.is_leaf()) {
            // The result is another tensor itself, as in `x[...] = leaf`.
            (value, node) = copied(value, node);
        }
        if let Some((axes, _)) = value.batch() {
            let old = match &self.binding {
                Binding::View(view) => view.base.current().0,
                _ => self.value()?,
            };
            let own = old.batch().map(|(own, _)| own.clone()).unwrap_or_default();
            if axes.beyond(&own).iter().any(|axis| axis.is_after(old.id())) {
                return Err(OpError::new(
                    ErrorKind::NotBatched,
                    "vmap: an operation in place would give each element of the batch another value of a tensor that \
                     was made outside of vmap",
                )
                .into());
            }
        }
        if let Binding::View(view) = &self.binding {
            (value, node) = view.write((value, node), repeats)?;
        }
        Ok(self.planned(value, node, since))
    }

    /// As [`Tensor::plan_rebind`], to one number for all elements of a part of another tensor, which no tensor is made
    /// for. None where one has to be, and for a handle that is no such part.
    ///
    /// # Errors
    /// A number out of the dtype's range; as [`Tensor::check_in_place`].
    pub fn plan_fill(&self, number: Scalar) -> Result<Option<PlannedRebind>> {
        let Binding::View(view) = &self.binding else { return Ok(None) };
        self.check_in_place()?;
        Ok(view.write_number(number)?.map(|value| self.planned(value, None, next_number())))
    }

    /// The binding of the handle to `value`, which an in-place operation computed.
    fn planned(&self, value: Arc<TensorValue>, mut node: Option<Arc<Node>>, since: u64) -> PlannedRebind {
        let replaced = match &self.binding {
            Binding::View(view) => view.autograd.any_node(),
            _ => self.any_node(),
        };
        // An overwritten tensor stays on the tape, with a gradient of zeros. A leaf that requires no gradient keeps the
        // one that it has.
        if let (None, Some(old)) = (&node, replaced) {
            let meta = old.meta();
            node = Some(if grad_enabled() && old.requires_grad() { Node::overwritten(old, None, meta) } else { old });
        }
        PlannedRebind { value, node, recorded: grad_enabled(), since }
    }

    /// `written`, which an in-place operation is to bind the handle to, with a node that gives a gradient of zeros to
    /// what it overwrites.
    ///
    /// # Errors
    /// As [`Tensor::resolve`].
    pub fn overwritten_with(&self, written: Tensor) -> Result<Tensor> {
        let whole = match &self.binding {
            Binding::View(view) => view.is_detached() || view.is_whole(),
            _ => true,
        };
        let (value, node) = written.resolve()?;
        let meta = *value.meta();
        let node = match self.node().filter(|_| whole && node.is_some() && grad_enabled()) {
            Some(old) => Some(Node::overwritten(old, node, meta)),
            None => node,
        };
        Ok(Tensor::new(value, node))
    }

    /// Binds the handle, and all handles that share its storage, to the planned value.
    pub fn rebind(&mut self, plan: PlannedRebind) -> Replaced {
        let PlannedRebind { value, node, recorded, since } = plan;
        let recorded_node = recorded && node.is_some();
        let replace = |storage: &Storage, autograd: &AutogradMeta| {
            let since = (!autograd.untracked).then_some(since);
            storage.with_value(|old| {
                old.version_counter().replace(value.version_counter(), since);
                replaced_by(old, &value);
            });
            // Views of an untracked handle get the gradient of what was written to it.
            storage.replace(value.clone(), since, since.is_some() || recorded_node)
        };
        let replace_node = |autograd: &AutogradMeta, node: Option<Arc<Node>>| {
            if !recorded {
                return node;
            }
            let old = autograd.replace(node.clone());
            hand_over(&old, &node);
            old
        };
        let storage = match &self.binding {
            Binding::Own(..) => None,
            Binding::Shared(storage, _) => Some(storage.clone()),
            Binding::View(view) => Some(view.base.clone()),
        };
        let mut view_before = None;
        let (old, old_node) = match &mut self.binding {
            Binding::Own(own, own_node) => {
                own.version_counter().replace(value.version_counter(), Some(since));
                replaced_by(own, &value);
                let old = std::mem::replace(own, value);
                if recorded {
                    hand_over(own_node, &node);
                }
                (old, if recorded { std::mem::replace(own_node, node) } else { node })
            }
            Binding::Shared(storage, autograd) => (replace(storage, autograd), replace_node(autograd, node)),
            Binding::View(view) => {
                view_before = if recorded { view.hand_over() } else { None };
                (replace(&view.base, &view.autograd), replace_node(&view.autograd, node))
            }
        };
        Replaced { _value: Some(old), _node: old_node, _view: view_before, storage }
    }

    /// An independent handle on the current value, with this node.
    ///
    /// # Errors
    /// As [`Tensor::resolve`].
    pub fn at(&self, node: Option<Arc<Node>>) -> Result<Tensor> {
        Ok(Tensor::new(TensorValue::independent(self.value()?), node))
    }

    /// Takes over the storage, shape and dtype of `data`, a detached handle, as `t.data = u` does: in-place operations
    /// on either tensor show in the other. Handles that shared the old storage keep it. Returns the old handle, to be
    /// dropped outside every lock.
    ///
    /// # Errors
    /// A tensor that requires a gradient, and data that is not floating.
    pub fn set_data(&mut self, data: Tensor) -> Result<Tensor> {
        let meta = data.meta();
        let node = self.any_node();
        if let Some(node) = &node {
            if node.requires_grad() && !meta.dtype.is_float() {
                return Err(OpError::runtime(
                    "data set to a tensor that requires gradients must be floating point or complex dtype",
                )
                .into());
            }
            node.set_leaf(node.requires_grad(), meta);
        }
        let autograd = AutogradMeta::of(node, false);
        let binding = match data.binding {
            Binding::Own(value, _) => Binding::Shared(Storage::new(value), autograd),
            Binding::Shared(storage, _) => Binding::Shared(storage, autograd),
            Binding::View(view) => Binding::View(Box::new(view.with_autograd(autograd))),
        };
        Ok(std::mem::replace(self, Tensor { binding }))
    }

    /// How many in-place operations led to the value.
    ///
    /// # Errors
    /// As [`Tensor::resolve`].
    pub fn version(&self) -> Result<u32> {
        Ok(match &self.binding {
            Binding::View(view) => view.base.with_value(|value| value.version_counter().version()),
            _ => self.value()?.version_counter().version(),
        })
    }

    /// The accumulated gradient, the same handle each time.
    pub fn grad(&self) -> Option<Tensor> {
        self.any_node().and_then(|n| n.grad())
    }

    /// The node that holds the gradient.
    pub fn grad_holder(&self) -> Option<Arc<Node>> {
        self.any_node()
    }

    /// Makes the handle able to hold a gradient: one without a node becomes a leaf that requires no gradient.
    pub fn hold_grad(&mut self) {
        if self.any_node().is_none() {
            // There is no old node to be dropped.
            let _ = self.set_node(Some(Node::leaf(self.meta(), false)));
        }
    }

    /// Replaces the accumulated gradient, after [`Tensor::hold_grad`].
    ///
    /// # Errors
    /// A gradient of another shape or dtype.
    pub fn set_grad(&self, grad: Option<Tensor>) -> Result<()> {
        if let Some(grad) = &grad
            && grad.meta() != self.meta()
        {
            return Err(OpError::runtime(format!(
                "assigned grad has data of a different size or type: expected {} {}, but got {} {}",
                self.meta().dtype,
                self.meta().shape,
                grad.meta().dtype,
                grad.meta().shape
            ))
            .into());
        }
        if let Some(node) = self.any_node() {
            node.set_grad(grad);
        }
        Ok(())
    }

    /// Calls a builder on this tensor alone.
    ///
    /// # Errors
    /// The builder's error.
    pub fn apply(&self, build: impl FnOnce(&mut dyn Graph, Val) -> OpResult<Val>) -> Result<Tensor> {
        let mut scope = Scope::new(&self.session());
        let v = scope.add(self)?;
        let outcome = build(&mut scope, v);
        scope.finish(outcome, |s, v| s.tensor(v))
    }

    /// An elementwise op with another tensor. This is the hot path of Python's `+`: two tensors of one shape and dtype
    /// need no scope.
    ///
    /// # Errors
    /// Shapes that do not broadcast, dtypes the op does not take, another session.
    #[inline]
    pub fn binary(&self, op: Op, other: &Tensor) -> Result<Tensor> {
        let (this, that);
        let (a, a_node) = match &self.binding {
            Binding::Own(value, node) => (value, node),
            _ => {
                this = self.operand()?;
                (&this.0, &this.1)
            }
        };
        let (b, b_node) = match &other.binding {
            Binding::Own(value, node) => (value, node),
            _ => {
                that = other.operand()?;
                (&that.0, &that.1)
            }
        };
        let plain = !a.is_batched() && !b.is_batched();
        if plain && a.meta() == b.meta() && Arc::ptr_eq(a.session(), b.session()) {
            let row = op.row();
            if row.class == Class::Elementwise && row.operands == 2 && row.accepts.contains(a.meta().dtype) {
                let (a_node, b_node) = (tracked(a_node), tracked(b_node));
                let recording = (a_node.is_some() || b_node.is_some())
                    && row.grad.is_some()
                    && a.meta().dtype.is_float()
                    && grad_enabled();
                let id = a.session().issue_binary(op, a.id(), b.id(), a.meta().bytes())?;
                let dtype = if row.result == ResultDType::Bool { DType::Bool } else { a.meta().dtype };
                let meta = Meta { shape: a.meta().shape, dtype };
                let value = TensorValue::new(id, meta, a.session());
                let node = recording.then(|| {
                    let edge = |v: &Arc<TensorValue>, node: Option<&Arc<Node>>, bit: u8| Edge::Tensor {
                        meta: *v.meta(),
                        node: node.cloned(),
                        saved: (row.saves.inputs & bit != 0).then(|| v.clone()),
                    };
                    let edges = [edge(a, a_node, 1), edge(b, b_node, 2)].into_iter().collect();
                    Node::op(op, Attrs::None, edges, row.saves.output.then(|| value.clone()), meta)
                });
                return Ok(Tensor::new(value, node));
            }
        }
        self.elementwise(op, &[TensorOperand::This, TensorOperand::Tensor(other)])
    }

    /// An elementwise op with this tensor among its operands.
    ///
    /// # Errors
    /// As [`build::elementwise`].
    pub fn elementwise(&self, op: Op, operands: &[TensorOperand<'_>]) -> Result<Tensor> {
        let is_bool = |operand: &TensorOperand<'_>| match operand {
            TensorOperand::This => self.meta().dtype == DType::Bool,
            TensorOperand::Tensor(t) => t.meta().dtype == DType::Bool,
            TensorOperand::Scalar(s) => matches!(s, Scalar::Bool(_)),
        };
        let beyond = |operand: &TensorOperand<'_>| matches!(operand, TensorOperand::Scalar(Scalar::Unsigned(_)));
        if operands.iter().any(beyond) && operands.iter().all(|operand| is_bool(operand) || beyond(operand)) {
            // No dtype that bools are promoted to has the number.
            return Err(OpError::runtime(
                "Promotion for uint16, uint32, uint64 types is not supported, attempted to promote Bool and UInt64",
            )
            .into());
        }
        if op == Op::Sub && operands.iter().any(is_bool) {
            // A difference takes no bools, though they would be promoted.
            gt_ops::infer::check_accepts(op, DType::Bool)?;
        }
        let mut scope = Scope::new(&self.session());
        let mut args = [Arg::Scalar(Scalar::Bool(false)); 3];
        for (arg, operand) in args.iter_mut().zip(operands) {
            *arg = match operand {
                TensorOperand::This => scope.add(self)?.into(),
                TensorOperand::Tensor(t) => scope.add(t)?.into(),
                TensorOperand::Scalar(s) => (*s).into(),
            };
        }
        let outcome = build::elementwise(&mut scope, op, &args[..operands.len()]);
        scope.finish(outcome, |s, v| s.tensor(v))
    }
}

/// A prepared view: see [`Tensor::plan_view`].
pub struct PlannedView {
    value: Arc<TensorValue>,
    node: Option<Arc<Node>>,
    ops: ViewOps,
    /// None where PyTorch would have to copy.
    layout: Option<MemoryLayout>,
    version: StorageVersion,
}

impl PlannedView {
    /// A copy of the view: a tensor of its own, through which gradients flow.
    pub fn into_copy(self) -> Tensor {
        let PlannedView { value, node, ops, .. } = self;
        let (value, node) = if ops.is_empty() { copied(value, node) } else { (value, node) };
        Tensor::new(value, node)
    }
    /// Whether no op was needed: the view is the tensor itself.
    pub fn is_itself(&self) -> bool {
        self.layout.is_some() && self.ops.is_empty()
    }
    /// Whether PyTorch would have to copy.
    pub fn is_copy(&self) -> bool {
        self.layout.is_none()
    }
}

/// Notes that `new` replaces `old`: if the instruction that computes it fails, it keeps the elements of `old`.
fn replaced_by(old: &Arc<TensorValue>, new: &Arc<TensorValue>) {
    // A value with batch axes has not the shape of one without.
    if !new.is_batched() && !old.is_to_be_uploaded() {
        old.session().replaced(old.id(), new.id());
    }
}

/// A prepared in-place operation: see [`Tensor::plan_rebind`].
pub struct PlannedRebind {
    value: Arc<TensorValue>,
    node: Option<Arc<Node>>,
    recorded: bool,
    since: u64,
}

/// An operand of [`Tensor::elementwise`].
pub enum TensorOperand<'a> {
    /// The tensor the method is called on.
    This,
    /// Another tensor.
    Tensor(&'a Tensor),
    /// A number.
    Scalar(Scalar),
}
