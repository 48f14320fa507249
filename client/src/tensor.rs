//! What users hold: a value, perhaps shared with aliases, and its place on the tape.

use crate::error::Result;
use crate::scope::{Scope, foreign};
use crate::session::{Session, Value};
use crate::tape::{self, Edge, Node};
use gt_ops::dtype::Promotable;
use gt_ops::table::{Class, ResultDType};
use gt_ops::{Arg, Attrs, DType, Meta, Op, OpError, Scalar, Val, build};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A tensor as PyTorch's users know it: a handle whose value in-place operations replace.
///
/// Values are functional: an in-place operation computes a new one and binds the handle to it. `data` and `detach()`
/// give handles that share the binding, so that writing through one is seen through the other.
pub struct Tensor {
    binding: Binding,
    node: Option<Arc<Node>>,
}

enum Binding {
    /// Nobody else sees this handle's value change.
    Own(Arc<Value>),
    /// Aliases do.
    Shared(Arc<Mutex<Arc<Value>>>),
}

fn lock(shared: &Mutex<Arc<Value>>) -> MutexGuard<'_, Arc<Value>> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Tensor {
    /// A handle on `value`, with its place on the tape if it has one.
    #[inline]
    pub fn new(value: Arc<Value>, node: Option<Arc<Node>>) -> Tensor {
        Tensor { binding: Binding::Own(value), node }
    }

    /// The value it is bound to now.
    #[inline]
    pub fn value(&self) -> Arc<Value> {
        match &self.binding {
            Binding::Own(value) => value.clone(),
            Binding::Shared(shared) => lock(shared).clone(),
        }
    }

    /// Looks at the value without counting another owner.
    #[inline]
    pub fn with_value<R>(&self, look: impl FnOnce(&Arc<Value>) -> R) -> R {
        match &self.binding {
            Binding::Own(value) => look(value),
            Binding::Shared(shared) => look(&lock(shared)),
        }
    }

    /// Its shape and dtype.
    #[inline]
    pub fn meta(&self) -> Meta {
        self.with_value(|v| *v.meta())
    }

    /// The session it lives in.
    pub fn session(&self) -> Arc<Session> {
        self.with_value(|v| v.session().clone())
    }

    /// Its place on the tape.
    #[inline]
    pub fn node(&self) -> Option<&Arc<Node>> {
        self.node.as_ref()
    }

    /// Whether gradients flow to it.
    pub fn requires_grad(&self) -> bool {
        self.node.is_some()
    }

    /// Whether it was made by a user rather than by a recorded op.
    pub fn is_leaf(&self) -> bool {
        self.node.as_ref().is_none_or(|n| n.is_leaf())
    }

    /// Starts or stops gradients flowing to a leaf.
    ///
    /// # Errors
    /// A tensor that is not floating, or that a recorded op made.
    pub fn set_requires_grad(&mut self, on: bool) -> Result<()> {
        if on == self.requires_grad() {
            return Ok(());
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
        self.node = on.then(|| Node::leaf(meta));
        Ok(())
    }

    /// Another handle on the same binding, outside the tape.
    pub fn alias(&mut self) -> Tensor {
        Tensor { binding: Binding::Shared(self.share()), node: None }
    }

    /// Another handle on the same binding and the same place on the tape.
    pub fn same(&mut self) -> Tensor {
        Tensor { binding: Binding::Shared(self.share()), node: self.node.clone() }
    }

    /// Leaves the tape: no gradient flows to it any more.
    pub fn leave_tape(&mut self) {
        self.node = None;
    }

    /// A copy: a handle of its own, through which gradients flow. Values never change, so none is moved.
    pub fn copied(&self) -> Tensor {
        let mut copy = self.snapshot();
        if let Some(node) = copy.node.take_if(|_| tape::grad_enabled()) {
            let meta = copy.meta();
            let edge = Edge::Tensor { meta, node: Some(node), saved: None };
            copy.node = Some(Node::op(Op::Reshape, Attrs::Shape(meta.shape), smallvec::smallvec![edge], None, meta));
        } else {
            copy.node = None;
        }
        copy
    }

    /// A handle of its own on the present value and place on the tape: what an op would be given.
    pub fn snapshot(&self) -> Tensor {
        Tensor { binding: Binding::Own(self.value()), node: self.node.clone() }
    }

    fn share(&mut self) -> Arc<Mutex<Arc<Value>>> {
        if let Binding::Own(value) = &self.binding {
            self.binding = Binding::Shared(Arc::new(Mutex::new(value.clone())));
        }
        match &self.binding {
            Binding::Shared(shared) => shared.clone(),
            // The line above has just made it shared.
            Binding::Own(value) => Arc::new(Mutex::new(value.clone())),
        }
    }

    /// Whether an in-place operation is allowed now.
    ///
    /// # Errors
    /// A leaf that requires a gradient, while recording.
    pub fn check_in_place(&self) -> Result<()> {
        if self.node.as_ref().is_some_and(|n| n.is_leaf()) && tape::grad_enabled() {
            return Err(
                OpError::runtime("a leaf Variable that requires grad is being used in an in-place operation.").into()
            );
        }
        Ok(())
    }

    /// Binds the handle, and all that share its binding, to the result of an in-place operation.
    ///
    /// # Errors
    /// A result of another shape, or of a dtype that does not convert to the tensor's.
    pub fn rebind(&mut self, result: Tensor) -> Result<()> {
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
        let result = if new.dtype == old.dtype { result } else { result.apply(|g, v| build::cast(g, v, old.dtype))? };
        let value = result.value();
        match &mut self.binding {
            Binding::Own(own) => *own = value,
            Binding::Shared(shared) => *lock(shared) = value,
        }
        if tape::grad_enabled() && result.node.is_some() {
            self.node = result.node;
        }
        Ok(())
    }

    /// Takes over another handle's value, dtype and place on the tape included, as `t.data = u` does.
    pub fn set_data(&mut self, other: &Tensor) {
        let value = other.value();
        match &mut self.binding {
            Binding::Own(own) => *own = value,
            Binding::Shared(shared) => *lock(shared) = value,
        }
    }

    /// The accumulated gradient, the same handle each time.
    pub fn grad(&self) -> Option<Tensor> {
        self.node.as_ref().and_then(|n| n.grad())
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
        match &self.node {
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
        if let (Binding::Own(a), Binding::Own(b)) = (&self.binding, &other.binding)
            && a.meta() == b.meta()
            && Arc::ptr_eq(a.session(), b.session())
        {
            let row = op.row();
            if row.class == Class::Elementwise && row.operands == 2 && row.accepts.contains(a.meta().dtype) {
                let recording = (self.node.is_some() || other.node.is_some())
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
                    let edges = [edge(a, &self.node, 1), edge(b, &other.node, 2)].into_iter().collect();
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

    /// How it takes part in promotion.
    pub fn promotable(&self) -> Promotable {
        let meta = self.meta();
        if meta.shape.rank() == 0 { Promotable::ZeroDim(meta.dtype) } else { Promotable::Dimensioned(meta.dtype) }
    }

    /// The error of using it in a session that is not its own.
    pub fn foreign_error(&self) -> crate::Error {
        self.with_value(|v| foreign(v))
    }
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
