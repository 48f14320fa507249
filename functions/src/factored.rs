//! Decompositions in LAPACK's packed form: LU with its row exchanges, and Householder reflections.

use crate::common::zeros;
use crate::declaration::functions;
use crate::decompositions::lu_parts;
use crate::dense::{self, PackedQr, RealElement};
use crate::linalg::{by_dtype, check, eye, failure, linalg_solve_triangular, matrices, upload, upload_numbers};
use crate::masks::{tril, triu};
use crate::shape::diag_embed;
use gt_ops::error::{OpError, Result};
use gt_ops::expr::{Builder, Expr};
use gt_ops::forms::{function, method, module};
use gt_ops::{DType, Scalar};

/// The permutation matrices of row exchanges, which are counted from 1.
fn permutations<'g>(g: &'g Builder<'g>, pivots: Expr<'g>, rows: i64, dtype: DType) -> Result<Expr<'g>> {
    let sizes = pivots.sizes()?;
    let Some((count, batch)) = sizes.split_last() else {
        return Err(OpError::runtime("Expected LU_pivots to have at least 1 dimension"));
    };
    let exchanges: Vec<i64> = pivots.elements()?.into_iter().map(Scalar::to_i64).collect();
    if exchanges.iter().any(|row| !(1..=rows).contains(row)) {
        return Err(OpError::runtime("All elements of LU_pivots must be between 1 and LU_data.size(-2)"));
    }
    let order = |i: usize| {
        let own = &exchanges[i * *count as usize..(i + 1) * *count as usize];
        let own: Vec<usize> = own.iter().map(|row| *row as usize - 1).collect();
        dense::row_order(rows as usize, &own)
    };
    let orders: Vec<Vec<usize>> = (0..batch.iter().product::<i64>() as usize).map(order).collect();
    Ok(upload(g, batch, dense::permutations::<f64>(&orders, rows as usize), dtype))
}

/// The product of Householder reflections `1 - tau[i] * v[i] @ v[i].mT` with a matrix.
///
/// `v[i]` is column `i` of `a` below its diagonal, on which it is 1, and above which it is 0.
fn apply_reflections<'g>(
    g: &'g Builder<'g>,
    a: Expr<'g>,
    tau: Expr<'g>,
    other: Expr<'g>,
    transpose: bool,
) -> Result<Expr<'g>> {
    let (rows, count) = (a.size(-2)?, tau.size(-1)?);
    let v = tril(g, a.narrow(-1, 0, count), -1)? + eye(g, rows, count, a.dtype()?);
    // Compact WY representation: the product is 1 - v @ t @ v.mT with a triangle t (Schreiber and Van Loan 1989).
    let inverse = tau.unsqueeze(-1) * triu(g, v.transposed().matmul(v), 1)?;
    let t = linalg_solve_triangular(g, inverse, diag_embed(g, tau, 0, -2, -1)?, true, true, true)?;
    let t = if transpose { t.transposed() } else { t };
    Ok(other - v.matmul(t.matmul(v.transposed().matmul(other))))
}

functions! {
    /// The LU decomposition of matrices with partial pivoting, packed in one matrix.
    ///
    /// Args:
    ///     A: A matrix, or a batch of matrices.
    ///     pivot: Must be true: there is no decomposition without pivoting.
    ///
    /// Returns:
    ///     A pair `(LU, pivots)` for `lu_solve`; `pivots` has the row exchanged with each, counted from 1.
    ///
    /// Example:
    ///     >>> A = gt.tensor([[2.0, 0.0], [0.0, 4.0]])
    ///     >>> gt.linalg.lu_solve(*gt.linalg.lu_factor(A), gt.tensor([[2.0], [4.0]]))
    ///     tensor([[1.],
    ///             [1.]])
    [module("linalg").out().results(&["LU", "pivots"])]
    fn lu_factor(g, A: Expr<'g>; pivot: bool = true) -> Result<[Expr<'g>; 2]> {
        let [_, lower, upper, pivots] = lu_parts(g, "lu_factor", A, pivot)?;
        let (rows, columns) = (A.size(-2)?, A.size(-1)?);
        let below = tril(g, lower, -1)?;
        let beside = (rows - columns).abs();
        // The shape of zeros beside L, or below U.
        let mut sizes = A.sizes()?;
        let rank = sizes.len();
        let (axis, place) = if rows < columns { (-1, rank - 1) } else { (-2, rank - 2) };
        sizes[place] = beside;
        let zeros = zeros(g, &sizes, A.dtype()?);
        let packed = match rows.cmp(&columns) {
            std::cmp::Ordering::Less => g.cat(&[below, zeros], axis) + upper,
            std::cmp::Ordering::Equal => below + upper,
            std::cmp::Ordering::Greater => below + g.cat(&[upper, zeros], axis),
        };
        Ok([packed, pivots])
    }

    /// `lu_factor` that reports the first column without a pivot in `info` instead of raising.
    [module("linalg").out().results(&["LU", "pivots", "info"])]
    fn lu_factor_ex(g, A: Expr<'g>; pivot: bool = true, check_errors: bool = false) -> Result<[Expr<'g>; 3]> {
        let [packed, pivots] = lu_factor(g, A, pivot)?;
        let sizes = A.sizes()?;
        let (batch, matrix) = sizes.split_at(sizes.len() - 2);
        let count = matrix[0].min(matrix[1]) as usize;
        let diagonal: Vec<f64> =
            packed.detach().diagonal(0, -2, -1).elements()?.into_iter().map(Scalar::to_f64).collect();
        let first = |i: usize| {
            let zero = diagonal[i * count..(i + 1) * count].iter().position(|x| *x == 0.0);
            zero.map_or(0, |column| column as i64 + 1)
        };
        let faults: Vec<i64> = (0..batch.iter().product::<i64>() as usize).map(first).collect();
        if check_errors && faults.iter().any(|fault| *fault != 0) {
            return Err(failure("lu_factor", "the matrix has no LU factors: U has a 0 on its diagonal"));
        }
        Ok([packed, pivots, g.ints(&faults, batch).to(DType::I32)])
    }

    /// The packed LU decomposition: `gt.linalg.lu_factor`, or `lu_factor_ex` with `get_infos`.
    [method().out()]
    fn lu(g, A: Expr<'g>, pivot: bool = true, get_infos: bool = false) -> Result<Vec<Expr<'g>>> {
        if get_infos { Ok(lu_factor_ex(g, A, pivot, false)?.to_vec()) } else { Ok(lu_factor(g, A, pivot)?.to_vec()) }
    }

    /// The factors P, L and U of a packed LU decomposition; those not requested are empty.
    ///
    /// Args:
    ///     LU_data: The packed factors that `lu_factor` returned.
    ///     LU_pivots: The row exchanges that it returned.
    ///     unpack_data: Whether L and U are requested.
    ///     unpack_pivots: Whether P is requested.
    [function().out().results(&["P", "L", "U"])]
    fn lu_unpack(g, LU_data: Expr<'g>, LU_pivots: Expr<'g>, unpack_data: bool = true, unpack_pivots: bool = true)
        -> Result<[Expr<'g>; 3]> {
        let (rows, columns, dtype) = (LU_data.size(-2)?, LU_data.size(-1)?, LU_data.dtype()?);
        let count = rows.min(columns);
        if LU_pivots.dtype()? != DType::I32 && unpack_pivots {
            return Err(OpError::runtime(
                "torch.lu_unpack: LU_pivots is expected to be a contiguous tensor of torch.int32 dtype.",
            ));
        }
        let empty = || g.floats(&[], &[0], dtype);
        let permutation = if unpack_pivots { permutations(g, LU_pivots, rows, dtype)? } else { empty() };
        if !unpack_data {
            return Ok([permutation, empty(), empty()]);
        }
        let lower = tril(g, LU_data.narrow(-1, 0, count), -1)? + eye(g, rows, count, dtype);
        Ok([permutation, lower, triu(g, LU_data.narrow(-2, 0, count), 0)?])
    }

    /// The solution X of `A @ X = B`, from the packed LU decomposition of A.
    ///
    /// Args:
    ///     LU: The packed factors that `lu_factor` returned.
    ///     pivots: The row exchanges that it returned.
    ///     B: The right-hand sides.
    ///     left: Whether A stands on the left; otherwise `X @ A = B` is solved.
    ///     adjoint: Whether A is transposed.
    ///
    /// Example:
    ///     >>> A = gt.tensor([[2.0, 0.0], [0.0, 4.0]])
    ///     >>> LU, pivots = gt.linalg.lu_factor(A)
    ///     >>> gt.linalg.lu_solve(LU, pivots, gt.tensor([[2.0], [4.0]]))
    ///     tensor([[1.],
    ///             [1.]])
    [module("linalg").out().named("lu_solve")]
    fn linalg_lu_solve(g, LU: Expr<'g>, pivots: Expr<'g>, B: Expr<'g>; left: bool = true, adjoint: bool = false)
        -> Result<Expr<'g>> {
        if !left {
            return Ok(linalg_lu_solve(g, LU, pivots, B.transposed(), true, !adjoint)?.transposed());
        }
        let permutation = permutations(g, pivots, LU.size(-1)?, LU.dtype()?)?;
        if adjoint {
            let half = linalg_solve_triangular(g, LU.transposed(), B, false, true, false)?;
            return Ok(permutation.matmul(linalg_solve_triangular(g, LU.transposed(), half, true, true, true)?));
        }
        let half = linalg_solve_triangular(g, LU, permutation.transposed().matmul(B), false, true, true)?;
        linalg_solve_triangular(g, LU, half, true, true, false)
    }

    /// The solution X of `A @ X = b`, from the packed LU decomposition of A: `gt.linalg.lu_solve`.
    [method().out()]
    fn lu_solve(g, b: Expr<'g>, LU_data: Expr<'g>, LU_pivots: Expr<'g>) -> Result<Expr<'g>> {
        linalg_lu_solve(g, LU_data, LU_pivots, b, true, false)
    }

    /// The QR decomposition as packed by LAPACK: R with the Householder vectors below it, and their factors.
    [method().out().results(&["a", "tau"])]
    fn geqrf(g, input: Expr<'g>) -> Result<[Expr<'g>; 2]> {
        let ((batch, rows, columns), dtype) = (check("geqrf", input, false)?, input.dtype()?);
        fn packed<'g, T: RealElement>(a: Expr<'g>, batch: &[i64], count: i64) -> Result<[Expr<'g>; 2]> {
            let (g, found) = (a.builder(), PackedQr::<T>::new(matrices(a)?));
            let factors = upload_numbers(g, &found.factors(), &[batch, &[count]].concat(), T::DTYPE);
            Ok([upload(g, batch, found.packed, T::DTYPE), factors])
        }
        by_dtype!(dtype, packed(input, &batch, rows.min(columns)))
    }

    /// The first columns of a product of Householder reflections: Q of what `geqrf` returned.
    [module("linalg").out()]
    fn householder_product(g, A: Expr<'g>, tau: Expr<'g>) -> Result<Expr<'g>> {
        let (batch, rows, columns) = check("householder_product", A, false)?;
        if rows < columns {
            return Err(OpError::runtime(
                "torch.linalg.householder_product: input.shape[-2] must be greater than or equal to input.shape[-1]",
            ));
        }
        let sizes = tau.sizes()?;
        let fits = sizes.split_last().is_some_and(|(count, own)| *count <= columns && own == batch);
        if !fits {
            return Err(OpError::runtime(format!(
                "torch.linalg.householder_product: input.shape[-1] must be greater than or equal to tau.shape[-1], and \
                 the batches must be the same, but they are of shape {:?} and {sizes:?}",
                A.sizes()?
            )));
        }
        apply_reflections(g, A, tau, eye(g, rows, columns, A.dtype()?), false)
    }

    /// The matrix Q of Householder reflections: `gt.linalg.householder_product`.
    [method().out()]
    fn orgqr(g, input: Expr<'g>, input2: Expr<'g>) -> Result<Expr<'g>> {
        householder_product(g, input, input2)
    }

    /// The product of a matrix with the whole Q of `geqrf`, or its transpose, from the left or the right.
    [method().out()]
    fn ormqr(g, input: Expr<'g>, tau: Expr<'g>, other: Expr<'g>, left: bool = true, transpose: bool = false)
        -> Result<Expr<'g>> {
        for (word, tensor) in [("input", input), ("other", other)] {
            if tensor.rank()? < 2 {
                return Err(OpError::runtime(format!("torch.ormqr: {word} must have at least 2 dimensions.")));
            }
        }
        let across = if left { -2 } else { -1 };
        if tau.size(-1)? != other.size(across)?.min(input.size(-1)?) {
            return Err(OpError::runtime(format!(
                "torch.ormqr: tau.shape[-1] must be equal to min(other.shape[{across}], input.shape[-1])"
            )));
        }
        if left {
            return apply_reflections(g, input, tau, other, transpose);
        }
        Ok(apply_reflections(g, input, tau, other.transposed(), !transpose)?.transposed())
    }
}
