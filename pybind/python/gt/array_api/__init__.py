"""The Python array API standard, 2024.12, for tensors: the namespace that `t.__array_namespace__()` returns.

The modules here have the functions whose names or arguments differ from PyTorch's; the others are `gt`'s own. Start at
`elements.py`.
"""

# ruff: noqa: F403 (each module says in __all__ what it gives)
from __future__ import annotations

from gt import _core as gt
from gt.array_api import arithmetic, creation, elements, fft, linalg, reductions, shapes, types
from gt.array_api.arithmetic import *
from gt.array_api.creation import *
from gt.array_api.elements import *
from gt.array_api.linalg import matmul, matrix_transpose, tensordot, vecdot
from gt.array_api.reductions import *
from gt.array_api.shapes import *
from gt.array_api.types import *

__array_api_version__ = "2024.12"

# The names that are the same in the standard and in `gt`, with the same arguments.
_SAME = """
    abs acos acosh asin asinh atan atanh ceil cos cosh exp expm1 floor isfinite isinf isnan log log10 log1p log2
    logical_not negative positive reciprocal signbit sin sinh sqrt square tan tanh trunc
    bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 complex64 complex128
    e inf nan newaxis pi
""".split()
globals().update({name: getattr(gt, name) for name in _SAME})

__all__ = [
    *_SAME,
    *arithmetic.__all__,
    *creation.__all__,
    *elements.__all__,
    *reductions.__all__,
    *shapes.__all__,
    *types.__all__,
    "fft",
    "linalg",
    "matmul",
    "matrix_transpose",
    "tensordot",
    "vecdot",
]
