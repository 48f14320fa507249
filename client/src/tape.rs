//! The tape: what was computed from what, and the backward pass over it.

use crate::error::{Error, Result};
use crate::lock::BriefLock;
use crate::scope::Scope;
use crate::session::{Session, Value};
use crate::tensor::Tensor;
use gt_ops::grad::{GradCtx, Saved, to_operand};
use gt_ops::{Attrs, Meta, Op, OpError, Scalar};
use smallvec::SmallVec;
use std::cell::Cell;
use std::collections::{BinaryHeap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

thread_local! {
    static GRAD_ENABLED: Cell<bool> = const { Cell::new(true) };
}

/// Whether this thread records what it computes.
#[inline]
pub fn grad_enabled() -> bool {
    GRAD_ENABLED.get()
}

/// Turns recording on or off for this thread; returns what it was.
pub fn set_grad_enabled(on: bool) -> bool {
    GRAD_ENABLED.replace(on)
}

/// Where the host language is now, as `file:line in function`.
pub type OriginHook = fn() -> Option<String>;
static ORIGIN: OnceLock<OriginHook> = OnceLock::new();

/// Tells how to find the line of the host language that issues an instruction.
pub fn set_origin_hook(hook: OriginHook) {
    let _ = ORIGIN.set(hook);
}

pub(crate) fn origin_of_call() -> Option<String> {
    ORIGIN.get().and_then(|hook| hook())
}

/// One operand of a recorded op.
pub enum Edge {
    /// A number.
    Scalar(Scalar),
    /// A tensor.
    Tensor {
        /// Its shape and dtype.
        meta: Meta,
        /// Its own place on the tape, if gradients flow to it.
        node: Option<Arc<Node>>,
        /// Its value, if the gradient needs it.
        saved: Option<Arc<Value>>,
    },
}

/// A place on the tape: a leaf that collects a gradient, or a recorded op.
pub struct Node {
    /// Grows with time: an op's operands have smaller numbers than the op.
    number: u64,
    meta: Meta,
    kind: Kind,
    grad: Mutex<Option<Tensor>>,
    /// Keep the gradient although this is no leaf.
    retain: AtomicBool,
    /// Where it is listed.
    place: AtomicU32,
}

#[expect(clippy::large_enum_variant, reason = "leaves are few; recorded ops are what is allocated all the time")]
enum Kind {
    Leaf,
    Op { op: Op, attrs: Attrs, edges: Mutex<Edges> },
}

struct Edges {
    inputs: SmallVec<[Edge; 2]>,
    output: Option<Arc<Value>>,
    /// A backward pass has let go of what was saved.
    released: bool,
}

static NUMBER: AtomicU64 = AtomicU64::new(1);
/// The nodes that are alive, for those who want to see the tape.
static NODES: BriefLock<Registry> = BriefLock::new(Registry { places: Vec::new(), free: Vec::new() });

/// Where each living node is. A node leaves in its own drop, so what is listed can be read under the lock.
struct Registry {
    places: Vec<*const Node>,
    free: Vec<u32>,
}

// SAFETY: the pointers are only followed under the lock, which a node's drop takes before the node goes.
unsafe impl Send for Registry {}

impl Registry {
    fn enter(&mut self, node: *const Node) -> u32 {
        match self.free.pop() {
            Some(place) => {
                self.places[place as usize] = node;
                place
            }
            None => {
                self.places.push(node);
                self.places.len() as u32 - 1
            }
        }
    }
    fn leave(&mut self, place: u32) {
        self.places[place as usize] = std::ptr::null();
        self.free.push(place);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Node {
    fn new(meta: Meta, kind: Kind) -> Arc<Node> {
        let number = NUMBER.fetch_add(1, Relaxed);
        let node = Arc::new(Node {
            number,
            meta,
            kind,
            grad: Mutex::new(None),
            retain: AtomicBool::new(false),
            place: AtomicU32::new(0),
        });
        let place = NODES.lock().enter(Arc::as_ptr(&node));
        node.place.store(place, Relaxed);
        node
    }

    pub(crate) fn leaf(meta: Meta) -> Arc<Node> {
        Node::new(meta, Kind::Leaf)
    }

    pub(crate) fn op(
        op: Op,
        attrs: Attrs,
        inputs: SmallVec<[Edge; 2]>,
        output: Option<Arc<Value>>,
        meta: Meta,
    ) -> Arc<Node> {
        Node::new(meta, Kind::Op { op, attrs, edges: Mutex::new(Edges { inputs, output, released: false }) })
    }

    /// Whether it collects a gradient for a user's tensor.
    pub fn is_leaf(&self) -> bool {
        matches!(self.kind, Kind::Leaf)
    }
    /// Its number: larger than that of all it was computed from.
    pub fn number(&self) -> u64 {
        self.number
    }
    /// The shape and dtype of its tensor.
    pub fn meta(&self) -> Meta {
        self.meta
    }
    /// The op it records; none for a leaf.
    pub fn recorded_op(&self) -> Option<Op> {
        match &self.kind {
            Kind::Leaf => None,
            Kind::Op { op, .. } => Some(*op),
        }
    }
    /// The places on the tape of its operands, none for those without.
    pub fn inputs(&self) -> Vec<Option<Arc<Node>>> {
        self.each_input(|node| node.cloned())
    }
    fn each_input<T>(&self, look: impl Fn(Option<&Arc<Node>>) -> Option<T>) -> Vec<Option<T>> {
        match &self.kind {
            Kind::Leaf => Vec::new(),
            Kind::Op { edges, .. } => lock(edges)
                .inputs
                .iter()
                .map(|edge| match edge {
                    Edge::Scalar(_) => None,
                    Edge::Tensor { node, .. } => look(node.as_ref()),
                })
                .collect(),
        }
    }
    /// Whether it is another tensor with its last two axes exchanged.
    fn is_transposition(&self) -> bool {
        matches!(&self.kind, Kind::Op { attrs: Attrs::Permutation(p), .. }
            if gt_ops::grad::exchanges_last(p, self.meta.shape.rank()))
    }
    /// Keeps the gradient of this tensor though it is no leaf.
    pub fn retain_grad(&self) {
        self.retain.store(true, Relaxed);
    }
    /// Whether [`Node::retain_grad`] was called.
    pub fn retains_grad(&self) -> bool {
        self.retain.load(Relaxed)
    }
    pub(crate) fn grad(&self) -> Option<Tensor> {
        lock(&self.grad).as_mut().map(Tensor::same)
    }
    pub(crate) fn set_grad(&self, grad: Option<Tensor>) {
        let old = std::mem::replace(&mut *lock(&self.grad), grad);
        drop(old);
    }

    /// Adds `grad` to what was collected.
    fn accumulate(&self, grad: Tensor) -> Result<()> {
        // An op may wait, and nobody waits under a lock.
        let Some(mut total) = self.grad() else {
            self.set_grad(Some(grad));
            return Ok(());
        };
        let plan = total.plan_rebind(total.binary(Op::Add, &grad)?)?;
        drop(total.rebind(plan));
        Ok(())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        NODES.lock().leave(self.place.load(Relaxed));
        // A long chain would otherwise be dropped by as deep a recursion.
        let mut doomed = Vec::new();
        let take = |node: &mut Node, doomed: &mut Vec<Arc<Node>>| {
            if let Kind::Op { edges, .. } = &mut node.kind {
                let edges = edges.get_mut().unwrap_or_else(PoisonError::into_inner);
                for edge in edges.inputs.drain(..) {
                    if let Edge::Tensor { node: Some(node), .. } = edge {
                        doomed.push(node);
                    }
                }
            }
        };
        take(self, &mut doomed);
        while let Some(node) = doomed.pop() {
            if let Some(mut node) = Arc::into_inner(node) {
                take(&mut node, &mut doomed);
            }
        }
    }
}

/// What the tape shows of a place on it.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its number: larger than those of its inputs.
    pub number: u64,
    /// The op it records; none for a leaf.
    pub op: Option<Op>,
    /// The shape and dtype of its tensor.
    pub meta: Meta,
    /// The numbers of the places that its operands have on the tape.
    pub inputs: Vec<u64>,
}

/// The places on the tape that are alive, oldest first.
pub fn entries() -> Vec<Entry> {
    let nodes = NODES.lock();
    let mut entries: Vec<Entry> = nodes
        .places
        .iter()
        .filter(|node| !node.is_null())
        .map(|node| {
            // SAFETY: a node is listed until its drop has taken the lock that we hold.
            let node = unsafe { &**node };
            let inputs = node.each_input(|n| n.map(|n| n.number)).into_iter().flatten().collect();
            Entry { number: node.number, op: node.recorded_op(), meta: node.meta, inputs }
        })
        .collect();
    drop(nodes);
    entries.sort_by_key(|entry| entry.number);
    entries
}

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
        self.0.number == other.0.number
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
        self.0.number.cmp(&other.0.number)
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
fn seed_gradient(root: &Tensor, gradient: Option<&Tensor>) -> Result<Tensor> {
    let meta = root.meta();
    if let Some(gradient) = gradient {
        let given = gradient.meta();
        if given.shape != meta.shape {
            return Err(OpError::runtime(format!(
                "Mismatch in shape: grad_output[0] has a shape of {} and output[0] has a shape of {}.",
                given.shape, meta.shape
            ))
            .into());
        }
        return gradient.apply(|g, v| gt_ops::build::cast(g, v, meta.dtype));
    }
    if meta.shape.numel() != 1 {
        return Err(OpError::runtime("grad can be implicitly created only for scalar outputs").into());
    }
    let mut scope = Scope::new(&root.session());
    let outcome = gt_ops::build::full(&mut scope, meta.shape, Scalar::Float(1.0), meta.dtype);
    scope.finish(outcome, |s, v| s.tensor(v))
}

/// Walks the tape from `root` back, collecting gradients in the leaves.
///
/// # Errors
/// A root outside the tape, one with many elements and no gradient, a tape already walked.
pub fn backward(root: &Tensor, gradient: Option<&Tensor>, options: BackwardOptions) -> Result<()> {
    walk(&[(root, gradient)], None, options).map(drop)
}

/// The gradients of `outputs` with respect to `inputs`, collected nowhere else; none where none flows.
///
/// # Errors
/// As [`backward`]; an input outside the tape.
pub fn grad(
    outputs: &[(&Tensor, Option<&Tensor>)],
    inputs: &[&Tensor],
    options: BackwardOptions,
) -> Result<Vec<Option<Tensor>>> {
    let wanted = inputs
        .iter()
        .map(|t| {
            t.node()
                .ok_or_else(|| Error::from(OpError::runtime("One of the differentiated Tensors does not require grad")))
        })
        .collect::<Result<Vec<_>>>()?;
    walk(outputs, Some(&wanted), options)
}

fn walk(
    roots: &[(&Tensor, Option<&Tensor>)],
    wanted: Option<&[Arc<Node>]>,
    options: BackwardOptions,
) -> Result<Vec<Option<Tensor>>> {
    let _guard = RecordingGuard(set_grad_enabled(options.create_graph));
    let mut grads: HashMap<u64, Tensor> = HashMap::new();
    let mut heap = BinaryHeap::new();
    for (root, gradient) in roots {
        let node = root.node().ok_or_else(|| {
            OpError::runtime("element 0 of tensors does not require grad and does not have a grad_fn")
        })?;
        let seed = seed_gradient(root, *gradient)?;
        arrive(&mut grads, &mut heap, &node, seed)?;
    }
    let mut found: HashMap<u64, Tensor> = HashMap::new();
    while let Some(Ready(node)) = heap.pop() {
        let Some(mut grad) = grads.remove(&node.number) else { continue };
        match wanted {
            Some(wanted) if wanted.iter().any(|w| w.number == node.number) => {
                found.insert(node.number, grad.same());
            }
            None if node.is_leaf() || node.retains_grad() => node.accumulate(grad.same())?,
            _ => {}
        }
        if let Kind::Op { op, attrs, edges } = &node.kind {
            for (to, grad) in op_gradients(&node, *op, attrs, edges, &grad, options)? {
                arrive(&mut grads, &mut heap, &to, grad)?;
            }
        }
    }
    Ok(wanted.unwrap_or_default().iter().map(|w| found.get_mut(&w.number).map(Tensor::same)).collect())
}

/// A gradient reaches `node`: it joins those that already have.
fn arrive(
    grads: &mut HashMap<u64, Tensor>,
    heap: &mut BinaryHeap<Ready>,
    node: &Arc<Node>,
    grad: Tensor,
) -> Result<()> {
    match grads.remove(&node.number) {
        Some(earlier) => {
            grads.insert(node.number, earlier.binary(Op::Add, &grad)?);
        }
        None => {
            grads.insert(node.number, grad);
            heap.push(Ready(node.clone()));
        }
    }
    Ok(())
}

fn op_gradients(
    node: &Arc<Node>,
    op: Op,
    attrs: &Attrs,
    edges: &Mutex<Edges>,
    grad: &Tensor,
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
        if edges.released && (row.saves.inputs != 0 || row.saves.output) {
            return Err(OpError::runtime(
                "Trying to backward through the graph a second time (or directly access saved tensors after they have already been freed). \
                 Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). \
                 Specify retain_graph=True if you need to backward through the graph a second time or if you need to access saved tensors after calling backward.",
            )
            .into());
        }
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
                    targets.push(node.clone().map(|n| (n, *meta)));
                    match saved {
                        Some(value) => Saved::Val(scope.push(value.clone(), node.clone())),
                        None => Saved::Meta(*meta),
                    }
                }
            })
            .collect();
        output = match &edges.output {
            Some(value) => Saved::Val(scope.push(value.clone(), Some(node.clone()))),
            None => Saved::Meta(node.meta),
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
    let ctx = GradCtx { attrs, inputs: &inputs, output, grad: grad_val, needs: &needs, transposed: &transposed };
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
