"""Operations that take functions of tensors, under the path by which libraries import them from PyTorch."""

from gt import _absent
from gt._higher_order_ops.associative_scan import associative_scan

__all__ = ["associative_scan"]

__getattr__ = _absent.getter(__name__)
