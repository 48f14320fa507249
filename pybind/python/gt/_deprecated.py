"""Deprecated names of PyTorch's, which warn as in PyTorch."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def deprecated(message: str, kind: type[Warning] = FutureWarning) -> Callable[[F], F]:
    """A decorator for a deprecated function, which warns in PyTorch's words when it is called."""

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def warns(*args: Any, **kwargs: Any) -> Any:
            warnings.warn(message, kind, stacklevel=2)
            return function(*args, **kwargs)

        return warns  # type: ignore[return-value]

    return decorate
