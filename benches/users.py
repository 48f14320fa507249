"""Several users of one daemon: shares by weight, and the wait for a worker after the end of a step that never ends.

Only root can start programs of several users.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from benches.harness import Row, Target
from benches.sharing import START_DEADLINE_S, daemon, gtd

# Ids that no machine gives to people.
USERS = (61_001, 61_002, 61_003, 61_004)
WEIGHTS = (1, 2, 3, 4)
# Users' shares of the devices' time differ from their weights' by at most this, percent of the time.
DIFFERENCE_PERCENT_MAX = 2.0
# The time over which shares are measured. The rounds follow each other without a pause: twenty are minutes.
WINDOW_S = 8.0
WINDOWS = 18
# The first result of another user comes at most this long after the end of a step that would never have ended.
FREED_MAX_S = 0.1
FREED_ROUNDS = 10
# The time for the other user's question to reach the daemon.
ASKED_S = 0.02
POLL_S = 0.002

# The user may not be able to read this Python, so the process imports what it needs before it becomes the user.
AS_USER = """
import os, signal, sys, time
import numpy, gt
gt.tensor
os.setgroups([])
os.setgid(UID)
os.setuid(UID)
signal.signal(signal.SIGINT, signal.default_int_handler)
"""

# A program that computes until it is killed. `last` keeps one result, so that the others are freed.
WORKS = (
    AS_USER
    + """
a, b = gt.rand(256, 256), gt.rand(256, 256)
print("ready", flush=True)
while True:
    last = a
    for _ in range(8):
        last = (last @ b).tanh()
    last = last.sum()
"""
)
# The same, but it waits for each result before it issues the next steps.
WAITS = WORKS + "    last.item()\n"

# A program that computes for ever, or only has a session.
ENDLESS = (
    AS_USER
    + """
gt.ones(1).item()
print(gt._gt.session_info()["session_id"], flush=True)
if sys.stdin.readline() == "compute\\n":
    gt.ones(1, 1).expand(10**6, 10**6).sum().item()
sys.stdin.readline()
"""
)

# A program that says when its results came. Each is a product of some milliseconds: a small step would run at the
# preemption points of the other user's step, and not wait for its end.
ASKS = (
    AS_USER
    + """
x = gt.rand(1024, 1024)
(x @ x).sum().item()
print("ready", flush=True)
for line in sys.stdin:
    (x @ x).sum().item()
    print(time.monotonic(), flush=True)
"""
)


class Program:
    """A user's program, with which lines are exchanged."""

    def __init__(self, socket: Path, program: str, uid: int) -> None:
        """Starts the program."""
        self.process = subprocess.Popen(
            [sys.executable, "-c", program.replace("UID", str(uid))],
            env={**os.environ, "GT_SOCKET": str(socket)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            bufsize=1,
        )

    def line(self) -> str:
        """Returns the next line that the program prints."""
        out: IO[str] | None = self.process.stdout
        assert out is not None
        line = out.readline().strip()
        assert line, "a program has ended"
        return line

    def say(self, line: str) -> None:
        """Sends the program a line."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")


@contextmanager
def running(socket: Path, program: str, uid: int) -> Iterator[Program]:
    """Runs a user's program, and kills it afterwards."""
    started = Program(socket, program, uid)
    try:
        yield started
    finally:
        started.process.kill()
        started.process.communicate()


def _ctl(socket: Path, *words: str) -> str:
    """Runs `gtctl`, and returns what it prints."""
    command = [str(Path(gtd()).with_name("gtctl")), "--socket", str(socket), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _device_s(socket: Path) -> dict[int, float]:
    """Returns the seconds of the devices' time that each user has had."""
    return {session["uid"]: session["device_s"] for session in json.loads(_ctl(socket, "sessions", "--json"))}


def _shares(what: str, programs: list[str]) -> Iterator[Row]:
    """Yields the row of the shares of four users with weights, of which each runs one of the programs."""
    weights = ", ".join(f"{uid}: {{weight: {weight}}}" for uid, weight in zip(USERS, WEIGHTS, strict=True))
    with daemon(configuration=f"users: {{{weights}}}\n") as (socket, _), ExitStack() as stack:
        users = [
            stack.enter_context(running(socket, program, uid)) for program, uid in zip(programs, USERS, strict=True)
        ]
        for user in users:
            user.line()
        before = _device_s(socket)

        def difference() -> float:
            nonlocal before
            time.sleep(WINDOW_S)
            now = _device_s(socket)
            had = [now[uid] - before[uid] for uid in USERS]
            before = now
            shares = [
                100 * (mine / sum(had) - weight / sum(WEIGHTS)) for mine, weight in zip(had, WEIGHTS, strict=True)
            ]
            return max(abs(share) for share in shares)

        yield from _with_largest(
            f"difference of four users' shares to 10, 20, 30 and 40 %: {what}",
            {"GT": difference},
            Target(DIFFERENCE_PERCENT_MAX),
            unit="%",
            rounds=WINDOWS,
        )


def _with_largest(
    what: str, contenders: dict[str, Callable[[], float]], target: Target, unit: str, rounds: int
) -> Iterator[Row]:
    """Yields a row, and one with the largest measurements of its rounds."""
    row = Row(what, contenders, (target,), unit, rounds)
    yield row
    largest = {name: lambda name=name: max(row.samples[name]) for name in contenders}
    yield Row("… the largest of these", largest, (target,), unit, rounds=1)


def _kill(socket: Path, session: str, _: int) -> None:
    _ctl(socket, "kill", session)


def _interrupt(_: Path, __: str, pid: int) -> None:
    os.kill(pid, signal.SIGINT)


def _kill_program(_: Path, __: str, pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def _freed(socket: Path, asks: Program, end: Callable[[Path, str, int], None], computes: bool) -> float:
    """Returns how long after the end of a user's step, or of a session without one, another user's product came."""
    with running(socket, ENDLESS, USERS[0]) as endless:
        session = endless.line()
        if computes:
            endless.say("compute")
            deadline = time.monotonic() + START_DEADLINE_S
            while "sum" not in json.dumps(json.loads(_ctl(socket, "status", "--json"))["workers"][0]["running"]):
                assert time.monotonic() < deadline, "the step does not run"
                time.sleep(POLL_S)
            asks.say("go")
            time.sleep(ASKED_S)
            begun = time.monotonic()
        else:
            begun = time.monotonic()
            asks.say("go")
        end(socket, session, endless.process.pid)
        return float(asks.line()) - begun


def _may_start_users() -> bool:
    if os.geteuid() != 0:
        print("only root can start programs of several users: these rows are left out", file=sys.stderr)
    return os.geteuid() == 0


def share_rows() -> Iterator[Row]:
    """Yields the rows of shares by weight."""
    if _may_start_users():
        yield from _shares("programs that wait for each result", [WAITS] * len(USERS))
        yield from _shares("programs that run ahead", [WORKS] * len(USERS))
        yield from _shares("both kinds", [WAITS, WORKS] * (len(USERS) // 2))


def freed_rows() -> Iterator[Row]:
    """Yields the rows of the wait for a worker that a step without an end had."""
    if not _may_start_users():
        return
    ways = {"gtctl kill": _kill, "Ctrl-C": _interrupt, "SIGKILL of the program": _kill_program}
    for workers, kind in (("cpu:1", "a thread"), ("proc-cpu:1", "a process")):
        with daemon(workers) as (socket, _), running(socket, ASKS, USERS[1]) as asks:
            asks.line()
            for way, end in ways.items():
                yield from _with_largest(
                    f"{way} of an endless step on {kind}, until another's product of 1024²; bare: without the step",
                    {
                        "GT": lambda asks=asks, end=end, socket=socket: _freed(socket, asks, end, computes=True),
                        "bare": lambda asks=asks, end=end, socket=socket: _freed(socket, asks, end, computes=False),
                    },
                    Target(FREED_MAX_S),
                    unit="s",
                    rounds=FREED_ROUNDS,
                )
