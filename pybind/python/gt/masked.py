"""Masked reductions and scans, under the names of `torch.masked`: only elements where a bool mask is true count.

Masked elements are replaced by the identity of the operation. A mask broadcasts to the input; without one, every
element counts. Where no element is left, the result is that of an empty reduction, or undefined.
"""

from __future__ import annotations

from gt import _absent
from gt._functions.masked import *  # noqa: F403
from gt._functions.masked import __all__ as __all__

__getattr__ = _absent.getter(__name__)
