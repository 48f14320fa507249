"""Numerical limits of dtypes, and the rule of which dtype promotes to which."""

from __future__ import annotations

import numpy as np

from gt import _gt
from gt._gt import dtype

# Floating-point dtypes that GT does not compute in: the largest number, eps, and the smallest normal number.
_FLOAT8 = {
    "torch.float8_e4m3fn": (448.0, 2.0**-3, 2.0**-6),
    "torch.float8_e4m3fnuz": (240.0, 2.0**-3, 2.0**-7),
    "torch.float8_e5m2": (57344.0, 2.0**-2, 2.0**-14),
    "torch.float8_e5m2fnuz": (57344.0, 2.0**-2, 2.0**-15),
}
_FLOATS = {"float16": np.float16, "float32": np.float32, "float64": np.float64}


class finfo:  # noqa: N801 (PyTorch's name)
    """The numerical limits of a floating-point dtype; of the default dtype if none is given.

    Example:
        >>> gt.finfo(gt.float32).eps
        1.1920928955078125e-07
    """

    bits: int
    eps: float
    max: float
    min: float
    tiny: float
    smallest_normal: float
    resolution: float
    dtype: str

    def __init__(self, type: dtype | None = None) -> None:
        type = _gt.get_default_dtype() if type is None else type
        if str(type) in _FLOAT8:
            self.bits, self.dtype, self.resolution = 8, str(type).removeprefix("torch."), 1.0
            self.max, self.eps, self.tiny = _FLOAT8[str(type)]
            self.min, self.smallest_normal = -self.max, self.tiny
            return
        if isinstance(type, dtype):
            # The limits of a complex dtype are those of its parts.
            type = type.to_real()
        if not isinstance(type, dtype) or not type.is_floating_point:
            raise TypeError(f"torch.finfo() requires a floating point input type. Use torch.iinfo to handle '{type}'")
        self.bits = type.itemsize * 8
        self.dtype = type.name
        if type is _gt.bfloat16:
            # bfloat16 has 8 bits of exponent and 7 of fraction.
            self.eps, self.tiny, self.max, self.resolution = 2.0**-7, 2.0**-126, 2.0**127 * (2 - 2.0**-7), 0.01
        else:
            known = np.finfo(_FLOATS[type.name])
            self.eps, self.tiny, self.max = float(known.eps), float(known.tiny), float(known.max)
            self.resolution = float(f"1e-{known.precision}")
        self.min = -self.max
        self.smallest_normal = self.tiny

    def __repr__(self) -> str:
        return (
            f"finfo(resolution={self.resolution:g}, min={self.min:g}, max={self.max:g}, eps={self.eps:g}, "
            f"smallest_normal={self.smallest_normal:g}, tiny={self.tiny:g}, dtype={self.dtype})"
        )


class iinfo:  # noqa: N801 (PyTorch's name)
    """The limits of an integer dtype.

    Example:
        >>> gt.iinfo(gt.int8).max
        127
    """

    bits: int
    max: int
    min: int
    dtype: str

    def __init__(self, type: dtype) -> None:
        if not isinstance(type, dtype) or type.is_floating_point or type.is_complex:
            raise TypeError(f"torch.iinfo() requires an integer input type. Use torch.finfo to handle '{type}'")
        if type is _gt.bool:
            raise TypeError("torch.bool is not supported by torch.iinfo")
        self.bits = type.itemsize * 8
        self.dtype = type.name
        self.min = -(2 ** (self.bits - 1)) if type.is_signed else 0
        self.max = self.min + 2**self.bits - 1

    def __repr__(self) -> str:
        return f"iinfo(min={self.min:g}, max={self.max:g}, dtype={self.dtype})"


def can_cast(from_: dtype, to: dtype) -> bool:
    """Whether promotion converts one dtype to another: not complex to real, float to integer, or a number to bool.

    Example:
        >>> gt.can_cast(gt.int32, gt.float32), gt.can_cast(gt.float32, gt.int32)
        (True, False)
    """
    if from_.is_complex and not to.is_complex:
        return False
    if from_.is_floating_point and not (to.is_floating_point or to.is_complex):
        return False
    return to is not _gt.bool or from_ is _gt.bool
