"""Reductions composed of others: norms, moments, covariances."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gt import _gt
from gt._composites.common import axes_of, check_floating
from gt._gt import Tensor
from gt._types import MinMax


def vector_norm(input: Tensor, p: float, dim: int | Sequence[int] | None = None, keepdim: bool = False) -> Tensor:
    """The vector norm of order `p`, a number, inf or -inf, of all elements or along axes."""
    check_norm_dtype(input)
    if p == math.inf:
        return input.abs().amax(dim, keepdim=keepdim)
    if p == -math.inf:
        return input.abs().amin(dim, keepdim=keepdim)
    if p == 0:
        return (input != 0).to(input.dtype).sum(dim, keepdim=keepdim)
    if p == 1:
        return input.abs().sum(dim, keepdim=keepdim)
    if p == 2:
        return input._norm(dim, keepdim)
    return root(_power(input.abs(), p).sum(dim, keepdim=keepdim), p)


def check_norm_dtype(input: Tensor) -> None:
    """Checks that the dtype is a floating-point one.

    Raises:
        RuntimeError: It is not.
    """
    if not input.is_floating_point():
        raise RuntimeError(f"linalg.vector_norm: Expected a floating point tensor as input. Got {input.dtype}")


def _power(input: Tensor, p: float) -> Tensor:
    """`input ** p` with gradient 0 at 0, where for `p < 1` the derivative is infinite."""
    if p >= 1:
        return input**p
    zero = input == 0
    return _gt.where(zero, 0.0 if p > 0 else math.inf, _gt.where(zero, 1.0, input) ** p)


def root(total: Tensor, p: float) -> Tensor:
    """`total ** (1 / p)` with gradient 0 at 0, where the derivative is infinite, as in PyTorch."""
    zero = total == (0 if p > 0 else math.inf)
    filled = _gt.where(zero, 1.0, total)
    return _gt.where(zero, 0.0, filled.sqrt() if p == 2 else filled ** (1 / p))


def std_mean(
    input: Tensor,
    dim: int | Sequence[int] | bool | None = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> tuple[Tensor, Tensor]:
    """The standard deviation and the mean of all elements, or along axes: a pair of `std` and `mean`.

    Example:
        >>> deviation, mean = gt.std_mean(gt.tensor([1.0, 2.0, 3.0]))
        >>> deviation, mean
        (tensor(1.), tensor(2.))
    """
    axes = None if isinstance(dim, bool) else dim
    return input.std(dim, unbiased, keepdim, correction=correction), input.mean(axes, keepdim)


def nansum(
    input: Tensor, dim: int | Sequence[int] | None = None, keepdim: bool = False, *, dtype: _gt.dtype | None = None
) -> Tensor:
    """The sum of all elements, or along axes, with NaN counted as 0.

    Example:
        >>> gt.nansum(gt.tensor([1.0, float("nan"), 2.0]))
        tensor(3.)
    """
    return _gt.where(input.isnan(), _gt.zeros((), dtype=input.dtype), input).sum(dim, keepdim, dtype=dtype)


def nanmean(
    input: Tensor, dim: int | Sequence[int] | None = None, keepdim: bool = False, *, dtype: _gt.dtype | None = None
) -> Tensor:
    """The mean of the elements that are not NaN, of all or along axes.

    Example:
        >>> gt.nanmean(gt.tensor([1.0, float("nan"), 2.0]))
        tensor(1.5000)
    """
    check_floating("nanmean", input)
    return nansum(input, dim, keepdim, dtype=dtype) / (~input.isnan()).sum(dim, keepdim)


def aminmax(input: Tensor, *, dim: int | None = None, keepdim: bool = False) -> MinMax:
    """The smallest and the largest element, of all or along an axis: a pair `(min, max)`.

    Example:
        >>> smallest, largest = gt.aminmax(gt.tensor([3.0, 1.0, 2.0]))
        >>> smallest, largest
        (tensor(1.), tensor(3.))
    """
    return MinMax(input.amin(dim, keepdim=keepdim), input.amax(dim, keepdim=keepdim))


def sum_to_size(input: Tensor, *size: int | Sequence[int]) -> Tensor:
    """The sum along the axes that broadcasting `size` to the tensor's shape repeats: the inverse of `expand`.

    Example:
        >>> gt.ones(2, 3).sum_to_size(1, 3)
        tensor([[2., 2., 2.]])
    """
    wanted = list(size[0]) if len(size) == 1 and not isinstance(size[0], int) else list(size)
    lead = input.ndim - len(wanted)
    if lead < 0 or any(new not in (1, own) for own, new in zip(input.shape[lead:], wanted, strict=True)):
        raise RuntimeError(f"size {{{wanted}}} is not expandable to size {{{list(input.shape)}}}.")
    axes = [*range(lead), *(lead + i for i, new in enumerate(wanted) if new == 1 and input.shape[lead + i] != 1)]
    return input.sum(axes, keepdim=True).reshape(wanted) if axes or not input.ndim else input


def cov(
    input: Tensor, *, correction: int = 1, fweights: Tensor | None = None, aweights: Tensor | None = None
) -> Tensor:
    """The covariance matrix of variables.

    Args:
        input: A matrix with a row for each variable and a column for each observation; a vector is one variable.
        correction: The degrees of freedom that the divisor loses: 1 by default (Bessel's correction).
        fweights: How often each observation counts: a vector of integers.
        aweights: The weight of each observation: a vector of floats.

    Example:
        >>> gt.cov(gt.tensor([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]]))
        tensor([[ 1., -1.],
                [-1.,  1.]])
    """
    if input.ndim > 2:
        raise RuntimeError(
            f"cov(): expected input to have two or fewer dimensions but got an input with {input.ndim} dimensions"
        )
    rows = input.reshape(1, -1) if input.ndim < 2 else input
    rows = rows if rows.is_floating_point() else rows.float()
    observations = rows.shape[1]
    for name, kind, given in (("fweights", "integral", fweights), ("aweights", "floating point", aweights)):
        if given is None:
            continue
        if given.ndim > 1:
            raise RuntimeError(
                f"cov(): expected {name} to have one or fewer dimensions but got {name} with {given.ndim} dimensions"
            )
        if given.is_floating_point() != (name == "aweights"):
            raise RuntimeError(f"cov(): expected {name} to have {kind} dtype but got {name} with {given.dtype} dtype")
        if given.numel() != observations:
            raise RuntimeError(
                f"cov(): expected {name} to have the same numel as there are observations in the input but got "
                f"{given.numel()} != {observations}"
            )
        if bool((given < 0).any()):
            raise RuntimeError(f"cov(): {name} cannot be negative")
    if fweights is None and aweights is None:
        centred = rows - rows.mean(1, keepdim=True)
        return (centred @ centred.mT / max(observations - correction, 0)).squeeze()
    weights = fweights if aweights is None else aweights if fweights is None else fweights * aweights
    total = weights.sum()
    centred = rows - (rows * weights).sum(1, keepdim=True) / total
    lost = correction if aweights is None else correction * (weights * aweights).sum() / total
    return ((centred * weights) @ centred.mT / (total - lost).clamp(min=0)).squeeze()


def corrcoef(input: Tensor) -> Tensor:
    """The matrix of Pearson's correlation coefficients of variables, a row each.

    Example:
        >>> gt.corrcoef(gt.tensor([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]]))
        tensor([[ 1., -1.],
                [-1.,  1.]])
    """
    matrix = cov(input)
    if matrix.ndim == 0:
        return matrix / matrix
    spread = matrix.diagonal().sqrt()
    return (matrix / spread.unsqueeze(1) / spread).clamp(-1, 1)


METHODS = (
    nansum,
    nanmean,
    aminmax,
    cov,
    corrcoef,
)
TENSOR_METHODS = (sum_to_size,)
IN_PLACE = ()
FUNCTIONS = (std_mean,)
