//! Random elementwise programs: a fused program gives the same bits as its instructions in turn.

use super::host::{Data, Host};
use super::suite::{LAYOUTS, OperandLayout, TestNumbers, download, laid_out, shape};
use crate::backend::{Backend, Input, Stage, StageInput, execute_one_by_one};
use gt_ops::infer::{InputMeta, infer};
use gt_ops::row::ROWS;
use gt_ops::{Attrs, Class, DType, Meta, Op, Row, Scalar};

/// How many random programs run.
const PROGRAMS: usize = if cfg!(miri) { 4 } else { 120 };
/// The most instructions of a program.
const STAGES_MAX: i64 = 14;

/// Shapes of results, each with the shapes that broadcast to it.
const SHAPES: [&[&[usize]]; 4] = [
    &[&[3, 5], &[5], &[3, 1], &[]],
    &[&[130, 70], &[70], &[130, 1], &[1, 1], &[]],
    &[&[7, 2, 501], &[2, 501], &[7, 1, 501], &[501], &[2, 1], &[1]],
    &[&[20_011], &[1], &[]],
];

/// An operand of a program.
#[derive(Clone, Copy)]
enum From {
    Made(usize),
    Given(usize),
    Number(Scalar),
}

struct Planned {
    op: Op,
    inputs: Vec<From>,
    attrs: Attrs,
    out: Meta,
    kept: bool,
    last_use: u8,
}

struct RandomProgram {
    given: Vec<(Host, OperandLayout)>,
    stages: Vec<Planned>,
}

impl TestNumbers {
    fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.whole(0, of.len() as i64 - 1) as usize]
    }
    fn chance(&mut self, p: f64) -> bool {
        self.unit() < p
    }

    /// An operand of `dtype`: an earlier result, a known or new external tensor, or a number.
    fn operand(&mut self, program: &mut RandomProgram, dtype: DType, shapes: &[&[usize]], whole: bool) -> From {
        let made: Vec<usize> = (0..program.stages.len()).filter(|i| program.stages[*i].out.dtype == dtype).collect();
        if !made.is_empty() && self.chance(0.6) {
            return From::Made(*self.pick(&made[made.len().saturating_sub(4)..]));
        }
        if !whole && self.chance(0.3) {
            return From::Number(Scalar::Float(*self.pick(&[1.0, 2.0, 0.5, -0.5, -1.0, 3.25, f64::NAN])));
        }
        let fits = |host: &Host| host.meta.dtype == dtype && (!whole || host.meta.shape == shape(shapes[0]));
        let known: Vec<usize> = (0..program.given.len()).filter(|i| fits(&program.given[*i].0)).collect();
        if !known.is_empty() && self.chance(0.4) {
            return From::Given(*self.pick(&known));
        }
        let dims = if whole || self.chance(0.5) { shapes[0] } else { *self.pick(shapes) };
        let mut host = self.host(Meta::new(shape(dims), dtype), (-3.0, 3.0), false);
        if let Data::Float(x) = &mut host.data
            && self.chance(0.3)
        {
            // Any position, so that both the vectorised part of a loop and its scalar tail meet special values.
            let at = self.whole(0, x.len() as i64 - 1) as usize;
            x[at] = *self.pick(&[super::host::round(dtype, 3e9), f64::INFINITY, f64::NAN, -0.0]);
        }
        program.given.push((host, *self.pick(&LAYOUTS)));
        From::Given(program.given.len() - 1)
    }

    fn program(&mut self) -> RandomProgram {
        let shapes = *self.pick(&SHAPES);
        let mut program = RandomProgram { given: Vec::new(), stages: Vec::new() };
        let wanted = self.whole(1, STAGES_MAX);
        while (program.stages.len() as i64) < wanted {
            let row: &Row = self.pick(ROWS);
            let accepted: Vec<DType> = row.accepts.iter().filter(|dtype| row.fuses(*dtype)).collect();
            // The sign of a NaN is unspecified (IEEE 754-2019, 6.3), and these tell it.
            if accepted.is_empty() || matches!(row.op, Op::Signbit | Op::Copysign) {
                continue;
            }
            // The dtype of the last result is the likeliest, so that programs form chains.
            let last = program.stages.last().map(|stage| stage.out.dtype).filter(|dtype| accepted.contains(dtype));
            let dtype = last.filter(|_| self.chance(0.8)).unwrap_or(*self.pick(&accepted));
            let attrs = match row.class {
                Class::Select => Attrs::DType(dtype),
                Class::Cast => Attrs::DType(*self.pick(&DType::STORED)),
                _ => Attrs::None,
            };
            let mut inputs = Vec::new();
            for i in 0..row.operands as usize {
                let dtype = if row.class == Class::Select && i == 0 { DType::Bool } else { dtype };
                inputs.push(self.operand(&mut program, dtype, shapes, i == 0));
            }
            let metas: Vec<InputMeta> = inputs
                .iter()
                .map(|from| match from {
                    From::Made(i) => InputMeta::Tensor(program.stages[*i].out),
                    From::Given(i) => InputMeta::Tensor(program.given[*i].0.meta),
                    From::Number(number) => InputMeta::Scalar(*number),
                })
                .collect();
            let out = infer(row.op, &metas, &attrs).unwrap_or_else(|e| panic!("{}: {e}", row.name));
            assert_eq!(out.shape, shape(shapes[0]));
            let kept = self.chance(0.3) || program.stages.len() as i64 + 1 == wanted;
            program.stages.push(Planned { op: row.op, inputs, attrs, out, kept, last_use: 0 });
        }
        for given in 0..program.given.len() {
            let reads = |from: &From| matches!(from, From::Given(i) if *i == given);
            let last = program.stages.iter_mut().rev().find(|stage| stage.inputs.iter().any(reads));
            if let Some(stage) = last.filter(|_| self.chance(0.6)) {
                (0..stage.inputs.len()).filter(|i| reads(&stage.inputs[*i])).for_each(|i| stage.last_use |= 1 << i);
            }
        }
        program
    }
}

fn results<B: Backend>(
    backend: &mut B,
    program: &RandomProgram,
    execute: impl FnOnce(&mut B, &[Stage<'_, B::Tensor>]) -> Vec<Option<B::Tensor>>,
) -> Vec<Option<Host>> {
    let given: Vec<B::Tensor> = program.given.iter().map(|(host, layout)| laid_out(backend, host, *layout)).collect();
    let stages: Vec<Stage<'_, B::Tensor>> = program
        .stages
        .iter()
        .map(|stage| {
            let feed = |from: &From| match from {
                From::Made(i) => StageInput::Stage(*i),
                From::Given(i) => StageInput::External(Input::Tensor(&given[*i])),
                From::Number(number) => StageInput::External(Input::Scalar(*number)),
            };
            let Planned { op, attrs, out, kept, last_use, inputs } = stage;
            let inputs = inputs.iter().map(feed).collect();
            Stage { op: *op, inputs, attrs, out: *out, kept: *kept, last_use: *last_use }
        })
        .collect();
    let made = execute(backend, &stages);
    made.into_iter().map(|tensor| tensor.map(|tensor| download(backend, &tensor))).collect()
}

/// The bits of each element; all NaNs are equal.
fn bits(host: &Host) -> Vec<u64> {
    let bit = |x: &f64| if x.is_nan() { f64::NAN.to_bits() } else { x.to_bits() };
    match &host.data {
        Data::Float(x) => x.iter().map(bit).collect(),
        Data::Int(x) => x.iter().map(|x| *x as u64).collect(),
    }
}

/// Compares random programs, fused, with their instructions one by one. Operands have any layout, may be broadcast, and
/// may be flagged as used for the last time.
pub fn programs<B: Backend>(backend: &mut B) {
    let mut numbers = TestNumbers::new();
    for number in 0..PROGRAMS {
        let program = numbers.program();
        let names: Vec<&str> = program.stages.iter().map(|stage| stage.op.name()).collect();
        let apart = results(backend, &program, |b, stages| execute_one_by_one(b, stages).expect("a program"));
        let fused = results(backend, &program, |b, stages| b.execute_fused(stages).expect("a program"));
        for (at, (fused, apart)) in fused.iter().zip(&apart).enumerate() {
            assert_eq!(fused.is_some(), program.stages[at].kept, "program {number}, {names:?}: stage {at}");
            if let (Some(fused), Some(apart)) = (fused, apart) {
                assert_eq!(fused.meta, apart.meta, "program {number}, {names:?}: stage {at}");
                let differs = bits(fused).iter().zip(&bits(apart)).position(|(a, b)| a != b);
                assert_eq!(differs, None, "program {number}, {names:?}: an element of stage {at} differs");
            }
        }
    }
}
