"""Files of the safetensors format: tensors by name. Reading one runs no code.

A file has the length of its header (8 bytes, little-endian), the header (JSON with the dtype, shape and offsets of each
tensor) and the elements in row-major order, little-endian.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import IO, Any

import numpy as np

from gt import _gt
from gt._gt import Tensor

# The format's names of dtypes. NumPy has no bfloat16, so its bits are written as uint16.
_WORDS = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "int16": "I16",
    "int32": "I32",
    "int64": "I64",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
    "uint16": "U16",
    "uint32": "U32",
    "uint64": "U64",
    "complex64": "C64",
}
_NAMES = {word: name for name, word in _WORDS.items()}

LENGTH_BYTES = 8
# The largest header, as in the format's own readers.
HEADER_BYTES_MAX = 100_000_000
ALIGNMENT_BYTES = 8


def elements(t: Tensor) -> bytes:
    """The elements in row-major order, little-endian."""
    previous = _gt.set_grad_enabled(False)
    try:
        plain = t.detach()
        if t.dtype == _gt.bfloat16:
            # A bfloat16 is the upper half of a float32.
            array = (plain.to(_gt.float32).numpy().view(np.uint32) >> 16).astype("<u2")
        else:
            array = plain.numpy()
    finally:
        _gt.set_grad_enabled(previous)
    return np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False).tobytes()


def tensor_of(data: bytes | memoryview, name: str, shape: Sequence[int]) -> Tensor:
    """A tensor of the dtype called `name` from the bytes of its elements."""
    if name == "bfloat16":
        array = (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)
    else:
        array = np.frombuffer(data, np.dtype(name).newbyteorder("<")).astype(name)
    return _gt.copy_array(array).to(getattr(_gt, name)).reshape(shape)


def save(obj: Any, file: IO[bytes]) -> None:
    """Writes a dict of tensors.

    Raises:
        TypeError: `obj` is no dict from strings to tensors.
    """
    if not isinstance(obj, Mapping):
        raise TypeError(f"save: expected a dict of tensors by name, but got {type(obj).__name__}: give a state_dict()")
    header: dict[str, Any] = {}
    pieces = []
    end = 0
    for name, t in obj.items():
        if not isinstance(name, str) or not isinstance(t, Tensor):
            raise TypeError(
                f"save: expected tensors by name, but {name!r} holds a {type(t).__name__}: safetensors files hold "
                "tensors alone, so save other values as JSON, or all in PyTorch's format: give the file another name"
            )
        if name == "__metadata__":
            raise TypeError("save: '__metadata__' is the format's own name: rename that tensor")
        data = elements(t)
        word = _WORDS[t.dtype.name]
        header[name] = {"dtype": word, "shape": list(t.shape), "data_offsets": [end, end + len(data)]}
        end += len(data)
        pieces.append(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNMENT_BYTES)
    file.write(len(text).to_bytes(LENGTH_BYTES, "little"))
    file.write(text)
    for data in pieces:
        file.write(data)


def load(content: bytes) -> dict[str, Tensor]:
    """The tensors of a file's content, by name.

    Raises:
        ValueError: The file is truncated, or is no safetensors file; the message says where.
    """
    size = int.from_bytes(content[:LENGTH_BYTES], "little")
    start = LENGTH_BYTES + size
    if len(content) < LENGTH_BYTES or not 0 < size <= HEADER_BYTES_MAX or start > len(content):
        raise ValueError(f"load: not a safetensors file, or truncated: {len(content)} bytes, the header claims {size}")
    try:
        header = json.loads(content[LENGTH_BYTES:start])
    except ValueError as error:
        raise ValueError(f"load: not a safetensors file: its header is not JSON ({error})") from error
    if not isinstance(header, dict):
        raise ValueError("load: not a safetensors file: its header is not an object")
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            dtype, shape, begin, end = _entry(name, entry, len(content) - start)
            tensors[name] = tensor_of(content[start + begin : start + end], dtype, shape)
    return tensors


def _entry(name: str, entry: Any, available: int) -> tuple[str, list[int], int, int]:
    """The dtype, shape and offsets of a tensor, after checking that they agree."""
    try:
        word, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
        whole = all(type(number) is int and number >= 0 for number in (*shape, begin, end))
    except (KeyError, TypeError, ValueError):
        whole = False
    if not whole:
        raise ValueError(f"load: the entry of {name!r} is not one of a safetensors file")
    if word not in _NAMES:
        raise ValueError(f"load: {name!r} is of dtype {word!r}, which GT has not: it has {', '.join(_NAMES)}")
    dtype = _NAMES[word]
    wanted = math.prod(shape) * getattr(_gt, dtype).itemsize
    if end - begin != wanted:
        raise ValueError(f"load: {name!r} of shape {shape} takes {wanted} bytes, but its place has {end - begin}")
    if end > available:
        raise ValueError(f"load: truncated: {name!r} ends at byte {end} of the elements, but there are {available}")
    return dtype, shape, begin, end
