//! The backward pass of reverse-mode automatic differentiation: visits the nodes of the tape in the reverse of the
//! order in which they were recorded, and computes each node's gradient from the gradients of the ops that used it.

use crate::error::{ClientError, Result};
use crate::handle::{CustomFunction, Edge, Edges, Node, NodeKind, Tensor};
use crate::lock::lock;
use crate::scope::Scope;
use crate::session::ClientSession;
use crate::signal::{self, ActiveSignal};
use crate::tape::{anomaly, grad_enabled, set_grad_enabled};
use crate::tensor::TensorOperand;
use crate::value::TensorValue;
use crate::view::Repeats;
use gt_ops::grad::{GradArgs, Saved, to_operand};
use gt_ops::instruction::{INPUTS_MAX, SliceSpec};
use gt_ops::{Attrs, DType, Graph, Meta, Op, OpError, Scalar, Shape, build};
use smallvec::SmallVec;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::sync::{Arc, Mutex};

/// Restores the thread's recording mode when dropped.
struct RecordingGuard(bool);
impl Drop for RecordingGuard {
    fn drop(&mut self) {
        set_grad_enabled(self.0);
    }
}

/// A node in the priority queue. The largest sequence number comes first, so every op that used a node precedes it.
struct ReadyNode(Arc<Node>);
impl PartialEq for ReadyNode {
    fn eq(&self, other: &Self) -> bool {
        self.0.number() == other.0.number()
    }
}
impl Eq for ReadyNode {}
impl PartialOrd for ReadyNode {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for ReadyNode {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.number().cmp(&other.0.number())
    }
}

/// How a backward pass treats the tape.
#[derive(Clone, Copy, Debug)]
pub struct BackwardOptions {
    /// Keep the saved values for another pass.
    pub retain_graph: bool,
    /// Record the pass itself, for higher-order gradients.
    pub create_graph: bool,
}

/// The gradient that a pass starts with at root `i`: `gradient`, or 1 for a scalar.
fn seed_gradient(i: usize, root: &Tensor, gradient: Option<&Tensor>) -> Result<Tensor> {
    let meta = root.meta();
    if let Some(gradient) = gradient {
        let shape = gradient.meta().shape;
        if shape != meta.shape {
            return Err(OpError::runtime(format!(
                "Mismatch in shape: grad_output[{i}] has a shape of {} and output[{i}] has a shape of {}.",
                shape, meta.shape
            ))
            .into());
        }
        return gradient.apply(|g, v| build::cast(g, v, meta.dtype));
    }
    if meta.shape.numel() != 1 {
        return Err(OpError::runtime("grad can be implicitly created only for scalar outputs").into());
    }
    let mut scope = Scope::new(&root.session());
    let outcome = build::full(&mut scope, meta.shape, Scalar::Float(1.0), meta.dtype);
    scope.finish(outcome, |s, v| s.tensor(v))
}

/// The tensors that a pass starts from, each with its gradient; a tensor of one element needs no gradient.
pub type Roots<'a> = [(&'a Tensor, Option<&'a Tensor>)];

/// Computes the gradients of `roots` and accumulates them in the leaves, or only in `inputs` if given.
///
/// # Errors
/// A root that does not require a gradient, or that has several elements and no gradient; saved values that an earlier
/// pass has released; the error of a hook.
pub fn backward(roots: &Roots<'_>, inputs: Option<&[Arc<Node>]>, options: BackwardOptions) -> Result<()> {
    let found = walk(roots, inputs, options)?;
    let _guard = RecordingGuard(set_grad_enabled(options.create_graph));
    let caller = signal::current();
    for (node, grad) in inputs.unwrap_or_default().iter().zip(found) {
        if let Some(grad) = grad {
            let _signal = signal::for_gradient(node.backward_signal(), caller);
            accumulate(node, grad)?;
        }
    }
    Ok(())
}

/// Returns the gradients of `roots` with respect to `inputs` without accumulating them; `None` for an input that no
/// gradient reaches.
///
/// # Errors
/// The errors of [`backward`].
pub fn grad(roots: &Roots<'_>, inputs: &[Arc<Node>], options: BackwardOptions) -> Result<Vec<Option<Tensor>>> {
    walk(roots, Some(inputs), options)
}

/// Follows the graph from `starts` back to its leaves and to nodes older than sequence number `since`. Returns these
/// leaves and older nodes, each once, oldest first.
pub fn frontier(starts: Vec<Arc<Node>>, since: u64) -> Vec<Arc<Node>> {
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    let mut todo = starts;
    while let Some(node) = todo.pop() {
        if !seen.insert(node.number()) {
            continue;
        }
        if node.is_leaf() || node.number() < since {
            found.push(node);
        } else {
            todo.extend(node.inputs().into_iter().flatten());
        }
    }
    found.sort_by_key(|node| node.number());
    found
}

/// The sequence numbers of the nodes on paths from `roots` to `wanted`, both included.
fn between(roots: &[Arc<Node>], wanted: &[Arc<Node>]) -> HashSet<u64> {
    let first = wanted.iter().map(|node| node.number()).min().unwrap_or(u64::MAX);
    let mut seen: HashMap<u64, Vec<u64>> = HashMap::new();
    let mut todo: Vec<Arc<Node>> = roots.to_vec();
    while let Some(node) = todo.pop() {
        if node.number() < first || seen.contains_key(&node.number()) {
            continue;
        }
        let inputs: Vec<Arc<Node>> = node.inputs().into_iter().flatten().collect();
        seen.insert(node.number(), inputs.iter().map(|input| input.number()).collect());
        todo.extend(inputs);
    }
    let mut found: HashSet<u64> = wanted.iter().map(|node| node.number()).collect();
    let mut numbers: Vec<u64> = seen.keys().copied().collect();
    numbers.sort_unstable();
    for number in numbers {
        if seen[&number].iter().any(|input| found.contains(input)) {
            found.insert(number);
        }
    }
    found
}

/// The gradient of a slice, and the slice of the operand that it belongs to.
struct SliceGradient {
    spec: SliceSpec,
    grad: Tensor,
    /// The operand's shape and dtype when the slice was taken, which `x.data = y` may have changed since.
    whole: Meta,
}

/// The axis along which the slices, once sorted, tile the whole tensor without gaps or overlap, if there is one.
fn tiled_axis(slices: &mut [SliceGradient], shape: &Shape) -> Option<usize> {
    let dims = shape.dims();
    let axis = (0..dims.len())
        .find(|axis| slices.first().is_some_and(|slice| slice.spec.sizes.dims()[*axis] != dims[*axis]))?;
    let whole = |spec: &SliceSpec, i: usize| spec.start[i] == 0 && spec.sizes.dims()[i] == dims[i];
    let fits = |spec: &SliceSpec| (0..dims.len()).all(|i| spec.step[i] == 1 && (i == axis || whole(spec, i)));
    if !slices.iter().all(|slice| fits(&slice.spec)) {
        return None;
    }
    slices.sort_by_key(|slice| (slice.spec.start[axis], slice.spec.sizes.dims()[axis]));
    let mut end = 0;
    for slice in &*slices {
        if slice.spec.start[axis] != end {
            return None;
        }
        end += slice.spec.sizes.dims()[axis] as i64;
    }
    (end == dims[axis] as i64).then_some(axis)
}

/// Turns the gradients of a tensor's slices into tensors of shape and dtype `whole`, whose sum is the tensor's
/// gradient: one concatenation if the slices tile the tensor, else each slice padded with zeros.
fn whole_gradients(mut slices: Vec<SliceGradient>, whole: Meta) -> Result<Vec<Tensor>> {
    let Some(axis) = tiled_axis(&mut slices, &whole.shape) else {
        let placed = |SliceGradient { spec, grad, .. }: SliceGradient| {
            grad.apply(|g, v| {
                let zeros = build::full(g, whole.shape, Scalar::Float(0.0), whole.dtype)?;
                g.emit(Op::SliceScatter, &[zeros.into(), v.into()], Attrs::Slice(Box::new(spec)))
            })
        };
        return slices.into_iter().map(placed).collect();
    };
    let mut grads: Vec<Tensor> = slices.into_iter().map(|slice| slice.grad).collect();
    while grads.len() > 1 {
        let joined = grads.chunks(INPUTS_MAX).map(|grads| {
            let mut scope = Scope::new(&grads[0].session());
            let vals = grads.iter().map(|grad| scope.add(grad)).collect::<Result<Vec<_>>>()?;
            let outcome = build::cat(&mut scope, &vals, axis as i64);
            scope.finish(outcome, |scope, val| scope.tensor(val))
        });
        grads = joined.collect::<Result<_>>()?;
    }
    Ok(grads)
}

/// Whether a gradient of float32 may reach the node as the half precision that it is a conversion of: such a gradient
/// is added up or rounded to half precision again, and the conversion need not be written to memory.
fn takes_half(node: &Node) -> bool {
    matches!(node.kind(), NodeKind::Op { op: Op::Add | Op::MatmulWide | Op::Cast, .. })
        && node.meta().dtype == DType::F32
        && !node.has_hooks()
        && !node.retains_grad()
}

/// A gradient of `node` in its own dtype.
fn in_own_dtype(node: &Node, grad: Tensor) -> Result<Tensor> {
    let Meta { dtype, .. } = node.meta();
    match takes_half(node) && grad.meta().dtype.is_half() {
        true => grad.apply(|g, v| g.emit(Op::Cast, &[v.into()], Attrs::DType(dtype))),
        false => Ok(grad),
    }
}

/// The state of one pass: gradients that have not been propagated yet, by the sequence numbers of their nodes.
struct BackwardPass {
    /// The signal of the thread that started the pass.
    caller: ActiveSignal,
    heap: BinaryHeap<ReadyNode>,
    /// The sum of the gradients that have arrived at a node.
    grads: HashMap<u64, Tensor>,
    /// Gradients of slices of a node's tensor. They are collected, because one concatenation makes the gradient of a
    /// tensor that was split into slices. To pad each slice with zeros and add them up would take time proportional to
    /// the whole tensor for each slice.
    slices: HashMap<u64, Vec<SliceGradient>>,
    /// Gradients of the results of a custom function, one for each result.
    result_grads: HashMap<u64, Vec<Option<Tensor>>>,
    /// The nodes to visit; `None` for all nodes.
    path: Option<HashSet<u64>>,
}

impl BackwardPass {
    fn new(path: Option<HashSet<u64>>) -> BackwardPass {
        let (heap, grads, slices, result_grads) = Default::default();
        BackwardPass { caller: signal::current(), heap, grads, slices, result_grads, path }
    }

    fn visits(&self, node: &Node) -> bool {
        self.path.as_ref().is_none_or(|path| path.contains(&node.number()))
    }

    /// Adds a gradient that reaches `node`.
    fn add(&mut self, node: &Arc<Node>, grad: Tensor) -> Result<()> {
        match self.grads.remove(&node.number()) {
            Some(earlier) => {
                let _signal = signal::for_gradient(node.backward_signal(), self.caller);
                let (earlier, grad) = (in_own_dtype(node, earlier)?, in_own_dtype(node, grad)?);
                self.grads.insert(node.number(), earlier.binary(Op::Add, &grad)?);
            }
            None => {
                self.grads.insert(node.number(), grad);
                if !self.slices.contains_key(&node.number()) {
                    self.heap.push(ReadyNode(node.clone()));
                }
            }
        }
        Ok(())
    }

    /// Adds a gradient that reaches a slice of `node`.
    fn add_slice(&mut self, node: &Arc<Node>, slice: SliceGradient) {
        let slices = self.slices.entry(node.number()).or_default();
        if slices.is_empty() && !self.grads.contains_key(&node.number()) {
            self.heap.push(ReadyNode(node.clone()));
        }
        slices.push(slice);
    }

    /// Removes and returns the total gradient of `node`.
    fn take(&mut self, node: &Node) -> Result<Option<Tensor>> {
        let mut total = self.grads.remove(&node.number());
        let mut slices = self.slices.remove(&node.number()).unwrap_or_default();
        while let Some(&SliceGradient { whole, .. }) = slices.first() {
            let (alike, others) = slices.into_iter().partition(|slice| slice.whole == whole);
            slices = others;
            let _signal = signal::for_gradient(node.backward_signal(), self.caller);
            for grad in whole_gradients(alike, whole)? {
                total = Some(match total {
                    Some(earlier) => in_own_dtype(node, earlier)?.binary(Op::Add, &grad)?,
                    None => grad,
                });
            }
        }
        Ok(total)
    }

    /// Adds a gradient that reaches result `index` of the custom function at `node`.
    fn add_result(&mut self, node: &Arc<Node>, index: usize, grad: Tensor) -> Result<()> {
        let NodeKind::Custom(custom) = node.kind() else { return self.add(node, grad) };
        let _signal = signal::for_gradient(node.backward_signal(), self.caller);
        let heap = &mut self.heap;
        let grads = self.result_grads.entry(node.number()).or_insert_with(|| {
            heap.push(ReadyNode(node.clone()));
            (0..custom.results).map(|_| None).collect()
        });
        grads[index] = Some(match grads[index].take() {
            Some(earlier) => earlier.binary(Op::Add, &grad)?,
            None => grad,
        });
        Ok(())
    }
}

fn walk(roots: &Roots<'_>, wanted: Option<&[Arc<Node>]>, options: BackwardOptions) -> Result<Vec<Option<Tensor>>> {
    let _guard = RecordingGuard(set_grad_enabled(options.create_graph));
    let starts = roots
        .iter()
        .enumerate()
        .map(|(i, (root, _))| {
            root.node().ok_or_else(|| {
                let text = format!("element {i} of tensors does not require grad and does not have a grad_fn");
                ClientError::from(OpError::runtime(text))
            })
        })
        .collect::<Result<Vec<_>>>()?;
    let mut pass = BackwardPass::new(wanted.map(|wanted| between(&starts, wanted)));
    for (i, ((root, gradient), node)) in roots.iter().zip(&starts).enumerate() {
        let _signal = signal::for_gradient(node.backward_signal(), pass.caller);
        let seed = seed_gradient(i, root, *gradient)?;
        pass.add(node, seed)?;
    }
    let mut found: HashMap<u64, Option<Tensor>> =
        wanted.unwrap_or_default().iter().map(|node| (node.number(), None)).collect();
    while let Some(ReadyNode(node)) = pass.heap.pop() {
        let _signal = signal::for_gradient(node.backward_signal(), pass.caller);
        if let NodeKind::Custom(custom) = node.kind() {
            if let Some(grads) = pass.result_grads.remove(&node.number()) {
                let results = custom_gradients(&node, custom, grads, options)?;
                check_for_nan(&node, results.iter().map(|(_, grad)| grad))?;
                for (to, grad) in results {
                    if pass.visits(&to) {
                        pass.add(&to, grad)?;
                    }
                }
            }
            continue;
        }
        let Some(mut grad) = pass.take(&node)? else { continue };
        if found.contains_key(&node.number()) {
            grad = in_own_dtype(&node, grad)?;
        }
        for hook in node.hooks() {
            if let Some(other) = hook(grad.same())? {
                grad = other;
            }
        }
        if let Some(result) = found.get_mut(&node.number()) {
            *result = Some(grad.same());
        }
        if node.retains_grad() || (wanted.is_none() && node.is_leaf() && node.requires_grad()) {
            accumulate(&node, grad.same())?;
        }
        match node.kind() {
            NodeKind::Op { op: Op::Slice, attrs: Attrs::Slice(spec), edges } if !options.create_graph => {
                let to = match &lock(edges).inputs[..] {
                    [Edge::Tensor { node: Some(to), meta, .. }] => Some((to.clone(), *meta)),
                    _ => None,
                };
                if let Some((to, whole)) = to.filter(|(to, _)| pass.visits(to)) {
                    pass.add_slice(&to, SliceGradient { spec: **spec, grad, whole });
                }
            }
            NodeKind::Op { op, attrs, edges } => {
                let visits = |to: &Node| pass.visits(to);
                let results = op_gradients(&node, (*op, attrs, edges), &grad, &visits, options)?;
                check_for_nan(&node, results.iter().map(|(_, grad)| grad))?;
                for (to, grad) in results {
                    pass.add(&to, grad)?;
                }
            }
            NodeKind::CustomOutput { function: Some(function), index } if pass.visits(function) => {
                pass.add_result(function, *index, grad)?
            }
            _ => {}
        }
    }
    let mut result = Vec::new();
    for node in wanted.unwrap_or_default() {
        result.push(found.get_mut(&node.number()).and_then(Option::as_mut).map(Tensor::same));
    }
    Ok(result)
}

/// Under anomaly detection, fails with the name of the op if one of its gradients has a NaN.
fn check_for_nan<'a>(node: &Node, grads: impl Iterator<Item = &'a Tensor>) -> Result<()> {
    if !anomaly().1 {
        return Ok(());
    }
    for (i, grad) in grads.enumerate().filter(|(_, grad)| grad.meta().dtype.is_inexact()) {
        let nan = grad.elementwise(Op::Isnan, &[TensorOperand::This])?;
        let any = nan.apply(|g, v| build::reduce(g, Op::Any, v, None, false))?.value()?;
        let mut byte = [0];
        any.session().download(&any)?.read(&mut byte);
        if byte[0] != 0 {
            let name = node.backward_name();
            let line = node.origin().map_or(String::new(), |line| format!(" It was recorded at {line}."));
            return Err(
                OpError::runtime(format!("Function '{name}' returned nan values in its {i}th output.{line}")).into()
            );
        }
    }
    Ok(())
}

/// The gradients of a custom function's inputs, summed to their shapes and cast to their dtypes.
fn custom_gradients(
    node: &Arc<Node>,
    custom: &CustomFunction,
    grads: Vec<Option<Tensor>>,
    options: BackwardOptions,
) -> Result<Vec<(Arc<Node>, Tensor)>> {
    let results = (custom.backward)(node, grads, options.retain_graph)?;
    let mut fitted = Vec::new();
    for (i, (grad, input)) in results.into_iter().zip(&custom.inputs).enumerate() {
        let (Some(grad), Some(input)) = (grad, input) else { continue };
        let (got, wanted) = (grad.meta(), input.meta());
        let fits = got.shape.broadcast(&wanted.shape).is_ok_and(|shape| shape == got.shape);
        if !fits {
            return Err(OpError::runtime(format!(
                "Function {} returned an invalid gradient at index {i} - got {} but expected shape compatible with {}",
                custom.name, got.shape, wanted.shape
            ))
            .into());
        }
        fitted.push((input.clone(), grad.apply(|g, v| to_operand(g, v, wanted))?));
    }
    Ok(fitted)
}

/// The node that the gradient of an operand flows to, and the operand's shape and dtype; none if none flows.
type GradientTarget = Option<(Arc<Node>, Meta)>;

fn op_gradients(
    node: &Arc<Node>,
    (op, attrs, edges): (Op, &Attrs, &Mutex<Edges>),
    grad: &Tensor,
    visits: &dyn Fn(&Node) -> bool,
    options: BackwardOptions,
) -> Result<Vec<(Arc<Node>, Tensor)>> {
    let row = op.row();
    if !row.grad.is_some() {
        return Ok(Vec::new());
    }
    let session: Arc<ClientSession> = grad.session();
    let mut scope = Scope::new(&session);
    let grad_val = scope.add(grad)?;
    let mut targets: SmallVec<[GradientTarget; 3]>;
    let inputs: SmallVec<[Saved; 3]>;
    let output;
    let was_released;
    let mut released: SmallVec<[Arc<TensorValue>; 3]> = SmallVec::new();
    {
        let mut edges = lock(edges);
        if !edges.inputs.iter().any(|edge| matches!(edge, Edge::Tensor { node: Some(to), .. } if visits(to))) {
            return Ok(Vec::new());
        }
        was_released = edges.released;
        let number = node.number();
        targets = SmallVec::with_capacity(edges.inputs.len());
        inputs = edges
            .inputs
            .iter()
            .map(|edge| match edge {
                Edge::Scalar(s) => {
                    targets.push(None);
                    Saved::Scalar(*s)
                }
                Edge::Tensor { meta, node, saved } => {
                    targets.push(node.clone().filter(|n| visits(n)).map(|n| (n, *meta)));
                    match saved {
                        Some(value) => Saved::Val(scope.push_saved(value.clone(), node.clone(), number)),
                        None => Saved::Meta(*meta),
                    }
                }
            })
            .collect();
        output = match &edges.output {
            Some(value) => Saved::Val(scope.push_saved(value.clone(), Some(node.clone()), number)),
            None => Saved::Meta(node.meta()),
        };
        if !options.retain_graph {
            edges.released = true;
            released.extend(edges.output.take());
            for edge in &mut edges.inputs {
                if let Edge::Tensor { saved, .. } = edge {
                    released.extend(saved.take_if(|value| !value.is_constant()));
                }
            }
        }
    }
    // The saved values are dropped after the lock is released, because freeing a tensor may wait.
    drop(released);
    let needs: SmallVec<[bool; 4]> = targets.iter().map(Option::is_some).collect();
    let transposed: SmallVec<[bool; 4]> =
        targets.iter().map(|target| target.as_ref().is_some_and(|(node, _)| node.is_transposition())).collect();
    let args = GradArgs {
        attrs,
        inputs: &inputs,
        output,
        grad: grad_val,
        needs: &needs,
        transposed: &transposed,
        recorded: options.create_graph,
        released: was_released,
        numbers_released: was_released && matches!(op, Op::Mul | Op::Div),
    };
    let outcome = row.grad.apply(&mut scope, &args).and_then(|grads| {
        let mut fitted = Vec::with_capacity(grads.len());
        for (i, (grad, target)) in grads.into_iter().zip(&targets).enumerate() {
            if let (Some(grad), Some((operand, meta))) = (grad, target) {
                let given = scope.meta(grad);
                if !options.create_graph
                    && given.dtype.is_half()
                    && given.shape == meta.shape
                    && takes_half(operand)
                    && matches!(op, Op::Add | Op::Cast)
                {
                    fitted.push((operand.clone(), grad));
                    continue;
                }
                let grad = to_operand(&mut scope, grad, *meta)?;
                let made = operand.meta();
                if operand.is_leaf() || made.shape == meta.shape {
                    fitted.push((operand.clone(), grad));
                } else if made.shape.broadcast(&meta.shape).ok() == Some(meta.shape) {
                    // `y.data = x` has changed the shape of a result.
                    fitted.push((operand.clone(), to_operand(&mut scope, grad, made)?));
                } else {
                    return Err(OpError::runtime(format!(
                        "Function {} returned an invalid gradient at index {i} - got {} but expected shape compatible \
                         with {}",
                        node.backward_name(),
                        meta.shape,
                        made.shape
                    )));
                }
            }
        }
        Ok(fitted)
    });
    scope.finish(outcome, |scope, fitted| fitted.into_iter().map(|(node, val)| (node, scope.tensor(val))).collect())
}

/// Adds `grad` to the gradient that `node` has accumulated, and calls its hooks.
fn accumulate(node: &Node, grad: Tensor) -> Result<()> {
    // The node's lock is not held during the addition, which may wait.
    match node.grad() {
        // As PyTorch's, the gradient that a result retains is apart from the one that the pass returns.
        None if !node.is_leaf() => node.set_grad(Some(Tensor::new(grad.value()?, grad.node()))),
        None => node.set_grad(Some(grad)),
        // The retained gradient of a result is replaced, that of a leaf is added to.
        Some(total) if grad_enabled() || !node.is_leaf() => node.set_grad(Some(total.binary(Op::Add, &grad)?)),
        Some(mut total) => {
            let _operation = total.begin_in_place();
            let plan = total.plan_rebind(total.binary(Op::Add, &grad)?, None, Repeats::Refused)?;
            total.rebind(plan).finish()?;
        }
    }
    node.accumulated_hooks().iter().try_for_each(|hook| hook())
}
