"""Looking inside: the autograd tape of this process, and where its tensors lie.

Start at `get_tape`, and at `placement`. What the daemon does is told by `GT_INSTRUCTION_LOG`, see docs/environment.md.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, TextIO

from gt import _gt
from gt._gt import Tensor

__all__ = ["Placement", "comm_stats", "get_tape", "placement", "print_tape"]


def get_tape() -> list[dict[str, Any]]:
    """The nodes that some tensor still needs for `backward()`, oldest first.

    Each is a dict: its `id`, the `op` that made its tensor, the tensor's `shape` and `dtype`, `inputs` (the ids of the
    nodes whose tensors it was made from) and `leaf` (whether gradients end in it).
    """
    return _gt.tape()


def print_tape(file: TextIO | None = None) -> None:
    """Prints `get_tape()` as a table, to `file` or the standard output."""
    header = ("id", "op", "shape", "dtype", "inputs")
    rows = [
        (
            f"#{node['id']}",
            "leaf" if node["leaf"] else node["op"],
            str(tuple(node["shape"])),
            str(node["dtype"]).removeprefix("gt."),
            " ".join(f"#{i}" for i in node["inputs"]) or "-",
        )
        for node in get_tape()
    ]
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    out = sys.stdout if file is None else file
    for row in (header, tuple("-" * width for width in widths), *rows):
        out.write("  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip() + "\n")
    if not rows:
        out.write("(empty: no tensor here needs a gradient)\n")


@dataclass(frozen=True)
class Placement:
    """How a tensor lies on workers; as a string, a sentence.

    Attributes:
        layout: `"replicated"` if each worker has all of it (one alone, too), `"sharded"` if each has a stretch of an
            axis, `"partial"` if each has a tensor of the whole shape, which only joined are the tensor.
        workers: The names of the workers.
        axis: The axis that is cut, of a sharded tensor.
        join: What joins the parts of a partial tensor, as `"sum"`.
    """

    layout: str
    workers: tuple[str, ...]
    axis: int | None = None
    join: str | None = None

    def __str__(self) -> str:
        """As in `sharded along axis 0 over [cpu:0, cpu:1]`."""
        names = f"[{', '.join(self.workers)}]"
        if self.layout == "sharded":
            return f"sharded along axis {self.axis} over {names}"
        if self.layout == "partial":
            return f"partial ({self.join}) on {names}"
        return f"on {self.workers[0]}" if len(self.workers) == 1 else f"replicated on {names}"


def placement(x: Tensor) -> Placement:
    """How a tensor lies on the workers. Waits until everything issued so far has been done."""
    layout, workers, axis, join = _gt.placement(x)
    return Placement(layout, tuple(workers), axis, join)


def comm_stats() -> dict[str, dict[str, dict[str, int]]]:
    """What the workers of this session have told each other since it began.

    For each worker, for each collective that it took part in (`"all_reduce"`), how often (`"count"`) and how many bytes
    it sent (`"bytes"`). Waits until everything issued so far has been done.
    """
    return _gt.traffic()
