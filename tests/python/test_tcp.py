"""Sessions by TCP: the same results, access control, and clean ends."""

from __future__ import annotations

import os
import signal
import socket as sockets
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support import TOKEN, alive, environment, eventually, greeting, line_of, message, output_of, server, started

PROLOGUE = """
import gt, os, signal, sys
import numpy as np
def told(f, *args, **kwargs):
    try: f(*args, **kwargs)
    except Exception as error: return f"{type(error).__name__}: {error}"
    return "nothing"
"""


def lines_of(program: str, **env: str | None) -> list[str]:
    return output_of(PROLOGUE + program, **env).splitlines()


# The same tensors -------------------------------------------------------------------------------------------------


def test_a_program_computes_by_tcp(tmp_path: Path) -> None:
    program = """
rng = np.random.default_rng(0)
a, b = rng.standard_normal((2, 50, 50)).astype(np.float32)
x, y = gt.from_numpy(a), gt.from_numpy(b)
x.requires_grad_()
loss = ((x @ y).relu() ** 2).mean()
loss.backward()
z = np.maximum(a @ b, 0)
print(np.allclose(loss.item(), (z**2).mean(), rtol=1e-4), np.allclose(x.grad.numpy(), 2 * z @ b.T / 2500, atol=1e-4))
print(gt.empty(0).tolist(), gt.ones(2, 2, dtype=gt.float64).tolist(), gt.from_numpy(np.zeros((0, 3))).shape)
print(gt._gt.session_info()["address"], gt._gt.session_info()["private"])
print(told(lambda: gt.zeros(3)[gt.tensor([7])].tolist()).split(":")[0])
"""
    with server(tmp_path) as daemon:
        assert lines_of(program, GT_CONNECT=daemon.address, GT_TOKEN=TOKEN) == [
            "True True",
            "[] [[1.0, 1.0], [1.0, 1.0]] gt.Size([0, 3])",
            f"{daemon.address} False",
            "OutOfRangeError",
        ]
        daemon.wait_for_no_sessions()


def test_large_tensors_travel_both_ways(tmp_path: Path) -> None:
    program = """
a = np.arange(16 << 20, dtype=np.float32)
x = gt.from_numpy(a)
print(np.array_equal((x + 1).numpy(), a + 1), gt._gt.session_info()["arena_bytes"] < 1 << 28)
"""
    with server(tmp_path) as daemon:
        assert lines_of(program, GT_CONNECT=daemon.address, GT_TOKEN=TOKEN) == ["True True"]


def test_many_small_operations_are_pipelined(tmp_path: Path) -> None:
    program = """
x = gt.zeros(3)
for i in range(50_000): x = x + 1
print(x.tolist())
y = [gt.full((2,), float(i)).numpy().sum() for i in range(700)]
print(sum(y))
"""
    with server(tmp_path) as daemon:
        assert lines_of(program, GT_CONNECT=daemon.address, GT_TOKEN=TOKEN) == [
            "[50000.0, 50000.0, 50000.0]",
            "489300.0",
        ]


def test_threads_share_a_session(tmp_path: Path) -> None:
    program = """
from concurrent.futures import ThreadPoolExecutor
def work(i):
    a = np.full(200_000, i, np.float32)
    return all(np.array_equal((gt.from_numpy(a) * k).numpy(), a * k) for k in range(20))
with ThreadPoolExecutor(4) as pool: print(list(pool.map(work, range(4))))
"""
    with server(tmp_path) as daemon:
        assert lines_of(program, GT_CONNECT=daemon.address, GT_TOKEN=TOKEN) == ["[True, True, True, True]"]


def test_questions_travel_too(tmp_path: Path) -> None:
    program = """
gt.session("by-tcp")
print(gt.debug.placement(gt.ones(3)), list(gt.debug.comm_stats()), flush=True)
sys.stdin.readline()
"""
    with (
        server(tmp_path) as daemon,
        started(PROLOGUE + program, GT_CONNECT=daemon.address, GT_TOKEN=TOKEN) as client,
    ):
        assert line_of(client) == "on cpu:0 ['cpu:0']"
        (session,) = daemon.sessions()
        assert (session["name"], session["pid"], session["uid"]) == ("by-tcp", client.pid, os.getuid())
        assert session["from"].startswith("127.0.0.1:")


def test_work_is_done_before_a_session_ends(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with server(tmp_path, "--instruction-log", str(log)) as daemon:
        lines_of(
            "x = gt.rand(300, 300)\nfor _ in range(100): x = x @ x + 1\ngt.disconnect()",
            GT_CONNECT=daemon.address,
            GT_TOKEN=TOKEN,
        )
        daemon.process.terminate()
        daemon.process.wait(timeout=30)
    done = [line for line in log.read_text().splitlines() if "WORKER_RECV" in line and "op=matmul" in line]
    assert len(done) == 100


# Access control --------------------------------------------------------------------------------------------------


def error_of(address: str, **env: str | None) -> str:
    (told,) = lines_of(f"print(told(gt.connect, {address!r}))", **env)
    return told


def test_the_token_is_in_a_file_of_the_users_own(tmp_path: Path) -> None:
    home = str(tmp_path / "home")
    with server(tmp_path, GT_TOKEN=None, XDG_CONFIG_HOME=home) as daemon:
        file = tmp_path / "home/gt/token"
        assert file.stat().st_mode & 0o777 == 0o600
        program = f"gt.connect({daemon.address!r}); print(gt.ones(2).tolist())"
        assert lines_of(program, XDG_CONFIG_HOME=home) == ["[1.0, 1.0]"]
        token = file.read_text().strip()
        program = f"gt.connect({daemon.address!r}, token={token!r}); print(gt.ones(2).tolist())"
        assert lines_of(program, XDG_CONFIG_HOME=str(tmp_path)) == ["[1.0, 1.0]"]
        file.chmod(0o644)
        assert "may be read by others" in error_of(daemon.address, XDG_CONFIG_HOME=home)


def test_a_connection_without_the_token_is_refused(tmp_path: Path) -> None:
    with server(tmp_path) as daemon:
        assert error_of(daemon.address, GT_TOKEN=TOKEN + "x") == (
            f"DisconnectedError: the daemon at {daemon.address}: wrong token: take it from the daemon's token file, by "
            "GT_TOKEN or gt.connect(…, token=…)"
        )
        assert error_of(daemon.address, XDG_CONFIG_HOME=str(tmp_path)).startswith(
            "DisconnectedError: connecting by TCP takes the daemon's token: set GT_TOKEN, or copy"
        )
        assert "holds no token" in error_of(daemon.address, GT_TOKEN="short")
        assert daemon.sessions() == []


@contextmanager
def somebody(says: bytes) -> Iterator[str]:
    """Runs a program that is not a daemon: it listens, sends some bytes and closes the connection."""
    with sockets.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(says)

        thread = threading.Thread(target=answer)
        thread.start()
        yield f"localhost:{listener.getsockname()[1]}"
        thread.join()


NOT_GT = "is no GT daemon, or a very old one: is the port right?"
HUNG_UP = "hung up: it is a daemon that ends, or no GT daemon: is the port right?"


@pytest.mark.parametrize(
    ("says", "why"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", NOT_GT),
        (b"GT-TCP\r\n" + b"\xff" * 99, NOT_GT),
        (b"GT-TCP\r\n" + b"\x03\0\0\0\2\0\0\0{}", NOT_GT),
        (b"GT-TCP\r\n", HUNG_UP),
        (b"", HUNG_UP),
    ],
)
def test_a_port_that_is_not_gts(says: bytes, why: str) -> None:
    with somebody(says) as address:
        assert error_of(address, GT_TOKEN=TOKEN) == f"DisconnectedError: what listens at {address} {why}"


def test_a_daemon_of_another_version() -> None:
    with somebody(b"GT-TCP\r\n" + message({"protocol_version": 99})) as address:
        told = error_of(address, GT_TOKEN=TOKEN)
        assert told.startswith(
            f"DisconnectedError: the daemon at {address}: the daemon speaks protocol 99, this gt speaks"
        )


def test_a_port_without_a_listener() -> None:
    told = error_of("localhost:1", GT_TOKEN=TOKEN)
    assert told.startswith("DisconnectedError: cannot connect to the daemon at localhost:1: nobody listens there")


# Clients that do not behave ---------------------------------------------------------------------------------------


def test_invalid_frames_end_their_connection_only(tmp_path: Path) -> None:
    slots = b"\x01\0\0\0" + (64).to_bytes(4, "little")
    data = b"\x02\0\0\0" + (17).to_bytes(4, "little")
    nonsense = [
        b"GET / HTTP/1.1\r\n\r\n",
        greeting(token="wrong"),
        greeting(protocol_version=99),
        greeting(hello={}),
        greeting() + b"\xff" * 64,
        greeting() + slots + b"\xff" * 64,
        greeting() + slots + b"\x02".ljust(64, b"\0"),  # A fetch into an arena that does not exist.
        greeting() + data + b"\0" * 17,  # Bytes for such an arena.
        greeting() + message({"message": "hello"}),
        greeting() + b"\x01\0\0\0" + (1 << 31).to_bytes(4, "little"),
    ]
    with server(tmp_path) as daemon:
        for said in nonsense:
            with sockets.create_connection(("127.0.0.1", daemon.port), timeout=30) as connection:
                connection.sendall(said)
                try:
                    while connection.recv(1 << 16):
                        pass
                except ConnectionResetError:
                    pass
        daemon.wait_for_no_sessions()
        program = "print(gt.ones(2).tolist())"
        assert lines_of(program, GT_CONNECT=daemon.address, GT_TOKEN=TOKEN) == ["[1.0, 1.0]"]


def test_clients_that_are_killed_leave_nothing_behind(tmp_path: Path) -> None:
    program = """
print("ready", flush=True)
while True:
    x = gt.from_numpy(np.ones(300_000, np.float32))
    for _ in range(20): x = x * 2 - x
    x.numpy()
"""
    with server(tmp_path) as daemon:
        before = len(os.listdir(f"/proc/{daemon.process.pid}/fd"))
        for i in range(6):
            with started(PROLOGUE + program, GT_CONNECT=daemon.address, GT_TOKEN=TOKEN) as client:
                line_of(client)
                if i % 2:
                    eventually(daemon.sessions, "a session")
        daemon.wait_for_no_sessions()
        eventually(lambda: len(os.listdir(f"/proc/{daemon.process.pid}/fd")) <= before, "the end of all descriptors")


def test_a_child_does_not_hold_its_parents_session_open(tmp_path: Path) -> None:
    program = """
gt.ones(1).tolist()
child = os.fork()
if child == 0:
    os.closerange(0, 3)
    signal.pause()
print(child, flush=True)
sys.stdin.readline()
"""
    with server(tmp_path) as daemon:
        with started(PROLOGUE + program, GT_CONNECT=daemon.address, GT_TOKEN=TOKEN) as client:
            child = int(line_of(client))
            assert len(daemon.sessions()) == 1
        try:
            daemon.wait_for_no_sessions()
            assert alive(child)
        finally:
            os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_daemon_that_ends_under_load_is_a_clear_error(tmp_path: Path, how: signal.Signals) -> None:
    program = """
x = gt.ones(1000, 1000)
print(x.sum().item(), flush=True)
try:
    for _ in range(1_000_000): x = x @ x
    x.tolist()
except gt.DisconnectedError as error: print(error, flush=True)
sys.stdin.readline()
print(told(gt.ones, 1))
"""
    with (
        server(tmp_path) as daemon,
        started(PROLOGUE + program, GT_CONNECT=daemon.address, GT_TOKEN=TOKEN) as client,
    ):
        assert line_of(client) == "1000000.0"
        daemon.process.send_signal(how)
        assert daemon.process.wait(60) == (0 if how == signal.SIGTERM else -how)
        lost = line_of(client)
        client.stdin.write("\n")
        client.stdin.flush()
        again = line_of(client)
    if how == signal.SIGTERM:
        ended = f"the GT daemon (pid {daemon.process.pid}) was stopped by its administrator (signal {how}); its tensors"
    else:
        ended = f"the GT daemon at {daemon.address} closed the session or is gone: its tensors"
    assert lost.startswith(f"{ended} are lost")
    assert again.startswith(
        f"DisconnectedError: cannot connect to the daemon at {daemon.address}: nobody listens there"
    )


# python -m gt.server ----------------------------------------------------------------------------------------------


def test_a_port_that_is_taken_is_said(tmp_path: Path) -> None:
    with server(tmp_path) as daemon:
        done = subprocess.run(
            [sys.executable, "-m", "gt.server", "-p", str(daemon.port)],
            env=environment(GT_TOKEN=TOKEN),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 1
    assert f"cannot listen at 127.0.0.1:{daemon.port}" in done.stderr


def test_ctrl_c_ends_a_server(tmp_path: Path) -> None:
    with server(tmp_path) as daemon:
        daemon.process.send_signal(signal.SIGINT)
        assert daemon.process.wait(timeout=30) == 0
        assert daemon.process.stderr.read() == ""
