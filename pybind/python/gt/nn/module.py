"""`Module`: a function with parameters, the base class of layers and models.

Assigning a `Parameter` or a `Module` to an attribute registers it; every other method here traverses the registered
objects. Start at `Module.__setattr__`, then `Module.named_modules`. Hooks are in `_hooks.py`, `state_dict` and
`load_state_dict` in `_state_dict.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from gt import _core as gt
from gt._deprecated import deprecated
from gt._gt import Tensor
from gt._layouts import package
from gt.nn import _hooks
from gt.nn._hooks import Hooked, every
from gt.nn._state_dict import Stateful
from gt.nn.parameter import Buffer, Parameter

__all__ = ["Container", "Module"]

M = TypeVar("M", bound="Module")


# The registries of a module, with the noun that error messages use for their entries.
_KINDS = {"_parameters": "parameter", "_buffers": "buffer", "_modules": "module"}


def _type_of(value: Any) -> str:
    return value.type() if isinstance(value, Tensor) else type(value).__name__


class Module(Hooked, Stateful):
    """The base class of layers and models.

    A subclass calls `super().__init__()`, assigns its parameters and submodules to attributes in `__init__`, and
    computes its output in `forward`. Assigned attributes are registered: `parameters()`, `state_dict()`, `to()` and the
    other methods reach them in all submodules.

    Attributes:
        training: Whether the module is in training mode, as it is at first, or in evaluation mode. Layers such as
            `Dropout` and `BatchNorm` compute something else in each: see `train`.

    Example:
        >>> class Perceptron(gt.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.hidden = gt.nn.Linear(4, 8)
        ...         self.out = gt.nn.Linear(8, 2)
        ...
        ...     def forward(self, x):
        ...         return self.out(self.hidden(x).relu())
        >>> model = Perceptron()
        >>> model(gt.ones(3, 4)).shape
        gt.Size([3, 2])
        >>> [name for name, _ in model.named_parameters()]
        ['hidden.weight', 'hidden.bias', 'out.weight', 'out.bias']
    """

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
        """The module's output for an input; a subclass implements it.

        Call the module itself rather than this method: `module(input)` also runs the registered hooks.
        """
        raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function')

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls `forward`, with the registered hooks around it."""
        own = self.__dict__
        if (
            own["_forward_hooks"]
            or own["_forward_pre_hooks"]
            or own["_backward_hooks"]
            or own["_backward_pre_hooks"]
            or every.used
        ):
            return _hooks.call(self, args, kwargs)
        return self.forward(*args, **kwargs)

    # Registration -----------------------------------------------------------------------------------------------

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Tensor) and value._is_parameter:
            self._clear("_parameters", name)
            # Programs replace this method to see every parameter, as to make them without elements.
            self.register_parameter(name, value)
        elif isinstance(value, Module):
            self._assign("_modules", name, value)
        elif isinstance(value, Buffer):
            if name in self.__dict__.get("_parameters", ()):
                raise TypeError(
                    f"cannot assign '{_type_of(value)}' as parameter '{name}' "
                    f"({package()}.nn.Parameter or None expected)"
                )
            self.register_buffer(name, value, Buffer.is_persistent(value))
        else:
            for registry, kind, wanted in (
                ("_parameters", "parameter", "nn.Parameter"),
                ("_modules", "child module", "nn.Module"),
                ("_buffers", "buffer", "Tensor"),
            ):
                if name in self.__dict__.get(registry, ()):
                    if value is not None and not (registry == "_buffers" and isinstance(value, Tensor)):
                        raise TypeError(
                            f"cannot assign '{_type_of(value)}' as {kind} '{name}' "
                            f"({package()}.{wanted} or None expected)"
                        )
                    self._put(registry, name, value)
                    return
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        # Python calls this only when ordinary attribute look-up fails.
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
        self._put(registry, name, value)

    def _put(self, registry: str, name: str, value: Any) -> None:
        if _hooks.every.registration[registry] and (value is not None or registry != "_parameters"):
            value = _hooks.every.registered(registry, self, name, value)
        self.__dict__[registry][name] = value

    def _assign(self, registry: str, name: str, value: Any) -> None:
        """Registers a value assigned to an attribute, in place of what the attribute was before."""
        self._clear(registry, name)
        self._put(registry, name, value)

    def _clear(self, registry: str, name: str) -> None:
        """Removes what an attribute was before, unless it is in the registry itself."""
        if registry not in self.__dict__:
            what = "module" if registry == "_modules" else registry[1:]
            raise AttributeError(f"cannot assign {what} before Module.__init__() call")
        for other in _KINDS:
            if other != registry:
                self.__dict__[other].pop(name, None)
        self.__dict__.pop(name, None)

    def register_parameter(self, name: str, param: Tensor | None) -> None:
        """Registers a parameter under a name, as assigning it to an attribute does.

        Args:
            name: The attribute's name, without a dot.
            param: A `Parameter`, or `None`: the attribute is then `None`, and not in `state_dict`.

        Raises:
            TypeError: `param` is neither a `Parameter` nor `None`.
            KeyError: The name has a dot, is empty, or is that of another attribute.
        """
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(
                f"cannot assign '{_type_of(param)}' object to parameter '{name}' (gt.nn.Parameter or None required)"
            )
        self._register("_parameters", name, param)

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Registers a tensor that is part of the module's state but is not trained, such as a running mean.

        Args:
            name: The attribute's name, without a dot.
            tensor: The tensor, or `None`.
            persistent: Whether the buffer is in `state_dict`.

        Example:
            >>> module = gt.nn.Module()
            >>> module.register_buffer("count", gt.zeros(1))
            >>> list(module.state_dict())
            ['count']
        """
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(
                f"cannot assign '{type(tensor).__name__}' object to buffer '{name}' (gt Tensor or None required)"
            )
        self._register("_buffers", name, tensor)
        transient = self._non_persistent_buffers_set
        (transient.discard if persistent else transient.add)(name)

    def add_module(self, name: str, module: Module | None) -> None:
        """Registers a submodule under a name, which need not be an identifier: `Sequential` uses `"0"`, `"1"`, …."""
        if module is not None and not isinstance(module, Module):
            raise TypeError(f"{type(module).__name__} is not a Module subclass")
        self._register("_modules", name, module)

    register_module = add_module

    # Traversal --------------------------------------------------------------------------------------------------

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """Iterates over the direct submodules as `(name, module)`, each module once."""
        seen = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def children(self) -> Iterator[Module]:
        """Iterates over the direct submodules, each once."""
        return (module for _, module in self.named_children())

    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """Iterates over this module and all submodules, depth first, as `(dotted name, module)`.

        Args:
            memo: Modules to skip; the traversal adds the ones it has visited.
            prefix: Put before each name.
            remove_duplicate: Whether a module that several names lead to comes once, under its first name.

        Example:
            >>> model = gt.nn.Sequential(gt.nn.Linear(2, 2), gt.nn.ReLU())
            >>> [name for name, _ in model.named_modules()]
            ['', '0', '1']
        """
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
        """Iterates over this module and all submodules, depth first."""
        return (module for _, module in self.named_modules(remove_duplicate=remove_duplicate))

    def _named(self, registry: str, prefix: str, recurse: bool, remove_duplicate: bool) -> Iterator[tuple[str, Tensor]]:
        # Tensors compare by value, so the set of visited ones holds their identities.
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
        """Iterates over the parameters as `(dotted name, parameter)`.

        Args:
            prefix: Put before each name.
            recurse: Whether the submodules' parameters are included.
            remove_duplicate: Whether a shared parameter comes once, under its first name.
        """
        return self._named("_parameters", prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Tensor]:
        """Iterates over the parameters, each once: the argument of an optimizer.

        Example:
            >>> model = gt.nn.Linear(3, 2)
            >>> sum(p.numel() for p in model.parameters())
            8
        """
        return (parameter for _, parameter in self.named_parameters(recurse=recurse))

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Iterates over the buffers as `(dotted name, buffer)`."""
        return self._named("_buffers", prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """Iterates over the buffers, each once."""
        return (buffer for _, buffer in self.named_buffers(recurse=recurse))

    def get_submodule(self, target: str) -> Module:
        """The submodule at a dotted name, such as `"encoder.layers.0"`; this module itself at `""`.

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
        """Puts a module at a dotted name, in place of the submodule there.

        Args:
            target: The dotted name, such as `"encoder.layers.0"`.
            module: The module to put there.
            strict: Whether there must be a module at that name already.

        Raises:
            AttributeError: A module on the way does not exist, or, if `strict`, the last one.
        """
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
        """The parameter at a dotted name.

        Raises:
            AttributeError: There is no such parameter.
        """
        return self._get(target, "_parameters", "an nn.Parameter")

    def get_buffer(self, target: str) -> Tensor:
        """The buffer at a dotted name.

        Raises:
            AttributeError: There is no such buffer.
        """
        return self._get(target, "_buffers", "a buffer")

    # Changes to all parameters -----------------------------------------------------------------------------------

    def apply(self: M, fn: Callable[[Module], Any]) -> M:
        """Calls `fn` on every submodule, at any depth, and then on this module; returns this module.

        Example:
            >>> def zero_bias(module):
            ...     if isinstance(module, gt.nn.Linear):
            ...         gt.nn.init.zeros_(module.bias)
            >>> model = gt.nn.Sequential(gt.nn.Linear(2, 2)).apply(zero_bias)
            >>> model[0].bias.tolist()
            [0.0, 0.0]
        """
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def train(self: M, mode: bool = True) -> M:
        """Puts this module and all submodules in training mode, or in evaluation mode if `mode` is false.

        Only in training mode does dropout drop elements, and batch normalization use the statistics of the batch.

        Returns:
            This module.
        """
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        for module in self.modules():
            module.training = mode
        return self

    def eval(self: M) -> M:
        """Puts this module and all submodules in evaluation mode: `train(False)`.

        Example:
            >>> gt.nn.Dropout(0.5).eval()(gt.ones(3))
            tensor([1., 1., 1.])
        """
        return self.train(False)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Sets the gradients of all parameters to `None`, or to zeros if `set_to_none` is false."""
        for parameter in self.parameters():
            if set_to_none or parameter.grad is None:
                parameter.grad = None
            else:
                parameter.grad = gt.zeros_like(parameter.grad)

    def requires_grad_(self: M, requires_grad: bool = True) -> M:
        """Sets `requires_grad` of all parameters, in place; `False` freezes the module. Returns this module.

        Example:
            >>> layer = gt.nn.Linear(2, 2).requires_grad_(False)
            >>> layer.weight.requires_grad
            False
        """
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def _apply(self: M, function: Callable[[Tensor], Tensor], recurse: bool = True) -> M:
        """Replaces the values of all parameters, gradients and buffers by `function` of them.

        The parameters stay the same objects, so an optimizer still holds them, unless they move from or to the device
        `meta`.
        """
        replaced: dict[int, Tensor] = {}
        for tensor in (*self.parameters(recurse), *self.buffers(recurse)):
            value = function(tensor.detach())
            # Only another object can have elements, or have none; the placeholder of a lazy module has neither.
            if isinstance(tensor, Tensor) and value.is_meta != tensor.is_meta:
                kept = tensor.requires_grad
                replaced[id(tensor)] = Parameter(value, kept) if tensor._is_parameter else value
                continue
            grad = tensor.grad
            tensor.data = value
            if grad is not None:
                tensor.grad = function(grad)
        for module in (self.modules() if recurse else (self,)) if replaced else ():
            for registry in (module._parameters, module._buffers):
                for name, tensor in registry.items():
                    if id(tensor) in replaced:
                        registry[name] = replaced[id(tensor)]
        return self

    def _cast(self: M, dtype: Any) -> M:
        return self._apply(lambda t: t.to(dtype) if t.dtype.is_floating_point else t)

    def to(self: M, *args: Any, **kwargs: Any) -> M:
        """Moves the parameters and buffers to a device, or converts the floating ones to a dtype.

        Call it with a device, with a dtype, with both, or with a tensor whose device and dtype are taken. The
        parameters stay the same objects, so an optimizer made before still holds them. Returns this module.

        Raises:
            TypeError: The dtype is not floating.

        Example:
            >>> gt.nn.Linear(2, 2).to(gt.float64).weight.dtype
            gt.float64
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
        """Converts all parameters and buffers to `dst_type`; returns this module."""
        return self._apply(lambda t: t.type(dst_type))

    def float(self: M) -> M:
        """Converts floating parameters and buffers to float32; returns this module."""
        return self._cast(gt.float32)

    def double(self: M) -> M:
        """Converts floating parameters and buffers to float64; returns this module."""
        return self._cast(gt.float64)

    def half(self: M) -> M:
        """Converts floating parameters and buffers to float16; returns this module."""
        return self._cast(gt.float16)

    def bfloat16(self: M) -> M:
        """Converts floating parameters and buffers to bfloat16; returns this module."""
        return self._cast(gt.bfloat16)

    def to_empty(self: M, *, device: Any, recurse: bool = True) -> M:
        """Moves the module to a device with uninitialized parameters and buffers: the values are not copied."""
        return self._apply(lambda t: gt.empty_like(t, device=device), recurse=recurse)

    def share_memory(self: M) -> M:
        """Raises an error: a tensor belongs to one process and cannot be shared with another."""
        return self._apply(lambda t: t.share_memory_())

    def cpu(self: M) -> M:
        """Moves the parameters and buffers to the CPU; returns this module."""
        return self.to("cpu")

    def cuda(self: M, device: Any = None) -> M:
        """Moves the parameters and buffers to a CUDA device; returns this module.

        Raises:
            RuntimeError: The daemon has no such device.
        """
        return self.to("cuda" if device is None else device)

    def compile(self, *_args: Any, **_kwargs: Any) -> None:
        """Does nothing: the daemon sees every instruction of a program, and fuses them, in any case."""

    def _pytorch_state(self) -> dict[str, Any]:
        """Attributes that PyTorch's class has besides, for a checkpoint of the whole module."""
        return {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        Module.__init__(self)
        for name, own in list(self.__dict__.items()):
            # PyTorch has mappings of hooks where this package has sets.
            if isinstance(own, set) and isinstance(state.get(name), dict):
                state = {**state, name: set(state[name])}
        self.__dict__.update(state)

    # Printing ---------------------------------------------------------------------------------------------------

    def extra_repr(self) -> str:
        """The text between the parentheses of the module's `repr`, such as `in_features=4, out_features=2`.

        It is empty here; a subclass overrides this method.
        """
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
    """A module whose submodules are keyword arguments. Deprecated: derive from `Module`."""

    @deprecated(
        "`nn.Container` is deprecated. All of its functionality is now implemented in `nn.Module`. Subclass that "
        "instead."
    )
    def __init__(self, **kwargs: Any) -> None:
        super().__init__()
        for name, module in kwargs.items():
            self.add_module(name, module)
