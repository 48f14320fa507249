"""Transforms from unconstrained space to the values of a constraint: `biject_to` and `transform_to`.

`biject_to` gives a bijection with a known Jacobian, as densities need; `transform_to` may give a simpler map for
optimization.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from gt import _absent
from gt.distributions import constraints, transforms
from gt.distributions.constraints import Constraint
from gt.distributions.transforms import Transform

__all__ = ["ConstraintRegistry", "biject_to", "transform_to"]

__getattr__ = _absent.getter(__name__)

F = TypeVar("F", bound=Callable[[Any], Transform])


class ConstraintRegistry:
    """Maps classes of constraints to functions that make transforms."""

    def __init__(self) -> None:
        self._registry: dict[type[Constraint], Callable[[Any], Transform]] = {}

    def register(self, constraint: Any, factory: F | None = None) -> Any:
        """Registers a function for a class of constraints.

        Args:
            constraint: The class, or one of its constraints.
            factory: The function from a constraint to a transform; without it, a decorator is returned.
        """
        if factory is None:
            return lambda function: self.register(constraint, function)
        kind = type(constraint) if isinstance(constraint, Constraint) else constraint
        if not isinstance(kind, type) or not issubclass(kind, Constraint):
            raise TypeError(f"Expected constraint to be either a Constraint subclass or instance, but got {constraint}")
        self._registry[kind] = factory
        return factory

    def __call__(self, constraint: Constraint) -> Transform:
        """A transform from unconstrained space to the values of a constraint.

        Raises:
            NotImplementedError: No function is registered for the constraint.
        """
        factory = self._registry.get(type(constraint))
        if factory is None:
            raise NotImplementedError(f"Cannot transform {type(constraint).__name__} constraints")
        return factory(constraint)


biject_to = ConstraintRegistry()
transform_to = ConstraintRegistry()


def _between(constraint: Any) -> Transform:
    low, high = constraint.lower_bound, constraint.upper_bound
    if isinstance(low, int | float) and low == 0 and isinstance(high, int | float) and high == 1:
        return transforms.SigmoidTransform()
    return transforms.ComposeTransform([transforms.SigmoidTransform(), transforms.AffineTransform(low, high - low)])


def _beyond(bound: Any, sign: int) -> Transform:
    return transforms.ComposeTransform([transforms.ExpTransform(), transforms.AffineTransform(bound, sign)])


biject_to.register(constraints.simplex, lambda _: transforms.StickBreakingTransform())
transform_to.register(constraints.simplex, lambda _: transforms.SoftmaxTransform())
transform_to.register(constraints.lower_cholesky, lambda _: transforms.LowerCholeskyTransform())
transform_to.register(constraints.positive_definite, lambda _: transforms.PositiveDefiniteTransform())
transform_to.register(constraints.positive_semidefinite, lambda _: transforms.PositiveDefiniteTransform())
for _to in (biject_to, transform_to):
    _to.register(constraints.real, lambda _: transforms.identity_transform)
    _to.register(constraints.greater_than, lambda c: _beyond(c.lower_bound, 1))
    _to.register(constraints.greater_than_eq, lambda c: _beyond(c.lower_bound, 1))
    _to.register(constraints.less_than, lambda c: _beyond(c.upper_bound, -1))
    _to.register(constraints.interval, _between)
    _to.register(constraints.half_open_interval, _between)
    _to.register(constraints.corr_cholesky, lambda _: transforms.CorrCholeskyTransform())
    # The transforms of combined constraints are made of those of their parts.
    _to.register(
        constraints.independent,
        lambda c, to=_to: transforms.IndependentTransform(to(c.base_constraint), c.reinterpreted_batch_ndims),
    )
    _to.register(constraints.cat, lambda c, to=_to: transforms.CatTransform([to(e) for e in c.cseq], c.dim, c.lengths))
    _to.register(constraints.stack, lambda c, to=_to: transforms.StackTransform([to(e) for e in c.cseq], c.dim))
