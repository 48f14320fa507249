"""A worker that registers itself: later sessions compute on it, and its end does not end the daemon."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support import daemon, environment, eventually, gtd, line_of, output_of, started, wait_for_exit

import gt.worker

TOKEN = "test-token-0123456789"

PROLOGUE = """
import gt, sys
from gt import ShardConfig, SignalConfig
from gt.signal import context
gt.register_config("rows", SignalConfig(shard=ShardConfig(axis=0)))
gt.register_config("copies", SignalConfig(shard=ShardConfig(replicated=True)))
def told(f):
    try: return f()
    except Exception as error: return f"{type(error).__name__}: {error}".splitlines()[0]
"""

# A configuration that a session with one worker refuses.
SECOND = 'gt.register_config("second", SignalConfig(shard=ShardConfig(workers=[1])))\n'


@contextmanager
def worker(*arguments: str, **env: str | None) -> Iterator[subprocess.Popen[str]]:
    """Runs `python -m gt.worker`, and kills it afterwards if it still runs."""
    process = subprocess.Popen(
        [sys.executable, "-m", "gt.worker", *arguments],
        env=environment(**env),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@contextmanager
def joined(socket: Path, *options: str, as_worker: str = "cpu:1") -> Iterator[subprocess.Popen[str]]:
    """Starts a worker of one thread, and waits until it has joined the daemon at `socket`."""
    with worker("--connect", f"unix:{socket}", "--threads", "1", *options) as process:
        assert line_of(process) == f"joined the daemon at unix:{socket} as worker {as_worker}; Ctrl-C leaves"
        yield process


def status(socket: Path) -> dict:
    """Returns the output of `gtctl status`, parsed."""
    done = subprocess.run(
        [gtd().with_name("gtctl"), "status", "--json", "--socket", str(socket)],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    return json.loads(done.stdout)


def workers(socket: Path) -> dict[str, dict]:
    """Returns the daemon's workers by name."""
    return {worker["name"]: worker for worker in status(socket)["workers"]}


def sessions(socket: Path) -> list[dict]:
    return status(socket)["sessions"]


@pytest.fixture
def socket(tmp_path: Path) -> Iterator[Path]:
    """Runs a daemon with one worker, and yields its socket."""
    with daemon(tmp_path / "gtd.sock", "--threads", "1"):
        yield tmp_path / "gtd.sock"


def said(socket: Path, program: str) -> list[str]:
    return output_of(PROLOGUE + program, GT_SOCKET=str(socket)).splitlines()


# At work ----------------------------------------------------------------------------------------------------------


def test_sessions_that_begin_later_compute_on_it(socket: Path) -> None:
    divided = """
with context("rows"):
    y = gt.ones(8, 3)
print(gt.debug.placement(y).workers, (y @ gt.ones(3, 2)).sum().item())
print(gt._gt.session_info()["workers"])
"""
    named = (
        SECOND
        + """
with context("second"):
    x = gt.arange(6.0) * 2
print(gt.debug.placement(x).workers, x.tolist())
"""
    )
    begins = "print(gt.ones(2).tolist(), flush=True)\nsys.stdin.readline()\n"
    with started(PROLOGUE + begins + divided, GT_SOCKET=str(socket)) as before:
        assert line_of(before) == "[1.0, 1.0]"
        with joined(socket, "--memory", "64M") as process:
            found = workers(socket)["cpu:1"]
            assert found["process"] == process.pid
            assert (found["state"], found["threads"], found["memory_bytes_limit"]) == ("running", 1, 64 << 20)
            assert said(socket, named + divided) == [
                "('cpu:1',) [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]",
                "('cpu:0', 'cpu:1') 48.0",
                "['cpu:0', 'cpu:1']",
            ]
            # An existing session keeps the workers that it started with.
            out, err = before.communicate("\n", timeout=60)
            assert (out.splitlines(), err) == (["('cpu:0',) 48.0", "['cpu:0']"], "")


def test_it_works_beside_workers_of_every_kind(tmp_path: Path) -> None:
    """Moves tensors between worker threads, worker processes and the registered worker."""
    socket = tmp_path / "gtd.sock"
    program = """
with context("rows"):
    x = gt.arange(24.0).reshape(12, 2)
    w = gt.ones(2, 5)
loss = (x @ w).pow(2).mean()
with context("copies"):
    total = x.sum(0) + 1
print(gt.debug.placement(total).workers, total.tolist(), round(loss.item(), 3))
"""
    with daemon(socket, "--workers", "cpu:1,proc-cpu:1"), joined(socket, as_worker="cpu:2"):
        names = "('cpu:0', 'cpu:1', 'cpu:2')"
        assert said(socket, program) == [f"{names} [133.0, 145.0] 719.667"]


def test_it_comes_by_the_port_of_a_daemon_on_its_machine(tmp_path: Path) -> None:
    socket = tmp_path / "gtd.sock"
    command = [gtd(), "--socket", socket, "--listen", "0", "--announce"]
    server = subprocess.Popen(command, env=environment(GT_TOKEN=TOKEN), stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        lines = [server.stdout.readline() for _ in range(4)]
        port = re.search(r"localhost:(\d+)", lines[2])[1]
        with worker("--host", "localhost", "-p", port, GT_TOKEN=TOKEN) as process:
            assert line_of(process) == f"joined the daemon at localhost:{port} as worker cpu:1; Ctrl-C leaves"
            assert said(socket, "print(gt._gt.session_info()['workers'])") == ["['cpu:0', 'cpu:1']"]
        with worker("-p", port, GT_TOKEN="another-token-0123456789") as process:
            out, err = process.communicate(timeout=60)
            assert (process.returncode, out) == (1, "")
            assert err == (
                f"gtd worker: the daemon at localhost:{port}: wrong token: take it from the daemon's token file, by "
                "GT_TOKEN or gt.connect(…, token=…)\n"
            )
    finally:
        server.kill()
        server.communicate()


# Its end ----------------------------------------------------------------------------------------------------------

HOLDER = (
    PROLOGUE
    + SECOND
    + """
with context("second"):
    x = gt.arange(6.0)
with context("rows"):
    y = gt.ones(8, 3)
home = gt.full((2,), 7.0)
gt.synchronize()
print("holds", flush=True)
sys.stdin.readline()
print(told(lambda: x.tolist()))
print(told(lambda: (x + home.sum()).tolist()))
print(told(lambda: y.sum().item()))
print(home.tolist())
with context("rows"):
    z = gt.ones(8, 3)
with context("second"):
    again = gt.arange(3.0)
print(gt.debug.placement(z).workers, z.sum().item(), again.tolist())
gt.synchronize()
"""
)


def test_it_joins_a_daemon_on_another_machine_by_the_line_of_an_invitation(tmp_path: Path) -> None:
    socket = tmp_path / "gtd.sock"
    with daemon(socket, "--threads", "1", "--nodes", "127.0.0.1:0", "--state", str(tmp_path / "state")):
        invite = [gtd().with_name("gtctl"), "invite", "--json", "--socket", str(socket)]
        line = json.loads(subprocess.run(invite, capture_output=True, check=True).stdout)["join"]
        small = ["--workers", "cpu:1", "--threads", "1", "--memory", "64M", "--name", "left"]
        with worker("--join", line, "--state", str(tmp_path / "node"), *small) as process:
            at = ":".join(line.split(":")[:2])
            assert line_of(process) == f"joined the daemon at {at} as node left with workers left/cpu:0; Ctrl-C leaves"
            # Other users could read the secret there.
            assert line not in Path(f"/proc/{process.pid}/cmdline").read_text()
            eventually(
                lambda: workers(socket).get("left/cpu:0", {}).get("state") == "running", "the node's worker runs"
            )
            placed = (
                SECOND + 'with context("second"):\n    x = gt.ones(3)\nprint(gt.debug.placement(x).workers, x.tolist())'
            )
            assert said(socket, placed) == ["('left/cpu:0',) [1.0, 1.0, 1.0]"]
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
            assert (process.returncode, out, err) == (0, f"left the daemon at {at}\n", "")


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_only_the_worker_s_own_tensors_are_lost(socket: Path, how: signal.Signals) -> None:
    lost = (
        r"RuntimeError: .*worker cpu:1 left the daemon or was killed, and the tensors it held are lost; the session "
        r"goes on.*"
    )
    with joined(socket) as process, started(HOLDER, GT_SOCKET=str(socket)) as holder:
        assert line_of(holder) == "holds"
        process.send_signal(how)
        out, err = process.communicate(timeout=60)
        ended = "" if how == signal.SIGKILL else f"left the daemon at unix:{socket}\n"
        assert (process.returncode, out, err) == (-how if how == signal.SIGKILL else 0, "", ended)
        eventually(lambda: workers(socket)["cpu:1"]["state"] == "left", "the daemon to notice")
        told, err = holder.communicate("\n", timeout=60)
        *errors, home, after = told.splitlines()
        assert len(errors) == 3, err
        assert all(re.fullmatch(lost, error) for error in errors), errors
        # Tensors of other workers are still there, and new ones are made by those workers.
        assert home == "[7.0, 7.0]"
        assert after == "('cpu:0',) 24.0 [0.0, 1.0, 2.0]"
        assert (holder.returncode, err) == (0, "")
    assert said(socket, "print(gt._gt.session_info()['workers'], gt.ones(3).sum().item())") == ["['cpu:0'] 3.0"]


def test_a_stopped_worker_is_ended_when_its_result_is_awaited(socket: Path) -> None:
    program = """
with context("rows"):
    x = gt.ones(8, 3)
print(x.sum().item(), flush=True)
sys.stdin.readline()
print(told(lambda: x.sum().item()))
"""
    with joined(socket) as process, started(PROLOGUE + program, GT_SOCKET=str(socket)) as session:
        assert line_of(session) == "24.0"
        process.send_signal(signal.SIGSTOP)
        told, err = session.communicate("\n", timeout=120)
        lost = r"worker cpu:1 was ended because it did not answer.*, and the tensors it held are lost"
        assert re.search(lost, told), err
        assert process.wait(timeout=60) == -signal.SIGKILL
        found = workers(socket)["cpu:1"]
        assert (found["state"], found["last_loss"]) == (
            "left",
            "was ended because it did not answer, as if it were stopped",
        )
    eventually(lambda: sessions(socket) == [], "the end of the session")
    with joined(socket):
        assert workers(socket)["cpu:1"]["state"] == "running"


def test_it_has_the_name_that_it_is_given(socket: Path) -> None:
    with joined(socket, "--name", "left-box", as_worker="left-box") as process:
        assert workers(socket)["left-box"]["process"] == process.pid
        program = SECOND + "with context('second'): x = gt.ones(2)\nprint(gt.debug.placement(x).workers)"
        assert said(socket, program) == ["('left-box',)"]
        assert refused("--connect", str(socket), "--name", "left-box") == (
            f"gtd worker: a worker called left-box is there, process {process.pid}: choose another --name, or end that "
            "one first\n"
        )
        for wrong in ("", "cpu:7", "a b", "x" * 17):
            assert f"`{wrong}` is no name of a worker: write 1 to 16" in refused(
                "--connect", str(socket), f"--name={wrong}"
            )
        process.send_signal(signal.SIGINT)
        wait_for_exit(process.pid)
    eventually(lambda: workers(socket)["left-box"]["state"] == "left", "the daemon to notice")
    with joined(socket, "--name", "left-box", as_worker="left-box"):
        assert workers(socket)["left-box"]["state"] == "running"


def test_its_number_is_given_to_the_next_when_no_session_knows_it(socket: Path) -> None:
    knows = "print(gt._gt.session_info()['workers'], flush=True)\nsys.stdin.readline()\n"
    with joined(socket) as first, started(PROLOGUE + knows, GT_SOCKET=str(socket)) as session:
        assert line_of(session) == "['cpu:0', 'cpu:1']"
        first.send_signal(signal.SIGINT)
        wait_for_exit(first.pid)
        eventually(lambda: workers(socket)["cpu:1"]["state"] == "left", "the daemon to notice")
        with joined(socket, as_worker="cpu:2"):
            # The index of this session's second worker differs from the worker's number.
            program = (
                SECOND + "with context('second'): x = gt.ones(2)\nprint(gt.debug.placement(x).workers, x.tolist())"
            )
            assert said(socket, program) == ["('cpu:2',) [1.0, 1.0]"]
            session.communicate("\n", timeout=60)
            eventually(lambda: sessions(socket) == [], "the session's end")
            with joined(socket, as_worker="cpu:1"):
                found = {name: worker["state"] for name, worker in workers(socket).items()}
                assert found == {"cpu:0": "running", "cpu:1": "running", "cpu:2": "running"}


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_it_ends_with_the_daemon(tmp_path: Path, how: signal.Signals) -> None:
    socket = tmp_path / "gtd.sock"
    with daemon(socket) as server, joined(socket) as process:
        server.send_signal(how)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out) == (1, "")
        assert err == f"gtd worker: the daemon at unix:{socket} has ended, or has ended this worker\n"


# Denied access ----------------------------------------------------------------------------------------------------


def refused(*arguments: str) -> str:
    """Runs `python -m gt.worker`, which has to fail, and returns its errors."""
    done = subprocess.run(
        [gtd(), "worker", *arguments], env=environment(), capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode != 0, done.stdout) == (True, "")
    return done.stderr


def test_an_invalid_start_prints_one_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nowhere = tmp_path / "gtd.sock"
    assert re.fullmatch(
        rf"gtd worker: cannot connect to the daemon at {nowhere}: .+\n", refused("--connect", f"unix:{nowhere}")
    )
    assert refused("--connect", "private").startswith("gtd worker: a private daemon belongs to a program, and takes no")
    assert "is no address of a daemon" in refused("--connect", "nothing")
    assert "'0' for '--threads" in refused("--connect", str(nowhere), "--threads", "0")
    at = ("--connect", str(nowhere))
    assert "`cuda` is not one device: write cpu, or cuda:0 with the number" in refused(*at, "--device", "cuda")
    assert "`tpu` is no kind of worker" in refused(*at, "--device", "tpu")
    if not Path("/dev/nvidiactl").exists():
        assert refused(*at, "--device", "cuda:0").startswith("gtd worker: a GPU is asked for: NVIDIA's driver")
    for arguments, why in [
        (["--host", "localhost"], "--host needs the port: -p PORT"),
        (["--connect", str(nowhere), "-p", "1"], "leave --host and --port out"),
    ]:
        with pytest.raises(SystemExit):
            gt.worker.main(arguments)
        assert why in capsys.readouterr().err


@pytest.mark.skipif(os.getuid() != 0, reason="takes another user's process")
def test_only_administrators_register_workers() -> None:
    socket = f"@gt-worker-{os.getpid()}"
    with daemon(socket):
        done = subprocess.run(
            [gtd(), "worker", f"--connect=unix:{socket}"],
            env=environment(),
            user=65534,
            group=65534,
            extra_groups=[],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "gtd worker: a worker computes on everybody's tensors: only root, the daemon's user and "
        "members of the group gt-admin may register one\n"
    )
