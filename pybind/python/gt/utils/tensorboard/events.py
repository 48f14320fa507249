"""The format of event files: records of protocol buffers with check sums, as TensorFlow writes them (TFRecord).

A record is its length (8 bytes), the length's check sum, the message and the message's check sum (CRC-32C, masked), all
little-endian. Messages are encoded field by field here.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from collections.abc import Iterable
from itertools import count
from pathlib import Path

# The polynomial of CRC-32C (Castagnoli), reversed, and the constant that TensorFlow adds to a rotated check sum.
CASTAGNOLI = 0x82F63B78
MASK_DELTA = 0xA282EAD8

_files = count()


def _table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (CASTAGNOLI if byte & 1 else 0)
        table.append(byte)
    return table


_TABLE = _table()


def masked_crc(data: bytes) -> int:
    """The masked check sum of a record's part."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + MASK_DELTA) & 0xFFFFFFFF


def varint(number: int) -> bytes:
    """An integer in seven bits a byte; negative ones as 64 bits."""
    number &= 0xFFFFFFFFFFFFFFFF
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def integer(field: int, number: int) -> bytes:
    """A field that holds an integer."""
    return varint(field << 3) + varint(number)


def double(field: int, number: float) -> bytes:
    """A field that holds a float of 64 bits."""
    return varint(field << 3 | 1) + struct.pack("<d", number)


def single(field: int, number: float) -> bytes:
    """A field that holds a float of 32 bits; a number beyond its range is infinite."""
    try:
        return varint(field << 3 | 5) + struct.pack("<f", number)
    except OverflowError:
        return varint(field << 3 | 5) + struct.pack("<f", float("inf") if number > 0 else float("-inf"))


def content(field: int, data: bytes | str) -> bytes:
    """A field that holds bytes, a text or a message."""
    data = data.encode() if isinstance(data, str) else data
    return varint(field << 3 | 2) + varint(len(data)) + data


def doubles(field: int, numbers: Iterable[float]) -> bytes:
    """A field that holds packed floats of 64 bits."""
    return content(field, b"".join(struct.pack("<d", number) for number in numbers))


class FileWriter:
    """An event file, to which records are appended.

    Args:
        log_dir: Its folder, which is made.
        max_queue: The number of records that may wait before they are written.
        flush_secs: The time in seconds that they may wait.
        filename_suffix: The end of the file's name.
    """

    def __init__(
        self, log_dir: str | os.PathLike[str], max_queue: int = 10, flush_secs: float = 120, filename_suffix: str = ""
    ) -> None:
        self._folder = Path(log_dir)
        self._folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}.{next(_files)}"
        self._file = open(self._folder / (name + filename_suffix), "ab")  # noqa: SIM115 (close() closes it)
        self._lock = threading.Lock()
        self._waiting = 0
        self._max_queue, self._flush_s = max_queue, flush_secs
        self._flushed_at = time.monotonic()
        self.add_event(content(3, "brain.Event:2"))
        self.flush()

    def get_logdir(self) -> str:
        """The folder of the files."""
        return str(self._folder)

    def add_event(self, event: bytes, step: int | None = None, walltime: float | None = None) -> None:
        """Appends an event.

        Args:
            event: Its field: a summary or a version.
            step: The number of the step.
            walltime: The time in seconds since 1970; now if not given.
        """
        message = double(1, time.time() if walltime is None else walltime)
        message += b"" if step is None else integer(2, int(step))
        message += event
        length = struct.pack("<Q", len(message))
        record = length + struct.pack("<I", masked_crc(length)) + message + struct.pack("<I", masked_crc(message))
        with self._lock:
            self._file.write(record)
            self._waiting += 1
            if self._waiting > self._max_queue or time.monotonic() - self._flushed_at > self._flush_s:
                self._flush()

    def add_summary(self, summary: bytes, global_step: int | None = None, walltime: float | None = None) -> None:
        """Appends an event with a summary."""
        self.add_event(content(5, summary), global_step, walltime)

    def _flush(self) -> None:
        self._file.flush()
        self._waiting = 0
        self._flushed_at = time.monotonic()

    def flush(self) -> None:
        """Writes what waits."""
        with self._lock:
            if not self._file.closed:
                self._flush()

    def close(self) -> None:
        """Writes what waits, and closes the file."""
        with self._lock:
            self._file.close()
