"""Memory for time: `checkpoint` keeps nothing of what a function computes, and computes it again for gradients."""

from __future__ import annotations

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
    """`function(*args, **kwargs)`, whose tensors in between are computed again when gradients need them.

    Gradients flow to the arguments, and to all else that the function used: its parameters, say.

    Args:
        function: What to compute; it must do the same each time.
        args: Its arguments.
        use_reentrant: Changes nothing: there is one way.
        context_fn: Not there.
        determinism_check: Changes nothing: shapes are checked as gradients flow.
        debug: Changes nothing.
        early_stop: Changes nothing.
        preserve_rng_state: Draw the same random numbers again, as dropout needs.
        kwargs: More arguments.
    """
    del use_reentrant, determinism_check, debug, early_stop
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

    # The tensors keep their elements and lose what they were computed from.
    plain = [several[i].detach() for i in places]
    recorded = _gt.record("CheckpointBackward", plain, [True] * len(plain), outer, backward)
    out = list(several)
    for i, t in zip(places, recorded, strict=True):
        out[i] = t
    return tuple(out) if isinstance(result, tuple) else out[0]


def checkpoint_sequential(
    functions: Any, segments: int, input: Any, use_reentrant: bool | None = None, **kwargs: Any
) -> Any:
    """Functions or modules one after the other, in so many checkpoints of equal length; the last is none."""
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
