"""Optimizers and learning-rate schedulers: they update parameters by the gradients that `backward()` left in `.grad`.

Optimizers know tensors alone, not modules. Start at `optimizer.py`.
"""

import sys

from gt import _absent
from gt.optim import adam, adaptive_rates, lbfgs, lr_scheduler, sgd, sparse_adam
from gt.optim.adam import *  # noqa: F403
from gt.optim.adaptive_rates import *  # noqa: F403
from gt.optim.lbfgs import *  # noqa: F403
from gt.optim.optimizer import Optimizer
from gt.optim.sgd import *  # noqa: F403
from gt.optim.sparse_adam import *  # noqa: F403

__all__ = ["Optimizer", "lr_scheduler"]
__all__ += adam.__all__
__all__ += adaptive_rates.__all__
__all__ += lbfgs.__all__
__all__ += sgd.__all__
__all__ += sparse_adam.__all__

# PyTorch's files in torch/optim for which this package stands, beside those it has itself.
FILES = "adadelta adafactor adagrad adamax adamw asgd muon nadam radam rmsprop rprop".split()
globals().update(dict.fromkeys(FILES, sys.modules[__name__]))

__getattr__ = _absent.getter(__name__)
