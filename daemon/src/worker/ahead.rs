//! What a worker sees by looking at what is queued behind a large step: instructions to do together, and memory that
//! is about to be given up.
//!
//! Nothing is held back for it. A worker that has nothing queued does each step as it comes; one that is behind finds
//! the rest of an expression waiting, and with it the frees that say which results nobody will ask for.

use super::core::{Core, Tensors, caught, failure};
use gt_backend::{Backend, ExecError, Input, Stage, StageInput};
use gt_ops::failure::Failure;
use gt_ops::infer::{InputMeta, infer};
use gt_ops::wire::Command;
use gt_ops::{Instruction, Meta, Operand, TensorId};
use std::sync::atomic::Ordering::Relaxed;

/// A step on smaller tensors is done before a look ahead would be.
pub const AHEAD_BYTES_MIN: usize = 128 << 10;
/// How many instructions may turn out to belong to the first by way of others after them.
const STRANGERS_MAX: usize = 4;
/// Instructions done together: each adds operands, and with them streams from memory.
pub const STAGES_MAX: usize = 32;

/// A step as it is queued.
#[derive(Clone, Debug)]
pub struct Job {
    /// Where the session's tensors are.
    pub place: u32,
    /// What the client calls the result.
    pub origin: TensorId,
    /// What to do.
    pub command: Command,
}

/// An instruction that can be done together with others.
struct Planned<'a> {
    job: usize,
    instruction: &'a Instruction,
    out: Meta,
    /// Instructions of one number share tensors, by way of others or not.
    kin: usize,
}

/// The first of some jobs and those after it that belong to it.
struct Plan<'a> {
    stages: Vec<Planned<'a>>,
    /// How many jobs that are, frees among them.
    jobs: usize,
}

impl<'a> Plan<'a> {
    fn new<B: Backend>(backend: &B, stream: &Tensors<B::Tensor>, jobs: &'a [Job]) -> Plan<'a> {
        let mut plan = Plan { stages: Vec::new(), jobs: 0 };
        for (at, job) in jobs.iter().enumerate() {
            match &job.command {
                _ if job.place != jobs[0].place || plan.stages.len() == STAGES_MAX => break,
                _ if plan.stages.iter().filter(|stage| stage.kin != 0).count() > STRANGERS_MAX => break,
                Command::Free { .. } => {}
                Command::Op(instruction) => match plan.admits(backend, stream, instruction) {
                    Some(out) => plan.push(at, instruction, out),
                    None => break,
                },
                _ => break,
            }
            plan.jobs = at + 1;
        }
        // What has nothing to do with the first is better done by itself.
        if let Some(stranger) = plan.stages.iter().position(|stage| stage.kin != 0) {
            plan.jobs = plan.stages[stranger].job;
            plan.stages.truncate(stranger);
        }
        plan
    }

    /// The result's shape and dtype, if an instruction can be done together with those so far.
    fn admits<B: Backend>(&self, backend: &B, stream: &Tensors<B::Tensor>, instruction: &Instruction) -> Option<Meta> {
        let mut metas = Vec::with_capacity(3);
        let mut dtype = None;
        for operand in instruction.inputs.as_slice() {
            metas.push(match operand {
                Operand::Scalar(number) => InputMeta::Scalar(*number),
                Operand::Tensor(id) => {
                    let meta = match self.stage_of(*id) {
                        Some(earlier) => self.stages[earlier].out,
                        None => backend.meta(stream.get(*id)?.as_ref().ok()?),
                    };
                    dtype = dtype.or(Some(meta.dtype));
                    InputMeta::Tensor(meta)
                }
            });
        }
        if instruction.last_use != 0 || !instruction.op.row().fuses(dtype?) {
            return None;
        }
        let out = infer(instruction.op, &metas, &instruction.attrs).ok()?;
        let fits = match self.stages.first() {
            Some(first) => first.out.shape == out.shape,
            None => out.bytes() >= AHEAD_BYTES_MIN,
        };
        fits.then_some(out)
    }

    fn stage_of(&self, id: TensorId) -> Option<usize> {
        self.stages.iter().rposition(|stage| stage.instruction.out == id)
    }

    fn push(&mut self, job: usize, instruction: &'a Instruction, out: Meta) {
        let kin = self.stages.len();
        self.stages.push(Planned { job, instruction, out, kin });
        for operand in instruction.inputs.as_slice() {
            let Operand::Tensor(id) = operand else { continue };
            for i in 0..kin {
                let other = self.stages[i].instruction;
                if other.out == *id || other.inputs.as_slice().contains(operand) {
                    let (old, new) = (self.stages[kin].kin, self.stages[i].kin);
                    let (old, new) = (old.max(new), old.min(new));
                    self.stages.iter_mut().filter(|stage| stage.kin == old).for_each(|stage| stage.kin = new);
                }
            }
        }
    }

    /// What a backend is asked to do. `freed` is named nowhere after the plan.
    fn program<'b, B: Backend>(
        &self,
        stream: &'b Tensors<B::Tensor>,
        freed: &[TensorId],
    ) -> Option<Vec<Stage<'b, B::Tensor>>>
    where
        'a: 'b,
    {
        let mut program = Vec::with_capacity(self.stages.len());
        for (at, stage) in self.stages.iter().enumerate() {
            let Instruction { op, out, inputs, attrs, .. } = stage.instruction;
            let mut feeds = Vec::with_capacity(3);
            let mut last_use = 0;
            for (i, operand) in inputs.as_slice().iter().enumerate() {
                feeds.push(match operand {
                    Operand::Scalar(number) => StageInput::External(Input::Scalar(*number)),
                    Operand::Tensor(id) => match self.stage_of(*id) {
                        Some(earlier) => StageInput::Stage(earlier),
                        None => {
                            let later = &self.stages[at + 1..];
                            let read = later.iter().any(|s| s.instruction.inputs.as_slice().contains(operand));
                            last_use |= ((freed.contains(id) && !read) as u8) << i;
                            StageInput::External(Input::Tensor(stream.get(*id)?.as_ref().ok()?))
                        }
                    },
                });
            }
            program.push(Stage { op: *op, inputs: feeds, attrs, out: stage.out, kept: !freed.contains(out), last_use });
        }
        Some(program)
    }
}

/// What the frees among `jobs` name.
fn freed(jobs: &[Job]) -> Vec<TensorId> {
    let ids = jobs.iter().filter_map(|job| match &job.command {
        Command::Free { ids } => Some(ids),
        _ => None,
    });
    ids.flatten().copied().filter(|id| *id != 0).collect()
}

impl<B: Backend> Core<B> {
    /// Whether what is queued behind a step may change how it is done best.
    pub fn looks_ahead(&mut self, place: u32, command: &Command) -> bool {
        let Command::Op(instruction) = command else { return false };
        let Some((backend, stream)) = self.stream(place) else { return false };
        instruction.inputs.as_slice().iter().filter_map(Operand::tensor).any(|id| match stream.get(id) {
            Some(Ok(tensor)) => backend.meta(tensor).bytes() >= AHEAD_BYTES_MIN,
            _ => false,
        })
    }

    /// Does all of `jobs` and tells `done` how each ended, in order.
    pub fn run_all(&mut self, jobs: &[Job], mut done: impl FnMut(Result<(), Failure>)) {
        let mut rest = jobs;
        while let [first, ..] = rest {
            let count = if self.looks_ahead(first.place, &first.command) {
                self.run_ahead(rest, &mut done)
            } else {
                done(self.run(first.place, first.origin, &first.command, None));
                1
            };
            rest = &rest[count..];
        }
    }

    /// Does the first of `jobs`, an instruction, and what can be done with it. Tells `done` how each ended, in order,
    /// and returns how many that are.
    pub fn run_ahead(&mut self, jobs: &[Job], mut done: impl FnMut(Result<(), Failure>)) -> usize {
        let [first, rest @ ..] = jobs else { return 0 };
        if let Some(count) = self.run_together(jobs, &mut done) {
            return count;
        }
        let followed =
            rest.iter().take_while(|job| job.place == first.place && matches!(job.command, Command::Free { .. }));
        let freed = freed(&rest[..followed.count()]);
        let mut command = first.command.clone();
        if let Command::Op(instruction) = &mut command {
            for (i, operand) in instruction.inputs.as_slice().iter().enumerate().take(8) {
                if operand.tensor().is_some_and(|id| freed.contains(&id)) {
                    instruction.last_use |= 1 << i;
                }
            }
        }
        done(self.run(first.place, first.origin, &command, None));
        1
    }

    /// [`Core::run_ahead`] where several instructions belong together; otherwise nothing.
    fn run_together(&mut self, jobs: &[Job], done: &mut impl FnMut(Result<(), Failure>)) -> Option<usize> {
        let first = jobs.first()?;
        let (backend, stream) = self.stream(first.place).filter(|(_, s)| !s.shared.cancelled.load(Relaxed))?;
        let plan = Plan::new(backend, stream, jobs);
        if plan.stages.len() < 2 {
            return None;
        }
        let jobs = &jobs[..plan.jobs];
        let freed = freed(jobs);
        // What others freed meanwhile makes room for the results.
        let named =
            |id: TensorId| plan.stages.iter().any(|s| s.instruction.inputs.as_slice().contains(&Operand::Tensor(id)));
        freed.iter().filter(|id| !named(**id)).for_each(|id| stream.take(*id));
        let program = plan.program::<B>(stream, &freed)?;
        tracing::debug!(target: "gtd::worker", place = first.place, origin = first.origin, stages = program.len(), "does together");
        backend.label(first.origin);
        let made = caught(|| backend.execute_fused(&program));
        let result = match made {
            Ok(made) => {
                freed.iter().for_each(|id| stream.take(*id));
                for (stage, tensor) in plan.stages.iter().zip(made) {
                    if let Some(tensor) = tensor {
                        stream.put(stage.instruction.out, Ok(tensor));
                    }
                }
                Ok(())
            }
            // One after the other they may need less, and the one for which there is no room fails by itself.
            Err(ExecError::OutOfMemory { .. }) => {
                for job in jobs {
                    done(self.run(job.place, job.origin, &job.command, None));
                }
                return Some(jobs.len());
            }
            Err(error) => {
                let failure = failure(error, first.origin, Some(plan.stages[0].instruction.op));
                freed.iter().for_each(|id| stream.take(*id));
                for stage in plan.stages.iter().filter(|stage| !freed.contains(&stage.instruction.out)) {
                    stream.put(stage.instruction.out, Err(failure));
                }
                Err(failure)
            }
        };
        for job in jobs {
            done(if matches!(job.command, Command::Op(_)) { result } else { Ok(()) });
        }
        Some(jobs.len())
    }
}

#[cfg(test)]
mod tests {
    use super::super::core::StreamShared;
    use super::*;
    use crate::table::WorkerTensor;
    use gt_backend::MemoryUsage;
    use gt_cpu::{CpuBackend, CpuOptions};
    use gt_ops::wire::{ArenaRange, FREE_IDS_MAX};
    use gt_ops::{Attrs, DType, Inputs, Op, Scalar, Shape};
    use gt_shm::Arena;
    use proptest::prelude::*;
    use std::sync::Arc;

    /// Large enough that a worker looks ahead.
    const ELEMENTS: usize = AHEAD_BYTES_MIN / size_of::<f32>();

    /// Jobs on tensors that get places as the dispatcher gives them: those of freed ones again.
    #[derive(Default)]
    struct Client {
        jobs: Vec<Job>,
        live: Vec<TensorId>,
        vacant: Vec<TensorId>,
        places: u32,
    }

    impl Client {
        fn define(&mut self) -> TensorId {
            let id = match self.vacant.pop() {
                Some(id) => WorkerTensor::new(id as u32, (id >> 32) as u32 + 1).id(),
                None => {
                    self.places += 1;
                    WorkerTensor::new(self.places, 1).id()
                }
            };
            self.live.push(id);
            id
        }
        fn push(&mut self, command: Command) {
            let origin = self.jobs.len() as u64 + 1;
            self.jobs.push(Job { place: 0, origin, command });
        }
        fn op(&mut self, op: Op, operands: &[Operand], attrs: Attrs) {
            let out = self.define();
            self.push(Command::Op(Instruction {
                op,
                out,
                inputs: Inputs::from_slice(operands),
                last_use: 0,
                attrs,
                tf32: false,
            }));
        }
        /// Two tensors of numbers, and one for which there is no room.
        fn given(&mut self) {
            let create = |n| Attrs::Create { shape: Shape::new(&[n]).unwrap(), dtype: DType::F32 };
            let steps = [Operand::Scalar(Scalar::Float(-7.0)), Operand::Scalar(Scalar::Float(0.001))];
            self.op(Op::Arange, &steps, create(ELEMENTS));
            self.op(Op::Full, &[Operand::Scalar(Scalar::Float(0.3))], create(ELEMENTS));
            self.op(Op::Full, &[Operand::Scalar(Scalar::Float(0.3))], create(usize::MAX >> 16));
        }
        fn step(&mut self, (what, a, b): (u8, prop::sample::Index, prop::sample::Index)) {
            const PAIRS: [Op; 4] = [Op::Add, Op::Mul, Op::Sub, Op::Maximum];
            const SINGLES: [Op; 4] = [Op::Neg, Op::Sqrt, Op::Sin, Op::Relu];
            let [a, b] = [a, b].map(|at| self.live[at.index(self.live.len())]);
            match what {
                0..5 => self.op(PAIRS[what as usize % 4], &[Operand::Tensor(a), Operand::Tensor(b)], Attrs::None),
                5..8 => self.op(SINGLES[what as usize % 4], &[Operand::Tensor(a)], Attrs::None),
                8 => {
                    let half = Operand::Scalar(Scalar::Float(0.5));
                    self.op(Op::Add, &[Operand::Tensor(a), half], Attrs::None);
                }
                _ if self.live.len() > 1 => self.free(a),
                _ => {}
            }
        }
        fn free(&mut self, id: TensorId) {
            self.live.retain(|live| *live != id);
            self.vacant.push(id);
            let mut ids = [0; FREE_IDS_MAX];
            ids[0] = id;
            self.push(Command::Free { ids });
        }
    }

    fn core() -> (Core<CpuBackend>, Arena) {
        let mut core = Core::new(
            CpuBackend::new(CpuOptions { threads: 2, memory_bytes_limit: 64 << 20, ..CpuOptions::default() }),
            0,
        );
        let shared = Arc::new(StreamShared::new(Arc::new(MemoryUsage::new(1)), None));
        let (arena, _fd) = Arena::create(ELEMENTS as u64 * 4).unwrap();
        shared.add_arena(arena.clone());
        core.open(0, shared);
        (core, arena)
    }

    /// The bytes of a tensor, or why there are none.
    fn fetched(core: &mut Core<CpuBackend>, arena: &Arena, id: TensorId) -> Result<Vec<u8>, Failure> {
        let mut bytes = vec![0; ELEMENTS * 4];
        let to = ArenaRange { segment: 0, offset_bytes: 0, len_bytes: bytes.len() as u64 };
        core.run(0, 0, &Command::Fetch { token: 0, id, offset_bytes: 0, to }, None)?;
        arena.copy_in(0, &mut bytes).unwrap();
        Ok(bytes)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn looking_ahead_changes_no_bit_and_no_failure(
            steps in prop::collection::vec((0u8..14, any::<prop::sample::Index>(), any::<prop::sample::Index>()), 1..60),
            batch in 2usize..40,
        ) {
            let mut client = Client::default();
            client.given();
            steps.into_iter().for_each(|step| client.step(step));
            let ((mut one_by_one, arena), (mut ahead, other_arena)) = (core(), core());
            let plain: Vec<_> =
                client.jobs.iter().map(|job| one_by_one.run(0, job.origin, &job.command, None)).collect();
            let mut looked = Vec::new();
            for jobs in client.jobs.chunks(batch) {
                ahead.run_all(jobs, |result| looked.push(result));
            }
            prop_assert_eq!(plain, looked);
            for id in client.live {
                prop_assert!(fetched(&mut one_by_one, &arena, id) == fetched(&mut ahead, &other_arena, id), "{}", id);
            }
        }
    }

    /// The most that tensors held while `steps` ran on the numbers given, in tensors.
    fn peak(steps: impl FnOnce(&mut Client)) -> usize {
        let (mut core, _arena) = core();
        let mut client = Client::default();
        client.given();
        let made = client.jobs.len();
        steps(&mut client);
        core.run_all(&client.jobs[..made], |_| ());
        let before = core.backend().memory().used_bytes_peak;
        core.run_all(&client.jobs[made..], |result| assert_eq!(result, Ok(())));
        (core.backend().memory().used_bytes_peak - before) / (ELEMENTS * size_of::<f32>())
    }

    #[test]
    fn what_is_freed_in_what_was_looked_at_is_never_made() {
        let chain = |client: &mut Client| {
            let first = Operand::Tensor(client.live[0]);
            client.op(Op::Neg, &[first], Attrs::None);
            for _ in 0..5 {
                let last = client.live[client.live.len() - 1];
                client.op(Op::Sqrt, &[Operand::Tensor(last)], Attrs::None);
                client.free(last);
            }
        };
        assert_eq!(peak(chain), 1);
    }

    #[test]
    fn a_result_takes_the_memory_of_an_operand_that_is_freed_behind_it() {
        for op in [Op::Add, Op::Sqrt] {
            let step = |client: &mut Client| {
                let first = client.live[0];
                client.op(op, &[Operand::Tensor(first); 2][..op.row().operands as usize], Attrs::None);
                client.free(first);
            };
            // One tensor as two operands is not taken by a single instruction.
            assert_eq!(peak(step), (op == Op::Add) as usize);
        }
        let cumulative = |client: &mut Client| {
            let [a, b] = [client.live[0], client.live[1]].map(Operand::Tensor);
            client.op(Op::Add, &[a, b], Attrs::None);
            let sum = client.live[client.live.len() - 1];
            client.op(Op::Mul, &[Operand::Tensor(sum), a], Attrs::None);
            let freed = [client.live[0], client.live[1]];
            freed.into_iter().for_each(|id| client.free(id));
        };
        assert_eq!(peak(cumulative), 0);
    }
}
