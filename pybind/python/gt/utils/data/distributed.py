"""`DistributedSampler`: partitions the samples among several processes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sized

from gt import _absent
from gt._gt import Generator
from gt.utils.data.sampler import Sampler, permutation

__all__ = ["DistributedSampler"]

__getattr__ = _absent.getter(__name__)


class DistributedSampler(Sampler):
    """Yields every `num_replicas`-th index from `rank` on, in an order that follows from `seed` and the epoch.

    Args:
        dataset: The dataset.
        num_replicas: The number of processes.
        rank: The index of this process.
        shuffle: Whether the order is random.
        seed: The seed, the same in all processes.
        drop_last: Whether to drop the samples that do not divide evenly, rather than repeat some.
    """

    def __init__(
        self,
        dataset: Sized,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        if num_replicas is None or rank is None:
            raise RuntimeError("Requires distributed package to be available: say num_replicas and rank")
        if not 0 <= rank < num_replicas:
            raise ValueError(f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]")
        self.dataset = dataset
        self.num_replicas = num_replicas
        self.rank = rank
        self.epoch = 0
        self.drop_last = drop_last
        whole = len(dataset) // num_replicas
        self.num_samples = whole if drop_last else math.ceil(len(dataset) / num_replicas)
        self.total_size = self.num_samples * num_replicas
        self.shuffle = shuffle
        self.seed = seed

    def __iter__(self) -> Iterator[int]:
        count = len(self.dataset)
        order = list(range(count))
        if self.shuffle:
            order = permutation(count, Generator().manual_seed(self.seed + self.epoch))
        if not self.drop_last:
            order += (order * math.ceil(self.total_size / max(count, 1)))[: self.total_size - count]
        return iter(order[self.rank : self.total_size : self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch, which changes the random order; it must be the same in all processes."""
        self.epoch = epoch
