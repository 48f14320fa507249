"""What becomes of many clients at one daemon: their throughput together, their shares, and who waits for whom."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from benches.harness import Row, Target

WINDOW_S = 3.0
START_DEADLINE_S = 60.0
# Together the clients do at least this part of what one does alone.
THROUGHPUT_MIN = 0.95
# What is missing to 1 in Jain's index of the shares of clients that all want more, percent.
UNFAIRNESS_PERCENT_MAX = 1.0
# A round trip beside clients that flood takes at most so much longer, or at most so long.
LATENCY_FACTOR = 5
LATENCY_MAX_S = 2e-3
FLOODS = 8
# The dispatcher takes at least two million instructions a second.
INSTRUCTION_MAX_S = 0.5e-6
# `chain` frees each result: seven to an instruction.
INSTRUCTIONS_PER_ADD = 8 / 7
# What timer ticks may cost while nobody asks for anything, percent of a core.
IDLE_PERCENT_MAX = 0.1
PROBES = 1000
# So long after they began, clients that flood have filled their rings.
FLOODED_S = 0.5

# A client computes from "go" on until the time is over and says how much it did: once every line it is sent.
CLIENT = """
import sys, time
import gt
a, b = gt.rand(SIZE, SIZE), gt.rand(SIZE, SIZE)
def step():
    c = a
    for _ in range(8):
        c = (c @ b).tanh()
    c.sum().item()
step()
print("ready", flush=True)
for line in sys.stdin:
    end, count = time.monotonic() + float(line), 0
    while time.monotonic() < end:
        step()
        count += 1
    print(count, flush=True)
"""

# A client that never waits for what it asks for, unless the daemon makes it.
FLOOD = """
import sys, time
import gt
a, b = gt.rand(SIZE, SIZE), gt.rand(SIZE, SIZE)
gt.synchronize()
print("ready", flush=True)
for line in sys.stdin:
    end = time.monotonic() + float(line)
    while time.monotonic() < end:
        for _ in range(16):
            c = a @ b
    gt.synchronize()
    print(0, flush=True)
"""

# Says the 99th percentile of the times of many round trips.
PROBE = f"""
import sys, time
import gt
x = gt.ones(1)
(x + x).item()
print("ready", flush=True)
for line in sys.stdin:
    times = []
    for _ in range({PROBES}):
        start = time.perf_counter()
        (x + x).item()
        times.append(time.perf_counter() - start)
        time.sleep(1e-3)
    print(sorted(times)[-{PROBES} // 100], flush=True)
"""

# The same of a byte to another process and back, through pipes: how long the kernel lets both wait for a processor.
PIPES = f"""
import os, sys, time
there, back = os.pipe(), os.pipe()
if os.fork() == 0:
    os.close(there[1])
    while os.read(there[0], 1):
        os.write(back[1], b"x")
    os._exit(0)
os.close(there[0])
print("ready", flush=True)
for line in sys.stdin:
    times = []
    for _ in range({PROBES}):
        start = time.perf_counter()
        os.write(there[1], b"x")
        os.read(back[0], 1)
        times.append(time.perf_counter() - start)
        time.sleep(1e-3)
    print(sorted(times)[-{PROBES} // 100], flush=True)
"""


class Clients:
    """Processes that do what they are told at the same time."""

    def __init__(self, socket: Path, programs: list[str]) -> None:
        """Starts one process for each program."""
        environment = {**os.environ, "GT_SOCKET": str(socket)}
        self.processes = [
            subprocess.Popen(
                [sys.executable, "-c", program],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                bufsize=1,
            )
            for program in programs
        ]
        for process in self.processes:
            assert self._output(process).readline() == "ready\n", "a client did not start"

    @staticmethod
    def _output(process: subprocess.Popen[str]) -> IO[str]:
        assert process.stdout is not None
        return process.stdout

    def tell(self, line: str) -> None:
        """Lets all of them begin."""
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.write(line + "\n")

    def answers(self) -> list[float]:
        """What each says when it is done."""
        return [float(self._output(process).readline()) for process in self.processes]

    def close(self) -> None:
        """Lets them end."""
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in self.processes:
            process.wait(START_DEADLINE_S)


def _gtd() -> str:
    """The daemon's program, which every row measures."""
    return os.environ.get("GT_DAEMON") or str(Path(sys.executable).with_name("gtd"))


@contextmanager
def daemon() -> Iterator[tuple[Path, int]]:
    """The socket and the process of a daemon with one worker."""
    with tempfile.TemporaryDirectory(prefix="gt-bench-") as folder:
        socket = Path(folder) / "gtd.sock"
        process = subprocess.Popen([_gtd(), "--socket", socket, "--workers", "cpu:1"])
        deadline = time.monotonic() + START_DEADLINE_S
        while not socket.exists():
            assert process.poll() is None, f"gtd ended with {process.returncode}"
            assert time.monotonic() < deadline, "gtd made no socket"
            time.sleep(0.01)
        try:
            yield socket, process.pid
        finally:
            process.terminate()
            process.wait(START_DEADLINE_S)


@contextmanager
def clients(socket: Path, programs: list[str]) -> Iterator[Clients]:
    """Client processes, which end afterwards."""
    started = Clients(socket, programs)
    try:
        yield started
    finally:
        started.close()


def _step_s(some: Clients) -> float:
    """The time of a step of whichever of the clients."""
    some.tell(str(WINDOW_S))
    return WINDOW_S / sum(some.answers())


def unfairness_percent(done: list[float]) -> float:
    """What is missing to 1 in Jain's index of how much each did."""
    return 100 * (1 - sum(done) ** 2 / (len(done) * sum(amount**2 for amount in done)))


def _numbers(example: str, pattern: str) -> list[float]:
    """What an example of the daemon's prints where the groups of the pattern are. Cargo builds it first."""
    command = ["cargo", "run", "--quiet", "--release", "--package", "gtd", "--example", example]
    environment = {**os.environ, "GT_DAEMON": _gtd(), "GT_WORKERS": "cpu:1"}
    printed = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, env=environment, cwd=Path(__file__).parent
    ).stdout
    found = re.findall(pattern, printed)
    assert found, f"{example} printed no numbers: {printed!r}"
    return [float(number) for match in found for number in (match if isinstance(match, tuple) else (match,))]


def _instruction_s() -> float:
    """The least time of an instruction from one client that sends as fast as it can."""
    return min(_numbers("chain", r"chained adds: (\d+) ns each")) * 1e-9 / INSTRUCTIONS_PER_ADD


def rows() -> Iterator[Row]:
    """Throughput, fairness, latency; what an instruction costs, and a thousand sessions."""
    yield Row("an instruction of the least work", {"GT": _instruction_s}, (Target(INSTRUCTION_MAX_S),), rounds=3)
    crowd = _numbers("crowd", r"idle: ([\d.]+) % of a core, (\d+) bytes")
    yield Row("gtd with 1000 idle sessions: processor", {"GT": lambda: crowd[0]}, (Target(IDLE_PERCENT_MAX),), "%", 3)
    yield Row(
        "gtd with 1000 idle sessions: memory of all of them, rings included",
        {"GT": lambda: 1000 * crowd[1]},
        unit="B",
        rounds=3,
    )
    program = CLIENT.replace("SIZE", "256")
    for count in (2, 8, 32):
        with daemon() as (socket, _), clients(socket, [program]) as one, clients(socket, [program] * count) as many:
            yield Row(
                f"a step with {count} clients at work; bare: with one",
                {"GT": lambda many=many: _step_s(many), "bare": lambda one=one: _step_s(one)},
                (Target(THROUGHPUT_MIN, "bare", speed=True),),
                rounds=7,
            )
    # Half of them do much at a time, half little.
    uneven = [CLIENT.replace("SIZE", "256"), CLIENT.replace("SIZE", "64")] * (FLOODS // 2)
    with daemon() as (socket, _), clients(socket, uneven) as many:

        def unfairness() -> float:
            many.tell(str(WINDOW_S))
            done = many.answers()
            # Each kind by itself: what the one does in its time is not what the other does.
            return max(unfairness_percent(done[::2]), unfairness_percent(done[1::2]))

        yield Row(
            f"1 - Jain's index of what {FLOODS} equal clients get",
            {"GT": unfairness},
            (Target(UNFAIRNESS_PERCENT_MAX),),
            unit="%",
            rounds=3,
        )
    with daemon() as (socket, _), clients(socket, [PROBE]) as probe, clients(socket, [PIPES]) as pipes:
        probe.tell("go")
        idle_s = probe.answers()[0]
        with clients(socket, [FLOOD.replace("SIZE", "128")] * FLOODS) as floods:

            def beside_floods(one: Clients) -> float:
                floods.tell(str(WINDOW_S))
                time.sleep(FLOODED_S)
                one.tell("go")
                answer = one.answers()[0]
                floods.answers()
                return answer

            yield Row(
                f"99th percentile of a round trip beside {FLOODS} clients that flood; bare: by pipes, beside the same",
                {"GT": lambda: beside_floods(probe), "bare": lambda: beside_floods(pipes)},
                (Target(max(LATENCY_MAX_S, LATENCY_FACTOR * idle_s)),),
                rounds=5,
            )
