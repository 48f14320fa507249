"""`ShapeProp` runs a graph, and notes the shape and dtype of each node's result."""

from __future__ import annotations

from typing import Any, NamedTuple

from gt import _absent
from gt._gt import Tensor
from gt.fx.interpreter import Interpreter
from gt.fx.node import Node, map_aggregate

__all__ = ["ShapeProp", "TensorMetadata"]

__getattr__ = _absent.getter(__name__)


class TensorMetadata(NamedTuple):
    """The shape and dtype of a tensor, and how its elements lie in memory."""

    shape: tuple[int, ...]
    dtype: Any
    requires_grad: bool
    stride: tuple[int, ...]
    memory_format: Any
    is_quantized: bool
    qparams: dict[str, Any]


class ShapeProp(Interpreter):
    """Runs a graph, and adds `tensor_meta` and `type` to the `meta` of each node.

    Example:
        >>> from gt.fx.passes.shape_prop import ShapeProp
        >>> traced = gt.fx.symbolic_trace(lambda x: x.sum(0))
        >>> _ = ShapeProp(traced).propagate(gt.ones(2, 3))
        >>> [tuple(node.meta["tensor_meta"].shape) for node in traced.graph.nodes]
        [(2, 3), (3,), (3,)]
    """

    def run_node(self, n: Node) -> Any:
        """The result of a node, whose shapes it notes."""
        result = super().run_node(n)
        found = []

        def noted(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            found.append(value)
            return TensorMetadata(value.shape, value.dtype, value.requires_grad, tuple(value.stride()), None, False, {})

        meta = map_aggregate(result, noted)
        if found:
            n.meta["tensor_meta"] = meta
        n.meta["type"] = type(result)
        return result

    def propagate(self, *args: Any) -> Any:
        """Runs the graph for arguments, and returns its result."""
        return self.run(*args)
