"""`replace_pattern` replaces parts of a graph that match another graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from gt import _absent
from gt.fx._symbolic_trace import symbolic_trace
from gt.fx.graph import Graph
from gt.fx.graph_module import GraphModule
from gt.fx.node import Node
from gt.nn.module import Module

__all__ = ["Match", "replace_pattern"]

__getattr__ = _absent.getter(__name__)


class Match(NamedTuple):
    """A part of a graph that matches a pattern."""

    # The last node of the part.
    anchor: Node
    # The node of the graph for each node of the pattern.
    nodes_map: dict[Node, Any]


def _graph(of: Callable[..., Any] | Module | Graph) -> Graph:
    if isinstance(of, Graph):
        return of
    return of.graph if isinstance(of, GraphModule) else symbolic_trace(of).graph


def _matches(pattern: Any, node: Any, found: dict[Node, Any]) -> bool:
    """Whether a value of the graph matches one of the pattern; `found` grows by the nodes that do."""
    if isinstance(pattern, Node):
        if pattern in found:
            return found[pattern] is node
        if pattern.op != "placeholder":
            if not isinstance(node, Node) or (pattern.op, pattern.target) != (node.op, node.target):
                return False
            if not _matches(pattern.args, node.args, found) or not _matches(pattern.kwargs, node.kwargs, found):
                return False
        found[pattern] = node
        return True
    if isinstance(pattern, (tuple, list)):
        same = isinstance(node, (tuple, list)) and len(pattern) == len(node)
        return same and all(_matches(a, b, found) for a, b in zip(pattern, node, strict=True))
    if isinstance(pattern, dict):
        same = isinstance(node, dict) and pattern.keys() == node.keys()
        return same and all(_matches(value, node[key], found) for key, value in pattern.items())
    return type(pattern) is type(node) and pattern == node


def replace_pattern(
    gm: GraphModule,
    pattern: Callable[..., Any] | Module | Graph,
    replacement: Callable[..., Any] | Module | Graph,
) -> list[Match]:
    """Replaces each part of a module's graph that computes what `pattern` does.

    Args:
        gm: The module, which is changed.
        pattern: The function or graph to look for, with one result.
        replacement: The function or graph to put there, with the same arguments.

    Returns:
        The replaced parts.

    Example:
        >>> traced = gt.fx.symbolic_trace(lambda x: gt.exp(gt.relu(x)))
        >>> matches = gt.fx.replace_pattern(traced, lambda y: gt.relu(y), lambda y: gt.neg(y))
        >>> len(matches), traced(gt.zeros(1)).item()
        (1, 1.0)
    """
    wanted, other = _graph(pattern), _graph(replacement)
    last = wanted.output_node().args[0]
    if not isinstance(last, Node) or last.op == "placeholder":
        raise NotImplementedError("replace_pattern: the pattern must return the result of one operation")
    arguments = [[node for node in graph.nodes if node.op == "placeholder"] for graph in (wanted, other)]
    if len(arguments[0]) != len(arguments[1]):
        first, second = map(len, arguments)
        raise ValueError(f"replace_pattern: the pattern takes {first} arguments and its replacement {second}")
    matches: list[Match] = []
    replaced: dict[Node, Node] = {}
    for anchor in list(gm.graph.nodes):
        found: dict[Node, Any] = {}
        if not _matches(last, anchor, found):
            continue
        inner = [node for key, node in found.items() if key.op not in ("placeholder", "get_attr")]
        # A result inside the part that others read cannot be removed, nor can a node of a part that was replaced.
        read = any(user not in inner for node in inner if node is not anchor for user in node.users)
        if read or any(node in replaced for node in inner):
            continue
        values: dict[Node, Any] = {new: found[old] for old, new in zip(*arguments, strict=True) if old in found}
        with gm.graph.inserting_before(anchor):
            result = gm.graph.graph_copy(other, values)
        anchor.replace_all_uses_with(result)
        for node in reversed(inner):
            replaced[node] = result
            gm.graph.erase_node(node)
        matches.append(Match(anchor, found))
    gm.recompile()
    return matches
