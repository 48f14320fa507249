//! The backward pass: from results to what they were computed from, in the order of falling numbers.

use crate::error::{Error, Result};
use crate::scope::Scope;
use crate::session::{Session, Value};
use crate::signal::{self, Under};
use crate::tape::{Custom, Edge, Edges, Kind, Node, anomaly, lock, set_grad_enabled};
use crate::tensor::{Operand, Tensor};
use gt_ops::grad::{GradCtx, Saved, to_operand};
use gt_ops::instruction::{INPUTS_MAX, SliceSpec};
use gt_ops::{Attrs, Meta, Op, OpError, Scalar, Shape, build};
use smallvec::SmallVec;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::sync::{Arc, Mutex};

/// Puts recording back to what it was.
struct RecordingGuard(bool);
impl Drop for RecordingGuard {
    fn drop(&mut self) {
        set_grad_enabled(self.0);
    }
}

/// Ready nodes, latest first: everything computed from a node comes before it.
struct Ready(Arc<Node>);
impl PartialEq for Ready {
    fn eq(&self, other: &Self) -> bool {
        self.0.number() == other.0.number()
    }
}
impl Eq for Ready {}
impl PartialOrd for Ready {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Ready {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.number().cmp(&other.0.number())
    }
}

/// How a backward pass treats the tape.
#[derive(Clone, Copy, Debug)]
pub struct BackwardOptions {
    /// Keep what was saved, for another pass.
    pub retain_graph: bool,
    /// Record the pass itself, for gradients of gradients.
    pub create_graph: bool,
}

/// The gradient that a pass starts from: `gradient`, or 1 for a scalar.
fn seed_gradient(i: usize, root: &Tensor, gradient: Option<&Tensor>) -> Result<Tensor> {
    let meta = root.meta();
    if let Some(gradient) = gradient {
        let given = gradient.meta();
        if given.shape != meta.shape {
            return Err(OpError::runtime(format!(
                "Mismatch in shape: grad_output[{i}] has a shape of {} and output[{i}] has a shape of {}.",
                given.shape, meta.shape
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

/// Where a pass starts: tensors, each with its gradient, which a scalar can do without.
pub type Roots<'a> = [(&'a Tensor, Option<&'a Tensor>)];

/// Walks the tape from `roots` back, collecting gradients in the leaves, or in `inputs` alone if there are any.
///
/// # Errors
/// A root outside the tape, one with many elements and no gradient, a tape already walked, what a hook raised.
pub fn backward(roots: &Roots<'_>, inputs: Option<&[Arc<Node>]>, options: BackwardOptions) -> Result<()> {
    let found = walk(roots, inputs, options)?;
    let _guard = RecordingGuard(set_grad_enabled(options.create_graph));
    let caller = signal::current();
    for (node, grad) in inputs.unwrap_or_default().iter().zip(found) {
        if let Some(grad) = grad {
            let _signal = signal::for_gradient(node.backward_signal(), caller);
            node.accumulate(grad)?;
        }
    }
    Ok(())
}

/// The gradients of `roots` with respect to `inputs`, collected nowhere else; none where none flows.
///
/// # Errors
/// As [`backward`].
pub fn grad(roots: &Roots<'_>, inputs: &[Arc<Node>], options: BackwardOptions) -> Result<Vec<Option<Tensor>>> {
    walk(roots, Some(inputs), options)
}

/// What `starts` were computed from: leaves, and places older than `since`, each once and oldest first.
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

/// The numbers of the places between `roots` and `wanted`, both included.
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

/// The gradient of a slice, and which elements of its operand it belongs to.
struct Part {
    spec: SliceSpec,
    grad: Tensor,
}

/// The axis along which parts, which are then in order, lie side by side and make the whole.
fn tiled_axis(parts: &mut [Part], shape: &Shape) -> Option<usize> {
    let dims = shape.dims();
    let axis =
        (0..dims.len()).find(|axis| parts.first().is_some_and(|part| part.spec.sizes.dims()[*axis] != dims[*axis]))?;
    let whole = |spec: &SliceSpec, i: usize| spec.start[i] == 0 && spec.sizes.dims()[i] == dims[i];
    let fits = |spec: &SliceSpec| (0..dims.len()).all(|i| spec.step[i] == 1 && (i == axis || whole(spec, i)));
    if !parts.iter().all(|part| fits(&part.spec)) {
        return None;
    }
    parts.sort_by_key(|part| (part.spec.start[axis], part.spec.sizes.dims()[axis]));
    let mut end = 0;
    for part in &*parts {
        if part.spec.start[axis] != end {
            return None;
        }
        end += part.spec.sizes.dims()[axis] as i64;
    }
    (end == dims[axis] as i64).then_some(axis)
}

/// The gradients of a tensor of shape `whole.shape`, to be added up, from those of its slices: one if they make the
/// whole.
fn whole_gradients(mut parts: Vec<Part>, whole: Meta) -> Result<Vec<Tensor>> {
    let Some(axis) = tiled_axis(&mut parts, &whole.shape) else {
        let placed = |Part { spec, grad }: Part| {
            grad.apply(|g, v| {
                let zeros = build::full(g, whole.shape, Scalar::Float(0.0), whole.dtype)?;
                g.emit(Op::SliceScatter, &[zeros.into(), v.into()], Attrs::Slice(Box::new(spec)))
            })
        };
        return parts.into_iter().map(placed).collect();
    };
    let mut grads: Vec<Tensor> = parts.into_iter().map(|part| part.grad).collect();
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

/// Gradients under way in one pass.
struct Pass {
    /// What whoever asked for the pass is under.
    caller: Under,
    heap: BinaryHeap<Ready>,
    /// What has arrived at a tensor's place.
    grads: HashMap<u64, Tensor>,
    /// What has arrived there for some of its elements alone. Such wait for each other: the pieces that a tensor was
    /// cut into make one gradient side by side. Each among zeros, and added up, would cost the whole for each piece.
    parts: HashMap<u64, Vec<Part>>,
    /// What has arrived at the results of a function of the host language's.
    bundles: HashMap<u64, Vec<Option<Tensor>>>,
    /// The places to go to; everywhere if none.
    path: Option<HashSet<u64>>,
}

impl Pass {
    fn new(path: Option<HashSet<u64>>) -> Pass {
        let (heap, grads, parts, bundles) = Default::default();
        Pass { caller: signal::current(), heap, grads, parts, bundles, path }
    }

    fn goes_to(&self, node: &Node) -> bool {
        self.path.as_ref().is_none_or(|path| path.contains(&node.number()))
    }

    /// A gradient reaches `node`: it joins those that already have.
    fn arrive(&mut self, node: &Arc<Node>, grad: Tensor) -> Result<()> {
        match self.grads.remove(&node.number()) {
            Some(earlier) => {
                let _signal = signal::for_gradient(node.backward_signal(), self.caller);
                self.grads.insert(node.number(), earlier.binary(Op::Add, &grad)?);
            }
            None => {
                self.grads.insert(node.number(), grad);
                if !self.parts.contains_key(&node.number()) {
                    self.heap.push(Ready(node.clone()));
                }
            }
        }
        Ok(())
    }

    /// A gradient of some elements reaches `node`.
    fn arrive_in_part(&mut self, node: &Arc<Node>, part: Part) {
        let parts = self.parts.entry(node.number()).or_default();
        if parts.is_empty() && !self.grads.contains_key(&node.number()) {
            self.heap.push(Ready(node.clone()));
        }
        parts.push(part);
    }

    /// All that has arrived at `node`.
    fn take(&mut self, node: &Node) -> Result<Option<Tensor>> {
        let mut total = self.grads.remove(&node.number());
        if let Some(parts) = self.parts.remove(&node.number()) {
            let _signal = signal::for_gradient(node.backward_signal(), self.caller);
            for grad in whole_gradients(parts, node.meta())? {
                total = Some(match total {
                    Some(earlier) => earlier.binary(Op::Add, &grad)?,
                    None => grad,
                });
            }
        }
        Ok(total)
    }

    /// A gradient reaches result `index` of the function at `node`.
    fn arrive_at_result(&mut self, node: &Arc<Node>, index: usize, grad: Tensor) -> Result<()> {
        let Kind::Custom(custom) = node.kind() else { return self.arrive(node, grad) };
        let _signal = signal::for_gradient(node.backward_signal(), self.caller);
        let heap = &mut self.heap;
        let bundle = self.bundles.entry(node.number()).or_insert_with(|| {
            heap.push(Ready(node.clone()));
            (0..custom.results).map(|_| None).collect()
        });
        bundle[index] = Some(match bundle[index].take() {
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
                Error::from(OpError::runtime(text))
            })
        })
        .collect::<Result<Vec<_>>>()?;
    let mut pass = Pass::new(wanted.map(|wanted| between(&starts, wanted)));
    for (i, ((root, gradient), node)) in roots.iter().zip(&starts).enumerate() {
        let _signal = signal::for_gradient(node.backward_signal(), pass.caller);
        let seed = seed_gradient(i, root, *gradient)?;
        pass.arrive(node, seed)?;
    }
    let mut found: HashMap<u64, Option<Tensor>> =
        wanted.unwrap_or_default().iter().map(|node| (node.number(), None)).collect();
    while let Some(Ready(node)) = pass.heap.pop() {
        let _signal = signal::for_gradient(node.backward_signal(), pass.caller);
        if let Kind::Custom(custom) = node.kind() {
            if let Some(grads) = pass.bundles.remove(&node.number()) {
                let results = custom_gradients(&node, custom, grads, options)?;
                check_for_nan(&node, results.iter().map(|(_, grad)| grad))?;
                for (to, grad) in results {
                    if pass.goes_to(&to) {
                        pass.arrive(&to, grad)?;
                    }
                }
            }
            continue;
        }
        let Some(mut grad) = pass.take(&node)? else { continue };
        for hook in node.hooks() {
            if let Some(other) = hook(grad.same())? {
                grad = other;
            }
        }
        if let Some(place) = found.get_mut(&node.number()) {
            *place = Some(grad.same());
        }
        if node.retains_grad() || (wanted.is_none() && node.is_leaf()) {
            node.accumulate(grad.same())?;
        }
        match node.kind() {
            Kind::Op { op: Op::Slice, attrs: Attrs::Slice(spec), edges } if !options.create_graph => {
                let to = match &lock(edges).inputs[..] {
                    [Edge::Tensor { node: Some(to), .. }] => Some(to.clone()),
                    _ => None,
                };
                if let Some(to) = to.filter(|to| pass.goes_to(to)) {
                    pass.arrive_in_part(&to, Part { spec: **spec, grad });
                }
            }
            Kind::Op { op, attrs, edges } => {
                let goes = |to: &Node| pass.goes_to(to);
                let results = op_gradients(&node, (*op, attrs, edges), &grad, &goes, options)?;
                check_for_nan(&node, results.iter().map(|(_, grad)| grad))?;
                for (to, grad) in results {
                    pass.arrive(&to, grad)?;
                }
            }
            Kind::Part { of: Some(of), index } if pass.goes_to(of) => pass.arrive_at_result(of, *index, grad)?,
            _ => {}
        }
    }
    let mut result = Vec::new();
    for node in wanted.unwrap_or_default() {
        result.push(found.get_mut(&node.number()).and_then(Option::as_mut).map(Tensor::same));
    }
    Ok(result)
}

/// Under anomaly detection, an error that names the op whose gradient is not a number.
fn check_for_nan<'a>(node: &Node, grads: impl Iterator<Item = &'a Tensor>) -> Result<()> {
    if !anomaly().1 {
        return Ok(());
    }
    for (i, grad) in grads.enumerate().filter(|(_, grad)| grad.meta().dtype.is_float()) {
        let nan = grad.elementwise(Op::Isnan, &[Operand::This])?;
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

/// The gradients of a function of the host language's inputs, in their shapes and dtypes.
fn custom_gradients(
    node: &Arc<Node>,
    custom: &Custom,
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

fn op_gradients(
    node: &Arc<Node>,
    (op, attrs, edges): (Op, &Attrs, &Mutex<Edges>),
    grad: &Tensor,
    goes_to: &dyn Fn(&Node) -> bool,
    options: BackwardOptions,
) -> Result<Vec<(Arc<Node>, Tensor)>> {
    let row = op.row();
    let Some(gradient) = row.grad else { return Ok(Vec::new()) };
    let session: Arc<Session> = grad.session();
    let mut scope = Scope::new(&session);
    let grad_val = scope.add(grad)?;
    let mut targets: Vec<Option<(Arc<Node>, Meta)>>;
    let inputs: Vec<Saved>;
    let output;
    let mut released: SmallVec<[Arc<Value>; 3]> = SmallVec::new();
    {
        let mut edges = lock(edges);
        if !edges.inputs.iter().any(|edge| matches!(edge, Edge::Tensor { node: Some(to), .. } if goes_to(to))) {
            return Ok(Vec::new());
        }
        if edges.released && (row.saves.inputs != 0 || row.saves.output) {
            return Err(OpError::runtime(
                "Trying to backward through the graph a second time (or directly access saved tensors after they have already been freed). \
                 Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). \
                 Specify retain_graph=True if you need to backward through the graph a second time or if you need to access saved tensors after calling backward.",
            )
            .into());
        }
        let number = node.number();
        targets = Vec::with_capacity(edges.inputs.len());
        inputs = edges
            .inputs
            .iter()
            .map(|edge| match edge {
                Edge::Scalar(s) => {
                    targets.push(None);
                    Saved::Scalar(*s)
                }
                Edge::Tensor { meta, node, saved } => {
                    targets.push(node.clone().filter(|n| goes_to(n)).map(|n| (n, *meta)));
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
                    released.extend(saved.take());
                }
            }
        }
    }
    // Freeing a tensor may wait: not under the lock.
    drop(released);
    let needs: SmallVec<[bool; 4]> = targets.iter().map(Option::is_some).collect();
    let transposed: SmallVec<[bool; 4]> =
        targets.iter().map(|target| target.as_ref().is_some_and(|(node, _)| node.is_transposition())).collect();
    let ctx = GradCtx {
        attrs,
        inputs: &inputs,
        output,
        grad: grad_val,
        needs: &needs,
        transposed: &transposed,
        recorded: options.create_graph,
    };
    let outcome = gradient(&mut scope, &ctx).and_then(|grads| {
        let mut fitted = Vec::with_capacity(grads.len());
        for (grad, target) in grads.into_iter().zip(&targets) {
            if let (Some(grad), Some((node, meta))) = (grad, target) {
                fitted.push((node.clone(), to_operand(&mut scope, grad, *meta)?));
            }
        }
        Ok(fitted)
    });
    scope.finish(outcome, |scope, fitted| fitted.into_iter().map(|(node, val)| (node, scope.tensor(val))).collect())
}
