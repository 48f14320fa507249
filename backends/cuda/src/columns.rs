//! Large convolutions without groups, by a library for matrix products (im2col; Chellapilla, Puri and Simard 2006).
//!
//! The elements in each window are written to a column of a matrix, some samples at a time, and the matrix is
//! multiplied by the weight. Windows of one element need no copy. `convolution.rs` has kernels for the other
//! convolutions.

use crate::backend::CudaBackend;
use crate::blas::gemm::{Gemm, GemmMatrix, GemmPointers};
use crate::driver::{Args, DevicePtr};
use crate::error::{Result, failed};
use crate::launch::Divider;
use crate::template::{KernelKey, Template, c_name};
use crate::tensor::{CudaTensor, alignment_bytes};
use crate::window::{Windows, add_parts_key};
use gt_backend::ExecError;
use gt_ops::{DType, DTypeSet, Meta, Op, RANK_MAX, Shape, WindowSpec};

/// The most bytes of columns at a time: enough to keep a device busy.
const COLUMN_BYTES_MAX: usize = 64 << 20;
/// The most partial sums of a weight's gradient.
const PARTS_MAX: usize = 64;

/// Writes columns, by element size. Variant 1 puts the columns of all samples side by side.
static COLUMNS: Template = Template {
    name: "columns",
    includes: &["columns.cuh"],
    code: |key| {
        let t = match key.dtypes[0].map(DType::size) {
            Some(2) => "u16",
            Some(8) => "u64",
            _ => "u32",
        };
        let mode = if key.op == Some(Op::ConvolutionInput) { "INPUT" } else { "FORWARD" };
        format!(
            "GT_KERNEL(256) {}({t}* out, const {t}* from, i64 count, i64 sample_step, i64 channel_step, \
             Divider by_channel, Divider by_sample, Windows windows) {{
    write_columns<{mode}, {}>(out, from, count, sample_step, channel_step, by_channel, by_sample, windows);
}}",
            key.name(),
            key.variant == 1,
        )
    },
    catalogue: || {
        let ops = [Op::Convolution, Op::ConvolutionInput, Op::ConvolutionWeight];
        let of = |op| [DType::F16, DType::F32, DType::F64].map(|dtype| columns_key(op, dtype));
        ops.into_iter().flat_map(of).collect()
    },
};

/// Adds a bias in place.
static ADD_BIAS: Template = Template {
    name: "add_bias",
    includes: &["columns.cuh"],
    code: |key| {
        let t = key.dtypes[0].map_or("f32", c_name);
        format!(
            "GT_KERNEL(256) {}({t}* out, const {t}* bias, i64 count, Divider by_place, Divider by_channel) {{
    add_bias(out, bias, count, by_place, by_channel);
}}",
            key.name()
        )
    },
    catalogue: || DTypeSet::FLOAT.iter().map(|dtype| KernelKey::new(&ADD_BIAS, None, Some(dtype), 0)).collect(),
};

/// The templates of this file.
pub(crate) static TEMPLATES: &[&Template] = &[&COLUMNS, &ADD_BIAS];

fn columns_key(op: Op, dtype: DType) -> KernelKey {
    let sized = match dtype.size() {
        2 => DType::F16,
        8 => DType::F64,
        _ => DType::F32,
    };
    KernelKey::new(&COLUMNS, Some(op), Some(sized), (op == Op::ConvolutionWeight) as u32)
}

/// A convolution with contiguous operands.
pub(crate) struct Convolution<'a> {
    pub op: Op,
    /// The tensor that the windows slide over; for ConvolutionInput, the gradient of the output.
    pub seen_through: &'a CudaTensor,
    /// The weight; for ConvolutionWeight, the gradient of the output.
    pub other: &'a CudaTensor,
    pub bias: Option<&'a CudaTensor>,
    pub result: &'a CudaTensor,
    pub spec: &'a WindowSpec,
    pub output: &'a [usize; 3],
    pub samples: usize,
    /// Channels of the output and of the input, in a group.
    pub made: usize,
    pub seen: usize,
}

impl Convolution<'_> {
    /// The number of multiply-adds.
    pub(crate) fn products(&self) -> usize {
        let factors = [self.samples, self.made, self.seen, self.spec.groups];
        let sizes = factors.iter().chain(&self.spec.kernel).chain(self.output);
        sizes.fold(1usize, |all, size| all.saturating_mul(*size))
    }

    /// Whether it is a matrix product of the tensors as they lie: its windows have one element, and are all there are.
    pub(crate) fn is_product(&self) -> bool {
        let spec = self.spec;
        spec.kernel == [1; 3] && spec.stride == [1; 3] && spec.low == [0; 3] && spec.high == [0; 3]
    }
}

/// A contiguous matrix, or a transposed one.
fn side(at: DevicePtr, step: usize, batch_step: usize, turned: bool) -> GemmMatrix {
    GemmMatrix { turned, step: step as u64, batch_step: batch_step as u64, alignment: alignment_bytes(at) }
}

impl CudaBackend {
    /// Computes the convolution by the library for matrix products; returns false if it does not support it.
    pub(crate) fn by_columns(&mut self, c: &Convolution<'_>) -> Result<bool> {
        let size = |sizes: &[usize; 3]| sizes.iter().product::<usize>();
        let (taps, output, input) = (size(&c.spec.kernel), size(c.output), size(&c.spec.input));
        if !self.launches.has_blas() || c.spec.groups != 1 {
            return Ok(false);
        }
        match c.op {
            Op::ConvolutionWeight => self.weight_by_columns(c, taps, output, input),
            Op::ConvolutionInput => self.samples_by_columns(c, (c.seen, c.made), taps, (input, output)),
            _ => self.samples_by_columns(c, (c.made, c.seen), taps, (output, input)),
        }
    }

    /// The number of samples to compute at a time, if each takes this many bytes.
    fn samples_at_a_time(&self, samples: usize, bytes: usize) -> usize {
        let limit = COLUMN_BYTES_MAX.min(self.memory.stats().limit_bytes / 16);
        let count = (limit / bytes).clamp(1, samples);
        // A multiple of 8 samples aligns the rows of joined columns to 16 bytes.
        if count >= 8 { count & !7 } else { count }
    }

    /// Computes a result with a sample axis, some samples at a time. A sample of the result has `rows` channels of
    /// `places` positions; a sample of the operand has `channels` channels of `from_places` positions.
    fn samples_by_columns(
        &mut self,
        c: &Convolution<'_>,
        (rows, channels): (usize, usize),
        taps: usize,
        (places, from_places): (usize, usize),
    ) -> Result<bool> {
        let (dtype, size) = (c.result.meta.dtype, c.result.size());
        let depth = channels * taps;
        let alone = c.is_product();
        // The weight has a row for each output channel; the input's gradient multiplies by its transpose.
        let backwards = c.op == Op::ConvolutionInput;
        let turned = backwards && taps == 1;
        let copied = match backwards && taps > 1 {
            true => Some(self.swapped(c.other, 0, [rows, channels, taps], [taps, rows * taps, 1])?),
            false => None,
        };
        let weight = copied.as_ref().unwrap_or(c.other);
        let at_a_time = if alone { c.samples } else { self.samples_at_a_time(c.samples, depth * places * size) };
        let columns = match alone {
            true => None,
            false => match self.memory.allocate(at_a_time * depth * places * size) {
                Ok(columns) => Some(columns),
                Err(ExecError::OutOfMemory { .. }) => return Ok(false),
                Err(error) => return Err(error),
            },
        };
        for first in (0..c.samples).step_by(at_a_time) {
            let count = at_a_time.min(c.samples - first);
            let from = c.seen_through.ptr() + (first * channels * from_places * size) as u64;
            let right = match &columns {
                None => from,
                Some(columns) => {
                    self.write_columns(c, columns.ptr(), from, count, (channels, from_places), depth * places)?;
                    columns.ptr()
                }
            };
            let out = c.result.ptr() + (first * rows * places * size) as u64;
            let gemm = Gemm {
                dtype,
                out_dtype: dtype,
                tf32: self.tf32,
                m: rows as u64,
                n: places as u64,
                k: depth as u64,
                batches: count as u64,
                out: side(out, places, rows * places, false),
                a: side(weight.ptr(), if turned { rows } else { depth }, 0, turned),
                b: side(right, places, depth * places, false),
                bias: None,
            };
            if !self.multiply(&gemm, GemmPointers { out, a: weight.ptr(), b: right, bias: 0 })? {
                return Ok(false);
            }
        }
        self.add_bias(c)?;
        Ok(true)
    }

    /// Adds the convolution's bias, if it has one, to its result.
    pub(crate) fn add_bias(&mut self, c: &Convolution<'_>) -> Result<()> {
        let Some(bias) = c.bias else { return Ok(()) };
        let (count, channels) = (c.result.numel(), bias.numel());
        let places = count / c.samples.max(1) / channels;
        let function = self.kernels.get(&KernelKey::new(&ADD_BIAS, None, Some(c.result.meta.dtype), 0))?;
        let mut args = Args::new();
        args.push(c.result.ptr()).push(bias.ptr()).push(count as i64);
        args.push(Divider::new(places, count)).push(Divider::new(channels, count));
        // SAFETY: the arguments match `add_bias`, whose bias has one element for each channel.
        unsafe { self.launch(function, self.grid_stride(count), &args) }
    }

    /// The gradient of the weight: products of some samples at a time, in the accumulation dtype, which are added in
    /// order.
    fn weight_by_columns(&mut self, c: &Convolution<'_>, taps: usize, places: usize, input: usize) -> Result<bool> {
        let (dtype, size, columns) = (c.result.meta.dtype, c.result.size(), c.seen * taps);
        let total = c.result.numel();
        let sum_dtype = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
        let least = c.samples.div_ceil(PARTS_MAX);
        let at_a_time = self.samples_at_a_time(c.samples, (columns + c.made) * places * size).max(least);
        let parts = c.samples.div_ceil(at_a_time);
        let bytes = [parts * total * sum_dtype.size(), at_a_time * columns * places * size];
        let work = (self.memory.allocate(bytes[0]), self.memory.allocate(bytes[1]));
        let (sums, written) = match work {
            (Ok(sums), Ok(written)) => (sums, written),
            (Err(ExecError::OutOfMemory { .. }), _) | (_, Err(ExecError::OutOfMemory { .. })) => return Ok(false),
            (Err(error), _) | (_, Err(error)) => return Err(error),
        };
        for part in 0..parts {
            let first = part * at_a_time;
            let count = at_a_time.min(c.samples - first);
            let from = c.seen_through.ptr() + (first * c.seen * input * size) as u64;
            self.write_columns(c, written.ptr(), from, count, (c.seen, input), columns * places)?;
            let offset = first * c.made * places;
            let made = self.swapped(c.other, offset, [c.made, count, places], [places, c.made * places, 1])?;
            let out = sums.ptr() + (part * total * sum_dtype.size()) as u64;
            let depth = count * places;
            let gemm = Gemm {
                dtype,
                out_dtype: sum_dtype,
                tf32: self.tf32,
                m: c.made as u64,
                n: columns as u64,
                k: depth as u64,
                batches: 1,
                out: side(out, columns, 0, false),
                a: side(made.ptr(), depth, 0, false),
                b: side(written.ptr(), depth, 0, true),
                bias: None,
            };
            if !self.multiply(&gemm, GemmPointers { out, a: made.ptr(), b: written.ptr(), bias: 0 })? {
                return Ok(false);
            }
        }
        let function = self.kernels.get(&add_parts_key(dtype))?;
        let mut args = Args::new();
        args.push(c.result.ptr()).push(sums.ptr()).push(parts as i64).push(total as i64);
        // SAFETY: the arguments match `add_parts`, and `sums` holds `parts` sums for each of the result's elements.
        unsafe { self.launch(function, self.grid_stride(total), &args) }?;
        Ok(true)
    }

    fn multiply(&mut self, gemm: &Gemm, pointers: GemmPointers) -> Result<bool> {
        // SAFETY: the pointers are those of operands, columns and result, whose matrices have the layouts in `gemm`;
        // the result is new memory.
        unsafe { self.launches.multiply(gemm, pointers) }.map_err(failed)
    }

    /// Writes the columns of some samples, each of this many elements.
    fn write_columns(
        &mut self,
        c: &Convolution<'_>,
        to: DevicePtr,
        from: DevicePtr,
        samples: usize,
        (channels, from_places): (usize, usize),
        of_sample: usize,
    ) -> Result<()> {
        let count = samples * of_sample;
        let function = self.kernels.get(&columns_key(c.op, c.result.meta.dtype))?;
        let mut args = Args::new();
        args.push(to).push(from).push(count as i64);
        args.push((channels * from_places) as i64).push(from_places as i64);
        args.push(Divider::new(channels, count)).push(Divider::new(samples, count));
        args.push(Windows::new(c.spec, c.output, count));
        // SAFETY: the arguments match `write_columns`, and the memory has room for `count` elements.
        unsafe { self.launch(function, self.grid_stride(count.div_ceil(16 / c.result.size())), &args) }
    }

    /// A contiguous copy of elements of a contiguous tensor: those from `offset` on, with these sizes and strides in
    /// elements.
    fn swapped(&mut self, t: &CudaTensor, offset: usize, sizes: [usize; 3], steps: [usize; 3]) -> Result<CudaTensor> {
        let shape = Shape::new(&sizes).map_err(|error| ExecError::internal(error.to_string()))?;
        let mut strides = [0; RANK_MAX];
        for (stride, step) in strides.iter_mut().zip(steps) {
            *stride = (step * t.size()) as isize;
        }
        let seen = t.seen(t.view(shape, t.offset_bytes + offset * t.size(), strides));
        let out = self.new_tensor(&Meta::new(shape, t.meta.dtype))?;
        self.copy(&out, &seen)?;
        Ok(out)
    }
}
