"""`torch.cpu`: the CPU as a device, for programs that do not care which device they have."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from gt import _absent, _gt

__all__ = [
    "amp",
    "current_device",
    "current_stream",
    "device_count",
    "is_available",
    "is_initialized",
    "stream",
    "synchronize",
]

__getattr__ = _absent.getter(__name__)


def is_available() -> bool:
    """True: there is a CPU."""
    return True


def device_count() -> int:
    """1: all processors together are one device."""
    return 1


def current_device() -> str:
    """The name of the only such device, `"cpu"`."""
    return "cpu"


def synchronize(device: Any = None) -> None:  # noqa: ARG001
    """Waits until all operations issued so far are complete."""
    _gt.synchronize()


def is_initialized() -> bool:
    """True: there is nothing to initialize."""
    return True


class Stream:
    """A queue of operations. There is one for the whole program: operations run in program order."""


def current_stream(device: Any = None) -> Stream:  # noqa: ARG001
    """The program's only stream."""
    return Stream()


def stream(stream: Any) -> nullcontext[None]:  # noqa: ARG001
    """A context for a stream; it has no effect, as there is one."""
    return nullcontext()


# gt.cpu.amp needs gt.amp.
from gt.cpu import amp  # noqa: E402
