"""What parameters and values of distributions must satisfy: a name to print, and a check of each element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gt import _absent
from gt._gt import Tensor

__getattr__ = _absent.getter(__name__)


class Constraint:
    """A condition; `event_dim` axes on the right are one thing that satisfies it or does not."""

    def __init__(
        self, name: str, check: Callable[[Tensor], Tensor], event_dim: int = 0, discrete: bool = False
    ) -> None:
        self._name = name
        self.check = check
        self.event_dim = event_dim
        self.is_discrete = discrete

    def __repr__(self) -> str:
        return self._name


real = Constraint("Real()", lambda x: x == x)  # not NaN
real_vector = Constraint("IndependentConstraint(Real(), 1)", lambda x: (x == x).all(-1), 1)
boolean = Constraint("Boolean()", lambda x: (x == 0) | (x == 1), discrete=True)
nonnegative_integer = Constraint("IntegerGreaterThan(lower_bound=0)", lambda x: (x >= 0) & (x % 1 == 0), discrete=True)
unit_interval = Constraint("Interval(lower_bound=0.0, upper_bound=1.0)", lambda x: (x >= 0) & (x <= 1))
simplex = Constraint("Simplex()", lambda x: (x >= 0).all(-1) & ((x.sum(-1) - 1).abs() < 1e-6), 1)
one_hot = Constraint("OneHot()", lambda x: ((x == 0) | (x == 1)).all(-1) & (x.sum(-1) == 1), 1, discrete=True)
lower_cholesky = Constraint(
    "LowerCholesky()",
    lambda x: (x.tril() == x).flatten(-2).all(-1) & (x.diagonal(dim1=-2, dim2=-1) > 0).all(-1),
    2,
)


def independent(base: Constraint, axes: int) -> Constraint:
    """A condition on each element, for all of the last axes together."""
    return Constraint(
        f"IndependentConstraint({base!r}, {axes})",
        lambda x: base.check(x).all(tuple(range(-axes, 0))) if axes else base.check(x),
        base.event_dim + axes,
        base.is_discrete,
    )


def less_than(bound: Any) -> Constraint:
    """Below a number."""
    return Constraint(f"LessThan(upper_bound={bound})", lambda x: x < bound)


def greater_than(bound: Any) -> Constraint:
    """Above a number."""
    return Constraint(f"GreaterThan(lower_bound={bound})", lambda x: x > bound)


def greater_than_eq(bound: Any) -> Constraint:
    """A number, or above."""
    return Constraint(f"GreaterThanEq(lower_bound={bound})", lambda x: x >= bound)


def interval(low: Any, high: Any) -> Constraint:
    """Between numbers, both included."""
    return Constraint(f"Interval(lower_bound={low}, upper_bound={high})", lambda x: (x >= low) & (x <= high))


def half_open_interval(low: Any, high: Any) -> Constraint:
    """From a number up to but without another."""
    return Constraint(f"HalfOpenInterval(lower_bound={low}, upper_bound={high})", lambda x: (x >= low) & (x < high))


def multinomial(total: int) -> Constraint:
    """Counts that add up to a number."""
    return Constraint("Multinomial()", lambda x: (x >= 0).all(-1) & (x.sum(-1) <= total), 1, discrete=True)


def integer_interval(low: Any, high: Any) -> Constraint:
    """An integer between numbers, both included."""
    return Constraint(
        f"IntegerInterval(lower_bound={low}, upper_bound={high})",
        lambda x: (x >= low) & (x <= high) & (x % 1 == 0),
        discrete=True,
    )


def _is_positive_definite(x: Tensor) -> Tensor:
    symmetric = ((x - x.mT).abs() <= 1e-6 * x.abs().amax()).flatten(-2).all(-1)
    return symmetric & (_gt_eigenvalues(x) > 0).all(-1)


def _gt_eigenvalues(x: Tensor) -> Tensor:
    from gt import linalg

    return linalg.eigvalsh(x.detach())


positive_definite = Constraint("PositiveDefinite()", _is_positive_definite, 2)
positive = greater_than(0.0)
nonnegative = greater_than_eq(0.0)
