"""Pruning: masks of the smallest elements, of channels, of several parameters at once, one after the other."""

from __future__ import annotations

import pytest

import gt
from gt import nn
from gt.nn.utils import prune


def linear() -> nn.Linear:
    layer = nn.Linear(4, 3)
    layer.weight.data = gt.arange(12.0).reshape(3, 4) - 5
    return layer


def test_the_smallest_elements_are_masked() -> None:
    layer = prune.l1_unstructured(linear(), "weight", amount=0.4)
    assert layer.weight_mask.tolist() == [[1, 1, 1, 0], [0, 0, 0, 0], [1, 1, 1, 1]]
    assert list(layer.state_dict()) == ["bias", "weight_orig", "weight_mask"]
    layer(gt.ones(4)).sum().backward()
    assert layer.weight_orig.grad.tolist() == layer.weight_mask.tolist()
    assert prune.is_pruned(layer)


def test_a_mask_prunes_the_remaining_elements() -> None:
    layer = prune.l1_unstructured(linear(), "weight", amount=0.4)
    prune.ln_structured(layer, "weight", amount=0.34, n=2, dim=0)
    assert layer.weight_mask.sum(1).tolist() == [0, 0, 4]
    prune.l1_unstructured(layer, "weight", amount=1)
    assert layer.weight_mask.sum().item() == 3


def test_removing_makes_the_pruned_weight_a_parameter() -> None:
    layer = prune.l1_unstructured(linear(), "weight", amount=6)
    prune.remove(layer, "weight")
    assert list(layer.state_dict()) == ["bias", "weight"]
    assert isinstance(layer.weight, nn.Parameter)
    assert (layer.weight == 0).sum().item() == 6
    assert not prune.is_pruned(layer)
    with pytest.raises(ValueError, match="has to be pruned before pruning can be removed"):
        prune.remove(layer, "weight")


def test_several_parameters_are_one_vector() -> None:
    a, b = nn.Linear(2, 2), nn.Linear(2, 2)
    a.weight.data, b.weight.data = gt.tensor([[1.0, 5], [2, 6]]), gt.tensor([[3.0, 7], [4, 8]])
    prune.global_unstructured([(a, "weight"), (b, "weight")], prune.L1Unstructured, amount=0.5)
    assert a.weight_mask.tolist() == b.weight_mask.tolist() == [[0, 1], [0, 1]]


def test_elements_and_rows_at_random() -> None:
    assert prune.random_unstructured(linear(), "weight", 5).weight_mask.sum().item() == 7
    rows = prune.random_structured(linear(), "weight", 1, dim=0).weight_mask.sum(1)
    assert sorted(rows.tolist()) == [0, 4, 4]
    mask = gt.tensor([1, 0, 1])
    assert prune.custom_from_mask(linear(), "bias", mask).bias_mask.tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    ("amount", "error", "message"),
    [
        (1.5, ValueError, "either be a float in the range"),
        (-1, ValueError, "either be a float in the range"),
        (100, ValueError, "smaller than the number of parameters to prune=12"),
        ("a", TypeError, "Invalid type for amount: a"),
    ],
)
def test_amounts_are_checked(amount: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        prune.l1_unstructured(linear(), "weight", amount)
