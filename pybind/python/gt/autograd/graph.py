"""Hooks of saved tensors, under PyTorch's path."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from gt import _absent
from gt._gt import Node

__all__ = ["Node", "disable_saved_tensors_hooks", "save_on_cpu", "saved_tensors_hooks"]

__getattr__ = _absent.getter(__name__)


class saved_tensors_hooks:  # noqa: N801 (PyTorch's name)
    """Raises NotImplementedError: saved tensors are in the daemon, where Python functions cannot replace them."""

    def __init__(self, pack_hook: Callable[[Any], Any], unpack_hook: Callable[[Any], Any]) -> None:
        raise NotImplementedError(
            "saved_tensors_hooks: what is saved is a value in the daemon: to save less, use gt.utils.checkpoint"
        )


@contextmanager
def disable_saved_tensors_hooks(error_message: str) -> Iterator[None]:  # noqa: ARG001
    """A context in which hooks of saved tensors are an error; as there are none, it changes nothing."""
    yield


class save_on_cpu:  # noqa: N801 (PyTorch's name)
    """A context in which PyTorch moves saved tensors to the CPU.

    Here the daemon places them, and it changes nothing.
    """

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        del pin_memory, device_type

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass
