"""Storages: the memory that tensors and their views share in PyTorch, as programs compare and measure it.

The elements are the daemon's. A storage knows which tensors share elements and how many bytes they take. `data_ptr()`
of a tensor is the address of a copy in this process, as it was when it was asked for; `data_ptr()` of a storage is the
address where that copy begins, which identifies the storage and costs no copy.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import Any, NoReturn

import numpy as np

from gt import _absent, _gt, _safetensors
from gt._gt import Tensor

__all__ = ["TypedStorage", "UntypedStorage"]

__getattr__ = _absent.getter(__name__)


class _Mirror:
    """Memory of this process for the elements of a storage; pages take room only once they are written."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.memory = mmap.mmap(-1, max(nbytes, 1))
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        # The number of the value of which the memory has the elements.
        self.value: int | None = None

    def fill(self, base: Tensor) -> None:
        if self.value != base._id:
            elements = np.frombuffer(_safetensors.elements(base), np.uint8)
            np.frombuffer(self.memory, np.uint8)[: elements.size] = elements
            self.value = base._id


def _base(t: Tensor) -> Tensor:
    base = t._base
    return Tensor.detach(t) if base is None else base


def _mirror(t: Tensor) -> _Mirror:
    """The memory of a tensor's storage, which is there as long as the storage."""
    mirror = t._memory
    nbytes = _base(t).nbytes
    if mirror is None or mirror.nbytes != nbytes:
        mirror = t._memory = _Mirror(nbytes)
    return mirror


def data_ptr(self: Tensor) -> int:
    """The address of a copy of the elements in this process; the same for tensors that share them.

    The copy is made when this is called, and is there as long as the elements. What is written to it changes no tensor.

    Example:
        >>> x = gt.ones(4)
        >>> x.data_ptr() == x.view(2, 2).data_ptr() == x[1:].data_ptr() - 4
        True
    """
    if self.numel() == 0:
        return 0
    mirror = _mirror(self)
    mirror.fill(_base(self))
    return mirror.address + self.storage_offset() * self.itemsize


class UntypedStorage:
    """The storage of a tensor, as a sequence of bytes; `tensor.untyped_storage()` returns it.

    Example:
        >>> x = gt.ones(4)
        >>> x.untyped_storage().nbytes(), x[1:].untyped_storage() == x.untyped_storage()
        (16, True)
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        if len(args) != 1 or not isinstance(args[0], (Tensor, memoryview)) or options:
            raise NotImplementedError(
                f"{type(self).__name__}(): storages are not made by themselves: make a tensor, of which "
                "untyped_storage() is the storage"
            )
        # The bytes of a file, of which no tensor has been made yet.
        self._content = args[0] if isinstance(args[0], memoryview) else None
        self._made = _base(args[0]) if isinstance(args[0], Tensor) else None

    @property
    def _tensor(self) -> Tensor:
        if self._made is None:
            self._made = _gt.copy_array(np.frombuffer(self._content or b"", np.uint8))
            self._content = None
        return self._made

    @classmethod
    def from_file(cls, filename: Any, shared: bool = False, nbytes: int = 0) -> UntypedStorage:
        """The bytes of a file, which are read when a tensor is made of them or of a part of them.

        Args:
            filename: The path.
            shared: Refused if true: what is written to a tensor does not reach the file.
            nbytes: The number of bytes from the beginning; all if 0.
        """
        if shared:
            raise NotImplementedError("from_file(shared=True): what is written to a tensor does not reach the file")
        with open(filename, "rb") as file:
            size = nbytes or os.fstat(file.fileno()).st_size
            content = mmap.mmap(file.fileno(), size, mmap.MAP_PRIVATE, mmap.PROT_READ) if size else b""
        return cls(memoryview(content))

    def data_ptr(self) -> int:
        """An address that identifies the storage; `tensor.data_ptr()` also copies the elements to it."""
        return 0 if self._tensor.numel() == 0 else _mirror(self._tensor).address

    @property
    def _cdata(self) -> int:
        return self._tensor._storage_key

    def nbytes(self) -> int:
        """The number of bytes."""
        return self._tensor.nbytes if self._content is None else len(self._content)

    def size(self) -> int:
        """The number of elements: of bytes, for an untyped storage."""
        return self.nbytes() // self.element_size()

    def __len__(self) -> int:
        return self.size()

    def element_size(self) -> int:
        """The number of bytes of an element."""
        return 1

    @property
    def device(self) -> Any:
        """The device of its tensor."""
        return self._tensor.device

    def get_device(self) -> int:
        """The index of the CUDA device; -1 for the CPU."""
        return self._tensor.get_device()

    @property
    def is_cuda(self) -> bool:
        """Whether it is on a CUDA device."""
        return self._tensor.is_cuda

    def is_shared(self) -> bool:
        """Whether other processes share it: never."""
        return False

    def is_pinned(self) -> bool:
        """Whether it is in pinned memory: never."""
        return False

    def tolist(self) -> list[Any]:
        """The elements as a list."""
        return list(_safetensors.elements(self._tensor))

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice) and self._content is not None:
            return UntypedStorage(self._content[index])
        return self.tolist()[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UntypedStorage) and self._cdata == other._cdata

    def __hash__(self) -> int:
        return hash(self._cdata)

    def untyped(self) -> UntypedStorage:
        """The storage as a sequence of bytes."""
        return self

    def resize_(self, size: int) -> NoReturn:
        """Changing the size of a storage, which GT does not support.

        Raises:
            NotImplementedError: Always: the elements are in the daemon's memory.
        """
        raise NotImplementedError(
            f"resize_({size}): the elements are in the daemon's memory, which is freed with the tensors that share it"
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.size()} elements>"


class TypedStorage(UntypedStorage):
    """The storage of a tensor, as a sequence of elements; `tensor.storage()` returns it."""

    @property
    def dtype(self) -> _gt.dtype:
        """The dtype of the elements."""
        return self._tensor.dtype

    def element_size(self) -> int:
        """The number of bytes of an element."""
        return self._tensor.itemsize

    def untyped(self) -> UntypedStorage:
        """The storage as a sequence of bytes."""
        return UntypedStorage(self._tensor)

    _untyped_storage = property(untyped)

    def tolist(self) -> list[Any]:
        """The elements as a list."""
        return self._tensor.reshape(-1).tolist()


def untyped_storage(self: Tensor) -> UntypedStorage:
    """The storage of the tensor, which its views share."""
    return UntypedStorage(self)


def storage(self: Tensor) -> TypedStorage:
    """The storage of the tensor, which its views share, with the tensor's dtype."""
    return TypedStorage(self)


def is_storage(obj: object) -> bool:
    """Whether an object is a storage."""
    return isinstance(obj, UntypedStorage)


FUNCTIONS = (is_storage,)
METHODS = (data_ptr, untyped_storage, storage)
