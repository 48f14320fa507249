"""Normalization, embeddings, attention, further activations and losses, against their definitions in NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special
from support import assert_close, numeric_gradient, to_numpy

import gt
from gt import nn
from gt.nn import functional as F  # noqa: N812 (PyTorch's name)
from gt.nn import init

RNG = np.random.default_rng(30)
X = RNG.standard_normal((4, 5))
Y = RNG.standard_normal((4, 5))
CUBE = RNG.standard_normal((3, 4, 5))
WEIGHT, BIAS = RNG.uniform(0.5, 1.5, 5), RNG.standard_normal(5)
CLASSES = np.array([0, 4, 2, 1])
SHARES = scipy.special.softmax(Y, 1)
BITS = RNG.uniform(0, 1, (4, 5))


def check(call: Callable[[Any], gt.Tensor], reference: Callable[[np.ndarray], Any], array: np.ndarray) -> None:
    """Checks values, and the gradient of a weighted sum of the results."""
    weights = np.random.default_rng(31).uniform(0.5, 1.5, np.shape(reference(array)))
    t = gt.tensor(array, requires_grad=True)
    result = call(t)
    assert_close(result, reference(array), "float64")
    result.backward(gt.tensor(weights))
    np.testing.assert_allclose(
        to_numpy(t.grad), numeric_gradient(lambda x: reference(x) * weights, [array], 0), rtol=2e-5, atol=2e-6
    )


def softplus(a: np.ndarray) -> np.ndarray:
    return np.logaddexp(0, a)


ACTIVATIONS = [
    (nn.SiLU(), lambda a: a * scipy.special.expit(a)),
    (nn.LeakyReLU(), lambda a: np.where(a > 0, a, a * 0.01)),
    (nn.LeakyReLU(0.3), lambda a: np.where(a > 0, a, a * 0.3)),
    (nn.ELU(), lambda a: np.where(a > 0, a, np.expm1(a))),
    (nn.ELU(2.0), lambda a: np.where(a > 0, a, 2 * np.expm1(a))),
    (nn.Softplus(), softplus),
    (nn.Softplus(beta=2.0, threshold=1.5), lambda a: np.where(a * 2 > 1.5, a, softplus(a * 2) / 2)),
    (nn.LogSigmoid(), lambda a: -softplus(-a)),
    (nn.Unflatten(1, (1, -1)), lambda a: a.reshape(4, 1, 5)),
    (nn.Unflatten(-2, (2, 2)), lambda a: a.reshape(2, 2, 5)),
]


@pytest.mark.parametrize(("layer", "reference"), ACTIVATIONS, ids=lambda v: repr(v) if isinstance(v, nn.Module) else "")
def test_activations(layer: nn.Module, reference: Callable[[np.ndarray], np.ndarray]) -> None:
    check(layer, reference, X)


@pytest.mark.parametrize("function", [F.silu, F.leaky_relu, F.elu, F.softplus, F.logsigmoid])
def test_large_inputs_of_activations_stay_finite(function: Callable[[gt.Tensor], gt.Tensor]) -> None:
    t = gt.tensor([-1e4, -90.0, 0.0, 90.0, 1e4], requires_grad=True)
    result = function(t)
    result.sum().backward()
    assert bool(result.isfinite().all())
    assert bool(t.grad.isfinite().all())


def test_a_score_of_zero_is_pulled_towards_its_target() -> None:
    t = gt.zeros(2, requires_grad=True)
    F.binary_cross_entropy_with_logits(t, gt.tensor([0.0, 1.0]), reduction="sum").backward()
    assert t.grad.tolist() == [0.5, -0.5]


def test_in_place_activations_write_over_their_input() -> None:
    t = gt.tensor([-1.0, 2.0])
    assert nn.ReLU(inplace=True)(t) is t
    assert t.tolist() == [0, 2]
    u = gt.ones(1000)
    nn.Dropout(0.5, inplace=True)(u)
    assert set(u.tolist()) == {0.0, 2.0}


# Losses ---------------------------------------------------------------------------------------------------------


def huber(d: np.ndarray, delta: float) -> np.ndarray:
    return np.where(abs(d) <= delta, d * d / 2, delta * (abs(d) - delta / 2))


REDUCTIONS = {"mean": np.mean, "sum": np.sum, "none": lambda a: a}


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_losses_of_differences_and_distributions(reduction: str) -> None:
    r, t = REDUCTIONS[reduction], gt.tensor(Y)
    for size in (0.5, 1.0):
        check(lambda x: nn.HuberLoss(reduction, size)(x, t), lambda a: r(huber(a - Y, size)), X)  # noqa: B023
        smooth = nn.SmoothL1Loss(beta=size, reduction=reduction)
        check(lambda x: smooth(x, t), lambda a: r(huber(a - Y, size) / size), X)  # noqa: B023
    check(lambda x: F.smooth_l1_loss(x, t, beta=0.0, reduction=reduction), lambda a: r(abs(a - Y)), X)
    shares, logs = SHARES.copy(), np.log(SHARES)
    shares[0, 0] = 0.0
    check(
        lambda x: F.kl_div(x, gt.tensor(shares), reduction=reduction),
        lambda a: r(scipy.special.xlogy(shares, shares) - shares * a),
        X,
    )
    check(
        lambda x: nn.KLDivLoss(reduction=reduction, log_target=True)(x, gt.tensor(logs)),
        lambda a: r(SHARES * (logs - a)),
        X,
    )


def test_the_mean_divergence_of_a_batch() -> None:
    wanted = (SHARES * (np.log(SHARES) - X)).sum() / 4
    assert_close(F.kl_div(gt.tensor(X), gt.tensor(SHARES), reduction="batchmean"), wanted)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_weighted_binary_losses(reduction: str) -> None:
    r, t, w, p = REDUCTIONS[reduction], gt.tensor(BITS), gt.tensor(WEIGHT), gt.tensor(WEIGHT * 2)
    check(
        lambda x: nn.BCEWithLogitsLoss(w, reduction=reduction, pos_weight=p)(x, t),
        lambda a: r(WEIGHT * (2 * WEIGHT * BITS * softplus(-a) + (1 - BITS) * softplus(a))),
        X,
    )
    check(
        lambda x: nn.BCELoss(w, reduction=reduction)(x, t),
        lambda a: r(-WEIGHT * (BITS * np.log(a) + (1 - BITS) * np.log(1 - a))),
        RNG.uniform(0.1, 0.9, (4, 5)),
    )


@pytest.mark.parametrize("ignored", [-100, 2])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_weighted_classes(reduction: str, smoothing: float, ignored: int) -> None:
    counts = WEIGHT[CLASSES] * (ignored != CLASSES)

    def reduced(losses: np.ndarray) -> Any:
        return losses.sum() / counts.sum() if reduction == "mean" else REDUCTIONS[reduction](losses)

    def reference(a: np.ndarray) -> Any:
        logs = scipy.special.log_softmax(a, 1)
        right = -logs[np.arange(4), CLASSES] * counts
        spread = -(logs * WEIGHT).mean(1) * (ignored != CLASSES)
        return reduced((1 - smoothing) * right + smoothing * spread)

    options = {"ignore_index": ignored, "reduction": reduction}
    loss = nn.CrossEntropyLoss(gt.tensor(WEIGHT), label_smoothing=smoothing, **options)
    check(lambda x: loss(x, gt.tensor(CLASSES)), reference, X)
    negative = nn.NLLLoss(gt.tensor(WEIGHT), **options)
    check(lambda x: negative(x, gt.tensor(CLASSES)), lambda a: reduced(-a[np.arange(4), CLASSES] * counts), X)
    assert list(loss.state_dict()) == ["weight"]


def test_weights_that_do_not_fit_are_refused() -> None:
    with pytest.raises(RuntimeError, match="all 5 classes"):
        F.cross_entropy(gt.tensor(X), gt.tensor(CLASSES), gt.ones(4))
    with pytest.raises(RuntimeError, match="negative values for beta"):
        F.smooth_l1_loss(gt.ones(1), gt.ones(1), beta=-1.0)
    with pytest.raises(RuntimeError, match="non-positive values for delta"):
        F.huber_loss(gt.ones(1), gt.ones(1), delta=0.0)


# Normalization --------------------------------------------------------------------------------------------------


def normal(a: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    return (a - a.mean(axes, keepdims=True)) / np.sqrt(a.var(axes, keepdims=True) + 1e-5)


def test_layer_norm() -> None:
    w, b = gt.tensor(WEIGHT), gt.tensor(BIAS)
    check(lambda x: F.layer_norm(x, (5,)), lambda a: normal(a, (-1,)), CUBE)
    check(lambda x: F.layer_norm(x, (4, 5)), lambda a: normal(a, (-2, -1)), CUBE)
    check(lambda x: F.layer_norm(x, (5,), w), lambda a: normal(a, (-1,)) * WEIGHT, CUBE)
    check(lambda x: F.layer_norm(x, (5,), None, b), lambda a: normal(a, (-1,)) + BIAS, CUBE)
    check(lambda x: F.layer_norm(x, (5,), w, b), lambda a: normal(a, (-1,)) * WEIGHT + BIAS, CUBE)
    assert [name for name, _ in nn.LayerNorm(5).named_parameters()] == ["weight", "bias"]
    assert [name for name, _ in nn.LayerNorm(5, bias=False).named_parameters()] == ["weight"]
    assert list(nn.LayerNorm((4, 5), elementwise_affine=False).parameters()) == []
    assert nn.LayerNorm((4, 5)).weight.shape == (4, 5)
    assert nn.LayerNorm(5, dtype=gt.bfloat16)(gt.rand(2, 5, dtype=gt.bfloat16)).dtype == gt.bfloat16
    with pytest.raises(RuntimeError, match="expected input with shape"):
        nn.LayerNorm(5)(gt.rand(2, 4))


def test_layer_norm_of_half_precision_does_not_overflow() -> None:
    t = gt.full((1, 4), 60000.0, dtype=gt.float16)
    t[0, 0] = 0.0
    assert bool(nn.LayerNorm(4, dtype=gt.float16)(t).isfinite().all())


@pytest.mark.parametrize(
    ("layer", "shape"), [(nn.BatchNorm1d, (6, 3)), (nn.BatchNorm1d, (4, 3, 5)), (nn.BatchNorm2d, (2, 3, 2, 2))]
)
@pytest.mark.parametrize("momentum", [0.1, None])
def test_batch_norm(layer: type[nn.Module], shape: tuple[int, ...], momentum: float | None) -> None:
    norm = layer(3, momentum=momentum, dtype=gt.float64)
    assert list(norm.state_dict()) == ["weight", "bias", "running_mean", "running_var", "num_batches_tracked"]
    axes = tuple(i for i in range(len(shape)) if i != 1)
    mean, variance = np.zeros(3), np.ones(3)
    for step in range(1, 4):
        array = RNG.standard_normal(shape) * step
        share = 1 / step if momentum is None else momentum
        mean = mean * (1 - share) + array.mean(axes) * share
        variance = variance * (1 - share) + array.var(axes, ddof=1) * share
        assert_close(norm(gt.tensor(array)), normal(array, axes))
    assert_close(norm.running_mean, mean)
    assert_close(norm.running_var, variance)
    assert norm.num_batches_tracked.item() == 3
    check(lambda x: F.batch_norm(x, None, None, training=True), lambda a: normal(a, axes), RNG.standard_normal(shape))
    norm.eval()
    along = [1, 3] + [1] * (len(shape) - 2)
    check(norm, lambda a: (a - mean.reshape(along)) / np.sqrt(variance.reshape(along) + 1e-5), array)
    assert norm.num_batches_tracked.item() == 3
    norm.reset_running_stats()
    assert norm.running_mean.tolist() == [0, 0, 0]


@pytest.mark.parametrize("shape", [(4, 2), (3, 2, 2, 2)])
def test_batch_norm_has_second_derivatives(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    operands = [gt.tensor(rng.standard_normal(sizes), requires_grad=True) for sizes in (shape, (2,), (2,))]

    def normalized(x: gt.Tensor, weight: gt.Tensor, bias: gt.Tensor) -> gt.Tensor:
        return F.batch_norm(x, None, None, weight, bias, training=True)

    assert gt.autograd.gradcheck(normalized, operands)
    assert gt.autograd.gradgradcheck(normalized, operands)


@pytest.mark.parametrize("name", ["weight", "bias", "running_mean", "running_var"])
@pytest.mark.parametrize("training", [True, False])
def test_a_normalization_has_an_element_of_each_parameter_for_each_channel(name: str, training: bool) -> None:
    x, right, wrong = gt.ones(2, 3, 4), gt.ones(3), gt.ones(1)
    given = {"running_mean": right, "running_var": right, name: wrong}
    with pytest.raises(RuntimeError, match=f"{name} should contain 3 elements not 1"):
        F.batch_norm(x, **given, training=training)
    if name.startswith("running"):
        with pytest.raises(RuntimeError, match=f"{name} should contain 3 elements not 1"):
            F.instance_norm(x, **given, use_input_stats=training)
    else:
        text = rf"Expected {name} to be a vector .* got {name} of shape \[1\] and input of shape \[2, 3, 4\]"
        with pytest.raises(RuntimeError, match=text):
            F.group_norm(x, 3, **{name: wrong})
    # PyTorch counts the elements alone.
    given[name] = gt.ones(1, 3)
    assert F.batch_norm(x, **given, training=training).shape == (2, 3, 4)


def test_batch_norm_without_statistics_or_with_bad_input() -> None:
    plain = nn.BatchNorm1d(5, affine=False, track_running_stats=False, dtype=gt.float64).eval()
    assert list(plain.state_dict()) == []
    check(plain, lambda a: normal(a, (0,)), X)
    with pytest.raises(ValueError, match="expected 4D input"):
        nn.BatchNorm2d(3)(gt.rand(2, 3))
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        nn.BatchNorm1d(3)(gt.rand(1, 3))
    with pytest.raises(RuntimeError, match="3 channels"):
        nn.BatchNorm1d(3)(gt.rand(2, 4))


# Embedding and attention ----------------------------------------------------------------------------------------


def test_embedding() -> None:
    index = np.array([[1, 2, 1], [3, 2, 0]])
    check(lambda w: F.embedding(gt.tensor(index), w), lambda a: a[index], X)
    check(lambda w: F.embedding(gt.tensor(index, dtype=gt.int32), w), lambda a: a[index], X)
    layer = nn.Embedding(4, 5, padding_idx=-2)
    assert repr(layer) == "Embedding(4, 5, padding_idx=2)"
    assert layer.weight[2].tolist() == [0.0] * 5
    with gt.no_grad():
        layer.weight.copy_(X)
    result = layer(gt.tensor(index))
    assert_close(result, X.astype(np.float32)[index])
    result.sum().backward()
    assert layer.weight.grad[:, 0].tolist() == [1, 2, 0, 1]
    frozen = nn.Embedding.from_pretrained(gt.tensor(X))
    assert not frozen.weight.requires_grad
    assert_close(frozen(gt.tensor(3)), X[3])
    assert frozen(gt.zeros(0, dtype=gt.int64)).shape == (0, 5)
    with pytest.raises(RuntimeError, match="int32 or int64"):
        layer(gt.rand(3))
    with pytest.raises(AssertionError, match="within num_embeddings"):
        nn.Embedding(3, 2, padding_idx=3)
    with pytest.raises(IndexError):
        layer(gt.tensor([4])).tolist()


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, added: Any = 0.0, scale: float = 0.5) -> np.ndarray:
    return scipy.special.softmax(q @ np.swapaxes(k, -1, -2) * scale + added, -1) @ v


def test_attention() -> None:
    q, k = RNG.standard_normal((2, 3, 5, 4)), RNG.standard_normal((2, 3, 6, 4))
    v, added = RNG.standard_normal((2, 3, 6, 2)), RNG.standard_normal((3, 5, 6))
    seen = RNG.uniform(size=(5, 6)) > 0.3
    seen[:, 1] = True
    hidden = np.where(seen, 0.0, -np.inf)
    future = np.where(np.tri(5, 6, dtype=bool), 0.0, -np.inf)
    a, b = gt.tensor(k), gt.tensor(v)
    attend = F.scaled_dot_product_attention
    check(lambda x: attend(x, a, b), lambda x: attention(x, k, v), q)
    check(lambda x: attend(x, a, b, scale=0.3), lambda x: attention(x, k, v, scale=0.3), q)
    check(lambda x: attend(x, a, b, is_causal=True), lambda x: attention(x, k, v, future), q)
    check(lambda x: attend(x, a, b, gt.tensor(seen)), lambda x: attention(x, k, v, hidden), q)
    check(lambda x: attend(x, a, b, gt.tensor(added)), lambda x: attention(x, k, v, added), q)
    check(lambda x: attend(gt.tensor(q), x, b, is_causal=True), lambda x: attention(q, x, v, future), k)
    check(lambda x: attend(gt.tensor(q), a, x, gt.tensor(seen)), lambda x: attention(q, k, x, hidden), v)


def test_attention_to_nothing_is_zero() -> None:
    seen = gt.tensor([[True, False], [False, False]])
    q = gt.rand(2, 3, requires_grad=True)
    result = F.scaled_dot_product_attention(q, gt.rand(2, 3), gt.ones(2, 4), seen)
    assert result.tolist() == [[1.0] * 4, [0.0] * 4]
    result.sum().backward()
    assert bool(q.grad.isfinite().all())
    with pytest.raises(RuntimeError, match="should not be set when is_causal"):
        F.scaled_dot_product_attention(q, q, q, seen, is_causal=True)
    with pytest.raises(RuntimeError, match="bool or float"):
        F.scaled_dot_product_attention(q, q, q, seen.long())
    assert F.scaled_dot_product_attention(q, q, q, dropout_p=1.0).tolist() == [[0.0] * 3] * 2


# Containers, starting values, utilities -------------------------------------------------------------------------


def test_module_dict_and_parameter_list() -> None:
    layers = nn.ModuleDict({"a": nn.Linear(2, 3), "b": nn.ReLU()})
    layers["c"] = nn.Linear(3, 1)
    assert list(layers) == list(layers.keys()) == ["a", "b", "c"]
    assert "b" in layers
    assert len(layers) == 3
    assert list(layers.state_dict()) == ["a.weight", "a.bias", "c.weight", "c.bias"]
    taken = layers.pop("c")
    del layers["b"]
    layers.update([("d", taken)])
    assert [name for name, _ in layers.items()] == ["a", "d"]
    assert list(layers.values())[1] is taken
    layers.clear()
    assert len(layers) == 0

    values = nn.ParameterList([gt.ones(2), nn.Parameter(gt.zeros(3))])
    values.append(gt.ones(1))
    values[0] = nn.Parameter(gt.full((2,), 5.0))
    assert [name for name, _ in values.named_parameters()] == ["0", "1", "2"]
    assert values[0].tolist() == [5, 5]
    assert values[-1].tolist() == [1]
    assert all(isinstance(value, nn.Parameter) for value in values)
    assert len(values[1:]) == 2
    with pytest.raises(IndexError):
        values[3]


def test_starting_values() -> None:
    assert init.eye_(gt.empty(2, 3)).tolist() == [[1, 0, 0], [0, 1, 0]]
    assert init.calculate_gain("conv2d") == 1
    assert init.calculate_gain("selu") == 0.75
    with pytest.raises(ValueError, match="2 dimensions"):
        init.eye_(gt.empty(2))


@pytest.mark.parametrize("order", [1.0, 2.0, 3.0, math.inf])
def test_gradients_are_clipped_by_their_norm(order: float) -> None:
    arrays = [RNG.standard_normal((3, 4)), RNG.standard_normal(5)]
    tensors = [gt.zeros(a.shape, dtype=gt.float64, requires_grad=True) for a in arrays]
    unused = gt.zeros(2, requires_grad=True)
    for t, a in zip(tensors, arrays, strict=True):
        t.grad = gt.tensor(a)
    norm = np.linalg.norm(np.concatenate([a.ravel() for a in arrays]), order)
    assert_close(nn.utils.clip_grad_norm_([*tensors, unused], 0.5, order), norm)
    for t, a in zip(tensors, arrays, strict=True):
        np.testing.assert_allclose(to_numpy(t.grad), a * 0.5 / (norm + 1e-6), rtol=1e-12)
    # Norms within the bound are not changed.
    before = to_numpy(tensors[0].grad)
    nn.utils.clip_grad_norm_(tensors, 1e3, order)
    np.testing.assert_array_equal(to_numpy(tensors[0].grad), before)
    nn.utils.clip_grad_value_(tensors, 0.01)
    np.testing.assert_array_equal(to_numpy(tensors[0].grad), np.clip(before, -0.01, 0.01))


def test_a_norm_that_is_not_finite() -> None:
    t = gt.zeros(2, requires_grad=True)
    assert nn.utils.clip_grad_norm_(t, 1.0).item() == 0
    t.grad = gt.tensor([math.inf, 0.0])
    with pytest.raises(RuntimeError, match="non-finite"):
        nn.utils.clip_grad_norm_(t, 1.0, error_if_nonfinite=True)
    with pytest.raises(ValueError, match="positive number"):
        nn.utils.clip_grad_norm_(t, 1.0, 0)


def test_parameters_as_a_vector() -> None:
    layer = nn.Linear(2, 3)
    vector = nn.utils.parameters_to_vector(layer.parameters())
    assert vector.shape == (9,)
    assert vector.grad_fn is not None
    nn.utils.vector_to_parameters(gt.arange(9).float(), layer.parameters())
    assert layer.weight.tolist() == [[0, 1], [2, 3], [4, 5]]
    assert layer.bias.tolist() == [6, 7, 8]
    assert layer.weight.requires_grad
    with pytest.raises(RuntimeError, match="9 elements"):
        nn.utils.vector_to_parameters(gt.ones(8), layer.parameters())
    with pytest.raises(TypeError, match="list"):
        nn.utils.vector_to_parameters([1.0], layer.parameters())
