"""The functions of the package and the methods of `Tensor`, from the declarations and the lists in `_composites`.

Start at `install`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from gt import _autocast, _forms, _functions, _gt, _placement, _settings, _table
from gt._composites import catalogue
from gt._gt import Tensor

Function = Callable[..., Any]

# Aliases, by the function that they stand for: NumPy's names, and PyTorch's second names.
ALIASES = {
    "ger": "outer",
}

# Methods, implemented by the extension, that are functions too: `gt.sum(x)` calls `x.sum()`.
_NATIVE = [
    row["name"]
    for row in _table.TABLE
    if row["function"] and row["name"] in vars(Tensor) and row["name"] not in _functions.MODULES[""]
]
METHODS = _NATIVE + "numel clone detach is_floating_point".split()


def _in_place(function: Function) -> Function:
    """The in-place method of a function: it binds the tensor to the function's result, and returns the tensor."""

    def method(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        since = _gt.tape_clock()
        return self._rebind(function(self, *args, **kwargs), since)

    return method


def _in_place_doc(name: str) -> str:
    return f"In-place `{name}`: writes the result to this tensor, and returns this tensor."


def _name(function: Function, name: str, doc: str) -> Function:
    """The function itself, after it got a name and a docstring."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


def _method_function(name: str) -> Function:
    """The function `gt.name(x, ...)` that calls the method `x.name(...)`."""
    method = getattr(Tensor, name)

    def function(input: Tensor, *args: Any, **kwargs: Any) -> Any:
        return method(_gt.as_tensor(input) if _forms.is_foreign(input) else input, *args, **kwargs)

    function.__signature__ = _forms.LazySignature(partial(_forms.method_signature, method))
    return _name(function, name, method.__doc__ or "")


def contains(self: Tensor, element: object) -> bool:
    """Whether an element equals a number, or the broadcast element of a tensor: `element in x`."""
    if not isinstance(element, Tensor | bool | int | float):
        raise RuntimeError(f"Tensor.__contains__ only supports Tensor or scalar, but you passed in a {type(element)}.")
    return bool((self == element).any())


def install(namespace: dict[str, Any]) -> list[str]:
    """Adds the methods to `Tensor` and the functions to `namespace`; returns the functions' names."""
    functions: dict[str, Function] = {}
    for name in METHODS:
        functions[name] = _method_function(name)
    for function in (*catalogue.FUNCTIONS, *_placement.FUNCTIONS, *_settings.FUNCTIONS, *_autocast.FUNCTIONS):
        functions[function.__name__] = function
    for function in (*catalogue.TENSOR_METHODS, *_placement.TENSOR_METHODS):
        setattr(Tensor, function.__name__, function)
    for function in catalogue.IN_PLACE:
        name = function.__name__ + "_"
        setattr(Tensor, name, _name(_in_place(function), name, _in_place_doc(function.__name__)))
    Tensor.ndimension = Tensor.dim
    for function in (*catalogue.METHODS, *_placement.METHODS):
        functions[function.__name__] = function
        setattr(Tensor, function.__name__, function)
    functions.update(_functions.MODULES[""])
    for name, value in _placement.PROPERTIES.items():
        setattr(Tensor, name, property(lambda self, value=value: value))  # noqa: ARG005
    for getter in _placement.GETTERS:
        setattr(Tensor, getter.__name__, property(getter, doc=getter.__doc__))
    Tensor.storage = _placement.untyped_storage
    for name, getter in catalogue.PROPERTIES.items():
        setattr(Tensor, name, property(getter, doc=getter.__doc__))
    Tensor.__contains__ = contains
    Tensor.__rdiv__ = Tensor.__rtruediv__
    Tensor.__complex__ = lambda self: complex(self.item())
    Tensor.__reversed__ = lambda self: self.flip(0)
    for alias, name in ALIASES.items():
        functions[alias] = functions[name]
        if hasattr(Tensor, name):
            setattr(Tensor, alias, getattr(Tensor, name))
        if hasattr(Tensor, name + "_"):
            setattr(Tensor, alias + "_", getattr(Tensor, name + "_"))
    for name in _forms.IN_PLACE:
        if hasattr(Tensor, name):
            namespace[name] = getattr(Tensor, name)
    namespace.update(functions)
    for name in (_forms.OUT & namespace.keys()) - _functions.MODULES[""].keys():
        namespace[name] = _forms.function_form(name, namespace[name])
    return list(functions)
