"""Sums and data-parallel training over links of limited bandwidth, beside PyTorch's DistributedDataParallel on Gloo.

Two machines of two workers, one thread each, are network namespaces of this machine behind a bridge, and `tbf` limits
what each sends and receives. That takes root, `ip` and `tc`; without them the rows say "loopback" and nothing limits
them. What GT sends is encrypted, or not where `insecure_network: on` says so; what Gloo sends is not. All workers and
ranks share this machine's cores.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import product

from benches.harness import Row, Target
from benches.nodes import NETWORKS, Machines, askers, cluster, end_process, read_line, start_process
from benches.workers import TRAINING_STEP

MACHINES = 2
WORKERS = 2
# The bandwidth of each machine's link, both ways, as `tc` writes it.
RATES = ("10gbit", "1gbit")
# `tbf` sends this much at one time; a timer of 250 Hz refills it.
BURST = {"10gbit": "5mb", "1gbit": "512kb"}
SUMS_BYTES = (1 << 20, 16 << 20, 64 << 20)
STEPS = 5
# GT's time relative to PyTorch's.
PYTORCH = 1.0

# A multilayer perceptron with 12.6 million parameters, 50 MB of gradients; each worker has 64 samples.
WIDTH, LAYERS, SAMPLES = 1024, 12, 64

SUMS = """
import sys, time
import gt
from gt import ShardConfig, SignalConfig
workers = [1, 2, 3, 4]
gt.register_config("rows", SignalConfig(shard=ShardConfig(axis=0, workers=workers)))
gt.register_config("copies", SignalConfig(shard=ShardConfig(replicated=True, workers=workers)))
"""

SUM = (
    SUMS
    + """
print("ready", flush=True)
for line in sys.stdin:
    bytes, calls = map(int, line.split())
    x = y = None
    x = gt.signal.tensor(gt.rand(len(workers), bytes // 4), name="rows")
    with gt.signal.context("copies"):
        y = x.sum(0)
        gt.synchronize()
        begun = time.perf_counter()
        for _ in range(calls):
            y = x.sum(0)
        gt.synchronize()
    spent_s = time.perf_counter() - begun
    # Raises what has failed.
    y[0].item()
    print(spent_s / calls, flush=True)
"""
)

TRAIN = (
    SUMS
    + TRAINING_STEP
    + """
width, layers, samples, steps = map(int, sys.argv[1:])
modules = []
for _ in range(layers):
    modules += [Linear(width, width), ReLU()]
model = Sequential(*modules)
for p in model.parameters():
    p.data = gt.signal.tensor(p.data, name="copies")
x, y = (gt.signal.tensor(gt.rand(len(workers) * samples, width), name="rows") for _ in range(2))
print("ready", flush=True)
for _ in sys.stdin:
    step()
    gt.synchronize()
    begun = time.perf_counter()
    for _ in range(steps):
        loss = step()
    gt.synchronize()
    spent_s = time.perf_counter() - begun
    # Raises what has failed.
    loss.item()
    print(spent_s / steps, flush=True)
"""
)

GLOO = """
import sys, time
import torch
import torch.distributed as dist
from torch.nn import Linear, MSELoss, ReLU, Sequential
torch.set_num_threads(1)
rank, size, address = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
dist.init_process_group("gloo", init_method=f"tcp://{address}", rank=rank, world_size=size)
"""

GLOO_SUM = (
    GLOO
    + """
print("ready", flush=True)
for line in sys.stdin:
    bytes, calls = map(int, line.split())
    buffer = torch.zeros(bytes // 4)
    dist.all_reduce(buffer)
    dist.barrier()
    begun = time.perf_counter()
    for _ in range(calls):
        dist.all_reduce(buffer)
    dist.barrier()
    print((time.perf_counter() - begun) / calls, flush=True)
"""
)

GLOO_TRAIN = (
    GLOO
    + """
from torch.nn.parallel import DistributedDataParallel
width, layers, samples, steps = map(int, sys.argv[4:])
modules = []
for _ in range(layers):
    modules += [Linear(width, width), ReLU()]
model = DistributedDataParallel(Sequential(*modules))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
x, y = torch.rand(samples, width), torch.rand(samples, width)
loss = MSELoss()

def step():
    optimizer.zero_grad()
    loss(model(x), y).backward()
    optimizer.step()

print("ready", flush=True)
for _ in sys.stdin:
    step()
    dist.barrier()
    begun = time.perf_counter()
    for _ in range(steps):
        step()
    dist.barrier()
    print((time.perf_counter() - begun) / steps, flush=True)
"""
)


class Namespaces(Machines):
    """Machines in network namespaces of their own, each behind a link of limited bandwidth."""

    def __init__(self, rate: str) -> None:
        """Makes the namespaces.

        Raises:
            OSError, subprocess.CalledProcessError: If this user or machine cannot.
        """
        number = os.getpid() % 16384
        self.prefix = f"gb{number}"
        self.subnet = f"10.{128 + number // 256}.{number % 256}"
        try:
            self._make(rate)
        except (OSError, subprocess.CalledProcessError):
            self.remove()
            raise

    def _make(self, rate: str) -> None:
        limit = f"tbf rate {rate} burst {BURST[rate]} latency 50ms"
        bridge = f"{self.prefix}b"
        commands = [
            f"ip link add {bridge} type bridge",
            f"ip addr add {self.subnet}.1/24 dev {bridge}",
            f"ip link set {bridge} up",
        ]
        for number in range(MACHINES):
            space, veth = self._namespace(number), f"{self.prefix}v{number}"
            commands += [
                f"ip netns add {space}",
                f"ip link add {veth} type veth peer name eth0 netns {space}",
                f"ip link set {veth} master {bridge} up",
                f"ip -n {space} addr add {self.subnet}.{10 + number}/24 dev eth0",
                f"ip -n {space} link set eth0 up",
                f"ip -n {space} link set lo up",
                f"tc qdisc add dev {veth} root {limit}",
                f"tc -n {space} qdisc add dev eth0 root {limit}",
            ]
        for command in commands:
            subprocess.run(command.split(), check=True, capture_output=True)

    def remove(self) -> None:
        """Removes what was made."""
        commands = [["ip", "link", "del", f"{self.prefix}v{number}"] for number in range(MACHINES)]
        commands += [["ip", "netns", "del", self._namespace(number)] for number in range(MACHINES)]
        for command in [*commands, ["ip", "link", "del", f"{self.prefix}b"]]:
            subprocess.run(command, check=False, capture_output=True)

    def _namespace(self, number: int) -> str:
        return f"{self.prefix}n{number}"

    @property
    def daemon_address(self) -> str:
        """Returns where the daemon takes nodes."""
        return f"{self.subnet}.1:0"

    def address(self, number: int) -> str:
        """Returns a machine's address."""
        return f"{self.subnet}.{10 + number}"

    def command(self, number: int, words: Sequence[object]) -> list[object]:
        """Returns the command that runs `words` on a machine."""
        return ["ip", "netns", "exec", self._namespace(number), *words]


@contextmanager
def _machines(rate: str) -> Iterator[tuple[Machines, str]]:
    """Yields machines with limited links, or those of loopback, and their description."""
    try:
        network = Namespaces(rate)
    except (OSError, subprocess.CalledProcessError):
        yield Machines(), "loopback, not limited"
        return
    try:
        yield network, f"{rate[:-4]} Gbit/s"
    finally:
        network.remove()


@contextmanager
def _client(socket: str, program: str, *arguments: object) -> Iterator[list[subprocess.Popen[str]]]:
    """Runs a program of GT."""
    client = start_process([sys.executable, "-c", program, *arguments], GT_SOCKET=socket)
    try:
        read_line(client)
        yield [client]
    finally:
        end_process(client)


@contextmanager
def _ranks(machines: Machines, port: int, program: str, *arguments: object) -> Iterator[list[subprocess.Popen[str]]]:
    """Runs the ranks of a program of PyTorch."""
    with ExitStack() as stack:
        processes = []
        size, interface = MACHINES * WORKERS, "eth0" if isinstance(machines, Namespaces) else "lo"
        for rank in range(size):
            words = [sys.executable, "-c", program, rank, size, f"{machines.address(0)}:{port}", *arguments]
            command = machines.command(rank // WORKERS, words)
            processes.append(start_process(command, GLOO_SOCKET_IFNAME=interface))
            stack.callback(end_process, processes[-1])
        for process in processes:
            read_line(process)
        yield processes


def rows() -> Iterator[Row]:
    """Yields sums over two machines, and steps of data-parallel training."""
    try:
        import torch.distributed  # noqa: F401
    except ImportError:
        return
    for rate, (insecure_network, how) in product(RATES, NETWORKS.items()):
        running = partial(cluster, MACHINES, memory="4G", insecure_network=insecure_network)
        with _machines(rate) as (machines, limit), running(machines=machines) as socket:
            described = f"{limit}, {how}"
            with _client(socket, SUM) as ours, _ranks(machines, 29501, GLOO_SUM) as theirs:
                for size in SUMS_BYTES:
                    contenders = askers(ours, theirs, f"{size} {max(3, (32 << 20) // size)}")
                    what = f"a sum of {size >> 20} MiB over 2 machines of 2 workers, {described}; PyTorch: Gloo"
                    yield Row(what, contenders, (Target(PYTORCH, "PyTorch"),), rounds=5)
            shape = (WIDTH, LAYERS, SAMPLES, STEPS)
            with _client(socket, TRAIN, *shape) as ours, _ranks(machines, 29502, GLOO_TRAIN, *shape) as theirs:
                contenders = askers(ours, theirs, "")
                what = f"a step of training of 12.6 M parameters on 2 machines of 2 workers, {described}; PyTorch: DDP"
                yield Row(what, contenders, (Target(PYTORCH, "PyTorch"),), rounds=5)
