"""Probability distributions: what is drawn at random, how probable it is, and gradients through both.

Start at `distribution.py`. Parameters and values are checked as PyTorch checks them, which waits for them:
`validate_args=False`, or `Distribution.set_default_validate_args(False)`, leaves that out.
"""

from gt import _absent
from gt.distributions import constraints
from gt.distributions.continuous import Cauchy, Exponential, Gumbel, Laplace, LogNormal, Normal, Uniform
from gt.distributions.discrete import Bernoulli, Categorical, Geometric, OneHotCategorical
from gt.distributions.distribution import Distribution, Independent
from gt.distributions.kl import kl_divergence, register_kl
from gt.distributions.multivariate_normal import MultivariateNormal

__all__ = [
    "Bernoulli",
    "Categorical",
    "Cauchy",
    "Distribution",
    "Exponential",
    "Geometric",
    "Gumbel",
    "Independent",
    "Laplace",
    "LogNormal",
    "MultivariateNormal",
    "Normal",
    "OneHotCategorical",
    "Uniform",
    "constraints",
    "kl_divergence",
    "register_kl",
]

__getattr__ = _absent.getter(__name__)
