"""Containers by name, and of parameters: what `layers.py` has for lists of modules."""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from typing import Any

from gt._gt import Tensor
from gt.nn.module import Module
from gt.nn.parameter import Parameter


class ModuleDict(Module):
    """A dict of modules that registers them, in order."""

    def __init__(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]] = ()) -> None:
        super().__init__()
        self.update(modules)

    def update(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]]) -> None:
        """Adds or replaces modules."""
        for name, module in modules.items() if isinstance(modules, Mapping | ModuleDict) else modules:
            self.add_module(name, module)

    def pop(self, key: str) -> Module:
        """Removes a module and returns it."""
        return self._modules.pop(key)

    def clear(self) -> None:
        """Removes all."""
        self._modules.clear()

    def keys(self) -> KeysView[str]:
        """The names."""
        return self._modules.keys()

    def values(self) -> ValuesView[Module]:
        """The modules."""
        return self._modules.values()

    def items(self) -> ItemsView[str, Module]:
        """Names and modules."""
        return self._modules.items()

    def __getitem__(self, key: str) -> Module:
        return self._modules[key]

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __contains__(self, key: object) -> bool:
        return key in self._modules

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)


class ParameterList(Module):
    """A list of parameters that registers them; a plain tensor becomes one."""

    def __init__(self, values: Iterable[Tensor] = ()) -> None:
        super().__init__()
        self.extend(values)

    def append(self, value: Tensor) -> ParameterList:
        """Adds a parameter at the end."""
        self[len(self)] = value
        return self

    def extend(self, values: Iterable[Tensor]) -> ParameterList:
        """Adds parameters at the end."""
        for value in values:
            self.append(value)
        return self

    def _name(self, index: int) -> str:
        if not -len(self) <= index < len(self):
            raise IndexError(f"index {index} is out of range")
        return str(index % len(self))

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return type(self)(list(self)[index])
        return self._parameters[self._name(index)]

    def __setitem__(self, index: int, value: Tensor) -> None:
        name = str(index) if index == len(self) else self._name(index)
        self.register_parameter(name, value if isinstance(value, Parameter) else Parameter(value))

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self._parameters.values())

    def __len__(self) -> int:
        return len(self._parameters)
