//! Matrix products: floats by the `gemm` crates (packed panels as in GotoBLAS, Goto & van de Geijn 2008, and BLIS),
//! integers and, with registers of 512 bits, half precisions by packed tiles of our own.

use crate::backend::{CpuBackend, Result};
use crate::checkpoint::checkpoint;
use crate::kernels::SimdLevel;
use crate::matmul_few_rows::{FewRows, ROWS_MAX, TERMS_MIN};
#[cfg(target_arch = "x86_64")]
use crate::matmul_half::{HalfMatmul, Packing};
use crate::matmul_small::{SmallProduct, square_products};
use crate::strided::{BiasRow, SharedPtr, StridedMatrix, in_chunks};
use crate::tensor::CpuTensor;
use crate::thread_pool::ThreadPool;
use gemm_common::Parallelism;
use gt_backend::{ExecError, Loops};
use gt_ops::integers::Int;
use gt_ops::math::Real;
use gt_ops::{DType, Meta, RANK_MAX, Shape};
use std::sync::OnceLock;

/// Multiply-adds of one thread per nanosecond, of floats, and of integers for each byte of a vector of them.
const FLOATS_PER_NS: usize = 64;
const INTEGER_BYTES_PER_NS: usize = 192;
/// The time that a product takes beside its multiply-adds, in nanoseconds.
const PRODUCT_NS: usize = 25;
/// Products with fewer rows read a transposed right operand in place, since they read it only once.
const TRANSPOSED_ROWS_MIN: usize = 4;
/// A product of at most this many rows with a transposed right operand of at most this many bytes, which stays in L2,
/// holds rows of the result in the vector registers: elements of the right operand are broadcast from memory, without
/// transposing or packing.
const FEW_ROWS_MAX: usize = 32;
const FEW_ROWS_OPERAND_BYTES_MAX: usize = 1 << 20;
/// Products of more rows of half precisions with a matrix of at most so many bytes, which stays in the caches, are
/// packed.
const HALF_ROWS_MAX: usize = 4;
const CACHED_BYTES_MAX: usize = 4 << 20;
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
    /// A bias that is added to each row of the results, whose rows are then contiguous.
    pub bias: Option<BiasRow>,
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
    /// The matrices are valid for all their elements, the bias for `n`, and no result overlaps another matrix.
    pub unsafe fn run(&self, pool: &mut ThreadPool) -> Result<()> {
        let &BatchedMatmul { m, n, k, batches, dtype, rows_in_registers, bias, .. } = self;
        // Computes `n` columns of a result from `column` on.
        let some = |m, (column, n), matrices| {
            let start =
                bias.map_or(Start::Zero, |bias| Start::Bias(BiasRow::new(bias.at(column, dtype.size()).cast_mut())));
            // SAFETY: each call gets a part of the result that no other call writes, of matrices that are valid by this
            // function's contract.
            unsafe { in_blocks(dtype, (m, n, k), matrices, rows_in_registers, start) }
        };
        let one = |m, n, matrices| some(m, (0, n), matrices);
        let products = m.saturating_mul(n).saturating_mul(k.max(1));
        let threads = pool.threads();
        let rate =
            if dtype.is_float() { FLOATS_PER_NS } else { INTEGER_BYTES_PER_NS / dtype.size().max(PACKED_BYTES_MIN) };
        let work_ns = (products.saturating_mul(batches) / rate).saturating_add(batches.saturating_mul(PRODUCT_NS));
        if !pool.pays(work_ns) {
            (0..batches).for_each(|i| one(m, n, (self.matrices)(i)));
            return Ok(());
        }
        if batches >= 2 * threads {
            // Each batch writes its own result. Small ones are computed several at a time.
            let at_once = batches.div_ceil(pool.chunks(work_ns));
            return pool.run(batches.div_ceil(at_once), &|chunk| {
                let batches = chunk * at_once..((chunk + 1) * at_once).min(batches);
                batches.for_each(|i| one(m, n, (self.matrices)(i)));
            });
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
                some(m, (first, len), [out.at(0, first, size), a, b.at(0, first, size)]);
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
    sizes: (usize, usize, usize),
    matrices: [StridedMatrix; 3],
    rows_in_registers: bool,
    onto: bool,
) {
    let start = if onto { Start::Result } else { Start::Zero };
    // SAFETY: the contract is the same.
    unsafe { in_blocks(dtype, sizes, matrices, rows_in_registers, start) }
}

/// The number that the terms of a sum are added to.
#[derive(Clone, Copy)]
enum Start {
    /// Nothing.
    Zero,
    /// The element of the result.
    Result,
    /// The number of its column.
    Bias(BiasRow),
}

/// One product in blocks.
///
/// # Safety
/// Same as for [`BatchedMatmul::run`].
unsafe fn in_blocks(
    dtype: DType,
    (m, n, k): (usize, usize, usize),
    matrices: [StridedMatrix; 3],
    rows_in_registers: bool,
    start: Start,
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
    let ([out, a, b], size) = (matrices, dtype.size());
    // Writes the bias to the rows of a block, which stay in the cache until the products are added to them.
    let begin = |bias: BiasRow, out: StridedMatrix, (row, rows): (usize, usize), (column, columns): (usize, usize)| {
        for row in row..row + rows {
            let to = out.at(row, column, size).ptr;
            // SAFETY: the block lies within the result, whose rows are contiguous by the contract of
            // `BatchedMatmul::bias`, and the bias has an element for each of its columns.
            unsafe { to.copy_from_nonoverlapping(bias.at(column, size), columns * size) };
        }
    };
    if m <= rows && n <= columns && k <= terms {
        checkpoint();
        if let Start::Bias(bias) = start {
            begin(bias, out, (0, m), (0, n));
        }
        // SAFETY: the contract is the same.
        return unsafe { block(dtype, (m, n, k), matrices, rows_in_registers, !matches!(start, Start::Zero)) };
    }
    for column in (0..n).step_by(columns) {
        for term in (0..k.max(1)).step_by(terms) {
            for row in (0..m).step_by(rows) {
                checkpoint();
                let sizes = (rows.min(m - row), columns.min(n - column), terms.min(k - term));
                let matrices = [out.at(row, column, size), a.at(row, term, size), b.at(term, column, size)];
                if let (Start::Bias(bias), 0) = (start, term) {
                    begin(bias, out, (row, sizes.0), (column, sizes.1));
                }
                let onto = term > 0 || !matches!(start, Start::Zero);
                // SAFETY: the block lies within the matrices of this function's contract.
                unsafe { block(dtype, sizes, matrices, rows_in_registers, onto) };
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
    // SAFETY: the contract is the same, and this machine has the level.
    let is_done = unsafe {
        match dtype {
            DType::F32 | DType::C64 => f32::multiply(best_level(), (m, n, k), matrices, onto),
            DType::F64 | DType::C128 => f64::multiply(best_level(), (m, n, k), matrices, onto),
            _ => false,
        }
    };
    if is_done {
        return;
    }
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
        // SAFETY: the matrices are valid for `m`, `n` and `k` by this function's contract, and this machine has the
        // level.
        _ => unsafe { integer_product(best_level(), dtype)((m, n, k), [out, left, right]) },
    }
}

/// Integer products are computed in blocks of this many terms and rows: the packed block of the left operand stays in
/// L2.
const INTEGER_TERMS: usize = 256;
const INTEGER_ROWS: usize = 512;
/// Smaller integers are packed as numbers of so many bytes: there is no vector instruction that multiplies bytes.
const PACKED_BYTES_MIN: usize = 2;
/// The number of columns of a tile of the result, which registers hold.
const TILE_COLUMNS: usize = 4;
/// From this many rows, columns and terms on, numbers that a float holds exactly are multiplied as floats. Operands of
/// up to so many bytes are copied for it: a view of few elements may have the shape of any number.
const EXACT_SIDE_MIN: usize = 16;
const EXACT_BYTES_MAX: usize = 16 << 20;

/// The float type whose sums of `terms` products are exact for integers of these numbers of bits: none if a sum might
/// have more bits than its significand, or than the integers, which then wrap around.
fn exact_float(dtype: DType, bits: [u32; 2], terms: usize) -> Option<DType> {
    let needed = bits[0] + bits[1] + (usize::BITS - terms.leading_zeros());
    [(DType::F32, f32::MANTISSA_DIGITS), (DType::F64, f64::MANTISSA_DIGITS)]
        .into_iter()
        .find(|(_, significand)| needed <= (*significand).min(8 * dtype.size() as u32 - 1))
        .map(|(float, _)| float)
}

/// All bits that are set in any of the numbers, or not set in a negative one.
#[inline(always)]
fn magnitude_bits<I: Int>(all: &[I]) -> i64 {
    all.iter().fold(0, |bits, x| bits | (x.to_i64() ^ (x.to_i64() >> (i64::BITS - 1))))
}

/// How many bits the magnitudes of integers have, where a negative number counts as its complement.
fn bits_of(level: SimdLevel, t: &CpuTensor) -> u32 {
    debug_assert!(t.contiguous);
    let bits = match level {
        SimdLevel::Baseline => baseline::bits_of(t),
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the machine has the level.
        SimdLevel::Avx2 => unsafe { avx2::bits_of(t) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the machine has the level.
        SimdLevel::Avx512 => unsafe { avx512::bits_of(t) },
    };
    i64::BITS - bits.leading_zeros()
}

/// A product of integers; see [`integers`].
type IntegerProduct = unsafe fn((usize, usize, usize), [StridedMatrix; 3]);

/// The best level of this machine.
fn best_level() -> SimdLevel {
    static LEVEL: OnceLock<SimdLevel> = OnceLock::new();
    *LEVEL.get_or_init(|| SimdLevel::available().pop().unwrap_or(SimdLevel::Baseline))
}

/// The product of integers of a dtype.
fn integer_product(level: SimdLevel, dtype: DType) -> IntegerProduct {
    match level {
        SimdLevel::Baseline => baseline::product(dtype),
        #[cfg(target_arch = "x86_64")]
        SimdLevel::Avx2 => avx2::product(dtype),
        #[cfg(target_arch = "x86_64")]
        SimdLevel::Avx512 => avx512::product(dtype),
    }
}

/// The products of one level, whose tiles have columns of `bytes` bytes.
macro_rules! level {
    ($(#[$enable:meta])* $name:ident, $bytes:literal bytes, $narrow:ident) => {
        mod $name {
            use crate::matmul::{$narrow, IntegerProduct, NarrowTile, magnitude_bits};
            use crate::strided::StridedMatrix;
            use crate::tensor::CpuTensor;
            use gt_ops::DType;
            use gt_ops::integers::Int;
            $(#[$enable])*
            unsafe fn integers<I: Int, P: Int, N: NarrowTile<P, ROWS>, const ROWS: usize>(
                sizes: (usize, usize, usize),
                matrices: [StridedMatrix; 3],
            ) {
                // SAFETY: the contract is the same.
                unsafe { crate::matmul::integers::<I, P, N, ROWS>(sizes, matrices) }
            }
            $(#[$enable])*
            pub fn bits_of(t: &CpuTensor) -> i64 {
                let len = t.numel();
                // SAFETY: the tensor is contiguous, and its elements are those of its dtype.
                unsafe {
                    if t.meta.dtype == DType::I32 {
                        magnitude_bits(std::slice::from_raw_parts(t.ptr().cast::<i32>(), len))
                    } else {
                        magnitude_bits(std::slice::from_raw_parts(t.ptr().cast::<i64>(), len))
                    }
                }
            }
            pub fn product(dtype: DType) -> IntegerProduct {
                match dtype.size() {
                    1 if dtype == DType::I8 => integers::<i8, i16, $narrow, { $bytes / 2 }>,
                    1 => integers::<u8, i16, $narrow, { $bytes / 2 }>,
                    2 => integers::<i16, i16, $narrow, { $bytes / 2 }>,
                    4 => integers::<i32, i32, $narrow, { $bytes / 4 }>,
                    _ => integers::<i64, i64, $narrow, { $bytes / 8 }>,
                }
            }
        }
    };
}
level! { baseline, 32 bytes, AnyIntegers }
#[cfg(target_arch = "x86_64")]
level! { #[target_feature(enable = "avx2,fma")] avx2, 32 bytes, Avx2Integers }
#[cfg(target_arch = "x86_64")]
level! { #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")] avx512, 64 bytes, Avx512Integers }

/// Tiles of packed operands whose elements are all narrow, if there are faster instructions for these.
trait NarrowTile<I: Int, const ROWS: usize> {
    /// Whether [`NarrowTile::product`] is right for an element.
    #[inline(always)]
    fn is_narrow(_: I) -> bool {
        false
    }
    /// As [`integer_tile`].
    ///
    /// # Safety
    /// All elements are narrow, and the machine has the instructions of the level.
    #[inline(always)]
    unsafe fn product(left: &[I], right: &[I]) -> [[I; ROWS]; TILE_COLUMNS] {
        integer_tile(left, right)
    }
}

/// Integers without such instructions.
struct AnyIntegers;
impl<I: Int, const ROWS: usize> NarrowTile<I, ROWS> for AnyIntegers {}

/// Integers for whose vectors there are instructions. Numbers of 64 bits have one if they fit in 32: one multiplication
/// takes the place of three.
macro_rules! narrow_integers {
    ($($name:ident, $t:ty, $lanes:literal, $narrow:expr, $zero:ident $load:ident $splat:ident $add:ident $mul:ident;)*) => {$(
        #[cfg(target_arch = "x86_64")]
        impl NarrowTile<$t, $lanes> for $name {
            #[inline(always)]
            fn is_narrow(x: $t) -> bool {
                $narrow(x)
            }
            #[inline(always)]
            unsafe fn product(left: &[$t], right: &[$t]) -> [[$t; $lanes]; TILE_COLUMNS] {
                use std::arch::x86_64::*;
                // SAFETY: the machine has the instructions by the contract. Loads are of whole arrays, and a register
                // has the bytes of an array.
                unsafe {
                    let mut sums = [$zero(); TILE_COLUMNS];
                    for (column, factors) in
                        left.as_chunks::<$lanes>().0.iter().zip(right.as_chunks::<TILE_COLUMNS>().0)
                    {
                        let column = $load(column.as_ptr().cast());
                        for i in 0..TILE_COLUMNS {
                            sums[i] = $add(sums[i], $mul(column, $splat(factors[i])));
                        }
                    }
                    std::mem::transmute(sums)
                }
            }
        }
    )*};
}
/// The instructions of AVX2.
#[cfg(target_arch = "x86_64")]
struct Avx2Integers;
/// The instructions of AVX-512.
#[cfg(target_arch = "x86_64")]
struct Avx512Integers;
narrow_integers! {
    Avx2Integers, i64, 4, |x| x == i64::from(x as i32),
        _mm256_setzero_si256 _mm256_loadu_si256 _mm256_set1_epi64x _mm256_add_epi64 _mm256_mul_epi32;
    Avx2Integers, i32, 8, |_| true,
        _mm256_setzero_si256 _mm256_loadu_si256 _mm256_set1_epi32 _mm256_add_epi32 _mm256_mullo_epi32;
    Avx2Integers, i16, 16, |_| true,
        _mm256_setzero_si256 _mm256_loadu_si256 _mm256_set1_epi16 _mm256_add_epi16 _mm256_mullo_epi16;
    Avx512Integers, i64, 8, |x| x == i64::from(x as i32),
        _mm512_setzero_si512 _mm512_loadu_si512 _mm512_set1_epi64 _mm512_add_epi64 _mm512_mul_epi32;
    Avx512Integers, i32, 16, |_| true,
        _mm512_setzero_si512 _mm512_loadu_si512 _mm512_set1_epi32 _mm512_add_epi32 _mm512_mullo_epi32;
    Avx512Integers, i16, 32, |_| true,
        _mm512_setzero_si512 _mm512_loadu_si512 _mm512_set1_epi16 _mm512_add_epi16 _mm512_mullo_epi16;
}

/// The product of packed operands, with `ROWS` rows and [`TILE_COLUMNS`] columns for each term.
#[inline(always)]
fn integer_tile<I: Int, const ROWS: usize>(left: &[I], right: &[I]) -> [[I; ROWS]; TILE_COLUMNS] {
    let mut sums = [[I::ZERO; ROWS]; TILE_COLUMNS];
    for (column, factors) in left.as_chunks::<ROWS>().0.iter().zip(right.as_chunks::<TILE_COLUMNS>().0) {
        // A copy of the column stays in registers.
        let column = *column;
        for i in 0..TILE_COLUMNS {
            let known = sums[i];
            sums[i] = std::array::from_fn(|row| known[row].wrapping_add(factors[i].wrapping_mul(column[row])));
        }
    }
    sums
}

/// A product of integers whose result has neighbours in its columns, in tiles of `ROWS` rows of packed integers.
///
/// # Safety
/// Same as for [`BatchedMatmul::run`], on a machine with the instructions of the level.
#[inline(always)]
unsafe fn integers<I: Int, P: Int, N: NarrowTile<P, ROWS>, const ROWS: usize>(
    (m, n, k): (usize, usize, usize),
    [out, a, b]: [StridedMatrix; 3],
) {
    let (to, left, right) = (out.ptr.cast::<I>(), a.ptr.cast::<I>(), b.ptr.cast::<I>());
    let at =
        |of: StridedMatrix, row: usize, column: usize| row as isize * of.row_step + column as isize * of.column_step;
    let pack = |x: I| P::from_i64(x.to_i64());
    let terms_max = INTEGER_TERMS.min(k);
    let mut panels = vec![P::ZERO; terms_max * INTEGER_ROWS.min(m).next_multiple_of(ROWS)];
    let mut factors = vec![P::ZERO; terms_max * TILE_COLUMNS];
    // There is at least one block of terms, so that a result without terms is set to 0.
    let blocks =
        (0..m).step_by(INTEGER_ROWS).flat_map(|row| (0..k.max(1)).step_by(INTEGER_TERMS).map(move |term| (row, term)));
    for (top, first) in blocks {
        let (rows, terms) = (INTEGER_ROWS.min(m - top), INTEGER_TERMS.min(k - first));
        // SAFETY: `row < m`, `first + term < k` and `column < n` for all elements that are read or written, for which
        // the matrices are valid by the contract of `BatchedMatmul::run`.
        unsafe {
            let mut narrow = true;
            for panel in 0..rows.div_ceil(ROWS) {
                let packed = &mut panels[panel * ROWS * terms..][..ROWS * terms];
                let own = ROWS.min(rows - panel * ROWS);
                for (term, column) in packed.as_chunks_mut::<ROWS>().0.iter_mut().enumerate() {
                    let from = left.offset(at(a, top + panel * ROWS, first + term));
                    if own == ROWS && a.row_step == 1 {
                        let from = from.cast::<[I; ROWS]>().read_unaligned();
                        column.iter_mut().zip(&from).for_each(|(to, x)| *to = pack(*x));
                    } else {
                        for (row, x) in column.iter_mut().enumerate() {
                            *x = if row < own { pack(from.offset(row as isize * a.row_step).read()) } else { P::ZERO };
                        }
                    }
                }
                narrow &= packed.iter().fold(true, |all, x| all & N::is_narrow(*x));
            }
            for column in (0..n).step_by(TILE_COLUMNS) {
                checkpoint();
                let columns = TILE_COLUMNS.min(n - column);
                let factors = &mut factors[..terms * TILE_COLUMNS];
                for i in 0..columns {
                    let mut from = right.offset(at(b, first, column + i));
                    for factors in factors.as_chunks_mut::<TILE_COLUMNS>().0 {
                        factors[i] = pack(from.read());
                        from = from.wrapping_offset(b.row_step);
                    }
                }
                let narrow = narrow && factors.iter().fold(true, |all, x| all & N::is_narrow(*x));
                for panel in 0..rows.div_ceil(ROWS) {
                    let panel_terms = &panels[panel * ROWS * terms..][..ROWS * terms];
                    let sums =
                        if narrow { N::product(panel_terms, factors) } else { integer_tile(panel_terms, factors) };
                    let own = ROWS.min(rows - panel * ROWS);
                    for (i, sums) in sums.iter().enumerate().take(columns) {
                        let place = to.offset(at(out, top + panel * ROWS, column + i));
                        if own == ROWS && out.row_step == 1 {
                            let place = place.cast::<[I; ROWS]>();
                            let mut known = if first == 0 { [I::ZERO; ROWS] } else { place.read_unaligned() };
                            for (known, sum) in known.iter_mut().zip(sums) {
                                *known = known.wrapping_add(I::from_i64(sum.to_i64()));
                            }
                            place.write_unaligned(known);
                            continue;
                        }
                        for (row, sum) in sums.iter().enumerate().take(own) {
                            let place = place.offset(row as isize * out.row_step);
                            let known = if first == 0 { I::ZERO } else { place.read() };
                            place.write(known.wrapping_add(I::from_i64(sum.to_i64())));
                        }
                    }
                }
            }
        }
    }
}

impl CpuBackend {
    pub(crate) fn matmul(&mut self, a: &CpuTensor, b: &CpuTensor, out: &Meta) -> Result<CpuTensor> {
        self.product(a, b, None, out)
    }

    /// Rows times a transposed matrix, plus a bias.
    pub(crate) fn affine(&mut self, [input, weight, bias]: [&CpuTensor; 3], out: &Meta) -> Result<CpuTensor> {
        let (turned, bias) = (weight.transposed()?, self.contiguous(bias)?);
        self.product(input, &turned, Some(&bias), out)
    }

    /// The product of matrices, with a contiguous vector added to each row.
    fn product(&mut self, a: &CpuTensor, b: &CpuTensor, bias: Option<&CpuTensor>, out: &Meta) -> Result<CpuTensor> {
        let half = a.meta.dtype.is_half();
        let wide = |t: &CpuTensor| Meta::new(t.meta.shape, DType::F32);
        // The sums of half precisions are f32.
        let bias = match bias {
            Some(bias) if half => Some(self.cast(bias, &wide(bias), 0)?),
            bias => bias.cloned(),
        };
        if let Some(result) = self.few_rows(a, b, bias.as_ref(), out)? {
            return Ok(result);
        }
        #[cfg(target_arch = "x86_64")]
        if half && self.level == SimdLevel::Avx512 {
            return self.half_matmul(Packing::of(a.meta.dtype), a, b, bias.as_ref(), out);
        }
        if half {
            // The conversions cost little beside the products, and PyTorch accumulates half precisions in f32 too.
            let (wide_a, wide_b) = (self.cast(a, &wide(a), 0)?, self.cast(b, &wide(b), 0)?);
            let product = self.product(&wide_a, &wide_b, bias.as_ref(), &Meta::new(out.shape, DType::F32))?;
            return if out.dtype == DType::F32 { Ok(product) } else { self.cast(&product, out, 0) };
        }
        if bias.is_none()
            && let Some(result) = self.exact_product(a, b, out)?
        {
            return Ok(result);
        }
        let few_rows = a.numel() / a.meta.shape.dims().last().map_or(1, |k| *k).max(1) <= FEW_ROWS_MAX
            && b.meta.bytes() <= FEW_ROWS_OPERAND_BYTES_MAX;
        let transposed = by_columns(b);
        if transposed && !few_rows && out.shape.dims()[out.shape.rank() - 2] >= TRANSPOSED_ROWS_MIN {
            // One transposed copy costs less than packing across the columns, which the kernel would do.
            let turned = self.contiguous(b)?;
            return self.product(a, &turned, bias.as_ref(), out);
        }
        let result = self.new_tensor(out)?;
        if out.shape.numel() == 0 {
            return Ok(result);
        }
        let all = ProductMatrices::of(&result, a, b)?;
        let ProductMatrices { m, n, k, batches, .. } = all;
        let as_they_follow = a.contiguous && b.contiguous && a.numel() == b.numel() && bias.is_none();
        if m == n && n == k && as_they_follow && a.numel() == result.numel() {
            let done = match out.dtype {
                // SAFETY: all three are contiguous and have as many matrices of as many rows, in the same order since
                // neither operand is broadcast; `result` was just allocated.
                DType::F32 => unsafe { self.square_products::<f32>(&result, a, b, (n, batches))? },
                // SAFETY: the same holds for matrices of `f64`.
                DType::F64 => unsafe { self.square_products::<f64>(&result, a, b, (n, batches))? },
                _ => false,
            };
            if done {
                return Ok(result);
            }
        }
        let (matrices, rows_in_registers) = (|i: usize| all.of_batch(i), few_rows && transposed);
        let bias = bias.as_ref().map(|bias| BiasRow::new(bias.ptr()));
        let product =
            BatchedMatmul { dtype: out.dtype, m, n, k, batches, rows_in_registers, bias, matrices: &matrices };
        // SAFETY: the matrices are those of tensors whose shapes inference checked, and so is the bias, which is
        // contiguous; `result` was just allocated.
        unsafe { product.run(&mut self.pool)? };
        Ok(result)
    }

    /// A product of integers that is exact as one of floats, of which the machine multiplies two to eight times as many
    /// at once; none if these are not such.
    fn exact_product(&mut self, a: &CpuTensor, b: &CpuTensor, out: &Meta) -> Result<Option<CpuTensor>> {
        let pays = |t: &CpuTensor| {
            t.meta.bytes() <= EXACT_BYTES_MAX
                && t.meta.shape.dims().iter().rev().take(2).all(|size| *size >= EXACT_SIDE_MIN)
        };
        if !(matches!(out.dtype, DType::I32 | DType::I64) && pays(a) && pays(b)) {
            return Ok(None);
        }
        let (a, b) = (self.contiguous(a)?, self.contiguous(b)?);
        let terms = a.meta.shape.dims().last().map_or(1, |k| *k);
        let bits = [bits_of(self.level, &a), bits_of(self.level, &b)];
        let Some(float) = exact_float(out.dtype, bits, terms) else { return Ok(None) };
        let a = self.cast(&a, &Meta::new(a.meta.shape, float), 0)?;
        let b = self.cast(&b, &Meta::new(b.meta.shape, float), 0)?;
        let product = self.product(&a, &b, None, &Meta::new(out.shape, float))?;
        self.cast(&product, out, 0).map(Some)
    }

    /// Multiplies contiguous square matrices of `rows` rows pair by pair; false, and nothing is done, if such matrices
    /// have no function of their own.
    ///
    /// # Safety
    /// The result and the operands have `batches` such matrices of `E`, and the result overlaps neither operand.
    unsafe fn square_products<E: Real>(
        &mut self,
        result: &CpuTensor,
        a: &CpuTensor,
        b: &CpuTensor,
        (rows, batches): (usize, usize),
    ) -> Result<bool> {
        let Some(multiply) = square_products::<E>(self.level, rows) else { return Ok(false) };
        let [to, a, b] = [result, a, b].map(|t| SharedPtr::new(t.ptr().cast::<E>()));
        let size = rows * rows;
        in_chunks(&mut self.pool, batches, 3 * size * size_of::<E>(), |first, last| {
            let [to, a, b] = [to, a, b].map(|matrices| matrices.get().wrapping_add(first * size));
            // SAFETY: `first..last` are matrices of this function's contract, each chunk writes its own, and the
            // machine has the backend's level.
            unsafe { multiply(to, a, b, last - first) };
        })?;
        Ok(true)
    }

    /// A product of few rows with the transpose of a matrix; none if this is not one.
    fn few_rows(
        &mut self,
        a: &CpuTensor,
        b: &CpuTensor,
        bias: Option<&CpuTensor>,
        out: &Meta,
    ) -> Result<Option<CpuTensor>> {
        let (dtype, shape) = (b.meta.dtype, b.meta.shape);
        let (lead, k) = (shape.rank() - 2, shape.dims()[shape.rank() - 2]);
        let one_matrix = shape.dims()[..lead].iter().all(|size| *size == 1);
        let is_transposed = b.strides[lead] == b.size() as isize;
        let few = a.numel() <= ROWS_MAX * k && k >= TERMS_MIN && out.shape.numel() > 0;
        // A half precision is converted again for each group of columns, which more rows pay for only where the matrix
        // comes from memory.
        let converts = dtype.is_half() && a.numel() > HALF_ROWS_MAX * k && b.meta.bytes() <= CACHED_BYTES_MAX;
        if !(few && one_matrix && is_transposed && FewRows::has(self.level, dtype)) || converts {
            return Ok(None);
        }
        let sums = if dtype.is_half() { DType::F32 } else { dtype };
        let a = if dtype.is_half() { self.cast(a, &Meta::new(a.meta.shape, sums), 0)? } else { self.contiguous(a)? };
        let result = self.new_tensor(out)?;
        let all = ProductMatrices::of(&result, &a, b)?;
        let ProductMatrices { m, n, k, batches: 1, .. } = all else { return Ok(None) };
        let (narrow, bias) = (self.narrow(out.dtype), bias.map(|bias| BiasRow::new(bias.ptr())));
        let product = FewRows { dtype, m, k, n, narrow, bias, matrices: all.of_batch(0) };
        // SAFETY: the matrices are those of tensors whose shapes inference checked, and so is the bias, which is
        // contiguous; `result` was just allocated. Rows of `a` and columns of `b` are contiguous, and the backend has
        // its level.
        unsafe { product.run(self.level, &mut self.pool)? };
        Ok(Some(result))
    }

    /// A product of half precisions, with a contiguous vector of f32 added to each row.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn half_matmul(
        &mut self,
        packing: Packing,
        a: &CpuTensor,
        b: &CpuTensor,
        bias: Option<&CpuTensor>,
        out: &Meta,
    ) -> Result<CpuTensor> {
        let result = self.new_tensor(out)?;
        if out.shape.numel() == 0 {
            return Ok(result);
        }
        let all = ProductMatrices::of(&result, a, b)?;
        let ProductMatrices { m, n, k, batches, .. } = all;
        let matrices = |i: usize| all.of_batch(i);
        let (narrow, bias) = (self.narrow(out.dtype), bias.map(|bias| BiasRow::new(bias.ptr())));
        let product = HalfMatmul { packing, m, k, n, batches, narrow, bias, matrices: &matrices };
        let room = Shape::new(&[product.packed()]).map_err(|e| ExecError::internal(e.to_string()))?;
        let packed = self.new_tensor(&Meta::new(room, DType::I32))?;
        // SAFETY: the matrices are those of tensors whose shapes inference checked, and so is the bias, which is
        // contiguous; `result` and `packed` were just allocated. The backend has the level, and callers pass a packing
        // that the machine computes with.
        unsafe { product.run(&mut self.pool, packed.ptr().cast())? };
        Ok(result)
    }
}

/// The matrices of a product of tensors: result, left and right operand.
struct ProductMatrices {
    m: usize,
    k: usize,
    n: usize,
    batches: usize,
    first: [StridedMatrix; 3],
    batch: Loops<3>,
}

impl ProductMatrices {
    fn of(result: &CpuTensor, a: &CpuTensor, b: &CpuTensor) -> Result<ProductMatrices> {
        let shape = result.meta.shape;
        let lead = shape.rank() - 2;
        let (m, n, k) = (shape.dims()[lead], shape.dims()[lead + 1], a.meta.shape.dims()[a.meta.shape.rank() - 1]);
        let step = |t: &CpuTensor, from_right: usize| t.strides[t.meta.shape.rank() - from_right] / t.size() as isize;
        let matrix = |t: &CpuTensor| StridedMatrix { ptr: t.ptr(), row_step: step(t, 2), column_step: step(t, 1) };
        let first = [matrix(result), matrix(a), matrix(b)];
        let batch = Shape::new(&shape.dims()[..lead]).map_err(|e| ExecError::internal(e.to_string()))?;
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
        let strides = [leading(result), leading(a), leading(b)];
        let loops = Loops::new(&batch, strides.each_ref());
        // A batch of matrices with evenly spaced rows times a single matrix is the product of one tall matrix.
        let [_, left_step, right_step] = loops.inner_strides();
        let tall = batches > 1
            && loops.sizes().len() == 1
            && right_step == 0
            && left_step == first[1].row_step * (m * a.size()) as isize;
        let (m, batches) = if tall { (m * batches, 1) } else { (m, batches) };
        Ok(ProductMatrices { m, k, n, batches, first, batch: loops })
    }

    /// The matrices of one batch.
    fn of_batch(&self, i: usize) -> [StridedMatrix; 3] {
        let mut offsets = [0; 3];
        if self.batches > 1 && self.batch.sizes().len() == 1 {
            offsets = self.batch.inner_strides().map(|step| i as isize * step);
        } else if self.batches > 1 {
            self.batch.for_runs(i, i + 1, |run| offsets = run.offsets);
        }
        std::array::from_fn(|i| {
            let matrix = self.first[i];
            StridedMatrix { ptr: matrix.ptr.wrapping_offset(offsets[i]), ..matrix }
        })
    }
}

/// Whether the columns of a large f32 matrix are contiguous, and not its rows.
fn by_columns(t: &CpuTensor) -> bool {
    let (rank, size) = (t.meta.shape.rank(), t.size());
    let dims = t.meta.shape.dims();
    let dense = |axis: usize| t.strides[axis] == size as isize;
    size == 4 && dims[rank - 1] >= 16 && dims[rank - 2] >= 16 && dense(rank - 2) && !dense(rank - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::CpuOptions;
    use crate::test_tensors::{download, run, upload};
    use gt_ops::{Attrs, Op};

    /// Every level multiplies integers as two loops do, for sizes within and beyond its tiles and blocks, and for
    /// numbers of 32 and of 64 bits.
    #[test]
    fn integer_products_wrap_around() {
        let wide = |i: usize| (i as i64).wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64);
        check_integer_products(wide);
        check_integer_products(|i| i64::from(wide(i) as i32));
        check_integer_products(|i| if i == 2 { i64::from(i32::MIN) - 1 } else { i64::from(i32::MIN) });
    }

    /// Numbers of fewer bits are the last of those of 64.
    fn check_integer_products(number: impl Fn(usize) -> i64 + Copy) {
        check_products_of(DType::I64, number, i64::wrapping_add, i64::wrapping_mul);
        check_products_of(DType::I32, move |i| number(i) as i32, i32::wrapping_add, i32::wrapping_mul);
        check_products_of(DType::I16, move |i| number(i) as i16, i16::wrapping_add, i16::wrapping_mul);
        check_products_of(DType::I8, move |i| number(i) as i8, i8::wrapping_add, i8::wrapping_mul);
        check_products_of(DType::U8, move |i| number(i) as u8, u8::wrapping_add, u8::wrapping_mul);
    }

    fn check_products_of<I: Int + PartialEq + std::fmt::Debug>(
        dtype: DType,
        number: impl Fn(usize) -> I,
        plus: fn(I, I) -> I,
        times: fn(I, I) -> I,
    ) {
        for level in SimdLevel::available() {
            for (m, n, k) in [(0, 3, 2), (3, 2, 0), (1, 1, 1), (17, 5, 3), (30, 9, INTEGER_TERMS + 1), (520, 4, 2)] {
                let (left, right): (Vec<I>, Vec<I>) =
                    ((0..m * k).map(&number).collect(), (0..k * n).map(|i| number(i + 7)).collect());
                for by_columns in [false, true] {
                    let mut result = vec![number(0); m * n];
                    let matrix = |ptr: *const I, rows: usize, columns: usize| {
                        let (row_step, column_step) = if by_columns { (1, rows) } else { (columns, 1) };
                        let (row_step, column_step) = (row_step as isize, column_step as isize);
                        StridedMatrix { ptr: ptr.cast_mut().cast(), row_step, column_step }
                    };
                    let out = StridedMatrix { ptr: result.as_mut_ptr().cast(), ..matrix(result.as_ptr(), m, n) };
                    let operands = [out, matrix(left.as_ptr(), m, k), matrix(right.as_ptr(), k, n)];
                    // SAFETY: the vectors have the elements of the matrices, and the machine has the level.
                    unsafe { integer_product(level, dtype)((m, n, k), operands) };
                    let at = |all: &[I], rows: usize, columns: usize, row: usize, column: usize| {
                        all[if by_columns { column * rows + row } else { row * columns + column }]
                    };
                    for (row, column) in (0..m).flat_map(|row| (0..n).map(move |column| (row, column))) {
                        let sum = (0..k).fold(I::ZERO, |sum, i| {
                            let (x, y) = (at(&left, m, k, row, i), at(&right, k, n, i, column));
                            plus(sum, times(x, y))
                        });
                        assert_eq!(at(&result, m, n, row, column), sum, "{level:?}: {m} by {k} by {n}");
                    }
                }
            }
        }
    }

    /// Integers are multiplied as floats only where no sum can have more bits than the float or the integers.
    #[test]
    fn floats_multiply_integers_of_few_bits() {
        for (dtype, bits, terms, float) in [
            (DType::I64, [4, 4], 64, Some(DType::F32)),
            (DType::I64, [8, 9], 64, Some(DType::F32)),
            (DType::I64, [9, 9], 64, Some(DType::F64)),
            (DType::I64, [23, 23], 64, Some(DType::F64)),
            (DType::I64, [23, 24], 64, None),
            (DType::I32, [12, 12], 64, Some(DType::F64)),
            (DType::I32, [12, 13], 64, None),
        ] {
            assert_eq!(exact_float(dtype, bits, terms), float, "{dtype}: {bits:?}, {terms} terms");
        }
    }

    /// The product is that of a loop on both sides of each of these limits, for numbers of both signs.
    #[test]
    fn products_of_integers_are_exact_at_the_limits_of_floats() {
        let side = 2 * EXACT_SIDE_MIN;
        let number = |i: usize, bits: u32| {
            let magnitude = (1i64 << bits) - 1 - (i % 3) as i64;
            if i % 7 == 3 { -magnitude - 1 } else { magnitude }
        };
        for (dtype, bits) in [(DType::I64, 9), (DType::I64, 10), (DType::I64, 23), (DType::I64, 24), (DType::I32, 13)] {
            let [left, right] =
                [0, 5].map(|from| (0..side * side).map(|i| number(i + from, bits) as f64).collect::<Vec<f64>>());
            for level in SimdLevel::available() {
                let mut backend = CpuBackend::at_level(CpuOptions { threads: 2, ..CpuOptions::default() }, level);
                let shape = Shape::new(&[side, side]).unwrap();
                let [a, b] = [&left, &right].map(|all| upload(&mut backend, shape, dtype, all));
                let found = run(&mut backend, Op::Matmul, &[&a, &b], &[], &Attrs::None);
                let found = download(&mut backend, &found);
                for (place, found) in found.into_iter().enumerate() {
                    let sum = (0..side).fold(0i64, |sum, i| {
                        let terms = [left[place / side * side + i], right[i * side + place % side]];
                        sum + terms[0] as i64 * terms[1] as i64
                    });
                    let wrapped = if dtype == DType::I32 { i64::from(sum as i32) } else { sum };
                    assert_eq!(found, wrapped as f64, "{dtype} of {bits} bits at {level:?}, element {place}");
                }
            }
        }
    }
}
