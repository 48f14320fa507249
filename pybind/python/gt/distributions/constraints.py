"""Constraints on the parameters and values of distributions, checked for each element or each event.

`positive` and others are constraints; `greater_than` and others make one from bounds. A program can derive its own from
`Constraint`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gt import _absent, linalg
from gt import _core as gt
from gt._declare import constructor
from gt._gt import Tensor

__all__ = [
    "Constraint",
    "boolean",
    "cat",
    "corr_cholesky",
    "dependent",
    "dependent_property",
    "greater_than",
    "greater_than_eq",
    "half_open_interval",
    "independent",
    "integer_interval",
    "interval",
    "is_dependent",
    "less_than",
    "lower_cholesky",
    "lower_triangular",
    "multinomial",
    "nonnegative",
    "nonnegative_integer",
    "one_hot",
    "positive",
    "positive_definite",
    "positive_integer",
    "positive_semidefinite",
    "real",
    "real_vector",
    "simplex",
    "square",
    "stack",
    "symmetric",
    "unit_interval",
]

__getattr__ = _absent.getter(__name__)


class Constraint:
    """The base class of constraints.

    Attributes:
        is_discrete: Whether the values that satisfy it are discrete.
        event_dim: The number of axes of one value: 0 if elements are checked one by one, 1 for vectors, 2 for matrices.
    """

    is_discrete: Any = False
    event_dim: Any = 0

    def check(self, value: Tensor) -> Tensor:
        """Whether each value satisfies the constraint: a bool tensor without the event axes."""
        raise NotImplementedError

    def __repr__(self) -> str:
        bounds = ", ".join(f"{name}={value}" for name, value in vars(self).items() if name.endswith("_bound"))
        return f"{type(self).__name__[1:]}({bounds})"


class _Dependent(Constraint):
    """A constraint that depends on a distribution's parameters; calling it sets what is known in advance."""

    def __init__(self, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented) -> None:
        self._is_discrete, self._event_dim = is_discrete, event_dim

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]
        """Whether the values that satisfy it are discrete."""
        if self._is_discrete is NotImplemented:
            raise NotImplementedError(".is_discrete cannot be determined statically")
        return self._is_discrete

    @property
    def event_dim(self) -> int:  # type: ignore[override]
        """The number of axes of one value."""
        if self._event_dim is NotImplemented:
            raise NotImplementedError(".event_dim cannot be determined statically")
        return self._event_dim

    def __call__(self, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented) -> _Dependent:
        discrete = self._is_discrete if is_discrete is NotImplemented else is_discrete
        return _Dependent(is_discrete=discrete, event_dim=self._event_dim if event_dim is NotImplemented else event_dim)

    def check(self, value: Tensor) -> Tensor:  # noqa: ARG002
        raise ValueError("Cannot determine validity of dependent constraint")


class dependent_property(property, _Dependent):  # noqa: N801 (PyTorch's name)
    """A property that returns a constraint: `@constraints.dependent_property(is_discrete=False, event_dim=0)`."""

    def __init__(
        self,
        fn: Callable[..., Any] | None = None,
        *,
        is_discrete: Any = NotImplemented,
        event_dim: Any = NotImplemented,
    ) -> None:
        super().__init__(fn)
        self._is_discrete, self._event_dim = is_discrete, event_dim

    def __call__(self, fn: Callable[..., Any]) -> dependent_property:  # type: ignore[override]
        """Wraps a function, where the decorator is used with arguments."""
        return dependent_property(fn, is_discrete=self._is_discrete, event_dim=self._event_dim)


def is_dependent(constraint: Constraint) -> bool:
    """Whether a constraint depends on a distribution's parameters."""
    return isinstance(constraint, _Dependent)


# Numbers ----------------------------------------------------------------------------------------------------------


def _declared(name: str, formula: Callable[..., Tensor], is_discrete: bool = False, event_dim: int = 0) -> Any:
    """A class of constraints whose bounds are the formula's arguments after the value that it checks."""
    bounds = formula.__code__.co_varnames[1 : formula.__code__.co_argcount]

    def check(self: Constraint, value: Tensor) -> Tensor:
        # A program may give it other attributes, as a docstring.
        return formula(value, **{name: self.__dict__[name] for name in bounds})

    members = {"is_discrete": is_discrete, "event_dim": event_dim, "check": check, "__module__": __name__}
    made: Any = type(name, (Constraint,), members)
    check.__qualname__ = f"{name}.check"
    made._set = lambda self, **bounds: self.__dict__.update(bounds)
    made.__init__ = constructor(made, bounds, {}, {})
    return made


def _whole(value: Tensor, is_inside: Tensor) -> Tensor:
    """Whether values are integers, and inside bounds."""
    return is_inside & (value % 1 == 0) if value.dtype.is_floating_point else is_inside


_Real = _declared("_Real", lambda value: value == value)  # not NaN
_Boolean = _declared("_Boolean", lambda value: (value == 0) | (value == 1), is_discrete=True)
_GreaterThan = _declared("_GreaterThan", lambda value, lower_bound: value > lower_bound)
_GreaterThanEq = _declared("_GreaterThanEq", lambda value, lower_bound: value >= lower_bound)
_LessThan = _declared("_LessThan", lambda value, upper_bound: value < upper_bound)
_Interval = _declared(
    "_Interval", lambda value, lower_bound, upper_bound: (value >= lower_bound) & (value <= upper_bound)
)
_HalfOpenInterval = _declared(
    "_HalfOpenInterval", lambda value, lower_bound, upper_bound: (value >= lower_bound) & (value < upper_bound)
)
_IntegerGreaterThan = _declared(
    "_IntegerGreaterThan", lambda value, lower_bound: _whole(value, value >= lower_bound), is_discrete=True
)
_IntegerInterval = _declared(
    "_IntegerInterval",
    lambda value, lower_bound, upper_bound: _whole(value, (value >= lower_bound) & (value <= upper_bound)),
    is_discrete=True,
)

# Vectors ----------------------------------------------------------------------------------------------------------

_Simplex = _declared("_Simplex", lambda value: (value >= 0).all(-1) & ((value.sum(-1) - 1).abs() < 1e-6), event_dim=1)
_OneHot = _declared(
    "_OneHot",
    lambda value: ((value == 0) | (value == 1)).all(-1) & (value.sum(-1) == 1),
    is_discrete=True,
    event_dim=1,
)
_Multinomial = _declared(
    "_Multinomial",
    lambda value, upper_bound: (value >= 0).all(-1) & (value.sum(-1) <= upper_bound),
    is_discrete=True,
    event_dim=1,
)
_Multinomial.__repr__ = lambda _: "Multinomial()"


# Matrices ---------------------------------------------------------------------------------------------------------


class _LowerTriangular(Constraint):
    event_dim = 2

    def check(self, value: Tensor) -> Tensor:
        return (value.tril() == value).flatten(-2).all(-1)


class _LowerCholesky(_LowerTriangular):
    def check(self, value: Tensor) -> Tensor:
        return super().check(value) & (value.diagonal(dim1=-2, dim2=-1) > 0).all(-1)


class _CorrCholesky(_LowerCholesky):
    def check(self, value: Tensor) -> Tensor:
        tolerance = gt.finfo(value.dtype).eps * value.shape[-1] * 10
        lengths = value.detach().norm(2, dim=-1)
        return super().check(value) & ((lengths - 1).abs() <= tolerance).all(-1)


class _Square(Constraint):
    event_dim = 2

    def check(self, value: Tensor) -> Tensor:
        return gt.full(tuple(value.shape[:-2]), value.shape[-2] == value.shape[-1], dtype=gt.bool)


class _Symmetric(_Square):
    def check(self, value: Tensor) -> Tensor:
        square = super().check(value)
        return gt.isclose(value, value.mT, atol=1e-6).all(-2).all(-1) if bool(square.all()) else square


class _PositiveSemidefinite(_Symmetric):
    def check(self, value: Tensor) -> Tensor:
        symmetric = super().check(value)
        return (linalg.eigvalsh(value) >= 0).all(-1) if bool(symmetric.all()) else symmetric


class _PositiveDefinite(_Symmetric):
    def check(self, value: Tensor) -> Tensor:
        symmetric = super().check(value)
        return linalg.cholesky_ex(value).info == 0 if bool(symmetric.all()) else symmetric


# Combinations -----------------------------------------------------------------------------------------------------


class _IndependentConstraint(Constraint):
    """A constraint whose last axes are checked together."""

    def __init__(self, base_constraint: Constraint, reinterpreted_batch_ndims: int) -> None:
        self.base_constraint, self.reinterpreted_batch_ndims = base_constraint, reinterpreted_batch_ndims

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]
        """Whether the base constraint's values are discrete."""
        return self.base_constraint.is_discrete

    @property
    def event_dim(self) -> int:  # type: ignore[override]
        """The base constraint's number of axes, and those that are added."""
        return self.base_constraint.event_dim + self.reinterpreted_batch_ndims

    def check(self, value: Tensor) -> Tensor:
        found = self.base_constraint.check(value)
        axes = self.reinterpreted_batch_ndims
        if found.ndim < axes:
            raise ValueError(f"Expected value.dim() >= {self.event_dim} but got {value.ndim}")
        return found.all(tuple(range(-axes, 0))) if axes else found

    def __repr__(self) -> str:
        return f"IndependentConstraint({self.base_constraint!r}, {self.reinterpreted_batch_ndims})"


class _PiecewiseConstraint(Constraint):
    """Constraints of the parts of a tensor along an axis."""

    dim: int

    def __init__(self, cseq: Sequence[Constraint]) -> None:
        if not all(isinstance(c, Constraint) for c in cseq):
            raise AssertionError("All elements of cseq must be instances of Constraint")
        self.cseq = list(cseq)

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]
        """Whether any of the constraints is discrete."""
        return any(c.is_discrete for c in self.cseq)


class _Cat(_PiecewiseConstraint):
    """Constraints of consecutive slices along an axis."""

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0, lengths: Sequence[int] | None = None) -> None:
        super().__init__(cseq)
        self.lengths = [1] * len(self.cseq) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.cseq):
            raise AssertionError(f"lengths length {len(self.lengths)} must match cseq length {len(self.cseq)}")
        self.dim = dim

    @property
    def event_dim(self) -> int:  # type: ignore[override]
        """The largest number of axes among the constraints."""
        return max(c.event_dim for c in self.cseq)

    def check(self, value: Tensor) -> Tensor:
        parts = value.split(self.lengths, self.dim)
        return gt.cat([c.check(part) for c, part in zip(self.cseq, parts, strict=True)], self.dim)


class _Stack(_PiecewiseConstraint):
    """Constraints of the elements along an axis."""

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0) -> None:
        super().__init__(cseq)
        self.dim = dim

    @property
    def event_dim(self) -> int:  # type: ignore[override]
        """The largest number of axes among the constraints, plus one if the stacked axis is one of them."""
        most = max(c.event_dim for c in self.cseq)
        return most + 1 if self.dim + most < 0 else most

    def check(self, value: Tensor) -> Tensor:
        parts = value.unbind(self.dim)
        return gt.stack([c.check(part) for c, part in zip(self.cseq, parts, strict=True)], self.dim)


cat, stack = _Cat, _Stack
independent = _IndependentConstraint
less_than, greater_than, greater_than_eq = _LessThan, _GreaterThan, _GreaterThanEq
interval, half_open_interval, integer_interval = _Interval, _HalfOpenInterval, _IntegerInterval
multinomial = _Multinomial

dependent = _Dependent()
real = _Real()
real_vector = independent(real, 1)
boolean = _Boolean()
nonnegative_integer = _IntegerGreaterThan(0)
positive_integer = _IntegerGreaterThan(1)
positive = greater_than(0.0)
nonnegative = greater_than_eq(0.0)
unit_interval = interval(0.0, 1.0)
simplex = _Simplex()
one_hot = _OneHot()
lower_triangular = _LowerTriangular()
lower_cholesky = _LowerCholesky()
corr_cholesky = _CorrCholesky()
square = _Square()
symmetric = _Symmetric()
positive_semidefinite = _PositiveSemidefinite()
positive_definite = _PositiveDefinite()
