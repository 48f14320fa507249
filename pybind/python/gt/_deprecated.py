"""Deprecated names and signatures of PyTorch's, which warn as in PyTorch."""

from __future__ import annotations

import functools
import types
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def deprecated(message: str, kind: type[Warning] = FutureWarning) -> Callable[[F], F]:
    """A decorator for a deprecated function, which warns in PyTorch's words when it is called."""

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def warns(*args: Any, **kwargs: Any) -> Any:
            warnings.warn(message, kind, stacklevel=2)
            return function(*args, **kwargs)

        return warns  # type: ignore[return-value]

    return decorate


# The parameters that the numbers are, by the kinds of the arguments (t: tensor, n: number), for functions and methods.
_NUMBERS = {
    "add": {"tnt": ("alpha",)},
    "sub": {"tnt": ("alpha",)},
    "addcmul": {"tntt": ("value",)},
    "addcdiv": {"tntt": ("value",)},
}
# The tensors behind the numbers, which programs may give by name.
_TENSORS = frozenset("other tensor1 tensor2 mat mat1 mat2 vec vec1 vec2 batch1 batch2".split())
_NUMBERS_OF_FUNCTIONS = {"nttt": ("beta",), "ntntt": ("beta", "alpha")}
_NUMBERS_OF_METHODS = {"tntt": ("beta",), "tnntt": ("beta", "alpha")}


def numbers_first(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Calls a function by a former signature of PyTorch's, in which numbers precede tensors, as in `add(2, other)`.

    Tensors that are given by name, as in `add(2, other=other)`, count as the last ones.

    Args:
        function: The function or method, whose present signature the arguments do not fit.
        args: The arguments that were given by position, a method's tensor among them.
        kwargs: The arguments that were given by name.

    Returns:
        The result, or `NotImplemented` if the arguments do not fit a former signature.
    """
    is_method = isinstance(function, types.MethodDescriptorType)
    others = _NUMBERS_OF_METHODS if is_method else _NUMBERS_OF_FUNCTIONS
    kinds = "".join("n" if isinstance(value, int | float | complex) else "t" for value in args)
    kinds += "t" * len(_TENSORS & kwargs.keys())
    names = _NUMBERS.get(function.__name__.removesuffix("_"), others).get(kinds)
    if names is None or any(name in kwargs for name in names):
        return NotImplemented
    values = dict(zip(names, (value for value, kind in zip(args, kinds, strict=False) if kind == "n"), strict=True))
    options = ", ".join(f"{name}={value!r}" for name, value in values.items())
    warnings.warn(
        f"{function.__name__}() with a number before a tensor is deprecated: use {function.__name__}(..., {options})",
        UserWarning,
        stacklevel=2,
    )
    return function(*(value for value, kind in zip(args, kinds, strict=False) if kind == "t"), **values, **kwargs)
