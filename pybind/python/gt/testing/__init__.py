"""What tests compare tensors with."""

from gt import _absent
from gt.testing._comparison import assert_close

__all__ = ["assert_close"]

__getattr__ = _absent.getter(__name__)
