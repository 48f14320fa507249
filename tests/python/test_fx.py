"""`torch.fx`: programs become graphs, which are changed, printed and executed."""

from __future__ import annotations

import copy
import io
import operator
from typing import Any

import pytest

import gt
from gt import fx, nn
from gt.fx.experimental import optimization
from gt.fx.passes.shape_prop import ShapeProp
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


class ConvNet(gt.nn.Module):
    """Convolutions, of which one is read twice, with batch normalizations and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = gt.nn.Conv2d(2, 3, 3, padding=1), gt.nn.BatchNorm2d(3)
        self.block = gt.nn.Sequential(gt.nn.Conv2d(3, 3, 1, bias=False), gt.nn.BatchNorm2d(3), gt.nn.Dropout(0.5))
        self.kept, self.after = gt.nn.Conv2d(3, 3, 1), gt.nn.BatchNorm2d(3)

    def forward(self, x: gt.Tensor) -> gt.Tensor:
        x = self.block(self.norm(self.first(x)).relu())
        y = self.kept(x)
        return self.after(y) + y


def test_batch_normalizations_are_fused_into_the_layers_before_them() -> None:
    model = ConvNet()
    for _ in range(3):
        model(gt.randn(4, 2, 5, 5))
    model.eval()
    fused: Any = optimization.fuse(model)
    x = gt.randn(2, 2, 5, 5)
    assert gt.allclose(fused(x), model(x), atol=1e-5)
    kinds = [type(module).__name__ for module in fused.modules()]
    # The normalization after the layer that is read twice stays.
    assert kinds.count("BatchNorm2d") == 1
    assert sum(isinstance(module, gt.nn.BatchNorm2d) for module in model.modules()) == 3


def test_dropout_is_removed() -> None:
    model = gt.nn.Sequential(gt.nn.Linear(3, 3), gt.nn.Dropout(0.9), gt.nn.ReLU())
    x = gt.randn(2, 3)
    assert optimization.remove_dropout(model)(x).tolist() == model.eval()(x).tolist()


def test_shapes_are_noted_at_nodes() -> None:
    traced = fx.symbolic_trace(lambda x: (x @ x.T).split(1))
    result = ShapeProp(traced).propagate(gt.ones(2, 3, dtype=gt.float64))
    assert [part.shape for part in result] == [(1, 2), (1, 2)]
    metas = {node.name: node.meta["tensor_meta"] for node in traced.graph.nodes}
    assert (metas["x"].shape, metas["x"].dtype, metas["x"].stride) == ((2, 3), gt.float64, (3, 1))
    assert metas["matmul"].shape == (2, 2)
    assert [meta.shape for meta in metas["split"]] == [(1, 2), (1, 2)]


def test_patterns_are_replaced() -> None:
    traced = fx.symbolic_trace(lambda x, y: gt.relu(gt.add(x, y)) * gt.relu(gt.add(y, y)) - gt.relu(x))
    matches = fx.replace_pattern(traced, lambda a, b: gt.relu(gt.add(a, b)), lambda a, b: gt.maximum(a, b))
    assert [match.anchor.target for match in matches] == [gt.relu, gt.relu]
    assert traced(gt.tensor(2.0), gt.tensor(3.0)).item() == 3 * 3 - 2
    traced.graph.lint()
    # A sum that is read outside of the part has to stay.
    read_twice = fx.symbolic_trace(lambda x: (total := gt.add(x, x)) * gt.relu(total))
    assert fx.replace_pattern(read_twice, lambda a, b: gt.relu(gt.add(a, b)), lambda a, b: gt.maximum(a, b)) == []
    with pytest.raises(ValueError, match="the pattern takes 2 arguments and its replacement 1"):
        fx.replace_pattern(traced, lambda a, b: gt.add(a, b), lambda a: -a)


def test_einsum_of_a_list_is_traced_with_its_operands() -> None:
    traced = fx.symbolic_trace(lambda x, y: gt.einsum("ij,jk->ik", [x, y]))
    (product,) = traced.graph.find_nodes(op="call_function", target=gt.einsum)
    assert [str(arg) for arg in product.args] == ["ij,jk->ik", "x", "y"]
    assert traced(gt.ones(2, 3), gt.ones(3, 1)).tolist() == [[3], [3]]
