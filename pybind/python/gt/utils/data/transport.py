"""Messages between a `DataLoader` and its worker processes: pickles, whose arrays travel in shared memory.

A message that is longer than `INLINE_BYTES_MAX` is written into an anonymous file in memory, whose descriptor goes over
the connection; the receiver's arrays are views of it. So no connection ever fills with more than short messages.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
import struct
from collections.abc import Sequence
from multiprocessing import reduction
from multiprocessing.connection import Connection
from typing import Any

INLINE_BYTES_MAX = 4096
# Each buffer begins at a multiple of this, as every dtype's elements need.
ALIGNMENT_BYTES = 64


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def send(connection: Connection, message: Any) -> None:
    """Sends a message. Arrays are copied once, into the memory that is shared."""
    file = io.BytesIO()
    buffers: list[pickle.PickleBuffer] = []
    reduction.ForkingPickler(file, pickle.HIGHEST_PROTOCOL, True, buffers.append).dump(message)
    parts: list[Any] = [file.getbuffer(), *(buffer.raw() for buffer in buffers)]
    sizes = [len(part) for part in parts]
    head = struct.pack(f"<Q{len(sizes)}Q", len(sizes), *sizes)
    if len(head) + sum(map(_aligned, sizes)) <= INLINE_BYTES_MAX:
        connection.send_bytes(head + b"".join(bytes(part).ljust(_aligned(len(part)), b"\0") for part in parts))
        return
    memory = os.memfd_create("gt-batch", os.MFD_CLOEXEC)
    try:
        at = 0
        for part in parts:
            written = 0
            while written < len(part):
                written += os.pwrite(memory, part[written:], at + written)
            at += _aligned(len(part))
        os.ftruncate(memory, at)
        connection.send_bytes(head)
        reduction.send_handle(connection, memory, None)
    finally:
        os.close(memory)


def receive(connection: Connection) -> Any:
    """Waits for the next message.

    Raises:
        EOFError: The other side has ended.
    """
    content = memoryview(connection.recv_bytes())
    (count,) = struct.unpack_from("<Q", content)
    sizes: Sequence[int] = struct.unpack_from(f"<{count}Q", content, 8)
    content = content[8 * (1 + count) :]
    if not content:
        handle = reduction.recv_handle(connection)
        try:
            # Private, so that an array may be written to; its pages are copied only then.
            content = memoryview(mmap.mmap(handle, 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE))
        finally:
            os.close(handle)
    else:
        content = memoryview(bytearray(content))
    parts = []
    at = 0
    for size in sizes:
        parts.append(content[at : at + size])
        at += _aligned(size)
    return pickle.loads(parts[0], buffers=parts[1:])
