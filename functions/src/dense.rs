//! Decompositions of dense matrices on the host, in float64.
//!
//! Eigenvalues and singular values are nalgebra's. The LU, Cholesky and QR decompositions are the textbook algorithms
//! of Golub and Van Loan, "Matrix Computations" (4th edition), because callers need LAPACK's packed forms and its
//! `info`.

use nalgebra::DMatrix;
use std::ops::{Index, IndexMut};

/// A matrix in row-major order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HostMatrix {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) elements: Vec<f64>,
}

impl Index<(usize, usize)> for HostMatrix {
    type Output = f64;
    fn index(&self, (row, column): (usize, usize)) -> &f64 {
        &self.elements[row * self.columns + column]
    }
}
impl IndexMut<(usize, usize)> for HostMatrix {
    fn index_mut(&mut self, (row, column): (usize, usize)) -> &mut f64 {
        &mut self.elements[row * self.columns + column]
    }
}

impl HostMatrix {
    pub(crate) fn zeros(rows: usize, columns: usize) -> HostMatrix {
        HostMatrix { rows, columns, elements: vec![0.0; rows * columns] }
    }

    /// A matrix with ones on its main diagonal.
    pub(crate) fn identity(rows: usize, columns: usize) -> HostMatrix {
        let mut result = HostMatrix::zeros(rows, columns);
        for i in 0..rows.min(columns) {
            result[(i, i)] = 1.0;
        }
        result
    }

    /// A matrix of `element(row, column)`.
    pub(crate) fn of(rows: usize, columns: usize, element: impl Fn(usize, usize) -> f64) -> HostMatrix {
        let elements = (0..rows).flat_map(|i| (0..columns).map(move |j| (i, j))).map(|(i, j)| element(i, j)).collect();
        HostMatrix { rows, columns, elements }
    }

    fn row(&self, row: usize) -> &[f64] {
        &self.elements[row * self.columns..(row + 1) * self.columns]
    }

    /// A row that is read and a row that is written.
    fn row_and_row_mut(&mut self, read: usize, written: usize) -> (&[f64], &mut [f64]) {
        let columns = self.columns;
        let (first, second) = self.elements.split_at_mut(read.max(written) * columns);
        let low = &mut first[read.min(written) * columns..][..columns];
        let high = &mut second[..columns];
        if read < written { (low, high) } else { (high, low) }
    }

    fn swap_rows(&mut self, a: usize, b: usize) {
        for column in 0..self.columns {
            self.elements.swap(a * self.columns + column, b * self.columns + column);
        }
    }

    pub(crate) fn transposed(&self) -> HostMatrix {
        HostMatrix::of(self.columns, self.rows, |i, j| self[(j, i)])
    }

    /// The elements on and above the main diagonal, in the first rows.
    pub(crate) fn upper(&self, rows: usize) -> HostMatrix {
        HostMatrix::of(rows, self.columns, |i, j| if i <= j { self[(i, j)] } else { 0.0 })
    }

    /// The elements of a column below the main diagonal.
    fn below(&self, column: usize) -> Vec<f64> {
        (column + 1..self.rows).map(|i| self[(i, column)]).collect()
    }

    fn is_finite(&self) -> bool {
        self.elements.iter().all(|x| x.is_finite())
    }

    fn of_columns(matrix: &DMatrix<f64>) -> HostMatrix {
        HostMatrix::of(matrix.nrows(), matrix.ncols(), |i, j| matrix[(i, j)])
    }

    fn to_columns(&self) -> DMatrix<f64> {
        DMatrix::from_row_slice(self.rows, self.columns, &self.elements)
    }
}

/// The part of a matrix that a triangular system uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Triangle {
    /// The elements on and above the diagonal.
    Upper,
    /// The elements on and below the diagonal.
    Lower,
    /// The elements below the diagonal, with ones on it.
    UnitLower,
}

/// Overwrites the right-hand sides with the solution of a triangular system: back or forward substitution.
pub(crate) fn substitute(a: &HostMatrix, triangle: Triangle, x: &mut HostMatrix) {
    let size = x.rows;
    for step in 0..size {
        let (i, known) = match triangle {
            Triangle::Upper => (size - 1 - step, size - step..size),
            Triangle::Lower | Triangle::UnitLower => (step, 0..step),
        };
        for j in known {
            let factor = a[(i, j)];
            if factor != 0.0 {
                let (solved, row) = x.row_and_row_mut(j, i);
                row.iter_mut().zip(solved).for_each(|(y, z)| *y -= factor * z);
            }
        }
        if triangle != Triangle::UnitLower {
            let pivot = a[(i, i)];
            x.elements[i * x.columns..(i + 1) * x.columns].iter_mut().for_each(|y| *y /= pivot);
        }
    }
}

/// The LU decomposition of a matrix with partial pivoting.
pub(crate) struct PackedLu {
    /// L below the diagonal, on which it has ones, and U from the diagonal on.
    pub(crate) packed: HostMatrix,
    /// The rows of the matrix in the order of the rows of `L @ U`.
    pub(crate) order: Vec<usize>,
    /// The row that each row was exchanged with, in this order.
    pub(crate) exchanges: Vec<usize>,
}

impl PackedLu {
    /// Decomposes a matrix: the outer product form of Gaussian elimination.
    pub(crate) fn new(mut packed: HostMatrix) -> PackedLu {
        let count = packed.rows.min(packed.columns);
        let (mut order, mut exchanges): (Vec<usize>, Vec<usize>) = ((0..packed.rows).collect(), Vec::new());
        for k in 0..count {
            let larger = |best: usize, i: usize| {
                let (old, new) = (packed[(best, k)].abs(), packed[(i, k)].abs());
                if new > old || (new.is_nan() && !old.is_nan()) { i } else { best }
            };
            let pivot = (k + 1..packed.rows).fold(k, larger);
            exchanges.push(pivot);
            order.swap(k, pivot);
            packed.swap_rows(k, pivot);
            let diagonal = packed[(k, k)];
            if diagonal == 0.0 {
                continue;
            }
            for i in k + 1..packed.rows {
                let (read, row) = packed.row_and_row_mut(k, i);
                let factor = row[k] / diagonal;
                row[k] = factor;
                if factor != 0.0 {
                    row[k + 1..].iter_mut().zip(&read[k + 1..]).for_each(|(x, y)| *x -= factor * y);
                }
            }
        }
        PackedLu { packed, order, exchanges }
    }

    /// The diagonal of U.
    fn diagonal(&self) -> impl Iterator<Item = f64> {
        (0..self.exchanges.len()).map(|i| self.packed[(i, i)])
    }

    /// The first column without a pivot, counted from 1, or 0.
    pub(crate) fn first_zero_pivot(&self) -> usize {
        self.diagonal().position(|x| x == 0.0).map_or(0, |column| column + 1)
    }

    /// The first columns of L.
    pub(crate) fn lower(&self) -> HostMatrix {
        HostMatrix::of(self.packed.rows, self.exchanges.len(), |i, j| match i.cmp(&j) {
            std::cmp::Ordering::Less => 0.0,
            std::cmp::Ordering::Equal => 1.0,
            std::cmp::Ordering::Greater => self.packed[(i, j)],
        })
    }

    /// The sign of the determinant and the logarithm of its absolute value.
    pub(crate) fn log_determinant(&self) -> (f64, f64) {
        if self.first_zero_pivot() > 0 {
            return (0.0, f64::NEG_INFINITY);
        }
        let sign = self.diagonal().fold(self.parity(), |sign, x| if x < 0.0 { -sign } else { sign });
        (sign, self.diagonal().map(|x| x.abs().ln()).sum())
    }

    pub(crate) fn determinant(&self) -> f64 {
        self.diagonal().fold(self.parity(), |product, x| product * x)
    }

    /// The sign of the permutation.
    fn parity(&self) -> f64 {
        self.exchanges.iter().enumerate().fold(1.0, |sign, (i, j)| if i == *j { sign } else { -sign })
    }

    /// The solution of a system with a square matrix that has all pivots.
    pub(crate) fn solve(&self, right: &HostMatrix) -> HostMatrix {
        let mut x = HostMatrix::of(right.rows, right.columns, |i, j| right[(self.order[i], j)]);
        substitute(&self.packed, Triangle::UnitLower, &mut x);
        substitute(&self.packed, Triangle::Upper, &mut x);
        x
    }
}

/// The order of rows after exchanges, of each row in turn with another one.
pub(crate) fn row_order(rows: usize, exchanges: &[usize]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..rows).collect();
    for (i, j) in exchanges.iter().enumerate() {
        order.swap(i, *j);
    }
    order
}

/// The permutation matrix P for which `P @ rows[order]` are the rows in their original order.
pub(crate) fn permutation(order: &[usize]) -> HostMatrix {
    let mut result = HostMatrix::zeros(order.len(), order.len());
    for (place, row) in order.iter().enumerate() {
        result[(*row, place)] = 1.0;
    }
    result
}

/// The lower Cholesky factor of a symmetric matrix, of which the lower triangle is read; or the order of the first
/// leading minor that is not positive.
pub(crate) fn cholesky(a: &HostMatrix) -> Result<HostMatrix, usize> {
    let mut factor = HostMatrix::zeros(a.rows, a.rows);
    for i in 0..a.rows {
        for j in 0..=i {
            let known: f64 = factor.row(i)[..j].iter().zip(factor.row(j)).map(|(x, y)| x * y).sum();
            let rest = a[(i, j)] - known;
            if i > j {
                factor[(i, j)] = rest / factor[(j, j)];
            } else if rest > 0.0 {
                factor[(i, i)] = rest.sqrt();
            } else {
                return Err(i + 1);
            }
        }
    }
    Ok(factor)
}

/// Multiplies the columns of `x` from `first` on by the Householder reflection `1 - tau v v^T`, where `v` is 0 above
/// row `k`, 1 in row `k`, and `tail` below it.
fn reflect(tail: &[f64], k: usize, tau: f64, x: &mut HostMatrix, first: usize) {
    let mut products = x.row(k)[first..].to_vec();
    for (i, v) in tail.iter().enumerate() {
        products.iter_mut().zip(&x.row(k + 1 + i)[first..]).for_each(|(sum, y)| *sum += v * y);
    }
    for i in k..x.rows {
        let factor = if i == k { tau } else { tau * tail[i - k - 1] };
        let row = &mut x.elements[i * x.columns + first..(i + 1) * x.columns];
        row.iter_mut().zip(&products).for_each(|(y, sum)| *y -= factor * sum);
    }
}

/// The QR decomposition by Householder reflections, packed as LAPACK's `geqrf` does: R on and above the diagonal,
/// below it the vectors of the reflections; and their factors tau. The sign of each diagonal element of R is opposite
/// to that of the element that the reflection found there.
pub(crate) fn householder(mut a: HostMatrix) -> (HostMatrix, Vec<f64>) {
    let mut factors = Vec::new();
    for k in 0..a.rows.min(a.columns) {
        let largest = (k + 1..a.rows).map(|i| a[(i, k)].abs()).fold(0.0, f64::max);
        if largest == 0.0 {
            factors.push(0.0);
            continue;
        }
        let below = largest * (k + 1..a.rows).map(|i| (a[(i, k)] / largest).powi(2)).sum::<f64>().sqrt();
        let alpha = a[(k, k)];
        let beta = -alpha.hypot(below).copysign(alpha);
        let tau = (beta - alpha) / beta;
        for i in k + 1..a.rows {
            a[(i, k)] /= alpha - beta;
        }
        reflect(&a.below(k), k, tau, &mut a, k + 1);
        a[(k, k)] = beta;
        factors.push(tau);
    }
    (a, factors)
}

/// The first columns of the product of the reflections that [`householder`] returned: Q.
pub(crate) fn orthonormal(packed: &HostMatrix, factors: &[f64], columns: usize) -> HostMatrix {
    let mut q = HostMatrix::identity(packed.rows, columns);
    for (k, tau) in factors.iter().enumerate().rev() {
        reflect(&packed.below(k), k, *tau, &mut q, 0);
    }
    q
}

/// The number of iterations after which an algorithm has failed to converge.
fn iterations_max(size: usize) -> usize {
    1000 + 100 * size
}

/// The eigenvalues of a symmetric matrix in ascending order, and eigenvectors as columns; `None` without convergence.
pub(crate) fn eigen(symmetric: &HostMatrix) -> Option<(Vec<f64>, HostMatrix)> {
    let size = symmetric.rows;
    if size == 0 {
        return Some((Vec::new(), HostMatrix::zeros(0, 0)));
    }
    if !symmetric.is_finite() {
        return None;
    }
    let found = symmetric.to_columns().try_symmetric_eigen(f64::EPSILON, iterations_max(size))?;
    let mut order: Vec<usize> = (0..size).collect();
    order.sort_by(|i, j| found.eigenvalues[*i].total_cmp(&found.eigenvalues[*j]));
    let values = order.iter().map(|i| found.eigenvalues[*i]).collect();
    Some((values, HostMatrix::of(size, size, |i, j| found.eigenvectors[(i, order[j])])))
}

/// The singular value decomposition `a = U diag(S) Vh` with descending S, reduced or with square U and Vh; `None`
/// without convergence.
pub(crate) fn svd(a: &HostMatrix, full: bool) -> Option<(HostMatrix, Vec<f64>, HostMatrix)> {
    if a.rows < a.columns {
        let (u, s, vh) = svd(&a.transposed(), full)?;
        return Some((vh.transposed(), s, u.transposed()));
    }
    if !a.is_finite() {
        return None;
    }
    let count = a.columns;
    if count == 0 {
        let u = HostMatrix::identity(a.rows, if full { a.rows } else { 0 });
        return Some((u, Vec::new(), HostMatrix::zeros(0, 0)));
    }
    let found = a.to_columns().try_svd(true, true, 5.0 * f64::EPSILON, iterations_max(count))?;
    let (u, vh) = (HostMatrix::of_columns(found.u.as_ref()?), HostMatrix::of_columns(found.v_t.as_ref()?));
    let values: Vec<f64> = found.singular_values.iter().copied().collect();
    // nalgebra's vectors are wrong for some matrices of deficient rank.
    let (u, values, vh) = if is_decomposition(a, &u, &values, &vh) { (u, values, vh) } else { jacobi(a)? };
    let u = with_signs_of(u, &values, &vh);
    let u = if full { completed(u, a.rows) } else { u };
    Some((u, values, vh))
}

/// The left singular vectors, with those of singular values that are zero up to rounding turned towards the right
/// ones. Their sign is free; this one gives the nuclear norm of a singular matrix that is positive semidefinite the
/// gradient of a regular one close to it.
fn with_signs_of(mut u: HostMatrix, values: &[f64], vh: &HostMatrix) -> HostMatrix {
    let zero = values[0] * f64::EPSILON * u.rows as f64;
    for k in (0..values.len()).filter(|k| values[*k] <= zero) {
        let along: f64 = vh.row(k).iter().enumerate().map(|(i, x)| u[(i, k)] * x).sum();
        if along < 0.0 {
            (0..u.rows).for_each(|i| u[(i, k)] = -u[(i, k)]);
        }
    }
    u
}

/// A matrix of orthonormal columns with further ones, from Q in its QR decomposition.
fn completed(known: HostMatrix, columns: usize) -> HostMatrix {
    if known.columns == columns {
        return known;
    }
    let (packed, factors) = householder(known.clone());
    let q = orthonormal(&packed, &factors, columns);
    HostMatrix::of(known.rows, columns, |i, j| if j < known.columns { known[(i, j)] } else { q[(i, j)] })
}

/// Whether `u diag(s) vh` is the matrix, up to rounding.
fn is_decomposition(a: &HostMatrix, u: &HostMatrix, s: &[f64], vh: &HostMatrix) -> bool {
    let limit = 1e-13 * s[0] * (a.rows as f64).sqrt();
    (0..a.rows).all(|i| {
        let mut rest = a.row(i).to_vec();
        for (k, value) in s.iter().enumerate() {
            let factor = u[(i, k)] * value;
            rest.iter_mut().zip(vh.row(k)).for_each(|(x, y)| *x -= factor * y);
        }
        rest.iter().all(|x| x.abs() <= limit)
    })
}

/// The reduced singular value decomposition by one-sided Jacobi rotations (Hestenes 1958), which is slower.
fn jacobi(a: &HostMatrix) -> Option<(HostMatrix, Vec<f64>, HostMatrix)> {
    let count = a.columns;
    let (mut scaled, mut right) = (a.transposed(), HostMatrix::identity(count, count));
    let dot = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
    // Columns below the resolution of the matrix are rounding errors: they count as zeros.
    let least = f64::EPSILON * dot(&a.elements, &a.elements).sqrt();
    let mut converged = false;
    for _ in 0..60 {
        converged = true;
        for p in 0..count {
            for q in p + 1..count {
                let (x, y) = (scaled.row(p), scaled.row(q));
                let (alpha, beta, gamma) = (dot(x, x), dot(y, y), dot(x, y));
                let small = alpha.min(beta).sqrt() <= least;
                if small || gamma.abs() <= 2.0 * f64::EPSILON * (alpha * beta).sqrt() * (a.rows as f64).sqrt() {
                    continue;
                }
                converged = false;
                let zeta = (beta - alpha) / (2.0 * gamma);
                let tangent = zeta.signum() / (zeta.abs() + zeta.hypot(1.0));
                let cosine = 1.0 / tangent.hypot(1.0);
                let sine = cosine * tangent;
                for matrix in [&mut scaled, &mut right] {
                    for k in 0..matrix.columns {
                        let (x, y) = (matrix[(p, k)], matrix[(q, k)]);
                        matrix[(p, k)] = cosine * x - sine * y;
                        matrix[(q, k)] = sine * x + cosine * y;
                    }
                }
            }
        }
        if converged {
            break;
        }
    }
    let norms: Vec<f64> = (0..count).map(|i| dot(scaled.row(i), scaled.row(i)).sqrt()).collect();
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by(|i, j| norms[*j].total_cmp(&norms[*i]));
    let values: Vec<f64> = order.iter().map(|i| norms[*i]).collect();
    let rank = values.iter().filter(|value| **value > least).count();
    let known = HostMatrix::of(a.rows, rank, |i, j| scaled[(order[j], i)] / values[j]);
    converged.then(|| (completed(known, count), values, HostMatrix::of(count, count, |i, j| right[(order[i], j)])))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn product(a: &HostMatrix, b: &HostMatrix) -> HostMatrix {
        HostMatrix::of(a.rows, b.columns, |i, j| (0..a.columns).map(|k| a[(i, k)] * b[(k, j)]).sum())
    }

    fn assert_close(a: &HostMatrix, b: &HostMatrix) {
        assert_eq!((a.rows, a.columns), (b.rows, b.columns));
        let error = a.elements.iter().zip(&b.elements).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
        assert!(error < 1e-12, "{error}: {a:?} and {b:?}");
    }

    /// Matrices of several shapes and ranks: full, 1, 0, and with equal singular values.
    fn samples() -> Vec<HostMatrix> {
        let mut samples = Vec::new();
        for (rows, columns) in [(1, 1), (1, 4), (4, 1), (3, 3), (5, 3), (3, 5), (8, 8), (20, 7)] {
            samples.push(HostMatrix::of(rows, columns, |i, j| ((i * 7 + j * 13 + i * j * 5) as f64).sin()));
            samples.push(HostMatrix::of(rows, columns, |i, j| ((i + 1) * (j + 1)) as f64));
            samples.push(HostMatrix::zeros(rows, columns));
            samples.push(HostMatrix::identity(rows, columns));
        }
        samples
    }

    #[test]
    fn factors_give_the_matrix_back() {
        for a in samples() {
            let count = a.rows.min(a.columns);
            let lu = PackedLu::new(a.clone());
            assert_close(&product(&permutation(&lu.order), &product(&lu.lower(), &lu.packed.upper(count))), &a);
            assert_eq!(row_order(a.rows, &lu.exchanges), lu.order);
            let (packed, factors) = householder(a.clone());
            let q = orthonormal(&packed, &factors, a.rows);
            assert_close(&product(&q, &packed.upper(a.rows)), &a);
            assert_close(&product(&q.transposed(), &q), &HostMatrix::identity(a.rows, a.rows));
            for full in [false, true] {
                let (u, s, vh) = svd(&a, full).unwrap();
                let scales = HostMatrix::of(u.columns, vh.rows, |i, j| if i == j { s[i] } else { 0.0 });
                assert_close(&product(&u, &product(&scales, &vh)), &a);
                assert_close(&product(&u.transposed(), &u), &HostMatrix::identity(u.columns, u.columns));
                assert_close(&product(&vh, &vh.transposed()), &HostMatrix::identity(vh.rows, vh.rows));
                assert!(s.is_sorted_by(|x, y| x >= y) && s.iter().all(|x| *x >= 0.0));
            }
            let gram = product(&a, &a.transposed());
            let (values, vectors) = eigen(&gram).unwrap();
            let scales = HostMatrix::of(a.rows, a.rows, |i, j| if i == j { values[i] } else { 0.0 });
            let error = product(&product(&vectors, &scales), &vectors.transposed());
            let largest = gram.elements.iter().fold(1.0, |x: f64, y| x.max(y.abs()));
            assert_close(
                &HostMatrix::of(a.rows, a.rows, |i, j| error[(i, j)] / largest),
                &HostMatrix::of(a.rows, a.rows, |i, j| gram[(i, j)] / largest),
            );
            let positive = HostMatrix::of(a.rows, a.rows, |i, j| gram[(i, j)] / largest + f64::from(u8::from(i == j)));
            let factor = cholesky(&positive).unwrap();
            assert_close(&product(&factor, &factor.transposed()), &positive);
        }
    }

    #[test]
    fn rotations_find_singular_values() {
        for a in samples().into_iter().filter(|a| a.rows >= a.columns) {
            let (u, s, vh) = jacobi(&a).unwrap();
            assert!(a.elements.iter().all(|x| *x == 0.0) || is_decomposition(&a, &u, &s, &vh));
            assert_close(&product(&u.transposed(), &u), &HostMatrix::identity(a.columns, a.columns));
        }
    }

    #[test]
    fn faults_are_found() {
        let singular = HostMatrix::of(3, 3, |i, j| if i == 1 { 0.0 } else { (i + 2 * j) as f64 });
        assert_eq!(PackedLu::new(singular).first_zero_pivot(), 3);
        assert_eq!(cholesky(&HostMatrix::of(2, 2, |i, j| if i == j { 1.0 } else { 2.0 })), Err(2));
        assert_eq!(svd(&HostMatrix::of(2, 2, |_, _| f64::NAN), false), None);
        assert_eq!(eigen(&HostMatrix::of(2, 2, |_, _| f64::INFINITY)), None);
    }
}
