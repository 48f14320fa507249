"""Neural networks: modules, layers, losses, starting values.

Written on tensor operations alone; knows neither the tape nor the daemon. Start at `module.py`.
"""

from gt.nn import functional, init
from gt.nn.functional import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cross_entropy,
    cross_entropy_loss,
    l1_loss,
    mse_loss,
    nll_loss,
)
from gt.nn.layers import (
    GELU,
    Dropout,
    Flatten,
    Identity,
    Linear,
    LogSoftmax,
    ModuleList,
    ReLU,
    Sequential,
    Sigmoid,
    Softmax,
    Tanh,
)
from gt.nn.loss import BCELoss, BCEWithLogitsLoss, CrossEntropyLoss, L1Loss, MSELoss, NLLLoss
from gt.nn.module import Module
from gt.nn.parameter import Parameter
from gt.optim import SGD, Adam

__all__ = [
    "GELU",
    "SGD",
    "Adam",
    "BCELoss",
    "BCEWithLogitsLoss",
    "CrossEntropyLoss",
    "Dropout",
    "Flatten",
    "Identity",
    "L1Loss",
    "Linear",
    "LogSoftmax",
    "MSELoss",
    "Module",
    "ModuleList",
    "NLLLoss",
    "Parameter",
    "ReLU",
    "Sequential",
    "Sigmoid",
    "Softmax",
    "Tanh",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cross_entropy",
    "cross_entropy_loss",
    "functional",
    "init",
    "l1_loss",
    "mse_loss",
    "nll_loss",
]
