"""Optimizers: they change parameters by what `backward()` left in their `.grad`.

Knows tensors alone, not modules. Start at `optimizer.py`.
"""

from gt.optim.adam import Adam
from gt.optim.optimizer import Optimizer
from gt.optim.sgd import SGD

__all__ = ["SGD", "Adam", "Optimizer"]
