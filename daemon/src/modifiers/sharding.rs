//! Sharding: where each result is made and kept when a session has several workers.
//!
//! An instruction of a client names whole tensors. Here it becomes steps of workers: each has its part, and what lies
//! in the wrong place is moved first. Of the ways in which the op's class allows an instruction to be divided
//! ([`gt_ops::propagate`]), the one is taken that is estimated to be done first, moves included. Where nothing can be
//! divided, the operands are brought together and the whole is done in one place: any instruction can be done.

use super::collectives::{bring, follow, free, instruction, is_there, move_ns, nearest, parts, settle};
use super::families::{Kin, Loads};
use super::transfers::{fetch, write};
use super::{ModifierStats, Output, StreamModifier};
use crate::table::{Tensor, TensorTable, WorkerTensor};
use crate::worker::step::Step;
use gt_ops::infer::InputMeta;
use gt_ops::placement::{ReduceOp, stretch};
use gt_ops::propagate::{Need, Produces, Split, localize, share, splits};
use gt_ops::wire::Command;
use gt_ops::{Attrs, Class, Inputs, Instruction, Meta, Op, Operand, Placement, Scalar, Shape, Workers};
use std::sync::OnceLock;
use std::time::Instant;

/// An instruction on one worker's tensors is divided only if it is estimated to take longer, nanoseconds.
const DIVIDE_NS_MIN: u64 = 200_000;

/// Where there are tensors on several workers, new ones of so many bytes are made by each: that takes less time than to
/// tell the others.
const MADE_EVERYWHERE_BYTES_MAX: u64 = 16 << 10;

/// What placing is estimated with.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// Tensors of at least so many bytes are sharded by themselves; never, if there is no number. With 0 everything is
    /// divided that can be.
    pub shard_bytes_min: Option<u64>,
    /// What goes from one worker to another, bytes a nanosecond.
    pub link_bytes_per_ns: f64,
}

/// Bytes that are copied to see how fast the machine does, and how often: a few milliseconds.
const COPIED_BYTES: usize = 8 << 20;
const COPIES: usize = 3;

/// How fast this machine copies what is not in its caches, which is what moves between workers cost at least. Measured
/// at the first call.
pub fn machine_bytes_per_ns() -> f64 {
    static MEASURED: OnceLock<f64> = OnceLock::new();
    *MEASURED.get_or_init(|| {
        let from = vec![1u8; COPIED_BYTES];
        let mut to = vec![0u8; COPIED_BYTES];
        let copies = (0..COPIES).map(|_| {
            let start = Instant::now();
            to.copy_from_slice(std::hint::black_box(&from));
            std::hint::black_box(&to);
            start.elapsed().as_nanos() as f64
        });
        COPIED_BYTES as f64 / copies.fold(f64::INFINITY, f64::min).max(1.0)
    })
}

/// The modifier.
pub struct Sharding {
    pub(super) all: Workers,
    pub(super) costs: Costs,
    pub(super) loads: Loads,
    stats: ModifierStats,
}

/// An operand of the instruction in hand.
#[derive(Clone, Copy)]
pub(super) enum Given {
    Number,
    Tensor(Tensor),
}

impl Given {
    pub(super) fn tensor(&self) -> Option<&Tensor> {
        if let Given::Tensor(tensor) = self { Some(tensor) } else { None }
    }

    fn is_there(&self, to: &Placement) -> bool {
        self.tensor().is_none_or(|tensor| is_there(&tensor.placement, to))
    }
}

/// How an instruction will be done.
pub(super) struct Plan {
    pub(super) workers: Workers,
    /// The way it is divided, and the granule of its units; whole on every worker if there is none.
    pub(super) split: Option<(Split, usize)>,
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
        Sharding { all, costs, loads: Loads::new(all), stats: ModifierStats::default() }
    }

    /// Pushes what an instruction becomes.
    pub(super) fn op(&mut self, step: Step, out: &mut Output<'_>) {
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
        let made = WorkerTensor::from_id(asked.out);
        let wished = self.wished(asked, &step, &meta, &given);
        let kept = if wished.is_none() { kept(asked, &given, &meta) } else { None };
        if let (Some(place), Some(result)) = (wished.or(kept), out.tensors().get_at_mut(made)) {
            result.kin = Kin::Asked(place);
        }
        let target = wished.or_else(|| self.target(asked, &meta, out.tensors().is_spread()));
        let home = self.home(asked, &given, target.is_some(), &step, out.tensors());
        if let Some(home) = home
            && !given.iter().all(|given| given.is_there(&Placement::on(home)))
        {
            self.stats.changed += 1;
            return self.at_home(&asked.clone(), &given, &meta, home, &step, out);
        }
        if target.is_none()
            && let Some(placement) = self.as_they_lie(asked, &given, &meta, &step)
            && kept.is_none_or(|kept| kept == placement)
        {
            out.tensors().place(made, placement);
            let divided = matches!(placement, Placement::Sharded { .. });
            let ways = if divided { placement.workers().len() as u64 } else { 1 };
            let (cost_ns, fused_ns) = (step.cost_ns / ways, step.fused_ns.map(|ns| ns / ways));
            return out.push(Step { workers: placement.workers(), divided, cost_ns, fused_ns, ..step });
        }
        let target = target.or(kept);
        if let Some(lowered) = self.mean_of_losses(asked, &step, &given, target.as_ref(), out) {
            return lowered;
        }
        self.stats.changed += 1;
        let asked = asked.clone();
        let plan = self.plan(&asked, &given, &meta, target.as_ref(), &step, out.tensors());
        self.carry_out(&asked, &given, &meta, &plan, target.as_ref(), &step, out);
        // It was worth dividing: so is perhaps what is computed from it.
        if let (Some(_), Some(result)) = (home, out.tensors().get_at(made).copied())
            && result.placement.sole() != home
            && let Kin::Member(family) = result.kin
        {
            out.tensors().families().scatter(family);
        }
    }

    /// Where the signal that an instruction is under asks its result to be.
    fn wished(&self, asked: &Instruction, step: &Step, meta: &Meta, given: &[Given]) -> Option<Placement> {
        let requested = step.requested?;
        // Views follow what they are views of; what has the shape it had is there to be placed.
        let same = matches!(given, [Given::Tensor(tensor)] if tensor.meta.shape == meta.shape);
        let places = asked.op.row().class != Class::Movement || asked.op == Op::Reshape && same;
        if places { requested.placement(&meta.shape, self.all) } else { None }
    }

    /// Where a new tensor is to be that no signal places.
    fn target(&self, asked: &Instruction, meta: &Meta, spread: bool) -> Option<Placement> {
        let class = asked.op.row().class;
        // Sooner made than moved: the seed of a backward pass, positions, what gradients are added to.
        let small = meta.shape.numel() == 1
            || meta.bytes() as u64 <= MADE_EVERYWHERE_BYTES_MAX && self.costs.shard_bytes_min != Some(0);
        if spread && class == Class::Creation && small {
            return Some(Placement::Replicated { workers: self.all });
        }
        let made = matches!(class, Class::Creation | Class::Random);
        if made { self.by_size(meta) } else { None }
    }

    /// Where a new tensor goes by its size.
    pub(super) fn by_size(&self, meta: &Meta) -> Option<Placement> {
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
        for tensor in given.iter().filter_map(Given::tensor) {
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
            Placement::Partial { reduce_op, .. } => {
                keeps_parts(asked, given, reduce_op, meta).then_some(first.placement)
            }
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
    fn plan(
        &self,
        asked: &Instruction,
        given: &[Given],
        meta: &Meta,
        target: Option<&Placement>,
        step: &Step,
        tensors: &TensorTable,
    ) -> Plan {
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
            && ways.iter().any(|way| way.units > 1 && !way.nonempty || way.units >= self.all.len());
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
                tensors.lying(tensor).for_each(|tensor| add(tensor.placement.workers()));
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
                    time += self.bring_ns(given, &needed(way, i, workers, granule, given), tensors);
                }
                let result = given_place(way, workers, granule, &meta.shape);
                time += match (target, way.produces) {
                    (Some(target), _) => move_ns(&result, target, meta.bytes() as u64, self.costs.link_bytes_per_ns),
                    (None, Produces::Part(_)) => {
                        let all = Placement::Replicated { workers };
                        move_ns(&result, &all, meta.bytes() as u64, self.costs.link_bytes_per_ns)
                    }
                    (None, Produces::Stretch { .. }) => 0.0,
                };
                consider(time, workers, Some((way.clone(), granule)));
            }
            if forced {
                continue;
            }
            let whole = Placement::Replicated { workers };
            let mut time = compute;
            for given in given {
                time += self.bring_ns(given, &whole, tensors);
            }
            if let Some(target) = target {
                time += move_ns(&whole, target, meta.bytes() as u64, self.costs.link_bytes_per_ns);
            }
            consider(time, workers, None);
        }
        best.map_or(Plan { workers: step.workers, split: None }, |(_, plan)| plan)
    }

    fn bring_ns(&self, given: &Given, to: &Placement, tensors: &TensorTable) -> f64 {
        match given {
            Given::Number => 0.0,
            Given::Tensor(tensor) => nearest(tensor, to, self.costs.link_bytes_per_ns, tensors).1,
        }
    }

    /// Pushes the steps of an instruction.
    #[expect(clippy::too_many_arguments, reason = "an instruction and everything that was decided about it")]
    pub(super) fn carry_out(
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
                    command: part_of(asked, made, &operands, asked.attrs.clone()),
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
            settle(tensor.id, at, step, out);
        }
    }
}

/// Where a signal asked the first operand to be, of which the result is a new value: a parameter that is updated stays
/// there, wherever gradients and moments lie.
fn kept(asked: &Instruction, given: &[Given], meta: &Meta) -> Option<Placement> {
    let alike = matches!(asked.op.row().class, Class::Elementwise | Class::Select | Class::Cast);
    match given.first()?.tensor()? {
        Tensor { kin: Kin::Asked(place), meta: own, .. } if alike && own.shape == meta.shape => Some(*place),
        _ => None,
    }
}

/// Whether what is done to each part is done to what they are joined to: views, and what is linear to a sum.
fn keeps_parts(asked: &Instruction, given: &[Given], reduce_op: ReduceOp, meta: &Meta) -> bool {
    let parts = given.iter().filter(|given| matches!(given, Given::Tensor(_))).count();
    match (asked.op, given) {
        _ if matches!(asked.op.row().class, Class::Movement | Class::Concatenation) => true,
        _ if reduce_op != ReduceOp::Sum || !meta.dtype.is_float() => false,
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
    let alike = matches!(
        asked.op.row().class,
        Class::Elementwise | Class::Select | Class::Cast | Class::RowWise | Class::Scatter
    );
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

/// What operand `i` must lie like for a way of dividing.
fn needed(split: &Split, i: usize, workers: Workers, granule: usize, given: &Given) -> Placement {
    match (split.needs.get(i), given) {
        (Some(Need::Stretch { axis, scale }), Given::Tensor(tensor)) => {
            Placement::sharded(workers, *axis as usize, granule * scale, &tensor.meta.shape)
        }
        (Some(Need::Part(reduce_op)), Given::Tensor(_)) => parts(workers, *reduce_op),
        _ => Placement::Replicated { workers },
    }
}

/// Where the result of a way of dividing is.
fn given_place(split: &Split, workers: Workers, granule: usize, shape: &Shape) -> Placement {
    match split.produces {
        Produces::Stretch { axis, scale } => Placement::sharded(workers, axis as usize, granule * scale, shape),
        Produces::Part(reduce_op) => parts(workers, reduce_op),
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
                let command = part_of(asked, first, operands, attrs);
                out.push(Step { workers: Workers::one(worker), divided: true, command, cost_ns, ..step.clone() });
            }
            None => alike = Some(asked.attrs.clone()),
        }
    }
    if let Some(attrs) = alike {
        let command = part_of(asked, first, operands, attrs);
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
/// What some workers do of an instruction.
fn part_of(asked: &Instruction, made: WorkerTensor, operands: &[Operand], attrs: Attrs) -> Command {
    let inputs = Inputs::from_slice(operands);
    Command::Op(Instruction { op: asked.op, out: made.id(), inputs, last_use: 0, attrs, tf32: asked.tf32 })
}
