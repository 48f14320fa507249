"""Optimizers: they change parameters by what `backward()` left in their `.grad`.

Knows tensors alone, not modules. Start at `optimizer.py`.
"""

from gt import _absent
from gt.optim import lr_scheduler
from gt.optim.adam import Adam, AdamW
from gt.optim.adaptive import Adadelta, Adagrad, RMSprop
from gt.optim.optimizer import Optimizer
from gt.optim.sgd import SGD

__all__ = ["SGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Optimizer", "RMSprop", "lr_scheduler"]

__getattr__ = _absent.getter(__name__)
