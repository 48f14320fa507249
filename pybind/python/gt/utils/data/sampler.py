"""Samplers: the order in which the samples of a dataset are read."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any

from gt import _core as gt

# Python's random generator, or GT's, which is a seed and the number of draws from it.
Generator = random.Random | gt.Generator


def random_generator(generator: Generator | None) -> random.Random:
    """The random generator of the next order: the one given, or one seeded by the state of `generator`."""
    if isinstance(generator, random.Random):
        return generator
    generator = gt.default_generator if generator is None else generator
    if not isinstance(generator, gt.Generator):
        raise TypeError(f"generator: expected a gt.Generator or None, but got {type(generator).__name__}")
    return random.Random("{} {}".format(*generator._next()))


def permutation(length: int, generator: Generator | None = None) -> list[int]:
    """A random permutation of the numbers below `length`."""
    order = list(range(length))
    random_generator(generator).shuffle(order)
    return order


class Sampler:
    """The base of samplers: a subclass implements `__iter__`, which yields indices or lists of them, and `__len__`."""

    def __class_getitem__(cls, item: Any) -> type:
        """Supports `Sampler[T]` in annotations."""
        return cls

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} has to define __iter__")


class SequentialSampler(Sampler):
    """Yields the indices in order.

    Args:
        data_source: The dataset.

    Example:
        >>> list(gt.utils.data.SequentialSampler(range(3)))
        [0, 1, 2]
    """

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler):
    """Yields the indices in random order.

    Args:
        data_source: The dataset.
        replacement: Whether indices are drawn with replacement.
        num_samples: The number of indices; the length of the dataset if not given.
        generator: The random generator; the default one if not given.

    Example:
        >>> sorted(gt.utils.data.RandomSampler(range(4)))  # each index once, in a random order
        [0, 1, 2, 3]
    """

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Generator | None = None,
    ) -> None:
        if num_samples is not None and num_samples <= 0:
            raise ValueError(f"num_samples should be a positive integer value, but got num_samples={num_samples}")
        self.data_source = data_source
        self.replacement = replacement
        self._num_samples = num_samples
        self.generator = generator

    @property
    def num_samples(self) -> int:
        """The number of indices."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        length, wanted = len(self.data_source), self.num_samples
        draw = random_generator(self.generator)
        if self.replacement:
            yield from (draw.randrange(length) for _ in range(wanted))
            return
        while wanted > 0 and length > 0:
            order = permutation(length, draw)[:wanted]
            yield from order
            wanted -= len(order)

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler):
    """Yields the given indices in random order.

    Args:
        indices: The indices.
        generator: The random generator; the default one if not given.

    Example:
        >>> sorted(gt.utils.data.SubsetRandomSampler([2, 5, 7]))
        [2, 5, 7]
    """

    def __init__(self, indices: Sequence[int], generator: Generator | None = None) -> None:
        self.indices = indices
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        return (self.indices[i] for i in permutation(len(self.indices), self.generator))

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler):
    """Yields random indices with probabilities proportional to weights.

    Args:
        weights: The weight of each index.
        num_samples: The number of indices.
        replacement: Whether indices are drawn with replacement.
        generator: The random generator; the default one if not given.

    Example:
        >>> list(gt.utils.data.WeightedRandomSampler([0.0, 1.0], num_samples=3))
        [1, 1, 1]
    """

    def __init__(
        self,
        weights: Sequence[float],
        num_samples: int,
        replacement: bool = True,
        generator: Generator | None = None,
    ) -> None:
        self.weights = [float(weight) for weight in (weights.tolist() if hasattr(weights, "tolist") else weights)]
        if num_samples <= 0:
            raise ValueError(f"num_samples should be a positive integer value, but got num_samples={num_samples}")
        if any(weight < 0 for weight in self.weights) or not any(self.weights):
            raise ValueError("weights should be non-negative numbers, not all of them 0")
        if not replacement and num_samples > sum(weight > 0 for weight in self.weights):
            raise ValueError("cannot draw more samples without replacement than there are positive weights")
        self.num_samples = num_samples
        self.replacement = replacement
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        draw = random_generator(self.generator)
        places = range(len(self.weights))
        if self.replacement:
            return iter(draw.choices(places, self.weights, k=self.num_samples))
        # The order of exponential variables with these rates is that of draws without replacement.
        times = {i: draw.expovariate(weight) for i, weight in enumerate(self.weights) if weight > 0}
        return iter(sorted(times, key=times.__getitem__)[: self.num_samples])

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler):
    """Yields lists of `batch_size` indices of another sampler.

    Args:
        sampler: The sampler.
        batch_size: The number of indices in a list.
        drop_last: Whether an incomplete last list is dropped.

    Example:
        >>> list(gt.utils.data.BatchSampler(range(5), batch_size=2, drop_last=False))
        [[0, 1], [2, 3], [4]]
    """

    def __init__(self, sampler: Iterable[int], batch_size: int, drop_last: bool) -> None:
        if not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size <= 0:
            raise ValueError(f"batch_size should be a positive integer value, but got batch_size={batch_size}")
        if not isinstance(drop_last, bool):
            raise ValueError(f"drop_last should be a boolean value, but got drop_last={drop_last}")
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[int]]:
        batch: list[int] = []
        for index in self.sampler:
            batch.append(index)
            if len(batch) == self.batch_size:
                yield batch
                batch = []
        if batch and not self.drop_last:
            yield batch

    def __len__(self) -> int:
        count = len(self.sampler)  # type: ignore[arg-type]
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)
