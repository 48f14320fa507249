"""The header that every file of llm.c begins with: 256 little-endian int32, of which the first is the file's magic."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

HEADER_INTS = 256
HEADER_BYTES = 4 * HEADER_INTS
# The kinds of files by their magic.
KINDS = {
    20240326: "a model",
    20240327: "a debug state",
    20240328: "a tokenizer",
    20240520: "tokens",
    20240522: "HellaSwag examples",
    20240527: "a training state",
}
MODEL, DEBUG_STATE, TOKENIZER, TOKENS, HELLASWAG, TRAIN_STATE = KINDS


class FileError(ValueError):
    """A file that is not what it should be. The message names the file, what was found and what to do."""


def check_header(header: bytes, path: str | os.PathLike[str], magic: int, versions: tuple[int, ...]) -> np.ndarray:
    """Returns the 256 numbers of a header.

    Args:
        header: The first 1,024 bytes of the file.
        path: The file, for errors.
        magic: The magic that the file should have.
        versions: The versions that can be read.

    Raises:
        FileError: The header is too short, or is that of another kind or version of file.
    """
    if len(header) < HEADER_BYTES:
        raise FileError(f"{path} is no file of llm.c: it has {len(header)} bytes, a header alone has {HEADER_BYTES}")
    numbers = np.frombuffer(header, "<i4", HEADER_INTS)
    found, version = int(numbers[0]), int(numbers[1])
    if found != magic:
        kind = KINDS.get(found)
        what = f"it holds {kind}" if kind else f"it begins with {found}, which is no magic of llm.c"
        raise FileError(f"{path} does not hold {KINDS[magic]}: {what}")
    if version not in versions:
        known = " or ".join(map(str, versions))
        raise FileError(f"{path} has version {version} of its format, but {known} can be read: write the file anew")
    return numbers


def make_header(magic: int, version: int, fields: dict[int, int]) -> bytes:
    """Returns a header with these numbers at these indices, and zeros elsewhere."""
    numbers = np.zeros(HEADER_INTS, "<i4")
    numbers[:2] = magic, version
    for at, number in fields.items():
        numbers[at] = number
    return numbers.tobytes()


def check_size(path: str | os.PathLike[str], found: int, expected: int, holds: str) -> None:
    """Raises an error if a file has not the bytes that its header tells.

    Raises:
        FileError: It is shorter or longer.
    """
    if found != expected:
        how = "is cut off" if found < expected else "is too long"
        raise FileError(f"{path} {how}: {holds} take {expected:,} bytes, but the file has {found:,}")


@contextlib.contextmanager
def written(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Opens a file that appears under its name once it is complete: a write that fails leaves the old file."""
    path = Path(path)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with unfinished.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
