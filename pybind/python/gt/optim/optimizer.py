"""`Optimizer`: parameter groups with options, and a state for each parameter."""

from __future__ import annotations

import functools
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable
from inspect import get_annotations
from typing import TYPE_CHECKING, Any, ClassVar

from gt import _absent
from gt import _core as gt
from gt._autograd import enable_grad, no_grad
from gt._declare import constructor, dataclass_transform
from gt._gt import Tensor
from gt.utils.hooks import RemovableHandle

__getattr__ = _absent.getter(__name__)


class _RequiredParameter:
    """The default of an option that each parameter group must give."""

    def __repr__(self) -> str:
        return "<required parameter>"


required = _RequiredParameter()

# State entries that are numbers here, and tensors of one element in PyTorch's state dicts.
_NUMBERS = frozenset({"step", "mu_product", "eta", "mu"})


def _loaded(p: Tensor, name: str, value: Any) -> Any:
    """An entry of a parameter's state, as the update needs it: some that PyTorch has as tensors are numbers here."""
    if not isinstance(value, Tensor):
        return value
    if name in _NUMBERS:
        return int(value.item()) if name == "step" else value.item()
    return value.to(p.dtype) if value.is_floating_point() and p.is_floating_point() else value


# How errors call options that must not be negative, where it is not `NAME value`.
_LABELS = {"lr": "learning rate", "eps": "epsilon value"}


def descent_gradient(p: Tensor, grad: Tensor, group: dict[str, Any]) -> Tensor:
    """The gradient to descend, with `maximize` and the L2 penalty `weight_decay` applied."""
    if group["maximize"]:
        grad = -grad
    return gt.addcmul(grad, p, group["weight_decay"]) if group["weight_decay"] else grad


def pair(name: str, values: Any) -> tuple[Any, Any]:
    """The two numbers of an option.

    Raises:
        TypeError: The option is something else.
    """
    try:
        first, second = values
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be two numbers, but got {values!r}") from None
    return first, second


def _noted(step: Callable[..., Any]) -> Callable[..., Any]:
    """A program's own `step`, which notes that it was called."""

    @functools.wraps(step)
    def noted(self: Any, *args: Any, **kwargs: Any) -> Any:
        self._opt_called = True
        return step(self, *args, **kwargs)

    return noted


@dataclass_transform()
class _Declared:
    """A class whose subclasses declare the options of their constructors.

    Type checkers take no fields from the class that is transformed itself (PEP 681), and `params` is one of
    `Optimizer`.
    """


class Optimizer(_Declared):
    """The base class of optimizers: a subclass implements `_update`, the step of one parameter.

    GT's own subclasses declare their options as annotated attributes in the order of the constructor, which follows.

    Args:
        params: Tensors, pairs of names and tensors, or dicts with these under `"params"` and options of their own.
        defaults: The options of groups that do not give them.

    Attributes:
        param_groups: Dicts with their parameters under `"params"` and their options, which may be changed at any time.
        state: A dict for each parameter, with what the optimizer remembers of it.

    Example:
        >>> w = gt.nn.Parameter(gt.tensor([4.0]))
        >>> optimizer = gt.optim.SGD([w], lr=0.1)
        >>> for _ in range(3):
        ...     optimizer.zero_grad()
        ...     loss = (w * w).sum()
        ...     loss.backward()
        ...     optimizer.step()
        >>> w.detach()
        tensor([2.0480])
    """

    if TYPE_CHECKING:
        params: Iterable[Any]
    # The options that must not be negative.
    _nonnegative: ClassVar[tuple[str, ...]] = ("lr",)
    # The numbers of the state that are tensors in PyTorch's state dicts of this class.
    _saved_as_tensors: ClassVar[frozenset[str]] = _NUMBERS
    # The end of the error that refuses a sparse gradient.
    _instead: ClassVar[str] = ""
    # Whether a step was taken, for schedulers.
    _opt_called = False

    def __init_subclass__(cls, *, declared: bool = False) -> None:
        super().__init_subclass__()
        if "step" in vars(cls):
            cls.step = _noted(vars(cls)["step"])  # type: ignore[method-assign]
        if not declared:
            return
        kinds = {"params": "Iterable[Any]", **get_annotations(cls)}
        defaults = {name: vars(cls)[name] for name in kinds if name in vars(cls)}
        names = ["*" if name == "_" else name for name in kinds]
        cls.__init__ = constructor(cls, names, defaults, kinds)  # type: ignore[method-assign]
        for name in defaults:
            delattr(cls, name)

    def _set(self, params: Iterable[Any], **options: Any) -> None:
        """Checks the options and makes the parameter groups.

        Options that choose among PyTorch's implementations, such as `foreach`, are kept for state dicts: the update is
        the same for all.
        """
        for name in self._nonnegative:
            value = options[name]
            if isinstance(value, str) or value is None:
                raise TypeError(f"{type(self).__name__}: {name} must be a number, but got {value!r}")
            if value < 0.0:
                raise ValueError(f"Invalid {_LABELS.get(name, f'{name} value')}: {value}")
        if options.get("differentiable"):
            raise NotImplementedError("differentiable=True is not there: steps are not recorded for backward()")
        Optimizer.__init__(self, params, options)

    def __init__(self, params: Iterable[Any], defaults: dict[str, Any]) -> None:
        if isinstance(params, Tensor):
            raise TypeError(
                "params argument given to the optimizer should be an iterable of Tensors or dicts, but got "
                f"{params.type()}"
            )
        self.defaults = defaults
        self.param_groups: list[dict[str, Any]] = []
        self.state: dict[Tensor, dict[str, Any]] = defaultdict(dict)
        self._init_hooks()
        if not isinstance(params, Iterable):
            hint = ": pass its parameters()" if hasattr(params, "parameters") else ""
            raise TypeError(
                "params argument given to the optimizer should be an iterable of Tensors or dicts, but got "
                f"{type(params).__name__}{hint}"
            )
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    def _init_hooks(self) -> None:
        self._step_pre_hooks: dict[int, Callable[..., Any]] = {}
        self._step_post_hooks: dict[int, Callable[..., Any]] = {}
        self._state_dict_pre_hooks: dict[int, Callable[..., Any]] = {}
        self._state_dict_post_hooks: dict[int, Callable[..., Any]] = {}
        self._load_state_dict_pre_hooks: dict[int, Callable[..., Any]] = {}
        self._load_state_dict_post_hooks: dict[int, Callable[..., Any]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {"defaults": self.defaults, "state": self.state, "param_groups": self.param_groups}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "_step_pre_hooks" not in self.__dict__:
            self._init_hooks()
        self.__dict__.update(state)
        self.state = defaultdict(dict)
        for p, values in state["state"].items():
            self.state[p] = {name: _loaded(p, name, value) for name, value in values.items()}

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds a parameter group, such as layers that are no longer frozen.

        Args:
            param_group: A dict with tensors, or pairs of names and tensors, under `"params"`, and options that differ
                from the defaults.

        Raises:
            ValueError: A parameter is in another group already, is not a leaf, or a required option is missing.

        Example:
            >>> a, b = gt.nn.Parameter(gt.ones(1)), gt.nn.Parameter(gt.ones(1))
            >>> optimizer = gt.optim.SGD([a], lr=0.1)
            >>> optimizer.add_param_group({"params": [b], "lr": 0.01})
            >>> [group["lr"] for group in optimizer.param_groups]
            [0.1, 0.01]
        """
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        group = dict(param_group)
        params = group["params"]
        if isinstance(params, set):
            raise TypeError(
                "optimizer parameters need to be organized in ordered collections, but the ordering of tensors in "
                "sets will change between runs. Please use a list instead."
            )
        params = [params] if isinstance(params, Tensor) else list(params)
        if params and all(isinstance(p, tuple) for p in params):
            group["param_names"] = [name for name, _ in params]
            params = [p for _, p in params]
        for name, default in self.defaults.items():
            if default is required and name not in group:
                raise ValueError(f"parameter group didn't specify a value of required optimization parameter {name}")
        taken = {id(p) for other in self.param_groups for p in other["params"]}
        if len({id(p) for p in params}) < len(params):
            warnings.warn(
                "a parameter is more than once in a group of the optimizer: each step updates it more than once",
                stacklevel=3,
            )
        for p in params:
            if not isinstance(p, Tensor) and not hasattr(p, "materialize"):
                raise TypeError(f"optimizer can only optimize Tensors, but one of the params is {type(p).__name__}")
            if not p.is_leaf:
                raise ValueError("can't optimize a non-leaf Tensor")
            if id(p) in taken:
                raise ValueError("some parameters appear in more than one parameter group")
        for p in params:
            if not isinstance(p, Tensor):
                p._groups.append(params)  # `materialize` replaces the placeholder in this list
        self.param_groups.append({**self.defaults, **group, "params": params})

    def _update(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        """Updates `p` in place by its gradient; autograd is off."""
        raise NotImplementedError

    def _update_by_sparse(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:  # noqa: ARG002
        """Updates `p` in place by a gradient in COO layout; autograd is off."""
        raise RuntimeError(f"{type(self).__name__} does not support sparse gradients{self._instead}")

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates all parameters that have a gradient.

        Args:
            closure: Recomputes the loss and the gradients, and returns the loss; required by `LBFGS`.

        Returns:
            The closure's loss, or `None`.
        """
        self._opt_called = True
        for hook in self._step_pre_hooks.values():
            answer = hook(self, (closure,) if closure else (), {})
            if answer is not None:
                (closure,) = answer[0] or (None,)
        loss = self._run_step(closure)
        for hook in self._step_post_hooks.values():
            hook(self, (closure,) if closure else (), {})
        return loss

    def _run_step(self, closure: Callable[[], Any] | None) -> Any:
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        with no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    grad = p.grad
                    if grad is None:
                        continue
                    # The gradients that `backward()` adds up are of the class itself.
                    if type(grad) is not Tensor and grad.is_sparse:
                        self._update_by_sparse(p, grad, group)
                    else:
                        self._update(p, grad, group)
        return loss

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Registers `hook(optimizer, args, kwargs)`, called before each step; returns a handle to remove it."""
        return RemovableHandle(self._step_pre_hooks).add(hook)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Registers `hook(optimizer, args, kwargs)`, called after each step; returns a handle to remove it."""
        return RemovableHandle(self._step_post_hooks).add(hook)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Registers `hook(optimizer)`, called before `state_dict`; returns a handle to remove it."""
        return RemovableHandle(self._state_dict_pre_hooks).add(hook, prepend)

    def register_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Registers `hook(optimizer, state_dict)`, called after `state_dict`.

        Its result, if any, replaces the state dict.
        """
        return RemovableHandle(self._state_dict_post_hooks).add(hook, prepend)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Registers `hook(optimizer, state_dict)`, called before loading; its result, if any, is loaded instead."""
        return RemovableHandle(self._load_state_dict_pre_hooks).add(hook, prepend)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Registers `hook(optimizer)`, called after `load_state_dict`; returns a handle to remove it."""
        return RemovableHandle(self._load_state_dict_post_hooks).add(hook, prepend)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Sets the gradients of all parameters to `None`, or to zeros if `set_to_none` is false."""
        for group in self.param_groups:
            for p in group["params"]:
                p.grad = None if set_to_none or p.grad is None else gt.zeros_like(p.grad)

    def state_dict(self) -> dict[str, Any]:
        """The options and the state, copied, with parameters as numbers in order: PyTorch's format.

        Returns:
            A dict with `"state"` and `"param_groups"`.
        """
        for hook in self._state_dict_pre_hooks.values():
            hook(self)
        numbers: dict[int, int] = {}
        groups = []
        for group in self.param_groups:
            for p in group["params"]:
                numbers[id(p)] = len(numbers)
            rest = {name: value for name, value in group.items() if name != "params"}
            groups.append({**rest, "params": [numbers[id(p)] for p in group["params"]]})

        def saved(name: str, value: Any) -> Any:
            if isinstance(value, Tensor):
                return value.clone()
            return gt.tensor(float(value)) if name in self._saved_as_tensors else value

        state = {
            numbers[id(p)]: {name: saved(name, value) for name, value in values.items()}
            for p, values in self.state.items()
        }
        found = {"state": state, "param_groups": groups}
        for hook in self._state_dict_post_hooks.values():
            found = hook(self, found) or found
        return found

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores the options and the state that `state_dict` returned.

        Args:
            state_dict: The state dict of an optimizer with the same number of parameters, in the same order.

        Raises:
            ValueError: The numbers of groups or of their parameters differ.
        """
        for hook in self._load_state_dict_pre_hooks.values():
            state_dict = hook(self, state_dict) or state_dict
        groups = state_dict["param_groups"]
        if len(groups) != len(self.param_groups):
            raise ValueError("loaded state dict has a different number of parameter groups")
        if any(len(new["params"]) != len(own["params"]) for new, own in zip(groups, self.param_groups, strict=True)):
            raise ValueError(
                "loaded state dict contains a parameter group that doesn't match the size of optimizer's group"
            )
        numbered: dict[int, Tensor] = {}
        for new, own in zip(groups, self.param_groups, strict=True):
            numbered |= dict(zip(new["params"], own["params"], strict=True))
            own.update({name: value for name, value in new.items() if name != "params"})

        self.state = defaultdict(dict)
        for number, values in state_dict["state"].items():
            p = numbered[number]
            self.state[p] = {name: _loaded(p, name, value) for name, value in values.items()}
        for hook in self._load_state_dict_post_hooks.values():
            hook(self)

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for i, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {i}")
            lines += [f"    {name}: {group[name]}" for name in sorted(group) if name != "params"]
        return "\n".join([*lines, ")"])
