"""The device `meta`: tensors with a shape and a dtype, but without elements.

A program makes a large model on it, and gives its parameters elements later. Here, such a tensor is one element that is
expanded to the shape, so it takes no memory. Functions of it return tensors of the same kind: views and functions that
make tensors cost nothing, others compute zeros of the result's shape.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

import numpy as np

from gt import _gt, overrides
from gt._functions import top
from gt._gt import Tensor
from gt.nn.parameter import Parameter

# Functions that take a device and make tensors: in the context of `device("meta")` they make some without elements.
_MAKING = """
    arange as_tensor asarray bartlett_window blackman_window empty empty_permuted empty_strided eye full hamming_window
    hann_window kaiser_window linspace logspace ones rand randint randn randperm range scalar_tensor tensor tril_indices
    triu_indices zeros
""".split()
# Functions and methods whose arguments are the result's sizes, with the number of arguments before these.
_SIZES = {"empty": 0, "zeros": 0, "ones": 0, "rand": 0, "randn": 0, "full": 0, "new_empty": 1, "new_zeros": 1,
          "new_ones": 1, "new_full": 1}  # fmt: skip
_LIKE = "empty_like zeros_like ones_like full_like rand_like randn_like randint_like".split()


class MetaTensor(Tensor):
    """A tensor without elements."""

    def __new__(cls, data: Tensor, requires_grad: bool = True) -> Any:
        """A parameter of the elements of a tensor: programs call `type(parameter)(…)` to replace one of this class."""
        return Parameter(data, requires_grad)

    @property
    def device(self) -> Any:
        """The device `meta`."""
        return _gt.device("meta")

    @property
    def is_meta(self) -> bool:
        """True: it has no elements."""
        return True

    @property
    def is_cpu(self) -> bool:
        """False: it is on no device that computes."""
        return False

    @property
    def is_cuda(self) -> bool:
        """False: it is on no device that computes."""
        return False

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        """Another tensor of the same shape, without elements."""
        made = memo[id(self)] = _like(self, self._is_parameter)
        return made

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        text = f"tensor(..., device='meta', size={tuple(self.shape)}, dtype={self.dtype})"
        return f"Parameter containing:\n{text}" if self._is_parameter else text

    def __format__(self, format_spec: str) -> str:
        return format(repr(self), format_spec)

    def _refuse(self, *_args: Any, **_options: Any) -> NoReturn:
        raise NotImplementedError(
            "Cannot copy out of meta tensor; no data! Give the module elements by to_empty(device=...) and "
            "load_state_dict(..., assign=True)"
        )

    numpy = tolist = __array__ = cpu = cuda = _refuse

    def item(self) -> NoReturn:
        """Raises `RuntimeError`: there are no elements."""
        raise RuntimeError("Tensor.item() cannot be called on meta tensors")

    __bool__ = __int__ = __float__ = __index__ = item

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Iterable[type], args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """The result's shape and dtype; functions that write in place change nothing."""
        del types
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        first = args[0] if args else None
        if name == "to":
            return _moved(first, args[1:], kwargs)
        if (name in _LIKE or name in _SIZES) and _is_real(kwargs.get("device")):
            with overrides.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        with overrides.DisableTorchFunctionSubclass():
            if name.endswith("_") and not name.endswith("__") and isinstance(first, Tensor):
                if not isinstance(first, MetaTensor):
                    first._refuse() if hasattr(first, "_refuse") else MetaTensor._refuse(first)
                if name in ("requires_grad_", "detach_"):
                    func(*args, **kwargs)
                return first
            if name == "__setitem__":
                return None
            if name in _LIKE or name in _SIZES:
                kwargs["device"] = "meta"
            return _marked(func(*args, **kwargs))


def _is_real(device: Any) -> bool:
    """Whether a device is named, and it is not this one."""
    return device is not None and _gt.device(device).type != "meta"


def _moved(t: MetaTensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The tensor in another dtype; another device is refused, since there are no elements."""
    places = [arg for arg in (*args, kwargs.get("device")) if isinstance(arg, (str, int, _gt.device))]
    others = [arg for arg in args if isinstance(arg, Tensor)]
    if any(_is_real(place) for place in places) or any(not isinstance(other, MetaTensor) for other in others):
        t._refuse()
    dtypes = [arg for arg in (*args, kwargs.get("dtype")) if isinstance(arg, _gt.dtype)]
    dtype = (dtypes or [other.dtype for other in others] or [t.dtype])[0]
    return t if dtype is t.dtype else empty(t.shape, dtype)


def _marked(result: Any) -> Any:
    """A result whose tensors have no elements."""
    if isinstance(result, Tensor):
        return result if isinstance(result, MetaTensor) else Tensor.__new__(MetaTensor, _like=result)
    if isinstance(result, (tuple, list)):
        parts = [_marked(part) for part in result]
        return type(result)(*parts) if hasattr(result, "_fields") else type(result)(parts)
    return result


def empty(shape: Iterable[int], dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """A tensor of a shape and dtype, without elements."""
    with overrides.DisableTorchFunctionSubclass(), _Outside():
        one = top.zeros((), dtype=dtype or _gt.get_default_dtype())
        made = Tensor.__new__(MetaTensor, _detached=one.expand(*tuple(shape)))
    made.requires_grad = requires_grad
    return made


def _like(t: Tensor, is_parameter: bool = False) -> Tensor:
    made = empty(t.shape, t.dtype, t.requires_grad)
    made._is_parameter = is_parameter
    return made


def of(t: Tensor, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Tensor:
    """`t.to("meta")`: a tensor as another, without elements; `args` and `kwargs` may name a dtype."""
    words = (*args, *(kwargs or {}).values())
    dtype = next((word for word in words if isinstance(word, _gt.dtype)), t.dtype)
    return empty(t.shape, dtype, t.requires_grad and dtype.is_floating_point)


def made(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of a function that makes a tensor, on this device."""
    name = func.__name__
    options = {key: value for key, value in kwargs.items() if key != "device"}
    dtype, requires_grad = options.get("dtype"), bool(options.get("requires_grad"))
    if name in _LIKE:
        source = args[0] if args else options["input"]
        return empty(source.shape, dtype or source.dtype, requires_grad)
    if name in _SIZES:
        before = _SIZES[name]
        sizes = args[before:] or (options.get("size"),)
        if not isinstance(sizes[0], (int, np.integer)):
            sizes = sizes[0]
        if dtype is None and before:
            dtype = args[0].dtype
        if dtype is None and name == "full":
            value = options.get("fill_value", args[-1])
            dtype = _gt.bool if isinstance(value, bool) else _gt.int64 if isinstance(value, int) else None
        return empty(sizes, dtype, requires_grad)
    with overrides.DisableTorchFunctionSubclass(), _Outside():
        return _marked(func(*args, **options))


class _Context(overrides.TorchFunctionMode):
    """The context of `device("meta")`: functions that make tensors make some without elements."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        del types
        kwargs = kwargs or {}
        if getattr(func, "__name__", "") in _MAKING and kwargs.get("device") is None and not _is_method(func):
            return made(func, args, kwargs)
        return overrides.dispatch(func, args, kwargs)


def _is_method(func: Callable[..., Any]) -> bool:
    return getattr(Tensor, func.__name__, None) is func


class _Outside:
    """A `with` block in which no mode overrides this thread's operations."""

    def __enter__(self) -> None:
        self._entered, overrides._modes.entered = overrides._modes.entered, []
        _gt.set_override_modes(0)

    def __exit__(self, *_error: object) -> None:
        overrides._modes.entered = self._entered
        _gt.set_override_modes(len(self._entered))


class _Contexts(threading.local):
    """The contexts of `device("meta")` that a thread has entered."""

    def __init__(self) -> None:
        self.entered: list[_Context] = []


_contexts = _Contexts()


def enter() -> None:
    """Enters the context of `device("meta")`."""
    context = _Context()
    context.__enter__()
    _contexts.entered.append(context)


def leave() -> None:
    """Leaves the context of `device("meta")` that was entered last."""
    _contexts.entered.pop().__exit__(None, None, None)
