"""`make dist`: what it needs, and that its wheel works on an old system with Python alone.

The build itself takes minutes, so `make dist` is not run here: the wheel is tried where `dist` has one.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DIST = Path(os.environ.get("GT_DIST", ROOT / "dist"))
WHEELS = sorted(DIST.glob("gt_tensor-*.whl"))
OWN = [wheel for wheel in WHEELS if platform.machine() in wheel.name]
needs_dist = pytest.mark.skipif(not WHEELS, reason=f"no wheel in {DIST}: `make dist` makes it")
# The newest symbols of glibc that manylinux2014 has.
GLIBC_MAX = (2, 17)


def _make_dist(tools: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs make-dist where the only tools are those of a folder."""
    words = [sys.executable, "-I", str(ROOT / "scripts" / "make-dist"), *arguments]
    return subprocess.run(words, env={"PATH": str(tools)}, capture_output=True, text=True, timeout=60, check=False)


def _program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_missing_tools_are_named_with_what_to_install(tmp_path: Path) -> None:
    _program(tmp_path / "rustc", f"echo {tmp_path}")
    done = _make_dist(tmp_path, "--target", "aarch64", "--out", str(tmp_path / "out"))
    assert done.returncode == 1
    assert "gt: a wheel for aarch64 needs Rust's standard library for it" in done.stderr
    assert "`rustup target add aarch64-unknown-linux-gnu`" in done.stderr
    # An environment may have these tools.
    for tool in ("maturin", "cargo-zigbuild"):
        if not Path(sys.executable).with_name(tool).exists():
            assert f"wheels for other machines need {tool}; `pip install" in done.stderr
    assert not (tmp_path / "out").exists()


def test_without_a_wheel_there_is_nothing_to_try(tmp_path: Path) -> None:
    words = [str(ROOT / "scripts" / "try-wheel"), str(tmp_path / "absent.whl")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "there is no wheel" in done.stderr
    assert "`make dist` makes it" in done.stderr


def test_the_wheel_of_kernels_puts_them_where_gtd_looks(tmp_path: Path) -> None:
    kernels = tmp_path / "compiled"
    kernels.write_bytes(b"kernels")
    script = [sys.executable, str(ROOT / "scripts" / "make-kernel-wheel"), "--out", str(tmp_path)]
    subprocess.run([*script, "--kernels", str(kernels)], timeout=300, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert re.fullmatch(r"gt_tensor_cuda_kernels-\d+\.\d+\.\d+-py3-none-any\.whl", wheel.name)
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    pip = [str(environment / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-index", str(wheel)]
    subprocess.run(pip, timeout=300, check=True)
    assert (environment / "lib" / "gt" / "cuda-kernels").read_bytes() == b"kernels"

    done = subprocess.run([*script, "--kernels", "absent"], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (1, "gt: there is no absent; `make cuda-kernels` makes it\n")


@needs_dist
def test_checksums_name_every_file() -> None:
    lines = (DIST / "SHA256SUMS").read_text().splitlines()
    sums = {name: checksum for checksum, name in (line.split("  ") for line in lines)}
    assert set(sums) == {path.name for path in DIST.iterdir() if path.is_file()} - {"SHA256SUMS"}
    for name, checksum in sums.items():
        assert hashlib.sha256((DIST / name).read_bytes()).hexdigest() == checksum


@needs_dist
def test_the_list_of_components_has_the_programs_and_their_crates() -> None:
    (path,) = DIST.glob("*.cdx.json")
    components = json.loads(path.read_text())
    assert components["bomFormat"] == "CycloneDX"
    names = {component["name"] for component in components["components"]}
    assert {"gtd", "gtctl", "gt-client", "pyo3", "rustls", "serde"} <= names


@needs_dist
@pytest.mark.parametrize("wheel", WHEELS, ids=lambda wheel: wheel.name)
def test_a_wheel_needs_no_newer_c_library_than_it_says(wheel: Path, tmp_path: Path) -> None:
    if shutil.which("readelf") is None:
        pytest.skip("no readelf here: apt install binutils")
    assert re.search(r"-cp310-abi3-manylinux2014_\w+\.manylinux_2_17_\w+\.whl$", wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        programs = [name for name in archive.namelist() if name.endswith(("/gtd", "/gtctl", ".so"))]
        archive.extractall(tmp_path, programs)
    assert len(programs) == 3
    for name in programs:
        words = ["readelf", "--version-info", "--sections", "--wide", str(tmp_path / name)]
        told = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        versions = {tuple(map(int, found.split("."))) for found in re.findall(r"GLIBC_([\d.]+)", told)}
        assert max(version[:2] for version in versions) <= GLIBC_MAX, name
        assert ".symtab" not in told, f"{name} is not stripped"


@pytest.mark.skipif(not OWN, reason=f"no wheel for this machine in {DIST}: `make dist` makes it")
@pytest.mark.timeout(600)
def test_the_wheel_works_on_an_old_system_with_python_alone() -> None:
    if os.getuid() != 0 or shutil.which("mmdebstrap") is None:
        pytest.skip("only root can enter another system, and mmdebstrap makes it: apt install mmdebstrap")
    words = [str(ROOT / "scripts" / "try-wheel"), str(OWN[0])]
    done = subprocess.run(words, capture_output=True, text=True, timeout=590, check=False)
    assert done.returncode == 0, done.stderr
    assert "tensor([3., 3.])" in done.stdout
    assert re.search(r"seconds from pip install to the tensor: [\d.]+", done.stdout)
