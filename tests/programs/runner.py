"""Runs programs in PyTorch and in GT with the same weights and batches, compares the results and takes the times."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests.programs import catalogue
from tests.programs.catalogue import Program

ROOT = Path(__file__).resolve().parents[2]
# The largest difference of two results of a tensor, over the largest magnitude in it, that still counts as equal:
# float32 sums of thousands of numbers in another order, through tens of layers and back.
DIFFERENCE_MAX = 2e-3
# A tensor all of whose elements are smaller than this part of the largest of its kind (gradients, weights) is compared
# relative to that: a bias before a normalization has a gradient of rounding errors alone.
SMALL_PART = 1e-4
# The frameworks take turns, so that a machine that slows down slows both; a turn lasts about `TURN_S` seconds, far
# longer than the threads of PyTorch spin after their last work, which takes a core from GT's next turn.
ROUNDS = 7
# A program that seems too slow after so few turns may have met other work on the machine: so many turns count then.
ROUNDS_OF_DOUBT = 35
TURN_S = 0.15
STEPS_MAX = 1000
# The first runs compile and fill caches.
WARM_STEPS = 2
# Programs print; only `--verbose` shows it.
QUIET = subprocess.DEVNULL
RATIO_MAX = 1.1


@dataclass
class Outcome:
    """One line of the table."""

    name: str
    version: str = ""
    # One of: equal, differs, fails, skipped.
    status: str = "skipped"
    # The reason, if the status is not "equal".
    reason: str = ""
    difference: float | None = None
    torch_s: float | None = None
    gt_s: float | None = None
    differences: dict[str, float] = field(default_factory=dict)

    @property
    def ratio(self) -> float | None:
        """Returns GT's time over PyTorch's."""
        return None if self.gt_s is None or self.torch_s is None else self.gt_s / self.torch_s


class ProgramError(Exception):
    """The program raised, in one of the frameworks."""


class Process:
    """A process that runs programs in one framework, one at a time."""

    def __init__(self, framework: str, log: Any) -> None:
        self.framework = framework
        runner = ["-m", "gt.torch"] if framework == "GT" else []
        words = [sys.executable, *runner, "-m", "tests.programs.side"]
        self.process = subprocess.Popen(
            words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        )

    def end(self) -> None:
        """Closes the process's input, which ends it, and waits for that."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()

    def ask(self, *command: object) -> Any:
        """Sends a command, and returns its value once it is done."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(command) + "\n")
            self.process.stdin.flush()
            answer = json.loads(self.process.stdout.readline() or "null")
        except BrokenPipeError:
            answer = None
        if answer is None:
            raise ProgramError(f"{self.framework}'s process ended with status {self.process.wait()}")
        if "error" in answer:
            raise ProgramError(f"in {self.framework}, {answer['error']}")
        return answer["value"]


class Pair:
    """A process of each framework, which run one program after the other, so that libraries are imported once.

    After an error both are replaced, since the program may have left anything behind.
    """

    def __init__(self, log: Any = QUIET) -> None:
        self._log = log
        self._processes: tuple[Process, Process] | None = None

    def __enter__(self) -> Pair:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def processes(self) -> tuple[Process, Process]:
        """Returns the process of PyTorch and that of GT, and starts them if they do not run."""
        if self._processes is None:
            self._processes = Process("PyTorch", self._log), Process("GT", self._log)
        return self._processes

    def end(self) -> None:
        """Ends both processes."""
        for process in self._processes or ():
            process.end()
        self._processes = None


def run(program: Program, timed: bool, pair: Pair) -> Outcome:
    """Runs a program in both frameworks."""
    missing = [package for package in ("torch", program.package) if importlib.util.find_spec(package) is None]
    if missing:
        return Outcome(program.name, reason=f"{' and '.join(missing)} not installed")
    outcome = Outcome(program.name, f"{program.distribution} {importlib.metadata.version(program.distribution)}")
    theirs, ours = pair.processes()
    with tempfile.TemporaryDirectory() as folder:
        try:
            weights, results = f"{folder}/weights.npz", {}
            for side in (theirs, ours):
                side.ask("make", program.name)
                side.ask("weights" if side is theirs else "take", weights)
                side.ask("results", f"{folder}/{side.framework}.npz")
                with np.load(f"{folder}/{side.framework}.npz") as file:
                    results[side.framework] = {name: file[name] for name in file.files}
            outcome.differences = dict(compare(results["GT"], results["PyTorch"]))
            if timed:
                outcome.torch_s, outcome.gt_s = _take_turns(theirs, ours)
        except ProgramError as error:
            outcome.status, outcome.reason = "fails", str(error)
            pair.end()
            return outcome
    outcome.difference = max(outcome.differences.values(), default=0.0)
    outcome.status = "equal" if outcome.difference <= DIFFERENCE_MAX else "differs"
    if outcome.status == "differs":
        outcome.reason = f"most in {max(outcome.differences, key=outcome.differences.__getitem__)}"
    return outcome


def compare(ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> Iterator[tuple[str, float]]:
    """Yields the difference of each array, relative to its largest magnitude; infinite for one of another kind."""
    largest: dict[str, float] = {}
    for name, array in theirs.items():
        if array.dtype.kind == "f" and array.size:
            kind = name.split(":")[0]
            largest[kind] = max(largest.get(kind, 0.0), float(np.nanmax(np.abs(array), initial=0.0)))
    for name in sorted({*ours, *theirs}):
        a, b = ours.get(name), theirs.get(name)
        if a is None or b is None or a.shape != b.shape or a.dtype.kind != b.dtype.kind:
            yield name, float("inf")
        elif a.dtype.kind not in "fc":
            yield name, 0.0 if np.array_equal(a, b) else float("inf")
        elif a.size == 0 or np.array_equal(a, b, equal_nan=True):
            yield name, 0.0
        else:
            scale = max(float(np.nanmax(np.abs(b))), SMALL_PART * largest.get(name.split(":")[0], 0.0), 1e-30)
            difference = float(np.max(np.abs(a.astype(np.complex128) - b))) / scale
            yield name, float("inf") if np.isnan(difference) else difference


def _take_turns(theirs: Process, ours: Process) -> tuple[float, float]:
    """Returns the medians of the seconds of a run in PyTorch and in GT."""
    steps = {}
    for side in (theirs, ours):
        side.ask("time", WARM_STEPS)
        steps[side.framework] = max(1, min(STEPS_MAX, int(TURN_S / side.ask("time", 1))))
    times: dict[str, list[float]] = {side.framework: [] for side in (theirs, ours)}

    def medians_after(rounds: int) -> tuple[float, float]:
        for _ in range(rounds):
            for side in (theirs, ours):
                times[side.framework].append(side.ask("time", steps[side.framework]))
        return statistics.median(times["PyTorch"]), statistics.median(times["GT"])

    torch_s, gt_s = medians_after(ROUNDS)
    return (torch_s, gt_s) if gt_s <= RATIO_MAX * torch_s else medians_after(ROUNDS_OF_DOUBT - ROUNDS)


def line(outcome: Outcome) -> str:
    """Returns one line of text for a terminal."""
    words = [f"{outcome.status:8} {outcome.name}"]
    if outcome.difference is not None:
        words.append(f"difference {outcome.difference:.1e}")
    if outcome.ratio is not None:
        words.append(f"{outcome.ratio:.2f} × PyTorch ({outcome.torch_s * 1e3:.1f} ms)")
    return ", ".join([*words, *([outcome.reason] if outcome.reason else [])])


def summary(outcomes: list[Outcome]) -> str:
    """Returns how many programs ran, agreed and were as quick as they should be."""
    counts = {status: sum(o.status == status for o in outcomes) for status in ("equal", "differs", "fails", "skipped")}
    timed = [o for o in outcomes if o.ratio is not None]
    quick = sum((o.ratio or 0) <= RATIO_MAX for o in timed)
    text = f"{counts['equal']} equal, {counts['differs']} differ, {counts['fails']} fail, {counts['skipped']} skipped"
    return text + (f"; {quick} of {len(timed)} take at most {RATIO_MAX:g} × PyTorch's time" if timed else "")


def save(outcomes: list[Outcome], path: Path) -> None:
    """Writes all outcomes as JSON."""
    path.write_text(json.dumps([asdict(outcome) for outcome in outcomes], indent=1) + "\n")


def chosen(only: list[str], quick: bool) -> list[Program]:
    """Returns the programs whose names contain one of `only`, or all; with `quick`, those that `make test` runs."""
    programs = [p for p in catalogue.load().values() if p.quick or not quick]
    return [p for p in programs if not only or any(part.lower() in p.name.lower() for part in only)]
