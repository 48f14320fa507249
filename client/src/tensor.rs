//! Operations on tensor handles: reading them, aliases and views, in-place operations, and ops that make new tensors.

use crate::error::Result;
use crate::handle::{AutogradMeta, Binding, Edge, MaterializedView, Node, Tensor, View};
use crate::scope::{Scope, copied};
use crate::session::ClientSession;
use crate::storage::Storage;
use crate::strides::{Strides, ViewOps, is_contiguous, repeats_elements, strides_after};
use crate::tape::{grad_enabled, next_number};
use crate::value::TensorValue;
use gt_ops::error::Result as OpResult;
use gt_ops::row::{Class, ResultDType};
use gt_ops::{Arg, Attrs, DType, Graph, Meta, Op, OpError, Scalar, Val, build};
use std::sync::Arc;

/// The value and node that an in-place operation replaced, to be dropped when no lock is held: freeing may wait.
#[must_use = "to be dropped outside every lock"]
pub struct Replaced {
    _value: Option<Arc<TensorValue>>,
    _node: Option<Arc<Node>>,
}

impl Scope {
    /// Adds `tensor` as an operand.
    ///
    /// # Errors
    /// A tensor of another session; as [`Tensor::resolve`].
    pub fn add(&mut self, tensor: &Tensor) -> Result<Val> {
        let (value, node) = tensor.resolve()?;
        self.push_operand(value, node)
    }

    /// A handle on the tensor of `val`.
    pub fn tensor(&self, val: Val) -> Tensor {
        let (value, node) = self.parts(val);
        if self.is_operand(val) {
            value.version_counter().share();
        }
        Tensor::new(value, node)
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
            Binding::Own(value, node) => (value.clone(), node.clone()),
            Binding::Shared(storage, autograd) => (storage.read().0, autograd.node()),
            Binding::View(view) => {
                let current = view.read()?;
                (current.value, current.node)
            }
        })
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
            Binding::Own(_, node) => node.clone(),
            Binding::Shared(_, autograd) => autograd.node(),
            // If the session has ended, the last node still says whether the view requires a gradient.
            Binding::View(view) => match view.read() {
                Ok(current) => current.node,
                Err(_) => view.cached().node,
            },
        }
    }

    /// Whether gradients flow to it.
    pub fn requires_grad(&self) -> bool {
        match &self.binding {
            Binding::Own(_, node) => node.is_some(),
            _ => self.node().is_some(),
        }
    }

    /// Whether it is a leaf: no recorded op made it.
    pub fn is_leaf(&self) -> bool {
        self.node().is_none_or(|n| n.is_leaf())
    }

    fn set_node(&mut self, node: Option<Arc<Node>>) -> Option<Arc<Node>> {
        match &mut self.binding {
            Binding::Own(_, own) => std::mem::replace(own, node),
            Binding::Shared(_, autograd) => autograd.replace(node),
            Binding::View(view) => {
                // Only the view becomes a leaf or leaves the tape; the base keeps its node.
                let mut detached = view.detached(view.autograd.untracked);
                detached.leaf = node;
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
        if on && !meta.dtype.is_float() {
            return Err(
                OpError::runtime("only Tensors of floating point and complex dtype can require gradients").into()
            );
        }
        Ok(self.set_node(on.then(|| Node::leaf(meta))))
    }

    /// Another handle on the same storage that is off the tape, as `detach()` gives. In-place operations through an
    /// `untracked` one, as `x.data` gives, leave saved values valid.
    pub fn alias(&mut self, untracked: bool) -> Tensor {
        let binding = match &self.binding {
            Binding::View(view) => Binding::View(Box::new(view.detached(untracked))),
            _ => Binding::Shared(self.share().0, AutogradMeta::detached(untracked)),
        };
        Tensor { binding }
    }

    /// Detaches the handle from the tape, as `detach_()` does. Returns the old node, to be dropped outside every lock.
    pub fn detach_in_place(&mut self) -> Option<Arc<Node>> {
        self.set_node(None)
    }

    /// A copy, through which gradients flow, as `clone()` gives. Values are immutable, so no bytes are copied.
    ///
    /// # Errors
    /// As [`Tensor::resolve`].
    pub fn copied(&self) -> Result<Tensor> {
        let (value, node) = self.resolve()?;
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
        let current = MaterializedView { value, node, version: base.read().1 };
        Ok(Tensor { binding: Binding::View(Box::new(View::new(base, autograd, ViewOps::new(), strides, current))) })
    }

    /// The strides that PyTorch would have.
    pub fn strides(&self) -> Strides {
        match &self.binding {
            Binding::View(view) => view.strides,
            _ => self.meta().shape.contiguous_strides(),
        }
    }

    /// Whether PyTorch would have the elements in row-major order without gaps.
    pub fn is_contiguous(&self) -> bool {
        match &self.binding {
            Binding::View(view) => is_contiguous(&view.meta.shape, &view.strides),
            _ => true,
        }
    }

    /// Whether it is a view of another tensor.
    pub fn is_view(&self) -> bool {
        matches!(self.binding, Binding::View(_))
    }

    /// Whether one element of the base may appear at several indices, as after `expand()`.
    pub fn repeats_elements(&self) -> bool {
        match &self.binding {
            Binding::View(view) => {
                let gathered = view.ops.iter().any(|op| op.index.is_some());
                gathered || repeats_elements(&view.meta.shape, &view.strides)
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
        self.plan_in(scope, v, version, |g| build(g, v))
    }

    /// As [`Tensor::plan_view`], in a scope whose operand `this` is this tensor. The builder may compute indices of
    /// gathers from other operands.
    ///
    /// # Errors
    /// The builder's error.
    pub fn plan_view_in(
        &self,
        scope: Scope,
        this: Val,
        build: impl FnOnce(&mut dyn Graph) -> OpResult<Val>,
    ) -> Result<PlannedView> {
        let version = self.storage_version()?;
        self.plan_in(scope, this, version, build)
    }

    fn plan_in(
        &self,
        mut scope: Scope,
        this: Val,
        version: u64,
        build: impl FnOnce(&mut dyn Graph) -> OpResult<Val>,
    ) -> Result<PlannedView> {
        scope.record_view(this, self.strides(), self.is_view());
        let outcome = build(&mut scope);
        let ((value, node), view) = scope.finish_view(outcome)?;
        let (ops, strides) = view.map_or((ViewOps::new(), None), |view| (view.ops, view.strides));
        Ok(PlannedView { value, node, ops, strides, version })
    }

    /// The value, its node and the storage's version.
    fn versioned(&self) -> Result<(Arc<TensorValue>, Option<Arc<Node>>, u64)> {
        Ok(match &self.binding {
            Binding::Own(value, node) => (value.clone(), node.clone(), 0),
            Binding::Shared(storage, autograd) => {
                let (value, version) = storage.read();
                (value, autograd.node(), version)
            }
            Binding::View(view) => {
                let current = view.read()?;
                (current.value, current.node, current.version)
            }
        })
    }

    fn storage_version(&self) -> Result<u64> {
        Ok(match &self.binding {
            Binding::Own(..) => 0,
            Binding::Shared(storage, _) => storage.read().1,
            Binding::View(view) => view.read()?.version,
        })
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
        let versions = bases.iter().map(|base| base.storage_version()).collect::<Result<Vec<_>>>()?;
        scope.record_steps();
        let outcome = build(&mut scope);
        scope.finish(outcome, |scope, vals| {
            let plan = |val: Val| {
                let (value, node) = scope.parts(val);
                let chain = scope.view_ops(val).filter(|(base, _)| (base.0 as usize) < bases.len());
                let Some((base, chain)) = chain else {
                    return (0, PlannedView { value, node, ops: ViewOps::new(), strides: None, version: 0 });
                };
                let base = base.0 as usize;
                let (mut strides, mut shape) = (Some(bases[base].strides()), bases[base].meta().shape);
                for (op, to) in &chain {
                    strides = strides.and_then(|s| strides_after(&shape, &s, op));
                    shape = *to;
                }
                let ops = chain.into_iter().map(|(op, _)| op).collect();
                (base, PlannedView { value, node, ops, strides, version: versions[base] })
            };
            vals.into_iter().map(plan).collect()
        })
    }

    /// The planned view, which shares this handle's storage; an independent tensor where PyTorch would have to copy.
    pub fn view(&mut self, plan: PlannedView) -> Tensor {
        let PlannedView { value, node, ops, strides, version } = plan;
        let Some(strides) = strides else { return Tensor::new(value, node) };
        if ops.is_empty() {
            return self.same();
        }
        let ops = match &self.binding {
            // Gradients of the new view end in this view's own leaf node, not in the base's.
            Binding::View(view) if view.leaf.is_some() => return Tensor::new(value, node),
            Binding::View(view) => view.ops.iter().cloned().chain(ops).collect(),
            _ => ops,
        };
        let (base, autograd) = self.share();
        value.version_counter().view_of(base.epoch());
        let current = MaterializedView { value, node, version };
        Tensor { binding: Binding::View(Box::new(View::new(base, autograd, ops, strides, current))) }
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
    /// a view that shows one element several times.
    pub fn plan_rebind(&self, result: Tensor, since: Option<u64>) -> Result<PlannedRebind> {
        self.check_in_place()?;
        let (old, new) = (self.meta(), result.meta());
        if old.shape != new.shape {
            return Err(OpError::runtime(format!(
                "output with shape {} doesn't match the broadcast shape {}",
                old.shape, new.shape
            ))
            .into());
        }
        if new.dtype.category() > old.dtype.category() {
            return Err(OpError::runtime(format!(
                "result type {} can't be cast to the desired output type {}",
                new.dtype.scalar_type_name(),
                old.dtype.scalar_type_name()
            ))
            .into());
        }
        let since = since.unwrap_or_else(|| result.node().map_or_else(next_number, |node| node.number()));
        let result = if new.dtype == old.dtype { result } else { result.apply(|g, v| build::cast(g, v, old.dtype))? };
        let (mut value, mut node) = result.resolve()?;
        if let Binding::View(view) = &self.binding {
            (value, node) = view.write((value, node))?;
        }
        Ok(PlannedRebind { value, node, recorded: grad_enabled(), since })
    }

    /// Binds the handle, and all handles that share its storage, to the planned value.
    pub fn rebind(&mut self, plan: PlannedRebind) -> Replaced {
        let PlannedRebind { value, node, recorded, since } = plan;
        let replace = |storage: &Storage, autograd: &AutogradMeta| {
            let since = (!autograd.untracked).then_some(since);
            storage.with_value(|old| old.version_counter().replace(value.version_counter(), since));
            storage.replace(value.clone(), since)
        };
        let (old, old_node) = match &mut self.binding {
            Binding::Own(own, own_node) => {
                own.version_counter().replace(value.version_counter(), Some(since));
                let old = std::mem::replace(own, value);
                (old, if recorded { std::mem::replace(own_node, node) } else { node })
            }
            Binding::Shared(storage, autograd) => {
                let old = replace(storage, autograd);
                (old, if recorded { autograd.replace(node) } else { node })
            }
            Binding::View(view) => {
                let old = replace(&view.base, &view.autograd);
                (old, if recorded { view.autograd.replace(node) } else { node })
            }
        };
        Replaced { _value: Some(old), _node: old_node }
    }

    /// An independent handle on the current value, with this node.
    ///
    /// # Errors
    /// As [`Tensor::resolve`].
    pub fn at(&self, node: Option<Arc<Node>>) -> Result<Tensor> {
        let value = self.value()?;
        value.version_counter().share();
        Ok(Tensor::new(value, node))
    }

    /// Takes over another tensor's value, shape and dtype, as `t.data = u` does.
    pub fn set_data(&mut self, value: Arc<TensorValue>) -> Replaced {
        value.version_counter().share();
        let old = match &mut self.binding {
            Binding::Own(own, _) => std::mem::replace(own, value),
            Binding::Shared(storage, _) => storage.replace(value, None),
            Binding::View(_) => {
                let old = std::mem::replace(&mut self.binding, Binding::Own(value, None));
                let Binding::View(view) = old else { return Replaced { _value: None, _node: None } };
                view.cached().value
            }
        };
        Replaced { _value: Some(old), _node: None }
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
        self.node().and_then(|n| n.grad())
    }

    /// Replaces the accumulated gradient.
    ///
    /// # Errors
    /// A gradient of another shape or dtype, or a tensor that does not require one.
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
        match self.node() {
            Some(node) => node.set_grad(grad),
            None if grad.is_none() => {}
            None => return Err(OpError::runtime("grad can be assigned to a tensor that requires one").into()),
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
                this = self.resolve()?;
                (&this.0, &this.1)
            }
        };
        let (b, b_node) = match &other.binding {
            Binding::Own(value, node) => (value, node),
            _ => {
                that = other.resolve()?;
                (&that.0, &that.1)
            }
        };
        if a.meta() == b.meta() && Arc::ptr_eq(a.session(), b.session()) {
            let row = op.row();
            if row.class == Class::Elementwise && row.operands == 2 && row.accepts.contains(a.meta().dtype) {
                let recording = (a_node.is_some() || b_node.is_some())
                    && row.grad.is_some()
                    && a.meta().dtype.is_float()
                    && grad_enabled();
                let id = a.session().issue_binary(op, a.id(), b.id(), a.meta().bytes())?;
                let dtype = if row.result == ResultDType::Bool { DType::Bool } else { a.meta().dtype };
                let meta = Meta { shape: a.meta().shape, dtype };
                let value = TensorValue::new(id, meta, a.session());
                let node = recording.then(|| {
                    let edge = |v: &Arc<TensorValue>, node: &Option<Arc<Node>>, bit: u8| Edge::Tensor {
                        meta: *v.meta(),
                        node: node.clone(),
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
    strides: Option<Strides>,
    version: u64,
}

impl PlannedView {
    /// A copy of the view: a tensor of its own, through which gradients flow.
    pub fn into_copy(self) -> Tensor {
        let PlannedView { value, node, ops, .. } = self;
        let (value, node) = if ops.is_empty() { copied(value, node) } else { (value, node) };
        Tensor::new(value, node)
    }
    /// Whether PyTorch would have to copy.
    pub fn is_copy(&self) -> bool {
        self.strides.is_none()
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
