//! The tape: what was computed from what. [`crate::backward`] walks it.

use crate::error::Result;
use crate::lock::BriefLock;
use crate::session::Value;
use crate::signal;
use crate::tensor::Tensor;
use gt_ops::{Attrs, Meta, Op, Scalar};
use smallvec::SmallVec;
use std::cell::Cell;
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

/// Whether somebody can tell the line.
pub(crate) fn knows_origins() -> bool {
    ORIGIN.get().is_some()
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
    extras: Mutex<Option<Box<Extras>>>,
    /// Where it is listed.
    place: AtomicU32,
    /// The signal that its gradients are computed under.
    backward_signal: u32,
}

#[expect(clippy::large_enum_variant, reason = "leaves are few; recorded ops are what is allocated all the time")]
pub(crate) enum Kind {
    Leaf,
    Op {
        op: Op,
        attrs: Attrs,
        edges: Mutex<Edges>,
    },
    /// A function of the host language's, with a backward of its own; its results are its `Part`s.
    Custom(Box<Custom>),
    /// One result of a `Custom`.
    Part {
        /// None only while it is dropped.
        of: Option<Arc<Node>>,
        index: usize,
    },
}

pub(crate) struct Edges {
    pub(crate) inputs: SmallVec<[Edge; 2]>,
    pub(crate) output: Option<Arc<Value>>,
    /// A backward pass has let go of what was saved.
    pub(crate) released: bool,
}

/// A function of the host language's on the tape.
pub(crate) struct Custom {
    pub(crate) name: String,
    pub(crate) inputs: Vec<Option<Arc<Node>>>,
    pub(crate) results: usize,
    pub(crate) backward: Backward,
}

/// The backward of a function of the host language's: its place, the gradients of its results and whether another pass
/// may come give those of its inputs.
pub type Backward = Box<dyn Fn(&Arc<Node>, Vec<Option<Tensor>>, bool) -> Result<Vec<Option<Tensor>>> + Send + Sync>;
/// What a tensor's hook makes of its gradient: another one, or nothing.
pub type GradHook = Arc<dyn Fn(Tensor) -> Result<Option<Tensor>> + Send + Sync>;
/// What a leaf's hook does once its gradient was collected.
pub type CollectedHook = Arc<dyn Fn() -> Result<()> + Send + Sync>;

/// What few places on the tape have.
#[derive(Default)]
struct Extras {
    hooks: Vec<(u64, GradHook)>,
    collected: Vec<(u64, CollectedHook)>,
    /// The line of the host language that recorded the op, under anomaly detection.
    origin: Option<String>,
}

/// Whether ops remember their lines, and whether gradients are looked at for NaNs.
static ANOMALY: AtomicU32 = AtomicU32::new(0);
const ANOMALY_ORIGINS: u32 = 1;
const ANOMALY_NAN: u32 = 2;

/// Turns anomaly detection on or off: ops remember where they were recorded and, with `check_nan`, a backward pass ends
/// at the op that gives a NaN.
pub fn set_anomaly(on: bool, check_nan: bool) {
    let mode = if on { ANOMALY_ORIGINS | if check_nan { ANOMALY_NAN } else { 0 } } else { 0 };
    ANOMALY.store(mode, Relaxed);
}
/// Whether anomaly detection is on, and whether it looks for NaNs.
pub fn anomaly() -> (bool, bool) {
    let mode = ANOMALY.load(Relaxed);
    (mode & ANOMALY_ORIGINS != 0, mode & ANOMALY_NAN != 0)
}

/// The number of the next place on the tape.
pub fn clock() -> u64 {
    NUMBER.load(Relaxed)
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

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Node {
    fn new(meta: Meta, kind: Kind) -> Arc<Node> {
        // What gathers in a leaf is nobody's in particular.
        let backward_signal = if matches!(kind, Kind::Leaf) { signal::NONE } else { signal::current().backward() };
        let number = NUMBER.fetch_add(1, Relaxed);
        let node = Arc::new(Node {
            number,
            meta,
            kind,
            grad: Mutex::new(None),
            retain: AtomicBool::new(false),
            extras: Mutex::new(None),
            place: AtomicU32::new(0),
            backward_signal,
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
            .mark_origin()
    }

    /// A function of the host language's, with `results` results.
    pub fn custom(
        name: String,
        inputs: Vec<Option<Arc<Node>>>,
        results: usize,
        meta: Meta,
        backward: Backward,
    ) -> Arc<Node> {
        Node::new(meta, Kind::Custom(Box::new(Custom { name, inputs, results, backward }))).mark_origin()
    }

    /// The place of one result of a function of the host language's.
    pub fn part(of: &Arc<Node>, index: usize, meta: Meta) -> Arc<Node> {
        Node::new(meta, Kind::Part { of: Some(of.clone()), index })
    }

    /// The function that it is a result of, and which; itself and 0 for all others.
    pub fn function(self: &Arc<Node>) -> (Arc<Node>, usize) {
        match &self.kind {
            Kind::Part { of: Some(of), index } => (of.clone(), *index),
            _ => (self.clone(), 0),
        }
    }

    fn with_extras<R>(&self, change: impl FnOnce(&mut Extras) -> R) -> R {
        change(lock(&self.extras).get_or_insert_with(Box::default))
    }
    /// Under anomaly detection, the line is remembered.
    fn mark_origin(self: Arc<Node>) -> Arc<Node> {
        if anomaly().0 {
            let origin = origin_of_call();
            self.with_extras(|extras| extras.origin = origin);
        }
        self
    }
    /// Adds a hook on the gradient of this tensor; returns its key.
    pub fn add_hook(&self, hook: GradHook) -> u64 {
        let key = NUMBER.fetch_add(1, Relaxed);
        self.with_extras(|extras| extras.hooks.push((key, hook)));
        key
    }
    /// Adds a hook for when this leaf has collected a gradient; returns its key.
    pub fn add_collected_hook(&self, hook: CollectedHook) -> u64 {
        let key = NUMBER.fetch_add(1, Relaxed);
        self.with_extras(|extras| extras.collected.push((key, hook)));
        key
    }
    /// Removes a hook of either kind.
    pub fn remove_hook(&self, key: u64) {
        // What a hook holds may be a tensor, and dropping one may wait: not under the lock.
        let old = self.with_extras(|extras| (take_key(&mut extras.hooks, key), take_key(&mut extras.collected, key)));
        drop(old);
    }
    pub(crate) fn hooks(&self) -> Vec<GradHook> {
        lock(&self.extras).as_ref().map_or_else(Vec::new, |e| e.hooks.iter().map(|(_, hook)| hook.clone()).collect())
    }
    fn collected_hooks(&self) -> Vec<CollectedHook> {
        let extras = lock(&self.extras);
        extras.as_ref().map_or_else(Vec::new, |e| e.collected.iter().map(|(_, hook)| hook.clone()).collect())
    }
    /// Where it was recorded, under anomaly detection.
    pub fn origin(&self) -> Option<String> {
        lock(&self.extras).as_ref().and_then(|e| e.origin.clone())
    }
    pub(crate) fn backward_signal(&self) -> u32 {
        self.backward_signal
    }
    pub(crate) fn kind(&self) -> &Kind {
        &self.kind
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
    /// What it records: the name of an op, or of a function of the host language's; `leaf` for a leaf.
    pub fn name(&self) -> &str {
        match &self.kind {
            Kind::Leaf => "leaf",
            Kind::Op { op, .. } => op.name(),
            Kind::Custom(custom) => &custom.name,
            Kind::Part { of, .. } => of.as_ref().map_or("", |of| of.name()),
        }
    }
    /// What PyTorch calls its gradient: `AddBackward0` for `add`.
    pub fn backward_name(&self) -> String {
        let op = match &self.kind {
            Kind::Leaf => return "AccumulateGrad".into(),
            Kind::Custom(_) | Kind::Part { .. } => return self.name().into(),
            Kind::Op { op, .. } => op,
        };
        let words = op.name().split('_').map(|word| {
            let mut letters = word.chars();
            letters.next().map_or(String::new(), |first| first.to_uppercase().collect::<String>() + letters.as_str())
        });
        words.collect::<String>() + "Backward0"
    }
    /// The places on the tape of its operands, none for those without.
    pub fn inputs(&self) -> Vec<Option<Arc<Node>>> {
        self.each_input(|node| node.cloned())
    }
    fn each_input<T>(&self, look: impl Fn(Option<&Arc<Node>>) -> Option<T>) -> Vec<Option<T>> {
        match &self.kind {
            Kind::Leaf => Vec::new(),
            Kind::Custom(custom) => custom.inputs.iter().map(|node| look(node.as_ref())).collect(),
            Kind::Part { of, .. } => vec![look(of.as_ref())],
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
    pub(crate) fn is_transposition(&self) -> bool {
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

    /// Adds `grad` to what was collected, and tells the hooks.
    pub(crate) fn accumulate(&self, grad: Tensor) -> Result<()> {
        // An op may wait, and nobody waits under a lock.
        match self.grad() {
            None => self.set_grad(Some(grad)),
            Some(total) if grad_enabled() => self.set_grad(Some(total.binary(Op::Add, &grad)?)),
            Some(mut total) => {
                let plan = total.plan_rebind(total.binary(Op::Add, &grad)?, None)?;
                drop(total.rebind(plan));
            }
        }
        self.collected_hooks().iter().try_for_each(|hook| hook())
    }
}

fn take_key<T>(list: &mut Vec<(u64, T)>, key: u64) -> Option<T> {
    let at = list.iter().position(|(own, _)| *own == key)?;
    Some(list.remove(at).1)
}

impl Drop for Node {
    fn drop(&mut self) {
        NODES.lock().leave(self.place.load(Relaxed));
        // A long chain would otherwise be dropped by as deep a recursion.
        let mut doomed = Vec::new();
        let take = |node: &mut Node, doomed: &mut Vec<Arc<Node>>| match &mut node.kind {
            Kind::Leaf => {}
            Kind::Op { edges, .. } => {
                let edges = edges.get_mut().unwrap_or_else(PoisonError::into_inner);
                for edge in edges.inputs.drain(..) {
                    if let Edge::Tensor { node: Some(node), .. } = edge {
                        doomed.push(node);
                    }
                }
            }
            Kind::Custom(custom) => doomed.extend(custom.inputs.drain(..).flatten()),
            Kind::Part { of, .. } => doomed.extend(of.take()),
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
    /// What it records: see [`Node::name`].
    pub name: String,
    /// Whether gradients end in it.
    pub leaf: bool,
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
            Entry { number: node.number, name: node.name().into(), leaf: node.is_leaf(), meta: node.meta, inputs }
        })
        .collect();
    drop(nodes);
    entries.sort_by_key(|entry| entry.number);
    entries
}
