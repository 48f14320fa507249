"""Stand-ins for what PyTorch has and GT has not, so that a program imports and learns at the call what is missing.

A stand-in can be imported, inherited from, named in annotations and given to `isinstance`; calling it raises
`NotImplementedError`. `torch/names.txt` lists what PyTorch has; `scripts/torch-names` writes it. Start at `stand_in`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

# Dotted names, each for itself and all names below it, and what to use instead. The longest match counts.
REASONS = {
    "torch.distributed": "one process uses all devices, and GT divides the work itself",
    "torch.nn.parallel": "one process sees all devices of a machine: call the module itself",
    "torch.onnx": "there is no export: save a state dict as safetensors and load it where it is needed",
    "torch.export": "there is no export: save a state dict as safetensors and load it where it is needed",
    "torch.sparse": "gt.sparse has COO, CSR and CSC, for products with dense matrices",
    "torch.sparse_bsr_tensor": "gt.sparse has COO, CSR and CSC",
    "torch.sparse_bsc_tensor": "gt.sparse has COO, CSR and CSC",
    "torch.nested": "pad the tensors and use a mask",
    "torch.quantization": "there are no quantized tensors: use bfloat16 or float16 to save memory",
    "torch.ao": "there are no quantized tensors: use bfloat16 or float16 to save memory",
    "torch.profiler": "use gt.profiler.profile, or GT_INSTRUCTION_LOG to see every instruction",
    "torch.utils.cpp_extension": "there are no extensions in C++",
    "torch._C": "that is PyTorch's own inside",
    "torch._dynamo": "that is PyTorch's own inside; gt.compile leaves a function as it is",
    "torch._inductor": "that is PyTorch's own inside; gt.compile leaves a function as it is",
}


def reason(name: str) -> str:
    """The end of an error message about `name`, as `torch.fx.Graph`: empty, or what to use instead."""
    while name:
        if name in REASONS:
            return f" ({name}: {REASONS[name]})"
        name = name.rpartition(".")[0]
    return ""


@cache
def _list() -> dict[str, dict[str, bool]]:
    """PyTorch's names by module, each with whether it is a value: neither a class nor a function."""
    found: dict[str, dict[str, bool]] = {}
    module = ""
    for line in (Path(__file__).parent / "torch" / "names.txt").read_text().splitlines():
        if line.startswith("["):
            module = line.strip("[]")
            found[module] = {}
        elif module:
            found[module].update((word.rstrip("="), word.endswith("=")) for word in line.split())
    return found


def names() -> dict[str, list[str]]:
    """The public names of each of PyTorch's modules and of its tensors."""
    return {module: list(words) for module, words in _list().items()}


def has_module(name: str) -> bool:
    """Whether PyTorch has a module called `name`, as `torch.fx`."""
    return name in _list() or is_package(name)


@cache
def _packages() -> frozenset[str]:
    """PyTorch's modules that have others below them."""
    return frozenset(known[:end] for known in _list() for end, mark in enumerate(known) if mark == ".")


def is_package(name: str) -> bool:
    """Whether PyTorch has modules below the one called `name`."""
    return name in _packages()


def _refuse(name: str) -> NoReturn:
    raise NotImplementedError(f"{name}: PyTorch has it, GT does not{reason(name)}")


class StandIn(type):
    """The type of the classes that stand in for PyTorch's classes and functions.

    Calling such a class, or one that inherits from it, raises `NotImplementedError`; its attributes, as
    `torch.distributed.ReduceOp.SUM`, are stand-ins as well.
    """

    def __call__(cls, *args: Any, **kwargs: Any) -> NoReturn:  # noqa: ARG002 (none can be used)
        base = next(base for base in cls.__mro__ if "_name" in base.__dict__)
        _refuse(base._name)

    def __getattr__(cls, name: str) -> StandIn:
        if name.startswith("_"):
            raise AttributeError(f"type object '{cls.__name__}' has no attribute '{name}'", name=name)
        return stand_in(f"{cls._name}.{name}")

    def __getitem__(cls, item: Any) -> StandIn:  # an annotation, as Final[int]
        return cls

    def __repr__(cls) -> str:
        return f"<stand-in for {cls._name}>"


class _Value:
    """A stand-in for a value of PyTorch, as the dtype `torch.float8_e4m3fn`: it equals only itself."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(f"{self._name}.{name}: GT does not have {self._name}", name=name)
        _refuse(f"{self._name}.{name}")

    def __repr__(self) -> str:
        return self._name


@cache
def stand_in(name: str, *, value: bool = False) -> Any:
    """The stand-in for what PyTorch calls `name`, as `torch.fx.Graph`: always the same one."""
    if value:
        return _Value(name)
    module, _, last = name.rpartition(".")
    return StandIn(last, (), {"_name": name, "__module__": module, "__doc__": f"{name}: GT does not have it."})


def is_stand_in(value: Any) -> bool:
    """Whether a value stands in for one of PyTorch's that GT lacks."""
    return isinstance(value, (StandIn, _Value)) or (isinstance(value, ModuleType) and hasattr(value, "_is_stand_in"))


@cache
def stand_in_module(name: str) -> ModuleType:
    """The module that stands in for PyTorch's module called `name`: all its names are stand-ins."""
    module = ModuleType(name, f"{name}: GT does not have it{reason(name)}.")
    vars(module).update(_is_stand_in=True, __path__=[], __getattr__=getter(name))
    return module


@cache
def _is_there(module: str) -> bool:
    """Whether GT's module is installed. Libraries ask again and again for names that no module has."""
    return find_spec(module) is not None


def getter(module: str) -> Callable[[str], Any]:
    """A module's `__getattr__`: modules that are imported at first use, and stand-ins for what only PyTorch has."""
    place = "torch" + module.removeprefix("torch").removeprefix("gt")

    def missing(name: str) -> Any:
        inner = f"{place}.{name}"
        if not name.startswith("__") or name == "__config__":
            value = _list().get(place, {}).get(name)
            if value is not None:
                return stand_in(inner, value=value)
            if hasattr(sys.modules.get(module), "__path__") and _is_there(f"{module}.{name}"):
                return import_module(f"{module}.{name}")
            if has_module(inner):
                return stand_in_module(inner)
            if place == module:  # a stand-in, of which the names are not listed
                return stand_in(inner)
        raise AttributeError(f"module '{module}' has no attribute '{name}'{reason(inner)}", name=name)

    return missing
