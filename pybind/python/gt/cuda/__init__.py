"""`torch.cuda` for GT: the CUDA devices that the daemon computes on.

The daemon decides on which device a tensor is; a program may name one, but need not. So `set_device` chooses nothing,
and there is one stream: operations run in program order. Seeding and emptying the cache have no effect, as in PyTorch
without CUDA.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from gt import _absent, _gt, random
from gt._gt import OutOfMemoryError

__all__ = [
    "Event",
    "OutOfMemoryError",
    "Stream",
    "amp",
    "current_device",
    "current_stream",
    "default_stream",
    "device",
    "device_count",
    "empty_cache",
    "get_allocator_backend",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_rng_state",
    "get_rng_state_all",
    "init",
    "initial_seed",
    "ipc_collect",
    "is_available",
    "is_bf16_supported",
    "is_current_stream_capturing",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_cached",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_cached",
    "memory_reserved",
    "memory_stats",
    "memory_summary",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_rng_state",
    "set_rng_state_all",
    "stream",
    "synchronize",
]

__getattr__ = _absent.getter(__name__)


def is_available() -> bool:
    """Whether the daemon computes on CUDA devices; starts the daemon if it does not run."""
    return device_count() > 0


def device_count() -> int:
    """The number of CUDA devices the daemon computes on."""
    return len(_gt.cuda_devices())


def is_initialized() -> bool:
    """Whether CUDA has been initialized: it is whenever the daemon has a CUDA device."""
    return is_available()


def init() -> None:
    """Checks that there is a CUDA device; the daemon has initialized it."""
    _number(None)


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether CUDA devices compute in bfloat16: all supported ones do."""
    return is_available()


def current_device() -> int:
    """The index of the CUDA device in use: 0, which stands for all of them."""
    return _number(None)


def set_device(device: Any) -> None:
    """Checks that the device exists; the daemon decides where tensors are."""
    _number(device)


def synchronize(device: Any = None) -> None:
    """Waits until all operations issued so far are complete."""
    _number(device)
    _gt.synchronize()


class DeviceProperties(NamedTuple):
    """The properties of a CUDA device."""

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int


def get_device_properties(device: Any = None) -> DeviceProperties:
    """The name, compute capability, memory (bytes) and number of multiprocessors of a CUDA device."""
    worker = _worker(device)
    if "device" not in worker:
        raise RuntimeError(f"{worker['name']} does not run; `gtctl status` says why")
    return DeviceProperties(worker["device"], *worker["capability"], worker["device_bytes"], worker["multiprocessors"])


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """The compute capability of a CUDA device, such as `(9, 0)`."""
    properties = get_device_properties(device)
    return properties.major, properties.minor


def get_device_name(device: Any = None) -> str:
    """The product name of a CUDA device."""
    return get_device_properties(device).name


manual_seed = manual_seed_all = random.manual_seed
seed = seed_all = random.seed
initial_seed = random.initial_seed


def get_rng_state(device: Any = None) -> _gt.Tensor:
    """The state of the default generator, which is the same for all devices."""
    return _gt.default_generator._short_state()


def set_rng_state(new_state: _gt.Tensor, device: Any = None) -> None:
    """Restores the state that `get_rng_state` returned."""
    random.set_rng_state(new_state)


def get_rng_state_all() -> list[_gt.Tensor]:
    """The state of the default generator for each CUDA device: all draw from the same one."""
    return [get_rng_state() for _ in range(device_count())]


def set_rng_state_all(new_states: Iterable[_gt.Tensor]) -> None:
    """Restores the states that `get_rng_state_all` returned; without CUDA devices there are none."""
    for state in list(new_states)[:1]:
        set_rng_state(state)


def empty_cache() -> None:
    """Has no effect: the daemon shares freed memory among all programs."""


class MemoryInfo(NamedTuple):
    """Free and total bytes of a device's memory."""

    free: int
    total: int


def memory_allocated(device: Any = None) -> int:
    """The bytes that this program's tensors hold on a CUDA device; 0 if there is none."""
    return _worker(device)["session_bytes"] if is_available() else 0


# Memory kept for reuse belongs to the daemon and serves all programs.
memory_reserved = memory_allocated


def max_memory_allocated(device: Any = None) -> int:
    """The peak of `memory_allocated` since the program began or `reset_peak_memory_stats`.

    0 if there is no CUDA device.
    """
    return _worker(device)["session_bytes_peak"] if is_available() else 0


max_memory_reserved = max_memory_allocated


def reset_peak_memory_stats(device: Any = None) -> None:
    """Resets the peak of `max_memory_allocated` to the bytes held at present; has no effect without a CUDA device."""
    if is_available():
        _gt.reset_peak(_worker(device)["name"])


reset_max_memory_allocated = reset_max_memory_cached = reset_peak_memory_stats
memory_cached, max_memory_cached = memory_reserved, max_memory_reserved


def memory_stats(device: Any = None) -> dict[str, int]:
    """The bytes that this program's tensors hold on a CUDA device, and their peak, by PyTorch's names.

    The daemon allocates for all programs, so there are no counts of allocations. Empty if there is no CUDA device.
    """
    if not is_available():
        return {}
    now, peak = memory_allocated(device), max_memory_allocated(device)
    kinds = ("active_bytes", "allocated_bytes", "requested_bytes", "reserved_bytes")
    parts = {"current": now, "peak": peak}
    return {f"{kind}.all.{part}": value for kind in kinds for part, value in parts.items()}


def get_allocator_backend() -> str:
    """`"gt"`: the daemon allocates the devices' memory."""
    return "gt"


def mem_get_info(device: Any = None) -> MemoryInfo:
    """The bytes that tensors may still take on a CUDA device, and the bytes that all tensors may take together."""
    worker = _worker(device)
    total = worker["memory_bytes_limit"]
    return MemoryInfo(max(total - worker["memory_bytes"], 0), total)


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """A table of this program's present and peak memory on each CUDA device, and of all programs' memory and limit."""
    _number(device)
    keys = {
        "in use": "session_bytes",
        "at most": "session_bytes_peak",
        "all": "memory_bytes",
        "limit": "memory_bytes_limit",
    }
    lines = [f"{'device':<12}" + "".join(f"{title:>16}" for title in keys)]
    for worker in _workers():
        lines.append(f"{worker['name']:<12}" + "".join(f"{worker[key] / 2**20:>12,.1f} MiB" for key in keys.values()))
    return "\n".join(lines)


def ipc_collect() -> None:
    """Has no effect: programs share no memory of a device."""


def is_current_stream_capturing() -> bool:
    """False: the daemon captures CUDA graphs by itself, without the program."""
    return False


class Stream:
    """A queue of operations. There is one for the whole program: operations run in program order."""

    def __init__(self, device: Any = None, priority: int = 0) -> None:
        _number(device)

    def synchronize(self) -> None:
        """Waits until all operations issued so far are complete."""
        synchronize()

    def wait_stream(self, stream: Stream) -> None:
        """Has no effect: operations run in program order."""

    def wait_event(self, event: Event) -> None:
        """Has no effect: operations run in program order."""

    def record_event(self, event: Event | None = None) -> Event:
        """Records an event, a new one if not given, and returns it."""
        event = event or Event()
        event.record(self)
        return event


def current_stream(device: Any = None) -> Stream:
    """The program's only stream."""
    return Stream(device)


default_stream = current_stream


@contextlib.contextmanager
def stream(stream: Stream | None) -> Iterator[None]:
    """A context for a stream; it has no effect, as there is one."""
    yield


class Event:
    """A point in program order, for measuring the time between two of them.

    Args:
        enable_timing: Whether the event measures time.
        blocking: Ignored.
        interprocess: Ignored.
    """

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
        if interprocess:
            raise NotImplementedError("Event(interprocess=True): events belong to one program")
        self._timed = enable_timing
        self._seconds: float | None = None

    def record(self, stream: Stream | None = None) -> None:
        """Records the event.

        With `enable_timing`, waits until all earlier operations are complete and notes the time.
        """
        if self._timed:
            synchronize()
        self._seconds = time.perf_counter()

    def synchronize(self) -> None:
        """Waits until all operations before the event are complete."""
        if self._seconds is not None:
            synchronize()

    def wait(self, stream: Stream | None = None) -> None:
        """Has no effect: operations run in program order."""

    def query(self) -> bool:
        """Whether all operations before the event are complete."""
        self.synchronize()
        return True

    def elapsed_time(self, end_event: Event) -> float:
        """The milliseconds from this event to another."""
        if not (self._timed and end_event._timed):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self._seconds is None or end_event._seconds is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return (end_event._seconds - self._seconds) * 1e3


class device(contextlib.nullcontext):  # noqa: N801
    """A context for a CUDA device; it checks that the device exists, and the daemon decides where tensors are."""

    def __init__(self, device: Any) -> None:
        super().__init__()
        _number(device)


def _number(device: Any) -> int:
    """The index of an existing CUDA device."""
    device = _gt.device("cuda" if device is None else device)
    _gt.check_device(device if device.type == "cuda" else "cuda")
    return device.index or 0


def _workers() -> list[dict[str, Any]]:
    """The description and memory usage of each CUDA device's worker."""
    return [worker for worker in _gt.worker_status() if worker["name"] in _gt.cuda_devices()]


def _worker(device: Any) -> dict[str, Any]:
    """The description and memory usage of one CUDA device's worker."""
    number = _number(device)
    return _workers()[number]


# gt.cuda.amp needs gt.amp, which reads the names above.
from gt.cuda import amp  # noqa: E402
