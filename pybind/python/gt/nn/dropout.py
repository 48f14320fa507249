"""Dropout layers: of elements, of whole channels, and for SELU networks."""

from __future__ import annotations

from gt._gt import Tensor
from gt.nn import functional
from gt.nn.module import Module


class Dropout(Module):
    """In training, each element is set to 0 with probability `p` and the others are divided by `1 - p`."""

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p = p
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return functional.dropout(input, self.p, self.training, self.inplace)

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class _ChannelDropout(Dropout):
    function: str

    def forward(self, input: Tensor) -> Tensor:
        return getattr(functional, self.function)(input, self.p, self.training, self.inplace)


class Dropout1d(_ChannelDropout):
    """In training, each channel of `(samples, channels, length)` is set to 0 with probability `p`."""

    function = "dropout1d"


class Dropout2d(_ChannelDropout):
    """In training, each channel of `(samples, channels, height, width)` is set to 0 with probability `p`."""

    function = "dropout2d"


class Dropout3d(_ChannelDropout):
    """In training, each channel of `(samples, channels, depth, height, width)` is set to 0 with probability `p`."""

    function = "dropout3d"


class AlphaDropout(_ChannelDropout):
    """Dropout that keeps mean 0 and variance 1, for `selu`."""

    function = "alpha_dropout"


class FeatureAlphaDropout(_ChannelDropout):
    """`AlphaDropout` of whole channels."""

    function = "feature_alpha_dropout"
