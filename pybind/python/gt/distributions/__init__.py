"""Probability distributions: what is drawn at random, how probable it is, and gradients through both.

Start at `distribution.py`. Parameters and values are checked as PyTorch checks them, which waits for them:
`validate_args=False`, or `Distribution.set_default_validate_args(False)`, leaves that out.
"""

from gt import _absent
from gt.distributions import constraints, transforms
from gt.distributions.continuous import Cauchy, Exponential, Gumbel, Laplace, LogNormal, Normal, Uniform
from gt.distributions.counts import Binomial, Multinomial, NegativeBinomial, Poisson
from gt.distributions.discrete import Bernoulli, Categorical, Geometric, OneHotCategorical
from gt.distributions.distribution import Distribution, Independent
from gt.distributions.gamma import Beta, Chi2, Dirichlet, FisherSnedecor, Gamma, InverseGamma, StudentT
from gt.distributions.kl import kl_divergence, register_kl
from gt.distributions.mixture_same_family import MixtureSameFamily
from gt.distributions.multivariate_normal import MultivariateNormal
from gt.distributions.positive import HalfCauchy, HalfNormal, Pareto, VonMises, Weibull
from gt.distributions.transformed_distribution import TransformedDistribution
from gt.distributions.transforms import *  # noqa: F403 (its __all__ says what)

__all__ = [
    "Bernoulli",
    "Beta",
    "Binomial",
    "Categorical",
    "Cauchy",
    "Chi2",
    "Dirichlet",
    "Distribution",
    "Exponential",
    "FisherSnedecor",
    "Gamma",
    "Geometric",
    "Gumbel",
    "HalfCauchy",
    "HalfNormal",
    "Independent",
    "InverseGamma",
    "Laplace",
    "LogNormal",
    "MixtureSameFamily",
    "Multinomial",
    "MultivariateNormal",
    "NegativeBinomial",
    "Normal",
    "OneHotCategorical",
    "Pareto",
    "Poisson",
    "StudentT",
    "TransformedDistribution",
    "Uniform",
    "VonMises",
    "Weibull",
    "constraints",
    "kl_divergence",
    "register_kl",
    "transforms",
    *transforms.__all__,
]

__getattr__ = _absent.getter(__name__)
