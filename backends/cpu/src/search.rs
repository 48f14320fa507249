//! Ops that find positions: `nonzero` and `searchsorted`.

use crate::backend::{CpuBackend, Result};
use crate::strided::{SharedPtr, in_chunks, run_or_not};
use crate::tensor::CpuTensor;
use gt_ops::{DType, Meta, Op, RANK_MAX};
use half::{bf16, f16};
use std::slice;

/// The most mask elements whose positions are found together.
const PIECE: usize = 128;
/// The number of mask elements in a chunk.
const CHUNK_ELEMENTS: usize = 16 << 10;
/// The bytes that a copy moves in the time of one step of a binary search, roughly.
const STEP_BYTES: usize = 120;
/// The bytes that a copy moves in the time in which one element of a mask is told its position, roughly.
const POSITION_BYTES: usize = 120;

/// The number of sorted elements that are less than `x` (with `RIGHT`, less or equal), by binary search. NaN sorts
/// last.
fn rank_of<T: PartialOrd + Copy, const RIGHT: bool>(sorted: &[T], x: T) -> usize {
    #[expect(clippy::eq_op, reason = "only NaN differs from itself")]
    let last = x != x;
    sorted.partition_point(|y| last || if RIGHT { *y <= x } else { *y < x })
}

impl CpuBackend {
    /// For each element of `wanted`, the position in its row of `sorted` where inserting it keeps the row in order.
    pub(crate) fn search(&mut self, op: Op, sorted: &CpuTensor, wanted: &CpuTensor, out: &Meta) -> Result<CpuTensor> {
        let (sorted, wanted) = (self.contiguous(sorted)?, self.contiguous(wanted)?);
        let result = self.new_tensor(out)?;
        let elements = out.shape.numel();
        if elements == 0 {
            return Ok(result);
        }
        let count = sorted.meta.shape.dims()[sorted.meta.shape.rank() - 1];
        // The number of wanted elements for each row of sorted ones.
        let row = if sorted.meta.shape.rank() == 1 { elements } else { out.shape.dims()[out.shape.rank() - 1] };
        let (from, at, to) =
            (SharedPtr::new(sorted.ptr()), SharedPtr::new(wanted.ptr()), SharedPtr::new(result.ptr().cast::<i64>()));
        /// # Safety
        /// `from`, `at` and `to` are valid for elements of type `T`: `count` sorted ones per row, and `last` wanted
        /// ones and results.
        unsafe fn range<T: PartialOrd + Copy>(
            op: Op,
            (from, at, to): (*const u8, *const u8, *mut i64),
            (row, count): (usize, usize),
            (first, last): (usize, usize),
        ) {
            for i in first..last {
                // SAFETY: there are `last` wanted elements and results, and a row of `count` sorted elements for each
                // `row` of them.
                unsafe {
                    // An empty tensor may have no memory to make a slice of.
                    let sorted = if count == 0 {
                        &[][..]
                    } else {
                        slice::from_raw_parts(from.cast::<T>().add(i / row * count), count)
                    };
                    let x = at.cast::<T>().add(i).read();
                    let rank = match op {
                        Op::SearchsortedRight => rank_of::<T, true>(sorted, x),
                        _ => rank_of::<T, false>(sorted, x),
                    };
                    to.add(i).write(rank as i64);
                }
            }
        }
        let dtype = sorted.meta.dtype;
        in_chunks(&mut self.pool, elements, STEP_BYTES * (count.max(1).ilog2() as usize + 1), |first, last| {
            let (places, sizes, range_) =
                ((from.get().cast_const(), at.get().cast_const(), to.get()), (row, count), (first, last));
            // SAFETY: all three are contiguous and of these sizes; `result` was just allocated, and chunks are
            // disjoint.
            unsafe {
                match dtype {
                    DType::Bool | DType::U8 => range::<u8>(op, places, sizes, range_),
                    DType::I8 => range::<i8>(op, places, sizes, range_),
                    DType::I16 | DType::U16 => range::<i16>(op, places, sizes, range_),
                    DType::I32 | DType::U32 => range::<i32>(op, places, sizes, range_),
                    DType::I64 | DType::U64 => range::<i64>(op, places, sizes, range_),
                    DType::F16 => range::<f16>(op, places, sizes, range_),
                    DType::BF16 => range::<bf16>(op, places, sizes, range_),
                    DType::F32 | DType::C64 => range::<f32>(op, places, sizes, range_),
                    DType::F64 | DType::C128 => range::<f64>(op, places, sizes, range_),
                }
            }
        })?;
        Ok(result)
    }

    /// The positions of a mask's true elements, in as many rows as the result has, padded with zeros.
    ///
    /// Stream compaction in two passes: count the true elements of each chunk, then write from the prefix sums of the
    /// counts.
    pub(crate) fn positions(&mut self, mask: &CpuTensor, out: &Meta) -> Result<CpuTensor> {
        let mask = self.contiguous(mask)?;
        let result = self.new_tensor(out)?;
        let (rows, elements, shape) = (out.shape.dims()[0], mask.numel(), mask.meta.shape);
        if rows == 0 || shape.rank() == 0 {
            return Ok(result);
        }
        let (from, to) = (SharedPtr::new(mask.ptr()), SharedPtr::new(result.ptr().cast::<i64>()));
        let chunks = elements.div_ceil(CHUNK_ELEMENTS);
        let mut starts = vec![0usize; chunks];
        let counts = SharedPtr::new(starts.as_mut_ptr());
        let part = |i: usize| {
            let (first, last) = (i * CHUNK_ELEMENTS, ((i + 1) * CHUNK_ELEMENTS).min(elements));
            // SAFETY: the mask is contiguous with `elements` bytes, and `last <= elements`.
            (first, unsafe { slice::from_raw_parts(from.get().cast_const().add(first), last - first) })
        };
        run_or_not(&mut self.pool, elements, chunks, &|i| {
            let count: usize = part(i).1.chunks(128).map(|bytes| bytes.iter().sum::<u8>() as usize).sum();
            // SAFETY: `starts` has one element per chunk, and `i < chunks`.
            unsafe { counts.get().add(i).write(count) };
        })?;
        let mut total = 0;
        for start in &mut starts {
            total += std::mem::replace(start, total);
        }
        run_or_not(&mut self.pool, elements * POSITION_BYTES, chunks, &|i| {
            let (first, bytes) = part(i);
            let (outer, inner) = (shape.rank() - 1, shape.dims()[shape.rank() - 1]);
            let (mut at, mut row) = (0, starts[i]);
            while at < bytes.len() && row < rows {
                // A piece of a line along the last axis: only their last numbers tell its positions apart.
                let column = (first + at) % inner;
                let piece = &bytes[at..bytes.len().min(at + (inner - column).min(PIECE))];
                at += piece.len();
                let (mut columns, mut found) = ([0i64; PIECE], 0);
                // Each is written over until it is one of a true element: a branch would be predicted badly.
                for (column, byte) in (column as i64..).zip(piece) {
                    columns[found] = column;
                    found += usize::from(*byte != 0);
                }
                let columns = &columns[..found.min(rows - row)];
                // SAFETY: the rows from `row` on are as many as there are columns and not past the last, and the prefix
                // sums give each true element its own row of the new result.
                let to = unsafe { to.get().add(row * shape.rank()) };
                row += columns.len();
                if outer == 0 {
                    // SAFETY: `to` has a row for each of the columns, of one number each.
                    unsafe { to.copy_from_nonoverlapping(columns.as_ptr(), columns.len()) };
                    continue;
                }
                let mut index = [0i64; RANK_MAX];
                let mut rest = (first + at - 1) / inner;
                for (axis, size) in shape.dims()[..outer].iter().enumerate().rev() {
                    index[axis] = (rest % size) as i64;
                    rest /= size;
                }
                for (row, column) in columns.iter().enumerate() {
                    index[outer] = *column;
                    // SAFETY: `to` has a row for each of the columns, of `shape.rank()` numbers each.
                    unsafe { to.add(row * shape.rank()).copy_from_nonoverlapping(index.as_ptr(), shape.rank()) };
                }
            }
        })?;
        for row in total.min(rows)..rows {
            // SAFETY: `row < rows`, and the result has `shape.rank()` positions in each row.
            unsafe { to.get().add(row * shape.rank()).write_bytes(0, shape.rank()) };
        }
        Ok(result)
    }
}
