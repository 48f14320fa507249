"""`DataLoader`: iterates over a dataset in batches, read in this process or in worker processes."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from multiprocessing import get_all_start_methods
from typing import Any

from gt import _gt
from gt.utils.data.collate import default_collate, default_convert
from gt.utils.data.dataset import Dataset, IterableDataset
from gt.utils.data.processes import Workers
from gt.utils.data.sampler import BatchSampler, Generator, RandomSampler, SequentialSampler, random_generator
from gt.utils.data.worker import Reading, get_worker_info

__all__ = ["DataLoader", "get_worker_info"]

# The number of batches that each worker reads ahead, unless the program says another.
AHEAD = 2


class DataLoader:
    """Iterates over a dataset in batches.

    With `num_workers`, that many processes read samples and make batches, a few batches ahead. A worker that is forked
    gets copies of the tensors that the dataset refers to; one that is spawned gets the dataset by pickle. Workers end
    with the iterator. Without workers, samples are read in the calling process, while the daemon computes the previous
    steps.

    Args:
        dataset: A map-style dataset, anything with `__getitem__` and `__len__`, or an `IterableDataset`.
        batch_size: The number of samples in a batch; `None` for single samples that are not collated.
        shuffle: Whether to read in a new random order in each epoch.
        sampler: An iterable of indices, in place of `shuffle`.
        batch_sampler: An iterable of lists of indices, in place of `batch_size`, `shuffle`, `sampler` and `drop_last`.
        num_workers: The number of worker processes; 0 for none. Each reads its own copy of an `IterableDataset`:
            `get_worker_info` tells it its share.
        collate_fn: A function from a list of samples to a batch. If not given, `default_collate` stacks tensors, arrays
            and numbers along a first axis, also inside tuples, lists and dicts; without batches, `default_convert`
            makes tensors of arrays.
        pin_memory: Ignored, with a warning if there is no CUDA device: memory is shared with the daemon.
        drop_last: Whether an incomplete last batch is dropped.
        timeout: The time in seconds to wait for a batch of a worker; 0 for no limit.
        worker_init_fn: A function of the worker's number, which each worker calls first.
        multiprocessing_context: How workers are started: a context of `multiprocessing`, or the name of a start method,
            as `"spawn"`.
        generator: The random generator of the order and of the workers' seeds; the default one if not given.
        prefetch_factor: The number of batches that each worker reads ahead; 2 if not given.
        persistent_workers: Whether the workers go on from one epoch to the next.
        pin_memory_device: Ignored.
        in_order: Whether batches come in the order of the indices, also if a later one is read first.

    Raises:
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
        if isinstance(multiprocessing_context, str) and multiprocessing_context not in get_all_start_methods():
            raise ValueError(
                "multiprocessing_context option should specify a valid start method in "
                f"{get_all_start_methods()}, but got multiprocessing_context={multiprocessing_context!r}"
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
        if num_workers > (cores := _core_count()):
            warnings.warn(
                f"This DataLoader will start {num_workers} worker processes, and this process may use {cores} CPU "
                "cores: more workers than cores make loading slower.",
                stacklevel=2,
            )
        self._len_told: int | None = None
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
        self.prefetch_factor = AHEAD if num_workers and prefetch_factor is None else prefetch_factor
        self.persistent_workers = persistent_workers
        self._iterator: _MultiProcessingDataLoaderIter | None = None
        self.pin_memory_device, self.in_order = pin_memory_device, in_order
        self.collate_fn = collate_fn or (default_convert if batch_sampler is None else default_collate)

    def __iter__(self) -> _BaseDataLoaderIter:
        if self.num_workers == 0:
            return _SingleProcessDataLoaderIter(self)
        if not self.persistent_workers:
            return _MultiProcessingDataLoaderIter(self)
        if self._iterator is None:
            self._iterator = _MultiProcessingDataLoaderIter(self)
        else:
            self._iterator._reset(self)
        return self._iterator

    def __getstate__(self) -> dict[str, Any]:
        # Worker processes belong to the process that started them.
        return {**self.__dict__, "_iterator": None}

    def __len__(self) -> int:
        if isinstance(self.dataset, IterableDataset):
            count = len(self.dataset)  # type: ignore[arg-type]
            if self.batch_size is not None:
                count = count // self.batch_size if self.drop_last else -(-count // self.batch_size)
            self._len_told = count
            return count
        return len(self._index_sampler)  # type: ignore[arg-type]

    @property
    def _auto_collation(self) -> bool:
        """Whether samples are put in batches."""
        return self.batch_sampler is not None

    @property
    def _index_sampler(self) -> Iterable[Any]:
        """The indices, or lists of them, to read."""
        return (self.sampler or ()) if self.batch_sampler is None else self.batch_sampler

    def _reading(self) -> Reading:
        return Reading(self.dataset, self.collate_fn, self.batch_size, self._auto_collation, self.drop_last)

    def _indices(self) -> Iterator[Any] | None:
        """The indices of an epoch; `None` for an `IterableDataset`, which has an order of its own."""
        return None if isinstance(self.dataset, IterableDataset) else iter(self._index_sampler)


def _core_count() -> int:
    """The number of CPU cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _BaseDataLoaderIter:
    """An iterator over the batches of one epoch."""

    def __init__(self, loader: DataLoader) -> None:
        if loader.pin_memory and not _gt.cuda_devices():
            warnings.warn(
                "pin_memory=True has no effect: there is no accelerator to copy batches to.",
                stacklevel=4,
            )
        # Batches that an `IterableDataset` may have by its own word, and those that it had.
        self._told, self._count = loader._len_told, 0
        # Drawn also without workers, so that their number does not change the numbers that are drawn later.
        self._base_seed = random_generator(loader.generator).getrandbits(63)

    def __iter__(self) -> _BaseDataLoaderIter:
        return self

    def __next__(self) -> Any:
        batch = self._read()
        if self._told is not None:
            self._count += 1
            if self._count > self._told:
                warnings.warn(
                    f"The IterableDataset's length makes {self._told} batches, and this is batch {self._count}: with "
                    "several workers, each must read its own share (get_worker_info).",
                    stacklevel=2,
                )
        return batch

    def _read(self) -> Any:
        raise NotImplementedError


class _SingleProcessDataLoaderIter(_BaseDataLoaderIter):
    """An iterator that reads samples in the calling process."""

    def __init__(self, loader: DataLoader) -> None:
        super().__init__(loader)
        indices = loader._indices()
        self._indices = repeat(None) if indices is None else indices
        self._fetch = loader._reading().fetcher()

    def _read(self) -> Any:
        return self._fetch(next(self._indices))


class _MultiProcessingDataLoaderIter(_BaseDataLoaderIter):
    """An iterator over what worker processes read."""

    def __init__(self, loader: DataLoader) -> None:
        super().__init__(loader)
        self._workers = Workers(
            loader._reading(),
            loader.num_workers,
            ahead=loader.prefetch_factor or AHEAD,
            base_seed=self._base_seed,
            init=loader.worker_init_fn,
            context=loader.multiprocessing_context,
            timeout=loader.timeout,
            in_order=loader.in_order,
        )
        self._persistent = loader.persistent_workers
        self._workers.begin(loader._indices())

    def _reset(self, loader: DataLoader) -> None:
        """Begins another epoch with the same workers."""
        super().__init__(loader)
        self._workers.begin(loader._indices())

    def _read(self) -> Any:
        try:
            return self._workers.next()
        except StopIteration:
            if not self._persistent:
                self._workers.end()
            raise
