"""The grad mode, which says whether operations are recorded: `no_grad`, `enable_grad` and `set_grad_enabled`.

The mode is kept by the extension, for each thread. Start at `no_grad`.
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
    """A context manager and decorator that sets whether operations are recorded."""

    _mode: bool

    def __init__(self) -> None:
        # An instance may be entered several times, also inside itself.
        self._previous: list[bool] = []

    def __enter__(self) -> None:
        self._previous.append(_gt.set_grad_enabled(self._mode))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _gt.set_grad_enabled(self._previous.pop())

    def __call__(self, function: F) -> F:
        mode = self._mode
        if inspect.isgeneratorfunction(function):
            return _generator_in_mode(function, mode)  # type: ignore[return-value]

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            previous = _gt.set_grad_enabled(mode)
            try:
                return function(*args, **kwargs)
            finally:
                _gt.set_grad_enabled(previous)

        return wrapper  # type: ignore[return-value]


def _generator_in_mode(function: Callable[..., Any], mode: bool) -> Callable[..., Any]:
    """A generator function whose body runs in a grad mode; between its steps the caller's mode holds."""

    def step(resume: Callable[..., Any], *args: Any) -> Any:
        previous = _gt.set_grad_enabled(mode)
        try:
            return resume(*args)
        finally:
            _gt.set_grad_enabled(previous)

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        body = function(*args, **kwargs)
        try:
            produced = step(body.send, None)
            while True:
                try:
                    received = yield produced
                except GeneratorExit:
                    step(body.close)
                    raise
                except BaseException as error:
                    produced = step(body.throw, error)
                else:
                    produced = step(body.send, received)
        except StopIteration as end:
            return end.value

    return wrapper


class no_grad(_GradMode):  # noqa: N801 (PyTorch's name)
    """A context in which autograd records nothing: for evaluation, and for updating parameters.

    Results of operations do not require a gradient, whatever their inputs, and nothing is kept for `backward`, which
    saves memory. New tensors with `requires_grad=True`, such as parameters, still require one.

    It is a context manager (`with gt.no_grad():`) and a decorator (`@gt.no_grad()` or `@gt.no_grad`). It affects the
    thread that enters it, and no other.

    Example:
        >>> x = gt.ones(2, requires_grad=True)
        >>> with gt.no_grad():
        ...     y = x * 2
        >>> y.requires_grad
        False
        >>> @gt.no_grad
        ... def evaluate(x):
        ...     return x * 2
        >>> evaluate(x).requires_grad
        False
    """

    _mode = False

    def __new__(cls, function: Callable[..., Any] | None = None) -> Any:
        """With a function (`@gt.no_grad` without parentheses), that function decorated."""
        if function is None:
            return super().__new__(cls)
        return cls()(function)


class enable_grad(_GradMode):  # noqa: N801 (PyTorch's name)
    """A context in which autograd records operations again, inside a `no_grad`. It is a decorator, too.

    Example:
        >>> x = gt.ones(2, requires_grad=True)
        >>> with gt.no_grad(), gt.enable_grad():
        ...     y = x * 2
        >>> y.requires_grad
        True
    """

    _mode = True

    def __new__(cls, function: Callable[..., Any] | None = None) -> Any:
        """With a function, that function decorated."""
        if function is None:
            return super().__new__(cls)
        return cls()(function)


class set_grad_enabled(_GradMode):  # noqa: N801 (PyTorch's name)
    """Sets whether autograd records operations, at once; as a context manager it restores the former mode at its end.

    Example:
        >>> x = gt.ones(2, requires_grad=True)
        >>> with gt.set_grad_enabled(False):
        ...     y = x * 2
        >>> y.requires_grad
        False
    """

    def __init__(self, mode: bool) -> None:
        self._mode = bool(mode)
        self._previous = [_gt.set_grad_enabled(self._mode)]

    def __enter__(self) -> None:
        _gt.set_grad_enabled(self._mode)

    def __call__(self, function: F) -> F:
        # A decorator must not change the mode of the code around it: the constructor's change is undone.
        _gt.set_grad_enabled(self._previous.pop())
        return super().__call__(function)


_thread = threading.local()


class inference_mode(_GradMode):  # noqa: N801 (PyTorch's name)
    """A context like `no_grad`. Unlike in PyTorch, tensors made inside may be recorded later.

    It is a context manager and a decorator; `inference_mode(False)` records operations inside, as `enable_grad`.

    Example:
        >>> x = gt.ones(2, requires_grad=True)
        >>> with gt.inference_mode():
        ...     y = x * 2
        >>> y.requires_grad
        False
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
