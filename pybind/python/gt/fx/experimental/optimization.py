"""Optimizations for inference: batch normalizations fused into the layers before them, and dropout removed."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

from gt import _absent, nn
from gt.fx._symbolic_trace import symbolic_trace
from gt.fx.graph_module import GraphModule
from gt.fx.node import Node
from gt.nn.module import Module
from gt.nn.utils import fusion

__all__ = ["fuse", "matches_module_pattern", "remove_dropout", "replace_node_module"]

__getattr__ = _absent.getter(__name__)

_FUSED = {
    (nn.Conv1d, nn.BatchNorm1d): fusion.fuse_conv_bn_eval,
    (nn.Conv2d, nn.BatchNorm2d): fusion.fuse_conv_bn_eval,
    (nn.Conv3d, nn.BatchNorm3d): fusion.fuse_conv_bn_eval,
    (nn.Linear, nn.BatchNorm1d): fusion.fuse_linear_bn_eval,
}
_DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)


def matches_module_pattern(pattern: Iterable[type], node: Node, modules: dict[str, Any]) -> bool:
    """Whether a node calls a module of the second class of a pattern on what one of the first returns."""
    if not node.args or not isinstance(node.args[0], Node):
        return False
    found = [current for current in (node.args[0], node) if current.op == "call_module"]
    kinds = [type(modules.get(str(current.target))) for current in found]
    return kinds == list(pattern)


def replace_node_module(node: Node, modules: dict[str, Any], new_module: Module) -> None:
    """Replaces the module that a node calls."""
    parent, _, name = str(node.target).rpartition(".")
    modules[str(node.target)] = new_module
    setattr(modules[parent], name, new_module)


def fuse(model: Module, inplace: bool = False, no_trace: bool = False) -> GraphModule:
    """A module in which batch normalizations are fused into the convolutions and linear layers before them.

    Args:
        model: A module in evaluation mode.
        inplace: Whether `model` itself may be changed.
        no_trace: Whether `model` is a `GraphModule` whose graph is used as it is.

    Example:
        >>> model = gt.nn.Sequential(gt.nn.Conv2d(3, 8, 3), gt.nn.BatchNorm2d(8)).eval()
        >>> from gt.fx.experimental import optimization
        >>> [type(module).__name__ for module in optimization.fuse(model).children()]
        ['Conv2d']
    """
    model = model if inplace else copy.deepcopy(model)
    traced: Any = model if no_trace and isinstance(model, GraphModule) else symbolic_trace(model)
    modules = dict(traced.named_modules())
    calls = [str(node.target) for node in traced.graph.nodes if node.op == "call_module"]
    for pattern, fused in _FUSED.items():
        for node in list(traced.graph.nodes):
            if not matches_module_pattern(pattern, node, modules):
                continue
            layer, norm = node.args[0], modules[str(node.target)]
            # A layer whose output others read, or that is called twice, has to stay as it is.
            if len(layer.users) > 1 or calls.count(str(layer.target)) > 1 or not norm.track_running_stats:
                continue
            replace_node_module(layer, modules, fused(modules[str(layer.target)], norm))
            node.replace_all_uses_with(layer)
            traced.graph.erase_node(node)
    traced.recompile()
    traced.delete_all_unused_submodules()
    return traced


def remove_dropout(model: Module) -> Module:
    """A module without the dropout layers."""
    traced = symbolic_trace(copy.deepcopy(model))
    modules = dict(traced.named_modules())
    for node in list(traced.graph.nodes):
        if node.op == "call_module" and isinstance(modules[str(node.target)], _DROPOUTS):
            node.replace_all_uses_with(node.args[0])
            traced.graph.erase_node(node)
    traced.recompile()
    traced.delete_all_unused_submodules()
    return traced
