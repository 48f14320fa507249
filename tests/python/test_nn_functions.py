"""Activations, distances and losses against PyTorch's numbers, and the modules that call them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from support import assert_close, to_numpy

import gt
from gt import nn
from gt.nn import functional

STEPS = np.arange(12.0).reshape(3, 4)
X, Y, Z = np.sin(STEPS) * 3, np.cos(STEPS) * 2, np.sin(STEPS * 0.7)
SIGNS = np.where(Z > 0, 1.0, -1.0)
CLASSES = np.array([2, 0, 3])
LABELS = np.array([[1, 3, -1, 0], [0, -1, 2, 2], [-1, 1, 1, 1]])

# Results of PyTorch 2.15: the sum of the results weighted by 1, 2, 3…, and the sum of the absolute values of its
# gradient with respect to the first argument.
OF_PYTORCH: list[tuple[str, tuple[np.ndarray, ...], dict[str, Any], float, float]] = [
    ("mish", (X,), {}, 58.4109063321, 41.7539935638),
    ("celu", (X,), {"alpha": 2.0}, 18.1210897106, 52.1756206391),
    ("selu", (X,), {}, 12.8809706523, 51.2391298772),
    ("elu", (X,), {"alpha": 0.5}, 52.5847336384, 39.8148852061),
    ("hardtanh", (X,), {"min_val": -2.0, "max_val": 0.5}, -52.1269820248, 23.0),
    ("relu6", (X * 4,), {}, 188.2279786159, 14.0),
    ("hardsigmoid", (X,), {}, 35.8895174169, 13.0000003874),
    ("hardswish", (X,), {}, 53.8485468155, 53.8223804796),
    ("softsign", (X,), {}, -4.551092361, 12.1047407507),
    ("tanhshrink", (X,), {}, -12.5216836633, 64.2957438816),
    ("hardshrink", (X,), {}, -20.3563355953, 73.0),
    ("softshrink", (X,), {}, -15.8563355953, 73.0),
    ("threshold", (X,), {"threshold": 0.1, "value": 20.0}, 909.7698484323, 36.0),
    ("glu", (X,), {}, -6.3264007921, 13.9092927152),
    ("rrelu", (X,), {}, 49.5040112815, 45.625),
    ("silu", (X,), {}, 53.8086387733, 40.8667273078),
    ("logsigmoid", (X,), {}, -101.412619537, 41.8148385416),
    ("softplus", (X,), {"beta": 2.0}, 72.1939219693, 35.9293940824),
    ("normalize", (X,), {"p": 3.0}, -4.62216835, 18.4979783315),
    ("pairwise_distance", (X, Y), {}, 30.1981659639, 10.4782710609),
    ("cosine_similarity", (X, Y), {}, 0.3134471576, 2.3448332994),
    ("poisson_nll_loss", (X, np.abs(Y)), {"full": True}, 5.1072991678, 4.8753826013),
    ("gaussian_nll_loss", (X, Y, np.abs(Z)), {"full": True}, 166693.7945708612, 166684.59630921),
    ("margin_ranking_loss", (X, Y, SIGNS), {"margin": 0.3}, 0.7623410524, 0.4166666667),
    ("hinge_embedding_loss", (X, SIGNS), {"margin": 2.0}, 0.8128032332, 0.9166666667),
    ("cosine_embedding_loss", (X, Y, SIGNS[:, 0]), {"margin": 0.1}, 0.2583856651, 0.1451094624),
    ("triplet_margin_loss", (X, Y, Z), {"swap": True}, 2.6483907423, 1.6526994247),
    ("triplet_margin_with_distance_loss", (X, Y, Z), {}, 1.545439869, 1.3709145638),
    ("multi_margin_loss", (X, CLASSES), {"p": 2}, 9.6463736104, 7.8119874437),
    ("multilabel_margin_loss", (X, LABELS), {}, 1.0959845411, 1.0),
    ("multilabel_soft_margin_loss", (X, (SIGNS > 0) * 1.0), {}, 1.1961566964, 0.5113133388),
    ("soft_margin_loss", (X, SIGNS), {}, 1.1961566964, 0.5113133388),
]


@pytest.mark.parametrize(("name", "args", "options", "value", "slope"), OF_PYTORCH, ids=[row[0] for row in OF_PYTORCH])
def test_values_and_gradients_are_pytorch_s(
    name: str, args: tuple[np.ndarray, ...], options: dict[str, Any], value: float, slope: float
) -> None:
    first = gt.tensor(args[0], requires_grad=True)
    result = getattr(functional, name)(first, *map(gt.tensor, args[1:]), **options)
    weights = gt.arange(result.numel(), dtype=gt.float64).reshape(result.shape) + 1
    weighed = (result * weights).sum()
    weighed.backward()
    assert weighed.item() == pytest.approx(value, rel=1e-7)
    assert first.grad.abs().sum().item() == pytest.approx(slope, rel=1e-7)


@pytest.mark.parametrize(
    ("module", "function", "text"),
    [
        (nn.Mish(), "mish", "Mish()"),
        (nn.SELU(), "selu", "SELU()"),
        (nn.CELU(2.0), "celu", "CELU(alpha=2.0)"),
        (nn.ReLU6(), "relu6", "ReLU6()"),
        (nn.Hardtanh(-2.0, 0.5), "hardtanh", "Hardtanh(min_val=-2.0, max_val=0.5)"),
        (nn.Hardswish(), "hardswish", "Hardswish()"),
        (nn.Hardsigmoid(), "hardsigmoid", "Hardsigmoid()"),
        (nn.Softshrink(), "softshrink", "Softshrink(0.5)"),
        (nn.Hardshrink(), "hardshrink", "Hardshrink(0.5)"),
        (nn.Threshold(0.1, 20.0), "threshold", "Threshold(threshold=0.1, value=20.0)"),
        (nn.GLU(), "glu", "GLU(dim=-1)"),
        (nn.Softsign(), "softsign", "Softsign()"),
        (nn.Tanhshrink(), "tanhshrink", "Tanhshrink()"),
        (nn.SiLU(inplace=True), "silu", "SiLU(inplace=True)"),
    ],
)
def test_a_module_calls_its_function(module: nn.Module, function: str, text: str) -> None:
    options = next(row[2] for row in OF_PYTORCH if row[0] == function)
    x = gt.tensor(X) * 4 if function == "relu6" else gt.tensor(X)
    assert_close(module(x.clone()), getattr(functional, function)(x, **options).numpy())
    assert repr(module) == text


@pytest.mark.parametrize(
    "name", ["silu", "mish", "elu", "selu", "celu", "hardtanh", "hardswish", "leaky_relu", "relu6"]
)
def test_written_over_the_input_the_gradient_is_the_same(name: str) -> None:
    function = getattr(functional, name)
    x, y = gt.tensor(X).clone().requires_grad_(), gt.tensor(X).clone().requires_grad_()
    changed = x * 1
    assert function(changed, inplace=True) is changed
    changed.sum().backward()
    function(y * 1).sum().backward()
    assert_close(x.grad, y.grad.numpy())


def test_slopes_that_are_learnt_and_drawn() -> None:
    module = nn.PReLU(4)
    module(gt.tensor(X).float()).sum().backward()
    assert_close(module.weight.grad, gt.tensor(X).float().clamp(max=0).sum(0).numpy())
    assert_close(nn.RReLU().eval()(gt.tensor([-48.0])), [-11.0])
    drawn = nn.RReLU()(-gt.ones(1000))
    assert -1 / 3 <= drawn.min().item() < drawn.max().item() <= -1 / 8


def test_a_draw_of_classes_has_the_gradient_of_their_shares() -> None:
    gt.manual_seed(0)
    scores = gt.zeros(2000, 3, requires_grad=True)
    drawn = functional.gumbel_softmax(scores, hard=True)
    assert_close(drawn.detach().sum(-1), np.ones(2000), tolerance=1e-5)
    assert np.abs(drawn.detach().mean(0).numpy() - 1 / 3).max() < 0.05
    (drawn * gt.arange(3.0)).sum().backward()
    assert scores.grad.abs().sum().item() > 0


def test_bilinear_is_a_form_of_two_vectors() -> None:
    module = nn.Bilinear(4, 3, 2, dtype=gt.float64)
    a, b = gt.randn(5, 4, dtype=gt.float64), gt.randn(5, 3, dtype=gt.float64)
    weight, bias = (p.detach().numpy() for p in module.parameters())
    assert_close(module(a, b), np.einsum("na,kab,nb->nk", a.numpy(), weight, b.numpy()) + bias)


def test_the_root_mean_square_is_one() -> None:
    module = nn.RMSNorm(4, eps=0.0, dtype=gt.float64)
    assert_close(
        module(gt.tensor(X)), gt.tensor(X).numpy() / np.sqrt((gt.tensor(X).numpy() ** 2).mean(-1, keepdims=True))
    )


def test_losses_reduce_as_they_are_told() -> None:
    each = nn.SoftMarginLoss(reduction="none")(gt.tensor(X), gt.tensor(SIGNS))
    assert each.shape == (3, 4)
    assert_close(nn.SoftMarginLoss(reduction="sum")(gt.tensor(X), gt.tensor(SIGNS)), each.sum().item())
    assert_close(
        nn.TripletMarginLoss(p=1.0)(gt.tensor(X), gt.tensor(Y), gt.tensor(Z)),
        functional.triplet_margin_loss(gt.tensor(X), gt.tensor(Y), gt.tensor(Z), p=1.0).item(),
    )
    assert_close(
        nn.MultiMarginLoss(weight=gt.ones(4).double())(gt.tensor(X), gt.tensor(CLASSES)),
        nn.MultiMarginLoss()(gt.tensor(X), gt.tensor(CLASSES)).item(),
    )
    assert nn.MultiLabelMarginLoss()(gt.tensor(X)[0], gt.tensor(LABELS)[0]).shape == ()


def test_invalid_operands_are_refused() -> None:
    with pytest.raises(RuntimeError, match="Halving dimension must be even, but dimension -1 is size 3"):
        functional.glu(gt.ones(3))
    with pytest.raises(ValueError, match="var has negative entry/entries"):
        functional.gaussian_nll_loss(gt.tensor(X), gt.tensor(Y), -1.0)
    with pytest.raises(ValueError, match="margin must be greater than 0"):
        functional.triplet_margin_with_distance_loss(gt.tensor(X), gt.tensor(Y), gt.tensor(Z), margin=0.0)


def test_losses_of_one_sample_and_one_class() -> None:
    assert functional.multi_margin_loss(gt.tensor(2.0), gt.tensor(0)).item() == 0
    assert functional.multi_margin_loss(gt.tensor([2.0]), gt.tensor([0]), reduction="none").shape == (1,)
    assert functional.multilabel_margin_loss(gt.tensor(2.0), gt.tensor([0]), reduction="none").shape == ()
    with pytest.raises(ValueError, match="abc is not a valid value for reduction"):
        functional.multi_margin_loss(gt.ones(5, 4), gt.ones(5), reduction="abc")
    with pytest.raises(RuntimeError, match=r"Expected target size \[5\], but got \[5, 4\]"):
        functional.multi_margin_loss(gt.ones(5, 4), gt.ones(5, 4).long())
    with pytest.raises(RuntimeError, match="Expected non-empty vector or matrix"):
        functional.multilabel_margin_loss(gt.ones(5, 0), gt.ones(5, 0).long())


def test_batches_of_nothing() -> None:
    assert functional.batch_norm(gt.ones(0, 3), None, None, gt.ones(3), gt.ones(3), training=True).shape == (0, 3)
    assert functional.local_response_norm(gt.ones(0, 3, 2), 2).shape == (0, 3, 2)
    assert functional.pixel_shuffle(gt.ones(1, 4, 0, 2), 2).shape == (1, 1, 0, 4)
    with pytest.raises(RuntimeError, match="Expected HxW to be greater than 0, got 0"):
        functional.group_norm(gt.ones(1, 2, 0), 1)


def test_local_responses_of_integers_have_whole_means() -> None:
    x = gt.arange(12).reshape(1, 4, 3)
    squares = np.pad(np.arange(12).reshape(4, 3) ** 2, ((1, 1), (0, 0)))
    means = (squares[:-2] + squares[1:-1] + squares[2:]) // 3
    found = functional.local_response_norm(x, 3, alpha=0.5, beta=1.0, k=2.0)
    assert_close(found[0], np.arange(12).reshape(4, 3) / (means * 0.5 + 2), tolerance=1e-6)


def test_a_shuffle_by_one_is_a_copy() -> None:
    x = gt.zeros(1, 4, 2, 2)
    functional.pixel_shuffle(x, 1).fill_(1)
    functional.pixel_unshuffle(x, 1).fill_(1)
    assert x.sum().item() == 0


def test_the_cosine_of_vectors_that_are_broadcast() -> None:
    x, y = gt.tensor([[[1.0, 0.0]]]), gt.tensor([[[1.0, 1.0]], [[2.0, 0.0]]])
    # An operand that is broadcast along the axis counts with its broadcast length.
    assert_close(functional.cosine_similarity(x, y, dim=0), [[3 / 10**0.5, 0.0]], "float32", 1e-6)


@pytest.mark.parametrize(
    ("mode", "rows"),
    [
        ("bilinear", [[3.2857143, 5.0714288, 6.8571424], [12.7142859, 14.5, 16.2857151]]),
        ("bicubic", [[2.6670318, 4.6231036, 6.5791755], [12.5439281, 14.5, 16.4560719]]),
        ("lanczos", [[2.4141159, 4.4296141, 6.4451127], [12.4845018, 14.5, 16.5154991]]),
    ],
)
def test_antialiasing_weights_all_elements_under_a_result(mode: str, rows: list[list[float]]) -> None:
    image = gt.arange(30.0, dtype=gt.float64).reshape(1, 1, 5, 6)
    small = functional.interpolate(image, size=(3, 3), mode=mode, antialias=True)
    assert_close(small[0, 0, :2], rows, "float64", 1e-5)
    # Antialiasing has no effect when upsampling.
    if mode == "bilinear":
        large = functional.interpolate(image, size=(9, 8), mode=mode, antialias=True)
        assert_close(large, functional.interpolate(image, size=(9, 8), mode=mode).numpy(), "float64", 1e-12)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("wanted", [70, 333])
def test_a_long_axis_is_resized_from_the_elements_nearby(mode: str, wanted: int) -> None:
    size, slope = 150, -0.75
    row = np.sin(np.arange(size) ** 1.3)
    at = (np.arange(wanted) + 0.5) * size / wanted - 0.5
    at = np.maximum(at, 0) if mode == "bilinear" else at
    low = np.floor(at).astype(int)
    want = np.zeros(wanted)
    for tap in range(-1, 3):
        x = np.abs(at - low - tap)
        cubic = ((slope + 2) * x - slope - 3) * x * x + 1, ((slope * x - 5 * slope) * x + 8 * slope) * x - 4 * slope
        weight = np.where(x <= 1, *cubic) if mode == "bicubic" else np.maximum(1 - x, 0)
        want += weight * row[np.clip(low + tap, 0, size - 1)]
    image = gt.tensor(np.tile(row, (1, 2, 3, 1)), requires_grad=True)
    for turned in (False, True):
        given, shape = (image.mT, (wanted, 3)) if turned else (image, (3, wanted))
        large = functional.interpolate(given, size=shape, mode=mode)
        assert_close((large.mT if turned else large)[0, 1, 2], want, "float64", 1e-12)
    # The weights of each result sum to 1.
    (slopes,) = gt.autograd.grad(large.sum(), image)
    assert slopes.sum().item() == pytest.approx(2 * 3 * wanted)


def test_antialiasing_of_other_modes_is_refused() -> None:
    with pytest.raises(ValueError, match="Anti-alias option is restricted to bilinear, bicubic, and lanczos modes"):
        functional.interpolate(gt.ones(1, 1, 4), size=2, mode="linear", antialias=True)
    with pytest.raises(ValueError, match="Lanczos mode requires antialias=True"):
        functional.interpolate(gt.ones(1, 1, 4, 4), size=2, mode="lanczos")


def grid_of(*points: tuple[float, float]) -> gt.Tensor:
    return gt.tensor([[list(points)]], dtype=gt.float64)


IMAGE = np.arange(12.0).reshape(1, 1, 3, 4) ** 2


@pytest.mark.parametrize(
    ("options", "want"),
    [
        # Pixel centres, a point between four pixels, and one outside.
        ({"align_corners": True}, [0, 121, 30.5, 0]),
        ({"align_corners": True, "padding_mode": "border"}, [0, 121, 30.5, 0]),
        ({"align_corners": False}, [0, 30.25, 30.5, 0]),
        ({"align_corners": False, "padding_mode": "reflection"}, [0, 121, 30.5, 9]),
        ({"align_corners": True, "mode": "nearest"}, [0, 121, 36, 0]),
    ],
)
def test_a_grid_says_where_an_image_is_looked_at(options: dict[str, Any], want: list[float]) -> None:
    points = grid_of((-1, -1), (1, 1), (0, 0), (-3, -1))
    result = functional.grid_sample(gt.tensor(IMAGE), points, **options)
    assert_close(result[0, 0, 0], want, "float64", 1e-12)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_pixels_that_are_not_looked_at_may_be_nan(mode: str) -> None:
    image = np.ones((1, 2, 9, 9))
    image[:, :, 0] = image[:, :, :, 0] = math.nan
    points = grid_of((0.4, 0.3), (-5, 7))
    result = functional.grid_sample(gt.tensor(image), points, mode, align_corners=True)
    assert_close(result, [[[[1, 0]], [[1, 0]]]], "float64", 1e-12)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_gradients_of_a_grid_and_its_image(mode: str, padding: str) -> None:
    image = gt.tensor(np.sin(IMAGE), requires_grad=True)
    points = gt.tensor(np.sin(STEPS.reshape(1, 2, 3, 2)) * 1.4, requires_grad=True)
    sample = lambda *args: functional.grid_sample(*args, mode, padding, align_corners=False)  # noqa: E731
    assert gt.autograd.gradcheck(sample, (image, points))


def test_an_affine_grid_turns_an_image() -> None:
    quarter = gt.tensor([[[0.0, -1.0, 0.0], [1.0, 0.0, 0.0]]], dtype=gt.float64)
    image = gt.tensor(IMAGE[..., :3])
    for corners in (True, False):
        grid = functional.affine_grid(quarter, (1, 1, 3, 3), align_corners=corners)
        turned = functional.grid_sample(image, grid, align_corners=corners)
        assert_close(turned[0, 0], np.rot90(IMAGE[0, 0, :, :3]), "float64", 1e-12)
    with pytest.warns(UserWarning, match="align_corners=False"):
        functional.affine_grid(quarter, (1, 1, 3, 3))
    with pytest.raises(ValueError, match="Expected a batch of 3D affine matrices of shape Nx3x4"):
        functional.affine_grid(quarter, (1, 1, 3, 3, 3), align_corners=True)
    with pytest.raises(RuntimeError, match="expected grid to have size 2 in last dimension"):
        functional.grid_sample(image, gt.zeros(1, 2, 2, 3, dtype=gt.float64), align_corners=True)
    with pytest.raises(ValueError, match="expected mode to be 'bilinear', 'nearest' or 'bicubic', but got: 'x'"):
        functional.grid_sample(image, grid, mode="x")


def test_losses_of_a_linear_layer() -> None:
    x, w = gt.tensor(np.sin(STEPS)), gt.tensor(np.cos(STEPS.reshape(3, 4)))
    scores = functional.linear(x, w, gt.arange(3.0, dtype=gt.float64))
    options = {"linear_bias": gt.arange(3.0, dtype=gt.float64), "label_smoothing": 0.1}
    got = functional.linear_cross_entropy(x, w, gt.tensor(CLASSES % 3), **options)
    want = functional.cross_entropy(scores, gt.tensor(CLASSES % 3), label_smoothing=0.1)
    assert got.item() == want.item()
    with pytest.raises(RuntimeError, match="expected equal input and linear_weight last dimensions"):
        functional.linear_cross_entropy(x, gt.ones(3, 5, dtype=gt.float64), gt.tensor(CLASSES))
    with pytest.raises(NotImplementedError, match="options are not there"):
        functional.linear_cross_entropy(x, w, gt.tensor(CLASSES), options=object())


@pytest.mark.parametrize("name", ["relu", "elu", "celu", "selu", "leaky_relu", "hardtanh"])
def test_functions_that_write_over_their_input(name: str) -> None:
    x = gt.tensor(X)
    want = getattr(functional, name)(x).tolist()
    assert getattr(functional, name + "_")(x) is x
    assert x.tolist() == want


def test_arguments_are_updated_however_they_are_passed() -> None:
    x, mean, var = gt.tensor([[1.0, 4.0], [3.0, 8.0]]), gt.zeros(2), gt.ones(2)
    functional.batch_norm(x, running_var=var, running_mean=mean, training=True, momentum=gt.tensor(0.5))
    assert_close(mean, [1.0, 3.0])
    assert_close(var, [1.5, 4.5])
    gt.batch_norm(x, None, None, mean, var, False, 0.1, 1e-5, False)
    assert_close(mean, [1.0, 3.0])


def test_rows_are_rescaled_in_place_and_get_the_gradient_of_the_look_up() -> None:
    weight = gt.tensor([[3.0, 4.0], [0.3, 0.4], [6.0, 8.0]], requires_grad=True)
    functional.embedding(gt.tensor([0, 1, 0]), weight, max_norm=1.0, scale_grad_by_freq=True).sum().backward()
    assert_close(weight, [[0.6, 0.8], [0.3, 0.4], [6.0, 8.0]], tolerance=1e-6)
    assert weight.grad.tolist() == [[1.0, 1.0], [1.0, 1.0], [0.0, 0.0]]


def test_what_drops_nothing_is_the_tensor_itself() -> None:
    x = gt.ones(3, requires_grad=True)
    assert functional.dropout(x, training=False) is x
    assert functional.dropout(x, 0.5, False, True) is x
    assert gt.dropout(x, 0.0, True) is x


@pytest.mark.parametrize(
    "function",
    [
        functional.hardtanh,
        functional.relu6,
        functional.hardsigmoid,
        functional.leaky_relu,
        lambda x: functional.leaky_relu(x, 0.0),
        gt.nan_to_num,
    ],
    ids=["hardtanh", "relu6", "hardsigmoid", "leaky_relu", "leaky_relu of slope 0", "nan_to_num"],
)
def test_values_do_not_depend_on_whether_gradients_are_wanted(function: Any) -> None:
    edges = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 3.0, -3.0, 6.0, 7.0, 1e30, -1e30, math.inf, -math.inf, math.nan]
    x = gt.tensor(edges)
    with_gradient = function(x.clone().requires_grad_()).detach()
    np.testing.assert_array_equal(to_numpy(function(x)), to_numpy(with_gradient))


@pytest.mark.parametrize("loss", [functional.smooth_l1_loss, functional.huber_loss])
def test_robust_losses_have_the_slope_of_their_ends_at_infinite_differences(loss: Any) -> None:
    x = gt.tensor([math.inf, -math.inf, 0.25, -3.0], requires_grad=True)
    values = loss(x, gt.zeros(4), reduction="none")
    assert values.tolist() == [math.inf, math.inf, 0.03125, 2.5]
    values.sum().backward()
    assert x.grad.tolist() == [1.0, -1.0, 0.25, -1.0]


@pytest.mark.parametrize("pad", [-1, 0, 1, 3])
def test_a_convolution_of_time_first_sequences_is_a_sum_of_products(pad: int) -> None:
    rng = np.random.default_rng(0)
    x, weight, bias = rng.standard_normal((5, 2, 3)), rng.standard_normal((3, 3, 4)), rng.standard_normal(4)
    padded = np.pad(x, ((pad, pad), (0, 0), (0, 0))) if pad >= 0 else x[-pad:pad]
    want = sum(padded[k : len(padded) - 2 + k] @ weight[k] for k in range(3)) + bias
    operands = [gt.tensor(array, requires_grad=True) for array in (x, weight, bias)]
    assert_close(gt.conv_tbc(*operands, pad), want, "float64", 1e-12)
    assert gt.autograd.gradcheck(lambda *given: gt.conv_tbc(*given, pad), operands)


def test_a_convolution_of_time_first_sequences_checks_its_operands() -> None:
    x, weight, bias = gt.ones(5, 2, 3, dtype=gt.int64), gt.ones(3, 3, 4, dtype=gt.int64), gt.ones(4)
    assert functional.conv_tbc(x, weight, bias).unique().tolist() == [10]
    assert gt.conv_tbc(x[:2], weight, bias).shape == (0, 2, 4)
    for operands, message in (
        ((x[0], weight, bias), "Input must have 3 dims"),
        ((x, weight[0], bias), "Weight tensor must have 3 dims"),
        ((x, weight, gt.ones(4, 1)), "Bias must be 1-D"),
        ((x, weight, gt.ones(3)), "Bias size must equal dim 2"),
        ((x, weight[:, :2], bias), r"Input dim 2 \(input channels\) is not == dim 1"),
        ((x[:1], weight, bias), r"negative dimension -1: \[-1, 2, 4\]"),
        ((x, weight.float(), bias), "one dtype"),
    ):
        with pytest.raises(RuntimeError, match=message):
            gt.conv_tbc(*operands)
    with pytest.raises(TypeError, match="argument 'bias'"):
        gt.conv_tbc(x, weight, None)
