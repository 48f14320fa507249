"""Errors that depend on the elements of tensors: an index out of range, a division by zero.

On the processor an op looks at the elements at once. On a device that would wait for all work before, so the outcome
becomes a tensor of the device, which `worker.py` reads when the device has passed a fence; until then the op computes
with something harmless in place of what is wrong.
"""

from __future__ import annotations

import torch

INDEX, ZERO_DIVISION, NO_ROOM, OTHER = 1, 2, 3, 4


class FoundError(Exception):
    """An error with a kind and up to three numbers, for the worker."""

    def __init__(self, kind: int, *numbers: int, text: str = "") -> None:
        super().__init__(text)
        self.kind, self.numbers, self.text = kind, numbers, text


class Pending:
    """A check whose outcome the device has not computed: the first element of `outcome` is whether it failed."""

    __slots__ = ("axis", "kind", "outcome", "size")

    def __init__(self, kind: int, outcome: torch.Tensor, axis: int = 0, size: int = 0) -> None:
        self.kind, self.outcome, self.axis, self.size = kind, outcome, axis, size

    def error(self, failed: int, index: int) -> FoundError | None:
        """Returns the error, from the elements of the outcome."""
        if not failed:
            return None
        return FoundError(self.kind, index, self.axis, self.size) if self.kind == INDEX else FoundError(self.kind)


# Whether checks wait for a fence, and those that wait for the instruction that runs to end.
deferred = False
pending: list[Pending] = []


def index_in_range(index: torch.Tensor, low: int, size: int, axis: int) -> torch.Tensor:
    """Returns the index, whose elements must be in `range(low, size)`."""
    if index.numel() == 0:
        return index
    if not deferred:
        least, most = (int(bound) for bound in index.aminmax())
        if least >= low and most < size:
            return index
    outside = (index < low) | (index >= size)
    first = index.flatten()[outside.flatten().to(torch.uint8).argmax()]
    if not deferred:
        raise FoundError(INDEX, int(first), axis, size)
    pending.append(Pending(INDEX, torch.stack([outside.any().long(), first]), axis, size))
    return index.masked_fill(outside, 0)


def nonzero_divisor(divisor: torch.Tensor | int) -> torch.Tensor | int:
    """Returns the divisor, whose elements must not be 0."""
    if not isinstance(divisor, torch.Tensor):
        if divisor == 0:
            raise FoundError(ZERO_DIVISION)
        return divisor
    zero = divisor == 0
    if not deferred:
        if zero.any():
            raise FoundError(ZERO_DIVISION)
        return divisor
    failed = zero.any().long()
    pending.append(Pending(ZERO_DIVISION, torch.stack([failed, failed])))
    return divisor.masked_fill(zero, 1)
