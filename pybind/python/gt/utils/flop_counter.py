"""`FlopCounterMode`: counts the floating-point operations of matrix products, convolutions and attention."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from gt import _absent
from gt._gt import Tensor
from gt.overrides import TorchFunctionMode

__all__ = ["FlopCounterMode"]

__getattr__ = _absent.getter(__name__)

# A multiplication and an addition for each pair of elements.
FLOPS_OF_PAIR = 2


def _product(args: tuple[Any, ...], result: Tensor) -> int:
    """A matrix product: the result's elements times the length of the rows of the first factor."""
    return FLOPS_OF_PAIR * result.numel() * args[0].shape[-1]


def _added(args: tuple[Any, ...], result: Tensor) -> int:
    """A matrix product that is added to the first argument."""
    return _product(args[1:], result)


def _convolution(args: tuple[Any, ...], result: Tensor) -> int:
    """A convolution: the result's elements times the elements of a filter."""
    return FLOPS_OF_PAIR * result.numel() * math.prod(args[1].shape[1:])


def _transposed(args: tuple[Any, ...], result: Tensor) -> int:
    """A transposed convolution: the input's elements times the elements of a filter."""
    del result
    return FLOPS_OF_PAIR * args[0].numel() * math.prod(args[1].shape[1:])


def _attention(args: tuple[Any, ...], result: Tensor) -> int:
    """Attention: the products of queries with keys, and of weights with values."""
    query, key, value = args[:3]
    pairs = math.prod(query.shape[:-1]) * key.shape[-2]
    del result
    return FLOPS_OF_PAIR * pairs * (query.shape[-1] + value.shape[-1])


_COUNTS: dict[str, Callable[[tuple[Any, ...], Any], int]] = {
    **dict.fromkeys(("mm", "bmm", "matmul", "linear", "mv", "__matmul__"), _product),
    **dict.fromkeys(("addmm", "baddbmm"), _added),
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), _convolution),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), _transposed),
    "scaled_dot_product_attention": _attention,
}


class FlopCounterMode(TorchFunctionMode):
    """Counts the floating-point operations of the functions that are called in a `with` block, not of their gradients.

    Args:
        mods: Ignored: counts are not told apart by module.
        depth: Ignored.
        display: Whether to print the counts at the end.
        custom_mapping: Functions of the arguments and the result, by the name of what they count.

    Example:
        >>> from gt.utils.flop_counter import FlopCounterMode
        >>> with FlopCounterMode(display=False) as counter:
        ...     y = gt.mm(gt.ones(2, 3), gt.ones(3, 4))
        >>> counter.get_total_flops()
        48
    """

    def __init__(
        self, mods: Any = None, depth: int = 2, display: bool = True, custom_mapping: dict[Any, Any] | None = None
    ) -> None:
        super().__init__()
        del mods
        self.depth, self.display = depth, display
        own = {getattr(key, "__name__", key): count for key, count in (custom_mapping or {}).items()}
        self._counts = {**_COUNTS, **own}
        self.flop_counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))

    def get_total_flops(self) -> int:
        """The number of all operations."""
        return sum(self.flop_counts["Global"].values())

    def get_flop_counts(self) -> dict[str, dict[str, int]]:
        """The numbers by function, under `"Global"`."""
        return {name: dict(counts) for name, counts in self.flop_counts.items()}

    def get_table(self, depth: int | None = None) -> str:
        """A line for each function."""
        del depth
        counts = {**self.flop_counts["Global"], "total": self.get_total_flops()}
        width = max(map(len, counts))
        return "\n".join(f"{name.ljust(width)}  {count}" for name, count in counts.items())

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Makes the call, and counts it."""
        del types
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        if name in self._counts and isinstance(result, Tensor):
            self.flop_counts["Global"][name] += self._counts[name]((*args, *(kwargs or {}).values()), result)
        return result

    def __enter__(self) -> FlopCounterMode:
        self.flop_counts.clear()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        if self.display:
            print(self.get_table())  # noqa: T201
