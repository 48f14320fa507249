"""Functions that PyTorch names with an underscore and that libraries call all the same.

Those of `torch._foreach_*` apply a function to each tensor of a list, as optimizers do; the daemon fuses what they
issue. The others check conditions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gt import _gt, overrides
from gt._functions import top
from gt._gt import Tensor

# Functions of one tensor, and of a tensor with others or numbers.
_UNARY = """
    abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 neg reciprocal round
    rsqrt sigmoid sign sin sinh sqrt tan tanh trunc
""".split()
_OTHERS = {
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "div": "div",
    "pow": "pow",
    "lerp": "lerp",
    "addcmul": "addcmul",
    "addcdiv": "addcdiv",
    "maximum": "clamp_min",
    "minimum": "clamp_max",
    "clamp_min": "clamp_min",
    "clamp_max": "clamp_max",
}
# The keyword argument by which these take a number, or one for each tensor.
_NUMBER = {"addcmul": "value", "addcdiv": "value"}


def _columns(count: int, args: Sequence[Any]) -> list[Sequence[Any]]:
    """The arguments for each of `count` tensors; one that is no list is the same for all."""
    columns = []
    for arg in args:
        if isinstance(arg, (list, tuple)):
            if len(arg) != count:
                raise RuntimeError(f"Tensor lists must have the same number of tensors, got {count} and {len(arg)}")
            columns.append(arg)
        else:
            columns.append([arg] * count)
    return columns


def _each(name: str, method: str, in_place: bool) -> Callable[..., list[Tensor] | None]:
    """The function that applies a method of tensors to each of a list."""

    def apply(self: Sequence[Tensor] | float, *args: Any, **options: Any) -> list[Tensor] | None:
        if isinstance(self, (int, float)):  # `_foreach_pow` of a number and exponents
            return [top.pow(self, exponent) for exponent in args[0]]
        if name in _NUMBER and len(args) == 3:
            options[_NUMBER[name]] = args[2]
            args = args[:2]
        columns = _columns(len(self), (*args, *options.values()))
        results = []
        for i, t in enumerate(self):
            own = [column[i] for column in columns]
            words = dict(zip(options, own[len(args) :], strict=True))
            if isinstance(words.get("value"), Tensor):
                words["value"] = words["value"].item()
            results.append(getattr(t, method + "_" * in_place)(*own[: len(args)], **words))
        return None if in_place else results

    apply.__name__ = apply.__qualname__ = f"_foreach_{name}{'_' * in_place}"
    apply.__doc__ = f"`Tensor.{method}{'_' * in_place}` of each tensor of a list."
    return apply


def _foreach_norm(self: Sequence[Tensor], ord: float = 2, dtype: _gt.dtype | None = None) -> tuple[Tensor, ...]:
    """The norm of each tensor of a list, over all its elements."""
    from gt import linalg

    return tuple(linalg.vector_norm(t, ord, dtype=dtype) for t in self)


def _foreach_max(self: Sequence[Tensor]) -> list[Tensor]:
    """The largest element of each tensor of a list."""
    return [t.max() for t in self]


def _foreach_zero_(self: Sequence[Tensor]) -> None:
    """Fills each tensor of a list with zeros."""
    for t in self:
        t.zero_()


def _foreach_copy_(self: Sequence[Tensor], src: Sequence[Tensor], non_blocking: bool = False) -> None:  # noqa: ARG001
    """Copies the elements of each tensor of the second list to that of the first."""
    for t, source in zip(self, src, strict=True):
        t.copy_(source)


def _assert(condition: Any, message: str) -> None:
    """Raises `AssertionError` with a message unless the condition holds."""
    if overrides.has_torch_function((condition,)):  # A program that is traced.
        overrides.handle_torch_function(_assert, (condition,), condition, message)
    elif not condition:
        raise AssertionError(message)


def _assert_async(input: Tensor, assert_msg: str = "Expected Tensor with single nonzero value, but got zero") -> None:
    """Raises `RuntimeError` if the value of a tensor of one element is 0. It waits for the value."""
    if not input:
        raise RuntimeError(assert_msg)


def _check_with(kind: type[Exception], cond: Any, message: Any = None) -> None:
    """Raises an exception of a class unless the condition holds.

    Args:
        kind: The class of the exception.
        cond: The condition.
        message: A function without arguments that returns the message, or the message.
    """
    if not cond:
        text = message() if callable(message) else message
        raise kind("Expected cond to be True, but got False." if text is None else str(text))


def _check(cond: Any, message: Any = None) -> None:
    """Raises `RuntimeError` unless the condition holds; see `_check_with`."""
    _check_with(RuntimeError, cond, message)


def _check_value(cond: Any, message: Any = None) -> None:
    """Raises `ValueError` unless the condition holds; see `_check_with`."""
    _check_with(ValueError, cond, message)


def _check_type(cond: Any, message: Any = None) -> None:
    """Raises `TypeError` unless the condition holds; see `_check_with`."""
    _check_with(TypeError, cond, message)


def _check_index(cond: Any, message: Any = None) -> None:
    """Raises `IndexError` unless the condition holds; see `_check_with`."""
    _check_with(IndexError, cond, message)


def _check_not_implemented(cond: Any, message: Any = None) -> None:
    """Raises `NotImplementedError` unless the condition holds; see `_check_with`."""
    _check_with(NotImplementedError, cond, message)


def _check_is_size(i: Any, message: Any = None, *, max: int | None = None) -> None:
    """Raises `RuntimeError` unless a number is 0 or more, and at most `max`."""
    _check(i >= 0 and (max is None or i <= max), message)


def _check_tensor_all(cond: Tensor, message: Any = None) -> None:
    """Raises `RuntimeError` unless all elements are true. It waits for them."""
    _check(bool(cond.all()), message)


def _shape_as_tensor(self: Tensor) -> Tensor:
    """The sizes of a tensor as a tensor."""
    return _gt.tensor(list(self.shape), dtype=_gt.int64)


FUNCTIONS: tuple[Callable[..., Any], ...] = (
    *(_each(name, name, in_place) for name in _UNARY for in_place in (False, True)),
    *(_each(name, method, in_place) for name, method in _OTHERS.items() for in_place in (False, True)),
    _foreach_norm,
    _foreach_max,
    _foreach_zero_,
    _foreach_copy_,
    _assert,
    _assert_async,
    _check_with,
    _check,
    _check_value,
    _check_type,
    _check_index,
    _check_not_implemented,
    _check_is_size,
    _check_tensor_all,
    _shape_as_tensor,
)
