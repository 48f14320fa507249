"""Creation functions of the standard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gt import _core as gt
from gt._gt import Tensor, dtype

__all__ = [
    "arange", "asarray", "empty", "empty_like", "eye", "from_dlpack", "full", "full_like", "linspace", "meshgrid",
    "ones", "ones_like", "tril", "triu", "zeros", "zeros_like",
]  # fmt: skip

Shape = int | Sequence[int]


def asarray(obj: Any, /, *, dtype: dtype | None = None, device: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor of numbers, an array or another tensor."""
    return gt.asarray(obj, dtype=dtype, device=device, copy=copy)


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """Another library's array, copied by the DLPack protocol; of a tensor, the tensor itself unless `copy` is true."""
    if isinstance(x, Tensor):
        return gt.asarray(x, device=device, copy=copy)
    if copy is False:
        raise BufferError("from_dlpack(copy=False): a tensor's elements are in the daemon: they are copied there")
    return gt.from_dlpack(x).to(device=device)


def arange(
    start: float, /, stop: float | None = None, step: float = 1, *, dtype: dtype | None = None, device: Any = None
) -> Tensor:
    """Evenly spaced numbers over `[start, stop)`; empty if `stop` lies on the other side of `start`."""
    start, stop = (0, start) if stop is None else (start, stop)
    if (stop - start) * step <= 0:
        kind = gt.int64 if all(isinstance(x, int) for x in (start, stop, step)) else gt.get_default_dtype()
        return gt.empty(0, dtype=dtype or kind, device=device)
    return gt.arange(start, stop, step, dtype=dtype, device=device)


def linspace(
    start: float,
    stop: float,
    /,
    num: int,
    *,
    dtype: dtype | None = None,
    device: Any = None,
    endpoint: bool = True,
) -> Tensor:
    """`num` evenly spaced numbers from `start` to `stop`, which `endpoint` includes."""
    if endpoint:
        return gt.linspace(start, stop, num, dtype=dtype, device=device)
    return gt.linspace(start, stop, num + 1, dtype=dtype, device=device)[:-1]


def empty(shape: Shape, *, dtype: dtype | None = None, device: Any = None) -> Tensor:
    """A tensor to be written to later."""
    return gt.empty(shape, dtype=dtype, device=device)


def zeros(shape: Shape, *, dtype: dtype | None = None, device: Any = None) -> Tensor:
    """A tensor filled with zeros."""
    return gt.zeros(shape, dtype=dtype, device=device)


def ones(shape: Shape, *, dtype: dtype | None = None, device: Any = None) -> Tensor:
    """A tensor filled with ones."""
    return gt.ones(shape, dtype=dtype, device=device)


def full(shape: Shape, fill_value: float, *, dtype: dtype | None = None, device: Any = None) -> Tensor:
    """A tensor filled with one number."""
    return gt.full((shape,) if isinstance(shape, int) else shape, fill_value, dtype=dtype, device=device)


def empty_like(x: Tensor, /, *, dtype: dtype | None = None, device: Any = None) -> Tensor:
    """A tensor of another's shape, to be written to later."""
    return gt.empty_like(x, dtype=dtype, device=device)


def zeros_like(x: Tensor, /, *, dtype: dtype | None = None, device: Any = None) -> Tensor:
    """A tensor of another's shape, filled with zeros."""
    return gt.zeros_like(x, dtype=dtype, device=device)


def ones_like(x: Tensor, /, *, dtype: dtype | None = None, device: Any = None) -> Tensor:
    """A tensor of another's shape, filled with ones."""
    return gt.ones_like(x, dtype=dtype, device=device)


def full_like(x: Tensor, /, fill_value: float, *, dtype: dtype | None = None, device: Any = None) -> Tensor:
    """A tensor of another's shape, filled with one number."""
    return gt.full_like(x, fill_value, dtype=dtype, device=device)


def eye(
    n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: dtype | None = None, device: Any = None
) -> Tensor:
    """A matrix with ones on a diagonal, `k` above the main one, and zeros elsewhere."""
    n_cols = n_rows if n_cols is None else n_cols
    if k == 0:
        return gt.eye(n_rows, n_cols, dtype=dtype, device=device)
    if not -n_rows < k < n_cols:
        return gt.zeros((n_rows, n_cols), dtype=dtype, device=device)
    rows, columns = gt.arange(n_rows).unsqueeze(1), gt.arange(n_cols)
    return (columns - rows == k).to(device=device, dtype=dtype or gt.get_default_dtype())


def tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    """The lower triangles of matrices: elements above the diagonal `k` become zero."""
    return gt.tril(x, k)


def triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    """The upper triangles of matrices: elements below the diagonal `k` become zero."""
    return gt.triu(x, k)


def meshgrid(*arrays: Tensor, indexing: str = "xy") -> list[Tensor]:
    """Coordinate grids of vectors, one for each."""
    return list(gt.meshgrid(*arrays, indexing=indexing))
