"""What stands for `torch.cuda`: the CUDA devices that the daemon computes on.

Which of them a tensor is on, the daemon decides; a program need not say, and may. So there is nothing to choose with
`set_device`, and streams are the daemon's business: one a device, in the order of the program. What PyTorch leaves
without effect where there is no CUDA device has none here either: seeding, emptying the cache.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
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
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_rng_state",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_summary",
    "reset_peak_memory_stats",
    "set_device",
    "set_rng_state",
    "stream",
    "synchronize",
]

__getattr__ = _absent.getter(__name__)


def is_available() -> bool:
    """Whether the daemon computes on CUDA devices. Asks it, and so starts one if there is none."""
    return device_count() > 0


def device_count() -> int:
    """How many CUDA devices the daemon computes on."""
    return len(_gt.cuda_devices())


def is_initialized() -> bool:
    """Whether a CUDA device has been used: the daemon's are, from its start."""
    return is_available()


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether CUDA devices compute in bfloat16: all that the daemon uses do."""
    return is_available()


def current_device() -> int:
    """The number of the CUDA device in use: 0, which stands for all of them."""
    return _number(None)


def set_device(device: Any) -> None:
    """Without effect on a device that is there: the daemon decides where tensors are."""
    _number(device)


def synchronize(device: Any = None) -> None:
    """Waits until everything that this program has asked for is done."""
    _number(device)
    _gt.synchronize()


class DeviceProperties(NamedTuple):
    """What a CUDA device is."""

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int


def get_device_properties(device: Any = None) -> DeviceProperties:
    """What a CUDA device is: its name, its compute capability, the bytes of its memory and its multiprocessors."""
    worker = _worker(device)
    if "device" not in worker:
        raise RuntimeError(f"{worker['name']} does not run; `gtctl status` says why")
    return DeviceProperties(worker["device"], *worker["capability"], worker["device_bytes"], worker["multiprocessors"])


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """The compute capability of a CUDA device: `(9, 0)`."""
    properties = get_device_properties(device)
    return properties.major, properties.minor


def get_device_name(device: Any = None) -> str:
    """What NVIDIA calls a CUDA device."""
    return get_device_properties(device).name


manual_seed = manual_seed_all = random.manual_seed


def get_rng_state(device: Any = None) -> _gt.Tensor:
    """Where the default generator is, which is the same for every device."""
    return random.get_rng_state()


def set_rng_state(new_state: _gt.Tensor, device: Any = None) -> None:
    """Goes on from where `get_rng_state` was called."""
    random.set_rng_state(new_state)


def empty_cache() -> None:
    """Without effect: the daemon gives memory that nobody uses to whoever needs it."""


class MemoryInfo(NamedTuple):
    """Bytes of a device's memory."""

    free: int
    total: int


def memory_allocated(device: Any = None) -> int:
    """Bytes that this program's tensors hold on a CUDA device; 0 without one."""
    return _worker(device)["session_bytes"] if is_available() else 0


# What is kept for reuse is the daemon's, and there for every program.
memory_reserved = memory_allocated


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes that this program's tensors held at one time on a CUDA device; 0 without one.

    Since the program began, or `reset_peak_memory_stats` was called.
    """
    return _worker(device)["session_bytes_peak"] if is_available() else 0


max_memory_reserved = max_memory_allocated


def reset_peak_memory_stats(device: Any = None) -> None:
    """Lets `max_memory_allocated` of a CUDA device begin at what is held now. Without effect where there is none."""
    if is_available():
        _gt.reset_peak(_worker(device)["name"])


def mem_get_info(device: Any = None) -> MemoryInfo:
    """Bytes that tensors may still take on a CUDA device, and may take together."""
    worker = _worker(device)
    total = worker["memory_bytes_limit"]
    return MemoryInfo(max(total - worker["memory_bytes"], 0), total)


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """What tensors hold and held at most on each CUDA device, what all programs hold there and may, as text."""
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


class Stream:
    """The order in which a device does things. There is one: that of the program."""

    def __init__(self, device: Any = None, priority: int = 0) -> None:
        _number(device)

    def synchronize(self) -> None:
        """Waits until everything that this program has asked for is done."""
        synchronize()

    def wait_stream(self, stream: Stream) -> None:
        """Nothing to wait for: what comes later is done later."""

    def wait_event(self, event: Event) -> None:
        """Nothing to wait for: what comes later is done later."""

    def record_event(self, event: Event | None = None) -> Event:
        """Records an event."""
        event = event or Event()
        event.record(self)
        return event


def current_stream(device: Any = None) -> Stream:
    """The one stream."""
    return Stream(device)


default_stream = current_stream


@contextlib.contextmanager
def stream(stream: Stream | None) -> Iterator[None]:
    """Without effect: there is one stream."""
    yield


class Event:
    """A point in the program, for measuring how long what lies between two of them takes."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
        if interprocess:
            raise NotImplementedError("Event(interprocess=True): events belong to one program")
        self._timed = enable_timing
        self._seconds: float | None = None

    def record(self, stream: Stream | None = None) -> None:
        """Notes the time at which everything before it is done; so it waits for that, if the event is to tell times."""
        if self._timed:
            synchronize()
        self._seconds = time.perf_counter()

    def synchronize(self) -> None:
        """Waits until everything before it is done."""
        if self._seconds is not None:
            synchronize()

    def wait(self, stream: Stream | None = None) -> None:
        """Nothing to wait for: what comes later is done later."""

    def query(self) -> bool:
        """Whether everything before it is done."""
        self.synchronize()
        return True

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this event to another."""
        if not (self._timed and end_event._timed):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self._seconds is None or end_event._seconds is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return (end_event._seconds - self._seconds) * 1e3


class device(contextlib.nullcontext):  # noqa: N801
    """`with cuda.device(0):`, without effect on a device that is there: the daemon decides where tensors are."""

    def __init__(self, device: Any) -> None:
        super().__init__()
        _number(device)


def _number(device: Any) -> int:
    """The number of a CUDA device that is there."""
    device = _gt.device("cuda" if device is None else device)
    _gt.check_device(device if device.type == "cuda" else "cuda")
    return device.index or 0


def _workers() -> list[dict[str, Any]]:
    """What each CUDA device is and holds."""
    return [worker for worker in _gt.worker_status() if worker["name"] in _gt.cuda_devices()]


def _worker(device: Any) -> dict[str, Any]:
    """What a CUDA device is and holds."""
    number = _number(device)
    return _workers()[number]


# It comes last: it uses what gt.amp is made of.
from gt.cuda import amp  # noqa: E402
