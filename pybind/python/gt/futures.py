"""`torch.futures`: a result that another thread sets."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from gt import _absent

__all__ = ["Future", "collect_all", "wait_all"]

__getattr__ = _absent.getter(__name__)

T = TypeVar("T")


class Future(Generic[T]):
    """A value that is set once, by `set_result` or `set_exception`.

    Example:
        >>> future = gt.futures.Future()
        >>> doubled = future.then(lambda done: 2 * done.value())
        >>> future.set_result(3)
        >>> doubled.wait()
        6
    """

    def __init__(self, *, devices: Any = None) -> None:  # noqa: ARG002 (values are where the daemon put them)
        self._inner: concurrent.futures.Future[Any] = concurrent.futures.Future()

    def done(self) -> bool:
        """Whether the value or an exception is set."""
        return self._inner.done()

    def wait(self) -> T:
        """Waits for the value; raises the exception if one is set instead."""
        return self._inner.result()  # type: ignore[no-any-return]

    def value(self) -> T:
        """The value, which must be set.

        Raises:
            RuntimeError: It is not set.
        """
        if not self.done():
            raise RuntimeError("Future.value: the future is not done: wait() waits for it")
        return self.wait()

    def set_result(self, result: T) -> None:
        """Sets the value."""
        self._inner.set_result(result)

    def set_exception(self, result: BaseException) -> None:
        """Sets the exception that `wait` raises."""
        self._inner.set_exception(result)

    def add_done_callback(self, callback: Callable[[Future[T]], Any]) -> None:
        """Calls `callback(self)` once the value is set; at once if it is."""
        self._inner.add_done_callback(lambda _: callback(self))

    def then(self, callback: Callable[[Future[T]], Any]) -> Future[Any]:
        """A future of the result of `callback(self)`, which is called once the value is set."""
        following: Future[Any] = Future()

        def go_on(done: Future[T]) -> None:
            try:
                following.set_result(callback(done))
            except Exception as error:
                following.set_exception(error)

        self.add_done_callback(go_on)
        return following


def collect_all(futures: list[Future[Any]]) -> Future[list[Future[Any]]]:
    """A future of the list, which is done once all of its futures are."""
    collected: Future[list[Future[Any]]] = Future()

    def check(_: Any) -> None:
        if all(future.done() for future in futures) and not collected.done():
            collected.set_result(futures)

    if not futures:
        collected.set_result(futures)
    for future in futures:
        future.add_done_callback(check)
    return collected


def wait_all(futures: list[Future[Any]]) -> list[Any]:
    """The values of all futures, in their order; raises the first exception."""
    return [future.wait() for future in futures]
