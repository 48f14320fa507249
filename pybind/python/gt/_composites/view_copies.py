"""Copies of views (`permute_copy` and the like), in-place views (`squeeze_`), and other names of shape functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from gt import _gt
from gt._composites.common import check_rank
from gt._forms import write
from gt._gt import Tensor

_VIEWS = """
    as_strided diagonal expand permute split split_with_sizes squeeze t transpose unbind unfold unsqueeze view
""".split()
_IN_PLACE_VIEWS = "as_strided squeeze swapaxes t transpose unsqueeze".split()


def reshape_as(self: Tensor, other: Tensor) -> Tensor:
    """`reshape` to the shape of another tensor."""
    return self.reshape(other.shape)


def split_with_sizes(input: Tensor, split_sizes: Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """Views of the tensor cut along an axis into parts of given sizes.

    Example:
        >>> gt.split_with_sizes(gt.arange(5), [1, 4])
        (tensor([0]), tensor([1, 2, 3, 4]))
    """
    return input.split(list(split_sizes), dim)


def unsafe_split(input: Tensor, split_size: int, dim: int = 0) -> tuple[Tensor, ...]:
    """`split` under another name; its views are as safe to write to."""
    return input.split(split_size, dim)


def unsafe_split_with_sizes(input: Tensor, split_sizes: Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """`split_with_sizes` under another name; its views are as safe to write to."""
    return input.split(list(split_sizes), dim)


def unsafe_chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """`chunk` under another name; its views are as safe to write to."""
    return input.chunk(chunks, dim)


def narrow_copy(input: Tensor, dim: int, start: int, length: int) -> Tensor:
    """A copy of `length` positions of an axis from `start` on."""
    return input.narrow(dim, start, length).clone()


def fill(input: Tensor, value: Tensor | complex) -> Tensor:
    """A copy of the tensor's shape and dtype with every element equal to `value`.

    Example:
        >>> gt.fill(gt.zeros(2), 3)
        tensor([3., 3.])
    """
    return _gt.where(_gt.ones((), dtype=_gt.bool), _gt.as_tensor(value).to(input.dtype), input)


def alias_copy(input: Tensor) -> Tensor:
    """A copy of the tensor, as `clone` makes."""
    return input.clone()


def adjoint(input: Tensor) -> Tensor:
    """The conjugate transpose of matrices: `mT`, since there are no complex dtypes."""
    return input.mT


def unravel_index(indices: Tensor, shape: int | Sequence[int]) -> tuple[Tensor, ...]:
    """Coordinates along each axis from indices into the flattened tensor.

    Args:
        indices: A tensor of integers.
        shape: The shape that the indices refer to.

    Returns:
        A tuple with a tensor of indices for each axis.

    Example:
        >>> gt.unravel_index(gt.tensor([0, 5]), (2, 3))
        (tensor([0, 1]), tensor([0, 2]))
    """
    if indices.is_floating_point() or indices.dtype == _gt.bool:
        raise ValueError(f"expected 'indices' to be integer dtype, but got {indices.dtype}")
    sizes = [shape] if isinstance(shape, int) else list(shape)
    if any(size < 0 for size in sizes):
        raise ValueError(f"'shape' cannot have negative values, but got {tuple(sizes)}")
    coordinates = []
    for size in reversed(sizes):
        coordinates.append(indices % size)
        indices = indices // size
    return tuple(reversed(coordinates))


def _view_copy(name: str) -> Callable[..., Any]:
    """The function that copies the view which a method makes, as `permute_copy`."""

    def function(input: Tensor, *args: Any, out: Any = None, **kwargs: Any) -> Any:
        result = getattr(input, name)(*args, **kwargs)
        if out is not None:
            return write(f"{name}_copy", out, result)
        return result.clone() if isinstance(result, Tensor) else tuple(part.clone() for part in result)

    function.__name__ = function.__qualname__ = f"{name}_copy"
    function.__doc__ = f"`{name}`, as a copy."
    return function


def _in_place_view(name: str) -> Callable[..., Tensor]:
    """The in-place method that makes a tensor the view which a method makes of it, as `unsqueeze_`."""

    def method(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return self._become(getattr(self, name)(*args, **kwargs))

    method.__name__ = method.__qualname__ = f"{name}_"
    method.__doc__ = f"`{name}`, in place: the tensor becomes the view."
    return method


def _h(self: Tensor) -> Tensor:
    """The conjugate transpose of a matrix: its transpose, since there are no complex dtypes."""
    if self.ndim != 0:
        check_rank("tensor.H", input=(self, 2))
    return self.mT if self.ndim else self


def _real(self: Tensor) -> Tensor:
    """The real part: the tensor itself, since there are no complex dtypes."""
    return self


def _imag(self: Tensor) -> NoReturn:  # noqa: ARG001
    """The imaginary part, which real tensors do not have: raises TypeError."""
    raise TypeError("imag is not implemented for tensors with non-complex dtypes.")


METHODS = (split_with_sizes, unsafe_split, unsafe_split_with_sizes, unsafe_chunk, narrow_copy, adjoint)
TENSOR_METHODS = (reshape_as, *map(_in_place_view, _IN_PLACE_VIEWS))
IN_PLACE = ()
FUNCTIONS = (fill, alias_copy, unravel_index, *map(_view_copy, _VIEWS))
PROPERTIES = {"H": _h, "mH": adjoint, "real": _real, "imag": _imag}
