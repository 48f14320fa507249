"""Comparison of two results: structure, dtype, shape, elements."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

import gt
from tests.parity.convert import DTYPES, of_gt, to_array

# The relative tolerance, and the absolute one of a result whose largest element is 1.
TOLERANCE = {
    gt.float16: (4e-3, 4e-3),
    gt.bfloat16: (2e-2, 2e-2),
    gt.float32: (5e-5, 5e-5),
    gt.float64: (1e-7, 1e-9),
    gt.complex64: (5e-5, 5e-5),
    gt.complex128: (1e-7, 1e-9),
}
# Complex arguments are left out, but real ones may have complex results.
RESULT_DTYPES = DTYPES | {torch.complex64: gt.complex64, torch.complex128: gt.complex128}


def difference(theirs: Any, ours: Any, values: bool = True) -> str | None:
    """Describes the difference between two results; `None` if they agree. Without `values`, elements may differ."""
    if isinstance(theirs, torch.Tensor):
        return _of_tensors(theirs, ours, values)
    if isinstance(theirs, (list, tuple)):
        if not isinstance(ours, (list, tuple)):
            return f"a {type(ours).__name__} for a {type(theirs).__name__}"
        if len(theirs) != len(ours):
            return f"{len(ours)} parts for {len(theirs)}"
        for i, (a, b) in enumerate(zip(theirs, ours, strict=True)):
            if why := difference(a, b, values):
                return f"part {i}: {why}"
        return None
    if isinstance(theirs, torch.dtype):
        return None if RESULT_DTYPES.get(theirs) == ours else f"{ours} for {theirs}"
    if type(theirs) is not type(ours):
        return f"a {type(ours).__name__} for a {type(theirs).__name__}"
    if isinstance(theirs, float) and values:
        same = math.isclose(theirs, ours, rel_tol=1e-5, abs_tol=1e-6) or (math.isnan(theirs) and math.isnan(ours))
        return None if same else f"{ours} for {theirs}"
    return None if theirs == ours or not values else f"{ours!r} for {theirs!r}"


def _of_tensors(theirs: torch.Tensor, ours: Any, values: bool) -> str | None:
    if not isinstance(ours, gt.Tensor):
        return f"a {type(ours).__name__} for a tensor"
    if tuple(theirs.shape) != tuple(ours.shape):
        return f"shape {list(ours.shape)} for {list(theirs.shape)}"
    if RESULT_DTYPES.get(theirs.dtype) != ours.dtype:
        return f"{ours.dtype} for {theirs.dtype}"
    # Fetching waits for the computation, so errors that only execution finds are raised here.
    got, wanted = of_gt(ours), to_array(theirs)
    if not values or theirs.numel() == 0:
        return None
    if ours.is_complex():
        got, wanted = (np.stack((array.real, array.imag), -1) for array in (got, wanted))
    if ours.dtype not in TOLERANCE:
        wrong = got != wanted
    else:
        relative, absolute = TOLERANCE[ours.dtype]
        got, wanted = got.astype(np.float64), wanted.astype(np.float64)
        finite = np.abs(wanted[np.isfinite(wanted)])
        absolute *= max(1.0, finite.max() if finite.size else 0.0)
        wrong = ~np.isclose(got, wanted, rtol=relative, atol=absolute, equal_nan=True)
    if not wrong.any():
        return None
    place = tuple(int(i) for i in np.argwhere(wrong)[0]) if wrong.ndim else ()
    return f"{int(wrong.sum())} of {wrong.size} elements: {got[place]} for {wanted[place]} at {list(place)}"
