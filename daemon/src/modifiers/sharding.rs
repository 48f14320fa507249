//! Sharding: where each result is made and kept when a session has several workers.
//!
//! An instruction of a client names whole tensors. Here it becomes steps of workers: each has its part, and what lies
//! in the wrong place is moved first. Of the ways in which the op's class allows an instruction to be divided
//! ([`gt_ops::propagate`]), the one is taken that is estimated to be done first, moves included. Where nothing can be
//! divided, the operands are brought together and the whole is done in one place: any instruction can be done.

use super::collectives::{bring, follow, free, instruction, is_there, move_ns, parts, replace};
use super::{ModifierStats, Output, StreamModifier};
use crate::table::{Content, Tensor, WorkerTensor};
use crate::worker::Step;
use gt_ops::infer::InputMeta;
use gt_ops::instruction::{LossReduction, LossSpec};
use gt_ops::placement::{Join, stretch};
use gt_ops::propagate::{Gives, Need, Split, localize, share, splits};
use gt_ops::wire::{ArenaRange, Command};
use gt_ops::{Attrs, Class, DType, Instruction, Meta, Op, Operand, Placement, Scalar, Shape, TensorId, Workers};

/// An instruction on one worker's tensors is divided only if it is estimated to take longer, nanoseconds.
const DIVIDE_NS_MIN: u64 = 200_000;

/// What placing is estimated with.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// Tensors of at least so many bytes are sharded by themselves; never, if there is no number. With 0 everything is
    /// divided that can be.
    pub shard_bytes_min: Option<u64>,
    /// What goes from one worker to another, bytes a nanosecond.
    pub link_bytes_per_ns: f64,
}

/// The modifier.
pub struct Sharding {
    all: Workers,
    costs: Costs,
    stats: ModifierStats,
}

/// An operand of the instruction in hand.
#[derive(Clone, Copy)]
enum Given {
    Number,
    Tensor(Tensor),
}

/// How an instruction will be done.
struct Plan {
    workers: Workers,
    /// The way it is divided, and the granule of its units; whole on every worker if there is none.
    split: Option<(Split, usize)>,
}

impl StreamModifier for Sharding {
    fn name(&self) -> &'static str {
        "sharding"
    }

    fn process(&mut self, step: Step, out: &mut Output<'_>) {
        self.stats.seen += 1;
        match &step.command {
            Command::Op(_) => self.op(step, out),
            Command::Allocate { .. } => self.allocate(step, out),
            Command::Write { .. } => write(step, out),
            Command::Fetch { .. } => fetch(step, out),
            Command::Sync { .. } => out.push(Step { workers: self.all, ..step }),
            _ => out.push(step),
        }
    }

    fn stats(&self) -> ModifierStats {
        self.stats
    }
}

impl Sharding {
    /// Of a daemon with the workers `all`.
    pub fn new(all: Workers, costs: Costs) -> Sharding {
        Sharding { all, costs, stats: ModifierStats::default() }
    }

    fn op(&mut self, step: Step, out: &mut Output<'_>) {
        let (Command::Op(asked), Some(meta)) = (&step.command, step.out) else { return out.push(step) };
        let mut given = Vec::with_capacity(4);
        for operand in asked.inputs.as_slice() {
            given.push(match operand {
                Operand::Scalar(_) => Given::Number,
                Operand::Tensor(id) => match out.tensors().get_at(WorkerTensor::from_id(*id)) {
                    Some(tensor) => Given::Tensor(*tensor),
                    None => return out.push(step),
                },
            });
        }
        let target = self.target(asked, &step, &meta, &given, out.tensors().is_spread());
        if target.is_none()
            && let Some(placement) = self.as_they_lie(asked, &given, &meta, &step)
        {
            out.tensors().place(WorkerTensor::from_id(asked.out), placement);
            let divided = matches!(placement, Placement::Sharded { .. });
            let ways = if divided { placement.workers().len() as u64 } else { 1 };
            let (cost_ns, fused_ns) = (step.cost_ns / ways, step.fused_ns.map(|ns| ns / ways));
            return out.push(Step { workers: placement.workers(), divided, cost_ns, fused_ns, ..step });
        }
        if let Some(lowered) = self.mean_of_losses(asked, &step, &given, target.as_ref(), out) {
            return lowered;
        }
        self.stats.changed += 1;
        let asked = asked.clone();
        let plan = self.plan(&asked, &given, &meta, target.as_ref(), &step);
        self.carry_out(&asked, &given, &meta, &plan, target.as_ref(), &step, out);
    }

    /// Where the result is asked to be, by a signal or by its size.
    fn target(
        &self,
        asked: &Instruction,
        step: &Step,
        meta: &Meta,
        given: &[Given],
        spread: bool,
    ) -> Option<Placement> {
        let class = asked.op.row().class;
        if let Some(wish) = step.wish {
            // Views follow what they are views of; what has the shape it had is there to be placed.
            let same = matches!(given, [Given::Tensor(tensor)] if tensor.meta.shape == meta.shape);
            if class != Class::Movement || asked.op == Op::Reshape && same {
                return wish.placement(&meta.shape, self.all);
            }
        }
        if spread && asked.op == Op::Full && meta.shape.numel() == 1 {
            // A number is sooner made than moved: the seed of a backward pass, which meets tensors everywhere.
            return Some(Placement::Replicated { workers: self.all });
        }
        let made = matches!(class, Class::Creation | Class::Random);
        if made { self.by_size(meta) } else { None }
    }

    /// Where a new tensor goes by its size.
    fn by_size(&self, meta: &Meta) -> Option<Placement> {
        let least = self.costs.shard_bytes_min?;
        let dims = meta.shape.dims();
        let wide = dims.iter().position(|size| *size >= self.all.len());
        let axis = wide.or_else(|| if least == 0 { dims.iter().position(|size| *size > 1) } else { None })?;
        (meta.bytes() as u64 >= least).then(|| Placement::sharded(self.all, axis, 1, &meta.shape))
    }

    /// Where the result is if every worker does with what it has what is asked of the whole: most instructions.
    fn as_they_lie(&self, asked: &Instruction, given: &[Given], meta: &Meta, step: &Step) -> Option<Placement> {
        let mut common: Option<&Tensor> = None;
        let mut same_shape = true;
        for tensor in
            given.iter().filter_map(|given| if let Given::Tensor(tensor) = given { Some(tensor) } else { None })
        {
            if common.is_some_and(|other| other.placement != tensor.placement) {
                return None;
            }
            same_shape &= tensor.meta.shape == meta.shape;
            common = Some(tensor);
        }
        let Some(first) = common else {
            return step.workers.first().map(Placement::on);
        };
        match first.placement {
            Placement::Replicated { .. } if self.may_divide(step, meta) => None,
            Placement::Replicated { .. } => Some(first.placement),
            Placement::Sharded { .. } => {
                let alike = matches!(asked.op.row().class, Class::Elementwise | Class::Select | Class::Cast);
                (alike && same_shape).then_some(first.placement)
            }
            Placement::Partial { join, .. } => keeps_parts(asked, given, join, meta).then_some(first.placement),
        }
    }

    /// Whether an instruction on tensors that are whole may be better divided.
    fn may_divide(&self, step: &Step, meta: &Meta) -> bool {
        match self.costs.shard_bytes_min {
            None => false,
            Some(0) => meta.shape.rank() > 0,
            Some(_) => step.cost_ns >= DIVIDE_NS_MIN,
        }
    }

    /// The way in which an instruction is estimated to be done first.
    fn plan(&self, asked: &Instruction, given: &[Given], meta: &Meta, target: Option<&Placement>, step: &Step) -> Plan {
        let metas: Vec<InputMeta> = given
            .iter()
            .zip(asked.inputs.as_slice())
            .map(|(given, operand)| match (given, operand) {
                (Given::Tensor(tensor), _) => InputMeta::Tensor(tensor.meta),
                (_, Operand::Scalar(number)) => InputMeta::Scalar(*number),
                (_, Operand::Tensor(_)) => InputMeta::Scalar(Scalar::Int(0)),
            })
            .collect();
        let ways = splits(asked.op, &metas, &asked.attrs, meta);
        // Where everything is to be divided that can be, what cannot is done whole.
        let forced = self.costs.shard_bytes_min == Some(0)
            && meta.shape.rank() > 0
            && ways.iter().any(|way| !way.nonempty || way.units >= self.all.len());
        let mut groups: Vec<Workers> = Vec::new();
        let mut add = |workers: Workers| {
            if !workers.is_empty() && !groups.contains(&workers) {
                groups.push(workers);
            }
        };
        if let Some(target) = target {
            add(target.workers());
        }
        for given in given {
            if let Given::Tensor(tensor) = given {
                add(tensor.placement.workers());
            }
        }
        if forced || target.is_none() && self.may_divide(step, meta) {
            add(self.all);
        }
        if groups.is_empty() {
            groups.push(step.workers);
        }
        let mut best: Option<(f64, Plan)> = None;
        let mut consider = |time: f64, workers: Workers, split: Option<(Split, usize)>| {
            if best.as_ref().is_none_or(|(least, _)| time < *least) {
                best = Some((time, Plan { workers, split }));
            }
        };
        let compute = step.cost_ns as f64;
        let expected = if target.is_none() { expected(asked, given, meta) } else { None };
        let target = target.or(expected.as_ref());
        for workers in groups {
            let n = workers.len();
            for way in ways.iter().filter(|way| n > 1 && (!way.nonempty || way.units >= n)) {
                let granule = granule(way, given, workers);
                let mut time = compute / n.min(way.units) as f64;
                for (i, given) in given.iter().enumerate() {
                    time += self.bring_ns(given, &needed(way, i, workers, granule, given));
                }
                let result = given_place(way, workers, granule, &meta.shape);
                time += match (target, way.gives) {
                    (Some(target), _) => move_ns(&result, target, meta.bytes() as u64, self.costs.link_bytes_per_ns),
                    (None, Gives::Part(_)) => {
                        let all = Placement::Replicated { workers };
                        move_ns(&result, &all, meta.bytes() as u64, self.costs.link_bytes_per_ns)
                    }
                    (None, Gives::Stretch { .. }) => 0.0,
                };
                consider(time, workers, Some((way.clone(), granule)));
            }
            if forced {
                continue;
            }
            let whole = Placement::Replicated { workers };
            let mut time = compute;
            for given in given {
                time += self.bring_ns(given, &whole);
            }
            if let Some(target) = target {
                time += move_ns(&whole, target, meta.bytes() as u64, self.costs.link_bytes_per_ns);
            }
            consider(time, workers, None);
        }
        best.map_or(Plan { workers: step.workers, split: None }, |(_, plan)| plan)
    }

    fn bring_ns(&self, given: &Given, to: &Placement) -> f64 {
        match given {
            Given::Number => 0.0,
            Given::Tensor(tensor) => move_ns(&tensor.placement, to, tensor.bytes, self.costs.link_bytes_per_ns),
        }
    }

    /// Pushes the steps of an instruction.
    #[expect(clippy::too_many_arguments, reason = "an instruction and everything that was decided about it")]
    fn carry_out(
        &mut self,
        asked: &Instruction,
        given: &[Given],
        meta: &Meta,
        plan: &Plan,
        target: Option<&Placement>,
        step: &Step,
        out: &mut Output<'_>,
    ) {
        let workers = plan.workers;
        let whole = Placement::Replicated { workers };
        let mut operands: Vec<Operand> = asked.inputs.as_slice().to_vec();
        for (i, (operand, given)) in operands.iter_mut().zip(given).enumerate() {
            let Given::Tensor(tensor) = given else { continue };
            let to = match &plan.split {
                Some((split, granule)) => needed(split, i, workers, *granule, &Given::Tensor(*tensor)),
                None => whole,
            };
            // As it is now: an operand named twice may have been moved for its first place.
            let now = out.tensors().get(tensor.id).copied().unwrap_or(*tensor);
            *operand = Operand::Tensor(bring(&now, &to, step, out).id());
        }
        let made = WorkerTensor::from_id(asked.out);
        let placement = match &plan.split {
            None => {
                out.push(Step {
                    workers,
                    command: instruction(asked.op, made, &operands, asked.attrs.clone()),
                    ..step.clone()
                });
                whole
            }
            Some((split, granule)) => {
                divide(asked, made, &operands, split, *granule, meta, workers, step, out);
                given_place(split, workers, *granule, &meta.shape)
            }
        };
        out.tensors().place(made, placement);
        if let Some(target) = target
            && !is_there(&placement, target)
            && let Some(tensor) = out.tensors().get_at(made).copied()
        {
            let at = bring(&tensor, target, step, out);
            // What was made on the way is not wanted.
            if let Some(moved) = out.tensors().get_at(at).copied()
                && moved.id != tensor.id
            {
                if let Some(main) = out.tensors().get(tensor.id).map(|main| main.at)
                    && let Some(main) = out.tensors().get_at_mut(main)
                {
                    main.copy = moved.copy;
                }
                if let Some(moved) = out.tensors().get_at_mut(at) {
                    moved.copy = 0;
                }
                unchain(tensor.id, moved.id, step, out);
            }
        }
    }

    /// A mean of losses over samples that are divided: what they add up to, over how many count.
    fn mean_of_losses(
        &mut self,
        asked: &Instruction,
        step: &Step,
        given: &[Given],
        target: Option<&Placement>,
        out: &mut Output<'_>,
    ) -> Option<()> {
        let Attrs::Loss(spec @ LossSpec { reduction: LossReduction::Mean, .. }) = asked.attrs else { return None };
        let (scores, classes) = match asked.op {
            Op::CrossEntropy | Op::NllLoss => (0, 1),
            Op::CrossEntropyBackward | Op::NllLossBackward => (1, 2),
            _ => return None,
        };
        let (Given::Tensor(tensor), Some(target_operand)) = (given[scores], asked.inputs.as_slice().get(classes))
        else {
            return None;
        };
        let cut = matches!(tensor.placement, Placement::Sharded { axis: 0, .. })
            || matches!(target, Some(Placement::Sharded { axis: 0, .. }));
        // A sum of many halves can be more than they hold; those are brought together.
        if !cut || !matches!(tensor.meta.dtype, DType::F32 | DType::F64) {
            return None;
        }
        let mut lower = Lower { sharding: self, step, out, made: Vec::new() };
        let counted = lower.count(*target_operand, asked.inputs.as_slice()[classes + 1], &spec, &tensor.meta);
        let sums = Attrs::Loss(LossSpec { reduction: LossReduction::Sum, ..spec });
        let mut operands = asked.inputs.as_slice().to_vec();
        if scores == 0 {
            let sum = lower.emit(asked.op, &operands, sums, Meta::new(Shape::SCALAR, tensor.meta.dtype));
            lower.emit_into(asked.out, Op::Div, &[sum, counted], Attrs::None);
        } else {
            operands[0] =
                lower.emit(Op::Div, &[operands[0], counted], Attrs::None, Meta::new(Shape::SCALAR, tensor.meta.dtype));
            lower.emit_into(asked.out, asked.op, &operands, sums);
        }
        lower.finish();
        Some(())
    }

    fn allocate(&mut self, step: Step, out: &mut Output<'_>) {
        let Command::Allocate { out: id, meta } = step.command else { return };
        let wish = step.wish.and_then(|wish| wish.placement(&meta.shape, self.all));
        let home = step.workers.first().map_or(Placement::on(0), Placement::on);
        // Bytes arrive in row-major order: only stretches of the first axis can be written as they come.
        let fits = |placement: &Placement| match placement {
            Placement::Sharded { axis, .. } => *axis == 0,
            Placement::Replicated { .. } => true,
            Placement::Partial { .. } => false,
        };
        let placement = wish.or_else(|| self.by_size(&meta)).filter(fits).unwrap_or(home);
        out.tensors().place(WorkerTensor::from_id(id), placement);
        if let Placement::Sharded { workers, .. } = placement {
            for worker in workers.iter() {
                let local = placement.local(&meta, worker);
                let command = Command::Allocate { out: id, meta: local };
                out.push(Step { workers: Workers::one(worker), divided: true, command, ..step.clone() });
            }
        } else {
            out.push(Step { workers: placement.workers(), ..step });
        }
    }
}

/// Whether what is done to each part is done to what they are joined to: views, and what is linear to a sum.
fn keeps_parts(asked: &Instruction, given: &[Given], join: Join, meta: &Meta) -> bool {
    let parts = given.iter().filter(|given| matches!(given, Given::Tensor(_))).count();
    match (asked.op, given) {
        _ if asked.op.row().class == Class::Movement => true,
        _ if join != Join::Sum || !meta.dtype.is_float() => false,
        (Op::Neg, _) => true,
        (Op::Add | Op::Sub, [_, _]) => parts == 2,
        (Op::Mul, [_, _]) => parts == 1,
        (Op::Div, [Given::Tensor(_), Given::Number]) => true,
        _ => false,
    }
}

/// Where a result of the shape of operands is expected that are all there on several workers, or parts on them, and
/// nowhere cut: a parameter that is updated stays where it was, and parts are joined where they are.
fn expected(asked: &Instruction, given: &[Given], meta: &Meta) -> Option<Placement> {
    let alike = matches!(asked.op.row().class, Class::Elementwise | Class::Select | Class::Cast | Class::Rows);
    // A single number is on every worker because it was made there; that says nothing of where others should be.
    if !alike || meta.shape.numel() == 1 {
        return None;
    }
    let mut widest: Option<Workers> = None;
    for given in given {
        let Given::Tensor(Tensor { meta: own, placement, .. }) = given else { continue };
        if own.shape != meta.shape {
            continue;
        }
        match placement {
            Placement::Sharded { .. } => return None,
            Placement::Replicated { workers } | Placement::Partial { workers, .. } => {
                if workers.len() > 1 && widest.is_none_or(|other| other.len() < workers.len()) {
                    widest = Some(*workers);
                }
            }
        }
    }
    widest.map(|workers| Placement::Replicated { workers })
}

/// Lets the tensor called `id` be its copy called `other`, and frees the rest of the chain.
fn unchain(id: TensorId, other: TensorId, step: &Step, out: &mut Output<'_>) {
    let mut rest = out.tensors().get(id).map_or(0, |main| main.copy);
    if let Some(main) = out.tensors().get(id).map(|main| main.at)
        && let Some(main) = out.tensors().get_at_mut(main)
    {
        main.copy = 0;
    }
    replace(id, other, step, out);
    while let Some(copy) = out.tensors().get(rest).copied() {
        rest = copy.copy;
        free(&copy, step, out);
    }
}

/// What operand `i` must lie like for a way of dividing.
fn needed(split: &Split, i: usize, workers: Workers, granule: usize, given: &Given) -> Placement {
    match (split.needs.get(i), given) {
        (Some(Need::Stretch { axis, scale }), Given::Tensor(tensor)) => {
            Placement::sharded(workers, *axis as usize, granule * scale, &tensor.meta.shape)
        }
        _ => Placement::Replicated { workers },
    }
}

/// Where the result of a way of dividing is.
fn given_place(split: &Split, workers: Workers, granule: usize, shape: &Shape) -> Placement {
    match split.gives {
        Gives::Stretch { axis, scale } => Placement::sharded(workers, axis as usize, granule * scale, shape),
        Gives::Part(join) => parts(workers, join),
    }
}

/// At how many units a way of dividing cuts: where the largest operand that is cut along its axis is cut already.
fn granule(split: &Split, given: &[Given], workers: Workers) -> usize {
    let mut largest = (0, 1);
    for (need, given) in split.needs.iter().zip(given) {
        if let (Need::Stretch { axis, scale }, Given::Tensor(tensor)) = (need, given)
            && let Placement::Sharded { workers: own, axis: along, granule } = tensor.placement
            && (own, along) == (workers, *axis)
            && granule % scale == 0
            && tensor.bytes > largest.0
        {
            largest = (tensor.bytes, granule / scale);
        }
    }
    let granule = largest.1;
    let fits = split.units.is_multiple_of(granule) && (!split.nonempty || split.units / granule >= workers.len());
    if fits { granule } else { 1 }
}

/// Pushes what each worker does of an instruction.
#[expect(clippy::too_many_arguments, reason = "an instruction and everything that was decided about it")]
fn divide(
    asked: &Instruction,
    made: WorkerTensor,
    operands: &[Operand],
    split: &Split,
    granule: usize,
    meta: &Meta,
    workers: Workers,
    step: &Step,
    out: &mut Output<'_>,
) {
    let n = workers.len();
    let cost_ns = step.cost_ns / n as u64;
    let units = |rank: usize| stretch(split.units, granule, rank, n);
    // A mean of a part is first its mean, then what that adds to the whole's.
    let unweighted = split.weighted.then(|| out.allocate(*meta));
    let first = unweighted.map_or(made, |(_, at)| at);
    let placement = given_place(split, workers, granule, &meta.shape);
    let mut alike = None;
    for (rank, worker) in workers.iter().enumerate() {
        let local = placement.local(meta, worker);
        match localize(asked.op, &asked.attrs, split, &units(rank), &local.shape) {
            Some(attrs) => {
                let command = instruction(asked.op, first, operands, attrs);
                out.push(Step { workers: Workers::one(worker), divided: true, command, cost_ns, ..step.clone() });
            }
            None => alike = Some(asked.attrs.clone()),
        }
    }
    if let Some(attrs) = alike {
        let command = instruction(asked.op, first, operands, attrs);
        out.push(Step { workers, divided: true, command, cost_ns, ..step.clone() });
    }
    let Some((id, at)) = unweighted else { return };
    for (rank, worker) in workers.iter().enumerate() {
        let weight = Operand::Scalar(share(&units(rank), split.units));
        let command = instruction(Op::Mul, made, &[Operand::Tensor(at.id()), weight], Attrs::None);
        out.push(Step { divided: true, ..follow(step, Workers::one(worker), command, Some(*meta)) });
    }
    out.tensors().place(at, Placement::Replicated { workers });
    if let Some(tensor) = out.tensors().get(id).copied() {
        free(&tensor, step, out);
    }
}

/// Instructions that stand for one of the client's.
struct Lower<'a, 'b> {
    sharding: &'a mut Sharding,
    step: &'a Step,
    out: &'a mut Output<'b>,
    made: Vec<TensorId>,
}

impl Lower<'_, '_> {
    fn emit(&mut self, op: Op, operands: &[Operand], attrs: Attrs, meta: Meta) -> Operand {
        let (id, at) = self.out.allocate(meta);
        self.made.push(id);
        let command = instruction(op, at, operands, attrs);
        self.sharding.op(Step { command, out: Some(meta), wish: None, ..self.step.clone() }, self.out);
        // Wherever it went, the client's name leads there.
        let at = self.out.tensors().get(id).map_or(at, |tensor| tensor.at);
        Operand::Tensor(at.id())
    }

    fn emit_into(&mut self, made: TensorId, op: Op, operands: &[Operand], attrs: Attrs) {
        let command = instruction(op, WorkerTensor::from_id(made), operands, attrs);
        self.sharding.op(Step { command, ..self.step.clone() }, self.out);
    }

    /// How much the samples count together.
    fn count(&mut self, classes: Operand, weight: Operand, spec: &LossSpec, scores: &Meta) -> Operand {
        let (rows, number) = (scores.shape.dims()[0], |n: i64| Operand::Scalar(Scalar::Int(n)));
        let of = |dtype| Meta::new(scores.shape, dtype);
        let samples = |dtype| Meta::new(Shape::SCALAR, dtype);
        let column = |dtype| Meta::new(Shape::new(&[rows]).unwrap_or(of(dtype).shape), dtype);
        let counts = self.emit(Op::Ne, &[classes, number(spec.ignore_index)], Attrs::None, column(DType::Bool));
        let dtype = scores.dtype;
        let each = match weight {
            Operand::Scalar(_) => self.emit(Op::Cast, &[counts], Attrs::DType(dtype), column(dtype)),
            Operand::Tensor(_) => {
                let known = [counts, classes, number(0)];
                let known = self.emit(Op::Where, &known, Attrs::DType(DType::I64), column(DType::I64));
                let weights = self.emit(Op::Gather, &[weight, known], Attrs::Axis(0), column(dtype));
                let choices = [counts, weights, Operand::Scalar(Scalar::Float(0.0))];
                self.emit(Op::Where, &choices, Attrs::DType(dtype), column(dtype))
            }
        };
        self.emit(Op::Sum, &[each], Attrs::Axes { mask: 1, keepdim: false }, samples(dtype))
    }

    fn finish(self) {
        for id in self.made {
            let mut next = id;
            while let Some(tensor) = self.out.tensors().get(next).copied() {
                next = tensor.copy;
                free(&tensor, self.step, self.out);
            }
        }
    }
}

/// The bytes `from..to` of a tensor's row-major form that `worker` has, and where among its own they begin.
fn overlap(tensor: &Tensor, worker: usize, from: u64, to: u64) -> Option<(u64, u64, u64)> {
    let stretch = tensor.placement.stretch_of(&tensor.meta.shape, worker)?;
    let size = tensor.meta.shape.dims()[0].max(1) as u64;
    let row = tensor.bytes / size;
    let (first, last) = (stretch.start as u64 * row, stretch.end as u64 * row);
    let (start, end) = (from.max(first), to.min(last));
    (start < end).then(|| (start, end, start - first))
}

fn part_of(range: &ArenaRange, skip: u64, len_bytes: u64) -> ArenaRange {
    ArenaRange { segment: range.segment, offset_bytes: range.offset_bytes + skip, len_bytes }
}

fn write(step: Step, out: &mut Output<'_>) {
    let Command::Write { token, id, offset_bytes, from } = step.command else { return };
    let Some(tensor) = out.tensors().get_at(WorkerTensor::from_id(id)).copied() else { return out.push(step) };
    if !matches!(tensor.placement, Placement::Sharded { .. }) {
        return out.push(Step { workers: tensor.placement.workers(), ..step });
    }
    let mut any = false;
    for worker in tensor.placement.workers().iter() {
        let Some((start, end, own)) = overlap(&tensor, worker, offset_bytes, offset_bytes + from.len_bytes) else {
            continue;
        };
        any = true;
        let from = part_of(&from, start - offset_bytes, end - start);
        let command = Command::Write { token, id, offset_bytes: own, from };
        out.push(Step { workers: Workers::one(worker), command, bytes: end - start, ..step.clone() });
    }
    if !any {
        // Nothing of a tensor of nothing: somebody says that it is there.
        let first = tensor.placement.workers().first().unwrap_or_default();
        out.push(Step { workers: Workers::one(first), ..step });
    }
}

fn fetch(step: Step, out: &mut Output<'_>) {
    let Command::Fetch { token, id, offset_bytes, to } = step.command else { return };
    let Some(tensor) = out.tensors().get_at(WorkerTensor::from_id(id)).copied() else { return out.push(step) };
    debug_assert!(tensor.content == Content::Defined);
    let workers = tensor.placement.workers();
    let first = workers.first().unwrap_or_default();
    match tensor.placement {
        Placement::Replicated { .. } => out.push(Step { workers: Workers::one(first), ..step }),
        Placement::Sharded { .. } if to.len_bytes == 0 => {
            let command = Command::Fetch { token, id, offset_bytes: 0, to };
            out.push(Step { workers: Workers::one(first), command, ..step });
        }
        Placement::Sharded { axis: 0, .. } => {
            for worker in workers.iter() {
                let Some((start, end, own)) = overlap(&tensor, worker, offset_bytes, offset_bytes + to.len_bytes)
                else {
                    continue;
                };
                let to = part_of(&to, start - offset_bytes, end - start);
                let command = Command::Fetch { token, id, offset_bytes: own, to };
                out.push(Step { workers: Workers::one(worker), command, bytes: end - start, ..step.clone() });
            }
        }
        _ => {
            let whole = match tensor.placement {
                Placement::Partial { .. } => Placement::Replicated { workers },
                _ => Placement::on(first),
            };
            let id = bring(&tensor, &whole, &step, out).id();
            let command = Command::Fetch { token, id, offset_bytes, to };
            out.push(Step { workers: Workers::one(first), command, ..step });
        }
    }
}
