//! Norms of matrices, and norms whose order says whether they are norms of vectors or of matrices.

use crate::common::{axes_of, converted};
use crate::declaration::functions;
use crate::decompositions::svdvals;
use crate::linalg::inv;
use crate::norms::{norm_of_order, order_name, vector_norm};
use gt_ops::error::{OpError, Result};
use gt_ops::expr::{Builder, Expr};
use gt_ops::forms::{function, method, module};
use gt_ops::{DType, Scalar};

/// The order of a norm.
#[derive(Clone, Copy)]
enum Order<'a> {
    Number(Scalar),
    Name(&'a str),
}

impl Order<'_> {
    fn is_number(self, number: f64) -> bool {
        matches!(self, Order::Number(order) if order.to_f64() == number)
    }

    /// Whether the norm is a function of the singular values.
    fn is_spectral(self) -> bool {
        matches!(self, Order::Name("nuc")) || self.is_number(2.0) || self.is_number(-2.0)
    }
}

/// The largest element along an axis; 0 if the axis is empty.
fn largest(magnitudes: Expr<'_>, dim: i64) -> Result<Expr<'_>> {
    Ok(if magnitudes.size(dim)? > 0 { magnitudes.amax(&[dim], true) } else { magnitudes.sum(&[dim], true) })
}

fn norm_of_matrices<'g>(
    a: Expr<'g>,
    order: Order<'_>,
    dim: &[i64],
    keepdim: bool,
    dtype: Option<DType>,
) -> Result<Expr<'g>> {
    let (rank, own) = (a.rank()?, a.dtype()?);
    if !own.is_inexact() {
        return Err(OpError::not_implemented(format!(
            "linalg.matrix_norm: Expected a floating point or complex tensor as input. Got {}",
            own.scalar_type_name()
        )));
    }
    if rank < 2 {
        return Err(OpError::runtime("linalg.matrix_norm: The input tensor A must have at least 2 dimensions."));
    }
    if dim.len() != 2 {
        return Err(OpError::runtime(format!("linalg.matrix_norm: dim must be a 2-tuple. Got {dim:?}")));
    }
    let axes = axes_of(a, dim)?;
    if axes[0] == axes[1] {
        return Err(OpError::runtime(format!(
            "linalg.matrix_norm: dims must be different. Got ({}, {})",
            dim[0], dim[1]
        )));
    }
    let matrices = converted(a, dtype);
    let (rows, columns) = (axes[0] as i64, axes[1] as i64);
    let kept = match order {
        Order::Name("fro") => return norm_of_order(matrices, 2.0, &[rows, columns], keepdim),
        order if order.is_spectral() => {
            let others = (0..rank as i64).filter(|axis| *axis != rows && *axis != columns);
            let values = svdvals(a.builder(), matrices.permute(&others.chain([rows, columns]).collect::<Vec<_>>()))?;
            let reduced = match order {
                Order::Name(_) => values.sum(&[-1], true),
                order if order.is_number(2.0) => largest(values, -1)?,
                _ => values.amin(&[-1], true),
            };
            let reduced = reduced.squeeze(&[-1]);
            return Ok(match keepdim {
                true => reduced.unsqueeze(rows.min(columns)).unsqueeze(rows.max(columns)),
                false => reduced,
            });
        }
        Order::Number(number) if number.to_f64().abs() == 1.0 || number.to_f64().is_infinite() => {
            let number = number.to_f64();
            let (summed, other) = if number.abs() == 1.0 { (rows, columns) } else { (columns, rows) };
            let sums = matrices.abs().sum(&[summed], true);
            if number > 0.0 { largest(sums, other)? } else { sums.amin(&[other], true) }
        }
        order => {
            let shown = match order {
                Order::Number(number) => order_name(number),
                Order::Name(name) => name.to_owned(),
            };
            return Err(OpError::runtime(format!("linalg.matrix_norm: Order {shown} not supported.")));
        }
    };
    Ok(if keepdim { kept } else { kept.squeeze(&[rows, columns]) })
}

/// The norm of `linalg.norm`: of matrices if there are two axes, of vectors if there is one.
fn norm_of<'g>(
    g: &'g Builder<'g>,
    a: Expr<'g>,
    order: Order<'_>,
    dim: Option<&'g [i64]>,
    keepdim: bool,
    dtype: Option<DType>,
) -> Result<Expr<'g>> {
    let rank = a.rank()?;
    if dim.is_none() && !matches!(rank, 1 | 2) {
        return Err(OpError::runtime(format!(
            "linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got {rank}D."
        )));
    }
    if let Some(axes) = dim
        && !matches!(axes.len(), 1 | 2)
    {
        return Err(OpError::runtime(format!(
            "linalg.norm: If dim is specified, it must be of length 1 or 2. Got {axes:?}"
        )));
    }
    if dim.map_or(rank, <[i64]>::len) == 2 {
        return norm_of_matrices(a, order, dim.unwrap_or(&[0, 1]), keepdim, dtype);
    }
    match order {
        Order::Number(number) => vector_norm(g, a, number, dim, keepdim, dtype),
        Order::Name(name) => {
            Err(OpError::type_(format!("linalg.vector_norm: the order must be a number, not '{name}'")))
        }
    }
}

functions! {
    /// The norm of matrices.
    ///
    /// Args:
    ///     A: A floating-point tensor.
    ///     ord: `"fro"` (Frobenius), `"nuc"` (nuclear), 2 or -2 (largest or smallest singular value), 1 or -1 (largest
    ///         or smallest column sum), `inf` or `-inf` (largest or smallest row sum).
    ///     dim: The two axes of the matrices.
    ///     keepdim: Whether reduced axes stay with size 1.
    ///     dtype: The dtype to convert the input to before.
    ///
    /// Example:
    ///     >>> gt.linalg.matrix_norm(gt.tensor([[3.0, 0.0], [0.0, 4.0]]))
    ///     tensor(5.)
    [module("linalg").out()]
    fn matrix_norm(g, A: Expr<'g>, ord: &'g str = "fro", dim: &'g [i64] = &[-2, -1], keepdim: bool = false;
        dtype: Option<DType> = None) -> Result<Expr<'g>> {
        norm_of_matrices(A, Order::Name(ord), dim, keepdim, dtype)
    }

    /// The norm of matrices whose order is a number.
    [module("linalg").out().named("matrix_norm")]
    fn matrix_norm_of_order(g, A: Expr<'g>, ord: Scalar, dim: &'g [i64] = &[-2, -1], keepdim: bool = false;
        dtype: Option<DType> = None) -> Result<Expr<'g>> {
        norm_of_matrices(A, Order::Number(ord), dim, keepdim, dtype)
    }

    /// A vector norm where `dim` is one axis or `ord` is not given, otherwise a matrix norm.
    ///
    /// Args:
    ///     A: A floating-point tensor.
    ///     ord: The order; see `vector_norm` and `matrix_norm`.
    ///     dim: An axis, or two for a matrix norm.
    ///     keepdim: Whether reduced axes stay with size 1.
    ///     dtype: The dtype to convert the input to before.
    ///
    /// Example:
    ///     >>> gt.linalg.norm(gt.tensor([3.0, 4.0]))
    ///     tensor(5.)
    [module("linalg").out().named("norm")]
    fn linalg_norm(g, A: Expr<'g>, ord: Option<Scalar> = None, dim: Option<&'g [i64]> = None, keepdim: bool = false;
        dtype: Option<DType> = None) -> Result<Expr<'g>> {
        match ord {
            None => vector_norm(g, A, Scalar::Int(2), dim, keepdim, dtype),
            Some(order) => norm_of(g, A, Order::Number(order), dim, keepdim, dtype),
        }
    }

    /// A norm of matrices whose order is a name.
    [module("linalg").out().named("norm")]
    fn linalg_norm_of_name(g, A: Expr<'g>, ord: &'g str, dim: Option<&'g [i64]> = None, keepdim: bool = false;
        dtype: Option<DType> = None) -> Result<Expr<'g>> {
        norm_of(g, A, Order::Name(ord), dim, keepdim, dtype)
    }

    /// The condition number of matrices: norm(A) * norm(inv(A)).
    ///
    /// Args:
    ///     A: A matrix, or a batch of matrices.
    ///     p: The order of the norm; 2 if not given.
    ///
    /// Example:
    ///     >>> gt.linalg.cond(gt.tensor([[1.0, 0.0], [0.0, 4.0]]))
    ///     tensor(4.)
    [module("linalg").out()]
    fn cond(g, A: Expr<'g>, p: Option<Scalar> = None) -> Result<Expr<'g>> {
        let order = p.unwrap_or(Scalar::Int(2));
        if order.to_f64().abs() != 2.0 {
            let norm = |a: Expr<'g>| matrix_norm_of_order(g, a, order, &[-2, -1], false, None);
            return Ok(norm(A)? * norm(inv(g, A)?)?);
        }
        let values = svdvals(g, A)?;
        let ratio = values.amax(&[-1], false) / values.amin(&[-1], false);
        Ok(if order.to_f64() < 0.0 { ratio.reciprocal() } else { ratio })
    }

    /// The condition number of matrices in a norm whose order is a name.
    [module("linalg").out().named("cond")]
    fn cond_of_name(g, A: Expr<'g>, p: &'g str) -> Result<Expr<'g>> {
        let norm = |a: Expr<'g>| matrix_norm(g, a, p, &[-2, -1], false, None);
        Ok(norm(A)? * norm(inv(g, A)?)?)
    }

    /// The norm of all elements, or along axes.
    ///
    /// Args:
    ///     input: A floating-point tensor.
    ///     p: The order: a number, `inf`, `-inf`, `"fro"`, which is 2, or `"nuc"`, the nuclear norm of matrices.
    ///     dim: An axis or several; all if not given.
    ///     keepdim: Whether reduced axes stay with size 1.
    ///     dtype: The dtype to convert the input to before.
    ///
    /// Returns:
    ///     sum(abs(input) ** p) ** (1 / p) for a number `p`; the largest absolute value for `inf`.
    ///
    /// Example:
    ///     >>> gt.norm(gt.tensor([3.0, 4.0]))
    ///     tensor(5.)
    ///     >>> gt.norm(gt.tensor([[1.0, -2.0], [3.0, 4.0]]), p=1, dim=1)
    ///     tensor([3., 7.])
    [method().out()]
    fn norm(g, input: Expr<'g>, p: Option<&'g str> = Some("fro"), dim: Option<&'g [i64]> = None, keepdim: bool = false,
        dtype: Option<DType> = None) -> Result<Expr<'g>> {
        let order = p.unwrap_or("fro");
        if order == "fro" {
            return norm_of_number(g, input, Scalar::Int(2), dim, keepdim, dtype);
        }
        let wide = converted(input, dtype);
        let own = wide.dtype()?;
        if !own.is_inexact() {
            return Err(OpError::runtime(format!(
                "linalg.vector_norm: Expected a floating point tensor as input. Got gt.{own}"
            )));
        }
        if order != "nuc" {
            return Err(OpError::runtime(format!(
                "norm: order '{order}' is not there: use a number, inf, -inf, 'fro' or 'nuc'"
            )));
        }
        norm_of_matrices(wide, Order::Name("nuc"), dim.unwrap_or(&[0, 1]), keepdim, None)
    }

    /// The norm whose order is a number.
    [method().out().named("norm")]
    fn norm_of_number(g, input: Expr<'g>, p: Scalar, dim: Option<&'g [i64]> = None, keepdim: bool = false,
        dtype: Option<DType> = None) -> Result<Expr<'g>> {
        let wide = converted(input, dtype);
        vector_norm(g, wide, p, dim, keepdim, None)
    }

    /// The nuclear norm of matrices: the sum of their singular values.
    [function()]
    fn nuclear_norm(g, input: Expr<'g>, dim: Option<&'g [i64]> = None, keepdim: bool = false) -> Result<Expr<'g>> {
        norm(g, input, Some("nuc"), dim, keepdim, None)
    }
}
