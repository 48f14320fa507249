"""The layers under PyTorch's import paths, such as `nn.modules.batchnorm._BatchNorm`.

This one module stands for each of PyTorch's files; `utils` alone is a module of its own.
"""

import sys

from gt import _absent
from gt.nn import (
    activation,
    adaptive_softmax,
    containers,
    convolution,
    distance,
    dropout,
    embedding,
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
    vision,
)
from gt.nn.convolution import _ConvNd
from gt.nn.dropout import Dropout as _DropoutNd
from gt.nn.lazy import LazyModuleMixin
from gt.nn.loss import _Loss, _WeightedLoss
from gt.nn.modules import utils
from gt.nn.normalization import _BatchNorm, _InstanceNorm, _NormBase
from gt.nn.transformer import _get_activation_fn, _get_clones

# The names of PyTorch's files in torch/nn/modules.
FILES = """
    activation adaptive batchnorm channelshuffle container conv distance dropout flatten fold instancenorm lazy linear
    linear_cross_entropy loss module normalization padding pixelshuffle pooling rnn sparse transformer upsampling
""".split()

_layers = {
    name: value
    for file in (
        activation,
        adaptive_softmax,
        containers,
        convolution,
        distance,
        dropout,
        embedding,
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
        vision,
    )
    for name, value in vars(file).items()
    if isinstance(value, type) and value.__module__ == file.__name__ and not name.startswith("_")
}
globals().update({**_layers, **dict.fromkeys(FILES, sys.modules[__name__])})

__all__ = [
    "LazyModuleMixin",
    "_BatchNorm",
    "_ConvNd",
    "_DropoutNd",
    "_InstanceNorm",
    "_Loss",
    "_NormBase",
    "_WeightedLoss",
    "_get_activation_fn",
    "_get_clones",
    "utils",
    *_layers,
]

__getattr__ = _absent.getter(__name__)
