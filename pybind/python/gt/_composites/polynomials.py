"""Orthogonal polynomials of `gt.special`, by their three-term recurrences."""

from __future__ import annotations

from collections.abc import Callable

from gt import _gt
from gt._gt import Tensor

# A recurrence: the polynomial of degree k + 1 from x, k and those of degrees k and k - 1.
Step = Callable[[Tensor, int, Tensor, Tensor], Tensor]


def _polynomial(name: str, about: str, first: Callable[[Tensor], Tensor], step: Step) -> Callable[..., Tensor]:
    """The polynomials whose degree 0 is 1, whose degree 1 is `first`, and whose recurrence is `step`."""

    def function(input: Tensor | float, n: Tensor | float) -> Tensor:
        if not isinstance(input, Tensor) and not isinstance(n, Tensor):
            raise TypeError(f"special_{name}(): one of the arguments must be a Tensor")
        x = input if isinstance(input, Tensor) else _gt.as_tensor(input)
        x = (x if x.is_floating_point() else x.float()).detach()
        degree = (n.detach() if isinstance(n, Tensor) else _gt.as_tensor(n)).long()
        last = int(degree.max().item()) if degree.numel() else 0
        below, current = _gt.ones_like(x), first(x)
        # Negative degrees give 0.
        result = _gt.where(degree == 0, below, _gt.zeros_like(x))
        for k in range(1, last + 1):
            result = _gt.where(degree == k, current, result)
            below, current = current, step(x, k, current, below)
        return result

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{about} of degree `n`. There is no gradient, as in PyTorch."
    return function


def _chebyshev(x: Tensor, _k: int, current: Tensor, below: Tensor) -> Tensor:
    return 2 * x * current - below


def _shifted(x: Tensor, _k: int, current: Tensor, below: Tensor) -> Tensor:
    return 2 * (2 * x - 1) * current - below


_FIRST = {
    "t": lambda x: x,
    "u": lambda x: 2 * x,
    "v": lambda x: 2 * x - 1,
    "w": lambda x: 2 * x + 1,
}

POLYNOMIALS = {
    **{
        f"chebyshev_polynomial_{kind}": _polynomial(
            f"chebyshev_polynomial_{kind}", f"Chebyshev's polynomial {kind.upper()}", first, _chebyshev
        )
        for kind, first in _FIRST.items()
    },
    **{
        f"shifted_chebyshev_polynomial_{kind}": _polynomial(
            f"shifted_chebyshev_polynomial_{kind}",
            f"Chebyshev's polynomial {kind.upper()} on 0 to 1, that of 2x - 1,",
            lambda x, first=first: first(2 * x - 1),
            _shifted,
        )
        for kind, first in _FIRST.items()
    },
    "hermite_polynomial_h": _polynomial(
        "hermite_polynomial_h", "The physicists' Hermite polynomial", lambda x: 2 * x,
        lambda x, k, current, below: 2 * (x * current - k * below),
    ),
    "hermite_polynomial_he": _polynomial(
        "hermite_polynomial_he", "The probabilists' Hermite polynomial", lambda x: x,
        lambda x, k, current, below: x * current - k * below,
    ),
    "laguerre_polynomial_l": _polynomial(
        "laguerre_polynomial_l", "Laguerre's polynomial", lambda x: 1 - x,
        lambda x, k, current, below: ((2 * k + 1 - x) * current - k * below) / (k + 1),
    ),
    "legendre_polynomial_p": _polynomial(
        "legendre_polynomial_p", "Legendre's polynomial", lambda x: x,
        lambda x, k, current, below: ((2 * k + 1) * x * current - k * below) / (k + 1),
    ),
}  # fmt: skip
