"""`private_devices: off` in the system's configuration, which daemons that users start read.

The configuration is laid over `/etc` in a mount namespace, so these tests need root.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import environment

PROGRAM = "import gt; print(gt.ones(3).sum().item())"


def private(tmp_path: Path, configuration: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Runs a program with a private daemon, where the system's configuration is `configuration`."""
    etc = tmp_path / "etc"
    (etc / "gt").mkdir(parents=True, exist_ok=True)
    (etc / "gt/gtd.yaml").write_text(configuration)
    mount = f'mount -t overlay -o lowerdir="{etc}":/etc none /etc && exec "$@"'
    words = ["unshare", "--mount", "sh", "-c", mount, "sh", sys.executable, "-c", PROGRAM]
    env = environment(GT_CONNECT="private", **env)
    return subprocess.run(words, env=env, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(autouse=True)
def namespaces(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can lay a configuration over /etc")
    words = ["unshare", "--mount", "mount", "-t", "overlay", "-o", f"lowerdir={tmp_path}:/etc", "none", "/etc"]
    if subprocess.run(words, capture_output=True, check=False).returncode != 0:
        pytest.skip("this kernel lays no folder over another")


def test_a_private_daemon_does_not_use_devices_that_are_kept(tmp_path: Path) -> None:
    done = private(tmp_path, "private_devices: off\n", GT_WORKERS="cpu:1,cuda:0")
    assert done.returncode == 1
    text = "cuda:0 is asked for, but /etc/gt/gtd.yaml keeps this machine's devices to its daemon (private_devices: off)"
    assert text in done.stderr


def test_without_a_request_it_computes_on_the_cpu(tmp_path: Path) -> None:
    done = private(tmp_path, "private_devices: off\n")
    assert (done.returncode, done.stdout) == (0, "3.0\n"), done.stderr


def test_where_nothing_is_kept_the_request_is_examined(tmp_path: Path) -> None:
    done = private(tmp_path, "private_devices: on\n", GT_WORKERS="cuda:99")
    assert done.returncode == 1
    assert "private_devices" not in done.stderr
