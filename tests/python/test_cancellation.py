"""Steps that never end: killed sessions and interrupted programs free the worker, and estimates refuse such steps.

The steps here take minutes, far longer than the tests wait for their end.
"""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from support import daemon, eventually, gtd, line_of, started, state

# A thread of the daemon, and a process.
WORKERS = ["cpu:1", "proc-cpu:1"]

# A program that waits for a sum of 10^12 elements, of which one is stored.
ENDLESS = """
import gt
gt.connect({address!r})
print(gt._gt.session_info()["session_id"], flush=True)
print(gt.ones(1, 1).expand(10**6, 10**6).sum().item())
"""

BYSTANDER = """
import gt
gt.connect({address!r})
print((gt.ones(3) + 1).sum().item(), flush=True)
"""

# Tensors from before the interruption stay; the queued results are errors, and so is what is computed from them.
INTERRUPTED = """
import gt
gt.connect({address!r})
before = gt.arange(4.0)
written = gt.arange(100_000.0)
written[:2] += 1
written.sum().item()
print(before.sum().item(), flush=True)
long = gt.ones(1, 1).expand(10**6, 10**6).sum()
later = before + long
written[2:4] += long
written += later.sum()
try:
    print("waits", flush=True)
    later.sum().item()
except KeyboardInterrupt:
    print("interrupted", flush=True)
print((before + 1).sum().item(), flush=True)
print(written[:5].tolist(), written[-1].item(), flush=True)
written[0] += 1
print(written[:2].tolist(), flush=True)
for lost in (long, later, later * 2):
    try:
        print(lost.tolist())
    except RuntimeError as error:
        print(error, flush=True)
"""

REFUSED = """
import gt
gt.connect({address!r})
before = gt.arange(4.0)
long = gt.ones(1, 1).expand(10**7, 10**7).sum()
after = before + 1
try:
    (long + 1).item()
except RuntimeError as error:
    print(error, flush=True)
print(after.sum().item(), flush=True)
"""


class Daemon:
    """A daemon with one worker."""

    def __init__(self, socket: Path) -> None:
        self.address = f"unix:{socket}"
        self._socket = socket

    def ctl(self, *words: object) -> str:
        """Runs `gtctl`, which has to succeed, and returns its output."""
        command = [gtd().with_name("gtctl"), "--socket", self._socket, *words]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    @property
    def worker(self) -> dict:
        """The worker in the status document."""
        return json.loads(self.ctl("status", "--json"))["workers"][0]

    def runs(self, session: int | None = None) -> dict | None:
        """Returns what the worker runs, if it is a sum, of the session if one is named."""
        running = self.worker["running"]
        known = running and running["step"] == "sum" and session in (None, running["session"])
        return running if known else None


@contextmanager
def serving(tmp_path: Path, workers: str) -> Iterator[Daemon]:
    socket = tmp_path / "gtd.sock"
    with daemon(socket, "--workers", workers):
        yield Daemon(socket)


@contextmanager
def stuck(service: Daemon, program: str = ENDLESS) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Starts a program and waits until the worker runs its step. Yields the program and its session."""
    with started(program.format(address=service.address)) as process:
        session = int(line_of(process))
        eventually(lambda: service.worker["running"], "the worker runs the step")
        yield process, session


@pytest.mark.parametrize("workers", WORKERS)
def test_a_killed_session_frees_the_worker(tmp_path: Path, workers: str) -> None:
    with serving(tmp_path, workers) as service, ExitStack() as programs:
        process, session = programs.enter_context(stuck(service))
        assert service.runs(session)
        assert f"sum of session {session} for" in service.ctl("status")
        bystander = programs.enter_context(started(BYSTANDER.format(address=service.address)))
        service.ctl("kill", session)
        out, err = bystander.communicate(timeout=60)
        assert out.strip() == "6.0", err
        assert "gtctl kill" in process.communicate(timeout=60)[1]
        assert service.worker["losses"] == 0, "the worker's process goes on"


@pytest.mark.parametrize("workers", WORKERS)
def test_a_killed_program_frees_the_worker(tmp_path: Path, workers: str) -> None:
    with serving(tmp_path, workers) as service, ExitStack() as programs:
        process, session = programs.enter_context(stuck(service))
        process.kill()
        eventually(lambda: not service.runs(session), "the step ends")


@pytest.mark.parametrize("workers", WORKERS)
def test_an_interrupted_program_goes_on(tmp_path: Path, workers: str) -> None:
    with serving(tmp_path, workers) as service, started(INTERRUPTED.format(address=service.address)) as process:
        assert [line_of(process), line_of(process)] == ["6.0", "waits"]
        eventually(service.runs, "the worker runs the step")
        eventually(lambda: state(process.pid) == "S", "the program waits")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        assert err == ""
        interrupted, intact, old, written, *told = out.splitlines()
        errors, lines = told[::2], told[1::2]
        assert all(line.startswith("issued at: <string>:") for line in lines)
        assert (interrupted, intact) == ("interrupted", "10.0")
        # The tensor that was to be written in place has its old elements.
        assert old == "[1.0, 2.0, 2.0, 3.0, 4.0] 99999.0"
        assert written == "[2.0, 2.0]"
        assert len(errors) == 3
        assert errors[0].startswith("sum (instruction #")
        for error in errors:
            # The daemon may refuse what waits for the sum, and name that.
            assert error.startswith(("sum (instruction #", "add (instruction #")), error
            assert "was interrupted (Ctrl-C) before it was done" in error


@pytest.mark.parametrize("workers", WORKERS)
def test_a_step_that_would_take_too_long_is_refused(tmp_path: Path, workers: str) -> None:
    with serving(tmp_path, workers) as service:
        with started(REFUSED.format(address=service.address)) as process:
            error, line, intact = process.communicate(timeout=60)[0].splitlines()
        assert line.startswith("issued at: <string>:")
        assert "sum (instruction #" in error
        assert "no step of this user may take longer than 60.0 min" in error
        assert intact == "10.0"
        service.ctl("limits", "set", "--max-step", "0")
        with stuck(service, ENDLESS.replace("10**6", "10**7")) as (_, session):
            service.ctl("kill", session)
            eventually(lambda: not service.runs(session), "the step ends")


def test_a_stopped_worker_is_replaced_while_a_kill_waits(tmp_path: Path) -> None:
    with serving(tmp_path, "proc-cpu:1") as service, stuck(service) as (_, session):
        pid = service.worker["process"]
        subprocess.run(["kill", "-STOP", str(pid)], check=True)
        service.ctl("kill", session)
        eventually(lambda: service.worker["process"] not in (None, pid), "another process", deadline_s=120)
        with started(BYSTANDER.format(address=service.address)) as bystander:
            assert line_of(bystander) == "6.0"
