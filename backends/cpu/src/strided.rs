//! Matrices in memory; copies between memory of different strides, transposes, and non-temporal copies.

use crate::checkpoint::Pace;
use crate::pairs::every_second;
use crate::thread_pool::ThreadPool;
use crate::tile::TILE;
use gt_backend::ExecError;
use gt_backend::Loops;
use gt_ops::{RANK_MAX, Shape};
use gt_shm::copy::copy_nonoverlapping;

/// The rate at which one thread copies, in bytes per nanosecond, roughly.
const BYTES_PER_NS: usize = 60;
/// The rate of a copy whose rows lie apart.
const STRIDED_BYTES_PER_NS: usize = 30;
/// The size of a chunk of a parallel copy.
const CHUNK_BYTES: usize = 256 << 10;

/// At most so many copies are divided into the same number of shares.
const TOGETHER_MAX: usize = 8;
/// The rows and columns of a block of a transposing copy: two such blocks stay in L1.
const BLOCK: usize = 32;

/// A pointer that chunks of one parallel region share.
#[derive(Clone, Copy)]
pub struct SharedPtr<T>(*mut T);

// SAFETY: the type only carries the address; every dereference of `get()` is unsafe and states why threads do not
// overlap.
unsafe impl<T> Sync for SharedPtr<T> {}
// SAFETY: the same holds when the pointer is sent to another thread: each use through `get` is checked where it
// happens.
unsafe impl<T> Send for SharedPtr<T> {}

impl<T> SharedPtr<T> {
    /// A pointer for use from several threads.
    pub fn new(ptr: *mut T) -> SharedPtr<T> {
        SharedPtr(ptr)
    }
    /// The pointer.
    #[inline]
    pub fn get(self) -> *mut T {
        self.0
    }
}

/// A matrix in memory: an operand or the result.
#[derive(Clone, Copy, Debug)]
pub struct StridedMatrix {
    /// The element at (0, 0).
    pub ptr: *mut u8,
    /// The stride of rows, in elements.
    pub row_step: isize,
    /// The stride of columns, in elements.
    pub column_step: isize,
}

// SAFETY: the type only carries the address; a matrix product gives each thread its own part of the result.
unsafe impl Sync for StridedMatrix {}

impl StridedMatrix {
    /// The transpose: rows and columns exchanged.
    pub fn transposed(self) -> StridedMatrix {
        StridedMatrix { row_step: self.column_step, column_step: self.row_step, ..self }
    }
    /// The submatrix from (`row`, `column`) on, with elements of `size` bytes.
    pub fn at(self, row: usize, column: usize, size: usize) -> StridedMatrix {
        let elements = row as isize * self.row_step + column as isize * self.column_step;
        StridedMatrix { ptr: self.ptr.wrapping_offset(elements * size as isize), ..self }
    }
}

/// A row of as many numbers as a result has columns, which is added to each row of the result.
#[derive(Clone, Copy)]
pub struct BiasRow(SharedPtr<u8>);

impl BiasRow {
    /// The row whose elements, of the dtype of the sums, begin at `first`.
    pub fn new(first: *mut u8) -> BiasRow {
        BiasRow(SharedPtr::new(first))
    }
    /// The address of the element of a column, for elements of `size` bytes.
    pub fn at(self, column: usize, size: usize) -> *const u8 {
        self.0.get().wrapping_add(column * size)
    }
}

/// Copies `n` elements of `size` bytes between two strided ranges; steps are in bytes.
///
/// # Safety
/// Source and destination are valid for these elements, aligned to `size`, and do not overlap.
#[inline]
pub unsafe fn copy_run(to: *mut u8, to_step: isize, from: *const u8, from_step: isize, n: usize, size: usize) {
    #[inline(always)]
    unsafe fn typed<T: Copy>(to: *mut u8, to_step: isize, from: *const u8, from_step: isize, n: usize) {
        let (to, from) = (to.cast::<T>(), from.cast::<T>());
        let size = size_of::<T>() as isize;
        let (to_step, from_step) = (to_step / size, from_step / size);
        // SAFETY: by the contract of `copy_run` both ranges are valid for `n` elements, aligned to `size` and
        // disjoint.
        unsafe {
            if to_step == 1 && from_step == 0 {
                let value = from.read();
                for i in 0..n {
                    to.add(i).write(value);
                }
            } else if to_step == 1 && from_step == 2 {
                every_second(to, from, n);
            } else if to_step == 1 && from_step == -1 {
                // The compiler vectorises a step that it knows.
                for i in 0..n {
                    to.add(i).write(from.sub(i).read());
                }
            } else if to_step == 1 {
                for i in 0..n as isize {
                    to.offset(i).write(from.offset(i * from_step).read());
                }
            } else {
                for i in 0..n as isize {
                    to.offset(i * to_step).write(from.offset(i * from_step).read());
                }
            }
        }
    }
    let dense = size as isize;
    // SAFETY: by this function's contract both ranges are valid for `n` elements of `size` bytes, aligned, and
    // disjoint.
    unsafe {
        if to_step == dense && from_step == dense {
            // A few elements are copied by instructions rather than by a call.
            match n * size {
                4 => to.cast::<[u8; 4]>().write(from.cast::<[u8; 4]>().read()),
                8 => to.cast::<[u8; 8]>().write(from.cast::<[u8; 8]>().read()),
                12 => to.cast::<[u8; 12]>().write(from.cast::<[u8; 12]>().read()),
                16 => to.cast::<[u8; 16]>().write(from.cast::<[u8; 16]>().read()),
                32 => to.cast::<[u8; 32]>().write(from.cast::<[u8; 32]>().read()),
                bytes => copy_nonoverlapping(from, to, bytes),
            }
            return;
        }
        match size {
            1 => typed::<u8>(to, to_step, from, from_step, n),
            2 => typed::<u16>(to, to_step, from, from_step, n),
            4 => typed::<u32>(to, to_step, from, from_step, n),
            _ => typed::<u64>(to, to_step, from, from_step, n),
        }
    }
}

/// The bytes of a register of the machine's smallest vectors.
const FILL_BYTES: usize = 16;

/// Fills each of `rows` runs of `n` neighbouring elements with an element, `N` at a time: the last ones overlap.
///
/// # Safety
/// Same as for [`copy_plane`], with elements of type `T` and `n >= N`.
#[inline(always)]
unsafe fn fill_rows<T: Copy, const N: usize>(
    (to, to_row): (*mut u8, isize),
    (from, from_row): (*const u8, isize),
    rows: usize,
    n: usize,
) {
    debug_assert!(n >= N);
    for row in 0..rows as isize {
        // SAFETY: each row of the source has an element, and each of the result `n`, of which no write exceeds the last
        // since `n >= N`. An array of elements is written where an element may lie.
        unsafe {
            let group = [from.wrapping_offset(row * from_row).cast::<T>().read(); N];
            let to = to.wrapping_offset(row * to_row).cast::<T>();
            for at in (0..n - N).step_by(N) {
                to.add(at).cast::<[T; N]>().write(group);
            }
            to.add(n - N).cast::<[T; N]>().write(group);
        }
    }
}

/// Copies `rows` runs of `n` elements of `size` bytes each, as [`copy_run`] does; the steps of rows are in bytes, too.
///
/// # Safety
/// Same as for [`copy_run`], for each of the runs.
#[inline]
pub unsafe fn copy_plane(
    (to, to_row, to_step): (*mut u8, isize, isize),
    (from, from_row, from_step): (*const u8, isize, isize),
    (rows, n): (usize, usize),
    size: usize,
) {
    /// # Safety
    /// Same as for [`copy_plane`], with elements of type `T` and `N` of them in a run.
    #[inline(always)]
    unsafe fn short<T: Copy, const N: usize>(
        (to, to_row, to_step): (*mut u8, isize, isize),
        (from, from_row, from_step): (*const u8, isize, isize),
        rows: usize,
    ) {
        for row in 0..rows as isize {
            let (to, from) = (to.wrapping_offset(row * to_row), from.wrapping_offset(row * from_row));
            for i in 0..N as isize {
                // SAFETY: by the contract of `copy_plane`, both runs are valid for `N` elements, aligned and disjoint.
                unsafe {
                    let value = from.wrapping_offset(i * from_step).cast::<T>().read();
                    to.wrapping_offset(i * to_step).cast::<T>().write(value);
                }
            }
        }
    }
    /// # Safety
    /// Same as for [`copy_plane`], with elements of type `T`.
    #[inline(always)]
    unsafe fn typed<T: Copy>(
        to: (*mut u8, isize, isize),
        from: (*const u8, isize, isize),
        rows: usize,
        n: usize,
    ) -> bool {
        // SAFETY: this function's contract is that of `short`, with as many elements in a run as it is told.
        unsafe {
            match n {
                1 => short::<T, 1>(to, from, rows),
                2 => short::<T, 2>(to, from, rows),
                3 => short::<T, 3>(to, from, rows),
                4 => short::<T, 4>(to, from, rows),
                _ => return false,
            }
        }
        true
    }
    let (to_run, from_run) = ((to, to_row, to_step), (from, from_row, from_step));
    if from_step == 0 && to_step == size as isize && n * size >= FILL_BYTES && rows > 1 {
        // SAFETY: this function's contract is that of `fill_rows`, with elements of `size` bytes.
        unsafe {
            match size {
                1 => fill_rows::<u8, { FILL_BYTES }>((to, to_row), (from, from_row), rows, n),
                2 => fill_rows::<u16, { FILL_BYTES / 2 }>((to, to_row), (from, from_row), rows, n),
                4 => fill_rows::<u32, { FILL_BYTES / 4 }>((to, to_row), (from, from_row), rows, n),
                _ => fill_rows::<u64, { FILL_BYTES / 8 }>((to, to_row), (from, from_row), rows, n),
            }
        }
        return;
    }
    // SAFETY: this function's contract is that of `typed`, with elements of `size` bytes, and of `copy_run` for each
    // row.
    unsafe {
        let done = rows > 1
            && match size {
                1 => typed::<u8>(to_run, from_run, rows, n),
                2 => typed::<u16>(to_run, from_run, rows, n),
                4 => typed::<u32>(to_run, from_run, rows, n),
                _ => typed::<u64>(to_run, from_run, rows, n),
            };
        if !done {
            for row in 0..rows as isize {
                let (to, from) = (to.wrapping_offset(row * to_row), from.wrapping_offset(row * from_row));
                copy_run(to, to_step, from, from_step, n, size);
            }
        }
    }
}

/// Copies elements `first..last` of one operand of strided loops to dense memory.
///
/// # Safety
/// The operand, whose first element is at `from`, is valid for these elements of `size` bytes; `to` has room for them,
/// is aligned to `size`, and does not overlap them.
#[inline]
pub unsafe fn copy_to_dense<const N: usize>(
    to: *mut u8,
    loops: &Loops<N>,
    operand: usize,
    from: *const u8,
    (first, last): (usize, usize),
    size: usize,
) {
    let (row_step, step) = (loops.row_strides()[operand], loops.inner_strides()[operand]);
    loops.for_planes(first, last, |plane| {
        let to = to.wrapping_add((plane.at - first) * size);
        let from = from.wrapping_offset(plane.offsets[operand]);
        // SAFETY: `loops` yields only planes within `first..last`, for which both are valid by this function's
        // contract.
        unsafe {
            let to = (to, (plane.len * size) as isize, size as isize);
            copy_plane(to, (from, row_step, step), (plane.rows, plane.len), size);
        }
    });
}

/// Copies the elements of `shape` from one strided layout to another, transposing in blocks where that is faster.
///
/// # Errors
/// A panic in a chunk.
///
/// # Safety
/// Both layouts are valid for all elements and do not overlap, and all elements of `to` are distinct.
pub unsafe fn copy(
    pool: &mut ThreadPool,
    shape: &Shape,
    size: usize,
    to: (*mut u8, &[isize; RANK_MAX]),
    from: (*const u8, &[isize; RANK_MAX]),
) -> Result<(), ExecError> {
    if shape.numel() == 0 {
        return Ok(());
    }
    // SAFETY: the contract is the same.
    unsafe { copy_all(pool, &[StridedCopy::new(shape, size, to, from)]) }
}

/// Makes several copies at once, on several threads when that pays for all of them together.
///
/// # Errors
/// A panic in a chunk.
///
/// # Safety
/// Same as for [`copy`], for each copy; none writes what another reads or writes.
pub unsafe fn copy_all(pool: &mut ThreadPool, copies: &[StridedCopy]) -> Result<(), ExecError> {
    let bytes: usize = copies.iter().map(|copy| copy.loops.numel() * copy.size).sum();
    if !pool.pays(bytes / STRIDED_BYTES_PER_NS) {
        for copy in copies {
            // SAFETY: the copy is one of this function's contract.
            unsafe { copy.part(0, copy.units()) };
        }
        return Ok(());
    }
    if (2..=TOGETHER_MAX).contains(&copies.len()) {
        // The same share of each copy at a time: the parts of a row of their result lie in the same cache lines.
        let shares = copies.iter().map(|copy| copy.units().div_ceil(copy.chunk_units())).max().unwrap_or(0);
        let shares = shares.max(bytes.div_ceil(CHUNK_BYTES));
        return pool.run(shares, &|i| {
            for copy in copies {
                let [first, last] =
                    [i, i + 1].map(|share| (copy.units() as u128 * share as u128 / shares as u128) as usize);
                if first < last {
                    // SAFETY: the copy is one of this function's contract, and each share writes its own part of it.
                    unsafe { copy.part(first, last) };
                }
            }
        });
    }
    let starts = |copy: &StridedCopy| (0..copy.units()).step_by(copy.chunk_units());
    let chunks: Vec<(usize, usize)> =
        copies.iter().enumerate().flat_map(|(which, copy)| starts(copy).map(move |first| (which, first))).collect();
    pool.run(chunks.len(), &|i| {
        let (copy, first) = (&copies[chunks[i].0], chunks[i].1);
        // SAFETY: the copy is one of this function's contract, and each chunk writes its own part of it.
        unsafe { copy.part(first, (first + copy.chunk_units()).min(copy.units())) }
    })
}

/// A copy of elements of `size` bytes from one strided layout to another.
pub struct StridedCopy {
    /// The strides of the result and of the source.
    loops: Loops<2>,
    to: SharedPtr<u8>,
    from: SharedPtr<u8>,
    size: usize,
    turned: Option<TurnedAxis>,
}

/// The axis along which a source is contiguous, or takes one of each pair of neighbours, where that is not the
/// innermost one: blocks are transposed.
struct TurnedAxis {
    size: usize,
    to_step: isize,
    from_step: isize,
    /// The axes other than this and the innermost one.
    outer: Loops<2>,
}

impl StridedCopy {
    /// The copy of all elements of `shape`, at least one.
    pub fn new(
        shape: &Shape,
        size: usize,
        to: (*mut u8, &[isize; RANK_MAX]),
        from: (*const u8, &[isize; RANK_MAX]),
    ) -> StridedCopy {
        let loops = Loops::new(shape, [to.1, from.1]);
        let [to_step, from_step] = loops.inner_strides();
        let dense = size as isize;
        let rank = loops.sizes().len();
        let along = |step: isize| {
            (0..rank - 1).find(|axis| loops.strides()[*axis][1] == step && loops.sizes()[*axis] >= BLOCK / 4)
        };
        let turned = along(dense)
            .or_else(|| along(2 * dense).filter(|_| from_step != 2 * dense))
            .filter(|_| to_step == dense && from_step != dense && from_step != 0)
            .map(|axis| TurnedAxis {
                size: loops.sizes()[axis],
                to_step: loops.strides()[axis][0],
                from_step: loops.strides()[axis][1],
                outer: loops.without(axis).without(rank - 2),
            });
        StridedCopy { loops, to: SharedPtr::new(to.0), from: SharedPtr::new(from.0.cast_mut()), size, turned }
    }

    /// The number of units that the copy can be divided into: elements, or rows of blocks.
    fn units(&self) -> usize {
        match &self.turned {
            Some(axis) => axis.outer.numel() * axis.size.div_ceil(BLOCK),
            None => self.loops.numel(),
        }
    }

    /// The number of units in a chunk.
    fn chunk_units(&self) -> usize {
        if self.turned.is_some() { 1 } else { chunk_elements(self.size) }
    }

    /// Copies units `first..last`.
    ///
    /// # Safety
    /// Same as for [`copy`], for these units.
    unsafe fn part(&self, first: usize, last: usize) {
        let &StridedCopy { ref loops, to, from, size, ref turned } = self;
        let [to_step, from_step] = loops.inner_strides();
        let Some(axis) = turned else {
            let [to_row, from_row] = loops.row_strides();
            loops.for_planes(first, last, |plane| {
                // SAFETY: `loops` yields only planes within both layouts, and nobody else writes these elements.
                unsafe {
                    let to = (to.get().offset(plane.offsets[0]), to_row, to_step);
                    let from = (from.get().cast_const().offset(plane.offsets[1]), from_row, from_step);
                    copy_plane(to, from, (plane.rows, plane.len), size);
                }
            });
            return;
        };
        let (dense, deep, blocks) = (size as isize, loops.inner(), axis.size.div_ceil(BLOCK));
        for i in first..last {
            let (first, n) = (i % blocks * BLOCK, BLOCK.min(axis.size - i % blocks * BLOCK));
            axis.outer.for_runs(i / blocks, i / blocks + 1, |run| {
                let to = to.get().wrapping_offset(run.offsets[0] + first as isize * axis.to_step);
                let from = from.get().wrapping_offset(run.offsets[1] + first as isize * axis.from_step);
                let mut pace = Pace::default();
                for depth in (0..deep).step_by(BLOCK) {
                    let m = BLOCK.min(deep - depth);
                    pace.advance(n * m);
                    let to = to.wrapping_offset(depth as isize * dense);
                    let from = from.wrapping_offset(depth as isize * from_step);
                    // SAFETY: `first + n <= axis.size` and `depth + m <= deep`, so the block lies within both layouts,
                    // and nobody else writes it.
                    unsafe { transpose_block((to, axis.to_step), (from, axis.from_step, from_step), (n, m), size) };
                }
            });
        }
    }
}

/// Transposes a block: copies `n` by `m` elements of a source to rows that are contiguous. Both steps of the source are
/// in bytes: `from_row` is that of an element or of two, and columns lie `from_column` apart.
///
/// # Safety
/// Both are valid for the block, aligned to `size`, and do not overlap.
unsafe fn transpose_block(
    (to, to_row): (*mut u8, isize),
    (from, from_row, from_column): (*const u8, isize, isize),
    (n, m): (usize, usize),
    size: usize,
) {
    /// # Safety
    /// Same as for [`transpose_block`]; rows of the source lie `APART` elements apart.
    #[inline(always)]
    unsafe fn typed<T: Copy, const APART: usize>(
        (to, to_row): (*mut u8, isize),
        (from, from_column): (*const u8, isize),
        (n, m): (usize, usize),
    ) {
        // Four rows at a time, so that four consecutive loads read each cache line of the source.
        let mut i = 0;
        // SAFETY: by the contract of `transpose_block` both blocks are valid for `n` by `m` elements and aligned to
        // `size`.
        unsafe {
            while i + 4 <= n {
                let rows: [*mut T; 4] =
                    std::array::from_fn(|r| to.wrapping_offset((i + r) as isize * to_row).cast::<T>());
                for j in 0..m {
                    let column = from.wrapping_offset(j as isize * from_column).cast::<T>().add(i * APART);
                    rows[0].add(j).write(column.read());
                    rows[1].add(j).write(column.add(APART).read());
                    rows[2].add(j).write(column.add(2 * APART).read());
                    rows[3].add(j).write(column.add(3 * APART).read());
                }
                i += 4;
            }
            while i < n {
                let row = to.wrapping_offset(i as isize * to_row).cast::<T>();
                for j in 0..m {
                    row.add(j).write(from.wrapping_offset(j as isize * from_column).cast::<T>().add(i * APART).read());
                }
                i += 1;
            }
        }
    }
    /// # Safety
    /// Same as for [`transpose_block`], with elements of type `T`.
    #[inline(always)]
    unsafe fn of_type<T: Copy>(to: (*mut u8, isize), from: (*const u8, isize, isize), block: (usize, usize)) {
        let columns = (from.0, from.2);
        // SAFETY: the contract is the same; `from_row` is the step of one or of two elements.
        unsafe {
            if from.1 == size_of::<T>() as isize {
                typed::<T, 1>(to, columns, block);
            } else {
                typed::<T, 2>(to, columns, block);
            }
        }
    }
    debug_assert!(from_row == size as isize || from_row == 2 * size as isize);
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if size == 4 && n.is_multiple_of(8) && m.is_multiple_of(8) && is_x86_feature_detected!("avx") {
        for i in (0..n as isize).step_by(8) {
            for j in (0..m as isize).step_by(8) {
                let to = to.wrapping_offset(i * to_row + j * size as isize);
                let from = from.wrapping_offset(j * from_column + i * from_row);
                // SAFETY: this 8 by 8 block lies within the `n` by `m` block of this function's contract, and the CPU
                // has AVX, as the condition above checked.
                unsafe {
                    if from_row == size as isize {
                        transpose_8x8::<false>(to, to_row, from, from_column);
                    } else {
                        transpose_8x8::<true>(to, to_row, from, from_column);
                    }
                }
            }
        }
        return;
    }
    let (to, from, block) = ((to, to_row), (from, from_row, from_column), (n, m));
    // SAFETY: this function's contract is that of `of_type`, with elements of `size` bytes.
    unsafe {
        match size {
            1 => of_type::<u8>(to, from, block),
            2 => of_type::<u16>(to, from, block),
            4 => of_type::<u32>(to, from, block),
            _ => of_type::<u64>(to, from, block),
        }
    }
}

/// [`transpose_block`] of 8 by 8 elements of four bytes, by shuffles between registers. With `PAIRS`, rows of the
/// source lie two elements apart.
///
/// # Safety
/// Same as for [`transpose_block`]; the machine has AVX.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "avx")]
unsafe fn transpose_8x8<const PAIRS: bool>(to: *mut u8, to_row: isize, from: *const u8, from_column: isize) {
    use std::arch::x86_64::{
        __m256, _mm256_loadu_ps, _mm256_permute2f128_ps, _mm256_shuffle_ps, _mm256_storeu_ps, _mm256_unpackhi_ps,
        _mm256_unpacklo_ps,
    };
    /// The rows that a column's registers hold: one of each pair is taken in this order, as AVX moves nothing across
    /// the middle of a register.
    const ROWS_OF_PAIRS: [isize; 8] = [0, 1, 4, 5, 2, 3, 6, 7];
    /// # Safety
    /// Eight elements of 4 bytes are at `column`, or with `PAIRS` fifteen; the machine has AVX.
    #[inline]
    #[target_feature(enable = "avx")]
    unsafe fn load<const PAIRS: bool>(column: *const f32) -> __m256 {
        // SAFETY: this function's contract covers what is read; a load needs no alignment.
        unsafe {
            if PAIRS {
                _mm256_shuffle_ps::<0xd8>(_mm256_loadu_ps(column), _mm256_loadu_ps(column.add(7)))
            } else {
                _mm256_loadu_ps(column)
            }
        }
    }
    let column = |i: isize| from.wrapping_offset(i * from_column).cast::<f32>();
    // SAFETY: each of the eight columns has eight elements of 4 bytes, which with `PAIRS` are fifteen from the first to
    // the last.
    let c = unsafe {
        [
            load::<PAIRS>(column(0)),
            load::<PAIRS>(column(1)),
            load::<PAIRS>(column(2)),
            load::<PAIRS>(column(3)),
            load::<PAIRS>(column(4)),
            load::<PAIRS>(column(5)),
            load::<PAIRS>(column(6)),
            load::<PAIRS>(column(7)),
        ]
    };
    // Interleave pairs, then groups of four within each 128-bit half, then exchange the halves.
    let (a0, a1) = (_mm256_unpacklo_ps(c[0], c[1]), _mm256_unpackhi_ps(c[0], c[1]));
    let (a2, a3) = (_mm256_unpacklo_ps(c[2], c[3]), _mm256_unpackhi_ps(c[2], c[3]));
    let (a4, a5) = (_mm256_unpacklo_ps(c[4], c[5]), _mm256_unpackhi_ps(c[4], c[5]));
    let (a6, a7) = (_mm256_unpacklo_ps(c[6], c[7]), _mm256_unpackhi_ps(c[6], c[7]));
    let (b0, b1) = (_mm256_shuffle_ps::<0x44>(a0, a2), _mm256_shuffle_ps::<0xee>(a0, a2));
    let (b2, b3) = (_mm256_shuffle_ps::<0x44>(a1, a3), _mm256_shuffle_ps::<0xee>(a1, a3));
    let (b4, b5) = (_mm256_shuffle_ps::<0x44>(a4, a6), _mm256_shuffle_ps::<0xee>(a4, a6));
    let (b6, b7) = (_mm256_shuffle_ps::<0x44>(a5, a7), _mm256_shuffle_ps::<0xee>(a5, a7));
    let rows = [
        _mm256_permute2f128_ps::<0x20>(b0, b4),
        _mm256_permute2f128_ps::<0x20>(b1, b5),
        _mm256_permute2f128_ps::<0x20>(b2, b6),
        _mm256_permute2f128_ps::<0x20>(b3, b7),
        _mm256_permute2f128_ps::<0x31>(b0, b4),
        _mm256_permute2f128_ps::<0x31>(b1, b5),
        _mm256_permute2f128_ps::<0x31>(b2, b6),
        _mm256_permute2f128_ps::<0x31>(b3, b7),
    ];
    for (i, row) in (0..).zip(rows) {
        let place = if PAIRS { ROWS_OF_PAIRS[i as usize] } else { i };
        // SAFETY: each of the eight rows has room for eight elements of 4 bytes; the store needs no alignment.
        unsafe { _mm256_storeu_ps(to.offset(place * to_row).cast(), row) };
    }
}

/// Copies bytes, on several threads when that pays.
///
/// # Errors
/// A panic in a chunk.
///
/// # Safety
/// Both ranges are valid and do not overlap.
pub unsafe fn copy_bytes(pool: &mut ThreadPool, to: *mut u8, from: *const u8, bytes: usize) -> Result<(), ExecError> {
    let (to, from) = (SharedPtr::new(to), SharedPtr::new(from.cast_mut()));
    in_chunks(pool, bytes, 1, |first, last| {
        // SAFETY: `first..last` lies within `bytes`, for which both ranges are valid and disjoint; each chunk writes
        // its own range.
        unsafe { copy_nonoverlapping(from.get().add(first), to.get().add(first), last - first) }
    })
}

/// Like [`copy_bytes`], with non-temporal stores that bypass the caches.
///
/// # Errors
/// A panic in a chunk.
///
/// # Safety
/// Same as for [`copy_bytes`].
pub unsafe fn stream_bytes(pool: &mut ThreadPool, to: *mut u8, from: *const u8, bytes: usize) -> Result<(), ExecError> {
    let (to, from) = (SharedPtr::new(to), SharedPtr::new(from.cast_mut()));
    in_chunks(pool, bytes, 1, |first, last| {
        // SAFETY: `first..last` lies within `bytes`, for which both ranges are valid and disjoint; each chunk writes
        // its own range.
        unsafe { stream(to.get().add(first), from.get().add(first), last - first) };
        stream_end();
    })
}

/// Copies bytes by non-temporal stores, which bypass the caches; [`stream_end`] makes them visible to other threads.
///
/// # Safety
/// Same as for [`std::ptr::copy_nonoverlapping`].
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
pub unsafe fn stream(to: *mut u8, from: *const u8, bytes: usize) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
    const STEP: usize = size_of::<__m128i>();
    // SAFETY: `i * STEP < bytes`, for which both ranges are valid and disjoint; `to` is aligned to `STEP`, or
    // `streamed` is 0.
    unsafe {
        let streamed = if to.align_offset(STEP) == 0 { bytes / STEP } else { 0 };
        for i in 0..streamed {
            _mm_stream_si128(to.cast::<__m128i>().add(i), _mm_loadu_si128(from.cast::<__m128i>().add(i)));
        }
        let done = streamed * STEP;
        to.add(done).copy_from_nonoverlapping(from.add(done), bytes - done);
    }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
#[inline]
pub unsafe fn stream(to: *mut u8, from: *const u8, bytes: usize) {
    // SAFETY: this function has the contract of `copy_nonoverlapping`.
    unsafe { to.copy_from_nonoverlapping(from, bytes) }
}

/// Orders the stores of [`stream`] before everything this thread does afterwards.
#[inline]
pub fn stream_end() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: `sfence` is part of SSE, which every x86-64 CPU has.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

/// The number of elements in a chunk if each takes as long as the copy of `size` bytes.
fn chunk_elements(size: usize) -> usize {
    (CHUNK_BYTES / size).max(TILE)
}

/// Calls `range(first, last)` on parts of `0..elements`, on several threads when that pays. An element takes as long as
/// the copy of `size` bytes.
///
/// # Errors
/// A panic in a call.
pub fn in_chunks(
    pool: &mut ThreadPool,
    elements: usize,
    size: usize,
    range: impl Fn(usize, usize) + Sync,
) -> Result<(), ExecError> {
    if !pool.pays(elements * size / BYTES_PER_NS) {
        range(0, elements);
        return Ok(());
    }
    let chunk = chunk_elements(size);
    pool.run(elements.div_ceil(chunk), &|i| range(i * chunk, ((i + 1) * chunk).min(elements)))
}

/// Calls `chunk` with each of `0..chunks`, on several threads when that pays. All take as long as the copy of `bytes`,
/// which is 60 in a nanosecond.
///
/// # Errors
/// A panic in a call.
pub fn run_or_not(
    pool: &mut ThreadPool,
    bytes: usize,
    chunks: usize,
    chunk: &(dyn Fn(usize) + Sync),
) -> Result<(), ExecError> {
    if !pool.pays(bytes / BYTES_PER_NS) {
        (0..chunks).for_each(chunk);
        return Ok(());
    }
    pool.run(chunks, chunk)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A transpose of the second parts of `rows` by `columns` pairs, elements of type `T`; the last part is the last
    /// element of its allocation.
    fn transposed_parts<T: Copy + PartialEq + std::fmt::Debug>(
        rows: usize,
        columns: usize,
        number: impl Fn(usize) -> T,
    ) {
        let pairs: Vec<T> = (0..2 * rows * columns).map(number).collect();
        let mut out = vec![pairs[0]; rows * columns];
        let (shape, size) = (Shape::new(&[columns, rows]).unwrap(), size_of::<T>());
        let bytes = |strides: [usize; 2]| {
            let mut all = [0; RANK_MAX];
            all.iter_mut().zip(strides).for_each(|(stride, elements)| *stride = (elements * size) as isize);
            all
        };
        let (to, from) = (bytes([rows, 1]), bytes([2, 2 * columns]));
        // SAFETY: the strides reach all elements of `out`, and of `pairs` from the second to the last.
        unsafe {
            let copy = StridedCopy::new(
                &shape,
                size,
                (out.as_mut_ptr().cast(), &to),
                (pairs.as_ptr().wrapping_add(1).cast(), &from),
            );
            assert_eq!(copy.turned.is_some(), columns >= BLOCK / 4 && rows > 1);
            copy.part(0, copy.units());
        }
        for (i, element) in out.into_iter().enumerate() {
            assert_eq!(element, pairs[2 * (i % rows * columns + i / rows) + 1], "{rows} by {columns} at {i}");
        }
    }

    #[test]
    fn parts_of_pairs_are_transposed_in_blocks() {
        for (rows, columns) in [(1, 40), (3, 7), (16, 8), (33, 35), (40, 64), (67, 9)] {
            transposed_parts(rows, columns, |i| i as u8);
            transposed_parts(rows, columns, |i| i as u16);
            transposed_parts(rows, columns, |i| i as u32);
            transposed_parts(rows, columns, |i| i as u64);
        }
    }
}
