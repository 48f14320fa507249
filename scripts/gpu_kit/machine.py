"""Looks at the machine and the interpreter, and says in a sentence what is missing."""

from __future__ import annotations

import getpass
import json
import os
import platform
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# The pure-Python packages of the kit, by the module that an interpreter may already have.
INTERPRETER_FACTS = """
import importlib.util, json, platform, sys
facts = {"executable": sys.executable, "python": platform.python_version(), "torch": None}
facts["missing"] = [name for name in sys.argv[1:] if importlib.util.find_spec(name) is None]
spec = importlib.util.find_spec("nvidia")
facts["nvidia"] = list(spec.submodule_search_locations or []) if spec else []
try:
    import numpy
    facts["numpy"] = numpy.__version__
    import torch
    facts["torch"] = torch.__version__
    facts["torch_cuda"] = torch.version.cuda
    facts["torch_sees_gpu"] = torch.cuda.is_available()
    if facts["torch_sees_gpu"]:
        facts["torch_device"] = torch.cuda.get_device_name()
        facts["cudnn"] = torch.backends.cudnn.version()
        facts["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
except Exception as error:
    facts["error"] = f"{type(error).__name__}: {error}"
print(json.dumps(facts))
"""
FACTS_LIMIT_S = 180
PROBE_LIMIT_S = 90
SMI_FIELDS = (
    "name",
    "uuid",
    "driver_version",
    "vbios_version",
    "compute_cap",
    "memory.total",
    "memory.used",
    "clocks.sm",
    "clocks.mem",
    "clocks.max.sm",
    "clocks.max.mem",
    "temperature.gpu",
    "power.draw",
    "power.limit",
    "pstate",
    "compute_mode",
    "mig.mode.current",
    "ecc.mode.current",
    "clocks_event_reasons.active",
)


@dataclass
class Interpreter:
    """A Python interpreter, and what it can import."""

    executable: str
    facts: dict[str, Any]

    @property
    def has_torch(self) -> bool:
        """Returns whether PyTorch can be imported."""
        return self.facts.get("torch") is not None

    @property
    def missing(self) -> list[str]:
        """Returns the modules of the kit's packages that the interpreter lacks."""
        return self.facts["missing"]

    @property
    def library_folders(self) -> list[str]:
        """Returns the folders of NVIDIA's libraries among the interpreter's packages."""
        folders = [Path(path) for path in self.facts["nvidia"]]
        return [str(lib) for folder in folders for lib in sorted(folder.glob("*/lib")) if lib.is_dir()]

    @property
    def prefix(self) -> str | None:
        """Returns the environment that holds NVIDIA's packages: the folder above `lib/python3.x/site-packages`."""
        for path in map(Path, self.facts["nvidia"]):
            if len(path.parents) > 3 and path.parents[2].name == "lib":
                return str(path.parents[3])
        return None

    @property
    def cuda_of_libraries(self) -> int | None:
        """Returns the major version of CUDA that NVIDIA's packages are for."""
        names = [file.name for folder in self.library_folders for file in Path(folder).glob("libnvrtc.so.*")]
        versions = [int(name.rsplit(".", 1)[1]) for name in names if name.rsplit(".", 1)[1].isdigit()]
        return max(versions, default=None)


@dataclass
class Machine:
    """The machine of a run."""

    facts: dict[str, Any]
    # Why nothing can run here at all, and why no GPU can be used; None if there is no reason.
    impossible: str | None = None
    no_device: str | None = None
    warnings: list[str] = field(default_factory=list)


def interpreter(asked: str | None, own: str, modules: list[str]) -> Interpreter:
    """Returns the interpreter that was asked for, or the first on PATH that has PyTorch, or else this one."""
    names = [asked] if asked else [own, *filter(None, map(shutil.which, ("python3", "python")))]
    found = [_ask(name, modules) for name in dict.fromkeys(names)]
    return next((candidate for candidate in found if candidate.has_torch), found[0])


def _ask(executable: str, modules: list[str]) -> Interpreter:
    command = [executable, "-c", INTERPRETER_FACTS, *modules]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=FACTS_LIMIT_S, check=True)
        facts = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        facts = _unasked(
            executable, f"it did not import PyTorch within {FACTS_LIMIT_S} s: try again, when its disk is warm"
        )
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        facts = _unasked(executable, str(error))
    return Interpreter(executable, facts)


def _unasked(executable: str, error: str) -> dict[str, Any]:
    return {"executable": executable, "python": "", "missing": [], "nvidia": [], "error": error}


def unsuited(manifest: dict[str, Any]) -> str | None:
    """Returns why programs of this kit cannot run on this machine."""
    built_for, found = manifest["architecture"], platform.machine()
    if built_for != found:
        return (
            f"this kit was built for {built_for} and this machine is {found}: build one on a machine of that kind,"
            " with `make gpu-kit`"
        )
    libc, version = platform.libc_ver()
    needed = manifest["glibc"]
    if libc == "glibc" and _numbers(version) < _numbers(needed):
        return (
            f"this kit needs glibc {needed} and this machine has {version}: build it on a machine with an older system,"
            " with `make gpu-kit`"
        )
    return None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def closed_files(folder: Path = Path("/dev")) -> str | None:
    """Returns why this user cannot use the driver's device files; None if they can be opened."""
    files = [path for path in sorted(folder.glob("nvidia*")) if path.name == "nvidiactl" or path.name[6:].isdigit()]
    if not files:
        return None
    closed = [path for path in files if not os.access(path, os.R_OK | os.W_OK)]
    if not closed:
        return None
    status = closed[0].stat()
    return (
        f"{', '.join(map(str, closed))} cannot be opened by {_user()} (mode {status.st_mode & 0o777:o}, group"
        f" {status.st_gid}): run as root, or join that group, or `chmod a+rw` the files as root"
    )


def _user() -> str:
    try:
        return f"the user {getpass.getuser()}"
    except (KeyError, OSError):
        return f"user {os.getuid()}"


def why_no_device(probe: dict[str, Any], python: Interpreter, devices: Path = Path("/dev")) -> str | None:
    """Returns why GT can use no GPU, in a sentence that says what to do; None if it can use one.

    Args:
        probe: The answer of `gtd probe cuda`.
        python: The interpreter, whose packages have NVIDIA's libraries.
        devices: The folder of device files.
    """
    cuda = probe.get("cuda")
    found, needed = _numbers(cuda or ""), python.cuda_of_libraries
    if found and needed and found[0] < needed:
        return (
            f"the driver is for CUDA {cuda} and the libraries of this PyTorch are for CUDA {needed}: install a newer"
            f" driver ({'580' if needed >= 13 else '525'} or newer), or a PyTorch for CUDA {found[0]}"
        )
    if "Ok" not in probe.get("devices", {}):
        if closed := closed_files(devices):
            return closed
        if not any(devices.glob("nvidia*")):
            return (
                f"no GPU was found: there is no {devices}/nvidia0, so no driver of NVIDIA's runs here: install one, or"
                " start the container with its GPUs (docker run --gpus all)"
            )
        return f"no GPU can be used: {_told(probe)}: nvidia-smi and dmesg may say more"
    for library in probe["libraries"]:
        if library["needed"] and "Err" in library["path"]:
            missing = _without_paths(library["path"]["Err"])
            return f"{missing}: pass an interpreter that has PyTorch for CUDA, --python PATH"
    return None


def _told(probe: dict[str, Any]) -> str:
    """Returns the reason that `gtd probe cuda` gives: an error's kind with its text, or with its parts."""
    if "error" in probe:
        return probe["error"]
    reason = probe["devices"]["Err"]
    (parts,) = reason.values() if isinstance(reason, dict) else (reason,)
    return _without_paths(": ".join(parts.values()) if isinstance(parts, dict) else parts)


def _without_paths(text: str) -> str:
    """Returns the message that a library is missing without the paths where it was looked for; JSON has them."""
    return text.partition(". Looked for: ")[0]


def probe(gtd: Path, environment: dict[str, str]) -> dict[str, Any]:
    """Returns what `gtd probe cuda` tells of drivers, devices and libraries."""
    try:
        done = subprocess.run(
            [gtd, "probe", "cuda"], env=environment, capture_output=True, text=True, timeout=PROBE_LIMIT_S, check=False
        )
        return json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return {"error": f"{gtd} probe cuda: {type(error).__name__}: {error}"}


def kernels(gtctl: Path, environment: dict[str, str]) -> dict[str, str]:
    """Returns the state, as "good", and the words of `gtctl doctor` about the file of compiled kernels."""
    try:
        done = subprocess.run(
            [gtctl, "doctor", "--json"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=PROBE_LIMIT_S,
            check=False,
        )
        finding = next(finding for finding in json.loads(done.stdout) if finding["what"] == "gpu kernels")
        words = [finding["found"], *filter(None, [finding.get("next")])]
        return {"state": finding["state"], "words": ": ".join(words)}
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return {"state": "unknown", "words": f"{gtctl} doctor: {type(error).__name__}: {error}"}
    except StopIteration:
        return {"state": "unknown", "words": f"{gtctl} doctor says nothing of compiled kernels"}


def smi() -> list[dict[str, str]]:
    """Returns what nvidia-smi tells of each device; nothing where it is not installed."""
    if not shutil.which("nvidia-smi"):
        return []
    answers: list[dict[str, str]] = []
    known = list(SMI_FIELDS)
    lines = _query(tuple(known))
    if not lines:
        # One field that this version does not know makes the whole query fail.
        known = [name for name in SMI_FIELDS if _query((name,))]
        lines = _query(tuple(known))
    for line in lines:
        answers.append(dict(zip(known, (part.strip() for part in line.split(",")), strict=False)))
    return answers


def _query(fields: tuple[str, ...]) -> list[str]:
    command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_LIMIT_S, check=False)
    except (OSError, subprocess.SubprocessError):
        return []
    return done.stdout.splitlines() if fields and done.returncode == 0 else []


def host() -> dict[str, Any]:
    """Returns what is known of the host."""
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    memory = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal"))
    return {
        "processor": model,
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": int(memory.split()[1]) * 1024,
        "system": platform.platform(),
        "glibc": platform.libc_ver()[1],
    }
