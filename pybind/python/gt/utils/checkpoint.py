"""Activation checkpointing: recomputes intermediate results in the backward pass to save memory (Chen et al. 2016)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

from gt import _absent, _gt
from gt import _core as gt
from gt._gt import Tensor

__all__ = ["checkpoint", "checkpoint_sequential"]

__getattr__ = _absent.getter(__name__)


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    context_fn: Any = None,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    preserve_rng_state: bool = True,
    **kwargs: Any,
) -> Any:
    """Computes `function(*args, **kwargs)` without keeping intermediate results; the backward pass recomputes them.

    Gradients flow to the arguments and to everything else the function uses, such as parameters.

    Args:
        function: The function; it must compute the same when it is called again.
        *args: Its arguments.
        use_reentrant: Accepted: there is one implementation, which needs no input that requires a gradient.
        context_fn: Not supported.
        determinism_check: Ignored: shapes are checked in the backward pass.
        debug: Ignored.
        early_stop: Ignored.
        preserve_rng_state: Whether the recomputation draws the same random numbers, as dropout needs.
        **kwargs: Its keyword arguments.

    Example:
        >>> x = gt.ones(2, requires_grad=True)
        >>> gt.utils.checkpoint.checkpoint(lambda x: x.exp().log(), x).sum().backward()
        >>> x.grad
        tensor([1., 1.])
    """
    del determinism_check, debug, early_stop
    if context_fn is not None:
        raise NotImplementedError("checkpoint: context_fn is not there: open the contexts inside the function")
    if not _gt.is_grad_enabled():
        return function(*args, **kwargs)
    since, drawn = _gt.tape_clock(), gt.get_rng_state() if preserve_rng_state else None
    signal = _gt.current_signal()
    result = function(*args, **kwargs)
    several = result if isinstance(result, tuple) else (result,)
    places = [i for i, t in enumerate(several) if isinstance(t, Tensor) and t.requires_grad]
    outer = _gt.frontier([several[i] for i in places], since)
    if not outer:
        if use_reentrant:
            warnings.warn("checkpoint: nothing that the function uses requires a gradient.", stacklevel=2)
        return result

    def backward(_: Any, grads: Sequence[Tensor | None], retain: bool) -> Sequence[Tensor | None]:
        del retain
        now = gt.get_rng_state() if preserve_rng_state else None
        records, outside = _gt.set_grad_enabled(True), _gt.set_signal(signal)
        try:
            if drawn is not None:
                gt.set_rng_state(drawn)
            again = function(*args, **kwargs)
        finally:
            _gt.set_grad_enabled(records)
            _gt.set_signal(outside)
            if now is not None:
                gt.set_rng_state(now)
        repeated = again if isinstance(again, tuple) else (again,)
        live = [(repeated[i], grad) for i, grad in zip(places, grads, strict=True) if grad is not None]
        roots, seeds = zip(*live, strict=True)
        return _gt.gradients(roots, seeds, outer, records, records)

    # Detaching releases the intermediate results and keeps the output's values.
    plain = [several[i].detach() for i in places]
    recorded = _gt.record("CheckpointBackward", plain, [True] * len(plain), outer, backward)
    out = list(several)
    for i, t in zip(places, recorded, strict=True):
        out[i] = t
    return tuple(out) if isinstance(result, tuple) else out[0]


def checkpoint_sequential(
    functions: Any, segments: int, input: Any, use_reentrant: bool | None = None, **kwargs: Any
) -> Any:
    """Calls functions or modules in sequence, in `segments` checkpointed segments.

    The last segment is not checkpointed.

    Args:
        functions: The functions, or a `Sequential`.
        segments: The number of segments.
        input: The input of the first function.
        use_reentrant: Ignored: there is one implementation.
        **kwargs: Options of `checkpoint`.
    """
    steps = list(functions.children() if hasattr(functions, "children") else functions)
    size = len(steps) // segments

    def runs(part: list[Any]) -> Callable[[Any], Any]:
        def run(value: Any) -> Any:
            for step in part:
                value = step(value)
            return value

        return run

    for i in range(segments - 1):
        part = steps[i * size : (i + 1) * size]
        input = checkpoint(runs(part), input, use_reentrant=use_reentrant, **kwargs)
    return runs(steps[(segments - 1) * size :])(input)
