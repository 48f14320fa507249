"""Copying and pickling of tensors: by value, through NumPy, so that another process can read them."""

from __future__ import annotations

from copy import deepcopy as copy_of
from typing import Any

import numpy as np

from gt import _gt
from gt._gt import Tensor


def deepcopy(t: Tensor, memo: dict[int, Any]) -> Tensor:
    """A copy of a leaf, with its gradient.

    Raises:
        RuntimeError: `t` is not a leaf.
    """
    if not t.is_leaf:
        raise RuntimeError(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment. "
            "If you were attempting to deepcopy a module, this may be because of a tensor computed from parameters: "
            "detach() it."
        )
    copied = _marked(t.detach().clone(), type(t), t.requires_grad, t._is_parameter)
    memo[id(t)] = copied
    if type(t) is not Tensor and t.__dict__:
        copied.__dict__.update(copy_of(t.__dict__, memo))
    if t.grad is not None:
        copied.grad = copy_of(t.grad, memo)
    return copied


def copy(t: Tensor) -> Tensor:
    """Another leaf that shares the elements, as `copy.copy` gives: an in-place write to either changes both."""
    copied = _marked(t.detach(), type(t), t.requires_grad, t._is_parameter)
    copied.__dict__.update(t.__dict__)
    return copied


def reduce(t: Tensor) -> tuple[Any, ...]:
    """The pickle state of a leaf: its elements, dtype and flags.

    Raises:
        RuntimeError: `t` is not a leaf.
    """
    if not t.is_leaf:
        raise RuntimeError("a tensor that autograd computed cannot be pickled: detach() it first")
    previous = _gt.set_grad_enabled(False)
    try:
        plain = t.detach()
        # NumPy has no bfloat16; float32 represents every bfloat16 number exactly.
        array = (plain.to(_gt.float32) if t.dtype == _gt.bfloat16 else plain).numpy()
    finally:
        _gt.set_grad_enabled(previous)
    name = t.dtype.name
    parts = (np.ascontiguousarray(array), name, tuple(t.shape), type(t), t.requires_grad, t._is_parameter)
    return (_rebuild, parts, t.__dict__) if t.__dict__ else (_rebuild, parts)


def _rebuild(
    array: np.ndarray[Any, Any],
    dtype: str,
    shape: tuple[int, ...],
    cls: type[Tensor],
    requires_grad: bool,
    is_parameter: bool,
) -> Tensor:
    # `ascontiguousarray` gave an axis to a scalar.
    t = _gt.copy_array(array).reshape(shape).to(getattr(_gt, dtype))
    return _marked(t, cls, requires_grad, is_parameter)


def _marked(elements: Tensor, cls: type[Tensor], requires_grad: bool, is_parameter: bool) -> Tensor:
    """A leaf of a class with the elements of a tensor."""
    leaf = Tensor.__new__(cls, _detached=elements)
    leaf.requires_grad = requires_grad
    leaf._is_parameter = is_parameter
    return leaf
