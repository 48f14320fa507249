"""Reading of checkpoints in PyTorch's format: a zip archive with a pickle of the object, and its tensors' elements.

With `weights_only`, the unpickler knows the names of tensors and plain data, and calls nothing but the few functions
here; without, it finds every class and function that the pickle names, those of PyTorch in GT. `_checkpoint_writer`
writes checkpoints. Start at `load`.
"""

from __future__ import annotations

import io
import math
import pickle
import zipfile
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import IO, Any

import numpy as np

from gt import _gt, _layouts, _pytorch_names, _safetensors
from gt._checkpoint_writer import STORAGES, contiguous
from gt._gt import Tensor
from gt._types import Size
from gt.nn.parameter import Parameter

# The classes and functions that `gt.serialization.add_safe_globals` allows, or pairs of them and their names.
safe_globals: list[Any] = []


class _Storage:
    """A storage in the archive: its dtype, key and number of elements."""

    def __init__(self, kind: str, key: int | str, count: int) -> None:
        self.kind, self.key, self.count = kind, key, count


def _path(obj: Any) -> str:
    """The name of a class or function in a pickle, as `package.module.Class`."""
    if _pytorch_names.is_own(obj.__module__):
        return ".".join(_pytorch_names.name_of(obj.__module__, obj.__qualname__))
    return f"{obj.__module__}.{obj.__qualname__}"


class _Stored:
    """A storage of the archive and the tensors that were made of it, with their places in it.

    The first place is read by itself. Only a second one makes the whole storage a tensor, of which all are views.
    """

    def __init__(self) -> None:
        self.made: list[tuple[tuple[Any, ...], Tensor]] = []
        self.base: Tensor | None = None


class _Reader(pickle.Unpickler):
    """An unpickler of checkpoints.

    Args:
        file: The pickle.
        archive: The archive with the storages.
        anywhere: Whether tensors of devices that are not here are read, too.
        weights_only: Whether to refuse every name but those of tensors, plain data and what `safe_globals` allows.
        elements: Whether tensors get their elements; else they are on the device `meta`.
    """

    def __init__(
        self, file: IO[bytes], archive: _Archive, anywhere: bool, weights_only: bool, elements: bool = True
    ) -> None:
        super().__init__(file, encoding="utf-8")
        self.archive = archive
        self.anywhere, self.weights_only, self.elements = anywhere, weights_only, elements
        self.storages: dict[tuple[str, str], _Stored] = {}

    def find_class(self, module: str, name: str) -> Any:
        if module in ("torch", "torch.storage") and (name in STORAGES or name == "UntypedStorage"):
            return _Storage(name, "", 0)
        if module == "torch" and isinstance(getattr(_gt, name, None), _gt.dtype):
            return getattr(_gt, name)
        # Fresh objects, since a pickle can modify the objects that it is given.
        known: dict[tuple[str, str], Callable[..., Any]] = {
            ("torch._utils", "_rebuild_tensor_v2"): self.tensor,
            ("torch._utils", "_rebuild_tensor"): self.tensor,
            ("torch._utils", "_rebuild_tensor_v3"): self.tensor_of_bytes,
            ("torch._utils", "_rebuild_sparse_tensor"): _sparse,
            ("torch._utils", "_rebuild_parameter"): self.parameter,
            ("torch._utils", "_rebuild_parameter_with_state"): self.parameter,
            ("torch._tensor", "_rebuild_from_type_v2"): _of_type,
            ("torch.nn.parameter", "Parameter"): Parameter,
            ("torch", "Tensor"): Tensor,
            ("torch", "Size"): Size,
            ("torch", "device"): _gt.device,
            ("torch.serialization", "_get_layout"): _layout,
            ("collections", "OrderedDict"): OrderedDict,
            ("collections", "Counter"): Counter,
            **{
                (home, kind.__name__): kind
                for kind in (set, bytearray, complex)
                for home in ("builtins", "__builtin__")
            },
            ("_codecs", "encode"): _bytes,
        }
        if (module, name) in known:
            return partial(known[module, name])
        for allowed in safe_globals:
            found, path = allowed if isinstance(allowed, tuple) else (allowed, _path(allowed))
            if path == f"{module}.{name}":
                return found
        if not self.weights_only:
            if module == "torch" or module.startswith("torch."):
                return _pytorch_names.object_of(module, name)
            return super().find_class(module, name)
        raise pickle.UnpicklingError(
            f"Weights only load failed. Unsupported global: GLOBAL {module}.{name} was not an allowed global by "
            "default: tensors, numbers, strings and containers are, and what serialization.add_safe_globals allows. "
            f"Please use serialization.add_safe_globals([{name}]), or weights_only=False if you trust the file: "
            "loading it then runs the code that it names."
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
        """`_rebuild_tensor_v2`: a tensor of a storage's elements. Tensors of one storage share its elements."""
        if not isinstance(storage, _Storage):
            raise pickle.UnpicklingError("load: a tensor without a storage")
        if storage.kind not in STORAGES:
            raise pickle.UnpicklingError(f"load: a tensor of a storage without a dtype: {storage.kind}")
        t = self.shared(storage, (offset, tuple(size), tuple(stride)))
        return t.requires_grad_() if requires_grad else t

    def tensor_of_bytes(
        self,
        storage: _Storage,
        offset: int,
        size: Sequence[int],
        stride: Sequence[int],
        requires_grad: bool,
        _hooks: Any,
        dtype: _gt.dtype,
        *_: Any,
    ) -> Tensor:
        """`_rebuild_tensor_v3`: as `tensor`, with the dtype apart from the storage."""
        kinds = {known: kind for kind, known in STORAGES.items()}
        if not isinstance(storage, _Storage) or not isinstance(dtype, _gt.dtype):
            raise pickle.UnpicklingError("load: a tensor without a storage, or of a dtype that GT does not have")
        typed = _Storage(kinds[dtype.name], storage.key, storage.count // dtype.itemsize)
        return self.tensor(typed, offset, size, stride, requires_grad)

    def shared(self, storage: _Storage, place: tuple[Any, ...]) -> Tensor:
        """A tensor at a place of a storage: its offset, shape and strides."""
        if not self.elements:
            # Classes override operations from the first import of this module on.
            from gt import _meta

            return _meta.empty(place[1], getattr(_gt, STORAGES[storage.kind]))
        stored = self.storages.setdefault((str(storage.key), storage.kind), _Stored())
        same = next((t for known, t in stored.made if known == place), None)
        if same is not None:
            t = same.detach()
        elif not stored.made:
            t = self.archive.tensor(storage, *place)
        else:
            # The check of the place is the archive's.
            self.archive.tensor(storage, *place)
            if stored.base is None:
                stored.base = self.archive.tensor(storage, 0, (storage.count,), (1,))
                for (offset, size, stride), earlier in stored.made:
                    earlier.data = stored.base.as_strided(size, stride, offset)
            offset, size, stride = place
            t = stored.base.as_strided(size, stride, offset)
        stored.made.append((place, t))
        return t

    def parameter(
        self, data: Tensor, requires_grad: bool, _hooks: Any = None, state: dict[str, Any] | None = None
    ) -> Any:
        """`_rebuild_parameter`, also with attributes: a parameter with the elements of a tensor."""
        if not isinstance(data, Tensor):
            raise pickle.UnpicklingError("load: a parameter without a tensor")
        made = Parameter(data, requires_grad)
        made.__dict__.update(state or {})
        for stored in self.storages.values():
            for place, t in stored.made[-1:]:
                if t is data:
                    stored.made.append((place, made))
        return made


def _of_type(make: Callable[..., Tensor], cls: type, args: tuple[Any, ...], state: Any) -> Tensor:
    """`_rebuild_from_type_v2`: an instance of a class that derives from `Tensor`, or a tensor with attributes."""
    t = make(*args)
    if not (isinstance(cls, type) and issubclass(cls, Tensor)):
        raise pickle.UnpicklingError(f"load: {cls!r} does not derive from Tensor")
    if type(t) is not cls:
        t = Tensor.__new__(cls, _detached=t).requires_grad_(t.requires_grad)
    if callable(restore := getattr(type(t), "__setstate__", None)):
        restore(t, state)
    elif isinstance(state, dict):
        t.__dict__.update(state)
    return t


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
        name = STORAGES[storage.kind]
        itemsize = getattr(_gt, name).itemsize
        data = self.record(f"data/{storage.key}")
        numbers = (*size, *stride, offset)
        if len(size) != len(stride) or any(type(n) is not int or n < 0 for n in numbers):
            raise pickle.UnpicklingError(f"load: not a shape and strides: {size}, {stride} from {offset}")
        last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
        if 0 not in size and (last + 1) * itemsize > len(data):
            raise ValueError(f"load: a tensor of shape {list(size)} ends behind the {len(data)} bytes of its storage")
        if tuple(stride) == contiguous(size) and self.order == "<":
            begin = offset * itemsize
            return _safetensors.tensor_of(memoryview(data)[begin : begin + math.prod(size) * itemsize], name, size)
        elements = np.frombuffer(data, f"{self.order}u{itemsize}")[offset:] if 0 not in size else np.empty(0, "u1")
        strides = [step * itemsize for step in stride]
        picked = np.lib.stride_tricks.as_strided(elements, size, strides, writeable=False)
        return _safetensors.tensor_of(picked.astype(picked.dtype.newbyteorder("<")).tobytes(), name, size)


def load(content: bytes, anywhere: bool, weights_only: bool, elements: bool = True) -> Any:
    """The object of a checkpoint.

    Args:
        content: The file.
        anywhere: Whether tensors that were saved on other devices are loaded.
        weights_only: Whether objects of other classes than tensors and plain data are refused.
        elements: Whether tensors get their elements; else they are on the device `meta`.

    Raises:
        ValueError: The file is truncated, or is no checkpoint.
        pickle.UnpicklingError: It contains objects of other classes, and `weights_only`.
        RuntimeError: Tensors were saved on another device, and `anywhere` is false.
    """
    archive = _Archive(content)
    reader = _Reader(io.BytesIO(archive.record("data.pkl")), archive, anywhere, weights_only, elements)
    if not weights_only:
        return reader.load()
    try:
        return reader.load()
    except (TypeError, AttributeError, IndexError, EOFError, UnicodeDecodeError, KeyError) as error:
        raise pickle.UnpicklingError(f"load: the pickle of this checkpoint is damaged: {error}") from error


def _layout(name: str) -> _layouts.layout:
    """`_get_layout`: the layout of a name, as `torch.sparse_coo`."""
    found = getattr(_layouts, name.removeprefix("torch."), None)
    if not isinstance(found, _layouts.layout):
        raise pickle.UnpicklingError(f"load: there is no layout {name}")
    return found


def _sparse(layout: _layouts.layout, parts: tuple[Any, ...]) -> Tensor:
    """`_rebuild_sparse_tensor`: a tensor of its layout and of the parts that it has in it."""
    # Classes override operations from the first import of this module on.
    from gt import sparse

    if layout is _layouts.sparse_coo:
        indices, values, size, *coalesced = parts
        return sparse._coo(indices, values, size, is_coalesced=coalesced[0] if coalesced else None)
    return sparse._compressed_matrix(layout, *parts)
