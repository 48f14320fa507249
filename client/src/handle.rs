//! Tensor handles, views and autograd nodes: the types that own each other.
//!
//! A tensor has a node on the tape, the node of a leaf holds a gradient, and a gradient is a tensor. So their types and
//! accessors stand together here; [`crate::tape`] records nodes, [`crate::view`] replays views, and [`crate::tensor`]
//! has the operations.

use crate::error::Result;
use crate::lock::lock;
use crate::storage::{Storage, StorageVersion, ViewCache};
use crate::strides::{MemoryLayout, ViewOps};
use crate::value::TensorValue;
use gt_ops::{Attrs, Meta, Op, Scalar};
use smallvec::SmallVec;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// A tensor as users of PyTorch know it: a handle whose value in-place operations replace.
///
/// Values are immutable: an in-place operation computes a new one and binds the handle to it. Handles that would share
/// memory in PyTorch (`data`, `detach()`, views) share a binding here, so a write through one shows in the others.
pub struct Tensor {
    pub(crate) binding: Binding,
}

pub(crate) enum Binding {
    /// No other handle sees this handle's in-place operations.
    Own(Arc<TensorValue>, Option<Arc<Node>>),
    /// Other handles share the storage.
    Shared(Arc<Storage>, Arc<AutogradMeta>),
    /// Elements of a storage, through movement ops and gathers.
    View(Box<View>),
}

impl Tensor {
    /// A handle on `value`, with its node if it is on the tape.
    #[inline]
    pub fn new(value: Arc<TensorValue>, node: Option<Arc<Node>>) -> Tensor {
        Tensor { binding: Binding::Own(value, node) }
    }

    /// Another handle on the same value and the same node.
    pub fn same(&mut self) -> Tensor {
        let binding = match &self.binding {
            Binding::View(view) => Binding::View(Box::new(view.same())),
            _ => {
                let (storage, autograd) = self.share();
                Binding::Shared(storage, autograd)
            }
        };
        Tensor { binding }
    }

    /// The storage and autograd metadata, which the handle shares from now on.
    pub(crate) fn share(&mut self) -> (Arc<Storage>, Arc<AutogradMeta>) {
        let shared = match &self.binding {
            Binding::Own(value, node) => (Storage::new(value.clone()), AutogradMeta::new(node.clone())),
            Binding::Shared(storage, autograd) => return (storage.clone(), autograd.clone()),
            Binding::View(view) => return (view.base.clone(), view.autograd.clone()),
        };
        self.binding = Binding::Shared(shared.0.clone(), shared.1.clone());
        shared
    }
}

/// The current node of a tensor, shared by all handles and views that gradients flow through together. The handle that
/// `detach()` returns shares the storage, but has its own node.
pub(crate) struct AutogradMeta {
    node: Mutex<Option<Arc<Node>>>,
    /// Whether in-place operations leave saved values valid, as those through `x.data` do.
    pub(crate) untracked: bool,
}

impl AutogradMeta {
    pub(crate) fn new(node: Option<Arc<Node>>) -> Arc<AutogradMeta> {
        AutogradMeta::of(node, false)
    }
    /// The metadata of a handle of its own, which may be `untracked`.
    pub(crate) fn of(node: Option<Arc<Node>>, untracked: bool) -> Arc<AutogradMeta> {
        Arc::new(AutogradMeta { node: Mutex::new(node), untracked })
    }
    /// The node, if gradients flow to it.
    pub(crate) fn node(&self) -> Option<Arc<Node>> {
        lock(&self.node).as_ref().filter(|node| node.requires_grad()).cloned()
    }
    /// The node, also that of a leaf which requires no gradient, but may have one.
    pub(crate) fn any_node(&self) -> Option<Arc<Node>> {
        lock(&self.node).clone()
    }
    /// Replaces the node and returns the old one.
    #[must_use = "to be dropped outside every lock"]
    pub(crate) fn replace(&self, node: Option<Arc<Node>>) -> Option<Arc<Node>> {
        std::mem::replace(&mut *lock(&self.node), node)
    }
}

/// A view: ops that lead from a storage's value to the view's.
pub(crate) struct View {
    pub(crate) base: Arc<Storage>,
    /// The autograd metadata of the handle that the view was taken of; the view's own, if it was detached.
    pub(crate) autograd: Arc<AutogradMeta>,
    pub(crate) ops: ViewOps,
    /// The number of leading ops that lead to the tensor whose autograd metadata is `autograd`: 0 if that is the base,
    /// and all ops if the view has metadata of its own.
    pub(crate) tracked_from: usize,
    pub(crate) meta: Meta,
    pub(crate) layout: MemoryLayout,
    /// The result of the ops for one version of the base.
    cached: Arc<Mutex<CachedView>>,
}

/// The last result of a view's ops.
#[derive(Clone)]
pub(crate) struct CachedView {
    /// None if it was dropped so that the base can be written in place.
    pub(crate) value: Option<Arc<TensorValue>>,
    pub(crate) node: Option<Arc<Node>>,
    pub(crate) version: StorageVersion,
    /// How many failures the session had reported. A reported failure may have given the base its old elements back.
    pub(crate) failures: u64,
}

impl CachedView {
    /// The result of a view's ops that was computed just now.
    pub(crate) fn new(MaterializedView { value, node, version }: MaterializedView) -> CachedView {
        CachedView { failures: value.session().failures(), value: Some(value), node, version }
    }
}

impl ViewCache for Mutex<CachedView> {
    fn take_value(&self) -> Option<Arc<TensorValue>> {
        lock(self).value.take()
    }
}

/// The value and node that a view's ops gave for one version of its base.
#[derive(Clone)]
pub(crate) struct MaterializedView {
    pub(crate) value: Arc<TensorValue>,
    pub(crate) node: Option<Arc<Node>>,
    pub(crate) version: StorageVersion,
}

impl View {
    pub(crate) fn new(
        base: Arc<Storage>,
        autograd: Arc<AutogradMeta>,
        (ops, tracked_from): (ViewOps, usize),
        (meta, layout): (Meta, MemoryLayout),
        cached: CachedView,
    ) -> View {
        let cached = Arc::new(Mutex::new(cached));
        let cache: Arc<dyn ViewCache> = cached.clone();
        base.add_view(Arc::downgrade(&cache));
        View { base, autograd, ops, tracked_from, meta, layout, cached }
    }

    /// The same elements with autograd metadata of their own.
    pub(crate) fn with_autograd(&self, autograd: Arc<AutogradMeta>) -> View {
        let cached = CachedView { node: None, ..self.cached() };
        let ops = (self.ops.clone(), self.ops.len());
        View::new(self.base.clone(), autograd, ops, (self.meta, self.layout), cached)
    }

    /// Another handle on the same view.
    pub(crate) fn same(&self) -> View {
        let ops = (self.ops.clone(), self.tracked_from);
        View::new(self.base.clone(), self.autograd.clone(), ops, (self.meta, self.layout), self.cached())
    }

    /// Whether the view has autograd metadata of its own: gradients do not flow through it to its base.
    pub(crate) fn is_detached(&self) -> bool {
        self.tracked_from == self.ops.len()
    }

    /// The last result, whether or not the base has changed since.
    pub(crate) fn cached(&self) -> CachedView {
        lock(&self.cached).clone()
    }

    #[must_use = "to be dropped outside every lock"]
    pub(crate) fn replace_cached(&self, cached: CachedView) -> CachedView {
        std::mem::replace(&mut *lock(&self.cached), cached)
    }
}

/// A node of the tape: a leaf that accumulates a gradient, or a recorded op.
pub struct Node {
    /// The sequence number: nodes created later have larger ones, so an op's is larger than its operands'.
    pub(crate) number: u64,
    pub(crate) meta: Meta,
    pub(crate) kind: NodeKind,
    pub(crate) grad: Mutex<Option<Tensor>>,
    /// Whether a non-leaf keeps its gradient.
    pub(crate) retain: AtomicBool,
    pub(crate) extras: Mutex<Option<Box<NodeExtras>>>,
    /// Its index in the registry of living nodes.
    pub(crate) registry_index: AtomicU32,
    /// The signal under which its gradients are computed.
    pub(crate) backward_signal: u32,
}

#[expect(clippy::large_enum_variant, reason = "leaves are few; recorded ops are what is allocated all the time")]
pub(crate) enum NodeKind {
    Leaf(LeafState),
    Op {
        op: Op,
        attrs: Attrs,
        edges: Mutex<Edges>,
    },
    /// A custom autograd function of the host language; its results are `CustomOutput`s.
    Custom(Box<CustomFunction>),
    CustomOutput {
        /// None while the node is dropped, and in a node outside the graph: see [`Node::retaining`].
        function: Option<Arc<Node>>,
        index: usize,
    },
}

/// The state of a leaf, which a program can change.
pub(crate) struct LeafState {
    /// Whether gradients flow to it. The leaf keeps its gradient when this is turned off.
    pub(crate) requires_grad: AtomicBool,
    /// The shape and dtype, which `t.data = u` and, without recording, `t.t_()` change.
    pub(crate) meta: Mutex<Meta>,
}

/// One operand of a recorded op.
pub enum Edge {
    /// A number.
    Scalar(Scalar),
    /// A tensor.
    Tensor {
        /// The operand's shape and dtype.
        meta: Meta,
        /// The operand's node, if gradients flow to it.
        node: Option<Arc<Node>>,
        /// The operand's value, if the gradient formula needs it.
        saved: Option<Arc<TensorValue>>,
    },
}

pub(crate) struct Edges {
    pub(crate) inputs: SmallVec<[Edge; 2]>,
    pub(crate) output: Option<Arc<TensorValue>>,
    /// Whether a backward pass has released the saved values.
    pub(crate) released: bool,
}

/// A custom autograd function on the tape.
pub(crate) struct CustomFunction {
    pub(crate) name: String,
    pub(crate) inputs: Vec<Option<Arc<Node>>>,
    pub(crate) results: usize,
    pub(crate) backward: Backward,
}

/// The backward of a custom autograd function. Takes the function's node, the gradients of its results and whether the
/// graph is retained for another pass; returns the gradients of its inputs.
pub type Backward = Box<dyn Fn(&Arc<Node>, Vec<Option<Tensor>>, bool) -> Result<Vec<Option<Tensor>>> + Send + Sync>;
/// A hook on a tensor's gradient: it may return another gradient to use instead.
pub type GradHook = Arc<dyn Fn(Tensor) -> Result<Option<Tensor>> + Send + Sync>;
/// A hook that runs after a leaf has accumulated a gradient.
pub type AccumulatedHook = Arc<dyn Fn() -> Result<()> + Send + Sync>;

/// Rarely used parts of a node, allocated on first use.
#[derive(Default)]
pub(crate) struct NodeExtras {
    pub(crate) hooks: Vec<(u64, GradHook)>,
    pub(crate) accumulated_hooks: Vec<(u64, AccumulatedHook)>,
    /// Under anomaly detection, the line of the host language that recorded the op.
    pub(crate) origin: Option<String>,
    /// The node that the tensor had before it got another shape in place, which retains the gradient.
    pub(crate) former: Option<Arc<Node>>,
}

impl Node {
    /// For a result of a custom function, the function's node and the result's index; for any other node, itself and 0.
    pub fn function(self: &Arc<Node>) -> (Arc<Node>, usize) {
        match &self.kind {
            NodeKind::CustomOutput { function: Some(function), index } => (function.clone(), *index),
            _ => (self.clone(), 0),
        }
    }

    pub(crate) fn with_extras<R>(&self, change: impl FnOnce(&mut NodeExtras) -> R) -> R {
        change(lock(&self.extras).get_or_insert_with(Box::default))
    }
    /// Removes a hook of either kind.
    pub fn remove_hook(&self, key: u64) {
        // Dropped without the lock: a hook may hold a tensor, and dropping a tensor may wait.
        let old =
            self.with_extras(|extras| (take_key(&mut extras.hooks, key), take_key(&mut extras.accumulated_hooks, key)));
        drop(old);
    }
    pub(crate) fn hooks(&self) -> Vec<GradHook> {
        lock(&self.extras).as_ref().map_or_else(Vec::new, |e| e.hooks.iter().map(|(_, hook)| hook.clone()).collect())
    }
    pub(crate) fn has_hooks(&self) -> bool {
        lock(&self.extras).as_ref().is_some_and(|extras| !extras.hooks.is_empty())
    }
    pub(crate) fn accumulated_hooks(&self) -> Vec<AccumulatedHook> {
        let extras = lock(&self.extras);
        extras.as_ref().map_or_else(Vec::new, |e| e.accumulated_hooks.iter().map(|(_, hook)| hook.clone()).collect())
    }
    /// The line that recorded the op, under anomaly detection.
    pub fn origin(&self) -> Option<String> {
        lock(&self.extras).as_ref().and_then(|e| e.origin.clone())
    }
    pub(crate) fn backward_signal(&self) -> u32 {
        self.backward_signal
    }
    pub(crate) fn kind(&self) -> &NodeKind {
        &self.kind
    }

    /// Whether it accumulates the gradient of a leaf tensor.
    pub fn is_leaf(&self) -> bool {
        matches!(self.kind, NodeKind::Leaf(_))
    }
    /// Whether gradients flow to it; those of recorded ops always do.
    #[inline]
    pub(crate) fn requires_grad(&self) -> bool {
        match &self.kind {
            NodeKind::Leaf(leaf) => leaf.requires_grad.load(Relaxed),
            _ => true,
        }
    }
    /// Turns gradients of a leaf on or off, and sets its tensor's shape and dtype.
    pub(crate) fn set_leaf(&self, on: bool, meta: Meta) {
        if let NodeKind::Leaf(leaf) = &self.kind {
            leaf.requires_grad.store(on, Relaxed);
            *lock(&leaf.meta) = meta;
        }
    }
    /// The sequence number: larger than those of all nodes that it was computed from.
    pub fn number(&self) -> u64 {
        self.number
    }
    /// The shape and dtype of its tensor.
    pub fn meta(&self) -> Meta {
        match &self.kind {
            NodeKind::Leaf(leaf) => *lock(&leaf.meta),
            _ => self.meta,
        }
    }
    /// The name of the recorded op or custom function; `leaf` for a leaf.
    pub fn name(&self) -> &str {
        match &self.kind {
            NodeKind::Leaf(_) => "leaf",
            NodeKind::Op { op, .. } => op.name(),
            NodeKind::Custom(custom) => &custom.name,
            NodeKind::CustomOutput { function, .. } => function.as_ref().map_or("", |function| function.name()),
        }
    }
    /// PyTorch's name of the gradient function: `AddBackward0` for `add`.
    pub fn backward_name(&self) -> String {
        let op = match &self.kind {
            NodeKind::Leaf(_) => return "AccumulateGrad".into(),
            NodeKind::Custom(_) | NodeKind::CustomOutput { .. } => return self.name().into(),
            NodeKind::Op { op, .. } => op,
        };
        let words = op.name().split('_').map(|word| {
            let mut letters = word.chars();
            letters.next().map_or(String::new(), |first| first.to_uppercase().collect::<String>() + letters.as_str())
        });
        words.collect::<String>() + "Backward0"
    }
    /// The nodes of its operands; none for operands that gradients do not flow to.
    pub fn inputs(&self) -> Vec<Option<Arc<Node>>> {
        self.each_input(|node| node.cloned())
    }
    pub(crate) fn each_input<T>(&self, look: impl Fn(Option<&Arc<Node>>) -> Option<T>) -> Vec<Option<T>> {
        match &self.kind {
            NodeKind::Leaf(_) => Vec::new(),
            NodeKind::Custom(custom) => custom.inputs.iter().map(|node| look(node.as_ref())).collect(),
            NodeKind::CustomOutput { function, .. } => vec![look(function.as_ref())],
            NodeKind::Op { edges, .. } => lock(edges)
                .inputs
                .iter()
                .map(|edge| match edge {
                    Edge::Scalar(_) => None,
                    Edge::Tensor { node, .. } => look(node.as_ref()),
                })
                .collect(),
        }
    }
    /// Whether it records a transpose of the last two axes.
    pub(crate) fn is_transposition(&self) -> bool {
        matches!(&self.kind, NodeKind::Op { attrs: Attrs::Permutation(p), .. }
            if gt_ops::grad::exchanges_last(p, self.meta.shape.rank()))
    }
    /// Keeps the gradient of this tensor though it is not a leaf.
    pub fn retain_grad(&self) {
        self.retain.store(true, Relaxed);
    }
    /// Makes `next`, the node that an in-place operation gives the tensor, keep the gradient if this node did.
    pub(crate) fn hand_over(&self, next: &Node) {
        if !self.is_leaf() && self.retain.swap(false, Relaxed) {
            next.retain_grad();
            let grad = lock(&self.grad).take();
            next.set_grad(grad);
        }
    }
    /// Whether [`Node::retain_grad`] was called.
    pub fn retains_grad(&self) -> bool {
        self.retain.load(Relaxed)
    }
    /// Whether the tensor shows a gradient that this node retains, or the node that it had under another shape.
    pub fn shows_retained_grad(&self) -> bool {
        self.retains_grad() || self.former().is_some_and(|former| former.shows_retained_grad())
    }
    pub(crate) fn grad(&self) -> Option<Tensor> {
        let own = lock(&self.grad).as_mut().map(Tensor::same);
        own.or_else(|| self.former().and_then(|former| former.grad()))
    }
    fn former(&self) -> Option<Arc<Node>> {
        lock(&self.extras).as_ref().and_then(|extras| extras.former.clone())
    }
    /// Shows the gradient that `former` retains, the node that the tensor had before it got another shape in place.
    pub(crate) fn shows_grad_of(&self, former: Arc<Node>) {
        self.with_extras(|extras| extras.former = Some(former));
    }
    /// Makes the tensor's gradient another handle.
    pub fn replace_grad(&self, grad: Tensor) {
        self.set_grad(Some(grad));
    }
    pub(crate) fn set_grad(&self, grad: Option<Tensor>) {
        let former = self.former();
        let old = std::mem::replace(&mut *lock(&self.grad), grad);
        drop(old);
        if let Some(former) = former {
            former.set_grad(None);
        }
    }
}

fn take_key<T>(list: &mut Vec<(u64, T)>, key: u64) -> Option<T> {
    let at = list.iter().position(|(own, _)| *own == key)?;
    Some(list.remove(at).1)
}
