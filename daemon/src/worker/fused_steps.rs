//! Fused execution of queued steps: the instructions of a [fusion window](super::fusion_window) run as one program, and
//! results take the memory of operands that the next steps free.

use super::core::{Core, kept, put_made};
use super::exec_failure::{caught, failure};
use super::fusion_window::{FusionWindow, UNCONNECTED_MAX, is_fusible};
use super::session_tensors::SessionTensors;
use gt_backend::{Backend, Cancellation, ExecError, Input, Stage, StageInput};
use gt_ops::failure::Failure;
use gt_ops::infer::{InputMeta, infer};
use gt_ops::wire::Command;
use gt_ops::{Instruction, Meta, Operand, TensorId};

/// A queued step.
#[derive(Clone, Debug)]
pub struct Job {
    /// The slot of its session.
    pub slot: u32,
    /// The client's id of the result.
    pub origin: TensorId,
    /// The command.
    pub command: Command,
}

/// The first of some jobs and those after it that are fused with it.
struct Fusion<'a> {
    window: FusionWindow,
    stages: Vec<&'a Instruction>,
    /// The number of jobs: instructions and frees.
    jobs: usize,
    /// Whether a job was found that is not fused with the first: no later one is.
    ended: bool,
}

impl<'a> Fusion<'a> {
    fn new<B: Backend>(backend: &B, session: &SessionTensors<B::Tensor>, jobs: &'a [Job]) -> Fusion<'a> {
        let window = FusionWindow::new(backend.fused_bytes_min(), UNCONNECTED_MAX);
        let mut fusion = Fusion { window, stages: Vec::new(), jobs: 0, ended: true };
        let mut positions = Vec::new();
        for (position, job) in jobs.iter().enumerate() {
            match &job.command {
                _ if job.slot != jobs[0].slot => break,
                Command::Free { .. } => {}
                Command::Op(instruction) => match fusion.result(backend, session, instruction) {
                    Some(out) if fusion.window.push(instruction, out) => {
                        fusion.stages.push(instruction);
                        positions.push(position);
                    }
                    _ => break,
                },
                _ => break,
            }
            fusion.jobs = position + 1;
        }
        fusion.ended = fusion.jobs < jobs.len();
        // An instruction that shares nothing with the first is better executed by itself.
        if let Some(unconnected) = positions.get(fusion.window.connected()) {
            fusion.jobs = *unconnected;
            fusion.stages.truncate(fusion.window.connected());
        }
        fusion
    }

    /// The shape and dtype of an instruction's result, if the instruction can be fused.
    fn result<B: Backend>(
        &self,
        backend: &B,
        session: &SessionTensors<B::Tensor>,
        instruction: &Instruction,
    ) -> Option<Meta> {
        let mut metas = Vec::with_capacity(3);
        let mut dtype = None;
        for operand in instruction.inputs.as_slice() {
            metas.push(match operand {
                Operand::Scalar(number) => InputMeta::Scalar(*number),
                Operand::Tensor(id) => {
                    let meta = match self.window.stage_of(*id) {
                        Some(earlier) => self.window.out(earlier),
                        None => backend.meta(session.get(*id)?.as_ref().ok()?),
                    };
                    dtype = dtype.or(Some(meta.dtype));
                    InputMeta::Tensor(meta)
                }
            });
        }
        if is_fusible(instruction, dtype?) { infer(instruction.op, &metas, &instruction.attrs).ok() } else { None }
    }

    /// The program for the backend; none if an operand is missing or poisoned. No later step names a tensor in `freed`.
    fn program<'b, B: Backend>(
        &self,
        session: &'b SessionTensors<B::Tensor>,
        freed: &[TensorId],
    ) -> Option<Vec<Stage<'b, B::Tensor>>>
    where
        'a: 'b,
    {
        let mut program = Vec::with_capacity(self.stages.len());
        for (at, stage) in self.stages.iter().enumerate() {
            let Instruction { op, out, inputs, attrs, .. } = stage;
            let mut stage_inputs = Vec::with_capacity(3);
            let mut last_use = 0;
            for (i, operand) in inputs.as_slice().iter().enumerate() {
                stage_inputs.push(match operand {
                    Operand::Scalar(number) => StageInput::External(Input::Scalar(*number)),
                    Operand::Tensor(id) => match self.window.stage_of(*id) {
                        Some(earlier) => StageInput::Stage(earlier),
                        None => {
                            let read = self.stages[at + 1..].iter().any(|s| s.inputs.as_slice().contains(operand));
                            last_use |= ((freed.contains(id) && !read) as u8) << i;
                            StageInput::External(Input::Tensor(session.get(*id)?.as_ref().ok()?))
                        }
                    },
                });
            }
            let (kept, out) = (!freed.contains(out), self.window.out(at));
            program.push(Stage { op: *op, inputs: stage_inputs, attrs, out, kept, last_use });
        }
        Some(program)
    }
}

/// The tensors that `jobs` free, by frees or as the last to use them.
fn freed(jobs: &[Job]) -> Vec<TensorId> {
    let mut freed = Vec::new();
    for job in jobs {
        match &job.command {
            Command::Free { ids } => freed.extend(ids.iter().copied().filter(|id| *id != 0)),
            Command::Op(instruction) => freed.extend(instruction.last_used()),
            _ => {}
        }
    }
    freed
}

impl<B: Backend> Core<B> {
    /// Whether a step can gain from the steps behind it: by fusion, or by the memory of operands that they free.
    pub fn opens_window(&mut self, slot: u32, command: &Command) -> bool {
        let Command::Op(instruction) = command else { return false };
        let Some((backend, session)) = self.session(slot) else { return false };
        instruction.inputs.as_slice().iter().filter_map(Operand::tensor).any(|id| match session.get(id) {
            Some(Ok(tensor)) => backend.meta(tensor).bytes() >= backend.fused_bytes_min(),
            _ => false,
        })
    }

    /// Whether jobs behind `jobs` cannot join the window of the first.
    pub fn is_window_whole(&mut self, jobs: &[Job]) -> bool {
        let [first, rest @ ..] = jobs else { return true };
        let Some((backend, session)) = self.session(first.slot) else { return true };
        let fusion = Fusion::new(backend, session, jobs);
        // Frees behind an instruction that is fused with none tell which operands it may overwrite.
        fusion.ended && (fusion.stages.len() > 1 || rest.iter().any(|job| !matches!(job.command, Command::Free { .. })))
    }

    /// Executes all of `jobs` and calls `done` with the result of each, in order.
    pub fn run_all(&mut self, jobs: &[Job], mut done: impl FnMut(Result<(), Failure>)) {
        let mut rest = jobs;
        while let [first, ..] = rest {
            let count = if self.opens_window(first.slot, &first.command) {
                self.run_window(rest, &mut done)
            } else {
                done(self.run(first.slot, first.origin, &first.command, None));
                1
            };
            rest = &rest[count..];
        }
    }

    /// Executes the first of `jobs`, an instruction, and those that are fused with it. Calls `done` with the result of
    /// each, in order, and returns how many were executed.
    pub fn run_window(&mut self, jobs: &[Job], mut done: impl FnMut(Result<(), Failure>)) -> usize {
        let [first, rest @ ..] = jobs else { return 0 };
        if let Some(count) = self.run_fused(jobs, &mut done) {
            return count;
        }
        let followed =
            rest.iter().take_while(|job| job.slot == first.slot && matches!(job.command, Command::Free { .. }));
        let freed = freed(&rest[..followed.count()]);
        let mut command = first.command.clone();
        if let Command::Op(instruction) = &mut command {
            for (i, operand) in instruction.inputs.as_slice().iter().enumerate().take(8) {
                if operand.tensor().is_some_and(|id| freed.contains(&id)) {
                    instruction.last_use |= 1 << i;
                }
            }
        }
        done(self.run(first.slot, first.origin, &command, None));
        1
    }

    /// As [`Core::run_window`] if several instructions can be fused; otherwise executes nothing and returns `None`.
    fn run_fused(&mut self, jobs: &[Job], done: &mut impl FnMut(Result<(), Failure>)) -> Option<usize> {
        let first = jobs.first()?;
        let (backend, session) = self.session(first.slot).filter(|(_, s)| !s.shared.cancellation.covers_all())?;
        let fusion = Fusion::new(backend, session, jobs);
        if fusion.stages.len() < 2 {
            return None;
        }
        let jobs = &jobs[..fusion.jobs];
        let freed = freed(jobs);
        // Tensors that no stage reads are freed first, to make room for the results.
        let named = |id: TensorId| fusion.stages.iter().any(|s| s.inputs.as_slice().contains(&Operand::Tensor(id)));
        freed.iter().filter(|id| !named(**id)).for_each(|id| session.take(*id));
        let program = fusion.program::<B>(session, &freed)?;
        let (slot, origin, instructions) = (first.slot, first.origin, program.len());
        tracing::debug!(target: "gtd::compile", slot, origin, instructions, "fuses into one pass");
        backend.label(first.origin);
        // The whole program is cancelled with its last instruction, or not at all: an instruction that is not cancelled
        // never finds its operand half overwritten.
        let last = jobs.iter().filter(|job| matches!(job.command, Command::Op(_))).map(|job| job.origin).max();
        backend.cancelled_by(&session.shared.cancellation, last.unwrap_or(Cancellation::NEVER));
        let made = caught(|| backend.execute_fused(&program));
        let result = match made {
            Ok(made) => {
                freed.iter().for_each(|id| session.take(*id));
                for (stage, tensor) in fusion.stages.iter().zip(made) {
                    if let Some(tensor) = tensor {
                        session.put(stage.out, Ok(tensor));
                    }
                }
                Ok(())
            }
            // Executed one by one, the instructions may need less memory, and only those without room fail.
            Err(ExecError::OutOfMemory { .. }) => {
                for job in jobs {
                    done(self.run(job.slot, job.origin, &job.command, None));
                }
                return Some(jobs.len());
            }
            Err(error) => {
                let failure = failure(error, first.origin, Some(fusion.stages[0].op));
                // Each stage finds the elements that the stages before it have kept.
                for stage in &fusion.stages {
                    let kept = kept(backend, session, first.origin, stage, &failure);
                    put_made(session, first.origin, stage.out, Err(failure), kept);
                }
                freed.iter().for_each(|id| session.take(*id));
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
    use super::super::session_tensors::SessionShared;
    use super::*;
    use crate::table::WorkerTensor;
    use gt_backend::{FUSED_BYTES_MIN, MemoryUsage};
    use gt_cpu::{CpuBackend, CpuOptions};
    use gt_ops::wire::{ArenaRange, FREE_IDS_MAX};
    use gt_ops::{Attrs, DType, Inputs, Op, Scalar, Shape};
    use gt_shm::Arena;
    use proptest::prelude::*;
    use std::sync::Arc;

    /// The elements of a tensor that is just large enough to be fused.
    const ELEMENTS: usize = FUSED_BYTES_MIN / size_of::<f32>();

    /// Jobs on tensors whose ids are chosen as the dispatcher does: it reuses the ids of freed tensors first.
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
            self.jobs.push(Job { slot: 0, origin, command });
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
                replaces: None,
            }));
        }
        /// Makes two tensors of numbers, and one that does not fit in memory.
        fn create(&mut self) {
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
                // In place.
                2 if a != b => {
                    self.op(PAIRS[2], &[Operand::Tensor(a), Operand::Tensor(b)], Attrs::None);
                    if let Some(Job { command: Command::Op(instruction), .. }) = self.jobs.last_mut() {
                        (instruction.last_use, instruction.replaces) = (1, Some(0));
                    }
                    self.live.retain(|live| *live != a);
                    self.vacant.push(a);
                }
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
        let shared = Arc::new(SessionShared::new(Arc::new(MemoryUsage::new(1)), None));
        let (arena, _fd) = Arena::create(ELEMENTS as u64 * 4).unwrap();
        shared.add_arena(arena.clone());
        core.open(0, shared);
        (core, arena)
    }

    /// The bytes of a tensor, or the failure that poisoned it.
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
        fn fusion_changes_no_bit_and_no_failure(
            steps in prop::collection::vec((0u8..14, any::<prop::sample::Index>(), any::<prop::sample::Index>()), 1..60),
            batch in 2usize..40,
        ) {
            let mut client = Client::default();
            client.create();
            steps.into_iter().for_each(|step| client.step(step));
            let ((mut one_by_one, arena), (mut fused, other_arena)) = (core(), core());
            let plain: Vec<_> =
                client.jobs.iter().map(|job| one_by_one.run(0, job.origin, &job.command, None)).collect();
            let mut together = Vec::new();
            for jobs in client.jobs.chunks(batch) {
                fused.run_all(jobs, |result| together.push(result));
            }
            prop_assert_eq!(plain, together);
            for id in client.live {
                prop_assert!(fetched(&mut one_by_one, &arena, id) == fetched(&mut fused, &other_arena, id), "{}", id);
            }
        }
    }

    /// The peak of memory while `steps` run, in tensors.
    fn peak(steps: impl FnOnce(&mut Client)) -> usize {
        let (mut core, _arena) = core();
        let mut client = Client::default();
        client.create();
        let made = client.jobs.len();
        steps(&mut client);
        core.run_all(&client.jobs[..made], |_| ());
        let before = core.backend().memory().used_bytes_peak;
        core.run_all(&client.jobs[made..], |result| assert_eq!(result, Ok(())));
        (core.backend().memory().used_bytes_peak - before) / (ELEMENTS * size_of::<f32>())
    }

    #[test]
    fn a_result_that_is_freed_in_the_window_is_never_in_memory() {
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
            // A single instruction does not reuse the memory of a tensor that is two of its operands.
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
