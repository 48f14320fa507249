"""Collation: makes a batch of a list of samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gt import _core as gt
from gt._gt import Tensor


def default_convert(data: Any) -> Any:
    """Converts the arrays of a sample, also within mappings and sequences, to tensors, without adding a batch axis."""
    if isinstance(data, np.ndarray | np.generic) and data.dtype.kind in "biuf":
        return gt.as_tensor(data)
    if isinstance(data, Mapping):
        return type(data)({key: default_convert(value) for key, value in data.items()})  # type: ignore[call-arg]
    if isinstance(data, tuple):
        parts = [default_convert(part) for part in data]
        return type(data)(*parts) if hasattr(data, "_fields") else parts
    if isinstance(data, list):
        return [default_convert(part) for part in data]
    return data


def default_collate(batch: Sequence[Any]) -> Any:
    """Makes a batch of a list of samples.

    Tensors, arrays and numbers are stacked; mappings and sequences are collated entry by entry; strings and bytes stay
    a list. As in PyTorch, Python floats become float64 and ints int64.

    Raises:
        RuntimeError: The samples are sequences of different lengths.
        TypeError: The samples have another type.

    Example:
        >>> gt.utils.data.default_collate([(gt.tensor([1.0]), 0), (gt.tensor([2.0]), 1)])
        [tensor([[1.],
                [2.]]), tensor([0, 1])]
    """
    first = batch[0]
    if isinstance(first, Tensor):
        return gt.stack(list(batch))
    if isinstance(first, np.ndarray | np.generic) and first.dtype.kind in "biuf":
        return gt.tensor(np.stack(batch))
    if isinstance(first, float):
        return gt.tensor(list(batch), dtype=gt.float64)
    if isinstance(first, int):
        return gt.tensor(list(batch))
    if isinstance(first, str | bytes):
        return list(batch)
    if isinstance(first, Mapping):
        parts = {key: default_collate([sample[key] for sample in batch]) for key in first}
        try:
            return type(first)(parts)  # type: ignore[call-arg]
        except TypeError:
            return parts
    if isinstance(first, Sequence):
        if any(len(sample) != len(first) for sample in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        columns = [default_collate(column) for column in zip(*batch, strict=True)]
        if hasattr(first, "_fields"):  # a named tuple
            return type(first)(*columns)
        return columns
    raise TypeError(
        "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; "
        f"found {type(first).__name__}: give the DataLoader a collate_fn"
    )
