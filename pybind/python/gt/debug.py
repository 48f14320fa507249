"""Debugging: the autograd tape of this process, its memory, the placement of its tensors, and what workers did for it.

Start at `explain`, `get_tape`, `memory_summary`, `placement` and `get_worker_stats`. `gt.profiler` profiles a block,
and `GT_INSTRUCTION_LOG` logs the daemon's instructions, see docs/seeing.md.
"""

from __future__ import annotations

import pickle
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from gt import _gt, _instruments, _memory_viz
from gt._gt import Tensor

__all__ = [
    "Placement",
    "comm_stats",
    "explain",
    "get_tape",
    "get_worker_stats",
    "memory_snapshot",
    "memory_summary",
    "placement",
    "print_tape",
    "print_worker_stats",
    "record_lines",
]


# Findings of a smaller part of the time are not printed, as by `gtctl explain`.
SHOWN_FROM = 0.01


def get_tape() -> list[dict[str, Any]]:
    """The nodes of the autograd graph that some tensor still needs for `backward()`, oldest first.

    Each is a dict: its `id`, the `op` that made its tensor, the tensor's `shape` and `dtype`, `inputs` (the ids of the
    nodes of the operands) and `leaf` (whether gradients end in it).

    Example:
        >>> x = gt.ones(2, requires_grad=True)
        >>> y = x * 3
        >>> [node["op"] for node in gt.debug.get_tape()][-2:]
        ['leaf', 'mul']
    """
    return _gt.tape()


def print_tape(file: TextIO | None = None) -> None:
    """Prints `get_tape()` as a table, to a file or to the standard output."""
    header = ("id", "op", "shape", "dtype", "inputs")
    rows = [
        (
            f"#{node['id']}",
            "leaf" if node["leaf"] else node["op"],
            str(tuple(node["shape"])),
            node["dtype"],
            " ".join(f"#{i}" for i in node["inputs"]) or "-",
        )
        for node in get_tape()
    ]
    out = sys.stdout if file is None else file
    _print_table(out, header, rows)
    if not rows:
        out.write("(empty: no tensor here needs a gradient)\n")


def _print_table(out: TextIO, header: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    for row in (header, tuple("-" * width for width in widths), *rows):
        out.write("  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip() + "\n")


@dataclass(frozen=True)
class Placement:
    """The placement of a tensor on workers; `str()` makes a sentence of it.

    Attributes:
        layout: `"replicated"` (each worker has the whole tensor), `"sharded"` (each has a part along an axis) or
            `"partial"` (each has a tensor of the whole shape, which a reduction combines).
        workers: The names of the workers.
        axis: The axis along which a sharded tensor is cut.
        join: The reduction that combines the parts of a partial tensor, as `"sum"`.
        rows: The number of rows of the mesh of workers; 1 without a mesh. With several, the attributes before say what
            each row has of the tensor.
        within: What each worker of a row has of what the row has; None without a mesh.
    """

    layout: str
    workers: tuple[str, ...]
    axis: int | None = None
    join: str | None = None
    rows: int = 1
    within: Placement | None = None

    def __str__(self) -> str:
        """As in `sharded along axis 0 over [cpu:0, cpu:1]`."""
        names = f"[{', '.join(self.workers)}]"
        if self.within is not None:
            return f"{self._layout()} over {self.rows} rows of {names}, {self.within._layout()} within a row"
        if self.layout == "replicated" and len(self.workers) == 1:
            return f"on {self.workers[0]}"
        return f"{self._layout()} {'over' if self.layout == 'sharded' else 'on'} {names}"

    def _layout(self) -> str:
        details = {"sharded": f" along axis {self.axis}", "partial": f" ({self.join})"}
        return self.layout + details.get(self.layout, "")


def placement(x: Tensor) -> Placement:
    """The placement of a tensor on the workers. Waits until all issued instructions are done.

    Args:
        x: The tensor.

    Returns:
        A `Placement`. `print` shows it as a sentence, such as `sharded along axis 0 over [cpu:0, cpu:1]`.

    Example:
        >>> gt.debug.placement(gt.ones(2)).layout
        'replicated'
    """
    workers, layout, row = _gt.placement(x)
    names = tuple(workers)
    if row is None:
        return Placement(layout[0], names, *layout[1:])
    rows, within = row
    return Placement(layout[0], names, *layout[1:], rows, Placement(within[0], names, *within[1:]))


def comm_stats() -> dict[str, dict[str, dict[str, int]]]:
    """The communication among the workers of this session since it began.

    For each worker and each collective (`"all_reduce"`), the number of calls (`"count"`) and of bytes sent (`"bytes"`).
    Waits until all issued instructions are done.
    """
    return _gt.traffic()


def get_worker_stats() -> dict[str, dict[str, Any]]:
    """The state of each worker of this session, by its name. Waits until all issued instructions are done.

    Each is a dict: `kind` (`"cpu"` or `"cuda"`), `memory_bytes` and `memory_bytes_limit` of all sessions together,
    `session_bytes` and `session_bytes_peak` of this one, and `collectives`, as `comm_stats` counts them. A worker on a
    GPU also has `device`, `capability`, `multiprocessors` and `device_bytes`.

    `total_instructions` counts the steps that the worker has done for this session since it began, and `operations` has
    for each operation (`"matmul"`) their `count`, their `time_ns` on the worker, their `bytes` (of the instructions, or
    of the data moved) and the `errors` among them. The first of several fused steps has the time of all, and small
    steps that the daemon runs itself have an estimate.

    Each worker also has the session's counts of the sequences of instructions that it repeats: `unique_sequences` that
    came twice, and the `hot_sequences` among them that came once more as a whole; `hot_instructions` that followed a
    sequence, and all other, `cold_instructions`; the `cache_hits` among the hot ones, which the daemon took from a plan
    instead of validating them again, and the `cache_misses`. With `GT_AUTO_COMPILE=0` all are 0.

    Example:
        >>> for name, worker in gt.debug.get_worker_stats().items():
        ...     worker["session_bytes_peak"] >= worker["session_bytes"]
        True
    """
    traffic, operations, sequences = comm_stats(), _gt.worker_operations(), _gt.sequences()
    stats = {worker.pop("name"): worker for worker in _gt.worker_status()}
    nothing = {"session_bytes": 0, "session_bytes_peak": 0}
    return {
        name: {
            **nothing,
            **worker,
            "collectives": traffic.get(name, {}),
            "total_instructions": sum(done["count"] for done in operations.get(name, {}).values()),
            "operations": operations.get(name, {}),
            **sequences,
        }
        for name, worker in stats.items()
    }


def print_worker_stats(file: TextIO | None = None) -> None:
    """Prints the operations of `get_worker_stats()` as a table, to a file or to the standard output.

    Those that took longest come first.
    """
    stats = get_worker_stats()
    done = [(name, op, of) for name, worker in stats.items() for op, of in worker["operations"].items()]
    rows = [
        (name, op, str(of["count"]), f"{of['time_ns'] / 1e6:.3f}", str(of["bytes"]), str(of["errors"]))
        for name, op, of in sorted(done, key=lambda row: -row[2]["time_ns"])
    ]
    out = sys.stdout if file is None else file
    _print_table(out, ("worker", "operation", "count", "ms", "bytes", "errors"), rows)
    total = sum(worker["total_instructions"] for worker in stats.values())
    out.write(f"{total} instructions\n")
    for of in list(stats.values())[:1]:
        out.write(
            f"{of['unique_sequences']} sequences that repeat, which {of['hot_instructions']} instructions followed, "
            f"{of['cache_hits']} of them as planned; {of['cold_instructions']} other instructions\n"
        )


def memory_snapshot(path: str | Path | None = None) -> list[dict[str, Any]]:
    """The tensors of this session that are alive, summed by the line that issued them, the largest sum first.

    A tensor is alive while a variable, a view or the autograd graph refers to it. Each sum is a dict: `line`
    (`"train.py:12 in step"`) with its parts `filename`, `lineno` and `function`, and the `tensors` and `bytes` of it.
    Bytes are those of the elements: a worker needs none for a tensor whose elements are all equal, and several workers
    may hold a tensor each. The line is that of the program, not of this package; it is empty where it is not known.

    Args:
        path: A file for https://pytorch.org/memory_viz, with each tensor as a block of memory.

    Example:
        >>> x = gt.rand(256, 1024)
        >>> gt.debug.memory_snapshot()[0]["bytes"] >= 256 * 1024 * 4
        True
    """
    tensors = _gt.live_tensors()
    if path is not None:
        with Path(path).open("wb") as file:
            pickle.dump(_memory_viz.document(tensors), file)
    sums: dict[tuple[str, int, str], list[int]] = {}
    for _, size, line in tensors:
        held = sums.setdefault(line or ("", 0, ""), [0, 0])
        held[0] += 1
        held[1] += size
    return [
        {
            "line": f"{file}:{number} in {function}" if file else "",
            "filename": file,
            "lineno": number,
            "function": function,
            "tensors": count,
            "bytes": size,
        }
        for (file, number, function), (count, size) in sorted(sums.items(), key=lambda of: (-of[1][1], of[0]))
    ]


def memory_summary(file: TextIO | None = None, row_limit: int = 20) -> None:
    """Prints `memory_snapshot()` as a table, and what the workers hold for this session.

    Args:
        file: Where it is printed, by default to the standard output.
        row_limit: The most lines of the table; -1 for all.
    """
    lines = memory_snapshot()
    rows = [(_bytes(held["bytes"]), str(held["tensors"]), held["line"] or "(not known)") for held in lines]
    out = sys.stdout if file is None else file
    _print_table(out, ("bytes", "tensors", "issued at"), rows if row_limit < 0 else rows[:row_limit])
    if 0 <= row_limit < len(rows):
        rest = sum(held["bytes"] for held in lines[row_limit:])
        out.write(f"and {len(rows) - row_limit} more lines with {_bytes(rest)}\n")
    tensors, size = (sum(held[key] for held in lines) for key in ("tensors", "bytes"))
    workers = _gt.worker_status() if _gt.is_connected() else []
    held = ", ".join(f"{worker['name']} {_bytes(worker.get('session_bytes', 0))}" for worker in workers)
    out.write(f"{tensors} tensors are alive, with elements of {_bytes(size)}")
    out.write(f"; held for this session: {held}\n" if held else "\n")


def record_lines(on: bool = True) -> bool:
    """Whether the lines of operations are recorded from now on, as they are from the beginning.

    Recording takes some 10 ns an operation. Errors, profiles and `memory_snapshot()` do not know the lines of what was
    issued without it.

    Args:
        on: Whether lines are recorded.

    Returns:
        Whether they were before.
    """
    return _gt.record_lines(on)


class explain:  # noqa: N801 (it reads as a function)
    """Measures a block of the program, and prints why it takes the time that it takes, the most important first.

    The program may be bound by what Python does between operations, by waiting for values, by other sessions, by one
    worker while others idle, by moves between workers, or by the operations themselves, which is the good case. Each
    sentence has its part of the time, the lines of the program that it is about, and what to try.

    The daemon writes what happens anyway, and `gtctl explain` reads it beside the program. At the end of the block the
    program waits until everything issued is done.

    Args:
        file: Where it is printed, by default to the standard output.
        seconds: The most time of the block that is measured, by default an hour.

    Attributes:
        findings: After the block, the findings as dicts: their `kind`, the `fraction` of the time, the `sentence`, the
            `hint`, and the `figures`.

    Raises:
        RuntimeError: The daemon cannot be asked.

    Example:
        >>> import io
        >>> with gt.debug.explain(io.StringIO()) as explanation:
        ...     total = sum(gt.ones(3).sum().item() for _ in range(100))
        >>> {"kind", "fraction", "sentence", "hint"} <= explanation.findings[0].keys()
        True
    """

    def __init__(self, file: TextIO | None = None, *, seconds: float | None = None) -> None:
        self._file = file
        self._seconds = seconds
        self.findings: list[dict[str, Any]] = []

    def __enter__(self) -> explain:
        _gt.synchronize()
        self._measurement = _instruments.Measurement(self._seconds)
        self._begin_ns = time.monotonic_ns()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            _gt.synchronize()
        finally:
            said = self._measurement.finish(self._begin_ns, time.monotonic_ns())
        self.findings = said["findings"]
        out = sys.stdout if self._file is None else self._file
        out.write(f"{said['seconds']:.3f} s, {said['instructions']} instructions\n")
        shown = [found for found in self.findings if found["fraction"] is None or found["fraction"] >= SHOWN_FROM]
        for number, found in enumerate(shown, 1):
            out.write(f"{number}. {found['sentence']}\n   {found['hint']}\n")
        if said["lost"]:
            out.write(f"{said['lost']} events were lost, so the figures are those of the rest.\n")


def _bytes(size: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
