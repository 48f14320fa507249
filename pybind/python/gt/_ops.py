"""The functions of the package and the methods of `Tensor`: those that the extension declares, and Python's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gt import _absent, _autocast, _foreach, _functions, _methods, _placement, _settings, _sparse_names, storage
from gt._gt import Tensor

__getattr__ = _absent.getter(__name__)


def install(namespace: dict[str, Any]) -> list[str]:
    """Adds the methods to `Tensor` and the functions to `namespace`; returns the functions' names."""
    functions: dict[str, Callable[..., Any]] = {}
    for module in (_methods, _placement, _settings, _autocast, _foreach, _sparse_names, storage):
        functions.update((function.__name__, function) for function in module.FUNCTIONS)
    for function in (*_methods.METHODS, *_placement.TENSOR_METHODS, *_sparse_names.METHODS, *storage.METHODS):
        setattr(Tensor, function.__name__, function)
    for function in (*_methods.BOTH, *_placement.METHODS):
        functions[function.__name__] = function
        setattr(Tensor, function.__name__, function)
    functions.update(_functions.MODULES[""])
    for name, value in _placement.PROPERTIES.items():
        setattr(Tensor, name, property(lambda self, value=value: value))  # noqa: ARG005
    for getter in _placement.GETTERS:
        setattr(Tensor, getter.__name__, property(getter, doc=getter.__doc__))
    for name, (getter, setter) in _methods.PROPERTIES.items():
        setattr(Tensor, name, property(getter, setter, doc=getter.__doc__))
    Tensor.ndimension = Tensor.dim
    Tensor.__contains__ = _methods.contains
    Tensor.__rdiv__ = Tensor.__rtruediv__
    Tensor.__complex__ = lambda self: complex(self.item())
    Tensor.__reversed__ = lambda self: self.flip(0)
    namespace.update({name: getattr(Tensor, name) for name in _methods.IN_PLACE})
    namespace.update(functions)
    return list(functions)
