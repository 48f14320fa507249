"""The Debian package under test, and a machine to install it on: a systemd booted in namespaces."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
SYSTEMD = Path("/lib/systemd/systemd")
# The time limit of everything that the tests wait for.
DEADLINE_S = 60


def run(*command: object, **options: Any) -> str:
    """Runs a command and returns its output; a failure shows its errors."""
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def eventually(what: str, condition: Callable[[], object]) -> None:
    """Waits until a condition holds."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(0.05)


def why_no_boot() -> str | None:
    """Returns the reason that no machine can be booted here, if there is one."""
    if os.geteuid() != 0:
        return "only root can boot a systemd in namespaces"
    for tool in (SYSTEMD, "unshare", "nsenter", "dpkg", "setpriv"):
        if not shutil.which(str(tool)):
            return f"there is no {tool} here"
    trial = ["unshare", "--pid", "--fork", "--mount", "--uts", "--ipc", "--cgroup", "sh", "-c"]
    mounts = "mount -t tmpfs t /mnt && mkdir /mnt/u /mnt/w /mnt/r && mount -t cgroup2 c /mnt/r && umount /mnt/r"
    mounts += " && mount -t overlay o -o lowerdir=/,upperdir=/mnt/u,workdir=/mnt/w /mnt/r"
    done = subprocess.run([*trial, mounts], capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else f"this machine does not allow namespaces and layers: {done.stderr.strip()}"


class Machine:
    """A booted machine: systemd in namespaces."""

    def __init__(self, pid: int) -> None:
        """Wraps the systemd that has process id `pid` on the host."""
        self._enter = [
            "nsenter",
            f"--target={pid}",
            "--mount",
            "--pid",
            "--uts",
            "--ipc",
            "--cgroup",
            "--root",
            "--wd",
        ]

    def start(self, *command: object, user: str | None = None, **options: Any) -> subprocess.Popen[str]:
        """Starts a command in the machine, as a user with that user's groups."""
        become = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"] if user else []
        words = [*self._enter, *become, *(str(word) for word in command)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        return subprocess.Popen(words, text=True, **{**pipes, **options})

    def fails(self, *command: object, user: str | None = None) -> tuple[int, str]:
        """Runs a command that may fail; returns its exit status and its output."""
        process = self.start(*command, user=user)
        said, _ = process.communicate(timeout=DEADLINE_S)
        return process.returncode, said

    def run(self, *command: object, user: str | None = None) -> str:
        """Runs a command that has to succeed, and returns its output."""
        status, said = self.fails(*command, user=user)
        assert status == 0, f"{command} ended with {status}\n{said}"
        return said

    def property(self, unit: str, name: str) -> str:
        """Returns a property of a systemd unit."""
        return self.run("systemctl", "show", "--value", f"--property={name}", unit).strip()

    def write(self, path: str, text: str) -> None:
        """Writes a file in the machine."""
        process = self.start("sh", "-c", f"mkdir -p $(dirname {path}) && cat >{path}")
        said, _ = process.communicate(text, timeout=DEADLINE_S)
        assert process.returncode == 0, said

    def client(self, program: str, user: str) -> subprocess.Popen[str]:
        """Starts a Python program that can import `gt`, as a user."""
        # The user may not be able to read this Python, so the process imports what it needs before it becomes the user.
        head = (
            "import os, pwd, sys, numpy, gt\n"
            f"gt.tensor; user = pwd.getpwnam({user!r})\n"
            "os.initgroups(user.pw_name, user.pw_gid); os.setgid(user.pw_gid); os.setuid(user.pw_uid)\n"
        )
        search = os.environ.get("PYTHONPATH", "")
        return self.start(
            "env", f"PYTHONPATH={search}", "GT_SOCKET=/run/gt/gtd.sock", sys.executable, "-c", head + program
        )

    def compute(self, user: str) -> None:
        """Runs a user's program that computes on the machine's daemon."""
        client = self.client("print(gt.arange(5).sum().item())", user)
        said, _ = client.communicate(timeout=DEADLINE_S)
        assert (client.returncode, said.strip()) == (0, "10"), said

    def journal(self) -> list[dict[str, Any]]:
        """Returns the journal of the daemon's service."""
        self.run("journalctl", "--sync")
        lines = self.run("journalctl", "--unit=gtd.service", "--output=json", "--no-pager").splitlines()
        return [json.loads(line) for line in lines]

    def said(self, text: str) -> bool:
        """Returns whether the journal of the daemon's service contains a text."""
        return any(text in str(entry.get("MESSAGE")) for entry in self.journal())


@contextlib.contextmanager
def booted(folder: Path) -> Iterator[Machine]:
    """Boots a machine, and shuts it down afterwards."""
    # The machine ends with the test process, however that ends.
    spaces = [
        "setpriv",
        "--pdeathsig=KILL",
        "unshare",
        "--pid",
        "--fork",
        "--mount",
        "--uts",
        "--ipc",
        "--cgroup",
        "--kill-child",
    ]
    script = Path(__file__).with_name("boot.sh")
    with (folder / "boot.log").open("w") as log:
        unshare = subprocess.Popen([*spaces, "sh", script, folder], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        children = Path(f"/proc/{unshare.pid}/task/{unshare.pid}/children")

        def is_up() -> bool:
            assert unshare.poll() is None, (folder / "boot.log").read_text()
            first = children.read_text().split()
            if not first or Path(f"/proc/{first[0]}/exe").resolve().name != "systemd":
                return False
            state = Machine(int(first[0])).fails("systemctl", "is-system-running")[1].strip()
            return state in {"running", "degraded"}

        eventually("systemd is up", is_up)
        yield Machine(int(children.read_text().split()[0]))
    finally:
        unshare.kill()
        unshare.wait()


@functools.cache
def packages() -> dict[str, Path]:
    """Builds the Debian packages of this checkout; returns their paths by name."""
    if not all(shutil.which(tool) for tool in ("cargo", "cc", "dpkg-deb", "dpkg-shlibdeps")):
        pytest.skip("Debian packages need cargo, a C compiler and dpkg-dev")
    run("make", "deb", cwd=ROOT)
    return {built.name.split("_")[0]: built for built in (TARGET / "debian").glob("*.deb")}
