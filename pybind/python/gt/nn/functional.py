"""The functions behind the layers of `gt.nn`, under PyTorch's names: import as `import gt.nn.functional as F`.

Most are declared in the crate `functions`. Each is composed of tensor operations, so autograd differentiates it.
"""

from __future__ import annotations

from gt import _absent
from gt._functions import nn_functional as _declared
from gt._functions.nn_functional import *  # noqa: F403
from gt.nn.grouped import grouped_mm
from gt.nn.loss import triplet_margin_with_distance_loss
from gt.nn.multihead_attention import multi_head_attention_forward
from gt.nn.time_first import conv_tbc

__all__ = [
    *_declared.__all__,
    "conv_tbc",
    "grouped_mm",
    "multi_head_attention_forward",
    "triplet_margin_with_distance_loss",
]

__getattr__ = _absent.getter(__name__)
