"""The cost of observation: the dispatcher beside one without it, an observer, the instruction log, and a full trace.

The daemon without observation is built by `make target/unobserved/gtd`; `GT_UNOBSERVED_DAEMON` names another. Without
it, the column "bare" of the first row stays empty.
"""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benches.harness import Row, Target
from benches.sharing import START_DEADLINE_S, Clients, clients, daemon

OPS = 200_000
# Nobody observes: at most this many times the processor time of a dispatcher that writes no tape.
UNOBSERVED = 1.03
# `gtctl top` reads the tape: at most this many times the time without it.
WATCHED = 1.05
# The instruction log writes at least 500,000 lines a second.
LINE_MAX_S = 2e-6
TRACE_S = 2.0
UNOBSERVED_DAEMON = os.environ.get("GT_UNOBSERVED_DAEMON", "target/unobserved/gtd")

# For every line it is sent, this client adds so many times, and prints the dispatcher's processor time an addition.
CHAIN = """
import sys
import gt
x = gt.ones(1)
pid = gt._gt.session_info()["daemon_pid"]
def spent_s():
    gt.synchronize()
    with open(f"/proc/{pid}/task/{pid}/schedstat") as file:
        return int(file.read().split()[0]) * 1e-9
def chain(count):
    y = x
    for _ in range(count):
        y = y + x
chain(1000)
print("ready", flush=True)
for line in sys.stdin:
    count = int(line)
    before = spent_s()
    chain(count)
    print((spent_s() - before) / count, flush=True)
"""


def _dispatcher_s(some: Clients) -> float:
    some.tell(str(OPS))
    return some.answers()[0]


def _chain_s(some: Clients) -> float:
    """Returns the wall time of an addition."""
    begun = time.perf_counter()
    some.tell(str(OPS))
    some.answers()
    return (time.perf_counter() - begun) / OPS


def _gtctl(socket: Path, *arguments: str) -> list[str]:
    return [str(Path(sys.executable).with_name("gtctl")), "--socket", str(socket), *arguments]


@contextmanager
def _top(socket: Path) -> Iterator[None]:
    """Runs `gtctl top` in a terminal that somebody looks at."""
    terminal, inner = pty.openpty()
    process = subprocess.Popen(_gtctl(socket, "top"), stdin=inner, stdout=inner, stderr=inner)
    os.close(inner)

    def look() -> None:
        try:
            while os.read(terminal, 1 << 16):
                pass
        except OSError:
            pass  # The terminal is closed.

    looker = threading.Thread(target=look, daemon=True)
    looker.start()
    try:
        yield
    finally:
        process.terminate()
        process.wait(START_DEADLINE_S)
        looker.join()
        os.close(terminal)


def _line_s(some: Clients, log: Path) -> float:
    """Returns the time for a line of the log: of a chain of additions, until its last line is written."""
    before, begun = log.stat().st_size, time.perf_counter()
    some.tell(str(OPS))
    some.answers()
    size = before
    while (now := log.stat().st_size) != size or now == before:
        size, written = now, time.perf_counter()
        time.sleep(0.01)
    with log.open("rb") as file:
        file.seek(before)
        lines = sum(1 for line in file if b" | " in line)
    return (written - begun) / lines


def _lost_percent(socket: Path, some: Clients) -> float:
    """Returns the part of the events that a trace of two seconds lost while a program added as fast as it can."""
    with tempfile.TemporaryDirectory(prefix="gt-bench-") as folder:
        command = _gtctl(socket, "--json", "trace", "-s", str(TRACE_S), "-o", folder)
        trace = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        while trace.poll() is None:
            some.tell(str(OPS))
            some.answers()
        assert trace.stdout is not None
        summary = json.load(trace.stdout)
    return 100 * summary["lost"] / (summary["lost"] + summary["events"])


def rows() -> Iterator[Row]:
    """Yields the rows of the dispatcher's time, unobserved and observed, of the log's lines, and of a trace."""
    with ExitStack() as stack:
        socket, _ = stack.enter_context(daemon())
        some = stack.enter_context(clients(socket, [CHAIN]))
        contenders = {"GT": lambda: _dispatcher_s(some)}
        if Path(UNOBSERVED_DAEMON).exists():
            bare_socket, _ = stack.enter_context(daemon(program=UNOBSERVED_DAEMON))
            bare = stack.enter_context(clients(bare_socket, [CHAIN]))
            contenders["bare"] = lambda: _dispatcher_s(bare)
        what = "dispatcher, an addition, nobody observes; bare: observation compiled out"
        yield Row(what, contenders, (Target(UNOBSERVED, "bare"),), rounds=15)
    with daemon() as (socket, _), daemon() as (other, _):
        with clients(socket, [CHAIN]) as some, clients(other, [CHAIN]) as bare, _top(socket):
            yield Row(
                "dispatcher, an addition, gtctl top looks on; bare: nobody does",
                {"GT": lambda: _dispatcher_s(some), "bare": lambda: _dispatcher_s(bare)},
                (Target(WATCHED, "bare"),),
                rounds=15,
            )
        with clients(socket, [CHAIN]) as some:
            yield Row(
                f"events that a trace of {TRACE_S:g} s of additions lost, percent",
                {"GT": lambda: _lost_percent(socket, some)},
                unit="%",
                rounds=3,
            )
    with tempfile.TemporaryDirectory(prefix="gt-bench-") as folder:
        log = Path(folder) / "ops.log"
        with (
            daemon(configuration=f"instruction_log: {log}\ninstruction_log_bytes_max: 8G\n") as (socket, _),
            daemon() as (other, _),
            clients(socket, [CHAIN]) as some,
            clients(other, [CHAIN]) as bare,
        ):
            yield Row(
                "a line of the instruction log", {"GT": lambda: _line_s(some, log)}, (Target(LINE_MAX_S),), rounds=5
            )
            yield Row(
                "an addition with the instruction log; bare: without",
                {"GT": lambda: _chain_s(some), "bare": lambda: _chain_s(bare)},
                rounds=7,
            )
