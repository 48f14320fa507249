"""Where tensors are and how they lie in memory: what programs ask and say of it.

Every tensor is in the daemon, which decides on which of its devices. Where it computes on CUDA devices all tensors are
said to be on `cuda:0`, also those of which a program never said so; `t.cpu()` is `t` itself, and `t.numpy()` works
everywhere. What would need a memory address says so.
"""

from __future__ import annotations

import sys
from typing import Any, NoReturn

import numpy as np

from gt import _gt, _layouts, _types
from gt._gt import Tensor


def cpu(self: Tensor, memory_format: Any = None) -> Tensor:
    """The tensor itself: its elements can be read wherever it is."""
    return self.to("cpu", memory_format=memory_format)


def cuda(self: Tensor, device: Any = None, non_blocking: bool = False, memory_format: Any = None) -> Tensor:
    """The tensor on a CUDA device, if the daemon has one."""
    return self.to("cuda" if device is None else device, non_blocking=non_blocking, memory_format=memory_format)


def get_device(self: Tensor) -> int:
    """The number of the CUDA device that it is on: -1 for a CPU."""
    index = self.device.index
    return -1 if index is None else index


def is_cuda(self: Tensor) -> bool:
    """Whether the daemon computes on CUDA devices."""
    return self.device.type == "cuda"


def is_cpu(self: Tensor) -> bool:
    """Whether the daemon computes on CPUs alone."""
    return self.device.type == "cpu"


def pin_memory(self: Tensor, device: Any = None) -> Tensor:
    """The tensor itself: all of its bytes travel through memory shared with the daemon."""
    return self


def is_pinned(self: Tensor, device: Any = None) -> bool:
    """Whether a CUDA device may read its memory directly."""
    return False


def share_memory_(self: Tensor) -> NoReturn:
    """Not there: a tensor belongs to one process."""
    raise NotImplementedError(
        "share_memory_(): a tensor belongs to one process; what multiprocessing sends travels by value, and threads "
        "share tensors as they are"
    )


def is_shared(self: Tensor) -> bool:
    """Whether other processes see what this one writes."""
    return False


def data_ptr(self: Tensor) -> NoReturn:
    """Not there: the elements are in the daemon's memory."""
    raise NotImplementedError(
        "data_ptr(): the elements are in the daemon's memory; t.numpy() has a copy with an address, and `a is b` tells "
        "whether two names are one tensor"
    )


def untyped_storage(self: Tensor) -> NoReturn:
    """Not there: the elements are in the daemon's memory."""
    raise NotImplementedError(
        "storages are not there: the elements are in the daemon's memory; use t.numpy(), or views of the tensor"
    )


def storage_offset(self: Tensor) -> NoReturn:
    """Not there: a view is a recipe, not a place in a storage."""
    raise NotImplementedError("storage_offset(): a view is a recipe, not a place in a storage; use stride() and shape")


def __dlpack__(self: Tensor, **options: Any) -> Any:  # noqa: N807 (the protocol's)
    """A view, for other libraries, of the elements as the daemon handed them over: no copy beyond that one."""
    return self.numpy().__dlpack__(**options)


def __dlpack_device__(self: Tensor) -> tuple[int, int]:  # noqa: N807 (the protocol's)
    """The CPU, in DLPack's numbers."""
    return (1, 0)


def __array_wrap__(  # noqa: N807 (the protocol's)
    self: Tensor, array: np.ndarray, context: Any = None, return_scalar: bool = False
) -> Tensor:
    """What a function of NumPy's made of the tensor, as a tensor; a mask is one of uint8, as in PyTorch."""
    return _gt.from_numpy(array.astype(np.uint8) if array.dtype == bool else array)


def to_device(self: Tensor, device: Any, /, *, stream: Any = None) -> Tensor:
    """The tensor on a device, under the array API standard's name."""
    if stream is not None:
        raise NotImplementedError("to_device(): there are no streams: the order of operations is the program's")
    return self.to(device)


def is_complex(input: Tensor) -> bool:
    """Whether the elements are complex numbers: never, there are no complex dtypes."""
    return False


def is_conj(input: Tensor) -> bool:
    """Whether a conjugation is still to be done: never."""
    return False


def is_neg(input: Tensor) -> bool:
    """Whether a negation is still to be done: never."""
    return False


def is_inference(input: Tensor) -> bool:
    """Whether it was made under `inference_mode` and may not be recorded: never, all tensors may."""
    return False


def is_signed(input: Tensor) -> bool:
    """Whether the dtype holds negative numbers."""
    return input.dtype.is_signed


def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same shape."""
    return input.shape == other.shape


def is_nonzero(input: Tensor) -> bool:
    """Whether the one element is not 0."""
    return bool(input)


def is_distributed(input: Tensor) -> bool:
    """Whether it is a part of something that several processes hold: never."""
    return False


def to_dense(self: Tensor, dtype: _gt.dtype | None = None, *, masked_grad: bool = True) -> Tensor:
    """The tensor itself, as all are dense, in a dtype."""
    return self if dtype is None else self.to(dtype)


def sparse_dim(self: Tensor) -> int:
    """How many axes are sparse: none."""
    return 0


def dense_dim(self: Tensor) -> int:
    """How many axes are dense: all."""
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
    data_ptr,
    untyped_storage,
    storage_offset,
)
GETTERS = (is_cuda, is_cpu)
PROPERTIES = {
    # NumPy's arrays and numbers leave `array * t` to the tensor.
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
    """A tensor of numbers, an array or another tensor; with `copy`, always a new one."""
    t = _gt.as_tensor(obj, dtype, device)
    if copy is False and t is not obj:
        raise ValueError("asarray(copy=False) takes a tensor of this dtype; what else is given is copied")
    if copy and t is obj:
        t = t.detach().clone()
    return t.requires_grad_() if requires_grad and not t.requires_grad else t


def scalar_tensor(s: Any, **options: Any) -> Tensor:
    """A tensor of one number without axes, of the default dtype unless another is given."""
    return _gt.full((), s, dtype=options.pop("dtype", None) or _gt.get_default_dtype(), **options)


def _of_bits(halves: np.ndarray) -> Tensor:
    """The bfloat16 numbers of these bits, for which NumPy has no dtype: each is the upper half of a float32."""
    return _gt.from_numpy((halves.astype(np.uint32) << 16).view(np.float32)).to(_gt.bfloat16)


def frombuffer(
    buffer: Any, *, dtype: _gt.dtype, count: int = -1, offset: int = 0, requires_grad: bool = False
) -> Tensor:
    """The elements that lie in an object's bytes, copied."""
    if dtype is _gt.bfloat16:
        t = _of_bits(np.frombuffer(buffer, np.uint16, count, offset))
    else:
        t = _gt.from_numpy(np.frombuffer(buffer, np.dtype(dtype.name), count, offset))
    return t.requires_grad_() if requires_grad else t


def is_storage(obj: object) -> bool:
    """Whether `obj` is a storage of PyTorch's: there are none."""
    return False


def typename(obj: object) -> str:
    """The name of an object's type, with its module; of a tensor, with its dtype."""
    if isinstance(obj, Tensor):
        return obj.type()
    kind = obj if isinstance(obj, type) else type(obj)
    module = getattr(kind, "__module__", None) or ""
    return kind.__qualname__ if module == "builtins" else f"{module}.{kind.__qualname__}"


def from_dlpack(ext_tensor: Any, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """The elements of another library's tensor on the CPU, copied to the daemon: `copy=False` cannot be."""
    if copy is False:
        raise ValueError("from_dlpack(copy=False): the elements are copied to the daemon")
    if device is not None:
        _gt.check_device(device)
    if str(getattr(ext_tensor, "dtype", "")) == "torch.bfloat16":
        return _of_bits(np.from_dlpack(ext_tensor.view(sys.modules["torch"].int16)).view(np.uint16))
    return _gt.from_numpy(np.from_dlpack(ext_tensor))


FUNCTIONS = (get_device, from_dlpack, asarray, scalar_tensor, frombuffer, is_storage, typename)


class _TypedTensor(type):
    """`FloatTensor` and its like: constructors for one dtype, of which tensors of that dtype are instances."""

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
    ]
}
