"""`torch.multiprocessing`: Python's `multiprocessing`, with `spawn`. Tensors travel between processes by value."""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Callable
from multiprocessing import *  # noqa: F403
from typing import Any

from gt import _absent

__all__ = [
    *multiprocessing.__all__,
    "ProcessContext",
    "ProcessException",
    "ProcessExitedException",
    "ProcessRaisedException",
    "get_all_sharing_strategies",
    "get_sharing_strategy",
    "set_sharing_strategy",
    "spawn",
    "start_processes",
]

_absent_getter = _absent.getter(__name__)


def __getattr__(name: str) -> Any:
    return getattr(multiprocessing, name) if hasattr(multiprocessing, name) else _absent_getter(name)


class ProcessException(Exception):  # noqa: N818 (PyTorch's name)
    """A process that `spawn` started has failed.

    Args:
        msg: What happened.
        error_index: The process's number, from 0.
        pid: Its process id.
    """

    def __init__(self, msg: str, error_index: int, pid: int) -> None:
        super().__init__(msg)
        self.msg = msg
        self.error_index = error_index
        self.pid = pid


class ProcessRaisedException(ProcessException):
    """The function raised; the message has its traceback."""


class ProcessExitedException(ProcessException):
    """The process ended by a signal or by a call of `sys.exit`."""

    def __init__(
        self, msg: str, error_index: int, error_pid: int, exit_code: int, signal_name: str | None = None
    ) -> None:
        super().__init__(msg, error_index, error_pid)
        self.exit_code = exit_code
        self.signal_name = signal_name


def _call(fn: Callable[..., Any], i: int, args: tuple[Any, ...], errors: Any) -> None:
    try:
        fn(i, *args)
    except KeyboardInterrupt:
        pass
    except Exception:
        errors.put((i, traceback.format_exc()))
        raise SystemExit(1) from None


class ProcessContext:
    """Processes that run; `join` waits for them."""

    def __init__(self, processes: list[Any], errors: Any) -> None:
        self.processes = processes
        self._errors = errors

    def pids(self) -> list[int]:
        """The process ids."""
        return [int(process.pid) for process in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Waits until all have ended, or one has failed.

        Args:
            timeout: The time in seconds to wait at most.
            grace_period: The time in seconds that the others may take to end after one has failed.

        Returns:
            Whether all have ended.

        Raises:
            ProcessRaisedException: A function raised. The other processes are ended.
            ProcessExitedException: A process ended by a signal or an exit status. The others are ended.
        """
        alive = {process.sentinel: process for process in self.processes if process.is_alive()}
        for sentinel in multiprocessing.connection.wait(alive, timeout) if alive else ():
            # A process closes its sentinel some moments before its exit code is there.
            alive[sentinel].join()
        failed = next((i for i, process in enumerate(self.processes) if process.exitcode), None)
        if failed is None:
            return not any(process.is_alive() for process in self.processes)
        for process in self.processes:
            process.join(grace_period or 0)
            process.terminate()
            process.join()
        process = self.processes[failed]
        if not self._errors.empty():
            i, trace = self._errors.get()
            raise ProcessRaisedException(
                f"\n\n-- Process {i} terminated with the following error:\n{trace}", i, process.pid
            )
        raise ProcessExitedException(
            f"process {failed} terminated with exit code {process.exitcode}", failed, process.pid, process.exitcode
        )


def start_processes(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """Runs `fn(i, *args)` in `nprocs` new processes, `i` from 0.

    Args:
        fn: A function that can be pickled.
        args: Its further arguments.
        nprocs: The number of processes.
        join: Whether to wait for them.
        daemon: Whether they end with this process.
        start_method: `spawn`, `fork` or `forkserver`.

    Returns:
        The processes if `join` is false, else None.

    Raises:
        ProcessRaisedException: A function raised, and `join` is true.
        ProcessExitedException: A process ended otherwise, and `join` is true.
    """
    context = multiprocessing.get_context(start_method)
    errors = context.SimpleQueue()
    started = []
    for i in range(nprocs):
        process = context.Process(target=_call, args=(fn, i, args, errors), daemon=daemon)  # type: ignore[attr-defined]
        process.start()
        started.append(process)
    running = ProcessContext(started, errors)
    if not join:
        return running
    while not running.join():
        pass
    return None


spawn = start_processes


def get_all_sharing_strategies() -> set[str]:
    """The names of the strategies that `set_sharing_strategy` accepts."""
    return {"file_descriptor", "file_system"}


def get_sharing_strategy() -> str:
    """`"file_descriptor"`; it changes nothing, since tensors travel by value."""
    return "file_descriptor"


def set_sharing_strategy(new_strategy: str) -> None:
    """Changes nothing, since tensors travel by value.

    Raises:
        ValueError: There is no strategy of that name.
    """
    if new_strategy not in get_all_sharing_strategies():
        raise ValueError(f"set_sharing_strategy: expected one of {sorted(get_all_sharing_strategies())}, "
                         f"but got {new_strategy!r}")  # fmt: skip
