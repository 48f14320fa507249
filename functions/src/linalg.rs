//! Inverses, determinants, linear equations, Cholesky factors and powers of matrices.
//!
//! The functions fetch the elements, compute on the host (`dense.rs`) and upload the results; their gradients are
//! composed of other operations.

use crate::common::axes_of;
use crate::complex_matrices::{adjoint, columns_to_complex, columns_to_real, to_complex, to_real};
use crate::declaration::functions;
use crate::dense::{self, ELIMINATED_MAX, HostMatrices, MatrixElement, PackedLu, RealElement, Triangle};
use crate::masks::{tril, triu};
use faer::c64;
use gt_ops::error::{ErrorKind, OpError, Result};
use gt_ops::expr::{Builder, Expr, GradientRule};
use gt_ops::forms::{method, module};
use gt_ops::{DType, Meta, Shape, build};

// Helpers, which `decompositions.rs` and `factored.rs` use too ------------------------------------------------------

/// Checks that the argument is a matrix of float32 or float64, and square if that is required. Returns the sizes of
/// the batch axes, the rows and the columns.
pub(crate) fn check<'g>(name: &str, matrix: Expr<'g>, square: bool) -> Result<(Vec<i64>, i64, i64)> {
    let dtype = matrix.dtype()?;
    if dtype.is_complex() {
        return Err(OpError::not_implemented(format!(
            "linalg.{name}: this function has no complex matrices yet; inv, solve, det, slogdet, cholesky, qr, svd, \
             svdvals, eigh, eig, pinv and matrix_rank have. Got {}",
            dtype.scalar_type_name()
        )));
    }
    check_either(name, matrix, square)
}

/// As [`check`], but the matrix may be complex.
pub(crate) fn check_either<'g>(name: &str, matrix: Expr<'g>, square: bool) -> Result<(Vec<i64>, i64, i64)> {
    let (dtype, mut sizes) = (matrix.dtype()?, matrix.sizes()?);
    if !matches!(dtype.to_real(), DType::F32 | DType::F64) || !dtype.is_inexact() {
        let kind = dtype.scalar_type_name();
        return Err(if dtype.is_float() {
            OpError::runtime(format!("linalg.{name}: Low precision dtypes not supported. Got {kind}"))
        } else {
            OpError::not_implemented(format!(
                "linalg.{name}: Expected a floating point or complex tensor as input. Got {kind}"
            ))
        });
    }
    let (Some(columns), Some(rows)) = (sizes.pop(), sizes.pop()) else {
        return Err(OpError::runtime(format!("linalg.{name}: The input tensor A must have at least 2 dimensions.")));
    };
    if square && rows != columns {
        return Err(OpError::runtime(format!(
            "linalg.{name}: A must be batches of square matrices, but they are {rows} by {columns} matrices"
        )));
    }
    Ok((sizes, rows, columns))
}

/// The error of a matrix for which the algorithm of a function has no result.
pub(crate) fn failure(name: &str, reason: &str) -> OpError {
    OpError::new(ErrorKind::LinAlg, format!("linalg.{name}: {reason}"))
}

/// The matrices of the last two axes, in the dtype of `T`. Waits for the elements.
pub(crate) fn matrices<T: MatrixElement>(tensor: Expr<'_>) -> Result<HostMatrices<T>> {
    matrices_of(tensor, HostMatrices::of_bytes)
}

/// As [`matrices`], by a constructor of batches of a count, rows and columns.
fn matrices_of<T: MatrixElement>(
    tensor: Expr<'_>,
    constructor: fn(usize, usize, usize, &[u8]) -> HostMatrices<T>,
) -> Result<HostMatrices<T>> {
    let shape = tensor.shape()?;
    let [batch @ .., rows, columns] = shape.dims() else {
        return Err(OpError::runtime("a batch of matrices needs at least 2 axes"));
    };
    let builder = tensor.builder();
    let val = builder.finish(tensor.detach().to(T::DTYPE))?;
    let bytes = builder.with_graph(|g| g.fetch(val))?;
    Ok(constructor(batch.iter().product(), *rows, *columns, &bytes))
}

/// Calls a generic function of [`crate::dense::RealElement`] numbers with the type of a real dtype.
macro_rules! by_dtype {
    ($dtype:expr, $function:ident($($argument:expr),* $(,)?)) => {
        match $dtype {
            DType::F32 => $function::<f32>($($argument),*),
            _ => $function::<f64>($($argument),*),
        }
    };
}
pub(crate) use by_dtype;

/// A tensor of the little-endian bytes of numbers `T`, in a dtype.
fn upload_bytes<'g, T: MatrixElement>(g: &'g Builder<'g>, bytes: &[u8], sizes: &[i64], dtype: DType) -> Expr<'g> {
    g.run(|g| {
        let val = g.upload(Meta::new(build::shape_of(sizes)?, T::DTYPE), bytes)?;
        build::cast(g, val, dtype)
    })
}

/// A tensor of numbers in row-major order.
pub(crate) fn upload_numbers<'g, T: MatrixElement>(
    g: &'g Builder<'g>,
    numbers: &[T],
    sizes: &[i64],
    dtype: DType,
) -> Expr<'g> {
    upload_bytes::<T>(g, &dense::bytes_of(numbers), sizes, dtype)
}

/// A tensor of matrices, of a batch with these sizes.
pub(crate) fn upload<'g, T: MatrixElement>(
    g: &'g Builder<'g>,
    batch: &[i64],
    all: HostMatrices<T>,
    dtype: DType,
) -> Expr<'g> {
    let sizes = [batch, &[all.rows as i64, all.columns as i64]].concat();
    upload_bytes::<T>(g, &all.to_bytes(), &sizes, dtype)
}

/// The gradient of a result: zeros if no gradient flows to it.
pub(crate) fn or_zeros<'g>(g: &'g Builder<'g>, grad: Option<Expr<'g>>, result: Expr<'g>) -> Result<Expr<'g>> {
    grad.map_or_else(|| Ok(g.zeros(result.meta()?)), Ok)
}

/// An identity matrix.
pub(crate) fn eye<'g>(g: &'g Builder<'g>, rows: i64, columns: i64, dtype: DType) -> Expr<'g> {
    g.run(|g| build::eye(g, rows, columns, dtype))
}

/// Matrices of which only the lower triangle is read, as whole symmetric ones.
pub(crate) fn symmetric(lower: Expr<'_>) -> Result<Expr<'_>> {
    let g = lower.builder();
    Ok(tril(g, lower, 0)? + tril(g, lower, -1)?.transposed())
}

/// For each element of a shape in row-major order, the place of the element of `own`, which broadcasts to it.
fn broadcast_places(shape: &Shape, own: &[usize]) -> Vec<usize> {
    let leading = shape.rank() - own.len();
    let place = |mut index: usize| {
        let (mut place, mut stride) = (0, 1);
        for (axis, size) in shape.dims().iter().enumerate().rev() {
            let at = index % size;
            index /= size;
            if axis >= leading && own[axis - leading] != 1 {
                place += at * stride;
                stride *= own[axis - leading];
            }
        }
        place
    };
    (0..shape.numel()).map(place).collect()
}

/// The places of the matrices of two batches that broadcast, for each matrix of the broadcast batch.
pub(crate) fn broadcast_pairs(batch: &Shape, a: &[usize], b: &[usize]) -> Vec<(usize, usize)> {
    broadcast_places(batch, a).into_iter().zip(broadcast_places(batch, b)).collect()
}

/// The algorithm for a linear system.
#[derive(Clone, Copy, PartialEq, Eq)]
enum System {
    /// An LU decomposition.
    General,
    /// An LU decomposition of the transpose, whose columns are the rows that a tensor has one after the other: so does
    /// PyTorch.
    Transposed,
    /// Back substitution: the matrix is an upper triangle.
    Upper,
    /// Forward substitution: the matrix is a lower triangle.
    Lower,
}

impl System {
    fn name(self) -> &'static str {
        match self {
            System::General | System::Transposed => "solve",
            System::Upper | System::Lower => "solve_triangular",
        }
    }

    /// The solution for each pair of a matrix, or its transpose, and right-hand sides; `None` if a matrix is singular.
    fn solve<T: MatrixElement>(
        self,
        a: HostMatrices<T>,
        right: &HostMatrices<T>,
        pairs: &[(usize, usize)],
    ) -> Option<HostMatrices<T>> {
        let size = a.rows;
        let elements = pairs.iter().flat_map(|(_, b)| right.one(*b)).copied().collect();
        let mut x = HostMatrices { count: pairs.len(), elements, ..*right };
        let parts = pairs.iter().map(|(a, _)| *a).zip(x.elements.chunks_exact_mut((size * right.columns).max(1)));
        let triangle = match self {
            System::General | System::Transposed => {
                let factors = PackedLu::new(a);
                if factors.is_singular() {
                    return None;
                }
                parts.for_each(|(i, x)| match self {
                    System::Transposed => factors.solve_transposed(i, x),
                    _ => factors.solve(i, x),
                });
                return Some(x);
            }
            System::Upper => Triangle::Upper,
            System::Lower => Triangle::Lower,
        };
        if (0..a.count).any(|i| a.one(i).iter().step_by(size + 1).any(|x| *x == T::zero_impl())) {
            return None;
        }
        parts.for_each(|(i, x)| dense::substitute(a.one(i), size, triangle, x));
        Some(x)
    }
}

/// The solution of `a @ x = b` for matrices `b`; batch axes broadcast.
fn solution<'g>(g: &'g Builder<'g>, a: Expr<'g>, b: Expr<'g>, system: System) -> Result<Expr<'g>> {
    let (a_shape, b_shape, dtype) = (a.shape()?, b.shape()?, a.dtype()?);
    let ([a_batch @ .., _, _], [b_batch @ .., _, _]) = (a_shape.dims(), b_shape.dims()) else {
        return Err(OpError::runtime(format!(
            "linalg.{}: The input tensor B must have at least 2 dimensions.",
            system.name()
        )));
    };
    let batch = Shape::new(a_batch)?.broadcast(&Shape::new(b_batch)?)?;
    let pairs = broadcast_pairs(&batch, a_batch, b_batch);
    let sizes: Vec<i64> = batch.dims().iter().map(|size| *size as i64).collect();
    fn solved<'g, T: RealElement>(
        [a, b]: [Expr<'g>; 2],
        system: System,
        sizes: &[i64],
        pairs: &[(usize, usize)],
    ) -> Result<Expr<'g>> {
        let right = matrices(b)?;
        let found = if system == System::General && right.rows > ELIMINATED_MAX {
            System::Transposed.solve::<T>(matrices_of(a, HostMatrices::transposes_of_bytes)?, &right, pairs)
        } else {
            system.solve::<T>(matrices(a)?, &right, pairs)
        };
        let found =
            found.ok_or_else(|| failure(system.name(), "The solver failed because the input matrix is singular."))?;
        Ok(upload(a.builder(), sizes, found, T::DTYPE))
    }
    let result = by_dtype!(dtype, solved([a, b], system, &sizes, &pairs))?;
    let rule: GradientRule = match system {
        System::General | System::Transposed => |g, values, grads| solution_gradient(g, values, grads, System::General),
        // The gradient solves systems with the transpose.
        System::Upper => |g, values, grads| solution_gradient(g, values, grads, System::Lower),
        System::Lower => |g, values, grads| solution_gradient(g, values, grads, System::Upper),
    };
    let [solution] = g.with_gradient("linalg_solve", &[a, b], [result], rule)?;
    Ok(solution)
}

/// The solution of `a @ x = b` for square matrices `a`, complex ones included.
fn general_solution<'g>(g: &'g Builder<'g>, a: Expr<'g>, b: Expr<'g>) -> Result<Expr<'g>> {
    if a.dtype()?.is_complex() {
        let real = solution(g, to_real(g, a)?, columns_to_real(g, b)?, System::General)?;
        return columns_to_complex(g, real);
    }
    solution(g, a, b, System::General)
}

fn solution_gradient<'r>(
    g: &'r Builder<'r>,
    values: &[Expr<'r>],
    grads: &[Option<Expr<'r>>],
    transposed: System,
) -> Result<Vec<Option<Expr<'r>>>> {
    let [a, _, x] = *values else { return Ok(Vec::new()) };
    let Some(grad) = grads[0] else { return Ok(vec![None, None]) };
    let of_b = solution(g, a.transposed(), grad, transposed)?;
    Ok(vec![Some(-of_b.matmul(x.transposed())), Some(of_b)])
}

/// The gradient of an inverse.
fn inverse_gradient<'r>(
    _: &'r Builder<'r>,
    values: &[Expr<'r>],
    grads: &[Option<Expr<'r>>],
) -> Result<Vec<Option<Expr<'r>>>> {
    let inverse = values[1].transposed();
    Ok(vec![grads[0].map(|grad| -inverse.matmul(grad).matmul(inverse))])
}

/// The gradient of a determinant, `conj(det(a)) * inv(a).mH`.
fn determinant_gradient<'r>(
    g: &'r Builder<'r>,
    values: &[Expr<'r>],
    grads: &[Option<Expr<'r>>],
) -> Result<Vec<Option<Expr<'r>>>> {
    let Some(grad) = grads[0] else { return Ok(vec![None]) };
    let determinant = if values[1].dtype()?.is_complex() { values[1].conj() } else { values[1] };
    let scale = (grad * determinant).unsqueeze(-1).unsqueeze(-1);
    Ok(vec![Some(scale * adjoint(inv(g, values[0])?)?)])
}

/// The gradient of the logarithm of a determinant, `inv(a).mH`. The direction of a complex determinant turns with the
/// imaginary part of the logarithm; the sign of a real one does not change.
fn log_determinant_gradient<'r>(
    g: &'r Builder<'r>,
    values: &[Expr<'r>],
    grads: &[Option<Expr<'r>>],
) -> Result<Vec<Option<Expr<'r>>>> {
    let mut scale = grads[1];
    if let (true, Some(grad)) = (values[1].dtype()?.is_complex(), grads[0]) {
        let turned = (grad * values[1].conj()).imag();
        let grown = scale.unwrap_or_else(|| turned * 0.0);
        scale = Some(g.complex(grown, turned));
    }
    let Some(scale) = scale else { return Ok(vec![None]) };
    Ok(vec![Some(scale.unsqueeze(-1).unsqueeze(-1) * adjoint(inv(g, values[0])?)?)])
}

/// The gradient of the Cholesky decomposition (Murray 2016), symmetrized.
fn cholesky_gradient<'r>(
    g: &'r Builder<'r>,
    values: &[Expr<'r>],
    grads: &[Option<Expr<'r>>],
) -> Result<Vec<Option<Expr<'r>>>> {
    let Some(grad) = grads[0] else { return Ok(vec![None]) };
    let factor = values[1];
    let inner = symmetric(factor.transposed().matmul(grad))? / 2.0;
    let half = linalg_solve_triangular(g, factor.transposed(), inner, true, true, false)?;
    Ok(vec![Some(linalg_solve_triangular(g, factor, half, false, false, false)?)])
}

/// The result for each matrix of a batch, NaN where there is none, and LAPACK's `info` for each, 0 for success.
pub(crate) fn with_info<'g>(
    g: &'g Builder<'g>,
    a: Expr<'g>,
    check_errors: bool,
    compute: impl Fn(Expr<'g>) -> Result<Expr<'g>>,
    faults: impl Fn(Expr<'g>) -> Result<Vec<usize>>,
) -> Result<[Expr<'g>; 2]> {
    match compute(a) {
        Err(error) if error.kind == ErrorKind::LinAlg && !check_errors => {}
        result => {
            let result = result?;
            let shape = a.shape()?;
            let batch = Shape::new(&shape.dims()[..shape.rank() - 2])?;
            return Ok([result, g.zeros(Meta::new(batch, DType::I32))]);
        }
    }
    let sizes = a.sizes()?;
    let (batch, size) = (&sizes[..sizes.len() - 2], sizes[sizes.len() - 1]);
    let complex = a.dtype()?.is_complex();
    let real = if complex { to_real(g, a)? } else { a };
    // Each column of a complex matrix is two of its real one.
    let faults: Vec<i64> =
        faults(real)?.into_iter().map(|fault| fault.div_ceil(1 + usize::from(complex)) as i64).collect();
    let info = g.ints(&faults, batch).to(DType::I32);
    let good = info.eq(0i64);
    let result = compute(good.unsqueeze(-1).unsqueeze(-1).where_(a, eye(g, size, size, a.dtype()?)))?;
    let ones = vec![1; result.rank()? - batch.len()];
    Ok([good.reshape(&[batch, &ones].concat()).where_(result, f64::NAN), info])
}

/// For each real matrix the first column without a pivot, counted from 1, or 0.
fn first_columns(a: Expr<'_>) -> Result<Vec<usize>> {
    fn faults<T: RealElement>(a: Expr<'_>) -> Result<Vec<usize>> {
        Ok(PackedLu::<T>::new(matrices(a)?).first_zero_pivots())
    }
    by_dtype!(a.dtype()?, faults(a))
}

/// The inverses of real matrices.
fn inverses<'g, T: RealElement>(a: Expr<'g>, batch: &[i64]) -> Result<Expr<'g>> {
    const SINGULAR: &str = "The inversion could not be completed because the input matrix is singular.";
    let inverses = dense::inverses::<T>(matrices(a)?).ok_or_else(|| failure("inv", SINGULAR))?;
    Ok(upload(a.builder(), batch, inverses, T::DTYPE))
}

/// The lower Cholesky factors of real matrices, and for each the order of the first minor that is not
/// positive-definite, or 0.
fn cholesky_factors<T: RealElement>(a: Expr<'_>) -> Result<(HostMatrices<T>, Vec<usize>)> {
    let mut factors = matrices(a)?;
    let faults = dense::cholesky(&mut factors);
    Ok((factors, faults))
}

/// The determinants of matrices.
fn determinants<'g, T: MatrixElement>(a: Expr<'g>, batch: &[i64]) -> Result<Expr<'g>> {
    let numbers: Vec<c64> = PackedLu::<T>::new(matrices(a)?).determinants().collect();
    Ok(upload_as(a, &numbers, batch))
}

/// The directions of determinants, and the logarithms of their absolute values.
fn log_determinants<'g, T: MatrixElement>(a: Expr<'g>, batch: &[i64]) -> Result<[Expr<'g>; 2]> {
    let (directions, logarithms): (Vec<c64>, Vec<f64>) = PackedLu::<T>::new(matrices(a)?).log_determinants().unzip();
    Ok([upload_as(a, &directions, batch), upload_numbers(a.builder(), &logarithms, batch, a.dtype()?.to_real())])
}

/// A tensor of numbers in the dtype of `like`; their real parts, if that is real.
fn upload_as<'g>(like: Expr<'g>, numbers: &[c64], sizes: &[i64]) -> Expr<'g> {
    match like.dtype() {
        Ok(dtype) if dtype.is_complex() => upload_numbers(like.builder(), numbers, sizes, dtype),
        Ok(dtype) => {
            let real: Vec<f64> = numbers.iter().map(|z| z.re).collect();
            upload_numbers(like.builder(), &real, sizes, dtype)
        }
        Err(error) => like.builder().fail(error),
    }
}

functions! {
    /// The inverse of square matrices. To solve linear equations, `gt.linalg.solve` is faster and more accurate.
    ///
    /// Args:
    ///     A: Square matrices, `(*, n, n)`.
    ///
    /// Returns:
    ///     A tensor of the shape of `A`.
    ///
    /// Raises:
    ///     LinAlgError: A matrix is singular.
    ///
    /// Example:
    ///     >>> gt.linalg.inv(gt.tensor([[2.0, 0.0], [0.0, 4.0]]))
    ///     tensor([[0.5000, 0.0000],
    ///             [0.0000, 0.2500]])
    [module("linalg").out()]
    fn inv(g, A: Expr<'g>) -> Result<Expr<'g>> {
        let (batch, _, _) = check_either("inv", A, true)?;
        if A.dtype()?.is_complex() {
            return to_complex(g, inv(g, to_real(g, A)?)?);
        }
        let result = by_dtype!(A.dtype()?, inverses(A, &batch))?;
        let [inverse] = g.with_gradient("linalg_inv", &[A], [result], inverse_gradient)?;
        Ok(inverse)
    }

    /// `inv` that reports the first column without a pivot in `info` instead of raising.
    [module("linalg").out().results(&["inverse", "info"])]
    fn inv_ex(g, A: Expr<'g>; check_errors: bool = false) -> Result<[Expr<'g>; 2]> {
        with_info(g, A, check_errors, |a| inv(g, a), first_columns)
    }

    /// The inverse of matrices: `gt.linalg.inv`.
    ///
    /// Example:
    ///     >>> gt.inverse(gt.tensor([[2.0, 0.0], [0.0, 4.0]]))
    ///     tensor([[0.5000, 0.0000],
    ///             [0.0000, 0.2500]])
    [method().out()]
    fn inverse(g, input: Expr<'g>) -> Result<Expr<'g>> {
        inv(g, input)
    }

    /// The determinant of square matrices.
    ///
    /// The gradient, `conj(det(A)) * inv(A).mH`, is computed by the inverse: `backward` raises `LinAlgError` if a
    /// matrix is singular.
    ///
    /// Args:
    ///     A: Square matrices, `(*, n, n)`.
    ///
    /// Returns:
    ///     A tensor of shape `(*)`.
    ///
    /// Example:
    ///     >>> gt.linalg.det(gt.tensor([[2.0, 0.0], [0.0, 4.0]]))
    ///     tensor(8.)
    [module("linalg").out().named("det")]
    fn linalg_det(g, A: Expr<'g>) -> Result<Expr<'g>> {
        let ((batch, _, _), dtype) = (check_either("det", A, true)?, A.dtype()?);
        let result = match dtype.is_complex() {
            true => determinants::<c64>(A, &batch)?,
            false => by_dtype!(dtype, determinants(A, &batch))?,
        };
        let [determinant] = g.with_gradient("linalg_det", &[A], [result], determinant_gradient)?;
        Ok(determinant)
    }

    /// The determinant of matrices: `gt.linalg.det`.
    ///
    /// Example:
    ///     >>> gt.det(gt.tensor([[1.0, 2.0], [3.0, 5.0]])).round(decimals=4)
    ///     tensor(-1.)
    [method()]
    fn det(g, input: Expr<'g>) -> Result<Expr<'g>> {
        linalg_det(g, input)
    }

    /// The sign of the determinant, and the natural logarithm of its absolute value.
    ///
    /// For large matrices the determinant itself overflows or underflows; its logarithm does not.
    ///
    /// Args:
    ///     A: Square matrices, `(*, n, n)`.
    ///
    /// Returns:
    ///     A named tuple `(sign, logabsdet)` with `det(A) = sign * exp(logabsdet)`: 0 and -inf for a singular matrix.
    ///
    /// Example:
    ///     >>> sign, logabsdet = gt.linalg.slogdet(gt.tensor([[2.0, 0.0], [0.0, -4.0]]))
    ///     >>> sign, logabsdet
    ///     (tensor(-1.), tensor(2.0794))
    [module("linalg").out().named("slogdet").results(&["sign", "logabsdet"])]
    fn linalg_slogdet(g, A: Expr<'g>) -> Result<[Expr<'g>; 2]> {
        let ((batch, _, _), dtype) = (check_either("slogdet", A, true)?, A.dtype()?);
        let results = match dtype.is_complex() {
            true => log_determinants::<c64>(A, &batch)?,
            false => by_dtype!(dtype, log_determinants(A, &batch))?,
        };
        g.with_gradient("linalg_slogdet", &[A], results, log_determinant_gradient)
    }

    /// The sign and the logarithm of the absolute value of the determinant: `gt.linalg.slogdet`.
    [method().out().results(&["sign", "logabsdet"])]
    fn slogdet(g, input: Expr<'g>) -> Result<[Expr<'g>; 2]> {
        linalg_slogdet(g, input)
    }

    /// The logarithm of the determinant of matrices; NaN where it is negative.
    ///
    /// Example:
    ///     >>> gt.logdet(gt.eye(2) * 2)
    ///     tensor(1.3863)
    [method()]
    fn logdet(g, input: Expr<'g>) -> Result<Expr<'g>> {
        let [sign, logarithm] = linalg_slogdet(g, input)?;
        if sign.dtype()?.is_complex() {
            return Ok(sign.log() + logarithm);
        }
        Ok(sign.lt(0.0).where_(f64::NAN, logarithm))
    }

    /// The solution X of the linear equations `A @ X = B`, or of `X @ A = B` if `left` is false.
    ///
    /// This is faster and more accurate than `gt.linalg.inv(A) @ B`. The decomposition is LU with partial pivoting.
    ///
    /// Args:
    ///     A: Square matrices, `(*, n, n)`.
    ///     B: The right-hand sides: a vector `(n,)`, vectors `(*, n)` if `*` is that of `A`, or matrices `(*, n, k)`;
    ///         `(*, k, n)` if `left` is false. Its dtype is that of `A`.
    ///     left: Whether `A` stands on the left of the unknown.
    ///
    /// Returns:
    ///     A tensor of the shape of `B`; batch axes of `A` and `B` broadcast.
    ///
    /// Raises:
    ///     LinAlgError: A matrix is singular.
    ///     RuntimeError: The shapes or dtypes do not fit.
    ///
    /// Example:
    ///     >>> A = gt.tensor([[2.0, 1.0], [0.0, 4.0]])
    ///     >>> gt.linalg.solve(A, gt.tensor([3.0, 4.0]))
    ///     tensor([1., 1.])
    ///     >>> gt.linalg.solve(A, gt.tensor([[3.0, 2.0], [4.0, 0.0]]))  # a column for each right-hand side
    ///     tensor([[1., 1.],
    ///             [1., 0.]])
    [module("linalg").out().named("solve")]
    fn linalg_solve(g, A: Expr<'g>, B: Expr<'g>; left: bool = true) -> Result<Expr<'g>> {
        let (batch, size, _) = check_either("solve", A, true)?;
        let (dtype, other) = (A.dtype()?, B.dtype()?);
        if dtype != other {
            return Err(OpError::runtime(format!(
                "linalg.solve: Expected A and B to have the same dtype, but found A of type {dtype} and B of type \
                 {other} instead"
            )));
        }
        let sizes = B.sizes()?;
        if sizes.len() == 1 || sizes == [&batch[..], &[size]].concat() {
            if !left {
                return Err(OpError::runtime(
                    "linalg.solve: Vector broadcasting of the left hand side is not supported for left=False.",
                ));
            }
            check_equation("solve", size, &[sizes[sizes.len() - 1], 1], true)?;
            return Ok(general_solution(g, A, B.unsqueeze(-1))?.squeeze(&[-1]));
        }
        check_equation("solve", size, &sizes, left)?;
        if left {
            return general_solution(g, A, B);
        }
        Ok(general_solution(g, A.transposed(), B.transposed())?.transposed())
    }

    /// `solve` that reports the first column without a pivot in `info` instead of raising.
    [module("linalg").out().results(&["result", "info"])]
    fn solve_ex(g, A: Expr<'g>, B: Expr<'g>; left: bool = true, check_errors: bool = false) -> Result<[Expr<'g>; 2]> {
        with_info(g, A, check_errors, |a| linalg_solve(g, a, B, left), first_columns)
    }

    /// The solution X of `A @ X = B` for triangular matrices A, or of `X @ A = B` if `left` is false.
    ///
    /// Args:
    ///     A: Square matrices, `(*, n, n)`. Only one triangle is used; the other elements count as zeros.
    ///     B: The right-hand sides, matrices `(*, n, k)`; `(*, k, n)` if `left` is false.
    ///     upper: Whether the upper triangle is used, rather than the lower one.
    ///     left: Whether `A` stands on the left of the unknown.
    ///     unitriangular: Whether the elements on the diagonal count as ones, whatever they are.
    ///
    /// Returns:
    ///     A tensor of the shape of `B`; batch axes of `A` and `B` broadcast.
    ///
    /// Raises:
    ///     LinAlgError: A matrix is singular.
    ///
    /// Example:
    ///     >>> A = gt.tensor([[2.0, 1.0], [0.0, 4.0]])
    ///     >>> gt.linalg.solve_triangular(A, gt.tensor([[4.0], [8.0]]), upper=True)
    ///     tensor([[1.],
    ///             [2.]])
    [module("linalg").out().named("solve_triangular")]
    fn linalg_solve_triangular(g, A: Expr<'g>, B: Expr<'g>; upper: bool, left: bool = true, unitriangular: bool = false)
        -> Result<Expr<'g>> {
        let (_, size, _) = check("solve_triangular", A, true)?;
        check_equation("solve_triangular", size, &B.sizes()?, left)?;
        if !left {
            let turned =
                linalg_solve_triangular(g, A.transposed(), B.transposed(), !upper, true, unitriangular)?;
            return Ok(turned.transposed());
        }
        let offset = i64::from(unitriangular);
        let part = if upper { triu(g, A, offset)? } else { tril(g, A, -offset)? };
        let part = if unitriangular { part + eye(g, size, size, A.dtype()?) } else { part };
        solution(g, part, B, if upper { System::Upper } else { System::Lower })
    }

    /// The solution X of `A @ X = b` for triangular A, and a copy of A: `gt.linalg.solve_triangular`.
    [method().out().results(&["solution", "cloned_coefficient"])]
    fn triangular_solve(g, b: Expr<'g>, A: Expr<'g>, upper: bool = true, transpose: bool = false,
        unitriangular: bool = false) -> Result<[Expr<'g>; 2]> {
        let (matrix, part) = if transpose { (A.transposed(), !upper) } else { (A, upper) };
        let solution = linalg_solve_triangular(g, matrix, b, part, true, unitriangular)?;
        let (sizes, own) = (solution.sizes()?, A.sizes()?);
        let copied = [&sizes[..sizes.len() - 2], &own[own.len() - 2..]].concat();
        Ok([solution, A.expand(&copied) * 1.0])
    }

    /// The inverse of a tensor as a linear map: `tensordot(tensorinv(A, ind), A, ind)` is the identity.
    ///
    /// Args:
    ///     A: A tensor whose first `ind` sizes have the same product as its other sizes.
    ///     ind: The number of leading axes that are the rows of the matrix; the other axes are its columns.
    ///
    /// Returns:
    ///     A tensor of the shape `A.shape[ind:] + A.shape[:ind]`.
    ///
    /// Example:
    ///     >>> gt.linalg.tensorinv(gt.eye(4).reshape(4, 2, 2), ind=1).shape
    ///     gt.Size([2, 2, 4])
    [module("linalg").out()]
    fn tensorinv(g, A: Expr<'g>, ind: i64 = 2) -> Result<Expr<'g>> {
        if ind <= 0 {
            return Err(OpError::runtime("Expected a strictly positive integer for 'ind'"));
        }
        let sizes = A.sizes()?;
        let (first, second) = sizes.split_at((ind as usize).min(sizes.len()));
        let (rows, columns): (i64, i64) = (first.iter().product(), second.iter().product());
        if rows != columns {
            return Err(OpError::runtime(format!(
                "Expected self to satisfy the requirement prod(self.shape[ind:]) == prod(self.shape[:ind]), but got \
                 {columns} != {rows}"
            )));
        }
        Ok(inv(g, A.reshape(&[rows, columns]))?.reshape(&[second, first].concat()))
    }

    /// The solution X of `tensordot(A, X, X.ndim) = B`.
    ///
    /// Args:
    ///     A: A tensor whose shape is that of `B` followed by that of X; both have the same number of elements.
    ///     B: The right-hand side.
    ///     dims: The axes of `A` that belong to X, if they are not at its end: they are moved there first.
    ///
    /// Returns:
    ///     A tensor of the shape `A.shape[B.ndim:]`.
    ///
    /// Example:
    ///     >>> A = 2 * gt.eye(6).reshape(2, 3, 6)
    ///     >>> gt.linalg.tensorsolve(A, gt.ones(2, 3))
    ///     tensor([0.5000, 0.5000, 0.5000, 0.5000, 0.5000, 0.5000])
    [module("linalg").out()]
    fn tensorsolve(g, A: Expr<'g>, B: Expr<'g>, dims: Option<&'g [i64]> = None) -> Result<Expr<'g>> {
        let moved = axes_of(A, dims.unwrap_or(&[]))?;
        let order = (0..A.rank()?).filter(|axis| !moved.contains(axis)).chain(moved.iter().copied());
        let order: Vec<i64> = order.map(|axis| axis as i64).collect();
        let ordered = if moved.is_empty() { A } else { A.permute(&order) };
        let (sizes, count) = (ordered.sizes()?, B.numel()? as i64);
        let unknown = &sizes[B.rank()?.min(sizes.len())..];
        if unknown.iter().product::<i64>() != count {
            return Err(OpError::runtime(format!(
                "Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == \
                 prod(self.shape[:other.ndim]), but got {} != {count}",
                unknown.iter().product::<i64>()
            )));
        }
        Ok(linalg_solve(g, ordered.reshape(&[count, count]), B.reshape(&[count]), true)?.reshape(unknown))
    }

    /// The Cholesky factor of symmetric positive-definite matrices: the lower triangular L with `A = L @ L.mT`.
    ///
    /// Args:
    ///     A: Symmetric or Hermitian matrices, `(*, n, n)`. Only the lower triangle is read.
    ///     upper: Whether the upper triangular `L.mH` is returned instead.
    ///
    /// Returns:
    ///     A tensor of the shape of `A`.
    ///
    /// Raises:
    ///     LinAlgError: A matrix is not positive-definite.
    ///
    /// Example:
    ///     >>> gt.linalg.cholesky(gt.tensor([[4.0, 2.0], [2.0, 5.0]]))
    ///     tensor([[2., 0.],
    ///             [1., 2.]])
    [module("linalg").out().named("cholesky")]
    fn linalg_cholesky(g, A: Expr<'g>; upper: bool = false) -> Result<Expr<'g>> {
        let (batch, _, _) = check_either("cholesky", A, true)?;
        if A.dtype()?.is_complex() {
            let factor = to_complex(g, linalg_cholesky(g, to_real(g, A)?, false)?)?;
            return if upper { adjoint(factor) } else { Ok(factor) };
        }
        fn factor<'g, T: RealElement>(a: Expr<'g>, batch: &[i64]) -> Result<Expr<'g>> {
            let (factors, faults) = cholesky_factors::<T>(a)?;
            if faults.iter().any(|fault| *fault > 0) {
                let reason = "The factorization could not be completed because the input is not positive-definite.";
                return Err(failure("cholesky", reason));
            }
            Ok(upload(a.builder(), batch, factors, T::DTYPE))
        }
        let result = by_dtype!(A.dtype()?, factor(A, &batch))?;
        let [factor] = g.with_gradient("linalg_cholesky", &[A], [result], cholesky_gradient)?;
        Ok(if upper { factor.transposed() } else { factor })
    }

    /// `cholesky` whose `info` has the order of the first minor that is not positive-definite; it does not raise.
    [module("linalg").out().results(&["L", "info"])]
    fn cholesky_ex(g, A: Expr<'g>; upper: bool = false, check_errors: bool = false) -> Result<[Expr<'g>; 2]> {
        fn first_minors<T: RealElement>(a: Expr<'_>) -> Result<Vec<usize>> {
            Ok(cholesky_factors::<T>(a)?.1)
        }
        with_info(g, A, check_errors, |a| linalg_cholesky(g, a, upper), |a| by_dtype!(a.dtype()?, first_minors(a)))
    }

    /// The Cholesky factor of symmetric positive-definite matrices: `gt.linalg.cholesky`.
    ///
    /// Example:
    ///     >>> gt.cholesky(gt.tensor([[4.0, 2.0], [2.0, 5.0]]))
    ///     tensor([[2., 0.],
    ///             [1., 2.]])
    [method().out()]
    fn cholesky(g, input: Expr<'g>, upper: bool = false) -> Result<Expr<'g>> {
        linalg_cholesky(g, input, upper)
    }

    /// The solution X of `A @ X = input`, from the Cholesky factor of A.
    ///
    /// Args:
    ///     input: The right-hand sides.
    ///     input2: The factor that `cholesky` made of A.
    ///     upper: Whether the factor is the upper one.
    ///
    /// Example:
    ///     >>> a = gt.tensor([[4.0, 2.0], [2.0, 5.0]])
    ///     >>> gt.cholesky_solve(gt.tensor([[8.0], [9.0]]), gt.cholesky(a))
    ///     tensor([[1.3750],
    ///             [1.2500]])
    [method().out()]
    fn cholesky_solve(g, input: Expr<'g>, input2: Expr<'g>, upper: bool = false) -> Result<Expr<'g>> {
        let lower = if upper { adjoint(input2)? } else { input2 };
        // Only one triangle is read; the gradient is that of the whole matrix, as in PyTorch.
        let lower = lower - (lower - tril(g, lower, 0)?).detach();
        linalg_solve(g, lower.matmul(adjoint(lower)?), input, true)
    }

    /// The inverse of a matrix, from its Cholesky factor.
    [method().out()]
    fn cholesky_inverse(g, input: Expr<'g>, upper: bool = false) -> Result<Expr<'g>> {
        let size = input.size(-1)?;
        cholesky_solve(g, eye(g, size, size, input.dtype()?), input, upper)
    }

    /// The `n`-th power of square matrices; negative powers are those of the inverse.
    ///
    /// Example:
    ///     >>> gt.linalg.matrix_power(gt.tensor([[1.0, 1.0], [0.0, 1.0]]), 3)
    ///     tensor([[1., 3.],
    ///             [0., 1.]])
    [method().out()]
    fn matrix_power(g, input: Expr<'g>, n: i64) -> Result<Expr<'g>> {
        let sizes = input.sizes()?;
        let square = matches!(sizes[..], [.., rows, columns] if rows == columns);
        if !square {
            let shown: Vec<String> = sizes.iter().rev().take(2).rev().map(i64::to_string).collect();
            return Err(OpError::runtime(format!(
                "linalg.matrix_power: A must be batches of square matrices, but they are {} matrices",
                shown.join(" by ")
            )));
        }
        if n < 0 {
            return matrix_power(g, inv(g, input)?, n.saturating_neg());
        }
        let (mut power, mut rest, mut result) = (input, n, None::<Expr<'g>>);
        while rest > 0 {
            if rest & 1 == 1 {
                result = Some(result.map_or(power, |result| result.matmul(power)));
            }
            rest >>= 1;
            if rest > 0 {
                power = power.matmul(power);
            }
        }
        let size = sizes[sizes.len() - 1];
        Ok(match result {
            // The result is another tensor than the input.
            Some(result) if n == 1 => result * 1i64,
            Some(result) => result,
            // The identity depends on the input formally, so that there is a gradient: zeros.
            None => {
                let none = g.full(&Shape::SCALAR, false, DType::Bool);
                none.where_(input, eye(g, size, size, input.dtype()?))
            }
        })
    }

    /// The `n`-th power of square matrices: `gt.matrix_power`.
    [module("linalg").out().named("matrix_power")]
    fn linalg_matrix_power(g, input: Expr<'g>, n: i64) -> Result<Expr<'g>> {
        matrix_power(g, input, n)
    }
}

/// Checks the sizes of the right-hand sides of `A @ X = B`, or of `X @ A = B`.
fn check_equation(name: &str, size: i64, right: &[i64], left: bool) -> Result<()> {
    let [.., rows, columns] = *right else {
        return Err(OpError::runtime(format!("linalg.{name}: The input tensor B must have at least 2 dimensions.")));
    };
    let equation = if left { "AX = B" } else { "XA = B" };
    if size != if left { rows } else { columns } {
        return Err(OpError::runtime(format!(
            "linalg.{name}: Incompatible shapes of A and B for the equation {equation} ({size}x{size} and \
             {rows}x{columns})"
        )));
    }
    Ok(())
}
