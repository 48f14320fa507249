//! Convolutions and their gradients, as implicit matrix products (implicit GEMM; see `window.cuh`).
//!
//! Every sum has a fixed order, so results are reproducible. `library.rs` hands large convolutions to libraries.

use crate::backend::CudaBackend;
use crate::columns::Convolution;
use crate::driver::{Args, Grid, Param};
use crate::error::Result;
use crate::launch::{Divider, THREADS};
use crate::template::{Template, c_name};
use crate::tensor::CudaTensor;
use crate::window::{Windows, add_parts_key, key, output_of};
use gt_backend::ExecError;
use gt_ops::{DType, DTypeSet, Meta, Op, WindowSpec};

/// Rows and columns of a block's tile, as in `window.cuh`.
const TILE: usize = 64;
/// The depth of a part is a multiple of this.
const DEPTH: usize = 16;
/// The fewest steps along the depth that are worth a block.
const PART_STEPS_MIN: usize = 8;
/// The most bytes of partial sums.
const PARTIAL_BYTES_MAX: usize = 64 << 20;

/// One tile for each block.
static CONVOLVE: Template = Template {
    name: "convolve",
    includes: &["window.cuh"],
    code: |key| {
        let (Some(op), Some(dtype)) = (key.op, key.dtypes[0]) else { return String::new() };
        let (name, t) = (key.name(), c_name(dtype));
        let mode = match op {
            Op::Convolution => "FORWARD",
            Op::ConvolutionInput => "INPUT",
            _ => "WEIGHT",
        };
        format!(
            "GT_KERNEL(256) {name}({t}* out, Compute<{t}>::type* partial, const {t}* left, const {t}* right, \
             const {t}* bias, Product product, Windows windows) {{
    convolve<{mode}>(out, partial, left, right, bias, product, windows);
}}"
        )
    },
    catalogue: || {
        let ops = [Op::Convolution, Op::ConvolutionInput, Op::ConvolutionWeight];
        ops.into_iter()
            .flat_map(|op| DTypeSet::FLOAT.iter().map(move |dtype| key(&CONVOLVE, Some(op), dtype)))
            .collect()
    },
};

/// The templates of this file.
pub(crate) static TEMPLATES: &[&Template] = &[&CONVOLVE];

/// `struct Matrix` of `window.cuh`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Matrix {
    group_step: i64,
    row_step: i64,
    outer_step: i64,
    inner: Divider,
}

/// `struct Product` of `window.cuh`.
#[derive(Clone, Copy)]
#[repr(C)]
struct ConvolutionProduct {
    rows: i64,
    columns: i64,
    depth: i64,
    groups: i64,
    parts: i64,
    part_depth: i64,
    left: Matrix,
    result: Matrix,
    group_step: i64,
    sample_step: i64,
    channel_step: i64,
}

// SAFETY: the fields are 64-bit numbers and structs of 8-byte size and alignment, in the header's order: no padding.
unsafe impl Param for ConvolutionProduct {}

impl CudaBackend {
    /// An op of class convolution.
    pub(crate) fn convolution(
        &mut self,
        op: Op,
        [a, b]: [&CudaTensor; 2],
        bias: Option<&CudaTensor>,
        spec: &WindowSpec,
        out: &Meta,
    ) -> Result<CudaTensor> {
        let result = self.new_tensor(out)?;
        let total = out.shape.numel();
        if total == 0 {
            return Ok(result);
        }
        let (a, b) = (self.contiguous(a)?, self.contiguous(b)?);
        let bias = bias.map(|bias| self.contiguous(bias)).transpose()?;
        let output = output_of(spec)?;
        let size = |sizes: &[usize; 3]| sizes.iter().product::<usize>();
        let (input, taps, places) = (size(&spec.input), size(&spec.kernel), size(&output));
        let groups = spec.groups;
        let dims = |t: &CudaTensor| (t.meta.shape.dims()[0], t.meta.shape.dims()[1]);
        // The left matrix, the tensor that the windows slide over, the samples, and the output and input channels of a
        // group.
        let (left, right, samples, made, seen) = match op {
            Op::Convolution => (&b, &a, dims(&a).0, dims(&b).0 / groups, dims(&b).1),
            Op::ConvolutionInput => (&b, &a, dims(&a).0, dims(&b).0 / groups, dims(&b).1),
            _ => (&a, &b, dims(&a).0, dims(&a).1 / groups, dims(&b).1 / groups),
        };
        let whole = Convolution {
            op,
            seen_through: right,
            other: left,
            bias: bias.as_ref(),
            result: &result,
            spec,
            output: &output,
            samples,
            // For ConvolutionInput as well, the weight has a row for each output channel.
            made,
            seen,
        };
        if self.by_libraries(&whole)? {
            return Ok(result);
        }
        let (rows, columns, depth) = match op {
            Op::Convolution => (made, samples * places, seen * taps),
            Op::ConvolutionInput => (seen, samples * input, made * taps),
            _ => (made, seen * taps, samples * places),
        };
        let matrix = |group: usize, row: usize, outer: usize, inner: usize, below: usize| Matrix {
            group_step: group as i64,
            row_step: row as i64,
            outer_step: outer as i64,
            inner: Divider::new(inner, below),
        };
        let weight = seen * taps;
        let (of_left, of_result, channels, channel) = match op {
            Op::Convolution => (
                matrix(made * weight, weight, 0, weight, depth),
                matrix(made * places, places, groups * made * places, places, columns),
                seen,
                input,
            ),
            Op::ConvolutionInput => (
                matrix(made * weight, taps, weight, taps, depth),
                matrix(seen * input, input, groups * seen * input, input, columns),
                made,
                places,
            ),
            _ => (
                matrix(made * places, places, groups * made * places, places, depth),
                matrix(made * weight, weight, 0, weight, columns),
                seen,
                input,
            ),
        };
        // Where there are few tiles and long sums, the depth is split so that the device has enough blocks.
        let tiles = rows.div_ceil(TILE) * columns.div_ceil(TILE) * groups;
        let compute_bytes = if out.dtype == DType::F64 { 8 } else { 4 };
        let wanted = (2 * self.driver.properties().multiprocessors as usize).div_ceil(tiles);
        let parts =
            wanted.min(depth / (DEPTH * PART_STEPS_MIN)).min(PARTIAL_BYTES_MAX / (total * compute_bytes)).max(1);
        let part_depth = depth.div_ceil(parts).next_multiple_of(DEPTH);
        let parts = depth.div_ceil(part_depth.max(1)).max(1);
        let product = ConvolutionProduct {
            rows: rows as i64,
            columns: columns as i64,
            depth: depth as i64,
            groups: groups as i64,
            parts: parts as i64,
            part_depth: part_depth as i64,
            left: of_left,
            result: of_result,
            group_step: (channels * channel) as i64,
            sample_step: (groups * channels * channel) as i64,
            channel_step: channel as i64,
        };
        let blocks = u32::try_from(tiles * parts)
            .ok()
            .filter(|blocks| *blocks <= i32::MAX as u32)
            .ok_or_else(|| ExecError::internal(format!("{} of more tiles than a grid has blocks", op.name())))?;
        let partial = match parts {
            1 => None,
            _ => Some(self.memory.allocate(parts * total * compute_bytes)?),
        };
        let function = self.kernels.get(&key(&CONVOLVE, Some(op), out.dtype))?;
        let mut args = Args::new();
        args.push(result.ptr()).push(partial.as_ref().map_or(0, |partial| partial.ptr()));
        args.push(left.ptr()).push(right.ptr()).push(bias.as_ref().map_or(0, CudaTensor::ptr));
        args.push(product).push(Windows::new(spec, &output, columns.max(depth)));
        // SAFETY: the arguments match `convolve`; the operands are contiguous and have the shapes that inference
        // checked.
        unsafe { self.launch(function, Grid::new(blocks, THREADS), &args) }?;
        if let Some(partial) = partial {
            let function = self.kernels.get(&add_parts_key(out.dtype))?;
            let mut args = Args::new();
            args.push(result.ptr()).push(partial.ptr()).push(parts as i64).push(total as i64);
            // SAFETY: the arguments match `add_parts`, and `partial` holds `parts` sums for each of the `total`
            // results.
            unsafe { self.launch(function, self.grid_stride(total), &args) }?;
        }
        Ok(result)
    }
}
