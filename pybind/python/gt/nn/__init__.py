"""Neural networks: modules, layers, losses and parameter initialization.

Everything here is composed of tensor operations; nothing here knows the autograd tape or the daemon. Start at
`module.py`.
"""

from gt import _absent
from gt.nn import functional, init, modules, parallel, utils
from gt.nn.functional import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cross_entropy,
    l1_loss,
    mse_loss,
    nll_loss,
)
from gt.nn.modules import *  # noqa: F403
from gt.optim import SGD, Adam

cross_entropy_loss = cross_entropy

__all__ = [
    "SGD",
    "Adam",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cross_entropy",
    "cross_entropy_loss",
    "functional",
    "init",
    "l1_loss",
    "modules",
    "mse_loss",
    "nll_loss",
    "parallel",
    "utils",
]
__all__ += modules.__all__

__getattr__ = _absent.getter(__name__)
