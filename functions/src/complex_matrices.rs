//! Decompositions of complex matrices on the host, and the real matrices that stand for complex ones.
//!
//! The real matrix of a complex one has the block `[[a, -b], [b, a]]` for each element `a + ib`. Products, inverses,
//! solutions and Cholesky factors of such matrices are the real matrices of those of the complex ones, so these
//! functions, and their gradients, are computed by the functions of real matrices. Singular vectors are not: each
//! singular value is there twice, and [`svd`] chooses one of the vectors.

use crate::dense::{self, HostMatrix};
use gt_ops::error::Result;
use gt_ops::expr::{Builder, Expr};
use gt_ops::{DType, Scalar};
use nalgebra::{Complex, DMatrix, DVector};

type C = Complex<f64>;
/// A complex matrix on the host, in columns.
pub(crate) type ComplexMatrix = DMatrix<C>;

const ZERO: C = C::new(0.0, 0.0);

/// The conjugate transpose of matrices; of real ones, the transpose.
pub(crate) fn adjoint(a: Expr<'_>) -> Result<Expr<'_>> {
    Ok(if a.dtype()?.is_complex() { a.transposed().conj() } else { a.transposed() })
}

/// The sizes of the batch axes, their product, the rows and the columns.
fn split(sizes: &[i64]) -> (&[i64], i64, i64, i64) {
    match sizes {
        [batch @ .., rows, columns] => (batch, batch.iter().product(), *rows, *columns),
        _ => (&[], 1, 1, sizes.iter().product()),
    }
}

/// The real matrices, `(*, 2 m, 2 n)`, of complex ones, `(*, m, n)`.
pub(crate) fn to_real<'g>(g: &'g Builder<'g>, a: Expr<'g>) -> Result<Expr<'g>> {
    let sizes = a.sizes()?;
    let (batch, count, rows, columns) = split(&sizes);
    // One batch axis leaves room for those of the blocks.
    let a = a.reshape(&[count, rows, columns]);
    let (re, im) = (a.real(), a.imag());
    let blocks = g.stack(&[g.stack(&[re, -im], -1), g.stack(&[im, re], -1)], -3);
    Ok(blocks.reshape(&[batch, &[2 * rows, 2 * columns]].concat()))
}

/// The complex matrices of their real ones.
pub(crate) fn to_complex<'g>(g: &'g Builder<'g>, a: Expr<'g>) -> Result<Expr<'g>> {
    let sizes = a.sizes()?;
    let (batch, count, rows, columns) = split(&sizes);
    let blocks = a.reshape(&[count, rows / 2, 2, columns / 2, 2]).select(-1, 0);
    let numbers = g.complex(blocks.select(-2, 0), blocks.select(-2, 1));
    Ok(numbers.reshape(&[batch, &[rows / 2, columns / 2]].concat()))
}

/// The real vectors, `(*, 2 n, k)`, of complex ones in columns, `(*, n, k)`: real and imaginary parts by turns.
pub(crate) fn columns_to_real<'g>(g: &'g Builder<'g>, b: Expr<'g>) -> Result<Expr<'g>> {
    let sizes = b.sizes()?;
    let (batch, count, rows, columns) = split(&sizes);
    let b = b.reshape(&[count, rows, columns]);
    Ok(g.stack(&[b.real(), b.imag()], -2).reshape(&[batch, &[2 * rows, columns]].concat()))
}

/// The complex vectors of real ones in columns.
pub(crate) fn columns_to_complex<'g>(g: &'g Builder<'g>, b: Expr<'g>) -> Result<Expr<'g>> {
    let sizes = b.sizes()?;
    let (batch, count, rows, columns) = split(&sizes);
    let parts = b.reshape(&[count, rows / 2, 2, columns]);
    let numbers = g.complex(parts.select(-2, 0), parts.select(-2, 1));
    Ok(numbers.reshape(&[batch, &[rows / 2, columns]].concat()))
}

/// The complex matrices of the last two axes. Waits for the elements.
pub(crate) fn matrices(tensor: Expr<'_>) -> Result<Vec<ComplexMatrix>> {
    let shape = tensor.shape()?;
    let (rows, columns) = match shape.dims() {
        [.., rows, columns] => (*rows, *columns),
        _ => (1, shape.numel()),
    };
    let count = shape.dims().iter().rev().skip(2).product::<usize>();
    let parts = |x: Expr<'_>| -> Result<Vec<f64>> { Ok(x.elements()?.into_iter().map(Scalar::to_f64).collect()) };
    let (re, im) = (parts(tensor.real())?, parts(tensor.imag())?);
    let element = |k: usize, i: usize, j: usize| (k * rows + i) * columns + j;
    let matrix =
        |k: usize| ComplexMatrix::from_fn(rows, columns, |i, j| C::new(re[element(k, i, j)], im[element(k, i, j)]));
    Ok((0..count).map(matrix).collect())
}

/// A tensor of complex numbers, with parts of the dtype `part`.
pub(crate) fn upload_numbers<'g>(g: &'g Builder<'g>, numbers: &[C], sizes: &[i64], part: DType) -> Expr<'g> {
    let parts = |of: fn(&C) -> f64| g.floats(&numbers.iter().map(of).collect::<Vec<f64>>(), sizes, part);
    g.complex(parts(|z| z.re), parts(|z| z.im))
}

/// A tensor of complex matrices, of a batch with these sizes.
pub(crate) fn upload<'g>(
    g: &'g Builder<'g>,
    batch: &[i64],
    rows: i64,
    columns: i64,
    all: &[ComplexMatrix],
    part: DType,
) -> Expr<'g> {
    // The rows of the transpose are the columns, in which nalgebra stores a matrix.
    let numbers: Vec<C> = all.iter().flat_map(|a| a.transpose().iter().copied().collect::<Vec<C>>()).collect();
    upload_numbers(g, &numbers, &[batch, &[rows, columns]].concat(), part)
}

/// The determinant's direction, a number of absolute value 1 or 0, and the logarithm of its absolute value.
pub(crate) fn log_determinant(a: ComplexMatrix) -> (C, f64) {
    let lu = a.lu();
    let upper = lu.u();
    let (mut direction, mut logarithm) = (C::new(lu.p().determinant::<f64>(), 0.0), 0.0);
    for pivot in upper.diagonal().iter() {
        let size = pivot.norm();
        direction = if size == 0.0 { ZERO } else { direction * (pivot / size) };
        logarithm += size.ln();
    }
    (direction, logarithm)
}

/// The determinant.
pub(crate) fn determinant(a: ComplexMatrix) -> C {
    a.lu().determinant()
}

/// Subtracts from a vector its parts along orthonormal ones, and returns these. The second pass removes what rounding
/// leaves after the first ("twice is enough": Giraud, Langou and Rozloznik 2005).
fn orthogonalize(vector: &mut DVector<C>, known: &[DVector<C>]) -> Vec<C> {
    let mut parts = vec![ZERO; known.len()];
    for _ in 0..2 {
        for (part, direction) in parts.iter_mut().zip(known) {
            let along = direction.dotc(vector);
            vector.axpy(-along, direction, C::new(1.0, 0.0));
            *part += along;
        }
    }
    parts
}

/// A unit vector that is orthogonal to orthonormal ones, of which there are fewer than elements: what remains of the
/// axis that is farthest from all of them.
fn another(size: usize, known: &[DVector<C>]) -> DVector<C> {
    let mut farthest = DVector::zeros(size);
    for i in 0..size {
        let mut axis = DVector::zeros(size);
        axis[i] = C::new(1.0, 0.0);
        orthogonalize(&mut axis, known);
        if axis.norm() > farthest.norm() {
            farthest = axis;
        }
    }
    farthest.unscale(farthest.norm())
}

fn of_columns(rows: usize, columns: &[DVector<C>]) -> ComplexMatrix {
    ComplexMatrix::from_fn(rows, columns.len(), |i, j| columns[j][i])
}

/// The QR decomposition with `count` orthonormal columns, by Gram and Schmidt. The diagonal of R is not negative.
pub(crate) fn qr(a: &ComplexMatrix, count: usize) -> (ComplexMatrix, ComplexMatrix) {
    let mut q: Vec<DVector<C>> = Vec::new();
    let mut r = ComplexMatrix::zeros(count, a.ncols());
    for (j, column) in a.column_iter().enumerate() {
        let (mut rest, size) = (column.clone_owned(), column.norm());
        let parts = orthogonalize(&mut rest, &q);
        parts.into_iter().enumerate().for_each(|(k, part)| r[(k, j)] = part);
        if q.len() < count && j < count {
            let length = rest.norm();
            // A remainder that is rounding has no direction.
            let known = length > f64::EPSILON * size * a.nrows() as f64 || length.is_nan();
            r[(j, j)] = C::new(if known { length } else { 0.0 }, 0.0);
            q.push(if known { rest.unscale(length) } else { another(a.nrows(), &q) });
        }
    }
    while q.len() < count {
        q.push(another(a.nrows(), &q));
    }
    (of_columns(a.nrows(), &q), r)
}

/// The singular value decomposition `a = U diag(S) Vh` with descending S, reduced or with square U and Vh; `None`
/// without convergence.
pub(crate) fn svd(a: &ComplexMatrix, full: bool) -> Option<(ComplexMatrix, Vec<f64>, ComplexMatrix)> {
    let (rows, columns) = a.shape();
    let count = rows.min(columns);
    let block = |i: usize, j: usize| {
        let z = a[(i / 2, j / 2)];
        match (i % 2, j % 2) {
            (0, 1) => -z.im,
            (1, 0) => z.im,
            _ => z.re,
        }
    };
    let (_, doubled, vh) = dense::svd(&HostMatrix::of(2 * rows, 2 * columns, block), true)?;
    // Half of the real vectors of one singular value are complex multiples of the others.
    let (mut right, mut values) = (Vec::new(), Vec::new());
    for k in 0..2 * columns {
        let mut vector = DVector::from_fn(columns, |j, _| C::new(vh[(k, 2 * j)], vh[(k, 2 * j + 1)]));
        orthogonalize(&mut vector, &right);
        if right.len() < columns && vector.norm() > 1e-3 {
            right.push(vector.unscale(vector.norm()));
            values.push(doubled.get(k).copied().unwrap_or(0.0));
        }
    }
    values.truncate(count);
    let least = values.first().map_or(0.0, |largest| largest * f64::EPSILON * rows.max(columns) as f64);
    let mut left: Vec<DVector<C>> = Vec::new();
    for (vector, value) in right.iter().zip(&values) {
        // The image of a vector whose singular value is rounding has no direction.
        let mut image = if *value > least { (a * vector).unscale(*value) } else { DVector::zeros(rows) };
        orthogonalize(&mut image, &left);
        let length = image.norm();
        left.push(if length > 0.5 { image.unscale(length) } else { another(rows, &left) });
    }
    while full && left.len() < rows {
        left.push(another(rows, &left));
    }
    right.truncate(if full { columns } else { count });
    Some((of_columns(rows, &left), values, of_columns(columns, &right).adjoint()))
}
