"""Measures rows and prints them as one table.

The contenders of a row take turns, round after round, so that a machine that slows down slows all of them. The table
shows medians. A contender is a function that does its work once and returns its own measurement, so that preparation
and waiting stay out of the number.
"""

from __future__ import annotations

import gc
import json
import os
import platform
import statistics
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

OURS = "GT"
PEERS = ("NumPy", "PyTorch", "torch.compile", "bare")
# Peers of a few rows, which have a column where one of those was measured.
RARE_PEERS = ("Open MPI", "llm.c")
# A peer's thread pool spins for a while after its work; the next contender starts after that.
SETTLE_S = 0.02
# If more than half of the cores are in use before anything is measured, other programs disturb the measurements.
LOAD_MAX = len(os.sched_getaffinity(0)) / 2
LOAD_AT_START = os.getloadavg()[0]


@dataclass(frozen=True)
class Target:
    """The goal of a row: GT's measurement is at most `limit` times a peer's, or at most `limit` itself without a peer.

    With `speed`, `limit` is the least fraction of the peer's speed instead: 0.95 of its speed is 1.05 of its time.
    """

    limit: float
    peer: str | None = None
    speed: bool = False

    def text(self, unit: str) -> str:
        """Returns the target in words, for the table."""
        if self.peer is None:
            return f"≤ {_quantity(self.limit, unit)}"
        return f"≥ {self.limit:g} × {self.peer}'s speed" if self.speed else f"≤ {self.limit:g} × {self.peer}"

    def measured(self, medians: dict[str, float], unit: str) -> str:
        """Returns the measurement to compare with the target, in words."""
        if self.peer is None:
            return _quantity(medians[OURS], unit)
        return f"{self._ratio(medians):.2f} × {self.peer}"

    def met(self, medians: dict[str, float]) -> bool | None:
        """Returns whether the target was met; `None` if the peer was not measured."""
        if self.peer is None:
            return medians[OURS] <= self.limit
        if self.peer not in medians:
            return None
        return self._ratio(medians) >= self.limit if self.speed else self._ratio(medians) <= self.limit

    def _ratio(self, medians: dict[str, float]) -> float:
        ours, theirs = medians[OURS], medians[self.peer or OURS]
        return theirs / ours if self.speed else ours / theirs


@dataclass
class Row:
    """One line of the table. `contenders` maps a column to a function that returns one measurement."""

    what: str
    contenders: dict[str, Callable[[], float]]
    targets: tuple[Target, ...] = ()
    unit: str = "s"
    rounds: int = 9
    # The bytes or operations of one measurement, for a rate: `work` of "B/s" or "FLOP/s".
    work: float = 0.0
    work_unit: str = ""
    samples: dict[str, list[float]] = field(default_factory=dict)
    failure: str = ""

    @property
    def medians(self) -> dict[str, float]:
        """Returns the median of each contender's measurements."""
        return {name: statistics.median(values) for name, values in self.samples.items() if values}

    @property
    def rates(self) -> dict[str, float]:
        """Returns the work that each contender does in a second; nothing for a row whose work is not known."""
        return {name: self.work / seconds for name, seconds in self.medians.items()} if self.work else {}


class Mode:
    """How everything is measured."""

    # Fewer rounds, and shorter ones where a round lasts for a given time.
    quick = False


def measure(row: Row, quick: bool) -> None:
    """Measures a row: its contenders take turns; the first turn of each warms up and is not counted."""
    rounds = max(3, row.rounds // 3) if quick else row.rounds
    row.samples = {name: [] for name in row.contenders}
    for turn in range(rounds + 1):
        for name, contender in row.contenders.items():
            gc.collect()
            time.sleep(SETTLE_S)
            value = contender()
            if turn > 0:
                row.samples[name].append(value)


def run(
    groups: Iterable[tuple[str, Callable[[], Iterable[Row]]]],
    quick: bool,
    only: str,
    measured_so_far: Callable[[list[Row]], object] = lambda _: None,
) -> list[Row]:
    """Measures every group. A row is prepared when its turn comes, and dropped before the next one.

    `measured_so_far` is called after each row, so that a run that is ended early leaves what it measured.
    """
    measured: list[Row] = []
    Mode.quick = quick
    console = Console(stderr=True)
    for group, rows in groups:
        if only and only not in group:
            continue
        try:
            for row in rows():
                measured.append(row)
                try:
                    with console.status(f"{group}: {row.what}"):
                        measure(row, quick)
                except Exception as error:  # A row that fails must not hide the others.
                    traceback.print_exc()
                    row.failure = f"{type(error).__name__}: {error}"
                row.contenders = {}
                measured_so_far(measured)
        except Exception as error:  # Nor must a group whose next row cannot be prepared.
            traceback.print_exc()
            measured.append(Row(group, {}, failure=f"{type(error).__name__}: {error}"))
    return measured


def table(rows: list[Row]) -> Table:
    """Returns the table of all rows, with a mark for each target that was met or missed."""
    result = Table(title=f"{_machine()}; medians", title_justify="left", row_styles=["", "on grey11"])
    result.add_column("what")
    columns = [OURS, *PEERS, *(name for name in RARE_PEERS if any(name in row.samples for row in rows))]
    for name in columns:
        result.add_column(name, justify="right", no_wrap=True)
    for name in ("target", "measured", ""):
        result.add_column(name, no_wrap=True)
    for row in rows:
        if row.failure:
            result.add_row(row.what, "failed", *[""] * (len(columns) + 1), "[red]✗")
            continue
        medians = row.medians
        cells = [_quantity(medians[name], row.unit) if name in medians else "" for name in columns]
        known = [(target, target.met(medians)) for target in row.targets]
        result.add_row(
            row.what,
            *cells,
            "\n".join(target.text(row.unit) for target, _ in known),
            "\n".join("" if met is None else target.measured(medians, row.unit) for target, met in known),
            "\n".join({True: "[green]✓", False: "[red]✗", None: "–"}[met] for _, met in known),
        )
    return result


def save(rows: list[Row], path: Path) -> None:
    """Writes every sample as JSON, for later comparison."""
    document: dict[str, Any] = {"machine": _machine(), "unix_time_s": int(time.time()), "rows": []}
    for row in rows:
        targets = [
            {"text": target.text(row.unit), "met": None if row.failure else target.met(row.medians)}
            for target in row.targets
        ]
        document["rows"].append(
            {
                "what": row.what,
                "unit": row.unit,
                "medians": row.medians,
                "samples": row.samples,
                "rates": row.rates,
                "rate_unit": row.work_unit,
                "targets": targets,
                "failure": row.failure,
            }
        )
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def seconds_per_pass(work: Callable[[], object], passes: int, finish: Callable[[], object] | None = None) -> float:
    """Returns the mean time of one `work()` over `passes` calls, including `finish`, which waits for the last."""
    gc.disable()
    start = time.perf_counter()
    for _ in range(passes):
        work()
    if finish is not None:
        finish()
    elapsed = time.perf_counter() - start
    gc.enable()
    return elapsed / passes


def _quantity(value: float, unit: str) -> str:
    """Formats `value` with an SI prefix that leaves one to three digits before the point."""
    if unit == "B":
        return f"{value / 1e6:.1f} MB"
    if unit == "%":
        return f"{value:.2f} %"
    if value <= 0:
        return f"{value:g} s"
    for factor, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")):
        if value >= factor:
            return f"{value / factor:.3g} {name}"
    return f"{value / 1e-9:.2g} ns"


def _machine() -> str:
    """Describes the machine that a table was measured on."""
    model = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    cores = len(os.sched_getaffinity(0))
    return f"{model}, {cores} cores, load {LOAD_AT_START:.1f} at the start, Python {platform.python_version()}"
