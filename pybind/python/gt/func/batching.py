"""`vmap`: vectorizes a function over a batch axis."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from gt import _gt
from gt._functions import top
from gt._gt import Tensor
from gt.func.trees import broadcast_prefix, flatten


def vmap(
    func: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """A function of batches that calls `func` for each element of them and stacks the results.

    It is a loop, so that it works for any function; a function that handles batches itself is faster.

    Args:
        func: A function of tensors, or of trees of tensors, that returns such.
        in_dims: The batch axis of each argument; `None` for one that is the same for all elements.
        out_dims: The batch axis of each result.
        randomness: `"error"` to forbid random numbers, `"different"` or `"same"` for the elements.
        chunk_size: Ignored: it affects memory in PyTorch alone.

    Example:
        >>> dot = gt.func.vmap(lambda a, b: (a * b).sum())
        >>> dot(gt.ones(3, 4), gt.ones(3, 4))
        tensor([4., 4., 4.])
    """
    if randomness not in ("error", "different", "same"):
        raise RuntimeError(f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}")
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")

    @functools.wraps(func)
    def batched(*args: Any, **kwargs: Any) -> Any:
        if not args:
            raise ValueError(f"vmap({_name(func)})(<inputs>): got no inputs. Maybe you forgot to add inputs")
        values, rebuild = flatten(args)
        own = in_dims if isinstance(in_dims, int) else tuple(in_dims) if isinstance(in_dims, list) else in_dims
        axes = broadcast_prefix(own, args, f"vmap({_name(func)}, in_dims={in_dims}, ...)(<inputs>): in_dims")
        size = _batch_size(func, in_dims, values, axes)
        given, give = flatten(kwargs)
        # Keyword arguments are batched along their first axis.
        values, axes = [*values, *given], [*axes, *(0 if isinstance(value, Tensor) else None for value in given)]
        parts = [value if axis is None else value.unbind(axis) for value, axis in zip(values, axes, strict=True)]
        before = _gt.default_generator.get_state()
        results = []
        for i in range(size):
            if randomness == "same":
                _gt.default_generator.set_state(before)
            leaves = [part if axis is None else part[i] for part, axis in zip(parts, axes, strict=True)]
            at = len(leaves) - len(given)
            results.append(func(*rebuild(leaves[:at]), **give(leaves[at:])))
            if randomness == "error" and i == 0 and _uses_randomness(before):
                raise RuntimeError(
                    "vmap: called random operation while in randomness error mode. Please either use the 'same' or "
                    "'different' randomness flags on vmap or perform the randomness operation out of vmap"
                )
        return _stack_results(func, results, out_dims)

    return batched


def _name(func: Callable[..., Any]) -> str:
    return getattr(func, "__name__", repr(func))


def _uses_randomness(before: Tensor) -> bool:
    return _gt.default_generator.get_state().tolist() != before.tolist()


def _batch_size(func: Callable[..., Any], in_dims: Any, values: list[Any], axes: list[Any]) -> int:
    where = f"vmap({_name(func)}, in_dims={in_dims}, ...)(<inputs>)"
    sizes = []
    for value, axis in zip(values, axes, strict=True):
        if axis is None:
            continue
        if not isinstance(axis, int):
            raise ValueError(f"{where}: Got in_dim={axis} for an input but in_dim must be either an integer or None.")
        if not isinstance(value, Tensor):
            raise ValueError(
                f"{where}: Got in_dim={axis} for an input but the input is of type {type(value)}. We cannot vmap over "
                "non-Tensor arguments, please use None as the respective in_dim"
            )
        if not -value.ndim <= axis < value.ndim:
            raise ValueError(
                f"{where}: Got in_dim={axis} for some input, but that input is a Tensor of dimensionality {value.ndim} "
                f"so expected in_dim to satisfy -{value.ndim} <= in_dim < {value.ndim}."
            )
        sizes.append(value.shape[axis])
    if not sizes:
        raise ValueError(f"{where}: at least one input must be mapped over: all in_dims are None")
    if len(set(sizes)) > 1:
        raise ValueError(
            f"vmap: Expected all tensors to have the same size in the mapped dimension, got sizes {sizes} for the "
            "mapped dimension"
        )
    if sizes[0] == 0:
        raise NotImplementedError("vmap: a batch of nothing: the shape of a result follows from calling the function")
    return sizes[0]


def _stack_results(func: Callable[..., Any], results: list[Any], out_dims: Any) -> Any:
    leaves = [flatten(result)[0] for result in results]
    rebuild = flatten(results[0])[1]
    out = list(out_dims) if isinstance(out_dims, tuple | list) and isinstance(results[0], list) else out_dims
    axes = broadcast_prefix(out, results[0], f"vmap({_name(func)}, ..., out_dims={out_dims})")
    stacked = []
    for column, axis in zip(zip(*leaves, strict=True), axes, strict=True):
        if not isinstance(column[0], Tensor):
            raise ValueError(
                f"vmap({_name(func)}, ...): `{_name(func)}` must only return Tensors, got type {type(column[0])}. "
                "Did you mean to set out_dims= to None for output?"
            )
        stacked.append(column[0] if axis is None else top.stack(list(column), axis))
    return rebuild(stacked)
