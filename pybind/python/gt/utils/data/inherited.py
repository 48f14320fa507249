"""Tensors that a forked process inherits: their elements are copied before the fork and become its own after it.

A tensor belongs to the session of the process that made it, and a forked child has a session of its own. `reachable`
finds the tensors that an object refers to, as a dataset that reads them by index.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from gt import _gt
from gt._gt import Tensor

# Objects of these types refer to whole modules, or to no tensors.
_SKIPPED = (ModuleType, BuiltinFunctionType, CodeType, FrameType, str, bytes, int, float, complex, np.ndarray)


def _next(obj: Any) -> Iterable[Any]:
    """The objects that one refers to: of functions and classes, only what their code can name."""
    if isinstance(obj, MethodType):
        return (obj.__self__, obj.__func__)
    if isinstance(obj, FunctionType):
        named = [obj.__globals__[name] for name in obj.__code__.co_names if name in obj.__globals__]
        return (*named, obj.__closure__, obj.__defaults__, obj.__kwdefaults__, obj.__dict__)
    if isinstance(obj, type):
        return (
            () if obj.__module__.split(".")[0] in ("gt", "torch", "builtins") else (*vars(obj).values(), *obj.__bases__)
        )
    if isinstance(obj, (staticmethod, classmethod)):
        return (obj.__func__,)
    return gc.get_referents(obj)


def reachable(*roots: Any) -> list[Tensor]:
    """The tensors that the objects refer to, each once."""
    found: list[Tensor] = []
    seen: set[int] = set()
    waiting: list[Any] = list(roots)
    while waiting:
        obj = waiting.pop()
        if isinstance(obj, _SKIPPED) or id(obj) in seen:
            continue
        seen.add(id(obj))
        if isinstance(obj, Tensor):
            found.append(obj)
            waiting.append(obj.__dict__)
        elif isinstance(obj, (list, tuple)):
            # Long lists of names and numbers are common: their items are not put on the list one by one.
            waiting += [item for item in obj if not isinstance(item, _SKIPPED)]
        else:
            waiting += _next(obj)
    return found


class Inherited:
    """The elements of tensors, taken before a fork.

    Args:
        roots: The objects of which a forked process will use the tensors.
    """

    def __init__(self, *roots: Any) -> None:
        self.tensors = reachable(*roots)
        self.arrays = [self._elements(t) for t in self.tensors]

    @staticmethod
    def _elements(t: Tensor) -> np.ndarray[Any, Any]:
        plain = t.detach()
        # NumPy has no bfloat16. The copy is memory of this process, which a fork copies; the original is the daemon's.
        return (plain.to(_gt.float32) if t.dtype == _gt.bfloat16 else plain).numpy().copy()

    def adopt(self) -> None:
        """Gives the tensors their elements in the session of the forked process in which this is called."""
        for t, array in zip(self.tensors, self.arrays, strict=True):
            t.data = _gt.copy_array(array).to(t.dtype)
        self.arrays.clear()
