"""`DataLoader`: iterates over a dataset in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from gt.utils.data.collate import default_collate
from gt.utils.data.dataset import Dataset, IterableDataset
from gt.utils.data.sampler import BatchSampler, Generator, RandomSampler, SequentialSampler


def _as_it_is(sample: Any) -> Any:
    return sample


def get_worker_info() -> None:
    """Information about the data-loading process, as PyTorch has it: always `None`, as there are none."""
    return


class DataLoader:
    """Iterates over a dataset in batches.

    Samples are read in the calling process, while the daemon computes the previous steps.

    Args:
        dataset: A map-style dataset, anything with `__getitem__` and `__len__`, or an `IterableDataset`.
        batch_size: The number of samples in a batch; `None` for single samples that are not collated.
        shuffle: Whether to read in a new random order in each epoch.
        sampler: An iterable of indices, in place of `shuffle`.
        batch_sampler: An iterable of lists of indices, in place of `batch_size`, `shuffle`, `sampler` and `drop_last`.
        num_workers: Ignored: PyTorch's number of data-loading processes.
        collate_fn: A function from a list of samples to a batch. If not given, `default_collate` stacks tensors, arrays
            and numbers along a first axis, also inside tuples, lists and dicts.
        pin_memory: Ignored: memory is shared with the daemon.
        drop_last: Whether an incomplete last batch is dropped.
        timeout: Ignored.
        worker_init_fn: Not supported with `num_workers`, and ignored without.
        multiprocessing_context: Ignored.
        generator: The random generator of the order; the default one if not given.
        prefetch_factor: Ignored.
        persistent_workers: Ignored.
        pin_memory_device: Ignored.
        in_order: Ignored: batches always come in order.

    Raises:
        NotImplementedError: `worker_init_fn` is given with `num_workers`.
        ValueError: Options exclude each other.

    Example:
        >>> dataset = gt.utils.data.TensorDataset(gt.arange(5), gt.arange(5) ** 2)
        >>> for x, y in gt.utils.data.DataLoader(dataset, batch_size=2):
        ...     print(x.tolist(), y.tolist())
        [0, 1] [0, 1]
        [2, 3] [4, 9]
        [4] [16]
    """

    def __class_getitem__(cls, item: Any) -> type:
        """Supports `DataLoader[T]` in annotations."""
        return cls

    def __init__(
        self,
        dataset: Dataset | Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[list[Any]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        if num_workers < 0:
            raise ValueError("num_workers option should be non-negative; use num_workers=0 to disable multiprocessing.")
        if timeout < 0:
            raise ValueError("timeout option should be non-negative")
        if num_workers == 0 and prefetch_factor is not None:
            raise ValueError(
                "prefetch_factor option could only be specified in multiprocessing.let num_workers > 0 to enable "
                "multiprocessing, otherwise set prefetch_factor to None."
            )
        if persistent_workers and num_workers == 0:
            raise ValueError("persistent_workers option needs num_workers > 0")
        if num_workers == 0 and multiprocessing_context is not None:
            raise ValueError(
                "multiprocessing_context can only be used with multi-process loading (num_workers > 0), but got "
                "num_workers=0"
            )
        iterable = isinstance(dataset, IterableDataset)
        if num_workers and (iterable or worker_init_fn is not None):
            what = "an IterableDataset, of which each worker would read a copy" if iterable else "worker_init_fn"
            raise NotImplementedError(
                f"DataLoader: samples are read in this process, so there is no num_workers={num_workers} with {what}: "
                "use num_workers=0"
            )
        if iterable and (shuffle or sampler is not None or batch_sampler is not None):
            raise ValueError(
                "DataLoader with IterableDataset: expected unspecified shuffle, sampler and batch_sampler option, for "
                "the dataset itself has an order"
            )
        if sampler is not None and shuffle:
            raise ValueError("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
            raise ValueError(
                "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last"
            )
        if batch_sampler is not None:
            batch_size = None
        elif batch_size is None and drop_last:
            raise ValueError("batch_size=None option disables auto-batching and is mutually exclusive with drop_last")
        if sampler is None and not iterable:
            sampler = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
        if batch_size is not None:
            # For an IterableDataset, the batch sampler only sets the size of batches.
            batch_sampler = BatchSampler(() if sampler is None else sampler, batch_size, drop_last)
        self.dataset = dataset
        self.batch_size = batch_size
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        self.num_workers = num_workers
        self.pin_memory = pin_memory
        self.drop_last = drop_last
        self.generator = generator
        self.timeout, self.worker_init_fn = timeout, worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.prefetch_factor, self.persistent_workers = prefetch_factor, persistent_workers
        self.pin_memory_device, self.in_order = pin_memory_device, in_order
        self.collate_fn = collate_fn or (_as_it_is if batch_sampler is None else default_collate)

    def __iter__(self) -> _BaseDataLoaderIter:
        return _SingleProcessDataLoaderIter(self)

    def __len__(self) -> int:
        if isinstance(self.dataset, IterableDataset):
            count = len(self.dataset)  # type: ignore[arg-type]
            if self.batch_size is None:
                return count
            return count // self.batch_size if self.drop_last else -(-count // self.batch_size)
        return len(self.sampler if self.batch_sampler is None else self.batch_sampler)  # type: ignore[arg-type]


def _batches(loader: DataLoader) -> Iterator[Any]:
    if isinstance(loader.dataset, IterableDataset):
        samples = iter(loader.dataset)
        if loader.batch_size is None:
            yield from map(loader.collate_fn, samples)
            return
        while batch := list(islice(samples, loader.batch_size)):
            if len(batch) == loader.batch_size or not loader.drop_last:
                yield loader.collate_fn(batch)
    elif loader.batch_sampler is None:
        for index in loader.sampler or ():
            yield loader.collate_fn(loader.dataset[index])
    else:
        for indices in loader.batch_sampler:
            yield loader.collate_fn([loader.dataset[index] for index in indices])


class _BaseDataLoaderIter:
    """An iterator over the batches of one epoch."""

    def __init__(self, loader: DataLoader) -> None:
        self._batches = _batches(loader)

    def __iter__(self) -> _BaseDataLoaderIter:
        return self

    def __next__(self) -> Any:
        return next(self._batches)


class _SingleProcessDataLoaderIter(_BaseDataLoaderIter):
    """An iterator that reads samples in the calling process."""


class _MultiProcessingDataLoaderIter(_BaseDataLoaderIter):
    """An iterator of other processes; `DataLoader` makes none."""
