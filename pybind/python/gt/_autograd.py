"""Whether operations are recorded for `backward()`: `no_grad`, `enable_grad` and `set_grad_enabled`.

The switch itself is the extension's, one a thread. Nothing here knows the tape; read `no_grad` first.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

from gt import _gt

F = TypeVar("F", bound=Callable[..., Any])


class _GradMode:
    """Records or does not record while it is entered, or while a function it decorates runs."""

    _mode: bool

    def __init__(self) -> None:
        # One instance may be entered many times, and by itself again.
        self._previous: list[bool] = []

    def __enter__(self) -> None:
        self._previous.append(_gt.set_grad_enabled(self._mode))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _gt.set_grad_enabled(self._previous.pop())

    def __call__(self, function: F) -> F:
        if inspect.isgeneratorfunction(function):
            raise TypeError(
                f"{type(self).__name__} cannot decorate the generator function {function.__name__}(), whose body "
                f"runs after the call: write `with gt.{type(self).__name__}():` inside it"
            )
        mode = self._mode

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            previous = _gt.set_grad_enabled(mode)
            try:
                return function(*args, **kwargs)
            finally:
                _gt.set_grad_enabled(previous)

        return wrapper  # type: ignore[return-value]


class no_grad(_GradMode):  # noqa: N801 (PyTorch's name)
    """Nothing is recorded for `backward()`: for evaluation, and for changing parameters.

    A context (`with gt.no_grad():`) and a decorator (`@gt.no_grad()` or `@gt.no_grad`). It holds for this thread.
    """

    _mode = False

    def __new__(cls, function: Callable[..., Any] | None = None) -> Any:
        """With a function (`@gt.no_grad` without parentheses), that function decorated."""
        if function is None:
            return super().__new__(cls)
        return cls()(function)


class enable_grad(_GradMode):  # noqa: N801 (PyTorch's name)
    """Operations are recorded again, inside a `no_grad`. A context and a decorator."""

    _mode = True

    def __new__(cls, function: Callable[..., Any] | None = None) -> Any:
        """With a function, that function decorated."""
        if function is None:
            return super().__new__(cls)
        return cls()(function)


class set_grad_enabled(_GradMode):  # noqa: N801 (PyTorch's name)
    """Sets the mode at once; as a context, the mode from before comes back at its end."""

    def __init__(self, mode: bool) -> None:
        self._mode = bool(mode)
        self._previous = [_gt.set_grad_enabled(self._mode)]

    def __enter__(self) -> None:
        _gt.set_grad_enabled(self._mode)

    def __call__(self, function: F) -> F:
        # As a decorator it must not have changed the mode of the code around it.
        _gt.set_grad_enabled(self._previous.pop())
        return super().__call__(function)


_thread = threading.local()


class inference_mode(_GradMode):  # noqa: N801 (PyTorch's name)
    """As `no_grad`. What is made inside may be recorded later, which PyTorch forbids and here costs nothing.

    A context and a decorator; `inference_mode(False)` is `enable_grad` for the code inside.
    """

    def __new__(cls, mode: Any = True) -> Any:
        """With a function, that function decorated."""
        return super().__new__(cls) if isinstance(mode, bool) else cls()(mode)

    def __init__(self, mode: bool = True) -> None:
        super().__init__()
        self._mode = not mode
        self._outer: list[bool] = []

    def __enter__(self) -> None:
        super().__enter__()
        self._outer.append(is_inference_mode_enabled())
        _thread.inference = not self._mode

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        _thread.inference = self._outer.pop()

    def __call__(self, function: F) -> F:
        mode = not self._mode

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with inference_mode(mode):
                return function(*args, **kwargs)

        return wrapper  # type: ignore[return-value]


def is_inference_mode_enabled() -> bool:
    """Whether this thread is inside an `inference_mode`."""
    return getattr(_thread, "inference", False)
