"""`torch.ops`: operations by namespace, as `torch.ops.aten.add`, and those that `gt.library` defines."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from gt import _absent, _gt

_absent_getter = _absent.getter(__name__)

_added: dict[str, dict[str, Callable[..., Any]]] = {}


def add(name: str, function: Callable[..., Any]) -> None:
    """Adds an operation under `namespace::name`.

    Raises:
        ValueError: The name has no namespace.
    """
    namespace, _, last = name.partition("::")
    if not last:
        raise ValueError(f"expected the name of an operation as namespace::name, but got {name!r}")
    _added.setdefault(namespace, {})[last.partition(".")[0]] = function


def find(name: str) -> Callable[..., Any] | None:
    """The operation that was added under `namespace::name`, or None."""
    namespace, _, last = name.partition("::")
    return _added.get(namespace, {}).get(last)


def load_library(path: str) -> None:
    """Adds the operations of an extension module that GT has operations for: torchvision's.

    Raises:
        OSError: It is another one: extensions that are compiled against PyTorch cannot be loaded.
    """
    file = Path(path)
    if file.parent.name != "torchvision" or not file.name.startswith("_C"):
        raise OSError(f"ops.load_library: {path} is compiled against PyTorch")
    import_module("gt.torch.torchvision_ops").add()


class _Packet:
    """An operation: callable, with its overloads as attributes, as `add.Tensor` and `add.default`."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self._name = name
        self._function = function
        self.__name__ = name.rpartition("::")[2]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def __getattr__(self, overload: str) -> Any:
        if overload.startswith("__"):
            raise AttributeError(overload)
        return self._function

    def __repr__(self) -> str:
        return f"<operation {self._name}>"


class _Namespace:
    """The operations of a namespace."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        function = _added.get(self._name, {}).get(name)
        if function is None and self._name in ("aten", "prims"):
            function = getattr(_gt, name, None) or getattr(_gt.Tensor, name, None)
            if function is None:
                return _absent.stand_in(f"torch.ops.{self._name}.{name}")
        if function is None:
            raise AttributeError(f"ops.{self._name}.{name}: there is no such operation", name=name)
        return _Packet(f"{self._name}::{name}", function)


def __getattr__(name: str) -> Any:
    return _absent_getter(name) if name.startswith("_") else _Namespace(name)
