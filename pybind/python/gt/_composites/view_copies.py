"""Properties that are other names of views, or that real tensors do not have."""

from __future__ import annotations

from typing import NoReturn

from gt._composites.common import check_rank
from gt._gt import Tensor


def _h(self: Tensor) -> Tensor:
    """The conjugate transpose of a matrix: its transpose, since there are no complex dtypes."""
    if self.ndim != 0:
        check_rank("tensor.H", input=(self, 2))
    return self.mT if self.ndim else self


def _real(self: Tensor) -> Tensor:
    """The real part: the tensor itself, since there are no complex dtypes."""
    return self


def _imag(self: Tensor) -> NoReturn:  # noqa: ARG001
    """The imaginary part, which real tensors do not have: raises TypeError."""
    raise TypeError("imag is not implemented for tensors with non-complex dtypes.")


def _mh(self: Tensor) -> Tensor:
    """The conjugate transpose of matrices: `mT`, since there are no complex dtypes."""
    return self.mT


METHODS = ()
IN_PLACE = ()
FUNCTIONS = ()
PROPERTIES = {"H": _h, "mH": _mh, "real": _real, "imag": _imag}
