"""Parameters computed from others: a parametrization is a module that makes the one of the other.

`register_parametrization(layer, "weight", module)` keeps what `layer.weight` is computed from in
`layer.parametrizations.weight.original`; from then on `layer.weight` is `module(original)`, computed when it is read.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from gt._autograd import no_grad
from gt._gt import Tensor
from gt.nn.containers import ModuleDict, ModuleList
from gt.nn.module import Module
from gt.nn.parameter import Parameter

__all__ = [
    "ParametrizationList",
    "cached",
    "is_parametrized",
    "register_parametrization",
    "remove_parametrizations",
    "transfer_parametrizations_and_params",
    "type_before_parametrizations",
]

M = TypeVar("M", bound=Module)

# What `cached` keeps, by module and name, and how many such contexts are entered.
_cache: dict[tuple[int, str], Tensor] = {}
_entered = 0


@contextlib.contextmanager
def cached() -> Iterator[None]:
    """Within, a parametrized tensor is computed the first time it is read, and kept."""
    global _entered
    _entered += 1
    try:
        yield
    finally:
        _entered -= 1
        if not _entered:
            _cache.clear()


def _register(module: Module, name: str, tensor: Tensor) -> None:
    if isinstance(tensor, Parameter):
        module.register_parameter(name, tensor)
    else:
        module.register_buffer(name, tensor)


def _differs(what: str, first: tuple[str, Tensor], second: tuple[str, Any]) -> None:
    """Refuses a second tensor of another dtype or shape than the first."""
    name, tensor = second
    for kind in ("dtype", "shape"):
        own, new = getattr(first[1], kind), getattr(tensor, kind)
        if own != new:
            raise ValueError(
                f"{what} may not change the {kind} of the tensor, unless the `unsafe` flag is enabled.\n"
                f"{first[0]} {kind}: {own}\n{name} {kind}: {new}"
            )


def _tensor_of(value: Any, what: str) -> Tensor:
    if not isinstance(value, Tensor):
        raise ValueError(f"{what} must return a tensor. Got {type(value).__name__}.")
    return value


class ParametrizationList(ModuleList):
    """The parametrizations of one tensor, in the order they are applied, and what the first is given.

    That is `original`, or where `right_inverse` gave several tensors, `original0`, `original1` and so on.
    """

    def __init__(self, modules: Sequence[Module], original: Tensor, unsafe: bool = False) -> None:
        if not modules:
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        made: Any = original
        with no_grad():
            for module in reversed(modules):
                if hasattr(module, "right_inverse"):
                    # One that cannot say what it was made of is given the tensor itself.
                    with contextlib.suppress(NotImplementedError):
                        made = module.right_inverse(made)
        parts = [made] if isinstance(made, Tensor) else made
        if not isinstance(parts, Sequence):
            raise ValueError(
                "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). Got "
                f"{type(made).__name__}"
            )
        for i, part in enumerate(parts):
            if not isinstance(part, Tensor):
                raise ValueError(
                    "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). Got element "
                    f"{i} of the sequence with type {type(part).__name__}."
                )
        self.is_tensor = isinstance(made, Tensor)
        self.ntensors = len(parts)
        if self.is_tensor:
            if made.dtype != original.dtype:
                raise ValueError(
                    "When `right_inverse` outputs one tensor, it may not change the dtype.\n"
                    f"original.dtype: {original.dtype}\nright_inverse(original).dtype: {made.dtype}"
                )
            before = original.detach()
            # The parameter itself stays: an optimizer may have it.
            original.data = made.detach()
            _register(self, "original", original)
        else:
            before = original
            for i, part in enumerate(parts):
                if isinstance(original, Parameter):
                    part = Parameter(part, original.requires_grad)
                _register(self, f"original{i}", part)
        if not unsafe:
            after = _tensor_of(self(), "A parametrization")
            _differs("Registering a parametrization", ("unparametrized", before), ("parametrized", after))

    def _originals(self) -> list[Tensor]:
        names = ["original"] if self.is_tensor else [f"original{i}" for i in range(self.ntensors)]
        return [getattr(self, name) for name in names]

    def right_inverse(self, value: Tensor) -> None:
        """Makes the parametrized tensor be `value`, by what its parametrizations say that it is made of."""
        made: Any = value
        with no_grad():
            for module in reversed(list(self)):
                if not hasattr(module, "right_inverse"):
                    raise RuntimeError(f"parametrization {type(module).__name__} does not implement right_inverse.")
                made = module.right_inverse(made)
            parts, originals = [made] if self.is_tensor else made, self._originals()
            if len(parts) != len(originals):
                raise ValueError(
                    "'right_inverse' must return a sequence of tensors of the same length as before. Expected "
                    f"{len(originals)} tensors, got {len(parts)}."
                )
            for original, part in zip(originals, parts, strict=True):
                _tensor_of(part, "`right_inverse`")
                _differs("Assigning to a parametrized tensor", ("parameter", original), ("right_inverse", part))
                original.data = part.detach()

    def forward(self) -> Tensor:
        first, *others = self
        made = first(*self._originals())
        for module in others:
            made = module(made)
        return made


class _Parametrized:
    """What is before the class of a parametrized module: reads and writes of the tensors that are computed."""

    def __getattr__(self, name: str) -> Any:
        parametrizations = self.__dict__.get("_modules", {}).get("parametrizations")
        if parametrizations is None or name not in parametrizations:
            return super().__getattr__(name)  # type: ignore[misc]
        if not _entered:
            return parametrizations[name]()
        key = (id(self), name)
        if key not in _cache:
            _cache[key] = parametrizations[name]()
        return _cache[key]

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "parametrizations" and is_parametrized(self, name):  # type: ignore[arg-type]
            if isinstance(value, Parameter):
                raise KeyError(f"attribute '{name}' already exists")
            self.parametrizations[name].right_inverse(value)
        else:
            super().__setattr__(name, value)

    def __reduce__(self) -> Any:
        return _made, (type_before_parametrizations(self),), self.__dict__  # type: ignore[arg-type]


@functools.cache
def _class(of: type[Module]) -> type[Module]:
    return type(f"Parametrized{of.__name__}", (_Parametrized, of), {"__module__": __name__})


def _made(of: type[Module]) -> Module:
    """An empty parametrized module, as a copy or a pickle begins."""
    cls = _class(of)
    return cls.__new__(cls)


def type_before_parametrizations(module: Module) -> type[Module]:
    """The module's class before it was parametrized."""
    return type(module).__mro__[2] if isinstance(module, _Parametrized) else type(module)


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether a tensor of the module, or any, is computed from others."""
    parametrizations = module.__dict__.get("_modules", {}).get("parametrizations")
    if not isinstance(parametrizations, ModuleDict):
        return False
    return len(parametrizations) > 0 if tensor_name is None else tensor_name in parametrizations


def register_parametrization(module: M, tensor_name: str, parametrization: Module, *, unsafe: bool = False) -> M:
    """A parameter or buffer of `module` is what `parametrization` makes of what is kept for it.

    Args:
        module: The module.
        tensor_name: Its parameter or buffer, which may be parametrized already.
        parametrization: What computes it. Its `right_inverse`, if it has one, says what the present value is made of,
            and allows assigning to the attribute.
        unsafe: Whether it may change the dtype and the shape.
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        known = module.parametrizations[tensor_name]
        if not unsafe:
            before = getattr(module, tensor_name)
            name = f"module.{tensor_name}"
            after = _tensor_of(parametrization(before), "A parametrization")
            _differs("Registering a parametrization", (name, before), (f"parametrization({name})", after))
            if hasattr(parametrization, "right_inverse"):
                back = _tensor_of(parametrization.right_inverse(after), "parametrization.right_inverse")
                _differs("parametrization.right_inverse", (name, before), ("returned", back))
        known.append(parametrization)
        known.unsafe = known.unsafe or unsafe
    elif tensor_name in module._parameters or tensor_name in module._buffers:
        original = getattr(module, tensor_name)
        made = ParametrizationList([parametrization], original, unsafe)
        delattr(module, tensor_name)
        if not is_parametrized(module):
            module.__class__ = _class(type(module))
            module.parametrizations = ModuleDict()
        module.parametrizations[tensor_name] = made
    else:
        raise ValueError(
            f"Module '{module}' does not have a parameter, a buffer, or a parametrized element with name "
            f"'{tensor_name}'"
        )
    return module


def remove_parametrizations(module: M, tensor_name: str, leave_parametrized: bool = True) -> M:
    """The tensor is a parameter or buffer again: as it is now, or, not `leave_parametrized`, what was kept for it."""
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    known = module.parametrizations[tensor_name]
    if not (known.is_tensor or leave_parametrized):
        raise ValueError(
            "Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is parametrized in terms of a "
            "sequence of tensors."
        )
    tensor = known._originals()[0]
    if leave_parametrized:
        value = getattr(module, tensor_name)
        if known.is_tensor:
            tensor.data = value.detach()
        else:
            tensor = Parameter(value) if value.requires_grad else value
    del module.parametrizations[tensor_name]
    if not is_parametrized(module):
        del module.parametrizations
        module.__class__ = type_before_parametrizations(module)
    _register(module, tensor_name, tensor)
    return module


def transfer_parametrizations_and_params(from_module: Module, to_module: M, tensor_name: str | None = None) -> M:
    """Parametrizes `to_module` as `from_module` is, all tensors or one, with the same modules and parameters."""
    if is_parametrized(from_module):
        for name in [tensor_name] if tensor_name is not None else list(from_module.parametrizations):
            known = from_module.parametrizations[name]
            if not hasattr(to_module, name):
                setattr(to_module, name, Parameter(getattr(from_module, name)))
            for parametrization in known:
                register_parametrization(to_module, name, parametrization, unsafe=known.unsafe)
            own = to_module.parametrizations[name]
            for key, tensor in [*known._parameters.items(), *known._buffers.items()]:
                setattr(own, key, tensor)
    return to_module
