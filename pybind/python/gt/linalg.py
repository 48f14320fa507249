"""Linear algebra: norms, decompositions, inverses and equations.

Decompositions fetch the elements, compute on the host in float64 and upload the results; their gradients are composed
of GT's operations.
"""

from __future__ import annotations

from gt import _absent, _ldl
from gt._functions import linalg as _declared
from gt._functions.linalg import *  # noqa: F403
from gt._ldl import *  # noqa: F403
from gt._types import LinAlgError as LinAlgError

__getattr__ = _absent.getter(__name__)

__all__ = ["LinAlgError", *_declared.__all__, *_ldl.__all__]
