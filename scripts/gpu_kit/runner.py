"""The command line of `gpu-kit/run`: runs groups on this machine's GPU, and writes a JSON file and a log for each.

    gpu-kit/run                          every group, most important first
    gpu-kit/run doctor bench:200 ops     these groups, in this order; bench ends after 200 seconds
    gpu-kit/run ops --select matmul      the tests of ops whose names have this word

Each group ends within nine minutes, and says what was left then; so does a run that is told to end (SIGTERM). Results
go to --out, or $OUT, or gpu-kit-out here, and everything else that is written to gpu-kit/scratch. The exit status is 0
if every group passed, 1 if one did not, and 2 if nothing can run here.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import math
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from gpu_kit import machine, results
from gpu_kit.groups import GROUP_LIMIT_S, GROUPS, Group, Place, Step
from gpu_kit.machine import Interpreter, Machine
from gpu_kit.on_device import FOLDER_VARIABLE
from gpu_kit.plugin_names import RESULTS_VARIABLE
from gpu_kit.results import Results

KIT = Path(__file__).resolve().parent.parent
# A step that begins with less time than this tells nothing.
STEP_LEAST_S = 1
# How long a program has, once it is told to end, before it is killed.
GRACE_S = 5
FAILURES_PRINTED_MAX = 20
SAMPLE_FIELDS = ("clocks.sm", "clocks.mem", "temperature.gpu", "power.draw", "utilization.gpu", "memory.used")
SAMPLE_S = 2

# The words of a worker's log, and of a test's output, that the kit's compiled kernels are not used.
KERNELS_UNUSED = "the file of compiled ones is not used"
# How often the runner looks whether it has been told to end, in seconds.
POLL_S = 0.05


def main() -> int:
    """Runs the groups that the arguments name, and prints a table of the results."""
    arguments = _arguments()
    if arguments.list:
        print("\n".join(f"{group.name:<11}{group.what}" for group in GROUPS))
        return 0
    manifest = json.loads((KIT / "manifest.json").read_text())
    if why := machine.unsuited(manifest):
        return _impossible(why)
    if arguments.emulated and not os.access(arguments.emulated, os.X_OK):
        return _impossible(f"--emulated {arguments.emulated} is no program: `make target/emulated/gtd` builds it")
    # The programs run in another folder.
    asked = os.path.abspath(arguments.python) if os.sep in (arguments.python or "") else arguments.python
    python = machine.interpreter(asked, sys.executable, sorted(manifest["packages"]))
    if not python.facts["python"]:
        return _impossible(f"{python.executable} is no Python that runs: {python.facts['error']}")
    run = Run(arguments, manifest, python)
    # Nothing is raised: a signal may come while a program is being started, and results so far are always written.
    signal.signal(signal.SIGTERM, lambda *_: run.end())
    by_name = {group.name: group for group in GROUPS}
    return run.all([(by_name[name], limit_s) for name, limit_s in arguments.groups])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="gpu-kit/run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [group.name for group in GROUPS]
    groups = f"of {', '.join(names)} [all]; with :SECONDS, it ends after this time"
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=groups)
    parser.add_argument("--out", type=Path, metavar="DIR", help="the folder for results [$OUT, or gpu-kit-out]")
    parser.add_argument("--python", metavar="PATH", help="the interpreter with PyTorch [the first found on PATH]")
    parser.add_argument("--limit", type=float, metavar="SECONDS", help="end the whole run after this time")
    parser.add_argument("--select", default="", metavar="WORD", help="of each group, only what has this in its name")
    parser.add_argument("--emulated", type=Path, metavar="GTD", help="a rehearsal, by a gtd with emulated devices")
    parser.add_argument("--list", action="store_true", help="name the groups")
    arguments = parser.parse_args()
    asked = [name.partition(":") for name in arguments.groups or names]
    for name, _, seconds in asked:
        if name not in names:
            parser.error(f"there is no group {name}: --list names them")
        if seconds and not seconds.isdigit():
            parser.error(f"{name}:{seconds} has no number of seconds: {name}:200 ends after 200")
    arguments.groups = [(name, min(int(seconds or GROUP_LIMIT_S), GROUP_LIMIT_S)) for name, _, seconds in asked]
    return arguments


def _impossible(why: str) -> int:
    print(f"gpu-kit: {why}", file=sys.stderr)
    return 2


class Run:
    """A run of several groups."""

    def __init__(self, arguments: argparse.Namespace, manifest: dict[str, Any], python: Interpreter) -> None:
        """Makes the output folder, and looks at the machine."""
        self.manifest, self.python = manifest, python
        self.rehearsal = arguments.emulated is not None
        self.out = (arguments.out or Path(os.environ.get("OUT", "gpu-kit-out"))).resolve()
        self.gtd = arguments.emulated.resolve() if self.rehearsal else KIT / "bin" / "gtd"
        self.place = Place(KIT, self.gtd, python.executable, self.rehearsal, self.out, arguments.select)
        self.ends = time.monotonic() + arguments.limit if arguments.limit else math.inf
        self.out.mkdir(parents=True, exist_ok=True)
        # Results stay few and small: what programs write beside them goes into the kit's folder.
        self.scratch = (KIT if os.access(KIT, os.W_OK) else self.out) / "scratch"
        for folder in ("cache", "t", "home"):
            (self.scratch / folder).mkdir(parents=True, exist_ok=True)
        self.environment = self._environment()
        self.machine = self._look()

    def end(self) -> None:
        """Ends the run now: its program is ended, and nothing else is begun."""
        self.ends = time.monotonic()

    def all(self, groups: list[tuple[Group, int]]) -> int:
        """Runs the groups, each with its limit in seconds, and returns the exit status."""
        mark = "REHEARSAL on an emulated device: it says nothing of a GPU\n" if self.rehearsal else ""
        print(f"{mark}{self._words()}", flush=True)
        for words in filter(None, [self.machine.no_device, *self.machine.warnings]):
            print(f"gpu-kit: {words}", flush=True)
        documents = []
        for group, limit_s in groups:
            document = self.group(group, limit_s)
            documents.append(document)
            path = self.out / f"{group.name}.json"
            path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
        print(f"\n{mark}{summary(documents)}\n\nfiles: {self.out}")
        return int(any(document["status"] not in ("passed", "skipped") for document in documents))

    def group(self, group: Group, limit_s: float) -> dict[str, Any]:
        """Runs a group; returns its document."""
        began, started = time.monotonic(), datetime.datetime.now(datetime.timezone.utc)
        limit_s = min(limit_s, self.ends - began)
        print(f"\n{group.name}: {group.what} …", flush=True)
        found, reason = Results(), self._why_not(group, limit_s)
        log = self.out / f"{group.name}.log"
        log.write_text("")
        clocks: dict[str, Any] = {}
        if reason is None:
            with Sampler(self.out / f"{group.name}-clocks.csv") as sampler:
                steps = group.steps(self.place)
                for step in steps:
                    found.add(self._step(group, step, began + limit_s, log))
            clocks = sampler.summary()
        # The doctor looks at a machine without a device, too; what it cannot compute has one cause.
        status, reason = _status(group, found, reason or self.machine.no_device)
        print(f"{group.name}: {status}{f': {reason}' if reason else ''}", flush=True)
        return {
            "group": group.name,
            "what": group.what,
            "rehearsal": self.rehearsal,
            "started": started.isoformat(timespec="seconds"),
            "seconds": round(time.monotonic() - began, 1),
            "limit_s": round(limit_s),
            "status": status,
            "reason": reason,
            **found.document(),
            "clocks": clocks,
            "warnings": self.machine.warnings,
            "machine": self.machine.facts,
            "kit": {name: self.manifest[name] for name in ("version", "revision", "built")},
        }

    def _why_not(self, group: Group, limit_s: float) -> str | None:
        if limit_s < STEP_LEAST_S:
            return "the run's time was over: nothing of it was run"
        if self.machine.no_device and group.name != "doctor":
            return self.machine.no_device
        if group.needs_torch and not self.python.has_torch:
            return (
                f"{self.python.executable} has no PyTorch ({self.python.facts.get('error', 'it is not installed')}):"
                " pass the interpreter that has it, --python PATH"
            )
        return None

    def _step(self, group: Group, step: Step, deadline: float, log: Path) -> Results:
        """Runs a program until it ends or the time is over; returns its results."""
        if step.skipped:
            skipped = Results()
            skipped.skip(step.name, step.skipped)
            return skipped
        if min(deadline, self.ends) - time.monotonic() < STEP_LEAST_S:
            return Results(left=[f"{group.name} {step.name}"])
        # The step's programs write here: results, and the devices on which they computed.
        folder = self.scratch / f"{group.name}-{step.name}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        file, lines = folder / "results.json", folder / "results.jsonl"
        environment = {
            **self.environment,
            **step.environment,
            FOLDER_VARIABLE: str(folder),
            RESULTS_VARIABLE: str(lines),
        }
        command = [part.replace("{file}", str(file)) for part in step.command]
        names = self._rust_tests(command, environment) if step.kind == "rust" else []
        text, ending = self._program(command, environment, deadline, log)
        for line in [line for line in text.splitlines() if KERNELS_UNUSED in line][:1]:
            self._warn(f"{group.name} {step.name}: {line}")
        match step.kind:
            case "told":
                print(text, flush=True)
                return Results()
            case "rust":
                found = results.of_rust_tests(text, names, self.rehearsal)
            case "pytest":
                found = results.of_pytest(lines, folder, self.rehearsal)
            case "benchmarks":
                found = results.of_benchmarks(file, folder, self.rehearsal)
                print(text, flush=True)
            case "parity":
                found = results.of_parity(file, folder, self.rehearsal)
            case _:
                found = results.of_program(text, ending, step.name, folder, self.rehearsal)
        if ending is None and not found.left:
            found.left = [f"what {group.name} {step.name} had not done after its time"]
        elif ending is not None and ending != 0 and not found.failed:
            how = f"ended by {signal.Signals(-ending).name}" if ending < 0 else f"ended with status {ending}"
            found.fail(f"{group.name} {step.name}", f"{how}:\n{text[-results.MESSAGE_CHARACTERS_MAX :]}")
        return found

    def _program(
        self, command: list[str], environment: dict[str, str], deadline: float, log: Path
    ) -> tuple[str, int | None]:
        """Runs a program to its end or the deadline; returns what it printed and its exit status, if it ended."""
        with log.open("a+") as file:
            file.write(f"$ {' '.join(command)}\n")
            file.flush()
            begin = file.tell()
            process = subprocess.Popen(
                command, cwd=KIT / "tree", env=environment, stdout=file, stderr=file, start_new_session=True
            )
            ending: int | None = None
            while ending is None and time.monotonic() < min(deadline, self.ends):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    ending = process.wait(timeout=POLL_S)
            _end(process)
        with log.open(errors="replace") as file:
            file.seek(begin)
            return file.read(), ending

    def _warn(self, words: str) -> None:
        if words not in self.machine.warnings:
            print(f"gpu-kit: {words}", flush=True)
            self.machine.warnings.append(words)

    def _rust_tests(self, command: list[str], environment: dict[str, str]) -> list[str]:
        """Returns the names of the tests that a test program of Rust would run."""
        at = next(i for i, part in enumerate(command) if part.startswith(str(KIT / "bin")))
        listed = [part for part in command[at:] if not part.startswith("--")] + ["--list", "--format", "terse"]
        done = subprocess.run(listed, env=environment, capture_output=True, text=True, check=False)
        return [line.removesuffix(": test") for line in done.stdout.splitlines() if line.endswith(": test")]

    def _environment(self) -> dict[str, str]:
        """Returns the programs' environment: they find the kit and NVIDIA's libraries, and write to the output."""
        packages = [
            str(KIT / "packages" / self.manifest["packages"][module]["folder"])
            for module in self.python.missing
            if self._suits(self.manifest["packages"][module])
        ]
        base = {name: value for name, value in os.environ.items() if not name.startswith("GT_")}
        cache = self.scratch / "cache"
        environment = {
            **base,
            "PATH": os.pathsep.join([str(KIT / "bin"), base.get("PATH", "/usr/bin:/bin")]),
            "PYTHONPATH": os.pathsep.join(
                [str(KIT / "python"), str(KIT), str(KIT / "tree"), *packages, *filter(None, [base.get("PYTHONPATH")])]
            ),
            "PYTHONDONTWRITEBYTECODE": "1",
            # Packages of the user stay where they are.
            "PYTHONUSERBASE": base.get("PYTHONUSERBASE", str(Path("~/.local").expanduser())),
            "HOME": str(self.scratch / "home"),
            "TMPDIR": str(self.scratch / "t"),
            "XDG_CACHE_HOME": str(cache),
            "CUDA_CACHE_PATH": str(cache / "cuda"),
            "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"),
            "TRITON_CACHE_DIR": str(cache / "triton"),
            "GT_RECORDINGS": str(self.scratch / "recordings"),
            "GT_DAEMON": str(self.gtd),
            "GT_TEST_KERNELS": os.environ.get("GT_TEST_KERNELS", str(cache / "test-kernels")),
        }
        folders = [*self.python.library_folders, *filter(None, [os.environ.get("GT_CUDA_LIBRARIES")])]
        if folders:
            environment["GT_CUDA_LIBRARIES"] = os.pathsep.join(folders)
        # The tests start programs without GT's variables; those find the libraries by this one.
        if self.python.prefix:
            environment["VIRTUAL_ENV"] = self.python.prefix
        return environment

    def _suits(self, package: dict[str, Any]) -> bool:
        return package.get("python") in (None, ".".join(self.python.facts["python"].split(".")[:2]))

    def _unsuited_packages(self) -> list[str]:
        """Returns a sentence if the interpreter lacks packages that the kit has for another version of Python."""
        packages = self.manifest["packages"]
        lacking = [module for module in self.python.missing if not self._suits(packages[module])]
        if not lacking:
            return []
        version, needed = self.python.facts["python"], packages[lacking[0]]["python"]
        return [
            f"{', '.join(lacking)}: the kit has these for Python {needed}, and {self.python.executable} is {version};"
            f" tests that need them fail: pass an interpreter of Python {needed}, or pack the kit for this one, by"
            f" `make gpu-kit GPU_KIT='--python {version.rpartition('.')[0]}'`"
        ]

    def _look(self) -> Machine:
        """Looks at the machine, its driver and the libraries."""
        found = {
            "host": machine.host(),
            "interpreter": self.python.facts,
            "libraries": self.python.library_folders,
            "nvidia-smi": machine.smi(),
            "kernels": machine.kernels(KIT / "bin" / "gtctl", self.environment),
        }
        is_good = found["kernels"]["state"] == "good"
        warnings = [] if is_good else [f"kernels are compiled while programs wait: {found['kernels']['words']}"]
        warnings += self._unsuited_packages()
        if self.rehearsal:
            return Machine(found, warnings=warnings)
        found["probe"] = machine.probe(self.gtd, self.environment)
        no_device = machine.why_no_device(found["probe"], self.python)
        return Machine(found, no_device=no_device, warnings=warnings)

    def _words(self) -> str:
        facts = self.python.facts
        host = self.machine.facts["host"]
        torch = f"PyTorch {facts['torch']} for CUDA {facts['torch_cuda']}" if facts["torch"] else "no PyTorch"
        lines = [
            f"GT {self.manifest['version']} of {self.manifest['built']} ({self.manifest['revision']})",
            f"{host['processor']}, {host['cores']} cores; Python {facts['python']} at {self.python.executable};"
            f" {torch}",
        ]
        probe = self.machine.facts.get("probe", {})
        for device in probe.get("devices", {}).get("Ok", ()):
            lines.append(f"cuda:{device['number']} is {device['name']}; driver {probe['driver']}, CUDA {probe['cuda']}")
        return "\n".join(lines)


class Sampler:
    """Records the device's clocks, temperature and power while a group runs, by nvidia-smi."""

    def __init__(self, path: Path) -> None:
        """Takes the file for the samples."""
        self.path = path
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Sampler:
        """Starts nvidia-smi, where it is installed."""
        self.path.unlink(missing_ok=True)
        if shutil.which("nvidia-smi"):
            fields = ",".join(SAMPLE_FIELDS)
            command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits", f"--loop={SAMPLE_S}"]
            with self.path.open("w") as file:
                self.process = subprocess.Popen(command, stdout=file, stderr=subprocess.DEVNULL, start_new_session=True)
        return self

    def __exit__(self, *_: object) -> None:
        """Stops the recording."""
        if self.process:
            _end(self.process)

    def summary(self) -> dict[str, Any]:
        """Returns the least, the median and the largest value of each field."""
        if not self.path.exists():
            return {}
        rows = [line.split(",") for line in self.path.read_text().splitlines()]
        columns = {name: [row[i].strip() for row in rows if len(row) > i] for i, name in enumerate(SAMPLE_FIELDS)}
        numbers = {name: [float(value) for value in column if _is_number(value)] for name, column in columns.items()}
        return {
            name: {"least": min(column), "median": statistics.median(column), "largest": max(column)}
            for name, column in numbers.items()
            if column
        }


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdigit()


def _end(process: subprocess.Popen[Any]) -> None:
    """Ends a program and what it started in its process group."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(timeout=GRACE_S)
        except subprocess.TimeoutExpired:
            continue
    process.wait()


def _status(group: Group, found: Results, reason: str | None) -> tuple[str, str | None]:
    """Returns the status of a group and its reason. A group that tested nothing on a device has failed."""
    if reason is not None:
        return "failed", reason
    if found.failed:
        return "failed", f"{found.failed} failed"
    only_skips = found.skipped and not (found.passed or found.left)
    if only_skips and group.may_be_skipped:
        return "skipped", found.skips[0]["reason"]
    if found.on_device == 0:
        where = ", ".join(device["name"] for device in found.devices) or "no device was seen"
        return "failed", f"nothing was tested on the device that was asked for ({where})"
    if found.left:
        return "incomplete", f"{len(found.left)} left when the time was over: {', '.join(found.left[:5])}"
    return "passed", None


def summary(documents: list[dict[str, Any]]) -> str:
    """Returns the table of the groups, and the names of what failed."""
    lines = [f"{'group':<11}{'seconds':>8}{'passed':>8}{'failed':>8}{'skipped':>8}{'left':>6}{'on device':>11}  status"]
    for document in documents:
        counts = "".join(f"{document[name]:>8}" for name in ("passed", "failed", "skipped"))
        reason = f": {document['reason']}" if document["reason"] else ""
        lines.append(
            f"{document['group']:<11}{document['seconds']:>8.0f}{counts}{len(document['left']):>6}"
            f"{document['on_device']:>11}  {document['status']}{reason}"
        )
    failures = [failure["name"] for document in documents for failure in document["failures"]]
    for name in failures[:FAILURES_PRINTED_MAX]:
        lines.append(f"failed: {name}")
    if len(failures) > FAILURES_PRINTED_MAX:
        lines.append(f"and {len(failures) - FAILURES_PRINTED_MAX} more: see the JSON files")
    return "\n".join(lines)
