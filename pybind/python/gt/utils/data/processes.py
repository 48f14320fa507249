"""The worker processes of a `DataLoader`, as the process that reads sees them: `Workers`.

Each worker has a connection of its own. Batches are asked for in turn, a few ahead, and handed out in that order.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import weakref
from collections.abc import Callable, Iterator
from itertools import repeat
from multiprocessing import connection
from typing import Any

from gt.utils.data import transport
from gt.utils.data.inherited import Inherited
from gt.utils.data.worker import End, Failure, Reading, Role, Start, run

# The time that a worker has to end by itself, once it is told to.
END_S = 5.0


class Workers:
    """Worker processes, and the batches of one epoch after the other.

    Args:
        reading: How to read.
        count: The number of processes.
        ahead: The number of batches that are asked for in advance, for each process.
        base_seed: The seed of worker 0's random numbers.
        init: A function of a worker's number, called first in it.
        context: A context of `multiprocessing`, or the name of its start method; the default one if `None`.
        timeout: The time in seconds to wait for a batch; 0 for no limit.
        in_order: Whether batches are handed out in the order in which they were asked for.
    """

    def __init__(
        self,
        reading: Reading,
        count: int,
        *,
        ahead: int,
        base_seed: int,
        init: Callable[[int], Any] | None,
        context: Any,
        timeout: float,
        in_order: bool,
    ) -> None:
        if not hasattr(context, "Process"):
            context = multiprocessing.get_context(context)
        self.count, self.ahead, self.timeout, self.in_order = count, ahead, timeout, in_order
        forks = context.get_start_method() == "fork"
        # Taken once for all workers: a fork copies this memory only where it is written to.
        inherited = Inherited(reading, init) if forks else None
        self.connections: list[connection.Connection] = []
        self.processes: list[Any] = []
        for number in range(count):
            here, there = context.Pipe()
            self.connections.append(here)
            role = Role(number, count, base_seed, init, tuple(self.connections) if forks else (), inherited)
            process = context.Process(target=run, args=(there, reading, role), daemon=True)
            process.start()
            there.close()
            self.processes.append(process)
        self._finalizer = weakref.finalize(self, _end, self.processes, self.connections, os.getpid())
        self._place = 0

    def begin(self, indices: Iterator[Any] | None) -> None:
        """Begins an epoch.

        Args:
            indices: What to ask the workers for; `None` for an `IterableDataset`, of which each reads its share.
        """
        self._indices: Iterator[Any] = repeat(None) if indices is None else indices
        self._active = [True] * self.count
        # The worker of each batch that is awaited or not handed out yet, in order, and the batches that have come.
        self._asked: dict[int, int] = {}
        self._arrived: dict[int, Any] = {}
        self._turn = 0
        for number in range(self.count):
            self._send(number, Start())
        for _ in range(self.ahead * self.count):
            self._ask()

    def end(self) -> None:
        """Ends the processes."""
        self._finalizer()

    def _send(self, number: int, message: Any) -> None:
        try:
            transport.send(self.connections[number], message)
        except (BrokenPipeError, ConnectionResetError):
            self._lost()

    def _ask(self) -> None:
        """Asks the next active worker for the next batch, if there is one."""
        for _ in range(self.count):
            number = self._turn
            self._turn = (self._turn + 1) % self.count
            if self._active[number]:
                break
        else:
            return
        try:
            index = next(self._indices)
        except StopIteration:
            return
        self._asked[self._place] = number
        self._send(number, (self._place, index))
        self._place += 1

    def next(self) -> Any:
        """The next batch.

        Raises:
            StopIteration: There are no more.
            RuntimeError: A worker has ended, or there was no batch in time.
            Exception: An exception of a worker, with its traceback in the message.
        """
        while self._asked:
            place = next(iter(self._asked)) if self.in_order else next(iter(self._arrived), None)
            if place not in self._arrived:
                self._receive()
                continue
            number, batch = self._asked.pop(place), self._arrived.pop(place)
            if isinstance(batch, End):
                if self._active[number]:
                    # This worker's further answers would be the same.
                    self._active[number] = False
                    for later in [place for place, its in self._asked.items() if its == number]:
                        del self._asked[later]
                        self._arrived.pop(later, None)
                self._ask()
                continue
            self._ask()
            if isinstance(batch, Failure):
                batch.raise_again()
            return batch
        raise StopIteration

    def _receive(self) -> None:
        """Waits for answers, and keeps those that are still of use."""
        sentinels = [process.sentinel for process in self.processes]
        ready = connection.wait([*self.connections, *sentinels], self.timeout or None)
        if not ready:
            raise RuntimeError(f"DataLoader timed out after {self.timeout} seconds")
        readable = [item for item in ready if isinstance(item, connection.Connection)]
        if not readable:
            self._lost()
        for item in readable:
            try:
                place, batch = transport.receive(item)
            except (EOFError, ConnectionResetError):
                self._lost()
            if place in self._asked:
                self._arrived[place] = batch

    def _lost(self) -> None:
        """Raises the error that workers have ended."""
        for process in self.processes:
            process.join(0.1)
        gone = [process for process in self.processes if process.exitcode is not None]
        pids = ", ".join(str(process.pid) for process in gone)
        codes = ", ".join(
            f"by signal {-process.exitcode}" if process.exitcode < 0 else f"with status {process.exitcode}"
            for process in gone
        )
        self.end()
        raise RuntimeError(
            f"DataLoader worker (pid(s) {pids}) exited unexpectedly, {codes}. With num_workers=0, the error shows in "
            "this process"
        )


def _end(processes: list[Any], connections: list[connection.Connection], owner: int) -> None:
    """Ends worker processes; a fork of the process that started them leaves them alone."""
    if os.getpid() != owner:
        return
    for link in connections:
        with contextlib.suppress(OSError):  # The worker may have ended already.
            transport.send(link, None)
        link.close()
    for process in processes:
        process.join(END_S)
        if process.is_alive():
            process.terminate()
            process.join()
