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
        let fits = columns <= team * kept;
        let variant = if vectors { VECTORS } else { 0 } | if fits { KEPT } else { 0 };
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
