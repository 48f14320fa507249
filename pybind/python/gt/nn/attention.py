"""Which of PyTorch's ways of computing attention a program allows: GT has one, whatever is allowed."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from gt import _absent

__all__ = ["SDPBackend", "sdpa_kernel"]

__getattr__ = _absent.getter(__name__)


class SDPBackend(enum.Enum):
    """PyTorch's ways."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


@contextmanager
def sdpa_kernel(backends: Sequence[SDPBackend] | SDPBackend, set_priority: bool = False) -> Iterator[None]:
    """A block in which attention may be computed in these ways: the results are those of any."""
    if isinstance(backends, SDPBackend):
        backends = [backends]
    if not isinstance(backends, list):
        raise AssertionError("Backend must be an instance of SDPBackend or a list of SDPBackend instances")
    del set_priority
    yield
