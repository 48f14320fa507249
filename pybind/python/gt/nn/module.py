"""`Module`: a function with parameters.

An attribute that is a `Parameter` or a `Module` is registered by being assigned; everything else here walks over what
was registered. Start at `Module.__setattr__`, then `Module.named_modules`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import gt
from gt._autograd import no_grad
from gt._gt import Tensor
from gt.nn.parameter import Parameter

M = TypeVar("M", bound="Module")


class LoadResult(NamedTuple):
    """What `load_state_dict` did not find, and what it found no use for."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return f"LoadResult(missing_keys={self.missing_keys}, unexpected_keys={self.unexpected_keys})"


class Module:
    """The base of every layer and model: subclass it, assign layers in `__init__`, compute in `forward`."""

    training: bool

    def __init__(self) -> None:
        self.__dict__.update(training=True, _parameters={}, _buffers={}, _modules={}, _transient=set())

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What calling the module computes; a subclass says."""
        raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function')

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls `forward`."""
        return self.forward(*args, **kwargs)

    # Registration -----------------------------------------------------------------------------------------------

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Tensor) and isinstance(value, Parameter):
            self.register_parameter(name, value)
        elif isinstance(value, Module):
            self.add_module(name, value)
        elif name in self.__dict__.get("_parameters", ()) and value is not None:
            raise TypeError(
                f"cannot assign '{type(value).__name__}' as parameter '{name}' (gt.nn.Parameter or None expected)"
            )
        else:
            for registry in ("_parameters", "_buffers", "_modules"):
                if name in self.__dict__.get(registry, ()):
                    self.__dict__[registry][name] = value
                    return
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        # Only asked for what ordinary look-up does not find.
        own = self.__dict__
        for registry in ("_parameters", "_modules", "_buffers"):
            if registry in own and name in own[registry]:
                return own[registry][name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __delattr__(self, name: str) -> None:
        for registry in ("_parameters", "_buffers", "_modules"):
            if name in self.__dict__.get(registry, ()):
                del self.__dict__[registry][name]
                self._transient.discard(name)
                return
        object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._parameters, *self._buffers, *self._modules})

    def _register(self, registry: str, name: str, value: Any) -> None:
        if registry not in self.__dict__:
            kind = {"_parameters": "parameters", "_buffers": "buffers", "_modules": "module"}[registry]
            raise AttributeError(f"cannot assign {kind} before Module.__init__() call")
        if not isinstance(name, str) or "." in name or not name:
            raise KeyError(f"the name of a parameter, buffer or module is a word without dots, but got {name!r}")
        for other in ("_parameters", "_buffers", "_modules"):
            if other != registry:
                self.__dict__[other].pop(name, None)
        self.__dict__.pop(name, None)
        self.__dict__[registry][name] = value

    def register_parameter(self, name: str, parameter: Tensor | None) -> None:
        """Registers a `Parameter`, or a place for one (`None`)."""
        if parameter is not None and not isinstance(parameter, Parameter):
            raise TypeError(
                f"cannot assign '{type(parameter).__name__}' object to parameter '{name}' "
                "(gt.nn.Parameter or None required)"
            )
        self._register("_parameters", name, parameter)

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Registers a tensor that is state but not trained; it is in `state_dict` if `persistent`."""
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(
                f"cannot assign '{type(tensor).__name__}' object to buffer '{name}' (gt Tensor or None required)"
            )
        self._register("_buffers", name, tensor)
        (self._transient.discard if persistent else self._transient.add)(name)

    def add_module(self, name: str, module: Module | None) -> None:
        """Registers a submodule under a name that need not be an identifier (`"0"`)."""
        if module is not None and not isinstance(module, Module):
            raise TypeError(f"{type(module).__name__} is not a Module subclass")
        self._register("_modules", name, module)

    register_module = add_module

    # Walking ----------------------------------------------------------------------------------------------------

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """The submodules directly inside, with their names, each once."""
        seen = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def children(self) -> Iterator[Module]:
        """The submodules directly inside."""
        return (module for _, module in self.named_children())

    def named_modules(self, memo: set[Module] | None = None, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """This module and all below it, with dotted names, each once."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                yield from module.named_modules(memo, f"{prefix}.{name}" if prefix else name)

    def modules(self) -> Iterator[Module]:
        """This module and all below it."""
        return (module for _, module in self.named_modules())

    def _named(self, registry: str, prefix: str, recurse: bool) -> Iterator[tuple[str, Tensor]]:
        # Tensors compare by value, so what was seen is told by identity.
        seen = set()
        for path, module in self.named_modules(prefix=prefix) if recurse else [(prefix, self)]:
            for name, tensor in module.__dict__[registry].items():
                if tensor is not None and id(tensor) not in seen:
                    seen.add(id(tensor))
                    yield f"{path}.{name}" if path else name, tensor

    def named_parameters(self, prefix: str = "", recurse: bool = True) -> Iterator[tuple[str, Tensor]]:
        """Every parameter with its dotted name; one that is shared, once."""
        return self._named("_parameters", prefix, recurse)

    def parameters(self, recurse: bool = True) -> Iterator[Tensor]:
        """Every parameter, as an optimizer wants them."""
        return (parameter for _, parameter in self.named_parameters(recurse=recurse))

    def named_buffers(self, prefix: str = "", recurse: bool = True) -> Iterator[tuple[str, Tensor]]:
        """Every buffer with its dotted name."""
        return self._named("_buffers", prefix, recurse)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """Every buffer."""
        return (buffer for _, buffer in self.named_buffers(recurse=recurse))

    # Changing all at once ---------------------------------------------------------------------------------------

    def apply(self: M, function: Callable[[Module], Any]) -> M:
        """Calls `function` on every module below and then on this one."""
        for module in self.children():
            module.apply(function)
        function(self)
        return self

    def train(self: M, mode: bool = True) -> M:
        """Training mode, or with `False` evaluation mode: `Dropout` tells them apart."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        for module in self.modules():
            module.training = mode
        return self

    def eval(self: M) -> M:
        """Evaluation mode."""
        return self.train(False)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops every parameter's gradient, or sets it to zeros."""
        for parameter in self.parameters():
            if set_to_none or parameter.grad is None:
                parameter.grad = None
            else:
                parameter.grad = gt.zeros_like(parameter.grad)

    def requires_grad_(self: M, requires_grad: bool = True) -> M:
        """Whether the parameters are trained: `False` freezes them."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def to(self: M, dtype: Any) -> M:
        """Converts floating parameters and buffers to a floating `dtype`, in place: optimizers keep them."""
        if not dtype.is_floating_point:
            raise TypeError(f"nn.Module.to only accepts floating point dtypes, but got desired dtype={dtype}")
        for tensor in (*self.parameters(), *self.buffers()):
            if tensor.dtype.is_floating_point:
                tensor.data = tensor.detach().to(dtype)
                if tensor.grad is not None:
                    tensor.grad = tensor.grad.to(dtype)
        return self

    def float(self: M) -> M:
        """`to(gt.float32)`."""
        return self.to(gt.float32)

    def double(self: M) -> M:
        """`to(gt.float64)`."""
        return self.to(gt.float64)

    def half(self: M) -> M:
        """`to(gt.float16)`."""
        return self.to(gt.float16)

    def bfloat16(self: M) -> M:
        """`to(gt.bfloat16)`."""
        return self.to(gt.bfloat16)

    # State ------------------------------------------------------------------------------------------------------

    def _state(self) -> Iterator[tuple[str, Tensor]]:
        """What `state_dict` saves. Unlike `named_parameters`, a shared tensor under each of its names."""

        def visit(module: Module, prefix: str) -> Iterator[tuple[str, Tensor]]:
            for name, tensor in (*module._parameters.items(), *module._buffers.items()):
                if tensor is not None and name not in module._transient:
                    yield prefix + name, tensor
            for name, child in module._modules.items():
                if child is not None:
                    yield from visit(child, f"{prefix}{name}.")

        return visit(self, "")

    def state_dict(self) -> dict[str, Tensor]:
        """Every parameter and persistent buffer by dotted name.

        They share their elements with the module, as in PyTorch: `clone()` what later training must not change.
        """
        return {name: tensor.detach() for name, tensor in self._state()}

    @no_grad()
    def load_state_dict(self, state_dict: Mapping[str, Tensor], strict: bool = True) -> LoadResult:
        """Takes over the values of a `state_dict`, converted to the dtypes here.

        Raises:
            RuntimeError: A size does not fit, or, if `strict`, the names are not the same. Nothing was loaded then.
        """
        own = dict(self._state())
        missing = [name for name in own if name not in state_dict]
        unexpected = [name for name in state_dict if name not in own]
        errors = []
        if strict and unexpected:
            errors.append(f"Unexpected key(s) in state_dict: {_quoted(unexpected)}. ")
        if strict and missing:
            errors.append(f"Missing key(s) in state_dict: {_quoted(missing)}. ")
        values = {name: gt.as_tensor(state_dict[name]) for name in own if name in state_dict}
        errors += [
            f"size mismatch for {name}: copying a param with shape {value.shape} from checkpoint, "
            f"the shape in current model is {own[name].shape}."
            for name, value in values.items()
            if value.shape != own[name].shape
        ]
        if errors:
            raise RuntimeError("\n\t".join([f"Error(s) in loading state_dict for {type(self).__name__}:", *errors]))
        for name, value in values.items():
            own[name].copy_(value)
        return LoadResult(missing, unexpected)

    # Printing ---------------------------------------------------------------------------------------------------

    def extra_repr(self) -> str:
        """What stands between the parentheses of a layer's `repr`."""
        return ""

    def __repr__(self) -> str:
        head = self.extra_repr()
        children = [f"({name}): " + repr(child).replace("\n", "\n  ") for name, child in self._modules.items()]
        if not children:
            return f"{type(self).__name__}({head})"
        return "\n  ".join([f"{type(self).__name__}({head}", *children]) + "\n)"


def _quoted(names: list[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)
