"""Classes that derive from `Tensor`: `as_subclass`, and what PyTorch's programs call in their constructors."""

from __future__ import annotations

from typing import TypeVar

from gt._gt import Tensor

T = TypeVar("T", bound=Tensor)


def as_subclass(t: Tensor, cls: type[T]) -> T:
    """The same tensor as an instance of a class that derives from `Tensor`; its constructor is not called.

    Operations on it return instances of the class, unless its `__torch_function__` does otherwise.

    Raises:
        TypeError: `cls` does not derive from `Tensor`.

    Example:
        >>> class Image(gt.Tensor):
        ...     pass
        >>> type(gt.ones(2).as_subclass(Image)).__name__
        'Image'
    """
    if not (isinstance(cls, type) and issubclass(cls, Tensor)):
        raise TypeError(f"as_subclass(): expected a class that derives from Tensor, but got {cls!r}")
    return Tensor.__new__(cls, _like=t)


def make_subclass(cls: type[T], data: Tensor, require_grad: bool = False) -> T:
    """A tensor of the same elements as `data`, off its graph, as an instance of a class that derives from `Tensor`."""
    made = as_subclass(data.detach(), cls)
    made.requires_grad = require_grad
    return made
