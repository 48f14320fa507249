"""CUDA devices from a program's view: real ones, or emulated ones whose kernels run on the CPU.

Without a GPU, these tests need a `gtd` with emulated devices, which `make test-python` builds (`GT_EMULATED_DAEMON`).
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.python.support import eventually, gtd, output_of, python, started

ROOT = Path(__file__).resolve().parents[2]

TRAINING = """
import json, sys
import numpy as np
import gt
from tests.parity.gpt import Config, build

def steps(model, optimizer, loss_of, count):
    losses = []
    for _ in range(count):
        loss = loss_of(model)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses

def mlp():
    gt.manual_seed(3)
    model = gt.nn.Sequential(gt.nn.Linear(32, 64), gt.nn.ReLU(), gt.nn.Dropout(0.1), gt.nn.Linear(64, 10))
    x, y = gt.randn(48, 32), gt.randint(0, 10, (48,))
    return steps(model, gt.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
                 lambda model: gt.nn.functional.cross_entropy(model(x), y), 12)

def gpt():
    gt.manual_seed(1)
    config = Config(vocabulary=32, context=16, layers=1, heads=2, channels=32)
    model = build(gt, config)
    text = np.random.default_rng(1).integers(0, 32, (2, 17))
    tokens, targets = gt.from_numpy(text[:, :-1].copy()), gt.from_numpy(text[:, 1:].copy())
    return steps(model, gt.optim.AdamW(model.parameters(), lr=1e-2), lambda model: model(tokens, targets), 6)

def cnn():
    gt.manual_seed(2)
    nn = gt.nn
    model = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                          nn.Linear(4 * 16, 5))
    x, y = gt.randn(6, 1, 8, 8), gt.randint(0, 5, (6,))
    return steps(model, gt.optim.Adam(model.parameters(), lr=1e-2),
                 lambda model: nn.functional.cross_entropy(model(x), y), 6)

print(json.dumps({"cuda": gt.cuda.is_available(), "losses": {"mlp": mlp, "gpt": gpt, "cnn": cnn}[sys.argv[1]]()}))
"""


@pytest.fixture(scope="module")
def cuda() -> dict[str, str | None]:
    """Returns environment variables with which a program computes on a CUDA device."""
    devices = os.environ.get("GT_DEVICES", "")
    if devices.startswith("cuda"):
        return {"GT_DEVICES": devices}
    daemon = os.environ.get("GT_EMULATED_DAEMON")
    if not daemon:
        pytest.skip("no GPU is asked for (GT_DEVICES=cuda), and no gtd with emulated ones (GT_EMULATED_DAEMON)")
    if not shutil.which("g++"):
        pytest.skip("no g++, which compiles the kernels of emulated devices")
    return {"GT_DAEMON": daemon, "GT_WORKERS": "emulated-cuda:1"}


def test_a_program_finds_the_device_by_pytorchs_names(cuda: dict[str, str | None]) -> None:
    program = """
import gt as torch
assert torch.cuda.is_available() and torch.cuda.device_count() >= 1
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
x = torch.ones(3, device=device)
model = torch.nn.Linear(3, 2).to(device)
y = model(x.cuda()).sum()
y.backward()
assert x.is_cuda and not x.is_cpu and x.get_device() == 0
assert x.device == next(model.parameters()).device == torch.device("cuda:0"), x.device
assert x.cpu() is x and x.numpy().tolist() == [1, 1, 1]
assert torch.zeros(2, device=x.device).tolist() == [0, 0]
torch.cuda.synchronize()
with torch.cuda.device(0), torch.cuda.stream(torch.cuda.Stream()):
    torch.cuda.set_device(0)
start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
start.record(); (x + x).sum(); end.record()
assert start.elapsed_time(end) > 0
with torch.autocast("cuda", torch.bfloat16):
    assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.bfloat16
try:
    torch.ones(1, device="cuda:99")
except RuntimeError as error:
    print(error)
"""
    assert "CUDA error: invalid device ordinal" in output_of(program, **cuda)


def test_allocated_memory_is_reported(cuda: dict[str, str | None]) -> None:
    program = """
import gt
before = gt.cuda.memory_allocated()
x = gt.ones(1 << 20); gt.cuda.synchronize()
held = gt.cuda.memory_allocated() - before
assert held >= 4 << 20, held
free, total = gt.cuda.mem_get_info()
assert 0 < free <= total - held
assert ":0" in gt.cuda.memory_summary()
del x
gt.ones(1).item()
assert gt.cuda.memory_allocated() - before < 4 << 20
"""
    output_of(program, **cuda)


def test_the_most_that_a_program_held_is_told(cuda: dict[str, str | None]) -> None:
    program = """
import gt
gt.ones(1).item()
gt.cuda.reset_peak_memory_stats()
before = gt.cuda.memory_allocated()
assert gt.cuda.max_memory_allocated() == before
x = gt.ones(1 << 20)
y = x + 1
y.sum().item()
del x, y
gt.ones(1).item()
assert gt.cuda.memory_allocated() - before < 4 << 20
assert gt.cuda.max_memory_allocated() - before >= 8 << 20
gt.cuda.reset_peak_memory_stats(0)
assert gt.cuda.max_memory_allocated() - before < 4 << 20
"""
    output_of(program, **cuda)


def test_a_device_says_what_it_is(cuda: dict[str, str | None]) -> None:
    program = """
import gt
properties = gt.cuda.get_device_properties(0)
assert properties.name == gt.cuda.get_device_name() != ""
assert (properties.major, properties.minor) == gt.cuda.get_device_capability() >= (7, 5)
assert properties.total_memory >= gt.cuda.mem_get_info().total > 0
assert properties.multi_processor_count > 0
"""
    output_of(program, **cuda)


def test_a_gpu_that_is_not_there_is_an_error_of_the_program_that_asks_for_it() -> None:
    program = """
import gt
try:
    gt.ones(1)
except Exception as error:
    print(error)
"""
    told = python(program, GT_DAEMON=gtd(), GT_DEVICES="cuda:99", GT_CONNECT="private").stdout
    assert "is asked for" in told
    assert "GT_DEVICES=cpu" in told


def test_an_index_out_of_range_is_raised_where_it_is_read(cuda: dict[str, str | None]) -> None:
    program = """
import gt
x = gt.arange(10.0)
bad = x[gt.tensor([1, 10])]
after = bad * 2 + 1
good = x[gt.tensor([1, 9])] * 2
for tensor in (after, bad):
    try:
        tensor.tolist()
        raise SystemExit("it was read")
    except IndexError as error:
        print(str(error).splitlines()[0])
assert good.tolist() == [2, 18]
"""
    told = output_of(program, **cuda).splitlines()
    assert len(told) == 2
    assert all("index 10 is out of bounds for dimension 0 with size 10" in line for line in told)


def test_integers_divided_by_zero(cuda: dict[str, str | None]) -> None:
    program = """
import gt
try:
    (gt.tensor([4, 2]) // gt.tensor([2, 0])).tolist()
except RuntimeError as error:
    print(error)
assert (gt.tensor([4, 2]) // gt.tensor([2, 1])).tolist() == [2, 2]
"""
    assert "ZeroDivisionError" in output_of(program, **cuda)


def test_a_tensor_that_does_not_fit(cuda: dict[str, str | None]) -> None:
    program = """
import gt
try:
    gt.ones(1 << 45).sum().item()
except gt.cuda.OutOfMemoryError as error:
    print(error)
assert gt.ones(4).sum().item() == 4
"""
    assert "out of memory" in output_of(program, **cuda).lower()


@pytest.mark.parametrize("model", ["mlp", "gpt", "cnn"])
def test_training_goes_as_on_the_cpu(model: str, cuda: dict[str, str | None], tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(TRAINING)
    losses = []
    for environment in (cuda, {"GT_DEVICES": "cpu"}):
        runner = f"import runpy, sys; sys.argv = ['train.py', {model!r}]; runpy.run_path({str(program)!r})"
        found = json.loads(output_of(runner, **environment))
        assert found["cuda"] == (environment is cuda)
        losses.append(found["losses"])
    assert losses[0] == pytest.approx(losses[1], rel=1e-3, abs=1e-3)
    assert losses[0][-1] < losses[0][0]


def test_a_device_that_fails_loses_its_tensors_and_the_processor_goes_on(
    cuda: dict[str, str | None], tmp_path: Path
) -> None:
    if "GT_WORKERS" not in cuda:
        pytest.skip("an emulated device alone fails when asked to")
    fails = tmp_path / "fails"
    program = f"""
import gt
from pathlib import Path
from gt import ShardConfig, SignalConfig
from gt.signal import context
for name, worker in (("device", 0), ("processor", 1)):
    gt.register_config(name, SignalConfig(shard=ShardConfig(workers=[worker])))
with context("processor"):
    kept = gt.arange(5.0)
with context("device"):
    lost = gt.arange(5.0)
assert lost.sum().item() == kept.sum().item() == 10
Path({str(fails)!r}).touch()
try:
    (lost * 2).tolist()
    raise SystemExit("it was read")
except RuntimeError as error:
    print(str(error).splitlines()[0])
assert (kept * 2).tolist() == [0, 2, 4, 6, 8]
with context("device"):
    assert (gt.arange(5.0) + 1).tolist() == [1, 2, 3, 4, 5]
"""
    environment = {**cuda, "GT_WORKERS": "emulated-cuda:1,cpu:1", "GT_EMULATED_LOST": str(fails)}
    with service(tmp_path, environment) as (address, log):
        told = output_of(program, **address)
    assert "worker emulated:0 lost its device, which failed, and the tensors it held are lost" in told
    assert "make them again" in told
    said = log.read_text()
    assert "the device is lost" in said
    assert "CUDA_ERROR_ECC_UNCORRECTABLE: the GPU's memory has failed: reset it by `nvidia-smi -r`" in said


def test_arrays_are_copies(cuda: dict[str, str | None]) -> None:
    """Programs move a batch to the device and fill its array again, while the device computes."""
    program = """
import numpy as np, gt
array = np.zeros(3, np.float32)
x = gt.from_numpy(array).to("cuda")
array[:] = 1
assert x.tolist() == [0, 0, 0]
fetched = x.cpu().numpy()
x.add_(2)
assert fetched.tolist() == [0, 0, 0] and x.tolist() == [2, 2, 2]
"""
    output_of(program, **cuda)


def test_several_devices_divide_a_tensor_among_them(cuda: dict[str, str | None]) -> None:
    if "GT_WORKERS" not in cuda:
        pytest.skip("how many devices there are depends on the machine")
    program = """
import numpy as np, gt
numbers = np.random.default_rng(0)
a, b = (numbers.integers(-9, 9, shape).astype(np.float32) for shape in ((33, 7), (7, 9)))
x, y = gt.from_numpy(a), gt.from_numpy(b)
assert len(gt.debug.placement(x).workers) == 2
assert (x @ y).numpy().tolist() == (a @ b).tolist()
assert (x + 1).sum(0).numpy().tolist() == (a + 1).sum(0).tolist()
assert x.t().max(1).values.tolist() == a.max(0).tolist()
assert gt.cuda.device_count() == 2 and gt.ones(1, device="cuda:1").item() == 1
"""
    output_of(program, **{**cuda, "GT_WORKERS": "emulated-cuda:2", "GT_SHARD_BYTES_MIN": "0"})


# NCCL 2.30 is the first that takes several ranks of one device.
NCCL_OF_SHARED_DEVICES = 23000


def nccl_version() -> int:
    """Returns the version of NCCL among the libraries of this environment, as in 23007; 0 if there is none."""
    folders = os.environ.get("GT_CUDA_LIBRARIES", "").split(os.pathsep)
    version = ctypes.c_int(0)
    for name in (*(str(Path(folder, "libnccl.so.2")) for folder in folders if folder), "libnccl.so.2"):
        with suppress(OSError):
            ctypes.CDLL(name).ncclGetVersion(ctypes.byref(version))
            break
    return version.value


@pytest.fixture(scope="module")
def nccl(cuda: dict[str, str | None], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | None]:
    """Like `cuda`, with several devices connected by NCCL or by its stand-in; every tensor is sharded."""
    if "GT_WORKERS" not in cuda:
        several = int(output_of("import gt; print(gt.cuda.device_count())", **cuda)) > 1
        version = nccl_version()
        if not several and version < NCCL_OF_SHARED_DEVICES:
            pytest.skip(f"one device, of which NCCL before 2.30 takes one rank, and this is {version}")
        # Two workers on one device.
        shared = {"GT_WORKERS": "cuda:0,0", "NCCL_MULTI_RANK_GPU_ENABLE": "1"}
        return {"GT_WORKERS": "cuda"} if several else shared
    folder = tmp_path_factory.mktemp("nccl")
    source, library = ROOT / "collectives/tests/fake_nccl.cpp", folder / "libnccl.so.2"
    subprocess.run(["g++", "-std=c++17", "-O1", "-shared", "-fPIC", source, "-o", library], check=True)
    return {
        **cuda,
        "GT_WORKERS": "emulated-cuda:2",
        "GT_EMULATED_NCCL": "1",
        "GT_NCCL_LIBRARY": str(library),
        "GT_FAKE_NCCL_FOLDER": str(folder),
    }


def stand_in(nccl: dict[str, str | None]) -> dict[str, str | None]:
    """Like `nccl`, only with the stand-in, which can be told to fail."""
    if "GT_FAKE_NCCL_FOLDER" not in nccl:
        pytest.skip("the real NCCL does not fail when it should")
    return nccl


@contextmanager
def service(tmp_path: Path, environment: dict[str, str | None]) -> Iterator[tuple[dict[str, str | None], Path]]:
    """Runs a daemon with logging; yields the programs' environment and the path of the log."""
    address, log = tmp_path / "gtd.sock", tmp_path / "gtd.log"
    command = [environment.get("GT_DAEMON") or gtd(), "--socket", str(address)]
    with log.open("w") as said:
        env = {**os.environ, **{name: value for name, value in environment.items() if value is not None}}
        env |= {"RUST_LOG": "info", "GT_SHARD_BYTES_MIN": "0"}
        daemon = subprocess.Popen(
            [*command, "--workers", str(environment["GT_WORKERS"])], env=env, stdout=subprocess.DEVNULL, stderr=said
        )
        with daemon:
            try:
                eventually(address.exists, "the daemon's socket")
                yield {"GT_SOCKET": str(address)}, log
            finally:
                daemon.terminate()


MOVES = """
import numpy as np, gt
numbers = np.random.default_rng(0)
for dtype in (np.float32, np.int16, np.bool_):
    for shape in ((33, 7), (1, 5), (0, 4)):
        host = numbers.integers(0, 2, shape).astype(dtype)
        a = gt.from_numpy(host)
        # Parts that are joined, a tensor that is cut otherwise, one that is whole.
        assert a.any(0).tolist() == host.any(0).tolist() if dtype == np.bool_ else True
        assert a.sum(0, dtype=a.dtype).tolist() == host.sum(0, dtype=dtype).tolist()
        assert a.t().contiguous().tolist() == host.T.tolist()
        assert (a.t() @ a).tolist() == (host.T @ host).tolist() if dtype == np.float32 else True
told = gt.debug.comm_stats()
assert len(told) > 1, told
assert all("all_reduce" in of and of["all_reduce"]["bytes"] > 0 for of in told.values()), told
print("done")
"""


def test_devices_move_tensors_by_nccl(nccl: dict[str, str | None], tmp_path: Path) -> None:
    with service(tmp_path, nccl) as (environment, log):
        assert output_of(MOVES, **environment) == "done\n"
    said = log.read_text()
    assert "tensors are moved between devices by NCCL" in said
    assert "through the host" not in said


@pytest.mark.parametrize("model", ["mlp", "gpt"])
def test_divided_training_goes_as_on_one_worker(model: str, nccl: dict[str, str | None], tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(TRAINING)
    runner = f"import runpy, sys; sys.argv = ['train.py', {model!r}]; runpy.run_path({str(program)!r})"
    with service(tmp_path, nccl) as (environment, log):
        divided = json.loads(output_of(runner, **environment))["losses"]
    assert "tensors are moved between devices by NCCL" in log.read_text()
    whole = json.loads(output_of(runner, GT_DEVICES="cpu"))["losses"]
    assert divided == pytest.approx(whole, rel=1e-3, abs=1e-3)
    assert divided[-1] < divided[0]


def test_a_worker_that_dies_in_a_move_is_named_and_the_next_move_works(
    nccl: dict[str, str | None], tmp_path: Path
) -> None:
    dies = tmp_path / "dies"
    program = f"""
import gt
from pathlib import Path
x = gt.ones(64, 8)
assert x.sum(0).tolist() == [64] * 8
for _ in range(2):
    Path({str(dies)!r}).touch()
    # The device of the surviving worker waits for the other, together with later work.
    y = x.sum(0)
    for _ in range(2):
        try:
            (y * 2).tolist()
            raise SystemExit("the sum of what is lost")
        except RuntimeError as error:
            print(str(error).splitlines()[0])
    x = gt.ones(64, 8)
    assert x.sum(0).tolist() == [64] * 8
"""
    with service(tmp_path, {**stand_in(nccl), "GT_FAKE_NCCL_DIES": str(dies)}) as (environment, log):
        told = output_of(program, **environment).splitlines()
    assert len(told) == 4
    assert all(re.search("worker emulated:1 .*and the tensors it held are lost", line) for line in told), told
    said = log.read_text()
    assert said.count("tensors are moved between devices by NCCL") == 3
    assert "the devices of a group do not reach each other any more" in said


def test_an_error_in_one_device_s_shard_reaches_all_devices(nccl: dict[str, str | None], tmp_path: Path) -> None:
    program = """
import gt
x = gt.arange(64.0)
index = gt.tensor([0] * 63 + [99])
bad = x[index]
for tensor in (bad.sum(), bad * 2, bad.sum() + x.sum()):
    try:
        tensor.tolist()
        raise SystemExit("it was read")
    except IndexError as error:
        print(str(error).splitlines()[0])
assert x.sum().item() == 2016
"""
    with service(tmp_path, nccl) as (environment, log):
        told = output_of(program, **environment).splitlines()
    assert len(told) == 3
    assert all("index 99 is out of bounds for dimension 0 with size 64" in line for line in told), told
    assert "tensors are moved between devices by NCCL" in log.read_text()


def test_devices_that_nccl_does_not_bring_together_go_by_the_host(nccl: dict[str, str | None], tmp_path: Path) -> None:
    with service(tmp_path, {**stand_in(nccl), "GT_FAKE_NCCL_REFUSES": "0"}) as (environment, log):
        assert output_of(MOVES, **environment) == "done\n"
    said = log.read_text()
    assert "this stand-in was told to refuse" in said
    assert said.count("tensors are moved through the host") == 1
    assert "moved between devices by NCCL" not in said


def test_workers_with_different_nccls_go_by_the_host_and_say_which(nccl: dict[str, str | None], tmp_path: Path) -> None:
    environment = {**stand_in(nccl), "GT_WORKERS": "emulated-cuda:1"}
    with service(tmp_path, environment) as (address, log):
        told = {**os.environ, **{name: value for name, value in environment.items() if value is not None}}
        command = [environment["GT_DAEMON"], "worker", "--connect", f"unix:{address['GT_SOCKET']}"]
        other = subprocess.Popen(
            [*command, "--device", "emulated-cuda"],
            env={**told, "GT_FAKE_NCCL_VERSION": "23007"},
            stdout=subprocess.PIPE,
            text=True,
        )
        with other:
            assert other.stdout is not None
            assert "as worker emulated:1;" in other.stdout.readline()
            assert output_of(MOVES, **address) == "done\n"
            other.terminate()
    said = log.read_text()
    assert "workers 0 and 1 have NCCL 2.27.7 and 2.30.7: set GT_NCCL_LIBRARY to one file for both" in said
    assert "moved between devices by NCCL" not in said


@contextmanager
def daemon_of(cuda: dict[str, str | None], folder: Path) -> Iterator[str]:
    """Runs a daemon on the devices of `cuda`, and yields its address."""
    options = ("--workers", cuda["GT_WORKERS"]) if "GT_WORKERS" in cuda else ()
    address = folder / "gtd.sock"
    command = [cuda.get("GT_DAEMON") or gtd(), "--socket", str(address), *options]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as daemon:
        try:
            eventually(address.exists, "the daemon's socket")
            yield str(address)
        finally:
            daemon.terminate()


COMPUTES = """
import gt
x = gt.ones(64, 64)
for _ in range(50):
    x = (x + 1).relu() * 0.5
print(x.sum().item())
"""


def test_two_sessions_share_the_device(cuda: dict[str, str | None], tmp_path: Path) -> None:
    with (
        daemon_of(cuda, tmp_path) as address,
        started(COMPUTES, GT_SOCKET=address) as first,
        started(COMPUTES, GT_SOCKET=address) as second,
    ):
        told = [process.communicate(timeout=120)[0] for process in (first, second)]
    assert told[0] == told[1] != ""


def test_a_client_killed_during_a_fetch_harms_no_other(cuda: dict[str, str | None], tmp_path: Path) -> None:
    fetches = """
import gt
x = gt.ones(1 << 18)
while True:
    (x + 1).numpy()
    print("fetched", flush=True)
"""
    with daemon_of(cuda, tmp_path) as address:
        undisturbed = output_of(COMPUTES, GT_SOCKET=address)
        for _ in range(3):
            with started(fetches, GT_SOCKET=address) as victim, started(COMPUTES, GT_SOCKET=address) as other:
                assert victim.stdout is not None
                assert victim.stdout.readline() == "fetched\n"
                victim.kill()
                assert other.communicate(timeout=120)[0] == undisturbed


def test_a_worker_that_registers_itself_computes_on_the_device(cuda: dict[str, str | None], tmp_path: Path) -> None:
    socket = tmp_path / "gtd.sock"
    program = cuda.get("GT_DAEMON") or gtd()
    device, name = ("emulated-cuda", "emulated:1") if "GT_DAEMON" in cuda else ("cuda:0", "cuda:0")
    env = {**os.environ, "GT_WORKERS": "cpu:1"}
    daemon = subprocess.Popen([program, "--socket", str(socket)], env=env)
    session = """
import gt
from gt import ShardConfig, SignalConfig
from gt.signal import context
gt.register_config("device", SignalConfig(shard=ShardConfig(workers=[1])))
with context("device"):
    x = gt.arange(12.0).reshape(3, 4).requires_grad_()
    loss = (x @ x.T).relu().sum()
    loss.backward()
    bad = x.detach()[gt.tensor([7])]
print(gt.debug.placement(x).workers, loss.item(), x.grad.sum().item(), gt.ones(3).sum().item())
try:
    bad.tolist()
except IndexError as error:
    print(str(error).splitlines()[0])
"""
    try:
        eventually(socket.exists, "the daemon's socket")
        worker = subprocess.Popen(
            [program, "worker", "--connect", f"unix:{socket}", "--device", device], stdout=subprocess.PIPE, text=True
        )
        assert f"as worker {name};" in worker.stdout.readline()
        first, second = output_of(session, GT_SOCKET=str(socket)).splitlines()
        assert first == f"('{name}',) 1134.0 396.0 3.0"
        assert "index 7 is out of bounds for dimension 0 with size 3" in second
        worker.terminate()
        assert worker.wait(60) == 0
    finally:
        daemon.terminate()
        daemon.wait(60)
