//! What users hold: a value, perhaps shared with aliases, and its place on the tape.

use crate::error::Result;
use crate::scope::Scope;
use crate::session::{Session, Value};
use crate::storage::{Place, Storage};
use crate::tape::{self, Edge, Node};
use crate::view::{Seen, Step, Strides, View, is_contiguous, repeats_elements, step_strides};
use gt_ops::row::{Class, ResultDType};
use gt_ops::{Arg, Attrs, DType, Meta, Op, OpError, Scalar, Val, build};
use std::sync::Arc;

/// A tensor as PyTorch's users know it: a handle whose value in-place operations replace.
///
/// Values are functional: an in-place operation computes a new one and binds the handle to it. Handles that PyTorch
/// would let share memory (`data`, `detach()`, views) share a binding here, so that writing through one is seen through
/// the others.
pub struct Tensor {
    binding: Binding,
}

enum Binding {
    /// Nobody else sees this handle's value change.
    Own(Arc<Value>, Option<Arc<Node>>),
    /// Others do.
    Shared(Arc<Storage>, Arc<Place>),
    /// A part of a storage, or all of it in another shape.
    View(Box<View>),
}

/// What an in-place operation replaced, to be dropped when no lock is held: freeing a tensor may wait.
#[must_use = "to be dropped outside every lock"]
pub struct Replaced {
    _value: Option<Arc<Value>>,
    _node: Option<Arc<Node>>,
}

impl Tensor {
    /// A handle on `value`, with its place on the tape if it has one.
    #[inline]
    pub fn new(value: Arc<Value>, node: Option<Arc<Node>>) -> Tensor {
        Tensor { binding: Binding::Own(value, node) }
    }

    /// The value and the place on the tape it is bound to now.
    ///
    /// # Errors
    /// A view of a changed tensor has to be looked up again, which needs the session.
    #[inline]
    pub fn resolve(&self) -> Result<(Arc<Value>, Option<Arc<Node>>)> {
        Ok(match &self.binding {
            Binding::Own(value, node) => (value.clone(), node.clone()),
            Binding::Shared(storage, place) => (storage.read().0, place.node()),
            Binding::View(view) => {
                let seen = view.read()?;
                (seen.value, seen.node)
            }
        })
    }

    /// A handle of its own on the present value and place on the tape: what an op would be given.
    ///
    /// # Errors
    /// As [`Tensor::resolve`].
    pub fn snapshot(&self) -> Result<Tensor> {
        self.resolve().map(|(value, node)| Tensor::new(value, node))
    }

    /// The value it is bound to now.
    ///
    /// # Errors
    /// As [`Tensor::resolve`].
    pub fn value(&self) -> Result<Arc<Value>> {
        self.resolve().map(|(value, _)| value)
    }

    /// Its shape and dtype.
    #[inline]
    pub fn meta(&self) -> Meta {
        match &self.binding {
            Binding::Own(value, _) => *value.meta(),
            Binding::Shared(storage, _) => storage.with_value(|v| *v.meta()),
            Binding::View(view) => view.meta,
        }
    }

    /// The session it lives in.
    pub fn session(&self) -> Arc<Session> {
        match &self.binding {
            Binding::Own(value, _) => value.session().clone(),
            Binding::Shared(storage, _) => storage.with_value(|v| v.session().clone()),
            Binding::View(view) => view.base.with_value(|v| v.session().clone()),
        }
    }

    /// Its place on the tape.
    #[inline]
    pub fn node(&self) -> Option<Arc<Node>> {
        match &self.binding {
            Binding::Own(_, node) => node.clone(),
            Binding::Shared(_, place) => place.node(),
            // Its place moves when the base's does; what was seen last says whether there is one.
            Binding::View(view) => match view.read() {
                Ok(seen) => seen.node,
                Err(_) => view.seen().node,
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

    /// Whether it was made by a user rather than by a recorded op.
    pub fn is_leaf(&self) -> bool {
        self.node().is_none_or(|n| n.is_leaf())
    }

    fn set_node(&mut self, node: Option<Arc<Node>>) -> Option<Arc<Node>> {
        match &mut self.binding {
            Binding::Own(_, own) => std::mem::replace(own, node),
            Binding::Shared(_, place) => place.replace(node),
            Binding::View(view) => {
                // A leaf, or off the tape, all by itself.
                let mut apart = view.detached(view.place.silent);
                apart.leaf = node;
                let old = std::mem::replace(&mut **view, apart);
                old.seen().node
            }
        }
    }

    /// Starts or stops gradients flowing to a leaf. What it returns is dropped outside every lock.
    ///
    /// # Errors
    /// A tensor that is not floating, or that a recorded op made.
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

    /// Another handle on the same value, with a place on the tape of its own, where there is nothing. A backward pass
    /// does not mind what is done in place through a `silent` one.
    pub fn alias(&mut self, silent: bool) -> Tensor {
        let binding = match &self.binding {
            Binding::View(view) => Binding::View(Box::new(view.detached(silent))),
            _ => Binding::Shared(self.share().0, Place::apart(silent)),
        };
        Tensor { binding }
    }

    /// Another handle on the same value and the same place on the tape.
    pub fn same(&mut self) -> Tensor {
        let binding = match &self.binding {
            Binding::View(view) => Binding::View(Box::new(view.same())),
            _ => {
                let (storage, place) = self.share();
                Binding::Shared(storage, place)
            }
        };
        Tensor { binding }
    }

    /// Leaves the tape: no gradient flows to it any more. What it returns is dropped outside every lock.
    pub fn leave_tape(&mut self) -> Option<Arc<Node>> {
        self.set_node(None)
    }

    /// A copy: a handle of its own, through which gradients flow. Values never change, so none is moved.
    ///
    /// # Errors
    /// As [`Tensor::resolve`].
    pub fn copied(&self) -> Result<Tensor> {
        let (value, node) = self.resolve()?;
        let meta = *value.meta();
        value.history().share();
        let node = node.filter(|_| tape::grad_enabled()).map(|node| {
            let edge = Edge::Tensor { meta, node: Some(node), saved: None };
            Node::op(Op::Reshape, Attrs::Shape(meta.shape), smallvec::smallvec![edge], None, meta)
        });
        Ok(Tensor::new(value, node))
    }

    /// The same tensor, whose elements PyTorch would have in another order in memory.
    ///
    /// # Errors
    /// As [`Tensor::resolve`].
    pub fn laid_out(mut self, strides: Strides) -> Result<Tensor> {
        let (value, node) = self.resolve()?;
        let (base, place) = self.share();
        value.history().view_of(base.epoch());
        let seen = Seen { value, node, version: base.read().1 };
        Ok(Tensor { binding: Binding::View(Box::new(View::new(base, place, Arc::new([]), strides, seen))) })
    }

    /// The storage and the place on the tape, which the handle shares from now on.
    fn share(&mut self) -> (Arc<Storage>, Arc<Place>) {
        let shared = match &self.binding {
            Binding::Own(value, node) => (Storage::new(value.clone()), Place::new(node.clone())),
            Binding::Shared(storage, place) => return (storage.clone(), place.clone()),
            Binding::View(view) => return (view.base.clone(), view.place.clone()),
        };
        self.binding = Binding::Shared(shared.0.clone(), shared.1.clone());
        shared
    }

    /// Distances between neighbours along each axis, in elements, as PyTorch would have them.
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

    /// Whether it shows elements of another tensor's storage.
    pub fn is_view(&self) -> bool {
        matches!(self.binding, Binding::View(_))
    }

    /// Whether one element of a base may be seen at several places, as after `expand()`.
    pub fn repeats_elements(&self) -> bool {
        match &self.binding {
            Binding::View(view) => {
                let gathered = view.steps.iter().any(|step| step.index.is_some());
                gathered || repeats_elements(&view.meta.shape, &view.strides)
            }
            _ => false,
        }
    }

    /// Prepares a view of movement ops: everything that may wait.
    ///
    /// # Errors
    /// The builder's.
    pub fn plan_view(
        &self,
        build: impl FnOnce(&mut dyn gt_ops::Graph, Val) -> gt_ops::error::Result<Val>,
    ) -> Result<PlannedView> {
        self.plan_gathered_view(None, |g, v, _| build(g, v))
    }

    /// Prepares a view of movement ops and of gathers by an index, if one is given.
    ///
    /// # Errors
    /// The builder's.
    pub fn plan_gathered_view(
        &self,
        index: Option<&Tensor>,
        build: impl FnOnce(&mut dyn gt_ops::Graph, Val, Option<Val>) -> gt_ops::error::Result<Val>,
    ) -> Result<PlannedView> {
        let (value, node) = self.resolve()?;
        let version = match &self.binding {
            Binding::View(view) => view.seen().version,
            Binding::Own(..) => 0,
            Binding::Shared(storage, _) => storage.read().1,
        };
        let from = *value.meta();
        let mut scope = Scope::new(value.session());
        let v = scope.push(value, node);
        let index = index.map(|index| scope.add(index)).transpose()?;
        scope.keep_trail();
        let outcome = build(&mut scope, v, index);
        let mut strides = Some(self.strides());
        let (value, node, steps) = scope.finish(outcome, |scope, v| {
            let (value, node) = scope.parts(v);
            (value, node, scope.trail().to_vec())
        })?;
        let mut shape = from.shape;
        for (step, to) in &steps {
            strides = strides.and_then(|s| step_strides(&shape, &s, step));
            shape = *to;
        }
        let steps = steps.into_iter().map(|(step, _)| step).collect();
        Ok(PlannedView { value, node, steps, strides, version })
    }

    /// The view that was planned, which shares this handle's binding; a copy where PyTorch's memory would need one.
    pub fn view(&mut self, plan: PlannedView) -> Tensor {
        let PlannedView { value, node, steps, strides, version } = plan;
        let Some(strides) = strides else { return Tensor::new(value, node) };
        if steps.is_empty() {
            return self.same();
        }
        let before = match &self.binding {
            // A view that is a leaf by itself is where its views' gradients end.
            Binding::View(view) if view.leaf.is_some() => return Tensor::new(value, node),
            Binding::View(view) => view.steps.to_vec(),
            _ => Vec::new(),
        };
        let steps: Arc<[Step]> = before.into_iter().chain(steps).collect();
        let (base, place) = self.share();
        value.history().view_of(base.epoch());
        let seen = Seen { value, node, version };
        Tensor { binding: Binding::View(Box::new(View::new(base, place, steps, strides, seen))) }
    }

    /// Whether an in-place operation is allowed now.
    ///
    /// # Errors
    /// A leaf that requires a gradient, or a view of one, while recording.
    pub fn check_in_place(&self) -> Result<()> {
        if !tape::grad_enabled() {
            return Ok(());
        }
        if let Binding::View(view) = &self.binding
            && view.place.node().is_some_and(|n| n.is_leaf())
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

    /// Prepares binding the handle to the result of an in-place operation: everything that may wait. The operation
    /// began when the tape had come to `since`; by default it is the op that made the result.
    ///
    /// # Errors
    /// A result of another shape, or of a dtype that does not convert to the tensor's; what [`Tensor::check_in_place`]
    /// refuses; a view in which one element is seen several times.
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
        let since = since.unwrap_or_else(|| result.node().map_or_else(tape::clock, |node| node.number()));
        let result = if new.dtype == old.dtype { result } else { result.apply(|g, v| build::cast(g, v, old.dtype))? };
        let (mut value, mut node) = result.resolve()?;
        if let Binding::View(view) = &self.binding {
            (value, node) = view.put((value, node))?;
        }
        Ok(PlannedRebind { value, node, recorded: tape::grad_enabled(), since })
    }

    /// Binds the handle, and all that share its binding, to what was planned.
    pub fn rebind(&mut self, plan: PlannedRebind) -> Replaced {
        let PlannedRebind { value, node, recorded, since } = plan;
        let replace = |storage: &Storage, place: &Place| {
            let since = (!place.silent).then_some(since);
            storage.with_value(|old| old.history().replace(value.history(), since));
            storage.replace(value.clone(), since)
        };
        let (old, old_node) = match &mut self.binding {
            Binding::Own(own, own_node) => {
                own.history().replace(value.history(), Some(since));
                let old = std::mem::replace(own, value);
                (old, if recorded { std::mem::replace(own_node, node) } else { node })
            }
            Binding::Shared(storage, place) => {
                let old = replace(storage, place);
                (old, if recorded { place.replace(node) } else { node })
            }
            Binding::View(view) => {
                let old = replace(&view.base, &view.place);
                (old, if recorded { view.place.replace(node) } else { node })
            }
        };
        Replaced { _value: Some(old), _node: old_node }
    }

    /// A handle of its own on the present value, at this place on the tape.
    ///
    /// # Errors
    /// As [`Tensor::resolve`].
    pub fn at(&self, node: Option<Arc<Node>>) -> Result<Tensor> {
        let value = self.value()?;
        value.history().share();
        Ok(Tensor::new(value, node))
    }

    /// Takes over another tensor's value, shape and dtype, as `t.data = u` does.
    pub fn set_data(&mut self, value: Arc<Value>) -> Replaced {
        value.history().share();
        let old = match &mut self.binding {
            Binding::Own(own, _) => std::mem::replace(own, value),
            Binding::Shared(storage, _) => storage.replace(value, None),
            Binding::View(_) => {
                let old = std::mem::replace(&mut self.binding, Binding::Own(value, None));
                let Binding::View(view) = old else { return Replaced { _value: None, _node: None } };
                view.seen().value
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
            Binding::View(view) => view.base.with_value(|value| value.history().version()),
            _ => self.value()?.history().version(),
        })
    }

    /// The accumulated gradient, the same handle each time.
    pub fn grad(&self) -> Option<Tensor> {
        self.node().and_then(|n| n.grad())
    }

    /// Replaces the accumulated gradient.
    ///
    /// # Errors
    /// A gradient of another shape or dtype, or for a tensor without one.
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

    /// One builder call on this tensor alone.
    ///
    /// # Errors
    /// The builder's.
    pub fn apply(
        &self,
        build: impl FnOnce(&mut dyn gt_ops::Graph, Val) -> gt_ops::error::Result<Val>,
    ) -> Result<Tensor> {
        let mut scope = Scope::new(&self.session());
        let v = scope.add(self)?;
        let outcome = build(&mut scope, v);
        scope.finish(outcome, |s, v| s.tensor(v))
    }

    /// An elementwise op with another tensor: the shortest way from a Python `+` to the ring.
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
                    && tape::grad_enabled();
                let id = a.session().issue_binary(op, a.id(), b.id(), a.meta().bytes())?;
                let dtype = if row.result == ResultDType::Bool { DType::Bool } else { a.meta().dtype };
                let meta = Meta { shape: a.meta().shape, dtype };
                let value = Value::new(id, meta, a.session());
                let node = recording.then(|| {
                    let edge = |v: &Arc<Value>, node: &Option<Arc<Node>>, bit: u8| Edge::Tensor {
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
        self.elementwise(op, &[Operand::This, Operand::Tensor(other)])
    }

    /// An elementwise op with this tensor among its operands.
    ///
    /// # Errors
    /// As [`build::elementwise`].
    pub fn elementwise(&self, op: Op, operands: &[Operand<'_>]) -> Result<Tensor> {
        let mut scope = Scope::new(&self.session());
        let mut args = [Arg::Scalar(Scalar::Bool(false)); 3];
        for (arg, operand) in args.iter_mut().zip(operands) {
            *arg = match operand {
                Operand::This => scope.add(self)?.into(),
                Operand::Tensor(t) => scope.add(t)?.into(),
                Operand::Scalar(s) => (*s).into(),
            };
        }
        let outcome = build::elementwise(&mut scope, op, &args[..operands.len()]);
        scope.finish(outcome, |s, v| s.tensor(v))
    }
}

/// A view about to be made: what takes time was done, see [`Tensor::view`].
pub struct PlannedView {
    value: Arc<Value>,
    node: Option<Arc<Node>>,
    steps: Vec<Step>,
    /// None where PyTorch's memory would have to be copied.
    strides: Option<Strides>,
    version: u64,
}

impl PlannedView {
    /// Whether PyTorch would have to copy.
    pub fn is_copy(&self) -> bool {
        self.strides.is_none()
    }
    /// Says what PyTorch's strides are where the steps do not show it.
    pub fn with_strides(self, strides: Strides) -> PlannedView {
        PlannedView { strides: Some(strides), ..self }
    }
}

/// An in-place operation about to take effect: what takes time was done, see [`Tensor::rebind`].
pub struct PlannedRebind {
    value: Arc<Value>,
    node: Option<Arc<Node>>,
    recorded: bool,
    since: u64,
}

/// An operand of [`Tensor::elementwise`].
pub enum Operand<'a> {
    /// The tensor the method is called on.
    This,
    /// Another tensor.
    Tensor(&'a Tensor),
    /// A number.
    Scalar(Scalar),
}
