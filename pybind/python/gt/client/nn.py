"""The older import path of `gt.nn`."""

from gt.nn import *  # noqa: F403
from gt.nn import __all__  # noqa: F401
