"""Writing of checkpoints in PyTorch's format: a pickle of the object, and the elements of its storages beside it.

The pickle names PyTorch's classes, so PyTorch reads it. Start at `save`.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import cache
from types import FunctionType
from typing import IO, Any, ClassVar

import numpy as np

from gt import _gt, _pytorch_names, _safetensors
from gt._gt import Tensor
from gt._layouts import layout, memory_format, strided
from gt._types import Size
from gt.nn.module import Module

# PyTorch's names for the storages of each dtype.
STORAGES = {
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
    "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128",
}
_STORAGE_OF = {dtype: storage for storage, dtype in STORAGES.items()}

FOLDER = "archive"
PROTOCOL = 2


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a row-major tensor."""
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


class _Named:
    """A class or function of PyTorch's, by its name."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name

    def __call__(self, *_: Any) -> Any:
        """Raises an error: it is called where the pickle is read. `pickle` asks whether it could be."""
        raise TypeError(f"{self.module}.{self.name} is called when the checkpoint is loaded")


@cache
def _named(module: str, name: str) -> _Named:
    return _Named(module, name)


class _Plain:
    """The tensor inside a parameter or an instance of a derived class."""

    def __init__(self, tensor: Tensor, requires_grad: bool) -> None:
        self.tensor, self.requires_grad = tensor, requires_grad


class _Storage:
    """A storage in the archive: the tensor that has its elements, and its key."""

    def __init__(self, tensor: Tensor, key: int) -> None:
        self.tensor, self.key = tensor, key


class _Views:
    """Which tensors of an object are views of a storage that others share.

    A view that nobody shares is written by its own elements alone.
    """

    def __init__(self) -> None:
        # The places that tensors have in each storage: offset, shape and strides.
        self.places: dict[tuple[int, str], set[tuple[Any, ...]]] = {}
        self.has_views = False
        self._valid: dict[tuple[Any, ...], bool] = {}

    @staticmethod
    def _key(t: Tensor) -> tuple[int, str]:
        return t._storage_key, t.dtype.name

    @staticmethod
    def _place(t: Tensor) -> tuple[Any, ...]:
        return t.storage_offset(), tuple(t.shape), tuple(t.stride())

    def add(self, t: Tensor) -> None:
        """Notes a tensor that the object contains."""
        self.places.setdefault(self._key(t), set()).add(self._place(t))
        self.has_views = self.has_views or t._is_view()

    def whole(self, t: Tensor) -> Tensor | None:
        """The tensor with all elements of the storage if `t` is to be written as a part of it; else `None`."""
        places = self.places.get(self._key(t), set())
        base = t._base if t._is_view() else t
        if len(places) < 2 or base is None or base.dtype is not t.dtype:
            return None
        # Strides that only describe PyTorch's memory, as those of channels_last, are no places in the storage.
        place = (self._key(t), *self._place(t))
        if place not in self._valid:
            elements = _elements(base).reshape(-1)
            offset, shape, strides = self._place(t)
            steps = [step * elements.itemsize for step in strides]
            own = _elements(t).reshape(shape)
            last = offset + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
            fits = 0 not in shape and 0 <= last < elements.size
            found = np.lib.stride_tricks.as_strided(elements[offset:], shape, steps) if fits else None
            self._valid[place] = found is not None and found.tobytes() == own.tobytes()
        return base if self._valid[place] else None


def _elements(t: Tensor) -> np.ndarray[Any, Any]:
    """The elements as items of the dtype's size."""
    return np.frombuffer(_safetensors.elements(t), f"V{t.dtype.itemsize}").reshape(tuple(t.shape))


class _Pickler(pickle._Pickler):  # type: ignore[name-defined, misc]
    """A pickler that writes tensors as PyTorch does, and GT's classes under PyTorch's names."""

    dispatch: ClassVar[dict[type, Callable[..., None]]] = dict(pickle._Pickler.dispatch)  # type: ignore[attr-defined]

    def __init__(self, file: IO[bytes], protocol: int, views: _Views) -> None:
        super().__init__(file, protocol)
        self.views = views
        self.storages: list[Tensor] = []
        self._known: dict[tuple[Any, ...], int] = {}
        self._kept: list[Any] = []

    def persistent_id(self, obj: Any) -> Any:
        """The id of a storage: its kind, key, place and number of elements."""
        if isinstance(obj, _Storage):
            name = obj.tensor.dtype.name
            if name not in _STORAGE_OF:
                raise TypeError(
                    f"PyTorch's format has no storage of {name}: save it to a .safetensors file, or convert it"
                )
            kind = _named("torch", _STORAGE_OF[name])
            return ("storage", kind, str(obj.key), "cpu", obj.tensor.numel())
        return None

    def reducer_override(self, obj: Any) -> Any:
        """How a tensor, a module, a size or a device is made again."""
        if isinstance(obj, Tensor):
            return self._tensor(obj)
        if isinstance(obj, _Plain):
            return self._elements(obj.tensor, obj.requires_grad)
        if isinstance(obj, Module):
            return self._module(obj)
        if isinstance(obj, Size):
            return _named("torch", "Size"), (tuple(obj),)
        if isinstance(obj, layout):
            return _named("torch.serialization", "_get_layout"), (f"torch.{obj._name}",)
        if isinstance(obj, _gt.device):
            return _named("torch", "device"), (str(obj),)
        return NotImplemented

    def save_global(self, obj: Any, name: str | None = None) -> None:
        """Writes a class or function by its name: one of GT's by PyTorch's."""
        if isinstance(obj, (layout, memory_format)):
            module, name = "gt", str(name)
        else:
            name = name or getattr(obj, "__qualname__", None) or obj.__name__
            module = getattr(obj, "__module__", None) or ""
        if not _pytorch_names.is_own(module):
            super().save_global(obj, name)
            return
        if "<" in name:
            raise pickle.PicklingError(f"Can't pickle {obj}: it's not found as {module}.{name}")
        self._name(_named(*_pytorch_names.name_of(module, name)), obj)

    def _name(self, named: _Named, obj: Any = None) -> None:
        self.write(pickle.GLOBAL + f"{named.module}\n{named.name}\n".encode())
        self.memoize(named if obj is None else obj)

    def _dtype(self, dtype: _gt.dtype) -> None:
        self._name(_named("torch", dtype.name), dtype)

    dispatch[_Named] = _name
    dispatch[_gt.dtype] = _dtype
    dispatch[FunctionType] = save_global

    def _module(self, module: Module) -> Any:
        """A module, with the registries of hooks as PyTorch has them."""
        reduced = list(module.__reduce_ex__(PROTOCOL))
        if len(reduced) > 2 and isinstance(reduced[2], dict) and "_forward_hooks" in reduced[2]:
            state = {"_is_full_backward_hook": None, **module._pytorch_state(), **reduced[2]}
            for name, value in state.items():
                if name.endswith(("_hooks", "_hooks_with_kwargs", "_hooks_always_called")):
                    state[name] = (
                        OrderedDict((key, True) for key in value) if isinstance(value, set) else OrderedDict(value)
                    )
            reduced[2] = state
        return tuple(reduced)

    def _tensor(self, t: Tensor) -> Any:
        if t._is_parameter:
            parts = (_Plain(t, False), t.requires_grad, OrderedDict())
            if t.__dict__:
                return _named("torch._utils", "_rebuild_parameter_with_state"), (*parts, t.__dict__)
            return _named("torch._utils", "_rebuild_parameter"), parts
        if t.layout is not strided:
            return _named("torch._utils", "_rebuild_sparse_tensor"), (t.layout, t._parts())
        if type(t) is not Tensor or t.__dict__:
            make, arguments = self._elements(t, t.requires_grad)
            return _named("torch._tensor", "_rebuild_from_type_v2"), (make, type(t), arguments, t.__dict__)
        return self._elements(t, t.requires_grad)

    def _elements(self, t: Tensor, requires_grad: bool) -> Any:
        """A call of `_rebuild_tensor_v2` with the tensor's storage and its place there."""
        t = Tensor.detach(t)
        self.views.add(t)
        whole = self.views.whole(t)
        if whole is None:
            key: tuple[Any, ...] = (t._storage_key, t.dtype.name, t.storage_offset(), tuple(t.shape), tuple(t.stride()))
            stored, place = t, (0, tuple(t.shape), contiguous(t.shape))
        else:
            key = (t._storage_key, t.dtype.name)
            stored, place = whole, (t.storage_offset(), tuple(t.shape), tuple(t.stride()))
        if key not in self._known:
            self._known[key] = len(self.storages)
            self.storages.append(stored)
        # Its storage's key is not used again while it is here.
        self._kept.append(t)
        storage = _Storage(stored, self._known[key])
        return _named("torch._utils", "_rebuild_tensor_v2"), (storage, *place, requires_grad, OrderedDict())


def _pickled(obj: Any, protocol: int) -> tuple[bytes, list[Tensor]]:
    """The pickle of an object, and the tensors whose elements its storages are."""
    views = _Views()
    while True:
        file = io.BytesIO()
        pickler = _Pickler(file, protocol, views)
        before = {key: len(places) for key, places in views.places.items()}
        pickler.dump(obj)
        # Whether a view shares its storage shows only when all tensors are known: then once more.
        if not views.has_views or before == {key: len(places) for key, places in views.places.items()}:
            return file.getvalue(), pickler.storages


def save(obj: Any, file: IO[bytes], protocol: int = PROTOCOL) -> None:
    """Writes a checkpoint of an object.

    Raises:
        pickle.PicklingError: It contains what cannot be pickled, as a function of a function.
    """
    content, storages = _pickled(obj, protocol)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, data in (("data.pkl", content), ("byteorder", b"little")):
            archive.writestr(zipfile.ZipInfo(f"{FOLDER}/{name}"), data)
        for key, t in enumerate(storages):
            archive.writestr(zipfile.ZipInfo(f"{FOLDER}/data/{key}"), _safetensors.elements(t))
        archive.writestr(zipfile.ZipInfo(f"{FOLDER}/version"), b"3\n")
