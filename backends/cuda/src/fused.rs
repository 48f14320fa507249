//! Fusion: several elementwise instructions in one kernel, which reads each operand once and stores only the results
//! that are kept.
//!
//! Each program has a kernel of its own, compiled and cached; shapes and scalars are arguments. A program that occurs
//! once or twice is not worth compiling, and other threads compile the rest: meanwhile its instructions run one by one,
//! with the same results.

use crate::backend::CudaBackend;
use crate::checks::Checks;
use crate::elementwise::{ElementwiseSource, gives_memory, traversal_of};
use crate::error::Result;
use crate::kernels::Kernels;
use crate::program::{INPUTS_MAX, KEPT_MAX, OPERANDS_MAX, Program, ProgramStep, ProgramValue};
use crate::tensor::CudaTensor;
use gt_backend::{Input, Layout, Power, Stage, StageInput, computed_bits, execute_one_by_one, simple_power};
use gt_ops::{Class, DType, Op};

/// A program and its arguments.
#[derive(Default)]
struct FusionPlan<'a> {
    program: Program,
    sources: Vec<ElementwiseSource<'a>>,
    /// The inputs that each step depends on, as a bit mask.
    needs: Vec<u32>,
}

impl<'a> FusionPlan<'a> {
    /// The plan for stages; none if they are too many for one kernel, or do not fuse.
    fn of(stages: &[Stage<'a, CudaTensor>]) -> Option<FusionPlan<'a>> {
        let shape = stages.first()?.out.shape;
        let mut plan = FusionPlan::default();
        for (at, stage) in stages.iter().enumerate() {
            let dtype = operand_dtype(stages, stage)?;
            if stage.out.shape != shape || stage.inputs.len() > OPERANDS_MAX || !stage.op.row().fuses(dtype) {
                return None;
            }
            let (op, inputs) = simplified(stage, dtype);
            let mut operands = Vec::with_capacity(inputs.len());
            let mut needs = 0;
            for (i, feed) in inputs.iter().enumerate() {
                let dtype = if op.row().class == Class::Select && i == 0 { DType::Bool } else { dtype };
                let value = match *feed {
                    StageInput::Stage(earlier) => ProgramValue::Step(earlier),
                    StageInput::External(Input::Tensor(t)) => plan.tensor(t)?,
                    StageInput::External(Input::Scalar(number)) => {
                        plan.number(computed_bits(number, dtype, op.row()), dtype)?
                    }
                };
                needs |= match value {
                    ProgramValue::Step(earlier) => plan.needs[earlier],
                    ProgramValue::Input(i) => 1 << i,
                };
                operands.push(value);
            }
            plan.needs.push(needs);
            plan.program.steps.push(ProgramStep { op, dtype, out: stage.out.dtype, operands });
            if stage.kept {
                plan.program.kept.push(at);
            }
        }
        (plan.program.kept.len() <= KEPT_MAX).then_some(plan)
    }

    /// The number of the input that is this tensor.
    fn input_of(&self, t: &CudaTensor) -> Option<usize> {
        let is_it =
            |source: &ElementwiseSource<'_>| matches!(source, ElementwiseSource::Tensor(of) if std::ptr::eq(*of, t));
        self.sources.iter().position(is_it)
    }

    /// Whether a step depends on a tensor.
    fn reads(&self, step: usize, t: &CudaTensor) -> bool {
        self.input_of(t).is_some_and(|i| self.needs[step] >> i & 1 == 1)
    }

    fn tensor(&mut self, t: &'a CudaTensor) -> Option<ProgramValue> {
        match self.input_of(t) {
            Some(known) => Some(ProgramValue::Input(known)),
            None => self.input(ElementwiseSource::Tensor(t), t.meta.dtype),
        }
    }

    fn number(&mut self, bits: u64, dtype: DType) -> Option<ProgramValue> {
        let is_it =
            |source: &ElementwiseSource<'_>| matches!(source, ElementwiseSource::Number(known) if *known == bits);
        let inputs = self.sources.iter().zip(&self.program.inputs);
        match inputs.into_iter().position(|(source, known)| is_it(source) && *known == dtype) {
            Some(known) => Some(ProgramValue::Input(known)),
            None => self.input(ElementwiseSource::Number(bits), dtype),
        }
    }

    fn input(&mut self, source: ElementwiseSource<'a>, dtype: DType) -> Option<ProgramValue> {
        if self.sources.len() == INPUTS_MAX {
            return None;
        }
        self.sources.push(source);
        self.program.inputs.push(dtype);
        Some(ProgramValue::Input(self.sources.len() - 1))
    }
}

/// The dtype in which a stage computes: that of its tensor operands, for a selection that of the choices.
fn operand_dtype(stages: &[Stage<'_, CudaTensor>], stage: &Stage<'_, CudaTensor>) -> Option<DType> {
    if stage.op.row().class == Class::Select {
        return Some(stage.out.dtype);
    }
    stage.inputs.iter().find_map(|feed| match feed {
        StageInput::External(Input::Tensor(t)) => Some(t.meta.dtype),
        StageInput::External(Input::Scalar(_)) => None,
        StageInput::Stage(earlier) => stages.get(*earlier).map(|earlier| earlier.out.dtype),
    })
}

/// The stage's op and operands, with simple powers replaced as in the unfused op.
fn simplified<'a>(stage: &Stage<'a, CudaTensor>, dtype: DType) -> (Op, Vec<StageInput<'a, CudaTensor>>) {
    if let (Op::Pow, [base, StageInput::External(Input::Scalar(exponent))]) = (stage.op, &stage.inputs[..])
        && dtype.is_float()
    {
        match simple_power(*exponent) {
            // A cast to its own dtype copies.
            Some(Power::Same) => return (Op::Cast, vec![*base]),
            Some(Power::Square) => return (Op::Mul, vec![*base, *base]),
            Some(Power::Function(op)) => return (op, vec![*base]),
            None => {}
        }
    }
    (stage.op, stage.inputs.clone())
}

/// The operands whose last use is in the program.
fn given_up<'a>(stages: &[Stage<'a, CudaTensor>]) -> Vec<&'a CudaTensor> {
    let mut tensors: Vec<&CudaTensor> = Vec::new();
    for stage in stages.iter().filter(|stage| stage.last_use != 0) {
        for (i, feed) in stage.inputs.iter().enumerate() {
            if let StageInput::External(Input::Tensor(t)) = feed
                && stage.last_use >> i & 1 == 1
                && !tensors.iter().any(|known| std::ptr::eq(*known, *t))
            {
                tensors.push(t);
            }
        }
    }
    tensors
}

/// A stage of a shorter program, without last uses.
fn part<'a>(stage: &Stage<'a, CudaTensor>, kept: bool) -> Stage<'a, CudaTensor> {
    Stage { kept, last_use: 0, inputs: stage.inputs.clone(), ..*stage }
}

impl CudaBackend {
    /// See [`gt_backend::Backend::execute_fused`].
    pub(crate) fn fused(&mut self, stages: &[Stage<'_, CudaTensor>]) -> Result<Vec<Option<CudaTensor>>> {
        if stages.len() < 2 || stages[0].out.shape.numel() == 0 {
            return execute_one_by_one(self, stages);
        }
        let Some(plan) = FusionPlan::of(stages) else { return self.in_halves(stages) };
        if plan.program.kept.is_empty() {
            return Ok(vec![None; stages.len()]);
        }
        let walk = traversal_of(&plan.sources, &stages[0].out.shape, plan.program.lanes());
        let Some(kernel) = self.kernels.ready(&plan.program, walk)? else {
            return execute_one_by_one(self, stages);
        };
        let mut free = given_up(stages);
        let mut results = Vec::with_capacity(plan.program.kept.len());
        for &at in &plan.program.kept {
            let out = &stages[at].out;
            // Each thread reads all its inputs before it writes, so any result may reuse any operand's memory. It takes
            // that of an operand of its own, if it can: an optimizer's state then stays where it is, and its launches
            // recur.
            let gives = |own: bool| free.iter().position(|t| gives_memory(t, out) && (!own || plan.reads(at, t)));
            let mut result = match gives(true).or_else(|| gives(false)) {
                Some(i) => {
                    let t = free.swap_remove(i);
                    let layout = Layout { meta: *out, ..t.layout };
                    CudaTensor { buffer: t.buffer.clone(), layout, checks: Checks::default(), arrival: 0 }
                }
                None => self.new_tensor(out)?,
            };
            for (i, source) in plan.sources.iter().enumerate() {
                if let ElementwiseSource::Tensor(t) = source
                    && plan.needs[at] >> i & 1 == 1
                {
                    result.checks.join(&t.checks, self.progress.done());
                }
            }
            results.push(result);
        }
        let written: Vec<&CudaTensor> = results.iter().collect();
        let FusionPlan { program, sources, .. } = &plan;
        let kernel_of = |kernels: &mut Kernels, needed| match needed == walk {
            true => Ok(kernel),
            // A result in the memory of an operand is not aligned as new memory is.
            false => kernels.program(program, needed),
        };
        self.launch_program(kernel_of, || program.clone(), program.lanes(), sources, &written, None)?;
        let mut results = results.into_iter();
        Ok(stages.iter().map(|stage| if stage.kept { results.next() } else { None }).collect())
    }

    /// Runs a program that is too long for one kernel as two halves. Operands keep their memory, since the second half
    /// may run out of it and the caller then needs them unchanged.
    fn in_halves(&mut self, stages: &[Stage<'_, CudaTensor>]) -> Result<Vec<Option<CudaTensor>>> {
        if stages.len() < 2 {
            return execute_one_by_one(self, stages);
        }
        let (before, after) = stages.split_at(stages.len() / 2);
        let half = before.len();
        let reads = |at: usize| {
            let mut feeds = after.iter().flat_map(|stage| &stage.inputs);
            feeds.any(|feed| matches!(feed, StageInput::Stage(earlier) if *earlier == at))
        };
        let first: Vec<_> = before.iter().enumerate().map(|(at, s)| part(s, s.kept || reads(at))).collect();
        let mut made = self.fused(&first)?;
        let mut second: Vec<_> = after.iter().map(|stage| part(stage, stage.kept)).collect();
        for feed in second.iter_mut().flat_map(|stage| &mut stage.inputs) {
            if let StageInput::Stage(earlier) = feed {
                *feed = match made.get(*earlier) {
                    Some(Some(t)) => StageInput::External(Input::Tensor(t)),
                    _ => StageInput::Stage(*earlier - half),
                };
            }
        }
        let more = self.fused(&second)?;
        for (made, stage) in made.iter_mut().zip(before) {
            made.take_if(|_| !stage.kept);
        }
        made.extend(more);
        Ok(made)
    }

    /// Compiles each program at its first occurrence from here on.
    pub fn compile_programs_at_once(&mut self) {
        self.kernels.compile_programs_at_once();
    }

    /// Waits for the kernels of programs that other threads compile.
    pub fn await_compiled(&mut self) {
        self.kernels.await_compiled();
    }
}
