"""Probability distributions: sampling, log probabilities, entropies and divergences, differentiable in the parameters.

Start at `distribution.py`. Parameters and values are validated as in PyTorch, which waits for their values;
`validate_args=False`, or `Distribution.set_default_validate_args(False)`, turns that off.
"""

import sys

from gt import _absent
from gt.distributions import composed, constraints, continuous, discrete, multivariate, transforms
from gt.distributions.composed import *  # noqa: F403
from gt.distributions.constraint_registry import biject_to, transform_to
from gt.distributions.continuous import *  # noqa: F403
from gt.distributions.discrete import *  # noqa: F403
from gt.distributions.distribution import Distribution, ExponentialFamily
from gt.distributions.kl import kl_divergence, register_kl
from gt.distributions.multivariate import *  # noqa: F403
from gt.distributions.transforms import *  # noqa: F403

__all__ = [
    "Distribution",
    "ExponentialFamily",
    "biject_to",
    "constraints",
    "kl_divergence",
    "register_kl",
    "transform_to",
    "transforms",
]
__all__ += composed.__all__
__all__ += continuous.__all__
__all__ += discrete.__all__
__all__ += multivariate.__all__
__all__ += transforms.__all__

# PyTorch's files in torch/distributions for which this package stands, beside those it has itself.
FILES = """
    bernoulli beta binomial categorical cauchy chi2 continuous_bernoulli dirichlet exp_family exponential
    fishersnedecor gamma generalized_pareto geometric gumbel half_cauchy half_normal independent inverse_gamma
    kumaraswamy laplace lkj_cholesky log_normal logistic_normal lowrank_multivariate_normal mixture_same_family
    multinomial multivariate_normal negative_binomial normal one_hot_categorical pareto poisson relaxed_bernoulli
    relaxed_categorical studentT transformed_distribution uniform von_mises weibull wishart
""".split()
globals().update(dict.fromkeys(FILES, sys.modules[__name__]))

__getattr__ = _absent.getter(__name__)
