"""The processes that `gt.launch` starts: the daemon, a node, and the program; and the signals that it passes on."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import select
import signal
import socket
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from gt._launch_job import LaunchError

_PR_SET_PDEATHSIG = 1
# Signals that the program gets as well, as launchers send them to the processes that they have started alone.
_PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_END_DEADLINE_S = 10.0


class Signals:
    """The signals that have come, as bytes on a socket that `wait_for` watches beside others."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGINT, *_PASSED_ON):
            signal.signal(number, lambda *_: None)

    def fileno(self) -> int:
        """The descriptor, for `wait_for`."""
        return self._reader.fileno()

    def taken(self) -> list[int]:
        """Returns the signals that have come since the last call."""
        try:
            return list(self._reader.recv(4096))
        except BlockingIOError:
            return []


def wait_for(readable: Iterable[Any], timeout_s: float | None) -> list[Any]:
    """Waits until one of these can be read, and returns those that can."""
    by_descriptor = {one.fileno(): one for one in readable}
    poll = select.poll()
    for descriptor in by_descriptor:
        poll.register(descriptor, select.POLLIN)
    ready = poll.poll(None if timeout_s is None else math.ceil(max(0.0, timeout_s) * 1e3))
    return [by_descriptor[descriptor] for descriptor, _ in ready]


def start(command: Sequence[str], *, apart: bool, **options: Any) -> subprocess.Popen[bytes]:
    """Starts a process that gets SIGTERM when this one dies.

    Args:
        command: The program and its arguments.
        apart: Whether it is in a session of its own, so that Ctrl-C does not reach it.
        options: Those of `subprocess.Popen`.
    """
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    # The process has one thread, so that nothing else holds a lock between fork and exec.
    def prepare() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)

    try:
        return subprocess.Popen(command, start_new_session=apart, preexec_fn=prepare, **options)
    except OSError as error:
        raise LaunchError(f"{command[0]} cannot be started: {error.strerror}") from error


def end(process: subprocess.Popen[bytes]) -> None:
    """Ends a process: by SIGTERM, and if that does not help by SIGKILL."""
    process.terminate()
    try:
        process.wait(_END_DEADLINE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextlib.contextmanager
def ended_at_last(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """Ends the process when the block is left."""
    try:
        yield process
    finally:
        if process.poll() is None:
            end(process)


def status_of(process: subprocess.Popen[bytes]) -> int | None:
    """Returns the exit status as a shell tells it; none while the process runs."""
    code = process.poll()
    return 128 - code if code is not None and code < 0 else code


def pass_on(process: subprocess.Popen[bytes], numbers: Iterable[int]) -> None:
    """Sends the process the signals that this one has got and it has not. Ctrl-C reaches both."""
    for number in numbers:
        if number in _PASSED_ON and process.poll() is None:
            process.send_signal(number)


# The devices and cores of a machine whose ranks were given a part each ---------------------------------------------


def own_part() -> dict[str, Any]:
    """Returns the cores and the NVIDIA devices that the launcher gave this rank."""
    return {"cores": sorted(os.sched_getaffinity(0)), "visible": os.environ.get("CUDA_VISIBLE_DEVICES")}


def joined(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Returns what ranks of one machine have together."""
    cores = sorted({core for part in parts for core in part["cores"]})
    visible = [part["visible"] for part in parts]
    if any(devices is None for devices in visible):
        return {"cores": cores, "visible": None}
    names = [name for devices in visible for name in devices.split(",") if name]
    return {"cores": cores, "visible": ",".join(dict.fromkeys(names))}


def take_part(part: dict[str, Any]) -> dict[str, str]:
    """Lets the processes that are started from now on run on these cores, and returns their environment."""
    # A cgroup may allow fewer: then the workers have those of this rank.
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, part["cores"])
    env = {
        name: value for name, value in os.environ.items() if name not in ("GT_LAUNCH_SECRET", "CUDA_VISIBLE_DEVICES")
    }
    if part["visible"] is not None:
        env["CUDA_VISIBLE_DEVICES"] = part["visible"]
    return env
