"""Checks of arguments that several composites share."""

from __future__ import annotations

from collections.abc import Sequence

from gt._gt import Tensor


def axis_of(input: Tensor, dim: int) -> int:
    """`dim` as a non-negative axis; a tensor without axes counts as having one.

    Raises:
        IndexError: The tensor has no such axis.
    """
    rank = max(input.ndim, 1)
    if not -rank <= dim < rank:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but got {dim})")
    return dim % rank


def axes_of(input: Tensor, dims: int | Sequence[int]) -> list[int]:
    return [axis_of(input, dim) for dim in ([dims] if isinstance(dims, int) else dims)]


def check_rank(name: str, **tensors: tuple[Tensor, int]) -> None:
    for operand, (t, rank) in tensors.items():
        if t.ndim != rank:
            raise RuntimeError(f"{name}: expected {operand} to be {rank}D, but got {t.ndim}D, of size {list(t.shape)}")


def check_floating(name: str, t: Tensor) -> None:
    if not t.is_floating_point():
        raise NotImplementedError(f"{name} is not there for {t.dtype}: use floating-point tensors")
