"""How far rounding determines a program's results: it runs again in PyTorch with every rounded number changed a little.

Stochastic arithmetic (CESTAC, Vignes 1993) estimates the condition of a result by the spread of runs that round at
random. A sum that cancels, or the gradient of a softmax in half precision, differs between such runs as much as it may
between the frameworks; what is exact, or well-conditioned, differs by a few units of the last place.
"""

from __future__ import annotations

import re
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from tests.fuzz_parity import outcome
from tests.fuzz_parity.generate import overlaps

# The number of runs that round at random.
RUNS = 4
# The most that a rounded number is changed, in units of its last place: kernels of elementary functions err by so much.
CHANGE_ULPS_MAX = 2.0
# A sum of no more units of the last place of its terms nearly cancels: the terms themselves are off by some.
CANCELLED_ULPS = 8.0
# A number that is a multiple of this, and no larger than this times 2^52, counts as exact in float64.
EXACT_STEP = 2.0**-20
# The operations that add many terms: kernels do so in different orders, and several workers round the sum of each.
SUMS = {"sum", "mean", "nansum", "dot", "vdot", "mv", "mm", "addmm", "bmm", "baddbmm", "convolution"}

# The moments of deviations from a mean, and the power of the deviations that they are of.
MOMENTS = {"var": 2, "std": 1}


class RandomRounding(TorchDispatchMode):
    """Changes each rounded element of a result by up to `CHANGE_ULPS_MAX` units of its last place, and so all terms of
    sums: as much as another order of adding them may. In the run with seed 0, sums that nearly cancel are 0.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.generator, self.cancels = torch.Generator().manual_seed(seed), seed == 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if any(to.alias_info is not None and not to.alias_info.is_write for to in func._schema.returns):
            return func(*args, **kwargs)
        precise = in_double(func, args, kwargs)
        name = func._schema.name.removeprefix("aten::")
        is_sum = name in SUMS
        if is_sum:
            args = tree_map(lambda operand: self.other(operand, kwargs.get("dtype")), args)
        result = func(*args, **kwargs)
        for made, exact in zip(tree_leaves(result), precise, strict=False):
            if isinstance(made, torch.Tensor) and made.is_floating_point():
                self.change(made, exact)
        if is_sum and self.cancels and isinstance(result, torch.Tensor) and result.is_floating_point():
            sizes = func(*tree_map(lambda x: x.abs() if isinstance(x, torch.Tensor) else x, args), **kwargs)
            result[result.abs() <= CANCELLED_ULPS * torch.finfo(result.dtype).eps * sizes] = 0.0
        if name in MOMENTS and self.cancels and args[0].is_floating_point() and args[0].numel() > 0:
            # Numbers that are equal but for their rounding may have no deviation at all.
            axes = (args[1] if len(args) > 1 else None) or tuple(range(args[0].ndim))
            size = args[0].abs().amax(axes, kwargs.get("keepdim", False))
            result[result <= (CANCELLED_ULPS * torch.finfo(result.dtype).eps * size) ** MOMENTS[name]] = 0.0
        return result

    def other(self, operand: Any, dtype: torch.dtype | None) -> Any:
        """A copy of an operand whose elements are changed, in the dtype that they are to be added in."""
        if not isinstance(operand, torch.Tensor):
            return operand
        if dtype is not None and dtype.is_floating_point:
            operand = operand.to(dtype)
        return self.changed(operand) if operand.is_floating_point() else operand

    def change(self, made: torch.Tensor, exact: Any) -> None:
        """Changes the elements of a result that differ from those computed in float64."""
        if made.dtype == torch.float64:
            steps = made / EXACT_STEP
            rounded = (steps != steps.round()) | (steps.abs() > 2.0**52)
        elif isinstance(exact, torch.Tensor) and exact.shape == made.shape:
            rounded = made.double() != exact
        else:
            rounded = torch.ones_like(made, dtype=torch.bool)
        changed = self.changed(made)
        rounded &= made.isfinite() & changed.isfinite()
        # An element that several indices show keeps what was written to it.
        if rounded.any() and not overlaps(made):
            made.copy_(torch.where(rounded, changed, made))

    def changed(self, t: torch.Tensor) -> torch.Tensor:
        """The elements of a tensor, each changed by up to `CHANGE_ULPS_MAX` units of its last place."""
        limits = torch.finfo(t.dtype)
        # Below the normal numbers, a unit of the last place has one size.
        units = limits.eps * t.detach().double().abs().clamp_min(limits.smallest_normal)
        change = 2 * torch.rand(t.shape, generator=self.generator, dtype=torch.float64) - 1
        return (t.detach().double() + CHANGE_ULPS_MAX * units * change).to(t.dtype)


def in_double(func: Any, args: Any, kwargs: Any) -> list[Any]:
    """The results of an operation whose operands are converted to float64; none if it does not take these."""

    def converted(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.clone().double() if value.is_floating_point() else value.clone()
        return torch.float64 if isinstance(value, torch.dtype) and value.is_floating_point else value

    default = torch.get_default_dtype()
    try:
        # The dtype of what is computed of integers.
        torch.set_default_dtype(torch.float64)
        return tree_leaves(func(*tree_map(converted, args), **tree_map(converted, kwargs)))
    except (RuntimeError, TypeError):
        return []
    finally:
        torch.set_default_dtype(default)


def spread(lines: list[str]) -> list[outcome.Outcome]:
    """The outcomes of a program in PyTorch with numbers that are rounded at random, and in float32 instead of half
    precision: what PyTorch computes in between may be beyond that.
    """
    found = []
    for seed in range(RUNS):
        with RandomRounding(seed):
            found.append(outcome.run(lines, torch))
    wider = [re.sub(r"\btorch\.b?float16\b", "torch.float32", line) for line in lines]
    return [*found, outcome.run(wider, torch)] if wider != lines else found
