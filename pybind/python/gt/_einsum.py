"""`einsum` with a list of axes after each operand, in place of an equation."""

from __future__ import annotations

import string
from collections.abc import Callable
from typing import Any

from gt._gt import Tensor


def of_lists(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of `einsum(x, [0, 1], y, [1, 2], [0, 2])`: operands, each with its axes, and those of the result.

    Args:
        function: `einsum`.
        args: Operands and lists of numbers from 0 to 51, in which `...` stands for all other axes, in turn.
        kwargs: None.

    Returns:
        The result, or `NotImplemented` if the arguments are others.
    """
    pairs = len(args) // 2
    operands, lists = args[0 : 2 * pairs : 2], [*args[1 : 2 * pairs : 2], *args[2 * pairs :]]
    if kwargs or not pairs or not all(isinstance(t, Tensor) for t in operands):
        return NotImplemented
    if not all(isinstance(axes, list | tuple) for axes in lists):
        return NotImplemented
    terms = ["".join(_letter(axis) for axis in axes) for axes in lists]
    return function(",".join(terms[:pairs]) + "".join(f"->{term}" for term in terms[pairs:]), *operands)


def _letter(axis: Any) -> str:
    if axis is ...:
        return "..."
    letters = string.ascii_uppercase + string.ascii_lowercase
    if not isinstance(axis, int) or not 0 <= axis < len(letters):
        raise ValueError(f"einsum: an axis is a number from 0 to {len(letters) - 1} or an ellipsis, but got {axis!r}")
    return letters[axis]
