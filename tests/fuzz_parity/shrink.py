"""Deletes the lines that a failing program does not need."""

from __future__ import annotations

import re
from collections.abc import Callable

NAME = re.compile(r"\b[tn]\d+\b")
ASSIGNED = re.compile(r"([tn]\d+) = ")


def without(lines: list[str], doomed: int) -> list[str]:
    """The program without a line and without those that then lack a variable."""
    kept: list[str] = []
    known: set[str] = set()
    for i, line in enumerate(lines):
        made = ASSIGNED.match(line)
        used = set(NAME.findall(line[made.end() :] if made else line))
        if i == doomed or not used <= known:
            continue
        kept.append(line)
        if made:
            known.add(made[1])
    return kept


def shrunk(lines: list[str], fails: Callable[[list[str]], bool]) -> list[str]:
    """A program that still fails, of which no line can be deleted."""
    i = len(lines) - 1
    while i >= 0:
        smaller = without(lines, i)
        if smaller and len(smaller) < len(lines) and fails(smaller):
            lines = smaller
            i = min(i, len(lines))
        i -= 1
    return lines


def as_program(lines: list[str]) -> str:
    """The program as Python that runs in either framework."""
    names = dict.fromkeys(NAME.findall("\n".join(lines)))
    return "\n".join(["import gt as torch  # or: import torch", *lines, *(f"print({name})" for name in names)])
