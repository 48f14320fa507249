//! The tape of reverse-mode automatic differentiation: every op that gradients flow through is recorded as a node, with
//! the values that its gradient formula needs. [`crate::backward`] walks it.

use crate::handle::{
    AccumulatedHook, Backward, CustomFunction, Edge, Edges, GradHook, LeafState, Node, NodeKind, Tensor,
};
use crate::lock::SpinLock;
use crate::origin::line_of_call;
use crate::signal;
use crate::value::TensorValue;
use gt_ops::{Attrs, Meta, Op, Scalar, build};
use smallvec::SmallVec;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

thread_local! {
    static GRAD_ENABLED: Cell<bool> = const { Cell::new(true) };
}

/// Whether this thread records the ops that it computes.
#[inline]
pub fn grad_enabled() -> bool {
    GRAD_ENABLED.get()
}

/// Turns recording on or off for this thread; returns the previous state.
pub fn set_grad_enabled(on: bool) -> bool {
    GRAD_ENABLED.replace(on)
}

/// Bits: whether nodes remember the line that recorded them, and whether gradients are checked for NaNs.
static ANOMALY: AtomicU32 = AtomicU32::new(0);
const ANOMALY_ORIGINS: u32 = 1;
const ANOMALY_NAN: u32 = 2;

/// Turns anomaly detection on or off: ops remember where they were recorded and, with `check_nan`, a backward pass
/// fails at the first op that computes a gradient with a NaN.
pub fn set_anomaly(on: bool, check_nan: bool) {
    let mode = if on { ANOMALY_ORIGINS | if check_nan { ANOMALY_NAN } else { 0 } } else { 0 };
    ANOMALY.store(mode, Relaxed);
}
/// Whether anomaly detection is on, and whether it checks for NaNs.
pub fn anomaly() -> (bool, bool) {
    let mode = ANOMALY.load(Relaxed);
    (mode & ANOMALY_ORIGINS != 0, mode & ANOMALY_NAN != 0)
}

static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);

/// The sequence number of the next node.
pub fn next_number() -> u64 {
    NEXT_NUMBER.load(Relaxed)
}

/// The living nodes, for [`entries`].
static NODES: SpinLock<NodeRegistry> = SpinLock::new(NodeRegistry { nodes: Vec::new(), free: Vec::new() });

/// Pointers to the living nodes. A node removes itself in its drop, so the listed ones can be read under the lock.
struct NodeRegistry {
    nodes: Vec<*const Node>,
    /// Indices of `nodes` that are null.
    free: Vec<u32>,
}

// SAFETY: the pointers are dereferenced only in `entries`, under the lock of `NODES`; `Node::drop` takes that lock to
// remove its pointer before the node's memory is freed.
unsafe impl Send for NodeRegistry {}

impl NodeRegistry {
    fn insert(&mut self, node: *const Node) -> u32 {
        match self.free.pop() {
            Some(index) => {
                self.nodes[index as usize] = node;
                index
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() as u32 - 1
            }
        }
    }
    fn remove(&mut self, index: u32) {
        self.nodes[index as usize] = std::ptr::null();
        self.free.push(index);
    }
}

impl Node {
    fn new(meta: Meta, kind: NodeKind) -> Arc<Node> {
        // Gradients of different signals accumulate in a leaf, so it belongs to none.
        let backward_signal =
            if matches!(kind, NodeKind::Leaf(_)) { signal::NONE } else { signal::current().backward() };
        let number = NEXT_NUMBER.fetch_add(1, Relaxed);
        let node = Arc::new(Node {
            number,
            meta,
            kind,
            grad: Mutex::new(None),
            retain: AtomicBool::new(false),
            extras: Mutex::new(None),
            registry_index: AtomicU32::new(0),
            backward_signal,
        });
        let index = NODES.lock().insert(Arc::as_ptr(&node));
        node.registry_index.store(index, Relaxed);
        node
    }

    /// A leaf; it may have a gradient even if none flows to it, as the program can assign one.
    pub(crate) fn leaf(meta: Meta, requires_grad: bool) -> Arc<Node> {
        let leaf = LeafState { requires_grad: AtomicBool::new(requires_grad), meta: Mutex::new(meta) };
        Node::new(meta, NodeKind::Leaf(leaf))
    }

    /// The node of a tensor that an in-place operation has overwritten: `old` gets a gradient of zeros, and `new`, the
    /// node of what was written, gets all of it.
    pub(crate) fn overwritten(old: Arc<Node>, new: Option<Arc<Node>>, meta: Meta) -> Arc<Node> {
        let inputs: Vec<_> = std::iter::once(old).chain(new).map(Some).collect();
        let written = inputs.len() > 1;
        let backward = move |_: &Arc<Node>, mut grads: Vec<Option<Tensor>>, _: bool| {
            let Some(mut grad) = grads.pop().flatten() else {
                return Ok((0..=usize::from(written)).map(|_| None).collect());
            };
            let zeros = grad.apply(|g, _| build::full(g, meta.shape, Scalar::Float(0.0), meta.dtype))?;
            Ok(std::iter::once(Some(zeros)).chain(written.then(|| Some(grad.same()))).collect())
        };
        let function = Node::custom("CopyBackwards".into(), inputs, 1, meta, Box::new(backward));
        Node::custom_output(&function, 0, meta)
    }

    pub(crate) fn op(
        op: Op,
        attrs: Attrs,
        inputs: SmallVec<[Edge; 2]>,
        output: Option<Arc<TensorValue>>,
        meta: Meta,
    ) -> Arc<Node> {
        Node::new(meta, NodeKind::Op { op, attrs, edges: Mutex::new(Edges { inputs, output, released: false }) })
            .record_origin()
    }

    /// Records a call of a custom autograd function with `results` results.
    pub fn custom(
        name: String,
        inputs: Vec<Option<Arc<Node>>>,
        results: usize,
        meta: Meta,
        backward: Backward,
    ) -> Arc<Node> {
        Node::new(meta, NodeKind::Custom(Box::new(CustomFunction { name, inputs, results, backward }))).record_origin()
    }

    /// The node of result `index` of a custom autograd function.
    pub fn custom_output(function: &Arc<Node>, index: usize, meta: Meta) -> Arc<Node> {
        Node::new(meta, NodeKind::CustomOutput { function: Some(function.clone()), index })
    }

    /// A node outside the graph that retains a gradient until it hands it over.
    pub(crate) fn retaining(meta: Meta) -> Arc<Node> {
        Node::new(meta, NodeKind::CustomOutput { function: None, index: 0 })
    }

    /// Under anomaly detection, remembers the line of the host language.
    fn record_origin(self: Arc<Node>) -> Arc<Node> {
        if anomaly().0 {
            let origin = line_of_call();
            self.with_extras(|extras| extras.origin = origin);
        }
        self
    }
    /// Adds a hook on the gradient of this tensor; returns its key.
    pub fn add_hook(&self, hook: GradHook) -> u64 {
        let key = NEXT_NUMBER.fetch_add(1, Relaxed);
        self.with_extras(|extras| extras.hooks.push((key, hook)));
        key
    }
    /// Adds a hook that runs when this leaf has accumulated a gradient; returns its key.
    pub fn add_accumulated_hook(&self, hook: AccumulatedHook) -> u64 {
        let key = NEXT_NUMBER.fetch_add(1, Relaxed);
        self.with_extras(|extras| extras.accumulated_hooks.push((key, hook)));
        key
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        NODES.lock().remove(self.registry_index.load(Relaxed));
        // Iterative: dropping a long chain of nodes by recursion would overflow the stack.
        let mut doomed = Vec::new();
        let take = |node: &mut Node, doomed: &mut Vec<Arc<Node>>| match &mut node.kind {
            NodeKind::Leaf(_) => {}
            NodeKind::Op { edges, .. } => {
                let edges = edges.get_mut().unwrap_or_else(PoisonError::into_inner);
                for edge in edges.inputs.drain(..) {
                    if let Edge::Tensor { node: Some(node), .. } = edge {
                        doomed.push(node);
                    }
                }
            }
            NodeKind::Custom(custom) => doomed.extend(custom.inputs.drain(..).flatten()),
            NodeKind::CustomOutput { function, .. } => doomed.extend(function.take()),
        };
        take(self, &mut doomed);
        while let Some(node) = doomed.pop() {
            if let Some(mut node) = Arc::into_inner(node) {
                take(&mut node, &mut doomed);
            }
        }
    }
}

/// A node of the tape, as [`entries`] lists it.
#[derive(Clone, Debug)]
pub struct TapeEntry {
    /// The sequence number: larger than those of its inputs.
    pub number: u64,
    /// The name of the recorded op: see [`Node::name`].
    pub name: String,
    /// Whether it is a leaf.
    pub leaf: bool,
    /// The shape and dtype of its tensor.
    pub meta: Meta,
    /// The sequence numbers of its operands' nodes.
    pub inputs: Vec<u64>,
}

/// The living nodes, oldest first.
pub fn entries() -> Vec<TapeEntry> {
    let nodes = NODES.lock();
    let mut entries: Vec<TapeEntry> = nodes
        .nodes
        .iter()
        .filter(|node| !node.is_null())
        .map(|node| {
            // SAFETY: `Node::drop` sets the pointer to null under the lock that `nodes` holds, before the node is
            // freed.
            let node = unsafe { &**node };
            let inputs = node.each_input(|n| n.map(|n| n.number)).into_iter().flatten().collect();
            TapeEntry { number: node.number, name: node.name().into(), leaf: node.is_leaf(), meta: node.meta(), inputs }
        })
        .collect();
    drop(nodes);
    entries.sort_by_key(|entry| entry.number);
    entries
}
