//! Products of vectors and matrices under BLAS's names, and contractions.

use crate::common::{axes_of, check_rank, in_dtype};
use crate::declaration::{Operands, functions};
use crate::pointwise::factor_in;
use gt_ops::build::numbers::checked;
use gt_ops::error::Result;
use gt_ops::expr::Expr;
use gt_ops::forms::{Autocast, function, method, module};
use gt_ops::{DType, OpError, Scalar};

/// How PyTorch takes the factors of a scaled sum.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Factors {
    /// Integers have no fractional factors, and half precisions those of float32.
    Exact,
    /// Fractional factors of integers are truncated, and half precisions have the factors of float32.
    Truncated,
    /// Fractional factors of integers are truncated, and half precisions have factors in their own range.
    InRange,
}

/// The factors `beta` and `alpha` of a scaled sum of a dtype.
///
/// # Errors
/// A factor that the dtype does not have.
fn checked_factors(beta: Scalar, alpha: Scalar, dtype: DType, taken: Factors) -> Result<[Scalar; 2]> {
    let of = if dtype.is_half() && taken != Factors::InRange { DType::F32 } else { dtype };
    let checked = |word: &str, factor: Scalar| match factor {
        Scalar::Float(_) if taken == Factors::Exact => factor_in(word, factor, of),
        factor => checked(factor, of),
    };
    Ok([checked("beta", beta)?, checked("alpha", alpha)?])
}

/// `beta * input + alpha * product`. Of half precisions the product is in float32, and the sum is rounded once.
fn scaled_sum<'g>(
    input: Expr<'g>,
    factors: [Expr<'g>; 2],
    product: impl FnOnce([Expr<'g>; 2]) -> Result<Expr<'g>>,
    [beta, alpha]: [Scalar; 2],
    taken: Factors,
) -> Result<Expr<'g>> {
    let dtype = input.builder().common_dtype(&factors)?;
    let [beta, alpha] = checked_factors(beta, alpha, dtype, taken)?;
    let (ignored, half) = (beta.parts() == (0.0, 0.0), dtype.is_half());
    let result = if ignored { dtype } else { input.builder().common_dtype(&[input, factors[0]])? };
    let product = if half { product(factors)?.upcast() } else { product(factors)?.to(dtype) };
    let input = if half { input.upcast() } else { input };
    let scaled = if alpha.parts() == (1.0, 0.0) { product } else { product * alpha };
    let sum = match beta.parts() {
        _ if ignored => scaled,
        (1.0, 0.0) => input + scaled,
        _ => input * beta + scaled,
    };
    Ok(if half { sum.to(result) } else { sum })
}

/// A product of two tensors: [`Expr::matmul`], or [`Expr::matmul_wide`] for a sum that is rounded once.
type Product<'g> = fn(Expr<'g>, Expr<'g>) -> Expr<'g>;

/// A product of a matrix and a vector.
fn matrix_vector<'g>(product: Product<'g>, input: Expr<'g>, vec: Expr<'g>) -> Result<Expr<'g>> {
    check_rank("mv", "input", input, 2)?;
    check_rank("mv", "vec", vec, 1)?;
    Ok(product(input, vec))
}

/// The products of two batches of matrices.
fn batches<'g>(product: Product<'g>, input: Expr<'g>, mat2: Expr<'g>) -> Result<Expr<'g>> {
    check_rank("bmm", "input", input, 3)?;
    check_rank("bmm", "mat2", mat2, 3)?;
    let (a, b) = (input.size(0)?, mat2.size(0)?);
    if a != b {
        return Err(OpError::runtime(format!("bmm: expected batches of the same length, but got {a} and {b}")));
    }
    Ok(product(input, mat2))
}

/// A product of two matrices.
fn matrices<'g>(product: Product<'g>, input: Expr<'g>, mat2: Expr<'g>) -> Result<Expr<'g>> {
    check_rank("mm", "input", input, 2)?;
    check_rank("mm", "mat2", mat2, 2)?;
    Ok(product(input, mat2))
}

functions! {
    /// The outer product of two vectors: `output[i][j] = input[i] * vec2[j]`.
    ///
    /// Example:
    ///     >>> gt.outer(gt.tensor([1.0, 2.0]), gt.tensor([3.0, 4.0, 5.0]))
    ///     tensor([[ 3.,  4.,  5.],
    ///             [ 6.,  8., 10.]])
    [method().out().aliases(&["ger"])]
    fn outer(g, input: Expr<'g>, vec2: Expr<'g>) -> Result<Expr<'g>> {
        check_rank("outer", "input", input, 1)?;
        check_rank("outer", "vec2", vec2, 1)?;
        Ok(input.unsqueeze(1) * vec2)
    }

    /// The dot product of two vectors.
    ///
    /// Example:
    ///     >>> gt.dot(gt.tensor([1.0, 2.0]), gt.tensor([3.0, 4.0]))
    ///     tensor(11.)
    [method().out()]
    fn dot(g, input: Expr<'g>, tensor: Expr<'g>) -> Result<Expr<'g>> {
        check_rank("dot", "input", input, 1)?;
        check_rank("dot", "tensor", tensor, 1)?;
        Ok(input.matmul(tensor))
    }

    /// The dot product of two vectors, of which the first is conjugated.
    [method().out()]
    fn vdot(g, input: Expr<'g>, other: Expr<'g>) -> Result<Expr<'g>> {
        dot(g, input.conj(), other)
    }

    /// The product of a matrix and a vector.
    ///
    /// Example:
    ///     >>> gt.mv(gt.tensor([[1.0, 2.0], [3.0, 4.0]]), gt.tensor([1.0, 1.0]))
    ///     tensor([3., 7.])
    [method().out()]
    fn mv(g, input: Expr<'g>, vec: Expr<'g>) -> Result<Expr<'g>> {
        matrix_vector(Expr::matmul, input, vec)
    }

    /// The product of two matrices; `matmul` takes vectors and batches too.
    ///
    /// Shape:
    ///     `(n, k) @ (k, m)` is `(n, m)`.
    ///
    /// Example:
    ///     >>> gt.mm(gt.tensor([[1.0, 2.0]]), gt.tensor([[3.0], [4.0]]))
    ///     tensor([[11.]])
    [method().out().autocast(Autocast::Low)]
    fn mm(g, input: Expr<'g>, mat2: Expr<'g>) -> Result<Expr<'g>> {
        matrices(Expr::matmul, input, mat2)
    }

    /// The products of two batches of matrices.
    ///
    /// Shape:
    ///     `(b, n, k) @ (b, k, m)` is `(b, n, m)`.
    ///
    /// Raises:
    ///     RuntimeError: The tensors are not both batches of matrices of the same length.
    ///
    /// Example:
    ///     >>> gt.bmm(gt.ones(10, 3, 4), gt.ones(10, 4, 5)).shape
    ///     gt.Size([10, 3, 5])
    [method().out().autocast(Autocast::Low)]
    fn bmm(g, input: Expr<'g>, mat2: Expr<'g>) -> Result<Expr<'g>> {
        batches(Expr::matmul, input, mat2)
    }

    /// `beta * input + alpha * (mat1 @ mat2)`.
    ///
    /// Args:
    ///     input: The tensor to add, which broadcasts; ignored where `beta` is 0.
    ///     mat1: The first matrix.
    ///     mat2: The second matrix.
    ///     beta: The factor of `input`.
    ///     alpha: The factor of the product.
    ///
    /// Example:
    ///     >>> gt.addmm(gt.ones(2), gt.eye(2), gt.full((2, 2), 3.0))
    ///     tensor([[4., 4.],
    ///             [4., 4.]])
    [method().out().in_place().autocast(Autocast::Low)]
    fn addmm(g, input: Expr<'g>, mat1: Expr<'g>, mat2: Expr<'g>; beta: Scalar = Scalar::Int(1), alpha: Scalar = Scalar::Int(1)) -> Result<Expr<'g>> {
        let scales = [beta, alpha].into_iter().any(|factor| factor.parts() != (1.0, 0.0));
        let (dtype, ranks) = (mat1.dtype()?, [input.rank()?, mat1.rank()?, mat2.rank()?]);
        if !scales && ranks == [1, 2, 2] && dtype.is_float() && input.dtype()? == dtype {
            return Ok(mat1.affine(mat2.transposed(), input));
        }
        scaled_sum(input, [mat1, mat2], |[a, b]| matrices(Expr::matmul_wide, a, b), [beta, alpha], Factors::Exact)
    }

    /// `beta * input + alpha * (batch1 @ batch2)` for batches of matrices; `input` is ignored where `beta` is 0.
    ///
    /// Example:
    ///     >>> gt.baddbmm(gt.zeros(1), gt.ones(2, 3, 4), gt.ones(2, 4, 5)).shape
    ///     gt.Size([2, 3, 5])
    [method().out().in_place().autocast(Autocast::Low)]
    fn baddbmm(g, input: Expr<'g>, batch1: Expr<'g>, batch2: Expr<'g>; beta: Scalar = Scalar::Int(1), alpha: Scalar = Scalar::Int(1)) -> Result<Expr<'g>> {
        scaled_sum(input, [batch1, batch2], |[a, b]| batches(Expr::matmul_wide, a, b), [beta, alpha], Factors::Truncated)
    }

    /// `beta * input + alpha * (batch1 @ batch2).sum(0)`; `input` is ignored where `beta` is 0.
    [method().out().in_place().autocast(Autocast::Low)]
    fn addbmm(g, input: Expr<'g>, batch1: Expr<'g>, batch2: Expr<'g>; beta: Scalar = Scalar::Int(1), alpha: Scalar = Scalar::Int(1)) -> Result<Expr<'g>> {
        scaled_sum(input, [batch1, batch2], |[a, b]| Ok(batches(Expr::matmul_wide, a, b)?.sum(&[0], false)), [beta, alpha], Factors::Truncated)
    }

    /// `beta * input + alpha * (mat @ vec)` for a matrix and a vector; `input` is ignored where `beta` is 0.
    [method().out().in_place_function()]
    fn addmv(g, input: Expr<'g>, mat: Expr<'g>, vec: Expr<'g>; beta: Scalar = Scalar::Int(1), alpha: Scalar = Scalar::Int(1)) -> Result<Expr<'g>> {
        scaled_sum(input, [mat, vec], |[a, b]| matrix_vector(Expr::matmul_wide, a, b), [beta, alpha], Factors::InRange)
    }

    /// `beta * input + alpha * outer(vec1, vec2)` for two vectors; `input` is ignored where `beta` is 0.
    [method().out().in_place()]
    fn addr(g, input: Expr<'g>, vec1: Expr<'g>, vec2: Expr<'g>; beta: Scalar = Scalar::Int(1), alpha: Scalar = Scalar::Int(1)) -> Result<Expr<'g>> {
        let dtype = g.common_dtype(&[vec1, vec2])?;
        if !dtype.is_half() {
            return scaled_sum(input, [vec1, vec2], |[a, b]| outer(g, a, b), [beta, alpha], Factors::Exact);
        }
        // Every step is rounded, as in PyTorch.
        let [beta, alpha] = checked_factors(beta, alpha, dtype, Factors::InRange)?;
        let scaled = |x: Expr<'g>, factor: Scalar| match factor.parts() {
            (1.0, 0.0) => x,
            _ => x * in_dtype(g.number(factor), dtype),
        };
        let product = outer(g, scaled(vec1, alpha), vec2)?;
        Ok(if beta.parts() == (0.0, 0.0) { product } else { scaled(input, beta) + product })
    }

    /// The product of several matrices, in the order of the fewest multiplications (matrix chain ordering).
    ///
    /// Args:
    ///     tensors: At least two matrices. The first and the last may be vectors: a row and a column.
    ///
    /// Example:
    ///     >>> gt.linalg.multi_dot([gt.ones(2, 3), gt.ones(3, 4), gt.ones(4, 5)]).shape
    ///     gt.Size([2, 5])
    [module("linalg").out().autocast(Autocast::Low)]
    fn multi_dot(g, tensors: Vec<Expr<'g>>) -> Result<Expr<'g>> {
        let count = tensors.len();
        if count < 2 {
            return Err(OpError::runtime(format!("multi_dot(): expected at least 2 tensors but got {count}")));
        }
        let mut chain = tensors;
        let (row, column) = (chain[0].rank()? == 1, chain[count - 1].rank()? == 1);
        if row {
            chain[0] = chain[0].unsqueeze(0);
        }
        if column {
            chain[count - 1] = chain[count - 1].unsqueeze(1);
        }
        let mut sizes = vec![chain[0].size(0)? as f64];
        for (i, tensor) in chain.iter().enumerate() {
            let rank = tensor.rank()?;
            if rank != 2 {
                return Err(OpError::runtime(format!("multi_dot(): tensor {i} must be 2D but got {rank}D")));
            }
            sizes.push(tensor.size(1)? as f64);
        }
        // The least cost of the product of matrices i to j, and where to split it: dynamic programming (Godbole 1973).
        let mut best = vec![vec![(0.0f64, 0usize); count]; count];
        for length in 1..count {
            for i in 0..count - length {
                let j = i + length;
                let cost = |k: usize| best[i][k].0 + best[k + 1][j].0 + sizes[i] * sizes[k + 1] * sizes[j + 1];
                let cut = (i..j).min_by(|a, b| cost(*a).total_cmp(&cost(*b))).unwrap_or(i);
                best[i][j] = (cost(cut), cut);
            }
        }
        fn product<'g>(chain: &[Expr<'g>], best: &[Vec<(f64, usize)>], i: usize, j: usize) -> Expr<'g> {
            if i == j {
                return chain[i];
            }
            let cut = best[i][j].1;
            product(chain, best, i, cut).matmul(product(chain, best, cut + 1, j))
        }
        let result = product(&chain, &best, 0, count - 1);
        let result = if row { result.squeeze(&[0]) } else { result };
        Ok(if column { result.squeeze(&[-1]) } else { result })
    }

    /// The product of several matrices: `linalg.multi_dot` under its older name.
    ///
    /// Example:
    ///     >>> gt.chain_matmul(gt.ones(2, 3), gt.ones(3, 4), gt.ones(4, 1)).shape
    ///     gt.Size([2, 1])
    [function().out().autocast(Autocast::Low)]
    fn chain_matmul(g, matrices: Operands<'g>) -> Result<Expr<'g>> {
        multi_dot(g, matrices.0)
    }

    /// The cross products of vectors of 3 elements along an axis.
    ///
    /// Example:
    ///     >>> gt.linalg.cross(gt.tensor([1.0, 0.0, 0.0]), gt.tensor([0.0, 1.0, 0.0]))
    ///     tensor([0., 0., 1.])
    [module("linalg").out().named("cross")]
    fn linalg_cross(g, input: Expr<'g>, other: Expr<'g>; dim: i64 = -1) -> Result<Expr<'g>> {
        cross(g, input, other, Some(dim))
    }

    /// The matrix product, `input @ other`.
    ///
    /// Args:
    ///     input: A vector, a matrix or a batch of matrices.
    ///     other: A vector, a matrix or a batch of matrices.
    ///
    /// Returns:
    ///     For two vectors their dot product; for a matrix and a vector, or a vector and a matrix, a vector; otherwise
    ///     matrices. All axes but the last two are batch axes and broadcast.
    ///
    /// Shape:
    ///     `(..., n, k) @ (..., k, m)` is `(..., n, m)`; `(k,) @ (k,)` is `()`.
    ///
    /// Raises:
    ///     RuntimeError: The inner sizes differ, or batch axes do not broadcast.
    ///
    /// Example:
    ///     >>> a = gt.tensor([[1.0, 2.0], [3.0, 4.0]])
    ///     >>> gt.matmul(a, gt.tensor([1.0, 1.0]))
    ///     tensor([3., 7.])
    ///     >>> (gt.ones(5, 2, 3) @ gt.ones(3, 4)).shape
    ///     gt.Size([5, 2, 4])
    [method().out().autocast(Autocast::Low)]
    fn matmul(g, input: Expr<'g>, other: Expr<'g>) -> Expr<'g> {
        input.matmul(other)
    }

    /// The matrix product, `input @ other`; see `gt.matmul`.
    [module("linalg").out().named("matmul").autocast(Autocast::Low)]
    fn linalg_matmul(g, input: Expr<'g>, other: Expr<'g>) -> Expr<'g> {
        input.matmul(other)
    }

    /// A view of the diagonals of matrices, by default in the last two axes.
    ///
    /// Example:
    ///     >>> gt.linalg.diagonal(gt.tensor([[1, 2], [3, 4]]))
    ///     tensor([1, 4])
    [module("linalg").view().named("diagonal")]
    fn linalg_diagonal(g, A: Expr<'g>; offset: i64 = 0, dim1: i64 = -2, dim2: i64 = -1) -> Expr<'g> {
        A.diagonal(offset, dim1, dim2)
    }

    /// The dot products of vectors along an axis.
    ///
    /// Args:
    ///     x: A tensor.
    ///     y: A tensor that broadcasts with `x`.
    ///     dim: The axis of the vectors.
    ///
    /// Example:
    ///     >>> gt.linalg.vecdot(gt.ones(2, 3), gt.tensor([1.0, 2.0, 3.0]))
    ///     tensor([6., 6.])
    [module("linalg").out()]
    fn vecdot(g, x: Expr<'g>, y: Expr<'g>; dim: i64 = -1) -> Expr<'g> {
        (x.conj() * y).sum(&[dim], false)
    }

    /// The dot products of vectors along the last axes, of each vector of one tensor with each of the other.
    ///
    /// Example:
    ///     >>> gt.inner(gt.tensor([[1.0, 2.0], [3.0, 4.0]]), gt.tensor([1.0, 1.0]))
    ///     tensor([3., 7.])
    [method().out()]
    fn inner(g, input: Expr<'g>, other: Expr<'g>) -> Result<Expr<'g>> {
        let (a, b) = (input.shape()?, other.shape()?);
        if a.rank() == 0 || b.rank() == 0 {
            return Ok(input * other);
        }
        if a.dims().last() != b.dims().last() {
            return Err(OpError::runtime(format!(
                "inner() the last dimension must match on both input tensors but got shapes {a} and {b}"
            )));
        }
        contract(input, other, &[-1], &[-1])
    }

    /// The contraction of two tensors over several axes.
    ///
    /// Args:
    ///     a: The first tensor.
    ///     b: The second tensor.
    ///     dims: The number of axes to sum over, the last of `a` with the first of `b`; or two lists of axes.
    ///
    /// Returns:
    ///     A tensor with the other axes of `a`, then those of `b`.
    ///
    /// Example:
    ///     >>> a, b = gt.ones(3, 4, 5), gt.ones(4, 3, 2)
    ///     >>> gt.tensordot(a, b, dims=([1, 0], [0, 1])).shape
    ///     gt.Size([5, 2])
    [function().out().autocast(Autocast::Low)]
    fn tensordot(g, a: Expr<'g>, b: Expr<'g>, dims: i64 = 2) -> Result<Expr<'g>> {
        let (first, second) = (a.rank()? as i64, b.rank()? as i64);
        if dims < 0 {
            return Err(OpError::runtime(format!("tensordot expects dims >= 0, but got dims={dims}")));
        }
        if dims > first.min(second) {
            return Err(OpError::runtime(format!(
                "tensordot expects dims < ndim_a or ndim_b, but got dims={dims} of tensors with {first} and {second}"
            )));
        }
        contract(a, b, &(first - dims..first).collect::<Vec<_>>(), &(0..dims).collect::<Vec<_>>())
    }

    /// The contraction over two lists of axes.
    [function().out().named("tensordot").autocast(Autocast::Low)]
    fn tensordot_axes(g, a: Expr<'g>, b: Expr<'g>, dims: &'g [Vec<i64>]) -> Result<Expr<'g>> {
        match dims {
            [left, right] => contract(a, b, left, right),
            _ => Err(OpError::runtime(format!("tensordot expects two lists of dims, but got {}", dims.len()))),
        }
    }

    /// The Kronecker product: each element of one tensor times the other tensor, as blocks.
    ///
    /// Raises:
    ///     NotImplementedError: A tensor has more than 4 axes.
    ///
    /// Example:
    ///     >>> gt.kron(gt.eye(2), gt.tensor([[1.0, 2.0]]))
    ///     tensor([[1., 2., 0., 0.],
    ///             [0., 0., 1., 2.]])
    [method().out()]
    fn kron(g, input: Expr<'g>, other: Expr<'g>) -> Result<Expr<'g>> {
        let rank = input.rank()?.max(other.rank()?);
        if rank > 4 {
            // The product needs two axes for each, and a tensor has at most 8.
            return Err(OpError::not_implemented(format!("kron is there for up to 4 dimensions, but got {rank}")));
        }
        let padded = |tensor: Expr<'g>| -> Result<Vec<i64>> {
            let sizes = tensor.sizes()?;
            Ok([vec![1; rank - sizes.len()], sizes].concat())
        };
        let (a, b) = (padded(input)?, padded(other)?);
        let outer: Vec<i64> = a.iter().flat_map(|size| [*size, 1]).collect();
        let inner: Vec<i64> = b.iter().flat_map(|size| [1, *size]).collect();
        let sizes: Vec<i64> = a.iter().zip(&b).map(|(m, n)| m * n).collect();
        Ok((input.reshape(&outer) * other.reshape(&inner)).reshape(&sizes))
    }

    /// The cross products of vectors of 3 elements.
    ///
    /// Args:
    ///     input: The first vectors.
    ///     other: The second vectors, which broadcast.
    ///     dim: The axis of the vectors; the first of size 3 if not given.
    ///
    /// Example:
    ///     >>> gt.cross(gt.tensor([1.0, 0.0, 0.0]), gt.tensor([0.0, 1.0, 0.0]))
    ///     tensor([0., 0., 1.])
    [method().out()]
    fn cross(g, input: Expr<'g>, other: Expr<'g>, dim: Option<i64> = None) -> Result<Expr<'g>> {
        let found = input.sizes()?.iter().position(|size| *size == 3);
        let dim = match (dim, found) {
            (Some(dim), _) => dim,
            (None, Some(axis)) => axis as i64,
            (None, None) => return Err(OpError::runtime("no dimension of size 3 in input")),
        };
        if input.rank()? != other.rank()? {
            return Err(OpError::runtime("linalg.cross: inputs must have the same number of dimensions."));
        }
        let (a, b) = (input.size(dim)?, other.size(dim)?);
        if a != 3 || b != 3 {
            return Err(OpError::runtime(format!(
                "linalg.cross: inputs dimension {dim} must have length 3. Got {a} and {b}"
            )));
        }
        let turned = |tensor: Expr<'g>, by: i64| {
            g.cat(&[tensor.narrow(dim, by, 3 - by), tensor.narrow(dim, 0, by)], dim)
        };
        Ok(turned(input, 1) * turned(other, 2) - turned(input, 2) * turned(other, 1))
    }
}

/// The contraction of two tensors over pairs of axes.
fn contract<'g>(mut a: Expr<'g>, mut b: Expr<'g>, left: &[i64], right: &[i64]) -> Result<Expr<'g>> {
    let (left, right) = (axes_of(a, left)?, axes_of(b, right)?);
    if left.len() != right.len() {
        return Err(OpError::runtime("both dimension lists should have same length"));
    }
    for (i, j) in left.iter().zip(&right) {
        let (m, n) = (a.size(*i as i64)?, b.size(*j as i64)?);
        if m == n {
            continue;
        }
        // An axis of size 1 broadcasts, so the other operand is summed over it first.
        if n == 1 {
            a = a.sum(&[*i as i64], true).to(a.dtype()?);
        } else if m == 1 {
            b = b.sum(&[*j as i64], true).to(b.dtype()?);
        } else {
            return Err(OpError::runtime(format!(
                "contracted dimensions need to match, but first has size {m} in dim {i} and second has size {n} in dim {j}"
            )));
        }
    }
    let (a_sizes, b_sizes) = (a.sizes()?, b.sizes()?);
    let rows: Vec<usize> = (0..a_sizes.len()).filter(|axis| !left.contains(axis)).collect();
    let columns: Vec<usize> = (0..b_sizes.len()).filter(|axis| !right.contains(axis)).collect();
    let product = |sizes: &[i64], axes: &[usize]| axes.iter().map(|axis| sizes[*axis]).product::<i64>();
    let order = |first: &[usize], second: &[usize]| -> Vec<i64> {
        first.iter().chain(second).map(|axis| *axis as i64).collect()
    };
    let summed = product(&a_sizes, &left);
    let first = a.permute(&order(&rows, &left)).reshape(&[product(&a_sizes, &rows), summed]);
    let second = b.permute(&order(&right, &columns)).reshape(&[summed, product(&b_sizes, &columns)]);
    let sizes: Vec<i64> =
        rows.iter().map(|axis| a_sizes[*axis]).chain(columns.iter().map(|axis| b_sizes[*axis])).collect();
    Ok(first.matmul(second).reshape(&sizes))
}
