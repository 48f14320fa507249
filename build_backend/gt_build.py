"""The build backend of GT (PEP 517 and PEP 660): one wheel with the extension and two native programs.

maturin packs an extension or programs, never both. So this backend builds `gtd` and `gtctl` with cargo, stages them
in the folder that maturin copies into a wheel as it is (`[tool.maturin] data`), and leaves the rest to maturin. The
type stubs of the functions that Rust declares are written in the same build. Extension and programs share one target
folder and one dependency graph, so nothing is compiled twice.

It must not know what the programs do. Start at `build_wheel`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
STAGED_DATA = ROOT / "pybind" / "data"
# The type stubs of the declared functions, which the program gt-stubs writes.
STUBS = ROOT / "pybind" / "python" / "gt" / "_functions"
PROGRAMS = ("gtd", "gtctl")
STUB_WRITER = "gt-stubs"
MATURIN = "maturin>=1.10,<2"

ConfigSettings = dict[str, Any] | None


def get_requires_for_build_wheel(config_settings: ConfigSettings = None) -> list[str]:
    """Requires maturin, after checking for missing tools: pip calls this hook first."""
    _check_tools()
    return [MATURIN]


def get_requires_for_build_editable(config_settings: ConfigSettings = None) -> list[str]:
    """Requires the same as a wheel."""
    return get_requires_for_build_wheel(config_settings)


def get_requires_for_build_sdist(config_settings: ConfigSettings = None) -> list[str]:
    """Requires the same as a wheel, since maturin asks cargo which files belong to the workspace."""
    return get_requires_for_build_wheel(config_settings)


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: ConfigSettings = None) -> str:
    """Writes the wheel's metadata without building anything."""
    _make_data_folder()
    return _maturin().prepare_metadata_for_build_wheel(metadata_directory, config_settings)


def prepare_metadata_for_build_editable(metadata_directory: str, config_settings: ConfigSettings = None) -> str:
    """Writes the editable wheel's metadata without building anything."""
    _make_data_folder()
    return _maturin().prepare_metadata_for_build_editable(metadata_directory, config_settings)


def build_wheel(
    wheel_directory: str, config_settings: ConfigSettings = None, metadata_directory: str | None = None
) -> str:
    """Builds the wheel of the package `gt`, its extension `gt._gt` and the programs."""
    stage_programs()
    return _maturin().build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(
    wheel_directory: str, config_settings: ConfigSettings = None, metadata_directory: str | None = None
) -> str:
    """Builds a wheel whose Python files are those of this checkout."""
    stage_programs()
    return _maturin().build_editable(wheel_directory, config_settings, metadata_directory)


def build_sdist(sdist_directory: str, config_settings: ConfigSettings = None) -> str:
    """Packs the sources of every crate of the workspace."""
    _make_data_folder()
    return _maturin().build_sdist(sdist_directory, config_settings)


def _check_tools() -> None:
    """Ends the build if tools are missing, with a message for each."""
    if subprocess.run(["sh", str(ROOT / "scripts" / "check-tools"), "build"], check=False).returncode != 0:
        sys.exit(1)


def _maturin() -> Any:
    """Imports maturin's backend, which is installed only after `get_requires_*` has named it."""
    import maturin

    return maturin


def _make_data_folder() -> None:
    """Makes the `data` folder, without which maturin does not even write metadata."""
    (STAGED_DATA / "scripts").mkdir(parents=True, exist_ok=True)


def stage_programs(*arguments: str, writes_stubs: bool = True) -> None:
    """Builds the programs and copies them to maturin's `data` folder, from which it packs them into the next wheel.

    Args:
        arguments: The command of cargo, which by default builds a release for this machine.
        writes_stubs: Whether to write the type stubs, too. A program does, which must run on this machine.
    """
    _check_tools()
    _make_data_folder()
    for staged in (STAGED_DATA / "scripts").iterdir():
        staged.unlink()
    for executable in _build_programs(*(arguments or ("build", "--release"))):
        if executable.name != STUB_WRITER:
            shutil.copy2(executable, STAGED_DATA / "scripts" / executable.name)
        elif writes_stubs:
            subprocess.run([executable, STUBS], check=True)


def _build_programs(*arguments: str) -> list[Path]:
    """Runs cargo, and returns the paths of the programs as cargo reports them (a target folder can be anywhere)."""
    command = ["cargo", *arguments, "--bins", "--message-format=json-render-diagnostics"]
    # The extension's crate has no program. Naming it makes cargo choose the features of shared dependencies as it
    # does for the extension. Without it, half of the graph is compiled a second time with other features.
    for package in (*PROGRAMS, "gt-functions", "gt-python"):
        command += ["--package", package]
    print("gt:", *command, flush=True)
    # pip decides whether to show a backend's output; cargo's messages go to stderr and are not captured.
    cargo = subprocess.run(command, cwd=ROOT, env=os.environ, stdout=subprocess.PIPE, text=True, check=False)
    if cargo.returncode != 0:
        sys.exit(f"gt: cargo could not build {' and '.join(PROGRAMS)}; its message is above")
    messages = [json.loads(line) for line in cargo.stdout.splitlines()]
    executables = [Path(message["executable"]) for message in messages if message.get("executable")]
    found = sorted(path.name for path in executables)
    wanted = sorted((*PROGRAMS, STUB_WRITER))
    assert found == wanted, f"cargo built {found} where {wanted} were asked for"
    return executables


if __name__ == "__main__":
    # Run as a program, this file shows cargo's progress; a later `pip install` finds the programs built.
    stage_programs()
