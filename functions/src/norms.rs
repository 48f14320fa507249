//! Norms of vectors, and distances between them.

use crate::common::{axes_of, broadcast, check_floating, check_rank, converted, extremum, in_float32};
use crate::declaration::functions;
use gt_ops::error::Result;
use gt_ops::expr::Expr;
use gt_ops::forms::{function, method, module};
use gt_ops::{DType, Op, OpError, Scalar};

/// The vector norm of order `p`, a number, inf or -inf, of all elements or along axes.
pub(crate) fn norm_of_order<'g>(input: Expr<'g>, p: f64, dim: &[i64], keepdim: bool) -> Result<Expr<'g>> {
    let dtype = input.dtype()?;
    if !dtype.is_inexact() {
        return Err(OpError::not_implemented(format!(
            "linalg.vector_norm: Expected a floating point tensor as input. Got gt.{dtype}"
        )));
    }
    Ok(match p {
        f64::INFINITY => extremum("LinalgVectorNormBackward0", Op::Amax, input.abs(), dim, keepdim)?,
        f64::NEG_INFINITY => extremum("LinalgVectorNormBackward0", Op::Amin, input.abs(), dim, keepdim)?,
        // A count, whose gradient is 0 wherever it has one.
        0.0 => {
            let count = input.detach().ne(0.0).to(dtype.to_real()).sum(dim, keepdim);
            let [count] = input.builder().with_gradient("norm", &[input], [count], |_, _, _| Ok(vec![None]))?;
            count
        }
        1.0 => input.abs().sum(dim, keepdim),
        2.0 => input.norm(dim, keepdim),
        // The power of a half precision overflows soon.
        _ => in_float32([input], |[x]| Ok(root(power(x.abs(), p).sum(dim, keepdim), p)))?,
    })
}

/// The order in messages.
pub(crate) fn order_name(order: Scalar) -> String {
    match order {
        Scalar::Float(f) => format!("{f:?}"),
        other => other.to_i64().to_string(),
    }
}

/// `x ** p` with gradient 0 at 0, where for `p < 1` the derivative is infinite.
fn power(x: Expr<'_>, p: f64) -> Expr<'_> {
    if p >= 1.0 {
        return x.pow(p);
    }
    let zero = x.eq(0.0);
    zero.where_(if p > 0.0 { 0.0 } else { f64::INFINITY }, zero.where_(1.0, x).pow(p))
}

/// `total ** (1 / p)` with gradient 0 at 0, where the derivative is infinite, as in PyTorch.
fn root(total: Expr<'_>, p: f64) -> Expr<'_> {
    let zero = total.eq(if p > 0.0 { 0.0 } else { f64::INFINITY });
    let filled = zero.where_(1.0, total);
    zero.where_(0.0, if p == 2.0 { filled.sqrt() } else { filled.pow(1.0 / p) })
}

functions! {
    /// The norm of vectors: sum(abs(x) ** ord) ** (1 / ord).
    ///
    /// Args:
    ///     x: A floating-point tensor.
    ///     ord: The order: a number, `inf` (the largest absolute value) or `-inf` (the smallest).
    ///     dim: An axis or several; all elements are one vector if not given.
    ///     keepdim: Whether reduced axes stay with size 1.
    ///     dtype: The dtype to convert the input to before.
    ///
    /// Example:
    ///     >>> gt.linalg.vector_norm(gt.tensor([3.0, -4.0]), ord=1)
    ///     tensor(7.)
    [module("linalg").out()]
    fn vector_norm(g, x: Expr<'g>, ord: Scalar = Scalar::Int(2), dim: Option<&'g [i64]> = None, keepdim: bool = false;
        dtype: Option<DType> = None) -> Result<Expr<'g>> {
        let (order, meta) = (ord.to_f64(), x.meta()?);
        if !meta.dtype.is_inexact() {
            return Err(OpError::not_implemented(format!(
                "linalg.vector_norm: Expected a floating point or complex tensor as input. Got {}",
                meta.dtype.scalar_type_name()
            )));
        }
        if meta.shape.numel() == 0 && (order < 0.0 || order == f64::INFINITY) {
            let place = match dim {
                None => Some("an empty tensor because".to_owned()),
                Some(dims) => axes_of(x, dims)?.into_iter().find(|axis| meta.shape.dims()[*axis] == 0).map(|axis| {
                    format!("the dimension {axis} because this dimension is empty and")
                }),
            };
            if let Some(place) = place {
                return Err(OpError::runtime(format!(
                    "linalg.vector_norm cannot compute the {} norm on {place} the operation does not have an \
                     identity",
                    order_name(ord)
                )));
            }
        }
        norm_of_order(converted(x, dtype), order, dim.unwrap_or(&[]), keepdim)
    }

    /// The Frobenius norm along axes: the square root of the sum of squares.
    ///
    /// Example:
    ///     >>> gt.frobenius_norm(gt.tensor([[3.0, 4.0], [0.0, 1.0]]), dim=1)
    ///     tensor([5., 1.])
    [function().wide()]
    fn frobenius_norm(g, input: Expr<'g>, dim: &'g [i64], keepdim: bool = false) -> Result<Expr<'g>> {
        norm_of_order(input, 2.0, dim, keepdim)
    }

    /// The norm over all axes but one, with the reduced axes kept; over all axes for -1.
    ///
    /// Example:
    ///     >>> gt.norm_except_dim(gt.tensor([[3.0, 4.0], [0.0, 1.0]]), dim=0)
    ///     tensor([[5.],
    ///             [1.]])
    [function().wide()]
    fn norm_except_dim(g, v: Expr<'g>, pow: i64 = 2, dim: i64 = 0) -> Result<Expr<'g>> {
        if dim == -1 {
            return norm_of_order(v, pow as f64, &[], false);
        }
        let rank = v.rank()? as i64;
        let others: Vec<i64> = (0..rank).filter(|axis| *axis != dim.rem_euclid(rank.max(1))).collect();
        norm_of_order(v, pow as f64, &others, true)
    }

    /// The cosine of the angle between vectors: sum(x1 * x2) / (norm(x1) * norm(x2)).
    ///
    /// Args:
    ///     x1: The first vectors.
    ///     x2: The second vectors, which broadcast.
    ///     dim: The axis of the vectors.
    ///     eps: The lower bound of each norm, which avoids division by zero.
    ///
    /// Example:
    ///     >>> gt.cosine_similarity(gt.tensor([1.0, 0.0]), gt.tensor([1.0, 1.0]), dim=0)
    ///     tensor(0.7071)
    [function().aliases(&["nn.functional.cosine_similarity"])]
    fn cosine_similarity(g, x1: Expr<'g>, x2: Expr<'g>, dim: i64 = 1, eps: f64 = 1e-8) -> Result<Expr<'g>> {
        let dtype = g.common_dtype(&[x1, x2])?;
        if !dtype.is_inexact() {
            return Err(OpError::runtime(format!(
                "expected common dtype to be floating point, yet common dtype is {}",
                dtype.scalar_type_name()
            )));
        }
        in_float32([x1.to(dtype), x2.to(dtype)], |vectors| {
            let both = broadcast(&vectors)?;
            // As in PyTorch, a vector whose length is beyond the dtype's range has the direction 0.
            let direction = |x: Expr<'g>| norm_of_order(x, 2.0, &[dim], true).map(|length| x / length.maximum(eps));
            Ok((direction(both[0])? * direction(both[1])?).sum(&[dim], false))
        })
    }

    /// The norm of the difference of two tensors.
    ///
    /// Args:
    ///     input: The first tensor.
    ///     other: The second tensor, which broadcasts.
    ///     p: The order of the norm.
    ///
    /// Example:
    ///     >>> gt.dist(gt.tensor([0.0, 0.0]), gt.tensor([3.0, 4.0]))
    ///     tensor(5.)
    [method().wide()]
    fn dist(g, input: Expr<'g>, other: Expr<'g>, p: f64 = 2.0) -> Result<Expr<'g>> {
        norm_of_order(input - other, p, &[], false)
    }

    /// The distance of each row of one matrix to each row of another; batches broadcast.
    ///
    /// Args:
    ///     x1: The first rows.
    ///     x2: The second rows.
    ///     p: The order of the norm.
    ///     compute_mode: Whether Euclidean distances are computed by matrix products, which is faster and less exact:
    ///         `"use_mm_for_euclid_dist_if_necessary"` (above 25 rows), `"use_mm_for_euclid_dist"` or
    ///         `"donot_use_mm_for_euclid_dist"`.
    ///
    /// Shape:
    ///     `(..., n, k)` and `(..., m, k)` give `(..., n, m)`.
    ///
    /// Example:
    ///     >>> gt.cdist(gt.tensor([[0.0, 0.0]]), gt.tensor([[3.0, 4.0], [0.0, 1.0]]))
    ///     tensor([[5., 1.]])
    [function().wide()]
    fn cdist(g, x1: Expr<'g>, x2: Expr<'g>, p: f64 = 2.0,
        compute_mode: &'g str = "use_mm_for_euclid_dist_if_necessary") -> Result<Expr<'g>> {
        let products_from = match compute_mode {
            "use_mm_for_euclid_dist_if_necessary" => 26,
            "use_mm_for_euclid_dist" => 0,
            "donot_use_mm_for_euclid_dist" => i64::MAX,
            other => return Err(OpError::value(format!("{other} is not a valid value for compute_mode"))),
        };
        check_floating("cdist", x1)?;
        check_floating("cdist", x2)?;
        let (first, second) = (x1.sizes()?, x2.sizes()?);
        let ([.., rows1, columns1], [.., rows2, columns2]) = (&*first, &*second) else {
            return Err(OpError::runtime(format!(
                "cdist only supports at least 2D tensors, X1 got: {}D",
                first.len().min(second.len())
            )));
        };
        if columns1 != columns2 {
            return Err(OpError::runtime(format!(
                "X1 and X2 must have the same number of columns. X1: {columns1} X2: {columns2}"
            )));
        }
        if p < 0.0 {
            return Err(OpError::runtime("cdist only supports non-negative p values"));
        }
        if p == 2.0 && *rows1.max(rows2) >= products_from {
            let squares = x1.square().sum(&[-1], true) + x2.square().sum(&[-1], false).unsqueeze(-2);
            return Ok(root((squares - 2.0 * x1.matmul(x2.transposed())).maximum(0.0), 2.0));
        }
        norm_of_order(x1.unsqueeze(-2) - x2.unsqueeze(-3), p, &[-1], false)
    }

    /// The distances between all pairs of rows of a matrix: the upper triangle of `cdist(input, input)`, flattened.
    ///
    /// Example:
    ///     >>> gt.pdist(gt.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]]))
    ///     tensor([5.0000, 1.0000, 4.2426])
    [function().aliases(&["nn.functional.pdist"]).wide()]
    fn pdist(g, input: Expr<'g>, p: f64 = 2.0) -> Result<Expr<'g>> {
        check_rank("pdist", "input", input, 2)?;
        let (rows, columns) = (input.size(0)?, input.size(1)?);
        let count = rows * (rows - 1).max(0) / 2;
        let places = g.arange(rows, DType::I64);
        let pairs = places.unsqueeze(1).lt(places).nonzero(count as usize);
        let side = |which: i64| input.gather(0, pairs.select(1, which).unsqueeze(1).expand(&[count, columns]));
        norm_of_order(side(0) - side(1), p, &[1], false)
    }

    /// A copy whose slices along an axis have a norm of at most `maxnorm`; longer ones are scaled down.
    ///
    /// Args:
    ///     input: A tensor.
    ///     p: The order of the norm.
    ///     dim: The axis of the slices.
    ///     maxnorm: The largest norm.
    ///
    /// Example:
    ///     >>> gt.renorm(gt.tensor([[3.0, 4.0], [0.3, 0.4]]), p=2, dim=0, maxnorm=1)
    ///     tensor([[0.6000, 0.8000],
    ///             [0.3000, 0.4000]])
    [method().in_place().out().wide()]
    fn renorm(g, input: Expr<'g>, p: f64, dim: i64, maxnorm: f64) -> Result<Expr<'g>> {
        let rank = input.rank()?;
        let axis = input.shape()?.axis(dim)? as i64;
        if rank < 2 {
            return Err(OpError::runtime(format!("renorm: input needs at least 2 dimensions, got {rank} dimensions")));
        }
        let others: Vec<i64> = (0..rank as i64).filter(|other| *other != axis).collect();
        let lengths = norm_of_order(input, p, &others, true)?;
        Ok(input * lengths.gt(maxnorm).where_(maxnorm / (lengths + 1e-7), 1.0))
    }
}
