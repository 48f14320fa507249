"""Datasets: samples by index (map-style), or as a stream (iterable)."""

from __future__ import annotations

import math
import warnings
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any

from gt import _absent
from gt._gt import Tensor
from gt.utils.data.sampler import Generator, permutation

__getattr__ = _absent.getter(__name__)


class Dataset:
    """The base of map-style datasets: a subclass implements `__getitem__` and `__len__`. `a + b` concatenates two.

    Example:
        >>> class Squares(gt.utils.data.Dataset):
        ...     def __len__(self):
        ...         return 4
        ...
        ...     def __getitem__(self, i):
        ...         return i * i
        >>> [batch.tolist() for batch in gt.utils.data.DataLoader(Squares(), batch_size=2)]
        [[0, 1], [4, 9]]
    """

    def __class_getitem__(cls, item: Any) -> type:
        """Supports `Dataset[T]` in annotations."""
        return cls

    def __getitem__(self, index: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has to define __getitem__")

    def __add__(self, other: Dataset) -> ConcatDataset:
        return ConcatDataset([self, other])


class IterableDataset(Dataset):
    """The base of streams of samples without indices: a subclass implements `__iter__`. `a + b` chains two."""

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} has to define __iter__")

    def __add__(self, other: Dataset) -> ChainDataset:  # type: ignore[override]
        return ChainDataset([self, other])


class TensorDataset(Dataset):
    """Samples `(t1[i], t2[i], …)` of tensors with the same first size.

    Example:
        >>> dataset = gt.utils.data.TensorDataset(gt.tensor([[1.0], [2.0]]), gt.tensor([0, 1]))
        >>> dataset[1]
        (tensor([2.]), tensor(1))
    """

    def __init__(self, *tensors: Tensor) -> None:
        if any(tensor.shape[0] != tensors[0].shape[0] for tensor in tensors):
            raise AssertionError(
                f"Size mismatch between tensors: their lengths are {[tensor.shape[0] for tensor in tensors]}"
            )
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple(tensor[index] for tensor in self.tensors)

    def __len__(self) -> int:
        return self.tensors[0].shape[0]


class ConcatDataset(Dataset):
    """Concatenation of map-style datasets.

    Example:
        >>> dataset = gt.utils.data.ConcatDataset([range(3), range(10, 12)])
        >>> list(dataset)
        [0, 1, 2, 10, 11]
    """

    def __init__(self, datasets: Iterable[Dataset]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise AssertionError("datasets should not be an empty iterable")
        if any(isinstance(dataset, IterableDataset) for dataset in self.datasets):
            raise AssertionError("ConcatDataset does not support IterableDataset")
        self.cumulative_sizes = list(accumulate(len(dataset) for dataset in self.datasets))

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, index: int) -> Any:
        if not -len(self) <= index < len(self):
            raise IndexError(f"index {index} is out of range for {len(self)} samples")
        index %= len(self)
        place = bisect_right(self.cumulative_sizes, index)
        return self.datasets[place][index - (self.cumulative_sizes[place - 1] if place else 0)]


class ChainDataset(IterableDataset):
    """Concatenation of iterable datasets."""

    def __init__(self, datasets: Iterable[Dataset]) -> None:
        self.datasets = datasets

    def __iter__(self) -> Iterator[Any]:
        for dataset in self.datasets:
            self._check(dataset)
            yield from dataset

    def __len__(self) -> int:
        total = 0
        for dataset in self.datasets:
            self._check(dataset)
            total += len(dataset)  # type: ignore[arg-type]
        return total

    @staticmethod
    def _check(dataset: Dataset) -> None:
        if not isinstance(dataset, IterableDataset):
            raise AssertionError("ChainDataset only supports IterableDataset")


class StackDataset(Dataset):
    """Samples `(d1[i], d2[i], …)` of datasets of the same length, or a dict of them for keyword arguments.

    Example:
        >>> dataset = gt.utils.data.StackDataset(range(3), range(10, 13))
        >>> dataset[1]
        (1, 11)
    """

    def __init__(self, *args: Dataset, **kwargs: Dataset) -> None:
        if args and kwargs:
            raise ValueError(
                "Supported either ``tuple``- (via ``args``) or``dict``- (via ``kwargs``) like input/output, but both "
                "types are given."
            )
        if not args and not kwargs:
            raise ValueError("At least one dataset should be passed")
        self.datasets: Any = args or kwargs
        lengths = [len(dataset) for dataset in (args or kwargs.values())]  # type: ignore[arg-type]
        if any(length != lengths[0] for length in lengths):
            raise ValueError("Size mismatch between datasets")
        self._length = lengths[0]

    def __getitem__(self, index: Any) -> Any:
        if isinstance(self.datasets, dict):
            return {name: dataset[index] for name, dataset in self.datasets.items()}
        return tuple(dataset[index] for dataset in self.datasets)

    def __len__(self) -> int:
        return self._length


class Subset(Dataset):
    """The samples of a dataset at the given indices.

    Example:
        >>> dataset = gt.utils.data.Subset(gt.utils.data.TensorDataset(gt.arange(5)), [0, 3])
        >>> len(dataset), dataset[1]
        (2, (tensor(3),))
    """

    def __init__(self, dataset: Dataset, indices: Sequence[int]) -> None:
        self.dataset = dataset
        self.indices = indices

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, list):
            return self.dataset[[self.indices[i] for i in index]]
        return self.dataset[self.indices[index]]

    def __len__(self) -> int:
        return len(self.indices)


def random_split(dataset: Dataset, lengths: Sequence[float], generator: Generator | None = None) -> list[Subset]:
    """Splits a dataset randomly into disjoint subsets.

    Args:
        dataset: The dataset.
        lengths: The length of each subset, together that of the dataset; or fractions that sum to 1, where the samples
            that rounding leaves over go to the first subsets, one each.
        generator: The random generator; the default one if not given.

    Raises:
        ValueError: The lengths do not sum to the dataset's.

    Example:
        >>> train, test = gt.utils.data.random_split(range(10), [0.8, 0.2])
        >>> len(train), len(test)
        (8, 2)
    """
    total = len(dataset)  # type: ignore[arg-type]
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1:
        if any(not 0 <= share <= 1 for share in lengths):
            raise ValueError(f"random_split: a share is between 0 and 1, but got {list(lengths)}")
        sizes = [math.floor(total * share) for share in lengths]
        for i in range(total - sum(sizes)):
            sizes[i % len(sizes)] += 1
        if 0 in sizes:
            warnings.warn(f"random_split: subset {sizes.index(0)} is empty", stacklevel=2)
    else:
        sizes = [int(length) for length in lengths]
    if sum(sizes) != total:
        raise ValueError(
            f"Sum of input lengths does not equal the length of the input dataset: {list(lengths)} for {total} samples"
        )
    order = permutation(total, generator)
    ends = list(accumulate(sizes))
    return [Subset(dataset, order[end - size : end]) for size, end in zip(sizes, ends, strict=True)]
