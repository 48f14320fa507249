"""Device and memory attributes of tensors, and conversion from and to other libraries' arrays.

All tensors are in the daemon, which decides on which of its devices. If it computes on CUDA devices, all tensors report
`cuda:0`, also those for which the program named no device; `t.cpu()` is `t` itself, and `t.numpy()` works everywhere.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any, NoReturn

import numpy as np

from gt import _gt, _layouts, _types
from gt._functions import top
from gt._gt import Tensor
from gt.storage import is_storage


def cpu(self: Tensor, memory_format: Any = None) -> Tensor:
    """The tensor itself: elements can be read wherever they are."""
    return self.to("cpu", memory_format=memory_format)


def cuda(self: Tensor, device: Any = None, non_blocking: bool = False, memory_format: Any = None) -> Tensor:
    """The tensor on a CUDA device, if the daemon has one.

    Raises:
        RuntimeError: The daemon has no such device.
    """
    return self.to("cuda" if device is None else device, non_blocking=non_blocking, memory_format=memory_format)


def get_device(self: Tensor) -> int:
    """The index of the tensor's CUDA device; -1 for the CPU."""
    index = self.device.index
    return -1 if index is None else index


def is_cuda(self: Tensor) -> bool:
    """Whether tensors are on CUDA devices: those of a daemon that has some are."""
    return self.device.type == "cuda"


def is_cpu(self: Tensor) -> bool:
    """Whether tensors are on the CPU: those of a daemon without CUDA devices are."""
    return self.device.type == "cpu"


def pin_memory(self: Tensor, device: Any = None) -> Tensor:
    """The tensor itself: transfers use memory that is shared with the daemon in any case."""
    return self


def is_pinned(self: Tensor, device: Any = None) -> bool:
    """Whether the tensor is in pinned memory: never."""
    return False


def share_memory_(self: Tensor) -> NoReturn:
    """Sharing a tensor with other processes, which GT does not support.

    Raises:
        NotImplementedError: Always: a tensor belongs to one process.
    """
    raise NotImplementedError(
        "share_memory_(): a tensor belongs to one process; what multiprocessing sends travels by value, and threads "
        "share tensors as they are"
    )


def is_shared(self: Tensor) -> bool:
    """Whether the tensor is shared with other processes: never."""
    return False


def __dlpack__(  # noqa: N807 (the protocol's)
    self: Tensor,
    *,
    stream: Any = None,
    max_version: tuple[int, int] | None = None,
    dl_device: tuple[int, int] | None = None,
    copy: bool | None = None,
) -> Any:
    """A DLPack capsule of the elements, for other libraries: a copy fetched from the daemon."""
    asked = {"stream": stream, "max_version": max_version, "dl_device": dl_device, "copy": copy}
    # Older releases of NumPy know only `stream`, so an argument that was not given is not passed on.
    return self.numpy().__dlpack__(**{name: value for name, value in asked.items() if value is not None})


def __dlpack_device__(self: Tensor) -> tuple[int, int]:  # noqa: N807 (the protocol's)
    """The device of the capsule, the CPU, in DLPack's numbers."""
    return (1, 0)


def __array_wrap__(  # noqa: N807 (the protocol's)
    self: Tensor, array: np.ndarray, context: Any = None, return_scalar: bool = False
) -> Tensor:
    """The result of a NumPy function as a tensor; bools become uint8, as in PyTorch."""
    return _gt.copy_array(array.astype(np.uint8) if array.dtype == bool else array)


def to_device(self: Tensor, device: Any, /, *, stream: Any = None) -> Tensor:
    """The tensor on a device: the array API standard's name of `to`."""
    if stream is not None:
        raise NotImplementedError("to_device(): there are no streams: the order of operations is the program's")
    return self.to(device)


def is_complex(input: Tensor) -> bool:
    """Whether the elements are complex numbers.

    Example:
        >>> gt.is_complex(gt.tensor([1j])), gt.is_complex(gt.tensor([1.0]))
        (True, False)
    """
    return input.dtype.is_complex


def is_conj(input: Tensor) -> bool:
    """Whether a lazy conjugation is pending: never, since it is computed at once."""
    return False


def is_neg(input: Tensor) -> bool:
    """Whether a lazy negation is pending: never, since negation is never lazy."""
    return False


def is_inference(input: Tensor) -> bool:
    """Whether the tensor may not be recorded by autograd: never, also if it was made under `inference_mode`."""
    return False


def is_signed(input: Tensor) -> bool:
    """Whether the dtype can represent negative numbers.

    Example:
        >>> gt.is_signed(gt.zeros(1)), gt.is_signed(gt.zeros(1, dtype=gt.uint8))
        (True, False)
    """
    return input.dtype.is_signed


def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same shape."""
    return input.shape == other.shape


def is_nonzero(input: Tensor) -> bool:
    """Whether the value of a tensor of one element is not 0.

    Example:
        >>> gt.is_nonzero(gt.tensor([0.0]))
        False
    """
    return bool(input)


def is_distributed(input: Tensor) -> bool:
    """Whether the tensor is a part of one that several processes hold: never."""
    return False


def to_dense(self: Tensor, dtype: _gt.dtype | None = None, *, masked_grad: bool = True) -> Tensor:
    """The tensor itself, since all are dense, or converted to a dtype."""
    return self if dtype is None else self.to(dtype)


def sparse_dim(self: Tensor) -> int:
    """The number of sparse axes: 0, since all tensors are dense."""
    return 0


def dense_dim(self: Tensor) -> int:
    """The number of dense axes: all, since all tensors are dense."""
    return self.ndim


METHODS = (is_distributed, is_complex, is_conj, is_neg, is_inference, is_signed, is_same_size, is_nonzero)
TENSOR_METHODS = (
    to_dense,
    sparse_dim,
    dense_dim,
    __dlpack__,
    __dlpack_device__,
    __array_wrap__,
    to_device,
    cpu,
    cuda,
    get_device,
    pin_memory,
    is_pinned,
    share_memory_,
    is_shared,
)
GETTERS = (is_cuda, is_cpu)
PROPERTIES = {
    # In `array * t`, NumPy leaves the operation to the tensor.
    "__array_priority__": 1000,
    "is_mps": False,
    "is_xpu": False,
    "is_meta": False,
    "is_sparse": False,
    "is_sparse_csr": False,
    "is_quantized": False,
    "is_mkldnn": False,
    "is_nested": False,
    "name": None,
    "layout": _layouts.strided,
}


def asarray(
    obj: Any,
    *,
    dtype: _gt.dtype | None = None,
    device: Any = None,
    copy: bool | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor from numbers, an array or another tensor.

    Args:
        obj: The data.
        dtype: The dtype; that of the data if not given.
        device: A device, which has to exist; the daemon decides where the tensor lies.
        copy: Whether a tensor or an array is copied; by default only where it cannot be shared. False refuses to copy.
        requires_grad: Whether autograd records what is computed from it.

    Example:
        >>> gt.asarray([1, 2])
        tensor([1, 2])
    """
    obj = obj._tensor if is_storage(obj) else obj
    t = _gt.as_tensor(obj, dtype, device)
    is_array = isinstance(obj, np.ndarray)
    if copy is False and t is not obj and not (is_array and np.shares_memory(t.detach().numpy(), obj)):
        raise ValueError(
            "asarray(copy=False) takes a tensor of this dtype, or on a CPU a NumPy array of it that can be written; "
            "what else is given is copied"
        )
    if copy and (t is obj or is_array):
        t = t.detach().clone()
    return t.requires_grad_() if requires_grad and not t.requires_grad else t


def scalar_tensor(s: Any, **options: Any) -> Tensor:
    """A tensor of one number without axes, of the default dtype unless one is given.

    Example:
        >>> gt.scalar_tensor(2)
        tensor(2.)
    """
    return top.full((), s, dtype=options.pop("dtype", None) or _gt.get_default_dtype(), **options)


def _of_bits(halves: np.ndarray) -> Tensor:
    """bfloat16 numbers from their bits as uint16; each is the upper half of a float32."""
    return _gt.copy_array((halves.astype(np.uint32) << 16).view(np.float32)).to(_gt.bfloat16)


def frombuffer(
    buffer: Any, *, dtype: _gt.dtype, count: int = -1, offset: int = 0, requires_grad: bool = False
) -> Tensor:
    r"""A tensor of the elements in an object's buffer. On a CPU, it shares them with a buffer that can be written.

    Args:
        buffer: An object with the buffer protocol, as bytes.
        dtype: The dtype of the elements.
        count: The number of elements; all if negative.
        offset: The number of bytes to skip.
        requires_grad: Whether autograd records what is computed from it.

    Example:
        >>> gt.frombuffer(b"\x01\x02", dtype=gt.uint8)
        tensor([1, 2], dtype=gt.uint8)
    """
    if dtype is _gt.bfloat16:
        t = _of_bits(np.frombuffer(buffer, np.uint16, count, offset))
    else:
        t = _gt.from_numpy(np.frombuffer(buffer, np.dtype(dtype.name), count, offset))
    return t.requires_grad_() if requires_grad else t


def is_tensor(obj: object) -> bool:
    """Whether an object is a `gt.Tensor`.

    Example:
        >>> gt.is_tensor(gt.zeros(1)), gt.is_tensor([0.0])
        (True, False)
    """
    return isinstance(obj, Tensor)


def get_device_module(device: Any = None) -> Any:
    """The module of a kind of device, as `gt.cuda`; of the one that tensors are on if none is given.

    Raises:
        RuntimeError: There is no module for that kind.

    Example:
        >>> gt.get_device_module("cpu") is gt.cpu
        True
    """
    kind = (_gt.tensor_device() if device is None else _gt.device(device)).type
    if kind not in ("cpu", "cuda", "mps", "xpu", "mtia"):
        raise RuntimeError(f"Device '{kind}' does not have a corresponding module registered as 'torch.{kind}'.")
    return import_module(f"gt.{kind}")


def typename(obj: object) -> str:
    """The name of an object's type, with its module; for a tensor, the type of its dtype.

    Example:
        >>> gt.typename(gt.zeros(1))
        'gt.FloatTensor'
    """
    if isinstance(obj, Tensor):
        return obj.type()
    kind = obj if isinstance(obj, type) else type(obj)
    module = getattr(kind, "__module__", None) or ""
    return kind.__qualname__ if module == "builtins" else f"{module}.{kind.__qualname__}"


def from_dlpack(ext_tensor: Any, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """A copy of another library's tensor, by the DLPack protocol.

    Args:
        ext_tensor: A tensor on the CPU.
        device: A device that the daemon must have.
        copy: False is refused, since the elements are always copied to the daemon.

    Example:
        >>> gt.from_dlpack(np.arange(3))
        tensor([0, 1, 2])
    """
    if copy is False:
        raise ValueError("from_dlpack(copy=False): the elements are copied to the daemon")
    if device is not None:
        _gt.check_device(device)
    if str(getattr(ext_tensor, "dtype", "")) == "torch.bfloat16":
        return _of_bits(np.from_dlpack(ext_tensor.view(sys.modules["torch"].int16)).view(np.uint16))
    return _gt.copy_array(np.from_dlpack(ext_tensor))


FUNCTIONS = (get_device, from_dlpack, asarray, scalar_tensor, frombuffer, is_tensor, typename, get_device_module)


class _TypedTensor(type):
    """The metaclass of `FloatTensor` and the like: constructors of tensors of one dtype, and types for `isinstance`."""

    dtype: _gt.dtype

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, Tensor) and instance.dtype is cls.dtype

    def __call__(cls, *args: Any, device: Any = None) -> Tensor:
        return Tensor(*args, device=device).to(cls.dtype) if cls._is_size(args) else _gt.tensor(*args, dtype=cls.dtype)

    @staticmethod
    def _is_size(args: tuple[Any, ...]) -> bool:
        return len(args) != 1 or isinstance(args[0], int | _types.Size)


TYPED = {
    f"{name}Tensor": _TypedTensor(
        f"{name}Tensor", (), {"dtype": dtype, "__module__": "gt", "__doc__": f"Tensors of {dtype}."}
    )
    for name, dtype in [
        ("Bool", _gt.bool),
        ("Byte", _gt.uint8),
        ("Char", _gt.int8),
        ("Short", _gt.int16),
        ("Int", _gt.int32),
        ("Long", _gt.int64),
        ("Half", _gt.float16),
        ("BFloat16", _gt.bfloat16),
        ("Float", _gt.float32),
        ("Double", _gt.float64),
        ("ComplexFloat", _gt.complex64),
        ("ComplexDouble", _gt.complex128),
    ]
}
