"""`torch.distributed.rpc.api`, as far as libraries use it when they are imported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from gt import _absent

__getattr__ = _absent.getter(__name__)


def _require_initialized(func: Callable[..., Any]) -> Callable[..., NoReturn]:
    """A function that raises, since it needs other processes."""

    def refuse(*args: Any, **kwargs: Any) -> NoReturn:  # noqa: ARG001
        raise RuntimeError(f"{func.__name__}: RPC has not been initialized: there is no other process to call")

    return refuse
