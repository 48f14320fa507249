"""Composites under PyTorch's names: values, dtypes and gradients against NumPy, one row a case."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special
from support import assert_close, name_of, numeric_gradient, to_numpy

import gt

RNG = np.random.default_rng(40)
M, N = RNG.standard_normal((3, 4)), RNG.standard_normal((4, 5))
SAME = RNG.standard_normal((3, 4))
CUBE, OTHER = RNG.standard_normal((2, 3, 4)), RNG.standard_normal((2, 4, 5))
V, W = RNG.standard_normal(4), RNG.standard_normal(5)
MASK = np.arange(12).reshape(3, 4) % 3 == 0
INDEX = np.array([2, 0, 0, 1])

# Name, operands, the function of (module, *operands), and the same in NumPy.
Case = tuple[str, tuple[np.ndarray, ...], Callable[..., Any], Callable[..., Any]]
CASES: list[Case] = [
    ("tril", (M,), lambda t, a: t.tril(a), np.tril),
    ("tril above", (CUBE,), lambda t, a: t.tril(a, 1), lambda a: np.tril(a, 1)),
    ("triu", (M,), lambda t, a: t.triu(a), np.triu),
    ("triu below", (CUBE,), lambda _, a: a.triu(diagonal=-1), lambda a: np.triu(a, -1)),
    ("masked_fill", (M,), lambda t, a: a.masked_fill(t.tensor(MASK), 2.5), lambda a: np.where(MASK, 2.5, a)),
    ("repeat", (M,), lambda _, a: a.repeat(2, 1, 3), lambda a: np.tile(a, (2, 1, 3))),
    ("repeat of a list", (V,), lambda _, a: a.repeat([2, 2]), lambda a: np.tile(a, (2, 2))),
    ("tile", (M,), lambda t, a: t.tile(a, (2,)), lambda a: np.tile(a, 2)),
    ("roll", (M,), lambda t, a: t.roll(a, 5), lambda a: np.roll(a, 5)),
    ("roll of axes", (M,), lambda _, a: a.roll((1, -2), (0, -1)), lambda a: np.roll(a, (1, -2), (0, 1))),
    ("unbind", (CUBE,), lambda t, a: t.unbind(a, 1)[2], lambda a: a[:, 2]),
    ("index_select", (M,), lambda t, a: t.index_select(a, 0, t.tensor(INDEX)), lambda a: a[INDEX]),
    ("index_select of columns", (CUBE,), lambda t, a: a.index_select(-1, t.tensor(INDEX)), lambda a: a[..., INDEX]),
    ("movedim", (CUBE,), lambda t, a: t.movedim(a, 0, -1), lambda a: np.moveaxis(a, 0, -1)),
    ("moveaxis", (CUBE,), lambda t, a: t.moveaxis(a, (0, 1), (2, 0)), lambda a: np.moveaxis(a, (0, 1), (2, 0))),
    ("swapdims", (CUBE,), lambda t, a: t.swapdims(a, 0, 2), lambda a: np.swapaxes(a, 0, 2)),
    ("broadcast_to", (V,), lambda t, a: t.broadcast_to(a, (3, 4)), lambda a: np.broadcast_to(a, (3, 4))),
    ("hstack", (M, SAME), lambda t, a, b: t.hstack((a, b)), lambda a, b: np.hstack((a, b))),
    ("hstack of vectors", (V, W), lambda t, a, b: t.hstack((a, b)), lambda a, b: np.hstack((a, b))),
    ("vstack", (V, M), lambda t, a, b: t.vstack((a, b)), lambda a, b: np.vstack((a, b))),
    (
        "meshgrid",
        (V, W),
        lambda t, a, b: t.meshgrid(a, b, indexing="ij")[0],
        lambda a, b: np.meshgrid(a, b, indexing="ij")[0],
    ),
    ("meshgrid xy", (V, W), lambda t, a, b: t.meshgrid(a, b, indexing="xy")[1], lambda a, b: np.meshgrid(a, b)[1]),
    ("lerp", (M, SAME), lambda t, a, b: t.lerp(a, b, 0.3), lambda a, b: a + 0.3 * (b - a)),
    ("hypot", (M, SAME), lambda t, a, b: t.hypot(a, b), np.hypot),
    ("float_power", (M,), lambda t, a: t.float_power(a, 3), lambda a: a**3),
    ("rsub", (M, SAME), lambda t, a, b: t.rsub(a, b, alpha=2), lambda a, b: b - 2 * a),
    ("clamp_min", (M,), lambda t, a: t.clamp_min(a, 0.1), lambda a: np.maximum(a, 0.1)),
    ("clamp_max", (M,), lambda _, a: a.clamp_max(0.1), lambda a: np.minimum(a, 0.1)),
    ("logsumexp", (M,), lambda t, a: t.logsumexp(a, 1), lambda a: scipy.special.logsumexp(a, 1)),
    (
        "logsumexp kept",
        (CUBE,),
        lambda _, a: a.logsumexp((0, 2), keepdim=True),
        lambda a: scipy.special.logsumexp(a, (0, 2), keepdims=True),
    ),
    ("norm", (CUBE,), lambda t, a: t.norm(a), lambda a: np.linalg.norm(a.ravel())),
    ("norm 1", (M,), lambda _, a: a.norm(1, dim=1), lambda a: np.linalg.norm(a, 1, axis=1)),
    (
        "norm 3",
        (M,),
        lambda _, a: a.norm(3, dim=-1, keepdim=True),
        lambda a: np.linalg.norm(a, 3, axis=1, keepdims=True),
    ),
    ("norm inf", (M,), lambda _, a: a.norm(math.inf, 0), lambda a: abs(a).max(0)),
    ("norm -inf", (M,), lambda _, a: a.norm(-math.inf, 0), lambda a: abs(a).min(0)),
    ("var_mean", (M,), lambda t, a: t.var_mean(a, dim=1)[0], lambda a: a.var(1, ddof=1)),
    ("std_mean", (M,), lambda t, a: t.std_mean(a, dim=1, correction=0)[0], lambda a: a.std(1)),
    (
        "cosine",
        (M, SAME),
        lambda t, a, b: t.cosine_similarity(a, b),
        lambda a, b: (a * b).sum(1) / np.sqrt((a * a).sum(1) * (b * b).sum(1)),
    ),
    ("outer", (V, W), lambda t, a, b: t.outer(a, b), np.outer),
    ("dot", (V, V + 1), lambda t, a, b: t.dot(a, b), np.dot),
    ("mv", (M, V), lambda t, a, b: t.mv(a, b), np.dot),
    ("mm", (M, N), lambda _, a, b: a.mm(b), np.dot),
    ("bmm", (CUBE, OTHER), lambda t, a, b: t.bmm(a, b), np.matmul),
    ("addmm", (W, M, N), lambda t, a, b, c: t.addmm(a, b, c, beta=0.5, alpha=2), lambda a, b, c: 0.5 * a + 2 * b @ c),
    ("baddbmm", (W, CUBE, OTHER), lambda t, a, b, c: t.baddbmm(a.expand(2, 3, 5), b, c), lambda a, b, c: a + b @ c),
    *(
        (f"einsum {text}", operands, lambda t, *a, e=text: t.einsum(e, *a), lambda *a, e=text: np.einsum(e, *a))
        for text, operands in [
            ("ij->ji", (M,)),
            ("ij->", (M,)),
            ("ijk->j", (CUBE,)),
            ("ij,jk->ik", (M, N)),
            ("ij,jk", (M, N)),
            ("bij,bjk->kib", (CUBE, OTHER)),
            ("i,j->ij", (V, W)),
            ("ij,ij->i", (M, SAME)),
            ("ij,ij->", (M, SAME)),
            ("i,i", (V, V)),
            ("bij,j->bi", (CUBE, V)),
            ("bij,j,bjk->k", (CUBE, V, OTHER)),
            ("ij,k->j", (M, V)),
        ]
    ),
]


@pytest.mark.parametrize(
    ("operands", "call", "reference"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_composites(
    operands: tuple[np.ndarray, ...], call: Callable[..., gt.Tensor], reference: Callable[..., Any]
) -> None:
    tensors = [gt.tensor(array, requires_grad=True) for array in operands]
    result = call(gt, *tensors)
    assert_close(result, reference(*operands), "float64")
    weights = np.random.default_rng(41).uniform(0.5, 1.5, np.shape(reference(*operands)))
    result.backward(gt.tensor(weights))
    for which, t in enumerate(tensors):
        wanted = numeric_gradient(lambda *a: reference(*a) * weights, list(operands), which)
        got = np.zeros(t.shape) if t.grad is None else to_numpy(t.grad)  # an operand that the result does not depend on
        np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "int64", "float16", "bfloat16", "float32"])
def test_dtypes_stay(dtype: str) -> None:
    t = gt.tensor([[1, 0, 1], [0, 1, 1]]).to(getattr(gt, dtype))
    for result in (
        *(t.tril(), t.triu(1), t.masked_fill(t == 1, 0), t.repeat(2, 2), t.tile((2,)), t.roll(1, 0), t.unbind()[0]),
        *(t.index_select(1, gt.tensor([0, 2])), t.movedim(0, 1), gt.hstack((t, t)), gt.vstack((t, t))),
        gt.meshgrid(t[0], t[1])[0],
    ):
        assert name_of(result.dtype) == dtype
    assert_close(t.count_nonzero(), 4, "int64")
    assert_close(t.count_nonzero(0), [1, 1, 2], "int64")
    assert t.float_power(2).dtype == gt.float64
    if t.is_floating_point():
        for result in (t.logsumexp(0), t.norm(), t.hypot(t), t.lerp(t, 0.5), t.mm(t.T), gt.einsum("ij->j", t)):
            assert name_of(result.dtype) == dtype


def test_in_place_forms() -> None:
    t = gt.ones(2, 2)
    assert t.tril_() is t
    assert t.tolist() == [[1, 0], [1, 1]]
    t.masked_fill_(t == 0, -math.inf)
    assert t.tolist() == [[1, -math.inf], [1, 1]]
    t.clamp_min_(0.5).clamp_max_(0.75).lerp_(gt.zeros(2, 2), 0.5).triu_()
    assert t.tolist() == [[0.375, 0.25], [0, 0.375]]


def test_edges() -> None:
    t = gt.tensor([[0.0, 0.0]], requires_grad=True)
    t.norm().backward()
    assert t.grad.tolist() == [[0, 0]]
    assert gt.tensor([-math.inf, -math.inf]).logsumexp(0).item() == -math.inf
    assert gt.tensor([1000.0, 1000.0]).logsumexp(0).item() == pytest.approx(1000 + math.log(2))
    assert gt.tensor([1e30]).hypot(gt.tensor([1e30])).isfinite().item()
    assert gt.tensor([math.inf]).hypot(gt.tensor([-math.inf])).item() == math.inf
    assert gt.tensor([0.0]).hypot(gt.tensor([0.0])).item() == 0
    assert gt.tensor([math.inf, 1.0]).outer(gt.ones(1)).tril().tolist() == [[math.inf], [1]]
    assert gt.tensor([[1.0, math.nan], [1.0, 1.0]]).tril().tolist() == [[1, 0], [1, 1]]
    assert gt.ones(2).repeat(0).shape == (0,)
    assert gt.zeros(0, 3).roll(1, 0).shape == (0, 3)
    assert gt.addmm(gt.tensor(math.nan), gt.ones(1, 1), gt.ones(1, 1), beta=0).item() == 1
    assert gt.tensor([1, 2]).masked_fill(gt.tensor([True, False]), 7.9).tolist() == [7, 2]
    assert gt.is_tensor(t)
    assert not gt.is_tensor([1])
    assert t.ndimension() == 2
    copy = t.detach().repeat(1, 1)
    copy += 1
    assert t.tolist() == [[0, 0]]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda a: a[0].tril(), RuntimeError, "at least 2 dimensions"),
        (lambda a: a.masked_fill(a.long(), 0), RuntimeError, "boolean masks"),
        (lambda a: a.masked_fill(a > 0, a), RuntimeError, "0-dimensional value"),
        (lambda a: a.long().masked_fill(a > 0, math.inf), RuntimeError, "without overflow"),
        (lambda a: a.repeat(2), RuntimeError, "can not be smaller"),
        (lambda a: a.roll((1, 2), 0), RuntimeError, "must align"),
        (lambda a: a.roll(1, 2), IndexError, "Dimension out of range"),
        (lambda a: a[0, 0].roll(1, 0), IndexError, "specified as 0 but tensor has no dimensions"),
        (lambda a: a.movedim((0, 0), (0, 1)), RuntimeError, "each once"),
        (lambda a: a.index_select(0, a.long()), IndexError, "vector"),
        (lambda a: a.norm("max"), RuntimeError, "'max'"),
        (lambda a: a.long().norm(), RuntimeError, "floating point"),
        (lambda a: a.long().lerp(a.long(), 0.5), NotImplementedError, "lerp"),
        (lambda a: a.long().hypot(a.long()), NotImplementedError, "hypot"),
        (lambda a: a.long().addmm(a.long(), a.long(), beta=0.5), RuntimeError, "beta must not be"),
        (lambda a: a.mv(a), RuntimeError, "mv: expected vec to be 1D"),
        (lambda _: gt.ones(2, 1, 1).bmm(gt.ones(1, 1, 1)), RuntimeError, "same length"),
        (lambda a: gt.meshgrid(a[0], indexing="ji"), RuntimeError, "indexing"),
        (lambda a: gt.einsum("ii", a[:1]), RuntimeError, "subscript i is repeated"),
        (lambda a: gt.einsum("ij,jk", a), RuntimeError, "fewer operands were provided"),
        (lambda a: gt.einsum("i", a), RuntimeError, "no ellipsis was given"),
        (lambda a: gt.einsum("ij->k", a), RuntimeError, "does not appear in the equation"),
        (lambda a: gt.einsum("ij,ik", a, gt.ones(3, 2)), RuntimeError, "does not broadcast with"),
    ],
)
def test_invalid_arguments_are_refused(call: Callable[[gt.Tensor], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(gt.ones(2, 2))


def test_a_histogram_has_a_hundred_bins_unless_told() -> None:
    hist, edges = gt.histogram(gt.tensor([0.0, 1.0, 1.0]))
    assert (len(hist), len(edges), hist[0].item(), hist[-1].item()) == (100, 101, 1, 2)
