//! Emitting ops: infers the shape and dtype of an instruction, issues it, and records it on the tape.

use crate::batch::BatchAxes;
use crate::error::{ClientError, Result};
use crate::handle::{Edge, Node, Tensor};
use crate::precision::allows_tf32;
use crate::random::{Generator, default_generator};
use crate::session::ClientSession;
use crate::strides::{MemoryLayout, Strides, ViewOp, ViewOps, layout_after};
use crate::tape::grad_enabled;
use crate::value::TensorValue;
use gt_ops::build::{self, indexing};
use gt_ops::error::Result as OpResult;
use gt_ops::grad::pointwise::keeps_quotient;
use gt_ops::graph::FunctionGradient;
use gt_ops::infer::{InputMeta, infer};
use gt_ops::row::Promotion;
use gt_ops::storage::{StoredInstruction, on_storage};
use gt_ops::{Arg, Attrs, Class, DType, Graph, Inputs, Instruction, Meta, Op, OpError, Operand, Val, composed};
use smallvec::SmallVec;
use std::sync::Arc;

/// The number of bits of `Scope::operands`.
const OPERANDS_MAX: u32 = u64::BITS;
/// The number of tensors, and of operands of one op, up to which a scope allocates no memory.
const TENSORS_INLINE: usize = 8;
const OPERANDS_INLINE: usize = 4;

/// An op that was emitted while ops were recorded for views.
struct ViewStep {
    op: ViewOp,
    operand: Option<Val>,
    result: Val,
    /// The shape and dtype of the result.
    meta: Meta,
}

/// A value and the node on the tape that gradients of it flow to.
pub(crate) type TracedValue = (Arc<TensorValue>, Option<Arc<Node>>);

/// The tensors of one call into [`gt_ops::build`]; a [`Val`] is an index into them.
pub struct Scope {
    session: Arc<ClientSession>,
    tensors: SmallVec<[TracedValue; TENSORS_INLINE]>,
    /// A bit for each of the first [`OPERANDS_MAX`] tensors: whether it existed before the call.
    operands: u64,
    /// Saved values that an in-place operation has replaced, each with the error of using it.
    stale: Vec<(Val, String)>,
    /// The session's error in `emit`, which the builder cannot carry.
    error: Option<ClientError>,
    /// The ops that a view is made of, if it is recorded.
    view: Option<ViewRecord>,
    /// The ops that several views are made of, if they are recorded.
    steps: Option<Vec<ViewStep>>,
    /// The random number generator, if not the default one.
    generator: Option<Arc<Generator>>,
    /// Whether elements were fetched: what is uploaded may have been computed of them.
    fetched: bool,
}

/// The ops emitted for a view so far, and PyTorch's strides after them.
pub(crate) struct ViewRecord {
    pub(crate) ops: ViewOps,
    /// None where PyTorch would have to copy.
    pub(crate) layout: Option<MemoryLayout>,
    /// The shape and dtype after the last op.
    meta: Meta,
    /// The result of the last op. An op on another tensor is not recorded: it computes an index of a gather.
    last: Val,
    /// Whether the tensor that the view is taken of is a view itself.
    nested: bool,
    /// As [`MemoryLayout::in_order`].
    in_order: bool,
}

impl Scope {
    /// An empty scope in `session`.
    pub fn new(session: &Arc<ClientSession>) -> Scope {
        Scope {
            session: session.clone(),
            tensors: SmallVec::new(),
            operands: 0,
            stale: Vec::new(),
            error: None,
            view: None,
            steps: None,
            generator: None,
            fetched: false,
        }
    }

    /// Draws random numbers from `generator` instead of the default.
    pub fn draw_from(&mut self, generator: Arc<Generator>) {
        self.generator = Some(generator);
    }

    /// Adds an operand that exists outside this scope.
    ///
    /// # Errors
    /// A value of another session.
    pub(crate) fn push_operand(&mut self, value: Arc<TensorValue>, node: Option<Arc<Node>>) -> Result<Val> {
        if !Arc::ptr_eq(value.session(), &self.session) {
            // If one of the two sessions has ended, the error says so.
            let ended = !self.session.is_open();
            return Err(foreign(if ended { &self.session } else { value.session() }));
        }
        let val = self.push(value, node);
        if val.0 < OPERANDS_MAX {
            self.operands |= 1 << val.0;
        }
        Ok(val)
    }

    /// Adds a value that node `number` saved; `maker` is the node whose result it is, if that was recorded.
    pub(crate) fn push_saved(&mut self, value: Arc<TensorValue>, maker: Option<Arc<Node>>, number: u64) -> Val {
        let stale = value.version_counter().is_stale(number).then(|| stale_text(&value, maker.as_deref()));
        let val = self.push(value, maker);
        self.stale.extend(stale.map(|text| (val, text)));
        val
    }

    pub(crate) fn push(&mut self, value: Arc<TensorValue>, node: Option<Arc<Node>>) -> Val {
        self.tensors.push((value, node));
        Val(self.tensors.len() as u32 - 1)
    }

    /// Whether `val` is a tensor from outside this scope.
    pub fn is_operand(&self, val: Val) -> bool {
        val.0 < OPERANDS_MAX && self.operands >> val.0 & 1 == 1
    }

    /// Whether the result of an op is computed of numbers alone.
    fn is_constant(&self, op: Op, inputs: &[Arg]) -> bool {
        let constant = |arg: &Arg| match arg {
            Arg::Val(v) => self.tensors[v.0 as usize].0.is_constant(),
            Arg::Scalar(_) => true,
        };
        op.row().class != Class::Random && inputs.iter().all(constant)
    }

    /// The value and node of `val`.
    pub(crate) fn parts(&self, val: Val) -> (Arc<TensorValue>, Option<Arc<Node>>) {
        self.tensors[val.0 as usize].clone()
    }

    /// Records the chain of ops emitted from now on that begins with `base`, a tensor of this layout. They make a
    /// view of it. `nested` says whether it is a view itself.
    pub(crate) fn record_view(&mut self, base: Val, layout: MemoryLayout, nested: bool) {
        let meta = *self.tensors[base.0 as usize].0.meta();
        let (ops, in_order) = (ViewOps::new(), layout.in_order);
        self.view = Some(ViewRecord { ops, layout: Some(layout), meta, last: base, nested, in_order });
    }

    /// Ends the call as [`Scope::finish`] does. Returns the value and node of the result, and the recorded view.
    pub(crate) fn finish_view(&mut self, outcome: OpResult<Val>) -> Result<(TracedValue, Option<ViewRecord>)> {
        let mut view = self.view.take();
        if let (Some(view), Ok(result)) = (&mut view, &outcome)
            && view.last != *result
        {
            view.layout = None;
        }
        self.finish(outcome, |scope, v| (scope.parts(v), view))
    }

    /// Records the ops emitted from now on, for [`Scope::view_ops`].
    pub(crate) fn record_steps(&mut self) {
        self.steps = Some(Vec::new());
    }

    /// The recorded ops that lead from a tensor that no recorded op made to `val`, in order, each with its
    /// result's shape and dtype, and that tensor. `None` if the first of them has no operand.
    pub(crate) fn view_ops(&self, val: Val) -> Option<(Val, Vec<(ViewOp, Meta)>)> {
        let mut chain = Vec::new();
        let mut at = val;
        for step in self.steps.iter().flatten().rev() {
            if step.result == at {
                chain.push((step.op.clone(), step.meta));
                at = step.operand?;
            }
        }
        chain.reverse();
        Some((at, chain))
    }

    /// Ends the call: passes the builder's result to `take`. An error of the session precedes the builder's.
    ///
    /// # Errors
    /// An instruction that could not be issued, or the builder's error.
    pub fn finish<T, R>(&mut self, outcome: OpResult<T>, take: impl FnOnce(&Scope, T) -> R) -> Result<R> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        Ok(take(self, outcome?))
    }

    fn record(&self, op: Op, inputs: &[Arg], attrs: &Attrs, value: &Arc<TensorValue>) -> Option<Arc<Node>> {
        let row = op.row();
        if !row.grad.is_some() || !value.meta().dtype.is_inexact() || !grad_enabled() {
            return None;
        }
        let node_of = |arg: &Arg| match arg {
            Arg::Val(v) => self.tensors[v.0 as usize].1.as_ref(),
            Arg::Scalar(_) => None,
        };
        if !inputs.iter().any(|arg| node_of(arg).is_some()) {
            return None;
        }
        let by_number = keeps_quotient(op, inputs);
        let edges = inputs.iter().enumerate().map(|(i, arg)| match arg {
            Arg::Scalar(s) => Edge::Scalar(*s),
            Arg::Val(v) => {
                let (value, node) = &self.tensors[v.0 as usize];
                let saved = i < 8 && row.saves.inputs >> i & 1 == 1 && !by_number;
                Edge::Tensor { meta: *value.meta(), node: node.clone(), saved: saved.then(|| value.clone()) }
            }
        });
        let output = match by_number {
            // A name of its own for the quotient, which may be written, too.
            true => Some(TensorValue::reinterpret(value, *value.meta())),
            false => row.saves.output.then(|| value.clone()),
        };
        Some(Node::op(op, attrs.clone(), edges.collect(), output, *value.meta()))
    }

    /// Adds the result of an op, with its node on the tape, and records it for views. `attrs` are those that the user's
    /// dtypes have.
    pub(crate) fn push_result(&mut self, op: Op, inputs: &[Arg], attrs: Attrs, value: Arc<TensorValue>) -> Val {
        let meta = *value.meta();
        let node = self.record(op, inputs, &attrs, &value);
        if let Some(view) = &mut self.view {
            if inputs.first() != Some(&Arg::Val(view.last)) {
                return self.push(value, node);
            }
            view.last = Val(self.tensors.len() as u32);
            let index = match inputs.get(1) {
                Some(Arg::Val(v)) => Some(self.tensors[v.0 as usize].0.clone()),
                _ => None,
            };
            let step = ViewOp { op, attrs, index };
            view.layout = view.layout.and_then(|layout| layout_after(&view.meta, &layout, &step));
            view.meta = meta;
            view.ops.push(step);
        } else if let Some(steps) = &mut self.steps {
            let operand = match inputs.first() {
                Some(Arg::Val(v)) => Some(*v),
                _ => None,
            };
            let op = ViewOp { op, attrs, index: None };
            steps.push(ViewStep { op, operand, result: Val(self.tensors.len() as u32), meta });
        }
        self.push(value, node)
    }

    /// Calls `emit`, whose ops are no part of what is recorded for views.
    pub(crate) fn unrecorded<R>(&mut self, emit: impl FnOnce(&mut Scope) -> R) -> R {
        let (view, steps) = (self.view.take(), self.steps.take());
        let outcome = emit(self);
        (self.view, self.steps) = (view, steps);
        outcome
    }

    /// Issues an instruction for a result of `meta`. Returns the result and the attributes.
    pub(crate) fn issue(
        &mut self,
        op: Op,
        metas: &[InputMeta],
        inputs: Inputs,
        attrs: Attrs,
        meta: Meta,
    ) -> OpResult<(Arc<TensorValue>, Attrs)> {
        let mut instruction =
            Instruction { op, out: 0, inputs, last_use: 0, attrs, tf32: allows_tf32(op), replaces: None };
        let tensors = metas.iter().filter_map(InputMeta::tensor);
        let cost = gt_ops::cost::cost(op, tensors, &instruction.attrs, &meta);
        match self.session.issue(&mut instruction, cost, meta.bytes()) {
            Ok(id) => Ok((TensorValue::new(id, meta, &self.session), instruction.attrs)),
            Err(error) => {
                self.error = Some(error);
                Err(OpError::runtime("the instruction could not be issued"))
            }
        }
    }

    /// Emits an op of which an operand or the result has a composed dtype. [`Op::Reinterpret`] is no instruction.
    #[cold]
    fn emit_composed(
        &mut self,
        op: Op,
        inputs: &[Arg],
        metas: &[InputMeta],
        operands: Inputs,
        attrs: Attrs,
    ) -> OpResult<Val> {
        if op == Op::Reinterpret {
            let [Arg::Val(v)] = inputs else { return Err(OpError::type_("reinterpret: expects one tensor")) };
            let meta = infer(op, metas, &attrs)?;
            let value = TensorValue::reinterpret(&self.tensors[v.0 as usize].0, meta);
            return Ok(self.push_result(op, inputs, attrs, value));
        }
        match on_storage(op, metas, &attrs)? {
            None => composed::emit(self, op, inputs, &attrs),
            Some(StoredInstruction { attrs: stored, meta }) => {
                let (value, _) = self.issue(op, metas, operands, stored, meta)?;
                Ok(self.push_result(op, inputs, attrs, value))
            }
        }
    }
}

/// PyTorch's error for a gradient that needs a replaced value.
fn stale_text(value: &TensorValue, maker: Option<&Node>) -> String {
    let maker = maker.filter(|node| !node.is_leaf());
    let (maker, comma) =
        maker.map_or((String::new(), ""), |node| (format!(", which is output 0 of {}", node.backward_name()), ","));
    let (meta, version) = (value.meta(), value.version_counter().version());
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
fn foreign(session: &ClientSession) -> ClientError {
    if session.is_open() {
        ClientError::Op(OpError::runtime("operands belong to different sessions: bring one over with .numpy()"))
    } else if session.is_inherited() {
        ClientError::Disconnected(
            "this tensor belongs to the parent process's session, which a forked child cannot use: \
             create tensors after the fork, or pass them as NumPy arrays"
                .into(),
        )
    } else {
        ClientError::Disconnected("this tensor's session is closed: the tensor is gone; create a new one".into())
    }
}

/// A copy of a tensor, through which gradients flow. Values are immutable, so no bytes are copied.
pub(crate) fn copied(value: Arc<TensorValue>, node: Option<Arc<Node>>) -> (Arc<TensorValue>, Option<Arc<Node>>) {
    let meta = *value.meta();
    let value = TensorValue::independent(value);
    let node = node.filter(|_| grad_enabled()).map(|node| {
        let edge = Edge::Tensor { meta, node: Some(node), saved: None };
        Node::op(Op::Reshape, Attrs::Shape(meta.shape), smallvec::smallvec![edge], None, meta)
    });
    (value, node)
}

impl Graph for Scope {
    fn emit(&mut self, op: Op, inputs: &[Arg], attrs: Attrs) -> OpResult<Val> {
        if let Some((_, text)) = self.stale.iter().find(|(val, _)| inputs.contains(&Arg::Val(*val))) {
            return Err(OpError::runtime(text.clone()));
        }
        if !self.session.newest_instructions {
            if let Attrs::AxesInto { mask, keepdim, dtype } = attrs {
                let converted = self.emit(Op::Cast, inputs, Attrs::DType(dtype))?;
                return self.emit(op, &[converted.into()], Attrs::Axes { mask, keepdim });
            }
            if matches!(op, Op::Fourier | Op::InverseFourier | Op::RealFourier | Op::InverseRealFourier) {
                return Err(OpError::not_implemented(
                    "Fourier transforms need a newer daemon: upgrade gtd to the version of this gt",
                ));
            }
            if matches!(op, Op::CtcForward | Op::CtcPosteriors) {
                return Err(OpError::not_implemented(
                    "ctc_loss needs a newer daemon: upgrade gtd to the version of this gt",
                ));
            }
            if let (Promotion::Sum, Class::Scan, [Arg::Val(v)]) = (op.row().promotion, op.row().class, inputs)
                && self.meta(*v).dtype.category() == DType::I64.category()
                && !matches!(self.meta(*v).dtype, DType::I64 | DType::U64)
            {
                let converted = self.emit(Op::Cast, inputs, Attrs::DType(DType::I64))?;
                return self.emit(op, &[converted.into()], attrs);
            }
            if let (Op::MatmulWide, [Arg::Val(a), Arg::Val(b)]) = (op, inputs) {
                let a = self.emit(Op::Cast, &[(*a).into()], Attrs::DType(DType::F32))?;
                let b = self.emit(Op::Cast, &[(*b).into()], Attrs::DType(DType::F32))?;
                return self.emit(Op::Matmul, &[a.into(), b.into()], attrs);
            }
            if let (Op::Affine, [Arg::Val(input), Arg::Val(weight), Arg::Val(bias)]) = (op, inputs) {
                return build::affine_by_steps(self, *input, *weight, *bias);
            }
            if let (Op::Silu | Op::Hardswish, [Arg::Val(input)]) = (op, inputs) {
                return build::activation_by_steps(self, op, *input);
            }
            if let (Op::LstmCell, [Arg::Val(gates), Arg::Val(cell)]) = (op, inputs) {
                return gt_ops::lstm::lstm_cell_by_steps(self, *gates, *cell);
            }
            if let (Op::LstmCellBackward, &[Arg::Val(a), Arg::Val(b), Arg::Val(c), Arg::Val(d), Arg::Val(e)]) =
                (op, inputs)
            {
                return gt_ops::lstm::lstm_cell_backward_by_steps(self, [a, b, c, d, e]);
            }
            if let (Op::ComplexMul | Op::ComplexDiv, [Arg::Val(a), Arg::Val(b)]) = (op, inputs) {
                return gt_ops::composed::complex::by_steps(self, op, *a, *b);
            }
            if let (Op::AttentionGradients, [grad, query, key, value, _, mask @ ..]) = (op, inputs) {
                let operands = [&[*grad, *query, *key, *value], mask].concat();
                return self.emit(Op::AttentionBackward, &operands, attrs);
            }
            if op == Op::Bitcast {
                return Err(OpError::not_implemented(
                    "view(dtype) needs a newer daemon: upgrade gtd to the version of this gt",
                ));
            }
            if let (Some(plain), Attrs::Axis(axis), [Arg::Val(of), Arg::Val(index), ..]) =
                (op.without_wrapping(), &attrs, inputs)
            {
                let size = self.meta(*of).shape.dims().get(*axis as usize).copied().unwrap_or(0);
                let mut inputs: SmallVec<[Arg; OPERANDS_INLINE]> = inputs.into();
                inputs[1] = indexing::wrap_negative(self, *index, size)?.into();
                return self.emit(plain, &inputs, attrs);
            }
        }
        let (mut composed, mut batched) = (false, false);
        let mut metas = SmallVec::<[InputMeta; OPERANDS_INLINE]>::new();
        let mut operands = Inputs::new();
        for arg in inputs {
            let (meta, operand) = match arg {
                Arg::Val(v) => {
                    let value = &self.tensors[v.0 as usize].0;
                    composed |= value.meta().dtype.is_composed();
                    batched |= value.is_batched();
                    (InputMeta::Tensor(*value.meta()), Operand::Tensor(value.id()))
                }
                Arg::Scalar(s) => (InputMeta::Scalar(*s), Operand::Scalar(*s)),
            };
            metas.push(meta);
            operands.push(operand);
        }
        if batched {
            return self.emit_batched(op, inputs, &metas, attrs);
        }
        if let Attrs::Random { .. } = attrs {
            let Some(axes) = BatchAxes::of_random_numbers() else {
                return Err(OpError::runtime(
                    "vmap: called random operation while in randomness error mode. Please either use the 'same' or \
                     'different' randomness flags on vmap or perform the randomness operation out of vmap",
                ));
            };
            if !axes.is_empty() {
                return self.emit_random_batch(op, inputs, &metas, attrs, axes);
            }
        }
        if composed || attrs.dtype().is_some_and(DType::is_composed) {
            return self.emit_composed(op, inputs, &metas, operands, attrs);
        }
        let meta = infer(op, &metas, &attrs)?;
        let (value, attrs) = self.issue(op, &metas, operands, attrs, meta)?;
        value.set_constant(self.is_constant(op, inputs));
        Ok(self.push_result(op, inputs, attrs, value))
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

    fn record_function(
        &mut self,
        name: &str,
        inputs: &[Val],
        results: &[Val],
        gradient: FunctionGradient,
    ) -> OpResult<Vec<Val>> {
        let operands: Vec<_> = inputs.iter().map(|v| self.parts(*v)).collect();
        if !grad_enabled() || operands.iter().all(|(_, node)| node.is_none()) {
            return Ok(results.to_vec());
        }
        let values: Vec<_> = results.iter().map(|v| self.parts(*v).0).collect();
        let Some(meta) = values.first().map(|value| *value.meta()) else { return Ok(Vec::new()) };
        let nodes = operands.iter().map(|(_, node)| node.clone()).collect();
        let (session, made) = (self.session.clone(), values.clone());
        let backward = move |node: &Arc<Node>, grads: Vec<Option<Tensor>>, _: bool| {
            let mut scope = Scope::new(&session);
            let mut vals = Vec::with_capacity(operands.len() + made.len());
            for (value, maker) in &operands {
                vals.push(scope.push_saved(value.clone(), maker.clone(), node.number()));
            }
            for (i, value) in made.iter().enumerate() {
                let result = Node::custom_output(node, i, *value.meta());
                vals.push(scope.push(value.clone(), Some(result)));
            }
            let mut reached = Vec::with_capacity(grads.len());
            for grad in &grads {
                reached.push(grad.as_ref().map(|grad| scope.add(grad)).transpose()?);
            }
            let outcome = gradient(&mut scope, &vals, &reached);
            scope.finish(outcome, |scope, found| {
                found.into_iter().map(|grad| grad.map(|grad| scope.tensor(grad))).collect()
            })
        };
        let node = Node::custom(name.to_owned(), nodes, values.len(), meta, Box::new(backward));
        let mut recorded = Vec::with_capacity(values.len());
        for (i, value) in values.into_iter().enumerate() {
            let result = value.meta().dtype.is_inexact().then(|| Node::custom_output(&node, i, *value.meta()));
            recorded.push(self.push(value, result));
        }
        Ok(recorded)
    }

    fn copy(&mut self, v: Val) -> OpResult<Val> {
        if !self.is_operand(v) {
            return Ok(v);
        }
        let (value, node) = self.parts(v);
        let (value, node) = copied(value, node);
        Ok(self.push(value, node))
    }

    fn strides(&self, v: Val) -> Strides {
        match &self.view {
            Some(ViewRecord { layout: Some(layout), last, .. }) if *last == v => layout.strides,
            _ => self.meta(v).shape.contiguous_strides(),
        }
    }

    fn storage_offset(&self, v: Val) -> isize {
        match &self.view {
            Some(ViewRecord { layout: Some(layout), last, .. }) if *last == v => layout.offset,
            _ => 0,
        }
    }

    fn set_strides(&mut self, v: Val, strides: Strides, offset: isize) {
        if let Some(view) = &mut self.view
            && view.last == v
        {
            view.layout = Some(MemoryLayout { strides, offset, in_order: view.in_order });
        }
    }

    fn keep_only(&mut self, v: Val) {
        if self.view.is_some() || self.steps.is_some() {
            return;
        }
        let kept = self.parts(v);
        for i in (0..self.tensors.len()).take(OPERANDS_MAX as usize) {
            let val = Val(i as u32);
            if val != v && !self.is_operand(val) {
                self.tensors[i] = kept.clone();
            }
        }
    }

    fn is_view(&self, v: Val) -> bool {
        self.view.as_ref().is_some_and(|view| view.last == v && (view.nested || !view.ops.is_empty()))
    }

    fn fetch(&mut self, v: Val) -> OpResult<Vec<u8>> {
        let value = self.tensors[v.0 as usize].0.clone();
        self.fetched = true;
        match self.session.host_bytes(&value, false) {
            Ok(bytes) => Ok(bytes.to_vec()),
            Err(error) => {
                self.error = Some(error);
                Err(OpError::runtime("the elements could not be fetched"))
            }
        }
    }

    fn requires_grad(&self, v: Val) -> bool {
        grad_enabled() && self.tensors[v.0 as usize].1.is_some()
    }

    fn upload(&mut self, meta: Meta, bytes: &[u8]) -> OpResult<Val> {
        match self.session.upload(meta, bytes.into()) {
            Ok(value) => {
                // Without fetched elements, it is computed of sizes alone, such as the weights of an interpolation.
                value.set_constant(!self.fetched);
                Ok(self.push(value, None))
            }
            Err(error) => {
                self.error = Some(error);
                Err(OpError::runtime("the elements could not be uploaded"))
            }
        }
    }

    fn next_random(&mut self) -> (u64, u64) {
        let draw = self.generator.as_ref().unwrap_or_else(|| default_generator()).next();
        (draw.seed, draw.stream)
    }
}
