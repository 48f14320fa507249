"""Dropout layers: of elements, of whole channels, and for SELU networks."""

from __future__ import annotations

from typing import Any

from gt.nn.function_module import FunctionModule

__all__ = ["AlphaDropout", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "FeatureAlphaDropout"]


class Dropout(FunctionModule, function="dropout", also=("training",)):
    """Dropout (Srivastava et al. 2014): zeroes each element with probability `p` in training mode.

    The other elements are scaled by `1 / (1 - p)`, so that the expectation stays the same. In evaluation mode it is the
    identity.

    Args:
        p: The probability of zeroing an element.
        inplace: Whether the result overwrites the input.

    Shape:
        Any shape, to the same.

    Example:
        >>> layer = gt.nn.Dropout(0.5)
        >>> sorted(set(layer(gt.ones(1000)).tolist()))
        [0.0, 2.0]
    """

    p: float = 0.5
    inplace: bool = False

    def _set(self, **options: Any) -> None:
        if not 0 <= options["p"] <= 1:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {options['p']}")
        super()._set(**options)

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class Dropout1d(Dropout, function="dropout1d", also=("training",)):
    """Dropout of whole channels of `(N, C, L)` or `(C, L)` in training mode (Tompson et al. 2015).

    Args:
        p: The probability of zeroing a channel; the others are scaled by `1 / (1 - p)`.
        inplace: Whether the result overwrites the input.
    """


class Dropout2d(Dropout, function="dropout2d", also=("training",)):
    """Dropout of whole channels of `(N, C, H, W)` in training mode (Tompson et al. 2015).

    Args:
        p: The probability of zeroing a channel; the others are scaled by `1 / (1 - p)`.
        inplace: Whether the result overwrites the input.

    Example:
        >>> gt.nn.Dropout2d(0.5).eval()(gt.ones(1, 1, 1, 2))
        tensor([[[[1., 1.]]]])
    """


class Dropout3d(Dropout, function="dropout3d", also=("training",)):
    """Dropout of whole channels of `(N, C, D, H, W)` or `(C, D, H, W)` in training mode (Tompson et al. 2015).

    Args:
        p: The probability of zeroing a channel; the others are scaled by `1 / (1 - p)`.
        inplace: Whether the result overwrites the input.
    """


class AlphaDropout(Dropout, function="alpha_dropout", also=("training",)):
    """Alpha dropout (Klambauer et al. 2017): keeps mean 0 and variance 1, for networks of `SELU`.

    Dropped elements take SELU's lower limit, and an affine map restores the mean and variance.

    Args:
        p: The probability of dropping an element.
        inplace: Whether the result overwrites the input.
    """


class FeatureAlphaDropout(Dropout, function="feature_alpha_dropout", also=("training",)):
    """Alpha dropout of whole channels.

    Args:
        p: The probability of dropping a channel.
        inplace: Whether the result overwrites the input.
    """
