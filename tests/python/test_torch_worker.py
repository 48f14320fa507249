"""A worker that computes with PyTorch: `python -m gt.worker --backend torch`, and `--workers torch-cpu:1`.

Where this Python has no PyTorch, `GT_TORCH_PYTHON` names one that has it (`make test-torch` does).
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support import daemon, environment, eventually, gtd, line_of, output_of, python, wait_for_exit

import gt.worker

TORCH_PYTHON = os.environ.get("GT_TORCH_PYTHON") or sys.executable
needs_torch = pytest.mark.skipif(
    "GT_TORCH_PYTHON" not in os.environ and importlib.util.find_spec("torch") is None,
    reason="this Python has no PyTorch, and GT_TORCH_PYTHON names no other",
)
ROOT = Path(__file__).resolve().parent.parent.parent
# One thread, so that PyTorch's do not wait for each other on a busy machine.
SETTINGS = {"GT_TORCH_PYTHON": TORCH_PYTHON, "OMP_NUM_THREADS": "1", "GT_DAEMON": str(gtd())}


def on(workers: str, program: str, **env: str) -> str:
    """Returns what a program prints whose private daemon has these workers."""
    return output_of(program, GT_WORKERS=workers, **SETTINGS, **env)


def workers(socket: Path) -> dict[str, dict]:
    """Returns the daemon's workers by name."""
    done = subprocess.run(
        [gtd().with_name("gtctl"), "status", "--json", "--socket", str(socket)],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    return {worker["name"]: worker for worker in json.loads(done.stdout)["workers"]}


def children(pid: int) -> list[int]:
    """Returns the processes that a process has started."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


# At work ----------------------------------------------------------------------------------------------------------


@needs_torch
def test_it_joins_a_daemon_is_listed_and_signals_place_on_it(tmp_path: Path) -> None:
    socket = tmp_path / "gtd.sock"
    program = """
import gt
from gt import ShardConfig, SignalConfig
from gt.signal import context
gt.register_config("theirs", SignalConfig(shard=ShardConfig(workers=[1])))
gt.register_config("rows", SignalConfig(shard=ShardConfig(axis=0)))
with context("theirs"):
    a = gt.arange(6.0).reshape(2, 3)
    product = a @ a.T
print(gt.debug.placement(product).workers, product.tolist())
with context("rows"):
    y = gt.ones(8, 3) * 2
print(gt.debug.placement(y).workers, y.sum().item(), (y @ gt.ones(3, 2)).sum().item())
"""
    with daemon(socket, "--threads", "1"):
        process = subprocess.Popen(
            [sys.executable, "-m", "gt.worker", "--backend", "torch", "--connect", f"unix:{socket}", "--memory", "64M"],
            env=environment(**SETTINGS),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert line_of(process) == f"joined the daemon at unix:{socket} as worker torch-cpu:1; Ctrl-C leaves"
            found = workers(socket)["torch-cpu:1"]
            assert (found["kind"], found["process"], found["state"]) == ("torch-cpu", process.pid, "running")
            assert found["memory_bytes_limit"] == 64 << 20
            assert output_of(program, GT_SOCKET=str(socket)).splitlines() == [
                "('torch-cpu:1',) [[5.0, 14.0], [14.0, 50.0]]",
                "('cpu:0', 'torch-cpu:1') 48.0 96.0",
            ]
            (torch_process,) = children(process.pid)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
            assert (process.returncode, out) == (0, "")
            assert err == f"left the daemon at unix:{socket}\n"
            wait_for_exit(torch_process)
        finally:
            process.kill()
            process.communicate()


@needs_torch
def test_errors_are_those_of_every_worker() -> None:
    out = on(
        "torch-cpu:1",
        """
import gt
y = gt.arange(4)
bad = y[gt.tensor([1, 9])] + 1
print((y + 1).tolist())
try:
    bad.tolist()
except IndexError as error:
    print(type(error).__name__, str(error).splitlines()[0])
try:
    (y // gt.tensor(0)).tolist()
except RuntimeError as error:
    print(str(error).splitlines()[0])
""",
    )
    after, index, division = out.splitlines()
    assert after == "[1, 2, 3, 4]"
    assert "index 9 is out of bounds for dimension 0 with size 4" in index
    assert "ZeroDivisionError" in division


@needs_torch
def test_memory_is_counted_and_limited() -> None:
    out = on(
        "torch-cpu:1",
        """
import gt
x = gt.ones(1 << 20)
view = x.reshape(1024, 1024).T[3:]
held = gt._gt.worker_status()[0]["memory_bytes"] >> 20
print(view.sum().item(), gt.cuda.memory_allocated() if gt.cuda.is_available() else held)
try:
    print(gt.ones(40 << 20).sum().item())
except gt.OutOfMemoryError as error:
    print("too much" if "memory" in str(error) else error)
print(gt.ones(1 << 20).sum().item())
""",
        GT_MEMORY="64M",
    )
    assert out.splitlines()[-1] == "1048576.0"


@needs_torch
def test_uniform_random_numbers_are_those_of_every_worker() -> None:
    program = """
import gt
gt.manual_seed(5)
for dtype in (gt.float32, gt.float64, gt.bfloat16, gt.float16):
    print(gt.rand(1000, dtype=dtype).tolist())
print(gt.randint(-7, 1 << 40, (1000,)).tolist(), gt.randperm(100).tolist())
"""
    assert on("torch-cpu:1", program) == on("cpu:1", program)


@needs_torch
def test_a_gpt_learns_as_on_gts_own_backend() -> None:
    program = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
import numpy as np
import gt
from tests.parity.gpt import Config, build
gt.manual_seed(1)
config = Config(layers=2, channels=64, context=32)
model = build(gt, config)
optimizer = gt.optim.AdamW(model.parameters(), lr=3e-3)
text = np.random.default_rng(1).integers(0, 40, (4, config.context + 1))
tokens, targets = gt.from_numpy(text[:, :-1].copy()), gt.from_numpy(text[:, 1:].copy())
for _ in range(40):
    loss = model(tokens, targets)
    optimizer.zero_grad()
    loss.backward()
    gt.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    print(loss.item())
"""
    ours, theirs = ([float(line) for line in on(kind, program).splitlines()] for kind in ("cpu:1", "torch-cpu:1"))
    assert ours[-1] < ours[0] / 2, "it learns"
    assert all(math.isclose(a, b, rel_tol=1e-3) for a, b in zip(ours, theirs, strict=True)), (ours, theirs)


@needs_torch
def test_a_process_of_pytorch_that_dies_is_a_lost_worker_which_starts_again(tmp_path: Path) -> None:
    socket = tmp_path / "gtd.sock"
    program = """
import sys
import gt
x = gt.ones(5) * 2
print(x.sum().item(), flush=True)
sys.stdin.readline()
try:
    print(x.sum().item())
except RuntimeError as error:
    print("torch-cpu:0" in str(error), flush=True)
"""
    with daemon(socket, "--workers", "torch-cpu:1", **SETTINGS):
        eventually(lambda: workers(socket)["torch-cpu:0"]["state"] == "running", "the worker", deadline_s=120)
        with subprocess.Popen(
            [sys.executable, "-c", program],
            env=environment(GT_SOCKET=str(socket)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as session:
            assert line_of(session) == "10.0"
            (torch_process,) = children(workers(socket)["torch-cpu:0"]["process"])
            os.kill(torch_process, signal.SIGKILL)
            wait_for_exit(torch_process)
            out, err = session.communicate("\n", timeout=60)
            assert (out, err) == ("True\n", "")
        eventually(lambda: workers(socket)["torch-cpu:0"]["state"] == "running", "another process", deadline_s=120)
        assert output_of("import gt; print(gt.ones(3).sum().item())", GT_SOCKET=str(socket)) == "3.0\n"


# Refusals --------------------------------------------------------------------------------------------------------


@needs_torch
def test_a_device_that_pytorch_lacks_is_named_with_what_to_do(tmp_path: Path) -> None:
    with daemon(tmp_path / "gtd.sock"):
        done = subprocess.run(
            [
                *(sys.executable, "-m", "gt.worker", "--backend", "torch", "--device", "xpu:7"),
                *("--connect", f"unix:{tmp_path / 'gtd.sock'}"),
            ],
            env=environment(**SETTINGS),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("gtd worker: xpu:7 is asked for, but PyTorch ")
    assert len(done.stderr.splitlines()) == 1


def test_a_python_without_pytorch_says_how_to_get_it(tmp_path: Path) -> None:
    # This file hides PyTorch where it is installed.
    (tmp_path / "torch.py").write_text("raise ImportError('no PyTorch here')\n")
    with daemon(tmp_path / "gtd.sock"):
        done = subprocess.run(
            [gtd(), "worker", "--device", "torch-cpu", "--connect", f"unix:{tmp_path / 'gtd.sock'}"],
            env=environment(GT_TORCH_PYTHON=sys.executable, PYTHONPATH=str(tmp_path)),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"gtd worker: PyTorch cannot be imported by {sys.executable} (no PyTorch here): install it there, as pip "
        "install 'gt-tensor[torch]' does, or name a Python that has it in GT_TORCH_PYTHON\n"
    )


def test_an_invalid_start_prints_one_error(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    monkeypatch.delenv("GT_TORCH_PYTHON", raising=False)
    for arguments, why in [
        (["--device", "tpu:0"], "--device tpu:0: PyTorch computes on cpu, mps, or one of cuda, hip and xpu with the"),
        (["--device", "cuda:x"], "--device cuda:x: PyTorch computes on"),
        (["--device", "cpu:1"], "--device cpu:1: PyTorch computes on"),
        (["--device", "cpu"], f"--backend torch: {sys.executable} has no PyTorch: install it there, as pip install"),
        (["--join", "line"], "with --join write --workers torch-cpu:1"),
    ]:
        with pytest.raises(SystemExit):
            gt.worker.main(["--backend", "torch", *arguments])
        assert why in capsys.readouterr().err


def test_a_daemon_whose_worker_cannot_start_says_why() -> None:
    done = python(
        "import gt; print(gt.ones(2).tolist())",
        GT_WORKERS="torch-cpu:1",
        GT_TORCH_PYTHON="/nowhere/python3",
        GT_DAEMON=str(gtd()),
    )
    assert done.returncode != 0
    assert "/nowhere/python3" in done.stderr
