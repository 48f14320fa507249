//! Tensors made of sizes and numbers.

use crate::common::{check_rank, filled};
use crate::declaration::{Sizes, functions};
use gt_ops::build;
use gt_ops::error::Result;
use gt_ops::expr::{Builder, Expr};
use gt_ops::forms::{function, method_only};
use gt_ops::{Arg, DType, Op, OpError, Scalar, Shape};

/// A tensor of another's shape, filled with one number.
fn filled_like<'g>(input: Expr<'g>, value: Scalar, dtype: Option<DType>) -> Result<Expr<'g>> {
    let meta = build::like(input.meta()?, dtype);
    Ok(input.builder().full(&meta.shape, value, meta.dtype))
}

/// Random numbers of given sizes.
fn drawn<'g>(g: &'g Builder<'g>, op: Op, bounds: &[Arg], sizes: &[i64], dtype: DType) -> Expr<'g> {
    g.run(|g| {
        let shape = build::shape_of(sizes)?;
        build::random(g, op, bounds, shape, dtype)
    })
}

/// Random numbers of another tensor's shape.
fn drawn_like<'g>(input: Expr<'g>, op: Op, bounds: &[Arg], dtype: Option<DType>) -> Result<Expr<'g>> {
    let meta = build::like(input.meta()?, dtype);
    Ok(input.builder().run(|g| build::random(g, op, bounds, meta.shape, meta.dtype)))
}

fn or_default(dtype: Option<DType>) -> DType {
    dtype.unwrap_or_else(DType::default_float)
}

/// The rows and columns of the elements of a matrix for which `inside` is true, as two rows.
fn indices_where<'g>(
    g: &'g Builder<'g>,
    [row, col]: [i64; 2],
    dtype: Option<DType>,
    inside: impl Fn(i64, i64) -> bool,
) -> Result<Expr<'g>> {
    if row < 0 || col < 0 {
        return Err(OpError::runtime(format!("row and col must be non-negative, got {row} and {col}")));
    }
    let all = (0..row).flat_map(|i| (0..col).map(move |j| (i, j))).filter(|(i, j)| inside(*i, *j));
    let (mut rows, columns): (Vec<i64>, Vec<i64>) = all.unzip();
    let count = rows.len() as i64;
    rows.extend(columns);
    Ok(g.ints(&rows, &[2, count]).to(dtype.unwrap_or(DType::I64)))
}

functions! {
    /// A tensor filled with zeros.
    ///
    /// Args:
    ///     size: The sizes, as arguments or as one sequence.
    ///     dtype: The dtype; the default dtype if not given.
    ///     device: A device, which has to exist; the daemon decides where the tensor lies.
    ///     requires_grad: Whether autograd records what is computed from it.
    ///
    /// Example:
    ///     >>> gt.zeros(2, 3)
    ///     tensor([[0., 0., 0.],
    ///             [0., 0., 0.]])
    [function().creation().out()]
    fn zeros(g, size: Sizes<'g>; dtype: Option<DType> = None) -> Expr<'g> {
        filled(g, &size, Scalar::Int(0), or_default(dtype))
    }

    /// A tensor filled with zeros, with the shape and, unless given, the dtype of another.
    ///
    /// Args:
    ///     input: The tensor whose shape is taken.
    ///     dtype: The dtype; that of the input if not given.
    ///     device: A device, which has to exist; the daemon decides where the tensor lies.
    ///     requires_grad: Whether autograd records what is computed from it.
    ///
    /// Example:
    ///     >>> gt.zeros_like(gt.tensor([[1, 2], [3, 4]]))
    ///     tensor([[0, 0],
    ///             [0, 0]])
    [function().creation()]
    fn zeros_like(g, input: Expr<'g>; dtype: Option<DType> = None) -> Result<Expr<'g>> {
        filled_like(input, Scalar::Int(0), dtype)
    }

    /// `gt.zeros` with the dtype of this tensor unless one is given.
    ///
    /// Example:
    ///     >>> gt.ones(1, dtype=gt.int64).new_zeros(2)
    ///     tensor([0, 0])
    [method_only().creation()]
    fn new_zeros(g, input: Expr<'g>, size: Sizes<'g>; dtype: Option<DType> = None) -> Result<Expr<'g>> {
        Ok(filled(g, &size, Scalar::Int(0), dtype.unwrap_or(input.dtype()?)))
    }

    /// A tensor filled with ones.
    ///
    /// Args:
    ///     size: The sizes, as arguments or as one sequence.
    ///     dtype: The dtype; the default dtype if not given.
    ///     device: A device, which has to exist; the daemon decides where the tensor lies.
    ///     requires_grad: Whether autograd records what is computed from it.
    ///
    /// Example:
    ///     >>> gt.ones(2, dtype=gt.int64)
    ///     tensor([1, 1])
    [function().creation().out()]
    fn ones(g, size: Sizes<'g>; dtype: Option<DType> = None) -> Expr<'g> {
        filled(g, &size, Scalar::Int(1), or_default(dtype))
    }

    /// A tensor filled with ones, with the shape and, unless given, the dtype of another.
    ///
    /// Args:
    ///     input: The tensor whose shape is taken.
    ///     dtype: The dtype; that of the input if not given.
    ///     device: A device, which has to exist; the daemon decides where the tensor lies.
    ///     requires_grad: Whether autograd records what is computed from it.
    ///
    /// Example:
    ///     >>> gt.ones_like(gt.tensor([1, 2]), dtype=gt.float32)
    ///     tensor([1., 1.])
    [function().creation()]
    fn ones_like(g, input: Expr<'g>; dtype: Option<DType> = None) -> Result<Expr<'g>> {
        filled_like(input, Scalar::Int(1), dtype)
    }

    /// `gt.ones` with the dtype of this tensor unless one is given.
    [method_only().creation()]
    fn new_ones(g, input: Expr<'g>, size: Sizes<'g>; dtype: Option<DType> = None) -> Result<Expr<'g>> {
        Ok(filled(g, &size, Scalar::Int(1), dtype.unwrap_or(input.dtype()?)))
    }

    /// A tensor to be written to later. It holds zeros: memory is never shown uncleared.
    ///
    /// Args:
    ///     size: The sizes, as arguments or as one sequence.
    ///     dtype: The dtype; the default dtype if not given.
    ///     device: A device, which has to exist; the daemon decides where the tensor lies.
    ///     requires_grad: Whether autograd records what is computed from it.
    ///
    /// Example:
    ///     >>> gt.empty(2, 3).shape
    ///     gt.Size([2, 3])
    [function().creation().out()]
    fn empty(g, size: Sizes<'g>; dtype: Option<DType> = None) -> Expr<'g> {
        filled(g, &size, Scalar::Int(0), or_default(dtype))
    }

    /// A tensor to be written to later, with the shape and, unless given, the dtype of another. It holds zeros.
    ///
    /// Args:
    ///     input: The tensor whose shape is taken.
    ///     dtype: The dtype; that of the input if not given.
    ///     device: A device, which has to exist; the daemon decides where the tensor lies.
    ///     requires_grad: Whether autograd records what is computed from it.
    ///
    /// Example:
    ///     >>> gt.empty_like(gt.tensor([1, 2])).shape
    ///     gt.Size([2])
    [function().creation()]
    fn empty_like(g, input: Expr<'g>; dtype: Option<DType> = None) -> Result<Expr<'g>> {
        filled_like(input, Scalar::Int(0), dtype)
    }

    /// `gt.empty` with the dtype of this tensor unless one is given.
    [method_only().creation()]
    fn new_empty(g, input: Expr<'g>, size: Sizes<'g>; dtype: Option<DType> = None) -> Result<Expr<'g>> {
        Ok(filled(g, &size, Scalar::Int(0), dtype.unwrap_or(input.dtype()?)))
    }

    /// A tensor filled with one number.
    ///
    /// Args:
    ///     size: The shape, a sequence.
    ///     fill_value: The number.
    ///     dtype: The dtype; that of the number if not given.
    ///     device: A device that the daemon must have; the daemon decides where the tensor is.
    ///     requires_grad: Whether autograd records what is computed from it.
    ///
    /// Example:
    ///     >>> gt.full((2, 2), 7)
    ///     tensor([[7, 7],
    ///             [7, 7]])
    [function().creation().out()]
    fn full(g, size: &'g [i64], fill_value: Scalar; dtype: Option<DType> = None) -> Expr<'g> {
        filled(g, size, fill_value, dtype.unwrap_or(fill_value.natural_dtype()))
    }

    /// A tensor filled with one number, with the shape and, unless given, the dtype of another.
    ///
    /// Example:
    ///     >>> gt.full_like(gt.zeros(3), 2)
    ///     tensor([2., 2., 2.])
    [function().creation()]
    fn full_like(g, input: Expr<'g>, fill_value: Scalar; dtype: Option<DType> = None) -> Result<Expr<'g>> {
        filled_like(input, fill_value, dtype)
    }

    /// `gt.full` with the dtype of this tensor unless one is given.
    [method_only().creation()]
    fn new_full(g, input: Expr<'g>, size: &'g [i64], fill_value: Scalar; dtype: Option<DType> = None)
        -> Result<Expr<'g>> {
        Ok(filled(g, size, fill_value, dtype.unwrap_or(input.dtype()?)))
    }

    /// Evenly spaced numbers of a half-open interval: `arange(end)`, `arange(start, end)` or `arange(start, end,
    /// step)`.
    ///
    /// Args:
    ///     start: The first number, 0 if not given.
    ///     end: The end of the interval, which is not included.
    ///     step: The distance between neighbours, 1 if not given.
    ///     dtype: The dtype; int64 if all three are integers, otherwise the default dtype.
    ///
    /// Returns:
    ///     A vector of ceil((end - start) / step) elements.
    ///
    /// Example:
    ///     >>> gt.arange(5)
    ///     tensor([0, 1, 2, 3, 4])
    ///     >>> gt.arange(1, 2, 0.25)
    ///     tensor([1.0000, 1.2500, 1.5000, 1.7500])
    [function().creation().out()]
    fn arange(g, end: Scalar; start: Scalar = Scalar::Int(0), step: Scalar = Scalar::Int(1),
        dtype: Option<DType> = None) -> Expr<'g> {
        g.run(|g| build::arange(g, start, end, step, dtype))
    }

    /// `arange` from a number on.
    [function().named("arange").creation().out()]
    fn arange_from(g, start: Scalar, end: Scalar, step: Scalar = Scalar::Int(1); dtype: Option<DType> = None)
        -> Expr<'g> {
        g.run(|g| build::arange(g, start, end, step, dtype))
    }

    /// Numbers from `start` to `end`, both included; deprecated in favour of `arange`, as in PyTorch.
    [function().creation().out()]
    fn range(g, start: f64, end: f64, step: f64 = 1.0; dtype: Option<DType> = None) -> Result<Expr<'g>> {
        g.warn(
            "torch.range is deprecated and will be removed in a future release because its behavior is inconsistent \
             with Python's range builtin. Instead, use torch.arange, which produces values in [start, end).",
        );
        if step == 0.0 {
            return Err(OpError::runtime("step must be nonzero"));
        }
        if (end - start) * step < 0.0 {
            return Err(OpError::runtime("upper bound and lower bound inconsistent with step sign"));
        }
        let dtype = or_default(dtype);
        if dtype.is_float() {
            let count = ((end - start) / step).floor() as i64 + 1;
            return Ok((g.arange(count, DType::F64) * step + start).to(dtype));
        }
        let (start, step) = (start.trunc(), step.trunc());
        if step == 0.0 {
            return Err(OpError::runtime("step must be nonzero"));
        }
        let count = ((end - start) / step).floor() as i64 + 1;
        Ok((g.arange(count, DType::I64) * step as i64 + start as i64).to(dtype))
    }

    /// `steps` evenly spaced numbers from `start` to `end`, both included.
    ///
    /// Args:
    ///     start: The first number.
    ///     end: The last.
    ///     steps: The number of elements.
    ///     dtype: The dtype; the default dtype if not given.
    ///
    /// Example:
    ///     >>> gt.linspace(0, 1, 5)
    ///     tensor([0.0000, 0.2500, 0.5000, 0.7500, 1.0000])
    [function().creation().out()]
    fn linspace(g, start: Scalar, end: Scalar, steps: i64; dtype: Option<DType> = None) -> Result<Expr<'g>> {
        let natural = if start.category().max(end.category()) > 2 { DType::default_complex() } else { or_default(None) };
        let dtype = dtype.unwrap_or(natural);
        if natural.is_complex() && !dtype.is_complex() {
            return Err(OpError::runtime(format!(
                "gt.linspace(): inferred dtype gt.{natural} can't be safely cast to passed dtype gt.{dtype}"
            )));
        }
        let line = |start, end, dtype| g.run(|g| build::linspace(g, start, end, steps, dtype));
        let ((first, first_im), (last, last_im)) = (start.parts(), end.parts());
        Ok(match dtype.is_complex() {
            true => g.complex(line(first, last, dtype.to_real()), line(first_im, last_im, dtype.to_real())),
            false => line(first, last, dtype),
        })
    }

    /// `steps` numbers from `base ** start` to `base ** end` whose logarithms are evenly spaced.
    ///
    /// Args:
    ///     start: The exponent of the first number.
    ///     end: The exponent of the last.
    ///     steps: The number of elements.
    ///     base: The base of the powers.
    ///     dtype: The dtype; the default dtype if not given.
    ///
    /// Example:
    ///     >>> gt.logspace(0, 3, 4)
    ///     tensor([   1.,   10.,  100., 1000.])
    [function().creation().out()]
    fn logspace(g, start: f64, end: f64, steps: i64, base: f64 = 10.0; dtype: Option<DType> = None) -> Expr<'g> {
        let dtype = or_default(dtype);
        // Integer dtypes truncate the exponents, as in PyTorch.
        let (first, last) = if dtype.is_float() { (start, end) } else { (start.trunc(), end.trunc()) };
        let exponents = g.run(|g| build::linspace(g, first, last, steps, DType::F64));
        g.full(&Shape::SCALAR, base, DType::F64).pow(exponents).to(dtype)
    }

    /// A matrix with ones on the diagonal and zeros elsewhere.
    ///
    /// Args:
    ///     n: The number of rows.
    ///     m: The number of columns; `n` if not given.
    ///     dtype: The dtype; the default dtype if not given.
    ///
    /// Example:
    ///     >>> gt.eye(2, 3)
    ///     tensor([[1., 0., 0.],
    ///             [0., 1., 0.]])
    [function().creation().out()]
    fn eye(g, n: i64, m: Option<i64> = None; dtype: Option<DType> = None) -> Expr<'g> {
        g.run(|g| build::eye(g, n, m.unwrap_or(n), or_default(dtype)))
    }

    /// The indices of the lower triangle of a matrix: row indices and column indices.
    ///
    /// Args:
    ///     row: The number of rows.
    ///     col: The number of columns.
    ///     offset: The diagonal up to which elements belong to the triangle; 0 is the main one.
    ///     dtype: The dtype, int64 if not given.
    ///
    /// Example:
    ///     >>> gt.tril_indices(3, 3)
    ///     tensor([[0, 1, 1, 2, 2, 2],
    ///             [0, 0, 1, 0, 1, 2]])
    [function().creation()]
    fn tril_indices(g, row: i64, col: i64, offset: i64 = 0; dtype: Option<DType> = None) -> Result<Expr<'g>> {
        indices_where(g, [row, col], dtype, |i, j| j <= i + offset)
    }

    /// The indices of the upper triangle of a matrix: row indices and column indices.
    ///
    /// Args:
    ///     row: The number of rows.
    ///     col: The number of columns.
    ///     offset: The diagonal from which elements belong to the triangle; 0 is the main one.
    ///     dtype: The dtype, int64 if not given.
    ///
    /// Example:
    ///     >>> gt.triu_indices(2, 3, 1)
    ///     tensor([[0, 0, 1],
    ///             [1, 2, 2]])
    [function().creation()]
    fn triu_indices(g, row: i64, col: i64, offset: i64 = 0; dtype: Option<DType> = None) -> Result<Expr<'g>> {
        indices_where(g, [row, col], dtype, |i, j| j >= i + offset)
    }

    /// The Vandermonde matrix of a vector: a column for each power of its elements.
    ///
    /// Args:
    ///     x: A vector.
    ///     N: The number of columns; the length of `x` if not given.
    ///     increasing: Whether powers increase from left to right.
    ///
    /// Example:
    ///     >>> gt.vander(gt.tensor([1, 2, 3]))
    ///     tensor([[1, 1, 1],
    ///             [4, 2, 1],
    ///             [9, 3, 1]])
    [function()]
    fn vander(g, x: Expr<'g>, N: Option<i64> = None, increasing: bool = false) -> Result<Expr<'g>> {
        check_rank("vander", "x", x, 1)?;
        let count = N.map_or_else(|| x.size(0), Ok)?;
        if count < 0 {
            return Err(OpError::runtime("N must be non-negative."));
        }
        let powers = g.arange(count, DType::I64);
        Ok(x.unsqueeze(1).pow(if increasing { powers } else { powers * -1i64 + (count - 1) }))
    }

    /// Random numbers, uniform over [0, 1).
    ///
    /// Args:
    ///     size: The sizes, as arguments or as one sequence.
    ///     dtype: The dtype; the default dtype if not given.
    ///     device: A device, which has to exist; the daemon decides where the tensor lies.
    ///     generator: The generator to draw from; the default one if not given.
    ///     requires_grad: Whether autograd records what is computed from it.
    ///
    /// Example:
    ///     >>> x = gt.rand(100, 2)
    ///     >>> bool(((0 <= x) & (x < 1)).all())
    ///     True
    [function().creation().random().out()]
    fn rand(g, size: Sizes<'g>; dtype: Option<DType> = None) -> Expr<'g> {
        drawn(g, Op::Rand, &[], &size, or_default(dtype))
    }

    /// Random numbers, uniform over [0, 1), with the shape and, unless given, the dtype of another tensor.
    ///
    /// Args:
    ///     input: The tensor whose shape is taken.
    ///     dtype: The dtype; that of the input if not given.
    ///     device: A device, which has to exist; the daemon decides where the tensor lies.
    ///     requires_grad: Whether autograd records what is computed from it.
    ///
    /// Example:
    ///     >>> gt.rand_like(gt.zeros(2, 3)).shape
    ///     gt.Size([2, 3])
    [function().creation().random()]
    fn rand_like(g, input: Expr<'g>; dtype: Option<DType> = None) -> Result<Expr<'g>> {
        drawn_like(input, Op::Rand, &[], dtype)
    }

    /// Random numbers from the normal distribution with mean 0 and variance 1.
    ///
    /// Args:
    ///     size: The sizes, as arguments or as one sequence.
    ///     dtype: The dtype; the default dtype if not given.
    ///     device: A device, which has to exist; the daemon decides where the tensor lies.
    ///     generator: The generator to draw from; the default one if not given.
    ///     requires_grad: Whether autograd records what is computed from it.
    ///
    /// Example:
    ///     >>> gt.randn(2, 3).shape
    ///     gt.Size([2, 3])
    [function().creation().random().out()]
    fn randn(g, size: Sizes<'g>; dtype: Option<DType> = None) -> Expr<'g> {
        drawn(g, Op::Randn, &[], &size, or_default(dtype))
    }

    /// Random numbers of the standard normal distribution, with the shape and, unless given, the dtype of another.
    ///
    /// Args:
    ///     input: The tensor whose shape is taken.
    ///     dtype: The dtype; that of the input if not given.
    ///     device: A device, which has to exist; the daemon decides where the tensor lies.
    ///     requires_grad: Whether autograd records what is computed from it.
    ///
    /// Example:
    ///     >>> x = gt.zeros(2, 3)
    ///     >>> noisy = x + 0.1 * gt.randn_like(x)
    ///     >>> noisy.shape
    ///     gt.Size([2, 3])
    [function().creation().random()]
    fn randn_like(g, input: Expr<'g>; dtype: Option<DType> = None) -> Result<Expr<'g>> {
        drawn_like(input, Op::Randn, &[], dtype)
    }

    /// Random integers, uniform over `low <= x < high`: `randint(high, size)` or `randint(low, high, size)`.
    ///
    /// Args:
    ///     low: The smallest number, 0 if not given.
    ///     high: The upper bound, which is not included.
    ///     size: The shape, a sequence.
    ///     dtype: The dtype, int64 if not given.
    ///     generator: The generator to draw from; the default one if not given.
    ///
    /// Example:
    ///     >>> x = gt.randint(10, (1000,))
    ///     >>> x.min().item(), x.max().item()
    ///     (0, 9)
    [function().creation().random().out()]
    fn randint(g, high: i64, size: &'g [i64]; dtype: Option<DType> = None) -> Expr<'g> {
        drawn(g, Op::Randint, &[0i64.into(), high.into()], size, dtype.unwrap_or(DType::I64))
    }

    /// `randint` from a number on.
    [function().named("randint").creation().random().out()]
    fn randint_from(g, low: i64, high: i64, size: &'g [i64]; dtype: Option<DType> = None) -> Expr<'g> {
        drawn(g, Op::Randint, &[low.into(), high.into()], size, dtype.unwrap_or(DType::I64))
    }

    /// Random integers, uniform over `low <= x < high`, with the shape and, unless given, the dtype of another tensor.
    ///
    /// Example:
    ///     >>> gt.randint_like(gt.zeros(2, 3), 10).shape
    ///     gt.Size([2, 3])
    [function().creation().random()]
    fn randint_like(g, input: Expr<'g>, high: i64; dtype: Option<DType> = None) -> Result<Expr<'g>> {
        drawn_like(input, Op::Randint, &[0i64.into(), high.into()], dtype)
    }

    /// `randint_like` without bounds, which is an error.
    [function().named("randint_like").creation().random()]
    fn randint_like_unbounded(g, input: Expr<'g>; dtype: Option<DType> = None) -> Result<Expr<'g>> {
        Err(OpError::type_("randint_like() takes one or two bounds"))
    }

    /// `randint_like` from a number on.
    [function().named("randint_like").creation().random()]
    fn randint_like_from(g, input: Expr<'g>, low: i64, high: i64; dtype: Option<DType> = None) -> Result<Expr<'g>> {
        drawn_like(input, Op::Randint, &[low.into(), high.into()], dtype)
    }
}
