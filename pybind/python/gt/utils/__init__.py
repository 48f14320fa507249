"""What surrounds training: `gt.utils.data` feeds it."""

from gt import _absent
from gt.utils import data

__all__ = ["data"]

__getattr__ = _absent.getter(__name__)
