"""`Optimizer`: groups of parameters with options, and a state for each parameter."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import gt
from gt._autograd import enable_grad, no_grad
from gt._gt import Tensor


def check_not_negative(**options: float) -> None:
    """Raises a ValueError that names the first option below 0."""
    for name, value in options.items():
        if value < 0.0:
            raise ValueError(f"Invalid {name}: {value}")


class Optimizer:
    """The base of every optimizer: a subclass says, in `_update`, how one parameter steps.

    `param_groups` is a list of dicts, each with its parameters under `"params"` and its options beside them: change an
    option there at any time. `state` holds what a subclass remembers of a parameter, under the parameter itself.
    """

    def __init__(self, params: Iterable[Any], defaults: dict[str, Any]) -> None:
        """Takes tensors, or dicts with tensors under `"params"` and options that differ from `defaults`."""
        if isinstance(params, Tensor):
            raise TypeError(
                "params argument given to the optimizer should be an iterable of Tensors or dicts, but got Tensor"
            )
        self.defaults = defaults
        self.param_groups: list[dict[str, Any]] = []
        self.state: dict[Tensor, dict[str, Any]] = {}
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    def add_param_group(self, group: dict[str, Any]) -> None:
        """Adds parameters with options of their own, for instance when a layer is thawed."""
        params = group["params"]
        params = [params] if isinstance(params, Tensor) else list(params)
        taken = {id(p) for other in self.param_groups for p in other["params"]}
        for p in params:
            if not isinstance(p, Tensor):
                raise TypeError(f"optimizer can only optimize Tensors, but one of the params is {type(p).__name__}")
            if not p.is_leaf:
                raise ValueError("can't optimize a non-leaf Tensor")
            if id(p) in taken:
                raise ValueError("some parameters appear in more than one parameter group")
            taken.add(id(p))
        self.param_groups.append({**self.defaults, **group, "params": params})

    def _update(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        """Changes `p` in place by its gradient. Nothing is recorded meanwhile."""
        raise NotImplementedError

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Changes every parameter that has a gradient; `closure` may compute the loss, and gradients, first."""
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        with no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    grad = p.grad
                    if grad is not None:
                        self._update(p, grad, group)
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops the gradients, or sets them to zeros."""
        for group in self.param_groups:
            for p in group["params"]:
                p.grad = None if set_to_none or p.grad is None else gt.zeros_like(p.grad)

    def state_dict(self) -> dict[str, Any]:
        """Options and state, the parameters being numbered in order, as they are now."""
        numbers: dict[int, int] = {}
        groups = []
        for group in self.param_groups:
            for p in group["params"]:
                numbers[id(p)] = len(numbers)
            groups.append({**group, "params": [numbers[id(p)] for p in group["params"]]})
        state = {
            numbers[id(p)]: {name: v.clone() if isinstance(v, Tensor) else v for name, v in values.items()}
            for p, values in self.state.items()
        }
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over what `state_dict` gave, for the same number of parameters in the same order.

        Raises:
            ValueError: The groups are not of the same sizes.
        """
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
        self.state = {numbered[number]: dict(values) for number, values in state_dict["state"].items()}

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for i, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {i}")
            lines += [f"    {name}: {group[name]}" for name in sorted(group) if name != "params"]
        return "\n".join([*lines, ")"])
