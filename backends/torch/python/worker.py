"""The loop of the process: takes messages from the worker, computes, and answers at fences.

A message is `(number, label, out, operands, attributes)`: the function of this number is called with the operands,
tensors by number or a number in a tuple, and the attributes, and its result becomes the tensor `out`. What fails
leaves a `Failure` in place of the tensor, and so does what is computed from that; a read of it answers with the error.
"""

from __future__ import annotations

import gc
import os
import pickle
import platform
import re
import select
import socket
import struct
import time
import traceback
import warnings
from collections import deque
from collections.abc import Callable
from mmap import mmap
from typing import Any

import torch

from gt_torch import alignments, checks, elementwise, philox, reductions, rows, structure, windows
from gt_torch.checks import NO_ROOM, OTHER, FoundError, Pending

Message = tuple[int, int, int, tuple, tuple]

FREE, ALLOCATE, WRITE, READ, FENCE, COPY, TRIM, PRECISION = range(1, 9)
OPS_FROM = 16
# A fence's number, nanoseconds of computing and of copying, the kind of the error, its op, its label, three numbers.
ANSWER = struct.Struct("<QQQIIQqqq")
RECEIVED_BYTES_MAX = 1 << 20
# How long the process sleeps between looks at its device, while nothing comes.
NAP_SECONDS = 50e-6
# The part of a device's memory, and of the machine's, that tensors may take without another limit.
DEVICE_SHARE, MACHINE_SHARE = 0.9, 0.75
TEXT_MAX = 2000

TABLE: dict[str, Callable[..., torch.Tensor]] = {
    **elementwise.OPS,
    **structure.OPS,
    **reductions.OPS,
    **windows.OPS,
    **alignments.OPS,
    **rows.OPS,
    **philox.OPS,
}


class Failure:
    """In place of a tensor that could not be computed: the answer to a read of it."""

    __slots__ = ("kind", "label", "number", "numbers", "text")

    def __init__(self, label: int, number: int, error: FoundError) -> None:
        self.label, self.number = label, number
        self.kind, self.numbers, self.text = error.kind, (*error.numbers, 0, 0, 0)[:3], error.text


class Unusable(Exception):  # noqa: N818
    """A device that PyTorch cannot compute on."""


class PassedEvent:
    """An event of a device that has done its work when a call returns."""

    def record(self) -> None:
        """Records nothing: the work is done."""

    def query(self) -> bool:
        """Returns True: the work is done."""
        return True

    def elapsed_time(self, _: PassedEvent) -> float:
        """Returns 0: the host measures the time."""
        return 0.0


class Device:
    """A device of PyTorch: its name, memory and events."""

    def __init__(self, name: str) -> None:
        kind, _, number = name.partition(":")
        self.torch = torch.device("cuda" + name[3:] if kind == "hip" else name)
        self.is_processor = kind == "cpu"
        self.module = None if self.is_processor else getattr(torch, self.torch.type, None)
        self.name, self.capability, self.multiprocessors = platform.machine(), (0, 0), 0
        self.memory_bytes = int(machine_bytes() * MACHINE_SHARE)
        if self.is_processor:
            return
        version = f"PyTorch {torch.__version__}"
        advice = (
            f"install a build of PyTorch for it, from https://pytorch.org/get-started, for {kind} devices; or compute "
            "on --device cpu"
        )
        is_hip = torch.version.hip is not None
        available = (
            self.module is not None
            and self.module.is_available()
            and (kind not in ("hip", "cuda") or (is_hip == (kind == "hip")))
        )
        if kind == "cuda" and is_hip:
            raise Unusable(f"{name} is asked for, but {version} is built for AMD devices: ask for hip:{number or 0}")
        if not available:
            raise Unusable(f"{name} is asked for, but {version} sees no {kind} device here: {advice}")
        count = self.module.device_count()
        if int(number or 0) >= count:
            seen = ", ".join(f"{kind}:{i}" for i in range(count))
            raise Unusable(f"{name} is asked for, but {version} sees {seen} only: ask for one of these")
        if hasattr(self.module, "set_device"):
            self.module.set_device(self.torch)
        if hasattr(self.module, "get_device_properties"):
            properties = self.module.get_device_properties(self.torch)
            self.name = properties.name
            self.memory_bytes = int(properties.total_memory * DEVICE_SHARE)
            self.capability = (getattr(properties, "major", 0), getattr(properties, "minor", 0))
            self.multiprocessors = getattr(properties, "multi_processor_count", 0)

    def event(self) -> Any:
        """Returns a new event that measures time."""
        return PassedEvent() if self.is_processor else self.module.Event(enable_timing=True)

    def trim(self) -> None:
        """Gives cached memory back."""
        gc.collect()
        if hasattr(self.module, "empty_cache"):
            self.module.empty_cache()

    def pin(self, memory: torch.Tensor) -> bool:
        """Registers host memory with the device, which can then copy without waiting; False if that is impossible."""
        if self.torch.type != "cuda":
            return False
        return int(torch.cuda.cudart().cudaHostRegister(memory.data_ptr(), memory.nbytes, 0)) == 0


def machine_bytes() -> int:
    """Returns the memory that this process may use: the machine's, or the limit of its control group."""
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    try:
        with open("/proc/self/cgroup") as groups:
            own = next((line[3:].strip() for line in groups if line.startswith("0::")), "/")
        with open(f"/sys/fs/cgroup{own}/memory.max") as limit:
            limits.append(int(limit.read()))
    except (OSError, ValueError):
        # There is no such group, or it has no limit.
        pass
    return min(limits)


def bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the bytes of a contiguous tensor."""
    flat = tensor.view(-1)
    # A single element may have any stride.
    return (flat if flat.stride(0) == 1 else flat.as_strided(flat.shape, (1,))).view(torch.uint8)


class Passing:
    """A fence that the device has not passed: what is to be looked at and answered then."""

    __slots__ = ("checks", "computed_ns", "copied_ns", "event", "fence", "outcomes", "read", "since")

    def __init__(self, fence: int, event: Any, since: Any, read: int) -> None:
        self.fence, self.event, self.since, self.read = fence, event, since, read
        self.computed_ns, self.copied_ns = 0, 0
        self.checks: list[tuple[Pending, int, int, int]] = []
        self.outcomes: torch.Tensor | None = None


class Worker:
    """The tensors of this process, and the functions that messages call."""

    def __init__(self, device: Device, staging: torch.Tensor, ops: list[tuple[int, str]]) -> None:
        self.device, self.staging = device, staging
        self.pinned = device.pin(staging)
        self.tensors: dict[int, Any] = {}
        self.answers: list[bytes] = []
        self.computed_ns = 0
        self.begun_ns = 0
        # A tensor that is read in pieces, and its contiguous copy.
        self.straight: tuple[int, torch.Tensor] | None = None
        self.passing: deque[Passing] = deque()
        self.since: Any = None
        # Checks that no fence is behind; and, while any check is open, the tensors that were made since.
        self.unfenced_checks: list[tuple[Pending, int, int, int]] = []
        self.journal: list[tuple[int, tuple]] = []
        self.failed_late: dict[int, Failure] = {}
        self.missing = [name for _, name in ops if name not in TABLE and name not in structure.VIEWS]
        self.functions: list[Callable[..., Any]] = [self.unknown] * (1 + max(number for number, _ in ops))
        for number, name in ops:
            self.functions[number] = structure.VIEWS.get(name) or TABLE.get(name, self.unknown)
        views = {number for number, name in ops if name in structure.VIEWS}
        # Results of these must be contiguous, as the worker takes them to be.
        self.makes = bytes(number >= OPS_FROM and number not in views for number in range(len(self.functions)))
        controls = (self.free, self.allocate, self.write, self.read, self.fence, self.copy, self.trim, self.precision)
        self.functions[FREE : PRECISION + 1] = controls

    def unknown(self, *_: Any) -> None:
        """Refuses an op that this program has no function for."""
        raise FoundError(OTHER, text="the worker that computes with PyTorch has no function for this op")

    # Messages that are no op ------------------------------------------------------------------------------------------

    def free(self, *ids: int) -> None:
        """Drops the tensors with these numbers."""
        for number in ids:
            self.tensors.pop(number, None)

    def allocate(self, shape: tuple[int, ...], dtype: int) -> torch.Tensor:
        """Makes a tensor whose elements are written later; they are zeros, not what another session left there."""
        return torch.zeros(shape, dtype=elementwise.DTYPES[dtype], device=self.device.torch)

    def copy(self, of: int) -> Any:
        """Copies a tensor to memory of its own."""
        tensor = self.tensors[of]
        return tensor if isinstance(tensor, Failure) else tensor.clone(memory_format=torch.contiguous_format)

    def write(self, number: int, offset: int, count: int, staged: int) -> None:
        """Copies bytes of the shared memory into a tensor; any byte but 0 is a true bool."""
        tensor = self.tensors[number]
        if isinstance(tensor, Failure) or not count:
            return
        source = self.staging[staged : staged + count]
        if tensor.dtype == torch.bool:
            source = (source != 0).view(torch.uint8)
        bytes_of(tensor)[offset : offset + count].copy_(source, non_blocking=self.pinned)

    def read(self, fence: int, number: int, offset: int, count: int, staged: int) -> None:
        """Copies bytes of a tensor to the shared memory, and answers when they are there."""
        tensor = self.tensors[number]
        if isinstance(tensor, Failure):
            self.answer_at(fence, number, tensor)
            return
        begun = time.perf_counter_ns()
        if count:
            if not tensor.is_contiguous():
                if self.straight is None or self.straight[0] != number:
                    self.straight = (number, tensor.contiguous())
                tensor = self.straight[1]
            elements = bytes_of(tensor)[offset : offset + count]
            self.staging[staged : staged + count].copy_(elements, non_blocking=self.pinned)
        copied_ns = time.perf_counter_ns() - begun if self.device.is_processor else 0
        self.begun_ns += copied_ns
        self.answer_at(fence, number, None, copied_ns)

    def fence(self, fence: int) -> None:
        """Answers when all work so far is done."""
        self.answer_at(fence, 0, None)

    def trim(self) -> None:
        """Gives cached memory back."""
        self.straight = None
        self.device.trim()

    def precision(self, tf32: bool) -> None:
        """Sets whether products may round their operands to TF32."""
        if self.device.torch.type == "cuda":
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32

    # Answers ----------------------------------------------------------------------------------------------------------

    def answer(self, fence: int, failure: Failure | None, computed_ns: int, copied_ns: int) -> None:
        """Adds an answer to those that are sent next."""
        if failure is None:
            data = ANSWER.pack(fence, computed_ns, copied_ns, 0, 0, 0, 0, 0, 0)
        else:
            number = failure.number if failure.number >= OPS_FROM else 0
            words = (failure.kind, number, failure.label, *failure.numbers)
            data = ANSWER.pack(fence, computed_ns, copied_ns, *words) + failure.text[:TEXT_MAX].encode()
        self.answers.append(len(data).to_bytes(4, "little") + data)

    def answer_at(self, fence: int, read: int, failure: Failure | None, copied_ns: int = 0) -> None:
        """Answers once the device has done all work so far: at once on the processor."""
        if not checks.deferred and self.device.is_processor:
            now = time.perf_counter_ns()
            self.answer(fence, failure, self.computed_ns + now - self.begun_ns, copied_ns)
            self.computed_ns, self.begun_ns = 0, now
            return
        event = self.device.event()
        event.record()
        passing = Passing(fence, event, self.since or event, read)
        passing.copied_ns = copied_ns
        if self.device.is_processor:
            now = time.perf_counter_ns()
            passing.computed_ns = self.computed_ns + now - self.begun_ns
            self.computed_ns, self.begun_ns = 0, now
        if failure is not None:
            self.failed_late[read] = failure
        if self.unfenced_checks:
            passing.checks, self.unfenced_checks = self.unfenced_checks, []
            outcomes = torch.stack([check.outcome for check, *_ in passing.checks])
            passing.outcomes = outcomes.to("cpu", non_blocking=True)
            # The copy is work as well.
            passing.event = self.device.event()
            passing.event.record()
        self.since = passing.event
        self.passing.append(passing)

    def look(self) -> None:
        """Answers the fences that the device has passed."""
        while self.passing and self.passing[0].event.query():
            passing = self.passing.popleft()
            if passing.outcomes is not None:
                for (check, *where), outcome in zip(passing.checks, passing.outcomes.tolist(), strict=True):
                    error = check.error(*outcome)
                    if error is not None:
                        self.fail_late(Failure(where[0], where[1], error), where[2])
            computed_ns = passing.computed_ns + int(passing.since.elapsed_time(passing.event) * 1e6)
            self.answer(passing.fence, self.failed_late.get(passing.read), computed_ns, passing.copied_ns)
            if not self.passing:
                # The device is idle, and its time counts from the next work on.
                self.since = None
            if not self.unfenced_checks and all(later.outcomes is None for later in self.passing):
                self.journal.clear()
                if not self.passing:
                    self.failed_late.clear()

    def fail_late(self, failure: Failure, out: int) -> None:
        """Puts a failure in place of a tensor and of all that were computed from it."""
        failed = {out}
        for made, operands in self.journal:
            if any(operand in failed for operand in operands):
                failed.add(made)
        for number in failed:
            self.failed_late.setdefault(number, failure)
            if number in self.tensors and not isinstance(self.tensors[number], Failure):
                self.tensors[number] = failure

    # Work -------------------------------------------------------------------------------------------------------------

    def run(self, batch: list[Message]) -> None:
        """Executes messages in order."""
        tensors, functions, makes, deferred = self.tensors, self.functions, self.makes, checks.deferred
        self.begun_ns = time.perf_counter_ns()
        if deferred and self.since is None:
            self.since = self.device.event()
            self.since.record()
        for number, label, out, operands, attributes in batch:
            try:
                result = functions[number](*[tensors[x] if x.__class__ is int else x[0] for x in operands], *attributes)
                if makes[number]:
                    tensors[out] = result if result.is_contiguous() else result.contiguous()
                elif result is not None:
                    tensors[out] = result
            except Exception as error:
                tensors[out] = failure = self.failed(error, number, label, operands)
                if number == READ:
                    self.answer_at(attributes[0], attributes[1], failure)
                elif number == WRITE:
                    tensors[attributes[0]] = failure
            if deferred:
                self.note(number, label, out, operands)
        self.computed_ns += time.perf_counter_ns() - self.begun_ns

    def note(self, number: int, label: int, out: int, operands: tuple) -> None:
        """Notes the checks of a message that was executed, and what it made while checks are open."""
        if checks.pending:
            self.unfenced_checks += [(check, label, number, out) for check in checks.pending]
            checks.pending.clear()
        if out and (self.unfenced_checks or self.passing):
            self.journal.append((out, operands))

    def failed(self, error: Exception, number: int, label: int, operands: tuple) -> Failure:
        """Returns the failure of an operand, or else the one that the error is."""
        checks.pending.clear()
        for x in operands:
            operand = self.tensors.get(x) if x.__class__ is int else None
            if isinstance(operand, Failure):
                return operand
        if isinstance(error, getattr(torch, "AcceleratorError", ())) and not isinstance(error, torch.OutOfMemoryError):
            # A device that has failed computes nothing more in this process; the worker starts another.
            raise SystemExit(f"PyTorch's device has failed: {error}") from error
        if isinstance(error, FoundError):
            return Failure(label, number, error)
        refused = re.search(r"tried to allocate (\d+) bytes", str(error))
        if refused or isinstance(error, torch.OutOfMemoryError):
            return Failure(label, number, FoundError(NO_ROOM, int(refused[1]) if refused else 0))
        traceback.print_exception(error)
        return Failure(label, number, FoundError(OTHER, text=f"{type(error).__name__}: {error}"))


def serve(worker: Worker, connection: socket.socket) -> None:
    """Executes what comes from the worker until it ends."""
    buffer = b""
    poller = select.poll()
    poller.register(connection, select.POLLIN)
    while True:
        # A read is waited for; other fences may be noticed a little later.
        while worker.passing:
            worker.look()
            if worker.answers:
                send(worker, connection)
            if poller.poll(0 if worker.passing and worker.passing[-1].read else NAP_SECONDS * 1000):
                break
        part = connection.recv(RECEIVED_BYTES_MAX)
        if not part:
            return
        buffer = buffer + part if buffer else part
        at = 0
        while len(buffer) >= at + 4:
            end = at + 4 + int.from_bytes(buffer[at : at + 4], "little")
            if len(buffer) < end:
                break
            worker.run(pickle.loads(buffer[at + 4 : end]))
            at = end
            if worker.answers:
                send(worker, connection)
        buffer = buffer[at:]


def send(worker: Worker, connection: socket.socket) -> None:
    """Sends the answers."""
    connection.sendall(b"".join(worker.answers))
    worker.answers.clear()


def main(
    connection: socket.socket, staging: int, setup: dict[str, Any], answer: Callable[[dict[str, Any]], None]
) -> None:
    """Prepares the device, says so, and serves."""
    warnings.filterwarnings("ignore")
    torch.set_grad_enabled(False)
    try:
        device = Device(setup["device"])
        memory = mmap(staging, setup["staging_bytes"])
        worker = Worker(device, torch.frombuffer(memory, dtype=torch.uint8), setup["ops"])
    except Exception as error:
        text = str(error) if isinstance(error, Unusable) else f"PyTorch cannot use {setup['device']}: {error}"
        answer({"error": text})
        return
    structure.device = device.torch
    elementwise.has_double = device.torch.type != "mps"
    structure.step_dtype = torch.float64 if elementwise.has_double else torch.float32
    checks.deferred = setup["deferred"] or not device.is_processor
    worker.precision(False)
    answer(
        {
            "ready": {
                "torch": torch.__version__,
                "name": device.name,
                "memory_bytes": device.memory_bytes,
                "capability": device.capability,
                "multiprocessors": device.multiprocessors,
                "missing": worker.missing,
            }
        }
    )
    # Tensors are freed when their last reference goes; a collection would only delay what is computed.
    gc.freeze()
    gc.disable()
    serve(worker, connection)
