"""`Tensor.__array_namespace__`, the entry point of the Python array API standard."""

from __future__ import annotations

from typing import Any

from gt._gt import Tensor


def __array_namespace__(self: Tensor, *, api_version: str | None = None) -> Any:  # noqa: ARG001, N807 (the protocol's)
    """The module `gt.array_api`, which has the functions of the Python array API standard.

    Raises:
        ValueError: A version of the standard is requested that is newer than the supported one.
    """
    from gt import array_api  # loaded on first use: few programs ask for it

    if api_version is not None and api_version > array_api.__array_api_version__:
        raise ValueError(
            f"__array_namespace__: the functions are those of version {array_api.__array_api_version__} of the "
            f"standard, and {api_version} was asked for"
        )
    return array_api
