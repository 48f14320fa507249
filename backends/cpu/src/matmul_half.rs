//! Matrix products of half precisions on CPUs with registers of 512 bits. The operands are converted while they are
//! packed, so that no converted copy of a whole operand is made, and the sums are f32, which are rounded once.
//!
//! The packed elements are f32 numbers, or pairs of bf16 whose products an instruction sums (`vdpbf16ps`). The latter
//! takes half as many instructions where the CPU executes one such in each cycle, as AMD's do. Those of Intel (Cooper
//! Lake to Emerald Rapids) execute one in two cycles, and two fused multiply-adds of f32 in each: f32 takes half of the
//! time there. The instruction treats subnormal operands and results as 0, as it does in PyTorch.

use crate::checkpoint::checkpoint;
use crate::kernels::Kernel;
use crate::strided::{BiasRow, SharedPtr, StridedMatrix, run_or_not};
use crate::thread_pool::ThreadPool;
use gt_backend::ExecError;
use gt_ops::DType;
use std::arch::x86_64::*;
use std::sync::OnceLock;

/// Rows of a tile of the result, which registers hold.
const ROWS: usize = 12;
/// Elements of a vector register, and the vectors in a row of a tile.
const LANES: usize = 16;
const WIDTH: usize = 2;
/// Columns of a tile.
const COLUMNS: usize = LANES * WIDTH;
/// Packed elements of a column that are multiplied at once: those of a tile stay in L1.
const TERMS: usize = 256;
/// Rows and columns of the part of a result that one thread computes at a time, whose sums stay in L2. Each part packs
/// its columns of the right operand again.
const PART_ROWS: usize = 128 * ROWS;
const PART_COLUMNS: usize = 2 * COLUMNS;
/// The parts for each thread, at least, where the result has so many panels.
const PARTS_PER_THREAD: usize = 2;
/// Multiply-adds of one thread per nanosecond.
const PRODUCTS_PER_NS: usize = 64;
/// The bytes that a copy moves while one element is packed, roughly.
const PACKING_BYTES: usize = 24;

/// The form of packed elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// f32 numbers, of bf16 elements.
    FromBf16,
    /// f32 numbers, of f16 elements.
    FromF16,
    /// Pairs of bf16 elements.
    Pairs,
}

impl Packing {
    /// The fastest form on this machine.
    pub fn of(dtype: DType) -> Packing {
        static PAIRS: OnceLock<bool> = OnceLock::new();
        let pairs = || is_x86_feature_detected!("avx512bf16") && made_by(b"AuthenticAMD");
        match dtype {
            DType::F16 => Packing::FromF16,
            _ if *PAIRS.get_or_init(pairs) => Packing::Pairs,
            _ => Packing::FromBf16,
        }
    }

    /// The forms that this machine can compute with.
    #[cfg(test)]
    pub fn all(dtype: DType) -> Vec<Packing> {
        match dtype {
            DType::F16 => vec![Packing::FromF16],
            _ if is_x86_feature_detected!("avx512bf16") => vec![Packing::FromBf16, Packing::Pairs],
            _ => vec![Packing::FromBf16],
        }
    }

    /// Elements of the operand in one packed element.
    fn elements(self) -> usize {
        if self == Packing::Pairs { 2 } else { 1 }
    }
}

/// Whether the CPU names this vendor.
fn made_by(vendor: &[u8; 12]) -> bool {
    let leaf = __cpuid(0);
    let named: Vec<u8> = [leaf.ebx, leaf.edx, leaf.ecx].into_iter().flat_map(u32::to_le_bytes).collect();
    named == vendor
}

/// `out = a b` for `batches` matrices of `m` by `k` and `k` by `n`.
pub struct HalfMatmul<'a> {
    /// The form of packed elements.
    pub packing: Packing,
    /// Rows of the result.
    pub m: usize,
    /// Columns of `a` and rows of `b`: the length of the sums.
    pub k: usize,
    /// Columns of the result.
    pub n: usize,
    /// The number of products.
    pub batches: usize,
    /// The conversion of sums to elements of the result, unless these are f32.
    pub narrow: Option<Kernel>,
    /// A bias of f32 that is added to the sums of each row before they are converted.
    pub bias: Option<BiasRow>,
    /// The three matrices of a batch: result, `a`, `b`. Rows of the result are contiguous.
    pub matrices: &'a (dyn Fn(usize) -> [StridedMatrix; 3] + Sync),
}

impl HalfMatmul<'_> {
    /// Packed elements in a column.
    fn terms(&self) -> usize {
        self.k.div_ceil(self.packing.elements())
    }

    /// The number of packed elements of all left operands.
    pub fn packed(&self) -> usize {
        self.batches * self.m.next_multiple_of(ROWS) * self.terms()
    }

    /// Computes all products. `packed` has room for [`HalfMatmul::packed`] elements of 4 bytes.
    ///
    /// # Errors
    /// A panic in a chunk.
    ///
    /// # Safety
    /// The matrices are valid for all their elements, the bias for `n`, and no result overlaps another matrix; the
    /// machine has [`SimdLevel::Avx512`](crate::kernels::SimdLevel::Avx512) and computes with the packed elements.
    pub unsafe fn run(&self, pool: &mut ThreadPool, packed: *mut u32) -> Result<(), ExecError> {
        let &HalfMatmul { m, n, batches, packing, .. } = self;
        let (packed, terms) = (SharedPtr::new(packed), self.terms());
        let panels = m.div_ceil(ROWS);
        let bytes = self.packed().saturating_mul(PACKING_BYTES);
        run_or_not(pool, bytes, batches * panels, &|i| {
            let [_, a, _] = (self.matrices)(i / panels);
            let row = i % panels * ROWS;
            // SAFETY: the panel's rows lie within `a`, and each panel has its own room. The machine has the level.
            unsafe {
                let to = packed.get().add(i * ROWS * terms);
                let from = a.at(row, 0, 2);
                pack::<ROWS>(packing, from, ROWS.min(m - row), self.k, to);
            }
        })?;
        let column_parts = n.div_ceil(PART_COLUMNS);
        let balanced = (PARTS_PER_THREAD * pool.threads()).div_ceil((batches * column_parts).max(1));
        let row_parts = m.div_ceil(PART_ROWS).max(balanced.min(panels));
        let part_rows = m.div_ceil(row_parts.max(1)).next_multiple_of(ROWS);
        let work = |i: usize| {
            let (batch, row, column) = (i / (row_parts * column_parts), i / column_parts % row_parts, i % column_parts);
            let (row, column) = (row * part_rows, column * PART_COLUMNS);
            if row < m {
                // SAFETY: the contract is the same; the left operand of the batch was packed above, and each part of
                // the result is written by one call.
                unsafe {
                    let left = packed.get().add((batch * panels + row / ROWS) * ROWS * terms);
                    let sizes = (part_rows.min(m - row), PART_COLUMNS.min(n - column));
                    self.part(batch, (row, column), sizes, left);
                }
            }
        };
        let parts = batches * row_parts * column_parts;
        let products = m.saturating_mul(n).saturating_mul(self.k).saturating_mul(batches);
        if !pool.pays(products / PRODUCTS_PER_NS) {
            (0..parts).for_each(work);
            return Ok(());
        }
        pool.run(parts, &work)
    }

    /// Computes `rows` by `columns` elements of a result, from an element on.
    ///
    /// # Safety
    /// Same as for [`HalfMatmul::run`]. The rows of the left operand are packed at `left`.
    unsafe fn part(
        &self,
        batch: usize,
        (row, column): (usize, usize),
        (rows, columns): (usize, usize),
        left: *const u32,
    ) {
        let [out, _, b] = (self.matrices)(batch);
        let (terms, elements) = (self.terms(), self.packing.elements());
        let width = columns.next_multiple_of(LANES);
        let mut sums: Vec<f32> = Vec::with_capacity(rows * width);
        let mut right: Vec<u32> = Vec::with_capacity(COLUMNS * TERMS.min(terms));
        let (sums, right) = (sums.as_mut_ptr(), right.as_mut_ptr());
        if terms == 0 {
            // SAFETY: there is room for the sums, which have no terms.
            unsafe { sums.write_bytes(0, rows * width) };
        }
        for first in (0..terms).step_by(TERMS) {
            let some = TERMS.min(terms - first);
            for at in (0..columns).step_by(COLUMNS) {
                checkpoint();
                let own = COLUMNS.min(columns - at);
                // SAFETY: terms and columns lie within `b`; `right` has room for `some` terms of `COLUMNS` columns,
                // and `sums` for `rows` rows of `width`, a multiple of the vectors.
                unsafe {
                    let from = b.at(first * elements, column + at, 2).transposed();
                    pack::<COLUMNS>(self.packing, from, own, (self.k - first * elements).min(some * elements), right);
                    for row in (0..rows).step_by(ROWS) {
                        let tile = tile(self.packing, ROWS.min(rows - row), own.div_ceil(LANES));
                        let left = left.add(row * terms + first * ROWS);
                        tile(some, left, right, sums.add(row * width + at), width, first > 0);
                    }
                }
            }
        }
        for i in 0..rows {
            // SAFETY: the sums of `columns` elements were computed for each row, for which the result has room.
            unsafe {
                let from = sums.add(i * width);
                if let Some(bias) = self.bias {
                    let bias = bias.at(column, 4).cast::<f32>();
                    for j in 0..columns {
                        *from.add(j) += bias.add(j).read();
                    }
                }
                let from = from.cast_const();
                match self.narrow {
                    Some(narrow) => narrow(out.at(row + i, column, 2).ptr, [from.cast(); 3], 0, columns),
                    None => out.at(row + i, column, 4).ptr.cast::<f32>().copy_from_nonoverlapping(from, columns),
                }
            }
        }
    }
}

/// Computes a tile of sums, `step` elements apart by row, or adds to it.
type Tile = unsafe fn(terms: usize, left: *const u32, right: *const u32, sums: *mut f32, step: usize, onto: bool);

/// The function for tiles of `rows` rows and `width` vectors.
fn tile(packing: Packing, rows: usize, width: usize) -> Tile {
    macro_rules! of_rows {
        ($f:ident: $($rows:literal)*) => {
            match (rows, width) {
                $(($rows, 1) => $f::<$rows, 1>, ($rows, _) => $f::<$rows, WIDTH>,)*
                (_, 1) => $f::<ROWS, 1>,
                _ => $f::<ROWS, WIDTH>,
            }
        };
    }
    if packing == Packing::Pairs {
        of_rows!(tile_of_pairs: 1 2 3 4 5 6 7 8 9 10 11)
    } else {
        of_rows!(tile_of_numbers: 1 2 3 4 5 6 7 8 9 10 11)
    }
}

macro_rules! tiles {
    ($name:ident, $features:literal, |$sum:ident, $x:ident, $y:ident| $step:expr) => {
        /// # Safety
        /// The panels have `terms` terms of [`ROWS`] and [`COLUMNS`] elements, `sums` has room for the tile, and the
        /// machine has the instructions.
        #[target_feature(enable = $features)]
        unsafe fn $name<const OWN_ROWS: usize, const OWN_WIDTH: usize>(
            terms: usize,
            left: *const u32,
            right: *const u32,
            to: *mut f32,
            step: usize,
            onto: bool,
        ) {
            let mut sums = [[_mm512_setzero_ps(); OWN_WIDTH]; OWN_ROWS];
            for term in 0..terms {
                // SAFETY: the panels have `terms` terms.
                let (left, right) = unsafe { (left.add(term * ROWS), right.add(term * COLUMNS)) };
                let mut vectors = [_mm512_setzero_si512(); OWN_WIDTH];
                for (i, vector) in vectors.iter_mut().enumerate() {
                    // SAFETY: a term has `COLUMNS` elements.
                    *vector = unsafe { _mm512_loadu_si512(right.add(i * LANES).cast()) };
                }
                for (row, sums) in sums.iter_mut().enumerate() {
                    // SAFETY: a term has `ROWS` elements.
                    let $x = _mm512_set1_epi32(unsafe { left.add(row).read() } as i32);
                    for ($sum, $y) in sums.iter_mut().zip(vectors) {
                        *$sum = $step;
                    }
                }
            }
            for (row, sums) in sums.iter().enumerate() {
                for (i, sum) in sums.iter().enumerate() {
                    // SAFETY: there is room for the tile, which was computed before if it is added to.
                    unsafe {
                        let to = to.add(row * step + i * LANES);
                        _mm512_storeu_ps(to, if onto { _mm512_add_ps(_mm512_loadu_ps(to), *sum) } else { *sum });
                    }
                }
            }
        }
    };
}
tiles! { tile_of_numbers, "avx512f,avx512bw,avx512dq,avx512vl", |sum, x, y|
    _mm512_fmadd_ps(_mm512_castsi512_ps(x), _mm512_castsi512_ps(y), *sum)
}
tiles! { tile_of_pairs, "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16", |sum, x, y|
    _mm512_dpbf16_ps(*sum, pairs_in(x), pairs_in(y))
}

/// The bits of a register as pairs of bf16.
#[inline]
#[target_feature(enable = "avx512f")]
fn pairs_in(x: __m512i) -> __m512bh {
    // SAFETY: both types are registers of 512 bits, of which any bits are valid.
    unsafe { std::mem::transmute(x) }
}

/// Packs `rows` rows of `columns` elements: the elements of each column of `PANEL` rows become neighbours, with zeros
/// for the rows that the operand lacks.
///
/// # Safety
/// `from` is valid for these elements, `to` has room for `PANEL` elements for each packed column, and the machine has
/// the level.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn pack<const PANEL: usize>(packing: Packing, from: StridedMatrix, rows: usize, columns: usize, to: *mut u32) {
    let (row_step, column_step, source) = (from.row_step, from.column_step, from.ptr.cast::<u16>().cast_const());
    let elements = packing.elements();
    for first in (0..PANEL).step_by(LANES) {
        let lanes = LANES.min(PANEL - first);
        let own = rows.saturating_sub(first).min(lanes);
        let stored = ((1u32 << lanes) - 1) as __mmask16;
        let loaded = ((1u32 << own) - 1) as __mmask16;
        let source = source.wrapping_offset(first as isize * row_step);
        let mut column = 0;
        // SAFETY: masks have bits for the operand's rows and columns, and for the lanes of the panel, only.
        unsafe {
            while column < columns {
                let to = to.add(column / elements * PANEL + first);
                if column_step == 1 && (row_step != 1 || rows == 1) {
                    // Neighbours of a row become neighbours of a column.
                    let packed = LANES.min((columns - column).div_ceil(elements));
                    let mut block = [_mm512_setzero_si512(); LANES];
                    for (row, line) in block.iter_mut().enumerate().take(own) {
                        let from = source.offset(row as isize * row_step + column as isize);
                        *line = neighbours(packing, from, columns - column);
                    }
                    let block = transposed(block);
                    for (i, line) in block.iter().enumerate().take(packed) {
                        _mm512_mask_storeu_epi32(to.add(i * PANEL).cast(), stored, *line);
                    }
                    column += LANES * elements;
                    continue;
                }
                let load = |column: usize| {
                    let from = source.offset(column as isize * column_step);
                    if row_step == 1 {
                        return _mm256_maskz_loadu_epi16(loaded, from.cast());
                    }
                    let mut all = [0u16; LANES];
                    for (row, x) in all.iter_mut().enumerate().take(own) {
                        *x = from.offset(row as isize * row_step).read();
                    }
                    _mm256_loadu_si256(all.as_ptr().cast())
                };
                let mut line = widened(packing, load(column));
                if packing == Packing::Pairs && column + 1 < columns {
                    line = _mm512_or_si512(line, _mm512_slli_epi32::<16>(widened(packing, load(column + 1))));
                }
                _mm512_mask_storeu_epi32(to.cast(), stored, line);
                column += elements;
            }
        }
    }
}

/// Up to [`LANES`] packed elements of neighbours, with zeros beyond the first `count` elements.
///
/// # Safety
/// `from` is valid for `count` elements.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn neighbours(packing: Packing, from: *const u16, count: usize) -> __m512i {
    let mask = |most: usize| if count < most { (1u32 << count) - 1 } else { u32::MAX };
    // SAFETY: the masks have bits for the first `count` elements only.
    unsafe {
        match packing {
            Packing::Pairs => _mm512_maskz_loadu_epi16(mask(2 * LANES), from.cast()),
            _ => widened(packing, _mm256_maskz_loadu_epi16(mask(LANES) as __mmask16, from.cast())),
        }
    }
}

/// Elements as f32 numbers, or as the lower halves of pairs.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn widened(packing: Packing, x: __m256i) -> __m512i {
    match packing {
        Packing::FromF16 => _mm512_castps_si512(_mm512_cvtph_ps(x)),
        Packing::FromBf16 => _mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(x)),
        Packing::Pairs => _mm512_cvtepu16_epi32(x),
    }
}

/// The transpose of 16 by 16 elements of 4 bytes.
#[inline]
#[target_feature(enable = "avx512f")]
fn transposed(rows: [__m512i; LANES]) -> [__m512i; LANES] {
    // Pairs, then groups of four rows are interleaved within each quarter of a register, then the quarters exchanged.
    let (mut pairs, mut fours, mut all) = (rows, rows, rows);
    for i in 0..8 {
        pairs[2 * i] = _mm512_unpacklo_epi32(rows[2 * i], rows[2 * i + 1]);
        pairs[2 * i + 1] = _mm512_unpackhi_epi32(rows[2 * i], rows[2 * i + 1]);
    }
    for i in [0, 4, 8, 12] {
        fours[i] = _mm512_unpacklo_epi64(pairs[i], pairs[i + 2]);
        fours[i + 1] = _mm512_unpackhi_epi64(pairs[i], pairs[i + 2]);
        fours[i + 2] = _mm512_unpacklo_epi64(pairs[i + 1], pairs[i + 3]);
        fours[i + 3] = _mm512_unpackhi_epi64(pairs[i + 1], pairs[i + 3]);
    }
    for i in 0..4 {
        let (a, b, c, d) = (fours[i], fours[i + 4], fours[i + 8], fours[i + 12]);
        let (low, high) = (_mm512_shuffle_i32x4::<0x44>(a, b), _mm512_shuffle_i32x4::<0xee>(a, b));
        let (other_low, other_high) = (_mm512_shuffle_i32x4::<0x44>(c, d), _mm512_shuffle_i32x4::<0xee>(c, d));
        all[i] = _mm512_shuffle_i32x4::<0x88>(low, other_low);
        all[i + 4] = _mm512_shuffle_i32x4::<0xdd>(low, other_low);
        all[i + 8] = _mm512_shuffle_i32x4::<0x88>(high, other_high);
        all[i + 12] = _mm512_shuffle_i32x4::<0xdd>(high, other_high);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{CpuBackend, CpuOptions};
    use crate::kernels::SimdLevel;
    use crate::test_tensors::{download, run, upload};
    use gt_ops::{Attrs, Meta, Op, Shape};

    /// A matrix of elements that f16 and bf16 have exactly, possibly transposed or with gaps between its elements.
    fn matrix(b: &mut CpuBackend, dtype: DType, dims: [usize; 3], layout: usize) -> crate::CpuTensor {
        let [batches, rows, columns] = dims;
        let element = |i: usize| ((i * 7919 + rows) % 17) as f64 / 4.0 - 2.0;
        let at = |[batch, row, column]: [usize; 3]| element((batch * rows + row) * columns + column);
        let stored = match layout {
            0 => dims,
            1 => [batches, columns, rows],
            _ => [batches, rows, 2 * columns],
        };
        let elements: Vec<f64> = (0..stored.iter().product())
            .map(|i| {
                let (batch, row, column) = (i / (stored[1] * stored[2]), i / stored[2] % stored[1], i % stored[2]);
                match layout {
                    0 => at([batch, row, column]),
                    1 => at([batch, column, row]),
                    // A gap that must not be read.
                    _ if column % 2 == 1 => f64::NAN,
                    _ => at([batch, row, column / 2]),
                }
            })
            .collect();
        let stored = upload(b, Shape::new(&stored).unwrap(), dtype, &elements);
        let mut strides = stored.strides;
        match layout {
            0 => {}
            1 => strides.swap(1, 2),
            _ => strides[2] *= 2,
        }
        stored.view(Shape::new(&dims).unwrap(), stored.offset_bytes, strides)
    }

    /// Every packing has the sums that f64 has, rounded once, for sizes within and beyond tiles, vectors and terms,
    /// and for all layouts.
    #[test]
    fn products_of_half_precisions_are_those_of_f64() {
        if !SimdLevel::available().contains(&SimdLevel::Avx512) {
            return;
        }
        let mut backend = CpuBackend::new(CpuOptions { threads: 2, ..CpuOptions::default() });
        let b = &mut backend;
        let sizes =
            [(0, 3, 2), (3, 0, 2), (1, 1, 1), (2, 3, 5), (13, 33, 17), (12, 512, 32), (25, 515, 70), (1600, 9, 70)];
        for (m, k, n) in sizes {
            for dtype in [DType::BF16, DType::F16] {
                for (left_layout, right_layout) in [(0, 0), (0, 1), (1, 0), (1, 1), (2, 2)] {
                    let left = matrix(b, dtype, [2, m, k], left_layout);
                    let right = matrix(b, dtype, [2, k, n], right_layout);
                    let (x, y) = (download(b, &left), download(b, &right));
                    for out in [dtype, DType::F32] {
                        let meta = Meta::new(Shape::new(&[2, m, n]).unwrap(), out);
                        let wide: Vec<f64> = (0..2 * m * n)
                            .map(|i| {
                                let (batch, row, column) = (i / (m * n), i / n % m, i % n);
                                (0..k).map(|t| x[(batch * m + row) * k + t] * y[(batch * k + t) * n + column]).sum()
                            })
                            .collect();
                        let want = upload(b, meta.shape, out, &wide);
                        let want = download(b, &want);
                        for packing in Packing::all(dtype) {
                            let found = b.half_matmul(packing, &left, &right, None, &meta).unwrap();
                            let found = download(b, &found);
                            assert!(found == want, "{packing:?}: {m} by {k} by {n}, {left_layout}, {right_layout}");
                        }
                    }
                }
            }
        }
    }

    /// Infinities and NaN spread to the sums that contain them, and to no others.
    #[test]
    fn numbers_that_are_not_finite_stay_in_their_row() {
        if !SimdLevel::available().contains(&SimdLevel::Avx512) {
            return;
        }
        let mut backend = CpuBackend::new(CpuOptions { threads: 1, ..CpuOptions::default() });
        let b = &mut backend;
        let (m, k, n) = (14, 3, 20);
        let mut elements = vec![1.0; m * k];
        (elements[2], elements[12 * k]) = (f64::INFINITY, f64::NAN);
        let left = upload(b, Shape::new(&[m, k]).unwrap(), DType::BF16, &elements);
        let right = upload(b, Shape::new(&[k, n]).unwrap(), DType::BF16, &vec![1.0; k * n]);
        for packing in Packing::all(DType::BF16) {
            let meta = Meta::new(Shape::new(&[m, n]).unwrap(), DType::BF16);
            let found = b.half_matmul(packing, &left, &right, None, &meta).unwrap();
            for (row, found) in download(b, &found).chunks(n).enumerate() {
                for x in found {
                    let right = match row {
                        0 => *x == f64::INFINITY,
                        12 => x.is_nan(),
                        _ => *x == 3.0,
                    };
                    assert!(right, "{packing:?}: {x} in row {row}");
                }
            }
        }
        // The same products by the op.
        let found = run(b, Op::Matmul, &[&left, &right], &[], &Attrs::None);
        assert_eq!(download(b, &found)[n..12 * n], vec![3.0; 11 * n]);
    }
}
