"""`save` and `load`: checkpoints in PyTorch's zip format, or tensors alone in that of safetensors.

Loading runs no code of the file. `_checkpoint` implements the former format, `_safetensors` the latter.
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
# The beginning of files of PyTorch before version 1.6: a pickled number.
LEGACY_MAGIC = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."


def save(obj: Any, f: File, *, format: str | None = None) -> None:
    """Saves an object as a checkpoint that `gt.load` and PyTorch's `torch.load` read.

    Args:
        obj: Tensors, numbers, strings, bytes, `None`, dtypes, devices, and dicts, lists, tuples and sets of these. Save
            the `state_dict()` of a module or optimizer, not the object itself. For a safetensors file, a dict of
            tensors.
        f: A path, or a file opened for writing bytes.
        format: `"torch"` or `"safetensors"`. If not given, a path that ends with `.safetensors` gets that format, and
            every other file PyTorch's.

    Raises:
        TypeError: `obj` contains something else; the message says where.

    Example:
        >>> gt.save({"weight": gt.ones(2)}, "model.pt")
        >>> gt.load("model.pt")
        {'weight': tensor([1., 1.])}
        >>> model = gt.nn.Linear(2, 3)
        >>> gt.save(model.state_dict(), "model.safetensors")
        >>> model.load_state_dict(gt.load("model.safetensors"))
        <All keys matched successfully>
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
    """Loads a checkpoint in PyTorch's zip format or a safetensors file. No code of the file is run.

    Args:
        f: A path, or a file opened for reading bytes.
        map_location: If given, tensors that were saved on a device that is not here are loaded, too. The daemon places
            all tensors; the device itself does not matter.
        weights_only: Ignored: only data is ever loaded.
        mmap: Ignored: the whole file is read at once.

    Returns:
        The object that was saved.

    Raises:
        ValueError: The file is of another format, is truncated, or is of PyTorch's format before 1.6.
        pickle.UnpicklingError: It contains objects of other classes.
        RuntimeError: Tensors were saved on a device that is not here, and there is no `map_location`.

    Example:
        >>> gt.save(gt.ones(2), "x.pt")
        >>> gt.load("x.pt")
        tensor([1., 1.])
    """
    del weights_only, mmap  # Only data is read in any case, and tensors are copied to the daemon.
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
