//! Scans: each element combined with all before it along an axis.

use crate::backend::CudaBackend;
use crate::driver::{Args, Grid, Param};
use crate::error::Result;
use crate::launch::{THREADS, Walk};
use crate::template::{KernelKey, Template, c_name};
use crate::tensor::CudaTensor;
use gt_backend::Loops;
use gt_ops::{Class, Meta, Op, row::ROWS};

/// Adjacent lines are scanned by one thread each if there are at least this many, or if they are at most this long.
const SIDE_BY_SIDE_MIN: usize = 4096;
const SHORT_LINE: usize = 32;
/// The fewest elements of a part of a line.
const PIECE_MIN: usize = 4096;
/// The most bytes of a scan's state.
const STATE_BYTES_MAX: usize = 16;

const LINES: u32 = 0;
const TOTALS: u32 = 1;
const STARTS: u32 = 2;
const SIDE_BY_SIDE: u32 = 3;

static SCAN: Template = Template {
    name: "scan",
    includes: &["scan.cuh"],
    code: |key| {
        let (Some(op), Some(dtype)) = (key.op, key.dtypes[0]) else { return String::new() };
        let (name, t) = (key.name(), c_name(dtype));
        let scan = match op {
            Op::Cumsum => format!("ScanSum<{t}>"),
            Op::Cumprod => format!("ScanProd<{t}>"),
            Op::Logcumsumexp => format!("ScanExps<{t}>"),
            Op::Cumargmax => format!("ScanPosition<{t}, true>"),
            _ => format!("ScanPosition<{t}, false>"),
        };
        match key.variant {
            STARTS => format!(
                "GT_KERNEL(256) {name}({scan}::State* totals, i64 lines, i64 pieces) {{
    scan_starts<{scan}>(totals, lines, pieces);
}}"
            ),
            SIDE_BY_SIDE => format!(
                "GT_KERNEL(256) {name}({scan}::Out* out, const {t}* from, Lines lines) {{
    scan_side_by_side<{scan}, {t}>(out, from, lines);
}}"
            ),
            variant => format!(
                "GT_KERNEL(256) {name}({scan}::Out* out, {scan}::State* totals, const {scan}::State* starts, const {t}* from,
                      Lines lines, i64 pieces, i64 each) {{
    scan_lines<{scan}, {t}, {}>(out, totals, starts, from, lines, pieces, each);
}}",
                variant == TOTALS
            ),
        }
    },
    catalogue: || {
        let rows = ROWS.iter().filter(|row| row.class == Class::Scan);
        rows.flat_map(|row| row.accepts.iter().map(move |dtype| (row.op, dtype)))
            .flat_map(|(op, dtype)| [0, 1, 2, 3].map(|variant| KernelKey::new(&SCAN, Some(op), Some(dtype), variant)))
            .collect()
    },
};

/// The templates of this file.
pub(crate) static TEMPLATES: &[&Template] = &[&SCAN];

/// `struct Lines` of `scan.cuh`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Lines {
    lines: i64,
    count: i64,
    from_step: i64,
    to_step: i64,
    kept: Walk<2>,
}
// SAFETY: all fields are 64-bit numbers, in the header's order: no padding.
unsafe impl Param for Lines {}

impl Lines {
    /// The lines along an axis of an operand and a result of the same shape, which is not empty.
    pub(crate) fn new(from: &CudaTensor, to: &CudaTensor, axis: usize) -> Lines {
        let shape = to.meta.shape;
        let count = shape.dims()[axis];
        let kept = Loops::new(&shape.with_dim(axis, 1), [&from.strides, &to.strides]);
        Lines {
            lines: (shape.numel() / count) as i64,
            count: count as i64,
            from_step: from.element_strides()[axis],
            to_step: to.element_strides()[axis],
            kept: Walk::new(&kept, [from.size(), to.size()]),
        }
    }
}

/// A grid with one block for each item, or with fewer blocks that take further items in a grid-stride loop.
pub(crate) fn block_each(things: usize) -> Grid {
    Grid::new(things.clamp(1, i32::MAX as usize) as u32, THREADS)
}

impl CudaBackend {
    /// An op of class scan.
    pub(crate) fn scan(&mut self, op: Op, t: &CudaTensor, axis: usize, out: &Meta) -> Result<CudaTensor> {
        let result = self.new_tensor(out)?;
        if out.shape.numel() == 0 {
            return Ok(result);
        }
        let lines = Lines::new(t, &result, axis);
        let (count, scans) = (lines.count as usize, lines.lines as usize);
        let across = Loops::new(&out.shape.with_dim(axis, 1), [&t.strides]).inner_strides()[0];
        let key = |variant| KernelKey::new(&SCAN, Some(op), Some(t.meta.dtype), variant);
        if count <= SHORT_LINE || (across.abs() < t.strides[axis].abs() && scans >= SIDE_BY_SIDE_MIN) {
            let function = self.kernels.get(&key(SIDE_BY_SIDE))?;
            let mut args = Args::new();
            args.push(result.ptr()).push(t.ptr()).push(lines);
            // SAFETY: the arguments match `scan`; the lines are those of operand and result.
            unsafe { self.launch(function, self.grid_stride(scans), &args)? };
            return Ok(result);
        }
        let pieces = (2 * self.resident_blocks() / scans).min(count / PIECE_MIN).max(1);
        let each = count.div_ceil(pieces);
        let totals = self.memory.allocate(if pieces > 1 { scans * pieces * STATE_BYTES_MAX } else { 0 })?;
        let starts = if pieces > 1 { totals.ptr() } else { 0 };
        let mut args = Args::new();
        args.push(result.ptr()).push(totals.ptr()).push(0u64).push(t.ptr());
        args.push(lines).push(pieces as i64).push(each as i64);
        if pieces > 1 {
            let function = self.kernels.get(&key(TOTALS))?;
            // SAFETY: the arguments match `scan`; `totals` has a state for each part.
            unsafe { self.launch(function, block_each(scans * pieces), &args)? };
            let function = self.kernels.get(&key(STARTS))?;
            let mut args = Args::new();
            args.push(totals.ptr()).push(scans as i64).push(pieces as i64);
            // SAFETY: the arguments match `starts`; `totals` has a state for each part.
            unsafe { self.launch(function, block_each(scans), &args)? };
        }
        let mut args = Args::new();
        args.push(result.ptr()).push(totals.ptr()).push(starts).push(t.ptr());
        args.push(lines).push(pieces as i64).push(each as i64);
        let function = self.kernels.get(&key(LINES))?;
        // SAFETY: the arguments match `scan`; the lines are those of operand and result, and `totals` has a state for
        // each part.
        unsafe { self.launch(function, block_each(scans * pieces), &args)? };
        Ok(result)
    }
}
