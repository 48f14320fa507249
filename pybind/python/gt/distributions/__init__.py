"""Probability distributions: sampling, log probabilities, entropies and divergences, differentiable in the parameters.

Start at `distribution.py`. Parameters and values are validated as in PyTorch, which waits for their values;
`validate_args=False`, or `Distribution.set_default_validate_args(False)`, turns that off.
"""

from gt import _absent
from gt.distributions import constraints, transforms
from gt.distributions.constraint_registry import biject_to, transform_to
from gt.distributions.continuous import Cauchy, Exponential, Gumbel, Laplace, LogNormal, Normal, Uniform
from gt.distributions.count_distributions import Binomial, Multinomial, NegativeBinomial, Poisson
from gt.distributions.discrete import Bernoulli, Categorical, Geometric, OneHotCategorical
from gt.distributions.distribution import Distribution, Independent
from gt.distributions.gamma_family import Beta, Chi2, Dirichlet, FisherSnedecor, Gamma, InverseGamma, StudentT
from gt.distributions.generalized_pareto import GeneralizedPareto
from gt.distributions.kl import kl_divergence, register_kl
from gt.distributions.lowrank_multivariate_normal import LowRankMultivariateNormal
from gt.distributions.matrix_variate import LKJCholesky, Wishart
from gt.distributions.mixture_same_family import MixtureSameFamily
from gt.distributions.multivariate_normal import MultivariateNormal
from gt.distributions.positive_support import HalfCauchy, HalfNormal, Pareto, VonMises, Weibull
from gt.distributions.relaxed import OneHotCategoricalStraightThrough, RelaxedBernoulli, RelaxedOneHotCategorical
from gt.distributions.transformed_distribution import TransformedDistribution
from gt.distributions.transforms import *  # noqa: F403 (its __all__ says what)
from gt.distributions.unit_interval import ContinuousBernoulli, Kumaraswamy, LogisticNormal

__all__ = [
    "Bernoulli",
    "Beta",
    "Binomial",
    "Categorical",
    "Cauchy",
    "Chi2",
    "ContinuousBernoulli",
    "Dirichlet",
    "Distribution",
    "Exponential",
    "FisherSnedecor",
    "Gamma",
    "GeneralizedPareto",
    "Geometric",
    "Gumbel",
    "HalfCauchy",
    "HalfNormal",
    "Independent",
    "InverseGamma",
    "Kumaraswamy",
    "LKJCholesky",
    "Laplace",
    "LogNormal",
    "LogisticNormal",
    "LowRankMultivariateNormal",
    "MixtureSameFamily",
    "Multinomial",
    "MultivariateNormal",
    "NegativeBinomial",
    "Normal",
    "OneHotCategorical",
    "OneHotCategoricalStraightThrough",
    "Pareto",
    "Poisson",
    "RelaxedBernoulli",
    "RelaxedOneHotCategorical",
    "StudentT",
    "TransformedDistribution",
    "Uniform",
    "VonMises",
    "Weibull",
    "Wishart",
    "biject_to",
    "constraints",
    "kl_divergence",
    "register_kl",
    "transform_to",
    "transforms",
    *transforms.__all__,
]

# Importing `kl_cross_family` registers its divergences.
from gt.distributions import kl_cross_family  # noqa: F401

__getattr__ = _absent.getter(__name__)
