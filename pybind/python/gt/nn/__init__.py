"""Neural networks: modules, layers, losses and parameter initialization.

Everything here is composed of tensor operations; nothing here knows the autograd tape or the daemon. Start at
`module.py`.
"""

from gt import _absent
from gt.nn import (
    activation,
    adaptive_softmax,
    containers,
    convolution,
    distance,
    dropout,
    embedding,
    functional,
    init,
    layers,
    lazy,
    loss,
    module,
    normalization,
    padding,
    parallel,
    parameter,
    pooling,
    recurrent,
    transformer,
    utils,
    vision,
)
from gt.nn.activation import *  # noqa: F403
from gt.nn.adaptive_softmax import *  # noqa: F403
from gt.nn.containers import *  # noqa: F403
from gt.nn.convolution import *  # noqa: F403
from gt.nn.distance import *  # noqa: F403
from gt.nn.dropout import *  # noqa: F403
from gt.nn.embedding import *  # noqa: F403
from gt.nn.functional import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cross_entropy,
    l1_loss,
    mse_loss,
    nll_loss,
)
from gt.nn.layers import *  # noqa: F403
from gt.nn.lazy import *  # noqa: F403
from gt.nn.loss import *  # noqa: F403
from gt.nn.module import *  # noqa: F403
from gt.nn.normalization import *  # noqa: F403
from gt.nn.padding import *  # noqa: F403
from gt.nn.parallel import *  # noqa: F403
from gt.nn.parameter import *  # noqa: F403
from gt.nn.pooling import *  # noqa: F403
from gt.nn.recurrent import *  # noqa: F403
from gt.nn.transformer import *  # noqa: F403
from gt.nn.vision import *  # noqa: F403
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
__all__ += activation.__all__
__all__ += adaptive_softmax.__all__
__all__ += containers.__all__
__all__ += convolution.__all__
__all__ += distance.__all__
__all__ += dropout.__all__
__all__ += embedding.__all__
__all__ += layers.__all__
__all__ += lazy.__all__
__all__ += loss.__all__
__all__ += module.__all__
__all__ += normalization.__all__
__all__ += padding.__all__
__all__ += parallel.__all__
__all__ += parameter.__all__
__all__ += pooling.__all__
__all__ += recurrent.__all__
__all__ += transformer.__all__
__all__ += vision.__all__

__getattr__ = _absent.getter(__name__)

# `modules` reads the names above, so it is imported last.
from gt.nn import modules  # noqa: E402
