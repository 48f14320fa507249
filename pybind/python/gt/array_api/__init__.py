"""The Python array API standard, 2024.12, for tensors: the namespace that `t.__array_namespace__()` returns.

The modules here have the functions whose names or arguments differ from PyTorch's; the others are `gt`'s own. Complex
dtypes and unsigned integers of more than 8 bits are missing. Start at `elements.py`.
"""

# ruff: noqa: F403 (each module says in __all__ what it gives)
from __future__ import annotations

from gt import _core as gt
from gt.array_api import creation, elements, linalg, reductions, shapes, types
from gt.array_api.creation import *
from gt.array_api.elements import *
from gt.array_api.linalg import matmul, matrix_transpose, tensordot, vecdot
from gt.array_api.reductions import *
from gt.array_api.shapes import *
from gt.array_api.types import *

__array_api_version__ = "2024.12"

# The names that are the same in the standard and in `gt`, with the same arguments.
_SAME = """
    abs acos acosh add asin asinh atan atan2 atanh bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift
    bitwise_xor ceil copysign cos cosh divide equal exp expm1 floor floor_divide greater greater_equal hypot isfinite
    isinf isnan less less_equal log log10 log1p log2 logaddexp logical_and logical_not logical_or logical_xor maximum
    minimum multiply negative nextafter not_equal positive pow reciprocal remainder round sign signbit sin sinh sqrt
    square subtract tan tanh trunc where
    bool int8 int16 int32 int64 uint8 float32 float64
    e inf nan newaxis pi
""".split()
globals().update({name: getattr(gt, "eq" if name == "equal" else name) for name in _SAME})

__all__ = [
    *_SAME,
    *creation.__all__,
    *elements.__all__,
    *reductions.__all__,
    *shapes.__all__,
    *types.__all__,
    "linalg",
    "matmul",
    "matrix_transpose",
    "tensordot",
    "vecdot",
]
