"""Window functions: weights for a stretch of a signal that end softly. Their numbers are computed in float64.

With `sym` a window is symmetric; without, it is the first `M` numbers of the symmetric one of `M + 1`, whose repetition
has no seam.
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
    """The window function of what gives the weights at places 0, 1, …, of which the last of the period is `end`."""

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


def _cosines(places: np.ndarray, end: int, a: Sequence[float]) -> np.ndarray:
    angle = 2 * math.pi / max(end, 1) * places
    return sum(((-1) ** i * factor * np.cos(i * angle) for i, factor in enumerate(a)), np.zeros(len(places)))


@_window
def general_cosine(places: np.ndarray, end: int, a: Sequence[float]) -> np.ndarray:
    """A sum of cosines, the signs of whose factors `a` alternate."""
    if not isinstance(a, Sequence):
        raise TypeError("Coefficients must be a list/tuple")
    if not a:
        raise ValueError("Coefficients cannot be empty")
    return _cosines(places, end, a)


@_window
def general_hamming(places: np.ndarray, end: int, alpha: float = 0.54) -> np.ndarray:
    """`alpha - (1 - alpha) cos`."""
    return _cosines(places, end, [alpha, 1 - alpha])


@_window
def hamming(places: np.ndarray, end: int) -> np.ndarray:
    """Hamming's: `0.54 - 0.46 cos`."""
    return _cosines(places, end, [0.54, 0.46])


@_window
def hann(places: np.ndarray, end: int) -> np.ndarray:
    """Von Hann's: `0.5 - 0.5 cos`."""
    return _cosines(places, end, [0.5, 0.5])


@_window
def blackman(places: np.ndarray, end: int) -> np.ndarray:
    """Blackman's: three cosines."""
    return _cosines(places, end, [0.42, 0.5, 0.08])


@_window
def nuttall(places: np.ndarray, end: int) -> np.ndarray:
    """Nuttall's: four cosines, with the smallest side lobes."""
    return _cosines(places, end, [0.3635819, 0.4891775, 0.1365995, 0.0106411])


@_window
def bartlett(places: np.ndarray, end: int) -> np.ndarray:
    """A triangle that is 0 at the ends."""
    return 1 - np.abs(2 / max(end, 1) * places - 1)


@_window
def cosine(places: np.ndarray, end: int) -> np.ndarray:
    """Half a wave of the sine."""
    return np.sin(math.pi / max(end + 1, 1) * (places + 0.5))


@_window
def gaussian(places: np.ndarray, end: int, std: float = 1.0) -> np.ndarray:
    """The normal density's bell, 1 at its top."""
    if std <= 0:
        raise ValueError(f"Standard deviation must be positive, got: {std} instead.")
    return np.exp(-(((places - end / 2) / (math.sqrt(2) * std)) ** 2))


@_window
def exponential(
    places: np.ndarray, end: int, center: float | None = None, tau: float = 1.0, sym: bool = True
) -> np.ndarray:
    """Falling from a centre, to an e-th over `tau`."""
    if tau <= 0:
        raise ValueError(f"Tau must be positive, got: {tau} instead.")
    if sym and center is not None:
        raise ValueError("Center must be None for symmetric windows")
    return np.exp(-np.abs(places - (end / 2 if center is None else center)) / tau)


@_window
def kaiser(places: np.ndarray, end: int, beta: float = 12.0) -> np.ndarray:
    """Kaiser's, of the modified Bessel function: the higher `beta`, the narrower."""
    if beta < 0:
        raise ValueError(f"beta must be non-negative, got: {beta} instead.")
    return np.i0(beta * np.sqrt(np.maximum(1 - (2 / max(end, 1) * places - 1) ** 2, 0))) / np.i0(beta)
