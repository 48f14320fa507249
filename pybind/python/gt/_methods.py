"""Methods and functions that are about Python or about handles, which the extension does not declare.

They change which tensor a handle is bound to, take indices and callables of Python's, or give other names to views.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from gt import _gt
from gt._functions import top
from gt._gt import Tensor
from gt._layouts import contiguous_format, preserve_format
from gt._types import Size


def resize_(self: Tensor, *sizes: int | Sequence[int], memory_format: Any = None) -> Tensor:
    """Gives the tensor another shape in place, with its first elements in row-major order.

    Raises:
        NotImplementedError: The shape has more elements than the tensor: there is no memory behind them.
    """
    if memory_format not in (None, contiguous_format, preserve_format):
        raise NotImplementedError(f"resize_() to {memory_format} is not there: use gt.empty_strided")
    shape = list(sizes[0]) if len(sizes) == 1 and not isinstance(sizes[0], int) else list(sizes)
    count = math.prod(shape)
    if self.requires_grad:
        raise RuntimeError("cannot resize variables that require grad")
    if shape == list(self.shape):
        return self
    if self.numel() == 0:
        self.data = self.new_empty(shape)
        return self
    if count > self.numel():
        raise NotImplementedError(
            f"resize_({shape}): there are only {self.numel()} elements, and GT shows no memory that follows them. Use "
            "new_empty() for another tensor"
        )
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    return self._become(self.as_strided(shape, strides))


def resize_as_(self: Tensor, the_template: Tensor, *, memory_format: Any = None) -> Tensor:
    """`resize_` to the shape of another tensor."""
    return resize_(self, the_template.shape, memory_format=memory_format)


def set_(self: Tensor, source: Tensor | None = None, *args: Any) -> NoReturn:
    """Sharing another tensor's memory, which GT does not support.

    Raises:
        NotImplementedError: Always; the message names what to use instead.
    """
    raise NotImplementedError(
        "set_(): GT shows no memory to share. Use x.data = y to give a tensor another's elements, or a view"
    )


def index_put(input: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> Tensor:
    """A copy after `copy[indices] = values`.

    Args:
        input: A tensor.
        indices: An index tensor for each axis; `None` keeps an axis.
        values: A tensor that broadcasts to the indexed elements.
        accumulate: Whether values are added to the elements instead, repeated indices each time.

    Example:
        >>> gt.zeros(3).index_put((gt.tensor([0, 0, 2]),), gt.tensor(1.0), accumulate=True)
        tensor([2., 0., 1.])
    """
    return _gt.index_put(input, indices, values, accumulate)


def empty_strided(size: Sequence[int], stride: Sequence[int], **options: Any) -> Tensor:
    """A tensor of a shape with given strides, to be written to later."""
    last = sum((extent - 1) * distance for extent, distance in zip(size, stride, strict=False))
    memory = top.empty(last + 1 if all(size) else 0, **options)
    return memory.detach().as_strided(size, stride).requires_grad_(memory.requires_grad)


def empty_permuted(size: Sequence[int], physical_layout: Sequence[int], **options: Any) -> Tensor:
    """A tensor to be written to later, whose axes are in the order `physical_layout` in memory."""
    if len(size) != len(physical_layout):
        raise RuntimeError(
            f"Number of dimensions in size does not match the length of the physical_layout; i.e. len(size) = "
            f"{len(size)} is not equal to len(physical_layout) = {len(physical_layout)}"
        )
    for axis in physical_layout:
        if not 0 <= axis < len(size):
            raise RuntimeError(f"Dimension out of range (expected to be between 0 and {len(size) - 1}, but got {axis})")
        if list(physical_layout).count(axis) > 1:
            raise RuntimeError("Duplicate dim not allowed")
    order = [list(physical_layout).index(axis) for axis, _ in enumerate(size)]
    memory = top.empty([size[axis] for axis in physical_layout], **options)
    return memory.detach().permute(order).requires_grad_(memory.requires_grad)


def _like(t: Tensor, options: dict[str, Any]) -> dict[str, Any]:
    """The options of a creation function, with the dtype of `t` unless one is given."""
    return {**options, "dtype": options.get("dtype") or t.dtype}


def new_tensor(self: Tensor, data: Any, **options: Any) -> Tensor:
    """`gt.tensor` with the dtype of this tensor unless one is given."""
    return _gt.tensor(data, **_like(self, options))


def new_empty_strided(self: Tensor, size: Sequence[int], stride: Sequence[int], **options: Any) -> Tensor:
    """`gt.empty_strided` with the dtype of this tensor unless one is given."""
    return empty_strided(size, stride, **_like(self, options))


def new(self: Tensor, *data: Any, device: Any = None) -> Tensor:
    """A tensor with the dtype of this one, from sizes (`new_empty`) or from data (`new_tensor`)."""
    sizes = len(data) != 1 or isinstance(data[0], int | Size)
    made = Tensor(*data, device=device) if sizes else _gt.tensor(data[0], device=device)
    return made.to(self.dtype)


def broadcast_shapes(*shapes: tuple[int, ...] | int) -> Size:
    """The shape to which tensors of these shapes broadcast.

    Raises:
        RuntimeError: They do not broadcast.

    Example:
        >>> gt.broadcast_shapes((3, 1), (2,))
        gt.Size([3, 2])
    """
    sizes = [(shape,) if isinstance(shape, int) else tuple(shape) for shape in shapes]
    rank = max(map(len, sizes), default=0)
    result = [1] * rank
    for own in sizes:
        for axis, size in enumerate(own, rank - len(own)):
            if size not in (1, result[axis]) and result[axis] != 1:
                raise RuntimeError(
                    "Shape mismatch: objects cannot be broadcast to a single shape: "
                    + ", ".join(str(list(own)) for own in sizes)
                )
            if size != 1:
                result[axis] = size
    return Size(result)


def _apply(self: Tensor, name: str, function: Callable[..., Any], others: dict[str, Tensor]) -> Tensor:
    if self.requires_grad:
        raise RuntimeError(f"Can't call {name}() on Variable that requires grad. Use var.detach().{name}() instead.")
    for word, other in others.items():
        if other.dtype != self.dtype:
            raise TypeError(f"{name}: expected {self.type()} for '{word}' (got {other.type()})")
    kind: type = bool if self.dtype == _gt.bool else float if self.is_floating_point() else int
    columns = [t.expand(self.shape).reshape(-1).tolist() for t in (self, *(t.detach() for t in others.values()))]
    values = [kind(function(*row)) for row in zip(*columns, strict=True)]
    return self.copy_(_gt.tensor(values, dtype=self.dtype).reshape(self.shape))


def apply_(self: Tensor, callable: Callable[..., Any]) -> Tensor:
    """Applies a Python function to each element in place. Slow: elements are fetched; no gradient.

    Example:
        >>> gt.tensor([1.0, 2.0]).apply_(lambda x: x + 0.5)
        tensor([1.5000, 2.5000])
    """
    return _apply(self, "apply_", callable, {})


def map_(self: Tensor, tensor: Tensor, callable: Callable[..., Any]) -> Tensor:
    """Applies a Python function to each pair of elements of two tensors, and writes the results to this one."""
    return _apply(self, "map_", callable, {"other": tensor})


def map2_(self: Tensor, x: Tensor, y: Tensor, callable: Callable[..., Any]) -> Tensor:
    """Applies a Python function to each triple of elements of three tensors, and writes the results to this one."""
    return _apply(self, "map2_", callable, {"x": x, "y": y})


def _check_matrix(t: Tensor) -> None:
    if t.ndim != 2:
        raise RuntimeError(f"tensor.H: expected input to be 2D, but got {t.ndim}D, of size {list(t.shape)}")


def _h(self: Tensor) -> Tensor:
    """The conjugate transpose of a matrix; of a real one a view, its transpose."""
    if self.ndim != 0:
        _check_matrix(self)
    return self.mT.conj() if self.ndim else self.conj()


def _real(self: Tensor) -> Tensor:
    """A view of the real parts; a real tensor itself."""
    return top.real(self) if self.dtype.is_complex else self


def _imag(self: Tensor) -> Tensor:
    """A view of the imaginary parts, which real tensors do not have."""
    if not self.dtype.is_complex:
        raise TypeError("imag is not implemented for tensors with non-complex dtypes.")
    return top.imag(self)


def _set_real(self: Tensor, value: Any) -> None:
    """Writes the real parts."""
    self.real.copy_(_as_tensor(value))


def _set_imag(self: Tensor, value: Any) -> None:
    """Writes the imaginary parts."""
    self.imag.copy_(_as_tensor(value))


def _as_tensor(value: Any) -> Tensor:
    return value if isinstance(value, _gt.Tensor) else _gt.tensor(value)


def _mh(self: Tensor) -> Tensor:
    """The conjugate transpose of matrices; of real ones a view, `mT`."""
    return self.mT.conj()


def numel(input: Tensor) -> int:
    """The number of elements.

    Example:
        >>> gt.numel(gt.zeros(2, 3))
        6
    """
    return input.numel()


def clone(input: Tensor, *, memory_format: Any = preserve_format) -> Tensor:
    """A copy that gradients flow through; see `Tensor.clone`."""
    return input.clone(memory_format=memory_format)


def detach(input: Tensor) -> Tensor:
    """The same elements without the history of operations; see `Tensor.detach`."""
    return input.detach()


def is_floating_point(input: Tensor) -> bool:
    """Whether the dtype is a floating-point one."""
    return input.is_floating_point()


def index_put_(self: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> Tensor:
    """In-place `index_put`: writes the result to this tensor, and returns this tensor."""
    if not accumulate:
        self[tuple(slice(None) if index is None else index for index in indices)] = values
        return self
    since = _gt.tape_clock()
    with self._in_place():
        return self._rebind_part(index_put(self, indices, values, accumulate), since, accumulate)


def contains(self: Tensor, element: object) -> bool:
    """Whether an element equals a number, or the broadcast element of a tensor: `element in x`."""
    if not isinstance(element, Tensor | bool | int | float):
        raise RuntimeError(f"Tensor.__contains__ only supports Tensor or scalar, but you passed in a {type(element)}.")
    return bool((self == element).any())


# Functions of `gt`, methods of `Tensor`, and those that are both.
FUNCTIONS = (empty_strided, empty_permuted, broadcast_shapes, numel, clone, detach, is_floating_point)
METHODS = (
    resize_,
    resize_as_,
    set_,
    index_put_,
    new,
    new_tensor,
    new_empty_strided,
    apply_,
    map_,
    map2_,
)
BOTH = (index_put,)
PROPERTIES = {"H": (_h, None), "mH": (_mh, None), "real": (_real, _set_real), "imag": (_imag, _set_imag)}
# In-place methods that are functions, too.
IN_PLACE = ("detach_", "fill_", "index_put_", "resize_as_", "zero_")
