"""Many clients of one daemon: their total throughput, their fair shares, and the latency of a light client."""

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

from benches.harness import Mode, Row, Target

WINDOW_S = 3.0
WINDOW_QUICK_S = 1.0
START_DEADLINE_S = 60.0
# The least total throughput of many clients, as a fraction of the throughput of one alone.
THROUGHPUT_MIN = 0.95
# The unfairness of clients with a backlog: 1 minus Jain's index of their shares (Jain et al. 1984), percent.
UNFAIRNESS_PERCENT_MAX = 1.0
# The latency of a round trip beside flooding clients is at most this many times that of an idle daemon, or this long.
LATENCY_FACTOR = 5
LATENCY_MAX_S = 2e-3
FLOODS = 8
# The dispatcher processes at least two million instructions per second.
INSTRUCTION_MAX_S = 0.5e-6
# The example `chain` frees each result; a free instruction holds seven.
INSTRUCTIONS_PER_ADD = 8 / 7
# The limit for timer ticks while no client asks for anything, percent of a core.
IDLE_PERCENT_MAX = 0.1
PROBES = 1000
PROBES_QUICK = 300
# Beside programs with steps of tens of milliseconds, 99 of 100 round trips take at most two steps of 5 ms.
BESIDE_HEAVY_MAX_S = 10e-3
HEAVY_SIZE = 1024
HEAVY_PROGRAMS = 2
HEAVY_PROBES = 300
# The time after which flooding clients have filled their rings, and that of a round trip beside them with its pause.
FLOODED_S = 0.5
PROBE_S = 2.5e-3

# For every line it is sent, this client computes for that many seconds, and prints how many steps it did.
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

# A flooding client: it issues work without ever waiting for a result, except for back-pressure.
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

# For every line it is sent, prints the 99th percentile of the times of that many round trips.
PROBE = """
import sys, time
import gt
x = gt.ones(1)
(x + x).item()
print("ready", flush=True)
for line in sys.stdin:
    times, count = [], int(line)
    for _ in range(count):
        start = time.perf_counter()
        (x + x).item()
        times.append(time.perf_counter() - start)
        time.sleep(1e-3)
    print(sorted(times)[-count // 100], flush=True)
"""

# The same for a byte sent to another process and back through pipes: the latency of the kernel's scheduler.
PIPES = """
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
    times, count = [], int(line)
    for _ in range(count):
        start = time.perf_counter()
        os.write(there[1], b"x")
        os.read(back[0], 1)
        times.append(time.perf_counter() - start)
        time.sleep(1e-3)
    print(sorted(times)[-count // 100], flush=True)
"""


# For every line it is sent, this client multiplies matrices for that many seconds, waiting for each product, and prints
# the median time of a step.
HEAVY = """
import sys, time
import gt
a, b = gt.rand(SIZE, SIZE), gt.rand(SIZE, SIZE)
def step():
    begun = time.perf_counter()
    (a @ b).sum().item()
    return time.perf_counter() - begun
step()
print("ready", flush=True)
for line in sys.stdin:
    end, times = time.monotonic() + float(line), []
    while time.monotonic() < end:
        times.append(step())
    print(sorted(times)[len(times) // 2], flush=True)
"""

# Prints the median, the 99th percentile or the longest of the times of many small round trips, as each line asks.
TRIPS = f"""
import sys, time
import gt
a = gt.arange(10)
(a + 1).numpy()
print("ready", flush=True)
for line in sys.stdin:
    times = []
    for _ in range({HEAVY_PROBES}):
        begun = time.perf_counter()
        (a + 1).numpy()
        times.append(time.perf_counter() - begun)
        time.sleep(3e-3)
    print(sorted(times)[int(float(line) * (len(times) - 1))], flush=True)
"""


class Clients:
    """Client processes that start each round at the same time."""

    def __init__(self, socket: Path, programs: list[str]) -> None:
        """Starts a process for each program, and waits until all are ready."""
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
        """Sends a line to all processes, which starts a round."""
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.write(line + "\n")

    def answers(self) -> list[float]:
        """Waits for the round's end, and returns the number that each process prints."""
        return [float(self._output(process).readline()) for process in self.processes]

    def close(self) -> None:
        """Ends all processes."""
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in self.processes:
            process.wait(START_DEADLINE_S)


def gtd() -> str:
    """Returns the path of the daemon's program."""
    return os.environ.get("GT_DAEMON") or str(Path(sys.executable).with_name("gtd"))


@contextmanager
def daemon(workers: str = "cpu:1", configuration: str = "", program: str | None = None) -> Iterator[tuple[Path, int]]:
    """Runs a daemon, and yields its socket, to which every user may connect, and its process."""
    with tempfile.TemporaryDirectory(prefix="gt-bench-") as folder:
        Path(folder).chmod(0o755)
        socket = Path(folder) / "gtd.sock"
        file = Path(folder) / "gtd.yaml"
        file.write_text(configuration)
        command = [program or gtd(), "--socket", socket, "--workers", workers, "--config", file]
        process = subprocess.Popen(command)
        deadline = time.monotonic() + START_DEADLINE_S
        while not socket.exists():
            assert process.poll() is None, f"gtd ended with {process.returncode}"
            assert time.monotonic() < deadline, "gtd made no socket"
            time.sleep(0.01)
        socket.chmod(0o666)
        try:
            yield socket, process.pid
        finally:
            process.terminate()
            process.wait(START_DEADLINE_S)


@contextmanager
def clients(socket: Path, programs: list[str]) -> Iterator[Clients]:
    """Runs client processes, and ends them afterwards."""
    started = Clients(socket, programs)
    try:
        yield started
    finally:
        started.close()


def _window_s() -> float:
    return WINDOW_QUICK_S if Mode.quick else WINDOW_S


def _step_s(some: Clients) -> float:
    """Returns the wall time per step, over the steps of all clients together."""
    some.tell(str(_window_s()))
    return _window_s() / sum(some.answers())


def unfairness_percent(done: list[float]) -> float:
    """Returns 1 minus Jain's fairness index of the amounts of work done, in percent."""
    return 100 * (1 - sum(done) ** 2 / (len(done) * sum(amount**2 for amount in done)))


def _numbers(example: str, pattern: str) -> list[float]:
    """Builds and runs an example of the daemon's crate, and returns the numbers that a pattern finds in its output."""
    command = ["cargo", "run", "--quiet", "--release", "--package", "gtd", "--example", example]
    environment = {**os.environ, "GT_DAEMON": gtd(), "GT_WORKERS": "cpu:1"}
    printed = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, env=environment, cwd=Path(__file__).parent
    ).stdout
    found = re.findall(pattern, printed)
    assert found, f"{example} printed no numbers: {printed!r}"
    return [float(number) for match in found for number in (match if isinstance(match, tuple) else (match,))]


def _instruction_s() -> float:
    """Returns the shortest time per instruction of one client that sends as fast as it can."""
    return min(_numbers("chain", r"chained adds: (\d+) ns each")) * 1e-9 / INSTRUCTIONS_PER_ADD


def rows() -> Iterator[Row]:
    """Yields the rows of instruction cost, a thousand idle sessions, throughput, fairness and latency."""
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
    # Half of the clients have large steps, half have small ones.
    uneven = [CLIENT.replace("SIZE", "256"), CLIENT.replace("SIZE", "64")] * (FLOODS // 2)
    with daemon() as (socket, _), clients(socket, uneven) as many:

        def unfairness() -> float:
            many.tell(str(_window_s()))
            done = many.answers()
            # Steps of the two kinds cannot be compared, so each kind has an index of its own.
            return max(unfairness_percent(done[::2]), unfairness_percent(done[1::2]))

        yield Row(
            f"1 - Jain's index of what {FLOODS} equal clients get",
            {"GT": unfairness},
            (Target(UNFAIRNESS_PERCENT_MAX),),
            unit="%",
            rounds=3,
        )
    with daemon() as (socket, _), clients(socket, [PROBE]) as probe, clients(socket, [PIPES]) as pipes:
        probes = PROBES_QUICK if Mode.quick else PROBES
        probe.tell(str(probes))
        idle_s = probe.answers()[0]
        with clients(socket, [FLOOD.replace("SIZE", "128")] * FLOODS) as floods:

            def beside_floods(one: Clients) -> float:
                floods.tell(str(FLOODED_S + probes * PROBE_S))
                time.sleep(FLOODED_S)
                one.tell(str(probes))
                answer = one.answers()[0]
                floods.answers()
                return answer

            yield Row(
                f"99th percentile of a round trip beside {FLOODS} clients that flood; bare: by pipes, beside the same",
                {"GT": lambda: beside_floods(probe), "bare": lambda: beside_floods(pipes)},
                (Target(max(LATENCY_MAX_S, LATENCY_FACTOR * idle_s)),),
                rounds=5,
            )
    yield from _beside_heavy_steps()


def _beside_heavy_steps() -> Iterator[Row]:
    """Yields the rows of a small round trip beside programs with long steps."""
    heavy = HEAVY.replace("SIZE", str(HEAVY_SIZE))
    with daemon() as (socket, _), clients(socket, [TRIPS]) as trips, clients(socket, [heavy]) as one:

        def step_s() -> float:
            one.tell(str(WINDOW_S))
            return one.answers()[0]

        def trip_s(part: float) -> float:
            trips.tell(str(part))
            return trips.answers()[0]

        yield Row(f"a product of {HEAVY_SIZE} x {HEAVY_SIZE} matrices, alone", {"GT": step_s}, rounds=3)
        with clients(socket, [heavy] * HEAVY_PROGRAMS) as programs:

            def beside(part: float) -> float:
                programs.tell(str(WINDOW_S))
                time.sleep(FLOODED_S)
                answer = trip_s(part)
                programs.answers()
                return answer

            for name, part in (("median", 0.5), ("99th percentile", 0.99), ("maximum", 1.0)):
                yield Row(
                    f"{name} of a small round trip beside {HEAVY_PROGRAMS} programs with such products; bare: alone",
                    {"GT": lambda part=part: beside(part), "bare": lambda part=part: trip_s(part)},
                    (Target(BESIDE_HEAVY_MAX_S),) if part < 1 else (),
                    rounds=3,
                )
