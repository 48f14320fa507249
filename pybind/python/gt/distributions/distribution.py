"""`Distribution`, the base class, and `ParametricDistribution`, whose subclasses are declarations. Start here.

A parametric family annotates its parameters with their constraints, and states its facts as formulas of them:

    class Exponential(ParametricDistribution):
        rate: Positive
        support = constraints.nonnegative
        _formulas = Formulas(
            mean=lambda rate: rate.reciprocal(),
            log_prob=lambda value, rate: rate.log() - rate * value,
            icdf=lambda value, rate: -(-value).log1p() / rate,
        )

The constructor, `arg_constraints`, the properties and methods, validation, `expand` and sampling follow when the class
is created.
"""

# ruff: noqa: ARG002 (the base class has methods that families override, with their arguments)
# Annotations are read when a class is created, so they are not postponed here.
import math
from collections.abc import Callable, Sequence
from functools import reduce
from inspect import get_annotations
from operator import and_
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple, TypedDict, get_args, get_origin

from gt import _core as gt
from gt._autograd import no_grad
from gt._declare import compiled, constructor, dataclass_transform
from gt._deprecated import deprecated
from gt._gt import Tensor
from gt.distributions import constraints
from gt.distributions.constraints import Constraint
from gt.distributions.utils import broadcast_all, lazy_property, logits_to_probs, probs_to_logits

NO_SHAPE = gt.Size()


class Distribution:
    """The base class of probability distributions.

    A distribution object is a batch of independent distributions. `batch_shape` is the shape of the batch, and
    `event_shape` that of one sample of one distribution: `()` for univariate distributions.

    Args:
        batch_shape: The shape of the batch.
        event_shape: The shape of one sample.
        validate_args: Whether parameters and values are validated; the class's default if not given.

    Attributes:
        has_rsample: Whether `rsample` is implemented.
        has_enumerate_support: Whether `enumerate_support` is implemented.
        arg_constraints: The constraint that each parameter satisfies.
    """

    has_rsample = False
    has_enumerate_support = False
    arg_constraints: ClassVar[dict[str, Constraint]] = {}
    _validate_args = __debug__

    _formulas: ClassVar["Formulas"] = {}

    def __init_subclass__(cls) -> None:
        for name, formula in vars(cls).get("_formulas", {}).items():
            setattr(cls, name, _fact(cls, name, formula))

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Sets whether parameters and values are validated where a distribution's `validate_args` is not given."""
        if value not in (True, False):
            raise ValueError(f"set_default_validate_args() takes True or False, but got {value!r}")
        Distribution._validate_args = value

    def __init__(
        self, batch_shape: Any = NO_SHAPE, event_shape: Any = NO_SHAPE, validate_args: bool | None = None
    ) -> None:
        self._batch_shape = gt.Size(batch_shape)
        self._event_shape = gt.Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            self._validate_parameters()

    def _validate_parameters(self) -> None:
        """Raises an error if a parameter is outside its constraint; waits once for the checks of all."""
        checks = []
        for name, constraint in self.arg_constraints.items():
            value = self.__dict__.get(name)
            if isinstance(value, Tensor) and not constraints.is_dependent(constraint):
                checks.append((constraint.check(value.detach()).all(), name, constraint, value))
        if not checks or bool(reduce(and_, (is_valid for is_valid, *_ in checks))):
            return
        for is_valid, name, constraint, value in checks:
            if not bool(is_valid):
                raise ValueError(
                    f"Expected parameter {name} (Tensor of shape {tuple(value.shape)}) of distribution {self!r} to "
                    f"satisfy the constraint {constraint!r}, but found invalid values:\n{value}"
                )

    @property
    def batch_shape(self) -> gt.Size:
        """The shape of the batch of distributions."""
        return self._batch_shape

    @property
    def event_shape(self) -> gt.Size:
        """The shape of a single sample of one distribution."""
        return self._event_shape

    @property
    def support(self) -> Constraint:
        """The constraint that samples satisfy."""
        raise self._missing("support")

    @property
    def mean(self) -> Tensor:
        """The mean of each distribution: shape `batch_shape + event_shape`; NaN where it does not exist."""
        raise self._missing("mean")

    @property
    def mode(self) -> Tensor:
        """The mode of each distribution, its most probable value: shape `batch_shape + event_shape`."""
        raise self._missing("mode")

    @property
    def variance(self) -> Tensor:
        """The variance of each element: shape `batch_shape + event_shape`; NaN or infinite where it does not exist."""
        raise self._missing("variance")

    @property
    def stddev(self) -> Tensor:
        """The standard deviation of each element, `sqrt(variance)`: shape `batch_shape + event_shape`."""
        return self.variance.sqrt()

    def _missing(self, name: str) -> NotImplementedError:
        """The error of a fact that the family does not state."""
        return NotImplementedError(f"{type(self)} does not implement {name}")

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        """A copy whose parameters are broadcast to another batch shape.

        Args:
            batch_shape: The new batch shape.
            _instance: Ignored.
        """
        raise self._missing("expand")

    def _copy(self, batch_shape: Sequence[int], **attributes: Any) -> Any:
        """A copy with another batch shape and other attributes, which are not validated."""
        made = type(self).__new__(type(self))
        made.__dict__.update(self.__dict__, **attributes, _batch_shape=gt.Size(batch_shape))
        return made

    @no_grad()
    def sample(self, sample_shape: Sequence[int] = NO_SHAPE) -> Tensor:
        """Draws samples, without gradients.

        Args:
            sample_shape: The number of samples of each distribution, as a shape.

        Returns:
            A tensor of shape `sample_shape + batch_shape + event_shape`.
        """
        return self.rsample(sample_shape)

    def rsample(self, sample_shape: Sequence[int] = NO_SHAPE) -> Tensor:
        """Draws samples that are differentiable functions of the parameters (reparameterization trick).

        Args:
            sample_shape: The number of samples of each distribution, as a shape.

        Returns:
            A tensor of shape `sample_shape + batch_shape + event_shape`.
        """
        raise self._missing("rsample")

    @deprecated("sample_n will be deprecated. Use .sample((n,)) instead", UserWarning)
    def sample_n(self, n: int) -> Tensor:
        """Draws `n` samples: `sample((n,))`. Deprecated."""
        return self.sample((n,))

    def log_prob(self, value: Tensor) -> Tensor:
        """The log probability density, or for discrete distributions the log probability, of a value.

        Args:
            value: A tensor that broadcasts with `batch_shape + event_shape`.

        Returns:
            A tensor of shape broadcast(value, batch), without the event axes.

        Raises:
            ValueError: The value is outside the support, and arguments are validated.
        """
        raise self._missing("log_prob")

    def cdf(self, value: Tensor) -> Tensor:
        """Cumulative distribution function, P(X <= value): shape broadcast(value, batch)."""
        raise self._missing("cdf")

    def icdf(self, value: Tensor) -> Tensor:
        """Inverse cumulative distribution function (quantile): shape broadcast(value, batch)."""
        raise self._missing("icdf")

    def entropy(self) -> Tensor:
        """The differential entropy, or the entropy of a discrete distribution, in nats: shape `batch_shape`."""
        raise self._missing("entropy")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All values of a discrete distribution's support, along a new first axis.

        Args:
            expand: Whether the values are broadcast to the batch shape; otherwise its axes have size 1.
        """
        raise self._missing("enumerate_support")

    def perplexity(self) -> Tensor:
        """The perplexity `exp(entropy)`: shape `batch_shape`."""
        return self.entropy().exp()

    def _extended_shape(self, sample_shape: Sequence[int] = NO_SHAPE) -> tuple[int, ...]:
        try:
            return (*sample_shape, *self._batch_shape, *self._event_shape)
        except TypeError:
            text = f"sample_shape must be a sequence of sizes, such as (5,), but got {sample_shape!r}"
            raise TypeError(text) from None

    def _validate_sample(self, value: Any) -> None:
        if not self._validate_args:
            return
        if not isinstance(value, Tensor):
            raise ValueError(f"The value argument to log_prob must be a Tensor, but got {type(value).__name__}")
        own, given = self._extended_shape(), tuple(value.shape)
        axes = len(self._event_shape)
        if given[len(given) - axes :] != tuple(self._event_shape):
            raise ValueError(
                f"The right-most size of value must match event_shape: {given} vs {tuple(self._event_shape)}."
            )
        for a, b in zip(reversed(given), reversed(own), strict=False):
            if a != b and 1 not in (a, b):
                raise ValueError(f"Value is not broadcastable with batch_shape+event_shape: {given} vs {own}.")
        if not bool(self.support.check(value.detach()).all()):
            raise ValueError(
                f"Expected value argument (Tensor of shape {given}) to be within the support ({self.support!r}) of the "
                f"distribution {self!r}, but found invalid values:\n{value}"
            )

    def __repr__(self) -> str:
        parts = []
        for name in self.arg_constraints:
            value = self.__dict__.get(name)
            if isinstance(value, Tensor):
                parts.append(f"{name}: {value if value.numel() == 1 else value.shape}")
        return f"{type(self).__name__}({', '.join(parts)})"


# Parametric families --------------------------------------------------------------------------------------------------


class FamilyParameter:
    """A parameter of a family: given as a number or a tensor, read as a tensor."""

    if TYPE_CHECKING:

        def __get__(self, owner: Any, kind: Any) -> Tensor: ...

        def __set__(self, owner: Any, value: Tensor | float | None) -> None: ...


# The annotations of parameters, each with its constraint.
Real = Annotated[FamilyParameter, constraints.real]
Positive = Annotated[FamilyParameter, constraints.positive]
Nonnegative = Annotated[FamilyParameter, constraints.nonnegative]
UnitInterval = Annotated[FamilyParameter, constraints.unit_interval]


class Formulas(TypedDict, total=False):
    """The facts of a family: functions that take parameters, or other attributes of the distribution, by name.

    Facts of a value have it as their first argument, recipes of samples the samples' shape. A family with `icdf` and
    neither of the recipes is sampled by inverse transform sampling.
    """

    support: Callable[..., Constraint]
    mean: Callable[..., Tensor]
    mode: Callable[..., Tensor]
    variance: Callable[..., Tensor]
    stddev: Callable[..., Tensor]
    log_prob: Callable[..., Tensor]
    cdf: Callable[..., Tensor]
    icdf: Callable[..., Tensor]
    entropy: Callable[..., Tensor]
    sample: Callable[..., Tensor]
    rsample: Callable[..., Tensor]
    # The values of a discrete support, in a tensor of one axis.
    enumerate_support: Callable[..., Tensor]


# The parameters and the body of what follows from a formula, whose arguments are attributes of the distribution after
# `first`, the value or the shape of samples.
_VALIDATED = "(self, {first}): self._validate_args and self._validate_sample({first}); return formula({arguments})"
_DRAWN = "(self, sample_shape=NO_SHAPE): {first} = self._extended_shape(sample_shape); return formula({arguments})"
_METHODS = {
    "log_prob": _VALIDATED,
    "cdf": _VALIDATED,
    "icdf": "(self, {first}): return formula({arguments})",
    "sample": _DRAWN,
    "rsample": _DRAWN,
    "entropy": "(self): return formula({arguments})",
    "enumerate_support": "(self, expand=True): return self._enumerated(formula({arguments}), expand)",
}
_PROPERTY = "(self): return formula({arguments})"


def _fact(owner: type, name: str, formula: Callable[..., Any]) -> Any:
    """The method or the property of a class that a formula states."""
    source = _METHODS.get(name, _PROPERTY)
    names = formula.__code__.co_varnames[: formula.__code__.co_argcount]
    own = names[: int("{first}" in source)]
    arguments = ", ".join([*own, *(f"self.{attribute}" for attribute in names[len(own) :])])
    source = source.format(first="".join(own), arguments=arguments)
    method = compiled(owner, name, source, formula=formula, NO_SHAPE=NO_SHAPE)
    if name not in _METHODS:
        return property(method)
    method.__annotations__ = getattr(Distribution, name).__annotations__
    return no_grad()(method) if name == "sample" else method


@dataclass_transform()
class ParametricDistribution(Distribution):
    """The base of parametric families: a subclass declares its parameters and its formulas."""

    # The constraint of each parameter, and the default values, with those of base classes.
    _parameters: ClassVar[dict[str, Constraint]] = {}
    _defaults: ClassVar[dict[str, Any]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        own = vars(cls)
        declared = {
            name: get_args(kind)[1]
            for name, kind in get_annotations(cls, eval_str="_formulas" in own).items()
            if get_origin(kind) is Annotated and get_args(kind)[0] is FamilyParameter
        }
        cls._parameters = {**cls._parameters, **declared}
        cls._defaults = {**cls._defaults, **{name: own[name] for name in declared if name in own}}
        if declared and "arg_constraints" not in own:
            cls.arg_constraints = declared
        if "__init__" not in own and (declared or hasattr(cls.__init__, "is_derived")):
            kinds = dict.fromkeys(cls._parameters, Tensor | float)
            kinds |= {name: Tensor | float | None for name, value in cls._defaults.items() if value is None}
            cls.__init__ = constructor(
                cls, [*cls._parameters, "validate_args"], {**cls._defaults, "validate_args": None}, kinds
            )
        for name in declared:
            if name in own:
                delattr(cls, name)
        if "has_rsample" not in own:
            recipe = ParametricDistribution.rsample
            cls.has_rsample = cls.rsample is not recipe or cls.icdf is not Distribution.icdf
        if "has_enumerate_support" not in own:
            cls.has_enumerate_support = cls.enumerate_support is not Distribution.enumerate_support

    def _set(self, validate_args: bool | None, **parameters: Any) -> None:
        """Sets the parameters, numbers or tensors, broadcast to one shape: that of the batch."""
        values = broadcast_all(*parameters.values())
        self.__dict__.update(zip(parameters, values, strict=True))
        Distribution.__init__(self, values[0].shape, validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        parameters = {}
        for name, constraint in self._parameters.items():
            value = self.__dict__.get(name)
            if value is not None:
                parameters[name] = value.expand(*batch_shape, *value.shape[value.ndim - constraint.event_dim :])
        return self._copy(batch_shape, **parameters)

    def _enumerated(self, values: Tensor, expand: bool) -> Tensor:
        values = values.reshape(-1, *[1] * len(self._batch_shape))
        return values.expand(-1, *self._batch_shape) if expand else values

    def rsample(self, sample_shape: Sequence[int] = NO_SHAPE) -> Tensor:
        if not self.has_rsample:
            raise self._missing("rsample")
        dtype = getattr(self, next(iter(self._parameters))).dtype
        return self.icdf(gt.rand(self._extended_shape(sample_shape), dtype=dtype))


class Standard(NamedTuple):
    """The facts of the variable z of a location-scale family `loc + scale * z`."""

    mean: float
    mode: float
    variance: float
    entropy: float
    log_prob: Callable[[Tensor], Tensor]
    cdf: Callable[[Tensor], Tensor]
    icdf: Callable[[Tensor], Tensor]
    # Samples of a shape and a dtype; without it, they are the quantiles of uniform numbers.
    draw: Callable[[tuple[int, ...], Any], Tensor] | None = None


class LocationScale(ParametricDistribution):
    """The base of location-scale families: a subclass states the facts of its standard variable."""

    loc: Real
    scale: Positive
    support = constraints.real
    _standard: ClassVar[Standard]

    @property
    def mean(self) -> Tensor:
        return self._located(self._standard.mean)

    @property
    def mode(self) -> Tensor:
        return self._located(self._standard.mode)

    @property
    def stddev(self) -> Tensor:
        return self.scale if self._standard.variance == 1 else self.variance.sqrt()

    @property
    def variance(self) -> Tensor:
        z = self._standard.variance
        return self.scale.square() * z if math.isfinite(z) else gt.full_like(self.scale, z)

    def _located(self, z: float) -> Tensor:
        if z == 0:
            return self.loc
        return self.loc + self.scale * z if math.isfinite(z) else gt.full_like(self.loc, z)

    def _standardized(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return (value - self.loc) / self.scale

    def rsample(self, sample_shape: Sequence[int] = NO_SHAPE) -> Tensor:
        shape, dtype, standard = self._extended_shape(sample_shape), self.loc.dtype, self._standard
        z = standard.draw(shape, dtype) if standard.draw else standard.icdf(gt.rand(shape, dtype=dtype))
        return gt.addcmul(self.loc, z, self.scale)

    def log_prob(self, value: Tensor) -> Tensor:
        return self._standard.log_prob(self._standardized(value)) - self.scale.log()

    def cdf(self, value: Tensor) -> Tensor:
        return self._standard.cdf(self._standardized(value))

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc + self.scale * self._standard.icdf(value)

    def entropy(self) -> Tensor:
        return self.scale.log() + self._standard.entropy


class ProbsOrLogits(ParametricDistribution):
    """The base of families given by either `probs` or `logits`, of which the other is computed when it is read."""

    _is_binary: ClassVar[bool] = True

    def _set(self, validate_args: bool | None, **parameters: Any) -> None:
        given = {name: value for name, value in parameters.items() if value is not None}
        if ("probs" in given) == ("logits" in given):
            raise ValueError("Either `probs` or `logits` must be specified, but not both.")
        self._given = "probs" if "probs" in given else "logits"
        super()._set(validate_args, **given)

    @lazy_property
    def probs(self) -> Tensor:
        """The probability of 1 or of a success; for categories the normalized probabilities, along the last axis."""
        return logits_to_probs(self.logits, self._is_binary)

    @lazy_property
    def logits(self) -> Tensor:
        """The log odds, or for categories normalized log probabilities; `probs` are clamped to the machine epsilon."""
        return probs_to_logits(self.probs, self._is_binary)

    @property
    def param_shape(self) -> gt.Size:
        """The shape of the parameter that was given, `probs` or `logits`."""
        return self.__dict__[self._given].shape


class ExponentialFamily(Distribution):
    """A base class for a program's own distributions of an exponential family; GT's do not derive from it.

    A density of such a family is exp(t(x) · θ - F(θ) + k(x)): θ natural parameters, F the log normalizer.
    """

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        raise NotImplementedError

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        raise NotImplementedError

    @property
    def _mean_carrier_measure(self) -> float:
        raise NotImplementedError
