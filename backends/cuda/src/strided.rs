//! Copies between layouts, and the ops that only copy.

use crate::backend::{CudaBackend, Inputs};
use crate::driver::{Args, DevicePtr, Grid};
use crate::error::{Result, failed};
use crate::launch::{Divider, THREADS, Walk};
use crate::template::{KernelKey, Template};
use crate::tensor::CudaTensor;
use gt_backend::{ExecError, Input, Loops};
use gt_ops::instruction::SliceSpec;
use gt_ops::{Meta, RANK_MAX, Shape};

/// The most bytes that a thread copies at once.
const UNIT_BYTES_MAX: usize = 16;
/// The shortest axes that are transposed by tiles.
const TILED_MIN: usize = 8;
/// The most blocks of a transposition; each takes several tiles if there are more.
const TILED_BLOCKS_MAX: usize = 1 << 20;
/// The most operands of a launch of `CONCATENATE`.
const PARTS_MAX: usize = 64;

/// Copies units of a given number of bytes.
static COPY: Template = Template {
    name: "copy",
    includes: &["move.cuh"],
    code: |key| {
        let (name, unit) = (key.name(), unit_name(key.variant));
        format!(
            "GT_KERNEL(256) {name}({unit}* to, const {unit}* from, i64 count, Walk<2> walk) {{
    copy(to, from, count, walk);
}}"
        )
    },
    catalogue: || [1, 2, 4, 8, 16].map(|bytes| of_bytes(&COPY, bytes)).to_vec(),
};

/// Transposes elements of a given number of bytes, by tiles.
static TRANSPOSE: Template = Template {
    name: "transpose",
    includes: &["move.cuh"],
    code: |key| {
        let (name, unit) = (key.name(), unit_name(key.variant));
        format!(
            "GT_KERNEL(256) {name}({unit}* to, const {unit}* from, i64 width, i64 height, i64 to_step, i64 from_step, \
             i64 batches, Walk<2> batch) {{
    transpose(to, from, width, height, to_step, from_step, batches, batch);
}}"
        )
    },
    catalogue: || [1, 2, 4, 8].map(|bytes| of_bytes(&TRANSPOSE, bytes)).to_vec(),
};

/// Copies units of several operands side by side.
static CONCATENATE: Template = Template {
    name: "concatenate",
    includes: &["move.cuh"],
    code: |key| {
        let (name, unit) = (key.name(), unit_name(key.variant));
        format!(
            "GT_KERNEL(256) {name}({unit}* to, i64 count, i64 pitch, Divider width, i64 parts, \
             Parts<{PARTS_MAX}> operands) {{
    concatenate(to, count, pitch, width, int(parts), operands);
}}"
        )
    },
    catalogue: || [1, 2, 4, 8, 16].map(|bytes| of_bytes(&CONCATENATE, bytes)).to_vec(),
};

/// The templates of this file.
pub(crate) static TEMPLATES: &[&Template] = &[&COPY, &TRANSPOSE, &CONCATENATE];

fn of_bytes(template: &'static Template, bytes: usize) -> KernelKey {
    KernelKey::new(template, None, None, bytes as u32)
}

/// The C type of a unit of this many bytes.
pub(crate) fn unit_name(bytes: u32) -> String {
    format!("u{}", 8 * bytes)
}

/// The largest unit, at most 16 bytes, that divides all of these.
pub(crate) fn unit_bytes(all: impl Iterator<Item = u64>) -> usize {
    let bits = all.fold(UNIT_BYTES_MAX as u64, |bits, x| bits | x);
    1 << bits.trailing_zeros()
}

/// The loops of a copy in the order of the destination, whose strides become positive and fall towards the innermost
/// axis; and the byte offset at which the loops begin in each operand.
fn destination_first(
    shape: &Shape,
    to: &[isize; RANK_MAX],
    from: &[isize; RANK_MAX],
) -> Result<(Loops<2>, [isize; 2])> {
    let mut axes: Vec<(usize, isize, isize)> = (0..shape.rank())
        .map(|axis| (shape.dims()[axis], to[axis], from[axis]))
        .filter(|(size, ..)| *size > 1)
        .collect();
    let mut begin = [0; 2];
    for (size, to, from) in axes.iter_mut().filter(|(_, to, _)| *to < 0) {
        begin[0] += (*size as isize - 1) * *to;
        begin[1] += (*size as isize - 1) * *from;
        (*to, *from) = (-*to, -*from);
    }
    axes.sort_by_key(|(_, to, _)| std::cmp::Reverse(*to));
    let (mut dims, mut strides) = ([1; RANK_MAX], [[0; RANK_MAX]; 2]);
    for (axis, (size, to, from)) in axes.iter().enumerate() {
        dims[axis] = *size;
        strides[0][axis] = *to;
        strides[1][axis] = *from;
    }
    let shape = Shape::new(&dims[..axes.len()]).map_err(|error| ExecError::internal(error.to_string()))?;
    Ok((Loops::new(&shape, strides.each_ref()), begin))
}

impl CudaBackend {
    /// Copies the elements of one tensor into another of the same shape and dtype that shares no memory with it.
    pub(crate) fn copy(&mut self, to: &CudaTensor, from: &CudaTensor) -> Result<()> {
        let elements = to.numel();
        if elements == 0 {
            return Ok(());
        }
        let size = to.size();
        let (loops, begin) = destination_first(&to.meta.shape, &to.strides, &from.strides)?;
        let to = to.ptr().wrapping_add_signed(begin[0] as i64);
        let from = from.ptr().wrapping_add_signed(begin[1] as i64);
        let last = loops.sizes().len() - 1;
        let dense = |stride: isize| stride == size as isize;
        let [to_step, from_step] = loops.inner_strides();
        if loops.inner() == 1 || dense(to_step) && dense(from_step) {
            if last == 0 {
                // SAFETY: both tensors have `elements * size` contiguous bytes, and they share no memory.
                return unsafe { self.driver.copy(to, from, elements * size, self.stream) }.map_err(failed);
            }
            let outer = loops.strides()[..last].iter().flatten().map(|stride| *stride as u64);
            let unit = unit_bytes([to, from, (loops.inner() * size) as u64].into_iter().chain(outer));
            return self.copy_units(to, from, &loops, unit, size);
        }
        let column = loops.strides().iter().position(|[_, stride]| dense(*stride));
        match column {
            Some(column) if dense(to_step) && loops.inner().min(loops.sizes()[column]) >= TILED_MIN => {
                self.transpose(to, from, &loops, column, size)
            }
            _ => self.copy_units(to, from, &loops, size, size),
        }
    }

    fn copy_units(&mut self, to: DevicePtr, from: DevicePtr, loops: &Loops<2>, unit: usize, size: usize) -> Result<()> {
        let lanes = unit / size;
        let function = self.kernels.get(&of_bytes(&COPY, unit))?;
        let count = loops.numel() / lanes;
        let mut args = Args::new();
        args.push(to).push(from).push(count as i64).push(Walk::by(loops, lanes, [unit; 2]));
        // SAFETY: the arguments match `copy`, and both layouts lie in their tensors.
        unsafe { self.launch(function, self.grid_stride(count), &args) }
    }

    /// A copy whose axis `column` is contiguous in the source, as the innermost one is in the destination.
    fn transpose(
        &mut self,
        to: DevicePtr,
        from: DevicePtr,
        loops: &Loops<2>,
        column: usize,
        size: usize,
    ) -> Result<()> {
        let (width, height) = (loops.inner(), loops.sizes()[column]);
        let in_elements = |bytes: isize| bytes as i64 / size as i64;
        let (to_step, from_step) = (loops.strides()[column][0], loops.inner_strides()[1]);
        let batch = loops.without(loops.sizes().len() - 1).without(column);
        let tile = if size < 4 { 64 } else { 32 };
        let tiles = width.div_ceil(tile) * height.div_ceil(tile) * batch.numel();
        let function = self.kernels.get(&of_bytes(&TRANSPOSE, size))?;
        let mut args = Args::new();
        args.push(to).push(from).push(width as i64).push(height as i64);
        args.push(in_elements(to_step)).push(in_elements(from_step));
        args.push(batch.numel() as i64).push(Walk::new(&batch, [size; 2]));
        let grid = Grid::new(tiles.min(TILED_BLOCKS_MAX) as u32, THREADS);
        // SAFETY: the arguments match `transpose`, and both layouts lie in their tensors.
        unsafe { self.launch(function, grid, &args) }
    }

    /// The tensor itself if it is contiguous, otherwise a contiguous copy.
    pub(crate) fn contiguous(&mut self, t: &CudaTensor) -> Result<CudaTensor> {
        if t.contiguous {
            return Ok(t.clone());
        }
        let mut out = self.new_tensor(&t.meta)?;
        self.copy(&out, t)?;
        out.checks = t.checks.clone();
        Ok(out)
    }

    /// An unshared tensor of `t`'s elements: `t` itself if the caller gave it up, otherwise a copy.
    pub(crate) fn private_copy(&mut self, t: &CudaTensor, given_up: bool) -> Result<CudaTensor> {
        if given_up && t.contiguous && t.is_sole_owner() {
            return Ok(t.clone());
        }
        let mut out = self.new_tensor(&t.meta)?;
        self.copy(&out, t)?;
        out.checks = t.checks.clone();
        Ok(out)
    }

    /// A copy of `base` with a strided slice replaced by `source`.
    pub(crate) fn slice_scatter(
        &mut self,
        base: &CudaTensor,
        source: &CudaTensor,
        spec: &SliceSpec,
        last_use: u8,
    ) -> Result<CudaTensor> {
        let given_up = last_use & 1 == 1;
        let out = if spec.sizes == base.meta.shape && !(given_up && base.contiguous && base.is_sole_owner()) {
            // Every element is written.
            self.new_tensor(&base.meta)?
        } else {
            self.private_copy(base, given_up)?
        };
        self.copy(&out.seen(out.boxed(spec)), source)?;
        Ok(out)
    }

    /// The op `cat`: tensors side by side along an axis.
    pub(crate) fn cat(&mut self, inputs: Inputs<'_, '_>, axis: usize, out: &Meta) -> Result<CudaTensor> {
        let result = self.new_tensor(out)?;
        if out.shape.numel() == 0 {
            return Ok(result);
        }
        let pitch_bytes: usize = out.shape.dims()[axis..].iter().product::<usize>() * result.size();
        let rows = out.bytes() / pitch_bytes;
        // Consecutive contiguous operands that one launch copies, and the first one's offset in a row of the result.
        let (mut run, mut begin_bytes, mut at_bytes) = (Vec::with_capacity(inputs.len()), 0, 0);
        for input in inputs {
            let Input::Tensor(t) = input else { return Err(ExecError::internal("a number where a tensor belongs")) };
            if t.numel() == 0 {
                continue;
            }
            let row_bytes = t.meta.bytes() / rows;
            if !t.contiguous {
                self.concatenate(&run, result.ptr() + begin_bytes as u64, rows, pitch_bytes)?;
                run.clear();
                let mut place = result.seen(result.layout);
                place.layout.offset_bytes += at_bytes;
                place.layout.meta = t.meta;
                self.copy(&place, t)?;
                begin_bytes = at_bytes + row_bytes;
            } else {
                run.push((t.ptr(), row_bytes));
            }
            at_bytes += row_bytes;
            if run.len() == PARTS_MAX {
                self.concatenate(&run, result.ptr() + begin_bytes as u64, rows, pitch_bytes)?;
                run.clear();
                begin_bytes = at_bytes;
            }
        }
        self.concatenate(&run, result.ptr() + begin_bytes as u64, rows, pitch_bytes)?;
        Ok(result)
    }

    /// Copies the rows of each operand, of this many bytes, side by side into rows that are `pitch_bytes` apart.
    fn concatenate(
        &mut self,
        run: &[(DevicePtr, usize)],
        to: DevicePtr,
        rows: usize,
        pitch_bytes: usize,
    ) -> Result<()> {
        if run.is_empty() {
            return Ok(());
        }
        let all = run.iter().flat_map(|(from, bytes)| [*from, *bytes as u64]);
        let unit = unit_bytes([to, pitch_bytes as u64].into_iter().chain(all));
        let (mut from, mut ends, mut width) = ([0u64; PARTS_MAX], [0i64; PARTS_MAX], 0);
        for (i, (start, bytes)) in run.iter().enumerate() {
            width += bytes / unit;
            from[i] = *start;
            ends[i] = width as i64;
        }
        let count = rows * width;
        let function = self.kernels.get(&of_bytes(&CONCATENATE, unit))?;
        let mut args = Args::new();
        args.push(to).push(count as i64).push((pitch_bytes / unit) as i64).push(Divider::new(width, count));
        args.push(run.len() as i64).push([from, ends.map(|end| end as u64)]);
        // SAFETY: the arguments match `concatenate`, and the operands' rows fill those of the result.
        unsafe { self.launch(function, self.grid_stride(count), &args) }
    }
}
