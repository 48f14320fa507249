"""Fused elementwise expressions have the same bits as one operation at a time."""

import numpy as np
import pytest

import gt

# Far above the size from which the daemon fuses. A row has several tiles and a part of one.
ROWS, COLUMNS = 130, 3000


def numbers(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def expression(x, row, column, step):
    """A chain of twelve operations; `step` is called with every intermediate result."""
    x = step(x + row)
    y = step(x * 1.5)
    x = step(y - column)
    x = step(x.abs())
    x = step(x + 1.0)
    x = step(x.sqrt())
    x = step(gt.where(x > 1.25, x, y))
    x = step(x.relu())
    x = step(x / 2)
    x = step(x.sin())
    return step(x.tanh())


def awaited(x):
    """Waits for `x` and returns it, so that no instruction is queued."""
    x.reshape(-1)[0].item()
    return x


@pytest.mark.parametrize("dtype", [gt.float32, gt.float64, gt.bfloat16, gt.float16])
def test_an_expression_has_the_bits_of_its_operations(dtype):
    given = [gt.from_numpy(numbers(*s)).to(dtype) for s in ((1, ROWS, COLUMNS), (2, COLUMNS), (3, ROWS, 1))]
    at_once = expression(*given, lambda x: x)
    one_by_one = expression(*given, awaited)
    assert at_once.dtype == dtype
    np.testing.assert_array_equal(at_once.float().numpy(), one_by_one.float().numpy())


def test_intermediate_results_that_are_kept_are_there():
    x = gt.from_numpy(numbers(4, ROWS, COLUMNS))
    kept = [x]
    for _ in range(8):
        kept.append((kept[-1] * 0.5 + 1.0).abs())
    want = x.numpy()
    for got in kept:
        np.testing.assert_array_equal(got.numpy(), want)
        want = np.abs(want * np.float32(0.5) + np.float32(1.0))


def test_gradients_of_a_large_expression_are_those_of_its_operations():
    def gradient(step):
        x = gt.from_numpy(numbers(5, ROWS, COLUMNS)).requires_grad_()
        row = gt.from_numpy(numbers(6, COLUMNS)).requires_grad_()
        step(step((step(x * row)).tanh()) * x).sum().backward()
        return x.grad.numpy(), row.grad.numpy()

    for at_once, one_by_one in zip(gradient(lambda x: x), gradient(awaited), strict=True):
        np.testing.assert_array_equal(at_once, one_by_one)


def test_a_failure_within_an_expression_names_what_failed():
    x = gt.arange(ROWS * COLUMNS)
    zero = gt.zeros(ROWS * COLUMNS, dtype=gt.int64)
    y = (x + 1) * 2
    bad = (y // zero) + 1
    good = y - 1
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        bad.numpy()
    np.testing.assert_array_equal(good.numpy(), (np.arange(ROWS * COLUMNS) + 1) * 2 - 1)
