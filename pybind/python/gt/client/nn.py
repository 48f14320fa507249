"""`gt.nn` under another import path."""

from gt.nn import *  # noqa: F403
from gt.nn import __all__  # noqa: F401
