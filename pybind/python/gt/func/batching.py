"""`vmap`: vectorizes a function over a batch axis."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gt import _gt
from gt._functions import top
from gt._gt import Tensor
from gt.func.trees import Rebuild, broadcast_prefix, flatten


def vmap(
    func: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """A function of batches that computes `func` for each element of them.

    `func` is called once, with tensors that stand for all elements: every operation in it runs on the whole batch. A
    `func` that looks at elements, as by `item()` or `if x > 0`, is called for each element instead.

    Args:
        func: A function of tensors, or of trees of tensors, that returns such.
        in_dims: The batch axis of each argument; `None` for one that is the same for all elements.
        out_dims: The batch axis of each result; `None` for one that is the same for all elements.
        randomness: `"error"` to forbid random numbers, `"different"` or `"same"` for the elements.
        chunk_size: The most elements that are computed at a time, which bounds the memory; by default all.

    Example:
        >>> dot = gt.func.vmap(lambda a, b: (a * b).sum())
        >>> dot(gt.ones(3, 4), gt.ones(3, 4))
        tensor([4., 4., 4.])
        >>> slopes = gt.func.vmap(gt.func.grad(lambda w, x: (w * x).sum()), in_dims=(None, 0))
        >>> slopes(gt.ones(2), gt.eye(2))
        tensor([[1., 0.],
                [0., 1.]])
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

        def call(leaves: list[Any]) -> Any:
            at = len(leaves) - len(given)
            return func(*rebuild(leaves[:at]), **give(leaves[at:]))

        if chunk_size is None or chunk_size >= size:
            return _Batch(func, call, values, axes, size, out_dims, randomness).results()
        parts = [
            [value] * -(-size // chunk_size) if axis is None else value.split(chunk_size, axis)
            for value, axis in zip(values, axes, strict=True)
        ]
        results = []
        for i, part in enumerate(zip(*parts, strict=True)):
            rest = min(chunk_size, size - i * chunk_size)
            results.append(_Batch(func, call, list(part), axes, rest, out_dims, randomness).results())
        return _joined(func, results, out_dims, top.cat)

    return batched


@dataclass
class _Batch:
    """A call of a function for each element of a batch: `values` have the batch along `axes`, or not at all."""

    func: Callable[..., Any]
    call: Callable[[list[Any]], Any]
    values: list[Any]
    axes: list[Any]
    size: int
    out_dims: Any
    randomness: str

    def results(self) -> Any:
        """The results: of all elements at once, else one by one if the function looks at elements."""
        before = _gt.default_generator._position()
        try:
            return self._at_once()
        except _gt.NotBatchedError:
            _gt.default_generator._go_to(before)
        return self._one_by_one()

    def _at_once(self) -> Any:
        batch = _gt.Batch(self.size, self.randomness)
        given = list(zip(self.values, self.axes, strict=True))
        try:
            leaves = [value if axis is None else batch.enter(value, axis) for value, axis in given]
            made, rebuild, axes = _results(self.func, self.call(leaves), self.out_dims)
            if any(axis is None and batch.has(t) for t, axis in zip(made, axes, strict=True)):
                name = _name(self.func)
                raise ValueError(f"vmap({name}, ...): `{name}` can not return a BatchedTensor when out_dim is None")
            found = [t if axis is None else batch.result(t, axis) for t, axis in zip(made, axes, strict=True)]
            for (value, axis), leaf in zip(given, leaves, strict=True):
                if axis is not None and leaf._version:
                    # Written in place, which the batch shows.
                    value.copy_(batch.result(leaf, axis))
        finally:
            batch.leave()
        return rebuild(found)

    def _one_by_one(self) -> Any:
        if self.size == 0:
            raise NotImplementedError(
                "vmap: a batch of nothing: the shape of a result follows from calling the function"
            )
        given = zip(self.values, self.axes, strict=True)
        parts = [value if axis is None else value.unbind(axis) for value, axis in given]
        before = _gt.default_generator._position()
        results = []
        for i in range(self.size):
            if self.randomness == "same":
                _gt.default_generator._go_to(before)
            leaves = [part if axis is None else part[i] for part, axis in zip(parts, self.axes, strict=True)]
            results.append(self.call(leaves))
            if self.randomness == "error" and _gt.default_generator._position() != before:
                raise RuntimeError(
                    "vmap: called random operation while in randomness error mode. Please either use the 'same' or "
                    "'different' randomness flags on vmap or perform the randomness operation out of vmap"
                )
        return _joined(self.func, results, self.out_dims, top.stack)


def _name(func: Callable[..., Any]) -> str:
    return getattr(func, "__name__", repr(func))


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
    return sizes[0]


def _results(func: Callable[..., Any], result: Any, out_dims: Any) -> tuple[list[Tensor], Rebuild, list[Any]]:
    """The tensors of a result, what makes such a result of others, and the batch axis of each."""
    leaves, rebuild = flatten(result)
    out = list(out_dims) if isinstance(out_dims, tuple | list) and isinstance(result, list) else out_dims
    axes = broadcast_prefix(out, result, f"vmap({_name(func)}, ..., out_dims={out_dims})")
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            raise ValueError(
                f"vmap({_name(func)}, ...): `{_name(func)}` must only return Tensors, got type {type(leaf)}. "
                "Did you mean to set out_dims= to None for output?"
            )
    return leaves, rebuild, axes


def _joined(
    func: Callable[..., Any], results: list[Any], out_dims: Any, join: Callable[[list[Tensor], int], Tensor]
) -> Any:
    """One result of those of several elements, or of several parts of the batch."""
    _, rebuild, axes = _results(func, results[0], out_dims)
    columns = zip(*(_results(func, result, out_dims)[0] for result in results), strict=True)
    return rebuild(
        [column[0] if axis is None else join(list(column), axis) for column, axis in zip(columns, axes, strict=True)]
    )
