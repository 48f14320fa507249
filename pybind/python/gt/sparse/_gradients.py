"""Sparse gradients that a program assigns to dense tensors, as an optimizer such as `SparseAdam` takes them.

The extension keeps the gradients that `backward()` computes, which are dense. `install` replaces `Tensor.grad`, once
`gt.sparse` is imported, by a property that keeps a sparse one as well: programs without sparse tensors read the
extension's own.
"""

from __future__ import annotations

import weakref
from typing import Any

from gt import _layouts
from gt._gt import Tensor

_extension: Any = vars(Tensor)["grad"]
# The sparse gradient of a tensor by its id: tensors compare by value. An entry is removed with its tensor.
_held: dict[int, tuple[weakref.ref[Tensor], Tensor]] = {}


def _get(self: Tensor) -> Tensor | None:
    held = _held.get(id(self))
    dense: Tensor | None = _extension.__get__(self)
    if held is None:
        return dense
    if dense is None:
        return held[1]
    # `backward()` ran since the assignment: the sum of both is dense.
    _set(self, dense + held[1])
    return _get(self)


def _set(self: Tensor, value: Any) -> None:
    if not isinstance(value, Tensor) or value.layout is _layouts.strided:
        _extension.__set__(self, value)
        _held.pop(id(self), None)
        return
    if value.layout is not _layouts.sparse_coo:
        raise RuntimeError("attempting to assign a gradient to a tensor that has data of a different type")
    if tuple(value.shape) != tuple(self.shape) or value.dtype != self.dtype:
        own, given = (f"{t.dtype} {list(t.shape)}" for t in (self, value))
        raise RuntimeError(f"assigned grad has data of a different size or type: expected {own}, but got {given}")
    _extension.__set__(self, None)
    key = id(self)
    _held[key] = (weakref.ref(self, lambda _: _held.pop(key, None)), value)


def install() -> None:
    """Lets `Tensor.grad` hold a sparse tensor in COO layout."""
    Tensor.grad = property(_get, _set, doc=_extension.__doc__)  # type: ignore[assignment, misc]
