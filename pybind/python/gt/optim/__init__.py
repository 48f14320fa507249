"""Optimizers: they change parameters by what `backward()` left in their `.grad`.

Knows tensors alone, not modules. Start at `optimizer.py`.
"""

from gt import _absent
from gt.optim import lr_scheduler
from gt.optim.adam import Adam, Adamax, AdamW, NAdam, RAdam
from gt.optim.adaptive_rates import Adadelta, Adagrad, RMSprop
from gt.optim.full_batch import ASGD, LBFGS, Rprop
from gt.optim.matrix_optimizers import Adafactor, Muon
from gt.optim.optimizer import Optimizer
from gt.optim.sgd import SGD

__all__ = [
    "ASGD",
    "LBFGS",
    "SGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Muon",
    "NAdam",
    "Optimizer",
    "RAdam",
    "RMSprop",
    "Rprop",
    "lr_scheduler",
]

__getattr__ = _absent.getter(__name__)
