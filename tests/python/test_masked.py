"""`gt.masked` against NumPy's masked arrays, and the functions of `gt.fft` on real numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support import assert_close

import gt

VALUES = np.random.default_rng(0).normal(size=(3, 4))
MASK = np.array([[1, 0, 1, 1], [0, 1, 0, 1], [1, 1, 1, 1]], bool)
MASKED = np.ma.array(VALUES, mask=~MASK)
EXPONENTIALS = np.ma.exp(MASKED)


@pytest.mark.parametrize("dim", [None, 0, 1])
@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("sum", MASKED.sum),
        ("prod", MASKED.prod),
        ("mean", MASKED.mean),
        ("amax", MASKED.max),
        ("amin", MASKED.min),
        ("var", lambda **axes: MASKED.var(ddof=1, **axes)),
        ("std", lambda **axes: MASKED.std(ddof=1, **axes)),
        ("norm", lambda **axes: np.sqrt((MASKED**2).sum(**axes))),
        ("logsumexp", lambda **axes: np.log(EXPONENTIALS.sum(**axes))),
    ],
)
def test_reductions(name: str, wanted: Any, dim: int | None, keepdim: bool) -> None:
    got = getattr(gt.masked, name)(gt.tensor(VALUES), dim=dim, keepdim=keepdim, mask=gt.tensor(MASK))
    assert_close(got, np.asarray(wanted(axis=dim, keepdims=keepdim)))


def test_positions_scans_and_medians() -> None:
    t, mask = gt.tensor(VALUES), gt.tensor(MASK)
    assert gt.masked.argmax(t, 1, mask=mask).tolist() == MASKED.argmax(1).tolist()
    assert gt.masked.argmin(t, 1, mask=mask).tolist() == MASKED.argmin(1).tolist()
    assert_close(gt.masked.cumsum(t, 1, mask=mask), np.where(MASK, VALUES, 0).cumsum(1))
    assert_close(gt.masked.cumprod(t, 1, mask=mask), np.where(MASK, VALUES, 1).cumprod(1))
    rows = [sorted(row[kept]) for row, kept in zip(VALUES, MASK, strict=True)]
    assert_close(gt.masked.median(t, 1, mask=mask), [row[(len(row) - 1) // 2] for row in rows])


def test_rows_that_sum_to_one() -> None:
    t, mask = gt.tensor(VALUES), gt.tensor(MASK)
    wanted = (EXPONENTIALS / EXPONENTIALS.sum(1, keepdims=True)).filled(0)
    assert_close(gt.masked.softmax(t, 1, mask=mask), wanted)
    assert_close(gt.masked.log_softmax(t, 1, mask=mask).exp(), wanted)
    assert_close(gt.masked.softmin(-t, 1, mask=mask), wanted)
    assert_close(gt.masked.normalize(t, 1, 1, mask=mask).abs().sum(1), [1, 1, 1])


def test_a_mask_broadcasts_and_each_operand_may_have_its_own() -> None:
    t = gt.tensor([[1, 2], [3, 4]])
    assert gt.masked.sum(t, mask=gt.tensor([True, False])).item() == 4
    assert gt.masked.sum(t, 0).tolist() == [4, 6]
    with pytest.raises(IndexError, match="expected broadcastable mask"):
        gt.masked.sum(t, mask=gt.ones(1, 2, 2, dtype=gt.bool))
    with pytest.raises(ValueError, match="floating dtype"):
        gt.masked.median(t, 0)
    a, b = gt.tensor([1.0, 2.0]), gt.tensor([3.0, 4.0])
    first, second = gt.tensor([True, False]), gt.tensor([False, True])
    assert gt.masked.logaddexp(a, b, input_mask=first, other_mask=second).tolist() == [1, 4]


def test_gradients_reach_unmasked_elements_only() -> None:
    t = gt.tensor(VALUES, requires_grad=True)
    gt.masked.mean(t, 1, mask=gt.tensor(MASK)).sum().backward()
    assert_close(t.grad, MASK / MASK.sum(1, keepdims=True))


@pytest.mark.parametrize("size", [4, 5])
def test_frequencies(size: int) -> None:
    assert_close(gt.fft.fftfreq(size, 0.5, dtype=gt.float64), np.fft.fftfreq(size, 0.5))
    assert_close(gt.fft.rfftfreq(size, 0.5, dtype=gt.float64), np.fft.rfftfreq(size, 0.5))
    array = np.arange(3 * size).reshape(3, size)
    for dim in (None, 1, (0, 1)):
        assert gt.fft.fftshift(gt.tensor(array), dim).tolist() == np.fft.fftshift(array, dim).tolist()
        assert gt.fft.ifftshift(gt.tensor(array), dim).tolist() == np.fft.ifftshift(array, dim).tolist()
