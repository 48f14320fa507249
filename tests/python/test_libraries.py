"""Modules that libraries for PyTorch call when they are imported, and what they do in GT."""

from __future__ import annotations

import hashlib
import io
from collections import OrderedDict, namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gt
from gt import _higher_order_ops, futures, hub, jit, library, serialization
from gt.jit.annotations import BroadcastingList2
from gt.nn.attention.flex_attention import and_masks, create_block_mask, flex_attention, or_masks
from gt.utils import _python_dispatch, _pytree
from gt.utils.data import IterDataPipe, functional_datapipe
from gt.utils.flop_counter import FlopCounterMode

Pair = namedtuple("Pair", "a b")


def test_pytrees_of_registered_types() -> None:
    class Both:
        def __init__(self, x: Any, y: Any) -> None:
            self.x, self.y = x, y

    _pytree.register_pytree_node(Both, lambda both: ((both.x, both.y), None), lambda parts, _: Both(*parts))
    tree = {"both": Both(1, [2, 3]), "pair": Pair(4, (5,)), "ordered": OrderedDict(z=6)}
    leaves, spec = _pytree.tree_flatten(tree)
    assert leaves == [1, 2, 3, 4, 5, 6]
    assert (spec.num_leaves, spec.num_children, spec.is_leaf()) == (6, 3, False)
    doubled = _pytree.tree_map(lambda x: 2 * x, tree)
    assert (doubled["both"].x, doubled["both"].y) == (2, [4, 6])
    assert doubled["pair"] == Pair(8, (10,))
    assert isinstance(doubled["pair"], Pair)
    assert type(doubled["ordered"]) is OrderedDict
    assert _pytree.tree_structure(tree) == spec != _pytree.tree_structure({"both": 1})
    assert _pytree.tree_leaves([1, (2, 3)], is_leaf=lambda x: isinstance(x, tuple)) == [1, (2, 3)]


def test_datasets_with_methods() -> None:
    @functional_datapipe("doubled")
    class Doubled(IterDataPipe):
        def __init__(self, source: Any) -> None:
            self.source = source

        def __iter__(self) -> Any:
            return (2 * x for x in self.source)

    assert list(Doubled([1, 2]).doubled()) == [4, 8]
    with pytest.raises(AttributeError, match="tripled"):
        Doubled([]).tripled()


def test_operations_that_a_program_defines() -> None:
    @library.custom_op("tests::cube", mutates_args=())
    def cube(x: gt.Tensor) -> gt.Tensor:
        return x.detach() ** 3

    cube.register_fake(lambda x: gt.empty_like(x))
    cube.register_autograd(
        lambda ctx, gradient: gradient * 3 * ctx.saved_tensors[0] ** 2,
        setup_context=lambda ctx, inputs, _: ctx.save_for_backward(inputs[0]),
    )
    x = gt.tensor([1.0, 2.0], requires_grad=True)
    gt.ops.tests.cube(x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [3, 12]
    assert gt.ops.tests.cube.default(x.detach()).tolist() == [1, 8]

    own = library.Library("tests", "FRAGMENT")
    own.define("negate(Tensor x) -> Tensor")
    own.impl("negate", lambda x: -x, "CPU")
    own.impl("negate", lambda x: x.new_empty(0), "Meta")
    assert gt.ops.tests.negate(gt.ones(1)).item() == -1
    assert gt.ops.aten.add.Tensor(gt.ones(1), gt.ones(1)).item() == 2
    with pytest.raises(AttributeError, match=r"ops\.tests\.nothing"):
        _ = gt.ops.tests.nothing
    with pytest.raises(ValueError, match="namespace::name"):
        library.custom_op("cube", cube)
    with pytest.raises(OSError, match="compiled against PyTorch"):
        gt.ops.load_library("/nowhere/extension.so")


def test_futures() -> None:
    first: futures.Future[int] = futures.Future()
    second: futures.Future[int] = futures.Future()
    both = futures.collect_all([first, second])
    doubled = first.then(lambda done: 2 * done.value())
    with pytest.raises(RuntimeError, match="not done"):
        first.value()
    first.set_result(3)
    assert doubled.wait() == 6
    assert not both.done()
    second.set_exception(ValueError("lost"))
    assert both.done()
    with pytest.raises(ValueError, match="lost"):
        futures.wait_all([first, second])


def test_weights_by_url_are_kept(tmp_path: Path) -> None:
    content = io.BytesIO()
    gt.save({"w": gt.ones(2)}, content)
    digest = hashlib.sha256(content.getvalue()).hexdigest()
    source = tmp_path / f"weights-{digest[:8]}.pt"
    source.write_bytes(content.getvalue())
    cache = tmp_path / "cache"
    url = source.as_uri()
    state = hub.load_state_dict_from_url(url, str(cache), check_hash=True, progress=False)
    assert state["w"].tolist() == [1, 1]
    source.unlink()
    assert hub.load_state_dict_from_url(url, str(cache))["w"].tolist() == [1, 1]
    (tmp_path / "weights-00000000.pt").write_bytes(content.getvalue())
    with pytest.raises(RuntimeError, match="invalid hash value"):
        hub.load_state_dict_from_url((tmp_path / "weights-00000000.pt").as_uri(), str(cache), check_hash=True)
    assert [file.name for file in cache.iterdir()] == [source.name]


def test_models_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "hubconf.py").write_text(
        "dependencies = ['numpy']\ndef linear(size):\n    'A layer.'\n    import gt\n    return gt.nn.Linear(size, 1)\n"
    )
    assert hub.load(str(tmp_path), "linear", 3, source="local").in_features == 3
    with pytest.raises(RuntimeError, match="Cannot find callable conv"):
        hub.load(str(tmp_path), "conv", source="local")
    with pytest.raises(ValueError, match="owner/name"):
        hub.load("nonsense", "linear")
    with pytest.raises(FileNotFoundError, match=r"hubconf\.py"):
        hub.load(str(tmp_path / "none"), "linear", source="local")


def test_the_cache_s_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    assert hub.get_dir() == str(tmp_path / "hub")


def test_classes_that_a_checkpoint_may_contain(tmp_path: Path) -> None:
    import pickle
    import zipfile

    file = tmp_path / "x.pt"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(OrderedDict(path=Path("a")), protocol=2))
        archive.writestr("archive/version", b"3\n")
    with pytest.raises(pickle.UnpicklingError, match="add_safe_globals"):
        gt.load(file)
    with serialization.safe_globals([type(Path("a"))]):
        assert gt.load(file)["path"] == Path("a")
    assert serialization.get_safe_globals() == []


def test_scripts_are_the_functions_themselves() -> None:
    @jit._script_if_tracing
    def f(x: int) -> int:
        return x

    @jit._overload_method
    def g(x: int) -> int:
        return x

    assert (f(1), g(2)) == (1, 2)
    assert not isinstance(gt.nn.Linear(1, 1), jit.ScriptModule)
    assert jit.annotate(list[int], [1]) == [1]
    assert BroadcastingList2[int] == list[int]


def test_gradients_are_off_while_a_generator_runs() -> None:
    @gt.no_grad()
    def modes() -> Any:
        received = yield gt.is_grad_enabled()
        try:
            yield received, gt.is_grad_enabled()
        except KeyError:
            yield gt.is_grad_enabled()
        return 7

    running = modes()
    assert next(running) is False
    assert gt.is_grad_enabled()
    assert running.send(5) == (5, False)
    assert running.throw(KeyError()) is False
    with pytest.raises(StopIteration) as end:
        next(running)
    assert end.value.value == 7
    assert gt.is_grad_enabled()


def test_attention_with_a_function_of_scores() -> None:
    query, key, value = (gt.randn(2, 3, 5, 4) for _ in range(3))

    def causal(_b: Any, _h: Any, q: Any, k: Any) -> Any:
        return q >= k

    mask = create_block_mask(causal, None, None, 5, 5)
    expected = gt.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    np.testing.assert_allclose(flex_attention(query, key, value, block_mask=mask), expected, atol=1e-6)

    bias = gt.randn(3, 5, 5)
    result, sums = flex_attention(
        query, key, value, score_mod=lambda score, _b, h, q, k: score + bias[h, q, k], return_lse=True
    )
    expected = gt.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=bias)
    np.testing.assert_allclose(result, expected, atol=1e-6)
    assert sums.shape == (2, 3, 5)
    nobody = create_block_mask(and_masks(causal, lambda _b, _h, q, k: q < k), None, None, 5, 5)
    assert flex_attention(query, key, value, block_mask=nobody).abs().sum().item() == 0
    everybody = create_block_mask(or_masks(causal, lambda _b, _h, q, k: q < k), None, None, 5, 5)
    assert bool(everybody.to_dense().all())
    grouped = flex_attention(query, key[:, :1], value[:, :1], enable_gqa=True)
    assert grouped.shape == (2, 3, 5, 4)
    with pytest.raises(ValueError, match="enable_gqa"):
        flex_attention(query, key[:, :1], value[:, :1])


def test_classes_derived_from_tensor() -> None:
    class Image(gt.Tensor):
        def __init__(self, *_: Any, note: str = "") -> None:
            self.note = note

    x = gt.tensor([1, 2], dtype=gt.int32)
    image = x.as_subclass(Image)
    assert type(image) is Image
    assert isinstance(image, gt.Tensor)
    assert image.dtype == gt.int32
    assert (image + 1).tolist() == [2, 3]
    x[0] = 5
    assert image.tolist() == [5, 2]
    w = gt.ones(2, requires_grad=True)
    (w.as_subclass(Image) * 3).sum().backward()
    assert w.grad is not None
    assert w.grad.tolist() == [3, 3]
    made = gt.Tensor._make_subclass(Image, w, True)
    assert made.requires_grad
    assert made.is_leaf
    assert type(made) is Image
    assert Image([1.0, 2.0]).tolist() == [1, 2]
    with pytest.raises(TypeError, match="derives from Tensor"):
        x.as_subclass(int)  # type: ignore[type-var]


@pytest.mark.parametrize("mode", ["pointwise", "generic"])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 8])
def test_scans_of_associative_functions(mode: str, count: int) -> None:
    decay, values = gt.rand(2, count, 3), gt.rand(2, count, 3)

    def step(left: Any, right: Any) -> Any:
        return left[0] * right[0], right[0] * left[1] + right[1]

    for reverse in (False, True):
        states = _higher_order_ops.associative_scan(step, (decay, values), 1, reverse=reverse, combine_mode=mode)[1]
        order = range(count - 1, -1, -1) if reverse else range(count)
        state = gt.zeros(2, 3)
        for i in order:
            state = decay[:, i] * state + values[:, i]
            np.testing.assert_allclose(states[:, i], state, rtol=1e-5)
    with pytest.raises(ValueError, match="same size along dim 0"):
        _higher_order_ops.associative_scan(step, (gt.ones(2), gt.ones(3)), 0)


def test_scans_of_matrices_have_gradients() -> None:
    matrices = (gt.rand(5, 2, 2) + gt.eye(2)).requires_grad_()
    products = _higher_order_ops.associative_scan(lambda a, b: a @ b, matrices, 0, combine_mode="generic")
    (found,) = gt.autograd.grad(products[-1].sum(), matrices)
    product = gt.eye(2)
    for matrix in matrices:
        product = product @ matrix
    (expected,) = gt.autograd.grad(product.sum(), matrices)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_products_of_groups() -> None:
    ends = gt.tensor([2, 2, 5], dtype=gt.int32)
    rows, experts = gt.rand(6, 4, requires_grad=True), gt.rand(3, 4, 5, requires_grad=True)
    product = gt.nn.functional.grouped_mm(rows, experts, offs=ends)
    expected = gt.cat([rows[:2] @ experts[0], rows[2:5] @ experts[2], gt.zeros(1, 5)])
    np.testing.assert_allclose(product.detach(), expected.detach())
    for found, wanted in zip(
        gt.autograd.grad(product.sum(), (rows, experts)), gt.autograd.grad(expected.sum(), (rows, experts)), strict=True
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
    rows, experts = rows.detach(), experts.detach()
    columns = gt.nn.functional.grouped_mm(experts.mT, rows.T[:, :5], offs=ends)
    np.testing.assert_allclose(columns[:, 2:], experts[2].T @ rows.T[:, 2:5])
    inner = gt.nn.functional.grouped_mm(rows.T, rows, offs=ends)
    np.testing.assert_allclose(inner[2], rows[2:5].T @ rows[2:5])
    assert inner[1].abs().sum().item() == 0
    np.testing.assert_allclose(gt.nn.functional.grouped_mm(experts, experts.mT), experts @ experts.mT)
    with pytest.raises(RuntimeError, match="offsets iff input is 2d"):
        gt.nn.functional.grouped_mm(rows, experts)


def test_functions_of_lists_of_tensors() -> None:
    x = [gt.tensor([1.0, -2.0]), gt.tensor([[3.0]])]
    gt._foreach_add_(x, 1.0)
    gt._foreach_mul_(x, [2.0, 3.0])
    assert [t.tolist() for t in x] == [[4, -2], [[12]]]
    gt._foreach_addcdiv_(x, [t + 1 for t in x], x, [2.0, 0.0])
    assert [t.tolist() for t in x] == [[6.5, -1], [[12]]]
    assert [t.tolist() for t in gt._foreach_maximum(x, 0.0)] == [[6.5, 0], [[12]]]
    assert [t.tolist() for t in gt._foreach_lerp(x, [t * 0 for t in x], 0.5)] == [[3.25, -0.5], [[6]]]
    assert [t.item() for t in gt._foreach_norm([gt.tensor([3.0, 4.0]), gt.ones(4)])] == [5, 2]
    assert [t.tolist() for t in gt._foreach_pow(2.0, [gt.tensor([1.0, 3.0])])] == [[2, 8]]
    assert [t.tolist() for t in gt._foreach_abs(x)] == [[6.5, 1], [[12]]]
    gt._foreach_copy_(x, [gt.zeros(2), gt.ones(1, 1)])
    gt._foreach_zero_(x[1:])
    assert [t.tolist() for t in x] == [[0, 0], [[0]]]
    with pytest.raises(RuntimeError, match="same number of tensors, got 2 and 1"):
        gt._foreach_add(x, [1.0])


def test_checks_of_conditions() -> None:
    gt._assert(gt.tensor(True), "never")
    with pytest.raises(AssertionError, match="so"):
        gt._assert(1 > 2, "so")
    gt._assert_async(gt.ones(1))
    with pytest.raises(RuntimeError, match="zero"):
        gt._assert_async(gt.zeros(1))
    with pytest.raises(RuntimeError, match="lazily"):
        gt._check(False, lambda: "lazily")
    with pytest.raises(ValueError, match="Expected cond to be True"):
        gt._check_value(False)
    with pytest.raises(RuntimeError, match="small"):
        gt._check_is_size(-1, "small")
    with pytest.raises(RuntimeError, match="all"):
        gt._check_tensor_all(gt.tensor([True, False]), "all")


def test_questions_that_libraries_ask() -> None:
    assert not gt.compiler.is_exporting()
    assert gt.get_device_module("cuda:0") is gt.cuda
    assert gt.get_device_module().__name__ == f"gt.{gt.ones(1).device.type}"
    with pytest.raises(RuntimeError, match="corresponding module"):
        gt.get_device_module("meta")
    assert gt.utils.data.dataloader.DataLoader is gt.utils.data.DataLoader
    assert gt.backends.cpu.get_cpu_capability() in ("AVX512", "AVX2", "DEFAULT")
    assert not _python_dispatch.is_traceable_wrapper_subclass(gt.ones(1))
    states = gt.cuda.get_rng_state_all()
    assert len(states) == gt.cuda.device_count()
    gt.cuda.set_rng_state_all(states)
    parsed = gt._C._nn._parse_to("cpu", gt.float64, True)
    assert parsed[:3] == (gt.device("cpu"), gt.float64, True)
    assert gt._C._nn._parse_to(gt.ones(1, dtype=gt.int8))[1] is gt.int8
    leaves, spec = _pytree.tree_flatten(3)
    assert (leaves, spec) == ([3], _pytree.LeafSpec())
    assert _pytree.SUPPORTED_NODES[list].flatten_fn([1, 2])[0] == [1, 2]


def test_a_model_s_flops_by_name() -> None:
    with FlopCounterMode(display=False) as counter:
        gt.nn.functional.scaled_dot_product_attention(*(gt.ones(1, 2, 5, 4) for _ in range(3)))
    assert counter.get_total_flops() == 2 * 2 * 5 * 5 * 8
