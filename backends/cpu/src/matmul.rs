//! Matrix products: floats by the `gemm` crates (packed panels as in GotoBLAS, Goto & van de Geijn 2008, and BLIS),
//! integers by a packed loop of our own.

use crate::backend::{CpuBackend, Result};
use crate::checkpoint::checkpoint;
use crate::tensor::CpuTensor;
use crate::thread_pool::ThreadPool;
use gemm_common::Parallelism;
use gt_backend::{ExecError, Loops};
use gt_ops::math::Int;
use gt_ops::{DType, Meta, RANK_MAX, Shape};

/// Multiply-adds of one thread per nanosecond, of floats and of integers.
const FLOATS_PER_NS: usize = 64;
const INTEGERS_PER_NS: usize = 4;
/// Products with fewer rows read a transposed right operand in place, since they read it only once.
const TRANSPOSED_ROWS_MIN: usize = 4;
/// A product of at most this many rows with a transposed right operand of at most this many bytes, which stays in L2,
/// holds rows of the result in the vector registers: elements of the right operand are broadcast from memory, without
/// transposing or packing.
const FEW_ROWS_MAX: usize = 32;
const FEW_ROWS_OPERAND_BYTES_MAX: usize = 1 << 20;
/// A product is computed in blocks of at most this many rows or columns, and of at most this many terms, with a
/// checkpoint before each. Smaller blocks would pack the operands more often, which takes a noticeable part of the
/// time.
const SIDE_MAX: usize = 1024;
const TERMS_MAX: usize = 512;
/// A block of more multiply-adds than this, which take two or three milliseconds in f32, is only so wide along the side
/// of which a vector register holds several elements. The `gemm` crates do not pack the other operand for a block that
/// is no wider: such blocks take from 4 % less time to 1 % more than those of [`SIDE_MAX`]; twice as wide ones take 5 %
/// more.
const PRODUCTS_MAX: usize = 64 << 20;
const NARROW_SIDE: usize = 128;
/// Threads divide a product at multiples of this many rows or columns.
const BLOCK: usize = 64;

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

// SAFETY: the type only carries the address; `BatchedMatmul::run` gives each thread its own part of the result.
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

/// `out = a b` for `batches` matrices of `m` by `k` and `k` by `n`.
pub struct BatchedMatmul<'a> {
    /// The dtype of all three matrices; half precisions are widened first.
    pub dtype: DType,
    /// Rows of the result.
    pub m: usize,
    /// Columns of `a` and rows of `b`: the length of the sums.
    pub k: usize,
    /// Columns of the result.
    pub n: usize,
    /// The number of products.
    pub batches: usize,
    /// Whether a vector register holds several rows of the result, rather than several columns.
    pub rows_in_registers: bool,
    /// The three matrices of a batch: result, `a`, `b`.
    pub matrices: &'a (dyn Fn(usize) -> [StridedMatrix; 3] + Sync),
}

impl BatchedMatmul<'_> {
    /// Computes all products.
    ///
    /// # Errors
    /// A panic in a chunk.
    ///
    /// # Safety
    /// The matrices are valid for all their elements, and no result overlaps another matrix.
    pub unsafe fn run(&self, pool: &mut ThreadPool) -> Result<()> {
        let &BatchedMatmul { m, n, k, batches, dtype, rows_in_registers, .. } = self;
        // SAFETY: each call gets a part of the result that no other call writes, of matrices that are valid by this
        // function's contract.
        let one = |m, n, matrices| unsafe { one(dtype, (m, n, k), matrices, rows_in_registers, false) };
        let products = m.saturating_mul(n).saturating_mul(k.max(1));
        let threads = pool.threads();
        let rate = if dtype.is_float() { FLOATS_PER_NS } else { INTEGERS_PER_NS };
        if !pool.pays(products.saturating_mul(batches) / rate) {
            (0..batches).for_each(|i| one(m, n, (self.matrices)(i)));
            return Ok(());
        }
        if batches >= 2 * threads {
            // Each batch writes its own result.
            return pool.run(batches, &|i| one(m, n, (self.matrices)(i)));
        }
        // Threads divide the longer side of the result; each packs the operand of the other side for itself.
        let by_rows = m > n;
        let side = if by_rows { m } else { n };
        let piece = side.div_ceil(threads).next_multiple_of(BLOCK).min(side);
        let pieces = side.div_ceil(piece);
        pool.run(batches * pieces, &|i| {
            let [out, a, b] = (self.matrices)(i / pieces);
            let first = i % pieces * piece;
            let len = piece.min(side - first);
            let size = dtype.size();
            // Each piece writes its own rows or columns.
            if by_rows {
                one(len, n, [out.at(first, 0, size), a.at(first, 0, size), b]);
            } else {
                one(m, len, [out.at(0, first, size), a, b.at(0, first, size)]);
            }
        })
    }
}

/// One product of an `m` by `k` and a `k` by `n` matrix; with `onto` (floats only) it is added to the result's
/// elements.
///
/// # Safety
/// Same as for [`BatchedMatmul::run`].
pub unsafe fn one(
    dtype: DType,
    (m, n, k): (usize, usize, usize),
    matrices: [StridedMatrix; 3],
    rows_in_registers: bool,
    onto: bool,
) {
    let (rows, columns, terms) = if !dtype.is_float() {
        // The loop for integers has checkpoints of its own.
        (usize::MAX, usize::MAX, usize::MAX)
    } else if m.min(SIDE_MAX) * n.min(SIDE_MAX) * k.min(TERMS_MAX) <= PRODUCTS_MAX {
        (SIDE_MAX, SIDE_MAX, TERMS_MAX)
    } else if rows_in_registers {
        (NARROW_SIDE, SIDE_MAX, TERMS_MAX)
    } else {
        (SIDE_MAX, NARROW_SIDE, TERMS_MAX)
    };
    if m <= rows && n <= columns && k <= terms {
        checkpoint();
        // SAFETY: the contract is the same.
        return unsafe { block(dtype, (m, n, k), matrices, rows_in_registers, onto) };
    }
    let ([out, a, b], size) = (matrices, dtype.size());
    for column in (0..n).step_by(columns) {
        for term in (0..k.max(1)).step_by(terms) {
            for row in (0..m).step_by(rows) {
                checkpoint();
                let sizes = (rows.min(m - row), columns.min(n - column), terms.min(k - term));
                let matrices = [out.at(row, column, size), a.at(row, term, size), b.at(term, column, size)];
                // SAFETY: the block lies within the matrices of this function's contract.
                unsafe { block(dtype, sizes, matrices, rows_in_registers, onto || term > 0) };
            }
        }
    }
}

/// One block of a product; see [`one`].
///
/// # Safety
/// Same as for [`one`].
unsafe fn block(
    dtype: DType,
    (m, n, k): (usize, usize, usize),
    matrices: [StridedMatrix; 3],
    rows_in_registers: bool,
    onto: bool,
) {
    // The kernels hold several elements of a column in a register. To hold several elements of a row instead, they
    // compute the transposed product b^T a^T = (a b)^T.
    let ([out, left, right], m, n) = if rows_in_registers {
        (matrices, m, n)
    } else {
        let [out, right, left] = matrices.map(StridedMatrix::transposed);
        ([out, left, right], n, m)
    };
    macro_rules! gemm {
        ($t:ty, $f:path) => {
            // SAFETY: the matrices are valid for `m`, `n` and `k` by this function's contract, and strides are in
            // elements of the type.
            unsafe {
                ($f())(
                    m,
                    n,
                    k,
                    out.ptr.cast::<$t>(),
                    out.column_step,
                    out.row_step,
                    onto,
                    left.ptr.cast_const().cast::<$t>(),
                    left.column_step,
                    left.row_step,
                    right.ptr.cast_const().cast::<$t>(),
                    right.column_step,
                    right.row_step,
                    <$t>::from(onto as i8),
                    <$t>::from(1i8),
                    false,
                    false,
                    false,
                    Parallelism::None,
                )
            }
        };
    }
    match dtype {
        DType::F32 | DType::C64 => gemm!(f32, gemm_f32::gemm::f32::get_gemm_fn),
        DType::F64 | DType::C128 => gemm!(f64, gemm_f64::gemm::f64::get_gemm_fn),
        // SAFETY: the matrices are valid for `m`, `n` and `k` by this function's contract.
        DType::U8 | DType::Bool => unsafe { integers::<u8>(m, n, k, out, left, right) },
        // SAFETY: the matrices are valid for `m`, `n` and `k` by this function's contract.
        DType::I8 => unsafe { integers::<i8>(m, n, k, out, left, right) },
        // SAFETY: the matrices are valid for `m`, `n` and `k` by this function's contract.
        DType::I16 | DType::U16 | DType::F16 | DType::BF16 => unsafe { integers::<i16>(m, n, k, out, left, right) },
        // SAFETY: the matrices are valid for `m`, `n` and `k` by this function's contract.
        DType::I32 | DType::U32 => unsafe { integers::<i32>(m, n, k, out, left, right) },
        // SAFETY: the matrices are valid for `m`, `n` and `k` by this function's contract.
        DType::I64 | DType::U64 => unsafe { integers::<i64>(m, n, k, out, left, right) },
    }
}

/// Integer products are computed in blocks of this many terms and rows: the packed block of the left operand stays in
/// L2.
const INTEGER_TERMS: usize = 64;
const INTEGER_ROWS: usize = 2048;

/// # Safety
/// Same as for [`BatchedMatmul::run`].
unsafe fn integers<I: Int>(m: usize, n: usize, k: usize, out: StridedMatrix, a: StridedMatrix, b: StridedMatrix) {
    let (to, left, right) = (out.ptr.cast::<I>(), a.ptr.cast::<I>(), b.ptr.cast::<I>());
    let at =
        |of: StridedMatrix, row: usize, column: usize| row as isize * of.row_step + column as isize * of.column_step;
    let rows = INTEGER_ROWS.min(m);
    let mut panel = vec![I::ZERO; INTEGER_TERMS * rows];
    let mut sums = vec![I::ZERO; rows];
    // There is at least one block of terms, so that a result without terms is set to 0.
    let blocks =
        (0..m).step_by(INTEGER_ROWS).flat_map(|row| (0..k.max(1)).step_by(INTEGER_TERMS).map(move |term| (row, term)));
    for (top, first) in blocks {
        let (rows, terms) = (INTEGER_ROWS.min(m - top), INTEGER_TERMS.min(k - first));
        // SAFETY: `top + row < m`, `first + term < k` and `column < n`, for which the matrices are valid by the
        // contract of `BatchedMatmul::run`.
        unsafe {
            // Pack the block of the left operand by columns.
            for (term, column) in panel.chunks_exact_mut(rows).enumerate().take(terms) {
                for (row, x) in column.iter_mut().enumerate() {
                    *x = left.offset(at(a, top + row, first + term)).read();
                }
            }
            for column in 0..n {
                checkpoint();
                let sums = &mut sums[..rows];
                sums.fill(I::ZERO);
                for (term, values) in panel.chunks_exact(rows).enumerate().take(terms) {
                    let factor = right.offset(at(b, first + term, column)).read();
                    for (sum, x) in sums.iter_mut().zip(values) {
                        *sum = sum.wrapping_add(factor.wrapping_mul(*x));
                    }
                }
                for (row, sum) in sums.iter().enumerate() {
                    let place = to.offset(at(out, top + row, column));
                    place.write(if first == 0 { *sum } else { place.read().wrapping_add(*sum) });
                }
            }
        }
    }
}

impl CpuBackend {
    pub(crate) fn matmul(&mut self, a: &CpuTensor, b: &CpuTensor, out: &Meta) -> Result<CpuTensor> {
        if a.meta.dtype.is_half() {
            // The conversions cost little beside the products, and PyTorch accumulates half precisions in f32 too.
            let wide = |t: &CpuTensor| Meta::new(t.meta.shape, DType::F32);
            let (wide_a, wide_b) = (self.cast(a, &wide(a), 0)?, self.cast(b, &wide(b), 0)?);
            let product = self.matmul(&wide_a, &wide_b, &Meta::new(out.shape, DType::F32))?;
            return if out.dtype == DType::F32 { Ok(product) } else { self.cast(&product, out, 0) };
        }
        let few_rows = a.numel() / a.meta.shape.dims().last().map_or(1, |k| *k).max(1) <= FEW_ROWS_MAX
            && b.meta.bytes() <= FEW_ROWS_OPERAND_BYTES_MAX;
        let transposed = by_columns(b);
        if transposed && !few_rows && out.shape.dims()[out.shape.rank() - 2] >= TRANSPOSED_ROWS_MIN {
            // One transposed copy costs less than packing across the columns, which the kernel would do.
            let turned = self.contiguous(b)?;
            return self.matmul(a, &turned, out);
        }
        let result = self.new_tensor(out)?;
        if out.shape.numel() == 0 {
            return Ok(result);
        }
        let rank = out.shape.rank();
        let (lead, size) = (rank - 2, out.dtype.size());
        let (m, n, k) =
            (out.shape.dims()[lead], out.shape.dims()[lead + 1], a.meta.shape.dims()[a.meta.shape.rank() - 1]);
        let step = |t: &CpuTensor, from_right: usize| t.strides[t.meta.shape.rank() - from_right] / size as isize;
        let matrix = |t: &CpuTensor| StridedMatrix { ptr: t.ptr(), row_step: step(t, 2), column_step: step(t, 1) };
        let [to, left, right] = [matrix(&result), matrix(a), matrix(b)];
        let batch = Shape::new(&out.shape.dims()[..lead]).map_err(|e| ExecError::internal(e.to_string()))?;
        let batches = batch.numel();
        let leading = |t: &CpuTensor| {
            let mut strides = [0; RANK_MAX];
            let own = t.meta.shape.rank() - 2;
            for axis in 0..own {
                if t.meta.shape.dims()[axis] != 1 {
                    strides[lead - own + axis] = t.strides[axis];
                }
            }
            strides
        };
        let strides = [leading(&result), leading(a), leading(b)];
        let loops = Loops::new(&batch, strides.each_ref());
        // A batch of matrices with evenly spaced rows times a single matrix is the product of one tall matrix.
        let [_, left_step, right_step] = loops.inner_strides();
        let tall = batches > 1
            && loops.sizes().len() == 1
            && right_step == 0
            && left_step == left.row_step * (m * size) as isize;
        let (m, batches) = if tall { (m * batches, 1) } else { (m, batches) };
        let matrices = |i: usize| {
            let mut offsets = [0; 3];
            if batches > 1 {
                loops.for_runs(i, i + 1, |run| offsets = run.offsets);
            }
            let moved = |m: StridedMatrix, offset: isize| StridedMatrix { ptr: m.ptr.wrapping_offset(offset), ..m };
            [moved(to, offsets[0]), moved(left, offsets[1]), moved(right, offsets[2])]
        };
        let rows_in_registers = few_rows && transposed;
        let product = BatchedMatmul { dtype: out.dtype, m, n, k, batches, rows_in_registers, matrices: &matrices };
        // SAFETY: the matrices are those of tensors whose shapes inference checked; `result` was just allocated.
        unsafe { product.run(&mut self.pool)? };
        Ok(result)
    }
}

/// Whether the columns of a large f32 matrix are contiguous, and not its rows.
fn by_columns(t: &CpuTensor) -> bool {
    let (rank, size) = (t.meta.shape.rank(), t.size());
    let dims = t.meta.shape.dims();
    let dense = |axis: usize| t.strides[axis] == size as isize;
    size == 4 && dims[rank - 1] >= 16 && dims[rank - 2] >= 16 && dense(rank - 2) && !dense(rank - 1)
}
