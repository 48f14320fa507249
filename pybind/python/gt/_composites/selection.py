"""The shape to which shapes broadcast."""

from __future__ import annotations

from gt._types import Size


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


METHODS = ()
IN_PLACE = ()
FUNCTIONS = (broadcast_shapes,)
