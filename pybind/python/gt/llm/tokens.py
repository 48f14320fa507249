"""Files of tokens, and the batches that training reads of them, in the order of llm.c."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from gt.llm.files import HEADER_BYTES, TOKENS, FileError, check_header, check_size, make_header, written
from gt.llm.mersenne import Mersenne

# llm.c seeds the order of shards and samples with this number plus the rank.
SHUFFLE_SEED = 42


def write_tokens(path: str | os.PathLike[str], tokens: Iterable[int] | np.ndarray) -> None:
    """Writes tokens below 65,536 as a file of llm.c.

    Raises:
        ValueError: A token does not fit 16 bits.
    """
    numbers = np.asarray(tokens if isinstance(tokens, np.ndarray) else list(tokens))
    if numbers.size and not (numbers.min() >= 0 and numbers.max() < 1 << 16):
        raise ValueError(f"tokens are 0 to 65535, but {path} was to get {numbers.min()} to {numbers.max()}")
    with written(path) as file:
        file.write(make_header(TOKENS, 1, {2: numbers.size}))
        file.write(numbers.astype("<u2").tobytes())


def read_tokens(path: str | os.PathLike[str]) -> np.ndarray:
    """Returns the tokens of a file as a memory map of uint16, of any size: nothing is read before it is used.

    Raises:
        FileError: The file holds something else, or is cut off.
    """
    with open(path, "rb") as file:
        header = check_header(file.read(HEADER_BYTES), path, TOKENS, (1,))
        size = os.fstat(file.fileno()).st_size
    count = int(header[2].view("<u4"))
    check_size(path, size, HEADER_BYTES + 2 * count, f"{count:,} tokens")
    return np.memmap(path, "<u2", "r", HEADER_BYTES, (count,)) if count else np.zeros(0, "<u2")


class Position(NamedTuple):
    """The next sample: the index of its shard in the order of shards, and its index in the order of samples."""

    shard: int
    sample: int


class TokenLoader:
    """Batches from the files that a pattern matches, in order of their names or shuffled.

    A sample of a shard is a row of `processes * batch * length` tokens, of which each process takes its part; the last
    tokens that make no whole sample are left out. After the last sample comes the next shard, after the last shard the
    first.

    Args:
        pattern: A path with `*`, such as `fineweb_train_*.bin`.
        batch: The number of sequences.
        length: The tokens of a sequence.
        rank: The number of this process.
        processes: The number of processes that share each sample.
        shuffle: Whether shards and samples come in another order in every epoch.

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> gt.llm.write_tokens(f"{folder}/train.bin", range(9))
        >>> inputs, targets = gt.llm.TokenLoader(f"{folder}/*.bin", batch=1, length=4).next_batch()
        >>> inputs.tolist(), targets.tolist()
        ([[0, 1, 2, 3]], [[1, 2, 3, 4]])
    """

    def __init__(
        self, pattern: str, batch: int, length: int, rank: int = 0, processes: int = 1, shuffle: bool = False
    ) -> None:
        self.paths = sorted(glob.glob(pattern))
        if not self.paths:
            raise FileNotFoundError(f"no file matches {pattern}: the tokens of training are files such as {pattern}")
        self.batch, self.length, self.rank, self.processes = batch, length, rank, processes
        self.sample_tokens = processes * batch * length
        for path in self.paths:
            if len(read_tokens(path)) < self.sample_tokens + 1:
                raise FileError(
                    f"{path} has {len(read_tokens(path)):,} tokens, but one sample of {processes} × {batch} × {length} "
                    f"needs {self.sample_tokens + 1:,}: take a smaller batch, or leave the file out"
                )
        self.random = Mersenne(SHUFFLE_SEED + rank) if shuffle else None
        self.shard_order = np.arange(len(self.paths))
        self.reset()

    def reset(self) -> None:
        """Goes to the first sample; with `shuffle`, of a new order."""
        if self.random:
            self.shard_order = self.random.permuted(self.shard_order)
        self._open(0)

    def _open(self, shard: int) -> None:
        self.tokens = read_tokens(self.paths[self.shard_order[shard]])
        self.position = Position(shard, 0)
        samples = (2 * len(self.tokens) - 2) // (2 * self.sample_tokens)
        self.sample_order = np.arange(samples)
        if self.random:
            self.sample_order = self.random.permuted(self.sample_order)

    def next_batch(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns inputs and targets, the tokens one later: int64, shape `(batch, length)`."""
        shard, sample = self.position
        if sample >= len(self.sample_order):
            if shard + 1 < len(self.paths):
                self._open(shard + 1)
            else:
                self.reset()
            shard, sample = self.position
        own = self.batch * self.length
        start = int(self.sample_order[sample]) * self.sample_tokens + self.rank * own
        row = np.asarray(self.tokens[start : start + own + 1], np.int64)
        self.position = Position(shard, sample + 1)
        shape = (self.batch, self.length)
        return row[:-1].reshape(shape), row[1:].reshape(shape)
