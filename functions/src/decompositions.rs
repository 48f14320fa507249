//! Matrix decompositions (QR, LU, eigenvalues, singular values), and functions that are computed from them.

use crate::common::{in_dtype, zeros};
use crate::complex_matrices::{adjoint, to_complex, to_real};
use crate::declaration::{TensorOrNumber, functions};
use crate::dense::{self, HostMatrices, MatrixElement, PackedLu, RealElement, SingularVectors};
use crate::general_eigen::{EigenElement, general_eigen};
use crate::linalg::{
    broadcast_pairs, by_dtype, check, check_either, eye, failure, linalg_solve, linalg_solve_triangular, matrices,
    or_zeros, symmetric, upload, upload_numbers,
};
use crate::masks::{tril, triu};
use crate::shape::diag_embed;
use crate::symmetric_eigen::{eigen, hermitian_eigen};
use faer::c64;
use gt_ops::error::{OpError, Result};
use gt_ops::expr::{Builder, Expr};
use gt_ops::forms::{function, method, module};
use gt_ops::{DType, Shape};

const CONVERGENCE: &str = "The algorithm failed to converge.";

/// `values[j] - values[i]` for each i and j, with ones on the diagonal.
fn differences<'g>(g: &'g Builder<'g>, values: Expr<'g>) -> Result<Expr<'g>> {
    let size = values.size(-1)?;
    Ok(values.unsqueeze(-2) - values.unsqueeze(-1) + eye(g, size, size, values.dtype()?))
}

/// The gradient of Walter, Lehmann and Lamour (2012), for matrices with at least as many rows as columns.
fn qr_gradient<'r>(
    g: &'r Builder<'r>,
    values: &[Expr<'r>],
    grads: &[Option<Expr<'r>>],
) -> Result<Vec<Option<Expr<'r>>>> {
    let (q, r) = (values[1], values[2]);
    let (of_q, of_r) = (or_zeros(g, grads[0], q)?, or_zeros(g, grads[1], r)?);
    if q.dtype()?.is_complex() {
        // The diagonal of a Hermitian matrix is real (Roberts and Roberts 2020).
        let lower = tril(g, r.matmul(adjoint(of_r)?) - adjoint(of_q)?.matmul(q), -1)?;
        let diagonal = (r.matmul(adjoint(of_r)?) - adjoint(of_q)?.matmul(q)).diagonal(0, -2, -1).real();
        let diagonal = diag_embed(g, diagonal, 0, -2, -1)?.to(q.dtype()?);
        let right = of_q + q.matmul(lower + adjoint(lower)? + diagonal);
        return Ok(vec![Some(adjoint(linalg_solve(g, r, adjoint(right)?, true)?)?)]);
    }
    let inner = symmetric(r.matmul(of_r.transposed()) - of_q.transposed().matmul(q))?;
    Ok(vec![Some(linalg_solve_triangular(g, r.transposed(), of_q + q.matmul(inner), false, false, false)?)])
}

/// Q and R of matrices with at least as many rows as columns.
fn tall_qr<'g>(g: &'g Builder<'g>, a: Expr<'g>) -> Result<[Expr<'g>; 2]> {
    let results = qr_factors(a, a.size(-1)?)?;
    g.with_gradient("linalg_qr", &[a], results, qr_gradient)
}

/// The first `count` columns of Q, and as many rows of R.
fn qr_factors(a: Expr<'_>, count: i64) -> Result<[Expr<'_>; 2]> {
    fn factors<'g, T: MatrixElement>(a: Expr<'g>, batch: &[i64], count: i64) -> Result<[Expr<'g>; 2]> {
        let dtype = a.dtype()?;
        Ok(dense::qr::<T>(matrices(a)?, count as usize).map(|all| upload(a.builder(), batch, all, dtype)))
    }
    let ((batch, _, _), dtype) = (check_either("qr", a, false)?, a.dtype()?);
    if dtype.is_complex() { factors::<c64>(a, &batch, count) } else { by_dtype!(dtype, factors(a, &batch, count)) }
}

/// The gradient of P, an input without one, L and U. P is the permutation matrix.
fn lu_gradient<'r>(
    g: &'r Builder<'r>,
    values: &[Expr<'r>],
    grads: &[Option<Expr<'r>>],
) -> Result<Vec<Option<Expr<'r>>>> {
    let [_, p, lower, upper] = *values else { return Ok(Vec::new()) };
    let (of_lower, of_upper) = (or_zeros(g, grads[0], lower)?, or_zeros(g, grads[1], upper)?);
    let (rows, count, columns) = (lower.size(-2)?, lower.size(-1)?, upper.size(-1)?);
    // The part below or beside the square one follows from it: `A2 = L2 @ U` or `A2 = L @ U2`.
    let split = |x: Expr<'r>, axis: i64, size: i64| (x.narrow(axis, 0, count), x.narrow(axis, count, size - count));
    let ((square, below), (of_square, of_below)) = (split(lower, -2, rows), split(of_lower, -2, rows));
    let ((first, beside), (of_first, of_beside)) = (split(upper, -1, columns), split(of_upper, -1, columns));
    let left = square.transposed().matmul(of_square) - of_beside.matmul(beside.transposed());
    let right = of_first.matmul(first.transposed()) - below.transposed().matmul(of_below);
    let inner = tril(g, left, -1)? + triu(g, right, 0)?;
    let inner = linalg_solve_triangular(g, first.transposed(), inner, false, false, false)?;
    let inner = g.cat(&[inner, of_beside], -1);
    let wide = linalg_solve_triangular(g, square.transposed(), inner, true, true, true)?;
    let tall = linalg_solve_triangular(g, first.transposed(), of_below, false, false, false)?;
    let whole = if rows > count { g.cat(&[wide, tall], -2) } else { wide };
    Ok(vec![Some(p.matmul(whole)), None])
}

/// P, L and U of matrices, and the row exchanged with each row, counted from 1, as int32.
pub(crate) fn lu_parts<'g>(g: &'g Builder<'g>, name: &str, a: Expr<'g>, pivot: bool) -> Result<[Expr<'g>; 4]> {
    let ((batch, rows, columns), dtype) = (check(name, a, false)?, a.dtype()?);
    if !pivot {
        return Err(OpError::runtime("linalg.lu_factor: LU without pivoting is not implemented on the CPU"));
    }
    fn factors<'g, T: RealElement>(a: Expr<'g>, batch: &[i64], count: i64) -> Result<[Expr<'g>; 4]> {
        let (g, all) = (a.builder(), PackedLu::<T>::new(matrices(a)?));
        let (rows, upload) = (all.packed.rows, |parts| upload(g, batch, parts, T::DTYPE));
        let orders: Vec<Vec<usize>> = (0..all.packed.count).map(|i| dense::row_order(rows, all.exchanges(i))).collect();
        let exchanges: Vec<i64> = all.exchanges.iter().map(|row| *row as i64 + 1).collect();
        let pivots = g.ints(&exchanges, &[batch, &[count]].concat()).to(DType::I32);
        let (lower, upper) = (all.lower(), all.packed.upper(count as usize));
        Ok([upload(dense::permutations(&orders, rows)), upload(lower), upload(upper), pivots])
    }
    let [p, lower, upper, pivots] = by_dtype!(dtype, factors(a, &batch, rows.min(columns)))?;
    let [lower, upper] = g.with_gradient("linalg_lu", &[a, p], [lower, upper], lu_gradient)?;
    Ok([p, lower, upper, pivots])
}

/// The gradient of the eigenvalues and eigenvectors of symmetric or Hermitian matrices.
fn eigen_gradient<'r>(
    g: &'r Builder<'r>,
    values: &[Expr<'r>],
    grads: &[Option<Expr<'r>>],
) -> Result<Vec<Option<Expr<'r>>>> {
    let (eigenvalues, vectors) = (values[1], values[2]);
    let (dtype, adjoints) = (vectors.dtype()?, adjoint(vectors)?);
    let mut inner = diag_embed(g, or_zeros(g, grads[0], eigenvalues)?.to(dtype), 0, -2, -1)?;
    if let Some(of_vectors) = grads[1] {
        let beside = without_diagonal(g, adjoints.matmul(of_vectors))?;
        inner = beside / differences(g, eigenvalues)?.to(dtype) + inner;
    }
    let result = vectors.matmul(inner).matmul(adjoints);
    Ok(vec![Some((result + adjoint(result)?) / 2.0)])
}

fn without_diagonal<'g>(g: &'g Builder<'g>, matrix: Expr<'g>) -> Result<Expr<'g>> {
    Ok(matrix - diag_embed(g, matrix.diagonal(0, -2, -1), 0, -2, -1)?)
}

/// The gradient of Boeddeker, Hanebrink, Drude, Heymann and Haeb-Umbach (2017), of eigenvectors of length 1. It is
/// that of PyTorch for functions that do not depend on an eigenvector's phase, which is arbitrary.
fn general_eigen_gradient<'r>(
    g: &'r Builder<'r>,
    values: &[Expr<'r>],
    grads: &[Option<Expr<'r>>],
) -> Result<Vec<Option<Expr<'r>>>> {
    let [matrix, eigenvalues, vectors] = *values else { return Ok(Vec::new()) };
    let (dtype, adjoints) = (vectors.dtype()?, adjoint(vectors)?);
    let mut inner = diag_embed(g, or_zeros(g, grads[0], eigenvalues)?, 0, -2, -1)?;
    if let Some(of_vectors) = grads[1] {
        let turned = adjoints.matmul(of_vectors);
        let lengths = turned.diagonal(0, -2, -1).real().to(dtype).unsqueeze(-2);
        let beside = without_diagonal(g, turned - adjoints.matmul(vectors * lengths))?;
        inner = beside / differences(g, eigenvalues)?.conj() + inner;
    }
    let result = linalg_solve(g, adjoints, inner.matmul(adjoints), true)?;
    Ok(vec![Some(if matrix.dtype()?.is_complex() { result } else { result.real() })])
}

/// The gradient of Townsend (2016). Vectors without a singular value are arbitrary, and have no gradient.
fn svd_gradient<'r>(
    g: &'r Builder<'r>,
    values: &[Expr<'r>],
    grads: &[Option<Expr<'r>>],
) -> Result<Vec<Option<Expr<'r>>>> {
    let [_, u, s, vh] = *values else { return Ok(Vec::new()) };
    let count = s.size(-1)?;
    if u.dtype()?.is_complex() {
        if grads[0].is_some() || grads[2].is_some() {
            return Err(OpError::not_implemented(
                "linalg.svd of complex matrices has a gradient only of the singular values: detach() the vectors",
            ));
        }
        let (u, vh) = (u.narrow(-1, 0, count), vh.narrow(-2, 0, count));
        return Ok(vec![grads[1].map(|grad| (u * grad.unsqueeze(-2)).matmul(vh))]);
    }
    let of_u = or_zeros(g, grads[0], u)?.narrow(-1, 0, count);
    let of_v = or_zeros(g, grads[2], vh)?.narrow(-2, 0, count).transposed();
    let (u, vh) = (u.narrow(-1, 0, count), vh.narrow(-2, 0, count));
    let (row, column) = (s.unsqueeze(-2), s.unsqueeze(-1));
    let mut inner = diag_embed(g, or_zeros(g, grads[1], s)?, 0, -2, -1)?;
    let (left, right) = (u.transposed().matmul(of_u), vh.matmul(of_v));
    if grads[0].is_some() || grads[2].is_some() {
        let apart = differences(g, s * s)?;
        let turned = |x: Expr<'r>| (x - x.transposed()) / apart;
        inner = turned(left) * row + column * turned(right) + inner;
    }
    let mut result = u.matmul(inner).matmul(vh);
    if grads[0].is_some() && u.size(-2)? > count {
        result = result + ((of_u - u.matmul(left)) / row).matmul(vh);
    }
    if grads[2].is_some() && vh.size(-1)? > count {
        result = result + (u / row).matmul(of_v.transposed() - right.transposed().matmul(vh));
    }
    Ok(vec![Some(result)])
}

/// The singular values of matrices, between the vectors that are wanted.
fn singular(a: Expr<'_>, wanted: SingularVectors) -> Result<[Expr<'_>; 3]> {
    fn decomposed<'g, T: MatrixElement>(a: Expr<'g>, batch: &[i64], wanted: SingularVectors) -> Result<[Expr<'g>; 3]> {
        let (g, dtype) = (a.builder(), a.dtype()?);
        let matrices = matrices::<T>(a)?;
        let count = matrices.rows.min(matrices.columns) as i64;
        let found = dense::svd(&matrices, wanted).ok_or_else(|| failure("svd", CONVERGENCE))?;
        let values = g.floats(&found.values, &[batch, &[count]].concat(), dtype.to_real());
        Ok([upload(g, batch, found.u, dtype), values, upload(g, batch, found.vh, dtype)])
    }
    let ((batch, _, _), dtype) = (check_either("svd", a, false)?, a.dtype()?);
    if dtype.is_complex() {
        decomposed::<c64>(a, &batch, wanted)
    } else {
        by_dtype!(dtype, decomposed(a, &batch, wanted))
    }
}

/// The eigenvalues of symmetric or Hermitian matrices, and their eigenvectors if these are wanted.
fn eigenpairs<'g>(a: Expr<'g>, triangle: &str, wanted: bool) -> Result<[Expr<'g>; 2]> {
    fn uploaded<'g, R: MatrixElement, T: MatrixElement>(
        a: Expr<'g>,
        found: Option<(Vec<R>, HostMatrices<T>)>,
        wanted: bool,
    ) -> Result<[Expr<'g>; 2]> {
        let (g, sizes, dtype) = (a.builder(), a.sizes()?, a.dtype()?);
        let (values, vectors) = found.ok_or_else(|| failure("eigh", CONVERGENCE))?;
        let values = upload_numbers(g, &values, &sizes[..sizes.len() - 1], dtype.to_real());
        Ok([values, if wanted { upload(g, &sizes[..sizes.len() - 2], vectors, dtype) } else { a }])
    }
    fn found<T: RealElement>(a: Expr<'_>, wanted: bool) -> Result<[Expr<'_>; 2]> {
        uploaded(a, eigen::<T>(&matrices(a)?, wanted), wanted)
    }
    check_either("eigh", a, true)?;
    let lower = match triangle {
        "L" | "l" => a,
        "U" | "u" => adjoint(a)?,
        other => return Err(OpError::runtime(format!("Expected UPLO argument to be 'L' or 'U', but got {other}"))),
    };
    if a.dtype()?.is_complex() {
        return uploaded(lower, hermitian_eigen(matrices(lower)?, wanted), wanted);
    }
    by_dtype!(a.dtype()?, found(lower, wanted))
}

/// The eigenvalues of square matrices, and their eigenvectors if these are wanted.
fn general_eigenpairs(a: Expr<'_>, wanted: bool) -> Result<[Expr<'_>; 2]> {
    fn found<T: EigenElement>(a: Expr<'_>, wanted: bool) -> Result<[Expr<'_>; 2]> {
        let (g, sizes, dtype) = (a.builder(), a.sizes()?, a.dtype()?.to_complex());
        let (values, vectors) = general_eigen::<T>(&matrices(a)?, wanted).ok_or_else(|| failure("eig", CONVERGENCE))?;
        let values = upload_numbers(g, &values, &sizes[..sizes.len() - 1], dtype);
        Ok([values, if wanted { upload(g, &sizes[..sizes.len() - 2], vectors, dtype) } else { a }])
    }
    check_either("eig", a, true)?;
    if a.dtype()?.is_complex() { found::<c64>(a, wanted) } else { found::<f64>(a, wanted) }
}

/// The gradient of Golub and Pereyra (1973).
fn pseudoinverse_gradient<'r>(
    _: &'r Builder<'r>,
    values: &[Expr<'r>],
    grads: &[Option<Expr<'r>>],
) -> Result<Vec<Option<Expr<'r>>>> {
    let ([a, p], [Some(grad)]) = (values, grads) else { return Ok(vec![None]) };
    let (a, p, grad, turned) = (*a, *p, *grad, p.transposed());
    let beside = grad.transposed().matmul(p).matmul(turned);
    let above = turned.matmul(p).matmul(grad.transposed());
    let result = beside - a.matmul(p.matmul(beside)) + above - above.matmul(p).matmul(a);
    Ok(vec![Some(result - turned.matmul(grad).matmul(turned))])
}

/// The largest singular value that counts as 0: max(atol, rtol * the largest of all).
fn tolerance<'g>(
    largest: Expr<'g>,
    size: i64,
    atol: Option<TensorOrNumber<'g>>,
    rtol: Option<TensorOrNumber<'g>>,
) -> Result<Expr<'g>> {
    let (g, dtype) = (largest.builder(), largest.dtype()?);
    let absolute = atol.map_or_else(|| g.full(&Shape::SCALAR, 0.0, dtype), |atol| in_dtype(*atol, dtype));
    let relative = rtol.map_or_else(
        || {
            let eps = if dtype == DType::F32 { f64::from(f32::EPSILON) } else { f64::EPSILON };
            absolute.gt(0.0).where_(0.0, g.full(&Shape::SCALAR, size as f64 * eps, dtype))
        },
        |rtol| in_dtype(*rtol, dtype),
    );
    Ok((largest * relative).maximum(absolute))
}

/// The number of singular values above the tolerance of matrices whose larger size is `size`.
fn rank_of<'g>(
    values: Expr<'g>,
    size: i64,
    atol: Option<TensorOrNumber<'g>>,
    rtol: Option<TensorOrNumber<'g>>,
) -> Result<Expr<'g>> {
    let sizes = values.sizes()?;
    if sizes.contains(&0) {
        return Ok(zeros(values.builder(), &sizes[..sizes.len() - 1], DType::I64));
    }
    let limit = tolerance(values.amax(&[-1], false), size, atol, rtol)?;
    Ok(values.gt(limit.unsqueeze(-1)).sum(&[-1], false))
}

/// The singular values of matrices, or the absolute eigenvalues of symmetric ones, without a gradient.
fn magnitudes<'g>(g: &'g Builder<'g>, a: Expr<'g>, hermitian: bool) -> Result<Expr<'g>> {
    match (hermitian, a.dtype()?.is_complex()) {
        (false, _) => svdvals(g, a.detach()),
        (true, false) => Ok(eigvalsh(g, a.detach(), "L")?.abs()),
        (true, true) => {
            // The real matrix of a complex one has each eigenvalue twice.
            let sizes = a.sizes()?;
            let doubled = eigvalsh(g, to_real(g, a.detach())?, "L")?.abs();
            Ok(doubled.reshape(&[&sizes[..sizes.len() - 1], &[2]].concat()).select(-1, 0))
        }
    }
}

/// The pseudoinverse of real matrices, with the default tolerance of matrices whose larger size is `size`.
fn pseudoinverse<'g>(
    g: &'g Builder<'g>,
    a: Expr<'g>,
    size: i64,
    atol: Option<TensorOrNumber<'g>>,
    rtol: Option<TensorOrNumber<'g>>,
    hermitian: bool,
) -> Result<Expr<'g>> {
    // The gradient is that of the whole matrix, as in PyTorch.
    let whole = if hermitian { symmetric(a.detach())? } else { a.detach() };
    fn inverses<'g, T: RealElement>(
        whole: Expr<'g>,
        size: i64,
        [atol, rtol]: [Option<TensorOrNumber<'g>>; 2],
    ) -> Result<Expr<'g>> {
        let (g, sizes) = (whole.builder(), whole.sizes()?);
        let batch = &sizes[..sizes.len() - 2];
        let found = dense::svd::<T>(&matrices(whole)?, SingularVectors::Reduced);
        let found = found.ok_or_else(|| failure("pinv", CONVERGENCE))?;
        let count = found.u.columns;
        let largest: Vec<f64> = found.values.iter().step_by(count).copied().collect();
        let largest = g.floats(&largest, batch, T::DTYPE);
        let limits = tolerance(largest, size, atol, rtol)?.expand_to(&largest.shape()?).elements()?;
        let scale = |(i, s): (usize, &f64)| if *s > limits[i / count].to_f64() { 1.0 / s } else { 0.0 };
        let scales: Vec<f64> = found.values.iter().enumerate().map(scale).collect();
        Ok(upload(g, batch, dense::pseudoinverses(&found, &scales), T::DTYPE))
    }
    let result = by_dtype!(a.dtype()?, inverses(whole, size, [atol, rtol]))?;
    let [inverse] = g.with_gradient("linalg_pinv", &[a], [result], pseudoinverse_gradient)?;
    Ok(inverse)
}

/// The least-squares solutions for matrices of full rank and right-hand sides, whose batch axes broadcast; `None` if a
/// matrix may lack full rank, or if the shapes do not fit.
fn full_rank_solution<'g>(
    g: &'g Builder<'g>,
    a: Expr<'g>,
    b: Expr<'g>,
    rcond: Option<f64>,
) -> Result<Option<Expr<'g>>> {
    fn solved<'g, T: RealElement>(
        [a, b]: [Expr<'g>; 2],
        batch: &Shape,
        pairs: &[(usize, usize)],
        rcond: Option<f64>,
    ) -> Result<Option<Expr<'g>>> {
        let (a_matrices, b_matrices) = (matrices::<T>(a)?, matrices(b)?);
        let rcond = rcond.unwrap_or(a_matrices.rows.max(a_matrices.columns) as f64 * T::EPSILON);
        let sizes: Vec<i64> = batch.dims().iter().map(|size| *size as i64).collect();
        let found = dense::least_squares(a_matrices, &b_matrices, pairs, rcond);
        Ok(found.map(|found| upload(a.builder(), &sizes, found, T::DTYPE)))
    }
    let (a_shape, b_shape) = (a.shape()?, b.shape()?);
    let ([a_batch @ .., rows, _], [b_batch @ .., right_rows, _]) = (a_shape.dims(), b_shape.dims()) else {
        return Ok(None);
    };
    if rows != right_rows || a.dtype()? != b.dtype()? || a_shape.numel() == 0 || b_shape.numel() == 0 {
        return Ok(None);
    }
    let batch = Shape::new(a_batch)?.broadcast(&Shape::new(b_batch)?)?;
    let pairs = broadcast_pairs(&batch, a_batch, b_batch);
    let Some(result) = by_dtype!(a.dtype()?, solved([a, b], &batch, &pairs, rcond))? else { return Ok(None) };
    let [solution] = g.with_gradient("linalg_lstsq", &[a, b], [result], |g, values, grads| {
        let ([a, b, _], Some(grad)) = (values, grads[0]) else { return Ok(vec![None, None]) };
        let inverse = pinv(g, *a, None, Some(TensorOrNumber(g.number(0.0))), false)?;
        let mut found = pseudoinverse_gradient(g, &[*a, inverse], &[Some(grad.matmul(b.transposed()))])?;
        found.push(Some(inverse.transposed().matmul(grad)));
        Ok(found)
    })?;
    Ok(Some(solution))
}

functions! {
    /// The QR decomposition of matrices: `A = Q @ R` with orthonormal columns Q and an upper triangle R.
    ///
    /// Args:
    ///     A: A matrix, or a batch of matrices.
    ///     mode: `"reduced"` (Q has as many columns as A has at most), `"complete"` (Q is square) or `"r"` (R alone).
    ///
    /// Returns:
    ///     A pair `(Q, R)`.
    ///
    /// Raises:
    ///     NotImplementedError: A gradient is needed in mode `"r"`, or in mode `"complete"` of a tall matrix.
    ///
    /// Example:
    ///     >>> Q, R = gt.linalg.qr(gt.tensor([[3.0, 1.0], [4.0, 2.0]]))
    ///     >>> gt.allclose(Q @ R, gt.tensor([[3.0, 1.0], [4.0, 2.0]]), atol=1e-5)
    ///     True
    [module("linalg").out().named("qr").results(&["Q", "R"])]
    fn linalg_qr(g, A: Expr<'g>, mode: &'g str = "reduced") -> Result<[Expr<'g>; 2]> {
        let (_, rows, columns) = check_either("qr", A, false)?;
        if !matches!(mode, "reduced" | "complete" | "r") {
            return Err(OpError::runtime(format!(
                "qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), 'r', or 'complete'"
            )));
        }
        if mode != "r" && rows < columns {
            // For a wide matrix, the first columns determine Q; R has the product with the others.
            let [q, r] = tall_qr(g, A.narrow(-1, 0, rows))?;
            return Ok([q, g.cat(&[r, adjoint(q)?.matmul(A.narrow(-1, rows, columns - rows))], -1)]);
        }
        if mode == "reduced" || (mode == "complete" && rows == columns) {
            return tall_qr(g, A);
        }
        if A.requires_grad() {
            return Err(OpError::not_implemented(
                "linalg.qr has a gradient only of mode 'reduced': detach() the matrix, or use that",
            ));
        }
        if mode == "r" {
            let none = zeros(g, &[0], A.dtype()?);
            return Ok([none, qr_factors(A, rows.min(columns))?[1]]);
        }
        qr_factors(A, rows)
    }

    /// The QR decomposition of matrices: `gt.linalg.qr`, reduced if `some`.
    [method().out().results(&["Q", "R"])]
    fn qr(g, input: Expr<'g>, some: bool = true) -> Result<[Expr<'g>; 2]> {
        linalg_qr(g, input, if some { "reduced" } else { "complete" })
    }

    /// The LU decomposition of matrices with partial pivoting: `A = P @ L @ U`.
    ///
    /// Args:
    ///     A: A matrix, or a batch of matrices.
    ///     pivot: Must be true: there is no decomposition without pivoting.
    ///
    /// Returns:
    ///     A triple `(P, L, U)`.
    ///
    /// Example:
    ///     >>> P, L, U = gt.linalg.lu(gt.tensor([[1.0, 2.0], [3.0, 4.0]]))
    ///     >>> U
    ///     tensor([[3.0000, 4.0000],
    ///             [0.0000, 0.6667]])
    [module("linalg").out().named("lu").results(&["P", "L", "U"])]
    fn linalg_lu(g, A: Expr<'g>; pivot: bool = true) -> Result<[Expr<'g>; 3]> {
        let [p, lower, upper, _] = lu_parts(g, "lu", A, pivot)?;
        Ok([p, lower, upper])
    }

    /// The eigenvalues and eigenvectors of symmetric or Hermitian matrices.
    ///
    /// Args:
    ///     A: A symmetric matrix, complex ones Hermitian, or a batch of them. Only one triangle is read.
    ///     UPLO: The triangle: `"L"` or `"U"`.
    ///
    /// Returns:
    ///     A pair `(eigenvalues, eigenvectors)`: real eigenvalues in ascending order, and eigenvectors as columns.
    ///
    /// Example:
    ///     >>> gt.linalg.eigh(gt.tensor([[2.0, 0.0], [0.0, 1.0]])).eigenvalues
    ///     tensor([1., 2.])
    [module("linalg").out().results(&["eigenvalues", "eigenvectors"])]
    fn eigh(g, A: Expr<'g>, UPLO: &'g str = "L") -> Result<[Expr<'g>; 2]> {
        let results = eigenpairs(A, UPLO, true)?;
        g.with_gradient("linalg_eigh", &[A], results, eigen_gradient)
    }

    /// The eigenvalues of symmetric or Hermitian matrices, in ascending order; see `eigh`.
    ///
    /// Example:
    ///     >>> gt.linalg.eigvalsh(gt.tensor([[2.0, 0.0], [0.0, 1.0]]))
    ///     tensor([1., 2.])
    [module("linalg").out()]
    fn eigvalsh(g, A: Expr<'g>, UPLO: &'g str = "L") -> Result<Expr<'g>> {
        if A.requires_grad() { Ok(eigh(g, A, UPLO)?[0]) } else { Ok(eigenpairs(A, UPLO, false)?[0]) }
    }

    /// The eigenvalues and eigenvectors of square matrices, which are complex even if the matrices are real.
    ///
    /// Args:
    ///     A: A square matrix, or a batch of them. For symmetric ones, `eigh` is faster and its results are real.
    ///
    /// Returns:
    ///     A pair `(eigenvalues, eigenvectors)`: eigenvalues in no order, and eigenvectors of length 1 as columns.
    ///
    /// Raises:
    ///     LinAlgError: An element is not finite, or the iteration does not converge.
    ///
    /// An eigenvector may be multiplied by any complex number of absolute value 1. The gradient is that of functions
    /// that do not depend on it, and exists where all eigenvalues differ.
    ///
    /// Example:
    ///     >>> L, V = gt.linalg.eig(gt.tensor([[3.0, 1.0], [0.0, 2.0]]))
    ///     >>> L
    ///     tensor([3.+0.j, 2.+0.j])
    [module("linalg").out().results(&["eigenvalues", "eigenvectors"])]
    fn eig(g, A: Expr<'g>) -> Result<[Expr<'g>; 2]> {
        let results = general_eigenpairs(A, true)?;
        g.with_gradient("linalg_eig", &[A], results, general_eigen_gradient)
    }

    /// The eigenvalues of square matrices, complex numbers in no order; see `eig`.
    ///
    /// Example:
    ///     >>> gt.linalg.eigvals(gt.tensor([[3.0, 1.0], [0.0, 2.0]]))
    ///     tensor([3.+0.j, 2.+0.j])
    [module("linalg").out()]
    fn eigvals(g, A: Expr<'g>) -> Result<Expr<'g>> {
        if A.requires_grad() { Ok(eig(g, A)?[0]) } else { Ok(general_eigenpairs(A, false)?[0]) }
    }

    /// The singular value decomposition of matrices: `A = U @ diag(S) @ Vh`.
    ///
    /// Args:
    ///     A: A matrix, or a batch of matrices.
    ///     full_matrices: Whether U and Vh are square.
    ///
    /// Returns:
    ///     A triple `(U, S, Vh)`; the singular values S are in descending order.
    ///
    /// Example:
    ///     >>> U, S, Vh = gt.linalg.svd(gt.tensor([[3.0, 0.0], [0.0, 5.0]]))
    ///     >>> S
    ///     tensor([5., 3.])
    [module("linalg").out().named("svd").results(&["U", "S", "Vh"])]
    fn linalg_svd(g, A: Expr<'g>, full_matrices: bool = true) -> Result<[Expr<'g>; 3]> {
        let results = singular(A, if full_matrices { SingularVectors::Full } else { SingularVectors::Reduced })?;
        g.with_gradient("linalg_svd", &[A], results, svd_gradient)
    }

    /// The singular value decomposition `U @ diag(S) @ V.mT` of matrices; see `gt.linalg.svd`.
    [method().out().results(&["U", "S", "V"])]
    fn svd(g, input: Expr<'g>, some: bool = true) -> Result<[Expr<'g>; 3]> {
        let [u, s, vh] = linalg_svd(g, input, !some)?;
        Ok([u, s, adjoint(vh)?])
    }

    /// The singular values of matrices, in descending order.
    ///
    /// Example:
    ///     >>> gt.linalg.svdvals(gt.tensor([[3.0, 0.0], [0.0, 5.0]]))
    ///     tensor([5., 3.])
    [module("linalg").out()]
    fn svdvals(g, A: Expr<'g>) -> Result<Expr<'g>> {
        if A.requires_grad() { Ok(linalg_svd(g, A, false)?[1]) } else { Ok(singular(A, SingularVectors::None)?[1]) }
    }

    /// The polar decomposition `A = U @ H` of matrices with at least as many rows as columns.
    ///
    /// Returns:
    ///     A pair `(U, H)`: orthonormal columns, and a symmetric positive semidefinite matrix.
    [module("linalg").out().results(&["U", "H"])]
    fn polar(g, A: Expr<'g>) -> Result<[Expr<'g>; 2]> {
        let (_, rows, columns) = check("polar", A, false)?;
        if rows < columns {
            return Err(OpError::runtime("linalg.polar: Expected A to have at least as many rows as columns"));
        }
        let [u, s, vh] = linalg_svd(g, A, false)?;
        Ok([u.matmul(vh), (vh.transposed() * s.unsqueeze(-2)).matmul(vh)])
    }

    /// The symmetric square root of symmetric positive-definite matrices.
    [module("linalg")]
    fn matrix_sqrth(g, A: Expr<'g>) -> Result<Expr<'g>> {
        check("matrix_sqrth", A, true)?;
        let [values, vectors] = eigh(g, A, "L")?;
        Ok((vectors * values.sqrt().unsqueeze(-2)).matmul(vectors.transposed()))
    }

    /// The Moore-Penrose pseudoinverse of matrices.
    ///
    /// Args:
    ///     A: A matrix, or a batch of matrices.
    ///     atol: The absolute tolerance: singular values of at most `max(atol, rtol * largest)` count as 0.
    ///     rtol: The relative tolerance; by default the larger size times the dtype's epsilon, or 0 if `atol` is
    ///         positive.
    ///     hermitian: Whether the matrices are symmetric: only the lower triangle is read.
    ///
    /// Example:
    ///     >>> gt.linalg.pinv(gt.tensor([[2.0, 0.0], [0.0, 4.0]]))
    ///     tensor([[0.5000, 0.0000],
    ///             [0.0000, 0.2500]])
    [module("linalg").out()]
    fn pinv(g, A: Expr<'g>; atol: Option<TensorOrNumber<'g>> = None, rtol: Option<TensorOrNumber<'g>> = None,
        hermitian: bool = false) -> Result<Expr<'g>> {
        let (_, rows, columns) = check_either("pinv", A, hermitian)?;
        if A.numel()? == 0 {
            return Ok(A.transposed() * 1.0);
        }
        let size = rows.max(columns);
        if A.dtype()?.is_complex() {
            return to_complex(g, pseudoinverse(g, to_real(g, A)?, size, atol, rtol, hermitian)?);
        }
        pseudoinverse(g, A, size, atol, rtol, hermitian)
    }

    /// The Moore-Penrose pseudoinverse of matrices: `gt.linalg.pinv`.
    [method()]
    fn pinverse(g, input: Expr<'g>, rcond: f64 = 1e-15) -> Result<Expr<'g>> {
        pinv(g, input, None, Some(TensorOrNumber(g.number(rcond))), false)
    }

    /// The rank of matrices: the number of singular values above `max(atol, rtol * largest)`; see `pinv`.
    ///
    /// Example:
    ///     >>> gt.linalg.matrix_rank(gt.tensor([[1.0, 2.0], [2.0, 4.0]]))
    ///     tensor(1)
    [module("linalg").out()]
    fn matrix_rank(g, A: Expr<'g>; atol: Option<TensorOrNumber<'g>> = None, rtol: Option<TensorOrNumber<'g>> = None,
        hermitian: bool = false) -> Result<Expr<'g>> {
        let (_, rows, columns) = check_either("matrix_rank", A, hermitian)?;
        rank_of(magnitudes(g, A, hermitian)?, rows.max(columns), atol, rtol)
    }

    /// The least-squares solution X of `A @ X = B`: of all that minimize the residual, the one with the smallest norm.
    ///
    /// Args:
    ///     A: A matrix, or a batch of matrices.
    ///     B: The right-hand sides.
    ///     rcond: Singular values below `rcond` times the largest count as 0.
    ///     driver: LAPACK's driver. It decides which of the other results are not empty; the solution is the same.
    ///
    /// Returns:
    ///     A tuple `(solution, residuals, rank, singular_values)`.
    ///
    /// Example:
    ///     >>> A = gt.tensor([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]])
    ///     >>> B = gt.tensor([[1.0], [3.0], [5.0]])
    ///     >>> gt.linalg.lstsq(A, B).solution.round(decimals=3)
    ///     tensor([[1.],
    ///             [2.]])
    [module("linalg").out().results(&["solution", "residuals", "rank", "singular_values"])]
    fn lstsq(g, A: Expr<'g>, B: Expr<'g>, rcond: Option<f64> = None; driver: Option<&'g str> = None)
        -> Result<[Expr<'g>; 4]> {
        if A.rank()? < 2 {
            return Err(OpError::runtime("torch.linalg.lstsq: input must have at least 2 dimensions."));
        }
        let ((_, rows, columns), dtype) = (check("lstsq", A, false)?, A.dtype()?);
        if let Some(driver) = driver
            && !matches!(driver, "gels" | "gelsy" | "gelsd" | "gelss")
        {
            return Err(OpError::runtime(format!(
                "torch.linalg.lstsq: parameter `driver` should be one of (gels, gelsy, gelsd, gelss), but got {driver}"
            )));
        }
        let vector = A.rank()? == B.rank()? + 1;
        let targets = if vector { B.unsqueeze(-1) } else { B };
        let relative = rcond.map(|rcond| TensorOrNumber(g.number(rcond)));
        let fast = full_rank_solution(g, A, targets, rcond)?;
        let solution = match fast {
            Some(solution) => solution,
            None => pinv(g, A, None, relative, false)?.matmul(targets),
        };
        let empty = |dtype: DType| zeros(g, &[0], dtype);
        let (ranks, values) = match driver {
            Some("gels") => (empty(DType::I64), empty(dtype)),
            None | Some("gelsy") if fast.is_some() => {
                let batch = Shape::new(&A.shape()?.dims()[..A.rank()? - 2])?;
                (g.full(&batch, rows.min(columns), DType::I64), empty(dtype))
            }
            _ => {
                let values = svdvals(g, A.detach())?;
                (rank_of(values, rows.max(columns), None, relative)?, values)
            }
        };
        let full = match driver {
            Some("gels") => true,
            Some("gelsd" | "gelss") => ranks.eq(columns).all(&[], false).is_true()?,
            _ => false,
        };
        let residuals = match rows > columns && full {
            true => (A.matmul(solution) - targets).square().sum(&[-2], false),
            false => empty(dtype),
        };
        let values = if matches!(driver, Some("gelsd" | "gelss")) { values } else { empty(dtype) };
        Ok([if vector { solution.squeeze(&[-1]) } else { solution }, residuals, ranks, values])
    }

    /// The `q` largest singular values of a matrix and their vectors, approximately: `U`, `S` and `V`.
    ///
    /// The method is the randomized range finder of Halko, Martinsson and Tropp (2009).
    ///
    /// Args:
    ///     A: The matrix.
    ///     q: The number of singular values.
    ///     niter: The number of power iterations, which make it more exact.
    ///     M: A matrix to subtract from `A` first.
    [function()]
    fn svd_lowrank(g, A: Expr<'g>, q: Option<i64> = Some(6), niter: Option<i64> = Some(2), M: Option<Expr<'g>> = None)
        -> Result<[Expr<'g>; 3]> {
        let matrix = M.map_or(A, |mean| A - mean);
        let (_, rows, columns) = check("svd", matrix, false)?;
        if rows < columns {
            let [v, s, u] = svd_lowrank(g, matrix.transposed(), q, niter, None)?;
            return Ok([u, s, v]);
        }
        let sizes = [columns as usize, q.unwrap_or(6).max(0) as usize];
        let mut base = linalg_qr(g, matrix.matmul(g.randn(&Shape::new(&sizes)?, matrix.dtype()?)), "reduced")?[0];
        for _ in 0..niter.unwrap_or(0) {
            let turned = linalg_qr(g, matrix.transposed().matmul(base), "reduced")?[0];
            base = linalg_qr(g, matrix.matmul(turned), "reduced")?[0];
        }
        let [u, s, vh] = linalg_svd(g, base.transposed().matmul(matrix), false)?;
        Ok([base.matmul(u), s, vh.transposed()])
    }

    /// Principal component analysis by `svd_lowrank`: the principal directions are the columns of `V`.
    ///
    /// Args:
    ///     A: A matrix with a row for each sample.
    ///     q: The number of components.
    ///     center: Whether the mean of each column is subtracted first.
    ///     niter: The number of power iterations.
    [function()]
    fn pca_lowrank(g, A: Expr<'g>, q: Option<i64> = None, center: bool = true, niter: i64 = 2)
        -> Result<[Expr<'g>; 3]> {
        let (_, rows, columns) = check("svd", A, false)?;
        let smaller = rows.min(columns);
        let count = q.unwrap_or(smaller.min(6));
        if !(0..=smaller).contains(&count) {
            return Err(OpError::value(format!(
                "q(={count}) must be non-negative integer and not greater than min(m, n)={smaller}"
            )));
        }
        if niter < 0 {
            return Err(OpError::value(format!("niter(={niter}) must be non-negative integer")));
        }
        let mean = center.then(|| A.mean(&[-2], true));
        svd_lowrank(g, A, Some(count), Some(niter), mean)
    }
}
