"""The kit for a machine with a GPU: what its archive must be, what its runner believes, and the page of a run.

The programs of the kit are small scripts here; `make gpu-kit` packs the real ones.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
# Where tests keep the kernels of emulated devices that g++ has compiled.
EMULATED_KERNELS = ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / "emulated-kernels"
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT)]

from gpu_kit import machine, report, results  # noqa: E402
from gpu_kit.groups import BACKEND_MODULES, GROUPS  # noqa: E402

from benches import harness  # noqa: E402

H100 = {"number": 0, "name": "NVIDIA H100 80GB HBM3"}
NVRTC = {"name": "NVRTC", "needed": True, "path": {"Ok": "/x/libnvrtc.so.13"}}
PROBE = {"driver": "580.95.05", "cuda": "13.0", "devices": {"Ok": [H100]}, "libraries": [NVRTC]}
NO_DRIVER = {"NoDriver": "NVIDIA's driver was not found: install it. Looked for: libcuda.so.1: not there"}
NO_DEVICE = {"driver": None, "cuda": None, "devices": {"Err": NO_DRIVER}, "libraries": []}

# A test program of Rust that passes one test, skips another, and says that it computed on `{device}`.
TESTS = """#!/bin/sh
case "$1" in --*) right=is_right lost=is_lost ;; *) right=$1is_right lost=$1is_lost ;; esac
case "$*" in *--list*) printf '%s: test\\n%s: test\\n' $right $lost; exit ;; esac
printf 'running 2 tests\\ntest %s ... ok\\ntest %s ... ok\\n\\nsuccesses:\\n\\n' $right $lost
printf -- '---- %s stdout ----\\n{device}\\n---- %s stdout ----\\nskipped: it needs two\\n' $right $lost
"""


def packer() -> ModuleType:
    """Returns `scripts/make-gpu-kit`, whose name is no module's."""
    path = str(ROOT / "scripts" / "make-gpu-kit")
    loader = importlib.machinery.SourceFileLoader("make_gpu_kit", path)
    spec = importlib.util.spec_from_loader("make_gpu_kit", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    written, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    loader.exec_module(module)
    sys.dont_write_bytecode = written
    return module


def write_program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def write_gtctl(kit: Path, state: str, found: str) -> None:
    """Writes a `gtctl` whose doctor has this finding about the file of compiled kernels."""
    finding = {"what": "gpu kernels", "state": state, "found": found}
    if state != "good":
        finding["next"] = "make them anew"
    write_program(kit / "bin" / "gtctl", f"#!/bin/sh\necho '{json.dumps([finding])}'\n")


@pytest.fixture
def kit(tmp_path: Path) -> Path:
    """Returns a kit whose probe finds a device, and whose tests say that they computed on it."""
    kit = tmp_path / "gpu-kit"
    make = packer()
    shutil.copytree(ROOT / "scripts" / "gpu_kit", kit / "gpu_kit", ignore=shutil.ignore_patterns("__pycache__"))
    for name, module in (("run", "runner"), ("report", "report")):
        write_program(kit / name, make.LAUNCHER.format(module=module))
    manifest = {
        "version": "0.1.0",
        "revision": "abc",
        "built": "2026-01-02",
        "architecture": machine.platform.machine(),
        "glibc": "2.17",
        "packages": {},
    }
    (kit / "manifest.json").write_text(json.dumps(manifest))
    (kit / "operations.txt").write_text("tests/python/test_numbers.py\n")
    (kit / "tree" / "tests" / "python").mkdir(parents=True)
    (kit / "tree" / "tests" / "python" / "test_numbers.py").write_text("")
    (kit / "python" / "gt").mkdir(parents=True)
    (kit / "python" / "gt" / "__init__.py").write_text("")
    write_program(kit / "bin" / "gtd", f"#!/bin/sh\ncat <<'END'\n{json.dumps(PROBE)}\nEND\n")
    write_gtctl(kit, "good", "/kit/lib/gt/cuda-kernels: 336 images")
    (kit / make.KERNELS).parent.mkdir(parents=True)
    (kit / make.KERNELS).write_text("compiled kernels")
    for name in ("device", "nccl"):
        write_program(kit / "bin" / name, TESTS.replace("{device}", f"device: {H100['name']}"))
    return kit


def run(kit: Path, *arguments: str, **environment: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """Runs a kit; returns how it ended, and the documents that it wrote."""
    out = kit.parent / "out"
    command = [kit / "run", "--out", out, "--python", sys.executable, *arguments]
    done = subprocess.run(
        [*map(str, command)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    names = [group.name for group in GROUPS]
    return done, {name: json.loads(path.read_text()) for name in names if (path := out / f"{name}.json").exists()}


def test_a_group_says_what_it_tested_on_which_device(kit: Path) -> None:
    done, documents = run(kit, "device")
    assert done.returncode == 0, done.stdout + done.stderr
    found, count = documents["device"], len(BACKEND_MODULES)
    assert (found["passed"], found["failed"], found["skipped"], found["on_device"]) == (count, 0, count, count)
    assert found["devices"] == [{"name": H100["name"]}]
    assert found["skips"][0] == {"name": "conformance::is_lost", "reason": "it needs two"}
    assert (found["status"], found["rehearsal"]) == ("passed", False)
    assert found["machine"]["probe"]["driver"] == "580.95.05"
    assert (kit.parent / "out" / "device.log").read_text().count("$ ") == count
    assert done.stdout.splitlines()[-3].split()[0] == "device"


@pytest.mark.parametrize("device", ["", f"device: {results.EMULATED_DEVICE}"])
def test_a_group_that_tested_nothing_on_a_device_fails(kit: Path, device: str) -> None:
    write_program(kit / "bin" / "device", TESTS.replace("{device}", device))
    done, documents = run(kit, "device")
    assert done.returncode == 1
    assert documents["device"]["status"] == "failed"
    assert "nothing was tested on the device that was asked for" in documents["device"]["reason"]


def test_a_rehearsal_is_marked_and_no_real_device_passes_for_an_emulated_one(kit: Path) -> None:
    gtd = str(kit / "bin" / "gtd")
    done, documents = run(kit, "device", "--emulated", gtd)
    assert done.returncode == 1
    assert documents["device"]["on_device"] == 0
    write_program(kit / "bin" / "device", TESTS.replace("{device}", f"device: {results.EMULATED_DEVICE}"))
    done, documents = run(kit, "device", "--emulated", gtd)
    assert done.returncode == 0, done.stdout
    assert documents["device"]["rehearsal"] is True
    assert done.stdout.count("REHEARSAL on an emulated device: it says nothing of a GPU") == 2
    page = report.page([documents["device"]])
    assert page.startswith("## Measured on a rehearsal without a GPU, ")
    assert "nothing here was measured on a GPU" in page


def without_network() -> list[str]:
    """Returns a command that runs another where there is no network, as far as this user may."""
    command = ["unshare", "--map-root-user", "--net"]
    allowed = shutil.which("unshare") and subprocess.run([*command, "true"], check=False).returncode == 0
    return command if allowed else []


def test_a_rehearsal_computes_on_an_emulated_device_from_its_own_folder_without_network(kit: Path) -> None:
    daemon = os.environ.get("GT_EMULATED_DAEMON")
    if not daemon or not shutil.which("g++"):
        pytest.skip("no gtd with emulated devices (GT_EMULATED_DAEMON), or no g++, which compiles their kernels")
    make = packer()
    for name in make.PROGRAMS:
        shutil.copy2(Path(sysconfig.get_path("scripts"), name), kit / "bin" / name)
    for folder in ("python", "tree"):
        shutil.rmtree(kit / folder)
    shutil.copytree(ROOT / "pybind" / "python", kit / "python", ignore=shutil.ignore_patterns("__pycache__"))
    make._add_tree(kit)
    command = [*without_network(), kit / "run", "--out", kit.parent / "out", "--python", sys.executable]
    done = subprocess.run(
        [*map(str, command), "--emulated", daemon, "doctor", "ops", "--select", "integer_powers"],
        cwd=kit.parent,
        env={"PATH": os.environ["PATH"], "GT_TEST_KERNELS": os.environ.get("GT_TEST_KERNELS", str(EMULATED_KERNELS))},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for name in ("doctor", "ops"):
        found = json.loads((kit.parent / "out" / f"{name}.json").read_text())
        assert (found["status"], found["rehearsal"]) == ("passed", True)
        assert found["on_device"] == found["passed"] > 0
        assert {device["name"] for device in found["devices"]} == {results.EMULATED_DEVICE}
    # The file of compiled kernels is none here.
    assert "kernels are compiled while programs wait: " in done.stdout


def test_groups_run_in_the_order_asked_for_while_clocks_and_temperatures_are_recorded(kit: Path) -> None:
    write_program(kit.parent / "tools" / "nvidia-smi", "#!/bin/sh\necho 1980, 2619, 45, 300.5, 97, 1024\n")
    path = f"{kit.parent / 'tools'}:{os.environ['PATH']}"
    done, documents = run(kit, "nccl:100", "device", "--select", "rows", PATH=path)
    assert done.returncode == 0, done.stdout
    assert list(re.findall(r"^(nccl|device): passed$", done.stdout, re.MULTILINE)) == ["nccl", "device"]
    assert (documents["nccl"]["limit_s"], documents["device"]["limit_s"]) == (100, 540)
    assert documents["device"]["clocks"]["clocks.sm"] == {"least": 1980.0, "median": 1980.0, "largest": 1980.0}
    assert documents["device"]["clocks"]["temperature.gpu"]["median"] == 45.0
    assert documents["device"]["machine"]["nvidia-smi"][0]["name"] == "1980"
    assert {path.name for path in (kit.parent / "out").iterdir()} == {
        f"{name}{ending}" for name in ("nccl", "device") for ending in (".json", ".log", "-clocks.csv")
    }


def test_compiled_kernels_that_are_not_used_are_a_warning_of_the_run_and_of_the_page(kit: Path) -> None:
    done, documents = run(kit, "device")
    assert documents["device"]["warnings"] == []
    assert documents["device"]["machine"]["kernels"] == {
        "state": "good",
        "words": "/kit/lib/gt/cuda-kernels: 336 images",
    }
    write_gtctl(kit, "note", "it is of another version")
    stale = "kernels are compiled while programs wait: it is of another version: make them anew"
    unused = "kernels: compiled at first use, since the file of compiled ones is not used"
    write_program(kit / "bin" / "device", TESTS.replace("{device}", f"device: {H100['name']}\n{unused}"))
    done, documents = run(kit, "device", "--select", "rows")
    assert done.returncode == 0
    assert documents["device"]["warnings"] == [stale, f"device rows: {unused}"]
    assert f"gpu-kit: {stale}\n" in done.stdout
    assert f"- device rows: {unused}" in report.page([documents["device"]]).splitlines()
    write_program(kit / "bin" / "gtctl", "#!/bin/sh\necho '[]'\n")
    _, documents = run(kit, "device", "--select", "rows")
    assert "says nothing of compiled kernels" in documents["device"]["warnings"][0]


def test_packages_for_another_python_are_a_warning_that_says_how_to_have_them(kit: Path) -> None:
    manifest = json.loads((kit / "manifest.json").read_text())
    packages = {"gt_no_such_package": {"folder": "none", "python": "3.1"}}
    (kit / "manifest.json").write_text(json.dumps(manifest | {"packages": packages}))
    _, documents = run(kit, "device", "--select", "rows")
    (warning,) = documents["device"]["warnings"]
    assert warning.startswith("gt_no_such_package: the kit has these for Python 3.1, and ")
    version = ".".join(map(str, sys.version_info[:2]))
    assert warning.endswith(f"or pack the kit for this one, by `make gpu-kit GPU_KIT='--python {version}'`")


def test_a_run_whose_time_is_over_says_what_is_left(kit: Path) -> None:
    listing = 'case "$*" in *--list*) echo ${1}never: test; exit ;; esac\n'
    write_program(kit / "bin" / "device", f"#!/bin/sh\n{listing}exec cat /dev/zero >/dev/null\n")
    done, documents = run(kit, "device", "nccl", "--limit", "1.5")
    assert done.returncode == 1
    assert documents["device"]["left"] == ["conformance::never", *(f"device {name}" for name in BACKEND_MODULES[1:])]
    assert documents["nccl"]["reason"] == "the run's time was over: nothing of it was run"


def test_a_run_that_is_told_to_end_writes_what_it_found(kit: Path) -> None:
    listing = 'case "$*" in *--list*) echo ${1}never: test; exit ;; esac\n'
    write_program(kit / "bin" / "device", f"#!/bin/sh\n{listing}kill -TERM $PPID\nexec cat /dev/zero >/dev/null\n")
    done, documents = run(kit, "device", "nccl")
    assert done.returncode == 1
    assert documents["device"]["left"] == ["conformance::never", *(f"device {name}" for name in BACKEND_MODULES[1:])]
    assert documents["nccl"]["reason"] == "the run's time was over: nothing of it was run"


def test_a_test_program_that_is_killed_has_failed(kit: Path) -> None:
    listing = 'case "$*" in *--list*) echo ${1}dies: test; exit ;; esac\n'
    write_program(kit / "bin" / "device", f"#!/bin/sh\n{listing}kill -SEGV $$\n")
    done, documents = run(kit, "device", "--select", "graphs")
    assert done.returncode == 1
    assert documents["device"]["failures"][0]["name"] == "device graphs"
    assert documents["device"]["failures"][0]["message"].startswith("ended by SIGSEGV")
    assert documents["device"]["left"] == ["graphs::dies"]


def test_a_machine_without_a_gpu_is_told_what_to_do(kit: Path) -> None:
    write_program(kit / "bin" / "gtd", f"#!/bin/sh\ncat <<'END'\n{json.dumps(NO_DEVICE)}\nEND\n")
    done, documents = run(kit, "device")
    assert done.returncode == 1
    assert documents["device"]["status"] == "failed"
    # A machine that tests this may have a driver of its own.
    assert documents["device"]["reason"].startswith(
        ("no GPU was found: there is no /dev/nvidia0", "no GPU can be used")
    )


def test_a_kit_of_another_architecture_or_a_newer_system_runs_nothing(kit: Path) -> None:
    manifest = json.loads((kit / "manifest.json").read_text())
    for changes, words in (
        ({"architecture": "riscv64"}, "this kit was built for riscv64 and this machine is"),
        ({"glibc": "9.9"}, "this kit needs glibc 9.9 and this machine has"),
    ):
        (kit / "manifest.json").write_text(json.dumps(manifest | changes))
        done, documents = run(kit, "device")
        assert (done.returncode, documents) == (2, {})
        assert words in done.stderr
        assert "`make gpu-kit`" in done.stderr


def interpreter(*libraries: str, folder: Path = Path("/nowhere")) -> machine.Interpreter:
    for name in libraries:
        (folder / "lib/python3.12/site-packages/nvidia/cu13/lib").mkdir(parents=True, exist_ok=True)
        (folder / "lib/python3.12/site-packages/nvidia/cu13/lib" / name).touch()
    packages = folder / "lib/python3.12/site-packages/nvidia"
    return machine.Interpreter("python", {"nvidia": [str(packages)], "missing": [], "torch": None})


def test_the_libraries_of_an_interpreter_are_found_without_its_environment_s_name(tmp_path: Path) -> None:
    python = interpreter("libnvrtc.so.13", folder=tmp_path)
    packages = tmp_path / "lib/python3.12/site-packages/nvidia"
    (packages / "cudnn/lib").mkdir(parents=True)
    assert python.library_folders == [str(packages / "cu13/lib"), str(packages / "cudnn/lib")]
    assert python.prefix == str(tmp_path)
    assert python.cuda_of_libraries == 13


def test_what_keeps_from_the_gpu_is_a_sentence_that_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = interpreter("libnvrtc.so.13", folder=tmp_path / "python")
    devices = tmp_path / "dev"
    devices.mkdir()
    assert machine.why_no_device(PROBE, python, devices) is None
    older = machine.why_no_device({**PROBE, "cuda": "12.4"}, python, devices)
    assert older == (
        "the driver is for CUDA 12.4 and the libraries of this PyTorch are for CUDA 13: install a newer driver (580 or"
        " newer), or a PyTorch for CUDA 12"
    )
    absent = machine.why_no_device(NO_DEVICE, python, devices)
    assert absent is not None
    assert absent.startswith("no GPU was found: ")
    assert "docker run --gpus all" in absent
    for name in ("nvidia0", "nvidiactl", "nvidia-uvm"):
        (devices / name).touch()
    monkeypatch.setattr(machine.os, "access", lambda path, _: path.name == "nvidiactl")
    closed = machine.why_no_device(NO_DEVICE, python, devices)
    assert closed is not None
    assert closed.startswith(f"{devices}/nvidia0 cannot be opened by the user ")
    monkeypatch.undo()
    broken = {**NO_DEVICE, "devices": {"Err": {"Failed": {"what": "cuInit", "why": "CUDA_ERROR_UNKNOWN"}}}}
    told = machine.why_no_device(broken, python, devices)
    assert told == "no GPU can be used: cuInit: CUDA_ERROR_UNKNOWN: nvidia-smi and dmesg may say more"
    missing = machine.why_no_device(NO_DEVICE, python, devices)
    assert missing is not None
    assert missing.startswith("no GPU can be used: NVIDIA's driver was not found: install it: nvidia-smi")
    lacking = {**NVRTC, "path": {"Err": "NVRTC was not found: pip install it. Looked for: /usr/local"}}
    without = machine.why_no_device({**PROBE, "libraries": [lacking]}, python, devices)
    assert (
        without == "NVRTC was not found: pip install it: pass an interpreter that has PyTorch for CUDA, --python PATH"
    )


def test_an_interpreter_without_pytorch_is_told_of_where_it_is_needed(kit: Path) -> None:
    # A Python without site-packages has no PyTorch, wherever these tests run.
    bare = kit.parent / "python"
    write_program(bare, f'#!/bin/sh\nexec {sys.executable} -S -E "$@"\n')
    done, documents = run(kit, "bench", "--python", str(bare))
    assert done.returncode == 1
    assert "has no PyTorch" in documents["bench"]["reason"]
    assert documents["bench"]["reason"].endswith("pass the interpreter that has it, --python PATH")


def elf(section: str) -> bytes:
    """Returns the smallest ELF file with a section of this name, and with that of names."""
    names = b"\0.shstrtab\0" + section.encode() + b"\0"
    at = 64 + len(names)
    header = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 2, 62, 1, 0, 0, at, 0, 64, 56, 0, 64, 2, 0)
    of_names = struct.pack("<IIQQQQIIQQ", 1, 3, 0, 0, 64, len(names), 0, 0, 1, 0)
    return header + names + of_names + struct.pack("<IIQQQQIIQQ", 11, 1, 0, 0, 0, 0, 0, 0, 1, 0)


def test_a_kit_is_small_whole_and_of_what_runs_elsewhere(kit: Path, tmp_path: Path) -> None:
    make = packer()
    archive = tmp_path / "kit.tar.xz"
    make._pack(kit, archive)
    assert make.broken_rules(kit, archive) == []
    with tarfile.open(archive) as packed:
        assert {name.split("/")[0] for name in packed.getnames()} == {"gpu-kit"}
    (kit / "bin" / "nccl").unlink()
    (kit / make.KERNELS).unlink()
    # A program's text may have the name of a section without being one.
    (kit / "bin" / "gtd").write_bytes(elf(".text") + b".debug_info\0")
    (kit / "bin" / "device").write_bytes(elf(".debug_info"))
    (kit / "bin" / "gtctl").chmod(0o644)
    (kit / "tree" / "tests" / "python" / "test_numbers.py").unlink()
    (kit / "outside").symlink_to("/etc")
    make.ARCHIVE_BYTES_MAX = 10
    assert make.broken_rules(kit, archive) == [
        "kit.tar.xz has 0 MiB, more than 0",
        "lib/gt/cuda-kernels is missing",
        "bin/gtctl cannot be executed",
        "bin/nccl is missing",
        "tests/python/test_numbers.py, a test of operations, is missing",
        "bin/device has debugging information: strip it",
        "outside is a link, which may lead outside",
    ]


def test_a_kit_whose_programs_would_not_use_its_compiled_kernels_is_not_packed(kit: Path) -> None:
    make = packer()
    assert make.stale_kernels(kit) == []
    write_gtctl(kit, "note", "it is of another version")
    assert make.stale_kernels(kit) == [
        "lib/gt/cuda-kernels would not be used: it is of another version: make them anew"
    ]


def test_the_newest_symbol_of_glibc_is_found(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\0GLIBC_2.2.5\0GLIBC_2.34\0GLIBC_2.9\0")
    assert packer().newest_glibc([tmp_path / "a"]) == "2.34"


def test_results_of_pytest_name_what_failed_and_what_was_not_reached(tmp_path: Path) -> None:
    lines = [
        {"collected": ["a", "b", "c", "d", "e"]},
        {"test": "a", "outcome": "passed", "message": "", "seconds": 0.1},
        {"test": "b", "outcome": "failed", "message": "assert 1 == 2", "seconds": 0.1},
        {"test": "c", "outcome": "skipped", "message": "no g++", "seconds": 0.1},
        {"test": "d", "outcome": "passed", "message": "", "seconds": 0.1},
        {"test": "d", "outcome": "failed", "message": "its fixture did not end", "seconds": 0.1},
    ]
    (tmp_path / "lines").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "device-7.json").write_text(json.dumps({"name": H100["name"], "peak_bytes": 7}))
    found = results.of_pytest(tmp_path / "lines", tmp_path, rehearsal=False)
    assert (found.passed, found.failed, found.skipped, found.on_device) == (1, 2, 1, 3)
    assert [failure["name"] for failure in found.failures] == ["b", "d"]
    assert found.left == ["e"]
    assert results.of_pytest(tmp_path / "lines", tmp_path, rehearsal=True).on_device == 0


def test_a_page_has_every_figure_with_its_peers_and_rates(tmp_path: Path) -> None:
    rows = [
        {
            "what": "gpu: matmul 8,192³, bf16",
            "unit": "s",
            "medians": {"GT": 0.0015, "PyTorch": 0.00145},
            "samples": {},
            "rates": {"GT": 733e12, "PyTorch": 758e12},
            "rate_unit": "FLOP/s",
            "targets": [],
            "failure": "",
        },
        {"what": "gpu: sum", "medians": {}, "failure": "RuntimeError: no memory"},
    ]
    (tmp_path / "rows.json").write_text(json.dumps({"rows": rows}))
    (tmp_path / "device-7.json").write_text(json.dumps({"name": H100["name"], "peak_bytes": 7}))
    found = results.of_benchmarks(tmp_path / "rows.json", tmp_path, rehearsal=False)
    assert (found.on_device, found.failures[0]["name"]) == (1, "gpu: sum")
    facts = {
        "probe": PROBE,
        "interpreter": {"torch": "2.11.0", "torch_cuda": "13.0"},
        "host": {"processor": "a processor", "cores": 16},
    }
    document = {
        **found.document(),
        "what": "speed",
        "status": "failed",
        "rehearsal": False,
        "seconds": 12.0,
        "started": "2026-01-02T03:04:05+00:00",
        "machine": facts,
        "kit": {"version": "0.1.0", "revision": "abc"},
        "warnings": [],
        "clocks": {
            "clocks.sm": {"least": 1200.0, "median": 1700.0, "largest": 1980.0},
            "temperature.gpu": {"least": 40.0, "median": 50.0, "largest": 61.0},
        },
    }
    page = report.page([document]).splitlines()
    assert page[0] == "## Measured on NVIDIA H100 80GB HBM3, 2026-01-02"
    assert "driver 580.95.05, CUDA 13.0; PyTorch 2.11.0 for CUDA 13.0" in page[2]
    assert "| speed | 1 | 1 | 0 | 0 | 12 | failed |" in page
    assert "| matmul 8,192³, bf16 | 1.5 ms, 733 TFLOP/s | 1.45 ms, 758 TFLOP/s | 0.97 |" in page
    assert any("1200 to 1980 MHz (median 1700), at 40 to 61 °C" in line for line in page)
    assert "- `gpu: sum`" in page


def test_benchmarks_that_measured_nothing_fail() -> None:
    command = [sys.executable, "-m", "benches", "--only", "gpu"]
    environment = {**os.environ, "GT_DEVICES": "cpu"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "nothing was measured: no group has gpu in its name, or this machine lacks what it needs" in done.stdout


def test_a_row_that_fails_hides_no_other() -> None:
    def rows() -> Iterator[harness.Row]:
        yield harness.Row("fails", {"GT": lambda: 1 / 0})
        yield harness.Row("is measured", {"GT": lambda: 2.0}, work=6.0, work_unit="B/s")

    kept: list[int] = []
    found = harness.run([("group", rows)], quick=True, only="", measured_so_far=lambda rows: kept.append(len(rows)))
    assert [row.failure for row in found] == ["ZeroDivisionError: division by zero", ""]
    assert found[1].rates == {"GT": 3.0}
    assert kept == [1, 2]


@pytest.mark.parametrize("processes", ["0", "1"])
def test_no_test_of_python_runs_where_gt_computes_on_no_device(tmp_path: Path, processes: str) -> None:
    (tmp_path / "test_one.py").write_text("def test_one(): pass\n")
    command = [sys.executable, "-m", "pytest", "-p", "gpu_kit.plugin", "-p", "no:cacheprovider", "-n", processes]
    lines = tmp_path / "results.jsonl"
    environment = {
        **os.environ,
        "GT_DEVICES": "cpu",
        "PYTHONPATH": str(ROOT / "scripts"),
        "GPU_KIT_DEVICES": str(tmp_path),
        "GPU_KIT_RESULTS": str(lines),
    }
    done = subprocess.run(
        [*command, "test_one.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "no test was run: GT computes on no CUDA device here" in done.stdout + done.stderr
    found = results.of_pytest(lines, tmp_path, rehearsal=False)
    assert (found.passed, found.on_device, found.devices) == (0, 0, [])
