"""Functions composed of the table's ops, against NumPy, with gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special
from support import assert_close, draw, name_of, numeric_gradient, to_numpy

import gt

RNG = np.random.default_rng(20)
MATRIX = RNG.standard_normal((4, 5))
CUBE = RNG.standard_normal((2, 3, 4))


def check(call: Callable[[Any], gt.Tensor], reference: Callable[[np.ndarray], np.ndarray], array: np.ndarray) -> None:
    """Checks values and gradient, for a whole tensor and for a view that is not contiguous."""
    weights = np.random.default_rng(21).uniform(0.5, 1.5, np.shape(reference(array)))
    for turned in (False, True):
        stored = gt.tensor(array.T.copy() if turned else array, requires_grad=True)
        t = stored.T if turned else stored
        result = call(t)
        assert_close(result, reference(array), "float64")
        result.backward(gt.tensor(weights))
        got = to_numpy(stored.grad)
        wanted = numeric_gradient(lambda x: reference(x) * weights, [array], 0)
        np.testing.assert_allclose(got.T if turned else got, wanted, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_softmax(dim: int) -> None:
    check(lambda t: t.softmax(dim), lambda a: scipy.special.softmax(a, dim), MATRIX)
    check(lambda t: gt.softmax(t, dim=dim), lambda a: scipy.special.softmax(a, dim), MATRIX)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_log_softmax(dim: int) -> None:
    check(lambda t: t.log_softmax(dim), lambda a: scipy.special.log_softmax(a, dim), MATRIX)
    check(lambda t: gt.log_softmax(t, dim=dim), lambda a: scipy.special.log_softmax(a, dim), MATRIX)


@pytest.mark.parametrize("dim", [None, 0, 1, -1, (0, 2)])
@pytest.mark.parametrize("keepdim", [False, True])
def test_var_and_std(dim: Any, keepdim: bool) -> None:
    for correction in (0, 1):
        check(
            lambda t: t.var(dim=dim, correction=correction, keepdim=keepdim),  # noqa: B023 (called at once)
            lambda a: np.asarray(np.var(a, axis=dim, ddof=correction, keepdims=keepdim)),  # noqa: B023
            CUBE,
        )
        check(
            lambda t: gt.std(t, dim=dim, correction=correction, keepdim=keepdim),  # noqa: B023
            lambda a: np.asarray(np.std(a, axis=dim, ddof=correction, keepdims=keepdim)),  # noqa: B023
            CUBE,
        )


def test_var_s_older_words() -> None:
    t = gt.tensor(CUBE)
    assert_close(t.var(), np.asarray(np.var(CUBE, ddof=1)))
    assert_close(t.var(unbiased=False), np.asarray(np.var(CUBE)))
    assert_close(t.std(axis=1, keepdims=True), np.std(CUBE, axis=1, ddof=1, keepdims=True))


@pytest.mark.parametrize("name", ["max", "min"])
def test_max_and_min_along_an_axis_tell_where(name: str) -> None:
    t = gt.tensor(CUBE)
    numpy = {"max": np.max, "min": np.min}[name]
    place = {"max": np.argmax, "min": np.argmin}[name]
    assert_close(getattr(t, name)(), np.asarray(numpy(CUBE)))
    for dim in (0, 1, 2, -1):
        pair = getattr(t, name)(dim=dim)
        assert_close(pair.values, numpy(CUBE, axis=dim))
        assert_close(pair.indices, place(CUBE, axis=dim), "int64")
        values, indices = getattr(gt, name)(t, dim, keepdim=True)
        assert_close(values, numpy(CUBE, axis=dim, keepdims=True))
        assert_close(indices, place(CUBE, axis=dim, keepdims=True), "int64")
        check(lambda t: getattr(t, name)(dim=dim).values, lambda a: numpy(a, axis=dim), CUBE)  # noqa: B023


def test_max_of_two_is_elementwise() -> None:
    a, b = gt.tensor([1.0, 5.0]), gt.tensor([3.0, 2.0])
    assert gt.max(a, b).tolist() == [3, 5]
    assert gt.min(a, b).tolist() == [1, 2]


def test_ties_share_the_gradient_of_an_extreme() -> None:
    t = gt.tensor([2.0, 1.0, 2.0], requires_grad=True)
    t.amax().backward()
    assert t.grad.tolist() == [0.5, 0, 0.5]
    u, v = gt.tensor([2.0], requires_grad=True), gt.tensor([2.0], requires_grad=True)
    gt.maximum(u, v).backward(gt.ones(1))
    assert (u.grad + v.grad).tolist() == [1]


def test_clamp() -> None:
    for low, high in [(-0.5, 0.5), (None, 0.3), (-0.2, None)]:
        check(lambda t: t.clamp(low, high), lambda a: np.clip(a, low, high), MATRIX)  # noqa: B023
    assert gt.tensor([1, 5, 9]).clamp(2, 6).tolist() == [2, 5, 6]
    assert gt.tensor([1.0, 5.0]).clamp(min=gt.tensor([2.0, 2.0])).tolist() == [2, 5]
    assert gt.tensor([1.0]).clamp(3.0, 2.0).tolist() == [2]  # The upper bound wins, as in PyTorch.
    with pytest.raises(RuntimeError, match="At least one"):
        gt.tensor([1.0]).clamp()


def test_cat_stack_split_chunk() -> None:
    a, b = RNG.standard_normal((2, 3)), RNG.standard_normal((2, 3))
    x, y = gt.tensor(a), gt.tensor(b)
    for dim in (0, 1, -1):
        assert_close(gt.cat([x, y], dim=dim), np.concatenate([a, b], axis=dim))
        assert_close(gt.cat((x, y), axis=dim), np.concatenate([a, b], axis=dim))
    for dim in (0, 1, 2, -1):
        assert_close(gt.stack([x, y], dim=dim), np.stack([a, b], axis=dim))
    t = gt.arange(10)
    assert [p.tolist() for p in t.split(4)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert [p.tolist() for p in gt.split(t, [1, 0, 9])] == [[0], [], list(range(1, 10))]
    assert [p.shape[0] for p in t.chunk(4)] == [3, 3, 3, 1]
    assert [p.shape[1] for p in gt.chunk(x, 2, dim=1)] == [2, 1]
    assert [p.shape[0] for p in gt.chunk(gt.arange(2), 5)] == [1, 1]
    check(
        lambda t: gt.cat(t.split(2, dim=1)[::-1], dim=1),
        lambda a: np.concatenate([a[:, 4:], a[:, 2:4], a[:, :2]], 1),
        MATRIX,
    )
    check(lambda t: gt.stack([t, t * 2], dim=1).sum(1), lambda a: a * 3, MATRIX)


def test_cat_of_many() -> None:
    pieces = [gt.full((1, 3), float(i), requires_grad=True) for i in range(60)]
    whole = gt.cat(pieces)
    assert whole[:, 0].tolist() == list(range(60))
    (whole * 2).sum().backward()
    assert all(piece.grad.tolist() == [[2, 2, 2]] for piece in pieces)


def test_movements() -> None:
    check(lambda t: t.reshape(2, -1), lambda a: a.reshape(2, -1), MATRIX)
    check(lambda t: t.flatten(), lambda a: a.ravel(), MATRIX)
    check(lambda t: t.unsqueeze(1).expand(4, 3, 5), lambda a: np.broadcast_to(a[:, None], (4, 3, 5)), MATRIX)
    check(lambda t: t.transpose(0, 1) @ t, lambda a: a.T @ a, MATRIX)


def test_where_and_masks() -> None:
    check(lambda t: gt.where(t > 0, t, t * 0.1), lambda a: np.where(a > 0, a, a * 0.1), MATRIX)
    check(lambda t: gt.where(t > 0, t, 2.0), lambda a: np.where(a > 0, a, 2.0), MATRIX)
    check(lambda t: t * (t > 0), lambda a: a * (a > 0), MATRIX)


def test_gelu_has_two_forms() -> None:
    check(lambda t: t.gelu(), lambda a: a * 0.5 * (1 + scipy.special.erf(a / np.sqrt(2))), MATRIX)
    tanh = lambda a: 0.5 * a * (1 + np.tanh(np.sqrt(2 / np.pi) * (a + 0.044715 * a**3)))  # noqa: E731
    check(lambda t: t.gelu(approximate="tanh"), tanh, MATRIX)
    with pytest.raises((RuntimeError, ValueError), match="approximate"):
        gt.tensor(MATRIX).gelu(approximate="nearly")


def test_a_long_expression() -> None:
    """Attention with one head, from many ops together."""
    k, v = RNG.standard_normal((6, 4)), RNG.standard_normal((6, 3))
    q = RNG.standard_normal((5, 4))
    check(
        lambda t: ((t @ gt.tensor(k).T) / 4**0.5).softmax(-1) @ gt.tensor(v),
        lambda a: scipy.special.softmax(a @ k.T / 4**0.5, -1) @ v,
        q,
    )


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (1, 5000), (5000, 1), (3, 70_001), (70_001, 3), (700, 301)])
def test_reductions_of_any_proportions(rows: int, columns: int) -> None:
    array = draw(np.random.default_rng(rows), (rows, columns), "float32")
    t = gt.tensor(array)
    for view, seen in ((t, array), (t.T, array.T), (t[::-1], array[::-1])):
        for axis in (0, 1, None):
            exact = seen.astype(np.float64)
            wanted = np.asarray(exact.sum(axis=axis))
            np.testing.assert_allclose(
                to_numpy(view.sum(axis=axis)), wanted, atol=1e-6 * exact.size / max(wanted.size, 1) + 1e-4
            )
            assert_close(
                view.amax(axis=axis) if axis is not None else view.max(),
                np.asarray(seen.max(axis=axis)),
                "float32",
                0.0,
            )
            np.testing.assert_array_equal(to_numpy(view.argmin(axis)), seen.argmin(axis=axis))


def test_functions_are_methods_too() -> None:
    t = gt.tensor([[0.5, -1.0], [2.0, 0.25]])
    for name in (
        "sum",
        "mean",
        "prod",
        "amax",
        "amin",
        "argmax",
        "argmin",
        "var",
        "std",
        "any",
        "all",
        "abs",
        "exp",
        "flatten",
    ):
        got, wanted = getattr(gt, name)(t), getattr(t, name)()
        np.testing.assert_array_equal(to_numpy(got), to_numpy(wanted))
        assert name_of(got.dtype) == name_of(wanted.dtype)
