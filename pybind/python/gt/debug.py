"""Looking inside: the autograd tape of this process.

Start at `get_tape`. What the daemon does is told by `GT_INSTRUCTION_LOG`, see docs/environment.md.
"""

from __future__ import annotations

import sys
from typing import Any, TextIO

from gt import _gt

__all__ = ["get_tape", "print_tape"]


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
