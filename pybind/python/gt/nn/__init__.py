"""Neural networks: modules, layers, losses, starting values.

Written on tensor operations alone; knows neither the tape nor the daemon. Start at `module.py`.
"""

from gt import _absent
from gt.nn import functional, init, utils
from gt.nn.activation import ELU, LeakyReLU, LogSigmoid, SiLU, Softplus
from gt.nn.containers import ModuleDict, ModuleList, ParameterDict, ParameterList, Sequential
from gt.nn.embedding import Embedding
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
    ReLU,
    Sigmoid,
    Softmax,
    Tanh,
    Unflatten,
)
from gt.nn.loss import (
    BCELoss,
    BCEWithLogitsLoss,
    CrossEntropyLoss,
    HuberLoss,
    KLDivLoss,
    L1Loss,
    MSELoss,
    NLLLoss,
    SmoothL1Loss,
)
from gt.nn.module import Module
from gt.nn.normalization import BatchNorm1d, BatchNorm2d, LayerNorm
from gt.nn.parameter import Parameter
from gt.nn.recurrent import GRU, LSTM, RNN, GRUCell, LSTMCell, RNNCell
from gt.nn.transformer import (
    MultiheadAttention,
    Transformer,
    TransformerDecoder,
    TransformerDecoderLayer,
    TransformerEncoder,
    TransformerEncoderLayer,
)
from gt.optim import SGD, Adam

__all__ = [
    "ELU",
    "GELU",
    "GRU",
    "LSTM",
    "RNN",
    "SGD",
    "Adam",
    "BCELoss",
    "BCEWithLogitsLoss",
    "BatchNorm1d",
    "BatchNorm2d",
    "CrossEntropyLoss",
    "Dropout",
    "Embedding",
    "Flatten",
    "GRUCell",
    "HuberLoss",
    "Identity",
    "KLDivLoss",
    "L1Loss",
    "LSTMCell",
    "LayerNorm",
    "LeakyReLU",
    "Linear",
    "LogSigmoid",
    "LogSoftmax",
    "MSELoss",
    "Module",
    "ModuleDict",
    "ModuleList",
    "MultiheadAttention",
    "NLLLoss",
    "Parameter",
    "ParameterDict",
    "ParameterList",
    "RNNCell",
    "ReLU",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "SmoothL1Loss",
    "Softmax",
    "Softplus",
    "Tanh",
    "Transformer",
    "TransformerDecoder",
    "TransformerDecoderLayer",
    "TransformerEncoder",
    "TransformerEncoderLayer",
    "Unflatten",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cross_entropy",
    "cross_entropy_loss",
    "functional",
    "init",
    "l1_loss",
    "mse_loss",
    "nll_loss",
    "utils",
]

__getattr__ = _absent.getter(__name__)
