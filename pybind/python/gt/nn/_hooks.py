"""Hooks of modules: before and after `forward`, and in the backward pass through it. Start at `call`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from gt._gt import Tensor
from gt.autograd.function import Function
from gt.utils.hooks import RemovableHandle

if TYPE_CHECKING:
    from gt.nn.module import Module


class _Watch(Function):
    """Tensors as they are; `watch` sees their gradients together, and may replace them."""

    @staticmethod
    def forward(ctx: Any, watch: Any, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.watch = watch
        return tuple(t.detach() for t in tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        return (None, *ctx.watch(grads))


def _watched(watch: Any, values: Sequence[Any]) -> tuple[Any, ...]:
    """`values`, whose tensors that require gradients are watched."""
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
    """One pass back through a module: what its backward hooks see."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.before = list(module._backward_pre_hooks.values())
        self.after = list(module._backward_hooks.values())
        self.grad_output: tuple[Any, ...] = ()
        self.inputs = 0
        self.enters = False

    def at_inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        self.inputs = len(args)
        self.enters = any(isinstance(a, Tensor) and a.requires_grad for a in args)
        return _watched(self.leave, args) if self.after else args

    def at_outputs(self, result: Any) -> Any:
        watched = _watched(self.enter, _tuple(result))
        return watched if isinstance(result, tuple) else watched[0]

    def enter(self, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        for hook in self.before:
            answer = hook(self.module, grads)
            if answer is not None:
                grads = _tuple(answer)
        self.grad_output = grads
        if self.after and not self.enters:
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
    """`module.forward(*args, **kwargs)` with the module's hooks."""
    for key, hook in list(module._forward_pre_hooks.items()):
        if key in module._forward_pre_hooks_with_kwargs:
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
    if module._backward_hooks or module._backward_pre_hooks:
        back = _BackwardPass(module)
        args = back.at_inputs(args)
    called: set[int] = set()
    try:
        result = module.forward(*args, **kwargs)
        for key, hook in list(module._forward_hooks.items()):
            called.add(key)
            with_kwargs = key in module._forward_hooks_with_kwargs
            answer = hook(module, args, kwargs, result) if with_kwargs else hook(module, args, result)
            if answer is not None:
                result = answer
    except BaseException:
        for key in module._forward_hooks_always_called - called:
            hook = module._forward_hooks[key]
            with_kwargs = key in module._forward_hooks_with_kwargs
            hook(module, args, kwargs, None) if with_kwargs else hook(module, args, None)
        raise
    return result if back is None else back.at_outputs(result)


class Hooked:
    """The half of `Module` that hooks are registered with."""

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
        """Calls `hook(module, args)` before `forward`; what it returns replaces the arguments."""
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
        """Calls `hook(module, args, output)` after `forward`; what it returns replaces the output."""
        marks = (self._forward_hooks_with_kwargs, self._forward_hooks_always_called)
        handle = RemovableHandle(self._forward_hooks, *marks)
        for mark, wanted in zip(marks, (with_kwargs, always_call), strict=True):
            if wanted:
                mark.add(handle.id)
        return handle.add(hook, prepend)

    def register_full_backward_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Calls `hook(module, grad_output)` when the gradients of the outputs are known; it may replace them."""
        return RemovableHandle(self._backward_pre_hooks).add(hook, prepend)

    def register_full_backward_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Calls `hook(module, grad_input, grad_output)` when both are known; what it returns replaces the former."""
        return RemovableHandle(self._backward_hooks).add(hook, prepend)

    def register_backward_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Not there: it saw the gradients of the last operation alone."""
        raise NotImplementedError("register_backward_hook is not there: use register_full_backward_hook")

    def register_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Calls `hook(module, prefix, keep_vars)` before `state_dict` reads the module."""
        return RemovableHandle(self._state_dict_pre_hooks).add(hook)

    def register_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Calls `hook(module, state_dict, prefix, local_metadata)` after `state_dict` has read the module."""
        return RemovableHandle(self._state_dict_hooks).add(hook)

    def _register_state_dict_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        return self.register_state_dict_post_hook(hook)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Calls `hook(module, state_dict, prefix, metadata, strict, missing, unexpected, errors)` before loading."""
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def _register_load_state_dict_pre_hook(
        self, hook: Callable[..., Any], with_module: bool = False
    ) -> RemovableHandle:
        return RemovableHandle(self._load_state_dict_pre_hooks).add((hook, with_module))

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Calls `hook(module, incompatible_keys)` after `load_state_dict`, whose answer it may change in place."""
        return RemovableHandle(self._load_state_dict_post_hooks).add(hook)
