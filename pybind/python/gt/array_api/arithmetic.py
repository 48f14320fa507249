"""The standard's functions of two operands, of which one may be a number.

Tensors without axes promote as all others do, which differs from PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gt import _core as gt
from gt._gt import Tensor

_NAMES = """
    add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor copysign divide equal
    floor_divide greater greater_equal hypot less less_equal logaddexp logical_and logical_or logical_xor maximum
    minimum multiply nextafter not_equal pow remainder subtract
""".split()
__all__ = [*_NAMES, "where"]


def _promoted(name: str, x1: Any, x2: Any) -> tuple[Tensor, Tensor]:
    """Both operands as tensors of their common dtype."""
    if not isinstance(x1, Tensor) and not isinstance(x2, Tensor):
        raise TypeError(f"{name}: at least one of the operands must be an array")
    if isinstance(x1, Tensor) and isinstance(x2, Tensor):
        dtype = gt.promote_types(x1.dtype, x2.dtype)
        return x1.to(dtype), x2.to(dtype)
    array, number = (x1, x2) if isinstance(x1, Tensor) else (x2, x1)
    # A number changes the kind of the dtype, never its size.
    dtype = gt.result_type(gt.empty(1, dtype=array.dtype), number)
    made = gt.tensor(number, dtype=dtype)
    return (array.to(dtype), made) if array is x1 else (made, array.to(dtype))


def _binary(name: str) -> Callable[[Any, Any], Tensor]:
    function = getattr(gt, "eq" if name == "equal" else name)

    def call(x1: Tensor | complex, x2: Tensor | complex, /) -> Tensor:
        return function(*_promoted(name, x1, x2))

    call.__name__ = call.__qualname__ = name
    call.__doc__ = function.__doc__
    return call


globals().update({name: _binary(name) for name in _NAMES if name not in ("floor_divide", "remainder")})


def floor_divide(x1: Tensor | complex, x2: Tensor | complex, /) -> Tensor:
    """The quotient rounded down; of an infinity, or by one, the quotient itself, where `//` follows PyTorch."""
    dividend, divisor = _promoted("floor_divide", x1, x2)
    found = gt.floor_divide(dividend, divisor)
    if not found.is_floating_point():
        return found
    return gt.where(gt.isinf(dividend) | gt.isinf(divisor), dividend / divisor, found)


def remainder(x1: Tensor | complex, x2: Tensor | complex, /) -> Tensor:
    """The remainder of floor division, with the sign of the divisor, that of a zero too."""
    dividend, divisor = _promoted("remainder", x1, x2)
    found = gt.remainder(dividend, divisor)
    return gt.where(found == 0, gt.copysign(found, divisor), found) if found.is_floating_point() else found


def where(condition: Tensor, x1: Tensor | complex, x2: Tensor | complex, /) -> Tensor:
    """`x1` where a condition is true, `x2` elsewhere."""
    return gt.where(condition, *_promoted("where", x1, x2))
