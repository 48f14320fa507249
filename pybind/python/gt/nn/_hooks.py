"""Hooks of modules: before and after `forward`, and before and after the backward pass. Start at `call`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from gt._deprecated import deprecated
from gt._gt import Tensor
from gt.autograd.function import Function
from gt.utils.hooks import RemovableHandle

if TYPE_CHECKING:
    from gt.nn.module import Module


_OLDER = (
    "A backward hook gets the gradients of the module's inputs, as a full backward hook: use "
    "register_full_backward_hook"
)


class _Watch(Function):
    """The identity function.

    In the backward pass `watch` receives the gradients of all its tensors and may replace them.
    """

    @staticmethod
    def forward(ctx: Any, watch: Any, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.watch = watch
        return tuple(t.detach() for t in tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        return (None, *ctx.watch(grads))


def _watch_gradients(watch: Any, values: Sequence[Any]) -> tuple[Any, ...]:
    """The values with `_Watch` applied to the tensors that require gradients."""
    places = [i for i, v in enumerate(values) if isinstance(v, Tensor) and v.requires_grad]
    if not places:
        return tuple(values)
    out = list(values)

    def spread(grads: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        found = dict(zip(places, grads, strict=True))
        answer = watch(tuple(found.get(i) for i in range(len(values))))
        return [answer[i] for i in places]

    for i, t in zip(places, _Watch.apply(spread, *(values[i] for i in places)), strict=True):
        out[i] = t
    return tuple(out)


def _tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


class _BackwardPass:
    """The backward hooks of one call of a module, with the gradients collected for them."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.before = [*every._backward_pre_hooks.values(), *module._backward_pre_hooks.values()]
        self.after = [*every._backward_hooks.values(), *module._backward_hooks.values()]
        self.grad_output: tuple[Any, ...] = ()
        self.inputs = 0
        self.enters = False

    def at_inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        self.inputs = len(args)
        self.enters = any(isinstance(a, Tensor) and a.requires_grad for a in args)
        return _watch_gradients(self.leave, args) if self.after else args

    def at_outputs(self, result: Any) -> Any:
        watched = _watch_gradients(self.enter, _tuple(result))
        return watched if isinstance(result, tuple) else watched[0]

    def enter(self, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        for hook in self.before:
            answer = hook(self.module, grads)
            if answer is not None:
                grads = _tuple(answer)
        self.grad_output = grads
        if self.after and not self.enters:
            warnings.warn(
                f"The backward hook of {type(self.module).__name__} gets grad_input=(None, …): no input of the module "
                "requires a gradient.",
                stacklevel=2,
            )
            self.leave((None,) * self.inputs)
        return grads

    def leave(self, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        for hook in self.after:
            answer = hook(self.module, grads, self.grad_output)
            if answer is not None:
                answer = _tuple(answer)
                if len(answer) != len(grads):
                    raise RuntimeError(
                        f"Backward hook returned an invalid number of grad_input, got {len(answer)}, but expected "
                        f"{len(grads)}"
                    )
                grads = answer
        return grads


def call(module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Calls `module.forward(*args, **kwargs)` with the hooks of all modules and the module's own."""
    with_kwargs = every._forward_pre_hooks_with_kwargs | module._forward_pre_hooks_with_kwargs
    for key, hook in [*every._forward_pre_hooks.items(), *module._forward_pre_hooks.items()]:
        if key in with_kwargs:
            answer = hook(module, args, kwargs)
            if answer is not None:
                if not isinstance(answer, tuple) or len(answer) != 2:
                    raise RuntimeError(
                        f"forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got {answer}."
                    )
                args, kwargs = answer
        else:
            answer = hook(module, args)
            if answer is not None:
                args = _tuple(answer)
    back = None
    if any(of._backward_hooks or of._backward_pre_hooks for of in (every, module)):
        back = _BackwardPass(module)
        args = back.at_inputs(args)

    def ran(key: int, hook: Callable[..., Any], result: Any) -> Any:
        takes_kwargs = key in every._forward_hooks_with_kwargs or key in module._forward_hooks_with_kwargs
        return hook(module, args, kwargs, result) if takes_kwargs else hook(module, args, result)

    called: set[int] = set()
    try:
        result = module.forward(*args, **kwargs)
        for key, hook in [*every._forward_hooks.items(), *module._forward_hooks.items()]:
            called.add(key)
            answer = ran(key, hook, result)
            if answer is not None:
                result = answer
    except BaseException:
        for of in (every, module):
            for key in of._forward_hooks_always_called - called:
                ran(key, of._forward_hooks[key], None)
        raise
    return result if back is None else back.at_outputs(result)


class Hooked:
    """The part of `Module` that registers hooks."""

    def _init_hooks(self) -> None:
        self.__dict__.update(
            _forward_hooks={},
            _forward_hooks_with_kwargs=set(),
            _forward_hooks_always_called=set(),
            _forward_pre_hooks={},
            _forward_pre_hooks_with_kwargs=set(),
            _backward_hooks={},
            _backward_pre_hooks={},
            _state_dict_hooks={},
            _state_dict_pre_hooks={},
            _load_state_dict_pre_hooks={},
            _load_state_dict_post_hooks={},
        )

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Registers `hook(module, args)`, called before `forward`.

        Args:
            hook: May return the arguments to use instead: one value or a tuple; `None` leaves them.
            prepend: Whether the hook runs before the ones registered already.
            with_kwargs: Whether the hook is `hook(module, args, kwargs)`, and returns `(args, kwargs)` or `None`.

        Returns:
            A handle; `handle.remove()` unregisters the hook.
        """
        handle = RemovableHandle(self._forward_pre_hooks, self._forward_pre_hooks_with_kwargs)
        if with_kwargs:
            self._forward_pre_hooks_with_kwargs.add(handle.id)
        return handle.add(hook, prepend)

    def register_forward_hook(
        self,
        hook: Callable[..., Any],
        *,
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> RemovableHandle:
        """Registers `hook(module, args, output)`, called after `forward`.

        Args:
            hook: May return the output to use instead; `None` leaves it.
            prepend: Whether the hook runs before the ones registered already.
            with_kwargs: Whether the hook is `hook(module, args, kwargs, output)`.
            always_call: Whether the hook also runs, with the output `None`, when `forward` or another hook raises.

        Returns:
            A handle; `handle.remove()` unregisters the hook.

        Example:
            >>> shapes = []
            >>> layer = gt.nn.Linear(4, 2)
            >>> handle = layer.register_forward_hook(lambda module, args, output: shapes.append(tuple(output.shape)))
            >>> _ = layer(gt.ones(3, 4))
            >>> handle.remove()
            >>> shapes
            [(3, 2)]
        """
        marks = (self._forward_hooks_with_kwargs, self._forward_hooks_always_called)
        handle = RemovableHandle(self._forward_hooks, *marks)
        for mark, wanted in zip(marks, (with_kwargs, always_call), strict=True):
            if wanted:
                mark.add(handle.id)
        return handle.add(hook, prepend)

    def register_full_backward_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Registers `hook(module, grad_output)`, called before the backward pass through the module.

        Args:
            hook: Receives the gradients of the outputs, and may return others to use instead.
            prepend: Whether the hook runs before the ones registered already.

        Returns:
            A handle; `handle.remove()` unregisters the hook.
        """
        return RemovableHandle(self._backward_pre_hooks).add(hook, prepend)

    def register_full_backward_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Registers `hook(module, grad_input, grad_output)`, called after the backward pass through the module.

        Args:
            hook: Receives the gradients of the positional inputs and of the outputs, and may return another
                `grad_input`.
            prepend: Whether the hook runs before the ones registered already.

        Returns:
            A handle; `handle.remove()` unregisters the hook.
        """
        return RemovableHandle(self._backward_hooks).add(hook, prepend)

    @deprecated(_OLDER)
    def register_backward_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Deprecated name of `register_full_backward_hook`.

        The hook gets the gradients of the module's inputs. PyTorch gives it those of the operands of the last operation
        in `forward`, which are others if there are several operations, and for a layer with a weight.
        """
        return self.register_full_backward_hook(hook)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Registers `hook(module, prefix, keep_vars)`, called before `state_dict` reads the module."""
        return RemovableHandle(self._state_dict_pre_hooks).add(hook)

    def register_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Registers `hook(module, state_dict, prefix, local_metadata)`, called after `state_dict` reads the module."""
        return RemovableHandle(self._state_dict_hooks).add(hook)

    def _register_state_dict_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        return self.register_state_dict_post_hook(hook)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Registers a hook that is called before this module's entries are loaded.

        Args:
            hook: `hook(module, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)`;
                it may change the state dict and the lists in place.

        Returns:
            A handle; `handle.remove()` unregisters the hook.
        """
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def _register_load_state_dict_pre_hook(
        self, hook: Callable[..., Any], with_module: bool = False
    ) -> RemovableHandle:
        return RemovableHandle(self._load_state_dict_pre_hooks).add((hook, with_module))

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Registers `hook(module, incompatible_keys)`, called after loading.

        It may change `incompatible_keys` in place.
        """
        return RemovableHandle(self._load_state_dict_post_hooks).add(hook)


class EveryModule(Hooked):
    """The hooks that run for every module, before the module's own."""

    def __init__(self) -> None:
        self._init_hooks()
        # Whether any was ever registered: one look for each call of a module.
        self.used = False
        # The hooks that see what modules register, by the dict of a module that it is registered in.
        self.registration: dict[str, dict[int, Callable[..., Any]]] = {
            "_parameters": {},
            "_buffers": {},
            "_modules": {},
        }

    def registered(self, registry: str, module: Module, name: str, value: Any) -> Any:
        """The parameter, buffer or submodule to register under a name: hooks may replace it."""
        for hook in list(self.registration[registry].values()):
            answer = hook(module, name, value)
            if answer is not None:
                value = answer
        return value


every = EveryModule()


def register_module_forward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Registers `hook(module, args)` for all modules: see `Module.register_forward_pre_hook`."""
    every.used = True
    return every.register_forward_pre_hook(hook)


def register_module_forward_hook(
    hook: Callable[..., Any], *, with_kwargs: bool = False, always_call: bool = False
) -> RemovableHandle:
    """Registers `hook(module, args, output)` for all modules: see `Module.register_forward_hook`.

    Example:
        >>> names = []
        >>> note = lambda module, args, output: names.append(type(module).__name__)
        >>> handle = gt.nn.modules.register_module_forward_hook(note)
        >>> _ = gt.nn.Sequential(gt.nn.Linear(4, 2), gt.nn.ReLU())(gt.ones(3, 4))
        >>> handle.remove()
        >>> names
        ['Linear', 'ReLU', 'Sequential']
    """
    every.used = True
    return every.register_forward_hook(hook, with_kwargs=with_kwargs, always_call=always_call)


def register_module_full_backward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Registers `hook(module, grad_output)` for all modules: see `Module.register_full_backward_pre_hook`."""
    every.used = True
    return every.register_full_backward_pre_hook(hook)


def register_module_full_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Registers `hook(module, grad_input, grad_output)` for all modules: see `Module.register_full_backward_hook`."""
    every.used = True
    return every.register_full_backward_hook(hook)


@deprecated(_OLDER)
def register_module_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Deprecated name of `register_module_full_backward_hook`: see `Module.register_backward_hook`."""
    return register_module_full_backward_hook(hook)


def register_module_parameter_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Registers `hook(module, name, parameter)`, called when any module registers a parameter.

    Args:
        hook: May return the parameter to register instead; `None` leaves it.

    Returns:
        A handle; `handle.remove()` unregisters the hook.

    Example:
        >>> names = []
        >>> note = lambda module, name, parameter: names.append(name)
        >>> with gt.nn.modules.module.register_module_parameter_registration_hook(note):
        ...     _ = gt.nn.Linear(4, 2)
        >>> names
        ['weight', 'bias']
    """
    return RemovableHandle(every.registration["_parameters"]).add(hook)


def register_module_buffer_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Registers `hook(module, name, buffer)`, called when any module registers a buffer or assigns to one.

    See `register_module_parameter_registration_hook`.
    """
    return RemovableHandle(every.registration["_buffers"]).add(hook)


def register_module_module_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Registers `hook(module, name, submodule)`, called when any module registers a submodule.

    See `register_module_parameter_registration_hook`.
    """
    return RemovableHandle(every.registration["_modules"]).add(hook)
