"""Window functions against SciPy's."""

from __future__ import annotations

import pytest
from scipy.signal import windows as scipy_windows
from support import assert_close

import gt


@pytest.mark.parametrize("sym", [True, False])
@pytest.mark.parametrize("length", [0, 1, 2, 7, 10])
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("bartlett", {}),
        ("blackman", {}),
        ("cosine", {}),
        ("exponential", {"tau": 2.0}),
        ("gaussian", {"std": 0.9}),
        ("general_cosine", {"a": [0.4, 0.3, 0.2]}),
        ("general_hamming", {"alpha": 0.6}),
        ("hamming", {}),
        ("hann", {}),
        ("kaiser", {"beta": 8.0}),
        ("nuttall", {}),
    ],
)
def test_windows(name, arguments, length, sym):
    got = getattr(gt.signal.windows, name)(length, sym=sym, **arguments)
    assert_close(got, getattr(scipy_windows, name)(length, sym=sym, **arguments), "float32", 1e-6)


def test_wrong_windows():
    with pytest.raises(ValueError, match="hann requires non-negative window length, got M=-1"):
        gt.signal.windows.hann(-1)
    with pytest.raises(ValueError, match="expects float32 or float64 dtypes"):
        gt.signal.windows.hann(3, dtype=gt.int64)
    with pytest.raises(ValueError, match="Tau must be positive"):
        gt.signal.windows.exponential(3, tau=-1)
