"""Padding layers for one to three spatial axes: constant, zero, reflection, replication and circular padding."""

from __future__ import annotations

from gt._functions import nn_functional as functional
from gt._gt import Tensor
from gt.nn.common_types import Sizes
from gt.nn.module import Module

__all__ = [
    "CircularPad1d", "CircularPad2d", "CircularPad3d", "ConstantPad1d", "ConstantPad2d", "ConstantPad3d",
    "ReflectionPad1d", "ReflectionPad2d", "ReflectionPad3d", "ReplicationPad1d", "ReplicationPad2d",
    "ReplicationPad3d", "ZeroPad1d", "ZeroPad2d", "ZeroPad3d",
]  # fmt: skip

_PADDING = (
    "\n\nArgs:\n    padding: One size for all ends; or (before, after) for the last axis, then the one before it, …"
)
_VALUE = "\n    value: The constant."


class _Pad(Module):
    rank: int
    mode: str

    def __init__(self, padding: Sizes) -> None:
        super().__init__()
        pads = (padding,) * (2 * self.rank) if isinstance(padding, int) else tuple(padding)
        if len(pads) != 2 * self.rank:
            raise ValueError(f"{type(self).__name__}: padding must have {2 * self.rank} elements, but got {padding}")
        self.padding = pads

    def forward(self, input: Tensor) -> Tensor:
        return functional.pad(input, self.padding, self.mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ConstantPad(_Pad):
    mode = "constant"

    def __init__(self, padding: Sizes, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return functional.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class _ZeroPad(_ConstantPad):
    def __init__(self, padding: Sizes) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


def _layers(kind: type[_Pad], name: str, doc: str, mode: str | None = None) -> list[type[_Pad]]:
    """The layers of one kind for 1, 2 and 3 axes."""
    made = []
    for rank in (1, 2, 3):
        described = doc.format(rank) + _PADDING + (_VALUE if kind is _ConstantPad else "")
        words = {"__doc__": described, "__module__": __name__, "rank": rank}
        made.append(type(f"{name}{rank}d", (kind,), words | ({"mode": mode} if mode else {})))
    return made


ConstantPad1d, ConstantPad2d, ConstantPad3d = _layers(
    _ConstantPad, "ConstantPad", "{}-D padding with a constant value, at both ends of each of the last axes."
)
ZeroPad1d, ZeroPad2d, ZeroPad3d = _layers(
    _ZeroPad, "ZeroPad", "{}-D padding with zeros, at both ends of each of the last axes."
)
ReflectionPad1d, ReflectionPad2d, ReflectionPad3d = _layers(
    _Pad,
    "ReflectionPad",
    "{}-D padding with the reflection of the input at its edges, which are not repeated.",
    "reflect",
)
ReplicationPad1d, ReplicationPad2d, ReplicationPad3d = _layers(
    _Pad, "ReplicationPad", "{}-D padding that repeats the elements at the edges.", "replicate"
)
CircularPad1d, CircularPad2d, CircularPad3d = _layers(
    _Pad, "CircularPad", "{}-D periodic padding, with the elements of the opposite end.", "circular"
)
