"""Window functions under the names they have outside `gt.signal.windows`: by default, the first of a period."""

from __future__ import annotations

from typing import Any

from gt import _gt
from gt._gt import Tensor


def _window(name: str, window_length: int, periodic: bool, *shape: Any, of: str = "", **options: Any) -> Tensor:
    from gt.signal import windows  # it knows the package

    if not isinstance(window_length, int):
        kind = type(window_length).__name__
        raise TypeError(f"{name}_window(): argument 'window_length' (position 1) must be int, not {kind}")
    if window_length < 0:
        raise RuntimeError(f"{name}_window requires non-negative window_length, got window_length={window_length}")
    dtype = options.pop("dtype", None) or _gt.get_default_dtype()
    if not dtype.is_floating_point:
        raise RuntimeError(f"{name}_window expects floating point dtypes, got: {dtype}")
    weights = getattr(windows, of or name)(window_length, *shape, sym=not periodic, dtype=_gt.float64)
    return _gt.tensor(weights, dtype=dtype, **options)


def bartlett_window(window_length: int, periodic: bool = True, **options: Any) -> Tensor:
    """A triangle that is 0 at the ends."""
    return _window("bartlett", window_length, periodic, **options)


def blackman_window(window_length: int, periodic: bool = True, **options: Any) -> Tensor:
    """Blackman's: three cosines."""
    return _window("blackman", window_length, periodic, **options)


def hamming_window(
    window_length: int, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, **options: Any
) -> Tensor:
    """Hamming's: `alpha - beta cos`."""
    return _window("hamming", window_length, periodic, [alpha, beta], of="general_cosine", **options)


def hann_window(window_length: int, periodic: bool = True, **options: Any) -> Tensor:
    """Von Hann's: `0.5 - 0.5 cos`."""
    return _window("hann", window_length, periodic, **options)


def kaiser_window(window_length: int, periodic: bool = True, beta: float = 12.0, **options: Any) -> Tensor:
    """Kaiser's, of the modified Bessel function: the higher `beta`, the narrower."""
    return _window("kaiser", window_length, periodic, beta, **options)


METHODS = ()
IN_PLACE = ()
FUNCTIONS = (bartlett_window, blackman_window, hamming_window, hann_window, kaiser_window)
