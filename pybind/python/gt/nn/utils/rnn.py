"""Batches of sequences of unequal length: padded to one length, `(L, N, *)`, or packed without the padding."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from gt import _absent, _gt
from gt._functions import top
from gt._gt import Tensor

__all__ = [
    "PackedSequence",
    "invert_permutation",
    "pack_padded_sequence",
    "pack_sequence",
    "pad_packed_sequence",
    "pad_sequence",
    "unpack_sequence",
    "unpad_sequence",
]

__getattr__ = _absent.getter(__name__)


class _Packed(NamedTuple):
    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None
    unsorted_indices: Tensor | None


class PackedSequence(_Packed):
    """Sequences of unequal length without padding: the elements of the first time step, then of the second, and so on.

    Args:
        data: The elements, `(sum of lengths, *)`; the sequences are sorted by falling length.
        batch_sizes: The number of sequences that have an element at each time step.
        sorted_indices: The original index of each sorted sequence.
        unsorted_indices: The inverse permutation; computed if not given.
    """

    def __new__(
        cls,
        data: Tensor,
        batch_sizes: Tensor,
        sorted_indices: Tensor | None = None,
        unsorted_indices: Tensor | None = None,
    ) -> PackedSequence:
        """Makes the tuple of its parts."""
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def _with(self, data: Tensor) -> PackedSequence:
        return PackedSequence(data, *self[1:])

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The sequence with its elements moved to a device or converted to a dtype."""
        return self._with(self.data.to(*args, **kwargs))

    @property
    def is_cuda(self) -> bool:
        """Whether the elements are on a CUDA device."""
        return getattr(self.data, "is_cuda", False)


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """The inverse of a permutation."""
    if permutation is None:
        return None
    return _of([index for _, index in sorted((to, index) for index, to in enumerate(permutation.tolist()))])


def _of(numbers: Iterable[int]) -> Tensor:
    return _gt.tensor(list(numbers), dtype=_gt.int64)


def pack_padded_sequence(
    input: Tensor, lengths: Tensor | Sequence[int], batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Packs padded sequences.

    Args:
        input: `(L, N, *)`, or `(N, L, *)` if `batch_first`.
        lengths: The length of each sequence, `(N)`.
        batch_first: Whether the batch is the first axis.
        enforce_sorted: Whether to raise an error for sequences that are not sorted by falling length; otherwise they
            are sorted here.

    Example:
        >>> packed = gt.nn.utils.rnn.pack_padded_sequence(gt.tensor([[1, 3], [2, 0]]), [2, 1])
        >>> packed.data.tolist(), packed.batch_sizes.tolist()
        ([1, 3, 2], [2, 1])
    """
    sizes = [int(n) for n in (lengths.tolist() if isinstance(lengths, Tensor) else lengths)]
    if batch_first:
        input = input.transpose(0, 1)
    if len(sizes) != input.shape[1]:
        raise RuntimeError(
            f"Expected `len(lengths)` to be equal to batch_size, but got {len(sizes)} (batch_size={input.shape[1]})"
        )
    if any(size <= 0 for size in sizes):
        raise RuntimeError(
            "Length of all samples has to be greater than 0, but found an element in 'lengths' that is <= 0"
        )
    order: Tensor | None = None
    if enforce_sorted:
        if sizes != sorted(sizes, reverse=True):
            raise RuntimeError(
                "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You can pass "
                "`enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to sidestep this requirement if "
                "you do not need ONNX exportability."
            )
    else:
        places = sorted(range(len(sizes)), key=lambda i: -sizes[i])
        order = _of(places)
        input, sizes = input.index_select(1, order), [sizes[i] for i in places]
    if sizes[0] > input.shape[0]:
        raise RuntimeError(f"Expected sequences of at most {input.shape[0]} elements, but one has {sizes[0]}")
    running = [sum(size > step for size in sizes) for step in range(sizes[0])]
    data = top.cat([input[step, :count] for step, count in enumerate(running)])
    return PackedSequence(data, _of(running), order)


def pad_packed_sequence(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Pads a packed sequence; returns the padded sequences and their lengths.

    Args:
        sequence: The packed sequence.
        batch_first: Whether the result is `(N, L, *)` rather than `(L, N, *)`.
        padding_value: The value of the padding.
        total_length: The length to pad to; the longest sequence's if not given.
    """
    running = sequence.batch_sizes.tolist()
    length = len(running)
    if total_length is not None:
        if total_length < length:
            raise ValueError(
                "Expected total_length to be at least the length of the longest sequence in input, but got "
                f"total_length={total_length} and max sequence length being {length}"
            )
        length = total_length
    sizes = [sum(count > i for count in running) for i in range(running[0])]
    padding = top.full((1, *sequence.data.shape[1:]), padding_value, dtype=sequence.data.dtype)
    starts = [sum(running[:step]) for step in range(len(running))]
    last = sequence.data.shape[0]
    index = [
        starts[step] + i if step < len(running) and i < running[step] else last
        for step in range(length)
        for i in range(running[0])
    ]
    rows = top.cat([sequence.data, padding]).index_select(0, _of(index))
    padded = rows.reshape(length, running[0], *sequence.data.shape[1:])
    if sequence.unsorted_indices is not None:
        places = sequence.unsorted_indices.tolist()
        padded, sizes = padded.index_select(1, sequence.unsorted_indices), [sizes[i] for i in places]
    return (padded.transpose(0, 1) if batch_first else padded), _of(sizes)


def pad_sequence(
    sequences: Tensor | Sequence[Tensor],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Pads sequences `(L_i, *)` to the length of the longest and stacks them.

    Args:
        sequences: The sequences.
        batch_first: Whether the result is `(N, L, *)` rather than `(L, N, *)`.
        padding_value: The value of the padding.
        padding_side: `"right"` or `"left"`.

    Example:
        >>> gt.nn.utils.rnn.pad_sequence([gt.tensor([1, 2]), gt.tensor([3])], batch_first=True)
        tensor([[1, 2],
                [3, 0]])
    """
    if padding_side not in ("left", "right"):
        raise RuntimeError(f"Expected padding_side to be one of left or right, but got {padding_side}.")
    parts = list(sequences)
    if not parts:
        raise RuntimeError("received an empty list of sequences")
    longest = max(part.shape[0] for part in parts)
    padded = []
    for part in parts:
        if missing := longest - part.shape[0]:
            filling = top.full((missing, *part.shape[1:]), padding_value, dtype=part.dtype)
            part = top.cat([part, filling] if padding_side == "right" else [filling, part])
        padded.append(part)
    return top.stack(padded, 0 if batch_first else 1)


def unpad_sequence(padded_sequences: Tensor, lengths: Tensor, batch_first: bool = False) -> list[Tensor]:
    """Splits padded sequences into a list of sequences of the given lengths."""
    if not batch_first:
        padded_sequences = padded_sequences.transpose(0, 1)
    return [padded_sequences[i, :size] for i, size in enumerate(lengths.tolist())]


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Packs a list of sequences of unequal length."""
    lengths = [sequence.shape[0] for sequence in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """Splits a packed sequence into a list of sequences."""
    return unpad_sequence(*pad_packed_sequence(packed_sequences))
