//! Products of small matrices of floats by tiles that stay in vector registers. Nothing is packed where the rows of the
//! right operand are contiguous: the kernels for all products take longer to be called and to pack than such a product
//! takes.

#![expect(clippy::needless_range_loop, reason = "iterators over vectors are not inlined into functions of a level")]

use crate::kernels::SimdLevel;
use crate::register_tiles::{SimdVector, Tiled};
use crate::strided::StridedMatrix;
use gt_ops::math::Real;
use std::mem::MaybeUninit;

/// Larger products are faster by the kernels that pack both operands.
const PRODUCTS_MAX: usize = 32 << 10;
/// The elements of a right operand that stays in L1, beside the rows of the left one.
const RIGHT_MAX: usize = 4 << 10;
/// The elements of a right operand that stays in L2, and the least rows that are multiplied with it at once: for fewer,
/// the kernels for all products do not pack it either.
const READ_ONCE_MAX: usize = 128 << 10;
const READ_ONCE_ROWS_MIN: usize = 5;
/// A right operand of contiguous columns, and of more elements than this, is only transposed for so many rows.
const TURNED_MAX: usize = 64;
const TURNED_ROWS_MIN: usize = 8;
/// A left operand of more elements than this is not multiplied with fewer columns: they would leave most of a vector
/// register empty.
const NARROW_MAX: usize = 1024;
const NARROW: usize = 4;
/// The largest number of rows of a tile.
const ROWS_MAX: usize = 8;
/// The largest number of vectors in a row of a tile.
const WIDTH_MAX: usize = 2;

/// A tile of a product: rows of sums, whose last vector may be partial.
struct ProductTile<E> {
    /// The number of terms of each sum.
    terms: usize,
    /// The first element of the rows of the left operand, and the elements from a row and from a term to the next.
    left: (*const E, isize, isize),
    /// The first element of the columns of the right operand, and the elements from a term to the next.
    right: (*const E, isize),
    /// The first element of the result, and the elements from a row to the next.
    to: (*mut E, isize),
    /// The columns in the last vector of a row.
    last: usize,
    /// Whether the products are added to the elements of the result.
    onto: bool,
}

/// # Safety
/// The operands are valid for the terms of `ROWS` rows and of the tile's columns, so is the result for its elements,
/// and the machine has the vector's instructions.
#[inline(always)]
unsafe fn tile<V: SimdVector<E: Tiled>, const ROWS: usize, const WIDTH: usize>(tile: &ProductTile<V::E>) {
    let &ProductTile {
        terms,
        left: (left, row_step, term_step),
        right: (right, right_step),
        to: (to, to_step),
        last,
        onto,
    } = tile;
    // SAFETY: every address is of a term of a row or a column, or of an element of the result, which the contract
    // covers.
    unsafe {
        let mut sums = [[V::splat(V::E::ZERO); WIDTH]; ROWS];
        if onto {
            for row in 0..ROWS {
                let from = to.offset(row as isize * to_step);
                for i in 0..WIDTH - 1 {
                    sums[row][i] = V::load(from.add(i * V::N));
                }
                sums[row][WIDTH - 1] = V::load_first(from.add((WIDTH - 1) * V::N), last);
            }
        }
        for term in 0..terms as isize {
            let from = right.offset(term * right_step);
            let mut columns = [V::splat(V::E::ZERO); WIDTH];
            for i in 0..WIDTH - 1 {
                columns[i] = V::load(from.add(i * V::N));
            }
            columns[WIDTH - 1] = V::load_first(from.add((WIDTH - 1) * V::N), last);
            for row in 0..ROWS {
                let x = V::splat(*left.offset(row as isize * row_step + term * term_step));
                for i in 0..WIDTH {
                    sums[row][i] = sums[row][i].plus_product(x, columns[i]);
                }
            }
        }
        for row in 0..ROWS {
            let to = to.offset(row as isize * to_step);
            for i in 0..WIDTH - 1 {
                sums[row][i].store(to.add(i * V::N));
            }
            sums[row][WIDTH - 1].store_first(to.add((WIDTH - 1) * V::N), last);
        }
    }
}

/// Products of `count` pairs of square matrices of `N` rows, each in row-major order behind the one before. With
/// `FUSED`, the machine adds a product in one instruction, as the tiles do.
///
/// # Safety
/// All three are valid for `count` matrices, and the result overlaps no operand.
#[inline(always)]
unsafe fn squares<E: Real, const N: usize, const FUSED: bool>(to: *mut E, a: *const E, b: *const E, count: usize) {
    for i in 0..count {
        // SAFETY: `i < count`; an array has the layout of its elements, `N * N` as a matrix.
        let (a, b) = unsafe { (*a.cast::<[[E; N]; N]>().add(i), *b.cast::<[[E; N]; N]>().add(i)) };
        let mut sums = [[E::ZERO; N]; N];
        for row in 0..N {
            for term in 0..N {
                for column in 0..N {
                    let (x, y, so_far) = (a[row][term], b[term][column], sums[row][column]);
                    sums[row][column] = if FUSED { x.mul_add(y, so_far) } else { so_far + x * y };
                }
            }
        }
        // SAFETY: `i < count`, and the result has as many matrices as the operands.
        unsafe { to.cast::<[[E; N]; N]>().add(i).write(sums) };
    }
}

/// Multiplies pairs of square matrices; see [`squares`].
pub type SquareProducts<E> = unsafe fn(to: *mut E, a: *const E, b: *const E, count: usize);

/// Computes a tile.
type TileLoop<E> = unsafe fn(&ProductTile<E>);

/// The loops of a level for one type of element, by vectors - 1 and rows - 1.
struct ProductTiles<E> {
    lanes: usize,
    /// The number of rows for whose sums of [`WIDTH_MAX`] vectors there are registers.
    rows: usize,
    loops: [[TileLoop<E>; ROWS_MAX]; WIDTH_MAX],
}

macro_rules! level {
    ($(#[$enable:meta])* $name:ident, $rows:literal rows, $fused:literal: $($each:literal),*) => {
        mod $name {
            use crate::matmul_small::{ProductTile, ProductTiles, SquareProducts};
            use crate::register_tiles::{SimdVector, Tiled};
            use gt_ops::math::Real;
            $(#[$enable])*
            unsafe fn squares<E: Real, const N: usize>(to: *mut E, a: *const E, b: *const E, count: usize) {
                // SAFETY: the contract is the same.
                unsafe { crate::matmul_small::squares::<E, N, $fused>(to, a, b, count) }
            }
            pub fn squares_of<E: Real>(rows: usize) -> Option<SquareProducts<E>> {
                match rows {
                    2 => Some(squares::<E, 2>),
                    3 => Some(squares::<E, 3>),
                    4 => Some(squares::<E, 4>),
                    _ => None,
                }
            }
            $(#[$enable])*
            unsafe fn tile<V: SimdVector<E: Tiled>, const ROWS: usize, const WIDTH: usize>(tile: &ProductTile<V::E>) {
                // SAFETY: the contract is the same.
                unsafe { crate::matmul_small::tile::<V, ROWS, WIDTH>(tile) }
            }
            pub const fn tiles<V: SimdVector<E: Tiled>>() -> ProductTiles<V::E> {
                ProductTiles { lanes: V::N, rows: $rows, loops: [[$(tile::<V, $each, 1>),*], [$(tile::<V, $each, 2>),*]] }
            }
        }
    };
}
level! { baseline, 6 rows, false: 1, 2, 3, 4, 5, 6, 7, 8 }
#[cfg(target_arch = "x86_64")]
level! { #[target_feature(enable = "avx2,fma")] avx2, 6 rows, true: 1, 2, 3, 4, 5, 6, 7, 8 }
#[cfg(target_arch = "x86_64")]
level! {
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    avx512, 8 rows, true: 1, 2, 3, 4, 5, 6, 7, 8
}

/// The function that multiplies pairs of square matrices of so many rows; none if there is none for that size.
pub fn square_products<E: Real>(level: SimdLevel, rows: usize) -> Option<SquareProducts<E>> {
    match level {
        SimdLevel::Baseline => baseline::squares_of(rows),
        #[cfg(target_arch = "x86_64")]
        SimdLevel::Avx2 => avx2::squares_of(rows),
        #[cfg(target_arch = "x86_64")]
        SimdLevel::Avx512 => avx512::squares_of(rows),
    }
}

/// An element type that has products by tiles.
pub trait SmallProduct: Tiled {
    /// Computes `out = a b`, or `out += a b`, for an `m` by `k` and a `k` by `n` matrix. False if the product is not
    /// small, or a row of the result is not contiguous; nothing is done then.
    ///
    /// # Safety
    /// The matrices are valid for all their elements, and the result overlaps neither operand; the machine has the
    /// level.
    unsafe fn multiply(
        level: SimdLevel,
        sizes: (usize, usize, usize),
        matrices: [StridedMatrix; 3],
        onto: bool,
    ) -> bool;
}

macro_rules! products {
    ($($e:ty: $baseline:ty, $avx2:ident, $avx512:ident;)*) => {$(
        impl SmallProduct for $e {
            unsafe fn multiply(
                level: SimdLevel,
                sizes: (usize, usize, usize),
                matrices: [StridedMatrix; 3],
                onto: bool,
            ) -> bool {
                // SAFETY: the contract is the same. Each level's loops are of its vectors.
                unsafe {
                    match level {
                        SimdLevel::Baseline => {
                            multiply(&const { baseline::tiles::<$baseline>() }, sizes, matrices, onto)
                        },
                        #[cfg(target_arch = "x86_64")]
                        SimdLevel::Avx2 => {
                            multiply(&const { avx2::tiles::<std::arch::x86_64::$avx2>() }, sizes, matrices, onto)
                        },
                        #[cfg(target_arch = "x86_64")]
                        SimdLevel::Avx512 => {
                            multiply(&const { avx512::tiles::<std::arch::x86_64::$avx512>() }, sizes, matrices, onto)
                        }
                    }
                }
            }
        }
    )*};
}
products! {
    f32: [f32; 4], __m256, __m512;
    f64: [f64; 2], __m256d, __m512d;
}

/// # Safety
/// Same as for [`SmallProduct::multiply`], with the tiles of the level.
#[inline]
unsafe fn multiply<E: Tiled>(
    tiles: &ProductTiles<E>,
    (m, n, k): (usize, usize, usize),
    [out, a, b]: [StridedMatrix; 3],
    onto: bool,
) -> bool {
    let is_turned = b.column_step != 1 && n > 1;
    let turns_for_few = is_turned && m < TURNED_ROWS_MIN && k * n > TURNED_MAX;
    let is_narrow = n < NARROW && m * k > NARROW_MAX;
    let by_columns = out.column_step != 1 && n > 1;
    // The rows of one tile read each element of the right operand once, so that it need not be packed.
    let is_read_once = !is_turned && (READ_ONCE_ROWS_MIN..=ROWS_MAX).contains(&m) && k * n <= READ_ONCE_MAX;
    let is_small = m * n * k <= PRODUCTS_MAX && k * n <= RIGHT_MAX;
    if !(is_small || is_read_once) || by_columns || turns_for_few || is_narrow {
        return false;
    }
    let mut rows = [MaybeUninit::<E>::uninit(); RIGHT_MAX];
    let (right, right_step) = if !is_turned {
        (b.ptr.cast_const().cast::<E>(), b.row_step)
    } else {
        for column in 0..n {
            let from = b.at(0, column, size_of::<E>()).ptr.cast_const().cast::<E>();
            for term in 0..k {
                // SAFETY: `term < k` and `column < n`, for which `b` is valid.
                rows[term * n + column].write(unsafe { from.offset(term as isize * b.row_step).read() });
            }
        }
        (rows.as_ptr().cast(), n as isize)
    };
    let wide = tiles.lanes * WIDTH_MAX;
    for column in (0..n).step_by(wide) {
        let columns = wide.min(n - column);
        let width = columns.div_ceil(tiles.lanes);
        let last = columns - (width - 1) * tiles.lanes;
        // Rows are divided evenly, so that no tile has so few sums that each waits for the last addition to it.
        let rows_max = if width == 1 { ROWS_MAX } else { tiles.rows };
        let rows = m.div_ceil(m.div_ceil(rows_max).max(1)).max(1);
        for row in (0..m).step_by(rows) {
            let rows = rows.min(m - row);
            let left = (a.at(row, 0, size_of::<E>()).ptr.cast_const().cast(), a.row_step, a.column_step);
            let to = (out.at(row, column, size_of::<E>()).ptr.cast(), out.row_step);
            let tile = ProductTile { terms: k, left, right: (right.wrapping_add(column), right_step), to, last, onto };
            // SAFETY: the tile lies within the product, the rows of whose result are contiguous, as are those of the
            // right operand; each tile has elements of its own.
            unsafe { tiles.loops[width - 1][rows - 1](&tile) };
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A matrix of small integers, whose products are exact, in memory with the strides of `layout`.
    fn matrix<E: Tiled>(
        (rows, columns): (usize, usize),
        (row_step, column_step): (usize, usize),
        number: impl Fn(usize, usize) -> E,
    ) -> (Vec<E>, StridedMatrix) {
        let mut elements = vec![number(0, 0); rows * row_step + columns * column_step + 1];
        for (row, column) in (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column))) {
            elements[row * row_step + column * column_step] = number(row, column);
        }
        let (row_step, column_step) = (row_step as isize, column_step as isize);
        let matrix = StridedMatrix { ptr: elements.as_mut_ptr().cast(), row_step, column_step };
        (elements, matrix)
    }

    fn check<E: SmallProduct + PartialEq + std::fmt::Debug>(level: SimdLevel, number: impl Fn(usize) -> E) {
        for (m, n, k) in [
            (1, 1, 1),
            (3, 24, 32),
            (4, 4, 4),
            (16, 16, 16),
            (7, 33, 5),
            (17, 3, 9),
            (2, 5, 0),
            (9, 40, 8),
            (6, 301, 40),
        ] {
            let layouts = [((k, 1), (n, 1), false), ((1, m), (1, k), false), ((k + 3, 1), (n + 5, 1), true)];
            for (left_steps, right_steps, onto) in layouts {
                let (left, right) = (|i: usize, j: usize| (i * 5 + j * 3) % 7, |i: usize, j: usize| (i * 2 + j) % 5);
                let (_left, a) = matrix((m, k), left_steps, |i, j| number(left(i, j)));
                let (_right, b) = matrix((k, n), right_steps, |i, j| number(right(i, j)));
                let (found, out) = matrix((m, n), (n + 2, 1), |_, _| number(11));
                // SAFETY: the matrices have memory of their own, and the machine has the level.
                if !unsafe { E::multiply(level, (m, n, k), [out, a, b], onto) } {
                    assert!(right_steps.1 != 1 && m < TURNED_ROWS_MIN && k * n > TURNED_MAX);
                    continue;
                }
                for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
                    let sum: usize = (0..k).map(|t| left(i, t) * right(t, j)).sum();
                    let want = number(if onto { sum + 11 } else { sum });
                    assert_eq!(found[i * (n + 2) + j], want, "{level:?}: {m} by {k} by {n} at ({i}, {j}), {onto}");
                }
                // The elements between the rows of the result stay as they are.
                assert!((0..m).all(|i| found[i * (n + 2) + n] == number(11)), "{level:?}: {m} by {k} by {n}");
            }
        }
    }

    #[test]
    fn small_products_are_exact_in_every_layout_and_level() {
        for level in SimdLevel::available() {
            check::<f32>(level, |i| i as f32);
            check::<f64>(level, |i| i as f64);
        }
    }

    #[test]
    fn pairs_of_small_squares_are_multiplied_in_every_level() {
        for (level, rows) in SimdLevel::available().into_iter().flat_map(|level| (2..=4).map(move |rows| (level, rows)))
        {
            let size = rows * rows;
            for count in [0, 1, 5] {
                let a: Vec<f64> = (0..count * size).map(|i| (i % 7) as f64).collect();
                let b: Vec<f64> = (0..count * size).map(|i| (i % 5) as f64).collect();
                let mut found = vec![9.0; count * size];
                let multiply = square_products::<f64>(level, rows).unwrap();
                // SAFETY: all three have `count` matrices, and the machine has the level.
                unsafe { multiply(found.as_mut_ptr(), a.as_ptr(), b.as_ptr(), count) };
                for (i, found) in found.iter().enumerate() {
                    let (first, row, column) = (i / size * size, i % size / rows, i % rows);
                    let want: f64 = (0..rows).map(|t| a[first + row * rows + t] * b[first + t * rows + column]).sum();
                    assert_eq!(*found, want, "{level:?}: element {i} of {count} products of {rows} rows");
                }
            }
        }
        assert!(square_products::<f32>(SimdLevel::Baseline, 5).is_none());
    }

    #[test]
    fn larger_products_and_results_by_columns_are_left_to_other_kernels() {
        let (_all, any) = matrix((64, 64), (64, 1), |_, _| 0.0f32);
        let by_columns = any.transposed();
        let level = SimdLevel::Baseline;
        // SAFETY: nothing is computed.
        unsafe {
            assert!(!f32::multiply(level, (64, 64, 64), [any, any, any], false));
            assert!(!f32::multiply(level, (4, 4, 4), [by_columns, any, any], false));
        }
    }
}
