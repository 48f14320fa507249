//! Products of a few rows with the transpose of a large matrix, as those of generated text. They take as long as it
//! takes to read the matrix: its elements are read once, in their order, and nothing is packed or converted in memory.

#![expect(clippy::needless_range_loop, reason = "iterators over vectors are not inlined into functions of a level")]

use crate::backend::Result;
use crate::checkpoint::checkpoint;
use crate::kernels::{Kernel, SimdLevel};
use crate::register_tiles::{LANES_MAX, SimdVector, Tiled};
use crate::strided::{BiasRow, StridedMatrix};
use crate::thread_pool::ThreadPool;
use gt_ops::DType;

/// The largest number of rows of the left operand.
pub const ROWS_MAX: usize = 8;
/// Sums of fewer terms are left to the kernels for all products.
pub const TERMS_MIN: usize = 64;
/// The bytes of the right operand that a thread reads before it asks for more work.
const CHUNK_BYTES: usize = 256 << 10;
/// The bytes that one thread reads in a nanosecond.
const BYTES_PER_NS: usize = 10;

/// `out = a b`, where the elements of a column of `b` are contiguous, and those of a row of `a` and of `out`.
pub struct FewRows {
    /// The dtype of `b`. `a` has the dtype of the sums: f64, or f32 for all others.
    pub dtype: DType,
    /// Rows of the result, at most [`ROWS_MAX`].
    pub m: usize,
    /// The number of terms of each sum.
    pub k: usize,
    /// Columns of the result.
    pub n: usize,
    /// The conversion of sums to elements of the result, unless these are the sums.
    pub narrow: Option<Kernel>,
    /// A bias of the dtype of the sums, which is added to each row.
    pub bias: Option<BiasRow>,
    /// Result, `a` and `b`.
    pub matrices: [StridedMatrix; 3],
}

/// The elements of the right operand as vectors of the sums' dtype.
trait Elements<V: SimdVector> {
    type Stored: Copy;
    /// # Safety
    /// `from` is valid for a vector, and the machine has its instructions.
    unsafe fn load(from: *const Self::Stored) -> V;
    /// The first `n` elements, fewer than a vector has, and zeros.
    ///
    /// # Safety
    /// `from` is valid for `n` elements, and the machine has the vector's instructions.
    unsafe fn load_first(from: *const Self::Stored, n: usize) -> V;
}

/// Elements of the dtype of the sums.
struct Same;

impl<V: SimdVector> Elements<V> for Same {
    type Stored = V::E;
    #[inline(always)]
    unsafe fn load(from: *const V::E) -> V {
        // SAFETY: the contract is the same.
        unsafe { V::load(from) }
    }
    #[inline(always)]
    unsafe fn load_first(from: *const V::E, n: usize) -> V {
        // SAFETY: the contract is the same.
        unsafe { V::load_first(from, n) }
    }
}

/// bf16 elements, which are the upper halves of f32 numbers, and f16 elements.
#[cfg(target_arch = "x86_64")]
struct Bf16;
#[cfg(target_arch = "x86_64")]
struct F16;

#[cfg(target_arch = "x86_64")]
macro_rules! halves {
    ($($name:ident of $v:ty: |$from:ident| $load:expr;)*) => {$(
        impl Elements<$v> for $name {
            type Stored = u16;
            #[inline(always)]
            unsafe fn load($from: *const u16) -> $v {
                use std::arch::x86_64::*;
                // SAFETY: instantiated only in functions of a level that has these instructions, and `from` is valid
                // for a vector's elements, which need no alignment.
                unsafe { $load }
            }
            #[inline(always)]
            unsafe fn load_first(from: *const u16, n: usize) -> $v {
                let mut all = [0; LANES_MAX];
                // SAFETY: `from` is valid for `n` elements, of which the array has room for a whole vector's.
                unsafe {
                    from.copy_to_nonoverlapping(all.as_mut_ptr(), n);
                    <$name as Elements<$v>>::load(all.as_ptr())
                }
            }
        }
    )*};
}
#[cfg(target_arch = "x86_64")]
halves! {
    Bf16 of __m256: |from| _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast()))));
    F16 of __m256: |from| _mm256_cvtph_ps(_mm_loadu_si128(from.cast()));
    Bf16 of __m512: |from| _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()))));
    F16 of __m512: |from| _mm512_cvtph_ps(_mm256_loadu_si256(from.cast()));
}
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{__m256, __m256d, __m512, __m512d};

/// Computes the sums of `ROWS` rows, `left_step` elements apart, with `COLUMNS` columns, `right_step` elements apart:
/// rows of `COLUMNS` sums, `to_step` elements apart.
type Sums<E, S> = unsafe fn(
    terms: usize,
    left: *const E,
    left_step: isize,
    right: *const S,
    right_step: isize,
    to: *mut E,
    to_step: isize,
);

/// # Safety
/// Same as for [`Sums`]: rows and columns are valid for `terms` elements, `to` has room for all sums, and the machine
/// has the vector's instructions.
#[inline(always)]
unsafe fn sums<V: SimdVector<E: Tiled>, S: Elements<V>, const ROWS: usize, const COLUMNS: usize>(
    terms: usize,
    left: *const V::E,
    left_step: isize,
    right: *const S::Stored,
    right_step: isize,
    to: *mut V::E,
    to_step: isize,
) {
    // SAFETY: every address is of a term of a row or a column, or of a sum, which the contract covers.
    unsafe {
        let mut sums = [[V::splat(V::E::ZERO); COLUMNS]; ROWS];
        let mut term = 0;
        while term + V::N <= terms {
            let mut columns = [V::splat(V::E::ZERO); COLUMNS];
            for j in 0..COLUMNS {
                columns[j] = S::load(right.offset(j as isize * right_step).add(term));
            }
            for i in 0..ROWS {
                let x = V::load(left.offset(i as isize * left_step).add(term));
                for j in 0..COLUMNS {
                    sums[i][j] = sums[i][j].plus_product(x, columns[j]);
                }
            }
            term += V::N;
        }
        let rest = terms - term;
        if rest > 0 {
            for i in 0..ROWS {
                let x = V::load_first(left.offset(i as isize * left_step).add(term), rest);
                for j in 0..COLUMNS {
                    let y = S::load_first(right.offset(j as isize * right_step).add(term), rest);
                    sums[i][j] = sums[i][j].plus_product(x, y);
                }
            }
        }
        for i in 0..ROWS {
            for j in 0..COLUMNS {
                to.offset(i as isize * to_step).add(j).write(sums[i][j].total());
            }
        }
    }
}

/// The loops for one dtype and level, by the number of rows - 1.
struct SumLoops<E, S> {
    /// The number of columns that the loops compute together: as many sums as there are registers.
    columns: [usize; ROWS_MAX],
    together: [Sums<E, S>; ROWS_MAX],
    single: [Sums<E, S>; ROWS_MAX],
}

macro_rules! level {
    ($(#[$enable:meta])* $name:ident: $($rows:literal by $columns:literal),*) => {
        mod $name {
            use crate::matmul_few_rows::{Elements, SumLoops, Tiled};
            use crate::register_tiles::SimdVector;
            $(#[$enable])*
            unsafe fn sums<V: SimdVector<E: Tiled>, S: Elements<V>, const ROWS: usize, const COLUMNS: usize>(
                terms: usize,
                left: *const V::E,
                left_step: isize,
                right: *const S::Stored,
                right_step: isize,
                to: *mut V::E,
                to_step: isize,
            ) {
                // SAFETY: the contract is the same.
                unsafe {
                    crate::matmul_few_rows::sums::<V, S, ROWS, COLUMNS>(
                        terms, left, left_step, right, right_step, to, to_step,
                    );
                }
            }
            pub fn loops<V: SimdVector<E: Tiled>, S: Elements<V>>() -> SumLoops<V::E, S::Stored> {
                SumLoops {
                    columns: [$($columns),*],
                    together: [$(sums::<V, S, $rows, $columns>),*],
                    single: [$(sums::<V, S, $rows, 1>),*],
                }
            }
        }
    };
}
level! { baseline: 1 by 4, 2 by 4, 3 by 2, 4 by 2, 5 by 2, 6 by 1, 7 by 1, 8 by 1 }
#[cfg(target_arch = "x86_64")]
level! {
    #[target_feature(enable = "avx2,fma,f16c")]
    avx2: 1 by 4, 2 by 4, 3 by 3, 4 by 2, 5 by 2, 6 by 1, 7 by 1, 8 by 1
}
#[cfg(target_arch = "x86_64")]
level! {
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    avx512: 1 by 8, 2 by 8, 3 by 6, 4 by 5, 5 by 4, 6 by 4, 7 by 3, 8 by 3
}

impl FewRows {
    /// Whether a level has loops for a dtype.
    pub fn has(level: SimdLevel, dtype: DType) -> bool {
        matches!(dtype, DType::F32 | DType::F64) || dtype.is_half() && level != SimdLevel::Baseline
    }

    /// Computes the product.
    ///
    /// # Errors
    /// A panic in a chunk.
    ///
    /// # Safety
    /// The matrices are valid for all their elements, the bias for `n`, and the result overlaps no other matrix; the
    /// machine has the level, which has loops for the dtype.
    pub unsafe fn run(&self, level: SimdLevel, pool: &mut ThreadPool) -> Result<()> {
        // SAFETY: the contract is the same. Each level's loops are of its vectors.
        unsafe {
            match (level, self.dtype) {
                (SimdLevel::Baseline, DType::F64) => self.with(&baseline::loops::<[f64; 2], Same>(), pool),
                (SimdLevel::Baseline, _) => self.with(&baseline::loops::<[f32; 4], Same>(), pool),
                #[cfg(target_arch = "x86_64")]
                (SimdLevel::Avx2, DType::F64) => self.with(&avx2::loops::<__m256d, Same>(), pool),
                #[cfg(target_arch = "x86_64")]
                (SimdLevel::Avx2, DType::F16) => self.with(&avx2::loops::<__m256, F16>(), pool),
                #[cfg(target_arch = "x86_64")]
                (SimdLevel::Avx2, DType::BF16) => self.with(&avx2::loops::<__m256, Bf16>(), pool),
                #[cfg(target_arch = "x86_64")]
                (SimdLevel::Avx2, _) => self.with(&avx2::loops::<__m256, Same>(), pool),
                #[cfg(target_arch = "x86_64")]
                (SimdLevel::Avx512, DType::F64) => self.with(&avx512::loops::<__m512d, Same>(), pool),
                #[cfg(target_arch = "x86_64")]
                (SimdLevel::Avx512, DType::F16) => self.with(&avx512::loops::<__m512, F16>(), pool),
                #[cfg(target_arch = "x86_64")]
                (SimdLevel::Avx512, DType::BF16) => self.with(&avx512::loops::<__m512, Bf16>(), pool),
                #[cfg(target_arch = "x86_64")]
                (SimdLevel::Avx512, _) => self.with(&avx512::loops::<__m512, Same>(), pool),
            }
        }
    }

    /// # Safety
    /// Same as for [`FewRows::run`]; the loops are of the dtype.
    unsafe fn with<E: Tiled, S: Copy>(&self, loops: &SumLoops<E, S>, pool: &mut ThreadPool) -> Result<()> {
        let column_bytes = self.k * size_of::<S>();
        let piece = (CHUNK_BYTES / column_bytes.max(1)).clamp(16, self.n.max(16)).next_multiple_of(16);
        let work = |i: usize| {
            let first = i * piece;
            // SAFETY: the pieces are different columns of the result. The rest of the contract is the same.
            unsafe { self.piece(loops, first, piece.min(self.n - first)) }
        };
        let pieces = self.n.div_ceil(piece);
        if !pool.pays(column_bytes.saturating_mul(self.n) / BYTES_PER_NS) {
            (0..pieces).for_each(work);
            return Ok(());
        }
        pool.run(pieces, &work)
    }

    /// Computes `columns` columns of the result, from one on.
    ///
    /// # Safety
    /// Same as for [`FewRows::with`].
    unsafe fn piece<E: Tiled, S: Copy>(&self, loops: &SumLoops<E, S>, first: usize, columns: usize) {
        checkpoint();
        let FewRows { m, k, matrices: [out, a, b], .. } = *self;
        let at_once = loops.columns[m - 1];
        // Sums that are rounded once more have memory of their own.
        let mut wide = if self.narrow.is_some() { vec![E::ZERO; m * columns] } else { Vec::new() };
        let (to, to_step) = match self.narrow {
            Some(_) => (wide.as_mut_ptr(), columns as isize),
            None => (out.at(0, first, size_of::<E>()).ptr.cast::<E>(), out.row_step),
        };
        let mut column = 0;
        while column < columns {
            let (own, f) =
                if column + at_once <= columns { (at_once, loops.together[m - 1]) } else { (1, loops.single[m - 1]) };
            let right = b.at(0, first + column, size_of::<S>()).ptr.cast_const().cast::<S>();
            // SAFETY: rows and columns have `k` terms, whose elements are contiguous, and `to` has `m` rows of
            // `columns` sums, `to_step` elements apart, which nothing else writes.
            unsafe { f(k, a.ptr.cast_const().cast(), a.row_step, right, b.column_step, to.add(column), to_step) };
            column += own;
        }
        for row in 0..m {
            let sums = to.wrapping_offset(row as isize * to_step);
            if let Some(bias) = self.bias {
                let bias = bias.at(first, size_of::<E>()).cast::<E>();
                for i in 0..columns {
                    // SAFETY: the bias has an element for each column, and the row a sum.
                    unsafe { sums.add(i).write(sums.add(i).read().plus(bias.add(i).read())) };
                }
            }
            if let Some(narrow) = self.narrow {
                // SAFETY: the result has a contiguous row of these columns, which nothing else writes.
                unsafe { narrow(out.at(row, first, 2).ptr, [sums.cast_const().cast(); 3], 0, columns) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{CpuBackend, CpuOptions};
    use crate::test_tensors::{download, upload};
    use gt_ops::{Attrs, Meta, Op, Shape};

    /// Every level has the sums of f64, rounded once, for each number of rows and for terms and columns within and
    /// beyond vectors and pieces.
    #[test]
    fn products_of_few_rows_are_those_of_f64() {
        for level in SimdLevel::available() {
            let mut backend = CpuBackend::at_level(CpuOptions { threads: 2, ..CpuOptions::default() }, level);
            let b = &mut backend;
            for (m, k, n) in (1..=ROWS_MAX).flat_map(|m| [(m, 64, 5), (m, 67, 33), (m, 333, 1030), (m, 1000, 1)]) {
                for dtype in [DType::F32, DType::F64, DType::BF16, DType::F16] {
                    let element = |i: usize| ((i * 7919 + m) % 17) as f64 / 4.0 - 2.0;
                    let (x, y): (Vec<f64>, Vec<f64>) =
                        ((0..m * k).map(element).collect(), (0..n * k).map(|i| element(i + 3)).collect());
                    let bias: Vec<f64> = (0..n).map(|i| element(i + 5)).collect();
                    let shape = |dims: &[usize]| Shape::new(dims).unwrap();
                    let (left, weight) = (upload(b, shape(&[m, k]), dtype, &x), upload(b, shape(&[n, k]), dtype, &y));
                    let added = upload(b, shape(&[n]), dtype, &bias);
                    let sum = |i: usize| (0..k).map(|t| x[i / n * k + t] * y[i % n * k + t]).sum::<f64>();
                    for with_bias in [false, true] {
                        let wide: Vec<f64> =
                            (0..m * n).map(|i| sum(i) + if with_bias { bias[i % n] } else { 0.0 }).collect();
                        let want = upload(b, shape(&[m, n]), dtype, &wide);
                        let want = download(b, &want);
                        let meta = Meta::new(shape(&[m, n]), dtype);
                        let found = if with_bias {
                            b.affine([&left, &weight, &added], &meta).unwrap()
                        } else {
                            b.matmul(&left, &weight.transposed().unwrap(), &meta).unwrap()
                        };
                        assert!(download(b, &found) == want, "{level:?} {dtype:?}: {m} by {k} by {n}, {with_bias}");
                    }
                }
            }
        }
    }

    /// Infinities and NaN spread to the sums that contain them, and to no others.
    #[test]
    fn numbers_that_are_not_finite_stay_in_their_row_and_column() {
        for level in SimdLevel::available() {
            let mut backend = CpuBackend::at_level(CpuOptions { threads: 1, ..CpuOptions::default() }, level);
            let b = &mut backend;
            let (m, k, n) = (3, 70, 9);
            let (mut x, mut y) = (vec![1.0; m * k], vec![1.0; n * k]);
            (x[k - 1], y[4 * k + 69]) = (f64::INFINITY, f64::NAN);
            let left = upload(b, Shape::new(&[m, k]).unwrap(), DType::F32, &x);
            let weight = upload(b, Shape::new(&[n, k]).unwrap(), DType::F32, &y);
            let turned = crate::test_tensors::run(
                b,
                Op::Permute,
                &[&weight],
                &[],
                &Attrs::Permutation([1, 0, 0, 0, 0, 0, 0, 0]),
            );
            let found = crate::test_tensors::run(b, Op::Matmul, &[&left, &turned], &[], &Attrs::None);
            for (i, x) in download(b, &found).iter().enumerate() {
                let right = match (i / n, i % n) {
                    (_, 4) => x.is_nan(),
                    (0, _) => *x == f64::INFINITY,
                    _ => *x == 70.0,
                };
                assert!(right, "{level:?}: {x} at {i}");
            }
        }
    }
}
