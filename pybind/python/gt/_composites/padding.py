"""Padding by a constant, or by reflected, repeated or wrapped elements."""

from __future__ import annotations

from collections.abc import Sequence

from gt import _gt
from gt._gt import Tensor


def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """Pads a tensor at the ends of its last axes.

    Args:
        input: Any tensor; for modes other than `"constant"`, it has one or two axes more than are padded.
        pad: (before, after) for the last axis, then for the one before it, and so on; negative sizes crop.
        mode: `"constant"`, `"reflect"`, `"replicate"` (repeats the edge) or `"circular"`.
        value: The constant; 0 if not given.

    Example:
        >>> gt.nn.functional.pad(gt.tensor([1.0, 2.0]), (1, 2))
        tensor([0., 1., 2., 0., 0.])
        >>> gt.nn.functional.pad(gt.tensor([[1.0, 2.0, 3.0]]), (2, 0), mode="reflect")
        tensor([[3., 2., 1., 2., 3.]])
    """
    pads = _sizes(input, pad)
    axes = len(pads) // 2
    if mode == "constant":
        return _pad_constant(input, pads, 0.0 if value is None else value)
    if value not in (None, 0, 0.0):
        raise RuntimeError(f'Padding mode "{mode}" doesn\'t take in value argument')
    index_of = {"reflect": _reflected_index, "replicate": _replicated_index, "circular": _circular_index}.get(mode)
    if index_of is None:
        raise NotImplementedError(f"Unrecognised padding mode {mode}")
    if not 1 <= axes <= 3 or input.ndim not in (axes + 1, axes + 2):
        raise NotImplementedError(
            "Only 2D, 3D, 4D, 5D padding with non-constant padding are supported for now, of all axes but one or two"
        )
    for i in range(axes):
        axis = input.ndim - 1 - i
        before, after = pads[2 * i : 2 * i + 2]
        if before or after:
            index = index_of(input, axis, before, after)
            input = input.index_select(axis, _gt.tensor(index, dtype=_gt.int64))
    return input


def _sizes(input: Tensor, pad: Sequence[int]) -> list[int]:
    """The padding as integers, a pair for each of the last axes."""
    pads = [int(size) for size in pad]
    if len(pads) % 2:
        raise RuntimeError("Padding length must be divisible by 2")
    if len(pads) // 2 > input.ndim:
        raise RuntimeError(
            f"Padding length should be less than or equal to two times the input dimension but got padding length "
            f"{len(pads)} and input of dimension {input.ndim}"
        )
    return pads


def _pad_constant(input: Tensor, pads: list[int], value: float) -> Tensor:
    sizes, inner, outer = list(input.shape), [slice(None)] * input.ndim, [slice(None)] * input.ndim
    for i in range(len(pads) // 2):
        axis = input.ndim - 1 - i
        before, after = pads[2 * i : 2 * i + 2]
        size = input.shape[axis]
        sizes[axis] = size + before + after
        if sizes[axis] < 0:
            raise RuntimeError(
                f"The input size {size}, plus negative padding {before} and {after} resulted in a negative output "
                f"size, which is invalid. Check dimension {axis} of your input."
            )
        inner[axis] = slice(max(-before, 0), size - max(-after, 0))
        outer[axis] = slice(max(before, 0), sizes[axis] - max(after, 0))
    if all(size <= 0 for size in pads):
        return input[tuple(inner)].clone()
    result = _gt.full(sizes, value, dtype=input.dtype)
    result[tuple(outer)] = input[tuple(inner)]
    return result


def _reflected_index(input: Tensor, axis: int, before: int, after: int) -> list[int]:
    size = input.shape[axis]
    if before >= size or after >= size:
        raise RuntimeError(
            "Argument #4: Padding size should be less than the corresponding input dimension, but got: padding "
            f"({before}, {after}) at dimension {axis} of input {list(input.shape)}"
        )
    return [abs(i) if i < size else 2 * (size - 1) - i for i in range(-before, size + after)]


def _replicated_index(input: Tensor, axis: int, before: int, after: int) -> list[int]:
    size = input.shape[axis]
    if size == 0:
        raise RuntimeError(f"Expected dimension {axis} of the input to be padded to be non-empty")
    return [min(max(i, 0), size - 1) for i in range(-before, size + after)]


def _circular_index(input: Tensor, axis: int, before: int, after: int) -> list[int]:
    size = input.shape[axis]
    if before > size or after > size:
        raise RuntimeError("Padding value causes wrapping around more than once.")
    # Negative padding crops first; the remaining elements are then repeated periodically.
    cut, left = max(-before, 0), size - max(-before, 0) - max(-after, 0)
    return [cut + i % left for i in range(-max(before, 0), left + max(after, 0))]


def constant_pad_nd(input: Tensor, pad: Sequence[int], value: float = 0) -> Tensor:
    """The last axes padded with one number: `nn.functional.pad` in its constant mode.

    Args:
        input: A tensor.
        pad: Pairs (before, after) for the last axis, the one before it and so on; negative numbers crop.
        value: The number.

    Example:
        >>> gt.constant_pad_nd(gt.ones(2), (1, 2))
        tensor([0., 1., 1., 0., 0.])
    """
    return _pad_constant(input, _sizes(input, pad), value)


METHODS = ()
IN_PLACE = ()
FUNCTIONS = (constant_pad_nd,)
