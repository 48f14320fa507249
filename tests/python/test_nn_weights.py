"""Weight and spectral norm, and bags of embeddings."""

from __future__ import annotations

import numpy as np
import pytest
from support import assert_close

import gt
from gt import nn
from gt.nn import functional, utils

ROWS = np.arange(12.0).reshape(4, 3) ** 1.5


def test_a_weight_of_length_and_direction() -> None:
    layer = nn.Linear(3, 2, bias=False, dtype=gt.float64)
    before = layer.weight.detach().clone()
    utils.weight_norm(layer)
    assert [(name, tuple(p.shape)) for name, p in layer.named_parameters()] == [
        ("weight_g", (2, 1)),
        ("weight_v", (2, 3)),
    ]
    assert_close(layer.weight, before.numpy())
    with gt.no_grad():
        layer.weight_g.mul_(2)
    x = gt.randn(4, 3, dtype=gt.float64)
    result = layer(x)
    assert_close(result, x.numpy() @ before.numpy().T * 2)
    result.sum().backward()
    assert layer.weight_v.grad is not None
    with pytest.raises(RuntimeError, match="Cannot register two weight_norm hooks"):
        utils.weight_norm(layer)
    utils.remove_weight_norm(layer)
    assert_close(layer.weight, before.numpy() * 2)
    assert isinstance(layer.weight, nn.Parameter)


def test_a_weight_whose_largest_singular_value_is_one() -> None:
    layer = utils.spectral_norm(nn.Linear(5, 4, dtype=gt.float64), n_power_iterations=5)
    for _ in range(30):
        result = layer(gt.ones(1, 5, dtype=gt.float64))
    assert np.linalg.svd(layer.weight.detach().numpy())[1][0] == pytest.approx(1.0, abs=1e-4)
    result.sum().backward()
    assert layer.weight_orig.grad is not None
    known = layer.weight_u.tolist()
    layer.eval()(gt.ones(1, 5, dtype=gt.float64))
    assert layer.weight_u.tolist() == known
    utils.remove_spectral_norm(layer)
    assert list(dict(layer.named_parameters())) == ["bias", "weight"]


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_a_bag_is_its_rows_put_together(mode: str) -> None:
    rows = ROWS
    together = {"sum": np.sum, "mean": np.mean, "max": np.max}[mode]
    wanted = np.stack([together(rows[[0, 3]], axis=0), together(rows[[2, 2]], axis=0)])
    assert_close(functional.embedding_bag(gt.tensor([[0, 3], [2, 2]]), gt.tensor(ROWS), mode=mode), wanted)
    bags = nn.EmbeddingBag.from_pretrained(gt.tensor(ROWS), mode=mode)
    found = bags(gt.tensor([0, 3, 2, 2]), gt.tensor([0, 2, 2]))
    assert_close(found, np.stack([wanted[0], np.zeros(3), wanted[1]]))
    padded = functional.embedding_bag(gt.tensor([[0, 3, 1], [2, 1, 2]]), gt.tensor(ROWS), mode=mode, padding_idx=1)
    assert_close(padded, wanted)


def test_rows_of_a_bag_may_be_weighed_and_are_trained() -> None:
    bags = nn.EmbeddingBag(4, 3, mode="sum", _weight=gt.tensor(ROWS))
    result = bags(gt.tensor([[0, 3]]), per_sample_weights=gt.tensor([[2.0, 10.0]], dtype=gt.float64))
    assert_close(result, [ROWS[0] * 2 + ROWS[3] * 10])
    result.sum().backward()
    assert bags.weight.grad[:, 0].tolist() == [2, 0, 0, 10]
    with pytest.raises(NotImplementedError, match="per_sample_weights is only supported for mode='sum'"):
        functional.embedding_bag(gt.tensor([[0]]), gt.tensor(ROWS), per_sample_weights=gt.ones(1, 1))
    with pytest.raises(ValueError, match="mode has to be one of sum, mean or max"):
        functional.embedding_bag(gt.tensor([[0]]), gt.tensor(ROWS), mode="min")


def test_gradients_of_rows_may_be_means_over_their_appearances() -> None:
    table = gt.ones(4, 2, requires_grad=True)
    index = gt.tensor([0, 2, 2, 2])
    share = gt.tensor([[1.0], [1.0], [2.0], [6.0]])
    (functional.embedding(index, table, scale_grad_by_freq=True) * share).sum().backward()
    assert table.grad.tolist() == [[1, 1], [0, 0], [3, 3], [0, 0]]


def test_programs_keep_notes_of_their_own_on_a_tensor():
    weight = nn.Parameter(gt.ones(2))
    weight._no_weight_decay = True
    assert weight._no_weight_decay
    assert not hasattr(gt.ones(2), "_no_weight_decay")
    with pytest.raises(AttributeError):
        weight.shape = (3,)
