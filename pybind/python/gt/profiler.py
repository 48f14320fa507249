"""`record_function`, under PyTorch's path. There is no profiler: see `gt.debug`."""

from __future__ import annotations

from contextlib import ContextDecorator
from types import TracebackType

from gt import _absent

__all__ = ["kineto_available", "record_function"]

__getattr__ = _absent.getter(__name__)


def kineto_available() -> bool:
    """False: PyTorch's profiler of devices is not there."""
    return False


class record_function(ContextDecorator):  # noqa: N801 (PyTorch's name)
    """A named block, or a decorator; the name has no effect."""

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name = name
        self.args = args

    def __enter__(self) -> record_function:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass
