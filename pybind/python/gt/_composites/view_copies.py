"""Shapes under more of PyTorch's names: pieces of given sizes, and views as copies (`permute_copy`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from gt import _gt
from gt._composites import complex_ops
from gt._composites.common import check_rank
from gt._forms import write
from gt._gt import Tensor

_VIEWS = """
    as_strided diagonal expand permute split split_with_sizes squeeze t transpose unbind unfold unsqueeze view
""".split()
_BECOMES = "as_strided squeeze swapaxes t transpose unsqueeze".split()


def reshape_as(self: Tensor, other: Tensor) -> Tensor:
    """The same elements under the shape of another tensor."""
    return self.reshape(other.shape)


def split_with_sizes(input: Tensor, split_sizes: Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """The tensor cut along an axis into pieces of these sizes."""
    return input.split(list(split_sizes), dim)


def unsafe_split(input: Tensor, split_size: int, dim: int = 0) -> tuple[Tensor, ...]:
    """`split`."""
    return input.split(split_size, dim)


def unsafe_split_with_sizes(input: Tensor, split_sizes: Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """`split_with_sizes`."""
    return input.split(list(split_sizes), dim)


def unsafe_chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """`chunk`."""
    return input.chunk(chunks, dim)


def narrow_copy(input: Tensor, dim: int, start: int, length: int) -> Tensor:
    """`narrow`, as a copy."""
    return input.narrow(dim, start, length).clone()


def fill(input: Tensor, value: Tensor | complex) -> Tensor:
    """A copy whose elements are all one number."""
    return _gt.where(_gt.ones((), dtype=_gt.bool), _gt.as_tensor(value).to(input.dtype), input)


def alias_copy(input: Tensor) -> Tensor:
    """A copy."""
    return input.clone()


def adjoint(input: Tensor) -> Tensor:
    """`mT`: there are no complex numbers to conjugate."""
    return input.mT


def unravel_index(indices: Tensor, shape: int | Sequence[int]) -> tuple[Tensor, ...]:
    """Positions in a flattened tensor of this shape as positions along each of its axes."""
    if indices.is_floating_point() or indices.dtype == _gt.bool:
        raise ValueError(f"expected 'indices' to be integer dtype, but got {indices.dtype}")
    sizes = [shape] if isinstance(shape, int) else list(shape)
    if any(size < 0 for size in sizes):
        raise ValueError(f"'shape' cannot have negative values, but got {tuple(sizes)}")
    places = []
    for size in reversed(sizes):
        places.append(indices % size)
        indices = indices // size
    return tuple(reversed(places))


def _copy_of(name: str) -> Callable[..., Any]:
    """The copy of what a method views."""

    def function(input: Tensor, *args: Any, out: Any = None, **kwargs: Any) -> Any:
        result = getattr(input, name)(*args, **kwargs)
        if out is not None:
            return write(f"{name}_copy", out, result)
        return result.clone() if isinstance(result, Tensor) else tuple(part.clone() for part in result)

    function.__name__ = function.__qualname__ = f"{name}_copy"
    function.__doc__ = f"`{name}`, as a copy."
    return function


def _becomes(name: str) -> Callable[..., Tensor]:
    """The in-place method that makes a tensor its own view."""

    def method(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return self._become(getattr(self, name)(*args, **kwargs))

    method.__name__ = method.__qualname__ = f"{name}_"
    method.__doc__ = f"`{name}`, in place: the tensor becomes the view."
    return method


def _h(self: Tensor) -> Tensor:
    """A matrix transposed; there are no complex numbers to conjugate."""
    if self.ndim != 0:
        check_rank("tensor.H", input=(self, 2))
    return self.mT if self.ndim else self


def _imag(self: Tensor) -> NoReturn:  # noqa: ARG001
    """Raises: there are no complex numbers."""
    raise TypeError("imag is not implemented for tensors with non-complex dtypes.")


METHODS = (split_with_sizes, unsafe_split, unsafe_split_with_sizes, unsafe_chunk, narrow_copy, adjoint)
TENSOR_METHODS = (reshape_as, *map(_becomes, _BECOMES))
IN_PLACE = ()
FUNCTIONS = (fill, alias_copy, unravel_index, *map(_copy_of, _VIEWS))
PROPERTIES = {"H": _h, "mH": adjoint, "real": complex_ops.real, "imag": _imag}
