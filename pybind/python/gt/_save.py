"""`save` and `load`: checkpoints in PyTorch's zip format, or tensors alone in that of safetensors.

Loading runs no code of the file unless the program asks for it. `_checkpoint` and `_checkpoint_writer` implement the
former format, `_safetensors` the latter.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from typing import IO, Any

from gt import _checkpoint, _checkpoint_writer, _gt, _safetensors

File = str | os.PathLike[str] | IO[bytes]

SAFETENSORS = ".safetensors"
ZIP_MAGIC = b"PK\x03\x04"
# The beginning of files of PyTorch before version 1.6: a pickled number.
LEGACY_MAGIC = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."


def save(
    obj: Any,
    f: File,
    pickle_module: Any = None,
    pickle_protocol: int = _checkpoint_writer.PROTOCOL,
    _use_new_zipfile_serialization: bool = True,
    *,
    format: str | None = None,
) -> None:
    """Saves an object as a checkpoint that `gt.load` and PyTorch's `torch.load` read.

    Args:
        obj: Anything that can be pickled. Tensors, numbers, strings, bytes, `None`, dtypes, devices, and dicts, lists,
            tuples and sets of these can be loaded without running code: prefer the `state_dict()` of a module or
            optimizer to the object itself. For a safetensors file, a dict of tensors.
        f: A path, or a file opened for writing bytes. A file at the path is replaced only when all is written.
        pickle_module: Ignored.
        pickle_protocol: The protocol of the pickle.
        _use_new_zipfile_serialization: Ignored: the file is a zip archive.
        format: `"torch"` or `"safetensors"`. If not given, a path that ends with `.safetensors` gets that format, and
            every other file PyTorch's.

    Tensors that share elements share them when they are loaded, and parameters stay parameters.

    Raises:
        pickle.PicklingError: `obj` contains what cannot be pickled.
        TypeError: The dict for a safetensors file contains something else than tensors.

    Example:
        >>> gt.save({"weight": gt.ones(2)}, "model.pt")
        >>> gt.load("model.pt")
        {'weight': tensor([1., 1.])}
        >>> model = gt.nn.Linear(2, 3)
        >>> gt.save(model.state_dict(), "model.safetensors")
        >>> model.load_state_dict(gt.load("model.safetensors"))
        <All keys matched successfully>
    """
    del pickle_module, _use_new_zipfile_serialization
    if format is None:
        named = isinstance(f, str | os.PathLike) and os.fspath(f).endswith(SAFETENSORS)
        format = "safetensors" if named else "torch"
    if format not in ("torch", "safetensors"):
        raise ValueError(f'save: format is "torch" or "safetensors", but got {format!r}')
    with nullcontext(f) if hasattr(f, "write") else _replaced(os.fspath(f)) as file:
        if format == "safetensors":
            _safetensors.save(obj, file)
        else:
            _checkpoint_writer.save(obj, file, pickle_protocol)


@contextmanager
def _replaced(path: str | bytes) -> Iterator[IO[bytes]]:
    """A file to write, which takes the place of the one at `path` if the block ends without an error."""
    path = os.path.realpath(os.fsdecode(path))
    if os.path.exists(path) and not os.path.isfile(path):
        with open(path, "wb") as file:
            yield file
        return
    new = f"{path}.{os.getpid()}.{threading.get_ident()}.new"
    try:
        with open(new, "wb") as file:
            yield file
        if os.path.exists(path):
            shutil.copymode(path, new)
        os.replace(new, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(new)
        raise


def _is_weights_only(asked: bool | None) -> bool:
    """Returns whether a file's classes are refused, by the argument of `load` and PyTorch's environment variables."""
    always, unless_asked = (
        os.environ.get(f"TORCH_FORCE_{name}_LOAD", "0").lower() in ("1", "y", "yes", "true")
        for name in ("WEIGHTS_ONLY", "NO_WEIGHTS_ONLY")
    )
    if always and unless_asked:
        raise RuntimeError(
            "load: TORCH_FORCE_WEIGHTS_ONLY_LOAD and TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD exclude each other"
        )
    if always:
        return True
    return not unless_asked if asked is None else asked


def load(
    f: File,
    map_location: str | _gt.device | Mapping[str, str] | Callable[..., Any] | None = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    **pickle_load_args: Any,
) -> Any:
    """Loads a checkpoint in PyTorch's zip format or a safetensors file. No code is run unless `weights_only=False`.

    Args:
        f: A path, or a file opened for reading bytes.
        map_location: If given, tensors that were saved on a device that is not here are loaded, too. The daemon places
            all tensors; the device itself does not matter, but for `"meta"`, which gives tensors without elements.
        pickle_module: Ignored.
        weights_only: Whether to load only tensors, numbers, strings, containers and what
            `gt.serialization.add_safe_globals` allows, as by default. `False` loads objects of every class, whole
            modules among them, and runs the code that the file names: load only a file that you trust. As in PyTorch,
            the environment variable `TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1` makes `False` the default, and
            `TORCH_FORCE_WEIGHTS_ONLY_LOAD=1` stands for `True` in every call.
        mmap: Ignored: the whole file is read at once.
        pickle_load_args: Ignored.

    Returns:
        The object that was saved.

    Raises:
        ValueError: The file is of another format, is truncated, or is of PyTorch's format before 1.6.
        pickle.UnpicklingError: It contains objects of other classes, and `weights_only` is not `False`.
        RuntimeError: Tensors were saved on a device that is not here, and there is no `map_location`.

    Example:
        >>> gt.save(gt.ones(2), "x.pt")
        >>> gt.load("x.pt")
        tensor([1., 1.])
    """
    del pickle_module, mmap, pickle_load_args  # Tensors are copied to the daemon in any case.
    weights_only = _is_weights_only(weights_only)
    elements = str(map_location) != "meta"
    if isinstance(map_location, str | _gt.device) and elements:
        _gt.check_device(map_location)
    elif isinstance(map_location, Mapping):
        for place in map_location.values():
            _gt.check_device(place)
    with nullcontext(f) if hasattr(f, "read") else open(f, "rb") as file:
        content = file.read()
    if content.startswith(ZIP_MAGIC):
        return _checkpoint.load(content, map_location is not None, weights_only, elements)
    if content.startswith(LEGACY_MAGIC):
        raise ValueError(
            "load: this file is of PyTorch's format before version 1.6: read it with torch.load where PyTorch is "
            "installed, and torch.save it again"
        )
    return _safetensors.load(content)
