"""`save` and `load`: checkpoints in PyTorch's zip format, or tensors alone in that of safetensors.

Reading either runs no code. `_checkpoint` has the one format, `_safetensors` the other.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import IO, Any

from gt import _checkpoint, _gt, _safetensors

File = str | os.PathLike[str] | IO[bytes]

SAFETENSORS = ".safetensors"
ZIP_MAGIC = b"PK\x03\x04"
# What PyTorch wrote before version 1.6: a number, pickled.
LEGACY_MAGIC = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."


def save(obj: Any, f: File, *, format: str | None = None) -> None:
    """Writes a checkpoint that `gt.load` and PyTorch's `torch.load` read.

    Args:
        obj: Tensors, numbers, strings, bytes, None, dtypes, devices, and dicts, lists, tuples and sets of these; a
            safetensors file holds a dict of tensors alone.
        f: A path, or a file opened for writing bytes.
        format: "torch" or "safetensors"; without it, the name of the file decides: `*.safetensors` is one.

    Raises:
        TypeError: `obj` holds something else; it says where.
    """
    if format is None:
        named = isinstance(f, str | os.PathLike) and os.fspath(f).endswith(SAFETENSORS)
        format = "safetensors" if named else "torch"
    if format not in ("torch", "safetensors"):
        raise ValueError(f'save: format is "torch" or "safetensors", but got {format!r}')
    write = _safetensors.save if format == "safetensors" else _checkpoint.save
    with nullcontext(f) if hasattr(f, "write") else open(f, "wb") as file:
        write(obj, file)


def load(
    f: File,
    map_location: str | _gt.device | Mapping[str, str] | Callable[..., Any] | None = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
) -> Any:
    """Reads a checkpoint in PyTorch's zip format or a safetensors file, whoever wrote it, and runs no code of it.

    Args:
        f: A path, or a file opened for reading bytes.
        map_location: Where tensors go that were saved elsewhere: the CPU.
        weights_only: False asks for objects of any class, and is refused where there are some.
        mmap: Asks to read the file piece by piece; it has no effect on what is read.

    Raises:
        ValueError: The file is neither, is truncated, or is of PyTorch's format before 1.6.
        pickle.UnpicklingError: It holds objects of classes that are not data.
        RuntimeError: Tensors were saved on a device that is not here, and `map_location` does not say where to.
    """
    del weights_only, mmap  # Nothing but data is read in any case, and tensors are copied to the daemon.
    if isinstance(map_location, str | _gt.device):
        _gt.check_device(map_location)
    elif isinstance(map_location, Mapping):
        for place in map_location.values():
            _gt.check_device(place)
    with nullcontext(f) if hasattr(f, "read") else open(f, "rb") as file:
        content = file.read()
    if content.startswith(ZIP_MAGIC):
        return _checkpoint.load(content, map_location is not None)
    if content.startswith(LEGACY_MAGIC):
        raise ValueError(
            "load: this file is of PyTorch's format before version 1.6: read it with torch.load where PyTorch is "
            "installed, and torch.save it again"
        )
    return _safetensors.load(content)
