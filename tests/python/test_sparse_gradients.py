"""Sparse gradients of embeddings: in GT and, where it is installed, in PyTorch, against the dense ones."""

from __future__ import annotations

import copy
import importlib
import importlib.util
import io
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import gt

PEERS = [gt, *([importlib.import_module("torch")] if importlib.util.find_spec("torch") else [])]
ROWS, FEATURES = 5, 2
peers = pytest.mark.parametrize("t", PEERS, ids=lambda t: t.__name__)


def weight(t: Any, dtype: Any = None) -> Any:
    return (t.arange(ROWS * FEATURES, dtype=dtype or t.float32).reshape(ROWS, FEATURES) / 10).requires_grad_()


def indices(t: Any) -> Any:
    """Row 1 twice, rows 3 and 4."""
    return t.tensor([[1, 3], [1, 4]])


def layer(t: Any, sparse: bool = True, cls: str = "Embedding", **options: Any) -> Any:
    made = getattr(t.nn, cls)(ROWS, FEATURES, sparse=sparse, **options)
    with t.no_grad():
        made.weight.copy_(weight(t))
    return made


def close(a: Any, b: Any) -> bool:
    return bool(((a - b).abs() <= 1e-6).all())


@peers
def test_the_gradient_names_the_rows_that_were_looked_up(t: Any) -> None:
    w = weight(t)
    (t.nn.functional.embedding(indices(t), w, sparse=True) * t.arange(8.0).reshape(2, 2, 2)).sum().backward()
    grad = w.grad
    assert grad.is_sparse
    assert grad.layout is t.sparse_coo
    assert (grad._nnz(), grad.sparse_dim(), grad.dense_dim()) == (4, 1, 1)
    assert not grad.is_coalesced()
    assert not grad.requires_grad
    assert grad._indices().tolist() == [[1, 3, 1, 4]]
    assert grad._values().tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert grad.coalesce().indices().tolist() == [[1, 3, 4]]
    assert grad.to_dense().tolist() == [[0, 0], [4, 6], [0, 0], [2, 3], [6, 7]]
    assert repr(grad) == (
        "tensor(indices=tensor([[1, 3, 1, 4]]),\n"
        "       values=tensor([[0., 1.],\n"
        "                      [2., 3.],\n"
        "                      [4., 5.],\n"
        "                      [6., 7.]]),\n"
        f"       size=(5, 2), nnz=4, layout={t.sparse_coo})"
    )


@peers
def test_gradients_add_up(t: Any) -> None:
    w = weight(t)
    look_up = t.nn.functional.embedding
    loss = look_up(indices(t), w, sparse=True).sum() + look_up(t.tensor([0]), w, sparse=True).sum()
    loss.backward()
    assert w.grad._nnz() == 5
    look_up(t.tensor([0]), w, sparse=True).sum().backward()
    assert (w.grad.is_sparse, w.grad._nnz()) == (True, 6)
    assert w.grad.to_dense()[:, 0].tolist() == [2, 2, 0, 1, 1]
    # The sum with a dense gradient is dense, whichever is first.
    w.sum().backward()
    assert not w.grad.is_sparse
    assert w.grad[:, 0].tolist() == [3, 3, 1, 2, 2]
    held = w.grad
    look_up(t.tensor([2]), w, sparse=True).sum().backward()
    assert held[:, 0].tolist() == [3, 3, 2, 2, 2]
    w.grad = None
    (look_up(indices(t), w, sparse=True).sum() + w.sum()).backward()
    assert w.grad[:, 0].tolist() == [1, 3, 1, 2, 2]


@peers
@pytest.mark.parametrize(
    "options", [{}, {"padding_idx": 1}, {"padding_idx": -1}, {"max_norm": 0.5}, {"max_norm": 1.0, "norm_type": 1.0}]
)
def test_options_of_embedding(t: Any, options: dict[str, Any]) -> None:
    grads, weights = [], []
    for sparse in (True, False):
        embedding = layer(t, sparse, **options)
        (embedding(indices(t)) * t.arange(8.0).reshape(2, 2, 2)).sum().backward()
        grads.append(embedding.weight.grad)
        weights.append(embedding.weight.detach())
    assert grads[0].is_sparse
    assert close(grads[0].to_dense(), grads[1])
    assert close(*weights)
    if options.get("padding_idx") == 1:
        assert grads[0]._nnz() == 2


@peers
def test_scaling_by_frequency_has_no_sparse_gradient(t: Any) -> None:
    rows = layer(t, scale_grad_by_freq=True)(indices(t))
    with pytest.raises(RuntimeError, match="scale_grad_by_freq not supported with sparse gradients"):
        rows.sum().backward()


@peers
@pytest.mark.parametrize("mode", ["sum", "mean"])
@pytest.mark.parametrize(
    ("offsets", "options"),
    [
        (None, {}),
        ([0, 3], {}),
        ([0, 2], {"padding_idx": 1}),
        ([0, 1], {"padding_idx": -1}),
        ([0, 1, 4], {"include_last_offset": True}),
        (None, {"max_norm": 0.5}),
    ],
)
def test_bags(t: Any, mode: str, offsets: list[int] | None, options: dict[str, Any]) -> None:
    results, grads = [], []
    for sparse in (True, False):
        bag = layer(t, sparse, "EmbeddingBag", mode=mode, **options)
        index = indices(t) if offsets is None else indices(t).flatten()
        result = bag(index, None if offsets is None else t.tensor(offsets))
        (result * t.tensor([[1.0, 2.0], [3.0, 4.0]])).sum().backward()
        results.append(result.detach())
        grads.append(bag.weight.grad)
    assert grads[0].is_sparse
    assert close(*results)
    assert close(grads[0].to_dense(), grads[1])


@peers
def test_weighted_bags(t: Any) -> None:
    shares = t.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    bag = layer(t, cls="EmbeddingBag", mode="sum")
    bag(indices(t), per_sample_weights=shares).sum().backward()
    assert bag.weight.grad.to_dense()[:, 0].tolist() == [0, 4, 0, 2, 4]
    assert close(shares.grad, t.tensor([[0.5, 1.3], [0.5, 1.7]]))
    with pytest.raises(ValueError, match="max mode does not support sparse weights"):
        layer(t, cls="EmbeddingBag", mode="max")(indices(t))


def trained(t: Any, optimizer: Callable[[Any], Any], sparse: bool, steps: int = 4) -> Any:
    """The weight after some steps, in each of which all rows are looked up."""
    embedding = layer(t, sparse)
    chosen = optimizer(embedding.parameters())
    every = t.tensor([0, 1, 2, 3, 4, 1])
    for _ in range(steps):
        chosen.zero_grad()
        (embedding(every) ** 2).sum().backward()
        chosen.step()
    return embedding.weight.detach()


@peers
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("SGD", {}),
        ("SGD", {"maximize": True}),
        ("SGD", {"momentum": 0.9}),
        ("SGD", {"momentum": 0.9, "dampening": 0.5, "maximize": True}),
        ("SGD", {"momentum": 0.9, "nesterov": True}),
        ("Adagrad", {}),
        ("Adagrad", {"lr_decay": 0.1, "initial_accumulator_value": 0.5, "maximize": True}),
        ("SparseAdam", {"eps": 1e-4}),
    ],
)
def test_an_optimizer_moves_as_by_the_dense_gradient(t: Any, name: str, options: dict[str, Any]) -> None:
    dense = t.optim.Adam if name == "SparseAdam" else getattr(t.optim, name)
    found = trained(t, lambda p: getattr(t.optim, name)(p, lr=0.1, **options), sparse=True)
    wanted = trained(t, lambda p: dense(p, lr=0.1, **options), sparse=False)
    # SparseAdam adds eps before the correction of the second moment.
    tolerance = 1e-2 if name == "SparseAdam" else 1e-5
    assert bool(((found - wanted).abs() <= tolerance).all())


@peers
def test_rows_that_are_not_looked_up_stay(t: Any) -> None:
    for name in ("SGD", "Adagrad", "SparseAdam"):
        embedding = layer(t)
        optimizer = getattr(t.optim, name)(embedding.parameters(), lr=0.1)
        for index in ([1, 3], [3, 3]):
            optimizer.zero_grad()
            embedding(t.tensor(index)).sum().backward()
            optimizer.step()
        moved = (embedding.weight != weight(t)).any(1).tolist()
        assert moved == [False, True, False, True, False]


@peers
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Adam", "Adam does not support sparse gradients, please consider SparseAdam instead"),
        ("RMSprop", "RMSprop does not support sparse gradients"),
        ("NAdam", "NAdam does not support sparse gradients"),
        ("Adadelta", "Adadelta does not support sparse gradients"),
        ("Rprop", "Rprop does not support sparse gradients"),
    ],
)
def test_other_optimizers_say_that_they_take_dense_gradients(t: Any, name: str, message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        trained(t, getattr(t.optim, name), sparse=True)


@peers
def test_weight_decay_takes_a_dense_gradient(t: Any) -> None:
    for name in ("SGD", "Adagrad"):
        optimizer = partial(getattr(t.optim, name), lr=0.1, weight_decay=0.1)
        with pytest.raises(RuntimeError, match="sparse"):
            trained(t, optimizer, sparse=True)


@peers
def test_lbfgs_takes_sparse_gradients(t: Any) -> None:
    embedding = layer(t)
    optimizer = t.optim.LBFGS(embedding.parameters(), max_iter=20)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = (embedding(indices(t)) ** 2).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    assert close(embedding.weight[[1, 3, 4]], t.zeros(3, 2))
    assert embedding.weight[2].tolist() == weight(t)[2].tolist()


@peers
def test_zero_grad_and_clipping(t: Any) -> None:
    embedding = layer(t)
    (embedding(indices(t)) * t.arange(8.0).reshape(2, 2, 2)).sum().backward()
    assert close(embedding.weight.grad.norm(), t.tensor(150.0).sqrt())
    assert close(embedding.weight.grad.data.norm(2), t.tensor(150.0).sqrt())
    assert close(t.nn.utils.clip_grad_norm_(embedding.parameters(), 1.0), t.tensor(150.0).sqrt())
    assert close(embedding.weight.grad.to_dense().norm(), t.tensor(1.0))
    with pytest.raises(NotImplementedError):
        t.nn.utils.clip_grad_value_(embedding.parameters(), 1.0)
    embedding.zero_grad(set_to_none=False)
    assert (embedding.weight.grad.is_sparse, embedding.weight.grad._nnz()) == (True, 0)
    embedding(indices(t)).sum().backward()
    assert embedding.weight.grad._nnz() == 4
    embedding.zero_grad()
    assert embedding.weight.grad is None


@peers
def test_a_gradient_in_place(t: Any) -> None:
    embedding = layer(t)
    embedding(indices(t)).sum().backward()
    grad = embedding.weight.grad
    grad.mul_(6)
    grad.div_(t.tensor(3.0))
    assert embedding.weight.grad.to_dense()[:, 0].tolist() == [0, 4, 0, 2, 2]
    assert (-grad).to_dense()[:, 0].tolist() == [0, -4, 0, -2, -2]
    grad.zero_()
    assert embedding.weight.grad._nnz() == 0


@peers
def test_grad_returns_it(t: Any) -> None:
    w = weight(t)
    rows = t.nn.functional.embedding(indices(t), w, sparse=True)
    (grad,) = t.autograd.grad((rows**2).sum(), w, retain_graph=True)
    assert grad.is_sparse
    assert w.grad is None
    assert close(grad.to_dense()[1], t.tensor([0.8, 1.2]))
    (grad,) = t.autograd.grad((rows**2).sum() + w.sum(), w, retain_graph=True)
    assert not grad.is_sparse
    assert close(grad[1], t.tensor([1.8, 2.2]))
    rows.sum().backward(inputs=[w], retain_graph=True)
    assert w.grad._nnz() == 4
    rows.sum().backward()
    assert w.grad._nnz() == 8
    with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
        rows.sum().backward()


@peers
def test_second_derivatives(t: Any) -> None:
    w = weight(t, t.float64)
    rows = t.nn.functional.embedding(indices(t), w, sparse=True)
    (grad,) = t.autograd.grad((rows**3).sum(), w, create_graph=True)
    (grad.to_dense() ** 2).sum().backward()
    # d/dw of (3 n w^2)^2 for a row that is looked up n times: 36 n^2 w^3.
    wanted = t.tensor([0.0, 4, 0, 1, 1])[:, None] * 36 * w.detach() ** 3
    assert close(w.grad.to_dense(), wanted)


@peers
def test_hooks_get_it(t: Any) -> None:
    seen: list[Any] = []
    embedding = layer(t)

    def double(grad: Any) -> Any:
        seen.append((grad.is_sparse, grad._nnz()))
        return grad * 2

    handle = embedding.weight.register_hook(double)
    after = embedding.weight.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad._nnz()))
    embedding(indices(t)).sum().backward()
    assert seen == [(True, 4), 4]
    assert embedding.weight.grad.to_dense()[:, 0].tolist() == [0, 4, 0, 2, 2]
    handle.remove()
    after.remove()
    embedding(indices(t)).sum().backward()
    assert seen == [(True, 4), 4]


@peers
def test_a_weight_that_was_computed(t: Any) -> None:
    w = weight(t)
    t.nn.functional.embedding(indices(t), w * 2, sparse=True).sum().backward()
    assert w.grad.to_dense()[:, 0].tolist() == [0, 4, 0, 2, 2]


@peers
def test_without_gradients_nothing_differs(t: Any) -> None:
    with t.no_grad():
        assert close(layer(t)(indices(t)), weight(t)[indices(t)])
    frozen = t.nn.Embedding.from_pretrained(t.eye(3), sparse=True)
    assert frozen(t.tensor([1])).tolist() == [[0, 1, 0]]
    assert not frozen(t.tensor([1])).requires_grad


@peers
def test_checkpointing_and_scaling(t: Any) -> None:
    embedding = layer(t)
    optimizer = t.optim.SGD(embedding.parameters(), lr=0.1)
    scaler = t.amp.GradScaler("cpu", init_scale=4.0)
    loss = t.utils.checkpoint.checkpoint(lambda i: embedding(i) ** 2, indices(t), use_reentrant=False).sum()
    scaler.scale(loss).backward()
    assert close(embedding.weight.grad.to_dense()[1], t.tensor([3.2, 4.8]))
    scaler.unscale_(optimizer)
    assert close(embedding.weight.grad.to_dense()[1], t.tensor([0.8, 1.2]))
    scaler.step(optimizer)
    assert close(embedding.weight.detach()[1], t.tensor([0.12, 0.18]))


@peers
def test_dtypes(t: Any) -> None:
    w = weight(t, t.float64)
    t.nn.functional.embedding(t.tensor([0, 1], dtype=t.int32), w, sparse=True).sum().backward()
    assert w.grad.dtype == t.float64
    assert w.grad._indices().dtype == t.int64


@peers
def test_momentum_is_saved_in_a_checkpoint(t: Any) -> None:
    embedding = layer(t)
    optimizer = t.optim.SGD(embedding.parameters(), lr=0.1, momentum=0.9)
    embedding(indices(t)).sum().backward()
    optimizer.step()
    file = io.BytesIO()
    t.save(optimizer.state_dict(), file)
    file.seek(0)
    buffer = t.load(file)["state"][0]["momentum_buffer"]
    assert buffer.is_sparse
    assert buffer.to_dense()[:, 0].tolist() == [0, 2, 0, 1, 1]


@peers
@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr", "sparse_csc"])
def test_sparse_tensors_are_saved(t: Any, layout: str) -> None:
    file = io.BytesIO()
    t.save(t.eye(3).to_sparse(layout=getattr(t, layout)), file)
    file.seek(0)
    loaded = t.load(file)
    assert loaded.layout == getattr(t, layout)
    assert loaded.to_dense().tolist() == t.eye(3).tolist()


def test_a_copy_of_a_module_keeps_the_gradient() -> None:
    embedding = layer(gt)
    embedding(indices(gt)).sum().backward()
    assert copy.deepcopy(embedding).weight.grad.is_sparse
