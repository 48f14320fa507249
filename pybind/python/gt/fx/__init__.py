"""`torch.fx`: graphs of programs, made by running them once with proxies, changed, and executed again.

`node.py` and `graph.py` have the graph, `proxy.py` and `_symbolic_trace.py` make it of a program, `graph_module.py` and
`interpreter.py` execute it.
"""

from gt import _absent
from gt.fx._symbolic_trace import ProxyableClassMeta, Tracer, symbolic_trace, wrap
from gt.fx.graph import CodeGen, Graph
from gt.fx.graph_module import GraphModule
from gt.fx.interpreter import Interpreter, Transformer
from gt.fx.node import Node, has_side_effect, map_arg
from gt.fx.proxy import Proxy
from gt.fx.subgraph_rewriter import replace_pattern

__all__ = [
    "CodeGen",
    "Graph",
    "GraphModule",
    "Interpreter",
    "Node",
    "Proxy",
    "ProxyableClassMeta",
    "Tracer",
    "Transformer",
    "has_side_effect",
    "map_arg",
    "replace_pattern",
    "symbolic_trace",
    "wrap",
]

__getattr__ = _absent.getter(__name__)
