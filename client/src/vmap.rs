//! Ops on batched tensors, and the way into a batch and out of it: see [`crate::batch`].

use crate::batch::{BatchAxes, BatchAxis};
use crate::error::Result;
use crate::handle::{Node, Tensor};
use crate::scope::{Scope, TracedValue};
use crate::tape::grad_enabled;
use crate::value::TensorValue;
use gt_ops::batching::{self, BatchedArg};
use gt_ops::error::Result as OpResult;
use gt_ops::infer::{InputMeta, infer};
use gt_ops::storage::on_storage;
use gt_ops::{Arg, Attrs, DType, ErrorKind, Graph, Inputs, Meta, Op, OpError, Operand, RANK_MAX, Shape, Val, composed};
use smallvec::SmallVec;
use std::sync::Arc;

impl Scope {
    /// Emits an op of which an operand has batch axes.
    #[cold]
    pub(crate) fn emit_batched(&mut self, op: Op, inputs: &[Arg], metas: &[InputMeta], attrs: Attrs) -> OpResult<Val> {
        let composed = attrs.dtype().is_some_and(DType::is_composed)
            || metas.iter().filter_map(InputMeta::tensor).any(|meta| meta.dtype.is_composed());
        if !composed || op == Op::Reinterpret {
            // Errors name the shapes that the program sees.
            infer(op, metas, &attrs)?;
        } else if on_storage(op, metas, &attrs)?.is_none() {
            return composed::emit(self, op, inputs, &attrs);
        }
        let batched: Vec<Arg> = inputs.iter().filter(|arg| self.batch_of(arg).is_some()).copied().collect();
        if let Some(found) = batching::decomposed(self, op, inputs, &attrs, |arg| batched.contains(arg))? {
            return Ok(found);
        }
        let mut axes = BatchAxes::default();
        for (own, _) in inputs.iter().filter_map(|arg| self.batch_of(arg)) {
            own.iter().for_each(|axis| axes.insert(axis));
        }
        let inputs: Vec<Arg> = inputs.iter().map(|arg| self.shared_by(*arg, &axes)).collect();
        let mut operands = Vec::with_capacity(inputs.len());
        for arg in &inputs {
            operands.push(match (arg, self.batch_of(arg)) {
                (_, Some((own, value))) => {
                    let own = axes.mask_of(&own);
                    BatchedArg { arg: self.push(value, None).into(), axes: own }
                }
                // The batch is no part of the gradient that this op records.
                (Arg::Val(v), None) => {
                    let value = self.parts(*v).0;
                    BatchedArg { arg: self.push(value, None).into(), axes: 0 }
                }
                (number, None) => BatchedArg { arg: *number, axes: 0 },
            });
        }
        let made = self.on_batch(|scope| batching::emit(scope, op, &operands, &attrs, &axes.sizes()))?;
        let value = self.with_batch(made, axes)?;
        Ok(self.push_result(op, &inputs, attrs, value))
    }

    /// Emits random numbers, of which each element of a batch has its own.
    #[cold]
    pub(crate) fn emit_random_batch(
        &mut self,
        op: Op,
        inputs: &[Arg],
        metas: &[InputMeta],
        attrs: Attrs,
        axes: BatchAxes,
    ) -> OpResult<Val> {
        let one = infer(op, metas, &attrs)?;
        let dims: SmallVec<[usize; RANK_MAX]> = axes.sizes().iter().chain(one.shape.dims()).copied().collect();
        let made = self.on_batch(|scope| {
            let shape = Shape::new(&dims)?;
            let attrs = match attrs {
                Attrs::Random { dtype, seed, stream, first, .. } => Attrs::Random { shape, dtype, seed, stream, first },
                attrs => attrs,
            };
            let meta = Meta::new(shape, one.dtype);
            let mut numbers = Inputs::new();
            for arg in inputs {
                match arg {
                    Arg::Scalar(number) => numbers.push(Operand::Scalar(*number)),
                    Arg::Val(_) => return Err(OpError::type_("random numbers are computed of numbers")),
                }
            }
            let (value, _) = scope.issue(op, metas, numbers, attrs, meta)?;
            Ok(scope.push(value, None))
        })?;
        let value = self.with_batch(made, axes)?;
        Ok(self.push(value, None))
    }

    /// Calls `emit` on values with batch axes. An error of it is one that `vmap` understands.
    fn on_batch(&mut self, emit: impl FnOnce(&mut Scope) -> OpResult<Val>) -> OpResult<Val> {
        self.unrecorded(emit).map_err(|error| OpError::new(ErrorKind::NotBatched, error.message))
    }

    /// The batch axes of an operand, and the value that has them.
    fn batch_of(&self, arg: &Arg) -> Option<(BatchAxes, Arc<TensorValue>)> {
        let Arg::Val(v) = arg else { return None };
        self.parts(*v).0.batch().map(|(axes, value)| (axes.clone(), value.clone()))
    }

    /// The value of `made`, whose first axes are these, as the program sees it.
    fn with_batch(&self, made: Val, axes: BatchAxes) -> OpResult<Arc<TensorValue>> {
        let value = self.parts(made).0;
        let Meta { shape, dtype } = *value.meta();
        Ok(TensorValue::batched(&value, axes.clone(), Meta::new(Shape::new(&shape.dims()[axes.len()..])?, dtype)))
    }

    /// An operand of an op whose result has these batch axes. Where the operand lacks one, all elements of the batch
    /// share it: a gradient that is computed outside the call of `vmap` is the sum of theirs. Within it, each element
    /// has a gradient of its own.
    fn shared_by(&mut self, arg: Arg, axes: &BatchAxes) -> Arg {
        let Arg::Val(v) = arg else { return arg };
        let (value, Some(node)) = self.parts(v) else { return arg };
        let missing = match value.batch() {
            Some((own, _)) => axes.beyond(own),
            None => axes.clone(),
        };
        if missing.is_empty() || !grad_enabled() {
            return arg;
        }
        let sum = move |grad| missing.ended().iter().try_fold(grad, sum_over);
        let node = node_of("BatchExpand", *value.meta(), node, sum);
        self.push(value, Some(node)).into()
    }
}

/// The handle's value and node.
fn of_handle(tensor: &Tensor) -> Result<TracedValue> {
    let mut scope = Scope::new(&tensor.session());
    let v = scope.add(tensor)?;
    Ok(scope.parts(v))
}

/// Records `value`, computed from `tensor`, with a gradient that `backward` computes of that of `value`.
fn recorded(
    name: &str,
    value: Arc<TensorValue>,
    node: Option<Arc<Node>>,
    backward: impl Fn(Tensor) -> Result<Tensor> + Send + Sync + 'static,
) -> Tensor {
    let node = node.filter(|_| grad_enabled()).map(|node| node_of(name, *value.meta(), node, backward));
    Tensor::new(value, node)
}

/// The node of a value of `meta` whose gradient `backward` turns into that of `operand`.
fn node_of(
    name: &str,
    meta: Meta,
    operand: Arc<Node>,
    backward: impl Fn(Tensor) -> Result<Tensor> + Send + Sync + 'static,
) -> Arc<Node> {
    let backward = move |_: &Arc<Node>, grads: Vec<Option<Tensor>>, _: bool| {
        grads.into_iter().map(|grad| grad.map(&backward).transpose()).collect()
    };
    let function = Node::custom(name.to_owned(), vec![Some(operand)], 1, meta, Box::new(backward));
    Node::custom_output(&function, 0, meta)
}

/// The sum of a tensor over a batch axis, if it has that.
fn sum_over(tensor: Tensor, axis: &Arc<BatchAxis>) -> Result<Tensor> {
    let (value, node) = of_handle(&tensor)?;
    let Some((axes, elements)) = value.batch() else { return Ok(tensor) };
    let Ok(at) = axes.position(axis) else { return Ok(tensor) };
    let mut scope = Scope::new(elements.session());
    let v = scope.push(elements.clone(), None);
    let outcome = scope.emit(Op::Sum, &[v.into()], Attrs::Axes { mask: 1 << at, keepdim: false });
    let sum = scope.finish(outcome, |scope, v| scope.parts(v).0)?;
    let others = axes.without(at);
    let sum = if others.is_empty() { sum } else { TensorValue::batched(&sum, others, *value.meta()) };
    // Each element of the batch has the gradient of the sum.
    Ok(recorded("BatchSum", sum, node, Ok))
}

/// A tensor whose axis `dim` becomes the batch axis of a call of `vmap`.
///
/// # Errors
/// An axis that the tensor does not have, or whose size is not that of the batch.
pub fn batch_in(tensor: &Tensor, dim: usize, axis: &Arc<BatchAxis>) -> Result<Tensor> {
    let (value, node) = of_handle(tensor)?;
    let Meta { shape, dtype } = *value.meta();
    if shape.dims().get(dim) != Some(&axis.size()) {
        return Err(OpError::value(format!("vmap: axis {dim} of shape {shape} has not size {}", axis.size())).into());
    }
    let (mut axes, elements) = match value.batch() {
        Some((axes, elements)) => (axes.clone(), elements.clone()),
        None => (BatchAxes::default(), value.clone()),
    };
    let from = axes.len() + dim;
    axes.insert(axis);
    let to = axes.position(axis).unwrap_or_else(|at| at);
    let moved = moved_axis(&elements, from, to)?;
    let seen: SmallVec<[usize; RANK_MAX]> =
        shape.dims().iter().enumerate().filter(|(at, _)| *at != dim).map(|(_, size)| *size).collect();
    let value = TensorValue::batched(&moved, axes, Meta::new(Shape::new(&seen)?, dtype));
    let axis = axis.clone();
    Ok(recorded("BatchIn", value, node, move |grad| batch_out(&grad, dim, &axis)))
}

/// A tensor whose batch axis becomes its axis `dim`. Where it has none, each element is the same.
///
/// # Errors
/// More than [`gt_ops::RANK_MAX`] axes, no axis `dim`.
pub fn batch_out(tensor: &Tensor, dim: usize, axis: &Arc<BatchAxis>) -> Result<Tensor> {
    let (value, node) = of_handle(tensor)?;
    let Meta { shape, dtype } = *value.meta();
    if dim > shape.rank() {
        return Err(OpError::index(format!("vmap: a tensor of {} axes has no batch axis {dim}", shape.rank())).into());
    }
    let (axes, elements) = match value.batch() {
        Some((axes, elements)) => (axes.clone(), elements.clone()),
        None => (BatchAxes::default(), value.clone()),
    };
    let (elements, others) = match axes.position(axis) {
        Ok(at) => (moved_axis(&elements, at, axes.len() - 1 + dim)?, axes.without(at)),
        Err(_) => (repeated(&elements, axes.len() + dim, axis.size())?, axes.clone()),
    };
    let value = if others.is_empty() {
        TensorValue::independent(elements)
    } else {
        let mut seen: SmallVec<[usize; RANK_MAX]> = shape.dims().into();
        seen.insert(dim, axis.size());
        TensorValue::batched(&elements, others, Meta::new(Shape::new(&seen)?, dtype))
    };
    let axis = axis.clone();
    Ok(recorded("BatchOut", value, node, move |grad| batch_in(&grad, dim, &axis)))
}

/// Whether a tensor has the batch axis.
///
/// # Errors
/// As [`Tensor::resolve`].
pub fn differs(tensor: &Tensor, axis: &BatchAxis) -> Result<bool> {
    let (value, _) = of_handle(tensor)?;
    Ok(value.batch().is_some_and(|(axes, _)| axes.position(axis).is_ok()))
}

/// A value with axis `from` moved to `to`.
fn moved_axis(value: &Arc<TensorValue>, from: usize, to: usize) -> Result<Arc<TensorValue>> {
    if from == to {
        return Ok(value.clone());
    }
    let mut order: SmallVec<[u8; RANK_MAX]> = (0..value.meta().shape.rank() as u8).collect();
    let axis = order.remove(from);
    order.insert(to, axis);
    let mut permutation = [0; RANK_MAX];
    permutation.iter_mut().zip(&order).for_each(|(to, axis)| *to = *axis);
    on_value(value, |scope, v| scope.emit(Op::Permute, &[v.into()], Attrs::Permutation(permutation)))
}

/// A value with a new axis `at`, along which it is repeated.
fn repeated(value: &Arc<TensorValue>, at: usize, size: usize) -> Result<Arc<TensorValue>> {
    let mut dims: SmallVec<[usize; RANK_MAX]> = value.meta().shape.dims().into();
    dims.insert(at, 1);
    let one = Shape::new(&dims)?;
    dims[at] = size;
    let all = Shape::new(&dims)?;
    on_value(value, |scope, v| {
        let v = scope.emit(Op::Reshape, &[v.into()], Attrs::Shape(one))?;
        scope.emit(Op::Expand, &[v.into()], Attrs::Shape(all))
    })
}

fn on_value(value: &Arc<TensorValue>, emit: impl FnOnce(&mut Scope, Val) -> OpResult<Val>) -> Result<Arc<TensorValue>> {
    let mut scope = Scope::new(value.session());
    let v = scope.push(value.clone(), None);
    let outcome = emit(&mut scope, v);
    scope.finish(outcome, |scope, v| scope.parts(v).0)
}
