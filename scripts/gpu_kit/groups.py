"""The groups of a run, most important first, and the steps of each."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

# A machine may end a command after ten minutes; the rest is for what the runner does before and after a group.
GROUP_LIMIT_S = 540
# The tests of operations, by file: those that the Makefile runs on several workers, too.
OPERATIONS_FILE = "operations.txt"
# The modules of the backend's tests, each run by a process of its own: an illegal access ends all tests of a process.
BACKEND_MODULES = (
    "conformance",
    "agreement",
    "matmul",
    "columns",
    "rows",
    "convolution",
    "attention",
    "worker",
    "later",
    "fused",
    "graphs",
    "lines",
    "against_cpu",
)
# The modules whose kernels share memory between threads, for the tool that finds races.
RACY_MODULES = ("columns", "rows", "attention", "lines", "matmul")
# The tool slows each thread and multiplies its memory.
SANITIZED_THREADS = 4
SOAK_MINUTES = 8.0


@dataclass
class Place:
    """Where the kit is and how a run uses it."""

    kit: Path
    gtd: Path
    python: str
    rehearsal: bool
    out: Path
    select: str = ""

    @property
    def workers(self) -> str:
        """Returns the daemon's workers: one emulated device, or the first of NVIDIA's, whose number is 0."""
        return "emulated-cuda:1" if self.rehearsal else "cuda:0"

    @property
    def processes(self) -> int:
        """Returns how many processes run the tests of Python side by side, each with a daemon of its own."""
        return max(2, min(8, (os.cpu_count() or 1) // 2))


@dataclass
class Step:
    """One program of a group."""

    name: str
    command: list[str]
    # How results are read: rust, pytest, benchmarks, parity or program.
    kind: str
    environment: dict[str, str] = field(default_factory=dict)
    # Why the step cannot run here; it is then counted as skipped.
    skipped: str | None = None


@dataclass(frozen=True)
class Group:
    """A name, what it tests, and its steps."""

    name: str
    what: str
    steps: Callable[[Place], list[Step]]
    needs_torch: bool = False
    # A group may have nothing to do on a machine, and then is skipped, not failed.
    may_be_skipped: bool = False


def _rust(
    place: Place, program: str, module: str, prefix: tuple[str, ...] = (), name: str = "", threads: int = 0
) -> Step:
    environment = {} if place.rehearsal else {"GT_TEST_DEVICE": "cuda"}
    filters = [f"{module}::"] if module else []
    command = [*prefix, str(place.kit / "bin" / program), *filters, "--show-output"]
    command += [f"--test-threads={threads}"] if threads else []
    return Step(name or module or program, command, "rust", environment)


def _pytest(place: Place, name: str, files: list[str], environment: dict[str, str], *options: str) -> Step:
    command = [place.python, "-m", "pytest", "--quiet", "-p", "no:cacheprovider", "-p", "gpu_kit.plugin"]
    chosen = ["-k", place.select] if place.select else []
    return Step(name, [*command, *options, *chosen, *files], "pytest", environment)


def _on_device(place: Place, name: str, kind: str, module: str, *arguments: str, **environment: str) -> Step:
    command = [place.python, "-m", "gpu_kit.on_device", module, *arguments]
    return Step(name, command, kind, {"GT_WORKERS": place.workers, **environment})


def _doctor(place: Place) -> list[Step]:
    return [
        Step("doctor", [str(place.kit / "bin" / "gtctl"), "doctor"], "told"),
        _on_device(place, "one-sum", "program", "gpu_kit.first"),
    ]


def _device(place: Place) -> list[Step]:
    return [_rust(place, "device", module) for module in BACKEND_MODULES if place.select in ("", module)]


def _ops(place: Place) -> list[Step]:
    files = (place.kit / OPERATIONS_FILE).read_text().split()
    return [_pytest(place, "operations", files, {"GT_WORKERS": place.workers}, "--numprocesses", str(place.processes))]


def _nccl(place: Place) -> list[Step]:
    if place.rehearsal:
        return [Step("nccl", [], "rust", skipped="NCCL has no emulated devices outside the build tree")]
    step = _rust(place, "nccl", "", name="nccl")
    step.environment = {"NCCL_MULTI_RANK_GPU_ENABLE": "1"}
    return [step]


def _bench(place: Place) -> list[Step]:
    return [_on_device(place, "bench", "benchmarks", "benches", "--only", "gpu", "--quick", "--json", "{file}")]


def _training(place: Place) -> list[Step]:
    environment = {"GT_EMULATED_DAEMON": str(place.gtd)} if place.rehearsal else {"GT_DEVICES": "cuda"}
    return [
        _on_device(place, "curve", "program", "gpu_kit.curve"),
        _pytest(place, "programs", ["tests/python/test_cuda.py"], {**environment, "GT_WORKERS": place.workers}),
    ]


def _sanitizer(place: Place) -> list[Step]:
    if place.rehearsal or not shutil.which("compute-sanitizer"):
        reason = "a rehearsal has no device" if place.rehearsal else "no compute-sanitizer on PATH"
        return [Step("sanitizer", [], "rust", skipped=reason)]
    tool = ("compute-sanitizer", "--error-exitcode", "1", "--tool")
    return [
        *(
            _rust(place, "device", module, (*tool, check), f"{check}-{module}", SANITIZED_THREADS)
            for check, modules in (("memcheck", BACKEND_MODULES), ("racecheck", RACY_MODULES))
            for module in modules
        ),
    ]


def _parity(place: Place) -> list[Step]:
    only = ["--only", place.select] if place.select else []
    arguments = ["--jobs", str(place.processes), "--json", "{file}", *only]
    return [_on_device(place, "parity", "parity", "tests.parity", *arguments)]


def _soak(place: Place) -> list[Step]:
    minutes = 0.5 if place.rehearsal else SOAK_MINUTES
    return [_on_device(place, "programs", "program", "tests.fuzz_parity", "--minutes", str(minutes))]


GROUPS = (
    Group("doctor", "what the machine has, and one sum on the device", _doctor),
    Group("device", "the backend's tests on the driver", _device),
    Group("ops", "the tests of operations", _ops),
    Group("bench", "speed beside PyTorch on the same device", _bench, needs_torch=True),
    Group("nccl", "collectives by NCCL", _nccl, may_be_skipped=True),
    Group("training", "training curves, devices, errors and memory from programs", _training, needs_torch=True),
    Group("sanitizer", "the backend's tests under compute-sanitizer", _sanitizer, may_be_skipped=True),
    Group("parity", "PyTorch's own samples of its operations", _parity, needs_torch=True),
    Group("soak", "random programs beside PyTorch", _soak, needs_torch=True),
)
