//! Emitting ops: where instructions are inferred, issued and recorded on the tape.

use crate::error::{Error, Result};
use crate::random::{Generator, default_generator};
use crate::session::{Session, Value};
use crate::tape::{self, Edge, Node};
use crate::tensor::Tensor;
use crate::view::Step;
use gt_ops::error::Result as OpResult;
use gt_ops::infer::{InputMeta, infer};
use gt_ops::{Arg, Attrs, Graph, Inputs, Instruction, Meta, Op, OpError, Operand, Shape, Val};
use std::sync::Arc;

/// The tensors of one call into [`gt_ops::build`]: what a `Val` means.
pub struct Scope {
    session: Arc<Session>,
    tensors: Vec<(Arc<Value>, Option<Arc<Node>>)>,
    /// Which of them were not made here, by their bits; the first 64 can be.
    given: u64,
    /// What the tape saved and an in-place operation has replaced since: using it is an error.
    stale: Vec<(Val, String)>,
    /// Why `emit` failed, when it was not for its arguments.
    error: Option<Error>,
    /// What was emitted and the shape it gave, if somebody asked for it.
    trail: Option<Vec<(Step, Shape)>>,
    /// What draws random numbers, if not the default.
    generator: Option<Arc<Generator>>,
}

impl Scope {
    /// An empty scope in `session`.
    pub fn new(session: &Arc<Session>) -> Scope {
        Scope {
            session: session.clone(),
            tensors: Vec::with_capacity(8),
            given: 0,
            stale: Vec::new(),
            error: None,
            trail: None,
            generator: None,
        }
    }

    /// Draws random numbers from `generator` instead of the default.
    pub fn draw_from(&mut self, generator: Arc<Generator>) {
        self.generator = Some(generator);
    }

    /// `tensor` as an operand.
    ///
    /// # Errors
    /// A tensor of another session.
    pub fn add(&mut self, tensor: &Tensor) -> Result<Val> {
        let (value, node) = tensor.resolve()?;
        if !Arc::ptr_eq(value.session(), &self.session) {
            // If one of the two has ended, that is the reason worth giving.
            let ended = !self.session.is_open();
            return Err(foreign(if ended { &self.session } else { value.session() }));
        }
        let val = self.push(value, node);
        if val.0 < 64 {
            self.given |= 1 << val.0;
        }
        Ok(val)
    }

    /// What place `number` of the tape saved: the result of `maker`, if that was recorded.
    pub(crate) fn push_saved(&mut self, value: Arc<Value>, maker: Option<Arc<Node>>, number: u64) -> Val {
        let stale = value.history().is_stale(number).then(|| stale_text(&value, maker.as_deref()));
        let val = self.push(value, maker);
        self.stale.extend(stale.map(|text| (val, text)));
        val
    }

    pub(crate) fn push(&mut self, value: Arc<Value>, node: Option<Arc<Node>>) -> Val {
        self.tensors.push((value, node));
        Val(self.tensors.len() as u32 - 1)
    }

    /// The tensor that `val` stands for.
    pub fn tensor(&self, val: Val) -> Tensor {
        let (value, node) = &self.tensors[val.0 as usize];
        if val.0 < 64 && self.given >> val.0 & 1 == 1 {
            value.history().share();
        }
        Tensor::new(value.clone(), node.clone())
    }

    /// The value and place on the tape that `val` stands for.
    pub(crate) fn parts(&self, val: Val) -> (Arc<Value>, Option<Arc<Node>>) {
        self.tensors[val.0 as usize].clone()
    }

    /// Keeps what is emitted from now on, for [`Scope::trail`].
    pub(crate) fn keep_trail(&mut self) {
        self.trail = Some(Vec::new());
    }

    /// What was emitted, and the shape each instruction gave.
    pub(crate) fn trail(&self) -> &[(Step, Shape)] {
        self.trail.as_deref().unwrap_or_default()
    }

    /// Turns the outcome of a builder into this crate's: what the daemon said goes before what the builder saw.
    ///
    /// # Errors
    /// The builder's, or why an instruction could not be issued.
    pub fn finish<T, R>(mut self, outcome: OpResult<T>, take: impl FnOnce(&Scope, T) -> R) -> Result<R> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        Ok(take(&self, outcome?))
    }

    fn record(&self, op: Op, inputs: &[Arg], attrs: &Attrs, value: &Arc<Value>) -> Option<Arc<Node>> {
        let row = op.row();
        if row.grad.is_none() || !value.meta().dtype.is_float() || !tape::grad_enabled() {
            return None;
        }
        let node_of = |arg: &Arg| match arg {
            Arg::Val(v) => self.tensors[v.0 as usize].1.as_ref(),
            Arg::Scalar(_) => None,
        };
        if !inputs.iter().any(|arg| node_of(arg).is_some()) {
            return None;
        }
        let edges = inputs.iter().enumerate().map(|(i, arg)| match arg {
            Arg::Scalar(s) => Edge::Scalar(*s),
            Arg::Val(v) => {
                let (value, node) = &self.tensors[v.0 as usize];
                let saved = i < 8 && row.saves.inputs >> i & 1 == 1;
                Edge::Tensor { meta: *value.meta(), node: node.clone(), saved: saved.then(|| value.clone()) }
            }
        });
        Some(Node::op(op, attrs.clone(), edges.collect(), row.saves.output.then(|| value.clone()), *value.meta()))
    }
}

/// One builder call over several tensors.
///
/// # Errors
/// No tensors at all, tensors of different sessions, the builder's.
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

/// PyTorch's error of a gradient that needs what was replaced.
fn stale_text(value: &Value, maker: Option<&Node>) -> String {
    let maker = maker.filter(|node| !node.is_leaf());
    let (maker, comma) =
        maker.map_or((String::new(), ""), |node| (format!(", which is output 0 of {}", node.backward_name()), ","));
    let (meta, version) = (value.meta(), value.history().version());
    format!(
        "one of the variables needed for gradient computation has been modified by an inplace operation: [gt.{}Tensor \
         {}]{maker}{comma} is at version {}; expected version {version} instead. Hint: clone() what is changed in place, \
         or enable anomaly detection to find the operation that failed to compute its gradient, with \
         gt.autograd.set_detect_anomaly(True).",
        meta.dtype.scalar_type_name(),
        meta.shape,
        version + 1,
    )
}

/// The error of mixing sessions.
fn foreign(session: &Session) -> Error {
    if session.is_open() {
        Error::Op(OpError::runtime("operands belong to different sessions: bring one over with .numpy()"))
    } else if session.is_inherited() {
        Error::Disconnected(
            "this tensor belongs to the parent process's session, which a forked child cannot use: \
             create tensors after the fork, or pass them as NumPy arrays"
                .into(),
        )
    } else {
        Error::Disconnected("this tensor's session is closed: the tensor is gone; create a new one".into())
    }
}

impl Graph for Scope {
    fn emit(&mut self, op: Op, inputs: &[Arg], attrs: Attrs) -> OpResult<Val> {
        if let Some((_, text)) = self.stale.iter().find(|(val, _)| inputs.contains(&Arg::Val(*val))) {
            return Err(OpError::runtime(text.clone()));
        }
        let mut metas = [InputMeta::Scalar(gt_ops::Scalar::Bool(false)); 4];
        let mut operands = Inputs::new();
        let mut spilled = Vec::new();
        for (i, arg) in inputs.iter().enumerate() {
            let (meta, operand) = match arg {
                Arg::Val(v) => {
                    let value = &self.tensors[v.0 as usize].0;
                    (InputMeta::Tensor(*value.meta()), Operand::Tensor(value.id()))
                }
                Arg::Scalar(s) => (InputMeta::Scalar(*s), Operand::Scalar(*s)),
            };
            match metas.get_mut(i) {
                Some(slot) => *slot = meta,
                None => {
                    if spilled.is_empty() {
                        spilled.extend_from_slice(&metas);
                    }
                    spilled.push(meta);
                }
            }
            operands.push(operand);
        }
        let metas = if spilled.is_empty() { &metas[..inputs.len()] } else { &spilled[..] };
        let meta = infer(op, metas, &attrs)?;
        let mut instruction =
            Instruction { op, out: 0, inputs: operands, last_use: 0, attrs, tf32: crate::precision::tf32(op) };
        let tensors = metas.iter().filter_map(InputMeta::tensor);
        let cost = gt_ops::cost::cost(op, tensors, &meta);
        let id = match self.session.issue(&mut instruction, cost) {
            Ok(id) => id,
            Err(error) => {
                self.error = Some(error);
                return Err(OpError::runtime("the instruction could not be issued"));
            }
        };
        let value = Value::new(id, meta, &self.session);
        let node = self.record(op, inputs, &instruction.attrs, &value);
        if let Some(trail) = &mut self.trail {
            let index = match inputs.get(1) {
                Some(Arg::Val(v)) => Some(self.tensors[v.0 as usize].0.clone()),
                _ => None,
            };
            trail.push((Step { op, attrs: instruction.attrs, index }, meta.shape));
        }
        Ok(self.push(value, node))
    }

    fn meta(&self, v: Val) -> Meta {
        *self.tensors[v.0 as usize].0.meta()
    }

    fn detach(&mut self, v: Val) -> OpResult<Val> {
        let value = self.tensors[v.0 as usize].0.clone();
        let text = self.stale.iter().find(|(val, _)| *val == v).map(|(_, text)| text.clone());
        let val = self.push(value, None);
        self.stale.extend(text.map(|text| (val, text)));
        Ok(val)
    }

    fn next_random(&mut self) -> (u64, u64) {
        let draw = self.generator.as_ref().unwrap_or_else(|| default_generator()).next();
        (draw.seed, draw.stream)
    }
}
