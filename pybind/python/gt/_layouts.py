"""Layouts and memory formats, for programs written for PyTorch."""

from __future__ import annotations

from gt import _gt


def package() -> str:
    """The package whose names are printed: `torch` in a program that was written for PyTorch, else `gt`."""
    return str(_gt.float32).partition(".")[0]


class _Word:
    """A constant with a name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"{package()}.{self._name}"

    def __reduce__(self) -> str:
        return self._name


class layout(_Word):  # noqa: N801 (PyTorch's name)
    """A layout of elements in memory: `gt.strided`, or that of a sparse tensor, as `gt.sparse_coo`."""


class memory_format(_Word):  # noqa: N801 (PyTorch's name)
    """An order of elements in memory, as `gt.channels_last`: it decides when operations copy."""


strided = layout("strided")
sparse_coo = layout("sparse_coo")
sparse_csr = layout("sparse_csr")
sparse_csc = layout("sparse_csc")
contiguous_format = memory_format("contiguous_format")
legacy_contiguous_format = contiguous_format
preserve_format = memory_format("preserve_format")
channels_last = memory_format("channels_last")
channels_last_3d = memory_format("channels_last_3d")
