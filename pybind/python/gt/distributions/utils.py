"""Helpers for distributions, under PyTorch's path: broadcasting, and conversions between probabilities and logits."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any

from gt import _absent
from gt import _core as gt
from gt._gt import Tensor, set_grad_enabled

__all__ = [
    "broadcast_all",
    "clamp_probs",
    "lazy_property",
    "logits_to_probs",
    "probs_to_logits",
    "tril_matrix_to_vec",
    "vec_to_tril_matrix",
]

__getattr__ = _absent.getter(__name__)


def broadcast_all(*values: Any) -> tuple[Tensor, ...]:
    """Numbers and tensors as tensors of one shape; numbers take the dtype of the first floating tensor."""
    wrong = [type(v).__name__ for v in values if not isinstance(v, Tensor | int | float)]
    if wrong:
        raise ValueError(f"Input arguments must all be instances of Number or gt.Tensor, but got {', '.join(wrong)}")
    given = [v for v in values if isinstance(v, Tensor)]
    dtype = next((v.dtype for v in given if v.dtype.is_floating_point), None)
    shape = given[0].shape if given else ()
    is_even = all(v.shape == shape for v in given)
    tensors = [v if isinstance(v, Tensor) else gt.full(shape if is_even else (), float(v), dtype=dtype) for v in values]
    return tuple(tensors if is_even else gt.broadcast_tensors(*tensors))


def _standard_normal(shape: Any, dtype: Any, device: Any) -> Tensor:
    return gt.randn(tuple(shape), dtype=dtype, device=device)


def positive_rand(shape: tuple[int, ...], dtype: Any) -> Tensor:
    """Uniform random numbers in (0, 1), whose logarithms are finite and negative."""
    return gt.rand(shape, dtype=dtype).clamp(min=1e-7 if dtype == gt.float16 else 1e-38)


def _sum_rightmost(value: Tensor, dim: int) -> Tensor:
    """Sums the last `dim` axes."""
    return value.sum(tuple(range(-dim, 0))) if dim else value


def check_tensor(name: str, value: object) -> None:
    """Raises a TypeError unless the parameter of a distribution is a tensor."""
    if not isinstance(value, Tensor):
        raise TypeError(f"`{name}` parameter must be a Tensor, but got {type(value).__name__}: use gt.tensor")


def _gram(triangle: Tensor) -> Tensor:
    """The matrices of which these are the Cholesky factors."""
    return triangle @ triangle.mT


def clamp_probs(probs: Tensor) -> Tensor:
    """Probabilities clamped to [eps, 1 - eps], where eps is the dtype's machine epsilon."""
    eps = gt.finfo(probs.dtype).eps
    return probs.clamp(eps, 1 - eps)


def probs_to_logits(probs: Tensor, is_binary: bool = False) -> Tensor:
    """Logits of probabilities: `log(p)`, or the log odds `log(p / (1 - p))` if `is_binary`."""
    clamped = clamp_probs(probs)
    return clamped.log() - (-clamped).log1p() if is_binary else clamped.log()


def logits_to_probs(logits: Tensor, is_binary: bool = False) -> Tensor:
    """Probabilities of logits: a softmax along the last axis, or a sigmoid if `is_binary`."""
    return logits.sigmoid() if is_binary else logits.softmax(-1)


class lazy_property:  # noqa: N801 (PyTorch's name)
    """A property that is computed when it is first read, and kept."""

    def __init__(self, wrapped: Callable[[Any], Any]) -> None:
        self.wrapped = wrapped
        update_wrapper(self, wrapped)  # type: ignore[arg-type]

    def __get__(self, instance: Any, obj_type: Any = None) -> Any:
        if instance is None:
            return self
        previous = set_grad_enabled(True)
        try:
            value = instance.__dict__[self.wrapped.__name__] = self.wrapped(instance)
        finally:
            set_grad_enabled(previous)
        return value


def tril_matrix_to_vec(mat: Tensor, diag: int = 0) -> Tensor:
    """The elements of matrices on and below a diagonal, row by row, as vectors."""
    size = mat.shape[-1]
    if not -size <= diag < size:
        raise ValueError(f"diag ({diag}) provided is outside [{-size}, {size - 1}].")
    rows, columns = gt.tril_indices(size, size, diag)
    return mat[..., rows, columns]


def vec_to_tril_matrix(vec: Tensor, diag: int = 0) -> Tensor:
    """Lower triangular matrices with the elements of vectors on and below a diagonal, row by row."""
    count = vec.shape[-1]
    size = (-(1 + 2 * diag) + ((1 + 2 * diag) ** 2 + 8 * count + 4 * abs(diag) * (diag + 1)) ** 0.5) / 2
    if not round(size) - size == 0:
        raise ValueError(
            f"The size of last dimension is {count} which cannot be expressed as the lower triangular part of a "
            "square D x D matrix."
        )
    n = int(size)
    rows, columns = gt.tril_indices(n, n, diag)
    mat = gt.zeros(*vec.shape[:-1], n, n, dtype=vec.dtype)
    mat[..., rows, columns] = vec
    return mat
