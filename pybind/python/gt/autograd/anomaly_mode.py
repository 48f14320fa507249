"""Anomaly detection: finds the operation whose gradient is NaN. It is slow, as every gradient is examined."""

from __future__ import annotations

import warnings
from types import TracebackType

from gt import _gt


class set_detect_anomaly:  # noqa: N801 (PyTorch's name)
    """Turns anomaly detection on or off; as a context manager, restores the earlier mode at the end.

    While it is on, operations remember the line of code that recorded them, and `backward()` raises at the first
    operation whose gradient is NaN, with that line.

    Args:
        mode: Whether to turn it on.
        check_nan: Whether `backward()` raises for NaN.
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
    """A context in which anomaly detection is on.

    Args:
        check_nan: Whether `backward()` raises for NaN.
    """

    def __init__(self, check_nan: bool = True) -> None:
        warnings.warn("Anomaly detection is on: it examines every gradient, which is slow.", stacklevel=2)
        super().__init__(True, check_nan)
