"""How samples become a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gt import _core as gt
from gt._gt import Tensor


def default_convert(data: Any) -> Any:
    """A sample that is not put into a batch: arrays become tensors, also within mappings and sequences."""
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
    """A batch of samples: tensors, arrays and numbers are stacked, mappings and sequences are batched by part.

    Strings and bytes stay a list. Python floats become float64 and ints int64, as PyTorch has it.

    Raises:
        RuntimeError: The samples are sequences of different lengths.
        TypeError: The samples are of another type.
    """
    first = batch[0]
    if isinstance(first, Tensor):
        return gt.stack(list(batch))
    if isinstance(first, np.ndarray | np.generic) and first.dtype.kind in "biuf":
        return gt.from_numpy(np.stack(batch))
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
