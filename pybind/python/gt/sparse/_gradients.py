"""Sparse gradients of dense tensors: those of embeddings, and those that a program assigns to `.grad`.

The extension keeps and adds dense gradients. `install` replaces `Tensor.grad`, once `gt.sparse` is imported, by a
property that keeps a sparse one as well, and the methods that register hooks, which a sparse gradient is given to:
programs without sparse tensors use the extension's own. A hook sees the gradient of each look-up, and the dense one,
apart.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from gt import _gt, _layouts, _tape
from gt._gt import Tensor

_extension: Any = vars(Tensor)["grad"]
_register_hook: Any = vars(Tensor)["register_hook"]
_register_accumulated_hook: Any = vars(Tensor)["register_post_accumulate_grad_hook"]
# The sparse gradient of a tensor by its id: tensors compare by value. An entry is removed with its tensor.
_held: dict[int, tuple[weakref.ref[Tensor], Tensor]] = {}


def _get(self: Tensor) -> Tensor | None:
    held = _held.get(id(self)) if _held else None
    if held is None:
        # A tensor that was computed warns of its missing gradient.
        return _extension.__get__(self)
    dense: Tensor | None = _extension.__get__(self)
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


class _Hooks:
    """The hooks of one kind of all leaves."""

    def __init__(self) -> None:
        self._of: dict[int, tuple[weakref.ref[Tensor], dict[int, Callable[..., Any]]]] = {}
        self._keys = count()

    def of(self, t: Tensor) -> list[Callable[..., Any]]:
        found = self._of.get(id(t))
        return [] if found is None else list(found[1].values())

    def add(self, t: Tensor, hook: Callable[..., Any], handle: Any) -> _HookHandle:
        key, place = next(self._keys), id(t)
        if place not in self._of:
            self._of[place] = (weakref.ref(t, lambda _: self._of.pop(place, None)), {})
        hooks = self._of[place][1]
        hooks[key] = hook
        return _HookHandle(handle, hooks, key)


class _HookHandle:
    """A handle of a leaf's hook: `remove()` removes the hook, for dense and for sparse gradients."""

    def __init__(self, handle: Any, hooks: dict[int, Callable[..., Any]], key: int) -> None:
        self._handle, self._hooks, self._key = handle, hooks, key

    def remove(self) -> None:
        """Removes the hook."""
        self._handle.remove()
        self._hooks.pop(self._key, None)

    def __enter__(self) -> _HookHandle:
        return self

    def __exit__(self, *_error: object) -> None:
        self.remove()


_hooks, _accumulated_hooks = _Hooks(), _Hooks()


def _hooked(register: Any, hooks: _Hooks) -> Callable[..., Any]:
    def registered(self: Tensor, hook: Callable[..., Any]) -> Any:
        handle = register(self, hook)
        return hooks.add(self, hook, handle) if self.is_leaf else handle

    registered.__name__, registered.__doc__ = register.__name__, register.__doc__
    return registered


class _Wanted(threading.local):
    """The sparse gradients that this thread's pass returns, by the id of their tensors; `None` if it accumulates."""

    found: dict[int, Tensor] | None = None


_wanted = _Wanted()


def collect(leaf: Tensor, grad: Tensor) -> None:
    """Gives a sparse gradient, which a backward pass has computed, to its leaf."""
    for hook in _hooks.of(leaf):
        answer = hook(grad)
        if answer is not None:
            grad = answer
    if _wanted.found is not None:
        earlier = _wanted.found.get(id(leaf))
        _wanted.found[id(leaf)] = grad if earlier is None else earlier + grad
        return
    held = leaf.grad
    if held is None:
        leaf.grad = grad
    elif held.is_sparse or not grad.is_sparse or _gt.is_grad_enabled():
        leaf.grad = held + grad
    else:
        # The gradient stays the same tensor.
        held.index_put_(tuple(grad._indices()), grad._values(), accumulate=True)
    for hook in _accumulated_hooks.of(leaf):
        hook(leaf)


def _add_sparse(compute: Callable[[], Sequence[Any]], wanted: Sequence[Any]) -> Sequence[Any]:
    """The gradients that a pass computes, with the sparse ones added."""
    before, _wanted.found = _wanted.found, {}
    try:
        dense, sparse = compute(), _wanted.found
    finally:
        _wanted.found = before
    if not sparse:
        return dense

    def total(t: Any, grad: Any) -> Any:
        extra = sparse.get(id(t))
        return grad if extra is None else extra if grad is None else grad + extra

    return tuple(total(t, grad) for t, grad in zip(wanted, dense, strict=True))


def install() -> None:
    """Lets `Tensor.grad` hold a sparse tensor in COO layout, and passes compute one."""
    Tensor.grad = property(_get, _set, doc=_extension.__doc__)  # type: ignore[assignment, misc]
    Tensor.register_hook = _hooked(_register_hook, _hooks)  # type: ignore[method-assign]
    Tensor.register_post_accumulate_grad_hook = _hooked(  # type: ignore[method-assign]
        _register_accumulated_hook, _accumulated_hooks
    )
    _tape.add_sparse = _add_sparse
