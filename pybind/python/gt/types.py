"""Type aliases for annotations: numbers, devices and sizes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import IO

from gt import _absent
from gt import _gt as _native
from gt._gt import Tensor
from gt._layouts import layout as _layout  # noqa: F401 (a name of this module's)
from gt._types import Size

__all__ = ["Device", "FileLike", "Number", "Size", "Tensor"]

__getattr__ = _absent.getter(__name__)

_int, _float, _bool, _complex = int, float, bool, complex
_dtype, _device = _native.dtype, _native.device
_size = Size | list[int] | tuple[int, ...]
_TensorOrTensors = Tensor | Sequence[Tensor]

Number = int | float | bool
_Number = (int, float, bool)
Device = _device | str | int | None
FileLike = str | os.PathLike[str] | IO[bytes]
