"""Parametrizations: parameters computed from other tensors by a module.

`register_parametrization(layer, "weight", module)` moves the parameter to `layer.parametrizations.weight.original`;
`layer.weight` is then `module(original)`, computed when it is read.
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

# The tensors that `cached` keeps, by module and name, and the number of its contexts that are entered.
_cache: dict[tuple[int, str], Tensor] = {}
_entered = 0


@contextlib.contextmanager
def cached() -> Iterator[None]:
    """A context in which a parametrized tensor is computed once, when it is first read."""
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
    """Raises an error if the second tensor has another dtype or shape than the first."""
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
    """The parametrizations of one tensor, in the order they are applied, and the tensors they start from.

    These are `original`, or `original0`, `original1` and so on where `right_inverse` returned several.

    Args:
        modules: The parametrizations.
        original: The tensor to parametrize.
        unsafe: Whether the parametrizations may change the dtype and the shape.
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
                    # A parametrization without `right_inverse` starts from the tensor itself.
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
            # The parameter stays the same object, as an optimizer may hold it.
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
        """Sets the original tensors such that the parametrized tensor is `value`."""
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
        """Computes the parametrized tensor."""
        first, *others = self
        made = first(*self._originals())
        for module in others:
            made = module(made)
        return made


class _Parametrized:
    """The base that computes parametrized tensors on reading and inverts the computation on assignment."""

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
    """An empty parametrized module, the start of copying or unpickling one."""
    cls = _class(of)
    return cls.__new__(cls)


def type_before_parametrizations(module: Module) -> type[Module]:
    """The module's class before it was parametrized."""
    return type(module).__mro__[2] if isinstance(module, _Parametrized) else type(module)


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether a module has a parametrized tensor, or whether the tensor of this name is parametrized."""
    parametrizations = module.__dict__.get("_modules", {}).get("parametrizations")
    if not isinstance(parametrizations, ModuleDict):
        return False
    return len(parametrizations) > 0 if tensor_name is None else tensor_name in parametrizations


def register_parametrization(module: M, tensor_name: str, parametrization: Module, *, unsafe: bool = False) -> M:
    """Makes a parameter or buffer the output of a module.

    Args:
        module: The module with the parameter or buffer.
        tensor_name: Its name; it may be parametrized already.
        parametrization: The module that computes it. Its `right_inverse`, if it has one, computes the original from the
            present value, and allows assigning to the attribute.
        unsafe: Whether the parametrization may change the dtype and the shape.

    Returns:
        `module`.

    Example:
        >>> class Symmetric(gt.nn.Module):
        ...     def forward(self, x):
        ...         return x.triu() + x.triu(1).T
        >>> layer = gt.nn.Linear(3, 3)
        >>> _ = gt.nn.utils.parametrize.register_parametrization(layer, "weight", Symmetric())
        >>> bool((layer.weight == layer.weight.T).all())
        True
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
    """Removes the parametrizations of a tensor, which becomes a parameter or buffer again.

    Args:
        module: The module.
        tensor_name: The tensor's name.
        leave_parametrized: Whether the tensor keeps its computed value rather than the original's.

    Returns:
        `module`.
    """
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
    """Parametrizes `to_module` like `from_module`, with the same modules and originals.

    Args:
        from_module: The parametrized module.
        to_module: The other module.
        tensor_name: The tensor to parametrize; all if not given.

    Returns:
        `to_module`.
    """
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
