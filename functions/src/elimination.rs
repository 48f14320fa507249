//! LU decompositions of real matrices with partial pivoting, in loops that fill the registers of the machine.
//!
//! The decomposition divides the columns in halves (Toledo 1997). Panels of a few columns, which stay in the cache next
//! to the core, are eliminated column by column; the rest are products of matrices.

use crate::registers::{LANES_MAX, VectorElement, largest_of_registers, split_columns};
use faer::linalg::{matmul, triangular_solve};
use faer::reborrow::{Reborrow, ReborrowMut};
use faer::traits::ext::ComplexFieldExt;
use faer::{Accum, MatMut, Par};
use pulp::{Arch, Simd, WithSimd};

/// The number of columns that are updated for each time that the multipliers are read.
const COLUMNS: usize = 4;
/// Panels of at most this many columns are not divided.
const PANEL: usize = 16;

/// Overwrites a matrix with its LU decomposition, and `exchanges` with the row that each row was exchanged with. A
/// column without a pivot other than zero is left as it is.
pub(crate) fn decompose_lu<T: VectorElement>(a: MatMut<'_, T>, exchanges: &mut [usize]) {
    let count = exchanges.len();
    let mut work = vec![T::zero(); PANEL * a.nrows().next_multiple_of(LANES_MAX)];
    let (mut square, mut beside) = a.split_at_col_mut(count);
    decompose(square.rb_mut(), exchanges, &mut work);
    if beside.ncols() > 0 {
        exchange(beside.rb_mut(), exchanges);
        triangular_solve::solve_unit_lower_triangular_in_place(square.rb(), beside, Par::Seq);
    }
}

/// [`decompose_lu`] of a matrix with at least as many rows as columns.
fn decompose<T: VectorElement>(mut a: MatMut<'_, T>, exchanges: &mut [usize], work: &mut [T]) {
    let (rows, columns) = (a.nrows(), a.ncols());
    if columns <= PANEL {
        let len = rows.next_multiple_of(LANES_MAX);
        let elements = &mut work[..len * columns];
        elements.fill(T::zero());
        let mut panel = MatMut::from_column_major_slice_mut(&mut *elements, len, columns).subrows_mut(0, rows);
        panel.copy_from(a.rb());
        let mut upper = [T::zero(); PANEL * PANEL];
        Arch::new().dispatch(LuPanel { elements, len, upper: &mut upper, exchanges });
        let panel = MatMut::from_column_major_slice_mut(&mut *elements, len, columns).subrows_mut(0, rows);
        a.copy_from(panel);
        let upper = MatMut::from_column_major_slice_mut(&mut upper[..PANEL * columns], PANEL, columns);
        a.subrows_mut(0, columns).copy_from_triangular_upper(upper.subrows_mut(0, columns));
        return;
    }
    let half = (columns / 2).next_multiple_of(PANEL);
    let (first, second) = exchanges.split_at_mut(half);
    let (mut left, mut right) = a.split_at_col_mut(half);
    decompose(left.rb_mut(), first, work);
    exchange(right.rb_mut(), first);
    let (triangle, multipliers) = left.rb().split_at_row(half);
    let (mut above, mut below) = right.split_at_row_mut(half);
    triangular_solve::solve_unit_lower_triangular_in_place(triangle, above.rb_mut(), Par::Seq);
    matmul::matmul(below.rb_mut(), Accum::Add, multipliers, above.rb(), -T::one(), Par::Seq);
    decompose(below, second, work);
    exchange(left.subrows_mut(half, rows - half), second);
    second.iter_mut().for_each(|row| *row += half);
}

/// Exchanges each row with another one, in this order.
fn exchange<T: VectorElement>(a: MatMut<'_, T>, exchanges: &[usize]) {
    let moved: Vec<(usize, usize)> =
        exchanges.iter().copied().enumerate().filter(|(row, other)| row != other).collect();
    if moved.is_empty() {
        return;
    }
    for mut column in a.col_iter_mut() {
        for (row, other) in &moved {
            let (x, y) = (column[*row], column[*other]);
            (column[*row], column[*other]) = (y, x);
        }
    }
}

/// The columns of an LU decomposition that are eliminated one by one.
struct LuPanel<'a, T> {
    /// The columns, filled up with zeros to `len` elements, which become the columns of L below the diagonal.
    elements: &'a mut [T],
    len: usize,
    /// Columns of [`PANEL`] elements, for the elements of U.
    upper: &'a mut [T],
    exchanges: &'a mut [usize],
}

impl<T: VectorElement> WithSimd for LuPanel<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let LuPanel { elements, len, upper, exchanges } = self;
        let width = exchanges.len();
        for (k, exchanged) in exchanges.iter_mut().enumerate() {
            let upper = &mut upper[k * PANEL..][..=k];
            let own = &mut elements[k * len..][..len];
            upper[..k].copy_from_slice(&own[..k]);
            own[..k].fill(T::zero());
            let from = k / T::lane_count::<S>();
            let pivot = k + pivot::<T, S>(simd, &own[from * T::lane_count::<S>()..], &own[k..]);
            *exchanged = pivot;
            if pivot != k {
                elements.chunks_exact_mut(len).for_each(|column| column.swap(k, pivot));
            }
            let (own, mut rest) = elements[k * len..].split_at_mut(len);
            let diagonal = std::mem::replace(&mut own[k], T::zero());
            upper[k] = diagonal;
            let reciprocal = T::one() / diagonal;
            if diagonal == T::zero() {
                continue;
            } else if reciprocal.is_finite() {
                let scale = T::splat_lanes(simd, reciprocal);
                let own = &mut T::registers_mut::<S>(own).0[from..];
                own.iter_mut().for_each(|x| *x = T::multiply_lanes(simd, *x, scale));
            } else {
                own[k + 1..].iter_mut().for_each(|x| *x /= diagonal);
            }
            let multipliers = &T::registers::<S>(own).0[from..];
            let mut left = width - k - 1;
            while left >= COLUMNS {
                rest = update::<T, S, COLUMNS>(simd, multipliers, k, rest, len, from);
                left -= COLUMNS;
            }
            for _ in 0..left {
                rest = update::<T, S, 1>(simd, multipliers, k, rest, len, from);
            }
        }
    }
}

/// The place of the largest element of a column: the first of several, NaN before all others. The registers have zeros
/// before the column.
#[inline(always)]
fn pivot<T: VectorElement, S: Simd>(simd: S, registers: &[T], column: &[T]) -> usize {
    let largest = largest_of_registers::<T, S>(simd, T::registers::<S>(registers).0);
    let is_largest = |x: &T| *x == largest || *x == -largest;
    let first = column.iter().position(is_largest).unwrap_or(0);
    if largest > T::zero() && column[first].is_finite() {
        return first;
    }
    column.iter().position(|x| x.is_nan()).unwrap_or(first)
}

/// Subtracts `multipliers * row k` from the first `N` columns. Returns the other columns.
#[inline(always)]
fn update<'a, T: VectorElement, S: Simd, const N: usize>(
    simd: S,
    multipliers: &[T::Register<S>],
    k: usize,
    elements: &'a mut [T],
    len: usize,
    from: usize,
) -> &'a mut [T] {
    let factors: [T::Register<S>; N] = std::array::from_fn(|i| T::splat_lanes(simd, -elements[i * len + k]));
    let (columns, rest) = split_columns::<T, S, N>(elements, len, from);
    let count = multipliers.len();
    assert!(columns.iter().all(|column| column.len() == count));
    for row in 0..count {
        for i in 0..N {
            columns[i][row] = T::multiply_add(simd, multipliers[row], factors[i], columns[i][row]);
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More than two panels, of which the last is not full.
    const SIZE: usize = 2 * PANEL + 5;

    fn decomposed(element: impl Fn(usize, usize) -> f32) -> (Vec<f32>, Vec<usize>) {
        let mut elements: Vec<f32> = (0..SIZE * SIZE).map(|k| element(k % SIZE, k / SIZE)).collect();
        let mut exchanges = vec![0; SIZE];
        decompose_lu(MatMut::from_column_major_slice_mut(&mut elements, SIZE, SIZE), &mut exchanges);
        (elements, exchanges)
    }

    #[test]
    fn the_first_of_the_largest_elements_is_the_pivot() {
        // All elements of a column have one absolute value, so that no rows are exchanged.
        let (elements, exchanges) =
            decomposed(|i, j| if i >= j { if (i * j) % 3 == 1 { -1.0 } else { 1.0 } } else { 0.0 });
        assert!(exchanges.iter().copied().eq(0..SIZE));
        assert!(elements.iter().all(|x| x.abs() <= 1.0));
        // A permutation: each pivot is the one element of its row.
        let (elements, exchanges) = decomposed(|i, j| if (i + 1) % SIZE == j { 2.0 } else { 0.0 });
        assert_eq!(exchanges[0], SIZE - 1);
        assert!((0..SIZE).all(|k| elements[k * SIZE + k] == 2.0));
    }

    #[test]
    fn columns_without_a_pivot_are_left() {
        for empty in [0, 3, PANEL, SIZE - 1] {
            let (elements, _) = decomposed(|i, j| if i == j && j != empty { 3.0 } else { 0.0 });
            assert!((0..SIZE).all(|k| elements[k * SIZE + k] == if k == empty { 0.0 } else { 3.0 }));
            assert!(elements.iter().all(|x| x.is_finite()));
        }
    }

    #[test]
    fn pivots_whose_reciprocals_are_infinite_divide() {
        let (elements, _) = decomposed(|i, j| if i == j || j == 0 { 1e-40 } else { 0.0 });
        assert!(elements[1..SIZE].iter().all(|x| *x == 1.0), "{:?}", &elements[..SIZE]);
    }

    #[test]
    fn nan_stays() {
        for row in [0, 5, SIZE - 1] {
            let (elements, _) =
                decomposed(|i, j| if (i, j) == (row, 2) { f32::NAN } else { f32::from(u8::from(i == j)) });
            assert!(elements.iter().any(|x| x.is_nan()));
            let zero_pivot = (0..SIZE).any(|k| elements[k * SIZE + k] == 0.0);
            assert!(!zero_pivot, "a matrix with NaN is not singular");
        }
    }
}
