//! Ops that find positions: of true elements, and in sorted rows.

use crate::backend::CudaBackend;
use crate::driver::Args;
use crate::error::{Result, failed};
use crate::launch::Walk;
use crate::scan::block_each;
use crate::template::{KernelKey, Template, c_name};
use crate::tensor::CudaTensor;
use gt_ops::{DType, Meta, Op};

/// Elements of a mask that a block reads: 256 * LOOKED_AT of `search.cuh`.
const CHUNK: usize = 4096;

static SEARCH: Template = Template {
    name: "search",
    includes: &["search.cuh"],
    code: |key| {
        let (name, t) = (key.name(), key.dtypes[0].map_or("f32", c_name));
        format!(
            "GT_KERNEL(256) {name}(i64* out, const {t}* sorted, const {t}* wanted, i64 elements, i64 row, i64 count) {{
    searchsorted<{t}, {}>(out, sorted, wanted, elements, row, count);
}}",
            key.op == Some(Op::SearchsortedRight)
        )
    },
    catalogue: || {
        let of = |op| DType::STORED.map(|dtype| KernelKey::new(&SEARCH, Some(op), Some(dtype), 0));
        [Op::Searchsorted, Op::SearchsortedRight].map(of).concat()
    },
};

const COUNT: u32 = 0;
const STARTS: u32 = 1;
const WRITE: u32 = 2;

static POSITIONS: Template = Template {
    name: "positions",
    includes: &["search.cuh"],
    code: |key| {
        let name = key.name();
        match key.variant {
            COUNT => format!(
                "GT_KERNEL(256) {name}(u64* counts, const bool* mask, i64 elements) {{ count_true(counts, mask, elements); }}"
            ),
            STARTS => format!(
                "GT_KERNEL(256) {name}(u64* counts, i64 blocks) {{ scan_starts<ScanSum<i64>>(counts, 1, blocks); }}"
            ),
            _ => format!(
                "GT_KERNEL(256) {name}(i64* out, const u64* starts, const bool* mask, i64 elements, i64 rows, Walk<1> shape) {{
    write_true(out, starts, mask, elements, rows, shape);
}}"
            ),
        }
    },
    catalogue: || [COUNT, STARTS, WRITE].map(|variant| KernelKey::new(&POSITIONS, None, None, variant)).to_vec(),
};

/// The templates of this file.
pub(crate) static TEMPLATES: &[&Template] = &[&SEARCH, &POSITIONS];

impl CudaBackend {
    /// The ops `searchsorted`: the position of each element of `wanted` in its sorted row.
    pub(crate) fn search(
        &mut self,
        op: Op,
        sorted: &CudaTensor,
        wanted: &CudaTensor,
        out: &Meta,
    ) -> Result<CudaTensor> {
        let result = self.new_tensor(out)?;
        let elements = out.shape.numel();
        if elements == 0 {
            return Ok(result);
        }
        let (sorted, wanted) = (self.contiguous(sorted)?, self.contiguous(wanted)?);
        let last = |meta: &Meta| meta.shape.dims().last().copied().unwrap_or(1);
        // The number of elements of `wanted` for each sorted row.
        let row = if sorted.meta.shape.rank() == 1 { elements } else { last(out) };
        let function = self.kernels.get(&KernelKey::new(&SEARCH, Some(op), Some(sorted.meta.dtype), 0))?;
        let mut args = Args::new();
        args.push(result.ptr()).push(sorted.ptr()).push(wanted.ptr());
        args.push(elements as i64).push(row as i64).push(last(&sorted.meta) as i64);
        // SAFETY: the arguments match `search`; all tensors are contiguous and have these sizes.
        unsafe { self.launch(function, self.grid_stride(elements), &args)? };
        Ok(result)
    }

    /// The positions of a mask's true elements, as many as the result has rows; missing ones are zeros.
    pub(crate) fn positions(&mut self, mask: &CudaTensor, out: &Meta) -> Result<CudaTensor> {
        let result = self.new_tensor(out)?;
        let (rows, elements, shape) = (out.shape.dims()[0], mask.numel(), mask.meta.shape);
        if out.shape.numel() == 0 {
            return Ok(result);
        }
        let mask = self.contiguous(mask)?;
        // SAFETY: the result was just allocated with `out.bytes()`.
        unsafe { self.driver.fill(result.ptr(), 0, out.bytes(), self.stream) }.map_err(failed)?;
        let blocks = elements.div_ceil(CHUNK);
        let counts = self.memory.allocate(blocks * size_of::<u64>())?;
        let mut key = KernelKey::new(&POSITIONS, None, None, COUNT);
        let mut args = Args::new();
        args.push(counts.ptr()).push(mask.ptr()).push(elements as i64);
        let function = self.kernels.get(&key)?;
        // SAFETY: the arguments match `count`; `counts` has an element for each block.
        unsafe { self.launch(function, block_each(blocks), &args)? };
        key.variant = STARTS;
        let mut args = Args::new();
        args.push(counts.ptr()).push(blocks as i64);
        let function = self.kernels.get(&key)?;
        // SAFETY: the arguments match `starts`; `counts` has `blocks` elements.
        unsafe { self.launch(function, block_each(1), &args)? };
        key.variant = WRITE;
        let mut args = Args::new();
        args.push(result.ptr()).push(counts.ptr()).push(mask.ptr()).push(elements as i64).push(rows as i64);
        args.push(Walk::<1>::sizes(&shape));
        let function = self.kernels.get(&key)?;
        // SAFETY: the arguments match `write`, which writes at most `rows` rows of the result.
        unsafe { self.launch(function, block_each(blocks), &args)? };
        Ok(result)
    }
}
