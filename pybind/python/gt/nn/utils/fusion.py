"""Fusion of a layer with the batch normalization after it into one layer, for evaluation."""

from __future__ import annotations

import copy

from gt import _absent
from gt import _core as gt
from gt._gt import Tensor
from gt.nn.module import Module
from gt.nn.parameter import Parameter

__getattr__ = _absent.getter(__name__)

__all__ = ["fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights"]


def fuse_conv_bn_weights(
    conv_w: Tensor,
    conv_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
    transpose: bool = False,
) -> tuple[Tensor, Tensor]:
    """The weight and bias of a convolution fused with the batch normalization after it.

    Args:
        conv_w: The convolution's weight.
        conv_b: Its bias.
        bn_rm: The running mean.
        bn_rv: The running variance.
        bn_eps: The batch normalization's `eps`.
        bn_w: Its weight.
        bn_b: Its bias.
        transpose: Whether the convolution is a transposed one, whose output channels are axis 1 of the weight.
    """
    bias = gt.zeros_like(bn_rm) if conv_b is None else conv_b
    scale = (bn_rv + bn_eps).rsqrt()
    scale = scale if bn_w is None else scale * bn_w
    shape = [1] * conv_w.ndim
    shape[1 if transpose else 0] = -1
    shift = (bias - bn_rm) * scale
    weight = (conv_w * scale.reshape(shape)).to(conv_w.dtype)
    made = (shift if bn_b is None else shift + bn_b).to(bias.dtype)
    return (
        Parameter(weight, conv_w.requires_grad),
        Parameter(made, conv_b.requires_grad if conv_b is not None else conv_w.requires_grad),
    )


def fuse_linear_bn_weights(
    linear_w: Tensor,
    linear_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor,
    bn_b: Tensor,
) -> tuple[Tensor, Tensor]:
    """The weight and bias of a linear layer fused with the batch normalization after it."""
    return fuse_conv_bn_weights(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b)


def _fused(layer: Module, bn: Module, transpose: bool) -> Module:
    if layer.training or bn.training:
        raise AssertionError("Fusion only for eval!")
    if bn.running_mean is None or bn.running_var is None:
        raise AssertionError("the batch normalization keeps no running mean and variance to fuse")
    made = copy.deepcopy(layer)
    statistics = (bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias)
    made.weight, made.bias = fuse_conv_bn_weights(made.weight, made.bias, *statistics, transpose)
    return made


def fuse_conv_bn_eval(conv: Module, bn: Module, transpose: bool = False) -> Module:
    """A copy of a convolution fused with the batch normalization after it; both must be in evaluation mode."""
    return _fused(conv, bn, transpose)


def fuse_linear_bn_eval(linear: Module, bn: Module) -> Module:
    """A copy of a linear layer fused with the batch normalization after it; both must be in evaluation mode."""
    if linear.out_features != bn.num_features and bn.num_features != 1:
        raise AssertionError("To fuse, linear.out_features == bn.num_features or bn.num_features == 1")
    return _fused(linear, bn, False)
