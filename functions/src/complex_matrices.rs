//! The real matrices that stand for complex ones.
//!
//! The real matrix of a complex one has the block `[[a, -b], [b, a]]` for each element `a + ib`. Products, inverses,
//! solutions and Cholesky factors of such matrices are the real matrices of those of the complex ones, so these
//! functions, and their gradients, are computed by the functions of real matrices.

use gt_ops::error::Result;
use gt_ops::expr::{Builder, Expr};

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
