"""Optimizers and learning-rate schedulers: they update parameters by the gradients that `backward()` left in `.grad`.

Optimizers know tensors alone, not modules. Start at `optimizer.py`.
"""

from gt import _absent
from gt.optim import lr_scheduler
from gt.optim.adafactor import Adafactor
from gt.optim.adam import Adam, Adamax, AdamW, NAdam, RAdam
from gt.optim.adaptive_rates import Adadelta, Adagrad, RMSprop
from gt.optim.asgd import ASGD
from gt.optim.lbfgs import LBFGS
from gt.optim.muon import Muon
from gt.optim.optimizer import Optimizer
from gt.optim.rprop import Rprop
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
