"""`torch.fx`: programs become graphs, which are changed, printed and executed."""

from __future__ import annotations

import copy
import io
import operator
from typing import Any

import pytest

import gt
from gt import fx, nn
from gt.fx.proxy import TraceError


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.shift = nn.Parameter(gt.ones(4))
        self.register_buffer("scale", gt.full((4,), 2.0))

    def forward(self, x: Any, factor: float = 3.0) -> Any:
        left, right = (self.linear(x) + self.shift).chunk(2, 1)
        y = gt.cat([left, right], dim=1) * self.scale
        return {"y": y.view(y.size(0), -1) * factor, "rows": y.shape[0], "z": (1 - y)[:, 1:3] ** 2}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
        self.block = Block()

    def forward(self, x: Any) -> Any:
        return self.block(self.blocks(x))["z"]


@fx.wrap
def kept_whole(x: Any) -> Any:
    return x + 1 if x.sum() > 0 else x - 1


def test_a_graph_does_what_the_program_does() -> None:
    block, x = Block(), gt.rand(2, 4)
    traced = fx.symbolic_trace(block)
    expected, found = block(x), traced(x)
    for name in ("y", "z"):
        assert found[name].tolist() == expected[name].tolist()
    assert found["rows"] == 2
    assert traced(x, factor=1.0)["y"].tolist() != expected["y"].tolist()
    found["y"].sum().backward()
    assert block.linear.weight.grad is not None
    assert [node.op for node in traced.graph.nodes][:4] == ["placeholder", "placeholder", "call_module", "get_attr"]
    assert fx.Interpreter(traced).run(x, 3.0)["z"].tolist() == expected["z"].tolist()
    traced.graph.lint()
    assert "linear = self.linear(x)" in traced.code
    assert "%linear" in str(traced.graph)


def test_modules_of_one_s_own_are_traced_through() -> None:
    net, x = Net(), gt.rand(2, 3)
    traced = fx.symbolic_trace(net)
    assert traced(x).tolist() == net(x).tolist()
    targets = [node.target for node in traced.graph.nodes if node.op == "call_module"]
    assert targets == ["blocks.0", "blocks.1", "block.linear"]
    assert sorted(traced.state_dict()) == ["block.linear.bias", "block.linear.weight", "block.scale", "block.shift",
                                           "blocks.0.bias", "blocks.0.weight"]  # fmt: skip

    class Coarse(fx.Tracer):
        def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
            return isinstance(m, Block) or super().is_leaf_module(m, module_qualified_name)

    graph = Coarse().trace(net)
    assert [node.target for node in graph.nodes if node.op == "call_module"][-1] == "block"
    # The classes that were changed for the trace are as before.
    assert net(x).shape == (2, 2)


def test_functions_that_are_kept_whole() -> None:
    traced = fx.symbolic_trace(lambda x: kept_whole(x) * 2)
    assert [node.op for node in traced.graph.nodes] == ["placeholder", "call_function", "call_function", "output"]
    assert traced(gt.ones(1)).item() == 4
    assert traced(-gt.ones(1)).item() == -4
    assert kept_whole(gt.ones(1)).item() == 2


def test_programs_that_cannot_be_traced() -> None:
    for program in (
        lambda x: x if x.sum() > 0 else -x,
        lambda x: sum(row for row in x),
        lambda x: [1, 2, 3][x],
    ):
        with pytest.raises(TraceError):
            fx.symbolic_trace(program)
    with pytest.raises(RuntimeError, match="'len' is not supported"):
        fx.symbolic_trace(lambda x: len(x))
    with pytest.raises(NotImplementedError, match="top level"):
        fx.wrap("anything")


def test_arguments_with_values() -> None:
    def program(x: Any, negate: bool, *, by: float = 2.0) -> Any:
        return -x * by if negate else x * by

    traced = fx.symbolic_trace(program, concrete_args={"negate": True})
    assert traced(gt.ones(1)).item() == -2
    assert traced(gt.ones(1), 5.0).item() == -5


def test_graphs_are_changed() -> None:
    traced = fx.symbolic_trace(lambda x: gt.relu(x + 1) * 2)
    for node in traced.graph.nodes:
        if node.target is gt.relu:
            with traced.graph.inserting_after(node):
                new = traced.graph.call_function(gt.neg, node.args)
            node.replace_all_uses_with(new)
            with pytest.raises(RuntimeError, match="still had 1 users"):
                traced.graph.erase_node(new)
            traced.graph.erase_node(node)
    traced.recompile()
    assert traced(gt.ones(1)).item() == -4
    unused = next(node for node in traced.graph.nodes if node.op == "placeholder")
    with traced.graph.inserting_before(traced.graph.output_node()):
        traced.graph.call_method("exp", (unused,))
    count = len(traced.graph.nodes)
    assert traced.graph.eliminate_dead_code()
    assert len(traced.graph.nodes) == count - 1
    assert next(node.name for node in reversed(traced.graph.nodes)) == "output"
    (adding,) = traced.graph.find_nodes(op="call_function", target=operator.add)
    adding.update_arg(1, 10)
    traced.recompile()
    assert traced(gt.ones(1)).item() == -22


def test_graphs_are_copied_and_saved() -> None:
    traced = fx.symbolic_trace(Net())
    x = gt.rand(1, 3)
    twin = copy.deepcopy(traced)
    file = io.BytesIO()
    gt.save(traced, file)
    file.seek(0)
    loaded = gt.load(file, weights_only=False)
    for other in (twin, loaded):
        assert other(x).tolist() == traced(x).tolist()
    with gt.no_grad():
        twin.get_parameter("blocks.0.weight").zero_()
    assert twin(x).tolist() != traced(x).tolist()
    assert [node.name for node in loaded.graph.nodes] == [node.name for node in traced.graph.nodes]


def test_transformers_make_other_graphs() -> None:
    class Squares(fx.Transformer):
        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            result = super().call_function(target, args, kwargs)
            return result * result if target is gt.exp else result

    traced = fx.symbolic_trace(lambda x: gt.exp(x) + 1)
    assert Squares(traced).transform()(gt.zeros(1) + gt.log(gt.tensor(3.0))).item() == pytest.approx(10)
