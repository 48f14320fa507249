"""Writing part of a tensor, from 256 KB to 1 GB: the time depends on the part, not on the tensor."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from typing import Any

import gt
from benches.harness import Row, Target
from benches.peers import torch

# Bytes of the tensor that a part is written to.
SIZES = {"256 KB": 256 << 10, "16 MB": 16 << 20, "256 MB": 256 << 20, "1 GB": 1 << 30}
COLUMNS = 256
# Writes before one element is fetched, which waits for all of them.
PASSES = 200


def _add(_: Any, x: Any) -> Callable[[], None]:
    def write() -> None:
        x[:10] += 1

    return write


def _index_put(lib: Any, x: Any) -> Callable[[], None]:
    rows, values = lib.arange(10) * 3, lib.ones(10, COLUMNS)

    def write() -> None:
        x.index_put_((rows,), values)

    return write


def _index_add(lib: Any, x: Any) -> Callable[[], None]:
    rows, values = lib.arange(10) * 3, lib.ones(10, COLUMNS)

    def write() -> None:
        x.index_add_(0, rows, values)

    return write


def _masked_fill(lib: Any, x: Any) -> Callable[[], None]:
    mask = (lib.arange(10 * COLUMNS) % 2 == 0).reshape(10, COLUMNS)

    def write() -> None:
        x[:10].masked_fill_(mask, 3.0)

    return write


def _copy(lib: Any, x: Any) -> Callable[[], None]:
    values = lib.ones(10, COLUMNS)

    def write() -> None:
        x[20:30].copy_(values)

    return write


def _zero(_: Any, x: Any) -> Callable[[], None]:
    def write() -> None:
        x[40:50].zero_()

    return write


WRITES = {
    "x[:10] += 1": _add,
    "x.index_put_((rows,), values)": _index_put,
    "x.index_add_(0, rows, values)": _index_add,
    "x[:10].masked_fill_(mask, 3)": _masked_fill,
    "x[20:30].copy_(values)": _copy,
    "x[40:50].zero_()": _zero,
}


def _write_s(write: Callable[[], None], x: Any) -> float:
    """Returns the time of one write, of many before an element is fetched."""
    write()
    x[-1, -1].item()
    start = time.perf_counter()
    for _ in range(PASSES):
        write()
    x[-1, -1].item()
    return (time.perf_counter() - start) / PASSES


def rows() -> Iterator[Row]:
    """Yields a row for each write and size."""
    for size, bytes_ in SIZES.items():
        shape = (bytes_ // 4 // COLUMNS, COLUMNS)
        libs = {"GT": gt, **({"PyTorch": torch} if torch else {})}
        tensors = {name: lib.zeros(*shape) for name, lib in libs.items()}
        for what, make in WRITES.items():
            contenders = {}
            for name, lib in libs.items():
                contenders[name] = functools.partial(_write_s, make(lib, tensors[name]), tensors[name])
            yield Row(f"{what}, x of {size}", contenders, (Target(2, "PyTorch"),))
        # Freed before the next size.
        del tensors
