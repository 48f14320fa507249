"""`Module`: a function with parameters.

An attribute that is a `Parameter` or a `Module` is registered by being assigned; everything else here walks over what
was registered. Start at `Module.__setattr__`, then `Module.named_modules`; hooks are in `_hooks.py`, `state_dict` and
`load_state_dict` in `_state_dict.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import gt
from gt._gt import Tensor
from gt._older import older
from gt.nn import _hooks
from gt.nn._hooks import Hooked
from gt.nn._state_dict import Stateful
from gt.nn.parameter import Buffer, Parameter

M = TypeVar("M", bound="Module")


# What is registered, by the kind of thing that errors speak of.
_KINDS = {"_parameters": "parameter", "_buffers": "buffer", "_modules": "module"}


def _type_of(value: Any) -> str:
    return value.type() if isinstance(value, Tensor) else type(value).__name__


class Module(Hooked, Stateful):
    """The base of every layer and model: subclass it, assign layers in `__init__`, compute in `forward`."""

    training: bool

    def __init__(self) -> None:
        self.__dict__.update(
            training=True,
            _parameters={},
            _buffers={},
            _modules={},
            _non_persistent_buffers_set=set(),
        )
        self._init_hooks()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What calling the module computes; a subclass says."""
        raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function')

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls `forward`, and hooks if there are any."""
        own = self.__dict__
        if own["_forward_hooks"] or own["_forward_pre_hooks"] or own["_backward_hooks"] or own["_backward_pre_hooks"]:
            return _hooks.call(self, args, kwargs)
        return self.forward(*args, **kwargs)

    # Registration -----------------------------------------------------------------------------------------------

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Tensor) and value._is_parameter:
            self._assign("_parameters", name, value)
        elif isinstance(value, Module):
            self._assign("_modules", name, value)
        elif isinstance(value, Buffer):
            if name in self.__dict__.get("_parameters", ()):
                raise TypeError(
                    f"cannot assign '{_type_of(value)}' as parameter '{name}' (gt.nn.Parameter or None expected)"
                )
            self.register_buffer(name, value, Buffer.is_persistent(value))
        else:
            for registry, kind, wanted in (
                ("_parameters", "parameter", "gt.nn.Parameter"),
                ("_modules", "child module", "gt.nn.Module"),
                ("_buffers", "buffer", "gt.Tensor"),
            ):
                if name in self.__dict__.get(registry, ()):
                    if value is not None and not (registry == "_buffers" and isinstance(value, Tensor)):
                        raise TypeError(
                            f"cannot assign '{_type_of(value)}' as {kind} '{name}' ({wanted} or None expected)"
                        )
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
                self._non_persistent_buffers_set.discard(name)
                return
        object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._parameters, *self._buffers, *self._modules})

    def _register(self, registry: str, name: str, value: Any) -> None:
        kind = _KINDS[registry]
        if registry not in self.__dict__:
            raise AttributeError(f"cannot assign {kind} before Module.__init__() call")
        if not isinstance(name, str):
            raise TypeError(f"{kind} name should be a string. Got {type(name).__name__}")
        if "." in name:
            raise KeyError(f'{kind} name can\'t contain "."' + (f", got: {name}" if kind == "module" else ""))
        if not name:
            raise KeyError(f'{kind} name can\'t be empty string ""')
        if hasattr(self, name) and name not in self.__dict__[registry]:
            raise KeyError(f"attribute '{name}' already exists")
        self.__dict__[registry][name] = value

    def _assign(self, registry: str, name: str, value: Any) -> None:
        """Registers what is assigned to an attribute, which may have been something else."""
        if registry not in self.__dict__:
            what = "module" if registry == "_modules" else registry[1:]
            raise AttributeError(f"cannot assign {what} before Module.__init__() call")
        for other in _KINDS:
            if other != registry:
                self.__dict__[other].pop(name, None)
        self.__dict__.pop(name, None)
        self.__dict__[registry][name] = value

    def register_parameter(self, name: str, param: Tensor | None) -> None:
        """Registers a `Parameter`, or a place for one (`None`)."""
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(
                f"cannot assign '{_type_of(param)}' object to parameter '{name}' (gt.nn.Parameter or None required)"
            )
        self._register("_parameters", name, param)

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Registers a tensor that is state but not trained; it is in `state_dict` if `persistent`."""
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(
                f"cannot assign '{type(tensor).__name__}' object to buffer '{name}' (gt Tensor or None required)"
            )
        self._register("_buffers", name, tensor)
        transient = self._non_persistent_buffers_set
        (transient.discard if persistent else transient.add)(name)

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

    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """This module and all below it, with dotted names, each once unless duplicates are wanted."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                yield from module.named_modules(memo, f"{prefix}.{name}" if prefix else name, remove_duplicate)

    def modules(self, remove_duplicate: bool = True) -> Iterator[Module]:
        """This module and all below it."""
        return (module for _, module in self.named_modules(remove_duplicate=remove_duplicate))

    def _named(self, registry: str, prefix: str, recurse: bool, remove_duplicate: bool) -> Iterator[tuple[str, Tensor]]:
        # Tensors compare by value, so what was seen is told by identity.
        seen = set()
        modules = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]
        for path, module in modules:
            for name, tensor in module.__dict__[registry].items():
                if tensor is not None and id(tensor) not in seen:
                    if remove_duplicate:
                        seen.add(id(tensor))
                    yield f"{path}.{name}" if path else name, tensor

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Every parameter with its dotted name; one that is shared, once."""
        return self._named("_parameters", prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Tensor]:
        """Every parameter, as an optimizer wants them."""
        return (parameter for _, parameter in self.named_parameters(recurse=recurse))

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Every buffer with its dotted name."""
        return self._named("_buffers", prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """Every buffer."""
        return (buffer for _, buffer in self.named_buffers(recurse=recurse))

    def get_submodule(self, target: str) -> Module:
        """The module under a dotted name; itself under `""`.

        Raises:
            AttributeError: There is no such module.
        """
        module: Any = self
        for name in target.split(".") if target else ():
            if not hasattr(module, name):
                raise AttributeError(f"{type(module).__name__} has no attribute `{name}`")
            module = getattr(module, name)
            if not isinstance(module, Module):
                raise AttributeError(f"`{name}` is not an nn.Module")
        return module

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Puts a module under a dotted name; `strict`, only where one is."""
        if not target:
            raise ValueError("Cannot set the submodule without a target name!")
        path, _, name = target.rpartition(".")
        parent = self.get_submodule(path)
        if strict and not hasattr(parent, name):
            raise AttributeError(f"{type(parent).__name__} has no attribute `{name}`")
        setattr(parent, name, module)

    def _get(self, target: str, registry: str, what: str) -> Tensor:
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        if not hasattr(module, name):
            raise AttributeError(f"{type(module).__name__} has no attribute `{name}`")
        if name not in module.__dict__[registry]:
            raise AttributeError(f"`{name}` is not {what}")
        return module.__dict__[registry][name]

    def get_parameter(self, target: str) -> Tensor:
        """The parameter under a dotted name."""
        return self._get(target, "_parameters", "an nn.Parameter")

    def get_buffer(self, target: str) -> Tensor:
        """The buffer under a dotted name."""
        return self._get(target, "_buffers", "a buffer")

    # Changing all at once ---------------------------------------------------------------------------------------

    def apply(self: M, fn: Callable[[Module], Any]) -> M:
        """Calls `fn` on every module below and then on this one."""
        for module in self.children():
            module.apply(fn)
        fn(self)
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

    def _apply(self: M, function: Callable[[Tensor], Tensor], recurse: bool = True) -> M:
        """Replaces the value of every parameter, gradient and buffer: optimizers keep them."""
        for tensor in (*self.parameters(recurse), *self.buffers(recurse)):
            value = function(tensor.detach())
            grad = tensor.grad
            tensor.data = value
            if grad is not None:
                tensor.grad = function(grad)
        return self

    def _cast(self: M, dtype: Any) -> M:
        return self._apply(lambda t: t.to(dtype) if t.dtype.is_floating_point else t)

    def to(self: M, *args: Any, **kwargs: Any) -> M:
        """To a device, to a floating dtype, or to both those of a tensor; parameters stay the objects they are.

        Raises:
            TypeError: The dtype is not floating.
        """
        words = {"dtype": None, "device": None, "non_blocking": False, "memory_format": None, "copy": False}
        if unknown := set(kwargs) - set(words):
            raise TypeError(f"to() got an unexpected keyword argument '{min(unknown)}'")
        words |= kwargs
        for arg in args:
            if isinstance(arg, Tensor):
                words["dtype"] = arg.dtype
            elif isinstance(arg, gt.dtype):
                words["dtype"] = arg
            elif not isinstance(arg, bool) and arg is not None:
                words["device"] = arg
        dtype, device = words["dtype"], words["device"]
        if dtype is not None and not dtype.is_floating_point:
            raise TypeError(
                f"nn.Module.to only accepts floating point or complex dtypes, but got desired dtype={dtype}"
            )
        if device is not None:
            self._apply(lambda t: t.to(device))
        return self if dtype is None else self._cast(dtype)

    def type(self: M, dst_type: Any) -> M:
        """Converts every parameter and buffer to a dtype."""
        return self._apply(lambda t: t.type(dst_type))

    def float(self: M) -> M:
        """Floating parameters and buffers as float32."""
        return self._cast(gt.float32)

    def double(self: M) -> M:
        """Floating parameters and buffers as float64."""
        return self._cast(gt.float64)

    def half(self: M) -> M:
        """Floating parameters and buffers as float16."""
        return self._cast(gt.float16)

    def bfloat16(self: M) -> M:
        """Floating parameters and buffers as bfloat16."""
        return self._cast(gt.bfloat16)

    def to_empty(self: M, *, device: Any, recurse: bool = True) -> M:
        """To a device, with new parameters and buffers whose elements are whatever is there."""
        return self._apply(lambda t: gt.empty_like(t, device=device), recurse=recurse)

    def share_memory(self: M) -> M:
        """Not there: a tensor belongs to one process."""
        return self._apply(lambda t: t.share_memory_())

    def cpu(self: M) -> M:
        """To the CPU."""
        return self.to("cpu")

    def cuda(self: M, device: Any = None) -> M:
        """To a CUDA device, if the daemon has one."""
        return self.to("cuda" if device is None else device)

    def compile(self, *_args: Any, **_kwargs: Any) -> None:
        """Leaves the module as it is: the daemon sees every instruction anyway."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        Module.__init__(self)
        self.__dict__.update(state)

    # Printing ---------------------------------------------------------------------------------------------------

    def extra_repr(self) -> str:
        """What stands between the parentheses of a layer's `repr`."""
        return ""

    def _get_name(self) -> str:
        return type(self).__name__

    def __repr__(self) -> str:
        extra = self.extra_repr()
        lines = extra.split("\n") if extra else []
        children = [f"({name}): " + repr(child).replace("\n", "\n  ") for name, child in self._modules.items()]
        if len(lines) + len(children) == 0 or (len(lines) == 1 and not children):
            return f"{self._get_name()}({extra})"
        return "\n  ".join([f"{self._get_name()}(", *lines, *children]) + "\n)"


class Container(Module):
    """A module with submodules given by name: every module can have them."""

    @older(
        "`nn.Container` is deprecated. All of its functionality is now implemented in `nn.Module`. Subclass that "
        "instead."
    )
    def __init__(self, **kwargs: Any) -> None:
        super().__init__()
        for name, module in kwargs.items():
            self.add_module(name, module)
