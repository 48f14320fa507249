//! Elementwise instructions, selections and casts: programs of one step, listed in the catalogue.

use crate::backend::{CudaBackend, Inputs};
use crate::checks::Slot;
use crate::driver::{Args, Grid, KernelFunction};
use crate::error::{Result, failed};
use crate::graphs::gathered::ElementwiseLaunch;
use crate::kernels::Kernels;
use crate::launch::divider;
use crate::program::{self, INPUTS_MAX, KEPT_MAX, Program, THREADS, Traversal};
use crate::template::{KernelKey, Template};
use crate::tensor::CudaTensor;
use gt_backend::{ExecError, Input, Loops, Power, computed_bits, scalar_bits, simple_power};
use gt_ops::row::{ROWS, ResultDType};
use gt_ops::{Class, DType, Meta, Op, RANK_MAX, Row, Shape};

/// The most elements of a launch with strided operands, so that indices fit into 32 bits; larger results take several
/// launches.
const WALKED_MAX: usize = 1 << 31;
/// A result may reuse an operand's memory if that has at most this many times the needed size.
const IN_PLACE_WASTE_MAX: usize = 2;

static ELEMENTWISE: Template = Template {
    name: "elementwise",
    includes: &["elementwise.cuh"],
    code: |key| match (key.op, key.dtypes[0], variant(key)) {
        (Some(op), Some(dtype), Some((out, walk))) => Program::single(op, dtype, out).code(&key.name(), walk),
        _ => String::new(),
    },
    catalogue,
};

/// The templates of this file.
pub(crate) static TEMPLATES: &[&Template] = &[&ELEMENTWISE];

/// Whether the kernel reads an operand by 16 bytes.
pub(crate) fn by_16_bytes(key: &KernelKey) -> bool {
    let (Some(op), Some(dtype), Some((out, Traversal::Straight))) = (key.op, key.dtypes[0], variant(key)) else {
        return false;
    };
    // Integers are finite, and u8 has no sign: the result is known without the operand.
    let is_known = match op {
        Op::Isnan | Op::Isinf | Op::Isfinite => !dtype.is_float(),
        Op::Signbit => dtype == DType::U8,
        _ => false,
    };
    let bytes = program::lanes(op, dtype, dtype.size().max(out.size())) * dtype.size();
    *key.template == ELEMENTWISE && !is_known && bytes == 16
}

/// The key of the kernel for `op` on `dtype` with results of `out`.
fn key(op: Op, dtype: DType, out: DType, walk: Traversal) -> KernelKey {
    KernelKey::new(&ELEMENTWISE, Some(op), Some(dtype), (out as u32) << 8 | walk as u32)
}

/// The result's dtype and the traversal that a key encodes.
fn variant(key: &KernelKey) -> Option<(DType, Traversal)> {
    let walk = Traversal::ALL.into_iter().find(|walk| *walk as u32 == key.variant & 0xff)?;
    Some((DType::from_code((key.variant >> 8) as u8)?, walk))
}

fn catalogue() -> Vec<KernelKey> {
    let mut keys = Vec::new();
    for row in ROWS.iter().filter(|row| matches!(row.class, Class::Elementwise | Class::Select | Class::Cast)) {
        for dtype in row.accepts.iter() {
            for out in DType::STORED {
                let makes = match (row.class, row.result) {
                    (Class::Cast, _) => out != dtype,
                    (_, ResultDType::Bool) => out == DType::Bool,
                    _ => out == dtype,
                };
                if makes {
                    let one = program::lanes(row.op, dtype, dtype.size().max(out.size())) == 1;
                    // The kernel for several is compiled where launches follow each other, as a program's.
                    let is_listed = |walk: &Traversal| match walk {
                        Traversal::Straight | Traversal::Single => true,
                        Traversal::Rows => !one,
                        Traversal::Gathered => false,
                    };
                    let walks = Traversal::ALL.into_iter().filter(is_listed);
                    keys.extend(walks.map(|walk| key(row.op, dtype, out, walk)));
                }
            }
        }
    }
    keys
}

/// An operand of a program.
#[derive(Clone, Copy)]
pub(crate) enum ElementwiseSource<'a> {
    /// A tensor of the program's shape, or broadcast to it.
    Tensor(&'a CudaTensor),
    /// The bits of a scalar, in the type that kernels compute its dtype in.
    Number(u64),
}

impl ElementwiseSource<'_> {
    fn is_one(&self) -> bool {
        match self {
            ElementwiseSource::Tensor(t) => t.numel() == 1,
            ElementwiseSource::Number(_) => true,
        }
    }
}

/// Whether the elements of `t` can be loaded and stored as vectors of `lanes`.
fn is_aligned(t: &CudaTensor, lanes: usize) -> bool {
    t.ptr().is_multiple_of((lanes * t.size()) as u64)
}

/// Whether a result of `out` may reuse the memory of `t`, if `t` is not needed any more.
pub(crate) fn gives_memory(t: &CudaTensor, out: &Meta) -> bool {
    t.contiguous
        && t.meta.shape == out.shape
        && t.size() == out.dtype.size()
        && t.is_sole_owner()
        && t.buffer.capacity_bytes() <= IN_PLACE_WASTE_MAX * out.bytes().max(crate::memory::ALIGN_BYTES)
}

impl CudaBackend {
    /// An op of class elementwise.
    pub(crate) fn elementwise(
        &mut self,
        row: &Row,
        inputs: Inputs<'_, '_>,
        out: &Meta,
        last_use: u8,
    ) -> Result<CudaTensor> {
        let dtype = match inputs {
            [Input::Tensor(t), ..] | [_, Input::Tensor(t), ..] | [_, _, Input::Tensor(t)] => t.meta.dtype,
            _ => return Err(ExecError::internal(format!("{} of no tensor", row.name))),
        };
        if let (true, Some(Input::Scalar(divisor))) = (row.divisor_nonzero && !dtype.is_float(), inputs.get(1))
            && scalar_bits(*divisor, dtype) == 0
            && out.shape.numel() > 0
        {
            return Err(ExecError::ZeroDivision);
        }
        if let (Op::Pow, [Input::Tensor(base), Input::Scalar(exponent)]) = (row.op, inputs)
            && dtype.is_float()
        {
            match simple_power(*exponent) {
                Some(Power::Same) => return Ok((*base).clone()),
                Some(Power::Square) => return self.map(Op::Mul, &[inputs[0]; 2], [dtype; 3], out, last_use & 1),
                Some(Power::Function(op)) => return self.map(op, &inputs[..1], [dtype; 3], out, last_use & 1),
                None => {}
            }
        }
        self.map(row.op, inputs, [dtype; 3], out, last_use)
    }

    /// The op `where`.
    pub(crate) fn select(&mut self, inputs: Inputs<'_, '_>, out: &Meta, last_use: u8) -> Result<CudaTensor> {
        self.map(Op::Where, inputs, [DType::Bool, out.dtype, out.dtype], out, last_use)
    }

    /// The op `cast`.
    pub(crate) fn cast(&mut self, t: &CudaTensor, out: &Meta, last_use: u8) -> Result<CudaTensor> {
        if t.meta.dtype == out.dtype {
            return Ok(t.clone());
        }
        self.map(Op::Cast, &[Input::Tensor(t)], [t.meta.dtype; 3], out, last_use)
    }

    /// Computes a program of one step on operands of these dtypes.
    fn map(
        &mut self,
        op: Op,
        inputs: Inputs<'_, '_>,
        dtypes: [DType; 3],
        out: &Meta,
        last_use: u8,
    ) -> Result<CudaTensor> {
        let row = op.row();
        let given_up = inputs.iter().enumerate().find_map(|(i, input)| match input {
            Input::Tensor(t) if last_use >> i & 1 == 1 && gives_memory(t, out) => Some(*t),
            _ => None,
        });
        let mut result = match given_up {
            Some(t) => CudaTensor { layout: gt_backend::Layout { meta: *out, ..t.layout }, ..t.clone() },
            None => self.new_tensor(out)?,
        };
        if out.shape.numel() == 0 {
            return Ok(result);
        }
        let mut sources = [ElementwiseSource::Number(0); 3];
        for (i, input) in inputs.iter().enumerate() {
            sources[i] = match input {
                Input::Tensor(t) => ElementwiseSource::Tensor(t),
                Input::Scalar(number) => ElementwiseSource::Number(computed_bits(*number, dtypes[i], row)),
            };
        }
        // The choices of a selection, not its condition, give the dtype.
        let dtype = dtypes[inputs.len() - 1];
        let slot = match row.divisor_nonzero && !dtype.is_float() {
            true => Some(self.check(op, &mut result)?),
            false => None,
        };
        let lanes = program::lanes(op, dtype, dtype.size().max(out.dtype.size()));
        let function = |kernels: &mut Kernels, walk| kernels.get(&key(op, dtype, out.dtype, walk));
        let program = || Program::single(op, dtype, out.dtype);
        self.launch_program(function, program, lanes, &sources[..inputs.len()], &[&result], slot)?;
        Ok(result)
    }

    /// Launches a program's kernel, `lanes` elements a thread, on tensors and scalars. The results have one shape and
    /// at least one element; each is new memory, or has the memory and layout of an operand of its shape.
    pub(crate) fn launch_program(
        &mut self,
        function: impl Fn(&mut Kernels, Traversal) -> Result<KernelFunction>,
        program: impl FnOnce() -> Program,
        lanes: usize,
        sources: &[ElementwiseSource<'_>],
        results: &[&CudaTensor],
        slot: Option<Slot>,
    ) -> Result<()> {
        let Some(shape) = results.first().map(|result| result.meta.shape) else { return Ok(()) };
        let is_one = |(i, source): (usize, &ElementwiseSource<'_>)| u32::from(source.is_one()) << i;
        let ones = sources.iter().enumerate().map(is_one).fold(0, |all, one| all | one);
        let aligned = results.iter().all(|result| is_aligned(result, lanes));
        let elements = shape.numel();
        let arguments = |args: &mut Args, offsets: &[isize; INPUTS_MAX], first: usize| {
            for (source, offset) in sources.iter().zip(offsets) {
                match source {
                    ElementwiseSource::Tensor(t) => args.push([t.ptr().wrapping_add_signed(*offset as i64), 0]),
                    ElementwiseSource::Number(bits) => args.push([0, *bits]),
                };
            }
            for result in results {
                args.push(result.ptr() + (first * result.size()) as u64);
            }
            if let Some(Slot(place)) = slot {
                args.push(place);
            }
            args.push(ones);
        };
        if aligned && is_straight(sources, &shape, lanes) {
            let function = function(&mut self.kernels, Traversal::Straight)?;
            let blocks = grid(elements / lanes + elements % lanes);
            if slot.is_none() {
                // SAFETY: the function is the program's, and operands and results have `elements` elements.
                return unsafe { self.launch_straight(function, program, sources, results, ones, blocks) };
            }
            let mut args = Args::new();
            arguments(&mut args, &[0; INPUTS_MAX], 0);
            args.push(elements as u64);
            // SAFETY: the arguments match the program's kernel, and operands and results have `elements` elements.
            return unsafe { self.launch(function, blocks, &args) };
        }
        let loops = loops_of(sources, &shape);
        let walk = if aligned { by_rows(&loops, lanes) } else { Traversal::Single };
        let lanes = if walk == Traversal::Rows { lanes } else { 1 };
        let function = function(&mut self.kernels, walk)?;
        // Each launch computes a slice along the outermost axis.
        let outer = loops.sizes()[0];
        let each = elements / outer;
        let step = (WALKED_MAX / each).max(1).min(outer).next_multiple_of(lanes);
        for first in (0..outer).step_by(step) {
            let count = step.min(outer - first);
            let mut args = Args::new();
            arguments(&mut args, &loops.strides()[0].map(|stride| stride * first as isize), first * each);
            args.push((count * each) as u64);
            push_axes(&mut args, &loops, count, lanes, sources);
            // SAFETY: the arguments match the program's kernel, and each slice lies inside the operands and results.
            unsafe { self.launch(function, grid(count * each / lanes), &args)? };
        }
        Ok(())
    }
}

impl CudaBackend {
    /// Launches a program's kernel of [`Traversal::Straight`], which reports no errors, by itself or with others.
    ///
    /// # Safety
    /// The kernel is that of the program, and operands and results are as it takes them.
    unsafe fn launch_straight(
        &mut self,
        kernel: KernelFunction,
        program: impl FnOnce() -> Program,
        sources: &[ElementwiseSource<'_>],
        results: &[&CudaTensor],
        ones: u32,
        grid: Grid,
    ) -> Result<()> {
        const COLUMNS_MAX: usize = INPUTS_MAX + KEPT_MAX;
        let (mut columns, mut bytes, mut scalars) = ([0; COLUMNS_MAX], [0; COLUMNS_MAX], 0);
        for (i, source) in sources.iter().enumerate() {
            (columns[i], bytes[i]) = match source {
                ElementwiseSource::Tensor(t) => (t.ptr(), t.meta.bytes() as u64),
                ElementwiseSource::Number(bits) => (*bits, 0),
            };
            scalars |= u32::from(matches!(source, ElementwiseSource::Number(_))) << i;
        }
        let inputs = sources.len();
        for (i, result) in results.iter().enumerate() {
            (columns[inputs + i], bytes[inputs + i]) = (result.ptr(), result.meta.bytes() as u64);
        }
        let used = inputs + results.len();
        let launch = ElementwiseLaunch {
            kernel,
            inputs,
            columns: &columns[..used],
            bytes: &bytes[..used],
            masks: ones | scalars << INPUTS_MAX,
            count: results.first().map_or(0, |result| result.numel() as u64),
            blocks: grid.blocks[0],
        };
        let several = self.kernels.several(kernel);
        // SAFETY: the arguments match the program's kernels, by the contract of this method.
        let repeated = unsafe { self.launches.elementwise(&launch, several) }.map_err(failed)?;
        if repeated && several.is_none() {
            self.kernels.repeated(kernel, &program());
        }
        Ok(())
    }
}

/// Whether a kernel can traverse the operands linearly.
fn is_straight(sources: &[ElementwiseSource<'_>], shape: &Shape, lanes: usize) -> bool {
    sources.iter().all(|source| match source {
        ElementwiseSource::Tensor(t) if !source.is_one() => {
            t.contiguous && t.meta.shape == *shape && is_aligned(t, lanes)
        }
        _ => true,
    })
}

fn loops_of(sources: &[ElementwiseSource<'_>], shape: &Shape) -> Loops<INPUTS_MAX> {
    let strides: [[isize; RANK_MAX]; INPUTS_MAX] = std::array::from_fn(|i| match sources.get(i) {
        Some(ElementwiseSource::Tensor(t)) if t.numel() != 1 => t.broadcast_strides(shape),
        _ => [0; RANK_MAX],
    });
    Loops::new(shape, strides.each_ref())
}

fn by_rows(loops: &Loops<INPUTS_MAX>, lanes: usize) -> Traversal {
    if lanes > 1 && loops.inner().is_multiple_of(lanes) { Traversal::Rows } else { Traversal::Single }
}

/// How a kernel traverses operands, if the results lie in new memory.
pub(crate) fn traversal_of(sources: &[ElementwiseSource<'_>], shape: &Shape, lanes: usize) -> Traversal {
    if is_straight(sources, shape, lanes) { Traversal::Straight } else { by_rows(&loops_of(sources, shape), lanes) }
}

/// A grid with one thread for each item.
fn grid(items: usize) -> Grid {
    Grid::new(items.div_ceil(THREADS as usize) as u32, THREADS)
}

/// Pushes `struct Axes` and `struct Strides` of `elementwise.cuh`, for `count` indices along the outermost axis.
fn push_axes(
    args: &mut Args,
    loops: &Loops<INPUTS_MAX>,
    count: usize,
    lanes: usize,
    sources: &[ElementwiseSource<'_>],
) {
    let rank = loops.sizes().len();
    let inputs = sources.len();
    let mut axes = [0u32; 1 + 3 * RANK_MAX];
    let mut strides = [0i64; (RANK_MAX + 1) * INPUTS_MAX];
    axes[0] = rank as u32;
    for (axis, (&size, bytes)) in loops.sizes().iter().zip(loops.strides()).enumerate() {
        let innermost = axis + 1 == rank;
        let size = if axis == 0 { count } else { size };
        let size = if innermost { size / lanes } else { size };
        let (multiplier, shift) = divider(size as u32);
        let place = rank - 1 - axis;
        axes[1 + place] = size as u32;
        axes[1 + RANK_MAX + place] = multiplier;
        axes[1 + 2 * RANK_MAX + place] = shift;
        for (i, source) in sources.iter().enumerate() {
            let ElementwiseSource::Tensor(t) = source else { continue };
            let elements = bytes[i] as i64 / t.size() as i64;
            strides[place * inputs + i] = if innermost { elements * lanes as i64 } else { elements };
            if innermost {
                strides[RANK_MAX * inputs + i] = elements;
            }
        }
    }
    args.push(axes).push_all(&strides[..(RANK_MAX + 1) * inputs]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_catalogue_names_each_kernel_once() {
        let mut names: Vec<String> = catalogue().iter().map(KernelKey::name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
