//! The tridiagonal form of a symmetric matrix whose eigenvalues alone are wanted.
//!
//! Householder's method (Golub and Van Loan, "Matrix Computations", section 8.3.1): each step takes a reflection from
//! both sides, an update of rank two that zeroes a column below the element beside the diagonal. The next step needs
//! the product of the updated matrix and its vector, so one pass over the matrix does both. All of the matrix is kept,
//! not one triangle: its columns are then added to the product as they are, without a sum for each column.

use crate::dense::{HostMatrices, RealElement};
use pulp::{Arch, Simd, WithSimd};

/// The number of columns that a pass reads for each time that it reads the vectors.
const COLUMNS: usize = 4;

/// The diagonal, and the elements beside it, of a tridiagonal matrix with the eigenvalues of symmetric matrix `i`, of
/// which the lower triangle is read.
pub(crate) fn tridiagonal_elements<T: RealElement>(symmetric: &HostMatrices<T>, i: usize) -> (Vec<f64>, Vec<f64>) {
    Arch::new().dispatch(Reduced { symmetric, i })
}

struct Reduced<'a, T: RealElement> {
    symmetric: &'a HostMatrices<T>,
    i: usize,
}

impl<T: RealElement> WithSimd for Reduced<'_, T> {
    type Output = (Vec<f64>, Vec<f64>);

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> (Vec<f64>, Vec<f64>) {
        let (size, column_len) = (self.symmetric.rows, self.symmetric.rows.next_multiple_of(S::F64_LANES));
        let mut matrix = FullMatrix { elements: vec![0.0; size * column_len], column_len };
        let largest = matrix.fill(self.symmetric.one(self.i), size);
        let (mut diagonal, mut beside) = matrix.reduce(simd, size);
        diagonal.iter_mut().chain(&mut beside).for_each(|x| *x *= largest);
        (diagonal, beside)
    }
}

/// A symmetric matrix whose columns are filled up with zeros to whole vector registers.
struct FullMatrix {
    elements: Vec<f64>,
    column_len: usize,
}

/// The vectors of an update `A - v w^T - w v^T`, filled up as the columns are.
struct RankTwo {
    v: Vec<f64>,
    w: Vec<f64>,
}

impl FullMatrix {
    /// Takes the elements of `lower`, divided by the largest, whose absolute value is returned: no square of them is
    /// infinite.
    fn fill<T: RealElement>(&mut self, lower: &[T], size: usize) -> f64 {
        let mut largest = 0.0f64;
        for column in 0..size {
            for row in column..size {
                let x = lower[column * size + row].to_f64();
                largest = largest.max(x.abs());
                self.elements[column * self.column_len + row] = x;
            }
        }
        let scale = if largest > 0.0 { largest } else { 1.0 };
        for column in 0..size {
            for row in column..size {
                let x = self.elements[column * self.column_len + row] / scale;
                self.elements[column * self.column_len + row] = x;
                self.elements[row * self.column_len + column] = x;
            }
        }
        scale
    }

    #[inline(always)]
    fn reduce<S: Simd>(&mut self, simd: S, size: usize) -> (Vec<f64>, Vec<f64>) {
        let len = self.column_len;
        let (mut diagonal, mut beside) = (vec![0.0; size], vec![0.0; size - 1]);
        let mut update = RankTwo { v: vec![0.0; len], w: vec![0.0; len] };
        let mut next = RankTwo { v: vec![0.0; len], w: vec![0.0; len] };
        for k in 0..size {
            let column = &mut self.elements[k * len..][..len];
            let (v, w) = (update.v[k], update.w[k]);
            for (x, (v_row, w_row)) in column[k..].iter_mut().zip(update.v[k..].iter().zip(&update.w[k..])) {
                *x -= v_row * w + w_row * v;
            }
            diagonal[k] = column[k];
            if k + 1 == size {
                break;
            }
            let below = column[k + 1];
            let rest: f64 = column[k + 2..].iter().map(|x| x * x).sum();
            // The reflection is `I - scale v v^T`, and takes the column to a multiple of the first unit vector.
            let reflected = -below.hypot(rest.sqrt()).copysign(below);
            let is_reflected = rest > 0.0;
            beside[k] = if is_reflected { reflected } else { below };
            next.v[..=k].fill(0.0);
            next.v[k + 1..].copy_from_slice(&column[k + 1..]);
            next.v[k + 1] = below - reflected;
            let scale = if is_reflected { 2.0 / (rest + next.v[k + 1] * next.v[k + 1]) } else { 0.0 };
            next.w.fill(0.0);
            self.update_and_multiply(simd, k + 1, &update, &mut next);
            let along: f64 = next.w[k + 1..].iter().zip(&next.v[k + 1..]).map(|(product, v)| product * v).sum();
            let correction = scale * scale / 2.0 * along;
            next.w[..=k].fill(0.0);
            for (w, v) in next.w[k + 1..].iter_mut().zip(&next.v[k + 1..]) {
                *w = scale * *w - correction * v;
            }
            std::mem::swap(&mut update, &mut next);
        }
        (diagonal, beside)
    }

    /// Updates the rows and columns from `first` on, and adds the product of the matrix and `next.v` to `next.w`.
    #[inline(always)]
    fn update_and_multiply<S: Simd>(&mut self, simd: S, first: usize, update: &RankTwo, next: &mut RankTwo) {
        let len = self.column_len;
        let mut column = first;
        let mut groups = self.elements[first * len..].chunks_exact_mut(COLUMNS * len);
        for group in &mut groups {
            columns::<S, COLUMNS>(simd, group, len, (first, column), update, next);
            column += COLUMNS;
        }
        for one in groups.into_remainder().chunks_exact_mut(len) {
            columns::<S, 1>(simd, one, len, (first, column), update, next);
            column += 1;
        }
    }
}

/// [`FullMatrix::update_and_multiply`] for `N` columns from `column` on.
#[inline(always)]
fn columns<S: Simd, const N: usize>(
    simd: S,
    mut elements: &mut [f64],
    len: usize,
    (first, column): (usize, usize),
    update: &RankTwo,
    next: &mut RankTwo,
) {
    // Rows before `first` that share its register are done: what becomes of them is not read.
    let from = first / S::F64_LANES;
    let columns: [&mut [S::f64s]; N] = std::array::from_fn(|_| {
        let (own, rest) = std::mem::take(&mut elements).split_at_mut(len);
        elements = rest;
        &mut S::as_mut_simd_f64s(own).0[from..]
    });
    let splat = |elements: &[f64], sign: f64| -> [S::f64s; N] {
        std::array::from_fn(|i| simd.splat_f64s(sign * elements[column + i]))
    };
    let (v_own, w_own, factors) = (splat(&update.v, -1.0), splat(&update.w, -1.0), splat(&next.v, 1.0));
    let rows = |elements| &S::as_simd_f64s(elements).0[from..];
    let (v, w) = (rows(&update.v), rows(&update.w));
    let products = &mut S::as_mut_simd_f64s(&mut next.w).0[from..];
    let blocks = products.len();
    assert!(v.len() == blocks && w.len() == blocks && columns.iter().all(|column| column.len() == blocks));
    for block in 0..blocks {
        let mut product = products[block];
        for i in 0..N {
            let x = simd.mul_add_f64s(v[block], w_own[i], columns[i][block]);
            let x = simd.mul_add_f64s(w[block], v_own[i], x);
            columns[i][block] = x;
            product = simd.mul_add_f64s(x, factors[i], product);
        }
        products[block] = product;
    }
}
