"""Losses over many classes: adaptive softmax, and linear layers fused with cross-entropy."""

from __future__ import annotations

import numpy as np
import pytest
from support import assert_close

import gt
from gt import nn


def drawn(module: nn.Module) -> nn.Module:
    random = np.random.default_rng(0)
    for parameter in module.parameters():
        parameter.data = gt.tensor(random.standard_normal(parameter.shape), dtype=gt.float32)
    return module


def test_clusters_of_classes_are_one_distribution() -> None:
    loss = drawn(nn.AdaptiveLogSoftmaxWithLoss(6, 20, [5, 9], div_value=2.0))
    x, target = gt.randn(40, 6), gt.arange(40) % 20
    log_prob = loss.log_prob(x)
    assert_close(log_prob.exp().sum(1), np.ones(40), tolerance=1e-5)
    output, mean = loss(x, target)
    assert_close(output, log_prob.gather(1, target.unsqueeze(1)).squeeze(1).tolist(), tolerance=1e-5)
    assert_close(mean, -output.mean().item(), tolerance=1e-6)
    assert loss.predict(x).tolist() == log_prob.argmax(1).tolist()
    assert loss(x[0], target[0]).output.shape == ()


def test_a_cluster_is_looked_at_for_its_own_samples_alone() -> None:
    loss = drawn(nn.AdaptiveLogSoftmaxWithLoss(6, 20, [5, 9]))
    loss(gt.randn(3, 6), gt.tensor([1, 6, 7])).loss.backward()
    first, last = loss.tail[0][0].weight.grad, loss.tail[1][0].weight.grad
    assert first is not None
    assert last is None


@pytest.mark.parametrize("cutoffs", [[5, 4], [5, 5], [0, 5], [5, 20]])
def test_cutoffs_rise(cutoffs: list[int]) -> None:
    with pytest.raises(ValueError, match="unique, positive integers sorted"):
        nn.AdaptiveLogSoftmaxWithLoss(6, 20, cutoffs)


def test_targets_are_checked() -> None:
    loss = nn.AdaptiveLogSoftmaxWithLoss(6, 20, [5])
    for x, target, message in [
        (gt.ones(2, 6), gt.tensor([1, 20]), r"Target values should be in \[0, 19\], but values in range \[1, 20\]"),
        (gt.ones(2, 6), gt.tensor([1]), "same size in the batch dimension"),
        (gt.ones(2, 6), gt.tensor(1), "0D target tensor expects 1D input tensors"),
        (gt.ones(2, 6), gt.zeros(2, 2, dtype=gt.int64), "multi-target not supported"),
    ]:
        with pytest.raises(RuntimeError, match=message):
            loss(x, target)


def test_a_loss_with_its_layer() -> None:
    loss = drawn(nn.LinearCrossEntropyLoss(4, 3, out_features=(2,), bias=True))
    x, target = gt.randn(5, 4), gt.tensor([[0, 1], [2, 2], [1, 0], [0, 0], [2, 1]])
    scores = loss.linear(x).reshape(5, 3, 2)
    assert_close(loss(x, target), nn.functional.cross_entropy(scores, target).item(), tolerance=1e-6)
    assert list(loss.state_dict()) == ["linear.weight", "linear.bias"]
    with pytest.raises(RuntimeError, match=r"expected weight shape to be \(3,\), got \(5,\)"):
        nn.LinearCrossEntropyLoss(4, 3, weight=gt.ones(5))
