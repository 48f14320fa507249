"""`__torch_function__`: classes and modes that override operations, by PyTorch's protocol.

An operation whose arguments include an instance of a class that derives from `Tensor`, or of any class that defines
`__torch_function__`, calls that method with the function, the types, the arguments and the options. Without a method of
its own, a derived class gets results of its own class. `TorchFunctionMode` overrides all operations in a `with` block.

The extension calls `dispatch` where an operation is overridden; nothing is looked for before the first such class or
mode.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any

from gt import _absent, _gt
from gt._gt import Tensor

__all__ = [
    "BaseTorchFunctionMode",
    "TorchFunctionMode",
    "get_default_nowrap_functions",
    "handle_torch_function",
    "has_torch_function",
    "is_tensor_like",
    "is_tensor_method_or_property",
    "resolve_name",
    "wrap_torch_function",
]

__getattr__ = _absent.getter(__name__)

# Methods of `Tensor` that say nothing about elements: no class overrides them.
_PLAIN = """
    __new__ __init__ __class__ __dict__ __weakref__ __doc__ __module__ __subclasshook__ __init_subclass__ __dir__
    __getattribute__ __setattr__ __delattr__ __hash__ __sizeof__ __reduce__ __reduce_ex__ __getstate__ __copy__
    __torch_function__ __class_getitem__ _make_subclass as_subclass __array_priority__ __array_namespace__
    __array_interface__
""".split()
# The methods that PyTorch's operators stand for, where they have another name.
_OPERATORS = {
    "__add__": "add",
    "__radd__": "add",
    "__iadd__": "add_",
    "__sub__": "sub",
    "__isub__": "sub_",
    "__mul__": "mul",
    "__rmul__": "mul",
    "__imul__": "mul_",
    "__truediv__": "div",
    "__itruediv__": "div_",
    "__mod__": "remainder",
    "__pow__": "pow",
    "__matmul__": "matmul",
    "__neg__": "neg",
    "__abs__": "abs",
    "__gt__": "gt",
    "__lt__": "lt",
    "__ge__": "ge",
    "__le__": "le",
    "__ne__": "ne",
}
# Properties whose value is computed from the elements.
_PROPERTIES = ("T", "mT", "H", "mH", "data", "real", "imag")


class _Modes(threading.local):
    """The modes that a thread has entered, the innermost last."""

    def __init__(self) -> None:
        self.entered: list[TorchFunctionMode] = []


_modes = _Modes()


class DisableTorchFunctionSubclass:
    """A `with` block in which classes do not override this thread's operations."""

    def __enter__(self) -> None:
        self._before = _gt.suspend_overrides(True)

    def __exit__(self, *_error: object) -> None:
        _gt.suspend_overrides(self._before)


def _is_suspended() -> bool:
    before = _gt.suspend_overrides(True)
    _gt.suspend_overrides(before)
    return before


class TorchFunctionMode:
    """A `with` block in which the method `__torch_function__` overrides all of this thread's operations.

    A derived class implements it; the operations that it calls itself are not overridden by it.

    Example:
        >>> from gt.overrides import TorchFunctionMode
        >>> class Names(TorchFunctionMode):
        ...     def __torch_function__(self, func, types, args=(), kwargs=None):
        ...         print(func.__name__)
        ...         return func(*args, **(kwargs or {}))
        >>> with Names():
        ...     x = gt.exp(gt.ones(2))
        ones
        exp
    """

    def __init__(self) -> None:
        pass

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Makes the call of `func`; a derived class implements it."""
        raise NotImplementedError

    def __enter__(self) -> TorchFunctionMode:
        _modes.entered.append(self)
        _gt.set_override_modes(len(_modes.entered))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _modes.entered.pop()
        _gt.set_override_modes(len(_modes.entered))


class BaseTorchFunctionMode(TorchFunctionMode):
    """A mode that makes every call as it is."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        del types
        return func(*args, **(kwargs or {}))


def _disabled(
    cls: type, func: Callable[..., Any], types: Iterable[type], args: Any = (), kwargs: dict[str, Any] | None = None
) -> Any:
    """The `__torch_function__` of classes that override nothing, as `Parameter`."""
    del cls, types
    with DisableTorchFunctionSubclass():
        return func(*args, **(kwargs or {}))


disabled = classmethod(_disabled)


def _overrides(obj: Any) -> bool:
    kind = type(obj)
    method = getattr(kind, "__torch_function__", None)
    overriding = kind is not Tensor and method is not None and getattr(method, "__func__", None) is not _disabled
    return overriding and not _gt.is_pytorchs_tensor(obj)


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Whether one of the arguments overrides operations, or a mode does."""
    return bool(_modes.entered) or (not _is_suspended() and any(_overrides(arg) for arg in relevant_args))


def has_torch_function_unary(obj: Any) -> bool:
    """Whether an argument overrides operations, or a mode does."""
    return has_torch_function((obj,))


def has_torch_function_variadic(*args: Any) -> bool:
    """Whether one of the arguments overrides operations, or a mode does."""
    return has_torch_function(args)


def _overriding(relevant: Iterable[Any]) -> list[Any]:
    """One argument of each overriding class, derived classes before their bases."""
    found: list[Any] = []
    for arg in relevant:
        kind = type(arg)
        if not _overrides(arg) or any(type(known) is kind for known in found):
            continue
        place = next((i for i, known in enumerate(found) if issubclass(kind, type(known))), len(found))
        found.insert(place, arg)
    return found


def handle_torch_function(
    public_api: Callable[..., Any], relevant_args: Iterable[Any], *args: Any, **kwargs: Any
) -> Any:
    """Makes the call of a function through the mode or the arguments that override it.

    Args:
        public_api: The function.
        relevant_args: The arguments that may override it.
        args: Its arguments.
        kwargs: Its options.

    Raises:
        TypeError: All of them returned `NotImplemented`.
    """
    overriding = _overriding(relevant_args)
    types = tuple(type(arg) for arg in overriding)
    if _modes.entered:
        mode = _modes.entered.pop()
        _gt.set_override_modes(len(_modes.entered))
        try:
            result = mode.__torch_function__(public_api, types, args, kwargs)
        finally:
            _modes.entered.append(mode)
            _gt.set_override_modes(len(_modes.entered))
        if result is not NotImplemented:
            return result
    for arg in overriding:
        result = arg.__torch_function__(public_api, types, args, kwargs)
        if result is not NotImplemented:
            return result
    if not overriding:
        with DisableTorchFunctionSubclass():
            return public_api(*args, **kwargs)
    name = resolve_name(public_api) or repr(public_api)
    raise TypeError(f"no implementation found for '{name}' on types that implement __torch_function__: {list(types)}")


def _flat(values: Iterable[Any]) -> Iterable[Any]:
    for value in values:
        if type(value) in (list, tuple):
            yield from value
        else:
            yield value


def dispatch(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Makes the call of a function that its arguments, or a mode, override."""
    if len(args) == 2 and isinstance(args[1], (list, tuple)) and getattr(func, "__name__", "") == "einsum":
        # PyTorch gives overrides the operands one by one, also those of its older form with a list.
        args = (args[0], *args[1])
    return handle_torch_function(func, _flat((*args, *kwargs.values())), *args, **kwargs)


def wrap_torch_function(dispatcher: Callable[..., Iterable[Any]]) -> Callable[..., Any]:
    """A decorator of functions in Python, which the arguments that `dispatcher` returns override.

    Args:
        dispatcher: A function of the arguments that returns those that may override.
    """

    def inner(func: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(func)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            relevant = list(dispatcher(*args, **kwargs))
            if has_torch_function(relevant):
                return handle_torch_function(wrapped, relevant, *args, **kwargs)
            return func(*args, **kwargs)

        return wrapped

    return inner


@functools.cache
def get_default_nowrap_functions() -> set[Callable[..., Any]]:
    """Functions whose results stay plain tensors: here none, since reading `grad` calls no override."""
    return set()


def is_tensor_like(inp: Any) -> bool:
    """Whether the argument is a tensor, or overrides operations as one."""
    return isinstance(inp, Tensor) or hasattr(type(inp), "__torch_function__")


def is_tensor_method_or_property(func: Callable[..., Any]) -> bool:
    """Whether a function is a method of `Tensor` or the getter of a property."""
    name = getattr(func, "__name__", "")
    return name == "__get__" or getattr(Tensor, name, None) is func


def resolve_name(f: Callable[..., Any]) -> str | None:
    """The name of a function or method, as `torch.Tensor.add`; `None` if it has none."""
    name = getattr(f, "__name__", None)
    if name is None:
        return None
    if getattr(Tensor, name, None) is f:
        return f"torch.Tensor.{name}"
    module = (getattr(f, "__module__", None) or "gt").removeprefix("gt")
    return f"torch{module}.{name}"


# Classes derived from `Tensor` ------------------------------------------------------------------------------------


def _converted(result: Any, cls: type[Tensor]) -> Any:
    """A result with its tensors as instances of a class."""
    if isinstance(result, Tensor):
        return result if isinstance(result, cls) else result.as_subclass(cls)
    if isinstance(result, (tuple, list)):
        parts = [_converted(part, cls) for part in result]
        return type(result)(*parts) if hasattr(result, "_fields") else type(result)(parts)
    return result


def _is_pytorchs(func: Callable[..., Any]) -> bool:
    """Whether a function is one of PyTorch itself, which takes no tensors of GT."""
    # A program that runs by `python -m gt.torch` has GT's own class under that name.
    if getattr(sys.modules.get("torch"), "Tensor", Tensor) is Tensor:
        return False
    owner = getattr(func, "__objclass__", None) or type(getattr(func, "__self__", None))
    return any(str(getattr(of, "__module__", "")).partition(".")[0] == "torch" for of in (owner, func))


def _torch_function(
    cls: type[Tensor],
    func: Callable[..., Any],
    types: Iterable[type],
    args: Any = (),
    kwargs: dict[str, Any] | None = None,
) -> Any:
    """Makes a call, and gives its results the class: the `__torch_function__` of derived classes without their own."""
    if not all(issubclass(cls, kind) for kind in types) or _is_pytorchs(func):
        return NotImplemented
    with DisableTorchFunctionSubclass():
        return _converted(func(*args, **(kwargs or {})), cls)


def _overridable(method: Any) -> Callable[..., Any]:
    """A method of a derived class that calls `__torch_function__` for a method of `Tensor`."""

    def call(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        if not has_torch_function((self, *_flat((*args, *kwargs.values())))):
            return method(self, *args, **kwargs)
        return dispatch(method, (self, *args), kwargs)

    return functools.wraps(method)(call)


@functools.cache
def _methods() -> dict[str, Any]:
    """The methods of `Tensor` that the extension does not dispatch itself, by name, as derived classes have them."""
    found: dict[str, Any] = {}
    for name, method in vars(Tensor).items():
        if name in _PLAIN or name in found or (name.startswith("_") and not name.startswith("__")):
            continue
        if name in _PROPERTIES:
            getter = method.__get__
            own = _overridable(getter)
            found[name] = property(own, getattr(method, "__set__", None))
        elif callable(method):
            found[name] = _overridable(getattr(Tensor, _OPERATORS.get(name, name)))
    return found


def _init_subclass(cls: type[Tensor], **options: Any) -> None:
    """Prepares a class that derives from `Tensor`: its operations call `__torch_function__` from now on."""
    super(Tensor, cls).__init_subclass__(**options)
    nothing = getattr(cls.__torch_function__, "__func__", None) is _disabled
    cls._overrides_nothing = nothing  # type: ignore[attr-defined]
    if nothing:
        return
    _gt.activate_overrides()
    if any(issubclass(base, Tensor) and base is not Tensor and _overrides_class(base) for base in cls.__mro__[1:]):
        return
    inherited = vars(Tensor)
    for name, method in _methods().items():
        # A method of the class itself, or of another of its bases, comes first.
        owner = next((base for base in cls.__mro__ if name in vars(base)), None)
        if owner is Tensor and inherited.get(name) is not None:
            setattr(cls, name, method)


def _overrides_class(cls: type) -> bool:
    method = getattr(cls, "__torch_function__", None)
    return getattr(method, "__func__", None) is not _disabled


Tensor.__torch_function__ = classmethod(_torch_function)
Tensor.__init_subclass__ = classmethod(_init_subclass)
