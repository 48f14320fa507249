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


def _register_both(*kinds: Any) -> Callable[[F], F]:
    def register(factory: F) -> F:
        for kind in kinds:
            biject_to.register(kind, factory)
            transform_to.register(kind, factory)
        return factory

    return register


@_register_both(constraints.real)
def _(_: Any) -> Transform:
    return transforms.identity_transform


@_register_both(constraints.positive, constraints.nonnegative)
def _(constraint: Any) -> Transform:
    shift = transforms.AffineTransform(constraint.lower_bound, 1)
    return transforms.ComposeTransform([transforms.ExpTransform(), shift])


@_register_both(constraints.less_than)
def _(constraint: Any) -> Transform:
    shift = transforms.AffineTransform(constraint.upper_bound, -1)
    return transforms.ComposeTransform([transforms.ExpTransform(), shift])


@_register_both(constraints.interval, constraints.half_open_interval)
def _(constraint: Any) -> Transform:
    low, high = constraint.lower_bound, constraint.upper_bound
    if isinstance(low, int | float) and low == 0 and isinstance(high, int | float) and high == 1:
        return transforms.SigmoidTransform()
    return transforms.ComposeTransform([transforms.SigmoidTransform(), transforms.AffineTransform(low, high - low)])


@_register_both(constraints.corr_cholesky)
def _(_: Any) -> Transform:
    return transforms.CorrCholeskyTransform()


biject_to.register(constraints.simplex, lambda _: transforms.StickBreakingTransform())
transform_to.register(constraints.simplex, lambda _: transforms.SoftmaxTransform())
transform_to.register(constraints.lower_cholesky, lambda _: transforms.LowerCholeskyTransform())
transform_to.register(constraints.positive_definite, lambda _: transforms.PositiveDefiniteTransform())
transform_to.register(constraints.positive_semidefinite, lambda _: transforms.PositiveDefiniteTransform())


def _of_parts(registry: ConstraintRegistry) -> None:
    """Registers the combined constraints, whose transforms are made of those of their parts."""
    registry.register(
        constraints.independent,
        lambda c: transforms.IndependentTransform(registry(c.base_constraint), c.reinterpreted_batch_ndims),
    )
    registry.register(
        constraints.cat, lambda c: transforms.CatTransform([registry(each) for each in c.cseq], c.dim, c.lengths)
    )
    registry.register(
        constraints.stack, lambda c: transforms.StackTransform([registry(each) for each in c.cseq], c.dim)
    )


_of_parts(biject_to)
_of_parts(transform_to)
