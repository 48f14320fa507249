"""Helpers of the tests: arrays of every dtype, comparisons, and child processes."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import gt

ROOT = Path(__file__).resolve().parents[2]

# In the background, tests may have inherited an ignored SIGINT, and their programs would not be interrupted either.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

BOOL = ("bool",)
SIGNED = ("int8", "int16", "int32", "int64")
INTEGERS = ("uint8", *SIGNED)
FLOATS = ("float16", "bfloat16", "float32", "float64")
DTYPES = (*BOOL, *INTEGERS, *FLOATS)

# The relative and absolute tolerance of results: some units in the last place.
TOLERANCE = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 2e-5, "float64": 1e-11}


def dtype_of(name: str) -> Any:
    """Returns `gt.float32` for `"float32"`."""
    return getattr(gt, name)


def name_of(dtype: Any) -> str:
    """Returns `"float32"` for `gt.float32`."""
    return str(dtype).removeprefix("gt.")


def as_bfloat16(array: np.ndarray) -> np.ndarray:
    """Rounds each element to bfloat16, ties to even, and returns it as float32."""
    bits = np.asarray(array, np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return np.where(np.isfinite(array), rounded.astype(np.uint32).view(np.float32), np.asarray(array, np.float32))


def quantized(array: np.ndarray, dtype: str) -> np.ndarray:
    """Rounds an array to values of `dtype`, in NumPy's closest dtype."""
    if dtype == "bfloat16":
        return as_bfloat16(array)
    if dtype == "float16" and np.asarray(array).dtype == np.float64:
        array = np.asarray(array, np.float32)  # PyTorch, too, converts to float16 through float32.
    return np.asarray(array).astype(dtype)


def to_gt(array: np.ndarray, dtype: str) -> gt.Tensor:
    """Makes a tensor of `dtype` from an array."""
    t = gt.tensor(quantized(array, dtype))
    return t.to(gt.bfloat16) if dtype == "bfloat16" else t


def to_numpy(t: gt.Tensor) -> np.ndarray:
    """Returns the elements; floats as float64."""
    t = t.detach()
    if t.dtype == gt.bfloat16:
        t = t.to(gt.float32)
    array = t.numpy()
    return array.astype(np.float64) if array.dtype.kind == "f" else array


def draw(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: str, low: float = -3.0, high: float = 3.0
) -> np.ndarray:
    """Returns random numbers of `dtype` between `low` and `high`."""
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype in INTEGERS:
        low = max(low, 0) if dtype == "uint8" else low
        return quantized(rng.integers(math.ceil(low), math.floor(high) + 1, shape), dtype)
    return quantized(rng.uniform(low, high, shape), dtype)


def assert_close(got: gt.Tensor, wanted: Any, dtype: str | None = None, tolerance: float | None = None) -> None:
    """Asserts the shape, the dtype (if named) and the elements of a tensor."""
    wanted = np.asarray(wanted)
    assert tuple(got.shape) == wanted.shape
    if dtype is not None:
        assert name_of(got.dtype) == dtype
    near = TOLERANCE.get(name_of(got.dtype), 0.0) if tolerance is None else tolerance
    if near == 0.0:
        np.testing.assert_array_equal(to_numpy(got), wanted)
    else:
        np.testing.assert_allclose(to_numpy(got), wanted.astype(np.float64), rtol=near, atol=near)


def numeric_gradient(
    f: Callable[..., np.ndarray], arrays: list[np.ndarray], which: int, step: float = 1e-6
) -> np.ndarray:
    """Returns the gradient of the sum of `f` with respect to `arrays[which]`, by central differences."""
    base = arrays[which]
    result = np.zeros(base.shape)
    for place in np.ndindex(base.shape):
        sides = []
        for sign in (1, -1):
            moved = base.copy()
            moved[place] += sign * step
            sides.append(np.sum(f(*arrays[:which], moved, *arrays[which + 1 :])))
        result[place] = (sides[0] - sides[1]) / (2 * step)
    return result


# Processes ------------------------------------------------------------------------------------------------------

DEADLINE_S = 30.0


def eventually(condition: Callable[[], Any], what: str, deadline_s: float = DEADLINE_S) -> Any:
    """Polls until `condition()` is true, and returns its value; for conditions that cannot be waited for otherwise."""
    end = time.monotonic() + deadline_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {deadline_s:.0f} s: {what}")
        time.sleep(0.005)


def state(pid: int) -> str:
    """Returns the state of a process: `R` for running, `S` for sleeping, `Z` for a zombie; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def alive(pid: int) -> bool:
    """Returns whether the process exists and is not a zombie."""
    return state(pid) not in ("", "Z")


def wait_for_exit(pid: int) -> None:
    """Waits until a process has ended."""
    eventually(lambda: not alive(pid), f"the end of process {pid}")


def environment(**changes: str | None) -> dict[str, str]:
    """Returns the environment without GT's variables, and with `changes`."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("GT_")}
    env |= {name: value for name, value in changes.items() if value is not None}
    return env


def python(program: str, **env: str | None) -> subprocess.CompletedProcess[str]:
    """Runs a program in a new Python process, whatever its exit status."""
    return subprocess.run(
        [sys.executable, "-c", program],
        env=environment(**env),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def output_of(program: str, **env: str | None) -> str:
    """Runs a program that has to succeed without errors, and returns its output."""
    done = python(program, **env)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


@contextmanager
def started(program: str, **env: str | None) -> Iterator[subprocess.Popen[str]]:
    """Starts a program, and kills it afterwards if it still runs."""
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        env=environment(**env),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def line_of(process: subprocess.Popen[str]) -> str:
    """Returns the next line that a program prints; fails with its errors if it has ended."""
    assert process.stdout is not None
    assert process.stderr is not None
    line = process.stdout.readline()
    assert line, process.stderr.read()
    return line.strip()


def gtd() -> Path:
    """Returns the path of the daemon that `import gt` would start."""
    if named := os.environ.get("GT_DAEMON"):
        return Path(named)
    found = Path(sysconfig.get_path("scripts"), "gtd")
    return found if found.is_file() else Path(shutil.which("gtd") or "gtd")


def sockets() -> set[str]:
    """Returns the names of GT's Unix sockets, including abstract ones."""
    return {
        line.split()[-1] for line in Path("/proc/net/unix").read_text().splitlines() if "@gt-" in line or "gtd" in line
    }


@contextmanager
def daemon(socket: Path | str, *options: str, **env: str | None) -> Iterator[subprocess.Popen[str]]:
    """Starts a daemon, and waits until it listens."""
    process = subprocess.Popen(
        [gtd(), "--socket", str(socket), *options], env=environment(**env), stderr=subprocess.PIPE, text=True
    )
    try:
        eventually(lambda: str(socket) in sockets() or process.poll() is not None, "the daemon's socket")
        yield process
    finally:
        process.kill()
        process.communicate()


# The token of sessions by TCP.
TOKEN = "test-token-0123456789"


class Server(NamedTuple):
    """A daemon that also listens on a TCP port."""

    process: subprocess.Popen[str]
    port: int
    socket: str

    @property
    def address(self) -> str:
        """The address for `gt.connect`."""
        return f"localhost:{self.port}"

    def sessions(self) -> list[dict]:
        """The daemon's sessions, from `gtctl status`."""
        done = subprocess.run(
            [gtd().with_name("gtctl"), "status", "--json", "--socket", self.socket],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
        return json.loads(done.stdout)["sessions"]

    def wait_for_no_sessions(self) -> None:
        """Waits until no session is left."""
        eventually(lambda: self.sessions() == [], "the end of all sessions")


@contextmanager
def server(tmp_path: Path, *options: str, **env: str | None) -> Iterator[Server]:
    """Runs `python -m gt.server` on a free port."""
    socket = str(tmp_path / "gtd.sock")
    process = subprocess.Popen(
        [sys.executable, "-m", "gt.server", "-p", "0", "--socket", socket, *options],
        # The daemon's certificate is made below the test's folder.
        env=environment(
            **{"GT_DAEMON": str(gtd()), "GT_TOKEN": TOKEN, "XDG_CONFIG_HOME": str(tmp_path / "config"), **env}
        ),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        ready, unix, tcp, _ = [line_of(process) for _ in range(4)]
        assert ready.startswith("gtd ")
        assert unix == f'gt.connect("unix:{socket}")'
        yield Server(process, int(tcp.removeprefix('gt.connect("localhost:').removesuffix('")')), socket)
    finally:
        process.kill()
        process.communicate()


def message(document: object) -> bytes:
    """Returns a message as it travels by TCP."""
    text = json.dumps(document).encode()
    return b"\x03\0\0\0" + len(text).to_bytes(4, "little") + text


def greeting(**changes: object) -> bytes:
    """Returns the first bytes of a client by TCP that begins a session."""
    hello = {"protocol_version": 1, "client_version": "0", "role": "client"}
    document = {"protocol_version": 1, "token": TOKEN, "wish": "session", "pid": 1, "hello": hello, **changes}
    return b"GT-TCP\r\n" + message(document)
