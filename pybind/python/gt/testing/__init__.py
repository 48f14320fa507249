"""Comparison of tensors in tests: `assert_close`."""

from gt import _absent
from gt.testing._comparison import assert_close

__all__ = ["assert_close"]

__getattr__ = _absent.getter(__name__)
