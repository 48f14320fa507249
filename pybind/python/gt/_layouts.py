"""How elements lie in memory, as programs written for PyTorch say it."""

from __future__ import annotations


class _Word:
    """A value that is its name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"gt.{self._name}"

    def __reduce__(self) -> str:
        return self._name


class layout(_Word):  # noqa: N801 (PyTorch's name)
    """How elements lie in memory: there is `strided` alone."""


class memory_format(_Word):  # noqa: N801 (PyTorch's name)
    """In which order elements lie in memory. The daemon chooses: it says where there is a copy, and what `stride()`."""


strided = layout("strided")
contiguous_format = memory_format("contiguous_format")
preserve_format = memory_format("preserve_format")
channels_last = memory_format("channels_last")
channels_last_3d = memory_format("channels_last_3d")
