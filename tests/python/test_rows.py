"""Row-wise ops: softmax, norms, losses over classes and attention, with their gradients.

Each is compared with its definition in NumPy, in every floating dtype and for lengths on both sides of the kernels'
thresholds; first and second derivatives are compared with central differences.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special
from support import FLOATS, assert_close, draw, numeric_gradient, quantized, to_gt, to_numpy

import gt
from gt._functions import _recurrent
from gt.nn import functional as F  # noqa: N812 (PyTorch's name)

RNG = np.random.default_rng(3)
# Lengths: one element, short rows, rows of a few partial sums, long rows, and rows of several blocks.
SIZES = [(1, 1), (5, 10), (3, 63), (70, 64), (2, 513), (3, 9000), (0, 4), (3, 2, 7)]
LOGITS = RNG.standard_normal((6, 5))
CLASSES = np.array([1, 0, 4, 4, -100, 2])
CLASS_WEIGHTS = RNG.uniform(0.5, 2, 5)


def check_gradients(call: Callable[..., gt.Tensor], arrays: list[np.ndarray], twice: bool = True) -> None:
    """Compares first and second derivatives with central differences."""
    weights = np.random.default_rng(7).uniform(0.5, 1.5, tuple(call(*map(gt.tensor, arrays)).shape))

    def value(*xs: np.ndarray) -> np.ndarray:
        return to_numpy(call(*map(gt.tensor, xs))) * weights

    def first(*xs: np.ndarray, which: int, create_graph: bool) -> tuple[list[gt.Tensor], gt.Tensor]:
        leaves = [gt.tensor(x, requires_grad=True) for x in xs]
        (grad,) = gt.autograd.grad(
            (call(*leaves) * gt.tensor(weights)).sum(), [leaves[which]], create_graph=create_graph
        )
        return leaves, grad

    for which in range(len(arrays)):
        leaves, grad = first(*arrays, which=which, create_graph=False)
        np.testing.assert_allclose(to_numpy(grad), numeric_gradient(value, arrays, which), rtol=2e-5, atol=2e-6)
        if not twice:
            continue
        leaves, again = first(*arrays, which=which, create_graph=True)
        np.testing.assert_allclose(to_numpy(again), to_numpy(grad), rtol=1e-9, atol=1e-12)
        mix = np.random.default_rng(8).uniform(0.5, 1.5, arrays[which].shape)
        if again.requires_grad:  # The gradient of a bias does not depend on the operands.
            (again * gt.tensor(mix)).sum().backward()
        for other, leaf in enumerate(leaves):

            def mixed(*xs: np.ndarray, which: int = which, mix: np.ndarray = mix) -> np.ndarray:
                return to_numpy(first(*xs, which=which, create_graph=False)[1]) * mix

            wanted = numeric_gradient(mixed, arrays, other, 1e-5)
            got = np.zeros(arrays[other].shape) if leaf.grad is None else to_numpy(leaf.grad)
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


# Softmax --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_values_and_gradients(name: str, size: tuple[int, ...], dtype: str) -> None:
    rng = np.random.default_rng(size)
    array, upstream = draw(rng, size, dtype, -5, 5), draw(rng, size, dtype)
    t = to_gt(array, dtype).requires_grad_()
    out = getattr(t, name)(-1)
    wanted = getattr(scipy.special, name)(array.astype(np.float64), -1) if array.size else array
    assert_close(out, wanted, dtype)
    out.backward(to_gt(upstream, dtype))
    g = upstream.astype(np.float64)
    if name == "softmax":
        wanted = wanted * (g - (g * wanted).sum(-1, keepdims=True))
    else:
        wanted = g - np.exp(wanted) * g.sum(-1, keepdims=True)
    # The gradient is computed from the rounded result.
    assert_close(t.grad, wanted, dtype, {"float16": 2e-2, "bfloat16": 2e-1, "float32": 2e-4}.get(dtype))


@pytest.mark.parametrize("dim", [0, 1, 2, -3])
def test_softmax_along_any_axis_of_any_layout(dim: int) -> None:
    array = RNG.standard_normal((4, 6, 5))
    assert_close(gt.tensor(array).softmax(dim), scipy.special.softmax(array, dim))
    turned = gt.tensor(array).transpose(0, 2)[1:, ::2]
    assert_close(turned.log_softmax(dim), scipy.special.log_softmax(array.transpose(2, 1, 0)[1:, ::2], dim))
    check_gradients(lambda t: t.softmax(dim), [array[:2, :2, :3]])
    check_gradients(lambda t: t.log_softmax(dim), [array[:2, :2, :3]])


def test_softmax_of_scalars_and_in_another_dtype() -> None:
    assert gt.tensor(3.0).softmax(0).item() == 1
    assert gt.tensor([1, 1]).softmax(0, dtype=gt.float32).tolist() == [0.5, 0.5]
    assert F.softmax(gt.zeros(2, dtype=gt.float16), 0, dtype=gt.float64).dtype == gt.float64
    with pytest.raises(IndexError, match="Dimension out of range"):
        gt.zeros(2, 2).softmax(2)


@pytest.mark.parametrize("columns", [3, 700])
def test_softmax_of_what_is_not_finite(columns: int) -> None:
    rows = np.zeros((4, columns))
    rows[0, 1] = -math.inf
    rows[1, :] = -math.inf
    rows[2, 1] = math.inf
    rows[3, 1] = math.nan
    with np.errstate(all="ignore"):
        got = to_numpy(gt.tensor(rows).softmax(-1))
    np.testing.assert_allclose(got[0], np.where(np.arange(columns) == 1, 0, 1 / (columns - 1)), rtol=1e-12)
    assert np.isnan(got[1:]).all()
    assert to_numpy(gt.tensor(rows).log_softmax(-1))[0, 1] == -math.inf


# Steps of a long short-term memory ------------------------------------------------------------------------------------


def lstm_cell(gates: np.ndarray, cell: np.ndarray) -> np.ndarray:
    """The hidden state and the cell state after a step, side by side."""
    opening, forget, candidate, output = np.split(gates, 4, -1)
    after = scipy.special.expit(forget) * cell + scipy.special.expit(opening) * np.tanh(candidate)
    return np.concatenate([scipy.special.expit(output) * np.tanh(after), after], -1)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("size", [(3,), (0, 4), (5, 7), (2, 3, 65)])
def test_lstm_cell(size: tuple[int, ...], dtype: str) -> None:
    rng = np.random.default_rng(len(size))
    gates, cell = draw(rng, (*size[:-1], 4 * size[-1]), dtype, -5, 5), draw(rng, size, dtype)
    hidden, after = _recurrent.lstm_cell(to_gt(gates, dtype), to_gt(cell, dtype))
    wanted = lstm_cell(gates.astype(np.float64), cell.astype(np.float64))
    assert_close(gt.cat([hidden, after], -1), wanted, dtype)


def test_lstm_cell_of_any_layout_has_gradients_and_batches() -> None:
    gates, cell = RNG.standard_normal((8, 3, 2)), RNG.standard_normal((3, 2, 2))
    turned, state = gt.tensor(gates).transpose(0, 2), gt.tensor(cell).transpose(0, 1)
    both = gt.cat(_recurrent.lstm_cell(turned, state), -1)
    wanted = lstm_cell(gates.transpose(2, 1, 0), cell.transpose(1, 0, 2))
    assert_close(both, wanted)
    step = lambda gates, cell: gt.cat(_recurrent.lstm_cell(gates, cell), -1)  # noqa: E731
    assert_close(gt.vmap(step)(turned, state), wanted)
    assert_close(
        gt.vmap(step, (1, None))(turned, state[:, 0]), np.stack([lstm_cell(gates[:, i].T, cell[0]) for i in range(3)])
    )
    check_gradients(step, [gates.T[0], cell[:, 0]])


def test_lstm_cell_names_operands_that_do_not_fit() -> None:
    with pytest.raises(RuntimeError, match="lstm_cell: the shape or dtype of operand 0 does not fit the others"):
        _recurrent.lstm_cell(gt.zeros(2, 11), gt.zeros(2, 3))
    with pytest.raises(RuntimeError, match="does not fit the others"):
        _recurrent.lstm_cell(gt.zeros(3, 12), gt.zeros(2, 3))
    # Dtypes are promoted, as the cell state of mixed precision is.
    assert _recurrent.lstm_cell(gt.zeros(2, 12), gt.zeros(2, 3, dtype=gt.float64))[0].dtype == gt.float64


# Norms ----------------------------------------------------------------------------------------------------------------


def layer_norm(a: np.ndarray, eps: float = 1e-5) -> np.ndarray:
    return (a - a.mean(-1, keepdims=True)) / np.sqrt(a.var(-1, keepdims=True) + eps)


def rms_norm(a: np.ndarray, eps: float = 1e-5) -> np.ndarray:
    return a / np.sqrt((a * a).mean(-1, keepdims=True) + eps)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_norm_values(size: tuple[int, ...], dtype: str) -> None:
    rng = np.random.default_rng(size)
    array, weight, bias = (draw(rng, shape, dtype) for shape in (size, size[-1:], size[-1:]))
    t, w, b = (to_gt(x, dtype) for x in (array, weight, bias))
    wide = array.astype(np.float64)
    assert_close(F.layer_norm(t, size[-1:], w, b), layer_norm(wide) * weight + bias, dtype)
    assert_close(F.layer_norm(t, size[-1:]), layer_norm(wide), dtype)
    assert_close(F.rms_norm(t, size[-1:], w, 1e-5), rms_norm(wide) * weight, dtype)


@pytest.mark.parametrize("rows", [1, 40, 1300])
def test_norm_gradients_over_many_rows(rows: int) -> None:
    """Checks gradients of the weights, which are sums over many pieces of the rows."""
    array, upstream = RNG.standard_normal((2, rows, 70))
    weight, bias = RNG.standard_normal((2, 70))
    leaves = [gt.tensor(x.astype(np.float32), requires_grad=True) for x in (array, weight, bias)]
    F.layer_norm(leaves[0], (70,), *leaves[1:]).backward(gt.tensor(upstream.astype(np.float32)))
    normal, h = layer_norm(array), upstream * weight
    rest = h - h.mean(-1, keepdims=True) - normal * (h * normal).mean(-1, keepdims=True)
    assert_close(leaves[0].grad, rest / np.sqrt(array.var(-1, keepdims=True) + 1e-5), tolerance=1e-4)
    assert_close(leaves[1].grad, (upstream * normal).sum(0), tolerance=1e-3)
    assert_close(leaves[2].grad, upstream.sum(0), tolerance=1e-3)


def test_norm_gradients_once_and_twice() -> None:
    array, weight, bias = RNG.standard_normal((3, 4)), RNG.standard_normal(4), RNG.standard_normal(4)
    check_gradients(lambda t, w, b: F.layer_norm(t, (4,), w, b), [array, weight, bias])
    check_gradients(lambda t: F.layer_norm(t, (3, 4)), [array])
    check_gradients(lambda t, b: F.layer_norm(t, (4,), None, b), [array, bias])
    check_gradients(lambda t, w: F.rms_norm(t, (4,), w), [array, weight])
    check_gradients(lambda t, w: F.rms_norm(t, (3, 4), w), [array, array + 1])


def test_norm_refuses_shapes_that_do_not_fit() -> None:
    with pytest.raises(RuntimeError, match=r"Given normalized_shape=\[4\], expected input with shape \[\*, 4\]"):
        F.layer_norm(gt.zeros(2, 3), (4,))
    with pytest.raises(RuntimeError, match="Expected weight to be of same shape as normalized_shape"):
        F.layer_norm(gt.zeros(2, 3), (3,), gt.ones(2))
    with pytest.raises(RuntimeError, match="not implemented for 'Long'"):
        F.layer_norm(gt.zeros(2, 3, dtype=gt.int64), (3,))


# Losses ---------------------------------------------------------------------------------------------------------------


def cross_entropy(
    scores: np.ndarray,
    classes: np.ndarray,
    weight: np.ndarray | None = None,
    ignore: int = -100,
    reduction: str = "mean",
    smoothing: float = 0.0,
) -> np.ndarray:
    logs = scipy.special.log_softmax(scores, -1)
    weight = np.ones(scores.shape[-1]) if weight is None else weight
    counts = classes != ignore
    index = np.where(counts, classes, 0)
    shares = np.where(counts, weight[index], 0.0)
    losses = -shares * np.take_along_axis(logs, index[:, None], -1)[:, 0] * (1 - smoothing)
    losses = losses - smoothing / len(weight) * counts * (weight * logs).sum(-1)
    return {"mean": losses.sum() / shares.sum(), "sum": losses.sum(), "none": losses}[reduction]


OPTIONS: list[dict[str, Any]] = [
    {},
    {"weight": CLASS_WEIGHTS},
    {"ignore": 4},
    {"smoothing": 0.2},
    {"weight": CLASS_WEIGHTS, "smoothing": 0.3, "ignore": 0},
]


def _as_gt(options: dict[str, Any]) -> dict[str, Any]:
    names = {"ignore": "ignore_index", "smoothing": "label_smoothing"}
    return {names.get(name, name): gt.tensor(value) if name == "weight" else value for name, value in options.items()}


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_cross_entropy_and_its_gradients(options: dict[str, Any], reduction: str) -> None:
    classes = np.where(CLASSES == -100, options.get("ignore", -100), CLASSES)

    def loss(t: gt.Tensor) -> gt.Tensor:
        return F.cross_entropy(t, gt.tensor(classes), reduction=reduction, **_as_gt(options))

    assert_close(loss(gt.tensor(LOGITS)), cross_entropy(LOGITS, classes, reduction=reduction, **options))
    check_gradients(loss, [LOGITS])
    if "smoothing" in options:
        return

    def of_logs(t: gt.Tensor) -> gt.Tensor:
        return F.nll_loss(t.log_softmax(-1), gt.tensor(classes), reduction=reduction, **_as_gt(options))

    assert_close(of_logs(gt.tensor(LOGITS)), cross_entropy(LOGITS, classes, reduction=reduction, **options))
    check_gradients(of_logs, [LOGITS])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("size", [(1, 1), (300, 10), (7, 63), (5, 1000), (3, 9000)], ids=str)
def test_cross_entropy_of_any_size_and_dtype(size: tuple[int, int], dtype: str) -> None:
    rng = np.random.default_rng(size)
    scores, classes = draw(rng, size, dtype, -5, 5), rng.integers(0, size[1], size[0])
    t = to_gt(scores, dtype).requires_grad_()
    loss = F.cross_entropy(t, gt.tensor(classes))
    assert_close(loss, cross_entropy(scores.astype(np.float64), classes), dtype)
    loss.backward()
    wanted = scipy.special.softmax(scores.astype(np.float64), -1) - np.eye(size[1])[classes]
    assert_close(t.grad, wanted / size[0], dtype)


def test_cross_entropy_of_pictures() -> None:
    scores, classes = RNG.standard_normal((2, 5, 3, 4)), RNG.integers(0, 5, (2, 3, 4))
    flat = np.moveaxis(scores, 1, -1).reshape(-1, 5)
    got = F.cross_entropy(gt.tensor(scores), gt.tensor(classes), reduction="none")
    assert_close(got, cross_entropy(flat, classes.ravel(), reduction="none").reshape(2, 3, 4))
    check_gradients(lambda t: F.cross_entropy(t, gt.tensor(classes)), [scores], twice=False)


def test_cross_entropy_of_no_sample_that_counts() -> None:
    scores = gt.zeros(2, 3, requires_grad=True)
    ignored = gt.tensor([-100, -100])
    assert F.cross_entropy(scores, ignored).isnan().item()
    assert F.cross_entropy(scores, ignored, reduction="sum").item() == 0
    assert F.cross_entropy(gt.zeros(0, 3), gt.zeros(0, dtype=gt.int64)).isnan().item()


def test_cross_entropy_says_what_is_wrong() -> None:
    loss = F.cross_entropy(gt.zeros(2, 3), gt.tensor([0, 3]))
    with pytest.raises(IndexError, match="3 is out of bounds"):
        loss.item()
    with pytest.raises(IndexError, match="-1 is out of bounds"):
        F.nll_loss(gt.zeros(2, 3), gt.tensor([0, -1]), reduction="none").tolist()
    with pytest.raises(ValueError, match="median is not a valid value for reduction"):
        F.cross_entropy(gt.zeros(2, 3), gt.tensor([0, 1]), reduction="median")
    with pytest.raises(RuntimeError, match=r"label_smoothing must be between 0\.0 and 1\.0"):
        F.cross_entropy(gt.zeros(2, 3), gt.tensor([0, 1]), label_smoothing=1.5)
    with pytest.raises(RuntimeError, match="derivative for 'weight' is not implemented"):
        F.cross_entropy(gt.zeros(2, 3), gt.tensor([0, 1]), gt.ones(3, requires_grad=True))
    with pytest.warns(UserWarning, match="use reduction='sum'"):
        assert F.nll_loss(gt.ones(2, 3), gt.tensor([0, 1]), size_average=False).item() == -2


# Attention ------------------------------------------------------------------------------------------------------------


def attention(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, added: Any = 0.0, causal: bool = False, scale: float | None = None
) -> np.ndarray:
    scores = q @ np.swapaxes(k, -1, -2) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale) + added
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -math.inf)
    return scipy.special.softmax(scores, -1) @ v


def _operands(*sizes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(sizes[0])
    return [rng.standard_normal(size) for size in sizes]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "sizes",
    [
        ((5, 4), (5, 4), (5, 4)),
        ((2, 3, 7, 4), (2, 3, 9, 4), (2, 3, 9, 6)),
        ((2, 200, 16), (2, 130, 16), (2, 130, 8)),
        ((3, 1, 65, 8), (2, 65, 8), (65, 5)),
    ],
    ids=str,
)
def test_attention_values_and_gradients(sizes: tuple[tuple[int, ...], ...], causal: bool) -> None:
    """Checks numbers of queries on both sides of the block size, with broadcast leading axes."""
    q, k, v = _operands(*sizes)
    leaves = [gt.tensor(x, requires_grad=True) for x in (q, k, v)]
    out = F.scaled_dot_product_attention(*leaves, is_causal=causal)
    assert_close(out, attention(q, k, v, causal=causal))
    upstream = np.random.default_rng(1).standard_normal(out.shape)
    out.backward(gt.tensor(upstream))
    plain = [gt.tensor(x, requires_grad=True) for x in (q, k, v)]
    scores = plain[0] @ plain[1].mT / math.sqrt(q.shape[-1])
    if causal:
        scores = scores.masked_fill(gt.tensor(~np.tri(*scores.shape[-2:], dtype=bool)), -math.inf)
    (scores.softmax(-1) @ plain[2]).backward(gt.tensor(upstream))
    for leaf, wanted in zip(leaves, plain, strict=True):
        np.testing.assert_allclose(to_numpy(leaf.grad), to_numpy(wanted.grad), rtol=1e-9, atol=1e-10)


def test_attention_gradients_once_and_twice() -> None:
    q, k, v = _operands((2, 3, 2), (2, 4, 2), (2, 4, 3))
    added = np.random.default_rng(2).standard_normal((3, 4))
    check_gradients(lambda a, b, c: F.scaled_dot_product_attention(a, b, c, scale=0.7), [q, k, v])
    check_gradients(lambda a, b, c: F.scaled_dot_product_attention(a, b, c, is_causal=True), [q, k, v])
    check_gradients(F.scaled_dot_product_attention, [q, k, v, added])


@pytest.mark.parametrize("shape", [(130, 70), (1, 70), (130, 1), (3, 1, 130, 70), (2, 130, 70)], ids=str)
def test_attention_adds_masks_of_any_shape(shape: tuple[int, ...]) -> None:
    q, k, v = _operands((3, 2, 130, 8), (3, 2, 70, 8), (3, 2, 70, 8))
    added = np.random.default_rng(4).standard_normal(shape)
    got = F.scaled_dot_product_attention(*map(gt.tensor, (q, k, v, added)))
    assert_close(got, attention(q, k, v, added))
    turned = gt.tensor(added.swapaxes(-1, -2).copy()).mT
    assert_close(F.scaled_dot_product_attention(*map(gt.tensor, (q, k, v)), turned), attention(q, k, v, added))
    seen = added > -1
    got = F.scaled_dot_product_attention(*map(gt.tensor, (q, k, v, seen)))
    with np.errstate(invalid="ignore"):
        wanted = np.nan_to_num(attention(q, k, v, np.where(seen, 0.0, -math.inf)))
    assert_close(got, wanted)


def test_attention_of_heads_that_share_keys() -> None:
    q, k, v = _operands((2, 6, 5, 4), (2, 2, 5, 4), (2, 2, 5, 4))
    wanted = attention(q, np.repeat(k, 3, 1), np.repeat(v, 3, 1))
    assert_close(F.scaled_dot_product_attention(*map(gt.tensor, (q, k, v)), enable_gqa=True), wanted)
    with pytest.raises(RuntimeError, match="must divide the number of heads"):
        F.scaled_dot_product_attention(
            gt.zeros(1, 5, 2, 2), gt.zeros(1, 2, 2, 2), gt.zeros(1, 2, 2, 2), enable_gqa=True
        )


@pytest.mark.parametrize("dtype", FLOATS)
def test_attention_of_any_dtype_and_layout(dtype: str) -> None:
    """Checks heads as programs often pass them: `(batch, length, heads, features)` with two axes exchanged."""
    operands = [quantized(x, dtype) for x in _operands((2, 33, 3, 8), (2, 21, 3, 8), (2, 21, 3, 8))]
    leaves = [to_gt(x, dtype).requires_grad_() for x in operands]
    out = F.scaled_dot_product_attention(*(x.transpose(1, 2) for x in leaves))
    assert_close(out, attention(*(np.asarray(x, np.float64).transpose(0, 2, 1, 3) for x in operands)), dtype)
    out.sum().backward()
    assert all(leaf.grad.isfinite().all().item() for leaf in leaves)


def test_attention_drops_weights() -> None:
    gt.manual_seed(0)
    q, eye = gt.zeros(1, 1, 400, 4), gt.eye(400).reshape(1, 1, 400, 400)
    weights = F.scaled_dot_product_attention(q, gt.zeros(1, 1, 400, 4), eye, dropout_p=0.25)
    kept = to_numpy(weights) != 0
    assert abs(kept.mean() - 0.75) < 0.01
    np.testing.assert_allclose(to_numpy(weights)[kept], 1 / 400 / 0.75, rtol=1e-5)
    seen = gt.tensor(np.tri(400, dtype=bool))
    assert not to_numpy(F.scaled_dot_product_attention(q, q, eye, seen, dropout_p=0.5))[0, 0][
        ~np.tri(400, dtype=bool)
    ].any()


def test_attention_names_the_mismatch() -> None:
    attend = F.scaled_dot_product_attention
    with pytest.raises(RuntimeError, match="Expected query, key, and value to have the same dtype"):
        attend(gt.zeros(2, 2), gt.zeros(2, 2, dtype=gt.float64), gt.zeros(2, 2))
    with pytest.raises(RuntimeError, match="at least 2 dimensional"):
        attend(gt.zeros(2), gt.zeros(2), gt.zeros(2))
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        attend(gt.zeros(2, 3), gt.zeros(2, 4), gt.zeros(2, 4))
    with pytest.raises(RuntimeError, match="same sequence length"):
        attend(gt.zeros(2, 3), gt.zeros(2, 3), gt.zeros(4, 3))
    with pytest.raises(ValueError, match="between 0 and 1"):
        attend(gt.zeros(2, 3), gt.zeros(2, 3), gt.zeros(2, 3), dropout_p=2.0)


def test_one_instruction_a_step_and_one_for_its_gradient() -> None:
    """Counts instructions, which determine the time of a training step on small tensors."""
    scores, target = gt.zeros(4, 3, requires_grad=True), gt.tensor([0, 1, 2, 0])
    before = gt.zeros(1)._id
    F.cross_entropy(scores, target).backward()
    # The loss, its own gradient of 1, and the gradient of the scores.
    assert gt.zeros(1)._id - before - 1 == 3
