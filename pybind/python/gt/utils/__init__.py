"""What surrounds training: `gt.utils.data` feeds it."""

from gt.utils import data

__all__ = ["data"]
