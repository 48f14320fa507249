//! Matrix products, by the `gemm` crates for floats.

use crate::pool::Pool;
use gemm_common::Parallelism;
use gt_backend::ExecError;
use gt_ops::DType;
use gt_ops::math::Int;

/// Products that one thread adds up in a nanosecond: of floats, and of integers.
const FLOATS_PER_NS: usize = 64;
const INTEGERS_PER_NS: usize = 4;
/// Threads share a product along blocks of this many rows or columns.
const BLOCK: usize = 64;

/// One operand or the result: where it is and how far apart its rows and columns are, in elements.
#[derive(Clone, Copy, Debug)]
pub struct Matrix {
    /// The element at (0, 0).
    pub ptr: *mut u8,
    /// From a row to the next.
    pub row_step: isize,
    /// From a column to the next.
    pub column_step: isize,
}

// SAFETY: whoever dereferences the pointer answers for the accesses not overlapping.
unsafe impl Sync for Matrix {}

impl Matrix {
    /// Rows for columns.
    pub fn transposed(self) -> Matrix {
        Matrix { row_step: self.column_step, column_step: self.row_step, ..self }
    }
    /// From an element on, elements being of `size` bytes.
    pub fn at(self, row: usize, column: usize, size: usize) -> Matrix {
        let elements = row as isize * self.row_step + column as isize * self.column_step;
        Matrix { ptr: self.ptr.wrapping_offset(elements * size as isize), ..self }
    }
}

/// `out = a b` for `batches` matrices of `m` by `k` and `k` by `n`.
pub struct Product<'a> {
    /// The dtype of all three; half precisions are widened before.
    pub dtype: DType,
    /// Rows of the result.
    pub m: usize,
    /// The length of the sums.
    pub k: usize,
    /// Columns of the result.
    pub n: usize,
    /// How many.
    pub batches: usize,
    /// The vector registers hold several rows of the result, rather than several columns.
    pub rows_in_registers: bool,
    /// The three matrices of each batch: result, a, b.
    pub matrices: &'a (dyn Fn(usize) -> [Matrix; 3] + Sync),
}

impl Product<'_> {
    /// Computes it.
    ///
    /// # Errors
    /// A panic in a chunk.
    ///
    /// # Safety
    /// The matrices are valid for their elements; results overlap nothing.
    pub unsafe fn run(&self, pool: &mut Pool) -> Result<(), ExecError> {
        let &Product { m, n, k, batches, dtype, rows_in_registers, .. } = self;
        // SAFETY: the caller's promise.
        let one = |m, n, matrices| unsafe { one(dtype, (m, n, k), matrices, rows_in_registers, false) };
        let products = m.saturating_mul(n).saturating_mul(k.max(1));
        let threads = pool.threads();
        let rate = if dtype.is_float() { FLOATS_PER_NS } else { INTEGERS_PER_NS };
        if !pool.pays(products.saturating_mul(batches) / rate) {
            (0..batches).for_each(|i| one(m, n, (self.matrices)(i)));
            return Ok(());
        }
        if batches >= 2 * threads {
            // Batches are disjoint.
            return pool.run(batches, &|i| one(m, n, (self.matrices)(i)));
        }
        // The longer side of the result is shared out: the operand of the other side is packed by each thread.
        let by_rows = m > n;
        let side = if by_rows { m } else { n };
        let piece = side.div_ceil(threads).next_multiple_of(BLOCK).min(side);
        let pieces = side.div_ceil(piece);
        pool.run(batches * pieces, &|i| {
            let [out, a, b] = (self.matrices)(i / pieces);
            let first = i % pieces * piece;
            let len = piece.min(side - first);
            let size = dtype.size();
            // Pieces are disjoint.
            if by_rows {
                one(len, n, [out.at(first, 0, size), a.at(first, 0, size), b]);
            } else {
                one(m, len, [out.at(0, first, size), a, b.at(0, first, size)]);
            }
        })
    }
}

/// One product of `m` by `k` and `k` by `n`, added to what is there if `onto`, which only floats can be.
///
/// # Safety
/// As [`Product::run`].
pub unsafe fn one(
    dtype: DType,
    (m, n, k): (usize, usize, usize),
    matrices: [Matrix; 3],
    rows_in_registers: bool,
    onto: bool,
) {
    // The float kernels' registers hold several elements of a column: those of the transposed product, a row.
    let ([out, left, right], m, n) = if rows_in_registers {
        (matrices, m, n)
    } else {
        let [out, right, left] = matrices.map(Matrix::transposed);
        ([out, left, right], n, m)
    };
    macro_rules! gemm {
        ($t:ty, $f:path) => {
            // SAFETY: the caller's promise.
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
        DType::F32 => gemm!(f32, gemm_f32::gemm::f32::get_gemm_fn),
        DType::F64 => gemm!(f64, gemm_f64::gemm::f64::get_gemm_fn),
        // SAFETY: the caller's promise.
        DType::U8 | DType::Bool => unsafe { integers::<u8>(m, n, k, out, left, right) },
        // SAFETY: the caller's promise.
        DType::I8 => unsafe { integers::<i8>(m, n, k, out, left, right) },
        // SAFETY: the caller's promise.
        DType::I16 | DType::F16 | DType::BF16 => unsafe { integers::<i16>(m, n, k, out, left, right) },
        // SAFETY: the caller's promise.
        DType::I32 => unsafe { integers::<i32>(m, n, k, out, left, right) },
        // SAFETY: the caller's promise.
        DType::I64 => unsafe { integers::<i64>(m, n, k, out, left, right) },
    }
}

/// Terms of the sums, and rows of the result, that integers are multiplied in blocks of: the left operand's stay in L2.
const INTEGER_TERMS: usize = 64;
const INTEGER_ROWS: usize = 2048;

/// # Safety
/// As [`Product::run`].
unsafe fn integers<I: Int>(m: usize, n: usize, k: usize, out: Matrix, a: Matrix, b: Matrix) {
    let (to, left, right) = (out.ptr.cast::<I>(), a.ptr.cast::<I>(), b.ptr.cast::<I>());
    let at = |of: Matrix, row: usize, column: usize| row as isize * of.row_step + column as isize * of.column_step;
    let rows = INTEGER_ROWS.min(m);
    let mut panel = vec![I::ZERO; INTEGER_TERMS * rows];
    let mut sums = vec![I::ZERO; rows];
    // The result starts as 0, since there may be no terms at all.
    let blocks =
        (0..m).step_by(INTEGER_ROWS).flat_map(|row| (0..k.max(1)).step_by(INTEGER_TERMS).map(move |term| (row, term)));
    for (top, first) in blocks {
        let (rows, terms) = (INTEGER_ROWS.min(m - top), INTEGER_TERMS.min(k - first));
        // SAFETY: the caller's promise.
        unsafe {
            // The left operand's columns, each contiguous.
            for (term, column) in panel.chunks_exact_mut(rows).enumerate().take(terms) {
                for (row, x) in column.iter_mut().enumerate() {
                    *x = left.offset(at(a, top + row, first + term)).read();
                }
            }
            for column in 0..n {
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
