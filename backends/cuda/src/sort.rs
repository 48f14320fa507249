//! Argsort along an axis: bitonic sorts of tiles, then merges.

use crate::backend::CudaBackend;
use crate::driver::Args;
use crate::error::Result;
use crate::scan::{Lines, block_each};
use crate::template::{KernelKey, Template, c_name};
use crate::tensor::CudaTensor;
use gt_backend::ExecError;
use gt_ops::instruction::SliceSpec;
use gt_ops::{Attrs, DType, Meta, Op};

/// Items that a block sorts: `SORT_TILE` of `sort.cuh`.
const TILE: usize = 1024;

const TILES: u32 = 0;
const MERGE: u32 = 1;

static SORT: Template = Template {
    name: "sort",
    includes: &["sort.cuh"],
    code: |key| {
        let (name, t) = (key.name(), key.dtypes[0].map_or("f32", c_name));
        match key.variant {
            TILES => format!(
                "GT_KERNEL(256) {name}(i64* out, ItemOf<{t}>::type* items, const {t}* from, Lines lines, i64 tiles, u32 width,
                      bool descending) {{
    sort_tiles<{t}>(out, items, from, lines, tiles, width, descending);
}}"
            ),
            _ => format!(
                "GT_KERNEL(256) {name}(i64* out, ItemOf<{t}>::type* to, const ItemOf<{t}>::type* from, Lines lines, i64 run,
                      i64 tiles) {{
    merge_runs<{t}>(out, to, from, lines, run, tiles);
}}"
            ),
        }
    },
    catalogue: || {
        let tiles = DType::STORED.map(|dtype| KernelKey::new(&SORT, None, Some(dtype), TILES));
        // All dtypes of up to 4 bytes have the same items.
        [&tiles[..], &[merge_key(DType::I32), merge_key(DType::I64)]].concat()
    },
};

/// The templates of this file.
pub(crate) static TEMPLATES: &[&Template] = &[&SORT];

fn merge_key(dtype: DType) -> KernelKey {
    KernelKey::new(&SORT, None, Some(if dtype.size() == 8 { DType::I64 } else { DType::I32 }), MERGE)
}

impl CudaBackend {
    /// The positions of the elements along an axis, in sorted order, or as many of the first ones as the result has.
    pub(crate) fn sort(&mut self, op: Op, t: &CudaTensor, axis: usize, out: &Meta) -> Result<CudaTensor> {
        if out.shape.numel() == 0 {
            return self.new_tensor(out);
        }
        let result = self.new_tensor(&Meta::new(t.meta.shape, out.dtype))?;
        let lines = Lines::new(t, &result, axis);
        let count = t.meta.shape.dims()[axis];
        let sorts = t.meta.shape.numel() / count;
        if u32::try_from(count).is_err() {
            return Err(ExecError::internal(format!("{} elements cannot be sorted together", count)));
        }
        let width = count.next_power_of_two().min(TILE);
        let tiles = count.div_ceil(width);
        let item = if t.size() == 8 { 16 } else { 8 };
        let bytes = if tiles > 1 { sorts * count * item } else { 0 };
        let (mut from, mut to) = (self.memory.allocate(bytes)?, self.memory.allocate(bytes)?);
        let function = self.kernels.get(&KernelKey::new(&SORT, None, Some(t.meta.dtype), TILES))?;
        let mut args = Args::new();
        args.push(result.ptr()).push(from.ptr()).push(t.ptr()).push(lines).push(tiles as i64).push(width as u32);
        args.push((op == Op::ArgsortDescending) as u8);
        let blocks = (sorts * tiles).div_ceil(TILE / width);
        // SAFETY: the arguments match `sort_tiles`; the lines are those of operand and result, and `from` has room for
        // all items.
        unsafe { self.launch(function, block_each(blocks), &args)? };
        let mut run = TILE;
        while run < count {
            let last = 2 * run >= count;
            let function = self.kernels.get(&merge_key(t.meta.dtype))?;
            let mut args = Args::new();
            args.push(if last { result.ptr() } else { 0 }).push(to.ptr()).push(from.ptr());
            args.push(lines).push(run as i64).push(tiles as i64);
            // SAFETY: the arguments match `merge`; both buffers have room for all items, and the last merge writes the
            // result.
            unsafe { self.launch(function, block_each(sorts * tiles), &args)? };
            std::mem::swap(&mut from, &mut to);
            run *= 2;
        }
        let first = Attrs::Slice(Box::new(SliceSpec::corner(out.shape)));
        Ok(result.moved(Op::Slice, &first, &out.shape)?.map_or(result.clone(), |layout| result.seen(layout)))
    }
}
