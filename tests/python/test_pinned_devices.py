"""Sessions that are pinned to some of a daemon's devices: by their users' limits, and by the program itself.

The users are real processes with user ids that the machine does not have, so these tests need root.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support import daemon, environment, eventually, gtd, line_of, python, started

# On a daemon with four devices: user ANA may use two of them, BEN one, members of GROUP two, and CLEO all.
ANA, BEN, CLEO, DAN, GROUP = 61002, 61003, 61004, 61005, 61010
CONFIGURATION = f"""
workers: cpu:4
shard_bytes_min: 0
limits: {{devices: all}}
groups: {{{GROUP}: {{devices: [0, 3]}}}}
users:
  {ANA}: {{devices: [2-3]}}
  {BEN}:
    devices: 1
"""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become other users")

PLACEMENT = "x = gt.ones(8, 8) + 1\nprint(*gt._gt.session_info()['workers'], '|', gt.debug.placement(x), flush=True)"


class Machine:
    """A daemon with a configuration, and programs of its users."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "gtd.sock"
        self.file = folder / "gtd.yaml"

    def ctl(self, *arguments: object, uid: int | None = None) -> subprocess.CompletedProcess[str]:
        """Runs `gtctl`, as another user if `uid` names one."""
        words = [str(self.folder / "gtctl"), "--socket", str(self.socket), *(str(word) for word in arguments)]
        return subprocess.run(
            words, env=environment(), user=uid, capture_output=True, text=True, timeout=60, check=False
        )

    def told(self, *arguments: object) -> str:
        done = self.ctl(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    @contextmanager
    def program(self, uid: int, text: str, groups: tuple[int, ...] = (), **env: str) -> Iterator[subprocess.Popen]:
        """Starts a program of a user."""
        # The user may not be able to read this Python, so the process imports what it needs before it becomes the user.
        become = f"os.setgroups({list(groups)}); os.setgid({uid}); os.setuid({uid})"
        program = f"import os, sys, numpy, gt\ngt.tensor, gt.nn, gt.cuda\n{become}\n{text}"
        with started(program, GT_CONNECT=f"unix:{self.socket}", **env) as process:
            yield process

    def output_of(self, uid: int, text: str, groups: tuple[int, ...] = (), **env: str) -> str:
        with self.program(uid, text, groups, **env) as process:
            out, err = process.communicate(timeout=120)
            assert process.returncode == 0, err
            return out.strip()

    def error_of(self, uid: int, text: str, **env: str) -> str:
        with self.program(uid, text, **env) as process:
            _, err = process.communicate(timeout=120)
            assert process.returncode == 1
            return err


@pytest.fixture
def machine() -> Iterator[Machine]:
    with tempfile.TemporaryDirectory(prefix="gt-pinned-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        shutil.copy(gtd().with_name("gtctl"), folder)
        machine = Machine(folder)
        machine.file.write_text(CONFIGURATION)
        with daemon(machine.socket, "--config", str(machine.file)):
            machine.socket.chmod(0o666)
            yield machine


@needs_root
def test_a_users_tensors_lie_on_the_users_devices_alone(machine: Machine) -> None:
    over = "sharded along axis 0 over"
    assert machine.output_of(ANA, PLACEMENT) == f"cpu:2 cpu:3 | {over} [cpu:2, cpu:3]"
    assert machine.output_of(BEN, PLACEMENT) == "cpu:1 | on cpu:1"
    assert machine.output_of(CLEO, PLACEMENT) == f"cpu:0 cpu:1 cpu:2 cpu:3 | {over} [cpu:0, cpu:1, cpu:2, cpu:3]"
    assert machine.output_of(DAN, PLACEMENT, (GROUP,)) == f"cpu:0 cpu:3 | {over} [cpu:0, cpu:3]"
    trained = """
from gt.nn import Linear
from gt.optim import SGD
gt.manual_seed(0)
model = Linear(8, 8)
optimizer = SGD(model.parameters(), lr=0.1)
for _ in range(3):
    loss = (model(gt.ones(4, 8)) ** 2).sum()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
used = {worker for p in model.parameters() for worker in gt.debug.placement(p).workers}
print(loss.item(), used <= {"cpu:2", "cpu:3"})
"""
    loss, within = machine.output_of(ANA, trained).split()
    assert within == "True"
    # On more devices, sums are added in another order.
    assert float(machine.output_of(CLEO, trained).split()[0]) == pytest.approx(float(loss), rel=1e-6)


@needs_root
def test_a_program_narrows_what_its_user_may_use(machine: Machine) -> None:
    connect = f"gt.connect(devices=%s)\n{PLACEMENT}"
    assert machine.output_of(ANA, connect % "[3]") == "cpu:3 | on cpu:3"
    assert machine.output_of(CLEO, connect % "'0-1'").startswith("cpu:0 cpu:1 | sharded")
    assert machine.output_of(ANA, PLACEMENT, GT_VISIBLE_DEVICES="2") == "cpu:2 | on cpu:2"
    # The argument is stronger than the environment; all are all that the user may use.
    assert machine.output_of(ANA, connect % "'all'", GT_VISIBLE_DEVICES="2").startswith("cpu:2 cpu:3 | ")
    # A child is pinned as its parent.
    forked = f"gt.connect(devices=[1, 3])\nif os.fork(): os.wait(); sys.exit()\n{PLACEMENT}"
    assert machine.output_of(CLEO, forked).startswith("cpu:1 cpu:3 | ")

    said = machine.error_of(ANA, connect % "[0, 2]")
    assert f"devices 0,2 are asked for, but user {ANA} may use 2-3 of the daemon's 4 devices; name others" in said
    assert f"gtctl limits set --user {ANA} --devices NUMBERS" in said
    said = machine.error_of(CLEO, connect % "[4]")
    assert "there is no device 4: the daemon has 4 devices, numbered from 0 to 3; name others" in said
    said = machine.error_of(CLEO, PLACEMENT, GT_VISIBLE_DEVICES="first")
    assert "GT_VISIBLE_DEVICES: `first` names no devices: write numbers, as in 0-3 or 0,2, or all" in said
    for wrong, error in (("[]", "ValueError: `[]` names no devices"), ("['a']", "TypeError"), ("[64]", "ValueError")):
        assert error in machine.error_of(CLEO, connect % wrong)
    late = "gt.connect(devices=[0])\ngt.connect(devices=[0])\ngt.connect(devices=[1])"
    assert "connect(devices=1) comes too late: this process has a session with the devices 0" in machine.error_of(
        CLEO, late
    )


@needs_root
def test_workers_are_numbered_among_the_devices_of_the_session(machine: Machine) -> None:
    """As a program for PyTorch numbers the devices that CUDA_VISIBLE_DEVICES names."""
    signal = """
gt.register_config("here", gt.SignalConfig(shard=gt.ShardConfig(workers=%s, replicated=True)))
print(gt.debug.placement(gt.signal.tensor(gt.ones(4), name="here")), gt.ones(2).to("cpu:1").device)
"""
    assert machine.output_of(ANA, signal % "[1]") == "on cpu:3 cpu"
    assert machine.output_of(ANA, signal % "[0, 1]") == "replicated on [cpu:2, cpu:3] cpu"
    pinned = "this session may use devices 2-3 of the daemon's 4, which are its workers 0 to 1"
    for before in ("", "gt.ones(1)\n"):
        said = machine.error_of(ANA, before + signal % "[0, 2]")
        assert "there is no worker 2: " + pinned in said
    assert f"4 workers are asked for, but {pinned}" in machine.error_of(ANA, "gt.gpu_workers(4)")
    assert machine.output_of(ANA, "gt.gpu_workers(2); print(gt.ones(2).sum().item())") == "2.0"


@needs_root
def test_a_pinned_user_is_not_held_up_on_another_device(machine: Machine) -> None:
    """One user's step of many seconds runs on device 0 from before to after a session on device 1 has computed."""
    machine.told("limits", "set", "--user", ANA, "--devices", "0")
    light = "x = gt.ones(64, 64)\nprint((x @ x).sum().item(), flush=True)\nsys.stdin.readline()\n"
    light += "for _ in range(100): y = (x @ x).sum().item()\nprint(y, flush=True)\nsys.stdin.readline()"
    heavy = "x = gt.ones(12000, 12000)\nprint(x[0, 0].item(), flush=True)\ny = (x @ x)[0, 0].item()"
    with machine.program(BEN, light) as ben, machine.program(ANA, heavy) as ana:
        assert (line_of(ben), line_of(ana)) == ("262144.0", "1.0")

        def runs() -> list[tuple[str, int]]:
            workers = json.loads(machine.told("status", "--json"))["workers"]
            return [(worker["name"], worker["running"]["session"]) for worker in workers if worker.get("running")]

        (held,) = eventually(runs, "the heavy step")
        assert held[0] == "cpu:0"
        ben.stdin.write("\n")
        ben.stdin.flush()
        assert line_of(ben) == "262144.0"
        assert held in runs()
        assert ana.poll() is None


@needs_root
def test_a_change_is_for_sessions_that_begin_later(machine: Machine) -> None:
    again = f"{PLACEMENT}\nsys.stdin.readline()\ny = gt.ones(8, 8) + 2\nprint(gt.debug.placement(y), flush=True)\n"
    again += "gt.disconnect()\n" + PLACEMENT
    with machine.program(BEN, again) as ben:
        assert line_of(ben) == "cpu:1 | on cpu:1"
        out = machine.told("limits", "set", "--user", BEN, "--devices", "0,2")
        assert out.splitlines()[-1] == "sessions that began before keep their devices"
        (row,) = [line for line in out.splitlines() if line.startswith(str(BEN))]
        assert row.endswith("  0,2")
        (session,) = json.loads(machine.told("sessions", "--json"))
        assert session["devices"] == [1]
        assert "devices    1\n" in machine.told("session", session["id"])
        ben.stdin.write("\n")
        ben.stdin.flush()
        assert line_of(ben) == "on cpu:1"
        assert line_of(ben).startswith("cpu:0 cpu:2 | ")
    machine.told("limits", "set", "--user", BEN, "--devices", "default")
    machine.file.write_text(CONFIGURATION.replace("devices: 1", "devices: [0-1]"))
    assert "changed: users" in machine.told("reload")
    assert machine.output_of(BEN, PLACEMENT).startswith("cpu:0 cpu:1 | ")


@needs_root
def test_users_narrow_their_own_devices_and_no_others(machine: Machine) -> None:
    for devices, status in (("3", 0), ("2-3", 4), ("all", 4)):
        assert machine.ctl("limits", "set", "--user", ANA, "--devices", devices, uid=ANA).returncode == status
    assert machine.ctl("limits", "set", "--user", BEN, "--devices", "1", uid=ANA).returncode == 4
    assert machine.output_of(ANA, PLACEMENT) == "cpu:3 | on cpu:3"


def test_a_device_that_there_is_not_is_an_error_wherever_it_is_named(machine: Machine) -> None:
    missing = "there is no device 4: the daemon has 4 devices, numbered from 0 to 3"
    done = machine.ctl("limits", "set", "--devices", "0,4")
    assert (done.returncode, done.stderr.splitlines()[0]) == (1, f"gtctl: {missing}")
    done = machine.ctl("limits", "set", "--devices", "four")
    assert done.returncode == 2
    assert "`four` names no devices: write numbers, as in 0-3 or 0,2, or all" in done.stderr

    wrong = CONFIGURATION.replace("[2-3]", "[2-4]")
    line = 1 + wrong[: wrong.index("[2-4]")].count("\n")
    error = f"{machine.file}:{line}: users.{ANA}.devices: {missing}"
    machine.file.write_text(wrong)
    done = machine.ctl("config", "check", machine.file)
    assert (done.returncode, done.stderr.splitlines()[0]) == (7, f"gtctl: {error}")
    done = machine.ctl("reload")
    assert (done.returncode, done.stderr.splitlines()[0]) == (
        7,
        f"gtctl: {error}; the old configuration stays in force",
    )
    command = [gtd(), "--socket", f"{machine.socket}-2", "--config", machine.file]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr.strip()) == (78, f"gtd: {error}")
    # Where the file leaves the number of devices to the machine, the running daemon tells it.
    machine.file.write_text(wrong.replace("workers: cpu:4\n", ""))
    done = machine.ctl("config", "check", machine.file)
    assert (done.returncode, missing in done.stderr) == (7, True)
    words = [gtd().with_name("gtctl"), "--socket", f"{machine.socket}-2", "config", "check", machine.file]
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "checked when the daemon starts" in done.stdout) == (0, True)


def test_a_private_daemon_has_the_devices_that_a_program_asks_for() -> None:
    program = "import gt\n" + PLACEMENT
    done = python(program, GT_CONNECT="private", GT_DAEMON=str(gtd()), GT_WORKERS="cpu:3", GT_VISIBLE_DEVICES="1-2")
    assert done.stdout.startswith("cpu:1 cpu:2 | "), done.stderr
