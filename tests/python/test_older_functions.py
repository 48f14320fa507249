"""Functions of older programs: `range`, `ger`, windows, `fill_diagonal_`, `map_`, settings."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from support import assert_close

import gt
from gt.signal import windows


@pytest.mark.filterwarnings("ignore:torch.range is deprecated")
def test_a_range_has_its_end() -> None:
    assert gt.range(1, 4).tolist() == [1, 2, 3, 4]
    assert gt.range(1, 4).dtype == gt.float32
    assert gt.range(5, 1, -2).tolist() == [5, 3, 1]
    assert gt.range(0, 1, 0.3, dtype=gt.float64).tolist() == [0.0, 0.3, 0.6, pytest.approx(0.9)]
    assert gt.range(1, 4, dtype=gt.int64).dtype == gt.int64
    with pytest.raises(RuntimeError, match="step must be nonzero"):
        gt.range(1, 4, 0)
    with pytest.raises(RuntimeError, match="inconsistent with step sign"):
        gt.range(4, 1)


def test_a_range_warns() -> None:
    with pytest.warns(UserWarning, match=r"use torch.arange"):
        gt.range(1, 2)


def test_products_of_vectors() -> None:
    assert gt.ger(gt.tensor([1.0, 2]), gt.tensor([3.0, 4])).tolist() == [[3, 4], [6, 8]]


@pytest.mark.parametrize("wrap", [False, True])
@pytest.mark.parametrize("shape", [(3, 3), (7, 3), (3, 5), (2, 2, 2)])
def test_a_diagonal_is_filled(shape: tuple[int, ...], wrap: bool) -> None:
    wanted = np.zeros(shape)
    np.fill_diagonal(wanted, 5, wrap)
    x = gt.zeros(shape)
    assert x.fill_diagonal_(5, wrap) is x
    assert x.tolist() == wanted.tolist()


def test_a_filled_diagonal_has_no_gradient() -> None:
    x = gt.ones(2, 2, requires_grad=True)
    (x * 2).fill_diagonal_(3.0).sum().backward()
    assert x.grad.tolist() == [[0, 2], [2, 0]]
    assert gt.zeros(2, 2, dtype=gt.int64).fill_diagonal_(2.7).tolist() == [[2, 0], [0, 2]]
    with pytest.raises(RuntimeError, match="dimensions must larger than 1"):
        gt.zeros(3).fill_diagonal_(1)
    with pytest.raises(RuntimeError, match="all dimensions of input must be of equal length"):
        gt.zeros(2, 3, 2).fill_diagonal_(1)


def test_new_tensors_like_another() -> None:
    x = gt.ones(2, dtype=gt.int64)
    assert x.new(2, 3).shape == (2, 3)
    assert x.new([1.0, 2.0]).tolist() == [1, 2]
    assert x.new().shape == (0,)
    assert x.new(3).dtype == x.new([1.5]).dtype == gt.int64


def test_functions_of_each_element() -> None:
    assert gt.arange(3.0).apply_(lambda v: v * 2).tolist() == [0, 2, 4]
    assert gt.arange(3).apply_(lambda v: v * 2.5).tolist() == [0, 2, 5]
    assert gt.arange(3.0).map_(gt.ones(1), lambda a, b: a - b).tolist() == [-1, 0, 1]
    assert gt.arange(3.0).map2_(gt.ones(3), gt.ones(3), lambda a, b, c: a + b + c).tolist() == [2, 3, 4]
    with pytest.raises(RuntimeError, match=r"Can't call apply_\(\) on Variable that requires grad"):
        gt.ones(1, requires_grad=True).apply_(abs)
    with pytest.raises(TypeError, match=r"map_: expected gt.FloatTensor for 'other' \(got gt.LongTensor\)"):
        gt.ones(2).map_(gt.ones(2, dtype=gt.int64), max)


@pytest.mark.parametrize("name", ["bartlett", "blackman", "hamming", "hann"])
def test_windows_are_those_of_signal(name: str) -> None:
    window = getattr(gt, f"{name}_window")
    assert_close(window(6), getattr(windows, name)(6, sym=False).tolist(), tolerance=1e-7)
    assert_close(window(6, periodic=False), getattr(windows, name)(6).tolist(), tolerance=1e-7)
    assert window(4, dtype=gt.float16).dtype == gt.float16
    assert window(0).shape == (0,)
    with pytest.raises(RuntimeError, match=f"{name}_window requires non-negative window_length, got window_length=-1"):
        window(-1)
    with pytest.raises(RuntimeError, match="expects floating point dtypes"):
        window(3, dtype=gt.int64)


def test_shapes_of_windows() -> None:
    assert_close(gt.kaiser_window(4, True, 3.0), windows.kaiser(4, beta=3.0, sym=False).tolist(), tolerance=1e-7)
    assert_close(gt.hamming_window(4, True, 0.5, 0.5), gt.hann_window(4).tolist(), tolerance=1e-7)


def test_norms_under_older_names() -> None:
    x = gt.arange(6.0).reshape(2, 3)
    assert_close(gt.norm_except_dim(x, 2, 0), np.linalg.norm(np.arange(6).reshape(2, 3), axis=1)[:, None])
    assert_close(gt.frobenius_norm(x, [0, 1]), np.sqrt(55), tolerance=1e-6)
    assert_close(gt.nuclear_norm(x), np.linalg.norm(np.arange(6).reshape(2, 3), "nuc"), tolerance=1e-6)


@pytest.fixture
def settings() -> Iterator[None]:
    yield
    gt.set_default_dtype(gt.float32)
    gt.set_deterministic_debug_mode(0)
    gt.set_anomaly_enabled(False)


@pytest.mark.usefixtures("settings")
def test_settings_under_older_names() -> None:
    gt.set_default_tensor_type(gt.DoubleTensor)
    assert gt.ones(1).dtype == gt.float64
    gt.set_default_tensor_type("torch.FloatTensor")
    assert gt.ones(1).dtype == gt.float32
    for wrong in (gt.LongTensor, "x"):
        with pytest.raises(TypeError, match="only floating-point types are supported as the default type"):
            gt.set_default_tensor_type(wrong)
    gt.set_deterministic_debug_mode("warn")
    assert (gt.get_deterministic_debug_mode(), gt.is_deterministic_algorithms_warn_only_enabled()) == (1, True)
    with pytest.raises(RuntimeError, match="expected 0, 1, or 2, but got 5"):
        gt.set_deterministic_debug_mode(5)
    gt.set_anomaly_enabled(True)
    assert gt.is_anomaly_enabled()


def test_parts_of_real_numbers() -> None:
    x = gt.ones(2)
    assert x.real is x
    assert x.to_dense() is x
    assert (x.sparse_dim(), x.dense_dim()) == (0, 1)
    with pytest.raises(TypeError, match="imag is not implemented"):
        _ = x.imag


def test_layers_functions_outside_nn() -> None:
    F = gt.nn.functional  # noqa: N806
    x, y, rows = gt.randn(3, 4), gt.rand(3, 4), gt.tensor([0, 2])
    assert gt.dropout(x, 0.5, False) is x
    assert gt.embedding(x, rows).equal(F.embedding(rows, x))
    mean, var = gt.zeros(4), gt.ones(4)
    assert gt.batch_norm(x, None, None, mean, var, True, 0.1, 1e-5, True).equal(
        F.batch_norm(x, None, None, training=True)
    )
    assert not mean.equal(gt.zeros(4))
    assert gt.binary_cross_entropy_with_logits(x, y, reduction=0).shape == (3, 4)
    assert gt.kl_div(x, y, 2).equal(F.kl_div(x, y, reduction="sum"))
    values, places = gt.adaptive_max_pool1d(x.unsqueeze(0), 2)
    assert values.shape == places.shape == (1, 3, 2)
    channels = gt.feature_dropout(gt.ones(2, 50, 3), 0.5, True)
    assert sorted(set(channels.flatten().tolist())) == [0, 2]
    assert bool((channels == channels[..., :1]).all())
