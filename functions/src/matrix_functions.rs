//! Functions of square matrices that need no decomposition, and Vandermonde matrices.

use crate::declaration::functions;
use gt_ops::error::Result;
use gt_ops::expr::Expr;
use gt_ops::forms::{method, module};
use gt_ops::{DType, OpError, build};

functions! {
    /// The Vandermonde matrices of vectors: powers of the elements of the last axis, increasing from left to right.
    ///
    /// Args:
    ///     x: A vector, or a batch of vectors.
    ///     N: The number of columns; the length of the vectors if not given.
    ///
    /// Example:
    ///     >>> gt.linalg.vander(gt.tensor([1, 2, 3]))
    ///     tensor([[1, 1, 1],
    ///             [1, 2, 4],
    ///             [1, 3, 9]])
    [module("linalg").named("vander")]
    fn linalg_vander(g, x: Expr<'g>, N: Option<i64> = None) -> Result<Expr<'g>> {
        if N.is_some_and(|n| n <= 1) {
            return Err(OpError::runtime("N must be greater than 1."));
        }
        let rows = if x.rank()? == 0 { x.reshape(&[1]) } else { x };
        let columns = N.map_or_else(|| rows.size(-1), Ok)?;
        Ok(rows.unsqueeze(-1).pow(g.arange(columns, DType::I64)))
    }

    /// The matrix exponential, by its power series with scaling and squaring. Waits for the largest element.
    ///
    /// Example:
    ///     >>> gt.linalg.matrix_exp(gt.tensor([[0.0, 1.0], [0.0, 0.0]]))
    ///     tensor([[1., 1.],
    ///             [0., 1.]])
    [method()]
    fn matrix_exp(g, input: Expr<'g>) -> Result<Expr<'g>> {
        let (meta, sizes) = (input.meta()?, input.sizes()?);
        if !matches!(meta.dtype, DType::F32 | DType::F64) {
            let text = format!("matrix_exp is not there for gt.{}: use float32 or float64", meta.dtype);
            return Err(OpError::not_implemented(text));
        }
        let [.., rows, columns] = sizes[..] else {
            return Err(OpError::runtime(
                "linalg.matrix_exp: A must be batches of square matrices, but it has fewer than 2 dimensions",
            ));
        };
        if rows != columns {
            return Err(OpError::runtime(format!(
                "linalg.matrix_exp: A must be batches of square matrices, but they are {rows} by {columns} matrices"
            )));
        }
        let largest = match meta.shape.numel() {
            0 => 0.0,
            _ => input.detach().abs().sum(&[-1], false).amax(&[], false).item()?.to_f64(),
        };
        let halvings =
            if largest > 0.0 && largest.is_finite() { (largest.log2().ceil() as i32 + 2).max(0) } else { 0 };
        let small = input * 2f64.powi(-halvings);
        let identity = g.run(|g| build::eye(g, rows, rows, meta.dtype)).expand_to(&meta.shape);
        // For a norm of at most 1/4, the terms from 1/16! on are below the resolution of float64.
        let series = (1..=15).rev().fold(identity, |result, k| identity + small.matmul(result) / f64::from(k));
        Ok((0..halvings).fold(series, |result, _| result.matmul(result)))
    }

    /// The matrix exponential: see `gt.matrix_exp`.
    [module("linalg").named("matrix_exp")]
    fn linalg_matrix_exp(g, A: Expr<'g>) -> Result<Expr<'g>> {
        matrix_exp(g, A)
    }
}
