"""The rows of the op table, as dicts, and the names of the functions that follow from them.

A row says what its op is called, accepts and computes, and in which forms Python has it; see `ops/src/row.rs`.
"""

from __future__ import annotations

from typing import Any

from gt import _gt

TABLE: list[dict[str, Any]] = _gt.op_table()


def named(fact: str) -> frozenset[str]:
    """Returns the names, aliases included, of the functions whose rows have a fact, such as `out`."""
    return frozenset(name for row in TABLE if row[fact] for name in (row["name"], *row["aliases"]))
