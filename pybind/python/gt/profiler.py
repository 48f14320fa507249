"""PyTorch's profiler on the daemon's tape: the time of each operation on the worker, and of named blocks.

Start at `profile`. The tape has the dtype and sizes of each result, and the lines of Python that the program shares
with observers; the memory of an operation is that of its result.
"""

from __future__ import annotations

import gzip
import json
import os
import socket
import time
import warnings
from collections.abc import Callable, Iterable
from contextlib import ContextDecorator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Any

from gt import _absent, _gt, _instruments

__all__ = [
    "EventList",
    "FunctionEvent",
    "FunctionEventAvg",
    "ProfilerAction",
    "ProfilerActivity",
    "kineto_available",
    "profile",
    "record_function",
    "schedule",
    "supported_activities",
    "tensorboard_trace_handler",
]

__getattr__ = _absent.getter(__name__)

# The processes of the trace events, as `gtctl trace` writes them, and one more for named blocks.
WORKERS_PID, BLOCKS_PID = 3, 4
# The attributes of a sum that are bytes, and their columns.
MEMORY_COLUMNS = {"cpu_memory_usage": "CPU Mem", "device_memory_usage": "Device Mem"}
# The blocks of the profilers that run: name, beginning and end on CLOCK_MONOTONIC, nanoseconds.
_recording: list[list[tuple[str, int, int]]] = []


def kineto_available() -> bool:
    """False: the profiler reads the daemon's tape, not PyTorch's library Kineto."""
    return False


class ProfilerActivity(Enum):
    """The kinds of device that PyTorch's profiler names. Here all workers of the session are profiled."""

    CPU = 0
    XPU = 1
    MTIA = 2
    CUDA = 3
    HPU = 4
    PrivateUse1 = 5


class ProfilerAction(Enum):
    """The action of a profiler in one step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


def supported_activities() -> set[ProfilerActivity]:
    """The kinds of the session's workers."""
    kinds = {worker["kind"] for worker in _gt.worker_status()}
    return {ProfilerActivity.CUDA if kind == "cuda" else ProfilerActivity.CPU for kind in kinds}


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0, skip_first_wait: int = 0
) -> Callable[[int], ProfilerAction]:
    """The schedule of a profiler: after `skip_first` steps, cycles of `wait`, `warmup` and `active` steps.

    Args:
        wait: Steps of each cycle without profiling.
        warmup: Steps of each cycle before the profiled ones; they are not profiled either.
        active: Profiled steps of each cycle; the last one calls `on_trace_ready`.
        repeat: The number of cycles; 0 for any number.
        skip_first: Steps before the first cycle.
        skip_first_wait: If it is not 0, the first cycle does without its `wait`.

    Returns:
        A function of a step's number, for `profile(schedule=...)`.

    Example:
        >>> actions = gt.profiler.schedule(wait=1, warmup=0, active=2)
        >>> [actions(step).name for step in range(4)]
        ['NONE', 'RECORD', 'RECORD_AND_SAVE', 'NONE']
    """
    if min(wait, warmup, repeat, skip_first) < 0 or active <= 0:
        raise ValueError(
            f"schedule: wait={wait}, warmup={warmup}, repeat={repeat} and skip_first={skip_first} must be at least 0, "
            f"and active={active} at least 1"
        )

    def action(step: int) -> ProfilerAction:
        step -= skip_first
        if step < 0:
            return ProfilerAction.NONE
        if skip_first_wait:
            step += wait
        cycle, position = divmod(step, wait + warmup + active)
        if 0 < repeat <= cycle or position < wait:
            return ProfilerAction.NONE
        if position < wait + warmup:
            return ProfilerAction.WARMUP
        is_last = position == wait + warmup + active - 1
        return ProfilerAction.RECORD_AND_SAVE if is_last else ProfilerAction.RECORD

    return action


def tensorboard_trace_handler(
    dir_name: str, worker_name: str | None = None, use_gzip: bool = False
) -> Callable[[profile], None]:
    """A handler for `on_trace_ready` that writes each trace into a folder.

    Args:
        dir_name: The folder, which is made if it is not there.
        worker_name: The begin of the files' names; by default of machine and process.
        use_gzip: Whether the files are compressed.
    """

    def handle(prof: profile) -> None:
        folder = Path(dir_name)
        folder.mkdir(parents=True, exist_ok=True)
        name = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        suffix = ".gz" if use_gzip else ""
        prof.export_chrome_trace(str(folder / f"{name}.{time.time_ns()}.pt.trace.json{suffix}"))

    return handle


class record_function(ContextDecorator):  # noqa: N801 (PyTorch's name)
    """A named block, or a decorator. Profilers that run show it, with the time that Python spent in it."""

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name = name
        self.args = args
        self._begun: list[int] = []

    def __enter__(self) -> record_function:
        self._begun.append(time.monotonic_ns())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        block = (self.name, self._begun.pop(), time.monotonic_ns())
        for blocks in _recording:
            blocks.append(block)


@dataclass(frozen=True)
class FunctionEvent:
    """One execution of an operation on a worker, or one named block.

    Attributes:
        name: The operation or the block.
        device: The worker; none for a block.
        start_us: The beginning, microseconds since the daemon started.
        time_us: The time that it took, microseconds. The first of several fused operations has the time of all.
        is_estimate: Whether that is an estimate, for a small operation that the daemon ran itself.
        stack: The line of the program that issued it, `("train.py(12): step",)`, if `with_stack` asked for it.
        input_shapes: The sizes of its first two tensor operands, if `record_shapes` asked for them; `()` for one whose
            sizes are not known.
        memory_bytes: The bytes of its result, if `profile_memory` asked for them.
    """

    name: str
    device: str | None
    start_us: float
    time_us: float
    is_estimate: bool = False
    stack: tuple[str, ...] = ()
    input_shapes: tuple[tuple[int, ...], ...] = ()
    memory_bytes: int = 0


@dataclass
class FunctionEventAvg:
    """The sum of the executions of one operation, or of the blocks of one name.

    Attributes:
        key: The operation or the block.
        count: The number of executions.
        cpu_time_total: Their time on workers of CPUs, or of Python in a block, microseconds.
        device_time_total: Their time on workers of GPUs, microseconds.
        is_user_annotation: Whether it is a block.
        stack: The line that issued the executions, if they are summed by line.
        input_shapes: The sizes of the operands, if the executions are summed by them.
        cpu_memory_usage: The bytes of the results on workers of CPUs, if `profile_memory` asked for them.
        device_memory_usage: The same on workers of GPUs.
    """

    key: str
    count: int = 0
    cpu_time_total: float = 0.0
    device_time_total: float = 0.0
    is_user_annotation: bool = False
    stack: tuple[str, ...] = ()
    input_shapes: tuple[tuple[int, ...], ...] = ()
    cpu_memory_usage: int = 0
    device_memory_usage: int = 0

    self_cpu_memory_usage = property(lambda self: self.cpu_memory_usage)
    self_device_memory_usage = property(lambda self: self.device_memory_usage)

    @property
    def self_cpu_time_total(self) -> float:
        """The time on workers of CPUs: operations contain no others, and a block's time is not a worker's."""
        return 0.0 if self.is_user_annotation else self.cpu_time_total

    @property
    def self_device_time_total(self) -> float:
        """The time on workers of GPUs."""
        return self.device_time_total

    @property
    def cpu_time(self) -> float:
        """The mean of `cpu_time_total`."""
        return self.cpu_time_total / self.count if self.count else 0.0

    @property
    def device_time(self) -> float:
        """The mean of `device_time_total`."""
        return self.device_time_total / self.count if self.count else 0.0

    cuda_time_total = property(lambda self: self.device_time_total)
    self_cuda_time_total = property(lambda self: self.device_time_total)
    cuda_time = property(lambda self: self.device_time)


class EventList(list):
    """A list of events or of their sums, which can be shown as a table."""

    def table(
        self,
        sort_by: str | None = None,
        row_limit: int = 100,
        max_name_column_width: int = 55,
        header: str | None = None,
        top_level_events_only: bool = False,  # noqa: ARG002 (operations contain no others)
        **_: Any,
    ) -> str:
        """The sums as a table.

        Args:
            sort_by: An attribute of `FunctionEventAvg`, such as `"cpu_time_total"`; the largest comes first.
            row_limit: The most rows; -1 for all.
            max_name_column_width: Longer names are cut.
            header: A line above the table.
            top_level_events_only: Has no effect: operations contain no others.
        """
        rows = list(self)
        if sort_by is not None:
            if not all(hasattr(row, sort_by) for row in rows):
                raise ValueError(f"table: there is no column {sort_by!r} to sort by: cpu_time_total is one")
            rows.sort(key=lambda row: getattr(row, sort_by), reverse=True)
        whole_cpu = sum(row.self_cpu_time_total for row in rows)
        whole_device = sum(row.self_device_time_total for row in rows)
        heads = ["Name", "Self CPU %", "Self CPU", "CPU total", "CPU time avg"]
        if whole_device:
            heads += ["Self device %", "Self device", "Device time avg"]
        has_memory = [any(getattr(row, kind) for row in rows) for kind in MEMORY_COLUMNS]
        heads += [head for head, has in zip(MEMORY_COLUMNS.values(), has_memory, strict=True) if has]
        heads.append("# of Calls")
        has_shapes = any(row.input_shapes for row in rows)
        if has_shapes:
            heads.append("Input Shapes")
        has_lines = any(row.stack for row in rows)
        if has_lines:
            heads.append("Source Location")
        cells = []
        for row in rows if row_limit < 0 else rows[:row_limit]:
            name = row.key if len(row.key) <= max_name_column_width else row.key[: max_name_column_width - 3] + "..."
            line = [name, _percent(row.self_cpu_time_total, whole_cpu), _time(row.self_cpu_time_total)]
            line += [_time(row.cpu_time_total), _time(row.cpu_time)]
            if whole_device:
                line += [_percent(row.self_device_time_total, whole_device), _time(row.self_device_time_total)]
                line.append(_time(row.device_time))
            kinds = [kind for kind, has in zip(MEMORY_COLUMNS, has_memory, strict=True) if has]
            line += [_bytes(getattr(row, kind)) for kind in kinds]
            line.append(str(row.count))
            if has_shapes:
                line.append(str([list(shape) for shape in row.input_shapes]))
            if has_lines:
                line.append(" ".join(row.stack))
            cells.append(line)
        widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
        rule = "  ".join("-" * width for width in widths)
        lines = [rule, _row(heads, widths), rule, *(_row(line, widths) for line in cells), rule]
        lines.append(f"Self CPU time total: {_time(whole_cpu)}")
        if whole_device:
            lines.append(f"Self device time total: {_time(whole_device)}")
        return "\n".join([*([header] if header else []), *lines]) + "\n"

    def total_average(self) -> FunctionEventAvg:
        """The sum of all operations."""
        total = FunctionEventAvg("Total")
        for row in self:
            if not row.is_user_annotation:
                total.count += row.count
                total.cpu_time_total += row.cpu_time_total
                total.device_time_total += row.device_time_total
        return total

    def __str__(self) -> str:
        return self.table() if all(isinstance(row, FunctionEventAvg) for row in self) else super().__str__()


def _row(cells: list[str], widths: list[int]) -> str:
    return "  ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole if whole else 0:.2f}%"


def _bytes(size: int) -> str:
    for unit, least in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if size >= least:
            return f"{size / least:.2f} {unit}"
    return f"{size} B"


def _time(us: float) -> str:
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if us >= size:
            return f"{us / size:.3f}{unit}"
    return f"{us:.3f}us"


def _sizes(text: str) -> list[int]:
    """The sizes in a text such as `float32[64,784]`; none if they are not known."""
    sizes = text.partition("[")[2].removesuffix("]")
    return [int(size) for size in sizes.split(",")] if sizes and sizes[0].isdigit() else []


def _location(line: str) -> str:
    """A line as PyTorch writes it: `train.py(12): step` for `train.py:12 in step`."""
    place, _, function = line.rpartition(" in ")
    file, _, number = place.rpartition(":")
    return f"{file}({number}): {function}"


class profile:  # noqa: N801 (PyTorch's name)
    """Profiles the operations of this process's session while it is entered.

    The daemon writes what happens anyway, so the program is not slowed down; `stop` waits until everything issued is
    done. Every user may profile his own session, on a shared daemon and by TCP as well.

    Args:
        activities: Has no effect: all workers are profiled.
        schedule: The action of each step, as `schedule()` makes it; by default all is profiled. Call `step` after each.
        on_trace_ready: Called with the profiler at the end of each cycle of the schedule, or at the end of all.
        record_shapes: Whether events have the sizes of their first two tensor operands.
        profile_memory: Whether events have the bytes of their results. A result that takes over the memory of an
            operand counts as well.
        with_stack: Whether events have the line of the program that issued them. PyTorch has the whole stack.
        with_flops, with_modules: Have no effect, and warn.

    Example:
        >>> with gt.profiler.profile() as prof:
        ...     y = gt.ones(64, 64) @ gt.ones(64, 64)
        >>> [row.count for row in prof.key_averages() if row.key == "matmul"]
        [1]
    """

    def __init__(
        self,
        *,
        activities: Iterable[ProfilerActivity] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[[profile], Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        **_: Any,
    ) -> None:
        asked = {"with_flops": with_flops, "with_modules": with_modules}
        without = ", ".join(name for name, value in asked.items() if value)
        if without:
            warnings.warn(f"profile: {without} has no effect: the daemon's tape does not have that", stacklevel=2)
        # All workers are profiled in any case.
        if ProfilerActivity.CUDA in (activities or ()) and not _gt.cuda_devices():
            warnings.warn("profile: there is no CUDA device to profile", stacklevel=2)
        self._with_stack, self._record_shapes, self._profile_memory = with_stack, record_shapes, profile_memory
        # The dtypes and sizes of tensors by id, as the daemon writes them.
        self._tensors: dict[int, str] = {}
        self._schedule = schedule or (lambda _: ProfilerAction.RECORD)
        self._on_trace_ready = on_trace_ready
        self.step_num = 0
        self._action = ProfilerAction.NONE
        self._capture: _instruments.Capture | None = None
        self._blocks: list[tuple[str, int, int]] = []
        self._summary: dict[str, Any] | None = None
        self._trace: dict[str, Any] = {}

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Begins the first step."""
        self._begin(self._schedule(self.step_num))

    def stop(self) -> None:
        """Ends the last step."""
        if self._capture is not None:
            self._save()
        self._action = ProfilerAction.NONE

    def step(self) -> None:
        """Ends a step of the schedule, and begins the next one."""
        if self._action is ProfilerAction.RECORD_AND_SAVE:
            self._save()
        self.step_num += 1
        self._begin(self._schedule(self.step_num))

    def _begin(self, action: ProfilerAction) -> None:
        self._action = action
        records = action in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)
        if records and self._capture is None:
            _gt.synchronize()
            if self._record_shapes:
                self._tensors = _gt.tensors()
            self._blocks = []
            self._capture = _instruments.Capture()
            _recording.append(self._blocks)
        elif not records and self._capture is not None:
            self._save()

    def _save(self) -> None:
        assert self._capture is not None
        _gt.synchronize()
        _recording[:] = [blocks for blocks in _recording if blocks is not self._blocks]
        capture, self._capture = self._capture, None
        self._summary, self._trace = capture.finish()
        if self._summary["lost"]:
            warnings.warn(
                f"profile: {self._summary['lost']} events were lost, since this machine was too busy to read them in "
                "time: counts and times are too small",
                stacklevel=3,
            )
        if self._record_shapes:
            self._add_input_shapes()
        self._add_blocks(self._summary["zero_monotonic_ns"])
        if self._on_trace_ready is not None:
            self._on_trace_ready(self)

    def _add_input_shapes(self) -> None:
        slices = [event for event in self._trace["traceEvents"] if "out" in event.get("args", {})]
        tensors = self._tensors | {event["args"]["result"]: event["args"]["out"] for event in slices}
        operands = {
            event["bind_id"]: [operand for operand in event["args"]["operands"] if operand]
            for event in self._trace["traceEvents"]
            if "operands" in event.get("args", {})
        }
        for event in self._trace["traceEvents"]:
            if event["ph"] == "X" and event["pid"] == WORKERS_PID and event["name"] not in ("fetch", "sync"):
                ids = operands.get(event.get("bind_id", ""), [])
                event["args"]["input_shapes"] = [_sizes(tensors.get(operand, "")) for operand in ids]

    def _add_blocks(self, zero_ns: int) -> None:
        names = {"ph": "M", "name": "process_name", "pid": BLOCKS_PID, "tid": 1, "ts": 0, "args": {"name": "Python"}}
        events = [
            {
                "ph": "X",
                "cat": "user_annotation",
                "name": name,
                "pid": BLOCKS_PID,
                "tid": 1,
                "ts": (begin - zero_ns) / 1e3,
                "dur": (end - begin) / 1e3,
            }
            for name, begin, end in sorted(self._blocks, key=lambda block: block[1])
        ]
        self._trace["traceEvents"] += [names, *events] if events else []

    def _ready(self) -> list[dict[str, Any]]:
        if self._summary is None:
            raise RuntimeError("the profiler has recorded nothing yet: end it, or a cycle of its schedule, first")
        return self._trace["traceEvents"]

    def events(self) -> EventList:
        """The executions of operations on workers, and the named blocks, by their beginning."""
        events = self._ready()
        threads = {
            event["tid"]: event["args"]["name"]
            for event in events
            if event["name"] == "thread_name" and event["pid"] == WORKERS_PID
        }
        found = []
        for event in events:
            if event["ph"] != "X" or event["pid"] not in (WORKERS_PID, BLOCKS_PID) or event["name"] == "sync":
                continue
            if event["pid"] == BLOCKS_PID:
                found.append(FunctionEvent(event["name"], None, event["ts"], event["dur"]))
                continue
            args = event["args"]
            estimate = args.get("estimated_ns")
            ns = args.get("took_ns", 0) if estimate is None else estimate
            device = threads[event["tid"]].removesuffix(" copies")
            stack = (_location(args["line"]),) if self._with_stack and "line" in args else ()
            shapes = tuple(tuple(sizes) for sizes in args.get("input_shapes", []))
            memory = args.get("out_bytes", 0) if self._profile_memory else 0
            is_estimate = estimate is not None
            found.append(
                FunctionEvent(event["name"], device, event["ts"], ns / 1e3, is_estimate, stack, shapes, memory)
            )
        return EventList(sorted(found, key=lambda event: event.start_us))

    def key_averages(
        self,
        group_by_input_shape: bool = False,
        group_by_stack_n: int = 0,
        **_: Any,
    ) -> EventList:
        """The sums by operation and by name of block, those that took longest first.

        Args:
            group_by_input_shape: Whether the executions of an operation are summed by the sizes of their operands.
            group_by_stack_n: If it is not 0, the executions of an operation are summed by the line that issued them.
        """
        sums: dict[tuple[Any, ...], FunctionEventAvg] = {}
        for event in self.events():
            is_block = event.device is None
            stack = event.stack if group_by_stack_n else ()
            shapes = event.input_shapes if group_by_input_shape else ()
            row = FunctionEventAvg(event.name, is_user_annotation=is_block, stack=stack, input_shapes=shapes)
            row = sums.setdefault((event.name, is_block, stack, shapes), row)
            row.count += 1
            if event.device is not None and event.device.startswith("cuda"):
                row.device_time_total += event.time_us
                row.device_memory_usage += event.memory_bytes
            else:
                row.cpu_time_total += event.time_us
                row.cpu_memory_usage += event.memory_bytes
        rows = sorted(sums.values(), key=lambda row: -(row.self_cpu_time_total + row.self_device_time_total))
        return EventList(rows)

    def export_chrome_trace(self, path: str) -> None:
        """Writes the trace events, for https://ui.perfetto.dev.

        Args:
            path: The file; it is compressed if its name ends in `.gz`.
        """
        self._ready()
        if str(path).endswith(".gz"):
            with gzip.open(path, "wt") as file:
                json.dump(self._trace, file)
        else:
            with Path(path).open("w") as file:
                json.dump(self._trace, file)
