"""Linear algebra: norms, decompositions, inverses and equations.

Decompositions fetch the elements, compute on the host in float64 and upload the results; their gradients are composed
of GT's operations.
"""

from __future__ import annotations

from gt import _absent, _forms
from gt._functions import linalg as _declared
from gt._functions.linalg import *  # noqa: F403
from gt.linalg import norms as _norms


class LinAlgError(RuntimeError):
    """A matrix that an algorithm of linear algebra cannot handle, as a singular one."""


# The functions that take `out=`, as in PyTorch.
_NORMS = ["cond", "matrix_norm", "norm"]
for _name in _NORMS:
    globals()[_name] = _forms.function_form(_name, getattr(_norms, _name))

__getattr__ = _absent.getter(__name__)

__all__ = sorted([*_declared.__all__, *_NORMS, "LinAlgError"])
