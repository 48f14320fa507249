"""`assert_close`, and tensors exchanged with other libraries."""

from __future__ import annotations

import numpy as np
import pytest

import gt
from gt.testing import assert_close


def test_assert_close_accepts_small_differences() -> None:
    t = gt.tensor([1.0, 2.0])
    assert_close(t, t + 1e-6)
    assert_close(t.bfloat16(), t.bfloat16() * 1.01)
    assert_close({"a": [t, 1]}, {"a": (t, 1)})
    assert_close(1.0, 1.0 + 1e-8)
    assert_close(np.ones(2), np.ones(2))
    assert_close(t, t + 0.5, rtol=0, atol=1)
    assert_close(t, t.double(), check_dtype=False)
    assert_close(gt.tensor([float("nan")]), gt.tensor([float("nan")]), equal_nan=True)
    assert_close(None, None)


@pytest.mark.parametrize(
    ("actual", "expected", "message"),
    [
        (
            [1.0, 2.0],
            [1.0, 2.5],
            r"Mismatched elements: 1 / 2 \(50.0%\)\nGreatest absolute difference: 0.5 at index \(1,\)",
        ),
        ([1.0], [1.0, 2.0], "'shape' do not match"),
        ([1], [1.0], "'dtype' do not match"),
        ([1, 2], [1, 3], "Tensor-likes are not equal!"),
        ([float("nan")], [float("nan")], "not close"),
    ],
)
def test_assert_close_describes_the_difference(actual: list[float], expected: list[float], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        assert_close(gt.tensor(actual), gt.tensor(expected))


def test_where_it_is_not() -> None:
    t = gt.ones(1)
    with pytest.raises(AssertionError, match=r"for item \['a'\]\[1\]"):
        assert_close({"a": [t, t]}, {"a": [t, t + 1]})
    with pytest.raises(AssertionError, match="length of the sequences mismatch: 1 != 2"):
        assert_close([t], [t, t])
    with pytest.raises(AssertionError, match="so: Scalars are not"):
        assert_close(1, 2, msg=lambda told: f"so: {told}")
    with pytest.raises(ValueError, match="Both 'rtol' and 'atol'"):
        assert_close(t, t, rtol=1)
    with pytest.raises(TypeError, match="No comparison pair"):
        assert_close("a", t)


def test_tensors_travel_by_dlpack() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    t = gt.from_dlpack(array)
    assert t.equal(gt.from_numpy(array))
    assert t.__dlpack_device__() == (1, 0)
    np.testing.assert_array_equal(np.from_dlpack(t), array)
    assert gt.from_dlpack(t.T).equal(t.T)
    with pytest.raises(RuntimeError, match="requires grad"):
        np.from_dlpack(t.requires_grad_())
