"""Window functions under the names they have outside `gt.signal.windows`; periodic by default."""

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
    """The Bartlett window, a triangle that is 0 at its ends.

    Args:
        window_length: The number of elements.
        periodic: Whether the window is one period of a periodic function; symmetric otherwise.
        options: `dtype`, `device` and `requires_grad`, as for `gt.zeros`.

    Example:
        >>> gt.bartlett_window(5, periodic=False)
        tensor([0.0000, 0.5000, 1.0000, 0.5000, 0.0000])
    """
    return _window("bartlett", window_length, periodic, **options)


def blackman_window(window_length: int, periodic: bool = True, **options: Any) -> Tensor:
    """The Blackman window: 0.42 - 0.5 * cos(x) + 0.08 * cos(2 * x).

    Args:
        window_length: The number of elements.
        periodic: Whether the window is one period of a periodic function; symmetric otherwise.
        options: `dtype`, `device` and `requires_grad`, as for `gt.zeros`.

    Example:
        >>> gt.blackman_window(5, periodic=False).shape
        gt.Size([5])
    """
    return _window("blackman", window_length, periodic, **options)


def hamming_window(
    window_length: int, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, **options: Any
) -> Tensor:
    """The Hamming window: alpha - beta * cos(x).

    Args:
        window_length: The number of elements.
        periodic: Whether the window is one period of a periodic function; symmetric otherwise.
        alpha: The constant.
        beta: The amplitude of the cosine.
        options: `dtype`, `device` and `requires_grad`, as for `gt.zeros`.

    Example:
        >>> gt.hamming_window(5, periodic=False)
        tensor([0.0800, 0.5400, 1.0000, 0.5400, 0.0800])
    """
    return _window("hamming", window_length, periodic, [alpha, beta], of="general_cosine", **options)


def hann_window(window_length: int, periodic: bool = True, **options: Any) -> Tensor:
    """The Hann window: 0.5 - 0.5 * cos(x).

    Args:
        window_length: The number of elements.
        periodic: Whether the window is one period of a periodic function; symmetric otherwise.
        options: `dtype`, `device` and `requires_grad`, as for `gt.zeros`.

    Example:
        >>> gt.hann_window(4)
        tensor([0.0000, 0.5000, 1.0000, 0.5000])
    """
    return _window("hann", window_length, periodic, **options)


def kaiser_window(window_length: int, periodic: bool = True, beta: float = 12.0, **options: Any) -> Tensor:
    """The Kaiser window: I_0(beta * sqrt(1 - t ** 2)) / I_0(beta) for t from -1 to 1.

    Args:
        window_length: The number of elements.
        periodic: Whether the window is one period of a periodic function; symmetric otherwise.
        beta: The shape: the larger, the narrower the window.
        options: `dtype`, `device` and `requires_grad`, as for `gt.zeros`.

    Example:
        >>> gt.kaiser_window(5, periodic=False).shape
        gt.Size([5])
    """
    return _window("kaiser", window_length, periodic, beta, **options)


METHODS = ()
IN_PLACE = ()
FUNCTIONS = (bartlett_window, blackman_window, hamming_window, hann_window, kaiser_window)
