"""Dropout as functions: of elements, of whole channels, and for SELU networks; `gt.nn.functional` has them."""

from __future__ import annotations

import math

from gt import _core as gt
from gt._gt import Tensor


def _check(p: float) -> None:
    if not 0 <= p <= 1:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")


def _finish(input: Tensor, result: Tensor, inplace: bool) -> Tensor:
    return input._rebind(result) if inplace else result


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Dropout (Srivastava et al. 2014): zeroes each element with probability `p`, scales the others by `1 / (1 - p)`.

    Args:
        input: Any tensor.
        p: The probability of zeroing an element.
        training: Whether to drop; if false, the result is `input`.
        inplace: Whether the result overwrites the input.

    Example:
        >>> gt.nn.functional.dropout(gt.ones(3), training=False)
        tensor([1., 1., 1.])
    """
    _check(p)
    if not training or p == 0:
        return input
    dropped = input * 0.0 if p == 1 else gt.where(gt.rand_like(input) < p, 0.0, input * (1 / (1 - p)))
    return _finish(input, dropped, inplace)


def _drop_channels(input: Tensor, axes: int, p: float, training: bool, inplace: bool) -> Tensor:
    """Dropout that draws one number for all elements of the last `axes` axes."""
    _check(p)
    if not training or p == 0:
        return input
    if p == 1:
        return _finish(input, input * 0.0, inplace)
    lead = input.shape[: input.ndim - axes]
    dropped = gt.rand(*lead, *[1] * axes) < p
    return _finish(input, gt.where(dropped, 0.0, input * (1 / (1 - p))), inplace)


def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Dropout of whole channels of `(N, C, L)` or `(C, L)`, each with probability `p` (Tompson et al. 2015)."""
    if input.ndim not in (2, 3):
        raise RuntimeError(f"dropout1d: Expected 2D or 3D input, but received a {input.ndim}D input.")
    return _drop_channels(input, 1, p, training, inplace)


def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Dropout of whole channels of `(N, C, H, W)`, each with probability `p` (Tompson et al. 2015)."""
    if input.ndim < 3:
        raise RuntimeError(f"dropout2d: Expected (samples, channels, …), but received a {input.ndim}D input.")
    # As in PyTorch, three axes are (N, C, L).
    return _drop_channels(input, input.ndim - 2, p, training, inplace)


def dropout3d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Dropout of whole channels of `(N, C, D, H, W)` or `(C, D, H, W)`, each with probability `p` (Tompson et al.

    2015).
    """
    if input.ndim not in (4, 5):
        raise RuntimeError(f"dropout3d: Expected 4D or 5D input, but received a {input.ndim}D input.")
    return _drop_channels(input, 3, p, training, inplace)


# The limit of SELU for large negative inputs: -alpha * scale.
_ALPHA_LEAST = -1.7580993408473766


def _alpha(input: Tensor, axes: int, p: float, training: bool, inplace: bool) -> Tensor:
    _check(p)
    if not training or p == 0:
        return input
    if p == 1:
        return _finish(input, input * 0.0, inplace)
    scale = 1 / math.sqrt((_ALPHA_LEAST**2 * p + 1) * (1 - p))
    shape = (*input.shape[: input.ndim - axes], *[1] * axes)
    dropped = gt.rand(*shape) < p
    result = gt.where(dropped, _ALPHA_LEAST, input) * scale - _ALPHA_LEAST * p * scale
    return _finish(input, result, inplace)


def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Alpha dropout (Klambauer et al.

    2017): dropped elements take SELU's lower limit; mean 0 and variance 1 are kept.
    """
    return _alpha(input, 0, p, training, inplace)


def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Alpha dropout of whole channels of `(N, C, *)`."""
    if input.ndim < 2 and training and 0 < p < 1:
        raise RuntimeError("Feature dropout requires at least 2 dimensions in the input")
    return _alpha(input, max(input.ndim - 2, 0), p, training, inplace)
