//! Plans: how rows are assigned to threads; and the operands that row-wise kernels share.

use crate::backend::{CudaBackend, Inputs};
use crate::driver::{Grid, Param};
use crate::error::Result;
use crate::template::{KernelKey, Template};
use crate::tensor::CudaTensor;
use gt_backend::{ExecError, Input};
use gt_ops::{DType, Meta, Op};

/// Threads of a block whose teams are at most a warp; and the largest team, which is a whole block.
pub(crate) const THREADS: usize = 256;
pub(crate) const THREADS_MAX: usize = 1024;
/// The largest team where each thread needs more registers than 64, of which a block of [`THREADS_MAX`] has no more.
const THREADS_MAX_OF_MANY_REGISTERS: usize = 512;
/// The most blocks of a launch; they take further rows in a grid-stride loop.
pub(crate) const BLOCKS_MAX: usize = 1 << 20;

/// Bits of a kernel's variant: vector loads of 16 bytes, and rows kept in registers.
pub(crate) const VECTORS: u32 = 1;
pub(crate) const KEPT: u32 = 2;
pub(crate) const VARIANTS: [u32; 4] = [0, VECTORS, KEPT, VECTORS | KEPT];

/// The floating-point dtypes.
pub(crate) const FLOATS: [DType; 4] = [DType::F16, DType::BF16, DType::F32, DType::F64];

/// A kernel for each op, dtype and variant.
pub(crate) fn keys(template: &'static Template, ops: &[Op]) -> Vec<KernelKey> {
    let of =
        |op: &Op| FLOATS.map(|dtype| VARIANTS.map(|variant| KernelKey::new(template, Some(*op), Some(dtype), variant)));
    ops.iter().flat_map(of).flatten().collect()
}

/// Elements of a row that a thread keeps in registers.
pub(crate) fn kept(dtype: DType) -> usize {
    if dtype == DType::F64 { 8 } else { 16 }
}

/// The template arguments V (elements of a vector) and PACKS (vectors that a thread keeps).
pub(crate) fn packs(key: &KernelKey) -> String {
    let dtype = key.dtypes[0].unwrap_or(DType::F32);
    let lanes = if key.variant & VECTORS != 0 { 16 / dtype.size() } else { 1 };
    format!("{lanes}, {}", if key.variant & KEPT != 0 { kept(dtype) / lanes } else { 0 })
}

/// Whether a thread needs many registers: it keeps a row's elements and, without vectors, the place of each, or numbers
/// of two registers each.
fn needs_many_registers(dtype: DType, variant: u32) -> bool {
    variant & KEPT != 0 && (variant & VECTORS == 0 || dtype == DType::F64)
}

/// The bounds of a kernel's launches, as `GT_KERNEL` takes them. Where they say that one block of a multiprocessor is
/// enough, the assembler does not spill registers for more: rows in registers are all loaded at once, and vectors of
/// long rows have enough loads in flight.
pub(crate) fn bounds(key: &KernelKey) -> String {
    let dtype = key.dtypes[0].unwrap_or(DType::F32);
    match key.variant {
        variant if needs_many_registers(dtype, variant) => format!("{THREADS_MAX_OF_MANY_REGISTERS}, 1"),
        VECTORS if dtype != DType::F64 => format!("{THREADS_MAX}, 1"),
        _ => THREADS_MAX.to_string(),
    }
}

/// How rows are assigned to threads.
pub(crate) struct RowPlan {
    pub(crate) variant: u32,
    /// Threads for each row.
    pub(crate) team: usize,
    pub(crate) grid: Grid,
}

impl RowPlan {
    /// The plan for rows of tensors at these addresses.
    pub(crate) fn new(dtype: DType, (rows, columns): (usize, usize), places: &[u64]) -> RowPlan {
        let lanes = 16 / dtype.size();
        let vectors = columns.is_multiple_of(lanes) && places.iter().all(|place| place.is_multiple_of(16));
        let packs = if vectors { columns / lanes } else { columns };
        let kept = kept(dtype);
        let (team, threads) = if columns <= 32 * kept {
            (packs.next_power_of_two().clamp(1, 32), THREADS)
        } else {
            let team = columns.div_ceil(kept).next_power_of_two().clamp(64, THREADS_MAX);
            (team, team)
        };
        let vectors = if vectors { VECTORS } else { 0 };
        let team_max =
            if needs_many_registers(dtype, vectors | KEPT) { THREADS_MAX_OF_MANY_REGISTERS } else { THREADS_MAX };
        let fits = columns <= team * kept && team <= team_max;
        let variant = vectors | if fits { KEPT } else { 0 };
        let blocks = rows.div_ceil(threads / team).clamp(1, BLOCKS_MAX);
        RowPlan { variant, team, grid: Grid::new(blocks as u32, threads as u32) }
    }
}

/// A scalar, or a vector with an element for each column: `struct Numbers` of `rows.cuh`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Numbers {
    pub(crate) first: u64,
    pub(crate) number: f64,
}
// SAFETY: all fields are 64-bit numbers, in the header's order: no padding.
unsafe impl Param for Numbers {}

/// Rows and columns of a tensor with at least one axis.
pub(crate) fn extent(meta: &Meta) -> (usize, usize) {
    let columns = meta.shape.dims().last().copied().unwrap_or(1);
    (meta.shape.numel() / columns.max(1), columns)
}

pub(crate) fn tensor<'a>(inputs: Inputs<'a, '_>, i: usize) -> Result<&'a CudaTensor> {
    match inputs.get(i) {
        Some(Input::Tensor(t)) => Ok(t),
        _ => Err(ExecError::internal("a number where a tensor belongs")),
    }
}

pub(crate) fn number(inputs: Inputs<'_, '_>, i: usize) -> Result<f64> {
    match inputs.get(i) {
        Some(Input::Scalar(scalar)) => Ok(scalar.to_f64()),
        _ => Err(ExecError::internal("a tensor where a number belongs")),
    }
}

impl CudaBackend {
    /// A scalar operand, or a vector and its tensor, which must live until the kernel is enqueued.
    pub(crate) fn numbers(&mut self, inputs: Inputs<'_, '_>, i: usize) -> Result<(Numbers, Option<CudaTensor>)> {
        match inputs.get(i) {
            Some(Input::Tensor(t)) => {
                let t = self.contiguous(t)?;
                Ok((Numbers { first: t.ptr(), number: 0.0 }, Some(t)))
            }
            _ => Ok((Numbers { first: 0, number: number(inputs, i)? }, None)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::TEMPLATES;

    #[test]
    fn a_block_has_no_more_threads_than_its_kernel_is_compiled_for() {
        let template = TEMPLATES.iter().find(|template| template.name == "norm").unwrap();
        for dtype in FLOATS {
            for columns in (1..40).chain([255, 256, 511, 512, 513, 4095, 4096, 4100, 8191, 8192, 8193, 16_384, 20_001])
            {
                for place in [0, 2] {
                    let RowPlan { variant, team, grid } = RowPlan::new(dtype, (3, columns), &[place]);
                    let key = KernelKey::new(template, Some(Op::LayerNorm), Some(dtype), variant);
                    let most: u32 = bounds(&key).split(',').next().unwrap().parse().unwrap();
                    assert!(grid.threads <= most, "{dtype}, {columns} columns: {} threads of {most}", grid.threads);
                    assert!(variant & KEPT == 0 || columns <= team * kept(dtype), "{dtype}, {columns} columns");
                }
            }
        }
        // A row of odd length is in registers of up to 512 threads, one of vectors in those of 1,024.
        let variant = |columns| RowPlan::new(DType::F32, (1, columns), &[0]).variant;
        assert_eq!([8191, 8193, 16_384, 16_388].map(variant), [KEPT, 0, VECTORS | KEPT, VECTORS]);
    }
}
