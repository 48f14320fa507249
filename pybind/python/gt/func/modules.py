"""Modules as functions of their parameters: `functional_call`, and `stack_module_state` for ensembles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gt._functions import top
from gt._gt import Tensor

State = Mapping[str, Tensor]


def _names_of(module: Any) -> dict[int, list[str]]:
    """All names of each parameter and buffer; tied ones have several."""
    names: dict[int, list[str]] = {}
    for of in (module.named_parameters, module.named_buffers):
        for name, value in of(remove_duplicate=False):
            names.setdefault(id(value), []).append(name)
    return names


def functional_call(
    module: Any,
    parameter_and_buffer_dicts: State | Sequence[State],
    args: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Calls a module with other parameters and buffers in place of its own.

    Args:
        module: The module.
        parameter_and_buffer_dicts: Tensors by dotted name, in one dict or several with different names.
        args: The positional arguments: a tuple, or a single one.
        kwargs: The keyword arguments.
        tie_weights: Whether a tensor given for one name of a tied parameter replaces it under its other names.
        strict: Whether the names must be exactly those of the module.

    Example:
        >>> layer = gt.nn.Linear(2, 1)
        >>> gt.func.functional_call(layer, {"weight": gt.ones(1, 2), "bias": gt.zeros(1)}, gt.tensor([[1.0, 2.0]]))
        tensor([[3.]])
    """
    dicts = parameter_and_buffer_dicts
    given: dict[str, Tensor] = {}
    for one in [dicts] if isinstance(dicts, Mapping) else dicts:
        twice = given.keys() & one.keys()
        if twice:
            raise ValueError(
                f"{sorted(twice)} appeared in multiple dictionaries; behavior of functional call is ambiguous"
            )
        given.update(one)
    shared = _names_of(module)
    if strict:
        own = {name for names in shared.values() for name in names}
        covered = given.keys() | {
            n for names in shared.values() if tie_weights and given.keys() & set(names) for n in names
        }
        if own - covered or given.keys() - own:
            raise RuntimeError(
                f"Error(s) in loading state_dict for {type(module).__name__}: missing {sorted(own - covered)}, "
                f"unexpected {sorted(given.keys() - own)}"
            )
    if tie_weights:
        for names in shared.values():
            told = [name for name in names if name in given]
            if len({id(given[name]) for name in told}) > 1:
                raise ValueError(f"functional_call got multiple values for keys {told}, which are tied")
            given.update({name: given[told[0]] for name in names if told})
    before: list[tuple[dict[str, Any], str, Any]] = []
    try:
        for path, value in given.items():
            parent, _, name = path.rpartition(".")
            owner = module.get_submodule(parent)
            registry = owner._parameters if name in owner._parameters else owner._buffers
            if name not in registry:
                raise KeyError(f"the module has no parameter or buffer {path!r}")
            before.append((registry, name, registry[name]))
            registry[name] = value
        return module(*(args if isinstance(args, tuple) else () if args is None else (args,)), **(kwargs or {}))
    finally:
        for registry, name, value in reversed(before):
            registry[name] = value


def stack_module_state(models: Sequence[Any]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The parameters and the buffers of equal modules, each stacked along a new first axis, for `vmap`."""
    if not models:
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    if len({type(model) for model in models}) > 1:
        raise RuntimeError("stack_module_state: Expected all models to be of the same class.")
    if len({model.training for model in models}) > 1:
        raise RuntimeError("stack_module_state: Expected all models to have the same training/eval mode.")
    parameters, buffers = (
        [dict(getattr(model, of)()) for model in models] for of in ("named_parameters", "named_buffers")
    )

    def stacked(states: list[dict[str, Tensor]], name: str) -> Tensor:
        values = [state[name] for state in states]
        whole = top.stack([value.detach() for value in values])
        return whole.requires_grad_() if any(value.requires_grad for value in values) else whole

    return (
        {name: stacked(parameters, name) for name in parameters[0]},
        {name: stacked(buffers, name) for name in buffers[0]},
    )
