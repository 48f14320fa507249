"""Checkpoints in PyTorch's format: a zip archive with a pickle of the object, and its tensors' elements beside it.

The pickle is written opcode by opcode, naming PyTorch's classes, and read by an unpickler that knows those names and no
others: it calls nothing but the few functions here. Start at `save` and `load`.
"""

from __future__ import annotations

import io
import math
import pickle
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import IO, Any

import numpy as np

from gt import _gt, _safetensors
from gt._gt import Tensor
from gt._types import Size
from gt.nn.module import Module
from gt.nn.parameter import Parameter

# PyTorch's names for the storages of each dtype.
_STORAGES = {
    "BoolStorage": "bool",
    "ByteStorage": "uint8",
    "CharStorage": "int8",
    "ShortStorage": "int16",
    "IntStorage": "int32",
    "LongStorage": "int64",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "FloatStorage": "float32",
    "DoubleStorage": "float64",
}
_STORAGE_OF = {dtype: storage for storage, dtype in _STORAGES.items()}

# The classes and functions that `gt.serialization.add_safe_globals` allows, or pairs of them and their names.
safe_globals: list[Any] = []

FOLDER = "archive"
INT32_MAX = 2**31 - 1


def _contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a row-major tensor."""
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


# Writing ----------------------------------------------------------------------------------------------------------


class _Writer:
    """A writer of pickles of protocol 2 that `torch.load(weights_only=True)` reads."""

    def __init__(self) -> None:
        self.out = bytearray(pickle.PROTO + b"\x02")
        # The memo indices of objects by id, and the objects themselves, so that their ids are not reused.
        self.memo: dict[int, int] = {}
        self.kept: list[Any] = []
        # The bytes of each storage, and the storage of each value of the session.
        self.storages: list[bytes] = []
        self.known: dict[tuple[Any, ...], int] = {}

    def put(self, obj: Any) -> None:
        """Stores the top of the unpickler's stack in its memo, as `obj`."""
        self.memo[id(obj)] = len(self.memo)
        self.kept.append(obj)
        self.out += pickle.LONG_BINPUT + struct.pack("<I", self.memo[id(obj)])

    def call(self, module: str, name: str, *args: Any, where: str) -> None:
        """Writes a call of a function of PyTorch's with the arguments that were written before."""
        self.out += pickle.GLOBAL + f"{module}\n{name}\n".encode()
        self.write(args, where)
        self.out += pickle.REDUCE

    def write(self, obj: Any, where: str) -> None:
        """Writes an object; `where` is its path in the saved object, for error messages."""
        if id(obj) in self.memo:
            self.out += pickle.LONG_BINGET + struct.pack("<I", self.memo[id(obj)])
        elif obj is None:
            self.out += pickle.NONE
        elif isinstance(obj, Tensor):
            self.tensor(obj, where)
        elif isinstance(obj, _gt.dtype):
            self.out += pickle.GLOBAL + f"torch\n{obj.name}\n".encode()
        elif isinstance(obj, _gt.device):
            self.call("torch", "device", str(obj), where=where)
        elif isinstance(obj, Size):
            self.call("torch", "Size", tuple(obj), where=where)
        elif (write := _WRITERS.get(type(obj))) is not None:
            write(self, obj, where)
        else:
            advice = "its state_dict()" if isinstance(obj, Module) else "plain numbers, strings and containers"
            kind = f"{type(obj).__module__}.{type(obj).__qualname__}"
            raise TypeError(
                f"save: {where} is a {kind}, which a checkpoint that runs no code cannot hold: save {advice}"
            )

    def tensor(self, t: Tensor, where: str) -> None:
        if not t.is_leaf:
            t = t.detach()
        # Tensors that share elements share a storage.
        key = (t._id, t.dtype.name, tuple(t.shape))
        if key not in self.known:
            self.known[key] = len(self.storages)
            self.storages.append(_safetensors.elements(t))
            self.kept.append(t.detach())
        plain = _Rebuilt(self.known[key], t)
        if isinstance(t, Parameter):
            self.call("torch._utils", "_rebuild_parameter", plain, t.requires_grad, OrderedDict(), where=where)
        else:
            self.rebuilt(plain, where)
        self.put(t)

    def rebuilt(self, plain: _Rebuilt, where: str) -> None:
        t = plain.tensor
        storage = _Storage(_STORAGE_OF[t.dtype.name], plain.key, t.numel())
        requires_grad = t.requires_grad and not isinstance(t, Parameter)
        args = (storage, 0, tuple(t.shape), _contiguous(t.shape), requires_grad, OrderedDict())
        self.call("torch._utils", "_rebuild_tensor_v2", *args, where=where)

    def storage(self, storage: _Storage, where: str) -> None:
        self.out += pickle.MARK
        self.write("storage", where)
        self.out += pickle.GLOBAL + f"torch\n{storage.kind}\n".encode()
        for part in (str(storage.key), "cpu", storage.count):
            self.write(part, where)
        self.out += pickle.TUPLE + pickle.BINPERSID

    def number(self, number: int, _: str) -> None:
        if -INT32_MAX <= number <= INT32_MAX:
            self.out += pickle.BININT + struct.pack("<i", number)
        else:
            data = pickle.encode_long(number)
            if len(data) > 255:
                raise TypeError("save: an integer of more than 255 bytes")
            self.out += pickle.LONG1 + bytes([len(data)]) + data

    def text(self, text: str, _: str) -> None:
        data = text.encode("utf-8", "surrogatepass")
        self.out += pickle.BINUNICODE + struct.pack("<I", len(data)) + data

    def sequence(self, items: Sequence[Any], where: str) -> None:
        is_list = isinstance(items, list)
        if is_list:
            self.out += pickle.EMPTY_LIST
            self.put(items)
        self.out += pickle.MARK
        for i, item in enumerate(items):
            self.write(item, f"{where}[{i}]")
        self.out += pickle.APPENDS if is_list else pickle.TUPLE

    def mapping(self, items: Mapping[Any, Any], where: str) -> None:
        if isinstance(items, OrderedDict):
            self.call("collections", "OrderedDict", where=where)
        else:
            self.out += pickle.EMPTY_DICT
        self.put(items)
        self.out += pickle.MARK
        for key, value in items.items():
            self.write(key, f"a key of {where}")
            self.write(value, f"{where}[{key!r}]")
        self.out += pickle.SETITEMS


class _Rebuilt:
    """The tensor inside a parameter."""

    def __init__(self, key: int, tensor: Tensor) -> None:
        self.key, self.tensor = key, tensor


class _Storage:
    """A storage in the archive: its dtype, key and number of elements."""

    def __init__(self, kind: str, key: int | str, count: int) -> None:
        self.kind, self.key, self.count = kind, key, count


_WRITERS: dict[type, Callable[[_Writer, Any, str], None]] = {
    bool: lambda w, obj, _: w.out.extend(pickle.NEWTRUE if obj else pickle.NEWFALSE),
    int: _Writer.number,
    float: lambda w, obj, _: w.out.extend(pickle.BINFLOAT + struct.pack(">d", obj)),
    str: _Writer.text,
    bytes: lambda w, obj, at: w.call("_codecs", "encode", obj.decode("latin1"), "latin1", where=at),
    list: _Writer.sequence,
    tuple: _Writer.sequence,
    dict: _Writer.mapping,
    OrderedDict: _Writer.mapping,
    set: lambda w, obj, at: w.call("__builtin__", "set", list(obj), where=at),
    _Rebuilt: _Writer.rebuilt,
    _Storage: _Writer.storage,
}


def save(obj: Any, file: IO[bytes]) -> None:
    """Writes a checkpoint of tensors and plain data.

    Raises:
        TypeError: The object contains something else; the message says where.
    """
    writer = _Writer()
    writer.write(obj, "the object")
    writer.out += pickle.STOP
    records = [("data.pkl", bytes(writer.out)), ("byteorder", b"little")]
    records += [(f"data/{key}", data) for key, data in enumerate(writer.storages)]
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, data in [*records, ("version", b"3\n")]:
            archive.writestr(zipfile.ZipInfo(f"{FOLDER}/{name}"), data)


# Reading ----------------------------------------------------------------------------------------------------------


def _path(obj: Any) -> str:
    """The name of a class or function in a pickle, as `package.module.Class`."""
    return f"{obj.__module__}.{obj.__qualname__}"


class _Reader(pickle.Unpickler):
    """An unpickler that makes tensors, plain data and what `safe_globals` allows, and refuses every other name."""

    def __init__(self, file: IO[bytes], archive: _Archive, anywhere: bool) -> None:
        super().__init__(file, encoding="utf-8")
        self.archive = archive
        self.anywhere = anywhere
        self.tensors: dict[tuple[Any, ...], Tensor] = {}

    def find_class(self, module: str, name: str) -> Any:
        if module in ("torch", "torch.storage") and name in _STORAGES:
            return _Storage(name, "", 0)
        if module == "torch" and isinstance(getattr(_gt, name, None), _gt.dtype):
            return getattr(_gt, name)
        # Fresh objects, since a pickle can modify the objects that it is given.
        known: dict[tuple[str, str], Callable[..., Any]] = {
            ("torch._utils", "_rebuild_tensor_v2"): self.tensor,
            ("torch._utils", "_rebuild_tensor"): self.tensor,
            ("torch._utils", "_rebuild_parameter"): _parameter,
            ("torch", "Size"): Size,
            ("torch", "device"): _gt.device,
            ("collections", "OrderedDict"): OrderedDict,
            ("builtins", "set"): set,
            ("__builtin__", "set"): set,
            ("_codecs", "encode"): _bytes,
        }
        if (module, name) in known:
            return partial(known[module, name])
        for allowed in safe_globals:
            found, path = allowed if isinstance(allowed, tuple) else (allowed, _path(allowed))
            if path == f"{module}.{name}":
                return found
        raise pickle.UnpicklingError(
            f"Weights only load failed. Unsupported global: GLOBAL {module}.{name} was not an allowed global: GT reads "
            "tensors, numbers, strings, containers and what serialization.add_safe_globals allows. Where PyTorch is "
            "installed and the file is trusted, read it with torch.load and save these alone."
        )

    def persistent_load(self, pid: Any) -> _Storage:
        try:
            word, kind, key, place, count = pid
            whole = word == "storage" and isinstance(kind, _Storage) and type(count) is int and count >= 0
        except (TypeError, ValueError):
            whole = False
        if not whole:
            raise pickle.UnpicklingError(f"load: not a storage of PyTorch's: {pid!r}")
        if place != "cpu" and not self.anywhere:
            raise RuntimeError(
                f"Attempting to deserialize object on a device of type {place!r}, which is not available. If you are "
                "running on a CPU-only machine, please use torch.load with map_location=torch.device('cpu') to map "
                "your storages to the CPU."
            )
        return _Storage(kind.kind, str(key), count)

    def tensor(
        self,
        storage: _Storage,
        offset: int,
        size: Sequence[int],
        stride: Sequence[int],
        requires_grad: bool = False,
        *_: Any,
    ) -> Tensor:
        """`_rebuild_tensor_v2`: a tensor of a storage's elements. Tensors of the same elements share them."""
        if not isinstance(storage, _Storage):
            raise pickle.UnpicklingError("load: a tensor without a storage")
        size, stride = tuple(size), tuple(stride)
        place = (storage.key, storage.kind, offset, size, stride)
        if place not in self.tensors:
            self.tensors[place] = self.archive.tensor(storage, offset, size, stride)
            t = self.tensors[place]
        else:
            t = self.tensors[place].detach()
        return t.requires_grad_() if requires_grad else t


def _parameter(data: Tensor, requires_grad: bool, *_: Any) -> Any:
    return Parameter(data, requires_grad)


def _bytes(text: str, encoding: str) -> bytes:
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"load: bytes in the encoding {encoding!r}")
    return text.encode("latin1")


class _Archive:
    """The records of a checkpoint."""

    def __init__(self, content: bytes) -> None:
        try:
            self.zip = zipfile.ZipFile(io.BytesIO(content))
        except zipfile.BadZipFile as error:
            raise ValueError(f"load: the file is truncated, or is not of PyTorch's format: {error}") from error
        names = self.zip.namelist()
        pickles = [name for name in names if name.endswith("/data.pkl") and name.count("/") == 1]
        if len(pickles) != 1:
            raise ValueError(
                f"load: not a checkpoint of PyTorch's: a zip archive of {', '.join(names[:3]) or 'nothing'}"
            )
        self.folder = pickles[0].removesuffix("data.pkl")
        if self.folder + "constants.pkl" in names:
            raise ValueError("load: this is a program of TorchScript: save the state_dict() of the module instead")
        order = self.record("byteorder") if self.folder + "byteorder" in names else b"little"
        self.order = ">" if order == b"big" else "<"

    def record(self, name: str) -> bytes:
        try:
            info = self.zip.getinfo(self.folder + name)
            if info.compress_type != zipfile.ZIP_STORED:
                raise ValueError(f"load: not a checkpoint of PyTorch's: its record {name!r} is compressed")
            return self.zip.read(info)
        except (KeyError, zipfile.BadZipFile, EOFError) as error:
            raise ValueError(f"load: the file is damaged: its record {name!r}: {error}") from error

    def tensor(self, storage: _Storage, offset: int, size: Sequence[int], stride: Sequence[int]) -> Tensor:
        """The elements of a storage from `offset` on, with a shape and strides."""
        name = _STORAGES[storage.kind]
        itemsize = getattr(_gt, name).itemsize
        data = self.record(f"data/{storage.key}")
        numbers = (*size, *stride, offset)
        if len(size) != len(stride) or any(type(n) is not int or n < 0 for n in numbers):
            raise pickle.UnpicklingError(f"load: not a shape and strides: {size}, {stride} from {offset}")
        last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
        if 0 not in size and (last + 1) * itemsize > len(data):
            raise ValueError(f"load: a tensor of shape {list(size)} ends behind the {len(data)} bytes of its storage")
        if tuple(stride) == _contiguous(size) and self.order == "<":
            begin = offset * itemsize
            return _safetensors.tensor_of(memoryview(data)[begin : begin + math.prod(size) * itemsize], name, size)
        elements = np.frombuffer(data, f"{self.order}u{itemsize}")[offset:] if 0 not in size else np.empty(0, "u1")
        strides = [step * itemsize for step in stride]
        picked = np.lib.stride_tricks.as_strided(elements, size, strides, writeable=False)
        return _safetensors.tensor_of(picked.astype(picked.dtype.newbyteorder("<")).tobytes(), name, size)


def load(content: bytes, anywhere: bool) -> Any:
    """The object of a checkpoint; tensors that were saved on other devices are loaded if `anywhere`.

    Raises:
        ValueError: The file is truncated, or is no checkpoint.
        pickle.UnpicklingError: It contains objects of other classes.
        RuntimeError: Tensors were saved on another device, and `anywhere` is false.
    """
    archive = _Archive(content)
    try:
        return _Reader(io.BytesIO(archive.record("data.pkl")), archive, anywhere).load()
    except (TypeError, AttributeError, IndexError, EOFError, UnicodeDecodeError, KeyError) as error:
        raise pickle.UnpicklingError(f"load: the pickle of this checkpoint is damaged: {error}") from error
