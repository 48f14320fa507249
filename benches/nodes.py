"""Nodes: the dispatcher's time by number of nodes, and bytes between machines beside Gloo, Open MPI and sockets.

The nodes are processes of this machine and connect by loopback, as between machines: encrypted, and unencrypted as
`insecure_network: on` allows. Gloo, Open MPI (by TCP, if `mpirun` and mpi4py are there) and the plain sockets are not
encrypted, nor is UCX, which is measured as well if `GT_UCX_LIBRARY` names it; `UCX_TLS=tcp,self` lets it use what it
uses between machines without RDMA. An all-reduce lasts until its last rank has ended; its ranks share the cores in all.
"""

from __future__ import annotations

import json
import os
import shutil
import socket as sockets
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO

import gt
from benches.harness import Row, Target
from benches.workers import DISPATCHER_ROUND

ROOT = Path(__file__).resolve().parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
# The limits of the dispatcher's time for an instruction: one of a divided tensor on all nodes, and one on one node.
DIVIDED_S = 10e-6
ONE_NODE_S = 2e-6
# An all-reduce's time relative to Gloo's and to Open MPI's, and a message's speed relative to that of blocking sockets.
ALL_REDUCE = 0.8
SOCKETS = 0.9
# Nodes with two workers of one thread each.
NODES = (1, 2, 4, 36)
JOIN_DEADLINE_S = 60.0
# The values of `insecure_network` that are measured, and what they do.
NETWORKS = {"off": "encrypted", "on": "unencrypted"}
# The bytes of messages between two nodes, and how many are sent for one measurement.
MESSAGES = ((1 << 20, 40), (64 << 20, 2))

CLIENT = (
    """
import json, sys, time
import gt
from gt import ShardConfig, SignalConfig
workers = [int(number) for number in sys.argv[1:]]
gt.register_config("there", SignalConfig(shard=ShardConfig(axis=0, workers=workers)))
x = gt.signal.tensor(gt.rand(64 * len(workers)), name="there")
daemon = gt._gt.session_info()["daemon_pid"]
COUNT = 1000
"""
    + DISPATCHER_ROUND
    + """
assert len(gt.debug.placement(x).workers) == len(workers)
print(round_s(), flush=True)
for _ in sys.stdin:
    print(round_s(), flush=True)
"""
)

GLOO_RANK = """
import os, sys, time
import torch
import torch.distributed as dist
torch.set_num_threads(1)
rank, size, file = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=size)
print("ready", flush=True)
for line in sys.stdin:
    _, bytes, calls = line.split()
    buffer = torch.zeros(int(bytes) // 4)
    dist.barrier()
    begun = time.perf_counter()
    for _ in range(int(calls)):
        dist.all_reduce(buffer)
    print((time.perf_counter() - begun) / int(calls), flush=True)
"""

# Waiting for a question, a rank sleeps: within MPI it would keep a core busy.
MPI_RANK = """
import socket, sys, time
import numpy as np
from mpi4py import MPI
world = MPI.COMM_WORLD
connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
questions, answers = connection.makefile("r"), connection.makefile("w")
for line in questions:
    _, bytes, calls = line.split()
    buffer = np.zeros(int(bytes) // 4, np.float32)
    world.Barrier()
    begun = time.perf_counter()
    for _ in range(int(calls)):
        world.Allreduce(MPI.IN_PLACE, buffer)
    print((time.perf_counter() - begun) / int(calls), file=answers, flush=True)
"""
# Open MPI by TCP, as between machines without RDMA. It is told that root may run it, as in a container.
MPIRUN = "mpirun --allow-run-as-root --oversubscribe --mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_include lo -n"


@dataclass
class ByConnection:
    """A program that is asked by a connection."""

    stdin: IO[str]
    stdout: IO[str]


Asked = subprocess.Popen[str] | ByConnection


def start_process(command: Sequence[object], **env: str) -> subprocess.Popen[str]:
    """Starts a program that is asked by its standard input."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **env}
    pipe = subprocess.PIPE
    return subprocess.Popen([str(word) for word in command], env=environment, stdin=pipe, stdout=pipe, text=True)


def read_line(process: Asked) -> str:
    """Waits for a line of a program."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, f"{process} ended"
    return line


def ask(processes: Sequence[Asked], question: str) -> float:
    """Asks all processes for a measurement, and returns the slowest one's."""
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(question + "\n")
        process.stdin.flush()
    return max(float(read_line(process)) for process in processes)


def askers(ours: Sequence[Asked], theirs: Sequence[Asked], question: str) -> dict[str, Callable[[], float]]:
    """Returns the contenders of a row: GT's processes and PyTorch's, which are asked the same."""
    return {"GT": lambda: ask(ours, question), "PyTorch": lambda: ask(theirs, question)}


def end_process(process: subprocess.Popen[str]) -> None:
    """Kills a program, and waits for its end."""
    process.kill()
    process.communicate()


class Machines:
    """The machines of a cluster: here all are this one, and reach each other by loopback."""

    daemon_address = "127.0.0.1:0"

    def address(self, number: int) -> str:
        """Returns a machine's address."""
        del number
        return "127.0.0.1"

    def command(self, number: int, words: Sequence[object]) -> list[object]:
        """Returns the command that runs `words` on a machine."""
        del number
        return list(words)


@contextmanager
def cluster(
    nodes: int, machines: Machines | None = None, memory: str = "256M", insecure_network: str = "off"
) -> Iterator[str]:
    """Runs a daemon with nodes of two workers, each on a machine of its own, and yields its socket."""
    machines = machines or Machines()
    gtd = Path(gt._gt.find_gtd())
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        socket = f"{folder}/gtd.sock"
        small = ["--threads", "1", "--memory", memory]
        command = [gtd, "--announce", "--socket", socket, "--state", folder, "--nodes", machines.daemon_address]
        command += ["--insecure-network", insecure_network]
        daemon = start_process([*command, "--workers", "cpu:1", *small])
        stack.callback(end_process, daemon)
        read_line(daemon)

        def ctl(*arguments: str) -> dict:
            command = [gtd.with_name("gtctl"), *arguments, "--json", "--socket", socket]
            return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)

        for number in range(nodes):
            of_node = ["--name", f"n{number}", "--state", f"{folder}/{number}", "--workers", "cpu:2", *small]
            node = start_process(machines.command(number, [gtd, "node", *of_node]), GT_JOIN=ctl("invite")["join"])
            stack.callback(end_process, node)
            read_line(node)
        deadline = time.monotonic() + JOIN_DEADLINE_S
        while [worker["state"] for worker in ctl("status")["workers"]] != ["running"] * (1 + 2 * nodes):
            assert time.monotonic() < deadline, "the workers do not start"
            time.sleep(0.05)
        yield socket


def _dispatcher_rows() -> Iterator[Row]:
    for nodes in NODES:
        with cluster(nodes) as socket:
            whole = list(range(1, 1 + 2 * nodes))
            for workers, where, limit in ((whole, f"{nodes} nodes", DIVIDED_S), ([1], f"one of {nodes}", ONE_NODE_S)):
                client = start_process([sys.executable, "-c", CLIENT, *workers], GT_SOCKET=socket)
                read_line(client)
                what = f"dispatcher, an instruction on {len(workers)} workers of {where}"
                yield Row(what, {"GT": lambda client=client: ask([client], "")}, (Target(limit),), rounds=5)
                end_process(client)


@contextmanager
def _group(ranks: int, insecure_network: str = "off") -> Iterator[list[subprocess.Popen[str]]]:
    """Runs the ranks of a group, each a process as on a machine of its own."""
    build = ["cargo", "build", "--quiet", "--release", "--package", "gtd", "--example", "network_group"]
    subprocess.run(build, cwd=ROOT, check=True)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        program = TARGET / "release" / "examples" / "network_group"
        processes = [start_process([program, f"{folder}/{rank}", insecure_network]) for rank in range(ranks)]
        for process in processes:
            stack.callback(end_process, process)
        endpoints = [json.loads(read_line(process)) for process in processes]
        for rank, process in enumerate(processes):
            assert process.stdin is not None
            place = {"group": 1, "rank": rank, "endpoints": endpoints, "by_machine": False}
            process.stdin.write(json.dumps(place) + "\n")
            process.stdin.flush()
        yield processes


@contextmanager
def _gloo(ranks: int) -> Iterator[list[subprocess.Popen[str]]]:
    """Runs the ranks of a group of PyTorch's."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        words = [sys.executable, "-c", GLOO_RANK]
        processes = [
            start_process([*words, rank, ranks, f"{folder}/store"], GLOO_SOCKET_IFNAME="lo") for rank in range(ranks)
        ]
        for process in processes:
            stack.callback(end_process, process)
        for process in processes:
            read_line(process)
        yield processes


@contextmanager
def _open_mpi(ranks: int) -> Iterator[list[ByConnection]]:
    """Runs the ranks of a group of Open MPI's: none if it is not installed."""
    if shutil.which("mpirun") is None or find_spec("mpi4py") is None:
        yield []
        return
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        listener = stack.enter_context(sockets.socket(sockets.AF_UNIX))
        listener.bind(f"{folder}/questions")
        listener.listen()
        listener.settimeout(JOIN_DEADLINE_S)
        words = [*MPIRUN.split(), ranks, sys.executable, "-c", MPI_RANK, f"{folder}/questions"]
        stack.callback(end_process, start_process(words))
        connections = [stack.enter_context(listener.accept()[0]) for _ in range(ranks)]
        yield [ByConnection(each.makefile("w"), each.makefile("r")) for each in connections]


def _kib(number: int) -> str:
    return f"{number >> 10} KiB" if number < 1 << 20 else f"{number >> 20} MiB"


def _group_rows(insecure_network: str, how: str) -> Iterator[Row]:
    for ranks in (2, 4):
        with _group(ranks, insecure_network) as ours, _gloo(ranks) as theirs, _open_mpi(ranks) as by_mpi:
            for size, calls in ((1 << 10, 400), (64 << 10, 100), (1 << 20, 20), (16 << 20, 3), (64 << 20, 1)):
                question = f"all_reduce {size} {calls}"
                contenders = askers(ours, theirs, question)
                if by_mpi:
                    contenders["Open MPI"] = lambda question=question: ask(by_mpi, question)
                what = f"all-reduce of {_kib(size)}, {ranks} nodes, {how}; PyTorch: Gloo"
                if ranks == 2:
                    bare = f"bare_{question}"
                    contenders["bare"] = lambda bare=bare: ask(ours, bare)
                    what += "; bare: sockets"
                targets = (Target(ALL_REDUCE, "PyTorch"), Target(ALL_REDUCE, "Open MPI"))
                yield Row(what, contenders, targets, rounds=5)
            if ranks == 2:
                for size, calls in MESSAGES:
                    contenders = {
                        "GT": lambda size=size, calls=calls: ask(ours, f"message {size} {calls}"),
                        "bare": lambda size=size, calls=calls: ask(ours, f"sockets {size} {calls}"),
                    }
                    what = f"{_kib(size)} from one node to another, {how}; bare: blocking sockets"
                    yield Row(what, contenders, (Target(SOCKETS, "bare", speed=True),), rounds=5)


def _ucx_rows() -> Iterator[Row]:
    with _group(2, "ucx") as by_ucx, _group(2) as encrypted:
        measurements = [
            ("all_reduce", "all-reduce of {}", size, calls) for size, calls in ((1 << 10, 400), (64 << 20, 1))
        ]
        measurements += [("message", "{} from one node to another", size, calls) for size, calls in MESSAGES]
        for name, what, size, calls in measurements:
            question = f"{name} {size} {calls}"
            contenders = {
                "GT": lambda question=question: ask(by_ucx, question),
                "bare": lambda question=question: ask(encrypted, question),
            }
            yield Row(f"{what.format(_kib(size))} by UCX, 2 nodes; bare: GT by TLS", contenders, rounds=5)


def rows() -> Iterator[Row]:
    """Yields the dispatcher's time by number of nodes, all-reduces beside Gloo, and messages beside sockets."""
    yield from _dispatcher_rows()
    for insecure_network, how in NETWORKS.items():
        yield from _group_rows(insecure_network, how)
    if os.environ.get("GT_UCX_LIBRARY"):
        yield from _ucx_rows()
