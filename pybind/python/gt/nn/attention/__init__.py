"""`sdpa_kernel` and its backends, for PyTorch programs that choose an implementation of attention. GT has one."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from gt import _absent

__all__ = ["SDPBackend", "sdpa_kernel"]

__getattr__ = _absent.getter(__name__)


class SDPBackend(enum.Enum):
    """PyTorch's implementations of scaled dot-product attention."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


@contextmanager
def sdpa_kernel(backends: Sequence[SDPBackend] | SDPBackend, set_priority: bool = False) -> Iterator[None]:
    """A context in which PyTorch may use the given backends alone; in GT it changes nothing."""
    if isinstance(backends, SDPBackend):
        backends = [backends]
    if not isinstance(backends, list):
        raise AssertionError("Backend must be an instance of SDPBackend or a list of SDPBackend instances")
    del set_priority
    yield
