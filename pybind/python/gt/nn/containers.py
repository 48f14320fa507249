"""Containers of modules and parameters: lists, dicts and sequences."""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from typing import Any, TypeVar

from gt._gt import Tensor
from gt.nn.module import Module
from gt.nn.parameter import Parameter

__all__ = ["ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"]

L = TypeVar("L", bound="_Modules")


class _Modules(Module):
    """Submodules named by their index."""

    def append(self: L, module: Module) -> L:
        """Adds a module at the end; returns this container."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self: L, modules: Iterable[Module]) -> L:
        """Adds modules at the end; returns this container."""
        for module in list(modules):
            self.append(module)
        return self

    def insert(self, index: int, module: Module) -> None:
        """Inserts a module before the given index."""
        modules = list(self._modules.values())
        modules.insert(index, module)
        self._renumber(modules)

    def pop(self, key: int = -1) -> Module:
        """Removes the module at an index and returns it."""
        module = self[key]
        del self[key]
        return module

    def _renumber(self, modules: Iterable[Module | None]) -> None:
        modules = list(modules)
        self._modules.clear()
        self._modules.update({str(i): module for i, module in enumerate(modules)})

    def _key(self, index: int) -> str:
        if not -len(self) <= index < len(self):
            raise IndexError(f"index {index} is out of range")
        return list(self._modules)[index]

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return self._of(list(self._modules.items())[index])
        return self._modules[self._key(index)]

    def _of(self, named: list[tuple[str, Module]]) -> Any:
        return type(self)([module for _, module in named])

    def __setitem__(self, index: int, module: Module) -> None:
        setattr(self, self._key(index), module)

    def __delitem__(self, index: int | slice) -> None:
        keys = list(self._modules)[index] if isinstance(index, slice) else [self._key(index)]
        self._renumber([module for key, module in self._modules.items() if key not in keys])

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._modules.values())

    def __contains__(self, module: object) -> bool:
        return any(module is own for own in self._modules.values())

    def __iadd__(self: L, modules: Iterable[Module]) -> L:
        return self.extend(modules)


class Sequential(_Modules):
    """Calls modules one after the other: each takes the previous one's output.

    Args:
        *modules: The modules, or one `OrderedDict` from names to modules.

    Example:
        >>> model = gt.nn.Sequential(gt.nn.Linear(4, 8), gt.nn.ReLU(), gt.nn.Linear(8, 2))
        >>> model(gt.ones(3, 4)).shape
        gt.Size([3, 2])
        >>> model[0]
        Linear(in_features=4, out_features=8, bias=True)
    """

    def __init__(self, *modules: Module | Mapping[str, Module]) -> None:
        super().__init__()
        if len(modules) == 1 and isinstance(modules[0], Mapping):
            for name, module in modules[0].items():
                self.add_module(name, module)
        else:
            for i, module in enumerate(modules):
                self.add_module(str(i), module)

    def forward(self, input: Any) -> Any:
        for module in self._modules.values():
            input = module(input)
        return input

    def _of(self, named: list[tuple[str, Module]]) -> Any:
        return type(self)(dict(named))

    def __add__(self, other: Sequential) -> Sequential:
        if not isinstance(other, Sequential):
            raise ValueError(f"add operator supports only objects of Sequential class, but {type(other)} is given.")
        return Sequential(*self, *other)


class ModuleList(_Modules):
    """A list of submodules. It registers them, which a plain list does not.

    Args:
        modules: The modules.

    Example:
        >>> layers = gt.nn.ModuleList(gt.nn.Linear(4, 4) for _ in range(3))
        >>> len(layers), len(list(layers.parameters()))
        (3, 6)
    """

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        self.extend(modules or ())

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList([*self, *other])

    def __repr__(self) -> str:
        if not len(self):
            return f"{self._get_name()}()"
        # Consecutive modules of equal `repr` are printed once, with their index range.
        runs: list[tuple[int, int, str]] = []
        for i, module in enumerate(self):
            text = repr(module)
            if runs and runs[-1][2] == text:
                runs[-1] = (runs[-1][0], i, text)
            else:
                runs.append((i, i, text))
        lines = [
            f"({first}): {text}" if first == last else f"({first}-{last}): {last - first + 1} x {text}"
            for first, last, text in runs
        ]
        return f"{self._get_name()}(\n  " + "\n  ".join(line.replace("\n", "\n  ") for line in lines) + "\n)"


class ModuleDict(Module):
    """A dict of submodules, in insertion order. It registers them, which a plain dict does not.

    Args:
        modules: A mapping from names to modules, or pairs of both.

    Example:
        >>> heads = gt.nn.ModuleDict({"policy": gt.nn.Linear(4, 2), "value": gt.nn.Linear(4, 1)})
        >>> heads["value"](gt.ones(3, 4)).shape
        gt.Size([3, 1])
    """

    def __init__(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]] | None = None) -> None:
        super().__init__()
        self.update(modules or {})

    def update(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]]) -> None:
        """Adds modules, replacing those of the same name."""
        for name, module in modules.items() if isinstance(modules, Mapping | ModuleDict) else modules:
            self.add_module(name, module)

    def pop(self, key: str) -> Module:
        """Removes the module of a name and returns it."""
        return self._modules.pop(key)

    def clear(self) -> None:
        """Removes all modules."""
        self._modules.clear()

    def keys(self) -> KeysView[str]:
        """Iterates over the names."""
        return self._modules.keys()

    def values(self) -> ValuesView[Module]:
        """Iterates over the modules."""
        return self._modules.values()

    def items(self) -> ItemsView[str, Module]:
        """Iterates over pairs of a name and its module."""
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


def _entry_repr(name: str, value: Any, of: Any = "dtype") -> str:
    """One line of a `repr`, as PyTorch formats it: `ParameterDict` shows types where `ParameterList` shows dtypes."""
    if not isinstance(value, Tensor):
        return f"  ({name}): Object of type: {type(value).__name__}"
    kind = "Parameter" if isinstance(value, Parameter) else "Tensor"
    told = value.dtype if of == "dtype" else value.type()
    return f"  ({name}): {kind} containing: [{told} of size {'x'.join(map(str, value.shape))}]"


class ParameterList(Module):
    """A list of parameters. Tensors become parameters and are registered; other values are kept as they are.

    Args:
        values: The values.

    Example:
        >>> weights = gt.nn.ParameterList([gt.ones(2), gt.ones(3)])
        >>> [tuple(p.shape) for p in weights.parameters()]
        [(2,), (3,)]
    """

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self._size = 0
        self.extend(values or ())

    def append(self, value: Any) -> ParameterList:
        """Adds a value at the end; returns this list."""
        self._size += 1
        self[self._size - 1] = value
        return self

    def extend(self, values: Iterable[Any]) -> ParameterList:
        """Adds values at the end; returns this list."""
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
        return getattr(self, self._name(index))

    def __setitem__(self, index: int, value: Any) -> None:
        if isinstance(value, Tensor) and not isinstance(value, Parameter):
            value = Parameter(value)
        setattr(self, self._name(index), value)

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __len__(self) -> int:
        return self._size

    def __iadd__(self, values: Iterable[Any]) -> ParameterList:
        return self.extend(values)

    def extra_repr(self) -> str:
        return "\n".join(_entry_repr(str(i), value) for i, value in enumerate(self))


class ParameterDict(Module):
    """A dict of parameters, in insertion order. Tensors become parameters and are registered.

    Args:
        parameters: A mapping from names to values, or pairs of both.

    Example:
        >>> weights = gt.nn.ParameterDict({"left": gt.ones(2), "right": gt.zeros(2)})
        >>> list(weights.keys())
        ['left', 'right']
    """

    def __init__(self, parameters: Mapping[str, Any] | Iterable[tuple[str, Any]] | None = None) -> None:
        super().__init__()
        self._keys: dict[str, None] = {}
        self.update(parameters or {})

    def update(self, parameters: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> None:
        """Adds values, replacing those of the same name."""
        for name, value in parameters.items() if isinstance(parameters, Mapping | ParameterDict) else parameters:
            self[name] = value

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a name, or `default` if there is none."""
        return getattr(self, key) if key in self._keys else default

    def setdefault(self, key: str, default: Any = None) -> Any:
        """The value of a name; if there is none, `default` is set first."""
        if key not in self:
            self[key] = default
        return self[key]

    def pop(self, key: str) -> Any:
        """Removes the value of a name and returns it."""
        value = self[key]
        del self[key]
        return value

    def clear(self) -> None:
        """Removes all values."""
        for key in list(self._keys):
            del self[key]

    def keys(self) -> KeysView[str]:
        """Iterates over the names."""
        return self._keys.keys()

    def values(self) -> Iterator[Any]:
        """Iterates over the values."""
        return (self[key] for key in self._keys)

    def items(self) -> Iterator[tuple[str, Any]]:
        """Iterates over pairs of a name and its value."""
        return ((key, self[key]) for key in self._keys)

    def __getitem__(self, key: str) -> Any:
        if key not in self._keys:
            raise KeyError(key)
        return getattr(self, key)

    def __setitem__(self, key: str, value: Any) -> None:
        if isinstance(value, Tensor) and not isinstance(value, Parameter):
            value = Parameter(value)
        self._keys[key] = None
        setattr(self, key, value)

    def __delitem__(self, key: str) -> None:
        del self._keys[key]
        delattr(self, key)

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def extra_repr(self) -> str:
        return "\n".join(_entry_repr(name, value, "type") for name, value in self.items())
