//! Products and quotients of complex numbers, whose parts are along the last axis: a fused program over the parts, and
//! a concatenation of the two results.

use crate::backend::CudaBackend;
use crate::error::Result;
use crate::tensor::CudaTensor;
use gt_backend::{ExecError, Input, Layout, Stage, StageInput};
use gt_ops::composed::complex::on_parts;
use gt_ops::graph::{Arg, Graph, Val};
use gt_ops::infer::{InputMeta, infer};
use gt_ops::{Attrs, Meta, Op, OpError, Shape};

/// A program under construction: the values are the four parts of the operands, and then the results of its steps.
struct ComplexProgram {
    metas: Vec<Meta>,
    steps: Vec<(Op, Vec<Arg>, Attrs)>,
}

impl Graph for ComplexProgram {
    fn emit(&mut self, op: Op, inputs: &[Arg], attrs: Attrs) -> gt_ops::error::Result<Val> {
        let operand = |arg: &Arg| match arg {
            Arg::Val(v) => InputMeta::Tensor(self.meta(*v)),
            Arg::Scalar(number) => InputMeta::Scalar(*number),
        };
        let operands: Vec<InputMeta> = inputs.iter().map(operand).collect();
        self.metas.push(infer(op, &operands, &attrs)?);
        self.steps.push((op, inputs.to_vec(), attrs));
        Ok(Val(self.metas.len() as u32 - 1))
    }
    fn meta(&self, v: Val) -> Meta {
        self.metas[v.0 as usize]
    }
    fn detach(&mut self, v: Val) -> gt_ops::error::Result<Val> {
        Ok(v)
    }
    fn next_random(&mut self) -> (u64, u64) {
        (0, 0)
    }
}

impl CudaBackend {
    /// See `Op::ComplexMul` and `Op::ComplexDiv`.
    pub(crate) fn complex(&mut self, op: Op, operands: [&CudaTensor; 2], out: &Meta) -> Result<CudaTensor> {
        let failed = |error: OpError| ExecError::internal(error.message);
        let (last, dims) = (out.shape.rank() - 1, out.shape.dims());
        let shape = Shape::new(&dims[..last]).map_err(failed)?;
        let part = |t: &CudaTensor, index: usize| {
            let offset_bytes = t.offset_bytes.wrapping_add_signed(t.strides[last] * index as isize);
            t.seen(t.layout.view(shape, offset_bytes, t.strides))
        };
        let [a, b] = operands;
        let parts = [part(a, 0), part(a, 1), part(b, 0), part(b, 1)];
        let mut program = ComplexProgram { metas: parts.iter().map(|part| part.meta).collect(), steps: Vec::new() };
        let results = on_parts(&mut program, op, [Val(0), Val(1)], [Val(2), Val(3)]).map_err(failed)?;
        let input = |arg: &Arg| match arg {
            Arg::Scalar(number) => StageInput::External(Input::Scalar(*number)),
            Arg::Val(Val(i)) => match parts.get(*i as usize) {
                Some(part) => StageInput::External(Input::Tensor(part)),
                None => StageInput::Stage(*i as usize - parts.len()),
            },
        };
        let metas = &program.metas[parts.len()..];
        let stages = program.steps.iter().zip(metas).enumerate().map(|(i, ((op, inputs, attrs), out))| Stage {
            op: *op,
            inputs: inputs.iter().map(input).collect(),
            attrs,
            out: *out,
            kept: results.contains(&Val((i + parts.len()) as u32)),
            last_use: 0,
        });
        let stages: Vec<_> = stages.collect();
        let mut made = self.fused(&stages)?;
        let column = Meta::new(out.shape.with_dim(last, 1), out.dtype);
        let mut halves = Vec::with_capacity(2);
        for Val(i) in results {
            let Some(half) = made[i as usize - parts.len()].take() else {
                return Err(ExecError::internal(format!("{} lost a part of its result", op.name())));
            };
            let layout = Layout { offset_bytes: half.offset_bytes, ..Layout::contiguous(column) };
            halves.push(half.seen(layout));
        }
        self.cat(&[Input::Tensor(&halves[0]), Input::Tensor(&halves[1])], last, out)
    }
}
