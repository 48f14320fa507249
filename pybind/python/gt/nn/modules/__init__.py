"""The layers under PyTorch's import paths, such as `nn.modules.batchnorm._BatchNorm`.

This one module stands for each of PyTorch's files; `utils` alone is a module of its own.
"""

# ruff: noqa: F401, F403 (the imports are names that the package exports)
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
    multihead_attention,
    normalization,
    padding,
    parameter,
    pooling,
    recurrent,
    transformer,
    vision,
)
from gt.nn._hooks import (
    register_module_backward_hook,
    register_module_buffer_registration_hook,
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_full_backward_hook,
    register_module_full_backward_pre_hook,
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)
from gt.nn._state_dict import _IncompatibleKeys
from gt.nn.activation import *
from gt.nn.adaptive_softmax import *
from gt.nn.containers import *
from gt.nn.convolution import *
from gt.nn.convolution import _ConvNd
from gt.nn.distance import *
from gt.nn.dropout import *
from gt.nn.dropout import Dropout as _DropoutNd
from gt.nn.embedding import *
from gt.nn.layers import *
from gt.nn.layers import NonDynamicallyQuantizableLinear
from gt.nn.lazy import *
from gt.nn.lazy import LazyModuleMixin
from gt.nn.loss import *
from gt.nn.loss import _Loss, _WeightedLoss
from gt.nn.module import *
from gt.nn.modules import utils
from gt.nn.multihead_attention import *
from gt.nn.normalization import *
from gt.nn.normalization import _BatchNorm, _InstanceNorm, _NormBase
from gt.nn.padding import *
from gt.nn.parallel import DataParallel
from gt.nn.parameter import *
from gt.nn.pooling import *
from gt.nn.recurrent import *
from gt.nn.transformer import *
from gt.nn.transformer import _get_activation_fn, _get_clones
from gt.nn.vision import *

__all__: list[str] = []
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
__all__ += multihead_attention.__all__
__all__ += normalization.__all__
__all__ += padding.__all__
__all__ += parameter.__all__
__all__ += ["DataParallel"]
__all__ += pooling.__all__
__all__ += recurrent.__all__
__all__ += transformer.__all__
__all__ += vision.__all__

# The names of PyTorch's files in torch/nn/modules.
FILES = """
    activation adaptive batchnorm channelshuffle container conv distance dropout flatten fold instancenorm lazy linear
    linear_cross_entropy loss module normalization padding pixelshuffle pooling rnn sparse transformer upsampling
""".split()
globals().update(dict.fromkeys(FILES, sys.modules[__name__]))

# The end of the name of a module's own state in state dicts: see `Module.get_extra_state`.
_EXTRA_STATE_KEY_SUFFIX = "_extra_state"

__getattr__ = _absent.getter(__name__)
