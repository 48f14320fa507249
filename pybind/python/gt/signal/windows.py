"""Window functions for signal processing, computed in float64.

With `sym` a window is symmetric; without, it is periodic: the first `M` numbers of the symmetric window of `M + 1`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np

from gt import _gt
from gt._gt import Tensor, dtype
from gt._layouts import strided

__all__ = [
    "bartlett",
    "blackman",
    "cosine",
    "exponential",
    "gaussian",
    "general_cosine",
    "general_hamming",
    "hamming",
    "hann",
    "kaiser",
    "nuttall",
]

Weights = Callable[..., np.ndarray]


def _window(weights: Weights) -> Callable[..., Tensor]:
    """The window function for a function of the positions 0, 1, ... and of the last position of the period, `end`."""

    @wraps(weights)
    def window(
        M: int,  # noqa: N803
        *args: Any,
        sym: bool = True,
        dtype: dtype | None = None,
        layout: Any = None,
        device: Any = None,
        requires_grad: bool = False,
        **kwargs: Any,
    ) -> Tensor:
        name = weights.__name__
        if M < 0:
            raise ValueError(f"{name} requires non-negative window length, got M={M}")
        kind = dtype or _gt.get_default_dtype()
        if kind not in (_gt.float32, _gt.float64):
            raise ValueError(f"{name} expects float32 or float64 dtypes, got: {kind}")
        if layout not in (None, strided):
            raise ValueError(f"{name} is implemented for strided tensors only, got: {layout}")
        end = M - 1 if sym else M
        if name == "exponential":
            kwargs["sym"] = sym
        numbers = weights(np.arange(M, dtype=np.float64), end, *args, **kwargs)
        numbers = np.ones(1) if M == 1 else numbers
        return _gt.tensor(numbers, dtype=kind, device=device, requires_grad=requires_grad)

    return window


def _cosines(positions: np.ndarray, end: int, a: Sequence[float]) -> np.ndarray:
    angle = 2 * math.pi / max(end, 1) * positions
    return sum(((-1) ** i * factor * np.cos(i * angle) for i, factor in enumerate(a)), np.zeros(len(positions)))


@_window
def general_cosine(positions: np.ndarray, end: int, a: Sequence[float]) -> np.ndarray:
    """The general cosine window: a[0] - a[1] * cos(x) + a[2] * cos(2 * x) - ..."""
    if not isinstance(a, Sequence):
        raise TypeError("Coefficients must be a list/tuple")
    if not a:
        raise ValueError("Coefficients cannot be empty")
    return _cosines(positions, end, a)


@_window
def general_hamming(positions: np.ndarray, end: int, alpha: float = 0.54) -> np.ndarray:
    """The general Hamming window: alpha - (1 - alpha) * cos(x)."""
    return _cosines(positions, end, [alpha, 1 - alpha])


@_window
def hamming(positions: np.ndarray, end: int) -> np.ndarray:
    """The Hamming window: 0.54 - 0.46 * cos(x)."""
    return _cosines(positions, end, [0.54, 0.46])


@_window
def hann(positions: np.ndarray, end: int) -> np.ndarray:
    """The Hann window: 0.5 - 0.5 * cos(x)."""
    return _cosines(positions, end, [0.5, 0.5])


@_window
def blackman(positions: np.ndarray, end: int) -> np.ndarray:
    """The Blackman window: 0.42 - 0.5 * cos(x) + 0.08 * cos(2 * x)."""
    return _cosines(positions, end, [0.42, 0.5, 0.08])


@_window
def nuttall(positions: np.ndarray, end: int) -> np.ndarray:
    """The Nuttall window, four cosine terms chosen for small side lobes."""
    return _cosines(positions, end, [0.3635819, 0.4891775, 0.1365995, 0.0106411])


@_window
def bartlett(positions: np.ndarray, end: int) -> np.ndarray:
    """The Bartlett window, a triangle that is 0 at its ends."""
    return 1 - np.abs(2 / max(end, 1) * positions - 1)


@_window
def cosine(positions: np.ndarray, end: int) -> np.ndarray:
    """The cosine window: half a period of the sine."""
    return np.sin(math.pi / max(end + 1, 1) * (positions + 0.5))


@_window
def gaussian(positions: np.ndarray, end: int, std: float = 1.0) -> np.ndarray:
    """The Gaussian window: exp(-t ** 2 / (2 * std ** 2)), 1 at its centre."""
    if std <= 0:
        raise ValueError(f"Standard deviation must be positive, got: {std} instead.")
    return np.exp(-(((positions - end / 2) / (math.sqrt(2) * std)) ** 2))


@_window
def exponential(
    positions: np.ndarray, end: int, center: float | None = None, tau: float = 1.0, sym: bool = True
) -> np.ndarray:
    """The exponential window: exp(-abs(t - center) / tau)."""
    if tau <= 0:
        raise ValueError(f"Tau must be positive, got: {tau} instead.")
    if sym and center is not None:
        raise ValueError("Center must be None for symmetric windows")
    return np.exp(-np.abs(positions - (end / 2 if center is None else center)) / tau)


@_window
def kaiser(positions: np.ndarray, end: int, beta: float = 12.0) -> np.ndarray:
    """The Kaiser window: I_0(beta * sqrt(1 - t ** 2)) / I_0(beta) for t from -1 to 1."""
    if beta < 0:
        raise ValueError(f"beta must be non-negative, got: {beta} instead.")
    return np.i0(beta * np.sqrt(np.maximum(1 - (2 / max(end, 1) * positions - 1) ** 2, 0))) / np.i0(beta)
