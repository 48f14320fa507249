"""The processor time and memory of a daemon while a hundred connected clients are idle."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benches.harness import Row, Target

CLIENTS = 100
MEMORY_BYTES_MAX = 50e6
# The limit for occasional timer ticks: a thousandth of a core.
CPU_PERCENT_MAX = 0.1
WATCH_S = 3.0
START_DEADLINE_S = 30.0

# One process forks a hundred children, since as many interpreters would each import NumPy. Each child connects alone.
CLIENT_PROGRAM = f"""
import os, sys
import gt
for _ in range({CLIENTS}):
    if os.fork() == 0:
        assert gt.ones(1).item() == 1.0
        os.write(1, b"+")
        sys.stdin.buffer.read()
        os._exit(0)
sys.stdin.buffer.read()
for _ in range({CLIENTS}):
    os.wait()
"""


@contextmanager
def _daemon_with_clients() -> Iterator[int]:
    """Runs a daemon with a hundred connected clients, and yields its process id."""
    with tempfile.TemporaryDirectory(prefix="gt-bench-") as folder:
        socket = Path(folder) / "gtd.sock"
        environment = {**os.environ, "GT_SOCKET": str(socket)}
        gtd = Path(sys.executable).with_name("gtd")
        daemon = subprocess.Popen([gtd, "--socket", socket, "--workers", "cpu:1"])
        deadline = time.monotonic() + START_DEADLINE_S
        while not socket.exists():
            assert daemon.poll() is None, f"gtd ended with {daemon.returncode}"
            assert time.monotonic() < deadline, "gtd made no socket"
            time.sleep(0.01)
        clients = subprocess.Popen(
            [sys.executable, "-c", CLIENT_PROGRAM], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert clients.stdin is not None
        assert clients.stdout is not None
        try:
            assert clients.stdout.read(CLIENTS) == b"+" * CLIENTS, "not every client could connect"
            yield daemon.pid
        finally:
            clients.stdin.close()
            clients.wait(START_DEADLINE_S)
            daemon.terminate()
            daemon.wait(START_DEADLINE_S)


def _cpu_s(pid: int) -> float:
    """Returns the processor time of all threads of a process, in seconds, to the nanosecond."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


def _memory_bytes(pid: int) -> float:
    """Returns the private memory of a process, without shared segments such as the clients' rings and arenas."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return 1024.0 * sum(int(status[name].split()[0]) for name in ("RssAnon", "RssFile"))


def rows() -> Iterator[Row]:
    """Yields the rows of processor time and memory."""
    with _daemon_with_clients() as pid:

        def cpu_percent() -> float:
            before = _cpu_s(pid)
            time.sleep(WATCH_S)
            return 100.0 * (_cpu_s(pid) - before) / WATCH_S

        yield Row(
            f"gtd with {CLIENTS} idle clients: processor",
            {"GT": cpu_percent},
            (Target(CPU_PERCENT_MAX),),
            unit="%",
            rounds=3,
        )
        yield Row(
            f"gtd with {CLIENTS} idle clients: memory beyond rings and arenas",
            {"GT": lambda: _memory_bytes(pid)},
            (Target(MEMORY_BYTES_MAX),),
            unit="B",
            rounds=3,
        )
