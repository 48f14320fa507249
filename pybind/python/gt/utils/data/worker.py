"""The worker process of a `DataLoader`: reads samples, collates them and sends the batches. Start at `run`."""

from __future__ import annotations

import multiprocessing
import pickle
import random
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from gt import _core as gt
from gt.utils.data import transport
from gt.utils.data.dataset import Dataset, IterableDataset
from gt.utils.data.inherited import Inherited

# A worker looks this often whether the process that it reads for is still there.
PARENT_CHECK_S = 5.0


@dataclass(frozen=True)
class WorkerInfo:
    """The number, seed and dataset of a `DataLoader`'s worker process.

    Attributes:
        id: Its number, from 0.
        num_workers: The number of workers.
        seed: The seed of its random numbers: the loader's, plus `id`.
        dataset: Its copy of the dataset.
    """

    id: int
    num_workers: int
    seed: int
    dataset: Dataset
    rng: Any = None
    worker_method: str = "multiprocessing"


_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """Information about this worker process of a `DataLoader`; `None` in every other process.

    An `IterableDataset` asks for it to read only its share of the samples.

    Example:
        >>> gt.utils.data.get_worker_info() is None
        True
    """
    return _info


@dataclass(frozen=True)
class Reading:
    """How a `DataLoader` reads: its dataset, and what it makes of samples.

    Attributes:
        dataset: The dataset.
        collate_fn: The function from a list of samples to a batch, or from a sample if they are not batched.
        batch_size: For an `IterableDataset`, the number of samples in a batch; `None` for single samples.
        batched: Whether samples are put in batches.
        drop_last: Whether an incomplete last batch of an `IterableDataset` is dropped.
    """

    dataset: Any
    collate_fn: Callable[[Any], Any]
    batch_size: int | None
    batched: bool
    drop_last: bool

    def fetcher(self) -> Callable[[Any], Any]:
        """A function from an index, or a list of them, to the batch; it ignores its argument for an `IterableDataset`.

        At the end of an `IterableDataset` it raises `StopIteration`.
        """
        if isinstance(self.dataset, IterableDataset):
            samples = iter(self.dataset)
            return lambda _: self._next(samples)
        if not self.batched:
            return lambda index: self.collate_fn(self.dataset[index])
        if callable(several := getattr(self.dataset, "__getitems__", None)):
            return lambda indices: self.collate_fn(several(indices))
        return lambda indices: self.collate_fn([self.dataset[index] for index in indices])

    def _next(self, samples: Iterator[Any]) -> Any:
        if not self.batched:
            return self.collate_fn(next(samples))
        batch = list(islice(samples, self.batch_size))
        if not batch or (self.drop_last and len(batch) != self.batch_size):
            raise StopIteration
        return self.collate_fn(batch)


@dataclass(frozen=True)
class Failure:
    """An exception in a worker, as it travels to the process that reads.

    Attributes:
        kind: Its class.
        trace: Its traceback as text.
        where: The process in which it was raised.
    """

    kind: type[BaseException]
    trace: str
    where: str

    @classmethod
    def of(cls, error: BaseException, number: int) -> Failure:
        """The exception of the worker with a number."""
        trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        kind = type(error)
        try:
            pickle.dumps(kind)
        except Exception:  # A class of a function's own.
            kind = RuntimeError
        return cls(kind, trace, f"in DataLoader worker process {number}")

    def raise_again(self) -> None:
        """Raises an exception of the same class, if one can be made of a message, with the worker's traceback in it."""
        text = f"Caught {self.kind.__name__} {self.where}.\nOriginal {self.trace}"
        if self.kind is KeyError:
            raise KeyError(_Lines(text))
        try:
            error = self.kind(text)
        except Exception:
            raise RuntimeError(text) from None
        raise error


class _Lines(str):
    """A text that `KeyError` shows as it is, not on one line."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


@dataclass(frozen=True)
class End:
    """The answer of a worker whose `IterableDataset` has no more samples."""


@dataclass(frozen=True)
class Start:
    """The message that begins an epoch: what was asked for before is of no use any more."""


@dataclass(frozen=True)
class Role:
    """One worker's part.

    Attributes:
        number: Its number, from 0.
        count: The number of workers.
        base_seed: The seed of worker 0.
        init: A function of the number, called first.
        others: In a forked process, connections of other workers, which this one closes.
        inherited: In a forked process, the elements of the tensors that it uses.
    """

    number: int
    count: int
    base_seed: int
    init: Callable[[int], Any] | None
    others: Sequence[Connection] = ()
    inherited: Inherited | None = None


def _begin(reading: Reading, role: Role) -> None:
    """Seeds the process's random numbers, and calls `worker_init_fn`."""
    global _info
    for connection in role.others:
        connection.close()
    seed = role.base_seed + role.number
    random.seed(seed)
    gt.manual_seed(seed)
    words = [role.number, role.base_seed & 0xFFFFFFFF, role.base_seed >> 32, 0]
    np.random.seed(np.random.SeedSequence(words).generate_state(4))
    if role.inherited is not None:
        role.inherited.adopt()
    _info = WorkerInfo(role.number, role.count, seed, reading.dataset)
    if role.init is not None:
        role.init(role.number)


def _answer(fetch: Callable[[Any], Any], index: Any, reading: Reading, number: int) -> Any:
    try:
        return fetch(index)
    except Exception as error:
        if isinstance(error, StopIteration) and isinstance(reading.dataset, IterableDataset):
            return End()
        return Failure.of(error, number)


def _reply(connection: Connection, place: int, answer: Any, number: int) -> None:
    try:
        transport.send(connection, (place, answer))
    except (BrokenPipeError, ConnectionResetError):
        raise
    except Exception as error:  # The batch cannot be pickled.
        transport.send(connection, (place, Failure.of(error, number)))


def run(connection: Connection, reading: Reading, role: Role) -> None:
    """Answers each `(place, index)` with `(place, batch)`, until `None` comes or the other side has ended.

    Args:
        connection: The connection to the process that reads.
        reading: How to read.
        role: This worker's part.
    """
    parent = multiprocessing.parent_process()
    failed: Failure | None = None
    fetch: Callable[[Any], Any] | None = None
    try:
        try:
            _begin(reading, role)
        except Exception as error:
            failed = Failure.of(error, role.number)
        while True:
            while not connection.poll(PARENT_CHECK_S):
                if parent is not None and not parent.is_alive():
                    return
            message = transport.receive(connection)
            if message is None:
                return
            if isinstance(message, Start):
                fetch = None
                continue
            place, index = message
            if failed is None and fetch is None:
                try:
                    fetch = reading.fetcher()
                except Exception as error:
                    failed = Failure.of(error, role.number)
            answer = failed or _answer(fetch, index, reading, role.number)  # type: ignore[arg-type]
            _reply(connection, place, answer, role.number)
            del answer
    except (EOFError, BrokenPipeError, ConnectionResetError, KeyboardInterrupt):
        # The process that reads has ended, or gets the same signal and raises the exception itself.
        return
