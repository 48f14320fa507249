"""Finding the operation whose gradient is not a number: slow, since every gradient is looked at."""

from __future__ import annotations

from types import TracebackType

from gt import _gt


class set_detect_anomaly:  # noqa: N801 (PyTorch's name)
    """Turns anomaly detection on or off, at once; as a context, what was before comes back at its end.

    While it is on, operations remember the line that recorded them, and, with `check_nan`, `backward()` raises at the
    first operation whose gradient is not a number, naming both.
    """

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self._previous = _gt.set_anomaly(bool(mode), bool(check_nan))

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _gt.set_anomaly(*self._previous)


class detect_anomaly(set_detect_anomaly):  # noqa: N801 (PyTorch's name)
    """Anomaly detection within a `with`."""

    def __init__(self, check_nan: bool = True) -> None:
        super().__init__(True, check_nan)
