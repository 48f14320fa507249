//! The tridiagonal form of a symmetric matrix.
//!
//! Householder's method (Golub and Van Loan, "Matrix Computations", section 8.3.1): each step takes a reflection from
//! both sides, an update of rank two that zeroes a column below the element beside the diagonal. The next step needs
//! the product of the updated matrix and its vector, so one pass over the matrix does both. All of the matrix is kept,
//! not one triangle: its columns are then added to the product as they are, without a sum for each column.

use crate::dense::{HostMatrices, RealElement, with_memory};
use crate::reflections::Reflection;
use crate::registers::{LANES_MAX, dot_of_registers, split_columns};
use faer::linalg::evd::tridiag;
use faer::linalg::qr::no_pivoting::factor::recommended_block_size;
use faer::traits::ext::ComplexFieldExt;
use faer::{Par, Spec};
use pulp::{Arch, Simd, WithSimd};

/// The number of columns that a pass reads for each time that it reads the vectors.
const COLUMNS: usize = 4;
/// Matrices of at most this size, which stay in the cache next to the core, are made tridiagonal here, in 0.5 to 0.9 of
/// faer's time. For larger ones it is faster to read one triangle.
const BYTES_MAX: usize = 1 << 20;

/// A symmetric matrix that reflections `I - tau v v^T` have made tridiagonal.
pub(crate) struct TridiagonalForm<T> {
    /// The vectors `v` of the reflections as columns, each zero in the rows up to its own index. There may be more rows
    /// than in the matrix.
    pub(crate) vectors: HostMatrices<T>,
    /// The factors of the reflections, 0 where there is none.
    pub(crate) taus: Vec<T>,
    pub(crate) diagonal: Vec<f64>,
    /// The elements beside the diagonal.
    pub(crate) beside: Vec<f64>,
}

/// Makes symmetric matrix `i`, of which the lower triangle is read, tridiagonal. It has at least one row.
pub(crate) fn tridiagonal<T: RealElement>(symmetric: &HostMatrices<T>, i: usize) -> TridiagonalForm<T> {
    if size_of_val(symmetric.one(i)) <= BYTES_MAX {
        tridiagonal_by_registers(symmetric, i)
    } else {
        tridiagonal_by_faer(symmetric, i)
    }
}

/// [`tridiagonal`] in loops that fill the registers of the machine.
fn tridiagonal_by_registers<T: RealElement>(symmetric: &HostMatrices<T>, i: usize) -> TridiagonalForm<T> {
    Arch::new().dispatch(Reduced { symmetric, i })
}

/// [`tridiagonal`] by faer, which reads one triangle alone.
fn tridiagonal_by_faer<T: RealElement>(symmetric: &HostMatrices<T>, i: usize) -> TridiagonalForm<T> {
    let size = symmetric.rows;
    let mut vectors = HostMatrices { count: 1, rows: size, columns: size, elements: symmetric.one(i).to_vec() };
    let block = recommended_block_size::<T>(size, size);
    let mut blocks = HostMatrices::zeros(1, block, size - 1);
    if size > 1 {
        let request = tridiag::tridiag_in_place_scratch::<T>(size, Par::Seq, Spec::default());
        with_memory(request, |memory| {
            tridiag::tridiag_in_place(vectors.view_mut(0), blocks.view_mut(0), Par::Seq, memory, Spec::default());
        });
    }
    let diagonal = (0..size).map(|k| vectors.at(0, k, k).to_f64()).collect();
    let beside = (1..size).map(|k| vectors.at(0, k, k - 1).to_f64()).collect();
    // faer has the reciprocals of the factors on the diagonals of its blocks.
    let taus = (0..size - 1).map(|k| T::one() / blocks.at(0, k % block, k)).collect();
    for (k, column) in vectors.elements.chunks_exact_mut(size).enumerate() {
        column[..=k].fill(T::zero());
        column.iter_mut().skip(k + 1).take(1).for_each(|x| *x = T::one());
    }
    TridiagonalForm { vectors, taus, diagonal, beside }
}

struct Reduced<'a, T: RealElement> {
    symmetric: &'a HostMatrices<T>,
    i: usize,
}

impl<T: RealElement> WithSimd for Reduced<'_, T> {
    type Output = TridiagonalForm<T>;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> TridiagonalForm<T> {
        let size = self.symmetric.rows;
        let column_len = size.next_multiple_of(T::lane_count::<S>());
        let mut matrix = FullMatrix { elements: vec![T::zero(); size * column_len], column_len };
        let largest = matrix.fill(self.symmetric.one(self.i), size).to_f64();
        let (taus, mut diagonal, mut beside) = matrix.reduce(simd, size);
        diagonal.iter_mut().chain(&mut beside).for_each(|x| *x *= largest);
        let vectors = HostMatrices { count: 1, rows: column_len, columns: size, elements: matrix.elements };
        TridiagonalForm { vectors, taus, diagonal, beside }
    }
}

/// A symmetric matrix whose columns are filled up with zeros to whole vector registers.
struct FullMatrix<T> {
    elements: Vec<T>,
    column_len: usize,
}

/// The vectors of an update `A - v w^T - w v^T`, filled up as the columns are.
struct RankTwo<T> {
    v: Vec<T>,
    w: Vec<T>,
}

impl<T: RealElement> FullMatrix<T> {
    /// Takes the elements of `lower`, divided by the largest, whose absolute value is returned: no square of them is
    /// infinite.
    #[inline(always)]
    fn fill(&mut self, lower: &[T], size: usize) -> T {
        let mut most = [T::zero(); LANES_MAX];
        for (column, elements) in lower.chunks_exact(size).enumerate() {
            for chunk in elements[column..].chunks(LANES_MAX) {
                for (most, x) in most.iter_mut().zip(chunk) {
                    let x = x.abs();
                    *most = if x > *most { x } else { *most };
                }
            }
        }
        let largest = most.iter().fold(T::zero(), |most, x| if *x > most { *x } else { most });
        let scale = if largest > T::zero() { largest } else { T::one() };
        for column in 0..size {
            let (known, rest) = self.elements.split_at_mut((column + 1) * self.column_len);
            let own = &mut known[column * self.column_len..][column..size];
            own.iter_mut().zip(&lower[column * size + column..]).for_each(|(to, x)| *to = *x / scale);
            let row = rest.iter_mut().skip(column).step_by(self.column_len);
            row.zip(&own[1..]).for_each(|(to, x)| *to = *x);
        }
        scale
    }

    /// The factors of the reflections, the diagonal and the elements beside it. Leaves the vectors of the
    /// reflections in the columns.
    #[inline(always)]
    fn reduce<S: Simd>(&mut self, simd: S, size: usize) -> (Vec<T>, Vec<f64>, Vec<f64>) {
        let (len, lanes) = (self.column_len, T::lane_count::<S>());
        let (mut diagonal, mut beside) = (vec![0.0; size], vec![0.0; size - 1]);
        let mut taus = vec![T::zero(); size - 1];
        let mut update = RankTwo { v: vec![T::zero(); len], w: vec![T::zero(); len] };
        let mut next = RankTwo { v: vec![T::zero(); len], w: vec![T::zero(); len] };
        for k in 0..size {
            let column = &mut self.elements[k * len..][..len];
            let (v, w) = (T::splat_lanes(simd, -update.v[k]), T::splat_lanes(simd, -update.w[k]));
            let rows = |all| &T::registers::<S>(all).0[k / lanes..];
            let (v_rows, w_rows) = (rows(&update.v), rows(&update.w));
            let own = &mut T::registers_mut::<S>(column).0[k / lanes..];
            for (x, (v_row, w_row)) in own.iter_mut().zip(v_rows.iter().zip(w_rows)) {
                *x = T::multiply_add(simd, *v_row, w, T::multiply_add(simd, *w_row, v, *x));
            }
            diagonal[k] = column[k].to_f64();
            column[..=k].fill(T::zero());
            if k + 1 == size {
                break;
            }
            let Reflection { reflected, tau } = Reflection::of_column(simd, column, k + 1);
            (beside[k], taus[k]) = (reflected.to_f64(), tau);
            next.v.copy_from_slice(column);
            next.w.fill(T::zero());
            self.update_and_multiply(simd, k + 1, &update, &mut next);
            next.w[..=k].fill(T::zero());
            let from = (k + 1) / lanes;
            let v = &T::registers::<S>(&next.v).0[from..];
            let products = &mut T::registers_mut::<S>(&mut next.w).0[from..];
            let along = dot_of_registers::<T, S>(simd, products, v);
            let correction = T::splat_lanes(simd, -(tau * tau * along / (T::one() + T::one())));
            let scale = T::splat_lanes(simd, tau);
            for (w, v) in products.iter_mut().zip(v) {
                *w = T::multiply_add(simd, correction, *v, T::multiply_lanes(simd, scale, *w));
            }
            std::mem::swap(&mut update, &mut next);
        }
        (taus, diagonal, beside)
    }

    /// Updates the rows and columns from `first` on, and adds the product of the matrix and `next.v` to `next.w`.
    #[inline(always)]
    fn update_and_multiply<S: Simd>(&mut self, simd: S, first: usize, update: &RankTwo<T>, next: &mut RankTwo<T>) {
        let len = self.column_len;
        let mut column = first;
        let mut groups = self.elements[first * len..].chunks_exact_mut(COLUMNS * len);
        for group in &mut groups {
            columns::<T, S, COLUMNS>(simd, group, len, (first, column), update, next);
            column += COLUMNS;
        }
        for one in groups.into_remainder().chunks_exact_mut(len) {
            columns::<T, S, 1>(simd, one, len, (first, column), update, next);
            column += 1;
        }
    }
}

/// [`FullMatrix::update_and_multiply`] for `N` columns from `column` on.
#[inline(always)]
fn columns<T: RealElement, S: Simd, const N: usize>(
    simd: S,
    elements: &mut [T],
    len: usize,
    (first, column): (usize, usize),
    update: &RankTwo<T>,
    next: &mut RankTwo<T>,
) {
    // Rows before `first` that share its register are done: what becomes of them is not read.
    let from = first / T::lane_count::<S>();
    let (columns, _) = split_columns::<T, S, N>(elements, len, from);
    let v_own: [T::Register<S>; N] = std::array::from_fn(|i| T::splat_lanes(simd, -update.v[column + i]));
    let w_own: [T::Register<S>; N] = std::array::from_fn(|i| T::splat_lanes(simd, -update.w[column + i]));
    let factors: [T::Register<S>; N] = std::array::from_fn(|i| T::splat_lanes(simd, next.v[column + i]));
    let rows = |elements| &T::registers::<S>(elements).0[from..];
    let (v, w) = (rows(&update.v), rows(&update.w));
    let products = &mut T::registers_mut::<S>(&mut next.w).0[from..];
    let blocks = products.len();
    assert!(v.len() == blocks && w.len() == blocks && columns.iter().all(|column| column.len() == blocks));
    for block in 0..blocks {
        let mut product = products[block];
        for i in 0..N {
            let x = T::multiply_add(simd, v[block], w_own[i], columns[i][block]);
            let x = T::multiply_add(simd, w[block], v_own[i], x);
            columns[i][block] = x;
            product = T::multiply_add(simd, x, factors[i], product);
        }
        products[block] = product;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dense::tests::{adjoint, assert_close, identity, product};

    /// Checks that `Q T Q^T` is the matrix, by the product Q of the reflections.
    fn check<T: RealElement>(a: &HostMatrices<T>, reduce: fn(&HostMatrices<T>, usize) -> TridiagonalForm<T>) {
        let size = a.rows;
        let TridiagonalForm { vectors, taus, diagonal, beside } = reduce(a, 0);
        let mut q = identity::<T>(size);
        for (k, tau) in taus.iter().enumerate() {
            let v = HostMatrices::of(1, size, 1, |_, i, _| vectors.at(0, i, k));
            let along = product(&product(&q, &v), &adjoint(&v));
            q = HostMatrices::of(1, size, size, |_, i, j| q.at(0, i, j) - *tau * along.at(0, i, j));
        }
        assert_close(&product(&adjoint(&q), &q), &identity(size));
        let element = |i: usize, j: usize| match i.abs_diff(j) {
            0 => diagonal[i],
            1 => beside[i.min(j)],
            _ => 0.0,
        };
        let narrow = HostMatrices::of(1, size, size, |_, i, j| T::from_f64_impl(element(i, j)));
        assert_close(&product(&product(&q, &narrow), &adjoint(&q)), a);
    }

    #[test]
    fn reflections_give_the_matrix_back() {
        for size in [1, 2, 3, 17, 40] {
            for element in [
                |i: usize, j: usize| ((i * 71 + j * 29 + i * j * 13) as f64).sin(),
                |i: usize, j: usize| if i == j { i as f64 } else { 0.0 },
                |i: usize, j: usize| 10f64.powi(-2 * j as i32) * (i + 1) as f64,
                |_, _| 1.0,
                |_, _| 0.0,
            ] {
                let a = HostMatrices::of(1, size, size, |_, i, j| element(i.min(j), i.max(j)));
                check(&a, tridiagonal_by_registers);
                check(&a, tridiagonal_by_faer);
                let a = HostMatrices::of(1, size, size, |_, i, j| element(i.min(j), i.max(j)) as f32);
                check(&a, tridiagonal_by_registers);
                check(&a, tridiagonal_by_faer);
            }
        }
    }
}
