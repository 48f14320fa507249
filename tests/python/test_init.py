"""Initialisers other than uniform and normal, and the options of `Embedding`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats
from support import assert_close

import gt
from gt import nn
from gt.nn import init


@pytest.mark.parametrize("shape", [(4, 6), (6, 4), (3, 2, 2)])
def test_orthogonal_rows_or_columns(shape: tuple[int, ...]) -> None:
    w = init.orthogonal_(gt.empty(*shape), gain=2.0).numpy().reshape(shape[0], -1)
    product = w @ w.T if w.shape[0] <= w.shape[1] else w.T @ w
    assert np.abs(product - 4 * np.eye(min(w.shape))).max() < 1e-5


def test_normal_numbers_within_bounds() -> None:
    gt.manual_seed(0)
    drawn = init.trunc_normal_(gt.empty(4000), mean=1.0, std=2.0, a=-1.0, b=2.0).numpy()
    assert stats.kstest(drawn, stats.truncnorm(-1.0, 0.5, loc=1.0, scale=2.0).cdf).pvalue > 1e-3


def test_a_share_of_each_column_is_zero() -> None:
    w = init.sparse_(gt.empty(10, 5), sparsity=0.25)
    assert (w == 0).sum(0).tolist() == [3] * 5


def test_a_convolution_that_passes_channels_on() -> None:
    w = init.dirac_(gt.empty(4, 2, 3, 3), groups=2)
    assert w[:, :, 1, 1].tolist() == [[1, 0], [0, 1], [1, 0], [0, 1]]
    assert w.sum().item() == 4


def test_shapes_without_an_initialisation_are_refused() -> None:
    with pytest.raises(ValueError, match="Only tensors with 2 or more dimensions are supported"):
        init.orthogonal_(gt.empty(3))
    with pytest.raises(ValueError, match="Only tensors with 3, 4, or 5 dimensions are supported"):
        init.dirac_(gt.empty(3, 3))


def test_rows_that_are_looked_up_are_kept_short() -> None:
    weight = gt.tensor([[3.0, 4.0], [30.0, 40.0], [0.3, 0.4]])
    rows = nn.Embedding(3, 2, max_norm=1.0, _weight=weight)
    assert_close(rows(gt.tensor([0, 2])), [[0.6, 0.8], [0.3, 0.4]], tolerance=1e-5)
    assert rows.weight[1].tolist() == [30.0, 40.0]


def test_layers_are_made_where_they_are_told() -> None:
    for layer in (nn.Linear(2, 3, device="cpu"), nn.Embedding(2, 3, device="cpu"), nn.LayerNorm(2, device="cpu")):
        assert layer.weight.device == gt.ones(1).device
    assert nn.LSTM(2, 3, device="cpu", dtype=gt.float64).weight_ih_l0.dtype == gt.float64


def test_values_of_a_generator_of_one_s_own() -> None:
    def drawn(function: Any) -> list[list[float]]:
        return function(gt.empty(3, 3), generator=gt.Generator().manual_seed(3)).tolist()

    for function in (init.uniform_, init.trunc_normal_, init.orthogonal_, init.kaiming_normal_, init.xavier_uniform_):
        assert drawn(function) == drawn(function)
